//! The promises of the storage trait, tested on every implementation.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::path::Path;

use crate::base::error::Error;
use crate::base::few::Few;
use crate::base::id::{FileKind, FileName};
use crate::base::sync::Arc;

use super::os::{DirectIo, FileUse, OsStorage, ReadWith};
use super::reader::{Completed, ReaderKind, Request, Target};
use super::sim::{SimDisk, SimRng};
use super::storage::{DirectoryEntry, LockMode, Storage, read_whole};

const LOG: FileName = FileName { kind: FileKind::Log, number: 7, path: 0 };
const TABLE: FileName = FileName { kind: FileKind::Table, number: 0x2a, path: 0 };

/// Runs `test` on every storage, with a second opener of the same directory.
fn on_every_storage(test: impl Fn(&dyn Storage, &dyn Storage)) {
    for direct_io in [DirectIo::Off, DirectIo::WhereSupported] {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("store");
        let open = |path: &Path| OsStorage::new(path, FileUse::new(direct_io, 16, ReadWith::Auto));
        test(&open(&path), &open(&path));
    }
    let disk = SimDisk::new(1);
    test(&*disk, &*disk);
}

fn read_all(storage: &dyn Storage, file: FileName) -> Vec<u8> {
    let length = storage.length(file).unwrap().unwrap();
    let mut bytes = vec![0; length as usize];
    assert_eq!(storage.read(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn names(storage: &dyn Storage) -> Vec<String> {
    let mut names: Vec<String> = storage.list().unwrap().iter().map(|entry| format!("{entry:?}")).collect();
    names.sort();
    names
}

fn is_io(error: &Error, kind: std::io::ErrorKind) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == kind)
}

/// The directory is made once. Before that, list, lock and length fail with `Missing`.
#[test]
fn a_directory_is_made_once() {
    on_every_storage(|storage, _| {
        assert!(!storage.exists().unwrap());
        assert!(matches!(storage.list(), Err(Error::Missing { .. })));
        assert!(matches!(storage.lock(LockMode::Exclusive), Err(Error::Missing { .. })));
        assert!(matches!(storage.length(LOG), Err(Error::Missing { .. })));
        assert!(storage.create_directory().unwrap());
        assert!(!storage.create_directory().unwrap());
        assert!(storage.exists().unwrap());
        assert!(names(storage).is_empty());
        storage.sync_directory().unwrap();
        storage.sync_directory().unwrap();
    });
}

/// A file of several pieces is read whole, both zeros and other bytes. An unexpected length and a missing
/// file are corruption.
#[test]
fn files_are_read_whole() {
    const LENGTH: usize = (5 << 20) + 3;
    on_every_storage(|storage, _| {
        storage.create_directory().unwrap();
        storage.create(LOG).unwrap();
        let mut bytes = vec![0; LENGTH];
        for at in [0, (2 << 20) - 1, 2 << 20, (4 << 20) - 1, LENGTH - 1] {
            bytes[at] = 1 + (at % 251) as u8;
        }
        storage.write(LOG, 0, &bytes).unwrap();
        assert!(read_whole(storage, LOG, LENGTH as u64).unwrap() == bytes);
        storage.write(LOG, 2 << 20, &[0; 2 << 20]).unwrap();
        bytes[2 << 20..4 << 20].fill(0);
        assert!(read_whole(storage, LOG, LENGTH as u64).unwrap() == bytes);
        for (file, length) in [(LOG, LENGTH - 1), (LOG, LENGTH + 1), (TABLE, LENGTH)] {
            assert!(matches!(read_whole(storage, file, length as u64), Err(Error::Corrupt(_))));
        }
    });
}

/// Reads return the written bytes at any offset and alignment, across holes and up to the end of the file,
/// and no further.
#[test]
fn reads_see_writes() {
    on_every_storage(|storage, _| {
        storage.create_directory().unwrap();
        for file in [LOG, TABLE] {
            storage.create(file).unwrap();
            assert_eq!(storage.length(file).unwrap(), Some(0));
            let bytes: Vec<u8> = (0..20_000u32).map(|index| (index % 251) as u8).collect();
            storage.write(file, 0, &bytes[..5000]).unwrap();
            storage.write(file, 5000, &bytes[5000..]).unwrap();
            assert_eq!(read_all(storage, file), bytes);
            storage.start_writeback(file, 0, 8192);
            storage.sync(file).unwrap();
            assert_eq!(read_all(storage, file), bytes);

            let mut buffer = vec![0xff; 300];
            assert_eq!(storage.read(file, 19_900, &mut buffer).unwrap(), 100);
            assert_eq!(buffer[..100], bytes[19_900..]);
            assert_eq!(storage.read(file, 20_000, &mut buffer).unwrap(), 0);
            assert_eq!(storage.read(file, 1 << 40, &mut buffer).unwrap(), 0);
            assert_eq!(storage.read(file, 0, &mut []).unwrap(), 0);

            storage.write(file, 4095, b"over").unwrap();
            storage.write(file, 30_000, b"far").unwrap();
            storage.write(file, 30_003, b"").unwrap();
            assert_eq!(storage.length(file).unwrap(), Some(30_003));
            let now = read_all(storage, file);
            assert_eq!((&now[4095..4099], &now[30_000..]), (&b"over"[..], &b"far"[..]));
            assert!(now[20_000..30_000].iter().all(|byte| *byte == 0));
        }
        let counts = storage.counts();
        assert!(counts.reads >= 10 && counts.read_bytes >= 140_000, "{counts:?}");
        assert!(counts.writes >= 8 && counts.write_bytes == 2 * 20_007 && counts.syncs == 2, "{counts:?}");
    });
}

/// Aligned reads of a table, which may bypass the page cache, return the bytes just written, including a
/// short read at the end.
#[test]
fn aligned_table_reads_see_writes() {
    on_every_storage(|storage, _| {
        storage.create_directory().unwrap();
        storage.create(TABLE).unwrap();
        let bytes: Vec<u8> = (0..10_000u32).map(|index| (index / 7) as u8).collect();
        storage.write(TABLE, 0, &bytes).unwrap();
        let mut memory = vec![0; 3 * 4096];
        let start = memory.as_ptr().align_offset(4096);
        let buffer = &mut memory[start..start + 8192];
        for synced in [false, true] {
            if synced {
                storage.sync(TABLE).unwrap();
            }
            for (offset, length) in
                [(0, 8192), (4096, 4096), (512, 1024), (8192, 4096), (9728, 512), (12_288, 512)]
            {
                let expected = &bytes[bytes.len().min(offset)..bytes.len().min(offset + length)];
                let got = storage.read(TABLE, offset as u64, &mut buffer[..length]).unwrap();
                assert_eq!(&buffer[..got], expected, "{length} bytes at {offset}");
            }
        }
    });
}

/// Offsets that no file can have are errors, not panics: they may come from damaged bytes.
#[test]
fn impossible_offsets_are_errors() {
    on_every_storage(|storage, _| {
        storage.create_directory().unwrap();
        storage.create(LOG).unwrap();
        for offset in [u64::MAX, u64::MAX - 3, i64::MAX as u64 - 2] {
            let invalid = |error: Error| is_io(&error, std::io::ErrorKind::InvalidInput);
            assert!(invalid(storage.read(LOG, offset, &mut [0; 4]).unwrap_err()));
            assert!(invalid(storage.write(LOG, offset, &[0; 4]).unwrap_err()));
        }
    });
}

/// No file is created twice or renamed over another, and a missing file is an error.
#[test]
fn names_come_and_go() {
    on_every_storage(|storage, _| {
        storage.create_directory().unwrap();
        storage.create(LOG).unwrap();
        storage.write(LOG, 0, b"log").unwrap();
        let exists = |error: Error| is_io(&error, std::io::ErrorKind::AlreadyExists);
        let missing = |error: Error| is_io(&error, std::io::ErrorKind::NotFound);
        assert!(exists(storage.create(LOG).unwrap_err()));
        assert!(missing(storage.read(TABLE, 0, &mut [0]).unwrap_err()));
        assert!(missing(storage.write(TABLE, 0, &[0]).unwrap_err()));
        assert!(missing(storage.sync(TABLE).unwrap_err()));
        storage.start_writeback(TABLE, 0, 1);

        let other = FileName::new(FileKind::Log, 8);
        assert!(missing(storage.rename(TABLE, other).unwrap_err()));
        storage.rename(LOG, other).unwrap();
        assert_eq!(storage.length(LOG).unwrap(), None);
        assert!(missing(storage.read(LOG, 0, &mut [0]).unwrap_err()));
        assert_eq!(read_all(storage, other), b"log");
        storage.write(other, 3, b"ged").unwrap();
        storage.create(LOG).unwrap();
        assert!(exists(storage.rename(LOG, other).unwrap_err()));
        assert_eq!(read_all(storage, other), b"logged");
        assert_eq!(
            names(storage),
            [format!("{:?}", DirectoryEntry::Ours(LOG)), format!("{:?}", DirectoryEntry::Ours(other))]
        );

        storage.remove(other).unwrap();
        storage.remove(other).unwrap();
        assert!(missing(storage.read(other, 0, &mut [0]).unwrap_err()));
        assert_eq!(names(storage), [format!("{:?}", DirectoryEntry::Ours(LOG))]);
        storage.sync_directory().unwrap();
    });
}

/// A second directory of one store is not supported yet, and a name in it is refused.
#[test]
fn other_directories_are_refused() {
    on_every_storage(|storage, _| {
        storage.create_directory().unwrap();
        let elsewhere = FileName { path: 1, ..TABLE };
        let refused = |error: Error| matches!(error, Error::Unsupported { .. });
        assert!(refused(storage.create(elsewhere).unwrap_err()));
        assert!(refused(storage.length(elsewhere).unwrap_err()));
        assert!(refused(storage.remove(elsewhere).unwrap_err()));
        assert!(refused(storage.rename(TABLE, elsewhere).unwrap_err()));
    });
}

/// One writer or many readers, also within a process. Releasing the lock lets the next opener in.
#[test]
fn locks_exclude() {
    on_every_storage(|storage, second| {
        storage.create_directory().unwrap();
        second.lock(LockMode::Shared).unwrap();
        assert!(names(storage).iter().any(|name| name.contains("Lock")), "a reader makes LOCK");
        second.unlock();
        storage.lock(LockMode::Exclusive).unwrap();
        for mode in [LockMode::Exclusive, LockMode::Shared] {
            assert!(matches!(second.lock(mode), Err(Error::Locked { .. })));
            assert!(matches!(storage.lock(mode), Err(Error::Locked { .. })));
        }
        storage.unlock();
        second.lock(LockMode::Shared).unwrap();
        storage.lock(LockMode::Shared).unwrap();
        storage.unlock();
        assert!(matches!(storage.lock(LockMode::Exclusive), Err(Error::Locked { .. })));
        second.unlock();
        storage.lock(LockMode::Exclusive).unwrap();
        storage.unlock();
        assert_eq!(storage.counts().open_files, 0);
    });
}

/// The boot id does not change from call to call, nor between openers.
#[test]
fn the_boot_id_stays() {
    on_every_storage(|storage, second| {
        assert_eq!(storage.boot_id(), storage.boot_id());
        assert_eq!(storage.boot_id(), second.boot_id());
        assert!(!storage.path().is_empty());
    });
}

/// Threads that create, write, read and remove many files at once see only their own bytes.
#[test]
fn threads_share_a_storage() {
    on_every_storage(|storage, _| {
        storage.create_directory().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    for round in 0..40 {
                        let file = FileName::new(FileKind::Table, 1000 * thread + round);
                        storage.create(file).unwrap();
                        storage.write(file, 0, &[thread as u8; 700]).unwrap();
                        assert_eq!(read_all(storage, file), [thread as u8; 700]);
                        if round >= 30 {
                            storage.remove(FileName { number: file.number - 30, ..file }).unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(storage.list().unwrap().len(), 4 * 30);
    });
}

/// Every storage with every kind of reader, each with TABLE in it.
fn readable(bytes: &[u8]) -> Vec<(Arc<dyn Storage>, Option<tempfile::TempDir>)> {
    let mut storages: Vec<(Arc<dyn Storage>, Option<tempfile::TempDir>)> = Vec::new();
    for read_with in [ReadWith::Auto, ReadWith::Ring, ReadWith::RingPoll, ReadWith::Plain, ReadWith::Pool] {
        for direct_io in [DirectIo::Off, DirectIo::WhereSupported] {
            let parent = tempfile::tempdir().unwrap();
            let storage =
                OsStorage::new(&parent.path().join("store"), FileUse::new(direct_io, 16, read_with));
            storages.push((Arc::new(storage), Some(parent)));
        }
    }
    for seed in 0..4 {
        storages.push((SimDisk::new(seed), None));
    }
    for (storage, _) in &storages {
        storage.create_directory().unwrap();
        storage.create(TABLE).unwrap();
        storage.write(TABLE, 0, bytes).unwrap();
        storage.sync(TABLE).unwrap();
    }
    storages
}

/// The target of a read at `offset`: several buffers, aligned for a direct read or not.
struct Parts {
    file: FileName,
    offset: usize,
    memory: Vec<u8>,
    start: usize,
    /// Lengths of the buffers and of the gap behind each, which may be 0.
    parts: Vec<(usize, usize)>,
}

impl Parts {
    fn new(rng: &mut SimRng, file: FileName) -> Parts {
        let unit = if rng.one_in(3) { 1 } else { 512 };
        let mut part = |most: u64| (1 + rng.below(most)) as usize * unit;
        let parts: Vec<_> = (0..part(4) / unit).map(|_| (part(16), part(3) / unit / 2 * 512)).collect();
        let offset = part(90) - unit;
        let memory = vec![0; parts.iter().map(|(bytes, gap)| bytes + gap).sum::<usize>() + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Parts { file, offset, memory, start, parts }
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.buffers().concat()
    }
}

impl Target for Parts {
    fn buffers(&mut self) -> Few<&mut [u8]> {
        let mut rest = &mut self.memory[self.start..];
        let mut buffers = Few::new();
        for (bytes, gap) in &self.parts {
            let (one, behind) = std::mem::take(&mut rest).split_at_mut(*bytes);
            buffers.push(one);
            rest = &mut behind[*gap..];
        }
        buffers
    }
}

/// Many reads in flight, in any order, over several buffers, past the end and of missing files: each returns
/// its own bytes or its own error. Shown for rings, threads, plain reads and the simulator.
#[test]
fn f11_reads_in_flight_have_their_own_bytes() {
    let bytes: Vec<u8> =
        (0..70_001u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (storage, _parent) in readable(&bytes) {
        let mut rng = SimRng::new(7);
        for round in 0..6 {
            let mut reader = Arc::clone(&storage).reader();
            let mut in_flight = 0;
            let mut completed = Vec::new();
            let mut left = 100;
            while left > 0 || in_flight > 0 {
                while left > 0 && reader.room() > 0 && !rng.one_in(20) {
                    let file = if rng.one_in(10) { LOG } else { TABLE };
                    let target = Parts::new(&mut rng, file);
                    let offset = target.offset as u64;
                    reader.push(Request { file, offset, target: Box::new(target) });
                    (left, in_flight) = (left - 1, in_flight + 1);
                }
                reader.reap(&mut completed);
                assert!(in_flight == 0 || !completed.is_empty(), "a reap waits for one at least");
                in_flight -= completed.len();
                for Completed { result, target } in completed.drain(..) {
                    let target: Box<dyn std::any::Any> = target;
                    let mut parts: Box<Parts> = target.downcast().unwrap();
                    if parts.file == LOG {
                        assert!(is_io(&result.unwrap_err(), std::io::ErrorKind::NotFound));
                        continue;
                    }
                    let read = parts.bytes();
                    let there = bytes.get(parts.offset..).unwrap_or_default();
                    let there = &there[..there.len().min(read.len())];
                    assert_eq!(result.unwrap(), there.len());
                    assert!(read.starts_with(there));
                }
                if round == 0 && left < 40 {
                    // The reader is dropped with reads in flight.
                    break;
                }
            }
        }
    }
}

/// A reader reports its kind and the reason for it. A kernel that refuses a ring is no error.
#[test]
fn f10_readers_report_their_kind() {
    for (storage, _parent) in readable(b"") {
        let (kind, why) = storage.reader_kind();
        assert!(["ring", "ring_poll", "pool", "pread", "simulated"].contains(&kind.name()));
        let is_best = matches!(kind, ReaderKind::Ring | ReaderKind::RingPoll | ReaderKind::Simulated);
        assert_eq!(why.is_empty(), is_best);
        assert!(!format!("{:?}", Arc::clone(&storage).reader()).is_empty());
    }
}
