//! A point lookup: memtable generations, then the runs of the tree, newest first; the first version found
//! decides.
//!
//! One machine for every driver. Between calls it keeps numbers and counted blocks only, never a reference
//! into view, memtable or cache. `probe`: searching one table. `wide`: waiting for several runs at once.
//!
//! Invariants:
//! 1. A run decides only after all newer runs are known not to have the key. It is searched only then, or
//!    while a newer run waits for the device.
//! 2. A negative filter, and bounds that exclude the key, cost no read; neither do fences that hold the keys
//!    of large values.
//! 3. A range tombstone of a run that covers the key ends the search, unless the run has an item of the key.

mod probe;
mod wide;

use std::cell::Cell;

use crate::base::epoch::Pin;
use crate::base::error::{Error, Result};
use crate::base::hash::KeyHash;
use crate::base::id::{ItemKind, Sequence, TreeId};
use crate::base::step::{Answer, BlockAddress, BlockKind, MachineStep, Read, Reads};
use crate::cache::{BlockRef, Cache};
use crate::levels::version::Tree;
use crate::levels::view::View;
use crate::table::{FenceLine, TableReader};

use super::breadth::Breadth;
use super::trace::{Saw, Stage, Tracer};
use probe::{ProbeArgs, Probed, SearchPosition, Seek};
use wide::Lanes;

/// The lookup's arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op<'a> {
    pub(crate) tree: TreeId,
    pub(crate) key: &'a [u8],
    pub(crate) hash: KeyHash,
    /// Newer versions are invisible. Read after the view was pinned.
    pub(crate) bound: Sequence,
    pub(crate) mode: GetMode,
    /// Bounds the number of runs to wait for at once; `None`: one after another.
    pub(crate) breadth: Option<&'a Breadth>,
}

/// The result that a lookup needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GetMode {
    Value,
    /// Whether there is a value. If fences alone show a large value, an empty one is returned instead.
    Presence,
}

/// The outcome. The value lies in memory that the pin or the block keeps.
#[derive(Debug)]
pub(crate) enum Lookup<'p> {
    Absent,
    /// In a memtable, or in a cached block that the pin keeps.
    Pinned(&'p [u8]),
    /// In a block that was read for this get.
    Counted(BlockRef, std::ops::Range<usize>),
}

impl Lookup<'_> {
    pub(crate) fn value(&self) -> Option<&[u8]> {
        match self {
            Lookup::Absent => None,
            Lookup::Pinned(value) => Some(value),
            Lookup::Counted(block, range) => Some(&block[range.clone()]),
        }
    }
}

/// The machine: the position of the search, and the blocks it waits for.
#[derive(Debug)]
pub(crate) struct Get {
    at: SearchPosition,
    /// Number of runs before the present one.
    passed: usize,
    found: FoundTables,
    waits: Waits,
}

/// The blocks that a get waits for.
#[derive(Debug)]
enum Waits {
    Nothing,
    /// Not always the next block needed: a page may have become pinned in memory since.
    Block(BlockAddress),
    /// `Get::at` is behind the last lane.
    Lanes(Box<Lanes>),
}

/// For the first runs, the number of the table that may hold the key; found once, when the filters are
/// prefetched.
type FoundTables = [u32; FOUND_RUNS];
/// Number of runs for which tables are found before the search begins; most trees have no more.
const FOUND_RUNS: usize = 4;
const NO_TABLE: u32 = u32::MAX;

thread_local! {
    /// The number of the run in whose data block this thread's last get ended, or for which it waited first,
    /// in any tree of any store. A guess: it decides which memory is prefetched, and never a result.
    static LAST_FOUND: Cell<usize> = const { Cell::new(NOWHERE) };
}
/// The last get ended in no data block.
const NOWHERE: usize = usize::MAX;

impl Get {
    /// Searches as far as memory goes; for a get that takes no turns with others.
    pub(crate) fn start<'p, T: Tracer>(
        op: &Op<'_>,
        view: &'p View,
        cache: &'p Cache,
        pin: &'p Pin,
        tracer: &mut T,
    ) -> (Get, MachineStep<Reads, Result<Lookup<'p>>>) {
        debug_assert!(!T::TOUCHES, "gets that take turns call begin");
        let tree = view.version.tree(op.tree);
        let mut get = Get::begin(op, view, tree);
        let ahead = if T::WIDE { tree.and_then(|tree| get.look_ahead(op, tree)) } else { None };
        tracer.enter(Stage::MtGet, 0);
        let step =
            get.search(view, tree, &mut ProbeArgs { op, cache, pin, tracer, tree, answer: None, ahead });
        let found = if matches!(get.at.seek, Seek::Data(_)) { get.passed } else { NOWHERE };
        // A thread that is ending may have lost its thread-locals: then there are no guesses.
        let _ = LAST_FOUND.try_with(|last| last.set(found));
        (get, step)
    }

    /// Prefetches the fence line in the run that had the key of this thread's last get, while the filters'
    /// lines are being fetched. If one of the first runs has most keys, this turns two memory waits into one.
    /// It is wasted for a key that is not found.
    #[inline(always)]
    pub(super) fn look_ahead<'v>(&self, op: &Op<'_>, tree: &'v Tree) -> Option<(&'v TableReader, FenceLine)> {
        let number = LAST_FOUND.try_with(Cell::get).ok()?;
        let found = *self.found.get(number).filter(|found| **found != NO_TABLE)?;
        let run = tree.piles(op.key).flatten().nth(number)?;
        let table = &run.tables()[found as usize].table;
        Some((table, table.prefetch_fence(op.key)?))
    }

    /// The block in which the search ended, which had the newest version, if the block is in `tree`.
    pub(crate) fn data_address(&self, tree: &Tree, key: &[u8]) -> Option<BlockAddress> {
        let (Seek::Data(block) | Seek::Item(block, _)) = &self.at.seek else { return None };
        let run = tree.run(self.at.level, self.at.run, key)?;
        Some(run.tables().get(self.at.table)?.table.address_of(block))
    }

    /// A get that has prefetched the memory that it reads first, and is resumed by `touched`. `tree` is the
    /// view's version of the tree.
    #[inline]
    pub(crate) fn begin(op: &Op<'_>, view: &View, tree: Option<&Tree>) -> Get {
        Get {
            at: SearchPosition::START,
            passed: 0,
            found: find_tables(op, view, tree),
            waits: Waits::Nothing,
        }
    }

    /// Resumes after a touch. `tree` is that given to `begin`.
    #[inline(always)]
    pub(crate) fn touched<'p, T: Tracer>(
        &mut self,
        op: &Op<'_>,
        (view, tree): (&'p View, Option<&Tree>),
        cache: &'p Cache,
        pin: &'p Pin,
        tracer: &mut T,
    ) -> MachineStep<Reads, Result<Lookup<'p>>> {
        debug_assert!(matches!(self.waits, Waits::Nothing), "a get that waits is resumed");
        debug_assert!(tree.map(|tree| tree.id) == view.version.tree(op.tree).map(|tree| tree.id));
        self.search(view, tree, &mut ProbeArgs { op, cache, pin, tracer, tree, answer: None, ahead: None })
    }

    /// Resumes with a block that was asked for; blocks may come in any order. A failed read ends the get
    /// unless a newer run has the key: the failed block may hold it.
    pub(crate) fn resume<'p, T: Tracer>(
        &mut self,
        op: &Op<'_>,
        view: &'p View,
        cache: &'p Cache,
        pin: &'p Pin,
        tracer: &mut T,
        answer: Answer<BlockRef, Error>,
    ) -> MachineStep<Reads, Result<Lookup<'p>>> {
        let tree = view.version.tree(op.tree);
        let mut args = ProbeArgs { op, cache, pin, tracer, tree, answer: None, ahead: None };
        match (std::mem::replace(&mut self.waits, Waits::Nothing), answer.result) {
            (Waits::Lanes(lanes), result) if T::WIDE => {
                let answer = Answer { ask: answer.ask, result };
                return self.resume_lanes(lanes, view, &mut args, answer);
            }
            (Waits::Block(block), Ok(read)) => args.answer = Some((block, read)),
            (Waits::Block(_), Err(error)) => return MachineStep::Done(Err(error)),
            _ => unreachable!("such a get asked for nothing"),
        }
        self.search(view, tree, &mut args)
    }

    #[inline(always)]
    fn search<'p, T: Tracer>(
        &mut self,
        view: &'p View,
        tree: Option<&Tree>,
        args: &mut ProbeArgs<'_, 'p, T>,
    ) -> MachineStep<Reads, Result<Lookup<'p>>> {
        if matches!(self.at.seek, Seek::Memory) {
            if let Some(found) = in_memory(view, args) {
                return MachineStep::Done(Ok(found));
            }
            self.at.seek = Seek::Table;
        }
        let Some(tree) = tree else {
            return MachineStep::Done(Ok(Lookup::Absent));
        };
        while let Some(table) = self.candidate(tree, args) {
            match self.at.probe(table, args) {
                Probed::Not => self.next_run(),
                Probed::Touched => return MachineStep::Touch,
                Probed::Hit(found) => return MachineStep::Done(Ok(found)),
                Probed::Read(block) => return self.need(block, tree, args),
            }
        }
        MachineStep::Done(Ok(Lookup::Absent))
    }

    #[cold]
    fn need<'p, T: Tracer>(
        &mut self,
        block: BlockAddress,
        tree: &Tree,
        args: &mut ProbeArgs<'_, 'p, T>,
    ) -> MachineStep<Reads, Result<Lookup<'p>>> {
        args.tracer.enter(load_stage(block.kind), block.bytes as usize);
        if T::WIDE && self.at.lanes_max(tree, args.op) > 1 {
            return self.widen(block, tree, args);
        }
        self.waits = Waits::Block(block);
        MachineStep::Ask(Reads::from_buf([Read { ask: 0, block }]))
    }

    /// Continues until a table has an answer for the key, or needs a block; `None` behind the last run.
    #[cold]
    fn advance<'p, T: Tracer>(&mut self, tree: &Tree, args: &mut ProbeArgs<'_, 'p, T>) -> Option<Probed<'p>> {
        while let Some(table) = self.candidate(tree, args) {
            match self.at.look_into(table, args) {
                Probed::Not => self.next_run(),
                probed => return Some(probed),
            }
        }
        None
    }

    fn next_run(&mut self) {
        self.go_to_run(self.at.run + 1);
    }

    /// Goes to a later run of the level, or behind its last.
    fn go_to_run(&mut self, run: usize) {
        self.passed += run - self.at.run;
        self.at.run = run;
        self.at.seek = Seek::Table;
    }

    /// The table of the present run that may hold the key, or of the next run with such a table.
    #[inline(always)]
    fn candidate<'v, T: Tracer>(
        &mut self,
        tree: &'v Tree,
        args: &mut ProbeArgs<'_, '_, T>,
    ) -> Option<&'v TableReader> {
        args.tracer.enter(Stage::FileFind, 0);
        while self.at.level < tree.level_count() {
            let Some(run) = tree.run(self.at.level, self.at.run, args.op.key) else {
                self.at.descend();
                continue;
            };
            if matches!(self.at.seek, Seek::Table) {
                let found = match self.found.get(self.passed) {
                    Some(found) => (*found != NO_TABLE).then_some(*found as usize),
                    None => run.find(args.op.key),
                };
                let Some(table) = found else {
                    self.next_run();
                    continue;
                };
                (self.at.table, self.at.seek) = (table, Seek::Filter);
            }
            let table = &run.tables()[self.at.table].table;
            if matches!(self.at.seek, Seek::Filter) {
                args.tracer.saw(Saw::Table { level: self.at.level, run: self.at.run, table });
            }
            return Some(table);
        }
        None
    }
}

/// Finds the tables of the first runs that may hold the key. Prefetches all filter lines that the search may
/// need, of memtables and of every run's table, so that they are fetched at the same time.
fn find_tables(op: &Op<'_>, view: &View, tree: Option<&Tree>) -> FoundTables {
    view.generations.iter().for_each(|generation| generation.prefetch(op.tree, op.hash));
    let mut found = [NO_TABLE; FOUND_RUNS];
    // Two loops: fewer instructions than `flatten`.
    let mut number = 0;
    for pile in tree.into_iter().flat_map(|tree| tree.piles(op.key)) {
        for run in pile {
            if let Some(table) = run.find(op.key) {
                run.tables()[table].table.prefetch_filter(op.hash);
                if let Some(found) = found.get_mut(number) {
                    *found = u32::try_from(table).expect("a run has fewer tables");
                }
            }
            number += 1;
        }
    }
    found
}

fn in_memory<'p, T: Tracer>(view: &'p View, args: &mut ProbeArgs<'_, 'p, T>) -> Option<Lookup<'p>> {
    let op = args.op;
    for (index, generation) in view.generations.iter().enumerate() {
        if let Some(item) = generation.get(op.tree, op.key, op.hash, op.bound) {
            args.tracer.saw(Saw::Memory { generation: index, kind: item.kind });
            return Some(match item.kind {
                ItemKind::Put => Lookup::Pinned(item.value),
                ItemKind::Delete | ItemKind::DeleteRange => Lookup::Absent,
            });
        }
    }
    args.tracer.saw(Saw::NoMemory);
    None
}

fn load_stage(kind: BlockKind) -> Stage {
    match kind {
        BlockKind::Filter => Stage::FBLoad,
        BlockKind::Fence => Stage::IBLoad,
        BlockKind::Data => Stage::DBLoad,
    }
}
