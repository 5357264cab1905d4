//! Handles of keyspaces.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use crate::base::error::{Error, Result};
use crate::base::id::ItemKind;
use crate::base::place::StoredKey;
use crate::base::rule::Rule;
use crate::base::settings::{KeyspaceSettings, SettingInput};
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::engine::commit::routing::Unrouted;
use crate::engine::publish::keyspace;
use crate::engine::publish::snapshot::Point;
use crate::engine::stats::KeyspaceStats;
use crate::engine::{GetMode, NoTrace, Until};
use crate::inspect::{Explainer, Explanation};
use crate::write::batch::{BatchItems, Keyspaces, check_item};

use super::handle::Handle;
use super::key_range::KeyRange;
use super::partitioned::{Explicit, Partitioned, Partitioning};
use super::partitioning_info::PartitioningInfo;
use super::range::{self, Cursor, Range};
use super::{Durability, Ingest, KeyspaceAt, SettingValue, Snapshot, Value};

/// A keyspace whose keys are ordered as unsigned bytes.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let users: trine::Keyspace<trine::Ordered> = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// assert_eq!(users.range("a"..).count(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Ordered {}

/// A keyspace of a kind known at run time.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// db.ordered("users").open()?.put(b"ann", b"1")?;
/// let any: trine::Keyspace<trine::Any> = db.keyspace("users")?;
/// assert_eq!(any.get(b"ann")?.as_deref(), Some(&b"1"[..]));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Any {}

/// The kinds of keyspace.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// db.ordered("users").open()?;
/// assert_eq!(db.keyspaces()[0].kind, trine::Kind::Ordered);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// A tree: keys in order.
    Ordered,
    /// Keys have no order.
    Hashed,
}

/// One entry of [`Db::keyspaces`](super::Db::keyspaces).
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// db.ordered("users").open()?;
/// db.ordered("names").open()?;
/// let names: Vec<_> = db.keyspaces().into_iter().map(|one| one.name).collect();
/// assert_eq!(names, ["names", "users"]);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KeyspaceInfo {
    /// Name of the keyspace.
    pub name: String,
    /// Kind of the keyspace.
    pub kind: Kind,
    /// Whether the caller names the partitions: see [`Partitioned`]. A keyspace that is divided by its keys
    /// is read and written like an undivided one.
    pub is_partitioned: bool,
    /// The partitioning of the keyspace; `None` if it is not divided.
    pub partitioning: Option<PartitioningInfo>,
}

/// The steps of a get, with the cost of each.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// let (_, trace) = users.trace(b"ann")?;
/// let names: Vec<_> = trace.steps.iter().map(|step| step.name).collect();
/// assert_eq!(names[..4], ["MtGet", "FileFind", "FBLoad", "FBMatch"]);
/// assert_eq!(names[4..], ["IBLoad", "IBSeek", "DBLoad", "DBSeek"]);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Trace {
    /// All eight steps, in their order.
    pub steps: Vec<TraceStep>,
}

/// One step of a get: MtGet, FileFind, FBLoad, FBMatch, IBLoad, IBSeek, DBLoad or DBSeek.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// db.flush()?;
/// let (_, trace) = users.trace(b"ann")?;
/// let seek = trace.steps.iter().find(|step| step.name == "DBSeek").unwrap();
/// assert_eq!(seek.count, 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TraceStep {
    /// Name of the step.
    pub name: &'static str,
    /// Total nanoseconds spent in the step.
    pub ns: u64,
    /// Bytes loaded or searched.
    pub bytes: u64,
    /// Number of times the get entered the step.
    pub count: u64,
}

/// A builder that opens or makes a keyspace.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let users = db.ordered("users").set("filter_bits_per_key", 16).open()?;
/// users.put(b"ann", b"1")?;
/// assert_eq!(db.keyspaces().len(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct KeyspaceBuilder<K = Ordered> {
    pub(super) handle: Arc<Handle>,
    pub(super) name: String,
    pub(super) given: Vec<(String, u64)>,
    pub(super) faults: Vec<String>,
    pub(super) partitioning: Option<Partitioning<K>>,
}

impl<K> KeyspaceBuilder<K> {
    pub(crate) fn new(handle: &Arc<Handle>, name: &str) -> KeyspaceBuilder<K> {
        KeyspaceBuilder {
            handle: Arc::clone(handle),
            name: name.to_owned(),
            given: Vec::new(),
            faults: Vec::new(),
            partitioning: None,
        }
    }
}

impl KeyspaceBuilder {
    /// Divides the keyspace into partitions. The partitioning's kind determines the type that `open` returns.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// events.partition("t042")?.put("1", "login")?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn partition_by<K>(self, partitioning: Partitioning<K>) -> KeyspaceBuilder<K> {
        let KeyspaceBuilder { handle, name, given, faults, .. } = self;
        KeyspaceBuilder { handle, name, given, faults, partitioning: Some(partitioning) }
    }

    /// Opens the keyspace, or makes it.
    ///
    /// # Errors
    /// `Invalid` for a wrong setting or name (1 to 255 bytes); `Mismatch` if the caller names its partitions;
    /// in a store opened read-only `NoKeyspace` if it would have to be made, `ReadOnly` if changed;
    /// `Latched`, `Full`, `Io`.
    ///
    /// # Cost
    /// One sync of the manifest if the keyspace is made or its settings change.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// assert!(db.ordered("users").set("size_ratio", 1).open().is_err());
    /// let users = db.ordered("users").set("size_ratio", 10).open()?;
    /// let ratio = users.settings().into_iter().find(|one| one.name == "size_ratio").unwrap();
    /// assert_eq!((ratio.value, ratio.default), (10, 8));
    /// # Ok(()) }
    /// ```
    pub fn open(self) -> Result<Keyspace<Ordered>> {
        self.check()?;
        let keyspace = self.handle.open_keyspace(&self.name, &self.given)?;
        Ok(Keyspace::new(&self.handle, keyspace))
    }
}

impl KeyspaceBuilder<Explicit> {
    /// Opens the keyspace, or makes it without a partition.
    ///
    /// # Errors
    /// As for an undivided keyspace; `Mismatch` if the keyspace exists with another partitioning or none.
    ///
    /// # Cost
    /// One sync of the manifest if the keyspace is made or its settings change. The first divided keyspace of
    /// a store rewrites the manifest.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").partition_by(trine::Partitioning::explicit()).open()?;
    /// assert!(matches!(db.ordered("events").open(), Err(trine::Error::Mismatch { .. })));
    /// # Ok(()) }
    /// ```
    pub fn open(self) -> Result<Partitioned> {
        let (handle, keyspace) = self.open_divided()?;
        Ok(Partitioned::new(&handle, keyspace))
    }
}

impl<K> KeyspaceBuilder<K> {
    /// Sets a keyspace setting by its name in [`Keyspace::settings`], to a number or the name of a value. For
    /// an existing keyspace the setting applies to tables written from now on. `open` reports a wrong name or
    /// value.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let users = db.ordered("users").set("size_ratio", 10).set("level0_runs", 2).open()?;
    /// let runs = users.settings().into_iter().find(|one| one.name == "level0_runs").unwrap();
    /// assert_eq!(runs.value, 2);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn set<'a>(mut self, name: &str, value: impl Into<SettingInput<'a>>) -> KeyspaceBuilder<K> {
        match KeyspaceSettings::number(name, value.into()) {
            Ok(value) => self.given.push((name.to_owned(), value)),
            Err(Error::Invalid { faults }) => self.faults.extend(faults),
            Err(other) => self.faults.push(other.to_string()),
        }
        self
    }

    /// Opens a divided keyspace.
    pub(super) fn open_divided(self) -> Result<(Arc<Handle>, Arc<keyspace::KeyspaceState>)> {
        let (checked, rule) = self.divided()?;
        let keyspace = checked.handle.open_divided(&checked.name, &checked.given, &rule)?;
        Ok((checked.handle, keyspace))
    }

    /// Checks the options of a divided keyspace, and takes out its rule.
    pub(super) fn divided(mut self) -> Result<(KeyspaceBuilder<K>, Rule)> {
        let partitioning = self.partitioning.take().expect("the kind is the partitioning's");
        if let Err(fault) = &partitioning.rule {
            self.faults.push(fault.clone());
        }
        self.check()?;
        let rule = partitioning.rule.expect("it was checked");
        Ok((self, rule))
    }

    /// Refuses wrong settings and names.
    pub(super) fn check(&self) -> Result<()> {
        let mut faults = self.faults.clone();
        let mut check = KeyspaceSettings::default();
        for (name, value) in &self.given {
            if let Err(Error::Invalid { faults: more }) = check.set(name, *value) {
                faults.extend(more);
            }
        }
        if let Err(Error::Invalid { faults: more }) = check.validate() {
            faults.extend(more);
        }
        if self.name.is_empty() || self.name.len() > 255 {
            faults.push(format!("a keyspace's name has 1 to 255 bytes, not {}", self.name.len()));
        }
        if faults.is_empty() { Ok(()) } else { Err(Error::Invalid { faults }) }
    }
}

/// A named map of the store. Clones are handles of the same keyspace; threads may share them.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let users = db.ordered("users").open()?;
/// let same = users.clone();
/// std::thread::spawn(move || same.put(b"ann", b"1")).join().unwrap()?;
/// assert!(users.contains(b"ann")?);
/// # Ok(()) }
/// ```
pub struct Keyspace<K> {
    handle: Arc<Handle>,
    keyspace: Arc<keyspace::KeyspaceState>,
    kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for Keyspace<K> {
    /// Prints the name of the keyspace and the directory of its store.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, store) = (self.keyspace.full_name(), self.handle.storage().path());
        f.debug_struct("Keyspace").field("name", &name).field("store", &store).finish()
    }
}

impl<K> Clone for Keyspace<K> {
    fn clone(&self) -> Self {
        Keyspace::new(&self.handle, Arc::clone(&self.keyspace))
    }
}

/// The tree that a single write goes to.
enum OneTree {
    Of(Arc<keyspace::KeyspaceState>),
    /// The delete has no partition, so there is nothing to delete.
    None,
    /// The write may span several partitions, or make one.
    Several,
}

thread_local! {
    /// A reusable buffer for the encoding of a single write. The buffer is taken out while in use: a nested
    /// write, from a logger for example, uses a buffer of its own.
    static ONE: Cell<BatchItems> = Cell::default();
}

impl<K> Keyspace<K> {
    pub(crate) fn new(handle: &Arc<Handle>, keyspace: Arc<keyspace::KeyspaceState>) -> Keyspace<K> {
        Keyspace { handle: Arc::clone(handle), keyspace, kind: PhantomData }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(super) fn engine(&self) -> &keyspace::KeyspaceState {
        &self.keyspace
    }

    /// The two references that a future of this keyspace holds.
    pub(crate) fn parts(&self) -> (Arc<Handle>, Arc<keyspace::KeyspaceState>) {
        (Arc::clone(&self.handle), Arc::clone(&self.keyspace))
    }

    /// A stand-in for reads at a snapshot of another store, the store of `handle`. Its reads fail with
    /// `Invalid`.
    pub(crate) fn stand_in(&self, handle: &Arc<Handle>) -> Keyspace<K> {
        Keyspace::new(handle, handle.stand_in(&self.keyspace))
    }

    /// The engine's keyspace; `Dropped` if it was dropped.
    pub(crate) fn live(&self) -> Result<&keyspace::KeyspaceState> {
        self.keyspace.check_live()?;
        Ok(&self.keyspace)
    }

    /// Name of the keyspace; for a partition, the name of its keyspace.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// assert_eq!(db.ordered("users").open()?.name(), "users");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        &self.keyspace.name
    }

    /// Name of the partition within its keyspace, if this handle is of a partition; see [`Partitioned`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// assert_eq!(db.ordered("users").open()?.partition_name(), None);
    /// # Ok(()) }
    /// ```
    pub fn partition_name(&self) -> Option<&[u8]> {
        self.keyspace.partition_name()
    }

    /// Writes `value` under `key`, and replaces any earlier value.
    ///
    /// # Errors
    /// `TooLarge` for a key over 65,535 bytes or a value over 1 MiB, `Full` while the disk is full,
    /// `Dropped`, `ReadOnly`, `Latched`, `Io`. After an error the write is not visible.
    ///
    /// # Cost
    /// One append to the log, shared with concurrent writers. With [`Durability::Sync`](super::Durability)
    /// also one sync.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// users.put("bob", vec![2])?;
    /// # Ok(()) }
    /// ```
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write_one((ItemKind::Put, key.as_ref(), value.as_ref()), None)
    }

    /// As [`Keyspace::put`], acknowledged as `durability` says.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let before = db.stats().io.syncs;
    /// users.put_with(b"ann", b"1", trine::Durability::Sync)?;
    /// assert!(db.stats().io.syncs > before);
    /// # Ok(()) }
    /// ```
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.write_one((ItemKind::Put, key.as_ref(), value.as_ref()), Some(durability.until()))
    }

    /// Removes `key`; no error if the key does not exist.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// users.delete(b"ann")?;
    /// assert!(!users.contains(b"ann")?);
    /// # Ok(()) }
    /// ```
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write_one((ItemKind::Delete, key.as_ref(), &[]), None)
    }

    /// As [`Keyspace::delete`], acknowledged as `durability` says.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// users.delete_with(b"ann", trine::Durability::Sync)?;
    /// assert!(!users.contains(b"ann")?);
    /// # Ok(()) }
    /// ```
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.write_one((ItemKind::Delete, key.as_ref(), &[]), Some(durability.until()))
    }

    /// Removes every key. The keyspace, its settings and its handles stay.
    ///
    /// A clear is one write, of any number of keys. It is ordered and durable like any other write, and can
    /// be part of a [`Batch`](super::Batch::clear_keyspace). When it returns the keys are gone, also after a
    /// crash of the process; after power loss, as the write's durability says. Older snapshots still see
    /// them.
    ///
    /// Their space on disk comes back soon, after the next flush at the latest if nothing reads them;
    /// [`Db::flush`](super::Db::flush) starts one at once. Tables of any size are then dropped without being
    /// read. Tables that a snapshot sees stay until the snapshot is dropped. A file that also has items of
    /// other keyspaces, as flushes write them, stays until merges have moved those items.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    ///
    /// # Cost
    /// As [`Keyspace::put`]. The next flush makes one more edit of the manifest.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let sessions = db.ordered("sessions").open()?;
    /// sessions.put(b"ann", b"1")?;
    /// let before = db.snapshot();
    /// sessions.clear()?;
    /// sessions.put(b"bob", b"2")?;
    /// assert!(!sessions.contains(b"ann")? && sessions.contains(b"bob")?);
    /// assert!(sessions.at(&before).contains(b"ann")?);
    /// # Ok(()) }
    /// ```
    pub fn clear(&self) -> Result<()> {
        self.write_one((ItemKind::DeleteRange, &[], &[]), None)
    }

    fn write_one(&self, (kind, key, value): (ItemKind, &[u8], &[u8]), until: Option<Until>) -> Result<()> {
        let keyspace = self.live()?;
        let key = &*self.stored_to_write(kind, key)?;
        let tree = if keyspace.is_divided_by_keys() {
            match self.partition_for((kind, key, value))? {
                OneTree::Of(partition) => partition.tree,
                OneTree::None => return self.handle.write(&BatchItems::default(), until),
                OneTree::Several => return self.write_routed((kind, key, value), until),
            }
        } else {
            keyspace.tree
        };
        // A write from the destructor of another thread-local may find `ONE` destroyed, and then uses a fresh
        // buffer.
        let mut items = ONE.try_with(Cell::take).unwrap_or_default();
        items.clear();
        let written = items.push(tree, kind, key, value).and_then(|()| self.handle.write(&items, until));
        // If `ONE` is destroyed the buffer is dropped.
        let _ = ONE.try_with(|one| one.set(items));
        written
    }

    /// The tree that a single write goes to, in a keyspace that is divided by its keys.
    fn partition_for(&self, (kind, key, value): (ItemKind, &[u8], &[u8])) -> Result<OneTree> {
        let partitions = self.keyspace.partitions().expect("it is divided");
        if kind == ItemKind::DeleteRange {
            return Ok(OneTree::Several);
        }
        if kind == ItemKind::Put {
            // A put that is refused makes no partition.
            check_item(key, value)?;
        }
        Ok(match partitions.get(&self.keyspace.name_of(key)?) {
            // The manifest may not have the partition yet: the log record must begin with its entry.
            Some(partition) if partition.made().is_some() => OneTree::Several,
            Some(partition) => OneTree::Of(partition),
            None if kind == ItemKind::Delete => OneTree::None,
            None => OneTree::Several,
        })
    }

    fn write_routed(&self, (kind, key, value): (ItemKind, &[u8], &[u8]), until: Option<Until>) -> Result<()> {
        let (mut items, mut keyspaces) = (BatchItems::default(), Keyspaces::default());
        items.push(self.keyspace.tree, kind, key, value)?;
        keyspaces.add(self.parts().1);
        let divided = [Arc::clone(&self.keyspace)];
        self.handle.write_routed(&Unrouted { items: &items, keyspaces: &keyspaces, divided: &divided }, until)
    }

    /// The value under `key`, copied.
    ///
    /// # Errors
    /// `Corrupt` if a block it needs is damaged, `Io` if one cannot be read, `Dropped`.
    ///
    /// # Cost
    /// No device read if the memtable or the cache has the key; else one, and rarely more. No lock, one
    /// allocation.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// assert_eq!(users.get(b"ann")?.as_deref(), Some(&b"1"[..]));
    /// assert_eq!(users.get(b"bob")?, None);
    /// # Ok(()) }
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.lookup((key.as_ref(), GetMode::Value), None, |value| value.map(Value::copy))
    }

    /// Passes the value under `key` to `take`, and returns the result of `take`.
    ///
    /// `take` may be slow, and may read and write: meanwhile the store pins only the value.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    ///
    /// # Cost
    /// As [`Keyspace::get`], without the allocation. A value of up to 512 bytes, or one still in a write
    /// buffer, is copied. A longer value is passed as a reference into the cache, which pins its block
    /// meanwhile.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"12")?;
    /// assert_eq!(users.get_with(b"ann", |value| value.len())?, Some(2));
    /// # Ok(()) }
    /// ```
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, take: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.lookup_apart(key.as_ref(), None, |value| value.map(take))
    }

    /// Replaces the contents of `buffer` by the value under `key`. Returns `false` if there is no value;
    /// `buffer` is then empty.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let mut buffer = Vec::new();
    /// assert!(users.get_into(b"ann", &mut buffer)?);
    /// assert_eq!(buffer, b"1");
    /// # Ok(()) }
    /// ```
    pub fn get_into(&self, key: impl AsRef<[u8]>, buffer: &mut Vec<u8>) -> Result<bool> {
        self.lookup((key.as_ref(), GetMode::Value), None, |value| {
            buffer.clear();
            buffer.extend_from_slice(value.unwrap_or_default());
            value.is_some()
        })
    }

    /// Whether `key` exists.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    ///
    /// # Cost
    /// As [`Keyspace::get`], without the allocation. A value of 16 KiB or more is not read if its key has at
    /// most 128 bytes.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// assert!(!users.contains(b"ann")?);
    /// # Ok(()) }
    /// ```
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.lookup((key.as_ref(), GetMode::Presence), None, |value| value.is_some())
    }

    /// The values under `keys`, in the order of `keys`. There may be any number of keys, and duplicates.
    ///
    /// Blocks that are not in memory are read in parallel, so that one thread keeps a device busy. Lookups in
    /// memory are interleaved to hide cache misses of the processor. All values are of one moment.
    ///
    /// # Errors
    /// As [`Keyspace::get`], if one of the keys cannot be looked up.
    ///
    /// # Cost
    /// About 64 keys are looked up at a time. Each block is read once for all keys in it. One allocation for
    /// each value.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// users.put(b"bob", b"2")?;
    /// let found = users.multi_get(&["bob", "eve", "ann", "bob"])?;
    /// let found: Vec<Option<&[u8]>> = found.iter().map(|value| value.as_deref()).collect();
    /// assert_eq!(found, [Some(&b"2"[..]), None, Some(b"1"), Some(b"2")]);
    /// # Ok(()) }
    /// ```
    pub fn multi_get<Q: AsRef<[u8]>>(&self, keys: &[Q]) -> Result<Vec<Option<Value>>> {
        self.lookup_many(keys, None)
    }

    /// As [`Keyspace::multi_get`], without allocations: passes each value, or `None`, to `take` with the
    /// index of its key, in no particular order.
    ///
    /// `take` may be slow, and may read and write: meanwhile the store pins only the values of 64 keys.
    ///
    /// # Errors
    /// As [`Keyspace::multi_get`]; `take` may have received some values before the error.
    ///
    /// # Cost
    /// As [`Keyspace::multi_get`], without an allocation for each value. Values are copied, or passed as
    /// references into the cache, as by [`Keyspace::get_with`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// users.put(b"bob", b"12")?;
    /// let mut lengths = [None; 3];
    /// users.multi_get_with(&["bob", "eve", "ann"], |index, value| lengths[index] = value.map(<[u8]>::len))?;
    /// assert_eq!(lengths, [Some(2), None, Some(1)]);
    /// # Ok(()) }
    /// ```
    pub fn multi_get_with<Q: AsRef<[u8]>>(
        &self,
        keys: &[Q],
        take: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.lookup_many_apart(keys, None, take)
    }

    pub(crate) fn lookup_many<Q: AsRef<[u8]>>(
        &self,
        keys: &[Q],
        at: Option<&Point>,
    ) -> Result<Vec<Option<Value>>> {
        let mut values = vec![None; keys.len()];
        let take = |index: usize, value: Option<&[u8]>| values[index] = value.map(Value::copy);
        let keyspace = self.readable(at)?;
        match keyspace.id.is_hashed() {
            true => self.handle.multi_get(keyspace, &self.all_stored(keys), at, take)?,
            false => self.handle.multi_get(keyspace, keys, at, take)?,
        }
        Ok(values)
    }

    pub(crate) fn lookup_many_apart<Q: AsRef<[u8]>>(
        &self,
        keys: &[Q],
        at: Option<&Point>,
        take: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let keyspace = self.readable(at)?;
        match keyspace.id.is_hashed() {
            true => self.handle.multi_get_apart(keyspace, &self.all_stored(keys), at, take),
            false => self.handle.multi_get_apart(keyspace, keys, at, take),
        }
    }

    fn all_stored<'k, Q: AsRef<[u8]>>(&self, keys: &'k [Q]) -> Vec<StoredKey<'k>> {
        keys.iter().map(|key| self.stored(key.as_ref())).collect()
    }

    /// The keyspace, if it may be read, now or as of the point.
    fn readable(&self, at: Option<&Point>) -> Result<&keyspace::KeyspaceState> {
        match at {
            Some(point) => range::live_at(&self.handle, &self.keyspace, point).map(|()| &*self.keyspace),
            None => self.live(),
        }
    }

    pub(crate) fn lookup<R>(
        &self,
        (key, wants): (&[u8], GetMode),
        at: Option<&Point>,
        take: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        self.handle.get(self.readable(at)?, (&self.stored(key), wants), at, &mut NoTrace, take)
    }

    pub(crate) fn lookup_apart<R>(
        &self,
        key: &[u8],
        at: Option<&Point>,
        take: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        self.handle.get_apart(self.readable(at)?, &self.stored(key), at, take)
    }

    /// As [`Keyspace::get`], with the cost of each of its eight steps.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let (value, trace) = users.trace(b"ann")?;
    /// assert!(value.is_some());
    /// assert_eq!((trace.steps.len(), trace.steps[0].name, trace.steps[0].count), (8, "MtGet", 1));
    /// # Ok(()) }
    /// ```
    pub fn trace(&self, key: impl AsRef<[u8]>) -> Result<(Option<Value>, Trace)> {
        let mut timer = self.handle.stage_timer();
        let found = self.handle.get(
            self.live()?,
            (&self.stored(key.as_ref()), GetMode::Value),
            None,
            &mut timer,
            |value| value.map(Value::copy),
        )?;
        let steps = timer.finish().into_iter();
        let steps = steps.map(|(stage, cost)| TraceStep {
            name: stage.name(),
            ns: cost.ns,
            bytes: cost.bytes,
            count: cost.count,
        });
        Ok((found, Trace { steps: steps.collect() }))
    }

    /// Gets the key, and reports the places searched, the outcome of each, and the cost.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// db.flush()?;
    /// users.delete(b"ann")?;
    /// for step in users.explain(b"ann")?.steps {
    ///     println!("{} {} {}: {} ({} ns)", step.name, step.file, step.run, step.said, step.ns);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        let mut explainer = Explainer::new(Arc::clone(self.handle.clock()));
        let (keyspace, key) = (self.live()?, key.as_ref());
        let wanted = (&*self.stored(key), GetMode::Value);
        let found = self.handle.get(keyspace, wanted, None, &mut explainer, |value| value.map(<[u8]>::len));
        let length = found?.map(|bytes| bytes as u64);
        let by_key = match keyspace.partitions() {
            Some(partitions) => Some(partitions.rule.name_of(key)?.into_owned()),
            None => None,
        };
        let partition = keyspace.partition_name().map(<[u8]>::to_vec).or(by_key);
        Ok(Explanation { partition, ..explainer.finish(length) })
    }

    /// The same reads as of `snapshot`. If the snapshot is of another open store, each read fails with
    /// `Invalid`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let at = db.snapshot();
    /// users.delete(b"ann")?;
    /// assert!(users.at(&at).contains(b"ann")?);
    /// # Ok(()) }
    /// ```
    pub fn at(&self, snapshot: &Snapshot) -> KeyspaceAt<K> {
        KeyspaceAt::new(self.clone(), snapshot)
    }

    /// Flushes, then merges this keyspace into one run without overwritten items and tombstones, and waits
    /// until that is done. A hashed keyspace becomes such a run for each leaf of its trie.
    /// [`Db::compact`](super::Db::compact) merges all keyspaces.
    ///
    /// # Errors
    /// `Dropped`, `ReadOnly`, `Latched`, `Full`, `Corrupt`, `Io`.
    ///
    /// # Cost
    /// Reads and writes the keyspace once. The flush is of the whole store.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let users = db.ordered("users").open()?;
    /// for value in [b"1", b"2"] {
    ///     users.put(b"ann", value)?;
    ///     db.flush()?;
    /// }
    /// users.compact()?;
    /// assert_eq!(users.stats()?.items, 1);
    /// # Ok(()) }
    /// ```
    pub fn compact(&self) -> Result<()> {
        self.handle.compact_keyspace(self.live()?, (Vec::new(), Vec::new()))
    }

    /// Every setting of the keyspace, with its default and its meaning.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let bits = users.settings().into_iter().find(|one| one.name == "filter_bits_per_key").unwrap();
    /// assert_eq!((bits.value, bits.min, bits.max), (bits.default, 0, 24));
    /// # Ok(()) }
    /// ```
    pub fn settings(&self) -> Vec<SettingValue> {
        self.keyspace.settings().values().into_iter().map(SettingValue::new).collect()
    }

    /// Counters and sizes of this keyspace.
    ///
    /// # Errors
    /// `Dropped`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// assert_eq!(users.stats()?.tables, 0);
    /// # Ok(()) }
    /// ```
    pub fn stats(&self) -> Result<KeyspaceStats> {
        Ok(self.handle.keyspace_stats(self.live()?))
    }
}

impl Keyspace<Ordered> {
    /// Items whose keys lie in `range`, in order, from either end, as of the moment of the call.
    ///
    /// # Cost
    /// One seek a run; then one device read per block of items, unless the block is cached. This call reads
    /// the first 16 items if they are in memory. A key or value of more than 30 bytes costs an allocation; a
    /// [`cursor`](Keyspace::cursor) allocates none.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// for name in ["ann", "bob", "eve"] {
    ///     users.put(name, b"")?;
    /// }
    /// let names: Vec<_> = users.range("b"..).map(|item| item.map(|(key, _)| key)).collect();
    /// assert_eq!(names.len(), 2);
    /// let (last, _) = users.range("a"..="bob").next_back().unwrap()?;
    /// assert_eq!(last, b"bob"[..]);
    /// # Ok(()) }
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Range {
        Range::new(&self.handle, &self.keyspace, None, range.into_bounds())
    }

    /// Items whose keys begin with `prefix`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("user/ann", b"")?;
    /// users.put("zone/eu", b"")?;
    /// assert_eq!(users.prefix("user/").count(), 1);
    /// # Ok(()) }
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        Range::new(&self.handle, &self.keyspace, None, range::of_prefix(prefix.as_ref()))
    }

    /// All items.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// assert!(users.iter().next().is_none());
    /// # Ok(()) }
    /// ```
    pub fn iter(&self) -> Range {
        Range::new(&self.handle, &self.keyspace, None, range::all())
    }

    /// Whether there is no key. Searches for the first key.
    ///
    /// # Errors
    /// As [`Keyspace::first`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// assert!(users.is_empty()?);
    /// users.put(b"ann", b"1")?;
    /// assert!(!users.is_empty()?);
    /// # Ok(()) }
    /// ```
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.first()?.is_none())
    }

    /// Every key, in order, from either end.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// users.put(b"bob", b"2")?;
    /// let keys: Vec<trine::Value> = users.keys().collect::<trine::Result<_>>()?;
    /// assert_eq!(keys, [b"ann", b"bob"]);
    /// # Ok(()) }
    /// ```
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = Result<Value>> + use<> {
        self.iter().map(|item| item.map(|(key, _)| key))
    }

    /// The item with the least key.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    ///
    /// # Cost
    /// One seek a run, and an allocation for a key or value of more than 30 bytes.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// assert_eq!(users.first()?, None);
    /// users.put("bob", "2")?;
    /// users.put("ann", "1")?;
    /// let (name, value) = users.first()?.unwrap();
    /// assert_eq!((&*name, &*value), (&b"ann"[..], &b"1"[..]));
    /// # Ok(()) }
    /// ```
    pub fn first(&self) -> Result<Option<(Value, Value)>> {
        range::first_item(&self.handle, &self.keyspace, None, Direction::Forward)
    }

    /// The item with the greatest key.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    ///
    /// # Cost
    /// As [`Keyspace::first`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("bob", "2")?;
    /// users.put("ann", "1")?;
    /// assert_eq!(users.last()?.map(|(name, _)| name.to_vec()).as_deref(), Some(&b"bob"[..]));
    /// # Ok(()) }
    /// ```
    pub fn last(&self) -> Result<Option<(Value, Value)>> {
        range::first_item(&self.handle, &self.keyspace, None, Direction::Backward)
    }

    /// The approximate size of a range in table files, in bytes on disk: every version and delete in the
    /// range, with filters and indexes. Writes still in memory are not counted. Deleted items are counted
    /// until merges remove them.
    ///
    /// It counts whole blocks: up to one block too many at each end of the range in each run, or about a
    /// hundred where the index of a table is not in memory.
    ///
    /// # Errors
    /// `Dropped`, `Closed`; `TooLarge` for a bound longer than a key may be.
    ///
    /// # Cost
    /// No device read: a search of the indexes of two tables a run, and a sum over the tables between them.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let events = db.ordered("events").open()?;
    /// for number in 0..10_000u32 {
    ///     events.put(number.to_be_bytes(), [0; 100])?;
    /// }
    /// db.flush()?;
    /// let all = events.approximate_size(..)?;
    /// let tenth = events.approximate_size(1000u32.to_be_bytes()..2000u32.to_be_bytes())?;
    /// assert!(all > 1_000_000 && tenth > all / 20 && tenth < all / 5);
    /// # Ok(()) }
    /// ```
    pub fn approximate_size(&self, range: impl KeyRange) -> Result<u64> {
        let keyspace = self.live()?;
        let keys = range::half_open(range)?;
        Ok(keys.map_or(0, |(start, end)| self.handle.approximate_bytes(keyspace, (&start, &end))))
    }

    /// As [`Keyspace::compact`], for a range: its items are merged into one run without overwritten items and
    /// tombstones. Waits until that is done.
    ///
    /// Tables are merged whole, and all tables of level 0, the newest, are merged together. So some keys
    /// outside the range are merged too. The space of items deleted in the range is freed.
    ///
    /// # Errors
    /// As [`Keyspace::compact`]; `TooLarge` for a bound longer than a key may be.
    ///
    /// # Cost
    /// Reads and writes the tables that have keys of the range. The flush is of the whole store.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let events = db.ordered("events").open()?;
    /// for day in ["2026-01-01/a", "2026-01-01/b", "2026-01-02/a"] {
    ///     events.put(day, b"")?;
    /// }
    /// events.delete("2026-01-01/a")?;
    /// events.compact_range("2026-01-01".."2026-01-02")?;
    /// assert_eq!(events.iter().count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        let keyspace = self.live()?;
        match range::half_open(range)? {
            Some(keys) => self.handle.compact_keyspace(keyspace, keys),
            None => Ok(()),
        }
    }

    /// Begins to load sorted items directly into tables, bypassing the log and the write buffer; see
    /// [`Ingest`].
    ///
    /// # Errors
    /// `Invalid` if a function of keys divides the keyspace, `Dropped`, `ReadOnly`, `Latched`, `Closed`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("bob", "old")?;
    /// let mut ingest = users.ingest()?;
    /// for (name, value) in [("ann", "1"), ("bob", "2"), ("eve", "3")] {
    ///     ingest.put(name, value)?;
    /// }
    /// assert_eq!(users.get("bob")?.as_deref(), Some(&b"old"[..]));
    /// ingest.finish()?;
    /// assert_eq!(users.get("bob")?.as_deref(), Some(&b"2"[..]));
    /// # Ok(()) }
    /// ```
    pub fn ingest(&self) -> Result<Ingest> {
        Ingest::begin(&self.handle, &self.keyspace)
    }

    /// The approximate number of keys. [`Keyspace::exact_len`] counts them.
    ///
    /// Items in write buffers are counted key by key: a key once, by its newest version, and not again if a
    /// table's filter has it. For tables only the numbers of puts and deletes are known, so the estimate has
    /// these errors:
    ///
    /// - a key in several tables counts once in each, until a merge joins them;
    /// - a delete in a table counts as one key less, though the key may be in no table below;
    /// - items that a range delete hides count, in a table that extends beyond the range, until a merge
    ///   removes them;
    /// - a filter has a false positive for about one key in a hundred. A filter that is not in memory is not
    ///   asked: then a put counts as a new key, and a delete as a delete of an existing key.
    ///
    /// The number is exact while all items are in write buffers, and after
    /// [`Db::compact`](super::Db::compact) if nothing was written since. It is 0 after [`Keyspace::clear`].
    ///
    /// # Errors
    /// `Dropped`, `Closed`.
    ///
    /// # Cost
    /// No device read. The time is proportional to the number of tables and to the items in write buffers,
    /// each of which is looked up in the filters of its tables.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", "1")?;
    /// users.put("bob", "2")?;
    /// assert_eq!(users.approximate_len()?, 2);
    /// # Ok(()) }
    /// ```
    pub fn approximate_len(&self) -> Result<u64> {
        let keyspace = self.live()?;
        Ok(self.handle.approximate_len(&self.handle.point(), keyspace))
    }

    /// The exact number of keys at the moment of the call, by counting them all. `progress` is called from
    /// time to time with the count so far.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    ///
    /// # Cost
    /// Reads every table once. Concurrent writes are neither seen nor blocked.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", "1")?;
    /// users.put("bob", "2")?;
    /// users.put("bob", "3")?;
    /// assert_eq!(users.exact_len(|counted| println!("{counted} so far"))?, 2);
    /// # Ok(()) }
    /// ```
    pub fn exact_len(&self, progress: impl FnMut(u64)) -> Result<u64> {
        self.live()?;
        range::counted(self.cursor(..), progress)
    }

    /// A cursor over the items of `range`. It lends keys and values, moves in both directions and seeks.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// for name in ["ann", "bob", "eve"] {
    ///     users.put(name, b"")?;
    /// }
    /// let mut cursor = users.cursor(..);
    /// cursor.seek("b")?;
    /// assert_eq!(cursor.next()?.map(|(key, _)| key), Some(&b"bob"[..]));
    /// assert_eq!(cursor.next()?.map(|(key, _)| key), Some(&b"eve"[..]));
    /// assert_eq!(cursor.prev()?.map(|(key, _)| key), Some(&b"bob"[..]));
    /// # Ok(()) }
    /// ```
    pub fn cursor(&self, range: impl KeyRange) -> Cursor {
        Cursor::new(&self.handle, &self.keyspace, None, range.into_bounds())
    }

    /// Removes every key of a range.
    ///
    /// The cost is that of one write, for any number of items. Later reads and scans spend no time on the
    /// removed items. The space of tables that lie wholly in the range comes back after the next flush at the
    /// latest, without a read of them; merges free the space at the ends of the range. An empty range writes
    /// nothing. In a keyspace that is divided by its keys the write has one range tombstone for each
    /// partition in the range.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let events = db.ordered("events").open()?;
    /// events.put("2025-12-31", b"old")?;
    /// events.put("2026-01-01", b"new")?;
    /// events.delete_range(.."2026")?;
    /// assert_eq!(events.iter().count(), 1);
    /// # Ok(()) }
    /// ```
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        match range::half_open(range)? {
            Some((start, end)) => self.write_one((ItemKind::DeleteRange, &start, &end), None),
            None => self.live().map(|_| ()),
        }
    }

    pub(crate) fn range_at(&self, at: &Arc<Point>, range: crate::read::scan::ScanRange) -> Range {
        Range::new(&self.handle, &self.keyspace, Some(at), range)
    }

    pub(crate) fn first_item_at(
        &self,
        at: &Arc<Point>,
        direction: Direction,
    ) -> Result<Option<(Value, Value)>> {
        range::first_item(&self.handle, &self.keyspace, Some(at), direction)
    }

    pub(crate) fn approximate_len_at(&self, at: &Point) -> Result<u64> {
        range::live_at(&self.handle, &self.keyspace, at)?;
        Ok(self.handle.approximate_len(at, &self.keyspace))
    }

    pub(crate) fn cursor_at(&self, at: &Arc<Point>, range: crate::read::scan::ScanRange) -> Cursor {
        Cursor::new(&self.handle, &self.keyspace, Some(at), range)
    }
}
