//! Queues of what gets come to, for callers that have no futures.
//!
//! Each is a callback that puts its answer into the queue; nothing here reads.

use std::collections::VecDeque;
use std::fmt;

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, Event, Mutex};
use crate::engine::reads::callback;

use super::Value;
use super::asynchronous::GetAsync;
use super::handle::Handle;

/// Answers of gets that were asked for with a number, in the order in which they come: for callers that have
/// an event loop of their own and no futures.
///
/// Clones are of one queue; threads may share it.
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
    /// Asked for and not answered.
    pending: u64,
    /// What is pending, and in which stores: a waiter lets the threads of one go on.
    asked: Vec<(u64, Arc<Handle>)>,
}

impl Queue {
    /// In a forked process, answers what is pending: the threads that would are the other process's.
    fn end_forked(&mut self) {
        for (number, _handle) in self.asked.extract_if(.., |(_, handle)| handle.is_forked()) {
            self.answers.push_back(Completion { number, result: Err(Error::Forked) });
            self.pending -= 1;
        }
    }
}

/// What one get came to.
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
    /// The number it was asked with.
    pub number: u64,
    /// The value, or why there is none.
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
            // It was answered in a forked process before.
            if handle.is_some() {
                queue.pending -= 1;
                queue.answers.push_back(Completion { number, result });
            }
            drop(queue);
            shared.moved.notify();
            drop(handle);
        });
    }

    /// Waits until something is answered, and appends all that is to `answers`; `false` if nothing is pending
    /// and there was nothing to append.
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

    /// Appends what is answered to `answers`, without waiting; how many are pending.
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
