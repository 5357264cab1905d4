//! Reads of several blocks: their cost, and the effects of a failed read.

use trine::sim::{Failure, Fault, Operation, Repeat, World};
use trine::{Db, Error, Keyspace, Ordered};

use super::rng::Rng;

const ITEMS_COUNT: u64 = 20_000;

fn key(number: u64) -> [u8; 8] {
    (number * 2).to_be_bytes()
}

fn value(number: u64) -> [u8; 100] {
    [number as u8; 100]
}

/// A store of some hundred blocks on the simulated machine; returns a function that opens it with an empty
/// cache.
fn store(world: &World, memory_bytes: u64) -> impl Fn() -> (Db, Keyspace<Ordered>) {
    let open = move || {
        let db = world.builder().memory_bytes(memory_bytes).open().unwrap();
        let items = db.ordered("items").open().unwrap();
        (db, items)
    };
    let (db, items) = open();
    for number in 0..ITEMS_COUNT {
        items.put(key(number), value(number)).unwrap();
    }
    db.compact().unwrap();
    drop(items);
    db.close().unwrap();
    open
}

/// A scan of few items reads few blocks; one of many reads its blocks in far fewer requests, in both
/// directions.
#[test]
fn long_scans_read_ahead() {
    // If the simulation ends a request short, the rest is read block by block. Of five machines, one has no
    // short request.
    let all = (1..=5).map(|seed| requests_of_scans(&World::new(seed)));
    let [blocks, requests] = all.min_by_key(|[_, requests]| *requests).unwrap();
    assert!(requests * 30 < blocks, "{blocks} blocks in {requests} requests");
}

/// Blocks and requests of the worse of two full scans, one in each direction.
fn requests_of_scans(world: &World) -> [u64; 2] {
    let open = store(world, 32 << 20);
    let (db, items) = open();
    let before = db.stats().io;
    assert_eq!(items.range(key(5000)..).take(20).count(), 20);
    let short = db.stats().io.device_read_bytes - before.device_read_bytes;
    assert!(short <= 32 << 10, "{short} bytes for 20 items");
    drop(items);
    db.close().unwrap();
    let of_scan = |backward: bool| {
        let (db, items) = open();
        let before = db.stats().io;
        let count = if backward { items.iter().rev().count() } else { items.iter().count() };
        assert_eq!(count as u64, ITEMS_COUNT);
        let after = db.stats().io;
        let blocks = after.device_reads - before.device_reads;
        assert!(blocks > 400, "{blocks} blocks");
        let twice = after.device_read_bytes - before.device_read_bytes > 2 * ITEMS_COUNT * 120;
        assert!(!twice, "each block is read once");
        drop(items);
        db.close().unwrap();
        [blocks, after.reads - before.reads]
    };
    [false, true].map(of_scan).into_iter().max_by_key(|[_, requests]| *requests).unwrap()
}

/// Any number of keys in one block cost one read, and adjacent blocks are read in one request.
#[test]
fn a_block_is_read_once_for_all_its_keys() {
    let world = World::new(2);
    let open = store(&world, 32 << 20);
    let (db, items) = open();
    let keys: Vec<_> = (7000..7064).map(key).collect();
    let before = db.stats().io;
    let found = items.multi_get(&keys).unwrap();
    assert!(found.iter().zip(7000..).all(|(found, number)| found.as_deref() == Some(&value(number)[..])));
    let after = db.stats().io;
    let blocks = after.device_reads - before.device_reads;
    assert!((2..=4).contains(&blocks) && after.reads - before.reads == 1, "{blocks} blocks");
}

/// Each key is answered once, with its index, found or not, from the device or from memory.
#[test]
fn answers_without_copies_are_for_their_keys() {
    let world = World::new(3);
    let (db, items) = store(&world, 32 << 20)();
    let keys: Vec<_> = (0..300).map(|index| key(index * 60 + index % 5 * ITEMS_COUNT)).collect();
    let then = items.at(&db.snapshot());
    for number in 0..3 {
        items.put(key(number * 60), b"newer").unwrap();
    }
    for round in 0..3 {
        let mut answers = vec![Vec::new(); keys.len()];
        items.multi_get_with(&keys, |index, value| answers[index].push(value.map(<[u8]>::to_vec))).unwrap();
        let alone: Vec<_> = keys.iter().map(|key| vec![items.get(key).unwrap().map(Vec::from)]).collect();
        assert_eq!(answers, alone, "round {round}");
        assert_eq!(answers.iter().flatten().flatten().count(), 60);
        let mut seen = 0;
        then.multi_get_with(&keys, |_, value| {
            seen += usize::from(value.is_some_and(|value| value != b"newer"))
        })
        .unwrap();
        assert_eq!(seen, 60);
    }
}

/// One scan passes over keys that were deleted one by one. Later scans skip them without a read, from either
/// end, and see later puts. An earlier snapshot still sees all items.
#[test]
fn deleted_keys_are_passed_once() {
    let world = World::new(4);
    drop(store(&world, 8 << 20));
    let db = world.builder().memory_bytes(8 << 20).cache_bytes(256 << 10).open().unwrap();
    let items = db.ordered("items").open().unwrap();
    let then = db.snapshot();
    (0..8000).for_each(|number| items.delete(key(number)).unwrap());
    (12_000..ITEMS_COUNT).for_each(|number| items.delete(key(number)).unwrap());
    let first = || items.first().unwrap().map(|(found, _)| found.to_vec());
    let last = || items.last().unwrap().map(|(found, _)| found.to_vec());
    for (look, number) in [(&first as &dyn Fn() -> Option<Vec<u8>>, 8000), (&last, 11_999)] {
        let expected = Some(key(number).to_vec());
        let before = db.stats().io.device_reads;
        assert_eq!(look(), expected);
        let passed = db.stats().io.device_reads;
        assert!(passed - before > 150, "{} blocks: the test needs stretches of many", passed - before);
        (0..10).for_each(|_| assert_eq!(look(), expected));
        let skipped = db.stats().io.device_reads - passed;
        assert!(skipped <= 4, "{skipped} blocks for ten looks");
    }
    for number in [3000, 15_000] {
        items.put(key(number), "again").unwrap();
    }
    assert_eq!((first(), last()), (Some(key(3000).to_vec()), Some(key(15_000).to_vec())));
    let mut ingest = items.ingest().unwrap();
    ingest.put(key(2000), "ingested").unwrap();
    ingest.finish().unwrap();
    assert_eq!(first(), Some(key(2000).to_vec()));
    assert_eq!(items.iter().count(), 4003);
    assert_eq!(items.iter().rev().count(), 4003);
    assert_eq!(items.at(&then).iter().count() as u64, ITEMS_COUNT);
}

/// A failed read fails only the operations that need it, and leaves nothing behind: the same call succeeds
/// later. Failed readahead of a scan, or of another key in the same request, causes no error.
#[test]
fn failing_reads_fail_only_their_calls() {
    let world = World::new(3);
    let open = store(&world, 1 << 20);
    let (db, items) = open();
    let mut rng = Rng::new(3);
    let (mut failed_count, mut done_count) = (0, 0);
    for round in 0..150 {
        let numbers: Vec<u64> = (0..40).map(|_| rng.below(ITEMS_COUNT as usize) as u64).collect();
        let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
        let repeat = if round % 3 == 0 { Repeat::Always } else { Repeat::Once };
        let fault = Fault::of(Operation::Read, Failure::Io).in_files("table").after(round % 30);
        world.fail(&[fault.repeat(repeat)]);
        match items.multi_get(&keys) {
            Ok(found) => {
                let right = |(found, number): (&Option<trine::Value>, &u64)| {
                    found.as_deref() == Some(&value(*number)[..])
                };
                assert!(found.iter().zip(&numbers).all(right));
                done_count += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::Io { .. }), "{error}");
                failed_count += 1;
            }
        }
        let from = numbers[0].min(ITEMS_COUNT - 300);
        let mut range = items.range(key(from)..key(from + 300));
        let mut next = from;
        loop {
            match range.next() {
                Some(Ok((found, _))) => {
                    assert_eq!(&found[..], &key(next)[..]);
                    next += 1;
                }
                Some(Err(error)) => {
                    assert!(matches!(error, Error::Io { .. }), "{error}");
                    failed_count += 1;
                    break;
                }
                None => {
                    assert_eq!(next, from + 300);
                    done_count += 1;
                    break;
                }
            }
        }
        world.fail(&[]);
        let found = items.multi_get(&keys).unwrap();
        assert!(found.iter().all(Option::is_some));
        assert_eq!(items.range(key(from)..key(from + 300)).filter(|item| item.is_ok()).count(), 300);
    }
    assert!(failed_count > 20 && done_count > 20, "{failed_count} failed, {done_count} did not");
    drop(items);
    db.close().unwrap();
}

/// A get that searches several runs at once reads blocks of older runs too, once: they are in the cache for
/// the next get. A get that need not search them reads as much as a serial one.
#[test]
fn blocks_of_wide_gets_are_read_once() {
    const RUNS: u64 = 4;
    const ADAPTIVE: u64 = 0;
    for (search, filter, newest, oldest) in [
        (ADAPTIVE, "none", 2, RUNS),
        (ADAPTIVE, "bloom", 1, 1),
        // Serial, and parallel.
        (1, "none", 1, RUNS),
        (2, "none", 2, RUNS),
        (3, "none", RUNS, RUNS),
        (4, "none", RUNS, RUNS),
    ] {
        let world = World::new(5);
        let open = || {
            let db = world.builder().memory_bytes(32 << 20).set("search", search).open().unwrap();
            let items = db.ordered("items").set("level0_runs", 2 * RUNS).set("filter_kind", filter);
            (items.set("filter_bits_per_key", 24).open().unwrap(), db)
        };
        let (items, db) = open();
        for run in 0..RUNS {
            (run..ITEMS_COUNT)
                .step_by(RUNS as usize)
                .for_each(|number| items.put(key(number), value(run)).unwrap());
            db.flush().unwrap();
        }
        drop(items);
        db.close().unwrap();
        let (items, db) = open();
        let reads_of = |number: u64| {
            let before = db.stats().io.device_reads;
            assert_eq!(items.get(key(number)).unwrap().as_deref(), Some(&value(number % RUNS)[..]));
            db.stats().io.device_reads - before
        };
        // Far apart, so that no two are in one block.
        for number in (RUNS..).step_by(800).take(20) {
            let (new, old) = (number + RUNS - 1, number + 400);
            assert_eq!((reads_of(new), reads_of(old)), (newest, oldest), "{search} {filter}");
            assert_eq!((reads_of(new), reads_of(old)), (0, 0), "{search} {filter}");
            // The blocks that no get has read yet.
            let before = db.stats().io.device_reads;
            let between = (u64::from_be_bytes(key(new)) + 1).to_be_bytes();
            assert_eq!(items.get(between).unwrap(), None);
            let rest = if filter == "bloom" { 0 } else { RUNS - newest };
            assert_eq!(db.stats().io.device_reads - before, rest, "{search} {filter}");
        }
    }
}
