//! Replacements of atomics and locks while models run: loom's, which try every order of threads and every
//! value that a load may return (B. Norris, B. Demsky, "CDSChecker: Checking Concurrent Data Structures
//! Written with C/C++ Atomics", OOPSLA 2013).
//!
//! loom treats `SeqCst` on an access as `AcqRel`; here such an access is put between fences, which loom
//! models. Timeouts never pass. `Arc` stays that of the standard library. `LOOM_MAX_PREEMPTIONS` bounds how
//! often a thread is preempted where it need not wait; the default is two.

#![expect(unsafe_code, reason = "a mark is shared between threads to find out whether it may be")]

use std::ops::DerefMut;
use std::sync::LockResult;
use std::time::Duration;

use loom::sync::atomic::{Ordering, fence};

pub(crate) use loom::sync::MutexGuard;
pub(crate) use loom::sync::atomic::AtomicPtr;

/// Preemptions of a thread where it need not wait, unless the environment sets their number.
const PREEMPTIONS_MAX: usize = 2;
/// The same limit for models of a few steps.
const PREEMPTIONS_MAX_DEEP: usize = 4;
/// Steps of one run; a model that needs more fails.
const BRANCHES_MAX: usize = 100_000;

/// Runs a model in every order of its threads.
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_to(PREEMPTIONS_MAX, model);
}

/// The same for a model of a few steps.
pub(crate) fn explore_deep(model: impl Fn() + Send + Sync + 'static) {
    explore_to(PREEMPTIONS_MAX_DEEP, model);
}

fn explore_to(preemptions_max: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions_max);
    builder.max_branches = BRANCHES_MAX;
    builder.check(model);
}

fn fenced<R>(order: Ordering, access: impl FnOnce() -> R) -> R {
    if order != Ordering::SeqCst {
        return access();
    }
    fence(Ordering::SeqCst);
    let result = access();
    fence(Ordering::SeqCst);
    result
}

macro_rules! atomic {
    ($name:ident, $of:ty $(, $call:ident)*) => {
        #[derive(Default, Debug)]
        pub(crate) struct $name(loom::sync::atomic::$name);

        impl $name {
            pub(crate) fn new(value: $of) -> $name {
                $name(loom::sync::atomic::$name::new(value))
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $of {
                fenced(order, || self.0.load(weaker(order, Ordering::Acquire)))
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $of, order: Ordering) {
                fenced(order, || self.0.store(value, weaker(order, Ordering::Release)));
            }

            $(#[track_caller]
            pub(crate) fn $call(&self, value: $of, order: Ordering) -> $of {
                fenced(order, || self.0.$call(value, weaker(order, Ordering::AcqRel)))
            })*

        }

        impl From<$of> for $name {
            fn from(value: $of) -> $name {
                $name::new(value)
            }
        }
    };
}

fn weaker(order: Ordering, instead: Ordering) -> Ordering {
    if order == Ordering::SeqCst { instead } else { order }
}

atomic!(AtomicBool, bool, swap);
atomic!(AtomicU8, u8);
atomic!(AtomicU32, u32, swap, fetch_add, fetch_sub);
atomic!(AtomicU64, u64, swap, fetch_add, fetch_sub, fetch_max);
atomic!(AtomicUsize, usize, fetch_add, fetch_sub, fetch_min);

impl AtomicU32 {
    #[track_caller]
    pub(crate) fn compare_exchange(
        &self,
        from: u32,
        to: u32,
        done: Ordering,
        failed: Ordering,
    ) -> Result<u32, u32> {
        self.0.compare_exchange(from, to, done, failed)
    }

    #[track_caller]
    pub(crate) fn fetch_update(
        &self,
        done: Ordering,
        failed: Ordering,
        update: impl FnMut(u32) -> Option<u32>,
    ) -> Result<u32, u32> {
        self.0.fetch_update(done, failed, update)
    }
}

impl AtomicU8 {
    #[track_caller]
    pub(crate) fn compare_exchange(
        &self,
        from: u8,
        to: u8,
        done: Ordering,
        failed: Ordering,
    ) -> Result<u8, u8> {
        let (weak, weak_failed) = (weaker(done, Ordering::AcqRel), weaker(failed, Ordering::Acquire));
        fenced(done, || self.0.compare_exchange(from, to, weak, weak_failed))
    }
}

impl AtomicU64 {
    #[track_caller]
    pub(crate) fn fetch_update(
        &self,
        done: Ordering,
        failed: Ordering,
        update: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        let weak = |order| weaker(order, Ordering::AcqRel);
        fenced(done, || self.0.fetch_update(weak(done), weaker(failed, Ordering::Acquire), update))
    }
}

/// As `std::sync::Condvar`, for the calls in use.
#[derive(Default, Debug)]
pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait_while<'g, T>(
        &self,
        mut guard: MutexGuard<'g, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'g, T>> {
        while condition(guard.deref_mut()) {
            guard = self.0.wait(guard)?;
        }
        Ok(guard)
    }

    pub(crate) fn wait_timeout_while<'g, T>(
        &self,
        guard: MutexGuard<'g, T>,
        _: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'g, T>> {
        self.wait_while(guard, condition)
    }
}

/// As `std::sync::OnceLock`, for the calls in use.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: AtomicBool,
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> OnceLock<T> {
        let copy = OnceLock::new();
        if let Some(value) = self.get() {
            // The copy is new, so its value is not set.
            let _ = copy.set(value.clone());
        }
        copy
    }
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> OnceLock<T> {
        OnceLock { value: std::sync::OnceLock::new(), is_set: AtomicBool::new(false) }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if self.get().is_none() {
            // Another thread may have set the value first.
            let _ = self.set(make());
        }
        self.value.get().expect("it has just been set")
    }
}

/// Stands for bytes that are read and written without atomics. A read that runs beside a write, or is not
/// ordered after it, fails the model.
#[derive(Debug)]
pub(crate) struct Tracked(loom::cell::UnsafeCell<()>);

// SAFETY: it has no contents; loom reports unordered accesses.
unsafe impl Send for Tracked {}
// SAFETY: as above.
unsafe impl Sync for Tracked {}

impl Tracked {
    pub(crate) fn new() -> Tracked {
        Tracked(loom::cell::UnsafeCell::new(()))
    }

    #[track_caller]
    pub(crate) fn read(&self) {
        self.0.with(|_| ());
    }

    #[track_caller]
    pub(crate) fn write(&self) {
        self.0.with_mut(|_| ());
    }
}
