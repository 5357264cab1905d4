//! Commits: writes, and the changes of keyspaces and tables that have a place in their order.
//!
//! Writes go through the log; `order` gives catalog changes the write leader's place; `waits` holds the calls
//! that wait for background work. Any thread.

pub(crate) mod async_writes;
mod futures;
pub(super) mod gate;
pub(super) mod keyspaces;
mod large;
pub(super) mod order;
pub(crate) mod routing;
mod waits;
pub(super) mod worker;
mod write;

use std::ops::Deref;

use super::background::Scheduler;
use async_writes::AsyncWrites;
use gate::OrderGate;

/// See the module.
pub(crate) struct Committer {
    pub(super) scheduler: Scheduler,
    /// Passed before the write leader's place, by catalog changes that take a place in the order of commits.
    pub(super) gate: OrderGate,
    pub(super) async_writes: AsyncWrites,
}

impl Deref for Committer {
    type Target = Scheduler;

    #[inline]
    fn deref(&self) -> &Scheduler {
        &self.scheduler
    }
}
