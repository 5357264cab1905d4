//! Calls that wait for background work: flush, compact, settle.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::base::error::{Error, Result};
use crate::base::id::TreeId;
use crate::compact::pick::FullMerge;
use crate::write::commit::CommitOp;
use crate::write::writer::{Seals, Until};

use super::Committer;
use crate::engine::background::work::WorkKind;
use crate::engine::options::OpenMode;
use crate::engine::publish::keyspace::KeyspaceState;

impl Committer {
    fn seal(&self) -> Result<()> {
        self.check_process()?;
        let retry = || {
            self.wait_for(
                |store| store.work.error_of(WorkKind::Flush).is_none(),
                |kind| kind == WorkKind::Flush,
            )
        };
        if self.work.error_of(WorkKind::Flush).is_some() {
            // The failure that kept a log and memory from being prepared may have cleared.
            retry()?;
        }
        let seal = || self.commit(&CommitOp::empty(Until::Written, Seals::Yes));
        match seal() {
            // If ranges were deleted, the flush worker may restart the log (`restart`).
            Err(Error::Full { .. }) if self.has_ranges_in_memory() => retry().and_then(|()| seal()),
            sealed => sealed,
        }
    }

    /// Seals the active generation and waits until every write before the call is in a table.
    pub(crate) fn flush(&self) -> Result<()> {
        self.seal()?;
        let last = self.writer.visible();
        self.wait_for(|store| store.writer.has_flushed(last), |kind| kind == WorkKind::Flush)
    }

    /// Flushes, then merges the data present at the call into one run per tree. Later writes do not prolong
    /// the wait. Later ingests do, because they have the sequence number of the last flush.
    pub(crate) fn compact(&self) -> Result<()> {
        self.compact_trees(|store| store.trees(), (Vec::new(), Vec::new()))
    }

    /// As [`Self::compact`], for the keys of a keyspace from the first key up to and excluding the second. An
    /// empty second key means no upper bound. The whole write buffer is flushed.
    pub(crate) fn compact_keyspace(&self, keyspace: &KeyspaceState, keys: (Vec<u8>, Vec<u8>)) -> Result<()> {
        let trees = |store: &Committer| {
            let pin = store.epoch.pin();
            keyspace.trees_in(&store.views.load(&pin).get().version, (&keys.0, &keys.1))
        };
        self.compact_trees(trees, keys.clone())
    }

    fn compact_trees(
        &self,
        trees: impl FnOnce(&Committer) -> Vec<TreeId>,
        keys: (Vec<u8>, Vec<u8>),
    ) -> Result<()> {
        // An ingest before the first write counts as of the first write.
        let upto = self.writer.visible().max(1);
        self.flush()?;
        let trees = trees(self);
        let _expedited = self.work.expedite_merges();
        self.work.want_full(&trees, &FullMerge { upto, keys });
        let is_left =
            |store: &Committer, tree| store.work.wants_full(tree) && store.keyspace_of(tree).is_some();
        let wanted: BTreeSet<TreeId> = trees.iter().copied().collect();
        // A finished tree is not checked again, even if another caller wants a merge of it.
        let left = RefCell::new(trees);
        let is_done = |store: &Committer| {
            let mut left = left.borrow_mut();
            while left.last().is_some_and(|tree| !is_left(store, *tree)) {
                left.pop();
            }
            left.is_empty()
        };
        self.wait_for(
            is_done,
            |kind| matches!(kind, WorkKind::Merge(tree) if is_left(self, tree) && wanted.contains(&tree)),
        )?;
        self.await_removals();
        Ok(())
    }

    /// Waits until no background work is due or under way, and obsolete files without readers are removed.
    pub(crate) fn settle(&self) -> Result<()> {
        self.check_process()?;
        if self.mode == OpenMode::ReadOnly {
            return Ok(());
        }
        let _expedited = self.work.expedite_merges();
        let is_settled = |store: &Committer| {
            store.writer.sealed_count() == 0 && !store.work.is_busy() && !store.is_merge_due()
        };
        self.wait_for(is_settled, |_| true)?;
        self.await_removals();
        Ok(())
    }

    /// Waits until background work makes `is_done` true. Ends with the error of any concerned work that
    /// cannot go on. Earlier failures may have cleared, so that work is tried again.
    fn wait_for(
        &self,
        is_done: impl Fn(&Committer) -> bool,
        concerns: impl Fn(WorkKind) -> bool,
    ) -> Result<()> {
        let known = self.work.failures();
        loop {
            let seen = self.work.moved.seen();
            if is_done(self) {
                return Ok(());
            }
            if self.mode == OpenMode::ReadOnly {
                return Err(Error::ReadOnly);
            }
            if let Some(error) = self.work.error(known, &concerns) {
                return Err(error);
            }
            if let Some(error) = self.writer.latched() {
                return Err(error.clone());
            }
            self.env.threads.wait(&self.work.moved, seen, None);
        }
    }
}
