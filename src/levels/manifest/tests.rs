//! The manifest through storage: edits under crashes, damage at every bit and cut.

use super::*;
use crate::base::id::{KeyspaceId, PartitionId, TreeId};
use crate::base::rule::Rule;
use crate::format::header::FEATURE_PARTITIONS;
use crate::format::manifest::KeyspaceKind;
use crate::wal::memory::MemoryStorage;

mod rescue;

const IDENTITY: ManifestIdentity =
    ManifestIdentity { number: 1, uid: 11, store_id: 77, bytes_min: 16 << 10, features: 0 };
const FILE: FileName = FileName { kind: FileKind::Manifest, number: 1, path: 0 };

fn live(manifest: ManifestPlace) -> Live {
    Live { turn: 1, store_id: 77, hash_secret: [3; 16], manifest, next_file_number: 1025 }
}

fn base() -> ManifestState {
    let mut state = ManifestState::default();
    let name = "one".to_owned();
    let changes = [
        ManifestChange::Ids { next_keyspace: 1024, next_partition: 1024 },
        ManifestChange::Keyspace {
            id: KeyspaceId(1),
            kind: KeyspaceKind::Ordered,
            name,
            settings: Vec::new(),
        },
    ];
    state.apply_edit(&changes).expect("consistent");
    state
}

fn partition(id: u32) -> ManifestChange {
    let name = format!("partition {id}").into_bytes().into();
    ManifestChange::Partition { id: PartitionId(id), keyspace: KeyspaceId(1), name }
}

/// A manifest with its state, kept in step.
struct Kept {
    storage: MemoryStorage,
    manifest: ManifestFile,
    state: ManifestState,
}

impl Kept {
    fn new() -> Kept {
        let (storage, state) = (MemoryStorage::new(5), base());
        let manifest = ManifestFile::create(&storage, &IDENTITY, &state).expect("no fault");
        Kept { storage, manifest, state }
    }

    fn append(&mut self, id: u32) {
        let changes = [partition(id)];
        self.state.apply_edit(&changes).expect("consistent");
        self.manifest.append(&self.storage, &changes).expect("no fault");
    }

    fn load(&self) -> Result<(ManifestState, ManifestFile)> {
        ManifestFile::load(&self.storage, &live(self.manifest.place()))
    }

    fn reload(&mut self) {
        let (state, manifest) = self.load().expect("sound");
        (self.state, self.manifest) = (state, manifest);
    }
}

fn corrupt_part<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
    match result {
        Err(Error::Corrupt(at)) => at.what,
        other => panic!("not corrupt: {other:?}"),
    }
}

/// Snapshot and edits survive a power cut, and appends continue across loads.
#[test]
fn edits_survive() {
    let mut kept = Kept::new();
    assert_eq!(kept.manifest.place(), ManifestPlace { number: 1, uid: 11, bytes: 64 << 10 });
    for id in 1..20 {
        kept.append(id);
        kept.storage.power_cut();
        let expected = kept.state.clone();
        kept.reload();
        assert_eq!(kept.state, expected, "edit {id}");
    }
    let (_, manifest) = kept.load().expect("sound");
    assert_eq!((manifest.file(), manifest.next_edit), (FILE, 21));
}

/// Loading writes nothing.
#[test]
fn load_writes_nothing() {
    let mut kept = Kept::new();
    kept.append(1);
    let changes = kept.storage.changes();
    kept.load().expect("sound");
    assert_eq!(kept.storage.changes(), changes);
}

/// An append cut at any step is found whole or not at all, under both kinds of crash, and its room is reused.
#[test]
fn a_cut_append_is_whole_or_absent() {
    for power_cut in 0..2 {
        for step in 1..=3 {
            let mut kept = Kept::new();
            kept.append(1);
            kept.storage.fail_after(Some(step));
            kept.manifest.append(&kept.storage, &[partition(2)]).expect_err("cut");
            kept.storage.fail_after(None);
            if power_cut == 1 {
                kept.storage.power_cut();
            }
            let before = kept.state.clone();
            kept.reload();
            let found = kept.state.partitions.len();
            assert_eq!(found, if step == 3 || (step == 2 && power_cut == 0) { 2 } else { 1 }, "step {step}");
            assert!(found == 2 || kept.state == before);
            kept.append(3);
            kept.storage.power_cut();
            let expected = kept.state.clone();
            kept.reload();
            assert_eq!(kept.state, expected, "step {step}");
        }
    }
}

/// A torn edit is left out after a power cut. Its remains are zeroed before its room is reused, so that
/// neither the same boot nor another can read them as records.
#[test]
fn remains_of_a_torn_edit_are_zeroed() {
    let mut kept = Kept::new();
    kept.append(1);
    let at = kept.manifest.framer.tail().bytes as usize;
    let long: Vec<ManifestChange> = (100..120).map(partition).collect();
    let slots = kept.storage.bytes(FILE)[PAGE_BYTES..RECORDS_FROM as usize].to_vec();
    kept.manifest.append(&kept.storage, &long).expect("no fault");
    let mut bytes = kept.storage.bytes(FILE);
    bytes[PAGE_BYTES..RECORDS_FROM as usize].copy_from_slice(&slots);
    bytes[at + 100] ^= 1;
    kept.storage.put(FILE, &bytes);
    kept.storage.reboot();
    let expected = kept.state.clone();
    kept.reload();
    assert_eq!(kept.state, expected);
    kept.append(2);
    let tail = kept.manifest.framer.tail().bytes as usize;
    assert!(tail < at + 200);
    assert!(kept.storage.bytes(FILE)[tail..].iter().all(|byte| *byte == 0));
    assert_eq!(kept.load().expect("sound").0, kept.state);
}

/// Records read but not synced are durable after `make_durable`; a second call does nothing.
#[test]
fn replayed_edits_are_made_durable() {
    let mut kept = Kept::new();
    kept.storage.fail_after(Some(2));
    kept.manifest.append(&kept.storage, &[partition(1)]).expect_err("the sync fails");
    kept.storage.fail_after(None);
    kept.reload();
    assert_eq!(kept.state.partitions.len(), 1, "the kernel still has it");
    kept.manifest.make_durable(&kept.storage).expect("no fault");
    let changes = kept.storage.changes();
    kept.manifest.make_durable(&kept.storage).expect("no fault");
    assert_eq!(kept.storage.changes(), changes);
    kept.storage.power_cut();
    kept.reload();
    assert_eq!(kept.state.partitions.len(), 1);
}

/// Every flipped bit of a small manifest is an error or changes nothing in the state.
#[test]
fn every_flip_is_detected_or_harmless() {
    let mut kept = Kept::new();
    kept.append(1);
    kept.append(2);
    let mut bytes = kept.storage.bytes(FILE);
    let end = kept.manifest.framer.tail().bytes as usize;
    for bit in (0..(end + 64) * 8).filter(|bit| bit % 5 == 0 || *bit / 8 >= RECORDS_FROM as usize) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        kept.storage.put(FILE, &bytes);
        if let Ok((state, _)) = kept.load() {
            assert_eq!(state, kept.state, "bit {bit}");
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// A manifest cut at any byte is refused; with zeros in place of its tail it is refused or unchanged.
#[test]
fn every_cut_is_detected() {
    let mut kept = Kept::new();
    kept.append(1);
    let bytes = kept.storage.bytes(FILE);
    let end = kept.manifest.framer.tail().bytes as usize;
    for cut in (0..bytes.len()).filter(|cut| cut % 64 == 0 || (end - 300..end + 8).contains(cut)) {
        kept.storage.put(FILE, &bytes[..cut]);
        assert_eq!(corrupt_part(kept.load()), "the file's length");
        let mut zeroed = bytes.clone();
        zeroed[cut..].fill(0);
        kept.storage.put(FILE, &zeroed);
        if let Ok((state, _)) = kept.load() {
            assert_eq!(state, kept.state, "cut {cut}");
        }
    }
}

/// The load refuses another file in the manifest's place, a missing number, an edit that does not fit, and a
/// manifest without a snapshot.
#[test]
fn checks() {
    let mut kept = Kept::new();
    let place = kept.manifest.place();
    let load = |kept: &Kept, place| ManifestFile::load(&kept.storage, &live(place));
    assert_eq!(corrupt_part(load(&kept, ManifestPlace { uid: 12, ..place })), "the file uid");
    assert_eq!(corrupt_part(load(&kept, ManifestPlace { bytes: 1 << 15, ..place })), "the file's length");
    assert_eq!(corrupt_part(load(&kept, ManifestPlace { bytes: 1 << 40, ..place })), "the recorded length");
    assert_eq!(corrupt_part(load(&kept, ManifestPlace { number: 2, ..place })), "the file");
    kept.append(1);
    kept.manifest.append(&kept.storage, &[partition(1)]).expect("the file does not know the state");
    assert_eq!(corrupt_part(kept.load()), "an edit");
    let mut kept = Kept::new();
    kept.manifest.next_edit = 3;
    kept.append(1);
    assert_eq!(corrupt_part(kept.load()), "the number of an edit");
    let kept = Kept::new();
    let header = *kept.manifest.framer.header();
    let mut bytes = Framer::new(header, place.bytes, 5).first_pages();
    bytes.resize(place.bytes as usize, 0);
    kept.storage.put(FILE, &bytes);
    assert_eq!(corrupt_part(kept.load()), "the snapshot");
}

/// A disk that is full for one append leaves the manifest usable, and the failed edit is undone.
#[test]
fn a_full_disk_is_survived() {
    let mut kept = Kept::new();
    kept.storage.fill_after(1);
    let error = kept.manifest.append(&kept.storage, &[partition(7)]).expect_err("full");
    assert!(matches!(error, Error::Full { .. }));
    kept.storage.fail_after(None);
    kept.append(8);
    kept.append(9);
    kept.storage.power_cut();
    let expected = kept.state.clone();
    kept.reload();
    assert_eq!(kept.state, expected);
    assert_eq!(kept.state.partitions.len(), 2);
}

/// The file reports when it is full, or holds far more than the state needs; a new file holds the same state.
#[test]
fn rewriting() {
    let mut kept = Kept::new();
    let mut id = 0;
    while kept.manifest.has_room(&[partition(id + 1)]) {
        assert!(!kept.manifest.must_rewrite(&kept.state));
        id += 1;
        kept.append(id);
    }
    assert!(id > 100, "{id} edits fit");
    let huge: Vec<ManifestChange> = (0..2000).map(partition).collect();
    assert!(!kept.manifest.has_room(&huge));
    let identity = ManifestIdentity { number: 2, uid: 22, bytes_min: 1 << 20, ..IDENTITY };
    kept.manifest = ManifestFile::create(&kept.storage, &identity, &kept.state).expect("no fault");
    assert_eq!(kept.manifest.place().bytes, 1 << 20);
    assert_eq!(kept.load().expect("sound").0, kept.state);
    assert!(!kept.manifest.must_rewrite(&kept.state));
    let mut edits = 0;
    while !kept.manifest.must_rewrite(&ManifestState::default()) {
        kept.manifest.append(&kept.storage, &[ManifestChange::Flushed { sequence: 1 }]).expect("no fault");
        edits += 1;
    }
    assert!(edits > 100, "a small file is not rewritten at once");
    assert!(!kept.manifest.must_rewrite(&kept.state), "a large state needs it");
}

/// The length of a file is a power of two, up to the most bytes of a manifest. It is at least the requested
/// one and four times the state's.
#[test]
fn files_have_room() {
    let record = |bytes: u64| (bytes - RECORDS_FROM) as usize - RECORD_HEAD_BYTES;
    for (live_bytes, bytes_min, expected) in [
        (RECORDS_FROM + 40, 0, 64 << 10),
        (16 << 10, 0, 64 << 10),
        ((16 << 10) + 8, 0, 128 << 10),
        (16 << 10, 64 << 10, 64 << 10),
        (16 << 10, (64 << 10) + 1, 128 << 10),
        (FRAMED_BYTES_MAX / 4, 0, FRAMED_BYTES_MAX),
        (16 << 10, FRAMED_BYTES_MAX + 1, FRAMED_BYTES_MAX),
    ] {
        assert_eq!(
            file_bytes(record(live_bytes), bytes_min).expect("not too large"),
            expected,
            "{live_bytes}"
        );
    }
    match file_bytes(record(FRAMED_BYTES_MAX / 4) + 8, 0) {
        Err(Error::TooLarge { what: "manifest", limit, given }) => {
            assert_eq!((limit, given), (FRAMED_BYTES_MAX / 4, FRAMED_BYTES_MAX / 4 + 8));
        }
        other => panic!("not too large: {other:?}"),
    }
}

/// Appends an edit that takes exactly so many bytes of the file.
fn append_bytes(kept: &mut Kept, id: u32, bytes: u64) {
    // Beside the name: head, chain, tag, two ids, and the length of a name of at least 16 KiB.
    let name_bytes = bytes as usize - RECORD_HEAD_BYTES - 8 - 1 - 8 - 3;
    let name = vec![b'n'; name_bytes].into();
    let changes = [ManifestChange::Partition { id: PartitionId(id), keyspace: KeyspaceId(1), name }];
    kept.state.apply_edit(&changes).expect("consistent");
    let from = kept.manifest.framer.tail().bytes;
    kept.manifest.append(&kept.storage, &changes).expect("no fault");
    assert_eq!(kept.manifest.framer.tail().bytes, from + bytes);
}

/// A page and a half are reserved for edits that must not fail; with less room a new file is due.
#[test]
fn room_is_reserved() {
    let mut kept = Kept::new();
    let used = kept.manifest.framer.tail().bytes;
    append_bytes(&mut kept, 1, 30_000);
    append_bytes(&mut kept, 2, 59_368 - used - 30_000);
    assert_eq!(kept.manifest.framer.room_bytes(), PAGE_BYTES + PAGE_BYTES / 2);
    assert!(!kept.manifest.must_rewrite(&kept.state));
    assert!(!kept.manifest.has_room(&[partition(3)]) && kept.manifest.has_reserved_room(&[partition(3)]));
    kept.append(3);
    assert!(kept.manifest.must_rewrite(&kept.state));
    let mut count = 0;
    while kept.manifest.has_reserved_room(&[partition(4 + count)]) {
        kept.append(4 + count);
        count += 1;
    }
    assert!(count > 40, "{count} small edits fit");
}

/// A file is rewritten once it has more than 64 KiB and more than four times the bytes that it needs.
#[test]
fn history_is_rewritten() {
    let state_of = |kept: &Kept, bytes_max: u64| {
        let mut state = kept.state.clone();
        let name = vec![b'm'; (bytes_max - state.snapshot_bytes_max()) as usize - 12].into();
        let change = ManifestChange::Partition { id: PartitionId(1000), keyspace: KeyspaceId(1), name };
        state.apply_edit(&[change]).expect("consistent");
        assert_eq!(state.snapshot_bytes_max(), bytes_max);
        state
    };
    let identity = ManifestIdentity { bytes_min: 1 << 20, ..IDENTITY };
    let (storage, state) = (MemoryStorage::new(5), base());
    let manifest = ManifestFile::create(&storage, &identity, &state).expect("no fault");
    let mut kept = Kept { storage, manifest, state };
    let used = kept.manifest.framer.tail().bytes;
    append_bytes(&mut kept, 1, REWRITE_BYTES_MIN - used);
    assert!(!kept.manifest.must_rewrite(&ManifestState::default()), "64 KiB are little");
    append_bytes(&mut kept, 2, 56 << 10);
    assert!(kept.manifest.must_rewrite(&ManifestState::default()));
    kept.state = base();
    let used = kept.manifest.framer.tail().bytes;
    assert!(!kept.manifest.must_rewrite(&state_of(&kept, used / 4 - RECORDS_FROM)));
    assert!(kept.manifest.must_rewrite(&state_of(&kept, used / 4 - RECORDS_FROM - 1)));
}

/// A rewrite beside edits is wanted before it is required: at three quarters of the file's length, or at more
/// than three times the bytes that it needs, past 48 KiB.
#[test]
fn rewriting_is_wanted_in_time() {
    let mut kept = Kept::new();
    assert_eq!(kept.manifest.place().bytes, 64 << 10);
    let used = kept.manifest.framer.tail().bytes;
    append_bytes(&mut kept, 1, (48 << 10) - used);
    assert!(!kept.manifest.wants_rewrite(&ManifestState::default()), "48 KiB are little");
    kept.append(2);
    assert!(kept.manifest.wants_rewrite(&kept.state) && !kept.manifest.must_rewrite(&kept.state));
    let identity = ManifestIdentity { number: 2, uid: 22, bytes_min: 1 << 20, ..IDENTITY };
    kept.manifest = ManifestFile::create(&kept.storage, &identity, &kept.state).expect("no fault");
    assert!(!kept.manifest.wants_rewrite(&kept.state), "it was written just now");
    let used = kept.manifest.framer.tail().bytes;
    append_bytes(&mut kept, 3, (752 << 10) - used);
    assert!(!kept.manifest.wants_rewrite(&kept.state));
    assert!(kept.manifest.wants_rewrite(&ManifestState::default()), "a small state needs less");
    append_bytes(&mut kept, 4, 17 << 10);
    assert!(kept.manifest.wants_rewrite(&kept.state));
}

/// Errors have the right offset: the sequence field of an edit with a wrong number, the record of an edit
/// that does not fit, and the tag of an unknown change.
#[test]
fn refusals_name_their_place() {
    let at = |kept: &Kept| match kept.load() {
        Err(Error::Corrupt(at)) => (at.file, at.offset, at.expected, at.found),
        other => panic!("not corrupt: {other:?}"),
    };
    let mut kept = Kept::new();
    let second = kept.manifest.framer.tail().bytes;
    kept.manifest.next_edit = 3;
    kept.append(1);
    assert_eq!(at(&kept), (FILE.to_string(), second + 8, "2".to_owned(), "3".to_owned()));
    let mut kept = Kept::new();
    kept.append(1);
    let third = kept.manifest.framer.tail().bytes;
    kept.manifest.append(&kept.storage, &[partition(1)]).expect("the file does not know the state");
    let fit = "changes that fit the state".to_owned();
    let found = "a partition that is there already 1".to_owned();
    assert_eq!(at(&kept), (FILE.to_string(), third, fit, found));
    let mut kept = Kept::new();
    let second = kept.manifest.framer.tail().bytes;
    let mut record = Vec::new();
    let chain = kept.manifest.framer.tail().chain;
    kept.manifest.framer.frame(2, &[&chain.to_le_bytes()[..], &[99]].concat(), &mut record);
    kept.storage.write(FILE, second, &record).expect("no fault");
    let tag_at = second + RECORD_HEAD_BYTES as u64 + 8;
    assert_eq!(at(&kept), (FILE.to_string(), tag_at, "17".to_owned(), "99".to_owned()));
}

/// STORE has reserved the number of every file: a STORE that has not is older than the manifest.
#[test]
fn an_older_store_is_told() {
    let mut kept = Kept::new();
    let log = |number| ManifestChange::Log { number, path: 0, uid: 1, bytes: 1 << 20 };
    kept.manifest.append(&kept.storage, &[log(1024)]).expect("no fault");
    kept.load().expect("below the next number");
    kept.manifest.append(&kept.storage, &[log(1025)]).expect("no fault");
    match kept.load() {
        Err(Error::Corrupt(at)) => {
            assert_eq!((at.file, at.offset), (FileName::STORE.to_string(), SLOT_OFFSETS[0]));
            assert_eq!((at.what, &*at.expected, &*at.found), ("the next file number", "above 1025", "1025"));
        }
        other => panic!("not corrupt: {other:?}"),
    }
}

/// An item of an unknown keyspace means that the manifest is damaged, if three conditions hold: the
/// manifest's end is not clean, the keyspace was not dropped, and the item's log was named since the
/// snapshot.
#[test]
fn unknown_keyspaces_are_judged() {
    let (storage, mut state) = (MemoryStorage::new(5), base());
    let log = |number| ManifestChange::Log { number, path: 0, uid: 1, bytes: 1 << 20 };
    state.apply_edit(&[log(40)]).expect("consistent");
    let manifest = ManifestFile::create(&storage, &IDENTITY, &state).expect("no fault");
    let mut kept = Kept { storage, manifest, state };
    let name = "two".to_owned();
    let kind = KeyspaceKind::Ordered;
    let edits = [
        ManifestChange::Keyspace { id: KeyspaceId(2), kind, name, settings: Vec::new() },
        ManifestChange::DropKeyspace { id: KeyspaceId(2) },
        ManifestChange::Partition { id: PartitionId(7), keyspace: KeyspaceId(1), name: b"east"[..].into() },
        ManifestChange::DropPartition { id: PartitionId(7) },
        log(50),
    ];
    let tree =
        |keyspace, partition| TreeId { keyspace: KeyspaceId(keyspace), partition: PartitionId(partition) };
    for edit in edits {
        kept.manifest.append(&kept.storage, &[edit]).expect("no fault");
    }
    let (_, clean) = kept.load().expect("sound");
    clean.check_unknown(50, tree(9, 9)).expect("nothing is damaged");
    let end = kept.manifest.framer.tail().bytes;
    kept.storage.write(FILE, end + 100, b"torn").expect("no fault");
    kept.storage.reboot();
    let (_, torn) = kept.load().expect("a torn end");
    match torn.check_unknown(50, tree(9, 9)) {
        Err(Error::Corrupt(at)) => {
            assert_eq!((at.file, at.offset, &*at.expected), (FILE.to_string(), end, "9.9"));
        }
        other => panic!("not corrupt: {other:?}"),
    }
    torn.check_unknown(50, tree(2, 2)).expect("it was dropped");
    torn.check_unknown(50, tree(1, 7)).expect("it was dropped alone");
    assert!(torn.check_unknown(50, tree(1, 8)).is_err());
    torn.check_unknown(40, tree(9, 9)).expect("the snapshot does not say what was dropped before");
    torn.check_unknown(51, tree(9, 9)).expect("nothing is known of that log");
}

/// A slot that finds the disk full is not written, and no guarantee depends on it.
#[test]
fn a_slot_without_room_is_no_failure() {
    let mut kept = Kept::new();
    kept.storage.fill_after(3);
    kept.append(1);
    kept.storage.fail_after(None);
    kept.append(2);
    kept.storage.power_cut();
    assert_eq!(kept.load().expect("sound").0, kept.state);
}

/// When a store is closed, both slots record the end of the last edit. For a snapshot alone they do from the
/// beginning, and no slot records bytes that are not durable.
#[test]
fn both_slots_vouch_at_the_end() {
    let mut kept = Kept::new();
    let changes = kept.storage.changes();
    kept.manifest.record_end_again(&kept.storage).expect("nothing to do");
    assert_eq!(kept.storage.changes(), changes);
    kept.append(1);
    kept.manifest.record_end_again(&kept.storage).expect("no fault");
    let bytes = kept.storage.bytes(FILE);
    let durable = |slot: usize| bytes[slot * PAGE_BYTES..][..16].to_vec();
    assert_eq!(durable(1), durable(2));
    assert_eq!(durable(1)[..8], kept.manifest.framer.tail().bytes.to_le_bytes());

    kept.storage.fail_after(Some(2));
    kept.manifest.append(&kept.storage, &[partition(2)]).expect_err("the sync fails");
    kept.storage.fail_after(None);
    let changes = kept.storage.changes();
    kept.manifest.record_end_again(&kept.storage).expect("nothing to say");
    assert_eq!(kept.storage.changes(), changes, "it is not known to be durable");
    kept.reload();
    kept.manifest.record_end_again(&kept.storage).expect("nothing to say");
    assert_eq!(kept.storage.changes(), changes, "what was read is not either");
    let mut kept = Kept::new();
    kept.append(1);
    kept.storage.fill_after(1);
    kept.manifest.append(&kept.storage, &[partition(2)]).expect_err("full");
    kept.storage.fail_after(None);
    let changes = kept.storage.changes();
    kept.manifest.record_end_again(&kept.storage).expect("nothing to say");
    assert_eq!(kept.storage.changes(), changes, "what failed is to be wiped first");
}

/// A partition rule goes only into a file whose header has its feature bit: one created for it, or for a
/// state with a rule.
#[test]
fn rules_have_their_feature_bit() {
    let rule = [ManifestChange::PartitionRule { keyspace: KeyspaceId(1), rule: Rule::Explicit }];
    let kept = Kept::new();
    assert!(kept.manifest.has_room(&[partition(1)]) && !kept.manifest.has_room(&rule));
    let features = |storage: &MemoryStorage| {
        let bytes = storage.bytes(FILE);
        FileHeader::decode(FILE, &bytes, FileKind::Manifest).expect("sound").features
    };
    assert_eq!(features(&kept.storage), 0);
    let storage = MemoryStorage::new(5);
    let identity = ManifestIdentity { features: FEATURE_PARTITIONS, ..IDENTITY };
    let mut manifest = ManifestFile::create(&storage, &identity, &base()).expect("no fault");
    assert!(manifest.has_room(&rule));
    manifest.append(&storage, &rule).expect("no fault");
    let (state, loaded) = ManifestFile::load(&storage, &live(manifest.place())).expect("sound");
    let again = [ManifestChange::PartitionRule { keyspace: KeyspaceId(9), rule: Rule::Explicit }];
    assert!(loaded.has_room(&again));
    assert_eq!((features(&storage), state.keyspaces[&KeyspaceId(1)].rule.clone()), (1, Some(Rule::Explicit)));
    let storage = MemoryStorage::new(5);
    ManifestFile::create(&storage, &IDENTITY, &state).expect("no fault");
    assert_eq!(features(&storage), FEATURE_PARTITIONS);
}
