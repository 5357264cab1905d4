//! A run of a short range: moving to the first item, between items and between blocks, under a pin.
//!
//! Plain values of one call, with references that the pin keeps.

use std::cmp::Ordering;
use std::ops::Bound;

use crate::base::epoch::Pin;
use crate::base::id::ItemKind;
use crate::base::key::head;
use crate::base::prefetch::prefetch;
use crate::base::step::{BlockAddress, Direction};
use crate::cache::{Cache, Near};
use crate::format::table::data::Layout;
use crate::levels::version::Run;
use crate::table::{BlockSpot, DataBlock, FenceLine, TableReader};

use super::super::batch::ItemBatch;
use super::super::source::BLOCK_LINES;
use super::{BatchRequest, Deletes, ITEM_BYTES_MAX, Stuck};

/// Items whose values are prefetched together, and the most cache lines of them.
const ITEMS_AHEAD: usize = 16;
const VALUE_LINES: usize = 24;
const LINE_BYTES: usize = 64;
/// The following block is prefetched this many items before it is needed.
const NEAR_ITEMS: usize = 6;

/// The cache, and the pin that keeps its blocks.
#[derive(Clone, Copy)]
pub(super) struct CacheAndPin<'p> {
    pub(super) cache: &'p Cache,
    pub(super) pin: &'p Pin,
}

/// The first block of a run in the range, before it is read.
pub(super) struct FirstBlock<'p> {
    run: &'p Run,
    table: usize,
    aim: Aim,
    block: Option<(BlockSpot, DataBlock)>,
    near: Near,
}

#[derive(Clone, Copy)]
enum Aim {
    /// The block in this fence line.
    Line(FenceLine),
    /// The block in which the key is searched.
    Key,
    /// The first block in the direction.
    First,
}

/// A run, in a block of one of its tables.
pub(super) struct ShortRunSource<'p> {
    run: &'p Run,
    table: usize,
    spot: BlockSpot,
    bytes: &'p [u8],
    layout: Layout,
    item: usize,
    pub(super) prefix: &'p [u8],
    pub(super) suffix: &'p [u8],
    rank: SuffixRank<'p>,
    /// The next block, once it was looked up.
    next: Option<Option<(BlockSpot, DataBlock)>>,
}

/// The derivation of a key's rank from its suffix in a block.
#[derive(Clone, Copy)]
enum SuffixRank<'p> {
    /// The suffix follows these bytes of the block's prefix, which fill so many bits of the rank.
    Behind { head: u64, bits: u32 },
    /// The suffix begins with these bytes, and the rank is taken behind them.
    After(&'p [u8]),
}

impl<'p> FirstBlock<'p> {
    /// The table of the run in which the range begins.
    pub(super) fn find(run: &'p Run, from: Bound<&[u8]>, direction: Direction) -> Option<FirstBlock<'p>> {
        let count = run.tables().len();
        let (mut table, key) = match (from, direction) {
            (Bound::Unbounded, Direction::Forward) => (0, None),
            (Bound::Unbounded, Direction::Backward) => (count - 1, None),
            (Bound::Included(key) | Bound::Excluded(key), Direction::Forward) => {
                (run.position(key), Some(key))
            }
            (Bound::Included(key) | Bound::Excluded(key), Direction::Backward) => {
                // The table whose range includes the key, or else the one before.
                let at = run.position(key);
                let is_in =
                    run.tables().get(at).is_some_and(|placed| !placed.table.begins_after(key, head(key)));
                (if is_in { at } else { at.checked_sub(1)? }, Some(key))
            }
        };
        let of = &run.tables().get(table)?.table;
        let aim = match key {
            None => Aim::First,
            Some(key) if of.ranges().is_empty() || of.has_items_from(key, direction) => {
                of.prefetch_fence(key).map_or(Aim::Key, Aim::Line)
            }
            Some(_) => {
                // Only range tombstones of the table lie there.
                table = next_table(run, table, direction)?;
                Aim::First
            }
        };
        Some(FirstBlock { run, table, aim, block: None, near: Near::Nothing })
    }

    /// Finds the block, and prefetches its index slot in the cache.
    pub(super) fn find_block(
        &mut self,
        from: Bound<&[u8]>,
        direction: Direction,
        pinned: CacheAndPin<'p>,
    ) -> Result<(), Stuck> {
        let table = &*self.run.tables()[self.table].table;
        let pages = |address: &BlockAddress| pinned.cache.lookup(address, pinned.pin);
        let spot = match (self.aim, from) {
            (Aim::Line(line), Bound::Included(key) | Bound::Excluded(key)) => table.spot_in(key, line),
            (Aim::Key, Bound::Included(key) | Bound::Excluded(key)) => table.spot_of(key, pages)?,
            _ => table.first_spot(direction, pages)?,
        };
        let block = table.block_at(spot, pages)?;
        self.near = pinned.hint(table, &block, Near::Nothing);
        self.block = Some((spot, block));
        Ok(())
    }

    pub(super) fn bring(&mut self, pinned: CacheAndPin<'p>) {
        let table = &*self.run.tables()[self.table].table;
        if let (Near::Slot, Some((_, block))) = (self.near, &self.block) {
            pinned.hint(table, block, Near::Slot);
        }
    }
}

impl<'p> ShortRunSource<'p> {
    /// Positions the run at its first item in the range; `None` if the run has none.
    pub(super) fn open(
        entry: &FirstBlock<'p>,
        from: Bound<&[u8]>,
        (request, prefix): (&BatchRequest<'_>, &'p [u8]),
        pinned: CacheAndPin<'p>,
    ) -> Result<Option<ShortRunSource<'p>>, Stuck> {
        let (spot, block) = entry.block.expect("it was found");
        let table = &*entry.run.tables()[entry.table].table;
        let bytes = pinned.look(table, &block)?;
        let layout = layout_of(bytes)?;
        let found = match (entry.aim, from, request.direction) {
            (Aim::First, _, Direction::Forward) | (_, Bound::Unbounded, Direction::Forward) => Some(0),
            (Aim::First, _, Direction::Backward) | (_, Bound::Unbounded, Direction::Backward) => {
                Some(layout.items() - 1)
            }
            (_, Bound::Included(key), Direction::Forward) => Some(layout.lower_bound(bytes, key)),
            (_, Bound::Excluded(key), Direction::Forward) => Some(layout.upper_bound(bytes, key)),
            (_, Bound::Included(key), Direction::Backward) => layout.upper_bound(bytes, key).checked_sub(1),
            (_, Bound::Excluded(key), Direction::Backward) => layout.lower_bound(bytes, key).checked_sub(1),
        };
        let mut source = ShortRunSource {
            run: entry.run,
            table: entry.table,
            spot,
            bytes,
            layout,
            item: 0,
            prefix: &[],
            suffix: &[],
            rank: SuffixRank::Behind { head: 0, bits: 64 },
            next: None,
        };
        match found.filter(|item| *item < layout.items()) {
            Some(item) => source.land(item, (request, prefix), pinned),
            None if !source.next_block((request, prefix), pinned)? => return Ok(None),
            None => {}
        }
        Ok(Some(source))
    }

    /// Goes to an item of a block that was just entered.
    fn land(
        &mut self,
        item: usize,
        (request, prefix): (&BatchRequest<'_>, &'p [u8]),
        pinned: CacheAndPin<'p>,
    ) {
        self.prefix = self.layout.prefix(self.bytes);
        self.rank = SuffixRank::new(prefix, self.prefix);
        self.next = None;
        self.stand(item);
        let last = request.items_max.min(ITEMS_AHEAD).min(self.items_left(request.direction) + 1) - 1;
        self.bring_values(item, last, request.direction);
        if self.items_left(request.direction) < request.items_max {
            self.look_for_next(request.direction, pinned);
        }
    }

    #[inline]
    fn stand(&mut self, item: usize) {
        self.item = item;
        self.suffix = self.layout.suffix(self.bytes, item);
    }

    /// Prefetches the values of an item and of `behind` items after it.
    #[inline]
    fn bring_values(&self, item: usize, behind: usize, direction: Direction) {
        let (first, last) = match direction {
            Direction::Forward => (item, item + behind),
            Direction::Backward => (item - behind, item),
        };
        let values =
            self.layout.value_range(self.bytes, first).start..self.layout.value_range(self.bytes, last).end;
        let lines = values.len().div_ceil(LINE_BYTES).min(VALUE_LINES);
        (0..lines).for_each(|line| prefetch(self.bytes, values.start + line * LINE_BYTES));
    }

    fn items_left(&self, direction: Direction) -> usize {
        match direction {
            Direction::Forward => self.layout.items() - 1 - self.item,
            Direction::Backward => self.item,
        }
    }

    /// The number of items of the block that come next, the current one included: those with a rank less than
    /// `stop`, at most `max`.
    #[inline]
    pub(super) fn items_before(&self, stop: Option<u64>, max: usize, direction: Direction) -> usize {
        let max = max.min(self.items_left(direction) + 1);
        let Some(stop) = stop else { return max };
        let comes = |ahead: usize| {
            let item = match direction {
                Direction::Forward => self.item + ahead,
                Direction::Backward => self.item - ahead,
            };
            let rank = self.rank.of(self.layout.suffix(self.bytes, item));
            stop > if direction == Direction::Forward { rank } else { !rank }
        };
        // In growing strides: mostly the result is one, two, or all.
        let (mut known, mut stride) = (1, 1);
        while known < max {
            let far = (known + stride).min(max);
            if comes(far - 1) {
                (known, stride) = (far, stride * 4);
                continue;
            }
            let mut end = far - 1;
            while known < end {
                let middle = (known + end) / 2;
                if comes(middle) { known = middle + 1 } else { end = middle }
            }
            return known;
        }
        known
    }

    /// The part of `count` items that has about `bytes_max` in all; at least one item.
    pub(super) fn items_within(&self, bytes_max: usize, mut count: usize, direction: Direction) -> usize {
        let bytes = |count: usize| {
            let (first, last) = match direction {
                Direction::Forward => (self.item, self.item + count - 1),
                Direction::Backward => (self.item + 1 - count, self.item),
            };
            let span = |ends: [std::ops::Range<usize>; 2]| ends[1].end - ends[0].start;
            let values = span([first, last].map(|item| self.layout.value_range(self.bytes, item)));
            let suffixes = span([first, last].map(|item| self.layout.suffix_range(self.bytes, item)));
            values + suffixes + count * self.prefix.len()
        };
        while count > 1 && bytes(count) > bytes_max {
            count /= 2;
        }
        count
    }

    /// Copies `count` items from the current one on.
    pub(super) fn copy(
        &self,
        count: usize,
        direction: Direction,
        deletes: &mut Deletes,
        batch: &mut ItemBatch,
    ) -> Result<(), Stuck> {
        let (layout, bytes) = (&self.layout, self.bytes);
        let value = |item: usize| layout.value_range(bytes, item);
        let is_too_large = |bytes: usize| bytes > ITEM_BYTES_MAX;
        if direction == Direction::Forward && count > 1 {
            let items = self.item..self.item + count;
            let all = value(items.start).start..value(items.end - 1).end;
            if !is_too_large(all.len()) {
                // Values are contiguous; those of deletes are empty.
                let start = batch.add_values(&bytes[all.clone()]);
                for item in items {
                    if layout.kind(bytes, item) == ItemKind::Put {
                        let key = (self.prefix, layout.suffix(bytes, item));
                        batch.push_key(key, start + value(item).end - all.start);
                    } else {
                        deletes.note(batch)?;
                    }
                }
                return Ok(());
            }
        }
        for ahead in 0..count {
            let item = match direction {
                Direction::Forward => self.item + ahead,
                Direction::Backward => self.item - ahead,
            };
            if layout.kind(bytes, item) != ItemKind::Put {
                deletes.note(batch)?;
                continue;
            }
            let value = &bytes[value(item)];
            if is_too_large(value.len()) {
                return Err(Stuck);
            }
            batch.push((self.prefix, layout.suffix(bytes, item)), value);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn rank(&self) -> u64 {
        self.rank.of(self.suffix)
    }

    /// Moves `count` items on, at most to the first of another block; `false` at the end of the run.
    #[inline]
    pub(super) fn step(
        &mut self,
        count: usize,
        of: (&BatchRequest<'_>, &'p [u8]),
        pinned: CacheAndPin<'p>,
    ) -> Result<bool, Stuck> {
        let left = self.items_left(of.0.direction);
        if count > left {
            return self.next_block(of, pinned);
        }
        self.stand(match of.0.direction {
            Direction::Forward => self.item + count,
            Direction::Backward => self.item - count,
        });
        if left > NEAR_ITEMS
            && left - count <= NEAR_ITEMS
            && let Some(Some((_, block))) = &self.next
        {
            pinned.hint(self.table(), block, Near::Slot);
        }
        Ok(true)
    }

    fn table(&self) -> &'p TableReader {
        &self.run.tables()[self.table].table
    }

    /// Looks up the next block of the table, and prefetches its index slot in the cache.
    fn look_for_next(&mut self, direction: Direction, pinned: CacheAndPin<'p>) {
        let table = self.table();
        let pages = |address: &BlockAddress| pinned.cache.lookup(address, pinned.pin);
        let next = table.spot_after(self.spot, direction, pages).and_then(|spot| {
            spot.map(|spot| table.block_at(spot, pages).map(|block| (spot, block))).transpose()
        });
        if let Ok(Some((_, block))) = &next {
            pinned.hint(table, block, Near::Nothing);
        }
        self.next = next.ok();
    }

    /// Goes to the first item of the next block; `false` at the end of the run.
    fn next_block(
        &mut self,
        of: (&BatchRequest<'_>, &'p [u8]),
        pinned: CacheAndPin<'p>,
    ) -> Result<bool, Stuck> {
        let direction = of.0.direction;
        if self.next.is_none() {
            self.look_for_next(direction, pinned);
        }
        let next = match self.next.take().ok_or(Stuck)? {
            Some(next) => next,
            None => {
                let Some(table) = next_table(self.run, self.table, direction) else { return Ok(false) };
                self.table = table;
                let pages = |address: &BlockAddress| pinned.cache.lookup(address, pinned.pin);
                let spot = self.table().first_spot(direction, pages)?;
                (spot, self.table().block_at(spot, pages)?)
            }
        };
        let left = (self.prefix, self.suffix);
        let has_left = !self.prefix.is_empty() || !self.suffix.is_empty();
        self.spot = next.0;
        self.bytes = pinned.look(self.table(), &next.1)?;
        self.layout = layout_of(self.bytes)?;
        let item = match direction {
            Direction::Forward => 0,
            Direction::Backward => self.layout.items() - 1,
        };
        self.land(item, of, pinned);
        let is_beyond = match direction {
            Direction::Forward => compare(left, (self.prefix, self.suffix)).is_lt(),
            Direction::Backward => compare(left, (self.prefix, self.suffix)).is_gt(),
        };
        // A scan reports the damage of the file.
        if has_left && !is_beyond { Err(Stuck) } else { Ok(true) }
    }
}

/// The layout of a block with whole keys. Short ranges are not read from hashed keyspaces; in any other, a
/// scan reports the damage of the file.
fn layout_of(block: &[u8]) -> Result<Layout, Stuck> {
    let layout = Layout::of(block);
    if layout.leaves_places_out() { Err(Stuck) } else { Ok(layout) }
}

impl<'p> CacheAndPin<'p> {
    /// The block, if it is cached.
    #[inline]
    fn look(self, table: &'p TableReader, block: &DataBlock) -> Result<&'p [u8], Stuck> {
        let address = table.address_of(block);
        let found = match table.frame_hint(block) {
            Some(hint) => self.cache.lookup_at(&address, hint, self.pin),
            None => self.cache.lookup(&address, self.pin),
        };
        found.ok_or(Stuck)
    }

    #[inline]
    fn hint(self, table: &TableReader, block: &DataBlock, near: Near) -> Near {
        self.cache.prefetch(&table.address_of(block), table.frame_hint(block), near, BLOCK_LINES)
    }
}

impl<'p> SuffixRank<'p> {
    /// For keys of a block with this prefix; the rank is taken behind the prefix that most keys share.
    fn new(expected: &'p [u8], prefix: &[u8]) -> SuffixRank<'p> {
        let shared = expected.len().min(prefix.len());
        match prefix[..shared].cmp(&expected[..shared]) {
            Ordering::Less => SuffixRank::Behind { head: 0, bits: 64 },
            Ordering::Greater => SuffixRank::Behind { head: u64::MAX, bits: 64 },
            Ordering::Equal if shared < expected.len() => SuffixRank::After(&expected[shared..]),
            Ordering::Equal => {
                let rest = &prefix[shared..];
                SuffixRank::Behind { head: head(rest), bits: 8 * rest.len().min(8) as u32 }
            }
        }
    }

    #[inline]
    fn of(self, suffix: &[u8]) -> u64 {
        match self {
            SuffixRank::Behind { head: before, bits } => before | head(suffix).checked_shr(bits).unwrap_or(0),
            SuffixRank::After(expected) => rank_behind(expected, suffix),
        }
    }
}

/// A key, in two parts.
pub(super) type SplitKey<'a> = (&'a [u8], &'a [u8]);

pub(super) fn compare(one: SplitKey<'_>, other: SplitKey<'_>) -> Ordering {
    if one.0.len() < other.0.len() {
        return compare(other, one).reverse();
    }
    let (shared, rest) = one.0.split_at(other.0.len());
    let met = rest.len().min(other.1.len());
    let order = shared.cmp(other.0).then_with(|| rest[..met].cmp(&other.1[..met]));
    order.then_with(|| if met < rest.len() { Ordering::Greater } else { one.1.cmp(&other.1[met..]) })
}

/// Eight bytes behind the prefix that most keys share, as a number that is never greater for a lesser key.
#[inline]
pub(super) fn rank_behind(expected: &[u8], key: &[u8]) -> u64 {
    if expected.is_empty() {
        return head(key);
    }
    match key.strip_prefix(expected) {
        Some(rest) => head(rest),
        // All keys below the prefix are equal, and all above.
        None if key < expected => 0,
        None => u64::MAX,
    }
}

fn next_table(run: &Run, table: usize, direction: Direction) -> Option<usize> {
    match direction {
        Direction::Forward => Some(table + 1).filter(|table| *table < run.tables().len()),
        Direction::Backward => table.checked_sub(1),
    }
}
