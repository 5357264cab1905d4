//! Hashed keyspaces compared with an unordered map.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trine::inspect::AtRisk;
use trine::sim::{Crash, World};
use trine::{Db, Error, Hashed, Keyspace, Kind};

use crate::rng::Rng;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, u8),
    Delete(Vec<u8>),
    /// A batch over this keyspace and an ordered one.
    Batch(Vec<(Vec<u8>, Option<u8>)>),
    Clear,
    Flush,
    Compact,
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0..4u8, 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let item = (key(), proptest::option::of(any::<u8>()));
    prop_oneof![
        8 => (key(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        3 => key().prop_map(Step::Delete),
        3 => proptest::collection::vec(item, 1..8).prop_map(Step::Batch),
        1 => Just(Step::Clear),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

fn value(number: u8) -> Vec<u8> {
    vec![number; 20]
}

fn items(walk: trine::Unordered) -> Model {
    let items = walk.map(|item| item.expect("no fault"));
    let mut model = Model::new();
    for (key, value) in items {
        assert!(model.insert(key.to_vec(), value.to_vec()).is_none(), "a key comes once: {key:?}");
    }
    model
}

/// Gets, multi-gets, futures, counts and a walk in two parts agree with the model.
fn check(keyspace: &Keyspace<Hashed>, model: &Model) {
    assert_eq!(items(keyspace.iter_unordered()), *model);
    assert_eq!(keyspace.exact_len(|_| {}).expect("no fault"), model.len() as u64);
    assert_eq!(keyspace.is_empty().expect("no fault"), model.is_empty());
    let keys: Vec<Vec<u8>> = (0..64u8).map(|one| vec![one / 16, one / 4 % 4, one % 4]).collect();
    let found = keyspace.multi_get(&keys).expect("no fault");
    let later = trine::block_on(keyspace.multi_get_async(&keys)).expect("no fault");
    for (number, key) in keys.iter().enumerate() {
        let expected = model.get(key).map(Vec::as_slice);
        assert_eq!(found[number].as_deref(), expected);
        assert_eq!(later[number].as_deref(), expected);
        assert_eq!(keyspace.get(key).expect("no fault").as_deref(), expected);
        assert_eq!(keyspace.contains(key).expect("no fault"), expected.is_some());
        assert_eq!(trine::block_on(keyspace.get_async(key)).expect("no fault").as_deref(), expected);
        assert_eq!(keyspace.trace(key).expect("no fault").0.as_deref(), expected);
        assert_eq!(keyspace.get_with(key, <[u8]>::len).expect("no fault"), expected.map(<[u8]>::len));
    }
    let mut walk = keyspace.iter_unordered();
    let first: Model = (&mut walk)
        .take(model.len() / 2)
        .map(|item| item.expect("no fault"))
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect();
    let rest = match walk.position() {
        Some(position) => items(keyspace.iter_unordered_after(position)),
        None => items(keyspace.iter_unordered()),
    };
    assert_eq!(first.len() + rest.len(), model.len());
    assert_eq!(first.into_iter().chain(rest).collect::<Model>(), *model);
}

fn take(keyspace: &Keyspace<Hashed>, db: &Db, model: &mut Model, step: &Step) {
    match step {
        Step::Put(key, number) => {
            keyspace.put(key, value(*number)).expect("no fault");
            model.insert(key.clone(), value(*number));
        }
        Step::Delete(key) => {
            trine::block_on(keyspace.delete_async(key)).expect("no fault");
            model.remove(key);
        }
        Step::Batch(items) => {
            let ordered = db.ordered("ordered").open().expect("opens");
            let mut batch = db.batch();
            batch.put(&ordered, "batches", items.len().to_le_bytes()).expect("small");
            for (key, number) in items {
                match number {
                    Some(number) => {
                        batch.put(keyspace, key, value(*number)).expect("small");
                        model.insert(key.clone(), value(*number));
                    }
                    None => {
                        batch.delete(keyspace, key).expect("small");
                        model.remove(key);
                    }
                }
            }
            batch.commit().expect("no fault");
            let count = ordered.get("batches").expect("no fault").expect("it is there");
            assert_eq!(&*count, items.len().to_le_bytes());
        }
        Step::Clear => {
            keyspace.clear().expect("no fault");
            model.clear();
        }
        Step::Flush => db.flush().expect("no fault"),
        Step::Compact => keyspace.compact().expect("no fault"),
        Step::Reopen => unreachable!("done by the caller"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A hashed keyspace answers as a map after any operations. A snapshot keeps its answers.
    #[test]
    fn hashed_keyspaces_answer_as_a_map(steps in proptest::collection::vec(step(), 1..40)) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("data");
        let mut db = Db::open(&path).expect("opens");
        let (mut keyspace, mut model) = (db.hashed("hashed").open().expect("made"), Model::new());
        let mut before: Option<(trine::Snapshot, Model)> = None;
        for (number, step) in steps.iter().enumerate() {
            if matches!(step, Step::Reopen) {
                before = None;
                drop(keyspace);
                db.close().expect("closes");
                db = Db::open(&path).expect("opens");
                keyspace = db.keyspace("hashed").and_then(|any| any.hashed()).expect("it is there");
            } else {
                take(&keyspace, &db, &mut model, step);
            }
            if number == steps.len() / 2 {
                before = Some((db.snapshot(), model.clone()));
            }
        }
        check(&keyspace, &model);
        if let Some((snapshot, then)) = before {
            let at = keyspace.at(&snapshot);
            prop_assert_eq!(items(at.iter_unordered()), then.clone());
            for key in then.keys() {
                let found = at.get(key).expect("no fault");
                prop_assert_eq!(found.as_deref(), then.get(key).map(Vec::as_slice));
            }
        }
        let report = db.verify(|_| {}).expect("no fault");
        prop_assert!(report.findings.is_empty());
    }
}

/// Opening a keyspace as the other kind, keys that are too long, and ordered reads are refused.
#[test]
fn unsupported_calls_of_hashed_keyspaces_are_refused() {
    let world = World::new(1);
    let db = world.builder().open().unwrap();
    let hashed = db.hashed("hashed").open().unwrap();
    db.ordered("ordered").open().unwrap();
    let kinds: Vec<Kind> = db.keyspaces().into_iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [Kind::Hashed, Kind::Ordered]);
    let is_mismatch = |error| matches!(error, Some(Error::Mismatch { name: "kind", .. }));
    assert!(is_mismatch(db.ordered("hashed").open().err()) && is_mismatch(db.hashed("ordered").open().err()));
    assert!(is_mismatch(db.keyspace("ordered").unwrap().hashed().err()));
    let by_prefix = db.ordered("hashed").partition_by(trine::Partitioning::prefix(1)).open();
    assert!(is_mismatch(by_prefix.err()));
    let unordered = db.keyspace("hashed").unwrap().ordered();
    assert!(matches!(unordered, Err(Error::Unordered { name }) if name == "hashed"));
    let longest = vec![7; 65_524];
    hashed.put(&longest, "1").unwrap();
    assert_eq!(hashed.get(&longest).unwrap().unwrap(), "1");
    let longer = vec![7; 65_525];
    let mut batch = db.batch();
    for refused in [
        hashed.put(&longer, "1"),
        hashed.delete(&longer),
        batch.put(&hashed, &longer, "1"),
        trine::block_on(hashed.put_async(&longer, "1")),
    ] {
        assert!(matches!(refused, Err(Error::TooLarge { what: "key", limit: 65_524, given: 65_525 })));
    }
    assert_eq!(hashed.get(&longer).unwrap(), None);
    // Not a position of this store.
    assert!(hashed.iter_unordered_after(vec![0xff; 100_000]).next().is_none());
    assert_eq!(hashed.iter_unordered_after("").count(), 1);
}

/// Many items survive several flushes and merges and a power cut. A salvaged copy has all of them, also if
/// STORE is lost, and with it the secret of the key hash.
#[test]
fn crashes_and_salvages_keep_hashed_items() {
    let world = World::new(2);
    let db = world.builder().memory_bytes(1 << 20).open().unwrap();
    let hashed = db.hashed("hashed").open().unwrap();
    let mut model = Model::new();
    hashed.put("gone", "1").unwrap();
    hashed.clear().unwrap();
    for number in 0..4000u32 {
        let (key, value) = (number.to_le_bytes().to_vec(), vec![number as u8; 40]);
        hashed.put(&key, &value).unwrap();
        if number % 5 == 4 {
            let gone = (number - 1).to_le_bytes();
            hashed.delete(gone).unwrap();
            model.remove(&gone[..]);
        }
        model.insert(key, value);
    }
    db.sync().unwrap();
    for (number, crash) in [Crash::Power, Crash::Process].into_iter().enumerate() {
        let after = world.crash(crash, 30 + number as u64);
        let again = after.builder().memory_bytes(1 << 20).open().unwrap();
        let hashed = again.hashed("hashed").open().unwrap();
        assert_eq!(items(hashed.iter_unordered()), model);
        assert!(model.iter().all(|(key, value)| hashed.get(key).unwrap().as_deref() == Some(&value[..])));
        drop(hashed);
        again.close().unwrap();
        assert!(after.verify().unwrap().findings.is_empty());
    }
    for is_store_lost in [false, true] {
        let (damaged, target) = (world.crash(Crash::Process, 40), World::new(41));
        if is_store_lost {
            damaged.set_contents("STORE", None);
        }
        damaged.salvage(&target).unwrap();
        let copy = target.builder().open().unwrap();
        let mut found = Model::new();
        for info in copy.keyspaces() {
            assert_eq!(info.kind, Kind::Hashed, "{}", info.name);
            let salvaged = copy.hashed(&info.name).open().unwrap();
            let own = items(salvaged.iter_unordered());
            assert!(own.iter().all(|(key, value)| salvaged.get(key).unwrap().as_deref() == Some(&value[..])));
            found.extend(own);
        }
        let is_there = |key: &Vec<u8>| found.get(key) == model.get(key);
        assert!(model.keys().all(is_there), "{is_store_lost}: {} of {}", found.len(), model.len());
        assert!(is_store_lost || found == model);
    }
}

/// A hashed keyspace and its model with numbers as keys, so that a test can have many.
struct Numbered {
    keyspace: Keyspace<Hashed>,
    model: BTreeMap<u32, (u8, usize)>,
    rng: Rng,
}

impl Numbered {
    fn open(db: &Db) -> Keyspace<Hashed> {
        Numbered::open_with(db, 63)
    }

    /// `runs_in_last_level` decides the merges of leaves. 1: always; more: never; 0: chosen from the writes.
    fn open_with(db: &Db, runs_in_last_level: u64) -> Keyspace<Hashed> {
        let builder = db.hashed("hashed").set("table_bytes", 64 << 10);
        builder.set("runs_in_last_level", runs_in_last_level).open().unwrap()
    }

    /// Overwrites and deletes some of the first `keys` keys.
    fn round(&mut self, keys: usize, writes: usize) {
        for _ in 0..writes {
            let key = self.rng.below(keys) as u32;
            if self.rng.one_in(8) {
                self.keyspace.delete(key.to_le_bytes()).unwrap();
                self.model.remove(&key);
            } else {
                let (byte, length) = (self.rng.below(256) as u8, self.rng.below(100));
                self.keyspace.put(key.to_le_bytes(), vec![byte; length]).unwrap();
                self.model.insert(key, (byte, length));
            }
        }
    }

    fn expected(&self, key: u32) -> Option<Vec<u8>> {
        self.model.get(&key).map(|(byte, length)| vec![*byte; *length])
    }

    /// Gets some keys singly and together, and walks over all items.
    fn check(&mut self, keys: usize) {
        let asked: Vec<u32> = (0..500).map(|_| self.rng.below(keys + 100) as u32).collect();
        let bytes: Vec<[u8; 4]> = asked.iter().map(|key| key.to_le_bytes()).collect();
        let found = self.keyspace.multi_get(&bytes).unwrap();
        for (key, found) in asked.iter().zip(&found) {
            let expected = self.expected(*key);
            assert_eq!(found.as_deref(), expected.as_deref(), "{key}");
            assert_eq!(self.keyspace.get(key.to_le_bytes()).unwrap().as_deref(), expected.as_deref());
        }
        let mut walked = 0;
        for item in self.keyspace.iter_unordered() {
            let (key, value) = item.unwrap();
            let number = u32::from_le_bytes(key[..].try_into().unwrap());
            assert_eq!(self.expected(number).as_deref(), Some(&value[..]), "{number}");
            walked += 1;
        }
        assert_eq!(walked, self.model.len());
    }
}

/// Many small tables become a trie several nodes deep. Pushes, overwrites, deletes, snapshots, reopens and a
/// clear lose nothing. The keys of each table belong to its node.
#[test]
fn tries_deepen() {
    let world = World::new(5);
    let mut db = world.builder().memory_bytes(2 << 20).open().unwrap();
    let (rng, model) = (Rng::new(7), BTreeMap::new());
    let mut all = Numbered { keyspace: Numbered::open(&db), model, rng };
    for round in 0..8 {
        let keys = 10_000 * (round + 1);
        all.round(keys, 12_000);
        if round == 3 {
            db.close().unwrap();
            db = world.builder().memory_bytes(2 << 20).open().unwrap();
            all.keyspace = Numbered::open(&db);
        }
        if round % 2 == 1 {
            db.settle().unwrap();
        }
        all.check(keys);
    }
    let (snapshot, then) = (db.snapshot(), all.model.len());
    all.round(80_000, 20_000);
    assert_eq!(all.keyspace.at(&snapshot).iter_unordered().count(), then);
    drop(snapshot);
    db.settle().unwrap();
    all.check(80_000);
    let stats = all.keyspace.stats().unwrap();
    let heights: Vec<(u64, u64)> = stats.levels.iter().map(|one| (one.level, one.tables)).collect();
    assert!(heights.last().is_some_and(|(height, _)| *height >= 2), "{heights:?}");
    assert!(heights.iter().any(|(height, tables)| *height == 1 && *tables >= 8), "{heights:?}");
    assert!(stats.is_hashed, "{stats:?}");
    for one in &stats.levels {
        assert!(one.nodes >= 1 && one.nodes <= 1 << (3 * one.level), "{one:?}");
        assert!(one.runs <= one.nodes * one.node_runs_max && one.node_runs_max <= one.runs, "{one:?}");
    }
    assert!(db.verify(|_| {}).unwrap().findings.is_empty());
    all.keyspace.clear().unwrap();
    all.model.clear();
    all.round(1000, 500);
    db.flush().unwrap();
    db.settle().unwrap();
    all.check(1000);
    let stats = all.keyspace.stats().unwrap();
    assert!(stats.tables <= 2, "{stats:?}");
    db.close().unwrap();
}

/// Leaves are merged while keys are overwritten, at rest, and by `compact`. The trie then takes little more
/// than its live items, and a get searches one run. No item is lost, also under a snapshot.
#[test]
fn leaves_are_merged() {
    let world = World::new(6);
    let mut db = world.builder().memory_bytes(2 << 20).open().unwrap();
    let (rng, model) = (Rng::new(8), BTreeMap::new());
    let mut all = Numbered { keyspace: Numbered::open_with(&db, 0), model, rng };
    let runs_below_root = |keyspace: &Keyspace<Hashed>| -> Vec<u64> {
        let levels = keyspace.stats().unwrap().levels;
        levels.iter().filter(|one| one.level > 0).map(|one| one.node_runs_max).collect()
    };
    let table_bytes = |db: &Db| db.stats().space.table_bytes;
    all.round(20_000, 60_000);
    all.check(20_000);
    db.settle().unwrap();
    let settled = table_bytes(&db);
    for round in 0..10 {
        for _ in 0..20 {
            all.round(20_000, 1000);
            // Merges are paced: each turn does a piece of one.
            for _ in 0..50 {
                world.advance_ns(2_000_000);
                world.run_until_idle();
            }
        }
        all.check(20_000);
        if round == 4 {
            db.close().unwrap();
            db = world.builder().memory_bytes(2 << 20).open().unwrap();
            all.keyspace = Numbered::open_with(&db, 0);
        }
        let levels = all.keyspace.stats().unwrap().levels;
        assert!(table_bytes(&db) < 2 * settled, "{} of {settled}: {levels:?}", table_bytes(&db));
    }
    let (snapshot, then) = (db.snapshot(), all.model.len());
    all.round(20_000, 20_000);
    db.settle().unwrap();
    all.check(20_000);
    assert_eq!(all.keyspace.at(&snapshot).iter_unordered().count(), then);
    drop(snapshot);
    db.compact().unwrap();
    all.check(20_000);
    let stats = all.keyspace.stats().unwrap();
    assert_eq!(stats.items, all.model.len() as u64, "no tombstone, and each key once: {stats:?}");
    assert!(runs_below_root(&all.keyspace).iter().all(|runs| *runs <= 1), "{stats:?}");
    assert!(stats.levels.iter().rev().skip(1).all(|level| level.runs == 0), "leaves have all: {stats:?}");
    assert!(db.verify(|_| {}).unwrap().findings.is_empty());
    all.keyspace.clear().unwrap();
    db.compact().unwrap();
    assert_eq!(all.keyspace.stats().unwrap().tables, 0);
    db.close().unwrap();
}

/// Damage in a table of a hashed keyspace puts at risk a share of its keys as large as the node's. A dump
/// shows each key after its place, except for keys in blocks.
#[test]
fn damage_is_told_by_the_part_of_the_keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let db = Db::open(&path).unwrap();
    let hashed = db.hashed("hashed").open().unwrap();
    (0..2000u32).for_each(|number| hashed.put(format!("key {number}"), "value").unwrap());
    db.flush().unwrap();
    hashed.put("key in the log", "value").unwrap();
    drop(hashed);
    db.close().unwrap();
    let files = || std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let named = |prefix: &str| {
        let is_named =
            |file: &std::path::PathBuf| file.file_name().unwrap().to_string_lossy().starts_with(prefix);
        files().find(is_named).unwrap()
    };
    let says = |prefix: &str, part: &str| {
        let mut all = Vec::new();
        let mut take = |one: &trine::inspect::Part| {
            if one.name == part {
                all.push(one.says.clone());
            }
        };
        trine::inspect::dump(named(prefix), &mut take).unwrap();
        all
    };
    let is_shown = |says: &String| {
        let (before, key) = says.split_once("/key ").unwrap_or_default();
        !key.is_empty()
            && before.len() >= 22
            && before[before.len() - 22..].bytes().all(|one| one.is_ascii_hexdigit())
    };
    // Blocks do not store places, and places cannot be computed from keys alone.
    let blocks = says("table-", "data block");
    assert!(blocks.iter().all(|says| says.contains("key ") && !says.contains('/')), "{blocks:?}");
    assert!(says("log-", "item").iter().any(is_shown), "{:?}", says("log-", "item"));
    assert!(says("manifest-", "change").iter().any(|says| says.contains("height 0 run") && is_shown(says)));
    let table = named("table-");
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[4096 + 20] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let report = trine::inspect::verify(&path, |_| {}).unwrap();
    let at_risk: Vec<&AtRisk> = report.findings.iter().map(|one| &one.at_risk).collect();
    let [AtRisk::HashedKeys { keyspace, per_million }] = at_risk[..] else { panic!("{at_risk:?}") };
    // A block of 4 KiB has about 130 of the 2000 items.
    assert!(keyspace == "hashed" && (10_000..200_000).contains(per_million), "{per_million}");
}

/// A long pile of the root becomes one run of one table, even with little memory for the merge: each block
/// that the merge builds takes all of it.
#[test]
fn the_root_folds_into_one_table() {
    let world = World::new(6);
    let db = world.builder().memory_bytes(128 << 10).open().unwrap();
    let hashed = db.hashed("hashed").set("block_bytes", 64 << 10).open().unwrap();
    let mut model = Model::new();
    for flush in 0..80u32 {
        for number in 0..24 {
            let key = (flush * 24 + number).to_le_bytes().to_vec();
            hashed.put(&key, vec![flush as u8; 100]).unwrap();
            model.insert(key, vec![flush as u8; 100]);
        }
        db.flush().unwrap();
        db.settle().unwrap();
        let levels = hashed.stats().unwrap().levels;
        assert!(levels.iter().all(|level| level.level > 0 || level.runs == level.tables), "{levels:?}");
    }
    assert_eq!(items(hashed.iter_unordered()), model);
    assert!(db.stats().background.merges > 3 && db.verify(|_| {}).unwrap().findings.is_empty());
}

/// If the end of a table and one of its blocks are lost, with or without STORE, salvage puts the remaining
/// items into a hashed keyspace. Gets find them there.
#[test]
fn items_of_lost_ends_stay_hashed() {
    for is_store_lost in [false, true] {
        let (world, target) = (World::new(2), World::new(41));
        let db = world.builder().memory_bytes(1 << 20).open().unwrap();
        let hashed = db.hashed("hashed").open().unwrap();
        (0..2000u32).for_each(|number| hashed.put(format!("key {number}"), "value").unwrap());
        db.flush().unwrap();
        drop(hashed);
        db.close().unwrap();
        let table = world.files().unwrap().into_iter().find(|name| name.starts_with("table")).unwrap();
        let mut bytes = world.contents(&table).unwrap();
        let end = bytes.len();
        bytes[end - 8192..].fill(0xee);
        bytes[4096 + 20] ^= 1;
        world.set_contents(&table, Some(&bytes));
        if is_store_lost {
            world.set_contents("STORE", None);
        }
        world.salvage(&target).unwrap();
        let copy = target.builder().open().unwrap();
        let mut found = 0;
        for info in copy.keyspaces() {
            assert_eq!(info.kind, Kind::Hashed, "{}", info.name);
            let keyspace = copy.hashed(&info.name).open().unwrap();
            for number in 0..2000u32 {
                let value = keyspace.get(format!("key {number}")).unwrap();
                found += usize::from(value.is_some_and(|value| value == "value"));
            }
            let all = items(keyspace.iter_unordered());
            assert!(all.keys().all(|key| key.starts_with(b"key ")), "{}", info.name);
        }
        assert!((1000..2000).contains(&found), "{found} of 2000, without those of one block and of the end");
    }
}
