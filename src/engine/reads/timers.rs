//! Timers: deadlines of operations that wait.
//!
//! It has no clock and no thread. The worker of the reads asks for due timers, and how long it may sleep. Any
//! thread adds and drops timers.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::base::sync::{Arc, Mutex, wake_all};

#[derive(Default)]
pub(super) struct Timers {
    state: Mutex<TimersState>,
}

#[derive(Default)]
struct TimersState {
    /// Ordered by time; the second number distinguishes timers of the same moment.
    wakers: BTreeMap<(u64, u64), Waker>,
    next: u64,
    /// The time until which the worker sleeps, if there is one.
    looked_for_ns: Option<u64>,
    /// The worker has ended: new timers are woken at once.
    is_closed: bool,
}

/// A timer whose waker is woken at its time, unless it is dropped before.
pub(crate) struct Timer {
    timers: Arc<Timers>,
    key: (u64, u64),
}

impl Timers {
    /// Adds a timer; the flag says whether it is earlier than the worker's sleep.
    pub(super) fn add(self: &Arc<Timers>, ns: u64, waker: &Waker) -> (Timer, bool) {
        let own = waker.clone();
        let mut state = self.state.lock();
        let key = (ns, state.next);
        state.next += 1;
        state.wakers.insert(key, own);
        let is_earlier = state.looked_for_ns.is_none_or(|looked_for_ns| ns < looked_for_ns);
        if is_earlier {
            state.looked_for_ns = Some(ns);
        }
        let is_closed = state.is_closed;
        drop(state);
        if is_closed {
            waker.wake_by_ref();
        }
        (Timer { timers: Arc::clone(self), key }, is_earlier)
    }

    /// Wakes due timers; returns the time until the next one, if there is any.
    pub(super) fn wake_due(&self, now_ns: u64) -> Option<u64> {
        let mut state = self.state.lock();
        let first_ns = |state: &TimersState| state.wakers.first_key_value().map(|((ns, _), _)| *ns);
        let mut due = BTreeMap::new();
        if first_ns(&state).is_some_and(|first_ns| first_ns <= now_ns) {
            let later = state.wakers.split_off(&(now_ns.saturating_add(1), 0));
            due = std::mem::replace(&mut state.wakers, later);
        }
        state.looked_for_ns = first_ns(&state);
        let next_ns = state.looked_for_ns.map(|next_ns| next_ns - now_ns);
        drop(state);
        wake_all(due.into_values());
        next_ns
    }

    /// Wakes all timers, and every later one at once.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let all = std::mem::take(&mut state.wakers);
        drop(state);
        wake_all(all.into_values());
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let removed = self.timers.state.lock().wakers.remove(&self.key);
        drop(removed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::sync::Event;

    /// Timers of these times, and the event that each wakes.
    fn timers<const COUNT: usize>(times_ns: [u64; COUNT]) -> (Arc<Timers>, [(Timer, Arc<Event>); COUNT]) {
        let timers = Arc::new(Timers::default());
        let of = times_ns.map(|ns| {
            let woken: Arc<Event> = Arc::default();
            (timers.add(ns, &woken.waker()).0, woken)
        });
        (timers, of)
    }

    fn woken<const COUNT: usize>(of: &[(Timer, Arc<Event>); COUNT]) -> [u64; COUNT] {
        of.each_ref().map(|(_, woken)| woken.seen())
    }

    /// A due timer is woken once, and the time until the next one is returned. A timer is due at its exact
    /// time.
    #[test]
    fn due_timers_are_woken() {
        let (timers, of) = timers([30, 10, 20, 20, 0]);
        assert_eq!(timers.wake_due(0), Some(10));
        assert_eq!(woken(&of), [0, 0, 0, 0, 1]);
        assert_eq!((timers.wake_due(9), woken(&of)), (Some(1), [0, 0, 0, 0, 1]));
        assert_eq!((timers.wake_due(10), woken(&of)), (Some(10), [0, 1, 0, 0, 1]));
        assert_eq!((timers.wake_due(25), woken(&of)), (Some(5), [0, 1, 1, 1, 1]));
        assert_eq!((timers.wake_due(u64::MAX), woken(&of)), (None, [1; 5]));
        assert_eq!((timers.wake_due(u64::MAX), woken(&of)), (None, [1; 5]));
    }

    /// Timers are woken in the order of their times, and in order of arrival at one moment.
    #[test]
    fn the_order_is_that_of_the_times() {
        struct Noting(u8, Arc<Mutex<Vec<u8>>>);
        impl std::task::Wake for Noting {
            fn wake(self: Arc<Noting>) {
                self.1.lock().push(self.0);
            }
        }
        let (timers, order) = (Arc::new(Timers::default()), Arc::<Mutex<Vec<u8>>>::default());
        let add = |(number, ns)| timers.add(ns, &Arc::new(Noting(number, Arc::clone(&order))).into()).0;
        let _of: Vec<Timer> = [(0, 7), (1, 3), (2, 7), (3, 5)].map(add).into();
        assert_eq!(timers.wake_due(8), None);
        assert_eq!(*order.lock(), [1, 3, 0, 2]);
    }

    /// A sleeping worker must be told only of a timer earlier than its sleep, even if the timer it sleeps for
    /// was dropped.
    #[test]
    fn sleepers_are_told_only_of_earlier_timers() {
        let timers = Arc::new(Timers::default());
        let add = |ns| timers.add(ns, Waker::noop());
        let [(later, is_first), (earlier, is_earlier), (equal, is_equal)] = [20, 10, 10].map(add);
        assert_eq!((is_first, is_earlier, is_equal), (true, true, false));
        drop((later, earlier, equal));
        assert!(!add(30).1);
        assert_eq!(timers.wake_due(10), None);
        let (slept_for, is_first) = add(30);
        assert_eq!((is_first, timers.wake_due(20)), (true, Some(10)));
        assert_eq!((add(40).1, add(29).1), (false, true));
        drop(slept_for);
    }

    /// A dropped timer wakes nothing, is not slept for, and frees its waker. Its drop leaves other timers of
    /// the same moment alone.
    #[test]
    fn dropped_timers_wake_no_task() {
        let (timers, [first, dropped, last]) = timers([10, 10, 20]);
        drop(dropped.0);
        assert_eq!(Arc::strong_count(&dropped.1), 1);
        drop(last.0);
        assert_eq!(timers.wake_due(5), Some(5));
        assert_eq!(timers.wake_due(30), None);
        assert_eq!([first.1.seen(), dropped.1.seen(), last.1.seen()], [1, 0, 0]);
        drop(first.0);
    }

    /// Closing wakes all timers, and later ones at once.
    #[test]
    fn the_end_wakes_all() {
        let (timers, of) = timers([10, u64::MAX]);
        timers.close();
        assert_eq!(woken(&of), [1, 1]);
        let late: Arc<Event> = Arc::default();
        let timer = timers.add(u64::MAX, &late.waker()).0;
        assert_eq!(late.seen(), 1);
        drop(timer);
        assert_eq!((woken(&of), Arc::strong_count(&late)), ([1, 1], 1));
    }
}
