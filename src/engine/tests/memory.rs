//! Memory of a whole store: the cached blocks that survive merges, waits of merges for memory, and the cost
//! of gets at several ratios of data to memory.

use crate::base::id::ItemKind;
use crate::base::sync::{Arc, Ordering};
use crate::io::sim::SimDisk;
use crate::read::get::GetMode;
use crate::read::trace::NoTrace;
use crate::write::batch::BatchItems;

use super::super::Store;
use super::run::open;
use crate::engine::publish::keyspace::KeyspaceState;

const VALUE_BYTES: usize = 100;

fn key(index: u64) -> [u8; 8] {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn put(store: &Store, keyspace: &KeyspaceState, indexes: impl Iterator<Item = u64>) {
    let indexes: Vec<u64> = indexes.collect();
    for some in indexes.chunks(50) {
        let mut items = BatchItems::default();
        for index in some {
            let value = [*index as u8; VALUE_BYTES];
            items.push(keyspace.tree, ItemKind::Put, &key(*index), &value).expect("small");
        }
        store.write(&items, None).expect("no fault");
    }
}

/// Device reads of gets of these items. Each get must find its value, or none for an absent item.
fn reads_of(store: &Store, keyspace: &KeyspaceState, count: u64, indexes: impl Iterator<Item = u64>) -> u64 {
    let before = store.blocks.counts.block_reads.load(Ordering::Relaxed);
    for index in indexes {
        let found = store.get(keyspace, (&key(index), GetMode::Value), None, &mut NoTrace, |value| {
            value.map(|one| one[0])
        });
        assert_eq!(found.expect("no fault"), (index < count).then_some(index as u8), "{index}");
    }
    assert_within_budget(store);
    store.blocks.counts.block_reads.load(Ordering::Relaxed) - before
}

/// Checks that the roles stay within their limits and the budget.
fn assert_within_budget(store: &Store) {
    let memory = store.stats().memory;
    assert!(memory.used_bytes <= memory.budget_bytes, "{memory:?}");
    assert!(memory.roles.iter().all(|role| role.bytes <= role.limit_bytes), "{memory:?}");
}

/// A store with `count` items, all in one run.
fn settled(memory_bytes: u64, count: u64) -> (Arc<Store>, Arc<KeyspaceState>) {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, None, 1, memory_bytes).expect("made");
    let keyspace = store.open_keyspace("items", &[]).expect("made");
    put(&store, &keyspace, 0..count);
    store.compact().expect("no fault");
    (store, keyspace)
}

/// Cached items stay cached after a merge of all of them; uncached ones stay uncached.
#[test]
fn a_merge_does_not_empty_the_cache() {
    const COUNT: u64 = 8_000;
    let (store, keyspace) = settled(4 << 20, COUNT);
    assert!(reads_of(&store, &keyspace, COUNT, 0..COUNT) > 200, "nothing is cached at first");
    assert_eq!(reads_of(&store, &keyspace, COUNT, 0..COUNT), 0, "all of it fits");
    put(&store, &keyspace, (0..COUNT).step_by(100));
    store.compact().expect("no fault");
    let after = reads_of(&store, &keyspace, COUNT, 0..COUNT);
    assert!(after < 50, "{after} blocks were gone after a merge");
    store.close().expect("no fault");

    let (store, keyspace) = settled(4 << 20, COUNT);
    put(&store, &keyspace, (0..COUNT).step_by(100));
    store.compact().expect("no fault");
    assert!(reads_of(&store, &keyspace, COUNT, 0..COUNT) > 200, "what nobody read is not cached");
    store.close().expect("no fault");
}

/// Device reads per get at ratios of data to cache memory of 10 and 100. At 10, filters and fences are all
/// pinned: an absent key costs no read and a present one its block. At 100, few of them are: a present key
/// also costs a page of fences, and an absent one the same, or its filter's page.
#[test]
fn gets_read_their_block_and_unpinned_pages() {
    for (memory_bytes, count, present, absent) in
        [(1 << 20, 40_000, 0.8..1.05, 0.0..0.05), (256 << 10, 110_000, 1.0..2.1, 0.5..2.1)]
    {
        let (store, keyspace) = settled(memory_bytes, count);
        let some = |first: u64| (0..2000).map(move |step| (first + step * 7919) % count);
        reads_of(&store, &keyspace, count, some(1));
        let reads = reads_of(&store, &keyspace, count, some(3)) as f64 / 2000.0;
        assert!(present.contains(&reads), "{memory_bytes}: {reads} reads a get");
        let others = (0..2000).map(|step| count + step);
        let reads = reads_of(&store, &keyspace, count, others) as f64 / 2000.0;
        assert!(absent.contains(&reads), "{memory_bytes}: {reads} reads a get of what is not there");
        let lacks = {
            let pin = store.epoch.pin();
            let version = &store.views.load(&pin).get().version;
            let tree = version.tree(keyspace.tree).expect("it is there");
            tree.tables().any(|(_, placed)| placed.table.lacks_pages())
        };
        let noted = store.pages.take_short();
        assert_eq!(noted, if lacks { vec![keyspace.tree] } else { Vec::new() }, "{memory_bytes}");
        store.close().expect("no fault");
    }
}

/// A merge waits while other merges hold the memory; one merge may always run.
#[test]
fn merges_wait_for_memory() {
    let (store, _) = settled(1 << 20, 10);
    assert!(store.work.try_grant(1000, 100), "the only one");
    assert!(!store.work.try_grant(1, 100) && store.work.try_grant(1, 2000));
    let seen = store.work.moved.seen();
    store.work.end_grant(1000);
    assert_ne!(store.work.moved.seen(), seen, "whoever waits hears of it");
    store.work.end_grant(1);
    store.close().expect("no fault");
}
