//! Whether the calling process is the one that opened a store.
//!
//! Any thread may ask. On Linux from 4.14 on the answer costs a load; elsewhere the process's id is compared,
//! which is a system call.

#![cfg_attr(test, expect(unsafe_code, reason = "a test runs code in a forked process"))]

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

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;
    use crate::io::sim::SimMemory;

    /// A forked process is told, by memory that the fork cleared and by its id where the system has none; its
    /// maker goes on.
    #[test]
    fn f18_forked_processes_are_told() {
        assert_eq!(OwnProcess::new().byte.is_some(), cfg!(target_os = "linux"));
        for process in [OwnProcess::new(), OwnProcess::with(&SimMemory)] {
            assert!(!process.is_forked() && process.check().is_ok());
            let process = std::sync::Arc::new(process);
            let copied = std::sync::Arc::clone(&process);
            let look = move || match copied.check() {
                Err(Error::Forked) => Ok(()),
                _ => Err(io::ErrorKind::Other.into()),
            };
            let mut command = Command::new("true");
            // SAFETY: the closure loads a byte or asks for the process's id, which is allowed after a fork.
            unsafe { command.pre_exec(look) };
            assert!(command.status().expect("the forked process was told").success());
            assert!(!process.is_forked());
        }
    }
}
