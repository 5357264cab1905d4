//! Epochs: when memory that readers may still look at can be given back. One collector a store.
//!
//! A store has a collector of its own, so that what one store retires does not wait for another's readers,
//! and a simulated store frees things at the same step in every run of a seed.
//!
//! A pin is bound to its thread and lives inside one call. Pinning takes no lock and writes nothing shared.

#![expect(unsafe_code, reason = "deferred destruction rests on the reader's pin")]

use crossbeam_epoch::{Collector, Guard, LocalHandle};
use std::cell::RefCell;

use super::sync::{Arc, AtomicPtr, AtomicU64, Ordering};

/// A pinned epoch: what was reachable at its start stays in memory until it is dropped.
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
}

/// Stores one thread remembers its handle of; more are re-registered when they come up again.
const HANDLES_COUNT_MAX: usize = 8;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// This thread's handles, last used first.
    static HANDLES: RefCell<Vec<(u64, LocalHandle)>> = const { RefCell::new(Vec::new()) };
}

impl Epoch {
    pub(crate) fn new() -> Epoch {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Epoch { shared: Arc::new(Shared { collector: Collector::new(), id, pending: AtomicU64::new(0) }) }
    }

    /// Pins the calling thread.
    pub(crate) fn pin(&self) -> Pin {
        let remembered = HANDLES.try_with(|handles| {
            let mut handles = handles.borrow_mut();
            match handles.first() {
                Some((id, handle)) if *id == self.shared.id => handle.pin(),
                _ => self.pin_slow(&mut handles),
            }
        });
        // The thread is ending and its handles are gone: register for this one pin.
        remembered.unwrap_or_else(|_| self.shared.collector.register().pin())
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

    /// Runs `call` once no reader pinned now can still be looking. It may run on any thread that pins.
    pub(crate) fn defer(&self, pin: &Pin, call: impl FnOnce() + Send + 'static) {
        self.shared.pending.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        pin.defer(move || {
            call();
            shared.pending.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Tries to run what is deferred; what a pinned reader may still see stays.
    pub(crate) fn collect(&self) {
        // Three epochs must pass before what was just deferred may run.
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

/// A shared value that readers look at under a pin and a publisher replaces whole.
#[derive(Debug)]
pub(crate) struct Published<T: Send + Sync + 'static> {
    current: AtomicPtr<T>,
    epoch: Epoch,
}

impl<T: Send + Sync + 'static> Published<T> {
    pub(crate) fn new(epoch: &Epoch, value: Arc<T>) -> Published<T> {
        Published { current: AtomicPtr::new(Arc::into_raw(value).cast_mut()), epoch: epoch.clone() }
    }

    /// The value, for as long as the pin is held. No lock, no shared write. The pin is of this cell's epoch.
    pub(crate) fn load<'p>(&self, _pin: &'p Pin) -> Loaded<'p, T> {
        // SAFETY: the pointer came from `Arc::into_raw`; `store` gives its count back only through the epoch,
        // so not before this pin ends.
        Loaded(unsafe { &*self.current.load(Ordering::Acquire) })
    }

    /// Replaces the value. Readers pinned before may still see the old one.
    pub(crate) fn store(&self, value: Arc<T>) {
        let pin = self.epoch.pin();
        let old = self.current.swap(Arc::into_raw(value).cast_mut(), Ordering::AcqRel);
        // SAFETY: the cell owned one count of `old`, taken out by the swap.
        let old = unsafe { Arc::from_raw(old) };
        self.epoch.defer(&pin, move || drop(old));
        // What is replaced whole may hold much memory: it must not wait in this thread for more to join it.
        pin.flush();
    }
}

/// A published value under a pin.
#[derive(Debug)]
pub(crate) struct Loaded<'p, T>(&'p T);

impl<T> Clone for Loaded<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Loaded<'_, T> {}

impl<'p, T> Loaded<'p, T> {
    pub(crate) fn get(self) -> &'p T {
        self.0
    }

    /// A counted reference to this very value, for what outlives the pin.
    pub(crate) fn counted(self) -> Arc<T> {
        let current: *const T = self.0;
        // SAFETY: only `Published::load` makes a `Loaded`: the pointer is from `Arc::into_raw`, and alive
        // under the pin that `'p` stands for, so the count is at least 1.
        unsafe {
            Arc::increment_strong_count(current);
            Arc::from_raw(current)
        }
    }
}

impl<T: Send + Sync + 'static> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: `&mut self`: no reader holds a borrow of the cell, and it owns one count.
        unsafe { drop(Arc::from_raw(self.current.load(Ordering::Acquire))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replaced value lives while a reader is pinned, and is dropped soon after.
    #[test]
    fn replaced_values_outlive_pins_and_no_more() {
        let epoch = Epoch::new();
        let first = Arc::new(1);
        let cell = Published::new(&epoch, Arc::clone(&first));
        let pin = epoch.pin();
        let seen = cell.load(&pin).get();
        let held = cell.load(&pin).counted();
        cell.store(Arc::new(2));
        epoch.collect();
        assert_eq!((*seen, *held, Arc::strong_count(&first)), (1, 1, 3));
        drop((pin, held));
        epoch.collect();
        assert_eq!(epoch.pending(), 0);
        assert_eq!(Arc::strong_count(&first), 1);
        assert_eq!(*cell.load(&epoch.pin()).get(), 2);
    }

    /// More stores than a thread remembers handles of still pin.
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
