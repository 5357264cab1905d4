//! Searches several arrays at once for one get.
//!
//! Drizard, section 2.6, starts a thread for each component and joins them from the newest on. The threads
//! share the number of the newest component that has the key, and each reads it every few steps. This module
//! keeps both rules in a sound form. A fixed number of searches are in flight. The newest search that finds
//! the key decides the answer, once all newer ones have not found it. The remaining searches run to their
//! end, or stop when they read the shared number. Searches run on permanent workers; a get never starts a
//! thread.
//!
//! Invariants: 1. an answer never depends on the order in which searches end; 2. an error of a search that
//! does not decide the answer is ignored.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, AtomicBool, AtomicUsize, Event, Mutex, Ordering};
use crate::io::env::{Threads, Turn, Worker};

use super::array::{Array, ArrayItem, Searched, Want};
use super::pages::{Buffer, PageReader};

/// Name of each worker thread.
const THREAD: &str = "trine-lab";

/// The searches of one get.
struct Lookup {
    key: Vec<u8>,
    want: Want,
    poll_steps: u64,
    /// Index of the newest array known to have the key.
    newest_found: AtomicUsize,
    answers: Mutex<Vec<Option<Result<Searched>>>>,
    answered: Event,
}

struct Job {
    lookup: Arc<Lookup>,
    index: usize,
    array: Arc<Array>,
}

impl Job {
    fn run(self, reader: &PageReader) {
        let lookup = &self.lookup;
        let is_over = || lookup.newest_found.load(Ordering::Acquire) < self.index;
        let mut steps = 0;
        let mut stop = || {
            steps += 1;
            lookup.poll_steps > 0 && steps % lookup.poll_steps == 0 && is_over()
        };
        let search = || self.array.search(reader, &lookup.key, lookup.want, &mut Buffer::pages(1), &mut stop);
        // The caller waits for each answer, so a panic becomes one.
        let answer = catch_unwind(AssertUnwindSafe(search))
            .unwrap_or_else(|panic| Err(Error::panicked(THREAD, &*panic)));
        if matches!(answer, Ok(Searched::Found(_))) {
            lookup.newest_found.fetch_min(self.index, Ordering::AcqRel);
        }
        lookup.answers.lock()[self.index] = Some(answer);
        lookup.answered.notify();
    }
}

/// The queue of jobs, shared by the workers.
struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    is_closing: AtomicBool,
    changed: Arc<Event>,
    reader: Arc<PageReader>,
}

struct Searcher(Arc<Queue>);

impl Worker for Searcher {
    fn turn(&mut self) -> Turn {
        let queue = &self.0;
        let seen = queue.changed.seen();
        let job = queue.jobs.lock().pop_front();
        if let Some(job) = job {
            job.run(&queue.reader);
            return Turn::Again;
        }
        if queue.is_closing.load(Ordering::Acquire) {
            return Turn::Done;
        }
        Turn::Idle { event: Arc::clone(&queue.changed), seen, timeout_ns: None }
    }
}

/// A pool of search workers.
pub(super) struct SearchPool {
    queue: Arc<Queue>,
    threads: Arc<dyn Threads>,
    width: usize,
    poll_steps: u64,
}

impl std::fmt::Debug for SearchPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} searches at a time)", self.width)
    }
}

impl SearchPool {
    /// Starts `width` workers.
    ///
    /// # Errors
    /// `Io` if the system cannot start a thread.
    pub(super) fn start(
        threads: Arc<dyn Threads>,
        reader: Arc<PageReader>,
        width: usize,
        poll_steps: u64,
    ) -> Result<SearchPool> {
        let (jobs, is_closing) = (Mutex::default(), AtomicBool::new(false));
        let queue = Arc::new(Queue { jobs, is_closing, changed: Arc::new(Event::new()), reader });
        let pool = SearchPool { queue, threads, width, poll_steps };
        for _ in 0..width {
            pool.threads.spawn(THREAD, Box::new(Searcher(Arc::clone(&pool.queue))))?;
        }
        Ok(pool)
    }

    /// Returns the newest item of the key in `arrays`, which are given newest first.
    ///
    /// # Errors
    /// The error of the search that decides.
    pub(super) fn search(&self, arrays: &[Arc<Array>], key: &[u8], want: Want) -> Result<Option<ArrayItem>> {
        let lookup = Arc::new(Lookup {
            key: key.to_vec(),
            want,
            poll_steps: self.poll_steps,
            newest_found: AtomicUsize::new(usize::MAX),
            answers: Mutex::new(arrays.iter().map(|_| None).collect()),
            answered: Event::new(),
        });
        let (mut front, mut issued) = (0, 0);
        while front < arrays.len() {
            while issued < arrays.len().min(front + self.width) {
                let job =
                    Job { lookup: Arc::clone(&lookup), index: issued, array: Arc::clone(&arrays[issued]) };
                self.queue.jobs.lock().push_back(job);
                self.queue.changed.notify();
                issued += 1;
            }
            let seen = lookup.answered.seen();
            let answer = lookup.answers.lock()[front].take();
            match answer {
                None => self.threads.wait(&lookup.answered, seen, None),
                Some(Ok(Searched::Found(found))) => {
                    // Tells the searches in flight to stop.
                    lookup.newest_found.fetch_min(front, Ordering::AcqRel);
                    return Ok(Some(found));
                }
                Some(Ok(Searched::Missing)) => front += 1,
                Some(Ok(Searched::Stopped)) => unreachable!("only a decided search is stopped"),
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl Drop for SearchPool {
    fn drop(&mut self) {
        self.queue.is_closing.store(true, Ordering::Release);
        self.queue.changed.notify();
        self.threads.join();
    }
}
