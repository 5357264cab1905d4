//! Reads in flight through threads, where the kernel gives no ring.
//!
//! The pool does no other work, and is separate from the store's workers. Its threads take a request, read,
//! and add the result to the completions of its reader. `readers` makes the pool at its first use; it ends
//! with the storage.
//!
//! 1. A request is owned by its reader, by the queue, or by the thread that reads it; never by two of them.
//! 2. A thread drops its reference to the storage before it publishes a completion, so it never holds the
//!    last one.

#![expect(clippy::disallowed_methods, reason = "this is the door: threads of the system come in here")]

use std::collections::VecDeque;
use std::task::{Wake, Waker};
use std::thread::{self, JoinHandle};

use crate::base::sync::{Arc, AtomicBool, Event, Mutex, Ordering};

use super::super::reader::{Completed, Reader, Request, perform};
use super::super::storage::Storage;

/// Threads, each blocked in a read: enough to keep a device busy without a ring.
const THREADS_COUNT: usize = 8;
/// Limit of reads in flight for one reader.
const ROOM: usize = 128;

struct Job {
    request: Request,
    storage: Arc<dyn Storage>,
    landing: Arc<Landing>,
}

/// Completions of one reader.
#[derive(Default)]
struct Landing {
    completed: Mutex<Vec<Completed>>,
    /// Changes when a read completes or the bell is rung.
    arrived: Event,
    is_rung: AtomicBool,
}

impl Wake for Landing {
    fn wake(self: Arc<Landing>) {
        self.is_rung.store(true, Ordering::SeqCst);
        self.arrived.notify();
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<VecDeque<Job>>,
    pushed: Event,
    is_closed: AtomicBool,
}

/// The threads.
pub(super) struct ThreadPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// Starts up to `THREADS_COUNT` threads; `None` if the system starts none.
    pub(super) fn new() -> Option<ThreadPool> {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for _ in 0..THREADS_COUNT {
            let shared = Arc::clone(&shared);
            let named = thread::Builder::new().name("trine read".to_owned());
            match named.spawn(move || work(&shared)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    log::warn!("{} threads to read with: {error}", threads.len());
                    break;
                }
            }
        }
        (!threads.is_empty()).then_some(ThreadPool { shared, threads })
    }

    pub(super) fn reader(&self, storage: Arc<dyn Storage>) -> Box<dyn Reader> {
        let landing = Arc::default();
        Box::new(PoolReader { storage, shared: Arc::clone(&self.shared), landing, in_flight: 0 })
    }
}

#[cfg(all(test, not(loom)))]
impl ThreadPool {
    /// A pool that performs its requests only in `work_off`.
    pub(super) fn without_threads() -> ThreadPool {
        ThreadPool { shared: Arc::default(), threads: Vec::new() }
    }

    /// Performs the queued requests on this thread.
    pub(super) fn work_off(&self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        work(&self.shared);
        self.shared.is_closed.store(false, Ordering::SeqCst);
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.shared.pushed.notify();
        for thread in self.threads.drain(..) {
            // A thread's panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared) {
    loop {
        let seen = shared.pushed.seen();
        let job = shared.queue.lock().pop_front();
        match job {
            Some(Job { request, storage, landing }) => {
                let completed = perform(&*storage, request);
                drop(storage);
                landing.completed.lock().push(completed);
                landing.arrived.notify();
            }
            None if shared.is_closed.load(Ordering::SeqCst) => return,
            None => shared.pushed.block(seen, None),
        }
    }
}

struct PoolReader {
    storage: Arc<dyn Storage>,
    shared: Arc<Shared>,
    landing: Arc<Landing>,
    in_flight: usize,
}

impl Reader for PoolReader {
    fn room(&self) -> usize {
        ROOM - self.in_flight
    }

    fn push(&mut self, request: Request) {
        assert!(self.room() > 0, "a caller asks for room first");
        self.in_flight += 1;
        let (storage, landing) = (Arc::clone(&self.storage), Arc::clone(&self.landing));
        self.shared.queue.lock().push_back(Job { request, storage, landing });
        self.shared.pushed.notify();
    }

    fn reap(&mut self, completed: &mut Vec<Completed>) {
        while self.in_flight > 0 {
            let seen = self.landing.arrived.seen();
            let mut landed = std::mem::take(&mut *self.landing.completed.lock());
            if !landed.is_empty() {
                self.in_flight -= landed.len();
                completed.append(&mut landed);
                return;
            }
            self.landing.arrived.block(seen, None);
        }
    }

    fn reap_or_bell(&mut self, completed: &mut Vec<Completed>, timeout_ns: Option<u64>) {
        for is_last in [false, true] {
            let seen = self.landing.arrived.seen();
            let mut landed = std::mem::take(&mut *self.landing.completed.lock());
            self.in_flight -= landed.len();
            let is_rung = self.landing.is_rung.swap(false, Ordering::SeqCst);
            if is_last || is_rung || !landed.is_empty() || self.in_flight == 0 {
                completed.append(&mut landed);
                return;
            }
            self.landing.arrived.block(seen, timeout_ns);
        }
    }

    fn bell(&mut self) -> Waker {
        Waker::from(Arc::clone(&self.landing))
    }
}

impl Drop for PoolReader {
    fn drop(&mut self) {
        let mut completed = Vec::new();
        // A forked process has none of the threads: waiting would never end.
        while self.in_flight > 0 && !self.storage.is_forked() {
            self.reap(&mut completed);
        }
    }
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads.len())
    }
}
