//! Each rule on a small tree. `life` tests whole lives of trees, and `load` tests changes during merges.

mod life;
mod load;

use std::ops::Range;

use super::super::shape::memory_share_s;
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

/// Work, level, inputs, output level, overlapping tables: the values that a table test compares.
type Brief = (MergeKind, usize, Range<usize>, usize, Range<usize>);

/// The brief of a pick of leveled levels; without overlapping tables in the output level their range is
/// `at..at`.
fn brief(pick: &Pick) -> (MergeKind, usize, Range<usize>, usize, Range<usize>) {
    let from = pick.inputs[0].level;
    let (upper, lower): (Vec<&RunPart>, Vec<&RunPart>) =
        pick.inputs.iter().partition(|part| part.level == from);
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

/// One rule a row: the tree and the work due in its level 0.
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
            Some((MergeKind::Merge, 0, 0..2, 1, 0..0)),
        ),
        (
            "runs that overlap nothing are merged all the same",
            &[&[run("m", "n"), run("p", "q")], &[table("a", "c", 80)]],
            Some((MergeKind::Merge, 0, 0..2, 1, 0..0)),
        ),
        (
            "what lies between two runs takes part",
            &[&[run("a", "b"), run("k", "l")], &[table("d", "e", 40), table("m", "n", 40)]],
            Some((MergeKind::Merge, 0, 0..2, 1, 0..1)),
        ),
        (
            "one run is due when it is much beside the last level",
            &[&[run("a", "c")], &[table("a", "c", 10)]],
            Some((MergeKind::Merge, 0, 0..1, 1, 0..1)),
        ),
        ("a run below the base is not", &[&[table("a", "c", 9)], &[table("a", "c", 9)]], None),
        (
            "empty levels too small for level 0 are passed over",
            &[&[table("a", "c", 30), table("b", "d", 30)], &[], &full],
            Some((MergeKind::Merge, 0, 0..2, 1, 0..0)),
        ),
        (
            "and so is this one, that has room for 100 of 120",
            &[&[table("a", "c", 60), table("b", "d", 60)], &[], &full],
            Some((MergeKind::Merge, 0, 0..2, 2, 0..2)),
        ),
        (
            "a level that is not empty is not passed over",
            &[&[table("a", "c", 60), table("b", "d", 60)], &[table("x", "y", 1)], &full],
            Some((MergeKind::Merge, 0, 0..2, 1, 0..0)),
        ),
        (
            "level 0 has outgrown nothing: the last level goes down",
            &[&[run("a", "c"), run("b", "d")], &full],
            Some((MergeKind::Move, 1, 0..4, 2, 0..0)),
        ),
    ]);
}

/// One rule a row: the tree and the work due in its deeper levels.
#[test]
fn each_rule_of_deeper_levels_gives_its_work() {
    let full = full();
    check(&[
        ("the last level has no bound", &[&[], &full], None),
        (
            "over capacity: the table with the least overlap a byte",
            &[&[], &[table("a", "d", 90), table("e", "g", 90)], &full],
            Some((MergeKind::Merge, 1, 0..1, 2, 0..2)),
        ),
        (
            "over capacity: what overlaps nothing moves, its neighbours with it",
            &[&[], &[big("c", "d"), big("m", "n"), big("o", "p"), big("q", "r")], &full],
            Some((MergeKind::Move, 1, 1..4, 2, 0..0)),
        ),
        (
            "but no more than is over",
            &[&[], &[big("m", "n"), big("o", "p"), big("q", "r")], &full],
            Some((MergeKind::Move, 1, 0..2, 2, 0..0)),
        ),
        (
            "a tombstone with nothing older is not moved: it would stay for ever",
            &[&[], &[big("c", "d"), with_tombstones(big("m", "n"), 1)], &full],
            Some((MergeKind::Merge, 1, 1..2, 2, 0..0)),
        ),
        (
            "a tombstone with something older moves on",
            &[&[], &[with_tombstones(big("a", "b"), 1)], &[table("x", "y", 1)], &full],
            Some((MergeKind::Move, 1, 0..1, 2, 0..0)),
        ),
        (
            "the fuller of two levels goes first",
            &[&[], &[table("a", "b", 90)], &[big("a", "b"), big("c", "d")], &full],
            Some((MergeKind::Merge, 1, 0..1, 2, 0..1)),
        ),
        (
            "many tombstones go down although there is room",
            &[&[], &[with_tombstones(table("a", "b", 9), 5)], &full],
            Some((MergeKind::Merge, 1, 0..1, 2, 0..1)),
        ),
        ("few do not", &[&[], &[with_tombstones(table("a", "b", 9), 4)], &full], None),
        (
            "many tombstones in the last level are rewritten where they are",
            &[&[], &[big("a", "b"), with_tombstones(big("c", "d"), 10)]],
            Some((MergeKind::Merge, 1, 1..2, 1, 0..0)),
        ),
    ]);
}

/// Older tables are named if they overlap the inputs, or the tables that the inputs overlap in the output
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
    assert_eq!(brief(&pick), (MergeKind::Merge, 0, 0..2, 1, 0..2));
    assert_eq!(
        pick.older,
        [TablePosition { level: 2, run: 0, index: 0 }, TablePosition { level: 3, run: 0, index: 1 }]
    );
    assert!(!pick.is_bottommost());
    let pick = picked(&levels[..2]).expect("level 0 is due");
    assert!(pick.is_bottommost());
}

/// Output tables have the setting's size in large levels and down to a sixteenth in small ones, but never so
/// small that their pages outweigh their items. At the smallest `table_bytes` a table once held a single
/// item.
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

/// Bytes over capacity count as debt, and all of level 0 once it is due.
#[test]
fn debt_is_the_bytes_over_capacity() {
    let last = [table("a", "z", 400)];
    let level1 = [table("a", "b", 130)];
    let tree = |runs: &[TableShape<'static>]| tree(&[runs, &level1, &last]);
    let run = table("a", "b", 10);
    assert_eq!(pressure(&tree(&[run]), &SETTINGS), Pressure { level0_runs: 1, debt_bytes: 30 });
    assert_eq!(pressure(&tree(&[run, run]), &SETTINGS), Pressure { level0_runs: 2, debt_bytes: 50 });
}

const LAZY: PickSettings = PickSettings { runs_per_level: 3, ..SETTINGS };
const TIERED: PickSettings = PickSettings { runs_in_last_level: 3, ..LAZY };

fn with_runs(levels: &[&[&[TableShape<'static>]]]) -> TreeShape<'static> {
    let runs = |level: &&[&[TableShape<'static>]]| level.iter().map(|run| run.to_vec()).collect();
    TreeShape { levels: levels.iter().map(runs).collect() }
}

fn part(level: usize, run: usize, tables: Range<usize>) -> RunPart {
    RunPart { level, run, tables }
}

/// A tiered level with too many runs becomes one run of the next level, one part after the other. Where its
/// runs do not overlap, no table is rewritten.
#[test]
fn tiered_levels_go_down_in_parts() {
    let all: Vec<RunPart> = (0..4).map(|run| part(1, run, 0..1)).collect();
    let over = [big("a", "l")];
    let tree = with_runs(&[&[], &[&over, &over, &over, &over]]);
    let found = pick(&tree, &TIERED).expect("four runs where three may be");
    assert_eq!((found.work, found.output_level, found.output_run), (MergeKind::Merge, 2, OutputRun::New));
    assert!(found.inputs == all && found.is_bottommost());
    let four = full();
    let tree = with_runs(&[&[], &[&four, &four, &four, &four]]);
    let found = pick(&tree, &TIERED).expect("four runs where three may be");
    assert_eq!((found.work, found.output_level, found.output_run), (MergeKind::Merge, 2, OutputRun::New));
    assert_eq!(found.inputs, [0, 1, 2, 3].map(|run| part(1, run, 0..2)), "half is the least from a third on");
    // New data stays where the older runs have nothing left; the rest joins the data that went before it.
    let (left, gone) = (&four[2..], &four[..2]);
    let tree = with_runs(&[&[], &[&four, left, left, left], &[gone]]);
    let found = pick(&tree, &TIERED).expect("four runs where three may be");
    assert_eq!((found.work, found.output_level, found.output_run), (MergeKind::Merge, 2, OutputRun::Into(0)));
    assert_eq!(found.inputs[0], part(1, 0, 2..3));
    let apart = full().map(|table| [table]);
    let tree = with_runs(&[&[], &[&apart[2], &apart[0], &apart[3], &apart[1]]]);
    let found = pick(&tree, &TIERED).expect("four runs where three may be");
    assert_eq!((found.work, found.output_level, found.output_run), (MergeKind::Move, 2, OutputRun::New));
    assert_eq!(found.inputs, all[..1]);
    assert_eq!(pick(&with_runs(&[&[], &[&over, &over, &over]]), &TIERED), None);
}

/// A table goes into a resident run with the tables that it overlaps in older runs of its level, if that is
/// the cheapest for each byte.
#[test]
fn older_runs_go_down_with_a_table() {
    let newest = [table("c", "d", 120)];
    let older = [table("a", "f", 120), table("g", "k", 100)];
    let tree = with_runs(&[&[], &[&newest, &older], &[&full()]]);
    let found = pick(&tree, &LAZY).expect("340 bytes where 300 may be");
    assert_eq!((found.work, found.output_level, found.output_run), (MergeKind::Merge, 2, OutputRun::Into(0)));
    assert_eq!(found.inputs, [part(1, 0, 0..1), part(1, 1, 0..1), part(2, 0, 0..2)]);
}

/// With too many runs above a resident run, the two neighbours with the fewest bytes become one; older runs
/// of their own level keep their tombstones alive.
#[test]
fn small_runs_are_folded() {
    let runs = [10, 10, 5, 20].map(|bytes| [with_tombstones(table("a", "b", bytes), 1)]);
    let tree = with_runs(&[&[], &[&runs[0], &runs[1], &runs[2], &runs[3]], &[&full()]]);
    let found = pick(&tree, &LAZY).expect("four runs where three may be");
    assert_eq!((found.work, found.output_level, found.output_run), (MergeKind::Merge, 1, OutputRun::Into(1)));
    assert_eq!(found.inputs, [part(1, 1, 0..1), part(1, 2, 0..1)]);
    let positions = [(2, 0), (1, 3)].map(|(level, run)| TablePosition { level, run, index: 0 });
    assert_eq!(found.older, positions);
}

/// Runs of level 0 that become a run beside others keep their tombstones. Such a merge once dropped one
/// although an older run of the same level had the key (RocksDB's pull request 2726).
#[test]
fn tombstones_see_older_runs_of_their_level() {
    let run = |min, max| [with_tombstones(table(min, max, 10), 1)];
    let tree = with_runs(&[&[&run("a", "c"), &run("b", "d")], &[&[table("c", "e", 10)]]]);
    let found = pick(&tree, &TIERED).expect("level 0 is due");
    assert_eq!((found.output_level, found.output_run), (1, OutputRun::New));
    assert_eq!(found.older, [TablePosition { level: 1, run: 0, index: 0 }]);
}

/// A tombstone past its level's share of the bound goes down although there is room. Each level's share is
/// `size_ratio` times the one above, and a quarter of the bound is left for the work.
#[test]
fn old_tombstones_go_down() {
    let settings = PickSettings { delete_persist_within_s: 1000, ..SETTINGS };
    let aged = |age_s| TableShape {
        oldest_tombstone_s: settings.now_s - age_s,
        ..with_tombstones(table("a", "b", 9), 1)
    };
    let at = |level0: &[TableShape<'static>], level1: &[TableShape<'static>]| {
        pick(&tree(&[level0, level1, &full()]), &settings).as_ref().map(brief)
    };
    assert_eq!(at(&[], &[aged(749)]), None);
    assert_eq!(at(&[], &[aged(750)]), Some((MergeKind::Merge, 1, 0..1, 2, 0..1)));
    assert_eq!(at(&[aged(177)], &[]), None);
    assert_eq!(at(&[aged(178)], &[big("x", "y")]), Some((MergeKind::Merge, 0, 0..1, 1, 0..0)));
    assert_eq!(memory_share_s(1000, 4, 2), 35);
    assert_eq!(memory_share_s(1000, 4, 0), 750);
}

/// A dense stretch of tombstones makes its table due, even if they are few among the table's items.
#[test]
fn dense_tombstones_go_down() {
    let dense = |tombstones_dense| TableShape {
        items: 10_000,
        tombstones_dense,
        ..with_tombstones(table("a", "b", 9), 100)
    };
    let at = |table| picked(&[&[], &[table], &full()]).as_ref().map(brief);
    assert_eq!(at(dense(63)), None);
    assert_eq!(at(dense(64)), Some((MergeKind::Merge, 1, 0..1, 2, 0..1)));
}

/// The next step of a full merge of all data.
fn pick_all(tree: &TreeShape<'_>, settings: &PickSettings) -> Option<Pick> {
    pick_full(tree, settings, &FullMerge::whole(u64::MAX))
}

/// A full merge has a target: it leaves later writes alone, and ends.
#[test]
fn full_merges_have_a_target() {
    let later = |min, max| TableShape { first_sequence: 50, ..table(min, max, 10) };
    let tree = |level1: &[TableShape<'static>]| tree(&[&[later("a", "b")], level1, &full()]);
    let step =
        |tree: &TreeShape<'static>| pick_full(tree, &SETTINGS, &FullMerge::whole(49)).as_ref().map(brief);
    assert_eq!(
        step(&tree(&[later("a", "b"), table("e", "f", 10)])),
        Some((MergeKind::Merge, 1, 1..2, 2, 1..2))
    );
    assert_eq!(step(&tree(&[later("a", "b")])), None);
    assert_eq!(
        pick_full(&tree(&[]), &SETTINGS, &FullMerge::whole(50)).map(|pick| pick.inputs.len()),
        Some(1)
    );
}

/// A full merge of some keys takes the tables that may have any of them, and no others; a second request for
/// the same keys adds no work.
#[test]
fn full_merges_have_keys() {
    let level1 = [table("a", "b", 10), table("c", "d", 10), table("e", "f", 10)];
    let tree = |level1: &[TableShape<'static>]| tree(&[&[], level1, &full()]);
    let of = |start: &str, end: &str| FullMerge { upto: 100, keys: (start.into(), end.into()) };
    let step = |wanted: &FullMerge| pick_full(&tree(&level1), &SETTINGS, wanted).as_ref().map(brief);
    let takes = |index: usize, below: Range<usize>| Some((MergeKind::Merge, 1, index..index + 1, 2, below));
    assert_eq!(step(&of("c1", "c2")), takes(1, 0..2));
    assert_eq!(step(&of("d", "e")), takes(1, 0..2));
    assert_eq!(step(&of("d1", "")), takes(2, 1..2));
    assert_eq!(step(&of("d1", "e")), None);
    assert_eq!(step(&of("f1", "")), None);
    let mut joined = of("d", "e");
    joined.join(FullMerge { upto: 7, ..of("b", "c") });
    assert_eq!(joined, of("b", "e"));
    joined.join(of("x", ""));
    assert_eq!(joined, of("b", ""));
    joined.join(FullMerge::whole(200));
    assert_eq!(joined, FullMerge::whole(200));
}

/// Runs of the last level that are to become one do so in parts of about a third of it, for any length of the
/// newest run. Level 0 joins them first, as one more run.
#[test]
fn runs_become_one_in_parts() {
    const KEYS: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let eight: Vec<_> = KEYS.windows(2).map(|pair| table(pair[0], pair[0], 100)).collect();
    let two = [table("a", "d", 5), table("e", "h", 5)];
    let joining = [table("a", "h", 10)];
    let tree = with_runs(&[&[&joining, &joining], &[&two, &eight]]);
    let found = pick(&tree, &SETTINGS).expect("two runs where one may be");
    assert_eq!((found.work, found.output_level, found.output_run), (MergeKind::Merge, 1, OutputRun::New));
    assert_eq!(found.inputs, [part(0, 0, 0..1), part(0, 1, 0..1)]);
    let tree = with_runs(&[&[&joining], &[&two, &eight]]);
    let found = pick(&tree, &SETTINGS).expect("two runs where one may be");
    assert_eq!((found.work, found.output_level, found.output_run), (MergeKind::Merge, 1, OutputRun::Into(1)));
    assert_eq!(found.inputs, [part(1, 0, 0..1), part(1, 1, 0..4)], "four tables are more than a third");
    let tree = with_runs(&[&[], &[&eight, &eight]]);
    let found = pick(&tree, &SETTINGS).expect("two runs where one may be");
    assert_eq!(found.inputs, [part(1, 0, 0..3), part(1, 1, 0..3)], "three tables of each are");
    // With many runs, level 0 waits for its turn.
    let many: [&[TableShape<'static>]; 5] = [&two, &eight, &eight, &eight, &eight];
    let found = pick(&with_runs(&[&[&joining, &joining], &many]), &SETTINGS).expect("five runs");
    assert_eq!(found.inputs[0].level, 1);
    // New data does not make the merge restart from finished parts.
    let found = pick(&with_runs(&[&[], &[&two, &eight[3..], &eight]]), &SETTINGS).expect("three runs");
    assert_eq!(found.inputs, [part(1, 0, 1..2), part(1, 1, 1..5), part(1, 2, 4..8)]);
    // Data from a level between them does not make more runs.
    let between = [table("a", "b", 500)];
    let found = pick(&with_runs(&[&[], &[&between], &[&two, &eight]]), &SETTINGS).expect("500 of 200 bytes");
    assert_eq!((found.output_level, found.output_run), (2, OutputRun::Into(0)));
}

/// A last level that grew by runs moves down by an edit alone, but not with tombstones that hide nothing.
#[test]
fn no_tombstone_goes_down_by_a_move() {
    let run = [table("a", "b", 10)];
    for (tombstones, work) in [(0, MergeKind::Move), (1, MergeKind::Merge)] {
        let last = [with_tombstones(table("a", "z", 1000), tombstones)];
        let found = pick(&with_runs(&[&[&run, &run], &[&last]]), &TIERED).expect("two runs");
        assert_eq!(found.work, work);
    }
}
