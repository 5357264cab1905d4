//! Range deletes, end to end: their cost for readers, and that deleted items leave nothing behind and do not
//! come back.

use trine::sim::World;
use trine::{Db, Keyspace, Ordered};

fn key(index: u32) -> [u8; 8] {
    [*b"item", index.to_be_bytes()].concat().try_into().unwrap()
}

fn fill(items: &Keyspace<Ordered>, indexes: std::ops::Range<u32>) {
    for index in indexes {
        items.put(key(index), [index as u8; 100]).unwrap();
    }
}

fn open(world: &World) -> (Db, Keyspace<Ordered>) {
    open_with(world, 256 << 10)
}

fn open_with(world: &World, memory_bytes: u64) -> (Db, Keyspace<Ordered>) {
    let builder = world.builder().memory_bytes(memory_bytes);
    let db = builder.open().unwrap();
    let items = db.ordered("items").set("table_bytes", 64 << 10).open().unwrap();
    (db, items)
}

/// After all items were deleted and merged there is no table, neither of items nor of range tombstones.
#[test]
fn deleted_ranges_leave_no_tables() {
    let world = World::new(1);
    let (db, items) = open(&world);
    let is_table = |name: &String| name.starts_with("table");
    for round in 0..3u32 {
        fill(&items, 0..3000);
        let before = db.snapshot();
        match round {
            0 => items.delete_range(..).unwrap(),
            1 => {
                items.delete_range(key(1000)..key(2000)).unwrap();
                items.delete_range(..=key(1000)).unwrap();
                items.delete_range(key(1999)..).unwrap();
            }
            _ => {
                db.flush().unwrap();
                db.settle().unwrap();
                items.delete_range(b"item".to_vec()..b"itemz".to_vec()).unwrap();
            }
        }
        assert_eq!((items.iter().count(), items.at(&before).iter().count()), (0, 3000));
        db.compact().unwrap();
        assert_eq!((items.iter().count(), items.iter().rev().count()), (0, 0));
        assert_eq!(items.at(&before).iter().count(), 3000, "a snapshot keeps what it saw");
        drop(before);
        db.compact().unwrap();
        world.run_until_idle();
        assert_eq!(items.stats().unwrap().items, 0);
    }
    drop(items);
    db.close().unwrap();
    drop(open(&world).0.close());
    assert!(!world.files().unwrap().iter().any(is_table), "{:?}", world.files());
}

/// A scan over a deleted range reads a few blocks for each run, in both directions, however many items the
/// range held.
#[test]
fn a_deleted_stretch_costs_a_seek() {
    let reads = |count: u32| {
        let world = World::new(2);
        // Enough for the fences of all tables; otherwise a seek reads fence pages too.
        let (db, items) = open_with(&world, 1 << 20);
        fill(&items, 0..count + 100);
        db.flush().unwrap();
        db.settle().unwrap();
        items.delete_range(key(50)..key(50 + count)).unwrap();
        let scans = |items: &Keyspace<Ordered>| {
            let before = db.stats().io.device_reads;
            let range = || items.range(key(40)..key(60 + count));
            assert_eq!((range().count(), range().rev().count()), (20, 20));
            let mut cursor = items.cursor(..);
            cursor.seek(key(60)).unwrap();
            assert_eq!(cursor.next().unwrap().unwrap().0, key(50 + count));
            assert_eq!(cursor.prev().unwrap().unwrap().0, key(49));
            db.stats().io.device_reads - before
        };
        let runs = || items.stats().unwrap().levels.iter().map(|level| level.runs).sum::<u64>();
        let in_memory = (scans(&items), runs());
        db.flush().unwrap();
        [in_memory, (scans(&items), runs())]
    };
    for count in [4000, 20_000] {
        for (reads, runs) in reads(count) {
            println!("{reads} reads over {count} deleted items in {runs} runs");
            // For each scan and for the cursor, one block at each end of the range.
            assert!(reads <= 6 * runs, "{reads} reads over {count} items in {runs} runs");
        }
    }
}

/// A deleted key stays deleted where the newer table knows from its fences alone that it has no item of the
/// key: with large values, each in a block of its own.
#[test]
fn large_values_do_not_come_back() {
    for bits in [0, 10] {
        let world = World::new(4);
        let db = world.builder().memory_bytes(64 << 20).open().unwrap();
        // No merges run.
        let items =
            db.ordered("items").set("level0_runs", 64).set("filter_bits_per_key", bits).open().unwrap();
        for index in 0..20 {
            items.put(key(index), [index as u8; 40_000]).unwrap();
        }
        db.flush().unwrap();
        items.delete_range(key(2)..key(18)).unwrap();
        for index in (0..20).step_by(3) {
            items.put(key(index), [1; 40_000]).unwrap();
        }
        db.flush().unwrap();
        assert_eq!(items.stats().unwrap().levels[0].runs, 2);
        for index in 0..20 {
            let is_there = index % 3 == 0 || !(2..18).contains(&index);
            assert_eq!(items.get(key(index)).unwrap().is_some(), is_there, "{index}");
            assert_eq!(items.contains(key(index)).unwrap(), is_there, "{index}");
        }
        let keys: Vec<[u8; 8]> = (0..20).map(key).collect();
        assert_eq!(items.multi_get(&keys).unwrap().iter().flatten().count(), items.iter().count());
    }
}

/// Deleted items do not come back when merges move the range tombstone down level by level, with reopens
/// between, nor when later ranges overlap earlier ones.
#[test]
fn nothing_comes_back() {
    let world = World::new(3);
    let mut alive: std::collections::BTreeSet<u32> = (0..4000).collect();
    let (mut db, mut items) = open(&world);
    fill(&items, 0..4000);
    for round in 0..12u32 {
        let (start, end) = (round * 317 % 4000, round * 317 % 4000 + 100 + round * 40);
        items.delete_range(key(start)..key(end)).unwrap();
        alive.retain(|index| !(start..end).contains(index));
        fill(&items, end..end + 20);
        alive.extend(end..end + 20);
        match round % 4 {
            0 => db.flush().unwrap(),
            1 => db.settle().unwrap(),
            2 => {
                drop(items);
                db.close().unwrap();
                (db, items) = open(&world);
            }
            _ => db.compact().unwrap(),
        }
        for _ in 0..round {
            world.run_one();
        }
        let found: Vec<Vec<u8>> = items.iter().map(|item| item.unwrap().0.to_vec()).collect();
        assert!(
            found.iter().map(|key| &key[..]).eq(alive.iter().map(|index| key(*index)).collect::<Vec<_>>())
        );
        for index in (0..5000).step_by(7) {
            assert_eq!(items.contains(key(index)).unwrap(), alive.contains(&index), "{index}");
        }
    }
    drop(items);
    db.close().unwrap();
}

fn tables(world: &World) -> usize {
    world.files().unwrap().iter().filter(|name| name.starts_with("table")).count()
}

/// After `clear` and a flush nothing of a keyspace is left on disk, and next to nothing was read for it,
/// however large it was. Its neighbour is unchanged.
#[test]
fn a_clear_gives_space_back_without_reading() {
    for (clears, count) in [(true, 4000), (true, 40_000), (false, 40_000)] {
        let world = World::new(u64::from(count));
        let (db, items) = open(&world);
        let kept = db.ordered("kept").open().unwrap();
        fill(&kept, 0..500);
        db.compact().unwrap();
        let kept_bytes = db.stats().space.table_bytes;
        fill(&items, 0..count);
        db.flush().unwrap();
        db.settle().unwrap();
        world.run_until_idle();
        let stats = items.stats().unwrap();
        assert!(stats.table_bytes > u64::from(count) * 100 && stats.tables > 5, "{stats:?}");
        let (before, used_bytes) = (db.stats(), world.used_bytes());
        if clears {
            items.clear().unwrap();
        } else {
            // A range delete of the prefix has the same effect.
            items.delete_range(b"item".to_vec()..b"iten".to_vec()).unwrap();
        }
        assert_eq!((items.iter().next().is_none(), items.approximate_len().unwrap()), (true, 0));
        db.flush().unwrap();
        db.settle().unwrap();
        world.run_until_idle();
        let (after, stats) = (db.stats(), items.stats().unwrap());
        assert_eq!((stats.table_bytes, stats.tables, items.approximate_len().unwrap()), (0, 0, 0));
        let reads = after.io.read_bytes - before.io.read_bytes;
        println!("{count} items: {reads} bytes read, {} bytes given back", used_bytes - world.used_bytes());
        assert!(reads <= 64 << 10, "{reads} bytes were read");
        assert_eq!(after.write.merge_read_bytes, before.write.merge_read_bytes);
        assert_eq!(tables(&world) as u64, kept.stats().unwrap().tables);
        assert_eq!(after.space.table_bytes, kept_bytes);
        assert!(
            kept.iter().map(|item| item.unwrap().0.to_vec()).eq((0..500).map(|index| key(index).to_vec()))
        );
    }
}

/// A file that a flush wrote for two keyspaces stays when one is cleared, without that keyspace's pages. It
/// is removed once merges have taken the other's slice out of it.
#[test]
fn a_shared_file_goes_with_its_last_part() {
    let world = World::new(9);
    let db = world.builder().memory_bytes(4 << 20).open().unwrap();
    let (cleared, kept) = (db.ordered("cleared").open().unwrap(), db.ordered("kept").open().unwrap());
    fill(&cleared, 0..1500);
    fill(&kept, 0..10);
    db.flush().unwrap();
    let before = db.stats().space.table_bytes;
    cleared.clear().unwrap();
    db.flush().unwrap();
    db.settle().unwrap();
    world.run_until_idle();
    assert_eq!((cleared.stats().unwrap().table_bytes, tables(&world)), (0, 1));
    let space = db.stats().space;
    assert_eq!(space.table_bytes + space.hole_bytes, before, "there is still a part in it");
    assert!(space.hole_bytes * 8 > before * 7, "what was cleared is a hole: {space:?}");
    db.compact().unwrap();
    world.run_until_idle();
    assert!(db.stats().space.table_bytes < before / 4 && tables(&world) == 1);
    assert_eq!((cleared.iter().count(), kept.iter().count()), (0, 10));
}

/// A snapshot from before a clear keeps its items, and their space is freed with the snapshot. Items written
/// after the clear are not affected.
#[test]
fn a_snapshot_keeps_cleared_items() {
    let world = World::new(6);
    let (db, items) = open(&world);
    fill(&items, 0..5000);
    let at = db.snapshot();
    let mut walk = items.iter();
    assert_eq!(walk.next().unwrap().unwrap().0[..], key(0));
    items.clear().unwrap();
    fill(&items, 4000..4100);
    db.flush().unwrap();
    db.settle().unwrap();
    world.run_until_idle();
    let stats = items.stats().unwrap();
    assert_eq!((stats.items, items.approximate_len().unwrap()), (100, 100), "{stats:?}");
    let kept = db.stats().snapshots;
    assert!(kept.file_bytes > 100_000, "{kept:?}");
    assert_eq!((items.at(&at).iter().count(), items.at(&at).approximate_len().unwrap()), (5000, 5000));
    assert_eq!(items.at(&at).get(key(17)).unwrap().as_deref(), Some(&[17; 100][..]));
    assert_eq!((walk.count(), items.iter().count()), (4999, 100));
    drop(at);
    world.run_until_idle();
    db.flush().unwrap();
    world.run_until_idle();
    assert_eq!(db.stats().snapshots.files, 0);
    assert_eq!(tables(&world) as u64, items.stats().unwrap().tables);
}

/// Range tombstones do not lower the number of keys themselves, and hidden items do not raise it.
#[test]
fn lengths_know_of_ranges() {
    let world = World::new(7);
    let (db, items) = open(&world);
    let len = || items.approximate_len().unwrap();
    fill(&items, 0..50);
    items.delete_range(key(10)..key(20)).unwrap();
    assert_eq!(len(), 40);
    fill(&items, 15..17);
    assert_eq!(len(), 42);
    db.compact().unwrap();
    assert_eq!(len(), 42);
    let at = db.snapshot();
    items.clear().unwrap();
    fill(&items, 0..2);
    assert_eq!((len(), items.at(&at).approximate_len().unwrap()), (2, 42));
    items.delete_range(key(0)..key(1)).unwrap();
    assert_eq!(len(), 1);
    db.flush().unwrap();
    db.settle().unwrap();
    fill(&items, 100..110);
    assert_eq!((len(), items.at(&at).approximate_len().unwrap()), (11, 42));
    items.clear().unwrap();
    items.clear().unwrap();
    db.flush().unwrap();
    assert_eq!(len(), 0);
    fill(&items, 0..10);
    assert_eq!(len(), 10);
}

/// Very many disjoint ranges. Each key is found or absent as expected, and memory stays within the budget.
/// The first block of a get or scan decides, and a full merge drops all ranges.
#[test]
fn very_many_ranges_are_borne() {
    const PAIRS: u32 = 30_000;
    let world = World::new(8);
    let db = world.builder().memory_bytes(4 << 20).open().unwrap();
    let items = db.ordered("items").set("table_bytes", 256 << 10).open().unwrap();
    (0..2 * PAIRS).for_each(|index| items.put(key(index), [index as u8; 100]).unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    let memory = |role| {
        let memory = db.stats().memory;
        assert!(memory.used_bytes <= memory.budget_bytes, "{memory:?}");
        memory.roles.into_iter().find(|one| one.name == role).map(|one| one.bytes).unwrap()
    };
    let mut bounds_bytes_max = 0;
    for index in 0..PAIRS {
        items.delete_range(key(2 * index)..key(2 * index + 1)).unwrap();
        if index % 500 == 499 {
            bounds_bytes_max = bounds_bytes_max.max(memory("table bounds"));
            let (last, next) = (key(2 * index + 1), key(2 * index + 2));
            assert!(items.contains(last).unwrap() && !items.contains(key(2 * index)).unwrap());
            assert_eq!(items.range(key(0)..next).next_back().unwrap().unwrap().0[..], last);
        }
    }
    let check = || {
        let found = items.iter().map(|item| item.unwrap().0.to_vec());
        assert!(found.eq((0..PAIRS).map(|index| key(2 * index + 1).to_vec())));
        let before = db.stats().io.device_reads;
        (0..2 * PAIRS).step_by(601).for_each(|index| {
            assert_eq!(items.contains(key(index)).unwrap(), index % 2 == 1, "{index}");
        });
        (db.stats().io.device_reads - before) as f64 / f64::from(2 * PAIRS / 601)
    };
    let with_ranges = check();
    db.compact().unwrap();
    let without = check();
    println!("{with_ranges} reads a get, then {without}; {bounds_bytes_max} bytes of bounds at most");
    assert!(with_ranges < without + 1.0);
    assert_eq!((items.stats().unwrap().items, items.approximate_len().unwrap()), (30_000, 30_000));
    // Only the table's own memory, and no ranges.
    let (bounds_bytes, tables) = (memory("table bounds"), items.stats().unwrap().tables);
    assert!(
        bounds_bytes_max > 100_000 && bounds_bytes < 800 * tables,
        "{bounds_bytes} bytes, {tables} tables"
    );
}
