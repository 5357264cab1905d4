//! How a tree's merges are to go just now, where its settings leave it to the store: by whether it grows, is
//! written anew, or rests.
//!
//! A tree that gets keys it has not had is tiered: nothing in its runs is out of date, so they may be many,
//! and each byte is written seldom. One whose keys are written again is leveled: what its upper levels hold
//! is what its last level has in vain. One that nobody writes to is made fit for reads: leveled, of few runs.
//!
//! Whether keys are new is asked of a few of each flush. Only what was seen since the store was opened
//! counts.

use crate::base::id::{SEQUENCE_MAX, TreeId};
use crate::base::settings::KeyspaceSettings;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::levels::version::Version;
use crate::levels::view::View;
use crate::read::get::Wants;
use crate::read::trace::NoTrace;

use super::Store;
use super::catalog::Keyspace;

/// Of a thousand items flushed, so many whose keys were there make a tree one that is written anew.
const REWRITTEN_PERMILLE: u64 = 200;
/// A tree rests once nothing of it was flushed for so long.
const REST_NS: u64 = 1_000_000_000;
/// Flushed runs that start a merge in a tree that rests.
const LEVEL0_RUNS_AT_REST: u64 = 2;
/// Runs of a level, for one that is tiered: fewer than the size ratio all the same.
const RUNS_TIERED: u64 = 63;
const UNKNOWN: u64 = u64::MAX;

/// What is known of a tree's writes. Any thread; each value stands for itself.
#[derive(Debug)]
pub(super) struct Bearing {
    /// Of a thousand items flushed lately, how many had keys that were there.
    rewritten_permille: AtomicU64,
    /// When something of it was flushed last.
    flushed_ns: AtomicU64,
}

/// What merges are to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Policy {
    pub(super) runs_per_level: u64,
    pub(super) runs_in_last_level: u64,
    pub(super) level0_runs: u64,
}

impl Bearing {
    pub(super) fn new() -> Bearing {
        Bearing { rewritten_permille: AtomicU64::new(UNKNOWN), flushed_ns: AtomicU64::new(0) }
    }

    /// Of so many items flushed now, so many had keys that were there.
    fn note(&self, now_ns: u64, sampled: u64, rewritten: u64) {
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
    fn rests_in_ns(&self, now_ns: u64) -> Option<u64> {
        let flushed_ns = self.flushed_ns.load(Ordering::Relaxed);
        if flushed_ns == 0 {
            return None;
        }
        Some((flushed_ns + REST_NS).saturating_sub(now_ns)).filter(|left_ns| *left_ns > 0)
    }

    /// `is_awaited`: someone waits until nothing is left to merge.
    pub(super) fn policy(&self, settings: &KeyspaceSettings, now_ns: u64, is_awaited: bool) -> Policy {
        // Leveled, where none are given.
        let given = Policy {
            runs_per_level: settings.runs_per_level.max(1),
            runs_in_last_level: settings.runs_in_last_level.max(1),
            level0_runs: settings.level0_runs,
        };
        if !is_adaptive(settings) {
            return given;
        }
        if is_awaited || self.rests_in_ns(now_ns).is_none() {
            return Policy { level0_runs: settings.level0_runs.min(LEVEL0_RUNS_AT_REST), ..given };
        }
        if self.rewritten_permille.load(Ordering::Relaxed) >= REWRITTEN_PERMILLE {
            return given;
        }
        Policy {
            runs_per_level: RUNS_TIERED,
            runs_in_last_level: RUNS_TIERED,
            level0_runs: settings.level0_runs * 2,
        }
    }
}

/// Whether the settings leave it to the store how merges go.
fn is_adaptive(settings: &KeyspaceSettings) -> bool {
    settings.runs_per_level == 0 && settings.runs_in_last_level == 0
}

impl Keyspace {
    /// How long it is until its tree rests and its merges go otherwise; `None` if they go on as they do.
    pub(super) fn restless_for_ns(&self, now_ns: u64) -> Option<u64> {
        if is_adaptive(&self.settings()) { self.bearing.rests_in_ns(now_ns) } else { None }
    }
}

impl Store {
    /// After a flush: asks, for a few of the keys that it wrote, whether the tables before it had them.
    pub(super) fn note_flushed(&self, before: &Arc<Version>, trees: &[TreeId], keys: &[(TreeId, Vec<u8>)]) {
        let view = Arc::new(View { generations: Vec::new(), version: Arc::clone(before) });
        let point = self.point_in(view, SEQUENCE_MAX);
        for tree in trees {
            let Some(keyspace) = self.keyspace_of(*tree).filter(|one| is_adaptive(&one.settings())) else {
                continue;
            };
            let keys = keys.iter().filter(|(one, _)| one == tree);
            let (mut sampled, mut found) = (0, 0);
            for (_, key) in keys {
                sampled += 1;
                found += u64::from(self.had(&keyspace, key, &point));
            }
            keyspace.bearing.note(self.env.clock.now_ns(), sampled, found);
            self.work.merge_queue.note(*tree);
        }
    }

    /// Whether the key was there; also if that cannot be read, which is told to who asks for the key.
    fn had(&self, keyspace: &Keyspace, key: &[u8], point: &super::snapshot::Point) -> bool {
        let had =
            self.get(keyspace, (key, Wants::Presence), Some(point), &mut NoTrace, |value| value.is_some());
        had.unwrap_or(true)
    }
}

#[cfg(test)]
mod tests;
