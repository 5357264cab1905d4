//! The first items of a range, read at once under a pin: no counts, no loser tree, no allocation.
//!
//! Every source stands at an item in memory that the pin keeps. One pass over eight bytes of each source's
//! key finds the least key. Items of one source that precede every other source's are copied without a match.
//! [`super::ScanMachine`] continues behind the last key read for all other work: to read a block that is not
//! in the cache, to pass many deleted keys, to pass a deleted range, to merge very many sources.
//!
//! Called by drivers, which pass the view and bound of one moment. One call; it never waits.
//!
//! Invariants:
//! 1. The batch has the items that a scan of the same view and bound yields first, in the same order.
//! 2. A key is copied only once every source stands at or past it; of equal keys the newest source's item is
//!    taken.

mod run;

use std::cmp::Ordering;
use std::ops::Bound;

use smallvec::SmallVec;

use crate::base::id::ItemKind;
use crate::base::step::Direction;
use crate::levels::gaps::{GapEnd, Gaps, KeySpan, Sight, after, end_of, first_from};
use crate::levels::version::Tree;
use crate::levels::view::View;
use crate::memtable::{Generation, ItemPosition, MemItem};
use crate::table::MissingPage;

use super::batch::ItemBatch;
use super::pinned::Pinned;
use super::range::{ScanRange, expected_prefix};
use run::{CacheAndPin, FirstBlock, ShortRunSource, SplitKey, compare, rank_behind};

/// More sources are merged by a scan's loser tree.
const SOURCES_MAX: usize = 12;
/// Longer keys or values are left to a scan, which returns them without a copy.
const ITEM_BYTES_MAX: usize = 1 << 10;
/// The batch takes no more items from this size on.
const BATCH_BYTES: usize = 4 << 10;
/// Most items of a batch. Further items are left to a scan, which copies none.
pub(crate) const ITEMS_MAX: usize = 16;
/// Most deleted keys that are passed here; a scan searches for gaps beyond that.
const DELETES_MAX: usize = 64;
/// Deleted keys before the first item that are reported as a gap.
const GAP_DELETES: usize = 8;

/// The range and number of items to read.
#[derive(Clone, Copy)]
pub(crate) struct BatchRequest<'w> {
    pub(crate) sight: Sight,
    pub(crate) range: &'w ScanRange,
    pub(crate) direction: Direction,
    /// The start in that direction, within the range.
    pub(crate) from: Bound<&'w [u8]>,
    pub(crate) items_max: usize,
}

/// The extent of the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BatchExtent {
    /// To the end of the range.
    ToEnd,
    /// As many items as wanted, or as fit.
    Full,
    /// Up to a key behind which a scan has to continue.
    Left,
}

/// A scan has to continue.
struct Stuck;

impl From<MissingPage> for Stuck {
    fn from(_: MissingPage) -> Stuck {
        Stuck
    }
}

/// A source that stands at an item.
enum Source<'p> {
    Memory { generation: &'p Generation, position: ItemPosition, item: MemItem<'p> },
    Run(ShortRunSource<'p>),
}

/// The sources and their end.
struct Short<'w, 'p> {
    request: &'w BatchRequest<'w>,
    pinned: CacheAndPin<'p>,
    /// The prefix that most keys share.
    prefix: &'p [u8],
    /// Newest first; for each the rank: eight bytes of its key, smaller for keys that come earlier in the
    /// direction.
    sources: SmallVec<[Source<'p>; SOURCES_MAX]>,
    ranks: SmallVec<[u64; SOURCES_MAX]>,
    /// Rank of the end of the range or of `limit`, if there is either: the lesser one.
    edge_rank: u64,
    has_edge: bool,
    /// The end of the stretch around the start without range tombstones; a scan continues behind it.
    limit: Option<&'p [u8]>,
    deletes: Deletes,
}

/// Deleted keys that were passed: all, and those before the first item.
#[derive(Default)]
struct Deletes {
    all: usize,
    leading: usize,
}

impl Deletes {
    #[cold]
    fn note(&mut self, batch: &ItemBatch) -> Result<(), Stuck> {
        self.all += 1;
        self.leading += usize::from(batch.count() == 0);
        if self.all > DELETES_MAX { Err(Stuck) } else { Ok(()) }
    }
}

/// Reads the first items into `batch`, behind its present items.
pub(crate) fn fill<'p>(request: &BatchRequest<'p>, pinned: Pinned<'p>, batch: &mut ItemBatch) -> BatchExtent {
    let Pinned { view, pin, cache, gaps } = pinned;
    let view = view.get();
    let BatchRequest { sight, direction, .. } = *request;
    let beyond = if gaps.is_any(sight.tree) { gaps.beyond(sight, request.from, direction) } else { None };
    let from = match &beyond {
        None => request.from,
        Some(None) => return BatchExtent::ToEnd,
        Some(Some(beyond)) => beyond.as_ref().map(Vec::as_slice),
    };
    let tree = view.version.tree(sight.tree);
    let prefix =
        tree.map_or(&[][..], |tree| expected_prefix(tree.shared_prefix(), tree.key_bytes(), request.range));
    let mut short = Short {
        request,
        pinned: CacheAndPin { cache, pin },
        prefix,
        sources: SmallVec::new(),
        ranks: SmallVec::new(),
        edge_rank: u64::MAX,
        has_edge: false,
        limit: None,
        deletes: Deletes::default(),
    };
    let extent = short.enter(from, view, tree).and_then(|()| short.merge(batch)).unwrap_or(BatchExtent::Left);
    if short.deletes.leading >= GAP_DELETES {
        learn_gap(request, extent, gaps, batch);
    }
    extent
}

/// After many deleted keys before the first item: reports the range before it as a gap.
#[cold]
fn learn_gap(request: &BatchRequest<'_>, extent: BatchExtent, gaps: &Gaps, batch: &ItemBatch) {
    let found = (batch.count() > 0).then(|| batch.item(0).0);
    if found.is_none() && extent != BatchExtent::ToEnd {
        return;
    }
    let span = match request.direction {
        Direction::Forward => KeySpan {
            from: first_from(request.from),
            to: match found {
                Some(key) => GapEnd::Before(key.to_vec()),
                None => end_of(request.range.1.as_ref().map(Vec::as_slice)),
            },
        },
        Direction::Backward => KeySpan {
            from: match found {
                Some(key) => after(key),
                None => first_from(request.range.0.as_ref().map(Vec::as_slice)),
            },
            to: end_of(request.from),
        },
    };
    gaps.learn(request.sight, span);
}

impl<'p> Short<'_, 'p> {
    /// Positions every source at its first item.
    fn enter(&mut self, from: Bound<&[u8]>, view: &'p View, tree: Option<&'p Tree>) -> Result<(), Stuck> {
        let BatchRequest { sight, range, direction, .. } = *self.request;
        if tree.is_some_and(|tree| tree.trie().is_some()) {
            // A scan goes from node to node.
            return Err(Stuck);
        }
        let levels = tree.map_or(&[][..], Tree::levels);
        if view.generations.len() + levels.iter().map(|runs| runs.len()).sum::<usize>() > SOURCES_MAX {
            return Err(Stuck);
        }
        // The cache misses of all runs overlap with each other, and with those of the write buffers.
        let mut entries: SmallVec<[FirstBlock<'p>; SOURCES_MAX]> = SmallVec::new();
        for run in levels.iter().flat_map(|runs| runs.iter()) {
            if run.has_ranges() {
                let key = self.key_of(from)?;
                let around = run.around(key);
                self.limit_to(around.is_covered, (around.from, around.to))?;
            }
            entries.extend(FirstBlock::find(run, from, direction));
        }
        for entry in &mut entries {
            entry.find_block(from, direction, self.pinned)?;
        }
        for entry in &mut entries {
            entry.bring(self.pinned);
        }
        for generation in &view.generations {
            if generation.has_ranges(sight.bound) {
                let key = self.key_of(from)?;
                let stretch = generation.stretch(sight.tree, key, sight.bound);
                self.limit_to(stretch.cover.is_some(), (stretch.from, stretch.to))?;
            }
            if let Some(position) = generation.seek(sight.tree, from, direction, sight.bound) {
                let item = generation.item(position);
                self.ranks.push(self.rank(item.key));
                self.sources.push(Source::Memory { generation, position, item });
            }
        }
        for entry in &entries {
            if let Some(source) = ShortRunSource::open(entry, from, (self.request, self.prefix), self.pinned)?
            {
                self.ranks.push(self.turned(source.rank()));
                self.sources.push(Source::Run(source));
            }
        }
        let end = match direction {
            Direction::Forward => &range.1,
            Direction::Backward => &range.0,
        };
        if let Bound::Included(end) | Bound::Excluded(end) = end {
            (self.edge_rank, self.has_edge) = (self.rank(end), true);
        }
        if let Some(limit) = self.limit {
            (self.edge_rank, self.has_edge) = (self.edge_rank.min(self.rank(limit)), true);
        }
        Ok(())
    }

    fn merge(&mut self, batch: &mut ItemBatch) -> Result<BatchExtent, Stuck> {
        while let Some((mut best, rank, mut next_rank)) = self.least() {
            if next_rank == rank && self.sources.len() > 1 {
                best = self.settle_ties(rank)?;
                next_rank = rank;
            }
            if rank >= self.edge_rank {
                if self.is_past(self.sources[best].key()) {
                    return Ok(BatchExtent::ToEnd);
                }
                if self.is_beyond_limit(self.sources[best].key()) {
                    return Err(Stuck);
                }
            }
            if batch.count() >= self.request.items_max || batch.bytes() >= BATCH_BYTES {
                return Ok(BatchExtent::Full);
            }
            self.take_from(best, next_rank.min(self.edge_rank), batch)?;
        }
        Ok(BatchExtent::ToEnd)
    }

    /// Copies items of a source up to one of rank `stop_rank`, at least one.
    fn take_from(&mut self, best: usize, stop_rank: u64, batch: &mut ItemBatch) -> Result<(), Stuck> {
        let flip = self.flip();
        let BatchRequest { sight, direction, items_max, .. } = *self.request;
        match &mut self.sources[best] {
            Source::Memory { generation, position, item } => loop {
                if item.kind == ItemKind::Put {
                    if item.value.len().max(item.key.len()) > ITEM_BYTES_MAX {
                        return Err(Stuck);
                    }
                    batch.push((item.key, &[]), item.value);
                } else {
                    self.deletes.note(batch)?;
                }
                let next = generation.step(sight.tree, *position, direction, sight.bound);
                let Some(next) = next else { break };
                (*position, *item) = (next, generation.item(next));
                let rank = rank_behind(self.prefix, item.key) ^ flip;
                self.ranks[best] = rank;
                if rank >= stop_rank || batch.count() >= items_max || batch.bytes() >= BATCH_BYTES {
                    return Ok(());
                }
            },
            Source::Run(run) => loop {
                // A rank of all ones may equal the edge's.
                let is_alone = self.ranks.len() == 1 && !self.has_edge;
                let stop = (!is_alone).then_some(stop_rank);
                let count = run.items_before(stop, items_max - batch.count(), direction);
                let count = run.items_within(BATCH_BYTES - batch.bytes(), count, direction);
                run.copy(count, direction, &mut self.deletes, batch)?;
                if !run.step(count, (self.request, self.prefix), self.pinned)? {
                    break;
                }
                let rank = run.rank() ^ flip;
                self.ranks[best] = rank;
                if rank >= stop_rank || batch.count() >= items_max || batch.bytes() >= BATCH_BYTES {
                    return Ok(());
                }
            },
        }
        self.remove(best);
        Ok(())
    }

    fn remove(&mut self, index: usize) {
        self.sources.remove(index);
        self.ranks.remove(index);
    }

    /// The first source of the least rank, that rank, and the least rank of the others.
    #[inline]
    fn least(&self) -> Option<(usize, u64, u64)> {
        let (first, rest) = self.ranks.split_first()?;
        let (mut best, mut least, mut next) = (0, *first, u64::MAX);
        for (index, rank) in rest.iter().enumerate() {
            if *rank < least {
                (best, next, least) = (index + 1, least, *rank);
            } else {
                next = next.min(*rank);
            }
        }
        Some((best, least, next))
    }

    /// The first of the sources with the least rank, by whole keys. Other sources with an equal key are moved
    /// past it: they are older.
    fn settle_ties(&mut self, rank: u64) -> Result<usize, Stuck> {
        let mut best = self.ranks.iter().position(|one| *one == rank).expect("it is the least");
        let mut index = best + 1;
        while index < self.sources.len() {
            if self.ranks[index] == rank {
                let order = compare(self.sources[best].key(), self.sources[index].key());
                match (order, self.request.direction) {
                    (Ordering::Equal, _) if !self.step(index)? => {
                        self.remove(index);
                        continue;
                    }
                    (Ordering::Greater, Direction::Forward) | (Ordering::Less, Direction::Backward) => {
                        best = index;
                    }
                    _ => {}
                }
            }
            index += 1;
        }
        Ok(best)
    }

    /// Moves a source to its next item; `false` at its end.
    fn step(&mut self, index: usize) -> Result<bool, Stuck> {
        let BatchRequest { sight, direction, .. } = *self.request;
        let rank = match &mut self.sources[index] {
            Source::Memory { generation, position, item } => {
                let next = generation.step(sight.tree, *position, direction, sight.bound);
                let Some(next) = next else { return Ok(false) };
                (*position, *item) = (next, generation.item(next));
                rank_behind(self.prefix, item.key)
            }
            Source::Run(run) => {
                if !run.step(1, (self.request, self.prefix), self.pinned)? {
                    return Ok(false);
                }
                run.rank()
            }
        };
        self.ranks[index] = self.turned(rank);
        Ok(true)
    }

    fn flip(&self) -> u64 {
        match self.request.direction {
            Direction::Forward => 0,
            Direction::Backward => u64::MAX,
        }
    }

    fn turned(&self, rank: u64) -> u64 {
        rank ^ self.flip()
    }

    fn rank(&self, key: &[u8]) -> u64 {
        self.turned(rank_behind(self.prefix, key))
    }

    /// The key at which range tombstones are looked up.
    fn key_of<'f>(&self, from: Bound<&'f [u8]>) -> Result<&'f [u8], Stuck> {
        match (from, self.request.direction) {
            (Bound::Included(key) | Bound::Excluded(key), _) => Ok(key),
            (Bound::Unbounded, Direction::Forward) => Ok(&[]),
            (Bound::Unbounded, Direction::Backward) => Err(Stuck),
        }
    }

    /// Notes the stretch around the start in which a source's range tombstones have the same cover.
    fn limit_to(&mut self, is_covered: bool, (from, to): (&'p [u8], &'p [u8])) -> Result<(), Stuck> {
        if is_covered {
            return Err(Stuck);
        }
        let (limit, is_tighter) = match self.request.direction {
            Direction::Forward => (to, self.limit.is_none_or(|limit| to < limit)),
            Direction::Backward => (from, self.limit.is_none_or(|limit| from > limit)),
        };
        if !limit.is_empty() && is_tighter {
            self.limit = Some(limit);
        }
        Ok(())
    }

    fn is_beyond_limit(&self, key: SplitKey<'_>) -> bool {
        self.limit.is_some_and(|limit| match self.request.direction {
            Direction::Forward => compare(key, (limit, &[])).is_ge(),
            Direction::Backward => compare(key, (limit, &[])).is_lt(),
        })
    }

    /// As [`is_past`](super::range::is_past).
    fn is_past(&self, key: SplitKey<'_>) -> bool {
        let BatchRequest { range, direction, .. } = self.request;
        let (end, beyond) = match direction {
            Direction::Forward => (&range.1, Ordering::Greater),
            Direction::Backward => (&range.0, Ordering::Less),
        };
        match end {
            Bound::Unbounded => false,
            Bound::Included(end) => compare(key, (end, &[])) == beyond,
            Bound::Excluded(end) => [beyond, Ordering::Equal].contains(&compare(key, (end, &[]))),
        }
    }
}

impl<'p> Source<'p> {
    fn key(&self) -> SplitKey<'p> {
        match self {
            Source::Memory { item, .. } => (item.key, &[]),
            Source::Run(run) => (run.prefix, run.suffix),
        }
    }
}
