//! Blocks that go out together: claimed in the table of reads in flight, neighbours in one request, answered
//! in the order in which the device ends them.
//!
//! It knows no lookup: who asks is a number, and gets its block or its error. One thread; it is made for one
//! call of a driver, and reads nothing any more when it is dropped.
//!
//! 1. Somebody else's read is waited for only while none of ours is in flight: two callers that wait for each
//!    other's blocks both go on.
//! 2. Of a request for several blocks that fails, each block is read again by itself: a block is lost to its
//!    own fault only.

use std::any::Any;
use std::collections::VecDeque;

use crate::base::error::Result;
use crate::base::few::Few;
use crate::base::load::{DeviceLoad, Reading};
use crate::base::step::BlockAddress;
use crate::base::sync::{Arc, Event, Ordering};
use crate::cache::{BlockRef, Claim, Slot, Waiter};
use crate::io::reader::{Completed, Reader, Request, Target, perform};
use crate::table;

use super::super::Store;
use super::super::reads::admission::{Begun, Permit};

/// Most bytes of one request.
pub(in crate::engine) const REQUEST_BYTES_MAX: usize = 1 << 20;
/// As much of what is read apart comes at once: whoever has caught up with it waits no longer than for this.
const APART_BYTES_MAX: usize = 256 << 10;
/// Most blocks of one request.
const REQUEST_BLOCKS_MAX: usize = 256;

/// Who asked, and what came.
pub(super) type Answered = (usize, Result<BlockRef>);

/// See the module.
pub(super) struct Fetches<'s> {
    store: &'s Store,
    reader: Option<Box<dyn Reader>>,
    /// Not sent yet.
    claimed: Vec<Claimed>,
    /// Sent as soon as there is room.
    backlog: VecDeque<Request>,
    in_flight: usize,
    /// Reads of others.
    waiting: Vec<(usize, Waiter)>,
    /// Moves when one of them ends.
    ended: Arc<Event>,
    completed: Vec<Completed>,
}

/// A block that is ours to read.
pub(in crate::engine) struct Claimed {
    /// Who is answered by number; all others by the slot.
    who: Option<usize>,
    slot: Slot,
    /// Of a future's read, until it has ended.
    permit: Option<Permit>,
}

impl Claimed {
    /// For whom the slot alone answers.
    pub(in crate::engine) fn new(slot: Slot) -> Claimed {
        Claimed { who: None, slot, permit: None }
    }

    fn address(&self) -> &BlockAddress {
        self.slot.address()
    }

    /// What came of a claim; if that is a right to read, it is put to `claimed`.
    pub(in crate::engine) fn begin(
        claim: Claim,
        permit: Permit,
        claimed: &mut impl Extend<Claimed>,
    ) -> Begun {
        match claim {
            Claim::Ready(block) => Ok(block),
            Claim::Wait(waiter) => Err(waiter),
            Claim::Read(slot) => {
                let waiter = slot.waiter();
                claimed.extend([Claimed { permit: Some(permit), ..Claimed::new(slot) }]);
                Err(waiter)
            }
        }
    }
}

/// The blocks of one request, side by side in their file.
struct Blocks(Few<Claimed>, Reading);

impl Target for Blocks {
    fn buffers(&mut self) -> Few<&mut [u8]> {
        self.0.iter_mut().map(|block| block.slot.buffer()).collect()
    }
}

impl<'s> Fetches<'s> {
    pub(super) fn new(store: &'s Store) -> Fetches<'s> {
        Fetches {
            store,
            reader: None,
            claimed: Vec::new(),
            backlog: VecDeque::new(),
            in_flight: 0,
            waiting: Vec::new(),
            ended: Arc::default(),
            completed: Vec::new(),
        }
    }

    /// Asks for a block; it is in `answered` at once if it is here.
    pub(super) fn ask(&mut self, who: usize, address: &BlockAddress, answered: &mut Vec<Answered>) {
        match self.store.cache.claim(address) {
            Claim::Ready(block) => answered.push((who, Ok(block))),
            Claim::Wait(waiter) => self.waiting.push((who, waiter)),
            Claim::Read(slot) => {
                self.claimed.push(Claimed { who: Some(who), ..Claimed::new(slot) });
            }
        }
    }

    /// Asks for a block that nobody waits for yet; it goes to the cache.
    pub(super) fn ask_ahead(&mut self, address: &BlockAddress) {
        if self.store.cache.holds(address) {
            return;
        }
        if let Claim::Read(slot) = self.store.cache.claim(address) {
            self.claimed.push(Claimed::new(slot));
        }
    }

    /// Whether nothing that was asked for is still to come. While it is not, nothing that is not the store's
    /// is run: it might wait for somebody who waits for these reads.
    pub(super) fn is_idle(&self) -> bool {
        self.claimed.is_empty() && self.backlog.is_empty() && self.in_flight == 0 && self.waiting.is_empty()
    }

    /// Reads to their end what others may wait for, and answers nobody.
    pub(super) fn finish(&mut self) {
        let mut answered = Vec::new();
        while self.in_flight > 0 || !self.backlog.is_empty() {
            self.reap(&mut answered);
        }
    }

    /// Sends what was asked for, in the order of the files, neighbours together.
    pub(super) fn send(&mut self) {
        let (claimed, load) = (&mut self.claimed, &self.store.load);
        requests(claimed, REQUEST_BYTES_MAX, load, |one| self.backlog.push_back(one));
    }

    /// Waits until an asker can be answered; at once if nobody waits.
    pub(super) fn wait(&mut self, answered: &mut Vec<Answered>) {
        let before = answered.len();
        let waker = self.ended.waker();
        loop {
            let seen = self.ended.seen();
            self.waiting.retain_mut(|(who, waiter)| match waiter.poll(&waker) {
                Some(result) => {
                    answered.push((*who, result));
                    false
                }
                None => true,
            });
            let is_reading = self.in_flight > 0 || !self.backlog.is_empty();
            if answered.len() > before || (!is_reading && self.waiting.is_empty()) {
                return;
            }
            if is_reading {
                self.reap(answered);
            } else {
                self.store.env.threads.wait(&self.ended, seen, None);
            }
        }
    }

    /// Lets the reader go on, and takes what it has done.
    fn reap(&mut self, answered: &mut Vec<Answered>) {
        // One read alone needs no reader: it is done here.
        if self.reader.is_none() && self.backlog.len() == 1 {
            let request = self.backlog.pop_front().expect("there is one");
            let completed = perform(&*self.store.env.storage, request);
            return self.settle(completed, answered);
        }
        let storage = &self.store.env.storage;
        let reader = self.reader.get_or_insert_with(|| Arc::clone(storage).reader());
        while reader.room() > 0 {
            let Some(request) = self.backlog.pop_front() else { break };
            reader.push(request);
            self.in_flight += 1;
        }
        reader.reap(&mut self.completed);
        self.in_flight -= self.completed.len();
        for completed in std::mem::take(&mut self.completed) {
            self.settle(completed, answered);
        }
    }

    fn settle(&mut self, completed: Completed, answered: &mut Vec<Answered>) {
        self.store.settle_read(completed, |who, ended| answered.push((who, ended)));
    }
}

/// Requests for blocks in the order of the files, neighbours together; none is left in `claimed`.
pub(in crate::engine) fn requests(
    claimed: &mut Vec<Claimed>,
    bytes_max: usize,
    load: &Arc<DeviceLoad>,
    mut give: impl FnMut(Request),
) {
    claimed.sort_unstable_by_key(|block| {
        let address = block.address();
        (address.file, address.offset)
    });
    let mut blocks: Few<Claimed> = Few::new();
    let mut bytes = 0;
    for block in claimed.drain(..) {
        let is_neighbour = blocks.last().is_some_and(|last| follows(last.address(), block.address()));
        let is_full =
            bytes + block.address().bytes as usize > bytes_max || blocks.len() == REQUEST_BLOCKS_MAX;
        if !blocks.is_empty() && (!is_neighbour || is_full) {
            give(request(std::mem::take(&mut blocks), load));
            bytes = 0;
        }
        bytes += block.address().bytes as usize;
        blocks.push(block);
    }
    if !blocks.is_empty() {
        give(request(blocks, load));
    }
}

/// Whether `next` begins where `block` ends.
fn follows(block: &BlockAddress, next: &BlockAddress) -> bool {
    block.file == next.file && block.offset + u64::from(block.bytes) == next.offset
}

fn request(blocks: Few<Claimed>, load: &Arc<DeviceLoad>) -> Request {
    let BlockAddress { file, offset, .. } = *blocks[0].address();
    Request { file, offset, target: Box::new(Blocks(blocks, load.reading())) }
}

/// Verifies what was read, and gives it to everybody who waits for it.
pub(super) fn end_slot(slot: Slot, read: Result<usize>) -> Result<BlockRef> {
    match read {
        Ok(bytes) => table::complete_read(slot, bytes),
        Err(error) => {
            slot.fail(error.clone());
            Err(error)
        }
    }
}

impl Store {
    /// Verifies the blocks of a request that has ended, and answers for those that were asked for.
    pub(in crate::engine) fn settle_read(
        &self,
        completed: Completed,
        mut answer: impl FnMut(usize, Result<BlockRef>),
    ) {
        let target: Box<dyn Any> = completed.target;
        let Blocks(blocks, _reading) = *target.downcast().expect("what was pushed comes back");
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
            // It is in flight no more when somebody hears of it.
            drop(block.permit.take());
            let ended = end_slot(block.slot, read);
            if let Some(who) = block.who {
                answer(who, ended);
            }
        }
    }

    /// Reads blocks that the flight alone answers for, on this thread.
    pub(super) fn read_at_once(&self, mut claimed: Vec<Claimed>) {
        requests(&mut claimed, REQUEST_BYTES_MAX, &self.load, |request| self.read_unasked(request));
    }

    /// Has a worker read blocks that will be wanted, if they are not here and it has room.
    pub(super) fn read_apart(&self, blocks: &[BlockAddress]) {
        if blocks.is_empty() || !self.work.reads.has_room_ahead() {
            return;
        }
        let claim = |address: &BlockAddress| match self.cache.claim(address) {
            Claim::Read(slot) => Some(Claimed::new(slot)),
            Claim::Ready(_) | Claim::Wait(_) => None,
        };
        let mut claimed: Vec<Claimed> =
            blocks.iter().filter(|block| !self.cache.holds(block)).filter_map(claim).collect();
        requests(&mut claimed, APART_BYTES_MAX, &self.load, |request| {
            let refused = self.work.reads.push_ahead(request);
            refused.into_iter().for_each(|refused| self.read_unasked(refused));
        });
    }

    pub(super) fn count_read(&self, address: &BlockAddress) {
        self.counts.block_reads.fetch_add(1, Ordering::Relaxed);
        self.counts.block_read_bytes.fetch_add(u64::from(address.bytes), Ordering::Relaxed);
    }
}
