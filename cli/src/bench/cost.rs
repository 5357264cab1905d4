//! The cost of a workload: the store's own counters and the operating system's, before and after.

use std::path::Path;
use std::time::Instant;

use trine::{Db, Stats};
use trine_workload::system;
use trine_workload::text::ratio;

use super::store::Engine;
use crate::stats::{Log, amplification};

/// The size of a device read in the kernel's counts.
const KERNEL_READ_BYTES: u64 = 4096;

/// All counters at one moment.
pub(super) struct Moment {
    at: Instant,
    stats: Option<Stats>,
    cpu_ns: u64,
    kernel: Option<system::KernelIo>,
}

impl Moment {
    pub(super) fn now(db: Option<&Db>) -> Moment {
        Moment {
            stats: db.map(Db::stats),
            cpu_ns: system::cpu_ns(),
            kernel: system::kernel_io(),
            at: Instant::now(),
        }
    }
}

/// The cost between two moments; `None` if not known.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) device: Option<DeviceCost>,
    pub(super) kernel_reads: Option<f64>,
    pub(super) write: Option<WriteCost>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) memory_used_bytes: Option<u64>,
    pub(super) memory_budget_bytes: Option<u64>,
    pub(super) disk_bytes: Option<u64>,
    /// The error of background work, if any.
    pub(super) background_error: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct DeviceCost {
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) is_direct: bool,
}

#[derive(Clone, Debug)]
pub(super) struct WriteCost {
    pub(super) key_value_bytes: u64,
    pub(super) amplification_with_log: f64,
    pub(super) amplification_without_log: f64,
    pub(super) delayed_ns: u64,
    pub(super) pressure: u64,
    pub(super) syncs: u64,
}

impl Cost {
    pub(super) fn since(before: &Moment, engine: &Engine<'_>) -> Cost {
        let after = Moment::now(engine.db());
        let both = before.stats.as_ref().zip(after.stats.as_ref());
        let kernel = before.kernel.zip(after.kernel);
        Cost {
            seconds: after.at.duration_since(before.at).as_secs_f64(),
            cpu_seconds: after.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e9,
            device: both.map(|(before, after)| DeviceCost {
                reads: after.io.device_reads.saturating_sub(before.io.device_reads),
                read_bytes: after.io.device_read_bytes.saturating_sub(before.io.device_read_bytes),
                is_direct: after.io.direct_io,
            }),
            kernel_reads: kernel.map(|(before, after)| {
                after.read_bytes.saturating_sub(before.read_bytes) as f64 / KERNEL_READ_BYTES as f64
            }),
            write: both.map(|(before, after)| write_cost(before, after)),
            resident_bytes: system::resident_bytes(),
            memory_used_bytes: after.stats.as_ref().map(|stats| stats.memory.used_bytes),
            memory_budget_bytes: after.stats.as_ref().map(|stats| stats.memory.budget_bytes),
            disk_bytes: engine.path().map(|path: &Path| system::disk_bytes(path)),
            background_error: after.stats.and_then(|stats| stats.background.error),
        }
    }
}

fn write_cost(before: &Stats, after: &Stats) -> WriteCost {
    let mut spent = after.write;
    let earlier = &before.write;
    spent.key_value_bytes = spent.key_value_bytes.saturating_sub(earlier.key_value_bytes);
    spent.log_bytes = spent.log_bytes.saturating_sub(earlier.log_bytes);
    spent.flush_bytes = spent.flush_bytes.saturating_sub(earlier.flush_bytes);
    spent.merge_write_bytes = spent.merge_write_bytes.saturating_sub(earlier.merge_write_bytes);
    WriteCost {
        key_value_bytes: spent.key_value_bytes,
        amplification_with_log: amplification(&spent, Log::Counted),
        amplification_without_log: amplification(&spent, Log::Left),
        delayed_ns: spent.delayed_ns.saturating_sub(earlier.delayed_ns),
        pressure: spent.pressure,
        syncs: after.io.syncs.saturating_sub(before.io.syncs),
    }
}

impl Cost {
    /// Space on disk for each byte of live keys and values.
    pub(super) fn space_amplification(&self, live_bytes: Option<u64>) -> Option<f64> {
        Some(ratio(self.disk_bytes?, live_bytes.filter(|bytes| *bytes > 0)?))
    }
}
