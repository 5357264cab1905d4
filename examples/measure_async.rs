//! Measures gets of random keys by one thread that does not wait for them: the figures of
//! docs/results/alone.md for asynchronous reads.
//!
//! `cargo run --release --example measure_async -- DIR HOW ITEMS MEMORY_MIB OPERATIONS DEPTH [WARM [IO]]`, in
//! a directory loaded by the example `measure`. HOW is one of `blocking` (get), `multi` (multi_get of DEPTH
//! keys), `await` (one future after another under `trine::block_on`), `block_on` (DEPTH futures at once under
//! it), `tokio` (the same under tokio's single-threaded runtime), `queue` (a completion queue), `turns` (one
//! after another, DEPTH by each way in turn). WARM other gets come first, unmeasured. IO is a value of that
//! setting. Each value is checked.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a program that measures, not the library"
)]

mod items;

use std::time::Instant;

use futures_util::stream::{FuturesUnordered, StreamExt};
use hdrhistogram::Histogram;
use items::{key, next, value};
use trine::{Completions, Db, Keyspace, Ordered};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, how, items, memory_mib, operations, depth, rest @ ..] = arguments.as_slice() else {
        eprintln!(
            "usage: measure_async DIR blocking|multi|await|block_on|tokio|queue|turns ITEMS MEMORY_MIB \
             OPERATIONS DEPTH [WARM [IO]]"
        );
        std::process::exit(2);
    };
    let builder = Db::builder(dir).memory_bytes(memory_mib.parse::<u64>().unwrap() << 20);
    let io = rest.get(1).map_or("auto", String::as_str);
    let db = builder.set("io", io).open().unwrap();
    let keyspace = db.ordered("items").open().unwrap();
    let items = items.parse().unwrap();
    let mut random = 2;
    for _ in 0..rest.first().map_or(0, |text| text.parse::<u64>().unwrap()) {
        keyspace.contains(key(next(&mut random) % items)).unwrap();
    }
    let operations = operations.parse().unwrap();
    let mut run = Run { keyspace, items, random: 1, left: operations, histogram: Histogram::new(3).unwrap() };
    let depth = depth.parse().unwrap();
    let (before, cpu_before, started) = (db.stats().io, cpu_seconds(), Instant::now());
    match how.as_str() {
        "blocking" => run.blocking(),
        "multi" => run.multi(depth),
        "await" => trine::block_on(run.awaited()),
        "block_on" => trine::block_on(run.gets(depth)),
        "tokio" => tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run.gets(depth)),
        "queue" => run.queued(depth),
        "turns" => return run.turns(depth),
        _ => panic!("{how}"),
    }
    let seconds = started.elapsed().as_secs_f64();
    let reads = (db.stats().io.device_reads - before.device_reads) as f64 / operations as f64;
    let cpu = (cpu_seconds() - cpu_before) / operations as f64 * 1e6;
    println!(
        "{how} at depth {depth}: {:.0} gets/s, {reads:.4} device reads a get, {cpu:.2} s of CPU a million",
        operations as f64 / seconds
    );
    let at = |quantile| run.histogram.value_at_quantile(quantile) as f64 / 1e3;
    println!("us: p50 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.0}", at(0.5), at(0.99), at(0.999), at(1.0));
}

struct Run {
    keyspace: Keyspace<Ordered>,
    items: u64,
    random: u64,
    left: u64,
    histogram: Histogram<u64>,
}

impl Run {
    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        Some(next(&mut self.random) % self.items)
    }

    fn note(&mut self, at: Instant) {
        self.histogram.record(at.elapsed().as_nanos() as u64).unwrap();
    }

    fn blocking(&mut self) {
        while let Some(number) = self.next() {
            let at = Instant::now();
            let found = self.keyspace.get(key(number)).unwrap();
            self.note(at);
            assert_eq!(found.as_deref(), Some(&value(number)[..]));
        }
    }

    fn multi(&mut self, depth: usize) {
        loop {
            let numbers: Vec<u64> = std::iter::from_fn(|| self.next()).take(depth).collect();
            if numbers.is_empty() {
                return;
            }
            let keys: Vec<[u8; 16]> = numbers.iter().map(|number| key(*number)).collect();
            let at = Instant::now();
            let found = self.keyspace.multi_get(&keys).unwrap();
            self.note(at);
            for (number, found) in numbers.into_iter().zip(found) {
                assert_eq!(found.as_deref(), Some(&value(number)[..]));
            }
        }
    }

    async fn awaited(&mut self) {
        while let Some(number) = self.next() {
            let at = Instant::now();
            let found = self.keyspace.get_async(key(number)).await.unwrap();
            self.note(at);
            assert_eq!(found.as_deref(), Some(&value(number)[..]));
        }
    }

    /// DEPTH gets one after another by blocking calls, then by futures under `trine::block_on`, then under
    /// tokio, in turns: the latency of a device changes within seconds.
    fn turns(&mut self, depth: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let all = self.left;
        let ways = ["blocking", "block_on", "tokio"];
        let mut seen: Vec<(Histogram<u64>, f64)> =
            ways.iter().map(|_| (Histogram::new(3).unwrap(), 0.0)).collect();
        let mut left = all;
        while left > 0 {
            for (way, (histogram, cpu)) in ways.iter().zip(&mut seen) {
                self.left = (depth as u64).min(left);
                self.histogram.reset();
                let cpu_before = cpu_seconds();
                match *way {
                    "blocking" => self.blocking(),
                    "block_on" => trine::block_on(self.awaited()),
                    _ => runtime.block_on(self.awaited()),
                }
                *cpu += cpu_seconds() - cpu_before;
                histogram.add(&self.histogram).unwrap();
            }
            left -= (depth as u64).min(left);
        }
        let base = seen[0].0.value_at_quantile(0.5) as f64;
        for (way, (histogram, cpu)) in ways.iter().zip(&seen) {
            let p50 = histogram.value_at_quantile(0.5) as f64;
            println!(
                "{way}: p50 {:.1} us ({:.3}), mean {:.1}, {:.2} us of CPU a get",
                p50 / 1e3,
                p50 / base,
                histogram.mean() / 1e3,
                cpu / all as f64 * 1e6
            );
        }
    }

    async fn gets(&mut self, depth: usize) {
        let keyspace = self.keyspace.clone();
        let get = |number| {
            let (get, at) = (keyspace.get_async(key(number)), Instant::now());
            async move { (number, at, get.await) }
        };
        let mut gets = FuturesUnordered::new();
        gets.extend(std::iter::from_fn(|| self.next()).take(depth).map(get));
        while let Some((number, at, found)) = gets.next().await {
            self.note(at);
            assert_eq!(found.unwrap().as_deref(), Some(&value(number)[..]));
            gets.extend(self.next().map(get));
        }
    }

    fn queued(&mut self, depth: usize) {
        let (queue, mut answers, mut asked) = (Completions::default(), Vec::new(), 0);
        loop {
            while asked < depth {
                let Some(number) = self.next() else { break };
                self.keyspace.get_queued(key(number), number, &queue);
                asked += 1;
            }
            if !queue.wait(&mut answers) {
                return;
            }
            asked -= answers.len();
            for answer in answers.drain(..) {
                assert_eq!(answer.result.unwrap().as_deref(), Some(&value(answer.number)[..]));
            }
        }
    }
}

/// Processor time of this process, user and system.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}
