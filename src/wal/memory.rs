//! Files in memory, for unit tests of the layer right above the storage. Synced bytes are kept apart from
//! written bytes, and any call can be made to fail. The simulator (`io::sim`) is a separate and larger
//! implementation.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use crate::base::error::{Error, Result};
use crate::base::id::FileName;
use crate::base::sync::{Arc, Mutex};
use crate::io::reader::{PlainReader, Reader};
use crate::io::storage::{DirectoryEntry, LockMode, Storage, StorageCounts};

#[derive(Clone, Default)]
struct File {
    written: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Default)]
struct Inner {
    files: BTreeMap<FileName, File>,
    /// Number of changing calls so far.
    changes: u64,
    /// Value of `changes` from which on all changes fail.
    fail_at: Option<u64>,
    /// Failing changes return `Full`, and yet take effect: the worst case of a short write.
    full: bool,
    boot_id: u128,
}

/// Names are durable at once, contents after a sync.
#[derive(Default)]
pub(crate) struct MemoryStorage {
    inner: Mutex<Inner>,
}

impl MemoryStorage {
    pub(crate) fn new(boot_id: u128) -> MemoryStorage {
        let storage = MemoryStorage::default();
        storage.with(|inner| inner.boot_id = boot_id);
        storage
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock())
    }

    fn change<T>(&self, file: FileName, work: impl FnOnce(&mut Inner) -> T) -> Result<T> {
        self.with(|inner| {
            inner.changes += 1;
            if inner.fail_at.is_some_and(|at| inner.changes >= at) {
                if inner.full {
                    work(inner);
                    return Err(Error::Full { file: file.to_string() });
                }
                let source = Arc::new(ErrorKind::Other.into());
                return Err(Error::Io { operation: "write", file: file.to_string(), offset: 0, source });
            }
            Ok(work(inner))
        })
    }

    /// Number of calls that changed state or tried to.
    pub(crate) fn changes(&self) -> u64 {
        self.with(|inner| inner.changes)
    }

    /// Makes the `count`th change from now fail, and all after it; `None` ends the failures.
    pub(crate) fn fail_after(&self, count: Option<u64>) {
        self.with(|inner| {
            inner.fail_at = count.map(|count| inner.changes + count);
            inner.full = false;
        });
    }

    /// As [`MemoryStorage::fail_after`], but with `Full`.
    pub(crate) fn fill_after(&self, count: u64) {
        self.fail_after(Some(count));
        self.with(|inner| inner.full = true);
    }

    /// Power loss: only synced bytes stay, and the system restarts.
    pub(crate) fn power_cut(&self) {
        self.with(|inner| {
            inner.files.values_mut().for_each(|file| file.written.clone_from(&file.synced));
            inner.boot_id += 1;
            inner.fail_at = None;
        });
    }

    /// Power loss during writeback: every unsynced page becomes garbage.
    pub(crate) fn tear_unsynced(&self) {
        self.with(|inner| {
            for file in inner.files.values_mut() {
                for (page, synced) in file.written.chunks_mut(4096).zip(file.synced.chunks(4096)) {
                    if page != synced {
                        page.fill(0xee);
                    }
                }
                file.synced.clone_from(&file.written);
            }
            inner.boot_id += 1;
        });
    }

    /// The system restarts without losing data.
    pub(crate) fn reboot(&self) {
        self.with(|inner| inner.boot_id += 1);
    }

    pub(crate) fn bytes(&self, file: FileName) -> Vec<u8> {
        self.with(|inner| inner.files.get(&file).expect("the file is there").written.clone())
    }

    /// Replaces a file's contents, durably.
    pub(crate) fn put(&self, file: FileName, bytes: &[u8]) {
        let file_now = File { written: bytes.to_vec(), synced: bytes.to_vec() };
        self.with(|inner| inner.files.insert(file, file_now));
    }

    pub(crate) fn names(&self) -> Vec<FileName> {
        self.with(|inner| inner.files.keys().copied().collect())
    }
}

impl Storage for MemoryStorage {
    fn create_directory(&self) -> Result<bool> {
        Ok(false)
    }

    fn exists(&self) -> Result<bool> {
        Ok(true)
    }

    fn lock(&self, _: LockMode) -> Result<()> {
        Ok(())
    }

    fn unlock(&self) {}

    fn list(&self) -> Result<Vec<DirectoryEntry>> {
        Ok(self.names().into_iter().map(DirectoryEntry::Ours).collect())
    }

    fn create(&self, file: FileName) -> Result<()> {
        self.change(file, |inner| {
            assert!(inner.files.insert(file, File::default()).is_none(), "{file} is there")
        })
    }

    fn read(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.bytes(file);
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn reader(self: Arc<Self>) -> Box<dyn Reader> {
        Box::new(PlainReader::new(self))
    }

    fn write(&self, file: FileName, offset: u64, bytes: &[u8]) -> Result<()> {
        self.change(file, |inner| {
            let written = &mut inner.files.get_mut(&file).expect("the file is there").written;
            let end = offset as usize + bytes.len();
            written.resize(written.len().max(end), 0);
            written[offset as usize..end].copy_from_slice(bytes);
        })
    }

    fn start_writeback(&self, _: FileName, _: u64, _: u64) {}

    fn sync(&self, file: FileName) -> Result<()> {
        self.change(file, |inner| {
            let file = inner.files.get_mut(&file).expect("the file is there");
            file.synced.clone_from(&file.written);
        })
    }

    fn length(&self, file: FileName) -> Result<Option<u64>> {
        Ok(self.with(|inner| inner.files.get(&file).map(|file| file.written.len() as u64)))
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.change(from, |inner| {
            let file = inner.files.remove(&from).expect("the file is there");
            assert!(inner.files.insert(to, file).is_none(), "{to} is there");
        })
    }

    fn remove(&self, file: FileName) -> Result<()> {
        self.change(file, |inner| {
            inner.files.remove(&file);
        })
    }

    fn sync_directory(&self) -> Result<()> {
        self.change(FileName::LOCK, |_| ())
    }

    fn boot_id(&self) -> u128 {
        self.with(|inner| inner.boot_id)
    }

    fn path(&self) -> String {
        "memory".to_owned()
    }

    fn counts(&self) -> StorageCounts {
        StorageCounts::default()
    }
}
