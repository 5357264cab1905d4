//! Layers of one memtable generation: the versions that readers with any of several sequence bounds see, in
//! one file.
//!
//! The bounds `b1 < .. < bk` cut the sequences into `(0, b1]`, the base, and the intervals `(b1, b2]`,
//! `(b2, b3]` and so on. A layer has the newest version of each key within the base, or within an aligned
//! group of 2^n intervals. A reader with the bound `bi` reads the base and the groups given by the binary
//! digits of `i - 1`, newest first, as runs of level 0. Groups that no prefix needs are not written.
//! (The decomposition of J. Bentley and J. Saxe, "Decomposable Searching Problems", 1980, over time.)
//!
//! The bounds come from the caller, and so does the opening of the file. The file's slices are numbered,
//! because several belong to one tree; the caller gets the tree and layer of each. The engine calls it, one
//! bounded piece of work per turn. One thread.
//!
//! Invariants:
//! 1. A reader with one of k bounds reads at most log2(k) + 1 layers, and a version is written to at most
//!    log2(k) + 1.
//! 2. Tombstones, of keys and of ranges, are kept. Items hidden by a range tombstone of the same layer are
//!    not.
//! 3. One pass over the generation's keys for each tree. Versions above the base are kept in memory, 8 bytes
//!    each, one tree at a time.
//! 4. A layers flush that fails, or is dropped before it is done, removes its file.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use crate::base::error::Result;
use crate::base::hash::HashSecret;
use crate::base::id::{ItemKind, KeyspaceId, PartitionId, Sequence, TreeId};
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::format::table::ranges::Ranges;
use crate::io::storage::Storage;
use crate::memtable::{Generation, ItemPosition, MemItem, VersionId};
use crate::merge::TurnProgress;
use crate::table::{SliceShape, TableIdentity, TableSummary};

use super::flush::{FlushFile, ITEM_COST_BYTES, TURN_BYTES};

/// Keyspace of all slices of the file; each slice is a partition of it.
const NUMBERED: KeyspaceId = KeyspaceId(1);

/// Sequence bounds, with the layers that they define.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Layers {
    /// Ascending.
    bounds: Vec<Sequence>,
}

/// A layer: a range of steps of the sequences. Step 0 is the base, the later steps are the intervals after
/// it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Layer {
    start: u32,
    end: u32,
}

const BASE: Layer = Layer { start: 0, end: 1 };

impl Layers {
    pub(crate) fn new(mut bounds: Vec<Sequence>) -> Layers {
        bounds.sort_unstable();
        bounds.dedup();
        Layers { bounds }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// Layers that a reader with the bound `bound` reads, newest first; `None` if it is not one of the
    /// bounds.
    pub(crate) fn seen_at(&self, bound: Sequence) -> Option<Vec<Layer>> {
        let intervals = self.bounds.binary_search(&bound).ok()? as u32;
        let (mut layers, mut start) = (vec![BASE], 0);
        for level in (0..self.levels_count()).rev().filter(|level| intervals >> level & 1 == 1) {
            layers.push(group(start, level));
            start += 1 << level;
        }
        layers.reverse();
        Some(layers)
    }

    /// Sequences of a layer: after the first number, up to and including the second.
    pub(crate) fn sequences(&self, layer: Layer) -> (Sequence, Sequence) {
        let after = layer.start.checked_sub(1).map_or(0, |before| self.bounds[before as usize]);
        (after, self.bounds[layer.end as usize - 1])
    }

    fn intervals_count(&self) -> u32 {
        u32::try_from(self.bounds.len().saturating_sub(1)).expect("bounds are fewer than sequences in memory")
    }

    fn levels_count(&self) -> u32 {
        u32::BITS - self.intervals_count().leading_zeros()
    }

    /// Start of the next group of 2^level intervals that readers need, from the interval `start` on.
    fn next_group(&self, level: u32, start: u32) -> Option<u32> {
        // Of two adjacent groups only the left one is needed without the other.
        let start = start.next_multiple_of(2 << level);
        (start + (1 << level) <= self.intervals_count()).then_some(start)
    }

    fn step_of(&self, sequence: Sequence) -> usize {
        self.bounds.partition_point(|bound| *bound < sequence)
    }

    fn first(&self) -> Sequence {
        self.bounds[0]
    }

    fn last(&self) -> Sequence {
        self.bounds[self.bounds.len() - 1]
    }
}

/// The group of 2^level intervals from `start` on.
fn group(start: u32, level: u32) -> Layer {
    Layer { start: start + 1, end: start + 1 + (1 << level) }
}

/// Result of a layers flush.
#[derive(Debug)]
pub(crate) struct LayersOutput {
    /// `None` if all layers are empty.
    pub(crate) table: Option<TableSummary>,
    /// Tree and layer of each slice of the file, in order.
    pub(crate) slices: Vec<(TreeId, Layer)>,
}

/// A flush of a generation's layers in progress.
pub(crate) struct LayersFlush {
    source: LayersSource,
    /// Trees still to be written, the next one last.
    trees: Vec<(TreeId, SliceShape)>,
    /// Each tree's range tombstones, in sequence order.
    tombstones: BTreeMap<TreeId, Vec<VersionId>>,
    current: Option<TreeLayers>,
    file: LayersFile,
}

/// The input, for all trees.
struct LayersSource {
    generation: Arc<Generation>,
    layers: Arc<Layers>,
    secret: HashSecret,
}

/// The file being written.
struct LayersFile {
    output: FlushFile,
    slices: Vec<(TreeId, Layer)>,
    /// Whether the slice of the present layer has begun.
    is_begun: bool,
}

/// The tree being written.
struct TreeLayers {
    tree: TreeId,
    shape: SliceShape,
    tombstones: Vec<VersionId>,
    stage: Stage,
    /// Versions above the base, sorted by key, newest first; later sorted by group first.
    versions: Vec<Version>,
    cover: Cover,
}

/// A version above the base.
#[derive(Clone, Copy)]
struct Version {
    id: VersionId,
    interval: u32,
}

enum Stage {
    /// The pass over the keys, at this position, which writes the base.
    Base(Option<ItemPosition>),
    /// The groups of this level are next, from this interval on.
    Level(u32, u32),
    /// The versions of a group.
    Group { level: u32, start: u32, versions: Range<usize> },
}

/// The newest range tombstone over the last requested key, cached for the keys that follow.
struct Cover {
    /// Only tombstones up to this sequence count.
    upto: Sequence,
    is_any: bool,
    newest: Option<Sequence>,
    /// End of the key range with this cover, empty if it has no end; `None` before the first request.
    to: Option<Vec<u8>>,
}

impl LayersFlush {
    /// A flush of the layers of a sealed generation into the file `identity`. There must be a bound.
    /// `shape_of` is called once for each tree, and returns `None` for one that is left out.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        identity: TableIdentity,
        secret: HashSecret,
        (generation, layers): (Arc<Generation>, Arc<Layers>),
        shape_of: impl FnMut(TreeId) -> Option<SliceShape>,
    ) -> LayersFlush {
        let mut shape_of = shape_of;
        let trees = generation.trees().into_iter().rev();
        let trees = trees.filter_map(|tree| Some((tree, shape_of(tree)?))).collect();
        let mut tombstones: BTreeMap<TreeId, Vec<VersionId>> = BTreeMap::new();
        for (tree, one) in generation.range_tombstones() {
            tombstones.entry(tree).or_default().push(one);
        }
        let file =
            LayersFile { output: FlushFile::new(storage, identity), slices: Vec::new(), is_begun: false };
        let source = LayersSource { generation, layers, secret };
        LayersFlush { source, trees, tombstones, current: None, file }
    }

    /// Limits the memory of the table being built to about `bytes` bytes.
    pub(crate) fn set_memory_bytes(&mut self, bytes: usize) {
        self.file.output.set_memory_bytes(bytes);
    }

    /// Memory for writing, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let versions = self.current.as_ref().map_or(0, |current| current.versions.capacity());
        // Sorting the versions needs half as much again.
        versions * size_of::<Version>() * 3 / 2 + self.file.output.memory_bytes()
    }

    /// Does the next piece: some hundred KiB of input, or the end of the file.
    ///
    /// # Errors
    /// Errors of writing. The flush may then only be dropped.
    pub(crate) fn turn(&mut self) -> Result<TurnProgress<LayersOutput>> {
        let mut left_bytes = TURN_BYTES;
        while left_bytes > 0 {
            let Some(current) = &mut self.current else {
                let Some((tree, shape)) = self.trees.pop() else {
                    let built = self.file.output.finish()?;
                    let (table, slices) =
                        (built.map(|built| built.summary), std::mem::take(&mut self.file.slices));
                    return Ok(TurnProgress::Done(LayersOutput { table, slices }));
                };
                let tombstones = self.tombstones.remove(&tree).unwrap_or_default();
                self.current = Some(TreeLayers::begin(&self.source, tree, shape, tombstones));
                continue;
            };
            match current.step(&self.source, &mut self.file)? {
                Some(cost_bytes) => left_bytes = left_bytes.saturating_sub(cost_bytes),
                None => self.current = None,
            }
        }
        Ok(TurnProgress::More)
    }
}

impl TreeLayers {
    fn begin(
        source: &LayersSource,
        tree: TreeId,
        shape: SliceShape,
        tombstones: Vec<VersionId>,
    ) -> TreeLayers {
        let last = source.layers.last();
        let position = source.generation.seek(tree, Bound::Unbounded, Direction::Forward, last);
        let cover = Cover::new(source, &tombstones, source.layers.first());
        TreeLayers { tree, shape, tombstones, stage: Stage::Base(position), versions: Vec::new(), cover }
    }

    /// Does a small step. Returns roughly the bytes of input read, or `None` if the tree is done.
    fn step(&mut self, source: &LayersSource, file: &mut LayersFile) -> Result<Option<u64>> {
        match &mut self.stage {
            Stage::Base(Some(position)) => {
                let newest = source.generation.version_at(*position);
                let last = source.layers.last();
                let next = source.generation.step(self.tree, *position, Direction::Forward, last);
                self.stage = Stage::Base(next);
                self.look_at_key(source, file, newest).map(Some)
            }
            Stage::Base(None) => {
                self.end_layer(source, file, BASE)?;
                let (first, generation) = (source.layers.first(), &source.generation);
                let last_range = self.tombstones.last().map(|last| generation.version(*last).sequence);
                let is_all = self.versions.is_empty() && last_range.is_none_or(|last| last <= first);
                let Some(level) = source.layers.levels_count().checked_sub(1).filter(|_| !is_all) else {
                    return Ok(None);
                };
                self.begin_level(level);
                Ok(Some(ITEM_COST_BYTES))
            }
            Stage::Level(level, start) => {
                let level = *level;
                match source.layers.next_group(level, *start) {
                    Some(start) => self.begin_group(source, level, start),
                    None if level == 0 => return Ok(None),
                    None => self.begin_level(level - 1),
                }
                Ok(Some(ITEM_COST_BYTES))
            }
            Stage::Group { level, start, versions } => {
                let layer = group(*start, *level);
                let Some(at) = versions.next() else {
                    self.stage = Stage::Level(*level, *start + (1 << *level));
                    self.end_layer(source, file, layer)?;
                    return Ok(Some(ITEM_COST_BYTES));
                };
                let item = source.generation.version(self.versions[at].id);
                // The newest version of a key comes first.
                while let Some(next) = versions.clone().next()
                    && source.generation.version(self.versions[next].id).key == item.key
                {
                    versions.next();
                }
                self.add(source, file, layer, item)?;
                Ok(Some(cost_bytes(&item)))
            }
        }
    }

    /// Keeps the newest version of a key in each interval, and writes the version in the base.
    fn look_at_key(
        &mut self,
        source: &LayersSource,
        file: &mut LayersFile,
        newest: VersionId,
    ) -> Result<u64> {
        let (mut id, mut looked_bytes) = (newest, 0);
        loop {
            let item = source.generation.version(id);
            let Some(interval) = source.layers.step_of(item.sequence).checked_sub(1) else {
                self.add(source, file, BASE, item)?;
                return Ok(looked_bytes + cost_bytes(&item));
            };
            self.versions.push(Version { id, interval: interval as u32 });
            looked_bytes += ITEM_COST_BYTES;
            match source.generation.older(id, source.layers.bounds[interval]) {
                Some(older) => id = older,
                None => return Ok(looked_bytes),
            }
        }
    }

    fn begin_level(&mut self, level: u32) {
        // Sorts from the groups of the level above, or from all versions. The sort is stable, so the order in
        // a group stays.
        self.versions.sort_by_key(|version| version.interval >> level);
        self.stage = Stage::Level(level, 0);
    }

    fn begin_group(&mut self, source: &LayersSource, level: u32, start: u32) {
        let at = |interval: u32| self.versions.partition_point(|version| version.interval < interval);
        let versions = at(start)..at(start + (1 << level));
        let (_, upto) = source.layers.sequences(group(start, level));
        self.cover = Cover::new(source, &self.tombstones, upto);
        self.stage = Stage::Group { level, start, versions };
    }

    fn add(
        &mut self,
        source: &LayersSource,
        file: &mut LayersFile,
        layer: Layer,
        item: MemItem<'_>,
    ) -> Result<()> {
        let newest = self.cover.newest(source, self.tree, item.key);
        if newest.is_some_and(|cover| cover > item.sequence) {
            return Ok(());
        }
        file.begin(self.tree, layer, self.shape)?;
        let hash = source.secret.hash_in(self.tree.keyspace, item.key);
        file.output.builder()?.add(item.key, hash, item.kind, item.value)
    }

    /// Ends the slice of a layer, if it has any item or range.
    fn end_layer(&mut self, source: &LayersSource, file: &mut LayersFile, layer: Layer) -> Result<()> {
        let (after, upto) = source.layers.sequences(layer);
        let ranges = ranges_between(&source.generation, &self.tombstones, after, upto);
        if let (false, Some(first)) = (file.is_begun, ranges.first()) {
            // A slice must have an item: a tombstone of the first key, which the range covers.
            file.begin(self.tree, layer, self.shape)?;
            let hash = source.secret.hash_in(self.tree.keyspace, first);
            file.output.builder()?.add(first, hash, ItemKind::Delete, b"")?;
        }
        if !std::mem::take(&mut file.is_begun) {
            return Ok(());
        }
        let builder = file.output.builder()?;
        ranges.iter().for_each(|(start, end)| builder.add_range(start, end));
        builder.end()
    }
}

impl LayersFile {
    /// Begins the slice of a layer, unless it has begun.
    fn begin(&mut self, tree: TreeId, layer: Layer, shape: SliceShape) -> Result<()> {
        if !self.is_begun {
            self.slices.push((tree, layer));
            let partition = PartitionId(u32::try_from(self.slices.len()).expect("a slice takes a block"));
            self.output.builder()?.begin(TreeId { keyspace: NUMBERED, partition }, shape)?;
            self.is_begun = true;
        }
        Ok(())
    }
}

impl Cover {
    /// Covers by the tree's range tombstones up to the sequence `upto`.
    fn new(source: &LayersSource, tombstones: &[VersionId], upto: Sequence) -> Cover {
        let oldest = tombstones.first().map(|first| source.generation.version(*first).sequence);
        Cover { upto, is_any: oldest.is_some_and(|oldest| oldest <= upto), newest: None, to: None }
    }

    /// The newest range tombstone over the key. Keys must ascend.
    fn newest(&mut self, source: &LayersSource, tree: TreeId, key: &[u8]) -> Option<Sequence> {
        if !self.is_any {
            return None;
        }
        if self.to.as_ref().is_none_or(|to| !to.is_empty() && to.as_slice() <= key) {
            let stretch = source.generation.stretch(tree, key, self.upto);
            self.newest = stretch.cover;
            let to = self.to.get_or_insert_default();
            to.clear();
            to.extend_from_slice(stretch.to);
        }
        self.newest
    }
}

fn cost_bytes(item: &MemItem<'_>) -> u64 {
    (item.key.len() + item.value.len()) as u64 + ITEM_COST_BYTES
}

/// The key ranges deleted by range tombstones with sequences after `after` and up to `upto`.
fn ranges_between(
    generation: &Generation,
    tombstones: &[VersionId],
    after: Sequence,
    upto: Sequence,
) -> Ranges {
    let count = |bound: Sequence| {
        tombstones.partition_point(|tombstone| generation.version(*tombstone).sequence <= bound)
    };
    let found = tombstones[count(after)..count(upto)].iter().map(|tombstone| generation.range(*tombstone));
    let mut found: Vec<_> = found.collect();
    found.sort_unstable_by_key(|(start, _)| *start);
    let mut ranges = Ranges::default();
    found.iter().for_each(|(start, end)| ranges.push(start, end));
    ranges
}

#[cfg(all(test, not(loom)))]
mod tests;
