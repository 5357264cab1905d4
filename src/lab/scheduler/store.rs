//! The public interface of the partition scheduler: partitions, writes, reads, statistics.
//!
//! It connects the parts. `open` has the opening, and `flush` the path from the memtable to level 0 and the
//! sub-trees. One thread at a time may use it.
//!
//! Invariant: after a failed write every read and write is refused until the next opening, since memory and
//! disk may differ.

use std::collections::{BTreeMap, BTreeSet};

use super::buffer::FlushBuffer;
use super::catalog::SchedulerCatalog;
use super::datatable::L0Files;
use super::edit::{BlockEntry, SchedulerEdit};
use super::index::L0Index;
use super::journal::Journal;
use super::options::PartitionSchedulerOptions;
use crate::base::error::{Error, Result};
use crate::base::id::{FileName, ItemKind};
use crate::base::sync::{Arc, Ordering};
use crate::lab::array::{ArrayShape, ArrayStream, Searched, Want};
use crate::lab::cascade::{CascadeCounts, Component};
use crate::lab::knobs::{Knobs, invalid};
use crate::lab::memory::Lengths;
use crate::lab::pages::{Buffer, PageReader};
use crate::lab::store::HeldEnv;
use crate::merge::{MergeItem, MergeSource};

/// Tag of frames of the log.
pub(super) const LOG_TAG: u8 = 3;
/// Marks the number of a log among the lab's files.
pub(super) const LOG: u64 = 1 << 61;
/// Bytes of a memtable's item beside its key and value: its partition and kind.
const MEMTABLE_OVERHEAD_BYTES: u64 = 5;

/// The state of a partition in memory.
#[derive(Debug)]
pub(super) struct SubTree {
    pub(super) buffer: FlushBuffer,
    pub(super) index: L0Index,
    pub(super) components: Vec<Component>,
    /// Blocks of its level 0, including those of the current run.
    pub(super) l0_blocks: u32,
}

impl SubTree {
    pub(super) fn new(lengths: Lengths) -> SubTree {
        let (buffer, index) = (FlushBuffer::new(lengths), L0Index::default());
        SubTree { buffer, index, components: Vec::new(), l0_blocks: 0 }
    }

    /// Names of the files of its arrays.
    pub(super) fn files(&self) -> Vec<FileName> {
        files_of_components(&self.components)
    }
}

pub(super) fn files_of_components(components: &[Component]) -> Vec<FileName> {
    let arrays = components.iter().flat_map(|component| &component.arrays);
    arrays.flat_map(|array| array.files_named().map(|file| file.name)).collect()
}

/// The memtable: the last written items of all partitions.
#[derive(Default, Debug)]
pub(super) struct SharedMemtable {
    /// Sorted by partition, big-endian, and key; a deletion has no value.
    pub(super) items: BTreeMap<Vec<u8>, Option<Box<[u8]>>>,
    pub(super) bytes: u64,
    /// The oldest log with an item of the memtable.
    pub(super) first_log: u64,
}

impl SharedMemtable {
    pub(super) fn key(partition: u32, key: &[u8]) -> Vec<u8> {
        [&partition.to_be_bytes()[..], key].concat()
    }

    /// The partition and the key of an item.
    pub(super) fn split(key: &[u8]) -> (u32, &[u8]) {
        let (partition, key) = key.split_first_chunk().expect("a key of the memtable has a partition");
        (u32::from_be_bytes(*partition), key)
    }

    pub(super) fn put(&mut self, partition: u32, item: MergeItem<'_>) {
        let value = (item.kind == ItemKind::Put).then(|| item.value.into());
        let value_bytes = |value: &Option<Box<[u8]>>| value.as_ref().map_or(0, |value| value.len() as u64);
        self.bytes += value_bytes(&value);
        match self.items.insert(SharedMemtable::key(partition, item.key), value) {
            Some(old) => self.bytes -= value_bytes(&old),
            None => self.bytes += item.key.len() as u64 + MEMTABLE_OVERHEAD_BYTES,
        }
    }
}

/// Counters since the opening.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SchedulerCounts {
    pub(super) puts: u64,
    pub(super) key_value_bytes: u64,
    pub(super) schedules: u64,
    pub(super) schedule_syncs: u64,
    pub(super) schedule_files: u64,
    pub(super) schedule_ns: u64,
    pub(super) blocks: u64,
    pub(super) short_blocks: u64,
    pub(super) block_bytes: u64,
    pub(super) manifest_bytes: u64,
    pub(super) log_bytes: u64,
    pub(super) leftover_bytes_max: u64,
    pub(super) buffer_bytes_max: u64,
    pub(super) pinned_log_bytes_max: u64,
    pub(super) merges: CascadeCounts,
    pub(super) compactions: u64,
    pub(super) index_ns: u64,
    pub(super) index_page_reads: u64,
    pub(super) replayed_items: u64,
}

/// Statistics of a [`PartitionScheduler`]; counters start at its opening.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PartitionSchedulerStats {
    /// Number of partitions.
    pub partitions: u64,
    /// Writes accepted.
    pub puts: u64,
    /// Bytes of their keys and values.
    pub key_value_bytes: u64,
    /// Immutables that were scheduled.
    pub schedules: u64,
    /// Syncs of these schedules, without compactions.
    pub schedule_syncs: u64,
    /// Files created by these schedules, without compactions: logs, files of level 0, manifests.
    pub schedule_files: u64,
    /// Nanoseconds of these schedules, without compactions.
    pub schedule_ns: u64,
    /// Blocks appended to level 0.
    pub blocks: u64,
    /// Blocks among them that were not full.
    pub short_blocks: u64,
    /// Bytes of these blocks, and of their keys if the index is persistent.
    pub block_bytes: u64,
    /// Bytes of edits and of rewritten manifests.
    pub manifest_bytes: u64,
    /// Bytes of logs.
    pub log_bytes: u64,
    /// Merges of a partition's level 0 into its sub-tree.
    pub compactions: u64,
    /// Bytes that merges wrote.
    pub compaction_bytes: u64,
    /// Syncs of files and of the directory.
    pub syncs: u64,
    /// Bytes in flush buffers at present.
    pub leftover_bytes: u64,
    /// Most bytes in flush buffers, once the limit was kept.
    pub leftover_bytes_max: u64,
    /// Most bytes in write buffers and flush buffers: a write buffer exists while it is merged.
    pub buffer_bytes_max: u64,
    /// Bytes of logs that only flush buffers need.
    pub pinned_log_bytes: u64,
    /// Most of these bytes after a schedule.
    pub pinned_log_bytes_max: u64,
    /// Live blocks of level 0.
    pub l0_blocks: u64,
    /// Keys in the index of level 0.
    pub index_keys: u64,
    /// Memory of this index, estimated without asking the allocator.
    pub index_bytes: u64,
    /// Nanoseconds that the opening took to read or build it.
    pub index_ns: u64,
    /// Pages that the opening read for it.
    pub index_page_reads: u64,
    /// Items of logs that the opening replayed.
    pub replayed_items: u64,
    /// Pages read.
    pub page_reads: u64,
    /// Items in the memtable.
    pub memtable_items: u64,
    /// Files in the directory, without the lock.
    pub files: u64,
}

/// TridentKV's partition scheduler: one memtable and one log for many partitions, each with a level 0 of
/// blocks and a sub-tree of its own. It exists for a comparison with the store's own partitions.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use trine::lab::{PartitionScheduler, PartitionSchedulerOptions};
/// let mut options = PartitionSchedulerOptions::default();
/// (options.key_bytes, options.value_bytes) = (4, 2);
/// let mut store = PartitionScheduler::open(&dir.path().join("lab"), &options)?;
/// let first = store.create_partitions(2)?;
/// store.put(first, b"0001", b"ab")?;
/// store.put(first + 1, b"0001", b"cd")?;
/// store.drop_partition(first)?;
/// assert_eq!(store.get(first + 1, b"0001")?.as_deref(), Some(&b"cd"[..]));
/// store.close()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PartitionScheduler {
    pub(super) env: HeldEnv,
    pub(super) options: PartitionSchedulerOptions,
    /// The knobs of sub-trees.
    pub(super) knobs: Knobs,
    pub(super) shape: ArrayShape,
    pub(super) store_id: u128,
    pub(super) reader: Arc<PageReader>,
    pub(super) next_number: u64,
    pub(super) catalog: SchedulerCatalog,
    pub(super) trees: BTreeMap<u32, SubTree>,
    pub(super) l0: L0Files,
    pub(super) memtable: SharedMemtable,
    pub(super) manifest: (Option<FileName>, Journal),
    /// Length of the manifest after its last rewrite.
    pub(super) manifest_start_bytes: u64,
    pub(super) log: (u64, Journal),
    /// Earlier logs, and their bytes.
    pub(super) old_logs: BTreeMap<u64, u64>,
    /// Partitions with items in their flush buffers, sorted by bytes.
    pub(super) leftovers: BTreeSet<(u64, u32)>,
    pub(super) leftover_bytes: u64,
    pub(super) has_failed: bool,
    pub(super) counts: SchedulerCounts,
}

impl PartitionScheduler {
    /// Runs a write; after a failure every call is refused.
    pub(super) fn writing<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.check_health()?;
        self.has_failed = true;
        let done = work(self)?;
        self.has_failed = false;
        Ok(done)
    }

    fn check_health(&self) -> Result<()> {
        if self.has_failed {
            return Err(invalid("the scheduler failed to write before: open it again".to_owned()));
        }
        Ok(())
    }

    /// Creates `count` partitions, durably, and returns the first id; the ids are consecutive.
    ///
    /// # Errors
    /// The error of the device; every later call fails.
    pub fn create_partitions(&mut self, count: u32) -> Result<u32> {
        self.writing(|one| {
            let first = one.catalog.next_partition.max(1);
            let created: Vec<u32> = (first..first.saturating_add(count)).collect();
            one.edit(SchedulerEdit { created: created.clone(), ..SchedulerEdit::default() })?;
            let lengths = one.options.lengths();
            for id in created {
                one.trees.insert(id, SubTree::new(lengths));
            }
            Ok(first)
        })
    }

    /// Drops a partition and its items, durably, after all earlier writes. Its id is never reused.
    ///
    /// # Errors
    /// `Invalid` if there is no such partition; else as [`PartitionScheduler::create_partitions`].
    pub fn drop_partition(&mut self, partition: u32) -> Result<()> {
        self.tree(partition)?;
        self.writing(|one| {
            one.sync_log()?;
            one.edit(SchedulerEdit { dropped: vec![partition], ..SchedulerEdit::default() })?;
            let tree = one.trees.remove(&partition).expect("it was looked up");
            one.count_leftover(partition, tree.buffer.bytes(), 0);
            let mut rest = one.memtable.items.split_off(&SharedMemtable::key(partition, &[]));
            let behind = rest.split_off(&SharedMemtable::key(partition + 1, &[]));
            one.memtable.items.extend(behind);
            let bytes = |(key, value): (&Vec<u8>, &Option<Box<[u8]>>)| {
                (key.len() - 4 + value.as_ref().map_or(0, |value| value.len())) as u64
                    + MEMTABLE_OVERHEAD_BYTES
            };
            one.memtable.bytes -= rest.iter().map(bytes).sum::<u64>();
            one.remove_dead(tree.files())
        })
    }

    /// Writes a value under a key of a partition.
    ///
    /// # Errors
    /// `Invalid` if there is no such partition, or a length is not the scheduler's; else the error of
    /// scheduling the memtable.
    pub fn put(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<()> {
        if value.len() != self.options.value_bytes {
            let (given, all) = (value.len(), self.options.value_bytes);
            return Err(invalid(format!("a value of {given} bytes, and those of this store have {all}")));
        }
        self.write(partition, MergeItem { key, kind: ItemKind::Put, value })
    }

    /// Deletes a key of a partition.
    ///
    /// # Errors
    /// As [`PartitionScheduler::put`].
    pub fn delete(&mut self, partition: u32, key: &[u8]) -> Result<()> {
        self.write(partition, MergeItem { key, kind: ItemKind::Delete, value: &[] })
    }

    fn write(&mut self, partition: u32, item: MergeItem<'_>) -> Result<()> {
        self.check_health()?;
        self.check_key(item.key)?;
        self.tree(partition)?;
        if self.memtable.bytes >= self.options.memtable_bytes {
            self.schedule()?;
        }
        self.writing(|one| {
            let before = one.log.1.bytes();
            one.log.1.append(&[&partition.to_le_bytes(), &[item.kind as u8], item.key, item.value])?;
            one.counts.log_bytes += one.log.1.bytes() - before;
            if one.memtable.items.is_empty() {
                one.memtable.first_log = one.log.0;
            }
            one.memtable.put(partition, item);
            one.counts.puts += 1;
            one.counts.key_value_bytes += (item.key.len() + item.value.len()) as u64;
            Ok(())
        })
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// As [`PartitionScheduler::create_partitions`].
    pub fn sync(&mut self) -> Result<()> {
        self.writing(PartitionScheduler::sync_log)
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        let all = self.options.key_bytes;
        if key.len() == all {
            return Ok(());
        }
        Err(invalid(format!("a key of {} bytes, and those of this store have {all}", key.len())))
    }

    fn tree(&self, partition: u32) -> Result<&SubTree> {
        self.trees.get(&partition).ok_or_else(|| invalid(format!("there is no partition {partition}")))
    }

    /// The key's value: from the memtable, the flush buffer, level 0 by one page read, or the sub-tree.
    ///
    /// # Errors
    /// `Invalid` if there is no such partition, `Corrupt` if a page on the way is damaged, `Io`.
    pub fn get(&self, partition: u32, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check_health()?;
        self.check_key(key)?;
        let tree = self.tree(partition)?;
        if let Some(value) = self.memtable.items.get(&SharedMemtable::key(partition, key)) {
            return Ok(value.as_ref().map(|value| value.to_vec()));
        }
        let value_of = |item: MergeItem<'_>| (item.kind == ItemKind::Put).then(|| item.value.to_vec());
        if let Some(item) = tree.buffer.get(key) {
            return Ok(value_of(item));
        }
        let mut buffer = Buffer::pages(1);
        if let Some(slot) = tree.index.get(key) {
            let block = self.catalog.partitions[&partition].blocks[slot.block as usize];
            let item = self.l0.read_item(block, self.catalog.entry(block), slot.record, &mut buffer)?;
            if item.key != key {
                let (file, page) = (block.file, u64::from(block.page));
                let file = crate::lab::pages::array_name(file);
                return Err(Error::corrupt(file, page, "a key of the index", "the same", "another"));
            }
            return Ok(value_of(item));
        }
        for array in tree.components.iter().flat_map(|component| &component.arrays) {
            if !array.covers(key) {
                continue;
            }
            let searched = array.search(&self.reader, key, Want::Value, &mut buffer, &mut || false)?;
            if let Searched::Found(found) = searched {
                return Ok((found.kind == ItemKind::Put).then_some(found.value));
            }
        }
        Ok(None)
    }

    /// Passes every item of a partition to `each`, in key order. It reads the whole partition, and is for
    /// checks.
    ///
    /// # Errors
    /// As [`PartitionScheduler::get`].
    pub fn scan(&self, partition: u32, mut each: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.check_health()?;
        let tree = self.tree(partition)?;
        let mut all: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let mut add = |item: MergeItem<'_>| {
            all.insert(item.key.to_vec(), (item.kind == ItemKind::Put).then(|| item.value.to_vec()));
        };
        for array in tree.components.iter().rev().flat_map(|component| component.arrays.iter().rev()) {
            let mut stream = ArrayStream::new(Arc::clone(array), Arc::clone(&self.reader))?;
            while let Some(item) = stream.item() {
                add(item);
                stream.advance()?;
            }
        }
        let is_own = |entry: BlockEntry| entry.partition == partition;
        self.l0.scan(&self.catalog, is_own, |_, _, item| add(item))?;
        let items = tree.buffer.items();
        (0..items.len()).for_each(|index| add(items.item(index)));
        let (from, to) = (SharedMemtable::key(partition, &[]), SharedMemtable::key(partition + 1, &[]));
        for (key, value) in self.memtable.items.range(from..to) {
            let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
            let value = value.as_deref().unwrap_or_default();
            add(MergeItem { key: SharedMemtable::split(key).1, kind, value });
        }
        for (key, value) in &all {
            if let Some(value) = value {
                each(key, value);
            }
        }
        Ok(())
    }

    /// Ids of all partitions.
    pub fn partitions(&self) -> Vec<u32> {
        self.trees.keys().copied().collect()
    }

    /// Sizes and counters.
    ///
    /// # Errors
    /// The error of listing the directory.
    pub fn stats(&self) -> Result<PartitionSchedulerStats> {
        let (counts, storage) = (&self.counts, &self.env.0.storage);
        let key_bytes = self.options.key_bytes;
        Ok(PartitionSchedulerStats {
            partitions: self.trees.len() as u64,
            puts: counts.puts,
            key_value_bytes: counts.key_value_bytes,
            schedules: counts.schedules,
            schedule_syncs: counts.schedule_syncs,
            schedule_files: counts.schedule_files,
            schedule_ns: counts.schedule_ns,
            blocks: counts.blocks,
            short_blocks: counts.short_blocks,
            block_bytes: counts.block_bytes,
            manifest_bytes: counts.manifest_bytes,
            log_bytes: counts.log_bytes,
            compactions: counts.compactions,
            compaction_bytes: counts.merges.bytes,
            syncs: storage.counts().syncs,
            leftover_bytes: self.leftover_bytes,
            leftover_bytes_max: counts.leftover_bytes_max,
            buffer_bytes_max: counts.buffer_bytes_max,
            pinned_log_bytes: self.pinned_log_bytes(),
            pinned_log_bytes_max: counts.pinned_log_bytes_max,
            l0_blocks: self.catalog.partitions.values().map(|one| one.blocks.len() as u64).sum(),
            index_keys: self.trees.values().map(|tree| tree.index.len()).sum(),
            index_bytes: self.trees.values().map(|tree| tree.index.bytes(key_bytes)).sum(),
            index_ns: counts.index_ns,
            index_page_reads: counts.index_page_reads,
            replayed_items: counts.replayed_items,
            page_reads: self.reader.counts.pages.load(Ordering::Relaxed),
            memtable_items: self.memtable.items.len() as u64,
            files: crate::lab::store::files_of(&self.env.0)?.len() as u64,
        })
    }

    /// Makes all writes durable and closes. Dropping the scheduler instead loses unsynced writes, as a crash
    /// does.
    ///
    /// # Errors
    /// As [`PartitionScheduler::sync`].
    pub fn close(mut self) -> Result<()> {
        self.sync()
    }
}
