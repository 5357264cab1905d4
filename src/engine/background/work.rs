//! Background work as a whole: work that is wanted or under way, its errors, and its counters.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::Error;
use crate::base::id::TreeId;
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Event, Mutex, Ordering};
use crate::compact::pick::FullMerge;

use super::removals::Removals;
use crate::engine::publish::changed::ChangedTrees;

/// How long a worker rests after a failure that may clear by itself.
pub(in crate::engine) const RETRY_NS: u64 = 100_000_000;

/// The kinds of background work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::engine) enum WorkKind {
    Flush,
    Merge(TreeId),
}

/// Shared by the workers and the callers that wait for them.
#[derive(Debug, Default)]
pub(in crate::engine) struct BackgroundWork {
    /// Moves when work is done, has failed, or is wanted.
    pub(in crate::engine) moved: Arc<Event>,
    stops: AtomicBool,
    state: Mutex<WorkState>,
    pub(in crate::engine) flush_bytes: AtomicU64,
    pub(in crate::engine) merge_read_bytes: AtomicU64,
    pub(in crate::engine) merge_write_bytes: AtomicU64,
    pub(in crate::engine) flushes: AtomicU64,
    pub(in crate::engine) merges: AtomicU64,
    pub(in crate::engine) histories: AtomicU64,
    pub(in crate::engine) ingests: AtomicU64,
    pub(in crate::engine) ingest_bytes: AtomicU64,
    /// Memory that flushes, merges and ingests under way use.
    pub(in crate::engine) memory_bytes: AtomicU64,
    /// Memory that the cache leaves to ingests.
    pub(in crate::engine) ingest_memory_bytes: AtomicU64,
    /// Ingests that have begun and are not over.
    pub(in crate::engine) ingests_begun: AtomicU64,
    /// Callers that wait for merges.
    awaiting: AtomicU64,
    changed_trees: Arc<ChangedTrees>,
    pub(in crate::engine) removals: Removals,
    /// Number of the log that is kept for reuse; 0 if there is none.
    pub(in crate::engine) recycled_log: AtomicU64,
}

/// A caller waits for merges as long as this lives.
pub(in crate::engine) struct ExpeditedMerges<'w>(&'w BackgroundWork);

impl Drop for ExpeditedMerges<'_> {
    fn drop(&mut self) {
        self.0.awaiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct WorkState {
    /// Trees that are being merged, or that an ingest has taken.
    merging: BTreeSet<TreeId>,
    /// Trees that ingests have or wait for, and the number of these ingests: no merge of them is begun.
    ingesting: BTreeMap<TreeId, u32>,
    /// Memory granted to merges under way.
    granted_bytes: u64,
    is_flushing: bool,
    /// Full merges that callers want, by tree.
    full: BTreeMap<TreeId, FullMerge>,
    /// The error that stopped each kind of work, until the work goes on, and the number of that failure.
    errors: BTreeMap<WorkKind, (u64, Error)>,
    /// Failures so far.
    failures: u64,
}

impl BackgroundWork {
    /// `changed_trees`: notes trees of which work is wanted, or done.
    pub(in crate::engine) fn new(changed_trees: &Arc<ChangedTrees>) -> BackgroundWork {
        BackgroundWork { changed_trees: Arc::clone(changed_trees), ..BackgroundWork::default() }
    }

    pub(in crate::engine) fn is_stopped(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// Tells every worker to end at its next turn.
    pub(in crate::engine) fn stop(&self, changed: &Event) {
        self.stops.store(true, Ordering::Release);
        self.moved.notify();
        changed.notify();
        self.removals.wake();
    }

    /// Makes merges run as fast as they may, while the returned value lives.
    pub(in crate::engine) fn expedite_merges(&self) -> ExpeditedMerges<'_> {
        self.awaiting.fetch_add(1, Ordering::Relaxed);
        self.moved.notify();
        ExpeditedMerges(self)
    }

    pub(in crate::engine) fn is_awaited(&self) -> bool {
        self.awaiting.load(Ordering::Relaxed) > 0
    }

    /// Asks for that part of each of the trees to be merged into one run.
    pub(in crate::engine) fn want_full(&self, trees: &[TreeId], wanted: &FullMerge) {
        let mut state = self.state.lock();
        for tree in trees {
            match state.full.entry(*tree) {
                Entry::Vacant(entry) => drop(entry.insert(wanted.clone())),
                Entry::Occupied(mut entry) => entry.get_mut().join(wanted.clone()),
            }
        }
        drop(state);
        self.changed_trees.note_all(trees.iter().copied());
        self.moved.notify();
    }

    /// The part of a tree that is wanted in one run. Only a version loaded after this call can tell that it
    /// is.
    pub(in crate::engine) fn wanted_full(&self, tree: TreeId) -> Option<FullMerge> {
        self.state.lock().full.get(&tree).cloned()
    }

    pub(in crate::engine) fn wants_full(&self, tree: TreeId) -> bool {
        self.state.lock().full.contains_key(&tree)
    }

    /// The part `done` of a tree is in one run; a caller may have asked for more of the tree since.
    pub(in crate::engine) fn full_done(&self, tree: TreeId, done: &FullMerge) {
        let mut state = self.state.lock();
        if state.full.get(&tree) == Some(done) {
            state.full.remove(&tree);
        }
        drop(state);
        self.moved.notify();
    }

    /// Forgets a dropped tree: its wanted merge and its error.
    pub(in crate::engine) fn forget(&self, tree: TreeId) {
        let mut state = self.state.lock();
        state.full.remove(&tree);
        state.errors.remove(&WorkKind::Merge(tree));
        drop(state);
        self.changed_trees.note(tree);
        self.moved.notify();
    }

    /// Claims a tree for merging; `false` if another worker has it, or an ingest wants it.
    pub(in crate::engine) fn begin_merge(&self, tree: TreeId) -> bool {
        let mut state = self.state.lock();
        !state.ingesting.contains_key(&tree) && state.merging.insert(tree)
    }

    pub(in crate::engine) fn is_merging(&self, tree: TreeId) -> bool {
        let state = self.state.lock();
        state.merging.contains(&tree) || state.ingesting.contains_key(&tree)
    }

    /// Keeps merges of a tree from beginning, for an ingest that waits for those under way.
    pub(in crate::engine) fn want_tree(&self, tree: TreeId) {
        *self.state.lock().ingesting.entry(tree).or_default() += 1;
    }

    /// Claims a wanted tree; `false` while a merge or another ingest has it.
    pub(in crate::engine) fn try_take_tree(&self, tree: TreeId) -> bool {
        self.state.lock().merging.insert(tree)
    }

    /// Ends a want, and the claim if the tree was taken.
    pub(in crate::engine) fn end_want(&self, tree: TreeId, was_taken: bool) {
        let mut state = self.state.lock();
        let left = state.ingesting.get(&tree).map_or(0, |count| count - 1);
        match left {
            0 => drop(state.ingesting.remove(&tree)),
            left => drop(state.ingesting.insert(tree, left)),
        }
        if was_taken {
            state.merging.remove(&tree);
        }
        drop(state);
        self.changed_trees.note(tree);
        self.moved.notify();
    }

    pub(in crate::engine) fn end_merges(&self, trees: impl IntoIterator<Item = TreeId>) {
        let mut state = self.state.lock();
        let ended: Vec<TreeId> = trees.into_iter().collect();
        for tree in &ended {
            state.merging.remove(tree);
        }
        drop(state);
        self.changed_trees.note_all(ended);
        self.moved.notify();
    }

    /// Grants memory to a merge if all grants together stay within `limit_bytes`, or if there is no other
    /// grant: one merge may always run. Its end moves `moved`, for which the others wait.
    pub(in crate::engine) fn try_grant(&self, bytes: u64, limit_bytes: u64) -> bool {
        let mut state = self.state.lock();
        let is_granted = state.granted_bytes == 0 || state.granted_bytes + bytes <= limit_bytes;
        if is_granted {
            state.granted_bytes += bytes;
        }
        is_granted
    }

    pub(in crate::engine) fn end_grant(&self, bytes: u64) {
        self.state.lock().granted_bytes -= bytes;
        self.moved.notify();
    }

    /// Releases trees that were claimed and not merged, for want of memory or because a tree has changed
    /// since its look. No event moves: the end of the merge that has the memory moves it.
    pub(in crate::engine) fn postpone_merges(&self, trees: &[TreeId]) {
        let mut state = self.state.lock();
        for tree in trees {
            state.merging.remove(tree);
        }
    }

    pub(in crate::engine) fn set_flushing(&self, is_flushing: bool) {
        self.state.lock().is_flushing = is_flushing;
        self.moved.notify();
    }

    pub(in crate::engine) fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.is_flushing || !state.merging.is_empty()
    }

    /// Records why a kind of work cannot go on, or that it can again.
    pub(in crate::engine) fn set_error(&self, kind: WorkKind, error: Option<Error>) {
        let mut state = self.state.lock();
        let changed = match error {
            Some(error) => {
                log::warn!("{kind:?}: {error}");
                state.failures += 1;
                let failure = state.failures;
                state.errors.insert(kind, (failure, error));
                true
            }
            None => state.errors.remove(&kind).is_some(),
        };
        drop(state);
        if changed {
            if let WorkKind::Merge(tree) = kind {
                self.changed_trees.note(tree);
            }
            self.moved.notify();
        }
    }

    /// Failures so far: tells later failures from known ones.
    pub(in crate::engine) fn failures(&self) -> u64 {
        self.state.lock().failures
    }

    /// The error that stopped work of one of the kinds: of a failure after the first `known`, or a permanent
    /// one.
    pub(in crate::engine) fn error(&self, known: u64, concerns: impl Fn(WorkKind) -> bool) -> Option<Error> {
        // `concerns` is not called under the lock: it may use `BackgroundWork` itself.
        let errors = self.state.lock().errors.clone();
        // Work on damaged tables is not retried.
        let is_told = |failure: u64, error: &Error| failure > known || matches!(error, Error::Corrupt(_));
        let mut told = errors.into_iter().filter(|(_, (failure, error))| is_told(*failure, error));
        told.find(|(kind, _)| concerns(*kind)).map(|(_, (_, error))| error)
    }

    pub(in crate::engine) fn error_of(&self, kind: WorkKind) -> Option<Error> {
        self.state.lock().errors.get(&kind).map(|(_, error)| error.clone())
    }
}

/// A worker's part in [`BackgroundWork::memory_bytes`].
#[derive(Debug, Default)]
pub(in crate::engine) struct MemoryPart(u64);

impl MemoryPart {
    pub(in crate::engine) fn set(&mut self, work: &BackgroundWork, bytes: usize) {
        let bytes = bytes as u64;
        work.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
        work.memory_bytes.fetch_sub(self.0, Ordering::Relaxed);
        self.0 = bytes;
    }
}
