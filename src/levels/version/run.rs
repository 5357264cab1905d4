//! A run: tables with disjoint key ranges, in key order, searched as one. Plain values.

use std::collections::BTreeMap;

use crate::base::key::{common_prefix, head, head_after};
use crate::format::table::ranges::{Around, Ranges};
use crate::table::TableReader;

use super::placed::Placed;

/// Tables with disjoint key ranges, searched as one.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The newer of two runs of a level ≥ 1 has the greater number; 0 in level 0.
    number: u64,
    tables: Tables,
    bytes: u64,
    /// Whether any of its tables has range tombstones; every get asks for this.
    has_ranges: bool,
}

/// The tables of a run. Most runs of a small tree have one, which needs no side data.
#[derive(Clone, Debug)]
enum Tables {
    One(Placed),
    Many(Box<Many>),
}

#[derive(Clone, Debug)]
struct Many {
    tables: Vec<Placed>,
    /// Length of the prefix common to all keys of the run.
    shared_bytes: usize,
    /// The 8 bytes behind the shared prefix of each table's largest key, so that a search touches few cache
    /// lines.
    max_words: Vec<u64>,
    /// Tables with range tombstones, in order.
    ranged: Vec<u32>,
}

impl Many {
    fn new(tables: Vec<Placed>) -> Many {
        let (first, last) = (&tables[0].table, &tables[tables.len() - 1].table);
        let shared_bytes = common_prefix(first.min(), last.max());
        let max_words = tables.iter().map(|placed| head_after(placed.table.max(), shared_bytes)).collect();
        let has_ranges = |index: &u32| !tables[*index as usize].table.ranges().is_empty();
        let ranged = (0..tables.len() as u32).filter(has_ranges).collect();
        Many { tables, shared_bytes, max_words, ranged }
    }

    /// As [`Run::position`], for a key between the run's bounds.
    #[inline]
    fn position(&self, key: &[u8]) -> usize {
        // Between the bounds every key has the shared prefix.
        let word = head_after(key, self.shared_bytes);
        let start = self.max_words.partition_point(|max| *max < word);
        if self.max_words.get(start).is_none_or(|max| *max != word) {
            return start;
        }
        let equal = self.max_words[start..].partition_point(|max| *max == word);
        start + self.tables[start..start + equal].partition_point(|placed| placed.table.max() < key)
    }
}

impl Run {
    /// Makes a run of tables in key order.
    pub(crate) fn new(number: u64, tables: Vec<Placed>) -> Run {
        assert!(!tables.is_empty(), "a run has a table");
        for pair in tables.windows(2) {
            assert!(pair[0].table.max() < pair[1].table.min(), "tables of a run are sorted and disjoint");
        }
        let bytes = tables.iter().map(|placed| placed.table.slice_bytes()).sum();
        let has_ranges = tables.iter().any(|placed| !placed.table.ranges().is_empty());
        let tables = match <[Placed; 1]>::try_from(tables) {
            Ok([one]) => Tables::One(one),
            Err(tables) => Tables::Many(Box::new(Many::new(tables))),
        };
        Run { number, tables, bytes, has_ranges }
    }

    pub(super) fn min(&self) -> &[u8] {
        self.tables()[0].table.min()
    }

    pub(super) fn max(&self) -> &[u8] {
        self.last().max()
    }

    fn last(&self) -> &TableReader {
        let tables = self.tables();
        &tables[tables.len() - 1].table
    }

    /// Bytes of its slices in its tables' files.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    #[inline]
    pub(crate) fn tables(&self) -> &[Placed] {
        match &self.tables {
            Tables::One(one) => std::slice::from_ref(one),
            Tables::Many(many) => &many.tables,
        }
    }

    /// Indexes of the tables with range tombstones, ascending.
    fn ranged(&self) -> &[u32] {
        match &self.tables {
            Tables::One(one) if one.table.ranges().is_empty() => &[],
            Tables::One(_) => &[0],
            Tables::Many(many) => &many.ranged,
        }
    }

    /// Index of the first table whose largest key is not below `key`; the number of tables if there is none.
    pub(crate) fn position(&self, key: &[u8]) -> usize {
        self.position_with_head(key, head(key))
    }

    /// As `position`, for a key with this head; most comparisons need only the head.
    #[inline]
    fn position_with_head(&self, key: &[u8], key_head: u64) -> usize {
        let tables = self.tables();
        if !tables[0].table.ends_before(key, key_head) {
            return 0;
        }
        match &self.tables {
            Tables::Many(many) if !self.last().ends_before(key, key_head) => many.position(key),
            _ => tables.len(),
        }
    }

    /// Whether any of its tables has range tombstones.
    pub(crate) fn has_ranges(&self) -> bool {
        self.has_ranges
    }

    /// The end of the range tombstones that cover `key`, if any do; an empty end means no end.
    pub(crate) fn end_over(&self, key: &[u8]) -> Option<&[u8]> {
        let around = self.around(key);
        around.is_covered.then_some(around.to)
    }

    /// The range tombstone of this run around `key`, or the space between two. A range that continues in the
    /// next table counts as one.
    pub(crate) fn around(&self, key: &[u8]) -> Around<'_> {
        let ranged = self.ranged();
        let ranges = |index: usize| ranged.get(index).map(|table| self.ranges_of(*table));
        let first = |index: usize| ranges(index).and_then(Ranges::first);
        let begun =
            ranged.partition_point(|table| self.ranges_of(*table).first().is_some_and(|first| first <= key));
        let Some(at) = begun.checked_sub(1) else {
            return Around { is_covered: false, from: &[], to: first(0).unwrap_or_default() };
        };
        let mut around = self.ranges_of(ranged[at]).around(key);
        if !around.is_covered {
            if around.to.is_empty() {
                around.to = first(begun).unwrap_or_default();
            }
            return around;
        }
        for table in &ranged[begun..] {
            let next = self.ranges_of(*table);
            if around.to.is_empty() || next.first() != Some(around.to) {
                break;
            }
            around.to = next.get(0).1;
            if next.count() > 1 {
                break;
            }
        }
        for index in (0..at).rev() {
            let is_first = first(index + 1) == Some(around.from);
            match self.ranges_of(ranged[index]).last() {
                Some((start, end)) if is_first && end == around.from => around.from = start,
                _ => break,
            }
        }
        around
    }

    fn ranges_of(&self, table: u32) -> &Ranges {
        self.tables()[table as usize].table.ranges()
    }

    /// The table that can hold `key`, by its bounds only.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        let key_head = head(key);
        let index = self.position_with_head(key, key_head);
        (!self.tables().get(index)?.table.begins_after(key, key_head)).then_some(index)
    }
}

/// The runs of a level or node, newest first.
pub(super) fn runs_of(level: usize, mut tables: Vec<(u64, Placed)>) -> Vec<Run> {
    if level > 0 {
        let mut runs: BTreeMap<u64, Vec<Placed>> = BTreeMap::new();
        tables.into_iter().for_each(|(run, placed)| runs.entry(run).or_default().push(placed));
        let newest_first = runs.into_iter().rev().map(|(number, mut tables)| {
            tables.sort_by(|a, b| a.table.min().cmp(b.table.min()));
            Run::new(number, tables)
        });
        return newest_first.collect();
    }
    tables.sort_by_key(|(_, placed)| std::cmp::Reverse(placed.last_sequence));
    for pair in tables.windows(2) {
        let (newer, older) = (&pair[0].1, &pair[1].1);
        assert!(older.last_sequence < newer.first_sequence, "runs of level 0 are disjoint in sequence");
    }
    tables.into_iter().map(|(_, placed)| Run::new(0, vec![placed])).collect()
}

/// A number greater than those of all runs.
pub(crate) fn next_number(runs: &[Run]) -> u64 {
    runs.iter().map(Run::number).max().map_or(0, |newest| newest + 1)
}
