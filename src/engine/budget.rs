//! The division of the one memory budget. Pure arithmetic on `memory_bytes`.

use crate::base::error::{Error, Result};
use crate::base::reserve::{Role, RoleLimits};
use crate::memtable::{self, BatchSize};
use crate::write::large;
use crate::write::lengths::LogLengths;

/// Smallest and largest generation of a store outside tests, in bytes.
const GENERATION_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=64 << 20;
/// Length of a store's first log, in bytes; a longer one follows it once it is full.
const LOG_BYTES_MIN: u64 = 64 << 10;
/// The same for the budget of a test.
const LOG_BYTES_MIN_SMALL: u64 = 16 << 10;
/// Most bytes of the logs of a closed store, in lengths of the shortest log: 1 MiB.
const CLOSED_LOGS_COUNT_MAX: u64 = 16;
/// Least memory for merges and builds.
const WORK_BYTES_MIN: u64 = 4 << 20;
/// Budgets below a store's minimum are for tests: all parts shrink with them.
const MEMORY_BYTES_MIN: u64 = 32 << 20;
/// Bytes that are asked of the cache at once: a small part of it, at least and at most so many bytes.
const LEND_PART: u64 = 256;
const LEND_BYTES: (u64, u64) = (1 << 10, 256 << 10);
/// Part of the cache for reads of futures: those in flight, and finished reads that were not polled since.
const FLIGHTS_PART: u64 = 4;
/// Least room for the manifest's contents.
const MANIFEST_BYTES_MIN: u64 = 1 << 20;
/// One batch may have a generation of its own, of up to that part of the whole budget.
const LARGE_BATCH_PART: u64 = 4;
/// Most generations at a time: one active, two sealed.
pub(crate) const GENERATION_COUNT: u64 = 3;

/// Parts of the budget, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    pub(crate) memory_bytes: u64,
    pub(crate) generation_bytes: u64,
    /// The shortest and the longest log; the longest holds one generation.
    pub(crate) log_bytes_min: u64,
    pub(crate) log_bytes: u64,
    /// Logs longer than this together are flushed when the store is closed.
    pub(crate) closed_logs_bytes_max: u64,
    pub(crate) work_bytes: u64,
    /// Everything else: blocks, filters, fences.
    pub(crate) cache_bytes: u64,
    /// Part of the cache that filters, fences and bounds of tables may keep for themselves.
    pub(crate) pages_bytes: u64,
    /// Memory outside the cache that the cache has for blocks while there is nothing to flush or merge.
    pub(crate) annex_bytes: u64,
}

impl Budget {
    pub(crate) fn divide(memory_bytes: u64) -> Budget {
        let is_small = memory_bytes < MEMORY_BYTES_MIN;
        let generation_bytes = if is_small {
            (memory_bytes / 8).max(16 << 10)
        } else {
            (memory_bytes / 16).clamp(*GENERATION_BYTES.start(), *GENERATION_BYTES.end())
        } & !4095;
        let work_bytes = if is_small { memory_bytes / 8 } else { (memory_bytes / 8).max(WORK_BYTES_MIN) };
        let rest = memory_bytes.saturating_sub(GENERATION_COUNT * generation_bytes + work_bytes);
        let log_bytes_min = if is_small { LOG_BYTES_MIN_SMALL } else { LOG_BYTES_MIN };
        Budget {
            memory_bytes,
            generation_bytes,
            log_bytes_min,
            log_bytes: log_bytes(generation_bytes),
            closed_logs_bytes_max: log_bytes_min * CLOSED_LOGS_COUNT_MAX,
            work_bytes,
            cache_bytes: rest,
            pages_bytes: pages_bytes(rest),
            annex_bytes: quiet_generations_bytes(generation_bytes) + work_bytes,
        }
    }

    /// The same with less for blocks, filters and fences; the difference stays unused.
    #[cfg(any(test, feature = "sim", feature = "lab"))]
    pub(crate) fn with_cache_bytes(mut self, cache_bytes: u64) -> Budget {
        if cache_bytes < self.cache_bytes {
            (self.cache_bytes, self.pages_bytes, self.annex_bytes) =
                (cache_bytes, pages_bytes(cache_bytes), 0);
        }
        self
    }

    /// The same with other write buffers, smaller than the budget's; other parts stay as they are.
    #[cfg(feature = "lab")]
    pub(crate) fn with_generation_bytes(mut self, bytes: u64) -> Budget {
        let least = Budget::divide(0).generation_bytes;
        self.generation_bytes = bytes.clamp(least, self.generation_bytes) & !4095;
        self.log_bytes = log_bytes(self.generation_bytes);
        self.annex_bytes = quiet_generations_bytes(self.generation_bytes) + self.work_bytes;
        self
    }

    /// The shortest and the longest log.
    pub(crate) fn log_lengths(&self) -> LogLengths {
        LogLengths { least: self.log_bytes_min, most: self.log_bytes }
    }

    /// Limits of the roles in the cache's part; an eighth of the whole stays with the cache.
    pub(crate) fn limits(&self) -> RoleLimits {
        let whole = self.cache_bytes.saturating_sub(self.memory_bytes / 8);
        let part = |role| match role {
            Role::Tables => self.memory_bytes / 4,
            // One view may have so many write buffers: a single snapshot causes no refusal.
            Role::Kept => (self.memory_bytes / 8).max(GENERATION_COUNT * self.generation_bytes),
            Role::LargeBatches => self.large_batch_bytes_max(),
            Role::Ingests => self.memory_bytes / 8,
            Role::Blocks | Role::Iterators | Role::ReadAhead | Role::Batches => self.memory_bytes / 16,
            Role::Untaken => self.cache_bytes / FLIGHTS_PART,
            // A test's budget has room for a few keyspaces.
            Role::Manifest => (self.memory_bytes / 16).max(MANIFEST_BYTES_MIN),
        };
        let step = (self.cache_bytes / LEND_PART).clamp(LEND_BYTES.0, LEND_BYTES.1);
        RoleLimits { roles: Role::ALL.map(part), whole, step }
    }

    /// Memory for all merges under way; flushes have the other half of the work memory.
    pub(crate) fn merges_bytes(&self) -> u64 {
        self.work_bytes / 2
    }

    /// Part of the annex to close for a flush: generations beside the active one, and the flush's half of the
    /// work memory.
    pub(crate) fn flush_annex_bytes(&self) -> u64 {
        self.annex_bytes.saturating_sub(self.merges_bytes())
    }

    /// Part of the annex to close for merges.
    pub(crate) fn merges_annex_bytes(&self) -> u64 {
        self.annex_bytes.min(self.merges_bytes())
    }

    /// Memory for a flush under way.
    pub(crate) fn flush_bytes(&self) -> usize {
        (self.work_bytes - self.merges_bytes()) as usize
    }

    /// Largest table a merge writes: building one keeps its filter hashes and fences in work memory.
    pub(crate) fn table_bytes_max(&self) -> u64 {
        (self.work_bytes * 4).max(64 << 10)
    }

    /// Largest generation that is made for one batch.
    fn large_generation_bytes_max(&self) -> usize {
        let quarter = (self.memory_bytes / LARGE_BATCH_PART).max(self.generation_bytes);
        usize::try_from(quarter)
            .map_or(memtable::REGION_BYTES_MAX, |bytes| bytes.min(memtable::REGION_BYTES_MAX))
            & !4095
    }

    /// The same with the memory to sort the smallest possible items.
    fn large_batch_bytes_max(&self) -> u64 {
        let region_bytes = self.large_generation_bytes_max();
        let size = BatchSize { items: 1, ..BatchSize::default() };
        (region_bytes + large::order_bytes(region_bytes / memtable::sorted_batch_bytes(&size))) as u64
    }

    /// Largest batch, in bytes of memory in the order of its keys.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        memtable::batch_bytes_max(self.large_generation_bytes_max())
    }

    /// The generation that has room for a batch.
    ///
    /// # Errors
    /// `TooLarge` if no generation has room for it.
    pub(crate) fn check_batch(&self, size: &BatchSize) -> Result<BatchRoom> {
        let in_any_order = memtable::batch_bytes(size.items, size.key_value_bytes);
        if in_any_order <= memtable::batch_bytes_max(self.generation_bytes as usize) {
            return Ok(BatchRoom::AnyGeneration);
        }
        let (given, limit) = (memtable::sorted_batch_bytes(size), self.batch_bytes_max());
        if given > limit {
            return Err(Error::TooLarge { what: "batch", limit: limit as u64, given: given as u64 });
        }
        let region_bytes = memtable::region_bytes_for(given).max(self.generation_bytes as usize);
        Ok(BatchRoom::OwnGeneration { region_bytes })
    }
}

/// The generation that has room for a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BatchRoom {
    /// Any empty generation with an empty log, for items of any kind.
    AnyGeneration,
    /// An empty generation of that size, filled in the order of the keys.
    OwnGeneration { region_bytes: usize },
}

/// Items have more overhead in the log than in memory only when they are a few bytes long.
fn log_bytes(generation_bytes: u64) -> u64 {
    (generation_bytes + generation_bytes / 4 + (16 << 10)).next_multiple_of(4096)
}

/// Memory of generations that the cache may have while nothing is sealed: all but one generation, less the
/// bytes written to the next one until the annex is closed.
fn quiet_generations_bytes(generation_bytes: u64) -> u64 {
    (GENERATION_COUNT - 1) * generation_bytes - generation_bytes / 4
}

/// Part of a cache that filters and fences may take.
fn pages_bytes(cache_bytes: u64) -> u64 {
    cache_bytes / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts never exceed the whole, from a test's budget to a large one.
    #[test]
    fn parts_fit_the_whole() {
        for memory_bytes in [1 << 18, 1 << 20, 32 << 20, 128 << 20, 1 << 30, 1 << 40] {
            let budget = Budget::divide(memory_bytes);
            let parts = GENERATION_COUNT * budget.generation_bytes + budget.work_bytes + budget.cache_bytes;
            assert!(parts <= memory_bytes, "{budget:?}");
            let annex = budget.annex_bytes;
            assert!(budget.cache_bytes + annex + budget.generation_bytes < memory_bytes, "{budget:?}");
            assert_eq!(budget.flush_annex_bytes() + budget.merges_annex_bytes(), annex);
            assert!(budget.cache_bytes > memory_bytes / 3, "{budget:?}");
            assert!(budget.log_bytes > budget.generation_bytes);
        }
        assert_eq!(Budget::divide(1 << 30).generation_bytes, 64 << 20);
    }

    /// A smaller cache changes no other part, and a larger one has no effect.
    #[test]
    fn caches_can_be_smaller() {
        let budget = Budget::divide(32 << 20);
        let less = budget.with_cache_bytes(64 << 10);
        assert_eq!((less.cache_bytes, less.pages_bytes), (64 << 10, 48 << 10));
        assert_eq!((less.annex_bytes, less.flush_annex_bytes(), less.merges_annex_bytes()), (0, 0, 0));
        let Budget { cache_bytes, pages_bytes, annex_bytes, .. } = budget;
        assert_eq!(Budget { cache_bytes, pages_bytes, annex_bytes, ..less }, budget);
        assert_eq!(budget.with_cache_bytes(u64::MAX), budget);
    }

    /// Smaller write buffers have smaller logs; the rest stays as it is.
    #[cfg(feature = "lab")]
    #[test]
    fn write_buffers_can_be_smaller() {
        let budget = Budget::divide(64 << 20);
        let less = budget.with_generation_bytes(256 << 10);
        assert_eq!((less.generation_bytes, less.log_bytes), (256 << 10, 336 << 10));
        assert_eq!((less.cache_bytes, less.work_bytes), (budget.cache_bytes, budget.work_bytes));
        assert!(less.log_bytes > less.generation_bytes && less.annex_bytes < budget.annex_bytes);
        assert_eq!(budget.with_generation_bytes(u64::MAX), budget);
        assert_eq!(budget.with_generation_bytes(0).generation_bytes, 16 << 10);
    }

    /// A batch within the limits has room, however tiny its items: in an empty generation of the budget's
    /// size, or in one that takes a quarter of the memory at most. The error for a larger batch is in the
    /// same measure.
    #[test]
    fn batches_within_the_limits_have_room() {
        for memory_bytes in [1 << 18, 1 << 20, 32 << 20, 256 << 20] {
            let budget = Budget::divide(memory_bytes);
            for item_bytes in [0, 1, 30, 300, 5000] {
                let size =
                    |items| BatchSize { items, ranges: 0, key_value_bytes: items * item_bytes, trees: 1 };
                let (mut any, mut own, mut refused) = (0, 0, memory_bytes as usize / 16);
                while own + 1 < refused {
                    let items = (own + refused) / 2;
                    match budget.check_batch(&size(items)) {
                        Ok(BatchRoom::AnyGeneration) => (any, own) = (items, items),
                        Ok(BatchRoom::OwnGeneration { region_bytes }) => {
                            assert!(region_bytes as u64 <= memory_bytes / 4, "{items} items of {item_bytes}");
                            own = items;
                        }
                        Err(Error::TooLarge { what: "batch", limit, given }) => {
                            assert_eq!(limit, budget.batch_bytes_max() as u64);
                            assert!(given > limit, "{items} items of {item_bytes}");
                            refused = items;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                let region =
                    crate::base::region::Region::heap(budget.generation_bytes as usize).expect("small");
                let (_, inserter) = memtable::generation(region);
                assert!(inserter.room(any, any * item_bytes), "{any} items of {item_bytes}");
                assert!(own > 4 * any || item_bytes > 300, "{any}, {own} items of {item_bytes}");
            }
        }
        // Batches that fit the default memory.
        let budget = Budget::divide(256 << 20);
        let fits = |items: usize, item_bytes: usize| {
            budget
                .check_batch(&BatchSize { items, ranges: 0, key_value_bytes: items * item_bytes, trees: 2 })
                .is_ok()
        };
        assert!(fits(100_000, 16) && fits((40 << 20) / 100, 100));
    }
}
