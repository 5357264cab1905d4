//! A checkpoint: a second store in another directory, whose tables are this one's by another name.
//!
//! It is not a backup of the log: what is in memory is flushed first, and the new store begins without logs.
//! Any thread may call; writes go on meanwhile.
//!
//! Invariants:
//! 1. Tables are linked while a view holds them; nothing that may still be written is linked.
//! 2. STORE gets its name last: a directory without it is no store.

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::id::FileName;
use crate::base::sync::Arc;
use crate::format::manifest::State;
use crate::format::store::Live;
use crate::io::storage::{self, Entry, LockMode, Storage};
use crate::levels::manifest::{ManifestFile, ManifestIdentity};
use crate::levels::store::StoreFile;
use crate::levels::view::View;

use super::catalog::Catalog;
use super::{Mode, Store};

/// The manifest's state at one moment, with what keeps the tables it names.
pub(crate) struct Moment {
    pub(crate) state: State,
    pub(crate) live: Live,
    /// It holds the same tables, and so keeps their files.
    pub(crate) view: Arc<View>,
}

impl Store {
    /// Makes a store in `path` that holds every write acknowledged before the call.
    pub(crate) fn checkpoint(&self, path: &Path) -> Result<()> {
        self.check_open()?;
        if self.mode == Mode::ReadOnly {
            return Err(Error::ReadOnly);
        }
        self.check_writable()?;
        let target = self.env.storage.beside(path)?;
        target.create_directory()?;
        if let Some(entry) = target.list()?.first() {
            let found = match entry {
                Entry::Ours(file) => file.to_string(),
                Entry::Foreign(name) => name.clone(),
            };
            return Err(Error::Foreign { path: target.path(), found });
        }
        target.lock(LockMode::Exclusive)?;
        let made = self.flushed_moment().and_then(|moment| self.write_to(&*target, path, moment));
        if made.is_err() {
            clear(&*target);
        }
        target.unlock();
        made
    }

    fn moment_of(&self, catalog: &Catalog) -> Moment {
        // Under the catalog: the view is of this very state.
        let view = self.view_of(&self.point());
        Moment { state: catalog.state.clone(), live: catalog.store_file.live().clone(), view }
    }

    /// Now, and whether STORE and manifest read back.
    pub(crate) fn inspected(&self) -> (Moment, Result<()>) {
        let catalog = self.catalog.take(&*self.env.threads);
        let storage = &*self.env.storage;
        let read = StoreFile::load(storage).and_then(|file| match file {
            Some(file) => ManifestFile::load(storage, file.live()).map(|_| ()),
            None => Err(Error::corrupt(FileName::STORE, 0, "the file", "there", "missing")),
        });
        (self.moment_of(&catalog), read)
    }

    /// Whether the manifest still names the log.
    pub(crate) fn names_log(&self, number: u64) -> bool {
        self.catalog.take(&*self.env.threads).state.logs.contains_key(&number)
    }

    /// The state after a flush, with a number for its manifest. An ingest published meanwhile would be there
    /// without what was written before it and is still in memory: then it is flushed again.
    fn flushed_moment(&self) -> Result<(u64, Moment)> {
        loop {
            let ingests = self.catalog.take(&*self.env.threads).ingests;
            self.flush()?;
            let mut catalog = self.catalog.take(&*self.env.threads);
            if catalog.ingests == ingests {
                return Ok((self.next_file_in(&mut catalog)?, self.moment_of(&catalog)));
            }
        }
    }

    fn write_to(
        &self,
        target: &dyn Storage,
        path: &Path,
        (number, Moment { mut state, live, view }): (u64, Moment),
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
        let identity = ManifestIdentity { number, uid: random.u64(), store_id: self.store_id, bytes_min };
        let manifest = ManifestFile::create(target, &identity, &state)?;
        // Every name but STORE's is durable before that one is there.
        target.sync_directory()?;
        drop(view);
        let live = Live { turn: 1, manifest: manifest.place(), ..live };
        StoreFile::create(target, random.u64(), live).map(|_| ())
    }
}

/// Removes what a failed checkpoint made, the name that makes it a store first.
fn clear(target: &dyn Storage) {
    // What failed is told already; if this fails too there may be a store, whole or damaged.
    let _ = target.remove(FileName::STORE);
    for entry in target.list().unwrap_or_default() {
        if let Entry::Ours(file) = entry
            && let Err(error) = target.remove(file)
        {
            log::warn!("{file} of a checkpoint that failed stays in {}: {error}", target.path());
        }
    }
}
