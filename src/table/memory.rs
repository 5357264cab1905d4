//! Memory of tables: the budget of pages that stay in memory, and buffers that direct reads accept.
//!
//! The pages lie in the cache's memory, taken when a table is published and given back when it goes; the
//! cache has the rest. Any thread.

use std::ops::{Deref, DerefMut};

use crate::base::sync::Arc;
use crate::cache::{Cache, PinnedPages};

/// What direct reads want of addresses, and what keeps a page within one page.
const ALIGNMENT: usize = 4096;

/// How much of the cache filters and fences may keep for themselves.
#[derive(Debug)]
pub(crate) struct PageBudget {
    cache: Cache,
    limit_bytes: u64,
}

/// What pages are of: what is looked at most has more of the budget, so that it finds room whatever came
/// before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageRank {
    /// Few, and looked at by every get and seek.
    Fences,
    /// Filters of every level but the last: together a part of the last one's.
    UpperFilters,
    LastFilters,
}

impl PageRank {
    /// Its part of the budget, in 16ths.
    fn sixteenths(self) -> u64 {
        match self {
            PageRank::Fences => 16,
            PageRank::UpperFilters => 15,
            PageRank::LastFilters => 13,
        }
    }
}

impl PageBudget {
    /// Pages of `cache`, which with what is lent of it stay within `limit_bytes`.
    pub(crate) fn new(cache: &Cache, limit_bytes: u64) -> Arc<PageBudget> {
        Arc::new(PageBudget { cache: cache.clone(), limit_bytes })
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

    /// Room for so many pages, if there is.
    pub(super) fn take(&self, count: usize, rank: PageRank) -> Option<PinnedPages> {
        self.cache.pin_pages(count, self.limit_bytes / 16 * rank.sixteenths())
    }

    #[cfg(test)]
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.cache.stats().pinned_bytes
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

    /// A budget grants up to its limit, less to what is looked at less, and gets everything back.
    #[test]
    fn budgets_are_kept() {
        let budget = PageBudget::alone(64 << 10);
        assert!(
            budget.take(17, PageRank::Fences).is_none() && budget.take(14, PageRank::LastFilters).is_none()
        );
        let one = budget.take(13, PageRank::LastFilters).expect("within the limit");
        let two = budget.take(3, PageRank::Fences).expect("within the limit");
        assert!(budget.take(1, PageRank::Fences).is_none());
        assert_eq!(budget.pinned_bytes(), 64 << 10);
        drop((one, two));
        assert_eq!(budget.pinned_bytes(), 0);
        let bytes = AlignedBytes::new(8192);
        assert!((bytes.as_ptr() as usize).is_multiple_of(ALIGNMENT) && bytes.iter().all(|byte| *byte == 0));
        assert!(format!("{:?}", AlignedBytes::new(5)).contains('5'));
    }
}
