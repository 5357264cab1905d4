//! One slice of a table file: its bounds, and the lookup of a key in it.
//!
//! `read` calls it; no code here reads a device. Immutable but for statistics and resident pages, and shared
//! freely.

use std::fmt;
use std::ops::Bound;

#[cfg(test)]
use crate::base::error::Result;
use crate::base::hash::KeyHash;
use crate::base::id::{KEY_GREATEST, TreeId};
use crate::base::key::head;
use crate::base::prefetch::prefetch;
use crate::base::step::{BlockAddress, BlockKind, Direction};
use crate::base::sync::{Arc, AtomicBool, AtomicU32, Ordering};
use crate::cache::FrameHint;
use crate::format::table::fence::Extent;
use crate::format::table::filter::column::ColumnPage;
use crate::format::table::filter::{self, FilterKind};
use crate::format::table::index::IndexPage;
use crate::format::table::ranges::{Ranges, are_covered, last_key};
use crate::format::table::top::Top;
#[cfg(test)]
use crate::io::storage::Storage;

use super::fences::{HintNumber, ResidentFences, ShortPage};
use super::memory::{PageBudget, PageRank};
use super::open::{SliceContents, TableFile};
use super::packed::PackedEntry;
use super::resident::{Load, Resident};

/// Above so many of a thousand gets, most gets are for absent keys.
const MOSTLY_PERMILLE: u32 = 750;

/// A filter's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filtered {
    /// The caller asks again with this page.
    Need(BlockAddress),
    Maybe,
    /// The slice has no item of the key.
    No,
}

/// The fences' answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fenced {
    /// The caller asks again with this page.
    Need(BlockAddress),
    /// The only data block that can hold the key.
    Block(DataBlock),
    /// The slice has a put of the key, as the only item of this block.
    Alone(DataBlock),
    /// The slice has no item of the key.
    Not,
}

/// A data block of a table, as its fences list it: see [`TableReader::address_of`].
// Small, because interleaved gets carry it between steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DataBlock {
    pub(super) extent: Extent,
    /// Its hint number, if the fences were resident.
    hint: Option<HintNumber>,
}

/// The position of a key in resident fences: a line of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FenceLine {
    page: u32,
    line: u32,
}

/// Range tombstones of a slice.
pub(super) struct Ranged {
    ranges: Ranges,
    /// The first key of ranges and items, and the last; the last is `None` if a range has no end.
    min: Box<[u8]>,
    max: Option<Box<[u8]>>,
}

impl Ranged {
    /// `None` if the slice has no ranges.
    pub(super) fn of(entry: &PackedEntry, ranges: Ranges) -> Option<Ranged> {
        let (min, (_, end)) = (ranges.first()?, ranges.last()?);
        let max = last_key(end).map(|last| last.max(entry.max()).into());
        Some(Ranged { min: min.min(entry.min()).into(), max, ranges })
    }

    fn memory_bytes(&self) -> usize {
        let max_bytes = self.max.as_ref().map_or(0, |max| max.len());
        size_of::<Ranged>() + self.min.len() + max_bytes + self.ranges.memory_bytes()
    }
}

static NO_RANGES: Ranges = Ranges::NONE;

/// Memory of a table beside its pages: keys, range tombstones and the separators of fence pages. The struct
/// beside a single fence page is counted here whether the page is short or not.
pub(super) fn memory_bytes(entry: &PackedEntry, ranged: Option<&Ranged>, top: &Top) -> usize {
    let short_bytes = if entry.fence_pages == 1 { size_of::<ShortPage>() } else { 0 };
    let parts =
        [entry.memory_bytes(), ranged.map_or(0, Ranged::memory_bytes), top.memory_bytes(), short_bytes];
    size_of::<TableReader>() + parts.iter().sum::<usize>()
}

/// A slice.
pub(crate) struct TableReader {
    file: Arc<TableFile>,
    index: u32,
    entry: PackedEntry,
    /// `None` for the many tables without range tombstones.
    ranged: Option<Box<Ranged>>,
    min_head: u64,
    max_head: u64,
    resident: Resident,
    /// Moving average, in thousandths: gets whose key was absent, among gets that read a block because the
    /// filter is not in memory.
    absent_permille: AtomicU32,
    /// No version has the slice any more.
    is_dying: AtomicBool,
}

impl Drop for TableReader {
    fn drop(&mut self) {
        if self.is_dying.load(Ordering::Relaxed) {
            self.file.end_slice(self.entry.span());
        }
    }
}

impl TableReader {
    pub(super) fn new(file: &Arc<TableFile>, index: usize, contents: SliceContents) -> TableReader {
        let SliceContents { entry, ranged, resident } = contents;
        let mut table = TableReader {
            file: Arc::clone(file),
            index: u32::try_from(index).expect("a file has fewer slices"),
            min_head: 0,
            max_head: 0,
            ranged,
            entry,
            resident,
            absent_permille: AtomicU32::new(0),
            is_dying: AtomicBool::new(false),
        };
        (table.min_head, table.max_head) = (head(table.min()), head(table.max()));
        table
    }

    /// Marks that no version has the slice any more, while the file has other slices: its pages are returned
    /// to the file system once it has no readers.
    pub(crate) fn mark_dying(&self) {
        if !self.is_dying.swap(true, Ordering::Relaxed) {
            self.file.note_dying_slice();
        }
    }

    pub(crate) fn tree(&self) -> TreeId {
        self.entry.tree
    }

    /// The least key of the slice: no item or range tombstone lies before it.
    pub(crate) fn min(&self) -> &[u8] {
        self.ranged.as_ref().map_or(self.entry.min(), |ranged| &ranged.min)
    }

    /// No item or range tombstone lies behind this key. It may be the exclusive end of the last range; tables
    /// of a run are cut so that no other table of the run has that key.
    pub(crate) fn max(&self) -> &[u8] {
        self.bounded_max().unwrap_or(&KEY_GREATEST)
    }

    /// As [`TableReader::max`]; `None` if a range has no end.
    pub(crate) fn bounded_max(&self) -> Option<&[u8]> {
        self.ranged.as_ref().map_or(Some(self.entry.max()), |ranged| ranged.max.as_deref())
    }

    /// Whether range tombstones of newer runs cover all its items and all its own range tombstones.
    /// `end_over` returns how far the newer ranges reach from a key; see [`are_covered`].
    pub(crate) fn is_covered_by<'r>(&self, end_over: impl Fn(&[u8]) -> Option<&'r [u8]>) -> bool {
        let bound = |end| if <[u8]>::is_empty(end) { Bound::Unbounded } else { Bound::Excluded(end) };
        if !are_covered(self.entry.min(), Bound::Included(self.entry.max()), &end_over) {
            return false;
        }
        let ranges = self.ranges();
        let (Some(first), Some((_, last))) = (ranges.first(), ranges.last()) else { return true };
        // In most cases one newer range covers all of them.
        are_covered(first, bound(last), &end_over)
            || ranges.iter().all(|(start, end)| are_covered(start, bound(end), &end_over))
    }

    /// Its range tombstones: they hide items of older runs, and none of this table.
    pub(crate) fn ranges(&self) -> &Ranges {
        self.ranged.as_ref().map_or(&NO_RANGES, |ranged| &ranged.ranges)
    }

    /// Whether `key` lies between the first and the last item.
    pub(crate) fn spans(&self, key: &[u8]) -> bool {
        self.ranged.is_none() || (self.entry.min() <= key && key <= self.entry.max())
    }

    pub(crate) fn items(&self) -> u64 {
        self.entry.items()
    }

    pub(crate) fn tombstones(&self) -> u64 {
        self.entry.tombstones()
    }

    /// Its tombstones of keys, without the one that a table of range tombstones has in place of items.
    pub(crate) fn key_tombstones(&self) -> u64 {
        let is_of_range = self.entry.items() == 1 && self.ranges().covers(self.entry.min());
        if is_of_range { 0 } else { self.entry.tombstones() }
    }

    pub(crate) fn key_value_bytes(&self) -> u64 {
        self.entry.key_value_bytes
    }

    /// The file offset of its data.
    #[cfg(test)]
    pub(crate) fn slice_offset(&self) -> u64 {
        self.entry.data().offset
    }

    /// Bytes of the file that this slice takes.
    pub(crate) fn slice_bytes(&self) -> u64 {
        self.entry.span().bytes
    }

    /// Bytes of the filter's pages, and of those that are resident.
    pub(crate) fn filter_bytes(&self) -> (u64, u64) {
        let bytes = self.entry.filter_span().bytes;
        (bytes, if self.resident.filters.get().is_some() { bytes } else { 0 })
    }

    /// The same of fences.
    pub(crate) fn fence_bytes(&self) -> (u64, u64) {
        let bytes = self.entry.fence_span().bytes;
        (bytes, if self.resident.fences().is_some() { bytes } else { 0 })
    }

    /// Whether sketches of its fence pages are known to be useless.
    pub(super) fn has_no_sketches(&self) -> bool {
        self.resident.has_no_sketches()
    }

    /// Bytes of the sketches of its fence pages.
    pub(crate) fn sketches_bytes(&self) -> u64 {
        self.resident.sketches_bytes(&self.entry)
    }

    /// Bytes of resident fence pages that are learned.
    pub(crate) fn models_bytes(&self) -> u64 {
        self.resident.fences().map_or(0, ResidentFences::models_bytes)
    }

    pub(crate) fn file(&self) -> &Arc<TableFile> {
        &self.file
    }

    /// The slice's number in its file, from 0.
    pub(crate) fn index(&self) -> usize {
        self.index as usize
    }

    /// Bytes of memory beside the pages.
    pub(super) fn memory_bytes(&self) -> usize {
        memory_bytes(&self.entry, self.ranged.as_deref(), &self.resident.top)
    }

    /// Charges its memory beside the pages to the cache's budget. If there are several tables, the caller
    /// accounts for all of them before the first pins pages, so that the pages leave room.
    pub(crate) fn account(&self, budget: &Arc<PageBudget>) {
        self.resident.account(self.memory_bytes(), &self.entry, budget);
    }

    /// Grants memory for fence or filter pages, or for sketches if `may_sketch`, if the budget allows it and
    /// they are not resident yet. A refusal is noted in the budget, so that the load is tried again.
    pub(super) fn begin_load(
        &self,
        budget: &Arc<PageBudget>,
        (rank, may_sketch): (PageRank, bool),
    ) -> Option<Load> {
        self.account(budget);
        let load = self.resident.begin((self.file.identity(), &self.entry), budget, (rank, may_sketch));
        let is_whole = load.as_ref().is_some_and(|load| !load.is_sketched());
        if !is_whole && self.resident.lacks(&self.entry, rank) {
            budget.note_short(self.tree());
        }
        load
    }

    /// Whether sketches of its fence pages can be made and do not exist yet.
    pub(super) fn can_sketch(&self, rank: PageRank) -> bool {
        self.resident.can_sketch(&self.entry, rank) && self.resident.fences().is_none()
    }

    /// Whether it has fence or filter pages that are not resident.
    pub(crate) fn lacks_pages(&self) -> bool {
        let ranks = [PageRank::Fences, PageRank::LastFilters];
        ranks.into_iter().any(|rank| self.resident.lacks(&self.entry, rank))
    }

    /// Makes the loaded pages resident.
    pub(super) fn end_load(&self, load: Load, budget: &Arc<PageBudget>) {
        self.resident.end(load, budget);
    }

    /// Loads all pages that the budget allows.
    #[cfg(test)]
    pub(crate) fn load_all_pages(&self, storage: &dyn Storage, budget: &Arc<PageBudget>) -> Result<()> {
        for rank in [PageRank::Fences, PageRank::LastFilters] {
            if let Some(mut load) = self.begin_load(budget, (rank, true)) {
                load.read(storage)?;
                self.end_load(load, budget);
            }
        }
        Ok(())
    }

    /// Whether `key`, which has this head, comes before the bounds.
    #[inline]
    pub(crate) fn begins_after(&self, key: &[u8], key_head: u64) -> bool {
        debug_assert_eq!(key_head, head(key));
        key_head < self.min_head || (key_head == self.min_head && key < self.min())
    }

    /// Whether `key`, which has this head, comes behind the bounds. A key within the bounds may be an item's
    /// only if [`TableReader::spans`] holds.
    #[inline]
    pub(crate) fn ends_before(&self, key: &[u8], key_head: u64) -> bool {
        debug_assert_eq!(key_head, head(key));
        key_head > self.max_head || (key_head == self.max_head && key > self.max())
    }

    /// Whether an item may lie at `key` or beyond it in that direction.
    #[inline]
    pub(crate) fn has_items_from(&self, key: &[u8], direction: Direction) -> bool {
        match direction {
            Direction::Forward => key <= self.entry.max(),
            Direction::Backward => key >= self.entry.min(),
        }
    }

    /// Whether `key` lies within the bounds.
    #[cfg(test)]
    pub(crate) fn admits(&self, key: &[u8]) -> bool {
        !self.begins_after(key, head(key)) && !self.ends_before(key, head(key))
    }

    /// Whether the slice may have an item of a key with this hash. `page`: the page that an earlier answer
    /// asked for.
    #[inline]
    pub(crate) fn filter(&self, key: &[u8], hash: KeyHash, page: Option<&[u8]>) -> Filtered {
        let shape = self.entry.filter;
        if shape.pages == 0 {
            return Filtered::Maybe;
        }
        let Some(pages) = self.resident.filters.get() else {
            return self.filter_apart(key, hash, page);
        };
        let hash = filter::field(hash);
        let page = pages.page(shape.page(hash) as usize, shape.page_bytes as usize);
        if shape.may_contain(page, hash) { Filtered::Maybe } else { Filtered::No }
    }

    /// As `filter`, if the filter's pages are not resident.
    fn filter_apart(&self, key: &[u8], hash: KeyHash, page: Option<&[u8]>) -> Filtered {
        let shape = self.entry.filter;
        let Some(page) = page else {
            let Some(number) = self.filter_page(key, hash) else { return Filtered::Maybe };
            let offset = self.entry.filter_offset() + number * u64::from(shape.page_bytes);
            return Filtered::Need(self.address(offset, shape.page_bytes, BlockKind::Filter));
        };
        let may_contain = match self.tells(key, page) {
            Some((page, column)) => page.tell(column, filter::field(hash)).next().flatten().unwrap_or(true),
            None => shape.may_contain(page, filter::field(hash)),
        };
        if may_contain { Filtered::Maybe } else { Filtered::No }
    }

    /// The number of the filter page that covers a key with this hash.
    pub(super) fn filter_page(&self, key: &[u8], hash: KeyHash) -> Option<u64> {
        let shape = self.entry.filter;
        let number = match shape.kind {
            FilterKind::Column => shape.columns.place(self.entry.min(), key).0,
            _ => u64::from(shape.page(filter::field(hash))),
        };
        (number < u64::from(shape.pages)).then_some(number)
    }

    /// The decoded page and the key's column, if this table's filter is by column: such a page answers for
    /// older runs too.
    pub(crate) fn tells<'p>(&self, key: &[u8], page: &'p [u8]) -> Option<(ColumnPage<'p>, usize)> {
        let is_by_column = self.has_columns();
        is_by_column.then(|| (ColumnPage::of(page), self.entry.filter.columns.place(self.entry.min(), key).1))
    }

    /// Whether its filter is by column.
    pub(crate) fn has_columns(&self) -> bool {
        self.entry.filter.kind == FilterKind::Column
    }

    /// An identifier that no other table of any store has.
    pub(crate) fn unique_name(&self) -> (u64, u32) {
        (self.file.identity().uid, self.index)
    }

    /// Records whether the key of a get that read a block was absent, if the filter is not resident.
    pub(crate) fn note_absent(&self, is_absent: bool) {
        if self.resident.filters.get().is_none() {
            let before = self.absent_permille.load(Ordering::Relaxed);
            let now = (before * 31 + if is_absent { 1000 } else { 0 }) / 32;
            // Cached gets read this cache line, so it is written only if the average changes. A count lost to
            // a concurrent writer does no harm.
            if now != before {
                self.absent_permille.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Whether most gets of this table are for absent keys. If so, reading a filter page pays: the page stays
    /// in the cache and answers later gets.
    pub(crate) fn is_mostly_absent(&self) -> bool {
        self.absent_permille.load(Ordering::Relaxed) > MOSTLY_PERMILLE
    }

    /// Whether [`TableReader::filter`] can answer no.
    pub(crate) fn has_filter(&self) -> bool {
        self.entry.filter.pages > 0
    }

    /// Prefetches the filter's cache line for a lookup of this key soon.
    #[inline]
    pub(crate) fn prefetch_filter(&self, hash: KeyHash) {
        let shape = self.entry.filter;
        if let Some(pages) = self.resident.filters.get() {
            let hash = filter::field(hash);
            let page_bytes = shape.page_bytes as usize;
            prefetch(pages.page(shape.page(hash) as usize, page_bytes), shape.first_line_at(hash));
        }
    }

    /// The position of the key in the fences, for [`TableReader::fence_in`], if they are resident. Prefetches
    /// that line and the frame hints of its blocks.
    #[inline]
    pub(crate) fn prefetch_fence(&self, key: &[u8]) -> Option<FenceLine> {
        let fences = self.resident.fences()?;
        let number = self.fence_page_of(key);
        let page = fences.page(number);
        let line = page.line_of(key, self.first_separator(number));
        prefetch(fences.bytes(number), page.line_at(line));
        fences.prefetch_hints(number, page.blocks_of(key, line));
        Some(FenceLine { page: number as u32, line: line as u32 })
    }

    /// As [`TableReader::fence`], at the line that [`TableReader::prefetch_fence`] returned.
    #[inline]
    pub(crate) fn fence_in(&self, key: &[u8], at: FenceLine) -> Fenced {
        let (fences, number) = (self.resident.fences().expect("fences stay"), at.page as usize);
        let (page, first) = (fences.page(number), self.first_separator(number));
        let index = page.find_in(key, first, at.line as usize);
        self.fenced(&page, key, first, index, Some(fences.hint_number(number, index)))
    }

    /// The fence page, and the index in it, of the block that must hold `key`, at the line that
    /// [`TableReader::prefetch_fence`] returned.
    #[inline]
    pub(super) fn index_in(&self, key: &[u8], at: FenceLine) -> (usize, usize) {
        let (fences, number) = (self.resident.fences().expect("fences stay"), at.page as usize);
        let first = self.first_separator(number);
        (number, fences.page(number).find_in(key, first, at.line as usize))
    }

    /// Block `index` of fence page `number`; `page` is `None` for a slice of one block.
    #[inline]
    pub(super) fn data_block(&self, page: Option<&IndexPage<'_>>, number: usize, index: usize) -> DataBlock {
        let hint = self.resident.fences().map(|fences| fences.hint_number(number, index));
        match page {
            Some(page) => DataBlock { extent: page.extent(index), hint },
            None => DataBlock { extent: self.only_extent(), hint: None },
        }
    }

    /// The data block that must hold `key` if the slice has it, or the answer if the fences alone decide.
    /// `page`: the page that an earlier answer asked for.
    #[inline]
    pub(crate) fn fence(&self, key: &[u8], page: Option<&[u8]>) -> Fenced {
        if let Some(line) = self.prefetch_fence(key) {
            return self.fence_in(key, line);
        }
        let number = self.fence_page_of(key);
        if page.is_none()
            && let Some(extent) = self.resident.sketched(number, key, self.first_separator(number))
        {
            return Fenced::Block(DataBlock { extent, hint: None });
        }
        match self.fence_page(number, page) {
            Ok(Some(page)) => {
                let first = self.first_separator(number);
                let index = page.find(key, first);
                self.fenced(&page, key, first, index, None)
            }
            Ok(None) => Fenced::Block(DataBlock { extent: self.only_extent(), hint: None }),
            Err(address) => Fenced::Need(address),
        }
    }

    #[inline]
    fn fenced(
        &self,
        page: &IndexPage<'_>,
        key: &[u8],
        first: &[u8],
        index: usize,
        hint: Option<HintNumber>,
    ) -> Fenced {
        let block = DataBlock { extent: page.extent(index), hint };
        if !page.is_alone(index) {
            Fenced::Block(block)
        } else if page.is_separator(index, key, first) {
            Fenced::Alone(block)
        } else {
            Fenced::Not
        }
    }

    /// The address of a block of this table.
    #[inline]
    pub(crate) fn address_of(&self, block: &DataBlock) -> BlockAddress {
        self.data_address(block.extent)
    }

    /// The hint at the frame where the cache last found the block.
    #[inline]
    pub(crate) fn frame_hint(&self, block: &DataBlock) -> Option<&FrameHint> {
        self.resident.fences()?.frame_hint(block.hint?)
    }

    /// The number of the fence page that must list the block of `key`.
    #[inline]
    pub(super) fn fence_page_of(&self, key: &[u8]) -> usize {
        self.resident.top.find(key)
    }

    /// The number of fence pages; 1, an empty page, for a slice of one block.
    pub(super) fn fence_pages(&self) -> usize {
        self.entry.fence_pages.max(1) as usize
    }

    /// A lower bound of all keys from a fence page on.
    #[inline]
    pub(super) fn first_separator(&self, page: usize) -> &[u8] {
        if self.resident.top.pages() == 0 { self.entry.min() } else { self.resident.top.separator(page) }
    }

    /// A fence page: the resident one, else `page`; if neither is at hand, the error is its address. `None`
    /// if the slice has one block.
    pub(super) fn fence_page<'a>(
        &'a self,
        number: usize,
        page: Option<&'a [u8]>,
    ) -> std::result::Result<Option<IndexPage<'a>>, BlockAddress> {
        if self.entry.fence_pages == 0 {
            return Ok(None);
        }
        if let Some(fences) = self.resident.fences() {
            return Ok(Some(fences.page(number)));
        }
        let page_bytes = self.entry.fence_page_bytes() as usize;
        let offset = self.entry.fence_offset() + (number * page_bytes) as u64;
        match page {
            Some(page) => Ok(Some(IndexPage::of(page))),
            None => Err(self.address(offset, page_bytes as u32, BlockKind::Fence)),
        }
    }

    /// Block `index` of a fence page.
    #[inline]
    pub(super) fn block(&self, fences: &IndexPage<'_>, index: usize) -> BlockAddress {
        self.data_address(fences.extent(index))
    }

    /// The only block of a slice of one block.
    pub(super) fn only_block(&self) -> BlockAddress {
        self.data_address(self.only_extent())
    }

    #[inline]
    fn data_address(&self, extent: Extent) -> BlockAddress {
        self.address(extent.offset, extent.bytes, BlockKind::Data)
    }

    fn only_extent(&self) -> Extent {
        let data = self.entry.data();
        let bytes = u32::try_from(data.bytes).expect("the footer's check bounds a single block");
        Extent { offset: data.offset, bytes }
    }

    pub(super) fn entry(&self) -> &PackedEntry {
        &self.entry
    }

    #[inline]
    pub(super) fn address(&self, offset: u64, bytes: u32, kind: BlockKind) -> BlockAddress {
        BlockAddress { file: self.file.name(), file_uid: self.file.identity().uid, offset, bytes, kind }
    }
}

impl fmt::Debug for TableReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} slice {}, {} items)", self.file.name(), self.index, self.entry.items())
    }
}
