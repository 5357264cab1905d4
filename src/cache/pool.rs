//! The eviction policy: size classes, slabs, CLOCK. One lock of the cache guards all of it and is held
//! briefly.
//!
//! It is not the memory (`frames`) nor the reading of blocks (`flight`). Called by the cache only, never
//! across I/O.
//!
//! The memory is cut into slabs. A slab has frames of one class, and a class has any number of slabs. One
//! CLOCK hand goes round the slabs of all classes. A class without a free frame takes a free slab. If there
//! is no free slab, it moves the hand until one of these holds:
//! - The hand is at a slab of the class with frames whose CLOCK counter is 0: these frames are evicted.
//! - The hand is at a slab of another class that is hit little: at most a quarter of its frames recently, or
//!   more of them longer ago. The slab is emptied whole and changes its class.
//! - The hand has passed [`VISITS_MAX`] slabs that are all hit more. Of the least hit one, up to
//!   [`FORCED_FRAMES_MAX`] frames are evicted if it is of the class; otherwise it is emptied whole.
//!
//! So each class keeps the blocks that are hit between two rounds, cold slabs go to the class that misses,
//! and no class can be starved. A class without a slab gets one by a single search, unless every slab has a
//! frame that is counted or being filled.
//!
//! A hit sets a block's CLOCK counter, for filters and fences to a higher value than for data: pages that are
//! searched before data stay longer than data. Memory that holds no blocks is taken from the slabs too: see
//! `shares`. Some slabs belong to the cache only for a while: see `annex`.
//!
//! Invariants:
//! 1. A slab is in one of these states:
//!    - pinned or lent (see `shares`), closed (see `annex`), or free;
//!    - of a class, and in that class's open list exactly if it has free frames;
//!    - draining: of a class, in no list, free once all its retired frames are free. A slab that drains to be
//!      closed may also have frames that are counted or being filled.
//! 2. A frame is free in its slab's mask exactly if it is FREE in `frames`.

#![expect(unsafe_code, reason = "promises that frames in use do not overlap")]

mod annex;
mod parts;
mod shares;

use crate::base::sync::Arc;

pub(crate) use annex::BayLook;
use parts::PartSize;
pub(crate) use shares::Pinning;

use super::frames::{
    Counted, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Frames, Heat, Key, Owned, Pages, Retired, Stamp, UNIT_BYTES,
    Vacant,
};
use super::visits::DATA_VISITS;

/// Frame sizes of the classes. Up to 8 KiB: every block size. Above: for each count from 15 down to 2, the
/// largest block size of which that many fit a slab of 128 KiB. So a slab is cut into as many frames as
/// blocks of that size fit it.
const CLASS_BYTES: [usize; 23] = [
    4096, 4608, 5120, 5632, 6144, 6656, 7168, 7680, 8192, 8704, 9216, 9728, 10_752, 11_776, 12_800, 14_336,
    16_384, 18_432, 21_504, 26_112, 32_768, 43_520, 65_536,
];
/// Slabs that the hand visits before it takes the least hit.
const VISITS_MAX: usize = 16;
/// Frames evicted at once from a slab of the class itself if all its frames are hit.
const FORCED_FRAMES_MAX: usize = 8;
/// Of all frames, one in this many may wait for the epoch on behalf of one class. Beyond that no more are
/// evicted for the class: a stalled reader must not empty the cache.
const WAITING_SHARE: usize = 64;
const WAITING_FRAMES_MIN: usize = 8;
/// Frames of a class kept free or waiting for the epoch, so that a miss finds one that is free.
const RESERVE_FRAMES: usize = 16;
/// Caches with fewer slabs keep no reserve.
const RESERVE_SLABS_MIN: usize = 64;
/// The class number of a slab without a class.
const NO_CLASS: u8 = u8::MAX;
/// The class number of a lent slab.
const LENT: u8 = u8::MAX - 1;
/// The class number of a closed slab.
const CLOSED: u8 = u8::MAX - 2;
/// The class of pinned pages: it has no block frames, and the hand skips its slabs.
const PINNED: usize = CLASS_BYTES.len();

#[derive(Clone)]
struct Slab {
    /// Mask of the free frames.
    free: u32,
    class: u8,
    draining: bool,
}

#[derive(Default)]
struct Class {
    /// Slabs with free frames.
    open: Vec<u32>,
    /// Free frames in them.
    free_count: usize,
    /// Frames evicted for this class that wait for the epoch.
    waiting_count: usize,
}

/// All state that the lock guards.
pub(crate) struct FramePool {
    frames: Arc<Frames>,
    slabs: Vec<Slab>,
    classes: [Class; CLASS_BYTES.len() + 1],
    /// Free slabs outside the annex.
    free_slabs: Vec<u32>,
    shares: shares::Shares,
    annex: annex::Annex,
    hand: usize,
    /// Evicted frames, with the class they were evicted for.
    waiting: Vec<(usize, Retired)>,
    used_bytes: usize,
    evictions: u64,
    inserts: u64,
}

/// The result of [`FramePool::take`]. The caller defers a stamp once it has released the lock.
pub(crate) struct TakenFrame {
    pub(crate) owned: Option<Owned>,
    pub(crate) stamp: Option<Stamp>,
    /// Whether few frames of the class are free, and no slab is.
    pub(crate) shortage: Shortage,
}

/// Whether the caller should advance the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shortage {
    No,
    Yes,
}

/// Counters kept under the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolCounts {
    /// Slabs that are not closed.
    pub(crate) capacity_bytes: u64,
    /// The annex's slabs among them.
    pub(crate) annex_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) pinned_bytes: u64,
    pub(crate) lent_bytes: u64,
    pub(crate) evictions: u64,
    pub(crate) inserts: u64,
}

impl FramePool {
    pub(crate) fn new(frames: Arc<Frames>) -> FramePool {
        let plan = frames.plan();
        let (slab_count, annex) = (plan.slab_count, annex::Annex::new(plan));
        // In order from the front: a cache that is not full yet fills its huge pages one by one.
        let free_slabs = (plan.annex_slabs as u32..slab_count as u32).rev().collect();
        let mut slabs = vec![Slab { free: 0, class: NO_CLASS, draining: false }; slab_count];
        slabs[..plan.annex_slabs].iter_mut().for_each(|slab| slab.class = CLOSED);
        FramePool {
            frames,
            slabs,
            classes: Default::default(),
            free_slabs,
            shares: shares::Shares::default(),
            annex,
            hand: 0,
            waiting: Vec::new(),
            used_bytes: 0,
            evictions: 0,
            inserts: 0,
        }
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        let plan = self.frames.plan();
        let bytes = |slabs: usize| ((slabs - self.annex.closed_slabs) * plan.slab_bytes) as u64;
        PoolCounts {
            capacity_bytes: bytes(plan.slab_count),
            annex_bytes: bytes(plan.annex_slabs),
            used_bytes: self.used_bytes as u64,
            pinned_bytes: self.shares.pinned_bytes(),
            lent_bytes: self.shares.outside_bytes(),
            evictions: self.evictions,
            inserts: self.inserts,
        }
    }

    /// The block, counted, if it is cached. A miss is certain, unlike a lookup without the lock.
    pub(crate) fn find(&self, key: Key) -> Option<Counted> {
        self.frames.find_counted(key)
    }

    /// Takes a frame to fill with `bytes` for the block of `key`, if a frame or a slab is free. If few are
    /// left, evicts frames for later calls.
    pub(crate) fn take(&mut self, key: Key, bytes: usize) -> TakenFrame {
        let Some(class) = self.class_for(bytes.max(key.bytes as usize)) else {
            return TakenFrame { owned: None, stamp: None, shortage: Shortage::No };
        };
        self.harvest();
        let owned = self.take_free(class).map(|(frame, start_bytes)| {
            self.used_bytes += CLASS_BYTES[class];
            // SAFETY: it was free in its slab's mask, so FREE (invariant 2) and no longer in the mask; a
            // slab's frames lie side by side, `bytes` are no larger than its frame, and a slab changes its
            // class only when all its frames are FREE.
            unsafe { self.frames.own(frame, start_bytes, key, bytes) }
        });
        let (need, wanted) = if owned.is_none() {
            (EvictionNeed::Now, 1)
        } else {
            (EvictionNeed::Ahead, self.reserve_frames(class))
        };
        let has_slab = !self.free_slabs.is_empty() || !self.annex.free.is_empty();
        let is_short = !has_slab && self.classes[class].free_count < wanted;
        let stamp = if is_short { self.make_room(class, need) } else { None };
        let shortage = if is_short { Shortage::Yes } else { Shortage::No };
        TakenFrame { owned, stamp, shortage }
    }

    /// Makes a filled frame findable and counts it. If another frame with its block was published meanwhile,
    /// counts that one instead.
    pub(crate) fn publish(&mut self, owned: Owned) -> Counted {
        if let Some(counted) = self.find(owned.key()) {
            self.abandon(owned);
            return counted;
        }
        self.inserts += 1;
        owned.publish()
    }

    /// Takes an unfilled frame back.
    pub(crate) fn abandon(&mut self, owned: Owned) {
        let frame = owned.abandon();
        let class = self.slabs[self.slab_of(frame)].class;
        self.used_bytes -= CLASS_BYTES[usize::from(class)];
        self.release(frame);
    }

    /// The smallest class that holds a block; `None` for blocks that are not cached.
    fn class_for(&self, bytes: usize) -> Option<usize> {
        let slab_bytes = self.frames.plan().slab_bytes;
        if bytes == 0 || !bytes.is_multiple_of(UNIT_BYTES) || self.slabs.is_empty() {
            return None;
        }
        CLASS_BYTES.iter().position(|class_bytes| bytes <= *class_bytes && *class_bytes <= slab_bytes)
    }

    fn reserve_frames(&self, class: usize) -> usize {
        if self.slabs.len() < RESERVE_SLABS_MIN { 0 } else { RESERVE_FRAMES.min(self.frames_in_slab(class)) }
    }

    fn frames_in_slab(&self, class: usize) -> usize {
        self.frames.plan().slab_bytes / class_bytes(class)
    }

    fn slab_of(&self, frame: u32) -> usize {
        frame as usize / (self.frames.plan().slab_bytes / FRAME_BYTES_MIN)
    }

    /// Number of the first frame of a slab.
    fn first_frame(&self, slab: usize) -> u32 {
        (slab * (self.frames.plan().slab_bytes / FRAME_BYTES_MIN)) as u32
    }

    /// The mask of a slab of `class` with all frames free.
    fn all_free(&self, class: usize) -> u32 {
        u32::MAX >> (u32::BITS as usize - self.frames_in_slab(class))
    }

    /// Takes a free frame; returns its number and the start of its bytes.
    fn take_free(&mut self, class: usize) -> Option<(u32, usize)> {
        if self.classes[class].open.is_empty() {
            let annex = if class == PINNED { None } else { Some(&mut self.annex.free) };
            let slab = self.free_slabs.pop().or_else(|| annex?.pop())?;
            self.slabs[slab as usize] =
                Slab { free: self.all_free(class), class: class as u8, draining: false };
            self.classes[class].free_count += self.frames_in_slab(class);
            self.classes[class].open.push(slab);
        }
        let slab = *self.classes[class].open.last().expect("filled above") as usize;
        let place = self.slabs[slab].free.trailing_zeros();
        self.slabs[slab].free &= !(1 << place);
        self.classes[class].free_count -= 1;
        if self.slabs[slab].free == 0 {
            self.classes[class].open.pop();
        }
        let start_bytes = slab * self.frames.plan().slab_bytes + place as usize * class_bytes(class);
        Some((self.first_frame(slab) + place, start_bytes))
    }

    /// Takes pages of up to `page_bytes` in free places. There are enough once `frames_count` frames are
    /// taken for them.
    fn take_pages(&mut self, count: usize, page_bytes: usize, frames_count: usize) -> Pages {
        let frames = (0..frames_count).map(|_| {
            let (_, start_bytes) = self.take_free(PINNED).expect("the caller counted");
            u32::try_from(start_bytes / FRAME_BYTES_MIN).expect("frame numbers have 32 bits")
        });
        let frames: Vec<u32> = frames.collect();
        let starts = match PartSize::of(page_bytes) {
            None => frames.into_iter().map(|frame| frame as usize * FRAME_BYTES_MIN).collect(),
            Some(cut) => {
                let parts = &mut self.shares.parts;
                frames.into_iter().for_each(|frame| parts.cut(cut, frame));
                (0..count).map(|_| parts.take(cut)).collect()
            }
        };
        // SAFETY: each frame's place was free in its slab's mask and no longer is, and each part was free in
        // its frame; a slab of pinned pages has no frame in use, and stays one until all its places are free.
        unsafe { Pages::new(&self.frames, starts, page_bytes) }
    }

    /// Vacates a bay of the annex. It is closed, and stays closed until it is given back.
    fn vacate(&self, bay: usize) -> Vacant {
        // SAFETY: every slab of it is closed, so all frames are FREE, and there are no pages in the annex; no
        // frame of a closed slab is given out, and a vacated bay is not opened.
        unsafe { Vacant::new(&self.frames, bay) }
    }

    /// Returns a FREE frame to its slab's mask.
    fn release(&mut self, frame: u32) {
        let slab = self.slab_of(frame);
        let place = frame - self.first_frame(slab);
        let class = usize::from(self.slabs[slab].class);
        let was_open = self.slabs[slab].free != 0;
        self.slabs[slab].free |= 1 << place;
        if self.slabs[slab].draining {
            self.free_if_drained(slab);
            return;
        }
        self.classes[class].free_count += 1;
        if !was_open {
            self.classes[class].open.push(slab as u32);
        }
    }

    /// Closes an empty slab if it is to be closed. Otherwise makes it free, or lent if a loan is owed one and
    /// the slab is outside the annex.
    fn set_free(&mut self, slab: usize) {
        if self.is_shut(slab) {
            return self.close_slab(slab);
        }
        self.slabs[slab] = Slab { free: 0, class: NO_CLASS, draining: false };
        if self.is_in_annex(slab) {
            self.annex.free.push(slab as u32);
            return;
        }
        self.free_slabs.push(slab as u32);
        self.lend_free_slabs();
    }

    fn free_if_drained(&mut self, slab: usize) {
        if self.slabs[slab].free == self.all_free(usize::from(self.slabs[slab].class)) {
            self.shares.draining_count -= usize::from(!self.is_in_annex(slab));
            self.set_free(slab);
        }
    }

    /// Takes back retired frames that no reader can use any more.
    fn harvest(&mut self) {
        let mut index = 0;
        while index < self.waiting.len() {
            if !self.waiting[index].1.has_passed() {
                index += 1;
                continue;
            }
            let (class, retired) = self.waiting.remove(index);
            self.classes[class].waiting_count -= retired.count();
            for frame in retired.free(&self.frames) {
                self.release(frame);
            }
        }
    }

    /// Evicts for `class`, unless enough frames wait for the epoch already.
    fn make_room(&mut self, class: usize, need: EvictionNeed) -> Option<Stamp> {
        let waiting_count = self.classes[class].waiting_count;
        // A caller that needs a frame now evicts even if some wait: readers may hold those back for a while.
        let waiting_max = (self.frames.plan().frame_count / WAITING_SHARE).max(WAITING_FRAMES_MIN);
        let enough = if need == EvictionNeed::Now { waiting_max } else { RESERVE_FRAMES };
        if waiting_count >= enough {
            return None;
        }
        let mut evicted = Vec::new();
        self.move_hand(class, &mut evicted);
        if evicted.is_empty() {
            return None;
        }
        self.evictions += evicted.len() as u64;
        self.classes[class].waiting_count += evicted.len();
        let (retired, stamp) = Retired::new(&self.frames, evicted);
        self.waiting.push((class, retired));
        Some(stamp)
    }

    /// Moves the hand until room is made for `class`, as the module describes.
    fn move_hand(&mut self, class: usize, evicted: &mut Vec<u32>) {
        let mut least_hit: Option<(usize, usize)> = None;
        let mut candidate_count = 0;
        for _ in 0..self.slabs.len() {
            let slab = self.hand;
            self.hand = (self.hand + 1) % self.slabs.len();
            let is_free_of_blocks = usize::from(self.slabs[slab].class) >= PINNED;
            let is_no_use = self.is_shut(slab) || class == PINNED && self.is_in_annex(slab);
            if is_free_of_blocks || self.slabs[slab].draining || is_no_use {
                continue;
            }
            let found = self.survey(slab);
            let slab_class = usize::from(self.slabs[slab].class);
            if slab_class == class {
                if found.cold_count > 0 {
                    return self.evict_from(slab, Which::NotHit(&found), evicted);
                }
                if found.hit_count == 0 {
                    continue;
                }
            } else if found.busy_count > 0 {
                continue;
            } else if found.hit_weight * 4 <= self.frames_in_slab(slab_class) * usize::from(DATA_VISITS) {
                if self.empty(slab, evicted) == Emptied::Yes {
                    return;
                }
                continue;
            }
            let weight_bytes = found.hit_weight * CLASS_BYTES[slab_class];
            if least_hit.is_none_or(|(least, _)| weight_bytes < least) {
                least_hit = Some((weight_bytes, slab));
            }
            candidate_count += 1;
            if candidate_count == VISITS_MAX {
                break;
            }
        }
        match least_hit {
            Some((_, slab)) if usize::from(self.slabs[slab].class) == class => {
                let least = self.used_frames(slab).filter_map(|frame| self.frames.visits_left(frame)).min();
                self.evict_from(slab, Which::Least(least.unwrap_or(0), FORCED_FRAMES_MAX), evicted);
                // All of them were hit meanwhile.
                if evicted.is_empty() {
                    self.evict_from(slab, Which::Some(FORCED_FRAMES_MAX), evicted);
                }
            }
            Some((_, slab)) => {
                self.empty(slab, evicted);
            }
            None => {}
        }
    }

    /// Visits every used frame of a slab and decrements each frame's CLOCK counter.
    fn survey(&self, slab: usize) -> Survey {
        let mut found = Survey::default();
        for frame in self.used_frames(slab) {
            match self.frames.visit(frame) {
                Heat::Busy => found.busy_count += 1,
                Heat::Retired => {}
                Heat::Hit { left } => {
                    found.hit_count += 1;
                    found.hit_weight += 1 + usize::from(left);
                    found.hit |= 1 << (frame - self.first_frame(slab));
                }
                Heat::Cold => found.cold_count += 1,
            }
        }
        found
    }

    fn used_frames(&self, slab: usize) -> impl Iterator<Item = u32> + use<> {
        let class = usize::from(self.slabs[slab].class);
        let used = self.all_free(class) & !self.slabs[slab].free;
        let first = self.first_frame(slab);
        (0..u32::BITS).filter(move |place| used >> place & 1 == 1).map(move |place| first + place)
    }

    fn evict_from(&mut self, slab: usize, which: Which<'_>, evicted: &mut Vec<u32>) {
        let first = self.first_frame(slab);
        let frame_bytes = CLASS_BYTES[usize::from(self.slabs[slab].class)];
        for frame in self.used_frames(slab) {
            let passed_over = match which {
                Which::All => false,
                Which::NotHit(found) => found.hit >> (frame - first) & 1 == 1,
                Which::Least(least, count) => {
                    evicted.len() >= count || self.frames.visits_left(frame).is_none_or(|left| left > least)
                }
                Which::Some(count) => evicted.len() >= count,
            };
            if !passed_over && self.frames.evict(frame) {
                self.used_bytes -= frame_bytes;
                evicted.push(frame);
            }
        }
    }

    /// Empties a slab to make it free. If a frame was counted meanwhile, the slab stays with its class.
    fn empty(&mut self, slab: usize, evicted: &mut Vec<u32>) -> Emptied {
        self.evict_from(slab, Which::All, evicted);
        if self.survey(slab).busy_count > 0 {
            return Emptied::No;
        }
        self.drain(slab);
        Emptied::Yes
    }

    /// Makes a slab drain: it takes back its frames until all are free, and is free then.
    fn drain(&mut self, slab: usize) {
        let class = &mut self.classes[usize::from(self.slabs[slab].class)];
        class.free_count -= self.slabs[slab].free.count_ones() as usize;
        class.open.retain(|open| *open as usize != slab);
        self.slabs[slab].draining = true;
        self.shares.draining_count += usize::from(!self.is_in_annex(slab));
        self.free_if_drained(slab);
    }

    /// Panics unless lists, masks and counters agree.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut free_slab_count = 0;
        for (slab, state) in self.slabs.iter().enumerate() {
            let listed: Vec<usize> = (0..self.classes.len())
                .filter(|class| self.classes[*class].open.contains(&(slab as u32)))
                .collect();
            if usize::from(state.class) > PINNED || state.draining || state.free == 0 {
                assert!(listed.is_empty(), "slab {slab} is in no open list");
            } else {
                assert_eq!(listed, [usize::from(state.class)], "slab {slab} is in its class's list");
            }
            free_slab_count += usize::from(state.class == NO_CLASS);
        }
        assert_eq!(free_slab_count, self.free_slabs.len() + self.annex.free.len());
        for class in &self.classes {
            let free = class.open.iter().map(|slab| self.slabs[*slab as usize].free.count_ones() as usize);
            assert_eq!(free.sum::<usize>(), class.free_count);
        }
        let waiting = self.waiting.iter().map(|(_, retired)| retired.count());
        assert_eq!(waiting.sum::<usize>(), self.classes.iter().map(|class| class.waiting_count).sum());
        self.check_shares();
        self.check_annex();
        assert!(self.used_bytes <= self.slabs.len() * self.frames.plan().slab_bytes);
    }
}

/// Result of a visit of a slab.
#[derive(Default)]
struct Survey {
    busy_count: usize,
    hit_count: usize,
    /// Sum of the hit frames' CLOCK counters before this visit.
    hit_weight: usize,
    cold_count: usize,
    /// Mask of the frames that were hit.
    hit: u32,
}

/// When the frames to be evicted are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EvictionNeed {
    Now,
    Ahead,
}

/// The frames of a slab to evict; counted frames stay in any case.
enum Which<'a> {
    All,
    NotHit(&'a Survey),
    /// Frames with a CLOCK counter of at most the first number, as many as the second.
    Least(u8, usize),
    Some(usize),
}

/// Bytes of a class's frames; pinned pages use places of the smallest frames.
fn class_bytes(class: usize) -> usize {
    CLASS_BYTES.get(class).copied().unwrap_or(FRAME_BYTES_MIN)
}

#[derive(PartialEq, Eq)]
enum Emptied {
    Yes,
    No,
}

const _: () = assert!(CLASS_BYTES[0] == FRAME_BYTES_MIN && CLASS_BYTES[22] == FRAME_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    /// In a slab of 128 KiB, blocks of 4 to 12.5 KiB fill nine tenths of the slab, and larger ones take no
    /// more than if the slab had been cut for them.
    #[test]
    fn frames_fit_their_blocks() {
        let slab_bytes = 128 << 10;
        for block_bytes in (FRAME_BYTES_MIN..=FRAME_BYTES_MAX).step_by(UNIT_BYTES) {
            let class = CLASS_BYTES.iter().find(|class| block_bytes <= **class).expect("up to the largest");
            let frames = slab_bytes / class;
            assert_eq!(frames, slab_bytes / block_bytes, "{block_bytes} bytes");
            if block_bytes <= 12_800 {
                assert!(frames * block_bytes * 10 >= slab_bytes * 9, "{block_bytes} bytes");
            }
        }
    }
}
