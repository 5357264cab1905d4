//! One array on disk: written once, in one file or with keys and values apart, then searched and streamed.
//!
//! An array does not know its component. A key record is {key, kind u8}, a value record {value}; an array in
//! one file has both in one record. A search of a sorted array is a binary search over pages, narrowed by the
//! fences if there are any. A search of an appended array reads page by page from the end. An array is
//! immutable; any thread may search it.
//!
//! Invariants: 1. a sorted array holds a key once, in order; 2. `least` and `greatest` are its bounds; 3.
//! fences, where there are any, are the first key of each page of keys.

use std::cmp::Ordering;

use crate::base::error::{Error, Result};
use crate::base::id::ItemKind;
use crate::base::sync::Arc;
use crate::io::storage::Storage;
use crate::merge::{MergeItem, MergeSource};

use super::filter::{Bloom, FilterHash};
use super::knobs::ItemOrder;
use super::memory::{ItemList, Lengths};
use super::pages::{Buffer, PageFile, PageReader, PageWriter, STREAM_PAGES, array_name};

/// The metadata record's entry for an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ArrayMeta {
    pub(super) layout: ItemOrder,
    pub(super) count: u64,
    /// Number and uid of the file of keys, or of the only file.
    pub(super) keys: (u64, u64),
    /// Number and uid of the file of values, if values have a file of their own.
    pub(super) values: Option<(u64, u64)>,
    pub(super) least: Vec<u8>,
    pub(super) greatest: Vec<u8>,
}

/// An open array; see the module.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) meta: ArrayMeta,
    lengths: Lengths,
    keys: PageFile,
    values: Option<PageFile>,
    fences: Option<Vec<u8>>,
}

/// An item that a search found. The value is empty unless the search asked for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ArrayItem {
    pub(super) kind: ItemKind,
    pub(super) value: Vec<u8>,
}

/// Whether a search returns the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    Value,
    Presence,
}

/// The result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Searched {
    Found(ArrayItem),
    Missing,
    /// The caller's `stop` ended the search.
    Stopped,
}

/// Layout and options of a new array.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrayShape {
    pub(super) lengths: Lengths,
    pub(super) layout: ItemOrder,
    pub(super) columns: bool,
    pub(super) fences: bool,
    pub(super) map: bool,
}

impl Array {
    fn files(meta: &ArrayMeta, lengths: Lengths) -> (PageFile, Option<PageFile>) {
        let apart = meta.values.is_some();
        let record_bytes = lengths.key_bytes + 1 + if apart { 0 } else { lengths.value_bytes };
        let keys = PageFile::new(array_name(meta.keys.0), meta.keys.1, record_bytes);
        // A record of 0 bytes is not possible, so a value of length 0 takes one byte.
        let values = meta
            .values
            .map(|(number, uid)| PageFile::new(array_name(number), uid, lengths.value_bytes.max(1)));
        (keys, values)
    }

    /// Opens the array of a metadata entry. Fills `filter` and builds the fences from the keys if they are
    /// wanted.
    ///
    /// # Errors
    /// `Corrupt` if a file is not the one that the entry names.
    pub(super) fn open(
        storage: &dyn Storage,
        reader: &Arc<PageReader>,
        store_id: u128,
        meta: ArrayMeta,
        shape: ArrayShape,
        mut filter: Option<&mut Bloom>,
    ) -> Result<Array> {
        let (mut keys, mut values) = Array::files(&meta, shape.lengths);
        keys.check(storage, store_id, meta.count, shape.map)?;
        if let Some(values) = &mut values {
            values.check(storage, store_id, meta.count, shape.map)?;
        }
        let mut array = Array { meta, lengths: shape.lengths, keys, values, fences: None };
        if filter.is_some() || shape.fences {
            let mut fences = Vec::new();
            let mut stream = KeyStream::new(&array, reader)?;
            while let Some((index, key, _)) = stream.item() {
                if shape.fences && index.is_multiple_of(array.keys.records_a_page() as u64) {
                    fences.extend_from_slice(key);
                }
                if let Some(filter) = &mut filter {
                    filter.add(FilterHash::of(key));
                }
                stream.advance()?;
            }
            array.fences = shape.fences.then_some(fences);
        }
        Ok(array)
    }

    pub(super) fn files_named(&self) -> impl Iterator<Item = &PageFile> {
        std::iter::once(&self.keys).chain(&self.values)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files_named().map(|file| file.bytes_of(self.meta.count)).sum()
    }

    /// Whether the key is within the array's bounds.
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        &*self.meta.least <= key && key <= &*self.meta.greatest
    }

    /// Looks for the key, with memory for one page; calls `stop` before every page.
    ///
    /// # Errors
    /// `Io` from the device, or `Corrupt`.
    pub(super) fn search(
        &self,
        reader: &PageReader,
        key: &[u8],
        want: Want,
        buffer: &mut Buffer,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Searched> {
        let found = match self.meta.layout {
            ItemOrder::Sorted => self.search_halves(reader, key, buffer, stop)?,
            ItemOrder::Append => self.search_back(reader, key, buffer, stop)?,
        };
        match found {
            ArrayPosition::At { page, in_page } => self.bring(reader, page, in_page, want, buffer),
            ArrayPosition::Nowhere => Ok(Searched::Missing),
            ArrayPosition::Stopped => Ok(Searched::Stopped),
        }
    }

    /// The item at a position; `buffer` holds its page of keys.
    fn bring(
        &self,
        reader: &PageReader,
        page: u64,
        in_page: usize,
        want: Want,
        buffer: &mut Buffer,
    ) -> Result<Searched> {
        let record = self.record(buffer, 0, in_page);
        let kind = self.kind_of(record, page)?;
        let mut value = Vec::new();
        if want == Want::Value && kind == ItemKind::Put {
            match &self.values {
                None => value.extend_from_slice(&record[self.lengths.key_bytes + 1..]),
                Some(values) => {
                    let index = page * self.keys.records_a_page() as u64 + in_page as u64;
                    let a_page = values.records_a_page() as u64;
                    reader.page(values, index / a_page, buffer)?;
                    let at = (index % a_page) as usize * values.record_bytes;
                    value.extend_from_slice(&buffer.content(0)[at..at + self.lengths.value_bytes]);
                }
            }
        }
        Ok(Searched::Found(ArrayItem { kind, value }))
    }

    fn record<'b>(&self, buffer: &'b Buffer, page: usize, in_page: usize) -> &'b [u8] {
        &buffer.content(page)[in_page * self.keys.record_bytes..][..self.keys.record_bytes]
    }

    fn kind_of(&self, record: &[u8], page: u64) -> Result<ItemKind> {
        let byte = record[self.lengths.key_bytes];
        match ItemKind::from_u8(byte) {
            Some(kind @ (ItemKind::Put | ItemKind::Delete)) => Ok(kind),
            _ => Err(Error::corrupt(self.keys.name, (1 + page) * 4096, "an item's kind", 1, byte)),
        }
    }

    /// Records on page `page` of the keys.
    fn records_on(&self, page: u64) -> usize {
        let a_page = self.keys.records_a_page() as u64;
        (self.meta.count - page * a_page).min(a_page) as usize
    }

    /// The pages that may hold the key: all pages, or the one that the fences name.
    fn pages_for(&self, key: &[u8]) -> (u64, u64) {
        let Some(fences) = &self.fences else { return (0, self.keys.pages_of(self.meta.count)) };
        let width = self.lengths.key_bytes;
        let (mut low, mut high) = (0, fences.len() / width);
        while low < high {
            let middle = usize::midpoint(low, high);
            if &fences[middle * width..][..width] <= key { low = middle + 1 } else { high = middle }
        }
        (low.saturating_sub(1) as u64, low as u64)
    }

    fn search_halves(
        &self,
        reader: &PageReader,
        key: &[u8],
        buffer: &mut Buffer,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<ArrayPosition> {
        let width = self.lengths.key_bytes;
        let (mut low, mut high) = self.pages_for(key);
        while low < high {
            if stop() {
                return Ok(ArrayPosition::Stopped);
            }
            let page = u64::midpoint(low, high);
            reader.page(&self.keys, page, buffer)?;
            let count = self.records_on(page);
            let (mut first, mut end) = (0, count);
            while first < end {
                let middle = usize::midpoint(first, end);
                match self.record(buffer, 0, middle)[..width].cmp(key) {
                    Ordering::Less => first = middle + 1,
                    Ordering::Equal => return Ok(ArrayPosition::At { page, in_page: middle }),
                    Ordering::Greater => end = middle,
                }
            }
            match first {
                0 => high = page,
                all if all == count => low = page + 1,
                _ => return Ok(ArrayPosition::Nowhere),
            }
        }
        Ok(ArrayPosition::Nowhere)
    }

    fn search_back(
        &self,
        reader: &PageReader,
        key: &[u8],
        buffer: &mut Buffer,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<ArrayPosition> {
        let width = self.lengths.key_bytes;
        for page in (0..self.keys.pages_of(self.meta.count)).rev() {
            if stop() {
                return Ok(ArrayPosition::Stopped);
            }
            reader.page(&self.keys, page, buffer)?;
            let records = &buffer.content(0)[..self.records_on(page) * self.keys.record_bytes];
            let found = records.chunks_exact(self.keys.record_bytes).rposition(|one| &one[..width] == key);
            if let Some(in_page) = found {
                return Ok(ArrayPosition::At { page, in_page });
            }
        }
        Ok(ArrayPosition::Nowhere)
    }

    /// All items, in the order of the array.
    ///
    /// # Errors
    /// As [`Array::search`].
    pub(super) fn read_all(self: &Arc<Array>, reader: &Arc<PageReader>) -> Result<ItemList> {
        let mut items = ItemList::new(self.lengths);
        let mut stream = ArrayStream::new(Arc::clone(self), Arc::clone(reader))?;
        while let Some(item) = stream.item() {
            items.push(item);
            stream.advance()?;
        }
        Ok(items)
    }
}

enum ArrayPosition {
    At { page: u64, in_page: usize },
    Nowhere,
    Stopped,
}

/// A stream over the records of one file, which reads several pages at a time.
#[derive(Debug)]
struct PageStream {
    buffer: Buffer,
    /// First page in the buffer, and number of pages in it.
    first: u64,
    pages: usize,
}

impl PageStream {
    fn new() -> PageStream {
        PageStream { buffer: Buffer::pages(STREAM_PAGES), first: 0, pages: 0 }
    }

    /// Reads the page of record `index` of `count` unless it is in the buffer.
    fn reach(&mut self, reader: &PageReader, file: &PageFile, index: u64, count: u64) -> Result<()> {
        let page = index / file.records_a_page() as u64;
        if page < self.first + self.pages as u64 && page >= self.first {
            return Ok(());
        }
        let pages = (file.pages_of(count) - page).min(STREAM_PAGES as u64) as usize;
        reader.fill(file, page, pages, &mut self.buffer)?;
        (self.first, self.pages) = (page, pages);
        Ok(())
    }

    fn record(&self, file: &PageFile, index: u64) -> &[u8] {
        let a_page = file.records_a_page() as u64;
        let page = (index / a_page - self.first) as usize;
        &self.buffer.content(page)[(index % a_page) as usize * file.record_bytes..][..file.record_bytes]
    }
}

/// Keys and kinds of an array, in the order of the array.
#[derive(Debug)]
struct KeyStream<'a> {
    array: &'a Array,
    reader: &'a PageReader,
    stream: PageStream,
    at: u64,
    kind: ItemKind,
}

impl<'a> KeyStream<'a> {
    fn new(array: &'a Array, reader: &'a PageReader) -> Result<KeyStream<'a>> {
        let mut stream = KeyStream { array, reader, stream: PageStream::new(), at: 0, kind: ItemKind::Put };
        stream.load()?;
        Ok(stream)
    }

    fn load(&mut self) -> Result<()> {
        if self.at < self.array.meta.count {
            self.stream.reach(self.reader, &self.array.keys, self.at, self.array.meta.count)?;
            let record = self.stream.record(&self.array.keys, self.at);
            self.kind = self.array.kind_of(record, self.stream.first)?;
        }
        Ok(())
    }

    fn item(&self) -> Option<(u64, &[u8], ItemKind)> {
        if self.at >= self.array.meta.count {
            return None;
        }
        let record = self.stream.record(&self.array.keys, self.at);
        Some((self.at, &record[..self.array.lengths.key_bytes], self.kind))
    }

    fn advance(&mut self) -> Result<()> {
        self.at += 1;
        self.load()
    }
}

/// Items of an array, in the order of the array, as a source of a merge.
#[derive(Debug)]
pub(super) struct ArrayStream {
    array: Arc<Array>,
    reader: Arc<PageReader>,
    keys: PageStream,
    values: PageStream,
    at: u64,
    kind: ItemKind,
}

impl ArrayStream {
    pub(super) fn new(array: Arc<Array>, reader: Arc<PageReader>) -> Result<ArrayStream> {
        let (keys, values) = (PageStream::new(), PageStream::new());
        let mut stream = ArrayStream { array, reader, keys, values, at: 0, kind: ItemKind::Put };
        stream.load()?;
        Ok(stream)
    }

    fn load(&mut self) -> Result<()> {
        let count = self.array.meta.count;
        if self.at >= count {
            return Ok(());
        }
        self.keys.reach(&self.reader, &self.array.keys, self.at, count)?;
        if let Some(values) = &self.array.values {
            self.values.reach(&self.reader, values, self.at, count)?;
        }
        self.kind = self.array.kind_of(self.keys.record(&self.array.keys, self.at), self.keys.first)?;
        Ok(())
    }
}

impl MergeSource for ArrayStream {
    fn item(&self) -> Option<MergeItem<'_>> {
        if self.at >= self.array.meta.count {
            return None;
        }
        let lengths = self.array.lengths;
        let record = self.keys.record(&self.array.keys, self.at);
        let (key, rest) = record.split_at(lengths.key_bytes);
        let value = match (&self.array.values, self.kind) {
            (_, kind) if kind != ItemKind::Put => &[],
            (None, _) => &rest[1..],
            (Some(values), _) => &self.values.record(values, self.at)[..lengths.value_bytes],
        };
        Some(MergeItem { key, kind: self.kind, value })
    }

    fn advance(&mut self) -> Result<()> {
        self.at += 1;
        self.load()
    }
}

/// Writes an array, and builds its filter and fences on the way.
pub(super) struct ArrayWriter<'a> {
    shape: ArrayShape,
    keys: PageWriter<'a>,
    values: Option<PageWriter<'a>>,
    keys_a_page: u64,
    filter: Option<Bloom>,
    fences: Vec<u8>,
    meta: ArrayMeta,
}

impl<'a> ArrayWriter<'a> {
    /// `keys` and `values` are number and uid of the new files.
    pub(super) fn create(
        storage: &'a dyn Storage,
        store_id: u128,
        shape: ArrayShape,
        keys: (u64, u64),
        values: Option<(u64, u64)>,
        filter: Option<Bloom>,
    ) -> Result<ArrayWriter<'a>> {
        let meta = ArrayMeta {
            layout: shape.layout,
            count: 0,
            keys,
            values,
            least: Vec::new(),
            greatest: Vec::new(),
        };
        let (keys, values) = Array::files(&meta, shape.lengths);
        let keys_a_page = keys.records_a_page() as u64;
        let keys = PageWriter::create(storage, keys, store_id)?;
        let values = values.map(|file| PageWriter::create(storage, file, store_id)).transpose()?;
        Ok(ArrayWriter { shape, keys, values, keys_a_page, filter, fences: Vec::new(), meta })
    }

    /// Appends an item. In a sorted array its key must be greater than all keys before it.
    pub(super) fn push(&mut self, item: MergeItem<'_>) -> Result<()> {
        let meta = &mut self.meta;
        if meta.count == 0 {
            meta.least.extend_from_slice(item.key);
            meta.greatest.extend_from_slice(item.key);
        } else if item.key > &*meta.greatest {
            meta.greatest.copy_from_slice(item.key);
        } else {
            assert!(self.shape.layout == ItemOrder::Append, "a sorted array is written in order");
            if item.key < &*meta.least {
                meta.least.copy_from_slice(item.key);
            }
        }
        if self.shape.fences && meta.count.is_multiple_of(self.keys_a_page) {
            self.fences.extend_from_slice(item.key);
        }
        if let Some(filter) = &mut self.filter {
            filter.add(FilterHash::of(item.key));
        }
        meta.count += 1;
        let kind = [item.kind as u8];
        match &mut self.values {
            None => self.keys.push(&[item.key, &kind, item.value]),
            Some(values) => {
                self.keys.push(&[item.key, &kind])?;
                values.push(&[item.value])
            }
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.meta.count
    }

    /// Gives the files their names and opens them.
    pub(super) fn finish(
        self,
        storage: &dyn Storage,
        store_id: u128,
        sync: bool,
    ) -> Result<(Array, Option<Bloom>)> {
        let (shape, meta) = (self.shape, self.meta);
        let mut keys = self.keys.finish(sync)?;
        keys.check(storage, store_id, meta.count, shape.map)?;
        let mut values = self.values.map(|values| values.finish(sync)).transpose()?;
        if let Some(values) = &mut values {
            values.check(storage, store_id, meta.count, shape.map)?;
        }
        let fences = shape.fences.then_some(self.fences);
        Ok((Array { meta, lengths: shape.lengths, keys, values, fences }, self.filter))
    }
}
