//! Shared helpers of the tests: directories, models, patched files. No tests of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use trine::{
    Access, Builder, Db, Error, Hashed, Keyspace, KeyspaceInfo, Ordered, Partitioned, Partitioning, Result,
    Value,
};

/// The smallest budget that a user may set.
pub(crate) const MEMORY_BYTES_MIN: u64 = 32 << 20;

/// A directory that is removed with the test; the store is in `data` inside it.
pub(crate) struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    /// The path of the store.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }
}

/// A builder of a small store.
pub(crate) fn small(path: &Path) -> Builder {
    Db::builder(path).memory_bytes(MEMORY_BYTES_MIN).set("manifest_bytes", 16 << 10)
}

/// A builder that opens for reading only.
pub(crate) fn reader(path: &Path) -> Builder {
    small(path).access(Access::ReadOnly)
}

/// The expected items of a keyspace.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The names of all maps of a store: each keyspace, or for a partitioned one `keyspace/partition` for each
/// partition.
pub(crate) fn names(db: &Db) -> Vec<String> {
    let of = |one: KeyspaceInfo| match one.is_partitioned {
        false => vec![one.name],
        true => {
            let partitions = divided(db, &one.name).partitions().expect("it is there");
            let name = |partition: Vec<u8>| format!("{}/{}", one.name, partition.escape_ascii());
            partitions.into_iter().map(name).collect()
        }
    };
    db.keyspaces().into_iter().flat_map(of).collect()
}

/// The map of such a name.
pub(crate) fn find(db: &Db, name: &str) -> Result<Keyspace<Ordered>> {
    let Some((keyspace, partition)) = name.split_once('/') else { return db.keyspace(name)?.ordered() };
    let missing = || Error::NoKeyspace { name: name.to_owned() };
    if !db.contains_keyspace(keyspace) {
        return Err(missing());
    }
    divided(db, keyspace).find_partition(partition)?.ok_or_else(missing)
}

pub(crate) fn divided(db: &Db, name: &str) -> Partitioned {
    db.ordered(name).partition_by(Partitioning::explicit()).open().expect("it is divided, or new")
}

/// The hashed keyspace of that name, if it is one.
pub(crate) fn find_hashed(db: &Db, name: &str) -> Option<Keyspace<Hashed>> {
    db.keyspace(name).and_then(|any| any.hashed()).ok()
}

/// All items of the keyspace of that name, ordered or hashed.
pub(crate) fn contents_of(db: &Db, name: &str) -> Model {
    let Some(hashed) = find_hashed(db, name) else { return contents(&find(db, name).expect("it is there")) };
    let own = |(key, value): (Value, Value)| (key.into(), value.into());
    hashed.iter_unordered().map(|item| own(item.expect("an undamaged store is read to its end"))).collect()
}

/// All items of the keyspace.
pub(crate) fn contents(keyspace: &Keyspace<Ordered>) -> Model {
    keyspace
        .iter()
        .map(|item| {
            let (key, value) = item.expect("an undamaged store is read to its end");
            (key.into(), value.into())
        })
        .collect()
}

/// All files of a directory, with their bytes.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

pub(crate) fn files(directory: &Path) -> Files {
    let entries = fs::read_dir(directory).expect("the directory is there");
    entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("names are text");
            (name, fs::read(entry.path()).expect("a file of ours"))
        })
        .collect()
}

/// As [`files`], without LOCK, which an opening for writing may make.
pub(crate) fn files_but_lock(directory: &Path) -> Files {
    let mut files = files(directory);
    files.remove("LOCK");
    files
}

pub(crate) fn write_files(directory: &Path, files: &Files) {
    fs::create_dir_all(directory).expect("a directory to write to");
    for (name, bytes) in files {
        fs::write(directory.join(name), bytes).expect("a file of ours");
    }
}

/// Offsets of the header's fields, as in docs/FORMAT.md.
pub(crate) mod header {
    pub(crate) const KIND: usize = 8;
    pub(crate) const VERSION: usize = 12;
    pub(crate) const FEATURES: usize = 16;
    pub(crate) const UID: usize = 40;
    pub(crate) const CHECKSUM: usize = 48;
}

/// Corrects the checksum of a changed header.
pub(crate) fn seal_header(page: &mut [u8]) {
    let uid = page[header::UID..header::CHECKSUM].to_vec();
    let place = crc32c::crc32c_append(crc32c::crc32c(&uid), &[0; 8]);
    let place = crc32c::crc32c_append(place, &page[header::KIND..=header::KIND]);
    let checksum = crc32c::crc32c_append(place, &page[..header::CHECKSUM]);
    page[header::CHECKSUM..header::CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// The error of an opening that must fail.
pub(crate) fn refused(builder: Builder) -> Error {
    match builder.open() {
        Ok(_) => panic!("it opened"),
        Err(error) => checked_message(error),
    }
}

/// Checks the form of an error's message: one text of whole sentences that name the subject, without debug
/// output.
pub(crate) fn checked_message(error: Error) -> Error {
    let text = error.to_string();
    assert!(text.len() > 20 && text.contains(' '), "too short: {text}");
    assert!(!text.ends_with('.') && !text.contains('\n'), "one line without a full stop: {text}");
    for debug in ["Some(", "None", "Error {", "Os {", "{ "] {
        assert!(!text.contains(debug), "debug output in: {text}");
    }
    error
}
