//! Opening a partition scheduler: manifest, files of level 0, their index, arrays, logs.
//!
//! The newest manifest has the catalog. The index of level 0 is read from the files of keys, or built by a
//! scan of all blocks. Logs restore the flush buffers and the memtable. Of scheduled logs, an opening takes
//! the items that a partition's flush buffer may have had; of later logs all. The tail of level 0 behind the
//! last run is ignored, and so is the tail of the last log behind its last whole frame.
//!
//! Invariants: 1. every log except the newest has its end in the catalog, and is whole up to it; 2. after an
//! opening the directory has only files that the catalog needs.

use std::collections::BTreeMap;
use std::path::Path;

use super::catalog::SchedulerCatalog;
use super::datatable::L0Files;
use super::edit::SchedulerEdit;
use super::flush::{MANIFEST_TAG, log_name};
use super::index::{L0Entry, L0Index, L0Slot};
use super::journal::{Journal, JournalFrames};
use super::options::{L0IndexKind, PartitionSchedulerOptions};
use super::store::{LOG, LOG_TAG, PartitionScheduler, SchedulerCounts, SharedMemtable, SubTree};
use crate::base::codec;
use crate::base::error::{Error, Result};
use crate::base::id::{FileName, ItemKind};
use crate::base::sync::{Arc, Ordering};
use crate::io::env::Env;
use crate::io::os::{DirectIo, FileUse, ReadWith};
use crate::io::storage::LockMode;
use crate::lab::array::{Array, ArrayShape};
use crate::lab::cascade::Component;
use crate::lab::knobs::{Knob, Knobs, Preset};
use crate::lab::memory::{ItemList, Lengths};
use crate::lab::pages::{PageReader, array_name, is_array, metadata_name, metadata_number, plain_number};
use crate::lab::store::{HeldEnv, files_of};
use crate::merge::MergeItem;

/// Limit of open files.
const OPEN_FILES_MAX: usize = 512;
/// Number of a new directory's first file. The lab takes a damaged record of number 1 for an unfinished first
/// save.
const FIRST_NUMBER: u64 = 2;

/// The contents of the newest manifest.
struct Loaded {
    file: FileName,
    store_id: u128,
    lengths: Lengths,
    catalog: SchedulerCatalog,
}

impl PartitionScheduler {
    /// Opens the scheduler in the directory, or creates it.
    ///
    /// # Errors
    /// `Invalid` if an option is out of its range, `Mismatch` if a length differs from the stored one,
    /// `Locked` if it is open already, `Foreign` if the directory has other files, `Corrupt` if a file is
    /// damaged.
    pub fn open(directory: &Path, options: &PartitionSchedulerOptions) -> Result<PartitionScheduler> {
        let files = FileUse::new(DirectIo::WhereSupported, OPEN_FILES_MAX, ReadWith::Plain);
        PartitionScheduler::open_in(Env::os(directory, files)?, options)
    }

    pub(crate) fn open_in(env: Env, options: &PartitionSchedulerOptions) -> Result<PartitionScheduler> {
        options.validate()?;
        env.storage.create_directory()?;
        files_of(&env)?;
        env.storage.lock(LockMode::Exclusive)?;
        let env = HeldEnv(env);
        let files = files_of(&env.0)?;
        let loaded = match files.iter().filter_map(|file| metadata_number(*file)).max() {
            Some(number) => Some(load(&env.0, metadata_name(number))?),
            None => None,
        };
        if let (None, Some(file)) = (&loaded, files.iter().find(|file| is_array(**file))) {
            return Err(Error::corrupt(file, 0, "a manifest beside it", "there", "missing"));
        }
        if let Some(loaded) = &loaded {
            fits(loaded.lengths, options)?;
        }
        let mut one = PartitionScheduler::with(env, options, loaded, &files)?;
        one.open_trees()?;
        let clock = Arc::clone(&one.env.0.clock);
        let (started, reads) = (clock.now_ns(), one.reader.counts.pages.load(Ordering::Relaxed));
        one.read_index()?;
        one.counts.index_ns = clock.now_ns() - started;
        one.counts.index_page_reads = one.reader.counts.pages.load(Ordering::Relaxed) - reads;
        let log_ends = one.replay(&files)?;
        one.begin(log_ends, files)?;
        Ok(one)
    }

    fn with(
        env: HeldEnv,
        options: &PartitionSchedulerOptions,
        loaded: Option<Loaded>,
        files: &[FileName],
    ) -> Result<PartitionScheduler> {
        let random = || env.0.random.u64();
        let (old_manifest, store_id, catalog) = match loaded {
            Some(loaded) => (Some(loaded.file), loaded.store_id, loaded.catalog),
            None => (None, u128::from(random()) << 64 | u128::from(random()), SchedulerCatalog::default()),
        };
        let storage = Arc::clone(&env.0.storage);
        let reader = Arc::new(PageReader::new(Arc::clone(&storage), 0));
        let knobs = knobs(options)?;
        let shape = ArrayShape {
            lengths: options.lengths(),
            layout: knobs.layout(),
            columns: false,
            fences: true,
            map: false,
        };
        let mut next_number = files.iter().map(|file| plain_number(*file) & !LOG).max().unwrap_or(0) + 1;
        next_number = next_number.max(FIRST_NUMBER);
        let mut l0 = L0Files::new(Arc::clone(&storage), Arc::clone(&reader), store_id, options.lengths());
        l0.open(&catalog)?;
        // `begin` creates the manifest and the log once all files are read.
        let none = || Journal::none(Arc::clone(&storage));
        Ok(PartitionScheduler {
            manifest: (old_manifest, none()),
            manifest_start_bytes: 0,
            log: (0, none()),
            env,
            options: options.clone(),
            knobs,
            shape,
            store_id,
            reader,
            next_number,
            catalog,
            trees: BTreeMap::new(),
            l0,
            memtable: SharedMemtable::default(),
            old_logs: BTreeMap::new(),
            leftovers: std::collections::BTreeSet::new(),
            leftover_bytes: 0,
            has_failed: false,
            counts: SchedulerCounts::default(),
        })
    }

    fn open_trees(&mut self) -> Result<()> {
        for (id, meta) in &self.catalog.partitions {
            let mut tree = SubTree::new(self.options.lengths());
            for arrays in &meta.components {
                let mut component = Component::default();
                for array in arrays {
                    let (storage, reader) = (&*self.env.0.storage, &self.reader);
                    let array = Array::open(storage, reader, self.store_id, array.clone(), self.shape, None)?;
                    component.arrays.push(Arc::new(array));
                }
                tree.components.push(component);
            }
            self.trees.insert(*id, tree);
        }
        Ok(())
    }

    /// Builds the index of level 0, file by file, oldest first.
    fn read_index(&mut self) -> Result<()> {
        let trees = &mut self.trees;
        let mut slots: BTreeMap<u32, Vec<L0Entry>> = BTreeMap::new();
        let mut insert = |partition: u32, record: u16, key: &[u8]| {
            let tree = trees.get_mut(&partition).expect("the catalog's blocks are of its partitions");
            if record == 0 {
                tree.l0_blocks += 1;
            }
            let slot = L0Slot { block: tree.l0_blocks - 1, record };
            slots.entry(partition).or_default().push((key.into(), slot));
        };
        for state in self.catalog.files.values() {
            let beside = match self.options.l0_index {
                L0IndexKind::Memory => None,
                L0IndexKind::Persistent => {
                    self.l0.scan_keys(state, |entry, record, key| insert(entry.partition, record, key))
                }
            };
            match beside {
                Some(read) => read?,
                None => self.l0.scan_file(
                    state,
                    |_| true,
                    |entry, record, item| insert(entry.partition, record, item.key),
                )?,
            }
        }
        for (partition, slots) in slots {
            let tree = self.trees.get_mut(&partition).expect("every partition has a tree");
            tree.index = L0Index::of(slots);
        }
        Ok(())
    }

    /// Replays the logs that are needed; returns the end of the newest, if it has items.
    fn replay(&mut self, files: &[FileName]) -> Result<Vec<(u64, u64)>> {
        let first = self.catalog.first_log();
        let logs = files.iter().map(|file| file.number).filter(|number| number & !(LOG - 1) == LOG);
        let mut logs: Vec<u64> = logs.map(|number| number & !LOG).filter(|log| *log >= first).collect();
        logs.sort_unstable();
        let is_missing = |log: &u64| *log >= first && logs.binary_search(log).is_err();
        if let Some(log) = self.catalog.log_ends.keys().find(|log| is_missing(log)) {
            return Err(Error::corrupt(log_name(*log), 0, "the log", "there", "missing"));
        }
        let mut new_ends = Vec::new();
        for log in logs {
            let (file, known_end) = (log_name(log), self.catalog.log_ends.get(&log).copied());
            let frames = match JournalFrames::read(&*self.env.0.storage, file, LOG_TAG) {
                Ok(frames) => frames,
                // The newest log may lack a whole header after a crash.
                Err(Error::Corrupt(_)) if known_end.is_none() => continue,
                Err(error) => return Err(error),
            };
            let end = frames.end();
            if known_end.is_some_and(|known| known != end) || frames.header.store_id != self.store_id {
                let known = known_end.unwrap_or(0);
                return Err(Error::corrupt(file, end, "the log's end", known, end));
            }
            let mut bodies = frames.bodies();
            let Some((_, before)) = bodies.next() else { continue };
            self.check_first_frame(file, before)?;
            if bodies.next().is_none() && known_end.is_none() {
                continue;
            }
            if known_end.is_none() && (log <= self.catalog.scheduled_log || !new_ends.is_empty()) {
                return Err(Error::corrupt(file, end, "the log's end", "in the manifest", "missing"));
            }
            self.replay_log(log, &frames)?;
            self.old_logs.insert(log, end);
            if known_end.is_none() {
                // These frames may not be durable yet, and the catalog refers to them from here on.
                self.env.0.storage.sync(file)?;
                new_ends.push((log, end));
            }
        }
        Ok(new_ends)
    }

    /// Checks that the manifest has the edit that scheduled the log before.
    fn check_first_frame(&self, file: FileName, body: &[u8]) -> Result<()> {
        let malformed = |bad| Error::malformed(file, 4096, bad);
        let scheduled = codec::ByteReader::new(body).u64("the log scheduled before").map_err(malformed)?;
        if scheduled > self.catalog.scheduled_log {
            let found = self.catalog.scheduled_log;
            return Err(Error::corrupt(file, 4096, "the newest log in the manifest", scheduled, found));
        }
        Ok(())
    }

    fn replay_log(&mut self, log: u64, frames: &JournalFrames) -> Result<()> {
        let lengths = self.options.lengths();
        let is_scheduled = log <= self.catalog.scheduled_log;
        let mut leftovers: BTreeMap<u32, BTreeMap<&[u8], MergeItem<'_>>> = BTreeMap::new();
        for (offset, body) in frames.bodies().skip(1) {
            let (partition, item) =
                decode_item(body, lengths).map_err(|bad| Error::malformed(log_name(log), offset, bad))?;
            // Items of dropped partitions are skipped.
            let Some(meta) = self.catalog.partitions.get(&partition) else { continue };
            if !is_scheduled {
                if self.memtable.items.is_empty() {
                    self.memtable.first_log = log;
                }
                self.memtable.put(partition, item);
            } else if meta.oldest_log > 0 && log >= meta.oldest_log {
                leftovers.entry(partition).or_default().insert(item.key, item);
            } else {
                continue;
            }
            self.counts.replayed_items += 1;
        }
        for (partition, newest) in leftovers {
            let mut items = ItemList::with_capacity(lengths, newest.len());
            newest.into_values().for_each(|item| items.push(item));
            let tree = self.trees.get_mut(&partition).expect("every partition has a tree");
            let before = tree.buffer.bytes();
            tree.buffer.merge(&items, log);
            let after = tree.buffer.bytes();
            self.count_leftover(partition, before, after);
        }
        Ok(())
    }

    /// Writes a new manifest and begins a new log, removes files without use, and keeps the limits.
    fn begin(&mut self, log_ends: Vec<(u64, u64)>, files: Vec<FileName>) -> Result<()> {
        let edit = SchedulerEdit { log_ends, ..SchedulerEdit::default() };
        self.catalog.apply(edit).expect("ends of logs fit every catalog");
        self.write_manifest()?;
        self.log = self.new_log()?;
        let mut live: Vec<FileName> = self.old_logs.keys().map(|log| log_name(*log)).collect();
        live.extend(self.trees.values().flat_map(SubTree::files));
        for file in self.catalog.files.values() {
            live.push(array_name(file.meta.number));
            live.extend(file.meta.keys.map(|(number, _)| array_name(number)));
        }
        for file in files.into_iter().filter(|file| !live.contains(file)) {
            self.env.0.storage.remove(file)?;
        }
        if self.leftover_bytes > self.options.leftover_bytes_max() {
            self.schedule_memtable()?;
        }
        Ok(())
    }
}

/// The knobs of sub-trees: levels of one sorted array each; the first has ten times the items of a full level
/// 0.
fn knobs(options: &PartitionSchedulerOptions) -> Result<Knobs> {
    let mut knobs = Preset::LemurLeveling.knobs();
    let l0_items = (options.l0_blocks() * options.block_items() as u64).clamp(1, 1 << 24);
    for (name, value) in [
        ("key_bytes", options.key_bytes.to_string()),
        ("value_bytes", options.value_bytes.to_string()),
        ("memory_items", l0_items.to_string()),
        ("ratio", "10".to_owned()),
        ("columns", "off".to_owned()),
        ("filter", "none".to_owned()),
    ] {
        knobs.set(name, &value)?;
    }
    knobs.validate()?;
    debug_assert!(knobs.is_on(Knob::Sync) && knobs.is_on(Knob::Fences));
    Ok(knobs)
}

fn load(env: &Env, file: FileName) -> Result<Loaded> {
    let frames = JournalFrames::read(&*env.storage, file, MANIFEST_TAG)?;
    let mut bodies = frames.bodies();
    // Two frames are durable before the file gets its name, and each later frame before the next.
    if frames.bodies().count() < 2 || frames.has_frame_behind() {
        return Err(Error::corrupt(file, frames.end(), "a frame of the manifest", "whole", "damaged"));
    }
    let (offset, fixed) = bodies.next().expect("there are two");
    let malformed = |offset: u64| move |bad: codec::Malformed| Error::malformed(file, offset, bad);
    let mut reader = codec::ByteReader::new(fixed);
    let key_bytes = usize::from(reader.u16("the length of keys").map_err(malformed(offset))?);
    let value_bytes = usize::from(reader.u16("the length of values").map_err(malformed(offset))?);
    let lengths = Lengths { key_bytes, value_bytes };
    let mut catalog = SchedulerCatalog::default();
    for (offset, body) in bodies {
        let edit = SchedulerEdit::decode(body, lengths).map_err(malformed(offset))?;
        let applied = catalog.apply(edit);
        applied.map_err(|what| Error::corrupt(file, offset, what, "one that fits", "another"))?;
    }
    Ok(Loaded { file, store_id: frames.header.store_id, lengths, catalog })
}

/// Checks that the lengths are the stored ones.
fn fits(stored: Lengths, options: &PartitionSchedulerOptions) -> Result<()> {
    for (name, stored, given) in [
        ("key_bytes", stored.key_bytes, options.key_bytes),
        ("value_bytes", stored.value_bytes, options.value_bytes),
    ] {
        if stored != given {
            return Err(Error::Mismatch { name, stored: stored.to_string(), given: given.to_string() });
        }
    }
    Ok(())
}

/// An item of a log: {u32 partition, u8 kind, key, value}.
fn decode_item(body: &[u8], lengths: Lengths) -> std::result::Result<(u32, MergeItem<'_>), codec::Malformed> {
    let mut reader = codec::ByteReader::new(body);
    let partition = reader.u32("an item's partition")?;
    let byte = reader.u8("an item's kind")?;
    let key = reader.bytes(lengths.key_bytes, "an item's key")?;
    let (kind, value_bytes) = match ItemKind::from_u8(byte) {
        Some(kind @ ItemKind::Put) => (kind, lengths.value_bytes),
        Some(kind @ ItemKind::Delete) => (kind, 0),
        _ => return Err(reader.malformed("an item's kind", 1, u64::from(byte))),
    };
    let value = reader.bytes(value_bytes, "an item's value")?;
    if reader.remaining() > 0 {
        return Err(reader.malformed("the end of an item", 0, reader.remaining() as u64));
    }
    Ok((partition, MergeItem { key, kind, value }))
}
