//! Reads in flight: one device read and one checksum for any number of waiters.
//!
//! It is not a driver: it reads nothing and waits for nothing. The first claimer of a block gets the
//! [`ReadSlot`], reads into its buffer, verifies, and completes. Later claimers get a [`Waiter`], which wakes
//! them. Called by the engine's drivers. Slots and waiters may move to any thread.
//!
//! Invariants:
//! 1. A block is in the table from its claim until its slot is completed, failed or dropped; one slot a
//!    block. A block claimed apart is in no table, and only the waiters of its slot get its result.
//! 2. The slot alone owns the buffer; other threads see it only after `complete`.
//! 3. A block read into a frame enters the cache before it leaves the table, under the table's lock: a claim
//!    finds it in one of the two. A block without a frame is never in the cache.
//! 4. Locks are taken in the order table, pool; no foreign code is called under them.
//! 5. A read that has ended keeps its block for futures' waiters that have not polled since, within the limit
//!    of their role. Beyond the limit the oldest such reads release their block; their waiters ask again. So
//!    futures that are not polled hold a bounded part of the cache.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use crate::base::error::Error;
use crate::base::few::Few;
use crate::base::reserve::{Grant, Role};
use crate::base::step::BlockAddress;
use crate::base::sync::{Arc, Mutex, Weak, wake_all};

use super::block::{BlockRef, LentBlock};
use super::frames::{Counted, Key, Owned};
use super::shared::Shared;
use super::visits::{DATA_VISITS, visits};

const SHARD_COUNT: usize = 16;
/// The queue of untaken flights is not searched for flights without waiters up to this length.
const UNTAKEN_KEPT_MIN: usize = 64;

/// Blocks being read, by key.
#[derive(Default)]
pub(crate) struct FlightTable {
    shards: [Mutex<BTreeMap<Key, Arc<Flight>>>; SHARD_COUNT],
}

/// One read, shared by its slot and its waiters.
#[derive(Default)]
pub(crate) struct Flight {
    state: Mutex<FlightState>,
}

#[derive(Default)]
struct FlightState {
    outcome: Outcome,
    /// A waiter belongs to a future, which may stay unpolled for a long time.
    may_idle: bool,
    /// Wakers of waiters that polled before the read ended.
    wakers: Few<Option<Waker>>,
}

#[derive(Default)]
enum Outcome {
    #[default]
    Reading,
    /// The grant counts the block while waiters have not polled.
    Ended(Result<BlockRef, Error>, Option<Grant>),
    /// The block was dropped before all waiters had polled.
    Gone,
}

/// Flights that have ended and whose waiters have not polled since, the oldest first. Flights whose waiters
/// have polled are removed lazily.
#[derive(Default)]
pub(crate) struct Untaken {
    flights: VecDeque<Weak<Flight>>,
    /// Length at which flights without waiters are removed.
    kept_max: usize,
}

/// The result of a claim.
pub(crate) enum Claim {
    /// The block is cached.
    Ready(BlockRef),
    /// The caller reads the block.
    Read(ReadSlot),
    /// Another caller reads the block.
    Wait(Waiter),
}

/// The right and the duty to read one block.
pub(crate) struct ReadSlot {
    shared: Arc<Shared>,
    address: BlockAddress,
    flight: Arc<Flight>,
    is_in_table: bool,
    /// `None` only while the slot is being made and after it has ended.
    buffer: Option<Buffer>,
}

enum Buffer {
    Frame(Owned),
    Heap(LentBlock),
}

impl Buffer {
    fn new(shared: &Shared, key: Key, bytes: usize) -> Buffer {
        match shared.take_frame(key, bytes) {
            Some(owned) => Buffer::Frame(owned),
            None => Buffer::Heap(shared.heap_block(bytes)),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Frame(owned) => owned.bytes_mut(),
            Buffer::Heap(lent) => lent.block.bytes_mut(),
        }
    }
}

/// A share in a read.
pub(crate) struct Waiter {
    flight: Arc<Flight>,
    /// The waker to be woken at the end, and its index among the flight's wakers.
    waker: Option<(usize, Waker)>,
}

/// A weak reference by which others join a read in flight; it keeps nothing of the read alive.
pub(crate) struct Share(Weak<Flight>);

impl Share {
    /// A waiter for the read; `None` once the read has ended: its block may have been evicted since, or the
    /// read failed.
    pub(crate) fn join(&self) -> Option<Waiter> {
        let flight = self.0.upgrade()?;
        let is_reading = matches!(flight.state.lock().outcome, Outcome::Reading);
        is_reading.then(|| Waiter::new(&flight))
    }

    /// Whether slot and all waiters are gone: the read will not be joined again.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl FlightTable {
    fn shard(&self, key: Key) -> &Mutex<BTreeMap<Key, Arc<Flight>>> {
        &self.shards[key.tag() as usize % SHARD_COUNT]
    }

    pub(crate) fn has(&self, key: Key) -> bool {
        self.shard(key).lock().contains_key(&key)
    }

    /// Blocks being read now.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

/// Joins the read of a block, or starts it.
pub(crate) fn claim(shared: &Arc<Shared>, address: &BlockAddress) -> Claim {
    let key = Key::of(address);
    let mut shard = shared.flights.shard(key).lock();
    match at_hand(shared, &shard, address) {
        Some(Ok(block)) => return Claim::Ready(block),
        Some(Err(waiter)) => return Claim::Wait(waiter),
        None => {}
    }
    let flight = Arc::new(Flight::default());
    shard.insert(key, Arc::clone(&flight));
    drop(shard);
    Claim::Read(ReadSlot::new(shared, address, flight, true))
}

/// The block, or a share in its read, if there is either.
pub(crate) fn join(shared: &Shared, address: &BlockAddress) -> Option<Result<BlockRef, Waiter>> {
    let shard = shared.flights.shard(Key::of(address)).lock();
    at_hand(shared, &shard, address)
}

/// As `join`, under the table's lock: a block with a frame leaves the table only when it is in the cache.
fn at_hand(
    shared: &Shared,
    shard: &BTreeMap<Key, Arc<Flight>>,
    address: &BlockAddress,
) -> Option<Result<BlockRef, Waiter>> {
    let key = Key::of(address);
    if let Some(flight) = shard.get(&key) {
        return Some(Err(Waiter::new(flight)));
    }
    let counted = shared.pool.lock().find(key)?;
    counted.mark(visits(address.kind));
    Some(Ok(BlockRef::from_frame(counted)))
}

/// A slot whose read is in no table: other claims of the block do not wait for it.
pub(crate) fn slot_apart(shared: &Arc<Shared>, address: &BlockAddress) -> ReadSlot {
    ReadSlot::new(shared, address, Arc::default(), false)
}

impl ReadSlot {
    fn new(shared: &Arc<Shared>, address: &BlockAddress, flight: Arc<Flight>, is_in_table: bool) -> ReadSlot {
        // From here on the drop of the slot ends the read.
        let mut slot =
            ReadSlot { shared: Arc::clone(shared), address: *address, flight, is_in_table, buffer: None };
        slot.buffer = Some(Buffer::new(shared, Key::of(address), address.bytes as usize));
        slot
    }

    /// A waiter for the slot's read, for a caller that passes the slot on.
    pub(crate) fn waiter(&self) -> Waiter {
        Waiter::new(&self.flight)
    }

    /// The reference by which others join the read.
    pub(crate) fn share(&self) -> Share {
        Share(Arc::downgrade(&self.flight))
    }

    pub(crate) fn address(&self) -> &BlockAddress {
        &self.address
    }

    /// The memory to read the block into, of exactly its length. It is aligned to 4096 bytes for a block of
    /// 4096 bytes, otherwise to at least 512. It does not move until the slot ends. Before the read it may
    /// have remains of other blocks.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        self.buffer.as_mut().expect("a slot has its buffer until it ends").bytes_mut()
    }

    /// Replaces the buffer by one of `bytes`, whole units, that `fill` makes from the bytes read. The slot is
    /// unchanged if `fill` fails.
    ///
    /// # Errors
    /// The error of `fill`.
    pub(crate) fn refill<E>(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&[u8], &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = Buffer::new(&self.shared, Key::of(&self.address), bytes);
        let filled = fill(self.buffer(), buffer.bytes_mut());
        let given_up = match filled {
            Ok(()) => self.buffer.replace(buffer),
            Err(_) => Some(buffer),
        };
        if let Some(Buffer::Frame(owned)) = given_up {
            self.shared.pool.lock().abandon(owned);
        }
        filled
    }

    /// Gives the verified block to the cache and to every waiter.
    pub(crate) fn complete(mut self) -> BlockRef {
        let block = match self.buffer.take().expect("a slot has its buffer until it ends") {
            Buffer::Frame(owned) => {
                let key = owned.key();
                let mut shard = self.is_in_table.then(|| self.shared.flights.shard(key).lock());
                let counted: Counted = self.shared.pool.lock().publish(owned);
                if let Some(shard) = &mut shard {
                    shard.remove(&key);
                }
                drop(shard);
                // Data enters cold: blocks that a scan reads once are evicted first.
                if visits(self.address.kind) > DATA_VISITS {
                    counted.mark(visits(self.address.kind));
                }
                BlockRef::from_frame(counted)
            }
            Buffer::Heap(block) => {
                self.leave_table();
                BlockRef::from_heap(block)
            }
        };
        self.answer(Ok(block.clone()));
        block
    }

    /// Gives every waiter the error. The next claim reads again.
    pub(crate) fn fail(mut self, error: Error) {
        self.end(error);
    }

    fn end(&mut self, error: Error) {
        if let Some(Buffer::Frame(owned)) = self.buffer.take() {
            self.shared.pool.lock().abandon(owned);
        }
        self.leave_table();
        self.answer(Err(error));
    }

    fn leave_table(&self) {
        if self.is_in_table {
            let key = Key::of(&self.address);
            self.shared.flights.shard(key).lock().remove(&key);
        }
    }

    /// Ends the flight with a result. It has left the table, so no waiter joins any more.
    fn answer(&self, result: Result<BlockRef, Error>) {
        let bytes = result.as_ref().ok().map(|block| block.len());
        let mut state = self.flight.state.lock();
        assert!(matches!(state.outcome, Outcome::Reading), "a slot ends once");
        state.outcome = Outcome::Ended(result, None);
        let may_idle = state.may_idle;
        // After the result: a waiter without a waker here sees the result.
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        // One count is the slot's own.
        if let Some(bytes) = bytes.filter(|_| may_idle && Arc::strong_count(&self.flight) > 1) {
            keep_untaken(&self.shared, &self.flight, bytes as u64);
        }
        wake_all(wakers.into_iter().flatten());
    }
}

/// Grants a block to waiters that have not polled yet. The oldest such blocks make room for it.
fn keep_untaken(shared: &Shared, flight: &Arc<Flight>, bytes: u64) {
    let grant = loop {
        match shared.reserve.try_grant(Role::Untaken, bytes) {
            Some(grant) => break grant,
            None => {
                let Some(oldest) = shared.untaken.lock().pop() else {
                    break shared.reserve.grant(Role::Untaken, bytes);
                };
                oldest.let_go();
            }
        }
    };
    if let Outcome::Ended(_, place) = &mut flight.state.lock().outcome {
        *place = Some(grant);
    }
    shared.untaken.lock().push(flight);
}

impl Untaken {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }

    /// The oldest flight that still has waiters.
    fn pop(&mut self) -> Option<Arc<Flight>> {
        std::iter::from_fn(|| self.flights.pop_front()).find_map(|flight| flight.upgrade())
    }

    /// Removes flights without waiters each time the queue has doubled: amortized constant time.
    fn push(&mut self, flight: &Arc<Flight>) {
        self.flights.push_back(Arc::downgrade(flight));
        if self.flights.len() > self.kept_max {
            self.flights.retain(|flight| flight.strong_count() > 0);
            self.kept_max = UNTAKEN_KEPT_MIN.max(2 * self.flights.len());
        }
    }
}

impl Drop for ReadSlot {
    fn drop(&mut self) {
        if matches!(self.flight.state.lock().outcome, Outcome::Reading) {
            self.end(Error::Io {
                operation: "read",
                file: self.address.file.to_string(),
                offset: self.address.offset,
                source: Arc::new(std::io::Error::other("the read was given up before it finished")),
            });
        }
    }
}

impl Waiter {
    fn new(flight: &Arc<Flight>) -> Waiter {
        Waiter { flight: Arc::clone(flight), waker: None }
    }

    /// A waiter of a read that never ends.
    #[cfg(test)]
    pub(crate) fn of_nothing() -> Waiter {
        Waiter::new(&Arc::default())
    }

    /// A waiter that holds no block: its owner asks again for the block, which may be cached.
    pub(crate) fn gone() -> Waiter {
        let state = Mutex::new(FlightState { outcome: Outcome::Gone, ..FlightState::default() });
        Waiter::new(&Arc::new(Flight { state }))
    }

    /// Marks that a future owns the waiter and may stay unpolled for a long time. `false` if the read has
    /// ended already.
    pub(crate) fn may_idle(&self) -> bool {
        let mut state = self.flight.state.lock();
        state.may_idle = true;
        matches!(state.outcome, Outcome::Reading)
    }

    /// Whether the block was read and then dropped. The owner has to ask for it again; `poll` returns `None`
    /// for ever.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.flight.state.lock().outcome, Outcome::Gone)
    }

    /// The block or the read's error, once the read has ended: the same at each call, while the block is not
    /// gone. Before the end, `waker` replaces the waker of earlier calls and is woken at the end.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Option<Result<BlockRef, Error>> {
        let is_known = self.waker.as_ref().is_some_and(|(_, known)| known.will_wake(waker));
        // Wakers are cloned and dropped outside the lock: their task may own another waiter of this flight.
        let own = (!is_known).then(|| waker.clone());
        let mut state = self.flight.state.lock();
        match &state.outcome {
            Outcome::Ended(result, _) => return Some(result.clone()),
            Outcome::Gone => return None,
            Outcome::Reading => {}
        }
        let next = own?;
        let at = self.waker.as_ref().map(|(at, _)| *at);
        let (at, replaced) = state.set_waker(at, next);
        drop(state);
        let before = self.waker.replace((at, waker.clone()));
        drop((before, replaced));
        None
    }
}

impl FlightState {
    /// Registers `waker` in place of the waker at `at`, if any. Returns its index, and the replaced waker.
    fn set_waker(&mut self, at: Option<usize>, waker: Waker) -> (usize, Option<Waker>) {
        match at.and_then(|at| self.wakers.get_mut(at).map(|place| (at, place))) {
            Some((at, place)) => (at, place.replace(waker)),
            None => {
                self.wakers.push(Some(waker));
                (self.wakers.len() - 1, None)
            }
        }
    }
}

impl Flight {
    /// Drops the block. Waiters that have not polled ask for it again.
    fn let_go(&self) {
        let mut state = self.state.lock();
        if matches!(state.outcome, Outcome::Ended(Ok(_), _)) {
            let outcome = std::mem::replace(&mut state.outcome, Outcome::Gone);
            drop(state);
            drop(outcome);
        }
    }
}

impl Drop for Waiter {
    /// The waiter's waker is not woken any more; the read goes on.
    fn drop(&mut self) {
        let Some((at, _waker)) = self.waker.take() else { return };
        let mut state = self.flight.state.lock();
        if !matches!(state.outcome, Outcome::Reading) {
            return;
        }
        let dropped = state.wakers.get_mut(at).and_then(Option::take);
        while state.wakers.last().is_some_and(Option::is_none) {
            state.wakers.pop();
        }
        drop(state);
        drop(dropped);
    }
}
