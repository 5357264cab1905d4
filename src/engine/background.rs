//! Background work: flushes and merges, history, removal of files, and how far all of it is behind.
//!
//! Workers are jobs (`job`) on [`Scheduler`]; they change the store by edits of `publish` alone. Callers of
//! `commit` wait for them by the event of [`Work`]. Any thread.

mod flush;
pub(super) mod flush_work;
mod free;
mod history;
mod look;
mod merge_queue;
pub(super) mod merge_work;
mod obsolete;
mod pressure;
pub(super) mod quiet;
mod removals;
mod restart;
mod samples;
pub(super) mod shapes;
pub(super) mod work;
pub(super) mod workers;

use std::ops::Deref;

use crate::base::reserve::Grant;
use crate::base::sync::{Arc, Mutex};
use crate::io::pace::Pacer;

use super::reads::ReadDriver;
use merge_queue::KnownTrees;
use quiet::Quiet;
use work::Work;

/// See the module.
pub(crate) struct Scheduler {
    pub(super) reads: ReadDriver,
    pub(super) work: Work,
    pub(super) known_trees: Mutex<KnownTrees>,
    pub(super) quiet: Arc<Quiet>,
    pub(super) pacer: Pacer,
    /// The memory of flushed generations that readers keep.
    pub(super) kept: Mutex<Grant>,
}

impl Deref for Scheduler {
    type Target = ReadDriver;

    #[inline]
    fn deref(&self) -> &ReadDriver {
        &self.reads
    }
}
