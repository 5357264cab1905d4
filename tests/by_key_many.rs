//! Many partitions that keys say: what an ingest fills, and what ranges over scattered ones take.

use std::collections::BTreeSet;

use trine::Partitioning;
use trine::sim::{Crash, Stop, World};

/// Small partitions of an ingest share files, a large one has files of its own; dropping it gives them back.
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
    // Into partitions that were made in another order, over what they have.
    for partition in [203u8, 201, 202] {
        keyspace.put([partition], "old").expect("no fault");
    }
    let mut ingest = keyspace.ingest().expect("no fault");
    for partition in 201..=203u8 {
        ingest.put([partition], "new").expect("no fault");
    }
    ingest.finish().expect("no fault");
    assert!((201..=203u8).all(|one| keyspace.get([one]).expect("no fault").as_deref() == Some(b"new")));
    // One that is dropped meanwhile ends it, and nothing of it is there.
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

/// Stopped at any call of the disk, an ingest over partitions is there whole or not at all, after a crash of
/// the process or of power.
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

/// A range over more partitions than there is memory for scans of them is refused, and reads go on.
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
