//! Writes of futures: nobody waits on the thread that polls.
//!
//! A write that has nothing to wait for is done where it is polled. Others queue here for the commit worker,
//! which starts with the first of them: it has them commit together, waits for room, memory and pace, and
//! syncs, while their futures hold no thread.
//!
//! 1. A write that is given up while it is in the queue was never begun: nothing of it is written. Once the
//!    worker has taken it, it is written whole or refused whole, whoever waits for it.
//! 2. The worker never waits within a turn but for the device.
//! 3. Every write in the queue is answered, also when the store closes or its thread could not be started.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, Event, Mutex, wake_all};
use crate::engine::budget::BatchRoom;
use crate::engine::publish::keyspace::Keyspace;
use crate::write::batch::{Items, Keyspaces};
use crate::write::commit::CommitOp;
use crate::write::writer::{Seals, Until};

/// What a future writes; without items, it syncs what is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct AsyncItems {
    pub(crate) items: Arc<Items>,
    pub(crate) keyspaces: Keyspaces,
    /// Those of the keyspaces whose items are to be routed yet.
    pub(crate) divided: Vec<Arc<Keyspace>>,
}

/// A write in the queue, or taken from it.
pub(crate) struct AsyncWrite {
    pub(super) what: AsyncItems,
    pub(super) found: BatchRoom,
    until: Until,
    pub(super) number: u64,
    pub(super) state: Mutex<WriteState>,
}

/// What came of beginning a write.
pub(crate) enum Begun {
    Done(Result<()>),
    Queued(Arc<AsyncWrite>),
}

pub(super) enum WriteState {
    Queued(Waker),
    /// The worker has it.
    Taken(Waker),
    Done(Result<()>),
}

impl AsyncWrite {
    pub(super) fn op<'a>(&'a self, event: &'a Arc<Event>) -> CommitOp<'a> {
        CommitOp { queues: Some(event), ..op(&self.what, self.until) }
    }

    pub(super) fn set_done(&self, result: Result<()>) {
        let before = std::mem::replace(&mut *self.state.lock(), WriteState::Done(result));
        if let WriteState::Queued(waker) | WriteState::Taken(waker) = before {
            wake_all([waker]);
        }
    }
}

pub(super) fn op(what: &AsyncItems, until: Until) -> CommitOp<'_> {
    let AsyncItems { items, keyspaces, .. } = what;
    CommitOp {
        payload: items.payload(),
        shared: Some(items),
        items: items.count(),
        key_value_bytes: items.key_value_bytes(),
        keyspaces,
        until,
        seals: Seals::No,
        frees: items.frees(),
        queues: None,
        room: None,
    }
}

/// The queue.
#[derive(Default)]
pub(in crate::engine) struct AsyncWrites {
    pub(super) queue: Mutex<Queue>,
    /// Whether the worker has been started. Held while it is.
    pub(super) started: Mutex<bool>,
    /// Moves when the worker has something to look at.
    pub(super) event: Arc<Event>,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) waiting: BTreeMap<u64, Arc<AsyncWrite>>,
    next: u64,
    is_closed: bool,
}

impl AsyncWrites {
    /// Has the worker look whether it is to end.
    pub(in crate::engine) fn wake(&self) {
        self.event.notify();
    }

    /// Answers what is in the queue, and what comes later, with an error.
    pub(in crate::engine) fn close(&self, error: &Error) {
        let waiting = {
            let mut queue = self.queue.lock();
            queue.is_closed = true;
            std::mem::take(&mut queue.waiting)
        };
        waiting.into_values().for_each(|write| write.set_done(Err(error.clone())));
    }

    pub(super) fn push(
        &self,
        what: AsyncItems,
        (found, until): (BatchRoom, Until),
        waker: &Waker,
    ) -> Result<Arc<AsyncWrite>> {
        let own = waker.clone();
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Err(Error::Closed);
        }
        let number = queue.next;
        queue.next += 1;
        let state = Mutex::new(WriteState::Queued(own));
        let write = Arc::new(AsyncWrite { what, found, until, number, state });
        queue.waiting.insert(number, Arc::clone(&write));
        drop(queue);
        self.event.notify();
        Ok(write)
    }

    pub(super) fn pop(&self) -> Option<Arc<AsyncWrite>> {
        let (_, write) = self.queue.lock().waiting.pop_first()?;
        let mut state = write.state.lock();
        if let WriteState::Queued(waker) = &*state {
            let waker = waker.clone();
            *state = WriteState::Taken(waker);
        }
        drop(state);
        Some(write)
    }
}
