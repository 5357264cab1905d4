//! The catalog: manifest, STORE and keyspaces, changed by one thread at a time.
//!
//! A thread that changes the catalog takes it out of its cell, does its I/O, and puts it back; other threads
//! wait. No lock is held meanwhile.
//!
//! Invariants:
//! 1. The manifest has a name or id before a log record uses it. The exceptions are partitions that log
//!    records make ([`Catalog::unwritten`]): the next edit of trees begins with them.
//! 2. Ids are never given out twice; ids of unwritten partitions are above all ids that the manifest has had.
//!
//! The changes are made in `edits`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::Result;
use crate::base::id::TreeId;
use crate::base::reserve::Grant;
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Event, Mutex, MutexGuard};
use crate::format::manifest::{ManifestChange, ManifestState};
use crate::io::env::Threads;
use crate::io::fork::{ForkByte, ForkBytes};
use crate::levels::manifest::{ManifestFile, UNWRITTEN_EDIT_BYTES};
use crate::levels::store::StoreFile;
use crate::wal::made::changes_of_made;

use super::keyspace::KeyspaceState;
use super::partitions::Partitions;

/// The state in the manifest, and the files that hold it.
pub(crate) struct Catalog {
    pub(crate) state: ManifestState,
    pub(crate) manifest: ManifestFile,
    pub(crate) store_file: StoreFile,
    /// The next keyspace id to give out; the manifest reserves the ids below the state's own counter. Ids of
    /// partitions are not reserved: the state's counter is their next id.
    pub(crate) next_keyspace: u32,
    /// Partitions that the state has and the manifest lacks.
    pub(in crate::engine) unwritten: Vec<Arc<KeyspaceState>>,
    /// The memory of the catalog.
    pub(in crate::engine) grant: Grant,
    /// Changes since the state was copied for a new manifest, while that manifest is written.
    pub(in crate::engine) since_copy: Option<Vec<ManifestChange>>,
}

/// Approximate bytes of a keyspace or partition, and of a table, in all parts of the store together.
pub(in crate::engine) const KEYSPACE_BYTES: u64 = 768;
const TABLE_BYTES: u64 = 256;

/// The most unwritten partitions. If there would be more, an edit writes the new one and all of these to the
/// manifest.
const UNWRITTEN_MAX: usize = 64;
/// Most bytes of their names together: every edit has room for them, also on a full disk.
const UNWRITTEN_BYTES_MAX: usize = 1024;
// For each a tag, two ids, the length of its name, and the name; then the edit's own head.
const _: () = assert!(UNWRITTEN_MAX * 11 + UNWRITTEN_BYTES_MAX + 64 <= UNWRITTEN_EDIT_BYTES);

impl Catalog {
    /// The catalog as an opening found it.
    pub(in crate::engine) fn new(
        mut state: ManifestState,
        (manifest, store_file): (ManifestFile, StoreFile),
        unwritten: Vec<Arc<KeyspaceState>>,
        grant: Grant,
    ) -> Catalog {
        state.next_partition = state.next_partition.max(1);
        let (next_keyspace, since_copy) = (state.next_keyspace.max(1), None);
        let mut catalog =
            Catalog { state, manifest, store_file, next_keyspace, unwritten, grant, since_copy };
        catalog.count_memory();
        catalog
    }

    /// The changes that add the unwritten partitions to the manifest.
    pub(in crate::engine) fn unwritten_changes(&self) -> Vec<ManifestChange> {
        let made = self.unwritten.iter().filter_map(|one| Some((one.tree, one.partition_name()?)));
        changes_of_made(self.state.next_keyspace, made)
    }

    /// An edit as the manifest stores it: it begins with the unwritten partitions.
    pub(in crate::engine) fn with_unwritten<'c>(
        &self,
        changes: &'c [ManifestChange],
    ) -> Cow<'c, [ManifestChange]> {
        if self.unwritten.is_empty() {
            return Cow::Borrowed(changes);
        }
        Cow::Owned([&self.unwritten_changes(), changes].concat())
    }

    /// Whether partitions of these names may be made before the manifest has them: it has room for them
    /// beside the space that is reserved for a full disk.
    pub(in crate::engine) fn has_unwritten_room(&self, names: &BTreeSet<&[u8]>) -> bool {
        let there = self.unwritten.iter().filter_map(|one| one.partition_name());
        let bytes: usize = there.chain(names.iter().copied()).map(<[u8]>::len).sum();
        let count = self.unwritten.len() + names.len();
        count <= UNWRITTEN_MAX
            && bytes <= UNWRITTEN_BYTES_MAX
            && self.manifest.admits_made_partitions()
            && self.manifest.has_room_for(UNWRITTEN_EDIT_BYTES)
    }

    /// Marks the unwritten partitions as written: the manifest has all of them.
    pub(in crate::engine) fn note_written(&mut self) {
        self.unwritten.drain(..).for_each(|partition| partition.set_unwritten(false));
    }

    /// Sets the memory grant to the size of the present contents.
    pub(in crate::engine) fn count_memory(&mut self) {
        // A keyspace that is not divided has one partition.
        let keyspaces = self.state.keyspaces.len().max(self.state.partitions.len()) as u64;
        let tables = self.state.tables.len() as u64;
        self.grant.set(keyspaces * KEYSPACE_BYTES + tables * TABLE_BYTES);
    }

    /// The state, unless the manifest has an older format without the change that removes a whole table.
    pub(in crate::engine) fn whole_tables(&self) -> Option<&ManifestState> {
        (!self.manifest.is_older()).then_some(&self.state)
    }

    pub(in crate::engine) fn has_tree(&self, tree: TreeId) -> bool {
        self.state.has_tree(tree)
    }
}

/// Holds the catalog while no thread changes it.
pub(crate) struct CatalogCell {
    free: Mutex<Option<Box<Catalog>>>,
    freed: Event,
    pub(in crate::engine) keyspaces: Mutex<BTreeMap<String, Arc<KeyspaceState>>>,
    /// Keyspaces and partitions that have a tree: background work looks up each tree.
    pub(in crate::engine) by_tree: Mutex<BTreeMap<TreeId, Arc<KeyspaceState>>>,
    /// Bytes for the states of keyspaces, and the state of stand-ins.
    pub(in crate::engine) states: ForkBytes,
    pub(in crate::engine) stand_in: ForkByte,
    /// STORE guarantees that file numbers below `reserved` are never given out again.
    pub(super) next_file: AtomicU64,
    pub(super) reserved: AtomicU64,
    /// The manifest is to be rewritten soon.
    pub(super) wants_manifest: AtomicBool,
    /// Checkpoints that wait for their flush. The holder of the catalog increments the count.
    pub(in crate::engine) checkpoints: AtomicU64,
}

/// The catalog, taken out of its cell; the drop puts it back.
pub(crate) struct CatalogGuard<'c> {
    cell: &'c CatalogCell,
    catalog: Option<Box<Catalog>>,
}

impl std::ops::Deref for CatalogGuard<'_> {
    type Target = Catalog;

    fn deref(&self) -> &Catalog {
        self.catalog.as_ref().expect("taken until dropped")
    }
}

impl std::ops::DerefMut for CatalogGuard<'_> {
    fn deref_mut(&mut self) -> &mut Catalog {
        self.catalog.as_mut().expect("taken until dropped")
    }
}

impl Drop for CatalogGuard<'_> {
    fn drop(&mut self) {
        let catalog = self.catalog.take();
        *self.cell.free.lock() = catalog;
        self.cell.freed.notify();
    }
}

/// Lengths of the logs together.
pub(in crate::engine) fn log_bytes(state: &ManifestState) -> u64 {
    state.logs.values().map(|log| log.bytes).sum()
}

impl CatalogCell {
    /// `next_file` is the first number not given out; STORE has reserved numbers up to the one in its live
    /// record.
    ///
    /// # Errors
    /// `Io` if there is no memory for a state.
    pub(crate) fn new(
        catalog: Catalog,
        (keyspaces, states): (Vec<Arc<KeyspaceState>>, ForkBytes),
        next_file: u64,
    ) -> Result<CatalogCell> {
        let reserved = catalog.store_file.live().next_file_number;
        let partitions = keyspaces.iter().filter_map(|one| one.partitions()).flat_map(Partitions::all);
        let whole = keyspaces.iter().filter(|one| one.partitions().is_none()).map(Arc::clone);
        let by_tree = whole.chain(partitions).map(|one| (one.tree, one)).collect();
        let keyspaces = keyspaces.into_iter().map(|one| (one.name.clone(), one)).collect();
        Ok(CatalogCell {
            stand_in: KeyspaceState::state_of_stand_ins(&states)?,
            states,
            free: Mutex::new(Some(Box::new(catalog))),
            freed: Event::new(),
            keyspaces: Mutex::new(keyspaces),
            by_tree: Mutex::new(by_tree),
            next_file: AtomicU64::new(next_file),
            reserved: AtomicU64::new(reserved),
            wants_manifest: AtomicBool::new(false),
            checkpoints: AtomicU64::new(0),
        })
    }

    pub(crate) fn take(&self, threads: &dyn Threads) -> CatalogGuard<'_> {
        loop {
            let seen = self.freed.seen();
            if let Some(catalog) = self.free.lock().take() {
                return CatalogGuard { cell: self, catalog: Some(catalog) };
            }
            threads.wait(&self.freed, seen, None);
        }
    }

    pub(in crate::engine) fn names(&self) -> MutexGuard<'_, BTreeMap<String, Arc<KeyspaceState>>> {
        self.keyspaces.lock()
    }
}
