//! The bytes of a table file on their way to storage: sealed, written from front to back, synced.
//!
//! Only the builder uses it. One thread.

use crate::base::checksum::{self, Context};
use crate::base::error::Result;
use crate::base::step::{BlockAddress, BlockKind};
use crate::base::sync::Arc;
use crate::format::header::FileHeader;
use crate::format::table::footer::Span;
use crate::format::table::{PAGE_BYTES, seal};
use crate::io::storage::Storage;

use super::admission::CacheAdmission;
use super::identity::TableIdentity;

/// Bytes of one write, unless memory is limited.
pub(super) const WRITE_BYTES: usize = 1 << 20;

/// The header page of a table file.
fn header(identity: &TableIdentity, features: u64) -> Vec<u8> {
    let TableIdentity { file, store_id, uid, .. } = *identity;
    FileHeader { kind: file.kind, store_id, uid, features }.encode()
}

/// The file, written from front to back.
pub(super) struct TableOutput {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) identity: TableIdentity,
    /// The bytes from offset `written` on.
    pub(super) buffer: Vec<u8>,
    written: u64,
    pub(super) blocks_checksum: u32,
    pub(super) admission: Option<CacheAdmission>,
    pub(super) write_bytes: usize,
    pub(super) finished: bool,
}

impl TableOutput {
    /// The output of a file that was created.
    pub(super) fn new(storage: Arc<dyn Storage>, identity: TableIdentity) -> TableOutput {
        let buffer = header(&identity, 0);
        let (written, blocks_checksum, admission, finished) = (0, 0, None, false);
        TableOutput {
            storage,
            identity,
            buffer,
            written,
            blocks_checksum,
            admission,
            write_bytes: WRITE_BYTES,
            finished,
        }
    }

    /// The offset of the next byte.
    pub(super) fn at(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    pub(super) fn context(&self, tag: u8) -> Context {
        Context { file_uid: self.identity.uid, offset: self.at(), tag }
    }

    /// Offers the data block that begins at `start` of the buffer to the cache.
    pub(super) fn offer(&mut self, context: Context, start: usize) {
        let block = &self.buffer[start..];
        let (Some(admission), Ok(bytes)) = (&mut self.admission, u32::try_from(block.len())) else { return };
        let Context { file_uid, offset, .. } = context;
        let kind = BlockKind::Data;
        admission.offer(&BlockAddress { file: self.identity.file, file_uid, offset, bytes, kind }, block);
    }

    /// Appends zeros up to the next page.
    pub(super) fn align(&mut self) {
        let gap = self.at().next_multiple_of(PAGE_BYTES as u64) - self.at();
        self.buffer.resize(self.buffer.len() + gap as usize, 0);
    }

    /// Seals and appends an extent.
    pub(super) fn append(&mut self, extent: &[u8], tag: u8) -> Result<()> {
        let context = self.context(tag);
        let start = self.buffer.len();
        self.buffer.extend_from_slice(extent);
        let checksum = seal(&mut self.buffer[start..], context);
        self.appended(checksum)
    }

    fn append_sealed(&mut self, extent: &[u8], checksum: u32) -> Result<()> {
        self.buffer.extend_from_slice(extent);
        self.appended(checksum)
    }

    fn appended(&mut self, checksum: u32) -> Result<()> {
        self.blocks_checksum = checksum::append(self.blocks_checksum, &checksum.to_le_bytes());
        self.write_full()
    }

    /// Seals pages in place and appends them; whole pages are aligned. Returns their span.
    pub(super) fn append_pages(
        &mut self,
        pages: &mut [u8],
        page_bytes: usize,
        kind: BlockKind,
    ) -> Result<Span> {
        if pages.is_empty() {
            return Ok(Span::default());
        }
        if page_bytes == PAGE_BYTES {
            self.align();
        }
        let span = Span { offset: self.at(), bytes: pages.len() as u64 };
        for page in pages.chunks_mut(page_bytes) {
            let checksum = seal(page, self.context(kind as u8));
            self.append_sealed(page, checksum)?;
        }
        Ok(span)
    }

    /// Writes all whole pieces of the buffer.
    pub(super) fn write_full(&mut self) -> Result<()> {
        while self.buffer.len() >= self.write_bytes {
            self.write(self.write_bytes)?;
        }
        Ok(())
    }

    /// Sets the feature bits in the header, which has none yet.
    pub(super) fn set_features(&mut self, features: u64) -> Result<()> {
        if features == 0 {
            return Ok(());
        }
        let header = header(&self.identity, features);
        match self.written {
            0 => self.buffer[..header.len()].copy_from_slice(&header),
            _ => self.storage.write(self.identity.file, 0, &header)?,
        }
        Ok(())
    }

    fn write(&mut self, bytes: usize) -> Result<()> {
        let file = self.identity.file;
        self.storage.write(file, self.written, &self.buffer[..bytes])?;
        self.storage.start_writeback(file, self.written, bytes as u64);
        self.buffer.drain(..bytes);
        self.written += bytes as u64;
        Ok(())
    }

    pub(super) fn finish(&mut self) -> Result<u64> {
        self.write(self.buffer.len())?;
        self.storage.sync(self.identity.file)?;
        self.finished = true;
        Ok(self.written)
    }
}

impl Drop for TableOutput {
    fn drop(&mut self) {
        if !self.finished {
            // If the removal fails, the next open removes the file, since no manifest names it.
            let _ = self.storage.remove(self.identity.file);
        }
    }
}
