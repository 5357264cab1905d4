//! What the leader of a group commit holds: the log and the generation that are written, and what a full disk
//! left in that log.
//!
//! It does no I/O and takes no lock. One thread at a time.

use crate::base::id::Sequence;
use crate::base::reserve::{Grant, Reserve, Role};
use crate::base::sync::{Arc, AtomicBool, Mutex, OnceLock};
use crate::format::frames::RECORDS_FROM;
use crate::memtable::BatchSize;
use crate::wal::Log;

use super::lengths::{GROUP_BYTES_MAX, log_reserve_bytes, memtable_reserve_bytes};
use super::standby::{Spare, StandbyMemtable};
use super::writer::{Sealed, SealedLog};

/// The log starts writing back what it appended in pieces of this size.
const WRITEBACK_BYTES: u64 = 1 << 20;

/// What the leader holds.
pub(crate) struct Front {
    pub(super) spare: Spare,
    /// For the memory of the generation, if that is beside the three write buffers of the budget.
    pub(super) memtable_grant: Option<Grant>,
    pub(super) last_sequence: Sequence,
    /// Earlier logs of the present generation.
    pub(super) logs: Vec<Arc<SealedLog>>,
    /// Earlier logs that may not be durable yet.
    pub(super) earlier: Vec<Arc<SealedLog>>,
    /// Framed records, or the page that says how far they are durable, on their way.
    pub(super) buffer: Vec<u8>,
    /// For the buffer, while it is longer than a group's.
    pub(super) buffer_grant: Grant,
    pub(super) written_back: u64,
    /// Up to here, if past the log's tail, the file may hold records that a full disk cut short and that were
    /// refused.
    pub(super) remains_to: u64,
    /// Where those of them begin that are behind another. While there are any, nothing is written over the
    /// first: if that is cut short too, a sound record behind one that is not would pass for damage.
    pub(super) remains_starts: Vec<u64>,
    /// The same of the records on their way.
    pub(super) starts: Vec<u64>,
}

impl Front {
    pub(super) fn new(spare: Spare, last_sequence: Sequence, reserve: &Arc<Reserve>) -> Front {
        Front {
            written_back: spare.log.tail().bytes,
            spare,
            memtable_grant: None,
            last_sequence,
            logs: Vec::new(),
            earlier: Vec::new(),
            buffer: Vec::new(),
            buffer_grant: reserve.grant(Role::Batches, 0),
            remains_to: 0,
            remains_starts: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// An empty memtable has room for every batch, also what is reserved.
    pub(super) fn has_memtable_room(&self, items: usize, key_value_bytes: usize, frees: bool) -> bool {
        let reserved = match frees || self.is_empty() {
            true => 0,
            false => memtable_reserve_bytes(self.spare.generation.capacity_bytes()),
        };
        self.spare.inserter.room(items, key_value_bytes + reserved)
    }

    /// Whether it is empty and has room for a batch that is inserted in the order of its keys.
    pub(super) fn has_sorted_room(&self, size: &BatchSize) -> bool {
        self.spare.inserter.sorted_room(size)
    }

    /// Whether it holds a large batch: it is sealed as soon as another generation is ready.
    pub(super) fn holds_large_batch(&self) -> bool {
        self.memtable_grant.is_some()
    }

    pub(super) fn has_log_room(&self, payload_bytes: usize, frees: bool) -> bool {
        let log = &self.spare.log;
        let reserved = if frees { 0 } else { log_reserve_bytes(log.bytes() - RECORDS_FROM) as usize };
        log.room_bytes() >= payload_bytes + reserved
    }

    pub(super) fn is_memtable_half_full(&self) -> bool {
        !self.has_memtable_room(1, self.spare.generation.capacity_bytes() / 2, true)
    }

    pub(super) fn is_log_half_full(&self) -> bool {
        (self.spare.log.room_bytes() as u64) < (self.spare.log.bytes() - RECORDS_FROM) / 2
    }

    /// Counts the buffer as memory of batches, while it is longer than a group's.
    pub(super) fn count_buffer(&mut self) {
        let bytes = self.buffer.capacity();
        let bytes = if bytes > GROUP_BYTES_MAX { bytes as u64 } else { 0 };
        if bytes != self.buffer_grant.bytes() {
            self.buffer_grant.set(bytes);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spare.generation.items() == 0
    }

    /// Goes on with `log` and `next`; what was written so far waits for its flush.
    pub(super) fn seal(&mut self, log: Log, next: StandbyMemtable) -> Arc<Sealed> {
        self.switch_log(log);
        self.seal_before(next, self.last_sequence)
    }

    /// The same with the present log, of which only what comes after `last_sequence` is in it.
    pub(super) fn seal_before(&mut self, next: StandbyMemtable, last_sequence: Sequence) -> Arc<Sealed> {
        let generation = std::mem::replace(&mut self.spare.generation, next.generation);
        self.spare.inserter = next.inserter;
        let grant = Mutex::new(std::mem::replace(&mut self.memtable_grant, next.grant));
        let logs = std::mem::take(&mut self.logs);
        Arc::new(Sealed { generation, logs, last_sequence, grant })
    }

    /// Goes on with another log and the same generation.
    pub(super) fn switch_log(&mut self, next: Log) {
        let old = std::mem::replace(&mut self.spare.log, next);
        let is_durable = OnceLock::new();
        if old.unsynced_bytes() == 0 {
            is_durable.get_or_init(|| ());
        }
        let log = Arc::new(SealedLog {
            file: old.file(),
            end: old.tail(),
            bytes: old.bytes(),
            is_durable,
            is_promised: AtomicBool::new(false),
        });
        self.earlier.retain(|log| log.is_durable.get().is_none());
        if log.is_durable.get().is_none() {
            self.earlier.push(Arc::clone(&log));
        }
        self.logs.push(log);
        self.written_back = self.spare.log.tail().bytes;
    }

    /// Notes that the first earlier log is durable; `false` if it was the present log that was synced.
    pub(super) fn synced_earlier(&mut self) -> bool {
        if self.earlier.is_empty() {
            return false;
        }
        let log = self.earlier.remove(0);
        // A flush may have synced it at the same time: durable twice is durable.
        let _ = log.is_durable.set(());
        true
    }

    /// Makes the buffer, whose bytes end at the log's tail, reach over the remains with zeros.
    pub(super) fn cover_remains(&mut self) {
        let behind = self.remains_to.saturating_sub(self.spare.log.tail().bytes);
        self.buffer.resize(self.buffer.len() + behind as usize, 0);
    }

    /// Puts zeros over the last of the remains into the buffer; where they go. From the back on, so that what
    /// a full disk lets through leaves no sound record behind one that is not.
    pub(super) fn erase_remains(&mut self) -> u64 {
        let from = self.remains_starts.last().copied().unwrap_or(self.spare.log.tail().bytes);
        self.buffer.clear();
        self.buffer.resize(self.remains_to.saturating_sub(from) as usize, 0);
        from
    }

    /// They were written; `true` if nothing remains.
    pub(super) fn erased_remains(&mut self) -> bool {
        self.remains_to = self.remains_starts.pop().unwrap_or(0);
        self.remains_to == 0
    }

    /// What has been appended since the last writeback, once it is worth a call.
    pub(super) fn next_writeback(&mut self) -> Option<(u64, u64)> {
        let (from, tail) = (self.written_back, self.spare.log.tail().bytes);
        if tail - from < WRITEBACK_BYTES {
            return None;
        }
        self.written_back = tail;
        Some((from, tail - from))
    }
}
