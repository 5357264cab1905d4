//! How many reads of futures may be in flight, and of how many bytes: whoever comes when there is no room
//! waits for its turn, in the order of arrival.
//!
//! It knows no reads: who has a [`Permit`] counts until that is dropped. Any thread.
//!
//! 1. What is admitted never exceeds the limits, but for one read larger than all.
//! 2. The first in line is admitted as soon as there is room for it; nobody overtakes it but those of
//!    operations that have begun, of which there are never more than were admitted.
//! 3. A place in line that is dropped holds up nobody: also one that was admitted and has not been told.

use std::collections::BTreeMap;
use std::task::{Poll, Waker};

use crate::base::sync::{Arc, Mutex, wake_all};

/// See the module.
#[derive(Default)]
pub(in crate::engine) struct Admission {
    state: Mutex<State>,
}

/// What may be in flight.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::engine) struct Limits {
    pub(in crate::engine) reads: u64,
    pub(in crate::engine) bytes: u64,
}

#[derive(Default)]
struct State {
    limits: Limits,
    admitted: Limits,
    line: BTreeMap<Number, Waiting>,
    next: u64,
}

/// Place in line: those that have begun before those that have not, and then by arrival.
type Number = (bool, u64);

struct Waiting {
    bytes: u64,
    waker: Waker,
}

/// A place in line, or an admission that its owner has not seen yet.
pub(in crate::engine) struct Place {
    admission: Arc<Admission>,
    /// `None` once it was turned into a permit.
    number: Option<Number>,
    bytes: u64,
}

/// A read that is admitted.
pub(in crate::engine) struct Permit {
    admission: Arc<Admission>,
    bytes: u64,
}

impl State {
    fn has_room(&self, bytes: u64) -> bool {
        let Limits { reads, bytes: all } = self.admitted;
        reads == 0 || (reads < self.limits.reads && all + bytes <= self.limits.bytes)
    }

    fn admit(&mut self, bytes: u64) {
        self.admitted.reads += 1;
        self.admitted.bytes += bytes;
    }

    /// Admits those first in line for whom there is room.
    fn admit_waiting(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(bytes) = self.line.first_key_value().map(|(_, first)| first.bytes) {
            if !self.has_room(bytes) {
                break;
            }
            wakers.extend(self.line.pop_first().map(|(_, first)| first.waker));
            self.admit(bytes);
        }
        wakers
    }
}

impl Admission {
    /// From now on; what is admitted already stays so.
    pub(in crate::engine) fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
    }

    /// Admits a read of `bytes`, at once if there is room and nobody waits; else `place` is one in line and
    /// `waker` is woken when it is this one's turn. `has_begun`: others of its operation were admitted.
    pub(in crate::engine) fn poll(
        self: &Arc<Admission>,
        place: &mut Option<Place>,
        (bytes, has_begun): (u64, bool),
        waker: &Waker,
    ) -> Poll<Permit> {
        // Wakers are made and dropped outside the lock: what they wake may have a place of its own.
        let mut waker = waker.clone();
        let mut state = self.state.lock();
        if let Some(own) = place.as_mut() {
            let number = own.number.expect("a place that was used is gone");
            if let Some(waiting) = state.line.get_mut(&number) {
                std::mem::swap(&mut waiting.waker, &mut waker);
                drop(state);
                return Poll::Pending;
            }
            drop(state);
            own.number = None;
            let bytes = own.bytes;
            *place = None;
            return Poll::Ready(Permit { admission: Arc::clone(self), bytes });
        }
        let is_first = state.line.first_key_value().is_none_or(|(first, _)| has_begun && first.0);
        if is_first && state.has_room(bytes) {
            state.admit(bytes);
            return Poll::Ready(Permit { admission: Arc::clone(self), bytes });
        }
        let number = (!has_begun, state.next);
        state.next += 1;
        state.line.insert(number, Waiting { bytes, waker });
        drop(state);
        *place = Some(Place { admission: Arc::clone(self), number: Some(number), bytes });
        Poll::Pending
    }

    /// What is in flight, and how many wait.
    pub(in crate::engine) fn counts(&self) -> (Limits, u64) {
        let state = self.state.lock();
        (state.admitted, state.line.len() as u64)
    }

    fn release(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.admitted.reads -= 1;
        state.admitted.bytes -= bytes;
        let wakers = state.admit_waiting();
        drop(state);
        wake_all(wakers);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.release(self.bytes);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.admission.state.lock();
        let waited = state.line.remove(&number);
        if waited.is_none() {
            drop(state);
            return self.admission.release(self.bytes);
        }
        // Who comes next may need less room.
        let wakers = state.admit_waiting();
        drop(state);
        drop(waited);
        wake_all(wakers);
    }
}

#[cfg(all(loom, test))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
