//! Hashed keyspaces: their items lie in the order of their keys' hashes.

use std::fmt;
use std::ops::Bound;

use crate::base::error::{Error, Result};
use crate::base::id::{ItemKind, KEY_BYTES_MAX};
use crate::base::place::{PLACE_BYTES, PLACED_KEY_BYTES_MAX, StoredKey, given_key};
use crate::base::sync::Arc;
use crate::engine::publish::snapshot::Point;

use super::keyspace::{Any, Keyspace, KeyspaceBuilder, Ordered};
use super::partitioned::{Explicit, Partitioned, Partitioning};
use super::range::{self, Cursor};
use super::snapshot::KeyspaceAt;
use super::value::Value;

/// A keyspace whose keys have no order: they are looked up one by one, or all are walked through.
///
/// Its items lie in the order of their keys' hashes, which the store's secret seeds. There are no ranges,
/// prefixes or range deletes, and no ingest. Keys have at most 65,524 bytes.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let sessions: trine::Keyspace<trine::Hashed> = db.hashed("sessions").open()?;
/// sessions.put("b7f1", "ann")?;
/// assert_eq!(sessions.get("b7f1")?.unwrap(), "ann");
/// assert_eq!(sessions.iter_unordered().count(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Hashed {}

impl KeyspaceBuilder<Hashed> {
    /// Opens the keyspace, or makes it.
    ///
    /// # Errors
    /// As for one that is ordered; `Mismatch` if there is an ordered one of that name.
    ///
    /// # Cost
    /// One sync of the manifest if it is made or its settings change; for the first hashed one of a store the
    /// manifest is rewritten.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// db.hashed("sessions").open()?.put("b7f1", "ann")?;
    /// assert!(matches!(db.ordered("sessions").open(), Err(trine::Error::Mismatch { .. })));
    /// # Ok(()) }
    /// ```
    pub fn open(self) -> Result<Keyspace<Hashed>> {
        self.check()?;
        let keyspace = self.handle.open_hashed(&self.name, &self.given)?;
        Ok(Keyspace::new(&self.handle, keyspace))
    }
}

impl KeyspaceBuilder<Hashed> {
    /// Divides it into partitions that the caller names, each a trie of its own: see [`Partitioning`]. Which
    /// kind of partitions it has is fixed when it is made.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let sessions = db.hashed("sessions").partition_by(trine::Partitioning::explicit()).open()?;
    /// let month: trine::Keyspace<trine::Hashed> = sessions.partition("2026-11")?;
    /// month.put("b7f1", "ann")?;
    /// sessions.drop_partition("2026-11")?;
    /// assert!(sessions.partition("2026-11")?.get("b7f1")?.is_none());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn partition_by(self, partitioning: Partitioning<Explicit>) -> KeyspaceBuilder<Partitioned<Hashed>> {
        let KeyspaceBuilder { handle, name, given, faults, .. } = self;
        let partitioning = Some(Partitioning::new(partitioning.rule));
        KeyspaceBuilder { handle, name, given, faults, partitioning }
    }
}

impl KeyspaceBuilder<Partitioned<Hashed>> {
    /// Opens the keyspace, or makes it without a partition.
    ///
    /// # Errors
    /// As for one that is not divided; `Mismatch` if it exists and is ordered, or not divided so.
    ///
    /// # Cost
    /// One sync of the manifest if it is made or its settings change; for the first of a store that is hashed
    /// or divided the manifest is rewritten.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let sessions = db.hashed("sessions").partition_by(trine::Partitioning::explicit()).open()?;
    /// assert!(sessions.partitions()?.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn open(self) -> Result<Partitioned<Hashed>> {
        let (checked, rule) = self.divided()?;
        let keyspace = checked.handle.open_hashed_divided(&checked.name, &checked.given, &rule)?;
        Ok(Partitioned::new(&checked.handle, keyspace))
    }
}

impl Keyspace<Any> {
    /// The same keyspace with ordered reads.
    ///
    /// # Errors
    /// `Unordered` if it is hashed.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// db.ordered("users").open()?.put(b"ann", b"1")?;
    /// let users = db.keyspace("users")?.ordered()?;
    /// assert_eq!(users.range("a".."b").count(), 1);
    /// db.hashed("sessions").open()?;
    /// assert!(matches!(db.keyspace("sessions")?.ordered(), Err(trine::Error::Unordered { .. })));
    /// # Ok(()) }
    /// ```
    pub fn ordered(&self) -> Result<Keyspace<Ordered>> {
        let (handle, keyspace) = self.parts();
        if keyspace.id.is_hashed() {
            return Err(Error::Unordered { name: keyspace.full_name() });
        }
        Ok(Keyspace::new(&handle, keyspace))
    }

    /// The same keyspace as one that is hashed.
    ///
    /// # Errors
    /// `Mismatch` if it is ordered.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// db.hashed("sessions").open()?.put("b7f1", "ann")?;
    /// assert_eq!(db.keyspace("sessions")?.hashed()?.iter_unordered().count(), 1);
    /// # Ok(()) }
    /// ```
    pub fn hashed(&self) -> Result<Keyspace<Hashed>> {
        let (handle, keyspace) = self.parts();
        keyspace.check_is_hashed()?;
        Ok(Keyspace::new(&handle, keyspace))
    }
}

impl<K> Keyspace<K> {
    /// The key as it is stored.
    #[inline]
    pub(super) fn stored<'k>(&self, key: &'k [u8]) -> StoredKey<'k> {
        self.handle().stored_key(self.engine(), key)
    }

    /// The same for a write.
    ///
    /// # Errors
    /// `TooLarge` for a key that is too long for a hashed keyspace.
    pub(super) fn stored_to_write<'k>(&self, kind: ItemKind, key: &'k [u8]) -> Result<StoredKey<'k>> {
        if kind == ItemKind::DeleteRange || !self.engine().id.is_hashed() {
            return Ok(StoredKey::AsGiven(key));
        }
        if key.len() > PLACED_KEY_BYTES_MAX {
            let (limit, given) = (PLACED_KEY_BYTES_MAX as u64, key.len() as u64);
            return Err(Error::TooLarge { what: "key", limit, given });
        }
        Ok(self.stored(key))
    }
}

impl Keyspace<Hashed> {
    /// All items, in no order that means anything, as of the moment of the call.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let sessions = db.hashed("sessions").open()?;
    /// for key in ["b7f1", "02ca", "9e3d"] {
    ///     sessions.put(key, "ann")?;
    /// }
    /// let mut keys: Vec<trine::Value> =
    ///     sessions.iter_unordered().map(|item| Ok(item?.0)).collect::<trine::Result<_>>()?;
    /// keys.sort();
    /// assert_eq!(keys, [b"02ca", b"9e3d", b"b7f1"]);
    /// # Ok(()) }
    /// ```
    pub fn iter_unordered(&self) -> Unordered {
        Unordered::new(self, None, None)
    }

    /// The items behind a position of an earlier walk through this keyspace, also one of before the store was
    /// opened last. Each item that is there all along is met once in both together.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let sessions = db.hashed("sessions").open()?;
    /// for key in ["b7f1", "02ca", "9e3d"] {
    ///     sessions.put(key, "ann")?;
    /// }
    /// let mut walk = sessions.iter_unordered();
    /// walk.next().unwrap()?;
    /// let position = walk.position().unwrap();
    /// assert_eq!(sessions.iter_unordered_after(position).count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn iter_unordered_after(&self, position: impl AsRef<[u8]>) -> Unordered {
        Unordered::new(self, None, Some(position.as_ref()))
    }

    /// Whether it has no item.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// assert!(db.hashed("sessions").open()?.is_empty()?);
    /// # Ok(()) }
    /// ```
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.iter_unordered().next().transpose()?.is_none())
    }

    /// As [`Keyspace::exact_len`] of ordered ones.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let sessions = db.hashed("sessions").open()?;
    /// sessions.put("b7f1", "ann")?;
    /// assert_eq!(sessions.exact_len(|_| {})?, 1);
    /// # Ok(()) }
    /// ```
    pub fn exact_len(&self, progress: impl FnMut(u64)) -> Result<u64> {
        self.live()?;
        range::counted(self.iter_unordered().cursor, progress)
    }

    /// As [`Keyspace::approximate_len`] of ordered ones.
    ///
    /// # Errors
    /// `Dropped`, `Closed`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let sessions = db.hashed("sessions").open()?;
    /// sessions.put("b7f1", "ann")?;
    /// assert_eq!(sessions.approximate_len()?, 1);
    /// # Ok(()) }
    /// ```
    pub fn approximate_len(&self) -> Result<u64> {
        let keyspace = self.live()?;
        Ok(self.handle().approximate_len(&self.handle().point(), keyspace))
    }
}

impl KeyspaceAt<Hashed> {
    /// As [`Keyspace::iter_unordered`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let sessions = db.hashed("sessions").open()?;
    /// let before = db.snapshot();
    /// sessions.put("b7f1", "ann")?;
    /// assert_eq!(sessions.at(&before).iter_unordered().count(), 0);
    /// # Ok(()) }
    /// ```
    pub fn iter_unordered(&self) -> Unordered {
        let (keyspace, point) = self.parts();
        Unordered::new(keyspace, Some(point), None)
    }

    /// As [`Keyspace::iter_unordered_after`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let sessions = db.hashed("sessions").open()?;
    /// sessions.put("b7f1", "ann")?;
    /// let at = sessions.at(&db.snapshot());
    /// let mut walk = at.iter_unordered();
    /// walk.next().unwrap()?;
    /// assert_eq!(at.iter_unordered_after(walk.position().unwrap()).count(), 0);
    /// # Ok(()) }
    /// ```
    pub fn iter_unordered_after(&self, position: impl AsRef<[u8]>) -> Unordered {
        let (keyspace, point) = self.parts();
        Unordered::new(keyspace, Some(point), Some(position.as_ref()))
    }
}

/// The items of a hashed keyspace; each is read when it is asked for. After an error it ends.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let sessions = db.hashed("sessions").open()?;
/// sessions.put("b7f1", "ann")?;
/// let walk: trine::Unordered = sessions.iter_unordered();
/// for item in walk {
///     let (key, value) = item?;
///     assert_eq!((&key[..], &value[..]), (&b"b7f1"[..], &b"ann"[..]));
/// }
/// # Ok(()) }
/// ```
pub struct Unordered {
    cursor: Cursor,
    /// The stored key of the item it has yielded last.
    last: Option<Vec<u8>>,
    is_over: bool,
}

impl Unordered {
    fn new(keyspace: &Keyspace<Hashed>, at: Option<&Arc<Point>>, after: Option<&[u8]>) -> Unordered {
        let (handle, keyspace) = keyspace.parts();
        // Longer bytes than a key are no position of ours.
        let after = after.map(|position| &position[..position.len().min(KEY_BYTES_MAX)]);
        let start = after.map_or(Bound::Unbounded, |position| Bound::Excluded(position.to_vec()));
        let cursor = Cursor::new(&handle, &keyspace, at, (start, Bound::Unbounded));
        Unordered { cursor, last: after.map(<[u8]>::to_vec), is_over: false }
    }

    /// Where it is, for [`Keyspace::iter_unordered_after`]: bytes of which only this store knows the meaning.
    /// `None` before the first item.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let sessions = db.hashed("sessions").open()?;
    /// assert!(sessions.iter_unordered().position().is_none());
    /// # Ok(()) }
    /// ```
    pub fn position(&self) -> Option<Vec<u8>> {
        self.last.clone()
    }

    fn advance(&mut self) -> Result<Option<(Value, Value)>> {
        let tree = self.cursor.tree();
        let Some((stored, value)) = self.cursor.next()? else { return Ok(None) };
        let last = self.last.get_or_insert_with(|| Vec::with_capacity(PLACE_BYTES + 64));
        last.clear();
        last.extend_from_slice(stored);
        Ok(Some((Value::copy(given_key(tree, stored)), Value::copy(value))))
    }
}

impl Iterator for Unordered {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let item = self.advance().transpose();
        self.is_over = !matches!(item, Some(Ok(_)));
        item
    }
}

impl std::iter::FusedIterator for Unordered {}

impl fmt::Debug for Unordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unordered").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}
