//! The index of the block cache: an open-addressed table of atomics, {32 bits of the key's hash | frame
//! number + 1}.
//!
//! It is not a map: it knows tags and frame numbers, and the caller compares keys. Called by `frames` only.
//!
//! Thread safety: any number of threads find while one, under the pool's lock, inserts or removes.
//!
//! Invariants:
//! 1. An entry stands between its home and the first empty slot after it. There are no tombstones, so a miss
//!    stays short.
//! 2. The home is computed from the entry itself: a removal moves followers without looking at their frames.
//! 3. A finder that meets a removal may miss an entry that is being moved: a miss is certain under the lock
//!    only.
//! 4. At most half of the slots are taken.

use crate::base::prefetch::prefetch;
use crate::base::sync::{AtomicU64, Ordering};

/// Slots for each frame there can be.
pub(crate) const SLOTS_PER_FRAME: usize = 2;

const EMPTY: u64 = 0;

/// A view of the slots.
#[derive(Clone, Copy)]
pub(crate) struct Index<'a> {
    slots: &'a [AtomicU64],
}

impl<'a> Index<'a> {
    pub(crate) fn new(slots: &'a [AtomicU64]) -> Index<'a> {
        Index { slots }
    }

    /// The first frame entered under `tag` that satisfies `is_it`.
    #[inline]
    pub(crate) fn find(self, tag: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.home(tag);
        for _ in 0..self.slots.len() {
            let entry = self.slots[at].load(Ordering::Acquire);
            if entry == EMPTY {
                return None;
            }
            if tag_of(entry) == tag && is_it(frame_of(entry)) {
                return Some(frame_of(entry));
            }
            at = self.next(at);
        }
        None
    }

    /// Hints that [`Index::find`] will be called soon.
    #[inline]
    pub(crate) fn prefetch(self, tag: u32) {
        prefetch(self.slots, self.home(tag) * size_of::<AtomicU64>());
    }

    /// Enters a frame. The caller holds the lock.
    pub(crate) fn insert(self, tag: u32, frame: u32) {
        let mut at = self.home(tag);
        while self.slots[at].load(Ordering::Relaxed) != EMPTY {
            at = self.next(at);
        }
        self.slots[at].store(entry(tag, frame), Ordering::Release);
    }

    /// Removes a frame. The caller holds the lock.
    pub(crate) fn remove(self, tag: u32, frame: u32) {
        let mut hole = self.home(tag);
        while self.slots[hole].load(Ordering::Relaxed) != entry(tag, frame) {
            assert!(self.slots[hole].load(Ordering::Relaxed) != EMPTY, "a live frame is in the index");
            hole = self.next(hole);
        }
        let mut at = hole;
        loop {
            at = self.next(at);
            let follower = self.slots[at].load(Ordering::Relaxed);
            if follower == EMPTY {
                break;
            }
            if self.distance(self.home(tag_of(follower)), at) >= self.distance(hole, at) {
                // Copied before its old slot is cleared: entries that are not being moved can always be
                // found.
                self.slots[hole].store(follower, Ordering::Release);
                hole = at;
            }
        }
        self.slots[hole].store(EMPTY, Ordering::Release);
    }

    #[inline]
    fn home(self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next(self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    fn distance(self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

fn entry(tag: u32, frame: u32) -> u64 {
    u64::from(tag) << 32 | (u64::from(frame) + 1)
}

#[inline]
fn tag_of(entry: u64) -> u32 {
    (entry >> 32) as u32
}

#[inline]
fn frame_of(entry: u64) -> u32 {
    (entry as u32) - 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Exactly the entered frames are found, after any insertions and removals, also with crowded and
    /// wrapping homes.
    #[test]
    fn the_index_finds_exactly_its_frames() {
        let slots: Vec<AtomicU64> = (0..26).map(|_| AtomicU64::new(0)).collect();
        let index = Index::new(&slots);
        // Three crowds: the first slots, the middle, and the last, which wraps.
        let tag = |frame: u32| [0, u32::MAX / 2, u32::MAX][frame as usize % 3] ^ (frame & 1);
        let mut state = 1u64;
        let mut inside = [false; 13];
        for _ in 0..2_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let frame = ((state >> 33) % 13) as u32;
            if inside[frame as usize] {
                index.remove(tag(frame), frame);
            } else {
                index.insert(tag(frame), frame);
            }
            inside[frame as usize] = !inside[frame as usize];
            for frame in 0..13 {
                let found = index.find(tag(frame), |other| other == frame);
                assert_eq!(found.is_some(), inside[frame as usize]);
            }
        }
    }

    /// A table without slots holds nothing.
    #[test]
    fn an_empty_table_finds_nothing() {
        assert_eq!(Index::new(&[]).find(7, |_| true), None);
    }
}
