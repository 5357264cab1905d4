//! Hashed keyspaces with explicit partitions, which the caller names.

use std::collections::BTreeMap;

use trine::sim::World;
use trine::{Db, Error, Hashed, Keyspace, Partitioned, Partitioning};

use super::rng::{Rng, with_seeds};

type Model = BTreeMap<usize, BTreeMap<Vec<u8>, Vec<u8>>>;

const MEMORY_BYTES: u64 = 2 << 20;

fn open(world: &World) -> Db {
    world.builder().memory_bytes(MEMORY_BYTES).open().unwrap()
}

fn sessions(db: &Db) -> Partitioned<Hashed> {
    db.hashed("sessions").partition_by(Partitioning::explicit()).open().unwrap()
}

fn name(number: usize) -> Vec<u8> {
    format!("month {number}").into_bytes()
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn items(partition: &Keyspace<Hashed>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let item = |item: trine::Result<(trine::Value, trine::Value)>| {
        let (key, value) = item.unwrap();
        (key.to_vec(), value.to_vec())
    };
    partition.iter_unordered().map(item).collect()
}

fn check(db: &Db, model: &Model, rng: &mut Rng) {
    let divided = sessions(db);
    let names: Vec<Vec<u8>> = model.keys().map(|number| name(*number)).collect();
    assert_eq!(divided.partitions().unwrap(), names);
    for (number, expected) in model {
        let partition = divided.find_partition(name(*number)).unwrap().unwrap();
        assert_eq!(items(&partition), *expected);
        let asked: Vec<Vec<u8>> = (0..40).map(|_| key(rng.below(4000))).collect();
        let found = partition.multi_get(&asked).unwrap();
        for (key, found) in asked.iter().zip(found) {
            assert_eq!(found.as_deref(), expected.get(key).map(Vec::as_slice));
            assert_eq!(partition.get(key).unwrap().as_deref(), expected.get(key).map(Vec::as_slice));
        }
    }
}

/// Each partition is a trie of its own, and all agree with a model: batches of puts and deletes over several
/// partitions, drops, clears, snapshots, pushes and reopens.
#[test]
fn partitions_of_hashed_keyspaces_answer_as_maps() {
    with_seeds("partitions_of_hashed_keyspaces_answer_as_maps", 6, |seed| {
        let (world, mut rng) = (World::new(seed), Rng::new(seed));
        let (mut db, mut model) = (open(&world), Model::new());
        for round in 0..10 {
            let divided = sessions(&db);
            for _ in 0..60 {
                let mut batch = db.batch();
                for _ in 0..30 {
                    let (month, key) = (rng.below(4), key(rng.below(4000)));
                    let partition = divided.partition(name(month)).unwrap();
                    let map = model.entry(month).or_default();
                    if rng.one_in(5) {
                        batch.delete(&partition, &key).unwrap();
                        map.remove(&key);
                    } else {
                        let value = vec![round as u8; 100 + rng.below(200)];
                        batch.put(&partition, &key, &value).unwrap();
                        map.insert(key, value);
                    }
                }
                batch.commit().unwrap();
            }
            let (snapshot, month) = (db.snapshot(), rng.below(4));
            let dropped = divided.find_partition(name(month)).unwrap();
            match rng.below(3) {
                0 => {
                    let was = model.remove(&month);
                    assert_eq!(divided.drop_partition(name(month)).unwrap(), was.is_some());
                    if let (Some(dropped), Some(was)) = (dropped, was) {
                        assert!(matches!(dropped.get("a"), Err(Error::Dropped { .. })));
                        assert_eq!(dropped.at(&snapshot).iter_unordered().count(), was.len());
                    }
                }
                1 => {
                    if let Some(dropped) = dropped {
                        dropped.clear().unwrap();
                        model.insert(month, BTreeMap::new());
                    }
                }
                _ => db.settle().unwrap(),
            }
            drop(snapshot);
            check(&db, &model, &mut rng);
            if round % 4 == 3 {
                db.close().unwrap();
                db = open(&world);
                check(&db, &model, &mut rng);
            }
        }
        db.settle().unwrap();
        check(&db, &model, &mut rng);
        assert!(db.verify(|_| {}).unwrap().findings.is_empty());
        db.close().unwrap();
    });
}

/// A partition's trie deepens. Dropping the partition writes nothing but the edit.
#[test]
fn a_deep_partition_is_dropped_whole() {
    let world = World::new(3);
    let db = open(&world);
    let (old, new) = (sessions(&db).partition("old").unwrap(), sessions(&db).partition("new").unwrap());
    for number in 0..60_000 {
        old.put(key(number), [1; 100]).unwrap();
        if number % 10 == 0 {
            new.put(key(number), [2; 100]).unwrap();
        }
    }
    db.settle().unwrap();
    let stats = old.stats().unwrap();
    assert!(stats.levels.iter().any(|one| one.level > 0 && one.nodes == 8), "nodes: {:?}", stats.levels);
    let before = db.stats().write;
    assert!(sessions(&db).drop_partition("old").unwrap());
    db.settle().unwrap();
    let written = db.stats().write;
    assert_eq!(written.merge_write_bytes, before.merge_write_bytes, "nothing is merged away");
    assert_eq!(items(&new).len(), 6000);
    assert_eq!(sessions(&db).partitions().unwrap(), [b"new"]);
    assert!(db.verify(|_| {}).unwrap().findings.is_empty());
}

/// The kind and the partitioning of a keyspace are fixed.
#[test]
fn other_kinds_of_division_are_refused() {
    let world = World::new(1);
    let db = open(&world);
    sessions(&db).partition("a").unwrap().put("key", "value").unwrap();
    let is_mismatch = |error: Error| matches!(error, Error::Mismatch { .. });
    assert!(db.hashed("sessions").open().is_err_and(is_mismatch));
    assert!(db.ordered("sessions").open().is_err_and(is_mismatch));
    let ordered = db.ordered("sessions").partition_by(Partitioning::explicit()).open();
    assert!(ordered.is_err_and(is_mismatch));
    db.ordered("trees").partition_by(Partitioning::explicit()).open().unwrap();
    assert!(db.hashed("trees").partition_by(Partitioning::explicit()).open().is_err_and(is_mismatch));
    db.hashed("plain").open().unwrap();
    assert!(db.hashed("plain").partition_by(Partitioning::explicit()).open().is_err_and(is_mismatch));
    db.close().unwrap();
    let db = open(&world);
    assert_eq!(items(&sessions(&db).partition("a").unwrap()).len(), 1);
}
