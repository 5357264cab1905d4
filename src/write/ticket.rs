//! A commit that waits for another: what it writes, what memory that takes, and what becomes of it.

use std::ops::Deref;

use crate::base::error::Result;
use crate::base::reserve::Grant;
use crate::base::sync::{Arc, Event, Mutex};

use super::batch::{Items, Keyspaces};
use super::writer::{Front, Seals, Until};

pub(super) struct Ticket {
    pub(super) payload: Payload,
    /// For the payload, until the ticket is answered.
    pub(super) grant: Mutex<Option<Grant>>,
    pub(super) items: usize,
    pub(super) key_value_bytes: usize,
    pub(super) keyspaces: Keyspaces,
    pub(super) until: Until,
    pub(super) seals: Seals,
    pub(super) frees: bool,
    pub(super) state: Mutex<TicketState>,
    pub(super) moved: Event,
}

/// A batch that waits.
pub(super) enum Payload {
    Own(Vec<u8>),
    Shared(Arc<Items>),
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
    Leads(Box<Front>),
    Done(Result<()>),
}

impl Ticket {
    pub(super) fn set(&self, state: TicketState) {
        if matches!(state, TicketState::Done(_)) {
            // Others may wait for it, and the ticket lives on until its thread runs.
            drop(self.grant.lock().take());
        }
        *self.state.lock() = state;
        self.moved.notify();
    }
}
