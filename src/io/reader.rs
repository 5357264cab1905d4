//! Several reads in flight at once, for one caller: requests by file name, completions in any order.
//!
//! A [`Reader`] is borrowed from a storage by whoever has many reads to do, and returned empty by its drop.
//! It is not shared, waits for nobody else's reads, and knows nothing of what is read. Drivers of the engine
//! and streams of tables are its callers; one thread at a time.
//!
//! Promises every implementation keeps:
//! 1. Every request that is pushed comes back once, with its target, unless the reader is dropped first.
//! 2. A target belongs to the reader from `push` until it comes back: nobody else can reach its memory while
//!    the kernel may write it, whatever its owner does meanwhile, a panic included.
//! 3. Dropping a reader waits for what is in flight, then drops the targets.
//! 4. A bell that is rung ends the next `reap_or_bell`, or one that waits; no ring is lost.
//! 5. What [`Storage::read`] promises of one read holds for each: continued when short but for the end of the
//!    file, and an error is that request's alone.

use std::any::Any;
use std::collections::VecDeque;
use std::task::Waker;

use crate::base::error::Result;
use crate::base::few::Few;
use crate::base::id::FileName;
use crate::base::sync::Arc;

use super::storage::Storage;

/// Memory that a read fills.
pub(crate) trait Target: Any + Send {
    /// The buffers, in the order of the file: the same memory at each call, wherever the target is moved to.
    fn buffers(&mut self) -> Few<&mut [u8]>;
}

/// One read.
pub(crate) struct Request {
    pub(crate) file: FileName,
    pub(crate) offset: u64,
    pub(crate) target: Box<dyn Target>,
}

/// A read that has ended.
pub(crate) struct Completed {
    /// Bytes read: fewer than asked for only at the end of the file.
    pub(crate) result: Result<usize>,
    pub(crate) target: Box<dyn Target>,
}

/// See the module.
pub(crate) trait Reader: Send {
    /// Requests that may be pushed before some come back.
    fn room(&self) -> usize;

    /// Takes a request; it may begin at once, or at the next `submit` or `reap`.
    ///
    /// # Panics
    /// If there is no room.
    fn push(&mut self, request: Request);

    /// Makes what was pushed begin, where reads go on without their caller; waits for none.
    fn submit(&mut self) {}

    /// Waits until a read has ended, if any is in flight, and hands out all that have.
    fn reap(&mut self, completed: &mut Vec<Completed>);

    /// As `reap`, but hands out none if the bell is rung first, or nothing has ended within `timeout_ns`, and
    /// may hand out none for less. What reads on the caller's thread does not hear the bell.
    fn reap_or_bell(&mut self, completed: &mut Vec<Completed>, _timeout_ns: Option<u64>) {
        self.reap(completed);
    }

    /// What ends a `reap_or_bell` from any thread; it may be rung late, when that is over or the reader is.
    fn bell(&mut self) -> Waker {
        Waker::noop().clone()
    }
}

/// What reads several blocks at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReaderKind {
    /// A ring of the kernel's.
    Ring,
    /// One whose submissions a thread of the kernel's polls for.
    RingPoll,
    /// Threads that read.
    Pool,
    /// One read after another.
    Plain,
    /// The simulator: any order.
    #[cfg(any(test, feature = "sim"))]
    Simulated,
}

impl ReaderKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReaderKind::Ring => "ring",
            ReaderKind::RingPoll => "ring_poll",
            ReaderKind::Pool => "pool",
            ReaderKind::Plain => "pread",
            #[cfg(any(test, feature = "sim"))]
            ReaderKind::Simulated => "simulated",
        }
    }
}

/// Requests that wait for their turn in a reader that does one at a time.
const PLAIN_ROOM: usize = 64;

/// One read after another, on the caller's thread, in the order pushed.
pub(crate) struct PlainReader {
    storage: Arc<dyn Storage>,
    pushed: VecDeque<Request>,
}

impl PlainReader {
    pub(crate) fn new(storage: Arc<dyn Storage>) -> PlainReader {
        PlainReader { storage, pushed: VecDeque::new() }
    }
}

impl Reader for PlainReader {
    fn room(&self) -> usize {
        PLAIN_ROOM - self.pushed.len()
    }

    fn push(&mut self, request: Request) {
        assert!(self.room() > 0, "a caller asks for room first");
        self.pushed.push_back(request);
    }

    fn reap(&mut self, completed: &mut Vec<Completed>) {
        if let Some(request) = self.pushed.pop_front() {
            completed.push(perform(&*self.storage, request));
        }
    }
}

/// Does a request on the caller's thread.
pub(crate) fn perform(storage: &dyn Storage, request: Request) -> Completed {
    let Request { file, offset, mut target } = request;
    let result = storage.read_vectored(file, offset, &mut target.buffers());
    Completed { result, target }
}

/// Fills what is missing of `buffers` behind the first `done_bytes`, which lie at `offset`, by one read. The
/// total, or fewer bytes at the end of the file.
pub(crate) fn fill_rest<S: Storage + ?Sized>(
    storage: &S,
    file: FileName,
    offset: u64,
    buffers: &mut [&mut [u8]],
    done_bytes: usize,
) -> Result<usize> {
    let read = storage.read_vectored(file, offset + done_bytes as u64, &mut rests(buffers, done_bytes))?;
    Ok(done_bytes + read)
}

/// What is behind the first `done_bytes` of the buffers.
pub(super) fn rests<'b>(buffers: &'b mut [&mut [u8]], done_bytes: usize) -> Few<&'b mut [u8]> {
    let mut skipped = done_bytes;
    let rest_of = |buffer: &'b mut &mut [u8]| {
        let from = skipped.min(buffer.len());
        skipped -= from;
        &mut buffer[from..]
    };
    buffers.iter_mut().map(rest_of).filter(|rest| !rest.is_empty()).collect()
}

impl std::fmt::Debug for dyn Reader + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader(room for {})", self.room())
    }
}
