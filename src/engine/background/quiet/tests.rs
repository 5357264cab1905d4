//! A whole store whose cache grows while nothing is written, and shrinks when writes come.

use crate::base::id::ItemKind;
use crate::base::settings::StoreSettings;
use crate::base::sync::{Arc, Ordering};
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::tests::run::open;
use crate::engine::{OpenMode, OpenOptions, Store};
use crate::io::sim::{SimDisk, SimThreads, sim_env};
use crate::read::get::GetMode;
use crate::read::trace::NoTrace;
use crate::write::batch::BatchItems;

use super::*;

const MEMORY_BYTES: u64 = 1 << 20;
const VALUE_BYTES: usize = 100;
const COUNT: u64 = 20_000;

fn key(index: u64) -> [u8; 8] {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Checks that the store's memory statistics add up, and that no role has more than its share.
fn check(store: &Store) {
    let memory = store.stats().memory;
    assert!(memory.used_bytes <= memory.budget_bytes, "{memory:?}");
    assert!(memory.roles.iter().all(|role| role.bytes <= role.limit_bytes), "{memory:?}");
    // The other roles count with their present use as their limit: the cache has the rest.
    let fixed = ["write buffers", "cache", "filters and fences", "merges"];
    let parts = memory.roles.iter().map(|role| match fixed.contains(&role.name) {
        true => role.limit_bytes,
        false => role.bytes,
    });
    assert!(parts.sum::<u64>() <= memory.budget_bytes, "{memory:?}");
}

fn put(store: &Store, keyspace: &KeyspaceState, indexes: std::ops::Range<u64>) {
    for index in indexes {
        let mut items = BatchItems::default();
        items.push(keyspace.tree, ItemKind::Put, &key(index), &[index as u8; VALUE_BYTES]).expect("small");
        store.write(&items, None).expect("no fault");
        if index % 16 == 0 {
            check(store);
        }
    }
}

/// Reads all items, so that the cache is full.
fn read(store: &Store, keyspace: &KeyspaceState) {
    for index in 0..COUNT {
        let found = store.get(keyspace, (&key(index), GetMode::Value), None, &mut NoTrace, |value| {
            value.map(|value| value[0])
        });
        assert_eq!(found.expect("no fault"), Some(index as u8));
        if index % 64 == 0 {
            check(store);
        }
    }
}

/// Runs turns until only waits are left, and checks the accounts after each.
fn run(store: &Store, threads: &SimThreads) {
    while threads.run_one() {
        check(store);
    }
}

/// Advances the clock until idle parts are lent; a merge worker may be paced until then.
fn rest(store: &Store, threads: &SimThreads) {
    for _ in 0..3 {
        threads.clock().advance(1_000_000_000 + store.quiet.rest_ns);
        run(store, threads);
    }
}

fn annex_bytes(store: &Store) -> u64 {
    store.cache.stats().annex_bytes
}

fn made() -> (Arc<SimDisk>, Arc<Store>, Arc<SimThreads>, Arc<KeyspaceState>) {
    let disk = SimDisk::new(1);
    let (store, threads) = open(&disk, None, 1, MEMORY_BYTES).expect("made");
    let keyspace = store.open_keyspace("items", &[]).expect("made");
    put(&store, &keyspace, 0..COUNT);
    store.compact().expect("no fault");
    (disk, store, threads, keyspace)
}

/// Nothing is lent at first, nearly all of the annex once the store is at rest, and nothing as soon as the
/// flush worker has seen a sealed generation. At every moment the accounts are within the budget.
#[test]
fn the_cache_borrows_idle_write_memory() {
    let (_disk, store, threads, keyspace) = made();
    rest(&store, &threads);
    let lent = annex_bytes(&store);
    assert!(lent <= store.budget.annex_bytes && lent * 10 > store.budget.annex_bytes * 9, "{lent}");
    read(&store, &keyspace);
    let full = store.cache.stats();
    assert!(full.used_bytes > store.cache.capacity_bytes() as u64, "{full:?}");
    let before = store.work.flushes.load(Ordering::Relaxed);
    let mut index = 0;
    while store.writer.sealed_count() == 0 {
        put(&store, &keyspace, index..index + 1);
        index += 1;
    }
    assert_eq!(annex_bytes(&store), lent, "no writer closes it");
    while store.writer.sealed_count() > 0 {
        assert!(threads.run_one());
        check(&store);
        if store.work.is_busy() {
            assert!(annex_bytes(&store) <= store.budget.merges_bytes(), "a flush is under way");
        }
    }
    assert!(store.work.flushes.load(Ordering::Relaxed) > before);
    store.settle().expect("no fault");
    rest(&store, &threads);
    assert_eq!(annex_bytes(&store), lent, "and again");
    read(&store, &keyspace);
    store.compact().expect("no fault");
    check(&store);
    store.close().expect("no fault");
}

/// Each part is lent on its own, however many needs it has. A part that is needed again at once is not lent
/// in between.
#[test]
fn parts_are_lent_apart() {
    let (_disk, store, threads, keyspace) = made();
    rest(&store, &threads);
    let lent = annex_bytes(&store);
    read(&store, &keyspace);
    let merges = [store.quiet.use_memory(Whose::Merges), store.quiet.use_memory(Whose::Merges)];
    let beside_merges = annex_bytes(&store);
    assert!(beside_merges < lent && lent - beside_merges >= store.budget.merges_annex_bytes() / 10 * 9);
    let flush = store.quiet.use_memory(Whose::Flushes);
    assert_eq!(annex_bytes(&store), 0);
    drop(flush);
    let [one, other] = merges;
    drop(one);
    rest(&store, &threads);
    assert_eq!(annex_bytes(&store), beside_merges);
    drop(other);
    let now_ns = store.env.clock.now_ns();
    assert_eq!(store.quiet.look(now_ns), Some(store.quiet.rest_ns));
    drop(store.quiet.use_memory(Whose::Merges));
    let later_ns = now_ns + store.quiet.rest_ns;
    assert_eq!(store.quiet.look(later_ns), Some(store.quiet.rest_ns), "it was needed meanwhile");
    assert_eq!(annex_bytes(&store), beside_merges);
    assert_eq!(store.quiet.look(later_ns + store.quiet.rest_ns), None);
    assert_eq!(annex_bytes(&store), lent);
    store.close().expect("no fault");
}

/// Memory that a reader keeps from being closed is closed at a later look.
#[test]
fn memory_delayed_by_a_reader_is_closed_later() {
    let (_disk, store, threads, keyspace) = made();
    rest(&store, &threads);
    let pin = store.epoch.pin();
    read(&store, &keyspace);
    let memory_use = store.quiet.use_memory(Whose::Flushes);
    let late = annex_bytes(&store);
    assert!(late > store.budget.merges_bytes(), "{late}");
    drop(pin);
    store.quiet.look(store.env.clock.now_ns());
    assert!(annex_bytes(&store) <= store.budget.merges_bytes());
    drop(memory_use);
    store.close().expect("no fault");
}

/// A store that is only read has the annex from the start, and less of it where its logs hold more than a
/// write buffer does.
#[test]
fn readers_have_it_at_once() {
    let (disk, store, _threads, _) = made();
    store.close().expect("no fault");
    let reopened = |memory_bytes| {
        let (env, _threads) = sim_env(&disk, 2);
        let settings = StoreSettings { memory_bytes, ..StoreSettings::default() };
        Store::open(env, OpenOptions::new(settings, OpenMode::ReadOnly)).expect("no fault")
    };
    let store = reopened(MEMORY_BYTES);
    assert!(annex_bytes(&store) * 10 > store.budget.annex_bytes * 9);
    check(&store);
    store.close().expect("no fault");
    let (writer, _threads) = open(&disk, None, 3, MEMORY_BYTES).expect("no fault");
    let keyspace = writer.open_keyspace("items", &[]).expect("there");
    put(&writer, &keyspace, 0..COUNT / 40);
    writer.close().expect("no fault");
    let store = reopened(MEMORY_BYTES / 4);
    assert!(annex_bytes(&store) <= store.budget.merges_bytes(), "its log is more than a small write buffer");
    store.close().expect("no fault");
}
