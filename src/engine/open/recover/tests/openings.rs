//! The cases an opening refuses, the files it creates, the counters it reports and the state it leaves.

use super::*;
use crate::base::error::Corrupt;
use crate::base::id::Sequence;
use crate::base::rule::Rule;
use crate::format::frames::{RECORDS_FROM, every_record, record_bytes};
use crate::format::header::{FileHeader, PAGE_BYTES};
use crate::inspect::verify_in;

/// The largest last sequence number that an opening accepts, and the next number, which it refuses.
#[test]
fn sequences_are_left() {
    let last: Sequence = SEQUENCE_MAX - (1 << 52);
    for (sequence, is_refused) in [(last, false), (last + 1, true)] {
        let disk = SimDisk::new(1);
        open(&disk).expect("made").close().expect("no fault");
        craft(&disk, &[ManifestChange::Flushed { sequence }]);
        match open(&disk) {
            Ok(store) => store.close().expect("no fault"),
            Err(Error::Corrupt(at)) => {
                assert!(is_refused);
                assert_eq!((at.expected, at.found), (last.to_string(), sequence.to_string()));
                continue;
            }
            other => panic!("{other:?}"),
        }
        assert!(!is_refused);
    }
}

fn files(disk: &Arc<SimDisk>, kind: FileKind) -> Vec<FileName> {
    let entries = disk.list().expect("no fault").into_iter();
    let of_kind = entries.filter_map(|entry| match entry {
        DirectoryEntry::Ours(file) if file.kind == kind => Some(file),
        _ => None,
    });
    of_kind.collect()
}

/// A new store is created only in a directory that is empty or holds an unfinished creation, and only if the
/// mode creates. Its id has 128 random bits.
#[test]
fn stores_are_made_in_empty_places() {
    let open_as = |disk: &Arc<SimDisk>, mode| {
        Store::open(sim_env(disk, 5).0, OpenOptions::new(options().settings, mode))
    };
    let disk = SimDisk::new(1);
    for mode in [OpenMode::Existing, OpenMode::ReadOnly] {
        assert!(matches!(open_as(&disk, mode), Err(Error::Missing { .. })));
    }
    open(&disk).expect("made").close().expect("no fault");
    let store_file = StoreFile::load(&*disk).expect("sound").expect("a store");
    let store_id = store_file.live().store_id;
    assert!(store_id >> 64 != 0 && store_id as u64 != 0, "{store_id:x}");
    for mode in [OpenMode::Existing, OpenMode::ReadOnly] {
        open_as(&disk, mode).expect("it is there").close().expect("no fault");
    }

    let whole = disk.contents(FileName::STORE).expect("it is there");
    disk.set_contents(FileName::STORE, None);
    for mode in [OpenMode::CreateIfMissing, OpenMode::Existing, OpenMode::ReadOnly] {
        match open_as(&disk, mode) {
            Err(Error::Corrupt(at)) => {
                assert_eq!((at.file, at.found), ("STORE".to_owned(), "missing".to_owned()))
            }
            other => panic!("{other:?}"),
        }
    }
    disk.set_contents(FileName::STORE, Some(&whole));
    open(&disk).expect("the lock was given up").close().expect("no fault");

    // The directory of a creation that was cut short holds no other files.
    let (log, manifest) = (files(&disk, FileKind::Log)[0], FileName::new(FileKind::Manifest, 1));
    disk.set_contents(log, None);
    disk.set_contents(FileName::STORE, None);
    assert!(matches!(open_as(&disk, OpenMode::Existing), Err(Error::Missing { .. })));
    disk.set_contents(manifest, Some(b"cut short"));
    let store = Store::open(sim_env(&disk, 6).0, options()).expect("made anew");
    assert_ne!(store.store_id, store_id);
    store.close().expect("no fault");
    disk.add_foreign("notes.txt");
    open(&disk).expect("what is not ours is left alone").close().expect("no fault");
    let disk = SimDisk::new(1);
    disk.add_foreign("notes.txt");
    assert!(matches!(open(&disk), Err(Error::Foreign { found, .. }) if found == "notes.txt"));
}

/// An open store is locked; a failed opening leaves no lock.
#[test]
fn a_failed_opening_leaves_no_lock() {
    let disk = SimDisk::new(1);
    let store = open(&disk).expect("made");
    assert!(matches!(open(&disk), Err(Error::Locked { .. })));
    assert!(matches!(open(&disk), Err(Error::Locked { .. })), "also by the one that was refused");
    store.close().expect("no fault");
    let whole = disk.contents(FileName::STORE).expect("it is there");
    disk.set_contents(FileName::STORE, Some(&[1; 3 * PAGE_BYTES]));
    open(&disk).expect_err("damaged");
    disk.set_contents(FileName::STORE, Some(&whole));
    open(&disk).expect("nobody has it").close().expect("no fault");
}

/// The offset at which the records of a log or manifest end.
fn end_of(file: FileName, bytes: &[u8]) -> u64 {
    let header = FileHeader::decode(file, bytes, file.kind).expect("sound");
    let last = every_record(&header, bytes).pop().expect("it has records");
    last.offset + record_bytes(last.payload.len()) as u64
}

/// An opening reports its recovery: the items and bytes of all logs, the bytes behind a torn write, and the
/// time.
#[test]
fn recovery_is_counted() {
    let disk = SimDisk::new(1);
    let store = open(&disk).expect("made");
    let keyspace = store.open_keyspace("a", &[]).expect("made");
    let log = files(&disk, FileKind::Log).into_iter().max().expect("it has one");
    put(&store, &keyspace, "one");
    store.sync_log().expect("no fault");
    put(&store, &keyspace, "two");
    let tail = || end_of(log, &disk.contents(log).expect("it is there"));
    let torn_at = tail();
    put(&store, &keyspace, "three");
    put(&store, &keyspace, "four");
    let end = tail();
    disk.kill(|| drop(store));
    let torn = disk.fork();

    // The process dies repeatedly, and the same log goes on.
    for _ in 0..3 {
        let (env, _threads) = sim_env(&disk, 5);
        let event = Event::new();
        env.threads.wait(&event, event.seen(), Some(5_000_000));
        let (clock, started_ns) = (Arc::clone(&env.clock), env.clock.now_ns());
        assert!(started_ns > 0);
        let store = Store::open(env, options()).expect("opens");
        assert!(store.recovery.open_ns <= clock.now_ns() - started_ns);
        assert_eq!((store.recovery.replayed_items, store.recovery.discarded_bytes), (4, 0));
        assert_eq!(store.recovery.replayed_bytes, end);
        disk.kill(|| drop(store));
    }

    let mut bytes = torn.contents(log).expect("it is there");
    bytes[torn_at as usize + 100] ^= 1;
    torn.set_contents(log, Some(&bytes));
    torn.crash(Crash::Power, 1);
    let store = open(&torn).expect("a torn end");
    assert_eq!((store.recovery.replayed_items, store.recovery.discarded_bytes), (2, end - torn_at));
    store.close().expect("no fault");
}

/// Makes the last edit of a manifest look torn off by a power cut, with the slots as they were before it.
/// Returns the edit's offset.
fn tear_off(disk: &Arc<SimDisk>, manifest: FileName, before: &[u8]) -> u64 {
    let mut bytes = disk.contents(manifest).expect("it is there");
    let slots = PAGE_BYTES..RECORDS_FROM as usize;
    bytes[slots.clone()].copy_from_slice(&before[slots]);
    let edit_at = end_of(manifest, before);
    bytes[edit_at as usize + 30] ^= 1;
    disk.set_contents(manifest, Some(&bytes));
    disk.crash(Crash::Power, 1);
    edit_at
}

/// A log item of a keyspace that the manifest does not name is a leftover of a drop, or damage. The damage is
/// the manifest's if its end was torn off.
#[test]
fn keyspaces_that_are_missing_are_missed() {
    let disk = SimDisk::new(1);
    let store = open(&disk).expect("made");
    let manifest = files(&disk, FileKind::Manifest)[0];
    let kept = store.open_keyspace("kept", &[]).expect("made");
    let gone = store.open_keyspace("gone", &[]).expect("made");
    put(&store, &gone, "dropped");
    store.drop_keyspace("gone").expect("no fault");
    put(&store, &kept, "one");
    let before = disk.contents(manifest).expect("it is there");
    let torn_off = store.open_keyspace("torn off", &[]).expect("made");
    let dropped = disk.fork();
    dropped.crash(Crash::Process, 1);
    put(&store, &torn_off, "two");
    store.sync_log().expect("no fault");
    disk.kill(|| drop(store));
    let store = open(&dropped).expect("what is dropped is not missed");
    assert_eq!(store.recovery.replayed_items, 2);
    store.close().expect("no fault");

    let edit_at = tear_off(&disk, manifest, &before);
    match open(&disk) {
        Err(Error::Corrupt(at)) => {
            assert_eq!(at.what, "the edit that makes the partition of an item in a log");
            assert_eq!((at.file, at.offset), (manifest.to_string(), edit_at));
        }
        other => panic!("{other:?}"),
    }
}

/// A log item of a partition that the manifest does not name is a leftover of a drop, or damage, in the same
/// way.
#[test]
fn partitions_that_are_missing_are_missed() {
    let disk = SimDisk::new(1);
    let store = open(&disk).expect("made");
    let divided = store.open_divided("d", &[], &Rule::Explicit).expect("made");
    let manifest = files(&disk, FileKind::Manifest)[0];
    let [kept, gone] = ["kept", "gone"].map(|name| store.partition(&divided, name.as_bytes()).expect("made"));
    // The log present at the manifest's rewrite proves nothing: its items may belong to trees dropped before
    // that.
    put(&store, &kept, "zero");
    store.flush().expect("no fault");
    put(&store, &gone, "dropped");
    assert_eq!(store.drop_partitions(&divided, &[b"gone", b"none"]).expect("no fault"), 1);
    put(&store, &kept, "one");
    let before = disk.contents(manifest).expect("it is there");
    let torn_off = store.partition(&divided, b"torn off").expect("made");
    let dropped = disk.fork();
    dropped.crash(Crash::Process, 1);
    put(&store, &torn_off, "two");
    store.sync_log().expect("no fault");
    disk.kill(|| drop(store));
    let store = open(&dropped).expect("what is dropped is not missed");
    assert_eq!(store.recovery.replayed_items, 2);
    store.close().expect("no fault");

    let edit_at = tear_off(&disk, manifest, &before);
    match open(&disk) {
        Err(Error::Corrupt(at)) => {
            assert_eq!(at.what, "the edit that makes the partition of an item in a log");
            assert_eq!((at.file, at.offset), (manifest.to_string(), edit_at));
        }
        other => panic!("{other:?}"),
    }
}

/// An item of a partition whose number was never reserved is damage, both to an opening and to a
/// verification.
#[test]
fn numbers_of_partitions_are_reserved_first() {
    let disk = SimDisk::new(1);
    let store = open(&disk).expect("made");
    let keyspace = store.open_keyspace("a", &[]).expect("made");
    let mut items = BatchItems::default();
    let tree = TreeId { partition: PartitionId(1 << 20), ..keyspace.tree };
    items.push(tree, ItemKind::Put, b"key", b"").expect("small");
    store.write(&items, Some(Until::Synced)).expect("no fault");
    let log = files(&disk, FileKind::Log)[0];
    disk.kill(|| drop(store));
    let told = |error: &Corrupt| {
        assert_eq!((&*error.file, error.what), (&*log.to_string(), "the partition of an item"));
        assert_eq!(error.found, (1 << 20).to_string());
    };
    match open(&disk) {
        Err(Error::Corrupt(at)) => told(&at),
        other => panic!("{other:?}"),
    }
    let report = verify_in(&sim_env(&disk, 5).0, |_| {}).expect("it is a store");
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    told(&finding.damage);
}

/// A caller that makes a partition which another caller has made meanwhile gets that partition.
#[test]
fn partitions_are_made_once() {
    let disk = SimDisk::new(1);
    let store = open(&disk).expect("made");
    let divided = store.open_divided("d", &[], &Rule::Explicit).expect("made");
    let make = || {
        let mut turn = store.take_order_turn().expect("no fault");
        store.create_partitions_in(&mut turn, &divided, &[b"one"]).expect("no fault")[0].tree
    };
    assert_eq!(make(), make());
    assert_eq!(divided.partitions().expect("it is divided").names().len(), 1);
    store.close().expect("no fault");
}

/// An item of a keyspace whose number was never reserved is damage.
#[test]
fn numbers_of_keyspaces_are_reserved_first() {
    let disk = SimDisk::new(1);
    let store = open(&disk).expect("made");
    let (manifest, log) = (files(&disk, FileKind::Manifest)[0], files(&disk, FileKind::Log)[0]);
    let before = disk.contents(manifest).expect("it is there");
    let first = store.open_keyspace("the first, which reserves", &[]).expect("made");
    put(&store, &first, "one");
    store.sync_log().expect("no fault");
    disk.kill(|| drop(store));
    tear_off(&disk, manifest, &before);
    match open(&disk) {
        Err(Error::Corrupt(at)) => {
            assert_eq!((at.file, at.what), (log.to_string(), "the keyspace of an item"));
            assert_eq!((at.expected, at.found), ("1".to_owned(), first.id.0.to_string()));
        }
        other => panic!("{other:?}"),
    }
}

/// An opening never holds more generations in memory than the budget allows, however much the logs hold.
/// Items that fit the budget are not turned into tables.
#[test]
fn logs_are_replayed_into_the_budget() {
    let memory = |bytes| {
        OpenOptions::new(StoreSettings { memory_bytes: bytes, ..options().settings }, OpenMode::Existing)
    };
    let disk = SimDisk::new(1);
    let store = open(&disk).expect("made");
    let keyspace = store.open_keyspace("a", &[]).expect("made");
    let less = memory(256 << 10);
    let mut counts = std::collections::BTreeSet::new();
    for number in 0..100 {
        put(&store, &keyspace, &format!("{number:0100}"));
        let fork = disk.fork();
        fork.crash(Crash::Process, 1);
        let store = Store::open(sim_env(&fork, 5).0, less.clone()).expect("opens");
        let alive = store.generations.lock().iter().filter(|one| one.strong_count() > 0).count() as u64;
        let (tables, sealed) = (files(&fork, FileKind::Table).len(), store.writer.sealed_count() as u64);
        assert!(sealed < GENERATION_COUNT && alive <= GENERATION_COUNT, "{number}: {alive}, {sealed} sealed");
        assert!(tables == 0 || sealed == 0, "{number}: either kept or flushed");
        counts.insert((tables > 0, sealed));
        fork.kill(|| drop(store));
    }
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(false, 0), (false, 1), (true, 0)]);
    disk.kill(|| drop(store));
}

/// A manifest with little room left is rewritten at open, though the edit of the opening would still fit.
#[test]
fn an_opening_writes_a_long_manifest_anew() {
    let disk = SimDisk::new(1);
    open(&disk).expect("made").close().expect("no fault");
    let put_one = |store: Arc<Store>| {
        put(&store, &store.open_keyspace("a", &[]).expect("made"), "one");
        store.close().expect("no fault");
    };
    put_one(open(&disk).expect("opens"));
    let place = || StoreFile::load(&*disk).expect("sound").expect("a store").live().manifest;
    let first = place();
    open(&disk).expect("opens").close().expect("no fault");
    assert_eq!(place(), first, "it is short");
    let store_file = StoreFile::load(&*disk).expect("sound").expect("a store");
    let (state, mut manifest) = ManifestFile::load(&*disk, store_file.live()).expect("sound");
    let change = [ManifestChange::Flushed { sequence: 0 }];
    while !manifest.must_rewrite(&state) {
        manifest.append(&*disk, &change).expect("no fault");
    }
    assert!(manifest.has_reserved_room(&vec![change[0].clone(); 100]));
    open(&disk).expect("opens").close().expect("no fault");
    let second = place();
    assert_eq!((second.number, second.bytes), (store_file.live().next_file_number, first.bytes));
    let (_, manifest) =
        ManifestFile::load(&*disk, StoreFile::load(&*disk).expect("sound").expect("a store").live())
            .expect("sound");
    assert!(manifest.edit_count() < 10);
    assert!(disk.contents(FileName::new(FileKind::Manifest, first.number)).is_none());
}
