//! The front held for a while by what is no commit: while it is, no write is under way, and none begins.
//!
//! A change of the catalog is made under it, so that it has one place in the order of writes. It waits for
//! its turn in the queue of commits and never joins a group. It neither writes nor syncs: its caller does
//! what it says, and then tells it. Writers wait meanwhile, so it is held for a few calls of the device, not
//! for work. One thread at a time.
//!
//! Invariants:
//! 1. Whoever drops a hold gives the front to the next commit, or its place in the queue up.
//! 2. A generation is sealed under it by the rules of commits: with a spare, and without remains in the log.

use crate::base::error::Result;
use crate::base::id::{FileName, Sequence};
use crate::base::sync::{Arc, Event, Mutex};
use crate::memtable::Generation;

use super::batch::Keyspaces;
use super::writer::{Front, Payload, Sealing, Seals, Spare, Ticket, TicketState, Until, Writer};

/// See the module.
pub(crate) struct Hold<'w> {
    writer: &'w Writer,
    state: State,
}

enum State {
    /// Waits for its turn; the count is what was seen of the ticket's event.
    Queued(Arc<Ticket>, u64),
    Held(Box<Front>),
    Over,
}

impl<'w> Hold<'w> {
    /// Asks for the front.
    ///
    /// # Errors
    /// What has latched the store.
    pub(crate) fn start(writer: &'w Writer) -> Result<Hold<'w>> {
        let mut queue = writer.queue.lock();
        if let Some(error) = writer.latched() {
            return Err(error.clone());
        }
        if let Some(front) = queue.front.take() {
            return Ok(Hold { writer, state: State::Held(front) });
        }
        let ticket = Arc::new(Ticket {
            payload: Payload::Own(Vec::new()),
            grant: Mutex::new(None),
            keyspaces: Keyspaces::default(),
            items: 0,
            key_value_bytes: 0,
            until: Until::Written,
            // What seals is no part of a group: it leads when its turn comes.
            seals: Seals::Yes,
            frees: false,
            state: Mutex::new(TicketState::Queued),
            moved: Arc::new(Event::new()),
        });
        let seen = ticket.moved.seen();
        queue.waiting.push(Arc::clone(&ticket));
        drop(queue);
        Ok(Hold { writer, state: State::Queued(ticket, seen) })
    }

    /// Whether it has the front by now.
    pub(crate) fn poll(&mut self) -> bool {
        if let State::Queued(ticket, last_seen) = &mut self.state {
            let seen = ticket.moved.seen();
            let state = std::mem::replace(&mut *ticket.state.lock(), TicketState::Queued);
            *last_seen = seen;
            match state {
                TicketState::Leads(front) => self.state = State::Held(front),
                TicketState::Queued => {}
                TicketState::Done(_) => unreachable!("it is in no group that another could answer"),
            }
        }
        matches!(self.state, State::Held(_))
    }

    /// The event that ends a wait for the front, and the count at which it has not.
    pub(crate) fn waits_for(&self) -> Option<(&Event, u64)> {
        match &self.state {
            State::Queued(ticket, seen) => Some((&ticket.moved, *seen)),
            _ => None,
        }
    }

    fn front(&mut self) -> &mut Front {
        match &mut self.state {
            State::Held(front) => front,
            _ => unreachable!("it is asked for once `poll` has said that it is held"),
        }
    }

    /// The last sequence number given out.
    pub(crate) fn last_sequence(&mut self) -> Sequence {
        self.front().last_sequence
    }

    /// Whether the active write buffer holds nothing.
    pub(crate) fn is_buffer_empty(&mut self) -> bool {
        self.front().is_empty()
    }

    /// Where zeros are to be written before a seal, over what a full disk left of refused records; again and
    /// again, until there is nothing.
    pub(crate) fn remains(&mut self) -> Option<(FileName, u64, &[u8])> {
        let front = self.front();
        if front.remains_to == 0 {
            return None;
        }
        let from = front.erase_remains();
        Some((front.spare.log.file(), from, &front.buffer))
    }

    /// They were written.
    pub(crate) fn covered_remains(&mut self) {
        self.front().erased_remains();
    }

    /// Seals the present generation.
    ///
    /// # Errors
    /// Why there is no room to be had.
    pub(crate) fn seal(&mut self) -> Result<Sealing> {
        let writer = self.writer;
        let front = self.front();
        assert!(front.remains_to == 0, "the next log would have the remains' sequence numbers");
        writer.seal(front)
    }

    /// Seals the present generation, and goes on with `next`.
    pub(crate) fn seal_into(&mut self, next: Spare) {
        let writer = self.writer;
        let front = self.front();
        assert!(front.remains_to == 0, "the next log would have the remains' sequence numbers");
        writer.seal_into(front, next);
    }

    /// The generations that are not flushed, newest first, and the last sequence number in them.
    pub(crate) fn unflushed(&mut self) -> (Vec<Arc<Generation>>, Sequence) {
        let sealed = self.writer.queue.lock().sealed.clone();
        let front = self.front();
        let active = std::iter::once(&front.spare.generation);
        let sealed = sealed.iter().rev().map(|one| &one.generation);
        (active.chain(sealed).cloned().collect(), front.last_sequence)
    }

    /// All of them were flushed, and no log is left: goes on with `next`.
    pub(crate) fn restart(&mut self, next: Spare) {
        let writer = self.writer;
        writer.restart(self.front(), next);
    }

    /// The next file to sync until every write is durable.
    pub(crate) fn unsynced(&mut self) -> Option<FileName> {
        let front = self.front();
        front.earlier.retain(|log| log.is_durable.get().is_none());
        let log = &front.spare.log;
        front.earlier.first().map(|log| log.file).or_else(|| (log.unsynced_bytes() > 0).then(|| log.file()))
    }

    /// Whether that file has become durable without: a flush may have synced it, and even have removed it.
    pub(crate) fn is_durable_since(&mut self) -> bool {
        self.front().earlier.first().is_some_and(|log| log.is_durable.get().is_some())
    }

    /// It was synced. What says so is to be written there; not for durability, and so not if it does not fit.
    pub(crate) fn synced(&mut self) -> Option<(FileName, u64, Vec<u8>)> {
        let front = self.front();
        if front.synced_earlier() {
            return None;
        }
        let log = &mut front.spare.log;
        Some(log.synced(log.tail()))
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Queued(ticket, _) => self.writer.leave(&ticket),
            State::Held(front) => self.writer.hand_over(front),
            State::Over => {}
        }
    }
}
