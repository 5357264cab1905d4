//! The handle of an open store.

use std::path::{Path, PathBuf};

use crate::base::error::Result;
use crate::base::sync::Arc;
use crate::engine::Store;
use crate::engine::publish::keyspace;
use crate::engine::stats::Stats;
use crate::inspect::{self, Progress, Report};

use super::batch::Batch;
use super::builder::Builder;
use super::handle::Handle;
use super::hashed::Hashed;
use super::keyspace::{Any, Keyspace, KeyspaceBuilder, KeyspaceInfo, Kind};
use super::partitioning_info::PartitioningInfo;
use super::snapshot::Snapshot;
use super::stats::SettingValue;

/// An open store. Clones are handles of the same store.
///
/// One process writes a store at a time; any number of its threads share this handle. The store stays open
/// until its last handle is dropped; keyspaces, snapshots, batches and iterators are handles too. That drop
/// waits for background work to stop.
///
/// A forked child process has copies of all handles and none of the store's threads. There every read and
/// write fails with [`Error::Forked`](crate::Error::Forked), and dropping a handle does nothing. The parent's
/// store is not affected.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// let db = trine::Db::open(&path)?;
/// let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// assert_eq!(users.get(b"ann")?.as_deref(), Some(&b"1"[..]));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Db {
    pub(super) handle: Arc<Handle>,
}

impl std::fmt::Debug for Db {
    /// Prints the directory of the store.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("path", &self.path()).finish()
    }
}

impl Db {
    /// Opens the store in directory `path`, and makes it if there is none. The parent directory must exist,
    /// so that no store is made in place of an unmounted volume.
    ///
    /// # Errors
    /// `Locked` if it is open elsewhere, `Foreign` if the directory holds something else and no file of a
    /// store, `Corrupt` if a file is damaged, `Unsupported` if a newer release wrote it, and `Permission`,
    /// `ReadOnlyFileSystem`, `Full` and `Io` from the system.
    ///
    /// # Cost
    /// Reads the manifest, the end of every table and the logs. Writes since the last flush are replayed.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let db = trine::Db::open(&path)?;
    /// assert!(matches!(trine::Db::open(&path), Err(trine::Error::Locked { .. })));
    /// # Ok(()) }
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Db::builder(path).open()
    }

    /// A builder to set options before opening the store in `path`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let db = trine::Db::builder(&path).memory_bytes(64 << 20).durability(trine::Durability::Sync).open()?;
    /// # Ok(()) }
    /// ```
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder::new(path.as_ref())
    }

    pub(crate) fn new(store: Arc<Store>) -> Db {
        Db { handle: Arc::new(Handle { store }) }
    }

    /// A builder for the ordered keyspace of that name: [`KeyspaceBuilder::open`] opens it if it exists, else
    /// makes it.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").set("size_ratio", 10).open()?;
    /// assert_eq!(events.name(), "events");
    /// # Ok(()) }
    /// ```
    pub fn ordered(&self, name: &str) -> KeyspaceBuilder {
        KeyspaceBuilder::new(&self.handle, name)
    }

    /// A builder for the hashed keyspace of that name, whose keys have no order: [`KeyspaceBuilder::open`]
    /// opens it if it exists, else makes it.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let sessions = db.hashed("sessions").set("filter_bits_per_key", 16).open()?;
    /// sessions.put("b7f1", "ann")?;
    /// assert_eq!(db.keyspaces()[0].kind, trine::Kind::Hashed);
    /// # Ok(()) }
    /// ```
    pub fn hashed(&self, name: &str) -> KeyspaceBuilder<Hashed> {
        KeyspaceBuilder::new(&self.handle, name)
    }

    /// Opens an existing keyspace of any kind.
    ///
    /// # Errors
    /// `NoKeyspace` if there is none of that name, `Mismatch` if the caller names its partitions.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// assert!(matches!(db.keyspace("users"), Err(trine::Error::NoKeyspace { .. })));
    /// db.ordered("users").open()?.put(b"ann", b"1")?;
    /// assert!(db.keyspace("users")?.contains(b"ann")?);
    /// assert_eq!(db.keyspace("users")?.ordered()?.iter().count(), 1);
    /// # Ok(()) }
    /// ```
    pub fn keyspace(&self, name: &str) -> Result<Keyspace<Any>> {
        let found = self.handle.keyspace(name)?;
        found.check_rule(None)?;
        Ok(Keyspace::new(&self.handle, found))
    }

    /// Whether there is a keyspace of that name. The call makes no keyspace.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// assert!(!db.contains_keyspace("users"));
    /// db.ordered("users").open()?;
    /// assert!(db.contains_keyspace("users"));
    /// # Ok(()) }
    /// ```
    pub fn contains_keyspace(&self, name: &str) -> bool {
        self.handle.has_keyspace(name)
    }

    /// The directory of the store, as given when it was opened.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let path = dir.path().join("data");
    /// assert_eq!(trine::Db::open(&path)?.path(), path);
    /// # Ok(()) }
    /// ```
    pub fn path(&self) -> PathBuf {
        self.handle.storage().path().into()
    }

    /// Every keyspace, by name.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// db.ordered("users").open()?;
    /// assert_eq!(db.keyspaces()[0].name, "users");
    /// # Ok(()) }
    /// ```
    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        let all = self.handle.keyspaces();
        let info = |one: Arc<keyspace::KeyspaceState>| KeyspaceInfo {
            name: one.name.clone(),
            kind: if one.id.is_hashed() { Kind::Hashed } else { Kind::Ordered },
            is_partitioned: one.partitions().is_some() && !one.is_divided_by_keys(),
            partitioning: one.partitions().map(|partitions| PartitioningInfo::of(&partitions.rule)),
        };
        all.into_iter().map(info).collect()
    }

    /// Drops a keyspace and everything in it, in one edit of the manifest. Its handles answer `Dropped`.
    /// Older snapshots still see it; its space is freed once they are dropped.
    ///
    /// # Errors
    /// `NoKeyspace` if there is none of that name, `ReadOnly`, `Latched`, `Io`.
    ///
    /// # Cost
    /// One sync of the manifest, independent of the size.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let old = db.ordered("old").open()?;
    /// db.drop_keyspace("old")?;
    /// assert!(matches!(old.get(b"key"), Err(trine::Error::Dropped { .. })));
    /// # Ok(()) }
    /// ```
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.handle.drop_keyspace(name)
    }

    /// Reads every table, and every log that is not in use, and reports damage. The store stays usable
    /// meanwhile. `progress` is called before each file. Data that is only in memory is not checked;
    /// [`inspect::verify`](crate::inspect::verify) checks everything in a closed store.
    ///
    /// # Errors
    /// `Closed`, `Io`. Damage is no error: the report lists it.
    ///
    /// # Cost
    /// Reads all tables once, bypassing the cache, in pieces of 1 MiB.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// db.ordered("users").open()?.put(b"ann", b"1")?;
    /// db.flush()?;
    /// let report = db.verify(|_| {})?;
    /// assert!(report.items == 1 && report.findings.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn verify(&self, progress: impl FnMut(&Progress)) -> Result<Report> {
        self.handle.check_open()?;
        inspect::verify_open(&self.handle, progress)
    }

    /// An empty batch: its writes, to any keyspaces, become visible and durable together or not at all.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let (users, names) = (db.ordered("users").open()?, db.ordered("names").open()?);
    /// let mut batch = db.batch();
    /// batch.put(&users, b"1", b"ann")?;
    /// batch.put(&names, b"ann", b"1")?;
    /// batch.commit()?;
    /// # Ok(()) }
    /// ```
    pub fn batch(&self) -> Batch {
        Batch::new(&self.handle)
    }

    /// A snapshot: the store as it is now, readable as long as the snapshot is kept.
    ///
    /// # Cost
    /// No device access. A snapshot pins the memory and files of its moment: a long-lived one costs space.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let users = db.ordered("users").open()?;
    /// let before = db.snapshot();
    /// users.put(b"ann", b"1")?;
    /// assert_eq!(users.at(&before).get(b"ann")?, None);
    /// # Ok(()) }
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.handle)
    }

    /// Makes every write acknowledged so far survive power loss.
    ///
    /// # Errors
    /// `ReadOnly`, `Latched`; `Io` if the sync fails, after which the store takes no writes until it is
    /// reopened.
    ///
    /// # Cost
    /// One sync of the log, none if everything is durable.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// db.ordered("users").open()?.put(b"ann", b"1")?;
    /// db.sync()?;
    /// # Ok(()) }
    /// ```
    pub fn sync(&self) -> Result<()> {
        self.handle.sync_log()
    }

    /// Flushes: writes the items in memory to tables, and waits until that is done.
    ///
    /// # Errors
    /// `ReadOnly`, `Latched`, `Full`, `Io`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// db.ordered("users").open()?.put(b"ann", b"1")?;
    /// db.flush()?;
    /// assert_eq!(db.stats().keyspaces[0].tables, 1);
    /// # Ok(()) }
    /// ```
    pub fn flush(&self) -> Result<()> {
        self.handle.flush()
    }

    /// Flushes, then merges every keyspace into one run without overwritten items and tombstones. Waits until
    /// that is done. Concurrent writes do not prolong the wait. Ingests before the next flush are merged too,
    /// so an endless series of ingests into one keyspace keeps the call from returning.
    ///
    /// # Errors
    /// `ReadOnly`, `Latched`, `Full`, `Corrupt`, `Io`.
    ///
    /// # Cost
    /// Reads and writes everything once.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// users.delete(b"ann")?;
    /// db.compact()?;
    /// assert_eq!(db.stats().keyspaces[0].tables, 0);
    /// # Ok(()) }
    /// ```
    pub fn compact(&self) -> Result<()> {
        self.handle.compact()
    }

    /// Makes a second store in the directory `path`, which must be missing or empty. The second store has
    /// every write acknowledged before the call, and perhaps the first ones of the writes made during the
    /// call. The two stores are then independent.
    ///
    /// Tables are hard-linked where the file systems allow it, so that they take no extra space until one of
    /// the stores merges them away. Otherwise they are copied. The files of a failed call are removed. Files
    /// left by a crash during the call are not a store, and must be removed by hand.
    ///
    /// # Errors
    /// `Foreign` if the directory is not empty, `ReadOnly`, `Latched`, `Locked`, `Permission`, `Full`, `Io`.
    ///
    /// # Cost
    /// A flush, a link or copy of each table, and a few syncs.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// db.checkpoint(dir.path().join("copy"))?;
    /// users.delete(b"ann")?;
    /// let copy = trine::Db::open(dir.path().join("copy"))?;
    /// assert!(copy.ordered("users").open()?.contains(b"ann")?);
    /// # Ok(()) }
    /// ```
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.handle.checkpoint(path.as_ref())
    }

    /// Waits until no flush or merge is due. The call itself starts none.
    ///
    /// # Errors
    /// The error that stopped the background work, if there is one.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// db.settle()?;
    /// # Ok(()) }
    /// ```
    pub fn settle(&self) -> Result<()> {
        self.handle.settle()
    }

    /// Closes the store for all its handles: syncs the log, stops background work, releases the lock.
    ///
    /// # Errors
    /// The error of closing, or of background work before. The store is closed in any case.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let db = trine::Db::open(&path)?;
    /// db.close()?;
    /// trine::Db::open(&path)?;
    /// # Ok(()) }
    /// ```
    pub fn close(self) -> Result<()> {
        self.handle.check_process()?;
        self.handle.close()
    }

    /// Current counters and sizes.
    ///
    /// # Cost
    /// Walks the list of tables and the items in write buffers, all in memory; no device access.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let memory = db.stats().memory;
    /// assert!(memory.used_bytes <= memory.budget_bytes);
    /// # Ok(()) }
    /// ```
    pub fn stats(&self) -> Stats {
        self.handle.stats()
    }

    /// Every setting of the open store, with its default and its meaning.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let memory = db.settings().into_iter().find(|one| one.name == "memory_bytes").unwrap();
    /// assert_eq!(memory.value, memory.default);
    /// # Ok(()) }
    /// ```
    pub fn settings(&self) -> Vec<SettingValue> {
        self.handle.settings().values().into_iter().map(SettingValue::new).collect()
    }
}
