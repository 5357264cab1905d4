//! Looks at trees for the merge queue: which merge of a tree is due, and how far the tree is behind.

use crate::base::error::Error;
use crate::base::id::TreeId;
use crate::base::sync::{Arc, MutexGuard};
use crate::compact::pick;
use crate::compact::unseen::unseen;
use crate::write::pace;

use super::Scheduler;
use super::merge_queue::{Due, JOINT_TREE_BYTES_MAX, KnownTree, KnownTrees, TREE_COST_BYTES, age_check_ns};
use super::shapes::shape;
use super::work::Kind;

/// Flushed runs, as a multiple of those that start a merge, at which writers are slowed most.
const LEVEL0_RUNS_HIGH: u64 = 4;

impl Scheduler {
    /// Looks at the trees that have changed, and at those whose time has come; what is known of all then.
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
        let joint_bytes = match &due {
            Some((_, Due::Merge(pick))) if error.is_none() => {
                let tables =
                    pick.inputs.iter().flat_map(|one| &shape.levels[one.level][one.run][one.tables.clone()]);
                let bytes = TREE_COST_BYTES + tables.map(|table| table.bytes).sum::<u64>();
                Some(bytes).filter(|bytes| *bytes <= JOINT_TREE_BYTES_MAX)
            }
            _ => None,
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
                joint_bytes,
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
