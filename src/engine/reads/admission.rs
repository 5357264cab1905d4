//! Limits the reads of futures that are in flight, by count and by bytes. Blocks that were read and whose
//! futures were not polled since count towards the bytes. When the limits are reached, further reads queue in
//! FIFO order.
//!
//! A read counts from its [`Permit`] until the permit is dropped. The owner of a queued read may be polled
//! late or never, so its turn is not left to the owner. [`ReadAdmission::begin`] begins the read in the
//! owner's place; the reader thread calls it whenever a read has ended. Any thread may use this. There is one
//! for the driver thread of a store and one for each `block_on`.
//!
//! 1. Admitted reads never exceed the limits, except that one read alone is always admitted.
//! 2. `begin` admits the first read in the queue when there is room for it. Only reads of operations that
//!    have begun may overtake it.
//! 3. Dropping a place in the queue delays no other read. A read that was begun for the place goes on.
//! 4. The caller of `begin` is woken when another thread may have made room.

use std::collections::BTreeMap;
use std::task::{Poll, Waker};

use crate::base::reserve::{Reserve, Role};
use crate::base::step::BlockAddress;
use crate::base::sync::{Arc, Mutex, wake_all};
use crate::cache::{BlockRef, Waiter};

/// The part of the byte limit that reads in flight may always use, however many blocks wait for a poll.
const FLIGHTS_LEAST_PART: u64 = 4;

/// See the module.
pub(in crate::engine) struct ReadAdmission {
    state: Mutex<AdmissionState>,
    /// Wakes the thread that calls `begin`.
    reader: Waker,
    /// The reserve whose role `Untaken` counts towards the bytes; `None` in a `block_on`.
    reserve: Option<Arc<Reserve>>,
}

/// Limits, or counts, of reads in flight.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::engine) struct ReadLimits {
    pub(in crate::engine) reads: u64,
    pub(in crate::engine) bytes: u64,
}

/// The result of asking for a block: the block, or a share in its read.
pub(in crate::engine) type BlockOrWaiter = Result<BlockRef, Waiter>;

/// A turn that has come.
pub(in crate::engine) enum ReadTurn {
    /// The owner must begin its read now.
    Own(Permit),
    /// The read was begun in the owner's place.
    Begun(Waiter),
}

#[derive(Default)]
struct AdmissionState {
    limits: ReadLimits,
    admitted: ReadLimits,
    line: BTreeMap<Number, Waiting>,
    /// Places whose turn came and whose owners were not polled since.
    begun: BTreeMap<Number, Ready>,
    next: u64,
    /// `begin` is no longer called: there is no limit.
    is_closed: bool,
}

/// Place in the queue: reads of operations that have begun come first, then the order of arrival.
type Number = (bool, u64);

struct Waiting {
    address: BlockAddress,
    waker: Waker,
}

struct Ready {
    waker: Option<Waker>,
    /// `None` while the read is being begun.
    begun: Option<Waiter>,
}

/// A place in the queue, or a read that was begun for it.
pub(in crate::engine) struct QueuedRead {
    admission: Arc<ReadAdmission>,
    number: Number,
}

/// The right to one read in flight, released on drop.
pub(in crate::engine) struct Permit {
    admission: Arc<ReadAdmission>,
    bytes: u64,
}

impl AdmissionState {
    fn admit(&mut self, bytes: u64) {
        self.admitted.reads += 1;
        self.admitted.bytes += bytes;
    }
}

impl ReadAdmission {
    /// `reader` wakes the caller of `begin`. `reserve` grants the bytes that count besides reads in flight.
    pub(in crate::engine) fn new(
        limits: ReadLimits,
        reader: Waker,
        reserve: Option<Arc<Reserve>>,
    ) -> Arc<ReadAdmission> {
        Arc::new(ReadAdmission {
            state: Mutex::new(AdmissionState { limits, ..AdmissionState::default() }),
            reader,
            reserve,
        })
    }

    /// One read alone always has room. Reads within a part of the limit also do, however many blocks wait for
    /// a poll: when such a read ends, the oldest of these blocks makes room for it.
    fn has_room(&self, state: &AdmissionState, bytes: u64) -> bool {
        let ReadLimits { reads, bytes: all } = state.admitted;
        let untaken_bytes = self.reserve.as_ref().map_or(0, |reserve| reserve.bytes(Role::Untaken));
        let limit = state.limits.bytes;
        let left_bytes = limit.saturating_sub(untaken_bytes).max(limit / FLIGHTS_LEAST_PART);
        let is_within = reads < state.limits.reads && all + bytes <= left_bytes;
        reads == 0 || is_within || state.is_closed
    }

    /// Sets the limits; admitted reads stay admitted.
    pub(in crate::engine) fn set_limits(&self, limits: ReadLimits) {
        self.state.lock().limits = limits;
    }

    pub(in crate::engine) fn limits(&self) -> ReadLimits {
        self.state.lock().limits
    }

    /// Admits a read of the block at once if there is room and the queue is empty. Otherwise `queued` becomes
    /// a place in the queue, and `waker` is woken when the read was begun. `has_begun` says that other reads
    /// of its operation were admitted.
    pub(in crate::engine) fn poll(
        self: &Arc<ReadAdmission>,
        queued: &mut Option<QueuedRead>,
        (address, has_begun): (&BlockAddress, bool),
        waker: &Waker,
    ) -> Poll<ReadTurn> {
        // Wakers are cloned and dropped outside the lock: a waker's task may hold a place of its own.
        let waker = waker.clone();
        let mut state = self.state.lock();
        if let Some(own) = queued {
            let (looked, _replaced) = state.look(own.number, waker.clone());
            drop(state);
            let Some(begun) = looked else { return Poll::Pending };
            *queued = None;
            return match begun {
                Some(waiter) => Poll::Ready(ReadTurn::Begun(waiter)),
                // The queue was closed.
                None => self.poll(queued, (address, has_begun), &waker),
            };
        }
        let bytes = u64::from(address.bytes);
        let is_first = state.line.first_key_value().is_none_or(|(first, _)| has_begun && first.0);
        if state.is_closed || (is_first && self.has_room(&state, bytes)) {
            state.admit(bytes);
            return Poll::Ready(ReadTurn::Own(Permit { admission: Arc::clone(self), bytes }));
        }
        let number = (!has_begun, state.next);
        state.next += 1;
        state.line.insert(number, Waiting { address: *address, waker });
        drop(state);
        *queued = Some(QueuedRead { admission: Arc::clone(self), number });
        Poll::Pending
    }

    /// Admits a read of `bytes` if there is room now and the queue is empty.
    pub(in crate::engine) fn try_now(self: &Arc<ReadAdmission>, bytes: u64) -> Option<Permit> {
        let mut state = self.state.lock();
        if !state.line.is_empty() || !self.has_room(&state, bytes) {
            return None;
        }
        state.admit(bytes);
        Some(Permit { admission: Arc::clone(self), bytes })
    }

    /// Begins the first reads in the queue for which there is room. One thread at a time may call this.
    pub(in crate::engine) fn begin(
        self: &Arc<ReadAdmission>,
        mut begin: impl FnMut(&BlockAddress, Permit) -> BlockOrWaiter,
    ) {
        while let Some((number, address, permit)) = self.admit_first() {
            // The owner may be polled late. It holds no block meanwhile, and asks again for a block that was
            // here.
            let begun = match begin(&address, permit) {
                Err(waiter) if waiter.may_idle() => waiter,
                Ok(_) | Err(_) => Waiter::gone(),
            };
            let mut state = self.state.lock();
            let (waker, dropped) = match state.begun.get_mut(&number) {
                Some(ready) => {
                    ready.begun = Some(begun);
                    (ready.waker.take(), None)
                }
                // The owner was dropped meanwhile.
                None => (None, Some(begun)),
            };
            drop(state);
            drop(dropped);
            wake_all(waker);
        }
    }

    fn admit_first(self: &Arc<ReadAdmission>) -> Option<(Number, BlockAddress, Permit)> {
        let mut state = self.state.lock();
        let bytes = u64::from(state.line.first_key_value()?.1.address.bytes);
        if !self.has_room(&state, bytes) {
            return None;
        }
        let (number, Waiting { address, waker }) = state.line.pop_first()?;
        state.begun.insert(number, Ready { waker: Some(waker), begun: None });
        state.admit(bytes);
        drop(state);
        Some((number, address, Permit { admission: Arc::clone(self), bytes }))
    }

    /// The reads in flight, and the length of the queue.
    pub(in crate::engine) fn counts(&self) -> (ReadLimits, u64) {
        let state = self.state.lock();
        (state.admitted, state.line.len() as u64)
    }

    /// Closes the queue: waiting owners are woken and begin their reads themselves. So do owners whose read
    /// was being begun when the caller of `begin` panicked. Must not run during `begin`.
    pub(in crate::engine) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let line = std::mem::take(&mut state.line);
        let mut unbegun = Vec::new();
        state.begun.retain(|_, ready| {
            if ready.begun.is_none() {
                unbegun.extend(ready.waker.take());
            }
            ready.begun.is_some()
        });
        drop(state);
        wake_all(line.into_values().map(|waiting| waiting.waker).chain(unbegun));
    }

    fn release(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.admitted.reads -= 1;
        state.admitted.bytes -= bytes;
        let is_awaited = !state.line.is_empty();
        drop(state);
        if is_awaited {
            self.reader.wake_by_ref();
        }
    }
}

impl AdmissionState {
    /// The read that was begun for a place; `Some(None)` if the place is no longer in the queue. Otherwise
    /// the new waker replaces the old one, which the caller must drop outside the lock.
    fn look(&mut self, number: Number, waker: Waker) -> (Option<Option<Waiter>>, Option<Waker>) {
        if let Some(waiting) = self.line.get_mut(&number) {
            return (None, Some(std::mem::replace(&mut waiting.waker, waker)));
        }
        match self.begun.get_mut(&number) {
            Some(Ready { waker: own, begun: None }) => (None, own.replace(waker)),
            _ => (Some(self.begun.remove(&number).and_then(|ready| ready.begun)), Some(waker)),
        }
    }
}

impl QueuedRead {
    pub(in crate::engine) fn is_of(&self, admission: &Arc<ReadAdmission>) -> bool {
        Arc::ptr_eq(&self.admission, admission)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.release(self.bytes);
    }
}

impl Drop for QueuedRead {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        let waited = state.line.remove(&self.number);
        let begun = state.begun.remove(&self.number);
        // The next read in the queue may need less room.
        let is_awaited = waited.is_some() && !state.line.is_empty();
        drop(state);
        drop((waited, begun));
        if is_awaited {
            self.admission.reader.wake_by_ref();
        }
    }
}

#[cfg(all(loom, test))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
