//! Lengths of logs, and the parts of log and memtable reserved for writes that free space.
//!
//! No log is made here: the flush worker makes logs, in the length that the writer requests. Pure arithmetic.

use crate::format::frames::RECORDS_FROM;
use crate::wal::LogFramer;

/// Limit of the bytes in a group, beside the leader's own batch.
pub(crate) const GROUP_BYTES_MAX: usize = 1 << 20;

/// One part in this many of log and memtable, up to a limit, is reserved for range tombstones. They can free
/// space on a full disk, where neither log nor memtable can be replaced.
const RESERVE_PART: usize = 16;
const MEMTABLE_RESERVE_BYTES_MAX: usize = 32 << 10;
const LOG_RESERVE_BYTES_MAX: u64 = 8 << 10;

/// Bytes reserved in a log with `records_bytes` bytes for records.
pub(super) fn log_reserve_bytes(records_bytes: u64) -> u64 {
    (records_bytes / RESERVE_PART as u64).min(LOG_RESERVE_BYTES_MAX)
}

/// Bytes reserved in a memtable's memory.
pub(super) fn memtable_reserve_bytes(capacity_bytes: usize) -> usize {
    (capacity_bytes / RESERVE_PART).min(MEMTABLE_RESERVE_BYTES_MAX)
}

/// Lengths of log files, in bytes.
///
/// The first log of a store is short. A log never grows: the manifest records its length, so that a truncated
/// log is detected. A log that fills is followed by one four times as long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogLengths {
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl LogLengths {
    /// Growth factor from a log that fills to the next.
    const GROWTH: u64 = 4;

    /// Length of the log after `log`, with room for a payload.
    pub(super) fn next(self, log: &LogFramer, payload_bytes: usize) -> NextLog {
        let (bytes, used_bytes) = (log.bytes(), log.tail().bytes);
        let wanted = if used_bytes > bytes / 2 {
            bytes * Self::GROWTH
        } else if used_bytes < bytes / (2 * Self::GROWTH) {
            // The log was sealed before it used much of its length.
            bytes / Self::GROWTH
        } else {
            bytes
        };
        let record_bytes = LogFramer::record_bytes(payload_bytes) as u64;
        // The reserve of the whole log is less than twice the reserve of the record alone, because the record
        // is most of the log.
        let needed = RECORDS_FROM + record_bytes + 2 * log_reserve_bytes(record_bytes);
        let least_bytes = needed.max(self.least).next_multiple_of(4096);
        NextLog { bytes: wanted.clamp(self.least, self.most).max(least_bytes), least_bytes }
    }
}

/// Length of a log that is to be made, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NextLog {
    pub(crate) bytes: u64,
    /// Length that is enough if the disk has no room for `bytes`.
    pub(crate) least_bytes: u64,
}

/// Requests of the leader for standby memory and logs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct StandbyRequests {
    /// Length of the next log.
    pub(crate) log: Option<NextLog>,
    pub(crate) memtable: bool,
}

impl StandbyRequests {
    pub(crate) fn is_any(self) -> bool {
        self.log.is_some() || self.memtable
    }
}
