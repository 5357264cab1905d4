//! Gets on the caller's thread: under one pin if memory has the answer, otherwise in rounds of reads.

use crate::base::error::{Error, Result};
use crate::base::step::{Answer, MachineStep, Read, Reads};
use crate::base::sync::Event;
use crate::cache::BlockRef;
use crate::levels::view::View;
use crate::read::get::{Get, GetMode, Op};
use crate::read::trace::{NoTrace, Tracer};

use super::ReadDriver;
use super::fetch::Fetches;
use super::found::{Copies, LookupResult};
use super::request::Answered;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::snapshot::Point;

impl ReadDriver {
    /// Looks `key` up and passes its value to `take`, under a pin and without a copy. For short callbacks of
    /// the store itself.
    pub(crate) fn get<T: Tracer, R>(
        &self,
        keyspace: &KeyspaceState,
        wanted: (&[u8], GetMode),
        at: Option<&Point>,
        tracer: &mut T,
        take: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        self.look_up(keyspace, wanted, at, tracer, |found| take(found.value()))
    }

    /// Looks `key` up and passes its value to `take`, which runs under no pin and may run any code.
    pub(crate) fn get_apart<R>(
        &self,
        keyspace: &KeyspaceState,
        key: &[u8],
        at: Option<&Point>,
        take: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let mut copies = Copies::new();
        let keep = |found: LookupResult<'_>| copies.keep(&found, &self.cache);
        let kept = self.look_up(keyspace, (key, GetMode::Value), at, &mut NoTrace, keep)?;
        Ok(take(copies.value(&kept)))
    }

    /// Looks the key up under one pin if memory has the answer.
    #[inline]
    fn look_up<T: Tracer, R>(
        &self,
        keyspace: &KeyspaceState,
        (key, mode): (&[u8], GetMode),
        at: Option<&Point>,
        tracer: &mut T,
        take: impl FnOnce(LookupResult<'_>) -> R,
    ) -> Result<R> {
        let hash = self.owner.secret.hash_in(keyspace.id, key);
        let pin = self.epoch.pin();
        // The bound is read after the view: see `levels::view`. The view is loaded once, because a point's
        // view may be replaced.
        let loaded = at.map_or_else(|| self.views.load(&pin), |point| point.load(&pin));
        let bound = at.map_or_else(|| self.writer.visible(), |point| point.bound);
        let breadth = Some(&self.breadth);
        let tree = keyspace.tree_of(key, &loaded.get().version)?;
        let op = Op { tree, key, hash, bound, mode, breadth };
        let (get, step) = Get::start(&op, loaded.get(), &self.cache, &pin, tracer);
        let reads = match step {
            MachineStep::Done(found) => {
                let block = || get.data_address(loaded.get().version.tree(op.tree)?, op.key);
                return found.map(|lookup| take(LookupResult { lookup: &lookup, block: &block, pin: &pin }));
            }
            MachineStep::Ask(reads) => reads,
            MachineStep::Wait | MachineStep::Touch => unreachable!("a get alone asks first, or is done"),
        };
        let held = loaded.counted();
        drop(pin);
        self.get_from_device(&op, &held, get, reads, tracer, take)
    }

    /// Completes a get that missed blocks. Each round reads at least one block and pins anew.
    fn get_from_device<T: Tracer, R>(
        &self,
        op: &Op<'_>,
        view: &View,
        mut get: Get,
        mut reads: Reads,
        tracer: &mut T,
        take: impl FnOnce(LookupResult<'_>) -> R,
    ) -> Result<R> {
        let (mut fetches, mut answered) = (Fetches::new(&self.blocks), Vec::new());
        loop {
            let answer = self.read_one_at_least(&reads, &mut fetches, &mut answered);
            let pin = self.epoch.pin();
            match get.resume(op, view, &self.cache, &pin, tracer, answer) {
                MachineStep::Done(found) => {
                    let block = || get.data_address(view.version.tree(op.tree)?, op.key);
                    let result =
                        found.map(|lookup| take(LookupResult { lookup: &lookup, block: &block, pin: &pin }));
                    drop(pin);
                    // Other callers may wait for the reads in flight, even if this get has failed.
                    fetches.finish();
                    return result;
                }
                MachineStep::Ask(more) => reads = more,
                MachineStep::Wait => reads.clear(),
                MachineStep::Touch => unreachable!("a get alone takes no turns with others"),
            }
        }
    }

    /// Sends the reads that a get asks for, and waits for an answer. A single read is performed on this
    /// thread.
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
            return Answer { ask: *ask, result: self.blocks.fetch(block) };
        }
        reads.iter().for_each(|read| fetches.ask(usize::from(read.ask), &read.block, answered));
        fetches.send();
        if answered.is_empty() {
            fetches.wait(answered);
        }
        let (ask, result) = answered.pop().expect("a get that waits has an ask that was not answered");
        Answer { ask: u8::try_from(ask).expect("it was one"), result }
    }

    /// Waits until the event's count differs from `seen`.
    pub(crate) fn wait(&self, event: &Event, seen: u64) {
        self.env.threads.wait(event, seen, None);
    }
}
