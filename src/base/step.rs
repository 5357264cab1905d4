//! The one protocol for everything that waits: a machine is started and resumed, and says what it needs.
//!
//! A machine never reads, locks, sleeps or asks the clock. A driver owns buffers, requests in flight and the
//! order of completion, and holds no logic of the lookup.

use super::few::Few;
use super::id::FileName;

/// What a machine wants next.
#[derive(Debug)]
pub(crate) enum Step<A, T> {
    /// New asks, independent, that go out together; never empty.
    Ask(A),
    /// A prefetch was issued: go on without an answer, now or after the other machines of the batch.
    Touch,
    /// Nothing new: an ask in flight, or another machine, decides.
    Wait,
    /// The result.
    Done(T),
}

/// The driver's answer to one ask. The ask's number is free again once answered.
///
/// What a machine needs may have changed meanwhile, as pages come to stay in memory: it takes an answer for
/// the block that it asked for and for no other.
#[derive(Debug)]
pub(crate) struct Answer<R, E> {
    pub(crate) ask: u8,
    pub(crate) result: Result<R, E>,
}

/// Which way a scan goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// What is read: decides who verifies it, and how.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub(crate) enum BlockKind {
    Data = 1,
    Filter = 2,
    Fence = 3,
}

/// A block of a table, as its index names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BlockAddress {
    pub(crate) file: FileName,
    /// 64 random bits of the file: the context of the block's checksum.
    pub(crate) file_uid: u64,
    pub(crate) offset: u64,
    /// Whole 512-byte units.
    pub(crate) bytes: u32,
    pub(crate) kind: BlockKind,
}

/// One read of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Read {
    pub(crate) ask: u8,
    pub(crate) block: BlockAddress,
}

/// Asks of one step: plain data, at most [`SCAN_ASKS_MAX`] in flight, and 8 of a get.
pub(crate) type Reads = Few<Read>;

/// The ask number of a block that will be wanted later, if at all: it is answered to nobody, and that it
/// cannot be read is nobody's error.
pub(crate) const AHEAD: u8 = u8::MAX;

/// Reads that a scan waits for at once.
pub(crate) const SCAN_ASKS_MAX: usize = 32;
