//! Tables of a tree that can go by a manifest edit alone, without being read: those that range tombstones of
//! newer runs cover whole, and those of nothing but tombstones that no older table needs.
//!
//! So the space of a deleted range, or of a keyspace that was cleared, comes back as soon as the tombstone is
//! in a table, whatever the policy would merge next. What a range covers in part is left to merges. Called by
//! the engine before it picks a merge. A pure function of a tree's tables, their bounds and ranges.
//!
//! Invariants:
//! 1. No key is found in another state without the unseen tables: what covers one is newer than all it has,
//!    and stays, or goes in the same edit with everything older that it covers.
//! 2. They all go in one edit, and none of them while a merge has it: the tree is taken as for a merge.
//!    Readers with an older version keep the files.
//! 3. A newer table that comes meanwhile changes nothing of this.

use std::collections::BTreeSet;

use crate::format::table::ranges::farther;
use crate::levels::version::{Placed, Run, Tree, Trie};

/// Tables of a tree that range tombstones cover whole: those of newer runs, or others that are newer than all
/// tables, of which `newer` tells how far one goes on over a key that it covers.
pub(crate) fn covered<'t, 'n: 't>(
    tree: &'t Tree,
    newer: impl Fn(&[u8]) -> Option<&'n [u8]> + 't,
) -> impl Iterator<Item = &'t Placed> {
    let runs = tree.runs().enumerate();
    let tables = runs.flat_map(|(run, tables)| tables.tables().iter().map(move |placed| (run, placed)));
    tables.filter(move |(run, placed)| is_covered(tree, *run, placed, &newer)).map(|(_, placed)| placed)
}

/// Whether `newer`, or range tombstones of the tree's newest `runs` runs, cover a table whole.
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

/// The tables that nobody would miss. A version's tree remembers them.
pub(crate) fn unseen(tree: &Tree) -> &[(u64, u32)] {
    tree.unseen(|| find_unseen(tree).into_iter().map(Placed::name).collect())
}

fn find_unseen(tree: &Tree) -> Vec<&Placed> {
    if let Some(trie) = tree.trie() {
        return find_in_trie(tree, trie);
    }
    if !tree.runs().any(|run| run.has_ranges() || run.tables().iter().any(has_deletes_alone)) {
        return Vec::new();
    }
    let covered = |(at, run): (usize, &Run)| {
        run.tables().iter().map(|placed| is_covered(tree, at, placed, |_| None)).collect()
    };
    let is_unseen: Vec<Vec<bool>> = tree.runs().enumerate().map(covered).collect();
    let mut runs: Vec<(&Run, Vec<bool>)> = tree.runs().zip(is_unseen).collect();
    // Oldest first: a tombstone over another that goes is needed no more either.
    for at in (0..runs.len()).rev() {
        let (newer, older) = runs.split_at_mut(at + 1);
        let Some((run, is_unseen)) = newer.last_mut() else { break };
        for (placed, is_unseen) in run.tables().iter().zip(is_unseen) {
            *is_unseen =
                *is_unseen || (has_deletes_alone(placed) && !older.iter().any(|older| meets(placed, older)));
        }
    }
    let all = runs.into_iter().flat_map(|(run, is_unseen)| run.tables().iter().zip(is_unseen));
    all.filter_map(|(placed, is_unseen)| is_unseen.then_some(placed)).collect()
}

/// In a trie ranges are in the root alone. Of many tables few have nothing but tombstones: these are left to
/// pushes, but for the oldest of all, such as that of a clear.
fn find_in_trie<'t>(tree: &'t Tree, trie: &'t Trie) -> Vec<&'t Placed> {
    let root = trie.root();
    let mut unseen: Vec<&Placed> =
        if root.has_ranges() { covered(tree, |_| None).collect() } else { Vec::new() };
    let names: BTreeSet<(u64, u32)> = unseen.iter().map(|placed| placed.name()).collect();
    let of_root = || root.runs().iter().rev().flat_map(Run::tables);
    let unseen_of_root = of_root().filter(|placed| names.contains(&placed.name())).count();
    let below: u64 = trie.heights().iter().skip(1).map(|height| height.tables).sum();
    if below == (unseen.len() - unseen_of_root) as u64 {
        let is_unseen = |placed: &&Placed| names.contains(&placed.name());
        let oldest = of_root().take_while(|placed| is_unseen(placed) || has_deletes_alone(placed));
        unseen.extend(oldest.filter(|placed| !is_unseen(placed)));
    }
    unseen
}

fn has_deletes_alone(placed: &Placed) -> bool {
    placed.table.tombstones() == placed.table.items()
}

/// Whether a table of the run that does not go may hold a key within the bounds of `newer`.
fn meets(newer: &Placed, (run, is_unseen): &(&Run, Vec<bool>)) -> bool {
    let first = run.position(newer.table.min());
    let within = run.tables()[first..].iter().take_while(|older| older.table.min() <= newer.table.max());
    within.zip(&is_unseen[first..]).any(|(_, is_unseen)| !is_unseen)
}

#[cfg(test)]
mod tests;
