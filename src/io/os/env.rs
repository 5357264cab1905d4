//! Threads, clock and randomness of the operating system.
//!
//! Nothing here depends on the store: a thread drives any [`Worker`]. Any thread may call.
//!
//! 1. A panic of a worker ends only its own thread. The worker is dropped, and its destructor notifies
//!    waiters.
//! 2. `join` returns when all workers, except the calling one, are dropped.

#![expect(
    clippy::disallowed_methods,
    reason = "this is the door: clock and threads of the system come in here"
)]

use std::cell::Cell;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, Event, Mutex, Ordering, ProcessU64};

use super::super::env::{Clock, Random, Threads, Turn, Worker};

/// One system thread per worker.
#[derive(Debug)]
pub(crate) struct OsThreads {
    /// Distinguishes these threads from those of other stores.
    number: u64,
    started: Mutex<Vec<JoinHandle<()>>>,
}

impl OsThreads {
    pub(crate) fn new() -> OsThreads {
        static NEXT: ProcessU64 = ProcessU64::new(1);
        OsThreads { number: NEXT.fetch_add(1, Ordering::Relaxed), started: Mutex::default() }
    }
}

thread_local! {
    /// Number of the `OsThreads` that started this thread; 0 for none.
    static WORKER_OF: Cell<u64> = const { Cell::new(0) };
}

fn drive(mut worker: Box<dyn Worker>) {
    loop {
        match worker.turn() {
            Turn::Again => {}
            Turn::Idle { event, seen, timeout_ns } => event.block(seen, timeout_ns),
            Turn::Done => return,
        }
    }
}

impl Threads for OsThreads {
    fn spawn(&self, name: &'static str, worker: Box<dyn Worker>) -> Result<()> {
        let number = self.number;
        let run = move || {
            WORKER_OF.set(number);
            drive(worker);
        };
        let named = thread::Builder::new().name(name.to_owned());
        let started = named.spawn(run).map_err(|error| Error::Io {
            operation: "start the thread",
            file: name.to_owned(),
            offset: 0,
            source: Arc::new(error),
        })?;
        self.started.lock().push(started);
        Ok(())
    }

    fn wait(&self, event: &Event, seen: u64, timeout_ns: Option<u64>) {
        event.block(seen, timeout_ns);
    }

    fn is_worker(&self) -> bool {
        // A thread whose locals are gone is ending, and drives no worker.
        WORKER_OF.try_with(|of| of.get() == self.number).unwrap_or(false)
    }

    fn join(&self) {
        // Joins one at a time and never under the lock: a worker may start another while it is joined.
        loop {
            let Some(handle) = self.started.lock().pop() else { break };
            if handle.thread().id() == thread::current().id() {
                continue;
            }
            // The worker reported its panic when it happened.
            let _ = handle.join();
        }
    }
}

/// The system's clocks.
#[derive(Debug)]
pub(crate) struct OsClock {
    start: Instant,
}

impl OsClock {
    pub(crate) fn new() -> OsClock {
        OsClock { start: Instant::now() }
    }
}

impl Clock for OsClock {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn unix_s(&self) -> u64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

/// The system's random generator.
#[derive(Debug)]
pub(crate) struct OsRandom(());

impl OsRandom {
    /// Tries the generator once: a working generator does not fail later.
    ///
    /// # Errors
    /// `Io` if the system's generator fails.
    pub(crate) fn new() -> Result<OsRandom> {
        fill_random(&mut [0; 16]).map_err(|errno| Error::Io {
            operation: "read",
            file: "the system's random generator".to_owned(),
            offset: 0,
            source: Arc::new(io::Error::from(errno)),
        })?;
        Ok(OsRandom(()))
    }
}

impl Random for OsRandom {
    fn fill(&self, bytes: &mut [u8]) {
        fill_random(bytes).expect("the system gave randomness when the store was opened");
    }
}

fn fill_random(bytes: &mut [u8]) -> rustix::io::Result<()> {
    #[cfg(target_os = "linux")]
    if fill_by_call(bytes).is_ok() {
        return Ok(());
    }
    fill_by_device(bytes)
}

#[cfg(target_os = "linux")]
fn fill_by_call(mut bytes: &mut [u8]) -> rustix::io::Result<()> {
    use rustix::rand::{GetRandomFlags, getrandom};
    while !bytes.is_empty() {
        let got = rustix::io::retry_on_intr(|| getrandom(&mut *bytes, GetRandomFlags::empty()))?;
        bytes = &mut bytes[got..];
    }
    Ok(())
}

/// For systems and sandboxes without the `getrandom` call.
fn fill_by_device(mut bytes: &mut [u8]) -> rustix::io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    let device = rustix::fs::open("/dev/urandom", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    while !bytes.is_empty() {
        let got = rustix::io::retry_on_intr(|| rustix::io::read(&device, &mut *bytes))?;
        if got == 0 {
            return Err(rustix::io::Errno::IO);
        }
        bytes = &mut bytes[got..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sync::{AtomicU64, Ordering};

    /// Takes `again` turns at once, then one for each notification of `work`, and ends after `turns`
    /// notifications.
    struct Counter {
        work: Arc<Event>,
        done: Arc<Event>,
        again: u64,
        turns: u64,
        is_dropped: Arc<AtomicU64>,
    }

    impl Worker for Counter {
        fn turn(&mut self) -> Turn {
            if self.again > 0 {
                self.again -= 1;
                return Turn::Again;
            }
            let seen = self.work.seen();
            if seen >= self.turns {
                self.done.notify();
                return Turn::Done;
            }
            Turn::Idle { event: Arc::clone(&self.work), seen, timeout_ns: None }
        }
    }

    impl Drop for Counter {
        fn drop(&mut self) {
            self.is_dropped.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Panicker(Arc<Event>);

    impl Drop for Panicker {
        fn drop(&mut self) {
            self.0.notify();
        }
    }

    impl Worker for Panicker {
        fn turn(&mut self) -> Turn {
            panic!("told to");
        }
    }

    /// Workers take turns on threads, sleep until notified, and are dropped when `join` returns.
    #[test]
    fn workers_run_sleep_and_are_joined() {
        let threads = OsThreads::new();
        let (work, done) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let is_dropped = Arc::new(AtomicU64::new(0));
        for again in [0, 3] {
            let (work, done, is_dropped) = (Arc::clone(&work), Arc::clone(&done), Arc::clone(&is_dropped));
            let counter = Counter { work, done, again, turns: 2, is_dropped };
            threads.spawn("counter", Box::new(counter)).expect("a thread");
        }
        work.notify();
        assert_eq!(done.seen(), 0);
        work.notify();
        for seen in 0..2 {
            threads.wait(&done, seen, None);
        }
        threads.join();
        assert_eq!(is_dropped.load(Ordering::SeqCst), 2);
        threads.wait(&work, work.seen(), Some(1));
    }

    /// A worker that panics is dropped, which notifies its waiters. No other thread ends.
    #[test]
    fn a_panic_ends_its_own_thread() {
        let threads = OsThreads::new();
        let dropped = Arc::new(Event::new());
        threads.spawn("panicker", Box::new(Panicker(Arc::clone(&dropped)))).expect("a thread");
        threads.wait(&dropped, 0, None);
        threads.join();
        assert_eq!(dropped.seen(), 1);
    }

    /// The clock does not go back. Randomness differs from call to call, from the call and from the device.
    #[test]
    fn clock_and_randomness() {
        let clock = OsClock::new();
        let before = clock.now_ns();
        assert!(clock.now_ns() >= before);
        let random = OsRandom::new().expect("this system has randomness");
        assert_ne!(random.u64(), random.u64());
        let (mut one, mut two) = ([0; 300], [0; 300]);
        random.fill(&mut one);
        fill_by_device(&mut two).expect("this system has the device");
        assert_ne!(one, two);
        assert!(one.iter().any(|byte| *byte != 0) && two.iter().any(|byte| *byte != 0));
    }
}
