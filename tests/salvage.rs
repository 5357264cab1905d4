//! Salvage where more than a block is damaged: footers, edits of the manifest, what is not there.

use std::fs;
use std::path::Path;

use trine::inspect::{self, Salvaged};
use trine::{Db, Keyspace, Ordered};

use super::support::{Files, Scratch, contents, files_but_lock, small, write_files};

const ITEMS_COUNT: u32 = 400;

/// A closed store of three keyspaces, 400 items each in one table; the values begin with the keyspace's name.
/// The first one is dropped if `drops` says so.
fn make(drops: Drops) -> Files {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).open().expect("a new store");
    for (name, prefix) in [("a", "z"), ("b", "0"), ("c", "5")] {
        let keyspace = db.ordered(name).open().expect("a new keyspace");
        for index in 0..ITEMS_COUNT {
            let value = format!("{name} {index} {}", "x".repeat((index % 90) as usize));
            keyspace.put(format!("{prefix}{index:05}"), value).expect("a write");
        }
    }
    db.flush().expect("a flush");
    if drops == Drops::First {
        db.drop_keyspace("a").expect("it is there");
    }
    db.close().expect("closes");
    files_but_lock(&scratch.data())
}

#[derive(PartialEq, Eq)]
enum Drops {
    None,
    First,
}

fn salvage(files: &Files, look: impl Fn(&Salvaged, &Db)) {
    let (scratch, target) = (Scratch::new(), Scratch::new());
    write_files(&scratch.data(), files);
    let salvaged = inspect::salvage(scratch.data(), target.data(), |_| {}).expect("damage is no error");
    assert!(files_but_lock(&scratch.data()) == *files, "a salvage changed its source");
    look(&salvaged, &Db::open(target.data()).expect("it is a store"));
}

/// The keyspace holds all items of `of`, and no other's.
fn is_whole(keyspace: &Keyspace<Ordered>, of: &str) {
    let items = contents(keyspace);
    assert_eq!(items.len(), ITEMS_COUNT as usize, "{of}");
    assert!(items.values().all(|value| value.starts_with(of.as_bytes())), "{of} has another's items");
}

fn ordered(db: &Db, name: &str) -> Keyspace<Ordered> {
    db.keyspace(name).expect("it is there").ordered().expect("it is ordered")
}

/// With the end of a table damaged, each keyspace gets its own items, also where a part of the table was a
/// dropped keyspace's, which stays dropped. There is no LOCK, as in a copy.
#[test]
fn slices_are_told_apart_without_the_end_of_the_file() {
    let mut files = make(Drops::First);
    let mut tables = files.iter_mut().filter(|(name, _)| name.starts_with("table"));
    let (_, bytes) = tables.next().expect("there is one");
    let at = bytes.len() - 4000;
    bytes[at] ^= 1;
    salvage(&files, |salvaged, db| {
        assert!(salvaged.is_order_known && !salvaged.report.findings.is_empty());
        ["b", "c"].iter().for_each(|name| is_whole(&ordered(db, name), name));
        assert!(db.keyspace("a").is_err() && db.keyspace("recovered-1").is_err());
    });
}

/// A keyspace of which the manifest's edit is lost comes back under another name, with all that is in its
/// tables; the others are as they were.
#[test]
fn lost_edits_lose_no_tables() {
    let files = make(Drops::None);
    let name = files.keys().find(|name| name.starts_with("manifest")).expect("there is one").clone();
    let id = |bytes: &[u8]| bytes.windows(2).position(|two| two == [1, b'b']).expect("its name is there");
    let mut files = files.clone();
    let at = id(&files[&name][12_288..]) + 12_288;
    files.get_mut(&name).expect("there")[at + 1] ^= 1;
    salvage(&files, |salvaged, db| {
        assert!(!salvaged.is_order_known && !salvaged.report.findings.is_empty());
        ["a", "c"].iter().for_each(|name| is_whole(&ordered(db, name), name));
        is_whole(&ordered(db, "recovered-2"), "b");
    });
}

/// A file that is missing, or is no file, costs its own items; nothing is salvaged into a place that is not
/// empty.
#[test]
fn what_is_not_there_is_passed_over() {
    let mut files = make(Drops::None);
    let table = files.keys().find(|name| name.starts_with("table")).expect("there is one").clone();
    files.remove(&table);
    salvage(&files, |salvaged, db| {
        assert_eq!((salvaged.writes, db.keyspaces().len()), (0, 3));
    });
    let (scratch, target) = (Scratch::new(), Scratch::new());
    write_files(&scratch.data(), &files);
    fs::create_dir(scratch.data().join(&table)).expect("makes");
    let report = inspect::verify(scratch.data(), |_| {}).expect("a file is no error of the check");
    assert!(report.findings.iter().all(|one| one.damage.file == table) && report.findings.len() == 3);
    let salvaged = inspect::salvage(scratch.data(), target.data(), |_| {}).expect("nor of a salvage");
    assert_eq!(salvaged.writes, 0);
    let (scratch, full) = (Scratch::new(), Scratch::new());
    write_files(&scratch.data(), &files);
    fs::create_dir_all(full.data()).expect("makes");
    fs::write(Path::new(&full.data()).join("mine"), b"").expect("writes");
    let refused = inspect::salvage(scratch.data(), full.data(), |_| {});
    assert!(matches!(refused, Err(trine::Error::Foreign { .. })), "{refused:?}");
}
