//! The workers of a store: jobs that threads, or the simulated scheduler, run in turns.

use std::any::Any;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::base::error::{Error, Result};
use crate::io::env::{Turn, Worker};

use super::Scheduler;
use super::removals::Turns;
use crate::engine::job::Job;

/// A job under way or waiting, turned by a thread or by the simulated scheduler; `of` is the layer it works
/// on.
struct Background<S, O, W> {
    scheduler: S,
    of: O,
    /// The name of the worker's thread.
    name: &'static str,
    /// `None` in a forked process, which leaves the job as it is.
    work: Option<W>,
    /// True during a turn of the job; still true at the drop if that turn panicked.
    is_at_work: bool,
    turns: Turns,
    stop: fn(&mut W, &O),
}

impl<S, O, W> Background<S, O, W>
where
    S: Deref<Target = Scheduler>,
    O: Deref,
    W: Job<O::Target>,
{
    fn new(scheduler: S, of: O, name: &'static str, work: W) -> Background<S, O, W> {
        let turns = if W::HOLDS_TABLES { scheduler.work.removals.add_worker() } else { Turns::default() };
        let stop = |work: &mut W, of: &O| work.stop(of);
        Background { scheduler, of, name, work: Some(work), is_at_work: false, turns, stop }
    }
}

impl<S, O, W> Worker for Background<S, O, W>
where
    S: Deref<Target = Scheduler> + Clone + Send,
    O: Deref + Clone + Send,
    W: Job<O::Target>,
{
    fn turn(&mut self) -> Turn {
        if self.scheduler.is_forked() {
            // A callback has forked and returned: the work under way belongs to the other process.
            std::mem::forget((self.work.take(), self.scheduler.clone(), self.of.clone()));
        }
        let Some(work) = &mut self.work else { return Turn::Done };
        if self.scheduler.work.is_stopped() {
            work.stop(&self.of);
            return Turn::Done;
        }
        self.is_at_work = true;
        self.turns.begin();
        let turn = match catch_unwind(AssertUnwindSafe(|| work.turn(&self.of))) {
            Ok(turn) => turn,
            Err(panic) => {
                self.scheduler.latch_panic(self.name, &*panic);
                // The panic ends the worker's thread, or fails the test of a simulation.
                resume_unwind(panic)
            }
        };
        self.is_at_work = false;
        self.turns.end(&self.scheduler.work.removals);
        // A stop after the first check, and before the turn read the count of its event, would not wake the
        // worker.
        if self.scheduler.work.is_stopped() { Turn::Again } else { turn }
    }
}

impl<S, O, W> Drop for Background<S, O, W> {
    /// A worker that panicked is stopped, so that no caller waits for it.
    fn drop(&mut self) {
        if let Some(work) = self.work.as_mut().filter(|_| self.is_at_work) {
            let stopped = catch_unwind(AssertUnwindSafe(|| (self.stop)(work, &self.of)));
            if stopped.is_err() {
                log::error!("a worker that panicked could not be stopped");
            }
        }
    }
}

impl Scheduler {
    /// Tells every worker to end at its next turn.
    pub(in crate::engine) fn stop_workers(&self) {
        self.work.stop(&self.writer.changed);
        self.blocks.queue.wake();
    }

    /// A background thread has panicked: the store takes no writes any more, and all waiters for background
    /// work are woken to get the error.
    fn latch_panic(&self, thread: &'static str, panic: &(dyn Any + Send)) {
        let error = Error::panicked(thread, panic);
        self.writer.latch(&error);
        self.work.moved.notify();
        self.work.removals.wake();
        log::error!("{error}");
    }
}

/// Has a thread run that work on `of`, for as long as the scheduler's store is open.
pub(in crate::engine) fn spawn<S, O, W>(scheduler: S, of: O, name: &'static str, work: W) -> Result<()>
where
    S: Deref<Target = Scheduler> + Clone + Send + 'static,
    O: Deref + Clone + Send + 'static,
    W: Job<O::Target> + 'static,
{
    let worker = Background::new(scheduler.clone(), of, name, work);
    scheduler.env.threads.spawn(name, Box::new(worker))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sync::{Arc, AtomicBool, Ordering};
    use crate::engine::store::StoreLayer;
    use crate::engine::tests::run;
    use crate::io::sim::SimDisk;

    /// Finds nothing to do; the store is stopped after the worker's check and before the job's own.
    struct StoppedMeanwhile {
        heard: bool,
    }

    impl Job<Scheduler> for StoppedMeanwhile {
        fn turn(&mut self, store: &Scheduler) -> Turn {
            store.stop_workers();
            let event = Arc::clone(&store.work.moved);
            let seen = event.seen();
            Turn::Idle { event, seen, timeout_ns: None }
        }

        fn stop(&mut self, _store: &Scheduler) {
            self.heard = true;
        }
    }

    /// Panics at its work.
    struct Panicking {
        stopped: Arc<AtomicBool>,
    }

    impl Job<Scheduler> for Panicking {
        fn turn(&mut self, _store: &Scheduler) -> Turn {
            panic!("planned");
        }

        fn stop(&mut self, _store: &Scheduler) {
            self.stopped.store(true, Ordering::Relaxed);
            panic!("planned, again");
        }
    }

    /// A worker that panics is stopped and latches the store. A worker dropped at rest is not stopped.
    #[test]
    fn a_panic_stops_its_worker() {
        let (store, _threads) = run::open(&SimDisk::new(1), None, 1, 1 << 20).expect("opens");
        let stopped: Arc<AtomicBool> = Arc::default();
        let held = || StoreLayer::<Scheduler>::new(&store);
        let panicking = || {
            let work = Panicking { stopped: Arc::clone(&stopped) };
            Background::new(held(), held(), "planned", work)
        };
        drop(panicking());
        assert!(!stopped.load(Ordering::Relaxed));
        let mut worker = panicking();
        assert!(catch_unwind(AssertUnwindSafe(move || worker.turn())).is_err());
        assert!(stopped.load(Ordering::Relaxed));
        let told = store.close().expect_err("it is told").to_string();
        assert!(told.contains("thread planned panicked: planned"), "{told}");
    }

    /// A stop that comes during a turn is not missed: the event for which the worker would wait has moved
    /// already, and nothing moves it again.
    #[test]
    fn a_stop_during_a_turn_is_heard() {
        let (store, _threads) = run::open(&SimDisk::new(1), None, 1, 1 << 20).expect("opens");
        let held = || StoreLayer::<Scheduler>::new(&store);
        let mut worker = Background::new(held(), held(), "stopped", StoppedMeanwhile { heard: false });
        assert!(matches!(worker.turn(), Turn::Again), "it must look again");
        assert!(matches!(worker.turn(), Turn::Done));
        assert!(worker.work.as_ref().is_some_and(|work| work.heard));
        store.close().expect("closes");
    }
}
