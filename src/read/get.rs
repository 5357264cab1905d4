//! A point lookup: memtable generations, then the runs of the tree, newest first; the first version found
//! decides.
//!
//! One machine for every driver. Between calls it keeps numbers only, never a reference into view, memtable
//! or cache.
//!
//! Invariants:
//! 1. A run is looked into only after every newer one has said no.
//! 2. A filter that says no, and bounds that exclude the key, cost no read; nor do fences that tell large
//!    values' keys.
//! 3. A range tombstone of a run that covers the key ends the search, unless the run has an item of the key.

use crate::base::epoch::Pin;
use crate::base::error::{Error, Result};
use crate::base::hash::KeyHash;
use crate::base::id::{ItemKind, Sequence, TreeId};
use crate::base::step::{Answer, BlockAddress, BlockKind, Read, Reads, Step};
use crate::cache::{BlockRef, Cache, Near};
use crate::format::table::data;
use crate::levels::version::Tree;
use crate::levels::view::View;
use crate::table::{DataBlock, FenceLine, Fenced, Filtered, Table};

use super::trace::{Saw, Stage, Tracer};

/// What is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op<'a> {
    pub(crate) tree: TreeId,
    pub(crate) key: &'a [u8],
    pub(crate) hash: KeyHash,
    /// Versions after it are not seen. Read after the view was pinned.
    pub(crate) bound: Sequence,
    pub(crate) wants: Wants,
}

/// What a lookup is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wants {
    Value,
    /// Whether there is a value: of a large one, known without reading it, the value found is empty.
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

/// What the block that comes next is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seek {
    /// The memtable generations.
    Memory,
    /// A table of the run.
    Table,
    Filter,
    Fence,
    /// The line of the fences, which was asked for.
    FenceLine(FenceLine),
    Data(DataBlock),
    /// The first item with the key's tag, which was asked for; past all if there is none.
    Item(DataBlock, usize),
}

/// The machine: the run it is in, and what it does there.
#[derive(Debug)]
pub(crate) struct Get {
    level: usize,
    run: usize,
    /// The table of the run, once it is found.
    table: usize,
    seek: Seek,
    /// What prefetches have brought of the data block.
    near: Near,
    /// Runs before the present one.
    passed: usize,
    found: FoundTables,
    /// What was last asked for. Not always what is needed next: a page may have come to stay in memory since.
    asked: Option<BlockAddress>,
}

/// The tables of the first runs that may hold the key, by number; found once, when their filters are asked
/// for.
type FoundTables = [u32; FOUND_RUNS];
/// Runs that are looked at before the search begins; most trees have no more.
const FOUND_RUNS: usize = 4;
const NO_TABLE: u32 = u32::MAX;

/// Everything a call is given.
struct Call<'c, 'p, T> {
    op: &'c Op<'c>,
    cache: &'p Cache,
    pin: &'p Pin,
    tracer: &'c mut T,
    /// The block just read, until it is used.
    answer: Option<(BlockAddress, BlockRef)>,
}

/// A block at hand.
enum Block<'p> {
    Pinned(&'p [u8]),
    Counted(BlockRef),
}

impl Block<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Block::Pinned(bytes) => bytes,
            Block::Counted(block) => block,
        }
    }
}

/// What looking into one table came to.
enum Probed<'p> {
    Not,
    /// A prefetch is under way.
    Touched,
    Read(BlockAddress),
    Hit(Lookup<'p>),
}

/// Lines of a block that are looked at before the item: its header and tags.
const TAG_LINES: usize = 2;

impl Get {
    /// Searches as far as memory goes.
    pub(crate) fn start<'p, T: Tracer>(
        op: &Op<'_>,
        view: &'p View,
        cache: &'p Cache,
        pin: &'p Pin,
        tracer: &mut T,
    ) -> (Get, Step<Reads, Result<Lookup<'p>>>) {
        let mut get = Get {
            level: 0,
            run: 0,
            table: 0,
            seek: Seek::Memory,
            near: Near::Nothing,
            passed: 0,
            found: find_tables(op, view),
            asked: None,
        };
        tracer.enter(Stage::MtGet, 0);
        if T::TOUCHES {
            return (get, Step::Touch);
        }
        let step = get.search(view, Call { op, cache, pin, tracer, answer: None });
        (get, step)
    }

    /// Goes on after a touch, or with the block that was asked for. A failed read ends the get: its run may
    /// hold the key.
    pub(crate) fn resume<'p, T: Tracer>(
        &mut self,
        op: &Op<'_>,
        view: &'p View,
        cache: &'p Cache,
        pin: &'p Pin,
        tracer: &mut T,
        answer: Option<Answer<BlockRef, Error>>,
    ) -> Step<Reads, Result<Lookup<'p>>> {
        match answer.map(|answer| answer.result).transpose() {
            Ok(block) => {
                let answer = self.asked.take().zip(block);
                self.search(view, Call { op, cache, pin, tracer, answer })
            }
            Err(error) => Step::Done(Err(error)),
        }
    }

    fn search<'p, T: Tracer>(
        &mut self,
        view: &'p View,
        mut call: Call<'_, 'p, T>,
    ) -> Step<Reads, Result<Lookup<'p>>> {
        if self.seek == Seek::Memory {
            if let Some(found) = in_memory(view, &mut call) {
                return Step::Done(Ok(found));
            }
            self.seek = Seek::Table;
        }
        let Some(tree) = view.version.tree(call.op.tree) else {
            return Step::Done(Ok(Lookup::Absent));
        };
        while let Some(table) = self.candidate(tree, &mut call) {
            match self.probe(table, &mut call) {
                Ok(Probed::Not) => self.next_run(),
                Ok(Probed::Touched) => return Step::Touch,
                Ok(Probed::Hit(found)) => return Step::Done(Ok(found)),
                Ok(Probed::Read(block)) => {
                    call.tracer.enter(load_stage(block.kind), block.bytes as usize);
                    self.asked = Some(block);
                    return Step::Ask(vec![Read { ask: 0, block }]);
                }
                Err(error) => return Step::Done(Err(error)),
            }
        }
        Step::Done(Ok(Lookup::Absent))
    }

    fn next_run(&mut self) {
        self.run += 1;
        self.passed += 1;
        self.seek = Seek::Table;
    }

    /// The table of the present run that may hold the key, or of the next run that has one.
    fn candidate<'v, T: Tracer>(&mut self, tree: &'v Tree, call: &mut Call<'_, '_, T>) -> Option<&'v Table> {
        call.tracer.enter(Stage::FileFind, 0);
        while self.level < tree.levels().len() {
            let Some(run) = tree.run(self.level, self.run) else {
                (self.level, self.run) = (self.level + 1, 0);
                continue;
            };
            if self.seek == Seek::Table {
                let found = match self.found.get(self.passed) {
                    Some(found) => (*found != NO_TABLE).then_some(*found as usize),
                    None => run.find(call.op.key),
                };
                let Some(table) = found else {
                    self.next_run();
                    continue;
                };
                (self.table, self.seek) = (table, Seek::Filter);
            }
            let table = &run.tables()[self.table].table;
            if self.seek == Seek::Filter {
                call.tracer.saw(Saw::Table { level: self.level, run: self.run, table });
            }
            return Some(table);
        }
        None
    }

    /// Issues the next prefetch for what `seek` looks at; `false` if there is none to issue.
    fn touch<T: Tracer>(&mut self, table: &Table, call: &Call<'_, '_, T>) -> bool {
        if !T::TOUCHES || call.answer.is_some() {
            return false;
        }
        match self.seek {
            Seek::Fence => match table.prefetch_fence(call.op.key) {
                Some(line) => self.seek = Seek::FenceLine(line),
                None => return false,
            },
            Seek::Data(block) if self.near != Near::Block => {
                self.near = call.cache.prefetch(&block.address, table.place(&block), self.near, TAG_LINES);
            }
            Seek::Data(block) => {
                let Some(bytes) = call.cached(table, &block) else { return false };
                let item = data::prefetch_item(bytes, call.op.hash.block_tag());
                self.seek = Seek::Item(block, item.unwrap_or(usize::MAX));
                return item.is_some();
            }
            _ => return false,
        }
        true
    }

    fn probe<'p, T: Tracer>(&mut self, table: &Table, call: &mut Call<'_, 'p, T>) -> Result<Probed<'p>> {
        if self.seek == Seek::Filter {
            if !table.spans(call.op.key) {
                return Ok(call.absent(table, Saw::NoItems));
            }
            match self.filter(table, call)? {
                Filtered::No => return Ok(call.absent(table, Saw::RuledOut)),
                Filtered::Need(block) => return Ok(Probed::Read(block)),
                Filtered::Maybe => {
                    call.tracer.saw(Saw::Maybe);
                    self.seek = Seek::Fence;
                }
            }
        }
        if matches!(self.seek, Seek::Fence | Seek::FenceLine(_)) {
            if self.touch(table, call) {
                return Ok(Probed::Touched);
            }
            match self.fence(table, call)? {
                Fenced::Need(block) => return Ok(Probed::Read(block)),
                Fenced::Not => return Ok(call.absent(table, Saw::RuledOut)),
                Fenced::Alone(_) if call.op.wants == Wants::Presence => {
                    return Ok(Probed::Hit(Lookup::Pinned(&[])));
                }
                Fenced::Alone(block) | Fenced::Block(block) => {
                    call.tracer.saw(Saw::Block(block.address));
                    (self.seek, self.near) = (Seek::Data(block), Near::Nothing);
                }
            }
        }
        if self.touch(table, call) {
            return Ok(Probed::Touched);
        }
        let (wanted, first) = match self.seek {
            Seek::Data(block) => (block, 0),
            Seek::Item(block, item) => (block, item),
            _ => unreachable!("filter and fence were passed above"),
        };
        let Some(block) = call.data(table, &wanted) else {
            return Ok(Probed::Read(wanted.address));
        };
        call.tracer.enter(Stage::DBSeek, wanted.address.bytes as usize);
        let Some(found) = data::find(block.bytes(), call.op.key, call.op.hash.block_tag(), first) else {
            return Ok(call.absent(table, Saw::NoItem));
        };
        call.tracer.saw(Saw::Item(found.kind));
        Ok(Probed::Hit(match (found.kind, block) {
            (ItemKind::Delete | ItemKind::DeleteRange, _) => Lookup::Absent,
            (ItemKind::Put, Block::Pinned(bytes)) => Lookup::Pinned(&bytes[found.value]),
            (ItemKind::Put, Block::Counted(block)) => Lookup::Counted(block, found.value),
        }))
    }

    fn filter<T: Tracer>(&mut self, table: &Table, call: &mut Call<'_, '_, T>) -> Result<Filtered> {
        call.tracer.enter(Stage::FBMatch, 64);
        match table.filter(call.op.hash, None) {
            Filtered::Need(address) => match call.page(&address) {
                None => Ok(Filtered::Need(address)),
                Some(page) => Ok(table.filter(call.op.hash, Some(page.bytes()))),
            },
            known => Ok(known),
        }
    }

    fn fence<T: Tracer>(&mut self, table: &Table, call: &mut Call<'_, '_, T>) -> Result<Fenced> {
        call.tracer.enter(Stage::IBSeek, 0);
        if let Seek::FenceLine(line) = self.seek {
            return Ok(table.fence_in(call.op.key, line));
        }
        match table.fence(call.op.key, None) {
            Fenced::Need(address) => match call.page(&address) {
                None => Ok(Fenced::Need(address)),
                Some(page) => Ok(table.fence(call.op.key, Some(page.bytes()))),
            },
            known => Ok(known),
        }
    }
}

impl<'p, T: Tracer> Call<'_, 'p, T> {
    /// The page, if it was just read or is in the cache.
    fn page(&mut self, address: &BlockAddress) -> Option<Block<'p>> {
        self.answered(address).or_else(|| self.cache.lookup(address, self.pin).map(Block::Pinned))
    }

    /// As `page`, of a data block of the table.
    fn data(&mut self, table: &Table, block: &DataBlock) -> Option<Block<'p>> {
        self.answered(&block.address).or_else(|| self.cached(table, block).map(Block::Pinned))
    }

    fn answered(&mut self, address: &BlockAddress) -> Option<Block<'p>> {
        let (asked, block) = self.answer.take()?;
        (asked == *address).then_some(Block::Counted(block))
    }

    fn cached(&self, table: &Table, block: &DataBlock) -> Option<&'p [u8]> {
        match table.place(block) {
            Some(place) => self.cache.lookup_at(&block.address, place, self.pin),
            None => self.cache.lookup(&block.address, self.pin),
        }
    }

    /// What a table says of a key that none of its items has: its range tombstones hide what older runs have.
    fn absent(&mut self, table: &Table, why: Saw<'_>) -> Probed<'p> {
        self.tracer.saw(why);
        if table.ranges().covers(self.op.key) {
            self.tracer.saw(Saw::Hidden);
            return Probed::Hit(Lookup::Absent);
        }
        Probed::Not
    }
}

/// The tables of the first runs that may hold the key. And asks the processor for the lines of all filters
/// that may be asked about it, so that they come at once: of memtables and of every run's table.
fn find_tables(op: &Op<'_>, view: &View) -> FoundTables {
    view.generations.iter().for_each(|generation| generation.prefetch(op.tree, op.hash));
    let mut found = [NO_TABLE; FOUND_RUNS];
    let levels = view.version.tree(op.tree).map_or(&[][..], Tree::levels);
    for (number, run) in levels.iter().flatten().enumerate() {
        let Some(table) = run.find(op.key) else { continue };
        run.tables()[table].table.prefetch_filter(op.hash);
        if let Some(found) = found.get_mut(number) {
            *found = u32::try_from(table).expect("a run has fewer tables");
        }
    }
    found
}

fn in_memory<'p, T: Tracer>(view: &'p View, call: &mut Call<'_, 'p, T>) -> Option<Lookup<'p>> {
    let op = call.op;
    let mut generations = view.generations.iter().enumerate();
    let found = generations.find_map(|(index, generation)| {
        generation.get(op.tree, op.key, op.hash, op.bound).map(|item| (index, item))
    });
    let Some((generation, item)) = found else {
        call.tracer.saw(Saw::NoMemory);
        return None;
    };
    call.tracer.saw(Saw::Memory { generation, kind: item.kind });
    Some(match item.kind {
        ItemKind::Put => Lookup::Pinned(item.value),
        ItemKind::Delete | ItemKind::DeleteRange => Lookup::Absent,
    })
}

fn load_stage(kind: BlockKind) -> Stage {
    match kind {
        BlockKind::Filter => Stage::FBLoad,
        BlockKind::Fence => Stage::IBLoad,
        BlockKind::Data => Stage::DBLoad,
    }
}
