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

use crate::format::table::ranges::Ranges;
use crate::levels::version::{Placed, Run, Tree};

/// A tree's runs, newest first, and of each of their tables whether range tombstones, those of newer runs or
/// `newer`, cover it whole.
pub(crate) fn covered(tree: &Tree, mut newer: Ranges) -> Vec<(&Run, Vec<bool>)> {
    let mut runs = Vec::new();
    for run in tree.runs() {
        runs.push((run, run.tables().iter().map(|one| one.table.is_covered_by(&newer)).collect()));
        if run.has_ranges() {
            newer = Ranges::union([newer, run.ranges()].into_iter());
        }
    }
    runs
}

/// The tables that nobody would miss.
pub(crate) fn unseen(tree: &Tree) -> Vec<&Placed> {
    let mut runs = covered(tree, Ranges::default());
    // Oldest first: a tombstone over another that goes is needed no more either.
    for at in (0..runs.len()).rev() {
        let (newer, older) = runs.split_at_mut(at + 1);
        let Some((run, is_unseen)) = newer.last_mut() else { break };
        for (placed, is_unseen) in run.tables().iter().zip(is_unseen) {
            let has_deletes_alone = placed.table.tombstones() == placed.table.items();
            *is_unseen = *is_unseen || (has_deletes_alone && !older.iter().any(|older| meets(placed, older)));
        }
    }
    let all = runs.into_iter().flat_map(|(run, is_unseen)| run.tables().iter().zip(is_unseen));
    all.filter_map(|(placed, is_unseen)| is_unseen.then_some(placed)).collect()
}

/// Whether a table of the run that does not go may hold a key within the bounds of `newer`.
fn meets(newer: &Placed, (run, is_unseen): &(&Run, Vec<bool>)) -> bool {
    let first = run.position(newer.table.min());
    let within = run.tables()[first..].iter().take_while(|older| older.table.min() <= newer.table.max());
    within.zip(&is_unseen[first..]).any(|(_, is_unseen)| !is_unseen)
}

#[cfg(test)]
mod tests;
