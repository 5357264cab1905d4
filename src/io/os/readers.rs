//! The ways in which a storage has several reads in flight: a set of rings, a pool of threads, or neither.
//!
//! This module reads no bytes itself. `storage` holds one `Readers`; any thread borrows. No lock is held
//! across a system call.
//!
//! 1. The numbers of lent and idle rings are bounded; each ring takes a descriptor. A store that uses no
//!    rings has none, and a store short of descriptors closes the idle ones.
//! 2. A kernel that refuses rings is asked once.

use std::fmt;

use crate::base::sync::{Arc, Mutex, OnceLock};
#[cfg(target_os = "linux")]
use crate::base::sync::{AtomicUsize, Ordering};

use super::super::reader::{PlainReader, Reader, ReaderKind};
use super::pool::ThreadPool;
#[cfg(target_os = "linux")]
use super::ring::{Polls, Ring, RingReader, refusal};
use super::storage::OsStorage;

/// The requested way to have several reads in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadWith {
    /// Rings where the kernel gives them, otherwise threads.
    Auto,
    /// One read after another.
    Plain,
    /// Rings where the kernel gives them, otherwise one read after another.
    Ring,
    /// Threads.
    Pool,
    /// Rings whose submissions a kernel thread polls for; where the kernel gives none, one read after
    /// another.
    RingPoll,
}

/// Limit of rings kept idle.
#[cfg(target_os = "linux")]
const IDLE_RINGS_MAX: usize = 4;
/// Limit of rings lent at once. Further borrowers read as if there were no rings.
#[cfg(target_os = "linux")]
const LENT_RINGS_MAX: usize = 16;

#[cfg(not(target_os = "linux"))]
type Ring = std::convert::Infallible;

/// See the module.
pub(super) struct Readers {
    asked: ReadWith,
    idle: Mutex<Vec<Ring>>,
    #[cfg(target_os = "linux")]
    lent_count: AtomicUsize,
    /// Reason why there are no rings.
    refused: OnceLock<String>,
    /// `None` inside if the system started no threads.
    pool: OnceLock<Option<ThreadPool>>,
}

impl Readers {
    pub(super) fn new(asked: ReadWith) -> Readers {
        Readers {
            asked,
            idle: Mutex::default(),
            #[cfg(target_os = "linux")]
            lent_count: AtomicUsize::new(0),
            refused: OnceLock::new(),
            pool: OnceLock::new(),
        }
    }

    pub(super) fn borrow(&self, storage: Arc<OsStorage>) -> Box<dyn Reader> {
        match self.asked {
            ReadWith::Plain => Box::new(PlainReader::new(storage)),
            ReadWith::Pool => self.borrow_pool(storage),
            ReadWith::Auto | ReadWith::Ring | ReadWith::RingPoll => self.borrow_ring(storage),
        }
    }

    #[cfg(target_os = "linux")]
    fn borrow_ring(&self, storage: Arc<OsStorage>) -> Box<dyn Reader> {
        if self.refused.get().is_some() {
            return self.borrow_next(storage);
        }
        if self.lent_count.load(Ordering::Relaxed) >= LENT_RINGS_MAX {
            return self.borrow_next(storage);
        }
        let idle = self.idle.lock().pop();
        match idle.map_or_else(|| self.make_ring(), Some) {
            Some(ring) => {
                self.lent_count.fetch_add(1, Ordering::Relaxed);
                Box::new(RingReader::new(storage, ring))
            }
            None if self.refused.get().is_some() => self.borrow_next(storage),
            // Short of descriptors or memory now; the next borrower may get a ring.
            None => Box::new(PlainReader::new(storage)),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn borrow_ring(&self, storage: Arc<OsStorage>) -> Box<dyn Reader> {
        self.refused.get_or_init(|| "this system has no io_uring".to_owned());
        self.borrow_next(storage)
    }

    /// A reader for when rings are refused, or all are lent.
    fn borrow_next(&self, storage: Arc<OsStorage>) -> Box<dyn Reader> {
        match self.asked {
            ReadWith::Auto => self.borrow_pool(storage),
            _ => Box::new(PlainReader::new(storage)),
        }
    }

    #[cfg(target_os = "linux")]
    fn make_ring(&self) -> Option<Ring> {
        let error = match Ring::new(self.polls()) {
            Ok(ring) => return Some(ring),
            Err(error) => error,
        };
        match refusal(&error) {
            Some(why) => {
                if self.refused.set(why).is_ok() {
                    log::info!("{error}: reads go out together in another way");
                }
                None
            }
            None => None,
        }
    }

    #[cfg(target_os = "linux")]
    fn polls(&self) -> Polls {
        if self.asked == ReadWith::RingPoll { Polls::Kernel } else { Polls::Nobody }
    }

    fn borrow_pool(&self, storage: Arc<OsStorage>) -> Box<dyn Reader> {
        match self.pool.get_or_init(ThreadPool::new) {
            Some(pool) => pool.reader(storage),
            None => Box::new(PlainReader::new(storage)),
        }
    }

    /// Takes an empty ring back.
    #[cfg(target_os = "linux")]
    pub(super) fn give_back(&self, ring: Ring) {
        self.lent_count.fetch_sub(1, Ordering::Relaxed);
        self.keep(ring);
    }

    /// Notes that a lent ring has failed, with the error. All rings are given up then.
    #[cfg(target_os = "linux")]
    pub(super) fn lose(&self, error: &std::io::Error) {
        self.lent_count.fetch_sub(1, Ordering::Relaxed);
        if self.refused.set(format!("the kernel refuses io_uring: {error}")).is_ok() {
            log::warn!("io_uring does not go on, reads go out together in another way: {error}");
        }
        self.close();
    }

    #[cfg(target_os = "linux")]
    fn keep(&self, ring: Ring) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_RINGS_MAX {
            idle.push(ring);
            return;
        }
        drop(idle);
        drop(ring);
    }

    /// Closes the idle rings; `false` if there are none.
    pub(super) fn close(&self) -> bool {
        let idle = std::mem::take(&mut *self.idle.lock());
        !idle.is_empty()
    }

    /// The kind of reader that is borrowed here, and the reason if it is not the best kind. Makes a ring if
    /// none was made yet.
    pub(super) fn kind(&self) -> (ReaderKind, String) {
        let set = || "the setting io says so".to_owned();
        match self.asked {
            ReadWith::Plain => return (ReaderKind::Plain, set()),
            ReadWith::Pool => return (ReaderKind::Pool, set()),
            ReadWith::Auto | ReadWith::Ring | ReadWith::RingPoll => {}
        }
        #[cfg(target_os = "linux")]
        if self.refused.get().is_none() && self.idle.lock().is_empty() {
            match Ring::new(self.polls()) {
                Ok(ring) => self.keep(ring),
                Err(error) => {
                    if let Some(why) = refusal(&error) {
                        // Another thread may have set the same reason.
                        let _ = self.refused.set(why);
                    }
                }
            }
        }
        match self.refused.get() {
            None if self.asked == ReadWith::RingPoll => (ReaderKind::RingPoll, String::new()),
            None => (ReaderKind::Ring, String::new()),
            Some(why) if self.asked == ReadWith::Auto => (ReaderKind::Pool, why.clone()),
            Some(why) => (ReaderKind::Plain, why.clone()),
        }
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Readers({:?}, {:?})", self.asked, self.refused.get())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::reader::{Completed, Request, Target};
    use super::super::super::storage::Storage;
    use super::super::storage::{DirectIo, FileUse};
    use super::*;
    use crate::base::few::Few;
    use crate::base::id::{FileKind, FileName};

    struct Buffer([u8; 5]);

    impl Target for Buffer {
        fn buffers(&mut self) -> Few<&mut [u8]> {
            Few::from_buf([&mut self.0])
        }
    }

    /// Where the kernel refuses rings, threads read, or one read comes after another. They read the same
    /// bytes, and the reason is reported. The kernel is asked once.
    #[test]
    fn f10_a_refused_ring_is_done_without() {
        const WHY: &str = "the kernel refuses io_uring: Operation not permitted (os error 1)";
        for (asked, kind) in [(ReadWith::Auto, ReaderKind::Pool), (ReadWith::Ring, ReaderKind::Plain)] {
            let parent = tempfile::tempdir().expect("makes");
            let storage =
                OsStorage::new(&parent.path().join("store"), FileUse::new(DirectIo::Off, 16, asked));
            storage.readers.refused.set(WHY.to_owned()).expect("no reader has asked yet");
            let (storage, table) = (Arc::new(storage), FileName::new(FileKind::Table, 1));
            storage.create_directory().expect("makes");
            storage.create(table).expect("makes");
            storage.write(table, 0, b"items").expect("writes");
            let mut reader = Arc::clone(&storage).reader();
            reader.push(Request { file: table, offset: 0, target: Box::new(Buffer([0; 5])) });
            let mut completed = Vec::new();
            while completed.is_empty() {
                reader.reap(&mut completed);
            }
            let Some(Completed { result, target }) = completed.pop() else { panic!("one was pushed") };
            let mut target = target;
            assert_eq!((result.expect("reads"), target.buffers().concat()), (5, b"items".to_vec()));
            assert_eq!(storage.reader_kind(), (kind, WHY.to_owned()));
        }
    }

    /// A system call that is not permitted or missing is refused for good. A shortage of descriptors or
    /// memory is temporary.
    #[cfg(target_os = "linux")]
    #[test]
    fn f10_refusals_are_told_from_want() {
        use rustix::io::Errno;

        for errno in [Errno::PERM, Errno::NOSYS, Errno::ACCESS, Errno::INVAL, Errno::OPNOTSUPP] {
            let why = refusal(&errno.into()).expect("for good");
            assert!(why.starts_with("the kernel refuses io_uring"), "{why}");
        }
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN, Errno::INTR] {
            assert_eq!(refusal(&errno.into()), None);
        }
    }
}
