//! The log: one file a memtable generation, written through [`log::Log`], read back by [`replay::replay`].
//!
//! It is not the order of commits, nor who waits for a sync (`write::commit`), nor which logs exist (the
//! manifest).

mod log;
pub(crate) mod made;
#[cfg(test)]
pub(crate) mod memory;
pub(crate) mod replay;
#[cfg(test)]
mod tests;

pub(crate) use log::{Log, LogIdentity, Mark};
