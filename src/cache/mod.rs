//! The block cache: blocks of tables in memory given once, and the table of reads in flight.
//!
//! It is not a reader: drivers read and verify, tables know what is in a block. Machines of `read` look
//! blocks up under a pin; drivers claim what is missing; merges offer what they wrote. Tables pin their
//! filters and fences in it, which are then looked at as any memory.
//!
//! A part of it, the annex, is the cache's only while others do not use their share of the memory.
//!
//! Everything is for any thread at any time. A hit takes no lock and writes nothing, but for the CLOCK's
//! mark when a visit was taken from it, and for the place of a block that has moved; it touches one line of
//! the index, or the place, and one of the frame's header. Misses take one short lock.
//!
//! 1. Frames, pinned pages, headers, index and bookkeeping together never exceed the bytes given, and what of
//!    the annex is open, or not emptied yet. Blocks that find no frame (too large, or every frame counted, or
//!    waiting for the epoch) live in heap memory of their own, uncached, and slabs stay empty in their place
//!    while there is one whose frames nobody counts.
//! 2. A block's bytes never change while anyone can see them, by pin or by count.
//! 3. A block is found by what it is in its file, and may be longer here: decompressed.
//! 4. A block enters unmarked: what a scan touches once goes first.
//! 5. No lock is held while another layer's code runs; the epoch's deferred calls included.

mod block;
mod flight;
mod frames;
mod index;
#[cfg(all(loom, test))]
mod loom_tests;
mod pool;
mod shared;
#[cfg(all(test, not(loom)))]
mod tests;
mod visits;

use crate::base::epoch::{Epoch, Pin};
use crate::base::region::Region;
use crate::base::reserve::{Lender, Limits, Reserve};
use crate::base::step::BlockAddress;
use crate::base::sync::{Arc, Mutex};

pub(crate) use block::BlockRef;
use flight::FlightTable;
pub(crate) use flight::{Claim, Share, Slot, Waiter};
use frames::{Frames, Key, Pages, Plan};
pub(crate) use frames::{Near, Place};
use pool::{BayLook, Pinning, Pool};
use shared::Shared;
use visits::visits;

/// The block cache of a store. Clones are the same cache.
#[derive(Clone)]
pub(crate) struct Cache {
    frames: Arc<Frames>,
    shared: Arc<Shared>,
}

/// The slabs, for what is granted to others.
struct Slabs {
    pool: Arc<Mutex<Pool>>,
    epoch: Epoch,
}

/// Pages of the cache's memory that hold no blocks, until this is dropped: whoever has them looks at them
/// without pin, count or index.
pub(crate) struct PinnedPages {
    pages: Pages,
    pool: Arc<Mutex<Pool>>,
}

/// Times that a taking of pages waits for emptied slabs.
const PIN_TRIES: usize = 4;
/// Times that a closing of the annex goes over what is left of it.
const CLOSE_TRIES: usize = 4;
/// What a try to close the annex comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closing {
    Done,
    /// Some of it is counted, or a reader may still look at it: to be tried again later.
    Late,
}

/// What the cache holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CacheStats {
    /// Memory for blocks.
    pub(crate) capacity_bytes: u64,
    /// Of it, what is the annex's: open, or not emptied yet.
    pub(crate) annex_bytes: u64,
    /// Frames that hold a block, or are being read into.
    pub(crate) used_bytes: u64,
    /// Index, headers, bookkeeping and rounding; with the capacity never more than was given.
    pub(crate) index_bytes: u64,
    /// Pages that hold no blocks.
    pub(crate) pinned_bytes: u64,
    /// Memory taken elsewhere on the cache's account, blocks that found no frame included.
    pub(crate) lent_bytes: u64,
    /// Blocks that found no frame.
    pub(crate) heap_bytes: u64,
    /// Frames that someone counts, about.
    pub(crate) counted_frames: u64,
    /// Blocks being read.
    pub(crate) in_flight: u64,
    pub(crate) evictions: u64,
    pub(crate) inserts: u64,
}

impl Cache {
    /// A cache without an annex; see [`Cache::with_annex`].
    #[cfg(test)]
    pub(crate) fn new(bytes: usize, epoch: Epoch, memory: impl Fn(usize) -> Option<Region>) -> Cache {
        Cache::with_annex((bytes, 0), Limits::unlimited(), epoch, memory)
    }

    /// A cache of `bytes` in all, and an annex, closed, that takes up to `annex_bytes` more while it is open;
    /// in one region of zeroed memory asked from `memory`: whole huge pages, from 64 MiB on.
    ///
    /// If there is not that much memory it is tried with half, and so on; see `stats`. Pins given to this
    /// cache must be of `epoch`. Of the bytes without the annex, others are granted what `limits` says.
    pub(crate) fn with_annex(
        (mut bytes, mut annex_bytes): (usize, usize),
        limits: Limits,
        epoch: Epoch,
        memory: impl Fn(usize) -> Option<Region>,
    ) -> Cache {
        let mut plan = Plan::new(bytes, annex_bytes);
        let mut region = None;
        while plan.slab_count > 0 {
            region = memory(plan.region_bytes);
            if region.is_some() {
                break;
            }
            (bytes, annex_bytes) = (bytes / 2, annex_bytes / 2);
            plan = Plan::new(bytes, annex_bytes);
        }
        let frames = Arc::new(Frames::new(plan, region));
        let pool = Arc::new(Mutex::new(Pool::new(Arc::clone(&frames))));
        let slabs = Slabs { pool: Arc::clone(&pool), epoch: epoch.clone() };
        let (flights, untaken) = (FlightTable::default(), Mutex::default());
        let reserve = Reserve::new(limits, slabs);
        let shared = Shared { frames: Arc::clone(&frames), pool, flights, untaken, epoch, reserve };
        Cache { frames, shared: Arc::new(shared) }
    }

    /// The block, for as long as the pin is held, if it is cached. It may be missed while another thread
    /// evicts a neighbour in the index; [`Cache::claim`] misses nothing.
    #[inline]
    pub(crate) fn lookup<'p>(&'p self, address: &BlockAddress, pin: &'p Pin) -> Option<&'p [u8]> {
        self.frames.lookup(Key::of(address), visits(address.kind), pin)
    }

    /// As [`Cache::lookup`], first where `place` says; there it is found again.
    #[inline]
    pub(crate) fn lookup_at<'p>(
        &'p self,
        address: &BlockAddress,
        place: &Place,
        pin: &'p Pin,
    ) -> Option<&'p [u8]> {
        self.frames.lookup_at(Key::of(address), place, visits(address.kind), pin)
    }

    /// Hints that the block will be looked up soon; `near` says what earlier hints have brought, and what is
    /// returned what this one does, of the block so many lines.
    #[inline]
    pub(crate) fn prefetch(
        &self,
        address: &BlockAddress,
        place: Option<&Place>,
        near: Near,
        lines: usize,
    ) -> Near {
        self.frames.prefetch(Key::of(address), place, near, lines)
    }

    /// The block, counted, for what outlives a pin, if it is cached.
    pub(crate) fn lookup_counted(&self, address: &BlockAddress, pin: &Pin) -> Option<BlockRef> {
        let counted = self.frames.lookup_counted(Key::of(address), visits(address.kind), pin);
        counted.map(BlockRef::from_frame)
    }

    /// As `lookup_counted`, for what its reader has brought ahead: it is not marked as hit.
    pub(crate) fn lookup_once(&self, address: &BlockAddress, _pin: &Pin) -> Option<BlockRef> {
        self.frames.find_counted(Key::of(address)).map(BlockRef::from_frame)
    }

    /// Memory for blocks, in bytes, without the annex.
    pub(crate) fn capacity_bytes(&self) -> usize {
        let plan = self.frames.plan();
        plan.base_slabs() * plan.slab_bytes
    }

    /// Has as much of the annex as `closed_bytes` closed, or all of it, and the rest open: that can be used
    /// at once, while it is [`Cache::close_annex`] that closes the other.
    pub(crate) fn shut_annex(&self, closed_bytes: usize) {
        self.shared.pool.lock().shut_annex(closed_bytes);
    }

    /// Empties what is to be closed of the annex and gives its memory back to the system, in small steps
    /// between which others have their turn at the cache: milliseconds for 100 MiB. Better not under a pin.
    pub(crate) fn close_annex(&self) -> Closing {
        for _ in 0..CLOSE_TRIES {
            for bay in 0.. {
                // Taken apart from the match, which the lock must not outlast.
                let look = self.shared.pool.lock().close_bay(bay);
                match look {
                    None => break,
                    Some(BayLook::Closed) => {}
                    Some(BayLook::Vacant(mut vacant)) => {
                        vacant.discard();
                        self.shared.pool.lock().end_vacancy(vacant);
                    }
                    Some(BayLook::Used(stamp)) => {
                        if let Some(stamp) = stamp {
                            stamp.defer(&self.shared.epoch);
                        }
                        self.shared.epoch.collect();
                    }
                }
            }
            if self.is_annex_settled() {
                return Closing::Done;
            }
        }
        Closing::Late
    }

    /// Whether all that is to be closed of the annex is.
    pub(crate) fn is_annex_settled(&self) -> bool {
        self.shared.pool.lock().is_annex_settled()
    }

    /// The block, or the duty to read it, or a share in someone else's read.
    ///
    /// The length must have been checked: a block without a frame is allocated. Better not under a pin,
    /// which keeps frames from being reused.
    pub(crate) fn claim(&self, address: &BlockAddress) -> Claim {
        flight::claim(&self.shared, address)
    }

    /// The block, or a share in someone's read, if there is either.
    pub(crate) fn join(&self, address: &BlockAddress) -> Option<Result<BlockRef, Waiter>> {
        flight::join(&self.shared, address)
    }

    /// The right to read a block by oneself: whoever else claims it does not wait for that. For those who may
    /// be kept from ending it by what is not the store's.
    pub(crate) fn slot_apart(&self, address: &BlockAddress) -> Slot {
        flight::slot_apart(&self.shared, address)
    }

    /// Whether a block is here now; it is not marked as hit. For those who decide what to offer.
    pub(crate) fn holds(&self, address: &BlockAddress) -> bool {
        self.frames.holds(Key::of(address))
    }

    /// Whether someone reads the block now. For those who decide what to read ahead.
    pub(crate) fn is_being_read(&self, address: &BlockAddress) -> bool {
        self.shared.flights.has(Key::of(address))
    }

    /// Takes `count` pages of up to `page_bytes`, which are 4 KiB at most, as long as all that are taken, and
    /// what is lent, stay within `limit_bytes`. They hold what was left in them. Better not under a pin.
    pub(crate) fn pin_pages(&self, count: usize, page_bytes: usize, limit_bytes: u64) -> Option<PinnedPages> {
        for _ in 0..PIN_TRIES {
            let pinning = self.shared.pool.lock().pin(count, page_bytes, limit_bytes);
            match pinning {
                Pinning::Pinned(pages) => {
                    return Some(PinnedPages { pages, pool: Arc::clone(&self.shared.pool) });
                }
                Pinning::Refused => return None,
                Pinning::Short(stamp) => {
                    if let Some(stamp) = stamp {
                        stamp.defer(&self.shared.epoch);
                    }
                    self.shared.epoch.collect();
                }
            }
        }
        None
    }

    /// What grants memory to others: as much of the cache's own stays empty.
    pub(crate) fn reserve(&self) -> &Arc<Reserve> {
        &self.shared.reserve
    }

    /// Offers a verified block, decompressed: kept if it is not here yet and a frame can be had, as if it had
    /// been hit. Better not under a pin.
    pub(crate) fn insert(&self, address: &BlockAddress, bytes: &[u8]) {
        let key = Key::of(address);
        assert!(bytes.len() >= address.bytes as usize, "a block is not shorter than in its file");
        if self.shared.pool.lock().find(key).is_some() {
            return;
        }
        if let Some(mut owned) = self.shared.take_frame(key, bytes.len()) {
            owned.bytes_mut().copy_from_slice(bytes);
            let counted = self.shared.pool.lock().publish(owned);
            counted.mark(visits(address.kind));
        }
    }

    /// Looks at every frame: not for hot paths.
    pub(crate) fn stats(&self) -> CacheStats {
        let counts = self.shared.pool.lock().counts();
        let plan = self.frames.plan();
        CacheStats {
            capacity_bytes: counts.capacity_bytes,
            annex_bytes: counts.annex_bytes,
            used_bytes: counts.used_bytes,
            index_bytes: plan.index_bytes as u64,
            pinned_bytes: counts.pinned_bytes,
            lent_bytes: counts.lent_bytes,
            heap_bytes: self.frames.heap_bytes(),
            counted_frames: self.frames.counted() as u64,
            in_flight: self.shared.flights.count() as u64,
            evictions: counts.evictions,
            inserts: counts.inserts,
        }
    }
}

impl PinnedPages {
    /// The first `bytes` of a page.
    #[inline]
    pub(crate) fn page(&self, index: usize, bytes: usize) -> &[u8] {
        self.pages.page(index, bytes)
    }

    pub(crate) fn page_mut(&mut self, index: usize, bytes: usize) -> &mut [u8] {
        self.pages.page_mut(index, bytes)
    }

    /// Of one page: keeps its first `bytes` alone, in a smaller place if that takes no more than the limit.
    pub(crate) fn shorten(&mut self, bytes: usize, limit_bytes: u64) {
        let kept = self.page(0, bytes).to_vec();
        self.pages = self.pool.lock().shorten(&self.pages, bytes, limit_bytes);
        self.page_mut(0, bytes).copy_from_slice(&kept);
    }
}

impl Drop for PinnedPages {
    fn drop(&mut self) {
        self.pool.lock().unpin(&self.pages);
    }
}

impl Lender for Slabs {
    fn lend(&self, bytes: u64) {
        let stamp = self.pool.lock().lend(bytes as usize);
        if let Some(stamp) = stamp {
            stamp.defer(&self.epoch);
        }
    }

    fn take_back(&self, bytes: u64) {
        self.pool.lock().end_loan(bytes as usize);
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache({} slabs)", self.frames.plan().slab_count)
    }
}

impl std::fmt::Debug for PinnedPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedPages({})", self.pages.starts().len())
    }
}
