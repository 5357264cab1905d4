//! Waiting for a future on the caller's thread, with a ring of its own.
//!
//! What the future's operations miss is read by this thread while it waits, which costs no hand-over: as
//! quick as a blocking call. Its polls run what is not the store's, so nobody else's operation waits for such
//! a read: it is claimed apart. Of one store, the first that is asked; others are read by their driver
//! threads.
//!
//! How much may be in flight is counted for each `block_on` by itself: its reads go on only while its thread
//! waits here, so nobody else waits for their end.
//!
//! 1. Nothing is in flight when `block_on` returns, also by a panic.
//! 2. A wait ends when the future is woken, from any thread, or a read has ended.
//! 3. In a process that one of the polls forked off, reads in flight are left alone: they are the other
//!    process's. The future is polled again, and its reads answer `Forked`.

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
use crate::engine::reads::admission::Admission;

/// Of a session, before it looks for those that have ended.
const FLIGHTS_KEPT_MIN: usize = 32;

/// What the polls of a `block_on` have asked for.
struct Session {
    /// Never 0, and no other's.
    id: u64,
    /// Wakes its thread.
    waker: Waker,
    /// Whose ring it has, and how much of it may be in flight.
    of: Option<(Arc<BlockReader>, Arc<Admission>)>,
    claimed: Vec<Claimed>,
    /// Reads of this session, by offset and file; some may have ended.
    flights: BTreeMap<(u64, u64), (BlockAddress, Share)>,
    /// With more of them, those that have ended are forgotten.
    flights_kept_max: usize,
}

impl Session {
    /// Looks at all once they are twice what was left then, so at each twice or so.
    fn forget_ended(&mut self) {
        if self.flights.len() > self.flights_kept_max {
            self.flights.retain(|_, (_, share)| !share.has_ended());
            self.flights_kept_max = FLIGHTS_KEPT_MIN.max(2 * self.flights.len());
        }
    }

    /// Of that store, from now on.
    fn admission(&mut self, blocks: &Arc<BlockReader>) -> &Arc<Admission> {
        let (_, admission) = self.of.get_or_insert_with(|| {
            let limits = blocks.queue.session_limits();
            (Arc::clone(blocks), Admission::new(limits, self.waker.clone(), None))
        });
        admission
    }
}

/// What a session finds a read by: short, and different nearly always.
fn place(address: &BlockAddress) -> (u64, u64) {
    (address.offset, address.file.number)
}

thread_local! {
    /// Of the innermost `block_on` of this thread. It has no destructor, so that destructors of other
    /// thread-locals can use it: each `block_on` puts back what it found, at first `None`.
    static SESSION: RefCell<ManuallyDrop<Option<Session>>> = const { RefCell::new(ManuallyDrop::new(None)) };
    static IS_OUTSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Puts a session in the place of the present one, which is the answer.
fn replace_session(session: Option<Session>) -> Option<Session> {
    ManuallyDrop::into_inner(SESSION.replace(ManuallyDrop::new(session)))
}

static NEXT_SESSION: ProcessU64 = ProcessU64::new(1);

/// Runs what no session of this thread reads for.
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

/// A `block_on` of this thread, if there is one, comes to wait for that store, in the way its threads wait.
pub(in crate::engine) fn note(blocks: &Arc<BlockReader>) {
    admission(blocks);
}

/// The block, or a share in a read of it that this thread may wait for, if there is either.
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

/// The block, or the right to read it, or a share in its read. Under a session the right is to a read apart,
/// in which the others of the session share.
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

/// Who says how much may be in flight of what this thread asks of the store, if not the blocks.
pub(super) fn admission(blocks: &Arc<BlockReader>) -> Option<Arc<Admission>> {
    if session(blocks) == 0 {
        return None;
    }
    SESSION.with_borrow_mut(|session| Some(Arc::clone(session.as_mut()?.admission(blocks))))
}

/// Takes blocks to read; gives them back if there is no session for their blocks.
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
    /// It waits for its ring, and this ends that.
    is_reading: AtomicBool,
    ring: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        self.woken.notify();
        // After the count: who looks at it after it said that it waits sees the one or the other.
        if self.is_reading.load(Ordering::SeqCst) {
            let ring = self.ring.lock().clone();
            ring.into_iter().for_each(Waker::wake);
        }
    }
}

/// Reads for the future of one `block_on`.
struct Driver {
    outer: Option<Session>,
    bell: Arc<Bell>,
    /// As the session has it.
    of: Option<(Arc<BlockReader>, Arc<Admission>)>,
    /// What the session had claimed: nothing, but for its memory, between two calls.
    asked: Vec<Claimed>,
    reader: Option<Box<dyn Reader>>,
    backlog: VecDeque<Request>,
    in_flight: usize,
    completed: Vec<Completed>,
}

/// Polls a future until it is ready; the thread sleeps while it is not.
///
/// # Panics
/// In a callback of a get: what it would wait for may be read by its own thread.
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

    /// Reads until the future is woken; if it is already, goes on with what can be had without waiting.
    fn wait(&mut self, seen: u64) {
        if self.leave_if_forked() {
            return;
        }
        let bell = Arc::clone(&self.bell);
        loop {
            // Also what wakers have asked for that polled other futures.
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

    /// In a forked process, leaves everything of the store as it is, for good; `true` if there was anything.
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

    /// Begins the reads of who waits in line.
    fn begin_waiting(&mut self) {
        let Some((blocks, admission)) = &self.of else { return };
        let asked = &mut self.asked;
        admission.begin(|address, permit| Claimed::begin(claim(blocks, address), permit, asked));
        self.push_asked();
    }

    /// Gives back what it does not need while nothing is in flight, and a store that was closed.
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

    /// Sends what there is room for; `false` if nothing is in flight then.
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

    /// Takes what has ended; waits for it while the future was not woken.
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
        // What goes on when these end asks elsewhere, as does who waits in line.
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
