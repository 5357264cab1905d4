//! A checkpoint: a second store in another directory, whose tables are hard links to this store's tables or
//! copies of them.
//!
//! A checkpoint copies no log: the write buffer is flushed first, and the new store begins without logs. Any
//! thread may call. Writes go on meanwhile; catalog changes wait for the flush.
//!
//! Invariants:
//! 0. A checkpoint is one prefix of the joint order of commits and catalog changes. It holds every write that
//!    was acknowledged before the call. A write that was under way at the call may leave its partition in the
//!    checkpoint, empty.
//! 1. Tables are linked while a view holds them. A file that may still be written is never linked.
//! 2. STORE gets its name last: a directory without STORE is no store.

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::id::{FileName, PartitionId, Sequence};
use crate::base::sync::{Arc, Event, Ordering};
use crate::format::manifest::ManifestState;
use crate::format::store::Live;
use crate::io::storage::{self, DirectoryEntry, LockMode, Storage};
use crate::levels::manifest::{ManifestFile, ManifestIdentity};
use crate::levels::store::StoreFile;
use crate::write::writer::Sealing;

use crate::engine::background::work::WorkKind;
use crate::engine::commit::Committer;
use crate::engine::commit::gate::GateTicket;
use crate::engine::commit::order::OrderTurn;
use crate::engine::options::OpenMode;
use crate::engine::publish::catalog::Catalog;
use crate::engine::publish::snapshot::{Point, PointKind};

/// The manifest's state at one moment, with a snapshot point that keeps the tables it names.
pub(crate) struct Moment {
    pub(crate) state: ManifestState,
    pub(crate) live: Live,
    /// Holds the tables of `state`, and so keeps their files.
    pub(crate) point: Arc<Point>,
}

impl Committer {
    /// Creates a store in `path` that holds every write acknowledged before the call.
    pub(crate) fn checkpoint(&self, path: &Path) -> Result<()> {
        let mut checkpoint = Checkpoint::start(self, path)?;
        while !checkpoint.turn()? {
            if let Some((event, seen)) = checkpoint.waits_for() {
                self.env.threads.wait(event, seen, None);
            }
        }
        Ok(())
    }

    fn moment_of(&self, catalog: &Catalog, kind: PointKind) -> Moment {
        // The caller holds the catalog, so the point's view matches this state.
        let point = self.point_of(kind);
        Moment { state: catalog.state.clone(), live: catalog.store_file.live().clone(), point }
    }

    /// The present moment, and whether STORE and the manifest read back.
    pub(crate) fn inspected(&self) -> (Moment, Result<()>) {
        let catalog = self.catalog.take(&*self.env.threads);
        let storage = &*self.env.storage;
        let read = StoreFile::load(storage).and_then(|file| match file {
            Some(file) => ManifestFile::load(storage, file.live()).map(|_| ()),
            None => Err(Error::corrupt(FileName::STORE, 0, "the file", "there", "missing")),
        });
        (self.moment_of(&catalog, PointKind::Verify), read)
    }

    /// Whether the manifest still names the log.
    pub(crate) fn names_log(&self, number: u64) -> bool {
        self.catalog.take(&*self.env.threads).state.logs.contains_key(&number)
    }

    fn write_to(
        &self,
        target: &dyn Storage,
        path: &Path,
        (number, Moment { mut state, live, point }): (u64, Moment),
    ) -> Result<()> {
        state.logs.clear();
        for (number, table) in &state.tables {
            let file = table.file(*number);
            if !self.env.storage.link(file, path)? {
                storage::copy(&*self.env.storage, file, table.bytes, target)?;
            }
        }
        let random = &self.env.random;
        let bytes_min = self.settings.manifest_bytes;
        let identity =
            ManifestIdentity { number, uid: random.u64(), store_id: self.store_id, bytes_min, features: 0 };
        let manifest = ManifestFile::create(target, &identity, &state)?;
        // Every name but STORE's must be durable before STORE is created.
        target.sync_directory()?;
        drop(point);
        let live = Live { turn: 1, manifest: manifest.place(), ..live };
        StoreFile::create(target, random.u64(), live).map(|_| ())
    }
}

/// A checkpoint under way: a state machine that names the event it waits for. Dropped before the end, it
/// leaves no store.
pub(in crate::engine) struct Checkpoint<'s> {
    store: &'s Committer,
    target: Arc<dyn Storage>,
    path: &'s Path,
    stage: Stage<'s>,
    waits: Waits,
    /// The count of background failures at the start; only later ones end the checkpoint.
    known_failures: u64,
    is_made: bool,
    /// Whether this checkpoint is counted in the catalog's `checkpoints`.
    is_counted: bool,
}

enum Stage<'s> {
    /// An earlier flush has failed; the checkpoint waits for its retry.
    Retry,
    /// The checkpoint waits for its turn in the joint order.
    Order(OrderTurn<'s>),
    /// The write buffer must be sealed.
    Seal(OrderTurn<'s>),
    /// Every write up to the sequence must be flushed. Meanwhile the only catalog changes are partitions that
    /// writes make; their ids begin at this one.
    Flush(GateTicket<'s>, Sequence, PartitionId),
    Over,
}

/// The event that ends a wait, with the event's count before the wait.
#[derive(Clone, Copy)]
enum Waits {
    No,
    Order,
    Writer(u64),
    Work(u64),
}

impl<'s> Checkpoint<'s> {
    /// Locks the target directory, which must be empty or missing.
    pub(in crate::engine) fn start(store: &'s Committer, path: &'s Path) -> Result<Checkpoint<'s>> {
        store.check_open()?;
        if store.mode == OpenMode::ReadOnly {
            return Err(Error::ReadOnly);
        }
        store.check_writable()?;
        let target = store.env.storage.beside(path)?;
        target.create_directory()?;
        if let Some(entry) = target.list()?.first() {
            let found = match entry {
                DirectoryEntry::Ours(file) => file.to_string(),
                DirectoryEntry::Foreign(name) => name.clone(),
            };
            return Err(Error::Foreign { path: target.path(), found });
        }
        target.lock(LockMode::Exclusive)?;
        let (stage, waits, known_failures) = (Stage::Retry, Waits::No, store.work.failures());
        Ok(Checkpoint {
            store,
            target,
            path,
            stage,
            waits,
            known_failures,
            is_made: false,
            is_counted: false,
        })
    }

    /// The event that ends a wait, and its count before the wait; `None` if the next turn has work.
    pub(in crate::engine) fn waits_for(&self) -> Option<(&Event, u64)> {
        match (self.waits, &self.stage) {
            (Waits::Order, Stage::Order(turn)) => Some(turn.waits_for()),
            (Waits::Writer(seen), _) => Some((&self.store.writer.changed, seen)),
            (Waits::Work(seen), _) => Some((&self.store.work.moved, seen)),
            _ => None,
        }
    }

    /// Does all work that needs no wait; returns `true` once the checkpoint is complete.
    ///
    /// # Errors
    /// The failure that stops the flush, a failure in the target directory, or the error that latched the
    /// store.
    pub(in crate::engine) fn turn(&mut self) -> Result<bool> {
        let store = self.store;
        if store.work.is_stopped() {
            return Err(Error::Closed);
        }
        store.check_writable()?;
        let seen = store.work.moved.seen();
        self.waits = Waits::No;
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Retry if store.work.error_of(WorkKind::Flush).is_some() => {
                self.await_flush(Stage::Retry, seen)?
            }
            Stage::Retry => self.stage = Stage::Order(OrderTurn::start(store)),
            Stage::Order(mut turn) => {
                let has_come = turn.poll()?;
                self.stage = if has_come { Stage::Seal(turn) } else { Stage::Order(turn) };
                self.waits = if has_come { Waits::No } else { Waits::Order };
            }
            Stage::Seal(turn) => self.seal(turn)?,
            Stage::Flush(ticket, last, later) if !store.writer.has_flushed(last) => {
                self.await_flush(Stage::Flush(ticket, last, later), seen)?;
            }
            Stage::Flush(ticket, _, later) => {
                let (number, mut moment) = {
                    let mut catalog = store.catalog.take(&*store.env.threads);
                    (store.next_file_in(&mut catalog)?, store.moment_of(&catalog, PointKind::Checkpoint))
                };
                drop(ticket);
                moment.state.forget_empty_partitions(later);
                store.write_to(&*self.target, self.path, (number, moment))?;
                self.is_made = true;
            }
            Stage::Over => unreachable!("a finished or failed machine has no turn"),
        }
        Ok(self.is_made)
    }

    fn seal(&mut self, mut turn: OrderTurn<'s>) -> Result<()> {
        if !turn.is_buffer_empty()
            && let Sealing::NoRoom { seen } = turn.seal()?
        {
            (self.stage, self.waits) = (Stage::Seal(turn), Waits::Writer(seen));
            return Ok(());
        }
        let later = {
            // Under the catalog: from here on, no table that later writes cover leaves the state (`free`).
            let catalog = self.store.catalog.take(&*self.store.env.threads);
            self.store.catalog.checkpoints.fetch_add(1, Ordering::AcqRel);
            self.is_counted = true;
            PartitionId(catalog.state.next_partition)
        };
        let last = turn.last_sequence();
        self.stage = Stage::Flush(turn.release_lead(), last, later);
        Ok(())
    }

    fn await_flush(&mut self, stage: Stage<'s>, seen: u64) -> Result<()> {
        if let Some(error) = self.store.work.error(self.known_failures, |kind| kind == WorkKind::Flush) {
            return Err(error);
        }
        (self.stage, self.waits) = (stage, Waits::Work(seen));
        Ok(())
    }
}

impl Drop for Checkpoint<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            self.store.catalog.checkpoints.fetch_sub(1, Ordering::AcqRel);
        }
        if !self.is_made {
            clear(&*self.target);
        }
        self.target.unlock();
    }
}

/// Removes the files of a failed checkpoint, STORE first.
fn clear(target: &dyn Storage) {
    // The first failure is reported already. If this removal fails too, a store may remain, whole or damaged.
    let _ = target.remove(FileName::STORE);
    for entry in target.list().unwrap_or_default() {
        if let DirectoryEntry::Ours(file) = entry
            && let Err(error) = target.remove(file)
        {
            log::warn!("{file} of a checkpoint that failed stays in {}: {error}", target.path());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
