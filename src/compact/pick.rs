//! Which merge of a tree is due next: a pure function of the sizes and bounds of its tables.
//!
//! The tree is leveled: level 0 holds flushed runs, every deeper level one run of tables. It reads no file,
//! knows no version and does nothing; see `job` for the doing. Called by the engine after every flush and
//! every finished job.
//!
//! Sizes follow the data (the idea is RocksDB's `level_compaction_dynamic_level_bytes`; the growth by a move
//! is ours): the last level has no bound, and each level above it may hold `1 / size_ratio` of the one below.
//! So all levels above the last hold at most `1 / (size_ratio - 1)` of it, however much was overwritten. When
//! level 1 may hold more than `size_ratio` times what level 0 brings at once, merging into it has become
//! dear: the last level then moves one level down, by a manifest edit alone, the levels above follow it by
//! moves because nothing is below them, and level 1 is free for small data. Levels too small for what level 0
//! brings are passed over while they are empty.
//!
//! Rules, first the most pressing (the largest score; of equal ones the shallowest):
//! - Level 0 is due at `level0_runs` runs, or when all levels above the last hold more than [`space_limit`]
//!   of it. All its runs merge with the tables of the output level that lie within their bounds.
//! - A level over its capacity gives tables to the next: what overlaps nothing there moves without being
//!   rewritten, else the table with the fewest overlapping bytes a byte of its own is merged (ties: the
//!   lowest key).
//! - A table of which half the items are tombstones goes down although there is room, or is rewritten in the
//!   last level.
//!
//! Invariants:
//! 1. Tables of a level ≥ 1 are disjoint and ascending before a pick and after it is done; bounds are
//!    inclusive.
//! 2. What is newer stays above what is older: inputs take all of level 0 or whole tables, with everything
//!    between the least and the greatest key of them in the output level; levels between are empty.
//! 3. [`Pick::older`] names every table that may hold an older version of a key of the inputs. A tombstone
//!    outside their bounds may be dropped, any other may not.
//! 4. No table with a tombstone that could be dropped is moved: it is rewritten. So the last level gets none.
//! 5. Picks end: each takes data down, or removes tombstones, or deepens a tree that level 0 has outgrown.

use std::ops::Range;

/// Levels a tree may have, level 0 included. Enough for any size at the smallest ratio.
pub(crate) const LEVELS_MAX: usize = 16;
/// A level should have about this many tables, so that a part of it can be merged.
const TABLES_PER_LEVEL: u64 = 8;
/// Tables are not cut smaller than `table_bytes` divided by this, however small the level.
const TABLE_BYTES_SHRINK: u64 = 16;
/// Nor smaller than this, unless `table_bytes` is: a table has pages beside its items, and would hold few or
/// one.
const TABLE_BYTES_LEAST: u64 = 16 << 10;

/// A table, or a slice of one, as picking sees it. Bounds are inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableShape<'a> {
    pub(crate) min: &'a [u8],
    pub(crate) max: &'a [u8],
    pub(crate) bytes: u64,
    pub(crate) items: u64,
    pub(crate) tombstones: u64,
}

impl TableShape<'_> {
    fn is_mostly_tombstones(&self) -> bool {
        self.tombstones > 0 && self.tombstones * 2 >= self.items
    }
}

/// One tree: level 0 has a shape for each run, newest first; deeper levels their tables, ascending. No level
/// is missing between the first and the deepest, but any may be empty.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct TreeShape<'a> {
    pub(crate) levels: Vec<Vec<TableShape<'a>>>,
}

/// What picking is told by the keyspace's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PickSettings {
    /// How many times larger each level is than the one above.
    pub(crate) size_ratio: u64,
    /// Runs of level 0 that make it due.
    pub(crate) level0_runs: usize,
    /// Largest table that a merge writes.
    pub(crate) table_bytes: u64,
    /// The least that level 0 is taken to bring at once: below it, fixed costs of files count for more than
    /// rewriting.
    pub(crate) base_level_bytes: u64,
}

/// How the inputs get to the output level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// By writing new tables.
    Merge,
    /// By a manifest edit alone: nothing of the output level overlaps.
    Move,
}

/// A table's place in the [`TreeShape`] that was given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) level: usize,
    pub(crate) index: usize,
}

/// One piece of work on a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pick {
    pub(crate) work: Work,
    /// Where the inputs come from. The output level itself for a rewrite in place.
    pub(crate) level: usize,
    /// Tables of `level`, in its order; every run if it is level 0.
    pub(crate) inputs: Range<usize>,
    pub(crate) output_level: usize,
    /// Tables of the output level that take part. Empty for a move.
    pub(crate) overlapping: Range<usize>,
    /// Tables below the output level that overlap the inputs, level by level: what keeps tombstones alive.
    pub(crate) older: Vec<Place>,
    /// Where to cut output tables.
    pub(crate) table_bytes: u64,
}

impl Pick {
    /// Whether nothing older overlaps the inputs: every tombstone may be dropped.
    #[cfg(test)]
    pub(crate) fn is_bottommost(&self) -> bool {
        self.older.is_empty()
    }
}

/// How far a tree is behind, for pacing its writers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Pressure {
    pub(crate) level0_runs: usize,
    /// Bytes over capacity, in all levels; of level 0 all bytes once it is due.
    pub(crate) debt_bytes: u64,
}

/// The work that is due, or `None` if the tree is settled.
pub(crate) fn pick(tree: &TreeShape<'_>, settings: &PickSettings) -> Option<Pick> {
    let shape = Shape::new(tree, settings);
    let due = (0..tree.levels.len()).rev().map(|level| (shape.score_permille(level), level)).max_by_key(
        // The last of equal ones wins, and that is the shallowest.
        |(score, _)| *score,
    );
    match due {
        Some((score, 0)) if score >= 1000 => Some(shape.deepen().unwrap_or_else(|| shape.merge_level0())),
        Some((score, level)) if score >= 1000 => {
            let excess_bytes = shape.bytes(level) - shape.capacity(level);
            Some(shape.push_down(level, excess_bytes))
        }
        _ => shape.sweep(|table| table.is_mostly_tombstones()),
    }
}

/// The next step towards one run without tombstones in the last level; `None` once that is all there is.
/// Levels go down one after the other, so each byte of the last level is rewritten about once and no step
/// needs much space.
pub(crate) fn pick_full(tree: &TreeShape<'_>, settings: &PickSettings) -> Option<Pick> {
    let shape = Shape::new(tree, settings);
    let shallowest = tree.levels.iter().position(|tables| !tables.is_empty())?;
    if shallowest == 0 {
        return Some(shape.merge_level0());
    }
    if shallowest < shape.last_level {
        return Some(shape.push_down(shallowest, u64::MAX));
    }
    shape.sweep(|table| table.tombstones > 0)
}

/// How far the tree is behind.
pub(crate) fn pressure(tree: &TreeShape<'_>, settings: &PickSettings) -> Pressure {
    let shape = Shape::new(tree, settings);
    let over = |level: usize| shape.bytes(level).saturating_sub(shape.capacity(level));
    let level0_bytes = if shape.score_permille(0) >= 1000 { shape.bytes(0) } else { 0 };
    Pressure {
        level0_runs: shape.tables(0).len(),
        debt_bytes: (1..=shape.last_level).map(over).fold(level0_bytes, u64::saturating_add),
    }
}

/// What all levels above the last may hold together before level 0 is due early: a fifth of the last level,
/// or 1.4 times what they hold when full if the size ratio is so small that this is more.
pub(crate) fn space_limit(last_level_bytes: u64, size_ratio: u64) -> u64 {
    let full = last_level_bytes / size_ratio.saturating_sub(1).max(1);
    (last_level_bytes / 5).max(full.saturating_add(full / 5 * 2))
}

/// A tree with what all rules need of it.
struct Shape<'t, 'a> {
    tree: &'t TreeShape<'a>,
    settings: &'t PickSettings,
    /// The deepest level that holds anything, or 0 if none but level 0 does.
    last_level: usize,
}

impl<'t, 'a> Shape<'t, 'a> {
    fn new(tree: &'t TreeShape<'a>, settings: &'t PickSettings) -> Shape<'t, 'a> {
        assert!(settings.size_ratio >= 2 && settings.level0_runs >= 1, "settings are in their ranges");
        assert!(tree.levels.len() <= LEVELS_MAX, "no pick makes a deeper level");
        let last_level = tree.levels.iter().rposition(|tables| !tables.is_empty()).unwrap_or(0);
        Shape { tree, settings, last_level }
    }

    fn tables(&self, level: usize) -> &'t [TableShape<'a>] {
        self.tree.levels.get(level).map_or(&[], Vec::as_slice)
    }

    fn bytes(&self, level: usize) -> u64 {
        self.tables(level).iter().map(|table| table.bytes).sum()
    }

    /// What a level ≥ 1 may hold.
    fn capacity(&self, level: usize) -> u64 {
        if level >= self.last_level {
            return u64::MAX;
        }
        self.share(self.last_level - level)
    }

    /// The last level's bytes divided by the size ratio, `times` over.
    fn share(&self, times: usize) -> u64 {
        (0..times).fold(self.bytes(self.last_level), |bytes, _| bytes / self.settings.size_ratio)
    }

    /// What level 0 brings at once.
    fn brought_bytes(&self) -> u64 {
        self.bytes(0).max(self.settings.base_level_bytes)
    }

    /// 1,000 and more: due.
    fn score_permille(&self, level: usize) -> u64 {
        let bytes = self.bytes(level);
        if level == 0 {
            let runs = self.tables(0).len() as u64 * 1000 / self.settings.level0_runs as u64;
            return if self.is_space_short() { runs.max(1000) } else { runs };
        }
        let capacity = self.capacity(level);
        if bytes <= capacity {
            return 0;
        }
        let permille = u128::from(bytes) * 1000 / u128::from(capacity.max(1));
        u64::try_from(permille).unwrap_or(u64::MAX)
    }

    /// Whether the levels above the last hold too much of what is perhaps overwritten, and level 0 can help.
    fn is_space_short(&self) -> bool {
        let last_level_bytes = self.bytes(self.last_level);
        let above_bytes: u64 = (0..self.last_level).map(|level| self.bytes(level)).sum();
        let level0_bytes = self.bytes(0);
        self.last_level > 0
            && level0_bytes > 0
            && level0_bytes >= self.settings.base_level_bytes
            && above_bytes > space_limit(last_level_bytes, self.settings.size_ratio)
    }

    /// Moves the last level one down when level 1 may have grown too large for what level 0 brings.
    fn deepen(&self) -> Option<Pick> {
        if self.last_level == 0 || self.last_level + 1 >= LEVELS_MAX {
            return None;
        }
        let first_bytes = self.share(self.last_level - 1);
        if first_bytes / self.settings.size_ratio <= self.brought_bytes() {
            return None;
        }
        let all = 0..self.tables(self.last_level).len();
        Some(self.make(Work::Move, self.last_level, all, self.last_level + 1))
    }

    fn merge_level0(&self) -> Pick {
        let mut output_level = 1;
        while output_level < self.last_level
            && self.tables(output_level).is_empty()
            && self.capacity(output_level) < self.brought_bytes()
        {
            output_level += 1;
        }
        self.make(Work::Merge, 0, 0..self.tables(0).len(), output_level)
    }

    /// Takes about `excess_bytes` from a level ≥ 1 to the next: by a move if any table can move, else one
    /// table.
    fn push_down(&self, level: usize, excess_bytes: u64) -> Pick {
        if let Some(moved) = self.movable(level, excess_bytes) {
            return self.make(Work::Move, level, moved, level + 1);
        }
        let below = self.tables(level + 1);
        let overlap_bytes = |table: &TableShape<'_>| -> u64 {
            below[overlap(below, table.min, table.max)].iter().map(|other| other.bytes).sum()
        };
        let dearness = |index: &usize| {
            let table = &self.tables(level)[*index];
            u128::from(overlap_bytes(table)) * 1_000_000 / u128::from(table.bytes.max(1))
        };
        let cheapest = (0..self.tables(level).len())
            .min_by_key(dearness)
            .expect("a level that gives something away is not empty");
        self.make(Work::Merge, level, cheapest..cheapest + 1, level + 1)
    }

    /// The first neighbours that overlap nothing in the next level and have no tombstone to lose there, until
    /// they hold `excess_bytes`.
    fn movable(&self, level: usize, excess_bytes: u64) -> Option<Range<usize>> {
        let can_move = |table: &TableShape<'_>| {
            let next = self.tables(level + 1);
            overlap(next, table.min, table.max).is_empty()
                && (table.tombstones == 0 || !self.older(table.min, table.max, level + 1).is_empty())
        };
        let tables = self.tables(level);
        let start = tables.iter().position(can_move)?;
        let mut end = start + 1;
        let mut moved_bytes = tables[start].bytes;
        while moved_bytes < excess_bytes && end < tables.len() && can_move(&tables[end]) {
            // Neighbours may still have tables of the next level between them: each moves for itself, in one
            // edit.
            moved_bytes += tables[end].bytes;
            end += 1;
        }
        Some(start..end)
    }

    /// Takes the first table with that many tombstones down, or rewrites it where it is if that is the last
    /// level.
    fn sweep(&self, is_wanted: impl Fn(&TableShape<'_>) -> bool) -> Option<Pick> {
        for level in 1..=self.last_level {
            if let Some(index) = self.tables(level).iter().position(&is_wanted) {
                let table = &self.tables(level)[index];
                let one = index..index + 1;
                if level == self.last_level {
                    return Some(self.make(Work::Merge, level, one, level));
                }
                let is_free = overlap(self.tables(level + 1), table.min, table.max).is_empty();
                let keeps_tombstones = !self.older(table.min, table.max, level + 1).is_empty();
                let work = if is_free && keeps_tombstones { Work::Move } else { Work::Merge };
                return Some(self.make(work, level, one, level + 1));
            }
        }
        None
    }

    fn make(&self, work: Work, level: usize, inputs: Range<usize>, output_level: usize) -> Pick {
        let taken = &self.tables(level)[inputs.clone()];
        let min = taken.iter().map(|table| table.min).min().expect("a pick has inputs");
        let max = taken.iter().map(|table| table.max).max().expect("a pick has inputs");
        let is_alone = level == output_level || work == Work::Move;
        let below = self.tables(output_level);
        let overlapping = if is_alone { 0..0 } else { overlap(below, min, max) };
        // Overlapping tables reach beyond the bounds of the inputs, and their tombstones count as well.
        let met = &below[overlapping.clone()];
        let min = met.first().map_or(min, |table| table.min.min(min));
        let max = met.last().map_or(max, |table| table.max.max(max));
        Pick {
            work,
            level,
            inputs,
            output_level,
            overlapping,
            older: self.older(min, max, output_level),
            table_bytes: self.table_bytes(output_level),
        }
    }

    /// Tables deeper than `level` that overlap the bounds.
    fn older(&self, min: &[u8], max: &[u8], level: usize) -> Vec<Place> {
        (level + 1..self.tree.levels.len())
            .flat_map(|level| overlap(self.tables(level), min, max).map(move |index| Place { level, index }))
            .collect()
    }

    fn table_bytes(&self, output_level: usize) -> u64 {
        let level_bytes = match self.capacity(output_level) {
            u64::MAX => self.bytes(self.last_level).max(self.bytes(0)),
            capacity => capacity,
        };
        let most = self.settings.table_bytes;
        let least = (most / TABLE_BYTES_SHRINK).max(TABLE_BYTES_LEAST).min(most);
        (level_bytes / TABLES_PER_LEVEL).clamp(least, most)
    }
}

/// The tables of a level ≥ 1 that may hold a key from `min` to `max`, both included.
fn overlap(tables: &[TableShape<'_>], min: &[u8], max: &[u8]) -> Range<usize> {
    let start = tables.partition_point(|table| table.max < min);
    let end = tables.partition_point(|table| table.min <= max);
    start..end.max(start)
}

#[cfg(test)]
mod tests;
