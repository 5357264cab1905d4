//! The only source of atomics and locks, so that a model checker can replace them. `cargo xtask loom` runs
//! the tests whose names contain `loom_` with [`model`] instead.

#[cfg(all(loom, test))]
mod model;

#[cfg(all(loom, test))]
pub(crate) use model::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Condvar, MutexGuard, OnceLock,
    Tracked, explore, explore_deep,
};
#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::{MutexGuard, OnceLock};

#[cfg(test)]
pub(crate) use std::sync::OnceLock as ProcessOnceLock;
pub(crate) use std::sync::atomic::AtomicU8 as ProcessU8;
/// Shared by the whole process, or in memory shared with a forked one: no model replaces them.
pub(crate) use std::sync::atomic::AtomicU64 as ProcessU64;
pub(crate) use std::sync::atomic::AtomicUsize as ProcessUsize;
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::sync::{Arc, Weak};

#[cfg(all(loom, test))]
use loom::sync::Mutex as Lock;
#[cfg(not(all(loom, test)))]
use std::sync::{Condvar, Mutex as Lock};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::task::{Wake, Waker};
use std::time::Duration;

/// A lock for short sections without I/O. A panic inside a section leaves the data as it was at the panic.
#[derive(Default, Debug)]
pub(crate) struct Mutex<T>(Lock<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(Lock::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A recurring event that can be waited for: a counter of notifications.
///
/// Read [`Event::seen`], check the condition, and if it does not hold, wait until the counter has moved on.
/// No notification between check and wait is lost. Only `io`'s threads block on it; a simulated scheduler
/// runs other work instead.
#[derive(Default, Debug)]
pub(crate) struct Event {
    count: AtomicU64,
    waiting: AtomicU32,
    lock: Lock<()>,
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

    /// Moves the counter and wakes all waiting threads. Cheap when no thread waits.
    pub(crate) fn notify(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.moved.notify_all();
        }
    }

    /// A waker that calls `notify`.
    pub(crate) fn waker(self: &Arc<Event>) -> Waker {
        Waker::from(Arc::clone(self))
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

/// Wakes all wakers. A waker that panics, a fault of its program, does not keep the others from being woken.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
            log::error!("a waker panicked");
        }
    }
}

impl Wake for Event {
    fn wake(self: Arc<Event>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Event>) {
        self.notify();
    }
}

#[cfg(all(loom, test))]
mod loom_tests {
    use super::*;

    /// A thread that checks a condition between `seen` and `block` misses no notification, before and after
    /// it has begun to block.
    #[test]
    fn loom_no_notification_is_lost() {
        explore_deep(|| {
            let (event, is_so) = (Arc::new(Event::new()), Arc::new(AtomicBool::new(false)));
            let waiter = loom::thread::spawn({
                let (event, is_so) = (Arc::clone(&event), Arc::clone(&is_so));
                move || {
                    loop {
                        let seen = event.seen();
                        if is_so.load(Ordering::Acquire) {
                            return;
                        }
                        event.block(seen, None);
                    }
                }
            });
            is_so.store(true, Ordering::Release);
            event.notify();
            waiter.join().expect("it ends");
        });
    }
}

#[cfg(all(test, not(loom)))]
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

    /// A waker that panics does not keep the others from being woken.
    #[test]
    fn a_waker_may_panic() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Panics>) {
                panic!("planned");
            }
        }
        let events: [Arc<Event>; 2] = Default::default();
        let [first, last] = events.each_ref().map(Event::waker);
        wake_all([first, Waker::from(Arc::new(Panics)), last]);
        assert_eq!(events.map(|event| event.seen()), [1, 1]);
    }
}
