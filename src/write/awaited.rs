//! Signals between the flush worker, writers and snapshots, while no write buffer can be made because
//! snapshots keep too much memory. When a snapshot is released, the refusal of writes is outdated.
//!
//! Any thread may call. The state is not written unless the flush worker waits.

use crate::base::sync::{Arc, AtomicU8, Event, Ordering};

const NOBODY_WAITS: u8 = 0;
const AWAITED: u8 = 1;
const GIVEN: u8 = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct AwaitedMemory {
    state: AtomicU8,
    /// Event on which the flush worker waits.
    changed: Arc<Event>,
}

impl AwaitedMemory {
    pub(crate) fn new(changed: &Arc<Event>) -> Arc<AwaitedMemory> {
        Arc::new(AwaitedMemory { state: AtomicU8::new(NOBODY_WAITS), changed: Arc::clone(changed) })
    }

    /// The flush worker now checks the memory kept by snapshots. Memory released after this call is reported.
    pub(crate) fn begin(&self) {
        self.state.store(AWAITED, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        self.state.store(NOBODY_WAITS, Ordering::SeqCst);
    }

    /// Notes that memory which may have been kept was released.
    pub(crate) fn give(&self) {
        let given = self.state.compare_exchange(AWAITED, GIVEN, Ordering::SeqCst, Ordering::SeqCst);
        if given.is_ok() {
            self.changed.notify();
        }
    }

    /// Whether memory was released since the flush worker's check.
    pub(crate) fn is_given(&self) -> bool {
        self.state.load(Ordering::SeqCst) == GIVEN
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Only memory released after the worker's check is reported, and only once.
    #[test]
    fn memory_released_while_awaited_is_reported() {
        let changed = Arc::new(Event::new());
        let awaited = AwaitedMemory::new(&changed);
        awaited.give();
        assert_eq!((awaited.is_given(), changed.seen()), (false, 0));
        awaited.begin();
        awaited.give();
        awaited.give();
        assert_eq!((awaited.is_given(), changed.seen()), (true, 1));
        awaited.begin();
        assert!(!awaited.is_given());
        awaited.end();
        awaited.give();
        assert_eq!((awaited.is_given(), changed.seen()), (false, 1));
    }
}
