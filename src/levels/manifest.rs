//! The manifest on disk: a snapshot of the state and the edits since, in a framed file.
//!
//! This module does not define the state (`format::manifest`) or its order in memory (`levels::version`). The
//! owner is the code that changes the state; `Send`, not shared.
//!
//! Invariants:
//! 1. The first record is a snapshot, and both slots record its end as durable from the beginning.
//! 2. Edits are numbered from 1 without gaps.
//! 3. An edit is durable before the call that appended it returns.
//! 4. Before an append to a loaded file, the contents read are made durable and the remains of a torn write
//!    are zeroed. Both also happen before any irreversible action based on the contents.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName, KeyspaceId, PartitionId, Sequence, TreeId};
use crate::format::frames::{
    Expected, FRAMED_BYTES_MAX, Framer, RECORD_HEAD_BYTES, RECORDS_FROM, Tail, every_record, record_bytes,
    scan,
};
use crate::format::header::{FEATURE_MADE_PARTITIONS, FileHeader, PAGE_BYTES};
use crate::format::manifest::{Changes, ManifestChange, ManifestState, Slice, encode_edit};
use crate::format::store::{Live, ManifestPlace, SLOT_OFFSETS};
use crate::io::storage::{Storage, read_whole, write_zeros};

/// A manifest is rewritten when it holds more than so many times its live content.
const CONTENT_RATIO: u64 = 4;
/// The most bytes of a state in a manifest.
pub(crate) const STATE_BYTES_MAX: u64 = FRAMED_BYTES_MAX / CONTENT_RATIO;
/// Bytes at the end of the file that are kept for edits that a full disk must not stop: edits that let files
/// go, and the edit of an opening. Includes room for the partitions that an edit begins with.
const RESERVE_BYTES: usize = PAGE_BYTES + UNWRITTEN_EDIT_BYTES;
/// The most bytes of an edit for partitions that log records made.
pub(crate) const UNWRITTEN_EDIT_BYTES: usize = 2048;
/// If fewer bytes are used, a rewrite gains nothing.
const REWRITE_BYTES_MIN: u64 = 64 << 10;

/// The identity of a new manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ManifestIdentity {
    pub(crate) number: u64,
    pub(crate) uid: u64,
    pub(crate) store_id: u128,
    /// Smallest length of the file.
    pub(crate) bytes_min: u64,
    /// Feature bits beside those that the state needs.
    pub(crate) features: u64,
}

/// The readable part of a damaged manifest.
#[derive(Debug)]
pub(crate) struct Rescued {
    pub(crate) state: ManifestState,
    pub(crate) header: FileHeader,
    /// Whether nothing is missing.
    pub(crate) is_whole: bool,
    /// Keyspaces that were dropped, as far as the edits can be read.
    pub(crate) dropped: BTreeSet<KeyspaceId>,
    /// Partitions that were dropped by themselves, as far as the edits can be read.
    pub(crate) dropped_partitions: BTreeSet<PartitionId>,
    /// Slices, by table and index, that were read but do not fit the recovered state: the edit that makes
    /// their keyspace is lost.
    pub(crate) unplaced: BTreeMap<(u64, u32), Slice>,
}

/// A manifest, open for appending.
#[derive(Debug)]
pub(crate) struct ManifestFile {
    file: FileName,
    framer: Framer,
    next_edit: Sequence,
    pending: Option<Pending>,
    torn: Option<Torn>,
    /// Whether the file has an older version of the format, which lacks some kinds of changes.
    is_older: bool,
    /// Feature bits of its header.
    features: u64,
}

/// Facts that a load found before an unclean end. Behind that end, an edit was either cut short or damaged
/// later.
#[derive(Debug, Default)]
struct Torn {
    /// Offset of that end.
    end: u64,
    /// Keyspaces dropped since the snapshot, with all of their partitions.
    dropped: BTreeSet<KeyspaceId>,
    /// Partitions dropped by themselves since the snapshot.
    dropped_partitions: BTreeSet<PartitionId>,
    /// Logs named since the snapshot.
    logs: BTreeSet<u64>,
}

/// Bytes that a load or a failed append left to be written before the next append.
#[derive(Debug)]
struct Pending {
    /// Offset of `bytes`.
    from: u64,
    /// Records that may not be durable, then zeros over the remains of a torn write.
    bytes: Vec<u8>,
}

impl ManifestFile {
    /// Writes a new manifest that begins with a snapshot of `state`, and syncs it; the caller syncs the
    /// directory and switches STORE to it.
    ///
    /// # Errors
    /// `TooLarge` if the state is; `Full` or `Io` of the storage: the file is then removed again.
    pub(crate) fn create(
        storage: &dyn Storage,
        identity: &ManifestIdentity,
        state: &ManifestState,
    ) -> Result<ManifestFile> {
        let changes = state.snapshot();
        let features = identity.features | changes.iter().fold(0, |bits, change| bits | change.features());
        let (store_id, uid) = (identity.store_id, identity.uid);
        let header = FileHeader { kind: FileKind::Manifest, store_id, uid, features };
        let snapshot = encode_edit(identity.uid, &changes);
        let bytes = file_bytes(snapshot.len(), identity.bytes_min)?;
        let file = FileName::new(FileKind::Manifest, identity.number);
        let mut framer = Framer::new(header, bytes, storage.boot_id());
        let mut record = Vec::new();
        framer.frame(1, &snapshot, &mut record);
        storage.create(file)?;
        let written = storage
            .write(file, 0, &framer.first_pages())
            .and_then(|()| storage.write(file, RECORDS_FROM, &record))
            .and_then(|()| write_zeros(storage, file, framer.tail().bytes, bytes))
            .and_then(|()| storage.sync(file));
        if let Err(error) = written {
            // The first failure is reported. A file left behind is an orphan that the next open removes.
            let _ = storage.remove(file);
            return Err(error);
        }
        Ok(ManifestFile { file, framer, next_edit: 2, pending: None, torn: None, is_older: false, features })
    }

    /// Reads the live manifest and writes nothing. A torn last edit is left out.
    ///
    /// # Errors
    /// `Corrupt` if a record before the recorded durable end is damaged, or records are inconsistent, or if
    /// STORE is older than the manifest; `Unsupported` if a newer release wrote the file; `Io` of the
    /// storage.
    pub(crate) fn load(storage: &dyn Storage, live: &Live) -> Result<(ManifestState, ManifestFile)> {
        let place = live.manifest;
        let file = FileName::new(FileKind::Manifest, place.number);
        let header =
            FileHeader { kind: FileKind::Manifest, store_id: live.store_id, uid: place.uid, features: 0 };
        let boot_id = storage.boot_id();
        let expected =
            Expected { file, header, bytes: place.bytes, recorded_end: None, witness: None, boot_id };
        expected.check_length()?;
        let mut bytes = read_whole(storage, file, place.bytes)?;
        let found = scan(&expected, &bytes)?;
        let is_older = FileHeader::is_older(&bytes);
        let features = FileHeader::decode(file, &bytes, FileKind::Manifest)?.features;

        let mut state = ManifestState::default();
        let mut torn = Torn { end: found.end.bytes, ..Torn::default() };
        let mut old_logs = BTreeSet::new();
        let mut next_edit: Sequence = 1;
        for record in found.records() {
            if record.sequence != next_edit {
                let what = "the number of an edit";
                return Err(Error::corrupt(file, record.offset + 8, what, next_edit, record.sequence));
            }
            next_edit += 1;
            for change in Changes::new(file, record.offset + RECORD_HEAD_BYTES as u64, record.payload)? {
                let change = change?;
                state.apply(&change).map_err(|bad| inconsistent(file, record.offset, bad))?;
                match change {
                    ManifestChange::DropKeyspace { id } => _ = torn.dropped.insert(id),
                    ManifestChange::DropPartition { id } => _ = torn.dropped_partitions.insert(id),
                    // A log of the snapshot may be named again, without its end; it is not younger than the
                    // snapshot.
                    ManifestChange::Log { number, .. } if next_edit == 2 => _ = old_logs.insert(number),
                    ManifestChange::Log { number, .. } if !old_logs.contains(&number) => {
                        _ = torn.logs.insert(number);
                    }
                    _ => {}
                }
            }
        }
        if next_edit == 1 {
            return Err(Error::corrupt(file, RECORDS_FROM, "the snapshot", "a record", "none"));
        }
        state.check().map_err(|bad| inconsistent(file, found.end.bytes, bad))?;
        check_numbers(&state, live)?;

        let framer = Framer::resume(header, place.bytes, boot_id, &found);
        let remains = match found.tail {
            Tail::Clean => 0,
            Tail::Torn { ignored_bytes, .. } => ignored_bytes as usize,
        };
        let (from, end) = (found.durable_to, found.end.bytes as usize);
        bytes.truncate(end);
        bytes.drain(..from as usize);
        bytes.resize(bytes.len() + remains, 0);
        let pending = (!bytes.is_empty()).then_some(Pending { from, bytes });
        let torn = (remains > 0).then_some(torn);
        Ok((state, ManifestFile { file, framer, next_edit, pending, torn, is_older, features }))
    }

    /// Checks a log that was read after [`ManifestFile::load`] and has an item of an unknown tree that no
    /// record makes. No item of such a tree is logged before the edit that makes the tree is durable. So if
    /// the tree was not dropped, that edit was damaged later.
    ///
    /// # Errors
    /// `Corrupt` if that must be so: the end of the manifest is not clean, and the log is younger than the
    /// snapshot. For an older log nothing is certain, because the snapshot does not list earlier drops.
    pub(crate) fn check_unknown(&self, log: u64, tree: TreeId) -> Result<()> {
        match &self.torn {
            Some(torn)
                if torn.logs.contains(&log)
                    && !torn.dropped.contains(&tree.keyspace)
                    && !torn.dropped_partitions.contains(&tree.partition) =>
            {
                let what = "the edit that makes the partition of an item in a log";
                Err(Error::corrupt(self.file, torn.end, what, tree, "an edit that cannot be read"))
            }
            _ => Ok(()),
        }
    }

    /// Recovers the state from a manifest that does not load or that STORE does not name: all changes that
    /// can be read and fit are applied. `header`: the header by STORE; without it the file's own header is
    /// trusted.
    ///
    /// # Errors
    /// `Corrupt` if the header cannot be read; `Io`.
    pub(crate) fn rescue(
        storage: &dyn Storage,
        file: FileName,
        header: Option<FileHeader>,
    ) -> Result<Rescued> {
        let length = storage.length(file)?.unwrap_or(0).min(FRAMED_BYTES_MAX);
        let mut bytes = read_whole(storage, file, length)?;
        let header = match header {
            Some(header) => header,
            None => FileHeader::decode(file, &bytes, FileKind::Manifest)?,
        };
        if let Some(page) = bytes.get_mut(..PAGE_BYTES) {
            page.copy_from_slice(&header.encode());
        }
        let boot_id = storage.boot_id();
        let expected = Expected { file, header, bytes: length, recorded_end: None, witness: None, boot_id };
        let mut is_whole = scan(&expected, &bytes).is_ok();
        let mut state = ManifestState::default();
        let (mut dropped, mut dropped_partitions) = (BTreeSet::new(), BTreeSet::new());
        let mut unplaced = BTreeMap::<_, Slice>::new();
        for (record, number) in every_record(&header, &bytes).into_iter().zip(1..) {
            is_whole &= record.sequence == number;
            // The offset is not reported: unreadable changes are left out.
            for change in Changes::new(file, 0, record.payload).into_iter().flatten() {
                let Ok(change) = change else {
                    is_whole = false;
                    continue;
                };
                let is_applied = state.apply(&change).is_ok();
                is_whole &= is_applied;
                match change {
                    ManifestChange::DropKeyspace { id } => {
                        dropped.insert(id);
                        unplaced.retain(|_, slice| slice.keyspace != id);
                    }
                    ManifestChange::DropPartition { id } => {
                        dropped_partitions.insert(id);
                        unplaced.retain(|_, slice| slice.partition != id);
                    }
                    ManifestChange::Slice { table, index, slice } if !is_applied => {
                        _ = unplaced.insert((table, index), slice);
                    }
                    ManifestChange::SliceMoved { table, index, level, run } => {
                        if let Some(slice) = unplaced.get_mut(&(table, index)) {
                            (slice.level, slice.run) = (level, run);
                        }
                    }
                    ManifestChange::SliceRemoved { table, index } => _ = unplaced.remove(&(table, index)),
                    ManifestChange::TableRemoved { number } => {
                        unplaced.retain(|(table, _), _| *table != number)
                    }
                    _ => {}
                }
            }
        }
        is_whole &= state.check().is_ok();
        Ok(Rescued { state, header, is_whole, dropped, dropped_partitions, unplaced })
    }

    pub(crate) fn file(&self) -> FileName {
        self.file
    }

    /// The entry of this manifest in STORE.
    pub(crate) fn place(&self) -> ManifestPlace {
        ManifestPlace { number: self.file.number, uid: self.framer.header().uid, bytes: self.framer.bytes() }
    }

    /// Whether the file's format version is older than the one written now: it has no
    /// [`ManifestChange::TableRemoved`].
    pub(crate) fn is_older(&self) -> bool {
        self.is_older
    }

    /// Whether its header allows log records that make partitions.
    pub(crate) fn admits_made_partitions(&self) -> bool {
        !self.is_older && self.features & FEATURE_MADE_PARTITIONS != 0
    }

    /// Makes the contents read by [`ManifestFile::load`] durable. The caller does so before any irreversible
    /// action based on them, such as the removal of files that the manifest does not name.
    pub(crate) fn make_durable(&mut self, storage: &dyn Storage) -> Result<()> {
        let Some(pending) = &self.pending else {
            return Ok(());
        };
        storage.write(self.file, pending.from, &pending.bytes)?;
        storage.sync(self.file)?;
        self.pending = None;
        self.write_slot(storage)
    }

    /// The number of edits in the file, including the snapshot.
    pub(crate) fn edit_count(&self) -> u64 {
        self.next_edit - 1
    }

    /// Whether one more edit of these changes fits without the reserve. It never fits a file of an older
    /// format version, or one without the feature bits of the changes.
    pub(crate) fn has_room(&self, changes: &[ManifestChange]) -> bool {
        let has_features = changes.iter().all(|change| change.features() & !self.features == 0);
        has_features && self.has_room_for(encode_edit(0, changes).len())
    }

    /// Whether one more edit of `edit_bytes` fits without the reserve.
    pub(crate) fn has_room_for(&self, edit_bytes: usize) -> bool {
        !self.is_older && edit_bytes + RESERVE_BYTES <= self.framer.room_bytes()
    }

    /// Feature bits that the next manifest keeps for any state: logs may still have such records.
    pub(crate) fn kept_features(&self) -> u64 {
        self.features & FEATURE_MADE_PARTITIONS
    }

    /// Whether an edit on a full disk fits with the reserve used, and the file's format version has its
    /// changes.
    pub(crate) fn has_reserved_room(&self, changes: &[ManifestChange]) -> bool {
        let is_known = |change: &ManifestChange| !matches!(change, ManifestChange::TableRemoved { .. });
        (!self.is_older || changes.iter().all(is_known))
            && encode_edit(0, changes).len() <= self.framer.room_bytes()
    }

    /// Appends one edit; the edit is durable when the call returns.
    ///
    /// # Errors
    /// `Full`: the edit was not made, and the next [`ManifestFile::make_durable`] or append zeroes its
    /// partial write. After any other storage error the next open may or may not find the edit, and nothing
    /// may be appended any more.
    ///
    /// # Panics
    /// If there are no changes, or no room: see [`ManifestFile::has_room`].
    pub(crate) fn append(&mut self, storage: &dyn Storage, changes: &[ManifestChange]) -> Result<()> {
        assert!(!changes.is_empty(), "an edit changes something");
        self.make_durable(storage)?;
        let before = self.framer.clone();
        let at = before.tail();
        let mut record = Vec::new();
        self.framer.frame(self.next_edit, &encode_edit(at.chain, changes), &mut record);
        if let Err(error) = storage.write(self.file, at.bytes, &record) {
            if matches!(error, Error::Full { .. }) {
                self.framer = before;
                self.pending = Some(Pending { from: at.bytes, bytes: vec![0; record.len()] });
            }
            return Err(error);
        }
        self.next_edit += 1;
        storage.sync(self.file)?;
        self.write_slot(storage)
    }

    /// Whether a new file is due: the file has an older format version or little room, or holds far more than
    /// the state needs.
    pub(crate) fn must_rewrite(&self, state: &ManifestState) -> bool {
        let used_bytes = self.framer.tail().bytes;
        let little_room = self.framer.room_bytes() < RESERVE_BYTES;
        let above_ratio = || used_bytes > CONTENT_RATIO * (RECORDS_FROM + state.snapshot_bytes_max());
        self.is_older || little_room || (used_bytes > REWRITE_BYTES_MIN && above_ratio())
    }

    /// Whether the file will need a rewrite soon; the rewrite can begin while edits continue.
    pub(crate) fn wants_rewrite(&self, state: &ManifestState) -> bool {
        let used_bytes = self.framer.tail().bytes;
        let content_bytes = RECORDS_FROM + state.snapshot_bytes_max();
        let is_nearly_full = || (self.framer.room_bytes() as u64) < self.framer.bytes() / 4;
        used_bytes > REWRITE_BYTES_MIN / 4 * 3
            && (used_bytes > (CONTENT_RATIO - 1) * content_bytes || is_nearly_full())
    }

    /// Writes the durable end into a slot again, so that both slots record it and a misplaced block cannot
    /// hide the last edit. For a store that is being closed.
    pub(crate) fn record_end_again(&mut self, storage: &dyn Storage) -> Result<()> {
        let is_durable = self.pending.is_none() && self.framer.unsynced_bytes() == 0;
        if is_durable && self.edit_count() > 1 { self.write_slot(storage) } else { Ok(()) }
    }

    /// Records how far the file is durable. Durability does not depend on this record, so a full disk is no
    /// failure.
    fn write_slot(&mut self, storage: &dyn Storage) -> Result<()> {
        let (offset, page) = self.framer.synced(self.framer.tail());
        match storage.write(self.file, offset, &page) {
            Err(Error::Full { .. }) => Ok(()),
            written => written,
        }
    }
}

/// Length of a file that begins with a snapshot of so many bytes.
fn file_bytes(snapshot_bytes: usize, bytes_min: u64) -> Result<u64> {
    let live_bytes = RECORDS_FROM + record_bytes(snapshot_bytes) as u64;
    let limit = STATE_BYTES_MAX;
    if live_bytes > limit {
        return Err(Error::TooLarge { what: "manifest", limit, given: live_bytes });
    }
    Ok((CONTENT_RATIO * live_bytes).max(bytes_min).next_power_of_two().min(FRAMED_BYTES_MAX))
}

/// STORE reserves numbers before files use them. A STORE that knows fewer numbers than the manifest is not
/// the newest, and would give out numbers twice.
fn check_numbers(state: &ManifestState, live: &Live) -> Result<()> {
    let last = state.logs.keys().chain(state.tables.keys()).max().copied().unwrap_or(0);
    if last < live.next_file_number {
        return Ok(());
    }
    let expected = format_args!("above {last}").to_string();
    Err(Error::corrupt(
        FileName::STORE,
        SLOT_OFFSETS[0],
        "the next file number",
        expected,
        live.next_file_number,
    ))
}

fn inconsistent(file: FileName, offset: u64, bad: crate::format::manifest::Inconsistent) -> Error {
    Error::corrupt(
        file,
        offset,
        "an edit",
        "changes that fit the state",
        format_args!("{} {}", bad.what, bad.number),
    )
}

#[cfg(test)]
mod tests;
