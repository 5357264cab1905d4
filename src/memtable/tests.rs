//! The generation against its twin: for each tree a sorted map from keys to their versions.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::*;
use crate::base::hash::HashSecret;
use crate::base::id::{KEY_BYTES_MAX, KeyspaceId, PartitionId, SEQUENCE_MAX, VALUE_BYTES_MAX};

type Versions = Vec<(Sequence, ItemKind, Vec<u8>)>;

/// Pseudo-random bits, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }
}

fn tree(keyspace: u32, partition: u32) -> TreeId {
    TreeId { keyspace: KeyspaceId(keyspace), partition: PartitionId(partition) }
}

fn secret() -> HashSecret {
    HashSecret::expand([7; 16])
}

fn region(bytes: usize) -> Region {
    Region::heap(bytes).expect("small allocation")
}

/// A generation with its twin, filled through [`Pair::insert`] with rising sequences.
struct Pair {
    generation: Arc<Generation>,
    inserter: Inserter,
    twin: BTreeMap<TreeId, BTreeMap<Vec<u8>, Versions>>,
    secret: HashSecret,
    sequence: Sequence,
}

impl Pair {
    fn new(bytes: usize) -> Pair {
        let (generation, inserter) = generation(region(bytes));
        Pair { generation, inserter, twin: BTreeMap::new(), secret: secret(), sequence: 0 }
    }

    fn insert(&mut self, tree: TreeId, key: &[u8], kind: ItemKind, value: &[u8]) {
        assert!(self.inserter.room(1, key.len() + value.len()), "the test's region is large enough");
        self.sequence += 1;
        self.inserter.insert(tree, key, self.secret.hash(key), self.sequence, kind, value);
        let versions = self.twin.entry(tree).or_default().entry(key.to_vec()).or_default();
        versions.push((self.sequence, kind, value.to_vec()));
    }

    /// The items of a tree that a reader with `bound` sees, in order.
    fn visible(&self, tree: TreeId, bound: Sequence) -> Vec<MemItem<'_>> {
        fn newest<'a>(key: &'a [u8], versions: &'a Versions, bound: Sequence) -> Option<MemItem<'a>> {
            let (sequence, kind, value) = versions.iter().rev().find(|version| version.0 <= bound)?;
            Some(MemItem { key, sequence: *sequence, kind: *kind, value })
        }
        let keys = self.twin.get(&tree).into_iter().flatten();
        keys.filter_map(|(key, versions)| newest(key, versions, bound)).collect()
    }

    /// Checks every key by get, and the whole tree in both directions.
    fn check_tree(&self, tree: TreeId, bound: Sequence) {
        let expected = self.visible(tree, bound);
        if bound >= self.sequence {
            let bytes = expected.iter().map(|item| (item.key.len() + item.value.len()) as u64).sum();
            assert_eq!(self.generation.tally_of(tree), (expected.len() as u64, bytes), "{tree:?}");
        }
        for key in self.twin.get(&tree).into_iter().flatten().map(|(key, _)| key) {
            let found = self.generation.get(tree, key, self.secret.hash(key), bound);
            let index = expected.binary_search_by(|item| item.key.cmp(key));
            assert!(found == index.ok().map(|index| expected[index]), "get of {:?} at {bound}", head_of(key));
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let mut items = self.scan(tree, Bound::Unbounded, direction, bound, usize::MAX);
            if direction == Direction::Backward {
                items.reverse();
            }
            assert!(items == expected, "{direction:?} scan of {tree:?} at {bound}");
        }
    }

    /// Up to `count` items from `from`.
    fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        bound: Sequence,
        count: usize,
    ) -> Vec<MemItem<'_>> {
        let first = self.generation.seek(tree, from, direction, bound);
        let next = |position: &ItemPosition| self.generation.step(tree, *position, direction, bound);
        std::iter::successors(first, next).take(count).map(|at| self.generation.item(at)).collect()
    }

    /// Checks seeks from every kind of bound at `key`, and a few steps each way with turns in between.
    fn check_from(&self, tree: TreeId, key: &[u8], bound: Sequence) {
        let expected = self.visible(tree, bound);
        let below = expected.partition_point(|item| item.key < key);
        let above = expected.partition_point(|item| item.key <= key);
        for (from, forward, backward) in [
            (Bound::Included(key), below, above),
            (Bound::Excluded(key), above, below),
            (Bound::Unbounded, 0, expected.len()),
        ] {
            let ahead = self.scan(tree, from, Direction::Forward, bound, 3);
            assert!(ahead.iter().eq(expected[forward..].iter().take(3)), "{:?} forward", from.map(head_of));
            let behind = self.scan(tree, from, Direction::Backward, bound, 3);
            assert!(
                behind.iter().eq(expected[..backward].iter().rev().take(3)),
                "{:?} back",
                from.map(head_of)
            );
        }
        let Some(at) = self.generation.seek(tree, Bound::Included(key), Direction::Forward, bound) else {
            return;
        };
        let next = self.generation.step(tree, at, Direction::Forward, bound);
        let back = next.and_then(|next| self.generation.step(tree, next, Direction::Backward, bound));
        assert!(
            next.is_none() || back.map(|back| self.generation.item(back)) == Some(self.generation.item(at))
        );
    }
}

fn head_of(key: &[u8]) -> &[u8] {
    &key[..key.len().min(40)]
}

/// A key of a small set: few letters, several shared prefixes, lengths around the head's 8 bytes, the empty
/// key.
fn small_key(dice: &mut Dice) -> Vec<u8> {
    let prefix: &[u8] =
        [&b""[..], b"ab", b"common-p", b"common-prefix-of-many-bytes/", b"\0\0\0\0\0\0\0\0"][dice.roll(5)];
    let tail = (0..dice.roll(6)).map(|_| [b'a', b'b', 0, 0xff][dice.roll(4)]);
    prefix.iter().copied().chain(tail).collect()
}

/// Random puts, overwrites and tombstones in a few trees read like the twin, at any bound, from any place.
#[test]
fn random_operations_agree_with_the_twin() {
    let (rounds, operations) = if cfg!(miri) { (1, 150) } else { (12, 3000) };
    for round in 0..rounds {
        let mut dice = Dice(round);
        let mut pair = Pair::new(2 << 20);
        for _ in 0..operations {
            let key = small_key(&mut dice);
            let kind = if dice.roll(5) == 0 { ItemKind::Delete } else { ItemKind::Put };
            let value = if kind == ItemKind::Put { vec![b'v'; dice.roll(20)] } else { Vec::new() };
            // More trees than the directory has room for at first.
            pair.insert(tree(1, 1 + dice.roll(6) as u32), &key, kind, &value);
        }
        for partition in 1..=7 {
            for bound in [0, 1, pair.sequence / 2, pair.sequence, SEQUENCE_MAX] {
                pair.check_tree(tree(1, partition), bound);
            }
            for _ in 0..30 {
                let (key, bound) = (small_key(&mut dice), dice.roll(operations + 1) as Sequence);
                pair.check_from(tree(1, partition), &key, bound);
            }
        }
        assert_eq!(pair.generation.trees(), [1, 2, 3, 4, 5, 6].map(|partition| tree(1, partition)));
        assert_eq!(pair.generation.items(), operations as u64);
        assert_eq!(pair.generation.sequences(), Some((1, operations as Sequence)));
    }
}

/// Ascending, descending and interleaved numbers, short and with a long common prefix, are kept in order.
#[test]
fn sequential_insertions_stand_in_order() {
    let count = if cfg!(miri) { 60 } else { 4000 };
    let ascending = |number: u32| number;
    let descending = |number: u32| u32::MAX - number;
    let interleaved = |number: u32| number % 5 * 1_000_000 + number;
    for pattern in [&ascending as &dyn Fn(u32) -> u32, &descending, &interleaved] {
        let mut pair = Pair::new(4 << 20);
        for number in 0..count {
            let number = pattern(number);
            pair.insert(tree(1, 1), &number.to_be_bytes(), ItemKind::Put, b"");
            pair.insert(tree(1, 2), format!("{number:030}").as_bytes(), ItemKind::Put, b"");
        }
        for partition in [1, 2] {
            pair.check_tree(tree(1, partition), SEQUENCE_MAX);
            pair.check_tree(tree(1, partition), u64::from(count));
        }
    }
}

/// Ascending keys fill nodes: the index of a sorted load takes less than 24 bytes a key.
#[test]
fn appending_fills_nodes() {
    let count = if cfg!(miri) { 300 } else { 50_000 };
    let mut pair = Pair::new(8 << 20);
    let before = pair.generation.bytes_used();
    for number in 0..count as u64 {
        pair.insert(tree(1, 1), &number.to_be_bytes(), ItemKind::Put, b"");
    }
    let index_bytes = pair.generation.bytes_used() - before - count * (16 + 8);
    assert!(index_bytes / count < 24, "{index_bytes} for {count} keys");
}

/// The longest keys, equal but for their ends, and the longest values are kept and ordered.
#[test]
fn longest_keys_and_values() {
    let mut pair = Pair::new(if cfg!(miri) { 4 << 20 } else { 16 << 20 });
    for number in 0..if cfg!(miri) { 16u8 } else { 60 } {
        let mut key = vec![b'k'; KEY_BYTES_MAX];
        key[KEY_BYTES_MAX - 1] = number.wrapping_mul(37);
        pair.insert(tree(1, 1), &key, ItemKind::Put, b"long key");
        pair.insert(tree(1, 1), &key[..KEY_BYTES_MAX - usize::from(number)], ItemKind::Put, b"");
    }
    pair.insert(tree(1, 1), b"long value", ItemKind::Put, &vec![1; VALUE_BYTES_MAX]);
    pair.insert(tree(1, 1), b"", ItemKind::Put, &vec![2; VALUE_BYTES_MAX]);
    pair.check_tree(tree(1, 1), SEQUENCE_MAX);
    pair.check_tree(tree(1, 1), 5);
}

/// Many versions of one key: each bound sees its own, and a scan steps over a key hidden by the bound.
#[test]
fn versions_of_one_key() {
    let mut pair = Pair::new(1 << 20);
    for round in 0..if cfg!(miri) { 10u8 } else { 200 } {
        pair.insert(tree(1, 1), b"hot", ItemKind::Put, &[round]);
        pair.insert(tree(1, 1), &[b'h', round], ItemKind::Delete, b"");
    }
    for bound in 0..=pair.sequence {
        pair.check_tree(tree(1, 1), bound);
    }
}

/// An empty generation has no items, and neither does a tree without writes.
#[test]
fn nothing_is_found_where_nothing_is() {
    let mut pair = Pair::new(64 << 10);
    let absent = |pair: &Pair, tree| {
        assert_eq!(pair.generation.get(tree, b"", pair.secret.hash(b""), SEQUENCE_MAX), None);
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(pair.generation.seek(tree, Bound::Unbounded, direction, SEQUENCE_MAX), None);
        }
    };
    absent(&pair, tree(1, 1));
    assert_eq!((pair.generation.trees(), pair.generation.sequences()), (vec![], None));
    pair.insert(tree(1, 1), b"", ItemKind::Put, b"");
    absent(&pair, tree(1, 2));
    absent(&pair, tree(2, 1));
    assert!(pair.generation.may_contain(tree(1, 1), pair.secret.hash(b"")));
}

/// The region is returned once the last reader and the inserter are gone, and not before.
#[test]
fn the_region_comes_back() {
    let (generation, inserter) = generation(region(64 << 10));
    assert_eq!(generation.capacity_bytes(), 64 << 10);
    assert!(Generation::into_region(Arc::clone(&generation)).is_none());
    drop(inserter);
    assert_eq!(Generation::into_region(generation).map(|region| region.bytes()), Some(64 << 10));
}

/// Fills a generation with batches of `batch` items for as long as `room` allows, and returns the used
/// percentage.
fn fill(bytes: usize, batch: usize, mut item: impl FnMut(u64) -> (TreeId, Vec<u8>, usize)) -> usize {
    let (generation, mut inserter) = generation(region(bytes));
    let secret = secret();
    let value = vec![0; 4096];
    let mut number = 0;
    loop {
        let items: Vec<_> = (0..batch as u64).map(|index| item(number + index)).collect();
        let key_value_bytes = items.iter().map(|(_, key, value_bytes)| key.len() + value_bytes).sum();
        if !inserter.room(batch, key_value_bytes) {
            return generation.bytes_used() * 100 / bytes;
        }
        for (tree, key, value_bytes) in items {
            number += 1;
            inserter.insert(tree, &key, secret.hash(&key), number, ItemKind::Put, &value[..value_bytes]);
        }
    }
}

/// A batch that `room` allows never runs out of memory, for items of many sizes, orders, and many trees. For
/// single items `room` allows nearly the whole region.
#[test]
fn room_is_kept_and_used() {
    let bytes = if cfg!(miri) { 24 << 10 } else { 512 << 10 };
    let batches: &[usize] = if cfg!(miri) { &[1, 40] } else { &[1, 7, 100, 1000] };
    for (value_bytes, trees_count) in
        [(0, 1), (0, 40), (0, 3000), (20, 1), (20, 500), (100, 1), (100, 3000), (3000, 5)]
    {
        for &batch in batches {
            let mut dice = Dice(batch as u64);
            let mut random = |_| {
                let (tree, key) = (tree(1, 1 + dice.roll(trees_count) as u32), dice.roll(1 << 30) as u32);
                (tree, key.to_be_bytes().to_vec(), value_bytes)
            };
            let used = fill(bytes, batch, &mut random);
            assert!(
                cfg!(miri) || batch > 1 || used >= 85,
                "{used} % for {value_bytes} bytes, {trees_count} trees"
            );
            fill(bytes, batch, |number| (tree(1, 1), number.to_be_bytes().to_vec(), value_bytes));
            fill(bytes, batch, |number| {
                (tree(1, 1), (u64::MAX - number).to_be_bytes().to_vec(), value_bytes)
            });
            fill(bytes, batch, |number| (tree(1, 1 + number as u32), Vec::new(), value_bytes));
        }
    }
}

/// The worst orders for splits: full nodes left behind by appending, each split by the next batch; and
/// batches as large as `room` allows into existing nodes.
#[test]
fn room_holds_for_the_worst_orders() {
    let bytes = if cfg!(miri) { 24 << 10 } else { 512 << 10 };
    for stage in [bytes / 64 / 8, bytes / 64 / 4, bytes / 64 / 2] {
        for trees_count in [1, 10, 100] {
            let (_generation, mut inserter) = generation(region(bytes));
            let secret = secret();
            let mut sequence = 0;
            let mut insert = |inserter: &mut Inserter, number: u64, low: u8| {
                let mut key = number.to_be_bytes().to_vec();
                key.push(low);
                sequence += 1;
                let tree = tree(1, 1 + (number % trees_count) as u32);
                inserter.insert(tree, &key, secret.hash(&key), sequence, ItemKind::Put, b"");
            };
            let mut ascending = 0;
            while ascending < stage as u64 && inserter.room(1, 9) {
                insert(&mut inserter, ascending, 0);
                ascending += 1;
            }
            // One key into every leaf, then as many as fit.
            for low in 1..=255 {
                let largest = (1..=ascending as usize).rev().find(|items| inserter.room(*items, items * 9));
                let Some(items) = largest else { break };
                let stride = ascending / items as u64;
                (0..items as u64).for_each(|index| insert(&mut inserter, index * stride, low));
            }
        }
    }
}

/// Readers beside the inserter find all items within the bound they read, and order in both directions.
#[test]
fn readers_run_beside_the_inserter() {
    let count: u64 = if cfg!(miri) { 120 } else { 30_000 };
    for shared_prefix in [&b""[..], b"a long prefix of every key"] {
        let (generation, mut inserter) = generation(region(16 << 20));
        let secret = secret();
        let published = AtomicU64::new(0);
        // Sequence n writes key (n * 7919 mod m): in no order, and each key twice.
        let distinct = count / 2 + 1;
        let key_of = |sequence: u64| {
            let number = (sequence * 7919 % distinct).to_be_bytes();
            [shared_prefix, &number].concat()
        };
        let place = |sequence: u64| tree(1, 1 + (sequence % distinct % 3) as u32);
        let reader = |seed: u64| {
            let mut dice = Dice(seed);
            loop {
                for _ in 0..1000 {
                    let bound = published.load(Ordering::Acquire);
                    if bound == 0 || cfg!(miri) && dice.roll(100) > 0 {
                        continue;
                    }
                    let sequence = 1 + dice.roll(bound as usize) as u64;
                    let newest = if sequence + distinct <= bound { sequence + distinct } else { sequence };
                    let key = key_of(sequence);
                    let found = generation.get(place(sequence), &key, secret.hash(&key), bound);
                    assert_eq!(found.map(|item| (item.key, item.sequence)), Some((&key[..], newest)));
                }
                let bound = published.load(Ordering::Acquire);
                let partition = 1 + dice.roll(3) as u64;
                let tree = tree(1, partition as u32);
                let direction = [Direction::Forward, Direction::Backward][dice.roll(2)];
                let mut last: Option<&[u8]> = None;
                let mut seen = 0;
                let mut at = generation.seek(tree, Bound::Unbounded, direction, bound);
                while let Some(position) = at {
                    let item = generation.item(position);
                    assert!(item.sequence <= bound);
                    assert!(last.is_none_or(|last| (last < item.key) == (direction == Direction::Forward)));
                    (last, seen) = (Some(item.key), seen + 1);
                    at = generation.step(tree, position, direction, bound);
                }
                let expected = (1..=bound.min(distinct)).filter(|sequence| place(*sequence) == tree).count();
                assert_eq!(seen, expected, "{direction:?} at {bound}");
                if bound == count {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| reader(1));
            scope.spawn(|| reader(2));
            for sequence in 1..=count {
                let key = key_of(sequence);
                let value = sequence.to_le_bytes();
                inserter.insert(place(sequence), &key, secret.hash(&key), sequence, ItemKind::Put, &value);
                published.store(sequence, Ordering::Release);
            }
        });
    }
}
