//! Limits that hold while a store runs: memory, open files, key order.

use std::fs;
use std::path::Path;

use trine::{Db, Keyspace, Ordered};

use super::child;
use super::support::{MEMORY_BYTES_MIN, Scratch, contents, small};

/// The bytes that a process needs beside its store.
const BESIDE_BYTES: u64 = 64 << 20;

/// Numbers that look random and never repeat.
fn scattered(index: u64) -> u64 {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn key(index: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[..8].copy_from_slice(&scattered(index).to_be_bytes());
    key
}

fn value(index: u64) -> Vec<u8> {
    scattered(index + 1).to_le_bytes().into_iter().cycle().take(100).collect()
}

fn put(db: &Db, items: &Keyspace<Ordered>, indexes: std::ops::Range<u64>) {
    for first in indexes.clone().step_by(100) {
        let mut batch = db.batch();
        for index in first..(first + 100).min(indexes.end) {
            batch.put(items, key(index), value(index)).expect("a small item");
        }
        batch.commit().expect("a small batch");
    }
}

/// The value of a line of this process's status, in bytes; `None` if the system does not report it.
fn status_bytes(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The files of the store that this process has open.
fn open_files(data: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(data)).map(|target| target.display().to_string()).collect()
}

/// The child of `memory_stays_within_its_budget`.
pub(crate) fn load(data: &Path) {
    const ITEMS: u64 = 400_000;
    // The first open files, threads and allocator tables are not the store's.
    let db = Db::builder(data).memory_bytes(MEMORY_BYTES_MIN).open().expect("a new store");
    let items = db.ordered("items").open().expect("a new keyspace");
    for piece in 0..ITEMS / 10_000 {
        put(&db, &items, piece * 10_000..(piece + 1) * 10_000);
        let memory = db.stats().memory;
        assert_eq!(memory.budget_bytes, MEMORY_BYTES_MIN);
        assert!(memory.used_bytes <= memory.budget_bytes, "{memory:?}");
    }
    for index in (0..ITEMS).step_by(11) {
        assert_eq!(items.get(key(index)).expect("reads").as_deref(), Some(&*value(index)));
        assert_eq!(items.get(key(ITEMS + index)).expect("reads"), None);
    }
    assert_eq!(items.iter().filter(Result::is_ok).count() as u64, ITEMS);
    db.compact().expect("merges");
    let memory = db.stats().memory;
    assert!(memory.used_bytes <= memory.budget_bytes, "{memory:?}");
    assert!(memory.roles.iter().all(|role| role.bytes <= role.limit_bytes), "{memory:?}");
    if let Some(peak) = status_bytes("VmHWM") {
        println!("peak {} MiB beside a budget of {} MiB", peak >> 20, MEMORY_BYTES_MIN >> 20);
        assert!(peak <= MEMORY_BYTES_MIN + BESIDE_BYTES, "{peak} bytes: {memory:?}");
    }
}

/// A load of some hundred thousand items, reads of all of them and a full merge stay within the budget by the
/// store's own count. By the system's count they take at most 64 MiB more.
#[test]
fn memory_stays_within_its_budget() {
    let scratch = Scratch::new();
    print!("{}", child::run_well(&[], "load", &scratch.data()));
}

/// A store of many tables keeps no more files open than its setting allows, by its own count and the
/// system's, and reads all tables.
#[test]
fn open_files_are_bounded() {
    const FILES_MAX: u64 = 16;
    const ITEMS: u64 = 30_000;
    let scratch = Scratch::new();
    let data = scratch.data();
    let db = small(&data).set("open_files_max", FILES_MAX).open().expect("a new store");
    let items = db.ordered("items").set("table_bytes", 64 << 10).open().expect("a new keyspace");
    put(&db, &items, 0..ITEMS);
    db.compact().expect("merges");
    let tables = db.stats().keyspaces[0].tables;
    assert!(tables > 2 * FILES_MAX, "{tables} tables");
    for index in 0..ITEMS {
        assert!(items.contains(key(index)).expect("reads"));
        if index % 1000 == 0 {
            let count = db.stats().io.open_files;
            assert!(count <= FILES_MAX, "{count} files");
            // And the directory and LOCK.
            let open = open_files(&data);
            assert!(open.len() as u64 <= FILES_MAX + 2, "{open:?}");
        }
    }
    db.close().expect("closes");
    assert!(open_files(&data).is_empty(), "a closed store keeps a file open");
}

/// Keys are ordered by their unsigned bytes, a prefix before its extensions, in memory and in tables.
#[test]
fn keys_are_in_the_order_of_their_bytes() {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).open().expect("a new store");
    let items = db.ordered("items").open().expect("a new keyspace");
    let mut keys: Vec<Vec<u8>> =
        (0..=255u8).flat_map(|a| [vec![a], vec![a, 0], vec![a, 255], vec![0, a]]).collect();
    keys.push(Vec::new());
    for key in keys.iter().rev() {
        items.put(key, b"").expect("a write");
    }
    keys.sort();
    keys.dedup();
    for _ in 0..2 {
        assert!(contents(&items).into_keys().eq(keys.iter().cloned()));
        let back = items.iter().rev().map(|item| Vec::from(item.expect("reads").0));
        assert!(back.eq(keys.iter().rev().cloned()));
        db.compact().expect("merges");
    }
}

/// A snapshot keeps its view and the files that only it needs. `stats` counts these files, and they are
/// removed with the snapshot.
#[test]
fn snapshots_keep_their_view_and_files() {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).open().expect("a new store");
    let items = db.ordered("items").set("table_bytes", 64 << 10).open().expect("a new keyspace");
    put(&db, &items, 0..2000);
    db.compact().expect("merges");
    put(&db, &items, 2000..4000);
    let at = db.snapshot();
    assert_eq!(db.stats().snapshots.alive, 1);
    for index in 0..4000 {
        items.delete(key(index)).expect("a write");
    }
    db.compact().expect("merges");
    let kept = db.stats().snapshots;
    assert!(kept.files > 0 && kept.file_bytes > 0, "{kept:?}");
    assert_eq!(items.iter().count(), 0);
    assert_eq!(items.at(&at).iter().filter(Result::is_ok).count(), 4000);
    let tables = || {
        fs::read_dir(scratch.data())
            .expect("there")
            .filter(|entry| {
                entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("table"))
            })
            .count()
    };
    assert!(tables() > 0);
    drop(at);
    let kept = db.stats().snapshots;
    assert_eq!((kept.alive, kept.files), (0, 0), "{kept:?}");
    drop(items);
    db.close().expect("closes");
    small(&scratch.data()).open().expect("opens").close().expect("closes");
    assert_eq!(tables(), 0);
}

/// A value of 64 KiB to 1 MiB is read in one device read, bypasses the cache and leaves no memory behind. Its
/// presence, or the absence of another key, is known without a read.
#[test]
fn large_values_are_read_once_and_alone() {
    let scratch = Scratch::new();
    let db = small(&scratch.data()).open().expect("a new store");
    let items = db.ordered("items").set("filter_bits_per_key", 0).open().expect("a new keyspace");
    let sizes = [65_536usize, 65_537, 131_072, 200_000, 524_288, 1_048_575, 1_048_576];
    for (index, bytes) in (0u64..).zip(sizes) {
        items.put(index.to_string(), vec![index as u8; bytes]).expect("within the limit");
    }
    put(&db, &items, 0..2000);
    db.compact().expect("merges");
    let small_items =
        |from| (from..2000).for_each(|index| assert!(items.contains(key(index)).expect("reads")));
    small_items(0);
    let reads = |what: &dyn Fn()| {
        let before = db.stats().io.device_reads;
        what();
        db.stats().io.device_reads - before
    };
    assert_eq!(reads(&|| small_items(0)), 0, "all are cached");
    for (index, bytes) in (0u64..).zip(sizes) {
        let name = index.to_string();
        for _ in 0..3 {
            let get = || assert_eq!(items.get(&name).expect("reads").map(|value| value.len()), Some(bytes));
            assert_eq!(reads(&get), 1, "{bytes} bytes");
        }
        assert_eq!(reads(&|| assert!(items.contains(&name).expect("reads"))), 0, "{bytes} bytes");
        let absent = || assert_eq!(items.get(name.clone() + "!").expect("reads"), None);
        assert_eq!(reads(&absent), 0, "after {bytes} bytes");
    }
    assert_eq!(reads(&|| small_items(0)), 0, "all are cached still");
    let stats = db.stats();
    let roles: Vec<_> = stats.memory.roles.iter().filter(|role| role.bytes > role.limit_bytes).collect();
    assert!(roles.is_empty(), "{roles:?}");
}
