//! Each rule by a small tree, then whole lives of trees with their items, checked after every pick.

use std::collections::BTreeMap;

use proptest::prelude::*;

use std::ops::Range;

use super::super::shape::space_limit;
use super::*;

const SETTINGS: PickSettings = PickSettings {
    size_ratio: 4,
    runs_per_level: 1,
    runs_in_last_level: 1,
    level0_runs: 2,
    table_bytes: 1000,
    base_level_bytes: 10,
    delete_persist_within_s: 0,
    now_s: 1_000_000,
};

fn table(min: &'static str, max: &'static str, bytes: u64) -> TableShape<'static> {
    TableShape {
        min: min.as_bytes(),
        max: max.as_bytes(),
        bytes,
        items: 10,
        tombstones: 0,
        tombstones_dense: 0,
        oldest_tombstone_s: 0,
        first_sequence: 1,
    }
}

fn with_tombstones(shape: TableShape<'_>, tombstones: u64) -> TableShape<'_> {
    TableShape { tombstones, ..shape }
}

/// A tree of level 0, whose tables are runs, and leveled levels.
fn tree(levels: &[&[TableShape<'static>]]) -> TreeShape<'static> {
    let one_run = |tables: &&[TableShape<'static>]| match tables.len() {
        0 => Vec::new(),
        _ => vec![tables.to_vec()],
    };
    let level0 = levels.iter().take(1).map(|runs| runs.iter().map(|table| vec![*table]).collect());
    TreeShape { levels: level0.chain(levels.iter().skip(1).map(one_run)).collect() }
}

fn picked(levels: &[&[TableShape<'static>]]) -> Option<Pick> {
    pick(&tree(levels), &SETTINGS)
}

/// Work, level, inputs, output level, overlapping: what a table test compares.
type Brief = (Work, usize, Range<usize>, usize, Range<usize>);

/// Of a pick of leveled levels; what it meets in the output level is `at..at` where it meets nothing.
fn brief(pick: &Pick) -> (Work, usize, Range<usize>, usize, Range<usize>) {
    let from = pick.inputs[0].level;
    let (upper, lower): (Vec<&Part>, Vec<&Part>) = pick.inputs.iter().partition(|part| part.level == from);
    let inputs = if from == 0 { 0..upper.len() } else { upper[0].tables.clone() };
    let met = lower.first().map_or(0..0, |part| part.tables.clone());
    (pick.work, from, inputs, pick.output_level, met)
}

/// Overlap is by inclusive bounds.
#[test]
fn bounds_are_inclusive() {
    let tables = [table("b", "d", 1), table("f", "h", 1)];
    for (min, max, expected) in [
        ("a", "a", 0..0),
        ("a", "b", 0..1),
        ("d", "d", 0..1),
        ("da", "e", 1..1),
        ("d", "f", 0..2),
        ("h", "z", 1..2),
        ("ha", "z", 2..2),
        ("a", "z", 0..2),
    ] {
        assert_eq!(overlap(&tables, min.as_bytes(), max.as_bytes()), expected, "{min}..={max}");
    }
}

type Row<'r> = (&'r str, &'r [&'r [TableShape<'static>]], Option<Brief>);

fn check(rows: &[Row<'_>]) {
    for (what, levels, expected) in rows {
        assert_eq!(picked(levels).as_ref().map(brief), *expected, "{what}");
    }
}

fn big(min: &'static str, max: &'static str) -> TableShape<'static> {
    table(min, max, 100)
}

fn full() -> [TableShape<'static>; 4] {
    [big("a", "c"), big("d", "f"), big("g", "i"), big("j", "l")]
}

/// One rule a row: the tree and the work its level 0 gives.
#[test]
fn each_rule_of_level_0_gives_its_work() {
    let run = |min, max| table(min, max, 10);
    let full = full();
    check(&[
        ("an empty tree is settled", &[], None),
        ("too few runs", &[&[run("a", "c")]], None),
        (
            "level 0 is due, no level below",
            &[&[run("a", "c"), run("b", "d")]],
            Some((Work::Merge, 0, 0..2, 1, 0..0)),
        ),
        (
            "runs that overlap nothing are merged all the same",
            &[&[run("m", "n"), run("p", "q")], &[table("a", "c", 80)]],
            Some((Work::Merge, 0, 0..2, 1, 0..0)),
        ),
        (
            "what lies between two runs takes part",
            &[&[run("a", "b"), run("k", "l")], &[table("d", "e", 40), table("m", "n", 40)]],
            Some((Work::Merge, 0, 0..2, 1, 0..1)),
        ),
        (
            "one run is due when it is much beside the last level",
            &[&[run("a", "c")], &[table("a", "c", 10)]],
            Some((Work::Merge, 0, 0..1, 1, 0..1)),
        ),
        ("a run below the base is not", &[&[table("a", "c", 9)], &[table("a", "c", 9)]], None),
        (
            "empty levels too small for level 0 are passed over",
            &[&[table("a", "c", 30), table("b", "d", 30)], &[], &full],
            Some((Work::Merge, 0, 0..2, 1, 0..0)),
        ),
        (
            "and so is this one, that has room for 100 of 120",
            &[&[table("a", "c", 60), table("b", "d", 60)], &[], &full],
            Some((Work::Merge, 0, 0..2, 2, 0..2)),
        ),
        (
            "a level that is not empty is not passed over",
            &[&[table("a", "c", 60), table("b", "d", 60)], &[table("x", "y", 1)], &full],
            Some((Work::Merge, 0, 0..2, 1, 0..0)),
        ),
        (
            "level 0 has outgrown nothing: the last level goes down",
            &[&[run("a", "c"), run("b", "d")], &full],
            Some((Work::Move, 1, 0..4, 2, 0..0)),
        ),
    ]);
}

/// One rule a row: the tree and the work its deeper levels give.
#[test]
fn each_rule_of_deeper_levels_gives_its_work() {
    let full = full();
    check(&[
        ("the last level has no bound", &[&[], &full], None),
        (
            "over capacity: the table with the least overlap a byte",
            &[&[], &[table("a", "d", 90), table("e", "g", 90)], &full],
            Some((Work::Merge, 1, 0..1, 2, 0..2)),
        ),
        (
            "over capacity: what overlaps nothing moves, its neighbours with it",
            &[&[], &[big("c", "d"), big("m", "n"), big("o", "p"), big("q", "r")], &full],
            Some((Work::Move, 1, 1..4, 2, 0..0)),
        ),
        (
            "but no more than is over",
            &[&[], &[big("m", "n"), big("o", "p"), big("q", "r")], &full],
            Some((Work::Move, 1, 0..2, 2, 0..0)),
        ),
        (
            "a tombstone with nothing older is not moved: it would stay for ever",
            &[&[], &[big("c", "d"), with_tombstones(big("m", "n"), 1)], &full],
            Some((Work::Merge, 1, 1..2, 2, 0..0)),
        ),
        (
            "a tombstone with something older moves on",
            &[&[], &[with_tombstones(big("a", "b"), 1)], &[table("x", "y", 1)], &full],
            Some((Work::Move, 1, 0..1, 2, 0..0)),
        ),
        (
            "the fuller of two levels goes first",
            &[&[], &[table("a", "b", 90)], &[big("a", "b"), big("c", "d")], &full],
            Some((Work::Merge, 1, 0..1, 2, 0..1)),
        ),
        (
            "many tombstones go down although there is room",
            &[&[], &[with_tombstones(table("a", "b", 9), 5)], &full],
            Some((Work::Merge, 1, 0..1, 2, 0..1)),
        ),
        ("few do not", &[&[], &[with_tombstones(table("a", "b", 9), 4)], &full], None),
        (
            "many tombstones in the last level are rewritten where they are",
            &[&[], &[big("a", "b"), with_tombstones(big("c", "d"), 10)]],
            Some((Work::Merge, 1, 1..2, 1, 0..0)),
        ),
    ]);
}

/// Tables below the output are named when they overlap the inputs, or what the inputs meet in the output
/// level.
#[test]
fn older_tables_are_named() {
    let levels: &[&[TableShape<'static>]] = &[
        &[table("d", "e", 10), table("f", "g", 10)],
        &[table("b", "d", 10), table("g", "k", 10), table("p", "q", 10)],
        &[table("a", "b", 20), table("m", "n", 20)],
        &[table("a", "a", 160), table("k", "m", 160), table("p", "z", 320)],
    ];
    let pick = picked(levels).expect("level 0 is due");
    assert_eq!(brief(&pick), (Work::Merge, 0, 0..2, 1, 0..2));
    assert_eq!(pick.older, [Place { level: 2, run: 0, index: 0 }, Place { level: 3, run: 0, index: 1 }]);
    assert!(!pick.is_bottommost());
    let pick = picked(&levels[..2]).expect("level 0 is due");
    assert!(pick.is_bottommost());
}

/// Output tables are as large as the settings say in large levels and smaller in small ones, to a sixteenth;
/// but never so small that their pages outweigh their items. At the smallest `table_bytes` a table once held
/// a single item.
#[test]
fn tables_are_cut_to_the_level() {
    let cut = |table_bytes, last_bytes| {
        let last = [with_tombstones(table("a", "b", last_bytes), 10)];
        let tree = TreeShape { levels: vec![Vec::new(), vec![last.to_vec()]] };
        pick(&tree, &PickSettings { table_bytes, ..SETTINGS }).expect("tombstones").table_bytes
    };
    for (last_bytes, expected) in [(10, 1 << 16), (1 << 20, 1 << 17), (100 << 20, 1 << 20)] {
        assert_eq!(cut(1 << 20, last_bytes), expected);
    }
    assert_eq!((cut(64 << 10, 10), cut(1000, 10)), (16 << 10, 1000));
}

/// What is over capacity is counted as debt, and level 0 from when it is due.
#[test]
fn debt_is_what_is_over_capacity() {
    let last = [table("a", "z", 400)];
    let level1 = [table("a", "b", 130)];
    let tree = |runs: &[TableShape<'static>]| tree(&[runs, &level1, &last]);
    let run = table("a", "b", 10);
    assert_eq!(pressure(&tree(&[run]), &SETTINGS), Pressure { level0_runs: 1, debt_bytes: 30 });
    assert_eq!(pressure(&tree(&[run, run]), &SETTINGS), Pressure { level0_runs: 2, debt_bytes: 50 });
}

/// A table's items; tombstones are `None`. The value is the number of the write.
type Items = BTreeMap<Vec<u8>, Option<u64>>;

const ITEM_BYTES: u64 = 10;

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

/// A tree with its items, and a model of what it should hold. Runs newest first.
struct Life {
    levels: Vec<Vec<Vec<Items>>>,
    model: BTreeMap<Vec<u8>, u64>,
    settings: PickSettings,
    writes: u64,
}

impl Life {
    fn new(settings: PickSettings) -> Life {
        Life { levels: vec![Vec::new()], model: BTreeMap::new(), settings, writes: 0 }
    }

    fn flush(&mut self, keys: &[(u16, bool)]) {
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

    fn shape(&self) -> TreeShape<'_> {
        let run = |run| <[Items]>::iter(Vec::as_slice(run)).map(shape_of).collect();
        TreeShape { levels: self.levels.iter().map(|runs| runs.iter().map(run).collect()).collect() }
    }

    fn apply(&mut self, pick: &Pick) {
        let older: Vec<(Vec<u8>, Vec<u8>)> = {
            let shape = self.shape();
            let bounds = |place: &Place| {
                let table = &shape.levels[place.level][place.run][place.index];
                (table.min.to_vec(), table.max.to_vec())
            };
            pick.older.iter().map(bounds).collect()
        };
        if self.levels.len() <= pick.output_level {
            self.levels.resize_with(pick.output_level + 1, Vec::new);
        }
        let take = |part: &Part| -> Vec<Items> {
            self.levels[part.level][part.run].drain(part.tables.clone()).collect()
        };
        let taken: Vec<Vec<Items>> = pick.inputs.iter().map(take).collect();
        let made = match pick.work {
            Work::Move => taken.into_iter().flatten().collect(),
            Work::Merge => merged(taken, &older, pick.table_bytes),
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

    /// Invariants 1 and 2 of the module: runs are disjoint and ordered, and the newest version is found
    /// first.
    fn check(&self) {
        for run in self.shape().levels.iter().flatten() {
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

    /// Does what is due until nothing is; the bytes that merges wrote.
    fn settle(&mut self, next: fn(&TreeShape<'_>, &PickSettings) -> Option<Pick>) -> u64 {
        let mut written_bytes = 0;
        for _ in 0..20_000 {
            let Some(pick) = next(&self.shape(), &self.settings) else { return written_bytes };
            if pick.work == Work::Merge {
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

    /// Capacities and numbers of runs hold when nothing is due.
    fn check_settled(&self) {
        let tree = self.shape();
        let settings = &self.settings;
        assert_eq!(pressure(&tree, settings).debt_bytes, 0);
        assert!(tree.levels[0].len() < settings.level0_runs);
        let last = tree.levels.iter().rposition(|runs| !runs.is_empty()).unwrap_or(0);
        let bytes = |level: usize| Shape::new(&tree, settings).bytes(level);
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

    /// A full compaction leaves one run with exactly what is alive.
    fn check_full(&self) {
        assert!(self.levels.iter().map(Vec::len).sum::<usize>() <= 1);
        assert!(self.levels[0].is_empty());
        let held: usize = self.levels.iter().flatten().flatten().map(BTreeMap::len).sum();
        assert_eq!(held, self.model.len());
    }
}

/// The newest version of each key of tables given newest first, cut into tables.
fn merged(taken: Vec<Vec<Items>>, older: &[(Vec<u8>, Vec<u8>)], table_bytes: u64) -> Vec<Items> {
    let mut merged = Items::new();
    taken.into_iter().rev().flatten().for_each(|items| merged.extend(items));
    merged.retain(|key, value| value.is_some() || older.iter().any(|(min, max)| (min..=max).contains(&key)));
    let mut merged = merged.into_iter().peekable();
    let mut made = Vec::new();
    while merged.peek().is_some() {
        made.push(merged.by_ref().take((table_bytes / ITEM_BYTES).max(1) as usize).collect());
    }
    made
}

fn settings() -> impl Strategy<Value = PickSettings> {
    let runs = || prop_oneof![Just(1usize), 1usize..7, Just(63)];
    let sizes = (2u64..6, 1usize..5, 2u64..20, 0u64..20);
    (sizes, runs(), runs()).prop_map(|((size_ratio, level0_runs, table, base), above, last)| PickSettings {
        size_ratio,
        runs_per_level: above,
        runs_in_last_level: last,
        level0_runs,
        table_bytes: table * ITEM_BYTES,
        base_level_bytes: base * ITEM_BYTES,
        ..SETTINGS
    })
}

/// Writes of many kinds: anywhere, ascending, in one corner; with and without deletes; large and small
/// flushes.
fn flushes() -> impl Strategy<Value = Vec<Vec<(u16, bool)>>> {
    let flush = (0u16..400, 1u16..400, 0usize..60, 0u8..4).prop_flat_map(|(start, width, count, deletes)| {
        prop::collection::vec((start..start + width, (0u8..4).prop_map(move |n| n < deletes)), 0..count + 1)
    });
    prop::collection::vec(flush, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Levels stay disjoint and ordered, no key is lost or comes back, picks end, and capacities hold once
    /// they have.
    #[test]
    fn trees_live_well(settings in settings(), flushes in flushes(), patience in 1usize..6) {
        let mut life = Life::new(settings);
        for (turn, keys) in flushes.iter().enumerate() {
            life.flush(keys);
            if turn % patience == 0 {
                life.settle(pick);
                life.check_settled();
            }
        }
        life.settle(|tree, settings| pick_full(tree, settings, u64::MAX));
        life.check_full();
        let all: Vec<(u16, bool)> = (0..800).map(|key| (key, true)).collect();
        life.flush(&all);
        life.settle(|tree, settings| pick_full(tree, settings, u64::MAX));
        prop_assert!(life.levels.iter().all(Vec::is_empty), "everything was deleted");
    }
}

/// Random overwrites of a fixed set, small flushes beside a large tree: space stays near 1.2 of what lives,
/// each byte is rewritten a bounded number of times, and the depth follows the data.
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

/// Keys that only ascend are written twice: by the flush and by the merge out of level 0. All else is moves.
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
