//! Memory of tables: pages that stay, the budget they are taken from, and buffers that direct reads accept.
//!
//! Not the cache: what is here is taken when a table is published and given back when it goes. Any thread.

use std::ops::{Deref, DerefMut};

use crate::base::sync::{Arc, AtomicU64, Ordering};

/// What direct reads want of addresses, and what keeps a page within one page.
const ALIGNMENT: usize = 4096;

/// How many bytes of filter and fence pages may stay in memory.
#[derive(Debug)]
pub(crate) struct PageBudget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

impl PageBudget {
    pub(crate) fn new(limit_bytes: u64) -> Arc<PageBudget> {
        Arc::new(PageBudget { limit_bytes, used_bytes: AtomicU64::new(0) })
    }

    /// Takes `bytes` if they are left.
    pub(crate) fn try_take(&self, bytes: u64) -> bool {
        let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit_bytes);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Gives back what was taken.
    pub(crate) fn give(&self, bytes: u64) {
        let before = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "only what was taken is given back");
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

/// Bytes that must be in memory, whatever the budget: they leave less for pages.
#[derive(Debug)]
pub(crate) struct Charge {
    bytes: u64,
    budget: Arc<PageBudget>,
}

impl Charge {
    pub(crate) fn new(bytes: usize, budget: &Arc<PageBudget>) -> Charge {
        let bytes = bytes as u64;
        budget.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        Charge { bytes, budget: Arc::clone(budget) }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

/// Pages in memory, and the budget they count against.
#[derive(Debug)]
pub(crate) struct Pages {
    bytes: AlignedBytes,
    budget: Arc<PageBudget>,
}

impl Pages {
    /// Zeroed pages, if the budget grants them.
    pub(crate) fn take(bytes: usize, budget: &Arc<PageBudget>) -> Option<Pages> {
        if !budget.try_take(bytes as u64) {
            return None;
        }
        Some(Pages { bytes: AlignedBytes::new(bytes), budget: Arc::clone(budget) })
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.budget.give(self.bytes.len() as u64);
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

    /// A budget grants up to its limit, gets everything back, and pages are aligned and zero.
    #[test]
    fn budgets_are_kept() {
        let budget = PageBudget::new(10_000);
        let mut one = Pages::take(8192, &budget).expect("within the limit");
        assert_eq!(one.as_ptr() as usize % ALIGNMENT, 0);
        assert!(one.iter().all(|byte| *byte == 0));
        one.bytes_mut()[8191] = 1;
        assert!(Pages::take(4096, &budget).is_none());
        assert!(!budget.try_take(u64::MAX));
        assert_eq!(budget.used_bytes(), 8192);
        drop(one);
        assert_eq!(budget.used_bytes(), 0);
        assert!(format!("{:?}", AlignedBytes::new(5)).contains('5'));
    }
}
