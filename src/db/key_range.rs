//! Ranges of keys, as callers pass them.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::range::of_prefix;

/// A range of keys: `..`, `a..b`, `a..=b`, `a..`, `..b`, `..=b`, a pair of [`Bound`]s, or a [`Prefix`]. Keys
/// may be of any type of bytes.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// use std::ops::Bound;
/// for name in ["ann", "bob", "cid"] {
///     users.put(name, b"")?;
/// }
/// assert_eq!(users.range(..).count(), 3);
/// assert_eq!(users.range("b"..).count(), 2);
/// assert_eq!(users.range((Bound::Excluded("ann"), Bound::Unbounded)).count(), 2);
/// assert_eq!(users.range(..=b"bob".to_vec()).count(), 2);
/// # Ok(()) }
/// ```
pub trait KeyRange: Sealed {}

/// The crate's conversion of a range.
pub trait Sealed {
    /// Lower and upper bound of the range.
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

/// All keys that begin with a prefix, as a range; with [`after`](Prefix::after), only the keys after a given
/// one.
///
/// [`Keyspace::prefix`](crate::Keyspace::prefix) is a shorthand that returns their items. This type is for
/// other functions that take a range, and for continuing after the end of a page.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// use trine::Prefix;
/// for name in ["a/ann", "a/bob", "a/cid", "b/ann"] {
///     users.put(name, b"")?;
/// }
/// let page: Vec<_> = users.range(Prefix::new("a/")).take(2).collect::<trine::Result<_>>()?;
/// let (last, _) = page.last().unwrap();
/// assert_eq!(users.range(Prefix::new("a/").after(last)).next().unwrap()?.0, "a/cid");
/// users.delete_range(Prefix::new("a/"))?;
/// assert_eq!(users.iter().count(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prefix {
    prefix: Vec<u8>,
    after: Option<Vec<u8>>,
}

impl Prefix {
    /// All keys that begin with these bytes.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("a/ann", b"")?;
    /// assert_eq!(users.range(trine::Prefix::new("a/")).count(), 1);
    /// # Ok(()) }
    /// ```
    pub fn new(prefix: impl AsRef<[u8]>) -> Prefix {
        Prefix { prefix: own(prefix), after: None }
    }

    /// Only the keys of the prefix that come after `key`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("a/ann", b"")?;
    /// assert_eq!(users.range(trine::Prefix::new("a/").after("a/ann")).count(), 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn after(self, key: impl AsRef<[u8]>) -> Prefix {
        Prefix { after: Some(own(key)), ..self }
    }
}

impl Sealed for Prefix {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (start, end) = of_prefix(&self.prefix);
        match self.after.filter(|after| *after >= self.prefix) {
            Some(after) => (Bound::Excluded(after), end),
            None => (start, end),
        }
    }
}

impl KeyRange for Prefix {}

fn own(key: impl AsRef<[u8]>) -> Vec<u8> {
    key.as_ref().to_vec()
}

macro_rules! sealed {
    ($($range:ty: $own:ident => $bounds:expr;)*) => {
        $(impl<K: AsRef<[u8]>> Sealed for $range {
            fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
                let $own = self;
                $bounds
            }
        })*
    };
}

sealed! {
    Range<K>: range => (Bound::Included(own(range.start)), Bound::Excluded(own(range.end)));
    RangeFrom<K>: range => (Bound::Included(own(range.start)), Bound::Unbounded);
    RangeTo<K>: range => (Bound::Unbounded, Bound::Excluded(own(range.end)));
    RangeToInclusive<K>: range => (Bound::Unbounded, Bound::Included(own(range.end)));
    RangeInclusive<K>: range => {
        let (start, end) = range.into_inner();
        (Bound::Included(own(start)), Bound::Included(own(end)))
    };
    (Bound<K>, Bound<K>): range => (range.0.map(own), range.1.map(own));
}

impl<K: AsRef<[u8]>> KeyRange for Range<K> {}
impl<K: AsRef<[u8]>> KeyRange for RangeFrom<K> {}
impl<K: AsRef<[u8]>> KeyRange for RangeTo<K> {}
impl<K: AsRef<[u8]>> KeyRange for RangeToInclusive<K> {}
impl<K: AsRef<[u8]>> KeyRange for RangeInclusive<K> {}
impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {}

impl Sealed for RangeFull {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl KeyRange for RangeFull {}
