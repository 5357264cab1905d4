//! A point lookup: memtable generations, then the runs of the tree, newest first; the first version found
//! decides.
//!
//! One machine for every driver. Between calls it keeps numbers only, never a reference into view, memtable
//! or cache.
//!
//! Invariants:
//! 1. A run is looked into only after every newer one has said no.
//! 2. A filter that says no, and a range that excludes the key, cost no read.

use crate::base::epoch::Pin;
use crate::base::error::{Error, Result};
use crate::base::hash::KeyHash;
use crate::base::id::{ItemKind, Sequence, TreeId};
use crate::base::step::{Answer, BlockAddress, BlockKind, Read, Reads, Step};
use crate::cache::{BlockRef, Cache};
use crate::format::table::data;
use crate::levels::version::Tree;
use crate::levels::view::View;
use crate::table::{Fenced, Filtered, Table};

use super::trace::{Stage, Tracer};

/// What is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op<'a> {
    pub(crate) tree: TreeId,
    pub(crate) key: &'a [u8],
    pub(crate) hash: KeyHash,
    /// Versions after it are not seen. Read after the view was pinned.
    pub(crate) bound: Sequence,
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
    Filter,
    Fence,
    Data(BlockAddress),
}

/// The machine: the run it is in, and what it does there.
#[derive(Debug)]
pub(crate) struct Get {
    level: usize,
    run: usize,
    seek: Seek,
}

/// Everything a call is given.
struct Call<'c, 'p, T> {
    op: &'c Op<'c>,
    cache: &'p Cache,
    pin: &'p Pin,
    tracer: &'c mut T,
    /// The block just read, until it is used.
    answer: Option<BlockRef>,
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
    Read(BlockAddress),
    Hit(Lookup<'p>),
}

impl Get {
    /// Searches as far as memory goes.
    pub(crate) fn start<'p, T: Tracer>(
        op: &Op<'_>,
        view: &'p View,
        cache: &'p Cache,
        pin: &'p Pin,
        tracer: &mut T,
    ) -> (Get, Step<Reads, Result<Lookup<'p>>>) {
        let mut get = Get { level: 0, run: 0, seek: Seek::Filter };
        tracer.enter(Stage::MtGet, 0);
        for generation in &view.generations {
            if let Some(item) = generation.get(op.tree, op.key, op.hash, op.bound) {
                let found = match item.kind {
                    ItemKind::Put => Lookup::Pinned(item.value),
                    ItemKind::Delete => Lookup::Absent,
                };
                return (get, Step::Done(Ok(found)));
            }
        }
        let step = get.search(view, Call { op, cache, pin, tracer, answer: None });
        (get, step)
    }

    /// Goes on with the block that was asked for. A failed read ends the get: its run may hold the key.
    pub(crate) fn resume<'p, T: Tracer>(
        &mut self,
        op: &Op<'_>,
        view: &'p View,
        cache: &'p Cache,
        pin: &'p Pin,
        tracer: &mut T,
        answer: Answer<BlockRef, Error>,
    ) -> Step<Reads, Result<Lookup<'p>>> {
        match answer.result {
            Ok(block) => self.search(view, Call { op, cache, pin, tracer, answer: Some(block) }),
            Err(error) => Step::Done(Err(error)),
        }
    }

    fn search<'p, T: Tracer>(
        &mut self,
        view: &'p View,
        mut call: Call<'_, 'p, T>,
    ) -> Step<Reads, Result<Lookup<'p>>> {
        let Some(tree) = view.version.tree(call.op.tree) else {
            return Step::Done(Ok(Lookup::Absent));
        };
        while let Some(table) = self.candidate(tree, &mut call) {
            match self.probe(table, &mut call) {
                Ok(Probed::Not) => self.next_run(),
                Ok(Probed::Hit(found)) => return Step::Done(Ok(found)),
                Ok(Probed::Read(block)) => {
                    call.tracer.enter(load_stage(block.kind), block.bytes as usize);
                    return Step::Ask(vec![Read { ask: 0, block }]);
                }
                Err(error) => return Step::Done(Err(error)),
            }
        }
        Step::Done(Ok(Lookup::Absent))
    }

    fn next_run(&mut self) {
        self.run += 1;
        self.seek = Seek::Filter;
    }

    /// The table of the present run that may hold the key, or of the next run that has one.
    fn candidate<'v, T: Tracer>(&mut self, tree: &'v Tree, call: &mut Call<'_, '_, T>) -> Option<&'v Table> {
        call.tracer.enter(Stage::FileFind, 0);
        while self.level < tree.levels().len() {
            match tree.run(self.level, self.run) {
                None => (self.level, self.run) = (self.level + 1, 0),
                Some(run) => match run.find(call.op.key) {
                    Some(table) => return Some(table),
                    None => self.next_run(),
                },
            }
        }
        None
    }

    fn probe<'p, T: Tracer>(&mut self, table: &Table, call: &mut Call<'_, 'p, T>) -> Result<Probed<'p>> {
        if self.seek == Seek::Filter {
            match self.filter(table, call)? {
                Filtered::No => return Ok(Probed::Not),
                Filtered::Need(block) => return Ok(Probed::Read(block)),
                Filtered::Maybe => self.seek = Seek::Fence,
            }
        }
        if self.seek == Seek::Fence {
            match self.fence(table, call)? {
                Fenced::Need(block) => return Ok(Probed::Read(block)),
                Fenced::Block(block) => self.seek = Seek::Data(block),
            }
        }
        let Seek::Data(address) = self.seek else { unreachable!("filter and fence were passed above") };
        let Some(block) = call.block(&address) else {
            return Ok(Probed::Read(address));
        };
        call.tracer.enter(Stage::DBSeek, address.bytes as usize);
        let Some(found) = data::find(block.bytes(), call.op.key, call.op.hash.block_tag()) else {
            return Ok(Probed::Not);
        };
        Ok(Probed::Hit(match (found.kind, block) {
            (ItemKind::Delete, _) => Lookup::Absent,
            (ItemKind::Put, Block::Pinned(bytes)) => Lookup::Pinned(&bytes[found.value]),
            (ItemKind::Put, Block::Counted(block)) => Lookup::Counted(block, found.value),
        }))
    }

    fn filter<T: Tracer>(&mut self, table: &Table, call: &mut Call<'_, '_, T>) -> Result<Filtered> {
        call.tracer.enter(Stage::FBMatch, 64);
        match table.filter(call.op.hash, None) {
            Filtered::Need(address) => match call.block(&address) {
                None => Ok(Filtered::Need(address)),
                Some(page) => Ok(table.filter(call.op.hash, Some(page.bytes()))),
            },
            known => Ok(known),
        }
    }

    fn fence<T: Tracer>(&mut self, table: &Table, call: &mut Call<'_, '_, T>) -> Result<Fenced> {
        call.tracer.enter(Stage::IBSeek, 0);
        match table.fence(call.op.key, None) {
            Fenced::Block(block) => Ok(Fenced::Block(block)),
            Fenced::Need(address) => match call.block(&address) {
                None => Ok(Fenced::Need(address)),
                Some(page) => Ok(table.fence(call.op.key, Some(page.bytes()))),
            },
        }
    }
}

impl<'p, T: Tracer> Call<'_, 'p, T> {
    /// The block, if it was just read or is in the cache.
    fn block(&mut self, address: &BlockAddress) -> Option<Block<'p>> {
        match self.answer.take() {
            Some(block) => Some(Block::Counted(block)),
            None => self.cache.lookup(address, self.pin).map(Block::Pinned),
        }
    }
}

fn load_stage(kind: BlockKind) -> Stage {
    match kind {
        BlockKind::Filter => Stage::FBLoad,
        BlockKind::Fence => Stage::IBLoad,
        BlockKind::Data => Stage::DBLoad,
    }
}
