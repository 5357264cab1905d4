//! The merge policy of a tree whose settings leave it to the store. The choice depends on the tree's writes:
//! new keys, overwrites, or none.
//!
//! A tree that gets new keys is tiered: no item in its runs is obsolete, so it may have many runs, and each
//! byte is rewritten seldom. A tree whose keys are overwritten is leveled: its last level holds obsolete
//! versions of the items in its upper levels. A tree without writes is made fit for reads: leveled, with few
//! runs. In a hashed tree the leaves take the part of the last level.
//!
//! A few keys of each flush are sampled to see whether they are new. Only flushes since the store was opened
//! count.

use crate::base::settings::KeyspaceSettings;
use crate::base::sync::{AtomicU64, Ordering};

/// A tree counts as overwritten if this many of a thousand flushed items had keys that were there.
const REWRITTEN_PERMILLE: u64 = 200;
/// A tree is at rest once none of its items was flushed for this long.
const REST_NS: u64 = 1_000_000_000;
/// Flushed runs that start a merge in a tree at rest.
const LEVEL0_RUNS_AT_REST: u64 = 2;
/// Limit of runs in a tiered level; there are fewer than the size ratio all the same.
const RUNS_TIERED: u64 = 63;
/// For an overwritten hashed tree: a leaf is merged once its newer runs have this many thousandths of the
/// bytes of its oldest run. Where merges keep up, the leaf holds a quarter more than its live items, and a
/// byte that reaches it is written some five times. The bytes above the leaves may be an eighth of the bytes
/// in the leaves.
const STALE_PERMILLE: u16 = 250;
const UPPER_PERMILLE: u64 = 125;
/// The same at rest, and the part that may lie above the leaves: as in a leveled tree of ratio 8.
const STALE_PERMILLE_AT_REST: u16 = 125;
const UPPER_PERMILLE_AT_REST: u64 = 125;
const UNKNOWN: u64 = u64::MAX;

/// The observed writes of a tree. Any thread; each value is independent of the other.
#[derive(Debug)]
pub(in crate::engine) struct TreeWriteStats {
    /// Of a thousand items flushed lately, the number whose keys were there.
    rewritten_permille: AtomicU64,
    /// When an item of the tree was flushed last; 0: never.
    flushed_ns: AtomicU64,
}

/// The shape that merges are to produce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct CompactionPolicy {
    pub(in crate::engine) runs_per_level: u64,
    pub(in crate::engine) runs_in_last_level: u64,
    pub(in crate::engine) level0_runs: u64,
    /// For a hashed tree: see `compact::push`.
    pub(in crate::engine) stale_permille: Option<u16>,
    pub(in crate::engine) upper_permille: Option<u64>,
    pub(in crate::engine) is_at_rest: bool,
}

impl TreeWriteStats {
    pub(in crate::engine) fn new() -> TreeWriteStats {
        TreeWriteStats { rewritten_permille: AtomicU64::new(UNKNOWN), flushed_ns: AtomicU64::new(0) }
    }

    /// Records a flush: of `sampled` items, `rewritten` had keys that were there.
    pub(in crate::engine) fn note(&self, now_ns: u64, sampled: u64, rewritten: u64) {
        self.flushed_ns.store(now_ns.max(1), Ordering::Relaxed);
        if let Some(permille) = (rewritten * 1000).checked_div(sampled) {
            let smoothed = match self.rewritten_permille.load(Ordering::Relaxed) {
                UNKNOWN => permille,
                before => (before * 3 + permille) / 4,
            };
            self.rewritten_permille.store(smoothed, Ordering::Relaxed);
        }
    }

    /// Time until the tree is at rest; `None` if it is.
    pub(in crate::engine) fn rests_in_ns(&self, now_ns: u64) -> Option<u64> {
        let flushed_ns = self.flushed_ns.load(Ordering::Relaxed);
        if flushed_ns == 0 {
            return None;
        }
        Some((flushed_ns + REST_NS).saturating_sub(now_ns)).filter(|left_ns| *left_ns > 0)
    }

    /// The policy now. `is_awaited`: a caller waits until no merge is left to do.
    pub(in crate::engine) fn policy(
        &self,
        settings: &KeyspaceSettings,
        now_ns: u64,
        is_awaited: bool,
    ) -> CompactionPolicy {
        // The settings' own values; leveled, where none are given.
        let given = CompactionPolicy {
            runs_per_level: settings.runs_per_level.max(1),
            runs_in_last_level: settings.runs_in_last_level.max(1),
            level0_runs: settings.level0_runs,
            stale_permille: (settings.runs_in_last_level <= 1).then_some(STALE_PERMILLE),
            upper_permille: (settings.runs_in_last_level <= 1).then_some(UPPER_PERMILLE),
            is_at_rest: false,
        };
        if !is_adaptive(settings) {
            return given;
        }
        if is_awaited || self.rests_in_ns(now_ns).is_none() {
            return CompactionPolicy {
                level0_runs: settings.level0_runs.min(LEVEL0_RUNS_AT_REST),
                stale_permille: Some(STALE_PERMILLE_AT_REST),
                upper_permille: Some(UPPER_PERMILLE_AT_REST),
                is_at_rest: true,
                ..given
            };
        }
        if self.rewritten_permille.load(Ordering::Relaxed) >= REWRITTEN_PERMILLE {
            return given;
        }
        CompactionPolicy {
            runs_per_level: RUNS_TIERED,
            runs_in_last_level: RUNS_TIERED,
            level0_runs: settings.level0_runs * 2,
            stale_permille: None,
            upper_permille: None,
            is_at_rest: false,
        }
    }
}

/// Whether the settings leave the merge policy to the store.
pub(in crate::engine) fn is_adaptive(settings: &KeyspaceSettings) -> bool {
    settings.runs_per_level == 0 && settings.runs_in_last_level == 0
}

#[cfg(test)]
mod tests;
