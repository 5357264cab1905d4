//! A row measured: what its threads did, and what that cost.

use super::drive::{self, Job, Ran};
use super::engines::Counts;
use super::plan::item_bytes;
use super::process::{self, Memory, Spent};
use super::record::Record;
use super::results::Measured;
use super::rows;
use crate::engines::Answer;

/// Of a device read as the kernel's figures are told.
const KERNEL_READ_BYTES: f64 = 4096.0;

/// Everything that is counted, at one moment.
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

/// What the threads did, as a row; what is written later on is [`amplified`]'s.
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

/// What was recorded between two moments.
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

impl Measured {
    fn set_memory(&mut self, memory: Memory) {
        self.anonymous_bytes = memory.anonymous;
        self.file_bytes = memory.file;
        self.peak_bytes = memory.peak;
    }
}

/// Write amplification of so many bytes of keys and values since `before`, the background work that followed
/// included.
pub(super) fn amplified(measured: &mut Measured, before: &Moment, after: &Moment, bytes: u64) {
    let written = bytes.max(1) as f64;
    let log = since(after.counts.log_bytes, before.counts.log_bytes);
    let tables = since(after.counts.table_bytes, before.counts.table_bytes);
    measured.amplification_without_log = tables.map(|tables| tables / written);
    measured.amplification_with_log = tables.zip(log).map(|(tables, log)| (tables + log) / written);
    let kernel = since(after.spent.write_bytes, before.spent.write_bytes);
    measured.amplification_by_kernel = kernel.map(|bytes| bytes / written);
}
