//! One merge of a tree's tables: runs in, tables out, a bounded piece of work a turn.
//!
//! It keeps the newest version of each key, drops tombstones that hide nothing any more, and cuts its output
//! into tables of one slice each. It neither picks its inputs nor installs its outputs; they are durable when
//! it is done, and part of the store by its caller's manifest edit. Called by the engine's background work.
//! One thread at a time.
//!
//! Invariants:
//! 1. Output is strictly ascending, each key once, in disjoint tables; items in = items out + shadowed +
//!    tombstones dropped.
//! 2. A tombstone is dropped only if no older table outside the inputs may hold its key, by inclusive bounds.
//! 3. Dropped before it is done, or failed, a job removes every file it made.
//! 4. Nothing is allocated an item.

use crate::base::error::Result;
use crate::base::hash::HashSecret;
use crate::base::id::{ItemKind, TreeId};
use crate::base::sync::Arc;
use crate::io::storage::Storage;
use crate::merge::{Item, Merge, Progress, Source};
use crate::table::{Admission, SliceShape, Table, TableBuilder, TableIdentity, TableStream, TableSummary};

use super::bounds::{Cuts, OlderKeys};

/// Input that one turn takes, keys and values.
const TURN_BYTES: u64 = 512 << 10;
/// Counted for each item on top of its bytes, so that turns over tiny items are bounded too.
const ITEM_COST_BYTES: u64 = 16;
/// Memory for reading, shared by the runs.
const READ_BYTES: usize = 2 << 20;
/// What one run reads at once.
const CHUNK_BYTES_MIN: usize = 4 << 10;
const CHUNK_BYTES_MAX: usize = 512 << 10;
/// Memory of a table being built, of each of its items, and of each of its blocks, of which the smallest have
/// a page: rounded up.
const TABLE_BYTES: u64 = 2 << 20;
const ITEM_BYTES: u64 = 12;
const BLOCK_BYTES: u64 = 64;
const PAGE_BYTES: u64 = 4096;
/// However little memory there is, a table is not ended for less.
const TABLE_MEMORY_BYTES_MIN: usize = 64 << 10;
/// An output table overlaps at most about this many tables' bytes of the level below it.
const BELOW_TABLES_MAX: u64 = 10;

/// Gives out numbers and uids for new table files.
pub(crate) trait NewFiles: Send + Sync {
    /// A number and a uid that no file has.
    ///
    /// # Errors
    /// What reserving more numbers said.
    fn next(&self) -> Result<TableIdentity>;
}

/// What to merge, and into what.
pub(crate) struct MergePlan {
    pub(crate) tree: TreeId,
    pub(crate) slice: SliceShape,
    /// Newest run first; the tables of a run ascending and disjoint.
    pub(crate) runs: Vec<Vec<Arc<Table>>>,
    /// Tables older than the inputs that overlap them, a list for each level below the output level, nearest
    /// first.
    pub(crate) older: Vec<Vec<Arc<Table>>>,
    /// Where to cut output tables.
    pub(crate) table_bytes: u64,
    /// What it may take: a quarter for reading, the rest for the table being built, which ends early if that
    /// does not suffice.
    pub(crate) memory_bytes: u64,
    /// Where blocks of the output go whose input was cached.
    pub(crate) admission: Option<Admission>,
}

/// What a job did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct MergeCounts {
    pub(crate) items_in: u64,
    pub(crate) items_out: u64,
    /// Older versions of keys that a newer run had.
    pub(crate) items_shadowed: u64,
    pub(crate) tombstones_dropped: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
}

/// New tables, ascending and disjoint; none if nothing lived.
#[derive(Debug)]
pub(crate) struct MergeOutput {
    pub(crate) tables: Vec<TableSummary>,
    pub(crate) counts: MergeCounts,
}

/// A merge under way.
pub(crate) struct MergeJob {
    merge: Merge<RunStream>,
    older: OlderKeys,
    cuts: Cuts,
    output: Output,
    secret: HashSecret,
    counts: MergeCounts,
}

impl MergeJob {
    /// Opens the inputs and reads the first chunk of each run.
    ///
    /// # Errors
    /// What a read said; nothing was made.
    pub(crate) fn new(
        storage: &Arc<dyn Storage>,
        new_files: Arc<dyn NewFiles>,
        secret: HashSecret,
        plan: MergePlan,
    ) -> Result<MergeJob> {
        let read_bytes = READ_BYTES.min(plan.memory_bytes as usize / 4);
        let chunk_bytes = (read_bytes / plan.runs.len().max(1)).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        let bytes_read = plan.runs.iter().flatten().map(|table| table.slice_bytes()).sum();
        let shared_prefix = shared_prefix(&plan.runs).to_vec();
        let mut sources = Vec::with_capacity(plan.runs.len());
        for tables in plan.runs {
            sources.push(RunStream::new(storage, tables, chunk_bytes, plan.admission.clone())?);
        }
        let bounds = |table: &Arc<Table>| (table.min().to_vec(), table.max().to_vec());
        let older = OlderKeys::new(plan.older.iter().flatten().map(bounds).collect());
        let below = plan.older.first().map_or(&[][..], Vec::as_slice);
        let below = below.iter().map(|table| (table.max().to_vec(), table.slice_bytes())).collect();
        let output = Output {
            storage: Arc::clone(storage),
            new_files,
            tree: plan.tree,
            slice: plan.slice,
            admission: plan.admission,
            memory_bytes: plan.memory_bytes as usize,
            builder: None,
            tables: Vec::new(),
        };
        Ok(MergeJob {
            merge: Merge::with_prefix(sources, &shared_prefix),
            older,
            cuts: Cuts::new(below, plan.table_bytes, plan.table_bytes.saturating_mul(BELOW_TABLES_MAX)),
            output,
            secret,
            counts: MergeCounts { bytes_read, ..MergeCounts::default() },
        })
    }

    /// Memory for reading and writing, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let reading = |run: &RunStream| run.stream.as_ref().map_or(0, TableStream::memory_bytes);
        let read: usize = self.merge.sources().iter().map(reading).sum();
        read + self.output.builder.as_ref().map_or(0, TableBuilder::memory_bytes)
    }

    /// Does the next piece: some hundred KiB of input, and at times the end of a table.
    ///
    /// # Errors
    /// What reading or writing said. The job is then only dropped.
    pub(crate) fn turn(&mut self) -> Result<Progress<MergeOutput>> {
        let cost_bytes = |merge: &Merge<RunStream>| {
            let consumed = merge.consumed();
            consumed.key_value_bytes + consumed.items * ITEM_COST_BYTES
        };
        let until_bytes = cost_bytes(&self.merge) + TURN_BYTES;
        while cost_bytes(&self.merge) < until_bytes {
            let Some(item) = self.merge.item() else { return self.finish().map(Progress::Done) };
            if item.kind == ItemKind::Delete && !self.older.may_contain(item.key) {
                self.counts.tombstones_dropped += 1;
            } else {
                if self.cuts.is_due(item.key, self.output.file_bytes()) || self.output.is_full() {
                    self.output.end_table()?;
                }
                let builder = self.output.builder()?;
                if self.merge.source().is_some_and(RunStream::is_cached) {
                    builder.note_cached(item.key.len() + item.value.len());
                }
                builder.add(item.key, self.secret.hash(item.key), item.kind, item.value)?;
                self.counts.items_out += 1;
            }
            self.merge.advance()?;
        }
        Ok(Progress::More)
    }

    fn finish(&mut self) -> Result<MergeOutput> {
        self.output.end_table()?;
        let tables = self.output.take();
        self.counts.items_in = self.merge.consumed().items;
        let kept_or_dropped = self.counts.items_out + self.counts.tombstones_dropped;
        self.counts.items_shadowed = self.counts.items_in - kept_or_dropped;
        self.counts.bytes_written = tables.iter().map(|table| table.bytes).sum();
        Ok(MergeOutput { tables, counts: self.counts })
    }
}

/// What a merge of these runs takes if nothing limits it: chunks, the buffer of a table, and what is kept of
/// each of its items and blocks until it ends.
pub(crate) fn wanted_bytes(runs: &[Vec<Arc<Table>>], table_bytes: u64) -> u64 {
    let tables = || runs.iter().flatten();
    let bytes: u64 = tables().map(|table| table.slice_bytes()).sum();
    let items: u64 = tables().map(|table| table.items()).sum();
    let table_items = (items as f64 * (table_bytes as f64 / bytes.max(1) as f64).min(1.0)) as u64;
    let table_blocks = table_bytes.min(bytes) / PAGE_BYTES;
    READ_BYTES as u64 + 4 * (TABLE_BYTES + table_items * ITEM_BYTES + table_blocks * BLOCK_BYTES)
}

/// What every key within the bounds of the inputs begins with.
fn shared_prefix(runs: &[Vec<Arc<Table>>]) -> &[u8] {
    let tables = || runs.iter().flatten();
    let min = tables().map(|table| table.min()).min().unwrap_or_default();
    let max = tables().map(|table| table.max()).max().unwrap_or_default();
    let shared_bytes = min.iter().zip(max).take_while(|(one, other)| one == other).count();
    &min[..shared_bytes]
}

/// The tables being written. Removes what it made when dropped before [`Output::take`].
struct Output {
    storage: Arc<dyn Storage>,
    new_files: Arc<dyn NewFiles>,
    tree: TreeId,
    slice: SliceShape,
    admission: Option<Admission>,
    /// Of the whole job.
    memory_bytes: usize,
    /// The table being built: it has an item.
    builder: Option<TableBuilder>,
    /// Finished, and ours to remove until they are taken.
    tables: Vec<TableSummary>,
}

impl Output {
    /// Length so far of the table being built; `None` between tables.
    fn file_bytes(&self) -> Option<u64> {
        self.builder.as_ref().map(TableBuilder::file_bytes)
    }

    /// Whether the table being built takes half of the memory; ending it takes some more.
    fn is_full(&self) -> bool {
        let table_bytes = (self.memory_bytes / 2).max(TABLE_MEMORY_BYTES_MIN);
        self.builder.as_ref().is_some_and(|builder| builder.memory_bytes() > table_bytes)
    }

    /// The builder of the present table, begun if there is none.
    fn builder(&mut self) -> Result<&mut TableBuilder> {
        if self.builder.is_none() {
            let identity = self.new_files.next()?;
            let mut builder = TableBuilder::new(Arc::clone(&self.storage), identity)?;
            builder.set_write_bytes(self.memory_bytes / 8);
            builder.begin(self.tree, self.slice)?;
            if let Some(admission) = &self.admission {
                builder.admit(admission.clone());
            }
            self.builder = Some(builder);
        }
        Ok(self.builder.as_mut().expect("made above if there was none"))
    }

    fn end_table(&mut self) -> Result<()> {
        if let Some(mut builder) = self.builder.take() {
            builder.end()?;
            self.tables.push(builder.finish()?);
        }
        Ok(())
    }

    /// Hands the tables over; they stay.
    fn take(&mut self) -> Vec<TableSummary> {
        std::mem::take(&mut self.tables)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // The builder removes its own file.
        for table in self.tables.drain(..) {
            let file = table.identity.file;
            if let Err(error) = self.storage.remove(file) {
                log::warn!("{file} of an abandoned merge stays until the store is opened anew: {error}");
            }
        }
    }
}

/// The tables of a run, one after another: one source of a merge, with one chunk in memory. It ascends,
/// whatever is in the files: a stream's keys do, and begin and end at the bounds of its table, or it fails.
struct RunStream {
    storage: Arc<dyn Storage>,
    tables: std::vec::IntoIter<Arc<Table>>,
    stream: Option<TableStream>,
    chunk_bytes: usize,
    admission: Option<Admission>,
}

impl RunStream {
    fn new(
        storage: &Arc<dyn Storage>,
        tables: Vec<Arc<Table>>,
        chunk_bytes: usize,
        admission: Option<Admission>,
    ) -> Result<RunStream> {
        for pair in tables.windows(2) {
            assert!(pair[0].max() < pair[1].min(), "tables of a run are ascending and disjoint");
        }
        let storage = Arc::clone(storage);
        let mut run = RunStream { storage, tables: tables.into_iter(), stream: None, chunk_bytes, admission };
        run.open_next()?;
        Ok(run)
    }

    /// Opens the next table; there is no stream after the last.
    fn open_next(&mut self) -> Result<()> {
        self.stream = None;
        if let Some(table) = self.tables.next() {
            let mut stream = TableStream::new(Arc::clone(&self.storage), table, self.chunk_bytes)?;
            if let Some(admission) = &self.admission {
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

impl Source for RunStream {
    #[inline]
    fn item(&self) -> Option<Item<'_>> {
        let (key, kind, value) = self.stream.as_ref()?.item()?;
        Some(Item { key, kind, value })
    }

    fn advance(&mut self) -> Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.advance()?;
        if stream.item().is_none() {
            return self.open_next();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
