//! Deleted ranges, end to end: what they cost readers, and that nothing is left of them or comes back.

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
    let builder = world.builder().memory_bytes(256 << 10);
    let db = builder.open().unwrap();
    let items = db.ordered("items").set("table_bytes", 64 << 10).open().unwrap();
    (db, items)
}

/// After everything was deleted and merged there is no table: not of the items, not of the range.
#[test]
fn nothing_is_left_of_what_was_deleted() {
    let world = World::new(1);
    let (db, items) = open(&world);
    let is_table = |name: &String| name.starts_with("table");
    for round in 0..3u32 {
        fill(&items, 0..3000);
        let before = db.snapshot();
        match round {
            0 => items.delete_range::<&[u8]>(..).unwrap(),
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

/// The blocks that a scan reads over a deleted stretch, in both directions, are a few for each run, however
/// many items it held.
#[test]
fn a_deleted_stretch_costs_a_seek() {
    let reads = |count: u32| {
        let world = World::new(2);
        let (db, items) = open(&world);
        fill(&items, 0..count + 100);
        db.flush().unwrap();
        db.settle().unwrap();
        items.delete_range(key(50)..key(50 + count)).unwrap();
        let scans = |items: &Keyspace<Ordered>| {
            let before = db.stats().io.device_reads;
            let range = || items.range(key(40)..key(60 + count));
            assert_eq!((range().count(), range().rev().count()), (20, 20));
            let mut cursor = items.cursor::<&[u8]>(..);
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
            // Five seeks, each of a block or two.
            assert!(reads <= 10 * runs, "{reads} reads over {count} items in {runs} runs");
        }
    }
}

/// A deleted key stays deleted where the newer table tells by its fences alone that it has no item of it:
/// with large values, each in a block of its own.
#[test]
fn large_values_do_not_come_back() {
    for bits in [0, 10] {
        let world = World::new(4);
        let db = world.builder().memory_bytes(64 << 20).open().unwrap();
        // Runs stay where they are.
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

/// Deleted items do not come back when merges take the range down step by step, with the store opened anew
/// between, nor when later ranges meet earlier ones.
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
