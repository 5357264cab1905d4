//! Nodes of the ordered index: layout, the order word, search, building.
//!
//! A node is not a tree: `index` and `inserter` decide which node follows and which are split. Any thread may
//! read a published node. Only the inserter changes a node, and each reader sees one of its states whole.
//!
//! ```text
//! offset        size type name: meaning                         (c: slots that the node has)
//!      0           8 u64  order: number of keys, then for each rank 4 bits: its slot
//!      8           4 u32  header: level | c << 8 | skip << 16; fixed
//!     12           4 u32  link: the leftmost child (inner nodes)
//!     16          8c u64  heads: the 8 bytes of the key from `skip`, big-endian, zero padded; then fixed
//!  16+8c          4c u32  leaf: entries, each the newest version; inner: children right of separators
//! 16+12c          4c u32  inner: entries, any version of the separator key; then fixed
//! ```
//! A leaf has 4, 9 or 14 slots (1, 2 or 3 cache lines), an inner node 14 (4, of which a descent needs 3).
//!
//! The order word is the permutation of Masstree's border nodes (Y. Mao, E. Kohler, R. Morris, "Cache
//! Craftiness for Fast Multicore Key-Value Storage", EuroSys 2012). Keys are never removed here, so slots are
//! used in the order of insertion, no slot is used twice, and no version counter is needed.
//!
//! Heads skip the common prefix of all keys in a node's range: that of the separators on both sides (G.
//! Graefe, "Write-Optimized B-Trees", VLDB 2004: fence keys). Every key that is routed to the node lies
//! between the separators, so its prefix needs no check. At the edges of a tree a separator is missing and
//! nothing is skipped.
//!
//! Invariants:
//! 1. The header is fixed. Head and entry of a slot are written before the order word that first names the
//!    slot, which is stored with release. Afterwards a leaf's entry is only replaced by a newer version of
//!    the same key.
//! 2. The order word's count only grows: two equal words are the same state.

use std::cmp::Ordering as Comparison;

use crate::base::key::head_after;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};

use super::arena::{Arena, Bump, LINE_BYTES, Offset};

/// Slots of a full-sized node.
pub(super) const SLOTS_COUNT_MAX: usize = 14;
/// Slots of a tree's first leaf, and of its replacement: 1 and 2 cache lines.
pub(super) const LEAF_SLOTS_COUNTS: [usize; 2] = [4, 9];

const HEADER_AT: Offset = 8;
const LINK_AT: Offset = 12;
const HEADS_AT: Offset = 16;

/// Bytes that a node takes from the arena.
pub(super) const fn node_bytes(level: u8, slots_count: usize) -> usize {
    let slot_bytes = if level == 0 { 12 } else { 16 };
    (HEADS_AT as usize + slots_count * slot_bytes).next_multiple_of(LINE_BYTES)
}

/// The order word: the used slots, in the order of their keys.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Order(u64);

impl Order {
    #[inline]
    pub(super) fn count(self) -> usize {
        (self.0 & 15) as usize
    }

    /// The slot of the key at `rank`.
    #[inline]
    pub(super) fn slot(self, rank: usize) -> usize {
        debug_assert!(rank < self.count());
        (self.0 >> (4 + 4 * rank) & 15) as usize
    }

    /// The rank of the key in `slot`.
    pub(super) fn rank(self, slot: usize) -> usize {
        (0..self.count()).find(|rank| self.slot(*rank) == slot).expect("a slot in use stays in use")
    }

    /// The state with the next free slot in use, at `rank`.
    fn insert(self, rank: usize) -> Order {
        let count = self.count();
        debug_assert!(rank <= count && count < SLOTS_COUNT_MAX);
        let shift = 4 + 4 * rank;
        let below = self.0 & ((1 << shift) - 1);
        let above = self.0 >> shift << (shift + 4);
        Order((below | (count as u64) << shift | above) + 1)
    }

    /// `count` keys in the order of their slots.
    fn sorted(count: usize) -> Order {
        (0..count).fold(Order(0), Order::insert)
    }
}

/// One key of a node. `child` is 0 in a leaf.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct NodeItem {
    pub(super) head: u64,
    pub(super) entry: Offset,
    pub(super) child: Offset,
}

/// The fixed properties of a new node, without its keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeShape {
    pub(super) level: u8,
    pub(super) slots_count: usize,
    pub(super) skip: usize,
    /// The leftmost child; 0 in a leaf.
    pub(super) link: Offset,
}

/// A published node, or one under construction by the inserter.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexNode<'a> {
    arena: &'a Arena,
    pub(super) at: Offset,
    pub(super) level: u8,
    pub(super) slots_count: usize,
    pub(super) skip: usize,
}

impl<'a> IndexNode<'a> {
    /// The node at `at`, an offset loaded with acquire.
    #[inline]
    pub(super) fn open(arena: &'a Arena, at: Offset) -> IndexNode<'a> {
        let header = arena.halves(at + HEADER_AT, 1)[0].load(Ordering::Relaxed);
        let slots_count = usize::from((header >> 8) as u8);
        IndexNode { arena, at, level: header as u8, slots_count, skip: (header >> 16) as usize }
    }

    /// Builds a node that is not published yet.
    pub(super) fn build(
        arena: &'a Arena,
        bump: &mut Bump,
        shape: NodeShape,
        items: &[NodeItem],
    ) -> IndexNode<'a> {
        let at = bump.words(node_bytes(shape.level, shape.slots_count));
        let skip = u16::try_from(shape.skip).expect("keys and their common prefix are below 64 KiB");
        let header = u32::from(shape.level) | (shape.slots_count as u32) << 8 | u32::from(skip) << 16;
        arena.halves(at + HEADER_AT, 1)[0].store(header, Ordering::Relaxed);
        let node = IndexNode::open(arena, at);
        if shape.level > 0 {
            arena.halves(at + LINK_AT, 1)[0].store(shape.link, Ordering::Relaxed);
        }
        for (slot, item) in items.iter().enumerate() {
            node.fill(slot, item);
        }
        node.order_word().store(Order::sorted(items.len()).0, Ordering::Relaxed);
        node
    }

    /// The node's present state, whole.
    #[inline]
    pub(super) fn order(&self) -> Order {
        Order(self.order_word().load(Ordering::Acquire))
    }

    /// Whether `order` is still the node's state.
    #[inline]
    pub(super) fn is_still(&self, order: Order) -> bool {
        self.order_word().load(Ordering::Relaxed) == order.0
    }

    /// The number of keys below `key`, and whether the key at that rank equals it.
    #[inline]
    pub(super) fn search(&self, order: Order, key: &[u8]) -> (usize, bool) {
        let head = head_after(key, self.skip);
        let (mut below, mut equal) = (0u32, 0u32);
        // All heads, without a branch: their cache lines are fetched at the same time.
        for (slot, word) in self.arena.words(self.at + HEADS_AT, self.slots_count).iter().enumerate() {
            let other = word.load(Ordering::Relaxed);
            below |= u32::from(other < head) << slot;
            equal |= u32::from(other == head) << slot;
        }
        let used = (1 << order.count()) - 1;
        let rank = (below & used).count_ones() as usize;
        let ties = equal & used;
        if ties == 0 { (rank, false) } else { self.search_ties(order, key, rank, ties.count_ones() as usize) }
    }

    /// Decides among the `ties` keys from `rank` on by whole keys.
    fn search_ties(&self, order: Order, key: &[u8], rank: usize, ties: usize) -> (usize, bool) {
        let rest = key.get(self.skip..).unwrap_or_default();
        let (mut start, mut end) = (rank, rank + ties);
        while start < end {
            let middle = (start + end) / 2;
            let at = self.entry(order.slot(middle));
            // If the key is equal, its value is read next.
            self.arena.prefetch(at, LINE_BYTES);
            self.arena.prefetch(at, 2 * LINE_BYTES);
            let other = self.arena.entry(at).key;
            match other.get(self.skip..).unwrap_or_default().cmp(rest) {
                Comparison::Less => start = middle + 1,
                Comparison::Equal => return (middle, true),
                Comparison::Greater => end = middle,
            }
        }
        (start, false)
    }

    /// The entry in `slot`: in a leaf the newest version, in an inner node a version of the separator key.
    #[inline]
    pub(super) fn entry(&self, slot: usize) -> Offset {
        self.entry_word(slot).load(Ordering::Acquire)
    }

    /// Replaces the newest version of a leaf's key.
    pub(super) fn set_entry(&self, slot: usize, entry: Offset) {
        self.entry_word(slot).store(entry, Ordering::Release);
    }

    /// The child left of the separator at rank `index` and right of the one before.
    #[inline]
    pub(super) fn child(&self, order: Order, index: usize) -> Offset {
        self.child_word(order, index).load(Ordering::Acquire)
    }

    pub(super) fn set_child(&self, order: Order, index: usize, child: Offset) {
        self.child_word(order, index).store(child, Ordering::Release);
    }

    /// Adds a key at `rank`. There is a free slot.
    pub(super) fn add(&self, order: Order, rank: usize, item: &NodeItem) {
        self.fill(order.count(), item);
        self.order_word().store(order.insert(rank).0, Ordering::Release);
    }

    /// The key at `rank`, for copying.
    pub(super) fn item(&self, order: Order, rank: usize) -> NodeItem {
        let slot = order.slot(rank);
        let head = self.arena.words(self.at + HEADS_AT, self.slots_count)[slot].load(Ordering::Relaxed);
        let child = if self.level == 0 { 0 } else { self.child(order, rank + 1) };
        NodeItem { head, entry: self.entry(slot), child }
    }

    fn fill(&self, slot: usize, item: &NodeItem) {
        self.arena.words(self.at + HEADS_AT, self.slots_count)[slot].store(item.head, Ordering::Relaxed);
        self.entry_word(slot).store(item.entry, Ordering::Relaxed);
        if self.level > 0 {
            let children = self.at + HEADS_AT + self.slots_count as u32 * 8;
            self.arena.halves(children, self.slots_count)[slot].store(item.child, Ordering::Relaxed);
        }
    }

    #[inline]
    fn order_word(&self) -> &'a AtomicU64 {
        &self.arena.words(self.at, 1)[0]
    }

    #[inline]
    fn entry_word(&self, slot: usize) -> &'a AtomicU32 {
        let width = if self.level == 0 { 8 } else { 12 };
        &self.arena.halves(self.at + HEADS_AT + self.slots_count as u32 * width, self.slots_count)[slot]
    }

    #[inline]
    fn child_word(&self, order: Order, index: usize) -> &'a AtomicU32 {
        let Some(rank) = index.checked_sub(1) else {
            return &self.arena.halves(self.at + LINK_AT, 1)[0];
        };
        &self.arena.halves(self.at + HEADS_AT + self.slots_count as u32 * 8, self.slots_count)
            [order.slot(rank)]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Inserting at any rank gives the next slot that rank and moves the later ones up by one.
    #[test]
    fn the_order_word_is_a_list() {
        let mut twin: Vec<usize> = Vec::new();
        let mut order = Order::default();
        for slot in 0..SLOTS_COUNT_MAX {
            let rank = slot * 7 % (slot + 1);
            twin.insert(rank, slot);
            order = order.insert(rank);
            assert_eq!(order.count(), twin.len());
            for (rank, slot) in twin.iter().enumerate() {
                assert_eq!((order.slot(rank), order.rank(*slot)), (*slot, rank));
            }
        }
        assert_eq!(Order::sorted(SLOTS_COUNT_MAX).slot(13), 13);
    }
}
