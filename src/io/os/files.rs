//! The open-file table: the open descriptors of a store, bounded in number, evicted by CLOCK.
//!
//! It is not a cache of contents and never opens a file itself: the caller passes a function that does.
//! `storage` is its only user. Any thread may call. A shard's lock is held for a search of its entries and
//! never across a system call.
//!
//! 1. A descriptor closes when its last user drops it, so a file may be forgotten while it is read.
//! 2. A descriptor in use, or written since its last sync, is not evicted. The kernel reports a failed
//!    write-back to descriptors that were open when it failed; one opened later could miss the failure. Such
//!    descriptors may exceed the bound.
//! 3. A descriptor is not kept if its name was forgotten or renamed while it was being opened.

use std::os::fd::OwnedFd;

use crate::base::id::FileName;
use crate::base::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering};

#[cfg(target_os = "linux")]
use super::window::Appends;

/// Files per shard; a table with more files has more shards.
const SHARD_FILES_COUNT: usize = 64;
/// Maximum number of shards.
const SHARDS_COUNT_MAX: usize = 16;

/// Purpose of a descriptor. A file may have one open descriptor for each purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum DescriptorPurpose {
    /// Reads through the page cache.
    Buffered,
    /// Reads past the page cache.
    Direct,
    /// Writes and syncs, through the page cache.
    Write,
}

/// An open descriptor, with counts of writes and synced writes.
#[derive(Debug)]
pub(super) struct OpenFile {
    descriptor: OwnedFd,
    /// Writes done, including failed ones.
    writes: AtomicU64,
    /// Value of `writes` before the last successful sync began.
    writes_synced: AtomicU64,
    /// Held while syncing. The kernel reports a failure once per descriptor, so one of two concurrent syncs
    /// would miss it.
    syncing: Mutex<()>,
    /// Held while appends are copied or a window for them is mapped.
    #[cfg(target_os = "linux")]
    appends: Mutex<Appends>,
}

impl OpenFile {
    pub(super) fn new(descriptor: OwnedFd) -> OpenFile {
        OpenFile {
            descriptor,
            writes: AtomicU64::new(0),
            writes_synced: AtomicU64::new(0),
            syncing: Mutex::new(()),
            #[cfg(target_os = "linux")]
            appends: Mutex::default(),
        }
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Called after each write, also a failed one.
    pub(super) fn note_write(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }

    /// Writes `bytes` through the mapping, if they append to the last write and the mapping holds them.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(super) fn append(&self, offset: u64, bytes: &[u8]) -> bool {
        self.appends.lock().write(&self.descriptor, offset, bytes)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn append(&self, _offset: u64, _bytes: &[u8]) -> bool {
        false
    }

    /// For a sync: locks out other syncs of this descriptor, and unmaps the window. Otherwise pages without
    /// writes would be made writable, and so written by the next sync.
    pub(super) fn lock_syncing(&self) -> MutexGuard<'_, ()> {
        #[cfg(target_os = "linux")]
        self.appends.lock().reset();
        self.syncing.lock()
    }

    /// Number of writes that a sync starting now will cover.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }

    pub(super) fn note_synced(&self, writes: u64) {
        self.writes_synced.store(writes, Ordering::Release);
    }

    fn is_dirty(&self) -> bool {
        self.writes.load(Ordering::Acquire) != self.writes_synced.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
struct Slot {
    name: FileName,
    purpose: DescriptorPurpose,
    file: Arc<OpenFile>,
    /// Used again since the CLOCK hand last passed. Entries used only once are evicted first.
    is_recent: bool,
}

impl Slot {
    fn key(&self) -> (FileName, DescriptorPurpose) {
        (self.name, self.purpose)
    }

    fn is_evictable(&mut self) -> bool {
        Arc::get_mut(&mut self.file).is_some_and(|file| !file.is_dirty())
    }
}

#[derive(Default, Debug)]
struct Shard {
    /// Sorted by key.
    slots: Vec<Slot>,
    hand: usize,
    /// How often a name was forgotten or renamed.
    changes: u64,
}

impl Shard {
    fn find(&self, name: FileName, purpose: DescriptorPurpose) -> std::result::Result<usize, usize> {
        self.slots.binary_search_by_key(&(name, purpose), Slot::key)
    }

    fn get(&mut self, name: FileName, purpose: DescriptorPurpose) -> Option<Arc<OpenFile>> {
        let index = self.find(name, purpose).ok()?;
        let slot = &mut self.slots[index];
        slot.is_recent = true;
        Some(Arc::clone(&slot.file))
    }

    /// Keeps `file` unless another thread inserted one first, and returns the kept one.
    fn insert(&mut self, name: FileName, purpose: DescriptorPurpose, file: Arc<OpenFile>) -> Arc<OpenFile> {
        match self.find(name, purpose) {
            Ok(index) => Arc::clone(&self.slots[index].file),
            Err(index) => {
                self.slots.insert(index, Slot { name, purpose, file: Arc::clone(&file), is_recent: false });
                file
            }
        }
    }

    /// Removes one entry that was not used lately. The CLOCK hand makes at most two rounds.
    fn evict(&mut self) -> Option<Arc<OpenFile>> {
        for _ in 0..2 * self.slots.len() {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let slot = &mut self.slots[self.hand];
            if slot.is_recent {
                slot.is_recent = false;
            } else if slot.is_evictable() {
                return Some(self.slots.remove(self.hand).file);
            }
            self.hand += 1;
        }
        None
    }

    /// Removes every entry of the name.
    fn take(&mut self, name: FileName) -> Vec<Slot> {
        self.changes += 1;
        self.slots.extract_if(.., |slot| slot.name == name).collect()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct FileTable {
    shards: Vec<Mutex<Shard>>,
    shard_files_max: usize,
}

impl FileTable {
    pub(super) fn new(files_max: usize) -> FileTable {
        let shards_count = (files_max / SHARD_FILES_COUNT).clamp(1, SHARDS_COUNT_MAX);
        FileTable {
            shards: (0..shards_count).map(|_| Mutex::default()).collect(),
            shard_files_max: (files_max / shards_count).max(1),
        }
    }

    fn shard(&self, name: FileName) -> &Mutex<Shard> {
        // Numbers are given out in sequence, so the remainder spreads them evenly.
        &self.shards[(name.number % self.shards.len() as u64) as usize]
    }

    /// The descriptor for `name` and `purpose`; `open` opens it if it is not open yet.
    pub(super) fn get<E>(
        &self,
        name: FileName,
        purpose: DescriptorPurpose,
        open: impl FnOnce() -> Result<OwnedFd, E>,
    ) -> Result<Arc<OpenFile>, E> {
        let changes = {
            let mut shard = self.shard(name).lock();
            if let Some(file) = shard.get(name, purpose) {
                return Ok(file);
            }
            shard.changes
        };
        let file = Arc::new(OpenFile::new(open()?));
        let mut evicted = Vec::new();
        let mut shard = self.shard(name).lock();
        if shard.changes != changes {
            return Ok(file);
        }
        let kept = shard.insert(name, purpose, file);
        while shard.slots.len() > self.shard_files_max {
            let Some(file) = shard.evict() else { break };
            evicted.push(file);
        }
        // Unlocked before the evicted descriptors are closed.
        drop(shard);
        drop(evicted);
        Ok(kept)
    }

    /// The descriptor, if it is open.
    pub(super) fn peek(&self, name: FileName, purpose: DescriptorPurpose) -> Option<Arc<OpenFile>> {
        self.shard(name).lock().get(name, purpose)
    }

    /// Closes one file that is not in use. False if there is none.
    pub(super) fn evict_one(&self) -> bool {
        self.shards.iter().any(|shard| {
            let evicted = shard.lock().evict();
            evicted.is_some()
        })
    }

    /// Forgets the name: the next user opens the file again.
    pub(super) fn forget(&self, name: FileName) {
        let taken = self.shard(name).lock().take(name);
        drop(taken);
    }

    /// Moves the open descriptors of `from` to `to`.
    pub(super) fn rename(&self, from: FileName, to: FileName) {
        let moved = self.shard(from).lock().take(from);
        let mut shard = self.shard(to).lock();
        let stale = shard.take(to);
        for slot in moved {
            shard.insert(to, slot.purpose, slot.file);
        }
        drop(shard);
        drop(stale);
    }

    /// Forgets every file.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.changes += 1;
            let taken = std::mem::take(&mut shard.slots);
            drop(shard);
            drop(taken);
        }
    }

    /// Number of open descriptors in the table.
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().slots.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::FileKind;

    fn table(number: u64) -> FileName {
        FileName::new(FileKind::Table, number)
    }

    fn some_descriptor() -> Result<OwnedFd, rustix::io::Errno> {
        rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())
    }

    fn get(files: &FileTable, number: u64, purpose: DescriptorPurpose) -> Arc<OpenFile> {
        files.get(table(number), purpose, some_descriptor).expect("/dev/null opens")
    }

    /// The table stays within its bound, however many files are opened, and keeps a file in steady use.
    #[test]
    fn the_bound_holds_and_recent_files_stay() {
        for files_max in [1, 16, 200] {
            let files = FileTable::new(files_max);
            let mut opened = 0;
            let mut get_first = || {
                let open = || {
                    opened += 1;
                    some_descriptor()
                };
                drop(files.get(table(0), DescriptorPurpose::Buffered, open).expect("/dev/null opens"));
            };
            get_first();
            for number in 1..600 {
                get_first();
                get(&files, number, DescriptorPurpose::Buffered);
                assert!(files.count() <= files_max);
            }
            assert!(files_max == 1 || opened == 1, "the one in steady use was evicted, {opened}");
        }
    }

    /// Files in use, or written since their last sync, may exceed the bound. They are evicted once clean and
    /// unused.
    #[test]
    fn busy_and_dirty_files_are_not_evicted() {
        let files = FileTable::new(4);
        let held: Vec<_> = (0..8).map(|number| get(&files, number, DescriptorPurpose::Buffered)).collect();
        assert_eq!(files.count(), 8);
        assert!(!files.evict_one());
        drop(held);
        get(&files, 8, DescriptorPurpose::Buffered);
        assert_eq!(files.count(), 4);
        let dirty = get(&files, 9, DescriptorPurpose::Write);
        dirty.note_write();
        let pointer = Arc::as_ptr(&dirty);
        drop(dirty);
        while files.evict_one() {}
        assert_eq!(files.count(), 1);
        let dirty = get(&files, 9, DescriptorPurpose::Write);
        assert_eq!(Arc::as_ptr(&dirty), pointer);
        dirty.note_synced(dirty.writes());
        drop(dirty);
        while files.evict_one() {}
        assert_eq!(files.count(), 0);
    }

    /// A renamed file keeps its descriptor. A forgotten file is opened again, and so is one forgotten during
    /// its opening.
    #[test]
    fn names_change_and_go() {
        let files = FileTable::new(200);
        let old = get(&files, 1, DescriptorPurpose::Write);
        files.rename(table(1), table(2));
        assert!(files.peek(table(1), DescriptorPurpose::Write).is_none());
        assert!(Arc::ptr_eq(&old, &get(&files, 2, DescriptorPurpose::Write)));
        files.forget(table(2));
        assert!(files.peek(table(2), DescriptorPurpose::Write).is_none());
        let raced = files.get(table(3), DescriptorPurpose::Buffered, || {
            files.forget(table(3));
            some_descriptor()
        });
        assert!(raced.is_ok() && files.count() == 0);
        get(&files, 4, DescriptorPurpose::Direct);
        files.clear();
        assert_eq!(files.count(), 0);
    }
}
