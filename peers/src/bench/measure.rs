//! The measurement of a row: the results of its threads, and their cost.

use super::drive::{self, Job, Ran};
use super::engines::Counts;
use super::plan::item_bytes;
use super::process::{self, Memory, Spent};
use super::record::Record;
use super::results::Measured;
use super::rows;
use crate::engines::Answer;

/// The size of a device read in the kernel's figures.
const KERNEL_READ_BYTES: f64 = 4096.0;

/// All counters, at one moment.
pub(super) struct Moment {
    spent: Spent,
    counts: Counts,
}

impl Moment {
    pub(super) fn now(counts: Counts) -> Moment {
        Moment { spent: process::spent(), counts }
    }
}

fn since(after: Option<u64>, before: Option<u64>) -> Option<f64> {
    Some(after?.saturating_sub(before?) as f64)
}

/// Runs the threads and makes a row of their results; [`amplified`] adds the bytes that are written later.
pub(super) fn run(job: &Job<'_>) -> Answer<(Measured, Ran)> {
    let before = Moment::now(job.engine.counts());
    let ran = drive::run(job)?;
    let after = Moment::now(job.engine.counts());
    let mut measured = row(&ran.record, ran.seconds, &before, &after);
    measured.live_bytes = Some(ran.count * item_bytes(job.data.value_bytes));
    measured.set_memory(ran.memory);
    if job.beside.is_some() {
        measured.more.insert("beside_puts_a_second".to_owned(), ran.beside as f64 / ran.seconds);
    }
    Ok((measured, ran))
}

/// The row of a record between two moments.
pub(super) fn row(record: &Record, seconds: f64, before: &Moment, after: &Moment) -> Measured {
    let operations = record.operations.max(1) as f64;
    let reads =
        |of: fn(&Counts) -> Option<u64>| Some(since(of(&after.counts), of(&before.counts))? / operations);
    let mut measured = Measured {
        operations: record.operations,
        seconds,
        operations_a_latency: 1,
        latency_ns: record.latency(),
        kernel_reads: since(after.spent.read_bytes, before.spent.read_bytes)
            .map(|bytes| bytes / KERNEL_READ_BYTES / operations),
        device_reads: reads(|counts| counts.reads.map(|(reads, _)| reads)),
        device_read_bytes: reads(|counts| counts.reads.map(|(_, bytes)| bytes)),
        cpu_seconds_a_million: after.spent.cpu_ns.saturating_sub(before.spent.cpu_ns) as f64
            / 1e3
            / operations,
        wrong: record.wrong,
        first_wrong: record.first_wrong.clone(),
        ..Measured::default()
    };
    if let Some(ns) = since(after.counts.delayed_ns, before.counts.delayed_ns).filter(|ns| *ns > 0.0) {
        measured.more.insert("delayed_s".to_owned(), ns / 1e9);
    }
    if let Some(bytes) = after.counts.buffered_bytes {
        measured.more.insert(rows::BUFFERED_MIB.to_owned(), bytes as f64 / f64::from(1 << 20));
    }
    measured.set_memory(Memory::now());
    measured
}

/// A row that is measured in turns with others.
#[derive(Default)]
pub(super) struct Turns {
    row: Option<(Measured, Record)>,
}

impl Turns {
    pub(super) fn add(&mut self, (measured, ran): (Measured, Ran)) -> Answer<()> {
        let Some((row, record)) = &mut self.row else {
            self.row = Some((measured, ran.record));
            return Ok(());
        };
        row.add_turn(measured);
        record.add(ran.record)
    }

    /// `None` if the row had no turn.
    pub(super) fn row(self) -> Option<Measured> {
        let (row, record) = self.row?;
        Some(Measured { latency_ns: record.latency(), ..row })
    }
}

impl Measured {
    /// Adds a turn of the same row: costs are means over operations, memory is the greatest at any look.
    fn add_turn(&mut self, turn: Measured) {
        self.set_memory(self.memory().or_more(turn.memory()));
        let (before, more) = (self.operations as f64, turn.operations as f64);
        let mean = |own: f64, other: f64| (own * before + other * more) / (before + more).max(1.0);
        let means = |own: Option<f64>, other: Option<f64>| Some(mean(own?, other?));
        self.kernel_reads = means(self.kernel_reads, turn.kernel_reads);
        self.device_reads = means(self.device_reads, turn.device_reads);
        self.device_read_bytes = means(self.device_read_bytes, turn.device_read_bytes);
        self.cpu_seconds_a_million = mean(self.cpu_seconds_a_million, turn.cpu_seconds_a_million);
        self.operations += turn.operations;
        self.seconds += turn.seconds;
        self.wrong += turn.wrong;
        self.first_wrong = self.first_wrong.take().or(turn.first_wrong);
        self.live_bytes = turn.live_bytes;
        self.more = turn.more;
        self.remarks = turn.remarks;
    }

    fn memory(&self) -> Memory {
        Memory { anonymous: self.anonymous_bytes, file: self.file_bytes, peak: self.peak_bytes }
    }

    fn set_memory(&mut self, memory: Memory) {
        self.anonymous_bytes = memory.anonymous;
        self.file_bytes = memory.file;
        self.peak_bytes = memory.peak;
    }
}

/// Sets the write amplification of `bytes` of keys and values since `before`, with the background work that
/// followed.
pub(super) fn amplified(measured: &mut Measured, before: &Moment, after: &Moment, bytes: u64) {
    let written = bytes.max(1) as f64;
    let log = since(after.counts.log_bytes, before.counts.log_bytes);
    let tables = since(after.counts.table_bytes, before.counts.table_bytes);
    measured.amplification_without_log = tables.map(|tables| tables / written);
    measured.amplification_with_log = tables.zip(log).map(|(tables, log)| (tables + log) / written);
    let kernel = since(after.spent.write_bytes, before.spent.write_bytes);
    measured.amplification_by_kernel = kernel.map(|bytes| bytes / written);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns make one row: counts add up, costs are weighted by operations, and latencies are those of all
    /// turns.
    #[test]
    fn turns_are_one_row() {
        let turn = |operations: u64, cost: f64, ns: u64| {
            let mut record = Record::new().expect("a histogram");
            (0..operations).for_each(|_| record.take(1, ns));
            let measured = Measured {
                operations,
                seconds: 1.0,
                latency_ns: record.latency(),
                kernel_reads: Some(cost),
                device_reads: None,
                cpu_seconds_a_million: cost,
                anonymous_bytes: ns,
                wrong: 1,
                ..Measured::default()
            };
            let memory = Memory::default();
            (measured, Ran { record, beside: 0, put_bytes: 0, seconds: 1.0, count: 0, memory })
        };
        assert!(Turns::default().row().is_none());
        let mut turns = Turns::default();
        for turn in [turn(30, 1.0, 100), turn(10, 5.0, 900)] {
            turns.add(turn).expect("it adds");
        }
        let row = turns.row().expect("it had turns");
        assert_eq!((row.operations, row.seconds, row.wrong, row.anonymous_bytes), (40, 2.0, 2, 900));
        assert_eq!((row.kernel_reads, row.device_reads, row.cpu_seconds_a_million), (Some(2.0), None, 2.0));
        let latency = row.latency_ns.expect("there are forty calls");
        assert_eq!((latency.p50, latency.p99), (100, 900));
    }
}
