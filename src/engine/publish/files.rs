//! Files of the store: their numbers, durable names, new write buffers and logs, and removal.

use std::ops::Deref;

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName};
use crate::base::sync::{Arc, Ordering, Weak};
use crate::compact::job::NewFiles;
use crate::format::manifest::ManifestChange;
use crate::memtable::{self, Generation};
use crate::table::TableIdentity;
use crate::wal::{LogFramer, LogIdentity};

use super::Publisher;
use super::catalog::Catalog;
use super::edit::Edit;

impl Publisher {
    /// Makes new names durable. A failure latches the store: it may never be known whether the names are
    /// durable.
    pub(in crate::engine) fn sync_directory(&self) -> Result<()> {
        self.env.storage.sync_directory().inspect_err(|error| self.writer.latch(error))
    }

    /// Removes the new files of a failed edit, unless the edit latched the store: then it is not known how
    /// much of the edit reached the disk, and the manifest may name the files.
    pub(in crate::engine) fn remove_unnamed(&self, files: impl IntoIterator<Item = FileName>) {
        if self.writer.latched().is_none() {
            files.into_iter().for_each(|file| self.remove_quietly(file));
        }
    }

    /// Removes a file that nothing names any more. A failed removal is retried at the next opening.
    pub(in crate::engine) fn remove_quietly(&self, file: FileName) {
        if let Err(error) = self.env.storage.remove(file) {
            log::warn!("{file} is not needed and could not be removed: {error}");
        }
    }

    /// A file number that was never given out.
    pub(in crate::engine) fn next_file(&self) -> Result<u64> {
        let next = self.catalog.next_file.load(Ordering::Relaxed);
        if next < self.catalog.reserved.load(Ordering::Acquire) {
            let number = self.catalog.next_file.fetch_add(1, Ordering::Relaxed);
            if number < self.catalog.reserved.load(Ordering::Acquire) {
                return Ok(number);
            }
        }
        let mut catalog = self.catalog.take(&*self.env.threads);
        self.next_file_in(&mut catalog)
    }

    pub(in crate::engine) fn next_file_in(&self, catalog: &mut Catalog) -> Result<u64> {
        // The store is closed: `close` latches before it takes the catalog, and another process may have
        // STORE by now.
        if let Some(error) = self.writer.latched() {
            return Err(error.clone());
        }
        let number = self.catalog.next_file.fetch_add(1, Ordering::Relaxed);
        if number >= self.catalog.reserved.load(Ordering::Acquire) {
            if let Err(error) = catalog.store_file.reserve_file_numbers(&*self.env.storage) {
                if !matches!(error, Error::Full { .. }) {
                    self.writer.latch(&error);
                }
                return Err(error);
            }
            self.catalog.reserved.store(catalog.store_file.live().next_file_number, Ordering::Release);
        }
        Ok(number)
    }

    /// Name and uid for a new table.
    pub(in crate::engine) fn new_table(&self) -> Result<TableIdentity> {
        let file = FileName::new(FileKind::Table, self.next_file()?);
        Ok(TableIdentity { file, uid: self.env.random.u64(), store_id: self.store_id })
    }

    /// Makes a log, durable and named by the manifest, out of `old` if there is one. On failure neither file
    /// is left.
    pub(in crate::engine) fn make_log(&self, old: Option<FileName>, bytes: u64) -> Result<LogFramer> {
        let storage = &*self.env.storage;
        let number = self.next_file().inspect_err(|_| self.remove_unnamed(old))?;
        let identity =
            LogIdentity { number, path: 0, uid: self.env.random.u64(), store_id: self.store_id, bytes };
        let made = match old {
            Some(old) => LogFramer::recycle(storage, old, &identity),
            None => LogFramer::create(storage, &identity),
        };
        let named = made.and_then(|log| {
            self.sync_directory()?;
            let change = ManifestChange::Log { number, path: 0, uid: identity.uid, bytes };
            self.edit(Edit::of(vec![change]))?;
            Ok(log)
        });
        let files = old.into_iter().chain([FileName::new(FileKind::Log, number)]);
        named.inspect_err(|_| self.remove_unnamed(files))
    }

    /// Whether memory holds no more than one write buffer: logs that are only read may hold more.
    pub(in crate::engine) fn is_in_one_generation(&self) -> bool {
        let alive = self.generations.lock();
        let bytes = |one: &Weak<Generation>| one.upgrade().map_or(0, |one| one.capacity_bytes() as u64);
        alive.iter().map(bytes).sum::<u64>() <= self.budget.generation_bytes
    }

    /// An empty generation in so many bytes of fresh memory.
    pub(in crate::engine) fn new_generation(
        &self,
        bytes: usize,
    ) -> Result<(Arc<Generation>, memtable::Inserter)> {
        let region = self.env.memory.region_for("a memtable generation", bytes)?;
        let (generation, inserter) = memtable::generation(region);
        let mut alive = self.generations.lock();
        alive.retain(|one| one.strong_count() > 0);
        alive.push(Arc::downgrade(&generation));
        Ok((generation, inserter))
    }
}

/// Gives jobs the names of the files that they make.
pub(in crate::engine) struct StoreFiles<P>(pub(in crate::engine) P);

impl<P> NewFiles for StoreFiles<P>
where
    P: Deref<Target = Publisher> + Send + Sync,
{
    fn next(&self) -> Result<TableIdentity> {
        self.0.new_table()
    }
}
