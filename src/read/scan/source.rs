//! The sources of a scan: memtable generations and runs, each with its own position. A run's source goes from
//! table to table, and selects the blocks to read ahead. Plain values; the scan's alone.

use std::ops::Bound;

use crate::base::id::{ItemKind, Sequence, TreeId};
use crate::base::step::{AHEAD, BlockAddress, BlockKind, Direction, Read, Reads};
use crate::base::sync::Arc;
use crate::cache::{Cache, Near};
use crate::levels::gaps::Sight;
use crate::levels::version::Run;
use crate::levels::view::View;
use crate::memtable::{Generation, ItemPosition};
use crate::merge::ITEM_SEQUENCE;
use crate::table::TableCursor;

/// Most bytes that one source reads ahead at once.
const AHEAD_BYTES_MAX: usize = 4 << 20;
/// Bytes that all sources together read ahead with the first blocks, shared by the bytes of their runs. A run
/// with most of the bytes will need several blocks in a short scan, and they cost one request.
const FIRST_BYTES: u64 = 16 << 10;
/// Bytes that a source reads ahead at its second miss.
const AHEAD_BYTES_MIN: usize = 16 << 10;
const AHEAD_GROWTH: usize = 4;
/// The sum of the shares of all runs.
const SHARE_ALL: u64 = 1024;
/// From this size on a window is read by another thread, while the scan uses cached blocks. A smaller window
/// is read together with the missing block.
const APART_BYTES_MIN: usize = 256 << 10;
/// Cache lines prefetched of a block: up to the end of the keys in a block of many small items.
pub(super) const BLOCK_LINES: usize = 12;
/// The following block is prefetched this many items before it is needed.
const NEAR_ITEMS: usize = 6;
/// Least length of an uncompressed block, except the last of a table. A window of compressed ones is smaller.
const BLOCK_BYTES_MIN: usize = 4096;

/// One source.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each run of each seek")]
pub(super) enum ScanSource {
    Memory(MemorySource),
    Run(RunSource),
}

/// A memtable. The parts of its item that a match needs are copied.
pub(super) struct MemorySource {
    /// Index of the generation in the view.
    generation: usize,
    /// Valid in the view it was made for only.
    position: Option<ItemPosition>,
    key: Vec<u8>,
    sequence: Sequence,
    kind: ItemKind,
}

impl MemorySource {
    pub(super) fn at(index: usize, generation: &Generation, position: Option<ItemPosition>) -> MemorySource {
        let (key, sequence, kind) = (Vec::new(), 0, ItemKind::Put);
        let mut source = MemorySource { generation: index, position, key, sequence, kind };
        source.set(generation, position);
        source
    }

    /// The memtable it reads.
    pub(super) fn of<'v>(&self, view: &'v View) -> &'v Generation {
        &view.generations[self.generation]
    }

    pub(super) fn step(&mut self, view: &View, sight: Sight, direction: Direction) {
        let at = self.position.expect("the winner stands at an item");
        self.set(self.of(view), self.of(view).step(sight.tree, at, direction, sight.bound));
    }

    /// Seeks; with `None`, goes to its end.
    pub(super) fn seek(
        &mut self,
        view: &View,
        from: Option<Bound<&[u8]>>,
        sight: Sight,
        direction: Direction,
    ) {
        let generation = self.of(view);
        self.set(generation, from.and_then(|from| generation.seek(sight.tree, from, direction, sight.bound)));
    }

    /// The value of its current item.
    pub(super) fn value<'v>(&self, view: &'v View) -> &'v [u8] {
        self.of(view).item(self.position.expect("the winner stands at an item")).value
    }

    fn set(&mut self, generation: &Generation, position: Option<ItemPosition>) {
        self.position = position;
        if let Some(item) = position.map(|position| generation.item(position)) {
            self.key.clear();
            self.key.extend_from_slice(item.key);
            (self.sequence, self.kind) = (item.sequence, item.kind);
        }
    }
}

impl ScanSource {
    /// Bytes of the blocks that it holds.
    pub(super) fn held_bytes(&self) -> u64 {
        match self {
            ScanSource::Memory(_) => 0,
            ScanSource::Run(run) => run.cursor.as_ref().map_or(0, TableCursor::held_bytes) as u64,
        }
    }
}

/// A run, read table by table.
pub(super) struct RunSource {
    pub(super) level: usize,
    pub(super) run: usize,
    /// The cursor's table.
    table: usize,
    direction: Direction,
    pub(super) cursor: Option<TableCursor>,
    ahead: SourceReadahead,
    /// The block after the current one; its index slot in the cache was prefetched.
    following: Option<BlockAddress>,
}

/// The read-ahead state of a source.
#[derive(Clone, Default)]
pub(super) struct SourceReadahead {
    /// Bytes to read ahead at the next missing block.
    bytes: usize,
    /// Its share of the scan's read-ahead, in units of 1 / `SHARE_ALL`.
    share: u64,
    /// Offsets in the cursor's table for which blocks were asked ahead.
    asked: std::ops::Range<u64>,
    /// Offset of the block at which the next window is asked for: the middle of the last window read apart.
    renew_at: Option<u64>,
}

impl RunSource {
    pub(super) fn seek(
        run: &Run,
        (level, index): (usize, usize),
        from: Bound<&[u8]>,
        direction: Direction,
    ) -> RunSource {
        let mut source = RunSource {
            level,
            run: index,
            table: 0,
            direction,
            cursor: None,
            ahead: SourceReadahead::default(),
            following: None,
        };
        let count = run.tables().len();
        let first = match (from, direction) {
            (Bound::Unbounded, Direction::Forward) => Some(0),
            (Bound::Unbounded, Direction::Backward) => Some(count - 1),
            (Bound::Included(key) | Bound::Excluded(key), Direction::Forward) => Some(run.position(key)),
            (Bound::Included(key) | Bound::Excluded(key), Direction::Backward) => {
                // The table whose range includes the key, or else the one before.
                let at = run.position(key);
                let is_in = run.tables().get(at).is_some_and(|placed| placed.table.min() <= key);
                if is_in { Some(at) } else { at.checked_sub(1) }
            }
        };
        if let Some(table) = first.filter(|table| *table < count) {
            let mut cursor = TableCursor::new(Arc::clone(&run.tables()[table].table), direction);
            cursor.seek(from);
            (source.table, source.cursor) = (table, Some(cursor));
        }
        source
    }

    /// After a seek: sets the read-ahead share, by the bytes of its run and of all runs.
    pub(super) fn expect(&mut self, run_bytes: u64, (tree_bytes, run_count): (u64, u64)) {
        self.ahead.bytes = (FIRST_BYTES * run_bytes / tree_bytes.max(1)) as usize;
        // Half by their bytes, half by their number: adjacent keys may all be in a small run.
        let half = SHARE_ALL / 2;
        self.ahead.share = half * run_bytes / tree_bytes.max(1) + half / run_count;
    }

    /// Bytes it may read ahead at once, if all runs together may read `bytes_max`.
    fn window_bytes(&self, bytes_max: usize) -> usize {
        let share_bytes = bytes_max as u64 * self.ahead.share / SHARE_ALL;
        self.ahead.bytes.min(share_bytes as usize).min(AHEAD_BYTES_MAX)
    }

    /// Adds the blocks after a missing block to `asks`, or to `apart` if they are many; up to the source's
    /// share of `bytes_max`.
    pub(super) fn ask_ahead(
        &mut self,
        missing: &BlockAddress,
        bytes_max: usize,
        asks: &mut Reads,
        apart: &mut Vec<BlockAddress>,
    ) {
        if missing.kind != BlockKind::Data {
            return;
        }
        let bytes = self.window_bytes(bytes_max);
        self.ahead.bytes = if self.has_asked(missing) {
            // It was read ahead and evicted since: the cache has no room for as much.
            self.ahead.bytes / AHEAD_GROWTH
        } else {
            (self.ahead.bytes * AHEAD_GROWTH).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX)
        };
        self.ahead.asked = missing.offset..missing.offset;
        self.ahead.renew_at = None;
        let blocks = self.next_window(bytes);
        if bytes < APART_BYTES_MIN {
            asks.extend(blocks.into_iter().map(|block| Read { ask: AHEAD, block }));
        } else {
            self.ask_apart(blocks, apart);
        }
    }

    /// Adds the next window to `apart`, if the cursor has come to the block `renew_at`.
    pub(super) fn renew(&mut self, at: &BlockAddress, bytes_max: usize, apart: &mut Vec<BlockAddress>) {
        if self.ahead.renew_at == Some(at.offset) && at.kind == BlockKind::Data {
            // Blocks behind the cursor need no check.
            let asked = &mut self.ahead.asked;
            match self.direction {
                Direction::Forward => asked.start = at.offset,
                Direction::Backward => asked.end = at.offset + 1,
            }
            let blocks = self.next_window(self.window_bytes(bytes_max));
            self.ask_apart(blocks, apart);
        }
    }

    fn ask_apart(&mut self, blocks: Vec<BlockAddress>, apart: &mut Vec<BlockAddress>) {
        self.ahead.renew_at = blocks.get(blocks.len() / 2).map(|block| block.offset);
        apart.extend(blocks);
    }

    /// The next blocks, of `bytes` in all, that were not asked for yet; notes them as asked for.
    fn next_window(&mut self, bytes: usize) -> Vec<BlockAddress> {
        let Some(cursor) = &self.cursor else { return Vec::new() };
        let asked = &mut self.ahead.asked;
        let (mut window, mut left) = (Vec::new(), bytes);
        let upcoming = cursor.upcoming((bytes + (asked.end - asked.start) as usize) / BLOCK_BYTES_MIN);
        for block in upcoming {
            if asked.contains(&block.offset) {
                continue;
            }
            let Some(rest) = left.checked_sub(block.bytes as usize) else { break };
            left = rest;
            *asked = asked.start.min(block.offset)..asked.end.max(block.offset + 1);
            window.push(block);
        }
        window
    }

    /// The run it reads; in a hashed tree, the run on the path of the key `way`.
    pub(super) fn of<'v>(&self, view: &'v View, tree: TreeId, way: &[u8]) -> &'v Run {
        let tree = view.version.tree(tree).expect("the view does not change under a scan");
        tree.run(self.level, self.run, way).expect("the view does not change under a scan")
    }

    /// Goes to the next item if the current block has it.
    #[inline]
    pub(super) fn advance_in_block(&mut self, cache: &Cache) -> bool {
        let cursor = self.cursor.as_mut().expect("the winner stands at an item");
        if !cursor.advance_in_block() {
            return false;
        }
        if cursor.items_left() == NEAR_ITEMS
            && let Some(block) = &self.following
        {
            cache.prefetch(block, None, Near::Slot, BLOCK_LINES);
        }
        true
    }

    /// After a move to another block: hints that the one after it comes next.
    pub(super) fn note_following(&mut self, cache: &Cache) {
        self.following = self.cursor.as_ref().and_then(TableCursor::following);
        if let Some(block) = &self.following {
            cache.prefetch(block, None, Near::Nothing, BLOCK_LINES);
        }
    }

    /// Whether the block lies in the offsets asked ahead in its table.
    pub(super) fn has_asked(&self, block: &BlockAddress) -> bool {
        self.ahead.asked.contains(&block.offset)
    }

    pub(super) fn next_table(&mut self, run: &Run) {
        self.ahead.asked = 0..0;
        self.ahead.renew_at = None;
        let next = match self.direction {
            Direction::Forward => Some(self.table + 1).filter(|table| *table < run.tables().len()),
            Direction::Backward => self.table.checked_sub(1),
        };
        self.cursor = next.map(|table| {
            self.table = table;
            let mut cursor = TableCursor::new(Arc::clone(&run.tables()[table].table), self.direction);
            cursor.seek(Bound::Unbounded);
            cursor
        });
    }
}

/// The current key of a source; `None` at its end.
#[inline]
pub(super) fn key_of(source: &ScanSource) -> Option<&[u8]> {
    match source {
        ScanSource::Memory(memory) => memory.position.map(|_| memory.key.as_slice()),
        ScanSource::Run(run) => run.cursor.as_ref().map(TableCursor::key),
    }
}

/// The kind of a source's current item.
#[inline]
pub(super) fn kind_of(source: &ScanSource) -> ItemKind {
    match source {
        ScanSource::Memory(memory) => memory.kind,
        ScanSource::Run(run) => run.cursor.as_ref().expect("the winner stands at an item").kind(),
    }
}

/// The sequence of its current item, for comparison with range tombstones of the source.
pub(super) fn sequence_of(source: &ScanSource) -> Sequence {
    match source {
        ScanSource::Memory(memory) => memory.sequence,
        ScanSource::Run(_) => ITEM_SEQUENCE,
    }
}

#[cfg(test)]
mod tests;
