//! The operating system behind [`Env`]: Linux as promised, any other unix as far as it goes.
//!
//! It is not a place for knowledge of formats: it knows names and kinds of files, and no byte in them. The
//! engine makes one [`Env::os`] a store; everything in it may be used from any thread.
//!
//! - `storage`: the store's directory through one descriptor, never by path again.
//! - `files`: which files are open, and which to close when there are too many.
//! - `readers`: several reads in flight, by a `ring` of the kernel's or a `pool` of threads.
//! - `system`: where unixes differ.
//! - `env`: threads, clock, randomness. `memory`: mapped regions. `map`: mapped files, for the lab.
//! - `window`: the end of a log, mapped. `process`: whether this is the process that opened the store.

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
    /// `Io` if the system gives no randomness.
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
