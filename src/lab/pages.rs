//! Files of the lab: a header and checksummed pages; writing, reading and caching them.
//!
//! Every file begins with the store's header (format::header, kind lab). Pages follow:
//!
//! ```text
//! offset size type  name: meaning (little-endian)
//! 0      4092       records of one length, as many as fit; zeros behind the last
//! 4092   4    u32   checksum: of bytes 0..4092 under (the file's uid, the page's offset, 2)
//! ```
//! This module does not know the meaning of a record. Any thread may use a [`PageReader`]. A file's number
//! tells its kind: bit 63 marks a file in writing without a final name, bit 62 a metadata record, and neither
//! an array.
//!
//! Invariant: a reader returns only bytes that match their checksum. Bytes of a mapping are copied out first;
//! no reference to them is kept.

use std::collections::BTreeMap;

use crate::base::checksum::Context;
use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName};
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::format::header::{FileHeader, PAGE_BYTES};
use crate::io::storage::{Mapped, Storage};

/// Bytes of a page for records.
pub(super) const CONTENT_BYTES: usize = PAGE_BYTES - 4;
/// Pages of one read or write when pages are used in sequence.
pub(super) const STREAM_PAGES: usize = 16;
/// Marks the number of a file in writing.
const TEMPORARY: u64 = 1 << 63;
/// Marks the number of a metadata record.
const METADATA: u64 = 1 << 62;
const PAGE_TAG: u8 = 2;
/// Buffers of direct reads begin at a multiple of this.
const ALIGNMENT: usize = 512;

pub(super) fn array_name(number: u64) -> FileName {
    FileName::new(FileKind::Lab, number)
}

pub(super) fn metadata_name(number: u64) -> FileName {
    FileName::new(FileKind::Lab, number | METADATA)
}

/// The number of a metadata record with that name; `None` for any other file.
pub(super) fn metadata_number(file: FileName) -> Option<u64> {
    let is_metadata = file.number & (METADATA | TEMPORARY) == METADATA;
    is_metadata.then_some(file.number & !METADATA)
}

pub(super) fn is_array(file: FileName) -> bool {
    file.number & (METADATA | TEMPORARY) == 0
}

/// The file's number as it was allotted, without marks.
pub(super) fn plain_number(file: FileName) -> u64 {
    file.number & !(METADATA | TEMPORARY)
}

pub(super) fn temporary(file: FileName) -> FileName {
    FileName { number: file.number | TEMPORARY, ..file }
}

/// The pages of one file.
#[derive(Clone)]
pub(super) struct PageFile {
    pub(super) name: FileName,
    pub(super) uid: u64,
    pub(super) record_bytes: usize,
    map: Option<Arc<dyn Mapped>>,
}

impl std::fmt::Debug for PageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageFile({}, records of {} bytes)", self.name, self.record_bytes)
    }
}

impl PageFile {
    pub(super) fn new(name: FileName, uid: u64, record_bytes: usize) -> PageFile {
        assert!((1..=CONTENT_BYTES).contains(&record_bytes), "the knobs' ranges let a record fit a page");
        PageFile { name, uid, record_bytes, map: None }
    }

    /// The file with that name, identified by its own header, and its number of pages.
    ///
    /// # Errors
    /// `Corrupt` if the header is damaged, or the file ends within a page.
    pub(super) fn find(
        storage: &dyn Storage,
        name: FileName,
        record_bytes: usize,
    ) -> Result<(PageFile, u64)> {
        let bytes = storage.length(name)?.unwrap_or(0);
        let header = read_header(storage, name)?;
        let pages = (bytes / PAGE_BYTES as u64).saturating_sub(1);
        let expected_bytes = (1 + pages) * PAGE_BYTES as u64;
        if bytes != expected_bytes {
            return Err(Error::corrupt(name, bytes, "the file's length", expected_bytes, bytes));
        }
        Ok((PageFile::new(name, header.uid, record_bytes), pages))
    }

    pub(super) fn records_a_page(&self) -> usize {
        CONTENT_BYTES / self.record_bytes
    }

    pub(super) fn pages_of(&self, records: u64) -> u64 {
        records.div_ceil(self.records_a_page() as u64)
    }

    /// Length of the file with `records` records, in bytes.
    pub(super) fn bytes_of(&self, records: u64) -> u64 {
        (1 + self.pages_of(records)) * PAGE_BYTES as u64
    }

    /// Checks that the file has the expected header and length, and maps it if asked.
    ///
    /// # Errors
    /// `Corrupt` if a check fails.
    pub(super) fn check(
        &mut self,
        storage: &dyn Storage,
        store_id: u128,
        records: u64,
        map: bool,
    ) -> Result<()> {
        let expected_bytes = self.bytes_of(records);
        match storage.length(self.name)? {
            Some(bytes) if bytes == expected_bytes => {}
            Some(bytes) => {
                let at = bytes.min(expected_bytes);
                return Err(Error::corrupt(self.name, at, "the file's length", expected_bytes, bytes));
            }
            None => return Err(Error::corrupt(self.name, 0, "the file", expected_bytes, "missing")),
        }
        self.check_header(storage, store_id)?;
        if map {
            self.map = storage.map(self.name)?;
        }
        Ok(())
    }

    /// Checks that the file has the expected header.
    ///
    /// # Errors
    /// `Corrupt` if it has another.
    pub(super) fn check_header(&self, storage: &dyn Storage, store_id: u128) -> Result<()> {
        let header = read_header(storage, self.name)?;
        header.check(self.name, &FileHeader { kind: FileKind::Lab, store_id, uid: self.uid, features: 0 })
    }

    /// Completes page `page` of the file, whose records start at `content_at` in `bytes`: adds zeros and the
    /// checksum.
    pub(super) fn seal(&self, page: u64, bytes: &mut Vec<u8>, content_at: usize) -> u32 {
        bytes.resize(content_at + CONTENT_BYTES, 0);
        let context = Context { file_uid: self.uid, offset: PageFile::offset(page), tag: PAGE_TAG };
        let checksum = context.checksum(&[&bytes[content_at..]]);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        checksum
    }

    pub(super) fn offset(page: u64) -> u64 {
        (1 + page) * PAGE_BYTES as u64
    }
}

fn read_header(storage: &dyn Storage, name: FileName) -> Result<FileHeader> {
    let mut page = Buffer::pages(1);
    let read = storage.read(name, 0, page.bytes())?;
    FileHeader::decode(name, page.first(read), FileKind::Lab)
}

/// Memory for whole pages, aligned for direct reads.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Buffer {
    pub(super) fn pages(count: usize) -> Buffer {
        let bytes = count * PAGE_BYTES;
        let memory = vec![0; bytes + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Buffer { memory, start, bytes }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }

    fn first(&self, bytes: usize) -> &[u8] {
        &self.memory[self.start..self.start + bytes.min(self.bytes)]
    }

    /// The records of page `index` of the buffer.
    pub(super) fn content(&self, index: usize) -> &[u8] {
        &self.memory[self.start + index * PAGE_BYTES..][..CONTENT_BYTES]
    }

    /// The checksum behind the records of page `index` of the buffer.
    pub(super) fn checksum(&self, index: usize) -> u32 {
        let stored = &self.memory[self.start + index * PAGE_BYTES + CONTENT_BYTES..][..4];
        stored.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
    }
}

/// Counters of reads.
#[derive(Default, Debug)]
pub(super) struct PageReadCounts {
    pub(super) pages: AtomicU64,
    pub(super) cached_pages: AtomicU64,
}

/// Reads pages, one at a time through the cache or several at a time past the cache.
pub(super) struct PageReader {
    storage: Arc<dyn Storage>,
    cache: Option<Mutex<PageCache>>,
    pub(super) counts: PageReadCounts,
}

impl std::fmt::Debug for PageReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({})", self.storage.path())
    }
}

impl PageReader {
    pub(super) fn new(storage: Arc<dyn Storage>, cache_bytes: u64) -> PageReader {
        let pages_max = (cache_bytes / PAGE_BYTES as u64) as usize;
        let cache = (pages_max > 0).then(|| Mutex::new(PageCache::new(pages_max)));
        PageReader { storage, cache, counts: PageReadCounts::default() }
    }

    /// Reads one page into the start of the buffer.
    ///
    /// # Errors
    /// `Corrupt` if its checksum does not match.
    pub(super) fn page(&self, file: &PageFile, page: u64, buffer: &mut Buffer) -> Result<()> {
        if let Some(cache) = &self.cache
            && cache.lock().get((file.name, page), buffer)
        {
            self.counts.cached_pages.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.fill(file, page, 1, buffer)?;
        if let Some(cache) = &self.cache {
            cache.lock().put((file.name, page), buffer.content(0));
        }
        Ok(())
    }

    /// Reads `count` consecutive pages.
    ///
    /// # Errors
    /// As [`PageReader::page`].
    pub(super) fn fill(&self, file: &PageFile, first: u64, count: usize, buffer: &mut Buffer) -> Result<()> {
        let offset = PageFile::offset(first);
        let wanted = &mut buffer.bytes()[..count * PAGE_BYTES];
        let bytes = match &file.map {
            Some(map) => map.copy(offset, wanted),
            None => self.storage.read(file.name, offset, wanted)?,
        };
        self.counts.pages.fetch_add(count as u64, Ordering::Relaxed);
        if bytes < wanted.len() {
            let length = offset + wanted.len() as u64;
            return Err(Error::corrupt(
                file.name,
                offset,
                "the file's length",
                length,
                offset + bytes as u64,
            ));
        }
        for (index, page) in wanted.chunks_exact(PAGE_BYTES).enumerate() {
            let offset = PageFile::offset(first + index as u64);
            let (content, stored) = page.split_at(CONTENT_BYTES);
            let found = Context { file_uid: file.uid, offset, tag: PAGE_TAG }.checksum(&[content]);
            if stored != found.to_le_bytes() {
                let stored = stored.iter().rev().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
                return Err(Error::corrupt(file.name, offset, "a page's checksum", stored, found));
            }
        }
        Ok(())
    }

    /// Drops the cached pages of a removed file.
    pub(super) fn forget(&self, file: FileName) {
        if let Some(cache) = &self.cache {
            cache.lock().forget(file);
        }
    }
}

/// Pages by file and number, with CLOCK eviction: a page that was read since the last sweep is skipped once.
#[derive(Debug)]
struct PageCache {
    places: BTreeMap<(FileName, u64), usize>,
    slots: Vec<CachedPage>,
    pages_max: usize,
    hand: usize,
}

#[derive(Debug)]
struct CachedPage {
    key: (FileName, u64),
    content: Box<[u8]>,
    is_recent: bool,
}

impl PageCache {
    fn new(pages_max: usize) -> PageCache {
        PageCache { places: BTreeMap::new(), slots: Vec::new(), pages_max, hand: 0 }
    }

    fn get(&mut self, key: (FileName, u64), buffer: &mut Buffer) -> bool {
        let Some(place) = self.places.get(&key) else { return false };
        let slot = &mut self.slots[*place];
        slot.is_recent = true;
        buffer.bytes()[..CONTENT_BYTES].copy_from_slice(&slot.content);
        true
    }

    fn put(&mut self, key: (FileName, u64), content: &[u8]) {
        if self.places.contains_key(&key) {
            return;
        }
        let page = CachedPage { key, content: content.into(), is_recent: false };
        if self.slots.len() < self.pages_max {
            self.places.insert(key, self.slots.len());
            self.slots.push(page);
            return;
        }
        while std::mem::take(&mut self.slots[self.hand].is_recent) {
            self.hand = (self.hand + 1) % self.slots.len();
        }
        self.places.remove(&self.slots[self.hand].key);
        self.places.insert(key, self.hand);
        self.slots[self.hand] = page;
        self.hand = (self.hand + 1) % self.slots.len();
    }

    /// The slots remain, and are reused by the ordinary eviction.
    fn forget(&mut self, file: FileName) {
        let range = (file, 0)..=(file, u64::MAX);
        let gone: Vec<(FileName, u64)> = self.places.range(range).map(|(key, _)| *key).collect();
        for key in gone {
            self.places.remove(&key);
        }
    }
}

/// Writes a file of records under its temporary name.
pub(super) struct PageWriter<'a> {
    storage: &'a dyn Storage,
    file: PageFile,
    /// Pages not yet written; the last one is not full.
    pending: Vec<u8>,
    in_page: usize,
    pages_written: u64,
    count: u64,
}

impl<'a> PageWriter<'a> {
    pub(super) fn create(storage: &'a dyn Storage, file: PageFile, store_id: u128) -> Result<PageWriter<'a>> {
        let name = temporary(file.name);
        storage.create(name)?;
        let header = FileHeader { kind: FileKind::Lab, store_id, uid: file.uid, features: 0 };
        storage.write(name, 0, &header.encode())?;
        Ok(PageWriter { storage, file, pending: Vec::new(), in_page: 0, pages_written: 0, count: 0 })
    }

    /// Appends a record, given in parts and padded with zeros.
    pub(super) fn push(&mut self, parts: &[&[u8]]) -> Result<()> {
        if self.in_page == self.file.records_a_page() {
            self.end_page();
            if self.pending.len() == STREAM_PAGES * PAGE_BYTES {
                self.write_pending()?;
            }
        }
        let end = self.pending.len() + self.file.record_bytes;
        parts.iter().for_each(|part| self.pending.extend_from_slice(part));
        assert!(self.pending.len() <= end, "a record's parts are no longer than it");
        self.pending.resize(end, 0);
        self.in_page += 1;
        self.count += 1;
        Ok(())
    }

    fn end_page(&mut self) {
        let done_pages = self.pending.len() / PAGE_BYTES;
        let page = self.pages_written + done_pages as u64;
        self.file.seal(page, &mut self.pending, done_pages * PAGE_BYTES);
        self.in_page = 0;
    }

    fn write_pending(&mut self) -> Result<()> {
        let offset = PageFile::offset(self.pages_written);
        self.storage.write(temporary(self.file.name), offset, &self.pending)?;
        self.pages_written += (self.pending.len() / PAGE_BYTES) as u64;
        self.pending.clear();
        Ok(())
    }

    /// Writes the remaining records, syncs the file if asked, and renames it to its final name.
    pub(super) fn finish(mut self, sync: bool) -> Result<PageFile> {
        if self.in_page > 0 {
            self.end_page();
        }
        if !self.pending.is_empty() {
            self.write_pending()?;
        }
        let name = temporary(self.file.name);
        if sync {
            self.storage.sync(name)?;
        }
        self.storage.rename(name, self.file.name)?;
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::sim::SimDisk;

    fn written(storage: &dyn Storage, count: u32) -> PageFile {
        let file = PageFile::new(array_name(7), 99, 37);
        let mut writer = PageWriter::create(storage, file, 5).expect("a new file");
        for number in 0..count {
            writer.push(&[&number.to_be_bytes(), b"rest"]).expect("room");
        }
        let mut file = writer.finish(true).expect("room");
        file.check(storage, 5, u64::from(count), false).expect("as written");
        file
    }

    /// Records read back from every page, through the cache and past it, and a cache of one page holds one
    /// page.
    #[test]
    fn records_come_back() {
        let disk = SimDisk::new(1);
        disk.create_directory().expect("an empty disk");
        let count = 110 * 40 + 3;
        let file = written(&*disk, count);
        assert_eq!((file.records_a_page(), file.pages_of(u64::from(count))), (110, 41));
        for cache_bytes in [0, 4096, 40_960, 1 << 20] {
            let reader = PageReader::new(disk.clone(), cache_bytes);
            let mut buffer = Buffer::pages(3);
            for round in 0..3u64 {
                for page in 0..41u64 {
                    reader.page(&file, page, &mut buffer).expect("as written");
                    let first = (page as u32 * 110).to_be_bytes();
                    assert_eq!(
                        (&buffer.content(0)[..4], &buffer.content(0)[4..8]),
                        (&first[..], &b"rest"[..])
                    );
                }
                reader.fill(&file, round, 3, &mut buffer).expect("as written");
                assert_eq!(buffer.content(2)[..4], ((round as u32 + 2) * 110).to_be_bytes());
            }
            let hits = reader.counts.cached_pages.load(Ordering::Relaxed);
            assert_eq!(hits, if cache_bytes > 200_000 { 82 } else { 0 });
            reader.forget(file.name);
            reader.page(&file, 3, &mut buffer).expect("as written");
        }
    }

    /// A flipped bit anywhere, and a file too short or too long, is an error.
    #[test]
    fn damage_is_told() {
        let disk = SimDisk::new(1);
        disk.create_directory().expect("an empty disk");
        let file = written(&*disk, 200);
        let good = disk.contents(file.name).expect("it is there");
        let read = |bytes: &[u8]| {
            disk.set_contents(file.name, Some(bytes));
            let reader = PageReader::new(disk.clone(), 0);
            let mut file = file.clone();
            file.check(&*disk, 5, 200, false)?;
            (0..2).try_for_each(|page| reader.page(&file, page, &mut Buffer::pages(1)))
        };
        read(&good).expect("good");
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(matches!(read(&bytes), Err(Error::Corrupt(_) | Error::Unsupported { .. })), "byte {at}");
        }
        assert!(read(&good[..good.len() - 1]).is_err());
        assert!(read(&[&good[..], b"x"].concat()).is_err());
    }
}
