//! The choice of a tree's next merge: a pure function of the sizes, bounds and tombstones of its tables.
//!
//! It reads no file, knows no version and moves no data; `job` executes picks, and `shape` holds the limits
//! of levels. Called by the engine after every flush and every finished job.
//!
//! A level that may have several runs is tiered. It goes down in a few parts, which become one run of the
//! next level if that level is tiered too; for overdue tombstones it goes down whole. The only run of a
//! leveled level is its resident run; tables from above go into it a few at a time. (`K`, `Z`) are the
//! numbers of runs of a level and of the last level: (1, 1) is leveled, (T-1, T-1) tiered, (T-1, 1)
//! lazy-leveled.
//!
//! A merge of level 0 may rewrite the whole resident run below it. So a tree deepens once its level 1, with
//! the last level one deeper, could hold more than level 0 brings at once. The last level moves one level
//! down, by a manifest edit alone. The levels above follow by moves, because nothing is below them, and level
//! 1 is free for small data. Empty levels too small for the input from level 0 are skipped.
//!
//! Rules, the most urgent first (the largest score; of equal scores the shallowest level):
//! - Level 0 is due at `level0_runs` runs, or with at least `base_level_bytes` if the last level is to be one
//!   run and the levels above it hold more than its [`space_limit`](super::shape::space_limit). All its runs
//!   become a new run of the output level, join the newest run there if they overlap none of its tables, or
//!   merge with the tables of the resident run within their bounds.
//! - A level over its capacity, with a resident run below, gives tables to that run. A table that overlaps
//!   nothing there and no older table of its own level moves without a rewrite. Otherwise a table goes down
//!   together with the overlapping tables in older runs of its level. The choice is the table with the fewest
//!   overlapping bytes below for each byte taken there (ties: the newest run, the lowest key).
//! - A level with too many runs, and a resident run below, merges the two neighbours with the fewest bytes.
//! - A table with a tombstone past its level's share of `delete_persist_within` goes down although there is
//!   room; only level 0 is more urgent. After all other rules a table with many tombstones goes down too,
//!   also one of level 0. In the last level such a table is rewritten with the overlapping tables in older
//!   runs.
//!
//! Invariants:
//! 1. Tables of a run are disjoint and ascending before a pick and after it is done.
//! 2. Newer versions stay above older ones: with a table go all tables that it overlaps in the older runs
//!    of its level, and only empty levels are between input and output levels.
//! 3. [`Pick::older`] names every table that may hold an older version of a key of the inputs, including
//!    tables of older runs in the output level. A tombstone may be dropped if and only if it lies outside
//!    their bounds.
//! 4. No table with a tombstone that could be dropped is moved: it is rewritten. So no table with tombstones
//!    is moved into a last level of one run.
//! 5. Picks end: each takes data down or into an older run, reduces the number of runs, removes
//!    tombstones, or deepens a tree that level 0 has outgrown.

use crate::base::id::Sequence;

use super::shape::{
    LEVELS_MAX, PickContext, PickSettings, RunPart, TablePosition, TableShape, TreeShape, overlap, run_bytes,
};

/// How the inputs get to the output level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MergeKind {
    /// By writing new tables.
    Merge,
    /// By a manifest edit alone: no table of the output run overlaps.
    Move,
}

/// The run of the output level that the outputs belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutputRun {
    /// A new one, newer than all others there.
    New,
    /// The run with this index in the given shape.
    Into(usize),
}

/// One piece of work on a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pick {
    pub(crate) work: MergeKind,
    /// Newest first; the tables of the output run that take part are last.
    pub(crate) inputs: Vec<RunPart>,
    pub(crate) output_level: usize,
    pub(crate) output_run: OutputRun,
    /// Tables older than the outputs that overlap the inputs; these keep tombstones alive. Tables of deeper
    /// levels come first, newest run first.
    pub(crate) older: Vec<TablePosition>,
    /// The level and run whose bounds the outputs are cut by, because they are merged with that run next. It
    /// is the oldest run of the output level if that is older than the outputs, so that all runs of a level
    /// are cut alike; otherwise the newest run below. The run may not exist.
    pub(crate) cut_like: (usize, usize),
    /// Target bytes of output tables.
    pub(crate) table_bytes: u64,
}

impl Pick {
    /// Whether no older table overlaps the inputs, so that every tombstone may be dropped.
    #[cfg(test)]
    pub(crate) fn is_bottommost(&self) -> bool {
        self.older.is_empty()
    }
}

/// The backlog of a tree, for the choice among trees and for pacing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Pressure {
    pub(crate) level0_runs: usize,
    /// Bytes over capacity, in all levels; for a due level 0, and for a level with too many runs, all bytes.
    pub(crate) debt_bytes: u64,
}

/// The due work; `None` if the tree is settled.
pub(crate) fn pick(tree: &TreeShape<'_>, settings: &PickSettings) -> Option<Pick> {
    let shape = PickContext::new(tree, settings);
    let due = shape.due();
    if due == Some(0) {
        return Some(shape.deepen().unwrap_or_else(|| shape.merge_level0()));
    }
    if let Some(overdue) = shape.sweep(|table, level| shape.is_overdue(table, level)) {
        return Some(overdue);
    }
    match due {
        Some(level) => Some(shape.relieve(level)),
        None => shape.sweep(|table, _| table.is_mostly_tombstones()),
    }
}

/// Whether [`pick`] returns any work, at a lower cost.
pub(crate) fn is_due(tree: &TreeShape<'_>, settings: &PickSettings) -> bool {
    let shape = PickContext::new(tree, settings);
    let is_swept =
        |table: &TableShape<'_>, level: usize| table.is_mostly_tombstones() || shape.is_overdue(table, level);
    let levels = || tree.levels.iter().enumerate();
    shape.due().is_some()
        || levels().any(|(level, runs)| runs.iter().flatten().any(|table| is_swept(table, level)))
}

/// A request for a full merge: data to be merged into one run of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FullMerge {
    /// The request covers tables with items written up to this sequence number.
    pub(crate) upto: Sequence,
    /// The keys from the first one on to before the second; an empty second key means no end.
    pub(crate) keys: (Vec<u8>, Vec<u8>),
}

impl FullMerge {
    /// A request for all keys.
    #[cfg(test)]
    pub(crate) fn whole(upto: Sequence) -> FullMerge {
        FullMerge { upto, keys: (Vec::new(), Vec::new()) }
    }

    /// Joins another request, with all keys between the two.
    pub(crate) fn join(&mut self, other: FullMerge) {
        self.upto = self.upto.max(other.upto);
        let (start, end) = &mut self.keys;
        if other.keys.0 < *start {
            *start = other.keys.0;
        }
        if !end.is_empty() && (other.keys.1.is_empty() || other.keys.1 > *end) {
            *end = other.keys.1;
        }
    }

    fn wants(&self, table: &TableShape<'_>) -> bool {
        let (start, end) = &self.keys;
        table.first_sequence <= self.upto
            && table.max >= start.as_slice()
            && (end.is_empty() || table.min < end.as_slice())
    }
}

/// The next step of a full merge towards one run without tombstones in the last level; `None` if the
/// requested data is there already. Levels go down one after the other. So with one run a level each byte of
/// the last level is rewritten about once, and no step needs much space. Later writes are included if they
/// are in the way, so that the steps end under sustained writes.
pub(crate) fn pick_full(tree: &TreeShape<'_>, settings: &PickSettings, wanted: &FullMerge) -> Option<Pick> {
    let shape = PickContext::new(tree, settings);
    let is_wanted = |table: &TableShape<'_>| wanted.wants(table);
    let first = |level: usize| {
        let runs = shape.runs(level).iter().enumerate();
        runs.filter_map(|(run, tables)| Some((run, tables.iter().position(is_wanted)?))).next()
    };
    let shallowest = (0..=shape.last_level).find_map(|level| first(level).map(|at| (level, at)));
    let (level, (run, index)) = shallowest?;
    if level == 0 {
        return Some(shape.merge_level0());
    }
    // Level 0 must not grow without bound meanwhile.
    if shape.level0_permille() >= LEVEL0_URGENT_PERMILLE {
        return Some(shape.merge_level0());
    }
    if level < shape.last_level {
        return Some(shape.push_table(level, run, index));
    }
    if run + 1 < shape.runs(level).len() {
        return Some(shape.merge_within(level, shape.with_older_runs(level, run, index..index + 1)));
    }
    shape.sweep(|table, level| level > 0 && table.tombstones > 0 && is_wanted(table))
}

/// A level is merged in parts of about the tree's bytes divided by this: larger parts take more space
/// meanwhile.
const TREE_PARTS: u64 = 3;
/// The margin by which a later part of a level must be better than an earlier one. Small differences do not
/// decide, so that parts follow one another.
const CLEARLY_MORE_PERMILLE: u64 = 125;
/// The most windows of a level that are examined.
const PART_STARTS_MAX: usize = 32;
/// From this score on, level 0 goes before a full merge of the levels below it.
const LEVEL0_URGENT_PERMILLE: u64 = 3000;

/// The backlog of the tree.
pub(crate) fn pressure(tree: &TreeShape<'_>, settings: &PickSettings) -> Pressure {
    let shape = PickContext::new(tree, settings);
    let over = |level: usize| {
        let bytes = shape.bytes(level);
        let has_too_many = shape.runs(level).len() > shape.runs_allowed(level);
        if has_too_many { bytes } else { bytes.saturating_sub(shape.capacity(level)) }
    };
    let level0_bytes = if shape.score_permille(0) >= 1000 { shape.bytes(0) } else { 0 };
    Pressure {
        level0_runs: shape.runs(0).len(),
        debt_bytes: (1..=shape.last_level).map(over).fold(level0_bytes, u64::saturating_add),
    }
}

/// Starts of the windows that are examined for a part, in a run of `tables` tables.
fn part_starts(tables: usize) -> impl Iterator<Item = usize> {
    (0..tables).step_by(tables.div_ceil(PART_STARTS_MAX).max(1))
}

impl PickContext<'_, '_> {
    /// The level that is most due; of equal scores the shallowest.
    fn due(&self) -> Option<usize> {
        let levels = (0..self.tree.levels.len()).rev();
        let most = levels.map(|level| (self.score_permille(level), level)).max_by_key(|(score, _)| *score);
        most.filter(|(score, _)| *score >= 1000).map(|(_, level)| level)
    }

    /// Moves a last level of one run down if a level above it would then be large enough for the input from
    /// level 0.
    fn deepen(&self) -> Option<Pick> {
        let is_one_run = self.runs(self.last_level).len() == 1;
        if self.last_level == 0 || self.last_level + 1 >= LEVELS_MAX || !is_one_run {
            return None;
        }
        if self.share(self.last_level).saturating_mul(self.runs_above() as u64) <= self.brought_bytes() {
            return None;
        }
        // A table with tombstones that may be dropped is rewritten first.
        if let Some(index) = self.newest(self.last_level).iter().position(|table| table.tombstones > 0) {
            let part = self.with_older_runs(self.last_level, 0, index..index + 1);
            return Some(self.merge_within(self.last_level, part));
        }
        let all = self.whole(self.last_level);
        Some(self.make(MergeKind::Move, all, self.last_level + 1, OutputRun::New))
    }

    fn merge_level0(&self) -> Pick {
        let mut output_level = 1;
        while output_level < self.last_level
            && self.runs(output_level).is_empty()
            && self.capacity(output_level) < self.brought_bytes()
        {
            output_level += 1;
        }
        if output_level == self.last_level && self.runs(output_level).len() > 1 {
            // If runs of the last level are to become one, the input from above joins them first.
            let all = self.whole(0);
            let output_run = self.joined(&all, output_level);
            return self.make(MergeKind::Merge, all, output_level, output_run);
        }
        self.down(self.whole(0), output_level)
    }

    /// Relieves a level ≥ 1 that has too many bytes or too many runs.
    fn relieve(&self, level: usize) -> Pick {
        let is_last = level == self.last_level;
        let can_go_down = level + 1 < LEVELS_MAX;
        if is_last {
            let goes_down = can_go_down && !self.is_last_leveled();
            return if goes_down {
                self.push(self.part(level), level)
            } else {
                self.merge_within(level, self.part(level))
            };
        }
        if self.runs_allowed(level + 1) > 1 {
            return self.push(self.part(level), level);
        }
        let (bytes, capacity) = (self.bytes(level), self.capacity(level));
        if bytes > capacity { self.push_down(level, bytes - capacity) } else { self.fold(level) }
    }

    /// Takes parts of a level to a tiered level.
    fn push(&self, parts: Vec<RunPart>, level: usize) -> Pick {
        let mut tables: Vec<&TableShape<'_>> = parts.iter().flat_map(|part| self.tables(part)).collect();
        tables.sort_unstable_by_key(|table| table.min);
        let is_disjoint = tables.windows(2).all(|pair| pair[0].max < pair[1].min);
        let can_move = is_disjoint && tables.iter().all(|table| self.keeps_tombstones(table, level + 1, 0));
        let work = if can_move { MergeKind::Move } else { MergeKind::Merge };
        let output_run = self.joined(&parts, level + 1);
        self.make(work, parts, level + 1, output_run)
    }

    /// The run of a tiered level that parts join: its newest, if they overlap none of its tables; otherwise a
    /// new one.
    fn joined(&self, parts: &[RunPart], level: usize) -> OutputRun {
        let (min, max) = self.bounds(parts);
        let newest = self.newest(level);
        let is_free = !newest.is_empty() && overlap(newest, min, max).is_empty();
        if is_free { OutputRun::Into(0) } else { OutputRun::New }
    }

    /// A part of a level: neighbouring tables of its newest run with the tables that they overlap in other
    /// runs. It has about the tree's bytes divided by [`TREE_PARTS`].
    ///
    /// The first such window is taken, unless a later one has a clearly larger share of its bytes in the runs
    /// between the newest and the oldest. A window that was merged before new data came has no bytes in the
    /// runs between.
    fn part(&self, level: usize) -> Vec<RunPart> {
        let tables = self.newest(level).len();
        let oldest = self.runs(level).len() - 1;
        let tree_bytes: u64 = (0..=self.last_level).map(|level| self.bytes(level)).sum();
        let enough_bytes = tree_bytes / TREE_PARTS;
        if self.bytes(level) < enough_bytes + enough_bytes / 2 {
            return self.with_older_runs(level, 0, 0..tables);
        }
        let mut best: Option<(u64, Vec<RunPart>)> = None;
        for start in part_starts(tables) {
            // Binary search for the first end with enough bytes.
            let (mut end, mut most) = (start + 1, tables);
            while end < most {
                let middle = usize::midpoint(end, most);
                let has_enough =
                    self.part_bytes(&self.with_older_runs(level, 0, start..middle)) >= enough_bytes;
                if has_enough { most = middle } else { end = middle + 1 }
            }
            let parts = self.with_older_runs(level, 0, start..end);
            let between = parts.iter().filter(|part| part.run > 0 && part.run < oldest);
            let between_bytes: u64 = between.map(|part| run_bytes(self.tables(part))).sum();
            let permille = between_bytes * 1000 / self.part_bytes(&parts).max(1);
            if best.as_ref().is_none_or(|(most, _)| permille > most + CLEARLY_MORE_PERMILLE) {
                best = Some((permille, parts));
            }
        }
        best.expect("a level with runs to merge has tables").1
    }

    /// Merges the two neighbouring runs with the fewest bytes.
    fn fold(&self, level: usize) -> Pick {
        let all = self.whole(level);
        let newer = (0..all.len() - 1).min_by_key(|run| self.part_bytes(&all[*run..*run + 2]));
        let newer = newer.expect("a level that is to have fewer runs has two");
        self.make(MergeKind::Merge, all[newer..newer + 2].to_vec(), level, OutputRun::Into(newer))
    }

    /// Takes about `excess_bytes` from a level ≥ 1 to the resident run of the next: by a move if any table
    /// can move, otherwise one table with the tables that must go with it.
    fn push_down(&self, level: usize, excess_bytes: u64) -> Pick {
        let runs = self.runs(level).iter().enumerate();
        if let Some(moved) = runs.rev().find_map(|(run, _)| self.movable(level, run, excess_bytes)) {
            return self.make(MergeKind::Move, vec![moved], level + 1, self.resident(level + 1));
        }
        let below = self.newest(level + 1);
        let dearness = |parts: &Vec<RunPart>| {
            let (min, max) = self.bounds(parts);
            let met_bytes: u64 = below[overlap(below, min, max)].iter().map(|table| table.bytes).sum();
            u128::from(met_bytes) * 1_000_000 / u128::from(self.part_bytes(parts).max(1))
        };
        let starts = self.runs(level).iter().enumerate();
        let windows = starts.flat_map(|(run, tables)| {
            (0..tables.len()).map(move |index| self.with_older_runs(level, run, index..index + 1))
        });
        let cheapest = windows.min_by_key(dearness).expect("a level that gives something away is not empty");
        self.down(cheapest, level + 1)
    }

    /// The first neighbouring tables of a run that can move to the resident run of the next level, up to
    /// `excess_bytes`.
    fn movable(&self, level: usize, run: usize, excess_bytes: u64) -> Option<RunPart> {
        let can_move = |table: &TableShape<'_>| self.can_move(level, run, table);
        let tables = &self.runs(level)[run];
        let start = tables.iter().position(can_move)?;
        let mut end = start + 1;
        let mut moved_bytes = tables[start].bytes;
        while moved_bytes < excess_bytes && end < tables.len() && can_move(&tables[end]) {
            // Tables of the next level may lie between neighbours: each moves by itself, in one edit.
            moved_bytes += tables[end].bytes;
            end += 1;
        }
        Some(RunPart { level, run, tables: start..end })
    }

    /// Whether a table overlaps no table of the next level's resident run and no older table of its own
    /// level, and has no tombstones to drop.
    fn can_move(&self, level: usize, run: usize, table: &TableShape<'_>) -> bool {
        let is_free = |run: &[TableShape<'_>]| overlap(run, table.min, table.max).is_empty();
        is_free(self.newest(level + 1))
            && self.runs(level)[run + 1..].iter().all(|older| is_free(older))
            && self.keeps_tombstones(table, level + 1, 0)
    }

    /// Whether a table's tombstones still hide older items if the table is in this level, newer than its runs
    /// from `run` on.
    fn keeps_tombstones(&self, table: &TableShape<'_>, level: usize, run: usize) -> bool {
        table.tombstones == 0 || !self.older((table.min, table.max), level, run, &[]).is_empty()
    }

    /// Takes the first wanted table down; in the last level the table is rewritten in place.
    fn sweep(&self, is_wanted: impl Fn(&TableShape<'_>, usize) -> bool) -> Option<Pick> {
        let wanted_in = |level: usize| {
            let runs = self.runs(level).iter().enumerate();
            runs.filter_map(|(run, tables)| {
                Some((run, tables.iter().position(|table| is_wanted(table, level))?))
            })
            .next()
        };
        for level in 0..=self.last_level {
            let Some((run, index)) = wanted_in(level) else { continue };
            if level == 0 {
                return Some(self.merge_level0());
            }
            if level < self.last_level {
                return Some(self.push_table(level, run, index));
            }
            let parts = self.with_older_runs(level, run, index..index + 1);
            let output = parts.last().expect("the table is in them").run;
            return Some(self.make(MergeKind::Merge, parts, level, OutputRun::Into(output)));
        }
        None
    }

    /// Takes one table to the next level, with the tables that must go with it.
    fn push_table(&self, level: usize, run: usize, index: usize) -> Pick {
        if self.runs_allowed(level + 1) > 1 {
            // As one run; single tables would become many runs.
            return self.push(self.whole(level), level);
        }
        if self.can_move(level, run, &self.runs(level)[run][index]) {
            let part = RunPart { level, run, tables: index..index + 1 };
            return self.make(MergeKind::Move, vec![part], level + 1, self.resident(level + 1));
        }
        self.down(self.with_older_runs(level, run, index..index + 1), level + 1)
    }

    /// Merges parts of the last level into the oldest run that they overlap; a single part, which overlaps no
    /// older run, goes into the oldest run of all.
    fn merge_within(&self, level: usize, parts: Vec<RunPart>) -> Pick {
        let oldest = match parts.as_slice() {
            [_] => self.runs(level).len() - 1,
            parts => parts.last().expect("the first run is among them").run,
        };
        let can_move = parts.len() == 1 && self.tables(&parts[0]).iter().all(|table| table.tombstones == 0);
        let work = if can_move { MergeKind::Move } else { MergeKind::Merge };
        self.make(work, parts, level, OutputRun::Into(oldest))
    }

    /// The run of a leveled level that moved tables join.
    fn resident(&self, level: usize) -> OutputRun {
        if self.runs(level).is_empty() { OutputRun::New } else { OutputRun::Into(0) }
    }

    /// Merges parts of one level into a deeper one: as a new run if that level is tiered, otherwise with the
    /// overlapping tables of its resident run.
    fn down(&self, mut parts: Vec<RunPart>, output_level: usize) -> Pick {
        let is_leveled = self.runs_allowed(output_level) == 1;
        if !is_leveled || self.runs(output_level).is_empty() {
            let output_run = self.joined(&parts, output_level);
            return self.make(MergeKind::Merge, parts, output_level, output_run);
        }
        let (min, max) = self.bounds(&parts);
        let tables = overlap(self.newest(output_level), min, max);
        if !tables.is_empty() {
            parts.push(RunPart { level: output_level, run: 0, tables });
        }
        self.make(MergeKind::Merge, parts, output_level, OutputRun::Into(0))
    }

    fn make(
        &self,
        work: MergeKind,
        inputs: Vec<RunPart>,
        output_level: usize,
        output_run: OutputRun,
    ) -> Pick {
        let first_older = match output_run {
            OutputRun::New => 0,
            OutputRun::Into(run) => run + 1,
        };
        // Overlapping tables of the output run reach beyond the inputs' bounds, and their tombstones count as
        // well.
        let older = self.older(self.bounds(&inputs), output_level, first_older, &inputs);
        let oldest = self.runs(output_level).len().checked_sub(1).filter(|run| *run >= first_older);
        let cut_like = oldest.map_or((output_level + 1, 0), |run| (output_level, run));
        let is_apart = output_run != OutputRun::New || older.is_empty();
        let table_bytes = self.table_bytes(inputs[0].level, output_level, is_apart);
        Pick { work, inputs, output_level, output_run, older, cut_like, table_bytes }
    }
}

#[cfg(test)]
mod tests;
