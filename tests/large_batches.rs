//! Batches larger than a write buffer: written whole, within the memory budget, and as durable as any other.

use std::sync::atomic::{AtomicBool, Ordering};

use trine::sim::{Crash, Failure, Fault, Operation, Repeat, Stop, World};
use trine::{Batch, Db, Durability, Error, Keyspace, Ordered, block_on};

use super::support::Scratch;

/// Keys in an order unlike key order.
fn scattered(number: u32) -> [u8; 8] {
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn filled(db: &Db, items: &Keyspace<Ordered>, count: u32, value: &[u8]) -> Batch {
    let mut batch = db.batch();
    (0..count).for_each(|number| batch.put(items, scattered(number), value).unwrap());
    batch
}

fn check_memory(db: &Db) {
    let memory = db.stats().memory;
    assert!(memory.used_bytes <= memory.budget_bytes / 10 * 11, "{memory:?}");
}

/// With the default memory, 100,000 items of 16 bytes and 40 MiB of items of 100 bytes are one batch each.
#[test]
fn the_default_memory_takes_large_batches() {
    let scratch = Scratch::new();
    let db = Db::open(scratch.data()).unwrap();
    let (tiny, small) = (db.ordered("tiny").open().unwrap(), db.ordered("small").open().unwrap());
    const SMALL_COUNT: u32 = (40 << 20) / 100;
    for (items, count, value) in [(&tiny, 100_000, &[1; 8][..]), (&small, SMALL_COUNT, &[2; 92][..])] {
        let mut batch = filled(&db, items, count, value);
        assert!(batch.fits());
        batch.commit().unwrap();
        assert!(batch.is_empty());
        check_memory(&db);
        assert_eq!(items.iter().count(), count as usize);
    }
    drop((tiny, small));
    db.close().unwrap();
    let db = Db::open(scratch.data()).unwrap();
    let count = |name: &str| db.ordered(name).open().unwrap().iter().count();
    assert_eq!((count("tiny"), count("small")), (100_000, SMALL_COUNT as usize));
    check_memory(&db);
}

const COUNT: u32 = 1500;

/// A store whose write buffers hold only a part of the batch.
fn small_world(seed: u64) -> (World, Db, Keyspace<Ordered>) {
    let world = World::new(seed);
    let db = world.builder().memory_bytes(2 << 20).open().unwrap();
    let items = db.ordered("a").open().unwrap();
    items.put(b"before", b"1").unwrap();
    (world, db, items)
}

/// Whether the batch is there; asserts that it is there whole or not at all.
fn is_there(items: &Keyspace<Ordered>) -> bool {
    assert!(items.contains(b"before").unwrap());
    let found = items.iter().filter(|item| item.as_ref().unwrap().1.len() == 100).count();
    assert!(found == 0 || found == COUNT as usize, "{found} of {COUNT}");
    found > 0
}

/// After a power cut at any disk call, a large batch is there whole or not at all, and there if it was
/// acknowledged.
#[test]
fn power_loss_leaves_all_or_nothing() {
    let run = |stop: Option<(Stop, u64)>| {
        let (world, db, items) = small_world(9);
        db.sync().unwrap();
        let before = world.calls();
        if let Some((stop, index)) = stop {
            world.stop(stop, index);
        }
        let mut batch = filled(&db, &items, COUNT, &[7; 100]);
        let written = batch.commit_with(Durability::Sync);
        if written.is_ok() {
            world.run_until_idle();
        }
        let calls = world.calls() - before;
        (world, written.is_ok(), calls)
    };
    let (_, is_written, calls) = run(None);
    assert!(is_written && calls > 10, "{calls} calls");
    let mut seen = [false; 2];
    for index in 0..calls {
        for stop in [Stop::Before, Stop::Amid] {
            let (world, is_written, _) = run(Some((stop, index)));
            let world = world.crash(Crash::Power, index);
            let db = world.builder().memory_bytes(2 << 20).open().unwrap();
            let items = db.ordered("a").open().unwrap();
            let there = is_there(&items);
            assert!(there || !is_written, "{stop:?} at call {index}");
            seen[usize::from(there)] = true;
            // The store takes the same batch again.
            filled(&db, &items, COUNT, &[7; 100]).commit().unwrap();
            assert!(is_there(&items));
        }
    }
    assert_eq!(seen, [true; 2]);
}

/// A killed process leaves an acknowledged batch in its log, and the next opening has room for it.
#[test]
fn a_kill_leaves_an_acknowledged_batch() {
    let (world, db, items) = small_world(10);
    filled(&db, &items, COUNT, &[7; 100]).commit().unwrap();
    let world = world.crash(Crash::Process, 1);
    for memory_bytes in [2 << 20, 1 << 20] {
        let db = world.builder().memory_bytes(memory_bytes).open().unwrap();
        assert!(is_there(&db.ordered("a").open().unwrap()));
        db.close().unwrap();
    }
}

/// On a full disk a large batch is refused whole and stays intact in the caller's `Batch`.
#[test]
fn a_full_disk_refuses_all_of_it() {
    let (world, db, items) = small_world(11);
    let mut batch = filled(&db, &items, COUNT, &[7; 100]);
    world.fail(&[Fault::of(Operation::Write, Failure::Full).in_files("log").repeat(Repeat::Always)]);
    let refused = batch.commit().unwrap_err();
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    assert_eq!(batch.len(), COUNT as usize);
    assert!(!is_there(&items));
    world.fail(&[]);
    // The store retries a full disk after a while.
    world.advance_ns(2_000_000_000);
    world.run_until_idle();
    batch.commit().unwrap();
    assert!(is_there(&items));
    check_memory(&db);
}

fn large_batch_memory(db: &Db) -> u64 {
    let roles = db.stats().memory.roles;
    roles.iter().find(|role| role.name == "large batches").expect("it is a role").bytes
}

/// A refused large batch frees its memory, and the next one is written. The cause is a dropped keyspace, or a
/// disk that is full at any write to the log.
#[test]
fn a_refused_batch_leaves_no_memory_behind() {
    let (world, db, items) = small_world(13);
    let dropped = db.ordered("dropped").open().unwrap();
    let mut refused: Vec<Batch> = (0..4).map(|_| filled(&db, &dropped, COUNT, &[7; 100])).collect();
    db.drop_keyspace("dropped").unwrap();
    for batch in &mut refused {
        let error = batch.commit().unwrap_err();
        assert!(matches!(error, Error::Dropped { .. }), "{error}");
        assert_eq!((batch.len(), large_batch_memory(&db)), (COUNT as usize, 0));
    }
    filled(&db, &items, COUNT, &[7; 100]).commit().unwrap();
    world.run_until_idle();
    assert_eq!(large_batch_memory(&db), 0);
    let mut is_refused = [false; 2];
    for index in 0..6 {
        world.fail(&[Fault::of(Operation::Write, Failure::Full).in_files("log").after(index)]);
        let mut batch = filled(&db, &items, COUNT, &[7; 100]);
        let written = batch.commit();
        is_refused[usize::from(written.is_err())] = true;
        world.fail(&[]);
        if let Err(error) = written {
            assert!(matches!(error, Error::Full { .. }), "{error}");
            assert_eq!((batch.len(), large_batch_memory(&db)), (COUNT as usize, 0));
            items.put(b"before", b"2").unwrap();
            world.advance_ns(2_000_000_000);
            batch.commit().unwrap();
        }
        world.run_until_idle();
        assert_eq!(large_batch_memory(&db), 0);
        assert!(is_there(&items));
    }
    assert_eq!(is_refused, [true; 2]);
    check_memory(&db);
}

/// Batches over the limit are refused; the error's sizes are in the unit of the batch's own size.
#[test]
fn the_largest_batch() {
    let (_world, db, items) = small_world(12);
    let (mut fits, mut refused) = (COUNT, 100 * COUNT);
    while fits + 1 < refused {
        let middle = fits + (refused - fits) / 2;
        if filled(&db, &items, middle, &[7; 100]).fits() { fits = middle } else { refused = middle }
    }
    let mut batch = filled(&db, &items, refused, &[7; 100]);
    let error = batch.commit().unwrap_err();
    assert!(matches!(error, Error::TooLarge { what: "batch", limit, given } if given > limit), "{error}");
    assert_eq!(batch.len(), refused as usize);
    let mut batch = filled(&db, &items, fits, &[7; 100]);
    batch.commit().unwrap();
    check_memory(&db);
    assert_eq!(items.iter().count(), fits as usize + 1);
}

/// Several large batches at once, of threads and futures, are written in turn within the budget. A reader
/// sees all of a batch or nothing.
#[test]
fn large_batches_have_their_turns() {
    let scratch = Scratch::new();
    let db = Db::builder(scratch.data()).memory_bytes(32 << 20).open().unwrap();
    let items = db.ordered("a").open().unwrap();
    const EACH: u32 = 25_000;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let snapshot = db.snapshot();
                for thread in 0..4u32 {
                    let found = items.at(&snapshot).prefix(thread.to_be_bytes()).count() as u32;
                    assert!(found.is_multiple_of(EACH), "{found} of thread {thread}");
                }
                check_memory(&db);
            }
        });
        let writers: Vec<_> = (0..4u32)
            .map(|thread| {
                let (db, items) = (&db, &items);
                scope.spawn(move || {
                    for round in 0..3u32 {
                        let mut batch = db.batch();
                        for number in 0..EACH {
                            let key = [thread, round, number.wrapping_mul(0x9e37_79b1)].map(u32::to_be_bytes);
                            batch.put(items, key.concat(), [7; 50]).unwrap();
                        }
                        if thread % 2 == 0 {
                            batch.commit().unwrap();
                        } else {
                            block_on(batch.commit_async()).unwrap();
                        }
                        items.put([9, thread as u8, round as u8], b"small").unwrap();
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(items.iter().count(), 12 * (EACH as usize + 1));
    check_memory(&db);
}
