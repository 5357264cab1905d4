//! Short ranges compared with scans of the same view, and the cases that they leave to scans.

use super::*;
use crate::levels::gaps::{GapEnd, KeySpan};
use crate::read::scan::{self, BatchExtent, BatchRequest, fill, start_of, tighter};

/// Cache memory for all blocks that a test reads.
const CACHE_BYTES: usize = 1 << 20;

impl World {
    /// With every block in the cache.
    fn warm(mut self) -> World {
        self.cache = Cache::new(CACHE_BYTES, self.epoch.clone(), Region::heap);
        let all = (Bound::Unbounded, Bound::Unbounded);
        let bound = self.models.last().expect("there are some").0;
        let mut scan = self.scan(bound, all, Direction::Forward);
        while self.advance(&mut scan, None).expect("no fault") {}
        self
    }

    /// Range tombstones in the newest run and in the older generation, beside items.
    fn ranged(seed: u64) -> World {
        let mut world = World::new(seed, 1 << 20);
        let mut builder = Builder::new(&world.storage, &world.secret, PageBudget::alone(1 << 20));
        builder.number = 100;
        let covers = |rng: &mut SimRng| {
            let (mut keys, mut covers) = ((0..4).map(|_| key(rng)).collect::<Vec<_>>(), Vec::new());
            keys.sort();
            keys.dedup();
            covers.extend(keys.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())));
            covers
        };
        let hides = |model: &mut Model, covers: &[Cover]| {
            model.retain(|key, _| !covers.iter().any(|(start, end)| start <= key && key < end));
        };
        let (mut model, mut changes) = (Model::new(), vec![VersionChange::AddTree(TREE)]);
        for (sequence, level) in [3, 1, 0].into_iter().enumerate() {
            let items = batch(&mut world.rng, [400, 120, 40][sequence]);
            let covers = if level == 0 { covers(&mut world.rng) } else { Vec::new() };
            hides(&mut model, &covers);
            apply(&mut model, &items);
            changes.extend(builder.run(&items, &covers, Spot { level, run: 0 }, 1 + sequence as u64));
        }
        let (mut generations, mut last) = (Vec::new(), 10);
        for has_ranges in [true, false] {
            let (generation, mut inserter) = memtable::generation(Region::heap(1 << 20).expect("small"));
            let covers = if has_ranges { covers(&mut world.rng) } else { Vec::new() };
            hides(&mut model, &covers);
            for (start, end) in &covers {
                last += 1;
                inserter.insert(TREE, start, world.secret.hash(start), last, ItemKind::DeleteRange, end);
            }
            let items = batch(&mut world.rng, 10);
            apply(&mut model, &items);
            for (key, value) in &items {
                last += 1;
                let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
                let value = value.as_deref().unwrap_or_default();
                inserter.insert(TREE, key, world.secret.hash(key), last, kind, value);
            }
            generations.insert(0, generation);
        }
        let version = Arc::new(Version::default().after(changes));
        world.view = Arc::new(View { generations, version });
        world.models = vec![(last, model)];
        world.warm()
    }

    fn sight(&self, bound: Sequence) -> Sight {
        Sight { tree: TREE, bound, era: self.gaps.era() }
    }

    fn fill(&self, request: &BatchRequest<'_>, batch: &mut scan::ItemBatch) -> BatchExtent {
        let pin = self.epoch.pin();
        let view = Published::new(&self.epoch, Arc::clone(&self.view));
        let view = view.load(&pin);
        let pinned = Pinned { view, pin: &pin, cache: &self.cache, gaps: &self.gaps };
        fill(request, pinned, batch)
    }
}

fn items(batch: &scan::ItemBatch) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..batch.count()).map(|number| batch.item(number)).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

/// Compares the items read at once, from any start in any range, with the map; returns the count of each
/// result.
fn compare(world: &mut World, rounds: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    for round in 0..rounds {
        let range = (world.bound(), world.bound());
        let direction = if round % 2 == 0 { Direction::Forward } else { Direction::Backward };
        let at = world.rng.index(world.models.len());
        let (bound, model) = world.models[at].clone();
        let start = world.bound();
        let from = match world.rng.below(2) {
            0 => start_of(&range, direction),
            _ => tighter(start.as_ref().map(Vec::as_slice), &range, direction),
        };
        let items_max = 1 + world.rng.index(30);
        let request = BatchRequest { sight: world.sight(bound), range: &range, direction, from, items_max };
        let mut batch = scan::ItemBatch::default();
        let extent = world.fill(&request, &mut batch);
        counts[extent as usize] += 1;
        let part = match direction {
            Direction::Forward => (from.map(<[u8]>::to_vec), Bound::Unbounded),
            Direction::Backward => (Bound::Unbounded, from.map(<[u8]>::to_vec)),
        };
        let mut expected = expected(&model, &range, direction);
        expected.retain(|(key, _)| is_in(key, &part));
        let found = items(&batch);
        assert!(batch.memory_bytes() <= scan::ItemBatch::BYTES_MAX, "{batch:?}");
        let what = || format!("{range:?} {direction:?} from {from:?} at {bound}: {extent:?}");
        match extent {
            BatchExtent::ToEnd => assert!(found == expected, "{}", what()),
            BatchExtent::Full => {
                assert!(found.len() == items_max || batch.bytes() >= 4 << 10, "{}", what());
                assert!(expected.starts_with(&found), "{}", what());
            }
            BatchExtent::Left => assert!(expected.starts_with(&found), "{}", what()),
        }
    }
    counts
}

/// With all blocks in memory and no deleted range, nearly all items are read at once and equal the map's, in
/// both directions, at every bound.
#[test]
fn short_ranges_equal_the_items_of_scans() {
    let plain = [0, 1, 2, 4].map(|seed| World::new(seed, 1 << 20));
    let deep = [20, 21, 22, 24].map(World::deep);
    for world in plain.into_iter().chain(deep).chain([World::long(40)]) {
        let [to_end, full, left] = compare(&mut world.warm(), 400);
        assert!(to_end > 50 && full > 50 && left < 20, "{to_end} {full} {left}");
    }
}

/// Fence pages that are not resident are found in the cache, or left to a scan, like data blocks.
#[test]
fn blocks_outside_memory_are_left_to_a_scan() {
    for seed in 0..4 {
        let [to_end, full, left] = compare(&mut World::new(seed, 0).warm(), 200);
        assert!(to_end > 20 && full > 20 && left < 20, "{to_end} {full} {left}");
        let mut cold = World::new(seed, 12 << 10);
        cold.cache = Cache::new(0, cold.epoch.clone(), Region::heap);
        let [_, _, left] = compare(&mut cold, 100);
        assert!(left > 50, "{left}");
    }
}

/// Items hidden by a range tombstone are never read; items before one are.
#[test]
fn deleted_ranges_are_left() {
    let mut all = [0; 3];
    for seed in 0..12 {
        let counts = compare(&mut World::ranged(seed), 200);
        all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
    }
    assert!(all.iter().all(|count| *count > 200), "{all:?}");
}

/// A range ends at its bound even if eight bytes of the bound equal those of every key around it.
#[test]
fn ranges_end_among_keys_that_look_alike() {
    let mut world = World::of(7, 1 << 20, [0; 6], b"");
    let mut builder = Builder::new(&world.storage, &world.secret, PageBudget::alone(1 << 20));
    builder.number = 100;
    let key = |last: u8| [&[0xff; 9][..], &[last]].concat();
    let batch: Batch = (1..40).map(|last| (key(last), Some(vec![last]))).collect();
    let mut changes = vec![VersionChange::AddTree(TREE)];
    changes.extend(builder.run(&batch, &[], Spot { level: 1, run: 0 }, 1));
    let mut other = Batch::new();
    other.insert(b"a".to_vec(), Some(Vec::new()));
    changes.extend(builder.run(&other, &[], Spot { level: 2, run: 0 }, 1));
    let version = Arc::new(Version::default().after(changes));
    world.view = Arc::new(View { generations: Vec::new(), version });
    apply(&mut world.models[0].1, &batch);
    apply(&mut world.models[0].1, &other);
    world.models.truncate(1);
    let world = world.warm();
    for (direction, first) in [(Direction::Forward, 10), (Direction::Backward, 19)] {
        let range = (Bound::Included(key(10)), Bound::Excluded(key(20)));
        let from = start_of(&range, direction);
        let request =
            BatchRequest { sight: world.sight(100), range: &range, direction, from, items_max: 100 };
        let mut batch = scan::ItemBatch::default();
        assert_eq!(world.fill(&request, &mut batch), BatchExtent::ToEnd);
        assert_eq!((batch.count(), batch.item(0).0), (10, &key(first)[..]));
        // A range with one bound has no prefix in common with its keys.
        let range = match direction {
            Direction::Forward => (Bound::Unbounded, Bound::Included(key(12))),
            Direction::Backward => (Bound::Included(key(30)), Bound::Unbounded),
        };
        let from = Bound::Unbounded;
        let request =
            BatchRequest { sight: world.sight(100), range: &range, direction, from, items_max: 100 };
        batch.clear();
        assert_eq!(world.fill(&request, &mut batch), BatchExtent::ToEnd);
        assert_eq!(batch.count(), if direction == Direction::Forward { 13 } else { 10 });
    }
}

/// Very many deleted keys are left to a scan, a gap is skipped, and large values are left to a scan.
#[test]
fn long_reads_are_left_to_a_scan() {
    let mut world = World::new(2, 1 << 20).warm();
    let (generation, mut inserter) = memtable::generation(Region::heap(1 << 20).expect("small"));
    let all = (Bound::Unbounded, Bound::Unbounded);
    let keys: Vec<Vec<u8>> = world.models.last().expect("some").1.keys().cloned().collect();
    let (hidden, bound) = (80, 1000);
    for (sequence, key) in keys[..hidden].iter().enumerate() {
        let sequence = 500 + sequence as u64;
        inserter.insert(TREE, key, world.secret.hash(key), sequence, ItemKind::Delete, &[]);
    }
    inserter.insert(
        TREE,
        &keys[hidden + 2],
        world.secret.hash(&keys[hidden + 2]),
        600,
        ItemKind::Put,
        &[7; 9000],
    );
    let mut generations = world.view.generations.clone();
    generations.insert(0, generation);
    world.view = Arc::new(View { generations, version: Arc::clone(&world.view.version) });
    let read = |world: &World| {
        let from = Bound::Unbounded;
        let direction = Direction::Forward;
        let request = BatchRequest { sight: world.sight(bound), range: &all, direction, from, items_max: 5 };
        let mut batch = scan::ItemBatch::default();
        (world.fill(&request, &mut batch), items(&batch).into_iter().map(|(key, _)| key).collect::<Vec<_>>())
    };
    assert_eq!(read(&world), (BatchExtent::Left, Vec::new()), "many are deleted");
    let sight = Sight { bound: 539, ..world.sight(bound) };
    let from = Bound::Unbounded;
    let request = BatchRequest { sight, range: &all, direction: Direction::Forward, from, items_max: 1 };
    let mut batch = scan::ItemBatch::default();
    assert_eq!((world.fill(&request, &mut batch), batch.item(0).0), (BatchExtent::Full, &keys[40][..]));
    let beyond = world.gaps.beyond(sight, Bound::Unbounded, Direction::Forward);
    assert_eq!(beyond, Some(Some(Bound::Included(keys[40].clone()))), "some are a gap from then on");
    let span = KeySpan { from: Vec::new(), to: GapEnd::Before(keys[hidden].clone()) };
    world.gaps.learn(world.sight(bound), span);
    assert_eq!(
        read(&world),
        (BatchExtent::Left, keys[hidden..hidden + 2].to_vec()),
        "then comes a large value"
    );
}
