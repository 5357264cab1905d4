//! Files of level 0: data blocks of all partitions, appended one after another.
//!
//! A file has only blocks. The manifest has the partition, the item count and the checksum of each block, so
//! blocks behind the last edit do not count. A block is a page of the lab (`pages`); its records are {key,
//! kind u8, value} in key order. A datatable is a fixed number of consecutive blocks of one partition. It has
//! no bytes of its own.
//!
//! With a persistent index each file has a second file, whose pages have the keys of the same blocks in the
//! same order. Each run of blocks begins a page there.
//!
//! Invariants: 1. the bytes of a run are durable before the edit that names the run; 2. items are returned
//! only from blocks that match the page's checksum and the edit's.

use std::collections::BTreeMap;

use super::catalog::{L0FileState, PageAddress, SchedulerCatalog};
use super::edit::{BlockEntry, BlockRun, L0FileMeta};
use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName, ItemKind};
use crate::base::sync::Arc;
use crate::format::header::{FileHeader, PAGE_BYTES};
use crate::io::storage::Storage;
use crate::lab::memory::{ItemList, Lengths};
use crate::lab::pages::{Buffer, PageFile, PageReader, array_name};
use crate::merge::MergeItem;

/// Pages that a scan of level 0 reads at a time.
const SCAN_PAGES: usize = 64;
/// Bytes of a run that collect before a write.
const PENDING_BYTES: usize = 256 << 10;

/// A file of level 0 during an append of pages.
#[derive(Debug)]
struct Appender {
    file: PageFile,
    first_page: u64,
    done_pages: u64,
    pending: Vec<u8>,
    /// Start of the current page in `pending`.
    page_at: usize,
}

impl Appender {
    fn new(file: PageFile, first_page: u64) -> Appender {
        Appender { file, first_page, done_pages: 0, pending: Vec::new(), page_at: 0 }
    }

    fn end_page(&mut self) -> u32 {
        let page = self.first_page + self.done_pages;
        let checksum = self.file.seal(page, &mut self.pending, self.page_at);
        self.done_pages += 1;
        self.page_at = self.pending.len();
        checksum
    }

    fn write(&mut self, storage: &dyn Storage) -> Result<()> {
        let written_pages = self.done_pages - (self.page_at / PAGE_BYTES) as u64;
        let offset = PageFile::offset(self.first_page + written_pages);
        storage.write(self.file.name, offset, &self.pending[..self.page_at])?;
        self.pending.drain(..self.page_at);
        self.page_at = 0;
        Ok(())
    }

    fn write_if_long(&mut self, storage: &dyn Storage) -> Result<()> {
        if self.page_at < PENDING_BYTES { Ok(()) } else { self.write(storage) }
    }

    /// Makes all pages durable; returns their bytes.
    fn finish(mut self, storage: &dyn Storage) -> Result<u64> {
        self.write(storage)?;
        storage.sync(self.file.name)?;
        Ok(self.done_pages * PAGE_BYTES as u64)
    }
}

/// Appends a run of blocks.
pub(super) struct RunWriter {
    storage: Arc<dyn Storage>,
    data: Appender,
    keys: Option<Appender>,
    key_records: usize,
    run: BlockRun,
}

impl RunWriter {
    /// Appends `items` from `start` to `end` as a block of the partition.
    pub(super) fn push(&mut self, partition: u32, items: &ItemList, start: usize, end: usize) -> Result<()> {
        for index in start..end {
            let item = items.item(index);
            let record_end = self.data.pending.len() + self.data.file.record_bytes;
            self.data.pending.extend_from_slice(item.key);
            self.data.pending.push(item.kind as u8);
            self.data.pending.extend_from_slice(item.value);
            self.data.pending.resize(record_end, 0);
            if let Some(keys) = &mut self.keys {
                if self.key_records == keys.file.records_a_page() {
                    keys.end_page();
                    self.key_records = 0;
                }
                keys.pending.extend_from_slice(item.key);
                self.key_records += 1;
            }
        }
        let checksum = self.data.end_page();
        self.run.blocks.push(BlockEntry { partition, count: (end - start) as u16, checksum });
        self.data.write_if_long(&*self.storage)?;
        self.keys.as_mut().map_or(Ok(()), |keys| keys.write_if_long(&*self.storage))
    }

    /// Makes the blocks durable; returns the run and its bytes on disk. Without blocks it writes nothing.
    pub(super) fn finish(self) -> Result<(BlockRun, u64)> {
        if self.run.blocks.is_empty() {
            return Ok((self.run, 0));
        }
        let mut bytes = self.data.finish(&*self.storage)?;
        if let Some(mut keys) = self.keys {
            keys.end_page();
            bytes += keys.finish(&*self.storage)?;
        }
        Ok((self.run, bytes))
    }
}

/// A file of level 0 and its file of keys, both open.
#[derive(Debug)]
struct OpenL0File {
    data: PageFile,
    keys: Option<PageFile>,
    pages: u64,
    key_pages: u64,
}

/// All files of level 0.
pub(super) struct L0Files {
    storage: Arc<dyn Storage>,
    reader: Arc<PageReader>,
    store_id: u128,
    lengths: Lengths,
    files: BTreeMap<u64, OpenL0File>,
}

impl std::fmt::Debug for L0Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "L0Files({:?})", self.files)
    }
}

impl L0Files {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        reader: Arc<PageReader>,
        store_id: u128,
        lengths: Lengths,
    ) -> L0Files {
        L0Files { storage, reader, store_id, lengths, files: BTreeMap::new() }
    }

    fn open_file(&self, meta: &L0FileMeta) -> OpenL0File {
        let record_bytes = self.lengths.key_bytes + 1 + self.lengths.value_bytes;
        let data = PageFile::new(array_name(meta.number), meta.uid, record_bytes);
        let keys =
            meta.keys.map(|(number, uid)| PageFile::new(array_name(number), uid, self.lengths.key_bytes));
        OpenL0File { data, keys, pages: 0, key_pages: 0 }
    }

    /// Opens the files of a catalog.
    ///
    /// # Errors
    /// `Corrupt` if a file is missing, or shorter than its runs.
    pub(super) fn open(&mut self, catalog: &SchedulerCatalog) -> Result<()> {
        for (number, state) in &catalog.files {
            let mut file = self.open_file(&state.meta);
            file.pages = state.entries.len() as u64;
            if let (Some(keys), Some((first_page, first_key_page))) = (&file.keys, state.runs.last()) {
                let records = records_of(&state.entries[*first_page as usize..]);
                file.key_pages = u64::from(*first_key_page) + keys.pages_of(records);
            }
            for (file, pages) in std::iter::once((&file.data, file.pages))
                .chain(file.keys.iter().map(|keys| (keys, file.key_pages)))
            {
                let (least, found) = (PageFile::offset(pages), self.storage.length(file.name)?.unwrap_or(0));
                if found < least {
                    return Err(Error::corrupt(file.name, found, "the file's length", least, found));
                }
                file.check_header(&*self.storage, self.store_id)?;
            }
            self.files.insert(*number, file);
        }
        Ok(())
    }

    /// Creates a file, and a file for its keys if `meta` has one.
    pub(super) fn create(&mut self, meta: &L0FileMeta) -> Result<()> {
        let file = self.open_file(meta);
        for one in std::iter::once(&file.data).chain(&file.keys) {
            self.storage.create(one.name)?;
            let (store_id, uid) = (self.store_id, one.uid);
            let header = FileHeader { kind: FileKind::Lab, store_id, uid, features: 0 };
            self.storage.write(one.name, 0, &header.encode())?;
        }
        self.storage.sync_directory()?;
        self.files.insert(meta.number, file);
        Ok(())
    }

    /// The file to append to, if it has room.
    pub(super) fn with_room(&self, file_bytes: u64) -> Option<u64> {
        let (number, file) = self.files.last_key_value()?;
        (PageFile::offset(file.pages) < file_bytes).then_some(*number)
    }

    /// Begins a run at the end of a file.
    pub(super) fn append(&self, number: u64) -> RunWriter {
        let file = &self.files[&number];
        RunWriter {
            storage: Arc::clone(&self.storage),
            data: Appender::new(file.data.clone(), file.pages),
            keys: file.keys.clone().map(|keys| Appender::new(keys, file.key_pages)),
            key_records: 0,
            run: BlockRun {
                file: number,
                first_page: file.pages as u32,
                first_key_page: file.key_pages as u32,
                blocks: Vec::new(),
            },
        }
    }

    /// Records that the run is durable and an edit names it.
    pub(super) fn add(&mut self, run: &BlockRun) {
        let file = self.files.get_mut(&run.file).expect("runs are appended to files that are open");
        file.pages += run.blocks.len() as u64;
        if let Some(keys) = &file.keys {
            file.key_pages += keys.pages_of(records_of(&run.blocks));
        }
    }

    /// Closes the files that the catalog no longer has; returns their names.
    pub(super) fn take_dead(&mut self, catalog: &SchedulerCatalog) -> Vec<FileName> {
        let is_dead = |number: &u64| !catalog.files.contains_key(number);
        let dead: Vec<u64> = self.files.keys().copied().filter(is_dead).collect();
        let files = dead.iter().filter_map(|number| self.files.remove(number));
        files
            .flat_map(|file| std::iter::once(file.data.name).chain(file.keys.map(|keys| keys.name)))
            .collect()
    }

    /// Reads one item, by one page read.
    ///
    /// # Errors
    /// `Corrupt` if the block does not match the catalog.
    pub(super) fn read_item<'b>(
        &self,
        block: PageAddress,
        entry: BlockEntry,
        record: u16,
        buffer: &'b mut Buffer,
    ) -> Result<MergeItem<'b>> {
        let file = &self.files[&block.file].data;
        self.reader.page(file, u64::from(block.page), buffer)?;
        check(file, block, entry, buffer.checksum(0))?;
        item_of(self.lengths, file, block, buffer.content(0), usize::from(record))
    }

    /// Reads the wanted live blocks of a file, oldest first. Passes each item with the block's entry and the
    /// record number to `each`.
    ///
    /// # Errors
    /// As [`L0Files::read_item`].
    pub(super) fn scan_file(
        &self,
        state: &L0FileState,
        is_wanted: impl Fn(BlockEntry) -> bool,
        mut each: impl FnMut(BlockEntry, u16, MergeItem<'_>),
    ) -> Result<()> {
        let mut buffer = Buffer::pages(SCAN_PAGES);
        let number = state.meta.number;
        let file = &self.files[&number].data;
        let is_live = |entry: &&BlockEntry| entry.partition > 0 && is_wanted(**entry);
        let mut page = 0;
        while page < state.entries.len() {
            let live = state.entries[page..].iter().take(SCAN_PAGES).take_while(is_live).count();
            if live > 0 {
                self.reader.fill(file, page as u64, live, &mut buffer)?;
            }
            for (index, entry) in state.entries[page..page + live].iter().enumerate() {
                let block = PageAddress { file: number, page: (page + index) as u32 };
                check(file, block, *entry, buffer.checksum(index))?;
                for record in 0..entry.count {
                    let content = buffer.content(index);
                    each(*entry, record, item_of(self.lengths, file, block, content, record.into())?);
                }
            }
            page += live.max(1);
        }
        Ok(())
    }

    /// Does the work of [`L0Files::scan_file`] for all files.
    pub(super) fn scan(
        &self,
        catalog: &SchedulerCatalog,
        is_wanted: impl Fn(BlockEntry) -> bool + Copy,
        mut each: impl FnMut(BlockEntry, u16, MergeItem<'_>),
    ) -> Result<()> {
        catalog.files.values().try_for_each(|state| self.scan_file(state, is_wanted, &mut each))
    }

    /// As [`L0Files::scan_file`] for keys alone, from the file of keys; `None` if there is no such file.
    pub(super) fn scan_keys(
        &self,
        state: &L0FileState,
        mut each: impl FnMut(BlockEntry, u16, &[u8]),
    ) -> Option<Result<()>> {
        let keys = self.files[&state.meta.number].keys.as_ref()?;
        let ends = state.runs.iter().skip(1).map(|(first, _)| *first as usize);
        let ends = ends.chain(std::iter::once(state.entries.len()));
        let mut runs = state.runs.iter().zip(ends);
        Some(runs.try_for_each(|((first_page, first_key_page), end)| {
            let blocks = &state.entries[*first_page as usize..end];
            self.scan_keys_of_run(keys, (*first_key_page).into(), blocks, &mut each)
        }))
    }

    fn scan_keys_of_run(
        &self,
        keys: &PageFile,
        first_page: u64,
        blocks: &[BlockEntry],
        each: &mut impl FnMut(BlockEntry, u16, &[u8]),
    ) -> Result<()> {
        let mut buffer = Buffer::pages(SCAN_PAGES);
        let (a_page, pages) = (keys.records_a_page(), keys.pages_of(records_of(blocks)) as usize);
        let (mut at, mut buffer_end) = (0, 0);
        for entry in blocks {
            for record in 0..entry.count {
                if at == buffer_end {
                    let count = (pages - at / a_page).min(SCAN_PAGES);
                    self.reader.fill(keys, first_page + (at / a_page) as u64, count, &mut buffer)?;
                    buffer_end = at + count * a_page;
                }
                // Each read begins at a multiple of `SCAN_PAGES` pages.
                let content = buffer.content(at / a_page % SCAN_PAGES);
                if entry.partition > 0 {
                    each(*entry, record, &content[at % a_page * keys.record_bytes..][..keys.record_bytes]);
                }
                at += 1;
            }
        }
        Ok(())
    }
}

fn records_of(blocks: &[BlockEntry]) -> u64 {
    blocks.iter().map(|block| u64::from(block.count)).sum()
}

fn check(file: &PageFile, block: PageAddress, entry: BlockEntry, found: u32) -> Result<()> {
    if found == entry.checksum && usize::from(entry.count) <= file.records_a_page() {
        return Ok(());
    }
    let offset = PageFile::offset(block.page.into());
    Err(Error::corrupt(file.name, offset, "a block's checksum", entry.checksum, found))
}

fn item_of<'b>(
    lengths: Lengths,
    file: &PageFile,
    block: PageAddress,
    content: &'b [u8],
    record: usize,
) -> Result<MergeItem<'b>> {
    let record = &content[record * file.record_bytes..][..file.record_bytes];
    let (key, rest) = record.split_at(lengths.key_bytes);
    match ItemKind::from_u8(rest[0]) {
        Some(kind @ ItemKind::Put) => Ok(MergeItem { key, kind, value: &rest[1..] }),
        Some(kind @ ItemKind::Delete) => Ok(MergeItem { key, kind, value: &[] }),
        _ => {
            let offset = PageFile::offset(block.page.into());
            Err(Error::corrupt(file.name, offset, "an item's kind", 1, rest[0]))
        }
    }
}
