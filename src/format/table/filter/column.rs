//! Column pages: the filters of several runs of a node of a trie, side by side. Each filter covers a small
//! range of places, a column. One page answers for its own slice and for older runs of its node. So a get
//! reads one filter page for each node (LSM-trie's clustered Bloom filters, Wu et al., ATC 2015).
//!
//! ```text
//! offset size name: meaning
//! 0      16   as of every filter page: kind 4, seed zero
//! 16     2    u16 columns of this page, 1 to 255
//! 18     2    u16 runs: 1 to 64
//! 20     4        zero
//! 24     16 a run, the newest first; the first is the slice's own:
//!             u64 uid of the file of its first table, zero for the own; u32 that table's index in the file;
//!             u16 thousandths of a bit an item; u8 probes; u8 zero
//!        2 a column
//!             u16 end of the column's filters in the page
//!        a column: u16 items a run, 65535 if they are not told; then the bits of each run, whole bytes
//!        zero to the end of the page
//! ```
//! The first `bits` bits of a stored key name its column. The pages of a slice begin at the column of its
//! first key; each page but the last has the same number of columns. Bits of a run's filter in a column:
//! items × thousandths / 1000, rounded up to bytes, and filled like those of a Bloom page.
//!
//! A run is named by a file uid, and no two files share a uid. So a page never answers for a run that it does
//! not contain. Readers skip the name of a run that the node no longer has.

use crate::base::codec::{ByteReader, Malformed};
use crate::base::key::head;

use super::bloom;
use super::places::{MILLI, PROBES_MAX};
use super::{FilterKind, FilterShape, PAGE_BYTES, UNIT_BYTES};

const KIND_AT: usize = 6;
const COLUMNS_AT: usize = 16;
const RUNS_AT: usize = 24;
const RUN_BYTES: usize = 16;
const END_BYTES: usize = 2;
const COUNT_BYTES: usize = 2;
/// Maximum number of runs in a page.
pub(crate) const COLUMN_RUNS_MAX: usize = 64;
const COLUMNS_MAX: usize = 255;
/// Stored in place of a number of items: the filter is left out.
const UNTOLD: u16 = u16::MAX;
/// Maximum bits of a column's name: fewer than a head has, and some more than a route.
const BITS_MAX: u8 = 56;
/// Longest filter of one run in one column. A longer one is left out.
const FILTER_BYTES_MAX: usize = 1024;

/// The division of a slice's places into columns, and of columns into pages; zero without column pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ColumnShape {
    pub(crate) bits: u8,
    pub(crate) a_page: u8,
}

impl ColumnShape {
    pub(crate) const NONE: ColumnShape = ColumnShape { bits: 0, a_page: 0 };

    pub(super) fn is_valid(&self) -> bool {
        self.bits <= BITS_MAX && self.a_page > 0
    }

    /// The column of a stored key.
    #[inline]
    pub(crate) fn column(&self, stored: &[u8]) -> u64 {
        head(stored).checked_shr(64 - u32::from(self.bits)).unwrap_or(0)
    }

    /// The page with a key's column, and the column's index in the page, for a slice that begins at `min`.
    /// For a key before the first or behind the last one, the page's number is not one of the slice's.
    #[inline]
    pub(crate) fn place(&self, min: &[u8], stored: &[u8]) -> (u64, usize) {
        let number = self.column(stored).wrapping_sub(self.column(min));
        let a_page = u64::from(self.a_page).max(1);
        (number / a_page, (number % a_page) as usize)
    }
}

/// A run with filters in a page.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ColumnRun {
    /// Uid of the file of its first table, and the table's index; zeros for the slice's own run.
    pub(crate) name: (u64, u32),
    pub(crate) millibits: u16,
    pub(crate) probes: u8,
}

impl ColumnRun {
    /// The slice's own run, with filters of `millibits` thousandths of a bit for each item.
    pub(crate) fn own(millibits: u32, probes: u8) -> ColumnRun {
        let probes = if probes > 0 { probes.min(PROBES_MAX) } else { bloom::probes(millibits) };
        ColumnRun { name: (0, 0), millibits: millibits.clamp(1, 60_000) as u16, probes }
    }

    fn filter_bytes(&self, items: u16) -> usize {
        (usize::from(items) * usize::from(self.millibits)).div_ceil(8 * MILLI as usize)
    }
}

/// The filter of one run in one column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ColumnFilter<'p> {
    items: u16,
    bytes: &'p [u8],
}

impl ColumnFilter<'_> {
    fn may_contain(&self, run: &ColumnRun, hash: u64) -> bool {
        let bits = self.bytes.len() as u64 * 8;
        bits > 0 && bloom::are_set(self.bytes, bits, hash, run.probes)
    }
}

/// A checked column page.
#[derive(Clone, Copy)]
pub(crate) struct ColumnPage<'p> {
    page: &'p [u8],
}

impl<'p> ColumnPage<'p> {
    pub(crate) fn of(page: &'p [u8]) -> ColumnPage<'p> {
        ColumnPage { page }
    }

    /// Whether a checked page is a column page.
    pub(crate) fn is_one(page: &[u8]) -> bool {
        page.get(KIND_AT) == Some(&(FilterKind::Column as u8))
    }

    fn u16_at(&self, at: usize) -> usize {
        let bytes = self.page.get(at..).and_then(<[u8]>::first_chunk);
        usize::from(bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes)))
    }

    pub(crate) fn columns(&self) -> usize {
        self.u16_at(COLUMNS_AT)
    }

    pub(crate) fn runs(&self) -> usize {
        self.u16_at(COLUMNS_AT + 2)
    }

    /// The description of one run.
    pub(crate) fn run(&self, number: usize) -> ColumnRun {
        let mut reader = ByteReader::new(self.page.get(RUNS_AT + number * RUN_BYTES..).unwrap_or_default());
        let mut read = || -> Result<ColumnRun, Malformed> {
            let name = (reader.u64("uid")?, reader.u32("index")?);
            Ok(ColumnRun { name, millibits: reader.u16("bits")?, probes: reader.u8("probes")? })
        };
        read().unwrap_or_default()
    }

    /// The filters of a column, one for each run; `None` if the run's filter is left out.
    pub(crate) fn filters(&self, column: usize) -> impl Iterator<Item = Option<ColumnFilter<'p>>> + use<'p> {
        let (page, runs) = (*self, if column < self.columns() { self.runs() } else { 0 });
        let ends_at = RUNS_AT + runs * RUN_BYTES;
        let counts_at = match column.checked_sub(1) {
            None => ends_at + self.columns() * END_BYTES,
            Some(before) => self.u16_at(ends_at + before * END_BYTES),
        };
        let mut at = counts_at + runs * COUNT_BYTES;
        (0..runs).map(move |number| {
            let items = page.u16_at(counts_at + number * COUNT_BYTES) as u16;
            if items == UNTOLD {
                return None;
            }
            let end = at + page.run(number).filter_bytes(items);
            let bytes = page.page.get(at..end)?;
            at = end;
            Some(ColumnFilter { items, bytes })
        })
    }

    /// For each run, whether it may have a key of this column with this hash; `None` if the run's filter is
    /// left out.
    pub(crate) fn tell(&self, column: usize, hash: u64) -> impl Iterator<Item = Option<bool>> + use<'p> {
        let page = *self;
        let told = move |(number, filter): (usize, Option<ColumnFilter<'_>>)| {
            Some(filter?.may_contain(&page.run(number), hash))
        };
        self.filters(column).enumerate().map(told)
    }

    /// Checks the bytes behind the header that every filter page has.
    pub(super) fn check(reader: &mut ByteReader<'_>, page: &[u8]) -> Result<(), Malformed> {
        let columns = usize::from(reader.u16("columns of a page")?);
        let runs = usize::from(reader.u16("runs of a column page")?);
        reader.zeros(4, "padding of a column page")?;
        if columns == 0 || columns > COLUMNS_MAX || runs == 0 || runs > COLUMN_RUNS_MAX {
            return Err(reader.malformed("columns of a page", COLUMNS_MAX as u64, columns as u64));
        }
        for number in 0..runs {
            let (uid, index) = (reader.u64("uid of a run")?, reader.u32("table of a run")?);
            let (millibits, probes) = (reader.u16("bits of a run")?, reader.u8("probes of a run")?);
            reader.zeros(1, "padding of a run")?;
            let is_named = (uid, index) != (0, 0);
            if is_named == (number == 0) || millibits == 0 || !(1..=PROBES_MAX).contains(&probes) {
                return Err(reader.malformed("run of a column page", u64::from(PROBES_MAX), probes.into()));
            }
        }
        let mut at = RUNS_AT + runs * RUN_BYTES + columns * END_BYTES;
        let of = ColumnPage::of(page);
        for column in 0..columns {
            let end = usize::from(reader.u16("end of a column")?);
            let counts = (0..runs).map(|number| of.u16_at(at + number * COUNT_BYTES) as u16);
            let told = counts.enumerate().filter(|(_, items)| *items != UNTOLD);
            let bits: usize = told.map(|(number, items)| of.run(number).filter_bytes(items)).sum();
            let wanted = at + runs * COUNT_BYTES + bits;
            if end != wanted || end > page.len() {
                return Err(reader.malformed("end of a column", wanted as u64, end as u64));
            }
            debug_assert!(column < columns);
            at = end;
        }
        reader.bytes(at - reader.at(), "filters of a column page")?;
        reader.zeros(reader.remaining(), "rest of a column page")
    }
}

/// The filters of adjacent columns, before they are divided into pages.
pub(crate) struct Columns {
    runs: Vec<ColumnRun>,
    /// Items, and offset in `bytes` of the bits, for each run of each column in turn.
    filters: Vec<(u16, u32)>,
    bytes: Vec<u8>,
}

impl Columns {
    /// No columns yet, for these runs; the slice's own run comes first.
    pub(crate) fn new(mut runs: Vec<ColumnRun>) -> Columns {
        runs.truncate(COLUMN_RUNS_MAX);
        Columns { runs, filters: Vec::new(), bytes: Vec::new() }
    }

    /// Adds the slice's own filter of the next column, over items with these hashes. Those of older runs
    /// follow.
    pub(crate) fn add_own(&mut self, hashes: &[u64]) {
        let (own, at) = (self.runs[0], self.bytes.len());
        let items = u16::try_from(hashes.len()).unwrap_or(UNTOLD);
        let bytes = own.filter_bytes(items);
        if items == UNTOLD || bytes > FILTER_BYTES_MAX {
            return self.push(UNTOLD, at);
        }
        self.bytes.resize(at + bytes, 0);
        let bits = &mut self.bytes[at..];
        hashes.iter().for_each(|hash| bloom::set(bits, bytes as u64 * 8, *hash, own.probes));
        self.push(items, at);
    }

    /// Adds the filter of the next older run in the same column.
    pub(crate) fn add(&mut self, filter: Option<ColumnFilter<'_>>) {
        let at = self.bytes.len();
        let run = self.runs[self.filters.len() % self.runs.len()];
        let fits = |filter: &ColumnFilter<'_>| {
            filter.bytes.len() <= FILTER_BYTES_MAX && filter.bytes.len() == run.filter_bytes(filter.items)
        };
        let Some(filter) = filter.filter(fits) else { return self.push(UNTOLD, at) };
        self.bytes.extend_from_slice(filter.bytes);
        self.push(filter.items, at);
    }

    fn push(&mut self, items: u16, at: usize) {
        self.filters.push((items, u32::try_from(at).expect("filters of a slice are below 4 GiB")));
    }

    /// Appends the pages, not sealed, and returns their shape. `bits`: bits of the columns' names.
    pub(crate) fn build(mut self, bits: u8, out: &mut Vec<u8>) -> FilterShape {
        let runs = self.runs.len();
        debug_assert!(self.filters.len().is_multiple_of(runs) && !self.filters.is_empty());
        let sizes: Vec<usize> = (0..self.filters.len() / runs).map(|column| self.fit(column)).collect();
        let a_page = columns_a_page(&sizes, page_room(runs));
        let pages = sizes.len().div_ceil(a_page);
        let only_bytes: usize =
            RUNS_AT + runs * RUN_BYTES + sizes.iter().map(|size| size + END_BYTES).sum::<usize>();
        let page_bytes = if pages == 1 { only_bytes.next_multiple_of(UNIT_BYTES) } else { PAGE_BYTES };
        let shape = FilterShape {
            kind: FilterKind::Column,
            pages: u32::try_from(pages).expect("a slice has far fewer items"),
            page_bytes: page_bytes as u32,
            probes: self.runs[0].probes,
            columns: ColumnShape { bits, a_page: a_page as u8 },
        };
        for page in 0..pages {
            let columns = page * a_page..sizes.len().min((page + 1) * a_page);
            self.page((page as u32, shape), columns, out);
        }
        shape
    }

    /// Bytes of a column. If the column does not fit a page, its longest filters are left out first.
    fn fit(&mut self, column: usize) -> usize {
        let (runs, room) = (self.runs.len(), page_room(self.runs.len()) - END_BYTES);
        let filters = &mut self.filters[column * runs..(column + 1) * runs];
        loop {
            let bytes = |(run, (items, _)): (&ColumnRun, &(u16, u32))| match *items {
                UNTOLD => 0,
                items => run.filter_bytes(items),
            };
            let each = || self.runs.iter().zip(filters.iter()).map(bytes);
            let size = runs * COUNT_BYTES + each().sum::<usize>();
            if size <= room {
                return size;
            }
            let (longest, _) = each().enumerate().max_by_key(|(_, bytes)| *bytes).expect("there are runs");
            filters[longest].0 = UNTOLD;
        }
    }

    fn page(&self, (number, shape): (u32, FilterShape), columns: std::ops::Range<usize>, out: &mut Vec<u8>) {
        let (start, runs) = (out.len(), self.runs.len());
        shape.begin_page(number, out);
        out.extend_from_slice(&(columns.len() as u16).to_le_bytes());
        out.extend_from_slice(&(runs as u16).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for run in &self.runs {
            out.extend_from_slice(&run.name.0.to_le_bytes());
            out.extend_from_slice(&run.name.1.to_le_bytes());
            out.extend_from_slice(&run.millibits.to_le_bytes());
            out.extend_from_slice(&[run.probes, 0]);
        }
        let ends_at = out.len();
        out.resize(ends_at + columns.len() * END_BYTES, 0);
        for (index, column) in columns.enumerate() {
            let filters = &self.filters[column * runs..(column + 1) * runs];
            filters.iter().for_each(|(items, _)| out.extend_from_slice(&items.to_le_bytes()));
            for (run, (items, at)) in self.runs.iter().zip(filters).filter(|(_, (items, _))| *items != UNTOLD)
            {
                let at = *at as usize;
                out.extend_from_slice(&self.bytes[at..at + run.filter_bytes(*items)]);
            }
            let end = ((out.len() - start) as u16).to_le_bytes();
            out[ends_at + index * END_BYTES..][..END_BYTES].copy_from_slice(&end);
        }
        debug_assert!(out.len() - start <= shape.page_bytes as usize);
        out.resize(start + shape.page_bytes as usize, 0);
    }
}

/// Bytes of a page for columns and their ends, with this number of runs.
fn page_room(runs: usize) -> usize {
    PAGE_BYTES - RUNS_AT - runs * RUN_BYTES
}

/// The greatest number of columns a page, equal for all pages, with which every page fits.
fn columns_a_page(sizes: &[usize], room: usize) -> usize {
    let fits = |count: usize| {
        sizes.chunks(count).all(|page| page.iter().map(|size| size + END_BYTES).sum::<usize>() <= room)
    };
    let all: usize = sizes.iter().map(|size| size + END_BYTES).sum();
    // An average page has room for no more.
    let most = (room * sizes.len() / all.max(1)).clamp(1, COLUMNS_MAX).min(sizes.len());
    (1..=most).rev().find(|count| fits(*count)).unwrap_or(1)
}

#[cfg(test)]
#[path = "column/tests.rs"]
mod tests;
