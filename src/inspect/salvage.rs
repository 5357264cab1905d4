//! A new store made of what is undamaged in another.
//!
//! Everything that reads back is written again, in the order in which it was written first as far as that is
//! known: the runs of each tree from the oldest, range tombstones before the items of their table, then the
//! logs. So nothing has to be merged here, and the new store is made as any other is.
//!
//! What cannot be known: where a tombstone or a newer version was lost, the older version comes back. The
//! report names those keys.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::base::error::{Corrupt, Error, Result};
use crate::base::id::{FileKind, FileName, ItemKind, KeyspaceId, Sequence, TreeId};
use crate::base::settings::{KeyspaceSettings, StoreSettings};
use crate::base::sync::Arc;
use crate::engine::keyspaces::restored;
use crate::engine::unnamed::{self, Beside};
use crate::engine::{Env, Mode, OpenOptions, Store, Until};
use crate::format::frames::{Expected, FRAMED_BYTES_MAX, Record, every_record, scan};
use crate::format::header::{FileHeader, PAGE_BYTES};
use crate::format::log;
use crate::format::manifest::State;
use crate::format::store::Live;
use crate::format::table::footer::Span;
use crate::io::storage::{Entry, Storage};
use crate::levels::manifest::{ManifestFile, Rescued};
use crate::levels::store::StoreFile;
use crate::table::{Good, GoodItems, TableIdentity, good_extents, read_past_faults, slice_spans};
use crate::wal::replay::read_witness;
use crate::write::batch::Items;

use super::verify::{AtRisk, Finding, Progress, Report, lock, verify_in};

/// Writes go out together up to this much.
const BATCH_BYTES: usize = 256 << 10;

/// What a salvage came to.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
/// # let db = trine::Db::open(&old)?;
/// # db.ordered("users").open()?.put(b"ann", b"1")?;
/// # db.close()?;
/// let salvaged = trine::inspect::salvage(&old, &new, |_| {})?;
/// assert_eq!((salvaged.writes, salvaged.report.findings.len()), (1, 0));
/// assert!(trine::Db::open(&new)?.keyspace("users")?.contains(b"ann")?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Salvaged {
    /// Puts, deletes and deletes of ranges that were written to the new store.
    pub writes: u64,
    /// What is damaged in the old one: between the keys that are at risk items may be missing, and older
    /// versions may have come back.
    pub report: Report,
    /// The manifest is whole, and says of every file how old it is. Where it is not, an older version of a
    /// key may have won.
    pub is_order_known: bool,
    /// Files that what is left of the manifest does not name: they were taken for newer than those it names,
    /// in the order of their names.
    pub unplaced: Vec<String>,
    /// Files of which nothing could be used.
    pub unused: Vec<String>,
}

/// Makes a store in `to`, which must be missing or empty, of everything in the store `from` that reads back.
/// `from` must not be open for writing, and is not changed.
///
/// Keyspaces whose names are lost are called `recovered-` and their number; so may be one that was dropped,
/// if the manifest is damaged where it said so. `progress` is told of the check
/// that comes first, then of each file that is read.
///
/// # Errors
/// `Missing`, `Locked`, `Permission`, `Unsupported`, `Foreign` if there is something in `to`, `Full`, `Io`.
/// What was made of `to` by then is left. Damage in `from` is no error.
///
/// # Cost
/// Reads `from` twice, and writes every version of every item to the log of `to`, and to its tables.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
/// # let db = trine::Db::open(&old)?;
/// # db.ordered("users").open()?.put(b"ann", b"1")?;
/// # db.flush()?;
/// # db.close()?;
/// std::fs::write(old.join("STORE"), b"gone")?;
/// assert!(trine::Db::open(&old).is_err());
/// let salvaged = trine::inspect::salvage(&old, &new, |_| {})?;
/// assert_eq!(salvaged.report.findings.len(), 1);
/// assert!(trine::Db::open(&new)?.keyspace("users")?.contains(b"ann")?);
/// # Ok(()) }
/// ```
pub fn salvage(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    mut progress: impl FnMut(&Progress),
) -> Result<Salvaged> {
    let settings = StoreSettings::default();
    let (from, to) = (settings.env(from.as_ref())?, settings.env(to.as_ref())?);
    salvage_in(&from, to, settings, &mut progress)
}

/// As [`salvage`], in worlds of the caller's.
pub(crate) fn salvage_in(
    from: &Env,
    to: Env,
    settings: StoreSettings,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Salvaged> {
    let report = verify_in(from, &mut *progress).or_else(|error| match error {
        // STORE may be what is damaged most.
        Error::Foreign { found, .. } if from.storage.length(FileName::STORE)?.is_some() => {
            let file = FileName::STORE.to_string();
            let damage = Corrupt { file, offset: 0, what: "the file", expected: "STORE".to_owned(), found };
            let findings = vec![Finding { damage, at_risk: AtRisk::Store }];
            Ok(Report { findings, ..Report::default() })
        }
        error => Err(error),
    })?;
    match lock(from) {
        Ok(()) | Err(Error::Corrupt(_)) => {}
        Err(error) => return Err(error),
    }
    let salvaged = salvage_locked(from, to, settings, report, progress);
    from.storage.unlock();
    salvaged
}

fn salvage_locked(
    from: &Env,
    to: Env,
    settings: StoreSettings,
    report: Report,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Salvaged> {
    if to.storage.exists()?
        && let Some(found) = to.storage.list()?.into_iter().next()
    {
        let found = match found {
            Entry::Ours(file) => file.to_string(),
            Entry::Foreign(name) => name,
        };
        return Err(Error::Foreign { path: to.storage.path(), found });
    }
    let target = Store::open(to, OpenOptions::new(settings, Mode::CreateIfMissing))?;
    let mut salvage = Salvage {
        from: &from.storage,
        to: &target,
        progress,
        salvaged: Salvaged { report, ..Salvaged::default() },
        batch: Items::default(),
        total_bytes: 0,
        done_bytes: 0,
    };
    let done = salvage.all();
    let salvaged = salvage.salvaged;
    let closed = target.close();
    done.and(closed).map(|()| salvaged)
}

/// A salvage under way.
struct Salvage<'s> {
    from: &'s Arc<dyn Storage>,
    to: &'s Arc<Store>,
    progress: &'s mut dyn FnMut(&Progress),
    salvaged: Salvaged,
    batch: Items,
    total_bytes: u64,
    done_bytes: u64,
}

/// What the manifest says, or what is left of it.
#[derive(Default)]
struct Known {
    state: State,
    store_id: u128,
    /// Nothing of the manifest is missing.
    is_whole: bool,
    dropped: BTreeSet<KeyspaceId>,
    /// Slices that did not fit what is left of the manifest.
    unplaced: BTreeSet<(u64, u32)>,
}

/// A slice that is to be written again.
struct Source {
    file: FileName,
    uid: u64,
    bytes: u64,
    store_id: u128,
    tree: TreeId,
    index: u32,
    /// Bounds of the slices of the file, where the manifest says them: of those that were removed it does
    /// not.
    bounds: BTreeMap<u32, Bounds>,
}

/// First and last key; `None` if there is no last.
type Bounds = (Box<[u8]>, Option<Box<[u8]>>);

impl Salvage<'_> {
    fn all(&mut self) -> Result<()> {
        let known = self.known()?;
        let mut trees = BTreeMap::new();
        for (id, keyspace) in &known.state.keyspaces {
            trees.insert(*id, self.keyspace(&keyspace.name, restored(&keyspace.settings))?);
        }
        let (sources, logs) = (self.sources(&known)?, self.logs(&known)?);
        self.total_bytes = logs.iter().map(|(_, _, bytes)| bytes).sum();
        self.total_bytes += sources.iter().map(|source| source.bytes).sum::<u64>();
        for source in &sources {
            if let Some(tree) = self.target(&known, &mut trees, source.tree.keyspace)? {
                self.slice(source, tree)?;
            }
        }
        for (file, header, bytes) in logs {
            self.log(&known, &mut trees, (file, header, bytes))?;
        }
        self.send()
    }

    fn known(&mut self) -> Result<Known> {
        let storage = &**self.from;
        let mut manifests = Vec::new();
        let mut header = None;
        match StoreFile::load(storage) {
            Ok(Some(file)) => {
                let Live { store_id, manifest, .. } = file.live();
                header =
                    Some(FileHeader { kind: FileKind::Manifest, store_id: *store_id, uid: manifest.uid });
                manifests.push(FileName::new(FileKind::Manifest, manifest.number));
            }
            Ok(None) | Err(Error::Corrupt(_) | Error::Foreign { .. } | Error::Io { .. }) => {
                manifests = self.files(FileKind::Manifest)?
            }
            Err(error) => return Err(error),
        }
        // The newest that is whole, else the newest that says anything.
        let mut best: Option<Known> = None;
        for file in manifests.into_iter().rev() {
            match ManifestFile::rescue(storage, file, header) {
                Ok(Rescued { state, header, is_whole, dropped, unplaced }) => {
                    let is_better = best.as_ref().is_none_or(|best| is_whole && !best.is_whole);
                    if is_better && !state.keyspaces.is_empty() {
                        let store_id = header.store_id;
                        best = Some(Known { state, store_id, is_whole, dropped, unplaced });
                    }
                }
                Err(Error::Corrupt(_) | Error::Io { .. }) => self.salvaged.unused.push(file.to_string()),
                Err(error) => return Err(error),
            }
        }
        let mut known = best.unwrap_or_default();
        let files = unnamed::files(storage)?;
        let beside = Beside { state: &known.state, store_id: known.store_id, files: &files };
        if !beside.later_logs(storage, known.state.flushed).is_empty() {
            // An older one: what else it does not name is wanted too.
            known.is_whole = false;
        }
        self.salvaged.is_order_known = known.is_whole;
        Ok(known)
    }

    /// The files of a kind, by their numbers.
    fn files(&self, kind: FileKind) -> Result<Vec<FileName>> {
        let entries = self.from.list()?.into_iter();
        let ours = entries.filter_map(|entry| match entry {
            Entry::Ours(file) if file.kind == kind && file.number > 0 => Some(file),
            _ => None,
        });
        let mut files: Vec<FileName> = ours.collect();
        files.sort_unstable();
        Ok(files)
    }

    /// Every slice there is, the oldest of each tree first.
    fn sources(&mut self, known: &Known) -> Result<Vec<Source>> {
        let mut placed = Vec::new();
        for (number, table) in &known.state.tables {
            let file = table.file(*number);
            let Some(bytes) = self.length(file) else { continue };
            let slices = table.slices.iter();
            let bounds: BTreeMap<u32, Bounds> = slices
                .map(|(index, slice)| (*index, (slice.min_key.clone(), slice.max_key.clone())))
                .collect();
            for (index, slice) in &table.slices {
                let tree = TreeId { keyspace: slice.keyspace, partition: slice.partition };
                let (uid, store_id, bounds) = (table.uid, known.store_id, bounds.clone());
                let age = (tree, Reverse(slice.level), slice.run, slice.first_sequence);
                placed.push((age, Source { file, uid, bytes, store_id, tree, index: *index, bounds }));
            }
        }
        placed.sort_by_key(|(age, _)| *age);
        let mut sources: Vec<Source> = placed.into_iter().map(|(_, source)| source).collect();
        if !known.is_whole {
            self.add_unplaced(known, &mut sources)?;
        }
        Ok(sources)
    }

    /// Tables that what is left of the manifest does not name.
    fn add_unplaced(&mut self, known: &Known, sources: &mut Vec<Source>) -> Result<()> {
        for file in self.files(FileKind::Table)? {
            let is_named = known.state.tables.contains_key(&file.number);
            let is_sought = |index: u32| !is_named || known.unplaced.contains(&(file.number, index));
            let mut all = known.unplaced.range((file.number, 0)..=(file.number, u32::MAX));
            if is_named && all.next().is_none() {
                continue;
            }
            let Some(bytes) = self.length(file) else { continue };
            let spans = self.header(file).and_then(|FileHeader { store_id, uid, .. }| {
                let spans = slice_spans(&**self.from, TableIdentity { file, uid, store_id }, bytes)?;
                Ok((store_id, uid, spans))
            });
            match spans {
                Ok((store_id, uid, spans)) => {
                    self.salvaged.unplaced.push(file.to_string());
                    for ((tree, _), index) in
                        spans.into_iter().zip(0..).filter(|(_, index)| is_sought(*index))
                    {
                        let bounds = BTreeMap::new();
                        sources.push(Source { file, uid, bytes, store_id, tree, index, bounds });
                    }
                }
                Err(_) => self.salvaged.unused.push(file.to_string()),
            }
        }
        Ok(())
    }

    /// The length of a file that can be read; one that is there and cannot be is not used.
    fn length(&mut self, file: FileName) -> Option<u64> {
        let mut unit = [0; 1];
        match self.from.length(file).and_then(|length| match length {
            None => Ok(None),
            Some(_) => match self.from.read(file, 0, &mut unit) {
                // A sector that fails is told from a file that does.
                Ok(_) | Err(Error::Io { .. }) => Ok(length),
                Err(error) => Err(error),
            },
        }) {
            Ok(length) => length,
            Err(_) => {
                self.salvaged.unused.push(file.to_string());
                None
            }
        }
    }

    fn header(&self, file: FileName) -> Result<FileHeader> {
        let mut page = vec![0; PAGE_BYTES];
        let read = self.from.read(file, 0, &mut page)?;
        page.truncate(read);
        FileHeader::decode(file, &page, file.kind)
    }

    /// The keyspace to write to; `None` if it was dropped.
    fn target(
        &mut self,
        known: &Known,
        trees: &mut BTreeMap<KeyspaceId, TreeId>,
        id: KeyspaceId,
    ) -> Result<Option<TreeId>> {
        if let Some(tree) = trees.get(&id) {
            return Ok(Some(*tree));
        }
        // Where edits are missing, one that is not there may be one whose creation is.
        if known.is_whole || known.dropped.contains(&id) {
            return Ok(None);
        }
        let tree = self.keyspace(&format!("recovered-{}", id.0), KeyspaceSettings::default())?;
        trees.insert(id, tree);
        Ok(Some(tree))
    }

    fn keyspace(&self, name: &str, settings: KeyspaceSettings) -> Result<TreeId> {
        let given: Vec<(String, u64)> =
            settings.values().into_iter().map(|(setting, value)| (setting.name.to_owned(), value)).collect();
        Ok(self.to.open_keyspace(name, &given)?.tree)
    }

    fn begin(&mut self, file: FileName, bytes: u64) {
        let (done_bytes, total_bytes) = (self.done_bytes, self.total_bytes);
        (self.progress)(&Progress { file: file.to_string(), done_bytes, total_bytes });
        self.done_bytes += bytes;
    }

    fn slice(&mut self, source: &Source, tree: TreeId) -> Result<()> {
        let Source { file, uid, bytes, store_id, .. } = *source;
        self.begin(file, bytes);
        let from = Arc::clone(self.from);
        let spans = slice_spans(&*from, TableIdentity { file, uid, store_id }, bytes);
        let spans = spans.ok().and_then(|spans| spans.get(source.index as usize).copied());
        let page = PAGE_BYTES as u64;
        let (span, mut places) = match spans.filter(|(known, _)| *known == source.tree) {
            Some((_, span)) => (span, None),
            None => {
                let span = Span { offset: page, bytes: bytes.saturating_sub(page) };
                (span, Some(Places { bounds: &source.bounds, at: 0, last: None, is_behind: false }))
            }
        };
        // Ranges hide nothing in their own table, and come behind the items in the file.
        good_extents(&*from, (file, uid, span), &mut |_, good| match good {
            Good::Items(items) => {
                places.iter_mut().for_each(|places| places.go_to(&items));
                Ok(())
            }
            Good::Other => {
                places.iter_mut().for_each(|places| places.is_behind = true);
                Ok(())
            }
            Good::Ranges(ranges) => {
                places.iter_mut().for_each(|places| places.is_behind = true);
                if places.as_ref().is_some_and(|places| places.at != source.index) {
                    return Ok(());
                }
                ranges.iter().try_for_each(|(start, end)| self.write(tree, ItemKind::DeleteRange, start, end))
            }
        })?;
        if let Some(places) = &mut places {
            (places.at, places.last, places.is_behind) = (0, None, false);
        }
        good_extents(&*from, (file, uid, span), &mut |_, good| {
            let Good::Items(items) = good else {
                places.iter_mut().for_each(|places| places.is_behind = true);
                return Ok(());
            };
            if let Some(places) = &mut places {
                places.go_to(&items);
                if places.at != source.index {
                    return Ok(());
                }
            }
            for index in 0..items.count() {
                let (key, kind, value) = items.item(index);
                self.write(tree, kind, &key, value)?;
            }
            Ok(())
        })
    }

    /// Logs to read, the oldest first.
    fn logs(&mut self, known: &Known) -> Result<Vec<(FileName, FileHeader, u64)>> {
        let mut logs = Vec::new();
        if known.is_whole {
            for (number, log) in &known.state.logs {
                let file = log.file(*number);
                let header = FileHeader { kind: FileKind::Log, store_id: known.store_id, uid: log.uid };
                logs.extend(self.length(file).map(|bytes| (file, header, bytes)));
            }
            return Ok(logs);
        }
        for file in self.files(FileKind::Log)? {
            match self.header(file) {
                Ok(header) => logs.extend(self.length(file).map(|bytes| (file, header, bytes))),
                Err(_) => self.salvaged.unused.push(file.to_string()),
            }
        }
        Ok(logs)
    }

    fn log(
        &mut self,
        known: &Known,
        trees: &mut BTreeMap<KeyspaceId, TreeId>,
        (file, header, bytes): (FileName, FileHeader, u64),
    ) -> Result<()> {
        self.begin(file, bytes);
        if bytes == 0 || bytes > FRAMED_BYTES_MAX {
            self.salvaged.unused.push(file.to_string());
            return Ok(());
        }
        let mut read = vec![0; bytes as usize];
        read_past_faults(&**self.from, file, 0, &mut read)?;
        // Records behind a sound log's end, or behind where it was sealed, were never taken up by the store.
        let log = known.state.logs.get(&file.number).filter(|log| log.uid == header.uid);
        let promise = log.and_then(|log| log.promise);
        let boot_id = self.from.boot_id();
        // STORE may be what is damaged.
        let witness = read_witness(&**self.from);
        let expected = Expected { file, header, bytes: read.len() as u64, promise, witness, boot_id };
        let records: Vec<Record<'_>> = match scan(&expected, &read) {
            Ok(found) => found.records().collect(),
            Err(_) => every_record(&header, &read),
        };
        let is_used = |record: &Record<'_>| promise.is_none_or(|end| record.offset < end.bytes);
        for record in records.into_iter().filter(is_used) {
            let Ok(items) = log::Items::new(record.payload) else { continue };
            for (item, sequence) in items.zip(record.sequence..) {
                if Sequence::le(&sequence, &known.state.flushed) {
                    continue;
                }
                if let Some(tree) = self.target(known, trees, item.tree.keyspace)? {
                    self.write(tree, item.kind, item.key, item.value)?;
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, tree: TreeId, kind: ItemKind, key: &[u8], value: &[u8]) -> Result<()> {
        if self.batch.payload().len() + key.len() + value.len() > BATCH_BYTES {
            self.send()?;
        }
        self.batch.push(tree, kind, key, value)?;
        self.salvaged.writes += 1;
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.to.write(&self.batch, Some(Until::Written))?;
        self.batch.clear();
        Ok(())
    }
}

/// Which slice of a file a block is in, where no footer says so: slices are in the order of the file, other
/// parts come behind the items of each, and its keys ascend within its bounds. Of slices that the manifest
/// does not name any more the bounds are not known.
struct Places<'b> {
    bounds: &'b BTreeMap<u32, Bounds>,
    at: u32,
    /// The last key of the block before.
    last: Option<Vec<u8>>,
    /// Another part was seen since that block.
    is_behind: bool,
}

impl Places<'_> {
    fn go_to(&mut self, items: &GoodItems<'_>) {
        let (first, last) = (items.item(0).0, items.item(items.count() - 1).0);
        let is_behind = std::mem::take(&mut self.is_behind);
        if self.last.as_ref().is_some_and(|before| is_behind || first <= *before) {
            self.at += 1;
        }
        let is_in = |(min, max): &Bounds| **min <= *first && max.as_ref().is_none_or(|max| *last <= **max);
        while self.bounds.get(&self.at).is_some_and(|bounds| !is_in(bounds)) {
            self.at += 1;
        }
        self.last = Some(last);
    }
}
