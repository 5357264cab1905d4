//! Latencies, device reads and rates of one kind of operation.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use trine::Db;
use trine_workload::failure::Failure;

const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// The cost of operations of one kind.
#[derive(Serialize)]
pub(crate) struct Cost {
    pub(crate) name: &'static str,
    pub(crate) operations: u64,
    /// Items returned by the operations.
    pub(crate) items: u64,
    pub(crate) mean_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p95_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) device_reads: u64,
    pub(crate) device_read_bytes: u64,
}

/// Measures until its share of time is used up or enough operations are done.
pub(crate) struct Meter<'a> {
    db: &'a Db,
    histogram: Histogram<u64>,
    reads_before: (u64, u64),
    items: u64,
    until: Instant,
    operations_max: u64,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(db: &'a Db, time: Duration, operations_max: u64) -> Result<Meter<'a>, Failure> {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .map_err(|error| Failure::Other(format!("no histogram: {error}")))?;
        let reads_before = device_reads(db);
        Ok(Meter { db, histogram, reads_before, items: 0, until: Instant::now() + time, operations_max })
    }

    /// Whether there is time and work left. At least one operation is always done.
    pub(crate) fn goes_on(&self) -> bool {
        let operations = self.histogram.len();
        operations == 0 || (operations < self.operations_max && Instant::now() < self.until)
    }

    /// Times one operation that returns `count_items` items.
    pub(crate) fn time<R>(
        &mut self,
        operation: impl FnOnce() -> trine::Result<R>,
        count_items: impl FnOnce(&R) -> u64,
    ) -> Result<R, Failure> {
        let started = Instant::now();
        let answer = operation()?;
        let elapsed_ns = started.elapsed().as_nanos() as u64;
        self.histogram.saturating_record(elapsed_ns.max(1));
        self.items += count_items(&answer);
        Ok(answer)
    }

    pub(crate) fn finish(self, name: &'static str) -> Cost {
        let (reads, read_bytes) = device_reads(self.db);
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        Cost {
            name,
            operations: self.histogram.len(),
            items: self.items,
            mean_ns: self.histogram.mean() as u64,
            p50_ns: at(0.5),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.histogram.max(),
            device_reads: reads - self.reads_before.0,
            device_read_bytes: read_bytes - self.reads_before.1,
        }
    }
}

fn device_reads(db: &Db) -> (u64, u64) {
    let io = db.stats().io;
    (io.device_reads, io.device_read_bytes)
}
