//! The blocking driver: answers what the machines ask, on the caller's thread.
//!
//! It owns requests and their order, and no logic of lookup, scan or commit. `fetch`: several blocks at once.
//! `many`: gets of several keys. `later`: the driver of futures, `local`: their reads on a caller's thread.

mod fetch;
mod found;
pub(crate) mod later;
pub(crate) mod local;
mod many;
mod short;

use std::ops::Deref;

use crate::base::error::{Error, Result};
use crate::base::step::{AHEAD, Answer, BlockAddress, Read, Reads, Step};
use crate::base::sync::{Arc, Event};
use crate::cache::{BlockRef, Claim};
use crate::levels::view::View;
use crate::read::get::{Get, Op, Wants};
use crate::read::scan::Scan;
use crate::read::trace::{NoTrace, Tracer};
use crate::write::commit::{Commit, CommitOp, WriteAsk};
use crate::write::writer::Writer;

use super::Store;
use super::catalog::Keyspace;
use super::snapshot::Point;
use fetch::{Answered, Fetches};
pub(super) use fetch::{Claimed, REQUEST_BYTES_MAX, requests};
use found::{Copies, Found};
pub(crate) use short::NeedsPoint;

impl Store {
    /// Looks `key` up and hands its value to `take`, under a pin and without copying it: for short calls of
    /// our own.
    pub(crate) fn get<T: Tracer, R>(
        &self,
        keyspace: &Keyspace,
        wanted: (&[u8], Wants),
        at: Option<&Point>,
        tracer: &mut T,
        take: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        self.look_up(keyspace, wanted, at, tracer, |found| take(found.value()))
    }

    /// Looks `key` up and hands its value to `take`, which may do what it likes: it runs under no pin.
    pub(crate) fn get_apart<R>(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        at: Option<&Point>,
        take: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let mut copies = Copies::take();
        let keep = |found: Found<'_>| copies.keep(&found, &self.cache);
        let kept = self.look_up(keyspace, (key, Wants::Value), at, &mut NoTrace, keep)?;
        Ok(take(copies.value(&kept)))
    }

    /// One call under one pin if memory has the answer.
    #[inline]
    fn look_up<T: Tracer, R>(
        &self,
        keyspace: &Keyspace,
        (key, wants): (&[u8], Wants),
        at: Option<&Point>,
        tracer: &mut T,
        take: impl FnOnce(Found<'_>) -> R,
    ) -> Result<R> {
        let hash = self.secret.hash(key);
        let pin = self.epoch.pin();
        // The bound after the view: see `levels::view`. Loaded once: a point's view may be replaced.
        let loaded = at.map_or_else(|| self.views.load(&pin), |point| point.load(&pin));
        let bound = at.map_or_else(|| self.writer.visible(), |point| point.bound);
        let breadth = Some(&self.breadth);
        let op = Op { tree: keyspace.tree, key, hash, bound, wants, breadth };
        let (get, step) = Get::start(&op, loaded.get(), &self.cache, &pin, tracer);
        let reads = match step {
            Step::Done(found) => {
                let block = || get.data_address(loaded.get().version.tree(op.tree)?);
                return found.map(|lookup| take(Found { lookup: &lookup, block: &block, pin: &pin }));
            }
            Step::Ask(reads) => reads,
            Step::Wait | Step::Touch => unreachable!("a get alone asks first, or is done"),
        };
        let held = loaded.counted();
        drop(pin);
        self.get_from_device(&op, &held, get, reads, tracer, take)
    }

    /// The rest of a get that found blocks missing: each round reads one at least and pins anew.
    fn get_from_device<T: Tracer, R>(
        &self,
        op: &Op<'_>,
        view: &View,
        mut get: Get,
        mut reads: Reads,
        tracer: &mut T,
        take: impl FnOnce(Found<'_>) -> R,
    ) -> Result<R> {
        let (mut fetches, mut answered) = (Fetches::new(self), Vec::new());
        loop {
            let answer = self.read_one_at_least(&reads, &mut fetches, &mut answered);
            let pin = self.epoch.pin();
            match get.resume(op, view, &self.cache, &pin, tracer, answer) {
                Step::Done(found) => {
                    let block = || get.data_address(view.version.tree(op.tree)?);
                    let result =
                        found.map(|lookup| take(Found { lookup: &lookup, block: &block, pin: &pin }));
                    drop(pin);
                    // Others may wait for what is in flight, whatever became of this get.
                    fetches.finish();
                    return result;
                }
                Step::Ask(more) => reads = more,
                Step::Wait => reads.clear(),
                Step::Touch => unreachable!("a get alone takes no turns with others"),
            }
        }
    }

    /// Sends what a get asks for, and waits for an answer. A read alone is done here.
    fn read_one_at_least(
        &self,
        reads: &[Read],
        fetches: &mut Fetches<'_>,
        answered: &mut Vec<Answered>,
    ) -> Answer<BlockRef, Error> {
        if let [Read { ask, block }] = reads
            && fetches.is_idle()
            && answered.is_empty()
        {
            return Answer { ask: *ask, result: self.fetch(block) };
        }
        reads.iter().for_each(|read| fetches.ask(usize::from(read.ask), &read.block, answered));
        fetches.send();
        if answered.is_empty() {
            fetches.wait(answered);
        }
        let (ask, result) = answered.pop().expect("a get that waits has an ask that was not answered");
        Answer { ask: u8::try_from(ask).expect("it was one"), result }
    }

    /// Moves a scan of the point to its next item; `false` at its end.
    #[inline]
    pub(crate) fn advance(&self, point: &Point, scan: &mut Scan) -> Result<bool> {
        if scan.advance_at_hand(&self.cache) { Ok(true) } else { self.advance_further(point, scan) }
    }

    /// As `advance`, where the blocks at hand have no more.
    #[inline(never)]
    fn advance_further(&self, point: &Point, scan: &mut Scan) -> Result<bool> {
        let step = {
            let pin = self.epoch.pin();
            scan.advance(self.pinned(point, &pin))
        };
        let moved = match step {
            Step::Done(moved) => {
                self.read_apart(&scan.take_apart());
                moved
            }
            step => self.advance_from_device(point, scan, step),
        };
        scan.fit(self.cache.reserve());
        moved
    }

    /// The rest of a move that found blocks missing: they go out together, with what is read ahead, and are
    /// answered as they come.
    fn advance_from_device(
        &self,
        point: &Point,
        scan: &mut Scan,
        mut step: Step<Reads, Result<bool>>,
    ) -> Result<bool> {
        let mut fetches = Fetches::new(self);
        let mut answered: Vec<Answered> = Vec::new();
        loop {
            match step {
                Step::Done(moved) => {
                    fetches.finish();
                    self.read_apart(&scan.take_apart());
                    return moved;
                }
                Step::Ask(reads) => {
                    for Read { ask, block } in reads {
                        match ask {
                            AHEAD => fetches.ask_ahead(&block),
                            ask => fetches.ask(usize::from(ask), &block, &mut answered),
                        }
                    }
                    let apart = scan.take_apart();
                    if !self.work.reads.has_room_ahead() {
                        // It would be read by nobody.
                        apart.iter().for_each(|block| fetches.ask_ahead(block));
                    }
                    fetches.send();
                    self.read_apart(&apart);
                }
                Step::Wait | Step::Touch => {}
            }
            if answered.is_empty() {
                fetches.wait(&mut answered);
            }
            let (ask, result) = answered.pop().expect("a scan that waits has an ask that was not answered");
            let ask = u8::try_from(ask).expect("it was one");
            let pin = self.epoch.pin();
            let pinned = self.pinned(point, &pin);
            step = if scan.is_of(pinned.view) {
                scan.resume(pinned, Answer { ask, result })
            } else {
                let step = scan.advance(pinned);
                drop(pin);
                // What is in flight was asked for in another view: the cache has it soon.
                std::mem::replace(&mut fetches, Fetches::new(self)).finish();
                answered.clear();
                step
            };
        }
    }

    /// Takes a batch through log and memtable.
    pub(crate) fn commit(&self, op: &CommitOp<'_>) -> Result<()> {
        self.check_process()?;
        let (mut commit, mut step) = Commit::start(op, &self.writer);
        loop {
            let answer = match step {
                Step::Done(result) => return result,
                Step::Touch => unreachable!("a commit takes no turns with others"),
                Step::Wait => {
                    let (event, seen) = commit.waits_for().expect("a commit that waits says for what");
                    self.env.threads.wait(event, seen, None);
                    Ok(())
                }
                Step::Ask(ask) => self.answer(&commit, ask),
            };
            step = commit.resume(op, answer);
        }
    }

    pub(super) fn answer<W: Deref<Target = Writer>>(&self, commit: &Commit<W>, ask: WriteAsk) -> Result<()> {
        let storage = &self.env.storage;
        match ask {
            WriteAsk::Append { file, offset, writeback } => {
                storage.write(file, offset, commit.bytes())?;
                if let Some((from, bytes)) = writeback {
                    storage.start_writeback(file, from, bytes);
                }
            }
            WriteAsk::Sync { file } => storage.sync(file)?,
            WriteAsk::Room { seen } => self.env.threads.wait(&self.writer.changed, seen, None),
            WriteAsk::Pause { ns } => {
                let never = Event::new();
                self.env.threads.wait(&never, never.seen(), Some(ns));
            }
        }
        Ok(())
    }

    /// The block, from the cache or the device: one read and one checksum for all who want it at once.
    fn fetch(&self, address: &BlockAddress) -> Result<BlockRef> {
        let mut slot = match self.cache.claim(address) {
            Claim::Ready(block) => return Ok(block),
            Claim::Wait(mut waiter) => {
                let event = Arc::new(Event::new());
                let waker = event.waker();
                loop {
                    let seen = event.seen();
                    match waiter.poll(&waker) {
                        Some(result) => return result,
                        None => self.env.threads.wait(&event, seen, None),
                    }
                }
            }
            Claim::Read(slot) => slot,
        };
        self.count_read(address);
        let _reading = self.load.reading();
        let read = self.env.storage.read(address.file, address.offset, slot.buffer());
        fetch::end_slot(slot, read)
    }
}
