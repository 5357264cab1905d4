//! Background work: flushes, merges, history, removal of obsolete files, and the pressure of a backlog on
//! writers.
//!
//! Workers are jobs (`job`) on [`Scheduler`]; they change the store only by edits of `publish`. Callers of
//! `commit` wait for them on the event of [`BackgroundWork`]. Any thread.

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
use work::BackgroundWork;

/// See the module.
pub(crate) struct Scheduler {
    pub(super) reads: ReadDriver,
    pub(super) work: BackgroundWork,
    pub(super) known_trees: Mutex<KnownTrees>,
    pub(super) quiet: Arc<Quiet>,
    pub(super) pacer: Pacer,
    /// Memory of flushed generations that readers still hold.
    pub(super) kept: Mutex<Grant>,
}

impl Deref for Scheduler {
    type Target = ReadDriver;

    #[inline]
    fn deref(&self) -> &ReadDriver {
        &self.reads
    }
}
