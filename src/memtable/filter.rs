//! The generation's filter: a Bloom filter whose probes of one key lie in one cache line.
//!
//! It answers "certainly absent" with one cache miss. It is not exact, and it is not the filter of tables,
//! which is paged and stored. The inserter adds keys, any thread queries; all words are atomics.
//!
//! Source: F. Putze, P. Sanders, J. Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007),
//! blocked filters. Each further probe multiplies by the golden ratio and takes the top bits.
//!
//! Invariant: bits are only ever set, and are set before their entry is published. So a reader that may see
//! an entry sees its bits.

use crate::base::hash::KeyHash;
use crate::base::id::TreeId;
use crate::base::prefetch::prefetch;
use crate::base::sync::{AtomicU64, Ordering};

use super::arena::{Arena, Bump, LINE_BYTES, Offset};

/// Expected bytes of region for one key, entry and index together. A filter sized by it is 1 % of the region.
const REGION_BYTES_PER_KEY: usize = 128;
const BITS_PER_KEY: usize = 10;
const PROBES: usize = 6;
const LINE_BITS: usize = LINE_BYTES * 8;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// An odd constant other than the golden ratio, so that trees and keys are mixed differently.
const TREE_MIX: u64 = 0xd6e8_feb8_6659_fd93;

/// The filter's offset and size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filter {
    at: Offset,
    lines: u32,
}

impl Filter {
    /// Takes the filter's lines from the arena.
    pub(super) fn new(arena: &Arena, bump: &mut Bump) -> Filter {
        let lines = Filter::bytes(arena.bytes()) / LINE_BYTES;
        Filter { at: bump.words(lines * LINE_BYTES), lines: lines as u32 }
    }

    /// Bytes of the filter of a region.
    pub(super) fn bytes(region_bytes: usize) -> usize {
        let bits = region_bytes / REGION_BYTES_PER_KEY * BITS_PER_KEY;
        bits.div_ceil(LINE_BITS).max(1) * LINE_BYTES
    }

    /// Only the inserter calls this.
    #[inline]
    pub(super) fn add(self, arena: &Arena, tree: TreeId, hash: KeyHash) {
        let (line, mut probe) = self.line(arena, tree, hash);
        for _ in 0..PROBES {
            let (word, bit) = next_probe(&mut probe);
            // There is one writer: no concurrent store is lost between load and store.
            let bits = line[word].load(Ordering::Relaxed);
            line[word].store(bits | bit, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn may_contain(self, arena: &Arena, tree: TreeId, hash: KeyHash) -> bool {
        let (line, mut probe) = self.line(arena, tree, hash);
        (0..PROBES).all(|_| {
            let (word, bit) = next_probe(&mut probe);
            line[word].load(Ordering::Relaxed) & bit != 0
        })
    }

    /// Hints that the key's line will be read soon.
    #[inline]
    pub(super) fn prefetch(self, arena: &Arena, tree: TreeId, hash: KeyHash) {
        prefetch(self.line(arena, tree, hash).0, 0);
    }

    #[inline]
    fn line(self, arena: &Arena, tree: TreeId, hash: KeyHash) -> (&[AtomicU64; 8], u64) {
        let tree = u64::from(tree.keyspace.0) << 32 | u64::from(tree.partition.0);
        let mixed = (hash.filter() ^ tree.wrapping_mul(TREE_MIX)).wrapping_mul(GOLDEN);
        let index = ((u128::from(mixed) * u128::from(self.lines)) >> 64) as u32;
        let words = arena.words(self.at + index * LINE_BYTES as u32, 8);
        // The line took the top bits; the probes start from all bits, the upper half folded into the lower.
        (words.try_into().expect("a line has 8 words"), mixed ^ mixed >> 32)
    }
}

/// Word and bit of the next probe.
#[inline]
fn next_probe(probe: &mut u64) -> (usize, u64) {
    *probe = probe.wrapping_mul(GOLDEN);
    ((*probe >> 61) as usize, 1 << (*probe >> 55 & 63))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::hash::HashSecret;
    use crate::base::id::{KeyspaceId, PartitionId};
    use crate::base::region::Region;

    /// Every added key is found, and at the expected load few others are. The same key in another tree counts
    /// as another key.
    #[test]
    fn few_false_positives_and_no_false_negatives() {
        let region_bytes = if cfg!(miri) { 32 << 10 } else { 1 << 20 };
        let keys = (region_bytes / REGION_BYTES_PER_KEY) as u32;
        let (arena, mut bump) = Arena::new(Region::heap(region_bytes).expect("small allocation"));
        let filter = Filter::new(&arena, &mut bump);
        let secret = HashSecret::expand([3; 16]);
        let tree = |partition| TreeId { keyspace: KeyspaceId(1), partition: PartitionId(partition) };
        let hash = |number: u32| secret.hash(&number.to_le_bytes());
        (0..keys).for_each(|number| filter.add(&arena, tree(number % 3), hash(number)));
        assert!((0..keys).all(|number| filter.may_contain(&arena, tree(number % 3), hash(number))));
        let wrong =
            (keys..2 * keys).filter(|&number| filter.may_contain(&arena, tree(0), hash(number))).count();
        let other = (0..keys).filter(|&number| filter.may_contain(&arena, tree(3), hash(number))).count();
        for false_positives in [wrong, other] {
            assert!(false_positives < keys as usize / 50, "{false_positives} of {keys}");
        }
    }
}
