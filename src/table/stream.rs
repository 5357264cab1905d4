//! Reading a whole slice from its first item to its last, past the cache, for merges.
//!
//! Blocking, one thread; the next piece is read while the current one is processed. A stream needs no index:
//! a data block has its own extent. Every block is checked, and so are the order of keys across blocks and,
//! at the end, all counts in the footer.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::id::ItemKind;
use crate::base::load::DeviceLoad;
use crate::base::step::{BlockAddress, BlockKind};
use crate::base::sync::Arc;
use crate::format::table::data::{self, Layout};
use crate::format::table::{DATA_BLOCK_BYTES_MAX, PAGE_BYTES, UNIT_BYTES, extent_bytes};
use crate::io::storage::Storage;

use super::admission::CacheAdmission;
use super::ahead::FileReadahead;
use super::memory::AlignedBytes;
use super::open::fill_exact;
use super::search::TableReader;
use super::verify::{decompress, verify_block};
use super::windows::Windows;

/// The most bytes of one request.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// A forward-only position in a slice.
pub(crate) struct TableStream {
    storage: Arc<dyn Storage>,
    load: Arc<DeviceLoad>,
    windows: Option<Arc<Windows>>,
    table: Arc<TableReader>,
    chunk: AlignedBytes,
    /// Bytes of a request, unless a block is larger.
    chunk_bytes: usize,
    /// The chunk's offset in the file, and the number of bytes read into it.
    chunk_offset: u64,
    chunk_filled: usize,
    /// The read-ahead; `None` if the chunk holds the whole slice.
    ahead: Option<FileReadahead>,
    /// The current block in the chunk, in its stored form; empty before the first block.
    block: std::ops::Range<usize>,
    /// The current block decompressed; empty if it is stored uncompressed.
    plain: Vec<u8>,
    /// `None` behind the last item.
    layout: Option<Layout>,
    index: usize,
    key: Vec<u8>,
    /// Buffer for the next key.
    next_key: Vec<u8>,
    /// Kind of the current item, and the range of its value in the block; a merge reads them several times.
    kind: ItemKind,
    value: std::ops::Range<usize>,
    seen: Seen,
    /// The cache to look up blocks in, and whether it has the current one.
    admission: Option<CacheAdmission>,
    is_cached: bool,
}

/// Counts of the items read so far; at the end they must equal the footer's.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Seen {
    blocks: u32,
    items: u64,
    tombstones: u64,
    key_value_bytes: u64,
}

impl TableStream {
    /// As [`TableStream::through`], without windows.
    #[cfg(test)]
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        load: Arc<DeviceLoad>,
        table: Arc<TableReader>,
        chunk_bytes: usize,
    ) -> Result<TableStream> {
        TableStream::through(None, (storage, load), table, chunk_bytes)
    }

    /// Stands on the first item. Requests are of `chunk_bytes`, but at most 1 MiB, and at least one block;
    /// they are counted in `load`. `windows`: shared by many streams that read slices in the order of their
    /// files.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub(crate) fn through(
        windows: Option<Arc<Windows>>,
        (storage, load): (Arc<dyn Storage>, Arc<DeviceLoad>),
        table: Arc<TableReader>,
        chunk_bytes: usize,
    ) -> Result<TableStream> {
        let data = table.entry().data();
        let whole = usize::try_from(data.bytes).unwrap_or(usize::MAX);
        let chunk_bytes = extent_bytes(chunk_bytes.clamp(PAGE_BYTES, CHUNK_BYTES_MAX)).min(whole);
        // Half a chunk, so that the rest of the previous chunk fits beside it.
        let ahead_bytes = extent_bytes(chunk_bytes / 2);
        let has_more = chunk_bytes < whole;
        let mut stream = TableStream {
            ahead: has_more.then(|| FileReadahead::new(&storage, &load, table.file().name(), ahead_bytes)),
            storage,
            load,
            windows,
            chunk: AlignedBytes::new(chunk_bytes),
            chunk_bytes,
            chunk_offset: data.offset,
            chunk_filled: 0,
            block: 0..0,
            plain: Vec::new(),
            layout: None,
            index: 0,
            key: Vec::new(),
            next_key: Vec::new(),
            kind: ItemKind::Delete,
            value: 0..0,
            seen: Seen::default(),
            admission: None,
            is_cached: false,
            table,
        };
        stream.next_block()?;
        if *stream.key != *stream.table.entry().min() {
            return Err(stream.corrupt("first key of a slice", "the one in the footer", "another"));
        }
        Ok(stream)
    }

    /// Memory of the read buffers.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.chunk.len() + self.plain.capacity() + self.ahead.as_ref().map_or(0, FileReadahead::memory_bytes)
    }

    /// From now on, notes for each block whether the cache has it.
    pub(crate) fn watch(&mut self, admission: &CacheAdmission) {
        self.is_cached = admission.holds(&self.address());
        self.admission = Some(admission.clone());
    }

    /// Whether the current item's block was cached when the stream reached it.
    pub(crate) fn is_cached(&self) -> bool {
        self.is_cached
    }

    /// The current item; `None` behind the last.
    #[inline]
    pub(crate) fn item(&self) -> Option<(&[u8], ItemKind, &[u8])> {
        self.layout.as_ref()?;
        Some((&self.key, self.kind, &self.block()[self.value.clone()]))
    }

    /// Goes to the next item and reads as needed; behind the last item it does nothing.
    ///
    /// # Errors
    /// `Corrupt` or `Io`; the stream must not be used afterwards.
    pub(crate) fn advance(&mut self) -> Result<()> {
        let Some(layout) = self.layout else { return Ok(()) };
        self.index += 1;
        if self.index == layout.items() {
            return self.next_block();
        }
        if layout.leaves_places_out() {
            return self.advance_placed(&layout);
        }
        self.key.truncate(layout.prefix_bytes());
        let block = block_of(&self.chunk, &self.block, &self.plain);
        self.key.extend_from_slice(layout.suffix(block, self.index));
        self.take_item(&layout);
        Ok(())
    }

    /// Goes to the next item of the block, whose key has a place.
    fn advance_placed(&mut self, layout: &Layout) -> Result<()> {
        self.next_key.clear();
        let block = block_of(&self.chunk, &self.block, &self.plain);
        layout.put_key(block, self.index, self.table.file().secret(), &mut self.next_key);
        if self.next_key <= self.key {
            return Err(self.corrupt("order of keys in a data block", "ascending", "not"));
        }
        std::mem::swap(&mut self.key, &mut self.next_key);
        self.take_item(layout);
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn table(&self) -> &Arc<TableReader> {
        &self.table
    }

    /// The block of the current item; behind the last item, the last block.
    fn address(&self) -> BlockAddress {
        let offset = self.chunk_offset + self.block.start as u64;
        self.table.address(offset, self.block.len() as u32, BlockKind::Data)
    }

    /// Goes to the next block, or behind the last item.
    fn next_block(&mut self) -> Result<()> {
        let data = self.table.entry().data();
        let offset = self.chunk_offset + self.block.end as u64;
        if offset == data.end() {
            self.layout = None;
            return self.check_seen();
        }
        let left = usize::try_from(data.end() - offset).unwrap_or(usize::MAX);
        self.block = self.block.end..self.block.end;
        self.fill(UNIT_BYTES)?;
        let claimed = data::extent_claimed(&self.chunk[self.block.start..self.chunk_filled]);
        let Some(bytes) = claimed.filter(|bytes| *bytes <= left) else {
            let limit = left.min(DATA_BLOCK_BYTES_MAX);
            return Err(self.corrupt("extent of a data block", limit, "none that fits"));
        };
        self.fill(bytes)?;
        self.block.end = self.block.start + bytes;
        let address = self.address();
        let stored = &self.chunk[self.block.clone()];
        let verified = verify_block(&address, stored)?;
        self.plain.clear();
        self.plain.shrink_to(self.chunk_bytes);
        if let Some(bytes) = verified.plain_bytes {
            self.plain.resize(bytes, 0);
            decompress(&address, stored, &mut self.plain)?;
        }
        self.begin_block()
    }

    /// Stands on the first item of the current block, which is checked.
    fn begin_block(&mut self) -> Result<()> {
        let block = self.block();
        let layout = Layout::of(block);
        if layout.leaves_places_out() && !self.table.tree().keyspace.is_hashed() {
            return Err(self.corrupt("flags of a data block", "keys whole", "without places"));
        }
        let first = layout.key(block, 0, self.table.file().secret());
        if self.seen.blocks > 0 && first <= self.key {
            return Err(self.corrupt("order of keys between blocks", "ascending", "not"));
        }
        self.is_cached = self.admission.as_ref().is_some_and(|cache| cache.holds(&self.address()));
        self.seen.blocks += 1;
        self.layout = Some(layout);
        self.index = 0;
        self.key = first;
        self.take_item(&layout);
        Ok(())
    }

    /// The current block in plain form.
    fn block(&self) -> &[u8] {
        block_of(&self.chunk, &self.block, &self.plain)
    }

    /// Counts the item of the current key.
    fn take_item(&mut self, layout: &Layout) {
        let block = block_of(&self.chunk, &self.block, &self.plain);
        self.seen.items += 1;
        (self.kind, self.value) = (layout.kind(block, self.index), layout.value_range(block, self.index));
        self.seen.tombstones += u64::from(self.kind == ItemKind::Delete);
        self.seen.key_value_bytes += (self.key.len() + self.value.len()) as u64;
    }

    /// Makes `bytes` from the start of the current block available, if needed in a chunk that begins with the
    /// block.
    fn fill(&mut self, bytes: usize) -> Result<()> {
        let start = self.block.start;
        if self.chunk_filled - start >= bytes {
            return Ok(());
        }
        let kept = self.chunk_filled - start;
        let from = self.chunk_offset + self.chunk_filled as u64;
        let brought = self.ahead.as_ref().and_then(|ahead| ahead.bytes_from(from)).unwrap_or(0);
        let needed = bytes.max(kept + brought);
        // A block larger than a request gets a chunk of its own length, and the chunk shrinks again after it.
        let wanted = self.chunk_bytes.max(needed);
        if self.chunk.len() < needed || self.chunk.len() > wanted {
            let mut other = AlignedBytes::new(wanted);
            other[..kept].copy_from_slice(&self.chunk[start..self.chunk_filled]);
            self.chunk = other;
        } else {
            self.chunk.copy_within(start..self.chunk_filled, 0);
        }
        self.chunk_offset += start as u64;
        self.block = 0..0;
        self.chunk_filled = kept;
        if let Some(ahead) = self.ahead.as_mut().filter(|_| brought > 0) {
            ahead.take(&mut self.chunk[kept..])?;
            self.chunk_filled += brought;
        }
        if self.chunk_filled < bytes || brought == 0 {
            self.fill_now()?;
        }
        let (next, left) = self.unread();
        if let Some(ahead) = &mut self.ahead {
            ahead.begin(next, left);
        }
        Ok(())
    }

    /// Fills the rest of the chunk with a blocking read.
    fn fill_now(&mut self) -> Result<()> {
        let (from, left) = self.unread();
        let start = self.chunk_filled;
        let end = self.chunk.len().min(start.saturating_add(left));
        let (file, buffer) = (self.table.file(), &mut self.chunk[start..end]);
        if let Some(windows) = &self.windows {
            windows.fill((self.storage.as_ref(), &self.load), file, from, buffer)?;
        } else {
            let _reading = self.load.merging();
            fill_exact(self.storage.as_ref(), file.name(), from, buffer)?;
        }
        self.chunk_filled = end;
        Ok(())
    }

    /// The offset and the length of the data that is not in the chunk yet.
    fn unread(&self) -> (u64, usize) {
        let from = self.chunk_offset + self.chunk_filled as u64;
        (from, usize::try_from(self.table.entry().data().end() - from).unwrap_or(usize::MAX))
    }

    fn check_seen(&self) -> Result<()> {
        let entry = self.table.entry();
        let counts = [
            ("data blocks of a slice", u64::from(entry.data_blocks), u64::from(self.seen.blocks)),
            ("items of a slice", entry.items(), self.seen.items),
            ("tombstones of a slice", entry.tombstones(), self.seen.tombstones),
            ("key and value bytes of a slice", entry.key_value_bytes, self.seen.key_value_bytes),
        ];
        for (what, expected, found) in counts {
            if expected != found {
                return Err(self.corrupt(what, expected, found));
            }
        }
        if *self.key != *entry.max() {
            return Err(self.corrupt("last key of a slice", "the one in the footer", "another"));
        }
        Ok(())
    }

    fn corrupt(
        &self,
        what: &'static str,
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> Error {
        Error::corrupt(self.table.file().name(), self.address().offset, what, expected, found)
    }
}

/// The current block in plain form: decompressed, if it was compressed.
#[inline]
fn block_of<'s>(chunk: &'s [u8], block: &Range<usize>, plain: &'s [u8]) -> &'s [u8] {
    if plain.is_empty() { &chunk[block.clone()] } else { plain }
}
