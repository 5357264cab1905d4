//! A merge: runs of a tree's tables in, new tables out, in bounded turns. Small merges of many trees run as
//! one job, with a slice for each tree in the output files.
//!
//! A job keeps the newest version of each key that no range tombstone hides. It drops tombstones of keys and
//! of ranges that hide nothing any more, and cuts its output into tables of one slice each. Tables fully
//! covered by range tombstones are not even read. A job neither picks its inputs nor installs its outputs.
//! The outputs are durable when it is done, and become part of the store by a manifest edit of the caller.
//! Called by the engine's background work. One thread at a time.
//!
//! Invariants:
//! 1. Output is strictly ascending, each key once, in disjoint tables; items in + tombstones added = items
//!    out + shadowed + tombstones dropped.
//! 2. A tombstone is dropped only if no older table outside the inputs may hold its key, by inclusive bounds;
//!    a range tombstone is clipped to the bounds of these older tables. An output table gets the part of each
//!    range that lies between the keys of its neighbour tables: a range that reaches past the table's last
//!    key continues in the next table.
//! 3. A job that fails, or is dropped before it is done, removes every file that it created.
//! 4. No item costs an allocation.

mod ranges_left;

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileName, ItemKind, TreeId};
use crate::base::key::common_prefix;
use crate::base::load::DeviceLoad;
use crate::base::place::NodeId;
use crate::base::sync::Arc;
use crate::format::table::filter::FilterKind;
use crate::format::table::ranges::{Ranges, farther};
use crate::io::storage::Storage;
use crate::merge::{Consumed, Merge, MergeItem, MergeSource, RANGE_SEQUENCE, Stretch, TurnProgress};
use crate::table::{
    BuiltTable, CacheAdmission, IndexPlan, NodeRuns, OpenWith, SliceShape, TableBuilder, TableIdentity,
    TableReader, TableStream, Windows,
};

use super::bounds::{Cuts, OlderKeys, most_bytes};
use ranges_left::{RangesLeft, Upto};

/// Input bytes of one turn, keys and values.
const TURN_BYTES: u64 = 64 << 10;
/// Cost of each item on top of its bytes, so that turns over tiny items are bounded too.
const ITEM_COST_BYTES: u64 = 16;
/// Read buffers of all runs together.
const READ_BYTES: usize = 2 << 20;
/// Bytes of one read of a run.
const CHUNK_BYTES_MIN: usize = 4 << 10;
const CHUNK_BYTES_MAX: usize = 512 << 10;
/// Upper estimates of the memory of a table being built: fixed, for each item, and for each block. A block is
/// taken to have at least a page.
const TABLE_BYTES: u64 = 2 << 20;
const ITEM_BYTES: u64 = 12;
const BLOCK_BYTES: u64 = 96;
const PAGE_BYTES: u64 = 4096;
/// Memory of items that are gathered for a learned page.
const GATHERED_BYTES: u64 = 6 << 20;
/// Memory of a slice that has ended, in a table of many.
const SLICE_BYTES: u64 = 1 << 10;
/// Cost of each tree within a turn, on top of its items.
const TREE_COST_BYTES: u64 = 2 << 10;
/// A file shared by trees ends at this length. The file stays as long as any of its slices, so a seldom
/// merged tree keeps at most this much of other trees' data.
const SHARED_BYTES: u64 = 4 << 20;
/// Bytes of the window through which a joint merge reads a file.
const WINDOW_BYTES_MIN: usize = 32 << 10;
const WINDOW_BYTES_MAX: usize = 256 << 10;
/// A table that takes less memory than this is never ended early, however low the memory limit.
const TABLE_MEMORY_BYTES_MIN: usize = 64 << 10;
/// Approximate limit of the bytes that an output table overlaps in [`TreeMergePlan::next`], in target table
/// sizes.
const NEXT_TABLES_MAX: u64 = 10;

/// Gives out numbers and uids for new table files.
pub(crate) trait NewFiles: Send + Sync {
    /// A number and a uid that no file has.
    ///
    /// # Errors
    /// The error of reserving more numbers.
    fn next(&self) -> Result<TableIdentity>;
}

/// The plan of one tree's merge: inputs, and the shape of the output.
pub(crate) struct TreeMergePlan {
    pub(crate) tree: TreeId,
    pub(crate) slice: SliceShape,
    /// Newest run first; the tables of a run ascending and disjoint.
    pub(crate) runs: Vec<Vec<Arc<TableReader>>>,
    /// Tables older than the inputs that overlap them, of the run that the outputs are merged with next;
    /// ascending.
    pub(crate) next: Vec<Arc<TableReader>>,
    /// All other tables older than the inputs that overlap them.
    pub(crate) older: Vec<Arc<TableReader>>,
    /// Present in a trie, which has no `next` and no `older`.
    pub(crate) nodes: Option<NodesPlan>,
    /// Target bytes of output tables.
    pub(crate) table_bytes: u64,
}

/// The output of a merge in a trie: a slice for each node of a height.
pub(crate) struct NodesPlan {
    pub(crate) height: usize,
    /// Bounds of the keys that may have older versions outside the inputs.
    pub(crate) older: Vec<(Vec<u8>, Vec<u8>)>,
    /// If filters are by column: the runs of each node that stay, older than the output.
    pub(crate) runs: BTreeMap<NodeId, Arc<NodeRuns>>,
}

/// The plan of a merge.
pub(crate) struct MergePlan {
    /// One, or several in ascending order.
    pub(crate) trees: Vec<TreeMergePlan>,
    /// The memory limit: a quarter for reads, the rest for the table being built, which ends early if the
    /// memory does not suffice.
    pub(crate) memory_bytes: u64,
    /// The cache that output blocks go to if their input was cached.
    pub(crate) admission: Option<CacheAdmission>,
    /// How the new tables are opened; without it they are not opened.
    pub(crate) opening: Option<OpenWith>,
    /// The counter of its reads.
    pub(crate) load: Arc<DeviceLoad>,
}

/// Counts of a job.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct MergeCounts {
    pub(crate) items_in: u64,
    pub(crate) items_out: u64,
    /// Items hidden by a newer version of their key in the inputs or by a range tombstone.
    pub(crate) items_shadowed: u64,
    pub(crate) tombstones_dropped: u64,
    /// Tombstones added to slices that would have only range tombstones.
    pub(crate) tombstones_added: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
}

/// New tables, for each tree ascending and disjoint; none if no item remained.
#[derive(Debug)]
pub(crate) struct MergeOutput {
    pub(crate) tables: Vec<BuiltTable>,
    pub(crate) counts: MergeCounts,
}

/// A merge under way.
pub(crate) struct MergeJob {
    way: Way,
    /// Bytes of the read buffers.
    read_bytes: usize,
    /// Trees that are not begun yet.
    trees: std::vec::IntoIter<TreeMergePlan>,
    current: Option<TreeMerge>,
    /// The tree begun last.
    begun: Option<TreeId>,
    output: Output,
    secret: HashSecret,
    counts: MergeCounts,
    /// Consumed input of finished trees, and the number of these trees.
    done: Consumed,
    done_count: u64,
}

/// The merge of one tree.
struct TreeMerge {
    merge: Merge<RunStream>,
    older: OlderKeys,
    cuts: Cuts,
    /// In a trie: the height of the nodes that get a slice each, and the node whose slice is being written.
    nodes_height: Option<usize>,
    node: Option<NodeId>,
}

impl MergeJob {
    /// Opens the inputs of the first tree and reads the first chunk of each run.
    ///
    /// # Errors
    /// The error of a read; no file was created.
    pub(crate) fn new(
        storage: &Arc<dyn Storage>,
        new_files: Arc<dyn NewFiles>,
        secret: HashSecret,
        plan: MergePlan,
    ) -> Result<MergeJob> {
        assert!(plan.trees.windows(2).all(|pair| pair[0].tree < pair[1].tree), "trees ascend");
        let read_bytes = READ_BYTES.min(plan.memory_bytes as usize / 4);
        let way = Way {
            storage: Arc::clone(storage),
            load: plan.load,
            windows: windows(&plan.trees, read_bytes / 2),
            admission: plan.admission,
        };
        let output = Output {
            storage: Arc::clone(storage),
            new_files,
            tree: None,
            node_runs: BTreeMap::new(),
            admission: way.admission.clone(),
            opening: plan.opening,
            memory_bytes: plan.memory_bytes as usize,
            ranges: RangesLeft::of(Ranges::default()),
            tombstones_added: 0,
            builder: None,
            slice_from: None,
            measured: Measured::default(),
            tables: Vec::new(),
        };
        let mut job = MergeJob {
            way,
            read_bytes,
            trees: plan.trees.into_iter(),
            current: None,
            begun: None,
            output,
            secret,
            counts: MergeCounts::default(),
            done: Consumed::default(),
            done_count: 0,
        };
        job.begin_tree()?;
        Ok(job)
    }

    /// The tree being merged; after an error, the tree that failed.
    pub(crate) fn tree(&self) -> Option<TreeId> {
        self.begun
    }

    /// Begins the next tree, if there is one.
    fn begin_tree(&mut self) -> Result<()> {
        let Some(plan) = self.trees.next() else { return Ok(()) };
        self.begun = Some(plan.tree);
        let chunk_bytes = (self.read_bytes / plan.runs.len().max(1)).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        let shared_prefix = shared_prefix(&plan.runs).to_vec();
        let run_ranges = |tables: &Vec<Arc<TableReader>>| {
            let mut ranges = Ranges::concatenated(tables.iter().map(|one| one.ranges()));
            ranges.index();
            ranges
        };
        let by_run: Vec<Ranges> = plan.runs.iter().map(run_ranges).collect();
        let ranges = Ranges::union(&by_run);
        let mut runs = plan.runs;
        for (run, tables) in runs.iter_mut().enumerate() {
            let end_over = |key: &[u8]| by_run[..run].iter().map(|one| one.end_over(key)).fold(None, farther);
            tables.retain(|table| !table.is_covered_by(end_over));
        }
        let first_file = plan_file(&runs);
        self.counts.bytes_read += runs.iter().flatten().map(|table| table.slice_bytes()).sum::<u64>();
        let way = || self.way.clone();
        let sources =
            runs.into_iter().zip(by_run).map(|(run, own)| RunStream::new(way(), chunk_bytes, run, own));
        let sources = sources.collect::<Result<Vec<_>>>()?;
        let bounds = |table: &Arc<TableReader>| (table.min().to_vec(), table.max().to_vec());
        let (nodes_height, below, node_runs) = match plan.nodes {
            Some(nodes) => (Some(nodes.height), nodes.older, nodes.runs),
            None => (None, Vec::new(), BTreeMap::new()),
        };
        let older = OlderKeys::new(plan.next.iter().chain(&plan.older).map(bounds).chain(below).collect());
        let mut kept = Ranges::default();
        let clipped = ranges.iter().filter_map(|(start, end)| older.clip(start, end));
        clipped.for_each(|(start, end)| kept.push(&start, &end));
        if nodes_height.is_some() && !kept.is_empty() {
            // Where a range covers older tables, those are removed first: a slice of a node has no ranges.
            let what = "range tombstones of a node";
            return Err(Error::corrupt(first_file, 0, what, "none over older tables", kept.count()));
        }
        let next = plan.next.iter().map(|table| (table.max().to_vec(), table.slice_bytes())).collect();
        self.output.tree = Some((plan.tree, plan.slice));
        self.output.node_runs = node_runs;
        self.output.ranges = RangesLeft::of(kept);
        self.current = Some(TreeMerge {
            merge: Merge::with_prefix(sources, &shared_prefix),
            older,
            cuts: Cuts::new(next, plan.table_bytes, plan.table_bytes.saturating_mul(NEXT_TABLES_MAX)),
            nodes_height,
            node: None,
        });
        Ok(())
    }

    /// Memory of read and write buffers, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let reading = |run: &RunStream| {
            run.stream.as_ref().map_or(0, TableStream::memory_bytes) + run.ranges.memory_bytes()
        };
        let current = self.current.as_ref();
        let read: usize = current.map_or(0, |current| current.merge.sources().iter().map(reading).sum());
        let windows = self.way.windows.as_ref().map_or(0, |windows| windows.memory_bytes());
        read + windows
            + self.output.ranges.ranges.memory_bytes()
            + self.output.builder.as_ref().map_or(0, TableBuilder::memory_bytes)
    }

    fn consumed(&self) -> Consumed {
        let mut all = self.done;
        all.add(self.current.as_ref().map(|current| current.merge.consumed()).unwrap_or_default());
        all
    }

    /// Bytes read, counted as consumed keys and values, plus bytes written so far.
    pub(crate) fn bytes_done(&self) -> u64 {
        let finished: u64 = self.output.tables.iter().map(|table| table.summary.bytes).sum();
        let written = finished + self.output.builder.as_ref().map_or(0, TableBuilder::file_bytes);
        self.consumed().key_value_bytes + written.max(self.counts.bytes_written)
    }

    /// Cost of the work so far; a turn ends when the cost has grown by a turn's share.
    fn cost_bytes(&self) -> u64 {
        let consumed = self.consumed();
        consumed.key_value_bytes + consumed.items * ITEM_COST_BYTES + self.done_count * TREE_COST_BYTES
    }

    /// Does the next piece: some ten KiB of input, and sometimes the end of a table.
    ///
    /// # Errors
    /// The error of a read or write. The job is then only dropped.
    pub(crate) fn turn(&mut self) -> Result<TurnProgress<MergeOutput>> {
        let until_bytes = self.cost_bytes() + TURN_BYTES;
        while self.cost_bytes() < until_bytes {
            let Some(TreeMerge { merge, older, cuts, nodes_height, node }) = &mut self.current else {
                return self.finish().map(TurnProgress::Done);
            };
            let Some(item) = merge.item() else {
                self.end_tree()?;
                continue;
            };
            if merge.is_hidden() {
                // The item is skipped.
            } else if item.kind == ItemKind::Delete && !older.may_contain(item.key) {
                self.counts.tombstones_dropped += 1;
            } else {
                if let Some(height) = *nodes_height {
                    let next = Some(NodeId::of(height, item.key));
                    if std::mem::replace(node, next) != next {
                        self.output.end_slice(&self.secret)?;
                    }
                }
                self.output.measure();
                let slice_bytes = self.output.slice_from.map(|_| self.output.measured.slice_bytes);
                // A run of the root is one slice, as a flush writes it.
                let can_cut = *nodes_height != Some(0);
                if can_cut && (cuts.is_due(item.key, slice_bytes) || self.output.measured.is_full) {
                    self.output.cut()?;
                }
                let builder = self.output.slice(*node)?;
                if merge.source().is_some_and(RunStream::is_cached) {
                    builder.note_cached(item.key.len() + item.value.len());
                }
                let hash = self.secret.hash_in(builder.tree().keyspace, item.key);
                builder.add(item.key, hash, item.kind, item.value)?;
                self.counts.items_out += 1;
            }
            merge.advance()?;
        }
        Ok(TurnProgress::More)
    }

    /// Ends the current tree and begins the next.
    fn end_tree(&mut self) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        self.done.add(current.merge.consumed());
        self.done_count += 1;
        self.output.end_slice(&self.secret)?;
        self.output.end_long_table(current.cuts.table_bytes().min(SHARED_BYTES))?;
        self.begin_tree()
    }

    fn finish(&mut self) -> Result<MergeOutput> {
        self.output.end_table()?;
        let tables = self.output.take();
        self.counts.items_in = self.done.items;
        self.counts.tombstones_added = self.output.tombstones_added;
        let kept_or_dropped = self.counts.items_out + self.counts.tombstones_dropped;
        self.counts.items_shadowed = self.counts.items_in - kept_or_dropped;
        self.counts.items_out += self.counts.tombstones_added;
        self.counts.bytes_written = tables.iter().map(|table| table.summary.bytes).sum();
        Ok(MergeOutput { tables, counts: self.counts })
    }
}

/// Memory of an unlimited merge of these trees: read chunks, a table's buffer, and the data kept for each of
/// its items and blocks until the table ends.
pub(crate) fn wanted_bytes(trees: &[TreeMergePlan]) -> u64 {
    let tables = || trees.iter().flat_map(|tree| &tree.runs).flatten();
    let bytes: u64 = tables().map(|table| table.slice_bytes()).sum();
    let items: u64 = tables().map(|table| table.items()).sum();
    let table_bytes = most_bytes(trees.iter().map(|tree| tree.table_bytes).max().unwrap_or(0));
    let table_items = (items as f64 * (table_bytes as f64 / bytes.max(1) as f64).min(1.0)) as u64;
    let table_blocks = table_bytes.min(bytes) / PAGE_BYTES;
    let slices = trees.len() as u64 * SLICE_BYTES;
    let has_learned = trees.iter().any(|tree| tree.slice.index == IndexPlan::Learned);
    let slices = slices + if has_learned { GATHERED_BYTES } else { 0 };
    READ_BYTES as u64 + 4 * (TABLE_BYTES + table_items * ITEM_BYTES + table_blocks * BLOCK_BYTES + slices)
}

/// Windows for a joint merge, if the memory suffices.
fn windows(trees: &[TreeMergePlan], bytes: usize) -> Option<Arc<Windows>> {
    if trees.len() < 2 {
        return None;
    }
    let tables = trees.iter().flat_map(|tree| &tree.runs).flatten();
    let files: BTreeSet<FileName> = tables.map(|table| table.file().name()).collect();
    let window_bytes = (bytes / files.len().max(1)).min(WINDOW_BYTES_MAX);
    (window_bytes >= WINDOW_BYTES_MIN).then(|| Arc::new(Windows::new(window_bytes)))
}

/// A file of the inputs.
fn plan_file(runs: &[Vec<Arc<TableReader>>]) -> FileName {
    runs.iter().flatten().next().map_or(FileName::STORE, |table| table.file().name())
}

/// The common prefix of all keys within the bounds of the inputs.
fn shared_prefix(runs: &[Vec<Arc<TableReader>>]) -> &[u8] {
    let tables = || runs.iter().flatten();
    let min = tables().map(|table| table.min()).min().unwrap_or_default();
    let max = tables().map(|table| table.max()).max().unwrap_or_default();
    &min[..common_prefix(min, max)]
}

/// The tables being written. If it is dropped before [`Output::take`], it removes their files.
struct Output {
    storage: Arc<dyn Storage>,
    new_files: Arc<dyn NewFiles>,
    /// The tree being merged.
    tree: Option<(TreeId, SliceShape)>,
    /// The older runs of the tree's nodes.
    node_runs: BTreeMap<NodeId, Arc<NodeRuns>>,
    admission: Option<CacheAdmission>,
    opening: Option<OpenWith>,
    /// The memory limit of the whole job.
    memory_bytes: usize,
    /// Range tombstones of the tree being merged.
    ranges: RangesLeft,
    tombstones_added: u64,
    /// The table being built, which has an item.
    builder: Option<TableBuilder>,
    /// The file offset of the current tree's slice; `None` if it has no slice yet.
    slice_from: Option<u64>,
    measured: Measured,
    /// Finished tables, which this value removes unless they are taken.
    tables: Vec<BuiltTable>,
}

/// The size of the slice being built, measured when a block is cut: a measurement for each item would slow a
/// merge.
#[derive(Clone, Copy, Default)]
struct Measured {
    blocks: usize,
    slice_bytes: u64,
    /// The result of [`Output::is_full`].
    is_full: bool,
}

impl Output {
    /// Measures the slice being built, if it has new blocks since the last measurement.
    #[inline]
    fn measure(&mut self) {
        if let (Some(builder), Some(from)) = (&self.builder, self.slice_from)
            && builder.slice_blocks() != self.measured.blocks
        {
            let (blocks, slice_bytes) = (builder.slice_blocks(), builder.file_bytes() - from);
            self.measured = Measured { blocks, slice_bytes, is_full: self.is_full() };
        }
    }

    /// Whether the table being built takes half of the memory; ending it takes some more.
    fn is_full(&self) -> bool {
        let table_bytes = (self.memory_bytes / 2).max(TABLE_MEMORY_BYTES_MIN);
        self.builder.as_ref().is_some_and(|builder| builder.growing_bytes() > table_bytes)
    }

    /// The builder of the current table, within the slice of the current tree, or of `node` in a trie. Table
    /// and slice are begun if there is none.
    fn slice(&mut self, node: Option<NodeId>) -> Result<&mut TableBuilder> {
        if self.builder.is_none() {
            let identity = self.new_files.next()?;
            let mut builder = TableBuilder::new(Arc::clone(&self.storage), identity)?;
            builder.set_memory_bytes(self.memory_bytes);
            if let Some(admission) = &self.admission {
                builder.admit(admission.clone());
            }
            self.opening.iter().for_each(|opening| builder.open_with(opening.clone()));
            self.builder = Some(builder);
        }
        let builder = self.builder.as_mut().expect("made above if there was none");
        if self.slice_from.is_none() {
            let (tree, shape) = self.tree.expect("a tree is being merged");
            self.slice_from = Some(builder.file_bytes());
            self.measured = Measured::default();
            match node.filter(|_| shape.filter.kind == FilterKind::Column) {
                Some(node) => {
                    let runs = self.node_runs.get(&node).cloned();
                    let runs = runs.unwrap_or_else(|| Arc::new(NodeRuns { node, runs: Vec::new() }));
                    builder.begin_in_node(tree, shape, runs)?;
                }
                None => {
                    let mut shape = shape;
                    if shape.filter.kind == FilterKind::Column {
                        shape.filter.kind = FilterKind::Line;
                    }
                    builder.begin(tree, shape)?;
                }
            }
        }
        Ok(builder)
    }

    /// Ends slice and table behind the last item, if ranges can be cut there. If the tree has no slice yet,
    /// only the table left by other trees is ended.
    fn cut(&mut self) -> Result<()> {
        let (Some(builder), Some(_)) = (&mut self.builder, self.slice_from) else { return self.end_table() };
        if self.ranges.give(builder, Upto::LastKey) {
            builder.end()?;
            self.slice_from = None;
            return self.end_table();
        }
        Ok(())
    }

    /// Ends the last slice of the tree being merged.
    fn end_slice(&mut self, secret: &HashSecret) -> Result<()> {
        if self.slice_from.is_none()
            && let Some(first) = self.ranges.first().map(<[u8]>::to_vec)
        {
            // A slice needs an item: a tombstone that repeats the range's delete for its first key.
            let builder = self.slice(None)?;
            let hash = secret.hash_in(builder.tree().keyspace, &first);
            builder.add(&first, hash, ItemKind::Delete, &[])?;
            self.tombstones_added += 1;
        }
        if self.slice_from.take().is_some()
            && let Some(builder) = &mut self.builder
        {
            self.ranges.give(builder, Upto::End);
            builder.end()?;
        }
        Ok(())
    }

    /// Ends the table between two slices, if it has at least `table_bytes`.
    fn end_long_table(&mut self, table_bytes: u64) -> Result<()> {
        let is_long = self.builder.as_ref().is_some_and(|builder| builder.file_bytes() >= table_bytes);
        if is_long || self.is_full() { self.end_table() } else { Ok(()) }
    }

    /// Ends the table, between two slices.
    fn end_table(&mut self) -> Result<()> {
        if let Some(builder) = self.builder.take() {
            self.tables.push(builder.finish()?);
        }
        Ok(())
    }

    /// Hands over the tables; their files stay.
    fn take(&mut self) -> Vec<BuiltTable> {
        std::mem::take(&mut self.tables)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // The builder removes its own file.
        for table in self.tables.drain(..) {
            let file = table.summary.identity.file;
            if let Err(error) = self.storage.remove(file) {
                log::warn!("{file} of an abandoned merge stays until the store is opened anew: {error}");
            }
        }
    }
}

/// The resources for a merge's reads.
#[derive(Clone)]
struct Way {
    storage: Arc<dyn Storage>,
    load: Arc<DeviceLoad>,
    windows: Option<Arc<Windows>>,
    admission: Option<CacheAdmission>,
}

/// The tables of a run, one after another: one source of a merge, with one chunk in memory. Its keys ascend
/// for any contents of the files: a stream fails unless its keys ascend and begin and end at the bounds of
/// its table.
struct RunStream {
    way: Way,
    chunk_bytes: usize,
    tables: std::vec::IntoIter<Arc<TableReader>>,
    stream: Option<TableStream>,
    /// Range tombstones of the run, also of tables that are not read.
    ranges: Ranges,
}

impl RunStream {
    fn new(way: Way, chunk_bytes: usize, tables: Vec<Arc<TableReader>>, ranges: Ranges) -> Result<RunStream> {
        for pair in tables.windows(2) {
            assert!(pair[0].max() < pair[1].min(), "tables of a run are ascending and disjoint");
        }
        let mut run = RunStream { way, chunk_bytes, tables: tables.into_iter(), stream: None, ranges };
        run.open_next()?;
        Ok(run)
    }

    /// Opens the next table; behind the last one there is no stream.
    fn open_next(&mut self) -> Result<()> {
        self.stream = None;
        if let Some(table) = self.tables.next() {
            let Way { storage, load, windows, admission } = &self.way;
            let from = (Arc::clone(storage), Arc::clone(load));
            let mut stream = TableStream::through(windows.clone(), from, table, self.chunk_bytes)?;
            if let Some(admission) = admission {
                stream.watch(admission);
            }
            self.stream = Some(stream);
        }
        Ok(())
    }

    fn is_cached(&self) -> bool {
        self.stream.as_ref().is_some_and(TableStream::is_cached)
    }
}

impl MergeSource for RunStream {
    #[inline]
    fn item(&self) -> Option<MergeItem<'_>> {
        let (key, kind, value) = self.stream.as_ref()?.item()?;
        Some(MergeItem { key, kind, value })
    }

    fn advance(&mut self) -> Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.advance()?;
        if stream.item().is_none() {
            return self.open_next();
        }
        Ok(())
    }

    fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    fn stretch(&self, key: &[u8], stretch: &mut Stretch) {
        let found = self.ranges.around(key);
        stretch.set(found.is_covered.then_some(RANGE_SEQUENCE), found.from, found.to);
    }
}

#[cfg(test)]
pub(super) mod tests;
