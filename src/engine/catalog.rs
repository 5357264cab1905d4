//! The catalog: manifest, STORE and keyspaces, changed by one at a time.
//!
//! Whoever changes it takes it out of its cell, does its I/O, and puts it back; others wait. No lock is held
//! meanwhile.
//!
//! Invariants:
//! 1. An edit is durable in the manifest before its version is published.
//! 2. A file is removed only after the edit that forgets it is durable and nobody looks at it any more.
//! 3. Names and ids given to the log exist in the manifest first; ids are never given out twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName, KeyspaceId, TreeId};
use crate::base::reserve::Grant;
use crate::base::settings::KeyspaceSettings;
use crate::base::sync::{Arc, AtomicU64, Event, Mutex, MutexGuard, Ordering};
use crate::compact::job::NewFiles;
use crate::format::frames::{FramePoint, RECORDS_FROM};
use crate::format::manifest::{Change, State, edit_bytes};
use crate::io::env::Threads;
use crate::io::fork::{FORKED, ForkByte, ForkBytes};
use crate::levels::manifest::{ManifestFile, ManifestIdentity};
use crate::levels::store::StoreFile;
use crate::levels::version;
use crate::table::{TableFile, TableIdentity};
use crate::write::batch::Writable;
use crate::write::writer::Ends;

use super::Store;
use super::bearing::Bearing;
use super::edit::Edit;
use super::order::OrderGate;
use super::usual::Usual;

/// A keyspace, as its handles share it.
#[derive(Debug)]
pub(crate) struct Keyspace {
    pub(crate) id: KeyspaceId,
    pub(crate) name: String,
    /// Its only partition.
    pub(crate) tree: TreeId,
    /// One of the values below, [`FORKED`] in a forked process.
    state: ForkByte,
    settings: Mutex<KeyspaceSettings>,
    pub(super) bearing: Bearing,
    /// What its ranges mostly are.
    pub(crate) usual: Usual,
}

const LIVE: u8 = 1;
const DROPPED: u8 = 2;
const CLOSED: u8 = 3;
/// Of a stand-in for a keyspace that is read as of another store's snapshot.
const OF_ANOTHER_STORE: u8 = 4;

impl Keyspace {
    /// # Errors
    /// `Io` if there is no memory for its state.
    pub(crate) fn new(
        (id, tree): (KeyspaceId, TreeId),
        name: String,
        settings: KeyspaceSettings,
        bytes: &ForkBytes,
    ) -> Result<Keyspace> {
        let state = bytes.byte(LIVE)?;
        let (settings, bearing, usual) = (Mutex::new(settings), Bearing::new(), Usual::new());
        Ok(Keyspace { id, name, tree, state, settings, bearing, usual })
    }

    /// A stand-in, every read of which answers `Invalid`; `state` is from [`Keyspace::state_of_stand_ins`].
    pub(super) fn stand_in(&self, state: ForkByte) -> Keyspace {
        let (name, settings) = (self.name.clone(), Mutex::new(self.settings()));
        let (bearing, usual) = (Bearing::new(), Usual::new());
        Keyspace { id: self.id, name, tree: self.tree, state, settings, bearing, usual }
    }

    /// The state that all stand-ins of a store share.
    ///
    /// # Errors
    /// `Io` if there is no memory for it.
    pub(super) fn state_of_stand_ins(bytes: &ForkBytes) -> Result<ForkByte> {
        bytes.byte(OF_ANOTHER_STORE)
    }

    #[cfg(test)]
    pub(crate) fn is_dropped(&self) -> bool {
        self.state.load() == DROPPED
    }

    /// Whether it may be read and written now.
    #[inline]
    pub(crate) fn check_live(&self) -> Result<()> {
        match self.state.load() {
            LIVE => Ok(()),
            state => Err(self.error(state)),
        }
    }

    /// Whether it may be read as of a point, which `is_seen` says if it was dropped since.
    #[inline]
    pub(crate) fn check_live_at(&self, is_seen: impl FnOnce() -> bool) -> Result<()> {
        match self.state.load() {
            LIVE => Ok(()),
            DROPPED if is_seen() => Ok(()),
            state => Err(self.error(state)),
        }
    }

    /// Why it may not be read and written in that state.
    #[cold]
    fn error(&self, state: u8) -> Error {
        match state {
            FORKED => Error::Forked,
            DROPPED => Error::Dropped { name: self.name.clone() },
            OF_ANOTHER_STORE => {
                let name = &self.name;
                let fault = format!("keyspace {name:?} belongs to another open store than the snapshot");
                Error::Invalid { faults: vec![fault] }
            }
            _ => Error::Closed,
        }
    }

    pub(super) fn set_dropped(&self) {
        self.state.change(LIVE, DROPPED);
    }

    pub(super) fn set_closed(&self) {
        self.state.change(LIVE, CLOSED);
    }

    pub(crate) fn settings(&self) -> KeyspaceSettings {
        self.settings.lock().clone()
    }

    pub(super) fn set_settings(&self, settings: KeyspaceSettings) {
        *self.settings.lock() = settings;
    }
}

impl Writable for Keyspace {
    fn tree(&self) -> TreeId {
        self.tree
    }

    fn check_live(&self) -> Result<()> {
        Keyspace::check_live(self)
    }
}

/// What the manifest says, and the files that say it.
pub(crate) struct Catalog {
    pub(crate) state: State,
    pub(crate) manifest: ManifestFile,
    pub(crate) store_file: StoreFile,
    /// First ids not given out; those below the state's own counters are reserved.
    pub(crate) next_keyspace: u32,
    pub(crate) next_partition: u32,
    /// The memory of the catalog.
    pub(super) grant: Grant,
}

/// Roughly what a keyspace and a table take in memory, in all parts of the store together, in bytes.
pub(super) const KEYSPACE_BYTES: u64 = 768;
const TABLE_BYTES: u64 = 256;

impl Catalog {
    /// Grants itself the memory for what it holds now.
    pub(super) fn count_memory(&mut self) {
        let (keyspaces, tables) = (self.state.keyspaces.len() as u64, self.state.tables.len() as u64);
        self.grant.set(keyspaces * KEYSPACE_BYTES + tables * TABLE_BYTES);
    }

    pub(super) fn has_tree(&self, tree: TreeId) -> bool {
        self.state.partitions.get(&tree.partition).is_some_and(|one| one.keyspace == tree.keyspace)
    }
}

/// Holds the catalog while nobody changes it.
pub(crate) struct CatalogCell {
    /// Passed before the front of commits, by changes that have a place in their order.
    pub(super) order: OrderGate,
    free: Mutex<Option<Box<Catalog>>>,
    freed: Event,
    pub(super) keyspaces: Mutex<BTreeMap<String, Arc<Keyspace>>>,
    /// The same ones: background work asks for each tree.
    pub(super) by_tree: Mutex<BTreeMap<TreeId, Arc<Keyspace>>>,
    /// For the states of keyspaces, and the state of stand-ins.
    pub(super) states: ForkBytes,
    pub(super) stand_in: ForkByte,
    /// File numbers below `reserved` are STORE's promise never to be given out again.
    next_file: AtomicU64,
    reserved: AtomicU64,
    /// Checkpoints that wait for their flush. Counted up by who holds the catalog.
    pub(super) checkpoints: AtomicU64,
}

/// The catalog, taken; goes back when dropped.
pub(crate) struct Taken<'c> {
    cell: &'c CatalogCell,
    catalog: Option<Box<Catalog>>,
}

impl std::ops::Deref for Taken<'_> {
    type Target = Catalog;

    fn deref(&self) -> &Catalog {
        self.catalog.as_ref().expect("taken until dropped")
    }
}

impl std::ops::DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut Catalog {
        self.catalog.as_mut().expect("taken until dropped")
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let catalog = self.catalog.take();
        *self.cell.free.lock() = catalog;
        self.cell.freed.notify();
    }
}

/// Lengths of the logs together.
pub(super) fn log_bytes(state: &State) -> u64 {
    state.logs.values().map(|log| log.bytes).sum()
}

impl CatalogCell {
    /// `next_file` is the first number not given out; STORE has reserved up to what its live record says.
    ///
    /// # Errors
    /// `Io` if there is no memory for a state.
    pub(crate) fn new(
        catalog: Catalog,
        (keyspaces, states): (Vec<Arc<Keyspace>>, ForkBytes),
        next_file: u64,
    ) -> Result<CatalogCell> {
        let reserved = catalog.store_file.live().next_file_number;
        let by_tree = keyspaces.iter().map(|one| (one.tree, Arc::clone(one))).collect();
        let keyspaces = keyspaces.into_iter().map(|one| (one.name.clone(), one)).collect();
        Ok(CatalogCell {
            stand_in: Keyspace::state_of_stand_ins(&states)?,
            states,
            order: OrderGate::default(),
            free: Mutex::new(Some(Box::new(catalog))),
            freed: Event::new(),
            keyspaces: Mutex::new(keyspaces),
            by_tree: Mutex::new(by_tree),
            next_file: AtomicU64::new(next_file),
            reserved: AtomicU64::new(reserved),
            checkpoints: AtomicU64::new(0),
        })
    }

    pub(crate) fn take(&self, threads: &dyn Threads) -> Taken<'_> {
        loop {
            let seen = self.freed.seen();
            if let Some(catalog) = self.free.lock().take() {
                return Taken { cell: self, catalog: Some(catalog) };
            }
            threads.wait(&self.freed, seen, None);
        }
    }

    pub(super) fn names(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Keyspace>>> {
        self.keyspaces.lock()
    }
}

impl Store {
    /// Makes an edit durable, then visible.
    pub(super) fn edit(&self, edit: Edit<'_>) -> Result<()> {
        let mut catalog = self.catalog.take(&*self.env.threads);
        self.edit_taken(&mut catalog, edit)
    }

    pub(super) fn edit_taken(&self, catalog: &mut Catalog, edit: Edit<'_>) -> Result<()> {
        if let Some(error) = self.writer.latched() {
            return Err(error.clone());
        }
        self.make_manifest_room(catalog, edit.changes())?;
        let version_changes = edit.version_changes(&catalog.state);
        // Before the manifest: an edit that does not fit the state must never get to the disk.
        catalog.state.apply_edit(edit.changes()).expect("edits are made from the state they change");
        self.append(catalog, edit.changes())?;
        catalog.count_memory();
        if version_changes.is_empty() && edit.flushed().is_empty() {
            return Ok(());
        }
        let before = {
            let pin = self.epoch.pin();
            Arc::clone(&self.views.load(&pin).get().version)
        };
        let touched: BTreeSet<TreeId> = version_changes.iter().map(version::Change::tree).collect();
        let after = Arc::new(before.after(version_changes));
        debug_assert!(touched.iter().all(|tree| agrees(&catalog.state, &after, *tree)), "edits tell all");
        // No other tree has lost a table.
        for file in touched.iter().flat_map(|tree| table_files(&before, *tree)) {
            if !catalog.state.tables.contains_key(&file.name().number) {
                file.mark_obsolete();
            }
        }
        self.views.publish(after, edit.flushed());
        drop(before);
        self.work.merge_queue.note_all(touched);
        self.epoch.collect();
        if !self.discarded.is_empty() {
            // Readers that are pinned now may keep files, and tell nobody of their end.
            self.discarded.notify();
        }
        Ok(())
    }

    /// Rewrites the manifest if it has no room or is mostly history. Where the disk has no room for a new
    /// one, an edit that may give some back goes into what is kept of the old one for it.
    fn make_manifest_room(&self, catalog: &mut Catalog, changes: &[Change]) -> Result<()> {
        if catalog.manifest.must_rewrite(&catalog.state) || !catalog.manifest.has_room(changes) {
            let rewritten = self.rewrite_manifest(catalog, changes);
            match rewritten {
                Err(Error::Full { .. }) if changes.iter().all(Change::frees) => {
                    return match catalog.manifest.has_reserved_room(changes) {
                        true => Ok(()),
                        false => rewritten,
                    };
                }
                _ => rewritten?,
            }
        }
        if !catalog.manifest.has_room(changes) {
            let limit = catalog.manifest.place().bytes;
            return Err(Error::TooLarge { what: "manifest", limit, given: edit_bytes(changes) });
        }
        Ok(())
    }

    /// Has the files of a store that is closed say once more where they end. The manifest promises the ends
    /// of the logs, if it has room for it, and forgets a log that was not used: then none of them can be an
    /// older copy of itself, nor a block in another's place take the last record and what vouches for it. A
    /// slot of the log and the manifest's other one say so too.
    pub(super) fn vouch_for_ends(&self, catalog: &mut Catalog, ends: &Ends) -> Result<()> {
        let storage = &*self.env.storage;
        if let Some((file, offset, page)) = &ends.slot {
            storage.write(*file, *offset, page)?;
        }
        let is_news = |(file, end): &&(FileName, FramePoint)| {
            let log = catalog.state.logs.get(&file.number);
            end.bytes > RECORDS_FROM && log.is_some_and(|log| log.promise.is_none())
        };
        let promised =
            |(file, end): &(FileName, FramePoint)| Change::LogPromised { number: file.number, end: *end };
        let mut changes: Vec<Change> = ends.logs.iter().filter(is_news).map(promised).collect();
        changes.extend(ends.standby.map(|log| Change::LogRemoved { number: log.number }));
        if !changes.is_empty() && catalog.manifest.has_room(&changes) {
            catalog.state.apply_edit(&changes).expect("edits are made from the state they change");
            self.append(catalog, &changes)?;
            ends.standby.into_iter().for_each(|log| self.remove_quietly(log));
        }
        catalog.manifest.vouch_again(storage)
    }

    fn append(&self, catalog: &mut Catalog, changes: &[Change]) -> Result<()> {
        let appended = catalog.manifest.append(&*self.env.storage, changes);
        match &appended {
            Ok(()) => {}
            Err(Error::Full { .. }) if self.take_back(catalog) => {}
            // How much of the edit reached the disk is not known.
            Err(error) => self.writer.latch(error),
        }
        appended
    }

    /// Makes the state what the manifest says again, after a full disk refused an edit; `false` if it cannot.
    fn take_back(&self, catalog: &mut Catalog) -> bool {
        if self.reload(catalog) {
            return true;
        }
        // What was written of the edit may read back whole, if the rest of it is zeros: wiped before anything
        // is done on the strength of its not being there.
        catalog.manifest.make_durable(&*self.env.storage).is_ok() && self.reload(catalog)
    }

    /// Takes state and manifest as they are on disk, if no edit is there that should not be.
    fn reload(&self, catalog: &mut Catalog) -> bool {
        match ManifestFile::load(&*self.env.storage, catalog.store_file.live()) {
            Ok((state, manifest)) if manifest.edit_count() == catalog.manifest.edit_count() => {
                (catalog.state, catalog.manifest) = (state, manifest);
                true
            }
            _ => false,
        }
    }

    pub(super) fn rewrite_manifest(&self, catalog: &mut Catalog, changes: &[Change]) -> Result<()> {
        let storage = &*self.env.storage;
        let old = catalog.manifest.file();
        let number = self.next_file_in(catalog)?;
        let identity = ManifestIdentity {
            number,
            uid: self.env.random.u64(),
            store_id: self.store_id,
            bytes_min: self.settings.manifest_bytes.max(4 * edit_bytes(changes)),
        };
        let manifest = ManifestFile::create(storage, &identity, &catalog.state)?;
        self.sync_directory()?;
        let switched = catalog.store_file.switch_manifest(storage, manifest.place());
        if let Err(error) = &switched {
            self.writer.latch(error);
        }
        switched?;
        catalog.manifest = manifest;
        self.remove_quietly(old);
        Ok(())
    }

    /// Makes new names durable. One that failed may never be known to have succeeded: it latches.
    pub(super) fn sync_directory(&self) -> Result<()> {
        self.env.storage.sync_directory().inspect_err(|error| self.writer.latch(error))
    }

    /// Removes new files of an edit that failed, unless the manifest may name them all the same: how much of
    /// an edit reached the disk is not known when it latched the store.
    pub(super) fn remove_unnamed(&self, files: impl IntoIterator<Item = FileName>) {
        if self.writer.latched().is_none() {
            files.into_iter().for_each(|file| self.remove_quietly(file));
        }
    }

    /// Removes a file that nothing names any more. What fails is tried again at the next open.
    pub(super) fn remove_quietly(&self, file: FileName) {
        if let Err(error) = self.env.storage.remove(file) {
            log::warn!("{file} is not needed and could not be removed: {error}");
        }
    }

    /// A file number that was never given out.
    pub(super) fn next_file(&self) -> Result<u64> {
        let next = self.catalog.next_file.load(Ordering::Relaxed);
        if next < self.catalog.reserved.load(Ordering::Acquire) {
            let number = self.catalog.next_file.fetch_add(1, Ordering::Relaxed);
            if number < self.catalog.reserved.load(Ordering::Acquire) {
                return Ok(number);
            }
        }
        let mut catalog = self.catalog.take(&*self.env.threads);
        self.next_file_in(&mut catalog)
    }

    pub(super) fn next_file_in(&self, catalog: &mut Catalog) -> Result<u64> {
        // Closed, which latches before it takes the catalog: STORE may be another's by now.
        if let Some(error) = self.writer.latched() {
            return Err(error.clone());
        }
        let number = self.catalog.next_file.fetch_add(1, Ordering::Relaxed);
        if number >= self.catalog.reserved.load(Ordering::Acquire) {
            if let Err(error) = catalog.store_file.reserve_file_numbers(&*self.env.storage) {
                if !matches!(error, Error::Full { .. }) {
                    self.writer.latch(&error);
                }
                return Err(error);
            }
            self.catalog.reserved.store(catalog.store_file.live().next_file_number, Ordering::Release);
        }
        Ok(number)
    }

    /// Name and uid for a new table.
    pub(super) fn new_table(&self) -> Result<TableIdentity> {
        let file = FileName::new(FileKind::Table, self.next_file()?);
        Ok(TableIdentity { file, uid: self.env.random.u64(), store_id: self.store_id })
    }
}

/// Gives jobs the names of the files they make.
pub(super) struct StoreFiles(pub(super) Arc<Store>);

impl NewFiles for StoreFiles {
    fn next(&self) -> Result<TableIdentity> {
        self.0.new_table()
    }
}

/// Whether the version has of a tree what the manifest says.
fn agrees(state: &State, version: &version::Version, tree: TreeId) -> bool {
    let has_partition = state.partitions.contains_key(&tree.partition);
    let named: BTreeSet<(u64, u32, u64, u64)> = state
        .slices(tree.partition)
        .map(|(table, index, slice)| (table, index, u64::from(slice.level), slice.run))
        .collect();
    let Some(tree) = version.tree(tree) else { return !has_partition && named.is_empty() };
    let there = tree.spots().map(|(spot, placed)| {
        let (table, index) = placed.name();
        (table, index, spot.level as u64, spot.run)
    });
    has_partition && there.collect::<BTreeSet<_>>() == named
}

fn table_files(version: &version::Version, tree: TreeId) -> impl Iterator<Item = &Arc<TableFile>> {
    version.tree(tree).into_iter().flat_map(|tree| tree.tables()).map(|(_, placed)| placed.table.file())
}

#[cfg(test)]
mod tests;
