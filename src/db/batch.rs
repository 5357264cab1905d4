//! Batches: atomic groups of writes.

use crate::base::error::{Error, Result};
use crate::base::id::ItemKind;
use crate::base::sync::Arc;
use crate::engine::commit::async_writes::AsyncItems;
use crate::engine::commit::routing::{RoutedSize, Unrouted};
use crate::engine::publish::keyspace;
use crate::write::batch::{BatchItems, Keyspaces};

use super::handle::Handle;
use super::key_range::KeyRange;
use super::range::half_open;
use super::{Durability, Keyspace, Ordered};

/// Writes to any keyspaces of one store that become visible and durable together, or not at all.
///
/// Later writes of a key in a batch win over earlier ones. A batch that is dropped writes nothing.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// let mut batch = db.batch();
/// batch.put(&users, b"ann", b"1")?;
/// batch.put(&users, b"ann", b"2")?;
/// assert!(!users.contains(b"ann")?);
/// batch.commit()?;
/// assert_eq!(users.get(b"ann")?.as_deref(), Some(&b"2"[..]));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Batch {
    handle: Arc<Handle>,
    /// The encoded writes. A waiting commit shares them with the group leader that writes them.
    items: Arc<BatchItems>,
    /// The keyspaces of the items.
    keyspaces: Keyspaces,
    /// The keyspaces of the items that are divided by keys.
    divided: Vec<Arc<keyspace::KeyspaceState>>,
    routed_size: RoutedSize,
}

impl Batch {
    pub(crate) fn new(handle: &Arc<Handle>) -> Batch {
        let (handle, items, keyspaces) = (Arc::clone(handle), Arc::default(), Keyspaces::default());
        Batch { handle, items, keyspaces, divided: Vec::new(), routed_size: RoutedSize::default() }
    }

    pub(super) fn into_parts(self) -> (Arc<Handle>, AsyncItems) {
        let Batch { handle, items, keyspaces, divided, .. } = self;
        (handle, AsyncItems { items, keyspaces, divided })
    }

    /// Adds a write of `value` under `key`.
    ///
    /// # Errors
    /// `TooLarge` for a key over 65,535 bytes or a value over 1 MiB; `Dropped`; `Invalid` for a keyspace of
    /// another store. The batch is then unchanged.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut batch = db.batch();
    /// batch.put(&users, b"ann", b"1")?;
    /// assert!(batch.put(&users, [0; 70_000], b"too large a key").is_err());
    /// batch.commit()?;
    /// assert_eq!(users.iter().count(), 1);
    /// # Ok(()) }
    /// ```
    pub fn put<K>(
        &mut self,
        keyspace: &Keyspace<K>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.push(keyspace, ItemKind::Put, key.as_ref(), value.as_ref())
    }

    /// Adds a removal of `key`.
    ///
    /// # Errors
    /// As [`Batch::put`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let mut batch = db.batch();
    /// batch.delete(&users, b"ann")?;
    /// batch.commit()?;
    /// assert!(!users.contains(b"ann")?);
    /// # Ok(()) }
    /// ```
    pub fn delete<K>(&mut self, keyspace: &Keyspace<K>, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(keyspace, ItemKind::Delete, key.as_ref(), &[])
    }

    /// Adds a removal of every key of a range that was written before, also earlier in the batch. Later
    /// writes of the batch stay. An empty range adds nothing.
    ///
    /// # Errors
    /// As [`Batch::put`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut batch = db.batch();
    /// batch.put(&users, "ann", b"1")?;
    /// batch.delete_range(&users, "a".."c")?;
    /// batch.put(&users, "bob", b"2")?;
    /// batch.commit()?;
    /// assert!(!users.contains("ann")? && users.contains("bob")?);
    /// # Ok(()) }
    /// ```
    pub fn delete_range(&mut self, keyspace: &Keyspace<Ordered>, range: impl KeyRange) -> Result<()> {
        match half_open(range)? {
            Some((start, end)) => self.push(keyspace, ItemKind::DeleteRange, &start, &end),
            None => Ok(()),
        }
    }

    /// Adds a removal of every key of a keyspace that was written before, also earlier in the batch. Later
    /// writes of the batch stay, so a batch can replace the contents of a keyspace. See [`Keyspace::clear`].
    ///
    /// # Errors
    /// As [`Batch::put`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", b"1")?;
    /// let mut batch = db.batch();
    /// batch.clear_keyspace(&users)?;
    /// batch.put(&users, "bob", b"2")?;
    /// batch.commit()?;
    /// assert!(!users.contains("ann")? && users.contains("bob")?);
    /// # Ok(()) }
    /// ```
    pub fn clear_keyspace<K>(&mut self, keyspace: &Keyspace<K>) -> Result<()> {
        self.push(keyspace, ItemKind::DeleteRange, &[], &[])
    }

    fn push<K>(&mut self, keyspace: &Keyspace<K>, kind: ItemKind, key: &[u8], value: &[u8]) -> Result<()> {
        if !Arc::ptr_eq(&self.handle, keyspace.handle()) {
            let fault =
                format!("keyspace {:?} belongs to another open store than the batch", keyspace.name());
            return Err(Error::Invalid { faults: vec![fault] });
        }
        let tree = keyspace.live()?.tree;
        if let Some(partitions) = keyspace.engine().partitions() {
            partitions.rule.check_routed()?;
        }
        let key = keyspace.stored_to_write(kind, key)?;
        Arc::make_mut(&mut self.items).push(tree, kind, &key, value)?;
        let keyspace = keyspace.parts().1;
        if keyspace.is_divided_by_keys() {
            self.routed_size.note(&keyspace, (kind, &key, value))?;
            if !self.divided.iter().any(|one| Arc::ptr_eq(one, &keyspace)) {
                self.divided.push(Arc::clone(&keyspace));
            }
        }
        self.keyspaces.add(keyspace);
        Ok(())
    }

    /// Number of writes in the batch.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut batch = db.batch();
    /// batch.put(&users, b"ann", b"1")?;
    /// batch.delete(&users, b"ann")?;
    /// assert_eq!(batch.len(), 2);
    /// # Ok(()) }
    /// ```
    pub fn len(&self) -> usize {
        self.items.count()
    }

    /// Whether the batch has no writes.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut batch = db.batch();
    /// assert!(batch.is_empty());
    /// batch.delete(&users, b"ann")?;
    /// assert!(!batch.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn is_empty(&self) -> bool {
        self.items.count() == 0
    }

    /// Size of the batch in the log, in bytes: keys and values, and 11 to 15 bytes for each write.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut batch = db.batch();
    /// batch.put(&users, b"ann", b"12")?;
    /// assert_eq!(batch.bytes(), 5 + 11);
    /// # Ok(()) }
    /// ```
    pub fn bytes(&self) -> usize {
        self.items.payload().len()
    }

    /// Maximum size of the batch in memory, in bytes: keys and values, and about 40 bytes for each write.
    /// This size is limited by [`Stats::batch_bytes_max`](crate::Stats), about a quarter of `memory_bytes`.
    /// Where keys divide a keyspace, each partition takes some more. A range delete is then a write to each
    /// partition of the range, also to partitions made before the commit.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut batch = db.batch();
    /// batch.put(&users, b"ann", b"12")?;
    /// assert!(batch.memory_bytes() as u64 <= db.stats().batch_bytes_max);
    /// # Ok(()) }
    /// ```
    pub fn memory_bytes(&self) -> usize {
        self.routed_size.memory_bytes(&self.items)
    }

    /// Whether [`Batch::commit`] accepts a batch of this size: the same check, in advance and at no cost.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut batch = db.batch();
    /// for number in 0..1000u32 {
    ///     batch.put(&users, number.to_be_bytes(), b"one of many")?;
    ///     if !batch.fits() {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(batch.len(), 1000);
    /// batch.commit()?;
    /// # Ok(()) }
    /// ```
    pub fn fits(&self) -> bool {
        self.handle.check_routed(&self.items, &self.routed_size).is_ok()
    }

    /// Removes all writes from the batch and keeps its memory for new ones. To empty a keyspace use
    /// [`Batch::clear_keyspace`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut batch = db.batch();
    /// batch.put(&users, b"ann", b"1")?;
    /// batch.clear();
    /// batch.commit()?;
    /// assert!(!users.contains(b"ann")?);
    /// # Ok(()) }
    /// ```
    pub fn clear(&mut self) {
        match Arc::get_mut(&mut self.items) {
            Some(items) => items.clear(),
            // The thread that wrote the items still holds a reference, which it drops soon.
            None => self.items = Arc::default(),
        }
        self.keyspaces.clear();
        self.divided.clear();
        self.routed_size = RoutedSize::default();
    }

    /// Writes the batch, with the store's durability. Afterwards the batch is empty and can be reused. After
    /// an error it is unchanged.
    ///
    /// # Errors
    /// `TooLarge` if it is over its limit ([`Batch::fits`]), `Full` while the disk is full, `Dropped` if one
    /// of its keyspaces was dropped, even if a new keyspace has the same name, `ReadOnly`, `Latched`, `Io`.
    /// After an error no write of the batch is visible.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut batch = db.batch();
    /// batch.put(&users, b"ann", b"1")?;
    /// batch.put(&users, b"bob", b"2")?;
    /// batch.commit()?;
    /// assert!(batch.is_empty());
    /// assert_eq!(users.iter().count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn commit(&mut self) -> Result<()> {
        self.write(None)
    }

    /// As [`Batch::commit`], acknowledged as `durability` says.
    ///
    /// # Errors
    /// As [`Batch::commit`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut batch = db.batch();
    /// batch.put(&users, b"ann", b"1")?;
    /// batch.delete(&users, b"bob")?;
    /// batch.commit_with(trine::Durability::Sync)?;
    /// assert!(batch.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn commit_with(&mut self, durability: Durability) -> Result<()> {
        self.write(Some(durability))
    }

    fn write(&mut self, durability: Option<Durability>) -> Result<()> {
        let until = durability.map(Durability::until);
        if self.divided.is_empty() {
            self.handle.write_batch(&self.items, &self.keyspaces, until)?;
        } else {
            let Batch { items, keyspaces, divided, .. } = self;
            self.handle.write_routed(&Unrouted { items, keyspaces, divided }, until)?;
        }
        self.clear();
        Ok(())
    }
}
