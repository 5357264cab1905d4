//! Reads of the driver thread: blocks that futures wait for, and read-ahead of scans.
//!
//! A queue of claimed blocks and the worker that reads them, as many at once as its reader has room for. Only
//! the worker submits and reaps. Blocks go to the cache and to their waiters. The queue has no logic of gets
//! or scans. A push wakes the worker only if it sleeps. `admission` limits the reads in flight; `timers`
//! wakes waiters at a time.
//!
//! 1. Every queued block is read, even after the store is told to stop, so no waiter waits forever.
//! 2. Blocks with waiters go first, except that read-ahead gets a fixed share.
//! 3. The worker begins the reads that are queued in `admission`, whether or not their futures are polled.

use std::collections::VecDeque;
use std::task::Waker;

use crate::base::few::Few;
use crate::base::reserve::Reserve;
use crate::base::sync::{Arc, Event, Mutex};
use crate::io::reader::Request;

use super::admission::{ReadAdmission, ReadLimits};
use super::request::Claimed;
use super::timers::{Timer, Timers};

/// Most read-ahead requests of scans that wait for the worker; beyond it, scans read for themselves.
const AHEAD_MAX: usize = 32;
/// The byte limit of one `block_on` is this part of the driver thread's: together, as many sessions as can
/// have a ring get as much as the driver thread.
const SESSIONS_PART: u64 = 16;
/// Least byte limit of one `block_on`.
const SESSION_BYTES_MIN: u64 = 1 << 20;

/// The queue of the driver thread.
pub(in crate::engine) struct ReadQueue {
    pub(super) queue: Mutex<DriverQueue>,
    pub(super) pushed: Arc<Event>,
    pub(in crate::engine) admission: Arc<ReadAdmission>,
    pub(super) timers: Arc<Timers>,
}

#[derive(Default)]
pub(super) struct DriverQueue {
    /// Blocks that futures wait for.
    pub(super) asked: Vec<Claimed>,
    pub(super) ahead: VecDeque<Request>,
    /// Ends the worker's wait for the device, while it waits.
    pub(super) bell: Option<Waker>,
    /// The worker has ended.
    pub(super) is_closed: bool,
}

impl ReadQueue {
    /// `reserve` grants the memory of blocks that were read and not yet polled.
    pub(in crate::engine) fn new(reserve: Arc<Reserve>) -> ReadQueue {
        let pushed = Arc::new(Event::new());
        // With reads in flight the worker looks again soon; without any it waits for this event.
        let admission = ReadAdmission::new(ReadLimits::default(), pushed.waker(), Some(reserve));
        ReadQueue { queue: Mutex::default(), pushed, admission, timers: Arc::default() }
    }

    /// Limits on the reads in flight of one `block_on`.
    pub(in crate::engine) fn session_limits(&self) -> ReadLimits {
        let ReadLimits { reads, bytes } = self.admission.limits();
        ReadLimits { reads, bytes: (bytes / SESSIONS_PART).max(SESSION_BYTES_MIN) }
    }

    /// Queues blocks that have waiters; returns them if the worker has ended.
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

    /// Whether a scan's read-ahead would have been accepted a moment ago.
    pub(in crate::engine) fn has_room_ahead(&self) -> bool {
        let queue = self.queue.lock();
        !queue.is_closed && queue.ahead.len() < AHEAD_MAX
    }

    /// Queues a read-ahead request; returns it if the worker has ended.
    pub(in crate::engine) fn push_ahead(&self, request: Request) -> Option<Request> {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Some(request);
        }
        queue.ahead.push_back(request);
        drop(queue);
        // Read-ahead can wait until a read has ended.
        self.pushed.notify();
        None
    }

    /// Wakes `waker` at time `ns` of the store's clock, unless the returned timer is dropped before.
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

    /// Wakes the worker so that it ends.
    pub(in crate::engine) fn wake(&self) {
        let bell = self.queue.lock().bell.take();
        bell.into_iter().for_each(Waker::wake);
        self.pushed.notify();
    }

    /// Registers `bell` to be rung on a push or an earlier timer, and wakes due timers. Returns how long the
    /// worker may wait for the bell.
    pub(super) fn listen(&self, bell: Waker, now_ns: u64) -> Option<u64> {
        let mut queue = self.queue.lock();
        let is_quiet = queue.asked.is_empty() && !queue.is_closed;
        queue.bell = is_quiet.then_some(bell);
        drop(queue);
        // This comes after the bell is set: a later timer rings it.
        let timeout_ns = self.timers.wake_due(now_ns);
        if is_quiet { timeout_ns } else { Some(0) }
    }
}

impl std::fmt::Debug for ReadQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queue = self.queue.lock();
        write!(f, "Reads({} blocks, {} requests ahead)", queue.asked.len(), queue.ahead.len())
    }
}

#[cfg(all(loom, test))]
mod loom_tests;
