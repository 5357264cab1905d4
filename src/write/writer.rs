//! State shared by all commits of a store: the queue of tickets, the front, the latch, the visible sequence,
//! and the sealed generations that wait for their flush.
//!
//! The steps of a commit are in `commit`. Background work supplies spares and takes sealed generations. Locks
//! are held for a few instructions, never across I/O.

use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileName, Sequence};
use crate::base::reserve::{Grant, Reserve};
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Event, Mutex, MutexGuard, OnceLock, Ordering};
use crate::format::frames::FramePoint;
use crate::levels::view::Views;
use crate::memtable::Generation;
use crate::wal::Log;

use super::awaited::AwaitedMemory;
pub(super) use super::front::Front;
use super::large::LargeRoom;
use super::lengths::{LogLengths, Wants};
use super::pace::Pressures;
pub(crate) use super::standby::{Spare, StandbyMemtable};
pub(super) use super::ticket::{Payload, Ticket, TicketState};

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

/// With this many earlier logs in a generation, a large batch seals it in the usual way. Each large batch
/// that a full disk refuses leaves one log behind.
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
    pub(crate) is_promised: AtomicBool,
}

/// A generation that takes no more writes, and the logs that hold its items.
#[derive(Debug)]
pub(crate) struct Sealed {
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
    /// End of each durable log, for the manifest, which then detects a log that was replaced by an older
    /// copy.
    pub(crate) logs: Vec<(FileName, FramePoint)>,
    /// A page for a slot of the last log, with file and offset. It records the log's end independently of the
    /// witness.
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
    pub(super) queue: Mutex<Queue>,
    pub(super) visible: AtomicU64,
    /// Fires when a spare is ready, a generation is sealed or flushed, or background work fails.
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
pub(super) struct Queue {
    pub(super) front: Option<Box<Front>>,
    pub(super) waiting: Vec<Arc<Ticket>>,
    pub(super) standby_log: Option<Log>,
    pub(super) standby_memtable: Option<StandbyMemtable>,
    pub(super) wants: Wants,
    pub(super) sealed: Vec<Arc<Sealed>>,
    /// Reason why no room can be made, while that lasts.
    pub(super) stuck: Option<Error>,
}

/// State from which a writer continues after open.
pub(crate) struct Resumed {
    pub(crate) spare: Spare,
    /// Earlier logs of that generation.
    pub(crate) logs: Vec<Arc<SealedLog>>,
    /// The last sequence given out.
    pub(crate) last_sequence: Sequence,
    /// Generations that wait for their flush.
    pub(crate) sealed: Vec<Arc<Sealed>>,
}

impl Writer {
    pub(crate) fn new(
        views: Arc<Views>,
        secret: HashSecret,
        resumed: Resumed,
        lengths: LogLengths,
        (changed, reserve): (Arc<Event>, Arc<Reserve>),
    ) -> Writer {
        let Resumed { spare, logs, last_sequence, sealed } = resumed;
        let front = Box::new(Front { logs, ..Front::new(spare, last_sequence, &reserve) });
        let queue = Queue { front: Some(front), sealed, ..Queue::default() };
        Writer::with_queue(views, secret, queue, last_sequence, (lengths, changed, reserve))
    }

    fn with_queue(
        views: Arc<Views>,
        secret: HashSecret,
        queue: Queue,
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
        let writer = Writer::with_queue(views, secret, Queue::default(), last_sequence, none);
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

    /// Takes the front for good; `None` while a commit still leads. `changed` fires when it no longer does.
    ///
    /// Returns the ends of the durable logs, to be recorded.
    pub(crate) fn try_close(&self) -> Option<Ends> {
        let mut queue = self.queue.lock();
        let is_read_only = matches!(self.latch.get(), Some(Error::ReadOnly));
        let front = queue.front.take();
        if front.is_none() && !is_read_only {
            return None;
        }
        queue.standby_memtable = None;
        let standby = queue.standby_log.take().map(|log| log.file());
        let is_told = |log: &&Arc<SealedLog>| {
            log.is_durable.get().is_some() && !log.is_promised.load(Ordering::Acquire)
        };
        let earlier = front.iter().flat_map(|front| &front.logs);
        let sealed = queue.sealed.iter().flat_map(|sealed| &sealed.logs).chain(earlier).filter(is_told);
        let mut ends = Ends { logs: sealed.map(|log| (log.file, log.end)).collect(), slot: None, standby };
        if let Some(mut front) = front.filter(|front| front.spare.log.unsynced_bytes() == 0) {
            let (log, remains_to) = (&mut front.spare.log, front.remains_to);
            ends.logs.push((log.file(), log.tail()));
            ends.slot = Some(log.ended(log.tail(), remains_to > log.tail().bytes));
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
    pub(crate) fn wants(&self) -> Wants {
        let queue = self.queue.lock();
        let memtable = queue.wants.memtable && queue.sealed.len() < SEALED_COUNT_MAX;
        Wants { memtable, ..queue.wants }
    }

    /// The standby log's file, and whether a standby generation is ready.
    pub(crate) fn standby(&self) -> (Option<FileName>, bool) {
        let queue = self.queue.lock();
        (queue.standby_log.as_ref().map(Log::file), queue.standby_memtable.is_some())
    }

    /// Gives the leader a standby log.
    pub(crate) fn put_standby_log(&self, log: Log) {
        let mut queue = self.queue.lock();
        queue.wants.log = None;
        queue.standby_log = Some(log);
        drop(queue);
        self.changed.notify();
    }

    /// Gives the leader a standby generation.
    pub(crate) fn put_standby_memtable(&self, standby: StandbyMemtable) {
        let mut queue = self.queue.lock();
        queue.wants.memtable = false;
        queue.standby_memtable = Some(standby);
        drop(queue);
        self.changed.notify();
    }

    /// The oldest generation that waits for its flush.
    pub(crate) fn oldest_sealed(&self) -> Option<Arc<Sealed>> {
        self.queue.lock().sealed.first().cloned()
    }

    /// Seals the present generation if no commit leads, it is not empty, its log has no failed tail, and a
    /// log and a generation are ready; `false` otherwise.
    pub(crate) fn try_seal(&self) -> bool {
        let mut queue = self.queue.lock();
        let ready = queue.front.take_if(|front| !front.is_empty() && front.remains_to == 0);
        let Some(mut front) = ready else {
            return false;
        };
        let next = self.seal_in(&mut queue, &mut front);
        match next {
            Some(next) => {
                drop(queue);
                self.begin_generation(next);
                self.hand_over(front);
                true
            }
            None => {
                queue.front = Some(front);
                false
            }
        }
    }

    /// Seals the front's generation and continues with the standby log and generation. `None` if one of them
    /// is missing, which is then requested, or if too many generations are sealed.
    fn seal_in(&self, queue: &mut Queue, front: &mut Front) -> Option<Arc<Generation>> {
        if queue.standby_log.is_none() {
            queue.wants.log.get_or_insert(self.lengths.next(&front.spare.log, 0));
        }
        queue.wants.memtable |= queue.standby_memtable.is_none();
        if queue.sealed.len() >= SEALED_COUNT_MAX || queue.standby_memtable.is_none() {
            return None;
        }
        let log = queue.standby_log.take()?;
        let memtable = queue.standby_memtable.take().expect("asked for above, under the same lock");
        let next = Arc::clone(&memtable.generation);
        queue.sealed.push(front.seal(log, memtable));
        Some(next)
    }

    /// Seals the front's generation and continues with `next`, without a limit of sealed generations.
    pub(super) fn seal_into(&self, front: &mut Front, next: Spare) {
        let Spare { log, generation, inserter } = next;
        let memtable = StandbyMemtable { generation: Arc::clone(&generation), inserter, grant: None };
        self.queue.lock().sealed.push(front.seal(log, memtable));
        self.begin_generation(generation);
    }

    /// Continues with `next`, after all generations were flushed and their logs and the standby log are gone.
    pub(super) fn restart(&self, front: &mut Front, next: Spare) {
        let generation = Arc::clone(&next.generation);
        *front = Front::new(next, front.last_sequence, &self.reserve);
        let mut queue = self.queue.lock();
        queue.sealed.clear();
        queue.standby_log = None;
        queue.wants.log = None;
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
        let is_after =
            |sealed: &Arc<Sealed>| sealed.generation.sequences().is_none_or(|(first, _)| first > last);
        self.queue.lock().sealed.iter().all(is_after)
    }

    /// Notes that a generation's items are in tables.
    pub(crate) fn flushed(&self, sealed: &Arc<Sealed>) {
        // Released before the notification: a woken commit may wait for that memory.
        drop(sealed.grant.lock().take());
        self.queue.lock().sealed.retain(|one| !Arc::ptr_eq(one, sealed));
        self.changed.notify();
    }

    /// Whether the active generation holds a large batch and is to be sealed.
    pub(crate) fn holds_large_batch(&self) -> bool {
        self.queue.lock().front.as_ref().is_some_and(|front| front.holds_large_batch())
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
    pub(super) fn seal(&self, front: &mut Front) -> Result<Sealing> {
        let seen = self.changed.seen();
        let mut queue = self.queue.lock();
        let wants = queue.wants;
        if let Some(next) = self.seal_in(&mut queue, front) {
            drop(queue);
            self.begin_generation(next);
            return Ok(Sealing::Sealed);
        }
        self.no_room(queue, wants, seen)
    }

    /// Continues with a fresh log, while one more generation may be sealed. The payload may need a still
    /// longer log.
    pub(super) fn switch_log_to_seal(&self, front: &mut Front, payload_bytes: usize) -> Result<Sealing> {
        let seen = self.changed.seen();
        let queue = self.queue.lock();
        if queue.sealed.len() >= SEALED_COUNT_MAX {
            let wants = queue.wants;
            return self.no_room(queue, wants, seen);
        }
        drop(queue);
        self.switch_log(front, payload_bytes)
    }

    /// Seals the front's generation and continues with the one made for a large batch. The present log holds
    /// nothing but that batch, whose sequences come after `last_sequence`.
    pub(super) fn begin_own(&self, front: &mut Front, room: &LargeRoom, last_sequence: Sequence) {
        let memtable = room.take();
        let next = Arc::clone(&memtable.generation);
        self.queue.lock().sealed.push(front.seal_before(memtable, last_sequence));
        self.begin_generation(next);
    }

    /// Seals the front's generation if a standby log and generation are ready; otherwise requests them.
    pub(super) fn seal_if_ready(&self, front: &mut Front) {
        let mut queue = self.queue.lock();
        let wants = queue.wants;
        let next = self.seal_in(&mut queue, front);
        let is_news = queue.wants != wants;
        drop(queue);
        match next {
            Some(next) => self.begin_generation(next),
            None if is_news => self.changed.notify(),
            None => {}
        }
    }

    /// Continues with a fresh log and the same generation, if a log is ready. The payload may need a still
    /// longer log. The caller has erased the log's failed tail.
    pub(super) fn switch_log(&self, front: &mut Front, payload_bytes: usize) -> Result<Sealing> {
        let seen = self.changed.seen();
        let mut queue = self.queue.lock();
        if let Some(log) = queue.standby_log.take() {
            front.switch_log(log);
            return Ok(Sealing::Sealed);
        }
        let wants = queue.wants;
        queue.wants.log = Some(self.lengths.next(&front.spare.log, payload_bytes));
        self.no_room(queue, wants, seen)
    }

    /// Notifies the flush worker if there are new requests since `before`. That fires the caller's event too,
    /// so the caller retries once before it waits.
    fn no_room(&self, queue: MutexGuard<'_, Queue>, before: Wants, seen: u64) -> Result<Sealing> {
        if let Some(error) = queue.stuck.as_ref().filter(|_| !self.awaited.is_given()) {
            return Err(error.clone());
        }
        let is_news = queue.wants != before;
        drop(queue);
        if is_news {
            self.changed.notify();
        }
        Ok(Sealing::NoRoom { seen })
    }

    /// Requests the next log and generation once the present ones are half full; `true` if a request is new.
    pub(super) fn want_ahead(&self, queue: &mut Queue, front: &Front) -> bool {
        let before = queue.wants;
        let is_memtable_half_full = front.is_memtable_half_full();
        if (is_memtable_half_full || front.is_log_half_full())
            && queue.standby_log.is_none()
            && queue.wants.log.is_none()
        {
            queue.wants.log = Some(self.lengths.next(&front.spare.log, 0));
        }
        queue.wants.memtable |= is_memtable_half_full && queue.standby_memtable.is_none();
        queue.wants != before
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
