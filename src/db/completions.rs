//! Completion queues of gets, for callers without futures.
//!
//! Each queued get has a callback that puts the answer into the queue. This module reads nothing itself.

use std::collections::VecDeque;
use std::fmt;

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, Event, Mutex};
use crate::engine::reads::callback;

use super::Value;
use super::asynchronous::GetAsync;
use super::handle::Handle;

/// A completion queue: answers of numbered gets, in the order of their completion. It is for callers with an
/// event loop of their own and no futures.
///
/// Clones share one queue; threads may share it.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// let queue = trine::Completions::default();
/// users.get_queued(b"ann", 7, &queue);
/// users.get_queued(b"bob", 8, &queue);
/// let mut answers = Vec::new();
/// while queue.wait(&mut answers) {}
/// answers.sort_by_key(|answer| answer.number);
/// assert_eq!(answers[0].result.as_ref().unwrap().as_deref(), Some(&b"1"[..]));
/// assert_eq!((answers[1].number, answers[1].result.as_ref().unwrap()), (8, &None));
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Completions {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    moved: Event,
}

#[derive(Default)]
struct Queue {
    answers: VecDeque<Completion>,
    /// Number of gets without an answer.
    pending: u64,
    /// Numbers of the pending gets, with their stores: a waiter lets one store's threads run.
    asked: Vec<(u64, Arc<Handle>)>,
}

impl Queue {
    /// In a forked process, answers the pending gets with `Forked`: the threads that would answer them are in
    /// the parent process.
    fn end_forked(&mut self) {
        for (number, _handle) in self.asked.extract_if(.., |(_, handle)| handle.is_forked()) {
            self.answers.push_back(Completion { number, result: Err(Error::Forked) });
            self.pending -= 1;
        }
    }
}

/// The result of one get.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// let queue = trine::Completions::default();
/// users.get_queued(b"ann", 7, &queue);
/// let mut answers: Vec<trine::Completion> = Vec::new();
/// while queue.wait(&mut answers) {}
/// assert!(answers[0].number == 7 && answers[0].result.is_ok());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The number given with the get.
    pub number: u64,
    /// The value, `None` if there is none, or the error.
    pub result: Result<Option<Value>>,
}

impl Completions {
    pub(crate) fn ask(&self, get: GetAsync, number: u64) {
        let mut queue = self.shared.queue.lock();
        queue.pending += 1;
        queue.asked.push((number, Arc::clone(get.handle())));
        drop(queue);
        let own = Arc::downgrade(get.handle());
        let shared = Arc::clone(&self.shared);
        callback::run(get, move |result| {
            let mut queue = shared.queue.lock();
            let is_own = |(asked, handle): &(u64, Arc<Handle>)| {
                *asked == number && std::ptr::eq(Arc::as_ptr(handle), own.as_ptr())
            };
            let at = queue.asked.iter().position(is_own);
            let handle = at.map(|at| queue.asked.swap_remove(at));
            // If there is none, `end_forked` has answered this get.
            if handle.is_some() {
                queue.pending -= 1;
                queue.answers.push_back(Completion { number, result });
            }
            drop(queue);
            shared.moved.notify();
            drop(handle);
        });
    }

    /// Waits until there is an answer, and appends all answers in the queue to `answers`. Returns `false` if
    /// the queue is empty and no get is pending.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// let mut answers = Vec::new();
    /// assert!(!trine::Completions::default().wait(&mut answers));
    /// # Ok(()) }
    /// ```
    pub fn wait(&self, answers: &mut Vec<Completion>) -> bool {
        loop {
            let seen = self.shared.moved.seen();
            let mut queue = self.shared.queue.lock();
            queue.end_forked();
            if !queue.answers.is_empty() {
                answers.extend(queue.answers.drain(..));
                return true;
            }
            let Some((_, handle)) = queue.asked.first().cloned() else { return false };
            drop(queue);
            handle.wait(&self.shared.moved, seen);
        }
    }

    /// Appends all answers in the queue to `answers`, without waiting. Returns the number of pending gets.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let (queue, mut answers) = (trine::Completions::default(), Vec::new());
    /// users.get_queued(b"ann", 7, &queue);
    /// assert_eq!((queue.take(&mut answers), answers.len()), (0, 1));
    /// # Ok(()) }
    /// ```
    pub fn take(&self, answers: &mut Vec<Completion>) -> u64 {
        let mut queue = self.shared.queue.lock();
        queue.end_forked();
        answers.extend(queue.answers.drain(..));
        queue.pending
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completions({} pending)", self.shared.queue.lock().pending)
    }
}
