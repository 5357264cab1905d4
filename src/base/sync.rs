//! The door to atomics and locks: everything else takes them from here, so that a model checker can take
//! their place.

pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
pub(crate) use std::sync::{Arc, MutexGuard, OnceLock, Weak};

use std::sync::{Condvar, PoisonError};
use std::time::Duration;

/// A lock for short sections without I/O. A panic inside one leaves the data as it was then.
#[derive(Default, Debug)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that happens again and again and can be waited for: a counter of notifications.
///
/// Read [`Event::seen`], check the condition, and if it does not hold, wait until the counter has moved on:
/// no notification between check and wait is lost. Only `io`'s threads block on it; a simulated scheduler
/// runs other work instead.
#[derive(Default, Debug)]
pub(crate) struct Event {
    count: AtomicU64,
    waiting: AtomicU32,
    lock: std::sync::Mutex<()>,
    moved: Condvar,
}

impl Event {
    pub(crate) fn new() -> Event {
        Event::default()
    }

    /// The counter now.
    pub(crate) fn seen(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Moves the counter and wakes whoever waits. Cheap when nobody does.
    pub(crate) fn notify(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.moved.notify_all();
        }
    }

    /// Blocks the thread until the counter differs from `seen`, or for `timeout_ns`. For `io`'s threads only.
    pub(crate) fn block(&self, seen: u64, timeout_ns: Option<u64>) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let unmoved = |_: &mut ()| self.seen() == seen;
        match timeout_ns {
            None => drop(self.moved.wait_while(guard, unmoved).unwrap_or_else(PoisonError::into_inner)),
            Some(ns) => {
                let timeout = Duration::from_nanos(ns);
                drop(
                    self.moved
                        .wait_timeout_while(guard, timeout, unmoved)
                        .unwrap_or_else(PoisonError::into_inner),
                );
            }
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A notification between `seen` and `block` is not lost, and one from another thread ends a block.
    #[test]
    fn no_notification_is_lost() {
        let event = Event::new();
        let seen = event.seen();
        event.notify();
        event.block(seen, None);
        let seen = event.seen();
        std::thread::scope(|scope| {
            scope.spawn(|| event.notify());
            event.block(seen, None);
        });
        event.block(event.seen(), Some(1));
    }
}
