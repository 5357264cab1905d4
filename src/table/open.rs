//! Opening a table file: header, tail, footer, top and range blocks are checked now; all other blocks are
//! checked when they are read.
//!
//! The engine opens the files that the manifest names. The tables (slices) of a file share its [`TableFile`].
//! When the last of them is dropped after the file was marked obsolete, the file's name goes to the worker
//! that removes files.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::checksum::{self, Context};
use crate::base::codec::Malformed;
use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileName, TreeId};
use crate::base::sync::{Arc, AtomicBool, Event, Mutex, Ordering};
use crate::format::header::FileHeader;
use crate::format::table::footer::{Footer, SliceEntry, Span, decode_tail};
use crate::format::table::ranges::{Ranges, claimed_bytes};
use crate::format::table::top::Top;
use crate::format::table::{FOOTER_TAG, PAGE_BYTES, RANGES_TAG, TAIL_TAG, TOP_TAG, UNIT_BYTES, check_seal};
use crate::io::storage::Storage;

use super::identity::{TableIdentity, TableSummary};
use super::memory::{AlignedBytes, PageBudget};
use super::packed::PackedEntry;
use super::resident::Resident;
use super::search::{Ranged, TableReader, memory_bytes};

/// Bytes read from the end of a file at once: the tail, and in most files the footer and top blocks.
const END_BYTES: u64 = 32 << 10;
/// A header page, one block, a footer, a tail page.
const BYTES_MIN: u64 = 2 * PAGE_BYTES as u64 + 2 * UNIT_BYTES as u64;

/// Obsolete table files: those with readers, and those that can be removed.
#[derive(Debug)]
pub(crate) struct Discarded {
    files: Mutex<DiscardedFiles>,
    event: Arc<Event>,
}

#[derive(Default, Debug)]
struct DiscardedFiles {
    /// All obsolete files, until [`Discarded::forget`].
    obsolete: BTreeSet<FileName>,
    /// Files without readers that the remover has not taken yet.
    unread: Vec<FileName>,
    /// Slices that left the version and still have readers.
    dying_slices: usize,
    /// Whole pages of slices without readers, in files that still have other slices.
    holes: BTreeMap<FileName, Vec<Span>>,
    /// Some holes were taken and are not punched yet.
    is_punching: bool,
}

impl Discarded {
    /// `event` is notified when a file loses its last reader.
    pub(crate) fn new(event: Arc<Event>) -> Arc<Discarded> {
        Arc::new(Discarded { files: Mutex::default(), event })
    }

    /// Takes the names of files without readers, to remove and then to forget.
    pub(crate) fn take(&self) -> Vec<FileName> {
        std::mem::take(&mut self.files.lock().unread)
    }

    /// Forgets a removed file.
    pub(crate) fn forget(&self, file: FileName) {
        self.files.lock().obsolete.remove(&file);
    }

    /// Takes free pages of a file that stays, at most `most` spans; neighbours are one span. The caller calls
    /// [`Discarded::end_holes`] afterwards.
    pub(crate) fn take_holes(&self, most: usize) -> Vec<(FileName, Span)> {
        let files = &mut *self.files.lock();
        let Some(mut of_file) = files.holes.last_entry() else { return Vec::new() };
        let (file, spans) = (*of_file.key(), of_file.get_mut());
        spans.sort_unstable_by_key(|span| std::cmp::Reverse(span.offset));
        let mut taken: Vec<(FileName, Span)> = Vec::new();
        // From the back, ascending by offset.
        while let Some(span) = spans.last().copied() {
            let count = taken.len();
            match taken.last_mut() {
                Some((_, before)) if before.end() == span.offset => before.bytes += span.bytes,
                _ if count == most => break,
                _ => taken.push((file, span)),
            }
            spans.pop();
        }
        if spans.is_empty() {
            of_file.remove();
        }
        files.is_punching = true;
        taken
    }

    /// Notes that the holes taken last are punched. Returns whether more are left; the remover of files is
    /// then notified.
    pub(crate) fn end_holes(&self) -> bool {
        let mut files = self.files.lock();
        files.is_punching = false;
        let are_left = !files.holes.is_empty();
        drop(files);
        if are_left {
            self.event.notify();
        }
        are_left
    }

    /// Whether every obsolete file is removed, and every slice that left the version is dropped and its pages
    /// punched.
    pub(crate) fn is_empty(&self) -> bool {
        let files = self.files.lock();
        let has_holes = files.is_punching || !files.holes.is_empty();
        files.obsolete.is_empty() && files.dying_slices == 0 && !has_holes
    }

    /// Obsolete files that are not removed yet, by name.
    pub(crate) fn obsolete(&self) -> Vec<FileName> {
        self.files.lock().obsolete.iter().copied().collect()
    }

    /// Notifies the remover of files.
    pub(crate) fn notify(&self) {
        self.event.notify();
    }

    fn push(&self, file: FileName) {
        self.files.lock().unread.push(file);
        self.event.notify();
    }

    pub(super) fn note_obsolete(&self, file: FileName) {
        let mut files = self.files.lock();
        files.obsolete.insert(file);
        // The file is removed whole.
        files.holes.remove(&file);
    }

    pub(super) fn note_dying_slice(&self) {
        self.files.lock().dying_slices += 1;
    }

    /// `hole`: the pages that become free with this slice.
    pub(super) fn end_slice(&self, file: FileName, hole: Option<Span>) {
        let mut files = self.files.lock();
        files.dying_slices -= 1;
        if let Some(hole) = hole.filter(|_| !files.obsolete.contains(&file)) {
            files.holes.entry(file).or_default().push(hole);
        }
        drop(files);
        self.event.notify();
    }
}

/// State that the open table files of a store share.
#[derive(Clone, Debug)]
pub(crate) struct TableOwner {
    /// The secret that orders the keys of hashed keyspaces.
    pub(crate) secret: Arc<HashSecret>,
    pub(crate) discarded: Arc<Discarded>,
}

impl TableOwner {
    /// A copy of the secret, for a job that outlives the caller.
    pub(crate) fn hash_secret(&self) -> HashSecret {
        HashSecret::clone(&self.secret)
    }

    /// For tables that are opened outside a store: files are not removed when they are dropped.
    pub(crate) fn alone(secret: HashSecret) -> TableOwner {
        TableOwner { secret: Arc::new(secret), discarded: Discarded::new(Arc::new(Event::new())) }
    }
}

/// An open table file.
#[derive(Debug)]
pub(crate) struct TableFile {
    identity: TableIdentity,
    bytes: u64,
    obsolete: AtomicBool,
    owner: TableOwner,
    /// Spans of slices that left the version and have no readers, ascending; neighbours are one span.
    free: Mutex<Vec<Span>>,
}

impl TableFile {
    /// Opens one file: see [`open_files`](super::open_files).
    #[cfg(test)]
    pub(crate) fn open(
        storage: &Arc<dyn Storage>,
        identity: TableIdentity,
        bytes: u64,
        checksum: u32,
        owner: &TableOwner,
    ) -> Result<Vec<Arc<TableReader>>> {
        let contents = Contents::read(storage.as_ref(), identity, bytes, Some(checksum), ALL_LIVE)?;
        Ok(TableFile::with(identity, bytes, contents.slices.into_iter(), owner))
    }

    /// Opens a file that no manifest names and whose slices are numbered: `trees` names the tree of each.
    ///
    /// # Errors
    /// As [`open_files`](super::open_files).
    pub(crate) fn open_numbered(
        storage: &Arc<dyn Storage>,
        summary: &TableSummary,
        trees: impl ExactSizeIterator<Item = TreeId>,
        owner: &TableOwner,
    ) -> Result<Vec<Arc<TableReader>>> {
        let TableSummary { identity, bytes, checksum, .. } = *summary;
        let mut contents = Contents::read(storage.as_ref(), identity, bytes, Some(checksum), ALL_LIVE)?;
        if trees.len() != contents.slices.len() {
            let what = "slices of the table";
            return Err(Error::corrupt(identity.file, 0, what, trees.len(), contents.slices.len()));
        }
        for (slice, tree) in contents.slices.iter_mut().zip(trees) {
            slice.entry.tree = tree;
        }
        Ok(TableFile::with(identity, bytes, contents.slices.into_iter(), owner))
    }

    /// The tables of a file whose contents are known.
    pub(super) fn with(
        identity: TableIdentity,
        bytes: u64,
        slices: impl Iterator<Item = SliceContents>,
        owner: &TableOwner,
    ) -> Vec<Arc<TableReader>> {
        let (obsolete, owner) = (AtomicBool::new(false), owner.clone());
        let file = Arc::new(TableFile { identity, bytes, obsolete, owner, free: Mutex::default() });
        let tables = slices.enumerate().map(|(index, contents)| TableReader::new(&file, index, contents));
        tables.map(Arc::new).collect()
    }

    pub(crate) fn identity(&self) -> TableIdentity {
        self.identity
    }

    /// The store's hash secret.
    #[inline]
    pub(super) fn secret(&self) -> &HashSecret {
        &self.owner.secret
    }

    pub(crate) fn name(&self) -> FileName {
        self.identity.file
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Marks the file as named by no version any more: it is discarded when its last table is dropped.
    pub(crate) fn mark_obsolete(&self) {
        // The file is listed first, so that the list has every discarded file.
        self.owner.discarded.note_obsolete(self.identity.file);
        self.obsolete.store(true, Ordering::Release);
    }

    /// Notes that a slice left the version; [`TableFile::end_slice`] follows.
    pub(super) fn note_dying_slice(&self) {
        self.owner.discarded.note_dying_slice();
    }

    /// Notes that a slice has no readers any more, and reports the pages that hold no other slice.
    pub(super) fn end_slice(&self, slice: Span) {
        let is_obsolete = self.obsolete.load(Ordering::Acquire);
        let hole = (!is_obsolete).then(|| free_pages(&mut self.free.lock(), slice)).flatten();
        self.owner.discarded.end_slice(self.identity.file, hole);
    }
}

/// Adds a slice to the free spans of a file and returns the whole pages that become free by it.
pub(super) fn free_pages(free: &mut Vec<Span>, slice: Span) -> Option<Span> {
    let page = PAGE_BYTES as u64;
    let at = free.partition_point(|span| span.offset < slice.offset);
    let before = at.checked_sub(1).filter(|before| free[*before].end() == slice.offset);
    let after = free.get(at).filter(|after| after.offset == slice.end());
    let offset = before.map_or(slice.offset, |before| free[before].offset);
    let joined = Span { offset, bytes: after.map_or(slice.end(), Span::end) - offset };
    free.splice(before.unwrap_or(at)..at + usize::from(after.is_some()), [joined]);
    let first = (slice.offset / page * page).max(joined.offset.next_multiple_of(page));
    let end = slice.end().next_multiple_of(page).min(joined.end() / page * page);
    (first < end).then(|| Span { offset: first, bytes: end - first })
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.owner.discarded.push(self.identity.file);
        }
    }
}

/// Whether readers may use a slice. A slice that is not live may be a hole; no byte of it is read.
pub(super) type IsLive<'l> = &'l dyn Fn(u32, &SliceEntry) -> Result<bool>;

/// Every slice is live.
pub(super) const ALL_LIVE: IsLive<'static> = &|_, _| Ok(true);

/// Whether the pages of a slice were punched out of the file, as far as the file itself shows: all pages that
/// hold only this slice are zeros. At least one part of the slice must begin in them, because every part
/// begins with a checksum and a tag, and no tag is 0.
pub(crate) fn is_hole(storage: &dyn Storage, file: FileName, entry: &SliceEntry) -> Result<bool> {
    let (page, span) = (PAGE_BYTES as u64, entry.span());
    let own = span.offset.next_multiple_of(page)..span.end() / page * page;
    let parts = [entry.data, entry.filter_span(), entry.fence_span(), entry.top, entry.ranges];
    let begins_there = |part: &Span| part.bytes > 0 && own.contains(&part.offset);
    if !parts.iter().any(begins_there) {
        return Ok(false);
    }
    for offset in own.step_by(PAGE_BYTES) {
        if read_exact(storage, file, Span { offset, bytes: page })?.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The parts of a file that an opening reads.
pub(super) struct Contents {
    pub(super) blocks_checksum: u32,
    pub(super) footer: Span,
    pub(super) slices: Vec<SliceContents>,
}

/// The part of a slice that stays in memory.
pub(super) struct SliceContents {
    pub(super) entry: PackedEntry,
    pub(super) ranged: Option<Box<Ranged>>,
    pub(super) resident: Resident,
}

impl SliceContents {
    /// Counts the memory that its table will take beside the pages.
    pub(super) fn account(&self, budget: &Arc<PageBudget>) {
        let bytes = memory_bytes(&self.entry, self.ranged.as_deref(), &self.resident.top);
        self.resident.account(bytes, &self.entry, budget);
    }
}

impl Contents {
    /// `checksum`: the table's, if it is known.
    pub(super) fn read(
        storage: &dyn Storage,
        identity: TableIdentity,
        bytes: u64,
        checksum: Option<u32>,
        is_live: IsLive<'_>,
    ) -> Result<Contents> {
        Contents::check_length(storage, identity, bytes)?;
        let header = read_exact(storage, identity.file, FileTail::header_span())?;
        let end = FileTail::of(identity, bytes, read_exact(storage, identity.file, FileTail::span(bytes))?);
        Contents::decode(storage, (identity, bytes, checksum), (&header, end), is_live)
    }

    /// Checks that the file exists and has the stated length.
    pub(super) fn check_length(storage: &dyn Storage, identity: TableIdentity, bytes: u64) -> Result<()> {
        let file = identity.file;
        let found = storage.length(file)?;
        if found != Some(bytes) {
            let found = found.map_or_else(|| "no file".to_owned(), |found| found.to_string());
            return Err(Error::corrupt(file, 0, "length of the table", bytes, found));
        }
        if bytes < BYTES_MIN || !bytes.is_multiple_of(UNIT_BYTES as u64) {
            return Err(Error::corrupt(file, 0, "length of the table", BYTES_MIN, bytes));
        }
        Ok(())
    }

    /// Decodes the header page and the end of a file of that length; blocks outside the end are read.
    pub(super) fn decode(
        storage: &dyn Storage,
        (identity, bytes, checksum): (TableIdentity, u64, Option<u32>),
        (header, end): (&[u8], FileTail),
        is_live: IsLive<'_>,
    ) -> Result<Contents> {
        let file = identity.file;
        let expected =
            FileHeader { kind: file.kind, store_id: identity.store_id, uid: identity.uid, features: 0 };
        FileHeader::decode(file, header, file.kind)?.check(file, &expected)?;
        let tail = Span { offset: bytes - PAGE_BYTES as u64, bytes: PAGE_BYTES as u64 };
        let footer = end.with(storage, tail, TAIL_TAG, |page, _| decode_tail(page, tail.offset))?;
        let (decoded, footer_checksum) = end.with(storage, footer, FOOTER_TAG, |block, checksum| {
            Ok((Footer::decode(block, footer.offset)?, checksum))
        })?;
        let blocks_checksum = decoded.blocks_checksum;
        let table_checksum = checksum::append(blocks_checksum, &footer_checksum.to_le_bytes());
        if let Some(checksum) = checksum
            && checksum != table_checksum
        {
            return Err(Error::corrupt(file, footer.offset, "table checksum", checksum, table_checksum));
        }
        let mut slices = Vec::with_capacity(decoded.slices.len());
        for (index, entry) in decoded.slices.into_iter().enumerate() {
            let packed = PackedEntry::of(&entry);
            if !is_live(index as u32, &entry)? {
                slices.push(SliceContents {
                    entry: packed,
                    ranged: None,
                    resident: Resident::of(None, &entry.min),
                });
                continue;
            }
            let top = match entry.fence_pages {
                0 => None,
                _ => Some(end.top(storage, &entry)?),
            };
            let ranges = end.ranges(storage, &entry)?;
            let ranged = Ranged::of(&packed, ranges).map(Box::new);
            slices.push(SliceContents { entry: packed, ranged, resident: Resident::of(top, &entry.min) });
        }
        Ok(Contents { blocks_checksum, footer, slices })
    }
}

/// The end of the file, read in one request.
pub(super) struct FileTail {
    identity: TableIdentity,
    offset: u64,
    bytes: AlignedBytes,
}

impl FileTail {
    /// The span of the header page, which is read beside the end.
    pub(super) fn header_span() -> Span {
        Span { offset: 0, bytes: PAGE_BYTES as u64 }
    }

    /// The span of the end of a file of that length.
    pub(super) fn span(file_bytes: u64) -> Span {
        let offset = file_bytes.saturating_sub(END_BYTES);
        Span { offset, bytes: file_bytes - offset }
    }

    /// Takes the bytes read from [`FileTail::span`].
    pub(super) fn of(identity: TableIdentity, file_bytes: u64, bytes: AlignedBytes) -> FileTail {
        FileTail { identity, offset: FileTail::span(file_bytes).offset, bytes }
    }

    /// Checks and decodes a block of the file; reads the block if it lies outside the end.
    fn with<T>(
        &self,
        storage: &dyn Storage,
        span: Span,
        tag: u8,
        decode: impl FnOnce(&[u8], u32) -> std::result::Result<T, Malformed>,
    ) -> Result<T> {
        self.at(storage, span, |block| {
            let checksum = check_seal(block, self.context(span.offset, tag))?;
            decode(block, checksum)
        })
    }

    /// The separators of a slice's fence pages.
    fn top(&self, storage: &dyn Storage, entry: &SliceEntry) -> Result<Top> {
        self.with(storage, entry.top, TOP_TAG, |block, _| Top::decode(block, entry.fence_pages))
    }

    /// The range tombstones of a slice.
    fn ranges(&self, storage: &dyn Storage, entry: &SliceEntry) -> Result<Ranges> {
        let mut ranges = Ranges::default();
        if entry.ranges_count == 0 {
            return Ok(ranges);
        }
        self.at(storage, entry.ranges, |mut extents| {
            let mut offset = entry.ranges.offset;
            while !extents.is_empty() {
                let (extent, rest) = extents.split_at(claimed_bytes(extents)?);
                check_seal(extent, self.context(offset, RANGES_TAG))?;
                ranges.decode_extent(extent)?;
                offset += extent.len() as u64;
                extents = rest;
            }
            let (expected, found) = (u64::from(entry.ranges_count), ranges.count() as u64);
            if expected != found {
                return Err(Malformed { at: 0, what: "ranges of a slice", expected, found });
            }
            ranges.index();
            Ok(ranges)
        })
    }

    fn context(&self, offset: u64, tag: u8) -> Context {
        Context { file_uid: self.identity.uid, offset, tag }
    }

    /// Decodes a span of the file; reads the span if it lies outside the end.
    fn at<T>(
        &self,
        storage: &dyn Storage,
        span: Span,
        decode: impl FnOnce(&[u8]) -> std::result::Result<T, Malformed>,
    ) -> Result<T> {
        let file = self.identity.file;
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
        decode(block).map_err(|bad| Error::malformed(file, span.offset, bad))
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
