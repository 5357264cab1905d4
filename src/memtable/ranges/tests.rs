//! Range tombstones beside a list of them, at every bound, and the room they take.

use super::super::{Generation, Inserter, generation};
use super::*;
use crate::base::hash::HashSecret;
use crate::base::id::SEQUENCE_MAX;
use crate::base::region::Region;
use crate::base::sync::Arc;

fn tree(partition: u32) -> TreeId {
    TreeId { keyspace: KeyspaceId(7), partition: PartitionId(partition) }
}

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    /// Mostly a short key; sometimes one with a long common prefix, or one of zeros.
    fn key(&mut self) -> Vec<u8> {
        let begin: &[u8] = [&b""[..], b"", b"", b"a-long-beginning", b"\0\0"][self.roll(5) as usize];
        let rest = (0..self.roll(4)).map(|_| b'a' + self.roll(3) as u8).collect::<Vec<u8>>();
        [begin, &rest].concat()
    }
}

struct Twin {
    generation: Arc<Generation>,
    inserter: Inserter,
    secret: HashSecret,
    /// Tree, start, end, sequence.
    ranges: Vec<(TreeId, Vec<u8>, Vec<u8>, Sequence)>,
}

impl Twin {
    fn new(region_bytes: usize) -> Twin {
        let (generation, inserter) = generation(Region::heap(region_bytes).expect("small allocation"));
        Twin { generation, inserter, secret: HashSecret::expand([5; 16]), ranges: Vec::new() }
    }

    fn delete(&mut self, tree: TreeId, start: &[u8], end: &[u8], sequence: Sequence) {
        let hash = self.secret.hash(start);
        self.inserter.insert(tree, start, hash, sequence, ItemKind::DeleteRange, end);
        self.ranges.push((tree, start.to_vec(), end.to_vec(), sequence));
    }

    fn newest(&self, tree: TreeId, key: &[u8], bound: Sequence) -> Option<Sequence> {
        let covers = |(of, start, end, sequence): &&(TreeId, Vec<u8>, Vec<u8>, Sequence)| {
            *of == tree && *sequence <= bound && start.as_slice() <= key && (end.is_empty() || key < &end[..])
        };
        self.ranges.iter().rev().find(covers).map(|(.., sequence)| *sequence)
    }

    fn check(&self, tree: TreeId, key: &[u8], bound: Sequence) {
        let expected = self.newest(tree, key, bound);
        let got = self.generation.get(tree, key, self.secret.hash(key), bound);
        assert_eq!(got.map(|item| (item.kind, item.sequence)), expected.map(|s| (ItemKind::DeleteRange, s)));
        let stretch = self.generation.stretch(tree, key, bound);
        assert_eq!(stretch.cover, expected);
        assert!(stretch.from <= key && (stretch.to.is_empty() || key < stretch.to), "{stretch:?}");
        // All keys of the stretch have the same cover: also its first key, and the one before its end.
        assert_eq!(self.newest(tree, stretch.from, bound), expected);
        if let Some((_, before)) = stretch.to.split_last() {
            let before = before.max(stretch.from);
            assert_eq!(self.newest(tree, before, bound), expected);
        }
    }
}

/// Every key of every tree has the same cover as in a list of the tombstones, at every bound.
#[test]
fn agrees_with_a_list() {
    let rounds = if cfg!(miri) { 1 } else { 6 };
    for seed in 0..rounds {
        let mut dice = Dice(seed);
        let mut twin = Twin::new(1 << 20);
        let mut sequence = 0;
        for _ in 0..if cfg!(miri) { 20 } else { 300 } {
            sequence += 1 + dice.roll(3);
            let (mut start, mut end) = (dice.key(), dice.key());
            if start > end {
                std::mem::swap(&mut start, &mut end);
            }
            if start == end {
                end = if dice.roll(4) == 0 { Vec::new() } else { [&start[..], b"\0"].concat() };
            }
            twin.delete(tree(1 + dice.roll(3) as u32), &start, &end, sequence);
            for _ in 0..4 {
                let bound = if dice.roll(2) == 0 { sequence } else { dice.roll(sequence + 1) };
                twin.check(tree(1 + dice.roll(4) as u32), &dice.key(), bound);
            }
        }
        assert_eq!(twin.generation.trees(), [tree(1), tree(2), tree(3)]);
        assert!(!twin.generation.has_ranges(0) && twin.generation.has_ranges(SEQUENCE_MAX));
    }
}

/// Runs of the last level stand beside each other: tombstones beyond it are found like all others, at every
/// bound.
#[test]
fn more_tombstones_than_the_largest_run_has() {
    if cfg!(miri) {
        return;
    }
    let count = (2 << (2 * LEVELS_COUNT_MAX)) + 77;
    let mut twin = Twin::new(64 << 20);
    let key = |number: u64| format!("key{:08}", number.wrapping_mul(48_271) % 1_000_000);
    for number in 1..=count {
        assert!(twin.inserter.room(1, 30));
        let (start, hash) = (key(number), twin.secret.hash(b""));
        let end = format!("{start}x");
        let kind = ItemKind::DeleteRange;
        twin.inserter.insert(tree(1), start.as_bytes(), hash, number, kind, end.as_bytes());
    }
    for number in (1..=count).step_by(997) {
        for bound in [number, count] {
            let found = twin.generation.stretch(tree(1), key(number).as_bytes(), bound).cover;
            assert!(found >= Some(number), "{number} at {bound}: {found:?}");
        }
        let found = twin.generation.stretch(tree(1), key(number).as_bytes(), number).cover;
        assert_eq!(found, Some(number));
    }
}

/// A get among 20,000 tombstones reads the keys of few of them: about one in each run of its index.
#[test]
fn few_keys_are_compared() {
    if cfg!(miri) {
        return;
    }
    let mut twin = Twin::new(16 << 20);
    let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    for number in 1..=20_000 {
        let (start, hash) = (key(number), twin.secret.hash(b""));
        let end = [&start[..], b"x"].concat();
        twin.inserter.insert(tree(1), &start, hash, number, ItemKind::DeleteRange, &end);
    }
    let before = KEY_LOOKS.get();
    for number in 1..=1000 {
        let (covered, absent) = (key(number * 20), key(number * 20 + 1_000_000));
        assert_eq!(twin.generation.get(tree(1), &absent, twin.secret.hash(&absent), SEQUENCE_MAX), None);
        let found = twin.generation.get(tree(1), &covered, twin.secret.hash(&covered), SEQUENCE_MAX);
        assert_eq!(found.map(|item| item.sequence), Some(number * 20));
    }
    let looks = (KEY_LOOKS.get() - before) / 2000;
    assert!(looks <= 30, "{looks} keys a get");
}

/// A later place has no smaller head, for any common prefix.
#[test]
fn heads_order_places() {
    let keys: [Option<&[u8]>; 8] = [
        Some(b""),
        Some(b"\0"),
        Some(b"a"),
        Some(b"abcdefgh"),
        Some(b"abcdefgi"),
        Some(b"b"),
        Some(b"\xff\xff\xff\xff\xff"),
        None,
    ];
    let places: Vec<KeyOrEnd<'_>> =
        [1, 2, 0x0100, 1 << 40].into_iter().flat_map(|id| keys.map(|key| (id, key))).collect();
    for pair in places.windows(2) {
        assert!(compare(pair[0], pair[1]).is_lt());
    }
    for (at, first) in places.iter().enumerate() {
        for (to, last) in places.iter().enumerate().skip(at) {
            let skip = if at == to { 0 } else { common_bytes(*first, *last) };
            let heads: Vec<u32> = places[at..=to].iter().map(|place| head_of(*place, skip)).collect();
            assert!(heads.is_sorted(), "{first:?} to {last:?}: {heads:?}");
            for place in &places {
                let is_between =
                    at <= to && compare(*first, *place).is_le() && compare(*place, *last).is_le();
                assert!(!is_between || common_bytes(*place, *first) >= skip);
            }
        }
    }
}

/// The newer of a point and a range tombstone decides, also for a bound between them.
#[test]
fn points_and_ranges_are_told_apart_by_sequence() {
    let mut twin = Twin::new(64 << 10);
    let (tree, hash) = (tree(1), twin.secret.hash(b"k"));
    twin.inserter.insert(tree, b"k", hash, 1, ItemKind::Put, b"old");
    twin.delete(tree, b"a", b"z", 2);
    twin.inserter.insert(tree, b"k", hash, 3, ItemKind::Put, b"new");
    twin.delete(tree, b"k", b"k\0", 4);
    let found = |bound| twin.generation.get(tree, b"k", hash, bound).map(|item| (item.kind, item.sequence));
    assert_eq!(found(0), None);
    assert_eq!(found(1), Some((ItemKind::Put, 1)));
    assert_eq!(found(2), Some((ItemKind::DeleteRange, 2)));
    assert_eq!(found(3), Some((ItemKind::Put, 3)));
    assert_eq!(found(9), Some((ItemKind::DeleteRange, 4)));
}

/// Batches that `room` allows fit: points and ranges are added until `room` refuses, in any mix, and the runs
/// have room too.
#[test]
fn room_counts_runs_that_are_still_to_be_made() {
    for (seed, points_of_ten) in [(1, 0), (2, 1), (3, 9)] {
        let mut dice = Dice(seed);
        let mut twin = Twin::new(if cfg!(miri) { 16 << 10 } else { 512 << 10 });
        let mut sequence = 0;
        let (mut ranges, mut points) = (0, 0);
        loop {
            let count = 1 + dice.roll(8) as usize;
            if !twin.inserter.room(count, count * 16) {
                break;
            }
            for _ in 0..count {
                sequence += 1;
                let key = dice.roll(u64::MAX).to_be_bytes();
                if dice.roll(10) < points_of_ten {
                    let hash = twin.secret.hash(&key);
                    twin.inserter.insert(tree(1), &key, hash, sequence, ItemKind::Put, &key);
                    points += 1;
                } else {
                    let end = [&key[..], b"x"].concat();
                    let hash = twin.secret.hash(&key);
                    twin.inserter.insert(tree(1), &key[..7], hash, sequence, ItemKind::DeleteRange, &end);
                    ranges += 1;
                }
            }
        }
        assert!(ranges + points > if cfg!(miri) { 20 } else { 1500 }, "{ranges} ranges, {points} points");
        assert_eq!(twin.generation.items(), ranges + points);
    }
}

/// Readers beside the inserter see exactly the tombstones within their bound.
#[test]
fn readers_see_the_tombstones_within_their_bound() {
    let mut twin = Twin::new(1 << 20);
    let visible = crate::base::sync::AtomicU64::new(0);
    let generation = Arc::clone(&twin.generation);
    let last = if cfg!(miri) { 30 } else { 2000u64 };
    std::thread::scope(|scope| {
        let visible = &visible;
        for _ in 0..2 {
            scope.spawn(|| {
                while visible.load(Ordering::Acquire) < last {
                    let bound = visible.load(Ordering::Acquire);
                    // Every tombstone covers the keys from its number on.
                    let stretch = generation.stretch(tree(1), &u64::MAX.to_be_bytes(), bound);
                    assert_eq!(stretch.cover, (bound > 0).then_some(bound));
                    assert_eq!(generation.stretch(tree(1), &0u64.to_be_bytes(), bound).cover, None);
                }
            });
        }
        for sequence in 1..=last {
            twin.delete(tree(1), &sequence.to_be_bytes(), b"", sequence);
            visible.store(sequence, Ordering::Release);
        }
    });
}
