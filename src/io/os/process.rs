//! Whether the calling process is the one that opened a store.
//!
//! Any thread may ask. On Linux from 4.14 on the answer costs a load; elsewhere the process's id is compared,
//! which is a system call.

use rustix::process::{Pid, getpid};

use crate::base::error::{Error, Result};

use super::super::env::Memory;
use super::super::fork::{FORKED, ForkByte};
use super::memory::OsMemory;

/// Of the process that made it, any value but [`FORKED`].
const OWN: u8 = 1;

/// See the module.
#[derive(Debug)]
pub(super) struct OwnProcess {
    /// `None` where the system has no memory that a fork clears.
    byte: Option<ForkByte>,
    id: Pid,
}

impl OwnProcess {
    /// The calling process.
    pub(super) fn new() -> OwnProcess {
        OwnProcess::with(&OsMemory)
    }

    fn with(memory: &dyn Memory) -> OwnProcess {
        OwnProcess { byte: ForkByte::wiped(memory, OWN), id: getpid() }
    }

    /// Whether the caller is another process, forked off that one.
    pub(super) fn is_forked(&self) -> bool {
        match &self.byte {
            Some(byte) => byte.load() == FORKED,
            None => getpid() != self.id,
        }
    }

    /// # Errors
    /// `Forked`.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
