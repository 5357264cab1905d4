//! The path of items from the memtable to level 0 and on into sub-trees (TridentKV, section 3.3).
//!
//! Key mapping: the items of an immutable go to the write buffers of their partitions, one after another, and
//! each write buffer is merged into the flush buffer. Block flushing: full blocks of all flush buffers are
//! appended to one file of level 0 as one run. The remaining items stay in the flush buffers, and their logs
//! are kept. Table compaction: a partition whose level 0 has enough datatables merges them into its sub-tree.
//!
//! Added to the paper: a limit on flush buffers in bytes, kept by writing part-filled blocks of the largest;
//! a limit on the logs they pin, kept by writing part-filled blocks of the oldest; checksums and the order of
//! syncs.
//!
//! Invariants: 1. of one key, the item in a flush buffer is newer than those in level 0, and a later block is
//! newer than an earlier one; 2. log, blocks and arrays are durable before an edit that refers to them, and
//! files freed by an edit are removed after it.

use std::collections::BTreeMap;

use super::buffer::items_bytes;
use super::datatable::RunWriter;
use super::edit::{BlockEntry, L0FileMeta, SchedulerEdit};
use super::index::L0Slot;
use super::journal::Journal;
use super::options::L0IndexKind;
use super::store::{LOG, LOG_TAG, PartitionScheduler, SharedMemtable, files_of_components};
use crate::base::error::Result;
use crate::base::id::{FileKind, FileName, ItemKind};
use crate::base::sync::Arc;
use crate::lab::array::ArrayMeta;
use crate::lab::cascade::{Cascade, Component};
use crate::lab::memory::ItemList;
use crate::lab::pages::{metadata_name, temporary};
use crate::merge::MergeItem;

/// Tag of frames of the manifest.
pub(super) const MANIFEST_TAG: u8 = 4;
/// A manifest is rewritten when it is longer than this and four times as long as at its last rewrite.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Items of a write buffer. A larger set of items of one partition is merged in pieces, in key order.
const WRITE_BUFFER_ITEMS: usize = 256;

pub(super) fn log_name(number: u64) -> FileName {
    FileName::new(FileKind::Lab, number | LOG)
}

impl PartitionScheduler {
    /// Turns the memtable into an immutable and schedules it, and merges every level 0 that is full.
    ///
    /// # Errors
    /// The error of the device; every later call fails.
    pub fn schedule(&mut self) -> Result<()> {
        self.writing(|one| {
            if !one.memtable.items.is_empty() {
                let (syncs, started) = (one.env.0.storage.counts().syncs, one.env.0.clock.now_ns());
                let first_file = one.next_number;
                one.schedule_memtable()?;
                one.counts.schedule_files += one.next_number - first_file;
                one.counts.schedule_syncs += one.env.0.storage.counts().syncs - syncs;
                one.counts.schedule_ns += one.env.0.clock.now_ns() - started;
            }
            one.compact_due()
        })
    }

    /// Key mapping and block flushing. An empty memtable is allowed, when only the limits must be kept.
    pub(super) fn schedule_memtable(&mut self) -> Result<()> {
        self.sync_log()?;
        let (log, log_end) = (self.log.0, self.log.1.bytes());
        let mut edit =
            SchedulerEdit { log_ends: vec![(log, log_end)], scheduled_log: log, ..SchedulerEdit::default() };
        let file = self.file_with_room(&mut edit)?;
        let mut run = self.l0.append(file);
        self.old_logs.insert(log, log_end);
        self.map_keys(&mut run)?;
        self.keep_memory_limit(&mut run)?;
        self.keep_log_limit(&mut run)?;
        let (run, bytes) = run.finish()?;
        self.counts.block_bytes += bytes;
        self.counts.schedules += 1;
        for (id, tree) in &self.trees {
            let oldest = tree.buffer.oldest_log().unwrap_or(0);
            if self.catalog.partitions[id].oldest_log != oldest {
                edit.pins.push((*id, oldest));
            }
        }
        if !run.blocks.is_empty() {
            self.l0.add(&run);
            edit.runs.push(run);
        }
        self.edit(edit)?;
        self.log = self.new_log()?;
        self.remove_dead(Vec::new())?;
        let pinned = self.pinned_log_bytes();
        self.counts.pinned_log_bytes_max = self.counts.pinned_log_bytes_max.max(pinned);
        Ok(())
    }

    /// The file of level 0 to append to. A new file is added to the edit.
    fn file_with_room(&mut self, edit: &mut SchedulerEdit) -> Result<u64> {
        if let Some(file) = self.l0.with_room(self.options.file_bytes) {
            return Ok(file);
        }
        let (number, uid) = self.new_file();
        let keys = (self.options.l0_index == L0IndexKind::Persistent).then(|| self.new_file());
        let meta = L0FileMeta { number, uid, keys };
        self.l0.create(&meta)?;
        edit.files.push(meta);
        Ok(number)
    }

    fn map_keys(&mut self, run: &mut RunWriter) -> Result<()> {
        let memtable = std::mem::take(&mut self.memtable);
        let lengths = self.options.lengths();
        let (mut partition, mut write_buffer) = (0, ItemList::new(lengths));
        for (key, value) in memtable.items {
            let (owner, key) = SharedMemtable::split(&key);
            if owner != partition || write_buffer.len() == WRITE_BUFFER_ITEMS {
                self.merge_write_buffer(partition, &write_buffer, memtable.first_log, run)?;
                write_buffer.clear();
                partition = owner;
            }
            let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
            write_buffer.push(MergeItem { key, kind, value: value.as_deref().unwrap_or_default() });
        }
        self.merge_write_buffer(partition, &write_buffer, memtable.first_log, run)
    }

    fn merge_write_buffer(&mut self, id: u32, items: &ItemList, log: u64, run: &mut RunWriter) -> Result<()> {
        if items.len() == 0 {
            return Ok(());
        }
        let tree = self.trees.get_mut(&id).expect("items of a dropped partition leave the memtable");
        let before = tree.buffer.bytes();
        tree.buffer.merge(items, log);
        let full = tree.buffer.len() / self.options.block_items() * self.options.block_items();
        let after = tree.buffer.bytes();
        self.count_leftover(id, before, after);
        let in_buffers = self.leftover_bytes + items_bytes(items.lengths, items.len());
        self.counts.buffer_bytes_max = self.counts.buffer_bytes_max.max(in_buffers);
        if full > 0 {
            self.cut_blocks(id, full, run)?;
        }
        self.keep_memory_limit(run)
    }

    /// Moves the first `count` items of a flush buffer to level 0.
    fn cut_blocks(&mut self, id: u32, count: usize, run: &mut RunWriter) -> Result<()> {
        let tree = self.trees.get_mut(&id).expect("a partition with a flush buffer");
        let before = tree.buffer.bytes();
        let items = tree.buffer.cut(count);
        let after = tree.buffer.bytes();
        let a_block = self.options.block_items();
        for start in (0..items.len()).step_by(a_block) {
            let end = (start + a_block).min(items.len());
            run.push(id, &items, start, end)?;
            for index in start..end {
                let slot = L0Slot { block: tree.l0_blocks, record: (index - start) as u16 };
                tree.index.insert(items.key(index), slot);
            }
            tree.l0_blocks += 1;
            self.counts.blocks += 1;
            self.counts.short_blocks += u64::from(end - start < a_block);
        }
        self.count_leftover(id, before, after);
        Ok(())
    }

    /// Writes part-filled blocks of the largest flush buffers until the rest is within the memory limit.
    fn keep_memory_limit(&mut self, run: &mut RunWriter) -> Result<()> {
        while self.leftover_bytes > self.options.leftover_bytes_max() {
            let (_, id) = *self.leftovers.last().expect("bytes are those of some buffer");
            let count = self.trees[&id].buffer.len();
            self.cut_blocks(id, count, run)?;
        }
        self.counts.leftover_bytes_max = self.counts.leftover_bytes_max.max(self.leftover_bytes);
        Ok(())
    }

    /// Writes part-filled blocks of the oldest leftovers until the logs they pin are within the limit, if
    /// there is one.
    fn keep_log_limit(&mut self, run: &mut RunWriter) -> Result<()> {
        if self.options.log_bytes_max == 0 {
            return Ok(());
        }
        let oldest = |id: u32| self.trees[&id].buffer.oldest_log().map(|log| (log, id));
        let mut oldest: Vec<(u64, u32)> = self.leftovers.iter().filter_map(|(_, id)| oldest(*id)).collect();
        oldest.sort_unstable();
        for (log, id) in oldest {
            if self.old_logs.range(log..).map(|(_, bytes)| bytes).sum::<u64>() <= self.options.log_bytes_max {
                break;
            }
            let count = self.trees[&id].buffer.len();
            self.cut_blocks(id, count, run)?;
        }
        Ok(())
    }

    /// Updates the totals after a flush buffer changed from `before` to `after` bytes.
    pub(super) fn count_leftover(&mut self, id: u32, before: u64, after: u64) {
        self.leftovers.remove(&(before, id));
        if after > 0 {
            self.leftovers.insert((after, id));
        }
        self.leftover_bytes = self.leftover_bytes + after - before;
    }

    /// Merges level 0 of every partition that has enough datatables into its sub-tree.
    fn compact_due(&mut self) -> Result<()> {
        let is_due = |blocks: u32| u64::from(blocks) >= self.options.l0_blocks();
        let due: Vec<u32> =
            self.trees.iter().filter(|(_, tree)| is_due(tree.l0_blocks)).map(|(id, _)| *id).collect();
        if due.is_empty() {
            return Ok(());
        }
        let mut edit = SchedulerEdit::default();
        let (mut made, mut after) = (Vec::new(), Vec::new());
        for id in due {
            let components = self.compact(id, &mut made)?;
            let metas = |one: &Component| one.arrays.iter().map(|array| array.meta.clone()).collect();
            let metas: Vec<Vec<ArrayMeta>> = components.iter().map(metas).collect();
            edit.compacted.push((id, metas));
            after.push((id, components));
        }
        self.env.0.storage.sync_directory()?;
        self.edit(edit)?;
        let mut dead = made;
        let mut live = Vec::new();
        for (id, components) in after {
            let tree = self.trees.get_mut(&id).expect("it was due");
            dead.extend(tree.files());
            live.extend(files_of_components(&components));
            tree.components = components;
            tree.index.clear();
            tree.l0_blocks = 0;
            self.counts.compactions += 1;
        }
        dead.retain(|file| !live.contains(file));
        // Removes each file under both names; a missing file is no error.
        self.remove_dead(dead.into_iter().flat_map(|file| [file, temporary(file)]).collect())
    }

    /// Merges level 0 of a partition into its sub-tree; returns the new components. New files are added to
    /// `made`.
    fn compact(&mut self, id: u32, made: &mut Vec<FileName>) -> Result<Vec<Component>> {
        let mut newest: BTreeMap<Box<[u8]>, Option<Box<[u8]>>> = BTreeMap::new();
        let is_own = |entry: BlockEntry| entry.partition == id;
        self.l0.scan(&self.catalog, is_own, |_, _, item| {
            newest.insert(item.key.into(), (item.kind == ItemKind::Put).then(|| item.value.into()));
        })?;
        let mut items = ItemList::with_capacity(self.options.lengths(), newest.len());
        for (key, value) in &newest {
            let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
            items.push(MergeItem { key, kind, value: value.as_deref().unwrap_or_default() });
        }
        let mut components = self.trees[&id].components.clone();
        let random = Arc::clone(&self.env.0.random);
        let mut cascade = Cascade {
            storage: &*self.env.0.storage,
            reader: &self.reader,
            knobs: &self.knobs,
            shape: self.shape,
            store_id: self.store_id,
            next_number: &mut self.next_number,
            next_uid: &mut || random.u64(),
            made,
            counts: &mut self.counts.merges,
        };
        cascade.push_down(&items, &mut components)?;
        Ok(components)
    }

    /// Number and uid of a new file.
    pub(super) fn new_file(&mut self) -> (u64, u64) {
        self.next_number += 1;
        (self.next_number - 1, self.env.0.random.u64())
    }

    /// Begins a log. Its first frame has the number of the newest log scheduled before.
    pub(super) fn new_log(&mut self) -> Result<(u64, Journal)> {
        let (number, uid) = self.new_file();
        let storage = Arc::clone(&self.env.0.storage);
        let mut log = Journal::create(storage, log_name(number), LOG_TAG, (self.store_id, uid))?;
        // The number shows whether the manifest lost the edit of the log before.
        log.append(&[&self.catalog.scheduled_log.to_le_bytes()])?;
        Ok((number, log))
    }

    pub(super) fn sync_log(&mut self) -> Result<()> {
        self.log.1.sync()
    }

    /// Applies an edit to the catalog, durably.
    pub(super) fn edit(&mut self, edit: SchedulerEdit) -> Result<()> {
        let manifest = &mut self.manifest.1;
        let before = manifest.bytes();
        manifest.append(&[&edit.encode()])?;
        manifest.sync()?;
        self.counts.manifest_bytes += manifest.bytes() - before;
        self.catalog.apply(edit).expect("an edit of our own fits");
        let bytes = self.manifest.1.bytes();
        if bytes > MANIFEST_BYTES_MAX && bytes > 4 * self.manifest_start_bytes {
            self.write_manifest()?;
        }
        Ok(())
    }

    /// Writes the whole catalog as a new manifest, which replaces the old one.
    pub(super) fn write_manifest(&mut self) -> Result<()> {
        let (number, uid) = self.new_file();
        let manifest = new_manifest(self, number, uid)?;
        self.counts.manifest_bytes += manifest.bytes();
        self.manifest_start_bytes = manifest.bytes();
        let (old, _) = std::mem::replace(&mut self.manifest, (Some(metadata_name(number)), manifest));
        old.map_or(Ok(()), |old| self.env.0.storage.remove(old))
    }

    /// Removes `files`, and the logs and files of level 0 that the catalog no longer needs.
    pub(super) fn remove_dead(&mut self, mut files: Vec<FileName>) -> Result<()> {
        files.extend(self.l0.take_dead(&self.catalog));
        let first = self.catalog.first_log();
        let behind = self.old_logs.split_off(&first);
        files.extend(std::mem::replace(&mut self.old_logs, behind).into_keys().map(log_name));
        self.catalog.log_ends.retain(|log, _| *log >= first);
        for file in files {
            self.reader.forget(file);
            self.env.0.storage.remove(file)?;
        }
        Ok(())
    }

    /// Bytes of the logs that only flush buffers need.
    pub(super) fn pinned_log_bytes(&self) -> u64 {
        let scheduled = ..=self.catalog.scheduled_log;
        self.old_logs.range(scheduled).map(|(_, bytes)| bytes).sum()
    }
}

/// Writes a manifest: the fixed lengths, and the whole catalog.
pub(super) fn new_manifest(one: &PartitionScheduler, number: u64, uid: u64) -> Result<Journal> {
    let (name, storage) = (metadata_name(number), Arc::clone(&one.env.0.storage));
    let mut manifest = Journal::create(storage, temporary(name), MANIFEST_TAG, (one.store_id, uid))?;
    let lengths = one.options.lengths();
    let (key_bytes, value_bytes) = (lengths.key_bytes as u16, lengths.value_bytes as u16);
    manifest.append(&[&key_bytes.to_le_bytes(), &value_bytes.to_le_bytes()])?;
    manifest.append(&[&one.catalog.whole().encode()])?;
    manifest.sync()?;
    manifest.rename(name)?;
    one.env.0.storage.sync_directory()?;
    Ok(manifest)
}
