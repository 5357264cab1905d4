//! The flush worker: keeps a log and a generation ready, and turns sealed generations into tables, oldest
//! first.
//!
//! It also removes files that nobody looks at any more. One thread; a turn is one bounded piece of work.

use crate::base::error::Result;
use crate::base::id::{FileKind, FileName};
use crate::base::sync::{Arc, Ordering, Weak};
use crate::format::manifest::Change;
use crate::io::env::Turn;
use crate::levels::version::Spot;
use crate::memtable::{self, Generation};
use crate::merge::Progress;
use crate::table::{Otherwise, PageRank, Table, TableSummary};
use crate::wal::{Log, LogIdentity};
use crate::write::flush::{Flush, FlushOutput, Tombstones, TreePlan};
use crate::write::writer::{SEALED_COUNT_MAX, Sealed, SealedLog, Spare};

use super::catalog::Edit;
use super::tables::Origin;
use super::work::{Job, Kind, MemoryPart, RETRY_NS};
use super::{Store, slices};

/// What is under way.
#[derive(Default)]
pub(super) struct FlushWork {
    current: Option<(Arc<Sealed>, Flush)>,
    /// A log that nothing names any more, to be used again under a new uid.
    old_log: Option<FileName>,
    memory: MemoryPart,
    /// When each generation was first seen, in seconds since 1970: before any write in it but those that it
    /// was replayed with, or soon after.
    seen: Vec<(Weak<Generation>, u64)>,
}

impl Job for FlushWork {
    fn turn(&mut self, store: &Arc<Store>) -> Turn {
        let seen = store.writer.changed.seen();
        for file in store.discarded.take() {
            store.remove_quietly(file);
        }
        self.see_generations(store);
        let idle = |timeout_ns| Turn::Idle { event: Arc::clone(&store.writer.changed), seen, timeout_ns };
        if store.writer.latched().is_some() {
            // Whoever waits for work to be done must hear that none will be.
            store.work.moved.notify();
            return idle(None);
        }
        let step = self.step(store);
        self.memory.set(&store.work, self.current.as_ref().map_or(0, |(_, flush)| flush.memory_bytes()));
        match step {
            Ok(true) => Turn::Again,
            Ok(false) => idle(None),
            Err(error) => {
                self.current = None;
                store.work.set_flushing(false);
                store.work.set_error(Kind::Flush, Some(error.clone()));
                store.writer.set_stuck(Some(error));
                // `set_stuck` moved the event: wait from here.
                let seen = store.writer.changed.seen();
                Turn::Idle { event: Arc::clone(&store.writer.changed), seen, timeout_ns: Some(RETRY_NS) }
            }
        }
    }

    fn stop(&mut self, _store: &Store) {
        // Its unfinished file is removed; the log has the items.
        self.current = None;
    }
}

impl FlushWork {
    /// One piece of work; `false` if there is none.
    fn step(&mut self, store: &Arc<Store>) -> Result<bool> {
        if !store.writer.has_spare() && store.writer.sealed_count() < SEALED_COUNT_MAX {
            store.writer.put_spare(self.make_spare(store)?);
            self.went_well(store);
            return Ok(true);
        }
        if let Some((sealed, flush)) = &mut self.current {
            if let Progress::Done(output) = flush.turn()? {
                let sealed = Arc::clone(sealed);
                self.finish(store, &sealed, output)?;
                self.current = None;
                self.went_well(store);
                store.work.set_flushing(false);
            }
            return Ok(true);
        }
        let Some(sealed) = store.writer.oldest_sealed() else {
            return Ok(false);
        };
        store.work.set_flushing(true);
        store.measure_pressure();
        promise(store, &sealed.logs)?;
        self.current = Some((Arc::clone(&sealed), begin(store, &sealed)?));
        Ok(true)
    }

    /// Notes when the generations of the present view were first seen.
    fn see_generations(&mut self, store: &Store) {
        self.seen.retain(|(one, _)| one.strong_count() > 0);
        let pin = store.epoch.pin();
        for generation in &store.views.load(&pin).get().generations {
            let weak = Arc::downgrade(generation);
            if !self.seen.iter().any(|(one, _)| one.ptr_eq(&weak)) {
                self.seen.push((weak, store.env.clock.unix_s()));
            }
        }
    }

    fn began_s(&self, generation: &Arc<Generation>) -> u64 {
        let weak = Arc::downgrade(generation);
        let seen = self.seen.iter().find(|(one, _)| one.ptr_eq(&weak));
        seen.expect("the turn that flushes it has seen it").1
    }

    fn went_well(&self, store: &Store) {
        store.work.set_error(Kind::Flush, None);
        store.writer.set_stuck(None);
    }

    /// Makes a table of a generation that nobody else knows of, from begin to end.
    pub(super) fn flush_whole(&mut self, store: &Arc<Store>, sealed: &Arc<Sealed>) -> Result<()> {
        let mut flush = begin(store, sealed)?;
        loop {
            let progress = flush.turn()?;
            self.memory.set(&store.work, flush.memory_bytes());
            if let Progress::Done(output) = progress {
                self.memory.set(&store.work, 0);
                return self.finish(store, sealed, output);
            }
        }
    }

    /// A log that the manifest names and an empty generation.
    fn make_spare(&mut self, store: &Arc<Store>) -> Result<Spare> {
        // Memory first: a log that the manifest names must not be left over when there is none.
        let bytes = store.budget.generation_bytes as usize;
        let (generation, inserter) = store.new_generation(bytes)?;
        let log = make_log(store, self.old_log.take())?;
        Ok(Spare { log, generation, inserter })
    }

    fn finish(&mut self, store: &Arc<Store>, sealed: &Arc<Sealed>, output: FlushOutput) -> Result<()> {
        let flushed = [Arc::clone(&sealed.generation)];
        let mut edit = Edit { flushed: &flushed, ..Edit::default() };
        edit.changes.push(Change::Flushed { sequence: sealed.last_sequence });
        edit.changes.extend(sealed.logs.iter().map(|log| Change::LogRemoved { number: log.file.number }));
        let files = output.table.iter().map(|summary| summary.identity.file);
        let oldest_tombstone_s = self.began_s(&sealed.generation);
        install(store, &output, oldest_tombstone_s, edit).inspect_err(|_| store.remove_unnamed(files))?;
        // Counted before whoever waits for it goes on.
        store.work.flushes.fetch_add(1, Ordering::Relaxed);
        store.work.flush_bytes.fetch_add(output.counts.bytes_written, Ordering::Relaxed);
        store.writer.flushed(sealed);
        store.pin_more();
        store.measure_pressure();
        for log in &sealed.logs {
            match self.old_log {
                None if log.is_whole => self.old_log = Some(log.file),
                _ => store.remove_quietly(log.file),
            }
        }
        Ok(())
    }
}

/// Brings what a flush made into the store.
fn install(
    store: &Store,
    output: &FlushOutput,
    oldest_tombstone_s: u64,
    mut edit: Edit<'_>,
) -> Result<()> {
    store.sync_directory()?;
    let opened = match (&output.table, output.sequences) {
        (Some(summary), Some(sequences)) => Some((summary, opened(store, summary)?, sequences)),
        _ => None,
    };
    // Taken before it is asked which trees are there: one dropped after that must not be in the edit.
    let mut catalog = store.catalog.take(&*store.env.threads);
    if let Some((summary, tables, sequences)) = &opened {
        let origin = Origin { sequences: *sequences, oldest_tombstone_s };
        store.add_tables(&catalog, &mut edit, summary, tables, Spot::LEVEL_0, origin);
    }
    store.edit_taken(&mut catalog, edit)
}

/// Reads soon look into what was flushed: what is not pinned of it is offered to the cache.
fn opened(store: &Store, summary: &TableSummary) -> Result<Vec<Arc<Table>>> {
    store.open_tables(summary, PageRank::UpperFilters, Otherwise::Offer)
}

/// Makes the sealed logs durable and has the manifest promise where they end.
fn promise(store: &Store, logs: &[Arc<SealedLog>]) -> Result<()> {
    let mut changes = Vec::new();
    for log in logs.iter().filter(|log| !log.is_promised.load(Ordering::Acquire)) {
        if log.is_durable.get().is_none() {
            store.env.storage.sync(log.file).inspect_err(|error| store.writer.latch(error))?;
            // A commit may have synced it at the same time: durable twice is durable.
            let _ = log.is_durable.set(());
        }
        changes.push(Change::LogPromised { number: log.file.number, end: log.end });
    }
    if changes.is_empty() {
        return Ok(());
    }
    store.edit(Edit { changes, ..Edit::default() })?;
    logs.iter().for_each(|log| log.is_promised.store(true, Ordering::Release));
    Ok(())
}

fn begin(store: &Arc<Store>, sealed: &Sealed) -> Result<Flush> {
    let version = {
        let pin = store.epoch.pin();
        Arc::clone(&store.views.load(&pin).get().version)
    };
    let trees = sealed.generation.trees().len().max(1) as u64;
    let items_per_tree = sealed.generation.items() / trees;
    let plan_of = |tree| {
        let settings = store.keyspace_of(tree)?.settings();
        let is_empty = version.tree(tree).is_none_or(|tree| tree.runs().next().is_none());
        let tombstones = if is_empty { Tombstones::Drop } else { Tombstones::Keep };
        let slice = slices::of_flush(&settings, version.tree(tree), items_per_tree);
        Some(TreePlan { slice, tombstones })
    };
    let generations = vec![Arc::clone(&sealed.generation)];
    let storage = Arc::clone(&store.env.storage);
    let mut flush = Flush::new(storage, store.new_table()?, store.secret.clone(), generations, plan_of);
    flush.set_write_bytes(store.budget.write_bytes());
    Ok(flush)
}

/// A log, recycled if there is one to recycle, durable and named by the manifest. Nothing is left of either
/// on failure.
fn make_log(store: &Store, old: Option<FileName>) -> Result<Log> {
    let storage = &*store.env.storage;
    let number = store.next_file().inspect_err(|_| store.remove_unnamed(old))?;
    let bytes = store.budget.log_bytes;
    let identity =
        LogIdentity { number, path: 0, uid: store.env.random.u64(), store_id: store.store_id, bytes };
    let made = match old {
        Some(old) => Log::recycle(storage, old, &identity),
        None => Log::create(storage, &identity),
    };
    let named = made.and_then(|log| {
        store.sync_directory()?;
        let change = Change::Log { number, path: 0, uid: identity.uid, bytes };
        store.edit(Edit { changes: vec![change], ..Edit::default() })?;
        Ok(log)
    });
    let files = old.into_iter().chain([FileName::new(FileKind::Log, number)]);
    named.inspect_err(|_| store.remove_unnamed(files))
}

impl Store {
    /// An empty generation in that much fresh memory.
    pub(super) fn new_generation(&self, bytes: usize) -> Result<(Arc<Generation>, memtable::Inserter)> {
        let region = self.env.memory.region_for("a memtable generation", bytes)?;
        let (generation, inserter) = memtable::generation(region);
        let mut alive = self.generations.lock();
        alive.retain(|one| one.strong_count() > 0);
        alive.push(Arc::downgrade(&generation));
        Ok((generation, inserter))
    }
}
