//! The survey of a damaged store: every file, identified by its own header and not by its name, and the most
//! informative manifest.
//!
//! A file that the manifest names is found by its uid. A file with an unreadable header is assumed to be the
//! file of its name. Reads only.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileKind, FileName, KeyspaceId, PartitionId, Sequence, TreeId};
use crate::format::frames::{Expected, FRAMED_BYTES_MAX, FramePoint, every_record, scan};
use crate::format::header::{FileHeader, PAGE_BYTES};
use crate::format::log::Items;
use crate::format::manifest::{ManifestState, Slice};
use crate::format::store::{self, Live, STORE_BYTES};
use crate::io::storage::{DirectoryEntry, Storage, read_whole};
use crate::levels::manifest::{ManifestFile, Rescued};
use crate::levels::store::StoreFile;
use crate::table::{TableIdentity, read_past_faults, slice_entries};
use crate::wal::made::MadePartitions;

/// A file, with the name under which it was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SurveyedFile {
    pub(super) file: FileName,
    pub(super) uid: u64,
    pub(super) bytes: u64,
}

/// A log with records.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLog {
    pub(super) held: SurveyedFile,
    /// End of the log's records according to the manifest.
    pub(super) recorded_end: Option<FramePoint>,
    pub(super) is_named: bool,
    /// The sequence number of its first record.
    pub(super) first: Sequence,
}

/// The contents of the manifest, or its readable part.
#[derive(Default)]
pub(super) struct Known {
    pub(super) state: ManifestState,
    pub(super) store_id: u128,
    /// The manifest is complete.
    pub(super) is_whole: bool,
    /// The manifest is outdated: STORE names a later one, or a log that the manifest does not name has later
    /// writes.
    pub(super) is_older: bool,
    pub(super) dropped: BTreeSet<KeyspaceId>,
    pub(super) dropped_partitions: BTreeSet<PartitionId>,
    /// Slices that contradict the readable part of the manifest.
    pub(super) unplaced: BTreeMap<(u64, u32), Slice>,
}

impl Known {
    /// Whether the tree was dropped, as far as is known.
    pub(super) fn is_dropped(&self, tree: TreeId) -> bool {
        self.dropped.contains(&tree.keyspace) || self.dropped_partitions.contains(&tree.partition)
    }
}

/// The files of a store that may be damaged.
pub(super) struct Survey {
    pub(super) known: Known,
    /// Secret of the store's hash function; `None` if STORE is lost.
    pub(super) hash_secret: Option<[u8; 16]>,
    /// Tables that the manifest names and that were found, by their number in the manifest.
    pub(super) tables: BTreeMap<u64, SurveyedFile>,
    /// Trees with slices in tables that the manifest names and that were not found.
    pub(super) missing: BTreeSet<TreeId>,
    /// Tables that the manifest does not name, ordered by the number in their file name.
    pub(super) other_tables: Vec<SurveyedFile>,
    /// Logs ordered by their first record, the oldest first.
    pub(super) logs: Vec<HeldLog>,
    /// Files that cannot be used: unreadable, of another store, or neither identified by a header nor named
    /// by the manifest.
    pub(super) unused: Vec<String>,
}

/// A readable file, and its header if that is valid.
struct Seen {
    file: FileName,
    bytes: u64,
    header: Option<FileHeader>,
}

impl Survey {
    pub(super) fn secret(&self) -> Option<HashSecret> {
        self.hash_secret.map(HashSecret::expand)
    }

    /// # Errors
    /// As the storage; damage is none.
    pub(super) fn new(storage: &dyn Storage) -> Result<Survey> {
        let mut unused = Vec::new();
        let seen = see(storage, &mut unused)?;
        let live = live(storage, &seen)?;
        let known = known(storage, &seen, live.as_ref(), &mut unused)?;
        let mut survey = Survey {
            known,
            hash_secret: live.map(|live| live.hash_secret),
            tables: BTreeMap::new(),
            missing: BTreeSet::new(),
            other_tables: Vec::new(),
            logs: Vec::new(),
            unused,
        };
        survey.find_tables(storage, &seen);
        survey.find_logs(storage, &seen)?;
        survey.note_headless(&seen);
        let newest = survey.known.state.logs.keys().next_back().copied().unwrap_or(0);
        let flushed = survey.known.state.flushed;
        let is_later = |log: &HeldLog| !log.is_named && log.held.file.number > newest && log.first > flushed;
        survey.known.is_older |= survey.logs.iter().any(is_later);
        Ok(survey)
    }

    fn find_tables(&mut self, storage: &dyn Storage, seen: &[Seen]) {
        let store_id = self.known.store_id;
        let mut others = by_uid(seen, FileKind::Table, store_id);
        let has_footer = |held: &SurveyedFile| {
            let identity = TableIdentity { file: held.file, uid: held.uid, store_id };
            slice_entries(storage, identity, held.bytes).is_ok()
        };
        for (number, table) in &self.known.state.tables {
            let copies = copies(seen, others.remove(&table.uid), (table.file(*number), table.uid));
            let first = || copies.first().filter(|held| is_possible(seen, held));
            match copies.iter().find(|held| has_footer(held)).or_else(first) {
                Some(held) => _ = self.tables.insert(*number, *held),
                None => {
                    let tree =
                        |slice: &Slice| TreeId { keyspace: slice.keyspace, partition: slice.partition };
                    self.missing.extend(table.slices.values().map(tree));
                }
            }
        }
        let best = |copies: Vec<SurveyedFile>| {
            let found = copies.iter().find(|held| has_footer(held)).or_else(|| copies.first()).copied();
            found.expect("a uid was seen with its file")
        };
        self.other_tables = others.into_values().map(best).collect();
        self.other_tables.sort_by_key(|held| held.file.number);
    }

    fn find_logs(&mut self, storage: &dyn Storage, seen: &[Seen]) -> Result<()> {
        let mut others = by_uid(seen, FileKind::Log, self.known.store_id);
        let (mut logs, mut made) = (Vec::new(), MadePartitions::default());
        for (number, log) in &self.known.state.logs {
            let copies = copies(seen, others.remove(&log.uid), (log.file(*number), log.uid));
            // A log may be appended to after its end is recorded; the edit that says so may be missing.
            logs.push((copies, log.recorded_end.filter(|_| self.known.is_whole), true));
        }
        logs.extend(others.into_values().map(|copies| (copies, None, false)));
        for (copies, recorded_end, is_named) in logs {
            for held in copies {
                if held.bytes == 0 || held.bytes > FRAMED_BYTES_MAX {
                    self.unused.push(held.file.to_string());
                    continue;
                }
                let header = self.header(FileKind::Log, held.uid);
                let mut bytes = vec![0; held.bytes as usize];
                read_past_faults(storage, held.file, 0, &mut bytes)?;
                let records = every_record(&header, &bytes);
                if let Some(record) = records.first() {
                    self.logs.push(HeldLog { held, recorded_end, is_named, first: record.sequence });
                    if is_named {
                        self.note_made(&mut made, (held, recorded_end), &bytes);
                    }
                    break;
                }
            }
        }
        self.logs.sort_by_key(|log| log.first);
        for change in made.changes(&self.known.state) {
            // A partition that contradicts the rest of the manifest is left out.
            let _ = self.known.state.apply(&change);
        }
        Ok(())
    }

    /// Notes partitions that are made by records of a log, up to the end that recovery would use: an id in a
    /// later record may have been reused. The items of a partition that contradicts the manifest go to a
    /// separate keyspace.
    fn note_made(
        &self,
        made: &mut MadePartitions,
        (held, recorded_end): (SurveyedFile, Option<FramePoint>),
        bytes: &[u8],
    ) {
        let (header, boot_id) = (self.header(FileKind::Log, held.uid), 0);
        let file = held.file;
        let expected = Expected { file, header, bytes: held.bytes, recorded_end, witness: None, boot_id };
        let end = scan(&expected, bytes).map_or(u64::MAX, |found| found.end.bytes);
        let end = recorded_end.map_or(end, |recorded_end| end.min(recorded_end.bytes));
        let used = every_record(&header, bytes).into_iter().filter(|record| record.offset < end);
        for items in used.filter_map(|record| Items::new(record.payload).ok()) {
            if !items.partitions().any(|made| self.known.is_dropped(made.tree)) {
                _ = made.note(&self.known.state, file, &items);
            }
        }
    }

    pub(super) fn header(&self, kind: FileKind, uid: u64) -> FileHeader {
        FileHeader { kind, store_id: self.known.store_id, uid, features: 0 }
    }

    /// Adds to `unused` the unidentified tables and logs, and the files of other stores.
    fn note_headless(&mut self, seen: &[Seen]) {
        let held = self.tables.values().map(|held| held.file);
        let held: BTreeSet<FileName> = held.chain(self.logs.iter().map(|log| log.held.file)).collect();
        let is_strange = |one: &&Seen| match one.header {
            Some(header) => header.store_id != self.known.store_id,
            None => matches!(one.file.kind, FileKind::Table | FileKind::Log) && !held.contains(&one.file),
        };
        self.unused.extend(seen.iter().filter(is_strange).map(|one| one.file.to_string()));
    }
}

/// Every readable file of the store. The others are added to `unused`.
fn see(storage: &dyn Storage, unused: &mut Vec<String>) -> Result<Vec<Seen>> {
    let mut seen = Vec::new();
    for entry in storage.list()? {
        let DirectoryEntry::Ours(file) = entry else { continue };
        if file == FileName::LOCK {
            continue;
        }
        let mut page = vec![0; PAGE_BYTES];
        let read = storage.length(file).and_then(|length| match storage.read(file, 0, &mut page) {
            Ok(read) => Ok(length.map(|bytes| (bytes, read))),
            // The header's sector may be bad while the rest of the file is readable.
            Err(Error::Io { .. }) => Ok(length.map(|bytes| (bytes, 0))),
            Err(error) => Err(error),
        });
        match read {
            Ok(Some((bytes, read))) => {
                let header = FileHeader::decode_any(file, page.get(..read).unwrap_or_default()).ok();
                seen.push(Seen { file, bytes, header });
            }
            Ok(None) => {}
            Err(error @ Error::Forked) => return Err(error),
            Err(_) => unused.push(file.to_string()),
        }
    }
    seen.sort_by_key(|one| one.file);
    Ok(seen)
}

/// The contents of STORE, also if the file has another name.
fn live(storage: &dyn Storage, seen: &[Seen]) -> Result<Option<Live>> {
    match StoreFile::load(storage) {
        Ok(Some(file)) => return Ok(Some(file.live().clone())),
        Ok(None) | Err(Error::Corrupt(_) | Error::Foreign { .. } | Error::Io { .. }) => {}
        Err(error) => return Err(error),
    }
    let is_store = |one: &&Seen| one.header.is_some_and(|header| header.kind == FileKind::Store);
    for one in seen.iter().filter(is_store).filter(|one| one.bytes == STORE_BYTES as u64) {
        let found = read_whole(storage, one.file, one.bytes).and_then(|bytes| store::decode(&bytes));
        if let Ok(found) = found {
            return Ok(Some(found.live));
        }
    }
    Ok(None)
}

/// The most informative manifest: the one that STORE names if any part of it is readable, else the newest
/// complete one, else the best partial one.
fn known(
    storage: &dyn Storage,
    seen: &[Seen],
    live: Option<&Live>,
    unused: &mut Vec<String>,
) -> Result<Known> {
    let mut candidates = Vec::new();
    for one in seen {
        let header = match (one.header, live) {
            (Some(header), _) if header.kind != FileKind::Manifest => continue,
            (Some(header), Some(live)) if header.store_id != live.store_id => continue,
            (Some(header), _) => header,
            (None, Some(Live { store_id, manifest, .. }))
                if one.file == FileName::new(FileKind::Manifest, manifest.number) =>
            {
                FileHeader { kind: FileKind::Manifest, store_id: *store_id, uid: manifest.uid, features: 0 }
            }
            (None, _) => continue,
        };
        let rescued = match ManifestFile::rescue(storage, one.file, Some(header)) {
            Ok(rescued) => rescued,
            Err(Error::Corrupt(_) | Error::Io { .. }) => {
                unused.push(one.file.to_string());
                continue;
            }
            Err(error) => return Err(error),
        };
        let Rescued { state, is_whole, .. } = &rescued;
        let has_any = !state.keyspaces.is_empty() || !state.tables.is_empty();
        let is_named = live.is_some_and(|live| live.manifest.uid == header.uid);
        let newest = state.tables.keys().chain(state.logs.keys()).max().copied();
        let age = (newest, state.flushed, one.file.number);
        let rank = (is_named && *is_whole, is_named && has_any, *is_whole, has_any, age);
        candidates.push((rank, one.file, rescued));
    }
    let best = candidates.into_iter().max_by_key(|(rank, ..)| *rank);
    let Some((_, file, rescued)) = best else {
        let store_id = live.map_or_else(|| most_common(seen), |live| live.store_id);
        return Ok(Known { store_id, ..Known::default() });
    };
    let Rescued { state, header, is_whole, dropped, dropped_partitions, unplaced } = rescued;
    let is_before = |live: &Live| live.manifest.uid != header.uid && file.number < live.manifest.number;
    let is_older = file.kind == FileKind::Manifest && live.is_some_and(is_before);
    Ok(Known { state, store_id: header.store_id, is_whole, is_older, dropped, dropped_partitions, unplaced })
}

/// The id of the store that most files belong to.
fn most_common(seen: &[Seen]) -> u128 {
    let mut counts = BTreeMap::<u128, usize>::new();
    seen.iter()
        .filter_map(|one| one.header)
        .for_each(|header| *counts.entry(header.store_id).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(store_id, _)| store_id)
}

/// The files of a kind by uid, under any name. A uid has several files if one was copied.
fn by_uid(seen: &[Seen], kind: FileKind, store_id: u128) -> BTreeMap<u64, Vec<SurveyedFile>> {
    let mut found = BTreeMap::<u64, Vec<SurveyedFile>>::new();
    for one in seen {
        if let Some(header) = one.header.filter(|header| header.kind == kind && header.store_id == store_id) {
            let held = SurveyedFile { file: one.file, uid: header.uid, bytes: one.bytes };
            found.entry(header.uid).or_default().push(held);
        }
    }
    found
}

/// The candidates for a file that the manifest names: the files with its uid, the one with its name first;
/// and the file with its name in any case.
fn copies(
    seen: &[Seen],
    by_uid: Option<Vec<SurveyedFile>>,
    (name, uid): (FileName, u64),
) -> Vec<SurveyedFile> {
    let mut copies = by_uid.unwrap_or_default();
    copies.sort_by_key(|held| held.file != name);
    // Two headers may have been swapped.
    let named = seen.iter().find(|one| one.file == name && copies.iter().all(|held| held.file != name));
    copies.extend(named.map(|one| SurveyedFile { file: name, uid, bytes: one.bytes }));
    copies
}

/// Whether the header is unreadable or has the expected uid.
fn is_possible(seen: &[Seen], held: &SurveyedFile) -> bool {
    let found = seen.iter().find(|one| one.file == held.file);
    found.is_some_and(|one| one.header.is_none_or(|header| header.uid == held.uid))
}
