//! Publishing an ingest: a state machine that gives it a position in the order of writes and in its tree, and
//! makes one edit of the manifest.
//!
//! The position in the order of writes is a turn in the joint order ([`OrderTurn`]) at which no item in
//! memory overlaps the tables. Then all items in memory are newer or somewhere else, and the tables may go
//! below them. Overlapping generations are sealed and flushed first: once while writers go on, and once more,
//! with the writes made meanwhile, while writers wait. So writers wait for a sync of the log and one of the
//! manifest. They wait for a small flush only if they write where the ingest does.
//!
//! Merges of the tree are kept from beginning, and the ingest waits for the merge under way: its outputs may
//! lie where the tables are to go. No call blocks: it returns, and [`Publish::waits_for`] has the event to
//! wait for. An ingest over partitions claims the tree of each, in the order of their ids: two ingests never
//! wait for each other.
//!
//! Invariants:
//! 1. Every write acknowledged before the ingest holds the lead, the state of the write leader, is older
//!    than the ingest, durable before it, and below it or apart from it. Every later write is newer. Readers
//!    see the whole ingest from one version on.
//! 2. It takes no sequence number: its tables have that of the last flushed write, in a level where position
//!    alone decides which item is newer.
//! 3. If the ingest is abandoned at any point, it releases the lead: writers go on, and merges of the
//!    tree may begin.

use crate::base::error::{Error, Result};
use crate::base::id::{SEQUENCE_MAX, Sequence, TreeId};
use crate::base::step::Direction;
use crate::base::sync::{Arc, Event};
use crate::compact::pick::{self, OutputRun};
use crate::compact::place::{Bounds, Placement, place};
use crate::levels::version::{Spot, Tree};
use crate::memtable::Generation;
use crate::table::BuiltTable;
use crate::write::writer::Sealing;

use std::collections::BTreeMap;
use std::ops::Bound;

use super::super::commit::Committer;
use crate::engine::background::shapes::shape;
use crate::engine::background::work::{ExpeditedMerges, WorkKind};
use crate::engine::commit::order::OrderTurn;
use crate::engine::publish::edit::{Edit, Origin};
use crate::engine::publish::keyspace::KeyspaceState;

/// Runs of a tree at which an ingest waits for merges: each ingest may add a run, and no pressure slows
/// ingests.
const RUNS_COUNT_MAX: usize = 64;

/// The result of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum PublishStep {
    /// There is more to do.
    Again,
    /// Nothing can be done until the event of [`Publish::waits_for`] has moved.
    Wait,
    Done,
}

/// See the module.
pub(in crate::engine) struct Publish<'s> {
    store: &'s Committer,
    /// The keyspaces, or partitions, of the tables, in the order of their trees.
    targets: Vec<Arc<KeyspaceState>>,
    /// Ascending and disjoint.
    tables: Vec<BuiltTable>,
    stage: Stage<'s>,
    waits: Waits,
    /// Merges of the targets' trees are kept from beginning.
    are_wanted: bool,
    /// Number of the targets' trees that are claimed.
    taken_count: usize,
    /// Held while merges are waited for.
    expedited: Option<ExpeditedMerges<'s>>,
    flushes_count: u32,
    /// Number of failures of background work that are known; later ones end the wait.
    known_failures: u64,
}

enum Stage<'s> {
    /// Waits until merges have made runs fewer, and flushes work again.
    Calm,
    /// Waits for the end of merges of the trees that are under way.
    Trees,
    /// Waits for its turn in the joint order.
    Order(OrderTurn<'s>),
    /// Checks whether a generation in memory overlaps the tables.
    Memory(OrderTurn<'s>),
    /// Waits until all writes up to this sequence number are in tables; writers wait if the turn is kept.
    Flush(Option<OrderTurn<'s>>, Sequence),
    Over,
}

/// The event of a wait, and its count when the wait began.
#[derive(Clone, Copy)]
enum Waits {
    Work(u64),
    Writer(u64),
    Order,
}

impl<'s> Publish<'s> {
    /// `tables`: one at least; they and their names are durable. `targets`: their keyspaces or partitions.
    pub(in crate::engine) fn new(
        store: &'s Committer,
        targets: &[Arc<KeyspaceState>],
        tables: Vec<BuiltTable>,
    ) -> Publish<'s> {
        let mut targets = targets.to_vec();
        targets.sort_by_key(|target| target.tree);
        Publish {
            store,
            targets,
            tables,
            stage: Stage::Calm,
            waits: Waits::Work(0),
            are_wanted: false,
            taken_count: 0,
            expedited: Some(store.work.expedite_merges()),
            flushes_count: 0,
            known_failures: store.work.failures(),
        }
    }

    /// The event that ends a wait, and its count before it moves.
    pub(in crate::engine) fn waits_for(&self) -> (&Event, u64) {
        match (self.waits, &self.stage) {
            (Waits::Order, Stage::Order(turn)) => turn.waits_for(),
            (Waits::Writer(seen), _) => (&self.store.writer.changed, seen),
            (Waits::Work(seen), _) => (&self.store.work.moved, seen),
            (Waits::Order, _) => unreachable!("the turn is waited for in its stage"),
        }
    }

    /// Whether the next turn publishes.
    #[cfg(test)]
    pub(in crate::engine) fn is_due(&self) -> bool {
        matches!(self.stage, Stage::Memory(_)) && !self.is_in_memory()
    }

    /// Does the work that can be done now.
    ///
    /// # Errors
    /// The reason why it cannot be published. The store then has no part of it, unless the store is latched:
    /// then a crash may leave the whole ingest.
    pub(in crate::engine) fn turn(&mut self) -> Result<PublishStep> {
        check(self.store)?;
        self.targets.iter().try_for_each(|target| target.check_live())?;
        if self.store.work.is_stopped() {
            return Err(Error::Closed);
        }
        let seen = self.store.work.moved.seen();
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Calm => self.calm(seen),
            Stage::Trees => self.take_trees(seen),
            Stage::Order(mut turn) => {
                let has_come = turn.poll()?;
                self.stage = if has_come { Stage::Memory(turn) } else { Stage::Order(turn) };
                self.waits = Waits::Order;
                Ok(if has_come { PublishStep::Again } else { PublishStep::Wait })
            }
            Stage::Memory(turn) => self.look_at_memory(turn),
            Stage::Flush(turn, last) => self.wait_for_flush(turn, last, seen),
            Stage::Over => unreachable!("a finished or failed machine has no turn"),
        }
    }

    fn wait(&mut self, stage: Stage<'s>, waits: Waits) -> Result<PublishStep> {
        (self.stage, self.waits) = (stage, waits);
        Ok(PublishStep::Wait)
    }

    fn calm(&mut self, seen: u64) -> Result<PublishStep> {
        let work = &self.store.work;
        if work.error_of(WorkKind::Flush).is_some() && self.is_in_memory() {
            // The cause of failed flushes may have cleared: they are tried again.
            let news = work.error(self.known_failures, |kind| kind == WorkKind::Flush);
            return news.map_or_else(|| self.wait(Stage::Calm, Waits::Work(seen)), Err);
        }
        if self.has_too_many_runs() {
            return self.wait(Stage::Calm, Waits::Work(seen));
        }
        self.targets.iter().for_each(|target| work.want_tree(target.tree));
        self.are_wanted = true;
        self.stage = Stage::Trees;
        Ok(PublishStep::Again)
    }

    /// Whether a tree has too many runs, and merges can still make them fewer.
    fn has_too_many_runs(&self) -> bool {
        let pin = self.store.epoch.pin();
        let version = &self.store.views.load(&pin).get().version;
        let is_due = |id: TreeId, tree: &Tree| {
            let settings = self.store.pick_settings(id);
            settings.is_some_and(|settings| pick::is_due(&shape(tree), &settings))
        };
        self.targets.iter().any(|target| {
            let (id, tree) = (target.tree, version.tree(target.tree));
            tree.is_some_and(|tree| tree.runs().count() > RUNS_COUNT_MAX && is_due(id, tree))
                && self.store.work.error_of(WorkKind::Merge(id)).is_none()
        })
    }

    fn take_trees(&mut self, seen: u64) -> Result<PublishStep> {
        while let Some(target) = self.targets.get(self.taken_count) {
            if !self.store.work.try_take_tree(target.tree) {
                return self.wait(Stage::Trees, Waits::Work(seen));
            }
            self.taken_count += 1;
        }
        self.expedited = None;
        Ok(self.ask_for_turn())
    }

    fn ask_for_turn(&mut self) -> PublishStep {
        self.stage = Stage::Order(OrderTurn::start(self.store));
        PublishStep::Again
    }

    fn look_at_memory(&mut self, mut turn: OrderTurn<'s>) -> Result<PublishStep> {
        if !self.is_in_memory() {
            turn.make_durable()?;
            self.install()?;
            return Ok(PublishStep::Done);
        }
        if self.is_in_active()
            && let Sealing::NoRoom { seen } = turn.seal()?
        {
            return self.wait(Stage::Memory(turn), Waits::Writer(seen));
        }
        let last = turn.last_sequence();
        // The first flush may take a while: writers go on, and write little meanwhile.
        let turn = (self.flushes_count > 0).then_some(turn);
        self.flushes_count += 1;
        self.known_failures = self.store.work.failures();
        self.stage = Stage::Flush(turn, last);
        Ok(PublishStep::Again)
    }

    fn wait_for_flush(
        &mut self,
        turn: Option<OrderTurn<'s>>,
        last: Sequence,
        seen: u64,
    ) -> Result<PublishStep> {
        if !self.store.writer.has_flushed(last) {
            let error = self.store.work.error(self.known_failures, |kind| kind == WorkKind::Flush);
            return error.map_or_else(|| self.wait(Stage::Flush(turn, last), Waits::Work(seen)), Err);
        }
        match turn {
            None => Ok(self.ask_for_turn()),
            Some(turn) => {
                self.stage = Stage::Memory(turn);
                Ok(PublishStep::Again)
            }
        }
    }

    /// The tree and the bounds of each table; tables of one tree are in the order of their keys.
    fn bounds(&self) -> impl Iterator<Item = (TreeId, Bounds<'_>)> {
        let tables = self.tables.iter().flat_map(|one| &one.tables);
        tables.map(|table| (table.tree(), (table.min(), table.max())))
    }

    /// Whether a generation has items or range tombstones within the bounds of the tables.
    fn is_in_memory(&self) -> bool {
        let pin = self.store.epoch.pin();
        let generations = &self.store.views.load(&pin).get().generations;
        generations.iter().any(|generation| self.meets(generation))
    }

    /// The same for the active generation.
    fn is_in_active(&self) -> bool {
        let pin = self.store.epoch.pin();
        self.store.views.load(&pin).get().generations.first().is_some_and(|active| self.meets(active))
    }

    fn meets(&self, generation: &Generation) -> bool {
        self.bounds().any(|(tree, bounds)| meets(generation, tree, bounds))
    }

    /// Finds the tables their runs and makes the edit.
    fn install(&self) -> Result<()> {
        let store = self.store;
        let mut catalog = store.catalog.take(&*store.env.threads);
        if let Some(dropped) = self.targets.iter().find(|target| !catalog.has_tree(target.tree)) {
            return Err(Error::Dropped { name: dropped.full_name() });
        }
        let version = {
            let pin = store.epoch.pin();
            Arc::clone(&store.views.load(&pin).get().version)
        };
        let mut bounds_of: BTreeMap<TreeId, Vec<Bounds<'_>>> = BTreeMap::new();
        self.bounds().for_each(|(tree, bounds)| bounds_of.entry(tree).or_default().push(bounds));
        let (mut edit, mut spots) = (Edit::default(), BTreeMap::new());
        for (id, bounds) in &bounds_of {
            let tree = version.tree(*id).expect("the catalog has it, and makes every version");
            spots.insert(*id, lower(tree, place(&shape(tree), bounds), &mut edit));
        }
        // No sequence number of its own: below level 0 position alone decides which item is newer. A table's
        // sequence number is never 0.
        let sequence = catalog.state.flushed.max(1);
        let origin = Origin { sequences: (sequence, sequence), oldest_tombstone_s: 0 };
        for built in &self.tables {
            store.add_tables(&catalog, &mut edit, built, |table| (spots[&table.tree()], origin));
        }
        let closed = store.views.gaps().close();
        store.edit_taken(&mut catalog, edit)?;
        drop(closed);
        Ok(())
    }
}

impl Drop for Publish<'_> {
    fn drop(&mut self) {
        // Writers go on first.
        self.stage = Stage::Over;
        let wanted = if self.are_wanted { &self.targets[..] } else { &[] };
        for (number, target) in wanted.iter().enumerate() {
            self.store.work.end_want(target.tree, number < self.taken_count);
        }
    }
}

/// Whether the store takes writes now.
pub(super) fn check(store: &Committer) -> Result<()> {
    store.check_open()?;
    store.check_writable()
}

/// Adds to the edit the runs that go down from level 0 before the ingest. Returns the run of the ingest's
/// tables.
fn lower(tree: &Tree, placement: Placement, edit: &mut Edit<'_>) -> Spot {
    let Placement { lowered_count, level, run } = placement;
    let next_run = tree.next_run_number(level);
    let oldest_first =
        tree.levels().first().into_iter().flat_map(|runs| runs.iter()).rev().take(lowered_count);
    for (run, placed) in (next_run..).zip(oldest_first.flat_map(|run| run.tables())) {
        edit.relocate(placed.name(), Spot { level, run });
    }
    let run = match run {
        OutputRun::New => next_run + lowered_count as u64,
        OutputRun::Into(index) => tree.levels()[level][index].number(),
    };
    Spot { level, run }
}

/// Whether a generation has an item or a range tombstone of the tree from `min` to `max`.
fn meets(generation: &Generation, tree: TreeId, (min, max): Bounds<'_>) -> bool {
    let first = generation.seek(tree, Bound::Included(min), Direction::Forward, SEQUENCE_MAX);
    if first.is_some_and(|first| generation.item(first).key <= max) {
        return true;
    }
    let mut key = min;
    while generation.has_ranges(SEQUENCE_MAX) {
        let stretch = generation.stretch(tree, key, SEQUENCE_MAX);
        if stretch.cover.is_some() {
            return true;
        }
        if stretch.to.is_empty() || stretch.to > max {
            return false;
        }
        key = stretch.to;
    }
    false
}
