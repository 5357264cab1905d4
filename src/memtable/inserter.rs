//! The one writer of a generation: entries, splits, and the room that they may take.
//!
//! It is not a commit: order of sequences, log and visibility are the caller's. It may move between threads
//! and is used by one at a time (`&mut`).
//!
//! The invariants of module `memtable` describe how a split is published. The room for nodes is bounded as
//! follows; every node is charged when it is made. A split leaves two half-empty nodes, or (appending, at the
//! right edge) a full node and one with a single key. Each split, and the later split of a full node left
//! behind, is paid for by 7 insertions without a split. So there are at most 2 splits for 7 new keys, plus
//! one for each existing node.

use crate::base::hash::KeyHash;
use crate::base::id::{ItemKind, Sequence, TreeId};
use crate::base::key::{common_prefix, head, head_after};
use crate::base::sync::{Arc, AtomicU32, Ordering};

use super::Generation;
use super::arena::{Arena, ArenaEntry, Bump, ENTRY_BYTES_MAX, JUMP_BYTES, Offset};
use super::index::{DescentStep, open_child, turn_to_key};
use super::node::{IndexNode, LEAF_SLOTS_COUNTS, NodeItem, NodeShape, Order, SLOTS_COUNT_MAX, node_bytes};
use super::ranges::{RANGE_BYTES, RANGE_ENTRY_BYTES};
use super::room::{BatchSize, sorted_batch_bytes};
use super::versions;

/// Inner levels of the highest tree. Nodes not at the right edge have at least 7 keys, and there are fewer
/// than 2^21 leaves in the largest region; 8^7 is 2^21.
const LEVELS_COUNT_MAX: usize = 12;
/// Keys of a full node plus the new one.
const SPLIT_COUNT: usize = SLOTS_COUNT_MAX + 1;
/// The rank at which a split cuts, unless it appends.
const MIDDLE: usize = SPLIT_COUNT / 2;

const LEAF_SPLIT_BYTES: usize = 2 * node_bytes(0, SLOTS_COUNT_MAX);
const ROOT_BYTES: usize = node_bytes(1, SLOTS_COUNT_MAX);
const INNER_SPLIT_BYTES: usize = 2 * ROOT_BYTES;
/// Charge of a new key for nodes that do not exist yet: 2/7 of a leaf split, and 2/7 of that for each level
/// above, together at most 4/35 of an inner split. A new tree's first leaf, its growth and its first root fit
/// too, spread over the keys that cause them.
pub(super) const NEW_KEY_BYTES: usize = LEAF_SPLIT_BYTES * 2 / 7 + INNER_SPLIT_BYTES * 4 / 35 + 24;

/// A range tombstone is charged as a new key, and takes no more.
const _: () = assert!(RANGE_BYTES + RANGE_ENTRY_BYTES <= NEW_KEY_BYTES);
/// A version of an existing key is charged as a new key too: it takes a jump and causes no node.
const _: () = assert!(JUMP_BYTES <= NEW_KEY_BYTES);

/// Most bytes that items take, besides the growth of existing trees and of the directory.
pub(super) fn batch_bytes(items: usize, key_value_bytes: usize) -> usize {
    items.saturating_mul(ENTRY_BYTES_MAX + NEW_KEY_BYTES).saturating_add(key_value_bytes)
}

const FIRST_LEAF: NodeShape = NodeShape { level: 0, slots_count: LEAF_SLOTS_COUNTS[0], skip: 0, link: 0 };

/// Counts of the generation's trees and nodes.
#[derive(Default, Debug)]
struct Counts {
    trees: usize,
    leaves: usize,
    inners: usize,
    /// Inner levels of the highest tree.
    levels: usize,
}

/// The only writer of one generation.
#[derive(Debug)]
pub(crate) struct Inserter {
    generation: Arc<Generation>,
    bump: Bump,
    counts: Counts,
}

impl Inserter {
    pub(super) fn new(generation: Arc<Generation>, bump: Bump) -> Inserter {
        Inserter { generation, bump, counts: Counts::default() }
    }

    /// Whether any `items` items with `key_value_bytes` bytes of keys and values in all fit. Conservative: a
    /// batch that has room is inserted whole. O(1).
    pub(crate) fn room(&self, items: usize, key_value_bytes: usize) -> bool {
        let counts = &self.counts;
        let leaf_splits = items.min(counts.leaves + counts.trees);
        let inner_splits =
            items.saturating_mul(counts.levels).min(counts.inners + counts.trees * counts.levels);
        let present = leaf_splits * LEAF_SPLIT_BYTES + inner_splits * INNER_SPLIT_BYTES;
        let roots = items.min(counts.trees) * ROOT_BYTES;
        let directory = self.generation.directory.growth_bytes(counts.trees, items);
        let need =
            batch_bytes(items, key_value_bytes).saturating_add(present + roots).saturating_add(directory);
        need.saturating_add(self.generation.ranges.owed_bytes()) <= self.bump.free_bytes()
    }

    /// Whether the generation is empty and has room for a batch that is inserted in the order of its keys.
    pub(crate) fn sorted_room(&self, size: &BatchSize) -> bool {
        self.generation.items() == 0 && sorted_batch_bytes(size) <= self.bump.free_bytes()
    }

    /// Adds a version of a key, or a range tombstone from `key` up to, not including, `value`; an empty
    /// `value` means no upper bound. Readers see it at once, if their bound allows.
    ///
    /// # Panics
    /// If neither [`Inserter::room`] nor [`Inserter::sorted_room`] was asked, if key or value exceed their
    /// limits, if a key's sequence goes back, if a range is empty, or if the tree's ids are 0.
    pub(crate) fn insert(
        &mut self,
        tree: TreeId,
        key: &[u8],
        hash: KeyHash,
        sequence: Sequence,
        kind: ItemKind,
        value: &[u8],
    ) {
        assert!(tree.keyspace.0 != 0 || tree.partition.0 != 0, "ids of 0 are never given out");
        let generation = &*self.generation;
        let arena = &generation.arena;
        if kind == ItemKind::DeleteRange {
            generation.ranges.add(arena, &mut self.bump, tree, (key, value), sequence);
            generation.tally.add(sequence, kind, arena.bytes() - self.bump.free_bytes());
            return;
        }
        let mut growth = Growth { arena, bump: &mut self.bump, counts: &mut self.counts };
        // First: a reader that sees the entry must see its filter bits.
        generation.filter.add(arena, tree, hash);
        let entry = ArenaEntry { sequence, kind, older: 0, key, value };
        let (slot, older_bytes) = match generation.directory.slot_of(arena, tree) {
            Some(slot) => (slot, growth.insert(slot.root(arena), entry)),
            None => {
                let root = growth.plant(&entry);
                let trees_count = growth.counts.trees;
                growth.counts.trees += 1;
                (generation.directory.add(arena, growth.bump, trees_count, (tree, root)), None)
            }
        };
        slot.count(arena, key, value, older_bytes);
        generation.tally.add(sequence, kind, arena.bytes() - self.bump.free_bytes());
    }
}

/// The state that an insertion works with.
struct Growth<'a> {
    arena: &'a Arena,
    bump: &'a mut Bump,
    counts: &'a mut Counts,
}

/// The inner nodes from the root to a leaf, and the turn taken in each.
struct Path<'a> {
    levels: [Option<(IndexNode<'a>, DescentStep)>; LEVELS_COUNT_MAX],
    count: usize,
}

impl<'a> Path<'a> {
    fn level(&self, depth: usize) -> &(IndexNode<'a>, DescentStep) {
        self.levels[depth].as_ref().expect("filled down to `count`")
    }

    /// The separators around the node at `depth`; 0 at an edge of the tree.
    fn fences(&self, depth: usize) -> (Offset, Offset) {
        let (mut lower, mut upper) = (0, 0);
        for (node, turn) in self.levels[..depth].iter().flatten() {
            if turn.index > 0 {
                lower = node.entry(turn.order.slot(turn.index - 1));
            }
            if turn.index < turn.order.count() {
                upper = node.entry(turn.order.slot(turn.index));
            }
        }
        (lower, upper)
    }
}

/// A full node, and the key to be added to it at `rank`.
struct Overflow<'a> {
    node: IndexNode<'a>,
    order: Order,
    rank: usize,
    item: NodeItem,
    /// The child left of `item` from now on, half of the split child; in a leaf 0.
    left_child: Offset,
    fences: (Offset, Offset),
}

/// The two halves of a split node.
struct Split {
    /// The node itself if it stays.
    left: Offset,
    separator: Offset,
    right: Offset,
}

impl<'a> Growth<'a> {
    /// Builds the first leaf of a tree.
    fn plant(&mut self, entry: &ArenaEntry<'_>) -> Offset {
        let at = self.bump.entry(self.arena, entry);
        let item = NodeItem { head: head(entry.key), entry: at, child: 0 };
        self.counts.leaves += 1;
        IndexNode::build(self.arena, self.bump, FIRST_LEAF, &[item]).at
    }

    /// Inserts an entry. Returns the length of the key's previous newest value, if the key existed.
    fn insert(&mut self, root: &AtomicU32, mut entry: ArenaEntry<'_>) -> Option<usize> {
        let mut path = Path { levels: [None; LEVELS_COUNT_MAX], count: 0 };
        let mut node = IndexNode::open(self.arena, root.load(Ordering::Relaxed));
        while node.level > 0 {
            let turn = turn_to_key(&node, entry.key);
            path.levels[path.count] = Some((node, turn));
            path.count += 1;
            node = open_child(self.arena, turn.child);
        }
        let order = node.order();
        let (rank, equal) = node.search(order, entry.key);
        if equal {
            let slot = order.slot(rank);
            entry.older = node.entry(slot);
            let newest = self.arena.entry(entry.older);
            let in_order = newest.sequence <= entry.sequence;
            assert!(in_order, "versions of a key come in the order of their sequences");
            let jump = versions::jump_of_next(self.arena, entry.older);
            node.set_entry(slot, self.bump.version(self.arena, &entry, jump));
            return Some(newest.value.len());
        }
        let at = self.bump.entry(self.arena, &entry);
        let item = NodeItem { head: head_after(entry.key, node.skip), entry: at, child: 0 };
        if order.count() < node.slots_count {
            node.add(order, rank, &item);
        } else if node.slots_count < SLOTS_COUNT_MAX {
            let (items, _) = merged(&node, order, rank, item);
            let larger = |slots: &usize| *slots > node.slots_count;
            let slots_count = LEAF_SLOTS_COUNTS.into_iter().find(larger).unwrap_or(SLOTS_COUNT_MAX);
            let shape = NodeShape { level: 0, slots_count, skip: node.skip, link: 0 };
            let larger = IndexNode::build(self.arena, self.bump, shape, &items[..=order.count()]);
            self.swing(root, &path, path.count, larger.at);
        } else {
            let fences = path.fences(path.count);
            self.split_up(root, &path, Overflow { node, order, rank, item, left_child: 0, fences });
        }
        None
    }

    /// Splits a full leaf, and every full node above it.
    fn split_up(&mut self, root: &AtomicU32, path: &Path<'a>, leaf: Overflow<'a>) {
        let mut split = self.split(&leaf);
        let mut old = leaf.node;
        for depth in (0..path.count).rev() {
            let (node, turn) = path.level(depth);
            let key = self.arena.entry(split.separator).key;
            let item =
                NodeItem { head: head_after(key, node.skip), entry: split.separator, child: split.right };
            if turn.order.count() < node.slots_count {
                // The separator first, then the left half: a reader in between finds the old child, or the
                // right half.
                node.add(turn.order, turn.index, &item);
                if split.left != old.at {
                    node.set_child(turn.order, turn.index, split.left);
                }
                return;
            }
            let (order, rank, fences) = (turn.order, turn.index, path.fences(depth));
            split = self.split(&Overflow { node: *node, order, rank, item, left_child: split.left, fences });
            old = *node;
        }
        let level = old.level + 1;
        let key = self.arena.entry(split.separator).key;
        let item = NodeItem { head: head(key), entry: split.separator, child: split.right };
        let shape = NodeShape { level, slots_count: SLOTS_COUNT_MAX, skip: 0, link: split.left };
        let new_root = IndexNode::build(self.arena, self.bump, shape, &[item]);
        self.counts.inners += 1;
        self.counts.levels = self.counts.levels.max(usize::from(level));
        root.store(new_root.at, Ordering::Release);
    }

    /// Splits a full node and adds a key. The old node stays unchanged, for readers inside it.
    fn split(&mut self, over: &Overflow<'_>) -> Split {
        let Overflow { node, order, rank, item, left_child, fences: (lower, upper) } = *over;
        let is_leaf = node.level == 0;
        // At the right edge of the tree, further ascending keys are expected.
        let appends = rank == SLOTS_COUNT_MAX && upper == 0;
        let cut = if appends { SLOTS_COUNT_MAX } else { MIDDLE };
        let (mut items, mut link) = merged(&node, order, rank, item);
        let mut stays = appends;
        if !is_leaf {
            let place = rank.checked_sub(1).map_or(&mut link, |before| &mut items[before].child);
            stays &= *place == left_child;
            *place = left_child;
        }
        let separator = items[cut];
        let (left_items, right_items) = items.split_at_mut(cut);
        // An inner node's separator moves up, and its child becomes the leftmost of the right node.
        let right_items = if is_leaf { right_items } else { &mut right_items[1..] };
        let left_skip = self.tighten(node.skip, (lower, separator.entry), left_items);
        let right_skip = self.tighten(node.skip, (separator.entry, upper), right_items);
        stays &= left_skip == node.skip;
        let shape = NodeShape { level: node.level, slots_count: SLOTS_COUNT_MAX, skip: left_skip, link };
        let left =
            if stays { node.at } else { IndexNode::build(self.arena, self.bump, shape, left_items).at };
        let right_shape = NodeShape { skip: right_skip, link: separator.child, ..shape };
        let right = IndexNode::build(self.arena, self.bump, right_shape, right_items).at;
        *(if is_leaf { &mut self.counts.leaves } else { &mut self.counts.inners }) += 1;
        Split { left, separator: separator.entry, right }
    }

    /// Bytes that the heads of a node between two fences skip. More than before if some heads are equal and
    /// the fences allow it; else as before, without reading the keys.
    fn tighten(&self, skip: usize, fences: (Offset, Offset), items: &mut [NodeItem]) -> usize {
        let (lower, upper) = fences;
        if lower == 0 || upper == 0 || items.windows(2).all(|pair| pair[0].head != pair[1].head) {
            return skip;
        }
        let (lower, upper) = (self.arena.entry(lower).key, self.arena.entry(upper).key);
        let common = common_prefix(lower, upper);
        if common <= skip {
            return skip;
        }
        for item in items {
            item.head = head_after(self.arena.entry(item.entry).key, common);
        }
        common
    }

    /// Replaces the node at `depth` by one of the same range with more keys.
    fn swing(&mut self, root: &AtomicU32, path: &Path<'_>, depth: usize, replacement: Offset) {
        match depth.checked_sub(1) {
            None => root.store(replacement, Ordering::Release),
            Some(parent) => {
                let (node, turn) = path.level(parent);
                node.set_child(turn.order, turn.index, replacement);
            }
        }
    }
}

/// A node's keys with one more at `rank`, and its leftmost child.
fn merged(
    node: &IndexNode<'_>,
    order: Order,
    rank: usize,
    item: NodeItem,
) -> ([NodeItem; SPLIT_COUNT], Offset) {
    let mut items = [NodeItem::default(); SPLIT_COUNT];
    for old in 0..order.count() {
        items[old + usize::from(old >= rank)] = node.item(order, old);
    }
    items[rank] = item;
    (items, if node.level == 0 { 0 } else { node.child(order, 0) })
}
