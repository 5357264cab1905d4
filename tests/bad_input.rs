//! Bad input: each kind has its own error with advice, and no data is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use trine::{Access, Create, Db, Durability, Error, Keyspace, Ordered};

use super::child;
use super::support::{
    Files, Model, Scratch, checked_message, contents, files, files_but_lock, header, reader, refused,
    seal_header, small, write_files,
};

const KEY_BYTES_MAX: usize = 65_535;
const VALUE_BYTES_MAX: usize = 1 << 20;

/// A closed store with items in a table and in a log.
fn made(data: &Path) -> Model {
    let db = small(data).open().expect("a new store");
    let users = db.ordered("users").open().expect("a new keyspace");
    for index in 0..100 {
        users.put(format!("key {index:03}"), format!("value {index}")).expect("a write");
        if index == 60 {
            db.flush().expect("a flush");
        }
    }
    let model = contents(&users);
    db.close().expect("closes");
    model
}

/// The file of this kind that the store needs; of the logs, the one with the last items.
fn needed<'f>(whole: &'f Files, kind: &str) -> &'f str {
    let holds = |bytes: &[u8]| kind != "log" || bytes.windows(7).any(|window| window == b"key 099");
    let found = whole.iter().find(|(name, bytes)| name.starts_with(kind) && holds(bytes));
    found.expect("a file of each kind").0
}

/// Asserts that the store opens and holds the items of `model`.
fn assert_holds(data: &Path, model: &Model) {
    let db = small(data).open().expect("the store opens");
    assert_eq!(contents(&db.ordered("users").open().expect("the keyspace is there")), *model);
    db.close().expect("closes");
}

fn too_large(result: trine::Result<()>) -> (&'static str, u64, u64) {
    match result.map_err(checked_message) {
        Err(Error::TooLarge { what, limit, given, .. }) => (what, limit, given),
        other => panic!("not refused for its size: {other:?}"),
    }
}

fn faults(result: trine::Result<impl Sized>) -> Vec<String> {
    match result.map(|_| ()).map_err(checked_message) {
        Err(Error::Invalid { faults, .. }) => faults,
        other => panic!("not invalid: {other:?}"),
    }
}

/// Keys and values of the largest size are accepted and read back, also after a reopen. One byte more is
/// refused with limit and size, and nothing is written.
#[test]
fn keys_and_values_have_limits() {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).open().expect("a new store");
    let users = db.ordered("users").open().expect("a new keyspace");
    let (key, value) = (vec![7; KEY_BYTES_MAX], vec![9; VALUE_BYTES_MAX]);
    users.put(&key, &value).expect("the largest item");
    users.put(b"", b"").expect("the smallest item");
    let model = contents(&users);
    assert_eq!(model, Model::from([(key.clone(), value.clone()), (Vec::new(), Vec::new())]));

    let (long_key, long_value) = (vec![7; KEY_BYTES_MAX + 1], vec![9; VALUE_BYTES_MAX + 1]);
    assert_eq!(too_large(users.put(&long_key, b"")), ("key", 65_535, 65_536));
    assert_eq!(too_large(users.delete(&long_key)), ("key", 65_535, 65_536));
    assert_eq!(too_large(users.put(b"a", &long_value)), ("value", 1 << 20, (1 << 20) + 1));
    assert_eq!(users.get(&long_key).expect("a read"), None);
    assert_eq!(contents(&users), model);

    db.compact().expect("the largest item fits a table");
    assert_eq!(contents(&users), model);
    db.close().expect("closes");
    assert_holds(&scratch.data(), &model);
}

/// A batch that refuses an item stays unchanged. A batch over a quarter of the memory is refused whole, with
/// limit and size, however small its items are. Writes before and after it are not affected.
#[test]
fn batches_have_a_limit() {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).open().expect("a new store");
    let users = db.ordered("users").open().expect("a new keyspace");
    users.put(b"before", b"1").expect("a write");
    let limit = db.stats().batch_bytes_max;
    assert!(
        limit > 7 << 20 && limit < 8 << 20,
        "a quarter of the memory, less what a write buffer has: {limit}"
    );

    let mut batch = db.batch();
    batch.put(&users, b"a", b"1").expect("a small item");
    assert_eq!(too_large(batch.put(&users, b"b", vec![0; VALUE_BYTES_MAX + 1])).0, "value");
    assert_eq!((batch.len(), batch.bytes()), (1, 2 + 11));
    batch.commit().expect("what it holds is written");
    assert_eq!((batch.len(), batch.bytes()), (0, 0));

    let model = contents(&users);
    for value_bytes in [0, 1, 100, 65_536, VALUE_BYTES_MAX] {
        let mut batch = db.batch();
        let mut index: u32 = 0;
        while batch.memory_bytes() as u64 <= limit {
            batch.put(&users, index.to_be_bytes(), vec![1; value_bytes]).expect("a small item");
            index += 1;
        }
        let (what, at_most, given) = too_large(batch.commit());
        assert_eq!((what, at_most), ("batch", limit));
        assert!(given > limit, "{given}");
        assert_eq!((batch.len(), batch.fits()), (index as usize, false), "refused, it is as it was");
        assert_eq!(contents(&users), model);
    }
    users.put(b"after", b"2").expect("the store goes on");
    db.close().expect("closes");
}

/// The largest batch that is accepted is also written, for items of any size: no commit fails half-way.
#[test]
fn largest_batches_are_written() {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).open().expect("a new store");
    let users = db.ordered("users").open().expect("a new keyspace");
    for (key_bytes, value_bytes) in [(0, 0), (3, 0), (3, 5), (16, 100), (100, 4000), (60_000, 1)] {
        // The error of a refused batch says how many bytes would have been accepted.
        let mut count: usize = 1 << 20;
        loop {
            let mut batch = db.batch();
            for index in 0..count {
                let mut key = index.to_be_bytes()[5..].to_vec();
                key.resize(key_bytes, 0);
                batch.put(&users, &key, vec![1; value_bytes]).expect("an item within its limits");
                if batch.bytes() > 16 << 20 {
                    break;
                }
            }
            let items = batch.len();
            match batch.commit() {
                Ok(()) => break,
                Err(Error::TooLarge { what: "batch", limit, given, .. }) => {
                    count = ((items as u64 * limit / given) as usize).min(items - 1);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    let model = contents(&users);
    db.close().expect("closes");
    assert_holds(&scratch.data(), &model);
}

/// All faults of a builder are reported at once. The store is neither made nor changed.
#[test]
fn wrong_settings_are_all_told() {
    let scratch = Scratch::new();
    let wrong = Db::builder(scratch.data())
        .memory_bytes(1)
        .set("background_threads", 0)
        .set("no_such_setting", 1)
        .set("sync_every_commit", 2)
        .open();
    let told = faults(wrong);
    assert_eq!(told.len(), 4, "{told:?}");
    for name in ["memory_bytes", "background_threads", "no_such_setting", "sync_every_commit"] {
        assert!(told.iter().any(|fault| fault.contains(name)), "{name} in {told:?}");
    }
    assert!(!scratch.data().exists());
}

/// Wrong settings for an existing keyspace are refused on reopen, all at once, and its settings stay. Valid
/// settings replace them and persist.
#[test]
fn settings_are_checked_on_reopen() {
    let scratch = Scratch::new();
    let model = made(&scratch.data());
    let before = files_but_lock(&scratch.data());
    let db = reader(&scratch.data()).open().expect("opens");
    let wrong = db.ordered("users").set("size_ratio", 1).set("level0_runs", 99).set("path_bits", 3).open();
    assert_eq!(faults(wrong).len(), 3);
    let changed = db.ordered("users").set("size_ratio", 10).open();
    assert!(matches!(changed.map_err(checked_message), Err(Error::ReadOnly)));
    drop(db);
    assert!(files_but_lock(&scratch.data()) == before, "a refused opening changed a file");

    let ratio = |users: &Keyspace<Ordered>| {
        users.settings().into_iter().find(|one| one.name == "size_ratio").map(|one| one.value)
    };
    let db = small(&scratch.data()).open().expect("opens");
    let users = db.ordered("users").set("size_ratio", 10).open().expect("a right setting");
    assert_eq!(ratio(&users), Some(10));
    db.close().expect("closes");
    let db = small(&scratch.data()).open().expect("opens");
    assert_eq!(ratio(&db.ordered("users").open().expect("there")), Some(10));
    db.close().expect("closes");
    assert_holds(&scratch.data(), &model);
}

/// Keyspace names have 1 to 255 bytes of any text. An unknown name and a dropped keyspace have different
/// errors.
#[test]
fn names_of_keyspaces_are_checked() {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).open().expect("a new store");
    assert_eq!(faults(db.ordered("").open()).len(), 1);
    assert_eq!(faults(db.ordered(&"n".repeat(256)).set("size_ratio", 0).open()).len(), 2);
    db.ordered(&"n".repeat(255)).open().expect("the longest name");
    db.ordered("../schlüssel\n").open().expect("names are text, not paths");
    assert_eq!(db.keyspaces().len(), 2);
    let missing = db.keyspace("users").map(|_| ()).map_err(checked_message);
    assert!(matches!(missing, Err(Error::NoKeyspace { .. })));
    assert!(matches!(db.drop_keyspace("users"), Err(Error::NoKeyspace { .. })));

    let old = db.ordered("old").open().expect("a new keyspace");
    old.put(b"a", b"1").expect("a write");
    db.drop_keyspace("old").expect("a drop");
    for result in [old.put(b"a", b"2"), old.get(b"a").map(|_| ()), old.delete(b"a")] {
        assert!(matches!(result.map_err(checked_message), Err(Error::Dropped { .. })));
    }
    assert!(db.ordered("old").open().expect("a new one").get(b"a").expect("a read").is_none());
    db.close().expect("closes");
}

/// A batch of one open store refuses a keyspace of another.
#[test]
fn stores_do_not_mix() {
    let (one, other) = (Scratch::new(), Scratch::new());
    let (one, other) =
        (small(&one.data()).open().expect("opens"), small(&other.data()).open().expect("opens"));
    let users = other.ordered("users").open().expect("a new keyspace");
    let mut batch = one.batch();
    assert_eq!(faults(batch.put(&users, b"a", b"1")).len(), 1);
    assert!(batch.is_empty());
}

/// An unknown format version or feature bit is refused by name in each kind of file, for reading and for
/// writing. The files stay unchanged, and the store opens once they are restored.
#[test]
fn other_formats_are_refused_by_name() {
    let scratch = Scratch::new();
    let data = scratch.data();
    let model = made(&data);
    let whole = files(&data);
    type Patch = fn(&mut [u8]);
    let patches: [(&str, Patch); 6] = [
        ("format version 5", |page| page[header::VERSION] = 5),
        ("format version 2", |page| page[header::VERSION] = 2),
        ("feature bit 0", |page| page[header::FEATURES] = 1),
        ("feature bit 1", |page| page[header::FEATURES] = 2),
        ("feature bit 2", |page| page[header::FEATURES] = 4),
        ("feature bit 63", |page| page[header::FEATURES + 7] = 0x80),
    ];
    for kind in ["STORE", "manifest", "log", "table"] {
        let name = needed(&whole, kind);
        // Manifests have two known feature bits: partitions and hashed keyspaces.
        let is_known = |what: &str| kind == "manifest" && matches!(what, "feature bit 0" | "feature bit 1");
        for (what, patch) in patches.iter().filter(|(what, _)| !is_known(what)) {
            let mut bytes = whole[name].clone();
            patch(&mut bytes);
            seal_header(&mut bytes);
            fs::write(data.join(name), &bytes).expect("writes");
            let before = files(&data);
            for builder in [reader(&data), small(&data)] {
                match refused(builder) {
                    Error::Unsupported { file, what: found, .. } => {
                        assert_eq!((&*file, &*found), (name, *what))
                    }
                    other => panic!("{name}, {what}: {other:?}"),
                }
            }
            assert!(files(&data) == before, "{name}, {what}: a refused opening changed a file");
        }
        fs::write(data.join(name), &whole[name]).expect("writes");
    }
    assert_holds(&data, &model);
}

/// If no store exists and none may be made, the error says so and nothing is made.
#[test]
fn missing_stores_are_told() {
    let scratch = Scratch::new();
    let data = scratch.data();
    for builder in [reader(&data), small(&data).create(Create::Never)] {
        assert!(matches!(refused(builder), Error::Missing { .. }));
        assert!(!data.exists());
    }
    fs::create_dir(&data).expect("an empty directory");
    for builder in [reader(&data), small(&data).create(Create::Never)] {
        assert!(matches!(refused(builder), Error::Missing { .. }));
        assert!(files(&data).is_empty());
    }
    small(&data).open().expect("an empty directory becomes a store").close().expect("closes");

    let deep = scratch.root().join("no").join("such").join("data");
    match refused(small(&deep)) {
        Error::Io { operation: "create", source, .. } => {
            assert_eq!(source.kind(), std::io::ErrorKind::NotFound)
        }
        other => panic!("{other:?}"),
    }
    assert!(!scratch.root().join("no").exists());
}

/// A directory with other files is left as it is.
#[test]
fn foreign_directories_are_left_alone() {
    let scratch = Scratch::new();
    let data = scratch.data();
    let foreign: [(&str, &[u8]); 2] = [("notes.txt", b"mine"), ("STORE", &[b'x'; 12_288])];
    for (name, bytes) in foreign {
        let held = Files::from([(name.to_owned(), bytes.to_vec())]);
        write_files(&data, &held);
        let error = refused(small(&data));
        assert!(matches!(error, Error::Foreign { .. }), "{name}: {error:?}");
        assert!(files(&data) == held, "{name} was changed, or others made");
        let error = refused(reader(&data));
        assert!(matches!(error, Error::Foreign { .. } | Error::Missing { .. }), "{name}: {error:?}");
        assert!(files(&data) == held, "{name} was changed, or others made");
        fs::remove_dir_all(&data).expect("removes");
    }

    fs::write(&data, b"a file").expect("writes");
    assert!(matches!(refused(small(&data)), Error::Foreign { .. }));
    assert_eq!(fs::read(&data).expect("reads"), b"a file");
    fs::remove_file(&data).expect("removes");

    let elsewhere = Scratch::new();
    made(&elsewhere.data());
    fs::create_dir(&data).expect("makes");
    std::os::unix::fs::symlink(elsewhere.data().join("STORE"), data.join("STORE")).expect("links");
    assert!(matches!(refused(small(&data)), Error::Foreign { .. }));
}

/// Foreign files added to a store's directory later are left alone and do no harm.
#[test]
fn foreign_files_in_a_store_are_left_alone() {
    let scratch = Scratch::new();
    let model = made(&scratch.data());
    for name in ["notes.txt", "table-7", "TABLE-0000000000000007", "blob-00000000000000ff"] {
        fs::write(scratch.data().join(name), b"mine").expect("writes");
    }
    assert_holds(&scratch.data(), &model);
    for name in ["notes.txt", "table-7", "TABLE-0000000000000007", "blob-00000000000000ff"] {
        assert_eq!(fs::read(scratch.data().join(name)).expect("it is there"), b"mine");
    }
}

/// Runs `work` as a user without rights; on this thread if the process is not root.
fn unprivileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if !rustix::process::geteuid().is_root() {
        return work();
    }
    let nobody = rustix::process::Uid::from_raw(65_534);
    let drop_root = move || {
        // The system call changes only this thread and the threads it starts.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may become anybody");
        work()
    };
    std::thread::scope(|scope| scope.spawn(drop_root).join().expect("it ends well"))
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode changes");
}

/// Without permission to create, enter, read or write, the error names the missing permission and nothing is
/// changed. A readable store can be opened for reading.
#[test]
fn permission_is_asked_for() {
    let scratch = Scratch::new();
    let data = scratch.data();
    set_mode(scratch.root(), 0o555);
    let error = unprivileged(|| refused(small(&data)));
    assert!(matches!(error, Error::Permission { .. }), "{error:?}");
    set_mode(scratch.root(), 0o755);
    assert!(!data.exists());

    let model = made(&data);
    let whole = files(&data);
    set_mode(&data, 0o000);
    for builder in [small(&data), reader(&data)] {
        let error = unprivileged(|| refused(builder));
        assert!(matches!(error, Error::Permission { .. }), "{error:?}");
    }
    // The store may be read but not written.
    set_mode(&data, 0o555);
    whole.keys().for_each(|name| set_mode(&data.join(name), 0o444));
    let error = unprivileged(|| refused(small(&data)));
    assert!(matches!(error, Error::Permission { .. }), "{error:?}");
    let read = unprivileged(|| {
        let db = reader(&data).open().expect("it may be read");
        let read = contents(&db.ordered("users").open().expect("there"));
        db.close().expect("closes");
        read
    });
    assert_eq!(read, model);
    // One file may not be read.
    for kind in ["STORE", "manifest", "log", "table"] {
        let name = needed(&whole, kind);
        set_mode(&data.join(name), 0o000);
        match unprivileged(|| refused(reader(&data))) {
            Error::Permission { file, .. } => assert_eq!(file, name),
            other => panic!("{other:?}"),
        }
        set_mode(&data.join(name), 0o444);
    }
    assert!(files(&data) == whole, "a refused opening changed a file");
    set_mode(&data, 0o755);
    whole.keys().for_each(|name| set_mode(&data.join(name), 0o600));
    assert_holds(&data, &model);
}

/// Only the owner may access the files of a store, under any umask.
#[test]
fn files_are_their_owners() {
    let scratch = Scratch::new();
    made(&scratch.data());
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&scratch.data()), 0o700);
    for name in files(&scratch.data()).keys() {
        assert_eq!(mode(&scratch.data().join(name)), 0o600, "{name}");
    }
}

/// The child of `f18_one_writer_at_a_time`.
pub(crate) fn second_opener(data: &Path) {
    for builder in [small(data), reader(data)] {
        assert!(matches!(refused(builder), Error::Locked { .. }));
    }
}

/// A store that is open for writing cannot be opened again, in this process or another; one open for reading
/// can be opened only for reading. The first opener is not disturbed, and its end lets others in.
#[test]
fn f18_one_writer_at_a_time() {
    let scratch = Scratch::new();
    let data = scratch.data();
    let db = small(&data).open().expect("a new store");
    let users = db.ordered("users").open().expect("a new keyspace");
    users.put(b"a", b"1").expect("a write");
    second_opener(&data);
    child::run_well(&[], "second opener", &data);
    users.put(b"b", b"2").expect("the first opener goes on");
    let model = contents(&users);
    drop(db);
    // The keyspace handle still keeps the store open.
    second_opener(&data);
    drop(users);

    let one = reader(&data).open().expect("a reader");
    let two = reader(&data).open().expect("another");
    assert!(matches!(refused(small(&data)), Error::Locked { .. }));
    for db in [&one, &two] {
        assert_eq!(contents(&db.ordered("users").open().expect("there")), model);
    }
    drop((one, two));
    assert_holds(&data, &model);
}

/// A store opened for reading answers every kind of write with `ReadOnly`, a closed one with `Closed`.
#[test]
fn writes_where_none_are_taken() {
    let scratch = Scratch::new();
    let model = made(&scratch.data());
    let before = files(&scratch.data());
    let writes = |db: &Db, users: &Keyspace<Ordered>| {
        let mut batch = db.batch();
        let batched = batch.put(users, b"a", b"1").and_then(|()| batch.commit_with(Durability::Sync));
        [users.put(b"a", b"1"), users.delete(b"a"), batched, db.sync(), db.flush(), db.compact()]
    };
    let db = Db::builder(scratch.data()).access(Access::ReadOnly).open().expect("opens");
    let users = db.ordered("users").open().expect("there");
    for result in writes(&db, &users) {
        assert!(matches!(result.map_err(checked_message), Err(Error::ReadOnly)));
    }
    assert!(matches!(db.drop_keyspace("users"), Err(Error::ReadOnly)));
    let none = db.ordered("others").open().map(|_| ());
    assert!(matches!(none.map_err(checked_message), Err(Error::NoKeyspace { .. })));
    assert_eq!(contents(&users), model);
    db.close().expect("closes");
    assert!(files(&scratch.data()) == before, "a reader changed a file");

    let db = small(&scratch.data()).open().expect("opens");
    let users = db.ordered("users").open().expect("there");
    db.clone().close().expect("closes");
    for result in writes(&db, &users) {
        assert!(matches!(result.map_err(checked_message), Err(Error::Closed)));
    }
    assert!(matches!(users.get(b"a"), Err(Error::Closed)));
    assert!(matches!(users.iter().next(), Some(Err(Error::Closed))));
    assert!(matches!(db.ordered("users").open(), Err(Error::Closed)));
    assert!(matches!(db.drop_keyspace("users"), Err(Error::Closed)));
}

/// Debug output of handles names their store and keyspace. Negative settings are refused by name, and so is
/// an existing store where a new one is demanded.
#[test]
fn handles_and_openers_name_their_objects() {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).create(trine::Create::New).open().expect("a new store");
    let users = db.ordered("users").set("compression", false).open().expect("a new keyspace");
    let path = format!("{:?}", scratch.data());
    assert!(format!("{db:?}").contains(&path), "{db:?}");
    assert!(format!("{users:?}").contains("users") && format!("{users:?}").contains(&path), "{users:?}");
    let refused = db.ordered("users").set("size_ratio", -1).open().expect_err("below zero");
    assert!(refused.kind() == "invalid" && refused.to_string().contains("size_ratio is -1"), "{refused}");
    assert!(db.ordered("users").set("size_ratio", 4_usize).open().is_ok());
    drop(users);
    db.close().expect("closes");
    let exists = small(&scratch.data()).create(trine::Create::New).open().expect_err("there is one");
    assert_eq!(exists.kind(), "exists", "{exists}");
    small(&scratch.data()).open().expect("it is as it was");
}
