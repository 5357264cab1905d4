//! The simulated scheduler: workers take turns on the caller's thread, in an order the seed decides.
//!
//! It is not for use from several threads at once: a worker in another thread's turn would seem missing. A
//! store in the simulator calls it through [`Threads`]. A test may also run turns itself, between operations.
//!
//! 1. Simulated time advances a little at each turn, and jumps to the next timeout when no worker can run.
//! 2. A worker is not in the list during its turn, so a turn may spawn, wait and join.
//! 3. A wait that could never end panics with the names of the waiting workers.

use crate::base::error::Result;
use crate::base::sync::{Arc, AtomicU64, Event, Mutex, Ordering};

use super::super::env::{Clock, Threads, Turn, Worker};
use super::random::SimRng;

/// Limit of turns in one wait, one join or one run until idle.
const TURNS_COUNT_MAX: u64 = 1_000_000;
/// Limit of the simulated time that one turn takes.
const TURN_NS_MAX: u64 = 20_000;

/// Wall-clock time at which simulated time begins.
const STARTED_UNIX_S: u64 = 1_000_000_000;

/// Simulated time: advances only by turns and jumps.
#[derive(Default, Debug)]
pub(crate) struct SimClock(AtomicU64);

impl SimClock {
    /// Advances the time by `ns`.
    pub(crate) fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::SeqCst);
    }

    fn advance_to(&self, ns: u64) {
        self.0.fetch_max(ns, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn unix_s(&self) -> u64 {
        STARTED_UNIX_S + self.now_ns() / 1_000_000_000
    }
}

/// Condition of a worker's next turn.
#[derive(Debug)]
enum Want {
    Turn,
    Event { event: Arc<Event>, seen: u64, deadline_ns: Option<u64> },
}

struct Resting {
    name: &'static str,
    worker: Box<dyn Worker>,
    want: Want,
}

impl Resting {
    fn can_run(&self, now_ns: u64) -> bool {
        match &self.want {
            Want::Turn => true,
            Want::Event { event, seen, deadline_ns } => {
                event.seen() != *seen || deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns)
            }
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        match self.want {
            Want::Turn => None,
            Want::Event { deadline_ns, .. } => deadline_ns,
        }
    }
}

struct ThreadsState {
    rng: SimRng,
    resting: Vec<Resting>,
    turns_count: u64,
}

/// See the module.
pub(crate) struct SimThreads {
    state: Mutex<ThreadsState>,
    clock: Arc<SimClock>,
    /// Turns in progress: other turns run inside a turn that waits.
    depth: AtomicU64,
}

impl SimThreads {
    pub(crate) fn new(seed: u64) -> SimThreads {
        let state = ThreadsState { rng: SimRng::new(seed), resting: Vec::new(), turns_count: 0 };
        SimThreads { state: Mutex::new(state), clock: Arc::default(), depth: AtomicU64::new(0) }
    }

    /// The clock of the workers' timeouts.
    pub(crate) fn clock(&self) -> Arc<SimClock> {
        Arc::clone(&self.clock)
    }

    /// Turns taken so far.
    #[cfg(test)]
    pub(crate) fn turns(&self) -> u64 {
        self.state.lock().turns_count
    }

    /// Runs a turn of one worker that can run. False if none can.
    pub(crate) fn run_one(&self) -> bool {
        let Some(mut chosen) = self.choose() else { return false };
        self.depth.fetch_add(1, Ordering::Relaxed);
        let turn = chosen.worker.turn();
        self.depth.fetch_sub(1, Ordering::Relaxed);
        chosen.want = match turn {
            Turn::Done => return true,
            Turn::Again => Want::Turn,
            Turn::Idle { event, seen, timeout_ns } => Want::Event {
                event,
                seen,
                deadline_ns: timeout_ns.map(|ns| self.clock.now_ns().saturating_add(ns)),
            },
        };
        self.state.lock().resting.push(chosen);
        true
    }

    /// Runs turns until no worker can run, without waiting for timeouts.
    ///
    /// # Panics
    /// If a worker never goes idle.
    pub(crate) fn run_until_idle(&self) {
        for _ in 0..TURNS_COUNT_MAX {
            if !self.run_one() {
                return;
            }
        }
        self.never("run_until_idle", "some worker never rests");
    }

    /// Removes a worker that can run from the list.
    fn choose(&self) -> Option<Resting> {
        let mut state = self.state.lock();
        let now_ns = self.clock.now_ns();
        let able = |resting: &&Resting| resting.can_run(now_ns);
        let able_count = state.resting.iter().filter(able).count();
        if able_count == 0 {
            return None;
        }
        let nth = state.rng.index(able_count);
        let index =
            (0..state.resting.len()).filter(|index| state.resting[*index].can_run(now_ns)).nth(nth)?;
        state.turns_count += 1;
        self.clock.advance(1 + state.rng.below(TURN_NS_MAX));
        Some(state.resting.remove(index))
    }

    /// Jumps to the earliest timeout of the workers and the caller. False if there is none.
    fn leap(&self, deadline_ns: Option<u64>) -> bool {
        let state = self.state.lock();
        let workers_ns = state.resting.iter().filter_map(Resting::deadline_ns).min();
        let earliest_ns = workers_ns.into_iter().chain(deadline_ns).min();
        if let Some(ns) = earliest_ns {
            self.clock.advance_to(ns);
        }
        earliest_ns.is_some()
    }

    fn never(&self, what: &str, why: &str) -> ! {
        let resting: Vec<String> = (self.state.lock().resting.iter())
            .map(|resting| format!("{} wants {:?}", resting.name, resting.want))
            .collect();
        panic!("{what} never ends: {why}. Workers: [{}]", resting.join("; "));
    }
}

impl Threads for SimThreads {
    fn spawn(&self, name: &'static str, worker: Box<dyn Worker>) -> Result<()> {
        self.state.lock().resting.push(Resting { name, worker, want: Want::Turn });
        Ok(())
    }

    fn wait(&self, event: &Event, seen: u64, timeout_ns: Option<u64>) {
        let deadline_ns = timeout_ns.map(|ns| self.clock.now_ns().saturating_add(ns));
        for _ in 0..TURNS_COUNT_MAX {
            let is_over = deadline_ns.is_some_and(|ns| ns <= self.clock.now_ns());
            if event.seen() != seen || is_over {
                return;
            }
            if !self.run_one() && !self.leap(deadline_ns) {
                self.never("wait", "a deadlock: no thread can run and none has a timeout");
            }
        }
        self.never("wait", "too many turns without the event");
    }

    fn is_worker(&self) -> bool {
        self.depth.load(Ordering::Relaxed) > 0
    }

    fn join(&self) {
        if std::thread::panicking() {
            // The test has failed already, and a second panic would hide the cause.
            let dropped = std::mem::take(&mut self.state.lock().resting);
            drop(dropped);
            return;
        }
        for _ in 0..TURNS_COUNT_MAX {
            if self.state.lock().resting.is_empty() {
                return;
            }
            if !self.run_one() && !self.leap(None) {
                self.never("join", "a deadlock: no thread can run and none has a timeout");
            }
        }
        self.never("join", "too many turns without an end");
    }
}

impl std::fmt::Debug for SimThreads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        write!(f, "SimThreads({} workers, {} turns)", state.resting.len(), state.turns_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::sim::SimClock;

    type Trace = Arc<Mutex<Vec<(&'static str, u64)>>>;

    /// Records its turns and their times. It works `again` turns, idles `rests` times with a timeout, then
    /// ends.
    struct Tracer {
        name: &'static str,
        again: u64,
        rests: u64,
        timeout_ns: Option<u64>,
        event: Arc<Event>,
        clock: Arc<SimClock>,
        trace: Trace,
    }

    impl Worker for Tracer {
        fn turn(&mut self) -> Turn {
            self.trace.lock().push((self.name, self.clock.now_ns()));
            if self.again > 0 {
                self.again -= 1;
                return Turn::Again;
            }
            if self.rests == 0 {
                self.event.notify();
                return Turn::Done;
            }
            self.rests -= 1;
            Turn::Idle { event: Arc::new(Event::new()), seen: 0, timeout_ns: self.timeout_ns }
        }
    }

    fn spawn(
        threads: &SimThreads,
        name: &'static str,
        again: u64,
        rests: u64,
        timeout_ns: Option<u64>,
    ) -> (Arc<Event>, Trace) {
        let (event, trace) = (Arc::new(Event::new()), Trace::default());
        let tracer = Tracer {
            name,
            again,
            rests,
            timeout_ns,
            event: Arc::clone(&event),
            clock: threads.clock(),
            trace: Arc::clone(&trace),
        };
        threads.spawn(name, Box::new(tracer)).expect("there is no limit");
        (event, trace)
    }

    /// A wait runs workers, jumps to timeouts, and ends with the event or its own timeout.
    #[test]
    fn waits_run_the_workers() {
        let threads = SimThreads::new(1);
        let (event, trace) = spawn(&threads, "one", 3, 2, Some(1_000_000_000));
        threads.wait(&event, 0, Some(5));
        assert_eq!(event.seen(), 0);
        threads.wait(&event, 0, None);
        assert_eq!((event.seen(), trace.lock().len(), threads.turns()), (1, 6, 6));
        assert!(threads.clock().now_ns() >= 2_000_000_000);
        let before_ns = threads.clock().now_ns();
        threads.wait(&event, 1, Some(77));
        assert_eq!(threads.clock().now_ns(), before_ns + 77);
        threads.join();
    }

    /// The same seed gives the same turns at the same times; other seeds give other orders.
    #[test]
    fn the_seed_decides_the_order() {
        let run = |seed| {
            let threads = SimThreads::new(seed);
            let traces = ["a", "b", "c"].map(|name| spawn(&threads, name, 5, 1, Some(10)).1);
            threads.join();
            traces.map(|trace| trace.lock().clone())
        };
        assert_eq!(run(7), run(7));
        assert!((0..5).any(|seed| run(seed) != run(7)));
    }

    /// Workers that can run do so until none can, without waiting for timeouts.
    #[test]
    fn runs_until_idle() {
        let threads = SimThreads::new(1);
        let (_, trace) = spawn(&threads, "one", 2, 1, Some(1_000_000_000));
        threads.run_until_idle();
        assert_eq!(trace.lock().len(), 3);
        assert!(!threads.run_one());
        threads.clock().advance(1_000_000_000);
        assert!(threads.run_one());
        assert_eq!(format!("{threads:?}"), "SimThreads(0 workers, 4 turns)");
    }

    /// A turn may itself wait for another worker.
    #[test]
    fn turns_may_wait() {
        struct Waiter(Arc<SimThreads>, Arc<Event>);
        impl Worker for Waiter {
            fn turn(&mut self) -> Turn {
                self.0.wait(&self.1, 0, None);
                Turn::Done
            }
        }
        for seed in 0..10 {
            let threads = Arc::new(SimThreads::new(seed));
            let (event, _) = spawn(&threads, "one", 3, 0, None);
            threads
                .spawn("waiter", Box::new(Waiter(Arc::clone(&threads), Arc::clone(&event))))
                .expect("no limit");
            threads.join();
            assert_eq!(event.seen(), 1);
        }
    }

    /// A wait for an event that never comes panics with the names of the waiting workers; so does a join.
    #[test]
    fn deadlocks_are_told() {
        let message = |call: &dyn Fn(&SimThreads)| {
            let threads = SimThreads::new(1);
            spawn(&threads, "sleeper", 0, 1, None);
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call(&threads)));
            *caught.expect_err("a deadlock").downcast::<String>().expect("a message")
        };
        let event = Event::new();
        for told in [message(&|threads| threads.wait(&event, 0, None)), message(&|threads| threads.join())] {
            assert!(told.contains("deadlock") && told.contains("sleeper wants Event"), "{told}");
        }
    }
}
