//! How long logs are, and what of log and memtable is kept for writes that make room.
//!
//! It makes no log: the flush worker does, in the length that the writer asks for. Pure arithmetic.

use crate::format::frames::RECORDS_FROM;
use crate::wal::Log;

/// Batches of a group hold at most this many bytes beside the leader's own.
pub(crate) const GROUP_BYTES_MAX: usize = 1 << 20;

/// Of log and memtable one part in so many, and no more than that, is kept for range tombstones: they can
/// make room on a full disk, where neither can be followed by another.
const RESERVE_PART: usize = 16;
const MEMTABLE_RESERVE_BYTES_MAX: usize = 32 << 10;
const LOG_RESERVE_BYTES_MAX: u64 = 8 << 10;

/// What is kept of that many bytes for records.
pub(super) fn log_reserve_bytes(records_bytes: u64) -> u64 {
    (records_bytes / RESERVE_PART as u64).min(LOG_RESERVE_BYTES_MAX)
}

/// What is kept of a memtable's memory.
pub(super) fn memtable_reserve_bytes(capacity_bytes: usize) -> usize {
    (capacity_bytes / RESERVE_PART).min(MEMTABLE_RESERVE_BYTES_MAX)
}

/// How long logs are, in bytes of their files.
///
/// The first log of a store is short. A log never grows: its length is recorded where it is named, so that
/// one that was cut short is told. A log that fills is followed by one four times as long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogLengths {
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl LogLengths {
    /// How much longer the log is that follows one that fills.
    const GROWTH: u64 = 4;

    /// Of the log after `log`, with room for a payload.
    pub(super) fn next(self, log: &Log, payload_bytes: usize) -> NextLog {
        let (bytes, used_bytes) = (log.bytes(), log.tail().bytes);
        let wanted = if used_bytes > bytes / 2 {
            bytes * Self::GROWTH
        } else if used_bytes < bytes / (2 * Self::GROWTH) {
            // It was sealed before it was worth its length.
            bytes / Self::GROWTH
        } else {
            bytes
        };
        let record_bytes = Log::record_bytes(payload_bytes) as u64;
        // What is reserved of the whole is less than twice that of the record, which is most of it.
        let needed = RECORDS_FROM + record_bytes + 2 * log_reserve_bytes(record_bytes);
        let least_bytes = needed.max(self.least).next_multiple_of(4096);
        NextLog { bytes: wanted.clamp(self.least, self.most).max(least_bytes), least_bytes }
    }
}

/// Length of a log that is to be made, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NextLog {
    pub(crate) bytes: u64,
    /// Where the disk has no room for that, so much will do.
    pub(crate) least_bytes: u64,
}

/// What is to be made ready for the leader.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Wants {
    /// How long the next log is to be.
    pub(crate) log: Option<NextLog>,
    pub(crate) memtable: bool,
}

impl Wants {
    pub(crate) fn is_any(self) -> bool {
        self.log.is_some() || self.memtable
    }
}
