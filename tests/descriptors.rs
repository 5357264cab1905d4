//! Few file descriptors: a store with far more tables than its process may open files.

use std::path::Path;

use trine::Db;

use super::child;

const SPACES_COUNT: usize = 300;
/// The process's limit of open descriptors; `open_files_max` of the store is the same.
const DESCRIPTORS_MAX: u64 = 64;

fn name(space: usize) -> String {
    format!("space {space}")
}

/// The child of `hundreds_of_tables_need_few_descriptors`.
pub(crate) fn with_few(data: &Path) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = rustix::process::Rlimit { current: Some(DESCRIPTORS_MAX), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let open = || Db::builder(data).memory_bytes(32 << 20).set("open_files_max", 64).open().unwrap();
    let db = open();
    for space in 0..SPACES_COUNT {
        db.ordered(&name(space)).open().unwrap().put("key", space.to_be_bytes()).unwrap();
    }
    db.compact().unwrap();
    let tables: u64 = db.stats().keyspaces.iter().map(|keyspace| keyspace.tables).sum();
    assert_eq!(tables, SPACES_COUNT as u64);
    db.close().unwrap();
    let db = open();
    for round in 0..3 {
        for space in 0..SPACES_COUNT {
            let keyspace = db.keyspace(&name(space)).unwrap();
            assert_eq!(keyspace.get("key").unwrap().as_deref(), Some(&space.to_be_bytes()[..]));
            keyspace.put(format!("round {round}"), "more").unwrap();
        }
        db.flush().unwrap();
    }
    assert!(db.stats().io.open_files <= DESCRIPTORS_MAX);
}

/// A process that may open 64 files writes, merges, reopens and reads hundreds of tables.
#[test]
fn hundreds_of_tables_need_few_descriptors() {
    let parent = tempfile::tempdir().unwrap();
    child::run_well(&[], "few descriptors", &parent.path().join("store"));
}
