//! Models of a reader beside the inserter, in every order and with every value that a load may return. They
//! check invariant 1 of the folder: a reader that takes its bound first misses nothing within it.
//!
//! Each model fails if the mechanism under test is broken: see docs/decisions on models.

use super::*;
use crate::base::hash::HashSecret;
use crate::base::id::{KeyspaceId, PartitionId};
use crate::base::sync::explore;

const TREE: TreeId = tree(1);

const fn tree(keyspace: u32) -> TreeId {
    TreeId { keyspace: KeyspaceId(keyspace), partition: PartitionId(1) }
}

fn hash(key: &[u8]) -> KeyHash {
    HashSecret::expand([1; 16]).hash(key)
}

/// A generation, its inserter, and the last sequence that commit has made visible.
struct World {
    generation: Arc<Generation>,
    inserter: Inserter,
    visible: Arc<AtomicU64>,
}

impl World {
    fn new(region_bytes: usize) -> World {
        let (generation, inserter) = generation(Region::heap(region_bytes).expect("small allocation"));
        World { generation, inserter, visible: Arc::new(AtomicU64::new(0)) }
    }

    fn insert(&mut self, tree: TreeId, key: &[u8], kind: ItemKind, value: &[u8]) {
        let sequence = self.visible.load(Ordering::Relaxed) + 1;
        self.inserter.insert(tree, key, hash(key), sequence, kind, value);
        self.visible.store(sequence, Ordering::Release);
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.insert(TREE, key, ItemKind::Put, value);
    }

    /// Runs a reader beside `write`.
    fn run(
        mut self,
        write: impl FnOnce(&mut World),
        read: impl Fn(&Generation, Sequence) + Send + Sync + 'static,
    ) {
        let (generation, visible) = (Arc::clone(&self.generation), Arc::clone(&self.visible));
        let reader = loom::thread::spawn(move || {
            let bound = visible.load(Ordering::Acquire);
            read(&generation, bound);
        });
        write(&mut self);
        reader.join().expect("it ends");
    }
}

fn value(generation: &Generation, key: &[u8], bound: Sequence) -> Option<Vec<u8>> {
    let found = generation.get(TREE, key, hash(key), bound);
    found.filter(|item| item.kind == ItemKind::Put).map(|item| item.value.to_vec())
}

/// A new key is found by every reader whose bound allows it, with its whole entry, by get and by scan; so are
/// earlier keys.
#[test]
fn loom_new_keys_are_seen() {
    explore(|| {
        let mut world = World::new(2048);
        world.put(b"b", b"old");
        let read = |generation: &Generation, bound: Sequence| {
            assert_eq!(value(generation, b"b", bound).as_deref(), Some(&b"old"[..]));
            let is_seen = value(generation, b"a", bound).is_some();
            assert_eq!(is_seen, bound >= 2);
            let first = generation.seek(TREE, Bound::Unbounded, Direction::Forward, bound);
            let first = generation.item(first.expect("one was there before"));
            assert_eq!(first.key, if bound >= 2 { b"a" } else { b"b" });
        };
        world.run(|world| world.put(b"a", b"new"), read);
    });
}

/// A reader finds the version of its bound of a key that is overwritten or deleted.
#[test]
fn loom_versions_are_those_of_the_bound() {
    for kind in [ItemKind::Put, ItemKind::Delete] {
        explore(move || {
            let mut world = World::new(2048);
            world.put(b"a", b"1");
            let read = move |generation: &Generation, bound: Sequence| {
                let newer = (kind == ItemKind::Put).then(|| b"2".to_vec());
                let expected = if bound == 1 { Some(b"1".to_vec()) } else { newer };
                assert_eq!(value(generation, b"a", bound), expected);
            };
            world.run(|world| world.insert(TREE, b"a", kind, b"2"), read);
        });
    }
}

/// A reader with an older bound jumps past existing versions, while another is added.
#[test]
fn loom_jumps_lead_to_the_version_of_the_bound() {
    explore(|| {
        let mut world = World::new(2048);
        for number in 1..=4u8 {
            world.put(b"a", &[number]);
        }
        let read = |generation: &Generation, bound: Sequence| {
            for older in 1..=bound {
                assert_eq!(value(generation, b"a", older), Some(vec![older as u8]));
            }
        };
        world.run(|world| world.put(b"a", &[5]), read);
    });
}

/// The first leaf has four slots: a fifth key replaces it by a larger one, and no key is missed.
#[test]
fn loom_a_leaf_that_grows_loses_no_key() {
    explore(|| {
        let mut world = World::new(2048);
        for number in 0..4u8 {
            world.put(&[number * 10], &[number]);
        }
        let read = |generation: &Generation, bound: Sequence| {
            assert_eq!(value(generation, &[30], bound), Some(vec![3]));
            assert_eq!(value(generation, &[5], bound), (bound >= 5).then(|| vec![9]));
        };
        world.run(|world| world.put(&[5], &[9]), read);
    });
}

/// A full leaf under a root is split: concurrent gets find keys of both halves.
#[test]
fn loom_a_split_loses_no_key() {
    explore(|| {
        let mut world = World::new(4096);
        // Two leaves of 14 and 6 keys; the first one is full.
        for number in 1..=20u8 {
            world.put(&[number * 10], &[number]);
        }
        let read = |generation: &Generation, bound: Sequence| {
            assert_eq!(value(generation, &[100], bound), Some(vec![10]));
            assert_eq!(value(generation, &[95], bound), (bound >= 21).then(|| vec![7]));
        };
        world.run(|world| world.put(&[95], &[7]), read);
    });
}

/// A tree's first key makes its leaf and a slot in the directory, which grows.
#[test]
fn loom_new_trees_are_found() {
    explore(|| {
        let mut world = World::new(4096);
        for keyspace in 2..=5 {
            world.insert(tree(keyspace), b"k", ItemKind::Put, b"");
        }
        let read = |generation: &Generation, bound: Sequence| {
            let old = generation.get(tree(3), b"k", hash(b"k"), bound);
            assert!(old.is_some_and(|item| item.sequence == 2));
            let new = generation.get(TREE, b"k", hash(b"k"), bound);
            assert_eq!(new.is_some(), bound >= 5);
        };
        world.run(|world| world.put(b"k", b""), read);
    });
}

/// Range tombstones within the bound cover items older than themselves; the fourth tombstone makes a run.
#[test]
fn loom_ranges_are_those_of_the_bound() {
    explore(|| {
        let mut world = World::new(4096);
        world.put(b"m", b"1");
        for _ in 0..2 {
            world.insert(TREE, b"x", ItemKind::DeleteRange, b"z");
        }
        let read = |generation: &Generation, bound: Sequence| {
            assert_eq!(value(generation, b"m", bound).is_some(), bound < 5);
            let stretch = generation.stretch(TREE, b"m", bound);
            assert_eq!(stretch.cover, (bound >= 5).then_some(5));
        };
        let write = |world: &mut World| {
            world.insert(TREE, b"x", ItemKind::DeleteRange, b"z");
            world.insert(TREE, b"a", ItemKind::DeleteRange, b"n");
        };
        world.run(write, read);
    });
}

/// A thread that sees a first sequence sees a last one that is no smaller.
#[test]
fn loom_the_first_sequence_comes_with_a_last() {
    explore(|| {
        let world = World::new(2048);
        let read = |generation: &Generation, _: Sequence| {
            if let Some((first, last)) = generation.sequences() {
                assert!(first == 1 && last >= first);
            }
        };
        world.run(|world| world.put(b"a", b""), read);
    });
}
