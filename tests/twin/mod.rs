//! Compares the store with a BTreeMap for each keyspace: both give the same answers.

mod hashed;
mod keys;
mod queue;
mod reads;
mod spaces;

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::sync::Arc;

use trine::sim::World;
use trine::{Db, Durability, Error, Keyspace, Ordered, Range, Result, Snapshot, Value, block_on};

use crate::rng::{Rng, with_seeds};
use hashed::HashedSpaces;
use keys::Keys;
use reads::{Reads, check_queue};
use spaces::Rule;

pub(crate) type Map = BTreeMap<Vec<u8>, Arc<[u8]>>;

/// The environment of the store.
enum Place {
    World { world: World, cache_bytes: Option<u64> },
    Directory(PathBuf),
}

/// A keyspace and its expected contents.
#[derive(Clone)]
struct Space {
    keyspace: Keyspace<Ordered>,
    map: Map,
    keys: Keys,
}

/// A snapshot and its expected contents.
struct Moment {
    snapshot: Snapshot,
    spaces: Vec<Space>,
}

/// An iterator half-way, and its remaining items.
struct Walk {
    range: Range,
    left: Vec<(Vec<u8>, Arc<[u8]>)>,
}

struct Twin {
    rng: Rng,
    place: Place,
    memory_bytes: u64,
    db: Db,
    spaces: BTreeMap<String, Space>,
    moments: Vec<Moment>,
    walks: Vec<Walk>,
    hashed: HashedSpaces,
    /// The percentage of steps that are preceded by an operation on a hashed keyspace.
    hashed_percent: usize,
    /// The number of writes; every write has a value of its own.
    writes: u64,
    batch_bytes_max: u64,
}

const VALUE_BYTES_MAX: usize = 1 << 20;
/// Value lengths at which storage, caching or acceptance changes.
const LIMITS: [usize; 7] = [4040, 8150, 16 << 10, 65_480, 131_000, 262_144, VALUE_BYTES_MAX - 3];

fn open(place: &Place, rng: &mut Rng, memory_bytes: u64) -> Result<Db> {
    let durability = if rng.one_in(4) { Durability::Sync } else { Durability::Buffered };
    let threads = 1 + rng.below(3) as u64;
    let search = rng.below(5) as u64;
    match place {
        Place::World { world, cache_bytes } => {
            let builder = world
                .builder()
                .memory_bytes(memory_bytes)
                .durability(durability)
                .set("manifest_bytes", 16 << 10)
                .set("background_threads", threads)
                .set("search", search)
                .set("background_bytes_per_second", *rng.choose(&[0, 0, 10_000, 1 << 20]));
            match cache_bytes {
                Some(bytes) => builder.cache_bytes(*bytes).open(),
                None => builder.open(),
            }
        }
        Place::Directory(path) => Db::builder(path)
            .memory_bytes(memory_bytes)
            .durability(durability)
            .set("direct_io", rng.below(2) as u64)
            .set("io", *rng.choose(&["auto", "pread", "ring", "pool"]))
            .set("open_files_max", 16 + rng.below(20) as u64)
            .set("manifest_bytes", 16 << 10)
            .set("background_threads", threads)
            .set("search", search)
            .set("background_bytes_per_second", *rng.choose(&[0, 64 << 20]))
            .open(),
    }
}

/// Puts the value, or deletes the key if there is none: mostly by a blocking call, sometimes by a future.
fn write_by<K>(rng: &mut Rng, keyspace: &Keyspace<K>, (key, value): (&[u8], Option<&[u8]>)) -> Result<()> {
    match (value, rng.one_in(8)) {
        (None, false) => keyspace.delete(key),
        (None, true) => block_on(keyspace.delete_async(key)),
        (Some(value), false) => keyspace.put(key, value),
        (Some(value), true) => block_on(keyspace.put_async(key, value)),
    }
}

impl Twin {
    fn new(mut rng: Rng, place: Place, memory_bytes: u64) -> Twin {
        let db = open(&place, &mut rng, memory_bytes).unwrap();
        let batch_bytes_max = db.stats().batch_bytes_max;
        let mut twin = Twin {
            rng,
            place,
            memory_bytes,
            db,
            spaces: BTreeMap::new(),
            moments: Vec::new(),
            walks: Vec::new(),
            hashed: HashedSpaces::default(),
            hashed_percent: 10,
            writes: 0,
            batch_bytes_max,
        };
        twin.open_keyspace();
        twin
    }

    /// Fills the only keyspace with `count` items.
    fn fill(&mut self, count: usize, value_bytes: usize) {
        let space = self.spaces.values_mut().next().unwrap();
        space.keys = Keys::Many { count };
        for numbers in (0..count).collect::<Vec<_>>().chunks(50) {
            let mut batch = self.db.batch();
            for number in numbers {
                self.writes += 1;
                let bytes = value_bytes / 2 + self.rng.below(value_bytes);
                let value: Arc<[u8]> = self.writes.to_le_bytes().into_iter().cycle().take(bytes).collect();
                let key = Keys::numbered(*number);
                batch.put(&space.keyspace, &key, &value).unwrap();
                space.map.insert(key, value);
            }
            batch.commit().unwrap();
        }
        self.db.settle().unwrap();
    }

    fn some_name(&mut self) -> String {
        let names: Vec<&String> = self.spaces.keys().collect();
        (*self.rng.choose(&names)).clone()
    }

    /// A new value, rarely a long one.
    fn value(&mut self) -> Arc<[u8]> {
        self.writes += 1;
        let bytes = match self.rng.below(1000) {
            0 if self.rng.one_in(2) => *self.rng.choose(&LIMITS) - 3 + self.rng.below(7),
            0 => self.rng.below(VALUE_BYTES_MAX + 1),
            1..=10 => self.rng.below(9000),
            11..=300 => self.rng.below(400),
            301..=400 => 0,
            _ => 8 + self.rng.below(24),
        };
        let mark = self.writes.to_le_bytes();
        (0..bytes).map(|index| mark[index % 8] ^ (index >> 3) as u8).collect()
    }

    fn write(&mut self) {
        let name = self.some_name();
        let deletes = self.rng.one_in(4);
        let key = self.spaces[&name].keys.one(&mut self.rng);
        let value = self.value();
        let space = self.spaces.get_mut(&name).unwrap();
        let written = write_by(&mut self.rng, &space.keyspace, (&key, (!deletes).then_some(&value)));
        match written {
            Ok(()) if deletes => drop(space.map.remove(&key)),
            Ok(()) => drop(space.map.insert(key, value)),
            Err(Error::TooLarge { what, .. }) => {
                let mut batch = self.db.batch();
                batch.put(&space.keyspace, &key, &value).unwrap();
                assert!(what == "batch" && batch.memory_bytes() as u64 > self.batch_bytes_max, "{what}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Any kind of range, of present or absent keys.
    fn some_range(&mut self, keys: Keys) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (one, other) = (keys.one(&mut self.rng), keys.one(&mut self.rng));
        // Sometimes inverted or empty.
        let is_ordered = one <= other || self.rng.one_in(20);
        let (start, end) = if is_ordered { (one, other) } else { (other, one) };
        let end = if self.rng.one_in(8) { start.clone() } else { end };
        let mut bound = |key: Vec<u8>| match self.rng.below(16) {
            0 => Bound::Unbounded,
            1..8 => Bound::Excluded(key),
            _ => Bound::Included(key),
        };
        (bound(start), bound(end))
    }

    fn delete_range(&mut self) {
        let name = self.some_name();
        let range = self.some_range(self.spaces[&name].keys);
        let space = self.spaces.get_mut(&name).unwrap();
        match space.keyspace.delete_range(range.clone()) {
            Ok(()) => space.map.retain(|key, _| !range.contains(key)),
            Err(Error::TooLarge { what, .. }) => assert_eq!(what, "batch"),
            Err(error) => panic!("{error}"),
        }
    }

    fn clear(&mut self) {
        let name = self.some_name();
        let space = self.spaces.get_mut(&name).unwrap();
        space.keyspace.clear().unwrap();
        space.map.clear();
        assert_eq!(space.keyspace.approximate_len().unwrap(), 0);
        if self.rng.one_in(2) {
            // Without other writes, so that its tables are gone.
            self.db.flush().unwrap();
            self.db.settle().unwrap();
            assert_eq!(self.spaces[&name].keyspace.stats().unwrap().tables, 0);
        }
    }

    fn write_batch(&mut self) {
        let mut batch = self.db.batch();
        let mut after = self.spaces.clone();
        let count = 1 + self.rng.below(30);
        let ranges = self.rng.one_in(4);
        for _ in 0..count {
            let name = self.some_name();
            let space = after.get_mut(&name).unwrap();
            let key = space.keys.one(&mut self.rng);
            if ranges && self.rng.one_in(100) {
                batch.clear_keyspace(&space.keyspace).unwrap();
                space.map.clear();
            } else if ranges && self.rng.one_in(10) {
                let keys = space.keys;
                let range = self.some_range(keys);
                let space = after.get_mut(&name).unwrap();
                batch.delete_range(&space.keyspace, range.clone()).unwrap();
                space.map.retain(|key, _| !range.contains(key));
            } else if self.rng.one_in(3) {
                batch.delete(&space.keyspace, &key).unwrap();
                space.map.remove(&key);
            } else {
                let value = self.value();
                batch.put(&space.keyspace, &key, &value).unwrap();
                space.map.insert(key, value);
            }
        }
        let memory_bytes = batch.memory_bytes() as u64;
        let committed = if self.rng.one_in(4) { block_on(batch.commit_async()) } else { batch.commit() };
        match committed {
            Ok(()) => self.spaces = after,
            Err(Error::TooLarge { what, .. }) => {
                assert!(what == "batch" && memory_bytes > self.batch_bytes_max, "{what}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Ingests items in order, past the log. Sometimes the ingest is dropped, or fails for a key out of
    /// order.
    fn ingest(&mut self) {
        let name = self.some_name();
        let keys = self.spaces[&name].keys;
        let most = if self.rng.one_in(4) { 400 } else { 30 };
        let count = self.rng.below(most);
        let items: Map = (0..count).map(|_| (keys.one(&mut self.rng), self.value())).collect();
        let mut ingest = self.spaces[&name].keyspace.ingest().unwrap();
        for (key, value) in &items {
            ingest.put(key, value).unwrap();
        }
        assert_eq!(ingest.items(), items.len() as u64);
        match self.rng.below(8) {
            0 => {}
            1 if !items.is_empty() => {
                let again = items.keys().nth(self.rng.below(items.len())).unwrap();
                assert!(matches!(ingest.put(again, "again"), Err(Error::NotAscending { .. })));
                assert!(matches!(ingest.finish(), Err(Error::NotAscending { .. })));
            }
            _ => {
                ingest.finish().unwrap();
                self.spaces.get_mut(&name).unwrap().map.extend(items);
            }
        }
    }

    fn read(&mut self) {
        let name = self.some_name();
        let space = &self.spaces[&name];
        if self.rng.one_in(4) {
            return Reads::Now(&space.keyspace).check_many(&mut self.rng, &space.map, &space.keys);
        }
        if self.rng.one_in(4) {
            return check_queue(&mut self.rng, &space.keyspace, &space.map, &space.keys);
        }
        let key = space.keys.one(&mut self.rng);
        let expected = space.map.get(&key).map(|value| &value[..]);
        let keyspace = &space.keyspace;
        assert_eq!(keyspace.get(&key).unwrap().as_deref(), expected);
        assert_eq!(block_on(keyspace.get_async(&key)).unwrap().as_deref(), expected);
        assert_eq!(keyspace.contains(&key).unwrap(), expected.is_some());
        assert_eq!(keyspace.get_with(&key, <[u8]>::len).unwrap(), expected.map(<[u8]>::len));
        let mut buffer = b"before".to_vec();
        assert_eq!(keyspace.get_into(&key, &mut buffer).unwrap(), expected.is_some());
        assert_eq!(buffer, expected.unwrap_or_default());
        assert_eq!(keyspace.trace(&key).unwrap().0.as_deref(), expected);
    }

    fn scan(&mut self) {
        let name = self.some_name();
        let space = &self.spaces[&name];
        Reads::Now(&space.keyspace).check_some(&mut self.rng, &space.map, &space.keys);
    }

    fn take_snapshot(&mut self) {
        let spaces = self.spaces.values().cloned().collect();
        self.moments.push(Moment { snapshot: self.db.snapshot(), spaces });
        if self.moments.len() > 4 {
            let index = self.rng.below(self.moments.len());
            let moment = self.moments.swap_remove(index);
            moment.check_all();
        }
    }

    fn read_snapshot(&mut self) {
        if self.moments.is_empty() {
            return;
        }
        let moment = &self.moments[self.rng.below(self.moments.len())];
        let space = self.rng.choose(&moment.spaces);
        let at = space.keyspace.at(&moment.snapshot);
        for _ in 0..5 {
            let key = space.keys.one(&mut self.rng);
            let expected = space.map.get(&key).map(|value| &value[..]);
            assert_eq!(at.get(&key).unwrap().as_deref(), expected);
            assert_eq!(at.contains(&key).unwrap(), expected.is_some());
        }
        let at = Reads::At(at);
        at.check_some(&mut self.rng, &space.map, &space.keys);
        at.check_many(&mut self.rng, &space.map, &space.keys);
    }

    /// Steps iterators that stay open during writes, flushes, merges and drops of other keyspaces.
    fn walk(&mut self) {
        if self.walks.len() < 3 {
            let name = self.some_name();
            let space = &self.spaces[&name];
            let left = space.map.iter().map(|(key, value)| (key.clone(), Arc::clone(value))).collect();
            // At a snapshot, so that a drop of the keyspace does not end it.
            let range = space.keyspace.at(&self.db.snapshot()).iter();
            self.walks.push(Walk { range, left });
        }
        let index = self.rng.below(self.walks.len());
        let walk = &mut self.walks[index];
        for _ in 0..1 + self.rng.below(20) {
            let (found, expected) = if self.rng.one_in(2) {
                let expected = (!walk.left.is_empty()).then(|| walk.left.remove(0));
                (walk.range.next(), expected)
            } else {
                (walk.range.next_back(), walk.left.pop())
            };
            let is_over = expected.is_none();
            assert_eq!(found.map(Result::unwrap).map(own), expected);
            if is_over {
                self.walks.swap_remove(index);
                return;
            }
        }
    }

    fn reopen(&mut self) {
        self.moments.drain(..).for_each(|moment| moment.check_all());
        self.walks.clear();
        self.end_moments();
        let old = self.spaces.values().next().unwrap().keyspace.clone();
        self.db.clone().close().unwrap();
        assert!(matches!(old.get("a"), Err(Error::Closed)));
        assert!(matches!(old.put("a", "b"), Err(Error::Closed)));
        assert!(matches!(self.db.ordered("new").open(), Err(Error::Closed)));
        drop(old);
        self.db = open(&self.place, &mut self.rng, self.memory_bytes).unwrap();
        self.find_keyspaces();
        self.find_hashed();
        self.check_all();
        self.check_hashed();
    }

    fn check_all(&self) {
        for space in self.spaces.values() {
            Reads::Now(&space.keyspace).check_all(&space.map);
        }
        let memory = self.db.stats().memory;
        let snapshots = self.moments.len() + self.walks.len() + self.moments_count();
        // Keys of 64 KiB are large for the budget of a test: table bounds have no limit, and a merge holds a
        // block of each run, of any length.
        let role = |name: &str| memory.roles.iter().find(|role| role.name == name).unwrap();
        let merges = role("merges").bytes.saturating_sub(role("merges").limit_bytes);
        let over = role("table bounds").bytes + merges;
        assert!(memory.used_bytes - over <= memory.budget_bytes || snapshots > 0, "{memory:?}");
    }

    /// Compacts; afterwards the number of keys is known without reading, and every file is undamaged.
    fn compact(&mut self) {
        self.db.compact().unwrap();
        let report = self.db.verify(|_| {}).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        let at = self.db.snapshot();
        for space in self.spaces.values() {
            let keys = space.map.len() as u64;
            assert_eq!(Reads::Now(&space.keyspace).approximate_len(), keys);
            assert_eq!(Reads::At(space.keyspace.at(&at)).approximate_len(), keys);
        }
    }

    fn step(&mut self) {
        if self.rng.below(100) < self.hashed_percent {
            self.step_hashed();
        }
        match self.rng.below(1000) {
            0..481 => self.write(),
            481..485 => self.delete_neighbours(),
            485..490 => self.ingest(),
            490..499 => self.delete_range(),
            499 => self.clear(),
            500..540 => self.write_batch(),
            540..800 => self.read(),
            800..880 => self.scan(),
            880..900 => self.take_snapshot(),
            900..930 => self.read_snapshot(),
            930..960 => self.walk(),
            960..970 => self.db.flush().unwrap(),
            970..973 => self.compact(),
            973..978 => self.db.settle().unwrap(),
            978..983 => self.db.sync().unwrap(),
            983..987 => self.open_keyspace(),
            987..990 => self.drop_keyspace(),
            995..998 => self.change_partitions(),
            990..993 => self.reopen(),
            993..995 => self.check_all(),
            998 => self.check_hashed(),
            _ => {}
        }
        if let Place::World { world, .. } = &self.place {
            for _ in 0..self.rng.below(8) {
                world.run_one();
            }
        }
    }
}

impl Moment {
    fn check_all(&self) {
        for space in &self.spaces {
            Reads::At(space.keyspace.at(&self.snapshot)).check_all(&space.map);
        }
    }
}

fn own((key, value): (Value, Value)) -> (Vec<u8>, Arc<[u8]>) {
    (key.into(), Arc::from(&value[..]))
}

/// Runs `steps` operations of each seed on the simulated machine, with a budget that causes a flush every few
/// hundred items.
fn in_a_world(name: &str, seeds: u64, steps: usize, memory_bytes: &[u64]) {
    with_seeds(name, seeds, |seed| {
        let mut rng = Rng::new(seed);
        let memory_bytes = *rng.choose(memory_bytes);
        let place = Place::World { world: World::new(seed), cache_bytes: None };
        let mut twin = Twin::new(rng, place, memory_bytes);
        (0..steps).for_each(|_| twin.step());
        twin.reopen();
    });
}

/// Store and model agree over random operations of many seeds, on the simulated machine.
#[test]
fn agrees_in_a_world() {
    in_a_world("agrees_in_a_world", 100, 1500, &[128 << 10, 256 << 10, 512 << 10, 1 << 20]);
}

/// The same with data 10, 100 and 1,000 times the total of cache, filters and fences.
///
/// The data are 32 MiB and the memory is proportionally small, because the model is copied and compared whole
/// many times. With fewer data no frame would be left at 1,000. The values are long for the same reason:
/// fewer items.
#[test]
fn agrees_at_every_ratio() {
    const DATA_BYTES: usize = 32 << 20;
    const VALUE_BYTES: usize = 1500;
    with_seeds("agrees_at_every_ratio", 6, |seed| {
        let ratio = [10, 100, 1000][seed as usize % 3];
        let place = Place::World { world: World::new(seed), cache_bytes: Some(DATA_BYTES as u64 / ratio) };
        let mut twin = Twin::new(Rng::new(seed), place, 8 << 20);
        while twin.spaces.keys().any(|name| Rule::of(name) == Some(Rule::Prefix(2))) {
            // Each of its keys would be a partition: more than there is memory for.
            let name = twin.some_name();
            twin.spaces.remove(&name);
            twin.db.drop_keyspace(&name).unwrap();
            twin.open_keyspace();
        }
        twin.fill(DATA_BYTES / VALUE_BYTES, VALUE_BYTES);
        (0..250).for_each(|_| twin.step());
        twin.reopen();
    });
}

/// The same over tries of several heights, with pushes of nodes, and keyspaces made and dropped.
#[test]
fn agrees_over_tries() {
    with_seeds("agrees_over_tries", 12, |seed| {
        let place = Place::World { world: World::new(seed), cache_bytes: None };
        let mut twin = Twin::new(Rng::new(seed), place, 128 << 10);
        twin.hashed_percent = 80;
        twin.fill_hashed(2, 30_000, 350);
        (0..250).for_each(|_| twin.step());
        twin.reopen();
    });
}

/// The same over tables with learned block indexes, and memory for pages of them.
#[test]
fn agrees_over_models() {
    const MIB: u64 = 1 << 20;
    with_seeds("agrees_over_models", 6, |seed| {
        let place = Place::World { world: World::new(seed), cache_bytes: None };
        let mut twin = Twin::new(Rng::new(seed), place, 192 * MIB);
        while twin.spaces.keys().any(|name| name.contains('/') || Rule::of(name).is_some()) {
            // A partition has too few items for a model.
            let name = twin.some_name();
            twin.spaces.remove(&name);
            twin.db.drop_keyspace(name.split('/').next().unwrap()).unwrap();
            twin.open_keyspace();
        }
        let name = twin.some_name();
        let settings =
            [("index_kind", 1), ("table_bytes", 4 * MIB), ("block_bytes", 4096), ("compression", 0)];
        let builder = twin.db.ordered(&name);
        settings.into_iter().fold(builder, |builder, (name, value)| builder.set(name, value)).open().unwrap();
        twin.fill(24_000, 400);
        twin.spaces[&name].keyspace.compact().unwrap();
        let levels = twin.spaces[&name].keyspace.stats().unwrap().levels;
        assert!(levels.iter().any(|level| level.models_bytes > 0), "{levels:?}");
        (0..250).for_each(|_| twin.step());
        twin.reopen();
    });
}

/// The same with memory for the largest values.
#[test]
fn agrees_with_large_values() {
    in_a_world("agrees_with_large_values", 4, 3000, &[24 << 20]);
}

/// The same on real files with real threads.
#[test]
fn agrees_on_files() {
    with_seeds("agrees_on_files", 3, |seed| {
        let parent = tempfile::tempdir().unwrap();
        let place = Place::Directory(parent.path().join("store"));
        let mut twin = Twin::new(Rng::new(seed), place, 32 << 20);
        (0..3000).for_each(|_| twin.step());
        twin.reopen();
    });
}
