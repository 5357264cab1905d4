//! Opens a whole store from changed files. The store is simulated, so that the target is quick and leaves no
//! files.
//!
//! The input selects a store and the changes: the store's number, then for each change a file, an offset of
//! three bytes, a length and the bytes. A length of 0 cuts the file at the offset. Without corrected
//! checksums ([`Mode::Raw`]), changes must be detected: every answer is right or an error. With corrected
//! checksums ([`Mode::Sealed`]) answers may be wrong, but every call returns.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use trine::fuzz::{Files, Mode, seal};
use trine::sim::World;
use trine::{Access, Db, Error};

type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

struct Base {
    files: Files,
    contents: Contents,
}

const CHANGES_MAX: usize = 16;

fn open(world: &World, access: Access) -> trine::Result<Db> {
    world.builder().memory_bytes(128 << 10).set("manifest_bytes", 16 << 10).access(access).open()
}

fn bases() -> &'static [Base; 2] {
    static BASES: OnceLock<[Base; 2]> = OnceLock::new();
    BASES.get_or_init(|| [base(0), base(1)])
}

/// A store with two keyspaces, which have items in the log and in tables of two levels, and deleted ranges.
fn base(number: u64) -> Base {
    let world = World::new(number + 1);
    let db = open(&world, Access::ReadWrite).expect("a new store");
    for (index, name) in ["left", "right"].into_iter().enumerate() {
        let keyspace = db
            .ordered(name)
            .set("compression", number)
            .set("filter_kind", 2 + number + index as u64)
            .open()
            .expect("a new keyspace");
        for version in 0..3u32 {
            for item in (0..60u32).step_by(1 + version as usize) {
                let value = format!("{name} {item} {version} ").repeat(1 + item as usize % 9);
                keyspace.put(item.to_be_bytes(), value).expect("a write");
            }
            keyspace.delete(7u32.to_be_bytes()).expect("a write");
            match version {
                0 => db.compact().expect("merges"),
                1 => {
                    keyspace.delete_range(20u32.to_be_bytes()..30u32.to_be_bytes()).expect("a write");
                    db.flush().expect("flushes");
                }
                _ => db.sync().expect("syncs"),
            }
        }
    }
    let contents = read(&db).expect("it is sound");
    db.close().expect("closes");
    let names = world.files().expect("there is a directory");
    let files = names.into_iter().filter(|name| name != "LOCK");
    let files = files.map(|name| (name.clone(), world.contents(&name).expect("listed"))).collect();
    Base { files, contents }
}

/// All items of all keyspaces.
fn read(db: &Db) -> trine::Result<Contents> {
    let mut contents = Contents::new();
    for name in db.keyspaces().into_iter().map(|one| one.name) {
        let keyspace = db.keyspace(&name)?.ordered()?;
        let items: trine::Result<Vec<_>> = keyspace.iter().take(10_000).collect();
        let items = items?.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
        contents.insert(name, items.collect());
    }
    Ok(contents)
}

fn changed(base: &Base, mut bytes: &[u8]) -> Files {
    let mut files = base.files.clone();
    for _ in 0..CHANGES_MAX {
        let [file, low, middle, high, length, rest @ ..] = bytes else { break };
        let (new, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        bytes = rest;
        let index = usize::from(*file) % files.len();
        let file = files.values_mut().nth(index).expect("it is below the number of files");
        let at = u32::from_le_bytes([*low, *middle, *high, 0]) as usize % (file.len() + 1);
        if *length == 0 {
            file.truncate(at);
            continue;
        }
        let end = file.len().min(at + new.len());
        file[at..end].copy_from_slice(&new[..end - at]);
    }
    files
}

/// Runs the target on one input; see the module.
pub(crate) fn run(bytes: &[u8], mode: Mode) {
    let Some((number, bytes)) = bytes.split_first() else { return };
    let base = &bases()[usize::from(*number) % 2];
    let mut files = changed(base, bytes);
    if mode == Mode::Sealed {
        seal(&mut files);
    }
    let world = World::new(9);
    drop(open(&world, Access::ReadWrite));
    for name in world.files().unwrap_or_default().iter().filter(|name| *name != "LOCK") {
        world.set_contents(name, None);
    }
    for (name, bytes) in &files {
        world.set_contents(name, Some(bytes));
    }
    let db = match open(&world, Access::ReadOnly) {
        Ok(db) => db,
        Err(error) => return is_told(&error, mode),
    };
    match read(&db) {
        Ok(contents) if mode == Mode::Raw => assert!(contents == base.contents, "SILENT: a wrong answer"),
        Ok(_) => {}
        Err(error) => is_told(&error, mode),
    }
    for (name, items) in &base.contents {
        let Ok(keyspace) = db.keyspace(name) else { continue };
        for (key, value) in items.iter().step_by(7) {
            match keyspace.get(key) {
                Ok(found) if mode == Mode::Raw => assert_eq!(found.as_deref(), Some(&value[..])),
                Ok(_) => {}
                Err(error) => is_told(&error, mode),
            }
        }
    }
    // The result depends on the damage.
    let _ = db.verify(|_| {});
    drop(db);
    if mode == Mode::Sealed {
        // The write may fail, but each call must return.
        let _ = write(&world);
    }
}

fn write(world: &World) -> trine::Result<()> {
    let db = open(world, Access::ReadWrite)?;
    let more = db.ordered("more").open()?;
    more.put("a", "1")?;
    // Flushes continue even if merges fail.
    let _ = db.flush().and_then(|()| db.compact());
    more.put("b", "2")?;
    db.close()
}

fn is_told(error: &Error, mode: Mode) {
    let is_damage =
        matches!(error, Error::Corrupt(_)) || matches!(error, Error::Foreign { path, .. } if path == "STORE");
    assert!(is_damage || mode == Mode::Sealed, "not told as damage: {error}");
}
