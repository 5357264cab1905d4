//! The catalog of a whole store on a simulated machine: rewrites of the manifest, ends recorded by the close,
//! and numbers of files.

use super::*;
use crate::base::id::{FileKind, ItemKind};
use crate::base::settings::StoreSettings;
use crate::base::sync::Ordering;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::{OpenMode, OpenOptions, Store};
use crate::format::manifest::{self, Settings};
use crate::io::sim::{Crash, Failure, FaultPlan, Repeat, Select, SimDisk, Stop, sim_env};
use crate::levels::store::StoreFile;
use crate::write::batch::BatchItems;

fn open(disk: &Arc<SimDisk>) -> Arc<Store> {
    open_with(disk, 16 << 10)
}

fn open_with(disk: &Arc<SimDisk>, manifest_bytes: u64) -> Arc<Store> {
    let settings = StoreSettings { memory_bytes: 1 << 20, manifest_bytes, ..StoreSettings::default() };
    Store::open(sim_env(disk, 5).0, OpenOptions::new(settings, OpenMode::CreateIfMissing)).expect("opens")
}

fn put(store: &Store, keyspace: &KeyspaceState, key: &str) {
    let mut items = BatchItems::default();
    items.push(keyspace.tree, ItemKind::Put, key.as_bytes(), b"value").expect("small");
    store.write(&items, None).expect("no fault");
}

fn place(store: &Store) -> (u64, u64) {
    let place = store.catalog.take(&*store.env.threads).manifest.place();
    (place.number, place.bytes)
}

/// An edit of these settings; no code reads them.
fn with_settings(keyspace: &KeyspaceState, count: u16) -> Edit<'static> {
    let settings: Settings = (1000..1000 + count).map(|id| (id, u64::MAX)).collect();
    Edit::of(vec![ManifestChange::KeyspaceSettings { id: keyspace.id, settings }])
}

/// A manifest is rewritten when little room is left in it, though the next edit would still fit, and not
/// before. It is also rewritten when an edit does not fit, into a file with room for several such edits.
#[test]
fn a_manifest_is_written_anew_in_time() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let keyspace = store.open_keyspace("a", &[]).expect("made");
    let first = place(&store);
    let mut edits = 0;
    while place(&store) == first {
        let edit = with_settings(&keyspace, 10);
        assert!(
            store.catalog.take(&*store.env.threads).manifest.has_reserved_room(edit.changes()),
            "edit {edits}"
        );
        store.edit(edit).expect("no fault");
        edits += 1;
    }
    assert!(edits > 200, "{edits} edits fit");
    let second = place(&store);
    assert_eq!(second.1, first.1);
    assert!(disk.contents(FileName::new(FileKind::Manifest, first.0)).is_none(), "the old one is removed");

    // Longer than a file sized for the state alone, and than half of the next larger file.
    let edit = with_settings(&keyspace, 20_800);
    let bytes = edit_bytes(edit.changes());
    assert!((249_000..(256 << 10) - RECORDS_FROM).contains(&bytes), "{bytes}");
    store.edit(edit).expect("a longer file has room");
    let third = place(&store);
    assert!(third.0 > second.0);
    assert_eq!(third.1, (4 * bytes).next_power_of_two());
    store.close().expect("no fault");
    assert_eq!(place_on(&disk), third);
    open(&disk).close().expect("no fault");
}

/// The live manifest as STORE records it.
fn place_on(disk: &Arc<SimDisk>) -> (u64, u64) {
    let place = StoreFile::load(&**disk).expect("sound").expect("a store").live().manifest;
    (place.number, place.bytes)
}

fn state_on(disk: &Arc<SimDisk>) -> (ManifestState, ManifestFile) {
    let file = StoreFile::load(&**disk).expect("sound").expect("a store");
    ManifestFile::load(&**disk, file.live()).expect("sound")
}

/// The close of a store records in the manifest the end of the log that was written to, and of no other log.
#[test]
fn ends_are_promised_at_the_end() {
    let disk = SimDisk::new(1);
    open(&disk).close().expect("no fault");
    let logs: Vec<manifest::Log> = state_on(&disk).0.logs.into_values().collect();
    assert_eq!(logs.len(), 1);
    assert_eq!(logs[0].recorded_end, None, "nothing is in it");
    let store = open(&disk);
    let keyspace = store.open_keyspace("a", &[]).expect("made");
    put(&store, &keyspace, "one");
    store.close().expect("no fault");
    let (state, manifest) = state_on(&disk);
    let recorded_ends: Vec<u64> = state
        .logs
        .values()
        .filter_map(|log| log.recorded_end.map(|recorded_end| recorded_end.bytes))
        .collect();
    assert_eq!(recorded_ends.len(), 1);
    assert!(recorded_ends[0] > RECORDS_FROM);
    let edits = manifest.edit_count();
    let store = open(&disk);
    let open_logs: Vec<manifest::Log> =
        store.catalog.take(&*store.env.threads).state.logs.values().copied().collect();
    assert_eq!(open_logs, [manifest::Log { recorded_end: None, ..logs[0] }], "the log goes on");
    store.close().expect("no fault");
    assert_eq!(state_on(&disk).1.edit_count(), edits + 2, "those of the opening and of the closing");
}

/// Every file number below the one in STORE is given out once; no number above it is.
#[test]
fn file_numbers_are_given_out_once() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let first = store.next_file().expect("no fault");
    for number in first + 1..first + 2100 {
        assert_eq!(store.next_file().expect("no fault"), number);
        let reserved = StoreFile::load(&*disk).expect("sound").expect("a store").live().next_file_number;
        assert!((number + 1..=number + 1024).contains(&reserved), "{number} of {reserved}");
    }
    store.close().expect("no fault");
    let store = open(&disk);
    assert!(store.next_file().expect("no fault") >= first + 2100);
    store.close().expect("no fault");
}

/// A disk that is full when numbers are to be reserved returns an error, and does not latch the store. A disk
/// that fails latches it.
#[test]
fn numbers_without_room_latch_nothing() {
    for (failure, is_latched) in [(Failure::Full, false), (Failure::Io, true)] {
        let disk = SimDisk::new(1);
        let store = open(&disk);
        let reserved = store.catalog.reserved.load(Ordering::Relaxed);
        while store.next_file().expect("no fault") + 1 < reserved {}
        disk.plan(FaultPlan::fail(Select::ANY, 0, failure, Repeat::Once));
        store.next_file().expect_err("nothing can be reserved");
        assert_eq!(store.writer.latched().is_some(), is_latched, "{failure:?}");
        assert_eq!(store.next_file().is_err(), is_latched, "{failure:?}");
        assert_eq!(store.close().is_err(), is_latched, "{failure:?}");
    }
}

/// A keyspace reports its state: live, dropped, closed.
#[test]
fn keyspaces_report_their_state() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let (kept, gone) = (store.open_keyspace("kept", &[]), store.open_keyspace("gone", &[]));
    let (kept, gone) = (kept.expect("made"), gone.expect("made"));
    let has = |keyspace: &KeyspaceState| store.catalog.take(&*store.env.threads).has_tree(keyspace.tree);
    assert!(has(&kept) && has(&gone));
    assert!(!kept.is_dropped() && kept.check_live().is_ok());
    store.drop_keyspace("gone").expect("no fault");
    assert!(has(&kept) && !has(&gone));
    let crossed = TreeId { keyspace: gone.id, partition: kept.tree.partition };
    assert!(!store.catalog.take(&*store.env.threads).has_tree(crossed));
    assert!(gone.is_dropped() && !kept.is_dropped());
    assert!(matches!(gone.check_live(), Err(Error::Dropped { name }) if name == "gone"));
    store.close().expect("no fault");
    assert!(matches!(kept.check_live(), Err(Error::Closed)) && !kept.is_dropped());
    assert!(matches!(gone.check_live(), Err(Error::Dropped { .. } | Error::Closed)));
}

/// New files of an edit that failed are removed, but not once the store is latched: the manifest may name
/// them.
#[test]
fn files_that_nothing_names_are_removed() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let file = FileName::new(FileKind::Table, store.next_file().expect("no fault"));
    let make = || store.env.storage.create(file).expect("no fault");
    make();
    store.remove_unnamed([file]);
    assert!(disk.contents(file).is_none());
    store.remove_unnamed([file]);
    make();
    store.writer.latch(&Error::Closed);
    store.remove_unnamed([file]);
    assert!(disk.contents(file).is_some());
    drop(store.close());
}

/// An edit that a full disk refused is taken back: state and manifest are those on disk, if the disk is
/// unchanged, and nothing is latched. Any other manifest on disk is not taken.
#[test]
fn refused_edits_are_taken_back() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let keyspace = store.open_keyspace("a", &[]).expect("made");
    let settings = |store: &Store| {
        let catalog = store.catalog.take(&*store.env.threads);
        catalog.state.keyspaces[&keyspace.id].settings.clone()
    };
    let before = settings(&store);
    disk.plan(FaultPlan::fail(Select::ANY, 0, Failure::Full, Repeat::Once));
    assert!(matches!(store.edit(with_settings(&keyspace, 10)), Err(Error::Full { .. })));
    assert!(store.writer.latched().is_none());
    assert_eq!(settings(&store), before);
    store.edit(with_settings(&keyspace, 10)).expect("there is room");
    assert_ne!(settings(&store), before);

    let mut catalog = store.catalog.take(&*store.env.threads);
    let known = catalog.state.clone();
    catalog.state.apply_edit(&[ManifestChange::Flushed { sequence: 5 }]).expect("consistent");
    assert!(store.take_back(&mut catalog));
    assert_eq!(catalog.state, known);
    let (_, mut another) = state_on(&disk);
    another.append(&*disk, &[ManifestChange::Flushed { sequence: 7 }]).expect("no fault");
    assert!(!store.take_back(&mut catalog), "an edit is there that should not be");
    assert_eq!(catalog.state, known);
    drop(catalog);
    drop(store.close());
}

/// Length of a manifest that has room for many edits.
const LARGE_BYTES: u64 = 256 << 10;

/// Makes edits one by one until a new manifest is begun beside them.
fn until_begun(store: &Store, keyspace: &KeyspaceState) -> ManifestFile {
    for _ in 0..2000 {
        if let Some(manifest) = store.begin_manifest() {
            return manifest;
        }
        store.edit(with_settings(keyspace, 100)).expect("no fault");
    }
    panic!("a manifest that grows is written anew");
}

/// A manifest that will be full is rewritten while edits go on, and has these edits. An edit that finds no
/// room meanwhile writes a manifest of its own, and the other one is removed.
#[test]
fn manifests_are_written_beside_edits() {
    let disk = SimDisk::new(1);
    let store = open_with(&disk, LARGE_BYTES);
    let keyspace = store.open_keyspace("a", &[]).expect("made");
    let first = place(&store);
    let begun = until_begun(&store, &keyspace);
    assert_eq!(place(&store), first, "the old one is live");
    assert!(store.begin_manifest().is_none(), "one at a time");
    let between = store.open_keyspace("between", &[]).expect("made");
    put(&store, &between, "key");
    let number = begun.file().number;
    store.end_manifest(begun).expect("no fault");
    assert_eq!(place(&store).0, number);
    assert_eq!(place_on(&disk).0, number);
    assert!(disk.contents(FileName::new(FileKind::Manifest, first.0)).is_none(), "the old one is removed");
    assert_eq!(state_on(&disk).0, store.catalog.take(&*store.env.threads).state);

    let begun = until_begun(&store, &keyspace);
    store.edit(with_settings(&keyspace, 20_800)).expect("a longer file has room");
    let longer = place(&store);
    assert_ne!(longer.0, number);
    let file = begun.file();
    store.end_manifest(begun).expect("no fault");
    assert_eq!(place(&store), longer);
    assert!(disk.contents(file).is_none(), "it is removed");
    store.close().expect("no fault");
    let store = open(&disk);
    assert!(store.keyspace("between").is_ok());
    store.close().expect("no fault");
}

/// A store that is cut at any call, while a manifest is written beside edits, has every edit that was made.
#[test]
fn manifests_written_beside_edits_survive_cuts() {
    let run = |disk: &Arc<SimDisk>, stop: Option<u64>| {
        let store = open_with(disk, LARGE_BYTES);
        let keyspace = store.open_keyspace("a", &[]).expect("made");
        while !store.catalog.wants_manifest.load(Ordering::Relaxed) {
            store.edit(with_settings(&keyspace, 100)).expect("no fault");
        }
        let before = disk.calls();
        stop.into_iter().for_each(|index| disk.plan(FaultPlan::stop(Stop::Before, index)));
        let begun = store.begin_manifest();
        let made = store.open_keyspace("between", &[]).is_ok();
        let ended = begun.map(|manifest| store.end_manifest(manifest).is_ok());
        let later = store.open_keyspace("later", &[]).is_ok();
        assert!(stop.is_some() || (ended == Some(true) && made && later));
        (made, later, disk.calls() - before)
    };
    let (.., calls) = run(&SimDisk::new(1), None);
    assert!(calls > 12, "{calls}");
    for index in 0..calls {
        for crash in [Crash::Process, Crash::Power] {
            let disk = SimDisk::new(1);
            let (made, later, _) = run(&disk, Some(index));
            let disk = disk.fork();
            disk.crash(crash, index);
            let store = open(&disk);
            assert!(!made || store.keyspace("between").is_ok(), "cut at {index}");
            assert!(!later || store.keyspace("later").is_ok(), "cut at {index}");
            let names = disk.names().expect("lists");
            let manifests = names.iter().filter(|name| name.starts_with("manifest")).count();
            assert_eq!(manifests, 1, "cut at {index}: {names:?}");
            store.close().expect("no fault");
        }
    }
}
