//! Reading a tree of nodes: descent, lookup, and movement without sibling links.
//!
//! It changes nothing and remembers nothing. `Generation` calls it for readers, the inserter for its own descent; the
//! folder's page says why a reader may run beside the inserter.

use std::ops::Bound;

use crate::base::id::Sequence;
use crate::base::step::Direction;

use super::Position;
use super::arena::{Arena, Entry, Offset};
use super::node::{Node, Order};

/// A place between keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut<'a> {
    Start,
    Below(&'a [u8]),
    Above(&'a [u8]),
    End,
}

impl<'a> Cut<'a> {
    /// Where a scan in `direction` from `key` begins.
    pub(super) fn new(key: Bound<&'a [u8]>, direction: Direction) -> Cut<'a> {
        match (key, direction) {
            (Bound::Unbounded, Direction::Forward) => Cut::Start,
            (Bound::Unbounded, Direction::Backward) => Cut::End,
            (Bound::Included(key), Direction::Forward) | (Bound::Excluded(key), Direction::Backward) => {
                Cut::Below(key)
            }
            (Bound::Excluded(key), Direction::Forward) | (Bound::Included(key), Direction::Backward) => {
                Cut::Above(key)
            }
        }
    }

    /// How many of the node's keys are before the cut.
    fn rank(self, node: &Node<'_>, order: Order) -> usize {
        match self {
            Cut::Start => 0,
            Cut::End => order.count(),
            Cut::Below(key) => node.search(order, key).0,
            Cut::Above(key) => {
                let (rank, equal) = node.search(order, key);
                rank + usize::from(equal)
            }
        }
    }

    /// Which child to go to. Keys equal to a separator are right of it, so only what looks for keys below turns left there.
    fn child_index(self, node: &Node<'_>, order: Order, direction: Direction) -> usize {
        match (self, direction) {
            (Cut::Below(key), Direction::Forward) => Cut::Above(key).rank(node, order),
            _ => self.rank(node, order),
        }
    }
}

/// One level of a descent: the node's state, and which child was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) order: Order,
    pub(super) index: usize,
    pub(super) child: Offset,
}

/// The child of an inner node whose range `index` of the node's state picks, both from one moment.
#[inline]
fn turn(node: &Node<'_>, index: impl Fn(Order) -> usize) -> Turn {
    loop {
        let order = node.order();
        let index = index(order);
        let child = node.child(order, index);
        // A split adds the separator before it swings the child to the left half: an unchanged state after the child
        // was loaded means that the child covers the range picked. At most one more round for each separator added.
        if node.is_still(order) {
            return Turn { order, index, child };
        }
    }
}

/// Where `key` belongs in an inner node.
#[inline]
pub(super) fn turn_to_key(node: &Node<'_>, key: &[u8]) -> Turn {
    turn(node, |order| {
        let (rank, equal) = node.search(order, key);
        rank + usize::from(equal)
    })
}

/// The newest version of `key` with a sequence of at most `bound`.
#[inline]
pub(super) fn get<'a>(arena: &'a Arena, root: Offset, key: &[u8], bound: Sequence) -> Option<Entry<'a>> {
    let mut node = Node::open(arena, root);
    while node.level > 0 {
        node = open_child(arena, turn_to_key(&node, key).child);
    }
    let order = node.order();
    let (rank, equal) = node.search(order, key);
    if !equal {
        return None;
    }
    visible(arena, node.entry(order.slot(rank)), bound).map(|(_, entry)| entry)
}

/// Opens a node whose last line will be wanted soon after the first two.
#[inline]
pub(super) fn open_child(arena: &Arena, at: Offset) -> Node<'_> {
    arena.prefetch(at + 64);
    Node::open(arena, at)
}

/// The first visible item from `cut` on.
pub(super) fn seek<'a>(
    arena: &'a Arena,
    root: Offset,
    mut cut: Cut<'a>,
    direction: Direction,
    bound: Sequence,
) -> Option<Position> {
    loop {
        // Separators around the leaf, narrowed on the way down; 0 at an edge of the tree.
        let (mut lower, mut upper) = (0, 0);
        let mut node = Node::open(arena, root);
        while node.level > 0 {
            let Turn { order, index, child } = turn(&node, |order| cut.child_index(&node, order, direction));
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
        let found = match direction {
            Direction::Forward => walk(arena, &node, order, rank..order.count(), bound),
            Direction::Backward => walk(arena, &node, order, (0..rank).rev(), bound),
        };
        let fence = if direction == Direction::Forward { upper } else { lower };
        if found.is_some() || fence == 0 {
            return found;
        }
        cut = Cut::Below(arena.entry(fence).key);
    }
}

/// The visible neighbour of `position` in its own leaf.
pub(super) fn step_in_leaf(
    arena: &Arena,
    position: Position,
    direction: Direction,
    bound: Sequence,
) -> Option<Position> {
    let leaf = Node::open(arena, position.leaf);
    let order = leaf.order();
    let rank = order.rank(usize::from(position.slot));
    match direction {
        Direction::Forward => walk(arena, &leaf, order, rank + 1..order.count(), bound),
        Direction::Backward => walk(arena, &leaf, order, (0..rank).rev(), bound),
    }
}

/// The first of the ranks with a visible version.
fn walk(
    arena: &Arena,
    leaf: &Node<'_>,
    order: Order,
    mut ranks: impl Iterator<Item = usize>,
    bound: Sequence,
) -> Option<Position> {
    ranks.find_map(|rank| {
        let slot = order.slot(rank);
        let (entry, _) = visible(arena, leaf.entry(slot), bound)?;
        Some(Position { leaf: leaf.at, entry, slot: slot as u8 })
    })
}

/// The newest version, of `newest` and those before it, with a sequence of at most `bound`.
#[inline]
fn visible(arena: &Arena, newest: Offset, bound: Sequence) -> Option<(Offset, Entry<'_>)> {
    let mut at = newest;
    while at != 0 {
        let entry = arena.entry(at);
        if entry.sequence <= bound {
            return Some((at, entry));
        }
        at = entry.older;
    }
    None
}
