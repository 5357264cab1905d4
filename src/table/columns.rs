//! Filter pages by column for a slice of a trie's node: the slice's own filters, and beside them the filters
//! of the older runs of its node, copied from the pages written with those runs.
//!
//! The builder calls this when such a slice ends. A run without readable filters is left out, and so is a
//! column of a run whose page is damaged; a lookup then uses the run's own filter. Pure except for reads of
//! older pages. One thread.

use std::ops::RangeInclusive;

use crate::base::key::head;
use crate::base::place::NodeId;
use crate::base::step::BlockKind;
use crate::base::sync::Arc;
use crate::format::table::filter::column::{
    COLUMN_RUNS_MAX, ColumnFilter, ColumnPage, ColumnRun, ColumnShape, Columns,
};
use crate::format::table::filter::{FilterKind, FilterPlan, FilterShape, MILLI};
use crate::io::storage::Storage;

use super::memory::AlignedBytes;
use super::open::fill_exact;
use super::search::TableReader;
use super::verify::verify_block;

/// Approximate number of a slice's items in a column.
const COLUMN_ITEMS: u64 = 32;
/// If a slice has more items in a column, the columns of the older runs are too wide for it.
const COLUMN_ITEMS_MAX: u64 = 8 * COLUMN_ITEMS;
/// Approximate filter bytes of an older item: once as read and once as written.
const COPIED_BYTES: usize = 4;
/// The most bits of a column's name behind the path of its node.
const COLUMN_BITS_MAX: u32 = 16;
const CHILD_BITS: u32 = 3;

/// The older runs of the node that a slice belongs to, newest first.
#[derive(Debug)]
pub(crate) struct NodeRuns {
    pub(crate) node: NodeId,
    pub(crate) runs: Vec<Vec<Arc<TableReader>>>,
}

impl NodeRuns {
    fn items(&self) -> u64 {
        self.runs.iter().flatten().map(|table| table.items()).sum()
    }

    /// Memory for the pages that older filters are copied from, and for the copies.
    pub(super) fn memory_bytes(&self) -> usize {
        let has_pages = self.runs.iter().flatten().any(|table| has_columns(table));
        if has_pages { self.items() as usize * COPIED_BYTES } else { 0 }
    }
}

fn has_columns(table: &TableReader) -> bool {
    table.entry().filter.kind == FilterKind::Column
}

/// The data kept for each item until the slice ends.
#[derive(Default)]
pub(super) struct ItemColumns {
    /// For each item, the bits of its place behind the path of the node.
    places: Vec<u32>,
}

impl ItemColumns {
    pub(super) fn add(&mut self, node: NodeId, stored: &[u8]) {
        self.places.push(((head(stored) << (CHILD_BITS * node.height as u32)) >> 32) as u32);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<u32>()
    }
}

/// The slice whose filter pages are built.
pub(super) struct ColumnSlice<'s> {
    pub(super) node: &'s NodeRuns,
    pub(super) plan: FilterPlan,
    pub(super) items: &'s ItemColumns,
    /// Filter fields, one for each item.
    pub(super) hashes: &'s [u64],
    /// Bytes of the slice's data blocks.
    pub(super) data_bytes: u64,
}

impl ColumnSlice<'_> {
    /// Appends the pages, not sealed, and returns their shape.
    pub(super) fn build(&self, storage: &dyn Storage, out: &mut Vec<u8>) -> FilterShape {
        let path_bits = CHILD_BITS * self.node.node.height as u32;
        let items = self.hashes.len() as u64;
        let older = self.older_bits().filter(|bits| {
            let behind_path = u32::from(*bits).checked_sub(path_bits);
            behind_path.is_some_and(|behind| behind <= COLUMN_BITS_MAX && items >> behind <= COLUMN_ITEMS_MAX)
        });
        let own_bits = (items / COLUMN_ITEMS).max(1).ilog2().min(COLUMN_BITS_MAX);
        let bits = older.unwrap_or((path_bits + own_bits) as u8);
        let behind_path = u32::from(bits) - path_bits;
        let column = |place: u32| u64::from(place).checked_shr(32 - behind_path).unwrap_or(0);
        let places = &self.items.places;
        let (first, last) = (column(places[0]), column(places[places.len() - 1]));
        let path = self.node.node.path << behind_path;
        let older = match older {
            Some(_) => OlderColumns::read(storage, self.node, bits, &(path | first..=path | last)),
            None => OlderColumns::default(),
        };
        let own = ColumnRun::own(self.plan.millibits_per_key, self.plan.probes);
        let runs = std::iter::once(own).chain(older.told.iter().map(|(_, run)| *run));
        let mut columns = Columns::new(runs.collect());
        let mut from = 0;
        for number in first..=last {
            let count = places[from..].partition_point(|place| column(*place) == number);
            columns.add_own(&self.hashes[from..from + count]);
            from += count;
            older.told.iter().for_each(|run| columns.add(older.filter(run, path | number)));
        }
        columns.build(bits, out)
    }

    /// The name length, in bits, of the older runs' columns, if their filters are to be copied. They are
    /// copied only while they are small beside this slice's data, because every new slice writes them again.
    fn older_bits(&self) -> Option<u8> {
        let newest = self.node.runs.iter().find(|run| run.iter().any(|table| has_columns(table)))?;
        let bytes = self.node.items() * u64::from(self.plan.millibits_per_key) / (8 * u64::from(MILLI));
        let shape = newest.iter().find(|table| has_columns(table))?.entry().filter.columns;
        (bytes <= self.data_bytes / 2).then_some(shape.bits)
    }
}

/// The filters of older runs, as the pages of their slices hold them.
#[derive(Default)]
struct OlderColumns {
    /// Newest first.
    runs: Vec<OlderRun>,
    /// The runs with a filter in some page: their number in `runs`, and their entry in the new pages.
    told: Vec<(usize, ColumnRun)>,
}

/// The slices of an older run that have some of the columns.
struct OlderRun {
    /// The columns of each slice of the run.
    spans: Vec<RangeInclusive<u64>>,
    /// The slices of which pages with such columns were read.
    sources: Vec<Source>,
}

/// A slice with filter pages by column.
struct Source {
    shape: FilterShape,
    columns: RangeInclusive<u64>,
    /// The runs that its first good page names; other pages must name the same.
    runs: Vec<ColumnRun>,
    pages: AlignedBytes,
    /// Number of the first page.
    first: u64,
    /// For each page, whether it is good.
    are_good: Vec<bool>,
}

impl OlderColumns {
    /// Reads the pages of the newest run that has any. Pages of another run are read only if no newer page
    /// holds its filters.
    fn read(storage: &dyn Storage, node: &NodeRuns, bits: u8, columns: &RangeInclusive<u64>) -> OlderColumns {
        let mut older = OlderColumns::default();
        let names = node.runs.iter().map(|run| run[0].unique_name());
        for (number, (tables, name)) in node.runs.iter().zip(names).enumerate().take(COLUMN_RUNS_MAX - 1) {
            let is_told = older.listed(name).is_some();
            older.runs.push(OlderRun::read(storage, tables, (bits, columns), !is_told));
            let own = || older.runs[number].sources.first().map(|source| source.runs[0]);
            let told = older.listed(name).or_else(own).map(|run| ColumnRun { name, ..run });
            older.told.extend(told.map(|run| (number, run)));
        }
        older
    }

    /// The run of that name, as the pages of newer runs list it.
    fn listed(&self, name: (u64, u32)) -> Option<ColumnRun> {
        let sources = self.runs.iter().flat_map(|run| &run.sources);
        sources.flat_map(|source| &source.runs).find(|run| run.name == name).copied()
    }

    /// The filter of one of the runs in `told`, in a column.
    fn filter(&self, (number, run): &(usize, ColumnRun), column: u64) -> Option<ColumnFilter<'_>> {
        let of_newer = self.runs[..*number].iter().flat_map(|newer| &newer.sources);
        let listed = of_newer.filter_map(|source| {
            let entry = source.runs.iter().skip(1).position(|listed| listed == run)?;
            source.filter(column, entry + 1)
        });
        listed.into_iter().next().or_else(|| {
            let OlderRun { spans, sources } = &self.runs[*number];
            // If two slices of the run have items in the column, neither has all of the run's items there.
            if spans.iter().filter(|span| span.contains(&column)).count() > 1 {
                return None;
            }
            let is_alike = |own: &ColumnRun| (own.millibits, own.probes) == (run.millibits, run.probes);
            sources
                .iter()
                .filter(|source| is_alike(&source.runs[0]))
                .find_map(|source| source.filter(column, 0))
        })
    }
}

impl OlderRun {
    fn read(
        storage: &dyn Storage,
        tables: &[Arc<TableReader>],
        (bits, columns): (u8, &RangeInclusive<u64>),
        is_wanted: bool,
    ) -> OlderRun {
        let named = ColumnShape { bits, a_page: 1 };
        let span =
            |table: &TableReader| named.column(table.entry().min())..=named.column(table.entry().max());
        let spans: Vec<_> = tables.iter().map(|table| span(table)).collect();
        let is_read = |table: &&Arc<TableReader>| {
            is_wanted && has_columns(table) && table.entry().filter.columns.bits == bits
        };
        let sources = tables
            .iter()
            .filter(is_read)
            .filter_map(|table| Source::read(storage, table, span(table), columns));
        OlderRun { spans, sources: sources.collect() }
    }
}

impl Source {
    /// Reads the pages of some columns; `None` if there are none, or none of them is good.
    fn read(
        storage: &dyn Storage,
        table: &TableReader,
        own: RangeInclusive<u64>,
        wanted: &RangeInclusive<u64>,
    ) -> Option<Source> {
        let entry = table.entry();
        let shape = entry.filter;
        let columns = *own.start().max(wanted.start())..=*own.end().min(wanted.end());
        if columns.is_empty() {
            return None;
        }
        let page = |column: u64| (column - own.start()) / u64::from(shape.columns.a_page);
        let (first, last) = (page(*columns.start()), page(*columns.end()).min(u64::from(shape.pages) - 1));
        let page_bytes = shape.page_bytes as usize;
        let mut pages = AlignedBytes::new((last.checked_sub(first)? as usize + 1) * page_bytes);
        let offset = entry.filter_offset() + first * u64::from(shape.page_bytes);
        let file = table.file().name();
        if let Err(error) = fill_exact(storage, file, offset, &mut pages) {
            log::warn!("{file}: filters are not copied: {error}");
            return None;
        }
        let is_good = |(index, page): (usize, &[u8])| {
            let address =
                table.address(offset + (index * page_bytes) as u64, shape.page_bytes, BlockKind::Filter);
            let checked = verify_block(&address, page);
            checked.inspect_err(|error| log::warn!("{file}: filters are not copied: {error}")).is_ok()
                && ColumnPage::is_one(page)
        };
        let are_good: Vec<bool> = pages.chunks(page_bytes).enumerate().map(is_good).collect();
        let good = are_good.iter().position(|is_good| *is_good)?;
        let page = ColumnPage::of(&pages[good * page_bytes..][..page_bytes]);
        let runs = (0..page.runs()).map(|number| page.run(number)).collect();
        Some(Source { shape, columns: own, runs, pages, first, are_good })
    }

    /// The filter of a run, by its number, in a column.
    fn filter(&self, column: u64, run: usize) -> Option<ColumnFilter<'_>> {
        if !self.columns.contains(&column) {
            return None;
        }
        let (number, a_page) = (column - self.columns.start(), u64::from(self.shape.columns.a_page));
        let index = (number / a_page).checked_sub(self.first)? as usize;
        let page_bytes = self.shape.page_bytes as usize;
        let bytes = self.pages.get(index * page_bytes..)?.get(..page_bytes)?;
        let page = self.are_good.get(index)?.then(|| ColumnPage::of(bytes))?;
        // In a crafted file pages may name different runs.
        if self.runs.get(run) != Some(&page.run(run)) {
            return None;
        }
        page.filters((number % a_page) as usize).nth(run)?
    }
}

#[cfg(test)]
#[path = "columns/tests.rs"]
mod tests;
