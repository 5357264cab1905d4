//! Windows of reads for a fixed time: rate and percentiles of latency.
//!
//! A window is not a multi-threaded benchmark: one thread reads, one operation after another. Its callers are
//! the experiments on deletion. All latencies of a window are kept.

use std::time::{Duration, Instant};

use trine_workload::failure::Failure;
use trine_workload::text::nanoseconds;

use super::a_second;
use crate::lab::stop_if_asked;

/// A rate that falls by less than this counts as steady: the windows of one store differ by as much.
pub(super) const STEADY_PERCENT: f64 = -20.0;

/// Rate and latencies of one window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) rate: f64,
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
}

impl Window {
    /// Repeats `operation` until `length` is over, at least once.
    pub(super) fn measure(
        length: Duration,
        mut operation: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Window, Failure> {
        stop_if_asked()?;
        let started = Instant::now();
        let mut latencies = Vec::new();
        let mut before = started;
        loop {
            operation()?;
            let now = Instant::now();
            latencies.push(now - before);
            before = now;
            if now - started >= length {
                return Ok(Window::of(&latencies));
            }
        }
    }

    /// The window of consecutive operations; the rate excludes the time between them.
    pub(super) fn of(latencies: &[Duration]) -> Window {
        let total: Duration = latencies.iter().sum();
        let rate = latencies.len() as f64 / total.as_secs_f64().max(1e-9);
        let ns = |one: &Duration| u64::try_from(one.as_nanos()).unwrap_or(u64::MAX);
        let [p50_ns, p99_ns] = percentiles(latencies.iter().map(ns).collect());
        Window { rate, p50_ns, p99_ns }
    }

    /// Rate and both percentiles, for a table.
    pub(super) fn cell(&self) -> String {
        format!("{} ({}, {})", a_second(self.rate), nanoseconds(self.p50_ns), nanoseconds(self.p99_ns))
    }
}

/// The 50th and the 99th percentile by the nearest rank; 0 of no values.
fn percentiles(mut values: Vec<u64>) -> [u64; 2] {
    values.sort_unstable();
    [50, 99].map(|percent| {
        let rank = (values.len() * percent).div_ceil(100);
        values.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Percentiles are those of the nearest rank, in any order of the values.
    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        assert_eq!(percentiles(Vec::new()), [0, 0]);
        assert_eq!(percentiles(vec![7]), [7, 7]);
        assert_eq!(percentiles((1..=200).rev().collect()), [100, 198]);
    }

    /// A window of no length still has one operation, and an error ends it.
    #[test]
    fn a_window_has_an_operation() {
        let mut count = 0;
        let one = || {
            count += 1;
            Ok(())
        };
        assert!(Window::measure(Duration::ZERO, one).expect("no failure").rate > 0.0);
        assert_eq!(count, 1);
        let failing = || Err(Failure::Other("a wrong answer".to_string()));
        assert!(Window::measure(Duration::from_secs(60), failing).is_err());
    }
}
