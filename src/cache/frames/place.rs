//! Looking a block up where it was last found, and hints of what a lookup will read.
//!
//! It is not an index: who knows a block by a number of its own keeps its [`Place`], which may be wrong and
//! is set by whoever finds the block elsewhere. Called by the cache; any thread.
//!
//! 1. A frame that a place leads to was LIVE with the wanted key after the caller was pinned.

use crate::base::prefetch::prefetch;
use crate::base::sync::{AtomicU32, Ordering};

use super::{Frames, Header, Key, LIVE};

/// How much of what a lookup reads earlier hints have brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Near {
    Nothing,
    /// The slot of the index.
    Slot,
    /// All that a lookup looks at.
    Block,
}

/// The frame that a block was last found in, kept by who looks for it: in most cases it is there still, and
/// the index is spared. 0: none.
#[derive(Default, Debug)]
pub(crate) struct Place(AtomicU32);

impl Place {
    #[inline]
    pub(in crate::cache) fn frame(&self) -> Option<u32> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    fn set(&self, frame: u32) {
        self.0.store(frame + 1, Ordering::Relaxed);
    }
}

impl Frames {
    /// As `find`, but first where `place` says, and only a frame that may be looked at.
    #[inline]
    pub(super) fn find_at(&self, key: Key, place: &Place) -> Option<u32> {
        if let Some(frame) = place.frame() {
            // Header and block come at once.
            self.prefetch_block(frame, 1);
            if self.headers().get(frame as usize).is_some_and(|header| header.is_live_with(key)) {
                return Some(frame);
            }
        }
        let found = self.find(key)?;
        place.set(found);
        Some(found)
    }

    /// Asks the processor for what a lookup of the key reads next; what is near then.
    #[inline]
    pub(crate) fn prefetch(&self, key: Key, place: Option<&Place>, near: Near, lines: usize) -> Near {
        let bring = |frame| {
            prefetch(self.headers(), frame as usize * size_of::<Header>());
            self.prefetch_block(frame, lines);
            true
        };
        match (near, place.and_then(Place::frame)) {
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
    /// Whether the frame holds the block of `key`, to be looked at.
    #[inline]
    fn is_live_with(&self, key: Key) -> bool {
        // The state first: what it was LIVE with cannot change then, while the caller is pinned.
        self.state.load(Ordering::Acquire) & LIVE != 0 && self.key() == key
    }
}
