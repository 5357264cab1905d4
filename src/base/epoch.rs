//! Epochs: they decide when memory that readers may still use can be freed. One collector a store.
//!
//! A store has its own collector. So memory that one store retires does not wait for another store's readers,
//! and a simulated store frees memory at the same step in every run of a seed.
//!
//! A pin is bound to its thread and lives inside one call. Pinning takes no lock and writes nothing shared.

#![expect(unsafe_code, reason = "deferred destruction rests on the reader's pin")]

#[cfg(not(all(loom, test)))]
mod collector;
#[cfg(all(loom, test))]
mod model;

use super::sync::{Arc, AtomicPtr, Ordering};

#[cfg(not(all(loom, test)))]
pub(crate) use collector::{Epoch, Pin};
#[cfg(all(loom, test))]
pub(crate) use model::{ModelEpoch as Epoch, ModelPin as Pin};

/// A shared value that readers use under a pin and a publisher replaces whole.
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
        // SAFETY: the pointer came from `Arc::into_raw`. `store` gives its count back only through the epoch,
        // so not before this pin ends.
        Loaded(unsafe { &*self.current.load(Ordering::Acquire) })
    }

    /// Replaces the value. Readers pinned before may still see the old one.
    pub(crate) fn store(&self, value: Arc<T>) {
        let pin = self.epoch.pin();
        let old = self.current.swap(Arc::into_raw(value).cast_mut(), Ordering::AcqRel);
        // SAFETY: the cell owned one count of `old`, taken out by the swap.
        let old = unsafe { Arc::from_raw(old) };
        self.epoch.retire(&pin, old);
        // A replaced value may hold much memory: it must not wait in this thread for others to join it.
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

    /// A counted reference to this very value, for a holder that outlives the pin.
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

#[cfg(all(loom, test))]
mod loom_tests {
    use super::*;
    use crate::base::sync::{Tracked, explore};

    /// A published value. Its bytes are written without atomics, so that loom sees when its memory is freed.
    struct Payload {
        value: u64,
        bytes: Tracked,
    }

    impl Payload {
        fn new(value: u64) -> Arc<Payload> {
            let bytes = Tracked::new();
            bytes.write();
            Arc::new(Payload { value, bytes })
        }
    }

    impl Drop for Payload {
        fn drop(&mut self) {
            self.bytes.write();
        }
    }

    /// A reader sees a published value whole. The value stays until the pin ends, while it is replaced twice;
    /// a counted value stays longer.
    #[test]
    fn loom_published_values_are_whole_and_stay() {
        explore(|| {
            let epoch = Epoch::new();
            let cell = Arc::new(Published::new(&epoch, Payload::new(0)));
            let reader = loom::thread::spawn({
                let (cell, epoch) = (Arc::clone(&cell), epoch.clone());
                move || {
                    let pin = epoch.pin();
                    let seen = cell.load(&pin).get();
                    seen.bytes.read();
                    let first = seen.value;
                    let counted = cell.load(&pin).counted();
                    seen.bytes.read();
                    drop(pin);
                    // Its bytes are not read: loom does not see the order that `Arc` counts establish.
                    assert!(first <= counted.value, "values come in order");
                }
            });
            cell.store(Payload::new(1));
            cell.store(Payload::new(2));
            reader.join().expect("it ends");
            epoch.collect();
            assert_eq!(epoch.pending(), 0);
        });
    }
}

#[cfg(all(test, not(loom)))]
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
}
