//! The check of a whole table file, for the tests of damage: reads everything, past the cache.

use crate::base::error::{Error, Result};
use crate::base::step::{BlockAddress, BlockKind};
use crate::base::sync::{Arc, Event};
use crate::format::table::PAGE_BYTES;
use crate::format::table::footer::Span;
use crate::format::table::ranges::claimed_bytes;
use crate::io::storage::Storage;

use super::open::{Contents, Discarded, TableFile, read_exact};
use super::search::{Fenced, Table};
use super::stream::TableStream;
use super::verify::verify_block;

/// Bytes of one request of `verify`.
const CHUNK_BYTES: usize = 1 << 20;

impl TableFile {
    /// Reads the whole file and checks everything that can be checked without the keys' hashes: every
    /// checksum, all structure, order, the footer's counts, that fences lead to each block, that gaps are
    /// zero, the table checksum.
    ///
    /// # Errors
    /// `Corrupt` at the first damage, or `Io`.
    pub(crate) fn verify(&self, storage: &Arc<dyn Storage>) -> Result<()> {
        // Opened anew, so that what is checked is what is on disk now.
        let discarded = Discarded::new(Arc::new(Event::new()));
        let contents = Contents::read(storage.as_ref(), self.identity(), self.bytes(), self.checksum())?;
        let tables = TableFile::open(storage, self.identity(), self.bytes(), self.checksum(), &discarded)?;
        let mut scrub = Scrub { storage, file: self, checksum: 0, at: PAGE_BYTES as u64 };
        for table in &tables {
            scrub.slice(table)?;
        }
        scrub.gap(contents.footer.offset)?;
        if scrub.checksum != contents.blocks_checksum {
            let (expected, found) = (contents.blocks_checksum, scrub.checksum);
            return Err(Error::corrupt(
                self.name(),
                contents.footer.offset,
                "blocks checksum",
                expected,
                found,
            ));
        }
        Ok(())
    }
}

/// A walk over the file.
struct Scrub<'a> {
    storage: &'a Arc<dyn Storage>,
    file: &'a TableFile,
    /// Over the checksums so far.
    checksum: u32,
    /// Everything before is checked.
    at: u64,
}

impl Scrub<'_> {
    fn slice(&mut self, table: &Arc<Table>) -> Result<()> {
        let entry = table.entry();
        self.gap(entry.data.offset)?;
        let fences = read_exact(self.storage.as_ref(), self.file.name(), entry.fence_span())?;
        let page_bytes = entry.fence_page_bytes as usize;
        for (index, page) in fences.chunks(page_bytes.max(1)).enumerate() {
            let offset = entry.fence_offset + (index * page_bytes) as u64;
            verify_block(&table.address(offset, entry.fence_page_bytes, BlockKind::Fence), page)?;
        }
        self.data(table, &fences)?;
        self.pages(table, entry.filter_span(), entry.filter.page_bytes, BlockKind::Filter)?;
        self.pages(table, entry.fence_span(), entry.fence_page_bytes, BlockKind::Fence)?;
        if entry.top.bytes > 0 {
            self.gap(entry.top.offset)?;
            let top = read_exact(self.storage.as_ref(), self.file.name(), entry.top)?;
            let checksum = top.first_chunk::<4>().expect("the footer's check makes it whole units");
            self.checksum = crc32c::crc32c_append(self.checksum, checksum);
            self.at = entry.top.end();
        }
        self.ranges(entry.ranges)?;
        Ok(())
    }

    /// All items, and that the fences lead to the first and the last of each block.
    fn data(&mut self, table: &Arc<Table>, fences: &[u8]) -> Result<()> {
        let mut stream =
            TableStream::continuing(Arc::clone(self.storage), Arc::clone(table), CHUNK_BYTES, self.checksum)?;
        let mut before: Option<(BlockAddress, Vec<u8>)> = None;
        while let Some((key, _, _)) = stream.item() {
            let address = stream.address();
            match &mut before {
                Some((block, last)) if *block == address => {
                    last.clear();
                    last.extend_from_slice(key);
                }
                _ => {
                    if let Some((block, last)) = before.take() {
                        leads(table, fences, &last, block)?;
                    }
                    leads(table, fences, key, address)?;
                    before = Some((address, key.to_vec()));
                }
            }
            stream.advance()?;
        }
        if let Some((block, last)) = before {
            leads(table, fences, &last, block)?;
        }
        self.checksum = stream.checksum();
        self.at = table.entry().data.end();
        Ok(())
    }

    fn pages(&mut self, table: &Table, span: Span, page_bytes: u32, kind: BlockKind) -> Result<()> {
        if span.bytes == 0 {
            return Ok(());
        }
        self.gap(span.offset)?;
        while self.at < span.end() {
            let page = Span { offset: self.at, bytes: u64::from(page_bytes) };
            let bytes = read_exact(self.storage.as_ref(), self.file.name(), page)?;
            let checksum = verify_block(&table.address(self.at, page_bytes, kind), &bytes)?.checksum;
            self.checksum = crc32c::crc32c_append(self.checksum, &checksum.to_le_bytes());
            self.at += u64::from(page_bytes);
        }
        Ok(())
    }

    /// Their checksums; what is in them was looked at when the file was opened.
    fn ranges(&mut self, span: Span) -> Result<()> {
        if span.bytes == 0 {
            return Ok(());
        }
        self.gap(span.offset)?;
        let extents = read_exact(self.storage.as_ref(), self.file.name(), span)?;
        let mut extents = &extents[..];
        while !extents.is_empty() {
            let bytes = claimed_bytes(extents).expect("opening looked at them");
            let checksum = extents.first_chunk::<4>().expect("whole units");
            self.checksum = crc32c::crc32c_append(self.checksum, checksum);
            extents = &extents[bytes..];
        }
        self.at = span.end();
        Ok(())
    }

    /// Zeros up to the next part.
    fn gap(&mut self, end: u64) -> Result<()> {
        let span = Span { offset: self.at, bytes: end - self.at };
        let bytes = read_exact(self.storage.as_ref(), self.file.name(), span)?;
        if let Some(index) = bytes.iter().position(|byte| *byte != 0) {
            let offset = self.at + index as u64;
            return Err(Error::corrupt(self.file.name(), offset, "gap between parts", 0, bytes[index]));
        }
        self.at = end;
        Ok(())
    }
}

/// Whether the fences lead from `key` to the block it is in.
fn leads(table: &Table, fences: &[u8], key: &[u8], block: BlockAddress) -> Result<()> {
    let page_bytes = table.entry().fence_page_bytes as usize;
    let page = table.fence_page_of(key) * page_bytes;
    let found = table.fence(key, fences.get(page..page + page_bytes));
    if found == Fenced::Block(block) || found == Fenced::Alone(block) {
        return Ok(());
    }
    let name = table.file().name();
    Err(Error::corrupt(name, block.offset, "fence of a block", "this block", format!("{found:?}")))
}
