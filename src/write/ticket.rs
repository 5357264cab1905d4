//! A queued commit: its batch, the grant for its memory, its state, and the hand-over of the lead to it.

use std::ops::Deref;

use crate::base::error::Result;
use crate::base::reserve::Grant;
use crate::base::sync::{Arc, Event, Mutex, Ordering};

use super::batch::{BatchItems, Keyspaces};
use super::writer::{Seals, Until, WriteLeader, Writer};

pub(super) struct Ticket {
    pub(super) payload: Payload,
    /// Memory grant for the payload, until the ticket is done.
    pub(super) grant: Mutex<Option<Grant>>,
    pub(super) items: usize,
    pub(super) key_value_bytes: usize,
    pub(super) keyspaces: Keyspaces,
    pub(super) until: Until,
    pub(super) seals: Seals,
    pub(super) frees: bool,
    pub(super) state: Mutex<TicketState>,
    /// Several tickets may share one event.
    pub(super) moved: Arc<Event>,
}

/// A queued batch.
pub(super) enum Payload {
    Own(Vec<u8>),
    Shared(Arc<BatchItems>),
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Payload::Own(bytes) => bytes,
            Payload::Shared(items) => items.payload(),
        }
    }
}

pub(super) enum TicketState {
    Queued,
    Leads(Box<WriteLeader>),
    Done(Result<()>),
}

impl Ticket {
    pub(super) fn set(&self, state: TicketState) {
        if matches!(state, TicketState::Done(_)) {
            // Released now: other commits may wait for this memory, and the ticket lives on until its thread
            // runs.
            drop(self.grant.lock().take());
        }
        *self.state.lock() = state;
        self.moved.notify();
    }
}

impl Writer {
    /// Removes a ticket from the queue. If it already has the lead, hands the lead over.
    pub(super) fn leave(&self, ticket: &Arc<Ticket>) {
        let mut queue = self.queue.lock();
        queue.waiting.retain(|one| !Arc::ptr_eq(one, ticket));
        let state = std::mem::replace(&mut *ticket.state.lock(), TicketState::Queued);
        drop(queue);
        if let TicketState::Leads(leader) = state {
            self.hand_over(leader);
        }
    }

    /// Makes the first in the queue lead, if no commit leads: for commits that queued up without checking
    /// the lead.
    pub(crate) fn lead_next(&self) {
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty() {
            return;
        }
        let leader = queue.leader.take();
        drop(queue);
        if let Some(leader) = leader {
            self.hand_over(leader);
        }
    }

    /// Hands the lead to the next in the queue, or leaves it for the next commit.
    pub(super) fn hand_over(&self, leader: Box<WriteLeader>) {
        let mut queue = self.queue.lock();
        let is_news = self.want_ahead(&mut queue, &leader) || leader.holds_large_batch();
        if queue.waiting.is_empty() {
            queue.leader = Some(leader);
            drop(queue);
            if is_news || self.is_closing.load(Ordering::SeqCst) {
                self.changed.notify();
            }
            return;
        }
        let next = queue.waiting.remove(0);
        // Under the lock: a commit that gives up its ticket finds it in the queue, or finds the write leader
        // in it.
        *next.state.lock() = TicketState::Leads(leader);
        drop(queue);
        next.moved.notify();
        if is_news {
            self.changed.notify();
        }
    }
}
