//! The most room that a batch takes in an empty generation.
//!
//! In any order, items with random keys leave nodes half empty, and each item is charged for the splits that
//! it may cause (`inserter`). In the order of their keys, every leaf but the last of its tree is full:
//!
//! - A leaf that fills at the right edge leaves a full node and one with a single key. The full one may be
//!   copied, to skip more bytes of its keys. So 14 keys take 2 leaves at most.
//! - The same holds for inner nodes, with a new root at most for each level: 14 leaves take 3 inner nodes at
//!   most, and so do 13 of those on the next level.
//! - A tree has a first leaf that grows twice, and a first root.
//! - A further version of a key takes a jump, which is smaller than a key's share of a leaf.
//! - A range tombstone is charged as in any order.
//!
//! Pure arithmetic.

use super::arena::{ENTRY_BYTES_MAX, JUMP_BYTES};
use super::directory::Directory;
use super::filter::Filter;
use super::inserter::NEW_KEY_BYTES;
use super::node::{LEAF_SLOTS_COUNTS, SLOTS_COUNT_MAX, node_bytes};
use super::ranges::RangeList;

const LEAF_BYTES: usize = node_bytes(0, SLOTS_COUNT_MAX);
const INNER_BYTES: usize = node_bytes(1, SLOTS_COUNT_MAX);
/// Bytes of inner nodes charged to a leaf, for all levels: 3/14, 3/14 of that, and so on; less than 3/11.
const INNER_SHARE_BYTES: usize = (3 * INNER_BYTES).div_ceil(11);
const SORTED_KEY_BYTES: usize = (2 * LEAF_BYTES + INNER_SHARE_BYTES).div_ceil(SLOTS_COUNT_MAX);
const SORTED_TREE_BYTES: usize =
    node_bytes(0, LEAF_SLOTS_COUNTS[0]) + node_bytes(0, LEAF_SLOTS_COUNTS[1]) + LEAF_BYTES + INNER_BYTES;
const _: () = assert!(JUMP_BYTES <= SORTED_KEY_BYTES);

/// Regions are whole pages.
const PAGE_BYTES: usize = 4096;

/// The size of a batch.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct BatchSize {
    pub(crate) items: usize,
    /// Range tombstones among the items.
    pub(crate) ranges: usize,
    /// Of keys and values; for range tombstones, of start and end.
    pub(crate) key_value_bytes: usize,
    /// Most trees that the items may belong to.
    pub(crate) trees: usize,
}

/// Most bytes that a batch takes in an empty generation if it is inserted in the order of its keys.
pub(crate) fn sorted_batch_bytes(size: &BatchSize) -> usize {
    let (_, directory) = Directory::new_bytes(size.trees);
    let keys = size.items.saturating_sub(size.ranges);
    size.items
        .saturating_mul(ENTRY_BYTES_MAX)
        .saturating_add(keys.saturating_mul(SORTED_KEY_BYTES))
        .saturating_add(size.ranges.saturating_mul(NEW_KEY_BYTES))
        .saturating_add(size.trees.saturating_mul(SORTED_TREE_BYTES))
        .saturating_add(size.key_value_bytes)
        .saturating_add(directory)
}

/// Bytes available to a batch in an empty generation of a region.
pub(crate) fn batch_bytes_max(region_bytes: usize) -> usize {
    let (directory, _) = Directory::new_bytes(0);
    (region_bytes & !7).saturating_sub(Filter::bytes(region_bytes) + directory + RangeList::new_bytes())
}

/// The smallest region, in whole pages, whose empty generation has room for `batch_bytes`.
pub(crate) fn region_bytes_for(batch_bytes: usize) -> usize {
    let mut region_bytes = batch_bytes.next_multiple_of(PAGE_BYTES);
    while batch_bytes_max(region_bytes) < batch_bytes {
        let missing = batch_bytes - batch_bytes_max(region_bytes);
        region_bytes += missing.next_multiple_of(PAGE_BYTES);
    }
    region_bytes
}

#[cfg(all(test, not(loom)))]
mod tests;
