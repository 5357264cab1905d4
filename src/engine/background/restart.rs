//! A flush on a full disk that has no room for a new log. The write buffers become a table, or nothing if
//! range tombstones cover all their items, and the log restarts in a file of the old ones.
//!
//! It frees the space of items that were cleared on a full disk and are in a log alone. The flush worker
//! calls it when a flush has failed for want of space and the write buffers hold range tombstones. Writers
//! wait meanwhile.
//!
//! Invariants:
//! 1. Nothing is changed before the edit that marks all items as flushed: a failure up to there has no
//!    effect.
//! 2. From that edit until the manifest names the new log, the store has no log. A failure then latches the
//!    store. An opening makes a log, for which there is room by then.

use crate::base::error::{Error, Result};
use crate::base::id::{FileName, SEQUENCE_MAX};
use crate::base::sync::{Arc, Ordering};
use crate::format::manifest::{Log, ManifestChange};
use crate::memtable::Generation;
use crate::merge::TurnProgress;
use crate::wal::{LogFramer, LogIdentity};
use crate::write::flush::FlushOutput;
use crate::write::hold::Hold;
use crate::write::writer::MemtableAndLog;

use super::Scheduler;
use super::flush::{begin_flush, install};
use crate::engine::publish::edit::Edit;

impl Scheduler {
    /// Whether a write buffer holds range tombstones.
    pub(in crate::engine) fn has_ranges_in_memory(&self) -> bool {
        let pin = self.epoch.pin();
        let view = self.views.load(&pin).get();
        view.generations.iter().any(|generation| generation.has_ranges(SEQUENCE_MAX))
    }

    /// Flushes every write buffer at once and restarts the log in the shortest of its files; `false` if no
    /// write buffer holds a range tombstone, or a writer is at work.
    ///
    /// # Errors
    /// `Full` if a table would be needed. The error that latched the store.
    pub(in crate::engine) fn restart_log(&self) -> Result<bool> {
        let mut hold = Hold::start(&self.writer)?;
        if !hold.poll() {
            return Ok(false);
        }
        let (generations, last_sequence) = hold.unflushed();
        if !generations.iter().any(|generation| generation.has_ranges(SEQUENCE_MAX)) {
            return Ok(false);
        }
        // Before anything is changed: memory may be short too.
        let (generation, inserter) = self.new_generation(self.budget.generation_bytes as usize)?;
        let output = self.flush_at_once(&generations)?;
        let logs: Vec<(u64, Log)> = {
            let catalog = self.catalog.take(&*self.env.threads);
            catalog.state.logs.iter().map(|(number, log)| (*number, *log)).collect()
        };
        let edit = Edit::flush(&generations, last_sequence, logs.iter().map(|(number, _)| *number));
        let files = output.table.iter().map(|built| built.summary.identity.file);
        let oldest_s = self.env.clock.unix_s();
        install(self, &output, oldest_s, edit).inspect_err(|_| self.remove_unnamed(files))?;
        self.work.flushes.fetch_add(1, Ordering::Relaxed);
        let log = self.log_of_shortest(&logs).inspect_err(|error| self.writer.latch(error))?;
        hold.restart(MemtableAndLog { log, generation, inserter });
        drop(hold);
        self.retry_when_freed();
        self.measure_pressure();
        Ok(true)
    }

    fn flush_at_once(&self, generations: &[Arc<Generation>]) -> Result<FlushOutput> {
        let mut flush = begin_flush(self, generations.to_vec())?;
        loop {
            if let TurnProgress::Done(output) = flush.turn()? {
                return Ok(output);
            }
        }
    }

    /// The new log, in the shortest of the files that the manifest no longer names; the others are removed.
    fn log_of_shortest(&self, logs: &[(u64, Log)]) -> Result<LogFramer> {
        let shortest = logs.iter().filter(|(_, log)| log.path == 0).min_by_key(|(_, log)| log.bytes);
        let Some((old, log)) = shortest else {
            return Err(Error::Full { file: FileName::STORE.to_string() });
        };
        for (number, log) in logs.iter().filter(|(number, _)| number != old) {
            self.remove_quietly(log.file(*number));
        }
        let (number, uid) = (self.next_file()?, self.env.random.u64());
        let identity = LogIdentity { number, path: 0, uid, store_id: self.store_id, bytes: log.bytes };
        let made = LogFramer::recycle(&*self.env.storage, log.file(*old), &identity)?;
        self.sync_directory()?;
        let change = ManifestChange::Log { number, path: 0, uid, bytes: log.bytes };
        self.edit(Edit::of(vec![change]))?;
        Ok(made)
    }
}
