//! Turns logs into tables while the store is opened, if they hold more than the budget has generations for.
//!
//! This is for a store that was written under a larger budget. Everything has been read and decided, and the
//! manifest has recorded the logs' ends, before anything here runs. There are no readers or writers yet. A
//! generation is filled from the logs, flushed like any sealed one, and freed before the next is filled. If
//! the opening is cut short, the next opening resumes behind the last flush. Each flush's edit says how far
//! it got, and the edit that flushes a log's end also removes the log.

use std::collections::BTreeSet;

use crate::base::error::Result;
use crate::base::id::{FileName, Sequence, TreeId};
use crate::base::sync::{Arc, AtomicBool, Mutex, OnceLock};
use crate::format::log::{Item, Items};
use crate::format::manifest::Log;
use crate::memtable::{Generation, Inserter};
use crate::wal::replay::Chain;
use crate::write::large;
use crate::write::writer::{SealedGeneration, SealedLog};

use super::refill::region_bytes_for;
use crate::engine::background::flush_work::FlushWork;
use crate::engine::store::Store;

/// Turns the contents of these logs, in order, into tables, and removes the logs.
///
/// # Errors
/// The error of a flush. Earlier flushes stay in effect.
pub(in crate::engine) fn flush_logs(store: &Arc<Store>, numbers: &[u64]) -> Result<()> {
    let (logs, flushed, known) = {
        let catalog = store.catalog.take(&*store.env.threads);
        let logs: Vec<(u64, Log)> =
            numbers.iter().filter_map(|number| Some((*number, *catalog.state.logs.get(number)?))).collect();
        (logs, catalog.state.flushed, store.trees().into_iter().collect())
    };
    let mut reflush = Reflush { store, known, flushed, last_sequence: flushed, now: None, ended: Vec::new() };
    let mut chain = Chain::begin(&*store.env.storage, store.store_id, flushed);
    for (number, log) in logs {
        let file = log.file(number);
        let (replayed, _) = chain
            .next(&*store.env.storage, (number, log), &mut |first, items| reflush.add(file, first, items))?;
        let is_durable = OnceLock::new();
        is_durable.get_or_init(|| ());
        let has_recorded_end = AtomicBool::new(true);
        let log = SealedLog { file, end: replayed.end, bytes: log.bytes, is_durable, has_recorded_end };
        reflush.ended.push(Arc::new(log));
    }
    reflush.begin(0)?;
    reflush.flush()
}

struct Reflush<'s> {
    store: &'s Arc<Store>,
    known: BTreeSet<TreeId>,
    /// Items up to this sequence are in tables.
    flushed: Sequence,
    last_sequence: Sequence,
    now: Option<(Arc<Generation>, Inserter)>,
    /// Logs that ended since the last flush.
    ended: Vec<Arc<SealedLog>>,
}

impl Reflush<'_> {
    fn add(&mut self, file: FileName, first: Sequence, items: Items<'_>) -> Result<()> {
        let size = large::batch_size(&items);
        if self.now.as_ref().is_some_and(|(_, inserter)| !inserter.room(size.items, size.key_value_bytes)) {
            self.flush()?;
        }
        let region_bytes = region_bytes_for(&self.store.budget, file, &size)?;
        self.begin(region_bytes)?;
        let Some((_, inserter)) = &mut self.now else { unreachable!("begun above") };
        self.last_sequence = self.last_sequence.max(first + (size.items as u64).saturating_sub(1));
        let (flushed, known) = (self.flushed, &self.known);
        let keeps =
            |item: &Item<'_>, sequence: Sequence| Ok(sequence > flushed && known.contains(&item.tree));
        large::insert(inserter, &self.store.owner.secret, items, first, keeps)
    }

    /// Begins a generation to fill, if there is none.
    fn begin(&mut self, region_bytes: usize) -> Result<()> {
        if self.now.is_none() {
            let region_bytes = region_bytes.max(self.store.budget.generation_bytes as usize);
            self.now = Some(self.store.new_generation(region_bytes)?);
        }
        Ok(())
    }

    /// Flushes the present generation to a table.
    fn flush(&mut self) -> Result<()> {
        let Some((generation, _)) = self.now.take() else { return Ok(()) };
        let logs = std::mem::take(&mut self.ended);
        let sealed = Arc::new(SealedGeneration {
            generation,
            logs,
            last_sequence: self.last_sequence,
            grant: Mutex::new(None),
        });
        let mut work = FlushWork::default();
        let flushed = work.flush_whole(self.store, &sealed);
        work.end(self.store);
        flushed
    }
}

#[cfg(test)]
mod tests;
