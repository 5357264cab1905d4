//! The rule by which a keyspace is divided into partitions.
//!
//! Pure. A rule is fixed when its keyspace is made, and stands in the manifest.
//!
//! A rule by keys maps each key to a partition. Partitions are sorted by name, and their keys lie in the same
//! order: all keys of a partition lie before all keys of the next one. So a range scan is the concatenation
//! of the scans of its partitions. A function of keys is the exception: there a range scan is the merge of
//! the scans of all partitions.

use std::borrow::Cow;
use std::fmt;
use std::ops::Bound;

use super::error::{Error, Result as StoreResult};
use super::sync::{Arc, OnceLock};

/// Longest name of a partition, in bytes.
pub(crate) const PARTITION_NAME_BYTES_MAX: usize = 255;

/// Most keys at which a rule may divide a keyspace.
pub(crate) const BOUNDS_MAX: usize = 4096;

/// Start and end of a range of keys.
pub(crate) type KeyBounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// Code that names the partition of a key.
pub(crate) type NameOf = dyn for<'k> Fn(&'k [u8]) -> Cow<'k, [u8]> + Send + Sync;

/// A function of keys. Its code is not in the store: an opener supplies it, and all clones share it.
#[derive(Clone)]
pub(crate) struct KeyFunction {
    pub(crate) name: Box<str>,
    /// A different version means different partitions for some keys.
    pub(crate) version: u32,
    code: Arc<OnceLock<Box<NameOf>>>,
}

impl KeyFunction {
    /// A function without its code yet.
    pub(crate) fn named(name: &str, version: u32) -> KeyFunction {
        KeyFunction { name: name.into(), version, code: Arc::default() }
    }

    fn give(&self, code: Box<NameOf>) {
        // The first code stays: the same name and version mean the same code.
        let _ = self.code.set(code);
    }
}

impl PartialEq for KeyFunction {
    fn eq(&self, other: &KeyFunction) -> bool {
        (&self.name, self.version) == (&other.name, other.version)
    }
}

impl Eq for KeyFunction {}

impl fmt::Debug for KeyFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyFunction").field(&self.name).field(&self.version).finish()
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// The caller names the partition of each item: its identity is partition and key.
    Explicit,
    /// The first n bytes of a key name its partition. A shorter key is itself the name of a partition that
    /// has no other key.
    Prefix(u8),
    /// A partition begins at each of these ascending keys, which names it. The first partition has the empty
    /// name.
    Ranges(Arc<[Box<[u8]>]>),
    /// A function of keys names the partition.
    Function(KeyFunction),
}

impl Rule {
    /// Division by a prefix of the keys.
    ///
    /// # Errors
    /// A message about a number of bytes outside 1 to 255.
    pub(crate) fn prefix(bytes: usize) -> Result<Rule, String> {
        match u8::try_from(bytes) {
            Ok(bytes @ 1..) => Ok(Rule::Prefix(bytes)),
            _ => Err(format!("a partition's prefix has 1 to {PARTITION_NAME_BYTES_MAX} bytes, not {bytes}")),
        }
    }

    /// Division at some keys.
    ///
    /// # Errors
    /// A message about the first fault: the number of keys, a length, or the order.
    pub(crate) fn ranges(bounds: Vec<Box<[u8]>>) -> Result<Rule, String> {
        if bounds.is_empty() || bounds.len() > BOUNDS_MAX {
            return Err(format!("partitions are divided at 1 to {BOUNDS_MAX} keys, not {}", bounds.len()));
        }
        let has_length = |bound: &[u8]| (1..=PARTITION_NAME_BYTES_MAX).contains(&bound.len());
        if let Some(wrong) = bounds.iter().find(|bound| !has_length(bound)) {
            let bytes = wrong.len();
            return Err(format!(
                "a key at which partitions are divided has 1 to {PARTITION_NAME_BYTES_MAX} bytes, not {bytes}"
            ));
        }
        if !bounds.is_sorted_by(|one, next| one < next) {
            return Err("keys at which partitions are divided ascend".to_owned());
        }
        Ok(Rule::Ranges(bounds.into()))
    }

    /// Division by a function of keys.
    ///
    /// # Errors
    /// A message about a name that is empty or too long.
    pub(crate) fn function(name: &str, version: u32, code: Box<NameOf>) -> Result<Rule, String> {
        if !(1..=PARTITION_NAME_BYTES_MAX).contains(&name.len()) {
            let bytes = name.len();
            return Err(format!(
                "a function of keys has a name of 1 to {PARTITION_NAME_BYTES_MAX} bytes, not {bytes}"
            ));
        }
        let function = KeyFunction::named(name, version);
        function.give(code);
        Ok(Rule::Function(function))
    }

    /// Takes the code of an equal rule, if this rule has none.
    pub(crate) fn take_code(&self, from: &Rule) {
        if let (Rule::Function(own), Rule::Function(from)) = (self, from)
            && from.code.get().is_some()
            && own.code.get().is_none()
        {
            let from = from.clone();
            own.give(Box::new(move |key| from.code.get().expect("it was there")(key)));
        }
    }

    /// Checks that the partition of a key can be computed.
    ///
    /// # Errors
    /// `Unrouted` without the code of the function.
    pub(crate) fn check_routed(&self) -> StoreResult<()> {
        match self {
            Rule::Function(function) if function.code.get().is_none() => {
                Err(Error::Unrouted { name: function.name.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Whether partitions lie in the order of their keys.
    pub(crate) fn is_in_key_order(&self) -> bool {
        !matches!(self, Rule::Function(_))
    }

    /// Whether the rule divides keys by their order, which a hashed keyspace does not have.
    pub(crate) fn needs_order(&self) -> bool {
        matches!(self, Rule::Ranges(_))
    }

    /// Whether the key determines its partition.
    pub(crate) fn is_by_key(&self) -> bool {
        !matches!(self, Rule::Explicit)
    }

    /// The name of the partition that has a key; empty if the caller names the partition.
    ///
    /// # Errors
    /// As [`Rule::check_routed`].
    #[inline]
    pub(crate) fn name_of<'n>(&'n self, key: &'n [u8]) -> StoreResult<Cow<'n, [u8]>> {
        if let Rule::Function(function) = self {
            self.check_routed()?;
            return Ok(function.code.get().expect("it was checked")(key));
        }
        Ok(Cow::Borrowed(self.part_name_of(key).unwrap_or_default()))
    }

    /// The same for a rule whose names are parts of keys or of bounds; `None` for other rules.
    #[inline]
    fn part_name_of<'n>(&'n self, key: &'n [u8]) -> Option<&'n [u8]> {
        match self {
            Rule::Explicit | Rule::Function(_) => None,
            Rule::Prefix(bytes) => Some(&key[..key.len().min(usize::from(*bytes))]),
            Rule::Ranges(bounds) => {
                let number = bounds.partition_point(|bound| &**bound <= key);
                Some(number.checked_sub(1).map_or(&[][..], |number| &bounds[number]))
            }
        }
    }

    /// The names of the partitions that may have keys of a range, as a range from the first name to the last.
    pub(crate) fn names_of<'n>(&'n self, (start, end): KeyBounds<'n>) -> KeyBounds<'n> {
        let first = match (self, start) {
            (Rule::Function(_), _) => return (Bound::Unbounded, Bound::Unbounded),
            (_, Bound::Included(key) | Bound::Excluded(key)) => {
                self.part_name_of(key).map_or(Bound::Unbounded, Bound::Included)
            }
            (_, Bound::Unbounded) => Bound::Unbounded,
        };
        // All keys of a partition are at or after its name.
        (first, end)
    }

    /// Whether a partition may have the name.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        match self {
            Rule::Explicit | Rule::Function(_) => name.len() <= PARTITION_NAME_BYTES_MAX,
            Rule::Prefix(bytes) => name.len() <= usize::from(*bytes),
            Rule::Ranges(bounds) => {
                name.is_empty() || bounds.binary_search_by(|bound| (**bound).cmp(name)).is_ok()
            }
        }
    }

    /// A message about the names that partitions may have.
    pub(crate) fn names_are(&self) -> String {
        match self {
            Rule::Explicit | Rule::Function(_) => {
                format!("a partition's name has at most {PARTITION_NAME_BYTES_MAX} bytes")
            }
            Rule::Prefix(bytes) => format!("a partition is named by the first {bytes} bytes of its keys"),
            Rule::Ranges(_) => {
                "a partition is named by the key at which it begins, the first by nothing".to_owned()
            }
        }
    }
}

/// A partition's name in messages.
pub(crate) fn partition_name(keyspace: &str, partition: &[u8]) -> String {
    format!("{keyspace}/{}", partition.escape_ascii())
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Explicit => f.write_str("explicit"),
            Rule::Prefix(bytes) => write!(f, "prefix of {bytes}"),
            Rule::Ranges(bounds) => {
                f.write_str("ranges from")?;
                bounds.iter().try_for_each(|bound| write!(f, " {}", bound.escape_ascii()))
            }
            Rule::Function(KeyFunction { name, version, .. }) => {
                write!(f, "function {name:?}, version {version}")
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(bounds: &[&[u8]]) -> Result<Rule, String> {
        Rule::ranges(bounds.iter().map(|bound| Box::from(*bound)).collect())
    }

    /// Rules that do not divide, or divide ambiguously, are refused.
    #[test]
    fn invalid_rules_are_refused() {
        assert!(Rule::prefix(0).is_err() && Rule::prefix(256).is_err());
        assert_eq!(Rule::prefix(255), Ok(Rule::Prefix(255)));
        assert!(ranges(&[]).is_err() && ranges(&[b""]).is_err());
        assert!(ranges(&[b"b", b"a"]).is_err() && ranges(&[b"a", b"a"]).is_err());
        assert!(ranges(&[&[1; 256]]).is_err() && ranges(&[&[1; 255]]).is_ok());
        let many: Vec<[u8; 2]> = (0..=BOUNDS_MAX as u16).map(|number| (number + 1).to_be_bytes()).collect();
        let many: Vec<&[u8]> = many.iter().map(|bound| &bound[..]).collect();
        assert!(ranges(&many).is_err() && ranges(&many[1..]).is_ok());
    }

    /// A key belongs to the partition of its first bytes, or of the last bound at or before it.
    #[test]
    fn keys_name_their_partitions() {
        let prefix = Rule::Prefix(2);
        for (key, name) in [(&b"abc"[..], &b"ab"[..]), (b"ab", b"ab"), (b"a", b"a"), (b"", b"")] {
            assert_eq!(prefix.name_of(key).expect("routed"), name);
        }
        let ranges = ranges(&[b"g", b"m"]).expect("ascending");
        for (key, name) in [(&b""[..], &b""[..]), (b"fz", b""), (b"g", b"g"), (b"lz", b"g"), (b"z", b"m")] {
            assert_eq!(ranges.name_of(key).expect("routed"), name);
        }
        let code: Box<NameOf> = Box::new(|key| key.get(1..).unwrap_or_default().into());
        let function = Rule::function("rest", 1, code).expect("it has a name");
        assert_eq!(function.name_of(b"key").expect("routed"), &b"ey"[..]);
        let without = Rule::Function(KeyFunction::named("rest", 1));
        assert_eq!(without, function);
        assert!(matches!(without.name_of(b"key"), Err(Error::Unrouted { name }) if name == "rest"));
        without.take_code(&function);
        assert_eq!(without.name_of(b"key").expect("routed"), &b"ey"[..]);
        assert_ne!(without, Rule::Function(KeyFunction::named("rest", 2)));
        assert!(prefix.has_name(b"a") && !prefix.has_name(b"abc"));
        assert!(ranges.has_name(b"") && ranges.has_name(b"m") && !ranges.has_name(b"n"));
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let bounds = proptest::collection::btree_set(proptest::collection::vec(0..3u8, 1..4), 1..6);
        let ranges = bounds.prop_map(|bounds| {
            Rule::ranges(bounds.into_iter().map(Vec::into_boxed_slice).collect()).expect("ascending")
        });
        prop_oneof![(1..4u8).prop_map(Rule::Prefix), ranges]
    }

    proptest! {
        /// Partitions are in the order of their keys, and the names of a range are those of its keys.
        #[test]
        fn partitions_lie_in_the_order_of_their_names(
            rule in rule(),
            keys in proptest::collection::btree_set(proptest::collection::vec(0..3u8, 0..5), 2..20),
        ) {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let name = |key| rule.part_name_of(key).expect("by key");
            for pair in keys.windows(2) {
                prop_assert!(name(pair[0]) <= name(pair[1]), "{:?}", pair);
            }
            for (from, to) in [(0, keys.len() / 2), (keys.len() / 2, keys.len() - 1)] {
                let range = (Bound::Excluded(keys[from]), Bound::Excluded(keys[to]));
                let names = rule.names_of(range);
                for key in &keys[from + 1..to.max(from + 1)] {
                    prop_assert!(rule.has_name(name(key)));
                    prop_assert!(std::ops::RangeBounds::<[u8]>::contains(&names, name(key)));
                }
            }
        }
    }
}
