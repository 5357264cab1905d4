//! Small trees by their tables, and random trees in which every key is looked up before and after.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::job::tests::{Files, Items, TREE};
use super::*;
use crate::base::place::NodeId;
use crate::base::sync::Arc;
use crate::levels::version::sample::{self, SampleFiles, SampleSlice, key_in};
use crate::levels::version::{Spot, Version, VersionChange};
use crate::table::TableReader;

/// A run of a level: `b` is a put, `b-` a delete, `b..d` a range tombstone; each text is a table.
type RunOf<'c> = (usize, u64, &'c [&'c str]);

fn table_of(files: &Files, text: &str) -> Arc<TableReader> {
    let words = || text.split(' ');
    let ranges: Vec<(&str, &str)> = words().filter_map(|word| word.split_once("..")).collect();
    let items = words().filter(|word| !word.contains("..")).map(|word| match word.strip_suffix('-') {
        Some(key) => (key.as_bytes().to_vec(), None),
        None => (word.as_bytes().to_vec(), Some(b"1".to_vec())),
    });
    files.table_with(&items.collect(), &ranges)
}

fn placed(table: Arc<TableReader>, sequence: u64) -> Placed {
    let (first_sequence, last_sequence) = (sequence, sequence);
    Placed { table, first_sequence, last_sequence, oldest_tombstone_s: 0, tombstones_dense: 0 }
}

/// First keys of the removable tables, newest first. The first run of level 0 is the oldest.
fn fully_covered_of(runs: &[RunOf<'_>]) -> Vec<String> {
    let files = Files::new();
    let mut changes = vec![VersionChange::AddTree(TREE)];
    for (sequence, (level, run, tables)) in (1..).zip(runs) {
        let spot = Spot { level: *level, run: *run };
        let added = tables.iter().map(|text| placed(table_of(&files, text), sequence));
        changes.extend(added.map(|placed| VersionChange::Add { spot, placed }));
    }
    let version = Version::default().after(changes);
    let names = fully_covered(tree(&version));
    let fully_covered = tree(&version).tables().filter(|(_, placed)| names.contains(&placed.name()));
    fully_covered.map(|(_, placed)| String::from_utf8(placed.table.min().to_vec()).expect("text")).collect()
}

fn tree(version: &Version) -> &Tree {
    version.tree(TREE).expect("it was added")
}

/// A range removes the tables of older runs that it covers completely, by their items and their own ranges,
/// alone or together with ranges of other runs. It removes no table of its own run or a newer one, and none
/// that reaches beyond the range.
#[test]
fn covered_tables_go() {
    let older: RunOf<'_> = (2, 0, &["b c", "m"]);
    let cases: [(&[RunOf<'_>], &[&str]); 11] = [
        (&[older, (0, 0, &["x b..c0"])], &["b"]),
        (&[older, (0, 0, &["x .."])], &["b", "m"]),
        (&[older, (0, 0, &["x b..c d..m"])], &[]),
        // Parts of several runs, the newer one first or last.
        (&[older, (0, 0, &["x c..m0"]), (0, 0, &["x a..c"])], &["b", "m"]),
        (&[older, (0, 0, &["x a..bb"]), (0, 0, &["x bb..d"])], &["b"]),
        // Two tables of one run.
        (&[older, (1, 0, &["a a..b\0", "bc b\0..d"])], &["b"]),
        // The same level, by the run's number, with a run newer than the range.
        (&[(1, 3, &["a b..e"]), (1, 2, &["b"]), (1, 4, &["c"])], &["b"]),
        // Its own ranges count as a table's contents, up to before their end.
        (&[older, (1, 1, &["b b..e"]), (0, 0, &["x b..e"])], &["b", "b"]),
        (&[older, (1, 1, &["b b..e"]), (0, 0, &["x b..d"])], &["b"]),
        (&[older, (1, 1, &["b b.."]), (0, 0, &["x b..z"])], &["b", "m"]),
        (&[older, (1, 1, &["b b.."]), (0, 0, &["x .."])], &["b", "b", "m"]),
    ];
    for (runs, expected) in cases {
        assert_eq!(fully_covered_of(runs), expected, "{runs:?}");
    }
}

/// Tombstones are removed unread if no remaining older table is within their bounds.
#[test]
fn tombstones_over_nothing_go() {
    let cases: [(&[RunOf<'_>], &[&str]); 8] = [
        (&[], &[]),
        (&[(0, 0, &["c- f-"])], &["c"]),
        (&[(2, 0, &["b"]), (1, 0, &["c- f-"]), (0, 0, &["d"])], &["c"]),
        (&[(2, 0, &["d"]), (1, 0, &["c- f-"])], &[]),
        (&[(2, 0, &["f"]), (1, 0, &["c- f-"])], &[]),
        (&[(1, 0, &["c- d"])], &[]),
        // All tables that a range covers, and the range itself; the table above it stays.
        (&[(3, 0, &["d"]), (1, 0, &["c- f-"]), (0, 0, &["a- .."])], &["", "c", "d"]),
        (&[(3, 0, &["d"]), (0, 0, &["a- .."]), (0, 0, &["a- .."]), (0, 0, &["b"])], &["", "", "d"]),
    ];
    for (runs, expected) in cases {
        assert_eq!(fully_covered_of(runs), expected, "{runs:?}");
    }
}

/// In a trie, the tables that a clear covers are removed, and the clear's own: the oldest of the root, if it
/// has only tombstones and nothing is below.
#[test]
fn cleared_tries_leave_nothing() {
    let mut files = SampleFiles::new();
    let key = |number: u8| key_in(NodeId::ROOT.child(5), number);
    let tables = [(1, false, false), (2, false, false), (3, true, true), (4, true, false), (5, false, false)]
        .map(|(number, is_deleted, clears)| {
            let slice = SampleSlice { items: vec![(key(number), is_deleted)], value_bytes: 9, clears };
            files.make(&[slice]).remove(0)
        });
    let gone = |tables: &[(usize, &Arc<TableReader>)]| {
        let mut changes = vec![VersionChange::AddTree(sample::TREE)];
        changes.extend((1..).zip(tables).map(|(sequence, (level, table))| VersionChange::Add {
            spot: Spot { level: *level, run: 0 },
            placed: sample::placed(table, sequence),
        }));
        let version = Version::default().after(changes);
        let tree = version.tree(sample::TREE).expect("it was added");
        let names = fully_covered(tree).to_vec();
        names.into_iter().map(|(file, _)| file).collect::<BTreeSet<u64>>()
    };
    let [below, older, clear, deletes, newer] = &tables;
    assert_eq!(gone(&[(1, below), (0, older), (0, clear), (0, newer)]), BTreeSet::from([1, 2, 3]));
    assert_eq!(gone(&[(0, clear), (0, deletes)]), BTreeSet::from([3, 4]));
    assert_eq!(gone(&[(0, deletes), (0, newer)]), BTreeSet::from([4]));
    // Tables below may have the deleted keys, and so may older tables.
    assert_eq!(gone(&[(1, below), (0, deletes)]), BTreeSet::new());
    assert_eq!(gone(&[(0, older), (0, deletes), (0, newer)]), BTreeSet::new());
    assert_eq!(gone(&[(0, newer)]), BTreeSet::new());
}

/// The newest item's value of a key, as a reader finds it.
fn found(tree: &Tree, contents: &BTreeMap<(u64, u32), Items>, key: &[u8]) -> Option<Vec<u8>> {
    for run in tree.runs() {
        for placed in run.tables() {
            if let Some(value) = contents[&placed.name()].get(key) {
                return value.clone();
            }
        }
        if run.around(key).is_covered {
            return None;
        }
    }
    None
}

const LETTERS: u8 = 24;

/// Items and ranges of a run, as numbers of letters.
type RandomRun = (Vec<(u8, bool)>, Vec<(u8, u8)>, usize, u8);

fn runs() -> impl Strategy<Value = Vec<RandomRun>> {
    let items = prop::collection::vec((0..LETTERS, prop::bool::weighted(0.6)), 0..6);
    let ranges = prop::collection::vec((0..LETTERS, 1..LETTERS + 4), 0..3);
    prop::collection::vec((items, ranges, 0usize..3, 0u8..LETTERS), 1..7)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// No lookup in a random tree changes when the tables are removed, and then no other table is removable.
    #[test]
    fn lookups_do_not_miss_removed_tables(runs in runs()) {
        let files = Files::new();
        let letter = |number: u8| vec![b'a' + number];
        let mut changes = vec![VersionChange::AddTree(TREE)];
        let mut contents = BTreeMap::new();
        for (number, (items, ranges, level, cut)) in (1u64..).zip(runs) {
            // A run of two tables: the keys before the cut, and those from the cut on.
            let parts = if level == 0 { vec![(0, LETTERS + 8)] } else { vec![(0, cut), (cut, LETTERS + 8)] };
            for (from, to) in parts {
                let own: Items = items.iter().filter(|(key, _)| (from..to).contains(key))
                    .map(|(key, put)| (letter(*key), put.then(|| vec![number as u8]))).collect();
                let within = ranges.iter().filter_map(|(start, end)| {
                    let (start, end) = ((*start).max(from), (*end).min(to.saturating_sub(1)));
                    (start < end).then_some((start, end))
                });
                let mut within: Vec<(u8, u8)> = within.collect();
                within.sort_unstable();
                let text = |number: u8| String::from_utf8(letter(number)).expect("a letter");
                let within: Vec<(String, String)> =
                    within.into_iter().map(|(start, end)| (text(start), text(end))).collect();
                let within: Vec<(&str, &str)> =
                    within.iter().map(|(start, end)| (start.as_str(), end.as_str())).collect();
                if own.is_empty() {
                    continue;
                }
                // A deeper run is older, for any run numbers.
                let spot = Spot { level, run: if level == 0 { 0 } else { number } };
                let placed = placed(files.table_with(&own, &within), number);
                contents.insert(placed.name(), own);
                changes.push(VersionChange::Add { spot, placed });
            }
        }
        let before = Version::default().after(changes);
        let node = NodeId::ROOT;
        let removed = |name: &(u64, u32)| VersionChange::Remove { tree: TREE, name: *name, node };
        let gone = fully_covered(tree(&before)).iter().map(removed);
        let after = before.after(gone.collect());
        for key in (0..LETTERS + 4).map(letter) {
            prop_assert_eq!(found(tree(&before), &contents, &key), found(tree(&after), &contents, &key));
        }
        prop_assert!(fully_covered(tree(&after)).is_empty());
    }
}
