//! The merge queue: of each tree which merge is due and how far it is behind, as it was when the tree was
//! last looked at.
//!
//! A look picks a tree's next merge. Trees are looked at when something has changed that the answer depends
//! on, so that a merge costs looks at what it changed, however many trees there are. Merge workers take the
//! most pressing tree from here; pacing and the slowing of writers take their sums. Any thread.
//!
//! Invariants:
//! 1. A change notes its tree after it can be seen: of the tree's tables, its settings, its policy, its
//!    error, what someone wants of it, and whether it is being merged. So a look sees it, or another one
//!    follows.
//! 2. An answer that time changes has the time of its next look.
//! 3. While someone waits for merges, trees that are not at rest are merged like those that are: all of them
//!    are looked at when that begins and ends, and no others.
//! 4. It keeps no table of any version: trees are known by weak references.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::Error;
use crate::base::id::TreeId;
use crate::base::sync::{Arc, Mutex, MutexGuard, Weak};
use crate::compact::pick::{self, Pick};
use crate::compact::unseen::unseen;
use crate::io::pace::Debt;
use crate::levels::version::Tree;
use crate::write::pace;

use super::Store;
use super::work::{Kind, shape};

/// Flushed runs, as a multiple of those that start a merge, at which writers are slowed most.
const LEVEL0_RUNS_HIGH: u64 = 4;

/// The ages of deletes are looked at this often within the bound on them, and at least every hour.
const AGE_CHECKS: u64 = 64;
const AGE_CHECK_S_MAX: u64 = 3600;

/// File number and slice.
pub(super) type TableName = (u64, u32);

/// What is due in a tree.
#[derive(Clone, Debug)]
pub(super) enum Due {
    /// These can go.
    Drop(Vec<TableName>),
    Merge(Pick),
}

/// How pressing something is: most of all what costs no reads, and what failed after all others.
type Weight = (bool, u64);

/// What the last look at a tree found.
#[derive(Debug)]
struct KnownTree {
    tree: Weak<Tree>,
    due: Option<(Weight, Due)>,
    /// Something is due whether it can be done or not.
    is_due: bool,
    debt_bytes: u64,
    /// Flushes until its writers begin to be slowed.
    flushes_left: u64,
    /// Bound on the ages of its deletes in seconds; 0: none.
    within_s: u64,
    /// It does not rest yet, and is merged otherwise then.
    is_restless: bool,
    next_look_ns: Option<u64>,
}

/// See the module.
#[derive(Default, Debug)]
pub(super) struct MergeQueue {
    changed: Mutex<BTreeSet<TreeId>>,
    known: Mutex<KnownTrees>,
}

impl MergeQueue {
    /// A tree is to be looked at again.
    pub(super) fn note(&self, tree: TreeId) {
        self.changed.lock().insert(tree);
    }

    pub(super) fn note_all(&self, trees: impl IntoIterator<Item = TreeId>) {
        self.changed.lock().extend(trees);
    }
}

/// All trees that were looked at, and what they come to together.
#[derive(Default, Debug)]
pub(super) struct KnownTrees {
    trees: BTreeMap<TreeId, KnownTree>,
    /// By what can be done, the most pressing last; of equal ones the first tree.
    by_weight: BTreeSet<(Weight, Reverse<TreeId>)>,
    /// Those of which tables can go.
    droppable: BTreeSet<TreeId>,
    due_count: usize,
    by_next_look: BTreeSet<(u64, TreeId)>,
    restless: BTreeSet<TreeId>,
    debt_bytes: u128,
    by_flushes_left: BTreeSet<(u64, TreeId)>,
    by_age_bound: BTreeSet<(u64, TreeId)>,
    /// Someone waited for merges at the last look.
    was_awaited: bool,
    /// Looks at a tree so far.
    looks: u64,
}

impl KnownTrees {
    fn forget(&mut self, id: TreeId) {
        let Some(known) = self.trees.remove(&id) else { return };
        if let Some((weight, _)) = known.due {
            self.by_weight.remove(&(weight, Reverse(id)));
        }
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

    fn learn(&mut self, id: TreeId, known: KnownTree) {
        if let Some((weight, due)) = &known.due {
            self.by_weight.insert((*weight, Reverse(id)));
            if matches!(due, Due::Drop(_)) {
                self.droppable.insert(id);
            }
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

    /// The tree with the most pressing work of those that are free.
    pub(super) fn most_pressing(&self, is_free: impl Fn(TreeId) -> bool) -> Option<TreeId> {
        self.by_weight.iter().rev().map(|(_, Reverse(id))| *id).find(|id| is_free(*id))
    }

    /// What is due in a tree, if it is as it was when it was looked at.
    pub(super) fn due_in(&self, tree: &Arc<Tree>) -> Option<Due> {
        let known = self.trees.get(&tree.id)?;
        let is_same = std::ptr::eq(known.tree.as_ptr(), Arc::as_ptr(tree));
        known.due.as_ref().filter(|_| is_same).map(|(_, due)| due.clone())
    }

    /// Whether tables of a free tree can go.
    pub(super) fn can_drop(&self, is_free: impl Fn(TreeId) -> bool) -> bool {
        self.droppable.iter().any(|id| is_free(*id))
    }

    pub(super) fn is_any_due(&self) -> bool {
        self.due_count > 0
    }

    /// What pacing is told.
    pub(super) fn debt(&self) -> Debt {
        Debt {
            bytes: u64::try_from(self.debt_bytes).unwrap_or(u64::MAX),
            flushes_left: self.by_flushes_left.first().map_or(u64::MAX, |(left, _)| *left),
        }
    }

    /// When the next look is due.
    pub(super) fn next_look_ns(&self) -> Option<u64> {
        self.by_next_look.first().map(|(ns, _)| *ns)
    }

    /// After how long without other work the ages of deletes are to be looked at; `None` if no keyspace
    /// bounds them.
    pub(super) fn age_check_ns(&self) -> Option<u64> {
        self.by_age_bound.first().map(|(within_s, _)| age_check_ns(*within_s))
    }

    /// Looks at a tree so far.
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }
}

fn age_check_ns(within_s: u64) -> u64 {
    (within_s / AGE_CHECKS).clamp(1, AGE_CHECK_S_MAX).saturating_mul(1_000_000_000)
}

impl Store {
    /// Looks at the trees that have changed, and at those whose time has come; what is known of all then.
    pub(super) fn look_at_trees(&self) -> MutexGuard<'_, KnownTrees> {
        let queue = &self.work.merge_queue;
        let mut known = queue.known.lock();
        let (is_awaited, now_ns) = (self.work.is_awaited(), self.env.clock.now_ns());
        if std::mem::replace(&mut known.was_awaited, is_awaited) != is_awaited {
            queue.note_all(known.restless.iter().copied());
        }
        while let Some((ns, id)) = known.by_next_look.first().copied().filter(|(ns, _)| *ns <= now_ns) {
            known.by_next_look.remove(&(ns, id));
            queue.note(id);
        }
        let changed = std::mem::take(&mut *queue.changed.lock());
        for id in changed {
            self.look_at_tree(&mut known, id, now_ns);
        }
        known
    }

    fn look_at_tree(&self, known: &mut KnownTrees, id: TreeId, now_ns: u64) {
        known.looks += 1;
        known.forget(id);
        // Before the version: only a later one can tell that it is done.
        let wanted_full = self.work.wanted_full(id);
        let keyspace = self.keyspace_of(id);
        let error = self.work.error_of(Kind::Merge(id));
        let pin = self.epoch.pin();
        let tree = self.views.load(&pin).get().version.counted_tree(id);
        let (Some(tree), Some(keyspace)) = (tree, keyspace) else {
            self.writer.pressures.set_tree(id, 0);
            return;
        };
        let settings = self.pick_settings_of(&keyspace, now_ns, known.was_awaited);
        let shape = shape(tree);
        let behind = pick::pressure(&shape, &settings);
        let (unseen, is_damaged) = (unseen(tree), matches!(error, Some(Error::Corrupt(_))));
        let is_merge_due = pick::is_due(&shape, &settings);
        let due = if unseen.is_empty() {
            let full = wanted_full.as_ref().and_then(|wanted| pick::pick_full(&shape, &settings, wanted));
            if let (Some(wanted), None, false) = (&wanted_full, &full, self.work.is_merging(id)) {
                self.work.full_done(id, wanted);
            }
            let picked = full.or_else(|| if is_merge_due { pick::pick(&shape, &settings) } else { None });
            // One with a damaged table would fail again, and keep the others from being merged.
            picked
                .filter(|_| !is_damaged)
                .map(|pick| ((error.is_none(), behind.debt_bytes), Due::Merge(pick)))
        } else {
            Some(((is_damaged || error.is_none(), u64::MAX), Due::Drop(unseen.to_vec())))
        };
        let (runs, low) = (behind.level0_runs as u64, settings.level0_runs as u64 + 1);
        self.writer.pressures.set_tree(id, pace::pressure(runs, low, low * LEVEL0_RUNS_HIGH));
        let within_s = settings.delete_persist_within_s;
        let has_tombstones = || tree.tables().any(|(_, placed)| placed.oldest_tombstone_s > 0);
        let age_look_ns = (within_s > 0 && has_tombstones()).then(|| now_ns + age_check_ns(within_s));
        let rest_ns = keyspace.restless_for_ns(now_ns).map(|left_ns| now_ns + left_ns);
        known.learn(
            id,
            KnownTree {
                tree: Arc::downgrade(tree),
                due,
                is_due: !unseen.is_empty() || is_merge_due,
                // No haste would help a tree whose merges fail, and it would disturb the reads of others.
                debt_bytes: if error.is_none() { behind.debt_bytes } else { 0 },
                flushes_left: if error.is_none() { (low + 1).saturating_sub(runs) } else { u64::MAX },
                within_s,
                is_restless: rest_ns.is_some(),
                next_look_ns: age_look_ns.into_iter().chain(rest_ns).min(),
            },
        );
    }
}
