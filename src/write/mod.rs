//! Commit and flush: how a batch becomes durable and visible, and how a full generation becomes tables; and
//! layers, what snapshots still see of one.
//!
//! Commit is a state machine like the lookups; flush does a bounded piece of work a turn. Neither waits or
//! has a thread.

pub(crate) mod awaited;
pub(crate) mod batch;
pub(crate) mod commit;
pub(crate) mod flush;
mod front;
pub(crate) mod hold;
pub(crate) mod large;
pub(crate) mod layers;
pub(crate) mod lengths;
pub(crate) mod pace;
mod standby;
mod ticket;
pub(crate) mod writer;

#[cfg(all(loom, test))]
mod loom_tests;
