//! The public interface of the lab: opening, writing, reading, saving.
//!
//! It connects the parts and does not know the bytes of a file. When memory is full, a write first merges it
//! down. A cascade that reaches the disk ends in a save. One thread writes.
//!
//! Invariants: 1. no file that the last save needs is removed; 2. leftovers of a failed merge or save are
//! removed only after a later save, or when the store is opened again.

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::id::{FileName, ItemKind};
use crate::base::sync::{Arc, Ordering};
use crate::io::env::Env;
use crate::io::os::{DirectIo, FileUse, ReadWith};
use crate::io::storage::{DirectoryEntry, LockMode};
use crate::merge::{Merge, MergeItem, MergeSource};

use super::array::{Array, ArrayItem, ArrayMeta, ArrayShape, ArrayStream, Searched, Want};
use super::cascade::{Cascade, CascadeCounts, Component, capacity};
use super::filter::{Bloom, FilterHash};
use super::knobs::{FilterScope, ItemOrder, Knob, Knobs, invalid};
use super::memory::{ItemList, ItemsSource, Lengths, MemoryComponent};
use super::metadata::Metadata;
use super::pages::{Buffer, PageReader, is_array, metadata_name, metadata_number, plain_number, temporary};
use super::parallel::SearchPool;

/// Limit of open files.
const OPEN_FILES_MAX: usize = 512;
/// Number of a new store's first file.
const FIRST_NUMBER: u64 = 1;

/// A store of the lab: see the [module](crate::lab).
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use trine::lab::{Lab, Preset};
/// let mut knobs = Preset::Drizard.knobs();
/// knobs.set("value_bytes", "2")?;
/// let mut lab = Lab::open(&dir.path().join("lab"), &knobs)?;
/// lab.put(b"0001", b"ab")?;
/// lab.put(b"0002", b"cd")?;
/// lab.delete(b"0001")?;
/// assert_eq!(lab.get(b"0002")?.as_deref(), Some(&b"cd"[..]));
/// assert!(!lab.contains(b"0001")?);
/// lab.close()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Lab {
    /// The first field, so that its workers end before the lock is released.
    pool: Option<SearchPool>,
    env: HeldEnv,
    knobs: Knobs,
    shape: ArrayShape,
    store_id: u128,
    reader: Arc<PageReader>,
    memory: MemoryComponent,
    buffer: ItemList,
    components: Vec<Component>,
    global: Option<Bloom>,
    operations: u64,
    operations_saved: u64,
    next_number: u64,
    /// Metadata records on disk, the live one last.
    records: Vec<u64>,
    /// Files to remove after the next save.
    dead: Vec<FileName>,
    counts: Counts,
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    merges: CascadeCounts,
    saves: u64,
    save_bytes: u64,
}

/// A locked environment; dropping it releases the lock.
pub(super) struct HeldEnv(pub(super) Env);

impl std::fmt::Debug for HeldEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.storage.path())
    }
}

impl Drop for HeldEnv {
    fn drop(&mut self) {
        self.0.storage.unlock();
    }
}

/// The current state of a component.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ComponentStats {
    /// Items in it, deletions included.
    pub items: u64,
    /// Items it has room for.
    pub capacity_items: u64,
    /// Its arrays.
    pub arrays: u64,
    /// Length of its files, in bytes.
    pub file_bytes: u64,
    /// Its Bloom filter, if it has one.
    pub filter: Option<FilterStats>,
}

/// The current state of a Bloom filter.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FilterStats {
    /// Its size, in bits.
    pub bits: u64,
    /// Hashes of a key, so bits set by an item.
    pub hashes: u64,
    /// Number of bits that are set.
    pub ones: u64,
}

/// Sizes of a lab store, and counters since it was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LabStats {
    /// Length of keys, in bytes.
    pub key_bytes: u64,
    /// Length of values, in bytes.
    pub value_bytes: u64,
    /// Writes accepted since the store was created.
    pub operations: u64,
    /// Writes among them that the last save has.
    pub operations_saved: u64,
    /// Items in the memory component.
    pub memory_items: u64,
    /// Items in the sorted buffer.
    pub buffer_items: u64,
    /// Components on disk, the newest first.
    pub components: Vec<ComponentStats>,
    /// The filter of the whole store, if it has one.
    pub filter: Option<FilterStats>,
    /// Pages read from files, the cache's misses.
    pub page_reads: u64,
    /// Pages read from the cache.
    pub cached_page_reads: u64,
    /// Arrays written.
    pub merges: u64,
    /// Items written into arrays.
    pub merged_items: u64,
    /// Length of the files of arrays written, in bytes.
    pub merged_bytes: u64,
    /// Metadata records written.
    pub saves: u64,
    /// Their length, in bytes.
    pub save_bytes: u64,
}

impl Lab {
    /// Opens the store in the directory, or creates it.
    ///
    /// Creation fixes the lengths of keys and values and the layout. The other knobs may change at each
    /// opening, and apply to later writes.
    ///
    /// # Errors
    /// `Invalid` if the knobs contradict each other, `Mismatch` if a fixed knob differs from its stored
    /// value, `Locked` if the store is open already, `Foreign` if the directory has other files, `Corrupt` if
    /// a file is damaged.
    pub fn open(directory: &Path, knobs: &Knobs) -> Result<Lab> {
        let direct_io = if knobs.is_on(Knob::DirectIo) { DirectIo::WhereSupported } else { DirectIo::Off };
        Lab::open_in(Env::os(directory, FileUse::new(direct_io, OPEN_FILES_MAX, ReadWith::Plain))?, knobs)
    }

    pub(crate) fn open_in(env: Env, knobs: &Knobs) -> Result<Lab> {
        knobs.validate()?;
        env.storage.create_directory()?;
        files_of(&env)?;
        env.storage.lock(LockMode::Exclusive)?;
        let env = HeldEnv(env);
        let mut files = files_of(&env.0)?;
        let found = newest_record(&env.0, &files)?;
        if found.is_none() {
            if let Some(array) = files.iter().find(|file| is_array(**file)) {
                let expected = format_args!("there beside {array}").to_string();
                return Err(Error::corrupt(
                    metadata_name(FIRST_NUMBER),
                    0,
                    "a metadata record",
                    expected,
                    "missing",
                ));
            }
            // Leftovers of an interrupted first save.
            for file in files.drain(..) {
                env.0.storage.remove(file)?;
            }
        }
        let (metadata, newest) =
            found.map_or_else(|| (fresh(&env.0, knobs), None), |(one, at)| (one, Some(at)));
        fits(&metadata, knobs)?;
        let mut lab = Lab::with(env, knobs, &metadata, &files);
        lab.read_components(&metadata)?;
        match newest {
            Some(newest) => lab.take_out_leftovers(files, newest)?,
            None => lab.save()?,
        }
        let reads_at_a_time = knobs.count(Knob::ParallelReads);
        if reads_at_a_time > 1 {
            let (threads, reader) = (Arc::clone(&lab.env.0.threads), Arc::clone(&lab.reader));
            let poll_steps = knobs.number(Knob::ParallelPollSteps);
            lab.pool = Some(SearchPool::start(threads, reader, reads_at_a_time, poll_steps)?);
        }
        Ok(lab)
    }

    fn with(env: HeldEnv, knobs: &Knobs, metadata: &Metadata, files: &[FileName]) -> Lab {
        let lengths = metadata.memory.lengths;
        let shape = ArrayShape {
            lengths,
            layout: metadata.layout,
            columns: knobs.is_on(Knob::Columns),
            fences: knobs.is_on(Knob::Fences),
            map: knobs.is_on(Knob::ReadBy),
        };
        let mut memory = MemoryComponent::new(knobs.memory(), lengths);
        for index in 0..metadata.memory.len() {
            memory.write(metadata.memory.item(index));
        }
        let reader = Arc::new(PageReader::new(Arc::clone(&env.0.storage), knobs.number(Knob::CacheBytes)));
        Lab {
            pool: None,
            env,
            knobs: knobs.clone(),
            shape,
            store_id: metadata.store_id,
            reader,
            memory,
            buffer: metadata.buffer.clone(),
            components: Vec::new(),
            global: (knobs.filter() == FilterScope::Global).then(|| Bloom::new(knobs)),
            operations: metadata.operations,
            operations_saved: metadata.operations,
            next_number: files
                .iter()
                .map(|file| plain_number(*file))
                .max()
                .map_or(FIRST_NUMBER, |most| most + 1),
            records: Vec::new(),
            dead: Vec::new(),
            counts: Counts::default(),
        }
    }

    fn read_components(&mut self, metadata: &Metadata) -> Result<()> {
        if let Some(global) = &mut self.global {
            for items in [self.memory.items(), &self.buffer] {
                (0..items.len()).for_each(|index| global.add(FilterHash::of(items.key(index))));
            }
        }
        for arrays in &metadata.components {
            let has_filter = self.knobs.filter() == FilterScope::Component && !arrays.is_empty();
            let mut filter = has_filter.then(|| Bloom::new(&self.knobs));
            let mut component = Component::default();
            for meta in arrays {
                let storage = &*self.env.0.storage;
                let filter = filter.as_mut().or(self.global.as_mut());
                let meta = meta.clone();
                let array = Array::open(storage, &self.reader, self.store_id, meta, self.shape, filter)?;
                component.arrays.push(Arc::new(array));
            }
            component.filter = filter.map(Arc::new);
            self.components.push(component);
        }
        Ok(())
    }

    /// Removes the files that the live record does not need.
    fn take_out_leftovers(&mut self, files: Vec<FileName>, newest: u64) -> Result<()> {
        let live = self.live_files(&self.components);
        self.records.push(newest);
        let is_needed = |file: &FileName| live.contains(file) || metadata_number(*file) == Some(newest);
        let leftovers: Vec<FileName> = files.into_iter().filter(|file| !is_needed(file)).collect();
        if self.knobs.is_on(Knob::Sync) && !leftovers.is_empty() {
            // The process may have ended before the record was durable. Until it is durable, an older record
            // may need the leftovers.
            self.env.0.storage.sync(metadata_name(newest))?;
            self.env.0.storage.sync_directory()?;
        }
        for file in leftovers {
            self.env.0.storage.remove(file)?;
        }
        Ok(())
    }

    fn live_files(&self, components: &[Component]) -> Vec<FileName> {
        let arrays = components.iter().flat_map(|component| &component.arrays);
        arrays.flat_map(|array| array.files_named().map(|file| file.name).collect::<Vec<_>>()).collect()
    }

    /// Writes a value under a key.
    ///
    /// # Errors
    /// `Invalid` if a length is not the store's; else the error of a merge or a save. A merge fails before
    /// the write and leaves it undone; a save fails after it.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if value.len() != self.shape.lengths.value_bytes {
            let (given, all) = (value.len(), self.shape.lengths.value_bytes);
            return Err(invalid(format!("a value of {given} bytes, and those of this store have {all}")));
        }
        self.write(MergeItem { key, kind: ItemKind::Put, value })
    }

    /// Deletes a key, by a tombstone that hides older items.
    ///
    /// # Errors
    /// As [`Lab::put`].
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write(MergeItem { key, kind: ItemKind::Delete, value: &[] })
    }

    fn write(&mut self, item: MergeItem<'_>) -> Result<()> {
        self.check_key(item.key)?;
        if self.memory.len() >= self.knobs.count(Knob::MemoryItems) {
            self.merge_down()?;
        }
        self.memory.write(item);
        self.operations += 1;
        if let Some(global) = &mut self.global {
            global.add(FilterHash::of(item.key));
        }
        let save_every = self.knobs.number(Knob::SaveEvery);
        if save_every > 0 && self.operations - self.operations_saved >= save_every {
            self.save()?;
        }
        Ok(())
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        let all = self.shape.lengths.key_bytes;
        if key.len() == all {
            return Ok(());
        }
        Err(invalid(format!("a key of {} bytes, and those of this store have {all}", key.len())))
    }

    /// Merges memory into the buffer, and the buffer into the components if it is full. Without a buffer,
    /// merges memory into the components.
    fn merge_down(&mut self) -> Result<()> {
        let items = match self.shape.layout {
            ItemOrder::Sorted => self.memory.items().sorted(),
            ItemOrder::Append => self.memory.items().clone(),
        };
        if !self.knobs.is_on(Knob::Buffer) && self.buffer.len() == 0 {
            return self.push_down(&items);
        }
        let buffer = merged(&items, &self.buffer)?;
        let (memory_items, ratio) = (self.knobs.number(Knob::MemoryItems), self.knobs.number(Knob::Ratio));
        if buffer.len() as u64 + memory_items > memory_items * ratio || !self.knobs.is_on(Knob::Buffer) {
            return self.push_down(&buffer);
        }
        self.buffer = buffer;
        self.memory.clear();
        // As in the paper's fault tolerance, each new buffer is saved at once if `save_every` is on.
        if self.knobs.number(Knob::SaveEvery) > 0 { self.save() } else { Ok(()) }
    }

    /// Writes `items` into the components; then memory and buffer are empty.
    fn push_down(&mut self, items: &ItemList) -> Result<()> {
        let mut components = self.components.clone();
        let mut made = Vec::new();
        let random = Arc::clone(&self.env.0.random);
        let mut cascade = Cascade {
            storage: &*self.env.0.storage,
            reader: &self.reader,
            knobs: &self.knobs,
            shape: self.shape,
            store_id: self.store_id,
            next_number: &mut self.next_number,
            next_uid: &mut || random.u64(),
            made: &mut made,
            counts: &mut self.counts.merges,
        };
        let pushed = cascade.push_down(items, &mut components);
        let empty = ItemList::new(self.shape.lengths);
        let named = pushed.and_then(|()| {
            // A record that survives a crash must find the arrays that it names.
            if self.knobs.is_on(Knob::Sync) { self.env.0.storage.sync_directory() } else { Ok(()) }
        });
        let saved = named.and_then(|()| self.write_record(&empty, &empty, &components));
        let needed = if saved.is_ok() { &components } else { &self.components };
        let live = self.live_files(needed);
        let before = self.live_files(&self.components);
        // Both names of each file are removed; a missing file is no error.
        let unneeded = made.into_iter().chain(before).filter(|file| !live.contains(file));
        let unneeded: Vec<FileName> = unneeded.flat_map(|file| [file, temporary(file)]).collect();
        unneeded.iter().for_each(|file| self.reader.forget(*file));
        self.dead.extend(unneeded);
        saved?;
        self.components = components;
        self.memory.clear();
        self.buffer.clear();
        self.remove_dead()
    }

    /// Saves the items in memory and the names of live files. Writes a file as long as memory and buffer are.
    ///
    /// # Errors
    /// The error of the device; the last save remains valid.
    pub fn save(&mut self) -> Result<()> {
        let (memory, buffer) = (self.memory.items().clone(), self.buffer.clone());
        let components = self.components.clone();
        self.write_record(&memory, &buffer, &components)?;
        self.remove_dead()
    }

    fn write_record(&mut self, memory: &ItemList, buffer: &ItemList, components: &[Component]) -> Result<()> {
        let metas = |one: &Component| one.arrays.iter().map(|array| array.meta.clone()).collect();
        let components: Vec<Vec<ArrayMeta>> = components.iter().map(metas).collect();
        let metadata = Metadata {
            store_id: self.store_id,
            layout: self.shape.layout,
            operations: self.operations,
            memory: memory.clone(),
            buffer: buffer.clone(),
            components,
        };
        let number = self.next_number;
        self.next_number += 1;
        // The next opening may find this record even if the save fails, so it is removed like earlier ones.
        self.records.push(number);
        let (storage, sync) = (&*self.env.0.storage, self.knobs.is_on(Knob::Sync));
        let bytes = metadata.save(storage, number, self.env.0.random.u64(), sync)?;
        self.operations_saved = self.operations;
        self.counts.saves += 1;
        self.counts.save_bytes += bytes;
        Ok(())
    }

    /// After a save, removes older records first, then the files that only they needed.
    fn remove_dead(&mut self) -> Result<()> {
        let storage = &self.env.0.storage;
        while self.records.len() > 1 {
            storage.remove(metadata_name(self.records[0]))?;
            self.records.remove(0);
        }
        if self.knobs.is_on(Knob::Sync) && !self.dead.is_empty() {
            storage.sync_directory()?;
        }
        while let Some(file) = self.dead.last() {
            storage.remove(*file)?;
            self.dead.pop();
        }
        Ok(())
    }

    /// The key's value.
    ///
    /// # Errors
    /// `Invalid` if the length is not the store's, `Corrupt` if a page on the way is damaged, `Io`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.find(key, Want::Value)?.filter(|found| found.kind == ItemKind::Put).map(|found| found.value))
    }

    /// Whether the key has a value; the value is not read.
    ///
    /// # Errors
    /// As [`Lab::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.find(key, Want::Presence)?.is_some_and(|found| found.kind == ItemKind::Put))
    }

    fn find(&self, key: &[u8], want: Want) -> Result<Option<ArrayItem>> {
        self.check_key(key)?;
        let hashed = FilterHash::of(key);
        if self.global.as_ref().is_some_and(|filter| !filter.admits(hashed)) {
            return Ok(None);
        }
        let found = |item: MergeItem<'_>| Some(ArrayItem { kind: item.kind, value: item.value.to_vec() });
        if let Some(item) = self.memory.get(key) {
            return Ok(found(item));
        }
        if let Ok(index) = self.buffer.search(key) {
            return Ok(found(self.buffer.item(index)));
        }
        let bounds = self.knobs.is_on(Knob::Bounds);
        let candidates = self
            .components
            .iter()
            .filter(|one| one.filter.as_ref().is_none_or(|filter| filter.admits(hashed)))
            .flat_map(|one| &one.arrays)
            .filter(|array| !bounds || array.covers(key));
        if let Some(pool) = &self.pool {
            let arrays: Vec<Arc<Array>> = candidates.cloned().collect();
            return pool.search(&arrays, key, want);
        }
        let mut buffer = Buffer::pages(1);
        for array in candidates {
            let searched = array.search(&self.reader, key, want, &mut buffer, &mut || false)?;
            if let Searched::Found(found) = searched {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Passes every item to `each`, in key order. It reads every page, and is for checks.
    ///
    /// # Errors
    /// As [`Lab::get`].
    pub fn scan(&self, mut each: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let memory = self.memory.items().sorted();
        let arrays = || self.components.iter().flat_map(|one| &one.arrays);
        let mut appended = Vec::new();
        for array in arrays().filter(|array| array.meta.layout == ItemOrder::Append) {
            appended.push(array.read_all(&self.reader)?.sorted());
        }
        let mut sources: Vec<Box<dyn MergeSource + '_>> =
            vec![Box::new(ItemsSource::new(&memory)), Box::new(ItemsSource::new(&self.buffer))];
        // All arrays of a store have one layout, so one of the two lists is empty.
        sources.extend(
            appended.iter().map(|items| Box::new(ItemsSource::new(items)) as Box<dyn MergeSource + '_>),
        );
        for array in arrays().filter(|array| array.meta.layout == ItemOrder::Sorted) {
            sources.push(Box::new(ArrayStream::new(Arc::clone(array), Arc::clone(&self.reader))?));
        }
        let mut merge = Merge::with_prefix(sources, &[]);
        while let Some(item) = merge.item() {
            if item.kind == ItemKind::Put {
                each(item.key, item.value);
            }
            merge.advance()?;
        }
        Ok(())
    }

    /// Sizes and counters.
    pub fn stats(&self) -> LabStats {
        let filter = |one: &Bloom| FilterStats { bits: one.bits(), hashes: one.hashes(), ones: one.ones() };
        let component = |(index, one): (usize, &Component)| ComponentStats {
            items: one.items(),
            capacity_items: capacity(&self.knobs, index),
            arrays: one.arrays.len() as u64,
            file_bytes: one.arrays.iter().map(|array| array.bytes()).sum(),
            filter: one.filter.as_deref().map(filter),
        };
        LabStats {
            key_bytes: self.shape.lengths.key_bytes as u64,
            value_bytes: self.shape.lengths.value_bytes as u64,
            operations: self.operations,
            operations_saved: self.operations_saved,
            memory_items: self.memory.len() as u64,
            buffer_items: self.buffer.len() as u64,
            components: self.components.iter().enumerate().map(component).collect(),
            filter: self.global.as_ref().map(filter),
            page_reads: self.reader.counts.pages.load(Ordering::Relaxed),
            cached_page_reads: self.reader.counts.cached_pages.load(Ordering::Relaxed),
            merges: self.counts.merges.merges,
            merged_items: self.counts.merges.items,
            merged_bytes: self.counts.merges.bytes,
            saves: self.counts.saves,
            save_bytes: self.counts.save_bytes,
        }
    }

    /// The knobs given at the opening.
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Saves and closes. Dropping the store instead loses writes since the last save, as a crash does.
    ///
    /// # Errors
    /// As [`Lab::save`].
    pub fn close(mut self) -> Result<()> {
        self.save()
    }
}

/// Files of the lab in the directory.
///
/// # Errors
/// `Foreign` if the directory has any other file.
pub(super) fn files_of(env: &Env) -> Result<Vec<FileName>> {
    let mut files = Vec::new();
    for entry in env.storage.list()? {
        match entry {
            DirectoryEntry::Ours(file) if file == FileName::LOCK => {}
            DirectoryEntry::Ours(file) if file.kind == crate::base::id::FileKind::Lab => files.push(file),
            DirectoryEntry::Ours(file) => {
                return Err(Error::Foreign { path: env.storage.path(), found: format!("{file} of a store") });
            }
            DirectoryEntry::Foreign(found) => return Err(Error::Foreign { path: env.storage.path(), found }),
        }
    }
    Ok(files)
}

/// The readable record of the highest number; `None` if there was no save.
fn newest_record(env: &Env, files: &[FileName]) -> Result<Option<(Metadata, u64)>> {
    let mut numbers: Vec<u64> = files.iter().filter_map(|file| metadata_number(*file)).collect();
    numbers.sort_unstable();
    let mut first_failure = None;
    for number in numbers.into_iter().rev() {
        match Metadata::load(&*env.storage, number) {
            Ok(metadata) => return Ok(Some((metadata, number))),
            // The very first record is older than the first write, so it has no items to lose.
            Err(Error::Corrupt(_)) if number == FIRST_NUMBER => {}
            // An unfinished record: the save before it is still on disk.
            Err(error @ Error::Corrupt(_)) => {
                first_failure.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    first_failure.map_or(Ok(None), Err)
}

fn fresh(env: &Env, knobs: &Knobs) -> Metadata {
    let lengths =
        Lengths { key_bytes: knobs.count(Knob::KeyBytes), value_bytes: knobs.count(Knob::ValueBytes) };
    Metadata {
        store_id: u128::from(env.random.u64()) << 64 | u128::from(env.random.u64()),
        layout: knobs.layout(),
        operations: 0,
        memory: ItemList::new(lengths),
        buffer: ItemList::new(lengths),
        components: Vec::new(),
    }
}

/// Checks that the knobs fixed at creation have their stored values.
fn fits(metadata: &Metadata, knobs: &Knobs) -> Result<()> {
    let lengths = metadata.memory.lengths;
    let layout = if metadata.layout == ItemOrder::Sorted { "sorted" } else { "append" };
    for (name, stored) in [
        ("key_bytes", lengths.key_bytes.to_string()),
        ("value_bytes", lengths.value_bytes.to_string()),
        ("layout", layout.to_owned()),
    ] {
        let given = knobs.get(name)?;
        if given != stored {
            return Err(Error::Mismatch { name, stored, given });
        }
    }
    Ok(())
}

/// Merges both lists; of equal keys the item of `upper` stays.
fn merged(upper: &ItemList, lower: &ItemList) -> Result<ItemList> {
    let mut out = ItemList::new(upper.lengths);
    let mut merge = Merge::with_prefix(vec![ItemsSource::new(upper), ItemsSource::new(lower)], &[]);
    while let Some(item) = merge.item() {
        out.push(item);
        merge.advance()?;
    }
    Ok(out)
}
