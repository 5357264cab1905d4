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

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn key(&mut self) -> Vec<u8> {
        (0..self.roll(4)).map(|_| b'a' + self.roll(3) as u8).collect()
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
        // All of the stretch is alike: also its first key, and that before its end.
        assert_eq!(self.newest(tree, stretch.from, bound), expected);
        if let Some((_, before)) = stretch.to.split_last() {
            let before = before.max(stretch.from);
            assert_eq!(self.newest(tree, before, bound), expected);
        }
    }
}

/// Every key of every tree is covered by what a list of the tombstones says, at every bound.
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

/// Of a point and a range tombstone the newer decides, also for a bound between them.
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

/// What `room` promises is there: points and ranges are added batch by batch until it says no, whatever they
/// are, and the runs find their place.
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

/// Readers beside the inserter see what is within their bound, and all of it.
#[test]
fn readers_see_what_their_bound_allows() {
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
