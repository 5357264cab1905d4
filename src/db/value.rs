//! Owned bytes of a key or value.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::base::sync::Arc;

/// A key or value that was read: owned bytes, without a reference to the store. Up to 30 bytes are stored
/// inline; more take an allocation.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// let value: trine::Value = users.get(b"ann")?.unwrap();
/// assert_eq!((value.len(), &value[..]), (1, &b"1"[..]));
/// assert!(value == b"1" && value == "1" && value == vec![b'1']);
/// let shared: std::sync::Arc<[u8]> = value.into();
/// assert_eq!(shared[..], b"1"[..]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Value(Bytes);

/// Maximum bytes stored inline.
const SMALL_BYTES_MAX: usize = 30;

#[derive(Clone)]
enum Bytes {
    Small { length: u8, bytes: [u8; SMALL_BYTES_MAX] },
    Large(Box<[u8]>),
}

impl Value {
    #[inline]
    pub(crate) fn copy(bytes: &[u8]) -> Value {
        if bytes.len() > SMALL_BYTES_MAX {
            return Value(Bytes::Large(bytes.into()));
        }
        let mut small = [0; SMALL_BYTES_MAX];
        small[..bytes.len()].copy_from_slice(bytes);
        Value(Bytes::Small { length: bytes.len() as u8, bytes: small })
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Small { length, bytes } => &bytes[..usize::from(*length)],
            Bytes::Large(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Value {
    fn default() -> Value {
        Value::copy(&[])
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        (**self).cmp(&**other)
    }
}

/// Hashes as the slice does, so that a map can be searched by a slice.
impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl PartialEq<&[u8]> for Value {
    fn eq(&self, other: &&[u8]) -> bool {
        **self == **other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Value {
    fn eq(&self, other: &[u8; N]) -> bool {
        **self == *other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        **self == **other
    }
}

impl PartialEq<Vec<u8>> for Value {
    fn eq(&self, other: &Vec<u8>) -> bool {
        **self == **other
    }
}

impl PartialEq<str> for Value {
    fn eq(&self, other: &str) -> bool {
        **self == *other.as_bytes()
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, other: &&str) -> bool {
        **self == *other.as_bytes()
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        if bytes.len() > SMALL_BYTES_MAX { Value(Bytes::Large(bytes.into())) } else { Value::copy(&bytes) }
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value::copy(bytes)
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Vec<u8> {
        match value.0 {
            Bytes::Small { length, bytes } => bytes[..usize::from(length)].to_vec(),
            Bytes::Large(bytes) => bytes.into_vec(),
        }
    }
}

impl From<Value> for Box<[u8]> {
    fn from(value: Value) -> Box<[u8]> {
        match value.0 {
            Bytes::Small { length, bytes } => bytes[..usize::from(length)].into(),
            Bytes::Large(bytes) => bytes,
        }
    }
}

impl From<Value> for Arc<[u8]> {
    fn from(value: Value) -> Arc<[u8]> {
        value[..].into()
    }
}

#[cfg(feature = "bytes")]
impl From<Value> for bytes::Bytes {
    fn from(value: Value) -> bytes::Bytes {
        Box::<[u8]>::from(value).into()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Bytes of every length come out as they went in. Short values are stored inline, and a value takes four
    /// words.
    #[test]
    fn values_hold_the_copied_bytes() {
        assert_eq!((size_of::<Value>(), Value::default().len()), (32, 0));
        for length in [0, 1, 7, SMALL_BYTES_MAX - 1, SMALL_BYTES_MAX, SMALL_BYTES_MAX + 1, 1000] {
            let bytes: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            for value in [Value::copy(&bytes), Value::from(bytes.clone())] {
                assert_eq!((&value[..], value.as_ref(), &value), (&bytes[..], &bytes[..], &value.clone()));
                assert_eq!(matches!(value.0, Bytes::Small { .. }), length <= SMALL_BYTES_MAX);
                assert_eq!(Box::<[u8]>::from(value.clone())[..], bytes);
                assert_eq!(Arc::<[u8]>::from(value.clone())[..], bytes);
                assert_eq!(Vec::from(value), bytes);
            }
        }
    }

    /// Values compare, hash and print as their bytes do, small or large.
    #[test]
    fn values_compare_as_their_bytes() {
        let bytes = [&b"b"[..], b"", b"a\0", &[b'a'; 40], b"a", &[b'b'; 40]];
        let mut values: Vec<Value> = bytes.iter().map(|bytes| Value::copy(bytes)).collect();
        values.sort();
        let mut sorted = bytes;
        sorted.sort();
        assert!(values.iter().zip(sorted).all(|(value, bytes)| *value == bytes && *value == *bytes));
        let all: HashSet<Value> = values.into_iter().chain(bytes.map(Value::copy)).collect();
        assert_eq!(all.len(), bytes.len());
        assert!(bytes.iter().all(|bytes| all.contains(*bytes)));
        assert_eq!(format!("{:?}", Value::copy(b"a\x01")), "b\"a\\x01\"");
    }
}
