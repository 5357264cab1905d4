//! A tree in the form that picking uses: sizes, bounds and tombstones of its tables, and the capacities of
//! its levels.
//!
//! `pick` makes the decisions. Plain values of one thread, borrowed from a version.
//!
//! Sizes follow the data (the idea is RocksDB's `level_compaction_dynamic_level_bytes`; the growth by a move
//! is ours): the last level has no bound, and each run of a level above it may hold `1 / size_ratio` of the
//! level below. The number of runs of a level is that of the fluid LSM of Dostoevsky (Dayan, Idreos, SIGMOD
//! 2018): `K` in every level but the last, `Z` in the last. So with `Z` = 1 all levels above the last
//! together hold at most about `K / (size_ratio - 1)` of the last, for any share of overwrites. With `Z` > 1
//! each run of the last level may have a version of every key; if `K` > 1 too, levels are limited by the
//! number of runs alone.
//!
//! Deletes persist within a bound (the idea is Lethe's, Sarkar et al., SIGMOD 2020): a tombstone may stay in
//! memory and in each level for a share of the bound; a level's share is `size_ratio` times that of the level
//! above.
//!
//! Invariants:
//! 1. Runs of a level are ordered newest first; tables of a run are disjoint and ascending; bounds are
//!    inclusive.

use std::ops::Range;

use crate::base::id::Sequence;

/// The most levels of a tree, including level 0. Enough for any size at the smallest ratio.
pub(crate) const LEVELS_MAX: usize = 16;
/// The target number of tables of a run, so that a part of it can be merged.
const TABLES_PER_RUN: u64 = 8;
/// Tables are not cut smaller than `table_bytes` divided by this, for any size of the level.
const TABLE_BYTES_SHRINK: u64 = 16;
/// Tables are not cut smaller than this either, unless `table_bytes` is smaller: a table has pages beside its
/// items, and would hold only a few items.
const TABLE_BYTES_LEAST: u64 = 16 << 10;

/// A table, or a slice of one, in the form that picking uses. Bounds are inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableShape<'a> {
    pub(crate) min: &'a [u8],
    pub(crate) max: &'a [u8],
    pub(crate) bytes: u64,
    pub(crate) items: u64,
    pub(crate) tombstones: u64,
    /// The largest number of tombstones among consecutive items, by the slice's properties.
    pub(crate) tombstones_dense: u64,
    /// Time from which the age of its oldest tombstone counts, in seconds; 0 without tombstones.
    pub(crate) oldest_tombstone_s: u64,
    pub(crate) first_sequence: Sequence,
}

impl TableShape<'_> {
    /// Whether readers skip many tombstones in the table.
    pub(crate) fn is_mostly_tombstones(&self) -> bool {
        let is_dense = self.tombstones_dense >= DENSE_TOMBSTONES;
        self.tombstones > 0 && (self.tombstones * 2 >= self.items || is_dense)
    }
}

/// Tombstones among 128 consecutive items that make a table due.
pub(crate) const DENSE_TOMBSTONES: u64 = 64;

/// Tables of a run, ascending.
pub(crate) type RunShape<'a> = Vec<TableShape<'a>>;

/// One tree: each level's runs, newest first. A run of level 0 is one table. All levels down to the deepest
/// are listed; any of them may be empty.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct TreeShape<'a> {
    pub(crate) levels: Vec<Vec<RunShape<'a>>>,
}

/// The keyspace's settings for picking, and the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PickSettings {
    /// The ratio of a level's size to that of the level above.
    pub(crate) size_ratio: u64,
    /// Runs of a level above the last, before `size_ratio` - 1 bounds them.
    pub(crate) runs_per_level: usize,
    /// Runs of the last level, bounded likewise.
    pub(crate) runs_in_last_level: usize,
    /// The number of runs that makes level 0 due.
    pub(crate) level0_runs: usize,
    /// Approximate size of the largest table that a merge writes.
    pub(crate) table_bytes: u64,
    /// The least bytes that level 0 is assumed to bring at once: with fewer, the fixed costs of files
    /// outweigh the rewriting.
    pub(crate) base_level_bytes: u64,
    /// Seconds within which a delete and the deleted data must be gone from disk; 0 for no bound.
    pub(crate) delete_persist_within_s: u64,
    /// The current time, by the clock that dates tables' tombstones.
    pub(crate) now_s: u64,
}

/// A table's position in the given [`TreeShape`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TablePosition {
    pub(crate) level: usize,
    pub(crate) run: usize,
    pub(crate) index: usize,
}

/// Neighbouring tables of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RunPart {
    pub(crate) level: usize,
    pub(crate) run: usize,
    pub(crate) tables: Range<usize>,
}

/// Seconds that a tombstone may stay in memory, given the bound on its life in a tree of that depth.
pub(crate) fn memory_share_s(within_s: u64, size_ratio: u64, last_level: usize) -> u64 {
    deadline_s(within_s, size_ratio, 0, last_level + 1)
}

/// The age by which a tombstone must have left the first `passed + 1` of `stations` stations. A quarter of
/// the bound is left for the work itself.
fn deadline_s(within_s: u64, size_ratio: u64, passed: usize, stations: usize) -> u64 {
    let weight = |count: usize| -> u128 {
        (0..count).fold(0u128, |sum, _| sum.saturating_mul(u128::from(size_ratio)).saturating_add(1))
    };
    let usable = u128::from(within_s - within_s / 4);
    let share = usable.saturating_mul(weight(passed + 1)) / weight(stations.max(passed + 1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// The most bytes of all levels above the last before level 0 is due early: a fifth of the last level, or 1.4
/// times the bytes of those levels when full, if that is more.
pub(crate) fn space_limit(last_level_bytes: u64, size_ratio: u64, runs: usize) -> u64 {
    let full = (last_level_bytes / size_ratio.saturating_sub(1).max(1)).saturating_mul(runs as u64);
    (last_level_bytes / 5).max(full.saturating_add(full / 5 * 2))
}

/// Target bytes of the tables of a run of that length; the largest table may have `most` bytes.
pub(crate) fn table_bytes(run_bytes: u64, most: u64) -> u64 {
    let least = (most / TABLE_BYTES_SHRINK).max(TABLE_BYTES_LEAST).min(most);
    (run_bytes / TABLES_PER_RUN).clamp(least, most)
}

/// A tree with the values that all rules use.
pub(super) struct PickContext<'t, 'a> {
    pub(super) tree: &'t TreeShape<'a>,
    pub(super) settings: &'t PickSettings,
    /// The deepest level with a table; 0 if only level 0 has any.
    pub(super) last_level: usize,
}

impl<'t, 'a> PickContext<'t, 'a> {
    pub(super) fn new(tree: &'t TreeShape<'a>, settings: &'t PickSettings) -> PickContext<'t, 'a> {
        assert!(settings.size_ratio >= 2 && settings.level0_runs >= 1, "settings are in their ranges");
        assert!(settings.runs_per_level >= 1 && settings.runs_in_last_level >= 1, "a level has a run");
        assert!(tree.levels.len() <= LEVELS_MAX, "no pick makes a deeper level");
        let last_level = tree.levels.iter().rposition(|runs| !runs.is_empty()).unwrap_or(0);
        PickContext { tree, settings, last_level }
    }

    pub(super) fn runs(&self, level: usize) -> &'t [RunShape<'a>] {
        self.tree.levels.get(level).map_or(&[], Vec::as_slice)
    }

    pub(super) fn tables(&self, part: &RunPart) -> &'t [TableShape<'a>] {
        &self.runs(part.level)[part.run][part.tables.clone()]
    }

    /// The newest run of a level; no tables if it has none.
    pub(super) fn newest(&self, level: usize) -> &'t [TableShape<'a>] {
        self.runs(level).first().map_or(&[], Vec::as_slice)
    }

    pub(super) fn bytes(&self, level: usize) -> u64 {
        self.runs(level).iter().map(|run| run_bytes(run)).sum()
    }

    /// Runs allowed in a level above the last: the setting, but fewer than the size ratio.
    pub(super) fn runs_above(&self) -> usize {
        self.settings.runs_per_level.min(self.settings.size_ratio as usize - 1)
    }

    fn runs_last(&self) -> usize {
        self.settings.runs_in_last_level.min(self.settings.size_ratio as usize - 1)
    }

    /// Whether the last level is one run.
    pub(super) fn is_last_leveled(&self) -> bool {
        self.runs_last() == 1
    }

    /// Runs allowed in a level ≥ 1.
    pub(super) fn runs_allowed(&self, level: usize) -> usize {
        if level >= self.last_level { self.runs_last() } else { self.runs_above() }
    }

    /// The most bytes of a level ≥ 1.
    pub(super) fn capacity(&self, level: usize) -> u64 {
        let is_counted_by_runs = !self.is_last_leveled() && self.runs_above() > 1;
        if level >= self.last_level || is_counted_by_runs {
            return u64::MAX;
        }
        self.share(self.last_level - level).saturating_mul(self.runs_above() as u64)
    }

    /// The last level's bytes divided by the size ratio `times` times.
    pub(super) fn share(&self, times: usize) -> u64 {
        (0..times).fold(self.bytes(self.last_level), |bytes, _| bytes / self.settings.size_ratio)
    }

    /// Bytes that level 0 brings at once.
    pub(super) fn brought_bytes(&self) -> u64 {
        self.bytes(0).max(self.settings.base_level_bytes)
    }

    /// The urgency of a level; it is due from 1,000 on.
    pub(super) fn score_permille(&self, level: usize) -> u64 {
        let runs = self.runs(level).len() as u64;
        if level == 0 {
            let score = self.level0_permille();
            // A merge of level 0 is cheap while runs of the last level are still to become one, and expensive
            // after that. So a due level 0 is merged before these runs, if the levels between are empty and
            // the runs are not many yet.
            let last_runs = self.runs(self.last_level).len() as u64;
            let is_next = (1..self.last_level).all(|level| self.runs(level).is_empty());
            let is_before = self.is_last_leveled() && (2..self.settings.size_ratio).contains(&last_runs);
            let score = if score >= 1000 && is_before && is_next { u64::MAX } else { score };
            return if self.is_space_short() { score.max(1000) } else { score };
        }
        let allowed = self.runs_allowed(level) as u64;
        let by_runs = if runs > allowed { runs * 1000 / allowed } else { 0 };
        let (bytes, capacity) = (self.bytes(level), self.capacity(level));
        if bytes <= capacity {
            return by_runs;
        }
        let permille = u128::from(bytes) * 1000 / u128::from(capacity.max(1));
        u64::try_from(permille).unwrap_or(u64::MAX).max(by_runs)
    }

    /// Runs of level 0, in thousandths of the number that makes it due.
    pub(super) fn level0_permille(&self) -> u64 {
        self.runs(0).len() as u64 * 1000 / self.settings.level0_runs as u64
    }

    /// Whether the levels above the last hold too many bytes that may be overwritten, and a merge of level 0
    /// helps.
    fn is_space_short(&self) -> bool {
        let last_level_bytes = self.bytes(self.last_level);
        let above_bytes: u64 = (0..self.last_level).map(|level| self.bytes(level)).sum();
        let level0_bytes = self.bytes(0);
        self.last_level > 0
            && self.is_last_leveled()
            && level0_bytes > 0
            && level0_bytes >= self.settings.base_level_bytes
            && above_bytes > space_limit(last_level_bytes, self.settings.size_ratio, self.runs_above())
    }

    /// Whether a table of `level` has a tombstone that has stayed for its share of the bound.
    pub(super) fn is_overdue(&self, table: &TableShape<'_>, level: usize) -> bool {
        let within_s = self.settings.delete_persist_within_s;
        if within_s == 0 || table.tombstones == 0 {
            return false;
        }
        // Memory comes first, then level 0 and the levels above the last. The last level has tombstones only
        // if it has several runs; there the whole bound has passed.
        let stations = self.last_level + 1;
        let passed = (level + 1).min(self.last_level);
        let age_s = self.settings.now_s.saturating_sub(table.oldest_tombstone_s);
        age_s >= deadline_s(within_s, self.settings.size_ratio, passed, stations)
    }

    /// Neighbouring tables of a run with all older tables of their level that overlap them, newest first.
    /// They can go down together without leaving an older version above a newer one.
    pub(super) fn with_older_runs(&self, level: usize, run: usize, tables: Range<usize>) -> Vec<RunPart> {
        let mut parts = vec![RunPart { level, run, tables }];
        let (mut min, mut max) = self.bounds(&parts);
        for older in run + 1..self.runs(level).len() {
            let tables = overlap(&self.runs(level)[older], min, max);
            if !tables.is_empty() {
                parts.push(RunPart { level, run: older, tables });
                (min, max) = self.bounds(&parts);
            }
        }
        parts
    }

    /// All tables of a level, newest run first.
    pub(super) fn whole(&self, level: usize) -> Vec<RunPart> {
        let part = |(run, tables): (usize, &RunShape<'_>)| RunPart { level, run, tables: 0..tables.len() };
        self.runs(level).iter().enumerate().map(part).collect()
    }

    /// Least and greatest key of some parts.
    pub(super) fn bounds(&self, parts: &[RunPart]) -> (&'t [u8], &'t [u8]) {
        let tables = || parts.iter().map(|part| self.tables(part));
        let min = tables().filter_map(|tables| tables.first()).map(|table| table.min).min();
        let max = tables().filter_map(|tables| tables.last()).map(|table| table.max).max();
        (min.expect("a pick has inputs"), max.expect("a pick has inputs"))
    }

    /// Bytes of some parts.
    pub(super) fn part_bytes(&self, parts: &[RunPart]) -> u64 {
        parts.iter().map(|part| run_bytes(self.tables(part))).sum()
    }

    /// Tables that overlap the bounds in the runs of `level` from `run` on and in all deeper levels, without
    /// `inputs`. Those of the next level come first, newest run first.
    pub(super) fn older(
        &self,
        (min, max): (&[u8], &[u8]),
        level: usize,
        run: usize,
        inputs: &[RunPart],
    ) -> Vec<TablePosition> {
        let is_input = |position: &TablePosition| {
            inputs.iter().any(|part| {
                (part.level, part.run) == (position.level, position.run)
                    && part.tables.contains(&position.index)
            })
        };
        let in_run = |(level, run): (usize, usize)| {
            let indexes = overlap(&self.runs(level)[run], min, max);
            indexes.map(move |index| TablePosition { level, run, index })
        };
        let deeper = (level + 1..self.tree.levels.len())
            .flat_map(|level| (0..self.runs(level).len()).map(move |run| (level, run)));
        let beside = (run..self.runs(level).len()).map(|run| (level, run));
        deeper.chain(beside).flat_map(in_run).filter(|position| !is_input(position)).collect()
    }

    /// Target bytes of the tables that come from `input_level`. A new run, where several are allowed, gets
    /// tables by its own length, so that parts of it can be merged with parts of others. Tables that join a
    /// run or overlap nothing may never be rewritten, and get their size by the whole tree.
    pub(super) fn table_bytes(&self, input_level: usize, output_level: usize, is_apart: bool) -> u64 {
        let run_bytes = match self.capacity(output_level) {
            u64::MAX if !is_apart && self.runs_allowed(output_level) > 1 => self.bytes(input_level),
            u64::MAX => self.bytes(self.last_level).max(self.bytes(input_level)),
            capacity => capacity / self.runs_above() as u64,
        };
        table_bytes(run_bytes, self.settings.table_bytes)
    }
}

pub(super) fn run_bytes(tables: &[TableShape<'_>]) -> u64 {
    tables.iter().map(|table| table.bytes).sum()
}

/// The tables of a run that may hold a key from `min` to `max`, both inclusive.
pub(super) fn overlap(tables: &[TableShape<'_>], min: &[u8], max: &[u8]) -> Range<usize> {
    let start = tables.partition_point(|table| table.max < min);
    let end = tables.partition_point(|table| table.min <= max);
    start..end.max(start)
}
