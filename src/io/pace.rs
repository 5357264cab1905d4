//! Pacing of background I/O: sets the rate of merges, so that they finish in time and without bursts.
//!
//! The pacer keeps accounts in a clock's nanoseconds and never waits. A merge does one quantum, notes it here
//! and asks when the next is due. Its worker then waits on an event, which ends the wait early when
//! conditions change. Flushes note the bytes they wrote and never ask, because a memtable waits for each of
//! them. Any thread may call; the lock is held for a few instructions.
//!
//! One formula: merges are to pay the debt off in three quarters of the time before it would slow writers.
//!
//! ```text
//! rate      = debt x 2 (it is read and written) x 4/3 / time left, and at least RATE_MIN
//! time left = flushes left x time between flushes - time since the last one
//! ```
//!
//! A small debt gives an even rate somewhat above the writers' need. Each flush that comes before the debt is
//! paid off raises the rate. Once writers are slowed there is no limit. Without writes the time between
//! flushes grows and the rate falls to its minimum, so an idle store finishes its merges. While readers keep
//! the device busy, merges finish just in time: the rate is 3/4 of the usual one, and its minimum is lower.
//!
//! The cap is a second account: a limit in bytes per second for merges and flushes together. Merges obey it
//! at any debt. They wait at most a second for bytes that flushes wrote, so flushes cannot starve them.

use crate::base::sync::{AtomicU64, Mutex, Ordering};

/// Minimum rate of merges, in bytes per second, however small the debt is.
const RATE_MIN: u64 = 32 << 20;
/// Minimum rate while readers keep the device busy.
const RATE_MIN_YIELDING: u64 = RATE_MIN / 4;

/// Burst: the unused cap of this much time may be used at once.
const BURST_NS: u64 = 50_000_000;

/// Longest wait of merges for bytes that flushes wrote.
const FLUSHES_NS_MAX: u64 = 1_000_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// How far merges are behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Debt {
    /// Bytes waiting to be merged.
    pub(crate) bytes: u64,
    /// Flushes until writers are slowed; 0: they are slowed now.
    pub(crate) flushes_left: u64,
}

/// Part of a merge, done without a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Quantum {
    pub(crate) began_ns: u64,
    /// Bytes read plus bytes written.
    pub(crate) bytes: u64,
}

/// Whether merges yield to busy readers or run without the limit of the debt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Urgency {
    No,
    /// Readers keep the device busy.
    Yielding,
    /// A caller waits for the merges: only the cap limits them.
    Awaited,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// Bytes a second; 0: no cap.
    cap: u64,
    state: Mutex<PacerState>,
    paced_bytes: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PacerState {
    /// Time until which the cap is used up.
    capped_ns: u64,
    debt: Debt,
    /// End of the last flush; `None` before the first.
    flushed_ns: Option<u64>,
    /// Smoothed time between flushes; 0 before the second flush.
    interval_ns: u64,
}

impl PacerState {
    /// Rate that the debt asks for; `None`: no limit.
    fn rate(&self, now_ns: u64, urgency: Urgency) -> Option<u64> {
        let (thirds, least) = match urgency {
            Urgency::No => (8, RATE_MIN),
            Urgency::Yielding => (6, RATE_MIN_YIELDING),
            Urgency::Awaited => return None,
        };
        if self.debt.flushes_left == 0 {
            return None;
        }
        let Some(flushed_ns) = self.flushed_ns else { return Some(least) };
        let since_ns = now_ns.saturating_sub(flushed_ns);
        let interval_ns = self.interval_ns.max(since_ns.saturating_mul(2));
        let left_ns = interval_ns.saturating_mul(self.debt.flushes_left) - since_ns;
        let bytes = u128::from(self.debt.bytes) * thirds / 3;
        let rate = bytes * u128::from(SECOND_NS) / u128::from(left_ns.max(1));
        Some(u64::try_from(rate).unwrap_or(u64::MAX).max(least))
    }
}

impl Pacer {
    pub(crate) fn new(cap: u64) -> Pacer {
        Pacer { cap, ..Pacer::default() }
    }

    pub(crate) fn set_debt(&self, debt: Debt) {
        self.state.lock().debt = debt;
    }

    /// Notes the end of a flush that wrote `bytes`.
    pub(crate) fn flushed(&self, now_ns: u64, bytes: u64) {
        let took_ns = self.capped_for(bytes);
        let mut state = self.state.lock();
        if let Some(flushed_ns) = state.flushed_ns.replace(now_ns) {
            let interval_ns = now_ns.saturating_sub(flushed_ns);
            state.interval_ns = match state.interval_ns {
                0 => interval_ns,
                before => before / 4 * 3 + interval_ns / 4,
            };
        }
        let capped_ns = state.capped_ns.max(now_ns.saturating_sub(BURST_NS));
        let most_ns = capped_ns.max(now_ns.saturating_add(FLUSHES_NS_MAX));
        state.capped_ns = capped_ns.saturating_add(took_ns).min(most_ns);
    }

    /// Notes that a merge has done a quantum.
    pub(crate) fn merged(&self, quantum: Quantum) {
        let took_ns = self.capped_for(quantum.bytes);
        let mut state = self.state.lock();
        let capped_ns = state.capped_ns.max(quantum.began_ns.saturating_sub(BURST_NS));
        state.capped_ns = capped_ns.saturating_add(took_ns);
    }

    /// Time at which the next quantum after `last` is due; in the past if it is due at once.
    pub(crate) fn due_ns(&self, now_ns: u64, last: Quantum, urgency: Urgency) -> u64 {
        let state = *self.state.lock();
        let by_cap_ns = if self.cap > 0 { state.capped_ns } else { 0 };
        match state.rate(now_ns, urgency) {
            Some(rate) => by_cap_ns.max(last.began_ns.saturating_add(time_ns(last.bytes, rate))),
            None => by_cap_ns,
        }
    }

    /// Counts `bytes` of a quantum after which a merge waits.
    pub(crate) fn count_paced(&self, bytes: u64) {
        self.paced_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of all quanta after which a merge had to wait.
    pub(crate) fn paced_bytes(&self) -> u64 {
        self.paced_bytes.load(Ordering::Relaxed)
    }

    /// Current limit of reads and writes by merges, in bytes per second; 0: no limit.
    pub(crate) fn rate(&self, now_ns: u64, urgency: Urgency) -> u64 {
        let by_debt = self.state.lock().rate(now_ns, urgency);
        let cap = Some(self.cap).filter(|cap| *cap > 0);
        by_debt.into_iter().chain(cap).min().unwrap_or(0)
    }

    fn capped_for(&self, bytes: u64) -> u64 {
        if self.cap == 0 { 0 } else { time_ns(bytes, self.cap) }
    }
}

/// Time that `bytes` take at `rate`, in bytes per second.
fn time_ns(bytes: u64, rate: u64) -> u64 {
    let ns = u128::from(bytes) * u128::from(SECOND_NS) / u128::from(rate.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pacer(cap: u64, bytes: u64, flushes_left: u64) -> Pacer {
        let pacer = Pacer::new(cap);
        pacer.set_debt(Debt { bytes, flushes_left });
        pacer
    }

    /// The rate pays the debt off in three quarters of the time that is left. It grows with the debt and with
    /// the time passed, and has no limit once writers are slowed.
    #[test]
    fn the_rate_follows_the_debt() {
        let pacer = pacer(0, 300 * MIB, 2);
        let rate = |now_s: u64| pacer.rate(now_s * SECOND_NS, Urgency::No);
        assert_eq!(rate(0), RATE_MIN);
        pacer.flushed(5 * SECOND_NS, 0);
        pacer.flushed(15 * SECOND_NS, 0);
        // 800 MiB in two times ten seconds, minus the seconds that have passed.
        assert_eq!([rate(15), rate(19)], [40 * MIB, 50 * MIB]);
        pacer.set_debt(Debt { bytes: 300 * MIB, flushes_left: 1 });
        assert_eq!(rate(15), 80 * MIB);
        pacer.set_debt(Debt { bytes: 600 * MIB, flushes_left: 1 });
        assert_eq!(rate(15), 160 * MIB);
        assert_eq!(pacer.rate(15 * SECOND_NS, Urgency::Awaited), 0);
        // No flush comes any more: the rate falls to the minimum and stays there.
        assert_eq!(rate(1_000_000), RATE_MIN);
        pacer.set_debt(Debt { bytes: 600 * MIB, flushes_left: 0 });
        assert_eq!(rate(15), 0);
        pacer.set_debt(Debt { bytes: u64::MAX, flushes_left: u64::MAX });
        assert!(rate(15) > 0 && rate(u64::MAX / SECOND_NS) > 0);
    }

    /// Beside busy readers the debt is paid off in all of the time that is left, and the minimum rate is
    /// lower. Once writers are slowed, merges do not yield.
    #[test]
    fn merges_yield_to_readers() {
        let pacer = pacer(0, 300 * MIB, 1);
        let rate = |now_s: u64| pacer.rate(now_s * SECOND_NS, Urgency::Yielding);
        assert_eq!(rate(0), RATE_MIN_YIELDING);
        pacer.flushed(5 * SECOND_NS, 0);
        pacer.flushed(15 * SECOND_NS, 0);
        assert_eq!(rate(15), 60 * MIB);
        assert_eq!(rate(1_000_000), RATE_MIN_YIELDING);
        let last = Quantum { began_ns: 0, bytes: 60 * MIB };
        assert_eq!(pacer.due_ns(15 * SECOND_NS, last, Urgency::Yielding), SECOND_NS);
        pacer.set_debt(Debt { bytes: 300 * MIB, flushes_left: 0 });
        assert_eq!(rate(15), 0);
    }

    /// The next quantum is due once the last has taken its time at the rate, counted from its beginning.
    #[test]
    fn quanta_take_their_time() {
        let paced = pacer(0, 0, 1);
        let last = Quantum { began_ns: 500, bytes: 2 * RATE_MIN };
        assert_eq!(paced.due_ns(600, last, Urgency::No), 500 + 2 * SECOND_NS);
        assert_eq!(paced.due_ns(600, last, Urgency::Awaited), 0);
        assert_eq!(pacer(0, 0, 0).due_ns(600, last, Urgency::No), 0);
        assert_eq!(Pacer::new(0).due_ns(600, Quantum::default(), Urgency::No), 0);
    }

    /// Merges obey the cap at any debt, also when a caller waits for them. Bytes of flushes count, for a
    /// second at most.
    #[test]
    fn merges_keep_to_the_cap() {
        let pacer = pacer(MIB, 0, 0);
        assert_eq!(pacer.rate(0, Urgency::Awaited), MIB);
        let (mut now_ns, mut done) = (10 * SECOND_NS, 0);
        while now_ns < 20 * SECOND_NS {
            let quantum = Quantum { began_ns: now_ns, bytes: 100_000 };
            pacer.merged(quantum);
            done += quantum.bytes;
            now_ns = now_ns.max(pacer.due_ns(now_ns, quantum, Urgency::Awaited));
        }
        let most = 10 * MIB + MIB / 20 + 100_000;
        assert!((10 * MIB..=most).contains(&done), "{done}");
        let due_ns = |now_ns| pacer.due_ns(now_ns, Quantum::default(), Urgency::No);
        pacer.flushed(30 * SECOND_NS, MIB / 2);
        assert_eq!(due_ns(30 * SECOND_NS), 30 * SECOND_NS - BURST_NS + SECOND_NS / 2);
        pacer.flushed(30 * SECOND_NS, 100 * MIB);
        assert_eq!(due_ns(30 * SECOND_NS), 31 * SECOND_NS);
        pacer.flushed(30 * SECOND_NS, 100 * MIB);
        assert_eq!(due_ns(30 * SECOND_NS), 31 * SECOND_NS);
        // Without a cap no account is kept.
        let free = Pacer::new(0);
        free.flushed(1, u64::MAX);
        assert_eq!(free.due_ns(1, Quantum::default(), Urgency::No), 0);
    }

    /// The bytes of quanta followed by a wait are counted.
    #[test]
    fn paced_bytes_are_counted() {
        let pacer = Pacer::new(1);
        pacer.count_paced(3);
        pacer.count_paced(4);
        assert_eq!(pacer.paced_bytes(), 7);
    }
}
