//! Flush: sealed generations become one table file with a slice per tree, in bounded pieces of work per turn.
//!
//! A flush keeps only the newest version of each key. Older versions that snapshots need stay in the
//! generations that the snapshots hold, or go to their layers (`layers`). The flush neither seals generations
//! nor installs the file. The file is durable when the flush is done, and becomes part of the store by the
//! caller's manifest edit. The engine's background work calls it. One thread at a time.
//!
//! Invariants:
//! 1. Slices are in the order of tree ids, at most one per tree. A tree without kept items or ranges has no
//!    slice, and a file without slices is not made.
//! 2. Every generation older than the given ones is flushed already, so the new file is newer than all
//!    tables.
//! 3. A tombstone, of a key or of a range, is dropped only in a tree that has no table. All items of a
//!    dropped tree are left out, and so are items hidden by range tombstones.
//! 4. A flush that fails, or is dropped before it is done, removes its file.

use crate::base::error::Result;
use crate::base::hash::HashSecret;
use crate::base::id::{ItemKind, SEQUENCE_MAX, Sequence, TreeId};
use crate::base::key::common_prefix;
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::format::table::ranges::Ranges;
use crate::io::storage::Storage;
use crate::memtable::{Generation, ItemPosition};
use crate::merge::{Merge, MergeItem, MergeSource, Stretch, TurnProgress};
use crate::table::{BuiltTable, OpenWith, SliceShape, TableBuilder, TableIdentity};

use std::collections::BTreeSet;
use std::ops::Bound;

/// Input per turn, in bytes of keys and values.
pub(super) const TURN_BYTES: u64 = 512 << 10;
/// Cost added to each item's bytes, so that turns over tiny items are bounded too.
pub(super) const ITEM_COST_BYTES: u64 = 16;
/// About this many keys of a flush are sampled, but no more than one in `SAMPLE_EVERY_MIN`.
const SAMPLES_COUNT: u64 = 64;
const SAMPLE_EVERY_MIN: u64 = 16;

/// Treatment of a tree's tombstones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tombstones {
    /// The tree has tables, which may hold items that a tombstone hides.
    Keep,
    /// The tree has no table.
    Drop,
}

/// How a tree is flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeFlushPlan {
    pub(crate) slice: SliceShape,
    pub(crate) tombstones: Tombstones,
}

/// Counters of a flush.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct FlushCounts {
    /// Newest versions within each generation; older versions are never read.
    pub(crate) items_in: u64,
    pub(crate) items_out: u64,
    pub(crate) tombstones_dropped: u64,
    /// Items hidden by range tombstones.
    pub(crate) items_hidden: u64,
    pub(crate) bytes_written: u64,
}

/// Result of a flush.
#[derive(Debug)]
pub(crate) struct FlushOutput {
    /// `None` if no item or range of the generations is kept.
    pub(crate) table: Option<BuiltTable>,
    /// First and last sequence number of the generations.
    pub(crate) sequences: Option<(Sequence, Sequence)>,
    pub(crate) counts: FlushCounts,
    /// A sample of the keys, evenly spaced in the order of all kept keys.
    pub(crate) samples: Vec<(TreeId, Vec<u8>)>,
}

/// A flush in progress.
pub(crate) struct Flush {
    /// Newest first.
    generations: Vec<Arc<Generation>>,
    secret: HashSecret,
    /// Trees still to be written, the next one last.
    trees: Vec<(TreeId, TreeFlushPlan)>,
    current: Option<Current>,
    output: FlushFile,
    counts: FlushCounts,
    samples: Vec<(TreeId, Vec<u8>)>,
    /// One item in this many is sampled.
    sample_every: u64,
}

/// The tree being written.
struct Current {
    tree: TreeId,
    plan: TreeFlushPlan,
    merge: Merge<GenerationSource>,
    slice: Slice,
    /// Range tombstones to be written.
    ranges: Ranges,
}

/// Whether the slice of the tree being written has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slice {
    None,
    Begun,
}

impl Flush {
    /// A flush of sealed generations, newest first, into the file `identity`. `plan_of` is called once for
    /// each tree, and returns `None` for a dropped one.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        identity: TableIdentity,
        secret: HashSecret,
        generations: Vec<Arc<Generation>>,
        plan_of: impl FnMut(TreeId) -> Option<TreeFlushPlan>,
    ) -> Flush {
        let ids: BTreeSet<TreeId> = generations.iter().flat_map(|one| one.trees()).collect();
        let mut plan_of = plan_of;
        let trees = ids.into_iter().rev().filter_map(|tree| Some((tree, plan_of(tree)?))).collect();
        let output = FlushFile::new(storage, identity);
        let counts = FlushCounts::default();
        let items: u64 = generations.iter().map(|one| one.items()).sum();
        let sample_every = (items / SAMPLES_COUNT).max(SAMPLE_EVERY_MIN);
        let samples = Vec::new();
        Flush { generations, secret, trees, current: None, output, counts, samples, sample_every }
    }

    /// Limits the memory of the table being built to about `bytes` bytes.
    pub(crate) fn set_memory_bytes(&mut self, bytes: usize) {
        self.output.set_memory_bytes(bytes);
    }

    /// Makes the flush open the finished table.
    pub(crate) fn open_with(&mut self, opening: OpenWith) {
        self.output.opening = Some(opening);
    }

    /// Memory for writing, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let samples_bytes: usize = self.samples.iter().map(|(_, key)| key.len()).sum();
        self.output.memory_bytes() + samples_bytes
    }

    /// Does the next piece: some hundred KiB of input, or the end of the file.
    ///
    /// # Errors
    /// Errors of writing. The flush may then only be dropped; another flush of the same generations may be
    /// made.
    pub(crate) fn turn(&mut self) -> Result<TurnProgress<FlushOutput>> {
        let mut left_bytes = TURN_BYTES;
        while left_bytes > 0 {
            let Some(current) = &mut self.current else {
                match self.trees.pop() {
                    Some((tree, plan)) => self.current = Some(self.begin(tree, plan)),
                    None => return self.finish().map(TurnProgress::Done),
                }
                continue;
            };
            let Some(item) = current.merge.item() else {
                self.end_tree()?;
                continue;
            };
            if current.merge.is_hidden() {
                self.counts.items_hidden += 1;
            } else if item.kind == ItemKind::Delete && current.plan.tombstones == Tombstones::Drop {
                self.counts.tombstones_dropped += 1;
            } else {
                let builder = self.output.builder()?;
                if current.slice == Slice::None {
                    builder.begin(current.tree, current.plan.slice)?;
                    current.slice = Slice::Begun;
                }
                let hash = self.secret.hash_in(current.tree.keyspace, item.key);
                builder.add(item.key, hash, item.kind, item.value)?;
                self.counts.items_out += 1;
                if self.counts.items_out.is_multiple_of(self.sample_every) {
                    self.samples.push((current.tree, item.key.to_vec()));
                }
            }
            let cost_bytes = (item.key.len() + item.value.len()) as u64 + ITEM_COST_BYTES;
            left_bytes = left_bytes.saturating_sub(cost_bytes);
            current.merge.advance()?;
        }
        Ok(TurnProgress::More)
    }

    fn begin(&self, tree: TreeId, plan: TreeFlushPlan) -> Current {
        let sources: Vec<GenerationSource> =
            self.generations.iter().map(|one| GenerationSource::new(one, tree, SEQUENCE_MAX)).collect();
        let firsts = sources.iter().filter_map(|source| Some(source.item()?.key));
        let lasts = sources.iter().filter_map(GenerationSource::last_key);
        let (min, max) = (firsts.min().unwrap_or_default(), lasts.max().unwrap_or_default());
        let shared_prefix = min[..common_prefix(min, max)].to_vec();
        let ranges = match plan.tombstones {
            Tombstones::Keep => {
                let of_each = self.generations.iter().map(|one| ranges_of(one, tree));
                Ranges::union(&of_each.collect::<Vec<_>>())
            }
            Tombstones::Drop => Ranges::default(),
        };
        Current { tree, plan, merge: Merge::with_prefix(sources, &shared_prefix), slice: Slice::None, ranges }
    }

    fn end_tree(&mut self) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        self.counts.items_in += current.merge.consumed().items;
        if current.slice == Slice::None && current.ranges.is_empty() {
            return Ok(());
        }
        let builder = self.output.builder()?;
        if let (Slice::None, Some(first)) = (current.slice, current.ranges.first()) {
            // A slice must have an item: a tombstone of the first key, which the range covers.
            builder.begin(current.tree, current.plan.slice)?;
            let hash = self.secret.hash_in(current.tree.keyspace, first);
            builder.add(first, hash, ItemKind::Delete, b"")?;
            self.counts.items_out += 1;
        }
        current.ranges.iter().for_each(|(start, end)| builder.add_range(start, end));
        builder.end()
    }

    fn finish(&mut self) -> Result<FlushOutput> {
        let table = self.output.finish()?;
        self.counts.bytes_written = table.as_ref().map_or(0, |table| table.summary.bytes);
        let ranges = self.generations.iter().filter_map(|one| one.sequences());
        let sequences = ranges.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let samples = std::mem::take(&mut self.samples);
        Ok(FlushOutput { table, sequences, counts: self.counts, samples })
    }
}

/// The file being written, made with its first item. If its builder is dropped before it is finished, it
/// removes the file.
pub(super) struct FlushFile {
    storage: Arc<dyn Storage>,
    identity: TableIdentity,
    memory_bytes: usize,
    opening: Option<OpenWith>,
    builder: Option<TableBuilder>,
}

impl FlushFile {
    pub(super) fn new(storage: Arc<dyn Storage>, identity: TableIdentity) -> FlushFile {
        FlushFile { storage, identity, memory_bytes: usize::MAX, opening: None, builder: None }
    }

    pub(super) fn set_memory_bytes(&mut self, bytes: usize) {
        self.memory_bytes = bytes;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.builder.as_ref().map_or(0, TableBuilder::memory_bytes)
    }

    pub(super) fn builder(&mut self) -> Result<&mut TableBuilder> {
        if self.builder.is_none() {
            let mut builder = TableBuilder::new(Arc::clone(&self.storage), self.identity)?;
            builder.set_memory_bytes(self.memory_bytes);
            self.opening.take().into_iter().for_each(|opening| builder.open_with(opening));
            self.builder = Some(builder);
        }
        Ok(self.builder.as_mut().expect("made above if there was none"))
    }

    pub(super) fn finish(&mut self) -> Result<Option<BuiltTable>> {
        self.builder.take().map(TableBuilder::finish).transpose()
    }
}

/// A tree's range tombstones in a generation.
fn ranges_of(generation: &Generation, tree: TreeId) -> Ranges {
    let mut ranges = Ranges::default();
    if !generation.has_ranges(SEQUENCE_MAX) {
        return ranges;
    }
    let mut key: &[u8] = &[];
    loop {
        let stretch = generation.stretch(tree, key, SEQUENCE_MAX);
        if stretch.cover.is_some() {
            ranges.push(stretch.from, stretch.to);
        }
        if stretch.to.is_empty() {
            return ranges;
        }
        key = stretch.to;
    }
}

/// The newest versions of one tree's keys in one generation.
pub(crate) struct GenerationSource {
    generation: Arc<Generation>,
    tree: TreeId,
    bound: Sequence,
    position: Option<ItemPosition>,
}

impl GenerationSource {
    pub(crate) fn new(generation: &Arc<Generation>, tree: TreeId, bound: Sequence) -> GenerationSource {
        let position = generation.seek(tree, Bound::Unbounded, Direction::Forward, bound);
        GenerationSource { generation: Arc::clone(generation), tree, bound, position }
    }

    fn last_key(&self) -> Option<&[u8]> {
        let last = self.generation.seek(self.tree, Bound::Unbounded, Direction::Backward, self.bound)?;
        Some(self.generation.item(last).key)
    }
}

impl MergeSource for GenerationSource {
    #[inline]
    fn item(&self) -> Option<MergeItem<'_>> {
        let item = self.generation.item(self.position?);
        Some(MergeItem { key: item.key, kind: item.kind, value: item.value })
    }

    fn advance(&mut self) -> Result<()> {
        if let Some(position) = self.position {
            self.position = self.generation.step(self.tree, position, Direction::Forward, self.bound);
        }
        Ok(())
    }

    fn sequence(&self) -> Sequence {
        self.position.map_or(SEQUENCE_MAX, |position| self.generation.item(position).sequence)
    }

    fn has_ranges(&self) -> bool {
        self.generation.has_ranges(self.bound)
    }

    fn stretch(&self, key: &[u8], stretch: &mut Stretch) {
        let found = self.generation.stretch(self.tree, key, self.bound);
        stretch.set(found.cover, found.from, found.to);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
