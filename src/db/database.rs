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
/// until its last handle (also keyspaces, snapshots, batches and iterators) is dropped, which waits for
/// background work to stop.
///
/// A process that is forked off meanwhile has copies of all handles and none of the store's threads. There
/// every read and write answers [`Error::Forked`](crate::Error::Forked), and dropping a handle does nothing;
/// the store of the first process goes on.
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
    /// The directory of the store.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("path", &self.path()).finish()
    }
}

impl Db {
    /// Opens the store in directory `path`, and makes it if there is none. The directory above has to exist:
    /// a volume that is not mounted gets no store in its place.
    ///
    /// # Errors
    /// `Locked` if it is open elsewhere, `Foreign` if the directory holds something else and no file of a
    /// store, `Corrupt` if a file is damaged, `Unsupported` if a newer release wrote it, `Permission`,
    /// `ReadOnlyFileSystem`, `Full` and `Io` as the system says.
    ///
    /// # Cost
    /// Reads the manifest, the end of every table and the logs: what was written since the last flush is
    /// replayed.
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

    /// A builder with settings to choose before the store in `path` is opened.
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

    /// An ordered keyspace: opened if it exists, else made when the returned builder's `open` is called.
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

    /// The keyspace of that name whose keys have no order: opened if it exists, else made, by
    /// [`KeyspaceBuilder::open`].
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

    /// A keyspace that exists, of whatever kind.
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

    /// Whether there is a keyspace of that name. Nothing is made.
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

    /// The directory of the store, as it was given to open it.
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
        let info = |one: Arc<keyspace::Keyspace>| KeyspaceInfo {
            name: one.name.clone(),
            kind: if one.id.is_hashed() { Kind::Hashed } else { Kind::Ordered },
            is_partitioned: one.partitions().is_some() && !one.is_divided_by_keys(),
            partitioning: one.partitions().map(|partitions| PartitioningInfo::of(&partitions.rule)),
        };
        all.into_iter().map(info).collect()
    }

    /// Drops a keyspace and everything in it, in one edit of the manifest. Its handles answer `Dropped`;
    /// snapshots taken before still see it, and its space is given back once they are gone.
    ///
    /// # Errors
    /// `NoKeyspace` if there is none of that name, `ReadOnly`, `Latched`, `Io`.
    ///
    /// # Cost
    /// One sync of the manifest, whatever the size.
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

    /// Reads every table, and every log that is not in use, and says what is damaged; the store goes on
    /// meanwhile. `progress` is called before each file. What is only in memory is not looked at; of a store
    /// that is closed, [`inspect::verify`](crate::inspect::verify) checks everything.
    ///
    /// # Errors
    /// `Closed`, `Io`. Damage is no error: it is in the report.
    ///
    /// # Cost
    /// Reads all tables once, past the cache, in pieces of 1 MiB.
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

    /// An empty batch: its writes become visible, and durable, together or not at all, over all keyspaces.
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

    /// The store as it is now, to read from as long as the snapshot is kept.
    ///
    /// # Cost
    /// No device access. A snapshot keeps the memory and files of its moment: a long one costs space.
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

    /// Writes what is in memory to tables, and waits for it.
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

    /// Flushes, and merges every keyspace into one run without overwritten items and tombstones; waits for
    /// it. Writes that come meanwhile do not keep it; ingests that come before the next flush are merged too,
    /// so that one after the other into the same keyspace, without end, keep it from ending.
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

    /// Makes a second store in the directory `path`, which must not exist or be empty: with every write
    /// acknowledged before the call, and perhaps the first ones of those made during it. Both stores go on by
    /// themselves.
    ///
    /// Tables are linked where the file systems let it, so that they take no space until one of the stores
    /// merges them away; else they are copied. What a failed call made is removed; what a crash left of one
    /// is not a store, and is removed by hand.
    ///
    /// # Errors
    /// `Foreign` if the directory is not empty, `ReadOnly`, `Latched`, `Locked`, `Permission`, `Full`, `Io`.
    ///
    /// # Cost
    /// A flush, a link for each table (or its copy), and a few syncs.
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

    /// Waits until no flush or merge is due; starts none of its own.
    ///
    /// # Errors
    /// What stopped the background work, if something did.
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

    /// Closes the store for all its handles: syncs the log, stops background work, gives up the lock.
    ///
    /// # Errors
    /// What failed meanwhile, also in the background. The store is closed all the same.
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

    /// Counters and sizes now.
    ///
    /// # Cost
    /// Walks the tables in memory and what is in write buffers; no device access.
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

    /// Every setting of the open store, with its default and what it does.
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
