//! Commit and flush: how a batch becomes durable and visible, and how a full generation becomes tables.
//!
//! Commit is a state machine like the lookups; flush does a bounded piece of work a turn. Neither waits or
//! has a thread.

pub(crate) mod batch;
pub(crate) mod commit;
pub(crate) mod flush;
pub(crate) mod hold;
pub(crate) mod lengths;
pub(crate) mod pace;
mod ticket;
pub(crate) mod writer;

#[cfg(all(loom, test))]
mod loom_tests;
