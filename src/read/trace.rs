//! The eight steps of a get, by the names of TridentKV (Lu et al., TPDS 2021, section 2), and their tracers.
//! A tracer type also selects whether the get takes turns with others.

use crate::base::id::ItemKind;
use crate::base::step::BlockAddress;
use crate::table::TableReader;

/// A step of a get. Memory first, then for each table that may hold the key: filter, index, data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Search of the memtable generations.
    MtGet,
    /// Choice of the table in the next run that may hold the key.
    FileFind,
    /// Wait for a filter page that is not in memory.
    FBLoad,
    /// Lookup in the filter.
    FBMatch,
    /// Wait for a fence page that is not in memory.
    IBLoad,
    /// Choice of the block that may hold the key.
    IBSeek,
    /// Wait for a data block that is not in the cache.
    DBLoad,
    /// Search of the data block.
    DBSeek,
}

impl Stage {
    pub(crate) const ALL: [Stage; 8] = [
        Stage::MtGet,
        Stage::FileFind,
        Stage::FBLoad,
        Stage::FBMatch,
        Stage::IBLoad,
        Stage::IBSeek,
        Stage::DBLoad,
        Stage::DBSeek,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::MtGet => "MtGet",
            Stage::FileFind => "FileFind",
            Stage::FBLoad => "FBLoad",
            Stage::FBMatch => "FBMatch",
            Stage::IBLoad => "IBLoad",
            Stage::IBSeek => "IBSeek",
            Stage::DBLoad => "DBLoad",
            Stage::DBSeek => "DBSeek",
        }
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Saw<'t> {
    /// A generation, counted from the newest, has an item or a covering range tombstone.
    Memory { generation: usize, kind: ItemKind },
    /// No generation has either.
    NoMemory,
    /// The bounds of a table include the key; runs are counted from the newest of the level.
    Table { level: usize, run: usize, table: &'t TableReader },
    /// The key is outside the table's items: only the range tombstones are searched.
    NoItems,
    /// The filter, or the fences, exclude the key.
    RuledOut,
    /// The filter lets the key pass.
    Maybe,
    /// The filter page is not in memory, and was not read: the data block gives the same answer.
    Unasked,
    /// The block that may hold the key.
    Block(BlockAddress),
    /// The block has an item of the key.
    Item(ItemKind),
    /// The block has no item of the key.
    NoItem,
    /// A range tombstone of the table hides the key in older runs.
    Hidden,
}

/// Receives each step that a get enters, and the bytes that it reads there.
pub(crate) trait Tracer {
    /// Whether the get returns `Touch` before it reads memory that is likely not in the CPU's caches, so that
    /// other gets run meanwhile. Such a get starts by `Get::begin` instead of `Get::start`.
    const TOUCHES: bool = false;

    /// Whether the get may wait for several runs at once and prefetches memory of later steps. Its steps are
    /// then reported in no order.
    const WIDE: bool = false;

    fn enter(&mut self, stage: Stage, bytes: usize);

    /// Receives the result of a step.
    #[inline(always)]
    fn saw(&mut self, _saw: Saw<'_>) {}
}

/// Traces nothing: the calls compile to nothing.
pub(crate) struct NoTrace;

impl Tracer for NoTrace {
    const WIDE: bool = true;

    #[inline(always)]
    fn enter(&mut self, _stage: Stage, _bytes: usize) {}
}

/// Traces nothing, in a get that takes turns with others.
pub(crate) struct TakeTurns;

impl Tracer for TakeTurns {
    const TOUCHES: bool = true;

    #[inline(always)]
    fn enter(&mut self, _stage: Stage, _bytes: usize) {}
}
