//! The key hash: 128 bits, seeded by the store's secret, cut into named fields that never overlap.
//!
//! Seeded, not keyed: the seed defends against colliding keys computed in advance. Correctness never depends
//! on the hash. A get computes it once; memtable, filter and block tags each take their field.

use super::id::KeyspaceId;
use super::place;

/// The store's 128 random bits, expanded to the secret that the hash function takes. Never printed.
#[derive(Clone)]
pub(crate) struct HashSecret {
    bytes: [u8; 192],
    #[cfg(test)]
    strange: Option<fn(u128) -> u128>,
}

/// Seeds whose hashes have the properties that tests need.
#[cfg(test)]
pub(crate) mod strange {
    /// Hashes of 8 bits, in the first bits of the place; a third of all keys have one of five hashes.
    pub(crate) const COLLIDING: [u8; 16] = *b"hashes collide..";
    /// Every route takes the last child at each level.
    pub(crate) const ONE_PATH: [u8; 16] = *b"one path for all";

    /// The change that a seed makes to hashes.
    pub(super) fn of(seed: [u8; 16]) -> Option<fn(u128) -> u128> {
        match seed {
            COLLIDING => Some(|hash| {
                let few = (hash >> 8) % 3 == 0;
                let bits = if few { (hash >> 64) % 5 * 51 } else { hash & 255 };
                bits << 28
            }),
            ONE_PATH => Some(|hash| hash | ((1 << 36) - 1)),
            _ => None,
        }
    }
}

impl HashSecret {
    /// Expands 128 random bits by two independent SplitMix64 streams.
    pub(crate) fn expand(seed: [u8; 16]) -> HashSecret {
        #[cfg(test)]
        let strange = strange::of(seed);
        let seed = u128::from_le_bytes(seed);
        let (mut low, mut high) = (seed as u64, (seed >> 64) as u64);
        let mut bytes = [0; 192];
        for word in bytes.chunks_exact_mut(8) {
            let mixed =
                split_mix(&mut low).wrapping_add(split_mix(&mut high).wrapping_mul(0xd6e8_feb8_6659_fd93));
            word.copy_from_slice(&mixed.to_le_bytes());
        }
        HashSecret {
            bytes,
            #[cfg(test)]
            strange,
        }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = xxhash_rust::xxh3::xxh3_128_with_secret(key, &self.bytes);
        #[cfg(test)]
        let hash = self.strange.map_or(hash, |strange| strange(hash));
        KeyHash(hash)
    }

    /// The hash of a key in its stored form. In a hashed keyspace it is computed from the place in front of
    /// the key: route and order are those of the key's hash, and the filter bits are mixed from both.
    #[inline]
    pub(crate) fn hash_in(&self, keyspace: KeyspaceId, stored: &[u8]) -> KeyHash {
        if keyspace.is_hashed() { of_place(stored) } else { self.hash(stored) }
    }
}

impl std::fmt::Debug for HashSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashSecret(..)")
    }
}

#[inline(never)]
fn of_place(stored: &[u8]) -> KeyHash {
    let (route, order) = place::bits_of(stored);
    // The route fills the bits above those of the order.
    let mut mixed = order ^ route.rotate_left(28);
    let filter = split_mix(&mut mixed) >> 20;
    KeyHash(u128::from(filter) << 84 | u128::from(order) << 36 | u128::from(route))
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bits 0..36 route through a trie, 36..84 order within a table, 84..128 filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyHash(pub(crate) u128);

impl KeyHash {
    /// The 36 bits that route through a trie, those of level 1 the most significant.
    pub(crate) fn route(self) -> u64 {
        (self.0 as u64) & ((1 << 36) - 1)
    }

    /// The 48 bits of order; a memtable's hashed index and the tags in blocks are cut from them.
    pub(crate) fn order(self) -> u64 {
        ((self.0 >> 36) as u64) & ((1 << 48) - 1)
    }

    /// The low byte of the order field: an item's tag in a block of an ordered table.
    pub(crate) fn block_tag(self) -> u8 {
        self.order() as u8
    }

    /// The 44 bits every filter is built from, left-aligned so that a multiply-high selects a page.
    pub(crate) fn filter(self) -> u64 {
        ((self.0 >> 84) as u64) << 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields are cut as the format defines them, and two seeds give two functions.
    #[test]
    fn fields_do_not_overlap_and_the_seed_matters() {
        let hash = KeyHash(((1u128 << 36) - 1) | 0xabu128 << 36 | 1u128 << 127);
        assert_eq!(hash.order(), 0xab);
        assert_eq!(hash.block_tag(), 0xab);
        assert_eq!(hash.filter(), 1 << 63);
        let (one, two) = (HashSecret::expand([1; 16]), HashSecret::expand([2; 16]));
        assert_ne!(one.hash(b"key"), two.hash(b"key"));
        assert_eq!(one.hash(b"key"), HashSecret::expand([1; 16]).hash(b"key"));
    }
}
