//! Tables of a tree that a manifest edit can remove without reading them: tables fully covered by range
//! tombstones of newer runs, and tables of tombstones only, if no older table needs them.
//!
//! So the space of a deleted range, or of a cleared keyspace, is freed as soon as the tombstone is in a
//! table, without a merge. Partly covered tables are left to merges. Called by the engine before it picks a
//! merge. A pure function of a tree's tables, their bounds and ranges.
//!
//! Invariants:
//! 1. No lookup changes its result without these tables: the covering tombstone is newer than all their
//!    items. It stays, or it is removed in the same edit with all older tables that it covers.
//! 2. They are removed in one edit, and none of them while a merge uses it: the tree is reserved as for a
//!    merge. Readers with an older version keep the files.
//! 3. A newer table that is added meanwhile does not affect this.

use std::collections::BTreeSet;

use crate::format::table::ranges::farther;
use crate::levels::version::{Placed, Run, Tree, Trie};

/// Tables of a tree that range tombstones cover completely: tombstones of newer runs, or others newer than
/// all tables. `newer` returns the end of the latter over a covered key.
pub(crate) fn covered<'t, 'n: 't>(
    tree: &'t Tree,
    newer: impl Fn(&[u8]) -> Option<&'n [u8]> + 't,
) -> impl Iterator<Item = &'t Placed> {
    let runs = tree.runs().enumerate();
    let tables = runs.flat_map(|(run, tables)| tables.tables().iter().map(move |placed| (run, placed)));
    tables.filter(move |(run, placed)| is_covered(tree, *run, placed, &newer)).map(|(_, placed)| placed)
}

/// Whether `newer`, or range tombstones of the tree's newest `runs` runs, cover a table completely.
fn is_covered<'t, 'n: 't>(
    tree: &'t Tree,
    runs: usize,
    placed: &Placed,
    newer: impl Fn(&[u8]) -> Option<&'n [u8]>,
) -> bool {
    placed
        .table
        .is_covered_by(|key| tree.ranged_runs(runs).map(|run| run.end_over(key)).fold(newer(key), farther))
}

/// The removable tables; a version's tree caches them.
pub(crate) fn fully_covered(tree: &Tree) -> &[(u64, u32)] {
    tree.fully_covered(|| find_fully_covered(tree).into_iter().map(Placed::name).collect())
}

fn find_fully_covered(tree: &Tree) -> Vec<&Placed> {
    if let Some(trie) = tree.trie() {
        return find_in_trie(tree, trie);
    }
    if !tree.runs().any(|run| run.has_ranges() || run.tables().iter().any(has_deletes_alone)) {
        return Vec::new();
    }
    let covered = |(at, run): (usize, &Run)| {
        run.tables().iter().map(|placed| is_covered(tree, at, placed, |_| None)).collect()
    };
    let is_fully_covered: Vec<Vec<bool>> = tree.runs().enumerate().map(covered).collect();
    let mut runs: Vec<(&Run, Vec<bool>)> = tree.runs().zip(is_fully_covered).collect();
    // Oldest first: a tombstone over removed tables only is not needed either.
    for at in (0..runs.len()).rev() {
        let (newer, older) = runs.split_at_mut(at + 1);
        let Some((run, is_fully_covered)) = newer.last_mut() else { break };
        for (placed, is_fully_covered) in run.tables().iter().zip(is_fully_covered) {
            *is_fully_covered = *is_fully_covered
                || (has_deletes_alone(placed) && !older.iter().any(|older| meets(placed, older)));
        }
    }
    let all = runs.into_iter().flat_map(|(run, is_fully_covered)| run.tables().iter().zip(is_fully_covered));
    all.filter_map(|(placed, is_fully_covered)| is_fully_covered.then_some(placed)).collect()
}

/// In a trie only the root has ranges. Among its many tables few have only tombstones. These are left to
/// pushes, except the oldest of the root, such as the table of a clear.
fn find_in_trie<'t>(tree: &'t Tree, trie: &'t Trie) -> Vec<&'t Placed> {
    let root = trie.root();
    let mut fully_covered: Vec<&Placed> =
        if root.has_ranges() { covered(tree, |_| None).collect() } else { Vec::new() };
    let names: BTreeSet<(u64, u32)> = fully_covered.iter().map(|placed| placed.name()).collect();
    let of_root = || root.runs().iter().rev().flat_map(Run::tables);
    let fully_covered_of_root = of_root().filter(|placed| names.contains(&placed.name())).count();
    let below: u64 = trie.heights().iter().skip(1).map(|height| height.tables).sum();
    if below == (fully_covered.len() - fully_covered_of_root) as u64 {
        let is_fully_covered = |placed: &&Placed| names.contains(&placed.name());
        let oldest = of_root().take_while(|placed| is_fully_covered(placed) || has_deletes_alone(placed));
        fully_covered.extend(oldest.filter(|placed| !is_fully_covered(placed)));
    }
    fully_covered
}

fn has_deletes_alone(placed: &Placed) -> bool {
    placed.table.tombstones() == placed.table.items()
}

/// Whether a remaining table of the run may hold a key within the bounds of `newer`.
fn meets(newer: &Placed, (run, is_fully_covered): &(&Run, Vec<bool>)) -> bool {
    let first = run.position(newer.table.min());
    let within = run.tables()[first..].iter().take_while(|older| older.table.min() <= newer.table.max());
    within.zip(&is_fully_covered[first..]).any(|(_, is_fully_covered)| !is_fully_covered)
}

#[cfg(test)]
mod tests;
