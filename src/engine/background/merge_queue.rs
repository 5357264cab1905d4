//! The merge queue: for each tree the merge that is due, and how far the tree is behind, as of the last look
//! at the tree.
//!
//! A look picks a tree's next merge. A tree is looked at when an input of that choice has changed. So a merge
//! costs looks at the trees that it changed, however many trees there are. Merge workers take the most urgent
//! tree from the queue; pacing and the slowdown of writers take its sums. Any thread.
//!
//! Invariants:
//! 1. A change notes its tree after the change is visible: of the tree's tables, settings, merge policy or
//!    error, of the full merge wanted of it, and of whether it is being merged. So a look sees the change, or
//!    another look follows.
//! 2. An answer that changes with time has the time of its next look.
//! 3. While a caller waits for merges, trees that are not at rest are merged like trees at rest. All such
//!    trees, and no others, are looked at when the wait begins and ends.
//! 4. The queue keeps no table of any version: it holds trees by weak references.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::ops::Bound;

use crate::base::id::TreeId;
use crate::base::sync::{Arc, Weak};
use crate::compact::pick::{MergeKind, Pick};
use crate::compact::push::Push;
use crate::engine::publish::edit::TableName;
use crate::io::pace::Debt;
use crate::levels::version::Tree;

/// The ages of deletes are checked this often within the bound on them, and at least every hour.
const AGE_CHECKS: u64 = 64;
const AGE_CHECK_S_MAX: u64 = 3600;

/// Most bytes that a merge may read of one tree to fit a joint merge, and that a joint merge may read.
pub(super) const JOINT_TREE_BYTES_MAX: u64 = 1 << 20;
const JOINT_BYTES_MAX: u64 = 32 << 20;
/// Cost of each tree beyond its bytes: it bounds the number of trees in a joint merge.
pub(super) const TREE_COST_BYTES: u64 = 8 << 10;

/// The work that is due in a tree.
#[derive(Clone, Debug)]
pub(in crate::engine) enum Due {
    /// These tables can be dropped.
    Drop(Vec<TableName>),
    Merge(Task),
}

/// A merge or a move.
#[derive(Clone, Debug)]
pub(in crate::engine) enum Task {
    /// A merge or move between levels.
    Pick(Pick),
    /// A merge or move between nodes of a trie.
    Push(Push),
}

impl Task {
    pub(super) fn work(&self) -> MergeKind {
        match self {
            Task::Pick(pick) => pick.work,
            Task::Push(push) => push.work,
        }
    }
}

/// Urgency: whether the work has not failed, and bytes of debt. Drops are most urgent, since they cost no
/// reads; failed work is least urgent.
pub(super) type Weight = (bool, u64);

/// The result of the last look at a tree.
#[derive(Debug)]
pub(super) struct KnownTree {
    pub(super) tree: Weak<Tree>,
    pub(super) due: Option<(Weight, Due)>,
    /// Input bytes of the due merge, if it is small enough for a joint merge.
    pub(super) joint_bytes: Option<u64>,
    /// Work is due, whether it can be done or not.
    pub(super) is_due: bool,
    pub(super) debt_bytes: u64,
    /// Flushes until the tree's writers begin to be slowed.
    pub(super) flushes_left: u64,
    /// Bound on the ages of its deletes in seconds; 0: none.
    pub(super) within_s: u64,
    /// The tree is not at rest yet; at rest it is merged by another policy.
    pub(super) is_restless: bool,
    pub(super) next_look_ns: Option<u64>,
}

/// The merge queue: all trees that were looked at, and their sums.
#[derive(Default, Debug)]
pub(in crate::engine) struct KnownTrees {
    trees: BTreeMap<TreeId, KnownTree>,
    /// Trees with work that can be done, the most urgent last; of equal ones the lowest id is last.
    by_weight: BTreeSet<(Weight, Reverse<TreeId>)>,
    /// Trees whose due merges fit a joint merge.
    joint: BTreeSet<TreeId>,
    /// Trees with tables that can be dropped.
    droppable: BTreeSet<TreeId>,
    due_count: usize,
    pub(super) by_next_look: BTreeSet<(u64, TreeId)>,
    pub(super) restless: BTreeSet<TreeId>,
    debt_bytes: u128,
    by_flushes_left: BTreeSet<(u64, TreeId)>,
    by_age_bound: BTreeSet<(u64, TreeId)>,
    /// A caller waited for merges at the last look.
    pub(super) was_awaited: bool,
    /// Looks at a tree so far.
    pub(super) looks: u64,
}

impl KnownTrees {
    pub(super) fn forget(&mut self, id: TreeId) {
        let Some(known) = self.trees.remove(&id) else { return };
        if let Some((weight, _)) = known.due {
            self.by_weight.remove(&(weight, Reverse(id)));
        }
        self.joint.remove(&id);
        self.droppable.remove(&id);
        self.due_count -= usize::from(known.is_due);
        if let Some(ns) = known.next_look_ns {
            self.by_next_look.remove(&(ns, id));
        }
        self.restless.remove(&id);
        self.debt_bytes -= u128::from(known.debt_bytes);
        self.by_flushes_left.remove(&(known.flushes_left, id));
        self.by_age_bound.remove(&(known.within_s, id));
    }

    pub(super) fn learn(&mut self, id: TreeId, known: KnownTree) {
        if let Some((weight, due)) = &known.due {
            self.by_weight.insert((*weight, Reverse(id)));
            if matches!(due, Due::Drop(_)) {
                self.droppable.insert(id);
            }
        }
        if known.joint_bytes.is_some() {
            self.joint.insert(id);
        }
        self.due_count += usize::from(known.is_due);
        self.by_next_look.extend(known.next_look_ns.map(|ns| (ns, id)));
        if known.is_restless {
            self.restless.insert(id);
        }
        self.debt_bytes += u128::from(known.debt_bytes);
        self.by_flushes_left.insert((known.flushes_left, id));
        if known.within_s > 0 {
            self.by_age_bound.insert((known.within_s, id));
        }
        self.trees.insert(id, known);
    }

    /// The tree with the most urgent work of those that are free.
    pub(in crate::engine) fn most_pressing(&self, is_free: impl Fn(TreeId) -> bool) -> Option<TreeId> {
        self.by_weight.iter().rev().map(|(_, Reverse(id))| *id).find(|id| is_free(*id))
    }

    /// A tree, and other trees whose merges can be done with its own. Trees with greater ids come first:
    /// their slices mostly follow this tree's in the same files.
    pub(in crate::engine) fn joint(&self, first: TreeId) -> Vec<TreeId> {
        let mut left_bytes = JOINT_BYTES_MAX;
        let mut has_room = |id: &TreeId| {
            let bytes = self.trees.get(id).and_then(|known| known.joint_bytes).unwrap_or(u64::MAX);
            let left = left_bytes.checked_sub(bytes);
            left_bytes = left.unwrap_or(0);
            left.is_some()
        };
        if !has_room(&first) {
            return vec![first];
        }
        let behind = (Bound::Excluded(first), Bound::Unbounded);
        let others = self.joint.range(behind).chain(self.joint.range(..first));
        iter::once(first).chain(others.copied().take_while(has_room)).collect()
    }

    /// The work due in a tree, if the tree has not changed since the last look.
    pub(in crate::engine) fn due_in(&self, tree: &Arc<Tree>) -> Option<Due> {
        let known = self.trees.get(&tree.id)?;
        let is_same = std::ptr::eq(known.tree.as_ptr(), Arc::as_ptr(tree));
        known.due.as_ref().filter(|_| is_same).map(|(_, due)| due.clone())
    }

    /// Whether a free tree has tables that can be dropped.
    pub(in crate::engine) fn can_drop(&self, is_free: impl Fn(TreeId) -> bool) -> bool {
        self.droppable.iter().any(|id| is_free(*id))
    }

    pub(in crate::engine) fn is_any_due(&self) -> bool {
        self.due_count > 0
    }

    /// The debt of all trees, for pacing.
    pub(in crate::engine) fn debt(&self) -> Debt {
        Debt {
            bytes: u64::try_from(self.debt_bytes).unwrap_or(u64::MAX),
            flushes_left: self.by_flushes_left.first().map_or(u64::MAX, |(left, _)| *left),
        }
    }

    /// When the next look is due.
    pub(in crate::engine) fn next_look_ns(&self) -> Option<u64> {
        self.by_next_look.first().map(|(ns, _)| *ns)
    }

    /// Time without other work after which the ages of deletes are checked; `None` if no keyspace bounds
    /// them.
    pub(in crate::engine) fn age_check_ns(&self) -> Option<u64> {
        self.by_age_bound.first().map(|(within_s, _)| age_check_ns(*within_s))
    }

    /// Looks at a tree so far.
    #[cfg(test)]
    pub(in crate::engine) fn looks(&self) -> u64 {
        self.looks
    }
}

pub(super) fn age_check_ns(within_s: u64) -> u64 {
    (within_s / AGE_CHECKS).clamp(1, AGE_CHECK_S_MAX).saturating_mul(1_000_000_000)
}
