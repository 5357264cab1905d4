//! State shared by all commits of a store: the queue of tickets, the write leader, the latch, the visible
//! sequence, and the sealed generations that wait for their flush.
//!
//! The steps of a commit are in `commit`. Background work supplies standby logs and generations, and takes
//! sealed generations. Locks are held for a few instructions, never across I/O.

use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileName, Sequence};
use crate::base::reserve::{Grant, Reserve};
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Event, Mutex, MutexGuard, OnceLock, Ordering};
use crate::format::frames::FramePoint;
use crate::levels::view::Views;
use crate::memtable::Generation;
use crate::wal::LogFramer;

use super::awaited::AwaitedMemory;
use super::large::LargeRoom;
use super::lengths::{LogLengths, StandbyRequests};
use super::pace::Pressures;
pub(crate) use super::standby::{MemtableAndLog, StandbyMemtable};
pub(super) use super::ticket::{Payload, Ticket, TicketState};
pub(super) use super::write_leader::WriteLeader;

/// Durability at which a commit is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// The kernel has the batch: it survives the end of the process.
    Written,
    /// The device has the batch: it survives power loss.
    Synced,
}

/// Whether a commit seals the present generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seals {
    No,
    Yes,
}

/// Limit of sealed generations that wait for their flush.
pub(crate) const SEALED_COUNT_MAX: usize = 2;

/// If a generation has this many earlier logs, a large batch seals the generation in the usual way. Each
/// large batch that a full disk refuses leaves one log behind.
pub(super) const LOGS_MAX: usize = 4;

/// A log that takes no more records, with its end.
#[derive(Debug)]
pub(crate) struct SealedLog {
    pub(crate) file: FileName,
    pub(crate) end: FramePoint,
    /// Length of its file.
    pub(crate) bytes: u64,
    pub(crate) is_durable: OnceLock<()>,
    /// The manifest records the log's end.
    pub(crate) has_recorded_end: AtomicBool,
}

/// A generation that takes no more writes, and the logs that hold its items.
#[derive(Debug)]
pub(crate) struct SealedGeneration {
    pub(crate) generation: Arc<Generation>,
    pub(crate) logs: Vec<Arc<SealedLog>>,
    /// Last sequence given out when it was sealed.
    pub(crate) last_sequence: Sequence,
    /// Grant for the generation's memory, if that is outside the three write buffers of the budget.
    pub(crate) grant: Mutex<Option<Grant>>,
}

/// Result of switching to another log or generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sealing {
    /// A fresh log or generation has taken its place.
    Sealed,
    /// None is ready. Wait until the count of `changed` differs from `seen`.
    NoRoom { seen: u64 },
}

/// Ends of the logs of a closed store, to be recorded.
#[derive(Debug)]
pub(crate) struct Ends {
    /// End of each durable log whose end the manifest lacks. With it the manifest detects a log that was
    /// replaced by an older copy.
    pub(crate) logs: Vec<(FileName, FramePoint)>,
    /// A page for a slot of the last log, with file and offset. It records the log's end independently of the
    /// last-synced log position in STORE.
    pub(crate) slot: Option<(FileName, u64, Vec<u8>)>,
    /// A log that was made ready and not used.
    pub(crate) standby: Option<FileName>,
}

/// Counters of the write path since open. Written by the leader only.
#[derive(Debug, Default)]
pub(crate) struct WriteCounts {
    pub(crate) commits: AtomicU64,
    pub(crate) items: AtomicU64,
    pub(crate) key_value_bytes: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) delayed_ns: AtomicU64,
}

/// State shared by all commits of a store.
pub(crate) struct Writer {
    pub(super) queue: Mutex<WriteQueue>,
    pub(super) visible: AtomicU64,
    /// Fires when a standby log or generation is ready, a generation is sealed or flushed, or background work
    /// fails.
    pub(crate) changed: Arc<Event>,
    pub(super) latch: OnceLock<Error>,
    pub(super) is_closing: AtomicBool,
    /// Delays of writers by backlogs.
    pub(crate) pressures: Pressures,
    pub(crate) counts: WriteCounts,
    pub(super) views: Arc<Views>,
    pub(super) secret: HashSecret,
    lengths: LogLengths,
    pub(super) reserve: Arc<Reserve>,
    /// Memory of write buffers that snapshots keep.
    pub(crate) awaited: Arc<AwaitedMemory>,
    /// Range tombstones became visible whose covered tables have not been looked for yet.
    has_new_ranges: AtomicBool,
}

#[derive(Default)]
pub(super) struct WriteQueue {
    pub(super) leader: Option<Box<WriteLeader>>,
    pub(super) waiting: Vec<Arc<Ticket>>,
    pub(super) standby_log: Option<LogFramer>,
    pub(super) standby_memtable: Option<StandbyMemtable>,
    pub(super) requests: StandbyRequests,
    pub(super) sealed: Vec<Arc<SealedGeneration>>,
    /// Reason why no room can be made, while that lasts.
    pub(super) stuck: Option<Error>,
}

/// State from which a writer continues after open.
pub(crate) struct Resumed {
    pub(crate) active: MemtableAndLog,
    /// Earlier logs of that generation.
    pub(crate) logs: Vec<Arc<SealedLog>>,
    /// The last sequence given out.
    pub(crate) last_sequence: Sequence,
    /// Generations that wait for their flush.
    pub(crate) sealed: Vec<Arc<SealedGeneration>>,
}

impl Writer {
    pub(crate) fn new(
        views: Arc<Views>,
        secret: HashSecret,
        resumed: Resumed,
        lengths: LogLengths,
        (changed, reserve): (Arc<Event>, Arc<Reserve>),
    ) -> Writer {
        let Resumed { active, logs, last_sequence, sealed } = resumed;
        let leader = Box::new(WriteLeader { logs, ..WriteLeader::new(active, last_sequence, &reserve) });
        let queue = WriteQueue { leader: Some(leader), sealed, ..WriteQueue::default() };
        Writer::with_queue(views, secret, queue, last_sequence, (lengths, changed, reserve))
    }

    fn with_queue(
        views: Arc<Views>,
        secret: HashSecret,
        queue: WriteQueue,
        last_sequence: Sequence,
        (lengths, changed, reserve): (LogLengths, Arc<Event>, Arc<Reserve>),
    ) -> Writer {
        Writer {
            awaited: AwaitedMemory::new(&changed),
            queue: Mutex::new(queue),
            visible: AtomicU64::new(last_sequence),
            changed,
            latch: OnceLock::new(),
            is_closing: AtomicBool::new(false),
            pressures: Pressures::default(),
            counts: WriteCounts::default(),
            views,
            secret,
            lengths,
            reserve,
            has_new_ranges: AtomicBool::new(true),
        }
    }

    /// A writer of a store that is only read.
    pub(crate) fn read_only(
        views: Arc<Views>,
        secret: HashSecret,
        last_sequence: Sequence,
        reserve: Arc<Reserve>,
    ) -> Writer {
        let none = (LogLengths { least: 0, most: 0 }, Arc::new(Event::new()), reserve);
        let writer = Writer::with_queue(views, secret, WriteQueue::default(), last_sequence, none);
        // No other error can have been set yet.
        let _ = writer.latch.set(Error::ReadOnly);
        writer
    }

    /// Closes the writer: later commits fail with `Closed`.
    pub(crate) fn begin_close(&self) {
        // An earlier failure stays the reported one.
        let _ = self.latch.set(Error::Closed);
        self.is_closing.store(true, Ordering::SeqCst);
        self.changed.notify();
    }

    /// Takes the lead for good; `None` while a commit still leads. `changed` fires when the commit no longer
    /// leads.
    ///
    /// Returns the ends of the durable logs, to be recorded.
    pub(crate) fn try_close(&self) -> Option<Ends> {
        let mut queue = self.queue.lock();
        let is_read_only = matches!(self.latch.get(), Some(Error::ReadOnly));
        let leader = queue.leader.take();
        if leader.is_none() && !is_read_only {
            return None;
        }
        queue.standby_memtable = None;
        let standby = queue.standby_log.take().map(|log| log.file());
        let is_told = |log: &&Arc<SealedLog>| {
            log.is_durable.get().is_some() && !log.has_recorded_end.load(Ordering::Acquire)
        };
        let earlier = leader.iter().flat_map(|leader| &leader.logs);
        let sealed = queue.sealed.iter().flat_map(|sealed| &sealed.logs).chain(earlier).filter(is_told);
        let mut ends = Ends { logs: sealed.map(|log| (log.file, log.end)).collect(), slot: None, standby };
        if let Some(mut leader) = leader.filter(|leader| leader.active.log.unsynced_bytes() == 0) {
            let (log, failed_tail_to) = (&mut leader.active.log, leader.failed_tail_to);
            ends.logs.push((log.file(), log.tail()));
            ends.slot = Some(log.ended(log.tail(), failed_tail_to > log.tail().bytes));
        }
        Some(ends)
    }

    /// Every item up to this sequence is visible. Read it after pinning a view.
    pub(crate) fn visible(&self) -> Sequence {
        self.visible.load(Ordering::Acquire)
    }

    /// Sets the latch: writes fail from now on.
    pub(crate) fn latch(&self, error: &Error) {
        // The first failure is the reported one; later ones change nothing.
        let _ = self.latch.set(error.latched());
        self.changed.notify();
    }

    /// The error that latched the store, if any. Writes fail with it.
    pub(crate) fn latched(&self) -> Option<&Error> {
        self.latch.get()
    }

    /// Whether new range tombstones wait for a search of covered tables; replayed ones count as new.
    pub(crate) fn has_new_ranges(&self) -> bool {
        self.has_new_ranges.load(Ordering::Acquire)
    }

    /// Notes that the search begins: range tombstones that become visible from here on are new.
    pub(crate) fn look_at_ranges(&self) {
        self.has_new_ranges.store(false, Ordering::Release);
    }

    /// Makes the flush worker search for tables covered by range tombstones.
    pub(crate) fn want_look_at_ranges(&self) {
        if !self.has_new_ranges.swap(true, Ordering::AcqRel) {
            self.changed.notify();
        }
    }

    /// The log and the generation to be made ready now.
    pub(crate) fn requests(&self) -> StandbyRequests {
        let queue = self.queue.lock();
        let memtable = queue.requests.memtable && queue.sealed.len() < SEALED_COUNT_MAX;
        StandbyRequests { memtable, ..queue.requests }
    }

    /// The standby log's file, and whether a standby generation is ready.
    pub(crate) fn standby(&self) -> (Option<FileName>, bool) {
        let queue = self.queue.lock();
        (queue.standby_log.as_ref().map(LogFramer::file), queue.standby_memtable.is_some())
    }

    /// Makes a standby log ready for the leader.
    pub(crate) fn put_standby_log(&self, log: LogFramer) {
        let mut queue = self.queue.lock();
        queue.requests.log = None;
        queue.standby_log = Some(log);
        drop(queue);
        self.changed.notify();
    }

    /// Makes a standby generation ready for the leader.
    pub(crate) fn put_standby_memtable(&self, standby: StandbyMemtable) {
        let mut queue = self.queue.lock();
        queue.requests.memtable = false;
        queue.standby_memtable = Some(standby);
        drop(queue);
        self.changed.notify();
    }

    /// The oldest generation that waits for its flush.
    pub(crate) fn oldest_sealed(&self) -> Option<Arc<SealedGeneration>> {
        self.queue.lock().sealed.first().cloned()
    }

    /// Seals the present generation if no commit leads, it is not empty, its log has no failed tail, and a
    /// log and a generation are ready; `false` otherwise.
    pub(crate) fn try_seal(&self) -> bool {
        let mut queue = self.queue.lock();
        let ready = queue.leader.take_if(|leader| !leader.is_empty() && leader.failed_tail_to == 0);
        let Some(mut leader) = ready else {
            return false;
        };
        let next = self.seal_in(&mut queue, &mut leader);
        match next {
            Some(next) => {
                drop(queue);
                self.begin_generation(next);
                self.hand_over(leader);
                true
            }
            None => {
                queue.leader = Some(leader);
                false
            }
        }
    }

    /// Seals the leader's generation and continues with the standby log and generation. `None` if one of them
    /// is missing, which is then requested, or if too many generations are sealed.
    fn seal_in(&self, queue: &mut WriteQueue, leader: &mut WriteLeader) -> Option<Arc<Generation>> {
        if queue.standby_log.is_none() {
            queue.requests.log.get_or_insert(self.lengths.next(&leader.active.log, 0));
        }
        queue.requests.memtable |= queue.standby_memtable.is_none();
        if queue.sealed.len() >= SEALED_COUNT_MAX || queue.standby_memtable.is_none() {
            return None;
        }
        let log = queue.standby_log.take()?;
        let memtable = queue.standby_memtable.take().expect("asked for above, under the same lock");
        let next = Arc::clone(&memtable.generation);
        queue.sealed.push(leader.seal(log, memtable));
        Some(next)
    }

    /// Seals the leader's generation and continues with `next`, without a limit of sealed generations.
    pub(super) fn seal_into(&self, leader: &mut WriteLeader, next: MemtableAndLog) {
        let MemtableAndLog { log, generation, inserter } = next;
        let memtable = StandbyMemtable { generation: Arc::clone(&generation), inserter, grant: None };
        self.queue.lock().sealed.push(leader.seal(log, memtable));
        self.begin_generation(generation);
    }

    /// Continues with `next`, after all generations were flushed and their logs and the standby log are gone.
    pub(super) fn restart(&self, leader: &mut WriteLeader, next: MemtableAndLog) {
        let generation = Arc::clone(&next.generation);
        *leader = WriteLeader::new(next, leader.last_sequence, &self.reserve);
        let mut queue = self.queue.lock();
        queue.sealed.clear();
        queue.standby_log = None;
        queue.requests.log = None;
        drop(queue);
        self.begin_generation(generation);
    }

    fn begin_generation(&self, next: Arc<Generation>) {
        self.views.begin_generation(next);
        self.changed.notify();
    }

    pub(crate) fn sealed_count(&self) -> usize {
        self.queue.lock().sealed.len()
    }

    /// Whether no sealed generation holds a write up to `last`.
    pub(crate) fn has_flushed(&self, last: Sequence) -> bool {
        let is_after = |sealed: &Arc<SealedGeneration>| {
            sealed.generation.sequences().is_none_or(|(first, _)| first > last)
        };
        self.queue.lock().sealed.iter().all(is_after)
    }

    /// Notes that a generation's items are in tables.
    pub(crate) fn flushed(&self, sealed: &Arc<SealedGeneration>) {
        // Released before the notification: a woken commit may wait for that memory.
        drop(sealed.grant.lock().take());
        self.queue.lock().sealed.retain(|one| !Arc::ptr_eq(one, sealed));
        self.changed.notify();
    }

    /// Whether the active generation holds a large batch and is to be sealed.
    pub(crate) fn holds_large_batch(&self) -> bool {
        self.queue.lock().leader.as_ref().is_some_and(|leader| leader.holds_large_batch())
    }

    /// Reason why no room can be made, while that lasts.
    pub(crate) fn stuck(&self) -> Option<Error> {
        self.queue.lock().stuck.clone().filter(|_| !self.awaited.is_given())
    }

    /// Sets or clears the reason why no room can be made.
    pub(crate) fn set_stuck(&self, error: Option<Error>) {
        let mut queue = self.queue.lock();
        let is_news = queue.stuck.is_some() || error.is_some();
        queue.stuck = error;
        drop(queue);
        if is_news {
            self.changed.notify();
        }
    }

    /// Time that a batch waits before it queues up.
    pub(super) fn delay_ns(&self, payload: &[u8], items: usize, key_value_bytes: usize) -> u64 {
        let paid_ns = self.pressures.delay_ns(payload, items, key_value_bytes);
        if paid_ns > 0 {
            self.counts.delayed_ns.fetch_add(paid_ns, Ordering::Relaxed);
        }
        paid_ns
    }

    /// Continues with a fresh log and generation, if they are ready; an error says why none can be made. The
    /// caller has erased the log's failed tail.
    pub(super) fn seal(&self, leader: &mut WriteLeader) -> Result<Sealing> {
        let seen = self.changed.seen();
        let mut queue = self.queue.lock();
        let requests = queue.requests;
        if let Some(next) = self.seal_in(&mut queue, leader) {
            drop(queue);
            self.begin_generation(next);
            return Ok(Sealing::Sealed);
        }
        self.no_room(queue, requests, seen)
    }

    /// Continues with a fresh log, if one more generation may be sealed. The log may be too short for the
    /// payload; a log requested here is long enough.
    pub(super) fn switch_log_to_seal(
        &self,
        leader: &mut WriteLeader,
        payload_bytes: usize,
    ) -> Result<Sealing> {
        let seen = self.changed.seen();
        let queue = self.queue.lock();
        if queue.sealed.len() >= SEALED_COUNT_MAX {
            let requests = queue.requests;
            return self.no_room(queue, requests, seen);
        }
        drop(queue);
        self.switch_log(leader, payload_bytes)
    }

    /// Seals the leader's generation and continues with the one made for a large batch. The present log holds
    /// nothing but that batch, whose sequences come after `last_sequence`.
    pub(super) fn begin_own(&self, leader: &mut WriteLeader, room: &LargeRoom, last_sequence: Sequence) {
        let memtable = room.take();
        let next = Arc::clone(&memtable.generation);
        self.queue.lock().sealed.push(leader.seal_before(memtable, last_sequence));
        self.begin_generation(next);
    }

    /// Seals the leader's generation if a standby log and generation are ready; otherwise requests them.
    pub(super) fn seal_if_ready(&self, leader: &mut WriteLeader) {
        let mut queue = self.queue.lock();
        let requests = queue.requests;
        let next = self.seal_in(&mut queue, leader);
        let is_news = queue.requests != requests;
        drop(queue);
        match next {
            Some(next) => self.begin_generation(next),
            None if is_news => self.changed.notify(),
            None => {}
        }
    }

    /// Continues with a fresh log and the same generation, if a log is ready. That log may be too short for
    /// the payload; a log requested here is long enough. The caller has erased the log's failed tail.
    pub(super) fn switch_log(&self, leader: &mut WriteLeader, payload_bytes: usize) -> Result<Sealing> {
        let seen = self.changed.seen();
        let mut queue = self.queue.lock();
        if let Some(log) = queue.standby_log.take() {
            leader.switch_log(log);
            return Ok(Sealing::Sealed);
        }
        let requests = queue.requests;
        queue.requests.log = Some(self.lengths.next(&leader.active.log, payload_bytes));
        self.no_room(queue, requests, seen)
    }

    /// Notifies the flush worker if there are new requests since `before`. That fires the caller's event too,
    /// so the caller retries once before it waits.
    fn no_room(
        &self,
        queue: MutexGuard<'_, WriteQueue>,
        before: StandbyRequests,
        seen: u64,
    ) -> Result<Sealing> {
        if let Some(error) = queue.stuck.as_ref().filter(|_| !self.awaited.is_given()) {
            return Err(error.clone());
        }
        let is_news = queue.requests != before;
        drop(queue);
        if is_news {
            self.changed.notify();
        }
        Ok(Sealing::NoRoom { seen })
    }

    /// Requests the next log and generation once the present ones are half full; `true` if a request is new.
    pub(super) fn want_ahead(&self, queue: &mut WriteQueue, leader: &WriteLeader) -> bool {
        let before = queue.requests;
        let is_memtable_half_full = leader.is_memtable_half_full();
        if (is_memtable_half_full || leader.is_log_half_full())
            && queue.standby_log.is_none()
            && queue.requests.log.is_none()
        {
            queue.requests.log = Some(self.lengths.next(&leader.active.log, 0));
        }
        queue.requests.memtable |= is_memtable_half_full && queue.standby_memtable.is_none();
        queue.requests != before
    }
}

impl WriteCounts {
    pub(super) fn add(&self, commits: u64, items: u64, key_value_bytes: u64) {
        // Only the leader writes these counters.
        let add =
            |count: &AtomicU64, more| count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        add(&self.commits, commits);
        add(&self.items, items);
        add(&self.key_value_bytes, key_value_bytes);
    }
}
