//! Space on a full disk is freed by the store's own operations.

use trine::sim::{Crash, World};
use trine::{Db, Error};

fn open(world: &World) -> Db {
    world.builder().memory_bytes(64 << 20).open().unwrap()
}

/// The operations that free space on a full disk.
#[derive(Clone, Copy, Debug)]
enum Means {
    Clear,
    DeleteRange,
    Drop,
}

/// A store on a disk without a free byte. `junk` takes nearly all of it, and `kept` has one item. With
/// `is_filled`, refused writes have filled log and write buffer.
fn full_store(is_filled: bool) -> (World, u64) {
    let world = World::new(4);
    let db = open(&world);
    let junk = db.ordered("junk").open().unwrap();
    db.ordered("kept").open().unwrap().put("key", "value").unwrap();
    // Otherwise it would share a file with the other items.
    db.flush().unwrap();
    for number in 0..20_000u32 {
        junk.put(number.to_be_bytes(), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    junk.put("last", "one").unwrap();
    world.set_capacity_bytes(Some(world.used_bytes()));
    if is_filled {
        let mut number = 0u32;
        let full = loop {
            number += 1;
            if let Err(error) = junk.put(number.to_be_bytes(), [8; 100]) {
                break error;
            }
        };
        assert!(matches!(full, Error::Full { .. }), "{full}");
    }
    let used = world.used_bytes();
    db.close().unwrap();
    assert!(world.used_bytes() <= used);
    world.set_capacity_bytes(Some(world.used_bytes()));
    (world, used)
}

/// Space on a full disk is freed by the store's own operations, with no byte free. The store opens for
/// writing, and a clear, a range delete or a drop frees its space within a second. Flushing and closing work
/// afterwards.
#[test]
fn a_full_disk_can_be_emptied() {
    for (means, is_filled) in [Means::Clear, Means::DeleteRange, Means::Drop]
        .into_iter()
        .flat_map(|one| [(one, false), (one, true)])
    {
        let (world, used) = full_store(is_filled);
        let db = open(&world);
        let junk = db.ordered("junk").open().unwrap();
        match means {
            Means::Clear => junk.clear().unwrap(),
            Means::DeleteRange => junk.delete_range(..).unwrap(),
            Means::Drop => db.drop_keyspace("junk").unwrap(),
        }
        world.advance_ns(1_000_000_000);
        world.run_until_idle();
        let left = world.used_bytes();
        assert!(left + 20_000 * 100 <= used, "{means:?}: {left} of {used} left, filled: {is_filled}");
        db.flush().unwrap();
        let kept = db.ordered("kept").open().unwrap();
        kept.put("after", "it").unwrap();
        drop(junk);
        db.close().unwrap();
        let db = open(&world);
        assert_eq!(db.ordered("kept").open().unwrap().iter().count(), 2);
        match means {
            Means::Drop => assert!(db.keyspaces().iter().all(|one| one.name != "junk")),
            _ => assert_eq!(db.ordered("junk").open().unwrap().iter().count(), 0),
        }
    }
}

/// The same in a store that stays open while writes are refused. Earlier readers keep their view.
#[test]
fn an_open_store_on_a_full_disk_can_be_emptied() {
    let world = World::new(5);
    let db = open(&world);
    let junk = db.ordered("junk").open().unwrap();
    for number in 0..20_000u32 {
        junk.put(number.to_be_bytes(), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    let used = world.used_bytes();
    world.set_capacity_bytes(Some(used));
    let refused =
        (0..100_000u32).find_map(|number| junk.put((number % 20_000).to_be_bytes(), [8; 100]).err());
    assert!(matches!(refused, Some(Error::Full { .. })));
    let before = db.snapshot();
    assert!(matches!(db.flush(), Err(Error::Full { .. })));
    // The log reserves some room for these, also for many in a row.
    for _ in 0..50 {
        junk.clear().unwrap();
    }
    world.advance_ns(1_000_000_000);
    world.run_until_idle();
    assert_eq!(junk.at(&before).iter().count(), 20_000, "the snapshot has its tables");
    drop(before);
    world.advance_ns(1_000_000_000);
    world.run_until_idle();
    db.flush().unwrap();
    junk.put("new", "value").unwrap();
    assert!(world.used_bytes() + 20_000 * 100 <= used, "{} of {used}", world.used_bytes());
    db.close().unwrap();
    assert_eq!(open(&world).ordered("junk").open().unwrap().iter().count(), 1);
}

/// A clear also frees items that are only in a log: the log starts over in the same file.
#[test]
fn a_full_disk_of_logs_can_be_emptied() {
    for (seed, free) in [(6, 0), (7, 4096)] {
        let world = World::new(seed);
        let db = open(&world);
        let (junk, kept) = (db.ordered("junk").open().unwrap(), db.ordered("kept").open().unwrap());
        for number in 0..20_000u32 {
            junk.put(number.to_be_bytes(), [7; 100]).unwrap();
        }
        let used = world.used_bytes();
        world.set_capacity_bytes(Some(used + free));
        let before = db.snapshot();
        junk.clear().unwrap();
        db.flush().unwrap();
        assert!(world.used_bytes() < used / 2, "{} of {used}", world.used_bytes());
        assert_eq!((junk.iter().count(), junk.at(&before).iter().count()), (0, 20_000));
        kept.put("key", "value").unwrap();
        db.sync().unwrap();
        let killed = world.crash(Crash::Power, 1);
        let after = open(&killed);
        assert_eq!(after.ordered("junk").open().unwrap().iter().count(), 0);
        assert_eq!(after.ordered("kept").open().unwrap().iter().count(), 1);
        after.close().unwrap();
        drop(before);
        db.close().unwrap();
    }
}
