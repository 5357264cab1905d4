//! Openers of a store: locks left by killed processes, forked processes, copies of a store in use, read-only
//! file systems (line F18 of the fault model). `bad_input` tests two openers at once.

use std::collections::BTreeMap;
use std::fs;
use std::io::{PipeWriter, Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trine::{Access, Db, Durability, Error};

use super::child::{self, Running, command};
use super::raw::{before_exec, die_with_parent};
use super::support::{Model, Scratch, contents, reader, refused, small};

/// The most waits, of a millisecond each, for a child to be ready.
const LOOKS_MAX: usize = 60_000;

/// A new store with an item, and its contents.
fn made(data: &Path) -> (Db, Model) {
    let db = small(data).open().unwrap();
    let users = db.ordered("users").open().unwrap();
    users.put("ann", "1").unwrap();
    let model = contents(&users);
    (db, model)
}

fn assert_holds(data: &Path, model: &Model) {
    let db = small(data).open().unwrap();
    assert_eq!(contents(&db.ordered("users").open().unwrap()), *model);
    db.close().unwrap();
}

/// Runs a role until it makes the file `ready` beside the store.
fn start(role: &str, data: &Path) -> Running {
    let child = Running::start(command(&[], role, data));
    let ready = data.with_extension("ready");
    for _ in 0..LOOKS_MAX {
        if ready.exists() {
            return child;
        }
        if let Some(complaints) = child.let_go_on(Duration::from_millis(1)) {
            panic!("the child ended: {complaints}");
        }
    }
    panic!("the child hangs");
}

/// The child of `f18_stale_locks_are_free`: keeps the store open until it is killed.
pub(crate) fn holder(data: &Path) {
    die_with_parent();
    let (_db, _) = made(data);
    fs::write(data.with_extension("ready"), "").unwrap();
    loop {
        std::thread::park();
    }
}

/// The lock of a killed process is free, with any content of its file. A missing LOCK is made anew.
#[test]
fn f18_stale_locks_are_free() {
    let scratch = Scratch::new();
    let data = scratch.data();
    let child = start("holder", &data);
    assert!(matches!(refused(small(&data)), Error::Locked { .. }));
    assert!(matches!(refused(reader(&data)), Error::Locked { .. }));
    child.kill();
    assert!(data.join("LOCK").exists());
    let model = Model::from([(b"ann".to_vec(), b"1".to_vec())]);
    assert_holds(&data, &model);
    fs::write(data.join("LOCK"), "4711 of another machine").unwrap();
    assert_holds(&data, &model);
    fs::remove_file(data.join("LOCK")).unwrap();
    assert_holds(&data, &model);
    assert!(data.join("LOCK").exists());
}

/// A reader makes a missing LOCK, which then excludes writers, but only in a directory of its own user: a
/// LOCK of root or another user would exclude the owner. Checks make none.
#[test]
fn f18_readers_make_the_lock_that_is_missing() {
    let scratch = Scratch::new();
    let data = scratch.data();
    let (db, model) = made(&data);
    db.close().unwrap();
    let lock = data.join("LOCK");
    fs::remove_file(&lock).unwrap();
    assert!(trine::inspect::verify(&data, |_| {}).unwrap().findings.is_empty());
    assert!(!lock.exists());
    let db = reader(&data).open().unwrap();
    assert_eq!(contents(&db.ordered("users").open().unwrap()), model);
    assert!(matches!(refused(small(&data)), Error::Locked { .. }));
    assert_eq!(fs::read(&lock).unwrap(), b"");
    db.close().unwrap();
    assert_holds(&data, &model);

    if !rustix::process::geteuid().is_root() {
        return;
    }
    fs::remove_file(&lock).unwrap();
    let nobody = Some(rustix::fs::Uid::from_raw(65_534));
    rustix::fs::chown(&data, nobody, None).unwrap();
    let error = refused(reader(&data));
    assert!(matches!(error, Error::LockMissing { .. }), "{error:?}");
    assert!(!lock.exists());
    fs::write(&lock, b"").unwrap();
    reader(&data).open().unwrap().close().unwrap();
}

/// Forks a process that has every descriptor of this one, until the returned value is dropped. The fork only
/// waits.
fn fork() -> Forked {
    let (mut until, end) = std::io::pipe().unwrap();
    let (mut forked, mut is_forked) = std::io::pipe().unwrap();
    let end = Arc::new(Mutex::new(Some(end)));
    let mut command = Command::new("true");
    let copied = Arc::clone(&end);
    before_exec(&mut command, move || {
        // With its own copy of the writing end, the fork would wait for itself.
        *copied.lock().unwrap() = None;
        is_forked.write_all(b"!").unwrap();
        // Returns when the pipe is closed.
        let _ = until.read(&mut [0]);
    });
    let thread = std::thread::spawn(move || command.status().unwrap());
    forked.read_exact(&mut [0]).unwrap();
    Forked { end, thread: Some(thread) }
}

struct Forked {
    end: Arc<Mutex<Option<PipeWriter>>>,
    thread: Option<std::thread::JoinHandle<std::process::ExitStatus>>,
}

impl Drop for Forked {
    fn drop(&mut self) {
        *self.end.lock().unwrap() = None;
        let thread = self.thread.take().expect("it is joined once");
        assert!(thread.join().unwrap().success());
    }
}

/// A process forked while the store is open has copies of its descriptors, the lock's included. Closing the
/// store still frees it, and an open store stays locked when the fork ends.
#[test]
fn f18_forks_keep_no_lock_and_release_none() {
    let scratch = Scratch::new();
    let (db, model) = made(&scratch.data());
    let forked = fork();
    db.close().unwrap();
    assert_holds(&scratch.data(), &model);
    drop(forked);

    let db = small(&scratch.data()).open().unwrap();
    drop(fork());
    assert!(matches!(refused(small(&scratch.data())), Error::Locked { .. }));
    db.close().unwrap();
    assert_holds(&scratch.data(), &model);
}

/// The child of `f18_the_lock_outlives_its_opener_in_a_fork`.
pub(crate) fn forker(data: &Path) {
    die_with_parent();
    let (_db, _) = made(data);
    // Only the kernel closes the fork's pipe, when this process is killed.
    let _kept = fork();
    fs::write(data.with_extension("ready"), "").unwrap();
    loop {
        std::thread::park();
    }
}

const ROUND_KEYS: u32 = 300;

/// Copies the files of a store in this order while it is written to.
fn copy_live(from: &Path, to: &Path, names: &[String]) {
    fs::create_dir(to).unwrap();
    for name in names {
        match fs::read(from.join(name)) {
            Ok(bytes) => fs::write(to.join(name), bytes).unwrap(),
            // The store may have removed the file.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
    }
}

/// Checks a copy of a live store. It is either refused with an error that names the fault (`None`), or opens
/// with the store's state at some time (`Some`).
fn look_at_copy(copy: &Path) -> Option<()> {
    let db = match reader(copy).open() {
        Ok(db) => db,
        Err(Error::Corrupt(_) | Error::Missing { .. }) => return None,
        Err(error) => panic!("{error:?}"),
    };
    let Ok(users) = db.keyspace("users").and_then(|users| users.ordered()) else { return None };
    let mut rounds = BTreeMap::new();
    for item in users.iter() {
        match item {
            Ok((key, value)) => {
                rounds.insert(key.to_vec(), u32::from_be_bytes(*value.first_chunk().unwrap()));
            }
            Err(Error::Corrupt(_)) => return None,
            Err(error) => panic!("{error:?}"),
        }
    }
    // Each round writes all keys in order.
    let rounds: Vec<u32> = rounds.into_values().collect();
    let (newest, oldest) = (rounds.first().copied().unwrap_or(0), rounds.last().copied().unwrap_or(0));
    let falls = rounds.windows(2).all(|pair| pair[0] >= pair[1]);
    assert!(falls && newest <= oldest + 1, "no moment of the store: rounds {newest} to {oldest}, {falls}");
    Some(())
}

/// Ends the writer, also when a check fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A directory is copied file by file, in any order, while the store is written to. The copy is refused, or
/// is the store as of some time.
#[test]
fn f18_live_copies_are_refused_or_whole() {
    let scratch = Scratch::new();
    let data = scratch.data();
    let db = small(&data).open().unwrap();
    let users = db.ordered("users").set("level0_runs", 2).set("table_bytes", 64 << 10).open().unwrap();
    let is_over = AtomicBool::new(false);
    let mut opened = 0;
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        scope.spawn(|| {
            for round in 1u32.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                for key in 0..ROUND_KEYS {
                    let value = round.to_be_bytes().repeat(100);
                    users.put(key.to_be_bytes(), value).unwrap();
                }
                match round % 20 {
                    0 => db.flush().unwrap(),
                    10 => db.sync().unwrap(),
                    _ => {}
                }
            }
        });
        for number in 0..60usize {
            let copy = scratch.root().join(format!("copy {number}"));
            let entries = fs::read_dir(&data).unwrap();
            let name =
                |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
            let mut names: Vec<String> = entries.map(name).collect();
            names.sort_unstable();
            match number % 3 {
                0 => {}
                1 => names.reverse(),
                _ => names.rotate_left(number % 5),
            }
            copy_live(&data, &copy, &names);
            opened += usize::from(look_at_copy(&copy).is_some());
            fs::remove_dir_all(&copy).unwrap();
        }
        drop(over);
    });
    println!("{opened} of 60 copies opened");
}

/// The child of `f18_read_only_file_systems_are_read`: mounts a file system that is unmounted with the
/// process.
pub(crate) fn on_read_only(data: &Path) {
    fs::create_dir(data).unwrap();
    let mount = |options: &str| {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(data);
        command.status().is_ok_and(|status| status.success())
    };
    if !mount("size=64m") {
        println!("skipped: this machine lets nobody mount");
        return;
    }
    let store = data.join("store");
    let (db, mut model) = made(&store);
    db.close().unwrap();
    // A closed store, one with a log to replay, and one without LOCK.
    for round in 0..3 {
        if round == 1 {
            let db = small(&store).open().unwrap();
            let users = db.ordered("users").open().unwrap();
            let mut batch = db.batch();
            batch.put(&users, "bob", "2").unwrap();
            batch.commit_with(Durability::Sync).unwrap();
            model = contents(&users);
        } else if round == 2 {
            fs::remove_file(store.join("LOCK")).unwrap();
        }
        assert!(mount("remount,ro"));
        let error = refused(small(&store));
        assert!(matches!(error, Error::ReadOnlyFileSystem { .. }), "{round}: {error:?}");
        let error = refused(small(&data.join("new")));
        assert!(matches!(error, Error::ReadOnlyFileSystem { .. }), "{round}: {error:?}");
        if round < 2 {
            let db = reader(&store).access(Access::ReadOnly).open().unwrap();
            assert_eq!(contents(&db.ordered("users").open().unwrap()), model);
            db.close().unwrap();
        } else {
            // LOCK cannot be made here, and readers need it.
            let error = refused(reader(&store));
            assert!(matches!(error, Error::LockMissing { .. }), "{error:?}");
            assert!(error.to_string().contains("has no file LOCK"), "{error}");
            let report = trine::inspect::verify(&store, |_| {}).unwrap();
            assert!(report.findings.is_empty(), "{report:?}");
        }
        assert!(mount("remount,rw"));
    }
    assert_holds(&store, &model);
}

/// On a read-only file system writers get an error that names the cause, and readers can open the store.
#[test]
fn f18_read_only_file_systems_are_read() {
    let scratch = Scratch::new();
    let output = child::run(&["unshare", "--mount"], "on read only", &scratch.data());
    let printed = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("unshare") || printed.contains("skipped") {
        println!("skipped: this machine lets nobody mount a disk");
        return;
    }
    println!("{printed}");
    assert!(output.status.success(), "{printed}{complaint}");
}

/// If a process is killed while its fork still has its descriptors, the store stays locked until the fork
/// ends too: the fork could still write.
#[test]
fn f18_the_lock_outlives_its_opener_in_a_fork() {
    let scratch = Scratch::new();
    let data = scratch.data();
    start("forker", &data).kill();
    // The forked process waits on a pipe whose last writer has just ended; then it ends.
    let model = Model::from([(b"ann".to_vec(), b"1".to_vec())]);
    for _ in 0..LOOKS_MAX {
        match small(&data).open() {
            Ok(db) => {
                db.close().unwrap();
                assert_holds(&data, &model);
                return;
            }
            Err(Error::Locked { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("it stays locked");
}
