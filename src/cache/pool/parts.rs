//! Frames cut into parts, for pinned pages that are shorter than a frame.
//!
//! All parts of a frame have one length, from a 32nd to a half of the frame. The frame is taken with its
//! first part and given back with its last.

use std::collections::{BTreeMap, BTreeSet};

use crate::cache::frames::{FRAME_BYTES_MIN, PART_BYTES};

/// Number of part lengths.
const CUTS: usize = (FRAME_BYTES_MIN / PART_BYTES).trailing_zeros() as usize;

/// Length of the parts of a frame: 128 bytes times 1, 2, 4, 8 or 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PartSize(usize);

impl PartSize {
    /// The shortest part that holds a page; `None` if the page needs a whole frame.
    pub(super) fn of(page_bytes: usize) -> Option<PartSize> {
        let bytes = page_bytes.max(PART_BYTES).next_power_of_two();
        (bytes < FRAME_BYTES_MIN).then_some(PartSize(bytes))
    }

    /// Number of parts of a frame.
    pub(super) fn parts(self) -> usize {
        FRAME_BYTES_MIN / self.0
    }

    /// The mask of all parts.
    fn mask(self) -> u32 {
        u32::MAX >> (u32::BITS as usize - self.parts())
    }

    fn index(self) -> usize {
        (self.0 / PART_BYTES).trailing_zeros() as usize
    }
}

/// All frames that are cut. Places are byte offsets and frames frame numbers, both from the region's start.
#[derive(Default)]
pub(super) struct CutFrames {
    /// Mask of the free parts of each frame.
    free: BTreeMap<u32, u32>,
    /// By cut: frames with a free part, and the number of free parts in all of them.
    open: [BTreeSet<u32>; CUTS],
    free_counts: [usize; CUTS],
}

impl CutFrames {
    /// Frames to cut before `count` parts are available.
    pub(super) fn frames_for(&self, cut: PartSize, count: usize) -> usize {
        count.saturating_sub(self.free_counts[cut.index()]).div_ceil(cut.parts())
    }

    /// Cuts a frame.
    pub(super) fn cut(&mut self, cut: PartSize, frame: u32) {
        self.free.insert(frame, cut.mask());
        self.open[cut.index()].insert(frame);
        self.free_counts[cut.index()] += cut.parts();
    }

    /// Takes a free part, of which there is at least one.
    pub(super) fn take(&mut self, cut: PartSize) -> usize {
        let frame = *self.open[cut.index()].first().expect("the caller cut as many as it needs");
        let free = self.free.get_mut(&frame).expect("an open frame is cut");
        let part = free.trailing_zeros();
        *free &= !(1 << part);
        if *free == 0 {
            self.open[cut.index()].remove(&frame);
        }
        self.free_counts[cut.index()] -= 1;
        frame as usize * FRAME_BYTES_MIN + part as usize * cut.0
    }

    /// Takes a part back. Returns the frame if that was its last part in use.
    pub(super) fn give_back(&mut self, cut: PartSize, place: usize) -> Option<u32> {
        let (frame, part) = ((place / FRAME_BYTES_MIN) as u32, place % FRAME_BYTES_MIN / cut.0);
        let free = self.free.get_mut(&frame).expect("a part is of a frame that is cut");
        *free |= 1 << part;
        self.free_counts[cut.index()] += 1;
        if *free != cut.mask() {
            self.open[cut.index()].insert(frame);
            return None;
        }
        self.free.remove(&frame);
        self.open[cut.index()].remove(&frame);
        self.free_counts[cut.index()] -= cut.parts();
        Some(frame)
    }

    /// Number of frames that are cut.
    #[cfg(test)]
    pub(super) fn frames_count(&self) -> usize {
        let free: u32 = self.free.values().map(|free| free.count_ones()).sum();
        assert_eq!(free as usize, self.free_counts.iter().sum::<usize>());
        let is_open = |(frame, free): (&u32, &u32)| {
            let open = self.open.iter().filter(|open| open.contains(frame)).count();
            assert_eq!(open, usize::from(*free != 0));
        };
        self.free.iter().for_each(is_open);
        self.free.len()
    }
}
