//! Ranges of keys as programs write them.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys: `..`, `a..b`, `a..=b`, `a..`, `..b`, `..=b`, or a pair of [`Bound`]s, whatever the keys
/// are kept in.
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

/// What the crate knows of one.
pub trait Sealed {
    /// First and last key.
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

fn own(key: impl AsRef<[u8]>) -> Vec<u8> {
    key.as_ref().to_vec()
}

macro_rules! key_range {
    ($($range:ty: $own:ident => $bounds:expr;)*) => {
        $(impl<K: AsRef<[u8]>> Sealed for $range {
            fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
                let $own = self;
                $bounds
            }
        }

        impl<K: AsRef<[u8]>> KeyRange for $range {})*
    };
}

key_range! {
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

impl Sealed for RangeFull {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl KeyRange for RangeFull {}
