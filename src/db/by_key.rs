//! Keyspaces divided by their keys: a rule maps each key to a partition.

use std::borrow::Cow;

use crate::base::error::{Error, Result};
use crate::base::rule::Rule;
use crate::engine::publish::partitions::Partitions;
use crate::engine::stats::KeyspaceStats;

use super::keyspace::{Keyspace, KeyspaceBuilder, Ordered};
use super::partitioned::Partitioning;

/// The kind of a partitioning that maps each key to a partition: see [`Partitioning::prefix`],
/// [`Partitioning::ranges`] and [`Partitioning::function`].
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let rule: trine::Partitioning<trine::ByKey> = trine::Partitioning::prefix(7);
/// let events: trine::Keyspace<trine::Ordered> = db.ordered("events").partition_by(rule).open()?;
/// assert!(events.partitions()?.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum ByKey {}

impl Partitioning<ByKey> {
    /// Keys with the same first `bytes` bytes, 1 to 255, are in one partition, named by these bytes. A
    /// shorter key is alone in a partition with the key as name. `open` reports a wrong number.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let by_month = trine::Partitioning::prefix(7);
    /// let events = db.ordered("events").partition_by(by_month).open()?;
    /// events.put("2026-11/login/ann", "1")?;
    /// events.put("2026-12/login/bob", "2")?;
    /// assert_eq!(events.partitions()?, [b"2026-11", b"2026-12"]);
    /// assert_eq!(events.range("2026-11/m".."2027").count(), 1);
    /// events.drop_partition("2026-11")?;
    /// assert_eq!(events.iter().count(), 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn prefix(bytes: usize) -> Partitioning<ByKey> {
        Partitioning::new(Rule::prefix(bytes))
    }

    /// A partition begins at each of these bounds, is named by it, and ends before the next. The first
    /// partition, with the keys before all bounds, has the empty name. There are 1 to 4,096 bounds of 1 to
    /// 255 bytes, ascending; `open` reports wrong ones. Hashed keyspaces cannot use ranges, because their
    /// keys have no order.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let by_letter = trine::Partitioning::ranges(["g", "m"]);
    /// let users = db.ordered("users").partition_by(by_letter).open()?;
    /// for name in ["ann", "hal", "zoe"] {
    ///     users.put(name, "1")?;
    /// }
    /// assert_eq!(users.partitions()?, [&b""[..], b"g", b"m"]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn ranges<B: AsRef<[u8]>>(bounds: impl IntoIterator<Item = B>) -> Partitioning<ByKey> {
        Partitioning::new(Rule::ranges(bounds.into_iter().map(|bound| bound.as_ref().into()).collect()))
    }
}

impl Partitioning<ByKey> {
    /// The function returns the partition name of each key, of at most 255 bytes; a write whose key gets a
    /// longer name is refused. It must always return the same name for the same key. The store records the
    /// function's name and `version`, not its code, and compares them at open. Another version of the
    /// function is another partitioning.
    ///
    /// Opened without the function, such a keyspace can be scanned, verified and listed. `get`, `put` and
    /// similar calls fail with [`Unrouted`](crate::Error::Unrouted).
    ///
    /// Partitions are not in key order. A range over such an ordered keyspace searches every partition when
    /// it begins, and keeps about a KiB for each; a `delete_range` writes a tombstone into each. Prefer
    /// [`prefix`](Partitioning::prefix) or [`ranges`](Partitioning::ranges) where they suffice.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// // Keys are user/month: one drop removes a whole month.
    /// let by_month = trine::Partitioning::function("month", 1, |key| {
    ///     let at = key.iter().position(|byte| *byte == b'/').map_or(key.len(), |slash| slash + 1);
    ///     key[at..].into()
    /// });
    /// let visits = db.ordered("visits").partition_by(by_month).open()?;
    /// for key in ["ann/2026-11", "bob/2026-11", "ann/2026-12"] {
    ///     visits.put(key, "1")?;
    /// }
    /// assert_eq!(visits.partitions()?, [b"2026-11", b"2026-12"]);
    /// let keys: Vec<trine::Value> = visits.keys().collect::<trine::Result<_>>()?;
    /// assert_eq!(keys, [b"ann/2026-11", b"ann/2026-12", b"bob/2026-11"]);
    /// visits.retain_from("2026-12")?;
    /// assert!(!visits.contains("ann/2026-11")?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn function(
        name: &str,
        version: u32,
        name_of: impl for<'k> Fn(&'k [u8]) -> Cow<'k, [u8]> + Send + Sync + 'static,
    ) -> Partitioning<ByKey> {
        Partitioning::new(Rule::function(name, version, Box::new(name_of)))
    }
}

impl KeyspaceBuilder<ByKey> {
    /// Opens the keyspace, or makes it without a partition. Later opens may omit the partitioning.
    ///
    /// # Errors
    /// As for an undivided keyspace, `Invalid` also for a wrong partitioning; `Mismatch` if the keyspace
    /// exists with another partitioning or none.
    ///
    /// # Cost
    /// One sync of the manifest if the keyspace is made or its settings change. The first divided keyspace of
    /// a store rewrites the manifest.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// db.ordered("events").partition_by(trine::Partitioning::prefix(4)).open()?.put("2026-11", "1")?;
    /// assert!(db.ordered("events").partition_by(trine::Partitioning::prefix(5)).open().is_err());
    /// assert!(db.ordered("events").open()?.contains("2026-11")?);
    /// # Ok(()) }
    /// ```
    pub fn open(self) -> Result<Keyspace<Ordered>> {
        let (handle, keyspace) = self.open_divided()?;
        Ok(Keyspace::new(&handle, keyspace))
    }
}

/// Partitions of a keyspace that is divided by keys, by [`Partitioning::prefix`], [`Partitioning::ranges`] or
/// [`Partitioning::function`]. For any other keyspace each of these calls fails with `Invalid`.
impl<K> Keyspace<K> {
    fn partitions_by_key(&self) -> Result<&Partitions> {
        let keyspace = self.live()?;
        let divided = keyspace.partitions().filter(|partitions| partitions.rule.is_by_key());
        divided.ok_or_else(|| {
            let fault = format!("the keyspace {:?} is not divided by its keys", keyspace.full_name());
            Error::Invalid { faults: vec![fault] }
        })
    }

    /// The names of the partitions, in ascending order; with a prefix or ranges that is the order of their
    /// keys.
    ///
    /// # Errors
    /// `Invalid` if it is not divided by keys, `Dropped`, `Closed`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::prefix(4)).open()?;
    /// events.put("2027-01/a", "1")?;
    /// events.put("2026-12/a", "1")?;
    /// assert_eq!(events.partitions()?, [b"2026", b"2027"]);
    /// # Ok(()) }
    /// ```
    pub fn partitions(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.partitions_by_key()?.names().into_iter().map(<[u8]>::into_vec).collect())
    }

    /// Makes a partition durably, before its first write. No error if the partition exists. A partition made
    /// by a write is as durable as that write.
    ///
    /// # Errors
    /// `Invalid` for a name that no key has, or if the keyspace is not divided by keys; `Memory` if the
    /// memory budget has no room for one more, `TooLarge` if all names together would take more than 256 MiB;
    /// `Dropped`, `ReadOnly`, `Latched`, `Full`, `Io`.
    ///
    /// # Cost
    /// One sync of the log, if something is unsynced, and one of the manifest.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::prefix(4)).open()?;
    /// events.create_partition("2026")?;
    /// assert!(events.create_partition("2026-11").is_err());
    /// assert_eq!(events.partitions()?, [b"2026"]);
    /// # Ok(()) }
    /// ```
    pub fn create_partition(&self, name: impl AsRef<[u8]>) -> Result<()> {
        self.partitions_by_key()?;
        let (handle, keyspace) = self.parts();
        handle.partition(&keyspace, name.as_ref()).map(drop)
    }

    /// Makes the missing ones of the named partitions atomically: after a crash all of them exist or none.
    ///
    /// # Errors
    /// As [`Keyspace::create_partition`]; then none is made.
    ///
    /// # Cost
    /// That of making one partition.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::prefix(4)).open()?;
    /// events.create_partitions((0..1000).map(|tenant| format!("{tenant:04}")))?;
    /// assert_eq!(events.partitions()?.len(), 1000);
    /// # Ok(()) }
    /// ```
    pub fn create_partitions<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Result<()> {
        self.partitions_by_key()?;
        let (handle, keyspace) = self.parts();
        let names: Vec<N> = names.into_iter().collect();
        let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
        handle.partitions(&keyspace, &names).map(drop)
    }

    /// Drops a partition and everything in it; `false` if no partition has that name. From then on new reads
    /// do not see its items, also after a crash. Older snapshots and iterators still see all of them. Its
    /// tables are not read; tables shared with no other partition are removed at once. A later write of one
    /// of its keys makes the partition again.
    ///
    /// # Errors
    /// `Invalid` if the keyspace is not divided by keys, `Dropped`, `ReadOnly`, `Latched`, `Io`.
    ///
    /// # Cost
    /// One sync of the log and one of the manifest, independent of the size. Writers wait meanwhile.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::prefix(4)).open()?;
    /// events.put("2025/a", "1")?;
    /// events.put("2026/a", "1")?;
    /// let before = db.snapshot();
    /// assert!(events.drop_partition("2025")?);
    /// assert!(!events.contains("2025/a")? && events.at(&before).contains("2025/a")?);
    /// # Ok(()) }
    /// ```
    pub fn drop_partition(&self, name: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.drop_partitions([name])? == 1)
    }

    /// Drops the existing ones of the named partitions atomically: after a crash all are dropped or none.
    /// Returns their number.
    ///
    /// # Errors
    /// As [`Keyspace::drop_partition`].
    ///
    /// # Cost
    /// That of one drop.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::prefix(4)).open()?;
    /// for year in ["2024/a", "2025/a", "2026/a"] {
    ///     events.put(year, "1")?;
    /// }
    /// let mut old = events.partitions()?;
    /// old.retain(|name| name.as_slice() < b"2026".as_slice());
    /// assert_eq!(events.drop_partitions(old)?, 2);
    /// assert_eq!(events.iter().count(), 1);
    /// # Ok(()) }
    /// ```
    pub fn drop_partitions<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Result<u64> {
        self.partitions_by_key()?;
        let (handle, keyspace) = self.parts();
        let names: Vec<N> = names.into_iter().collect();
        let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
        handle.drop_partitions(&keyspace, &names)
    }

    /// Drops all partitions whose keys all sort before `key`, atomically, and returns their number. This
    /// expires old time windows. The partition to which `key` belongs stays whole. The bound is stored: if a
    /// late write makes a partition before the bound, that partition is dropped when the next partition at or
    /// after the bound is made. An empty key removes the bound. If a function of keys divides the keyspace,
    /// `key` is a partition's name.
    ///
    /// # Errors
    /// `Invalid` if the keyspace is not divided by keys, `Dropped`, `ReadOnly`, `Latched`, `Io`.
    ///
    /// # Cost
    /// That of one drop.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let by_month = trine::Partitioning::prefix(7);
    /// let events = db.ordered("events").partition_by(by_month).open()?;
    /// for key in ["2026-01-31/a", "2026-02-01/a", "2026-02-27/a"] {
    ///     events.put(key, "1")?;
    /// }
    /// assert_eq!(events.retain_from("2026-02-15")?, 1);
    /// assert_eq!(events.retained_from()?.unwrap(), b"2026-02");
    /// assert_eq!(events.iter().count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn retain_from(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        let partitions = self.partitions_by_key()?;
        let key = key.as_ref();
        let name = match partitions.rule.is_in_key_order() {
            true => partitions.rule.name_of(key)?,
            false => key.into(),
        };
        let (handle, keyspace) = self.parts();
        handle.retain_from(&keyspace, &name)
    }

    /// The stored bound of [`Keyspace::retain_from`], as a partition name: partitions that sort before it are
    /// dropped. `None` if there is no bound.
    ///
    /// # Errors
    /// `Invalid` if the keyspace is not divided by keys, `Dropped`, `Closed`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::prefix(4)).open()?;
    /// assert_eq!(events.retained_from()?, None);
    /// # Ok(()) }
    /// ```
    pub fn retained_from(&self) -> Result<Option<Vec<u8>>> {
        let name = self.partitions_by_key()?.retained_from();
        Ok((!name.is_empty()).then(|| name.into_vec()))
    }

    /// Counters and sizes of a partition; `None` if no partition has that name. [`Keyspace::stats`] has those
    /// of all partitions together.
    ///
    /// # Errors
    /// `Invalid` if the keyspace is not divided by keys, `Dropped`, `Closed`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::prefix(4)).open()?;
    /// events.put("2025/a", "1")?;
    /// events.put("2026/a", "1")?;
    /// assert_eq!(events.partition_stats("2026")?.unwrap().items, 1);
    /// assert_eq!(events.stats()?.items, 2);
    /// # Ok(()) }
    /// ```
    pub fn partition_stats(&self, name: impl AsRef<[u8]>) -> Result<Option<KeyspaceStats>> {
        let found = self.partitions_by_key()?.get(name.as_ref());
        Ok(found.map(|partition| self.handle().keyspace_stats(&partition)))
    }

    /// The approximate number of keys of a partition, as [`Keyspace::approximate_len`] of all partitions
    /// together; `None` if no partition has that name.
    ///
    /// # Errors
    /// `Invalid` if the keyspace is not divided by keys, `Dropped`, `Closed`.
    ///
    /// # Cost
    /// No device read. The call walks the partition's keys in write buffers.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::prefix(4)).open()?;
    /// events.put("2026/a", "1")?;
    /// events.put("2026/b", "1")?;
    /// events.delete("2026/b")?;
    /// assert_eq!(events.partition_approximate_len("2026")?, Some(1));
    /// assert_eq!(events.partition_approximate_len("2027")?, None);
    /// # Ok(()) }
    /// ```
    pub fn partition_approximate_len(&self, name: impl AsRef<[u8]>) -> Result<Option<u64>> {
        let found = self.partitions_by_key()?.get(name.as_ref());
        let handle = self.handle();
        Ok(found.map(|partition| handle.approximate_len(&handle.point(), &partition)))
    }
}
