//! Merge policies as a user sees them: tombstones are dropped within their age bound, a queue stays fast to
//! read, a full merge ends, and writers go on.

use std::sync::atomic::{AtomicBool, Ordering};

use trine::sim::World;
use trine::{Db, Keyspace, KeyspaceStats};

const POLICIES: [(&str, u64, u64); 5] =
    [("leveled", 1, 1), ("lazy-leveled", 63, 1), ("tiered", 63, 63), ("between", 2, 2), ("as it goes", 0, 0)];

fn open(world: &World, above: u64, in_last: u64, within_s: u64) -> (Db, Keyspace<trine::Ordered>) {
    let db = world.builder().memory_bytes(256 << 10).set("manifest_bytes", 16 << 10).open().unwrap();
    let keyspace = db.ordered("items").set("runs_per_level", above).set("runs_in_last_level", in_last);
    let keyspace = keyspace.set("size_ratio", 4).set("table_bytes", 64 << 10);
    let keyspace = keyspace.set("delete_persist_within", within_s).open().unwrap();
    (db, keyspace)
}

fn key(number: u32) -> [u8; 4] {
    // Spread over the key space.
    number.wrapping_mul(0x9e37_79b9).to_be_bytes()
}

fn tombstones(stats: &KeyspaceStats) -> u64 {
    stats.levels.iter().map(|level| level.tombstones).sum()
}

/// Tombstones and the items they deleted are gone from disk once their age bound has passed, without writes,
/// reads or a compact call. Without a bound they stay.
#[test]
fn deletes_are_gone_within_their_bound() {
    const ITEMS: u32 = 20_000;
    const BOUND_S: u64 = 1000;
    for (name, above, in_last) in POLICIES {
        for within_s in [BOUND_S, 0] {
            let world = World::new(above + in_last);
            let (db, items) = open(&world, above, in_last, within_s);
            (0..ITEMS).for_each(|number| items.put(key(number), [7; 50]).unwrap());
            db.flush().unwrap();
            db.settle().unwrap();
            (0..ITEMS).step_by(500).for_each(|number| items.delete(key(number)).unwrap());
            world.run_until_idle();
            // In small steps, because merges take time.
            for _ in 0..2000 {
                world.advance_ns(BOUND_S * 500_000);
                world.run_until_idle();
            }
            let stats = items.stats().unwrap();
            let live = u64::from(ITEMS - ITEMS / 500);
            let is_gone = (stats.items, tombstones(&stats)) == (live, 0);
            assert_eq!(is_gone, within_s > 0, "{name}, bound {within_s}: {stats:?}");
        }
    }
}

/// Items are put at one end and deleted from the other, in order, for a long time. Once merges have run,
/// finding the first item passes a bounded number of tombstones with few reads.
#[test]
fn a_queue_does_not_slow_its_reader() {
    const LENGTH: u32 = 5000;
    for (name, above, in_last) in POLICIES {
        let world = World::new(above * in_last);
        let (db, queue) = open(&world, above, in_last, 0);
        let (mut most_tombstones, mut most_reads) = (0, 0);
        (0..LENGTH).for_each(|number| queue.put(number.to_be_bytes(), [1; 60]).unwrap());
        for head in 0..30_000u32 {
            queue.put((head + LENGTH).to_be_bytes(), [1; 60]).unwrap();
            queue.delete(head.to_be_bytes()).unwrap();
            if head % 100 == 99 {
                db.settle().unwrap();
                let before = db.stats().io.device_reads;
                let first = queue.iter().next().unwrap().unwrap().0;
                assert_eq!(&first[..], (head + 1).to_be_bytes());
                most_reads = most_reads.max(db.stats().io.device_reads - before);
                most_tombstones = most_tombstones.max(tombstones(&queue.stats().unwrap()));
            }
        }
        assert!(most_tombstones <= 10 && most_reads <= 12, "{name}: {most_tombstones} {most_reads}");
    }
}

fn runs(keyspace: &Keyspace<trine::Ordered>) -> u64 {
    keyspace.stats().unwrap().levels.iter().map(|level| level.runs).sum()
}

/// With policies left to the store: new keys are written few times while they arrive, overwritten keys take
/// little space, and idle keyspaces come to few runs without a compact call.
#[test]
fn merges_go_by_the_observed_writes() {
    const ITEMS: u32 = 60_000;
    let load = |world: &World, runs_given: u64| {
        let db = world.builder().memory_bytes(1 << 20).open().unwrap();
        let items = db.ordered("items").set("table_bytes", 64 << 10).set("runs_per_level", runs_given);
        let items = items.set("runs_in_last_level", runs_given).open().unwrap();
        let mut most_runs = 0;
        for number in 0..ITEMS {
            items.put(key(number), [1; 100]).unwrap();
            world.run_one();
            most_runs = most_runs.max(if number % 100 == 0 { runs(&items) } else { 0 });
        }
        let write = db.stats().write;
        let bytes = write.flush_bytes + write.merge_write_bytes;
        (db, items, most_runs, bytes)
    };
    let (.., leveled_bytes) = load(&World::new(1), 1);
    let world = World::new(1);
    let (db, items, most_runs, bytes) = load(&world, 0);
    let amplification = bytes as f64 / db.stats().write.key_value_bytes as f64;
    assert!(amplification < 3.5, "{amplification} times written");
    assert!(most_runs > 6 && bytes * 4 < leveled_bytes * 3, "{most_runs} runs, {bytes} of {leveled_bytes}");
    // Merges are paced.
    for _ in 0..2000 {
        world.advance_ns(20_000_000);
        world.run_until_idle();
    }
    let rested = items.stats().unwrap();
    assert!(rested.levels.len() <= 3 && rested.levels.iter().all(|level| level.runs <= 1), "{rested:?}");
    for number in 0..3 * ITEMS {
        items.put(key(number.wrapping_mul(7919) % ITEMS), [2; 100]).unwrap();
        for _ in 0..4 {
            world.run_one();
        }
    }
    let stats = items.stats().unwrap();
    let times = stats.levels.iter().map(|level| level.items).sum::<u64>() as f64 / f64::from(ITEMS);
    assert!(times < 1.6 && runs(&items) < 8, "{times} times as many items as live: {stats:?}");
    db.settle().unwrap();
    assert!(items.stats().unwrap().items < u64::from(ITEMS) * 12 / 10, "{:?}", items.stats());
    assert_eq!(items.iter().count(), ITEMS as usize);
}

/// A full merge leaves one run without tombstones, under every policy.
#[test]
fn full_merges_make_one_run() {
    for (name, above, in_last) in POLICIES {
        let world = World::new(3);
        let (db, items) = open(&world, above, in_last, 0);
        for round in 0..6 {
            (0..4000).for_each(|number| items.put(key(number), [round; 40]).unwrap());
        }
        (0..4000).step_by(2).for_each(|number| items.delete(key(number)).unwrap());
        db.compact().unwrap();
        let stats = items.stats().unwrap();
        let runs: u64 = stats.levels.iter().map(|level| level.runs).sum();
        assert_eq!((runs, stats.items), (1, 2000), "{name}: {stats:?}");
    }
}

/// A full merge ends also under continuing writes.
#[test]
fn full_merges_end_under_writes() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder(directory.path().join("store")).memory_bytes(32 << 20).open().unwrap();
    let items = db.ordered("items").open().unwrap();
    (0..100_000).for_each(|number| items.put(key(number), [1; 60]).unwrap());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let numbers = (0..100_000).cycle().take_while(|_| !is_over.load(Ordering::Relaxed));
            numbers.for_each(|number| items.put(key(number), [2; 60]).unwrap());
        });
        let merged = db.compact();
        is_over.store(true, Ordering::Relaxed);
        merged.unwrap();
    });
}
