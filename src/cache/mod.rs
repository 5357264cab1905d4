//! The block cache: blocks of tables in memory given once, and the table of reads in flight.
//!
//! It is not a reader: drivers read and verify, tables know what is in a block. Machines of `read` look
//! blocks up under a pin; drivers claim what is missing; merges offer what they wrote.
//!
//! Everything is for any thread at any time. A hit takes no lock and writes nothing, but for the CLOCK bit
//! when it is clear; it touches one line of the index and one of the frame's header. Misses take one short
//! lock.
//!
//! 1. Frames, headers, index and bookkeeping together never exceed the bytes given. Blocks that find no
//!    frame (too large, or every frame counted, or waiting for the epoch) live in heap memory of their own,
//!    uncached, counted in the stats.
//! 2. A block's bytes never change while anyone can see them, by pin or by count.
//! 3. A block is found by what it is in its file, and may be longer here: decompressed.
//! 4. A block enters with its CLOCK bit clear: what a scan touches once goes first.
//! 5. No lock is held while another layer's code runs; the epoch's deferred calls included.

mod flight;
mod frames;
mod index;
mod pool;
#[cfg(test)]
mod tests;

use std::ops::Deref;

use crate::base::epoch::{Epoch, Pin};
use crate::base::region::Region;
use crate::base::step::BlockAddress;
use crate::base::sync::{Arc, Mutex};

use flight::FlightTable;
#[cfg(test)]
pub(crate) use flight::Waiter;
pub(crate) use flight::{Claim, Slot};
use frames::{Counted, Frames, HeapBlock, Key, Owned, Plan};
use pool::{Pool, Shortage};

/// The block cache of a store. Clones are the same cache.
#[derive(Clone)]
pub(crate) struct Cache {
    frames: Arc<Frames>,
    shared: Arc<Shared>,
}

/// What cache and slots share.
pub(crate) struct Shared {
    frames: Arc<Frames>,
    pool: Mutex<Pool>,
    flights: FlightTable,
    epoch: Epoch,
}

/// A block that stays as it is until this is dropped: a count on its frame, or heap memory of its own.
#[derive(Clone)]
pub(crate) struct BlockRef(Block);

#[derive(Clone)]
enum Block {
    Frame(Counted),
    Heap(Arc<HeapBlock>),
}

/// What the cache holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CacheStats {
    /// Memory for blocks.
    pub(crate) capacity_bytes: u64,
    /// Frames that hold a block, or are being read into.
    pub(crate) used_bytes: u64,
    /// Index, headers, bookkeeping and rounding; with the capacity never more than was given.
    pub(crate) index_bytes: u64,
    /// Blocks that found no frame, outside the capacity.
    pub(crate) heap_bytes: u64,
    /// Frames that someone counts, about.
    pub(crate) counted_frames: u64,
    /// Blocks being read.
    pub(crate) in_flight: u64,
    pub(crate) evictions: u64,
    pub(crate) inserts: u64,
}

impl Cache {
    /// A cache of `bytes` in all, in one region of zeroed memory asked from `memory`: whole huge pages,
    /// from 64 MiB on.
    ///
    /// If there is not that much memory it is tried with half, and so on; see `stats`. Pins given to this
    /// cache must be of `epoch`.
    pub(crate) fn new(bytes: usize, epoch: Epoch, memory: impl Fn(usize) -> Option<Region>) -> Cache {
        let mut plan = Plan::new(bytes);
        let mut region = None;
        while plan.slab_count > 0 {
            region = memory(plan.region_bytes);
            if region.is_some() {
                break;
            }
            plan = Plan::new(plan.region_bytes / 2);
        }
        let frames = Arc::new(Frames::new(plan, region));
        let pool = Mutex::new(Pool::new(Arc::clone(&frames)));
        let shared = Shared { frames: Arc::clone(&frames), pool, flights: FlightTable::default(), epoch };
        Cache { frames, shared: Arc::new(shared) }
    }

    /// The block, for as long as the pin is held, if it is cached. It may be missed while another thread
    /// evicts a neighbour in the index; [`Cache::claim`] misses nothing.
    #[inline]
    pub(crate) fn lookup<'p>(&'p self, address: &BlockAddress, pin: &'p Pin) -> Option<&'p [u8]> {
        self.frames.lookup(Key::of(address), pin)
    }

    /// The block, counted, for what outlives a pin, if it is cached.
    pub(crate) fn lookup_counted(&self, address: &BlockAddress, pin: &Pin) -> Option<BlockRef> {
        self.frames.lookup_counted(Key::of(address), pin).map(BlockRef::from_frame)
    }

    /// The block, or the duty to read it, or a share in someone else's read.
    ///
    /// The length must have been checked: a block without a frame is allocated. Better not under a pin,
    /// which keeps frames from being reused.
    pub(crate) fn claim(&self, address: &BlockAddress) -> Claim {
        flight::claim(&self.shared, address)
    }

    /// Offers a verified block: kept if it is not here yet and a frame can be had. Better not under a pin.
    #[cfg(test)]
    pub(crate) fn insert(&self, address: &BlockAddress, bytes: &[u8]) {
        let key = Key::of(address);
        assert_eq!(bytes.len(), address.bytes as usize, "a block is as long as its address says");
        if self.shared.pool.lock().find(key).is_some() {
            return;
        }
        if let Some(mut owned) = self.shared.take_frame(key, bytes.len()) {
            owned.bytes_mut().copy_from_slice(bytes);
            drop(self.shared.pool.lock().publish(owned));
        }
    }

    /// Looks at every frame: not for hot paths.
    pub(crate) fn stats(&self) -> CacheStats {
        let counts = self.shared.pool.lock().counts();
        let plan = self.frames.plan();
        CacheStats {
            capacity_bytes: (plan.slab_count * plan.slab_bytes) as u64,
            used_bytes: counts.used_bytes,
            index_bytes: plan.index_bytes as u64,
            heap_bytes: self.frames.heap_bytes(),
            counted_frames: self.frames.counted() as u64,
            in_flight: self.shared.flights.count() as u64,
            evictions: counts.evictions,
            inserts: counts.inserts,
        }
    }
}

impl Shared {
    /// A frame of `bytes` for the block of `key`, evicting if need be.
    fn take_frame(&self, key: Key, bytes: usize) -> Option<Owned> {
        // The second look is for what the first evicted.
        for _ in 0..2 {
            let taken = self.pool.lock().take(key, bytes);
            if let Some(stamp) = taken.stamp {
                stamp.defer(&self.epoch);
            }
            match (taken.owned, taken.shortage) {
                (Some(owned), Shortage::No) => return Some(owned),
                (Some(owned), Shortage::Yes) => {
                    self.epoch.pin().flush();
                    return Some(owned);
                }
                (None, Shortage::No) => return None,
                (None, Shortage::Yes) => self.epoch.collect(),
            }
        }
        None
    }
}

impl BlockRef {
    fn from_frame(counted: Counted) -> BlockRef {
        BlockRef(Block::Frame(counted))
    }

    fn from_heap(block: HeapBlock) -> BlockRef {
        BlockRef(Block::Heap(Arc::new(block)))
    }
}

impl Deref for BlockRef {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Block::Frame(counted) => counted.bytes(),
            Block::Heap(block) => block.bytes(),
        }
    }
}

impl std::fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockRef({} bytes)", self.len())
    }
}
