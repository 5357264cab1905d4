//! The driver of futures: what the others do on their caller's thread, in steps that never wait.
//!
//! It owns what an operation has asked for, [`Asks`], and no logic of lookup or scan. Blocks that are not
//! here are read by the driver thread (`worker`), or by the caller's own ring under `local`; the future is
//! woken when one has come. One thread at a time, another at each poll if it must be.
//!
//! 1. Between polls an operation holds a count on its view, its machine and its waiters; no pin, no memory
//!    that the kernel writes, and no block but those that have come since, as far as there is room for them:
//!    what is gone is asked for again. Dropping it leaves its reads to whoever does them.
//! 2. A read counts as in flight from its permit until it has ended, whoever waits for it; one that is joined
//!    is its beginner's.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker, ready};

use crate::base::error::{Error, Result};
use crate::base::few::Few;
use crate::base::hash::KeyHash;
use crate::base::id::{Sequence, TreeId};
use crate::base::step::{AHEAD, Answer, BlockAddress, Read, Reads, Step};
use crate::base::sync::Arc;
use crate::cache::{BlockRef, Waiter};
use crate::levels::view::View;
use crate::read::get::{Get, Op, Wants};
use crate::read::scan::Scan;
use crate::read::trace::NoTrace;

use super::ReadDriver;
use super::blocks::BlockReader;
use super::local;
use super::many::{BATCH_COUNT, Batch};
use super::request::{Answered, Claimed};
use crate::engine::publish::keyspace::Keyspace;
use crate::engine::publish::snapshot::Point;
use crate::engine::reads::admission::{Admission, Begun, Place, Turn};
use crate::engine::reads::timers::Timer;

/// Keys of one operation that are begun at one poll.
const STARTED_MAX: usize = 1024;

/// How an operation waits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Patience {
    /// It fails rather than wait for its turn.
    pub(crate) is_refused: bool,
    /// By the store's clock.
    pub(crate) until_ns: Option<u64>,
}

/// What an operation has asked for and not been answered.
#[derive(Default)]
pub(crate) struct Asks {
    patience: Patience,
    /// Not admitted yet.
    unsent: Unsent,
    place: Option<Place>,
    /// One was admitted.
    has_begun: bool,
    sent: Few<Sent>,
    ready: Vec<Answered>,
    /// Goes out with what is asked for next.
    ahead: Vec<BlockAddress>,
    /// Of the deadline, and whom it wakes.
    timer: Option<(Timer, Waker)>,
}

/// Who asks, and for what, in order; one alone, as most are, lies in place.
#[derive(Default)]
struct Unsent {
    /// None only while there are no others.
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

    /// Puts it before all, or behind the first if that keeps its place.
    fn put_back(&mut self, one: (usize, BlockAddress), keeps_first: bool) {
        let second = if keeps_first && self.first.is_some() { Some(one) } else { self.first.replace(one) };
        second.into_iter().for_each(|second| self.rest.push_front(second));
    }
}

struct Sent {
    who: usize,
    address: BlockAddress,
    waiter: Waiter,
    /// The session of `local` whose ring reads it; 0 if none does.
    session: u64,
}

impl Asks {
    pub(crate) fn new(patience: Patience) -> Asks {
        Asks { patience, ..Asks::default() }
    }

    /// Its operation is done, and what it asks for next is another's.
    fn end(&mut self) {
        *self = Asks::new(self.patience);
    }

    /// Gives its place in line up, if it has one, until it is polled again.
    pub(crate) fn step_aside(&mut self) {
        self.place = None;
    }

    fn ask(&mut self, who: usize, block: BlockAddress) {
        self.unsent.push((who, block));
    }

    /// An answer, when there is one.
    ///
    /// # Errors
    /// `WouldBlock` where the operation does not wait for its turn, `TimedOut`.
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

    /// Takes all that has ended of what was sent, for each look may be at many; the first is the answer, and
    /// none if some have only to be asked for again.
    fn take_ended(&mut self, session: u64, waker: &Waker) -> Poll<Option<Answered>> {
        // The first has its place in line already.
        let (before, keeps_first) = (self.sent.len(), self.place.is_some());
        let (mut first, mut index) = (None, 0);
        while let Some(sent) = self.sent.get_mut(index) {
            let ended = sent.waiter.poll(waker);
            // A block of another session's ring is read here instead, and so is one that was let go of.
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

    /// Sends what is admitted.
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
                // It may be of this session: who goes on elsewhere looks for himself.
                Err(waiter) => {
                    // A read that has ended by now is seen when this poll looks.
                    waiter.may_idle();
                    self.sent.push(Sent { who, address, waiter, session });
                }
            }
        }
        // Nobody waits for them: where there is no room they are read when they are needed.
        let ahead = std::mem::take(&mut self.ahead);
        for address in ahead.iter().filter(|address| !blocks.cache.holds(address)) {
            let permit = admission.try_now(u64::from(address.bytes));
            let Some(permit) = permit.filter(|_| self.unsent.first.is_none()) else { break };
            drop(Claimed::begin(local::claim(blocks, address), permit, &mut claimed));
        }
        read_elsewhere(blocks, claimed);
        if self.patience.is_refused && !self.has_begun && self.place.take().is_some() {
            return Err(Error::WouldBlock);
        }
        Ok(())
    }

    /// The block, or a share in its read; what is to be read for that is put to `claimed`, once it is its
    /// turn.
    fn begin(
        &mut self,
        blocks: &Arc<BlockReader>,
        admission: &Arc<Admission>,
        address: &BlockAddress,
        waker: &Waker,
        claimed: &mut Few<Claimed>,
    ) -> Poll<Begun> {
        self.place.take_if(|place| !place.is_of(admission));
        if self.place.is_none() {
            // What is here, or read by somebody, needs no turn: a claim sees that and gives it back.
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
        let turn = ready!(admission.poll(&mut self.place, (address, self.has_begun), waker));
        self.has_begun = true;
        Poll::Ready(match turn {
            Turn::Own(permit) => Claimed::begin(local::claim(blocks, address), permit, claimed),
            Turn::Begun(waiter) => Err(waiter),
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

/// Has blocks read by the ring of the caller's `block_on`, or by the driver thread.
fn read_elsewhere(blocks: &Arc<BlockReader>, claimed: Few<Claimed>) {
    if claimed.is_empty() {
        return;
    }
    let Some(claimed) = local::push(blocks, claimed) else { return };
    // Once the store is closed nobody else does.
    let refused = blocks.queue.push(claimed).into_iter().flatten().collect();
    blocks.read_at_once(refused);
}

/// A get, asked for and not answered yet.
pub(crate) struct LaterGet {
    get: Get,
    tree: TreeId,
    view: Arc<View>,
    bound: Sequence,
    hash: KeyHash,
    asks: Asks,
}

/// What one is of.
#[derive(Clone, Copy)]
pub(crate) struct LaterKey<'k> {
    pub(crate) keyspace: &'k Keyspace,
    pub(crate) key: &'k [u8],
    pub(crate) wants: Wants,
}

impl ReadDriver {
    /// Goes on with a get, or begins it; `take` has the value as soon as it is here. `later` is what is left
    /// to be done, and the same at each call.
    pub(crate) fn poll_get<R>(
        &self,
        later: &mut Option<Box<LaterGet>>,
        of: LaterKey<'_>,
        (at, patience): (Option<&Point>, Patience),
        context: &mut Context<'_>,
        take: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Poll<Result<R>> {
        let breadth = Some(&self.breadth);
        let op = |tree, bound, hash| Op { tree, key: of.key, hash, bound, wants: of.wants, breadth };
        if later.is_none() {
            let hash = self.owner.secret.hash_in(of.keyspace.id, of.key);
            let pin = self.epoch.pin();
            // The bound after the view: see `levels::view`.
            let loaded = at.map_or_else(|| self.views.load(&pin), |point| point.load(&pin));
            let bound = at.map_or_else(|| self.writer.visible(), |point| point.bound);
            let tree = of.keyspace.tree_of(of.key, &loaded.get().version)?;
            let started = Get::start(&op(tree, bound, hash), loaded.get(), &self.cache, &pin, &mut NoTrace);
            let (get, reads) = match started {
                (_, Step::Done(found)) => return Poll::Ready(found.map(|found| take(found.value()))),
                (get, Step::Ask(reads)) => (get, reads),
                (_, Step::Wait | Step::Touch) => unreachable!("a get alone waits for its asks only"),
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
                Step::Done(Ok(found)) => return Poll::Ready(Ok(take(found.value()))),
                Step::Done(Err(error)) => return Poll::Ready(Err(error)),
                Step::Ask(reads) => ask_all(asks, reads),
                Step::Wait => {}
                Step::Touch => unreachable!("a get alone takes no turns"),
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

/// Gets of many keys, asked for and not all answered.
pub(crate) struct LaterMany {
    batch: Batch<Box<[u8]>>,
    /// Not begun.
    rest: std::vec::IntoIter<Box<[u8]>>,
    view: Arc<View>,
    asks: Asks,
}

impl ReadDriver {
    /// Gets of many keys, all as of now; see `poll_many`.
    pub(crate) fn later_many(
        &self,
        keys: Vec<Box<[u8]>>,
        (at, patience): (Option<&Point>, Patience),
    ) -> LaterMany {
        let (view, bound) = at.map_or_else(|| self.now(), |point| (self.view_of(point), point.bound));
        let batch = Batch::new(bound, keys.len());
        LaterMany { batch, rest: keys.into_iter(), view, asks: Asks::new(patience) }
    }

    /// Goes on with gets of many keys; `take` has each value with its key's number, in no order.
    ///
    /// # Errors
    /// The error of the first key that could not be looked up, when all others were.
    pub(crate) fn poll_many(
        &self,
        (later, keyspace): (&mut LaterMany, &Keyspace),
        context: &mut Context<'_>,
        take: &mut impl FnMut(usize, Option<&[u8]>),
    ) -> Poll<Result<()>> {
        let LaterMany { batch, rest, view, asks } = later;
        let started_max = batch.started() + STARTED_MAX;
        loop {
            if !rest.as_slice().is_empty() {
                // As many as of a call that waits: what they have asked of memory is near when they use it.
                self.begin(batch, keyspace, rest.by_ref().take(BATCH_COUNT), view)?;
            }
            self.run_rounds(batch, view, &mut |number, found| take(number, found.value()));
            batch.asked().for_each(|(number, block)| asks.ask(number, block));
            if !rest.as_slice().is_empty() {
                if batch.started() < started_max {
                    continue;
                }
                asks.send(&self.blocks, context.waker())?;
                // Others of the executor have their turn.
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

    /// Goes on with a move of a scan to its next item, or begins one; `false` at its end. `is_moving` says
    /// whether one was begun.
    pub(crate) fn poll_advance(
        &self,
        point: &Point,
        (scan, asks, is_moving): (&mut Scan, &mut Asks, &mut bool),
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
                        // The rest was asked for in another view: the cache has it soon.
                        asks.end();
                        scan.advance(pinned)
                    }
                }
            };
            *is_moving = !matches!(step, Step::Done(_));
            match step {
                Step::Ask(reads) => ask_all(asks, reads),
                Step::Wait | Step::Touch => {}
                Step::Done(moved) => {
                    self.blocks.read_apart(&scan.take_apart());
                    asks.end();
                    scan.fit(self.cache.reserve());
                    return Poll::Ready(moved);
                }
            }
            // What the worker has no room for is read when it is needed.
            self.blocks.read_apart(&scan.take_apart());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::id::{FileKind, FileName};
    use crate::base::step::BlockKind;

    /// What is asked for is sent in that order; what is put back goes first, or behind the first.
    #[test]
    fn what_is_not_sent_stays_in_order() {
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
