//! Commit and flush: a batch becomes durable and visible, and a full generation becomes tables. Layers hold
//! the versions of a flushed generation that snapshots still see.
//!
//! Commit is a state machine like the lookups; flush does a bounded piece of work per turn. Neither blocks or
//! has a thread.

pub(crate) mod awaited;
pub(crate) mod batch;
pub(crate) mod commit;
pub(crate) mod flush;
pub(crate) mod hold;
pub(crate) mod large;
pub(crate) mod layers;
pub(crate) mod lengths;
pub(crate) mod pace;
mod standby;
mod ticket;
mod write_leader;
pub(crate) mod writer;

#[cfg(all(loom, test))]
mod loom_tests;
