//! Searching one table in a get: filter, fences, data block, each as far as it is in memory.
//!
//! It returns the table's answer for the key, or the block needed to continue; it goes to no other run.

use crate::base::epoch::Pin;
use crate::base::id::ItemKind;
use crate::base::step::BlockAddress;
use crate::cache::{BlockRef, Cache, Near};
use crate::format::table::{data, filter};
use crate::levels::version::Tree;
use crate::read::trace::{Saw, Stage, Tracer};
use crate::table::{DataBlock, FenceLine, Fenced, Filtered, TableReader};

use super::{GetMode, Lookup, Op};

/// The next step of the search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seek {
    /// Search the memtable generations.
    Memory,
    /// Find a table of the run.
    Table,
    Filter,
    Fence,
    /// The prefetched fence line.
    FenceLine(FenceLine),
    Data(DataBlock),
    /// The prefetched first item with the key's tag.
    Item(DataBlock, usize),
    /// No item of the block has the key's tag.
    NoItem,
}

/// The position of a search: the run, and the step in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchPosition {
    pub(super) level: usize,
    pub(super) run: usize,
    /// The table of the run, once it is found.
    pub(super) table: usize,
    pub(super) seek: Seek,
    /// The part of the data block that prefetches have covered.
    near: Near,
    filter_results: FilterResults,
}

/// Results of a filter page by column, one bit for each run of the present node.
#[derive(Clone, Copy, Debug)]
struct FilterResults {
    /// Runs with a known result.
    known: u64,
    /// Runs that may have the key.
    may_have: u64,
}

impl FilterResults {
    const NOTHING: FilterResults = FilterResults { known: 0, may_have: 0 };

    fn set(&mut self, run: usize, may_have: bool) {
        if let Some(bit) = 1u64.checked_shl(run as u32) {
            self.known |= bit;
            self.may_have |= if may_have { bit } else { 0 };
        }
    }

    #[inline]
    fn of(&self, run: usize) -> Option<bool> {
        if self.known == 0 {
            return None;
        }
        let bit = 1u64.checked_shl(run as u32)?;
        (self.known & bit != 0).then_some(self.may_have & bit != 0)
    }
}

/// The arguments of a call.
pub(super) struct ProbeArgs<'c, 'p, T> {
    pub(super) op: &'c Op<'c>,
    pub(super) cache: &'p Cache,
    pub(super) pin: &'p Pin,
    pub(super) tracer: &'c mut T,
    pub(super) tree: Option<&'c Tree>,
    /// The block just read, until it is used.
    pub(super) answer: Option<(BlockAddress, BlockRef)>,
    /// A table whose fences were prefetched before its filter was queried.
    pub(super) ahead: Option<(&'c TableReader, FenceLine)>,
}

/// A block in memory.
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

/// The result of searching one table.
pub(super) enum Probed<'p> {
    Not,
    /// A prefetch is under way.
    Touched,
    Read(BlockAddress),
    Hit(Lookup<'p>),
}

/// The filter's answer for the key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filter {
    No,
    Maybe,
    /// It was not queried.
    Unasked,
}

impl Filter {
    fn of(may_have: bool) -> Filter {
        if may_have { Filter::Maybe } else { Filter::No }
    }
}

/// Cache lines of a block that are read before the item: its header and tags.
const TAG_LINES: usize = 2;

impl SearchPosition {
    pub(super) const START: SearchPosition = SearchPosition {
        level: 0,
        run: 0,
        table: 0,
        seek: Seek::Memory,
        near: Near::Nothing,
        filter_results: FilterResults::NOTHING,
    };

    /// The first run of the next level.
    #[inline]
    pub(super) fn descend(&mut self) {
        (self.level, self.run, self.filter_results) = (self.level + 1, 0, FilterResults::NOTHING);
    }

    /// The table being searched, once it is found.
    pub(super) fn table<'v>(&self, tree: &'v Tree, key: &[u8]) -> &'v TableReader {
        let run = tree.run(self.level, self.run, key).expect("the view of a get stays as it is");
        &run.tables()[self.table].table
    }

    /// Issues the next prefetch for the step `seek`; `false` if there is none to issue.
    #[inline(always)]
    fn touch<T: Tracer>(&mut self, table: &TableReader, args: &ProbeArgs<'_, '_, T>) -> bool {
        if !T::TOUCHES || args.answer.is_some() {
            return false;
        }
        match self.seek {
            Seek::Fence => match table.prefetch_fence(args.op.key) {
                Some(line) => self.seek = Seek::FenceLine(line),
                None => return false,
            },
            Seek::Data(block) if !matches!(self.near, Near::Block) => {
                let (address, hint) = (table.address_of(&block), table.frame_hint(&block));
                self.near = args.cache.prefetch(&address, hint, self.near, TAG_LINES);
            }
            Seek::Data(block) => {
                let Some(bytes) = args.cached(table, &block, &table.address_of(&block)) else { return false };
                let item = data::prefetch_item(bytes, args.op.hash.block_tag());
                self.seek = item.map_or(Seek::NoItem, |item| Seek::Item(block, item));
                return item.is_some();
            }
            _ => return false,
        }
        true
    }

    /// As `probe`, out of line, away from gets answered from memory.
    #[cold]
    #[inline(never)]
    pub(super) fn look_into<'p, T: Tracer>(
        &mut self,
        table: &TableReader,
        args: &mut ProbeArgs<'_, 'p, T>,
    ) -> Probed<'p> {
        self.probe(table, args)
    }

    /// Searches the table as far as memory goes.
    #[inline(always)]
    pub(super) fn probe<'p, T: Tracer>(
        &mut self,
        table: &TableReader,
        args: &mut ProbeArgs<'_, 'p, T>,
    ) -> Probed<'p> {
        if matches!(self.seek, Seek::Filter) {
            if !table.spans(args.op.key) {
                return args.absent(table, Saw::NoItems);
            }
            args.tracer.enter(Stage::FBMatch, 64);
            // Converted at once: moving a value of which only the tag was written stalls the processor.
            let filter = match self.filter_results.of(self.run) {
                Some(may_have) => Filter::of(may_have),
                None => match table.filter(args.op.key, args.op.hash, None) {
                    Filtered::No => Filter::No,
                    Filtered::Maybe => Filter::Maybe,
                    Filtered::Need(page) => match self.filter_read(table, args, &page) {
                        Some(filter) => filter,
                        None => return Probed::Read(page),
                    },
                },
            };
            match filter {
                Filter::No => return args.absent(table, Saw::RuledOut),
                Filter::Maybe => args.tracer.saw(Saw::Maybe),
                Filter::Unasked => args.tracer.saw(Saw::Unasked),
            }
            self.seek = Seek::Fence;
        }
        if matches!(self.seek, Seek::Fence | Seek::FenceLine(_)) {
            if self.touch(table, args) {
                return Probed::Touched;
            }
            match self.fence(table, args) {
                Fenced::Need(block) => return Probed::Read(block),
                Fenced::Not => return args.absent(table, Saw::RuledOut),
                Fenced::Alone(_) if args.op.mode == GetMode::Presence => {
                    return Probed::Hit(Lookup::Pinned(&[]));
                }
                Fenced::Alone(block) | Fenced::Block(block) => {
                    args.tracer.saw(Saw::Block(table.address_of(&block)));
                    (self.seek, self.near) = (Seek::Data(block), Near::Nothing);
                }
            }
        }
        if self.touch(table, args) {
            return Probed::Touched;
        }
        let (wanted, asked) = match self.seek {
            Seek::Data(block) => (block, None),
            Seek::Item(block, item) => (block, Some(item)),
            Seek::NoItem => return args.absent(table, Saw::NoItem),
            _ => unreachable!("filter and fence were passed above"),
        };
        let address = table.address_of(&wanted);
        let Some(block) = args.data(table, &wanted, &address) else { return Probed::Read(address) };
        args.tracer.enter(Stage::DBSeek, address.bytes as usize);
        let found = data::find(block.bytes(), args.op.key, args.op.hash.block_tag(), asked);
        if let Block::Counted(_) = block {
            table.note_absent(found.is_none());
        }
        let Some(found) = found else {
            return args.absent(table, Saw::NoItem);
        };
        args.tracer.saw(Saw::Item(found.kind));
        Probed::Hit(match (found.kind, block) {
            (ItemKind::Delete | ItemKind::DeleteRange, _) => Lookup::Absent,
            (ItemKind::Put, Block::Pinned(bytes)) => Lookup::Pinned(&bytes[found.value]),
            (ItemKind::Put, Block::Counted(block)) => Lookup::Counted(block, found.value),
        })
    }

    /// Queries the filter page, if it was just read or is cached. Otherwise the page is needed (`None`), or
    /// is skipped: in the last run the data block gives the same answer for the same read. It is not skipped
    /// in a table where most keys looked up are absent.
    #[inline(never)]
    fn filter_read<T: Tracer>(
        &mut self,
        table: &TableReader,
        args: &mut ProbeArgs<'_, '_, T>,
        address: &BlockAddress,
    ) -> Option<Filter> {
        let Some(page) = args.page(address) else {
            let is_last = args.tree.is_some_and(|tree| self.is_in_last_run(tree, args.op.key));
            let is_done_without = is_last && !table.is_mostly_absent();
            return is_done_without.then_some(Filter::Unasked);
        };
        self.take_told(table, args, page.bytes());
        let is_no = table.filter(args.op.key, args.op.hash, Some(page.bytes())) == Filtered::No;
        if is_no && matches!(page, Block::Counted(_)) {
            table.note_absent(true);
        }
        Some(if is_no { Filter::No } else { Filter::Maybe })
    }

    /// Stores the results of a page by column for older runs of the node.
    fn take_told<T: Tracer>(&mut self, table: &TableReader, args: &ProbeArgs<'_, '_, T>, page: &[u8]) {
        let (key, hash) = (args.op.key, filter::field(args.op.hash));
        let Some((page, column)) = table.tells(key, page) else { return };
        let pile = args.tree.and_then(|tree| tree.piles(key).nth(self.level)).unwrap_or_default();
        let older = pile.iter().enumerate().skip(self.run + 1);
        let mut older = older.map(|(run, tables)| (run, tables.tables()[0].table.unique_name()));
        // Page and pile list their runs in the order of age; either may have runs that the other lacks.
        for (number, may_have) in page.tell(column, hash).enumerate().skip(1) {
            let Some(may_have) = may_have else { continue };
            let (name, mut rest) = (page.run(number).name, older.clone());
            if let Some((run, _)) = rest.find(|(_, run)| *run == name) {
                self.filter_results.set(run, may_have);
                older = rest;
            }
        }
    }

    fn is_in_last_run(&self, tree: &Tree, key: &[u8]) -> bool {
        let last = tree.piles(key).enumerate().filter(|(_, runs)| !runs.is_empty()).last();
        last.is_some_and(|(level, runs)| self.level == level && self.run + 1 == runs.len())
    }

    #[inline(always)]
    fn fence<T: Tracer>(&self, table: &TableReader, args: &mut ProbeArgs<'_, '_, T>) -> Fenced {
        args.tracer.enter(Stage::IBSeek, 0);
        if let Seek::FenceLine(line) = self.seek {
            return table.fence_in(args.op.key, line);
        }
        if let Some((ahead, line)) = args.ahead
            && std::ptr::eq(ahead, table)
        {
            return table.fence_in(args.op.key, line);
        }
        match table.fence(args.op.key, None) {
            Fenced::Need(address) => args.fence_read(table, &address),
            known => known,
        }
    }
}

impl<'p, T: Tracer> ProbeArgs<'_, 'p, T> {
    /// Searches the page of fences, if it was just read or is cached; otherwise returns that it is needed.
    #[inline(never)]
    fn fence_read(&mut self, table: &TableReader, address: &BlockAddress) -> Fenced {
        match self.page(address) {
            None => Fenced::Need(*address),
            Some(page) => table.fence(self.op.key, Some(page.bytes())),
        }
    }

    /// The page, if it was just read or is in the cache.
    fn page(&mut self, address: &BlockAddress) -> Option<Block<'p>> {
        self.answered(address).or_else(|| self.cache.lookup(address, self.pin).map(Block::Pinned))
    }

    /// As `page`, for a data block of the table.
    #[inline(always)]
    fn data(&mut self, table: &TableReader, block: &DataBlock, address: &BlockAddress) -> Option<Block<'p>> {
        self.answered(address).or_else(|| self.cached(table, block, address).map(Block::Pinned))
    }

    #[inline]
    fn answered(&mut self, address: &BlockAddress) -> Option<Block<'p>> {
        let (asked, block) = self.answer.take()?;
        (asked == *address).then_some(Block::Counted(block))
    }

    #[inline]
    fn cached(&self, table: &TableReader, block: &DataBlock, address: &BlockAddress) -> Option<&'p [u8]> {
        match table.frame_hint(block) {
            Some(hint) => self.cache.lookup_at(address, hint, self.pin),
            None => self.cache.lookup(address, self.pin),
        }
    }

    /// The answer of a table without an item of the key: its range tombstones may hide the key in older runs.
    fn absent(&mut self, table: &TableReader, why: Saw<'_>) -> Probed<'p> {
        self.tracer.saw(why);
        if table.ranges().covers(self.op.key) {
            self.tracer.saw(Saw::Hidden);
            return Probed::Hit(Lookup::Absent);
        }
        Probed::Not
    }
}
