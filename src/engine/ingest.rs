//! Ingests: items in the order of their keys, written into tables of their own, past log and memtable.
//!
//! The caller's thread builds the tables while it puts items. They are cut as merges cut them, and are not
//! part of the store until [`publish`] adds them by one edit of the manifest. Until then an ingest does not
//! read the tree's items. One thread an ingest; any number of ingests and writers at once.
//!
//! Invariants:
//! 1. The tables are ascending and disjoint, each key once: a key that does not come after the key before
//!    ends the ingest.
//! 2. An ingest that fails, is abandoned or dropped removes the files that it made. If the store was closed
//!    meanwhile, the next opening removes them, as after a crash.
//! 3. Its memory is one table builder's, which the cache leaves free meanwhile; a table ends early where that
//!    does not suffice.
//!
//! Where keys divide the keyspace, partitions lie in the order of their keys: each has a slice of a table, or
//! tables of its own if it is large. A missing partition is made when its first item comes.

pub(super) mod publish;

use crate::base::error::{Error, Result};
use crate::base::id::{ItemKind, TreeId};
use crate::base::reserve::{Grant, Role};
use crate::base::sync::{Arc, Ordering};
use crate::compact::shape::table_bytes;
use crate::levels::version::Version;
use crate::table::{BuiltTable, Otherwise, PageRank, SliceShape, TableBuilder};
use crate::write::batch::check_item;

use super::slices;
use super::store::Store;
use crate::engine::background::work::MemoryPart;
use crate::engine::publish::keyspace::KeyspaceState;
use publish::{Publish, PublishStep, check};

/// A table that takes less memory than this is not ended for want of memory.
const TABLE_MEMORY_BYTES_MIN: usize = 64 << 10;
/// From this length on, a file is not continued with the next partition: the drop of a partition then gives
/// its space back at once.
const SHARED_FILE_BYTES: u64 = 1 << 20;
/// Items between two updates of the memory accounts, with a check whether the store is still open.
const LOOK_ITEMS: u64 = 256;

/// An ingest under way.
pub(crate) struct IngestWriter {
    store: Arc<Store>,
    keyspace: Arc<KeyspaceState>,
    /// The targets of the items, in the order of their keys: the keyspace, or its partitions that have some.
    targets: Vec<Arc<KeyspaceState>>,
    /// The table being built; it has an item.
    builder: Option<TableBuilder>,
    /// Finished tables. The ingest removes their files unless they are published.
    tables: Vec<BuiltTable>,
    /// The key put last.
    last: Vec<u8>,
    items: u64,
    key_value_bytes: u64,
    /// Bytes of finished tables.
    table_bytes: u64,
    /// Items, and bytes of finished tables, when the last target's first item came.
    before_target: (u64, u64),
    /// Length at which the table being built ends.
    cut_bytes: u64,
    /// The error that ended the ingest.
    failed: Option<Error>,
    /// Held while tables are built.
    memory: Option<Memory>,
}

/// Memory that the cache leaves to an ingest.
struct Memory {
    store: Arc<Store>,
    part: MemoryPart,
    bytes: u64,
    _grant: Grant,
}

impl Memory {
    /// Takes as much as all merges may take, divided by the number of ingests under way.
    fn borrow(store: &Arc<Store>) -> Memory {
        let begun = store.work.ingests_begun.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = store.budget.merges_bytes() / begun;
        store.work.ingest_memory_bytes.fetch_add(bytes, Ordering::Relaxed);
        let grant = store.cache.reserve().grant(Role::Ingests, bytes);
        Memory { store: Arc::clone(store), part: MemoryPart::default(), bytes, _grant: grant }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.part.set(&self.store.work, 0);
        self.store.work.ingest_memory_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.store.work.ingests_begun.fetch_sub(1, Ordering::Relaxed);
    }
}

impl IngestWriter {
    /// Begins an ingest; no file is made yet.
    ///
    /// # Errors
    /// The error that forbids writes to the keyspace.
    pub(crate) fn begin(store: &Arc<Store>, keyspace: &Arc<KeyspaceState>) -> Result<IngestWriter> {
        check(store)?;
        keyspace.check_live()?;
        if keyspace.is_scattered() {
            let fault =
                format!("an ingest into {:?}, which a function divides: write batches", keyspace.name);
            return Err(Error::Invalid { faults: vec![fault] });
        }
        let is_whole = !keyspace.is_divided_by_keys();
        Ok(IngestWriter {
            store: Arc::clone(store),
            keyspace: Arc::clone(keyspace),
            targets: is_whole.then(|| Arc::clone(keyspace)).into_iter().collect(),
            builder: None,
            tables: Vec::new(),
            last: Vec::new(),
            items: 0,
            key_value_bytes: 0,
            table_bytes: 0,
            before_target: (0, 0),
            cut_bytes: 0,
            failed: None,
            memory: Some(Memory::borrow(store)),
        })
    }

    /// Items put so far.
    pub(crate) fn items(&self) -> u64 {
        self.items
    }

    /// Bytes of their keys and values.
    pub(crate) fn key_value_bytes(&self) -> u64 {
        self.key_value_bytes
    }

    /// Adds an item. An item that is too large is refused and changes nothing; after any other error the
    /// ingest is over, and its files are removed.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        // Before any call of `give_up`, which removes files.
        self.store.check_process()?;
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        check_item(key, value)?;
        self.add(key, value).inspect_err(|error| self.give_up(error))
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.items > 0 && key <= self.last.as_slice() {
            let (key, before) = (key.to_vec(), self.last.clone());
            return Err(Error::NotAscending { items: self.items, key, before });
        }
        if self.items.is_multiple_of(LOOK_ITEMS) {
            self.look()?;
        }
        if self.is_table_due() {
            self.end_table()?;
        }
        if self.keyspace.is_divided_by_keys() {
            self.enter_partition(key)?;
        }
        if self.builder.is_none() {
            self.builder = Some(self.begin_table()?);
        }
        let builder = self.builder.as_mut().expect("made above if there was none");
        let hash = self.store.owner.secret.hash_in(self.keyspace.id, key);
        builder.add(key, hash, ItemKind::Put, value)?;
        self.last.clear();
        self.last.extend_from_slice(key);
        self.items += 1;
        self.key_value_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Continues with the partition that has the key.
    fn enter_partition(&mut self, key: &[u8]) -> Result<()> {
        let partitions = self.keyspace.partitions().expect("keys divide it");
        let name = partitions.rule.name_of(key)?;
        if self.targets.last().is_some_and(|last| last.partition_name() == Some(&*name)) {
            return Ok(());
        }
        self.check()?;
        let partition = self.store.partition(&self.keyspace, &name)?;
        let tree = partition.tree;
        self.targets.push(partition);
        // Slices of a file are in the order of their trees, which is the order in which partitions were made.
        let goes_on =
            |builder: &TableBuilder| builder.is_before(tree) && builder.file_bytes() < SHARED_FILE_BYTES;
        if !self.builder.as_ref().is_none_or(goes_on) {
            self.end_table()?;
        }
        self.before_target = (self.items, self.table_bytes);
        let (tree, slice) = self.slice();
        if let Some(builder) = &mut self.builder {
            builder.end()?;
            builder.begin(tree, slice)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        check(&self.store)?;
        self.keyspace.check_live()?;
        self.targets.last().map_or(Ok(()), |target| target.check_live())
    }

    fn look(&mut self) -> Result<()> {
        self.check()?;
        let bytes = self.builder.as_ref().map_or(0, TableBuilder::memory_bytes);
        if let Some(memory) = &mut self.memory {
            memory.part.set(&self.store.work, bytes);
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.bytes as usize)
    }

    /// Whether the table being built is long enough, or takes half of the memory; its end takes some more.
    fn is_table_due(&self) -> bool {
        let memory_bytes_max = (self.memory_bytes() / 2).max(TABLE_MEMORY_BYTES_MIN);
        self.builder.as_ref().is_some_and(|builder| {
            builder.file_bytes() >= self.cut_bytes || builder.growing_bytes() > memory_bytes_max
        })
    }

    fn begin_table(&mut self) -> Result<TableBuilder> {
        self.check()?;
        // As merges cut them, by the bytes of the run so far.
        let most = self.keyspace.settings().table_bytes.min(self.store.budget.table_bytes_max());
        let least = if self.targets.len() > 1 { SHARED_FILE_BYTES.min(most) } else { 0 };
        self.cut_bytes = table_bytes(self.table_bytes - self.before_target.1, most).max(least);
        let (tree, slice) = self.slice();
        let mut builder = TableBuilder::new(Arc::clone(&self.store.env.storage), self.store.new_table()?)?;
        builder.set_memory_bytes(self.memory_bytes());
        builder.open_with(self.store.opening(PageRank::LastFilters, Otherwise::Leave));
        builder.begin(tree, slice)?;
        Ok(builder)
    }

    /// The tree and the shape of the next slice.
    fn slice(&self) -> (TreeId, SliceShape) {
        let tree = self.targets.last().expect("an item was put").tree;
        let (version, settings) = (self.version(), self.keyspace.settings());
        let items = self.items - self.before_target.0;
        (tree, slices::of_ingest(&settings, version.tree(tree), items))
    }

    fn version(&self) -> Arc<Version> {
        let pin = self.store.epoch.pin();
        Arc::clone(&self.store.views.load(&pin).get().version)
    }

    fn end_table(&mut self) -> Result<()> {
        if let Some(mut builder) = self.builder.take() {
            builder.end()?;
            let table = builder.finish()?;
            self.table_bytes += table.summary.bytes;
            self.tables.push(table);
        }
        Ok(())
    }

    /// Publishes all items at once, durably.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.store.check_process()?;
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let finished = self.complete().and_then(|tables| match tables.is_empty() {
            true => Ok(()),
            false => publish(&self.store, &self.targets, tables),
        });
        if let Err(error) = &finished {
            self.give_up(error);
            return finished;
        }
        self.published();
        Ok(())
    }

    /// Counts the ingest: the tables belong to the store now.
    pub(in crate::engine) fn published(&mut self) {
        self.tables.clear();
        if self.items > 0 {
            self.store.work.ingests.fetch_add(1, Ordering::Relaxed);
            self.store.work.ingest_bytes.fetch_add(self.table_bytes, Ordering::Relaxed);
            self.store.pin_more();
            self.store.measure_pressure();
        }
    }

    /// The targets of the tables.
    #[cfg(test)]
    pub(in crate::engine) fn targets(&self) -> &[Arc<KeyspaceState>] {
        &self.targets
    }

    /// The finished tables, opened; they and their names are durable.
    pub(in crate::engine) fn complete(&mut self) -> Result<Vec<BuiltTable>> {
        self.check()?;
        self.end_table()?;
        self.memory = None;
        if self.tables.is_empty() {
            return Ok(Vec::new());
        }
        self.store.sync_directory()?;
        Ok(self.tables.clone())
    }

    /// Ends the ingest with an error, and removes its files.
    fn give_up(&mut self, error: &Error) {
        self.failed = Some(error.clone());
        self.remove_files();
        self.memory = None;
    }

    fn remove_files(&mut self) {
        let (builder, tables) = (self.builder.take(), std::mem::take(&mut self.tables));
        match self.store.is_closed() {
            // The directory may belong to another process by now.
            true => builder.into_iter().for_each(TableBuilder::leave),
            false => self.store.remove_unnamed(tables.iter().map(|built| built.summary.identity.file)),
        }
    }
}

impl Drop for IngestWriter {
    fn drop(&mut self) {
        if self.store.is_forked() {
            // The files, and the memory that the cache leaves, belong to the other process.
            std::mem::forget((self.builder.take(), self.memory.take()));
            return;
        }
        self.remove_files();
    }
}

impl std::fmt::Debug for IngestWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.keyspace.name;
        f.debug_struct("Ingest").field("keyspace", name).field("items", &self.items).finish_non_exhaustive()
    }
}

/// Drives [`Publish`] on the caller's thread.
fn publish(store: &Arc<Store>, targets: &[Arc<KeyspaceState>], tables: Vec<BuiltTable>) -> Result<()> {
    let mut publish = Publish::new(store, targets, tables);
    loop {
        match publish.turn()? {
            PublishStep::Done => return Ok(()),
            PublishStep::Again => {}
            PublishStep::Wait => {
                let (event, seen) = publish.waits_for();
                store.env.threads.wait(event, seen, None);
            }
        }
    }
}

#[cfg(test)]
mod tests;
