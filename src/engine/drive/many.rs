//! The driver of gets of several keys: many machines take turns, and what they miss goes out together.
//!
//! It holds no logic of the lookup. While machines have memory to look at, one pin lasts for a round of all
//! of them; before anything is read from the device it ends, and the view is held by a count.

use crate::base::error::{Error, Result};
use crate::base::id::Sequence;
use crate::base::step::{Answer, BlockAddress, Reads, Step};
use crate::cache::BlockRef;
use crate::levels::view::View;
use crate::read::get::{Get, Lookup, Op, Wants};
use crate::read::trace::TakeTurns;

use super::super::Store;
use super::super::catalog::Keyspace;
use super::super::snapshot::Point;
use super::fetch::{Answered, Fetches};

/// Keys looked up at a time: as many reads as keep the device busy, and more than memory needs.
const BATCH_COUNT: usize = 64;

/// A key's machine, and what it may go on with.
struct Machine<'k> {
    op: Op<'k>,
    get: Get,
    answer: Option<Answer<BlockRef, Error>>,
}

/// What rounds of all machines with memory to look at came to.
#[derive(Default)]
struct Rounds {
    /// Machines, by number, that go on at the next rounds.
    ready: Vec<usize>,
    /// Blocks that machines wait for.
    asked: Vec<(usize, BlockAddress)>,
    /// The first key that could not be looked up, and why.
    failed: Option<(usize, Error)>,
}

impl Store {
    /// Looks all keys up and hands each value to `take`, with its key's number, in no order.
    ///
    /// # Errors
    /// The error of the first of 64 keys that could not be looked up; `take` has had others by then.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
        at: Option<&Point>,
        mut take: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let (view, bound) = at.map_or_else(|| self.now(), |point| (self.view_of(point), point.bound));
        for (index, batch) in keys.chunks(BATCH_COUNT).enumerate() {
            let first = index * BATCH_COUNT;
            self.get_batch(keyspace, batch, (&view, bound), &mut |number, value| {
                take(first + number, value)
            })?;
        }
        Ok(())
    }

    fn get_batch<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
        (view, bound): (&View, Sequence),
        take: &mut impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let ops = keys.iter().map(|key| {
            let key = key.as_ref();
            let (hash, wants) = (self.secret.hash(key), Wants::Value);
            // One run after another: the device has the other keys' blocks to read meanwhile.
            Op { tree: keyspace.tree, key, hash, bound, wants, breadth: None }
        });
        let mut machines: Vec<Machine<'_>> = Vec::with_capacity(keys.len());
        let mut rounds = Rounds { ready: Vec::with_capacity(keys.len()), ..Rounds::default() };
        {
            let pin = self.epoch.pin();
            for (number, op) in ops.enumerate() {
                let (get, step) = Get::start(&op, view, &self.cache, &pin, &mut TakeTurns);
                machines.push(Machine { op, get, answer: None });
                rounds.note(number, step, take);
            }
        }
        self.run_rounds(&mut machines, view, &mut rounds, take);
        if !rounds.asked.is_empty() {
            self.read_and_go_on(&mut machines, view, &mut rounds, take);
        }
        rounds.failed.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Brings the machines what they wait for, until all are done. A read that fails ends the machine that
    /// needs it; the others go on, for what they read others may wait for too.
    fn read_and_go_on(
        &self,
        machines: &mut [Machine<'_>],
        view: &View,
        rounds: &mut Rounds,
        take: &mut impl FnMut(usize, Option<&[u8]>),
    ) {
        let mut fetches = Fetches::new(self);
        let mut answered: Vec<Answered> = Vec::new();
        let mut left = rounds.asked.len();
        while left > 0 {
            for (number, block) in rounds.asked.drain(..) {
                fetches.ask(number, &block, &mut answered);
            }
            fetches.send();
            if answered.is_empty() {
                fetches.wait(&mut answered);
            }
            left -= answered.len();
            for (number, result) in answered.drain(..) {
                machines[number].answer = Some(Answer { ask: 0, result });
                rounds.ready.push(number);
            }
            self.run_rounds(machines, view, rounds, take);
            left += rounds.asked.len();
        }
    }

    /// Lets machines take turns until each is done or waits for a block.
    fn run_rounds(
        &self,
        machines: &mut [Machine<'_>],
        view: &View,
        rounds: &mut Rounds,
        take: &mut impl FnMut(usize, Option<&[u8]>),
    ) {
        let mut ready = Vec::with_capacity(rounds.ready.len());
        while !rounds.ready.is_empty() {
            let pin = self.epoch.pin();
            std::mem::swap(&mut ready, &mut rounds.ready);
            for number in ready.drain(..) {
                let Machine { op, get, answer } = &mut machines[number];
                let step = get.resume(op, view, &self.cache, &pin, &mut TakeTurns, answer.take());
                rounds.note(number, step, take);
            }
        }
    }
}

impl Rounds {
    fn note(
        &mut self,
        number: usize,
        step: Step<Reads, Result<Lookup<'_>>>,
        take: &mut impl FnMut(usize, Option<&[u8]>),
    ) {
        match step {
            Step::Touch => self.ready.push(number),
            Step::Ask(reads) => self.asked.push((number, reads[0].block)),
            Step::Done(Ok(found)) => take(number, found.value()),
            Step::Done(Err(error)) => {
                if self.failed.as_ref().is_none_or(|(first, _)| number < *first) {
                    self.failed = Some((number, error));
                }
            }
            Step::Wait => unreachable!("a get that was answered asks, or is done"),
        }
    }
}
