//! The workers of a store: what threads, or the simulated scheduler, turn.

use crate::base::error::Result;
use crate::base::sync::Arc;
use crate::io::env::{Turn, Worker};

use super::flush_work::FlushWork;
use super::merge_work::MergeWork;
use super::work::Job;
use super::{Mode, Store};

/// Work under way or waiting, turned by a thread or by the simulated scheduler.
struct Background<W> {
    store: Arc<Store>,
    work: W,
}

impl<W: Job> Worker for Background<W> {
    fn turn(&mut self) -> Turn {
        if self.store.work.is_stopped() {
            self.work.stop(&self.store);
            return Turn::Done;
        }
        let turn = self.work.turn(&self.store);
        // A stop between the look above and the turn's own look at its event would not wake it any more.
        if self.store.work.is_stopped() { Turn::Again } else { turn }
    }
}

/// Starts the workers of a store that may write.
pub(super) fn start(store: &Arc<Store>) -> Result<()> {
    if store.mode == Mode::ReadOnly {
        return Ok(());
    }
    let flush = Background { store: Arc::clone(store), work: FlushWork::default() };
    store.env.threads.spawn("trine-flush", Box::new(flush))?;
    for _ in 0..store.settings.background_threads.saturating_sub(1).max(1) {
        let merge = Background { store: Arc::clone(store), work: MergeWork::default() };
        store.env.threads.spawn("trine-merge", Box::new(merge))?;
    }
    Ok(())
}
