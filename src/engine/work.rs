//! Background work as a whole: what is wanted, what is under way, what went wrong, and how far behind it is.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::Error;
use crate::base::id::TreeId;
use crate::base::reserve::Role;
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Event, Mutex, Ordering};
use crate::compact::pick::FullMerge;
use crate::compact::shape::{PickSettings, TableShape, TreeShape};
use crate::io::env::Turn;
use crate::io::pace::Haste;
use crate::levels::version::{Placed, Run, Tree};
use crate::write::pace;

use super::Store;
use super::catalog::Keyspace;
use super::merge_queue::MergeQueue;
use super::obsolete::Removals;
use super::reads::Reads;

/// How long a worker rests after a failure that may clear by itself.
pub(super) const RETRY_NS: u64 = 100_000_000;

/// With more reads of gets and scans at the device than these, merges yield: from some 48 on a read waits for
/// others longer than it takes itself.
const READS_MANY: u64 = 48;

/// What background work is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    Flush,
    Merge(TreeId),
}

/// Shared by the workers and those who wait for them.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Moves when work was done, failed, or is wanted.
    pub(super) moved: Arc<Event>,
    stops: AtomicBool,
    state: Mutex<State>,
    pub(super) flush_bytes: AtomicU64,
    pub(super) merge_read_bytes: AtomicU64,
    pub(super) merge_write_bytes: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) merges: AtomicU64,
    pub(super) histories: AtomicU64,
    pub(super) ingests: AtomicU64,
    pub(super) ingest_bytes: AtomicU64,
    /// Memory that flushes, merges and ingests under way use.
    pub(super) memory_bytes: AtomicU64,
    /// Memory that the cache leaves to ingests.
    pub(super) ingest_memory_bytes: AtomicU64,
    /// Ingests that have begun and are not over.
    pub(super) ingests_begun: AtomicU64,
    /// Callers that wait for merges.
    awaiting: AtomicU64,
    pub(super) merge_queue: MergeQueue,
    pub(super) reads: Reads,
    pub(super) removals: Removals,
    /// Number of the log that is kept to be used again; 0 is none's.
    pub(super) recycled_log: AtomicU64,
}

/// Someone waits for merges as long as this lives.
pub(super) struct Hurries<'w>(&'w Work);

impl Drop for Hurries<'_> {
    fn drop(&mut self) {
        self.0.awaiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct State {
    /// Trees being merged, or that an ingest has.
    merging: BTreeSet<TreeId>,
    /// Trees that ingests have or wait for, and how many those are: no merge of them is begun.
    ingesting: BTreeMap<TreeId, u32>,
    /// Memory that merges under way may take.
    granted_bytes: u64,
    is_flushing: bool,
    /// What someone wants merged into one run, by tree.
    full: BTreeMap<TreeId, FullMerge>,
    /// What stopped each kind of work, until it goes on, and which failure it was.
    errors: BTreeMap<Kind, (u64, Error)>,
    /// Failures so far.
    failures: u64,
}

impl Work {
    pub(super) fn is_stopped(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// Tells every worker to end at its next turn.
    pub(super) fn stop(&self, changed: &Event) {
        self.stops.store(true, Ordering::Release);
        self.moved.notify();
        changed.notify();
        self.reads.wake();
        self.removals.wake();
    }

    /// Has merges go as fast as they may, while the answer lives.
    pub(super) fn hurry_merges(&self) -> Hurries<'_> {
        self.awaiting.fetch_add(1, Ordering::Relaxed);
        self.moved.notify();
        Hurries(self)
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.awaiting.load(Ordering::Relaxed) > 0
    }

    /// Wants that of each of the trees merged into one run.
    pub(super) fn want_full(&self, trees: &[TreeId], wanted: &FullMerge) {
        let mut state = self.state.lock();
        for tree in trees {
            match state.full.entry(*tree) {
                Entry::Vacant(entry) => drop(entry.insert(wanted.clone())),
                Entry::Occupied(mut entry) => entry.get_mut().join(wanted.clone()),
            }
        }
        drop(state);
        self.merge_queue.note_all(trees.iter().copied());
        self.moved.notify();
    }

    /// What of a tree is wanted in one run. Only a version loaded after this call can tell that it is.
    pub(super) fn wanted_full(&self, tree: TreeId) -> Option<FullMerge> {
        self.state.lock().full.get(&tree).cloned()
    }

    pub(super) fn wants_full(&self, tree: TreeId) -> bool {
        self.state.lock().full.contains_key(&tree)
    }

    /// That of a tree is in one run; someone may want more of it since.
    pub(super) fn full_done(&self, tree: TreeId, done: &FullMerge) {
        let mut state = self.state.lock();
        if state.full.get(&tree) == Some(done) {
            state.full.remove(&tree);
        }
        drop(state);
        self.moved.notify();
    }

    /// A tree was dropped: nothing is wanted of it any more, and nothing of it has failed.
    pub(super) fn forget(&self, tree: TreeId) {
        let mut state = self.state.lock();
        state.full.remove(&tree);
        state.errors.remove(&Kind::Merge(tree));
        drop(state);
        self.merge_queue.note(tree);
        self.moved.notify();
    }

    /// Takes a tree for merging; `false` if another worker has it, or an ingest wants it.
    pub(super) fn begin_merge(&self, tree: TreeId) -> bool {
        let mut state = self.state.lock();
        !state.ingesting.contains_key(&tree) && state.merging.insert(tree)
    }

    pub(super) fn is_merging(&self, tree: TreeId) -> bool {
        let state = self.state.lock();
        state.merging.contains(&tree) || state.ingesting.contains_key(&tree)
    }

    /// Keeps merges of a tree from being begun, for an ingest that waits for those under way.
    pub(super) fn want_tree(&self, tree: TreeId) {
        *self.state.lock().ingesting.entry(tree).or_default() += 1;
    }

    /// Takes a wanted tree; `false` while a merge or another ingest has it.
    pub(super) fn try_take_tree(&self, tree: TreeId) -> bool {
        self.state.lock().merging.insert(tree)
    }

    /// The end of a want, and of what was taken.
    pub(super) fn end_want(&self, tree: TreeId, was_taken: bool) {
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
        self.merge_queue.note(tree);
        self.moved.notify();
    }

    pub(super) fn end_merge(&self, tree: TreeId) {
        self.state.lock().merging.remove(&tree);
        self.merge_queue.note(tree);
        self.moved.notify();
    }

    /// Grants a merge memory if all grants together stay within `limit_bytes`, or none was given: one merge
    /// may always run, and its end moves `moved`, for which the others wait.
    pub(super) fn try_grant(&self, bytes: u64, limit_bytes: u64) -> bool {
        let mut state = self.state.lock();
        let is_granted = state.granted_bytes == 0 || state.granted_bytes + bytes <= limit_bytes;
        if is_granted {
            state.granted_bytes += bytes;
        }
        is_granted
    }

    pub(super) fn end_grant(&self, bytes: u64) {
        self.state.lock().granted_bytes -= bytes;
        self.moved.notify();
    }

    /// Gives a tree back that was taken and not merged, for want of memory. Nobody is told: whoever has the
    /// memory will tell.
    pub(super) fn postpone_merge(&self, tree: TreeId) {
        self.state.lock().merging.remove(&tree);
    }

    pub(super) fn set_flushing(&self, is_flushing: bool) {
        self.state.lock().is_flushing = is_flushing;
        self.moved.notify();
    }

    pub(super) fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.is_flushing || !state.merging.is_empty()
    }

    /// Notes why a kind of work cannot go on, or that it can again.
    pub(super) fn set_error(&self, kind: Kind, error: Option<Error>) {
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
            if let Kind::Merge(tree) = kind {
                self.merge_queue.note(tree);
            }
            self.moved.notify();
        }
    }

    /// Failures so far: what came after is told from what is known already.
    pub(super) fn failures(&self) -> u64 {
        self.state.lock().failures
    }

    /// What has stopped work of one of the kinds: in a failure after the first `known`, or for good.
    pub(super) fn error(&self, known: u64, concerns: impl Fn(Kind) -> bool) -> Option<Error> {
        // Not asked under the lock: it may look here again.
        let errors = self.state.lock().errors.clone();
        // What is damaged is not tried again.
        let is_told = |failure: u64, error: &Error| failure > known || matches!(error, Error::Corrupt(_));
        let mut told = errors.into_iter().filter(|(_, (failure, error))| is_told(*failure, error));
        told.find(|(kind, _)| concerns(*kind)).map(|(_, (_, error))| error)
    }

    pub(super) fn error_of(&self, kind: Kind) -> Option<Error> {
        self.state.lock().errors.get(&kind).map(|(_, error)| error.clone())
    }
}

/// A worker's part in [`Work::memory_bytes`].
#[derive(Debug, Default)]
pub(super) struct MemoryPart(u64);

impl MemoryPart {
    pub(super) fn set(&mut self, work: &Work, bytes: usize) {
        let bytes = bytes as u64;
        work.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
        work.memory_bytes.fetch_sub(self.0, Ordering::Relaxed);
        self.0 = bytes;
    }
}

/// One kind of background work.
pub(super) trait Job: Send {
    /// Whether a turn may hold versions or tables that nothing else holds any more.
    const HOLDS_TABLES: bool = true;

    fn turn(&mut self, store: &Arc<Store>) -> Turn;
    /// Gives up what is under way.
    fn stop(&mut self, store: &Store);
}

/// How picking sees a tree.
pub(super) fn shape(tree: &Tree) -> TreeShape<'_> {
    let run = |run| Run::tables(run).iter().map(table_shape).collect();
    TreeShape { levels: tree.levels().iter().map(|runs| runs.iter().map(run).collect()).collect() }
}

fn table_shape(placed: &Placed) -> TableShape<'_> {
    let table = &placed.table;
    TableShape {
        min: table.min(),
        max: table.max(),
        bytes: table.slice_bytes(),
        // A range tombstone is an item that hides others, like any.
        items: table.items() + table.ranges().count() as u64,
        tombstones: table.tombstones() + table.ranges().count() as u64,
        tombstones_dense: placed.tombstones_dense,
        oldest_tombstone_s: placed.oldest_tombstone_s,
        first_sequence: placed.first_sequence,
    }
}

impl Store {
    /// How merges are to go.
    pub(super) fn haste(&self) -> Haste {
        if self.work.is_awaited() {
            Haste::Awaited
        } else if self.load.awaited() > READS_MANY {
            Haste::Yielding
        } else {
            Haste::No
        }
    }

    /// What picking is told of a tree; `None` if its keyspace was dropped.
    pub(super) fn pick_settings(&self, tree: TreeId) -> Option<PickSettings> {
        let keyspace = self.keyspace_of(tree)?;
        Some(self.pick_settings_of(&keyspace, self.env.clock.now_ns(), self.work.is_awaited()))
    }

    /// The same of a keyspace's tree, as if someone waits for merges or not.
    pub(super) fn pick_settings_of(
        &self,
        keyspace: &Keyspace,
        now_ns: u64,
        is_awaited: bool,
    ) -> PickSettings {
        let settings = keyspace.settings();
        let policy = keyspace.bearing.policy(&settings, now_ns, is_awaited);
        PickSettings {
            size_ratio: settings.size_ratio,
            runs_per_level: policy.runs_per_level as usize,
            runs_in_last_level: policy.runs_in_last_level as usize,
            level0_runs: policy.level0_runs as usize,
            table_bytes: settings.table_bytes.min(self.budget.table_bytes_max()),
            base_level_bytes: settings.level0_runs * self.budget.generation_bytes / 2,
            delete_persist_within_s: settings.delete_persist_within,
            now_s: self.env.clock.unix_s(),
        }
    }

    /// How near the roles whose memory background work gives back are to their limits.
    fn memory_pressure(&self) -> u64 {
        let reserve = self.cache.reserve();
        let of = |role, from_part| {
            let limit_bytes = reserve.limit_bytes(role);
            pace::pressure(reserve.bytes(role), limit_bytes / 4 * from_part, limit_bytes)
        };
        // Write buffers are kept whole, a few within the limit: they need an earlier start.
        of(Role::Kept, 2).max(of(Role::Tables, 3))
    }

    /// Measures how far background work is behind, for merges to be paced and writers to be slowed by.
    pub(super) fn measure_pressure(&self) {
        // Held to the end: what was measured last is what counts last.
        let known = self.look_at_trees();
        self.pacer.set_debt(known.debt());
        let generation = self.budget.generation_bytes;
        let sealed = self.writer.sealed_count() as u64 * generation;
        let shared = pace::pressure(sealed, generation / 2, 3 * generation).max(self.memory_pressure());
        self.writer.pressures.set_shared(shared);
    }
}
