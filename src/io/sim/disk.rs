//! The simulated directory: a [`Storage`] that keeps durable state apart from unsynced state.
//!
//! A test makes a disk, opens a store on it, plans failures, crashes it, and opens the store again. Crash a
//! fork, or drop the store first: a dead process must not write to files that its successor reads.
//!
//! 1. State that `sync` and `sync_directory` made durable survives every crash. Other state survives or not,
//!    page by page and name by name.
//! 2. Once the process has stopped, every call fails and changes nothing, until `crash`.
//! 3. The same calls under the same seed and plan have the same effects, byte for byte.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::base::checksum;
use crate::base::error::Result;
use crate::base::id::FileName;
use crate::base::sync::{Arc, Mutex, Weak};

use super::super::reader::{Reader, ReaderKind};
use super::super::storage::{DirectoryEntry, LockMode, Storage, StorageCounts};
use super::fault::{DiskCall, FaultPlan, Operation, Verdict};
use super::inode::Inode;
use super::reader::SimReader;
use super::state::{Asked, CallEffect, Crash, DiskState, PATH, PowerCut};

/// See the module.
#[derive(Debug)]
pub(crate) struct SimDisk {
    state: Mutex<DiskState>,
    /// The disk that plans and counts the machine's calls: this disk, or the one that this directory lies
    /// beside.
    machine: Weak<SimDisk>,
    beside: Mutex<BTreeMap<PathBuf, Arc<SimDisk>>>,
}

impl SimDisk {
    /// Names of the store's own files, in order. Not counted as a call.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let files = self.fork().list()?.into_iter().filter_map(|entry| match entry {
            DirectoryEntry::Ours(file) => Some(file.to_string()),
            DirectoryEntry::Foreign(_) => None,
        });
        let mut names: Vec<String> = files.collect();
        names.sort();
        Ok(names)
    }

    /// An empty disk; the store's directory does not exist yet.
    pub(crate) fn new(seed: u64) -> Arc<SimDisk> {
        SimDisk::machine(DiskState::new(seed), BTreeMap::new())
    }

    /// A machine with the store's directory in `state`, and other directories beside it.
    fn machine(state: DiskState, beside: BTreeMap<PathBuf, DiskState>) -> Arc<SimDisk> {
        Arc::new_cyclic(|machine| {
            let directory = |state, beside| SimDisk {
                state: Mutex::new(state),
                machine: Weak::clone(machine),
                beside: Mutex::new(beside),
            };
            let disks =
                beside.into_iter().map(|(path, state)| (path, Arc::new(directory(state, BTreeMap::new()))));
            directory(state, disks.collect())
        })
    }

    /// An independent machine in the same state, including plan, stopped process and the directories beside
    /// the store's. Contents are shared until written.
    pub(crate) fn fork(&self) -> Arc<SimDisk> {
        let state = self.state.lock().clone();
        let beside = self.beside.lock();
        SimDisk::machine(
            state,
            beside.iter().map(|(path, disk)| (path.clone(), disk.state.lock().clone())).collect(),
        )
    }

    /// The directory `path` beside the store's. A new one is empty and does not exist until it is created.
    pub(crate) fn directory_beside(&self, path: &Path) -> Arc<SimDisk> {
        let mut beside = self.beside.lock();
        let disk = beside.entry(path.to_owned()).or_insert_with(|| {
            let state = Mutex::new(self.state.lock().beside());
            Arc::new(SimDisk { state, machine: Weak::clone(&self.machine), beside: Mutex::default() })
        });
        Arc::clone(disk)
    }

    /// Counts and judges a call of the machine; `None` if its process has stopped.
    fn judge(&self, asked: &Asked<'_>) -> Option<(u64, Verdict)> {
        let machine = self.machine.upgrade()?;
        let mut state = machine.state.lock();
        if state.is_stopped {
            return None;
        }
        let index = state.calls_count;
        state.calls_count += 1;
        let verdict = state.plan.judge(asked.operation, asked.file);
        state.is_stopped = matches!(verdict, Verdict::Stop(_));
        Some((index, verdict))
    }

    /// Ends the process, and perhaps the machine. The disk is then as the next process finds it, with no
    /// plan.
    pub(crate) fn crash(&self, crash: Crash, seed: u64) {
        self.crash_by(crash, PowerCut::Any, seed);
    }

    /// As [`SimDisk::crash`], with a power cut of one kind.
    pub(crate) fn crash_by(&self, crash: Crash, cut: PowerCut, seed: u64) {
        self.state.lock().crash(crash, cut, seed);
        for (index, disk) in self.beside.lock().values().enumerate() {
            disk.crash_by(crash, cut, seed.wrapping_add(1 + index as u64));
        }
    }

    /// Hash of all state visible to a process that opens the store, except the boot id.
    #[cfg(test)]
    pub(crate) fn fingerprint(&self) -> u64 {
        self.state.lock().fingerprint()
    }

    /// Kills the process: writes by the destructors of `drop_it` do not reach the disk. The plan stays.
    #[cfg(test)]
    pub(crate) fn kill(&self, drop_it: impl FnOnce()) {
        self.state.lock().is_stopped = true;
        drop_it();
        self.state.lock().end_process();
    }

    /// Replaces the plan by `plan`.
    pub(crate) fn plan(&self, plan: FaultPlan) {
        self.state.lock().plan = plan;
    }

    /// Whether a plan has stopped the process.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// Calls that reached the disk so far, including the call that stopped the process and none after it.
    pub(crate) fn calls(&self) -> u64 {
        self.state.lock().calls_count
    }

    /// Logs all calls from now on.
    pub(crate) fn start_log(&self) {
        self.state.lock().log = Some(Vec::new());
    }

    /// The log so far.
    pub(crate) fn log(&self) -> Vec<DiskCall> {
        self.state.lock().log.clone().unwrap_or_default()
    }

    /// Sets the limit of the total size of all files; `None`: no limit.
    pub(crate) fn set_capacity_bytes(&self, capacity_bytes: Option<u64>) {
        self.state.lock().capacity_bytes = capacity_bytes;
    }

    /// Total size of all files.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    /// A file's bytes; bypasses plan and counts.
    pub(crate) fn contents(&self, file: FileName) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let inode = &state.inodes[state.names.get(&file)?];
        let mut bytes = vec![0; inode.length() as usize];
        inode.read(0, &mut bytes);
        Some(bytes)
    }

    /// Creates, replaces or (with `None`) removes a file, durably and bypassing plan and counts: for
    /// simulating damage.
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

    /// Puts a foreign name into the directory.
    #[cfg(test)]
    pub(crate) fn add_foreign(&self, name: &str) {
        self.state.lock().foreign_names.insert(name.to_owned());
    }

    /// From now on a read of a table that could not be direct panics: its offset and its buffers must be
    /// aligned.
    pub(crate) fn demand_alignment(&self) {
        self.state.lock().is_alignment_demanded = true;
    }

    /// Lifts the demand for alignment, for readers of damaged files.
    pub(crate) fn take_any_alignment(&self) {
        self.state.lock().is_alignment_demanded = false;
    }

    /// Counts, logs and judges a call, and runs `effect` unless the verdict prevents it.
    fn call<T>(
        &self,
        asked: &Asked<'_>,
        effect: impl FnOnce(&mut DiskState, CallEffect) -> Result<T>,
    ) -> Result<T> {
        let Some((index, verdict)) = self.judge(asked) else { return Err(asked.stopped()) };
        let (result, outcome) = self.state.lock().act(asked, verdict, effect);
        if let Some(machine) = self.machine.upgrade()
            && let Some(log) = &mut machine.state.lock().log
        {
            let &Asked { operation, file, offset, bytes, written } = asked;
            let checksum = checksum::append(0, written);
            log.push(DiskCall { index, operation, file, offset, bytes, checksum, outcome });
        }
        result
    }
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
        self.state.lock().release_lock();
    }

    fn list(&self) -> Result<Vec<DirectoryEntry>> {
        self.call(&Asked::of_directory(Operation::List), |state, _| {
            let ours = state.names.keys().map(|file| DirectoryEntry::Ours(*file));
            Ok(ours.chain(state.foreign_names.iter().cloned().map(DirectoryEntry::Foreign)).collect())
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
            state.check_alignment(&asked, buffer);
            let inode = state.inode(&asked)?;
            let bytes = state.inodes[&inode].read(offset, buffer);
            state.counts.reads += 1;
            state.counts.read_bytes += bytes as u64;
            Ok(bytes)
        })
    }

    fn read_vectored(&self, file: FileName, offset: u64, buffers: &mut [&mut [u8]]) -> Result<usize> {
        let bytes = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let asked = Asked { offset, bytes, ..Asked::of_file(Operation::Read, file) };
        self.call(&asked, |state, _| {
            let inode = state.inode(&asked)?;
            let mut filled = 0;
            for buffer in buffers {
                state.check_alignment(&asked, buffer);
                filled += state.inodes[&inode].read(offset + filled as u64, buffer);
            }
            state.counts.reads += 1;
            state.counts.read_bytes += filled as u64;
            Ok(filled)
        })
    }

    fn reader(self: Arc<Self>) -> Box<dyn Reader> {
        let seed = self.state.lock().reader_rng.u64();
        SimReader::borrow(self, seed)
    }

    fn reader_kind(&self) -> (ReaderKind, String) {
        (ReaderKind::Simulated, String::new())
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
        // A hint never fails. A process that stops here gets the error at its next call.
        let _ = self.call(&asked, |_, _| Ok(()));
    }

    fn punch_hole(&self, file: FileName, offset: u64, bytes: u64) -> Result<bool> {
        let asked = Asked { offset, bytes, ..Asked::of_file(Operation::PunchHole, file) };
        self.call(&asked, |state, _| state.punch_hole(&asked))
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
            state.remove(file);
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

    fn beside(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        let disk: Arc<dyn Storage> = self.directory_beside(path);
        Ok(disk)
    }

    fn link(&self, file: FileName, path: &Path) -> Result<bool> {
        let asked = Asked::of_file(Operation::Link, file);
        let to = self.directory_beside(path);
        self.call(&asked, |state, _| {
            let inode = Arc::clone(&state.inodes[&state.inode(&asked)?]);
            state.linked.insert(file);
            to.state.lock().link(&asked, file, inode).map(|()| true)
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
