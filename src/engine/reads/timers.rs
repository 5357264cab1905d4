//! What is woken at a time: deadlines of operations that wait.
//!
//! It has no clock and no thread: the worker of the reads asks what is due, and how long it may sleep. Any
//! thread adds and drops timers.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::base::sync::{Arc, Mutex};

#[derive(Default)]
pub(super) struct Timers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By time; the second number tells those of one moment apart.
    wakers: BTreeMap<(u64, u64), Waker>,
    next: u64,
    /// Nobody looks at the time any more: whoever waits is woken at once.
    is_closed: bool,
}

/// A waker that is woken at its time, as long as this lives.
pub(crate) struct Timer {
    timers: Arc<Timers>,
    key: (u64, u64),
}

impl Timers {
    /// A timer, and whether none is earlier.
    pub(super) fn add(self: &Arc<Timers>, ns: u64, waker: &Waker) -> (Timer, bool) {
        let mut state = self.state.lock();
        let key = (ns, state.next);
        state.next += 1;
        state.wakers.insert(key, waker.clone());
        let is_first = state.wakers.first_key_value().is_some_and(|(first, _)| *first == key);
        let is_closed = state.is_closed;
        drop(state);
        if is_closed {
            waker.wake_by_ref();
        }
        (Timer { timers: Arc::clone(self), key }, is_first)
    }

    /// Wakes what is due; how long nothing more is, if there is anything.
    pub(super) fn wake_due(&self, now_ns: u64) -> Option<u64> {
        let mut state = self.state.lock();
        if state.wakers.is_empty() {
            return None;
        }
        let later = state.wakers.split_off(&(now_ns.saturating_add(1), 0));
        let due = std::mem::replace(&mut state.wakers, later);
        let next_ns = state.wakers.first_key_value().map(|(key, _)| key.0 - now_ns);
        drop(state);
        due.into_values().for_each(Waker::wake);
        next_ns
    }

    /// Wakes all, and whoever comes later.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let all = std::mem::take(&mut state.wakers);
        drop(state);
        all.into_values().for_each(Waker::wake);
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let removed = self.timers.state.lock().wakers.remove(&self.key);
        drop(removed);
    }
}
