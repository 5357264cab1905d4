//! What a store takes on disk follows what is in it, not how often it was opened.

use trine::sim::{Crash, World};
use trine::{Create, Db};

/// A store of one small item, opened, written to and closed.
const CLOSED_BYTES_MAX: u64 = 256 << 10;

/// Times that a store is opened.
const ROUNDS: u32 = 250;

fn open(world: &World) -> Db {
    world.builder().memory_bytes(64 << 20).open().unwrap()
}

fn put(db: &Db, round: u32) {
    db.ordered("k").open().unwrap().put(round.to_be_bytes(), b"one small value").unwrap();
}

/// An empty store, and one with an item, take what their shortest files do; opened, they take no more.
#[test]
fn a_small_store_takes_little() {
    let world = World::new(1);
    let db = open(&world);
    world.run_until_idle();
    assert!(world.used_bytes() <= CLOSED_BYTES_MAX, "{} open", world.used_bytes());
    let names = world.files().unwrap();
    put(&db, 1);
    db.close().unwrap();
    assert_eq!(world.files().unwrap(), names);
    let (used, calls) = (world.used_bytes(), world.calls());
    assert!(used <= CLOSED_BYTES_MAX, "{used} closed");
    let db = open(&world);
    world.run_until_idle();
    assert_eq!((world.files().unwrap(), world.used_bytes()), (names, used), "an opening makes no file");
    db.close().unwrap();
    assert!(world.calls() > calls);
}

/// However often a store is opened, written to and closed, or dies, it takes and reads what its contents ask
/// for.
#[test]
fn a_store_that_is_opened_often_stays_small() {
    for (ends_well, bytes_max) in [(true, 1 << 20), (false, 2 << 20)] {
        let (mut world, mut openings_read_bytes, mut read_bytes) = (World::new(2), Vec::new(), 0);
        for round in 0..ROUNDS {
            let db = open(&world);
            // Of the world: also what was read before.
            openings_read_bytes.push(db.stats().io.read_bytes - read_bytes);
            put(&db, round);
            read_bytes = db.stats().io.read_bytes;
            if ends_well {
                db.close().unwrap();
            } else {
                let crashed = world.crash(Crash::Process, u64::from(round));
                drop(db);
                world = crashed;
            }
            assert!(world.used_bytes() <= bytes_max, "{} after {round} rounds", world.used_bytes());
        }
        let db = world.builder().create(Create::Never).open().unwrap();
        let (first, last) = (openings_read_bytes[1], *openings_read_bytes.last().unwrap());
        assert!(last <= 2 * first, "{last} bytes read, and {first} at first");
        assert_eq!(db.ordered("k").open().unwrap().iter().count(), ROUNDS as usize);
    }
}

/// Logs that hold much are flushed when the store is closed, and what was made ready is removed.
#[test]
fn a_closed_store_has_short_logs() {
    let world = World::new(3);
    let db = open(&world);
    let items = db.ordered("k").open().unwrap();
    let log_bytes = || -> u64 {
        let logs = world.files().unwrap().into_iter().filter(|name| name.starts_with("log"));
        logs.map(|name| world.contents(&name).unwrap().len() as u64).sum()
    };
    let mut most = log_bytes();
    for number in 0..2000u32 {
        items.put(number.to_be_bytes(), [1; 1000]).unwrap();
        world.run_one();
        most = most.max(log_bytes());
    }
    assert!(most > 2 << 20, "{most} bytes of logs");
    db.close().unwrap();
    assert!(log_bytes() <= 1 << 20, "{} bytes of logs", log_bytes());
    let db = open(&world);
    assert_eq!(db.ordered("k").open().unwrap().iter().count(), 2000);
}
