//! The flush worker: keeps a standby log and memtable ready, and turns sealed generations into tables, oldest
//! first.
//!
//! It also removes obsolete files that no reader holds (`obsolete`). One thread; a turn is one bounded piece
//! of work.

use crate::base::error::{Error, Result};
use crate::base::id::FileName;
use crate::base::sync::{Arc, Ordering, Weak};
use crate::compact::shape::memory_share_s;
use crate::io::env::Turn;
use crate::levels::manifest::ManifestFile;
use crate::memtable::Generation;
use crate::merge::TurnProgress;
use crate::write::flush::{Flush, FlushOutput};
use crate::write::lengths::{NextLog, StandbyRequests};
use crate::write::writer::{SealedGeneration, SealedLog, StandbyMemtable};

use super::flush::{begin_flush, install, record_sealed_log_ends};
use super::free::Freeing;
use super::history::History;
use super::obsolete::RemovalPace;
use super::quiet::{MemoryUse, Whose};
use super::work::{MemoryPart, RETRY_NS, WorkKind};
use crate::engine::job::Job;
use crate::engine::publish::edit::Edit;

use super::Scheduler;

/// Interval of checks for pinned readers: the end of a pin sends no notification.
const PINS_NS: u64 = 1_000_000;

/// Work under way.
#[derive(Default)]
pub(in crate::engine) struct FlushWork {
    current: Option<(Arc<SealedGeneration>, Flush)>,
    /// A manifest written beside the live one; the next turn makes it live.
    manifest: Option<ManifestFile>,
    history: Option<History>,
    /// The error of a failed history write. The next try comes after the next flush, or when no other work is
    /// left.
    failed_history: Option<Error>,
    /// Pinned readers keep generations whose memory a new write buffer needs.
    waits_for_pins: bool,
    /// A standby log or memtable could not be made: the next try comes after the current flush.
    has_failed_standby: bool,
    /// A log that the manifest no longer names, kept for reuse under a new uid, and its length.
    old_log: Option<(FileName, u64)>,
    memory: MemoryPart,
    freeing: Freeing,
    removal: RemovalPace,
    /// Held while there is anything to flush.
    memory_use: Option<MemoryUse>,
    seen: Vec<Seen>,
}

/// The time of the first turn that sees a generation. The seal that begins the generation causes this turn.
/// So the turn comes before the generation's first write or soon after it; replayed items are older.
struct Seen {
    generation: Weak<Generation>,
    /// Seconds since 1970.
    at_s: u64,
}

impl Job<Scheduler> for FlushWork {
    fn turn(&mut self, store: &Scheduler) -> Turn {
        let seen = store.writer.changed.seen();
        self.see_need(store);
        let look_ns = self.freeing.turn(store);
        let removal_ns = self.removal.look(store);
        self.see_generations(store);
        let idle = |timeout_ns: Option<u64>| {
            let timeout_ns = timeout_ns.or_else(|| store.look_at_trees().age_check_ns());
            let timeout_ns = timeout_ns.into_iter().chain(removal_ns).chain(look_ns).min();
            Turn::Idle { event: Arc::clone(&store.writer.changed), seen, timeout_ns }
        };
        if store.writer.latched().is_some() {
            // Wake waiters: background work has stopped.
            store.work.moved.notify();
            return idle(None);
        }
        store.lend_to_kept();
        let step = self.step(store);
        let flush = self.current.as_ref().map_or(0, |(_, flush)| flush.memory_bytes());
        let history = self.history.as_ref().map_or(0, History::memory_bytes);
        self.memory.set(&store.work, flush + history);
        match step {
            Ok(true) => Turn::Again,
            Ok(false) => idle(self.waits_for_pins.then_some(PINS_NS)),
            Err(error) => {
                self.current = None;
                self.has_failed_standby = false;
                store.work.set_flushing(false);
                // Dropping covered tables may free the space that this step failed for.
                let is_full = matches!(error, Error::Full { .. });
                if is_full && matches!(store.free_covered(), Ok(true)) {
                    return Turn::Again;
                }
                store.work.set_error(WorkKind::Flush, Some(error.clone()));
                // A writer that waits for room must release the log.
                store.writer.set_stuck(Some(error));
                if is_full && matches!(store.restart_log(), Ok(true)) {
                    return Turn::Again;
                }
                // `set_stuck` moved the event: wait from here.
                let seen = store.writer.changed.seen();
                Turn::Idle { event: Arc::clone(&store.writer.changed), seen, timeout_ns: Some(RETRY_NS) }
            }
        }
    }

    fn stop(&mut self, store: &Scheduler) {
        self.end(store);
    }
}

impl FlushWork {
    /// Abandons the work under way; the logs still hold the items.
    pub(in crate::engine) fn end(&mut self, store: &Scheduler) {
        // Unfinished files are removed.
        self.current = None;
        self.take_old_log(store).into_iter().for_each(|(log, _)| store.remove_quietly(log));
        self.history = None;
        self.manifest.take().into_iter().for_each(|manifest| store.remove_quietly(manifest.file()));
        self.memory_use = None;
    }

    /// Takes lent memory back from the cache as long as there is flush work.
    fn see_need(&mut self, store: &Scheduler) {
        let is_needed = store.writer.sealed_count() > 0 || self.current.is_some() || self.history.is_some();
        if !is_needed {
            self.memory_use = None;
        } else if self.memory_use.is_none() {
            self.memory_use = Some(store.quiet.use_memory(Whose::Flushes));
        } else {
            store.quiet.look(store.env.clock.now_ns());
        }
    }

    /// Does one piece of work; `false` if there is none.
    fn step(&mut self, store: &Scheduler) -> Result<bool> {
        self.waits_for_pins = false;
        if let Some(manifest) = self.manifest.take() {
            store.end_manifest(manifest)?;
            return Ok(true);
        }
        self.manifest = store.begin_manifest();
        if self.manifest.is_some() {
            return Ok(true);
        }
        let requests = Self::requests(store);
        if requests.is_any() && !self.has_failed_standby {
            match self.make_standby(store, requests) {
                Ok(()) => {
                    self.went_well(store);
                    return Ok(true);
                }
                // A flush may make room: its log is reused.
                Err(_) if store.writer.latched().is_none() && store.writer.oldest_sealed().is_some() => {
                    self.has_failed_standby = true;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some((sealed, flush)) = &mut self.current {
            if let TurnProgress::Done(output) = flush.turn()? {
                let sealed = Arc::clone(sealed);
                self.finish(store, &sealed, output)?;
                self.current = None;
                (self.failed_history, self.has_failed_standby) = (None, false);
                self.went_well(store);
                store.work.set_flushing(false);
            }
            return Ok(true);
        }
        // History goes before the next flush, which may leave one more generation held by points alone.
        if self.write_history(store) {
            return Ok(true);
        }
        let Some(sealed) = store.writer.oldest_sealed() else {
            // A seal needs a standby log and memtable: make them first.
            let is_due = self.are_deletes_old(store) || store.writer.holds_large_batch();
            let is_sealed = is_due && (store.writer.try_seal() || Self::requests(store).is_any());
            return if is_sealed { Ok(true) } else { self.wait_for_kept(store) };
        };
        store.work.set_flushing(true);
        store.measure_pressure();
        record_sealed_log_ends(store, &sealed.logs)?;
        self.current = Some((Arc::clone(&sealed), begin_flush(store, vec![Arc::clone(&sealed.generation)])?));
        Ok(true)
    }

    /// The standby parts to make now: a memtable only while kept generations leave room for it.
    fn requests(store: &Scheduler) -> StandbyRequests {
        let requests = store.writer.requests();
        StandbyRequests { memtable: requests.memtable && !store.is_kept_full(), ..requests }
    }

    /// Called when no other work is left: returns whether memory for a wanted write buffer has come free.
    ///
    /// # Errors
    /// The reason for the lack of memory, if no work under way will free any.
    fn wait_for_kept(&mut self, store: &Scheduler) -> Result<bool> {
        if !store.writer.requests().memtable || !store.is_kept_full() {
            return Ok(false);
        }
        if store.writer.awaited.is_given() {
            // The error that writers got before is outdated.
            store.writer.set_stuck(None);
        }
        store.writer.awaited.begin();
        store.epoch.collect();
        if !store.is_kept_full() {
            return Ok(true);
        }
        if let Some(error) = self.failed_history.take() {
            return Err(error);
        }
        self.waits_for_pins = store.epoch.has_retired();
        if self.waits_for_pins { Ok(false) } else { Err(store.kept_error()) }
    }

    /// Writes one piece of a history file, if one is due. A failure is not returned: it only keeps the memory
    /// longer.
    fn write_history(&mut self, store: &Scheduler) -> bool {
        if self.history.is_none() && self.failed_history.is_none() {
            self.history = History::begin(store).unwrap_or_else(|error| self.history_failed(error));
            self.see_need(store);
        }
        let Some(history) = &mut self.history else { return false };
        match history.turn(store) {
            Ok(TurnProgress::More) => {}
            Ok(TurnProgress::Done(())) => self.history = None,
            Err(error) => self.history = self.history_failed(error),
        }
        true
    }

    fn history_failed(&mut self, error: Error) -> Option<History> {
        log::warn!("memory kept by snapshots could not be written out: {error}");
        self.failed_history = Some(error);
        None
    }

    /// Records the time of each generation of the present view that is new.
    fn see_generations(&mut self, store: &Scheduler) {
        self.seen.retain(|seen| seen.generation.strong_count() > 0);
        let pin = store.epoch.pin();
        for generation in &store.views.load(&pin).get().generations {
            if self.seen_of(generation).is_none() {
                let (at_s, generation) = (store.env.clock.unix_s(), Arc::downgrade(generation));
                self.seen.push(Seen { generation, at_s });
            }
        }
    }

    fn seen_of(&self, generation: &Arc<Generation>) -> Option<&Seen> {
        let weak = Arc::downgrade(generation);
        self.seen.iter().find(|seen| seen.generation.ptr_eq(&weak))
    }

    /// Time of the turn that first saw a generation; the present time if no view has had the generation.
    fn began_s(&self, store: &Scheduler, generation: &Arc<Generation>) -> u64 {
        self.seen_of(generation).map_or_else(|| store.env.clock.unix_s(), |seen| seen.at_s)
    }

    /// Whether the active generation has held deletes for its share of the bound on their age.
    fn are_deletes_old(&self, store: &Scheduler) -> bool {
        if store.look_at_trees().age_check_ns().is_none() {
            // No keyspace bounds the age of deletes.
            return false;
        }
        let pin = store.epoch.pin();
        let view = store.views.load(&pin).get();
        let active = view.generations.first();
        let Some((active, seen)) = active.and_then(|active| Some((active, self.seen_of(active)?))) else {
            return false;
        };
        if active.deletes() == 0 {
            return false;
        }
        let age_s = store.env.clock.unix_s().saturating_sub(seen.at_s);
        active.trees().into_iter().any(|tree| {
            let settings = store.keyspace_of(tree).map(|keyspace| keyspace.settings());
            settings.filter(|settings| settings.delete_persist_within > 0).is_some_and(|settings| {
                let levels = view.version.tree(tree).map_or(0, |tree| tree.level_count());
                let (within_s, ratio) = (settings.delete_persist_within, settings.size_ratio);
                age_s >= memory_share_s(within_s, ratio, levels.saturating_sub(1))
            })
        })
    }

    fn went_well(&self, store: &Scheduler) {
        store.work.set_error(WorkKind::Flush, None);
        store.writer.set_stuck(None);
        store.writer.awaited.end();
    }

    /// Flushes a generation that no other thread knows of, from begin to end.
    pub(in crate::engine) fn flush_whole(
        &mut self,
        store: &Scheduler,
        sealed: &Arc<SealedGeneration>,
    ) -> Result<()> {
        let mut flush = begin_flush(store, vec![Arc::clone(&sealed.generation)])?;
        loop {
            let progress = flush.turn()?;
            self.memory.set(&store.work, flush.memory_bytes());
            if let TurnProgress::Done(output) = progress {
                self.memory.set(&store.work, 0);
                return self.finish(store, sealed, output);
            }
        }
    }

    /// Makes the standby parts that the write leader continues with: an empty generation, and a log that the
    /// manifest names.
    fn make_standby(&mut self, store: &Scheduler, requests: StandbyRequests) -> Result<()> {
        // Memory first: a failed allocation must not leave an unused log in the manifest.
        if requests.memtable {
            let (generation, inserter) = store.new_generation(store.budget.generation_bytes as usize)?;
            store.writer.put_standby_memtable(StandbyMemtable { generation, inserter, grant: None });
        }
        if let Some(NextLog { bytes, least_bytes }) = requests.log {
            let old = match self.take_old_log(store) {
                Some((old, old_bytes)) if old_bytes == bytes => Some(old),
                // The length of new logs follows the amount written: an old log of another length is useless.
                other => {
                    other.into_iter().for_each(|(old, _)| store.remove_quietly(old));
                    None
                }
            };
            let log = match store.make_log(old, bytes) {
                Err(Error::Full { .. }) if least_bytes < bytes => store.make_log(None, least_bytes),
                made => made,
            };
            store.writer.put_standby_log(log?);
        }
        Ok(())
    }

    /// Keeps the longer of two unnamed logs for reuse, this one or the one already kept, and removes the
    /// other: the next log is at least as long.
    fn keep_longest(&mut self, store: &Scheduler, log: &SealedLog) {
        let is_of_large_batch = log.bytes > store.budget.log_bytes;
        if is_of_large_batch || self.old_log.is_some_and(|(_, bytes)| bytes >= log.bytes) {
            return store.remove_quietly(log.file);
        }
        let shorter = self.take_old_log(store);
        shorter.into_iter().for_each(|(file, _)| store.remove_quietly(file));
        self.old_log = Some((log.file, log.bytes));
        store.work.recycled_log.store(log.file.number, Ordering::Relaxed);
    }

    /// Takes the log that is kept for reuse, with its length.
    fn take_old_log(&mut self, store: &Scheduler) -> Option<(FileName, u64)> {
        let old = self.old_log.take();
        if old.is_some() {
            store.work.recycled_log.store(0, Ordering::Relaxed);
        }
        old
    }

    fn finish(
        &mut self,
        store: &Scheduler,
        sealed: &Arc<SealedGeneration>,
        output: FlushOutput,
    ) -> Result<()> {
        let flushed = [Arc::clone(&sealed.generation)];
        let before = {
            let pin = store.epoch.pin();
            Arc::clone(&store.views.load(&pin).get().version)
        };
        let logs = sealed.logs.iter().map(|log| log.file.number);
        let edit = Edit::flush(&flushed, sealed.last_sequence, logs);
        let files = output.table.iter().map(|built| built.summary.identity.file);
        let oldest_tombstone_s = self.began_s(store, &sealed.generation);
        install(store, &output, oldest_tombstone_s, edit).inspect_err(|_| store.remove_unnamed(files))?;
        // Counters change before callers that wait for the flush go on.
        store.work.flushes.fetch_add(1, Ordering::Relaxed);
        store.work.flush_bytes.fetch_add(output.counts.bytes_written, Ordering::Relaxed);
        store.writer.flushed(sealed);
        store.note_flushed(&before, &sealed.generation.trees(), &output.samples);
        store.pacer.flushed(store.env.clock.now_ns(), output.counts.bytes_written);
        store.pin_more();
        store.measure_pressure();
        for log in &sealed.logs {
            self.keep_longest(store, log);
        }
        Ok(())
    }
}
