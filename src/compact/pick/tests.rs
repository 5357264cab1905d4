//! Each rule by a small tree, then whole lives of trees with their items, checked after every pick.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SETTINGS: PickSettings =
    PickSettings { size_ratio: 4, level0_runs: 2, table_bytes: 1000, base_level_bytes: 10 };

fn table(min: &'static str, max: &'static str, bytes: u64) -> TableShape<'static> {
    TableShape { min: min.as_bytes(), max: max.as_bytes(), bytes, items: 10, tombstones: 0 }
}

fn with_tombstones(shape: TableShape<'_>, tombstones: u64) -> TableShape<'_> {
    TableShape { tombstones, ..shape }
}

fn tree(levels: &[&[TableShape<'static>]]) -> TreeShape<'static> {
    TreeShape { levels: levels.iter().map(|tables| tables.to_vec()).collect() }
}

fn picked(levels: &[&[TableShape<'static>]]) -> Option<Pick> {
    pick(&tree(levels), &SETTINGS)
}

/// Work, level, inputs, output level, overlapping: what a table test compares.
type Brief = (Work, usize, Range<usize>, usize, Range<usize>);

fn brief(pick: &Pick) -> Brief {
    (pick.work, pick.level, pick.inputs.clone(), pick.output_level, pick.overlapping.clone())
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
            Some((Work::Merge, 0, 0..2, 1, 1..1)),
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
            Some((Work::Merge, 1, 1..2, 2, 4..4)),
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
    assert_eq!(pick.older, [Place { level: 2, index: 0 }, Place { level: 3, index: 1 }]);
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
        let tree = TreeShape { levels: vec![Vec::new(), last.to_vec()] };
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
    }
}

/// A tree with its items, and a model of what it should hold.
struct Life {
    levels: Vec<Vec<Items>>,
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
            self.levels[0].insert(0, run);
        }
    }

    fn shape(&self) -> TreeShape<'_> {
        let levels = self.levels.iter().map(|tables| tables.iter().map(shape_of).collect()).collect();
        TreeShape { levels }
    }

    fn apply(&mut self, pick: &Pick) {
        let older: Vec<(Vec<u8>, Vec<u8>)> = {
            let shape = self.shape();
            let bounds = |place: &Place| {
                let table = &shape.levels[place.level][place.index];
                (table.min.to_vec(), table.max.to_vec())
            };
            pick.older.iter().map(bounds).collect()
        };
        if self.levels.len() <= pick.output_level {
            self.levels.resize_with(pick.output_level + 1, Vec::new);
        }
        let met: Vec<Items> = self.levels[pick.output_level].drain(pick.overlapping.clone()).collect();
        let taken: Vec<Items> = self.levels[pick.level].drain(pick.inputs.clone()).collect();
        let mut made = Vec::new();
        if pick.work == Work::Move {
            assert!(met.is_empty(), "a move meets nothing");
            made = taken;
        } else {
            let mut merged = Items::new();
            for items in met.into_iter().chain(taken.into_iter().rev()) {
                merged.extend(items);
            }
            merged.retain(|key, value| {
                value.is_some() || older.iter().any(|(min, max)| (min..=max).contains(&key))
            });
            let mut merged = merged.into_iter().peekable();
            while merged.peek().is_some() {
                made.push(merged.by_ref().take((pick.table_bytes / ITEM_BYTES).max(1) as usize).collect());
            }
        }
        let output = &mut self.levels[pick.output_level];
        output.extend(made);
        output.sort_by(|one: &Items, two: &Items| one.first_key_value().cmp(&two.first_key_value()));
    }

    /// Invariants 1 and 2 of the module: levels are disjoint and ordered, and the newest version is found
    /// first.
    fn check(&self) {
        for tables in &self.shape().levels[1..] {
            assert!(tables.windows(2).all(|pair| pair[0].max < pair[1].min), "a level overlaps itself");
        }
        let mut found: BTreeMap<&[u8], Option<u64>> = BTreeMap::new();
        for items in self.levels.iter().flatten() {
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
                let shape = self.shape();
                let taken = &shape.levels[pick.level][pick.inputs.clone()];
                let met = shape
                    .levels
                    .get(pick.output_level)
                    .map_or(&[][..], |level| &level[pick.overlapping.clone()]);
                written_bytes += taken.iter().chain(met).map(|table| table.bytes).sum::<u64>();
            }
            self.apply(&pick);
            self.check();
        }
        panic!("the picks do not end: {:?}", next(&self.shape(), &self.settings));
    }

    /// Capacities hold when nothing is due.
    fn check_settled(&self) {
        let shape = self.shape();
        assert_eq!(pressure(&shape, &self.settings).debt_bytes, 0);
        assert!(shape.levels[0].len() < self.settings.level0_runs);
        let last = shape.levels.iter().rposition(|tables| !tables.is_empty()).unwrap_or(0);
        let bytes = |level: usize| shape.levels[level].iter().map(|table| table.bytes).sum::<u64>();
        for level in 1..last {
            let divided = (level..last).fold(bytes(last), |bytes, _| bytes / self.settings.size_ratio);
            assert!(bytes(level) <= divided, "level {level} of {last}");
        }
        if last > 0 && bytes(0) >= self.settings.base_level_bytes {
            let above: u64 = (0..last).map(bytes).sum();
            assert!(above <= space_limit(bytes(last), self.settings.size_ratio));
        }
        if last > 0 {
            assert!(shape.levels[last].iter().all(|table| !table.is_mostly_tombstones()));
        }
    }

    /// A full compaction leaves one run with exactly what is alive.
    fn check_full(&self) {
        assert!(self.levels.iter().filter(|tables| !tables.is_empty()).count() <= 1);
        assert!(self.levels[0].is_empty());
        assert_eq!(self.levels.iter().flatten().map(BTreeMap::len).sum::<usize>(), self.model.len());
    }
}

fn settings() -> impl Strategy<Value = PickSettings> {
    (2u64..6, 1usize..5, 2u64..20, 0u64..20).prop_map(|(size_ratio, level0_runs, table, base)| PickSettings {
        size_ratio,
        level0_runs,
        table_bytes: table * ITEM_BYTES,
        base_level_bytes: base * ITEM_BYTES,
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
        life.settle(pick_full);
        life.check_full();
        let all: Vec<(u16, bool)> = (0..800).map(|key| (key, true)).collect();
        life.flush(&all);
        life.settle(pick_full);
        prop_assert!(life.levels.iter().all(Vec::is_empty), "everything was deleted");
    }
}

/// Random overwrites of a fixed set, small flushes beside a large tree: space stays near 1.2 of what lives,
/// each byte is rewritten a bounded number of times, and the depth follows the data.
#[test]
fn overwrites_keep_space_and_rewriting_small() {
    let settings = PickSettings { size_ratio: 8, level0_runs: 4, table_bytes: 1000, base_level_bytes: 100 };
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
            let held: usize = life.levels.iter().flatten().map(BTreeMap::len).sum();
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
    let settings = PickSettings { size_ratio: 4, level0_runs: 2, table_bytes: 100, base_level_bytes: 10 };
    let mut life = Life::new(settings);
    let mut written_bytes = 0;
    for turn in 0..400u16 {
        let keys: Vec<(u16, bool)> = (turn * 20..turn * 20 + 20).map(|key| (key, false)).collect();
        life.flush(&keys);
        written_bytes += life.settle(pick);
    }
    assert!(written_bytes <= 400 * 20 * ITEM_BYTES, "{written_bytes}");
}
