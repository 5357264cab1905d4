//! Measures partitions: the time to create and to drop one, by its size and by the number of partitions, and
//! reads of a partition before and after others are dropped.
//!
//! `cargo run --release --example partitions -- DIR PARTITIONS [MEMORY_MIB]`: creates PARTITIONS of 1 KB;
//! drops others of 1 KB, 1 MB and 256 MB among them; then drops nine of ten partitions of 20 MB.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a program that measures, not the library"
)]

mod items;

use std::time::{Duration, Instant};

use items::{key, next, value};
use trine::{Db, Keyspace, Ordered, Partitioned, Partitioning};

/// Items of 116 bytes in a partition of 1 KB.
const ITEMS_FEW: u64 = 9;
/// Gets of the remaining partition, before and after.
const GETS: u64 = 500_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, count, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: partitions DIR PARTITIONS [MEMORY_MIB]");
        std::process::exit(2);
    };
    let (count, memory_mib) =
        (count.parse().unwrap(), rest.first().map_or(256, |text| text.parse().unwrap()));
    let open = || Db::builder(dir).memory_bytes(memory_mib << 20).open().unwrap();
    let db = open();
    let events = divided(&db, "events");
    let began = Instant::now();
    (0..count).for_each(|number: u64| fill(&events.partition(number.to_be_bytes()).unwrap(), ITEMS_FEW));
    db.flush().unwrap();
    db.settle().unwrap();
    let made = began.elapsed();
    println!(
        "{count} partitions of 1 KB: {:.2} s, {:.0} us each",
        made.as_secs_f64(),
        us(made) / count as f64
    );
    let manifest = db.stats().memory.roles.iter().map(|role| (role.name, role.bytes)).collect::<Vec<_>>();
    println!("memory by role: {manifest:?}");
    for (name, items, rounds) in [("1 KB", ITEMS_FEW, 200), ("1 MB", 9_000, 50), ("256 MB", 2_300_000, 3)] {
        let mut times: Vec<Duration> = (0..rounds).map(|_| time_drop(&db, &events, items)).collect();
        times.sort_unstable();
        let (half, most) = (times[times.len() / 2], times[times.len() - 1]);
        println!("drop of {name}, {rounds} of them: p50 {:.0} us, most {:.0} us", us(half), us(most));
    }
    tell_reads(&db);
    drop(events);
    db.close().unwrap();
    let began = Instant::now();
    let db = open();
    println!("open: {:.3} s", began.elapsed().as_secs_f64());
    db.close().unwrap();
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn divided(db: &Db, name: &str) -> Partitioned {
    db.ordered(name).partition_by(Partitioning::explicit()).open().unwrap()
}

fn fill(partition: &Keyspace<Ordered>, items: u64) {
    (0..items).for_each(|number| partition.put(key(number), value(number)).unwrap());
}

fn time_drop(db: &Db, events: &Partitioned, items: u64) -> Duration {
    fill(&events.partition("new").unwrap(), items);
    db.flush().unwrap();
    db.settle().unwrap();
    let began = Instant::now();
    assert!(events.drop_partition("new").unwrap());
    began.elapsed()
}

/// Prints the 99th percentile of gets in a partition, before and after nine others are dropped.
fn tell_reads(db: &Db) {
    const ITEMS: u64 = 180_000;
    let ten = divided(db, "ten");
    (0..10u8).for_each(|number| fill(&ten.partition([number]).unwrap(), ITEMS));
    db.flush().unwrap();
    db.settle().unwrap();
    let rest = ten.partition([0]).unwrap();
    let mut seed = 7;
    let mut p99_us = || {
        let mut times: Vec<Duration> = (0..GETS)
            .map(|_| {
                let number = next(&mut seed) % ITEMS;
                let began = Instant::now();
                assert!(rest.get(key(number)).unwrap().is_some());
                began.elapsed()
            })
            .collect();
        times.sort_unstable();
        us(times[times.len() / 100 * 99])
    };
    p99_us();
    let before = p99_us();
    ten.drop_partitions((1..10u8).map(|number| [number])).unwrap();
    let after = p99_us();
    println!("p99 of gets of one of ten: {before:.1} us; nine others dropped: {after:.1} us");
}
