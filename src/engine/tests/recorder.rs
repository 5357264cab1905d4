//! A disk that keeps a copy of itself before, amid and after every call that changes it, together with the
//! state known at that moment. Directories beside it, the targets of checkpoints, belong to the same machine.

use std::path::{Path, PathBuf};

use crate::base::error::Result;
use crate::base::id::FileName;
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::io::reader::Reader;
use crate::io::sim::{FaultPlan, SimDisk, Stop};
use crate::io::storage::{DirectoryEntry, LockMode, Storage, StorageCounts};

use super::model::Known;

/// The disk at a moment when the process may have stopped.
pub(in crate::engine) struct Moment {
    pub(in crate::engine) disk: Arc<SimDisk>,
    pub(super) known: Known,
    /// The call of the machine, and the position within it.
    pub(super) call: u64,
    pub(super) stop: Stop,
    pub(in crate::engine) what: String,
}

pub(in crate::engine) struct Recorder {
    machine: Arc<SimDisk>,
    /// A disk of the machine: the store's, or the one at the path beside it.
    disk: Arc<SimDisk>,
    path: Option<PathBuf>,
    known: Arc<Mutex<Known>>,
    moments: Arc<Mutex<Vec<Moment>>>,
    syncs_count: AtomicU64,
    /// The number of a sync that is skipped.
    lost_sync: Option<u64>,
}

impl Recorder {
    pub(in crate::engine) fn new(disk: &Arc<SimDisk>, known: &Arc<Mutex<Known>>) -> Arc<Recorder> {
        Recorder::losing(disk, known, None)
    }

    /// A recorder that reports one sync as made, and skips it.
    pub(super) fn losing(
        disk: &Arc<SimDisk>,
        known: &Arc<Mutex<Known>>,
        lost_sync: Option<u64>,
    ) -> Arc<Recorder> {
        let (machine, disk, known) = (Arc::clone(disk), Arc::clone(disk), Arc::clone(known));
        let syncs_count = AtomicU64::new(0);
        Arc::new(Recorder {
            machine,
            disk,
            path: None,
            known,
            moments: Arc::default(),
            syncs_count,
            lost_sync,
        })
    }

    pub(in crate::engine) fn take(&self) -> Vec<Moment> {
        std::mem::take(&mut self.moments.lock())
    }

    fn keep(&self, disk: Arc<SimDisk>, (call, stop): (u64, Stop), what: &str, file: Option<FileName>) {
        let name = file.map(|file| file.to_string()).unwrap_or_default();
        let beside = self.path.as_ref().map(|path| format!(" beside, in {}", path.display()));
        let what = format!("call {call}, {stop:?} {what} {name}{}", beside.unwrap_or_default());
        let known = self.known.lock().clone();
        self.moments.lock().push(Moment { disk, known, call, stop, what });
    }

    /// Performs a call that changes the disk.
    fn change<T>(&self, what: &str, file: Option<FileName>, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let index = self.machine.calls();
        self.keep(self.machine.fork(), (index, Stop::Before), what, file);
        let done = call();
        self.keep(self.machine.fork(), (index, Stop::After), what, file);
        done
    }

    /// The same directory on a machine that is a copy of this one's.
    fn on(&self, machine: &Arc<SimDisk>) -> Arc<SimDisk> {
        self.path.as_ref().map_or_else(|| Arc::clone(machine), |path| machine.directory_beside(path))
    }
}

impl Storage for Recorder {
    fn create_directory(&self) -> Result<bool> {
        self.change("create the directory", None, || self.disk.create_directory())
    }

    fn exists(&self) -> Result<bool> {
        self.disk.exists()
    }

    fn lock(&self, mode: LockMode) -> Result<()> {
        self.change("lock", None, || self.disk.lock(mode))
    }

    fn unlock(&self) {
        self.disk.unlock();
    }

    fn list(&self) -> Result<Vec<DirectoryEntry>> {
        self.disk.list()
    }

    fn create(&self, file: FileName) -> Result<()> {
        self.change("create", Some(file), || self.disk.create(file))
    }

    fn read(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.disk.read(file, offset, buffer)
    }

    fn reader(self: Arc<Self>) -> Box<dyn Reader> {
        Arc::clone(&self.disk).reader()
    }

    fn write(&self, file: FileName, offset: u64, bytes: &[u8]) -> Result<()> {
        let what = format!("write at {offset}, {} bytes to", bytes.len());
        let amid = self.machine.fork();
        amid.plan(FaultPlan::stop(Stop::Amid, 0));
        // The process that stops there sees no result.
        let _ = self.on(&amid).write(file, offset, bytes);
        self.keep(amid, (self.machine.calls(), Stop::Amid), &what, Some(file));
        self.change(&what, Some(file), || self.disk.write(file, offset, bytes))
    }

    fn start_writeback(&self, file: FileName, offset: u64, bytes: u64) {
        self.disk.start_writeback(file, offset, bytes);
    }

    fn punch_hole(&self, file: FileName, offset: u64, bytes: u64) -> Result<bool> {
        let what = format!("punch a hole at {offset}, {bytes} bytes into");
        self.change(&what, Some(file), || self.disk.punch_hole(file, offset, bytes))
    }

    fn sync(&self, file: FileName) -> Result<()> {
        if self.lost_sync == Some(self.syncs_count.fetch_add(1, Ordering::Relaxed)) {
            return Ok(());
        }
        self.change("sync", Some(file), || self.disk.sync(file))
    }

    fn length(&self, file: FileName) -> Result<Option<u64>> {
        self.disk.length(file)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.change("rename", Some(from), || self.disk.rename(from, to))
    }

    fn remove(&self, file: FileName) -> Result<()> {
        self.change("remove", Some(file), || self.disk.remove(file))
    }

    fn sync_directory(&self) -> Result<()> {
        self.change("sync the directory", None, || self.disk.sync_directory())
    }

    fn beside(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        let disk = self.machine.directory_beside(path);
        let (machine, path) = (Arc::clone(&self.machine), Some(path.to_owned()));
        let (known, moments) = (Arc::clone(&self.known), Arc::clone(&self.moments));
        let syncs_count = AtomicU64::new(0);
        Ok(Arc::new(Recorder { machine, disk, path, known, moments, syncs_count, lost_sync: None }))
    }

    fn link(&self, file: FileName, path: &Path) -> Result<bool> {
        self.change("link", Some(file), || self.disk.link(file, path))
    }

    fn boot_id(&self) -> u128 {
        self.disk.boot_id()
    }

    fn path(&self) -> String {
        self.disk.path()
    }

    fn counts(&self) -> StorageCounts {
        self.disk.counts()
    }
}
