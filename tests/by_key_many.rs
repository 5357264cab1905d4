//! Keyspaces with many partitions by key: ingests into many of them, and the cost of ranges over scattered
//! ones.

use std::collections::BTreeSet;

use trine::sim::{Crash, Stop, World};
use trine::{Db, Keyspace, Ordered, Partitioning};

/// A keyspace partitioned by the first byte of keys.
fn by_first(db: &Db) -> Keyspace<Ordered> {
    db.ordered("divided").partition_by(Partitioning::prefix(1)).open().expect("opens")
}

/// Small partitions of an ingest share files, a large one has its own files. Dropping it frees them.
#[test]
fn an_ingest_fills_many_partitions() {
    let world = World::new(21);
    let db = world.builder().memory_bytes(32 << 20).open().expect("opens");
    let keyspace = db.ordered("divided").partition_by(Partitioning::prefix(1)).open().expect("made");
    let key = |partition: u8, number: u32| [&[partition][..], &number.to_be_bytes()].concat();
    let count = |partition: u8| if partition == 50 { 3000 } else { 20 };
    let mut ingest = keyspace.ingest().expect("no fault");
    for partition in 0..100 {
        for number in 0..count(partition) {
            ingest.put(key(partition, number), [partition; 1000]).expect("no fault");
        }
    }
    ingest.finish().expect("no fault");
    let tables = |world: &World| {
        let files = world.files().expect("no fault");
        files.iter().filter(|name| name.starts_with("table")).count()
    };
    let before = tables(&world);
    assert!((4..10).contains(&before), "{before} tables");
    assert_eq!(keyspace.iter().count(), 99 * 20 + 3000);
    for partition in 0..100 {
        let stats = keyspace.partition_stats([partition]).expect("no fault").expect("it is there");
        assert_eq!(stats.items, u64::from(count(partition)));
    }
    let used = world.used_bytes();
    keyspace.drop_partition([50]).expect("no fault");
    world.run_until_idle();
    assert!(world.used_bytes() + (1 << 21) < used, "{} of {used}", world.used_bytes());
    assert_eq!(keyspace.iter().count(), 99 * 20);
    // Ingests into partitions that were made in another order, over existing items.
    for partition in [203u8, 201, 202] {
        keyspace.put([partition], "old").expect("no fault");
    }
    let mut ingest = keyspace.ingest().expect("no fault");
    for partition in 201..=203u8 {
        ingest.put([partition], "new").expect("no fault");
    }
    ingest.finish().expect("no fault");
    assert!((201..=203u8).all(|one| keyspace.get([one]).expect("no fault").as_deref() == Some(b"new")));
    // Dropping one of its partitions ends an ingest, and none of its items is there.
    let mut ingest = keyspace.ingest().expect("no fault");
    for partition in 201..=203u8 {
        ingest.put([partition], "newer").expect("no fault");
    }
    keyspace.drop_partition([202]).expect("no fault");
    assert!(matches!(ingest.finish(), Err(trine::Error::Dropped { .. })));
    assert_eq!(keyspace.get([201]).expect("no fault").as_deref(), Some(&b"new"[..]));
    db.close().expect("closes");
    assert!(world.verify().expect("no fault").findings.is_empty());
}

/// An ingest over several partitions that stops at any disk call is there whole or not at all, after a
/// process crash or a power cut.
#[test]
fn ingests_over_partitions_are_whole_after_crashes() {
    let mut outcomes = BTreeSet::new();
    for index in 0..400 {
        let world = World::new(300 + index);
        let db = world.builder().memory_bytes(1 << 20).open().expect("opens");
        let keyspace = db.ordered("divided").partition_by(Partitioning::prefix(1)).open().expect("made");
        keyspace.put("b0", "old").expect("no fault");
        db.sync().expect("no fault");
        let ingested = || -> trine::Result<()> {
            let mut ingest = keyspace.ingest()?;
            for key in ["a1", "b1", "c1", "c2", "d1"] {
                ingest.put(key, "new")?;
            }
            ingest.finish()
        };
        world.stop([Stop::Before, Stop::Amid, Stop::After][index as usize % 3], index / 3);
        let is_done = ingested().is_ok();
        let is_over = !world.is_stopped();
        let crash = if index % 2 == 0 { Crash::Power } else { Crash::Process };
        let after = world.crash(crash, 10_000 + index);
        let db = after.builder().memory_bytes(1 << 20).open().expect("opens");
        let keyspace = db.ordered("divided").open().expect("opens");
        let count = keyspace.iter().filter(Result::is_ok).count();
        assert!(count == 6 || count == 1 && !is_done, "{count} items after {index}");
        outcomes.insert((is_done, count));
        drop(keyspace);
        db.close().expect("closes");
        assert!(after.verify().expect("no fault").findings.is_empty());
        if is_over {
            break;
        }
    }
    assert!(outcomes.contains(&(false, 1)) && outcomes.contains(&(true, 6)), "{outcomes:?}");
}

/// A range over more partitions than the memory has scans for is refused, and other reads go on.
#[test]
fn ranges_over_scattered_partitions_are_bounded() {
    let world = World::new(23);
    let db = world.builder().memory_bytes(1 << 20).open().expect("opens");
    let by_all = || Partitioning::function("all", 1, |key| key.into());
    let keyspace = db.ordered("scattered").partition_by(by_all()).open().expect("made");
    for hundred in 0..10u32 {
        let mut batch = db.batch();
        for number in 0..100 {
            batch.put(&keyspace, (100 * hundred + number).to_be_bytes(), "1").expect("small");
        }
        batch.commit().expect("no fault");
    }
    let first = keyspace.iter().next();
    assert!(matches!(first, Some(Err(trine::Error::Memory { .. }))), "{first:?}");
    let later = trine::block_on(keyspace.range_async(..).next());
    assert!(matches!(later, Some(Err(trine::Error::Memory { .. }))), "{later:?}");
    assert!(keyspace.contains(7u32.to_be_bytes()).expect("no fault"));
    keyspace.retain_from(980u32.to_be_bytes()).expect("no fault");
    assert_eq!(keyspace.iter().filter(Result::is_ok).count(), 20);
}

/// A batch refused for its size makes no partition, committed by a blocking call or by a future.
#[test]
fn batches_that_are_refused_make_no_partition() {
    let world = World::new(3);
    let db = world.builder().memory_bytes(128 << 10).open().expect("opens");
    let keyspace = db.ordered("divided").partition_by(Partitioning::prefix(1)).open().expect("made");
    let too_large = || {
        let mut batch = db.batch();
        for number in 0..=u8::MAX {
            batch.put(&keyspace, [number % 7, number], [number; 4000]).expect("each is small");
        }
        assert!(!batch.fits());
        batch
    };
    let refused = [too_large().commit(), trine::block_on(too_large().commit_async())];
    for result in refused {
        assert!(matches!(result, Err(trine::Error::TooLarge { what: "batch", .. })), "{result:?}");
    }
    assert_eq!(keyspace.partitions().expect("no fault"), Vec::<Vec<u8>>::new());
}

/// A batch that fits is written, with items of many partitions, new ones among them, and range deletes over
/// all of them.
#[test]
fn batches_that_fit_are_written() {
    let world = World::new(10);
    let db = world.builder().memory_bytes(2 << 20).open().expect("opens");
    let keyspace = db.ordered("divided").partition_by(Partitioning::prefix(1)).open().expect("made");
    let put = |batch: &mut trine::Batch, number: u32| {
        batch.put(&keyspace, [number as u8, (number >> 8) as u8], [7; 3]).expect("small");
    };
    let begun = || {
        let mut batch = db.batch();
        batch.delete_range(&keyspace, ..).expect("small");
        put(&mut batch, 100);
        batch.delete_range(&keyspace, [9].as_slice()..&[200]).expect("small");
        batch
    };
    for round in 0..2 {
        let mut batch = begun();
        let is_too_large = |number: &u32| {
            put(&mut batch, *number);
            !batch.fits()
        };
        let count = (0..10_000).find(is_too_large).expect("there is a limit");
        assert!(count > 300, "{count} in round {round}");
        let mut batch = begun();
        (0..count).for_each(|number| put(&mut batch, number));
        assert!(batch.fits());
        batch.commit().expect("it fits");
        assert_eq!(keyspace.partitions().expect("no fault").len(), 256);
        assert_eq!(keyspace.iter().count(), count as usize);
        db.settle().expect("no fault");
    }
}

/// A range delete with long bounds takes little space in each of many partitions.
#[test]
fn range_deletes_of_many_partitions_are_small() {
    let world = World::new(4);
    let db = world.builder().memory_bytes(32 << 20).open().expect("opens");
    let keyspace = db.ordered("divided").partition_by(Partitioning::prefix(2)).open().expect("made");
    let key = |number: u16, last: u8| [&number.to_be_bytes()[..], &[last]].concat();
    let mut batch = db.batch();
    for number in 0..1000 {
        batch.put(&keyspace, key(number, 0), "first").expect("small");
        batch.put(&keyspace, key(number, 9), "last").expect("small");
    }
    batch.commit().expect("no fault");
    let long = |number: u16| [&number.to_be_bytes()[..], &[5; 60_000]].concat();
    keyspace.delete_range(long(10)..long(990)).expect("a range of any partitions");
    let left: Vec<Vec<u8>> = keyspace.keys().map(|key| key.expect("no fault").to_vec()).collect();
    let is_left = |key: &Vec<u8>| *key < long(10) || *key >= long(990);
    let all = (0..1000).flat_map(|number| [key(number, 0), key(number, 9)]);
    assert_eq!(left, all.filter(is_left).collect::<Vec<_>>());
}

/// A store opened for reading reads, scans and lists as before. Operations that make or drop a partition are
/// refused, and a key without a partition is absent.
#[test]
fn stores_that_are_only_read_make_no_partition() {
    let world = World::new(8);
    let db = world.builder().open().expect("opens");
    by_first(&db).put([1, 1], "value").expect("no fault");
    db.close().expect("closes");
    let db = world.builder().access(trine::Access::ReadOnly).open().expect("opens");
    let keyspace = by_first(&db);
    assert_eq!(keyspace.keys().count(), 1);
    assert!(
        keyspace.get([1, 1]).expect("no fault").is_some() && keyspace.get([2]).expect("no fault").is_none()
    );
    let mut batch = db.batch();
    batch.put(&keyspace, [2], "value").expect("small");
    let mut deletes = db.batch();
    deletes.delete_range(&keyspace, ..).expect("small");
    for refused in [
        keyspace.put([1, 2], "value"),
        keyspace.put([2], "value"),
        keyspace.delete([2]),
        keyspace.clear(),
        keyspace.create_partition([3]),
        keyspace.create_partitions([[1], [3]]),
        keyspace.drop_partition([1]).map(drop),
        trine::block_on(keyspace.put_async([2], "value")),
        trine::block_on(batch.commit_async()),
        trine::block_on(deletes.commit_async()),
    ] {
        assert!(matches!(refused, Err(trine::Error::ReadOnly)), "{refused:?}");
    }
    keyspace.create_partitions([[1], [1]]).expect("nothing is missing");
    assert_eq!(keyspace.partitions().expect("no fault"), [[1]]);
}

/// Damage in one partition does not prevent reads of others. A scan returns the error where the damage
/// begins.
#[test]
fn damage_is_of_one_partition() {
    let world = World::new(9);
    let db = world.builder().open().expect("opens");
    let keyspace = by_first(&db);
    for first in 0..3u8 {
        (0..200u8).for_each(|last| keyspace.put([first, last], [last; 40]).expect("no fault"));
    }
    db.flush().expect("no fault");
    db.close().expect("closes");
    let files = world.files().expect("there is a directory");
    let table = files.into_iter().find(|name| name.starts_with("table")).expect("one");
    let mut bytes = world.contents(&table).expect("it was listed");
    let at = bytes.windows(40).position(|window| window == [100; 40]).expect("not compressed");
    bytes[at] ^= 1;
    world.set_contents(&table, Some(&bytes));
    let db = world.builder().open().expect("opens");
    let keyspace = by_first(&db);
    for first in 1..3u8 {
        assert_eq!(keyspace.prefix([first]).filter(Result::is_ok).count(), 200);
        assert_eq!(keyspace.get([first, 100]).expect("not damaged").as_deref(), Some(&[100; 40][..]));
    }
    assert!(matches!(keyspace.get([0, 100]), Err(trine::Error::Corrupt(_))));
    let met: Vec<bool> = keyspace.iter().map(|item| item.is_ok()).collect();
    assert!(met.iter().filter(|is_read| !**is_read).count() == 1 && !met[met.len() - 1]);
    assert_eq!(keyspace.iter().rev().filter(Result::is_ok).count() / 400, 1);
    assert!(keyspace.drop_partition([0]).expect("no fault"), "what is damaged can be dropped");
    assert_eq!(keyspace.iter().filter(Result::is_ok).count(), 400);
    // The other partitions leave the file that they shared.
    db.compact().expect("no fault");
    assert!(db.verify(|_| {}).expect("no fault").findings.is_empty());
}

/// The first write of a partition costs as much as a later one, except for an occasional edit.
#[test]
fn first_writes_need_no_edit_each() {
    let world = World::new(4);
    let db = world.builder().open().expect("opens");
    let keyspace = by_first(&db);
    keyspace.put([0], "1").expect("no fault");
    let calls_of = |first: u8| {
        let before = world.calls();
        (0..200).for_each(|number| keyspace.put([first.max(number), number], "1").expect("no fault"));
        world.calls() - before
    };
    let later = calls_of(200);
    let first = calls_of(0);
    assert!(first <= later + 40, "{first} beside {later} calls");
    assert_eq!(keyspace.partitions().expect("no fault").len(), 201);
}
