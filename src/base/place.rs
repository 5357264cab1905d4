//! The place of a key of a hashed keyspace.
//!
//! A hashed keyspace is kept in the order of its keys' hashes. Its keys are stored behind their place, so
//! that every layer below the public face sorts bytes only. Memtables, logs and tables sort stored keys as
//! they sort the keys of any other tree. [`HashSecret::hash_in`] computes the hash of a stored key from its
//! place. Pure.
//!
//! ```text
//! stored key: 11 bytes of place, the key
//! place: 84 bits, the most significant first, and 4 bits zero
//!     36  route: each 3 bits are a child, of level 1 first
//!     48  order
//! ```

use smallvec::SmallVec;

use super::hash::{HashSecret, KeyHash};
use super::id::{KEY_BYTES_MAX, KeyspaceId, TreeId};
use super::key::head;

/// Bytes of a place.
pub(crate) const PLACE_BYTES: usize = 11;
/// Longest key of a hashed keyspace.
pub(crate) const PLACED_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - PLACE_BYTES;

const ROUTE_BITS: u32 = 36;
const ORDER_BITS: u32 = 48;
/// Bits of the 11 bytes that are zero.
const SPARE_BITS: u32 = 8 * PLACE_BYTES as u32 - ROUTE_BITS - ORDER_BITS;

/// A key in its stored form.
pub(crate) enum StoredKey<'k> {
    /// A key of an ordered keyspace.
    AsGiven(&'k [u8]),
    /// A key of a hashed keyspace, behind its place.
    Placed(SmallVec<[u8; 64]>),
}

impl std::ops::Deref for StoredKey<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            StoredKey::AsGiven(key) => key,
            StoredKey::Placed(key) => key,
        }
    }
}

impl AsRef<[u8]> for StoredKey<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// The key in the form that its keyspace stores.
#[inline]
pub(crate) fn stored_key<'k>(secret: &HashSecret, keyspace: KeyspaceId, key: &'k [u8]) -> StoredKey<'k> {
    if keyspace.is_hashed() { StoredKey::Placed(placed(secret, key)) } else { StoredKey::AsGiven(key) }
}

#[inline(never)]
fn placed(secret: &HashSecret, key: &[u8]) -> SmallVec<[u8; 64]> {
    let mut stored = SmallVec::with_capacity(PLACE_BYTES + key.len());
    stored.extend_from_slice(&place(secret.hash(key)));
    stored.extend_from_slice(key);
    stored
}

/// Appends the stored key of a key given in two parts.
#[inline]
pub(crate) fn put_placed(secret: &HashSecret, (prefix, suffix): (&[u8], &[u8]), stored: &mut Vec<u8>) {
    let start = stored.len();
    stored.extend_from_slice(&[0; PLACE_BYTES]);
    stored.extend_from_slice(prefix);
    stored.extend_from_slice(suffix);
    let (place_bytes, key) = stored[start..].split_at_mut(PLACE_BYTES);
    place_bytes.copy_from_slice(&place(secret.hash(key)));
}

/// The caller's key within a stored key.
#[inline]
pub(crate) fn given_key(tree: TreeId, stored: &[u8]) -> &[u8] {
    // Shorter stored keys are bounds of ranges, and bytes of damaged files.
    if tree.keyspace.is_hashed() { stored.get(PLACE_BYTES..).unwrap_or_default() } else { stored }
}

/// A stored key for messages, escaped. For a hashed keyspace: the place in hex digits, a slash and the key.
pub(crate) fn shown_key(keyspace: KeyspaceId, stored: &[u8]) -> String {
    if !keyspace.is_hashed() {
        return stored.escape_ascii().to_string();
    }
    let (place, key) = stored.split_at(stored.len().min(PLACE_BYTES));
    let digits: String = place.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits}/{}", key.escape_ascii())
}

/// The share of all places between two bounds, in millionths; never 0. The bounds are stored keys or prefixes
/// of stored keys. `None` means no bound.
pub(crate) fn part_between(from: Option<&[u8]>, to: Option<&[u8]>) -> u64 {
    let word = |bound: &[u8]| u128::from(head(bound));
    let (from, to) = (from.map_or(0, word), to.map_or(1 << 64, |to| word(to) + 1));
    ((to.saturating_sub(from) * 1_000_000) >> 64).max(1) as u64
}

fn place(hash: KeyHash) -> [u8; PLACE_BYTES] {
    let bits = u128::from(hash.route()) << ORDER_BITS | u128::from(hash.order());
    let bytes = (bits << SPARE_BITS).to_be_bytes();
    bytes[bytes.len() - PLACE_BYTES..].try_into().expect("so many were taken")
}

/// Route and order of the place in front of a stored key. A shorter key, of a damaged file, is padded with
/// zeros.
pub(super) fn bits_of(stored: &[u8]) -> (u64, u64) {
    let mut bytes = [0; 16];
    let count = stored.len().min(PLACE_BYTES);
    bytes[5..5 + count].copy_from_slice(&stored[..count]);
    let bits = u128::from_be_bytes(bytes) >> SPARE_BITS;
    ((bits >> ORDER_BITS) as u64, (bits as u64) & ((1 << ORDER_BITS) - 1))
}

/// Levels of a trie below its root: the route names a child for each.
pub(crate) const HEIGHT_MAX: usize = 12;
/// Children of a node.
pub(crate) const FANOUT: usize = 8;
const CHILD_BITS: u32 = 3;

/// A node of a hashed tree: the items whose routes begin with its path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct NodeId {
    /// The root has height 0.
    pub(crate) height: usize,
    /// Three bits a level, those of level 1 first.
    pub(crate) path: u64,
}

impl NodeId {
    pub(crate) const ROOT: NodeId = NodeId { height: 0, path: 0 };
    /// The greatest id.
    pub(crate) const GREATEST: NodeId = NodeId { height: usize::MAX, path: u64::MAX };

    /// The node of height `height` that holds a stored key. For a height beyond the trie the result has no
    /// use.
    #[inline]
    pub(crate) fn of(height: usize, stored: &[u8]) -> NodeId {
        NodeId { height, path: path(height, stored) }
    }

    pub(crate) fn child(self, number: usize) -> NodeId {
        NodeId { height: self.height + 1, path: self.path << CHILD_BITS | number as u64 }
    }

    /// Numbers of the children on the way from the root to the node.
    pub(crate) fn route(self) -> impl DoubleEndedIterator<Item = usize> {
        let at = move |level: usize| self.path >> (CHILD_BITS as usize * (self.height - level)) & 7;
        (1..=self.height).map(move |level| at(level) as usize)
    }

    /// A lower bound: at or before every stored key of the node, and after every key of earlier nodes.
    pub(crate) fn first(self) -> Vec<u8> {
        let shift = 8 * PLACE_BYTES - CHILD_BITS as usize * self.height;
        let bytes = (u128::from(self.path) << shift).to_be_bytes();
        bytes[bytes.len() - PLACE_BYTES..].to_vec()
    }

    /// The lower bound of the next node of its height; `None` for the last.
    pub(crate) fn behind(self) -> Option<Vec<u8>> {
        let count = 1u64 << (CHILD_BITS as usize * self.height);
        (self.path + 1 < count).then(|| NodeId { path: self.path + 1, ..self }.first())
    }

    /// An upper bound: at or after every stored key of the node, and before every key behind the node.
    pub(crate) fn last(self) -> Vec<u8> {
        let ones = u128::MAX >> (8 * (16 - PLACE_BYTES) + CHILD_BITS as usize * self.height);
        let shift = 8 * PLACE_BYTES - CHILD_BITS as usize * self.height;
        // Spare bits are zero in places: with ones here, no key of the node comes after the bound, regardless
        // of its length.
        let bytes = (u128::from(self.path) << shift | ones).to_be_bytes();
        bytes[bytes.len() - PLACE_BYTES..].to_vec()
    }
}

/// The first `height` child numbers of a stored key's route.
#[inline]
fn path(height: usize, stored: &[u8]) -> u64 {
    let shift = 64usize.saturating_sub(CHILD_BITS as usize * height);
    head(stored).checked_shr(shift as u32).unwrap_or(0)
}

/// The number of the child, at height `height`, that holds a stored key.
#[inline]
pub(crate) fn child_at(height: usize, stored: &[u8]) -> usize {
    (path(height, stored) & 7) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::id::PartitionId;
    use proptest::prelude::*;

    const HASHED: KeyspaceId = KeyspaceId(KeyspaceId::HASHED | 3);
    const ORDERED: KeyspaceId = KeyspaceId(3);

    /// A level's child number is its three bits of the route; places of the children of level 1 are in order.
    #[test]
    fn routes_come_first() {
        let hash = |route: u64, order: u64| KeyHash(u128::from(order) << 36 | u128::from(route));
        let children = (0..8u64).map(|child| place(hash(child << 33, u64::MAX >> 16)));
        let children: Vec<[u8; PLACE_BYTES]> = children.collect();
        assert!(children.is_sorted());
        assert!(children.iter().enumerate().all(|(child, place)| usize::from(place[0] >> 5) == child));
        assert_eq!(place(hash(0, 0xab)), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0xb0]);
        assert_eq!(place(hash(1, 0)), [0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0]);
    }

    /// Messages show the place in digits before the key; bounds may be shorter than a place.
    #[test]
    fn keys_are_shown_behind_their_places() {
        let shown = |stored: &[u8]| shown_key(HASHED, stored);
        assert_eq!(shown(b"\x00\x01\xff\0\0\0\0\0\0\0\x10ann\n"), "0001ff0000000000000010/ann\\n");
        assert_eq!(shown(b"\xab"), "ab/");
        assert_eq!(shown_key(ORDERED, b"ann\n"), "ann\\n");
    }

    /// Shares of all places are counted in millionths, and none is 0.
    #[test]
    fn parts_of_all_places() {
        assert_eq!(part_between(None, None), 1_000_000);
        assert_eq!(part_between(Some(&[0x40]), Some(&[0x80])), 250_000);
        assert_eq!(part_between(Some(&[0xc0, 0]), None), 250_000);
        assert_eq!(part_between(Some(b"same"), Some(b"same")), 1);
        assert_eq!(part_between(Some(b"b"), Some(b"a")), 1);
    }

    proptest! {
        /// The key lies behind its place, the stored key's hash has the bits of the place, and equal keys
        /// have equal hashes. A key of an ordered keyspace stays as it is.
        #[test]
        fn stored_keys_are_given_back(key in proptest::collection::vec(any::<u8>(), 0..100)) {
            let secret = HashSecret::expand([7; 16]);
            let tree = |keyspace| TreeId { keyspace, partition: PartitionId(1) };
            let stored = stored_key(&secret, HASHED, &key);
            prop_assert_eq!(given_key(tree(HASHED), &stored), &key[..]);
            let (hash, whole) = (secret.hash_in(HASHED, &stored), secret.hash(&key));
            prop_assert_eq!((hash.route(), hash.order()), (whole.route(), whole.order()));
            let as_given = stored_key(&secret, ORDERED, &key);
            prop_assert_eq!((&*as_given, given_key(tree(ORDERED), &as_given)), (&key[..], &key[..]));
            prop_assert_eq!(secret.hash_in(ORDERED, &key), whole);
        }

        /// A node holds the keys between its bounds and no others, and its children hold the same keys.
        #[test]
        fn nodes_are_ranges(
            keys in proptest::collection::vec(any::<[u8; 6]>(), 1..40),
            height in 0..=HEIGHT_MAX,
        ) {
            let secret = HashSecret::expand([7; 16]);
            let stored: Vec<_> = keys.iter().map(|key| stored_key(&secret, HASHED, key)).collect();
            let node = NodeId::of(height, &stored[0]);
            prop_assert_eq!(node.route().fold(NodeId::ROOT, NodeId::child), node);
            for key in &stored {
                let is_in = NodeId::of(height, key) == node;
                let is_before_end = node.behind().is_none_or(|behind| key.to_vec() < behind);
                prop_assert_eq!(is_in, node.first() <= key.to_vec() && is_before_end);
                prop_assert_eq!(is_in, node.first() <= key.to_vec() && key.to_vec() <= node.last());
                if height > 0 {
                    let parent = NodeId::of(height - 1, key);
                    prop_assert_eq!(parent.child(child_at(height, key)), NodeId::of(height, key));
                }
            }
        }

        /// Bytes from a damaged file have a hash.
        #[test]
        fn short_keys_have_hashes(key in proptest::collection::vec(any::<u8>(), 0..12)) {
            let secret = HashSecret::expand([7; 16]);
            prop_assert_eq!(secret.hash_in(HASHED, &key), secret.hash_in(HASHED, &key));
        }
    }

    /// Filter bits of one node's keys, whose routes have a common prefix, are as even as those of any keys.
    #[test]
    fn filter_bits_are_even() {
        let secret = HashSecret::expand([9; 16]);
        let mut counts = [0u32; 256];
        let mut keys = 0;
        for number in 0..400_000u32 {
            let key = number.to_le_bytes();
            let stored = stored_key(&secret, HASHED, &key);
            // A node of height 2.
            if stored[0] >> 2 == 0b10_1101 {
                counts[(secret.hash_in(HASHED, &stored).filter() >> 56) as usize] += 1;
                keys += 1;
            }
        }
        let expected = f64::from(keys) / 256.0;
        let chi_square: f64 =
            counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        assert!(keys > 5000 && chi_square < 255.0 + 5.0 * 510f64.sqrt(), "{chi_square} of {keys}");
    }
}
