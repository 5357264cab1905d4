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

use super::{Mode, Store};

/// What a checkpoint is made of.
struct Moment {
    state: State,
    live: Live,
    /// Of the new manifest.
    number: u64,
    /// Keeps the tables.
    _view: Arc<View>,
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
        let made =
            self.flush().and_then(|()| self.moment()).and_then(|one| self.write_to(&*target, path, one));
        if made.is_err() {
            clear(&*target);
        }
        target.unlock();
        made
    }

    /// The state after a flush, with the tables it names.
    fn moment(&self) -> Result<Moment> {
        let mut catalog = self.catalog.take(&*self.env.threads);
        let number = self.next_file_in(&mut catalog)?;
        let mut state = catalog.state.clone();
        state.logs.clear();
        // Under the catalog: the view is of this very state.
        Ok(Moment {
            state,
            live: catalog.store_file.live().clone(),
            number,
            _view: self.view_of(&self.point()),
        })
    }

    fn write_to(&self, target: &dyn Storage, path: &Path, moment: Moment) -> Result<()> {
        let Moment { state, live, number, _view } = moment;
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
