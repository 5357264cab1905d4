//! Reading a tree of nodes: descent, lookup, and scan steps without sibling links.
//!
//! It changes nothing and keeps no state. `Generation` calls it for readers, the inserter for its own
//! descent. The invariants of module `memtable` explain why a reader may run beside the inserter.

use std::ops::Bound;

use crate::base::id::Sequence;
use crate::base::step::Direction;

use super::arena::{Arena, ArenaEntry, LINE_BYTES, Offset};
use super::node::{IndexNode, Order};
use super::position::ItemPosition;
use super::versions::visible;

/// Entries of its leaf that a scan prefetches.
const ENTRIES_AHEAD: usize = 4;

/// A position between keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyBound<'a> {
    Start,
    Below(&'a [u8]),
    Above(&'a [u8]),
    End,
}

impl<'a> KeyBound<'a> {
    /// The start of a scan in `direction` from `key`.
    pub(super) fn new(key: Bound<&'a [u8]>, direction: Direction) -> KeyBound<'a> {
        match (key, direction) {
            (Bound::Unbounded, Direction::Forward) => KeyBound::Start,
            (Bound::Unbounded, Direction::Backward) => KeyBound::End,
            (Bound::Included(key), Direction::Forward) | (Bound::Excluded(key), Direction::Backward) => {
                KeyBound::Below(key)
            }
            (Bound::Excluded(key), Direction::Forward) | (Bound::Included(key), Direction::Backward) => {
                KeyBound::Above(key)
            }
        }
    }

    /// The number of the node's keys before the cut.
    fn rank(self, node: &IndexNode<'_>, order: Order) -> usize {
        match self {
            KeyBound::Start => 0,
            KeyBound::End => order.count(),
            KeyBound::Below(key) => node.search(order, key).0,
            KeyBound::Above(key) => {
                let (rank, equal) = node.search(order, key);
                rank + usize::from(equal)
            }
        }
    }

    /// Index of the child to descend to. A key equal to a separator lies right of it, so only a backward scan
    /// from below that key goes left.
    fn child_index(self, node: &IndexNode<'_>, order: Order, direction: Direction) -> usize {
        match (self, direction) {
            (KeyBound::Below(key), Direction::Forward) => KeyBound::Above(key).rank(node, order),
            _ => self.rank(node, order),
        }
    }
}

/// One level of a descent: the node's state, and the child taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescentStep {
    pub(super) order: Order,
    pub(super) index: usize,
    pub(super) child: Offset,
}

/// The child of an inner node that `index` selects in the node's state, with both from one moment.
#[inline]
fn turn(node: &IndexNode<'_>, mut index: impl FnMut(Order) -> usize) -> DescentStep {
    loop {
        let order = node.order();
        let index = index(order);
        let child = node.child(order, index);
        // A split adds the separator before it replaces the child by the left half. So if the state is
        // unchanged after the child was loaded, the child covers the selected range. At most one more round
        // for each separator added.
        if node.is_still(order) {
            return DescentStep { order, index, child };
        }
    }
}

/// The turn towards `key` in an inner node.
#[inline]
pub(super) fn turn_to_key(node: &IndexNode<'_>, key: &[u8]) -> DescentStep {
    turn(node, |order| {
        let (rank, equal) = node.search(order, key);
        rank + usize::from(equal)
    })
}

/// The newest version of `key` with a sequence of at most `bound`.
#[inline]
pub(super) fn get<'a>(arena: &'a Arena, root: Offset, key: &[u8], bound: Sequence) -> Option<ArenaEntry<'a>> {
    let mut node = IndexNode::open(arena, root);
    while node.level > 0 {
        node = open_child(arena, turn_to_key(&node, key).child);
    }
    let order = node.order();
    let (rank, equal) = node.search(order, key);
    if !equal {
        return None;
    }
    let newest = node.entry(order.slot(rank));
    let (_, entry) = visible(arena, newest, bound)?;
    debug_assert_eq!(entry.key, key, "a key lies between the fences of every node it is looked for in");
    Some(entry)
}

/// Opens a child and prefetches all of its lines that a search needs.
#[inline]
pub(super) fn open_child(arena: &Arena, at: Offset) -> IndexNode<'_> {
    (1..3).for_each(|line| arena.prefetch(at, line * LINE_BYTES));
    IndexNode::open(arena, at)
}

/// The first visible item from `cut` on.
pub(super) fn seek<'a>(
    arena: &'a Arena,
    root: Offset,
    mut cut: KeyBound<'a>,
    direction: Direction,
    bound: Sequence,
) -> Option<ItemPosition> {
    loop {
        // Separators around the leaf, narrowed on the way down; 0 at an edge of the tree.
        let (mut lower, mut upper) = (0, 0);
        let mut node = IndexNode::open(arena, root);
        while node.level > 0 {
            let DescentStep { order, index, child } =
                turn(&node, |order| cut.child_index(&node, order, direction));
            if index > 0 {
                lower = node.entry(order.slot(index - 1));
            }
            if index < order.count() {
                upper = node.entry(order.slot(index));
            }
            node = open_child(arena, child);
        }
        let order = node.order();
        let rank = cut.rank(&node, order);
        let found = walk(arena, &node, order, rank, direction, bound);
        let fence = if direction == Direction::Forward { upper } else { lower };
        if found.is_some() || fence == 0 {
            return found;
        }
        cut = KeyBound::Below(arena.entry(fence).key);
    }
}

/// The visible neighbour of `position` in its own leaf.
pub(super) fn step_in_leaf(
    arena: &Arena,
    position: ItemPosition,
    direction: Direction,
    bound: Sequence,
) -> Option<ItemPosition> {
    let leaf = IndexNode::open(arena, position.leaf);
    let order = leaf.order();
    let rank = order.rank(usize::from(position.slot));
    let cut = if direction == Direction::Forward { rank + 1 } else { rank };
    walk(arena, &leaf, order, cut, direction, bound)
}

/// The first key with a visible version, going in `direction` from between the ranks `cut - 1` and `cut`.
fn walk(
    arena: &Arena,
    leaf: &IndexNode<'_>,
    order: Order,
    cut: usize,
    direction: Direction,
    bound: Sequence,
) -> Option<ItemPosition> {
    let count = order.count();
    let ranks = if direction == Direction::Forward { cut..count } else { 0..cut };
    // The n-th rank in the direction of the scan.
    let rank = |n: usize| if direction == Direction::Forward { cut + n } else { cut - 1 - n };
    (0..ranks.len()).find_map(|n| {
        let slot = order.slot(rank(n));
        let (entry, _) = visible(arena, leaf.entry(slot), bound)?;
        // The entries that the scan visits next; entries lie anywhere in the arena.
        for ahead in n + 1..ranks.len().min(n + 1 + ENTRIES_AHEAD) {
            let next = leaf.entry(order.slot(rank(ahead)));
            arena.prefetch(next, 0);
            arena.prefetch(next, LINE_BYTES);
        }
        Some(ItemPosition { leaf: leaf.at, entry, slot: slot as u8 })
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::hash::HashSecret;
    use crate::base::id::{ItemKind, KeyspaceId, PartitionId, SEQUENCE_MAX, TreeId};
    use crate::base::region::Region;
    use crate::base::sync::Ordering;
    use crate::memtable::generation;

    /// A reader that has loaded an inner node's state before a split of a child still finds every older key.
    /// The child that it loads then may be the left half, and the state is checked again.
    #[test]
    fn a_split_between_state_and_child_loses_no_key() {
        let tree = TreeId { keyspace: KeyspaceId(1), partition: PartitionId(1) };
        let secret = HashSecret::expand([1; 16]);
        let (generation, mut inserter) = generation(Region::heap(256 << 10).expect("small allocation"));
        let mut insert = |number: u64| {
            let key = number.to_be_bytes();
            inserter.insert(tree, &key, secret.hash(&key), number, ItemKind::Put, b"");
        };
        // Two leaves under a root; the left one is full, and one more key splits it at 7000.
        (1..=20).for_each(|thousand| insert(thousand * 1000));
        let arena = &generation.arena;
        let root =
            generation.directory.find(arena, tree).expect("the tree has items").load(Ordering::Acquire);
        let node = IndexNode::open(arena, root);
        let before = node.order();
        assert_eq!(node.level, 1);
        let key = 7000u64.to_be_bytes();
        let mut rounds = 0;
        let turn = turn(&node, |order| {
            rounds += 1;
            let index = KeyBound::Above(&key).rank(&node, order);
            if rounds == 1 {
                (1..=999).take_while(|_| node.is_still(before)).for_each(&mut insert);
            }
            index
        });
        assert_eq!(rounds, 2);
        assert!(get(arena, turn.child, &key, SEQUENCE_MAX).is_some());
    }
}
