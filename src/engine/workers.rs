//! The workers of a store: what threads, or the simulated scheduler, turn.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::io::env::{Turn, Worker};

use super::flush_work::FlushWork;
use super::merge_work::MergeWork;
use super::obsolete::Turns;
use super::quiet::Whose;
use super::reads::ReadsWork;
use super::work::Job;
use super::{Mode, Store};

/// Work under way or waiting, turned by a thread or by the simulated scheduler.
struct Background<W: Job> {
    store: Arc<Store>,
    /// Of its thread.
    name: &'static str,
    /// `None` in a forked process, which leaves it as it is.
    work: Option<W>,
    /// Within its work: still so when it is dropped if that panicked.
    is_at_work: bool,
    turns: Turns,
}

impl<W: Job> Background<W> {
    fn new(store: &Arc<Store>, name: &'static str, work: W) -> Background<W> {
        let turns = if W::HOLDS_TABLES { store.work.removals.add_worker() } else { Turns::default() };
        Background { store: Arc::clone(store), name, work: Some(work), is_at_work: false, turns }
    }
}

impl<W: Job> Worker for Background<W> {
    fn turn(&mut self) -> Turn {
        if self.store.is_forked() {
            // A callback has forked and returned: what is under way is the other process's.
            std::mem::forget((self.work.take(), Arc::clone(&self.store)));
        }
        let Some(work) = &mut self.work else { return Turn::Done };
        if self.store.work.is_stopped() {
            work.stop(&self.store);
            return Turn::Done;
        }
        self.is_at_work = true;
        self.turns.begin();
        let turn = match catch_unwind(AssertUnwindSafe(|| work.turn(&self.store))) {
            Ok(turn) => turn,
            Err(panic) => {
                self.store.latch_panic(self.name, &*panic);
                // Its thread ends by it, and a simulation's test fails.
                resume_unwind(panic)
            }
        };
        self.is_at_work = false;
        self.turns.end(&self.store.work.removals);
        // A stop between the look above and the turn's own look at its event would not wake it any more.
        if self.store.work.is_stopped() { Turn::Again } else { turn }
    }
}

impl<W: Job> Drop for Background<W> {
    /// One that panicked leaves nobody waiting for it.
    fn drop(&mut self) {
        if let Some(work) = self.work.as_mut().filter(|_| self.is_at_work) {
            let stopped = catch_unwind(AssertUnwindSafe(|| work.stop(&self.store)));
            if stopped.is_err() {
                log::error!("a worker that panicked could not be stopped");
            }
        }
    }
}

impl Store {
    /// A background thread has panicked: the store takes no writes any more, and all that wait for background
    /// work are told why.
    fn latch_panic(&self, thread: &'static str, panic: &(dyn Any + Send)) {
        let error = Error::panicked(thread, panic);
        self.writer.latch(&error);
        self.work.moved.notify();
        self.work.removals.wake();
        log::error!("{error}");
    }
}

pub(super) fn spawn<W: Job + 'static>(store: &Arc<Store>, name: &'static str, work: W) -> Result<()> {
    store.env.threads.spawn(name, Box::new(Background::new(store, name, work)))
}

/// Starts the workers of a store that may write.
pub(super) fn start(store: &Arc<Store>) -> Result<()> {
    store.limit_reads();
    spawn(store, "trine-reads", ReadsWork::default())?;
    if store.mode == Mode::ReadOnly {
        store.quiet.lend_for_good(Whose::Merges);
        if store.is_in_one_generation() {
            store.quiet.lend_for_good(Whose::Flushes);
        }
        return Ok(());
    }
    store.work.merge_queue.note_all(store.trees());
    store.measure_pressure();
    spawn(store, "trine-flush", FlushWork::default())?;
    for _ in 0..store.settings.background_threads.saturating_sub(1).max(1) {
        spawn(store, "trine-merge", MergeWork::default())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sync::{AtomicBool, Ordering};
    use crate::engine::tests::run;
    use crate::io::sim::SimDisk;

    /// Finds nothing to do; the store is told to stop after the worker looked and before the job does.
    struct StoppedMeanwhile {
        heard: bool,
    }

    impl Job for StoppedMeanwhile {
        fn turn(&mut self, store: &Arc<Store>) -> Turn {
            store.work.stop(&store.writer.changed);
            let event = Arc::clone(&store.work.moved);
            let seen = event.seen();
            Turn::Idle { event, seen, timeout_ns: None }
        }

        fn stop(&mut self, _store: &Store) {
            self.heard = true;
        }
    }

    /// Panics at its work.
    struct Panicking {
        stopped: Arc<AtomicBool>,
    }

    impl Job for Panicking {
        fn turn(&mut self, _store: &Arc<Store>) -> Turn {
            panic!("planned");
        }

        fn stop(&mut self, _store: &Store) {
            self.stopped.store(true, Ordering::Relaxed);
            panic!("planned, again");
        }
    }

    /// A worker that panics is stopped and latches the store; one that is dropped at rest is not stopped.
    #[test]
    fn a_panic_stops_its_worker() {
        let (store, _threads) = run::open(&SimDisk::new(1), None, 1, 1 << 20).expect("opens");
        let stopped: Arc<AtomicBool> = Arc::default();
        let panicking = || Background::new(&store, "planned", Panicking { stopped: Arc::clone(&stopped) });
        drop(panicking());
        assert!(!stopped.load(Ordering::Relaxed));
        let mut worker = panicking();
        assert!(catch_unwind(AssertUnwindSafe(move || worker.turn())).is_err());
        assert!(stopped.load(Ordering::Relaxed));
        let told = store.close().expect_err("it is told").to_string();
        assert!(told.contains("thread planned panicked: planned"), "{told}");
    }

    /// A stop that comes while a worker looks for work is not slept through: what the worker would wait for
    /// has moved already, and nothing moves it again.
    #[test]
    fn a_stop_during_a_turn_is_heard() {
        let (store, _threads) = run::open(&SimDisk::new(1), None, 1, 1 << 20).expect("opens");
        let mut worker = Background::new(&store, "stopped", StoppedMeanwhile { heard: false });
        assert!(matches!(worker.turn(), Turn::Again), "it must look again");
        assert!(matches!(worker.turn(), Turn::Done));
        assert!(worker.work.as_ref().is_some_and(|work| work.heard));
        store.close().expect("closes");
    }
}
