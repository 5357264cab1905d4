//! Batches: writes that happen together.

use crate::base::error::{Error, Result};
use crate::base::id::ItemKind;
use crate::base::sync::Arc;
use crate::write::batch::Items;

use super::{Durability, Handle, Keyspace};

/// Writes to any keyspaces of one store that become visible and durable together, or not at all.
///
/// Later writes of a key in a batch win over earlier ones. A batch that is dropped writes nothing.
#[derive(Debug)]
pub struct Batch {
    handle: Arc<Handle>,
    items: Items,
}

impl Batch {
    pub(crate) fn new(handle: &Arc<Handle>) -> Batch {
        Batch { handle: Arc::clone(handle), items: Items::default() }
    }

    /// Adds a write of `value` under `key`.
    ///
    /// # Errors
    /// `TooLarge` for a key over 65,535 bytes or a value over 1 MiB; `Dropped`; `Invalid` for a keyspace of
    /// another store. The batch is as before.
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
    pub fn delete<K>(&mut self, keyspace: &Keyspace<K>, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(keyspace, ItemKind::Delete, key.as_ref(), &[])
    }

    fn push<K>(&mut self, keyspace: &Keyspace<K>, kind: ItemKind, key: &[u8], value: &[u8]) -> Result<()> {
        if !Arc::ptr_eq(&self.handle, keyspace.handle()) {
            let fault =
                format!("keyspace {:?} belongs to another open store than the batch", keyspace.name());
            return Err(Error::Invalid { faults: vec![fault] });
        }
        self.items.push(keyspace.live()?.tree, kind, key, value)
    }

    /// Writes in the batch.
    pub fn len(&self) -> usize {
        self.items.count()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.items.count() == 0
    }

    /// Bytes of its keys and values.
    pub fn bytes(&self) -> usize {
        self.items.key_value_bytes()
    }

    /// Forgets its writes, keeping its memory for the next ones.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// Writes the batch, with the store's durability.
    ///
    /// # Errors
    /// `TooLarge` if it is over its limit ([`Stats::batch_bytes_max`](crate::Stats)), or has so many items that
    /// they and their index do not fit a write buffer; `Full` while the disk is full, `ReadOnly`, `Latched`,
    /// `Io`. Nothing of it is visible then.
    pub fn commit(self) -> Result<()> {
        self.handle.write(&self.items, None)
    }

    /// Writes the batch, acknowledged as `durability` says.
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
    /// assert_eq!((batch.len(), batch.bytes()), (2, 7));
    /// batch.commit_with(trine::Durability::Sync)?;
    /// # Ok(()) }
    /// ```
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        self.handle.write(&self.items, Some(durability.until()))
    }
}
