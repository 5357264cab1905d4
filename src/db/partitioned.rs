//! Keyspaces divided into partitions, and their partitionings.

use std::fmt;
use std::marker::PhantomData;

use crate::base::error::Result;
use crate::base::rule::Rule;
use crate::base::sync::Arc;
use crate::engine::publish::keyspace;
use crate::engine::publish::partitions::Partitions;
use crate::engine::stats::KeyspaceStats;

use super::handle::Handle;
use super::keyspace::{Keyspace, Ordered};
use super::stats::SettingValue;

/// The kind of a partitioning whose partitions the caller names: see [`Partitioning::explicit`].
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let rule: trine::Partitioning<trine::Explicit> = trine::Partitioning::explicit();
/// let events = db.ordered("events").partition_by(rule).open()?;
/// assert!(events.partitions()?.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Explicit {}

/// The rule that divides a keyspace into partitions. It is fixed when the keyspace is made.
///
/// Partitions share the log, the write buffer, the cache and the settings of their keyspace. Each has its own
/// levels and tables. So a write costs the same among thousands of partitions as in one. A partition is
/// dropped whole: its tables are dropped without being read, and no tombstone stays behind.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
/// events.partition("2026-11")?.put("login", "ann")?;
/// events.partition("2026-12")?.put("login", "bob")?;
/// events.drop_partition("2026-11")?;
/// assert_eq!(events.partitions()?, [b"2026-12"]);
/// # Ok(()) }
/// ```
pub struct Partitioning<K> {
    /// A fault is reported when the keyspace is opened.
    pub(super) rule: std::result::Result<Rule, String>,
    kind: PhantomData<fn() -> K>,
}

impl Partitioning<Explicit> {
    /// The caller names the partition of each item. Partition and key together identify an item: a key may be
    /// in several partitions, with a value in each.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let groups = db.ordered("groups").partition_by(trine::Partitioning::explicit()).open()?;
    /// groups.partition(7_u32.to_be_bytes())?.put("key", "1")?;
    /// groups.partition(8_u32.to_be_bytes())?.put("key", "2")?;
    /// assert_eq!(groups.partition(7_u32.to_be_bytes())?.get("key")?.unwrap(), b"1");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn explicit() -> Partitioning<Explicit> {
        Partitioning::new(Ok(Rule::Explicit))
    }
}

impl<K> Partitioning<K> {
    pub(super) fn new(rule: std::result::Result<Rule, String>) -> Partitioning<K> {
        Partitioning { rule, kind: PhantomData }
    }
}

impl<K> Clone for Partitioning<K> {
    fn clone(&self) -> Self {
        Partitioning::new(self.rule.clone())
    }
}

impl<K> fmt::Debug for Partitioning<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Partitioning").field(&self.rule).finish()
    }
}

/// A keyspace divided into partitions that the caller names. Items are read and written through
/// [`Partitioned::partition`]. Clones are handles of the same keyspace; threads may share them.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
/// let tenant = events.partition("t042")?;
/// let mut batch = db.batch();
/// batch.put(&tenant, "1", "login")?;
/// batch.put(&events.partition("t043")?, "1", "logout")?;
/// batch.commit()?;
/// assert_eq!(tenant.iter().count(), 1);
/// # Ok(()) }
/// ```
///
/// `K` is the kind of the partitions. Each [`Hashed`](crate::Hashed) partition is a trie of its own.
pub struct Partitioned<K = Ordered> {
    handle: Arc<Handle>,
    keyspace: Arc<keyspace::KeyspaceState>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Partitioned<K> {
    fn clone(&self) -> Self {
        Partitioned::new(&self.handle, Arc::clone(&self.keyspace))
    }
}

impl<K> fmt::Debug for Partitioned<K> {
    /// Prints the name of the keyspace and the directory of its store.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, store) = (&self.keyspace.name, self.handle.storage().path());
        f.debug_struct("Partitioned").field("name", name).field("store", &store).finish()
    }
}

impl<K> Partitioned<K> {
    /// A handle of a divided keyspace.
    pub(super) fn new(handle: &Arc<Handle>, keyspace: Arc<keyspace::KeyspaceState>) -> Partitioned<K> {
        Partitioned { handle: Arc::clone(handle), keyspace, kind: PhantomData }
    }

    fn live(&self) -> Result<&Partitions> {
        self.keyspace.check_live()?;
        Ok(self.keyspace.partitions().expect("it was opened as one that is divided"))
    }

    /// Name of the keyspace.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// assert_eq!(events.name(), "events");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        &self.keyspace.name
    }

    /// Opens the partition of that name, of 0 to 255 bytes, or makes it. Once the partition is dropped its
    /// handles answer `Dropped`; another call then makes a new, empty partition of the same name.
    ///
    /// # Errors
    /// `Invalid` for a longer name, `Memory` if the memory budget has no room for one more, `TooLarge` if all
    /// names together would take more than 256 MiB, `Dropped`, `Latched`, `Full`, `Io`; in a store opened
    /// read-only `NoKeyspace` if it would have to be made.
    ///
    /// # Cost
    /// One sync of the manifest if the partition is made.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// let tenant: trine::Keyspace<trine::Ordered> = events.partition("t042")?;
    /// tenant.put("1", "login")?;
    /// assert_eq!(tenant.partition_name(), Some(&b"t042"[..]));
    /// # Ok(()) }
    /// ```
    pub fn partition(&self, name: impl AsRef<[u8]>) -> Result<Keyspace<K>> {
        let partition = self.handle.partition(&self.keyspace, name.as_ref())?;
        Ok(Keyspace::new(&self.handle, partition))
    }

    /// Makes the missing ones of the named partitions atomically: after a crash all of them exist or none.
    ///
    /// # Errors
    /// As [`Partitioned::partition`]; then none is made.
    ///
    /// # Cost
    /// One sync of the log, if something is unsynced, and one of the manifest.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// events.create_partitions((0_u32..1000).map(u32::to_be_bytes))?;
    /// assert_eq!(events.partitions()?.len(), 1000);
    /// # Ok(()) }
    /// ```
    pub fn create_partitions<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Result<()> {
        let names: Vec<N> = names.into_iter().collect();
        let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
        self.handle.partitions(&self.keyspace, &names).map(drop)
    }

    /// The partition of that name, if it exists. The call makes no partition.
    ///
    /// # Errors
    /// `Dropped`, `Closed`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// assert!(events.find_partition("t042")?.is_none());
    /// events.partition("t042")?;
    /// assert!(events.find_partition("t042")?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn find_partition(&self, name: impl AsRef<[u8]>) -> Result<Option<Keyspace<K>>> {
        let found = self.live()?.get(name.as_ref());
        Ok(found.map(|partition| Keyspace::new(&self.handle, partition)))
    }

    /// The names of all partitions, in their order.
    ///
    /// # Errors
    /// `Dropped`, `Closed`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// events.partition("b")?;
    /// events.partition("a")?;
    /// assert_eq!(events.partitions()?, [b"a", b"b"]);
    /// # Ok(()) }
    /// ```
    pub fn partitions(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.live()?.names().into_iter().map(<[u8]>::into_vec).collect())
    }

    /// Drops a partition and everything in it; `false` if no partition has that name. From then on new reads
    /// do not see the partition, also after a crash. Older snapshots and iterators still see all of it. Its
    /// tables are not read; tables shared with no other partition are removed at once.
    ///
    /// # Errors
    /// `Dropped` if the keyspace is, `ReadOnly`, `Latched`, `Io`.
    ///
    /// # Cost
    /// One sync of the log and one of the manifest, independent of the size. Writers wait meanwhile.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// let tenant = events.partition("t042")?;
    /// tenant.put("1", "login")?;
    /// let before = db.snapshot();
    /// assert!(events.drop_partition("t042")?);
    /// assert!(matches!(tenant.get("1"), Err(trine::Error::Dropped { .. })));
    /// assert_eq!(tenant.at(&before).get("1")?.unwrap(), b"login");
    /// assert!(events.partition("t042")?.is_empty()?);
    /// # Ok(()) }
    /// ```
    pub fn drop_partition(&self, name: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.drop_partitions([name])? == 1)
    }

    /// Drops the existing ones of the named partitions atomically: after a crash all are dropped or none.
    /// Returns their number.
    ///
    /// # Errors
    /// As [`Partitioned::drop_partition`].
    ///
    /// # Cost
    /// That of one drop.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// for month in ["2026-01", "2026-02", "2026-03"] {
    ///     events.partition(month)?.put("login", "ann")?;
    /// }
    /// let mut old = events.partitions()?;
    /// old.retain(|name| name.as_slice() < b"2026-03".as_slice());
    /// assert_eq!(events.drop_partitions(old)?, 2);
    /// # Ok(()) }
    /// ```
    pub fn drop_partitions<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Result<u64> {
        let names: Vec<N> = names.into_iter().collect();
        let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
        self.handle.drop_partitions(&self.keyspace, &names)
    }

    /// Drops all partitions whose names sort before `name`, atomically, and returns their number. This
    /// expires old time windows. The bound is stored: if a late write makes a partition before the bound,
    /// that partition is dropped when the next partition at or after the bound is made. An empty name removes
    /// the bound.
    ///
    /// # Errors
    /// `Invalid` for a name of more than 255 bytes, `Dropped`, `ReadOnly`, `Latched`, `Io`.
    ///
    /// # Cost
    /// That of one drop.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// for month in ["2026-01", "2026-02", "2026-03"] {
    ///     events.partition(month)?.put("login", "ann")?;
    /// }
    /// assert_eq!(events.retain_from("2026-03")?, 2);
    /// assert_eq!(events.retained_from()?.unwrap(), b"2026-03");
    /// events.partition("2026-02")?.put("late", "bob")?;
    /// events.partition("2026-04")?;
    /// assert_eq!(events.partitions()?, [b"2026-03", b"2026-04"]);
    /// # Ok(()) }
    /// ```
    pub fn retain_from(&self, name: impl AsRef<[u8]>) -> Result<u64> {
        self.handle.retain_from(&self.keyspace, name.as_ref())
    }

    /// The stored bound of [`Partitioned::retain_from`]: partitions whose names sort before it are dropped.
    /// `None` if there is no bound.
    ///
    /// # Errors
    /// `Dropped`, `Closed`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// assert_eq!(events.retained_from()?, None);
    /// # Ok(()) }
    /// ```
    pub fn retained_from(&self) -> Result<Option<Vec<u8>>> {
        let name = self.live()?.retained_from();
        Ok((!name.is_empty()).then(|| name.into_vec()))
    }

    /// Every setting of the keyspace, which all partitions share, with its default and its meaning.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// let mut settings = events.settings().into_iter();
    /// assert!(settings.any(|one| one.name == "filter_bits_per_key"));
    /// # Ok(()) }
    /// ```
    pub fn settings(&self) -> Vec<SettingValue> {
        self.keyspace.settings().values().into_iter().map(SettingValue::new).collect()
    }

    /// Counters and sizes of all partitions together. [`Keyspace::stats`] has those of one partition.
    ///
    /// # Errors
    /// `Dropped`, `Closed`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// events.partition("a")?.put("1", "login")?;
    /// events.partition("b")?.put("1", "login")?;
    /// assert_eq!(events.stats()?.items, 2);
    /// # Ok(()) }
    /// ```
    pub fn stats(&self) -> Result<KeyspaceStats> {
        self.live()?;
        Ok(self.handle.keyspace_stats(&self.keyspace))
    }
}
