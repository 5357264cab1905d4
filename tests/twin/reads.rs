//! Ordered reads compared with those of the map: ranges from both ends, prefixes, cursors.

use std::ops::Bound;
use std::sync::Arc;

use trine::{Completions, Cursor, Keyspace, KeyspaceAt, Ordered, Range, RangeAsync, Value, block_on};

use super::keys::Keys;
use super::{Map, own};
use crate::rng::Rng;

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);
type Item = (Vec<u8>, Arc<[u8]>);

/// A keyspace now, or as of a snapshot.
pub(crate) enum Reads<'k> {
    Now(&'k Keyspace<Ordered>),
    At(KeyspaceAt<Ordered>),
}

impl Reads<'_> {
    fn iter(&self) -> Range {
        match self {
            Reads::Now(keyspace) => keyspace.iter(),
            Reads::At(keyspace) => keyspace.iter(),
        }
    }

    fn range(&self, bounds: &Bounds) -> Range {
        match self {
            Reads::Now(keyspace) => keyspace.range(bounds.clone()),
            Reads::At(keyspace) => keyspace.range(bounds.clone()),
        }
    }

    fn range_async(&self, bounds: &Bounds) -> RangeAsync {
        match self {
            Reads::Now(keyspace) => keyspace.range_async(bounds.clone()),
            Reads::At(keyspace) => keyspace.range_async(bounds.clone()),
        }
    }

    fn prefix(&self, prefix: &[u8]) -> Range {
        match self {
            Reads::Now(keyspace) => keyspace.prefix(prefix),
            Reads::At(keyspace) => keyspace.prefix(prefix),
        }
    }

    fn cursor(&self, bounds: &Bounds) -> Cursor {
        match self {
            Reads::Now(keyspace) => keyspace.cursor(bounds.clone()),
            Reads::At(keyspace) => keyspace.cursor(bounds.clone()),
        }
    }

    fn ends(&self) -> [Option<Item>; 2] {
        let (first, last) = match self {
            Reads::Now(keyspace) => (keyspace.first(), keyspace.last()),
            Reads::At(keyspace) => (keyspace.first(), keyspace.last()),
        };
        [first, last].map(|item| item.unwrap().map(own))
    }

    pub(crate) fn approximate_len(&self) -> u64 {
        match self {
            Reads::Now(keyspace) => keyspace.approximate_len().unwrap(),
            Reads::At(keyspace) => keyspace.approximate_len().unwrap(),
        }
    }

    /// All items, forward and backward, agree with the map, and so do the first and last one.
    pub(crate) fn check_all(&self, map: &Map) {
        let expected = || map.iter().map(|(key, value)| (key.clone(), Arc::clone(value)));
        assert!(self.iter().map(|item| own(item.unwrap())).eq(expected()), "forward");
        assert!(self.iter().rev().map(|item| own(item.unwrap())).eq(expected().rev()), "backward");
        assert_eq!(self.ends(), [expected().next(), expected().next_back()]);
    }

    /// Checks the neighbours of deleted keys, and some of these keys, in both directions.
    pub(crate) fn check_around(&self, rng: &mut Rng, map: &Map, keys: &[Vec<u8>]) {
        let ends = [map.iter().next(), map.iter().next_back()];
        assert_eq!(self.ends(), ends.map(|end| end.map(|(key, value)| (key.clone(), Arc::clone(value)))));
        for _ in 0..4 {
            let Some(key) = keys.get(rng.below(keys.len().max(1))) else { return };
            let is_in = rng.one_in(2);
            let bound = if is_in { Bound::Included(key.clone()) } else { Bound::Excluded(key.clone()) };
            let (up, down) = ((bound.clone(), Bound::Unbounded), (Bound::Unbounded, bound));
            let first = self.range(&up).next().map(|item| own(item.unwrap()));
            assert_eq!(first, items(map, |key| contains(&up, key)).into_iter().next());
            let last = self.range(&down).next_back().map(|item| own(item.unwrap()));
            assert_eq!(last, items(map, |key| contains(&down, key)).into_iter().next_back());
        }
    }

    /// A multi-get, some keys of which are asked for twice.
    pub(crate) fn check_many(&self, rng: &mut Rng, map: &Map, keys: &Keys) {
        let mut asked: Vec<Vec<u8>> = (0..rng.below(150)).map(|_| keys.one(rng)).collect();
        if let Some(first) = asked.first().cloned() {
            asked.push(first);
        }
        let found = match (self, rng.one_in(2)) {
            (Reads::Now(keyspace), false) => keyspace.multi_get(&asked),
            (Reads::Now(keyspace), true) => block_on(keyspace.multi_get_async(&asked)),
            (Reads::At(keyspace), false) => keyspace.multi_get(&asked),
            (Reads::At(keyspace), true) => block_on(keyspace.multi_get_async(&asked)),
        };
        let found = found.unwrap();
        assert_eq!(found.len(), asked.len());
        for (key, found) in asked.iter().zip(found) {
            assert_eq!(found.as_deref(), map.get(key).map(|value| &value[..]));
        }
    }

    /// A random range, prefix, or walk of a cursor.
    pub(crate) fn check_some(&self, rng: &mut Rng, map: &Map, keys: &Keys) {
        match rng.below(4) {
            0 => {
                let mut prefix = keys.one(rng);
                prefix.truncate(rng.below(prefix.len() + 1));
                let expected = items(map, |key| key.starts_with(&prefix));
                check_both_ends(rng, self.prefix(&prefix), expected);
            }
            1 | 2 => {
                let bounds = some_bounds(rng, keys);
                let expected = items(map, |key| contains(&bounds, key));
                if rng.one_in(2) {
                    check_both_ends(rng, self.range(&bounds), expected);
                } else {
                    check_both_ends(rng, Waits(self.range_async(&bounds)), expected);
                }
            }
            _ => {
                let bounds = some_bounds(rng, keys);
                let expected = items(map, |key| contains(&bounds, key));
                check_cursor(rng, self.cursor(&bounds), &expected, keys);
            }
        }
    }
}

/// An asynchronous range with a blocking caller.
struct Waits(RangeAsync);

impl Iterator for Waits {
    type Item = trine::Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.0.next())
    }
}

impl DoubleEndedIterator for Waits {
    fn next_back(&mut self) -> Option<Self::Item> {
        block_on(self.0.next_back())
    }
}

/// Gets through a queue of completions.
pub(crate) fn check_queue(rng: &mut Rng, keyspace: &Keyspace<Ordered>, map: &Map, keys: &Keys) {
    let asked: Vec<Vec<u8>> = (0..rng.below(80)).map(|_| keys.one(rng)).collect();
    let (queue, mut answers) = (Completions::default(), Vec::new());
    asked.iter().enumerate().for_each(|(number, key)| keyspace.get_queued(key, number as u64, &queue));
    while queue.wait(&mut answers) {}
    answers.sort_by_key(|answer| answer.number);
    assert_eq!(answers.len(), asked.len());
    for (answer, key) in answers.into_iter().zip(asked) {
        assert_eq!(answer.result.unwrap().as_deref(), map.get(&key).map(|value| &value[..]));
    }
}

fn items(map: &Map, takes: impl Fn(&[u8]) -> bool) -> Vec<Item> {
    let taken = map.iter().filter(|(key, _)| takes(key));
    taken.map(|(key, value)| (key.clone(), Arc::clone(value))).collect()
}

fn some_bounds(rng: &mut Rng, keys: &Keys) -> Bounds {
    let mut bound = || {
        let key = keys.one(rng);
        match rng.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    };
    (bound(), bound())
}

/// Also for inverted bounds, which contain nothing.
fn contains((from, to): &Bounds, key: &[u8]) -> bool {
    let is_after = match from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= &from[..],
        Bound::Excluded(from) => key > &from[..],
    };
    let is_before = match to {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= &to[..],
        Bound::Excluded(to) => key < &to[..],
    };
    is_after && is_before
}

/// Takes from both ends in any mix, to the end and past it.
fn check_both_ends<R>(rng: &mut Rng, mut range: R, expected: Vec<Item>)
where
    R: DoubleEndedIterator<Item = trine::Result<(Value, Value)>>,
{
    let ends = rng.below(3);
    let mut expected = expected.into_iter();
    loop {
        let from_front = ends == 0 || (ends == 1 && rng.one_in(2));
        let (found, wanted) = if from_front {
            (range.next(), expected.next())
        } else {
            (range.next_back(), expected.next_back())
        };
        assert_eq!(found.map(|item| own(item.unwrap())), wanted);
        if wanted.is_none() {
            assert!(range.next().is_none() && range.next_back().is_none(), "it stays over");
            return;
        }
    }
}

/// The position of a cursor's model among the items, by index.
enum Stand {
    /// At neither end: forward is the first item, backward the last.
    Start,
    /// Before this index.
    Before(usize),
    At(usize),
    PastLast,
    BeforeFirst,
}

/// Seeks and steps of a cursor in any mix.
fn check_cursor(rng: &mut Rng, mut cursor: Cursor, items: &[Item], keys: &Keys) {
    let mut stand = Stand::Start;
    for _ in 0..rng.below(40) {
        let moved = rng.below(10);
        if moved == 0 {
            let key = keys.one(rng);
            cursor.seek(&key).unwrap();
            stand = Stand::Before(items.partition_point(|(one, _)| *one < key));
            continue;
        }
        let (found, next) = if moved < 6 {
            let next = match stand {
                Stand::Start | Stand::BeforeFirst => Some(0),
                Stand::Before(index) => Some(index),
                Stand::At(index) => Some(index + 1),
                Stand::PastLast => None,
            };
            stand = next.filter(|index| *index < items.len()).map_or(Stand::PastLast, Stand::At);
            (cursor.next().unwrap(), next)
        } else {
            let next = match stand {
                Stand::Start | Stand::PastLast => items.len().checked_sub(1),
                Stand::Before(index) | Stand::At(index) => index.checked_sub(1),
                Stand::BeforeFirst => None,
            };
            stand = next.map_or(Stand::BeforeFirst, Stand::At);
            (cursor.prev().unwrap(), next)
        };
        let expected = next.and_then(|index| items.get(index)).map(|(key, value)| (&key[..], &value[..]));
        assert_eq!(found, expected);
    }
}
