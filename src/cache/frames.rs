//! The memory of the block cache: frames, their headers, the index's slots, and the rules for reading them.
//!
//! It is not the policy: `pool` decides, under its lock, which frame is used or evicted. Called by `pool`,
//! `flight` and the cache itself. Any thread may find a frame and take a count (a reference that keeps it). A
//! caller of a function that changes the index holds the lock.
//!
//! A frame's state goes FREE → OWNED → LIVE + count → RETIRED → FREE, or from OWNED back to FREE:
//! 1. Only its owner writes a frame's bytes and header; they are immutable from LIVE until FREE.
//! 2. A frame is in the index only while LIVE, or on its way from LIVE to RETIRED under the lock.
//! 3. Counts are taken while LIVE only, and LIVE turns RETIRED only at count 0: a counted frame stays LIVE.
//! 4. A RETIRED frame turns FREE only after all pins that existed when it left the index have ended.
//! 5. The bytes of two frames that are not FREE never overlap (the caller of `Frames::own` promises this).

#![expect(unsafe_code, reason = "shares raw memory between threads by the states above")]

mod hint;
#[cfg(all(loom, test))]
mod model;

use std::ptr::NonNull;

use crate::base::epoch::{Epoch, Pin};
use crate::base::prefetch::prefetch_address;
use crate::base::region::Region;
use crate::base::step::BlockAddress;
use crate::base::sync::{Arc, AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::index::{Index, SLOTS_PER_FRAME};
pub(crate) use hint::{FrameHint, Near};

/// The unit of block lengths.
pub(crate) const UNIT_BYTES: usize = 512;
/// Size, and in its class alignment, of the smallest frame.
pub(crate) const FRAME_BYTES_MIN: usize = 4096;
/// Size of the smallest part of a frame that a page may have.
pub(crate) const PART_BYTES: usize = 128;
/// Size of the largest frame: its length in units fits a byte.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 10;

const LIVE: u32 = 1 << 31;
const COUNT_MAX: u32 = LIVE - 1;
const FREE: u32 = 0;
const OWNED: u32 = 1;
const RETIRED: u32 = 2;

/// The key of a block. File numbers are never reused, so a key names the same bytes for ever.
///
/// Length and kind are part of the key. So an index that names one place as two blocks does no harm: a block
/// found was verified as the kind and length of the lookup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) file: u64,
    /// The offset, and below it the kind.
    pub(crate) at: u64,
    /// Length in the file.
    pub(crate) bytes: u32,
}

impl Key {
    #[inline]
    pub(crate) fn of(address: &BlockAddress) -> Key {
        let at = address.offset << 2 | address.kind as u64;
        Key { file: address.file.number, at, bytes: address.bytes }
    }

    /// 32 bits of the key's hash. Not seeded: file numbers are not chosen by outsiders.
    #[inline]
    pub(crate) fn tag(self) -> u32 {
        let mixed =
            (self.file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.at).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32) as u32
    }
}

/// One frame's header: half a cache line. Only the owner writes it, except `state` and `hit`.
#[repr(C, align(32))]
struct Header {
    file: AtomicU64,
    at: AtomicU64,
    /// Start of the frame's bytes, from the region's start.
    start_bytes: AtomicU64,
    state: AtomicU32,
    /// Length of the frame's bytes.
    units: AtomicU8,
    /// Length of the block in its file: shorter than the frame's bytes if the block is kept decompressed.
    stored_units: AtomicU8,
    /// The CLOCK counter: further visits of the hand that the block survives.
    hit: AtomicU8,
}

/// The division of the cache's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramePlan {
    pub(crate) slab_bytes: usize,
    /// Slabs of the annex, which come first, and of the cache's own memory.
    pub(crate) slab_count: usize,
    pub(crate) annex_slabs: usize,
    /// Slabs of the annex whose memory is given back together.
    pub(crate) bay_slabs: usize,
    pub(crate) frame_count: usize,
    slots_at: usize,
    headers_at: usize,
    /// Size of the one region.
    pub(crate) region_bytes: usize,
    /// Everything but the slabs, including memory outside the region.
    pub(crate) index_bytes: usize,
}

const HUGE_PAGE_BYTES: usize = 2 << 20;
/// From this size on the region is whole huge pages: rounding loses at most 1/32.
const HUGE_FROM_BYTES: usize = 32 * HUGE_PAGE_BYTES;
/// From this size on memory is given back in whole huge pages. Caches of real stores are larger.
const BAY_HUGE_FROM_BYTES: usize = 4 * HUGE_PAGE_BYTES;
const SLAB_BYTES_MIN: usize = 8 << 10;
const SLAB_BYTES_MAX: usize = 128 << 10;
/// A cache has at least this many slabs, unless they would be smaller than the smallest.
const SLABS_GOAL: usize = 16;
/// Memory of `pool` for a slab, outside the region, rounded up.
const POOL_BYTES_PER_SLAB: usize = 96;
/// Frame numbers have 32 bits.
const BYTES_MAX: usize = 8 << 40;

impl FramePlan {
    /// Divides `bytes`; too few give no slabs at all. Of the annex only the slabs come on top, as many as
    /// `annex_bytes` has room for; their headers and index slots are taken from `bytes`.
    pub(crate) fn new(bytes: usize, annex_bytes: usize) -> FramePlan {
        let bytes = bytes.min(BYTES_MAX);
        let goal = (bytes / SLABS_GOAL).max(1);
        let slab_bytes = (1usize << goal.ilog2()).clamp(SLAB_BYTES_MIN, SLAB_BYTES_MAX);
        let frames_per_slab = slab_bytes / FRAME_BYTES_MIN;
        let side_bytes = frames_per_slab * (SLOTS_PER_FRAME * size_of::<AtomicU64>() + size_of::<Header>());
        let whole = if bytes >= HUGE_FROM_BYTES { HUGE_PAGE_BYTES } else { FRAME_BYTES_MIN };
        let bay_bytes = if bytes >= BAY_HUGE_FROM_BYTES { HUGE_PAGE_BYTES } else { slab_bytes };
        let annex_bytes = annex_bytes.min(bytes) / bay_bytes * bay_bytes;
        let annex_slabs = annex_bytes / slab_bytes;
        let annex_side_bytes = annex_slabs * (side_bytes + POOL_BYTES_PER_SLAB);
        let base_max =
            bytes.saturating_sub(annex_side_bytes) / (slab_bytes + side_bytes + POOL_BYTES_PER_SLAB);
        let annex_slabs = if base_max == 0 { 0 } else { annex_slabs };
        let base_bytes = (bytes - (base_max + annex_slabs) * POOL_BYTES_PER_SLAB) / whole * whole;
        let base_slabs = ((base_bytes - annex_slabs * side_bytes) / (slab_bytes + side_bytes)).min(base_max);
        let slab_count = base_slabs + annex_slabs;
        let region_bytes = base_bytes + annex_slabs * slab_bytes;
        let frame_count = slab_count * frames_per_slab;
        let slots_at = slab_count * slab_bytes;
        let headers_at = slots_at + frame_count * SLOTS_PER_FRAME * size_of::<AtomicU64>();
        let region_bytes = if slab_count == 0 { 0 } else { region_bytes };
        FramePlan {
            slab_bytes,
            slab_count,
            annex_slabs,
            bay_slabs: bay_bytes / slab_bytes,
            frame_count,
            slots_at,
            headers_at,
            region_bytes,
            index_bytes: region_bytes - slots_at + slab_count * POOL_BYTES_PER_SLAB,
        }
    }

    /// Slabs of the cache's own memory, without the annex.
    pub(crate) fn base_slabs(&self) -> usize {
        self.slab_count - self.annex_slabs
    }
}

const LINE_BYTES: usize = 64;

/// All memory of a cache.
pub(crate) struct Frames {
    plan: FramePlan,
    region: Option<Region>,
    heap: HeapCount,
    #[cfg(all(loom, test))]
    model: model::FramesModel,
}

/// Bytes of blocks outside the frames; on a cache line of its own, since readers load its neighbours.
#[repr(align(128))]
struct HeapCount {
    bytes: AtomicU64,
}

/// The state of a frame at a visit of the CLOCK hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heat {
    /// Being filled, or counted: cannot be evicted.
    Busy,
    /// Evicted, and not free yet.
    Retired,
    /// Hit; survives `left` further visits without another hit.
    Hit {
        left: u8,
    },
    Cold,
}

impl Frames {
    /// Takes over a region made for `plan`, zeroed.
    pub(crate) fn new(plan: FramePlan, region: Option<Region>) -> Frames {
        if plan.slab_count > 0 {
            let region = region.as_ref().expect("a plan with slabs comes with a region");
            assert!(region.bytes() >= plan.region_bytes, "the region is as large as was asked for");
            assert!(plan.headers_at + plan.frame_count * size_of::<Header>() <= plan.region_bytes);
        }
        Frames {
            plan,
            region,
            heap: HeapCount { bytes: AtomicU64::new(0) },
            #[cfg(all(loom, test))]
            model: model::FramesModel::new(&plan),
        }
    }

    pub(crate) fn plan(&self) -> &FramePlan {
        &self.plan
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        self.heap.bytes.load(Ordering::Relaxed)
    }

    /// Looks a block up and marks it as hit.
    #[inline]
    pub(crate) fn lookup<'p>(&'p self, key: Key, visits: u8, _pin: &'p Pin) -> Option<&'p [u8]> {
        let headers = self.headers();
        let is_it = |frame| {
            // Header and block are fetched at the same time.
            self.prefetch_block(frame, 1);
            headers[frame as usize].key() == key
        };
        let frame = self.index().find(key.tag(), is_it)?;
        self.mark(frame, visits);
        // SAFETY: the frame was in the index after this pin began, so it stays as it is until the pin ends
        // (invariants 1, 4); `self`, and so the region, outlives `'p`. The pin must be of the cache's
        // epoch, as every caller's is: a store has one.
        Some(unsafe { self.bytes(frame) })
    }

    /// As `lookup`, but tries the frame of `hint` first.
    #[inline]
    pub(crate) fn lookup_at<'p>(
        &'p self,
        key: Key,
        hint: &FrameHint,
        visits: u8,
        _pin: &'p Pin,
    ) -> Option<&'p [u8]> {
        let frame = self.find_at(key, hint)?;
        self.mark(frame, visits);
        // SAFETY: as in `lookup`; or the frame was LIVE with this key after the pin began. A later eviction
        // defers the reuse past this pin, as it does for a frame found in the index. So the frame is not FREE
        // before the pin ends (invariant 4).
        Some(unsafe { self.bytes(frame) })
    }

    /// Prefetches the beginning of a frame's block without reading its header: at the place of a frame of the
    /// smallest class, as most are.
    #[inline]
    fn prefetch_block(&self, frame: u32, lines: usize) {
        let start = frame as usize * FRAME_BYTES_MIN;
        (0..lines).for_each(|line| self.prefetch_at(start + line * LINE_BYTES));
    }

    #[inline]
    fn prefetch_at(&self, at: usize) {
        if let Some(region) = &self.region {
            prefetch_address(region.start().as_ptr(), at);
        }
    }

    /// Looks a block up, marks it as hit and counts it. The pin keeps the key of the frame from changing
    /// meanwhile.
    pub(crate) fn lookup_counted(self: &Arc<Frames>, key: Key, visits: u8, _pin: &Pin) -> Option<Counted> {
        let counted = self.find_counted(key)?;
        counted.mark(visits);
        Some(counted)
    }

    /// Whether the block is cached now; it may be evicted at any time after.
    pub(crate) fn holds(&self, key: Key) -> bool {
        self.find(key).is_some()
    }

    /// As `lookup_counted`, unmarked. If the caller holds the lock, no frame changes its key, and a miss is
    /// certain.
    pub(crate) fn find_counted(self: &Arc<Frames>, key: Key) -> Option<Counted> {
        self.count_frame(self.find(key)?)
    }

    /// A count on a frame, unless it has been retired since it was found.
    fn count_frame(self: &Arc<Frames>, frame: u32) -> Option<Counted> {
        let state = &self.headers()[frame as usize].state;
        state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                (state & LIVE != 0 && state & COUNT_MAX < COUNT_MAX / 2).then(|| state + 1)
            })
            .ok()?;
        Some(Counted::new(Arc::clone(self), frame))
    }

    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<u32> {
        let headers = self.headers();
        self.index().find(key.tag(), |frame| headers[frame as usize].key() == key)
    }

    #[inline]
    fn mark(&self, frame: u32, visits: u8) {
        let hit = &self.headers()[frame as usize].hit;
        if hit.load(Ordering::Relaxed) < visits {
            hit.store(visits, Ordering::Relaxed);
        }
    }

    /// Takes a free frame to fill it with `bytes` for the block of `key`. The caller holds the lock.
    ///
    /// # Safety
    /// `frame` is FREE, and `start_bytes..start_bytes + bytes` lies in the slabs and overlaps no other frame
    /// that is not FREE, now or until this one is FREE again.
    pub(crate) unsafe fn own(
        self: &Arc<Frames>,
        frame: u32,
        start_bytes: usize,
        key: Key,
        bytes: usize,
    ) -> Owned {
        let header = &self.headers()[frame as usize];
        assert_eq!(header.state.load(Ordering::Relaxed), FREE, "a frame has one owner");
        assert!(start_bytes + bytes <= self.plan.slots_at && start_bytes.is_multiple_of(UNIT_BYTES));
        let units = |bytes| u8::try_from(bytes / UNIT_BYTES).expect("no frame is larger than 128 units");
        header.file.store(key.file, Ordering::Relaxed);
        header.at.store(key.at, Ordering::Relaxed);
        header.start_bytes.store(start_bytes as u64, Ordering::Relaxed);
        header.units.store(units(bytes), Ordering::Relaxed);
        header.stored_units.store(units(key.bytes as usize), Ordering::Relaxed);
        header.hit.store(0, Ordering::Relaxed);
        header.state.store(OWNED, Ordering::Relaxed);
        Owned { frames: Arc::clone(self), frame }
    }

    /// A free frame for models, in which each frame has a place of its own.
    #[cfg(all(loom, test))]
    pub(crate) fn take_for_model(self: &Arc<Frames>, frame: u32, key: Key) -> Owned {
        // SAFETY: `own` checks that the frame is FREE, and each frame has a place of its own.
        unsafe { self.own(frame, frame as usize * FRAME_BYTES_MIN, key, key.bytes as usize) }
    }

    /// Returns the state of a frame and decrements its CLOCK counter. The caller holds the lock.
    pub(crate) fn visit(&self, frame: u32) -> Heat {
        let header = &self.headers()[frame as usize];
        match header.state.load(Ordering::Relaxed) {
            LIVE => match header.hit.load(Ordering::Relaxed).checked_sub(1) {
                None => Heat::Cold,
                Some(left) => {
                    header.hit.store(left, Ordering::Relaxed);
                    Heat::Hit { left }
                }
            },
            RETIRED => Heat::Retired,
            _ => Heat::Busy,
        }
    }

    /// The CLOCK counter of a frame; `None` if the frame is free or cannot be evicted now.
    pub(crate) fn visits_left(&self, frame: u32) -> Option<u8> {
        let header = &self.headers()[frame as usize];
        (header.state.load(Ordering::Relaxed) == LIVE).then(|| header.hit.load(Ordering::Relaxed))
    }

    /// Retires a live, uncounted frame and takes it out of the index; false for any other frame. The caller
    /// holds the lock, and passes the frame on to a [`Retired`].
    pub(crate) fn evict(&self, frame: u32) -> bool {
        let header = &self.headers()[frame as usize];
        let turned = header.state.compare_exchange(LIVE, RETIRED, Ordering::Acquire, Ordering::Relaxed);
        if turned.is_ok() {
            self.index().remove(header.key().tag(), frame);
        }
        turned.is_ok()
    }

    /// Approximate number of counted frames.
    pub(crate) fn counted(&self) -> usize {
        let is_counted = |header: &&Header| header.state.load(Ordering::Relaxed) > LIVE;
        self.headers().iter().filter(is_counted).count()
    }

    #[cfg(all(loom, test))]
    fn index(&self) -> Index<'_> {
        Index::new(self.model.slots())
    }

    #[cfg(all(loom, test))]
    fn headers(&self) -> &[Header] {
        self.model.headers()
    }

    #[cfg(not(all(loom, test)))]
    #[inline]
    fn index(&self) -> Index<'_> {
        let Some(region) = &self.region else { return Index::new(&[]) };
        // SAFETY: the plan puts these slots inside the region, 4096-aligned, behind the slabs, where all
        // accesses are atomic; they began zeroed.
        Index::new(unsafe {
            let start = region.start().as_ptr().add(self.plan.slots_at).cast::<AtomicU64>();
            std::slice::from_raw_parts(start, self.plan.frame_count * SLOTS_PER_FRAME)
        })
    }

    #[cfg(not(all(loom, test)))]
    #[inline]
    fn headers(&self) -> &[Header] {
        let Some(region) = &self.region else { return &[] };
        // SAFETY: as the slots; the place is aligned to 32, since a frame has 16 bytes of slots and a slab
        // an even number of frames. A header is atomics only and began zeroed.
        unsafe {
            let start = region.start().as_ptr().add(self.plan.headers_at).cast::<Header>();
            std::slice::from_raw_parts(start, self.plan.frame_count)
        }
    }

    /// # Safety
    /// The frame does not turn FREE or OWNED for as long as the result is used.
    #[inline]
    unsafe fn bytes(&self, frame: u32) -> &[u8] {
        #[cfg(all(loom, test))]
        self.model.read_bytes(frame);
        let (start, length) = self.extent(frame);
        // SAFETY: `own` checked that the extent lies in the slabs; no thread writes it in this state
        // (invariants 1, 5).
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    #[inline]
    fn extent(&self, frame: u32) -> (*mut u8, usize) {
        let header = &self.headers()[frame as usize];
        let region = self.region.as_ref().expect("a frame lies in a region");
        let start_bytes = header.start_bytes.load(Ordering::Relaxed) as usize;
        // SAFETY: `own` checked that the extent lies in the slabs, so in the region.
        let start = unsafe { region.start().as_ptr().add(start_bytes) };
        (start, usize::from(header.units.load(Ordering::Relaxed)) * UNIT_BYTES)
    }
}

impl Header {
    #[inline]
    fn key(&self) -> Key {
        Key {
            file: self.file.load(Ordering::Relaxed),
            at: self.at.load(Ordering::Relaxed),
            bytes: u32::from(self.stored_units.load(Ordering::Relaxed)) * UNIT_BYTES as u32,
        }
    }
}

/// A frame being filled, exclusively owned. The owner gives it back to the pool before dropping it.
pub(crate) struct Owned {
    frames: Arc<Frames>,
    frame: u32,
}

impl Owned {
    pub(crate) fn key(&self) -> Key {
        self.frames.headers()[self.frame as usize].key()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        #[cfg(all(loom, test))]
        self.frames.model.write_bytes(self.frame);
        let (start, length) = self.frames.extent(self.frame);
        // SAFETY: the frame is OWNED and this is its only owner, borrowed mutably: no other thread reads it
        // (invariant 1).
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }

    /// Makes the block findable and returns a count on it. The caller holds the lock, and its key is not in
    /// the index.
    pub(crate) fn publish(self) -> Counted {
        self.frames.headers()[self.frame as usize].state.store(LIVE | 1, Ordering::Release);
        self.frames.index().insert(self.key().tag(), self.frame);
        Counted::new(self.frames, self.frame)
    }

    /// Gives the frame up unpublished; no other thread ever saw it. The caller holds the lock. Returns the
    /// frame's number.
    pub(crate) fn abandon(self) -> u32 {
        self.frames.headers()[self.frame as usize].state.store(FREE, Ordering::Relaxed);
        self.frame
    }
}

/// Memory taken from frames for pages of [`FRAME_BYTES_MIN`] at most. The owner gives it back to the pool
/// before dropping it.
pub(crate) struct Pages {
    frames: Arc<Frames>,
    starts: Starts,
    page_bytes: u32,
}

/// Byte offsets of pages from the region's start. Mostly there is one page.
enum Starts {
    One(usize),
    Many(Box<[usize]>),
}

impl Starts {
    #[inline]
    fn all(&self) -> &[usize] {
        match self {
            Starts::One(start) => std::slice::from_ref(start),
            Starts::Many(starts) => starts,
        }
    }
}

impl Pages {
    /// # Safety
    /// Until this is dropped, no frame that is not FREE and no other pages overlap these.
    pub(crate) unsafe fn new(frames: &Arc<Frames>, starts: Vec<usize>, page_bytes: usize) -> Pages {
        assert!(page_bytes <= FRAME_BYTES_MIN, "a page is no larger than a frame");
        let ends = starts.iter().map(|start| *start + page_bytes);
        assert!(ends.max().is_none_or(|end| end <= frames.plan.slots_at), "pages lie in the slabs");
        let starts = match starts.as_slice() {
            [start] => Starts::One(*start),
            _ => Starts::Many(starts.into()),
        };
        Pages { frames: Arc::clone(frames), starts, page_bytes: page_bytes as u32 }
    }

    /// Bytes of each page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes as usize
    }

    pub(crate) fn starts(&self) -> &[usize] {
        self.starts.all()
    }

    /// The first `bytes` of a page.
    #[inline]
    pub(crate) fn page(&self, index: usize, bytes: usize) -> &[u8] {
        // SAFETY: `start` lies in the slabs, which are initialised; pages are written through `&mut self`
        // only.
        unsafe { std::slice::from_raw_parts(self.start(index, bytes), bytes) }
    }

    pub(crate) fn page_mut(&mut self, index: usize, bytes: usize) -> &mut [u8] {
        // SAFETY: as above; these pages have no other user, and are borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start(index, bytes), bytes) }
    }

    #[inline]
    fn start(&self, index: usize, bytes: usize) -> *mut u8 {
        assert!(bytes <= self.page_bytes as usize, "a page is no larger than its place");
        let region = self.frames.region.as_ref().expect("pages lie in a region");
        // SAFETY: `new` checked that the page lies in the slabs, so in the region.
        unsafe { region.start().as_ptr().add(self.starts.all()[index]) }
    }
}

/// A bay of the annex that stays unused until this is given back to the pool.
pub(crate) struct Vacant {
    frames: Arc<Frames>,
    bay: usize,
}

impl Vacant {
    /// # Safety
    /// Until this is dropped, no frame that is not FREE and no pages lie in the bay.
    pub(crate) unsafe fn new(frames: &Arc<Frames>, bay: usize) -> Vacant {
        assert!((bay + 1) * frames.plan.bay_slabs <= frames.plan.annex_slabs, "a bay lies in the annex");
        Vacant { frames: Arc::clone(frames), bay }
    }

    pub(crate) fn bay(&self) -> usize {
        self.bay
    }

    /// Gives the bay's memory back to the system, which takes a while.
    pub(crate) fn discard(&mut self) {
        let bay_bytes = self.frames.plan.bay_slabs * self.frames.plan.slab_bytes;
        let region = self.frames.region.as_ref().expect("a bay lies in a region");
        // SAFETY: slabs are read and written only through frames that are not FREE and through pages, of
        // which there are none here (promised to `new`). Prefetches may still come, and read nothing. A later
        // owner of a frame here fills it first.
        unsafe { region.discard(self.bay * bay_bytes, bay_bytes) }
    }
}

/// A count on a live frame.
pub(crate) struct Counted {
    frames: Arc<Frames>,
    frame: u32,
    /// Its bytes. Stored because they are read often, and do not move while the frame is counted.
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pointer is into the region that `frames` keeps. No thread writes these bytes while they are
// counted, and any thread may read them.
unsafe impl Send for Counted {}
// SAFETY: as above.
unsafe impl Sync for Counted {}

impl Counted {
    /// Takes over a count that the caller has added.
    fn new(frames: Arc<Frames>, frame: u32) -> Counted {
        let (start, bytes) = frames.extent(frame);
        let start = NonNull::new(start).expect("a region is not at address 0");
        Counted { frames, frame, start, bytes }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        #[cfg(all(loom, test))]
        self.frames.model.read_bytes(self.frame);
        // SAFETY: counted, so LIVE (invariant 3); the count is held as long as `self`. `own` checked that the
        // extent lies in the slabs; no thread writes it in this state (invariants 1, 5).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Raises the CLOCK counter to at least `visits`.
    pub(crate) fn mark(&self, visits: u8) {
        self.frames.mark(self.frame, visits);
    }
}

impl Clone for Counted {
    fn clone(&self) -> Counted {
        let state = &self.frames.headers()[self.frame as usize].state;
        let before = state.fetch_add(1, Ordering::Relaxed);
        assert!(before & COUNT_MAX < COUNT_MAX / 2, "no more counts than memory for their holders");
        let (frame, start, bytes) = (self.frame, self.start, self.bytes);
        Counted { frames: Arc::clone(&self.frames), frame, start, bytes }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Release: the holder's reads are over before the frame can be retired.
        self.frames.headers()[self.frame as usize].state.fetch_sub(1, Ordering::Release);
    }
}

/// Frames that left the index together and wait for the epoch.
pub(crate) struct Retired {
    frames: Vec<u32>,
    passed: Arc<AtomicBool>,
}

/// The duty to register a [`Retired`] with the epoch, outside the lock.
#[must_use]
pub(crate) struct Stamp {
    passed: Arc<AtomicBool>,
}

impl Retired {
    /// `frames` were evicted under the lock that the caller still holds.
    pub(crate) fn new(all: &Frames, frames: Vec<u32>) -> (Retired, Stamp) {
        let is_retired =
            |frame: &u32| all.headers()[*frame as usize].state.load(Ordering::Relaxed) == RETIRED;
        assert!(frames.iter().all(is_retired), "only frames that left the index wait for the epoch");
        let passed = Arc::new(AtomicBool::new(false));
        (Retired { frames, passed: Arc::clone(&passed) }, Stamp { passed })
    }

    pub(crate) fn count(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn has_passed(&self) -> bool {
        self.passed.load(Ordering::Acquire)
    }

    /// Makes the frames free and returns their numbers. The caller holds the lock.
    pub(crate) fn free(self, all: &Frames) -> Vec<u32> {
        assert!(self.has_passed(), "readers may still look");
        for frame in &self.frames {
            let before = all.headers()[*frame as usize].state.swap(FREE, Ordering::Relaxed);
            assert_eq!(before, RETIRED, "a frame waits once");
        }
        self.frames
    }
}

impl Stamp {
    /// Lets the epoch report when no reader can use the frames any more. Never under a lock: deferred calls
    /// of other threads may run here.
    pub(crate) fn defer(self, epoch: &Epoch) {
        let pin = epoch.pin();
        epoch.defer(&pin, move || self.passed.store(true, Ordering::Release));
        pin.flush();
    }
}

/// A block in heap memory, aligned to 4096.
pub(crate) struct HeapBlock {
    frames: Arc<Frames>,
    region: Region,
}

impl HeapBlock {
    /// Zeroed memory for a block.
    ///
    /// # Panics
    /// If the allocator has no memory, as any allocation does.
    pub(crate) fn new(frames: &Arc<Frames>, bytes: usize) -> HeapBlock {
        let region = Region::heap(bytes).expect("the allocator has memory for one block");
        frames.heap.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        HeapBlock { frames: Arc::clone(frames), region }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the region owns that many initialised bytes, written only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.region.start().as_ptr(), self.region.bytes()) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` gives exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.region.start().as_ptr(), self.region.bytes()) }
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        self.frames.heap.bytes.fetch_sub(self.region.bytes() as u64, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A frame found under a pin and retired meanwhile cannot be counted, and its bytes stay until the pin
    /// ends; a counted frame is not evicted.
    #[test]
    fn a_retired_frame_cannot_be_counted() {
        let (epoch, plan) = (Epoch::new(), FramePlan::new(64 << 10, 0));
        let frames = Arc::new(Frames::new(plan, Region::heap(plan.region_bytes)));
        let key = Key { file: 1, at: 0, bytes: 4096 };
        // SAFETY: no frame is in use, and the extent lies in the first slab.
        let mut owned = unsafe { frames.own(3, 4096, key, 4096) };
        assert!(frames.count_frame(3).is_none(), "not while it is filled");
        owned.bytes_mut().fill(9);
        let counted = owned.publish();
        assert!(!frames.evict(3), "not while it is counted");
        drop(counted);
        let pin = epoch.pin();
        let found = frames.find(key).expect("published");
        let seen = frames.lookup(key, 1, &pin).expect("published");
        assert!(frames.evict(found));
        assert!(frames.count_frame(found).is_none());
        let (retired, stamp) = Retired::new(&frames, vec![found]);
        stamp.defer(&epoch);
        epoch.collect();
        assert!(!retired.has_passed() && frames.find(key).is_none());
        assert!(seen.iter().all(|byte| *byte == 9));
        drop(pin);
        epoch.collect();
        assert!(retired.has_passed());
        assert_eq!(retired.free(&frames), [3]);
    }
}
