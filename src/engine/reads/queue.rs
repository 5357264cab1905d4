//! Reads of the driver thread: blocks that futures wait for, and what scans will want soon.
//!
//! A queue of blocks that are claimed, and the worker that reads them, as many at once as its reader has room
//! for; it alone submits and reaps. What it reads goes to the cache, and to whoever waits for it. It knows no
//! get and no scan. Those who push wake it only where it sleeps. `admission`: how much may be in flight.
//! `timers`: what is woken at a time.
//!
//! 1. What was taken is read, also once the store is told to stop: nobody waits for ever.
//! 2. What somebody waits for goes first, but for a part.
//! 3. It begins the reads of who waits in line, whether that is polled or not.

use std::collections::VecDeque;
use std::task::Waker;

use crate::base::few::Few;
use crate::base::reserve::Reserve;
use crate::base::sync::{Arc, Event, Mutex};
use crate::io::reader::Request;

use super::admission::{Admission, Limits};
use super::request::Claimed;
use super::timers::{Timer, Timers};

/// Requests of scans that wait for the worker; with more of them, scans read for themselves.
const AHEAD_MAX: usize = 32;
/// Of what those of one `block_on` may: as many as have a ring have together what the driver thread has.
const SESSIONS_PART: u64 = 16;
/// They may in any case.
const SESSION_BYTES_MIN: u64 = 1 << 20;

/// What is to be read.
pub(in crate::engine) struct Reads {
    pub(super) queue: Mutex<Queue>,
    pub(super) pushed: Arc<Event>,
    pub(in crate::engine) admission: Arc<Admission>,
    pub(super) timers: Arc<Timers>,
}

#[derive(Default)]
pub(super) struct Queue {
    /// Somebody waits for them.
    pub(super) asked: Vec<Claimed>,
    pub(super) ahead: VecDeque<Request>,
    /// Ends the worker's wait, while it waits for the device.
    pub(super) bell: Option<Waker>,
    /// There is no worker any more.
    pub(super) is_closed: bool,
}

impl Reads {
    /// `reserve` grants blocks that have come and were not looked at.
    pub(in crate::engine) fn new(reserve: Arc<Reserve>) -> Reads {
        let pushed = Arc::new(Event::new());
        // With something in flight the worker looks again soon, with nothing it waits for this.
        let admission = Admission::new(Limits::default(), pushed.waker(), Some(reserve));
        Reads { queue: Mutex::default(), pushed, admission, timers: Arc::default() }
    }

    /// What reads of one `block_on` may be in flight.
    pub(in crate::engine) fn session_limits(&self) -> Limits {
        let Limits { reads, bytes } = self.admission.limits();
        Limits { reads, bytes: (bytes / SESSIONS_PART).max(SESSION_BYTES_MIN) }
    }

    /// Takes blocks that are waited for; gives them back if there is no worker.
    pub(in crate::engine) fn push(&self, blocks: Few<Claimed>) -> Option<Few<Claimed>> {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Some(blocks);
        }
        queue.asked.extend(blocks);
        let bell = queue.bell.take();
        drop(queue);
        self.wake_worker(bell);
        None
    }

    /// Whether as much as a scan asks for at once would be taken, a moment ago.
    pub(in crate::engine) fn has_room_ahead(&self) -> bool {
        let queue = self.queue.lock();
        !queue.is_closed && queue.ahead.len() < AHEAD_MAX
    }

    /// Takes a request that nobody waits for yet; gives it back if there is no worker.
    pub(in crate::engine) fn push_ahead(&self, request: Request) -> Option<Request> {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Some(request);
        }
        queue.ahead.push_back(request);
        drop(queue);
        // It can wait until something has ended.
        self.pushed.notify();
        None
    }

    /// Has `waker` woken at that time of the store's clock, while the answer lives.
    pub(in crate::engine) fn wake_at(&self, ns: u64, waker: &Waker) -> Timer {
        let (timer, is_first) = self.timers.add(ns, waker);
        if is_first {
            let bell = self.queue.lock().bell.take();
            self.wake_worker(bell);
        }
        timer
    }

    fn wake_worker(&self, bell: Option<Waker>) {
        match bell {
            Some(bell) => bell.wake(),
            None => self.pushed.notify(),
        }
    }

    /// Wakes the worker, to end.
    pub(in crate::engine) fn wake(&self) {
        let bell = self.queue.lock().bell.take();
        bell.into_iter().for_each(Waker::wake);
        self.pushed.notify();
    }

    /// Lets `bell` be rung when something is pushed or is due earlier, and wakes what is due; how long may be
    /// waited for the bell.
    pub(super) fn listen(&self, bell: Waker, now_ns: u64) -> Option<u64> {
        let mut queue = self.queue.lock();
        let is_quiet = queue.asked.is_empty() && !queue.is_closed;
        queue.bell = is_quiet.then_some(bell);
        drop(queue);
        // After the bell: a timer that comes later rings it.
        let timeout_ns = self.timers.wake_due(now_ns);
        if is_quiet { timeout_ns } else { Some(0) }
    }
}

impl std::fmt::Debug for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queue = self.queue.lock();
        write!(f, "Reads({} blocks, {} requests ahead)", queue.asked.len(), queue.ahead.len())
    }
}

#[cfg(all(loom, test))]
mod loom_tests;
