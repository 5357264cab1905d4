//! False positives of a whole column of filters, measured on the pages that a hashed keyspace writes.
//!
//! Each run has its own filter of a column; the page of a newer run holds a copy of it, as after a push. A
//! query asks the filters of every run on all pages, like a get of an absent key in a node with that many
//! runs. Callers are experiments. Pure.

use xxhash_rust::xxh3::xxh3_128;

use crate::base::hash::KeyHash;
use crate::format::table::filter::column::{COLUMN_RUNS_MAX, ColumnPage, ColumnRun, Columns};

/// Bits of a column's name. A page of a single column is valid with any value.
const COLUMN_BITS: u8 = 20;

/// A column of filters, one for each run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColumnOfFilters {
    /// Runs.
    pub runs: usize,
    /// Items of each run in the column.
    pub items: usize,
    /// Thousandths of a filter bit an item.
    pub millibits_per_key: u32,
}

/// The results of queries for absent keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColumnAnswers {
    /// Queries.
    pub queries: u64,
    /// Queries that at least one run's filter let pass.
    pub passed: u64,
    /// Filters that let a query pass, over all queries.
    pub filters_passed: u64,
    /// Bytes of the filters, without page headers and counts.
    pub filter_bytes: u64,
    /// Pages that the column takes.
    pub pages: u64,
}

/// The filter field of a numbered key's hash.
fn filter_field(number: u64) -> u64 {
    KeyHash(xxh3_128(&number.to_le_bytes())).filter()
}

impl ColumnOfFilters {
    /// Queries the column for `queries` absent keys. Numbers of the column's items start at `first`.
    ///
    /// # Panics
    /// If a filter denies a key of its run.
    ///
    /// ```
    /// let column = trine::lab::ColumnOfFilters { runs: 4, items: 35, millibits_per_key: 16_000 };
    /// let answers = column.ask(0, 10_000);
    /// assert!(answers.pages == 1 && answers.passed < 100);
    /// ```
    #[must_use]
    pub fn ask(&self, first: u64, queries: u64) -> ColumnAnswers {
        let hashes: Vec<u64> = (first..first + (self.runs * self.items) as u64).map(filter_field).collect();
        let pages = self.pages(&hashes);
        let tell = |hash: u64| pages.iter().flat_map(move |page| ColumnPage::of(page).tell(0, hash));
        for (number, hash) in hashes.iter().enumerate() {
            let told = tell(*hash).nth(number / self.items).flatten();
            assert_eq!(told, Some(true), "a filter denies its own item");
        }
        let (mut passed, mut filters_passed) = (0, 0);
        for query in 0..queries {
            let hash = filter_field(u64::MAX - first - query);
            let count = tell(hash).filter(|told| *told != Some(false)).count() as u64;
            passed += u64::from(count > 0);
            filters_passed += count;
        }
        let a_filter = (self.items as u64 * u64::from(self.millibits_per_key)).div_ceil(8000);
        let (filter_bytes, pages) = (a_filter * self.runs as u64, pages.len() as u64);
        ColumnAnswers { queries, passed, filters_passed, filter_bytes, pages }
    }

    /// Pages with the filters of all runs, as many filters on each page as fit.
    fn pages(&self, hashes: &[u64]) -> Vec<Vec<u8>> {
        let runs: Vec<&[u64]> = hashes.chunks(self.items.max(1)).collect();
        let mut a_page = runs.len().min(COLUMN_RUNS_MAX);
        loop {
            let pages: Vec<Vec<u8>> = runs.chunks(a_page).map(|runs| self.page(runs)).collect();
            let is_whole = |page: &Vec<u8>| ColumnPage::of(page).filters(0).all(|one| one.is_some());
            if a_page == 1 || pages.iter().all(is_whole) {
                return pages;
            }
            a_page -= 1;
        }
    }

    /// A page of the newest run, with copies of the filters of the other runs.
    fn page(&self, runs: &[&[u64]]) -> Vec<u8> {
        let own = ColumnRun::own(self.millibits_per_key, 0);
        let older = |number: usize| ColumnRun { name: (number as u64, 0), ..own };
        let named = (0..runs.len()).map(|number| if number == 0 { own } else { older(number) });
        let mut columns = Columns::new(named.collect());
        columns.add_own(runs[0]);
        for run in &runs[1..] {
            let mut alone = Columns::new(vec![own]);
            alone.add_own(run);
            let mut page = Vec::new();
            alone.build(COLUMN_BITS, &mut page);
            columns.add(ColumnPage::of(&page).filters(0).next().flatten());
        }
        let mut page = Vec::new();
        columns.build(COLUMN_BITS, &mut page);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queries pass more often with more runs, and nearly always with few bits; every run is asked.
    #[test]
    fn queries_pass_as_bits_and_runs_say() {
        let of =
            |runs, millibits_per_key| ColumnOfFilters { runs, items: 35, millibits_per_key }.ask(7, 20_000);
        let (few, many, poor) = (of(8, 16_000), of(112, 16_000), of(112, 4000));
        assert!(few.passed < many.passed && many.passed < poor.passed, "{few:?} {many:?} {poor:?}");
        assert!(poor.passed > 19_000 && poor.filters_passed > 10 * many.filters_passed);
        assert_eq!((few.filter_bytes, many.filter_bytes), (8 * 70, 112 * 70));
        assert!(few.pages == 1 && many.pages >= 2);
    }
}
