//! How a store is opened.

use std::path::{Path, PathBuf};

use crate::base::error::{Error, Result};
use crate::base::settings::{SettingInput, StoreSettings};
use crate::engine::{Mode, OpenOptions, Store};

use super::database::Db;
use super::durability::Durability;

/// Whether a store is made.
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
    /// Made if there is none.
    #[default]
    IfMissing,
    /// Never made: `Missing` if there is none.
    Never,
    /// Always made: `Exists` if there is one.
    New,
}

/// What the opener may do.
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
    /// Reads and writes; nobody else has the store open.
    #[default]
    ReadWrite,
    /// Reads. Others may read at the same time, nobody writes. No file is changed; LOCK is made if it is
    /// missing and the directory is the process's user's, else opening answers `LockMissing`.
    ReadOnly,
}

/// Settings to choose before a store is opened; every one has a default that was measured.
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

    /// Memory for everything the store keeps, in bytes: 256 MiB by default, 32 MiB at least.
    ///
    /// One budget, divided by the store:
    ///
    /// | part | share | of 256 MiB |
    /// |---|---|---|
    /// | three write buffers | 1/16 each, 4 to 64 MiB | 48 MiB |
    /// | flushes and merges | 1/8 | 32 MiB |
    /// | cache of blocks, with filters and indexes | the rest | 176 MiB |
    ///
    /// What follows from it:
    /// - The largest batch takes a quarter in memory, 256 MiB at most; a larger one answers
    ///   [`TooLarge`](crate::Error::TooLarge) ([`Batch::memory_bytes`](crate::Batch::memory_bytes)).
    /// - Filters and indexes that do not fit are read from the device, as data is: reads take longer and
    ///   answer the same.
    /// - Writers wait while all three write buffers are full, until one is flushed.
    /// - [`Memory`](crate::Error::Memory) tells what no wait can mend: too many keyspaces, or snapshots and
    ///   futures that keep too much.
    /// - While nothing is flushed or merged, the cache has most of the memory of both.
    ///
    /// [`Stats::memory`](crate::Stats::memory) tells what each part takes. Resident memory of the process may
    /// exceed the budget by about 10 %: stacks of threads, the allocator, and the program's own copies of
    /// values are outside.
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

    /// When writes are acknowledged that do not say so themselves.
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

    /// Sets any store setting by its name in [`Db::settings`]. A wrong name or value is reported by `open`.
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

    /// Length of a write buffer, at most what `memory_bytes` gives it: for experiments at a small scale.
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

    /// Memory for blocks, filters, fences and structures of tables, at most what `memory_bytes` gives them:
    /// for experiments whose data is small. The memory of idle write buffers and merges is not lent to it.
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

    /// What was chosen, if all of it may be.
    pub(super) fn options(&self) -> Result<OpenOptions> {
        self.check()?;
        let mode = match (self.access, self.create) {
            (Access::ReadOnly, _) => Mode::ReadOnly,
            (Access::ReadWrite, Create::Never) => Mode::Existing,
            (Access::ReadWrite, Create::IfMissing) => Mode::CreateIfMissing,
            (Access::ReadWrite, Create::New) => Mode::CreateNew,
        };
        let options = OpenOptions::new(self.settings.clone(), mode);
        #[cfg(feature = "lab")]
        let options = self.scaled(options);
        Ok(options)
    }

    /// With the parts of the budget that experiments choose.
    #[cfg(feature = "lab")]
    fn scaled(&self, mut options: OpenOptions) -> OpenOptions {
        if let Some(bytes) = self.write_buffer_bytes {
            options.budget = options.budget.with_generation_bytes(bytes);
        }
        // Last: it takes what other parts lend.
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
