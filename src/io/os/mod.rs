//! The operating system behind [`Env`]: Linux in full, any other unix as far as it supports the calls.
//!
//! Formats have no place here: this module knows names and kinds of files, but not their bytes. The engine
//! makes one [`Env::os`] per store. Any thread may use any part of it.
//!
//! - `storage`: the store's directory, through one descriptor that is opened by path once.
//! - `files`: the open files, and the choice of the one to close when there are too many.
//! - `readers`: several reads in flight, by a `ring` (io_uring) or a `pool` of threads.
//! - `system`: differences between unixes.
//! - `env`: threads, clock, randomness. `memory`: mapped regions. `map`: mapped files, for the lab.
//! - `window`: the end of a log, mapped. `process`: detects forked processes.

#[cfg(all(test, not(loom), target_os = "linux"))]
mod bell_tests;
mod env;
mod files;
#[cfg(feature = "lab")]
mod map;
mod memory;
mod pool;
mod process;
mod readers;
#[cfg(target_os = "linux")]
mod ring;
mod storage;
mod system;
#[cfg(target_os = "linux")]
mod window;

use std::path::Path;

use crate::base::error::Result;
use crate::base::sync::Arc;

use super::env::Env;

pub(crate) use env::{OsClock, OsRandom, OsThreads};
pub(crate) use memory::OsMemory;
pub(crate) use readers::ReadWith;
pub(crate) use storage::{DirectIo, FileUse, OsStorage};

impl Env {
    /// The environment of a store in the directory `path`, which need not exist yet.
    ///
    /// # Errors
    /// `Io` if the system's random generator fails.
    pub(crate) fn os(path: &Path, files: FileUse) -> Result<Env> {
        Ok(Env {
            storage: Arc::new(OsStorage::new(path, files)),
            threads: Arc::new(OsThreads::new()),
            clock: Arc::new(OsClock::new()),
            random: Arc::new(OsRandom::new()?),
            memory: Arc::new(OsMemory),
        })
    }
}
