//! Keyspaces with explicit partitions, which the caller names.

use std::collections::BTreeMap;

use trine::sim::{Crash, World};
use trine::{Access, Db, Error, Keyspace, Ordered, Partitioned, Partitioning};

use super::rng::{Rng, with_seeds};
use super::support::{divided, find, names};

fn events(db: &Db) -> Partitioned {
    divided(db, "events")
}

fn keys(partition: &Keyspace<Ordered>) -> Vec<Vec<u8>> {
    partition.keys().map(|key| key.unwrap().to_vec()).collect()
}

fn is_dropped<T>(result: trine::Result<T>) -> bool {
    matches!(result, Err(Error::Dropped { .. }))
}

/// Each partition is a map of its own, in memory, in tables and after a reopen. The empty name is valid too.
#[test]
fn a_key_is_of_its_partition() {
    let world = World::new(1);
    let db = world.builder().open().unwrap();
    let names: [&[u8]; 4] = [b"", b"a", b"a\0", &[0xff; 255]];
    for (number, name) in names.iter().enumerate() {
        let partition = events(&db).partition(name).unwrap();
        assert_eq!((partition.name(), partition.partition_name()), ("events", Some(*name)));
        partition.put("same", [number as u8]).unwrap();
        partition.put([number as u8], "own").unwrap();
    }
    let check = |db: &Db| {
        assert_eq!(events(db).partitions().unwrap(), names);
        for (number, name) in names.iter().enumerate() {
            let partition = events(db).find_partition(name).unwrap().unwrap();
            assert_eq!(keys(&partition), [vec![number as u8], b"same".to_vec()]);
            assert_eq!(partition.get("same").unwrap().unwrap(), [number as u8]);
        }
        assert!(events(db).find_partition("b").unwrap().is_none());
    };
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.compact().unwrap();
    check(&db);
    assert_eq!(events(&db).stats().unwrap().items, 8);
    assert_eq!(db.stats().keyspaces[0].items, 8);
    db.close().unwrap();
    let db = world.builder().open().unwrap();
    check(&db);
    assert!(db.verify(|_| {}).unwrap().findings.is_empty());
}

/// Invalid names, and opening a keyspace with another partitioning than it was made with, are refused.
#[test]
fn invalid_partition_names_are_refused() {
    let world = World::new(1);
    let db = world.builder().open().unwrap();
    db.ordered("whole").open().unwrap();
    let events = events(&db);
    assert!(matches!(events.partition([7; 256]), Err(Error::Invalid { .. })));
    for wrong in [db.ordered("events").open().map(drop), db.keyspace("events").map(drop)] {
        match wrong {
            Err(Error::Mismatch { name, stored, given }) => {
                assert_eq!((name, &stored[..], &given[..]), ("partitioning", "explicit", "none"));
            }
            other => panic!("{other:?}"),
        }
    }
    let divided = db.ordered("whole").partition_by(Partitioning::explicit()).open();
    assert!(matches!(divided, Err(Error::Mismatch { .. })));
    let infos = db.keyspaces().into_iter().map(|one| (one.name, one.is_partitioned));
    assert_eq!(infos.collect::<Vec<_>>(), [("events".to_owned(), true), ("whole".to_owned(), false)]);
    events.partition("there").unwrap().put("a", "1").unwrap();
    drop(events);
    db.close().unwrap();
    let db = world.builder().access(Access::ReadOnly).open().unwrap();
    let events = self::events(&db);
    assert_eq!(keys(&events.partition("there").unwrap()), [b"a"]);
    assert!(matches!(events.partition("new"), Err(Error::NoKeyspace { .. })));
    assert!(events.drop_partition("there").is_err());
}

/// A dropped partition is gone for new reads and for earlier batches. Earlier snapshots and iterators see all
/// of it. A new partition of the same name is empty.
#[test]
fn dropped_partitions_are_gone() {
    for in_tables in [false, true] {
        let world = World::new(2);
        let db = world.builder().open().unwrap();
        let events = events(&db);
        let [gone, kept] = ["gone", "kept"].map(|name| events.partition(name).unwrap());
        for partition in [&gone, &kept] {
            (0..100u8).for_each(|key| partition.put([key], "value").unwrap());
        }
        if in_tables {
            db.flush().unwrap();
        }
        let (snapshot, mut walk) = (db.snapshot(), gone.iter());
        walk.next().unwrap().unwrap();
        let mut batch = db.batch();
        batch.put(&kept, "late", "1").unwrap();
        batch.put(&gone, "late", "1").unwrap();
        assert!(events.drop_partition("gone").unwrap());
        assert!(!events.drop_partition("gone").unwrap());
        assert!(is_dropped(gone.get([1])) && is_dropped(gone.put([1], "")) && is_dropped(batch.commit()));
        assert!(is_dropped(gone.iter().next().unwrap()));
        assert_eq!((kept.get("late").unwrap(), keys(&kept).len()), (None, 100));
        let again = events.partition("gone").unwrap();
        assert!(again.is_empty().unwrap());
        again.put("new", "1").unwrap();
        db.compact().unwrap();
        assert_eq!(gone.at(&snapshot).iter().count(), 100);
        assert_eq!(walk.count(), 99);
        assert_eq!(keys(&again), [b"new"]);
        drop((snapshot, again, gone, kept, events));
        db.close().unwrap();
        let db = world.builder().open().unwrap();
        assert_eq!(keys(&self::events(&db).partition("gone").unwrap()), [b"new"]);
    }
}

/// Tables with only a dropped partition are removed at once without being read. Dropping many partitions is
/// one edit.
#[test]
fn dropped_partitions_give_space_back() {
    let world = World::new(3);
    let db = world.builder().memory_bytes(32 << 20).open().unwrap();
    let events = events(&db);
    for number in 0..20u32 {
        let partition = events.partition(number.to_be_bytes()).unwrap();
        (0..500u32).for_each(|key| partition.put(key.to_be_bytes(), [7; 1000]).unwrap());
        db.compact().unwrap();
    }
    let before = db.stats();
    let names: Vec<_> = events.partitions().unwrap().into_iter().skip(2).collect();
    assert_eq!(events.drop_partitions(&names).unwrap(), 18);
    db.settle().unwrap();
    let after = db.stats();
    assert!(after.space.table_bytes * 8 < before.space.table_bytes, "{:?}", after.space);
    assert_eq!(after.io.reads, before.io.reads, "nothing is read of what is dropped");
    assert_eq!(after.background.merges, before.background.merges);
    assert_eq!(events.drop_partitions(&names).unwrap(), 0);
    assert_eq!(events.stats().unwrap().items, 1000);
}

/// After a crash dropped partitions stay dropped, also if their items were in memory, and partitions made and
/// written durably are there.
#[test]
fn drops_outlive_crashes() {
    with_seeds("drops_outlive_crashes", 40, |seed| {
        let (mut world, mut rng) = (World::new(seed), Rng::new(seed));
        let mut model: BTreeMap<u8, BTreeMap<u8, u64>> = BTreeMap::new();
        for round in 0..3 {
            let db = world.builder().memory_bytes(1 << 20).open().unwrap();
            let events = events(&db);
            let there: Vec<u8> = events.partitions().unwrap().into_iter().map(|name| name[0]).collect();
            assert_eq!(there, model.keys().copied().collect::<Vec<_>>(), "round {round}");
            for (name, map) in &model {
                let partition = events.find_partition([*name]).unwrap().unwrap();
                let found = partition.iter().map(Result::unwrap);
                let found =
                    found.map(|(key, value)| (key[0], u64::from_le_bytes(value[..].try_into().unwrap())));
                assert_eq!(found.collect::<BTreeMap<_, _>>(), *map, "partition {name}, round {round}");
            }
            for step in 0..200u64 {
                let name = rng.below(6) as u8;
                match rng.below(20) {
                    0 => {
                        let was_there = model.remove(&name).is_some();
                        assert_eq!(events.drop_partition([name]).unwrap(), was_there);
                    }
                    1 => db.flush().unwrap(),
                    2 => db.compact().unwrap(),
                    _ => {
                        let key = rng.below(50) as u8;
                        events.partition([name]).unwrap().put([key], step.to_le_bytes()).unwrap();
                        model.entry(name).or_default().insert(key, step);
                    }
                }
            }
            db.sync().unwrap();
            drop(events);
            if rng.one_in(4) {
                db.close().unwrap();
            } else {
                // A process draws its file ids from its seed, so each needs a different seed.
                world = world.crash(*rng.choose(&[Crash::Power, Crash::Process]), 1000 + 4 * seed + round);
            }
        }
    });
}

/// Partitions dropped by `retain_from` stay dropped after a crash, and the bound persists. A partition below
/// the bound can be made; making a partition within the bound drops it, making another below does not.
#[test]
fn old_partitions_are_dropped_for_good() {
    let mut world = World::new(12);
    let db = world.builder().open().unwrap();
    let events = events(&db);
    for name in ["2026-01", "2026-02", "2026-03"] {
        events.partition(name).unwrap().put("key", name).unwrap();
    }
    let (before, first) = (db.snapshot(), events.partition("2026-01").unwrap());
    assert_eq!(events.retain_from("2026-03").unwrap(), 2);
    assert!(is_dropped(first.get("key")) && first.at(&before).contains("key").unwrap());
    assert!(events.find_partition("2026-01").unwrap().is_none());
    assert_eq!(events.retain_from("2026-03").unwrap(), 0);
    assert!(matches!(events.retain_from([7; 256]), Err(Error::Invalid { .. })));
    drop((before, first, events));
    world = world.crash(Crash::Power, 13);
    let db = world.builder().open().unwrap();
    let events = self::events(&db);
    assert_eq!(names(&db), ["events/2026-03"]);
    assert_eq!(events.retained_from().unwrap().unwrap(), b"2026-03");
    for late in ["2026-01", "2026-02"] {
        events.partition(late).unwrap().put("late", "1").unwrap();
    }
    assert_eq!(events.partitions().unwrap().len(), 3);
    db.sync().unwrap();
    // A salvage drops them once their items are copied.
    let target = World::new(14);
    let salvaged = world.crash(Crash::Process, 15).salvage(&target).unwrap();
    assert_eq!(salvaged.doubtful.len(), 0, "{salvaged:?}");
    let copy = target.builder().open().unwrap();
    assert_eq!(names(&copy), ["events/2026-03"]);
    assert_eq!(self::events(&copy).retained_from().unwrap().unwrap(), b"2026-03");
    events.partition("2026-04").unwrap();
    assert_eq!(events.partitions().unwrap(), [b"2026-03", b"2026-04"]);
    events.retain_from("").unwrap();
    events.partition("2026-01").unwrap();
    events.partition("2026-05").unwrap();
    assert_eq!((events.partitions().unwrap().len(), events.retained_from().unwrap()), (4, None));
    // Partitions below the bound that are asked for in the same call as a wanted one stay; others below it
    // are dropped.
    assert_eq!(events.retain_from("2026-03").unwrap(), 1);
    events.create_partitions(["2026-01", "2026-02"]).unwrap();
    events.create_partitions(["2026-01", "2026-06"]).unwrap();
    let expected = [b"2026-01", b"2026-03", b"2026-04", b"2026-05", b"2026-06"];
    assert_eq!(events.partitions().unwrap(), expected);
    drop(events);
    db.close().unwrap();
    let db = world.builder().access(Access::ReadOnly).open().unwrap();
    assert!(db.verify(|_| {}).unwrap().findings.is_empty());
    assert!(self::events(&db).retain_from("2027").is_err());
}

/// Thousands of partitions share one write buffer, and exist after a reopen. Dropped ones leave nothing
/// behind.
#[test]
fn thousands_come_and_go() {
    const COUNT: u32 = 3000;
    let world = World::new(5);
    let db = world.builder().memory_bytes(64 << 20).open().unwrap();
    let events = events(&db);
    // One edit makes two thirds of them, and leaves the existing one unchanged.
    events.partition(1_u32.to_be_bytes()).unwrap().put("key", "its own").unwrap();
    events.create_partitions((0..COUNT / 3 * 2).map(u32::to_be_bytes)).unwrap();
    assert_eq!(events.partitions().unwrap().len(), COUNT as usize / 3 * 2);
    assert_eq!(events.partition(1_u32.to_be_bytes()).unwrap().get("key").unwrap().unwrap(), b"its own");
    for number in 0..COUNT {
        events.partition(number.to_be_bytes()).unwrap().put("key", number.to_le_bytes()).unwrap();
    }
    db.settle().unwrap();
    let old = (0..COUNT).filter(|number| number % 3 > 0).map(u32::to_be_bytes);
    assert_eq!(events.drop_partitions(old).unwrap(), u64::from(COUNT / 3 * 2));
    drop(events);
    db.close().unwrap();
    let db = world.builder().memory_bytes(64 << 20).open().unwrap();
    let events = self::events(&db);
    assert_eq!(events.partitions().unwrap().len(), COUNT as usize / 3);
    for number in (0..COUNT).step_by(3) {
        let partition = events.find_partition(number.to_be_bytes()).unwrap().unwrap();
        assert_eq!(partition.get("key").unwrap().unwrap(), number.to_le_bytes());
    }
    let manifest =
        |db: &Db| db.stats().memory.roles.iter().find(|role| role.name == "manifest").unwrap().bytes;
    let full = manifest(&db);
    let all = events.partitions().unwrap();
    events.drop_partitions(&all).unwrap();
    assert!(manifest(&db) * 10 < full, "{} of {full} bytes", manifest(&db));
}

/// A salvaged store has no dropped partitions, also if their items are still in the log.
#[test]
fn salvages_leave_dropped_partitions() {
    let (world, target) = (World::new(6), World::new(7));
    let db = world.builder().open().unwrap();
    let events = events(&db);
    for name in ["gone", "kept"] {
        (0..50u8).for_each(|key| events.partition(name).unwrap().put([key], name).unwrap());
    }
    events.drop_partition("gone").unwrap();
    drop(events);
    db.sync().unwrap();
    let salvaged = world.crash(Crash::Process, 8).salvage(&target).unwrap();
    assert_eq!((salvaged.writes, salvaged.doubtful.len()), (50, 0), "{salvaged:?}");
    let db = target.builder().open().unwrap();
    assert_eq!(names(&db), ["events/kept"]);
    assert_eq!(keys(&find(&db, "events/kept").unwrap()).len(), 50);
}
