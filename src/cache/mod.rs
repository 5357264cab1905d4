//! The block cache: blocks of tables in memory given once, and the table of reads in flight.
//!
//! It is not a reader: drivers read and verify, and `table` interprets blocks. Machines of `read` look blocks
//! up under a pin; drivers claim missing blocks; merges offer the blocks that they wrote. Tables pin their
//! filters and fences in it, and then read those like any memory.
//!
//! A part of it, the annex, is idle write-buffer and compaction memory: the cache has it only while its
//! owners do not use it.
//!
//! Thread safety: any thread may call anything at any time. A hit takes no lock. It writes nothing, except
//! the CLOCK counter if the hand has decremented it, and the hint of a block that has moved. It reads one
//! cache line of the index, or the hint, and one of the frame's header. Misses take one short lock.
//!
//! Invariants:
//! 1. Frames, pinned pages, headers, index and bookkeeping together never exceed the bytes given plus the
//!    open or not yet emptied part of the annex. Blocks that find no frame (too large, or every frame
//!    counted, or waiting for the epoch) live in heap memory of their own, uncached. In their place slabs
//!    stay empty, as long as there is a slab without counted frames.
//! 2. A block's bytes never change while a pin or a count makes them visible.
//! 3. A block is found by its address in its file, and may be longer here: decompressed.
//! 4. A data block that was read enters unmarked: blocks that a scan reads once are evicted first. Filter and
//!    fence pages, and offered blocks, enter marked.
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
use crate::base::reserve::{Lender, Reserve, RoleLimits};
use crate::base::step::BlockAddress;
use crate::base::sync::{Arc, Mutex};

pub(crate) use block::BlockRef;
use flight::FlightTable;
pub(crate) use flight::{Claim, ReadSlot, Share, Waiter};
pub(crate) use frames::{FrameHint, Near};
use frames::{FramePlan, Frames, Key, Pages};
use pool::{BayLook, FramePool, Pinning};
use shared::Shared;
use visits::visits;

/// The block cache of a store. Clones are the same cache.
#[derive(Clone)]
pub(crate) struct Cache {
    frames: Arc<Frames>,
    shared: Arc<Shared>,
}

/// The pool as the lender of memory granted to others.
struct Slabs {
    pool: Arc<Mutex<FramePool>>,
    epoch: Epoch,
}

/// Pages of the cache's memory that hold no blocks, until this is dropped. Their holder reads them without
/// pin, count or index.
pub(crate) struct PinnedPages {
    pages: Pages,
    pool: Arc<Mutex<FramePool>>,
}

/// Most tries to pin pages while slabs are being emptied.
const PIN_TRIES: usize = 4;
/// Most passes over the annex in one call that closes it.
const CLOSE_TRIES: usize = 4;
/// The result of a try to close the annex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AnnexClosing {
    Done,
    /// Some frames are counted, or a reader may still use them: try again later.
    Late,
}

/// Sizes and counters of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CacheStats {
    /// Memory for blocks.
    pub(crate) capacity_bytes: u64,
    /// The annex's part of it: open, or not emptied yet.
    pub(crate) annex_bytes: u64,
    /// Frames that hold a block, or are being read into.
    pub(crate) used_bytes: u64,
    /// Index, headers, bookkeeping and rounding; with the capacity never more than the bytes given.
    pub(crate) index_bytes: u64,
    /// Pages that hold no blocks.
    pub(crate) pinned_bytes: u64,
    /// Memory allocated elsewhere on the cache's account, blocks that found no frame included.
    pub(crate) lent_bytes: u64,
    /// Blocks that found no frame.
    pub(crate) heap_bytes: u64,
    /// Approximate number of counted frames.
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
        Cache::with_annex((bytes, 0), RoleLimits::unlimited(), epoch, memory)
    }

    /// A cache of `bytes` in all, and a closed annex of up to `annex_bytes` more while it is open. All of it
    /// lies in one region of zeroed memory from `memory`: whole huge pages, from 64 MiB on.
    ///
    /// If that much memory is not available, half is tried, and so on; see `stats`. Pins given to this cache
    /// must be of `epoch`. `limits` bounds the grants to others, which come out of the bytes without the
    /// annex.
    pub(crate) fn with_annex(
        (mut bytes, mut annex_bytes): (usize, usize),
        limits: RoleLimits,
        epoch: Epoch,
        memory: impl Fn(usize) -> Option<Region>,
    ) -> Cache {
        let mut plan = FramePlan::new(bytes, annex_bytes);
        let mut region = None;
        while plan.slab_count > 0 {
            region = memory(plan.region_bytes);
            if region.is_some() {
                break;
            }
            (bytes, annex_bytes) = (bytes / 2, annex_bytes / 2);
            plan = FramePlan::new(bytes, annex_bytes);
        }
        let frames = Arc::new(Frames::new(plan, region));
        let pool = Arc::new(Mutex::new(FramePool::new(Arc::clone(&frames))));
        let slabs = Slabs { pool: Arc::clone(&pool), epoch: epoch.clone() };
        let (flights, untaken) = (FlightTable::default(), Mutex::default());
        let reserve = Reserve::new(limits, slabs);
        let shared = Shared { frames: Arc::clone(&frames), pool, flights, untaken, epoch, reserve };
        Cache { frames, shared: Arc::new(shared) }
    }

    /// The block, for as long as the pin is held, if it is cached. The lookup may miss it while another
    /// thread evicts a neighbour in the index; [`Cache::claim`] never does.
    #[inline]
    pub(crate) fn lookup<'p>(&'p self, address: &BlockAddress, pin: &'p Pin) -> Option<&'p [u8]> {
        self.frames.lookup(Key::of(address), visits(address.kind), pin)
    }

    /// As [`Cache::lookup`], but tries the frame of `hint` first, and updates `hint` if the block is found
    /// elsewhere.
    #[inline]
    pub(crate) fn lookup_at<'p>(
        &'p self,
        address: &BlockAddress,
        hint: &FrameHint,
        pin: &'p Pin,
    ) -> Option<&'p [u8]> {
        self.frames.lookup_at(Key::of(address), hint, visits(address.kind), pin)
    }

    /// Hints that the block will be looked up soon. `near` is the part covered by earlier hints; the result
    /// is the part covered now. Prefetches `lines` cache lines of the block.
    #[inline]
    pub(crate) fn prefetch(
        &self,
        address: &BlockAddress,
        hint: Option<&FrameHint>,
        near: Near,
        lines: usize,
    ) -> Near {
        self.frames.prefetch(Key::of(address), hint, near, lines)
    }

    /// The block, counted, for a holder that outlives the pin, if it is cached.
    pub(crate) fn lookup_counted(&self, address: &BlockAddress, pin: &Pin) -> Option<BlockRef> {
        let counted = self.frames.lookup_counted(Key::of(address), visits(address.kind), pin);
        counted.map(BlockRef::from_frame)
    }

    /// As `lookup_counted`, for a block that its reader has read ahead: it is not marked as hit.
    pub(crate) fn lookup_once(&self, address: &BlockAddress, _pin: &Pin) -> Option<BlockRef> {
        self.frames.find_counted(Key::of(address)).map(BlockRef::from_frame)
    }

    /// Memory for blocks, in bytes, without the annex.
    pub(crate) fn capacity_bytes(&self) -> usize {
        let plan = self.frames.plan();
        plan.base_slabs() * plan.slab_bytes
    }

    /// Sets the part of the annex to be closed: `closed_bytes`, at most all of it. The rest is opened and can
    /// be used at once; [`Cache::close_annex`] closes the part.
    pub(crate) fn shut_annex(&self, closed_bytes: usize) {
        self.shared.pool.lock().shut_annex(closed_bytes);
    }

    /// Empties the part of the annex to be closed and gives its memory back to the system. The lock is
    /// released between small steps: milliseconds for 100 MiB. Better not under a pin.
    pub(crate) fn close_annex(&self) -> AnnexClosing {
        for _ in 0..CLOSE_TRIES {
            for bay in 0.. {
                // A statement of its own: the lock must not be held through the match.
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
                return AnnexClosing::Done;
            }
        }
        AnnexClosing::Late
    }

    /// Whether the part of the annex to be closed is closed.
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

    /// The block, or a share in its read in flight, if there is either.
    pub(crate) fn join(&self, address: &BlockAddress) -> Option<Result<BlockRef, Waiter>> {
        flight::join(&self.shared, address)
    }

    /// The right to read a block alone: other claims do not wait for this read. For readers that may be
    /// delayed by code outside the store.
    pub(crate) fn slot_apart(&self, address: &BlockAddress) -> ReadSlot {
        flight::slot_apart(&self.shared, address)
    }

    /// Whether a block is cached now; it is not marked as hit. For callers that decide which blocks to offer.
    pub(crate) fn holds(&self, address: &BlockAddress) -> bool {
        self.frames.holds(Key::of(address))
    }

    /// Whether the block is being read now. For callers that decide which blocks to read ahead.
    pub(crate) fn is_being_read(&self, address: &BlockAddress) -> bool {
        self.shared.flights.has(Key::of(address))
    }

    /// Pins `count` pages of up to `page_bytes`, at most 4 KiB each, if all pinned pages and loans stay
    /// within `limit_bytes`. Their contents are arbitrary. Better not under a pin.
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

    /// The reserve that grants memory to others: as much of the cache's own stays empty.
    pub(crate) fn reserve(&self) -> &Arc<Reserve> {
        &self.shared.reserve
    }

    /// Offers a verified block, decompressed. If it is not cached yet and a frame is available, it is kept,
    /// marked as hit. Better not under a pin.
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

    /// Visits every frame: not for hot paths.
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

    /// Of one page: keeps only its first `bytes`, in a smaller place if that stays within the limit.
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
