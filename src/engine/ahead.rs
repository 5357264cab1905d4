//! Reading apart: what scans will want soon is read by a worker, while their callers look at what is here.
//!
//! A queue of requests, whose blocks are claimed, and the worker that reads them. What it reads goes to the
//! cache; whoever needs such a block before it is here waits for it as for anybody's read. It knows no scan.
//!
//! What was taken is read, also once the store is told to stop: nobody waits for ever.

use std::collections::VecDeque;

use crate::base::sync::{Arc, Event, Mutex};
use crate::io::env::Turn;
use crate::io::reader::{Request, perform};

use super::Store;
use super::work::Job;

/// Requests that wait for the worker; with more of them, scans read for themselves.
const REQUESTS_MAX: usize = 32;

/// What is to be read.
#[derive(Default)]
pub(super) struct Ahead {
    queue: Mutex<Queue>,
    pushed: Arc<Event>,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    /// There is no worker any more.
    is_closed: bool,
}

impl Ahead {
    /// Whether as much as a scan asks for at once would be taken, a moment ago.
    pub(super) fn has_room(&self) -> bool {
        let queue = self.queue.lock();
        !queue.is_closed && queue.requests.len() < REQUESTS_MAX
    }

    /// Takes a request; gives it back if there is no worker.
    pub(super) fn push(&self, request: Request) -> Option<Request> {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Some(request);
        }
        queue.requests.push_back(request);
        drop(queue);
        self.pushed.notify();
        None
    }

    /// Wakes the worker, to end.
    pub(super) fn wake(&self) {
        self.pushed.notify();
    }
}

/// The worker.
pub(super) struct AheadWork;

impl Job for AheadWork {
    fn turn(&mut self, store: &Arc<Store>) -> Turn {
        let ahead = &store.work.ahead;
        let seen = ahead.pushed.seen();
        let request = ahead.queue.lock().requests.pop_front();
        let Some(request) = request else {
            return Turn::Idle { event: Arc::clone(&ahead.pushed), seen, timeout_ns: None };
        };
        store.read_unasked(request);
        Turn::Again
    }

    fn stop(&mut self, store: &Store) {
        let mut queue = store.work.ahead.queue.lock();
        queue.is_closed = true;
        let rest = std::mem::take(&mut queue.requests);
        drop(queue);
        rest.into_iter().for_each(|request| store.read_unasked(request));
    }
}

impl Store {
    /// Reads what nobody has asked for yet, into the cache.
    pub(super) fn read_unasked(&self, request: Request) {
        let completed = perform(&*self.env.storage, request);
        self.settle_read(completed, |_, _| unreachable!("nobody has asked for it"));
    }
}

impl std::fmt::Debug for Ahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ahead({} requests)", self.queue.lock().requests.len())
    }
}

#[cfg(test)]
mod tests;
