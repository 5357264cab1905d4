//! Holds the lead for an operation that is not a commit. Meanwhile no write is under way and none begins.
//!
//! A change of the catalog is made under a hold, so that it has one place in the order of writes. The hold
//! waits for its turn in the queue of commits and never joins a group. It does no I/O: its caller writes and
//! syncs as the hold asks, and reports back. Writers wait meanwhile, so a hold lasts for a few device calls
//! and never for longer work. One thread at a time.
//!
//! Invariants:
//! 1. Dropping a hold hands the lead to the next commit, or removes the hold from the queue.
//! 2. A generation is sealed under a hold by the rules of commits: with a standby log and generation, and
//!    without a failed tail in the log.

use crate::base::error::Result;
use crate::base::id::{FileName, Sequence};
use crate::base::sync::{Arc, Event, Mutex};
use crate::memtable::Generation;

use super::batch::Keyspaces;
use super::writer::{
    MemtableAndLog, Payload, Sealing, Seals, Ticket, TicketState, Until, WriteLeader, Writer,
};

/// See the module.
pub(crate) struct Hold<'w> {
    writer: &'w Writer,
    state: HoldState,
}

enum HoldState {
    /// Waits for its turn; the count is that seen of the ticket's event.
    Queued(Arc<Ticket>, u64),
    Held(Box<WriteLeader>),
    Over,
}

impl<'w> Hold<'w> {
    /// Asks for the lead.
    ///
    /// # Errors
    /// The error that has latched the store.
    pub(crate) fn start(writer: &'w Writer) -> Result<Hold<'w>> {
        let mut queue = writer.queue.lock();
        if let Some(error) = writer.latched() {
            return Err(error.clone());
        }
        if let Some(leader) = queue.leader.take() {
            return Ok(Hold { writer, state: HoldState::Held(leader) });
        }
        let ticket = Arc::new(Ticket {
            payload: Payload::Own(Vec::new()),
            grant: Mutex::new(None),
            keyspaces: Keyspaces::default(),
            items: 0,
            key_value_bytes: 0,
            until: Until::Written,
            // A ticket that seals is not part of a group: it leads when its turn comes.
            seals: Seals::Yes,
            frees: false,
            state: Mutex::new(TicketState::Queued),
            moved: Arc::new(Event::new()),
        });
        let seen = ticket.moved.seen();
        queue.waiting.push(Arc::clone(&ticket));
        drop(queue);
        Ok(Hold { writer, state: HoldState::Queued(ticket, seen) })
    }

    /// Whether the hold has the lead by now.
    pub(crate) fn poll(&mut self) -> bool {
        if let HoldState::Queued(ticket, last_seen) = &mut self.state {
            let seen = ticket.moved.seen();
            let state = std::mem::replace(&mut *ticket.state.lock(), TicketState::Queued);
            *last_seen = seen;
            match state {
                TicketState::Leads(leader) => self.state = HoldState::Held(leader),
                TicketState::Queued => {}
                TicketState::Done(_) => unreachable!("it is in no group that another could answer"),
            }
        }
        matches!(self.state, HoldState::Held(_))
    }

    /// The event that ends a wait for the lead, and the count seen of it.
    pub(crate) fn waits_for(&self) -> Option<(&Event, u64)> {
        match &self.state {
            HoldState::Queued(ticket, seen) => Some((&ticket.moved, *seen)),
            _ => None,
        }
    }

    fn leader(&mut self) -> &mut WriteLeader {
        match &mut self.state {
            HoldState::Held(leader) => leader,
            _ => unreachable!("it is asked for once `poll` has said that it is held"),
        }
    }

    /// The last sequence number given out.
    pub(crate) fn last_sequence(&mut self) -> Sequence {
        self.leader().last_sequence
    }

    /// Whether the active write buffer is empty.
    pub(crate) fn is_buffer_empty(&mut self) -> bool {
        self.leader().is_empty()
    }

    /// The next zeros to write over the failed tail, before a seal. To be repeated until there are none.
    pub(crate) fn failed_tail(&mut self) -> Option<(FileName, u64, &[u8])> {
        let leader = self.leader();
        if leader.failed_tail_to == 0 {
            return None;
        }
        let from = leader.erase_failed_tail();
        Some((leader.active.log.file(), from, &leader.buffer))
    }

    /// Notes that those zeros were written.
    pub(crate) fn covered_failed_tail(&mut self) {
        self.leader().erased_failed_tail();
    }

    /// Seals the present generation.
    ///
    /// # Errors
    /// The reason why no room can be made.
    pub(crate) fn seal(&mut self) -> Result<Sealing> {
        let writer = self.writer;
        let leader = self.leader();
        assert!(leader.failed_tail_to == 0, "the next log would have the failed tail's sequence numbers");
        writer.seal(leader)
    }

    /// Seals the present generation, and continues with `next`.
    pub(crate) fn seal_into(&mut self, next: MemtableAndLog) {
        let writer = self.writer;
        let leader = self.leader();
        assert!(leader.failed_tail_to == 0, "the next log would have the failed tail's sequence numbers");
        writer.seal_into(leader, next);
    }

    /// The unflushed generations, newest first, and the last sequence number in them.
    pub(crate) fn unflushed(&mut self) -> (Vec<Arc<Generation>>, Sequence) {
        let sealed = self.writer.queue.lock().sealed.clone();
        let leader = self.leader();
        let active = std::iter::once(&leader.active.generation);
        let sealed = sealed.iter().rev().map(|one| &one.generation);
        (active.chain(sealed).cloned().collect(), leader.last_sequence)
    }

    /// Continues with `next`, after all generations were flushed and no log is left.
    pub(crate) fn restart(&mut self, next: MemtableAndLog) {
        let writer = self.writer;
        writer.restart(self.leader(), next);
    }

    /// The next file to sync until every write is durable.
    pub(crate) fn unsynced(&mut self) -> Option<FileName> {
        let leader = self.leader();
        leader.earlier.retain(|log| log.is_durable.get().is_none());
        let log = &leader.active.log;
        leader.earlier.first().map(|log| log.file).or_else(|| (log.unsynced_bytes() > 0).then(|| log.file()))
    }

    /// Whether that file has become durable otherwise: a flush may have synced it, and even have removed it.
    pub(crate) fn is_durable_since(&mut self) -> bool {
        self.leader().earlier.first().is_some_and(|log| log.is_durable.get().is_some())
    }

    /// Notes that the file was synced. Returns the page that records this, to be written there. The write is
    /// not needed for durability, so it is skipped if it does not fit.
    pub(crate) fn synced(&mut self) -> Option<(FileName, u64, Vec<u8>)> {
        let leader = self.leader();
        if leader.synced_earlier() {
            return None;
        }
        let log = &mut leader.active.log;
        Some(log.synced(log.tail()))
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, HoldState::Over) {
            HoldState::Queued(ticket, _) => self.writer.leave(&ticket),
            HoldState::Held(leader) => self.writer.hand_over(leader),
            HoldState::Over => {}
        }
    }
}
