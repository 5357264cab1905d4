//! How a tree's merges are to go just now, where its settings leave it to the store: by whether it grows, is
//! written anew, or rests.
//!
//! A tree that gets keys it has not had is tiered: nothing in its runs is out of date, so they may be many,
//! and each byte is written seldom. One whose keys are written again is leveled: what its upper levels hold
//! is what its last level has in vain. One that nobody writes to is made fit for reads: leveled, of few runs.
//! In a hashed tree the leaves are what the last level is in others.
//!
//! Whether keys are new is asked of a few of each flush. Only what was seen since the store was opened
//! counts.

use crate::base::settings::KeyspaceSettings;
use crate::base::sync::{AtomicU64, Ordering};

/// Of a thousand items flushed, so many whose keys were there make a tree one that is written anew.
const REWRITTEN_PERMILLE: u64 = 200;
/// A tree rests once nothing of it was flushed for so long.
const REST_NS: u64 = 1_000_000_000;
/// Flushed runs that start a merge in a tree that rests.
const LEVEL0_RUNS_AT_REST: u64 = 2;
/// Runs of a level, for one that is tiered: fewer than the size ratio all the same.
const RUNS_TIERED: u64 = 63;
/// Of a hashed tree that is written anew: a leaf whose newer runs have so many thousandths of the bytes of
/// its oldest is merged. Where merges keep up it holds a quarter more than what lives, and a byte that comes
/// there is written some five times. An eighth of the leaves may lie above them.
const STALE_PERMILLE: u16 = 250;
const UPPER_PERMILLE: u64 = 125;
/// The same at rest, and what may lie above the leaves: as in a leveled tree of ratio 8.
const STALE_PERMILLE_AT_REST: u16 = 125;
const UPPER_PERMILLE_AT_REST: u64 = 125;
const UNKNOWN: u64 = u64::MAX;

/// What is known of a tree's writes. Any thread; each value stands for itself.
#[derive(Debug)]
pub(in crate::engine) struct Bearing {
    /// Of a thousand items flushed lately, how many had keys that were there.
    rewritten_permille: AtomicU64,
    /// When something of it was flushed last.
    flushed_ns: AtomicU64,
}

/// What merges are to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct Policy {
    pub(in crate::engine) runs_per_level: u64,
    pub(in crate::engine) runs_in_last_level: u64,
    pub(in crate::engine) level0_runs: u64,
    /// Of a hashed tree: see `compact::push`.
    pub(in crate::engine) stale_permille: Option<u16>,
    pub(in crate::engine) upper_permille: Option<u64>,
    pub(in crate::engine) is_at_rest: bool,
}

impl Bearing {
    pub(in crate::engine) fn new() -> Bearing {
        Bearing { rewritten_permille: AtomicU64::new(UNKNOWN), flushed_ns: AtomicU64::new(0) }
    }

    /// Of so many items flushed now, so many had keys that were there.
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

    /// How long it is until the tree rests; `None` if it does.
    pub(in crate::engine) fn rests_in_ns(&self, now_ns: u64) -> Option<u64> {
        let flushed_ns = self.flushed_ns.load(Ordering::Relaxed);
        if flushed_ns == 0 {
            return None;
        }
        Some((flushed_ns + REST_NS).saturating_sub(now_ns)).filter(|left_ns| *left_ns > 0)
    }

    /// `is_awaited`: someone waits until nothing is left to merge.
    pub(in crate::engine) fn policy(
        &self,
        settings: &KeyspaceSettings,
        now_ns: u64,
        is_awaited: bool,
    ) -> Policy {
        // Leveled, where none are given.
        let given = Policy {
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
            return Policy {
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
        Policy {
            runs_per_level: RUNS_TIERED,
            runs_in_last_level: RUNS_TIERED,
            level0_runs: settings.level0_runs * 2,
            stale_permille: None,
            upper_permille: None,
            is_at_rest: false,
        }
    }
}

/// Whether the settings leave it to the store how merges go.
pub(in crate::engine) fn is_adaptive(settings: &KeyspaceSettings) -> bool {
    settings.runs_per_level == 0 && settings.runs_in_last_level == 0
}

#[cfg(test)]
mod tests;
