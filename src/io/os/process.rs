//! Detects that the calling process is not the one that opened a store.
//!
//! Any thread may ask. On Linux from 4.14 on the check costs a load. Elsewhere it compares the process id,
//! which costs a system call.

use rustix::process::{Pid, getpid};

use crate::base::error::{Error, Result};

use super::super::env::Memory;
use super::super::fork::{FORKED, ForkByte};
use super::memory::OsMemory;

/// Value of the byte in the process that made it: any value but [`FORKED`].
const OWN: u8 = 1;

/// See the module.
#[derive(Debug)]
pub(super) struct OwnProcess {
    /// `None` where the system has no memory that is cleared on fork.
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

    /// Whether the caller runs in a process that was forked from the one that called `new`.
    pub(super) fn is_forked(&self) -> bool {
        match &self.byte {
            Some(byte) => byte.load() == FORKED,
            None => getpid() != self.id,
        }
    }

    /// # Errors
    /// `Forked` if the caller runs in a forked process.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
