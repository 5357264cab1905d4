//! The engine: one open store. It opens and recovers the store, publishes views, drives the state machines,
//! and runs flushes and merges.
//!
//! It is a stack of layers. Each layer is a struct that holds the layer below and derefs to it. No layer
//! names one above (docs/decisions/0051). The table in docs/ARCHITECTURE.md says which part may import which.
//!
//! ```text
//! open, ingest, stats, space: recovery, ingests, statistics
//! store      Store:      the whole
//! commit     Committer:  writes, the order of commits and catalog changes
//! background Scheduler:  flushes, merges, removal of files
//! reads      ReadDriver: gets and scans
//! publish    Publisher:  the present views, catalog and write buffers, and how they change
//! ```
//!
//! Threads share a [`Store`] by reference. Readers take no lock. Every change of tables and keyspaces goes
//! through the catalog, which one thread takes at a time. That thread may do I/O while others wait for the
//! catalog; no mutex is held across I/O.

mod background;
mod budget;
mod closing;
pub(crate) mod commit;
pub(crate) mod ingest;
mod job;
pub(crate) mod open;
mod options;
pub(crate) mod publish;
pub(crate) mod reads;
mod recovery;
mod slices;
pub(crate) mod space;
pub(crate) mod stats;
mod store;

pub(crate) use crate::io::env::Env;
pub(crate) use crate::read::get::GetMode;
pub(crate) use crate::read::trace::NoTrace;
pub(crate) use crate::write::writer::Until;
pub(crate) use options::{OpenMode, OpenOptions};
pub(crate) use reads::short::NeedsPoint;
pub(crate) use store::Store;

#[cfg(test)]
mod tests;
