//! Stores in format versions 3 and 4, kept in `tests/fixtures`. A change of the format that breaks or alters
//! the reading of these bytes fails here.
//!
//! Zeros at the ends of the files are left out; `LENGTHS` has the full length of each. `write_the_fixture`
//! makes a fixture; it is run by hand, once for each version of the format.

use std::fs;
use std::path::{Path, PathBuf};

use trine::sim::{Crash, Stop, World};
use trine::{Access, Db, Error, Keyspace, Ordered};

use super::support::{Files, Model, Scratch, contents, reader, small, write_files};

/// The version that this release writes, and the oldest that it reads.
const VERSION: u32 = 4;
const VERSION_OLDEST: u32 = 3;

fn directory(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/store-v{version}"))
}

/// The value of an item; `None` is a delete. One value is larger than a block.
fn value(index: u32, version: u32) -> Option<Vec<u8>> {
    let length = if index == 20 { 4000 } else { 10 + index as usize % 23 };
    let bytes = (index * 3 + version).to_le_bytes().into_iter().cycle().take(length);
    (!(index + version).is_multiple_of(9)).then(|| bytes.collect())
}

/// The items of both keyspaces after all writes: fixed-length keys in one, keys of all lengths in the other.
fn expected() -> [Model; 2] {
    let mut models = [Model::new(), Model::new()];
    for version in 0..3 {
        for (index, keys) in written(version) {
            for (model, key) in models.iter_mut().zip(keys) {
                match value(index, version) {
                    Some(value) => drop(model.insert(key, value)),
                    None => drop(model.remove(&key)),
                }
            }
        }
    }
    models
}

fn written(version: u32) -> impl Iterator<Item = (u32, [Vec<u8>; 2])> {
    let step = [1, 5, 10][version as usize];
    (0..50u32).step_by(step).map(|index| {
        let long = vec![b'a' + (index % 26) as u8; index as usize % 40];
        (index, [index.to_be_bytes().to_vec(), [long, index.to_string().into_bytes()].concat()])
    })
}

fn keyspaces(db: &Db) -> [Keyspace<Ordered>; 2] {
    ["fixed keys", "schlüssel"].map(|name| db.ordered(name).open().expect("the keyspace is there"))
}

/// Writes the fixture anew: once for a new version of the format, never for a released one.
#[test]
#[ignore = "it writes into the tree; run by hand"]
fn write_the_fixture() {
    let world = World::new(1);
    let db = world.builder().memory_bytes(128 << 10).set("manifest_bytes", 16 << 10).open().expect("opens");
    db.ordered("fixed keys").set("size_ratio", 5).set("filter_bits_per_key", 0).open().expect("makes");
    db.ordered("dropped").open().expect("makes").put("a", "b").expect("writes");
    let keyspaces = keyspaces(&db);
    for version in 0..3 {
        for (index, keys) in written(version) {
            let mut batch = db.batch();
            for (keyspace, key) in keyspaces.iter().zip(keys) {
                match value(index, version) {
                    Some(value) => batch.put(keyspace, key, value).expect("small"),
                    None => batch.delete(keyspace, key).expect("small"),
                }
            }
            batch.commit().expect("writes");
        }
        match version {
            0 => db.compact().expect("merges"),
            1 => db.flush().expect("flushes"),
            _ => db.sync().expect("syncs"),
        }
    }
    // Writes one item again unchanged: the second sync of a page leaves a witness.
    let (index, [key, _]) = written(2).nth(1).expect("there are some");
    for _ in 0..2 {
        keyspaces[0].put(&key, value(index, 2).expect("it is there")).expect("writes");
        db.sync().expect("syncs");
    }
    db.drop_keyspace("dropped").expect("drops");
    drop(keyspaces);
    db.close().expect("closes");

    let (mut files, mut lengths) = (Files::new(), String::new());
    for name in world.files().expect("lists").into_iter().filter(|name| is_needed(&world, name)) {
        let mut bytes = world.contents(&name).expect("it is there");
        lengths.push_str(&format!("{} {name}\n", bytes.len()));
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(used);
        files.insert(name, bytes);
    }
    files.insert("LENGTHS".to_owned(), lengths.into_bytes());
    let _ = fs::remove_dir_all(directory(VERSION)); // There may be none.
    write_files(&directory(VERSION), &files);
}

/// Whether the store needs the file; false for a log that is kept only for reuse.
fn is_needed(world: &World, name: &str) -> bool {
    let without = world.crash(Crash::Process, 0);
    without.set_contents(name, None);
    !name.starts_with("log")
        || without.builder().memory_bytes(128 << 10).access(Access::ReadOnly).open().is_err()
}

/// The files of a version's fixture.
fn fixture(version: u32) -> Files {
    let directory = directory(version);
    let lengths = fs::read_to_string(directory.join("LENGTHS")).expect("the fixture is in the tree");
    let mut files = Files::new();
    for line in lengths.lines() {
        let (length, name) = line.split_once(' ').expect("a length and a name");
        let mut bytes = fs::read(directory.join(name)).expect("the file is in the tree");
        bytes.resize(length.parse().expect("a length"), 0);
        files.insert(name.to_owned(), bytes);
    }
    files
}

/// The version in a file's header.
fn version_of(bytes: &[u8]) -> u32 {
    bytes[12..16].first_chunk().map(|version| u32::from_le_bytes(*version)).expect("a header")
}

/// The versions of a store's manifests, logs and tables, without duplicates.
fn versions(files: &Files) -> [Vec<u32>; 3] {
    ["manifest", "log", "table"].map(|kind| {
        let of_kind = files.iter().filter(|(name, _)| name.starts_with(kind));
        let mut versions: Vec<u32> = of_kind.map(|(_, bytes)| version_of(bytes)).collect();
        versions.sort_unstable();
        versions.dedup();
        versions
    })
}

/// Opening an old store for reading writes nothing. Opening for writing makes a manifest of this version;
/// tables and logs keep theirs until they are rewritten. A power cut at any call loses nothing.
#[test]
fn old_stores_get_a_new_manifest() {
    let [fixed, other] = expected();
    let check = |db: &Db, index: u64| {
        let [one, two] = keyspaces(db);
        assert!(contents(&one) == fixed && contents(&two) == other, "cut at call {index}");
    };
    let made = || {
        let world = World::new(1);
        drop(world.builder().open().expect("a new store, for its directory"));
        for name in world.files().expect("lists") {
            world.set_contents(&name, None);
        }
        for (name, bytes) in fixture(VERSION_OLDEST) {
            world.set_contents(&name, Some(&bytes));
        }
        world.crash(Crash::Process, 1)
    };
    let files_of = |world: &World| -> Files {
        let names = world.files().expect("lists").into_iter();
        names.map(|name| (name.clone(), world.contents(&name).expect("it is there"))).collect()
    };
    let world = made();
    let before = files_of(&world);
    assert_eq!(versions(&before), [vec![3], vec![3], vec![3]]);
    let reading = || world.builder().memory_bytes(128 << 10).access(Access::ReadOnly).open();
    drop(reading().expect("an old store opens"));
    assert!(files_of(&world) == before, "it was only read");

    let open = |world: &World| world.builder().memory_bytes(128 << 10).open();
    let calls = {
        let db = open(&world).expect("an old store opens");
        let calls = world.calls();
        assert_eq!(versions(&files_of(&world)), [vec![4], vec![3], vec![3]]);
        check(&db, calls);
        db.compact().expect("merges");
        check(&db, calls);
        assert_eq!(versions(&files_of(&world))[2], [4]);
        calls
    };
    for index in 0..calls {
        let world = made();
        world.stop(Stop::Before, index);
        // Other tests check the result of a stopped opening.
        drop(open(&world));
        let world = world.crash(Crash::Power, index);
        let db = open(&world).unwrap_or_else(|error| panic!("cut at call {index}: {error}"));
        check(&db, index);
        drop(db);
        assert_eq!(versions(&files_of(&world))[0], [4], "cut at call {index}");
    }
}

/// A store of each readable version opens for reading and for writing. It holds all its items, in tables and
/// log, has its settings, and can be merged.
#[test]
fn format_versions_are_read() {
    (VERSION_OLDEST..=VERSION).for_each(is_read);
}

fn is_read(version: u32) {
    let scratch = Scratch::new();
    write_files(&scratch.data(), &fixture(version));
    let store = fs::read(scratch.data().join("STORE")).expect("it is there");
    assert!(store[3 * 4096..].iter().any(|byte| *byte != 0), "it has a witness");
    let models = expected();
    let check = |db: &Db| {
        for (keyspace, model) in keyspaces(db).iter().zip(&models) {
            assert_eq!(contents(keyspace), *model);
            for (key, value) in model {
                assert_eq!(keyspace.get(key).expect("reads").as_ref().map(AsRef::as_ref), Some(&value[..]));
            }
        }
        let setting = |name| keyspaces(db)[0].settings().into_iter().find(|one| one.name == name);
        assert_eq!(setting("size_ratio").map(|one| one.value), Some(5));
        assert_eq!(setting("filter_bits_per_key").map(|one| one.value), Some(0));
        assert_eq!(db.keyspaces().len(), 2);
    };
    let db = reader(&scratch.data()).open().expect("an old store opens");
    check(&db);
    let stats = db.stats();
    assert!(stats.recovery.replayed_items > 0, "the log is read too");
    assert!(stats.keyspaces.iter().all(|one| one.levels.len() == 2), "{:?}", stats.keyspaces);
    db.close().expect("closes");
    for _ in 0..2 {
        let db = small(&scratch.data()).open().expect("an old store opens");
        check(&db);
        db.compact().expect("merges");
        check(&db);
        db.close().expect("closes");
    }
}

/// A store of format version 1 or 2, from before any release, is refused by name and not touched.
#[test]
fn older_formats_are_refused() {
    for (version, bytes) in [(1, 8268), (2, 12_288)] {
        let scratch = Scratch::new();
        let old = format!("tests/fixtures/store-v{version}/STORE");
        let mut store =
            fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(old)).expect("the file is in the tree");
        store.resize(bytes, 0);
        let files = Files::from([("STORE".to_owned(), store), ("LOCK".to_owned(), Vec::new())]);
        write_files(&scratch.data(), &files);
        for builder in [reader(&scratch.data()), small(&scratch.data())] {
            match builder.open() {
                Err(Error::Unsupported { file, what }) => {
                    assert_eq!((&*file, what), ("STORE", format!("format version {version}")));
                }
                other => panic!("not refused: {other:?}"),
            }
        }
        for (name, bytes) in files {
            assert_eq!(fs::read(scratch.data().join(&name)).expect("it is there"), bytes, "{name}");
        }
    }
}
