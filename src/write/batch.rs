//! Items on their way to the log: encoded and checked against the limits as they are added.

use crate::base::error::{Error, Result};
use crate::base::id::{ItemKind, KEY_BYTES_MAX, TreeId, VALUE_BYTES_MAX};
use crate::base::sync::Arc;
use crate::format::log::{MadePartition, put_item, put_partition};
use crate::memtable::BatchSize;

use super::large::note_tree;

/// A batch's items in the log's encoding.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchItems {
    payload: Vec<u8>,
    count: usize,
    /// Number of range tombstones among the items.
    ranges_count: usize,
    key_value_bytes: usize,
    /// Trees of the items, sorted.
    trees: Vec<TreeId>,
}

impl BatchItems {
    /// Adds an item, or refuses it and changes nothing. For a range delete `key` is the start and `value` the
    /// end; the caller ensures that the range is not empty.
    pub(crate) fn push(&mut self, tree: TreeId, kind: ItemKind, key: &[u8], value: &[u8]) -> Result<()> {
        check("key", key.len(), KEY_BYTES_MAX)?;
        let value_bytes_max = if kind == ItemKind::DeleteRange { KEY_BYTES_MAX } else { VALUE_BYTES_MAX };
        check("value", value.len(), value_bytes_max)?;
        put_item(&mut self.payload, tree, kind, key, value);
        self.count += 1;
        self.ranges_count += usize::from(kind == ItemKind::DeleteRange);
        self.key_value_bytes += key.len() + value.len();
        note_tree(&mut self.trees, tree);
        Ok(())
    }

    /// Puts the partitions that the record creates before the items. Called once, after all items were added.
    pub(crate) fn make_partitions<'m>(&mut self, made: impl IntoIterator<Item = MadePartition<'m>>) {
        let mut front = Vec::new();
        made.into_iter().for_each(|made| put_partition(&mut front, made));
        self.payload.splice(..0, front);
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether all items are range tombstones. Such a batch may free space on a full disk, and may use
    /// reserved space that other batches may not.
    pub(crate) fn frees(&self) -> bool {
        self.ranges_count > 0 && self.ranges_count == self.count
    }

    pub(crate) fn size(&self) -> BatchSize {
        BatchSize {
            items: self.count,
            ranges: self.ranges_count,
            key_value_bytes: self.key_value_bytes,
            trees: self.trees.len(),
        }
    }

    pub(crate) fn key_value_bytes(&self) -> usize {
        self.key_value_bytes
    }

    pub(crate) fn clear(&mut self) {
        self.payload.clear();
        self.trees.clear();
        (self.count, self.ranges_count, self.key_value_bytes) = (0, 0, 0);
    }
}

/// A keyspace as a commit sees it. The leader checks whether it may still be written.
pub(crate) trait Writable: Send + Sync + std::fmt::Debug {
    /// The keyspace's tree, which identifies it.
    fn tree(&self) -> TreeId;

    /// # Errors
    /// `Dropped`, or `Closed`.
    fn check_live(&self) -> Result<()>;
}

/// The keyspaces of a batch, without duplicates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspaces {
    by_tree: Vec<Arc<dyn Writable>>,
}

impl Keyspaces {
    /// The empty set, for a write that needs no check by the leader.
    pub(crate) const NONE: &'static Keyspaces = &Keyspaces { by_tree: Vec::new() };

    pub(crate) fn add(&mut self, keyspace: Arc<dyn Writable>) {
        if let Err(at) = self.by_tree.binary_search_by_key(&keyspace.tree(), |one| one.tree()) {
            self.by_tree.insert(at, keyspace);
        }
    }

    /// Replaces the entry with the same tree, or adds one.
    pub(crate) fn replace(&mut self, keyspace: Arc<dyn Writable>) {
        match self.by_tree.binary_search_by_key(&keyspace.tree(), |one| one.tree()) {
            Ok(at) => self.by_tree[at] = keyspace,
            Err(at) => self.by_tree.insert(at, keyspace),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.by_tree.clear();
    }

    /// # Errors
    /// `Dropped` or `Closed`, if one of the keyspaces may no longer be written.
    pub(crate) fn check_live(&self) -> Result<()> {
        self.by_tree.iter().try_for_each(|keyspace| keyspace.check_live())
    }
}

/// Refuses a key or value that is too long.
pub(crate) fn check_item(key: &[u8], value: &[u8]) -> Result<()> {
    check("key", key.len(), KEY_BYTES_MAX)?;
    check("value", value.len(), VALUE_BYTES_MAX)
}

fn check(what: &'static str, given: usize, limit: usize) -> Result<()> {
    if given > limit {
        return Err(Error::TooLarge { what, limit: limit as u64, given: given as u64 });
    }
    Ok(())
}
