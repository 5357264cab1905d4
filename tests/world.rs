//! The simulated machine, as an embedding program would use it.

use trine::sim::{Crash, Failure, Fault, Operation, Repeat, Stop, World};
use trine::{Db, Durability, Error, Keyspace, Ordered};

use crate::rng::{Rng, with_seeds};

fn open(world: &World) -> (Db, Keyspace<Ordered>) {
    let db = world.builder().memory_bytes(128 << 10).set("manifest_bytes", 16 << 10).open().unwrap();
    let users = db.ordered("users").set("level0_runs", 2).open().unwrap();
    (db, users)
}

/// Random writes, reads, flushes, merges and turns of background work, by the seed.
fn work(db: &Db, world: &World, rng: &mut Rng) {
    let (users, names) = (db.ordered("users").open().unwrap(), db.ordered("names").open().unwrap());
    for step in 0..1500u32 {
        let key = rng.below(200).to_string();
        match rng.below(100) {
            0..70 => users.put(&key, step.to_string().repeat(1 + rng.below(40))).unwrap(),
            70..80 => users.delete(&key).unwrap(),
            80..85 => {
                let mut batch = db.batch();
                batch.put(&users, &key, "both").unwrap();
                batch.put(&names, &key, "both").unwrap();
                batch.commit_with(Durability::Sync).unwrap();
            }
            85..90 => drop(users.get(&key).unwrap()),
            90..92 => assert!(users.prefix(&key[..1]).all(|item| item.is_ok())),
            92 => db.flush().unwrap(),
            _ => {
                for _ in 0..rng.below(20) {
                    world.run_one();
                }
            }
        }
    }
    db.settle().unwrap();
}

/// Every `close` returns the error of closing.
#[test]
fn every_close_returns_its_error() {
    let world = World::new(1);
    let (db, users) = open(&world);
    users.put("ann", "1").unwrap();
    world.fail(&[Fault::of(Operation::Sync, Failure::Io).in_files("log")]);
    let told = [db.clone().close(), db.close()].map(|closed| closed.unwrap_err().to_string());
    assert!(told[0] == told[1] && told[0].contains("log-"), "{told:?}");
}

/// Every disk call of a run of the seed, with checksums of the written bytes, over two lives of a store.
fn calls_of(seed: u64) -> Vec<String> {
    let world = World::new(seed);
    world.start_log();
    let (db, _) = open(&world);
    work(&db, &world, &mut Rng::new(seed));
    db.compact().unwrap();
    db.close().unwrap();
    let after = world.crash(Crash::Power, seed);
    after.start_log();
    let (db, users) = open(&after);
    assert!(users.iter().all(|item| item.is_ok()));
    db.close().unwrap();
    [world.log(), after.log()].concat()
}

/// The same seed makes the same disk calls with the same bytes; another seed makes others.
#[test]
fn a_seed_decides_everything() {
    with_seeds("a_seed_decides_everything", 8, |seed| {
        let (first, second) = (calls_of(seed), calls_of(seed));
        let differs = first.iter().zip(&second).find(|(one, other)| one != other);
        assert!(first.len() == second.len() && differs.is_none(), "{differs:?}");
        assert!(first.len() > 1000, "{} calls", first.len());
        assert_ne!(first, calls_of(seed + 1000));
    });
}

/// A store that stops at any of its calls keeps its synced writes. The stopped machine and the one after the
/// crash are independent.
#[test]
fn a_stopped_store_opens_again() {
    for index in 0..60 {
        let world = World::new(index);
        let (db, users) = open(&world);
        users.put("ann", "1").unwrap();
        db.sync().unwrap();
        world.stop([Stop::Before, Stop::Amid, Stop::After][index as usize % 3], index);
        // The result depends on where the machine stops.
        let _ = users.put("bob", "2").and_then(|()| db.flush()).and_then(|()| db.compact());
        // So does this one: the process has ended.
        let _ = db.close();
        for crash in [Crash::Process, Crash::Power] {
            let (db, users) = open(&world.crash(crash, index));
            assert_eq!(users.get("ann").unwrap().as_deref(), Some(&b"1"[..]));
            db.settle().unwrap();
        }
    }
}

/// Forks share no later writes. Files can be read, damaged and removed.
#[test]
fn forks_and_files_are_apart() {
    let world = World::new(3);
    let (db, users) = open(&world);
    users.put("ann", "1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let calls = world.calls();
    let fork = world.fork();
    assert_eq!(world.files().unwrap(), fork.files().unwrap());
    let table = world.files().unwrap().into_iter().find(|name| name.starts_with("table")).unwrap();
    let mut bytes = world.contents(&table).unwrap();
    bytes[4096] ^= 1;
    world.set_contents(&table, Some(&bytes));
    assert_ne!(world.contents(&table), fork.contents(&table));
    let (_db, users) = open(&world);
    assert!(matches!(users.get("ann"), Err(Error::Corrupt(_))));
    let (_db, users) = open(&fork);
    assert_eq!(users.get("ann").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(world.calls() > calls && world.used_bytes() > 0);
    let gone = fork.crash(Crash::Process, 1);
    gone.set_contents("STORE", None);
    assert!(gone.builder().open().is_err());
}

/// A fault affects the calls that it names, as often as it says.
#[test]
fn faults_affect_only_the_named_calls() {
    let world = World::new(4);
    let (db, users) = open(&world);
    let full = Fault::of(Operation::Write, Failure::Full).in_files("log").after(1).repeat(Repeat::Always);
    world.fail(&[full]);
    users.put("ann", "1").unwrap();
    for _ in 0..3 {
        assert!(matches!(users.put("bob", "2"), Err(Error::Full { .. })));
    }
    world.fail(&[]);
    users.put("bob", "2").unwrap();
    world.fail(&[Fault::of(Operation::Sync, Failure::Io).in_files("log")]);
    assert!(matches!(db.sync(), Err(Error::Io { .. })));
    assert!(matches!(users.put("eve", "3"), Err(Error::Latched { .. })));
    assert_eq!(users.iter().count(), 2);
    assert!(!world.is_stopped());
}

/// After any error of a log sync the store takes no more writes. This includes an interruption, after which
/// other calls are repeated, and a full disk, which elsewhere clears by itself. Reads go on, and the next
/// process has all synced writes.
#[test]
fn f08_every_error_of_a_sync_latches() {
    for (failure, says) in [
        (Failure::Io, "Check the path"),
        (Failure::Full, "space was missing"),
        (Failure::Interrupted, "interrupted"),
        (Failure::ReadOnly, "read-only"),
    ] {
        let world = World::new(6);
        let (db, users) = open(&world);
        users.put("ann", "1").unwrap();
        db.sync().unwrap();
        users.put("bob", "2").unwrap();
        world.fail(&[Fault::of(Operation::Sync, failure).in_files("log")]);
        let error = db.sync().unwrap_err();
        assert!(error.to_string().contains(says), "{failure:?}: {error}");
        for written in [users.put("eve", "3"), db.sync()] {
            let Err(Error::Latched { cause }) = written else { panic!("{failure:?}: {written:?}") };
            assert_eq!(cause.to_string(), error.to_string());
        }
        assert_eq!(users.iter().count(), 2);
        let (_db, users) = open(&world.crash(Crash::Power, 1));
        assert!(users.contains("ann").unwrap());
    }
}

/// A file system that becomes read-only latches the store with an error that says so; reads go on.
#[test]
fn f08_a_file_system_that_becomes_read_only_latches() {
    let world = World::new(7);
    let (_db, users) = open(&world);
    users.put("ann", "1").unwrap();
    world.fail(&[Fault::of(Operation::Write, Failure::ReadOnly).in_files("log")]);
    let error = users.put("bob", "2").unwrap_err();
    let Error::ReadOnlyFileSystem { operation: "write", file } = &error else { panic!("{error:?}") };
    assert!(file.starts_with("log"));
    let Err(Error::Latched { cause }) = users.put("bob", "2") else { panic!("it is not latched") };
    assert_eq!(cause.to_string(), error.to_string());
    assert_eq!(users.iter().count(), 1);
    let (_db, users) = open(&world.crash(Crash::Process, 1));
    assert_eq!(users.iter().count(), 1);
}

/// A simulated world accepts budgets below the real minimum, down to 128 KiB.
#[test]
fn small_budgets_are_for_worlds() {
    let world = World::new(5);
    assert!(matches!(world.builder().memory_bytes(100_000).open(), Err(Error::Invalid { .. })));
    assert_eq!(open(&world).0.stats().memory.budget_bytes, 128 << 10);
}
