//! A disk that keeps a copy of itself before, and of a write also amid, every call that changes it, together
//! with what is known at that moment.

use crate::base::error::Result;
use crate::base::id::FileName;
use crate::base::sync::{Arc, Mutex};
use crate::io::reader::Reader;
use crate::io::sim::{Plan, SimDisk, Stop};
use crate::io::storage::{Entry, LockMode, Storage, StorageCounts};

use super::model::Known;

/// The disk at a moment at which the process may have stopped.
pub(in crate::engine) struct Moment {
    pub(in crate::engine) disk: Arc<SimDisk>,
    pub(super) known: Known,
    pub(in crate::engine) what: String,
}

pub(in crate::engine) struct Recorder {
    disk: Arc<SimDisk>,
    known: Arc<Mutex<Known>>,
    moments: Mutex<Vec<Moment>>,
}

impl Recorder {
    pub(in crate::engine) fn new(disk: &Arc<SimDisk>, known: &Arc<Mutex<Known>>) -> Arc<Recorder> {
        let (disk, known) = (Arc::clone(disk), Arc::clone(known));
        Arc::new(Recorder { disk, known, moments: Mutex::default() })
    }

    pub(in crate::engine) fn take(&self) -> Vec<Moment> {
        std::mem::take(&mut self.moments.lock())
    }

    fn keep(&self, disk: Arc<SimDisk>, what: String) {
        let known = self.known.lock().clone();
        self.moments.lock().push(Moment { disk, known, what });
    }

    fn before(&self, what: &str, file: Option<FileName>) {
        let name = file.map(|file| file.to_string()).unwrap_or_default();
        self.keep(self.disk.fork(), format!("call {}, before {what} {name}", self.disk.calls()));
    }
}

impl Storage for Recorder {
    fn create_directory(&self) -> Result<bool> {
        self.before("create the directory", None);
        self.disk.create_directory()
    }

    fn exists(&self) -> Result<bool> {
        self.disk.exists()
    }

    fn lock(&self, mode: LockMode) -> Result<()> {
        self.before("lock", None);
        self.disk.lock(mode)
    }

    fn unlock(&self) {
        self.disk.unlock();
    }

    fn list(&self) -> Result<Vec<Entry>> {
        self.disk.list()
    }

    fn create(&self, file: FileName) -> Result<()> {
        self.before("create", Some(file));
        self.disk.create(file)
    }

    fn read(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.disk.read(file, offset, buffer)
    }

    fn reader(self: Arc<Self>) -> Box<dyn Reader> {
        Arc::clone(&self.disk).reader()
    }

    fn write(&self, file: FileName, offset: u64, bytes: &[u8]) -> Result<()> {
        self.before("write", Some(file));
        let amid = self.disk.fork();
        amid.plan(Plan::stop(Stop::Amid, 0));
        // The process that stops there hears nothing.
        let _ = amid.write(file, offset, bytes);
        let what = format!("call {}, amid write {file} at {offset}, {}", self.disk.calls(), bytes.len());
        self.keep(amid, what);
        self.disk.write(file, offset, bytes)
    }

    fn start_writeback(&self, file: FileName, offset: u64, bytes: u64) {
        self.disk.start_writeback(file, offset, bytes);
    }

    fn sync(&self, file: FileName) -> Result<()> {
        self.before("sync", Some(file));
        self.disk.sync(file)
    }

    fn length(&self, file: FileName) -> Result<Option<u64>> {
        self.disk.length(file)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.before("rename", Some(from));
        self.disk.rename(from, to)
    }

    fn remove(&self, file: FileName) -> Result<()> {
        self.before("remove", Some(file));
        self.disk.remove(file)
    }

    fn sync_directory(&self) -> Result<()> {
        self.before("sync the directory", None);
        self.disk.sync_directory()
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
