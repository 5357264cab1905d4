//! Checkpoints: on real files, and on a machine that stops or fails at each of its calls.

use std::fs;
use std::path::Path;

use trine::sim::{Crash, Failure, Fault, Operation, Stop, World};
use trine::{Access, Create, Db, Error, Keyspace, Ordered};

use crate::support::{Model, Scratch, contents, files, reader, small};

const COPY: &str = "copy";

fn open(world: &World) -> (Db, Keyspace<Ordered>) {
    let db = world.builder().memory_bytes(128 << 10).set("manifest_bytes", 16 << 10).open().unwrap();
    let users = db.ordered("users").open().unwrap();
    (db, users)
}

/// A store with tables on two levels, some overwritten, and items in the log; and its items.
fn made(world: &World) -> (Db, Keyspace<Ordered>, Model) {
    let (db, users) = open(world);
    let mut model = Model::new();
    let mut put = |index: u32, version: u32| {
        let (key, value) = (index.to_be_bytes().to_vec(), version.to_string().repeat(20).into_bytes());
        users.put(&key, &value).unwrap();
        model.insert(key, value);
    };
    (0..300).for_each(|index| put(index, 1));
    db.compact().unwrap();
    (0..300).step_by(7).for_each(|index| put(index, 2));
    db.flush().unwrap();
    (0..300).step_by(50).for_each(|index| put(index, 3));
    db.sync().unwrap();
    (db, users, model)
}

/// The items of the store in the copy's directory; `None` if there is no store.
fn copied(world: &World, path: &str) -> Option<Model> {
    let copy = world.beside(path);
    let builder = copy.builder().memory_bytes(128 << 10).create(Create::Never);
    match builder.open() {
        Ok(db) => {
            let held = contents(&db.keyspace("users").unwrap().ordered().unwrap());
            db.ordered("users").open().unwrap().put("new", "1").unwrap();
            db.compact().unwrap();
            db.close().unwrap();
            Some(held)
        }
        Err(Error::Missing { .. }) => None,
        Err(Error::Corrupt(at)) if at.file == "STORE" => None,
        Err(other) => panic!("{other:?}"),
    }
}

/// The machine stops at any call of a checkpoint, with or without power loss: the store is whole, and the
/// copy is whole or absent. The copy is there once the call has returned.
#[test]
fn a_checkpoint_is_whole_or_none() {
    for index in 0.. {
        let world = World::new(index);
        let (db, _users, model) = made(&world);
        world.stop([Stop::Before, Stop::Amid, Stop::After][index as usize % 3], index);
        let done = db.checkpoint(COPY);
        let is_over = !world.is_stopped();
        for crash in [Crash::Process, Crash::Power] {
            let after = world.crash(crash, index);
            let held = copied(&after, COPY);
            assert!(held.is_none_or(|held| held == model), "call {index}, {crash:?}");
            let (_db, users) = open(&after);
            assert_eq!(contents(&users), model, "call {index}, {crash:?}");
        }
        if is_over {
            done.expect("nothing stopped it");
            assert_eq!(copied(&world.crash(Crash::Power, index), COPY), Some(model));
            assert!(index > 20, "{index} calls are too few to be all");
            return;
        }
    }
}

/// A checkpoint in which any single call fails returns the error and leaves nothing behind. It can be
/// repeated.
#[test]
fn a_failed_checkpoint_leaves_nothing() {
    for failure in [Failure::Io, Failure::Full] {
        for (operation, index) in (0..12).flat_map(|index| {
            [Operation::Write, Operation::Create, Operation::Link, Operation::Sync, Operation::SyncDirectory]
                .map(|operation| (operation, index))
        }) {
            let world = World::new(index);
            let (db, users, model) = made(&world);
            world.fail(&[Fault::of(operation, failure).after(index)]);
            let done = db.checkpoint(COPY);
            world.fail(&[]);
            let what = format!("{operation:?} {index}: {failure:?}, {done:?}");
            assert_eq!(contents(&users), model, "{what}");
            if done.is_err() {
                assert_eq!(copied(&world.fork(), COPY), None, "{what}");
                assert!(world.beside(COPY).files().unwrap().is_empty(), "{what}");
            }
            if users.put("after", "1").is_ok() {
                db.checkpoint("again").unwrap_or_else(|error| panic!("{what}: {error}"));
                let held = copied(&world.crash(Crash::Power, index), "again").expect("it is there");
                assert_eq!(held.len(), model.len() + 1, "{what}");
            }
        }
    }
}

fn checkpoints_are_apart(data: &Path, copy: &Path) {
    let db = small(data).open().unwrap();
    let users = db.ordered("users").open().unwrap();
    (0..2000u32).for_each(|index| users.put(index.to_be_bytes(), [1; 100]).unwrap());
    db.ordered("empty").open().unwrap();
    db.checkpoint(copy).unwrap();
    assert!(matches!(db.checkpoint(copy), Err(Error::Foreign { .. })), "it is not empty any more");
    let before = contents(&users);
    (0..2000u32).step_by(2).for_each(|index| users.delete(index.to_be_bytes()).unwrap());
    db.compact().unwrap();
    let whole = files(copy);
    let readonly = reader(copy).open().unwrap();
    assert_eq!(contents(&readonly.keyspace("users").unwrap().ordered().unwrap()), before);
    assert_eq!(readonly.keyspaces().len(), 2);
    assert!(matches!(readonly.checkpoint(copy.with_extension("2")), Err(Error::ReadOnly)));
    readonly.close().unwrap();
    assert!(files(copy) == whole);
    // Both stores write, with file numbers of their own; neither disturbs the other.
    let other = small(copy).open().unwrap();
    let others = other.ordered("users").open().unwrap();
    assert_eq!(contents(&others), before);
    (0..2000u32).for_each(|index| others.put(index.to_be_bytes(), [2; 10]).unwrap());
    other.compact().unwrap();
    assert_eq!(users.iter().count(), 1000);
    assert!(others.iter().all(|item| item.unwrap().1.len() == 10));
    other.close().unwrap();
    db.close().unwrap();
    assert_eq!(small(data).open().unwrap().ordered("users").open().unwrap().iter().count(), 1000);
}

/// A checkpoint and its store continue independently. A directory that is not empty is refused.
#[test]
fn a_checkpoint_is_a_store_of_its_own() {
    let scratch = Scratch::new();
    checkpoints_are_apart(&scratch.data(), &scratch.root().join(COPY));
    let taken = scratch.root().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("notes"), "mine").unwrap();
    let db = small(&scratch.data()).open().unwrap();
    assert!(matches!(db.checkpoint(&taken), Err(Error::Foreign { found, .. }) if found == "notes"));
    assert!(matches!(db.checkpoint(taken.join("notes")), Err(Error::Foreign { .. })));
    assert!(db.checkpoint(scratch.root().join("no/such")).is_err());
    assert_eq!(files(&taken).len(), 1);
    let copy = reader(&scratch.root().join(COPY)).access(Access::ReadOnly).open().unwrap();
    assert_eq!(copy.keyspaces().len(), 2);
}

/// On another file system, which has no hard links to the store's files, tables are copied.
#[test]
fn a_checkpoint_on_another_file_system_is_copied() {
    let shared = Path::new("/dev/shm");
    if !shared.is_dir() {
        println!("no second file system here: not tried");
        return;
    }
    let scratch = Scratch::new();
    let other = tempfile::tempdir_in(shared).unwrap();
    checkpoints_are_apart(&scratch.data(), &other.path().join(COPY));
}
