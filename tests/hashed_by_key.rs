//! Hashed keyspaces that are partitioned by key, compared with a map without partitions.

use std::collections::{BTreeMap, BTreeSet};

use trine::sim::{Crash, World};
use trine::{
    ByKey, Db, Durability, Error, Hashed, Keyspace, Kind, Ordered, Partitioning, Unordered, block_on,
};

use super::rng::{Rng, with_seeds};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const MEMORY_BYTES: u64 = 2 << 20;

/// The partitioning rule of the keyspace, and the partition name of a key under it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Division {
    Prefix(usize),
    /// By the last byte, which is not part of a prefix.
    Function,
}

const DIVISIONS: [Division; 3] = [Division::Prefix(1), Division::Prefix(2), Division::Function];

fn last_byte(key: &[u8]) -> &[u8] {
    &key[key.len().saturating_sub(1)..]
}

impl Division {
    fn partitioning(self) -> Partitioning<ByKey> {
        match self {
            Division::Prefix(bytes) => Partitioning::prefix(bytes),
            Division::Function => Partitioning::function("last byte", 3, |key| last_byte(key).into()),
        }
    }

    fn open(self, db: &Db) -> Keyspace<Hashed> {
        db.hashed("divided").partition_by(self.partitioning()).open().unwrap()
    }

    fn name(self, key: &[u8]) -> &[u8] {
        match self {
            Division::Prefix(bytes) => &key[..bytes.min(key.len())],
            Division::Function => last_byte(key),
        }
    }
}

fn open(world: &World) -> Db {
    world.builder().memory_bytes(MEMORY_BYTES).open().unwrap()
}

/// Most keys have a number. A few are so short that under a prefix rule each is alone in its partition.
fn key(rng: &mut Rng) -> Vec<u8> {
    let (first, second) = (rng.below(3) as u8, rng.below(3) as u8);
    if rng.one_in(40) {
        return [first, second][..rng.below(3)].to_vec();
    }
    let number = rng.below(1000) as u16;
    [&[first, second][..], &number.to_be_bytes(), &[second]].concat()
}

fn own(item: trine::Result<(trine::Value, trine::Value)>) -> (Vec<u8>, Vec<u8>) {
    let (key, value) = item.unwrap();
    (key.to_vec(), value.to_vec())
}

/// Adds the next `count` items of a walk to `walked`.
fn walk_on(walk: &mut Unordered, count: usize, walked: &mut Map) {
    for item in walk.take(count) {
        let (key, value) = own(item);
        assert!(walked.insert(key.clone(), value).is_none(), "a key comes once: {key:?}");
    }
}

/// The expected contents of the store.
#[derive(Clone, Default)]
struct Model {
    map: Map,
    names: BTreeSet<Vec<u8>>,
    wanted_from: Vec<u8>,
    batches: u64,
}

impl Model {
    /// Applies one write of items in these partitions.
    fn make(&mut self, division: Division, names: BTreeSet<Vec<u8>>) {
        let first_missing = names.iter().find(|name| !self.names.contains(*name));
        if first_missing.is_some_and(|name| *name >= self.wanted_from) {
            self.keep_wanted(division);
        }
        self.names.extend(names);
    }

    fn keep_wanted(&mut self, division: Division) {
        let from = &self.wanted_from;
        self.names.retain(|name| name >= from);
        self.map.retain(|key, _| division.name(key) >= from.as_slice());
    }

    fn forget(&mut self, division: Division, name: &[u8]) -> bool {
        self.map.retain(|key, _| division.name(key) != name);
        self.names.remove(name)
    }
}

struct Bench {
    world: World,
    db: Db,
    division: Division,
    keyspace: Keyspace<Hashed>,
    model: Model,
}

impl Bench {
    fn new(seed: u64, division: Division) -> Bench {
        let world = World::new(seed);
        let db = open(&world);
        let keyspace = division.open(&db);
        Bench { world, db, division, keyspace, model: Model::default() }
    }

    fn counts(&self) -> Keyspace<Ordered> {
        self.db.ordered("counts").open().unwrap()
    }

    /// Writes a batch of puts and deletes over several partitions; an ordered keyspace counts these batches.
    fn write_batch(&mut self, rng: &mut Rng) {
        let (mut batch, counts) = (self.db.batch(), self.counts());
        self.model.batches += 1;
        batch.put(&counts, "batches", self.model.batches.to_le_bytes()).unwrap();
        let items: Vec<_> = (0..1 + rng.below(40)).map(|_| (key(rng), !rng.one_in(5))).collect();
        let puts = items.iter().filter(|(_, is_put)| *is_put);
        let names = puts.map(|(key, _)| self.division.name(key).to_vec()).collect();
        self.model.make(self.division, names);
        for (key, is_put) in items {
            if is_put {
                let value = vec![rng.below(256) as u8; 60 + rng.below(200)];
                batch.put(&self.keyspace, &key, &value).unwrap();
                self.model.map.insert(key, value);
            } else {
                batch.delete(&self.keyspace, &key).unwrap();
                self.model.map.remove(&key);
            }
        }
        if rng.one_in(12) {
            batch.clear_keyspace(&self.keyspace).unwrap();
            self.model.map.clear();
        }
        if rng.one_in(2) { batch.commit().unwrap() } else { block_on(batch.commit_async()).unwrap() }
    }

    fn write_one(&mut self, rng: &mut Rng) {
        let (key, value) = (key(rng), vec![rng.below(256) as u8; rng.below(300)]);
        let keyspace = &self.keyspace;
        match rng.below(5) {
            0 => keyspace.delete(&key).unwrap(),
            1 => block_on(keyspace.delete_async(&key)).unwrap(),
            2 => keyspace.put_with(&key, &value, Durability::Sync).unwrap(),
            3 => block_on(keyspace.put_async(&key, &value)).unwrap(),
            _ => keyspace.put(&key, &value).unwrap(),
        }
        // A delete makes no partition. The value tells which of the two operations ran.
        match keyspace.get(&key).unwrap() {
            Some(found) => {
                assert_eq!(found.as_ref(), value);
                self.model.make(self.division, BTreeSet::from([self.division.name(&key).to_vec()]));
                self.model.map.insert(key, value);
            }
            None => drop(self.model.map.remove(&key)),
        }
    }

    /// Makes or drops partitions, or clears the keyspace.
    fn change_names(&mut self, rng: &mut Rng) {
        let (key, division) = (key(rng), self.division);
        let name = division.name(&key).to_vec();
        let (keyspace, model) = (&self.keyspace, &mut self.model);
        match rng.below(6) {
            0 => {
                keyspace.create_partition(&name).unwrap();
                model.make(division, BTreeSet::from([name]));
            }
            1 => assert_eq!(keyspace.drop_partition(&name).unwrap(), model.forget(division, &name)),
            2 => {
                let all: Vec<Vec<u8>> = model.names.iter().take(2).cloned().collect();
                assert_eq!(keyspace.drop_partitions(&all).unwrap(), all.len() as u64);
                all.iter().for_each(|name| assert!(model.forget(division, name)));
            }
            3 => {
                let count = model.names.len();
                // For a function the bound is a partition name.
                let bound = if division == Division::Function { &name } else { &key };
                let dropped = keyspace.retain_from(bound).unwrap();
                model.wanted_from = name;
                model.keep_wanted(division);
                assert_eq!(dropped, (count - model.names.len()) as u64);
            }
            4 => {
                assert!(keyspace.retain_from("").unwrap() == 0);
                model.wanted_from.clear();
            }
            _ => {
                keyspace.clear().unwrap();
                model.map.clear();
            }
        }
    }

    /// Closes the store, or crashes it after a sync, and reopens it. Without its partitioning function only
    /// walks, listing and drops work.
    fn reopen(&mut self, rng: &mut Rng) {
        if rng.one_in(2) {
            self.db.clone().close().unwrap();
        } else {
            self.db.sync().unwrap();
            self.world = self.world.crash(Crash::Power, rng.below(1000) as u64);
        }
        self.db = open(&self.world);
        self.keyspace = self.db.hashed("divided").open().unwrap();
        if self.division == Division::Function {
            check_unrouted(&self.db, &self.keyspace, &self.model);
            self.keyspace = self.division.open(&self.db);
        }
    }

    fn check(&self, rng: &mut Rng) {
        let Bench { division, keyspace, model, .. } = self;
        check_reads(keyspace, (*division, &model.map), rng);
        let names: Vec<Vec<u8>> = model.names.iter().cloned().collect();
        assert_eq!(keyspace.partitions().unwrap(), names);
        assert_eq!(keyspace.retained_from().unwrap().unwrap_or_default(), model.wanted_from);
        let (mut items, mut about) = (0, 0);
        for name in &names {
            items += keyspace.partition_stats(name).unwrap().unwrap().items;
            about += keyspace.partition_approximate_len(name).unwrap().unwrap();
        }
        assert!(keyspace.partition_stats("none").unwrap().is_none());
        let stats = keyspace.stats().unwrap();
        assert!(stats.is_hashed);
        assert_eq!((stats.items, keyspace.approximate_len().unwrap()), (items, about));
        let batches = self.counts().get("batches").unwrap();
        assert_eq!(
            batches.map_or(0, |count| u64::from_le_bytes(count[..].try_into().unwrap())),
            model.batches
        );
    }
}

/// Checks a walk, a walk resumed in the middle, and gets of all kinds.
fn check_reads(keyspace: &Keyspace<Hashed>, (division, map): (Division, &Map), rng: &mut Rng) {
    let all: Vec<Vec<u8>> = keyspace.iter_unordered().map(|item| own(item).0).collect();
    assert!(all.is_sorted_by(|one, next| division.name(one) <= division.name(next)), "one after the other");
    let (mut walk, mut walked) = (keyspace.iter_unordered(), Map::new());
    walk_on(&mut walk, rng.below(map.len() + 1), &mut walked);
    let position = walk.position();
    assert_eq!(position.is_none(), walked.is_empty());
    let mut rest = keyspace.iter_unordered_after(position.unwrap_or_default());
    if walked.is_empty() {
        rest = keyspace.iter_unordered();
    }
    walk_on(&mut rest, usize::MAX, &mut walked);
    assert_eq!(walked, *map);
    if let Some(end) = rest.position() {
        assert_eq!(keyspace.iter_unordered_after(end).count(), 0);
    }
    assert_eq!(keyspace.exact_len(|_| {}).unwrap(), map.len() as u64);
    assert_eq!(keyspace.is_empty().unwrap(), map.is_empty());
    let keys: Vec<Vec<u8>> = (0..60).map(|_| key(rng)).collect();
    let (found, later) =
        (keyspace.multi_get(&keys).unwrap(), block_on(keyspace.multi_get_async(&keys)).unwrap());
    let mut buffer = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let expected = map.get(key).map(Vec::as_slice);
        assert_eq!(found[number].as_deref(), expected);
        assert_eq!(later[number].as_deref(), expected);
        assert_eq!(keyspace.get(key).unwrap().as_deref(), expected);
        assert_eq!(keyspace.get_with(key, <[u8]>::to_vec).unwrap().as_deref(), expected);
        assert_eq!(keyspace.get_into(key, &mut buffer).unwrap().then_some(&buffer[..]), expected);
        assert_eq!(keyspace.contains(key).unwrap(), expected.is_some());
        assert_eq!(block_on(keyspace.get_async(key)).unwrap().as_deref(), expected);
        assert_eq!(keyspace.trace(key).unwrap().0.as_deref(), expected);
        let explained = keyspace.explain(key).unwrap();
        assert_eq!(explained.partition.as_deref(), Some(division.name(key)));
    }
}

/// Operations that need the partition of a key are refused; all others work.
fn check_unrouted(db: &Db, keyspace: &Keyspace<Hashed>, model: &Model) {
    let mut walked = Map::new();
    walk_on(&mut keyspace.iter_unordered(), usize::MAX, &mut walked);
    assert_eq!(walked, model.map);
    assert!(keyspace.partitions().unwrap().iter().eq(&model.names));
    assert!(!keyspace.drop_partition("none").unwrap());
    let refused = [
        keyspace.get("a").map(drop),
        keyspace.contains("a").map(drop),
        keyspace.multi_get(&["a"]).map(drop),
        block_on(keyspace.get_async("a")).map(drop),
        block_on(keyspace.multi_get_async(&["a"])).map(drop),
        keyspace.explain("a").map(drop),
        keyspace.put("a", ""),
        keyspace.delete("a"),
        block_on(keyspace.put_async("a", "")),
        db.batch().put(keyspace, "a", ""),
    ];
    for (number, result) in refused.into_iter().enumerate() {
        let Err(Error::Unrouted { name }) = result else { panic!("{number}: {result:?}") };
        assert_eq!(name, "last byte");
    }
}

/// Each partition is a trie of its own, and all agree with a model. The operations are single writes, batches
/// over several partitions and an ordered keyspace, drops, bounds, clears, snapshots, pushes, reopens and
/// power cuts.
#[test]
fn hashed_keyspaces_by_key_answer_as_a_map() {
    with_seeds("hashed_keyspaces_by_key_answer_as_a_map", 9, |seed| {
        let mut rng = Rng::new(seed);
        let mut bench = Bench::new(seed, DIVISIONS[seed as usize % DIVISIONS.len()]);
        let mut looks: Vec<(trine::Snapshot, Keyspace<Hashed>, Map)> = Vec::new();
        for _ in 0..12 {
            for _ in 0..60 {
                bench.write_batch(&mut rng);
                bench.write_one(&mut rng);
            }
            looks.push((bench.db.snapshot(), bench.keyspace.clone(), bench.model.map.clone()));
            match rng.below(8) {
                0 => bench.db.flush().unwrap(),
                1 => bench.db.settle().unwrap(),
                2 => bench.keyspace.compact().unwrap(),
                3 => {
                    looks.clear();
                    bench.reopen(&mut rng);
                }
                _ => bench.change_names(&mut rng),
            }
            bench.check(&mut rng);
            for (snapshot, keyspace, map) in &looks {
                let at = keyspace.at(snapshot);
                let (mut walk, mut walked) = (at.iter_unordered(), Map::new());
                walk_on(&mut walk, map.len() / 2, &mut walked);
                if let Some(position) = walk.position() {
                    walk_on(&mut at.iter_unordered_after(position), usize::MAX, &mut walked);
                    assert_eq!(walked, *map);
                }
                let asked: Vec<Vec<u8>> = (0..20).map(|_| key(&mut rng)).collect();
                for (key, found) in asked.iter().zip(at.multi_get(&asked).unwrap()) {
                    assert_eq!(found.as_deref(), map.get(key).map(Vec::as_slice));
                }
            }
            looks.drain(..looks.len().saturating_sub(2));
        }
        looks.clear();
        bench.db.settle().unwrap();
        bench.check(&mut rng);
        assert!(bench.db.verify(|_| {}).unwrap().findings.is_empty());
        bench.db.close().unwrap();
    });
}

/// A store with three partitions of `items` items each.
fn three_partitions(world: &World, items: u16) -> (Db, Keyspace<Hashed>) {
    let db = open(world);
    let keyspace = Division::Prefix(1).open(&db);
    for number in 0..items {
        for name in [b"a", b"b", b"c"] {
            keyspace.put([&name[..], &number.to_be_bytes()].concat(), [name[0]; 40]).unwrap();
        }
    }
    (db, keyspace)
}

/// A resumed walk returns once each item that is there all along, also if partitions were dropped and made
/// meanwhile. The original walk continues over its own view.
#[test]
fn positions_outlive_drops() {
    let world = World::new(4);
    let (db, keyspace) = three_partitions(&world, 300);
    let first_bytes = |walk: Unordered| {
        let mut counts = BTreeMap::new();
        walk.for_each(|item| *counts.entry(own(item).0[0]).or_default() += 1);
        counts
    };
    let mut walk = keyspace.iter_unordered();
    assert!(walk.by_ref().take(450).all(|item| item.is_ok()));
    let position = walk.position().unwrap();
    assert_eq!(first_bytes(keyspace.iter_unordered_after(&position)), [(b'b', 150), (b'c', 300)].into());
    // A partition before the position does not matter, nor does an empty one after it.
    keyspace.drop_partition("a").unwrap();
    keyspace.put("aa", "late").unwrap();
    keyspace.create_partition("bb").unwrap_err();
    keyspace.create_partition("d").unwrap();
    assert_eq!(first_bytes(keyspace.iter_unordered_after(&position)), [(b'b', 150), (b'c', 300)].into());
    keyspace.drop_partition("b").unwrap();
    assert_eq!(first_bytes(keyspace.iter_unordered_after(&position)), [(b'c', 300)].into());
    assert_eq!(first_bytes(walk), [(b'b', 150), (b'c', 300)].into());
    // The partition is made again: the walk returns items of its trie after the position.
    keyspace.put("b", "again").unwrap();
    for number in 0..300u16 {
        keyspace.put([&b"b"[..], &number.to_be_bytes()].concat(), "again").unwrap();
    }
    let again = first_bytes(keyspace.iter_unordered_after(&position));
    assert!((150..=151).contains(&again[&b'b']) && again[&b'c'] == 300, "{again:?}");
    keyspace.drop_partitions(["b", "c", "d"]).unwrap();
    assert_eq!(keyspace.iter_unordered_after(&position).count(), 0);
    drop(keyspace);
    db.close().unwrap();
    let db = open(&world);
    let keyspace = db.hashed("divided").open().unwrap();
    assert_eq!(keyspace.iter_unordered_after(&position).count(), 0);
    keyspace.put("c1", "1").unwrap();
    assert_eq!(keyspace.iter_unordered_after(&position).count(), 1);
    // Not positions of this store.
    assert_eq!(keyspace.iter_unordered_after("").count(), 2);
    assert_eq!(keyspace.iter_unordered_after([1]).count(), 2);
    assert_eq!(keyspace.iter_unordered_after(vec![0xff; 100_000]).count(), 0);
}

/// Partition names come from the given keys, not from their hashed places: keys with equal prefixes share a
/// partition.
#[test]
fn names_are_of_given_keys() {
    let world = World::new(2);
    let (_db, keyspace) = three_partitions(&world, 100);
    assert_eq!(keyspace.partitions().unwrap(), [b"a", b"b", b"c"]);
    assert_eq!(keyspace.partition_stats("b").unwrap().unwrap().items, 100);
    assert_eq!(keyspace.retain_from("b\0\x01").unwrap(), 1);
    assert_eq!(keyspace.retained_from().unwrap().as_deref(), Some(&b"b"[..]));
    let longest = vec![b'z'; 65_524];
    keyspace.put(&longest, "1").unwrap();
    assert_eq!(keyspace.get(&longest).unwrap().unwrap(), "1");
    let mut walk = keyspace.iter_unordered();
    assert_eq!(walk.by_ref().last().unwrap().unwrap().0, longest);
    assert_eq!(keyspace.iter_unordered_after(walk.position().unwrap()).count(), 0);
    assert!(matches!(keyspace.put([b'z'; 65_525], "1"), Err(Error::TooLarge { .. })));
    assert_eq!(keyspace.partitions().unwrap(), [b"b", b"c", b"z"]);
}

/// Range rules need ordered keys and are refused. Kind and rule of a keyspace are fixed, and wrong ones are
/// refused.
#[test]
fn other_divisions_are_refused() {
    let world = World::new(1);
    let db = open(&world);
    let by = |name: &str, rule: Partitioning<ByKey>| db.hashed(name).partition_by(rule).open();
    let Err(Error::Invalid { faults }) = by("new", Partitioning::ranges(["g", "m"])) else { panic!() };
    assert!(faults.len() == 1 && faults[0].contains("no order of keys"), "{faults:?}");
    assert!(!db.contains_keyspace("new"));
    for wrong in [Partitioning::prefix(0), Partitioning::prefix(256), Partitioning::ranges(["b", "a"])] {
        assert!(matches!(by("new", wrong), Err(Error::Invalid { .. })));
    }
    let divided = by("divided", Partitioning::prefix(2)).unwrap();
    let is_mismatch = |error: Error| matches!(error, Error::Mismatch { .. });
    assert!(by("divided", Partitioning::prefix(3)).is_err_and(is_mismatch));
    assert!(db.hashed("divided").partition_by(Partitioning::explicit()).open().is_err_and(is_mismatch));
    assert!(db.ordered("divided").open().is_err_and(is_mismatch));
    assert!(db.ordered("divided").partition_by(Partitioning::prefix(2)).open().is_err_and(is_mismatch));
    db.ordered("ordered").partition_by(Partitioning::prefix(2)).open().unwrap();
    assert!(by("ordered", Partitioning::prefix(2)).is_err_and(is_mismatch));
    db.hashed("whole").open().unwrap();
    assert!(by("whole", Partitioning::prefix(2)).is_err_and(is_mismatch));
    let whole = db.hashed("whole").open().unwrap();
    assert!(matches!(whole.partitions(), Err(Error::Invalid { .. })));
    assert!(matches!(divided.create_partition("abc"), Err(Error::Invalid { .. })));
    assert!(matches!(divided.put("zz", vec![0; 2 << 20]), Err(Error::TooLarge { .. })));
    assert!(divided.partitions().unwrap().is_empty(), "a put that is refused makes none");
    let any = db.keyspace("divided").unwrap();
    assert!(matches!(any.ordered(), Err(Error::Unordered { .. })));
    any.put("ab1", "1").unwrap();
    assert_eq!(any.partitions().unwrap(), [b"ab"]);
    assert_eq!(any.hashed().unwrap().iter_unordered().count(), 1);
}

/// A checkpoint and a salvaged copy have rule, partitions and items; dropped partitions stay dropped. A
/// salvage without STORE gives the items new places.
#[test]
fn copies_have_the_rule() {
    for division in DIVISIONS {
        let mut rng = Rng::new(7);
        let mut bench = Bench::new(3, division);
        for round in 0..3 {
            (0..30).for_each(|_| bench.write_batch(&mut rng));
            if round == 1 {
                bench.db.flush().unwrap();
            }
        }
        let gone = bench.model.names.first().unwrap().clone();
        assert!(bench.keyspace.drop_partition(&gone).unwrap());
        bench.model.forget(division, &gone);
        bench.db.checkpoint("copy").unwrap();
        bench.db.sync().unwrap();
        let crashed = bench.world.crash(Crash::Process, 6);
        let target = World::new(7);
        let salvaged = crashed.salvage(&target).unwrap();
        assert!(salvaged.doubtful.is_empty() && salvaged.report.findings.is_empty(), "{salvaged:?}");
        for world in [bench.world.beside("copy"), target, crashed] {
            let db = open(&world);
            assert!(db.verify(|_| {}).unwrap().findings.is_empty());
            let (keyspace, model) = (division.open(&db), bench.model.clone());
            Bench { world, db, division, keyspace, model }.check(&mut rng);
        }
        let (damaged, target) = (bench.world.crash(Crash::Process, 6), World::new(8));
        damaged.set_contents("STORE", None);
        damaged.salvage(&target).unwrap();
        check_placed_anew(&open(&target), division, &bench.model.map);
    }
}

/// Checks a copy with another secret: all items are found at their new places.
fn check_placed_anew(db: &Db, division: Division, map: &Map) {
    let mut found = Map::new();
    for info in db.keyspaces().into_iter().filter(|info| info.kind == Kind::Hashed) {
        let builder = db.hashed(&info.name);
        let keyspace = match info.partitioning {
            Some(_) => builder.partition_by(division.partitioning()).open().unwrap(),
            None => builder.open().unwrap(),
        };
        for (key, value) in keyspace.iter_unordered().map(own) {
            assert_eq!(keyspace.get(&key).unwrap().as_deref(), Some(&value[..]));
            found.insert(key, value);
        }
    }
    assert!(map.iter().all(|(key, value)| found.get(key) == Some(value)));
}

/// The partitioning function is called only for keys of items: a clear does not call it, so the function need
/// not accept an empty key.
#[test]
fn a_clear_asks_no_function() {
    let world = World::new(31);
    let db = world.builder().open().unwrap();
    let first_byte = || Partitioning::function("first byte", 1, |key| key[..1].into());
    let hashed = db.hashed("hashed").partition_by(first_byte()).open().unwrap();
    let ordered = db.ordered("ordered").partition_by(first_byte()).open().unwrap();
    let fill = || {
        for key in ["a1", "a2", "b1"] {
            hashed.put(key, "1").unwrap();
            ordered.put(key, "1").unwrap();
        }
        assert_eq!((hashed.iter_unordered().count(), ordered.iter().count()), (3, 3));
    };
    fill();
    hashed.clear().unwrap();
    ordered.clear().unwrap();
    assert_eq!((hashed.iter_unordered().count(), ordered.iter().count()), (0, 0));
    fill();
    let mut batch = db.batch();
    batch.clear_keyspace(&hashed).unwrap();
    batch.clear_keyspace(&ordered).unwrap();
    batch.put(&hashed, "b2", "2").unwrap();
    batch.commit().unwrap();
    assert_eq!((hashed.iter_unordered().count(), ordered.iter().count()), (1, 0));
    // From the first possible key on, which is the empty one.
    ordered.put("a1", "1").unwrap();
    ordered.put("b1", "1").unwrap();
    ordered.delete_range(.."b").unwrap();
    assert_eq!(ordered.iter().count(), 1);
}
