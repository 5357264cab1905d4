//! The state that the cache shares with the slots of reads in flight.

use crate::base::epoch::Epoch;
use crate::base::reserve::{Reserve, Role};
use crate::base::sync::{Arc, Mutex};

use super::block::LentBlock;
use super::flight::{FlightTable, Untaken};
use super::frames::{Frames, HeapBlock, Key, Owned};
use super::pool::{FramePool, Shortage};

/// State shared by the cache and its slots.
pub(crate) struct Shared {
    pub(super) frames: Arc<Frames>,
    pub(super) pool: Arc<Mutex<FramePool>>,
    pub(super) flights: FlightTable,
    pub(super) untaken: Mutex<Untaken>,
    pub(super) epoch: Epoch,
    pub(super) reserve: Arc<Reserve>,
}

impl Shared {
    /// Allocates heap memory for a block without a frame.
    pub(super) fn heap_block(&self, bytes: usize) -> LentBlock {
        let grant = self.reserve.grant(Role::Blocks, bytes as u64);
        LentBlock { _grant: grant, block: HeapBlock::new(&self.frames, bytes) }
    }

    /// Takes a frame of `bytes` for the block of `key`, evicting if necessary.
    pub(super) fn take_frame(&self, key: Key, bytes: usize) -> Option<Owned> {
        // The second try finds frames that the first evicted.
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
