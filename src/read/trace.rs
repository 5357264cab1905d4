//! The eight steps of a get, by the names of TridentKV (Lu et al., TPDS 2021, section 2), and who listens to
//! them; and whether the get is one of many that take turns.

use crate::base::id::ItemKind;
use crate::base::step::BlockAddress;
use crate::table::Table;

/// A step of a get. Memory first, then for each table that may hold the key: filter, index, data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Search of the memtable generations.
    MtGet,
    /// Which table of the next run may hold the key.
    FileFind,
    /// Wait for a filter page that is not in memory.
    FBLoad,
    /// Look into the filter.
    FBMatch,
    /// Wait for a fence page that is not in memory.
    IBLoad,
    /// Which block holds the key.
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

/// What a step came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Saw<'t> {
    /// A generation, counted from the newest, has this of the key.
    Memory { generation: usize, kind: ItemKind },
    /// No generation has anything of it.
    NoMemory,
    /// A table whose bounds have the key; counted from the newest run of the level.
    Table { level: usize, run: usize, table: &'t Table },
    /// No item of the table is near the key: only its range tombstones are asked.
    NoItems,
    /// The filter, or the fences, rule the key out.
    RuledOut,
    /// The filter lets it pass.
    Maybe,
    /// Its filter is not in memory, and the block says all that it would.
    Unasked,
    /// The block to look into.
    Block(BlockAddress),
    /// The block's item of the key.
    Item(ItemKind),
    /// The block has none.
    NoItem,
    /// A range tombstone of the table hides what older runs have.
    Hidden,
}

/// Told when a get enters a step, and how many bytes it looks at there.
pub(crate) trait Tracer {
    /// Whether the get stops with a `Touch` before it looks at memory that may be far away, so that others go
    /// on meanwhile. Before the first such look it is begun, and not started.
    const TOUCHES: bool = false;

    /// Whether the get may wait for several runs at once, and asks the processor for what a later step looks
    /// at. Its steps are told in no order then.
    const WIDE: bool = false;

    fn enter(&mut self, stage: Stage, bytes: usize);

    /// Told what the step came to.
    #[inline(always)]
    fn saw(&mut self, _saw: Saw<'_>) {}
}

/// Listens to nothing: the calls compile to nothing.
pub(crate) struct NoTrace;

impl Tracer for NoTrace {
    const WIDE: bool = true;

    #[inline(always)]
    fn enter(&mut self, _stage: Stage, _bytes: usize) {}
}

/// Listens to nothing, in a get that takes turns with others.
pub(crate) struct TakeTurns;

impl Tracer for TakeTurns {
    const TOUCHES: bool = true;

    #[inline(always)]
    fn enter(&mut self, _stage: Stage, _bytes: usize) {}
}
