//! A merge worker: picks the tree that is furthest behind, merges a part of it, publishes the result, and
//! looks again. Tables that can go without being read go first, and a merge of nothing but such is given up.

use std::collections::BTreeSet;

use crate::base::error::Result;
use crate::base::id::TreeId;
use crate::base::sync::{Arc, Ordering};
use crate::compact::job::{MergeJob, MergeOutput, MergePlan, NewFiles, wanted_bytes};
use crate::compact::pick::{OutputRun, Pick, Work as PickedWork};
use crate::compact::shape::{Part, Place};
use crate::compact::unseen::unseen;
use crate::io::env::Turn;
use crate::io::pace::Quantum;
use crate::levels::version::{Placed, Spot, Tree};
use crate::merge::Progress;
use crate::table::{Admission, Otherwise, PageRank, Table};

use super::merge_queue::Due;
use super::quiet::{Need, Whose};
use super::work::{Kind, MemoryPart, RETRY_NS};
use crate::engine::job::Job;
use crate::engine::publish::edit::{Edit, Origin, TableName};
use crate::engine::slices;

use super::Scheduler;

/// What is under way.
pub(in crate::engine) struct MergeWork {
    files: Arc<dyn NewFiles>,
    current: Option<Merging>,
    /// The tree that was chosen last.
    tree: Option<TreeId>,
    memory: MemoryPart,
    /// What the merge under way did last.
    last: Quantum,
    /// It was counted as one that had to wait.
    has_waited: bool,
}

struct Merging {
    tree: TreeId,
    inputs: Vec<Placed>,
    /// The newest table of the tree when it was last looked at: only flushes change a tree being merged.
    newest: Option<TableName>,
    output: Spot,
    /// Of what the output's filters are.
    filters: PageRank,
    /// Memory it was granted.
    granted_bytes: u64,
    job: MergeJob,
    _need: Need,
}

/// What beginning a merge came to.
enum Started {
    /// A job is under way.
    Job,
    /// It was a move, or nothing is left to do.
    Done,
    /// Other merges have the memory.
    Postponed,
}

impl Job<Scheduler> for MergeWork {
    fn turn(&mut self, store: &Scheduler) -> Turn {
        let seen = store.work.moved.seen();
        let quiet_ns = store.quiet.look(store.env.clock.now_ns());
        let idle = |seen, timeout_ns: Option<u64>| {
            let look_ns = || store.look_at_trees().next_look_ns();
            let in_ns = |at_ns: u64| at_ns.saturating_sub(store.env.clock.now_ns()).max(1);
            let timeout_ns = timeout_ns.or_else(|| look_ns().map(in_ns).into_iter().chain(quiet_ns).min());
            Turn::Idle { event: Arc::clone(&store.work.moved), seen, timeout_ns }
        };
        if store.writer.latched().is_some() {
            self.stop(store);
            return idle(seen, None);
        }
        if self.current.as_mut().is_some_and(|merging| is_vain(store, merging)) {
            // Nobody wants this, and its files wait for it.
            self.stop(store);
        }
        let wait_ns = self.wait_ns(store);
        if wait_ns > 0 && (self.current.is_some() || !can_drop(store)) {
            return idle(seen, Some(wait_ns));
        }
        let step = self.step(store);
        self.memory.set(&store.work, self.current.as_ref().map_or(0, |merging| merging.job.memory_bytes()));
        match step {
            Ok(true) => Turn::Again,
            Ok(false) => idle(seen, None),
            Err(error) => {
                // Of a keyspace that was dropped nothing can fail.
                if let Some(tree) = self.tree.filter(|tree| store.keyspace_of(*tree).is_some()) {
                    store.work.set_error(Kind::Merge(tree), Some(error));
                }
                self.stop(store);
                store.measure_pressure();
                idle(store.work.moved.seen(), Some(RETRY_NS))
            }
        }
    }

    fn stop(&mut self, store: &Scheduler) {
        if let Some(merging) = self.current.take() {
            store.work.end_grant(merging.granted_bytes);
            store.work.end_merge(merging.tree);
        }
        self.memory.set(&store.work, 0);
    }
}

impl MergeWork {
    /// `files`: the names of what its merges make.
    pub(in crate::engine) fn new(files: Arc<dyn NewFiles>) -> MergeWork {
        let (memory, last) = (MemoryPart::default(), Quantum::default());
        MergeWork { files, current: None, tree: None, memory, last, has_waited: false }
    }

    /// How long the next quantum has to wait.
    fn wait_ns(&mut self, store: &Scheduler) -> u64 {
        let now_ns = store.env.clock.now_ns();
        let due_ns = store.pacer.due_ns(now_ns, self.last, store.haste());
        let wait_ns = due_ns.saturating_sub(now_ns);
        if wait_ns > 0 && self.current.is_some() && !std::mem::replace(&mut self.has_waited, true) {
            store.pacer.count_paced(self.last.bytes);
        }
        wait_ns
    }

    /// One piece of work; `false` if there is none.
    fn step(&mut self, store: &Scheduler) -> Result<bool> {
        let Some(merging) = &mut self.current else {
            return self.begin(store);
        };
        let began_ns = store.env.clock.now_ns();
        let before_bytes = merging.job.bytes_done();
        let progress = merging.job.turn()?;
        // The end of a table may take less than was thought.
        let bytes = merging.job.bytes_done().saturating_sub(before_bytes);
        (self.last, self.has_waited) = (Quantum { began_ns, bytes }, false);
        store.pacer.merged(self.last);
        if let Progress::Done(output) = progress {
            let merging = self.current.take().expect("it was turned just now");
            let published = publish(store, &merging, &output);
            store.work.end_grant(merging.granted_bytes);
            store.work.end_merge(merging.tree);
            published?;
            store.work.set_error(Kind::Merge(merging.tree), None);
            store.measure_pressure();
            store.pin_more();
        }
        Ok(true)
    }

    fn begin(&mut self, store: &Scheduler) -> Result<bool> {
        let Some((tree, due)) = choose(store) else {
            return Ok(false);
        };
        self.tree = Some(tree.id);
        let started = match &due {
            Due::Drop(names) => drop_tables(store, tree.id, names).map(|()| Started::Done),
            Due::Merge(pick) => self.start(store, &tree, pick),
        };
        match &started {
            Ok(Started::Job) => {}
            Ok(Started::Postponed) => {
                store.work.postpone_merge(tree.id);
                return Ok(false);
            }
            Ok(Started::Done) | Err(_) => store.work.end_merge(tree.id),
        }
        started.map(|_| true)
    }

    fn start(&mut self, store: &Scheduler, tree: &Tree, pick: &Pick) -> Result<Started> {
        let Some(keyspace) = store.keyspace_of(tree.id) else {
            return Ok(Started::Done);
        };
        let part = |part: &Part| &tree.levels()[part.level][part.run].tables()[part.tables.clone()];
        let run = match pick.output_run {
            OutputRun::New => tree.next_run_number(pick.output_level),
            OutputRun::Into(index) => tree.levels()[pick.output_level][index].number(),
        };
        let output = Spot { level: pick.output_level, run };
        let inputs: Vec<Placed> = pick.inputs.iter().flat_map(part).cloned().collect();
        if pick.work == PickedWork::Move {
            move_tables(store, tree.id, &inputs, output)?;
            store.work.set_error(Kind::Merge(tree.id), None);
            return Ok(Started::Done);
        }
        let tables = |placed: &[Placed]| placed.iter().map(|one| Arc::clone(&one.table)).collect();
        let runs: Vec<Vec<_>> = pick.inputs.iter().map(|one| tables(part(one))).collect();
        let is_next = |place: &&Place| (place.level, place.run) == pick.cut_like;
        let (next, others): (Vec<&Place>, Vec<&Place>) = pick.older.iter().partition(is_next);
        let at = |places: Vec<&Place>| -> Vec<_> {
            let table = |place: &Place| &tree.levels()[place.level][place.run].tables()[place.index].table;
            places.into_iter().map(|place| Arc::clone(table(place))).collect()
        };
        let (next, older) = (at(next), at(others));
        let by_level = pick.inputs.iter().flat_map(|one| part(one).iter().map(|table| (one.level, table)));
        let slice = slices::of_merge(&keyspace.settings(), tree, by_level, pick.output_level);
        let (table_bytes, admission) = (pick.table_bytes, Some(Admission::new(&store.cache)));
        let limit_bytes = store.budget.merges_bytes();
        let memory_bytes = wanted_bytes(&runs, table_bytes).min(limit_bytes);
        if !store.work.try_grant(memory_bytes, limit_bytes) {
            return Ok(Started::Postponed);
        }
        let need = store.quiet.need(Whose::Merges);
        let load = Arc::clone(&store.blocks.load);
        let plan =
            MergePlan { tree: tree.id, slice, runs, next, older, table_bytes, memory_bytes, admission, load };
        let files = Arc::clone(&self.files);
        let job = MergeJob::new(&store.env.storage, files, store.secret.clone(), plan)
            .inspect_err(|_| store.work.end_grant(memory_bytes))?;
        let is_last = pick.output_level + 1 >= tree.levels().len();
        let filters = if is_last { PageRank::LastFilters } else { PageRank::UpperFilters };
        let granted_bytes = memory_bytes;
        let newest = newest(tree);
        self.current =
            Some(Merging { tree: tree.id, inputs, newest, output, filters, granted_bytes, job, _need: need });
        Ok(Started::Job)
    }
}

/// The tree with the most pressing work, taken for this worker.
fn choose(store: &Scheduler) -> Option<(Arc<Tree>, Due)> {
    loop {
        let known = store.look_at_trees();
        let id = known.most_pressing(|tree| !store.work.is_merging(tree))?;
        if !store.work.begin_merge(id) {
            // Another worker was quicker.
            continue;
        }
        let tree = {
            let pin = store.epoch.pin();
            store.views.load(&pin).get().version.counted_tree(id).cloned()
        };
        if let Some((tree, due)) = tree.and_then(|tree| known.due_in(&tree).map(|due| (tree, due))) {
            return Some((tree, due));
        }
        // It has changed since it was looked at.
        store.work.postpone_merge(id);
        store.changed_trees.note(id);
    }
}

/// Whether tables can go now: that need not wait for what merges read and wrote.
fn can_drop(store: &Scheduler) -> bool {
    store.look_at_trees().can_drop(|tree| !store.work.is_merging(tree))
}

fn newest(tree: &Tree) -> Option<TableName> {
    Some(tree.runs().next()?.tables()[0].name())
}

/// Whether nothing will be left of a merge under way: its tree was dropped, or what was flushed meanwhile
/// covers all that it reads.
fn is_vain(store: &Scheduler, merging: &mut Merging) -> bool {
    let version = {
        let pin = store.epoch.pin();
        Arc::clone(&store.views.load(&pin).get().version)
    };
    let Some(tree) = version.tree(merging.tree) else { return true };
    let newest = newest(tree);
    if newest == merging.newest {
        return false;
    }
    merging.newest = newest;
    let names: BTreeSet<TableName> = unseen(tree).iter().copied().collect();
    merging.inputs.iter().all(|placed| names.contains(&placed.name()))
}

/// Takes tables out of a tree.
fn drop_tables(store: &Scheduler, tree: TreeId, names: &[TableName]) -> Result<()> {
    let mut edit = Edit::default();
    edit.remove(names.iter().copied());
    store.edit_tree(tree, edit)?;
    store.work.set_error(Kind::Merge(tree), None);
    store.measure_pressure();
    store.pin_more();
    Ok(())
}

fn move_tables(store: &Scheduler, tree: TreeId, inputs: &[Placed], spot: Spot) -> Result<()> {
    let mut edit = Edit::default();
    inputs.iter().for_each(|placed| edit.relocate(placed.name(), spot));
    store.edit_tree(tree, edit).map(|_| ())
}

fn publish(store: &Scheduler, merging: &Merging, output: &MergeOutput) -> Result<()> {
    let files = output.tables.iter().map(|summary| summary.identity.file);
    if install(store, merging, output).inspect_err(|_| store.remove_unnamed(files))? {
        store.work.merges.fetch_add(1, Ordering::Relaxed);
        store.work.merge_read_bytes.fetch_add(output.counts.bytes_read, Ordering::Relaxed);
        store.work.merge_write_bytes.fetch_add(output.counts.bytes_written, Ordering::Relaxed);
    }
    Ok(())
}

/// Puts the new tables in the place of the inputs; `false` if the tree was dropped meanwhile.
fn install(store: &Scheduler, merging: &Merging, output: &MergeOutput) -> Result<bool> {
    let mut edit = Edit::default();
    edit.remove(merging.inputs.iter().map(Placed::name));
    let inputs = || merging.inputs.iter();
    let first = inputs().map(|placed| placed.first_sequence).min().unwrap_or(0);
    let last = inputs().map(|placed| placed.last_sequence).max().unwrap_or(0);
    let oldest = inputs().map(|placed| placed.oldest_tombstone_s).filter(|time_s| *time_s > 0).min();
    let origin = Origin { sequences: (first, last), oldest_tombstone_s: oldest.unwrap_or(0) };
    if !output.tables.is_empty() {
        store.sync_directory()?;
    }
    let open = |summary| store.open_tables(summary, merging.filters, Otherwise::Leave);
    let opened: Vec<Vec<Arc<Table>>> = output.tables.iter().map(open).collect::<Result<_>>()?;
    let mut catalog = store.catalog.take(&*store.env.threads);
    if !catalog.has_tree(merging.tree) {
        opened.iter().flatten().for_each(|table| table.file().mark_obsolete());
        return Ok(false);
    }
    for (summary, tables) in output.tables.iter().zip(&opened) {
        store.add_tables(&catalog, &mut edit, summary, tables, merging.output, origin);
    }
    store.edit_taken(&mut catalog, edit).map(|()| true)
}

impl Scheduler {
    /// Whether a merge waits to be begun.
    pub(in crate::engine) fn is_merge_due(&self) -> bool {
        self.look_at_trees().is_any_due()
    }
}
