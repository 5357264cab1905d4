//! Limits the reads of futures that are in flight, by number and by bytes. Blocks that have come and whose
//! futures were not polled since count towards the bytes. Without room a read waits for its turn, in the
//! order of arrival.
//!
//! Who has a [`Permit`] counts until that is dropped. A turn is not told to its owner, who may be polled late
//! or never: [`Admission::begin`] begins the read in its place, and whoever reads calls that whenever
//! something has ended. Any thread; there is one of these for the driver thread of a store and one for each
//! `block_on`.
//!
//! 1. Admitted reads never exceed the limits, but for one read alone.
//! 2. The first in line is admitted when `begin` is called and there is room for it; nobody overtakes it but
//!    those of operations that have begun.
//! 3. A place in line that is dropped holds up nobody. A read that was begun for it goes on.
//! 4. Who calls `begin` is woken when there may be room and it was not who made it.

use std::collections::BTreeMap;
use std::task::{Poll, Waker};

use crate::base::reserve::{Reserve, Role};
use crate::base::step::BlockAddress;
use crate::base::sync::{Arc, Mutex, wake_all};
use crate::cache::{BlockRef, Waiter};

/// Part of the bytes that reads in flight may have however many blocks wait for a poll.
const FLIGHTS_LEAST_PART: u64 = 4;

/// See the module.
pub(in crate::engine) struct Admission {
    state: Mutex<State>,
    /// Of whoever calls `begin`.
    reader: Waker,
    /// Its role `Untaken` counts towards the bytes; `None` in a `block_on`.
    reserve: Option<Arc<Reserve>>,
}

/// What may be in flight.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::engine) struct Limits {
    pub(in crate::engine) reads: u64,
    pub(in crate::engine) bytes: u64,
}

/// What came of a block that was asked for: it was here, or is being read.
pub(in crate::engine) type Begun = Result<BlockRef, Waiter>;

/// A turn that has come.
pub(in crate::engine) enum Turn {
    /// The owner begins its read now.
    Own(Permit),
    /// It was begun in its place.
    Begun(Waiter),
}

#[derive(Default)]
struct State {
    limits: Limits,
    admitted: Limits,
    line: BTreeMap<Number, Waiting>,
    /// Those whose turn came and who have not been polled since.
    begun: BTreeMap<Number, Ready>,
    next: u64,
    /// Nobody calls `begin` any more: there is no limit.
    is_closed: bool,
}

/// Place in line: those that have begun before those that have not, and then by arrival.
type Number = (bool, u64);

struct Waiting {
    address: BlockAddress,
    waker: Waker,
}

struct Ready {
    waker: Option<Waker>,
    /// `None` while it is being begun.
    begun: Option<Waiter>,
}

/// A place in line, or a read that was begun for it.
pub(in crate::engine) struct Place {
    admission: Arc<Admission>,
    number: Number,
}

/// A read that is admitted.
pub(in crate::engine) struct Permit {
    admission: Arc<Admission>,
    bytes: u64,
}

impl State {
    fn admit(&mut self, bytes: u64) {
        self.admitted.reads += 1;
        self.admitted.bytes += bytes;
    }
}

impl Admission {
    /// `reader` is of whoever calls `begin`, `reserve` grants what counts beside what is in flight.
    pub(in crate::engine) fn new(
        limits: Limits,
        reader: Waker,
        reserve: Option<Arc<Reserve>>,
    ) -> Arc<Admission> {
        Arc::new(Admission { state: Mutex::new(State { limits, ..State::default() }), reader, reserve })
    }

    /// One read alone has room in any case, and reads within a part of the limit have it however many blocks
    /// wait for a poll: when such a read ends, the oldest of these blocks makes room for it.
    fn has_room(&self, state: &State, bytes: u64) -> bool {
        let Limits { reads, bytes: all } = state.admitted;
        let untaken_bytes = self.reserve.as_ref().map_or(0, |reserve| reserve.bytes(Role::Untaken));
        let limit = state.limits.bytes;
        let left_bytes = limit.saturating_sub(untaken_bytes).max(limit / FLIGHTS_LEAST_PART);
        let is_within = reads < state.limits.reads && all + bytes <= left_bytes;
        reads == 0 || is_within || state.is_closed
    }

    /// From now on; what is admitted already stays so.
    pub(in crate::engine) fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
    }

    pub(in crate::engine) fn limits(&self) -> Limits {
        self.state.lock().limits
    }

    /// Admits a read of the block, at once if there is room and nobody waits; else `place` is one in line,
    /// and `waker` is woken when its read was begun. `has_begun`: others of its operation were admitted.
    pub(in crate::engine) fn poll(
        self: &Arc<Admission>,
        place: &mut Option<Place>,
        (address, has_begun): (&BlockAddress, bool),
        waker: &Waker,
    ) -> Poll<Turn> {
        // Wakers are made and dropped outside the lock: what they wake may have a place of its own.
        let waker = waker.clone();
        let mut state = self.state.lock();
        if let Some(own) = place {
            let (looked, _replaced) = state.look(own.number, waker.clone());
            drop(state);
            let Some(begun) = looked else { return Poll::Pending };
            *place = None;
            return match begun {
                Some(waiter) => Poll::Ready(Turn::Begun(waiter)),
                // The line is gone.
                None => self.poll(place, (address, has_begun), &waker),
            };
        }
        let bytes = u64::from(address.bytes);
        let is_first = state.line.first_key_value().is_none_or(|(first, _)| has_begun && first.0);
        if state.is_closed || (is_first && self.has_room(&state, bytes)) {
            state.admit(bytes);
            return Poll::Ready(Turn::Own(Permit { admission: Arc::clone(self), bytes }));
        }
        let number = (!has_begun, state.next);
        state.next += 1;
        state.line.insert(number, Waiting { address: *address, waker });
        drop(state);
        *place = Some(Place { admission: Arc::clone(self), number });
        Poll::Pending
    }

    /// Admits a read of so many bytes, if there is room now and nobody waits.
    pub(in crate::engine) fn try_now(self: &Arc<Admission>, bytes: u64) -> Option<Permit> {
        let mut state = self.state.lock();
        if !state.line.is_empty() || !self.has_room(&state, bytes) {
            return None;
        }
        state.admit(bytes);
        Some(Permit { admission: Arc::clone(self), bytes })
    }

    /// Begins the reads of those first in line for whom there is room. Of one thread at a time.
    pub(in crate::engine) fn begin(
        self: &Arc<Admission>,
        mut begin: impl FnMut(&BlockAddress, Permit) -> Begun,
    ) {
        while let Some((number, address, permit)) = self.admit_first() {
            // Its owner may be polled late: it holds no block meanwhile, and asks for what was here again.
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
                // Its owner has gone meanwhile.
                None => (None, Some(begun)),
            };
            drop(state);
            drop(dropped);
            wake_all(waker);
        }
    }

    fn admit_first(self: &Arc<Admission>) -> Option<(Number, BlockAddress, Permit)> {
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

    /// What is in flight, and how many wait.
    pub(in crate::engine) fn counts(&self) -> (Limits, u64) {
        let state = self.state.lock();
        (state.admitted, state.line.len() as u64)
    }

    /// There is no line any more: its members are woken, and begin their reads themselves. So do those whose
    /// read was being begun when the caller of `begin` panicked. Not while `begin` runs.
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

impl State {
    /// What was begun for a place, `Some(None)` if it is in line no more. Else its waker is the new one; the
    /// other is to be dropped outside the lock.
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

impl Place {
    pub(in crate::engine) fn is_of(&self, admission: &Arc<Admission>) -> bool {
        Arc::ptr_eq(&self.admission, admission)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.release(self.bytes);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        let waited = state.line.remove(&self.number);
        let begun = state.begun.remove(&self.number);
        // Who comes next may need less room.
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
