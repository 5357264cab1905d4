//! Hashed keyspaces: their items are ordered by the hashes of their keys.

use std::fmt;

use crate::base::error::{Error, Result};
use crate::base::id::{ItemKind, KEY_BYTES_MAX, PartitionId};
use crate::base::place::{PLACE_BYTES, PLACED_KEY_BYTES_MAX, StoredKey, given_key};
use crate::base::rule::{PARTITION_NAME_BYTES_MAX, Rule};
use crate::base::sync::Arc;
use crate::engine::publish::keyspace;
use crate::engine::publish::snapshot::Point;

use super::by_key::ByKey;
use super::handle::Handle;
use super::keyspace::{Any, Keyspace, KeyspaceBuilder, Ordered};
use super::partitioned::{Explicit, Partitioned, Partitioning};
use super::range::{self, Cursor};
use super::snapshot::KeyspaceAt;
use super::value::Value;

/// Maximum length of an iteration position: a length byte, a partition name and a stored key.
const POSITION_BYTES_MAX: usize = 1 + PARTITION_NAME_BYTES_MAX + KEY_BYTES_MAX;

/// A keyspace whose keys have no order: a caller looks up single keys or iterates over all items.
///
/// Its items are ordered by the hashes of their keys, seeded by the store's secret. There are no ranges,
/// prefixes or range deletes, and no ingest. Keys have at most 65,524 bytes. It may be divided into
/// partitions, named by the caller or by its keys: see [`Partitioning`].
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
    /// As for an ordered keyspace; `Mismatch` if an ordered keyspace has that name.
    ///
    /// # Cost
    /// One sync of the manifest if the keyspace is made or its settings change. The first hashed keyspace of
    /// a store rewrites the manifest.
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
    /// Divides the keyspace into partitions, each a trie of its own: see [`Partitioning`]. The partitioning
    /// is fixed when the keyspace is made. Its kind determines the type that `open` returns.
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
    pub fn partition_by<K>(self, partitioning: Partitioning<K>) -> KeyspaceBuilder<(Hashed, K)> {
        let KeyspaceBuilder { handle, name, given, faults, .. } = self;
        let partitioning = Some(Partitioning::new(partitioning.rule));
        KeyspaceBuilder { handle, name, given, faults, partitioning }
    }
}

impl KeyspaceBuilder<(Hashed, Explicit)> {
    /// Opens the keyspace, or makes it without a partition.
    ///
    /// # Errors
    /// As for an undivided keyspace; `Mismatch` if the keyspace exists and is ordered, has another
    /// partitioning or none.
    ///
    /// # Cost
    /// One sync of the manifest if the keyspace is made or its settings change. The first hashed or divided
    /// keyspace of a store rewrites the manifest.
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
        let (handle, keyspace) = self.open_hashed_divided()?;
        Ok(Partitioned::new(&handle, keyspace))
    }
}

impl KeyspaceBuilder<(Hashed, ByKey)> {
    /// Opens the keyspace, or makes it without a partition. Later opens may omit the partitioning.
    ///
    /// # Errors
    /// As for an undivided keyspace; `Invalid` also for [`Partitioning::ranges`], which needs an order of
    /// keys; `Mismatch` if the keyspace exists and is ordered, has another partitioning or none.
    ///
    /// # Cost
    /// One sync of the manifest if the keyspace is made or its settings change. The first hashed or divided
    /// keyspace of a store rewrites the manifest.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let by_tenant = trine::Partitioning::prefix(4);
    /// let sessions: trine::Keyspace<trine::Hashed> = db.hashed("sessions").partition_by(by_tenant).open()?;
    /// sessions.put("t042/b7f1", "ann")?;
    /// sessions.put("t043/02ca", "bob")?;
    /// assert_eq!(sessions.partitions()?, [b"t042", b"t043"]);
    /// sessions.drop_partition("t042")?;
    /// assert_eq!(db.hashed("sessions").open()?.iter_unordered().count(), 1);
    /// let by_letter = trine::Partitioning::ranges(["g", "m"]);
    /// let refused = db.hashed("users").partition_by(by_letter).open();
    /// assert!(matches!(refused, Err(trine::Error::Invalid { .. })));
    /// # Ok(()) }
    /// ```
    pub fn open(mut self) -> Result<Keyspace<Hashed>> {
        let rule = self.partitioning.as_ref().map(|partitioning| &partitioning.rule);
        if rule.is_some_and(|rule| rule.as_ref().is_ok_and(Rule::needs_order)) {
            let fault = "a hashed keyspace has no order of keys: ranges cannot divide it, a prefix or a \
                         function of keys can";
            self.faults.push(fault.to_owned());
        }
        let (handle, keyspace) = self.open_hashed_divided()?;
        Ok(Keyspace::new(&handle, keyspace))
    }
}

impl<K> KeyspaceBuilder<(Hashed, K)> {
    fn open_hashed_divided(self) -> Result<(Arc<Handle>, Arc<keyspace::KeyspaceState>)> {
        let (checked, rule) = self.divided()?;
        let keyspace = checked.handle.open_hashed_divided(&checked.name, &checked.given, &rule)?;
        Ok((checked.handle, keyspace))
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

    /// The same keyspace as a hashed one.
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

    /// The key as it is stored, for a write.
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
    /// All items in an unspecified order, as of the moment of the call.
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

    /// The items behind a position of an earlier iteration over this keyspace. The position stays valid when
    /// the store is reopened. The two iterations together yield each item that exists all along exactly once.
    /// If the position is in a partition that was dropped since, the items of the following partitions are
    /// returned.
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

    /// Whether the keyspace has no item.
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

    /// As [`Keyspace::exact_len`] of an ordered keyspace.
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

    /// As [`Keyspace::approximate_len`] of an ordered keyspace.
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

/// An iterator over the items of a hashed keyspace. Each item is read on demand. The iterator ends after an
/// error. If keys divide the keyspace, it yields one partition after the other, in the order of their names.
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
    /// The position behind the last yielded item; before the first item, the position of an earlier
    /// iteration, if one was given.
    last: Option<Vec<u8>>,
    has_begun: bool,
    is_over: bool,
}

impl Unordered {
    fn new(keyspace: &Keyspace<Hashed>, at: Option<&Arc<Point>>, after: Option<&[u8]>) -> Unordered {
        let (handle, keyspace) = keyspace.parts();
        let cursor = Cursor::new(&handle, &keyspace, at, range::all());
        // Longer bytes are not a position of this store.
        let after = after.map(|position| &position[..position.len().min(POSITION_BYTES_MAX)]);
        Unordered { cursor, last: after.map(<[u8]>::to_vec), has_begun: false, is_over: false }
    }

    /// The current position, for [`Keyspace::iter_unordered_after`]: bytes with a meaning only to this store.
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
        let in_partition = tree.partition == PartitionId::OF_KEY;
        if !std::mem::replace(&mut self.has_begun, true)
            && let Some(position) = &self.last
        {
            self.cursor.begin_behind(if in_partition { split(position) } else { (&[], position) })?;
        }
        if self.cursor.next()?.is_none() {
            return Ok(None);
        }
        let (name, (stored, value)) = self.cursor.item_in_partition();
        let last = self.last.get_or_insert_with(|| Vec::with_capacity(PLACE_BYTES + 64));
        last.clear();
        if in_partition {
            last.push(u8::try_from(name.len()).expect("names of partitions are short"));
            last.extend_from_slice(name);
        }
        last.extend_from_slice(stored);
        Ok(Some((Value::copy(given_key(tree, stored)), Value::copy(value))))
    }
}

/// Partition name and stored key of a position in a keyspace that keys divide: a byte with the length of the
/// name, the name, the key. Missing parts of invalid positions are empty.
fn split(position: &[u8]) -> (&[u8], &[u8]) {
    let (name_bytes, rest) = position.split_first().unwrap_or((&0, &[]));
    rest.split_at(rest.len().min(usize::from(*name_bytes)))
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
