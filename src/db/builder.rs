//! Options for opening a store.

use std::path::{Path, PathBuf};

use crate::base::error::{Error, Result};
use crate::base::settings::{SettingInput, StoreSettings};
use crate::engine::{OpenMode, OpenOptions, Store};

use super::database::Db;
use super::durability::Durability;

/// Whether opening makes a store.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// use trine::{Create, Db, Error};
/// let never = || Db::builder(&path).create(Create::Never).open();
/// assert!(matches!(never(), Err(Error::Missing { .. })));
/// Db::builder(&path).create(Create::IfMissing).open()?.close()?;
/// assert!(never().is_ok());
/// let new = Db::builder(&path).create(Create::New).open();
/// assert!(matches!(new, Err(Error::Exists { .. })));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Create {
    /// A store is made if there is none.
    #[default]
    IfMissing,
    /// No store is made: `Missing` if there is none.
    Never,
    /// A store is always made: `Exists` if there is one.
    New,
}

/// The access of this process to the store.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// use trine::{Access, Db, Error};
/// Db::open(&path)?.close()?;
/// let db = Db::builder(&path).access(Access::ReadOnly).open()?;
/// assert!(matches!(db.flush(), Err(Error::ReadOnly)));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Access {
    /// Reads and writes. The store has no other opener, in this or any other process.
    #[default]
    ReadWrite,
    /// Only reads. Other openers may read at the same time, but none may write. No file is changed. A
    /// missing LOCK file is made if the process's user owns the directory; otherwise opening fails with
    /// `LockMissing`.
    ReadOnly,
}

/// A builder to set options before opening a store. Every setting has a measured default.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// use trine::{Db, Durability};
/// let builder = Db::builder(&path).memory_bytes(64 << 20).durability(Durability::Sync);
/// let db = builder.set("background_threads", 1).open()?;
/// assert_eq!(db.stats().memory.budget_bytes, 64 << 20);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    path: PathBuf,
    settings: StoreSettings,
    create: Create,
    access: Access,
    faults: Vec<String>,
    #[cfg(feature = "lab")]
    write_buffer_bytes: Option<u64>,
    #[cfg(feature = "lab")]
    cache_bytes: Option<u64>,
}

impl Builder {
    pub(crate) fn new(path: &Path) -> Builder {
        Builder {
            path: path.to_owned(),
            settings: StoreSettings::default(),
            create: Create::default(),
            access: Access::default(),
            faults: Vec::new(),
            #[cfg(feature = "lab")]
            write_buffer_bytes: None,
            #[cfg(feature = "lab")]
            cache_bytes: None,
        }
    }

    /// Memory budget of the whole store, in bytes: 256 MiB by default, 32 MiB at least.
    ///
    /// The store divides the budget:
    ///
    /// | part | share | of 256 MiB |
    /// |---|---|---|
    /// | three write buffers | 1/16 each, 4 to 64 MiB | 48 MiB |
    /// | flushes and merges | 1/8 | 32 MiB |
    /// | cache of blocks, with filters and indexes | the rest | 176 MiB |
    ///
    /// Consequences:
    /// - A batch may take a quarter of the budget in memory, 256 MiB at most. A larger batch fails with
    ///   [`TooLarge`](crate::Error::TooLarge) ([`Batch::memory_bytes`](crate::Batch::memory_bytes)).
    /// - Filters and indexes that do not fit are read from the device, as data is. Reads then take longer,
    ///   with the same results.
    /// - Writers wait while all three write buffers are full, until one is flushed.
    /// - [`Memory`](crate::Error::Memory) reports a shortage that waiting cannot end: too many keyspaces, or
    ///   snapshots and futures that hold too much memory.
    /// - While no flush or merge runs, the cache borrows most of their memory.
    ///
    /// [`Stats::memory`](crate::Stats::memory) reports the use of each part. Resident memory of the process
    /// may exceed the budget by about 10 %: thread stacks, allocator overhead, and the program's own copies
    /// of values are outside the budget.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let db = trine::Db::builder(&path).memory_bytes(64 << 20).open()?;
    /// assert_eq!(db.stats().memory.budget_bytes, 64 << 20);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn memory_bytes(self, bytes: u64) -> Builder {
        self.set("memory_bytes", bytes)
    }

    /// The durability of writes that do not specify their own.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let db = trine::Db::builder(&path).durability(trine::Durability::Sync).open()?;
    /// let sync = db.settings().into_iter().find(|one| one.name == "sync_every_commit").unwrap();
    /// assert_eq!((sync.value, sync.default), (1, 0));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn durability(self, durability: Durability) -> Builder {
        self.set("sync_every_commit", u64::from(durability == Durability::Sync))
    }

    /// Whether a missing store is made.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let never = trine::Db::builder(&path).create(trine::Create::Never).open();
    /// assert!(matches!(never, Err(trine::Error::Missing { .. })));
    /// assert!(!path.exists());
    /// ```
    #[must_use]
    pub fn create(mut self, create: Create) -> Builder {
        self.create = create;
        self
    }

    /// Whether the store is opened for writing.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// use trine::{Access, Db, Error};
    /// Db::open(&path)?.ordered("users").open()?;
    /// let one = Db::builder(&path).access(Access::ReadOnly).open()?;
    /// let two = Db::builder(&path).access(Access::ReadOnly).open()?;
    /// assert!(matches!(one.keyspace("users")?.put(b"ann", b"1"), Err(Error::ReadOnly)));
    /// assert!(!two.keyspace("users")?.contains(b"ann")?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn access(mut self, access: Access) -> Builder {
        self.access = access;
        self
    }

    /// Sets any store setting by its name in [`Db::settings`]. `open` reports a wrong name or value.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let db = trine::Db::builder(&path).set("open_files_max", 64).open()?;
    /// let files = db.settings().into_iter().find(|one| one.name == "open_files_max").unwrap();
    /// assert_eq!((files.value, files.default), (64, 512));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn set<'a>(mut self, name: &str, value: impl Into<SettingInput<'a>>) -> Builder {
        let number = StoreSettings::number(name, value.into());
        if let Err(Error::Invalid { faults }) = number.and_then(|value| self.settings.set(name, value)) {
            self.faults.extend(faults);
        }
        self
    }

    /// Size of a write buffer, at most its share of `memory_bytes`: for experiments at a small scale.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let db = trine::Db::builder(&path).write_buffer_bytes(256 << 10).open()?;
    /// let items = db.ordered("items").open()?;
    /// (0..4000u32).try_for_each(|number| items.put(number.to_be_bytes(), [7; 100]))?;
    /// db.flush()?;
    /// assert!(db.stats().background.flushes > 1);
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "lab")]
    #[must_use]
    pub fn write_buffer_bytes(mut self, bytes: u64) -> Builder {
        self.write_buffer_bytes = Some(bytes);
        self
    }

    /// Memory for blocks, filters, fences and structures of tables, at most their share of `memory_bytes`:
    /// for experiments with small data. The cache then borrows no memory of idle write buffers and merges.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let db = trine::Db::builder(&path).cache_bytes(1 << 20).open()?;
    /// let memory = db.stats().memory;
    /// let cache = memory.roles.iter().find(|role| role.name == "cache");
    /// assert!(cache.is_some_and(|cache| cache.limit_bytes <= 1 << 20));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "lab")]
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Builder {
        self.cache_bytes = Some(bytes);
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    /// As [`Db::open`], and `Invalid` with every wrong setting at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let wrong = trine::Db::builder(&path).memory_bytes(1).set("no_such_setting", 2).open();
    /// let Err(trine::Error::Invalid { faults }) = wrong else { panic!() };
    /// assert_eq!(faults.len(), 2);
    /// ```
    pub fn open(self) -> Result<Db> {
        let options = self.options()?;
        let env = self.settings.env(&self.path)?;
        Ok(Db::new(Store::open(env, options)?))
    }

    /// The chosen options, if all of them are valid.
    pub(super) fn options(&self) -> Result<OpenOptions> {
        self.check()?;
        let mode = match (self.access, self.create) {
            (Access::ReadOnly, _) => OpenMode::ReadOnly,
            (Access::ReadWrite, Create::Never) => OpenMode::Existing,
            (Access::ReadWrite, Create::IfMissing) => OpenMode::CreateIfMissing,
            (Access::ReadWrite, Create::New) => OpenMode::CreateNew,
        };
        let options = OpenOptions::new(self.settings.clone(), mode);
        #[cfg(feature = "lab")]
        let options = self.scaled(options);
        Ok(options)
    }

    /// The options with the budget parts set by experiments.
    #[cfg(feature = "lab")]
    fn scaled(&self, mut options: OpenOptions) -> OpenOptions {
        if let Some(bytes) = self.write_buffer_bytes {
            options.budget = options.budget.with_generation_bytes(bytes);
        }
        // This comes last, because it turns off lending by the other parts.
        if let Some(bytes) = self.cache_bytes {
            options.budget = options.budget.with_cache_bytes(bytes);
        }
        options
    }

    fn check(&self) -> Result<()> {
        let mut faults = self.faults.clone();
        if let Err(Error::Invalid { faults: more }) = self.settings.validate() {
            faults.extend(more);
        }
        if faults.is_empty() { Ok(()) } else { Err(Error::Invalid { faults }) }
    }
}
