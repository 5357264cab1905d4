//! Holes in shared files: the pages of removed slices go back to the file system, and no others.

use trine::sim::{Crash, Stop, World};
use trine::{Db, Keyspace, Ordered};

use super::support::{divided, find, names};

const PAGE_BYTES: u64 = 4096;

fn partition(db: &Db, name: &str) -> Keyspace<Ordered> {
    divided(db, "events").partition(name).unwrap()
}

fn value(name: &str, key: u32) -> Vec<u8> {
    [name.as_bytes(), &key.to_be_bytes(), &[7; 200]].concat()
}

/// Fills three partitions; their items are in one file, in this order.
fn fill(db: &Db) {
    for name in ["a", "b", "c"] {
        let partition = partition(db, name);
        (0..600u32).for_each(|key| partition.put(key.to_be_bytes(), value(name, key)).unwrap());
        // Each partition has a range tombstone beyond its items, so nothing depends on the bounds of slices.
        partition.delete_range(1000u32.to_be_bytes()..2000u32.to_be_bytes()).unwrap();
    }
    db.flush().unwrap();
}

fn check(db: &Db, name: &str) {
    let partition = partition(db, name);
    let found: Vec<_> = partition.iter().map(Result::unwrap).collect();
    assert_eq!(found.len(), 600, "{name}");
    for (key, (found, held)) in (0u32..).zip(found) {
        assert_eq!((&found[..], &held[..]), (&key.to_be_bytes()[..], &value(name, key)[..]), "{name}");
    }
}

fn check_both(db: &Db) {
    check(db, "a");
    check(db, "c");
}

/// The only table, which has all items.
fn table(world: &World) -> String {
    let mut tables = world.files().unwrap().into_iter().filter(|file| file.starts_with("table-"));
    let table = tables.next().unwrap();
    assert!(tables.next().is_none());
    table
}

/// The number of pages of the table that are all zeros.
fn zero_pages(world: &World) -> u64 {
    let bytes = world.contents(&table(world)).unwrap();
    let is_zero = |page: &&[u8]| page.len() as u64 == PAGE_BYTES && page.iter().all(|byte| *byte == 0);
    bytes.chunks(PAGE_BYTES as usize).filter(is_zero).count() as u64
}

/// Dropping a partition frees its pages without a read, a write or a merge. The rest of the file stays, also
/// after a reopen. Once both neighbours of a shared page are dropped, it is freed too.
#[test]
fn dropped_partitions_leave_holes() {
    let world = World::new(1);
    let db = world.builder().memory_bytes(64 << 20).open().unwrap();
    fill(&db);
    let (before, zeros) = (db.stats(), zero_pages(&world));
    divided(&db, "events").drop_partition("b").unwrap();
    db.settle().unwrap();
    let after = db.stats();
    let hole_bytes = after.space.hole_bytes;
    assert!(hole_bytes * 4 > before.space.table_bytes && hole_bytes * 2 < before.space.table_bytes);
    assert_eq!(after.space.table_bytes, before.space.table_bytes - hole_bytes);
    assert_eq!(after.space.total_bytes, world.used_bytes());
    assert_eq!((after.io.reads, after.background.merges), (before.io.reads, before.background.merges));
    assert_eq!(zero_pages(&world), zeros + hole_bytes / PAGE_BYTES);
    let check_rest = |db: &Db| {
        check_both(db);
        assert!(db.verify(|_| {}).unwrap().findings.is_empty());
    };
    check_rest(&db);
    db.close().unwrap();
    assert!(world.verify().unwrap().findings.is_empty());
    let db = world.builder().memory_bytes(64 << 20).open().unwrap();
    check_rest(&db);
    db.settle().unwrap();
    assert_eq!(db.stats().space.hole_bytes, hole_bytes, "an opening punches what is not named");
    divided(&db, "events").drop_partition("a").unwrap();
    db.settle().unwrap();
    let both = db.stats().space.hole_bytes;
    assert!(both > 2 * hole_bytes - 2 * PAGE_BYTES && zero_pages(&world) >= both / PAGE_BYTES);
    check(&db, "c");
    divided(&db, "events").drop_partition("c").unwrap();
    db.settle().unwrap();
    assert_eq!((db.stats().space.hole_bytes, db.stats().space.table_bytes), (0, 0), "the file is gone");
}

/// Earlier snapshots and checkpoints keep every page.
#[test]
fn readers_keep_their_pages() {
    let world = World::new(2);
    let db = world.builder().memory_bytes(64 << 20).open().unwrap();
    fill(&db);
    let zeros = zero_pages(&world);
    let snapshot = db.snapshot();
    let kept = partition(&db, "b");
    divided(&db, "events").drop_partition("b").unwrap();
    db.settle().unwrap();
    assert_eq!((db.stats().space.hole_bytes, zero_pages(&world)), (0, zeros));
    assert_eq!(kept.at(&snapshot).iter().count(), 600);
    drop(snapshot);
    db.settle().unwrap();
    assert!(db.stats().space.hole_bytes > 0);

    db.checkpoint("beside").unwrap();
    let zeros = zero_pages(&world);
    divided(&db, "events").drop_partition("a").unwrap();
    db.settle().unwrap();
    assert_eq!(zero_pages(&world), zeros, "the file has a second name");
    let beside = world.beside("beside");
    assert!(beside.verify().unwrap().findings.is_empty());
    let copy = beside.builder().open().unwrap();
    check_both(&copy);
}

/// The machine stops at any call: the remaining partitions have all their items, and the dropped one has all
/// of them or is gone.
#[test]
fn stops_cost_nothing_that_stays() {
    let world = World::new(3);
    let db = world.builder().memory_bytes(64 << 20).open().unwrap();
    fill(&db);
    db.close().unwrap();
    let mut ended = false;
    for index in 0..1000 {
        let world = world.fork();
        let db = world.builder().memory_bytes(64 << 20).open().unwrap();
        let from = world.calls();
        world.stop([Stop::Before, Stop::Amid, Stop::After][index % 3], (index / 3) as u64);
        let dropped = divided(&db, "events").drop_partition("b");
        // The stopped process ends here, so the result does not matter.
        let _ = db.settle();
        ended = !world.is_stopped();
        assert!(world.calls() >= from);
        drop(db);
        let after = world.crash(Crash::Power, index as u64);
        assert!(after.verify().unwrap().findings.is_empty(), "{index}");
        let db = after.builder().memory_bytes(64 << 20).open().unwrap();
        check_both(&db);
        match find(&db, "events/b") {
            Ok(_) => {
                assert!(dropped.is_err(), "{index}");
                check(&db, "b");
            }
            Err(_) => assert_eq!(names(&db), ["events/a", "events/c"]),
        }
        db.settle().unwrap();
        assert_eq!(names(&db).len() == 2, db.stats().space.hole_bytes > 0, "{index}");
        if ended {
            break;
        }
    }
    assert!(ended, "a thousand stops are enough");
}

/// A salvage without a manifest skips holes and finds all other items.
#[test]
fn salvages_pass_over_holes() {
    let (world, target) = (World::new(4), World::new(5));
    let db = world.builder().memory_bytes(64 << 20).open().unwrap();
    fill(&db);
    divided(&db, "events").drop_partition("b").unwrap();
    db.settle().unwrap();
    assert!(db.stats().space.hole_bytes > 0);
    db.close().unwrap();
    for file in world.files().unwrap().iter().filter(|file| file.contains("manifest")) {
        world.set_contents(file, None);
    }
    let salvaged = world.salvage(&target).unwrap();
    assert_eq!(salvaged.report.findings.len(), 1, "the manifest alone: {salvaged:?}");
    let db = target.builder().open().unwrap();
    let items: u64 = names(&db).iter().map(|name| find(&db, name).unwrap().iter().count() as u64).sum();
    assert_eq!(items, 1200, "{salvaged:?}");
}

/// A push of a node leaves holes in the files that it shares with its siblings.
#[test]
fn holes_of_pushed_nodes() {
    let world = World::new(6);
    let open = || world.builder().memory_bytes(4 << 20).open().unwrap();
    let db = open();
    let trie = db.hashed("h").set("table_bytes", 64 << 10).open().unwrap();
    let mut count = 0u32;
    while db.stats().space.hole_bytes == 0 {
        assert!(count < 60_000, "{:?}", trie.stats().unwrap().levels);
        for key in count..count + 500 {
            trie.put(key.to_le_bytes(), value("h", key)).unwrap();
        }
        count += 500;
        db.settle().unwrap();
    }
    let check_all = |db: &Db| {
        let trie = db.hashed("h").open().unwrap();
        for key in 0..count {
            assert_eq!(trie.get(key.to_le_bytes()).unwrap().unwrap(), value("h", key));
        }
        assert!(db.verify(|_| {}).unwrap().findings.is_empty());
    };
    check_all(&db);
    db.close().unwrap();
    assert!(world.verify().unwrap().findings.is_empty());
    check_all(&open());
}

/// The file system gets the space back.
#[cfg(target_os = "linux")]
#[test]
fn holes_are_room() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let db = Db::builder(&path).memory_bytes(64 << 20).open().unwrap();
    fill(&db);
    let held = || {
        let files = std::fs::read_dir(&path).unwrap().map(Result::unwrap);
        let tables = files.filter(|file| file.file_name().to_string_lossy().starts_with("table-"));
        tables.map(|file| file.metadata().unwrap().blocks() * 512).sum::<u64>()
    };
    let before = held();
    divided(&db, "events").drop_partition("b").unwrap();
    db.settle().unwrap();
    let hole_bytes = db.stats().space.hole_bytes;
    if hole_bytes == 0 {
        eprintln!("the file system of {} has no holes", path.display());
        return;
    }
    assert!(held() + hole_bytes <= before, "{} of {before}, {hole_bytes}", held());
    check_both(&db);
    db.checkpoint(dir.path().join("copy")).unwrap();
    divided(&db, "events").drop_partition("a").unwrap();
    db.settle().unwrap();
    assert_eq!(db.stats().space.hole_bytes, hole_bytes, "the copy has the file too");
    let copy = Db::open(dir.path().join("copy")).unwrap();
    check_both(&copy);
}
