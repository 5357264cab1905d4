//! Real threads on one store: readers beside writers, flushes and merges. Bounded by counts; nothing depends
//! on the speed of a thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trine::{Db, Keyspace, KeyspaceAt, Ordered};

use crate::rng::Rng;

const PAIRS_COUNT: usize = 500;
const BATCHES_COUNT: u64 = 3000;
const READS_COUNT: usize = 3000;

/// The two keys of a pair, far apart and in two keyspaces.
fn keys(pair: usize) -> (String, String) {
    (format!("left/{pair:05}"), format!("{:05}/right", PAIRS_COUNT - pair))
}

/// Writes pairs of equal values; some batches delete both keys.
fn write(db: &Db, spaces: &[Keyspace<Ordered>; 2], written: &AtomicU64, seed: u64) {
    let mut rng = Rng::new(seed);
    for number in 0..BATCHES_COUNT {
        let mut batch = db.batch();
        for _ in 0..1 + rng.below(4) {
            let (left, right) = keys(rng.below(PAIRS_COUNT));
            if rng.one_in(5) {
                batch.delete(&spaces[0], left).unwrap();
                batch.delete(&spaces[1], right).unwrap();
            } else {
                let value = format!("{seed} {number} ").repeat(1 + rng.below(60));
                batch.put(&spaces[0], left, &value).unwrap();
                batch.put(&spaces[1], right, &value).unwrap();
            }
        }
        batch.commit().unwrap();
        written.fetch_add(1, Ordering::Relaxed);
    }
}

/// At one snapshot both keys of a pair have the same value, by gets and by scans.
fn read(db: &Db, spaces: &[Keyspace<Ordered>; 2], seed: u64) {
    let mut rng = Rng::new(seed);
    for number in 0..READS_COUNT {
        let now = db.snapshot();
        let [left, right] = [spaces[0].at(&now), spaces[1].at(&now)];
        let (left_key, right_key) = keys(rng.below(PAIRS_COUNT));
        assert_eq!(left.get(&left_key).unwrap(), right.get(&right_key).unwrap(), "a torn batch");
        if number % 100 == 0 {
            let values = |space: &KeyspaceAt<Ordered>| -> Vec<trine::Value> {
                space.iter().map(|item| item.unwrap().1).collect()
            };
            let mut of_right = values(&right);
            of_right.reverse();
            assert_eq!(values(&left), of_right, "a torn batch");
        }
        // Without a snapshot each read has its own view; it only must not fail.
        spaces[0].get(&left_key).unwrap();
    }
}

/// If several threads close a store, each `close` returns only after the store is closed: it can then be
/// opened.
#[test]
fn every_close_is_the_whole_close() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("store");
    for round in 0..10 {
        let db = Db::builder(&path).memory_bytes(32 << 20).open().unwrap();
        let space = db.ordered("space").open().unwrap();
        (0..200u32).for_each(|number| space.put(number.to_be_bytes(), [round; 5000]).unwrap());
        let barrier = std::sync::Barrier::new(3);
        let again = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    barrier.wait();
                    db.clone().close().unwrap();
                    // Another of the three threads may have it open.
                    match Db::open(&path) {
                        Ok(_) => drop(again.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => assert!(matches!(error, trine::Error::Locked { .. }), "{error}"),
                    }
                });
            }
        });
        assert!(again.into_inner() > 0);
        assert!(matches!(space.put("key", "value"), Err(trine::Error::Closed)));
    }
}

/// Two writers, two readers, flushes and merges: no batch is ever seen in part, and all batches are there
/// after a reopen.
#[test]
fn batches_are_never_torn() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("store");
    let open = || {
        let db = Db::builder(&path).memory_bytes(32 << 20).open().unwrap();
        let space =
            |name| db.ordered(name).set("level0_runs", 2).set("table_bytes", 64 << 10).open().unwrap();
        let spaces = [space("left"), space("right")];
        (db, spaces)
    };
    let (db, spaces) = open();
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            scope.spawn({
                let (db, spaces, written) = (&db, &spaces, &written);
                move || write(db, spaces, written, seed)
            });
            scope.spawn({
                let (db, spaces) = (&db, &spaces);
                move || read(db, spaces, 10 + seed)
            });
        }
        for number in 0..30 {
            db.flush().unwrap();
            if number % 10 == 9 {
                db.compact().unwrap();
            }
        }
    });
    assert_eq!(written.into_inner(), 2 * BATCHES_COUNT);
    let all = |spaces: &[Keyspace<Ordered>; 2]| {
        spaces.each_ref().map(|space| space.iter().map(|item| item.unwrap()).collect::<Vec<_>>())
    };
    let before = all(&spaces);
    db.close().unwrap();
    let (db, spaces) = open();
    assert!(all(&spaces) == before, "reopening changes nothing");
    read(&db, &spaces, 20);
}

/// Threads that open, use and drop keyspaces get no error except that a keyspace is gone.
#[test]
fn keyspaces_come_and_go_beside_readers() {
    let parent = tempfile::tempdir().unwrap();
    let db = Db::builder(parent.path().join("store")).memory_bytes(32 << 20).open().unwrap();
    let dropped = |error: &trine::Error| {
        matches!(error, trine::Error::Dropped { .. } | trine::Error::NoKeyspace { .. })
    };
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let db = &db;
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for number in 0..150u32 {
                    let name = *rng.choose(&["a", "b"]);
                    let space = db.ordered(name).open().unwrap();
                    let used = (0..20u32).try_for_each(|key| {
                        space.put(key.to_be_bytes(), number.to_be_bytes())?;
                        space.get(key.to_be_bytes())?;
                        space.iter().try_for_each(|item| item.map(|_| ()))
                    });
                    assert!(used.as_ref().err().is_none_or(dropped), "{used:?}");
                    if rng.one_in(3) {
                        let gone = db.drop_keyspace(name);
                        assert!(gone.as_ref().err().is_none_or(dropped), "{gone:?}");
                    } else if rng.one_in(10) {
                        db.compact().unwrap();
                    }
                }
            });
        }
    });
    db.close().unwrap();
}

/// Ingests over the same keys, with readers, and writers of keys between: each ingest is seen whole or not at
/// all. It is newer than the one before, and hides no later write.
#[test]
fn ingests_are_seen_whole() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("store");
    let open = || {
        let db = Db::builder(&path).memory_bytes(32 << 20).open().unwrap();
        let space = db.ordered("space").set("level0_runs", 2).set("table_bytes", 64 << 10).open().unwrap();
        (db, space)
    };
    let (db, space) = open();
    let round_of = |value: &trine::Value| value.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (db, space, done) = (&db, &space, &done);
        scope.spawn(move || {
            for round in 1..=40u64 {
                let mut ingest = space.ingest().unwrap();
                for number in 0..2000 {
                    ingest.put(format!("{number:05}/ingested"), round.to_be_bytes()).unwrap();
                }
                // A write of an ingested key before the ingest is published is older.
                space.put("01000/ingested", [0xff; 8]).unwrap();
                ingest.finish().unwrap();
                // A write after it is newer.
                space.put("00000/after", round.to_be_bytes()).unwrap();
                done.store(round, Ordering::Release);
            }
        });
        for writer in 0..2u32 {
            scope.spawn(move || {
                let mut rng = Rng::new(writer.into());
                let mut number = 0u32;
                while done.load(Ordering::Acquire) < 40 {
                    number += 1;
                    let key = format!("{:05}/written by {writer}", rng.below(2000));
                    space.put(&key, number.to_be_bytes()).unwrap();
                    let found = space.get(&key).unwrap();
                    assert_eq!(found.as_deref(), Some(&number.to_be_bytes()[..]), "a lost write");
                }
            });
        }
        scope.spawn(move || {
            let mut last = 0;
            while last < 40 {
                let at_least = done.load(Ordering::Acquire);
                let now = space.at(&db.snapshot());
                let items = now.iter().map(|item| item.unwrap());
                let is_ingested =
                    |key: &trine::Value| key.ends_with(b"/ingested") && !key.starts_with(b"01000");
                let rounds: Vec<u64> =
                    items.filter(|(key, _)| is_ingested(key)).map(|(_, value)| round_of(&value)).collect();
                let round = rounds.first().copied().unwrap_or(0);
                assert!(rounds.iter().all(|one| *one == round), "a torn ingest");
                assert!(rounds.is_empty() || rounds.len() == 1999, "a part of an ingest");
                assert!(round >= at_least && round >= last, "{round} after {at_least}");
                last = round;
            }
        });
    });
    let all = |space: &Keyspace<Ordered>| space.iter().map(|item| item.unwrap()).collect::<Vec<_>>();
    let before = all(&space);
    assert_eq!(space.get("01000/ingested").unwrap().map(|value| round_of(&value)), Some(40));
    db.compact().unwrap();
    assert!(all(&space) == before, "merges change nothing");
    db.close().unwrap();
    let (_db, space) = open();
    assert!(all(&space) == before, "reopening changes nothing");
}

/// A snapshot that includes a write includes every earlier ingest.
#[test]
fn snapshots_have_the_ingests_before_their_writes() {
    let directory = tempfile::tempdir().unwrap();
    let db = trine::Db::open(directory.path().join("data")).unwrap();
    let items = db.ordered("items").open().unwrap();
    items.put("z", 0u32.to_be_bytes()).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let at = db.snapshot();
                    let then = items.at(&at);
                    let number = u32::from_be_bytes((*then.get("z").unwrap().unwrap()).try_into().unwrap());
                    let is_there = number == 0 || then.contains(number.to_be_bytes()).unwrap();
                    assert!(is_there, "the write after ingest {number} is there without it");
                }
            });
        }
        for number in 1..=300u32 {
            let mut ingest = items.ingest().unwrap();
            ingest.put(number.to_be_bytes(), b"x").unwrap();
            ingest.finish().unwrap();
            items.put("z", number.to_be_bytes()).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Sets the flag when its thread ends, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One thread fills a queue and another empties it; the second sometimes puts an item back. It finds every
/// number in order, and an item put back immediately. A third thread reads the first item meanwhile: it is
/// near the second's position.
#[test]
fn a_queue_is_emptied_in_order() {
    const ITEMS_COUNT: u64 = 30_000;
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder(directory.path().join("store")).memory_bytes(32 << 20).open().unwrap();
    let queue = db.ordered("queue").open().unwrap();
    let (put, taken, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let first = || queue.first().unwrap().map(|(key, _)| u64::from_be_bytes(key[..].try_into().unwrap()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..ITEMS_COUNT {
                queue.put(number.to_be_bytes(), "put").unwrap();
                put.store(number + 1, Ordering::Release);
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let (before, is_put) = (taken.load(Ordering::Acquire), put.load(Ordering::Acquire));
                match first() {
                    Some(number) => assert!(number >= before.saturating_sub(200)),
                    None => assert!(taken.load(Ordering::Acquire) >= is_put, "an item is there"),
                }
            }
        });
        let _over = Over(&is_over);
        let mut rng = Rng::new(7);
        let mut next = 0;
        while next < ITEMS_COUNT {
            let is_put = put.load(Ordering::Acquire) > next;
            let Some(number) = first() else {
                assert!(!is_put, "{next} is there");
                std::thread::yield_now();
                continue;
            };
            assert_eq!(number, next, "not the first");
            // An item counted as taken may still be there; any other item is there.
            taken.store(next + 1, Ordering::Release);
            queue.delete(number.to_be_bytes()).unwrap();
            if rng.one_in(50) {
                let back = next.saturating_sub(rng.below(200) as u64);
                queue.put(back.to_be_bytes(), "back").unwrap();
                assert_eq!(first(), Some(back), "what was put back is first");
                queue.delete(back.to_be_bytes()).unwrap();
            }
            next += 1;
        }
        assert_eq!(first(), None);
    });
}
