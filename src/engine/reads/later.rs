//! The driver of futures: does the work of the blocking drivers in steps that never wait.
//!
//! It owns the requests of an operation, [`Asks`], and no logic of lookup or scan. The driver thread
//! (`worker`) reads missing blocks, or the caller's own ring does under `local`. A completed read wakes the
//! future. One thread at a time uses it, possibly another at each poll.
//!
//! Invariants:
//! 1. Between polls an operation holds a reference to its view, its machine and its waiters. It holds no pin
//!    and no memory that the kernel writes. Of blocks it holds only those read since the last poll, within
//!    the limit of their role; blocks released beyond the limit are asked for again. Dropping the operation
//!    leaves its reads to the thread that performs them.
//! 2. A read counts as in flight from its permit until it ends, whether or not a future waits for it. A
//!    joined read counts for the operation that began it.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker, ready};

use crate::base::error::{Error, Result};
use crate::base::few::Few;
use crate::base::hash::KeyHash;
use crate::base::id::{Sequence, TreeId};
use crate::base::step::{AHEAD, Answer, BlockAddress, MachineStep, Read, Reads};
use crate::base::sync::Arc;
use crate::cache::{BlockRef, Waiter};
use crate::levels::view::View;
use crate::read::get::{Get, GetMode, Op};
use crate::read::scan::ScanMachine;
use crate::read::trace::NoTrace;

use super::ReadDriver;
use super::blocks::BlockReader;
use super::local;
use super::many::{BATCH_COUNT, LookupBatch};
use super::request::{Answered, Claimed};
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::snapshot::Point;
use crate::engine::reads::admission::{BlockOrWaiter, QueuedRead, ReadAdmission, ReadTurn};
use crate::engine::reads::timers::Timer;

/// Most keys of one operation that are begun at one poll.
const STARTED_MAX: usize = 1024;

/// How an operation waits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Patience {
    /// The operation fails instead of queuing for its turn.
    pub(crate) is_refused: bool,
    /// The deadline, by the store's clock.
    pub(crate) until_ns: Option<u64>,
}

/// Requests of an operation that are not answered.
#[derive(Default)]
pub(crate) struct Asks {
    patience: Patience,
    /// Requests not admitted yet.
    unsent: Unsent,
    queued: Option<QueuedRead>,
    /// At least one read was admitted.
    has_begun: bool,
    sent: Few<Sent>,
    ready: Vec<Answered>,
    /// Read-ahead that goes out with the next requests.
    ahead: Vec<BlockAddress>,
    /// The deadline's timer, and the waker that it wakes.
    timer: Option<(Timer, Waker)>,
}

/// Askers and their blocks, in order. A single one, the common case, needs no allocation.
#[derive(Default)]
struct Unsent {
    /// `None` only if `rest` is empty.
    first: Option<(usize, BlockAddress)>,
    rest: VecDeque<(usize, BlockAddress)>,
}

impl Unsent {
    fn push(&mut self, one: (usize, BlockAddress)) {
        match &self.first {
            Some(_) => self.rest.push_back(one),
            None => self.first = Some(one),
        }
    }

    fn pop(&mut self) {
        self.first = self.rest.pop_front();
    }

    /// Puts the request before all others, or second if the first keeps its place.
    fn put_back(&mut self, one: (usize, BlockAddress), keeps_first: bool) {
        let second = if keeps_first && self.first.is_some() { Some(one) } else { self.first.replace(one) };
        second.into_iter().for_each(|second| self.rest.push_front(second));
    }
}

struct Sent {
    who: usize,
    address: BlockAddress,
    waiter: Waiter,
    /// The session of `local` whose ring reads it; 0 if no session's ring does.
    session: u64,
}

impl Asks {
    pub(crate) fn new(patience: Patience) -> Asks {
        Asks { patience, ..Asks::default() }
    }

    /// The operation is done; further requests belong to the next one.
    fn end(&mut self) {
        *self = Asks::new(self.patience);
    }

    /// Gives up its place in the queue, if it has one, until the next poll.
    pub(crate) fn step_aside(&mut self) {
        self.queued = None;
    }

    fn ask(&mut self, who: usize, block: BlockAddress) {
        self.unsent.push((who, block));
    }

    /// The next answer, if there is one.
    ///
    /// # Errors
    /// `WouldBlock` if the operation must not wait for its turn; `TimedOut`.
    fn poll(&mut self, blocks: &Arc<BlockReader>, waker: &Waker) -> Poll<Result<Answered>> {
        loop {
            self.send(blocks, waker)?;
            if let Some(answered) = self.ready.pop() {
                return Poll::Ready(Ok(answered));
            }
            match self.take_ended(local::session(blocks), waker) {
                Poll::Ready(Some(answered)) => return Poll::Ready(Ok(answered)),
                Poll::Ready(None) => {}
                Poll::Pending => break,
            }
        }
        self.look_at_clock(blocks, waker)?;
        Poll::Pending
    }

    /// Takes all completed reads in one pass: a pass over all requests for each read would be slow. Returns
    /// the first; `None` if blocks only have to be asked for again.
    fn take_ended(&mut self, session: u64, waker: &Waker) -> Poll<Option<Answered>> {
        // The first request has its place in the queue already.
        let (before, keeps_first) = (self.sent.len(), self.queued.is_some());
        let (mut first, mut index) = (None, 0);
        while let Some(sent) = self.sent.get_mut(index) {
            let ended = sent.waiter.poll(waker);
            // A block of another session's ring is read here instead, and so is a released block.
            let is_strayed = sent.session != 0 && sent.session != session;
            if ended.is_none() && !is_strayed && !sent.waiter.is_gone() {
                index += 1;
                continue;
            }
            let Sent { who, address, .. } = self.sent.swap_remove(index);
            match ended {
                Some(result) if first.is_none() => first = Some((who, result)),
                Some(result) => self.ready.push((who, result)),
                None => self.unsent.put_back((who, address), keeps_first),
            }
        }
        if self.sent.len() < before { Poll::Ready(first) } else { Poll::Pending }
    }

    /// Sends the requests that are admitted.
    fn send(&mut self, blocks: &Arc<BlockReader>, waker: &Waker) -> Result<()> {
        if self.unsent.first.is_none() && self.ahead.is_empty() {
            return Ok(());
        }
        let (session, own) = (local::session(blocks), local::admission(blocks));
        let admission = own.as_ref().unwrap_or(&blocks.queue.admission);
        let mut claimed = Few::new();
        while let Some((who, address)) = self.unsent.first {
            let Poll::Ready(begun) = self.begin(blocks, admission, &address, waker, &mut claimed) else {
                break;
            };
            self.unsent.pop();
            match begun {
                Ok(block) => self.ready.push((who, Ok(block))),
                // The read may belong to this session; a poll elsewhere checks for itself.
                Err(waiter) => {
                    // If the read has ended by now, this poll sees that.
                    waiter.may_idle();
                    self.sent.push(Sent { who, address, waiter, session });
                }
            }
        }
        // Read-ahead has no waiters: without room, these blocks are read when they are needed.
        let ahead = std::mem::take(&mut self.ahead);
        for address in ahead.iter().filter(|address| !blocks.cache.holds(address)) {
            let permit = admission.try_now(u64::from(address.bytes));
            let Some(permit) = permit.filter(|_| self.unsent.first.is_none()) else { break };
            drop(Claimed::begin(local::claim(blocks, address), permit, &mut claimed));
        }
        read_elsewhere(blocks, claimed);
        if self.patience.is_refused && !self.has_begun && self.queued.take().is_some() {
            return Err(Error::WouldBlock);
        }
        Ok(())
    }

    /// Returns the block or a share in its read. A block to read is added to `claimed` once its turn has
    /// come.
    fn begin(
        &mut self,
        blocks: &Arc<BlockReader>,
        admission: &Arc<ReadAdmission>,
        address: &BlockAddress,
        waker: &Waker,
        claimed: &mut Few<Claimed>,
    ) -> Poll<BlockOrWaiter> {
        self.queued.take_if(|queued| !queued.is_of(admission));
        if self.queued.is_none() {
            // A cached block, or one being read, needs no turn: the claim sees that and returns the permit.
            if let Some(permit) = admission.try_now(u64::from(address.bytes)) {
                let before = claimed.len();
                let begun = Claimed::begin(local::claim(blocks, address), permit, claimed);
                self.has_begun |= claimed.len() > before;
                return Poll::Ready(begun);
            }
            if let Some(joined) = local::join(blocks, address) {
                return Poll::Ready(joined);
            }
        }
        let turn = ready!(admission.poll(&mut self.queued, (address, self.has_begun), waker));
        self.has_begun = true;
        Poll::Ready(match turn {
            ReadTurn::Own(permit) => Claimed::begin(local::claim(blocks, address), permit, claimed),
            ReadTurn::Begun(waiter) => Err(waiter),
        })
    }

    fn look_at_clock(&mut self, blocks: &BlockReader, waker: &Waker) -> Result<()> {
        let Some(until_ns) = self.patience.until_ns else { return Ok(()) };
        if blocks.env.clock.now_ns() >= until_ns {
            return Err(Error::TimedOut);
        }
        if !self.timer.as_ref().is_some_and(|(_, known)| known.will_wake(waker)) {
            self.timer = Some((blocks.queue.wake_at(until_ns, waker), waker.clone()));
        }
        Ok(())
    }
}

/// Passes blocks to the ring of the caller's `block_on`, or to the driver thread.
fn read_elsewhere(blocks: &Arc<BlockReader>, claimed: Few<Claimed>) {
    if claimed.is_empty() {
        return;
    }
    let Some(claimed) = local::push(blocks, claimed) else { return };
    // Once the store is closed, no other thread reads them.
    let refused = blocks.queue.push(claimed).into_iter().flatten().collect();
    blocks.read_at_once(refused);
}

/// A get under way and not answered yet.
pub(crate) struct LaterGet {
    get: Get,
    tree: TreeId,
    view: Arc<View>,
    bound: Sequence,
    hash: KeyHash,
    asks: Asks,
}

/// The key that a get looks up.
#[derive(Clone, Copy)]
pub(crate) struct LaterKey<'k> {
    pub(crate) keyspace: &'k KeyspaceState,
    pub(crate) key: &'k [u8],
    pub(crate) mode: GetMode,
}

impl ReadDriver {
    /// Continues a get, or begins it; passes the value to `take` as soon as it is known. `later` keeps the
    /// state between polls: the caller must pass the same one at each poll.
    pub(crate) fn poll_get<R>(
        &self,
        later: &mut Option<Box<LaterGet>>,
        of: LaterKey<'_>,
        (at, patience): (Option<&Point>, Patience),
        context: &mut Context<'_>,
        take: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Poll<Result<R>> {
        let breadth = Some(&self.breadth);
        let op = |tree, bound, hash| Op { tree, key: of.key, hash, bound, mode: of.mode, breadth };
        if later.is_none() {
            let hash = self.owner.secret.hash_in(of.keyspace.id, of.key);
            let pin = self.epoch.pin();
            // The bound is read after the view: see `levels::view`.
            let loaded = at.map_or_else(|| self.views.load(&pin), |point| point.load(&pin));
            let bound = at.map_or_else(|| self.writer.visible(), |point| point.bound);
            let tree = of.keyspace.tree_of(of.key, &loaded.get().version)?;
            let started = Get::start(&op(tree, bound, hash), loaded.get(), &self.cache, &pin, &mut NoTrace);
            let (get, reads) = match started {
                (_, MachineStep::Done(found)) => return Poll::Ready(found.map(|found| take(found.value()))),
                (get, MachineStep::Ask(reads)) => (get, reads),
                (_, MachineStep::Wait | MachineStep::Touch) => {
                    unreachable!("a get alone waits for its asks only")
                }
            };
            let mut asks = Asks::new(patience);
            ask_all(&mut asks, reads);
            *later = Some(Box::new(LaterGet { get, tree, view: loaded.counted(), bound, hash, asks }));
        }
        let LaterGet { get, tree, view, bound, hash, asks } = later.as_deref_mut().expect("it has begun");
        let op = op(*tree, *bound, *hash);
        loop {
            let answer = match asks.poll(&self.blocks, context.waker()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok((ask, result))) => Answer { ask: ask_number(ask), result },
            };
            let pin = self.epoch.pin();
            match get.resume(&op, view, &self.cache, &pin, &mut NoTrace, answer) {
                MachineStep::Done(Ok(found)) => return Poll::Ready(Ok(take(found.value()))),
                MachineStep::Done(Err(error)) => return Poll::Ready(Err(error)),
                MachineStep::Ask(reads) => ask_all(asks, reads),
                MachineStep::Wait => {}
                MachineStep::Touch => unreachable!("a get alone takes no turns"),
            }
        }
    }
}

fn ask_all(asks: &mut Asks, reads: Reads) {
    for Read { ask, block } in reads {
        match ask {
            AHEAD => asks.ahead.push(block),
            ask => asks.ask(usize::from(ask), block),
        }
    }
}

fn ask_number(ask: usize) -> u8 {
    u8::try_from(ask).expect("it was one")
}

/// Gets of many keys, not all answered yet.
pub(crate) struct LaterMany {
    batch: LookupBatch<Box<[u8]>>,
    /// Keys not begun yet.
    rest: std::vec::IntoIter<Box<[u8]>>,
    view: Arc<View>,
    asks: Asks,
}

impl ReadDriver {
    /// Creates gets of many keys, all at the point given or else the present one; see `poll_many`.
    pub(crate) fn later_many(
        &self,
        keys: Vec<Box<[u8]>>,
        (at, patience): (Option<&Point>, Patience),
    ) -> LaterMany {
        let (view, bound) = at.map_or_else(|| self.now(), |point| (self.view_of(point), point.bound));
        let batch = LookupBatch::new(bound, keys.len());
        LaterMany { batch, rest: keys.into_iter(), view, asks: Asks::new(patience) }
    }

    /// Continues gets of many keys; passes each value and its key's number to `take`, in any order.
    ///
    /// # Errors
    /// The error of the first key whose lookup failed, once all others are done.
    pub(crate) fn poll_many(
        &self,
        (later, keyspace): (&mut LaterMany, &KeyspaceState),
        context: &mut Context<'_>,
        take: &mut impl FnMut(usize, Option<&[u8]>),
    ) -> Poll<Result<()>> {
        let LaterMany { batch, rest, view, asks } = later;
        let started_max = batch.started() + STARTED_MAX;
        loop {
            if !rest.as_slice().is_empty() {
                // As many as in a blocking call, so that cache lines they prefetch are still close when they
                // use them.
                self.begin(batch, keyspace, rest.by_ref().take(BATCH_COUNT), view)?;
            }
            self.run_rounds(batch, view, &mut |number, found| take(number, found.value()));
            batch.asked().for_each(|(number, block)| asks.ask(number, block));
            if !rest.as_slice().is_empty() {
                if batch.started() < started_max {
                    continue;
                }
                asks.send(&self.blocks, context.waker())?;
                // Yield to other tasks of the executor.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if batch.is_over() {
                return Poll::Ready(batch.result());
            }
            match asks.poll(&self.blocks, context.waker()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok((number, result))) => batch.answer(number, result),
            }
        }
    }

    /// Continues a scan's move to its next item, or begins one; `false` at the end. `is_moving` says whether
    /// a move is under way.
    pub(crate) fn poll_advance(
        &self,
        point: &Point,
        (scan, asks, is_moving): (&mut ScanMachine, &mut Asks, &mut bool),
        context: &mut Context<'_>,
    ) -> Poll<Result<bool>> {
        let mut answer: Option<Answer<BlockRef, Error>> = None;
        loop {
            if *is_moving && answer.is_none() {
                answer = match asks.poll(&self.blocks, context.waker()) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok((ask, result))) => Some(Answer { ask: ask_number(ask), result }),
                };
            }
            let step = match answer.take() {
                None if scan.advance_at_hand(&self.cache) => return Poll::Ready(Ok(true)),
                None => {
                    let pin = self.epoch.pin();
                    scan.advance(self.pinned(point, &pin))
                }
                Some(answer) => {
                    let pin = self.epoch.pin();
                    let pinned = self.pinned(point, &pin);
                    if scan.is_of(pinned.view) {
                        scan.resume(pinned, answer)
                    } else {
                        // The other blocks were requested for another view; the cache will have them soon.
                        asks.end();
                        scan.advance(pinned)
                    }
                }
            };
            *is_moving = !matches!(step, MachineStep::Done(_));
            match step {
                MachineStep::Ask(reads) => ask_all(asks, reads),
                MachineStep::Wait | MachineStep::Touch => {}
                MachineStep::Done(moved) => {
                    self.blocks.read_apart(&scan.take_apart());
                    asks.end();
                    scan.fit(self.cache.reserve());
                    return Poll::Ready(moved);
                }
            }
            // Blocks for which the worker has no room are read when they are needed.
            self.blocks.read_apart(&scan.take_apart());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::id::{FileKind, FileName};
    use crate::base::step::BlockKind;

    /// Requests are sent in order. A request that is put back goes first, or second behind a kept first one.
    #[test]
    fn unsent_requests_stay_in_order() {
        let file = FileName::new(FileKind::Table, 1);
        let block = BlockAddress { file, file_uid: 7, offset: 0, bytes: 4096, kind: BlockKind::Data };
        let mut unsent = Unsent::default();
        unsent.put_back((9, block), true);
        unsent.pop();
        (1..=3).for_each(|who| unsent.push((who, block)));
        unsent.put_back((4, block), false);
        unsent.put_back((5, block), true);
        let mut order = Vec::new();
        while let Some((who, _)) = unsent.first {
            order.push(who);
            unsent.pop();
        }
        unsent.push((6, block));
        assert_eq!((order, unsent.first), (vec![4, 5, 1, 2, 3], Some((6, block))));
    }
}
