//! Stores opened with less memory than their logs were written with.

use super::*;
use crate::base::id::ItemKind;
use crate::base::settings::StoreSettings;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::{OpenMode, OpenOptions};
use crate::io::sim::{Crash, Failure, FaultPlan, Repeat, Select, SimDisk, sim_env};
use crate::read::get::GetMode;
use crate::read::trace::NoTrace;
use crate::write::batch;

fn open(disk: &Arc<SimDisk>, memory_bytes: u64) -> Result<Arc<Store>> {
    let settings = StoreSettings { memory_bytes, ..StoreSettings::default() };
    Store::open(sim_env(disk, 5).0, OpenOptions::new(settings, OpenMode::CreateIfMissing))
}

const MUCH: u64 = 2 << 20;
const LITTLE: u64 = 128 << 10;

fn put(store: &Store, keyspace: &KeyspaceState, key: &[u8], value: &[u8]) {
    let mut items = batch::BatchItems::default();
    items.push(keyspace.tree, ItemKind::Put, key, value).expect("small");
    store.write(&items, None).expect("no fault");
}

const COUNT: u32 = 120;

fn key(number: u32) -> Vec<u8> {
    [&number.to_be_bytes()[..], &[b'k'; 96]].concat()
}

/// A killed store whose only log holds several times the memory budget, in two keyspaces, one of which was
/// dropped.
fn killed() -> Arc<SimDisk> {
    let disk = SimDisk::new(1);
    let store = open(&disk, MUCH).expect("made");
    let kept = store.open_keyspace("kept", &[]).expect("made");
    let gone = store.open_keyspace("gone", &[]).expect("made");
    for number in 0..COUNT {
        // Some values are as long as the largest batch of a generation.
        let value_bytes = if number % 40 == 39 { 12_000 } else { 600 };
        put(&store, &kept, &key(number), &vec![7; value_bytes]);
        put(&store, &gone, &key(number), &[8; 300]);
    }
    store.drop_keyspace("gone").expect("no fault");
    disk.kill(|| drop(store));
    disk
}

fn check(store: &Arc<Store>, what: u64) {
    let kept = store.keyspace("kept").expect("it is there");
    for number in 0..COUNT {
        let found =
            store.get(&kept, (&key(number), GetMode::Presence), None, &mut NoTrace, |value| value.is_some());
        assert!(matches!(found, Ok(true)), "{what}: {number}: {found:?}");
    }
    store.flush().expect("no fault");
    let stats = store.keyspace_stats(&kept);
    assert_eq!(stats.levels.iter().map(|level| level.items).sum::<u64>(), COUNT.into(), "{what}");
}

fn tables(disk: &Arc<SimDisk>) -> usize {
    let names = disk.names().expect("no fault");
    names.iter().filter(|name| name.starts_with("table-")).count()
}

/// Logs that exceed the memory budget become several tables without the dropped keyspace. No such log is
/// left, and every item is in one table.
#[test]
fn long_logs_become_tables() {
    let disk = killed();
    let store = open(&disk, LITTLE).expect("opens");
    let catalog = store.catalog.take(&*store.env.threads);
    let count = catalog.state.tables.len();
    assert!((6..40).contains(&count), "{count} tables of some 120 KB");
    assert_eq!(catalog.state.logs.len(), 1, "the new one");
    drop(catalog);
    check(&store, 0);
    store.close().expect("no fault");
}

/// A read-only opening takes the memory that the logs need, and changes nothing.
#[test]
fn reading_takes_memory_as_it_comes() {
    let disk = killed();
    let before = disk.fingerprint();
    let settings = StoreSettings { memory_bytes: LITTLE, ..StoreSettings::default() };
    let store =
        Store::open(sim_env(&disk, 5).0, OpenOptions::new(settings, OpenMode::ReadOnly)).expect("opens");
    let kept = store.keyspace("kept").expect("it is there");
    for number in 0..COUNT {
        let key = key(number);
        let found = store.get(&kept, (&key, GetMode::Presence), None, &mut NoTrace, |value| value.is_some());
        assert!(matches!(found, Ok(true)), "{number}: {found:?}");
    }
    store.close().expect("no fault");
    assert_eq!(disk.fingerprint(), before);
    assert_eq!(tables(&disk), 0);
}

/// If the opening ends at any call, the next opening does not flush the same items again, and no item is
/// missing.
#[test]
fn cut_short_it_is_gone_on_with() {
    let disk = killed();
    let calls = {
        let fork = disk.fork();
        let before = fork.calls();
        let store = open(&fork, LITTLE).expect("opens");
        let calls = fork.calls() - before;
        fork.kill(|| drop(store));
        calls
    };
    let mut partial_count = 0;
    for index in (0..calls).step_by(5) {
        let fork = disk.fork();
        fork.plan(FaultPlan::fail(Select::ANY, index, Failure::Io, Repeat::Always));
        drop(open(&fork, LITTLE));
        fork.crash(Crash::Process, index);
        partial_count += u64::from(tables(&fork) > 0);
        let store = open(&fork, LITTLE).expect("opens");
        check(&store, index);
        store.close().expect("no fault");
    }
    assert!(partial_count > 3, "{partial_count} of them had made tables");
}
