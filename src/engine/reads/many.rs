//! The driver of multi-gets: many machines take turns, and their missing blocks are read together.
//!
//! It has no lookup logic. While machines can go on in memory, one pin covers a round of all of them. The pin
//! ends before any device read, and a reference count then holds the view.

use crate::base::epoch::Pin;
use crate::base::error::{Error, Result};
use crate::base::hash::KeyHash;
use crate::base::id::{Sequence, TreeId};
use crate::base::step::{Answer, BlockAddress, MachineStep, Reads};
use crate::cache::BlockRef;
use crate::levels::version::Tree;
use crate::levels::view::View;
use crate::read::get::{Get, GetMode, Lookup, Op};
use crate::read::trace::TakeTurns;

use super::ReadDriver;
use super::fetch::Fetches;
use super::found::{Kept, LookupResult};
use super::request::Answered;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::snapshot::Point;

/// Keys looked up at a time: enough reads to keep the device busy, and more than hiding memory latency needs.
pub(super) const BATCH_COUNT: usize = 64;

/// The lookup machine of one key.
struct Machine<K> {
    key: K,
    tree: TreeId,
    hash: KeyHash,
    get: Get,
}

/// The lookup machines of several keys.
pub(super) struct LookupBatch<K> {
    /// The sequence bound of all lookups.
    bound: Sequence,
    machines: Vec<Machine<K>>,
    rounds: Rounds,
}

/// The schedule of the machines: the ones to run in the next rounds, and the results of the last rounds.
#[derive(Default)]
struct Rounds {
    /// Machines that are not done.
    left: usize,
    /// Machines, by number, to run in the next rounds.
    ready: Vec<usize>,
    /// Blocks that have come for machines that waited.
    answers: Vec<Answered>,
    /// Blocks that machines wait for.
    asked: Vec<(usize, BlockAddress)>,
    /// The first key whose lookup failed, and its error.
    failed: Option<(usize, Error)>,
}

impl ReadDriver {
    /// Looks all keys up and passes each value and its key's number to `take`, in any order, under a pin. For
    /// short callbacks of the store itself.
    ///
    /// # Errors
    /// The error of the first of 64 keys whose lookup failed; `take` has received other values by then.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &KeyspaceState,
        keys: &[K],
        at: Option<&Point>,
        mut take: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let (view, bound) = at.map_or_else(|| self.now(), |point| (self.view_of(point), point.bound));
        for (index, batch) in keys.chunks(BATCH_COUNT).enumerate() {
            let first = index * BATCH_COUNT;
            self.get_batch(keyspace, batch, (&view, bound), &mut |number, found| {
                take(first + number, found.value())
            })?;
        }
        Ok(())
    }

    /// As [`ReadDriver::multi_get`], with a `take` that runs under no pin and may run any code.
    ///
    /// # Errors
    /// As [`ReadDriver::multi_get`].
    pub(crate) fn multi_get_apart<K: AsRef<[u8]>>(
        &self,
        keyspace: &KeyspaceState,
        keys: &[K],
        at: Option<&Point>,
        mut take: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut kept = Kept::new();
        // A point, unlike a view, does not keep write buffers for long.
        let own = (at.is_none() && keys.len() > BATCH_COUNT).then(|| self.point());
        let at = at.or(own.as_deref());
        for (index, batch) in keys.chunks(BATCH_COUNT).enumerate() {
            let first = index * BATCH_COUNT;
            let result = {
                let (view, bound) = at.map_or_else(|| self.now(), |point| (self.view_of(point), point.bound));
                self.get_batch(keyspace, batch, (&view, bound), &mut |number, found| {
                    kept.keep(first + number, &found, &self.cache);
                })
            };
            kept.give(&mut take);
            result?;
        }
        Ok(())
    }

    fn get_batch<K: AsRef<[u8]>>(
        &self,
        keyspace: &KeyspaceState,
        keys: &[K],
        (view, bound): (&View, Sequence),
        take: &mut impl FnMut(usize, LookupResult<'_>),
    ) -> Result<()> {
        let mut batch = LookupBatch::new(bound, keys.len());
        self.begin(&mut batch, keyspace, keys.iter(), view)?;
        self.run_rounds(&mut batch, view, take);
        if !batch.is_over() {
            self.read_and_go_on(&mut batch, view, take);
        }
        batch.result()
    }

    /// Reads the blocks that machines wait for, until all are done. A failed read ends the machine that needs
    /// it. The others go on, because other callers may wait for their reads too.
    fn read_and_go_on<K: AsRef<[u8]>>(
        &self,
        batch: &mut LookupBatch<K>,
        view: &View,
        take: &mut impl FnMut(usize, LookupResult<'_>),
    ) {
        let mut fetches = Fetches::new(&self.blocks);
        let mut answered: Vec<Answered> = Vec::new();
        while !batch.is_over() {
            for (number, block) in batch.asked() {
                fetches.ask(number, &block, &mut answered);
            }
            fetches.send();
            if answered.is_empty() {
                fetches.wait(&mut answered);
            }
            answered.drain(..).for_each(|(number, result)| batch.answer(number, result));
            self.run_rounds(batch, view, take);
        }
    }

    /// Begins a machine for each of the keys.
    ///
    /// # Errors
    /// `Unrouted`.
    pub(super) fn begin<K: AsRef<[u8]>>(
        &self,
        LookupBatch { bound, machines, rounds }: &mut LookupBatch<K>,
        keyspace: &KeyspaceState,
        keys: impl Iterator<Item = K>,
        view: &View,
    ) -> Result<()> {
        let mut found = FoundTree::none();
        for key in keys {
            let hash = self.owner.secret.hash_in(keyspace.id, key.as_ref());
            let tree = keyspace.tree_of(key.as_ref(), &view.version)?;
            let get = Get::begin(&op((tree, *bound), key.as_ref(), hash), view, found.of(tree, view));
            rounds.ready.push(machines.len());
            machines.push(Machine { key, tree, hash, get });
            rounds.left += 1;
        }
        Ok(())
    }

    /// Runs machines in turns until each is done or waits for a block.
    pub(super) fn run_rounds<K: AsRef<[u8]>>(
        &self,
        batch: &mut LookupBatch<K>,
        view: &View,
        take: &mut impl FnMut(usize, LookupResult<'_>),
    ) {
        if !batch.rounds.answers.is_empty() {
            self.take_answers(batch, view, take);
        }
        let LookupBatch { bound, machines, rounds } = batch;
        let mut found = FoundTree::none();
        let mut ready = Vec::with_capacity(rounds.ready.len());
        while !rounds.ready.is_empty() {
            let pin = self.epoch.pin();
            std::mem::swap(&mut ready, &mut rounds.ready);
            for number in ready.drain(..) {
                let Machine { key, tree, hash, get } = &mut machines[number];
                let op = op((*tree, *bound), key.as_ref(), *hash);
                let tree = found.of(*tree, view);
                let step = get.touched(&op, (view, tree), &self.cache, &pin, &mut TakeTurns);
                rounds.note(number, step, (get, tree.map(|tree| (tree, op.key)), &pin), take);
            }
        }
    }

    /// Passes blocks that have come to the machines that asked for them.
    #[inline(never)]
    fn take_answers<K: AsRef<[u8]>>(
        &self,
        LookupBatch { bound, machines, rounds }: &mut LookupBatch<K>,
        view: &View,
        take: &mut impl FnMut(usize, LookupResult<'_>),
    ) {
        let (pin, mut found) = (self.epoch.pin(), FoundTree::none());
        let mut answers = std::mem::take(&mut rounds.answers);
        for (number, result) in answers.drain(..) {
            let answer = Answer { ask: 0, result };
            let Machine { key, tree, hash, get } = &mut machines[number];
            let op = op((*tree, *bound), key.as_ref(), *hash);
            let tree = found.of(*tree, view);
            let step = get.resume(&op, view, &self.cache, &pin, &mut TakeTurns, answer);
            rounds.note(number, step, (get, tree.map(|tree| (tree, op.key)), &pin), take);
        }
        rounds.answers = answers;
    }
}

/// The tree of the last lookup: most often the next key has the same tree.
struct FoundTree<'v>(Option<(TreeId, Option<&'v Tree>)>);

impl<'v> FoundTree<'v> {
    fn none() -> FoundTree<'v> {
        FoundTree(None)
    }

    #[inline]
    fn of(&mut self, id: TreeId, view: &'v View) -> Option<&'v Tree> {
        match self.0 {
            Some((found, tree)) if found == id => tree,
            _ => {
                let tree = view.version.tree(id);
                self.0 = Some((id, tree));
                tree
            }
        }
    }
}

/// Each key is looked up serially: the other keys keep the device busy.
#[inline(always)]
fn op((tree, bound): (TreeId, Sequence), key: &[u8], hash: KeyHash) -> Op<'_> {
    Op { tree, key, hash, bound, mode: GetMode::Value, breadth: None }
}

impl<K> LookupBatch<K> {
    /// A batch with room for `count` keys.
    pub(super) fn new(bound: Sequence, count: usize) -> LookupBatch<K> {
        let ready = Vec::with_capacity(count.min(BATCH_COUNT));
        LookupBatch {
            bound,
            machines: Vec::with_capacity(count),
            rounds: Rounds { ready, ..Rounds::default() },
        }
    }

    /// The number of keys begun.
    pub(super) fn started(&self) -> usize {
        self.machines.len()
    }

    /// The blocks that machines have asked for since the last call.
    pub(super) fn asked(&mut self) -> impl Iterator<Item = (usize, BlockAddress)> + use<'_, K> {
        self.rounds.asked.drain(..)
    }

    /// Records an answer; its machine continues in the next rounds.
    pub(super) fn answer(&mut self, number: usize, result: Result<BlockRef>) {
        self.rounds.answers.push((number, result));
    }

    pub(super) fn is_over(&self) -> bool {
        self.rounds.left == 0
    }

    /// The error of the first key whose lookup failed, if any.
    pub(super) fn result(&mut self) -> Result<()> {
        self.rounds.failed.take().map_or(Ok(()), |(_, error)| Err(error))
    }
}

impl Rounds {
    #[inline(always)]
    fn note(
        &mut self,
        number: usize,
        step: MachineStep<Reads, Result<Lookup<'_>>>,
        (get, tree, pin): (&Get, Option<(&Tree, &[u8])>, &Pin),
        take: &mut impl FnMut(usize, LookupResult<'_>),
    ) {
        match step {
            MachineStep::Touch => return self.ready.push(number),
            MachineStep::Done(Ok(lookup)) => {
                let block = || tree.and_then(|(tree, key)| get.data_address(tree, key));
                take(number, LookupResult { lookup: &lookup, block: &block, pin });
            }
            MachineStep::Done(Err(error)) => self.fail(number, error),
            MachineStep::Ask(reads) => return self.ask(number, &reads),
            MachineStep::Wait => unreachable!("a get that was answered asks, or is done"),
        }
        self.left -= 1;
    }

    #[cold]
    fn ask(&mut self, number: usize, reads: &Reads) {
        self.asked.push((number, reads[0].block));
    }

    #[cold]
    fn fail(&mut self, number: usize, error: Error) {
        if self.failed.as_ref().is_none_or(|(first, _)| number < *first) {
            self.failed = Some((number, error));
        }
    }
}
