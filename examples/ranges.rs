//! Measures range reads of a cached store: ranges a second, of 1, 10, 100 and 10,000 items.
//!
//! `cargo run --release --example ranges -- DIR ITEMS MEMORY_MIB [SECONDS [ONLY]]` puts the items in random
//! order, reads ranges, settles the store and reads them again. Keys have 24 bytes, values 150; the example
//! reads one byte of each cache line of a value. ONLY: a part of the names of the measurements to run. No
//! read goes to a device if the data fits in memory. Each measurement is timed in pieces. The first time
//! printed is their 10th percentile, which other programs disturb less than the median.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a program that measures, not the library"
)]

use std::time::Instant;

use trine::{Db, Keyspace, Ordered};

/// Spreads the numbers of items over their order of insertion; odd, and coprime to the usual counts.
const STRIDE: u64 = 7_368_787;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, items, memory_mib, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: ranges DIR ITEMS MEMORY_MIB [SECONDS [ONLY]]");
        std::process::exit(2);
    };
    let items: u64 = items.parse().unwrap();
    let seconds: f64 = rest.first().map_or(1.0, |text| text.parse().unwrap());
    let memory_bytes = memory_mib.parse::<u64>().unwrap() << 20;
    let db = Db::builder(dir).memory_bytes(memory_bytes).open().unwrap();
    let keyspace = db.ordered("items").open().unwrap();
    if keyspace.first().unwrap().is_none() {
        for number in 0..items {
            keyspace.put(key(number.wrapping_mul(STRIDE) % items), [7; 150]).unwrap();
        }
    }
    let only = rest.get(1).map_or("", String::as_str);
    let run = Run { keyspace: &keyspace, items, seconds, only };
    run.all("unsettled", &db);
    db.flush().unwrap();
    run.all("flushed", &db);
    db.compact().unwrap();
    run.all("settled", &db);
}

/// A dense key, so that the items of a range can be counted.
fn key(number: u64) -> [u8; 24] {
    let mut key = *b"user00000000000000000000";
    let digits = number.to_string();
    key[24 - digits.len()..].copy_from_slice(digits.as_bytes());
    key
}

struct Run<'d> {
    keyspace: &'d Keyspace<Ordered>,
    items: u64,
    seconds: f64,
    only: &'d str,
}

impl Run<'_> {
    fn all(&self, name: &str, db: &Db) {
        let stats = db.stats();
        let runs: u64 = stats.keyspaces[0].levels.iter().map(|level| level.runs).sum();
        println!("{name}: {runs} runs");
        // This scan brings all items into the cache.
        assert_eq!(self.keyspace.iter().count() as u64, self.items);
        self.measure("range(a..).take(10)", 10, |from| {
            self.keyspace.range(key(from)..).take(10).map(|item| look(&item.unwrap().1)).sum()
        });
        self.measure("range(a..b) of 10", 10, |from| {
            self.keyspace.range(key(from)..key(from + 10)).map(|item| look(&item.unwrap().1)).sum()
        });
        self.measure("range(..a).rev().take(10)", 10, |from| {
            let range = self.keyspace.range(..key(from + 10)).rev();
            range.take(10).map(|item| look(&item.unwrap().1)).sum()
        });
        self.measure("range(a..).next()", 1, |from| {
            self.keyspace.range(key(from)..).take(1).map(|item| look(&item.unwrap().1)).sum()
        });
        self.measure("new cursor, 10", 10, |from| walk(&mut self.keyspace.cursor(key(from)..), 10));
        for count in [1, 10, 100, 10_000] {
            let mut cursor = self.keyspace.cursor(..);
            self.measure(&format!("cursor, seek and {count}"), count, |from| {
                cursor.seek(key(from)).unwrap();
                walk(&mut cursor, count)
            });
        }
        for count in [100, 10_000] {
            self.measure(&format!("range(a..).take({count})"), count, |from| {
                let range = self.keyspace.range(key(from)..);
                range.take(count as usize).map(|item| look(&item.unwrap().1)).sum()
            });
        }
        self.measure("get", 1, |from| self.keyspace.get(key(from)).unwrap().map_or(0, |value| look(&value)));
    }

    fn measure(&self, what: &str, count: u64, mut one: impl FnMut(u64) -> usize) {
        if !what.contains(self.only) {
            return;
        }
        let (mut random, mut times) = (1, Vec::new());
        let rounds = (1000 / count).max(1);
        let started = Instant::now();
        while started.elapsed().as_secs_f64() < self.seconds {
            let at = Instant::now();
            for _ in 0..rounds {
                let from = next(&mut random) % (self.items - count);
                assert_eq!(one(from) as u64, count * 21, "{what} from {from}");
            }
            times.push(at.elapsed().as_secs_f64() / rounds as f64);
        }
        times.sort_by(f64::total_cmp);
        let [quick, middle] = [10, 2].map(|part| times[times.len() / part] * 1e6);
        println!("  {what:<28} {:>9.1} K/s: {quick:>9.2} us, median {middle:>9.2} us", 1e3 / quick);
    }
}

fn walk(cursor: &mut trine::Cursor, items_max: u64) -> usize {
    let (mut left, mut sum) = (items_max, 0);
    while left > 0
        && let Some((_, value)) = cursor.next().unwrap()
    {
        sum += look(value);
        left -= 1;
    }
    sum
}

/// The sum of one byte of each cache line.
fn look(value: &[u8]) -> usize {
    value.iter().step_by(64).map(|byte| usize::from(*byte)).sum()
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) >> 8
}
