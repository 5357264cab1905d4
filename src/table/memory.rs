//! Memory of tables: the budget of pages that stay in memory, and buffers for direct reads.
//!
//! The pages lie in the cache's memory, which is pinned when a table is published and released when the table
//! is dropped; the cache uses the rest. Any thread.

use std::collections::BTreeSet;
use std::ops::{Bound, Deref, DerefMut};

use crate::base::id::TreeId;
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::cache::{Cache, FrameHint, PinnedPages};

/// Alignment that direct reads need; it also keeps a page within one page of memory.
const ALIGNMENT: usize = 4096;

/// Frame hints may take one part in so many of the cache: enough for the blocks of four times its data.
const HINTS_PART: u64 = 256;

/// One part in so many of the limit may be taken beyond it while pages move to smaller places.
const SHORTENED_PART: u64 = 8;

/// One part in so many of all fence pages' bytes is left for sketches, if not all fence pages fit.
const SKETCHES_PART: u64 = 5;

/// The budget of cache memory for filters and fences that stay in memory.
#[derive(Debug)]
pub(crate) struct PageBudget {
    cache: Cache,
    limit_bytes: u64,
    /// Bytes of all hints.
    hints_bytes: AtomicU64,
    /// Bytes of all fence pages that sketches can replace.
    fences_bytes: AtomicU64,
    /// Trees that lack pages meant to stay in memory.
    short: Mutex<Short>,
}

#[derive(Default, Debug)]
struct Short {
    trees: BTreeSet<TreeId>,
    /// The tree that was retried last.
    last: Option<TreeId>,
    /// Trees whose sketches are still to be made.
    put_off: BTreeSet<TreeId>,
}

/// The most trees retried at once, so that the cost of a retry does not grow with their number.
const SHORT_TREES_MAX: usize = 32;

/// The kind of pages. Pages that are read more have a larger part of the budget, so that they find room after
/// any other pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageRank {
    /// Few, and read by every get and seek.
    Fences,
    /// Fences of the nodes of a trie below its root: many. They leave room for the filters of the root, which
    /// every get reads.
    NodeFences,
    /// Filters of every level but the last: together a fraction of the last level's.
    UpperFilters,
    LastFilters,
}

impl PageRank {
    /// The kind's part of the budget, in 16ths.
    fn sixteenths(self) -> u64 {
        match self {
            PageRank::Fences => 16,
            PageRank::UpperFilters => 15,
            PageRank::NodeFences => 14,
            PageRank::LastFilters => 13,
        }
    }
}

impl PageBudget {
    /// Pages of `cache`. Together with the cache's lent memory they stay within `limit_bytes`.
    pub(crate) fn new(cache: &Cache, limit_bytes: u64) -> Arc<PageBudget> {
        Arc::new(PageBudget {
            cache: cache.clone(),
            limit_bytes,
            hints_bytes: AtomicU64::new(0),
            fences_bytes: AtomicU64::new(0),
            short: Mutex::default(),
        })
    }

    /// A budget with a cache of its own.
    #[cfg(test)]
    pub(crate) fn alone(limit_bytes: u64) -> Arc<PageBudget> {
        use crate::base::{epoch::Epoch, region::Region};
        let bytes = limit_bytes as usize * 2 + (256 << 10);
        PageBudget::new(&Cache::new(bytes, Epoch::new(), Region::heap), limit_bytes)
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Pins `count` pages, if there is room. If not all fence pages fit, pages other than sketches leave a
    /// part of the room to the sketches.
    pub(super) fn take(
        &self,
        count: usize,
        page_bytes: u32,
        (rank, are_sketches): (PageRank, bool),
    ) -> Option<PinnedPages> {
        let fences_bytes = self.fences_bytes.load(Ordering::Relaxed);
        let are_too_many = !are_sketches && fences_bytes > self.limit_bytes;
        let left_bytes = if are_too_many { fences_bytes / SKETCHES_PART } else { 0 };
        let limit_bytes = self.limit_bytes.saturating_sub(left_bytes) / 16 * rank.sixteenths();
        self.cache.pin_pages(count, page_bytes as usize, limit_bytes)
    }

    /// Notes that sketches of a tree are to be made later, in the background.
    pub(super) fn put_off_sketches(&self, tree: TreeId) {
        self.short.lock().put_off.insert(tree);
    }

    /// Takes some of the trees whose sketches were put off, at most 32; the others stay.
    pub(crate) fn take_put_off(&self) -> Vec<TreeId> {
        let mut short = self.short.lock();
        let some = short.put_off.len().min(SHORT_TREES_MAX);
        std::iter::from_fn(|| short.put_off.pop_first()).take(some).collect()
    }

    /// Drops put-off trees after a failure: their sketches are not made.
    pub(crate) fn forget_put_off(&self, trees: &[TreeId]) {
        let mut short = self.short.lock();
        short.put_off.retain(|tree| !trees.contains(tree));
    }

    /// Counts fence pages that sketches can replace, until the result is dropped.
    pub(super) fn count_fences(self: &Arc<PageBudget>, pages: u32) -> CountedFences {
        let bytes = u64::from(pages) * ALIGNMENT as u64;
        self.fences_bytes.fetch_add(bytes, Ordering::Relaxed);
        CountedFences { budget: Arc::clone(self), bytes: AtomicU64::new(bytes) }
    }

    /// Keeps the first bytes of a page, in a smaller place if there is one within the limit or slightly above
    /// it. The memory of the larger places is free once all places of a frame are.
    pub(super) fn shorten(&self, page: &mut PinnedPages, bytes: usize) {
        page.shorten(bytes, self.limit_bytes + self.limit_bytes / SHORTENED_PART);
    }

    /// Whether the filters of a tree, `filter_bytes` in all, can be expected to stay in memory.
    pub(crate) fn has_room(&self, tree: TreeId, filter_bytes: u64) -> bool {
        let limit_bytes = self.limit_bytes / 16 * PageRank::LastFilters.sixteenths();
        filter_bytes <= limit_bytes && !self.is_short(tree)
    }

    /// Whether a tree lacks pages that were meant to stay in memory.
    pub(crate) fn is_short(&self, tree: TreeId) -> bool {
        self.short.lock().trees.contains(&tree)
    }

    /// Notes that pages of a tree found no room in memory.
    pub(crate) fn note_short(&self, tree: TreeId) {
        self.short.lock().trees.insert(tree);
    }

    /// Takes some of the trees that lack pages, in turn, for a retry.
    pub(crate) fn take_short(&self) -> Vec<TreeId> {
        let mut short = self.short.lock();
        let behind = short.last.map_or(Bound::Unbounded, Bound::Excluded);
        let from_behind = short.trees.range((behind, Bound::Unbounded)).chain(&short.trees);
        let count = short.trees.len().min(SHORT_TREES_MAX);
        let taken: Vec<TreeId> = from_behind.take(count).copied().collect();
        for tree in &taken {
            short.trees.remove(tree);
        }
        short.last = taken.last().copied();
        taken
    }

    /// Frame hints for `count` blocks, while all hints together take a small part of the cache. If the data
    /// is many times as large as the cache, blocks are seldom found by their hints. The caller gets a grant
    /// for the memory from the cache's reserve.
    pub(super) fn frame_hints(self: &Arc<PageBudget>, count: usize) -> Option<FrameHints> {
        let bytes = (count * size_of::<FrameHint>()) as u64;
        let limit = self.cache.capacity_bytes() as u64 / HINTS_PART;
        if self.hints_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > limit {
            self.hints_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        Some(FrameHints {
            hints: (0..count).map(|_| FrameHint::default()).collect(),
            budget: Arc::clone(self),
        })
    }

    /// Bytes of all hints.
    pub(crate) fn hints_bytes(&self) -> u64 {
        self.hints_bytes.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.cache.stats().pinned_bytes
    }
}

/// Fence pages counted by a budget.
#[derive(Debug)]
pub(super) struct CountedFences {
    budget: Arc<PageBudget>,
    bytes: AtomicU64,
}

impl CountedFences {
    /// Stops counting the pages: they have no sketches.
    pub(super) fn end(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        self.budget.fences_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for CountedFences {
    fn drop(&mut self) {
        self.end();
    }
}

/// For each of some blocks, its last known frame in the cache.
pub(super) struct FrameHints {
    hints: Box<[FrameHint]>,
    budget: Arc<PageBudget>,
}

impl Deref for FrameHints {
    type Target = [FrameHint];

    #[inline]
    fn deref(&self) -> &[FrameHint] {
        &self.hints
    }
}

impl Drop for FrameHints {
    fn drop(&mut self) {
        self.budget.hints_bytes.fetch_sub(size_of_val(&*self.hints) as u64, Ordering::Relaxed);
    }
}

/// Zeroed bytes that begin at a multiple of 4096.
pub(crate) struct AlignedBytes {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl AlignedBytes {
    pub(crate) fn new(bytes: usize) -> AlignedBytes {
        let memory = vec![0; bytes + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        AlignedBytes { memory, start, bytes }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

impl std::fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBytes({})", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{KeyspaceId, PartitionId};

    /// A budget grants up to its limit, less to pages that are read less, and takes everything back.
    #[test]
    fn budgets_are_kept() {
        let budget = PageBudget::alone(64 << 10);
        assert!(
            budget.take(17, 4096, (PageRank::Fences, false)).is_none()
                && budget.take(14, 4096, (PageRank::LastFilters, false)).is_none()
        );
        let one = budget.take(13, 4096, (PageRank::LastFilters, false)).expect("within the limit");
        let two = budget.take(3, 4096, (PageRank::Fences, false)).expect("within the limit");
        assert!(budget.take(1, 4096, (PageRank::Fences, false)).is_none());
        assert_eq!(budget.pinned_bytes(), 64 << 10);
        drop((one, two));
        assert_eq!(budget.pinned_bytes(), 0);
        assert!(budget.frame_hints(1 << 20).is_none(), "more than a cache has blocks");
        let most = budget.cache().capacity_bytes() / HINTS_PART as usize / size_of::<FrameHint>();
        let (one, two) = (budget.frame_hints(most - 1), budget.frame_hints(1));
        assert_eq!(budget.hints_bytes(), (most * size_of::<FrameHint>()) as u64);
        assert!(one.is_some() && two.is_some() && budget.frame_hints(1).is_none());
        drop((one, two));
        assert!(budget.frame_hints(most).is_some() && budget.hints_bytes() == 0);
        let bytes = AlignedBytes::new(8192);
        assert!((bytes.as_ptr() as usize).is_multiple_of(ALIGNMENT) && bytes.iter().all(|byte| *byte == 0));
        assert!(format!("{:?}", AlignedBytes::new(5)).contains('5'));
    }

    /// Trees that lack pages are retried in turn, a few at a time, and each once.
    #[test]
    fn trees_that_lack_pages_have_their_turns() {
        let budget = PageBudget::alone(64 << 10);
        assert!(budget.take_short().is_empty());
        let tree = |number| TreeId { keyspace: KeyspaceId(number), partition: PartitionId(1) };
        (0..50).rev().for_each(|number| budget.note_short(tree(number)));
        let first = budget.take_short();
        assert_eq!(first, (0..32).map(tree).collect::<Vec<_>>());
        first.iter().for_each(|tree| budget.note_short(*tree));
        let second = budget.take_short();
        assert_eq!(second, (32..50).chain(0..14).map(tree).collect::<Vec<_>>());
        assert_eq!(budget.take_short(), (14..32).map(tree).collect::<Vec<_>>());
        assert!(budget.take_short().is_empty());
        (0..40).for_each(|number| budget.put_off_sketches(tree(number)));
        assert_eq!(budget.take_put_off(), (0..32).map(tree).collect::<Vec<_>>());
        budget.forget_put_off(&[tree(32), tree(39)]);
        assert_eq!(budget.take_put_off(), (33..39).map(tree).collect::<Vec<_>>());
        assert!(budget.take_put_off().is_empty());
    }
}
