//! A storage that knows how long each of the store's files is, so that the space they take is told without a
//! look at the directory.
//!
//! It passes every call on to the storage below it and notes what the call made of a file's length. Lengths
//! of files that were there before come from the calls that open the store, and are asked for where those
//! left one out. It is not a quota and refuses nothing. `engine` puts it around the storage of an open store,
//! and sorts the files by role. Any thread may call; no lock is held across a call to the storage below.
//!
//! Invariants:
//! 1. A file has an entry from its creation to its removal. A removal that failed leaves the entry, and notes
//!    that the file is left over.
//! 2. No page is punched twice by one opener, so holes add up.
//! 3. A log keeps its length from its first sync on: commits to the two logs synced last leave the entries
//!    alone.

use std::collections::BTreeMap;
use std::path::Path;

use crate::base::error::Result;
use crate::base::id::{FileKind, FileName};
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering};

use super::reader::{Reader, ReaderKind};
#[cfg(feature = "lab")]
use super::storage::Mapped;
use super::storage::{Entry, LockMode, Storage, StorageCounts};

/// One file of the store.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct FileLength {
    pub(crate) bytes: u64,
    /// Of these, what was given back to the file system by this opener.
    pub(crate) hole_bytes: u64,
    /// Nothing names it: an earlier process left it, or it could not be removed.
    pub(crate) is_left_over: bool,
}

impl FileLength {
    /// What it takes on the device.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.hole_bytes)
    }
}

/// See the module.
pub(crate) struct FileLedger {
    storage: Arc<dyn Storage>,
    entries: Mutex<Entries>,
    /// Numbers of the two logs that were synced last, the one in use and the one made ahead; 0 is none's.
    synced_logs: [AtomicU64; 2],
}

#[derive(Default)]
struct Entries {
    files: BTreeMap<FileName, FileLength>,
    /// Every file that was there when the store was opened has been noted: lengths that are asked for later
    /// are no news, and may be of a file that is removed meanwhile.
    is_complete: bool,
}

impl FileLedger {
    /// Over a storage of which nothing is known yet.
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Arc<FileLedger> {
        Arc::new(FileLedger { storage, entries: Mutex::default(), synced_logs: Default::default() })
    }

    /// Notes those of `found`, the files of the directory, that no call was about and that are still there:
    /// all but LOCK are left over.
    pub(crate) fn complete(&self, found: &[FileName]) {
        for file in found {
            if !self.entries.lock().files.contains_key(file) {
                // LOCK is never written.
                let is_left_over = file.kind != FileKind::Lock;
                let length = if is_left_over { self.storage.length(*file) } else { Ok(Some(0)) };
                if let Ok(Some(bytes)) = length {
                    self.entries
                        .lock()
                        .files
                        .insert(*file, FileLength { bytes, hole_bytes: 0, is_left_over });
                }
            }
        }
        self.entries.lock().is_complete = true;
    }

    /// Every file of the store, with its length. The cost is a copy of the entries.
    pub(crate) fn files(&self) -> BTreeMap<FileName, FileLength> {
        self.entries.lock().files.clone()
    }

    /// Notes that bytes up to `end` were written. A failed write may have left any part of them.
    fn note_write(&self, file: FileName, end: u64, written: &Result<()>) {
        let is_noted = written.is_ok() && {
            let mut entries = self.entries.lock();
            let entry = entries.files.get_mut(&file);
            entry.map(|entry| entry.bytes = entry.bytes.max(end)).is_some()
        };
        if !is_noted {
            self.ask(file);
        }
    }

    /// Notes a length that no call has told.
    fn ask(&self, file: FileName) {
        if let Ok(Some(bytes)) = self.storage.length(file) {
            self.entries.lock().files.entry(file).or_default().bytes = bytes;
        }
    }
}

impl Storage for FileLedger {
    fn create_directory(&self) -> Result<bool> {
        self.storage.create_directory()
    }

    fn exists(&self) -> Result<bool> {
        self.storage.exists()
    }

    fn lock(&self, mode: LockMode) -> Result<()> {
        self.storage.lock(mode)
    }

    fn unlock(&self) {
        self.storage.unlock();
    }

    fn is_forked(&self) -> bool {
        self.storage.is_forked()
    }

    fn list(&self) -> Result<Vec<Entry>> {
        self.storage.list()
    }

    fn create(&self, file: FileName) -> Result<()> {
        let created = self.storage.create(file);
        match created {
            Ok(()) => drop(self.entries.lock().files.insert(file, FileLength::default())),
            // It may have got its name all the same.
            Err(_) => self.ask(file),
        }
        created
    }

    fn read(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.storage.read(file, offset, buffer)
    }

    fn read_vectored(&self, file: FileName, offset: u64, buffers: &mut [&mut [u8]]) -> Result<usize> {
        self.storage.read_vectored(file, offset, buffers)
    }

    fn reader(self: Arc<Self>) -> Box<dyn Reader> {
        Arc::clone(&self.storage).reader()
    }

    fn reader_kind(&self) -> (ReaderKind, String) {
        self.storage.reader_kind()
    }

    fn write(&self, file: FileName, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.storage.write(file, offset, bytes);
        let is_synced = |log: &AtomicU64| log.load(Ordering::Relaxed) == file.number;
        let keeps_length = file.kind == FileKind::Log && self.synced_logs.iter().any(is_synced);
        if !keeps_length {
            self.note_write(file, offset + bytes.len() as u64, &written);
        }
        written
    }

    fn start_writeback(&self, file: FileName, offset: u64, bytes: u64) {
        self.storage.start_writeback(file, offset, bytes);
    }

    fn punch_hole(&self, file: FileName, offset: u64, bytes: u64) -> Result<bool> {
        let is_punched = self.storage.punch_hole(file, offset, bytes)?;
        if is_punched && let Some(entry) = self.entries.lock().files.get_mut(&file) {
            entry.hole_bytes += bytes;
        }
        Ok(is_punched)
    }

    fn sync(&self, file: FileName) -> Result<()> {
        let synced = self.storage.sync(file);
        if synced.is_ok() && file.kind == FileKind::Log {
            let [last, earlier] = &self.synced_logs;
            let before = last.load(Ordering::Relaxed);
            if before != file.number {
                earlier.store(before, Ordering::Relaxed);
                last.store(file.number, Ordering::Relaxed);
            }
        }
        synced
    }

    fn length(&self, file: FileName) -> Result<Option<u64>> {
        let length = self.storage.length(file)?;
        let mut entries = self.entries.lock();
        if let (Some(bytes), false) = (length, entries.is_complete) {
            entries.files.entry(file).or_default().bytes = bytes;
        }
        Ok(length)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        let renamed = self.storage.rename(from, to);
        match renamed {
            Ok(()) => {
                let mut entries = self.entries.lock();
                if let Some(entry) = entries.files.remove(&from) {
                    entries.files.insert(to, entry);
                }
            }
            // The caller removes both.
            Err(_) => self.ask(to),
        }
        renamed
    }

    fn remove(&self, file: FileName) -> Result<()> {
        let removed = self.storage.remove(file);
        let mut entries = self.entries.lock();
        match &removed {
            Ok(()) => drop(entries.files.remove(&file)),
            Err(_) => {
                if let Some(entry) = entries.files.get_mut(&file) {
                    entry.is_left_over = true;
                }
            }
        }
        removed
    }

    fn sync_directory(&self) -> Result<()> {
        self.storage.sync_directory()
    }

    fn beside(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        self.storage.beside(path)
    }

    fn link(&self, file: FileName, path: &Path) -> Result<bool> {
        self.storage.link(file, path)
    }

    fn boot_id(&self) -> u128 {
        self.storage.boot_id()
    }

    fn path(&self) -> String {
        self.storage.path()
    }

    fn direct_io(&self) -> bool {
        self.storage.direct_io()
    }

    fn counts(&self) -> StorageCounts {
        self.storage.counts()
    }

    #[cfg(feature = "lab")]
    fn map(&self, file: FileName) -> Result<Option<Arc<dyn Mapped>>> {
        self.storage.map(file)
    }
}

#[cfg(test)]
mod tests;
