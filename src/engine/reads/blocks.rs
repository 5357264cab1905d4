//! Reads of blocks that miss the cache. Drivers on callers' threads, sessions of `block_on` and the worker
//! share one [`BlockReader`]. It outlives the store as long as a session holds it. Any thread.

use std::any::Any;

use crate::base::error::Result;
use crate::base::load::DeviceLoad;
use crate::base::reserve::Role;
use crate::base::step::BlockAddress;
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Event, Ordering};
use crate::cache::{BlockRef, Cache, Claim, Waiter};
use crate::io::env::Env;
use crate::io::reader::{Completed, Request, perform};

use super::admission::ReadLimits;
use super::queue::ReadQueue;
use super::request::{Blocks, Claimed, REQUEST_BYTES_MAX, end_slot, requests};

/// Most bytes of one read-ahead request. A scan that catches up with it waits for no more than this.
const APART_BYTES_MAX: usize = 256 << 10;

/// Reads that missed the cache.
#[derive(Debug, Default)]
pub(crate) struct BlockReadCounts {
    pub(crate) block_reads: AtomicU64,
    pub(crate) block_read_bytes: AtomicU64,
}

/// The parts of a store that reads of blocks need.
pub(crate) struct BlockReader {
    pub(in crate::engine) env: Env,
    pub(in crate::engine) cache: Cache,
    pub(in crate::engine) load: Arc<DeviceLoad>,
    pub(in crate::engine) counts: BlockReadCounts,
    pub(in crate::engine) queue: ReadQueue,
    is_closed: AtomicBool,
}

impl BlockReader {
    pub(in crate::engine) fn new(env: &Env, cache: &Cache, load: Arc<DeviceLoad>) -> Arc<BlockReader> {
        Arc::new(BlockReader {
            env: env.clone(),
            cache: cache.clone(),
            load,
            counts: BlockReadCounts::default(),
            queue: ReadQueue::new(Arc::clone(cache.reserve())),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Marks the store as closing: sessions let go of it.
    pub(in crate::engine) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn is_forked(&self) -> bool {
        self.env.storage.is_forked()
    }

    /// Limits the reads in flight for futures to `reads`. Their bytes are limited together with those of
    /// blocks that were read and not yet polled.
    pub(in crate::engine) fn limit_reads(&self, reads: u64) {
        let bytes = self.cache.reserve().limit_bytes(Role::Untaken);
        self.queue.admission.set_limits(ReadLimits { reads, bytes });
    }

    /// Returns the block from the cache or the device; concurrent callers share one read and one checksum.
    pub(super) fn fetch(&self, address: &BlockAddress) -> Result<BlockRef> {
        let mut slot = loop {
            match self.cache.claim(address) {
                Claim::Ready(block) => return Ok(block),
                Claim::Wait(waiter) => match self.wait(waiter) {
                    Some(result) => return result,
                    None => continue,
                },
                Claim::Read(slot) => break slot,
            }
        };
        self.count_read(address);
        let _reading = self.load.reading();
        let read = self.env.storage.read(address.file, address.offset, slot.buffer());
        end_slot(slot, read)
    }

    /// Waits for another thread's read. `None` if its block was evicted before this thread took it.
    fn wait(&self, mut waiter: Waiter) -> Option<Result<BlockRef>> {
        let event = Arc::new(Event::new());
        let waker = event.waker();
        loop {
            let seen = event.seen();
            match waiter.poll(&waker) {
                Some(result) => return Some(result),
                None if waiter.is_gone() => return None,
                None => self.env.threads.wait(&event, seen, None),
            }
        }
    }

    /// Verifies the blocks of a completed request, and answers those that were asked for by number.
    pub(super) fn settle_read(&self, completed: Completed, mut answer: impl FnMut(usize, Result<BlockRef>)) {
        let target: Box<dyn Any> = completed.target;
        let Blocks(blocks, _reading) = *target.downcast().expect("the ring returns the pushed target");
        let bytes: usize = blocks.iter().map(|block| block.address().bytes as usize).sum();
        let is_whole = completed.result.as_ref().is_ok_and(|read| *read == bytes);
        let is_alone = blocks.len() == 1;
        let mut result = Some(completed.result);
        for mut block in blocks {
            let address = *block.address();
            self.count_read(&address);
            let read = match result.take().filter(|_| is_alone || is_whole) {
                Some(Ok(_)) if is_whole => Ok(address.bytes as usize),
                Some(result) => result,
                None if is_whole => Ok(address.bytes as usize),
                None => self.env.storage.read(address.file, address.offset, block.slot.buffer()),
            };
            // The read must not count as in flight when its waiters hear of it.
            drop(block.permit.take());
            let ended = end_slot(block.slot, read);
            if let Some(who) = block.who {
                answer(who, ended);
            }
        }
    }

    /// Reads on this thread blocks that only their slots answer for.
    pub(super) fn read_at_once(&self, mut claimed: Vec<Claimed>) {
        requests(&mut claimed, REQUEST_BYTES_MAX, &self.load, |request| self.read_unasked(request));
    }

    /// Makes the worker read blocks that will be needed soon, if they are not cached and it has room.
    pub(super) fn read_apart(&self, blocks: &[BlockAddress]) {
        if blocks.is_empty() || !self.queue.has_room_ahead() {
            return;
        }
        let claim = |address: &BlockAddress| match self.cache.claim(address) {
            Claim::Read(slot) => Some(Claimed::new(slot)),
            Claim::Ready(_) | Claim::Wait(_) => None,
        };
        let mut claimed: Vec<Claimed> =
            blocks.iter().filter(|block| !self.cache.holds(block)).filter_map(claim).collect();
        requests(&mut claimed, APART_BYTES_MAX, &self.load, |request| {
            let refused = self.queue.push_ahead(request);
            refused.into_iter().for_each(|refused| self.read_unasked(refused));
        });
    }

    fn count_read(&self, address: &BlockAddress) {
        self.counts.block_reads.fetch_add(1, Ordering::Relaxed);
        self.counts.block_read_bytes.fetch_add(u64::from(address.bytes), Ordering::Relaxed);
    }

    /// Reads a request that only its slots answer for.
    pub(super) fn read_unasked(&self, request: Request) {
        self.settle_unasked(perform(&*self.env.storage, request));
    }

    pub(super) fn settle_unasked(&self, completed: Completed) {
        self.settle_read(completed, |_, _| unreachable!("these reads have no numbers"));
    }
}
