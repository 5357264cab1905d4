//! Openings of stores with a crafted manifest or damaged tables, on a simulated machine.

use super::*;
use crate::base::id::{ItemKind, PartitionId, SEQUENCE_MAX};
use crate::base::settings::StoreSettings;
use crate::format::manifest::{KeyspaceKind, ManifestChange, Slice};
use crate::io::sim::{Crash, Failure, FaultPlan, Operation, Repeat, Select, SimDisk, Stop, sim_env};
use crate::io::storage::Storage;
use crate::read::get::GetMode;
use crate::read::trace::NoTrace;
use crate::write::batch::BatchItems;
use crate::write::writer::Until;

mod openings;

fn options() -> OpenOptions {
    let settings = StoreSettings { memory_bytes: 1 << 20, ..StoreSettings::default() };
    OpenOptions::new(settings, OpenMode::CreateIfMissing)
}

fn open(disk: &Arc<SimDisk>) -> Result<Arc<Store>> {
    Store::open(sim_env(disk, 5).0, options())
}

fn put(store: &Store, keyspace: &KeyspaceState, key: &str) {
    let mut items = BatchItems::default();
    items.push(keyspace.tree, ItemKind::Put, key.as_bytes(), &[7; 600]).expect("small");
    store.write(&items, None).expect("no fault");
}

/// Appends an edit that no release writes to the manifest of a closed store.
fn craft(disk: &Arc<SimDisk>, changes: &[ManifestChange]) {
    let store_file = StoreFile::load(&**disk).expect("no fault").expect("a store");
    let (_, mut manifest) = ManifestFile::load(&**disk, store_file.live()).expect("sound");
    manifest.append(&**disk, changes).expect("no fault");
}

/// A manifest that decodes but describes an impossible store is an error at open, not a panic.
#[test]
fn crafted_manifests_are_refused() {
    let keyspace = |id: u32| ManifestChange::Keyspace {
        id: KeyspaceId(id),
        kind: KeyspaceKind::Ordered,
        name: format!("crafted {id}"),
        settings: Vec::new(),
    };
    let partition = |id: u32| ManifestChange::Partition {
        id: PartitionId(id),
        keyspace: KeyspaceId(9),
        name: id.to_le_bytes().into(),
    };
    let ids = ManifestChange::Ids { next_keyspace: u32::MAX, next_partition: u32::MAX };
    let slice = Slice {
        keyspace: KeyspaceId(9),
        partition: PartitionId(8),
        level: 16,
        run: 0,
        items: 1,
        tombstones: 0,
        oldest_tombstone_s: 0,
        tombstones_dense: 0,
        key_value_bytes: 1,
        first_sequence: 1,
        last_sequence: 1,
        min_key: Box::default(),
        max_key: Some(Box::default()),
    };
    let table = ManifestChange::Table { number: 500, path: 0, uid: 1, bytes: 1 << 20, checksum: 0 };
    let sliced = ManifestChange::Slice { table: 500, index: 0, slice };
    let edits = [
        (vec![ids.clone(), keyspace(9)], "partitions of a keyspace"),
        (vec![ids.clone(), keyspace(9), partition(8), partition(7)], "partitions of a keyspace"),
        (vec![ids.clone(), keyspace(9), partition(8), table, sliced], "an edit"),
        (vec![ManifestChange::Flushed { sequence: SEQUENCE_MAX }], "the last sequence number"),
    ];
    for (changes, expected) in edits {
        let disk = SimDisk::new(1);
        open(&disk).expect("made").close().expect("no fault");
        craft(&disk, &changes);
        match open(&disk) {
            Err(Error::Corrupt(at)) => assert_eq!(at.what, expected),
            other => panic!("{other:?}"),
        }
    }
    let disk = SimDisk::new(1);
    open(&disk).expect("made").close().expect("no fault");
    craft(&disk, &[ids]);
    let store = open(&disk).expect("opens");
    assert!(matches!(store.open_keyspace("one more", &[]), Err(Error::TooLarge { .. })));
    store.close().expect("no fault");
}

/// A keyspace with a damaged table is not merged; the other keyspaces are. Its reads of sound tables go on.
/// Settling and compacting report the damage; a flush of other keyspaces does not.
#[test]
fn a_damaged_keyspace_keeps_no_other_from_merging() {
    let disk = SimDisk::new(1);
    let store = open(&disk).expect("made");
    let runs = [("level0_runs".to_owned(), 2)];
    let bad = store.open_keyspace("bad", &[("level0_runs".to_owned(), 64)]).expect("made");
    for number in 0..40 {
        put(&store, &bad, &format!("bad {number:04}"));
    }
    store.flush().expect("no fault");
    let tables = disk.list().expect("no fault").into_iter().filter_map(|entry| match entry {
        DirectoryEntry::Ours(file) if file.kind == FileKind::Table => Some(file),
        _ => None,
    });
    let table = tables.max().expect("a flush made one");
    let mut bytes = disk.contents(table).expect("it is there");
    bytes[5000] ^= 1;
    disk.set_contents(table, Some(&bytes));
    put(&store, &bad, "bad 0000");
    store.flush().expect("no fault");
    store.open_keyspace("bad", &runs).expect("changed");
    assert!(matches!(store.settle(), Err(Error::Corrupt(_))));

    let good = store.open_keyspace("good", &runs).expect("made");
    for round in 0..4 {
        for number in 0..40 {
            put(&store, &good, &format!("{round} {number}"));
        }
        store.flush().expect("a flush is nothing to a damaged table");
    }
    assert!(matches!(store.compact(), Err(Error::Corrupt(_))));
    for _ in 0..100_000 {
        if !store.work.is_busy() && !store.work.wants_full(good.tree) {
            break;
        }
        let seen = store.work.moved.seen();
        store.env.threads.wait(&store.work.moved, seen, Some(1_000_000));
    }
    let levels = store.keyspace_stats(&good).levels;
    assert!(levels.len() == 1 && levels[0].runs == 1 && levels[0].level > 0, "{levels:?}");
    store.drop_keyspace("bad").expect("no fault");
    store.settle().expect("nothing is wrong with what is left");
    store.compact().expect("nothing is wrong with what is left");
    store.close().expect("no fault");
    open(&disk).expect("opens").close().expect("no fault");
}

/// Testing every call takes a minute, so only some calls are tested, of every kind.
const STEP_CALLS: usize = 17;

/// The acknowledged keys, in order, and the count of them that a sync made durable.
#[derive(Default)]
struct Acknowledged {
    keys: Vec<String>,
    synced_count: usize,
}

/// Writes, flushes, merges and drops, and ignores every failure.
fn run(disk: &Arc<SimDisk>) -> Acknowledged {
    let mut acknowledged = Acknowledged::default();
    let Ok(store) = open(disk) else { return acknowledged };
    for round in 0..3 {
        for name in ["kept", "gone"] {
            let Ok(keyspace) = store.open_keyspace(name, &[("level0_runs".to_owned(), 2)]) else { continue };
            for number in 0..12 {
                let key = format!("{name} {round} {number}");
                let mut items = BatchItems::default();
                items.push(keyspace.tree, ItemKind::Put, key.as_bytes(), &[7; 3000]).expect("small");
                let until = if number == 7 { Until::Synced } else { Until::Written };
                if store.write(&items, Some(until)).is_err() || name == "gone" {
                    continue;
                }
                acknowledged.keys.push(key);
                if until == Until::Synced {
                    acknowledged.synced_count = acknowledged.keys.len();
                }
            }
        }
        drop(store.flush());
        drop(store.drop_keyspace("gone"));
        drop(store.settle());
    }
    drop(store.close());
    acknowledged
}

fn check(disk: &Arc<SimDisk>, keys: &[String], what: &str) {
    let store = open(disk).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    for key in keys {
        let keyspace = store.keyspace("kept").unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let found = store
            .get(&keyspace, (key.as_bytes(), GetMode::Presence), None, &mut NoTrace, |value| value.is_some());
        assert!(matches!(found, Ok(true)), "{what}: {key}: {found:?}");
    }
    store.settle().unwrap_or_else(|error| panic!("{what}: {error:?}"));
    store.close().unwrap_or_else(|error| panic!("{what}: {error:?}"));
}

/// After any one failed call, and then the end of the process or of the system, the store opens with all
/// acknowledged writes and goes on.
#[test]
fn one_failed_call_loses_nothing() {
    let disk = SimDisk::new(1);
    run(&disk);
    for index in (3..disk.calls()).step_by(STEP_CALLS) {
        for failure in [Failure::Io, Failure::Full] {
            let disk = SimDisk::new(1);
            disk.plan(FaultPlan::fail(Select::ANY, index, failure, Repeat::Once));
            let acknowledged = run(&disk);
            for crash in [Crash::Process, Crash::Power] {
                let after = disk.fork();
                after.crash(crash, index);
                let count = match crash {
                    Crash::Process => acknowledged.keys.len(),
                    Crash::Power => acknowledged.synced_count,
                };
                check(&after, &acknowledged.keys[..count], &format!("{failure:?} at {index}, {crash:?}"));
            }
        }
    }
}

/// A process dies once it has named STORE, and a power cut comes in the next one. The result is a store or
/// nothing: no other file survives without that name.
#[test]
fn no_file_outlives_a_name_that_is_not_durable() {
    let whole = SimDisk::new(1);
    whole.start_log();
    let store = open(&whole).expect("made");
    let named = whole.log().iter().position(|call| call.operation == Operation::Rename);
    whole.kill(|| drop(store));
    let made = SimDisk::new(1);
    assert!(stopped_opening(&made, named.expect("STORE gets its name last") as u64));
    let mut openings = 0;
    for later in 0.. {
        let opened = made.fork();
        if !stopped_opening(&opened, later) {
            break;
        }
        for seed in 0..16 {
            let after = opened.fork();
            after.crash(Crash::Power, seed);
            let store = open(&after).unwrap_or_else(|error| panic!("{later}, {seed}: {error}"));
            after.kill(|| drop(store));
            openings += 1;
        }
    }
    assert!(openings > 300, "{openings}");
}

/// Opens a store in a process that ends after its call number `call`; returns `false` if it makes fewer
/// calls.
fn stopped_opening(disk: &Arc<SimDisk>, call: u64) -> bool {
    disk.plan(FaultPlan::stop(Stop::After, call));
    let store = open(disk);
    let is_stopped = disk.is_stopped();
    disk.kill(|| drop(store));
    disk.crash(Crash::Process, call);
    disk.plan(FaultPlan::default());
    is_stopped
}
