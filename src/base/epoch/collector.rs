//! The collector: one of crossbeam's for each store, with handles cached by each thread.

use crossbeam_epoch::{Collector, Guard, LocalHandle};
use std::cell::RefCell;

use crate::base::sync::{Arc, AtomicU64, Ordering, ProcessU64};

/// A pinned epoch: memory reachable at its start is kept until the pin is dropped.
pub(crate) type Pin = Guard;

/// A store's collector; clones are the same collector.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    collector: Collector,
    id: u64,
    /// Deferred calls not run yet.
    pending: AtomicU64,
    /// Replaced values not dropped yet.
    retired: AtomicU64,
}

/// Number of stores whose handle one thread caches; further stores are registered anew when they are used
/// again.
const HANDLES_COUNT_MAX: usize = 8;

static NEXT_ID: ProcessU64 = ProcessU64::new(1);

thread_local! {
    /// This thread's handles, last used first.
    static HANDLES: RefCell<Vec<(u64, LocalHandle)>> = const { RefCell::new(Vec::new()) };
}

impl Epoch {
    pub(crate) fn new() -> Epoch {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let (pending, retired) = (AtomicU64::new(0), AtomicU64::new(0));
        Epoch { shared: Arc::new(Shared { collector: Collector::new(), id, pending, retired }) }
    }

    /// Pins the calling thread.
    pub(crate) fn pin(&self) -> Pin {
        let remembered = HANDLES.try_with(|handles| {
            let mut handles = handles.try_borrow_mut().ok()?;
            Some(match handles.first() {
                Some((id, handle)) if *id == self.shared.id => handle.pin(),
                _ => self.pin_slow(&mut handles),
            })
        });
        // The thread is ending and its handles are gone, or a deferred call, run within a pin, takes a pin of
        // its own: register for this one pin.
        remembered.ok().flatten().unwrap_or_else(|| self.shared.collector.register().pin())
    }

    #[cold]
    fn pin_slow(&self, handles: &mut Vec<(u64, LocalHandle)>) -> Pin {
        match handles.iter().position(|(id, _)| *id == self.shared.id) {
            Some(index) => handles.swap(0, index),
            None => {
                handles.truncate(HANDLES_COUNT_MAX - 1);
                handles.insert(0, (self.shared.id, self.shared.collector.register()));
            }
        }
        handles[0].1.pin()
    }

    /// Runs `call` once all readers pinned now have ended their pins. It may run on any thread that pins.
    pub(crate) fn defer(&self, pin: &Pin, call: impl FnOnce() + Send + 'static) {
        self.shared.pending.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        pin.defer(move || {
            call();
            shared.pending.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Drops a replaced value once all readers pinned now have ended their pins.
    pub(crate) fn retire(&self, pin: &Pin, value: impl Send + 'static) {
        self.shared.retired.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        self.defer(pin, move || {
            drop(value);
            shared.retired.fetch_sub(1, Ordering::Release);
        });
    }

    /// Whether a replaced value is not dropped yet. Once this returns false, the effects of all drops are
    /// visible.
    pub(crate) fn has_retired(&self) -> bool {
        self.shared.retired.load(Ordering::Acquire) > 0
    }

    /// Tries to run deferred calls. Values that a pinned reader may still see stay.
    pub(crate) fn collect(&self) {
        // Three epochs must pass before a call deferred just now may run.
        for _ in 0..4 {
            if self.shared.pending.load(Ordering::Relaxed) == 0 {
                return;
            }
            self.pin().flush();
        }
    }

    /// Deferred calls not run yet.
    #[cfg(test)]
    pub(crate) fn pending(&self) -> u64 {
        self.shared.pending.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A thread can pin more stores than it caches handles for.
    #[test]
    fn many_epochs_on_one_thread() {
        let epochs: Vec<Epoch> = (0..3 * HANDLES_COUNT_MAX).map(|_| Epoch::new()).collect();
        for _ in 0..2 {
            for epoch in &epochs {
                let pin = epoch.pin();
                epoch.defer(&pin, || ());
                drop(pin);
                epoch.collect();
                assert_eq!(epoch.pending(), 0);
            }
        }
    }
}
