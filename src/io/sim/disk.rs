//! The simulated directory: a [`Storage`] that keeps what is durable apart from what is only written.
//!
//! Tests make one, hand it to a store, plan what goes wrong, crash it, and open the store again. A crash belongs on a
//! fork, or comes after the store that used the disk is dropped: a dead process must not write to what its successor reads.
//!
//! 1. What `sync` and `sync_directory` promised survives every crash; what nobody promised survives or not, page by page
//!    and name by name.
//! 2. Once the process has stopped, every call fails and changes nothing, until `crash`.
//! 3. The same calls under the same seed and plan do the same, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::base::error::{Error, Result};
use crate::base::id::FileName;
use crate::base::sync::{Arc, Mutex};

use super::super::storage::{Entry, LockMode, Storage, StorageCounts};
use super::fault::{Call, Failure, Operation, Plan, Stop, Verdict};
use super::inode::Inode;
use super::pages::Page;
use super::random::SimRng;

/// Pages of removed files kept, to turn up where a file has grown and its data was lost.
const STALE_PAGES_COUNT_MAX: usize = 32;

/// The directory's name in errors.
const PATH: &str = "simulated";

/// How the process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crash {
    /// Killed: what was written stays in the page cache, still not durable.
    Process,
    /// With the machine: what was not synced survives or not.
    Power,
}

/// A change of names that no `sync_directory` has made durable.
#[derive(Clone, Debug)]
enum Change {
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
struct State {
    rng: SimRng,
    has_directory: bool,
    has_durable_directory: bool,
    inodes: BTreeMap<u64, Arc<Inode>>,
    inode_next: u64,
    /// Names as the process sees them, to inodes.
    names: BTreeMap<FileName, u64>,
    durable_names: BTreeMap<FileName, u64>,
    changes: Vec<Change>,
    foreign_names: BTreeSet<String>,
    is_directory_poisoned: bool,
    lock: Lock,
    boot_id: u128,
    capacity_bytes: Option<u64>,
    stale: Vec<Page>,
    plan: Plan,
    is_stopped: bool,
    calls_count: u64,
    log: Option<Vec<Call>>,
    counts: StorageCounts,
}

/// How much of a call is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    Whole,
    Part,
}

/// A call before it is judged.
struct Asked<'a> {
    operation: Operation,
    file: Option<FileName>,
    offset: u64,
    bytes: u64,
    written: &'a [u8],
}

impl Asked<'_> {
    fn of_directory(operation: Operation) -> Asked<'static> {
        Asked { operation, file: None, offset: 0, bytes: 0, written: &[] }
    }

    fn of_file(operation: Operation, file: FileName) -> Asked<'static> {
        Asked { file: Some(file), ..Asked::of_directory(operation) }
    }

    /// The word in errors.
    fn word(&self) -> &'static str {
        match self.operation {
            Operation::CreateDirectory | Operation::Create => "create",
            Operation::Exists | Operation::Length => "look up",
            Operation::Lock => "lock",
            Operation::List => "list",
            Operation::Read => "read",
            Operation::Write | Operation::StartWriteback => "write",
            Operation::Sync | Operation::SyncDirectory => "sync",
            Operation::Rename => "rename",
            Operation::Remove => "remove",
        }
    }

    fn name(&self) -> String {
        self.file.map_or_else(|| PATH.to_owned(), |file| file.to_string())
    }

    fn io(&self, source: impl Into<io::Error>) -> Error {
        let source = Arc::new(source.into());
        Error::Io { operation: self.word(), file: self.name(), offset: self.offset, source }
    }

    fn stopped(&self) -> Error {
        self.io(io::Error::other("the simulated process has stopped"))
    }

    fn failure(&self, failure: Failure) -> Error {
        let is_sync = matches!(self.operation, Operation::Sync | Operation::SyncDirectory);
        match failure {
            Failure::Io => self.io(io::Error::other("a planned failure of the device")),
            Failure::Full if is_sync => self.io(io::ErrorKind::StorageFull),
            Failure::Full => Error::Full { file: self.name() },
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SimDisk {
    state: Mutex<State>,
}

impl SimDisk {
    /// An empty disk; the store's directory does not exist yet.
    pub(crate) fn new(seed: u64) -> Arc<SimDisk> {
        let mut rng = SimRng::new(seed);
        let boot_id = new_boot_id(&mut rng);
        let state = State {
            rng,
            has_directory: false,
            has_durable_directory: false,
            inodes: BTreeMap::new(),
            inode_next: 0,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changes: Vec::new(),
            foreign_names: BTreeSet::new(),
            is_directory_poisoned: false,
            lock: Lock::Free,
            boot_id,
            capacity_bytes: None,
            stale: Vec::new(),
            plan: Plan::default(),
            is_stopped: false,
            calls_count: 0,
            log: None,
            counts: StorageCounts::default(),
        };
        Arc::new(SimDisk { state: Mutex::new(state) })
    }

    /// A disk of its own in the same state, plan and stopped process included. Contents are shared until written.
    pub(crate) fn fork(&self) -> Arc<SimDisk> {
        Arc::new(SimDisk { state: Mutex::new(self.state.lock().clone()) })
    }

    /// Ends the process, and perhaps the machine; then the disk is as the next process finds it, and nothing is planned.
    pub(crate) fn crash(&self, crash: Crash, seed: u64) {
        let mut state = self.state.lock();
        state.plan = Plan::default();
        state.is_stopped = false;
        state.lock = Lock::Free;
        state.is_directory_poisoned = false;
        for inode in state.inodes.values_mut().filter(|inode| inode.is_poisoned()) {
            Arc::make_mut(inode).forget_poison();
        }
        if crash == Crash::Power {
            state.cut_power(&mut SimRng::new(seed));
        }
    }

    /// From now on goes wrong what `plan` says, and nothing planned before.
    pub(crate) fn plan(&self, plan: Plan) {
        self.state.lock().plan = plan;
    }

    /// Whether a plan has stopped the process.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// Calls that reached the disk so far, the one that stopped the process included and none after it.
    pub(crate) fn calls(&self) -> u64 {
        self.state.lock().calls_count
    }

    /// Keeps a log from now on.
    pub(crate) fn start_log(&self) {
        self.state.lock().log = Some(Vec::new());
    }

    /// The log so far.
    pub(crate) fn log(&self) -> Vec<Call> {
        self.state.lock().log.clone().unwrap_or_default()
    }

    /// Bytes that all files may have together; `None`: any number.
    pub(crate) fn set_capacity_bytes(&self, capacity_bytes: Option<u64>) {
        self.state.lock().capacity_bytes = capacity_bytes;
    }

    /// Bytes that all files have together.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    /// A file's bytes, past every plan and count.
    pub(crate) fn contents(&self, file: FileName) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let inode = &state.inodes[state.names.get(&file)?];
        let mut bytes = vec![0; inode.length() as usize];
        inode.read(0, &mut bytes);
        Some(bytes)
    }

    /// Makes, replaces or (with `None`) removes a file, durably and past every plan and count: for damage.
    pub(crate) fn set_contents(&self, file: FileName, bytes: Option<&[u8]>) {
        let mut state = self.state.lock();
        state.sync_names();
        match bytes {
            None => {
                state.names.remove(&file);
            }
            Some(bytes) => {
                let inode = state.add_inode(Inode::durable(bytes));
                state.names.insert(file, inode);
            }
        }
        state.sync_names();
    }

    /// Puts a name that is not ours into the directory.
    pub(crate) fn add_foreign(&self, name: &str) {
        self.state.lock().foreign_names.insert(name.to_owned());
    }

    /// Counts, logs and judges a call, and lets `effect` have it.
    fn call<T>(&self, asked: &Asked<'_>, effect: impl FnOnce(&mut State, Extent) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        if state.is_stopped {
            return Err(asked.stopped());
        }
        let index = state.calls_count;
        state.calls_count += 1;
        let verdict = state.plan.judge(asked.operation, asked.file);
        let (result, outcome) = state.act(asked, verdict, effect);
        if let Some(log) = &mut state.log {
            let &Asked { operation, file, offset, bytes, written } = asked;
            let checksum = crc32c::crc32c(written);
            log.push(Call { index, operation, file, offset, bytes, checksum, outcome });
        }
        result
    }
}

impl State {
    fn act<T>(
        &mut self,
        asked: &Asked<'_>,
        verdict: Verdict,
        effect: impl FnOnce(&mut State, Extent) -> Result<T>,
    ) -> (Result<T>, &'static str) {
        let run = |state: &mut State, extent| {
            state.check(asked)?;
            effect(state, extent)
        };
        let has_parts = asked.operation == Operation::Write;
        match verdict {
            Verdict::Go => match run(self, Extent::Whole) {
                Ok(value) => (Ok(value), "ok"),
                Err(error) => (Err(error), "error"),
            },
            Verdict::Stop(stop) => {
                // What comes of the effect nobody is there to hear.
                let outcome = match stop {
                    Stop::Before => "stopped before",
                    Stop::Amid if has_parts => {
                        let _ = run(self, Extent::Part);
                        "stopped amid"
                    }
                    Stop::Amid if self.rng.one_in(2) => "stopped before",
                    Stop::Amid | Stop::After => {
                        let _ = run(self, Extent::Whole);
                        "stopped after"
                    }
                };
                self.is_stopped = true;
                (Err(asked.stopped()), outcome)
            }
            Verdict::Fail(failure) => {
                if has_parts {
                    // The failure that was planned is the one reported.
                    let _ = run(self, Extent::Part);
                }
                self.fail_sync(asked);
                (Err(asked.failure(failure)), "failed")
            }
        }
    }

    /// What every call needs of its arguments.
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

    fn inode(&self, asked: &Asked<'_>) -> Result<u64> {
        let inode = asked.file.and_then(|file| self.names.get(&file));
        inode.copied().ok_or_else(|| asked.io(io::ErrorKind::NotFound))
    }

    fn inode_mut(&mut self, inode: u64) -> &mut Inode {
        Arc::make_mut(self.inodes.get_mut(&inode).expect("every name leads to an inode"))
    }

    fn add_inode(&mut self, inode: Inode) -> u64 {
        let number = self.inode_next;
        self.inode_next += 1;
        self.inodes.insert(number, Arc::new(inode));
        number
    }

    fn create(&mut self, asked: &Asked<'_>, file: FileName) -> Result<()> {
        if self.names.contains_key(&file) {
            return Err(asked.io(io::ErrorKind::AlreadyExists));
        }
        let inode = self.add_inode(Inode::default());
        self.names.insert(file, inode);
        self.changes.push(Change::Create(file, inode));
        Ok(())
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().map(|inode| self.inodes[inode].length()).sum()
    }

    fn write(&mut self, asked: &Asked<'_>, bytes: &[u8], extent: Extent) -> Result<()> {
        let inode = self.inode(asked)?;
        let length = self.inodes[&inode].length();
        let mut done_bytes = bytes.len();
        if let Some(capacity_bytes) = self.capacity_bytes {
            let free_bytes = capacity_bytes.saturating_sub(self.used_bytes());
            let room_bytes = (length + free_bytes).saturating_sub(asked.offset);
            done_bytes = done_bytes.min(usize::try_from(room_bytes).unwrap_or(usize::MAX));
        }
        let is_full = done_bytes < bytes.len();
        if extent == Extent::Part {
            done_bytes = self.rng.index(done_bytes + 1);
        }
        self.inode_mut(inode).write(asked.offset, &bytes[..done_bytes]);
        self.counts.writes += 1;
        self.counts.write_bytes += done_bytes as u64;
        if is_full { Err(Error::Full { file: asked.name() }) } else { Ok(()) }
    }

    fn sync(&mut self, asked: &Asked<'_>) -> Result<()> {
        let inode = self.inode(asked)?;
        self.counts.syncs += 1;
        if self.inodes[&inode].is_poisoned() {
            return Err(asked.io(io::Error::other("an earlier sync of the file failed")));
        }
        self.inode_mut(inode).sync();
        Ok(())
    }

    fn rename(&mut self, asked: &Asked<'_>, from: FileName, to: FileName) -> Result<()> {
        if to.path != 0 {
            return Err(Error::Unsupported { file: to.to_string(), what: "a second directory".to_owned() });
        }
        let inode = self.inode(asked)?;
        if self.names.contains_key(&to) {
            return Err(asked.io(io::ErrorKind::AlreadyExists));
        }
        self.names.remove(&from);
        self.names.insert(to, inode);
        self.changes.push(Change::Rename(from, to, inode));
        Ok(())
    }

    fn take_lock(&mut self, asked: &Asked<'_>, mode: LockMode) -> Result<()> {
        if mode == LockMode::Exclusive && !self.names.contains_key(&FileName::LOCK) {
            self.create(asked, FileName::LOCK)?;
        }
        if !self.names.contains_key(&FileName::LOCK) {
            return Err(Error::Missing { path: PATH.to_owned() });
        }
        self.lock = match (self.lock, mode) {
            (Lock::Free, LockMode::Exclusive) => Lock::Exclusive,
            (Lock::Free, LockMode::Shared) => Lock::Shared(1),
            (Lock::Shared(count), LockMode::Shared) => Lock::Shared(count + 1),
            _ => return Err(Error::Locked { path: PATH.to_owned() }),
        };
        Ok(())
    }

    /// Makes the names durable as they are, and lets go of files that have none.
    fn sync_names(&mut self) {
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

    fn cut_power(&mut self, rng: &mut SimRng) {
        // Added, so that it is new also when a seed is used again.
        self.boot_id = self.boot_id.wrapping_add(new_boot_id(rng)).max(1);
        if self.has_directory && !self.has_durable_directory && rng.one_in(2) {
            self.has_directory = false;
            self.changes.clear();
        }
        self.names = std::mem::take(&mut self.durable_names);
        // All, none, or each for itself: of many changes, each for itself never is all or none.
        let fate = rng.below(4);
        for change in std::mem::take(&mut self.changes) {
            let is_kept = match fate {
                0 => false,
                1 => true,
                _ => rng.one_in(2),
            };
            match change {
                _ if !is_kept => {}
                Change::Create(file, inode) => {
                    self.names.insert(file, inode);
                }
                Change::Remove(file) => {
                    self.names.remove(&file);
                }
                Change::Rename(from, to, inode) => {
                    self.names.remove(&from);
                    self.names.insert(to, inode);
                }
            }
        }
        for inode in self.inodes.values_mut() {
            Arc::make_mut(inode).cut_power(rng, &self.stale);
        }
        self.sync_names();
    }
}

fn new_boot_id(rng: &mut SimRng) -> u128 {
    // 0 would say that there is none.
    (u128::from(rng.u64()) << 64 | u128::from(rng.u64())).max(1)
}

impl Storage for SimDisk {
    fn create_directory(&self) -> Result<bool> {
        self.call(&Asked::of_directory(Operation::CreateDirectory), |state, _| {
            Ok(!std::mem::replace(&mut state.has_directory, true))
        })
    }

    fn exists(&self) -> Result<bool> {
        self.call(&Asked::of_directory(Operation::Exists), |state, _| Ok(state.has_directory))
    }

    fn lock(&self, mode: LockMode) -> Result<()> {
        let asked = Asked::of_file(Operation::Lock, FileName::LOCK);
        self.call(&asked, |state, _| state.take_lock(&asked, mode))
    }

    fn unlock(&self) {
        let mut state = self.state.lock();
        if !state.is_stopped {
            state.lock = match state.lock {
                Lock::Shared(count) if count > 1 => Lock::Shared(count - 1),
                _ => Lock::Free,
            };
        }
    }

    fn list(&self) -> Result<Vec<Entry>> {
        self.call(&Asked::of_directory(Operation::List), |state, _| {
            let ours = state.names.keys().map(|file| Entry::Ours(*file));
            Ok(ours.chain(state.foreign_names.iter().cloned().map(Entry::Foreign)).collect())
        })
    }

    fn create(&self, file: FileName) -> Result<()> {
        let asked = Asked::of_file(Operation::Create, file);
        self.call(&asked, |state, _| state.create(&asked, file))
    }

    fn read(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let bytes = buffer.len() as u64;
        let asked = Asked { offset, bytes, ..Asked::of_file(Operation::Read, file) };
        self.call(&asked, |state, _| {
            let inode = state.inode(&asked)?;
            let bytes = state.inodes[&inode].read(offset, buffer);
            state.counts.reads += 1;
            state.counts.read_bytes += bytes as u64;
            Ok(bytes)
        })
    }

    fn write(&self, file: FileName, offset: u64, bytes: &[u8]) -> Result<()> {
        let asked = Asked {
            offset,
            bytes: bytes.len() as u64,
            written: bytes,
            ..Asked::of_file(Operation::Write, file)
        };
        self.call(&asked, |state, extent| state.write(&asked, bytes, extent))
    }

    fn start_writeback(&self, file: FileName, offset: u64, bytes: u64) {
        let asked = Asked { offset, bytes, ..Asked::of_file(Operation::StartWriteback, file) };
        // A hint never fails; a process that stops here hears of it at its next call.
        let _ = self.call(&asked, |_, _| Ok(()));
    }

    fn sync(&self, file: FileName) -> Result<()> {
        let asked = Asked::of_file(Operation::Sync, file);
        self.call(&asked, |state, _| state.sync(&asked))
    }

    fn length(&self, file: FileName) -> Result<Option<u64>> {
        self.call(&Asked::of_file(Operation::Length, file), |state, _| {
            Ok(state.names.get(&file).map(|inode| state.inodes[inode].length()))
        })
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        let asked = Asked::of_file(Operation::Rename, from);
        self.call(&asked, |state, _| state.rename(&asked, from, to))
    }

    fn remove(&self, file: FileName) -> Result<()> {
        self.call(&Asked::of_file(Operation::Remove, file), |state, _| {
            if state.names.remove(&file).is_some() {
                state.changes.push(Change::Remove(file));
            }
            Ok(())
        })
    }

    fn sync_directory(&self) -> Result<()> {
        let asked = Asked::of_directory(Operation::SyncDirectory);
        self.call(&asked, |state, _| {
            state.counts.syncs += 1;
            if state.is_directory_poisoned {
                return Err(asked.io(io::Error::other("an earlier sync of the directory failed")));
            }
            state.sync_names();
            Ok(())
        })
    }

    fn boot_id(&self) -> u128 {
        self.state.lock().boot_id
    }

    fn path(&self) -> String {
        PATH.to_owned()
    }

    fn counts(&self) -> StorageCounts {
        self.state.lock().counts
    }
}

#[cfg(test)]
mod tests;
