//! Gets and scans over views made by hand, beside a map with the expected results.

mod short;
mod wide;

use std::collections::BTreeMap;
use std::ops::Bound;

use super::breadth::Breadth;
use super::get::{Get, GetMode, Op};
use super::scan::{Pinned, ScanMachine, ScanRange};
use super::trace::{NoTrace, TakeTurns, Tracer};
use crate::base::epoch::{Epoch, Published};
use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileKind, FileName, ItemKind, KeyspaceId, PartitionId, Sequence, TreeId};
use crate::base::region::Region;
use crate::base::reserve;
use crate::base::step::{AHEAD, Answer, BlockAddress, Direction, MachineStep, Reads};
use crate::base::sync::Arc;
use crate::cache::{BlockRef, Cache, Claim};
use crate::format::table::compressed::Compression;
use crate::format::table::filter::FilterPlan;
use crate::io::sim::{SimDisk, SimRng};
use crate::io::storage::Storage;
use crate::levels::gaps::{Gaps, Sight};
use crate::levels::version::{Placed, Spot, Version, VersionChange};
use crate::levels::view::View;
use crate::memtable;
use crate::table::{
    IndexPlan, PageBudget, SliceShape, TableBuilder, TableFile, TableIdentity, TableOwner, complete_read,
};

const TREE: TreeId = TreeId { keyspace: KeyspaceId(1), partition: PartitionId(1) };
const OTHER: TreeId = TreeId { keyspace: KeyspaceId(2), partition: PartitionId(2) };

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Batch = BTreeMap<Vec<u8>, Option<Vec<u8>>>;
/// From the first key up to, not including, the second.
type Cover = (Vec<u8>, Vec<u8>);

/// A view, and the expected map after each sequence number of the newest generation.
struct World {
    storage: Arc<dyn Storage>,
    secret: HashSecret,
    epoch: Epoch,
    cache: Cache,
    view: Arc<View>,
    gaps: Gaps,
    models: Vec<(Sequence, Model)>,
    rng: SimRng,
    mode: GetMode,
    /// If set, pages are loaded into memory while machines wait for them.
    late_pages: Option<Arc<PageBudget>>,
}

/// Keys with long or short common prefixes, of several lengths, the empty one among them.
fn key(rng: &mut SimRng) -> Vec<u8> {
    let number = rng.below(400);
    match rng.below(30) {
        0 => Vec::new(),
        1 => b"shared/prefix/".to_vec(),
        2 => vec![0xff; 1 + rng.index(3)],
        3 => format!("shared/prefix/{number}\0").into_bytes(),
        4..17 => number.to_string().into_bytes(),
        _ => format!("shared/prefix/{number}").into_bytes(),
    }
}

fn batch(rng: &mut SimRng, count: usize) -> Batch {
    let value = |rng: &mut SimRng| match rng.below(4) {
        0 => None,
        1 => Some(vec![b'v'; rng.index(900)]),
        _ => Some(rng.u64().to_le_bytes().to_vec()),
    };
    (0..count).map(|_| (key(rng), value(rng))).collect()
}

fn apply(model: &mut Model, batch: &Batch) {
    for (key, value) in batch {
        match value {
            Some(value) => drop(model.insert(key.clone(), value.clone())),
            None => drop(model.remove(key)),
        }
    }
}

/// The builder of tables.
struct Builder {
    storage: Arc<dyn Storage>,
    secret: HashSecret,
    owner: TableOwner,
    pages: Arc<PageBudget>,
    filter: FilterPlan,
    number: u64,
}

impl Builder {
    /// Makes tables with filters.
    fn new(storage: &Arc<dyn Storage>, secret: &HashSecret, pages: Arc<PageBudget>) -> Builder {
        let (storage, secret) = (Arc::clone(storage), secret.clone());
        let owner = TableOwner::alone(HashSecret::clone(&secret));
        Builder { storage, secret, owner, pages, filter: FilterPlan::of_bits(10), number: 0 }
    }

    /// One table a run; a deep run is cut into several, and has no range tombstone.
    fn run(&mut self, batch: &Batch, covers: &[Cover], spot: Spot, sequence: Sequence) -> Vec<VersionChange> {
        let items: Vec<_> = batch.iter().collect();
        let piece = if spot.level == 0 { items.len().max(1) } else { 40 };
        let add = |items: &[(&Vec<u8>, &Option<Vec<u8>>)]| {
            self.number += 1;
            let file = FileName::new(FileKind::Table, self.number);
            let identity = TableIdentity { file, uid: self.number, store_id: 7 };
            let mut builder = TableBuilder::new(Arc::clone(&self.storage), identity).expect("no fault");
            let shape = SliceShape {
                index: IndexPlan::Fences,
                filter: self.filter,
                block_bytes: 4096,
                compression: Compression::None,
            };
            builder.begin(TREE, shape).expect("no fault");
            covers.iter().for_each(|(start, end)| builder.add_range(start, end));
            for (key, value) in items {
                let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
                let hash = self.secret.hash(key);
                builder.add(key, hash, kind, value.as_deref().unwrap_or_default()).expect("no fault");
            }
            builder.end().expect("no fault");
            let made = builder.finish().expect("no fault").summary;
            let tables =
                TableFile::open(&self.storage, made.identity, made.bytes, made.checksum, &self.owner);
            let table = tables.expect("opens").remove(0);
            table.load_all_pages(&*self.storage, &self.pages).expect("no fault");
            let placed = Placed {
                table,
                first_sequence: sequence,
                last_sequence: sequence,
                oldest_tombstone_s: 0,
                tombstones_dense: 0,
            };
            VersionChange::Add { spot, placed }
        };
        items.chunks(piece).map(add).collect()
    }
}

impl World {
    /// Two deep levels, three runs on level 0, two generations.
    fn new(seed: u64, pages_bytes: u64) -> World {
        World::of(seed, pages_bytes, [300, 90, 30, 5, 60, 80], b"")
    }

    /// Almost all items are in the last level.
    fn deep(seed: u64) -> World {
        let prefix: &[u8] = if seed.is_multiple_of(3) { b"shared/prefix/" } else { b"" };
        World::of(seed, 1 << 20, [600, 9, 3, 1, 3, 3], prefix)
    }

    /// Three runs of one table each, whose fences fill many lines.
    fn long(seed: u64) -> World {
        World::of(seed, 1 << 20, [0, 0, 2000, 900, 400, 3], b"")
    }

    /// Counts of items in the runs, the oldest first, and in each generation; keys of runs begin with
    /// `prefix`.
    fn of(seed: u64, pages_bytes: u64, counts: [usize; 6], prefix: &[u8]) -> World {
        let mut rng = SimRng::new(seed);
        let disk = SimDisk::new(seed);
        disk.create_directory().expect("no fault");
        let storage: Arc<dyn Storage> = disk;
        let secret = HashSecret::expand([seed as u8; 16]);
        let mut builder = Builder::new(&storage, &secret, PageBudget::alone(pages_bytes));
        let mut model = Model::new();
        let mut changes = vec![VersionChange::AddTree(OTHER), VersionChange::AddTree(TREE)];
        for (sequence, (level, count)) in [3, 1, 0, 0, 0].into_iter().zip(counts).enumerate() {
            let mut batch = batch(&mut rng, count);
            batch.retain(|key, _| key.starts_with(prefix));
            if level == 3 && seed.is_multiple_of(2) {
                for value in batch.values_mut() {
                    value.get_or_insert_default();
                }
            }
            apply(&mut model, &batch);
            changes.extend(builder.run(&batch, &[], Spot { level, run: 0 }, 1 + sequence as u64));
        }
        let version = Arc::new(Version::default().after(changes));
        let (mut generations, mut models, mut last) = (Vec::new(), vec![(10, model.clone())], 10);
        for _ in 0..2 {
            let (generation, mut inserter) = memtable::generation(Region::heap(1 << 20).expect("small"));
            for _ in 0..counts[5].div_ceil(2) {
                let batch = batch(&mut rng, 2);
                apply(&mut model, &batch);
                for (key, value) in &batch {
                    last += 1;
                    let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
                    let value = value.as_deref().unwrap_or_default();
                    inserter.insert(TREE, key, secret.hash(key), last, kind, value);
                }
                models.push((last, model.clone()));
            }
            generations.insert(0, generation);
        }
        let epoch = Epoch::new();
        // Sometimes without a cache: a block read is then its reader's alone.
        let cache_bytes = if seed % 5 == 3 { 0 } else { 64 << 10 };
        let cache = Cache::new(cache_bytes, epoch.clone(), Region::heap);
        let view = Arc::new(View { generations, version });
        let gaps = Gaps::new();
        // As commits do: a gap found now does not apply to older bounds.
        gaps.begin(models.last().map_or(0, |(bound, _)| *bound));
        let mode = GetMode::Value;
        World { storage, secret, epoch, cache, view, gaps, models, rng, mode, late_pages: None }
    }

    /// A world without pages in memory at first.
    fn with_late_pages(seed: u64) -> World {
        World { late_pages: Some(PageBudget::alone(1 << 20)), ..World::new(seed, 0) }
    }

    /// Loads the pages of the table that `address` is in.
    fn load_late(&self, address: &BlockAddress, pages: &Arc<PageBudget>) {
        let mut tables = self.view.version.tree(TREE).expect("added").tables();
        let (_, placed) =
            tables.find(|(_, placed)| placed.table.file().name() == address.file).expect("the view has it");
        placed.table.load_all_pages(&*self.storage, pages).expect("no fault");
    }

    fn fetch(&self, address: &BlockAddress) -> Result<BlockRef> {
        if let Some(pages) = &self.late_pages {
            self.load_late(address, pages);
        }
        match self.cache.claim(address) {
            Claim::Ready(block) => Ok(block),
            Claim::Wait(_) => unreachable!("one thread"),
            Claim::Read(mut slot) => {
                let read = self.storage.read(address.file, address.offset, slot.buffer())?;
                complete_read(slot, read)
            }
        }
    }

    /// A get alone, and one that takes turns with others, return the same.
    fn get(&self, key: &[u8], bound: Sequence) -> Option<Vec<u8>> {
        let alone = self.get_by(key, bound, &mut NoTrace);
        assert_eq!(alone, self.get_by(key, bound, &mut TakeTurns));
        alone
    }

    fn op<'a>(&self, key: &'a [u8], bound: Sequence, breadth: Option<&'a Breadth>) -> Op<'a> {
        Op { tree: TREE, key, hash: self.secret.hash(key), bound, mode: self.mode, breadth }
    }

    fn get_by<T: Tracer>(&self, key: &[u8], bound: Sequence, tracer: &mut T) -> Option<Vec<u8>> {
        let op = self.op(key, bound, None);
        let pin = self.epoch.pin();
        let tree = self.view.version.tree(op.tree);
        let (mut get, mut step) = if T::TOUCHES {
            (Get::begin(&op, &self.view, tree), MachineStep::Touch)
        } else {
            Get::start(&op, &self.view, &self.cache, &pin, tracer)
        };
        let mut asked = Vec::new();
        loop {
            let answer = match step {
                MachineStep::Done(found) => return found.expect("no fault").value().map(<[u8]>::to_vec),
                MachineStep::Ask(reads) => {
                    assert!(!asked.contains(&reads[0].block), "what was answered is looked at");
                    asked.push(reads[0].block);
                    Some(Answer { ask: reads[0].ask, result: self.fetch(&reads[0].block) })
                }
                MachineStep::Touch => {
                    assert!(T::TOUCHES, "a get alone is never interrupted");
                    // The block found may be evicted before the next turn.
                    if format!("{get:?}").contains("Item(") && op.hash.block_tag().is_multiple_of(4) {
                        (0..20)
                            .for_each(|_| drop(self.cache.reserve().grant(reserve::Role::Ingests, 64 << 10)));
                    }
                    None
                }
                MachineStep::Wait => panic!("a get has one ask in flight"),
            };
            step = match answer {
                None => get.touched(&op, (&self.view, tree), &self.cache, &pin, tracer),
                Some(answer) => get.resume(&op, &self.view, &self.cache, &pin, tracer, answer),
            };
        }
    }

    /// Moves a scan, within the blocks held or not, and answers its asks in any order. `fails`: one answer in
    /// this many is an error.
    fn advance(&mut self, scan: &mut ScanMachine, fails: Option<u64>) -> Result<bool> {
        if !self.rng.one_in(20) && scan.advance_at_hand(&self.cache) {
            return Ok(true);
        }
        self.replace_view();
        let mut step = self.step(scan, None);
        let mut asked = Reads::new();
        loop {
            match step {
                MachineStep::Done(moved) => return moved,
                MachineStep::Ask(reads) => asked.extend(reads),
                MachineStep::Touch => panic!("a scan takes no turns with others"),
                MachineStep::Wait => assert!(!asked.is_empty(), "it waits for what nobody reads"),
            }
            let read = asked.swap_remove(self.rng.index(asked.len()));
            if read.ask == AHEAD {
                // Read or not, with an error or not: the scan does not depend on it.
                if self.rng.one_in(2) {
                    self.fetch(&read.block).expect("no fault");
                }
                step = if asked.is_empty() {
                    panic!("a scan waits for what is ahead only")
                } else {
                    MachineStep::Wait
                };
                continue;
            }
            let result = match fails {
                Some(below) if self.rng.below(below) == 0 => Err(Error::Full { file: "none".to_owned() }),
                _ => self.fetch(&read.block),
            };
            if self.rng.one_in(20) {
                self.replace_view();
            }
            if !self.is_of_view(scan) {
                asked.clear();
            }
            step = self.step(scan, Some(Answer { ask: read.ask, result }));
        }
    }

    /// Sometimes replaces the view by an equal one.
    fn replace_view(&mut self) {
        if self.rng.one_in(10) {
            self.view = Arc::new(View::clone(&self.view));
        }
    }

    fn is_of_view(&self, scan: &ScanMachine) -> bool {
        let (pin, published) = (self.epoch.pin(), Published::new(&self.epoch, Arc::clone(&self.view)));
        scan.is_of(published.load(&pin))
    }

    /// Moves a scan in the view: with the answer if the ask was made in this view, else from its position.
    fn step(
        &self,
        scan: &mut ScanMachine,
        answer: Option<Answer<BlockRef, Error>>,
    ) -> MachineStep<Reads, Result<bool>> {
        let (pin, published) = (self.epoch.pin(), Published::new(&self.epoch, Arc::clone(&self.view)));
        let view = published.load(&pin);
        let pinned = Pinned { view, pin: &pin, cache: &self.cache, gaps: &self.gaps };
        match answer.filter(|_| scan.is_of(view)) {
            Some(answer) => scan.resume(pinned, answer),
            None => scan.advance(pinned),
        }
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        let key = key(&mut self.rng);
        match self.rng.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    }

    fn scan(&self, bound: Sequence, range: ScanRange, direction: Direction) -> ScanMachine {
        let sight = Sight { tree: TREE, bound, era: self.gaps.era() };
        ScanMachine::new(sight, range, direction)
    }
}

fn is_in(key: &[u8], range: &ScanRange) -> bool {
    let after = match &range.0 {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from.as_slice(),
        Bound::Excluded(from) => key > from.as_slice(),
    };
    let before = match &range.1 {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to.as_slice(),
        Bound::Excluded(to) => key < to.as_slice(),
    };
    after && before
}

fn expected(model: &Model, range: &ScanRange, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = model.iter().filter(|(key, _)| is_in(key, range));
    let mut items: Vec<_> = inside.map(|(key, value)| (key.clone(), value.clone())).collect();
    if direction == Direction::Backward {
        items.reverse();
    }
    items
}

/// With all filters and fences in memory, with some, with none, and with none until the first read of each
/// table is in flight.
fn worlds() -> Vec<World> {
    let known = [1 << 20, 12 << 10, 0].into_iter().enumerate();
    let mut worlds: Vec<_> = known.map(|(seed, pages_bytes)| World::new(seed as u64, pages_bytes)).collect();
    worlds.extend((3..9).map(World::with_late_pages));
    worlds.extend((20..32).map(World::deep));
    worlds.extend((40..42).map(World::long));
    worlds
}

/// A get finds the newest version within its bound, in memory or in any run, and none if a tombstone is
/// newer. In a tree without items it finds none.
#[test]
fn gets_find_the_newest_version() {
    for mut world in worlds() {
        for _ in 0..600 {
            let key = key(&mut world.rng);
            let at = world.rng.index(world.models.len());
            let (bound, model) = &world.models[at];
            assert_eq!(world.get(&key, *bound), model.get(&key).cloned(), "{key:?} at {bound}");
        }
    }
}

/// A get prefetches in the run where the previous one ended, and nowhere after one that no data block
/// answered.
#[test]
fn gets_look_ahead_where_the_last_one_ended() {
    let world = World::long(40);
    let (bound, model) = world.models.last().expect("there are some");
    let tree = world.view.version.tree(TREE).expect("it was added");
    let looks_ahead = |after: &[u8], key: &[u8]| {
        world.get(after, *bound);
        let op = world.op(key, *bound, None);
        Get::begin(&op, &world.view, Some(tree)).look_ahead(&op, tree).is_some()
    };
    let keys: Vec<&Vec<u8>> = model.keys().filter(|key| !key.is_empty()).collect();
    let ahead = keys.windows(2).filter(|pair| looks_ahead(pair[0], pair[1])).count();
    assert!(ahead > keys.len() / 2, "{ahead} of {} gets", keys.len());
    assert!(!keys.iter().any(|key| looks_ahead(&[0xff; 9], key)));
}

/// A scan yields the map's items in its range, in both directions, at every bound, for any order of answers,
/// and returns its end again when asked again.
#[test]
fn scans_yield_the_items_in_range() {
    for mut world in worlds() {
        for round in 0..40 {
            let range = (world.bound(), world.bound());
            let direction = if round % 2 == 0 { Direction::Forward } else { Direction::Backward };
            let at = world.rng.index(world.models.len());
            let (bound, model) = world.models[at].clone();
            let mut scan = world.scan(bound, range.clone(), direction);
            let mut found = Vec::new();
            while world.advance(&mut scan, None).expect("no fault") {
                found.push((scan.key().to_vec(), scan.value().to_vec()));
            }
            assert!(!world.advance(&mut scan, None).expect("no fault"), "an end stays one");
            assert!(found == expected(&model, &range, direction), "{range:?} {direction:?} at {bound}");
        }
    }
}

/// A seek, after any steps or a failed read, positions the scan before the first item of the range from its
/// bound on.
#[test]
fn seeks_start_anew() {
    for mut world in worlds() {
        let (bound, model) = world.models.last().expect("there are some").clone();
        for _ in 0..10 {
            let range = (world.bound(), world.bound());
            let mut scan = world.scan(bound, range.clone(), Direction::Forward);
            for _ in 0..10 {
                let direction =
                    if world.rng.below(2) == 0 { Direction::Forward } else { Direction::Backward };
                let from = world.bound();
                scan.seek(from.as_ref().map(Vec::as_slice), direction);
                if world.rng.below(3) == 0 {
                    while world.advance(&mut scan, Some(4)).unwrap_or(false) {}
                    continue;
                }
                let part = match direction {
                    Direction::Forward => (from, Bound::Unbounded),
                    Direction::Backward => (Bound::Unbounded, from),
                };
                let mut wanted = expected(&model, &range, direction);
                wanted.retain(|(key, _)| is_in(key, &part));
                for (key, value) in wanted.iter().take(20) {
                    assert!(world.advance(&mut scan, None).expect("no fault"));
                    assert_eq!((scan.key(), scan.value()), (key.as_slice(), value.as_slice()));
                }
                if wanted.len() <= 20 {
                    assert!(!world.advance(&mut scan, None).expect("no fault"));
                }
            }
        }
    }
}

/// If a level has almost all items and no deletes, many items come without a match, also with a prefix that
/// all keys share.
#[test]
fn items_of_a_dominant_level_come_without_matches() {
    for seed in [20, 24, 26, 30] {
        let mut world = World::deep(seed);
        let (bound, model) = world.models.last().expect("there are some").clone();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut scan = world.scan(bound, (Bound::Unbounded, Bound::Unbounded), direction);
            let mut ahead = 0;
            while world.advance(&mut scan, None).expect("no fault") {
                ahead += usize::from(scan.is_ahead());
            }
            assert!(ahead > model.len() / 8, "{ahead} of {} of seed {seed}, {direction:?}", model.len());
        }
    }
}

/// A tree knows the common prefix and the length of the keys of all its runs.
#[test]
fn trees_know_the_common_prefix_of_their_keys() {
    let storage: Arc<dyn Storage> = SimDisk::new(1);
    storage.create_directory().expect("no fault");
    let secret = HashSecret::expand([1; 16]);
    let mut builder = Builder::new(&storage, &secret, PageBudget::alone(1 << 20));
    let mut version = Version::default().after(vec![VersionChange::AddTree(TREE)]);
    let mut add = |keys: &[&str], covers: &[Cover], level: usize, sequence: Sequence| {
        let batch = keys.iter().map(|key| (key.as_bytes().to_vec(), Some(Vec::new()))).collect();
        version = version.after(builder.run(&batch, covers, Spot { level, run: 0 }, sequence));
        let tree = version.tree(TREE).expect("it was added");
        (String::from_utf8(tree.shared_prefix().to_vec()).expect("text"), tree.key_bytes())
    };
    assert_eq!(add(&[], &[], 3, 1), (String::new(), 0));
    assert_eq!(add(&["user:0001", "user:0002"], &[], 3, 1), ("user:000".to_owned(), 9));
    assert_eq!(add(&["user:01"], &[], 1, 2), ("user:0".to_owned(), 9));
    assert_eq!(add(&["use"], &[(b"use".to_vec(), b"usf".to_vec())], 0, 3), ("us".to_owned(), 3));
    assert_eq!(add(&["other"], &[], 0, 4), (String::new(), 5));
}
