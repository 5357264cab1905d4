//! The record of a thread: latencies by kind, counts of answers, and the first wrong answer.
//!
//! Each thread has its own record; they are added up when the workload ends. Threads share only the windows
//! of the time series, once a second.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use hdrhistogram::Histogram;
use trine_workload::failure::Failure;

const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Get,
    Put,
    Delete,
    Scan,
    ReadModifyWrite,
    /// Settling, flushing and similar work.
    Maintenance,
}

impl Kind {
    pub(super) const ALL: [Kind; 6] =
        [Kind::Get, Kind::Put, Kind::Delete, Kind::Scan, Kind::ReadModifyWrite, Kind::Maintenance];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Put => "put",
            Kind::Delete => "delete",
            Kind::Scan => "scan",
            Kind::ReadModifyWrite => "read-modify-write",
            Kind::Maintenance => "maintenance",
        }
    }
}

/// Answers by result.
#[derive(Clone, Default, Debug)]
pub(super) struct Answers {
    pub(super) found: u64,
    pub(super) absent: u64,
    /// Items returned by scans.
    pub(super) scanned: u64,
    pub(super) wrong: u64,
    pub(super) first_wrong: Option<String>,
}

impl Answers {
    pub(super) fn wrong(&mut self, describe: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first_wrong.get_or_insert_with(describe);
    }

    fn add(&mut self, other: Answers) {
        self.found += other.found;
        self.absent += other.absent;
        self.scanned += other.scanned;
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
    }
}

/// Operations of a kind, and the time of each measurement (of one or more operations).
#[derive(Clone, Debug)]
pub(super) struct Times {
    pub(super) operations: u64,
    pub(super) latency: Histogram<u64>,
}

pub(super) struct Record {
    times: [Option<Times>; Kind::ALL.len()],
    pub(super) operations: u64,
    pub(super) answers: Answers,
    /// Bytes of keys and values that are new to the store.
    pub(super) new_bytes: u64,
}

impl Record {
    pub(super) fn new() -> Record {
        Record {
            times: [const { None }; Kind::ALL.len()],
            operations: 0,
            answers: Answers::default(),
            new_bytes: 0,
        }
    }

    pub(super) fn take(&mut self, kind: Kind, operations: u64, ns: u64) -> Result<(), Failure> {
        self.operations += operations;
        let times = match &mut self.times[kind as usize] {
            Some(times) => times,
            empty => empty.insert(Times { operations: 0, latency: histogram(3)? }),
        };
        times.operations += operations;
        times.latency.saturating_record(ns.max(1));
        Ok(())
    }

    pub(super) fn add(&mut self, other: Record) -> Result<(), Failure> {
        self.operations += other.operations;
        self.answers.add(other.answers);
        self.new_bytes += other.new_bytes;
        for (mine, others) in self.times.iter_mut().zip(other.times) {
            let Some(others) = others else { continue };
            match mine {
                Some(mine) => {
                    mine.operations += others.operations;
                    mine.latency.add(&others.latency).map_err(no_histogram)?;
                }
                None => *mine = Some(others),
            }
        }
        Ok(())
    }

    pub(super) fn times(&self) -> impl Iterator<Item = (Kind, &Times)> {
        Kind::ALL.into_iter().zip(&self.times).filter_map(|(kind, times)| Some((kind, times.as_ref()?)))
    }

    /// The latencies of all kinds.
    pub(super) fn latency(&self) -> Result<Histogram<u64>, Failure> {
        let mut all = histogram(3)?;
        for (_, times) in self.times() {
            all.add(&times.latency).map_err(no_histogram)?;
        }
        Ok(all)
    }
}

fn histogram(digits: u8) -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, digits).map_err(no_histogram)
}

fn no_histogram(error: impl std::fmt::Display) -> Failure {
    Failure::Other(format!("no histogram: {error}"))
}

/// A second of a workload.
#[derive(Clone, Debug)]
pub(super) struct Second {
    pub(super) second: u64,
    pub(super) operations: u64,
    pub(super) p99_ns: u64,
}

/// The seconds of a workload, collected from all threads.
#[derive(Default)]
pub(super) struct Seconds {
    open: Mutex<BTreeMap<u64, (u64, Histogram<u64>)>>,
}

impl Seconds {
    fn add(&self, second: u64, operations: u64, window: &Histogram<u64>) -> Result<(), Failure> {
        let mut open = self.open.lock().expect("no thread panics while it holds the lock");
        match open.get_mut(&second) {
            Some((sum, latency)) => {
                *sum += operations;
                latency.add(window).map_err(no_histogram)?;
            }
            None => {
                open.insert(second, (operations, window.clone()));
            }
        }
        Ok(())
    }

    /// All seconds from the first to the last, also those in which no operation ended.
    pub(super) fn all(&self) -> Vec<Second> {
        let open = self.open.lock().expect("no thread panics while it holds the lock");
        let last = open.keys().next_back().map_or(0, |last| last + 1);
        let second = |second| {
            let (operations, p99_ns) = open
                .get(&second)
                .map_or((0, 0), |(operations, latency)| (*operations, latency.value_at_quantile(0.99)));
            Second { second, operations, p99_ns }
        };
        (0..last).map(second).collect()
    }
}

/// One thread's part of the current second.
pub(super) struct Window<'a> {
    seconds: &'a Seconds,
    second: u64,
    operations: u64,
    latency: Histogram<u64>,
}

impl<'a> Window<'a> {
    pub(super) fn new(seconds: &'a Seconds) -> Result<Window<'a>, Failure> {
        Ok(Window { seconds, second: 0, operations: 0, latency: histogram(2)? })
    }

    /// Records operations that ended at this time since the workload's start.
    pub(super) fn take(&mut self, end: Duration, operations: u64, ns: u64) -> Result<(), Failure> {
        let second = end.as_secs();
        if second != self.second {
            self.hand_over()?;
            self.second = second;
        }
        self.operations += operations;
        self.latency.saturating_record(ns.max(1));
        Ok(())
    }

    pub(super) fn hand_over(&mut self) -> Result<(), Failure> {
        if self.operations > 0 {
            self.seconds.add(self.second, self.operations, &self.latency)?;
            self.latency.reset();
            self.operations = 0;
        }
        Ok(())
    }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of several threads add up, kind by kind, and the first wrong answer is kept.
    #[test]
    fn records_add_up() {
        let (mut one, mut other) = (Record::new(), Record::new());
        one.take(Kind::Get, 1, 100).expect("it counts");
        other.take(Kind::Get, 1, 300).expect("it counts");
        other.take(Kind::Put, 10, 5000).expect("it counts");
        other.answers.found = 1;
        other.answers.wrong(|| "this".to_string());
        other.answers.wrong(|| "not this".to_string());
        one.add(other).expect("it adds");
        assert_eq!((one.operations, one.answers.found, one.answers.wrong), (12, 1, 2));
        assert_eq!(one.answers.first_wrong.as_deref(), Some("this"));
        let kinds: Vec<_> = one.times().map(|(kind, times)| (kind, times.operations)).collect();
        assert_eq!(kinds, [(Kind::Get, 2), (Kind::Put, 10)]);
        assert_eq!(one.latency().expect("it adds").len(), 3);
    }

    /// Seconds collect the operations of several threads, and a second without operations has a row of zeros.
    #[test]
    fn seconds_have_no_holes() {
        let seconds = Seconds::default();
        for ends in [vec![100, 900, 2500], vec![200, 2100]] {
            let mut window = Window::new(&seconds).expect("a histogram");
            for end in ends {
                window.take(Duration::from_millis(end), 2, 1000).expect("it counts");
            }
            window.hand_over().expect("it adds");
        }
        let all: Vec<_> = seconds.all().iter().map(|one| (one.second, one.operations)).collect();
        assert_eq!(all, [(0, 6), (1, 0), (2, 4)]);
    }
}
