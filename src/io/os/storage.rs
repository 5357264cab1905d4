//! A store's directory in the file system.
//!
//! The directory is reached through one descriptor, opened at first use, and file names are made from ids. No
//! path is looked up again, no symbolic link below the directory is followed, and only regular files are
//! opened. It knows kinds of files, not contents. The engine uses it as a [`Storage`]; any thread may call.
//!
//! 1. Files are made with mode 0600 and the directory with 0700, independent of the umask.
//! 2. No lock is held across a system call, with one exception: syncs of one file wait for each other (see
//!    `files`).
//! 3. A file whose sync has failed never syncs successfully again, even if it is closed, reopened or renamed
//!    meanwhile. A failed sync is never repeated, also when it was interrupted. It is never `Full`: written
//!    data may be lost, and freeing space does not restore it.
//! 4. In a process forked from the one that made the storage, every file, the lock and the rings are left
//!    alone: `Forked`.
//! 5. Reads of tables bypass the page cache where that is requested and works. A refusal by the file system
//!    is remembered.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName};
use crate::base::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, OnceLock, Ordering};

use super::super::reader::{PlainReader, Reader, ReaderKind};
#[cfg(feature = "lab")]
use super::super::storage::Mapped;
use super::super::storage::{DirectoryEntry, LockMode, Storage, StorageCounts};
use super::files::{DescriptorPurpose, FileTable, OpenFile};
#[cfg(feature = "lab")]
use super::map::MappedFile;
use super::process::OwnProcess;
use super::readers::{ReadWith, Readers};
use super::system::{access_flags, advice, punch_hole, read_boot_id, sync_data, sync_file_system};

/// Limit of retries of one call without progress: interrupted, or short of descriptors.
pub(super) const RETRIES_COUNT_MAX: usize = 1024;
/// Alignments of direct reads, tried in this order; 0: reads go through the page cache.
const DIRECT_ALIGNMENTS: [u32; 3] = [512, 4096, 0];

/// Limit of open files in a directory beside the store's, which is only written.
const BESIDE_FILES_COUNT: usize = 4;

const DIRECTORY_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// `NONBLOCK` is for names that are not regular files: opening a pipe must not block.
const FILE_FLAGS: OFlags =
    OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// Whether reads of tables bypass the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DirectIo {
    /// No: the page cache also keeps tables.
    Off,
    /// Yes, where the file system allows it.
    WhereSupported,
}

/// How files are opened, read and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileUse {
    pub(crate) direct_io: DirectIo,
    pub(crate) open_files_max: usize,
    pub(crate) read_with: ReadWith,
    /// Short writes to logs go through a mapping, where possible.
    pub(crate) maps_logs: bool,
}

impl FileUse {
    /// The store's defaults, except for the given values.
    pub(crate) fn new(direct_io: DirectIo, open_files_max: usize, read_with: ReadWith) -> FileUse {
        FileUse { direct_io, open_files_max, read_with, maps_logs: true }
    }
}

#[derive(Default, Debug)]
pub(super) struct Counters {
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    syncs: AtomicU64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct OsStorage {
    path: PathBuf,
    process: OwnProcess,
    directory: Mutex<Option<Arc<OwnedFd>>>,
    /// Holds the flock while it is open.
    lock: Mutex<Option<OwnedFd>>,
    pub(super) files: FileTable,
    maps_logs: bool,
    /// One of [`DIRECT_ALIGNMENTS`].
    direct_alignment: AtomicU32,
    /// Files whose sync has failed, with the error.
    poisoned: Mutex<Vec<(FileName, Arc<io::Error>)>>,
    /// Error of a failed sync of the directory. Its lock is held across the sync, as `OpenFile::lock_syncing`
    /// is.
    directory_poisoned: Mutex<Option<Arc<io::Error>>>,
    is_parent_synced: AtomicBool,
    boot_id: OnceLock<u128>,
    pub(super) counters: Counters,
    pub(super) readers: Readers,
}

impl OsStorage {
    pub(crate) fn new(path: &Path, how: FileUse) -> OsStorage {
        let is_direct = how.direct_io == DirectIo::WhereSupported && cfg!(target_os = "linux");
        OsStorage {
            path: path.to_owned(),
            process: OwnProcess::new(),
            directory: Mutex::new(None),
            lock: Mutex::new(None),
            files: FileTable::new(how.open_files_max),
            maps_logs: how.maps_logs,
            direct_alignment: AtomicU32::new(if is_direct { DIRECT_ALIGNMENTS[0] } else { 0 }),
            poisoned: Mutex::default(),
            directory_poisoned: Mutex::new(None),
            is_parent_synced: AtomicBool::new(false),
            boot_id: OnceLock::new(),
            counters: Counters::default(),
            readers: Readers::new(how.read_with),
        }
    }

    /// The directory's descriptor.
    ///
    /// # Errors
    /// `Forked`. All operations by name come through here.
    fn directory(&self) -> Result<Arc<OwnedFd>> {
        self.process.check()?;
        if let Some(directory) = &*self.directory.lock() {
            return Ok(Arc::clone(directory));
        }
        let opened = self.retry(|| rustix::fs::open(&self.path, DIRECTORY_FLAGS, Mode::empty()));
        let opened = opened.map_err(|errno| match errno {
            Errno::NOENT => Error::Missing { path: self.path() },
            Errno::NOTDIR => self.foreign("something that is not a directory"),
            errno => self.fault("open", self.path.display(), 0, errno),
        })?;
        Ok(Arc::clone(self.directory.lock().get_or_insert(Arc::new(opened))))
    }

    fn foreign(&self, found: impl fmt::Display) -> Error {
        Error::Foreign { path: self.path(), found: found.to_string() }
    }

    /// The error for a failed system call, by the caller's possible reactions.
    pub(super) fn fault(
        &self,
        operation: &'static str,
        file: impl fmt::Display,
        offset: u64,
        errno: Errno,
    ) -> Error {
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Error::Full { file: file.to_string() },
            Errno::ACCESS | Errno::PERM => Error::Permission { operation, file: file.to_string() },
            Errno::ROFS => Error::ReadOnlyFileSystem { operation, file: file.to_string() },
            // Opening a symbolic link with NOFOLLOW returns these; the second is FreeBSD's.
            Errno::LOOP | Errno::MLINK => self.foreign(format_args!("a symbolic link named {file}")),
            errno => io_fault(operation, file, offset, Arc::new(io::Error::from(errno))),
        }
    }

    /// Repeats an interrupted call. When descriptors are short, closes idle rings or an unused file and
    /// repeats.
    fn retry<T>(&self, mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        for _ in 0..RETRIES_COUNT_MAX {
            match call() {
                Err(Errno::INTR) => {}
                Err(Errno::MFILE | Errno::NFILE) if self.readers.close() || self.files.evict_one() => {}
                done => return done,
            }
        }
        call()
    }

    /// Opens `file` relative to the directory and makes sure that it is a regular file.
    fn open_with(&self, operation: &'static str, file: FileName, flags: OFlags) -> Result<OwnedFd> {
        let directory = self.directory()?;
        let name = name_of(file)?;
        let open = |flags: OFlags| {
            self.retry(|| rustix::fs::openat(&*directory, name.as_str(), flags | FILE_FLAGS, FILE_MODE))
        };
        let opened = open(flags);
        #[cfg(target_os = "linux")]
        let opened = {
            let (mut opened, mut flags) = (opened, flags);
            // Only the owner of a file may use NOATIME; other users read with the rights that root gave them.
            if flags.contains(OFlags::NOATIME) && matches!(opened, Err(Errno::PERM)) {
                flags -= OFlags::NOATIME;
                opened = open(flags);
            }
            if flags.contains(OFlags::DIRECT) && matches!(opened, Err(Errno::INVAL | Errno::OPNOTSUPP)) {
                self.give_up_direct_reads();
                opened = open(flags - OFlags::DIRECT);
            }
            opened
        };
        let descriptor = opened.map_err(|errno| self.fault(operation, file, 0, errno))?;
        let status = rustix::fs::fstat(&descriptor).map_err(|errno| self.fault(operation, file, 0, errno))?;
        if !FileType::from_raw_mode(status.st_mode).is_file() {
            return Err(self.foreign(format_args!("something named {file} that is not a regular file")));
        }
        Ok(descriptor)
    }

    /// LOCK for a reader, created if it is missing and the reader may create it.
    fn open_lock_to_read(&self) -> Result<OwnedFd> {
        match self.open_with("lock", FileName::LOCK, OFlags::RDONLY) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        // The owner could not lock a file that another user, such as root, creates here.
        let status = rustix::fs::fstat(&*self.directory()?);
        let status = status.map_err(|errno| self.fault("lock", self.path.display(), 0, errno))?;
        if status.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Error::LockMissing { path: self.path() });
        }
        match self.open_with("lock", FileName::LOCK, OFlags::RDONLY | OFlags::CREATE) {
            Err(Error::Permission { .. } | Error::ReadOnlyFileSystem { .. } | Error::Full { .. }) => {
                Err(Error::LockMissing { path: self.path() })
            }
            opened => opened,
        }
    }

    fn open(&self, file: FileName, purpose: DescriptorPurpose) -> Result<Arc<OpenFile>> {
        self.process.check()?;
        self.files.get(file, purpose, || {
            let descriptor = self.open_with("open", file, access_flags(purpose))?;
            if purpose == DescriptorPurpose::Buffered && file.kind.traits().is_paged {
                advice::will_read_anywhere(&descriptor);
            }
            Ok(descriptor)
        })
    }

    /// `Err` if a sync of the file has failed before.
    fn assert_clean(&self, file: FileName) -> Result<()> {
        let poisoned = self.poisoned.lock();
        match poisoned.iter().find(|(name, _)| *name == file) {
            Some((_, source)) => Err(sync_fault(file, source)),
            None => Ok(()),
        }
    }

    fn sync_by(&self, file: FileName, call: impl Fn(&OwnedFd) -> rustix::io::Result<()>) -> Result<()> {
        let open = self.open(file, DescriptorPurpose::Write)?;
        let _syncing = open.lock_syncing();
        self.assert_clean(file)?;
        let writes = open.writes();
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        // The sync is never repeated. After any failure, even an interruption, a second call may succeed
        // without having written the pages that the first one gave up.
        if let Err(errno) = call(open.descriptor()) {
            let source = Arc::new(io::Error::from(errno));
            self.poisoned.lock().push((file, Arc::clone(&source)));
            return Err(sync_fault(file, &source));
        }
        open.note_synced(writes);
        if file.kind == FileKind::Table {
            advice::will_not_read(open.descriptor(), 0, 0);
        }
        Ok(())
    }

    fn sync_directory_by(&self, call: impl Fn(&OwnedFd) -> rustix::io::Result<()>) -> Result<()> {
        let directory = self.directory()?;
        let mut poisoned = self.directory_poisoned.lock();
        if let Some(source) = &*poisoned {
            return Err(sync_fault(self.path.display(), source));
        }
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        let mut synced = call(&directory);
        // The process that made the directory may have died before the directory's own name was durable.
        if synced.is_ok() && !self.is_parent_synced.load(Ordering::Relaxed) {
            synced = self.sync_parent(&directory);
        }
        if let Err(errno) = synced {
            let source = Arc::new(io::Error::from(errno));
            *poisoned = Some(Arc::clone(&source));
            return Err(sync_fault(self.path.display(), &source));
        }
        self.is_parent_synced.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the directory's own name durable.
    fn sync_parent(&self, directory: &OwnedFd) -> rustix::io::Result<()> {
        match self.retry(|| rustix::fs::openat(directory, "..", DIRECTORY_FLAGS, Mode::empty())) {
            Ok(parent) => rustix::fs::fsync(&parent),
            // The parent directory is searchable but not readable: sync the whole file system instead.
            Err(Errno::ACCESS | Errno::PERM) => sync_file_system(directory),
            Err(errno) => Err(errno),
        }
    }

    /// Fails with `EXIST` if `to` exists.
    fn rename_new(&self, directory: &OwnedFd, from: &str, to: &str) -> rustix::io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            let renamed = self.retry(|| rustix::fs::renameat_with(directory, from, directory, to, flags));
            // Kernels and file systems without the flag return these.
            if !matches!(renamed, Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)) {
                return renamed;
            }
        }
        match self.retry(|| rustix::fs::statat(directory, to, AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => self.retry(|| rustix::fs::renameat(directory, from, directory, to)),
            Err(errno) => Err(errno),
        }
    }
}

impl Storage for OsStorage {
    fn create_directory(&self) -> Result<bool> {
        self.process.check()?;
        match self.retry(|| rustix::fs::mkdir(&self.path, DIRECTORY_MODE)) {
            Ok(()) => {}
            Err(Errno::EXIST) => return self.directory().map(|_| false),
            Err(errno) => return Err(self.fault("create", self.path.display(), 0, errno)),
        }
        let directory = self.directory()?;
        // The directory was made with at most this mode; the umask may have removed bits.
        let changed = self.retry(|| rustix::fs::fchmod(&*directory, DIRECTORY_MODE));
        changed.map_err(|errno| self.fault("create", self.path.display(), 0, errno))?;
        Ok(true)
    }

    fn exists(&self) -> Result<bool> {
        match self.directory() {
            Ok(_) => Ok(true),
            Err(Error::Missing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn lock(&self, mode: LockMode) -> Result<()> {
        let (descriptor, operation) = match mode {
            LockMode::Exclusive => {
                let flags = OFlags::RDWR | OFlags::CREATE;
                let opened = self.open_with("lock", FileName::LOCK, flags)?;
                (opened, FlockOperation::NonBlockingLockExclusive)
            }
            LockMode::Shared => (self.open_lock_to_read()?, FlockOperation::NonBlockingLockShared),
        };
        match self.retry(|| rustix::fs::flock(&descriptor, operation)) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(Error::Locked { path: self.path() }),
            Err(errno) => return Err(self.fault("lock", FileName::LOCK, 0, errno)),
        }
        let mut held = self.lock.lock();
        if held.is_some() {
            return Err(Error::Locked { path: self.path() });
        }
        *held = Some(descriptor);
        Ok(())
    }

    fn unlock(&self) {
        // The flock is shared with the process that took it: releasing it here would release it there.
        if self.is_forked() {
            return;
        }
        self.files.clear();
        self.readers.close();
        let directory = self.directory.lock().take();
        drop(directory);
        let held = self.lock.lock().take();
        if let Some(descriptor) = held {
            // A forked child may hold a copy of the descriptor, and with it the flock. If this call fails,
            // closing the descriptor must do.
            let _ = rustix::fs::flock(&descriptor, FlockOperation::Unlock);
        }
    }

    fn is_forked(&self) -> bool {
        self.process.is_forked()
    }

    fn list(&self) -> Result<Vec<DirectoryEntry>> {
        let directory = self.directory()?;
        let fault = |errno| self.fault("list", self.path.display(), 0, errno);
        let entries = self.retry(|| rustix::fs::Dir::read_from(&*directory)).map_err(fault)?;
        let mut list = Vec::new();
        for entry in entries {
            let entry = entry.map_err(fault)?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let ours = name.to_str().ok().and_then(|name| FileName::parse(name, 0));
            let foreign = || DirectoryEntry::Foreign(name.to_string_lossy().into_owned());
            list.push(ours.map_or_else(foreign, DirectoryEntry::Ours));
        }
        Ok(list)
    }

    fn create(&self, file: FileName) -> Result<()> {
        let descriptor = self.open_with("create", file, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        // The file was made with at most this mode; the umask may have removed bits.
        let changed = self.retry(|| rustix::fs::fchmod(&descriptor, FILE_MODE));
        changed.map_err(|errno| self.fault("create", file, 0, errno))?;
        self.files.get(file, DescriptorPurpose::Write, || Ok(descriptor)).map(|_| ())
    }

    fn read(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_all(file, offset, buffer)
    }

    fn read_vectored(&self, file: FileName, offset: u64, buffers: &mut [&mut [u8]]) -> Result<usize> {
        self.read_all_vectored(file, offset, buffers)
    }

    fn reader(self: Arc<Self>) -> Box<dyn Reader> {
        if self.is_forked() {
            return Box::new(PlainReader::new(self));
        }
        self.readers.borrow(Arc::clone(&self))
    }

    fn reader_kind(&self) -> (ReaderKind, String) {
        self.readers.kind()
    }

    fn write(&self, file: FileName, offset: u64, bytes: &[u8]) -> Result<()> {
        check_range("write", file, offset, bytes.len())?;
        let open = self.open(file, DescriptorPurpose::Write)?;
        // Logs are written a record at a time.
        let is_done = self.maps_logs && file.kind == FileKind::Log && open.append(offset, bytes);
        let mut done_bytes = if is_done { bytes.len() } else { 0 };
        let mut written = Ok(());
        while done_bytes < bytes.len() {
            let (rest, at) = (&bytes[done_bytes..], offset + done_bytes as u64);
            match self.retry(|| rustix::io::pwrite(open.descriptor(), rest, at)) {
                // No file system returns 0 for a non-empty write; without this check the loop would not end.
                Ok(0) => written = Err(self.fault("write", file, at, Errno::IO)),
                Ok(count) => done_bytes += count,
                Err(errno) => written = Err(self.fault("write", file, at, errno)),
            }
            if written.is_err() {
                break;
            }
        }
        open.note_write();
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.write_bytes.fetch_add(done_bytes as u64, Ordering::Relaxed);
        written
    }

    fn start_writeback(&self, file: FileName, offset: u64, bytes: u64) {
        if !self.is_forked()
            && let Some(open) = self.files.peek(file, DescriptorPurpose::Write)
        {
            advice::will_not_read(open.descriptor(), offset, bytes);
        }
    }

    fn punch_hole(&self, file: FileName, offset: u64, bytes: u64) -> Result<bool> {
        check_range("punch", file, offset, bytes as usize)?;
        let open = self.open(file, DescriptorPurpose::Write)?;
        let fault = |errno| self.fault("punch", file, offset, errno);
        let status = rustix::fs::fstat(open.descriptor()).map_err(fault)?;
        if status.st_nlink != 1 {
            return Ok(false);
        }
        match self.retry(|| punch_hole(open.descriptor(), offset, bytes)) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(errno) => Err(fault(errno)),
        }
    }

    fn sync(&self, file: FileName) -> Result<()> {
        self.sync_by(file, sync_data)
    }

    fn length(&self, file: FileName) -> Result<Option<u64>> {
        let directory = self.directory()?;
        let name = name_of(file)?;
        match self.retry(|| rustix::fs::statat(&*directory, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(status) if FileType::from_raw_mode(status.st_mode).is_file() => {
                Ok(Some(u64::try_from(status.st_size).unwrap_or(0)))
            }
            Ok(_) => Err(self.foreign(format_args!("something named {file} that is not a regular file"))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.fault("look up", file, 0, errno)),
        }
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        let directory = self.directory()?;
        self.rename_new(&directory, &name_of(from)?, &name_of(to)?)
            .map_err(|errno| self.fault("rename", from, 0, errno))?;
        self.files.rename(from, to);
        for (name, _) in self.poisoned.lock().iter_mut().filter(|(name, _)| *name == from) {
            *name = to;
        }
        Ok(())
    }

    fn remove(&self, file: FileName) -> Result<()> {
        let directory = self.directory()?;
        let name = name_of(file)?;
        match self.retry(|| rustix::fs::unlinkat(&*directory, name.as_str(), AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(self.fault("remove", file, 0, errno)),
        }
        self.files.forget(file);
        Ok(())
    }

    fn sync_directory(&self) -> Result<()> {
        self.sync_directory_by(|directory| rustix::fs::fsync(directory))
    }

    fn beside(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        let is_direct = self.direct_alignment.load(Ordering::Relaxed) > 0;
        let direct_io = if is_direct { DirectIo::WhereSupported } else { DirectIo::Off };
        let plain = FileUse::new(direct_io, BESIDE_FILES_COUNT, ReadWith::Plain);
        Ok(Arc::new(OsStorage::new(path, FileUse { maps_logs: self.maps_logs, ..plain })))
    }

    fn link(&self, file: FileName, path: &Path) -> Result<bool> {
        let (directory, name) = (self.directory()?, name_of(file)?);
        let fault = |errno| self.fault("link", path.join(&name).display(), 0, errno);
        let to = self.retry(|| rustix::fs::open(path, DIRECTORY_FLAGS, Mode::empty())).map_err(fault)?;
        let link = || rustix::fs::linkat(&*directory, name.as_str(), &to, name.as_str(), AtFlags::empty());
        match self.retry(link) {
            Ok(()) => Ok(true),
            // Another file system, a file system without links, or too many links.
            Err(Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => Ok(false),
            Err(errno) => Err(fault(errno)),
        }
    }

    fn boot_id(&self) -> u128 {
        *self.boot_id.get_or_init(|| read_boot_id().unwrap_or(0))
    }

    fn path(&self) -> String {
        self.path.display().to_string()
    }

    fn direct_io(&self) -> bool {
        self.direct_alignment.load(Ordering::Relaxed) > 0
    }

    fn counts(&self) -> StorageCounts {
        StorageCounts {
            reads: self.counters.reads.load(Ordering::Relaxed),
            read_bytes: self.counters.read_bytes.load(Ordering::Relaxed),
            writes: self.counters.writes.load(Ordering::Relaxed),
            write_bytes: self.counters.write_bytes.load(Ordering::Relaxed),
            syncs: self.counters.syncs.load(Ordering::Relaxed),
            open_files: self.files.count() as u64,
        }
    }

    #[cfg(feature = "lab")]
    fn map(&self, file: FileName) -> Result<Option<Arc<dyn Mapped>>> {
        let open = self.open(file, DescriptorPurpose::Buffered)?;
        let bytes = self.length(file)?.unwrap_or(0);
        let map =
            MappedFile::new(open.descriptor(), bytes).map_err(|errno| self.fault("map", file, 0, errno))?;
        Ok(Some(Arc::new(map)))
    }
}

/// The file's name in the directory.
fn name_of(file: FileName) -> Result<String> {
    if file.path != 0 {
        let what = format!("directory number {} of the store", file.path);
        return Err(Error::Unsupported { file: file.to_string(), what });
    }
    Ok(file.to_string())
}

fn io_fault(operation: &'static str, file: impl fmt::Display, offset: u64, source: Arc<io::Error>) -> Error {
    Error::Io { operation, file: file.to_string(), offset, source }
}

/// The error of a failed sync, from this call or an earlier one.
fn sync_fault(file: impl fmt::Display, source: &Arc<io::Error>) -> Error {
    match Errno::from_io_error(source) {
        Some(Errno::ROFS) => Error::ReadOnlyFileSystem { operation: "sync", file: file.to_string() },
        _ => io_fault("sync", file, 0, Arc::clone(source)),
    }
}

/// The system's offsets are signed, and these may come from damaged bytes.
fn check_range(operation: &'static str, file: FileName, offset: u64, bytes: usize) -> Result<()> {
    match offset.checked_add(bytes as u64) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(io_fault(operation, file, offset, Arc::new(io::ErrorKind::InvalidInput.into()))),
    }
}

mod reads;
#[cfg(test)]
mod tests;
