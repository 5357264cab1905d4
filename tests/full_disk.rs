//! A full disk: simulated by the system's limit on file sizes, and a real small disk.

use std::fs;
use std::path::Path;

use trine::{Db, Durability, Error, Keyspace, Ordered};

use super::child;
use super::support::{Scratch, checked_message, refused, small};

/// Puts numbered items until 200 puts in a row are refused, so that space freed by background work is used
/// too. Returns the number of acknowledged puts.
fn fill(db: &Db, users: &Keyspace<Ordered>, value: &[u8]) -> u32 {
    let (mut count, mut refused) = (0u32, 0);
    while refused < 200 {
        let written = if refused % 2 == 0 {
            users.put(count.to_be_bytes(), value)
        } else {
            let mut batch = db.batch();
            batch.put(users, count.to_be_bytes(), value).expect("a small item");
            batch.commit_with(Durability::Sync)
        };
        match written.map_err(checked_message) {
            Ok(()) => (count, refused) = (count + 1, 0),
            Err(Error::Full { .. }) => refused += 1,
            Err(error) => panic!("not full: {error}"),
        }
        assert!(count < 1_000_000, "a million items did not fill the disk");
    }
    count
}

/// Asserts that exactly the items below `count` are there.
fn assert_filled(users: &Keyspace<Ordered>, count: u32, value: &[u8]) {
    for index in 0..count {
        assert_eq!(users.get(index.to_be_bytes()).expect("reads go on").as_deref(), Some(value));
    }
    assert_eq!(users.get(count.to_be_bytes()).expect("reads go on"), None);
    assert_eq!(users.iter().filter(Result::is_ok).count(), count as usize);
}

/// Repeats `attempt` until background work has noticed free space. Each try costs a sync, which limits their
/// rate.
fn until_taken(beside: &fs::File, attempt: impl Fn() -> trine::Result<()>) {
    for _ in 0..20_000 {
        match attempt() {
            Ok(()) => return,
            Err(Error::Full { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        beside.set_len(1).and_then(|()| beside.sync_all()).expect("syncs");
    }
    panic!("space came back, and no write was taken");
}

/// Fills the disk, checks the store, makes space, continues without a reopen, and then reopens.
fn fill_and_go_on(data: &Path, shrink: impl FnOnce(), grow: impl FnOnce()) {
    let value = vec![3; 1000];
    let beside = tempfile::NamedTempFile::new().expect("a file elsewhere");
    let db = small(data).open().expect("a new store");
    let users = db.ordered("users").open().expect("a new keyspace");
    shrink();
    let count = fill(&db, &users, &value);
    assert_filled(&users, count, &value);

    grow();
    until_taken(beside.as_file(), || users.put(b"again", b"again"));
    until_taken(beside.as_file(), || db.flush());
    users.delete(b"again").expect("a write");
    db.flush().expect("nothing stands in the way");
    db.settle().expect("nothing is left undone");
    assert_filled(&users, count, &value);
    db.close().expect("closes");

    let db = small(data).open().expect("opens");
    assert_filled(&db.ordered("users").open().expect("there"), count, &value);
    db.close().expect("closes");
}

/// The child of `full_by_file_size`: files may not grow past a limit; the store treats this error as a full
/// disk.
pub(crate) fn full_by_limit(data: &Path) {
    let limit = |current| {
        let limit = rustix::process::Rlimit {
            current,
            ..rustix::process::getrlimit(rustix::process::Resource::Fsize)
        };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit)
            .expect("a lower limit is allowed");
    };
    let before = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    fill_and_go_on(data, || limit(Some(1 << 20)), || limit(before));
}

/// While files cannot grow, writes answer `Full` and reads go on. Once they can grow, writes work without a
/// reopen. No acknowledged write is lost, and no refused write is there.
#[test]
fn full_by_file_size() {
    let scratch = Scratch::new();
    // Ignores the signal that would end the process, so that the call fails instead.
    let shell = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];
    child::run_well(&shell, "full by limit", &scratch.data());
}

/// The child of `full_by_a_small_disk`: mounts a disk that is unmounted with the process.
pub(crate) fn full_by_mount(data: &Path) {
    let mount = |options: &str| {
        let mut command = std::process::Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(data);
        command.status().is_ok_and(|status| status.success())
    };
    fs::create_dir(data).expect("makes");
    if !mount("size=100k") {
        println!("skipped: this machine lets nobody mount a small disk");
        return;
    }
    let store = data.join("store");
    let error = refused(small(&store));
    assert!(matches!(error, Error::Full { .. }), "{error:?}");
    assert!(mount("remount,size=64m"), "a larger disk");
    let ballast = data.join("ballast");
    let shrink = || fs::write(&ballast, vec![0; 48 << 20]).expect("it still fits");
    fill_and_go_on(&store, shrink, || fs::remove_file(&ballast).expect("removes"));
}

/// As `full_by_file_size`, on a disk that is really full, also while the store is made.
#[test]
fn full_by_a_small_disk() {
    let scratch = Scratch::new();
    let output = child::run(&["unshare", "--mount"], "full by mount", &scratch.data());
    let printed = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("unshare") || printed.contains("skipped") {
        println!("skipped: this machine lets nobody mount a small disk");
        return;
    }
    assert!(output.status.success(), "{printed}{complaint}");
}
