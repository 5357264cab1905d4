//! The state that the leader of a group commit owns: the active log and generation, and the failed tail of
//! that log.
//!
//! A failed tail is a range of refused records behind the log's tail, which a full disk cut short
//! (`failed_tail_*`). The struct does no I/O and takes no lock. One thread at a time.

use crate::base::id::Sequence;
use crate::base::reserve::{Grant, Reserve, Role};
use crate::base::sync::{Arc, AtomicBool, Mutex, OnceLock};
use crate::format::frames::RECORDS_FROM;
use crate::memtable::BatchSize;
use crate::wal::LogFramer;

use super::lengths::{GROUP_BYTES_MAX, log_reserve_bytes, memtable_reserve_bytes};
use super::standby::{MemtableAndLog, StandbyMemtable};
use super::writer::{SealedGeneration, SealedLog};

/// Size of the pieces in which the log's appended bytes are written back.
const WRITEBACK_BYTES: u64 = 1 << 20;

/// See the module.
pub(crate) struct WriteLeader {
    pub(super) active: MemtableAndLog,
    /// Grant for the generation's memory, if that is outside the three write buffers of the budget.
    pub(super) memtable_grant: Option<Grant>,
    pub(super) last_sequence: Sequence,
    /// Earlier logs of the present generation.
    pub(super) logs: Vec<Arc<SealedLog>>,
    /// Earlier logs that may not be durable yet.
    pub(super) earlier: Vec<Arc<SealedLog>>,
    /// Framed records, or the page with the log's durable end, that are being written.
    pub(super) buffer: Vec<u8>,
    /// Grant for the buffer, while it is longer than that of a group.
    pub(super) buffer_grant: Grant,
    pub(super) written_back: u64,
    /// End of the failed tail, if past the log's tail: up to here the file may hold refused records that a
    /// full disk cut short.
    pub(super) failed_tail_to: u64,
    /// Offsets of the second and later records of the failed tail. While there are any, the first record is
    /// not overwritten: if that write were cut short too, a valid record behind a broken one would look like
    /// damage.
    pub(super) failed_tail_starts: Vec<u64>,
    /// The same offsets for the records being written.
    pub(super) starts: Vec<u64>,
}

impl WriteLeader {
    pub(super) fn new(
        active: MemtableAndLog,
        last_sequence: Sequence,
        reserve: &Arc<Reserve>,
    ) -> WriteLeader {
        WriteLeader {
            written_back: active.log.tail().bytes,
            active,
            memtable_grant: None,
            last_sequence,
            logs: Vec::new(),
            earlier: Vec::new(),
            buffer: Vec::new(),
            buffer_grant: reserve.grant(Role::Batches, 0),
            failed_tail_to: 0,
            failed_tail_starts: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// An empty memtable has room for every batch, the reserved part included.
    pub(super) fn has_memtable_room(&self, items: usize, key_value_bytes: usize, frees: bool) -> bool {
        let reserved = match frees || self.is_empty() {
            true => 0,
            false => memtable_reserve_bytes(self.active.generation.capacity_bytes()),
        };
        self.active.inserter.room(items, key_value_bytes + reserved)
    }

    /// Whether the generation is empty and has room for a batch inserted in key order.
    pub(super) fn has_sorted_room(&self, size: &BatchSize) -> bool {
        self.active.inserter.sorted_room(size)
    }

    /// Whether the generation holds a large batch. It is sealed as soon as another generation is ready.
    pub(super) fn holds_large_batch(&self) -> bool {
        self.memtable_grant.is_some()
    }

    pub(super) fn has_log_room(&self, payload_bytes: usize, frees: bool) -> bool {
        let log = &self.active.log;
        let reserved = if frees { 0 } else { log_reserve_bytes(log.bytes() - RECORDS_FROM) as usize };
        log.room_bytes() >= payload_bytes + reserved
    }

    pub(super) fn is_memtable_half_full(&self) -> bool {
        !self.has_memtable_room(1, self.active.generation.capacity_bytes() / 2, true)
    }

    pub(super) fn is_log_half_full(&self) -> bool {
        (self.active.log.room_bytes() as u64) < (self.active.log.bytes() - RECORDS_FROM) / 2
    }

    /// Accounts the buffer as memory of batches, while it is longer than that of a group.
    pub(super) fn count_buffer(&mut self) {
        let bytes = self.buffer.capacity();
        let bytes = if bytes > GROUP_BYTES_MAX { bytes as u64 } else { 0 };
        if bytes != self.buffer_grant.bytes() {
            self.buffer_grant.set(bytes);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active.generation.items() == 0
    }

    /// Continues with `log` and `next`; the sealed generation waits for its flush.
    pub(super) fn seal(&mut self, log: LogFramer, next: StandbyMemtable) -> Arc<SealedGeneration> {
        self.switch_log(log);
        self.seal_before(next, self.last_sequence)
    }

    /// The same with the present log, which holds only records after `last_sequence`.
    pub(super) fn seal_before(
        &mut self,
        next: StandbyMemtable,
        last_sequence: Sequence,
    ) -> Arc<SealedGeneration> {
        let generation = std::mem::replace(&mut self.active.generation, next.generation);
        self.active.inserter = next.inserter;
        let grant = Mutex::new(std::mem::replace(&mut self.memtable_grant, next.grant));
        let logs = std::mem::take(&mut self.logs);
        Arc::new(SealedGeneration { generation, logs, last_sequence, grant })
    }

    /// Continues with another log and the same generation.
    pub(super) fn switch_log(&mut self, next: LogFramer) {
        let old = std::mem::replace(&mut self.active.log, next);
        let is_durable = OnceLock::new();
        if old.unsynced_bytes() == 0 {
            is_durable.get_or_init(|| ());
        }
        let log = Arc::new(SealedLog {
            file: old.file(),
            end: old.tail(),
            bytes: old.bytes(),
            is_durable,
            has_recorded_end: AtomicBool::new(false),
        });
        self.earlier.retain(|log| log.is_durable.get().is_none());
        if log.is_durable.get().is_none() {
            self.earlier.push(Arc::clone(&log));
        }
        self.logs.push(log);
        self.written_back = self.active.log.tail().bytes;
    }

    /// Notes that the first earlier log is durable; `false` if there is none, so that the present log was
    /// synced.
    pub(super) fn synced_earlier(&mut self) -> bool {
        if self.earlier.is_empty() {
            return false;
        }
        let log = self.earlier.remove(0);
        // A flush may have synced it at the same time, and set this first.
        let _ = log.is_durable.set(());
        true
    }

    /// Extends the buffer, whose bytes end at the log's tail, with zeros over the failed tail.
    pub(super) fn cover_failed_tail(&mut self) {
        let behind = self.failed_tail_to.saturating_sub(self.active.log.tail().bytes);
        self.buffer.resize(self.buffer.len() + behind as usize, 0);
    }

    /// Fills the buffer with zeros for the last record of the failed tail, and returns their offset. From the
    /// back on, so that a partial write leaves no valid record behind a broken one.
    pub(super) fn erase_failed_tail(&mut self) -> u64 {
        let from = self.failed_tail_starts.last().copied().unwrap_or(self.active.log.tail().bytes);
        self.buffer.clear();
        self.buffer.resize(self.failed_tail_to.saturating_sub(from) as usize, 0);
        from
    }

    /// Notes that the zeros were written; `true` if the failed tail is gone.
    pub(super) fn erased_failed_tail(&mut self) -> bool {
        self.failed_tail_to = self.failed_tail_starts.pop().unwrap_or(0);
        self.failed_tail_to == 0
    }

    /// The range appended since the last writeback, once it is long enough for a call.
    pub(super) fn next_writeback(&mut self) -> Option<(u64, u64)> {
        let (from, tail) = (self.written_back, self.active.log.tail().bytes);
        if tail - from < WRITEBACK_BYTES {
            return None;
        }
        self.written_back = tail;
        Some((from, tail - from))
    }
}
