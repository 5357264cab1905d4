//! The level of an ingest's tables: a pure function of the bounds of the tables in the tree.
//!
//! The tables are newer than all items of the tree, and go as deep as the order of versions allows. If
//! nothing overlaps them, they go into the last level, so that the ingest itself causes no rewrite. Otherwise
//! they go above the shallowest level that overlaps them. Each table of level 0 is a run, so the tables of
//! one run cannot go there. Overlapping tables of level 0 move down before them in the same manifest edit,
//! each as a run of its own. Due merges then do the rest. This function moves nothing. The engine calls it,
//! and makes sure that memory holds no newer items and that no merge of the tree is under way.
//!
//! Invariants:
//! 1. All data that overlaps the ingest's tables, or the tables moved down before them, is below their
//!    level, or older within it.
//! 2. With a table of level 0 all older tables of level 0 move down, in that order.

use super::pick::OutputRun;
use super::shape::{LEVELS_MAX, TreeShape, overlap};

/// Least and greatest key of a table, both inclusive.
pub(crate) type Bounds<'b> = (&'b [u8], &'b [u8]);

/// See [`place`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Placement {
    /// Number of tables of level 0 that move to the same level first: the oldest, each as a new run, oldest
    /// first.
    pub(crate) lowered_count: usize,
    pub(crate) level: usize,
    pub(crate) run: OutputRun,
}

/// The placement of tables with these bounds, which are disjoint, ascending and newer than the tree.
pub(crate) fn place(tree: &TreeShape<'_>, tables: &[Bounds<'_>]) -> Placement {
    assert!(tree.levels.len() <= LEVELS_MAX, "no pick makes a deeper level");
    let runs = |level: usize| tree.levels.get(level).map_or(&[][..], Vec::as_slice);
    let last_level = tree.levels.iter().rposition(|runs| !runs.is_empty()).unwrap_or(0);
    let meets = |level: usize, bounds: &[Bounds<'_>]| {
        let meets_any = |run: &Vec<_>| bounds.iter().any(|(min, max)| !overlap(run, min, max).is_empty());
        runs(level).iter().position(meets_any)
    };
    let lowered_count = meets(0, tables).map_or(0, |newest| runs(0).len() - newest);
    let lowered = runs(0).iter().flatten().skip(runs(0).len() - lowered_count);
    let mut all = tables.to_vec();
    all.extend(lowered.map(|table| (table.min, table.max)));
    let level = match (1..=last_level).find(|level| meets(*level, &all).is_some()) {
        None => last_level.max(1),
        Some(level) => (level - 1).max(1),
    };
    let is_free = lowered_count == 0 && meets(level, tables).is_none();
    let run = if is_free && !runs(level).is_empty() { OutputRun::Into(0) } else { OutputRun::New };
    Placement { lowered_count, level, run }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::shape::TableShape;

    type Span = (&'static str, &'static str);

    fn tree(levels: &[&[&[Span]]]) -> TreeShape<'static> {
        let table = |(min, max): &Span| TableShape {
            min: min.as_bytes(),
            max: max.as_bytes(),
            bytes: 1,
            items: 1,
            tombstones: 0,
            tombstones_dense: 0,
            oldest_tombstone_s: 0,
            first_sequence: 1,
        };
        let runs = |runs: &&[&[Span]]| runs.iter().map(|run| run.iter().map(table).collect()).collect();
        TreeShape { levels: levels.iter().map(runs).collect() }
    }

    fn placed(levels: &[&[&[Span]]], tables: &[Span]) -> (usize, usize, OutputRun) {
        let bounds: Vec<Bounds<'_>> =
            tables.iter().map(|(min, max)| (min.as_bytes(), max.as_bytes())).collect();
        let Placement { lowered_count, level, run } = place(&tree(levels), &bounds);
        (lowered_count, level, run)
    }

    /// Tables that overlap nothing join the last level; in an empty tree that is level 1. Gaps between tables
    /// may be used.
    #[test]
    fn tables_without_overlap_join_the_last_level() {
        let (new, into) = (OutputRun::New, OutputRun::Into(0));
        assert_eq!(placed(&[], &[("a", "z")]), (0, 1, new));
        assert_eq!(placed(&[&[&[("a", "c")]]], &[("d", "e")]), (0, 1, new));
        let deep: &[&[&[Span]]] = &[&[&[("x", "z")]], &[], &[&[("a", "c"), ("m", "n")]]];
        assert_eq!(placed(deep, &[("d", "e")]), (0, 2, into));
        assert_eq!(placed(deep, &[("d", "e"), ("p", "q")]), (0, 2, into));
    }

    /// Tables that overlap a level go above it, into an empty level or into a run with a gap. Only level 1
    /// has no level for one run above it, and gets a newer run.
    #[test]
    fn tables_that_overlap_a_level_go_above_it() {
        let (new, into) = (OutputRun::New, OutputRun::Into(0));
        let deep: &[&[&[Span]]] = &[&[], &[&[("u", "v")]], &[], &[&[("a", "f")]]];
        assert_eq!(placed(deep, &[("c", "d")]), (0, 2, new));
        assert_eq!(placed(deep, &[("a", "b"), ("c", "z")]), (0, 1, new));
        let filled: &[&[&[Span]]] = &[&[], &[&[("u", "v")], &[("a", "z")]], &[&[("a", "f")]]];
        assert_eq!(placed(filled, &[("c", "d")]), (0, 1, new));
        let spare: &[&[&[Span]]] = &[&[], &[&[("u", "v")]], &[&[("a", "f")]]];
        assert_eq!(placed(spare, &[("c", "d")]), (0, 1, into));
    }

    /// Level 0 moves down from its newest overlapping table on, and stays above the data that its own tables
    /// overlap.
    #[test]
    fn level_0_makes_way() {
        let new = OutputRun::New;
        let level0: &[&[Span]] = &[&[("x", "z")], &[("c", "d")], &[("k", "m")]];
        assert_eq!(placed(&[level0], &[("a", "c")]), (2, 1, new));
        assert_eq!(placed(&[level0], &[("a", "b"), ("y", "y")]), (3, 1, new));
        assert_eq!(placed(&[level0, &[], &[], &[&[("p", "q")]]], &[("a", "c")]), (2, 3, new));
        assert_eq!(placed(&[level0, &[], &[], &[&[("l", "q")]]], &[("a", "c")]), (2, 2, new));
        assert_eq!(placed(&[level0, &[&[("l", "q")]]], &[("a", "c")]), (2, 1, new));
    }
}
