//! How the one memory budget is divided. Pure arithmetic on `memory_bytes`.

use crate::base::error::{Error, Result};
use crate::base::reserve::{Limits, Role};
use crate::memtable;
use crate::write::lengths::LogLengths;

/// Smallest and largest generation of a store that is not a test's, in bytes.
const GENERATION_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=64 << 20;
/// Length of a store's first log, in bytes; a longer one follows it once it is full.
const LOG_BYTES_MIN: u64 = 64 << 10;
/// The same for a test's budget.
const LOG_BYTES_MIN_SMALL: u64 = 16 << 10;
/// What the logs of a closed store may take, in lengths of the shortest log: 1 MiB.
const CLOSED_LOGS_COUNT_MAX: u64 = 16;
/// Least memory for merges and builds.
const WORK_BYTES_MIN: u64 = 4 << 20;
/// Budgets below the least a store may be given are a test's: everything shrinks with them.
const MEMORY_BYTES_MIN: u64 = 32 << 20;
/// What the cache is asked for at once: a small part of it, at least and at most so many bytes.
const LEND_PART: u64 = 256;
const LEND_BYTES: (u64, u64) = (1 << 10, 256 << 10);
/// Least room for what the manifest says.
const MANIFEST_BYTES_MIN: u64 = 1 << 20;
/// Generations there may be: one active, two sealed.
pub(crate) const GENERATION_COUNT: u64 = 3;

/// Parts of the budget, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    pub(crate) memory_bytes: u64,
    pub(crate) generation_bytes: u64,
    /// The shortest and the longest log; the longest holds one generation.
    pub(crate) log_bytes_min: u64,
    pub(crate) log_bytes: u64,
    /// Logs longer than that together are flushed when the store is closed.
    pub(crate) closed_logs_bytes_max: u64,
    pub(crate) work_bytes: u64,
    /// Everything else: blocks, filters, fences.
    pub(crate) cache_bytes: u64,
    /// Of it, what filters, fences and bounds of tables may keep for themselves.
    pub(crate) pages_bytes: u64,
    /// Of what is not the cache's, what it has for blocks while there is nothing to flush or merge.
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
        // Items have more overhead in the log than in memory only when they are a few bytes long.
        let log_bytes = (generation_bytes + generation_bytes / 4 + (16 << 10)).next_multiple_of(4096);
        let log_bytes_min = if is_small { LOG_BYTES_MIN_SMALL } else { LOG_BYTES_MIN };
        Budget {
            memory_bytes,
            generation_bytes,
            log_bytes_min,
            log_bytes,
            closed_logs_bytes_max: log_bytes_min * CLOSED_LOGS_COUNT_MAX,
            work_bytes,
            cache_bytes: rest,
            pages_bytes: pages_bytes(rest),
            annex_bytes: quiet_generations_bytes(generation_bytes) + work_bytes,
        }
    }

    /// The same with less for blocks, filters and fences: what they would have beside it stays unused.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn with_cache_bytes(mut self, cache_bytes: u64) -> Budget {
        if cache_bytes < self.cache_bytes {
            (self.cache_bytes, self.pages_bytes, self.annex_bytes) =
                (cache_bytes, pages_bytes(cache_bytes), 0);
        }
        self
    }

    /// How long logs are.
    pub(crate) fn log_lengths(&self) -> LogLengths {
        LogLengths { least: self.log_bytes_min, most: self.log_bytes }
    }

    /// What roles may be granted of the cache's part; an eighth of the whole stays with the cache.
    pub(crate) fn limits(&self) -> Limits {
        let whole = self.cache_bytes.saturating_sub(self.memory_bytes / 8);
        let part = |role| match role {
            Role::Tables => self.memory_bytes / 4,
            // One view may have so many write buffers: a single snapshot refuses nobody.
            Role::Kept => (self.memory_bytes / 8).max(GENERATION_COUNT * self.generation_bytes),
            Role::Ingests => self.memory_bytes / 8,
            Role::Blocks | Role::Iterators | Role::Batches => self.memory_bytes / 16,
            // A test's budget has room for a few keyspaces.
            Role::Manifest => (self.memory_bytes / 16).max(MANIFEST_BYTES_MIN),
        };
        let step = (self.cache_bytes / LEND_PART).clamp(LEND_BYTES.0, LEND_BYTES.1);
        Limits { roles: Role::ALL.map(part), whole, step }
    }

    /// What merges under way may take together; flushes have the other half of the work memory.
    pub(crate) fn merges_bytes(&self) -> u64 {
        self.work_bytes / 2
    }

    /// Of the annex, what has to be closed for a flush: what generations may take beside the active one, and
    /// the flush's half of the work memory.
    pub(crate) fn flush_annex_bytes(&self) -> u64 {
        self.annex_bytes.saturating_sub(self.merges_bytes())
    }

    /// Of the annex, what has to be closed for merges.
    pub(crate) fn merges_annex_bytes(&self) -> u64 {
        self.annex_bytes.min(self.merges_bytes())
    }

    /// What tables are written in pieces of.
    pub(crate) fn write_bytes(&self) -> usize {
        (self.work_bytes / 16) as usize
    }

    /// Largest table a merge writes: building one keeps its filter hashes and fences in work memory.
    pub(crate) fn table_bytes_max(&self) -> u64 {
        (self.work_bytes * 4).max(64 << 10)
    }

    /// Largest batch, in bytes of the log: half a generation.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        (self.generation_bytes / 2) as usize
    }

    /// Whether an empty generation, and an empty log, are sure to have room for a batch.
    pub(crate) fn check_batch(
        &self,
        payload_bytes: usize,
        items: usize,
        key_value_bytes: usize,
    ) -> Result<()> {
        let in_log = (payload_bytes, self.batch_bytes_max());
        let in_memory = (
            memtable::batch_bytes(items, key_value_bytes),
            memtable::batch_bytes_max(self.generation_bytes as usize),
        );
        match [in_log, in_memory].into_iter().find(|(given, limit)| given > limit) {
            None => Ok(()),
            Some((given, limit)) => {
                Err(Error::TooLarge { what: "batch", limit: limit as u64, given: given as u64 })
            }
        }
    }
}

/// Of generations, what the cache may have while nothing is sealed: all but one, less what is written to the
/// next one until the annex is closed.
fn quiet_generations_bytes(generation_bytes: u64) -> u64 {
    (GENERATION_COUNT - 1) * generation_bytes - generation_bytes / 4
}

/// Of a cache, what filters and fences may take.
fn pages_bytes(cache_bytes: u64) -> u64 {
    cache_bytes / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::storage::Storage;
    use crate::wal::{Log, LogIdentity};

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

    /// A smaller cache changes nothing else, and never is a larger one.
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

    /// A batch within the limits has room in an empty generation and an empty log, however tiny its items:
    /// many of a few bytes are refused although their bytes are few.
    #[test]
    fn batches_within_the_limits_have_room() {
        for memory_bytes in [1 << 18, 1 << 20, 32 << 20] {
            let budget = Budget::divide(memory_bytes);
            let region = crate::base::region::Region::heap(budget.generation_bytes as usize).expect("small");
            let (_, inserter) = memtable::generation(region);
            let identity = LogIdentity { number: 1, path: 0, uid: 1, store_id: 1, bytes: budget.log_bytes };
            let storage = crate::io::sim::SimDisk::new(1);
            storage.create_directory().expect("no fault");
            let log = Log::create(&*storage, &identity).expect("no fault");
            for item_bytes in [10, 11, 40, 300, 5000] {
                let (mut fits, mut refused) = (0, budget.batch_bytes_max() / item_bytes + 1);
                while fits + 1 < refused {
                    let items = (fits + refused) / 2;
                    match budget.check_batch(items * item_bytes, items, items * (item_bytes - 10)) {
                        Ok(()) => fits = items,
                        Err(_) => refused = items,
                    }
                }
                assert!(inserter.room(fits, fits * (item_bytes - 10)), "{fits} items of {item_bytes}");
                assert!(log.room_bytes() >= fits * item_bytes);
                assert!(fits > 0 || item_bytes > 300);
            }
            let tiny = budget.batch_bytes_max() / 10;
            let refused = budget.check_batch(tiny * 10, tiny, 0);
            assert!(matches!(refused, Err(Error::TooLarge { what: "batch", .. })));
        }
    }
}
