//! The protocol of everything that waits: a machine is started and resumed, and returns what it needs as a
//! [`MachineStep`].
//!
//! A machine never reads, locks, sleeps or asks the clock. A driver owns buffers, requests in flight and the
//! order of completion, and holds no logic of the lookup.

use super::few::Few;
use super::id::FileName;

/// The next need of a machine.
#[derive(Debug)]
pub(crate) enum MachineStep<A, T> {
    /// New asks, independent, that go out together; never empty.
    Ask(A),
    /// A prefetch was issued: resume without an answer, now or after the other machines of the batch.
    Touch,
    /// No new ask: an ask in flight, or another machine, decides.
    Wait,
    /// The result.
    Done(T),
}

/// The driver's answer to one ask. The ask's number is free again once answered.
///
/// The machine's needs may have changed meanwhile, since pages become pinned in memory. So a machine takes an
/// answer for the block that it asked for and for no other.
#[derive(Debug)]
pub(crate) struct Answer<R, E> {
    pub(crate) ask: u8,
    pub(crate) result: Result<R, E>,
}

/// The direction of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// The kind of a block: decides which code verifies it, and how.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub(crate) enum BlockKind {
    Data = 1,
    Filter = 2,
    Fence = 3,
}

/// The address of a block, as its table's index gives it.
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

/// Asks of one step: plain data. A scan has at most [`SCAN_ASKS_MAX`] in flight, a get at most 8.
pub(crate) type Reads = Few<Read>;

/// The ask number of a block that may be wanted later. It gets no answer, and a failed read of it is no
/// error.
pub(crate) const AHEAD: u8 = u8::MAX;

/// Most reads that a scan waits for at once.
pub(crate) const SCAN_ASKS_MAX: usize = 32;
