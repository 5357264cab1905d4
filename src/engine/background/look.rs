//! Looks at trees for the merge queue: finds which merge of a tree is due, and how far its merges are behind.

use crate::base::error::Error;
use crate::base::id::TreeId;
use crate::base::sync::{Arc, MutexGuard};
use crate::compact::fully_covered::fully_covered;
use crate::compact::pick::{self, FullMerge, Pick};
use crate::compact::push::{self, PushSettings};
use crate::compact::shape::{PickSettings, RunPart, TreeShape};
use crate::levels::version::{Run, Trie};
use crate::write::pace;

use super::Scheduler;
use super::merge_queue::{
    Due, JOINT_TREE_BYTES_MAX, KnownTree, KnownTrees, TREE_COST_BYTES, Task, age_check_ns,
};
use super::shapes::shape;
use super::work::WorkKind;

/// Level-0 runs at which writers are slowed most, as a multiple of the runs from which on they are slowed:
/// one more than start a merge.
const LEVEL0_RUNS_HIGH: u64 = 4;
/// Runs of a trie's root at which writers are slowed most (24), as a multiple of `ROOT_RUNS_MAX`.
const ROOT_RUNS_HIGH: u64 = 2;

/// The result of a look at a tree's shape.
struct Looked {
    task: Option<Task>,
    /// The task is a part of the wanted full merge.
    is_full: bool,
    is_due: bool,
    /// Bytes of the task's inputs.
    input_bytes: u64,
    debt_bytes: u64,
    /// Runs of level 0 or of a trie's root.
    runs: usize,
    /// The number of them from which on writers are slowed.
    runs_low: usize,
    /// The multiple of `runs_low` at which writers are slowed most.
    runs_high: u64,
}

fn look_at_levels(shape: &TreeShape<'_>, settings: &PickSettings, full: Option<Pick>) -> Looked {
    let behind = pick::pressure(shape, settings);
    let (is_full, is_due) = (full.is_some(), pick::is_due(shape, settings));
    let picked = full.or_else(|| if is_due { pick::pick(shape, settings) } else { None });
    let tables = |part: &RunPart| &shape.levels[part.level][part.run][part.tables.clone()];
    let inputs = picked.iter().flat_map(|pick| &pick.inputs).flat_map(tables);
    Looked {
        input_bytes: inputs.map(|table| table.bytes).sum(),
        task: picked.map(Task::Pick),
        is_full,
        is_due,
        debt_bytes: behind.debt_bytes,
        runs: behind.level0_runs,
        runs_low: settings.level0_runs + 1,
        runs_high: LEVEL0_RUNS_HIGH,
    }
}

fn look_at_trie(trie: &Trie, settings: &PushSettings, wanted: Option<&FullMerge>) -> Looked {
    let due = push::due(trie, settings);
    let is_due = due.is_some();
    let full = wanted.and_then(|wanted| push::full(trie, settings.table_bytes, wanted.upto));
    let is_full = full.is_some();
    // The full merge goes first, or new writes would hold it up; but the root must not grow.
    let picked = if push::is_root_long(trie) { due.or(full) } else { full.or(due) };
    let inputs = picked.iter().flat_map(|push| push.inputs(trie));
    Looked {
        input_bytes: inputs.map(Run::bytes).sum(),
        is_full,
        is_due,
        task: picked.map(Task::Push),
        debt_bytes: push::debt_bytes(trie, settings),
        runs: trie.root().runs().len(),
        runs_low: push::ROOT_RUNS_MAX,
        runs_high: ROOT_RUNS_HIGH,
    }
}

impl Scheduler {
    /// Looks at trees that have changed or whose next look is due; returns the merge queue.
    pub(in crate::engine) fn look_at_trees(&self) -> MutexGuard<'_, KnownTrees> {
        let mut known = self.known_trees.lock();
        let (is_awaited, now_ns) = (self.work.is_awaited(), self.env.clock.now_ns());
        if std::mem::replace(&mut known.was_awaited, is_awaited) != is_awaited {
            self.changed_trees.note_all(known.restless.iter().copied());
        }
        while let Some((ns, id)) = known.by_next_look.first().copied().filter(|(ns, _)| *ns <= now_ns) {
            known.by_next_look.remove(&(ns, id));
            self.changed_trees.note(id);
        }
        let changed = self.changed_trees.take();
        for id in changed {
            self.look_at_tree(&mut known, id, now_ns);
        }
        known
    }

    fn look_at_tree(&self, known: &mut KnownTrees, id: TreeId, now_ns: u64) {
        known.looks += 1;
        #[cfg(test)]
        crate::base::visits::count();
        known.forget(id);
        // Read before the version: only a later version can tell that the full merge is done.
        let wanted_full = self.work.wanted_full(id);
        let keyspace = self.keyspace_of(id);
        let error = self.work.error_of(WorkKind::Merge(id));
        let pin = self.epoch.pin();
        let tree = self.views.load(&pin).get().version.counted_tree(id);
        let (Some(tree), Some(keyspace)) = (tree, keyspace) else {
            self.writer.pressures.set_tree(id, 0);
            return;
        };
        let settings = self.pick_settings_of(&keyspace, now_ns, known.was_awaited);
        let (fully_covered, is_damaged) = (fully_covered(tree), matches!(error, Some(Error::Corrupt(_))));
        let looked = match tree.trie() {
            Some(trie) => {
                let settings = self.push_settings_of(&keyspace, now_ns, known.was_awaited);
                look_at_trie(trie, &settings, wanted_full.as_ref().filter(|_| fully_covered.is_empty()))
            }
            None => {
                let shape = shape(tree);
                let full = match (&wanted_full, fully_covered.is_empty()) {
                    (Some(wanted), true) => pick::pick_full(&shape, &settings, wanted),
                    _ => None,
                };
                look_at_levels(&shape, &settings, full)
            }
        };
        let Looked { task, is_full, is_due, debt_bytes, runs, runs_low, .. } = looked;
        let due = if fully_covered.is_empty() {
            if let (Some(wanted), false, false) = (&wanted_full, is_full, self.work.is_merging(id)) {
                self.work.full_done(id, wanted);
            }
            // A tree with a damaged table would fail again, and keep other trees from being merged.
            task.filter(|_| !is_damaged).map(|task| ((error.is_none(), debt_bytes), Due::Merge(task)))
        } else {
            Some(((is_damaged || error.is_none(), u64::MAX), Due::Drop(fully_covered.to_vec())))
        };
        let bytes = TREE_COST_BYTES + looked.input_bytes;
        let is_joint = matches!(due, Some((_, Due::Merge(_)))) && error.is_none();
        let joint_bytes = Some(bytes).filter(|bytes| is_joint && *bytes <= JOINT_TREE_BYTES_MAX);
        let (runs, low) = (runs as u64, runs_low as u64);
        self.writer.pressures.set_tree(id, pace::pressure(runs, low, low * looked.runs_high));
        // Tries do not keep `delete_persist_within`: their tombstones are dropped where no older item is
        // below them.
        let within_s = if tree.trie().is_none() { settings.delete_persist_within_s } else { 0 };
        let has_tombstones = || tree.tables().any(|(_, placed)| placed.oldest_tombstone_s > 0);
        let age_look_ns = (within_s > 0 && has_tombstones()).then(|| now_ns + age_check_ns(within_s));
        let rest_ns = keyspace.restless_for_ns(now_ns).map(|left_ns| now_ns + left_ns);
        known.learn(
            id,
            KnownTree {
                tree: Arc::downgrade(tree),
                due,
                joint_bytes,
                is_due: !fully_covered.is_empty() || is_due,
                // Faster merges would not help a tree whose merges fail, and would disturb reads of other
                // trees.
                debt_bytes: if error.is_none() { debt_bytes } else { 0 },
                flushes_left: if error.is_none() { (low + 1).saturating_sub(runs) } else { u64::MAX },
                within_s,
                is_restless: rest_ns.is_some(),
                next_look_ns: age_look_ns.into_iter().chain(rest_ns).min(),
            },
        );
    }
}
