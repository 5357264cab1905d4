//! Building a table file: items come in key order, slice after slice; the result is one finished, synced
//! file.
//!
//! `write` (flush) and `compact` (merge) drive it. The builder does not choose where files end, and does not
//! sync the directory. One thread. Memory: the block being filled; 8 bytes an item for the filter (12 if the
//! filter is by column), then the filter's pages; an end, a separator and a quantum a block; items gathered
//! for a learned page; one buffer of 1 MiB.

use crate::base::checksum;
use crate::base::error::Result;
use crate::base::hash::KeyHash;
use crate::base::id::{ItemKind, TreeId};
use crate::base::step::BlockKind;
use crate::base::sync::Arc;
use crate::format::header::{FEATURE_COLUMNS, FEATURE_LEARNED};
use crate::format::table::compressed::Compression;
use crate::format::table::data_build::DataBuilder;
use crate::format::table::fence_build::FenceBuilder;
use crate::format::table::filter::{self, FilterKind, FilterPlan, FilterShape};
use crate::format::table::footer::{Footer, SliceEntry, Span, encode_tail};
use crate::format::table::learned_build::{LearnedItems, LearnedPlan};
use crate::format::table::ranges::Ranges;
use crate::format::table::top::{self, Top};
use crate::format::table::{FOOTER_TAG, PAGE_BYTES, RANGES_TAG, TAIL_TAG, TOP_TAG, UNIT_BYTES};
use crate::io::storage::Storage;

use super::admission::CacheAdmission;
use super::columns::{ColumnSlice, ItemColumns, NodeRuns};
use super::gather::{GATHER_BYTES_MAX, Gathered};
use super::identity::{SliceSummary, TableIdentity, TableSummary};
use super::memory::{PageBudget, PageRank};
use super::open::{SliceContents, TableFile, TableOwner};
use super::output::{TableOutput, WRITE_BYTES};
use super::packed::PackedEntry;
use super::resident::{Otherwise, Resident};
use super::search::{Ranged, TableReader};

/// Settings of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceShape {
    pub(crate) filter: FilterPlan,
    pub(crate) index: IndexPlan,
    /// Target size of data blocks, rounded up to whole units.
    pub(crate) block_bytes: u32,
    pub(crate) compression: Compression,
}

/// The index of a slice's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IndexPlan {
    Fences,
    /// Learned pages where they take less than fences.
    Learned,
}

/// The largest number of tombstones among 128 consecutive items.
#[derive(Clone, Copy, Default, Debug)]
struct Density {
    /// One bit for each of the last 128 items, set for a tombstone.
    last: u128,
    most: u32,
}

impl Density {
    fn add(&mut self, kind: ItemKind) {
        let is_tombstone = kind == ItemKind::Delete;
        self.last = self.last << 1 | u128::from(is_tombstone);
        if is_tombstone {
            self.most = self.most.max(self.last.count_ones());
        }
    }
}

/// A table file being written. If it is dropped before `finish`, the file is removed.
pub(crate) struct TableBuilder {
    out: TableOutput,
    opening: Option<OpenWith>,
    slice: Option<Slice>,
    ended: Vec<Ended>,
    last_tree: Option<TreeId>,
    /// The most bytes of items that wait for a learned page.
    gather_bytes: usize,
}

/// How a builder opens the tables of the file that it finishes.
#[derive(Clone)]
pub(crate) struct OpenWith {
    /// The budget within which fences and filters stay in memory.
    pub(crate) pages: Arc<PageBudget>,
    pub(crate) fences: PageRank,
    pub(crate) filters: PageRank,
    pub(crate) otherwise: Otherwise,
    pub(crate) owner: TableOwner,
}

/// A finished file and its tables, opened without reading it.
#[derive(Clone, Debug)]
pub(crate) struct BuiltTable {
    pub(crate) summary: TableSummary,
    /// One table for each slice; none without [`OpenWith`].
    pub(crate) tables: Vec<Arc<TableReader>>,
}

impl BuiltTable {
    /// Marks its file obsolete: no version will name it.
    pub(crate) fn mark_obsolete(&self) {
        self.tables.iter().for_each(|table| table.file().mark_obsolete());
    }
}

/// A slice that was written.
struct Ended {
    density: Density,
    /// The feature bits that a reader must support.
    features: u64,
    /// Top and ranges are present only with [`OpenWith`].
    contents: SliceContents,
}

/// The slice being written.
struct Slice {
    tree: TreeId,
    shape: SliceShape,
    /// Present if the filter is by column.
    columns: Option<(Arc<NodeRuns>, ItemColumns)>,
    /// Items that wait for their layout, if learned pages are made.
    gathered: Option<Gathered>,
    data: DataBuilder,
    fences: FenceBuilder,
    hashes: Vec<u64>,
    ranges: Ranges,
    items: u64,
    tombstones: u64,
    density: Density,
    key_value_bytes: u64,
    min: Vec<u8>,
    last: Vec<u8>,
    /// The last key of the block cut last.
    last_cut: Vec<u8>,
    start: u64,
}

impl TableBuilder {
    /// Creates the file.
    pub(crate) fn new(storage: Arc<dyn Storage>, identity: TableIdentity) -> Result<TableBuilder> {
        storage.create(identity.file)?;
        let out = TableOutput::new(storage, identity);
        Ok(TableBuilder {
            out,
            opening: None,
            slice: None,
            ended: Vec::new(),
            last_tree: None,
            gather_bytes: GATHER_BYTES_MAX,
        })
    }

    /// Bounds the builder's memory by about `bytes`: it writes pieces of an eighth of them and gathers a
    /// quarter for a learned page.
    pub(crate) fn set_memory_bytes(&mut self, bytes: usize) {
        self.out.write_bytes = (bytes / 8 / PAGE_BYTES * PAGE_BYTES).clamp(4 * PAGE_BYTES, WRITE_BYTES);
        self.gather_bytes = bytes / 4;
    }

    /// Makes `finish` open the tables. Their fences and filters stay in memory as far as the budget allows.
    pub(crate) fn open_with(&mut self, opening: OpenWith) {
        self.opening = Some(opening);
    }

    /// Lets data blocks be offered to the cache.
    pub(crate) fn admit(&mut self, admission: CacheAdmission) {
        self.out.admission = Some(admission);
    }

    /// Notes that the next item, of so many bytes, comes from a cached block.
    pub(crate) fn note_cached(&mut self, key_value_bytes: usize) {
        if let Some(admission) = &mut self.out.admission {
            admission.earn(key_value_bytes);
        }
    }

    /// Memory held: unwritten bytes, the bytes kept for each item until the slice ends, and the filter built
    /// from them.
    pub(crate) fn memory_bytes(&self) -> usize {
        let slice = self.slice.as_ref().map_or(0, |slice| {
            let hashes = slice.hashes.capacity() * size_of::<u64>();
            let filter = FilterShape::new(slice.items, slice.shape.filter).bytes() as usize;
            let gathered = slice.gathered.as_ref().map_or(0, Gathered::memory_bytes);
            let pending = slice.data.memory_bytes() + slice.fences.memory_bytes() + gathered;
            let columns =
                slice.columns.iter().map(|(node, items)| items.memory_bytes() + node.memory_bytes());
            let hashes = hashes + columns.sum::<usize>();
            hashes + filter + slice.ranges.memory_bytes() + pending
        });
        self.out.buffer.capacity() + slice
    }

    /// The part of [`TableBuilder::memory_bytes`] that grows with the table. Gathered items have a limit of
    /// their own.
    pub(crate) fn growing_bytes(&self) -> usize {
        let gathered = self.slice.as_ref().and_then(|slice| slice.gathered.as_ref());
        self.memory_bytes() - gathered.map_or(0, Gathered::memory_bytes)
    }

    /// Begins the slice of `tree`, which comes after all slices before it. A slice without items is left out.
    pub(crate) fn begin(&mut self, tree: TreeId, shape: SliceShape) -> Result<()> {
        assert!(self.slice.is_none(), "the slice before was ended");
        assert!(self.is_before(tree), "slices ascend by tree, those of a trie by key");
        self.last_tree = Some(tree);
        let block_bytes = (shape.block_bytes as usize).max(UNIT_BYTES).next_multiple_of(UNIT_BYTES);
        let data = match tree.keyspace.is_hashed() {
            true => DataBuilder::without_places(block_bytes, shape.compression),
            false => DataBuilder::new(block_bytes, shape.compression),
        };
        let is_learned = shape.index == IndexPlan::Learned && !tree.keyspace.is_hashed();
        self.slice = Some(Slice {
            tree,
            shape,
            columns: None,
            gathered: is_learned.then(|| Gathered::new(block_bytes, self.gather_bytes)).flatten(),
            data,
            fences: FenceBuilder::default(),
            hashes: Vec::new(),
            ranges: Ranges::default(),
            items: 0,
            tombstones: 0,
            density: Density::default(),
            key_value_bytes: 0,
            min: Vec::new(),
            last: Vec::new(),
            last_cut: Vec::new(),
            start: 0,
        });
        Ok(())
    }

    /// As [`TableBuilder::begin`], for a node of a trie. `node` has the node's older runs; the slice's filter
    /// is by column and includes theirs.
    pub(crate) fn begin_in_node(
        &mut self,
        tree: TreeId,
        shape: SliceShape,
        node: Arc<NodeRuns>,
    ) -> Result<()> {
        self.begin(tree, shape)?;
        let slice = self.slice.as_mut().expect("it was begun just now");
        debug_assert_eq!(shape.filter.kind, FilterKind::Column);
        slice.columns = Some((node, ItemColumns::default()));
        Ok(())
    }

    /// Whether a slice of this tree may come after all present slices.
    pub(crate) fn is_before(&self, tree: TreeId) -> bool {
        self.last_tree.is_none_or(|last| last < tree || last == tree && tree.keyspace.is_hashed())
    }

    /// The tree of the present slice.
    pub(crate) fn tree(&self) -> TreeId {
        self.slice.as_ref().expect("a slice was begun").tree
    }

    /// Gives up and leaves the file in place: the next open of the store removes files that no manifest
    /// names.
    pub(crate) fn leave(mut self) {
        self.out.finished = true;
    }

    /// Adds an item. Keys are strictly ascending; a delete has an empty value.
    pub(crate) fn add(&mut self, key: &[u8], hash: KeyHash, kind: ItemKind, value: &[u8]) -> Result<()> {
        let slice = self.slice.as_mut().expect("a slice was begun");
        if slice.items == 0 {
            slice.min.extend_from_slice(key);
            let before = self.ended.last().map(|ended| &ended.contents.entry);
            let is_behind = |before: &PackedEntry| before.tree < slice.tree || before.max() < key;
            assert!(before.is_none_or(is_behind), "slices of a trie ascend by key");
        } else {
            assert!(slice.last.as_slice() < key, "keys of a slice are strictly ascending");
        }
        slice.last.clear();
        slice.last.extend_from_slice(key);
        slice.items += 1;
        slice.tombstones += u64::from(kind == ItemKind::Delete);
        slice.density.add(kind);
        slice.key_value_bytes += (key.len() + value.len()) as u64;
        if slice.shape.filter.is_some() {
            slice.hashes.push(filter::field(hash));
            if let Some((node, items)) = &mut slice.columns {
                items.add(node.node, key);
            }
        }
        let tag = hash.block_tag();
        if let Some(gathered) = &mut slice.gathered {
            gathered.push(key, tag, kind, value);
            return if gathered.is_full() { slice.write_gathered(&mut self.out, false) } else { Ok(()) };
        }
        slice.data.add(key, tag, kind, value);
        slice.write_cut(&mut self.out)
    }

    /// Adds a range tombstone from `start` to before `end`; an empty `end` means no end. The tombstone hides
    /// items of older runs, but no item of this slice. Starts come in order.
    pub(crate) fn add_range(&mut self, start: &[u8], end: &[u8]) {
        self.slice.as_mut().expect("a slice was begun").ranges.push(start, end);
    }

    /// The key added last; the slice has at least one.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.slice.as_ref().expect("a slice was begun").last
    }

    /// Data blocks of the present slice, plus gathered items in pages.
    #[inline]
    pub(crate) fn slice_blocks(&self) -> usize {
        self.slice.as_ref().map_or(0, |slice| {
            let gathered = slice.gathered.as_ref().map_or(0, Gathered::pending_bytes);
            slice.fences.blocks() + gathered / PAGE_BYTES
        })
    }

    /// Estimated length of the file if it were finished now.
    pub(crate) fn file_bytes(&self) -> u64 {
        let slice = self.slice.as_ref().map_or(0, |slice| {
            let filter = FilterShape::new(slice.items, slice.shape.filter).bytes();
            let ranges = slice.ranges.encoded_bytes();
            let gathered = slice.gathered.as_ref().map_or(0, Gathered::pending_bytes);
            (slice.data.pending_bytes() + gathered) as u64 + filter + slice.fences.estimated_bytes() + ranges
        });
        self.out.at() + slice
    }

    /// Ends the slice: writes its last block, filter, fences, top and ranges.
    ///
    /// # Panics
    /// If the slice has ranges and no item. Every slice has a block: the caller adds a tombstone for the
    /// first key of one of its ranges, which changes no reader's answer.
    pub(crate) fn end(&mut self) -> Result<()> {
        let mut slice = self.slice.take().expect("a slice was begun");
        assert!(slice.items > 0 || slice.ranges.is_empty(), "a slice with ranges has an item");
        if slice.items > 0 {
            slice.write_gathered(&mut self.out, true)?;
            slice.write_block_rest(&mut self.out)?;
            self.ended.push(slice.write_index(&mut self.out, self.opening.as_ref())?);
        }
        Ok(())
    }

    /// Writes footer and tail and syncs the file. The caller syncs the directory.
    ///
    /// # Panics
    /// If no slice has an item: the caller drops such a builder instead.
    pub(crate) fn finish(mut self) -> Result<BuiltTable> {
        assert!(self.slice.is_none(), "the last slice was ended");
        assert!(!self.ended.is_empty(), "a table has items");
        let entries = self.ended.iter().map(|ended| ended.contents.entry.unpack());
        let block = Footer::encode_of(self.out.blocks_checksum, entries);
        let span = Span { offset: self.out.at(), bytes: block.len() as u64 };
        self.out.append(&block, FOOTER_TAG)?;
        let checksum = self.out.blocks_checksum;
        self.out.append(&encode_tail(span), TAIL_TAG)?;
        let features = self.ended.iter().fold(0, |features, ended| features | ended.features);
        self.out.set_features(features)?;
        let bytes = self.out.finish()?;
        let slices = self.ended.iter().map(|ended| SliceSummary::of(&ended.contents.entry, ended.density));
        let summary = TableSummary { identity: self.out.identity, bytes, checksum, slices: slices.collect() };
        let tables = self.opening.map_or_else(Vec::new, |opening| {
            let slices = self.ended.into_iter().map(|ended| ended.contents);
            TableFile::with(summary.identity, bytes, slices, &opening.owner)
        });
        Ok(BuiltTable { summary, tables })
    }
}

impl SliceSummary {
    fn of(entry: &PackedEntry, density: Density) -> SliceSummary {
        SliceSummary {
            tree: entry.tree,
            items: entry.items(),
            tombstones: entry.tombstones(),
            tombstones_dense: density.most.into(),
            key_value_bytes: entry.key_value_bytes,
            ranges: entry.ranges_count,
            min: entry.min().to_vec(),
            max: entry.max().to_vec(),
        }
    }
}

impl Slice {
    /// Cuts and writes the block of the first `count` pending items.
    fn write_block(&mut self, out: &mut TableOutput, count: usize) -> Result<()> {
        if self.fences.blocks() == 0 {
            let first_bytes = self.data.block_bytes(count);
            let is_page = first_bytes > PAGE_BYTES - UNIT_BYTES && first_bytes <= PAGE_BYTES;
            if is_page && self.shape.compression == Compression::None {
                out.align();
            }
            self.start = out.at();
            self.fences = FenceBuilder::new(self.start);
        }
        let last_before = (self.fences.blocks() > 0).then_some(self.last_cut.as_slice());
        let first = self.data.key(0).to_vec();
        let last = self.data.key(count - 1).to_vec();
        let is_alone = self.data.is_alone(count);
        let context = out.context(BlockKind::Data as u8);
        let before = out.buffer.len();
        let checksum = self.data.encode(count, context, &mut out.buffer);
        let bytes = out.buffer.len() - before;
        out.offer(context, before);
        self.fences.set_quanta(self.data.quanta());
        match is_alone {
            true => self.fences.add_alone(&first, bytes),
            false => self.fences.add(last_before, &first, bytes),
        }
        self.last_cut = last;
        out.blocks_checksum = checksum::append(out.blocks_checksum, &checksum.to_le_bytes());
        out.write_full()
    }

    /// Writes the blocks whose end is decided.
    fn write_cut(&mut self, out: &mut TableOutput) -> Result<()> {
        while let Some(count) = self.data.cut() {
            self.write_block(out, count)?;
        }
        Ok(())
    }

    /// Lays out the blocks of gathered items: all items at the end, otherwise only while the buffer is full.
    fn write_gathered(&mut self, out: &mut TableOutput, are_last: bool) -> Result<()> {
        let Some(mut gathered) = self.gathered.take() else { return Ok(()) };
        while gathered.is_full() || are_last && gathered.count() > 0 {
            let last_before = match (self.data.items(), self.fences.blocks()) {
                (0, 0) => None,
                (0, _) => Some(self.last_cut.clone()),
                (items, _) => Some(self.data.key(items - 1).to_vec()),
            };
            match gathered.plan(last_before.as_deref(), are_last) {
                Some(plan) => self.write_learned(out, &mut gathered, &plan)?,
                None => self.write_plain(out, &mut gathered)?,
            }
        }
        if gathered.is_of_use() || gathered.count() > 0 {
            self.gathered = Some(gathered);
        }
        Ok(())
    }

    /// Writes gathered items into blocks that fences index.
    fn write_plain(&mut self, out: &mut TableOutput, gathered: &mut Gathered) -> Result<()> {
        for index in 0..gathered.count() {
            let (key, tag, kind, value) = gathered.item(index);
            self.data.add(key, tag, kind, value);
            self.write_cut(out)?;
        }
        gathered.forget(gathered.count());
        Ok(())
    }

    /// Writes the blocks of a layout plan.
    fn write_learned(
        &mut self,
        out: &mut TableOutput,
        gathered: &mut Gathered,
        plan: &LearnedPlan,
    ) -> Result<()> {
        self.write_block_rest(out)?;
        let first = self.fences.blocks();
        let separator = gathered.item(0).0[..plan.separator_bytes()].to_vec();
        let mut units = Vec::with_capacity(plan.blocks());
        for block in 0..plan.blocks() {
            let items = plan.block(block);
            let count = items.len();
            for index in items {
                let (key, tag, kind, value) = gathered.item(index);
                self.data.add(key, tag, kind, value);
            }
            let before = self.fences.data_bytes();
            self.write_block_rest(out)?;
            debug_assert!(count > 0 || self.fences.data_bytes() == before);
            units.push((self.fences.data_bytes() - before) as usize / UNIT_BYTES);
        }
        let page = plan.encode(self.fences.offset(first), &units);
        self.fences.learn(first, page, &separator);
        gathered.forget(plan.items());
        Ok(())
    }

    fn write_block_rest(&mut self, out: &mut TableOutput) -> Result<()> {
        match self.data.items() {
            0 => Ok(()),
            items => self.write_block(out, items),
        }
    }

    /// Appends the filter's pages.
    fn filter(&mut self, storage: &dyn Storage, pages: &mut Vec<u8>) -> FilterShape {
        let plan = self.shape.filter;
        match self.columns.take().filter(|_| plan.is_some()) {
            Some((node, items)) => {
                let (hashes, data_bytes) = (&self.hashes, self.fences.data_bytes());
                ColumnSlice { node: &node, plan, items: &items, hashes, data_bytes }.build(storage, pages)
            }
            None => filter::build(plan, &mut self.hashes, pages),
        }
    }

    /// Writes filter pages, fence pages, top block and range blocks; returns the description of the slice.
    fn write_index(&mut self, out: &mut TableOutput, opening: Option<&OpenWith>) -> Result<Ended> {
        let data = Span { offset: self.start, bytes: self.fences.data_bytes() };
        let mut pages = Vec::new();
        let shape = self.filter(out.storage.as_ref(), &mut pages);
        if shape.kind != self.shape.filter.kind && shape.pages > 0 {
            let (file, items) = (out.identity.file, self.items);
            log::warn!("{file}: no binary fuse found for {items} items; they have a Bloom filter");
        }
        self.hashes = Vec::new();
        let filter_span = out.append_pages(&mut pages, shape.page_bytes as usize, BlockKind::Filter)?;
        let mut fences = self.fences.build();
        let fence_pages = fences.first_blocks.len();
        let fence_span = out.append_pages(&mut fences.bytes, fences.page_bytes, BlockKind::Fence)?;
        let (mut top_span, mut top) = (Span::default(), None);
        if fence_pages > 0 {
            let block =
                top::encode(fences.first_blocks.iter().map(|block| self.fences.page_separator(*block)));
            top_span = Span { offset: out.at(), bytes: block.len() as u64 };
            out.append(&block, TOP_TAG)?;
            top = opening.map(|_| Top::decode(&block, fence_pages as u32).expect("it was encoded just now"));
        }
        let ranges = Span { offset: out.at(), bytes: 0 };
        for extent in self.ranges.encode() {
            out.append(&extent, RANGES_TAG)?;
        }
        let ranges = Span { bytes: out.at() - ranges.offset, ..ranges };
        let count = |value: usize| u32::try_from(value).expect("a slice is far smaller");
        let entry = SliceEntry {
            tree: self.tree,
            items: self.items,
            tombstones: self.tombstones,
            key_value_bytes: self.key_value_bytes,
            data,
            data_blocks: count(self.fences.blocks()),
            filter_offset: filter_span.offset,
            filter: shape,
            fence_offset: fence_span.offset,
            fence_pages: count(fence_pages),
            fence_page_bytes: if fence_pages > 0 { count(fences.page_bytes) } else { 0 },
            top: top_span,
            ranges_count: count(self.ranges.count()),
            ranges: if ranges.bytes > 0 { ranges } else { Span::default() },
            min: self.min.as_slice().into(),
            max: self.last.as_slice().into(),
        };
        let resident = Resident::of(top, &entry.min);
        let mut contents = SliceContents { entry: PackedEntry::of(&entry), ranged: None, resident };
        if let Some(OpenWith { pages: budget, fences: rank, filters, otherwise, .. }) = opening {
            self.ranges.index();
            contents.ranged = Ranged::of(&contents.entry, std::mem::take(&mut self.ranges)).map(Box::new);
            contents.account(budget);
            let whose = (out.identity, &contents.entry);
            let kept = [(*rank, &fences.bytes), (*filters, &pages)];
            for (rank, bytes) in kept {
                contents.resident.keep(whose, bytes, budget, rank, *otherwise);
            }
        }
        let columns = if contents.entry.filter.kind == FilterKind::Column { FEATURE_COLUMNS } else { 0 };
        let learned = if self.fences.has_learned() { FEATURE_LEARNED } else { 0 };
        Ok(Ended { density: self.density, features: columns | learned, contents })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Density is the most tombstones among 128 neighbours, however many puts are around them.
    #[test]
    fn density_is_of_neighbours() {
        let most = |kinds: &[(ItemKind, usize)]| {
            let mut density = Density::default();
            let kinds = kinds.iter().flat_map(|(kind, count)| std::iter::repeat_n(*kind, *count));
            kinds.for_each(|kind| density.add(kind));
            density.most
        };
        use ItemKind::{Delete, Put};
        assert_eq!(most(&[(Put, 500)]), 0);
        assert_eq!(most(&[(Delete, 500)]), 128);
        assert_eq!(most(&[(Put, 500), (Delete, 70), (Put, 500)]), 70);
        assert_eq!(most(&[(Delete, 40), (Put, 50), (Delete, 40)]), 78);
        assert_eq!(most(&[(Delete, 40), (Put, 88), (Delete, 40)]), 40);
    }
}
