//! The number of keys: approximate from memory, and exact by counting.

use trine::sim::World;
use trine::{Db, Keyspace, Ordered};

fn open(seed: u64) -> (World, Db, Keyspace<Ordered>) {
    let world = World::new(seed);
    let db = world.builder().memory_bytes(8 << 20).open().unwrap();
    let items = db.ordered("items").open().unwrap();
    (world, db, items)
}

fn key(number: u32) -> [u8; 8] {
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn put(items: &Keyspace<Ordered>, numbers: std::ops::Range<u32>) {
    numbers.for_each(|number| items.put(key(number), b"value").unwrap());
}

fn delete(items: &Keyspace<Ordered>, numbers: std::ops::Range<u32>) {
    numbers.for_each(|number| items.delete(key(number)).unwrap());
}

/// In write buffers each key counts once, by its newest version, whether or not it had earlier ones.
#[test]
fn write_buffers_count_each_key_once() {
    let (_world, db, items) = open(1);
    let len = || items.approximate_len().unwrap();
    put(&items, 0..400);
    delete(&items, 400..1000);
    assert_eq!(len(), 400, "deletes of keys that were not there");
    put(&items, 0..400);
    delete(&items, 0..100);
    delete(&items, 0..100);
    put(&items, 0..10);
    assert_eq!(len(), 310);
    let at = db.snapshot();
    delete(&items, 0..1000);
    assert_eq!((len(), items.at(&at).approximate_len().unwrap()), (0, 310));
    assert_eq!((items.exact_len(|_| {}).unwrap(), items.at(&at).exact_len(|_| {}).unwrap()), (0, 310));
}

/// With tables below, filters tell which keys of write buffers exist already. A length is within 5 % of the
/// truth, before and after a flush.
#[test]
fn filters_tell_which_keys_exist_already() {
    let (_world, db, items) = open(2);
    put(&items, 0..10_000);
    db.flush().unwrap();
    let is_near = |expected: u64| {
        let found = items.approximate_len().unwrap();
        assert_eq!(items.exact_len(|_| {}).unwrap(), expected);
        assert!(found.abs_diff(expected) * 20 <= expected, "{found} of {expected}");
    };
    // Overwritten, new, deleted, and deleted without having existed.
    put(&items, 0..3000);
    is_near(10_000);
    put(&items, 10_000..11_000);
    is_near(11_000);
    delete(&items, 5000..9000);
    delete(&items, 20_000..23_000);
    is_near(7000);
    db.compact().unwrap();
    assert_eq!(items.approximate_len().unwrap(), 7000);
    delete(&items, 0..2000);
    is_near(5000);
    db.flush().unwrap();
    is_near(5000);
}

/// Counting reports its progress, sees one point in time, and reads each table once.
#[test]
fn exact_lengths_are_counted() {
    let (_world, db, items) = open(3);
    let mut ingest = items.ingest().unwrap();
    (0..200_000u32).for_each(|number| ingest.put(number.to_be_bytes(), b"").unwrap());
    ingest.finish().unwrap();
    (0..1000u32).for_each(|number| items.delete((number * 7).to_be_bytes()).unwrap());
    let mut told = Vec::new();
    let len = items.exact_len(|count| {
        if told.is_empty() {
            items.delete(199_999u32.to_be_bytes()).unwrap();
        }
        told.push(count);
    });
    assert_eq!(len.unwrap(), 199_000, "it sees the moment of the call");
    assert_eq!(told, [65_536, 131_072, 196_608]);
    assert_eq!(items.exact_len(|_| {}).unwrap(), 198_999);
    db.drop_keyspace("items").unwrap();
    assert!(matches!(items.exact_len(|_| {}), Err(trine::Error::Dropped { .. })));
}

/// The approximate size of a range is about its share of the tables, in any run, with fences in memory or
/// not. The sizes of parts add up to about the whole, and dropped items have none.
#[test]
fn sizes_of_ranges_add_up() {
    const ITEMS: u32 = 40_000;
    for (seed, memory_bytes) in [(3, 16 << 20), (4, 1 << 20)] {
        let world = World::new(seed);
        let db = world.builder().memory_bytes(memory_bytes).open().unwrap();
        let items = db.ordered("a").set("table_bytes", 256 << 10).open().unwrap();
        assert_eq!(items.approximate_size(..).unwrap(), 0);
        for number in 0..ITEMS {
            items.put((number * 7919 % ITEMS).to_be_bytes(), [1; 60]).unwrap();
        }
        for is_compacted in [false, true] {
            if is_compacted {
                db.compact().unwrap();
            } else {
                db.flush().unwrap();
                world.run_until_idle();
            }
            let all = items.approximate_size(..).unwrap();
            let levels = items.stats().unwrap().levels;
            let (tables, runs): (u64, u64) = levels
                .iter()
                .fold((0, 0), |(tables, runs), level| (tables + level.table_bytes, runs + level.runs));
            assert!(all <= tables && all * 10 > tables * 9, "{all} of {tables}");
            let parts = 20;
            let part = |number: u32| (ITEMS / parts * number).to_be_bytes();
            let sizes: Vec<u64> = (0..parts)
                .map(|number| items.approximate_size(part(number)..part(number + 1)).unwrap())
                .collect();
            // Without fences in memory, a fence page is the smallest unit of a size.
            let blocks_bytes = if memory_bytes > 2 << 20 { runs * 2 * 4200 } else { all / 4 };
            for size in &sizes {
                let share = all / u64::from(parts);
                assert!(
                    size + blocks_bytes >= share && *size <= share + blocks_bytes,
                    "{size} beside {share}"
                );
            }
            assert_eq!(items.approximate_size(part(2)..part(1)).unwrap(), 0);
            assert!(items.approximate_size(trine::Prefix::new([9])).unwrap() <= 4200);
        }
        items.delete_range(..).unwrap();
        db.flush().unwrap();
        db.settle().unwrap();
        assert_eq!(items.approximate_size(..).unwrap(), 0);
    }
}
