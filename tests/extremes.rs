//! Ranges and cursors compared with a map, over extreme values of the eight key bytes that decide most
//! comparisons of the merge.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use trine::sim::World;
use trine::{Cursor, Db, Keyspace, Ordered, Range, Value};

use crate::rng::{Rng, with_seeds};

type Item = (Vec<u8>, Vec<u8>);
type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Up to ten bytes, most of them 0 or 255, usually after a shared prefix.
fn key(rng: &mut Rng) -> Vec<u8> {
    let mut key = if rng.one_in(4) { Vec::new() } else { b"shared".to_vec() };
    let (length, fill) = (rng.below(11), [0, 255, b'a'][rng.below(3)]);
    key.extend((0..length).map(|_| if rng.one_in(6) { [0, 255, b'a', 254, 1][rng.below(5)] } else { fill }));
    key
}

fn bound(rng: &mut Rng, model: &Model) -> Bound<Vec<u8>> {
    let key = match rng.below(2) {
        0 if !model.is_empty() => model.keys().nth(rng.below(model.len())).unwrap().clone(),
        _ => key(rng),
    };
    match rng.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn write(db: &Db, items: &Keyspace<Ordered>, model: &mut Model, rng: &mut Rng) {
    for _ in 0..rng.below(120) {
        let key = key(rng);
        match rng.below(60) {
            0 => {
                let end = self::key(rng);
                if key < end {
                    items.delete_range(key.as_slice()..end.as_slice()).unwrap();
                    model.retain(|one, _| *one < key || *one >= end);
                }
            }
            1..12 => {
                items.delete(&key).unwrap();
                model.remove(&key);
            }
            _ => {
                let length = if rng.one_in(50) { rng.below(12_000) } else { rng.below(60) };
                let value = vec![rng.below(256) as u8; length];
                items.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        if rng.one_in(200) {
            db.flush().unwrap();
        }
    }
}

fn inside(model: &Model, (start, end): &Bounds) -> Vec<Item> {
    let is_after = |key: &[u8]| match start {
        Bound::Unbounded => true,
        Bound::Included(start) => key >= start.as_slice(),
        Bound::Excluded(start) => key > start.as_slice(),
    };
    let is_before = |key: &[u8]| match end {
        Bound::Unbounded => true,
        Bound::Included(end) => key <= end.as_slice(),
        Bound::Excluded(end) => key < end.as_slice(),
    };
    let items = model.iter().filter(|(key, _)| is_after(key) && is_before(key));
    items.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn slices((start, end): &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice))
}

fn owned(item: Option<(Value, Value)>) -> Option<Item> {
    item.map(|(key, value)| (key.into(), value.into()))
}

fn assert_same(got: Option<Item>, expected: Option<Item>, what: &str) {
    assert!(got == expected, "{what}: {:?} and not {:?}", got.map(|one| one.0), expected.map(|one| one.0));
}

/// A range and its items not yet read.
struct HeldRange {
    range: Range,
    left: VecDeque<Item>,
}

impl HeldRange {
    fn step(&mut self, rng: &mut Rng) {
        let (got, expected) = match rng.below(3) {
            0 => (self.range.next_back(), self.left.pop_back()),
            _ => (self.range.next(), self.left.pop_front()),
        };
        assert_same(owned(got.map(Result::unwrap)), expected, "a range");
    }
}

/// A cursor and the items in its bounds.
struct HeldCursor {
    cursor: Cursor,
    items: Vec<Item>,
    at: Stand,
}

#[derive(Clone, Copy, Debug)]
enum Stand {
    Start,
    /// Before the item with this index.
    Before(usize),
    At(usize),
    End {
        is_back: bool,
    },
}

impl HeldCursor {
    fn step(&mut self, rng: &mut Rng) {
        if rng.one_in(4) {
            let key = key(rng);
            self.cursor.seek(&key).unwrap();
            self.at = Stand::Before(self.items.iter().filter(|(one, _)| *one < key).count());
        }
        let count = self.items.len();
        for _ in 0..rng.below(8) {
            let is_back = rng.one_in(3);
            let next = match (self.at, is_back) {
                (Stand::Start | Stand::End { is_back: true }, false) => Some(0),
                (Stand::Start | Stand::End { is_back: false }, true) => count.checked_sub(1),
                (Stand::Before(index), false) => Some(index),
                (Stand::Before(index) | Stand::At(index), true) => index.checked_sub(1),
                (Stand::At(index), false) => Some(index + 1),
                (Stand::End { .. }, _) => None,
            };
            let next = next.filter(|index| *index < count);
            let got = if is_back { self.cursor.prev() } else { self.cursor.next() };
            let got = got.unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
            let what = format!("a cursor at {:?}, back: {is_back}", self.at);
            assert_same(got, next.map(|index| self.items[index].clone()), &what);
            self.at = next.map_or(Stand::End { is_back }, Stand::At);
        }
    }
}

/// Ranges and cursors, of the present and of a snapshot, are held while all items are overwritten, flushed
/// and merged. From either end they return the map's items in their bounds as of their start.
#[test]
fn ranges_are_the_maps() {
    with_seeds("ranges_are_the_maps", 12, |seed| {
        let world = World::new(seed);
        let db = world.builder().memory_bytes(256 << 10).set("manifest_bytes", 16 << 10).open().unwrap();
        let items = db.ordered("a").open().unwrap();
        let (mut rng, mut model) = (Rng::new(seed), Model::new());
        let (mut ranges, mut cursors): (Vec<HeldRange>, Vec<HeldCursor>) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            write(&db, &items, &mut model, &mut rng);
            match rng.below(8) {
                0 => db.compact().unwrap(),
                1 => db.flush().unwrap(),
                2 => world.run_until_idle(),
                _ => {}
            }
            let snapshot = db.snapshot();
            for _ in 0..12 {
                let bounds = (bound(&mut rng, &model), bound(&mut rng, &model));
                let left = inside(&model, &bounds);
                let range = match rng.below(2) {
                    0 => items.range(slices(&bounds)),
                    _ => items.at(&snapshot).range(slices(&bounds)),
                };
                ranges.push(HeldRange { range, left: left.clone().into() });
                let cursor = items.cursor(slices(&bounds));
                cursors.push(HeldCursor { cursor, items: left, at: Stand::Start });
            }
            let of_model = |item: Option<(&Vec<u8>, &Vec<u8>)>| item.map(|(k, v)| (k.clone(), v.clone()));
            assert_same(owned(items.first().unwrap()), of_model(model.first_key_value()), "first");
            assert_same(owned(items.last().unwrap()), of_model(model.last_key_value()), "last");
            for one in &mut ranges {
                (0..rng.below(30)).for_each(|_| one.step(&mut rng));
            }
            cursors.iter_mut().for_each(|one| one.step(&mut rng));
            while ranges.len() > 40 {
                ranges.swap_remove(rng.below(ranges.len()));
                cursors.swap_remove(rng.below(cursors.len()));
            }
        }
        for one in &mut ranges {
            (0..=one.left.len()).for_each(|_| one.step(&mut rng));
        }
    });
}

/// A bound with the greatest possible deciding bytes still bounds the range, from either end.
#[test]
fn the_extremes_of_a_range_are_kept() {
    let world = World::new(1);
    let db = world.builder().memory_bytes(2 << 20).open().unwrap();
    let items = db.ordered("a").open().unwrap();
    let numbers = [0, 1, 2, u64::MAX - 1, u64::MAX];
    numbers.iter().for_each(|number| items.put(number.to_be_bytes(), b"").unwrap());
    let number =
        |item: trine::Result<(Value, Value)>| u64::from_be_bytes(item.unwrap().0[..].try_into().unwrap());
    let check = |round: u32| {
        let found: Vec<u64> = items.range(..u64::MAX.to_be_bytes()).map(number).collect();
        assert_eq!(found, numbers[..4], "round {round}");
        let behind = (Bound::Excluded(0u64.to_be_bytes()), Bound::Unbounded);
        let found: Vec<u64> = items.range(behind).rev().map(number).collect();
        assert!(found.iter().eq(numbers[1..].iter().rev()), "round {round}: {found:?}");
    };
    for round in 0..2 {
        // The size of a read depends on the thread's earlier reads.
        for count in 0..6 {
            std::thread::scope(|scope| {
                let used = || {
                    assert_eq!(items.iter().rev().take(count).count(), count.min(5));
                    check(round);
                    assert_eq!(items.iter().take(count).count(), count.min(5));
                    check(round);
                };
                scope.spawn(used).join().unwrap();
                scope.spawn(|| check(round)).join().unwrap();
            });
        }
        db.compact().unwrap();
        world.run_until_idle();
    }
}
