//! Cache memory that holds no blocks: pages pinned by tables, and slabs that are lent.
//!
//! Neither is ever in the annex. Pages are pinned in slabs of their own, which the CLOCK hand skips. So their
//! holders read them without count or index. Short pages share a frame (`parts`). For memory allocated
//! elsewhere on the cache's account (blocks that found no frame, bounds of tables) slabs stay empty, lent, so
//! that the total stays within the cache's bytes.
//!
//! Invariants:
//! 1. Pinned pages, lent memory and frames in use never exceed the slabs, except for memory allocated
//!    elsewhere while every frame was counted.
//! 2. A slab that is owed to a loan goes to the loan before any other use.

use super::parts::{CutFrames, PartSize};
use super::{FramePool, LENT, NO_CLASS, PINNED, Slab};
use crate::cache::frames::{FRAME_BYTES_MIN, Pages, Stamp};

/// Slabs and frames taken from the cache for other uses than blocks.
#[derive(Default)]
pub(super) struct Shares {
    /// Frames with pinned pages.
    pinned_count: usize,
    /// Frames that short pages share.
    pub(super) parts: CutFrames,
    /// Memory allocated elsewhere.
    outside_bytes: usize,
    lent: Vec<u32>,
    /// Slabs that are draining; once free, they can be lent or pinned.
    pub(super) draining_count: usize,
}

impl Shares {
    pub(super) fn pinned_bytes(&self) -> u64 {
        (self.pinned_count * FRAME_BYTES_MIN) as u64
    }

    pub(super) fn outside_bytes(&self) -> u64 {
        self.outside_bytes as u64
    }
}

/// The result of [`FramePool::pin`].
pub(crate) enum Pinning {
    Pinned(Pages),
    /// The limit has no room for them.
    Refused,
    /// Slabs were emptied for them, and wait for the epoch.
    Short(Option<Stamp>),
}

impl FramePool {
    /// Takes `count` pages of up to `page_bytes`, if all pinned pages and loans stay within `limit_bytes`.
    pub(crate) fn pin(&mut self, count: usize, page_bytes: usize, limit_bytes: u64) -> Pinning {
        let frames_count =
            PartSize::of(page_bytes).map_or(count, |cut| self.shares.parts.frames_for(cut, count));
        if self.taken_bytes(frames_count) > limit_bytes.min(self.slabs_bytes() as u64) {
            return Pinning::Refused;
        }
        self.harvest();
        let open = self.classes[PINNED].free_count;
        let slabs = frames_count.saturating_sub(open).div_ceil(self.frames_in_slab(PINNED));
        if slabs > self.free_slabs.len() {
            return Pinning::Short(self.empty_slabs(slabs - self.free_slabs.len()));
        }
        self.shares.pinned_count += frames_count;
        Pinning::Pinned(self.take_pages(count, page_bytes, frames_count))
    }

    /// Takes a page back and returns a smaller one, if there is a place for that within the limit, else one
    /// as large as before. The caller copies the contents.
    pub(crate) fn shorten(&mut self, page: &Pages, bytes: usize, limit_bytes: u64) -> Pages {
        assert_eq!(page.starts().len(), 1, "one page is shortened");
        self.unpin(page);
        let frames_for = |bytes| PartSize::of(bytes).map_or(1, |cut| self.shares.parts.frames_for(cut, 1));
        let has_frame = self.classes[PINNED].free_count > 0 || !self.free_slabs.is_empty();
        let is_within = self.taken_bytes(1) <= limit_bytes;
        let has_room = frames_for(bytes) == 0 || has_frame && is_within;
        let bytes = if has_room { bytes } else { page.page_bytes() };
        let frames_count = frames_for(bytes);
        self.shares.pinned_count += frames_count;
        self.take_pages(1, bytes, frames_count)
    }

    /// Bytes taken from the cache, with `frames_count` further frames.
    fn taken_bytes(&self, frames_count: usize) -> u64 {
        let pinned_count = self.shares.pinned_count.saturating_add(frames_count);
        let pinned_bytes = pinned_count.saturating_mul(FRAME_BYTES_MIN);
        pinned_bytes.saturating_add(self.shares.outside_bytes) as u64
    }

    /// Takes pages back, which have no readers any more.
    pub(crate) fn unpin(&mut self, pages: &Pages) {
        let cut = PartSize::of(pages.page_bytes());
        for start in pages.starts() {
            let frame = match cut {
                None => Some((start / FRAME_BYTES_MIN) as u32),
                Some(cut) => self.shares.parts.give_back(cut, *start),
            };
            let Some(frame) = frame else { continue };
            self.shares.pinned_count -= 1;
            let start_bytes = frame as usize * FRAME_BYTES_MIN;
            let slab = start_bytes / self.frames.plan().slab_bytes;
            let place = start_bytes % self.frames.plan().slab_bytes / FRAME_BYTES_MIN;
            self.release(self.first_frame(slab) + place as u32);
            if self.slabs[slab].free == self.all_free(PINNED) {
                self.classes[PINNED].free_count -= self.frames_in_slab(PINNED);
                self.classes[PINNED].open.retain(|open| *open as usize != slab);
                self.set_free(slab);
            }
        }
    }

    /// Accounts for `bytes` allocated elsewhere.
    pub(crate) fn lend(&mut self, bytes: usize) -> Option<Stamp> {
        self.shares.outside_bytes += bytes;
        self.harvest();
        self.lend_free_slabs();
        self.empty_slabs(self.lent_goal().saturating_sub(self.shares.lent.len()))
    }

    /// Accounts for `bytes` freed elsewhere.
    pub(crate) fn end_loan(&mut self, bytes: usize) {
        self.shares.outside_bytes -= bytes;
        while self.shares.lent.len() > self.lent_goal() {
            let slab = self.shares.lent.pop().expect("more than the goal");
            self.slabs[slab as usize] = Slab { free: 0, class: NO_CLASS, draining: false };
            self.free_slabs.push(slab);
        }
    }

    pub(super) fn lend_free_slabs(&mut self) {
        while self.shares.lent.len() < self.lent_goal() {
            let Some(slab) = self.free_slabs.pop() else { return };
            self.slabs[slab as usize].class = LENT;
            self.shares.lent.push(slab);
        }
    }

    fn lent_goal(&self) -> usize {
        self.shares.outside_bytes.div_ceil(self.frames.plan().slab_bytes).min(self.frames.plan().base_slabs())
    }

    fn slabs_bytes(&self) -> usize {
        self.frames.plan().base_slabs() * self.frames.plan().slab_bytes
    }

    /// Moves the hand to empty `count` slabs, less the draining ones.
    fn empty_slabs(&mut self, count: usize) -> Option<Stamp> {
        let mut evicted = Vec::new();
        for _ in 0..count.saturating_sub(self.shares.draining_count) {
            let before = (self.free_slabs.len(), self.shares.draining_count);
            self.move_hand(PINNED, &mut evicted);
            if before == (self.free_slabs.len(), self.shares.draining_count) {
                break;
            }
        }
        self.retire_for_no_class(evicted)
    }

    /// Panics unless all taken memory is accounted for.
    #[cfg(test)]
    pub(super) fn check_shares(&self) {
        let count = |class: u8| self.slabs.iter().filter(|slab| slab.class == class).count();
        assert_eq!(count(LENT), self.shares.lent.len());
        let pinned = count(PINNED as u8) * self.frames_in_slab(PINNED) - self.classes[PINNED].free_count;
        assert_eq!(pinned, self.shares.pinned_count);
        assert!(self.shares.parts.frames_count() <= pinned);
        let draining =
            self.slabs[self.frames.plan().annex_slabs..].iter().filter(|slab| slab.draining).count();
        assert_eq!(draining, self.shares.draining_count);
        assert!(self.shares.lent.len() <= self.lent_goal());
    }
}
