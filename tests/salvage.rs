//! Salvage with larger damage than a block: footers, edits of the manifest, missing files.

use std::fs;
use std::path::Path;

use trine::inspect::{self, Doubt, Salvaged};
use trine::sim::World;
use trine::{Access, Db, Keyspace, Ordered};

use super::support::{Files, Scratch, contents, files_but_lock, small, write_files};

const ITEMS_COUNT: u32 = 400;

/// A closed store of three keyspaces, 400 items each in one table; the values begin with the keyspace's name.
/// `drops` says whether the first one is dropped.
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

fn salvage(files: &Files, mut look: impl FnMut(&Salvaged, &Db)) {
    let (scratch, target) = (Scratch::new(), Scratch::new());
    write_files(&scratch.data(), files);
    let salvaged = inspect::salvage(scratch.data(), target.data(), |_| {}).expect("damage is no error");
    assert!(files_but_lock(&scratch.data()) == *files, "a salvage changed its source");
    look(&salvaged, &Db::open(target.data()).expect("it is a store"));
}

/// As [`salvage`], on a simulated disk, which takes a hundredth of the time.
fn salvage_simulated(files: &Files, look: impl FnOnce(&Salvaged, &Db)) {
    let (world, target) = (World::new(1), World::new(2));
    world.builder().memory_bytes(256 << 10).open().and_then(|db| db.close()).expect("a new store");
    for name in world.files().expect("it was made").iter().filter(|name| *name != "LOCK") {
        world.set_contents(name, None);
    }
    files.iter().for_each(|(name, bytes)| world.set_contents(name, Some(bytes)));
    let salvaged = world.salvage(&target).expect("damage is no error");
    assert!(files.iter().all(|(name, bytes)| world.contents(name).as_ref() == Some(bytes)), "it was changed");
    look(
        &salvaged,
        &target.builder().memory_bytes(256 << 10).access(Access::ReadOnly).open().expect("it is a store"),
    );
}

/// Asserts that the keyspace holds all items of `of` and no others.
fn is_whole(keyspace: &Keyspace<Ordered>, of: &str) {
    let items = contents(keyspace);
    assert_eq!(items.len(), ITEMS_COUNT as usize, "{of}");
    assert!(items.values().all(|value| value.starts_with(of.as_bytes())), "{of} has another's items");
}

fn ordered(db: &Db, name: &str) -> Keyspace<Ordered> {
    db.keyspace(name).expect("it is there").ordered().expect("it is ordered")
}

/// If the end of a table is damaged, each keyspace still gets its own items. Slices of a dropped keyspace
/// stay dropped. There is no LOCK, as in a copy.
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
        assert!(db.keyspaces().len() == 2 && salvaged.doubtful.is_empty(), "what was dropped is back");
    });
}

/// A keyspace whose edit in the manifest is lost comes back under another name, with all items of its tables.
/// The other keyspaces are unchanged.
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
        is_whole(&ordered(db, "salvaged-unknown-2"), "b");
        let [doubtful] = &salvaged.doubtful[..] else { panic!("{salvaged:?}") };
        assert_eq!((&*doubtful.keyspace, doubtful.doubt), ("salvaged-unknown-2", Doubt::Unknown));
        assert_eq!((doubtful.of.as_ref(), doubtful.writes), (None, ITEMS_COUNT.into()));
        assert!(doubtful.files.len() == 1 && doubtful.files[0].starts_with("table-"), "{doubtful:?}");
    });
}

/// The current manifest of an open store.
fn manifest_of(data: &Path) -> (String, Vec<u8>) {
    let names = fs::read_dir(data).expect("it is there").map(|entry| entry.expect("an entry").file_name());
    let mut names = names.map(|name| name.into_string().expect("names are text"));
    let name = names.find(|name| name.starts_with("manifest")).expect("there is one");
    let bytes = fs::read(data.join(&name)).expect("reads");
    (name, bytes)
}

fn names<'f>(files: &'f Files, kind: &str) -> Vec<&'f String> {
    files.keys().filter(|name| name.starts_with(kind)).collect()
}

/// A store of one keyspace with two tables. The second has newer values of the first half of the keys, and
/// lacks one that was deleted. Also the manifest from before the second table. Both have a keyspace with a
/// name that salvage would use.
fn make_older() -> (Files, (String, Vec<u8>)) {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).open().expect("a new store");
    let users = db.ordered("users").open().expect("a new keyspace");
    db.ordered("salvaged-unnamed-1-users")
        .open()
        .expect("any name will do")
        .put("mine", "1")
        .expect("a write");
    for index in 0..ITEMS_COUNT {
        users.put(format!("{index:05}"), "old").expect("a write");
    }
    db.flush().expect("a flush");
    let (manifest, bytes) = manifest_of(&scratch.data());
    for index in 0..ITEMS_COUNT / 2 {
        users.put(format!("{index:05}"), "new").expect("a write");
    }
    users.delete("00399").expect("a write");
    db.flush().expect("a flush");
    db.close().expect("closes");
    let files = files_but_lock(&scratch.data());
    assert!(names(&files, "table").len() == 2 && files[&manifest] != bytes);
    (files, (manifest, bytes))
}

fn count_of(keyspace: &Keyspace<Ordered>, value: &str) -> usize {
    contents(keyspace).values().filter(|found| ***found == *value.as_bytes()).count()
}

/// Under an older manifest, all items of tables that it does not name are salvaged into keyspaces apart from
/// those it names. Names in use are not reused. If the logs of that time are still there, nothing is lost
/// except the name.
#[test]
fn tables_that_an_older_manifest_does_not_name_are_salvaged() {
    let (mut files, (manifest, bytes)) = make_older();
    files.insert(manifest, bytes);
    for has_logs in [true, false] {
        files.retain(|name, _| has_logs || !name.starts_with("log"));
        salvage(&files, |salvaged, db| {
            let users = ordered(db, "users");
            // The log with the other items was removed after their flush.
            assert_eq!((count_of(&users, "old"), count_of(&users, "new")), (400, 0));
            let [doubtful] = &salvaged.doubtful[..] else { panic!("{salvaged:?}") };
            assert_eq!((doubtful.doubt, doubtful.of.as_deref()), (Doubt::Unnamed, Some("users")));
            assert_eq!(doubtful.keyspace, "salvaged-unnamed-1-users-2");
            let unnamed = ordered(db, &doubtful.keyspace);
            assert_eq!(
                (contents(&unnamed).len(), count_of(&unnamed, "new")),
                (200, 200),
                "deletes are left out"
            );
            assert_eq!((salvaged.unplaced.len(), doubtful.writes), (1, 200));
            let other = db.keyspace("salvaged-unnamed-1-users").expect("it is there");
            assert_eq!(contents(&other.ordered().expect("it is ordered")).len(), 1);
        });
    }
}

/// If a manifest names missing tables, and there are tables that it does not name, it is an older one for
/// their keyspace: all its items are doubtful.
#[test]
fn keyspaces_of_an_older_manifest_are_doubtful() {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).open().expect("a new store");
    let names_of = ["quiet", "users"];
    let [quiet, users] = names_of.map(|name| db.ordered(name).open().expect("a new keyspace"));
    for index in 0..ITEMS_COUNT {
        quiet.put(format!("{index:05}"), "quiet").expect("a write");
        users.put(format!("{index:05}"), "old").expect("a write");
        if index == ITEMS_COUNT / 2 || index == ITEMS_COUNT - 1 {
            // One after the other: merged together they would share a file, which would stay for the other
            // keyspace.
            quiet.compact().expect("merges");
            users.compact().expect("merges");
        }
    }
    let (manifest, bytes) = manifest_of(&scratch.data());
    for index in 0..ITEMS_COUNT {
        users.put(format!("{index:05}"), "new").expect("a write");
    }
    users.compact().expect("merges");
    db.close().expect("closes");
    let mut files = files_but_lock(&scratch.data());
    files.retain(|name, _| !name.starts_with("log"));
    files.insert(manifest, bytes).expect("it is still that file");
    salvage(&files, |salvaged, db| {
        assert!(!salvaged.is_order_known);
        assert_eq!(count_of(&ordered(db, "quiet"), "quiet"), ITEMS_COUNT as usize);
        assert!(contents(&ordered(db, "users")).is_empty(), "what is older is not sure");
        let [doubtful] = &salvaged.doubtful[..] else { panic!("{salvaged:?}") };
        assert_eq!((doubtful.doubt, doubtful.of.as_deref()), (Doubt::Unnamed, Some("users")));
        assert_eq!(count_of(&ordered(db, &doubtful.keyspace), "new"), ITEMS_COUNT as usize);
    });
}

/// With the names of two tables, two logs, or any two files swapped, all files are used.
#[test]
fn files_under_the_names_of_others_are_salvaged() {
    let (files, _) = make_older();
    let all: Vec<String> = files.keys().cloned().collect();
    let mut count = 0;
    for (one, other) in all.iter().flat_map(|one| all.iter().map(move |other| (one, other))) {
        if one >= other {
            continue;
        }
        let mut files = files.clone();
        let bytes = files.insert(one.clone(), files[other].clone()).expect("it is there");
        files.insert(other.clone(), bytes);
        salvage_simulated(&files, |salvaged, db| {
            assert!(salvaged.is_order_known && salvaged.doubtful.is_empty(), "{one} {other}: {salvaged:?}");
            let users = ordered(db, "users");
            assert_eq!((count_of(&users, "new"), count_of(&users, "old")), (200, 199), "{one} {other}");
        });
        count += 1;
    }
    assert!(count >= 10, "{count}");
}

/// If two pages of a table are swapped, the end of the table among them, no item comes back in another
/// keyspace. Items of unknown origin go to a separate keyspace and are reported.
#[test]
fn pages_in_each_others_place_mix_no_keyspaces() {
    let files = make(Drops::None);
    let table = names(&files, "table")[0].clone();
    let pages = files[&table].len() / 4096;
    let (mut apart, mut sure) = (0, 0);
    for page in 1..pages - 1 {
        // The footer is in the last page but one, the tail in the last.
        for other in (pages - 2..pages).filter(|other| *other != page) {
            let mut files = files.clone();
            let bytes = files.get_mut(&table).expect("it is there");
            let (one, two) = bytes.split_at_mut(other * 4096);
            one[page * 4096..][..4096].swap_with_slice(&mut two[..4096]);
            salvage_simulated(&files, |salvaged, db| {
                for name in ["a", "b", "c"] {
                    let mut values = contents(&ordered(db, name)).into_values();
                    assert!(values.all(|value| value.starts_with(name.as_bytes())), "{page} {other}: {name}");
                }
                for doubtful in &salvaged.doubtful {
                    let values: Vec<Vec<u8>> =
                        contents(&ordered(db, &doubtful.keyspace)).into_values().collect();
                    assert!(values.iter().all(|value| value[0] == values[0][0]), "{page} {other}");
                    apart += values.len();
                }
                sure += ["a", "b", "c"].map(|name| contents(&ordered(db, name)).len()).iter().sum::<usize>();
            });
        }
    }
    assert!(apart > 1000 && sure > apart, "{apart} {sure}");
}

/// A table in many pieces, with a damaged end, becomes one keyspace and not many.
#[test]
fn many_pieces_of_a_table_share_a_keyspace() {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).open().expect("a new store");
    let users = db.ordered("users").open().expect("a new keyspace");
    for index in 0..1000 {
        users.put(format!("{index:05}"), "x".repeat(300)).expect("a write");
    }
    db.flush().expect("a flush");
    db.close().expect("closes");
    let mut files = files_but_lock(&scratch.data());
    files.retain(|name, _| !name.starts_with("log"));
    let table = names(&files, "table")[0].clone();
    let bytes = files.get_mut(&table).expect("it is there");
    let end = bytes.len() - 3 * 4096;
    // Every fourth page, and the end.
    for at in (4 * 4096..end).step_by(4 * 4096).chain((end..bytes.len()).step_by(512)) {
        bytes[at + 20] ^= 1;
    }
    salvage_simulated(&files, |salvaged, db| {
        let [doubtful] = &salvaged.doubtful[..] else { panic!("{salvaged:?}") };
        assert_eq!((doubtful.doubt, &doubtful.of), (Doubt::Unknown, &None));
        let found = contents(&ordered(db, &doubtful.keyspace)).len();
        assert!((600..800).contains(&found), "{found} of 1000");
        assert!(contents(&ordered(db, "users")).is_empty());
    });
}

/// A missing file, or a directory in its place, costs only its own items. Salvage into a directory that is
/// not empty is refused.
#[test]
fn missing_files_cost_only_their_items() {
    let mut files = make(Drops::None);
    let table = files.keys().find(|name| name.starts_with("table")).expect("there is one").clone();
    files.remove(&table);
    // Logs that are still there may have the table's items.
    let apart = |salvaged: &Salvaged| {
        assert!(salvaged.doubtful.iter().all(|one| one.doubt == Doubt::Log), "{salvaged:?}");
        salvaged.doubtful.iter().map(|one| one.writes).sum::<u64>()
    };
    salvage(&files, |salvaged, db| {
        assert_eq!(salvaged.writes, apart(salvaged));
        assert!(["a", "b", "c"].iter().all(|name| contents(&ordered(db, name)).is_empty()));
    });
    let (scratch, target) = (Scratch::new(), Scratch::new());
    write_files(&scratch.data(), &files);
    fs::create_dir(scratch.data().join(&table)).expect("makes");
    let report = inspect::verify(scratch.data(), |_| {}).expect("a file is no error of the check");
    assert!(report.findings.iter().all(|one| one.damage.file == table) && report.findings.len() == 3);
    let salvaged = inspect::salvage(scratch.data(), target.data(), |_| {}).expect("nor of a salvage");
    assert_eq!(salvaged.writes, apart(&salvaged));
    assert_eq!(salvaged.unused, std::slice::from_ref(&table));
    let (scratch, full) = (Scratch::new(), Scratch::new());
    write_files(&scratch.data(), &files);
    fs::create_dir_all(full.data()).expect("makes");
    fs::write(Path::new(&full.data()).join("mine"), b"").expect("writes");
    let refused = inspect::salvage(scratch.data(), full.data(), |_| {});
    assert!(matches!(refused, Err(trine::Error::Foreign { .. })), "{refused:?}");
}
