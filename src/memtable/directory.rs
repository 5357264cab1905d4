//! The directory: maps each tree to its root and its tally. Open addressing, linear probing, at most half
//! full.
//!
//! It is not ordered, and entries are never removed. The inserter adds trees and replaces roots; any thread
//! looks up, without a lock. A full directory is copied to one of twice the size, which is then published. A
//! reader still in the old one finds the roots of the moment of the copy (see the invariant on frozen nodes
//! in module `memtable`).
//! ```text
//! offset size type name: meaning                     (one slot; in the arena)
//!      0    8 u64  id: keyspace << 32 | partition, or 0 for a free slot; stored last, with release
//!      8    4 u32  root: offset of the tree's root node
//!     12    4 u32  tally: offset of the tree's tally
//!
//! offset size type name: meaning                     (one tally; in the arena, where it stays)
//!      0    4 u32  bytes: of the tree's keys and of their newest values, which all are in the arena
//!      4    4 u32  keys: of the tree
//! ```

use crate::base::id::{KeyspaceId, PartitionId, TreeId};
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};

use super::arena::{Arena, Bump, LINE_BYTES, Offset};

const SLOT_BYTES: usize = 16;
const TALLY_BYTES: usize = 8;
/// Tallies are taken from the arena by the line.
const LINE_TALLIES: usize = LINE_BYTES / TALLY_BYTES;
const SLOTS_COUNT_MIN: usize = 8;

/// The published table.
#[derive(Debug)]
pub(super) struct Directory {
    /// Number of slots << 32 | offset of the first slot.
    place: AtomicU64,
    /// Offset of the next tally; a new line is needed if it is the start of one. Used by the inserter only.
    next_tally: AtomicU32,
}

impl Directory {
    pub(super) fn new(bump: &mut Bump) -> Directory {
        let at = bump.words(SLOTS_COUNT_MIN * SLOT_BYTES);
        let place = AtomicU64::new((SLOTS_COUNT_MIN as u64) << 32 | u64::from(at));
        Directory { place, next_tally: AtomicU32::new(0) }
    }

    /// The word that holds the tree's root.
    #[inline]
    pub(super) fn find<'a>(&self, arena: &'a Arena, tree: TreeId) -> Option<&'a AtomicU32> {
        match self.table().probe(arena, id_word(tree)) {
            Probe::Found(at) => Some(root_word(arena, at)),
            Probe::Free(_) => None,
        }
    }

    /// The tree's slot. Only the inserter keeps one, until it adds a tree.
    #[inline]
    pub(super) fn slot_of(&self, arena: &Arena, tree: TreeId) -> Option<TreeSlot> {
        match self.table().probe(arena, id_word(tree)) {
            Probe::Found(at) => Some(TreeSlot(at)),
            Probe::Free(_) => None,
        }
    }

    /// Number of a tree's keys, and bytes of them and of their newest values.
    pub(super) fn tally(&self, arena: &Arena, tree: TreeId) -> (u64, u64) {
        let tally = self.slot_of(arena, tree).map_or(0, |slot| slot.tally(arena).load(Ordering::Relaxed));
        (tally >> 32, tally & u64::from(u32::MAX))
    }

    /// Every tree, in no order.
    pub(super) fn trees(&self, arena: &Arena) -> Vec<TreeId> {
        let ids = self.table().slots().map(|at| arena.words(at, 1)[0].load(Ordering::Acquire));
        let tree =
            |id: u64| TreeId { keyspace: KeyspaceId((id >> 32) as u32), partition: PartitionId(id as u32) };
        ids.filter(|id| *id != 0).map(tree).collect()
    }

    /// Adds a new tree. Only the inserter calls this, with the present number of trees.
    pub(super) fn add(
        &self,
        arena: &Arena,
        bump: &mut Bump,
        trees_count: usize,
        (tree, root): (TreeId, Offset),
    ) -> TreeSlot {
        let mut table = self.table();
        if (trees_count + 1) * 2 > table.slots_count {
            let slots_count = table.slots_count * 2;
            let larger = Table { at: bump.words(slots_count * SLOT_BYTES), slots_count };
            for at in table.slots() {
                let id = arena.words(at, 1)[0].load(Ordering::Relaxed);
                if id != 0 {
                    larger.put(arena, id, TreeSlot(at));
                }
            }
            self.place.store((slots_count as u64) << 32 | u64::from(larger.at), Ordering::Release);
            table = larger;
        }
        let Probe::Free(at) = table.probe(arena, id_word(tree)) else { panic!("a tree is added once") };
        table.fill(arena, at, id_word(tree), [root, self.take_tally(bump)]);
        TreeSlot(at)
    }

    fn take_tally(&self, bump: &mut Bump) -> Offset {
        let mut at = self.next_tally.load(Ordering::Relaxed);
        if (at as usize).is_multiple_of(LINE_BYTES) {
            at = bump.words(LINE_BYTES);
        }
        self.next_tally.store(at + TALLY_BYTES as Offset, Ordering::Relaxed);
        at
    }

    /// Most bytes of the arena that `more` further trees take.
    pub(super) fn growth_bytes(&self, trees_count: usize, more: usize) -> usize {
        growth_bytes(self.table().slots_count, trees_count, more)
    }

    /// Bytes of the arena that an empty directory takes, and the most that `trees_count` trees then take.
    pub(super) fn new_bytes(trees_count: usize) -> (usize, usize) {
        (SLOTS_COUNT_MIN * SLOT_BYTES, growth_bytes(SLOTS_COUNT_MIN, 0, trees_count))
    }

    #[inline]
    fn table(&self) -> Table {
        let place = self.place.load(Ordering::Acquire);
        Table { at: place as Offset, slots_count: (place >> 32) as usize }
    }
}

fn growth_bytes(mut slots_count: usize, trees_count: usize, more: usize) -> usize {
    let mut bytes = more.div_ceil(LINE_TALLIES).saturating_mul(LINE_BYTES);
    while trees_count.saturating_add(more).saturating_mul(2) > slots_count {
        slots_count *= 2;
        bytes = bytes.saturating_add(slots_count * SLOT_BYTES);
    }
    bytes
}

#[derive(Clone, Copy)]
struct Table {
    at: Offset,
    /// A power of two.
    slots_count: usize,
}

/// The end of a probe: the slot of the id, or a free one.
enum Probe {
    Found(Offset),
    Free(Offset),
}

impl Table {
    #[inline]
    fn probe(self, arena: &Arena, id: u64) -> Probe {
        let mask = self.slots_count - 1;
        let mut index = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        // Ends: at least half of the slots are free.
        loop {
            let at = self.slot(index);
            match arena.words(at, 1)[0].load(Ordering::Acquire) {
                0 => return Probe::Free(at),
                other if other == id => return Probe::Found(at),
                _ => index = (index + 1) & mask,
            }
        }
    }

    /// Copies a tree's slot from the previous table.
    fn put(self, arena: &Arena, id: u64, before: TreeSlot) {
        let Probe::Free(at) = self.probe(arena, id) else { panic!("a tree is in a table once") };
        let offsets = arena.halves(before.0 + 8, 2);
        self.fill(arena, at, id, [0, 1].map(|index| offsets[index].load(Ordering::Relaxed)));
    }

    /// Fills a free slot: root and tally first, then the id, by which readers find the slot.
    fn fill(self, arena: &Arena, at: Offset, id: u64, offsets: [Offset; 2]) {
        for (half, offset) in arena.halves(at + 8, 2).iter().zip(offsets) {
            half.store(offset, Ordering::Relaxed);
        }
        arena.words(at, 1)[0].store(id, Ordering::Release);
    }

    fn slots(self) -> impl Iterator<Item = Offset> {
        (0..self.slots_count).map(move |index| self.slot(index))
    }

    #[inline]
    fn slot(self, index: usize) -> Offset {
        self.at + (index * SLOT_BYTES) as Offset
    }
}

/// One key, in a tally.
const ONE_KEY: u64 = 1 << 32;

/// A tree's slot in the published table.
#[derive(Clone, Copy)]
pub(super) struct TreeSlot(Offset);

impl TreeSlot {
    /// The word that holds the tree's root.
    #[inline]
    pub(super) fn root(self, arena: &Arena) -> &AtomicU32 {
        root_word(arena, self.0)
    }

    /// Counts an inserted version of a key. `older_bytes` is the length of the value before it, if the key
    /// existed. Only the inserter calls this.
    #[inline]
    pub(super) fn count(self, arena: &Arena, key: &[u8], value: &[u8], older_bytes: Option<usize>) {
        let tally = self.tally(arena);
        let now = tally.load(Ordering::Relaxed) + value.len() as u64;
        let now = match older_bytes {
            Some(older_bytes) => now - older_bytes as u64,
            None => now + key.len() as u64 + ONE_KEY,
        };
        tally.store(now, Ordering::Relaxed);
    }

    #[inline]
    fn tally(self, arena: &Arena) -> &AtomicU64 {
        let at = arena.halves(self.0 + 12, 1)[0].load(Ordering::Relaxed);
        &arena.words(at, 1)[0]
    }
}

#[inline]
fn root_word(arena: &Arena, slot: Offset) -> &AtomicU32 {
    &arena.halves(slot + 8, 1)[0]
}

fn id_word(tree: TreeId) -> u64 {
    u64::from(tree.keyspace.0) << 32 | u64::from(tree.partition.0)
}
