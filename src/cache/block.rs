//! Counted references to blocks: in a cache frame, or in heap memory of their own.

use std::ops::Deref;

use crate::base::reserve::Grant;
use crate::base::sync::Arc;

use super::frames::{Counted, HeapBlock};

/// A reference that keeps a block unchanged until it is dropped: a count on its frame, or shared heap memory.
#[derive(Clone)]
pub(crate) struct BlockRef(Block);

#[derive(Clone)]
enum Block {
    Frame(Counted),
    Heap(Arc<LentBlock>),
}

/// A block outside the frames, and the grant of its memory.
pub(super) struct LentBlock {
    pub(super) block: HeapBlock,
    pub(super) _grant: Grant,
}

impl BlockRef {
    #[inline]
    pub(super) fn from_frame(counted: Counted) -> BlockRef {
        BlockRef(Block::Frame(counted))
    }

    #[inline]
    pub(super) fn from_heap(block: LentBlock) -> BlockRef {
        BlockRef(Block::Heap(Arc::new(block)))
    }
}

impl Deref for BlockRef {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Block::Frame(counted) => counted.bytes(),
            Block::Heap(lent) => lent.block.bytes(),
        }
    }
}

impl std::fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockRef({} bytes)", self.len())
    }
}
