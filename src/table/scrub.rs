//! The check of a whole table file: reads everything, past the cache, and continues behind damage.
//!
//! `inspect` calls it, and the tests of damage. Good and bad data are told apart block by block; the keys
//! that damage puts at risk are those between the good items around it.

use std::ops::Bound;

use crate::base::checksum;
use crate::base::error::{Corrupt, Error, Result};
use crate::base::hash::{HashSecret, KeyHash};
use crate::base::id::{ItemKind, TreeId};
use crate::base::step::{BlockAddress, BlockKind};
use crate::base::sync::Arc;
use crate::format::table::data::{self, Layout};
use crate::format::table::footer::Span;
use crate::format::table::index::IndexPage;
use crate::format::table::ranges::claimed_bytes;
use crate::format::table::{PAGE_BYTES, UNIT_BYTES};
use crate::io::storage::Storage;

use super::identity::TableIdentity;
use super::memory::AlignedBytes;
use super::open::{Contents, IsLive, TableFile, TableOwner, fill_exact, read_exact};
use super::search::{Fenced, Filtered, TableReader};
use super::verify::{decompress, verify_block};

/// Bytes of one request.
const CHUNK_BYTES: usize = 1 << 20;

/// Damage in a table.
#[derive(Debug)]
pub(crate) struct Damage {
    pub(crate) error: Corrupt,
    pub(crate) tree: TreeId,
    /// The range of keys for which reads fail or would be wrong; `None` if no read uses the damaged bytes.
    pub(crate) keys: Option<ScrubRange>,
}

/// A range from one key to another.
pub(crate) type ScrubRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The tables and counts of a scrub.
#[derive(Default, Debug)]
pub(crate) struct Scrubbed {
    pub(crate) tables: Vec<Arc<TableReader>>,
    pub(crate) blocks: u64,
    pub(crate) items: u64,
}

/// Reads the whole file, which has this identity, length and table checksum by the manifest, and checks
/// everything: all checksums, all structure, the order of keys, the footer's counts, that fences lead to each
/// block and filters contain each key, that gaps are zero, and the table checksum. A slice that is not live
/// may be a hole: it is left out, and the checksum of all blocks is then not checked.
///
/// # Errors
/// `Corrupt` if header or footer is damaged, so that no other part can be found; `Io`. All other damage goes
/// to `report`.
///
/// Memory: filter and fences of one slice, and 1 MiB or a block.
pub(crate) fn scrub(
    storage: &Arc<dyn Storage>,
    (identity, bytes, checksum): (TableIdentity, u64, u32),
    is_live: &dyn Fn(u32) -> bool,
    secret: &HashSecret,
    report: &mut dyn FnMut(Damage),
) -> Result<Scrubbed> {
    let live: IsLive<'_> = &|index, _| Ok(is_live(index));
    let contents = Contents::read(storage.as_ref(), identity, bytes, Some(checksum), live)?;
    let (footer, blocks_checksum) = (contents.footer, contents.blocks_checksum);
    let owner = TableOwner::alone(secret.clone());
    let tables = TableFile::with(identity, bytes, contents.slices.into_iter(), &owner);
    let mut scrub = Scrub {
        storage,
        secret,
        report,
        checksum: 0,
        at: PAGE_BYTES as u64,
        is_damaged: false,
        done: Scrubbed::default(),
    };
    let mut are_all_live = true;
    for table in &tables {
        if is_live(table.index() as u32) {
            scrub.slice(table)?;
        } else {
            scrub.at = table.entry().span().end();
            are_all_live = false;
        }
    }
    let last = tables.last().expect("the footer's check wants a slice");
    scrub.gap(last, footer.offset)?;
    if scrub.checksum != blocks_checksum && are_all_live && !scrub.is_damaged {
        let (expected, found) = (blocks_checksum, scrub.checksum);
        let error = Error::corrupt(identity.file, footer.offset, "blocks checksum", expected, found);
        for table in &tables {
            scrub.note_all(table, error.clone())?;
        }
    }
    let done = scrub.done;
    Ok(Scrubbed { tables, ..done })
}

/// A pass over the file.
struct Scrub<'a> {
    storage: &'a Arc<dyn Storage>,
    secret: &'a HashSecret,
    report: &'a mut dyn FnMut(Damage),
    /// The checksum over the checksums so far.
    checksum: u32,
    /// Everything before this offset is checked.
    at: u64,
    is_damaged: bool,
    done: Scrubbed,
}

/// A pass over the items of a slice.
struct Walk<'t> {
    table: &'t Arc<TableReader>,
    /// The good fence pages; `None` for a damaged one.
    fences: Vec<Option<AlignedBytes>>,
    filters: Vec<Option<AlignedBytes>>,
    window: Window,
    /// Damage whose end is not known yet, with its beginning.
    pending: Vec<(Corrupt, Bound<Vec<u8>>)>,
    /// The last key of the last good block.
    last_key: Option<Vec<u8>>,
    plain: Vec<u8>,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    blocks: u64,
    items: u64,
    tombstones: u64,
    key_value_bytes: u64,
}

impl Scrub<'_> {
    fn slice(&mut self, table: &Arc<TableReader>) -> Result<()> {
        let entry = table.entry();
        self.gap(table, entry.data().offset)?;
        let data_from = self.at;
        // The checksums of these pages come after those of the data blocks: the pages are read first, and
        // their checksums added later.
        let fences = self.pages(table, entry.fence_span(), entry.fence_page_bytes(), BlockKind::Fence)?;
        let filters = self.pages(table, entry.filter_span(), entry.filter.page_bytes, BlockKind::Filter)?;
        self.at = data_from;
        let mut walk = Walk {
            table,
            fences,
            filters,
            window: Window { offset: 0, filled: 0, bytes: AlignedBytes::new(0) },
            pending: Vec::new(),
            last_key: None,
            plain: Vec::new(),
            seen: Seen::default(),
        };
        self.data(&mut walk)?;
        self.at = entry.data().end();
        let Walk { fences, filters, .. } = walk;
        self.add_checksums(table, entry.filter_span(), &filters)?;
        self.add_checksums(table, entry.fence_span(), &fences)?;
        if entry.top().bytes > 0 {
            self.gap(table, entry.top().offset)?;
            let top = read_exact(self.storage.as_ref(), table.file().name(), entry.top())?;
            self.add_checksum(&top);
            self.at = entry.top().end();
        }
        self.ranges(table, entry.ranges())
    }

    /// All pages of a kind; a damaged filter page is reported. `None` for a damaged page.
    fn pages(
        &mut self,
        table: &Arc<TableReader>,
        span: Span,
        page_bytes: u32,
        kind: BlockKind,
    ) -> Result<Vec<Option<AlignedBytes>>> {
        let mut pages = Vec::new();
        let mut offset = span.offset;
        while offset < span.offset + span.bytes {
            let page = Span { offset, bytes: u64::from(page_bytes) };
            let bytes = read_exact(self.storage.as_ref(), table.file().name(), page)?;
            match verify_block(&table.address(offset, page_bytes, kind), &bytes) {
                Ok(_) => pages.push(Some(bytes)),
                Err(error) => {
                    // The keys of a damaged fence page are known only when its blocks are read.
                    if kind == BlockKind::Filter {
                        self.note_all(table, error)?;
                    }
                    pages.push(None);
                }
            }
            offset += u64::from(page_bytes);
        }
        Ok(pages)
    }

    /// Checks all items, and that the fences lead to the first and the last item of each block.
    fn data(&mut self, walk: &mut Walk<'_>) -> Result<()> {
        let table = walk.table;
        let data = table.entry().data();
        let mut offset = data.offset;
        if table.entry().fence_pages == 0 {
            self.block(walk, table.only_block(), true)?;
            offset = data.end();
        }
        for number in 0..walk.fences.len() {
            let Some(page) = walk.fences[number].take() else {
                let end = walk.first_block_after(number).unwrap_or(data.end());
                self.lost_page(walk, number, offset..end)?;
                offset = end;
                continue;
            };
            let fences = IndexPage::of(&page);
            let addresses: Vec<_> = fences.blocks().map(|index| table.block(&fences, index)).collect();
            walk.fences[number] = Some(page);
            for address in addresses {
                if address.offset != offset {
                    let error = walk.corrupt(&address, "offset of a data block", offset, address.offset);
                    self.note_pending(walk, error)?;
                }
                offset = address.offset + u64::from(address.bytes);
                self.block(walk, address, true)?;
            }
        }
        if offset != data.end() {
            let last = table.address(offset, 0, BlockKind::Data);
            let error = walk.corrupt(&last, "end of the data blocks", data.end(), offset);
            self.note_pending(walk, error)?;
        }
        self.report_pending(walk, None);
        self.check_seen(walk)
    }

    /// Checks the blocks of a damaged fence page by their own extents. No read finds their items.
    fn lost_page(&mut self, walk: &mut Walk<'_>, number: usize, span: std::ops::Range<u64>) -> Result<()> {
        let table = walk.table;
        let page_bytes = table.entry().fence_page_bytes();
        let at = table.entry().fence_offset() + number as u64 * u64::from(page_bytes);
        let page = Span { offset: at, bytes: u64::from(page_bytes) };
        let bytes = read_exact(self.storage.as_ref(), table.file().name(), page)?;
        if let Err(error) = verify_block(&table.address(at, page_bytes, BlockKind::Fence), &bytes) {
            self.note_pending(walk, error)?;
        }
        let mut offset = span.start;
        while offset < span.end {
            let unit = walk.window.get(self.storage, table, offset, UNIT_BYTES)?;
            let claimed = data::extent_claimed(unit).filter(|bytes| offset + *bytes as u64 <= span.end);
            let Some(bytes) = claimed else {
                let address = table.address(offset, UNIT_BYTES as u32, BlockKind::Data);
                let error =
                    walk.corrupt(&address, "extent of a data block", span.end - offset, "none that fits");
                return self.note_pending(walk, error);
            };
            self.block(walk, table.address(offset, bytes as u32, BlockKind::Data), false)?;
            offset += bytes as u64;
        }
        Ok(())
    }

    /// Checks one data block. `is_found`: reads find its items, so that damage before it ends with its first
    /// key.
    fn block(&mut self, walk: &mut Walk<'_>, address: BlockAddress, is_found: bool) -> Result<()> {
        self.done.blocks += 1;
        let bytes = address.bytes as usize;
        let stored = match walk.window.get(self.storage, walk.table, address.offset, bytes) {
            Ok(stored) => stored,
            Err(error) => return self.note_pending(walk, error),
        };
        let verified = match verify_block(&address, stored) {
            Ok(verified) => verified,
            Err(error) => return self.note_pending(walk, error),
        };
        self.checksum = checksum::append(self.checksum, &verified.checksum.to_le_bytes());
        let mut plain = std::mem::take(&mut walk.plain);
        plain.clear();
        match verified.plain_bytes {
            None => plain.extend_from_slice(stored),
            Some(bytes) => {
                plain.resize(bytes, 0);
                if let Err(error) = decompress(&address, stored, &mut plain) {
                    return self.note_pending(walk, error);
                }
            }
        }
        let checked = self.items(walk, &address, &plain, is_found);
        walk.plain = plain;
        checked
    }

    fn items(
        &mut self,
        walk: &mut Walk<'_>,
        address: &BlockAddress,
        block: &[u8],
        is_found: bool,
    ) -> Result<()> {
        let layout = Layout::of(block);
        let (secret, tree) = (self.secret, walk.table.tree());
        let key = |index: usize| layout.key(block, index, secret);
        if layout.leaves_places_out() && !tree.keyspace.is_hashed() {
            let error = walk.corrupt(address, "flags of a data block", "keys whole", "without places");
            return self.note_pending(walk, error);
        }
        if layout.leaves_places_out() && (1..layout.items()).any(|index| key(index - 1) >= key(index)) {
            let error = walk.corrupt(address, "order of keys in a data block", "ascending", "not");
            return self.note_pending(walk, error);
        }
        let (first, last) = (key(0), key(layout.items() - 1));
        if walk.last_key.as_ref().is_some_and(|before| first <= *before) {
            let error = walk.corrupt(address, "order of keys between blocks", "ascending", "not");
            return self.note_pending(walk, error);
        }
        if walk.seen.blocks == 0 && walk.pending.is_empty() && *first != *walk.table.entry().min() {
            let error = walk.corrupt(address, "first key of a slice", "the one in the footer", "another");
            self.note_all(walk.table, error)?;
        }
        if is_found {
            self.report_pending(walk, Some(&first));
            for end in [&first, &last] {
                if !walk.is_led_to(end, address) {
                    let error = walk.corrupt(address, "fence of a block", "this block", "another");
                    let keys = (Bound::Included(first.clone()), Bound::Included(last.clone()));
                    self.note(walk.table, error, Some(keys))?;
                    break;
                }
            }
        }
        walk.seen.blocks += 1;
        for index in 0..layout.items() {
            let key = key(index);
            walk.seen.items += 1;
            walk.seen.tombstones += u64::from(layout.kind(block, index) == ItemKind::Delete);
            walk.seen.key_value_bytes += (key.len() + layout.value_range(block, index).len()) as u64;
            let hash = self.secret.hash_in(walk.table.tree().keyspace, &key);
            if !walk.may_be_here(&key, hash) {
                let error = walk.corrupt(address, "filter of a key in this block", "maybe", "no");
                let keys = (Bound::Included(key.clone()), Bound::Included(key));
                self.note(walk.table, error, Some(keys))?;
            }
        }
        self.done.items += layout.items() as u64;
        walk.last_key = Some(last);
        Ok(())
    }

    /// Compares the footer's counts with the items seen, if nothing is damaged.
    fn check_seen(&mut self, walk: &Walk<'_>) -> Result<()> {
        if self.is_damaged {
            return Ok(());
        }
        let (entry, seen) = (walk.table.entry(), &walk.seen);
        let counts = [
            ("data blocks of a slice", u64::from(entry.data_blocks), seen.blocks),
            ("items of a slice", entry.items(), seen.items),
            ("tombstones of a slice", entry.tombstones(), seen.tombstones),
            ("key and value bytes of a slice", entry.key_value_bytes, seen.key_value_bytes),
        ];
        let name = walk.table.file().name();
        for (what, expected, found) in counts {
            if expected != found {
                let error = Error::corrupt(name, entry.data().offset, what, expected, found);
                self.note_all(walk.table, error)?;
            }
        }
        if walk.last_key.as_deref() != Some(entry.max()) {
            let what = "last key of a slice";
            let error = Error::corrupt(name, entry.data().offset, what, "the one in the footer", "another");
            self.note_all(walk.table, error)?;
        }
        Ok(())
    }

    fn add_checksums(
        &mut self,
        table: &Arc<TableReader>,
        span: Span,
        pages: &[Option<AlignedBytes>],
    ) -> Result<()> {
        if span.bytes > 0 {
            self.gap(table, span.offset)?;
            pages.iter().flatten().for_each(|page| self.add_checksum(page));
            self.at = span.end();
        }
        Ok(())
    }

    /// Adds the checksum of a checked block, which is the block's first field.
    fn add_checksum(&mut self, block: &[u8]) {
        let checksum = block.first_chunk::<4>().expect("whole units");
        self.checksum = checksum::append(self.checksum, checksum);
        self.done.blocks += 1;
    }

    /// Adds the checksums of the range blocks; opening has checked their contents.
    fn ranges(&mut self, table: &Arc<TableReader>, span: Span) -> Result<()> {
        if span.bytes == 0 {
            return Ok(());
        }
        self.gap(table, span.offset)?;
        let extents = read_exact(self.storage.as_ref(), table.file().name(), span)?;
        let mut extents = &extents[..];
        while !extents.is_empty() {
            // Opening has checked them, but a failing device may return other bytes now.
            let at = span.end() - extents.len() as u64;
            let bytes =
                claimed_bytes(extents).map_err(|bad| Error::malformed(table.file().name(), at, bad))?;
            let (extent, rest) = extents.split_at(bytes);
            self.add_checksum(extent);
            extents = rest;
        }
        self.at = span.end();
        Ok(())
    }

    /// Checks that the bytes up to the next part are zeros. No read uses them.
    fn gap(&mut self, table: &Arc<TableReader>, end: u64) -> Result<()> {
        let name = table.file().name();
        while self.at < end {
            let span = Span { offset: self.at, bytes: (end - self.at).min(CHUNK_BYTES as u64) };
            let bytes = read_exact(self.storage.as_ref(), name, span)?;
            if let Some(index) = bytes.iter().position(|byte| *byte != 0) {
                let offset = self.at + index as u64;
                let error = Error::corrupt(name, offset, "gap between parts", 0, bytes[index]);
                self.note(table, error, None)?;
                break;
            }
            self.at = span.end();
        }
        self.at = end;
        Ok(())
    }

    fn note_all(&mut self, table: &Arc<TableReader>, error: Error) -> Result<()> {
        let to = table.bounded_max().map_or(Bound::Unbounded, |max| Bound::Included(max.to_vec()));
        self.note(table, error, Some((Bound::Included(table.min().to_vec()), to)))
    }

    fn note(&mut self, table: &Arc<TableReader>, error: Error, keys: Option<ScrubRange>) -> Result<()> {
        self.is_damaged = true;
        (self.report)(Damage { error: corrupt(error)?, tree: table.tree(), keys });
        Ok(())
    }

    fn note_pending(&mut self, walk: &mut Walk<'_>, error: Error) -> Result<()> {
        self.is_damaged = true;
        let from = match &walk.last_key {
            Some(last) => Bound::Excluded(last.clone()),
            None => Bound::Included(walk.table.entry().min().to_vec()),
        };
        walk.pending.push((corrupt(error)?, from));
        Ok(())
    }

    /// Reports pending damage as ending before `next`, or with the slice.
    fn report_pending(&mut self, walk: &mut Walk<'_>, next: Option<&[u8]>) {
        for (error, from) in std::mem::take(&mut walk.pending) {
            let to = match next {
                Some(next) => Bound::Excluded(next.to_vec()),
                None => Bound::Included(walk.table.entry().max().to_vec()),
            };
            (self.report)(Damage { error, tree: walk.table.tree(), keys: Some((from, to)) });
        }
    }
}

impl Walk<'_> {
    /// The offset of the first block of the next good fence page.
    fn first_block_after(&self, number: usize) -> Option<u64> {
        let page = self.fences.iter().skip(number + 1).flatten().next()?;
        Some(self.table.block(&IndexPage::of(page), 0).offset)
    }

    /// Whether the fences lead from `key` to its block; a damaged page is reported elsewhere and passes here.
    fn is_led_to(&self, key: &[u8], block: &BlockAddress) -> bool {
        let page = match self.fences.get(self.table.fence_page_of(key)) {
            Some(None) => return true,
            Some(Some(page)) => Some(&**page),
            None => None,
        };
        let (Fenced::Block(found) | Fenced::Alone(found)) = self.table.fence(key, page) else { return false };
        self.table.address_of(&found) == *block
    }

    fn may_be_here(&self, key: &[u8], hash: KeyHash) -> bool {
        if !self.table.has_filter() {
            return true;
        }
        match self.table.filter_page(key, hash).and_then(|number| self.filters.get(number as usize)) {
            Some(Some(page)) => self.table.filter(key, hash, Some(page)) == Filtered::Maybe,
            _ => true,
        }
    }

    fn corrupt(
        &self,
        at: &BlockAddress,
        what: &'static str,
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> Error {
        Error::corrupt(at.file, at.offset, what, expected, found)
    }
}

/// Bytes of the file, read many blocks at a time.
struct Window {
    offset: u64,
    filled: usize,
    bytes: AlignedBytes,
}

impl Window {
    /// The bytes from `offset` on, within the data of the table.
    fn get(
        &mut self,
        storage: &Arc<dyn Storage>,
        table: &TableReader,
        offset: u64,
        bytes: usize,
    ) -> Result<&[u8]> {
        let start = offset.checked_sub(self.offset).map_or(usize::MAX, |start| start as usize);
        if start.checked_add(bytes).is_some_and(|end| end <= self.filled) {
            return Ok(&self.bytes[start..start + bytes]);
        }
        let end = table.entry().data().end();
        if offset + bytes as u64 > end {
            let name = table.file().name();
            return Err(Error::corrupt(name, offset, "end of a data block", end, offset + bytes as u64));
        }
        let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let wanted = bytes.max(CHUNK_BYTES.min(left));
        if self.bytes.len() < wanted || self.bytes.len() > CHUNK_BYTES.max(wanted) {
            self.bytes = AlignedBytes::new(wanted);
        }
        self.filled = 0;
        let name = table.file().name();
        let filled = match fill_exact(storage.as_ref(), name, offset, &mut self.bytes[..wanted]) {
            // The unreadable bytes may lie behind the requested ones.
            Err(Error::Io { .. }) if wanted > bytes => {
                fill_exact(storage.as_ref(), name, offset, &mut self.bytes[..bytes])?;
                bytes
            }
            filled => filled.map(|()| wanted)?,
        };
        (self.offset, self.filled) = (offset, filled);
        Ok(&self.bytes[..bytes])
    }
}

/// The damage in an error; any other error is returned. A failed read of the device counts as damage.
pub(crate) fn corrupt(error: Error) -> Result<Corrupt> {
    match error {
        Error::Corrupt(corrupt) => Ok(*corrupt),
        Error::Io { operation: "read", file, offset, source } => Ok(Corrupt {
            file,
            offset,
            what: "bytes that can be read",
            expected: "some".to_owned(),
            found: source.to_string(),
        }),
        other => Err(other),
    }
}
