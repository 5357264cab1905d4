//! Requests for blocks. Each block is claimed in the table of reads in flight, neighbours share a request,
//! and the slot of each block delivers its result.

use crate::base::error::Result;
use crate::base::few::Few;
use crate::base::load::{CountedRead, DeviceLoad};
use crate::base::step::BlockAddress;
use crate::base::sync::Arc;
use crate::cache::{BlockRef, Claim, ReadSlot};
use crate::io::reader::{Request, Target};
use crate::table;

use super::admission::{BlockOrWaiter, Permit};

/// Most bytes of one request.
pub(in crate::engine) const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Most blocks of one request.
const REQUEST_BLOCKS_MAX: usize = 256;

/// The asker's number, and its answer.
pub(super) type Answered = (usize, Result<BlockRef>);

/// A block that this thread has the right to read.
pub(in crate::engine) struct Claimed {
    /// The asker that is answered by number; all others are answered by the slot.
    pub(super) who: Option<usize>,
    pub(super) slot: ReadSlot,
    /// The permit of a future's read, held until the read ends.
    pub(super) permit: Option<Permit>,
}

impl Claimed {
    /// A claimed block that only its slot answers for.
    pub(in crate::engine) fn new(slot: ReadSlot) -> Claimed {
        Claimed { who: None, slot, permit: None }
    }

    pub(super) fn address(&self) -> &BlockAddress {
        self.slot.address()
    }

    /// Turns a claim into its result; a right to read is added to `claimed`.
    pub(in crate::engine) fn begin(
        claim: Claim,
        permit: Permit,
        claimed: &mut impl Extend<Claimed>,
    ) -> BlockOrWaiter {
        match claim {
            Claim::Ready(block) => Ok(block),
            Claim::Wait(waiter) => Err(waiter),
            Claim::Read(slot) => {
                let waiter = slot.waiter();
                claimed.extend([Claimed { permit: Some(permit), ..Claimed::new(slot) }]);
                Err(waiter)
            }
        }
    }
}

/// The blocks of one request, adjacent in their file.
pub(super) struct Blocks(pub(super) Few<Claimed>, pub(super) CountedRead);

impl Target for Blocks {
    fn buffers(&mut self) -> Few<&mut [u8]> {
        self.0.iter_mut().map(|block| block.slot.buffer()).collect()
    }
}

/// Drains `claimed` into requests, in file order, neighbours together.
pub(in crate::engine) fn requests(
    claimed: &mut Vec<Claimed>,
    bytes_max: usize,
    load: &Arc<DeviceLoad>,
    mut give: impl FnMut(Request),
) {
    claimed.sort_unstable_by_key(|block| {
        let address = block.address();
        (address.file, address.offset)
    });
    let mut blocks: Few<Claimed> = Few::new();
    let mut bytes = 0;
    for block in claimed.drain(..) {
        let is_neighbour = blocks.last().is_some_and(|last| follows(last.address(), block.address()));
        let is_full =
            bytes + block.address().bytes as usize > bytes_max || blocks.len() == REQUEST_BLOCKS_MAX;
        if !blocks.is_empty() && (!is_neighbour || is_full) {
            give(request(std::mem::take(&mut blocks), load));
            bytes = 0;
        }
        bytes += block.address().bytes as usize;
        blocks.push(block);
    }
    if !blocks.is_empty() {
        give(request(blocks, load));
    }
}

/// Whether `next` begins where `block` ends.
fn follows(block: &BlockAddress, next: &BlockAddress) -> bool {
    block.file == next.file && block.offset + u64::from(block.bytes) == next.offset
}

fn request(blocks: Few<Claimed>, load: &Arc<DeviceLoad>) -> Request {
    let BlockAddress { file, offset, .. } = *blocks[0].address();
    Request { file, offset, target: Box::new(Blocks(blocks, load.reading())) }
}

/// Verifies a block that was read, and delivers it to all waiters.
pub(super) fn end_slot(slot: ReadSlot, read: Result<usize>) -> Result<BlockRef> {
    match read {
        Ok(bytes) => table::complete_read(slot, bytes),
        Err(error) => {
            slot.fail(error.clone());
            Err(error)
        }
    }
}
