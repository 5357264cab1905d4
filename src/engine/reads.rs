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

pub(super) mod admission;
mod timers;

use std::collections::VecDeque;
use std::task::Waker;

use crate::base::few::Few;
use crate::base::sync::{Arc, Event, Mutex};
use crate::io::env::Turn;
use crate::io::reader::{Completed, Reader, Request, perform};

use super::Store;
use super::drive::{Claimed, REQUEST_BYTES_MAX, requests};
use super::work::Job;
use admission::{Admission, Limits};
pub(super) use timers::Timer;
use timers::Timers;

/// Requests of scans that wait for the worker; with more of them, scans read for themselves.
const AHEAD_MAX: usize = 32;
/// Of the cache, what reads of futures may fill at once.
const FLIGHTS_PART: u64 = 4;
/// What nobody waits for yet begins while fewer reads than these are in flight,
const AHEAD_FLIGHTS_MAX: usize = 8;
/// and after so many others in any case: somebody may have come to wait for it.
const ASKED_AT_ONCE: usize = 32;

/// Of what those of one `block_on` may: as many as have a ring have together what the driver thread has.
const SESSIONS_PART: u64 = 16;
/// They may in any case.
const SESSION_BYTES_MIN: u64 = 1 << 20;

/// What is to be read.
pub(super) struct Reads {
    queue: Mutex<Queue>,
    pushed: Arc<Event>,
    pub(super) admission: Arc<Admission>,
    timers: Arc<Timers>,
}

#[derive(Default)]
struct Queue {
    /// Somebody waits for them.
    asked: Vec<Claimed>,
    ahead: VecDeque<Request>,
    /// Ends the worker's wait, while it waits for the device.
    bell: Option<Waker>,
    /// There is no worker any more.
    is_closed: bool,
}

impl Default for Reads {
    fn default() -> Reads {
        let pushed = Arc::new(Event::new());
        // With something in flight the worker looks again soon, with nothing it waits for this.
        let admission = Admission::new(Limits::default(), pushed.waker());
        Reads { queue: Mutex::default(), pushed, admission, timers: Arc::default() }
    }
}

impl Reads {
    /// What reads of one `block_on` may be in flight.
    pub(super) fn session_limits(&self) -> Limits {
        let Limits { reads, bytes } = self.admission.limits();
        Limits { reads, bytes: (bytes / SESSIONS_PART).max(SESSION_BYTES_MIN) }
    }

    /// Takes blocks that are waited for; gives them back if there is no worker.
    pub(super) fn push(&self, blocks: Few<Claimed>) -> Option<Few<Claimed>> {
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
    pub(super) fn has_room_ahead(&self) -> bool {
        let queue = self.queue.lock();
        !queue.is_closed && queue.ahead.len() < AHEAD_MAX
    }

    /// Takes a request that nobody waits for yet; gives it back if there is no worker.
    pub(super) fn push_ahead(&self, request: Request) -> Option<Request> {
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
    pub(super) fn wake_at(&self, ns: u64, waker: &Waker) -> Timer {
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
    pub(super) fn wake(&self) {
        let bell = self.queue.lock().bell.take();
        bell.into_iter().for_each(Waker::wake);
        self.pushed.notify();
    }

    /// Lets `bell` be rung when something is pushed or is due earlier, and wakes what is due; how long may be
    /// waited for the bell.
    fn listen(&self, bell: Waker, now_ns: u64) -> Option<u64> {
        let mut queue = self.queue.lock();
        let is_quiet = queue.asked.is_empty() && !queue.is_closed;
        queue.bell = is_quiet.then_some(bell);
        drop(queue);
        // After the bell: a timer that comes later rings it.
        let timeout_ns = self.timers.wake_due(now_ns);
        if is_quiet { timeout_ns } else { Some(0) }
    }
}

/// The worker.
#[derive(Default)]
pub(super) struct ReadsWork {
    /// While something is in flight.
    reader: Option<Box<dyn Reader>>,
    /// Asked for, and not sent for want of room.
    backlog: VecDeque<Request>,
    in_flight: usize,
    /// What was asked for: nothing, but for its memory, between two turns.
    asked: Vec<Claimed>,
    /// Sent since what nobody waits for was.
    asked_count: usize,
    completed: Vec<Completed>,
}

impl ReadsWork {
    /// Sends what there is room for; `false` if nothing is in flight then.
    fn send(&mut self, store: &Arc<Store>) -> bool {
        let reads = &store.work.reads;
        let asked = &mut self.asked;
        std::mem::swap(&mut reads.queue.lock().asked, asked);
        reads.admission.begin(|address, permit| Claimed::begin(store.cache.claim(address), permit, asked));
        requests(asked, REQUEST_BYTES_MAX, &store.load, |request| self.backlog.push_back(request));
        while self.reader.as_ref().is_none_or(|reader| reader.room() > 0) {
            let Some(request) = self.next(reads) else { break };
            let storage = &store.env.storage;
            self.reader.get_or_insert_with(|| Arc::clone(storage).reader()).push(request);
            self.in_flight += 1;
        }
        self.in_flight > 0
    }

    fn next(&mut self, reads: &Reads) -> Option<Request> {
        let is_due = self.asked_count >= ASKED_AT_ONCE;
        if is_due || (self.backlog.is_empty() && self.in_flight < AHEAD_FLIGHTS_MAX) {
            self.asked_count = 0;
            let ahead = reads.queue.lock().ahead.pop_front();
            if ahead.is_some() {
                return ahead;
            }
        }
        self.asked_count += 1;
        self.backlog.pop_front()
    }

    /// Takes what has ended, waiting for it if nothing is pushed meanwhile.
    fn reap(&mut self, store: &Store) {
        let Some(reader) = &mut self.reader else { return };
        let reads = &store.work.reads;
        let timeout_ns = reads.listen(reader.bell(), store.env.clock.now_ns());
        reader.reap_or_bell(&mut self.completed, timeout_ns);
        reads.queue.lock().bell = None;
        self.settle(store);
    }

    fn settle(&mut self, store: &Store) {
        self.in_flight -= self.completed.len();
        self.completed.drain(..).for_each(|completed| store.settle_unasked(completed));
        if self.in_flight == 0 {
            self.reader = None;
        }
    }
}

impl Job for ReadsWork {
    /// Callbacks that run in its turns are readers.
    const HOLDS_TABLES: bool = false;

    fn turn(&mut self, store: &Arc<Store>) -> Turn {
        let reads = &store.work.reads;
        let seen = reads.pushed.seen();
        if !self.send(store) {
            let timeout_ns = reads.timers.wake_due(store.env.clock.now_ns());
            return Turn::Idle { event: Arc::clone(&reads.pushed), seen, timeout_ns };
        }
        self.reap(store);
        Turn::Again
    }

    fn stop(&mut self, store: &Store) {
        let reads = &store.work.reads;
        let mut queue = reads.queue.lock();
        queue.is_closed = true;
        let (mut asked, ahead) = (std::mem::take(&mut queue.asked), std::mem::take(&mut queue.ahead));
        drop(queue);
        reads.admission.close();
        requests(&mut asked, REQUEST_BYTES_MAX, &store.load, |request| self.backlog.push_back(request));
        self.backlog.drain(..).chain(ahead).for_each(|request| store.read_unasked(request));
        while let Some(reader) = &mut self.reader {
            reader.reap(&mut self.completed);
            self.settle(store);
        }
        reads.timers.close();
    }
}

impl Store {
    /// How much may be in flight for futures.
    pub(super) fn limit_reads(&self) {
        let bytes = self.budget.cache_bytes / FLIGHTS_PART;
        self.work.reads.admission.set_limits(Limits { reads: self.settings.reads_in_flight, bytes });
    }

    /// Waits until the event's count differs from `seen`.
    pub(crate) fn wait(&self, event: &Event, seen: u64) {
        self.env.threads.wait(event, seen, None);
    }

    /// Reads what is answered by its flight alone.
    pub(super) fn read_unasked(&self, request: Request) {
        self.settle_unasked(perform(&*self.env.storage, request));
    }

    pub(super) fn settle_unasked(&self, completed: Completed) {
        self.settle_read(completed, |_, _| unreachable!("nobody asks by number"));
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
#[cfg(test)]
mod tests;
