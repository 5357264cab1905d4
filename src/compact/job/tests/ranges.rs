//! Range tombstones in merges: the items they hide, the tables they go to, and when they are dropped.

use super::*;
use crate::base::id::KEY_BYTES_MAX;

fn set(pairs: &[(&str, Option<&str>)]) -> Items {
    let own = |(key, value): &(&str, Option<&str>)| {
        (key.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec()))
    };
    pairs.iter().map(own).collect()
}

fn ranges_of(table: &TableReader) -> Vec<(String, String)> {
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).expect("text");
    table.ranges().iter().map(|(start, end)| (text(start), text(end))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(start, end)| ((*start).to_owned(), (*end).to_owned())).collect()
}

/// A range hides items of older inputs, not of its own table or a newer one. It is kept, clipped to the keys
/// that older tables outside the merge may hold: of one older table, or of several as a whole.
#[test]
fn ranges_hide_older_inputs_and_stay_above_older_tables() {
    let files = Files::new();
    let newest = files.table(&set(&[("c", Some("newest"))]));
    let newer = files.table_with(&set(&[("b", Some("own")), ("y", Some("own"))]), &[("a", "m"), ("x", "")]);
    let inner = files.table(&set(&[("a", Some("1")), ("b", Some("1")), ("m", Some("1")), ("z", Some("1"))]));
    let runs = [vec![newest], vec![newer], vec![inner]];
    let alive = set(&[("b", Some("own")), ("c", Some("newest")), ("m", Some("1")), ("y", Some("own"))]);
    let older = |keys: &[(&str, Option<&str>)]| vec![files.table(&set(keys))];
    let cases = [
        (Vec::new(), pairs(&[])),
        (vec![older(&[("m", None), ("w", None)])], pairs(&[])),
        (vec![older(&[("b0", None), ("d", None)])], pairs(&[("b0", "d\0")])),
        (vec![older(&[("A", None), ("B", None)]), older(&[("l", None), ("q", None)])], pairs(&[("l", "m")])),
        (
            vec![older(&[("a", None)]), older(&[("k", None), ("zz", None)])],
            pairs(&[("a", "m"), ("x", "zz\0")]),
        ),
    ];
    for (older, expected) in cases {
        let (output, _) = finish(files.job(&runs, &older, 1 << 20));
        let table = files.open(&output.tables[0].summary);
        assert_eq!(files.items(&table), alive.clone().into_iter().collect::<Vec<_>>());
        assert_eq!(ranges_of(&table), expected);
        assert_eq!((output.counts.items_in, output.counts.items_shadowed), (7, 3));
    }
}

/// As RocksDB's #2726, with a range: a merge of newer runs alone keeps the range while an older run holds a
/// key of it, also if only the range is left.
#[test]
fn a_range_outlives_a_merge_that_leaves_an_older_run_out() {
    let files = Files::new();
    let newer = files.table_with(&set(&[("q", None)]), &[("a", "c")]);
    let inner = files.table(&set(&[("b", Some("1")), ("q", Some("1"))]));
    let oldest = files.table(&set(&[("b", Some("0")), ("bb", Some("0"))]));
    let (output, _) = finish(files.job(&[vec![newer], vec![inner]], &[vec![Arc::clone(&oldest)]], 1 << 20));
    let table = files.open(&output.tables[0].summary);
    assert_eq!(ranges_of(&table), pairs(&[("b", "bb\0")]));
    // A table needs an item: a tombstone for the range's first key.
    assert_eq!(files.items(&table), [(b"b".to_vec(), None)]);
    assert_eq!((output.counts.tombstones_added, output.counts.items_out), (1, 1));
    assert_eq!((table.min(), table.max()), (&b"b"[..], &b"bb"[..]));
    let (output, _) = finish(files.job(&[vec![table], vec![oldest]], &[], 1 << 20));
    assert!(output.tables.is_empty());
}

/// Tables with all keys in a newer range are dropped unread, damaged or not.
#[test]
fn covered_tables_are_not_read() {
    let files = Files::new();
    let newer = files.table_with(&set(&[("k", Some("new"))]), &[("key", "l")]);
    let older: Vec<Arc<TableReader>> =
        split(&items(0, 1, 4000, 100, 9), 4).iter().map(|part| files.table(part)).collect();
    for table in &older {
        let file = table.file().name();
        files.storage.write(file, 4096, &[0; 100]).expect("a write");
    }
    let bytes = newer.slice_bytes();
    let (output, _) = finish(files.job(&[vec![newer], older], &[], 1 << 20));
    assert_eq!((output.counts.items_in, output.counts.bytes_read), (1, bytes));
    assert_eq!(files.items(&files.open(&output.tables[0].summary)), [(b"k".to_vec(), Some(b"new".to_vec()))]);
}

/// Output tables stay disjoint, bounds included, for any cut amid ranges, and together have every range
/// whole: with keys that end another's range, with the longest keys, with ranges that touch keys.
#[test]
fn ranges_are_cut_with_their_tables() {
    let files = Files::new();
    let all = vec![files.table(&set(&[("", None), ("~~~", None)]))];
    let kept: Items = items(0, 10, 3000, 100, 1).into_keys().map(|key| (key, Some(vec![7; 100]))).collect();
    let long = |last: u8| [vec![b'z'; KEY_BYTES_MAX - 1], vec![last]].concat();
    let mut some_long = kept.clone();
    some_long.extend((b'a'..b'h').map(|last| (long(last), Some(vec![1; 30_000]))));
    let number = |index: u32| format!("key{index:08}");
    let touching: Vec<(String, String)> =
        (0..3000).step_by(3).map(|index| (number(index * 10), number(index * 10 + 10))).collect();
    let touching: Vec<(&str, &str)> = touching.iter().map(|(one, other)| (&**one, &**other)).collect();
    let sets: [&[(&str, &str)]; 4] = [&[("", "~~")], &touching, &[("key00012345", "zz")], &[("key", "key1")]];
    for (kept, ranges) in [&kept, &some_long].into_iter().flat_map(|kept| sets.map(|ranges| (kept, ranges))) {
        let newer = files.table_with(kept, ranges);
        let expected = newer.ranges().clone();
        let (output, _) = finish(files.job(&[vec![newer]], std::slice::from_ref(&all), 20_000));
        let tables: Vec<Arc<TableReader>> =
            output.tables.iter().map(|built| files.open(&built.summary)).collect();
        assert!(tables.len() > 10, "{} tables", tables.len());
        assert!(tables.windows(2).all(|pair| pair[0].max() < pair[1].min()));
        let found: Vec<_> = tables.iter().flat_map(|table| files.items(table)).collect();
        assert!(found.into_iter().eq(kept.clone()));
        let joined = Ranges::concatenated(tables.iter().map(|table| table.ranges()));
        assert!(joined == expected, "{joined:?}");
    }
}
