//! Memtable generations: the writes since the last flush, in memory.
//!
//! A generation is an arena in one [`Region`]. It holds every version of every key written, an ordered index
//! for each tree (keyspace, partition), found through a small directory, and a Bloom filter over all trees.
//! It is not durable (the log is), decides neither order nor visibility of writes (commit does), and frees no
//! memory before its end.
//!
//! Callers: write (inserts, flushes), read (gets and scans), levels (holds it in views).
//!
//! Thread safety: one thread at a time inserts, through the [`Inserter`]; any number read, without locks and
//! without shared writes.
//!
//! Invariants:
//! 1. A reader first takes its sequence bound, by an acquire load of the value that commit stored with
//!    release after the insertions. Then it reads. So every entry within the bound was published before its
//!    descent began.
//! 2. Every node that a descent enters was part of its tree at some moment since the descent began, with the
//!    range for which it was entered. The root is loaded from the directory when the descent begins. For a
//!    child there are two cases. If the parent was part of the tree when the child was loaded, so was the
//!    child; the parent's order word, checked again, shows that no separator was added that would have
//!    narrowed the child's range (`index::turn`). If the parent had been replaced before the child was
//!    loaded, it is frozen with the children it had when it was replaced. It was replaced after the descent
//!    entered it, so these were part of the tree during the descent.
//! 3. Nodes are replaced by copies (split or grown), never emptied, and a replaced node is never changed
//!    again. So an entered node holds every key of its range that was published before the descent began: all
//!    keys that the bound allows. Keys that it may lack are newer. The exception is an append: a full node at
//!    the right edge is not copied, and a new node is put to its right. All keys right of it are new, so it
//!    lacks no key that the bound allows. Being full, it changes only by newer versions. A node at the edge
//!    skips no common prefix of its keys (`node`), so a reader with a key beyond its new range finds no other
//!    key in its place.
//! 4. A version is reachable from every newer version of its key (`older`, `jump`), so a newer version hides
//!    no version within the bound.
//! 5. A position stays valid as long as its generation, for the bound it was made with. Its leaf, replaced or
//!    not, has all keys of the leaf's range that the bound allows, and its neighbours are found from its key.
//!
//! Costs, in dependent cache misses: mostly 1 for an absent key (filter). For a present key about 1 for each
//! level of the tree outside the CPU's caches, and 1 for its entry. A reader with an older bound passes n
//! newer versions of the key in O(log n) steps (`versions`).

mod arena;
mod directory;
mod filter;
mod index;
mod inserter;
mod node;
mod position;
mod ranges;
mod room;
mod versions;

#[cfg(all(loom, test))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use std::ops::Bound;

use crate::base::hash::KeyHash;
use crate::base::id::{ItemKind, Sequence, TreeId};
use crate::base::region::Region;
use crate::base::step::Direction;
use crate::base::sync::{Arc, AtomicU64, AtomicUsize, Ordering};

pub(crate) use arena::REGION_BYTES_MAX;
use arena::{Arena, ArenaEntry, Offset};
use directory::Directory;
use filter::Filter;
use index::KeyBound;
pub(crate) use inserter::Inserter;
pub(crate) use position::ItemPosition;
pub(crate) use ranges::MemStretch;
use ranges::RangeList;
pub(crate) use room::{BatchSize, batch_bytes_max, region_bytes_for, sorted_batch_bytes};

/// One version of one key, or a tombstone. For a range tombstone `key` is the start of the range, and `value`
/// has no use for callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemItem<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) sequence: Sequence,
    pub(crate) kind: ItemKind,
    pub(crate) value: &'a [u8],
}

/// One version of a key, or one range tombstone: a plain number, valid for its generation only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct VersionId(Offset);

/// A memtable generation, as readers see it.
#[derive(Debug)]
pub(crate) struct Generation {
    arena: Arena,
    filter: Filter,
    directory: Directory,
    ranges: RangeList,
    tally: Tally,
}

/// Counters that the inserter updates at each insertion, on cache lines that no lookup reads.
#[derive(Debug)]
#[repr(align(128))]
struct Tally {
    items: AtomicU64,
    /// Items that are no puts.
    deletes: AtomicU64,
    bytes_used: AtomicUsize,
    first: AtomicU64,
    last: AtomicU64,
}

/// Makes an empty generation in a zeroed region, and its only writer.
pub(crate) fn generation(region: Region) -> (Arc<Generation>, Inserter) {
    let (arena, mut bump) = Arena::new(region);
    let filter = Filter::new(&arena, &mut bump);
    let directory = Directory::new(&mut bump);
    let ranges = RangeList::new(&mut bump);
    let tally = Tally::new(arena.bytes() - bump.free_bytes());
    let generation = Arc::new(Generation { arena, filter, directory, ranges, tally });
    (Arc::clone(&generation), Inserter::new(generation, bump))
}

/// Most bytes that any batch of this size takes in an empty generation: many times its own when the items are
/// tiny.
pub(crate) fn batch_bytes(items: usize, key_value_bytes: usize) -> usize {
    let (_, growth) = Directory::new_bytes(items);
    inserter::batch_bytes(items, key_value_bytes).saturating_add(growth)
}

impl Generation {
    /// The newest version of the key with a sequence of at most `bound`: the key's own, or a range tombstone
    /// that covers it.
    #[inline]
    pub(crate) fn get(
        &self,
        tree: TreeId,
        key: &[u8],
        hash: KeyHash,
        bound: Sequence,
    ) -> Option<MemItem<'_>> {
        let has_ranges = self.ranges.count() > 0;
        if !self.may_contain(tree, hash) {
            // Most keys take this path: no item is copied.
            return if has_ranges { self.newer_range(tree, key, bound, None) } else { None };
        }
        let point = self.point(tree, key, bound);
        if has_ranges { self.newer_range(tree, key, bound, point) } else { point }
    }

    /// A range tombstone that covers the key and is newer than `point`, else `point`.
    #[cold]
    fn newer_range<'a>(
        &'a self,
        tree: TreeId,
        key: &[u8],
        bound: Sequence,
        point: Option<MemItem<'a>>,
    ) -> Option<MemItem<'a>> {
        let count = self.ranges.count_within(&self.arena, bound);
        let cover = self.ranges.newest(&self.arena, count, tree, key);
        cover
            .filter(|cover| point.is_none_or(|point| point.sequence < cover.sequence))
            .map_or(point, |cover| Some(cover.into()))
    }

    /// The newest version of the key itself.
    #[inline]
    fn point(&self, tree: TreeId, key: &[u8], bound: Sequence) -> Option<MemItem<'_>> {
        let root = self.directory.find(&self.arena, tree)?.load(Ordering::Acquire);
        index::get(&self.arena, root, key, bound).map(MemItem::from)
    }

    /// The first item of the tree in `direction` from `key` that has a version with a sequence of at most
    /// `bound`.
    pub(crate) fn seek(
        &self,
        tree: TreeId,
        key: Bound<&[u8]>,
        direction: Direction,
        bound: Sequence,
    ) -> Option<ItemPosition> {
        let root = self.directory.find(&self.arena, tree)?.load(Ordering::Acquire);
        index::seek(&self.arena, root, KeyBound::new(key, direction), direction, bound)
    }

    /// The neighbour of `position` in `direction`. Tree and bound are those of the call that returned the
    /// position.
    pub(crate) fn step(
        &self,
        tree: TreeId,
        position: ItemPosition,
        direction: Direction,
        bound: Sequence,
    ) -> Option<ItemPosition> {
        index::step_in_leaf(&self.arena, position, direction, bound)
            .or_else(|| self.seek(tree, Bound::Excluded(self.item(position).key), direction, bound))
    }

    /// The item at `position`: the version that its bound allows.
    #[inline]
    pub(crate) fn item(&self, position: ItemPosition) -> MemItem<'_> {
        self.arena.entry(position.entry).into()
    }

    /// The version at `position`.
    pub(crate) fn version_at(&self, position: ItemPosition) -> VersionId {
        VersionId(position.entry)
    }

    /// The newest version of the same key with a sequence of at most `bound`, which is below this version's.
    pub(crate) fn older(&self, version: VersionId, bound: Sequence) -> Option<VersionId> {
        versions::visible(&self.arena, version.0, bound).map(|(at, _)| VersionId(at))
    }

    /// The item of a version.
    #[inline]
    pub(crate) fn version(&self, version: VersionId) -> MemItem<'_> {
        self.arena.entry(version.0).into()
    }

    /// Every range tombstone with its tree, in the order of their sequences. For flushes.
    pub(crate) fn range_tombstones(&self) -> impl Iterator<Item = (TreeId, VersionId)> {
        self.ranges.all(&self.arena).map(|(tree, entry)| (tree, VersionId(entry)))
    }

    /// The first key that a range tombstone deletes, and its exclusive upper bound; an empty bound means
    /// none.
    pub(crate) fn range(&self, tombstone: VersionId) -> (&[u8], &[u8]) {
        ranges::keys(self.arena.entry(tombstone.0))
    }

    /// Whether there are range tombstones, of any tree, with a sequence of at most `bound`.
    pub(crate) fn has_ranges(&self, bound: Sequence) -> bool {
        self.ranges.count_within(&self.arena, bound) > 0
    }

    /// The stretch around `key`: keys with the same newest range tombstone with a sequence of at most
    /// `bound`.
    pub(crate) fn stretch(&self, tree: TreeId, key: &[u8], bound: Sequence) -> MemStretch<'_> {
        let count = self.ranges.count_within(&self.arena, bound);
        self.ranges.stretch(&self.arena, count, tree, key)
    }

    /// If a range tombstone with a sequence of at most `bound` covers the key: an exclusive upper bound of
    /// covered keys. Others may cover the keys from there on. An empty bound means none.
    pub(crate) fn range_end_over(&self, tree: TreeId, key: &[u8], bound: Sequence) -> Option<&[u8]> {
        let stretch = self.stretch(tree, key, bound);
        stretch.cover.map(|_| stretch.to)
    }

    /// The trees that have range tombstones, with repetitions. Allocates.
    pub(crate) fn range_trees(&self) -> Vec<TreeId> {
        self.ranges.trees(&self.arena)
    }

    /// `false`: the generation has no version of the key. One cache miss.
    #[inline]
    pub(crate) fn may_contain(&self, tree: TreeId, hash: KeyHash) -> bool {
        self.filter.may_contain(&self.arena, tree, hash)
    }

    /// Hints that [`Generation::may_contain`] will be called for this key soon.
    #[inline]
    pub(crate) fn prefetch(&self, tree: TreeId, hash: KeyHash) {
        self.filter.prefetch(&self.arena, tree, hash);
    }

    /// Every tree that has items or range tombstones, by id. Allocates; for flushes.
    pub(crate) fn trees(&self) -> Vec<TreeId> {
        let mut trees = self.directory.trees(&self.arena);
        trees.extend(self.range_trees());
        trees.sort_unstable();
        trees.dedup();
        trees
    }

    /// Number of a tree's keys, deleted ones included, and bytes of them and of their newest values.
    pub(crate) fn tally_of(&self, tree: TreeId) -> (u64, u64) {
        self.directory.tally(&self.arena, tree)
    }

    /// Number of versions and range tombstones inserted.
    pub(crate) fn items(&self) -> u64 {
        self.tally.items.load(Ordering::Relaxed)
    }

    /// Number of deletes among them, of keys and of ranges.
    pub(crate) fn deletes(&self) -> u64 {
        self.tally.deletes.load(Ordering::Relaxed)
    }

    /// Bytes of the region in use: entries, index, filter, directory.
    pub(crate) fn bytes_used(&self) -> usize {
        self.tally.bytes_used.load(Ordering::Relaxed)
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// Smallest and largest sequence inserted.
    pub(crate) fn sequences(&self) -> Option<(Sequence, Sequence)> {
        let first = self.tally.first.load(Ordering::Acquire);
        (first != u64::MAX).then(|| (first, self.tally.last.load(Ordering::Relaxed)))
    }

    /// The region, if this is the last reference and the inserter is gone. The owner zeroes it before reuse.
    #[cfg(test)]
    pub(crate) fn into_region(generation: Arc<Generation>) -> Option<Region> {
        Arc::into_inner(generation).map(|generation| generation.arena.into_region())
    }
}

impl Tally {
    fn new(bytes_used: usize) -> Tally {
        Tally {
            items: AtomicU64::new(0),
            deletes: AtomicU64::new(0),
            bytes_used: AtomicUsize::new(bytes_used),
            first: AtomicU64::new(u64::MAX),
            last: AtomicU64::new(0),
        }
    }

    /// Only the inserter calls this: no concurrent store is lost between load and store.
    fn add(&self, sequence: Sequence, kind: ItemKind, bytes_used: usize) {
        self.items.store(self.items.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if kind != ItemKind::Put {
            self.deletes.store(self.deletes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        self.bytes_used.store(bytes_used, Ordering::Relaxed);
        if sequence > self.last.load(Ordering::Relaxed) {
            self.last.store(sequence, Ordering::Relaxed);
        }
        if sequence < self.first.load(Ordering::Relaxed) {
            // After `last`, so that a thread that sees a first sequence sees a last one.
            self.first.store(sequence, Ordering::Release);
        }
    }
}

impl<'a> From<ArenaEntry<'a>> for MemItem<'a> {
    #[inline]
    fn from(entry: ArenaEntry<'a>) -> MemItem<'a> {
        MemItem { key: entry.key, sequence: entry.sequence, kind: entry.kind, value: entry.value }
    }
}
