//! The engine: one open store. Opens and recovers it, publishes views, drives the machines, runs flushes and
//! merges.
//!
//! It stands in wings, each on the one below: `publish` (the present tables, names and write buffers, and how
//! they change), `reads`, `background` (flushes, merges and what is removed), `commit` (writes, and changes
//! that have a place in their order), and [`Store`], which has them all. Above it stand `open` and `ingest`,
//! and `stats` and `space`, which read of all. Each wing is a struct that derefs to the one below, and no
//! wing names one above (docs/decisions/0051).
//!
//! Threads share a [`Store`] by reference. Readers take no lock; every change of tables and keyspaces goes
//! through the catalog, one at a time; no lock is held across I/O.

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
pub(crate) use crate::read::get::Wants;
pub(crate) use crate::read::trace::NoTrace;
pub(crate) use crate::write::writer::Until;
pub(crate) use options::{Mode, OpenOptions};
pub(crate) use reads::short::NeedsPoint;
pub(crate) use store::Store;

#[cfg(test)]
mod tests;
