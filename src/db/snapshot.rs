//! Snapshots: the store at one moment.

use std::ops::RangeBounds;

use crate::base::error::Result;
use crate::base::sync::Arc;
use crate::engine::snapshot::Point;

use super::range::{self, Cursor, Range};
use super::{Handle, Keyspace, Ordered, Value};

/// The store at one moment, over all keyspaces. Clones are the same moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    handle: Arc<Handle>,
    point: Arc<Point>,
}

impl Snapshot {
    pub(crate) fn new(handle: &Arc<Handle>) -> Snapshot {
        Snapshot { handle: Arc::clone(handle), point: Arc::new(handle.snapshot_point()) }
    }
}

/// A keyspace as of a snapshot: the reads of [`Keyspace`].
#[derive(Clone, Debug)]
pub struct KeyspaceAt<K> {
    keyspace: Keyspace<K>,
    snapshot: Snapshot,
}

impl<K> KeyspaceAt<K> {
    pub(crate) fn new(keyspace: Keyspace<K>, snapshot: &Snapshot) -> KeyspaceAt<K> {
        assert!(
            Arc::ptr_eq(keyspace.handle(), &snapshot.handle),
            "a snapshot is read through keyspaces of its own open store"
        );
        KeyspaceAt { keyspace, snapshot: snapshot.clone() }
    }

    /// As [`Keyspace::get`].
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Dropped` only if the keyspace was dropped before the snapshot.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_with(key, Value::copy)
    }

    /// As [`Keyspace::get_with`].
    ///
    /// # Errors
    /// As [`KeyspaceAt::get`].
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, take: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.keyspace.lookup(key.as_ref(), Some(&self.snapshot.point), |value| value.map(take))
    }

    /// As [`Keyspace::get_into`].
    ///
    /// # Errors
    /// As [`KeyspaceAt::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, buffer: &mut Vec<u8>) -> Result<bool> {
        self.keyspace.lookup(key.as_ref(), Some(&self.snapshot.point), |value| {
            buffer.clear();
            buffer.extend_from_slice(value.unwrap_or_default());
            value.is_some()
        })
    }

    /// As [`Keyspace::contains`].
    ///
    /// # Errors
    /// As [`KeyspaceAt::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.keyspace.lookup(key.as_ref(), Some(&self.snapshot.point), |value| value.is_some())
    }
}

impl KeyspaceAt<Ordered> {
    /// As [`Keyspace::range`].
    pub fn range<B: AsRef<[u8]>>(&self, range: impl RangeBounds<B>) -> Range {
        self.keyspace.range_at(&self.snapshot.point, range::owned(range))
    }

    /// As [`Keyspace::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.keyspace.range_at(&self.snapshot.point, range::of_prefix(prefix.as_ref()))
    }

    /// As [`Keyspace::iter`].
    pub fn iter(&self) -> Range {
        self.keyspace.range_at(&self.snapshot.point, range::all())
    }

    /// As [`Keyspace::cursor`].
    pub fn cursor<B: AsRef<[u8]>>(&self, range: impl RangeBounds<B>) -> Cursor {
        self.keyspace.cursor_at(&self.snapshot.point, range::owned(range))
    }
}
