//! Writes of futures: they never block the thread that polls.
//!
//! A write that needs no wait is committed where it is polled. Other writes queue here for the commit worker,
//! whose thread starts with the first of them. The worker commits them together, waits for room, memory and
//! pace, and syncs, while their futures hold no thread.
//!
//! 1. A write that is dropped while it is in the queue never begins: none of it is written. Once the worker
//!    has taken a write, it is written whole or refused whole, even if its future is dropped.
//! 2. Within a turn, the worker waits only for the device.
//! 3. Every write in the queue gets an answer, even if the store closes or the worker's thread cannot start.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, Event, Mutex, wake_all};
use crate::engine::budget::BatchRoom;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::write::batch::{BatchItems, Keyspaces};
use crate::write::commit::CommitOp;
use crate::write::writer::{Seals, Until};

/// The items that a future writes. Without items, the write syncs the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct AsyncItems {
    pub(crate) items: Arc<BatchItems>,
    pub(crate) keyspaces: Keyspaces,
    /// Keyspaces whose items are not routed yet.
    pub(crate) divided: Vec<Arc<KeyspaceState>>,
}

/// A write in the queue, or taken from it.
pub(crate) struct AsyncWrite {
    pub(super) what: AsyncItems,
    pub(super) found: BatchRoom,
    until: Until,
    pub(super) number: u64,
    pub(super) state: Mutex<WriteState>,
}

/// The result of beginning a write.
pub(crate) enum WriteStart {
    Done(Result<()>),
    Queued(Arc<AsyncWrite>),
}

pub(super) enum WriteState {
    Queued(Waker),
    /// The worker has taken the write.
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
    pub(super) queue: Mutex<AsyncWriteQueue>,
    /// Whether the worker has started. The lock is held during the start.
    pub(super) started: Mutex<bool>,
    /// Moves when the worker has work to look at.
    pub(super) event: Arc<Event>,
}

#[derive(Default)]
pub(super) struct AsyncWriteQueue {
    pub(super) waiting: BTreeMap<u64, Arc<AsyncWrite>>,
    next: u64,
    is_closed: bool,
}

impl AsyncWrites {
    /// Makes the worker check whether it must end.
    pub(in crate::engine) fn wake(&self) {
        self.event.notify();
    }

    /// Answers every queued write with an error, and refuses later ones.
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
