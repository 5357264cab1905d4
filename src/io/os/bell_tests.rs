//! Bells of the ring and of the pool, beside reads that end at the test's command: reads from a pipe, and
//! reads in a queue without threads.

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

use super::super::reader::{Completed, Reader, ReaderKind, Request, Target};
use super::super::storage::Storage;
use super::files::DescriptorPurpose;
use super::pool::ThreadPool;
use super::{DirectIo, FileUse, OsStorage, ReadWith};
use crate::base::few::Few;
use crate::base::id::{FileKind, FileName};
use crate::base::sync::{Arc, AtomicU64, Ordering};

const TABLE: FileName = FileName { kind: FileKind::Table, number: 1, path: 0 };
const MISSING: FileName = FileName { kind: FileKind::Table, number: 2, path: 0 };

struct Buffer([u8; 5]);

impl Target for Buffer {
    fn buffers(&mut self) -> Few<&mut [u8]> {
        Few::from_buf([&mut self.0])
    }
}

/// A device whose reads end at the test's command.
enum Device {
    Pipe { storage: Arc<OsStorage>, pipe: OwnedFd, _parent: tempfile::TempDir },
    Queue { storage: Arc<OsStorage>, pool: ThreadPool, _parent: tempfile::TempDir },
}

impl Device {
    fn storage(read_with: ReadWith) -> (Arc<OsStorage>, tempfile::TempDir) {
        let parent = tempfile::tempdir().expect("makes");
        let storage =
            OsStorage::new(&parent.path().join("store"), FileUse::new(DirectIo::Off, 16, read_with));
        storage.create_directory().expect("makes");
        (Arc::new(storage), parent)
    }

    /// A pipe read through a ring, where the kernel gives one.
    fn pipe() -> Option<Device> {
        let (storage, parent) = Device::storage(ReadWith::Ring);
        if storage.reader_kind().0 != ReaderKind::Ring {
            return None;
        }
        let path = parent.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("makes");
        let open = || open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        // The storage itself does not open pipes.
        storage.files.get(TABLE, DescriptorPurpose::Buffered, open).expect("opens");
        let pipe = open().expect("opens");
        Some(Device::Pipe { storage, pipe, _parent: parent })
    }

    fn queue() -> Device {
        let (storage, parent) = Device::storage(ReadWith::Pool);
        storage.create(TABLE).expect("makes");
        storage.write(TABLE, 0, b"items").expect("writes");
        Device::Queue { storage, pool: ThreadPool::without_threads(), _parent: parent }
    }

    fn all() -> impl Iterator<Item = Device> {
        Device::pipe().into_iter().chain([Device::queue()])
    }

    fn reader(&self) -> Box<dyn Reader> {
        match self {
            Device::Pipe { storage, .. } => Arc::clone(storage).reader(),
            Device::Queue { storage, pool, .. } => pool.reader(storage.clone()),
        }
    }

    /// A reader with one read in flight, which does not end yet.
    fn reading(&self) -> Box<dyn Reader> {
        let mut reader = self.reader();
        push(&mut *reader, TABLE);
        reader
    }

    /// Ends one read of the pipe, now or when it begins, or all reads of the queue.
    fn end(&self) {
        match self {
            Device::Pipe { pipe, .. } => assert_eq!(rustix::io::write(pipe, b"items"), Ok(5)),
            Device::Queue { pool, .. } => pool.work_off(),
        }
    }
}

fn push(reader: &mut dyn Reader, file: FileName) {
    reader.push(Request { file, offset: 0, target: Box::new(Buffer([0; 5])) });
}

/// Number of reads that a `reap_or_bell` returns.
fn heard(reader: &mut dyn Reader, timeout_ns: Option<u64>) -> usize {
    let mut completed = Vec::new();
    reader.reap_or_bell(&mut completed, timeout_ns);
    check(completed)
}

fn reaped(reader: &mut dyn Reader) -> usize {
    let mut completed = Vec::new();
    reader.reap(&mut completed);
    check(completed)
}

fn check(completed: Vec<Completed>) -> usize {
    let count = completed.len();
    for Completed { result, mut target } in completed {
        assert_eq!((result.expect("no fault"), target.buffers().concat()), (5, b"items".to_vec()));
    }
    count
}

/// A bell rung before a wait, during it, or after the previous wait ends the wait, and no read is returned.
#[test]
fn a_bell_ends_one_wait() {
    const ROUNDS: usize = 300;
    for device in Device::all() {
        let mut reader = device.reading();
        let bell = reader.bell();
        bell.wake_by_ref();
        assert_eq!(heard(&mut *reader, None), 0);
        for _ in 0..ROUNDS {
            std::thread::scope(|scope| {
                scope.spawn(|| bell.wake_by_ref());
                assert_eq!(heard(&mut *reader, None), 0);
            });
        }
        device.end();
        assert_eq!(reaped(&mut *reader), 1);
        bell.wake();
        push(&mut *reader, TABLE);
        assert_eq!(heard(&mut *reader, None), 0);
        device.end();
        assert_eq!(reaped(&mut *reader), 1);
    }
}

/// Threads ring at any moment. The waiter checks their work first and then waits: it sees the work or is
/// woken.
#[test]
fn no_ring_is_lost() {
    const THREADS: u64 = 3;
    const RINGS: u64 = 500;
    for device in Device::all() {
        let mut reader = device.reading();
        let (bell, done) = (reader.bell(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..RINGS {
                        done.fetch_add(1, Ordering::SeqCst);
                        bell.wake_by_ref();
                    }
                });
            }
            while done.load(Ordering::SeqCst) < THREADS * RINGS {
                assert_eq!(heard(&mut *reader, None), 0);
            }
        });
        device.end();
    }
}

/// Without a bell a wait ends with a read; with no read in flight it ends at once.
#[test]
fn without_a_bell_a_read_ends_the_wait() {
    for device in Device::all() {
        let mut reader = device.reading();
        std::thread::scope(|scope| {
            scope.spawn(|| device.end());
            assert_eq!(heard(&mut *reader, None), 1);
        });
        assert_eq!(heard(&mut *reader, None), 0);
        if let Device::Pipe { .. } = device {
            push(&mut *reader, MISSING);
            let mut completed = Vec::new();
            reader.reap_or_bell(&mut completed, None);
            assert!(completed.len() == 1 && completed[0].result.is_err());
        }
    }
}

/// A plain `reap` ignores the bell: it returns a read, and the bell may end the next `reap_or_bell`.
#[test]
fn a_reap_hears_no_bell() {
    for device in Device::all() {
        for _ in 0..20 {
            let mut reader = device.reading();
            reader.bell().wake();
            std::thread::scope(|scope| {
                scope.spawn(|| device.end());
                assert_eq!(reaped(&mut *reader), 1);
            });
        }
    }
}

/// A wait ends at its timeout; a wait with a long timeout ends with a read.
#[test]
fn timeouts_end_the_wait() {
    for device in Device::all() {
        let mut reader = device.reading();
        for timeout_ns in [0, 1, 1000, 3_000_000] {
            assert_eq!(heard(&mut *reader, Some(timeout_ns)), 0);
        }
        device.end();
        assert_eq!(heard(&mut *reader, Some(u64::MAX)), 1);
    }
}

/// A reader returned with its bell rung, or whose bell is rung late, leaves a ring that works for the next
/// borrower.
#[test]
fn a_ring_given_back_serves_the_next() {
    for device in Device::all() {
        let mut first = device.reading();
        let late = first.bell();
        assert_eq!(heard(&mut *first, Some(0)), 0);
        device.end();
        assert_eq!(reaped(&mut *first), 1);
        late.wake_by_ref();
        drop(first);
        for is_rung_late in [false, true] {
            let mut next = device.reading();
            if is_rung_late {
                late.wake_by_ref();
            }
            std::thread::scope(|scope| {
                scope.spawn(|| device.end());
                assert_eq!(reaped(&mut *next), 1);
            });
            push(&mut *next, TABLE);
            next.bell().wake();
            assert_eq!(heard(&mut *next, None), 0);
            next.bell().wake();
            device.end();
            // Dropped with a read in flight, or with an ended read that was not returned.
            drop(next);
        }
    }
}
