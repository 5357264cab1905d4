//! Merges compared with a naive implementation.

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::base::error::Error;

/// A source in memory; it fails on the step that `fail_in` counts down to.
struct List {
    items: Vec<(Vec<u8>, ItemKind, Vec<u8>)>,
    at: usize,
    fail_in: Option<usize>,
}

impl MergeSource for List {
    fn item(&self) -> Option<MergeItem<'_>> {
        let (key, kind, value) = self.items.get(self.at)?;
        Some(MergeItem { key, kind: *kind, value })
    }

    fn advance(&mut self) -> Result<()> {
        if let Some(steps) = &mut self.fail_in {
            if *steps == 0 {
                return Err(Error::Closed);
            }
            *steps -= 1;
        }
        self.at += 1;
        Ok(())
    }
}

/// Short keys, so that sources share many; some with a long common prefix, some that rank like an end.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    let short = prop::collection::vec(0u8..3, 0..4);
    let long = (prop::sample::select(vec![7usize, 8, 9, 30]), prop::collection::vec(0u8..3, 0..3)).prop_map(
        |(length, tail)| {
            let mut key = vec![b'p'; length];
            key.extend(tail);
            key
        },
    );
    let high = prop::collection::vec(254u8..=255, 6..10);
    prop_oneof![3 => short, 3 => long, 1 => high]
}

/// Sources as sorted sets of keys, newest first.
fn source_keys() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    prop::collection::vec(
        prop::collection::btree_set(keys(), 0..12).prop_map(|set| set.into_iter().collect()),
        0..40,
    )
}

/// Every (key, source) in the expected order of a merge.
fn naive(sources: &[Vec<Vec<u8>>], direction: Direction) -> Vec<(Vec<u8>, usize)> {
    let mut all: Vec<(Vec<u8>, usize)> = sources
        .iter()
        .enumerate()
        .flat_map(|(source, keys)| keys.iter().map(move |key| (key.clone(), source)))
        .collect();
    all.sort_by(|one, two| match direction {
        Direction::Forward => one.cmp(two),
        Direction::Backward => two.0.cmp(&one.0).then(one.1.cmp(&two.1)),
    });
    all
}

fn walk(sources: &[Vec<Vec<u8>>], direction: Direction, shared_prefix: &[u8]) -> Vec<(Vec<u8>, usize)> {
    let mut at = vec![0; sources.len()];
    let key_at = |at: &[usize], source: usize| -> Option<&[u8]> {
        let keys: &Vec<Vec<u8>> = &sources[source];
        let index = match direction {
            Direction::Forward => at[source],
            Direction::Backward => keys.len().checked_sub(at[source] + 1)?,
        };
        keys.get(index).map(Vec::as_slice)
    };
    let mut tree = LoserTree::with_prefix(sources.len(), direction, shared_prefix);
    tree.rebuild(|source| key_at(&at, source));
    let mut seen = Vec::new();
    while let Some(winner) = tree.winner() {
        let key = key_at(&at, winner).expect("the winner stands on a key");
        seen.push((key.to_vec(), winner));
        at[winner] += 1;
        let is_tied = (0..sources.len()).any(|source| key_at(&at, source) == Some(key));
        assert!(tree.may_be_tied() || !is_tied, "who has the winner's key is known of beforehand");
        for steps in 1..4 {
            let further: Vec<_> = at.iter().map(|at| at + steps - 1).collect();
            let Some(key) = key_at(&further, winner) else { break };
            let others = (0..sources.len()).filter(|source| *source != winner);
            let comes_first = others.filter_map(|source| key_at(&at, source)).all(|other| match direction {
                Direction::Forward => key < other,
                Direction::Backward => other < key,
            });
            assert!(comes_first || !tree.leads(key), "{key:?} of source {winner} does not lead");
        }
        let live = (0..sources.len()).filter(|source| key_at(&at, *source).is_some()).count();
        tree.update(|source| key_at(&at, source));
        assert_eq!(tree.live_count(), live);
    }
    seen
}

fn lists(sources: &[Vec<Vec<u8>>]) -> Vec<List> {
    sources
        .iter()
        .enumerate()
        .map(|(source, keys)| {
            let item = |(index, key): (usize, &Vec<u8>)| {
                if (source + index) % 3 == 0 {
                    (key.clone(), ItemKind::Delete, Vec::new())
                } else {
                    (key.clone(), ItemKind::Put, format!("{source}.{index}").into_bytes())
                }
            };
            List { items: keys.iter().enumerate().map(item).collect(), at: 0, fail_in: None }
        })
        .collect()
}

/// The winner leads up to the second-best key, at any place of that source in the tree, and not as far as
/// that key.
#[test]
fn the_winner_leads_up_to_the_next_best() {
    let keys: [&[u8]; 5] = [b"h", b"c", b"a", b"e", b"m"];
    let mut tree = LoserTree::new(keys.len(), Direction::Forward);
    tree.rebuild(|source| Some(keys[source]));
    assert_eq!(tree.winner(), Some(2));
    assert!(tree.leads(b"b") && !tree.leads(b"c") && !tree.leads(b"d"));
    tree.update(|source| Some(if source == 2 { b"z" } else { keys[source] }));
    assert_eq!(tree.winner(), Some(1));
    assert!(tree.leads(b"d") && !tree.leads(b"e") && !tree.leads(b"y"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Both directions yield every key of every source in order, the newer of equal keys first, for any
    /// announced prefix.
    #[test]
    fn the_tree_orders_like_a_sort(sources in source_keys(), shared_prefix in keys()) {
        for direction in [Direction::Forward, Direction::Backward] {
            prop_assert_eq!(walk(&sources, direction, &shared_prefix), naive(&sources, direction));
        }
    }

    /// A merge yields each key once with its newest version, and counts the items it left.
    #[test]
    fn a_merge_keeps_the_newest_version(sources in source_keys(), shared_prefix in keys()) {
        let mut newest = BTreeMap::new();
        let mut counted = Consumed::default();
        for list in lists(&sources) {
            for (key, kind, value) in list.items {
                counted.items += 1;
                counted.key_value_bytes += (key.len() + value.len()) as u64;
                newest.entry(key).or_insert((kind, value));
            }
        }
        let mut merge = Merge::with_prefix(lists(&sources), &shared_prefix);
        let mut merged = Vec::new();
        while let Some(item) = merge.item() {
            merged.push((item.key.to_vec(), (item.kind, item.value.to_vec())));
            merge.advance().expect("lists do not fail");
        }
        merge.advance().expect("the end stays the end");
        prop_assert!(merge.item().is_none());
        prop_assert_eq!(merge.consumed(), counted);
        prop_assert_eq!(merged, newest.into_iter().collect::<Vec<_>>());
    }
}

/// A rebuild after arbitrary moves of all sources keeps no old state.
#[test]
fn a_rebuild_starts_over() {
    let first = [Some(b"b".as_slice()), None, Some(b"a")];
    let second = [None, Some(b"c".as_slice()), None];
    let mut tree = LoserTree::new(3, Direction::Forward);
    assert_eq!(tree.winner(), None);
    tree.rebuild(|source| first[source]);
    assert_eq!((tree.winner(), tree.live_count()), (Some(2), 2));
    tree.rebuild(|source| second[source]);
    assert_eq!((tree.winner(), tree.live_count()), (Some(1), 1));
    tree.update(|_| None);
    assert_eq!((tree.winner(), tree.live_count()), (None, 0));
}

/// Keys that differ in their first eight bytes are not read again: log2(k) matches read only the moved
/// source's key.
#[test]
fn prefixes_decide_without_keys() {
    let keys: Vec<[u8; 12]> = (0..16u8).map(|n| [n * 7 % 16; 12]).collect();
    let asked = Cell::new(0);
    let key_of = |source: usize| {
        asked.set(asked.get() + 1);
        Some(keys[source].as_slice())
    };
    let mut tree = LoserTree::new(keys.len(), Direction::Forward);
    tree.rebuild(key_of);
    assert_eq!(asked.replace(0), 16);
    tree.update(key_of);
    assert_eq!(asked.get(), 1);
}

/// A source's error ends the merge, also while an older version is skipped.
#[test]
fn an_error_of_a_source_ends_the_merge() {
    let key = vec![b"a".to_vec(), b"b".to_vec()];
    for failing in 0..2 {
        let mut sources = lists(&[key.clone(), key.clone()]);
        sources[failing].fail_in = Some(0);
        let mut merge = Merge::new(sources);
        assert!(matches!(merge.advance(), Err(Error::Closed)));
    }
}

/// A source with ranges, each of which hides items of older sources.
struct Ranged {
    list: List,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl MergeSource for Ranged {
    fn item(&self) -> Option<MergeItem<'_>> {
        self.list.item()
    }

    fn advance(&mut self) -> Result<()> {
        self.list.advance()
    }

    fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    fn stretch(&self, key: &[u8], stretch: &mut Stretch) {
        let (mut from, mut to): (&[u8], &[u8]) = (&[], &[]);
        for (start, end) in &self.ranges {
            for boundary in [start, end] {
                if !boundary.is_empty() && boundary.as_slice() <= key {
                    from = from.max(boundary);
                } else if !boundary.is_empty() && (to.is_empty() || boundary.as_slice() < to) {
                    to = boundary;
                }
            }
        }
        let covers = is_covered(&self.ranges, key);
        stretch.set(covers.then_some(RANGE_SEQUENCE), from, to);
    }
}

fn is_covered(ranges: &[(Vec<u8>, Vec<u8>)], key: &[u8]) -> bool {
    ranges.iter().any(|(start, end)| start.as_slice() <= key && (end.is_empty() || key < end.as_slice()))
}

proptest! {
    /// The unhidden items are those that no range of a newer source covers, each key once, in its newest
    /// version.
    #[test]
    fn ranges_hide_older_items(
        sources in prop::collection::vec(
            (
                prop::collection::btree_set(keys(), 0..12),
                prop::collection::vec((keys(), keys()), 0..3),
            ),
            0..6,
        ),
    ) {
        let mut expected: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        let mut lists = Vec::new();
        let mut newer = Vec::new();
        for (source, (keys, ranges)) in sources.iter().enumerate() {
            for key in keys.iter().filter(|key| !is_covered(&newer, key)) {
                expected.entry(key.clone()).or_insert(source);
            }
            let ranges: Vec<_> =
                ranges.iter().filter(|(start, end)| end.is_empty() || start < end).cloned().collect();
            newer.extend(ranges.clone());
            let item = |key: &Vec<u8>| (key.clone(), ItemKind::Put, vec![source as u8]);
            let list = List { items: keys.iter().map(item).collect(), at: 0, fail_in: None };
            lists.push(Ranged { list, ranges });
        }
        let mut merge = Merge::new(lists);
        let mut found = Vec::new();
        while let Some(item) = merge.item() {
            if !merge.is_hidden() {
                found.push((item.key.to_vec(), usize::from(item.value[0])));
            }
            merge.advance().expect("nothing fails");
        }
        prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }
}
