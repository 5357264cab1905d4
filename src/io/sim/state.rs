//! The data of a simulated disk, and the effects of calls, failures and crashes on it.
//!
//! This is not the [`Storage`](super::super::storage::Storage): `disk` is, and holds one state under its
//! lock. Plain data: a copy is a fork. The invariants are those of `disk`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

#[cfg(test)]
use xxhash_rust::xxh3::Xxh3;

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName};
use crate::base::sync::Arc;

use super::super::storage::{LockMode, StorageCounts};
use super::fault::{DiskCall, Failure, FaultPlan, Operation, Stop, Verdict};
use super::inode::Inode;
use super::pages::{PAGE_BYTES, Page};
use super::random::SimRng;

/// Pages of removed files that are kept, to appear where a file has grown and its data was lost.
const STALE_PAGES_COUNT_MAX: usize = 32;

/// Alignment that direct reads require of offsets, lengths and addresses.
const DIRECT_ALIGNMENT: usize = 512;

/// The directory's name in errors.
pub(super) const PATH: &str = "simulated";

/// The end of the process.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let world = trine::sim::World::new(1);
/// # let db = world.builder().open()?;
/// # let users = db.ordered("users").open()?;
/// use trine::sim::Crash;
/// users.put("ann", "1")?;
/// let after = world.crash(Crash::Process, 1);
/// let users = after.builder().open()?.ordered("users").open()?;
/// assert!(users.contains("ann")?, "what the kernel has outlives the process");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// The process is killed: its writes stay in the page cache, still not durable.
    Process,
    /// The machine loses power: unsynced writes survive or not.
    Power,
}

/// The effect of a power cut on unsynced state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests of the store want cuts of one kind"))]
pub(crate) enum PowerCut {
    /// Any of the effects below, mixed.
    #[default]
    Any,
    /// Of each page a prefix of the writes is kept, and the next write is torn.
    Torn,
    /// Each page is kept or lost independently; names are kept.
    Pages,
    /// Lengths are kept and pages lost: any bytes may appear where a file has grown.
    Stale,
    /// Each name is kept or lost independently; pages are kept.
    Names,
}

/// A change of names that no `sync_directory` has made durable yet.
#[derive(Clone, Debug)]
enum DirectoryChange {
    Create(FileName, u64),
    Remove(FileName),
    Rename(FileName, FileName, u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lock {
    Free,
    Exclusive,
    Shared(usize),
}

#[derive(Clone, Debug)]
pub(super) struct DiskState {
    pub(super) rng: SimRng,
    /// For the order of reads in flight. It is separate, so that a caller's way of reading does not change
    /// crashes.
    pub(super) reader_rng: SimRng,
    pub(super) has_directory: bool,
    pub(super) has_durable_directory: bool,
    pub(super) inodes: BTreeMap<u64, Arc<Inode>>,
    pub(super) inode_next: u64,
    /// Names as the process sees them, with their inodes.
    pub(super) names: BTreeMap<FileName, u64>,
    pub(super) durable_names: BTreeMap<FileName, u64>,
    changes: Vec<DirectoryChange>,
    pub(super) foreign_names: BTreeSet<String>,
    pub(super) is_directory_poisoned: bool,
    lock: Lock,
    pub(super) boot_id: u128,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) stale: Vec<Page>,
    /// Files that have a second name.
    pub(super) linked: BTreeSet<FileName>,
    pub(super) plan: FaultPlan,
    pub(super) is_stopped: bool,
    pub(super) calls_count: u64,
    pub(super) log: Option<Vec<DiskCall>>,
    pub(super) counts: StorageCounts,
    pub(super) is_alignment_demanded: bool,
}

/// How much of a call takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallEffect {
    Whole,
    Part,
}

/// A call before its verdict.
pub(super) struct Asked<'a> {
    pub(super) operation: Operation,
    pub(super) file: Option<FileName>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) written: &'a [u8],
}

impl Asked<'_> {
    pub(super) fn of_directory(operation: Operation) -> Asked<'static> {
        Asked { operation, file: None, offset: 0, bytes: 0, written: &[] }
    }

    pub(super) fn of_file(operation: Operation, file: FileName) -> Asked<'static> {
        Asked { file: Some(file), ..Asked::of_directory(operation) }
    }

    /// The operation's name in errors.
    fn word(&self) -> &'static str {
        match self.operation {
            Operation::CreateDirectory | Operation::Create => "create",
            Operation::Exists | Operation::Length => "look up",
            Operation::Lock => "lock",
            Operation::List => "list",
            Operation::Read => "read",
            Operation::Write | Operation::StartWriteback | Operation::PunchHole => "write",
            Operation::Sync | Operation::SyncDirectory => "sync",
            Operation::Rename => "rename",
            Operation::Link => "link",
            Operation::Remove => "remove",
        }
    }

    fn name(&self) -> String {
        self.file.map_or_else(|| PATH.to_owned(), |file| file.to_string())
    }

    pub(super) fn io(&self, source: impl Into<io::Error>) -> Error {
        let source = Arc::new(source.into());
        Error::Io { operation: self.word(), file: self.name(), offset: self.offset, source }
    }

    pub(super) fn stopped(&self) -> Error {
        self.io(io::Error::other("the simulated process has stopped"))
    }

    fn failure(&self, failure: Failure) -> Error {
        let is_sync = matches!(self.operation, Operation::Sync | Operation::SyncDirectory);
        match failure {
            Failure::Io => self.io(io::Error::other("a planned failure of the device")),
            Failure::NoDescriptor => self.io(io::Error::from(rustix::io::Errno::MFILE)),
            Failure::Full if is_sync => self.io(io::ErrorKind::StorageFull),
            Failure::Full => Error::Full { file: self.name() },
            Failure::ReadOnly => Error::ReadOnlyFileSystem { operation: self.word(), file: self.name() },
            Failure::Interrupted => self.io(io::ErrorKind::Interrupted),
        }
    }
}

impl DiskState {
    pub(super) fn new(seed: u64) -> DiskState {
        let mut rng = SimRng::new(seed);
        let boot_id = new_boot_id(&mut rng);
        DiskState {
            rng,
            reader_rng: SimRng::new(!seed),
            has_directory: false,
            has_durable_directory: false,
            inodes: BTreeMap::new(),
            inode_next: 0,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            linked: BTreeSet::new(),
            changes: Vec::new(),
            foreign_names: BTreeSet::new(),
            is_directory_poisoned: false,
            lock: Lock::Free,
            boot_id,
            capacity_bytes: None,
            stale: Vec::new(),
            plan: FaultPlan::default(),
            is_stopped: false,
            calls_count: 0,
            log: None,
            counts: StorageCounts::default(),
            is_alignment_demanded: false,
        }
    }

    pub(super) fn act<T>(
        &mut self,
        asked: &Asked<'_>,
        verdict: Verdict,
        effect: impl FnOnce(&mut DiskState, CallEffect) -> Result<T>,
    ) -> (Result<T>, &'static str) {
        let run = |state: &mut DiskState, extent| {
            state.check(asked)?;
            effect(state, extent)
        };
        let has_parts = asked.operation == Operation::Write;
        match verdict {
            Verdict::Go => match run(self, CallEffect::Whole) {
                Ok(value) => (Ok(value), "ok"),
                Err(error) => (Err(error), "error"),
            },
            Verdict::Stop(stop) => {
                // Results of `effect` are dropped here, because the process has ended.
                let outcome = match stop {
                    Stop::Before => "stopped before",
                    Stop::Amid if has_parts => {
                        // The process has ended: no caller gets the result.
                        let _ = run(self, CallEffect::Part);
                        "stopped amid"
                    }
                    Stop::Amid if self.rng.one_in(2) => "stopped before",
                    Stop::Amid | Stop::After => {
                        // As above.
                        let _ = run(self, CallEffect::Whole);
                        "stopped after"
                    }
                };
                self.is_stopped = true;
                (Err(asked.stopped()), outcome)
            }
            Verdict::Fail(failure) => {
                let is_begun = failure != Failure::NoDescriptor;
                if has_parts && is_begun && failure != Failure::ReadOnly {
                    // The planned failure is the one reported.
                    let _ = run(self, CallEffect::Part);
                }
                if is_begun {
                    self.fail_sync(asked);
                }
                (Err(asked.failure(failure)), "failed")
            }
        }
    }

    /// Checks the arguments of a call of any operation.
    fn check(&self, asked: &Asked<'_>) -> Result<()> {
        let needs_directory = !matches!(asked.operation, Operation::CreateDirectory | Operation::Exists);
        if needs_directory && !self.has_directory {
            return Err(Error::Missing { path: PATH.to_owned() });
        }
        if asked.file.is_some_and(|file| file.path != 0) {
            return Err(Error::Unsupported { file: asked.name(), what: "a second directory".to_owned() });
        }
        let end = asked.offset.checked_add(asked.bytes);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(asked.io(io::ErrorKind::InvalidInput));
        }
        Ok(())
    }

    fn fail_sync(&mut self, asked: &Asked<'_>) {
        match asked.operation {
            Operation::SyncDirectory => self.is_directory_poisoned = true,
            Operation::Sync => {
                let variant = self.plan.failed_sync();
                let inode = asked.file.and_then(|file| self.names.get(&file));
                if let Some(inode) = inode.and_then(|inode| self.inodes.get_mut(inode)) {
                    Arc::make_mut(inode).fail_sync(variant, &mut self.rng);
                }
            }
            _ => {}
        }
    }

    pub(super) fn inode(&self, asked: &Asked<'_>) -> Result<u64> {
        let inode = asked.file.and_then(|file| self.names.get(&file));
        inode.copied().ok_or_else(|| asked.io(io::ErrorKind::NotFound))
    }

    fn inode_mut(&mut self, inode: u64) -> &mut Inode {
        Arc::make_mut(self.inodes.get_mut(&inode).expect("every name leads to an inode"))
    }

    pub(super) fn add_inode(&mut self, inode: Inode) -> u64 {
        let number = self.inode_next;
        self.inode_next += 1;
        self.inodes.insert(number, Arc::new(inode));
        number
    }

    pub(super) fn create(&mut self, asked: &Asked<'_>, file: FileName) -> Result<()> {
        if self.names.contains_key(&file) {
            return Err(asked.io(io::ErrorKind::AlreadyExists));
        }
        let inode = self.add_inode(Inode::default());
        self.names.insert(file, inode);
        self.changes.push(DirectoryChange::Create(file, inode));
        Ok(())
    }

    /// Hash of all state visible to a process that opens the store, except the boot id: names, lengths and
    /// bytes.
    #[cfg(test)]
    pub(super) fn fingerprint(&self) -> u64 {
        let mut sum = Xxh3::new();
        sum.update(&[u8::from(self.has_directory)]);
        for (file, inode) in &self.names {
            sum.update(&[file.kind as u8]);
            sum.update(&file.number.to_le_bytes());
            self.inodes[inode].add_to(&mut sum);
        }
        sum.digest()
    }

    /// Gives a name to a file of another directory. Neither directory writes to the file any more.
    pub(super) fn link(&mut self, asked: &Asked<'_>, file: FileName, inode: Arc<Inode>) -> Result<()> {
        if self.names.contains_key(&file) {
            return Err(asked.io(io::ErrorKind::AlreadyExists));
        }
        let number = self.inode_next;
        self.inode_next += 1;
        self.inodes.insert(number, inode);
        self.names.insert(file, number);
        self.changes.push(DirectoryChange::Create(file, number));
        Ok(())
    }

    /// Another directory of the same machine, which does not exist yet.
    pub(super) fn beside(&mut self) -> DiskState {
        let is_alignment_demanded = self.is_alignment_demanded;
        DiskState { boot_id: self.boot_id, is_alignment_demanded, ..DiskState::new(self.rng.u64()) }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.names.values().map(|inode| self.inodes[inode].held_bytes()).sum()
    }

    /// # Panics
    /// If alignment is demanded and a table is read at an offset, or into a buffer, that a direct read cannot
    /// use.
    pub(super) fn check_alignment(&self, asked: &Asked<'_>, buffer: &[u8]) {
        if self.is_alignment_demanded && asked.file.is_some_and(|file| file.kind == FileKind::Table) {
            let numbers = [asked.offset as usize, buffer.len(), buffer.as_ptr() as usize];
            let is_aligned = numbers.iter().all(|number| number.is_multiple_of(DIRECT_ALIGNMENT));
            assert!(
                buffer.is_empty() || is_aligned,
                "a read of {} is not aligned: {numbers:?}",
                asked.name()
            );
        }
    }

    pub(super) fn write(&mut self, asked: &Asked<'_>, bytes: &[u8], extent: CallEffect) -> Result<()> {
        let inode = self.inode(asked)?;
        let length = self.inodes[&inode].length();
        let mut done_bytes = bytes.len();
        if let Some(capacity_bytes) = self.capacity_bytes {
            let free_bytes = capacity_bytes.saturating_sub(self.used_bytes());
            let room_bytes = (length + free_bytes).saturating_sub(asked.offset);
            done_bytes = done_bytes.min(usize::try_from(room_bytes).unwrap_or(usize::MAX));
        }
        let is_full = done_bytes < bytes.len();
        if extent == CallEffect::Part {
            done_bytes = self.rng.index(done_bytes + 1);
        }
        self.inode_mut(inode).write(asked.offset, &bytes[..done_bytes]);
        self.counts.writes += 1;
        self.counts.write_bytes += done_bytes as u64;
        if is_full { Err(Error::Full { file: asked.name() }) } else { Ok(()) }
    }

    /// Writes zeros. A power cut may undo them, as it may undo writes.
    pub(super) fn punch_hole(&mut self, asked: &Asked<'_>) -> Result<bool> {
        let inode = self.inode(asked)?;
        if asked.file.is_some_and(|file| self.linked.contains(&file)) {
            return Ok(false);
        }
        let end = asked.offset + asked.bytes;
        let page = PAGE_BYTES as u64;
        assert!(end <= self.inodes[&inode].length(), "a hole lies in the file");
        assert!(asked.offset.is_multiple_of(page) && end.is_multiple_of(page), "it is of whole pages");
        let pages = asked.offset / page..end / page;
        self.inode_mut(inode).punch_hole(pages);
        Ok(true)
    }

    pub(super) fn sync(&mut self, asked: &Asked<'_>) -> Result<()> {
        let inode = self.inode(asked)?;
        self.counts.syncs += 1;
        if self.inodes[&inode].is_poisoned() {
            return Err(asked.io(io::Error::other("an earlier sync of the file failed")));
        }
        self.inode_mut(inode).sync();
        Ok(())
    }

    pub(super) fn rename(&mut self, asked: &Asked<'_>, from: FileName, to: FileName) -> Result<()> {
        if to.path != 0 {
            return Err(Error::Unsupported { file: to.to_string(), what: "a second directory".to_owned() });
        }
        let inode = self.inode(asked)?;
        if self.names.contains_key(&to) {
            return Err(asked.io(io::ErrorKind::AlreadyExists));
        }
        self.names.remove(&from);
        self.names.insert(to, inode);
        self.changes.push(DirectoryChange::Rename(from, to, inode));
        Ok(())
    }

    pub(super) fn remove(&mut self, file: FileName) {
        if self.names.remove(&file).is_some() {
            self.changes.push(DirectoryChange::Remove(file));
        }
    }

    pub(super) fn release_lock(&mut self) {
        self.lock = match self.lock {
            lock if self.is_stopped => lock,
            Lock::Shared(count) if count > 1 => Lock::Shared(count - 1),
            _ => Lock::Free,
        };
    }

    pub(super) fn take_lock(&mut self, asked: &Asked<'_>, mode: LockMode) -> Result<()> {
        if !self.names.contains_key(&FileName::LOCK) {
            self.create(asked, FileName::LOCK)?;
        }
        self.lock = match (self.lock, mode) {
            (Lock::Free, LockMode::Exclusive) => Lock::Exclusive,
            (Lock::Free, LockMode::Shared) => Lock::Shared(1),
            (Lock::Shared(count), LockMode::Shared) => Lock::Shared(count + 1),
            _ => return Err(Error::Locked { path: PATH.to_owned() }),
        };
        Ok(())
    }

    /// Makes the current names durable, and drops files that have none.
    pub(super) fn sync_names(&mut self) {
        self.has_durable_directory = self.has_directory;
        self.durable_names = self.names.clone();
        self.changes.clear();
        let named: BTreeSet<u64> = self.names.values().copied().collect();
        self.inodes.retain(|number, inode| {
            let is_named = named.contains(number);
            if !is_named {
                self.stale.extend(inode.pages().take(STALE_PAGES_COUNT_MAX).cloned());
            }
            is_named
        });
        let passed_count = self.stale.len().saturating_sub(STALE_PAGES_COUNT_MAX);
        self.stale.drain(..passed_count);
    }

    pub(super) fn crash(&mut self, crash: Crash, cut: PowerCut, seed: u64) {
        self.plan = FaultPlan::default();
        self.end_process();
        if crash == Crash::Power {
            self.cut_power(cut, &mut SimRng::new(seed));
        }
    }

    /// The lock and the failed syncs belong to the process.
    pub(super) fn end_process(&mut self) {
        self.is_stopped = false;
        self.lock = Lock::Free;
        self.is_directory_poisoned = false;
        for inode in self.inodes.values_mut().filter(|inode| inode.is_poisoned()) {
            Arc::make_mut(inode).forget_poison();
        }
    }

    fn cut_power(&mut self, cut: PowerCut, rng: &mut SimRng) {
        // The id is added, so that it is new even when a seed is used again.
        self.boot_id = self.boot_id.wrapping_add(new_boot_id(rng)).max(1);
        if self.has_directory && !self.has_durable_directory && rng.one_in(2) {
            self.has_directory = false;
            self.changes.clear();
        }
        self.names = std::mem::take(&mut self.durable_names);
        // All, none, or each independently: independent choices for many changes hardly ever give all or
        // none.
        let fate = match cut {
            PowerCut::Any => rng.below(4),
            PowerCut::Names => 2,
            PowerCut::Torn | PowerCut::Pages | PowerCut::Stale => 1,
        };
        for change in std::mem::take(&mut self.changes) {
            let is_kept = match fate {
                0 => false,
                1 => true,
                _ => rng.one_in(2),
            };
            match change {
                _ if !is_kept => {}
                DirectoryChange::Create(file, inode) => {
                    self.names.insert(file, inode);
                }
                DirectoryChange::Remove(file) => {
                    self.names.remove(&file);
                }
                DirectoryChange::Rename(from, to, inode) => {
                    self.names.remove(&from);
                    self.names.insert(to, inode);
                }
            }
        }
        for inode in self.inodes.values_mut().filter(|inode| !inode.is_durable()) {
            Arc::make_mut(inode).cut_power(cut, rng, &self.stale);
        }
        self.sync_names();
    }
}

fn new_boot_id(rng: &mut SimRng) -> u128 {
    // 0 would mean that there is no boot id.
    (u128::from(rng.u64()) << 64 | u128::from(rng.u64())).max(1)
}
