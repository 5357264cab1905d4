//! The disk space of a store depends on its contents, not on how often it was opened.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use trine::sim::{Crash, World};
use trine::{Access, Create, Db, FileReaderKind, Keyspace, Ordered, SpaceStats};

use crate::support::{Scratch, small};

/// The most bytes of a closed store with one small item.
const CLOSED_BYTES_MAX: u64 = 256 << 10;

/// The number of openings.
const ROUNDS: u32 = 250;

fn open(world: &World) -> Db {
    world.builder().memory_bytes(64 << 20).open().unwrap()
}

fn put(db: &Db, round: u32) {
    db.ordered("k").open().unwrap().put(round.to_be_bytes(), b"one small value").unwrap();
}

/// An empty store, and one with an item, take the bytes of their shortest files, and no more while open.
#[test]
fn a_small_store_takes_little() {
    let world = World::new(1);
    let db = open(&world);
    world.run_until_idle();
    assert!(world.used_bytes() <= CLOSED_BYTES_MAX, "{} open", world.used_bytes());
    let names = world.files().unwrap();
    put(&db, 1);
    db.close().unwrap();
    assert_eq!(world.files().unwrap(), names);
    let (used, calls) = (world.used_bytes(), world.calls());
    assert!(used <= CLOSED_BYTES_MAX, "{used} closed");
    let db = open(&world);
    world.run_until_idle();
    assert_eq!((world.files().unwrap(), world.used_bytes()), (names, used), "an opening makes no file");
    db.close().unwrap();
    assert!(world.calls() > calls);
}

/// A store that is opened, written and closed or crashed many times takes, and reads on opening, no more than
/// its contents need.
#[test]
fn a_store_that_is_opened_often_stays_small() {
    for (ends_well, bytes_max) in [(true, 1 << 20), (false, 2 << 20)] {
        let (mut world, mut openings_read_bytes, mut read_bytes) = (World::new(2), Vec::new(), 0);
        for round in 0..ROUNDS {
            let db = open(&world);
            // The counter belongs to the world and includes earlier reads.
            openings_read_bytes.push(db.stats().io.read_bytes - read_bytes);
            put(&db, round);
            read_bytes = db.stats().io.read_bytes;
            if ends_well {
                db.close().unwrap();
            } else {
                let crashed = world.crash(Crash::Process, u64::from(round));
                drop(db);
                world = crashed;
            }
            assert!(world.used_bytes() <= bytes_max, "{} after {round} rounds", world.used_bytes());
        }
        let db = world.builder().create(Create::Never).open().unwrap();
        let (first, last) = (openings_read_bytes[1], *openings_read_bytes.last().unwrap());
        assert!(last <= 2 * first, "{last} bytes read, and {first} at first");
        assert_eq!(db.ordered("k").open().unwrap().iter().count(), ROUNDS as usize);
    }
}

/// Closing flushes large logs and removes standby files.
#[test]
fn a_closed_store_has_short_logs() {
    let world = World::new(3);
    let db = open(&world);
    let items = db.ordered("k").open().unwrap();
    let log_bytes = || -> u64 {
        let logs = world.files().unwrap().into_iter().filter(|name| name.starts_with("log"));
        logs.map(|name| world.contents(&name).unwrap().len() as u64).sum()
    };
    let mut most = log_bytes();
    for number in 0..2000u32 {
        items.put(number.to_be_bytes(), [1; 1000]).unwrap();
        world.run_one();
        most = most.max(log_bytes());
    }
    assert!(most > 2 << 20, "{most} bytes of logs");
    db.close().unwrap();
    assert!(log_bytes() <= 1 << 20, "{} bytes of logs", log_bytes());
    let db = open(&world);
    assert_eq!(db.ordered("k").open().unwrap().iter().count(), 2000);
}

/// The sum of all roles.
fn sum(space: &SpaceStats) -> u64 {
    let tables = space.table_bytes + space.obsolete_table_bytes + space.history_bytes + space.new_table_bytes;
    let logs = space.log_bytes + space.standby_log_bytes + space.recycled_log_bytes;
    tables + logs + space.manifest_bytes + space.store_bytes + space.unnamed_bytes
}

/// Asserts that the roles add up to the files, in total and for each kind, and that all obsolete files are
/// listed.
fn check_space(world: &World, db: &Db, what: &str) -> SpaceStats {
    let space = db.stats().space;
    let length = |name: &String| world.contents(name).unwrap().len() as u64;
    let of_kind = |word: &str| -> u64 {
        world.files().unwrap().iter().filter(|name| name.starts_with(word)).map(length).sum()
    };
    assert_eq!((sum(&space), space.total_bytes), (world.used_bytes(), world.used_bytes()), "{what}");
    if space.unnamed_bytes > 0 {
        return space;
    }
    let tables = space.table_bytes + space.obsolete_table_bytes + space.new_table_bytes;
    assert_eq!(tables, of_kind("table"), "{what}: {space:?}");
    assert_eq!(space.history_bytes, of_kind("history"), "{what}");
    let logs = space.log_bytes + space.standby_log_bytes + space.recycled_log_bytes;
    assert_eq!((logs, space.manifest_bytes), (of_kind("log"), of_kind("manifest")), "{what}");
    let listed: u64 = space.obsolete_files.iter().map(|file| file.bytes).sum();
    assert!(listed >= space.obsolete_table_bytes, "{what}");
    for file in &space.obsolete_files {
        assert_eq!(Some(file.bytes), world.contents(&file.name).map(|bytes| bytes.len() as u64), "{what}");
        assert!(!file.readers.is_empty(), "{what}");
    }
    space
}

fn tables(world: &World) -> usize {
    world.files().unwrap().iter().filter(|name| name.starts_with("table")).count()
}

/// A store with some flushed and merged tables, and more items in memory.
fn filled(world: &World) -> (Db, Keyspace<Ordered>) {
    let db = world.builder().memory_bytes(2 << 20).open().unwrap();
    let items = db.ordered("k").open().unwrap();
    put_all(&items, 0..6000);
    (db, items)
}

fn put_all(items: &Keyspace<Ordered>, numbers: std::ops::Range<u32>) {
    numbers.for_each(|number| items.put((number * 7919 % 10_007).to_be_bytes(), [7; 100]).unwrap());
}

/// Once a write buffer has filled a log, later ones make no new log file.
#[test]
fn full_logs_are_used_again() {
    for value_bytes in [10, 100, 1000] {
        let world = World::new(5);
        let db = world.builder().memory_bytes(2 << 20).open().unwrap();
        let items = db.ordered("k").open().unwrap();
        let put = |from: u32, flushes: u64| {
            let flushes = db.stats().background.flushes + flushes;
            let made = (from..).take_while(|_| db.stats().background.flushes < flushes).inspect(|number| {
                items.put(number.wrapping_mul(0x9E37_79B1).to_be_bytes(), vec![7; value_bytes]).unwrap();
                while number % 64 == 0 && world.run_one() {}
            });
            from + made.count() as u32
        };
        let next = put(0, 4);
        world.start_log();
        put(next, 6);
        let made = world.log().into_iter().filter(|call| call.contains("Create log-")).count();
        assert_eq!(made, 0, "{:#?}", db.stats().space);
    }
}

/// At every turn of background work the roles add up to the files, with readers and without: through flushes,
/// merges, an ingest, a snapshot, a checkpoint, a drop and a reopen.
#[test]
fn stats_add_up_to_the_files() {
    for seed in 0..3 {
        let world = World::new(seed);
        let (db, items) = filled(&world);
        let mut seen = SpaceStats::default();
        let run = |seen: &mut SpaceStats, what: &str| {
            for _ in 0..400 {
                let space = check_space(&world, &db, what);
                seen.new_table_bytes = seen.new_table_bytes.max(space.new_table_bytes);
                seen.obsolete_table_bytes = seen.obsolete_table_bytes.max(space.obsolete_table_bytes);
                seen.standby_log_bytes = seen.standby_log_bytes.max(space.standby_log_bytes);
                seen.recycled_log_bytes = seen.recycled_log_bytes.max(space.recycled_log_bytes);
                if !world.run_one() {
                    return;
                }
            }
        };
        run(&mut seen, "puts");
        let snapshot = db.snapshot();
        for round in 0..4 {
            put_all(&items, round * 500..round * 500 + 3000);
            run(&mut seen, "puts beside a snapshot");
        }
        for part in 0..60 {
            // Few at a time, so that a log is seen half full.
            (0..25u32).for_each(|number| items.put((number * 60 + part).to_be_bytes(), [1; 1000]).unwrap());
            run(&mut seen, "a few large puts");
        }
        let mut ingest = items.ingest().unwrap();
        for number in 20_000..30_000u32 {
            ingest.put(number.to_be_bytes(), [1; 50]).unwrap();
        }
        assert!(check_space(&world, &db, "an ingest").new_table_bytes > 0);
        ingest.finish().unwrap();
        run(&mut seen, "after an ingest");
        db.compact().unwrap();
        assert!(check_space(&world, &db, "beside a snapshot").obsolete_table_bytes > 0);
        db.checkpoint("copy").unwrap();
        check_space(&world, &db, "after a checkpoint");
        drop(snapshot);
        run(&mut seen, "without the snapshot");
        db.compact().unwrap();
        let space = check_space(&world, &db, "compacted");
        assert_eq!((space.obsolete_table_bytes, space.obsolete_files.len()), (0, 0));
        assert!(seen.new_table_bytes > 0 && seen.obsolete_table_bytes > 0, "{seen:?}");
        assert!(seen.standby_log_bytes > 0 && seen.recycled_log_bytes > 0, "{seen:?}");
        db.ordered("other").open().unwrap().put("a", "b").unwrap();
        db.drop_keyspace("k").unwrap();
        run(&mut seen, "dropped");
        db.settle().unwrap();
        assert_eq!(check_space(&world, &db, "dropped").table_bytes, 0);
        drop(items);
        db.close().unwrap();
        let db = world.builder().access(Access::ReadOnly).open().unwrap();
        check_space(&world, &db, "read only");
        db.close().unwrap();
    }
}

/// After a crash a reader reports the left-over files as such, and a writer removes them.
#[test]
fn files_of_a_crash_are_unnamed() {
    for seed in 0..10 {
        let world = World::new(seed);
        let (db, items) = filled(&world);
        let mut numbers = 0..20_000u32;
        while db.stats().space.new_table_bytes == 0 {
            let number = numbers.next().expect("a table is being written long before");
            items.put(number.to_be_bytes(), [1; 100]).unwrap();
            world.run_one();
        }
        let new_bytes = db.stats().space.new_table_bytes;
        let crashed = world.crash(Crash::Process, seed);
        drop((db, items));
        let reader = crashed.builder().access(Access::ReadOnly).open().unwrap();
        let space = check_space(&crashed, &reader, "left by a crash");
        assert!(space.unnamed_bytes >= new_bytes && space.new_table_bytes == 0, "{new_bytes}: {space:?}");
        reader.close().unwrap();
        let db = crashed.builder().memory_bytes(2 << 20).open().unwrap();
        assert_eq!(check_space(&crashed, &db, "opened again").unnamed_bytes, 0);
    }
}

/// An obsolete table is removed once its last reader, of any kind, is gone, without a further write. Until
/// then `stats` names the kind of reader.
#[test]
fn obsolete_tables_go_with_their_last_reader() {
    let world = World::new(1);
    let (db, items) = filled(&world);
    db.compact().unwrap();
    let before = tables(&world);
    let readers = |kind| {
        let space = check_space(&world, &db, "beside a reader");
        assert!(space.obsolete_table_bytes > 0 && !space.obsolete_files.is_empty());
        let of_kind =
            |file: &trine::ObsoleteFile| file.readers.iter().map(|one| (one.kind, one.count)).collect();
        let all: Vec<Vec<(FileReaderKind, u64)>> = space.obsolete_files.iter().map(of_kind).collect();
        assert!(all.iter().all(|one| one.contains(&(kind, 1))), "{kind:?}: {all:?}");
    };
    let gone = |what: &str| {
        let writes = db.stats().write;
        world.run_until_idle();
        let space = check_space(&world, &db, what);
        assert_eq!((space.obsolete_table_bytes, space.history_bytes), (0, 0), "{what}");
        assert!(space.obsolete_files.is_empty(), "{what}: {space:?}");
        assert_eq!(db.stats().write.commits, writes.commits, "{what}");
    };
    let snapshot = db.snapshot();
    put_all(&items, 0..3000);
    db.compact().unwrap();
    readers(FileReaderKind::Snapshot);
    assert!(tables(&world) > before);
    drop(snapshot);
    gone("a snapshot");

    let mut iterator = items.iter();
    assert!(iterator.next().unwrap().is_ok());
    items.clear().unwrap();
    db.compact().unwrap();
    readers(FileReaderKind::Iterator);
    drop(iterator);
    gone("an iterator");
    assert_eq!(tables(&world), 0);

    put_all(&items, 0..3000);
    db.flush().unwrap();
    let snapshot = db.snapshot();
    db.drop_keyspace("k").unwrap();
    readers(FileReaderKind::Snapshot);
    assert!(tables(&world) > 0);
    drop(snapshot);
    gone("a dropped keyspace");
    assert_eq!(tables(&world), 0);
}

/// When `compact` or `settle` returns, only the store's live tables exist.
#[test]
fn nothing_obsolete_outlives_a_compact() {
    for seed in 0..10 {
        let world = World::new(seed);
        let (db, items) = filled(&world);
        db.compact().unwrap();
        let is_clean = || {
            let space = check_space(&world, &db, "merged");
            assert_eq!(space.obsolete_table_bytes, 0, "{seed}: {space:?}");
        };
        is_clean();
        put_all(&items, 0..5000);
        db.settle().unwrap();
        is_clean();
        db.drop_keyspace("k").unwrap();
        db.settle().unwrap();
        is_clean();
        assert_eq!(tables(&world), 0);
    }
}

/// Closing removes obsolete tables without readers; those with readers stay until the next opening.
#[test]
fn a_closed_store_has_no_obsolete_table() {
    for is_read in [false, true] {
        let world = World::new(4);
        let (db, items) = filled(&world);
        db.compact().unwrap();
        let snapshot = is_read.then(|| db.snapshot());
        items.clear().unwrap();
        db.flush().unwrap();
        db.settle().unwrap();
        db.close().unwrap();
        assert_eq!(tables(&world) > 0, is_read);
        drop((snapshot, items));
        let db = world.builder().open().unwrap();
        assert_eq!(tables(&world), 0);
        check_space(&world, &db, "opened again");
    }
}

/// The total length of the files in a directory.
fn directory_bytes(path: &Path) -> u64 {
    let length =
        |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.metadata().ok().map(|file| file.len());
    std::fs::read_dir(path).unwrap().filter_map(length).sum()
}

/// The same on a real file system, with threads that read all the time. After `compact`, once their calls
/// have ended, the directory matches `stats` and has no obsolete table.
#[test]
fn a_real_directory_matches_stats() {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).open().unwrap();
    let items = db.ordered("k").open().unwrap();
    for round in 0..6u32 {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        items.get(3u32.to_be_bytes()).unwrap();
                        assert!(items.iter().take(20).all(|item| item.is_ok()));
                    }
                });
            }
            put_all(&items, round * 1000..round * 1000 + 4000);
            db.compact().unwrap();
            is_over.store(true, Ordering::Relaxed);
        });
        let is_clean = || {
            let space = db.stats().space;
            assert_eq!(sum(&space), space.total_bytes);
            space.obsolete_files.is_empty() && space.total_bytes == directory_bytes(&scratch.data())
        };
        let calls = (0..100_000).find(|_| {
            std::thread::yield_now();
            is_clean()
        });
        assert!(calls.is_some(), "{:?}, {}", db.stats().space, directory_bytes(&scratch.data()));
    }
    db.clone().close().unwrap();
    let space = db.stats().space;
    assert_eq!((sum(&space), space.obsolete_table_bytes), (directory_bytes(&scratch.data()), 0));
}

/// Compacting a range frees the space of its deleted items, and rewrites no table outside the range.
#[test]
fn a_range_is_compacted_alone() {
    const GROUPS: u32 = 10;
    const EACH: u32 = 1000;
    let world = World::new(77);
    let db = world.builder().memory_bytes(1 << 20).open().unwrap();
    let items = db.ordered("a").set("table_bytes", 64 << 10).open().unwrap();
    let key = |group: u32, number: u32| format!("{group:02}/{number:05}");
    for group in 0..GROUPS {
        for number in 0..EACH {
            items.put(key(group, number), [group as u8; 300]).unwrap();
        }
    }
    db.compact().unwrap();
    for number in (0..EACH).step_by(2) {
        items.delete(key(3, number)).unwrap();
    }
    db.flush().unwrap();
    let table_bytes = || items.stats().unwrap().table_bytes;
    let moved_bytes = || db.stats().background.paced_bytes;
    let (before, moved_before) = (table_bytes(), moved_bytes());
    items.compact_range("04"..="04").unwrap();
    items.compact_range("9".."1").unwrap();
    assert!(moved_bytes() - moved_before < before / 20, "there is nothing to merge but what level 0 has");
    items.compact_range(trine::Prefix::new("03/")).unwrap();
    let (after, moved) = (table_bytes(), moved_bytes() - moved_before);
    assert!(after < before - before / 30, "{before} {after}");
    assert!(moved < before / 2, "{moved} of {before}");
    assert_eq!(items.iter().count() as u32, GROUPS * EACH - EACH / 2);
    db.compact().unwrap();
    assert_eq!(items.iter().count() as u32, GROUPS * EACH - EACH / 2);
}
