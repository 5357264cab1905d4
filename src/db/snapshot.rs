//! Snapshots: the store at one moment.

use crate::base::error::Result;
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::engine::GetMode;
use crate::engine::publish::snapshot::Point;

use super::handle::Handle;
use super::key_range::KeyRange;
use super::range::{self, Cursor, Range};
use super::{Keyspace, Ordered, Value};

/// The store at one moment, over all keyspaces. Clones share the moment.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// let names = db.ordered("names").open()?;
/// users.put(b"1", b"ann")?;
/// let before = db.snapshot();
/// users.put(b"2", b"bob")?;
/// names.put(b"bob", b"2")?;
/// assert_eq!(users.at(&before).iter().count(), 1);
/// assert_eq!(names.at(&before).iter().count(), 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    handle: Arc<Handle>,
    point: Arc<Point>,
}

impl Drop for Snapshot {
    /// In a forked process the point is leaked.
    fn drop(&mut self) {
        if self.handle.is_forked() {
            range::leave_point(&self.point);
        }
    }
}

impl Snapshot {
    pub(crate) fn new(handle: &Arc<Handle>) -> Snapshot {
        Snapshot { handle: Arc::clone(handle), point: handle.snapshot_point() }
    }
}

/// A keyspace as of a snapshot, with the reads of [`Keyspace`].
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// let before: trine::KeyspaceAt<_> = users.at(&db.snapshot());
/// users.put(b"ann", b"2")?;
/// assert_eq!(before.get(b"ann")?.as_deref(), Some(&b"1"[..]));
/// assert_eq!(users.get(b"ann")?.as_deref(), Some(&b"2"[..]));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct KeyspaceAt<K> {
    keyspace: Keyspace<K>,
    snapshot: Snapshot,
}

impl<K> KeyspaceAt<K> {
    pub(crate) fn parts(&self) -> (&Keyspace<K>, &Arc<Point>) {
        (&self.keyspace, &self.snapshot.point)
    }

    pub(crate) fn new(keyspace: Keyspace<K>, snapshot: &Snapshot) -> KeyspaceAt<K> {
        let is_own = Arc::ptr_eq(keyspace.handle(), &snapshot.handle);
        let keyspace = if is_own { keyspace } else { keyspace.stand_in(&snapshot.handle) };
        KeyspaceAt { keyspace, snapshot: snapshot.clone() }
    }

    /// As [`Keyspace::get`].
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Dropped` only if the keyspace was dropped before the snapshot, `Invalid` if the
    /// snapshot is of another open store.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let before = users.at(&db.snapshot());
    /// users.put(b"ann", b"2")?;
    /// assert_eq!(before.get(b"ann")?.as_deref(), Some(&b"1"[..]));
    /// # Ok(()) }
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let take = |value: Option<&[u8]>| value.map(Value::copy);
        self.keyspace.lookup((key.as_ref(), GetMode::Value), Some(&self.snapshot.point), take)
    }

    /// As [`Keyspace::multi_get`].
    ///
    /// # Errors
    /// As [`KeyspaceAt::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let before = users.at(&db.snapshot());
    /// users.put(b"bob", b"2")?;
    /// let found = before.multi_get(&["ann", "bob"])?;
    /// assert!(found[0].is_some() && found[1].is_none());
    /// # Ok(()) }
    /// ```
    pub fn multi_get<Q: AsRef<[u8]>>(&self, keys: &[Q]) -> Result<Vec<Option<Value>>> {
        self.keyspace.lookup_many(keys, Some(&self.snapshot.point))
    }

    /// As [`Keyspace::multi_get_with`].
    ///
    /// # Errors
    /// As [`KeyspaceAt::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let before = users.at(&db.snapshot());
    /// users.put(b"bob", b"2")?;
    /// let mut found = 0;
    /// before.multi_get_with(&["ann", "bob"], |_, value| found += usize::from(value.is_some()))?;
    /// assert_eq!(found, 1);
    /// # Ok(()) }
    /// ```
    pub fn multi_get_with<Q: AsRef<[u8]>>(
        &self,
        keys: &[Q],
        take: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.keyspace.lookup_many_apart(keys, Some(&self.snapshot.point), take)
    }

    /// As [`Keyspace::get_with`].
    ///
    /// # Errors
    /// As [`KeyspaceAt::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"12")?;
    /// let before = users.at(&db.snapshot());
    /// users.delete(b"ann")?;
    /// assert_eq!(before.get_with(b"ann", |value| value.len())?, Some(2));
    /// # Ok(()) }
    /// ```
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, take: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.keyspace.lookup_apart(key.as_ref(), Some(&self.snapshot.point), |value| value.map(take))
    }

    /// As [`Keyspace::get_into`].
    ///
    /// # Errors
    /// As [`KeyspaceAt::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let before = users.at(&db.snapshot());
    /// users.delete(b"ann")?;
    /// let mut buffer = Vec::new();
    /// assert!(before.get_into(b"ann", &mut buffer)?);
    /// assert_eq!(buffer, b"1");
    /// # Ok(()) }
    /// ```
    pub fn get_into(&self, key: impl AsRef<[u8]>, buffer: &mut Vec<u8>) -> Result<bool> {
        self.keyspace.lookup((key.as_ref(), GetMode::Value), Some(&self.snapshot.point), |value| {
            buffer.clear();
            buffer.extend_from_slice(value.unwrap_or_default());
            value.is_some()
        })
    }

    /// As [`Keyspace::contains`].
    ///
    /// # Errors
    /// As [`KeyspaceAt::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let before = users.at(&db.snapshot());
    /// users.put(b"ann", b"1")?;
    /// assert!(!before.contains(b"ann")?);
    /// # Ok(()) }
    /// ```
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.keyspace
            .lookup((key.as_ref(), GetMode::Presence), Some(&self.snapshot.point), |value| value.is_some())
    }
}

impl KeyspaceAt<Ordered> {
    /// As [`Keyspace::range`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", b"")?;
    /// let before = users.at(&db.snapshot());
    /// users.put("bob", b"")?;
    /// assert_eq!((before.range("a"..).count(), users.range("a"..).count()), (1, 2));
    /// # Ok(()) }
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Range {
        self.keyspace.range_at(&self.snapshot.point, range.into_bounds())
    }

    /// As [`Keyspace::prefix`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("user/ann", b"")?;
    /// let before = users.at(&db.snapshot());
    /// users.put("user/bob", b"")?;
    /// assert_eq!(before.prefix("user/").count(), 1);
    /// # Ok(()) }
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.keyspace.range_at(&self.snapshot.point, range::of_prefix(prefix.as_ref()))
    }

    /// As [`Keyspace::iter`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let before = users.at(&db.snapshot());
    /// users.put(b"ann", b"1")?;
    /// assert!(before.iter().next().is_none());
    /// # Ok(()) }
    /// ```
    pub fn iter(&self) -> Range {
        self.keyspace.range_at(&self.snapshot.point, range::all())
    }

    /// As [`Keyspace::first`].
    ///
    /// # Errors
    /// As [`KeyspaceAt::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("bob", "")?;
    /// let before = users.at(&db.snapshot());
    /// users.put("ann", "")?;
    /// assert_eq!(before.first()?.unwrap().0, b"bob"[..]);
    /// # Ok(()) }
    /// ```
    pub fn first(&self) -> Result<Option<(Value, Value)>> {
        self.keyspace.first_item_at(&self.snapshot.point, Direction::Forward)
    }

    /// As [`Keyspace::last`].
    ///
    /// # Errors
    /// As [`KeyspaceAt::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", "")?;
    /// let before = users.at(&db.snapshot());
    /// users.put("bob", "")?;
    /// assert_eq!(before.last()?.unwrap().0, b"ann"[..]);
    /// # Ok(()) }
    /// ```
    pub fn last(&self) -> Result<Option<(Value, Value)>> {
        self.keyspace.first_item_at(&self.snapshot.point, Direction::Backward)
    }

    /// As [`Keyspace::approximate_len`].
    ///
    /// # Errors
    /// As [`KeyspaceAt::get`], except read errors.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let before = users.at(&db.snapshot());
    /// users.put("ann", "")?;
    /// assert_eq!((before.approximate_len()?, users.approximate_len()?), (0, 1));
    /// # Ok(()) }
    /// ```
    pub fn approximate_len(&self) -> Result<u64> {
        self.keyspace.approximate_len_at(&self.snapshot.point)
    }

    /// As [`Keyspace::exact_len`].
    ///
    /// # Errors
    /// As [`KeyspaceAt::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let before = users.at(&db.snapshot());
    /// users.put("ann", "1")?;
    /// assert_eq!((before.exact_len(|_| {})?, users.exact_len(|_| {})?), (0, 1));
    /// # Ok(()) }
    /// ```
    pub fn exact_len(&self, progress: impl FnMut(u64)) -> Result<u64> {
        range::counted(self.cursor(..), progress)
    }

    /// As [`Keyspace::cursor`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", b"")?;
    /// let before = users.at(&db.snapshot());
    /// users.put("bob", b"")?;
    /// let mut cursor = before.cursor("b"..);
    /// assert_eq!(cursor.next()?, None);
    /// # Ok(()) }
    /// ```
    pub fn cursor(&self, range: impl KeyRange) -> Cursor {
        self.keyspace.cursor_at(&self.snapshot.point, range.into_bounds())
    }
}
