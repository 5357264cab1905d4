//! The write-ahead log: one file per memtable generation, written through [`log::LogFramer`], read back by
//! [`replay::replay`].
//!
//! The order of commits and the waiting for syncs are in `write::commit`. The manifest says which logs exist.

mod log;
pub(crate) mod made;
#[cfg(test)]
pub(crate) mod memory;
pub(crate) mod replay;
#[cfg(test)]
mod tests;

pub(crate) use log::{LogFramer, LogIdentity, LogMark};
