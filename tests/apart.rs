//! Background readahead of scans. A worker reads blocks ahead of each scan. A failed read of the worker is an
//! error only for the scan that reaches the block.

use std::collections::BTreeMap;

use trine::sim::{Failure, Fault, Operation, Repeat, World};
use trine::{Db, Error, Keyspace, Ordered, Range, Value};

use super::rng::Rng;

const ITEMS_COUNT: usize = 40_000;
/// Enough for readahead windows of a MiB: two sources share a sixteenth of the cache.
const MEMORY_BYTES: u64 = 64 << 20;

type Item = (Vec<u8>, Vec<u8>);
/// The direction of a scan.
type Next = fn(&mut Range) -> Option<trine::Result<(Value, Value)>>;

/// Makes a store of a few tables on the simulated machine, and returns its items in order.
fn made(world: &World, seed: u64) -> Vec<Item> {
    let db = world.builder().memory_bytes(MEMORY_BYTES).open().unwrap();
    let items = db.ordered("items").set("table_bytes", 2 << 20).open().unwrap();
    let (mut rng, mut model) = (Rng::new(seed), BTreeMap::new());
    for _ in 0..ITEMS_COUNT {
        let (key, value) = (rng.u64().to_be_bytes().to_vec(), vec![rng.u64() as u8; rng.below(250)]);
        items.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    db.compact().unwrap();
    assert!(items.stats().unwrap().tables >= 3);
    drop(items);
    db.close().unwrap();
    model.into_iter().collect()
}

/// Opens the same store with an empty cache.
fn cold(world: &World) -> (Db, Keyspace<Ordered>) {
    let db = world.builder().memory_bytes(MEMORY_BYTES).open().unwrap();
    let items = db.ordered("items").open().unwrap();
    world.run_until_idle();
    (db, items)
}

/// Scans all items and compares them with `expected`, which is in the order of the scan. Returns the number
/// of items and the error that ended the scan. Calls `between` after each item.
fn scan(
    items: &Keyspace<Ordered>,
    next: Next,
    expected: &[Item],
    mut between: impl FnMut(),
) -> (usize, Option<Error>) {
    let (mut range, mut count) = (items.iter(), 0);
    loop {
        match next(&mut range) {
            None => return (count, None),
            Some(Err(error)) => return (count, Some(error)),
            Some(Ok((key, value))) => {
                assert_eq!((&key[..], &value[..]), (&expected[count].0[..], &expected[count].1[..]));
                count += 1;
            }
        }
        between();
    }
}

/// Both directions, each with its expected items.
fn ways(forward: Vec<Item>) -> [(Next, Vec<Item>); 2] {
    let backward = forward.iter().rev().cloned().collect();
    [(Range::next, forward), (Range::next_back, backward)]
}

/// Counts block reads; cheap when no disk call was made.
struct Reads<'w> {
    world: &'w World,
    db: &'w Db,
    calls: u64,
    blocks: u64,
}

impl<'w> Reads<'w> {
    fn new(world: &'w World, db: &'w Db) -> Reads<'w> {
        Reads { world, db, calls: world.calls(), blocks: db.stats().io.device_reads }
    }

    /// Block reads since the last call.
    fn since(&mut self) -> u64 {
        if self.calls == self.world.calls() {
            return 0;
        }
        let before = self.blocks;
        (self.calls, self.blocks) = (self.world.calls(), self.db.stats().io.device_reads);
        self.blocks - before
    }

    /// Block reads of the worker: it alone reads while the store is not called.
    fn of_worker(&mut self) -> u64 {
        self.since();
        self.world.run_until_idle();
        self.since()
    }
}

/// A scan finds all items and reads each block once, whether the worker is always ahead, sometimes ahead, or
/// runs only while the scan waits for it. A worker that is always ahead reads nearly all blocks.
#[test]
fn a_worker_reads_the_blocks_of_a_scan() {
    let (world, mut rng) = (World::new(1), Rng::new(1));
    for (next, expected) in ways(made(&world, 1)) {
        for turns_one_in in [1, 1000, usize::MAX] {
            let (db, items) = cold(&world);
            let (mut reads, mut apart, before) = (Reads::new(&world, &db), 0, db.stats().io);
            let (count, error) = scan(&items, next, &expected, || {
                if rng.one_in(turns_one_in) {
                    apart += reads.of_worker();
                }
            });
            assert!(error.is_none() && count == expected.len(), "{count} items: {error:?}");
            let (after, tables) = (db.stats().io, db.stats().space.table_bytes);
            let bytes = after.device_read_bytes - before.device_read_bytes;
            assert!((tables / 10 * 9..=tables).contains(&bytes), "{bytes} bytes of {tables}");
            let blocks = after.device_reads - before.device_reads;
            assert!(turns_one_in > 1 || apart * 10 > blocks * 9, "{apart} of {blocks} blocks");
            drop(items);
            db.close().unwrap();
        }
    }
}

/// If a read of the worker fails, the scan reads the block again when it gets there and returns no error. If
/// a read of many blocks fails once, the worker itself repeats it.
#[test]
fn failed_reads_of_the_worker_cause_no_error() {
    let world = World::new(2);
    for (next, expected) in ways(made(&world, 2)) {
        for repeat in [Repeat::Once, Repeat::Always] {
            let (db, items) = cold(&world);
            let (mut reads, mut beside, mut failed) = (Reads::new(&world, &db), 0, 0);
            let (count, error) = scan(&items, next, &expected, || {
                beside += reads.since();
                world.fail(&[Fault::of(Operation::Read, Failure::Io).in_files("table").repeat(repeat)]);
                failed += reads.of_worker();
                world.fail(&[]);
            });
            assert!(error.is_none() && count == expected.len(), "{count} items: {error:?}");
            let blocks = db.stats().space.table_bytes / 4096;
            match repeat {
                Repeat::Once => assert!(beside * 10 < blocks, "{beside} of {blocks} blocks by the scan"),
                Repeat::Always => assert!(beside * 10 > blocks * 9 && failed > blocks, "{beside}, {failed}"),
            }
            drop(items);
            db.close().unwrap();
        }
    }
}

/// A scan returns an error only at the item whose block cannot be read, at whichever read the failures begin.
/// Once reads succeed again, another scan finds all items.
#[test]
fn a_failed_read_is_told_where_its_block_is() {
    let world = World::new(3);
    let mut told_count = 0;
    for (next, expected) in ways(made(&world, 3)) {
        for (first, is_ahead) in (0..36).step_by(4).flat_map(|first| [(first, true), (first, false)]) {
            let (db, items) = cold(&world);
            let fault = Fault::of(Operation::Read, Failure::Io).in_files("table").after(first);
            world.fail(&[fault.repeat(Repeat::Always)]);
            let (count, error) = scan(&items, next, &expected, || {
                if is_ahead {
                    world.run_until_idle();
                }
            });
            if let Some(error) = error {
                assert!(matches!(error, Error::Io { .. }), "{error}");
                let here = items.get(&expected[count].0);
                assert!(here.is_err(), "after {first} reads it ended before item {count}, which is here");
                assert!(count == 0 || items.get(&expected[count - 1].0).unwrap().is_some());
                told_count += 1;
            }
            world.fail(&[]);
            let (count, error) = scan(&items, next, &expected, || ());
            assert!(error.is_none() && count == expected.len(), "{count} items: {error:?}");
            drop(items);
            db.close().unwrap();
        }
    }
    assert!(told_count > 24, "{told_count}");
}
