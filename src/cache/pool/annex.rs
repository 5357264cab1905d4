//! The annex: slabs that are the cache's only while others do not use their share of the budget.
//!
//! It is closed at first, and is closed again from its front on as far as others need it. Its slabs hold
//! blocks and nothing else: pages stay for as long as their table, and what is lent must be had without the
//! annex. Closing takes a bay at a time, slabs whose memory goes back to the system together, so that nobody
//! waits long for the lock. What somebody counts or looks at keeps its bay from being closed; the caller
//! comes again.
//!
//! 1. A slab that was emptied to be closed gives out no frame, unless it is opened again.
//! 2. A slab is closed only when all its frames are FREE, and a bay is vacated only when all its slabs are
//!    closed. Until a vacated bay is given back it is not opened.

use super::{CLOSED, NO_CLASS, PINNED, Pool, Slab, Which};
use crate::cache::frames::{Plan, Retired, Stamp, Vacant};

/// What is kept of the annex.
pub(super) struct Annex {
    /// Slabs with all frames free, to be cut for any class.
    pub(super) free: Vec<u32>,
    bays: Vec<Bay>,
    /// So many bays at the front are to be closed.
    shut_count: usize,
    pub(super) closed_slabs: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bay {
    /// In use, or on the way to be closed.
    Used,
    /// Its memory is being given back.
    Vacated,
    /// It has no memory.
    Closed,
}

/// What a look at a bay that is to be closed comes to. A stamp must be deferred once the lock is released.
pub(crate) enum BayLook {
    Closed,
    /// Its memory can be given back, and it must be given back itself.
    Vacant(Vacant),
    /// Something of it is counted, or waits for the epoch.
    Used(Option<Stamp>),
}

impl Annex {
    pub(super) fn new(plan: &Plan) -> Annex {
        let bay_count = plan.annex_slabs / plan.bay_slabs;
        Annex {
            free: Vec::new(),
            bays: vec![Bay::Closed; bay_count],
            shut_count: bay_count,
            closed_slabs: plan.annex_slabs,
        }
    }
}

impl Pool {
    pub(super) fn is_in_annex(&self, slab: usize) -> bool {
        slab < self.frames.plan().annex_slabs
    }

    /// Whether a slab is to be closed.
    pub(super) fn is_shut(&self, slab: usize) -> bool {
        slab < self.annex.shut_count * self.frames.plan().bay_slabs
    }

    /// Has as much of the annex closed as `bytes`, or all of it, and the rest of it open: bays that are
    /// opened can be used at once, others wait for [`Pool::close_bay`].
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

    /// Whether all that is to be closed is.
    pub(crate) fn is_annex_settled(&self) -> bool {
        self.annex.bays[..self.annex.shut_count].iter().all(|bay| *bay == Bay::Closed)
    }

    /// Closes what nobody looks at of a bay, and evicts the rest; `None` if the bay is not to be closed.
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
            BayLook::Used(self.retire_for_nobody(evicted))
        };
        Some(look)
    }

    /// Takes a bay back whose memory was given back; it may be wanted again.
    pub(crate) fn end_vacancy(&mut self, vacant: Vacant) {
        let bay = vacant.bay();
        drop(vacant);
        self.annex.bays[bay] = Bay::Closed;
        if bay >= self.annex.shut_count {
            self.open_bay(bay);
        }
    }

    /// Opens a bay that is to be closed no more; one whose memory is on its way out comes later.
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
                // Something in it was counted all the time: its class has it again.
                self.slabs[slab].draining = false;
                if free != 0 {
                    let class = &mut self.classes[usize::from(class)];
                    class.free_count += free.count_ones() as usize;
                    class.open.push(slab as u32);
                }
            }
        }
    }

    /// A slab of the annex that holds nothing any more and is to be closed.
    pub(super) fn close_slab(&mut self, slab: usize) {
        self.slabs[slab] = Slab { free: 0, class: CLOSED, draining: false };
        self.annex.closed_slabs += 1;
    }

    fn slabs_of(&self, bay: usize) -> std::ops::Range<usize> {
        let bay_slabs = self.frames.plan().bay_slabs;
        bay * bay_slabs..(bay + 1) * bay_slabs
    }

    /// Notes that these wait for the epoch, and that no class waits for them.
    pub(super) fn retire_for_nobody(&mut self, evicted: Vec<u32>) -> Option<Stamp> {
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
