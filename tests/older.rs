//! Older versions of files: a log or manifest of an earlier time is put back into a closed store.

use std::fs;

use trine::{Durability, Error, inspect};

use super::support::{
    Files, Model, Scratch, checked_message, contents, files_but_lock, reader, small, write_files,
};

/// A closed store, and its files at earlier times.
struct Written {
    files: Files,
    earlier: Vec<Files>,
    model: Model,
}

/// Writes items to one log after another, some flushed and some not.
fn written(flushes: u32) -> Written {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).durability(Durability::Sync).open().expect("a new store");
    let items = db.ordered("items").open().expect("a new keyspace");
    let mut earlier = vec![files_but_lock(&scratch.data())];
    for turn in 0..=flushes {
        for index in 0..30 {
            items.put(format!("{index:03}"), format!("{turn} of {index}")).expect("a write");
            if index % 10 == 0 {
                earlier.push(files_but_lock(&scratch.data()));
            }
        }
        if turn < flushes {
            db.flush().expect("a flush");
        }
    }
    let model = contents(&items);
    drop(items);
    db.close().expect("closes");
    Written { files: files_but_lock(&scratch.data()), earlier, model }
}

/// Puts back each earlier state of the files of this kind, one at a time. Returns how many were refused, and
/// how many made no difference; any other outcome fails.
fn put_back(written: &Written, kind: &str) -> (u32, u32) {
    let (mut refused, mut harmless) = (0, 0);
    for moment in &written.earlier {
        for (name, bytes) in moment.iter().filter(|(name, _)| name.starts_with(kind)) {
            if written.files.get(name).is_none_or(|now| now == bytes) {
                continue;
            }
            let scratch = Scratch::new();
            let data = scratch.data();
            write_files(&data, &written.files);
            fs::write(data.join("LOCK"), b"").expect("writes");
            fs::write(data.join(name), bytes).expect("writes");
            let report = inspect::verify(&data, |_| {}).expect("damage is no error of the check");
            match reader(&data).open() {
                Ok(db) => {
                    let items = db.ordered("items").open().expect("the manifest was read");
                    assert_eq!(contents(&items), written.model, "{name}");
                    harmless += 1;
                }
                Err(error) => {
                    let Error::Corrupt(at) = checked_message(error) else { panic!("not told as damage") };
                    assert!(at.file == *name || at.file.starts_with("log"), "{name}: {at:?}");
                    assert!(!report.findings.is_empty(), "{name}");
                    refused += 1;
                }
            }
        }
    }
    println!("{kind}: refused {refused}, harmless {harmless}");
    (refused, harmless)
}

/// An older log that is put back whole lacks its end; the manifest of a closed store records the end. Before
/// this check, the store took it for complete: later writes were missing and deleted items came back, without
/// an error.
#[test]
fn f14_a_closed_store_tells_an_older_log() {
    let written = written(1);
    let (refused, _) = put_back(&written, "log");
    assert!(refused >= 3, "{refused}");
}

/// An older manifest that is put back whole may name none of the later logs. Before this check, the store
/// removed these logs as left over, with all their writes.
#[test]
fn f14_later_logs_tell_an_older_manifest() {
    let mut refused = 0;
    for flushes in 0..3 {
        refused += put_back(&written(flushes), "manifest").0;
    }
    assert!(refused >= 3, "{refused}");
}

/// Logs that an older manifest does not name are still salvaged, whether the manifest is refused or not.
#[test]
fn later_logs_are_salvaged() {
    let written = written(1);
    let mut salvages = 0;
    for moment in &written.earlier {
        let (scratch, target) = (Scratch::new(), Scratch::new());
        write_files(&scratch.data(), &written.files);
        for (name, bytes) in moment.iter().filter(|(name, _)| name.starts_with("manifest")) {
            fs::write(scratch.data().join(name), bytes).expect("writes");
        }
        let salvaged = inspect::salvage(scratch.data(), target.data(), |_| {}).expect("damage is no error");
        let db = reader(&target.data()).open().expect("it is a store");
        let made = db.keyspaces().into_iter().map(|one| {
            let keyspace = db.keyspace(&one.name).and_then(|one| one.ordered()).expect("it is there");
            contents(&keyspace)
        });
        let made: Vec<Model> = made.collect();
        // The items may be in separate keyspaces if their order is unknown.
        for (key, value) in &written.model {
            let is_there = made.iter().any(|model| model.get(key) == Some(value));
            assert!(is_there, "{key:?}: {salvaged:?}");
        }
        salvages += 1;
    }
    assert!(salvages > 3, "{salvages}");
}
