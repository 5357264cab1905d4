//! One array on disk: written once, in one file or with keys and values apart, then searched and streamed.
//!
//! It does not know its component. A record of keys is {key, kind u8}, a record of values {value}; in one
//! file both are one record. A sorted array is searched by halves, page by page, from its fences if it has
//! some; an appended one from its end, page by page. Immutable; any thread may search.
//!
//! Invariants: 1. a sorted array holds a key once, in order; 2. `least` and `greatest` are its bounds; 3.
//! fences, where there are any, are the first key of each page of keys.

use std::cmp::Ordering;

use crate::base::error::{Error, Result};
use crate::base::id::ItemKind;
use crate::base::sync::Arc;
use crate::io::storage::Storage;
use crate::merge::{Item, Source};

use super::filter::{Bloom, Hashed};
use super::knobs::Layout;
use super::memory::{Items, Lengths};
use super::pages::{Buffer, PageFile, PageWriter, Reader, STREAM_PAGES, array_name};

/// What metadata keeps of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ArrayMeta {
    pub(super) layout: Layout,
    pub(super) count: u64,
    /// Number and uid of the file of keys, or of everything.
    pub(super) keys: (u64, u64),
    /// Of the file of values, where they are apart.
    pub(super) values: Option<(u64, u64)>,
    pub(super) least: Vec<u8>,
    pub(super) greatest: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) meta: ArrayMeta,
    lengths: Lengths,
    keys: PageFile,
    values: Option<PageFile>,
    fences: Option<Vec<u8>>,
}

/// An item that was found; its value only if it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) kind: ItemKind,
    pub(super) value: Vec<u8>,
}

/// Whether a search is to bring the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    Value,
    Presence,
}

/// How a search ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Searched {
    Found(Found),
    Missing,
    /// Told to stop: the answer no longer matters.
    Stopped,
}

/// How a new array is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) lengths: Lengths,
    pub(super) layout: Layout,
    pub(super) columns: bool,
    pub(super) fences: bool,
    pub(super) map: bool,
}

impl Array {
    fn files(meta: &ArrayMeta, lengths: Lengths) -> (PageFile, Option<PageFile>) {
        let apart = meta.values.is_some();
        let record_bytes = lengths.key_bytes + 1 + if apart { 0 } else { lengths.value_bytes };
        let keys = PageFile::new(array_name(meta.keys.0), meta.keys.1, record_bytes);
        // A file of no bytes a record would have no pages: values of length 0 take one.
        let values = meta
            .values
            .map(|(number, uid)| PageFile::new(array_name(number), uid, lengths.value_bytes.max(1)));
        (keys, values)
    }

    /// Opens what metadata names; `filter` and the fences are made from its keys, if they are wanted.
    ///
    /// # Errors
    /// `Corrupt` if a file is not the one that was named.
    pub(super) fn open(
        storage: &dyn Storage,
        reader: &Arc<Reader>,
        store_id: u128,
        meta: ArrayMeta,
        shape: Shape,
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
                    filter.add(Hashed::of(key));
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

    /// Whether the bounds let the key be here.
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        &*self.meta.least <= key && key <= &*self.meta.greatest
    }

    /// Looks for the key, with memory for one page; asks `stop` before every page.
    ///
    /// # Errors
    /// What the device said, or `Corrupt`.
    pub(super) fn search(
        &self,
        reader: &Reader,
        key: &[u8],
        want: Want,
        buffer: &mut Buffer,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Searched> {
        let found = match self.meta.layout {
            Layout::Sorted => self.search_halves(reader, key, buffer, stop)?,
            Layout::Append => self.search_back(reader, key, buffer, stop)?,
        };
        match found {
            Place::At { page, in_page } => self.bring(reader, page, in_page, want, buffer),
            Place::Nowhere => Ok(Searched::Missing),
            Place::Stopped => Ok(Searched::Stopped),
        }
    }

    /// The item at a place; `buffer` holds its page of keys.
    fn bring(
        &self,
        reader: &Reader,
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
        Ok(Searched::Found(Found { kind, value }))
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

    /// Records on that page of keys.
    fn records_on(&self, page: u64) -> usize {
        let a_page = self.keys.records_a_page() as u64;
        (self.meta.count - page * a_page).min(a_page) as usize
    }

    /// Pages that may hold the key: all, or the one its fence names.
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
        reader: &Reader,
        key: &[u8],
        buffer: &mut Buffer,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Place> {
        let width = self.lengths.key_bytes;
        let (mut low, mut high) = self.pages_for(key);
        while low < high {
            if stop() {
                return Ok(Place::Stopped);
            }
            let page = u64::midpoint(low, high);
            reader.page(&self.keys, page, buffer)?;
            let count = self.records_on(page);
            let (mut first, mut end) = (0, count);
            while first < end {
                let middle = usize::midpoint(first, end);
                match self.record(buffer, 0, middle)[..width].cmp(key) {
                    Ordering::Less => first = middle + 1,
                    Ordering::Equal => return Ok(Place::At { page, in_page: middle }),
                    Ordering::Greater => end = middle,
                }
            }
            match first {
                0 => high = page,
                all if all == count => low = page + 1,
                _ => return Ok(Place::Nowhere),
            }
        }
        Ok(Place::Nowhere)
    }

    fn search_back(
        &self,
        reader: &Reader,
        key: &[u8],
        buffer: &mut Buffer,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Place> {
        let width = self.lengths.key_bytes;
        for page in (0..self.keys.pages_of(self.meta.count)).rev() {
            if stop() {
                return Ok(Place::Stopped);
            }
            reader.page(&self.keys, page, buffer)?;
            let records = &buffer.content(0)[..self.records_on(page) * self.keys.record_bytes];
            let found = records.chunks_exact(self.keys.record_bytes).rposition(|one| &one[..width] == key);
            if let Some(in_page) = found {
                return Ok(Place::At { page, in_page });
            }
        }
        Ok(Place::Nowhere)
    }

    /// All items, in the order in which they lie.
    ///
    /// # Errors
    /// As a search.
    pub(super) fn read_all(self: &Arc<Array>, reader: &Arc<Reader>) -> Result<Items> {
        let mut items = Items::new(self.lengths);
        let mut stream = ArrayStream::new(Arc::clone(self), Arc::clone(reader))?;
        while let Some(item) = stream.item() {
            items.push(item);
            stream.advance()?;
        }
        Ok(items)
    }
}

enum Place {
    At { page: u64, in_page: usize },
    Nowhere,
    Stopped,
}

/// Records of one file from the first on, several pages a read.
#[derive(Debug)]
struct PageStream {
    buffer: Buffer,
    /// First page in the buffer, and how many.
    first: u64,
    pages: usize,
}

impl PageStream {
    fn new() -> PageStream {
        PageStream { buffer: Buffer::pages(STREAM_PAGES), first: 0, pages: 0 }
    }

    /// Makes sure that record `index` of `count` is in the buffer.
    fn reach(&mut self, reader: &Reader, file: &PageFile, index: u64, count: u64) -> Result<()> {
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

/// Keys and kinds of an array, in the order in which they lie.
#[derive(Debug)]
struct KeyStream<'a> {
    array: &'a Array,
    reader: &'a Reader,
    stream: PageStream,
    at: u64,
    kind: ItemKind,
}

impl<'a> KeyStream<'a> {
    fn new(array: &'a Array, reader: &'a Reader) -> Result<KeyStream<'a>> {
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

/// Items of an array, in the order in which they lie, as a source of a merge.
#[derive(Debug)]
pub(super) struct ArrayStream {
    array: Arc<Array>,
    reader: Arc<Reader>,
    keys: PageStream,
    values: PageStream,
    at: u64,
    kind: ItemKind,
}

impl ArrayStream {
    pub(super) fn new(array: Arc<Array>, reader: Arc<Reader>) -> Result<ArrayStream> {
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

impl Source for ArrayStream {
    fn item(&self) -> Option<Item<'_>> {
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
        Some(Item { key, kind: self.kind, value })
    }

    fn advance(&mut self) -> Result<()> {
        self.at += 1;
        self.load()
    }
}

/// Writes an array, and its filter and fences meanwhile.
pub(super) struct ArrayWriter<'a> {
    shape: Shape,
    keys: PageWriter<'a>,
    values: Option<PageWriter<'a>>,
    keys_a_page: u64,
    filter: Option<Bloom>,
    fences: Vec<u8>,
    meta: ArrayMeta,
}

impl<'a> ArrayWriter<'a> {
    /// `keys` and `values` are number and uid of the files to make.
    pub(super) fn create(
        storage: &'a dyn Storage,
        store_id: u128,
        shape: Shape,
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

    /// Appends an item; in a sorted array behind all before.
    pub(super) fn push(&mut self, item: Item<'_>) -> Result<()> {
        let meta = &mut self.meta;
        if meta.count == 0 {
            meta.least.extend_from_slice(item.key);
            meta.greatest.extend_from_slice(item.key);
        } else if item.key > &*meta.greatest {
            meta.greatest.copy_from_slice(item.key);
        } else {
            assert!(self.shape.layout == Layout::Append, "a sorted array is written in order");
            if item.key < &*meta.least {
                meta.least.copy_from_slice(item.key);
            }
        }
        if self.shape.fences && meta.count.is_multiple_of(self.keys_a_page) {
            self.fences.extend_from_slice(item.key);
        }
        if let Some(filter) = &mut self.filter {
            filter.add(Hashed::of(item.key));
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

    /// Names the files and opens them.
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
