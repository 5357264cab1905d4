//! The answers of `explain` for a get, compared with the known contents of the store.

use trine::sim::World;
use trine::{Db, Keyspace, Ordered};

fn key(number: u32) -> [u8; 4] {
    (number * 2).to_be_bytes()
}

fn last(items: &Keyspace<Ordered>, key: [u8; 4]) -> (Option<u32>, String) {
    let step = items.explain(key).unwrap().steps.pop().unwrap();
    (step.level, step.said)
}

/// Items in a deeper level, some of them deleted by a range tombstone in level 0, newer items in memory.
fn store(world: &World) -> (Db, Keyspace<Ordered>) {
    let db = world.builder().open().unwrap();
    let items = db.ordered("items").open().unwrap();
    (0..3000).for_each(|number| items.put(key(number), [number as u8; 50]).unwrap());
    db.compact().unwrap();
    items.delete_range(key(1000)..key(2000)).unwrap();
    items.put(key(1500), b"again").unwrap();
    items.delete(key(1600)).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = world.builder().open().unwrap();
    let items = db.ordered("items").open().unwrap();
    items.put(key(5), b"new").unwrap();
    items.delete(key(6)).unwrap();
    (db, items)
}

/// The last step names the source that decided the get, and why.
#[test]
fn the_last_step_decided() {
    let world = World::new(1);
    let (_db, items) = store(&world);
    assert_eq!(last(&items, key(5)), (None, "a put, in the write buffer in use".to_owned()));
    assert_eq!(last(&items, key(6)), (None, "a tombstone, in the write buffer in use".to_owned()));
    assert_eq!(last(&items, key(1500)), (Some(0), "a put".to_owned()));
    assert_eq!(last(&items, key(1600)), (Some(0), "a tombstone".to_owned()));
    let (level, said) = last(&items, key(1200));
    assert!(level == Some(0) && said.ends_with("deleted by a range tombstone of the table"), "{said}");
    let (level, said) = last(&items, key(2500));
    assert!(level > Some(0) && said == "a put", "{level:?} {said}");
}

/// `explain` agrees with the get: the same answers, and as many block reads as it says.
#[test]
fn explained_reads_are_the_reads() {
    let world = World::new(2);
    let (db, items) = store(&world);
    let mut loaded = 0;
    let before = db.stats().io.device_reads;
    for number in 0..3000 {
        let explained = items.explain(key(number)).unwrap();
        loaded += explained.steps.iter().filter(|step| step.name.ends_with("Load")).count() as u64;
        let found = items.get(key(number)).unwrap();
        assert_eq!(explained.value_bytes, found.map(|value| value.len() as u64));
        let places = explained.steps.iter().filter(|step| step.name == "FileFind");
        let mut files: Vec<_> = places.map(|step| (step.level, step.run, step.file.clone())).collect();
        let count = files.len();
        files.dedup();
        assert_eq!(files.len(), count, "each table is told of once");
    }
    assert_eq!(db.stats().io.device_reads - before, loaded);
    assert!(loaded > 10);
}
