//! Lookups at the frame where a block was last found, and prefetches for a lookup.
//!
//! It is not an index: a caller that knows a block by a number of its own keeps its [`FrameHint`]. A hint may
//! be wrong; a lookup that finds the block elsewhere updates it. Called by the cache; any thread.
//!
//! 1. A frame returned for a hint was LIVE with the wanted key after the caller was pinned.

use crate::base::prefetch::prefetch;
use crate::base::sync::{AtomicU32, Ordering};

use super::{Frames, Header, Key, LIVE};

/// The part of a lookup's memory that earlier prefetches have covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Near {
    Nothing,
    /// The slot of the index.
    Slot,
    /// All memory that a lookup reads.
    Block,
}

/// The frame in which a block was last found, kept by its reader. Mostly the block is still there, and the
/// lookup skips the index. 0: none.
#[derive(Default, Debug)]
pub(crate) struct FrameHint(AtomicU32);

impl FrameHint {
    #[inline]
    pub(in crate::cache) fn frame(&self) -> Option<u32> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    fn set(&self, frame: u32) {
        self.0.store(frame + 1, Ordering::Relaxed);
    }
}

impl Frames {
    /// As `find`, but tries the frame of `hint` first, and checks that this one is LIVE.
    #[inline]
    pub(super) fn find_at(&self, key: Key, hint: &FrameHint) -> Option<u32> {
        if let Some(frame) = hint.frame() {
            // Header and block are fetched at the same time.
            self.prefetch_block(frame, 1);
            if self.headers().get(frame as usize).is_some_and(|header| header.is_live_with(key)) {
                return Some(frame);
            }
        }
        let found = self.find(key)?;
        hint.set(found);
        Some(found)
    }

    /// Prefetches the memory that a lookup of the key reads next; returns the part covered then.
    #[inline]
    pub(crate) fn prefetch(&self, key: Key, hint: Option<&FrameHint>, near: Near, lines: usize) -> Near {
        let bring = |frame| {
            prefetch(self.headers(), frame as usize * size_of::<Header>());
            self.prefetch_block(frame, lines);
            true
        };
        match (near, hint.and_then(FrameHint::frame)) {
            (Near::Nothing, Some(frame)) => {
                bring(frame);
            }
            (Near::Nothing, None) => {
                self.index().prefetch(key.tag());
                return Near::Slot;
            }
            (Near::Slot, _) => {
                self.index().find(key.tag(), bring);
            }
            (Near::Block, _) => {}
        }
        Near::Block
    }
}

impl Header {
    /// Whether the frame is LIVE and holds the block of `key`.
    #[inline]
    fn is_live_with(&self, key: Key) -> bool {
        // The state first: the key of a LIVE frame cannot change then, while the caller is pinned.
        self.state.load(Ordering::Acquire) & LIVE != 0 && self.key() == key
    }
}
