//! A storage that tracks the length of each of the store's files, so that the space they take is known
//! without reading the directory.
//!
//! The ledger passes every call on to the storage below and notes its effect on the file's length. The
//! lengths of files from earlier openings come from the calls that open the store; the ledger asks the
//! storage for the rest. It is not a quota and refuses nothing. `engine` wraps the storage of an open store
//! in a ledger and sorts the files by role. Any thread may call. No lock is held across a call to the storage
//! below.
//!
//! Invariants:
//! 1. A file has an entry from its creation to its removal. A failed removal leaves the entry and marks the
//!    file as left over.
//! 2. One opener punches no page twice, so holes add up.
//! 3. A log keeps its length from its first sync on. Commits to the two most recently synced logs leave the
//!    entries alone.

use std::collections::BTreeMap;
use std::path::Path;

use crate::base::error::Result;
use crate::base::id::{FileKind, FileName};
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering};

use super::reader::{Reader, ReaderKind};
#[cfg(feature = "lab")]
use super::storage::Mapped;
use super::storage::{DirectoryEntry, LockMode, Storage, StorageCounts};

/// One file of the store.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct FileLength {
    pub(crate) bytes: u64,
    /// The part of `bytes` that this opener returned to the file system.
    pub(crate) hole_bytes: u64,
    /// The store does not refer to this file: an earlier process left it, or its removal failed.
    pub(crate) is_left_over: bool,
}

impl FileLength {
    /// Space that the file takes on the device.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.hole_bytes)
    }
}

/// See the module.
pub(crate) struct FileLedger {
    storage: Arc<dyn Storage>,
    entries: Mutex<Entries>,
    /// Numbers of the two most recently synced logs, the one in use and the one made ahead; 0: no log.
    synced_logs: [AtomicU64; 2],
}

#[derive(Default)]
struct Entries {
    files: BTreeMap<FileName, FileLength>,
    /// Whether every file present at the opening of the store is noted. After that, a length that is asked
    /// for is known already, and may be of a file that is being removed.
    is_complete: bool,
}

impl FileLedger {
    /// A ledger over `storage`, with no entries.
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Arc<FileLedger> {
        Arc::new(FileLedger { storage, entries: Mutex::default(), synced_logs: Default::default() })
    }

    /// Notes the files of `found`, a listing of the directory, that have no entry yet and still exist. All of
    /// them but LOCK are left over.
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

    /// Notes that bytes up to `end` were written. A failed write may have left any part of them, so the
    /// length is asked for.
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

    /// Asks the storage for the file's length and notes it.
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

    fn list(&self) -> Result<Vec<DirectoryEntry>> {
        self.storage.list()
    }

    fn create(&self, file: FileName) -> Result<()> {
        let created = self.storage.create(file);
        match created {
            Ok(()) => drop(self.entries.lock().files.insert(file, FileLength::default())),
            // The file may have got its name despite the error.
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
            // The caller removes both names.
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
