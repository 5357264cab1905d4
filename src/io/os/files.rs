//! The open-file table: which descriptors of a store are open, at most so many, by CLOCK.
//!
//! It is not a cache of contents and never opens a file itself: the caller hands in how. `storage` is its
//! only user. Any thread may call; a shard's lock is held for a search among its entries and never across a
//! system call.
//!
//! 1. A descriptor closes when its last user drops it, so a file may be forgotten while it is read.
//! 2. What is in use, or written since its last sync, is not evicted: a failed write-back is reported to a
//!    descriptor that was open when it failed, and could be missed by one opened later. The bound may be
//!    passed by as many.
//! 3. A descriptor opened while its name was forgotten or renamed is not kept.

use std::os::fd::OwnedFd;

use crate::base::id::FileName;
use crate::base::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering};

#[cfg(target_os = "linux")]
use super::window::Appends;

/// Entries that make a shard of their own worth while.
const SHARD_FILES_COUNT: usize = 64;
/// Most shards.
const SHARDS_COUNT_MAX: usize = 16;

/// What a descriptor is open for. One file may be open once for each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Access {
    /// Reads through the page cache.
    Buffered,
    /// Reads past the page cache.
    Direct,
    /// Writes and syncs, through the page cache.
    Write,
}

/// An open descriptor, and whether what was written through it is synced.
#[derive(Debug)]
pub(super) struct OpenFile {
    descriptor: OwnedFd,
    /// Writes done, or failed half-way.
    writes: AtomicU64,
    /// Value of `writes` before the last successful sync began.
    writes_synced: AtomicU64,
    /// Held while syncing: the kernel tells of a failure once a descriptor, so of two syncs at once one would
    /// not hear of it.
    syncing: Mutex<()>,
    /// Held for a copy, or for the calls that prepare some.
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

    /// To be called after each write, also a failed one.
    pub(super) fn note_write(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }

    /// Writes what comes behind what was written before, if that needs no call of its own.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(super) fn append(&self, offset: u64, bytes: &[u8]) -> bool {
        self.appends.lock().write(&self.descriptor, offset, bytes)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn append(&self, _offset: u64, _bytes: &[u8]) -> bool {
        false
    }

    /// For a sync: keeps others of this descriptor out, and has nothing mapped, or pages that nobody wrote to
    /// would be made writable for the next.
    pub(super) fn lock_syncing(&self) -> MutexGuard<'_, ()> {
        #[cfg(target_os = "linux")]
        self.appends.lock().reset();
        self.syncing.lock()
    }

    /// Writes that a sync starting now will cover.
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
    access: Access,
    file: Arc<OpenFile>,
    /// Asked for again since the hand last passed: what is only opened goes before it.
    is_recent: bool,
}

impl Slot {
    fn key(&self) -> (FileName, Access) {
        (self.name, self.access)
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
    fn find(&self, name: FileName, access: Access) -> std::result::Result<usize, usize> {
        self.slots.binary_search_by_key(&(name, access), Slot::key)
    }

    fn get(&mut self, name: FileName, access: Access) -> Option<Arc<OpenFile>> {
        let index = self.find(name, access).ok()?;
        let slot = &mut self.slots[index];
        slot.is_recent = true;
        Some(Arc::clone(&slot.file))
    }

    /// Keeps `file` unless another thread was faster, and gives what is kept.
    fn insert(&mut self, name: FileName, access: Access, file: Arc<OpenFile>) -> Arc<OpenFile> {
        match self.find(name, access) {
            Ok(index) => Arc::clone(&self.slots[index].file),
            Err(index) => {
                self.slots.insert(index, Slot { name, access, file: Arc::clone(&file), is_recent: false });
                file
            }
        }
    }

    /// Takes out one entry that was not used lately. The hand goes round twice at most.
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

    /// Takes out every entry of the name.
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
        // Numbers are given out in turn, so the remainder spreads them evenly.
        &self.shards[(name.number % self.shards.len() as u64) as usize]
    }

    /// The descriptor, opened by `open` if it is not open yet.
    pub(super) fn get<E>(
        &self,
        name: FileName,
        access: Access,
        open: impl FnOnce() -> Result<OwnedFd, E>,
    ) -> Result<Arc<OpenFile>, E> {
        let changes = {
            let mut shard = self.shard(name).lock();
            if let Some(file) = shard.get(name, access) {
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
        let kept = shard.insert(name, access, file);
        while shard.slots.len() > self.shard_files_max {
            let Some(file) = shard.evict() else { break };
            evicted.push(file);
        }
        // Unlocked before the evicted are closed.
        drop(shard);
        drop(evicted);
        Ok(kept)
    }

    /// The descriptor if it is open.
    pub(super) fn peek(&self, name: FileName, access: Access) -> Option<Arc<OpenFile>> {
        self.shard(name).lock().get(name, access)
    }

    /// Closes one file of those not in use. False if there is none.
    pub(super) fn evict_one(&self) -> bool {
        self.shards.iter().any(|shard| {
            let evicted = shard.lock().evict();
            evicted.is_some()
        })
    }

    /// Forgets the name: the next user opens it anew.
    pub(super) fn forget(&self, name: FileName) {
        let taken = self.shard(name).lock().take(name);
        drop(taken);
    }

    /// What was open as `from` is open as `to`.
    pub(super) fn rename(&self, from: FileName, to: FileName) {
        let moved = self.shard(from).lock().take(from);
        let mut shard = self.shard(to).lock();
        let stale = shard.take(to);
        for slot in moved {
            shard.insert(to, slot.access, slot.file);
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

    /// Descriptors kept open.
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

    fn get(files: &FileTable, number: u64, access: Access) -> Arc<OpenFile> {
        files.get(table(number), access, some_descriptor).expect("/dev/null opens")
    }

    /// The table stays at its bound, whatever passes through, and keeps what is asked for again and again.
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
                drop(files.get(table(0), Access::Buffered, open).expect("/dev/null opens"));
            };
            get_first();
            for number in 1..600 {
                get_first();
                get(&files, number, Access::Buffered);
                assert!(files.count() <= files_max);
            }
            assert!(files_max == 1 || opened == 1, "the one in steady use was evicted, {opened}");
        }
    }

    /// Files in use or written since their last sync pass the bound; they go once they are clean and free.
    #[test]
    fn busy_and_dirty_files_are_not_evicted() {
        let files = FileTable::new(4);
        let held: Vec<_> = (0..8).map(|number| get(&files, number, Access::Buffered)).collect();
        assert_eq!(files.count(), 8);
        assert!(!files.evict_one());
        drop(held);
        get(&files, 8, Access::Buffered);
        assert_eq!(files.count(), 4);
        let dirty = get(&files, 9, Access::Write);
        dirty.note_write();
        let pointer = Arc::as_ptr(&dirty);
        drop(dirty);
        while files.evict_one() {}
        assert_eq!(files.count(), 1);
        let dirty = get(&files, 9, Access::Write);
        assert_eq!(Arc::as_ptr(&dirty), pointer);
        dirty.note_synced(dirty.writes());
        drop(dirty);
        while files.evict_one() {}
        assert_eq!(files.count(), 0);
    }

    /// A renamed file keeps its descriptor; a forgotten one is opened anew, and so is one opened meanwhile.
    #[test]
    fn names_change_and_go() {
        let files = FileTable::new(200);
        let old = get(&files, 1, Access::Write);
        files.rename(table(1), table(2));
        assert!(files.peek(table(1), Access::Write).is_none());
        assert!(Arc::ptr_eq(&old, &get(&files, 2, Access::Write)));
        files.forget(table(2));
        assert!(files.peek(table(2), Access::Write).is_none());
        let raced = files.get(table(3), Access::Buffered, || {
            files.forget(table(3));
            some_descriptor()
        });
        assert!(raced.is_ok() && files.count() == 0);
        get(&files, 4, Access::Direct);
        files.clear();
        assert_eq!(files.count(), 0);
    }
}
