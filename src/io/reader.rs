//! Several reads in flight at once, for one caller: requests by file name, completions in any order.
//!
//! A caller with many reads to do borrows a [`Reader`] from a storage and returns it by dropping it. A reader
//! is not shared, waits for no other caller's reads, and does not interpret the bytes read. Its callers are
//! the engine's drivers and streams of tables; one thread at a time.
//!
//! Promises every implementation keeps:
//! 1. Every pushed request comes back once, with its target, unless the reader is dropped first.
//! 2. A target belongs to the reader from `push` until it comes back. No other code can reach its memory
//!    while the kernel may write it, even if the target's owner panics.
//! 3. Dropping a reader waits for all reads in flight, then drops their targets.
//! 4. Ringing the bell ends the waiting `reap_or_bell`, or else the next one; no ring is lost.
//! 5. The promises of [`Storage::read`] hold for each request: a short read is continued except at the end of
//!    the file, and an error concerns only its own request.

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
    /// The buffers, in file order. Each call returns the same memory, even after the target was moved.
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
    /// Bytes read: fewer than requested only at the end of the file.
    pub(crate) result: Result<usize>,
    pub(crate) target: Box<dyn Target>,
}

/// See the module.
pub(crate) trait Reader: Send {
    /// Number of requests that may be pushed before some come back.
    fn room(&self) -> usize;

    /// Takes a request. The read begins at once, or at the next `submit` or `reap`.
    ///
    /// # Panics
    /// If there is no room.
    fn push(&mut self, request: Request);

    /// Starts the pushed requests, if this reader reads in the background. Does not wait.
    fn submit(&mut self) {}

    /// Waits until a read has ended, if any is in flight, and returns all that have ended.
    fn reap(&mut self, completed: &mut Vec<Completed>);

    /// As `reap`, but may return no read: if the bell rings first, if no read ends within `timeout_ns`, or
    /// spuriously. A reader on the caller's thread ignores the bell.
    fn reap_or_bell(&mut self, completed: &mut Vec<Completed>, _timeout_ns: Option<u64>) {
        self.reap(completed);
    }

    /// A waker that ends a `reap_or_bell` from any thread. It may be called after that call has returned, or
    /// after the reader is dropped.
    fn bell(&mut self) -> Waker {
        Waker::noop().clone()
    }
}

/// Ways to read several blocks at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReaderKind {
    /// An io_uring.
    Ring,
    /// An io_uring whose submissions a kernel thread polls for.
    RingPoll,
    /// A pool of threads.
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

/// Requests that a [`PlainReader`] can queue.
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

/// Performs a request on the caller's thread.
pub(crate) fn perform(storage: &dyn Storage, request: Request) -> Completed {
    let Request { file, offset, mut target } = request;
    let result = storage.read_vectored(file, offset, &mut target.buffers());
    Completed { result, target }
}

/// Fills `buffers` behind their first `done_bytes` by one read. `offset` is that of the buffers' first byte.
/// Returns the total of bytes, less than asked for only at the end of the file.
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

/// The parts of the buffers behind their first `done_bytes`.
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
