//! Group commit: a state machine that takes batches through the log into the memtable, in one order for all
//! keyspaces.
//!
//! A commit that finds the [`WriteLeader`] (log, generation, sequence) free takes it and leads. The leader
//! frames its own batch and the queued batches, asks its driver for one append and, if a member needs it, for
//! a sync. It then inserts all batches, advances the visible sequence, and hands the lead to the next commit
//! in the queue. The other commits wait for their tickets. The machine never writes, syncs, holds a lock
//! across either, or sleeps: its driver does the I/O and the waiting.
//!
//! Invariants:
//! 1. There is one [`WriteLeader`]; only its holder writes log and memtable.
//! 2. A batch lies wholly in one record, one log and one generation.
//! 3. The visible sequence advances only after the append (and the sync, where requested) and after every
//!    item is in the memtable.
//! 4. Before the active log is synced, all earlier logs are durable.
//! 5. After a failed sync, or a failed append other than on a full disk, the latch is set and no commit
//!    writes.

use std::ops::Deref;

use crate::base::error::{Error, Result};
use crate::base::id::{FileName, ItemKind, Sequence};
use crate::base::reserve;
use crate::base::step::MachineStep;
use crate::base::sync::{Arc, Event, Mutex, Ordering};
use crate::format::log::Items;
use crate::wal::{LogFramer, LogMark};

use super::batch::{self, Keyspaces};
use super::large::{self, LargeRoom};
use super::lengths::GROUP_BYTES_MAX;
use super::writer::{
    LOGS_MAX, Payload, SEALED_COUNT_MAX, Sealing, Seals, Ticket, TicketState, Until, WriteLeader, Writer,
};

/// Longer payloads do not use [`Commit::start_alone`]: copying them takes the caller's time.
const ALONE_BYTES_MAX: usize = 16 << 10;

/// A request from a commit to its driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteAsk {
    /// Write [`Commit::bytes`] there; then start writeback of a range, if one is given as offset and length.
    Append { file: FileName, offset: u64, writeback: Option<(u64, u64)> },
    /// Make the file durable.
    Sync { file: FileName },
    /// Wait until the count of the writer's `changed` event differs from `seen`.
    Room { seen: u64 },
    /// Wait this long, because background work is behind.
    Pause { ns: u64 },
}

/// The next step of a commit; at its end, whether its batch was written.
pub(crate) type CommitStep = MachineStep<WriteAsk, Result<()>>;

/// The input of a commit. Each call of the machine gets the same value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitOp<'a> {
    /// Items in the log's encoding; empty for a sync or a seal.
    pub(crate) payload: &'a [u8],
    /// The same items, if they can be shared while the commit waits; otherwise a waiting commit copies them.
    pub(crate) shared: Option<&'a Arc<batch::BatchItems>>,
    pub(crate) items: usize,
    pub(crate) key_value_bytes: usize,
    /// Keyspaces of the batch. If one was dropped, the whole batch is refused. The leader checks this, so
    /// that no drop comes between the check and the batch's place in the order.
    pub(crate) keyspaces: &'a Keyspaces,
    pub(crate) until: Until,
    /// Seal the present generation first, if it is not empty.
    pub(crate) seals: Seals,
    /// The batch has only range tombstones.
    pub(crate) frees: bool,
    /// The commit queues up even if no commit leads, and this event fires when its ticket changes: see
    /// [`Writer::lead_next`].
    pub(crate) queues: Option<&'a Arc<Event>>,
    /// The generation made for a batch that may not fit into any other.
    pub(crate) room: Option<&'a LargeRoom>,
}

impl CommitOp<'_> {
    /// A commit that writes no items: a sync or a seal.
    pub(crate) fn empty(until: Until, seals: Seals) -> CommitOp<'static> {
        let keyspaces = Keyspaces::NONE;
        let (payload, shared, frees, room) = (&[][..], None, false, None);
        CommitOp {
            payload,
            shared,
            items: 0,
            key_value_bytes: 0,
            keyspaces,
            until,
            seals,
            frees,
            queues: None,
            room,
        }
    }
}

/// Step of a leader.
enum Stage {
    /// Waits for a new log or generation.
    Room,
    /// The append is under way; on a full disk the log returns to the mark.
    Append { mark: LogMark, last_sequence: Sequence },
    /// The sync is under way: earlier logs first, then the leader's own.
    Sync,
    /// The write of the page that records the log's durable end is under way.
    Slot,
    /// Overwrites the records of an append that a full disk cut short with zeros, so that they are never
    /// replayed. Holds the error for the refused batches. Without an error its generation is to be sealed,
    /// and the failed tail must go first, because the next log reuses its sequence numbers.
    Erase(Option<Error>),
}

struct Lead {
    leader: Box<WriteLeader>,
    group: Vec<Arc<Ticket>>,
    stage: Stage,
    /// The batch begins the generation made for it, once its record is written. Not before: a refused batch
    /// leaves no trace of that generation.
    begins_own: bool,
}

/// The machine. `W` is a reference to its writer, or a handle that keeps the writer alive.
pub(crate) struct Commit<W: Deref<Target = Writer>> {
    writer: W,
    role: Role,
    /// The commit leads without other members.
    is_alone: bool,
}

enum Role {
    /// Not begun, except perhaps for a pause.
    Fresh,
    /// Waits for memory for its ticket; `u64` is the count seen of the reserve's event.
    Asks(u64),
    /// Waits for its ticket; `u64` is the count seen of the ticket's event.
    Follows(Arc<Ticket>, u64),
    Leads(Lead),
    Over,
}

impl<W: Deref<Target = Writer>> Commit<W> {
    /// Starts a commit.
    pub(crate) fn start(op: &CommitOp<'_>, writer: W) -> (Commit<W>, CommitStep) {
        let mut commit = Commit { writer, role: Role::Fresh, is_alone: false };
        if let Some(error) = commit.writer.latched().cloned() {
            return (commit, MachineStep::Done(Err(error)));
        }
        let delay = commit.writer.delay_ns(op.payload, op.items, op.key_value_bytes);
        if delay > 0 {
            return (commit, MachineStep::Ask(WriteAsk::Pause { ns: delay }));
        }
        let step = commit.begin(op);
        (commit, step)
    }

    /// Starts a small commit whose only request is an append: no other commit leads or waits, it needs no
    /// sync, and there is room. `None` if these conditions do not hold; then nothing was changed.
    pub(crate) fn start_alone(op: &CommitOp<'_>, writer: W) -> Option<(Commit<W>, CommitStep)> {
        let is_slowed =
            |writer: &Writer| writer.pressures.delay_ns(op.payload, op.items, op.key_value_bytes) > 0;
        if op.until == Until::Synced
            || op.seals == Seals::Yes
            || op.payload.len() > ALONE_BYTES_MAX
            || writer.latched().is_some()
            || is_slowed(&writer)
        {
            return None;
        }
        let leader = {
            let mut queue = writer.queue.lock();
            if queue.waiting.is_empty() { queue.leader.take() } else { None }
        }?;
        let is_erased = leader.failed_tail_to == 0 && leader.failed_tail_starts.is_empty();
        if !is_erased
            || !leader.has_memtable_room(op.items, op.key_value_bytes, op.frees)
            || !leader.has_log_room(op.payload.len(), op.frees)
        {
            writer.hand_over(leader);
            return None;
        }
        let mut commit = Commit { writer, role: Role::Over, is_alone: true };
        let step = commit.append(op, leader, false);
        Some((commit, step))
    }

    /// Continues after a request was answered, or after a wait.
    pub(crate) fn resume(&mut self, op: &CommitOp<'_>, answer: Result<()>) -> CommitStep {
        match std::mem::replace(&mut self.role, Role::Over) {
            Role::Fresh | Role::Asks(_) => self.begin(op),
            Role::Follows(ticket, _) => self.follow(op, ticket),
            Role::Leads(lead) => self.lead(op, lead, answer),
            Role::Over => unreachable!("a finished commit is not resumed"),
        }
    }

    /// The bytes of an append.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.role {
            Role::Leads(lead) => &lead.leader.buffer,
            _ => &[],
        }
    }

    /// The event that ends a wait, and the count seen of it.
    pub(crate) fn waits_for(&self) -> Option<(&Event, u64)> {
        match &self.role {
            Role::Follows(ticket, seen) => Some((&ticket.moved, *seen)),
            Role::Asks(seen) => Some((self.writer.reserve.freed(), *seen)),
            _ => None,
        }
    }

    fn begin(&mut self, op: &CommitOp<'_>) -> CommitStep {
        let mut queue = self.writer.queue.lock();
        let mut grant = None;
        // The memory for a large batch is granted already.
        let may_wait = queue.leader.is_none() || op.queues.is_some();
        if may_wait && !op.payload.is_empty() && op.room.is_none() {
            // Without the lock, because the reserve takes other locks.
            drop(queue);
            grant = match self.writer.reserve.grant_or_wait(reserve::Role::Batches, op.payload.len() as u64) {
                Ok(grant) => Some(grant),
                Err(seen) => {
                    self.role = Role::Asks(seen);
                    return MachineStep::Wait;
                }
            };
            queue = self.writer.queue.lock();
        }
        if op.queues.is_none()
            && let Some(leader) = queue.leader.take()
        {
            drop(queue);
            return self.make_room(op, leader);
        }
        // Under the lock: once `close` has taken the lead for good, no commit would ever lead this one.
        if let Some(error) = self.writer.latched() {
            return MachineStep::Done(Err(error.clone()));
        }
        let ticket = Arc::new(Ticket {
            payload: op.shared.map_or_else(
                || Payload::Own(op.payload.to_vec()),
                |items| Payload::Shared(Arc::clone(items)),
            ),
            grant: Mutex::new(grant),
            items: op.items,
            key_value_bytes: op.key_value_bytes,
            keyspaces: op.keyspaces.clone(),
            until: op.until,
            seals: op.seals,
            frees: op.frees,
            state: Mutex::new(TicketState::Queued),
            moved: op.queues.map_or_else(|| Arc::new(Event::new()), Arc::clone),
        });
        let seen = ticket.moved.seen();
        queue.waiting.push(Arc::clone(&ticket));
        self.role = Role::Follows(ticket, seen);
        MachineStep::Wait
    }

    fn follow(&mut self, op: &CommitOp<'_>, ticket: Arc<Ticket>) -> CommitStep {
        let seen = ticket.moved.seen();
        let state = std::mem::replace(&mut *ticket.state.lock(), TicketState::Queued);
        match state {
            TicketState::Queued => {
                self.role = Role::Follows(ticket, seen);
                MachineStep::Wait
            }
            TicketState::Done(result) => MachineStep::Done(result),
            TicketState::Leads(leader) => self.make_room(op, leader),
        }
    }

    /// Seals or switches logs until the batch fits, then frames the group.
    fn make_room(&mut self, op: &CommitOp<'_>, mut leader: Box<WriteLeader>) -> CommitStep {
        if let Some(error) = self.writer.latched() {
            return self.give_up(leader, Vec::new(), error.clone());
        }
        if !leader.failed_tail_starts.is_empty() {
            return self.erase(leader, Vec::new(), None);
        }
        if leader.holds_large_batch() && leader.failed_tail_to == 0 {
            self.writer.seal_if_ready(&mut leader);
        }
        let is_sealed = op.seals == Seals::No || leader.is_empty();
        let fits_memtable = is_sealed && Self::has_memtable_room(op, &leader);
        if fits_memtable && leader.has_log_room(op.payload.len(), op.frees) {
            return self.append(op, leader, false);
        }
        if op.room.is_some() && self.may_begin_own(op, &leader) {
            return self.append(op, leader, true);
        }
        if leader.failed_tail_to > 0 {
            return self.erase(leader, Vec::new(), None);
        }
        let moved = match op.room {
            _ if fits_memtable => self.writer.switch_log(&mut leader, op.payload.len()),
            Some(_) if leader.logs.len() < LOGS_MAX || leader.is_empty() => {
                self.writer.switch_log_to_seal(&mut leader, op.payload.len())
            }
            _ => {
                assert!(!leader.is_empty(), "an empty generation has room for any other batch");
                self.writer.seal(&mut leader)
            }
        };
        match moved {
            // The next log may still be too short.
            Ok(Sealing::Sealed) => self.make_room(op, leader),
            Ok(Sealing::NoRoom { seen }) => {
                self.role =
                    Role::Leads(Lead { leader, group: Vec::new(), stage: Stage::Room, begins_own: false });
                MachineStep::Ask(WriteAsk::Room { seen })
            }
            Err(error) => self.give_up(leader, Vec::new(), error),
        }
    }

    fn has_memtable_room(op: &CommitOp<'_>, leader: &WriteLeader) -> bool {
        leader.has_memtable_room(op.items, op.key_value_bytes, op.frees)
            || op.room.is_some_and(|room| leader.has_sorted_room(&room.size))
    }

    /// Whether a batch may begin the generation made for it: the log has no records of the present
    /// generation.
    fn may_begin_own(&self, op: &CommitOp<'_>, leader: &WriteLeader) -> bool {
        leader.active.log.is_empty()
            && leader.has_log_room(op.payload.len(), op.frees)
            && self.writer.sealed_count() < SEALED_COUNT_MAX
    }

    fn append(&mut self, op: &CommitOp<'_>, mut leader: Box<WriteLeader>, begins_own: bool) -> CommitStep {
        if let Err(error) = op.keyspaces.check_live() {
            return self.give_up(leader, Vec::new(), error);
        }
        let group = if begins_own { Vec::new() } else { self.gather(op, &leader) };
        let (mark, last_sequence) = (leader.active.log.mark(), leader.last_sequence);
        let offset = leader.active.log.tail().bytes;
        leader.buffer.clear();
        leader.starts.clear();
        let own = (op.payload, op.items);
        let members = std::iter::once(own).chain(group.iter().map(|ticket| (&*ticket.payload, ticket.items)));
        for (payload, count) in members.filter(|(payload, _)| !payload.is_empty()) {
            let leader = &mut *leader;
            if !leader.buffer.is_empty() {
                leader.starts.push(offset + leader.buffer.len() as u64);
            }
            leader.active.log.frame(leader.last_sequence + 1, payload, &mut leader.buffer);
            leader.last_sequence += count as u64;
        }
        leader.count_buffer();
        leader.cover_failed_tail();
        if leader.buffer.is_empty() {
            return self.appended(
                op,
                Lead { leader, group, stage: Stage::Append { mark, last_sequence }, begins_own },
            );
        }
        let file = leader.active.log.file();
        let writeback = leader.next_writeback();
        self.writer.counts.log_bytes.fetch_add(leader.buffer.len() as u64, Ordering::Relaxed);
        self.role =
            Role::Leads(Lead { leader, group, stage: Stage::Append { mark, last_sequence }, begins_own });
        MachineStep::Ask(WriteAsk::Append { file, offset, writeback })
    }

    /// Takes tickets from the queue that fit beside the leader's own batch.
    fn gather(&self, op: &CommitOp<'_>, leader: &WriteLeader) -> Vec<Arc<Ticket>> {
        if self.is_alone {
            return Vec::new();
        }
        let mut queue = self.writer.queue.lock();
        if queue.waiting.is_empty() {
            return Vec::new();
        }
        let (mut items, mut bytes) = (op.items, op.key_value_bytes);
        let mut records = LogFramer::record_bytes(op.payload.len());
        let (mut count, mut frees) = (0, op.frees);
        queue.waiting.retain(|ticket| match ticket.keyspaces.check_live() {
            Ok(()) => true,
            Err(error) => {
                ticket.set(TicketState::Done(Err(error)));
                false
            }
        });
        // A seal is not part of a group: it leads when its turn comes.
        for ticket in queue.waiting.iter().take_while(|ticket| ticket.seals == Seals::No) {
            items += ticket.items;
            bytes += ticket.key_value_bytes;
            records += LogFramer::record_bytes(ticket.payload.len());
            frees &= ticket.frees;
            let has_room =
                leader.has_memtable_room(items, bytes, frees) && leader.has_log_room(records, frees);
            if !has_room || bytes > op.key_value_bytes + GROUP_BYTES_MAX {
                break;
            }
            count += 1;
        }
        queue.waiting.drain(..count).collect()
    }

    fn lead(&mut self, op: &CommitOp<'_>, mut lead: Lead, answer: Result<()>) -> CommitStep {
        // A flush may have synced an earlier log at the same time, and may even have removed it since.
        let is_earlier_durable = matches!(lead.stage, Stage::Sync)
            && lead.leader.earlier.first().is_some_and(|log| log.is_durable.get().is_some());
        // Synced records are durable, even if there was no space for the page that records it.
        let is_unsaid = matches!((&lead.stage, &answer), (Stage::Slot, Err(Error::Full { .. })));
        if let Err(error) = answer
            && !is_earlier_durable
            && !is_unsaid
        {
            return self.fail(lead, error);
        }
        match lead.stage {
            Stage::Room => self.make_room(op, lead.leader),
            Stage::Append { .. } => {
                lead.leader.failed_tail_to = 0;
                self.appended(op, lead)
            }
            Stage::Sync if lead.leader.synced_earlier() => self.sync(op, lead),
            Stage::Sync => {
                let log = &mut lead.leader.active.log;
                let (file, offset, page) = log.synced(log.tail());
                lead.leader.buffer.clear();
                lead.leader.buffer.extend_from_slice(&page);
                lead.stage = Stage::Slot;
                self.role = Role::Leads(lead);
                MachineStep::Ask(WriteAsk::Append { file, offset, writeback: None })
            }
            Stage::Slot => self.finish(op, lead),
            Stage::Erase(refused) if !lead.leader.erased_failed_tail() => {
                self.erase(lead.leader, lead.group, refused)
            }
            Stage::Erase(Some(error)) => self.give_up(lead.leader, lead.group, error),
            Stage::Erase(None) => self.make_room(op, lead.leader),
        }
    }

    fn appended(&mut self, op: &CommitOp<'_>, lead: Lead) -> CommitStep {
        let wants_sync =
            op.until == Until::Synced || lead.group.iter().any(|ticket| ticket.until == Until::Synced);
        if wants_sync { self.sync(op, lead) } else { self.finish(op, lead) }
    }

    fn sync(&mut self, op: &CommitOp<'_>, mut lead: Lead) -> CommitStep {
        lead.leader.earlier.retain(|log| log.is_durable.get().is_none());
        let file = match lead.leader.earlier.first() {
            Some(log) => log.file,
            None if lead.leader.active.log.unsynced_bytes() == 0 => return self.finish(op, lead),
            None => lead.leader.active.log.file(),
        };
        lead.stage = Stage::Sync;
        self.role = Role::Leads(lead);
        MachineStep::Ask(WriteAsk::Sync { file })
    }

    /// Makes the group visible, completes its tickets and hands the lead over.
    fn finish(&mut self, op: &CommitOp<'_>, mut lead: Lead) -> CommitStep {
        let leader = &mut *lead.leader;
        let own = (op.payload, op.items, op.key_value_bytes);
        let others = lead.group.iter().map(|ticket| (&*ticket.payload, ticket.items, ticket.key_value_bytes));
        let total: u64 = op.items as u64 + lead.group.iter().map(|ticket| ticket.items as u64).sum::<u64>();
        let mut sequence = leader.last_sequence - total;
        let mut bytes = 0;
        // A sync or a seal is not counted as a batch.
        let (mut batches, mut has_ranges) = (0, false);
        if let Some(room) = op.room.filter(|_| lead.begins_own) {
            self.writer.begin_own(leader, room, sequence);
        }
        let gaps = self.writer.views.gaps();
        gaps.begin(leader.last_sequence);
        let is_sorted = op.room.is_some() && !leader.active.inserter.room(op.items, op.key_value_bytes);
        for (payload, count, key_value_bytes) in std::iter::once(own).chain(others) {
            bytes += key_value_bytes as u64;
            batches += u64::from(count > 0);
            let items_before = sequence;
            for item in Items::encoded(payload, count as u64) {
                sequence += 1;
                match item.kind {
                    ItemKind::Put => gaps.cut(item.tree, item.key),
                    ItemKind::Delete => gaps.grow(item.tree, item.key, sequence),
                    ItemKind::DeleteRange => has_ranges = true,
                }
                if !is_sorted {
                    let hash = self.writer.secret.hash_in(item.tree.keyspace, item.key);
                    leader.active.inserter.insert(item.tree, item.key, hash, sequence, item.kind, item.value);
                }
            }
            if is_sorted {
                assert!(
                    count == op.items,
                    "a batch that has room in the order of its keys alone is no group's"
                );
                let items = Items::encoded(payload, count as u64);
                let (inserter, secret) = (&mut leader.active.inserter, &self.writer.secret);
                large::insert_sorted(inserter, secret, items, items_before + 1, |_, _| Ok(true))
                    .expect("all of them are kept");
            }
        }
        assert!(sequence == leader.last_sequence, "a batch holds the items it was announced with");
        if let Some(grant) = &mut leader.memtable_grant {
            grant.set(leader.active.generation.capacity_bytes() as u64);
        }
        leader.buffer.shrink_to(GROUP_BYTES_MAX);
        leader.count_buffer();
        self.writer.visible.store(sequence, Ordering::Release);
        self.writer.counts.add(batches, total, bytes);
        for ticket in lead.group {
            ticket.set(TicketState::Done(Ok(())));
        }
        self.writer.hand_over(lead.leader);
        if has_ranges {
            self.writer.want_look_at_ranges();
        }
        MachineStep::Done(Ok(()))
    }

    fn fail(&mut self, lead: Lead, error: Error) -> CommitStep {
        let Lead { mut leader, group, stage, .. } = lead;
        match (stage, &error) {
            (Stage::Room, _) => {}
            (Stage::Append { mark, last_sequence }, Error::Full { .. }) => {
                let end = leader.active.log.tail().bytes;
                leader.active.log.rewind(mark);
                leader.last_sequence = last_sequence;
                leader.written_back = leader.written_back.min(leader.active.log.tail().bytes);
                leader.failed_tail_to = leader.failed_tail_to.max(end);
                leader.failed_tail_starts = std::mem::take(&mut leader.starts);
                return self.erase(leader, group, Some(error));
            }
            // The rest of the failed tail stays for the next append: there may be no space for zeros either.
            (Stage::Erase(refused), Error::Full { .. }) => {
                return self.give_up(leader, group, refused.unwrap_or(error));
            }
            _ => self.writer.latch(&error),
        }
        self.give_up(leader, group, error)
    }

    /// Asks for zeros over the last record of the failed tail behind the log's tail.
    fn erase(
        &mut self,
        mut leader: Box<WriteLeader>,
        group: Vec<Arc<Ticket>>,
        refused: Option<Error>,
    ) -> CommitStep {
        let (offset, file) = (leader.erase_failed_tail(), leader.active.log.file());
        self.role = Role::Leads(Lead { leader, group, stage: Stage::Erase(refused), begins_own: false });
        MachineStep::Ask(WriteAsk::Append { file, offset, writeback: None })
    }

    fn give_up(&mut self, leader: Box<WriteLeader>, group: Vec<Arc<Ticket>>, error: Error) -> CommitStep {
        for ticket in group {
            ticket.set(TicketState::Done(Err(error.clone())));
        }
        self.writer.hand_over(leader);
        MachineStep::Done(Err(error))
    }
}

impl<W: Deref<Target = Writer>> Drop for Commit<W> {
    /// A commit may be dropped half-way: the lead must not be lost with it.
    fn drop(&mut self) {
        match std::mem::replace(&mut self.role, Role::Over) {
            Role::Fresh | Role::Asks(_) | Role::Over => {}
            Role::Leads(Lead { leader, stage: Stage::Room, .. }) => self.writer.hand_over(leader),
            Role::Leads(lead) => {
                // It is unknown how much of the record reached the log.
                let error = Error::Closed;
                self.writer.latch(&error);
                self.give_up(lead.leader, lead.group, error);
            }
            Role::Follows(ticket, _) => self.writer.leave(&ticket),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
