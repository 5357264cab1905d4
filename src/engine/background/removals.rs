//! Looks for obsolete files and turns of workers, counted for callers that wait for a removal (`obsolete`).
//! Any thread.

use crate::base::sync::{Arc, AtomicU64, Event, Mutex, Ordering};

/// Looks for files to remove, and the callers that wait for a removal.
#[derive(Debug, Default)]
pub(in crate::engine) struct Removals {
    /// Moves when a look or a worker's turn has ended while a caller waits, and when no more will end.
    pub(super) moved: Event,
    waiting_count: AtomicU64,
    pub(super) looks_begun: AtomicU64,
    /// The last look that left no hole to punch and no view to be dropped.
    pub(super) look_done: AtomicU64,
    /// Turns of each worker that may hold tables.
    turns: Mutex<Vec<Turns>>,
}

/// Begins and ends of a worker's turns: an odd number while a turn is under way. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Turns(Arc<AtomicU64>);

impl Turns {
    pub(in crate::engine) fn begin(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(in crate::engine) fn end(&self, removals: &Removals) {
        self.0.fetch_add(1, Ordering::SeqCst);
        removals.wake_waiting();
    }

    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A caller waits as long as this lives.
pub(super) struct Waiting<'r>(&'r Removals);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting_count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Removals {
    pub(in crate::engine) fn add_worker(&self) -> Turns {
        let turns = Turns::default();
        self.turns.lock().push(turns.clone());
        turns
    }

    /// Wakes all waiters: no look will come.
    pub(in crate::engine) fn wake(&self) {
        self.moved.notify();
    }

    pub(super) fn wake_waiting(&self) {
        if self.waiting_count.load(Ordering::SeqCst) > 0 {
            self.moved.notify();
        }
    }

    pub(super) fn wait(&self) -> Waiting<'_> {
        self.waiting_count.fetch_add(1, Ordering::SeqCst);
        Waiting(self)
    }

    /// Turns under way, which may hold tables that have no other holder.
    pub(super) fn turns_under_way(&self) -> Vec<(Turns, u64)> {
        let turns = self.turns.lock();
        let counts = turns.iter().map(|turns| (turns.clone(), turns.count()));
        counts.filter(|(_, count)| count % 2 == 1).collect()
    }
}
