//! Opening a table file: header, tail, footer and top blocks are checked; everything else when it is read.
//!
//! The engine opens what the manifest names. A [`TableFile`] is shared by the tables (slices) in it; when the
//! last of them goes after it was marked obsolete, its name is handed to whoever removes files.

use crate::base::checksum::Context;
use crate::base::codec::Malformed;
use crate::base::error::{Error, Result};
use crate::base::id::FileName;
use crate::base::sync::{Arc, AtomicBool, Event, Mutex, Ordering};
use crate::format::header::FileHeader;
use crate::format::table::footer::{Footer, SliceEntry, Span, decode_tail};
use crate::format::table::top::Top;
use crate::format::table::{FOOTER_TAG, PAGE_BYTES, TAIL_TAG, TOP_TAG, UNIT_BYTES, check_seal};
use crate::io::storage::Storage;

use super::build::TableIdentity;
use super::memory::AlignedBytes;
use super::search::Table;

/// What is read from the end of a file at once: tail, and in most files footer and top blocks.
const END_BYTES: u64 = 32 << 10;
/// Header page, a block, footer, tail page.
const BYTES_MIN: u64 = 2 * PAGE_BYTES as u64 + 2 * UNIT_BYTES as u64;

/// Names of files that nobody can look into any more.
#[derive(Debug)]
pub(crate) struct Discarded {
    files: Mutex<Vec<FileName>>,
    event: Arc<Event>,
}

impl Discarded {
    /// `event` is notified at each name.
    pub(crate) fn new(event: Arc<Event>) -> Arc<Discarded> {
        Arc::new(Discarded { files: Mutex::new(Vec::new()), event })
    }

    /// Takes the names so far.
    pub(crate) fn take(&self) -> Vec<FileName> {
        std::mem::take(&mut *self.files.lock())
    }

    fn push(&self, file: FileName) {
        self.files.lock().push(file);
        self.event.notify();
    }
}

/// An open table file.
#[derive(Debug)]
pub(crate) struct TableFile {
    identity: TableIdentity,
    bytes: u64,
    #[cfg_attr(not(test), expect(dead_code, reason = "the check of a whole file reads it"))]
    checksum: u32,
    obsolete: AtomicBool,
    discarded: Arc<Discarded>,
}

impl TableFile {
    /// Opens the file that the manifest says has this identity, length and table checksum: one table a slice,
    /// in order.
    ///
    /// # Errors
    /// `Corrupt` where the file is not that one or its header, tail, footer or a top block is damaged.
    pub(crate) fn open(
        storage: &Arc<dyn Storage>,
        identity: TableIdentity,
        bytes: u64,
        checksum: u32,
        discarded: &Arc<Discarded>,
    ) -> Result<Vec<Arc<Table>>> {
        let contents = Contents::read(storage.as_ref(), identity, bytes, checksum)?;
        let file = Arc::new(TableFile {
            identity,
            bytes,
            checksum,
            obsolete: AtomicBool::new(false),
            discarded: Arc::clone(discarded),
        });
        let slices = contents.slices.into_iter().enumerate();
        Ok(slices.map(|(index, (entry, top))| Arc::new(Table::new(&file, index, entry, top))).collect())
    }

    pub(crate) fn identity(&self) -> TableIdentity {
        self.identity
    }

    pub(crate) fn name(&self) -> FileName {
        self.identity.file
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[cfg(test)]
    pub(crate) fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Says that no version names the file any more: its name is discarded when its last table is dropped.
    pub(crate) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.discarded.push(self.identity.file);
        }
    }
}

/// What opening reads.
pub(super) struct Contents {
    #[cfg_attr(not(test), expect(dead_code, reason = "the check of a whole file reads it"))]
    pub(super) blocks_checksum: u32,
    #[cfg_attr(not(test), expect(dead_code, reason = "the check of a whole file reads it"))]
    pub(super) footer: Span,
    pub(super) slices: Vec<(SliceEntry, Option<Top>)>,
}

impl Contents {
    pub(super) fn read(
        storage: &dyn Storage,
        identity: TableIdentity,
        bytes: u64,
        checksum: u32,
    ) -> Result<Contents> {
        let file = identity.file;
        let found = storage.length(file)?;
        if found != Some(bytes) {
            let found = found.map_or_else(|| "no file".to_owned(), |found| found.to_string());
            return Err(Error::corrupt(file, 0, "length of the table", bytes, found));
        }
        if bytes < BYTES_MIN || !bytes.is_multiple_of(UNIT_BYTES as u64) {
            return Err(Error::corrupt(file, 0, "length of the table", BYTES_MIN, bytes));
        }
        let header = read_exact(storage, file, Span { offset: 0, bytes: PAGE_BYTES as u64 })?;
        let expected = FileHeader { kind: file.kind, store_id: identity.store_id, uid: identity.uid };
        FileHeader::decode(file, &header, file.kind)?.check(file, &expected)?;
        let end = End::read(storage, identity, bytes)?;
        let tail = Span { offset: bytes - PAGE_BYTES as u64, bytes: PAGE_BYTES as u64 };
        let footer = end.with(storage, tail, TAIL_TAG, |page, _| decode_tail(page, tail.offset))?;
        let (decoded, footer_checksum) = end.with(storage, footer, FOOTER_TAG, |block, checksum| {
            Ok((Footer::decode(block, footer.offset)?, checksum))
        })?;
        let blocks_checksum = decoded.blocks_checksum;
        let table_checksum = crc32c::crc32c_append(blocks_checksum, &footer_checksum.to_le_bytes());
        if table_checksum != checksum {
            return Err(Error::corrupt(file, footer.offset, "table checksum", checksum, table_checksum));
        }
        let mut slices = Vec::with_capacity(decoded.slices.len());
        for entry in decoded.slices {
            let top = if entry.fence_pages == 0 {
                None
            } else {
                let decode = |block: &[u8], _| Top::decode(block, entry.fence_pages);
                Some(end.with(storage, entry.top, TOP_TAG, decode)?)
            };
            slices.push((entry, top));
        }
        Ok(Contents { blocks_checksum, footer, slices })
    }
}

/// The end of the file, read at once.
struct End {
    identity: TableIdentity,
    offset: u64,
    bytes: AlignedBytes,
}

impl End {
    fn read(storage: &dyn Storage, identity: TableIdentity, bytes: u64) -> Result<End> {
        let offset = bytes.saturating_sub(END_BYTES);
        let bytes = read_exact(storage, identity.file, Span { offset, bytes: bytes - offset })?;
        Ok(End { identity, offset, bytes })
    }

    /// Checks and decodes a block of the file, reading it if it is not in the end.
    fn with<T>(
        &self,
        storage: &dyn Storage,
        span: Span,
        tag: u8,
        decode: impl FnOnce(&[u8], u32) -> std::result::Result<T, Malformed>,
    ) -> Result<T> {
        let (file, context) =
            (self.identity.file, Context { file_uid: self.identity.uid, offset: span.offset, tag });
        let read;
        let inside = span.offset.checked_sub(self.offset).and_then(|start| {
            let start = start as usize;
            self.bytes.get(start..start + span.bytes as usize)
        });
        let block = match inside {
            Some(block) => block,
            None => {
                read = read_exact(storage, file, span)?;
                &read
            }
        };
        check_seal(block, context)
            .and_then(|checksum| decode(block, checksum))
            .map_err(|bad| Error::malformed(file, span.offset, bad))
    }
}

/// Reads a span that lies in the file.
pub(super) fn read_exact(storage: &dyn Storage, file: FileName, span: Span) -> Result<AlignedBytes> {
    let mut bytes = AlignedBytes::new(span.bytes as usize);
    fill_exact(storage, file, span.offset, &mut bytes)?;
    Ok(bytes)
}

/// Fills `buffer` from the file, which must be long enough.
pub(super) fn fill_exact(
    storage: &dyn Storage,
    file: FileName,
    offset: u64,
    buffer: &mut [u8],
) -> Result<()> {
    let read = storage.read(file, offset, buffer)?;
    if read == buffer.len() {
        return Ok(());
    }
    Err(Error::corrupt(file, offset, "bytes of the table", buffer.len(), read))
}
