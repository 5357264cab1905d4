//! `block_on`: waits for a future on the caller's thread, with an I/O ring of its own.
//!
//! While this thread waits, it reads the blocks that the future's operations miss. That costs no hand-over to
//! another thread, so it is as fast as a blocking call. Its polls run code of the program, so other threads'
//! operations must not wait for such a read: it is claimed apart from the shared table. The ring serves one
//! store, the first that is used; the driver threads of other stores read for them.
//!
//! Each `block_on` has its own limits on reads in flight. Its reads proceed only while its thread waits here,
//! so no other thread waits for their end.
//!
//! 1. Nothing is in flight when `block_on` returns, even by a panic.
//! 2. A wait ends when the future is woken, from any thread, or a read has ended.
//! 3. In a process that one of the polls forked, reads in flight are left alone: they belong to the other
//!    process. The future is polled again, and its reads answer `Forked`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use crate::base::few::Few;
use crate::base::step::BlockAddress;
use crate::base::sync::{Arc, AtomicBool, Event, Mutex, Ordering, ProcessU64};
use crate::cache::{BlockRef, Claim, Share, Waiter};
use crate::io::reader::{Completed, Reader, Request};

use super::blocks::BlockReader;
use super::request::{Claimed, REQUEST_BYTES_MAX, requests};
use crate::engine::reads::admission::ReadAdmission;

/// A session looks for ended reads only beyond this number of reads.
const FLIGHTS_KEPT_MIN: usize = 32;

/// The state that the polls of a `block_on` share.
struct Session {
    /// Unique in the process, never 0.
    id: u64,
    /// Wakes the session's thread.
    waker: Waker,
    /// The store that the ring reads for, and the limits on its reads in flight.
    of: Option<(Arc<BlockReader>, Arc<ReadAdmission>)>,
    claimed: Vec<Claimed>,
    /// Reads of this session, by offset and file; some may have ended.
    flights: BTreeMap<(u64, u64), (BlockAddress, Share)>,
    /// Beyond this number of reads, the ended ones are forgotten.
    flights_kept_max: usize,
}

impl Session {
    /// Checks all reads once they are twice the number left by the last check, so each read is checked about
    /// twice.
    fn forget_ended(&mut self) {
        if self.flights.len() > self.flights_kept_max {
            self.flights.retain(|_, (_, share)| !share.has_ended());
            self.flights_kept_max = FLIGHTS_KEPT_MIN.max(2 * self.flights.len());
        }
    }

    /// The session's limits; binds the session to this store if it has none.
    fn admission(&mut self, blocks: &Arc<BlockReader>) -> &Arc<ReadAdmission> {
        let (_, admission) = self.of.get_or_insert_with(|| {
            let limits = blocks.queue.session_limits();
            (Arc::clone(blocks), ReadAdmission::new(limits, self.waker.clone(), None))
        });
        admission
    }
}

/// The session's index of a read: short, and nearly always unique.
fn place(address: &BlockAddress) -> (u64, u64) {
    (address.offset, address.file.number)
}

thread_local! {
    /// The session of the innermost `block_on` of this thread. It has no destructor, so that destructors of
    /// other thread-locals can use it. Each `block_on` restores the session that it found, at first `None`.
    static SESSION: RefCell<ManuallyDrop<Option<Session>>> = const { RefCell::new(ManuallyDrop::new(None)) };
    static IS_OUTSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Replaces the present session and returns it.
fn replace_session(session: Option<Session>) -> Option<Session> {
    ManuallyDrop::into_inner(SESSION.replace(ManuallyDrop::new(session)))
}

static NEXT_SESSION: ProcessU64 = ProcessU64::new(1);

/// Runs code whose reads must not use a session of this thread.
pub(in crate::engine) fn outside<R>(run: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            IS_OUTSIDE.set(self.0);
        }
    }
    let _back = Back(IS_OUTSIDE.replace(true));
    run()
}

/// The session that reads for this store on this thread; 0 if there is none.
pub(super) fn session(blocks: &Arc<BlockReader>) -> u64 {
    SESSION.with_borrow(|session| match &**session {
        _ if IS_OUTSIDE.get() => 0,
        Some(session) if session.of.as_ref().is_none_or(|(own, _)| Arc::ptr_eq(own, blocks)) => session.id,
        _ => 0,
    })
}

/// Binds this thread's `block_on`, if there is one, to the store, so that it waits as the store's threads do.
pub(in crate::engine) fn note(blocks: &Arc<BlockReader>) {
    admission(blocks);
}

/// The cached block, or a share in a read that this thread may wait for, if there is either.
pub(super) fn join(blocks: &Arc<BlockReader>, address: &BlockAddress) -> Option<Result<BlockRef, Waiter>> {
    let own = |session: &ManuallyDrop<Option<Session>>| {
        let (read, share) = session.as_ref()?.flights.get(&place(address))?;
        if read == address { share.join() } else { None }
    };
    match (session(blocks) != 0).then(|| SESSION.with_borrow(own)).flatten() {
        Some(waiter) => Some(Err(waiter)),
        None => blocks.cache.join(address),
    }
}

/// The block, the right to read it, or a share in its read. Under a session the right is to a read apart, in
/// which only the session's own operations share.
pub(super) fn claim(blocks: &Arc<BlockReader>, address: &BlockAddress) -> Claim {
    if session(blocks) == 0 {
        return blocks.cache.claim(address);
    }
    match join(blocks, address) {
        Some(Ok(block)) => Claim::Ready(block),
        Some(Err(waiter)) => Claim::Wait(waiter),
        None => {
            let slot = blocks.cache.slot_apart(address);
            SESSION.with_borrow_mut(|session| {
                let session = session.as_mut().expect("it was there a moment ago");
                session.admission(blocks);
                session.flights.insert(place(address), (*address, slot.share()));
            });
            Claim::Read(slot)
        }
    }
}

/// The session's limits on this thread's reads from the store; `None` without a session.
pub(super) fn admission(blocks: &Arc<BlockReader>) -> Option<Arc<ReadAdmission>> {
    if session(blocks) == 0 {
        return None;
    }
    SESSION.with_borrow_mut(|session| Some(Arc::clone(session.as_mut()?.admission(blocks))))
}

/// Takes blocks to read; returns them if no session reads for their store.
pub(super) fn push(blocks: &Arc<BlockReader>, claimed: Few<Claimed>) -> Option<Few<Claimed>> {
    if session(blocks) == 0 {
        return Some(claimed);
    }
    SESSION.with_borrow_mut(|session| {
        let session = session.as_mut().expect("it was there a moment ago");
        session.claimed.extend(claimed);
    });
    None
}

/// Wakes the thread of a `block_on`.
#[derive(Default)]
struct Bell {
    woken: Arc<Event>,
    /// The thread waits in its ring, and a wake must ring it.
    is_reading: AtomicBool,
    ring: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        self.woken.notify();
        // This comes after the count moves. A thread that sets `is_reading` and then checks the count sees
        // the wake or is rung.
        if self.is_reading.load(Ordering::SeqCst) {
            let ring = self.ring.lock().clone();
            ring.into_iter().for_each(Waker::wake);
        }
    }
}

/// Performs reads for the future of one `block_on`.
struct Driver {
    outer: Option<Session>,
    bell: Arc<Bell>,
    /// As in the session.
    of: Option<(Arc<BlockReader>, Arc<ReadAdmission>)>,
    /// Blocks claimed by the session. Between two calls it is empty, and only keeps its memory.
    asked: Vec<Claimed>,
    reader: Option<Box<dyn Reader>>,
    backlog: VecDeque<Request>,
    in_flight: usize,
    completed: Vec<Completed>,
}

/// Polls a future until it is ready; the thread sleeps in between.
///
/// # Panics
/// In a callback of a get: its own thread may have to read the blocks that it would wait for.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    assert!(!IS_OUTSIDE.get(), "a callback of a get must not wait");
    let mut driver = Driver::enter();
    let mut future = pin!(future);
    let waker = Waker::from(Arc::clone(&driver.bell));
    let mut context = Context::from_waker(&waker);
    loop {
        let seen = driver.bell.woken.seen();
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        driver.wait(seen);
    }
}

impl Driver {
    fn enter() -> Driver {
        let id = NEXT_SESSION.fetch_add(1, Ordering::Relaxed);
        let bell: Arc<Bell> = Arc::default();
        let waker = Waker::from(Arc::clone(&bell));
        let own = Session {
            id,
            waker,
            of: None,
            claimed: Vec::new(),
            flights: BTreeMap::new(),
            flights_kept_max: FLIGHTS_KEPT_MIN,
        };
        Driver {
            outer: replace_session(Some(own)),
            bell,
            of: None,
            asked: Vec::new(),
            reader: None,
            backlog: VecDeque::new(),
            in_flight: 0,
            completed: Vec::new(),
        }
    }

    /// Reads until the future is woken. If it is woken already, takes what is ready without waiting.
    fn wait(&mut self, seen: u64) {
        if self.leave_if_forked() {
            return;
        }
        let bell = Arc::clone(&self.bell);
        loop {
            // This includes requests made by wakers that polled other futures.
            self.take_asked();
            self.begin_waiting();
            if self.send() {
                self.reap(seen);
            } else if bell.woken.seen() == seen {
                self.rest();
                match self.of.as_ref().map(|(blocks, _)| blocks) {
                    Some(blocks) => blocks.env.threads.wait(&bell.woken, seen, None),
                    None => bell.woken.block(seen, None),
                }
            }
            if bell.woken.seen() != seen {
                return;
            }
        }
    }

    /// In a forked process, abandons the whole state of the store for good; returns `true` if there was any.
    fn leave_if_forked(&mut self) -> bool {
        let is_forked =
            |of: &Option<(Arc<BlockReader>, _)>| of.as_ref().is_some_and(|(blocks, _)| blocks.is_forked());
        let is_session_forked =
            || SESSION.with_borrow(|session| session.as_ref().is_some_and(|session| is_forked(&session.of)));
        if !is_forked(&self.of) && !is_session_forked() {
            return false;
        }
        let of_session = SESSION.with_borrow_mut(|session| {
            let session = session.as_mut().expect("its own, until the drop");
            let claimed = std::mem::take(&mut session.claimed);
            (session.of.take(), claimed, std::mem::take(&mut session.flights))
        });
        std::mem::forget((self.of.take(), of_session));
        let reads = (std::mem::take(&mut self.asked), std::mem::take(&mut self.backlog));
        std::mem::forget((reads, self.reader.take(), std::mem::take(&mut self.completed)));
        self.in_flight = 0;
        true
    }

    fn take_asked(&mut self) {
        SESSION.with_borrow_mut(|session| {
            let session = session.as_mut().expect("its own, until the drop");
            session.forget_ended();
            if self.of.is_none() {
                self.of = session.of.clone();
            }
            std::mem::swap(&mut session.claimed, &mut self.asked);
        });
        self.push_asked();
    }

    fn push_asked(&mut self) {
        if let Some((blocks, _)) = &self.of {
            let give = |request| self.backlog.push_back(request);
            requests(&mut self.asked, REQUEST_BYTES_MAX, &blocks.load, give);
        }
    }

    /// Begins the reads that are queued in the admission.
    fn begin_waiting(&mut self) {
        let Some((blocks, admission)) = &self.of else { return };
        let asked = &mut self.asked;
        admission.begin(|address, permit| Claimed::begin(claim(blocks, address), permit, asked));
        self.push_asked();
    }

    /// Releases the ring while nothing is in flight, and also a store that was closed.
    fn rest(&mut self) {
        if self.reader.take().is_some() {
            let ring = self.bell.ring.lock().take();
            drop(ring);
        }
        if self.of.as_ref().is_some_and(|(blocks, _)| blocks.is_closed()) {
            self.of = None;
            let of = SESSION.with_borrow_mut(|session| session.as_mut().and_then(|own| own.of.take()));
            drop(of);
        }
    }

    /// Sends requests while there is room; returns whether any read is in flight.
    fn send(&mut self) -> bool {
        let Some((blocks, _)) = &self.of else { return false };
        while let Some(request) = self.backlog.pop_front() {
            let reader = self.reader.get_or_insert_with(|| Arc::clone(&blocks.env.storage).reader());
            if reader.room() == 0 {
                self.backlog.push_front(request);
                break;
            }
            reader.push(request);
            self.in_flight += 1;
        }
        self.in_flight > 0
    }

    /// Takes completed reads; waits for one unless the future was woken.
    fn reap(&mut self, seen: u64) {
        let reader = self.reader.as_mut().expect("something is in flight");
        let mut ring = self.bell.ring.lock();
        if ring.is_none() {
            *ring = Some(reader.bell());
        }
        drop(ring);
        self.bell.is_reading.store(true, Ordering::SeqCst);
        let timeout_ns = if self.bell.woken.seen() == seen { None } else { Some(0) };
        reader.reap_or_bell(&mut self.completed, timeout_ns);
        self.bell.is_reading.store(false, Ordering::SeqCst);
        self.settle();
    }

    fn settle(&mut self) {
        self.in_flight -= self.completed.len();
        let Some((blocks, _)) = &self.of else { return };
        self.completed.drain(..).for_each(|completed| blocks.settle_unasked(completed));
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.leave_if_forked();
        self.take_asked();
        // Operations that these reads wake must ask elsewhere, and so must queued ones.
        let own = replace_session(self.outer.take());
        drop(own);
        if let Some((_, admission)) = &self.of {
            admission.close();
        }
        while self.send() {
            if let Some(reader) = &mut self.reader {
                reader.reap(&mut self.completed);
            }
            self.settle();
        }
    }
}

#[cfg(all(loom, test))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
