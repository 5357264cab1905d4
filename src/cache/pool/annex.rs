//! The annex: slabs made of idle write-buffer and compaction memory, lent to the block cache.
//!
//! It is closed at first. When the owners need memory, it is closed again from its front on, as far as
//! needed. Its slabs hold blocks only: pinned pages stay as long as their table, and loans must be served
//! without the annex. Closing takes one bay at a time, so that no thread waits long for the lock. A bay is a
//! group of slabs whose memory goes back to the system together. A counted frame, or one that a reader may
//! still use, keeps its bay from being closed; the caller tries again later.
//!
//! Invariants:
//! 1. A slab that was emptied to be closed gives out no frame, unless it is opened again.
//! 2. A slab is closed only when all its frames are FREE, and a bay is vacated only when all its slabs are
//!    closed. A vacated bay is not opened before it is given back.

use super::{CLOSED, FramePool, NO_CLASS, PINNED, Slab, Which};
use crate::cache::frames::{FramePlan, Retired, Stamp, Vacant};

/// State of the annex, beside its slabs.
pub(super) struct Annex {
    /// Slabs with all frames free, available to any class.
    pub(super) free: Vec<u32>,
    bays: Vec<Bay>,
    /// The first `shut_count` bays are to be closed.
    shut_count: usize,
    pub(super) closed_slabs: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bay {
    /// In use, or being closed.
    Used,
    /// Its memory is being given back to the system.
    Vacated,
    /// It has no memory.
    Closed,
}

/// The result of [`FramePool::close_bay`]. The caller defers a stamp once it has released the lock.
pub(crate) enum BayLook {
    Closed,
    /// The bay is ready to have its memory discarded; the caller then returns it by
    /// [`FramePool::end_vacancy`].
    Vacant(Vacant),
    /// Some of its frames are counted, or wait for the epoch.
    Used(Option<Stamp>),
}

impl Annex {
    pub(super) fn new(plan: &FramePlan) -> Annex {
        let bay_count = plan.annex_slabs / plan.bay_slabs;
        Annex {
            free: Vec::new(),
            bays: vec![Bay::Closed; bay_count],
            shut_count: bay_count,
            closed_slabs: plan.annex_slabs,
        }
    }
}

impl FramePool {
    pub(super) fn is_in_annex(&self, slab: usize) -> bool {
        slab < self.frames.plan().annex_slabs
    }

    /// Whether a slab is to be closed.
    pub(super) fn is_shut(&self, slab: usize) -> bool {
        slab < self.annex.shut_count * self.frames.plan().bay_slabs
    }

    /// Sets the part of the annex to be closed: `bytes`, rounded up to bays, at most all of it. The rest is
    /// opened and can be used at once. [`FramePool::close_bay`] then closes the bays.
    pub(crate) fn shut_annex(&mut self, bytes: usize) {
        let bay_bytes = self.frames.plan().bay_slabs * self.frames.plan().slab_bytes;
        let before = self.annex.shut_count;
        self.annex.shut_count = bytes.div_ceil(bay_bytes).min(self.annex.bays.len());
        for bay in self.annex.shut_count..before {
            self.open_bay(bay);
        }
        let mut free = std::mem::take(&mut self.annex.free);
        free.retain(|slab| {
            let stays = !self.is_shut(*slab as usize);
            if !stays {
                self.close_slab(*slab as usize);
            }
            stays
        });
        self.annex.free = free;
    }

    /// Whether all bays to be closed are closed.
    pub(crate) fn is_annex_settled(&self) -> bool {
        self.annex.bays[..self.annex.shut_count].iter().all(|bay| *bay == Bay::Closed)
    }

    /// Closes the unused slabs of a bay, and evicts from the others. `None` if the bay is not to be closed.
    pub(crate) fn close_bay(&mut self, bay: usize) -> Option<BayLook> {
        if bay >= self.annex.shut_count {
            return None;
        }
        match self.annex.bays[bay] {
            Bay::Closed => return Some(BayLook::Closed),
            Bay::Vacated => return Some(BayLook::Used(None)),
            Bay::Used => {}
        }
        self.harvest();
        let mut evicted = Vec::new();
        for slab in self.slabs_of(bay).filter(|slab| self.slabs[*slab].class != CLOSED).collect::<Vec<_>>() {
            self.evict_from(slab, Which::All, &mut evicted);
            if !self.slabs[slab].draining {
                self.drain(slab);
            }
        }
        let look = if self.slabs_of(bay).all(|slab| self.slabs[slab].class == CLOSED) {
            self.annex.bays[bay] = Bay::Vacated;
            BayLook::Vacant(self.vacate(bay))
        } else {
            BayLook::Used(self.retire_for_no_class(evicted))
        };
        Some(look)
    }

    /// Takes back a bay whose memory was discarded, and opens it if it is wanted again.
    pub(crate) fn end_vacancy(&mut self, vacant: Vacant) {
        let bay = vacant.bay();
        drop(vacant);
        self.annex.bays[bay] = Bay::Closed;
        if bay >= self.annex.shut_count {
            self.open_bay(bay);
        }
    }

    /// Opens a bay that is no longer to be closed. A vacated bay is opened by `end_vacancy`.
    fn open_bay(&mut self, bay: usize) {
        if self.annex.bays[bay] == Bay::Vacated {
            return;
        }
        self.annex.bays[bay] = Bay::Used;
        for slab in self.slabs_of(bay) {
            let Slab { free, class, draining } = self.slabs[slab];
            if class == CLOSED {
                self.annex.closed_slabs -= 1;
                self.slabs[slab].class = NO_CLASS;
                self.annex.free.push(slab as u32);
            } else if draining {
                // Some of its frames were counted all the time: the slab returns to its class.
                self.slabs[slab].draining = false;
                if free != 0 {
                    let class = &mut self.classes[usize::from(class)];
                    class.free_count += free.count_ones() as usize;
                    class.open.push(slab as u32);
                }
            }
        }
    }

    /// Closes an empty slab of the annex.
    pub(super) fn close_slab(&mut self, slab: usize) {
        self.slabs[slab] = Slab { free: 0, class: CLOSED, draining: false };
        self.annex.closed_slabs += 1;
    }

    fn slabs_of(&self, bay: usize) -> std::ops::Range<usize> {
        let bay_slabs = self.frames.plan().bay_slabs;
        bay * bay_slabs..(bay + 1) * bay_slabs
    }

    /// Notes that these frames wait for the epoch, on behalf of no class.
    pub(super) fn retire_for_no_class(&mut self, evicted: Vec<u32>) -> Option<Stamp> {
        if evicted.is_empty() {
            return None;
        }
        self.evictions += evicted.len() as u64;
        self.classes[PINNED].waiting_count += evicted.len();
        let (retired, stamp) = Retired::new(&self.frames, evicted);
        self.waiting.push((PINNED, retired));
        Some(stamp)
    }

    /// Panics unless bays and slabs agree.
    #[cfg(test)]
    pub(super) fn check_annex(&self) {
        let closed = |slab: &usize| self.slabs[*slab].class == CLOSED;
        assert_eq!((0..self.slabs.len()).filter(closed).count(), self.annex.closed_slabs);
        assert!(self.annex.free.iter().all(|slab| self.slabs[*slab as usize].class == NO_CLASS));
        for slab in 0..self.slabs.len() {
            let class = self.slabs[slab].class;
            assert!(self.is_in_annex(slab) || class != CLOSED, "slab {slab} is always the cache's");
            let may = class != super::LENT && class != PINNED as u8;
            assert!(!self.is_in_annex(slab) || may, "slab {slab} of the annex has blocks only");
        }
        for (bay, state) in self.annex.bays.iter().enumerate() {
            let closed_count = self.slabs_of(bay).filter(closed).count();
            if *state != Bay::Used {
                assert_eq!(closed_count, self.frames.plan().bay_slabs, "bay {bay} is {state:?}");
            } else if bay >= self.annex.shut_count {
                assert_eq!(closed_count, 0, "bay {bay} is open");
            }
        }
    }
}
