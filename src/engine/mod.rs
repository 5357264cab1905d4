//! The engine: one open store. Opens and recovers it, publishes views, drives the machines, runs flushes and
//! merges.
//!
//! Threads share a [`Store`] by reference. Readers take no lock; every change of tables and keyspaces goes
//! through the catalog, one at a time; no lock is held across I/O.

pub(crate) mod async_writes;
mod bearing;
mod budget;
pub(crate) mod callback;
pub(crate) mod catalog;
pub(crate) mod checkpoint;
mod close;
pub(crate) mod drive;
mod edit;
mod flush_work;
mod free;
mod history;
pub(crate) mod ingest;
pub(crate) mod keyspaces;
mod large;
mod length;
mod merge_queue;
mod merge_work;
mod obsolete;
mod order;
mod quiet;
pub(crate) mod reads;
pub(crate) mod recover;
mod refill;
mod reflush;
mod restart;
mod settle;
mod slices;
pub(crate) mod snapshot;
pub(crate) mod space;
pub(crate) mod stats;
mod tables;
mod timer;
pub(crate) mod unnamed;
mod usual;
mod work;
mod workers;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use crate::base::epoch::Epoch;
use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::TreeId;
use crate::base::load::DeviceLoad;
use crate::base::reserve::Grant;
use crate::base::settings::StoreSettings;
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, Weak};
use crate::cache::Cache;
use crate::compact::pick::FullMerge;
use crate::io::ledger::FileLedger;
use crate::io::os::{DirectIo, FileUse, ReadWith};
use crate::io::pace::Pacer;
use crate::io::storage::Storage;
use crate::levels::view::Views;
use crate::memtable::Generation;
use crate::table::{Discarded, PageBudget};
use crate::write::batch::{Items, Keyspaces};
use crate::write::commit::CommitOp;
use crate::write::writer::{Seals, Writer};

pub(crate) use drive::NeedsPoint;

pub(crate) use crate::io::env::Env;
use crate::read::breadth::{Breadth, Search};
pub(crate) use crate::read::get::Wants;
pub(crate) use crate::read::trace::NoTrace;
pub(crate) use crate::write::writer::Until;

use async_writes::AsyncWrites;
use budget::{BatchRoom, Budget};
use catalog::CatalogCell;
use close::Close;
use quiet::Quiet;
use snapshot::Points;
use stats::Recovery;
use work::{Kind, Work};

/// How a store is opened.
#[derive(Clone, Debug)]
pub(crate) struct OpenOptions {
    pub(crate) settings: StoreSettings,
    pub(crate) mode: Mode,
    pub(crate) budget: Budget,
}

impl OpenOptions {
    pub(crate) fn new(settings: StoreSettings, mode: Mode) -> OpenOptions {
        let budget = Budget::divide(settings.memory_bytes);
        OpenOptions { settings, mode, budget }
    }
}

/// What the opener may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Make it if there is none; read and write.
    CreateIfMissing,
    /// Make it, if there is none; read and write.
    CreateNew,
    /// Read and write what is there.
    Existing,
    /// Change not a byte.
    ReadOnly,
}

impl Mode {
    /// Whether a store is made where there is none.
    pub(crate) fn makes(self) -> bool {
        matches!(self, Mode::CreateIfMissing | Mode::CreateNew)
    }
}

/// Reads that missed the cache.
#[derive(Debug, Default)]
pub(crate) struct ReadCounts {
    pub(crate) block_reads: AtomicU64,
    pub(crate) block_read_bytes: AtomicU64,
}

/// One open store.
pub(crate) struct Store {
    env: Env,
    epoch: Epoch,
    store_id: u128,
    secret: HashSecret,
    settings: StoreSettings,
    mode: Mode,
    budget: Budget,
    views: Arc<Views>,
    writer: Writer,
    cache: Cache,
    pages: Arc<PageBudget>,
    quiet: Arc<Quiet>,
    catalog: CatalogCell,
    work: Work,
    counts: ReadCounts,
    load: Arc<DeviceLoad>,
    breadth: Breadth,
    pacer: Pacer,
    discarded: Arc<Discarded>,
    files: Arc<FileLedger>,
    points: Points,
    kept: Mutex<Grant>,
    /// Every generation that may still be in memory, for the accounts.
    generations: Mutex<Vec<Weak<Generation>>>,
    recovery: Recovery,
    is_closed: AtomicBool,
    close: Close,
    async_writes: AsyncWrites,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.env.storage.path()).finish_non_exhaustive()
    }
}

impl StoreSettings {
    /// The operating system as these settings want it, for a store in `path`.
    pub(crate) fn env(&self, path: &Path) -> Result<Env> {
        let direct_io = if self.direct_io == 1 { DirectIo::WhereSupported } else { DirectIo::Off };
        let read_with = self.read_with(cfg!(feature = "lab"))?;
        let (open_files_max, maps_logs) = (self.open_files_max as usize, self.map_log == 1);
        Env::os(path, FileUse { direct_io, open_files_max, read_with, maps_logs })
    }

    fn read_with(&self, has_lab: bool) -> Result<ReadWith> {
        Ok(match self.io {
            1 => ReadWith::Plain,
            2 => ReadWith::Ring,
            3 => ReadWith::Pool,
            4 if has_lab => ReadWith::RingPoll,
            4 => {
                let fault =
                    "the setting \"io\" is \"ring_poll\": only for experiments, with the feature \"lab\"";
                return Err(Error::Invalid { faults: vec![fault.to_owned()] });
            }
            _ => ReadWith::Auto,
        })
    }

    fn breadth(&self, load: &Arc<DeviceLoad>) -> Breadth {
        let reads_overlap = self.io != 1;
        let search = match self.search {
            2 => Search::Parallel(2),
            3 => Search::Parallel(4),
            4 => Search::Parallel(8),
            0 if reads_overlap => Search::Adaptive,
            _ => Search::Serial,
        };
        Breadth::new(search, Arc::clone(load))
    }
}

impl Store {
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.env.storage
    }

    pub(crate) fn settings(&self) -> &StoreSettings {
        &self.settings
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Commits items, acknowledged as `until` says or as the store's settings do.
    pub(crate) fn write(&self, items: &Items, until: Option<Until>) -> Result<()> {
        self.write_items(items, None, Keyspaces::NONE, until)
    }

    /// The same for a batch, which is refused if one of its keyspaces was dropped.
    pub(crate) fn write_batch(
        &self,
        items: &Arc<Items>,
        keyspaces: &Keyspaces,
        until: Option<Until>,
    ) -> Result<()> {
        self.write_items(items, Some(items), keyspaces, until)
    }

    /// Where items have room; refuses those that no write buffer may be made for.
    pub(crate) fn check_batch(&self, items: &Items) -> Result<BatchRoom> {
        self.budget.check_batch(&items.size())
    }

    fn write_items(
        &self,
        items: &Items,
        shared: Option<&Arc<Items>>,
        keyspaces: &Keyspaces,
        until: Option<Until>,
    ) -> Result<()> {
        let found = self.check_batch(items)?;
        if items.count() == 0 {
            return self.check_writable();
        }
        let room = match found {
            BatchRoom::AnyGeneration => None,
            BatchRoom::OwnGeneration { region_bytes } => Some(self.wait_for_large_room(items, region_bytes)?),
        };
        let written = self.commit(&CommitOp {
            payload: items.payload(),
            shared,
            items: items.count(),
            key_value_bytes: items.key_value_bytes(),
            keyspaces,
            until: until.unwrap_or_else(|| self.default_until()),
            seals: Seals::No,
            frees: items.frees(),
            queues: None,
            room: room.as_ref(),
        });
        if let Some(room) = room {
            self.end_large_room(room);
        }
        written
    }

    fn default_until(&self) -> Until {
        if self.settings.sync_every_commit == 1 { Until::Synced } else { Until::Written }
    }

    fn check_writable(&self) -> Result<()> {
        self.check_process()?;
        self.writer.latched().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Makes everything acknowledged durable.
    pub(crate) fn sync_log(&self) -> Result<()> {
        self.commit(&CommitOp::empty(Until::Synced, Seals::No))
    }

    fn seal(&self) -> Result<()> {
        self.check_process()?;
        let retry =
            || self.wait_for(|store| store.work.error_of(Kind::Flush).is_none(), |kind| kind == Kind::Flush);
        if self.work.error_of(Kind::Flush).is_some() {
            // What kept a log and memory from being made ready may have cleared.
            retry()?;
        }
        let seal = || self.commit(&CommitOp::empty(Until::Written, Seals::Yes));
        match seal() {
            // Where ranges were deleted the flush worker may begin the log anew (`restart`).
            Err(Error::Full { .. }) if self.has_ranges_in_memory() => retry().and_then(|()| seal()),
            sealed => sealed,
        }
    }

    /// Seals the present generation and waits until every write before the call is in a table.
    pub(crate) fn flush(&self) -> Result<()> {
        self.seal()?;
        let last = self.writer.visible();
        self.wait_for(|store| store.writer.has_flushed(last), |kind| kind == Kind::Flush)
    }

    /// Flushes, then merges what is there at the call into one run a tree. What is written meanwhile does not
    /// keep it; an ingest does, as it has the number of the last flush.
    pub(crate) fn compact(&self) -> Result<()> {
        self.compact_trees(Store::trees, (Vec::new(), Vec::new()))
    }

    /// The same of some keys of one tree, from the first one on to before the second, which is empty if there
    /// is no end; all that is in memory is flushed.
    pub(crate) fn compact_tree(&self, tree: TreeId, keys: (Vec<u8>, Vec<u8>)) -> Result<()> {
        self.compact_trees(|_| vec![tree], keys)
    }

    fn compact_trees(
        &self,
        trees: impl FnOnce(&Store) -> Vec<TreeId>,
        keys: (Vec<u8>, Vec<u8>),
    ) -> Result<()> {
        // What was ingested before anything was written counts as of the first write.
        let upto = self.writer.visible().max(1);
        self.flush()?;
        let trees = trees(self);
        let _hurries = self.work.hurry_merges();
        self.work.want_full(&trees, &FullMerge { upto, keys });
        let is_left = |store: &Store, tree| store.work.wants_full(tree) && store.keyspace_of(tree).is_some();
        let wanted: BTreeSet<TreeId> = trees.iter().copied().collect();
        // What is done is not looked at again, whatever others want of it.
        let left = RefCell::new(trees);
        let is_done = |store: &Store| {
            let mut left = left.borrow_mut();
            while left.last().is_some_and(|tree| !is_left(store, *tree)) {
                left.pop();
            }
            left.is_empty()
        };
        self.wait_for(
            is_done,
            |kind| matches!(kind, Kind::Merge(tree) if is_left(self, tree) && wanted.contains(&tree)),
        )?;
        self.await_removals();
        Ok(())
    }

    /// Waits until no background work is due or under way, and obsolete files that no reader holds are
    /// removed.
    pub(crate) fn settle(&self) -> Result<()> {
        self.check_process()?;
        if self.mode == Mode::ReadOnly {
            return Ok(());
        }
        let _hurries = self.work.hurry_merges();
        let is_settled = |store: &Store| {
            store.writer.sealed_count() == 0 && !store.work.is_busy() && !store.is_merge_due()
        };
        self.wait_for(is_settled, |_| true)?;
        self.await_removals();
        Ok(())
    }

    /// Waits for what background work brings about; ends with its error if what concerns it cannot go on.
    /// What failed before may have cleared: it is tried again.
    fn wait_for(&self, is_done: impl Fn(&Store) -> bool, concerns: impl Fn(Kind) -> bool) -> Result<()> {
        let known = self.work.failures();
        loop {
            let seen = self.work.moved.seen();
            if is_done(self) {
                return Ok(());
            }
            if self.mode == Mode::ReadOnly {
                return Err(Error::ReadOnly);
            }
            if let Some(error) = self.work.error(known, &concerns) {
                return Err(error);
            }
            if let Some(error) = self.writer.latched() {
                return Err(error.clone());
            }
            self.env.threads.wait(&self.work.moved, seen, None);
        }
    }
}

#[cfg(test)]
mod tests;
