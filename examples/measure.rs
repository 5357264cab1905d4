//! Measures the figures of docs/results/alone.md: load, reopen after a kill, cold and cached gets, absent
//! keys, scans.
//!
//! `cargo run --release --example measure -- DIR COMMAND ITEMS MEMORY_MIB [OPERATIONS [WARM]]`, with COMMAND
//! one of `load` (random order, then killed without closing), `sorted` (puts in key order), `ingest` (the
//! same items through an ingest), `reopen`, `get`, `multi` (64 keys at once, copied out), `miss`, `scan`,
//! `iterate`. WARM other gets of present keys come first, unmeasured. Keys have 16 bytes, values 100; each
//! value is checked. Reads bypass the page cache if the file system allows it, and the output says so.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a program that measures, not the library"
)]

mod items;

use std::time::Instant;

use hdrhistogram::Histogram;
use items::{key, next, value};
use trine::{Db, Keyspace, Ordered};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, command, items, memory_mib, rest @ ..] = arguments.as_slice() else {
        eprintln!(
            "usage: measure DIR load|sorted|ingest|reopen|get|multi|miss|scan|iterate ITEMS MEMORY_MIB \
             [OPERATIONS [WARM]]"
        );
        std::process::exit(2);
    };
    let items: u64 = items.parse().unwrap();
    let operations = rest.first().map_or(items, |text| text.parse().unwrap());
    let started = Instant::now();
    let db = Db::builder(dir).memory_bytes(memory_mib.parse::<u64>().unwrap() << 20).open().unwrap();
    let keyspace = db.ordered("items").open().unwrap();
    if command == "reopen" {
        let first = keyspace.get(key(0)).unwrap().is_some();
        println!("open to the first get: {:.3} s (found: {first})", started.elapsed().as_secs_f64());
        println!("recovery: {:?}", db.stats().recovery);
    }
    let mut run =
        Run { db: &db, keyspace: &keyspace, items, operations, histogram: Histogram::new(3).unwrap() };
    run.warm(rest.get(1).map_or(0, |text| text.parse().unwrap()));
    match command.as_str() {
        "load" => run.load(),
        "sorted" => run.sorted(),
        "ingest" => run.ingest(),
        "get" => run.get(Keys::Present),
        "miss" => run.get(Keys::Absent),
        "multi" => run.multi(),
        "scan" => run.scan(),
        "iterate" => run.iterate(),
        _ => {}
    }
    run.report();
    if command == "load" {
        // As after a kill: the store is not closed and not synced.
        std::process::abort();
    }
}

/// The keys of the gets.
#[derive(Clone, Copy, PartialEq)]
enum Keys {
    Present,
    Absent,
}

struct Run<'d> {
    db: &'d Db,
    keyspace: &'d Keyspace<Ordered>,
    items: u64,
    operations: u64,
    histogram: Histogram<u64>,
}

impl Run<'_> {
    fn load(&mut self) {
        let started = Instant::now();
        let mut step = Instant::now();
        for number in 0..self.items {
            let at = Instant::now();
            self.keyspace.put(key(number), value(number)).unwrap();
            self.histogram.record(at.elapsed().as_nanos() as u64).unwrap();
            if (number + 1).is_multiple_of(2_000_000) {
                println!("{:>10}  {:>9.0} puts/s", number + 1, 2e6 / step.elapsed().as_secs_f64());
                step = Instant::now();
            }
        }
        self.said("puts", self.items, started);
        let settling = Instant::now();
        self.db.settle().unwrap();
        println!("settled after {:.1} s", settling.elapsed().as_secs_f64());
        // Leaves a half-full memtable for the reopen to replay.
        for number in 0..self.items.min(150_000) {
            self.keyspace.put(key(number), value(number)).unwrap();
        }
    }

    /// All keys in order, each with its item's number.
    fn in_order(&self) -> Vec<([u8; 16], u64)> {
        let mut keys: Vec<([u8; 16], u64)> = (0..self.items).map(|number| (key(number), number)).collect();
        keys.sort_unstable();
        keys
    }

    fn sorted(&mut self) {
        let keys = self.in_order();
        let started = Instant::now();
        for (key, number) in keys {
            self.keyspace.put(key, value(number)).unwrap();
        }
        self.db.sync().unwrap();
        self.said("puts in order", self.items, started);
        self.db.settle().unwrap();
        self.said("puts in order, settled", self.items, started);
    }

    fn ingest(&mut self) {
        let keys = self.in_order();
        let started = Instant::now();
        let mut ingest = self.keyspace.ingest().unwrap();
        for (key, number) in keys {
            ingest.put(key, value(number)).unwrap();
        }
        ingest.finish().unwrap();
        self.said("items ingested", self.items, started);
        self.db.settle().unwrap();
        self.said("items ingested, settled", self.items, started);
    }

    fn warm(&mut self, count: u64) {
        let mut random = 2;
        for _ in 0..count {
            self.keyspace.contains(key(next(&mut random) % self.items)).unwrap();
        }
    }

    fn get(&mut self, keys: Keys) {
        let before = self.db.stats().io;
        let started = Instant::now();
        let mut random = 1;
        for _ in 0..self.operations {
            let number = next(&mut random) % self.items;
            let wanted = if keys == Keys::Present { key(number) } else { key(number + (1 << 40)) };
            let at = Instant::now();
            let found = self.keyspace.get_with(wanted, |found| found == value(number)).unwrap();
            self.histogram.record(at.elapsed().as_nanos() as u64).unwrap();
            assert_eq!(found, (keys == Keys::Present).then_some(true));
        }
        self.said("gets", self.operations, started);
        self.said_reads(before.device_reads, before.device_read_bytes);
    }

    fn multi(&mut self) {
        let before = self.db.stats().io;
        let started = Instant::now();
        let mut random = 1;
        for _ in 0..self.operations / 64 {
            let numbers: Vec<u64> = (0..64).map(|_| next(&mut random) % self.items).collect();
            let keys: Vec<[u8; 16]> = numbers.iter().map(|number| key(*number)).collect();
            let at = Instant::now();
            let mut found = [[0; 100]; 64];
            let take = |index: usize, value: Option<&[u8]>| {
                found[index].copy_from_slice(value.unwrap_or_default());
            };
            self.keyspace.multi_get_with(&keys, take).unwrap();
            self.histogram.record(at.elapsed().as_nanos() as u64).unwrap();
            for (number, found) in numbers.into_iter().zip(found) {
                assert_eq!(found, value(number));
            }
        }
        self.said("gets, 64 at once,", self.operations, started);
        self.said_reads(before.device_reads, before.device_read_bytes);
    }

    fn scan(&mut self) {
        let before = self.db.stats().io;
        let mut cursor = self.keyspace.cursor(..);
        let started = Instant::now();
        let mut random = 1;
        for _ in 0..self.operations {
            let from = key(next(&mut random) % self.items);
            let at = Instant::now();
            cursor.seek(from).unwrap();
            let mut left = 100;
            while left > 0 && cursor.next().unwrap().is_some() {
                left -= 1;
            }
            self.histogram.record(at.elapsed().as_nanos() as u64).unwrap();
        }
        self.said("scans of 100", self.operations, started);
        self.said_reads(before.device_reads, before.device_read_bytes);
    }

    fn iterate(&mut self) {
        let started = Instant::now();
        let mut cursor = self.keyspace.cursor(..);
        let mut count = 0;
        let mut bytes = 0;
        while let Some((key, value)) = cursor.next().unwrap() {
            count += 1;
            bytes += key.len() + value.len();
        }
        self.said("items in order", count, started);
        println!("{:.1} MB/s of keys and values", bytes as f64 / started.elapsed().as_secs_f64() / 1e6);
        assert_eq!(count, self.items);
    }

    fn said(&self, what: &str, count: u64, started: Instant) {
        let seconds = started.elapsed().as_secs_f64();
        println!("{count} {what} in {seconds:.2} s: {:.0}/s", count as f64 / seconds);
    }

    fn said_reads(&self, reads: u64, bytes: u64) {
        let now = self.db.stats().io;
        let each = |count: u64| count as f64 / self.operations as f64;
        println!(
            "device reads an operation: {:.4}, bytes: {:.0}, past the page cache: {}",
            each(now.device_reads - reads),
            each(now.device_read_bytes - bytes),
            now.direct_io
        );
    }

    fn report(&self) {
        let at = |quantile| self.histogram.value_at_quantile(quantile) as f64 / 1e3;
        let max = self.histogram.max() as f64 / 1e3;
        println!(
            "us: p50 {:.1}, p99 {:.1}, p99.9 {:.1}, p99.99 {:.1}, max {max:.0}",
            at(0.5),
            at(0.99),
            at(0.999),
            at(0.9999)
        );
        let stats = self.db.stats();
        let written = stats.write.key_value_bytes.max(1) as f64;
        let tables = (stats.write.flush_bytes + stats.write.merge_write_bytes) as f64 / written;
        let log = stats.write.log_bytes as f64 / written;
        if stats.write.key_value_bytes > 0 {
            println!("write amplification without log {tables:.2}, with log {:.2}", tables + log);
        }
        if stats.write.ingest_bytes > 0 {
            let merged = stats.write.ingest_bytes + stats.write.merge_write_bytes;
            println!("ingest: {:.3} bytes written a byte", merged as f64 / (self.items as f64 * 116.0));
        }
        println!("writers delayed {:.2} s", stats.write.delayed_ns as f64 / 1e9);
        for level in stats.keyspaces.iter().flat_map(|keyspace| &keyspace.levels) {
            println!(
                "level {}: {} runs, {} tables, {} items",
                level.level, level.runs, level.tables, level.items
            );
        }
        let live = self.items as f64 * 116.0;
        println!("table bytes over key and value bytes: {:.3}", stats.space.table_bytes as f64 / live);
        println!("memory: {} of {} MiB", stats.memory.used_bytes >> 20, stats.memory.budget_bytes >> 20);
        for role in &stats.memory.roles {
            println!("  {:<20} {:>6} of {:>6} MiB", role.name, role.bytes >> 20, role.limit_bytes >> 20);
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        for line in status.lines().filter(|line| line.starts_with("VmHWM") || line.starts_with("RssAnon")) {
            println!("{}", line.replace('\t', " "));
        }
    }
}
