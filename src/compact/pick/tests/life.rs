//! Whole lives of trees with their items, checked after every pick.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::super::bounds::Cuts;
use super::super::super::shape::space_limit;
use super::*;

/// A table's items; tombstones are `None`. The value is the number of the write.
pub(super) type Items = BTreeMap<Vec<u8>, Option<u64>>;

pub(super) const ITEM_BYTES: u64 = 10;

fn shape_of(items: &Items) -> TableShape<'_> {
    TableShape {
        min: items.first_key_value().expect("no table is empty").0,
        max: items.last_key_value().expect("no table is empty").0,
        bytes: items.len() as u64 * ITEM_BYTES,
        items: items.len() as u64,
        tombstones: items.values().filter(|value| value.is_none()).count() as u64,
        tombstones_dense: 0,
        oldest_tombstone_s: 0,
        first_sequence: 1,
    }
}

/// A tree with its items, and a model of the expected contents. Runs newest first.
pub(super) struct Life {
    pub(super) levels: Vec<Vec<Vec<Items>>>,
    pub(super) model: BTreeMap<Vec<u8>, u64>,
    pub(super) settings: PickSettings,
    pub(super) writes: u64,
}

impl Life {
    pub(super) fn new(settings: PickSettings) -> Life {
        Life { levels: vec![Vec::new()], model: BTreeMap::new(), settings, writes: 0 }
    }

    pub(super) fn flush(&mut self, keys: &[(u16, bool)]) {
        let mut run = Items::new();
        for (key, is_delete) in keys {
            self.writes += 1;
            let key = key.to_be_bytes().to_vec();
            if *is_delete {
                self.model.remove(&key);
                run.insert(key, None);
            } else {
                self.model.insert(key.clone(), self.writes);
                run.insert(key, Some(self.writes));
            }
        }
        if !run.is_empty() {
            self.levels[0].insert(0, vec![run]);
        }
    }

    pub(super) fn shape(&self) -> TreeShape<'_> {
        let run = |run| <[Items]>::iter(Vec::as_slice(run)).map(shape_of).collect();
        TreeShape { levels: self.levels.iter().map(|runs| runs.iter().map(run).collect()).collect() }
    }

    pub(super) fn apply(&mut self, pick: &Pick) {
        let older: Vec<(Vec<u8>, Vec<u8>)> = {
            let shape = self.shape();
            let bounds = |position: &TablePosition| {
                let table = &shape.levels[position.level][position.run][position.index];
                (table.min.to_vec(), table.max.to_vec())
            };
            pick.older.iter().map(bounds).collect()
        };
        let next: Vec<(Vec<u8>, u64)> = {
            let shape = self.shape();
            let table =
                |position: &TablePosition| &shape.levels[position.level][position.run][position.index];
            let next = pick.older.iter().filter(|position| (position.level, position.run) == pick.cut_like);
            next.map(|position| (table(position).max.to_vec(), table(position).bytes)).collect()
        };
        if self.levels.len() <= pick.output_level {
            self.levels.resize_with(pick.output_level + 1, Vec::new);
        }
        let take = |part: &RunPart| -> Vec<Items> {
            self.levels[part.level][part.run].drain(part.tables.clone()).collect()
        };
        let taken: Vec<Vec<Items>> = pick.inputs.iter().map(take).collect();
        let made = match pick.work {
            MergeKind::Move => taken.into_iter().flatten().collect(),
            MergeKind::Merge => {
                merged(taken, &older, Cuts::new(next, pick.table_bytes, pick.table_bytes * 10))
            }
        };
        let output = &mut self.levels[pick.output_level];
        match pick.output_run {
            OutputRun::New => output.insert(0, made),
            OutputRun::Into(run) => output[run].extend(made),
        }
        for runs in &mut self.levels {
            runs.retain(|run| !run.is_empty());
            for run in runs {
                run.sort_by(|one, two| one.first_key_value().cmp(&two.first_key_value()));
            }
        }
    }

    /// Checks invariants 1 and 2 of the module: runs are disjoint and ordered, and the newest version is
    /// found first.
    pub(super) fn check(&self) {
        let shape = self.shape();
        assert_eq!(is_due(&shape, &self.settings), pick(&shape, &self.settings).is_some());
        for run in shape.levels.iter().flatten() {
            assert!(run.windows(2).all(|pair| pair[0].max < pair[1].min), "a run overlaps itself");
        }
        let mut found: BTreeMap<&[u8], Option<u64>> = BTreeMap::new();
        for items in self.levels.iter().flatten().flatten() {
            for (key, value) in items {
                found.entry(key).or_insert(*value);
            }
        }
        let held: BTreeMap<Vec<u8>, u64> =
            found.into_iter().filter_map(|(key, value)| Some((key.to_vec(), value?))).collect();
        assert_eq!(held, self.model);
    }

    /// Does all due work; returns the bytes that merges wrote.
    pub(super) fn settle(&mut self, next: fn(&TreeShape<'_>, &PickSettings) -> Option<Pick>) -> u64 {
        let mut written_bytes = 0;
        for _ in 0..20_000 {
            let Some(pick) = next(&self.shape(), &self.settings) else { return written_bytes };
            if pick.work == MergeKind::Merge {
                let inputs = pick
                    .inputs
                    .iter()
                    .flat_map(|part| &self.levels[part.level][part.run][part.tables.clone()]);
                written_bytes += inputs.map(|items| items.len() as u64 * ITEM_BYTES).sum::<u64>();
            }
            self.apply(&pick);
            self.check();
        }
        panic!("the picks do not end: {:?}", next(&self.shape(), &self.settings));
    }

    /// Checks that capacities and numbers of runs hold when nothing is due.
    pub(super) fn check_settled(&self) {
        let tree = self.shape();
        let settings = &self.settings;
        assert_eq!(pressure(&tree, settings).debt_bytes, 0);
        assert!(tree.levels[0].len() < settings.level0_runs);
        let last = tree.levels.iter().rposition(|runs| !runs.is_empty()).unwrap_or(0);
        let bytes = |level: usize| PickContext::new(&tree, settings).bytes(level);
        let most = |runs: usize| runs.min(settings.size_ratio as usize - 1);
        let (above, in_last) = (most(settings.runs_per_level), most(settings.runs_in_last_level));
        for level in 1..=last {
            let runs = if level == last { in_last } else { above };
            assert!(tree.levels[level].len() <= runs, "runs of level {level} of {last}");
            let share = (level..last).fold(bytes(last), |bytes, _| bytes / settings.size_ratio);
            assert!(
                level == last || (above > 1 && in_last > 1) || bytes(level) <= share * above as u64,
                "level {level} of {last}"
            );
        }
        if last > 0 && in_last == 1 && bytes(0) >= settings.base_level_bytes {
            let above_bytes: u64 = (0..last).map(bytes).sum();
            assert!(above_bytes <= space_limit(bytes(last), settings.size_ratio, above));
        }
        if last > 0 {
            assert!(tree.levels[last].iter().flatten().all(|table| !table.is_mostly_tombstones()));
        }
    }

    /// Checks that a full compaction leaves one run with exactly the live items.
    pub(super) fn check_full(&self) {
        assert!(self.levels.iter().map(Vec::len).sum::<usize>() <= 1);
        assert!(self.levels[0].is_empty());
        let held: usize = self.levels.iter().flatten().flatten().map(BTreeMap::len).sum();
        assert_eq!(held, self.model.len());
    }
}

/// The newest version of each key of tables in the order newest first, cut into tables.
fn merged(taken: Vec<Vec<Items>>, older: &[(Vec<u8>, Vec<u8>)], mut cuts: Cuts) -> Vec<Items> {
    let mut merged = Items::new();
    taken.into_iter().rev().flatten().for_each(|items| merged.extend(items));
    merged.retain(|key, value| value.is_some() || older.iter().any(|(min, max)| (min..=max).contains(&key)));
    let mut made = vec![Items::new()];
    for (key, value) in merged {
        let last = made.last_mut().expect("there is one");
        let bytes = last.len() as u64 * ITEM_BYTES;
        if cuts.is_due(&key, (bytes > 0).then_some(bytes)) {
            made.push(Items::from([(key, value)]));
        } else {
            last.insert(key, value);
        }
    }
    made.retain(|items| !items.is_empty());
    made
}

pub(super) fn settings() -> impl Strategy<Value = PickSettings> {
    let runs = || prop_oneof![Just(1usize), 1usize..7, Just(63)];
    let sizes = (2u64..6, 1usize..5, 2u64..20, 0u64..20);
    let all = (sizes, runs(), runs());
    all.prop_map(|((size_ratio, level0_runs, table, base), above, last)| PickSettings {
        size_ratio,
        runs_per_level: above,
        runs_in_last_level: last,
        level0_runs,
        table_bytes: table * ITEM_BYTES,
        base_level_bytes: base * ITEM_BYTES,
        ..SETTINGS
    })
}

/// Writes of many kinds: random, ascending, in one corner; with and without deletes; in large and small
/// flushes.
fn flushes() -> impl Strategy<Value = Vec<Vec<(u16, bool)>>> {
    let flush = (0u16..400, 1u16..400, 0usize..60, 0u8..4).prop_flat_map(|(start, width, count, deletes)| {
        prop::collection::vec((start..start + width, (0u8..4).prop_map(move |n| n < deletes)), 0..count + 1)
    });
    prop::collection::vec(flush, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Levels stay disjoint and ordered, no key is lost or resurrected, picks end, and capacities hold
    /// afterwards.
    #[test]
    fn trees_live_well(
        settings in settings(),
        other in settings(),
        changes in 1usize..40,
        flushes in flushes(),
        patience in 1usize..6,
    ) {
        let mut life = Life::new(settings);
        for (turn, keys) in flushes.iter().enumerate() {
            if turn % changes == changes - 1 {
                // The policy of merges may change at any time.
                let PickSettings { runs_per_level, runs_in_last_level, level0_runs, .. } =
                    if turn / changes % 2 == 0 { other } else { settings };
                let now = life.settings;
                life.settings = PickSettings {
                    runs_per_level,
                    runs_in_last_level,
                    level0_runs,
                    ..now
                };
            }
            life.flush(keys);
            if turn % patience == 0 {
                life.settle(pick);
                life.check_settled();
            }
        }
        life.settle(pick_all);
        life.check_full();
        let all: Vec<(u16, bool)> = (0..800).map(|key| (key, true)).collect();
        life.flush(&all);
        life.settle(pick_all);
        prop_assert!(life.levels.iter().all(Vec::is_empty), "everything was deleted");
    }
}

/// Random overwrites of a fixed set, with small flushes beside a large tree: space stays near 1.2 times the
/// live data, each byte is rewritten a bounded number of times, and the depth follows the data.
#[test]
fn overwrites_keep_space_and_rewriting_small() {
    let settings =
        PickSettings { size_ratio: 8, level0_runs: 4, table_bytes: 1000, base_level_bytes: 100, ..SETTINGS };
    let mut life = Life::new(settings);
    let mut random = 1u64;
    let (mut flushed_bytes, mut written_bytes) = (0, 0);
    for turn in 0..1200 {
        let keys: Vec<(u16, bool)> = (0..40)
            .map(|_| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (((random >> 40) % 8000) as u16, false)
            })
            .collect();
        life.flush(&keys);
        flushed_bytes += 40 * ITEM_BYTES;
        written_bytes += 40 * ITEM_BYTES;
        let Some(_) = pick(&life.shape(), &life.settings) else { continue };
        written_bytes += life.settle(pick);
        if turn > 600 {
            let held: usize = life.levels.iter().flatten().flatten().map(BTreeMap::len).sum();
            assert!(held * 100 <= life.model.len() * 121, "{held} items for {}", life.model.len());
        }
    }
    let depth = life.levels.iter().filter(|tables| !tables.is_empty()).count();
    assert!((3..=4).contains(&depth), "{depth} levels");
    assert!(written_bytes <= 14 * flushed_bytes, "{}", written_bytes / flushed_bytes);
}

/// Ascending keys are written twice: by the flush and by the merge out of level 0. All other work is moves.
#[test]
fn ascending_keys_are_not_rewritten() {
    let settings =
        PickSettings { size_ratio: 4, level0_runs: 2, table_bytes: 100, base_level_bytes: 10, ..SETTINGS };
    let mut life = Life::new(settings);
    let mut written_bytes = 0;
    for turn in 0..400u16 {
        let keys: Vec<(u16, bool)> = (turn * 20..turn * 20 + 20).map(|key| (key, false)).collect();
        life.flush(&keys);
        written_bytes += life.settle(pick);
    }
    assert!(written_bytes <= 400 * 20 * ITEM_BYTES, "{written_bytes}");
}
