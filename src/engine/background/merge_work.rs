//! A merge worker: picks the tree that is furthest behind, merges a part of it, publishes the result, and
//! looks again. Tables that can be dropped unread go first, and a merge of nothing but such tables is
//! abandoned.
//!
//! Small merges that are due in many trees run as one joint merge, which shares files and has one edit: a
//! merge of a few KiB costs little more than its file, its syncs and its edit. A tree whose merge has failed
//! is merged alone, so that it stops no other tree.

use std::collections::BTreeSet;

use crate::base::error::Result;
use crate::base::id::TreeId;
use crate::base::place::{FANOUT, NodeId};
use crate::base::sync::{Arc, Ordering};
use crate::compact::fully_covered::fully_covered;
use crate::compact::job::{
    MergeJob, MergeOutput, MergePlan, NewFiles, NodesPlan, TreeMergePlan, wanted_bytes,
};
use crate::compact::pick::{MergeKind, OutputRun, Pick};
use crate::compact::push::Push;
use crate::compact::shape::{RunPart, TablePosition};
use crate::format::table::filter::FilterKind;
use crate::io::env::Turn;
use crate::io::pace::Quantum;
use crate::levels::version::{Placed, Run, Spot, Tree, Trie};
use crate::merge::TurnProgress;
use crate::table::{BuiltTable, CacheAdmission, IndexPlan, NodeRuns, Otherwise, PageRank, TableReader};

use super::merge_queue::{Due, Task};
use super::quiet::{MemoryUse, Whose};
use super::work::{MemoryPart, RETRY_NS, WorkKind};
use crate::engine::job::Job;
use crate::engine::publish::edit::{Edit, Origin, TableName};
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::tables::fences_of;
use crate::engine::slices;

use super::Scheduler;

/// The state of a merge worker.
pub(in crate::engine) struct MergeWork {
    files: Arc<dyn NewFiles>,
    current: Option<Merging>,
    /// The tree that was chosen last.
    tree: Option<TreeId>,
    memory: MemoryPart,
    /// The last quantum of the merge under way.
    last: Quantum,
    /// The pacer has counted `last` as a quantum after which the merge had to wait.
    has_waited: bool,
}

struct Merging {
    /// One part for each tree, in ascending order.
    parts: Vec<Merged>,
    /// Memory granted to the merge.
    granted_bytes: u64,
    job: MergeJob,
    _memory_use: MemoryUse,
}

/// The part of a merge that belongs to one tree: its inputs, and the target of its output.
struct Merged {
    tree: TreeId,
    inputs: Vec<Placed>,
    /// The newest table of the tree at the last check. Only flushes change a tree that is being merged, so it
    /// tells whether the tree has changed.
    newest: Option<TableName>,
    target: Target,
}

/// The target of the output, in the tree from which the merge was chosen. No other work changes the runs
/// there until the merge ends.
struct Target {
    tree: Arc<Tree>,
    task: Task,
}

impl Target {
    /// The spot of a table that begins with this key. `moved`: number of the push's runs that were moved
    /// before it.
    fn spot(&self, min: &[u8], moved: u64) -> Spot {
        match &self.task {
            Task::Pick(pick) => output(&self.tree, pick),
            Task::Push(push) => push.output(trie(&self.tree), min, moved),
        }
    }
}

/// The outcome of beginning a merge.
enum Started {
    /// A job is under way.
    Job,
    /// The merge was a move, or no work is left.
    Done,
    /// Other merges hold the memory.
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
        if self.current.as_mut().is_some_and(|merging| is_obsolete(store, merging)) {
            // The merge is obsolete, and its input files cannot be removed until it ends.
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
                let failed = self.current.as_ref().and_then(|merging| merging.job.tree()).or(self.tree);
                // Work on a dropped keyspace cannot fail.
                if let Some(tree) = failed.filter(|tree| store.keyspace_of(*tree).is_some()) {
                    store.work.set_error(WorkKind::Merge(tree), Some(error));
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
            store.work.end_merges(merging.parts.iter().map(|part| part.tree));
        }
        self.memory.set(&store.work, 0);
    }
}

impl MergeWork {
    /// `files`: the names of the files that its merges make.
    pub(in crate::engine) fn new(files: Arc<dyn NewFiles>) -> MergeWork {
        let (memory, last) = (MemoryPart::default(), Quantum::default());
        MergeWork { files, current: None, tree: None, memory, last, has_waited: false }
    }

    /// Time until the next quantum may run.
    fn wait_ns(&mut self, store: &Scheduler) -> u64 {
        let now_ns = store.env.clock.now_ns();
        let due_ns = store.pacer.due_ns(now_ns, self.last, store.urgency());
        let wait_ns = due_ns.saturating_sub(now_ns);
        if wait_ns > 0 && self.current.is_some() && !std::mem::replace(&mut self.has_waited, true) {
            store.pacer.count_paced(self.last.bytes);
        }
        wait_ns
    }

    /// Does one piece of work; `false` if there is none.
    fn step(&mut self, store: &Scheduler) -> Result<bool> {
        let Some(merging) = &mut self.current else {
            return Ok(self.begin(store)? || store.sketch_more());
        };
        let began_ns = store.env.clock.now_ns();
        let before_bytes = merging.job.bytes_done();
        let progress = merging.job.turn()?;
        // The end of a table may take fewer bytes than estimated.
        let bytes = merging.job.bytes_done().saturating_sub(before_bytes);
        (self.last, self.has_waited) = (Quantum { began_ns, bytes }, false);
        store.pacer.merged(self.last);
        if let TurnProgress::Done(output) = progress {
            let merging = self.current.take().expect("it was turned just now");
            let published = publish(store, &merging, &output);
            let trees = || merging.parts.iter().map(|part| part.tree);
            store.work.end_grant(merging.granted_bytes);
            store.work.end_merges(trees());
            published?;
            trees().for_each(|tree| store.work.set_error(WorkKind::Merge(tree), None));
            store.measure_pressure();
            store.pin_more();
        }
        Ok(true)
    }

    fn begin(&mut self, store: &Scheduler) -> Result<bool> {
        let Some(chosen) = choose(store) else {
            return Ok(false);
        };
        let trees = chosen.trees();
        self.tree = trees.first().copied();
        let started = match chosen {
            Chosen::Drop(tree, names) => drop_tables(store, tree, &names).map(|()| Started::Done),
            Chosen::Merge(picked) => self.start(store, picked),
        };
        match &started {
            Ok(Started::Job) => {}
            Ok(Started::Postponed) => {
                store.work.postpone_merges(&trees);
                return Ok(false);
            }
            Ok(Started::Done) | Err(_) => store.work.end_merges(trees),
        }
        started.map(|_| true)
    }

    fn start(&mut self, store: &Scheduler, picked: Vec<(Arc<Tree>, Task)>) -> Result<Started> {
        let is_move = |(_, task): &(Arc<Tree>, Task)| task.work() == MergeKind::Move;
        let (moves, merges): (Vec<_>, Vec<_>) = picked.into_iter().partition(is_move);
        if !moves.is_empty() {
            move_tables(store, &moves)?;
            for (tree, _) in &moves {
                store.work.set_error(WorkKind::Merge(tree.id), None);
            }
        }
        let mut others: Vec<TreeId> = moves.iter().map(|(tree, _)| tree.id).collect();
        let (mut parts, mut trees) = (Vec::new(), Vec::new());
        for (tree, task) in &merges {
            let Some(keyspace) = store.keyspace_of(tree.id) else {
                others.push(tree.id);
                continue;
            };
            trees.push(plan_of(store, &keyspace, tree, task));
            let inputs = inputs(tree, task).into_iter().cloned().collect();
            let target = Target { tree: Arc::clone(tree), task: task.clone() };
            parts.push(Merged { tree: tree.id, inputs, newest: newest(tree), target });
        }
        let Some(first) = parts.first() else {
            return Ok(Started::Done);
        };
        // The error of a merge that cannot begin belongs to its first tree, not to a tree that was moved.
        self.tree = Some(first.tree);
        let limit_bytes = store.budget.merges_bytes();
        let memory_bytes = wanted_bytes(&trees).min(limit_bytes);
        if !store.work.try_grant(memory_bytes, limit_bytes) {
            return Ok(Started::Postponed);
        }
        let memory_use = store.quiet.use_memory(Whose::Merges);
        let is_last = |(tree, task): &(Arc<Tree>, Task)| output_level(task) + 1 >= tree.level_count();
        let filters = if merges.iter().all(is_last) { PageRank::LastFilters } else { PageRank::UpperFilters };
        let is_below =
            |(tree, task): &(Arc<Tree>, Task)| fences_of(tree, output_level(task)) == PageRank::NodeFences;
        let mut opening = store.opening(filters, Otherwise::Leave);
        if merges.iter().all(is_below) {
            opening.fences = PageRank::NodeFences;
        }
        let plan = MergePlan {
            trees,
            memory_bytes,
            admission: Some(CacheAdmission::new(&store.cache)),
            opening: Some(opening),
            load: Arc::clone(&store.blocks.load),
        };
        let files = Arc::clone(&self.files);
        let job = MergeJob::new(&store.env.storage, files, store.owner.hash_secret(), plan)
            .inspect_err(|_| store.work.end_grant(memory_bytes))?;
        if !others.is_empty() {
            store.work.end_merges(others);
        }
        self.current = Some(Merging { parts, granted_bytes: memory_bytes, job, _memory_use: memory_use });
        Ok(Started::Job)
    }
}

/// The trie of a push's tree.
fn trie(tree: &Tree) -> &Trie {
    tree.trie().expect("a push is of a trie")
}

/// The input tables of a tree's merge.
fn inputs<'t>(tree: &'t Tree, task: &'t Task) -> Vec<&'t Placed> {
    match task {
        Task::Pick(pick) => pick.inputs.iter().flat_map(|one| part(tree, one)).collect(),
        Task::Push(push) => push.inputs(trie(tree)).iter().flat_map(Run::tables).collect(),
    }
}

fn output_level(task: &Task) -> usize {
    match task {
        Task::Pick(pick) => pick.output_level,
        Task::Push(push) => push.output_height(),
    }
}

fn part<'t>(tree: &'t Tree, part: &RunPart) -> &'t [Placed] {
    &tree.levels()[part.level][part.run].tables()[part.tables.clone()]
}

/// The run that the pick makes or adds to.
fn output(tree: &Tree, pick: &Pick) -> Spot {
    let run = match pick.output_run {
        OutputRun::New => tree.next_run_number(pick.output_level),
        OutputRun::Into(index) => tree.levels()[pick.output_level][index].number(),
    };
    Spot { level: pick.output_level, run }
}

fn plan_of(store: &Scheduler, keyspace: &KeyspaceState, tree: &Tree, task: &Task) -> TreeMergePlan {
    match task {
        Task::Pick(pick) => {
            let mut plan = plan_of_pick(keyspace, tree, pick);
            // Algorithm 1 of TridentKV trains while fewer than eight writers write. Its aim is that no writer
            // waits: here models are trained while no writer is slowed.
            let is_calm = || store.writer.pressures.worst() == 0;
            // Sketches take less memory than models.
            let is_sketched = || tree.tables().any(|(_, placed)| placed.table.sketches_bytes() > 0);
            let lacks_pages = store.pages.is_short(tree.id) && !is_sketched();
            if slices::is_index_adaptive(&keyspace.settings()) && lacks_pages && is_calm() {
                plan.slice.index = IndexPlan::Learned;
            }
            plan
        }
        Task::Push(push) => plan_of_push(store, keyspace, tree, push),
    }
}

fn plan_of_push(store: &Scheduler, keyspace: &KeyspaceState, tree: &Tree, push: &Push) -> TreeMergePlan {
    let tables = |run: &Run| run.tables().iter().map(|one| Arc::clone(&one.table)).collect();
    let (trie, height) = (trie(tree), push.output_height());
    let slice = slices::of_push(&keyspace.settings(), (tree, height), &store.pages);
    let node_runs = |(node, runs): (NodeId, &[Run])| {
        (node, Arc::new(NodeRuns { node, runs: runs.iter().map(tables).collect() }))
    };
    let is_by_column = slice.filter.kind == FilterKind::Column;
    let staying = push.staying(trie).filter(|_| is_by_column).map(node_runs).collect();
    TreeMergePlan {
        tree: tree.id,
        slice,
        runs: push.inputs(trie).iter().map(tables).collect(),
        next: Vec::new(),
        older: Vec::new(),
        nodes: Some(NodesPlan { height, older: push.older(trie), runs: staying }),
        table_bytes: store.push_table_bytes(keyspace).saturating_mul(FANOUT as u64),
    }
}

fn plan_of_pick(keyspace: &KeyspaceState, tree: &Tree, pick: &Pick) -> TreeMergePlan {
    let tables = |placed: &[Placed]| placed.iter().map(|one| Arc::clone(&one.table)).collect();
    let runs: Vec<Vec<_>> = pick.inputs.iter().map(|one| tables(part(tree, one))).collect();
    let is_next = |place: &&TablePosition| (place.level, place.run) == pick.cut_like;
    let (next, others): (Vec<&TablePosition>, Vec<&TablePosition>) = pick.older.iter().partition(is_next);
    let at = |places: Vec<&TablePosition>| -> Vec<_> {
        let table =
            |place: &TablePosition| &tree.levels()[place.level][place.run].tables()[place.index].table;
        places.into_iter().map(|place| Arc::clone(table(place))).collect()
    };
    let (next, older) = (at(next), at(others));
    let by_level = pick.inputs.iter().flat_map(|one| part(tree, one).iter().map(|table| (one.level, table)));
    let slice = slices::of_merge(&keyspace.settings(), tree, by_level, pick.output_level);
    TreeMergePlan { tree: tree.id, slice, runs, next, older, nodes: None, table_bytes: pick.table_bytes }
}

/// The work that a worker has chosen.
enum Chosen {
    Drop(TreeId, Vec<TableName>),
    /// Merges of one tree, or of several in ascending order.
    Merge(Vec<(Arc<Tree>, Task)>),
}

impl Chosen {
    fn trees(&self) -> Vec<TreeId> {
        match self {
            Chosen::Drop(tree, _) => vec![*tree],
            Chosen::Merge(picked) => picked.iter().map(|(tree, _)| tree.id).collect(),
        }
    }
}

/// Claims the most urgent work for this worker: of one tree or, if it is small, of other trees too.
fn choose(store: &Scheduler) -> Option<Chosen> {
    loop {
        let known = store.look_at_trees();
        let first = known.most_pressing(|tree| !store.work.is_merging(tree))?;
        let mut picked = Vec::new();
        for id in known.joint(first) {
            if !store.work.begin_merge(id) {
                // Another worker claimed the tree first.
                continue;
            }
            let tree = {
                let pin = store.epoch.pin();
                store.views.load(&pin).get().version.counted_tree(id).cloned()
            };
            match tree.and_then(|tree| known.due_in(&tree).map(|due| (tree, due))) {
                Some((tree, Due::Merge(pick))) => picked.push((tree, pick)),
                Some((_, Due::Drop(names))) => return Some(Chosen::Drop(id, names)),
                // The tree has changed since the last look.
                None => {
                    store.work.postpone_merges(&[id]);
                    store.changed_trees.note(id);
                }
            }
        }
        if !picked.is_empty() {
            picked.sort_unstable_by_key(|(tree, _)| tree.id);
            return Some(Chosen::Merge(picked));
        }
    }
}

/// Whether tables can be dropped now: a drop need not wait for the pacing of merges.
fn can_drop(store: &Scheduler) -> bool {
    store.look_at_trees().can_drop(|tree| !store.work.is_merging(tree))
}

fn newest(tree: &Tree) -> Option<TableName> {
    Some(tree.runs().next()?.tables()[0].name())
}

/// Whether a merge under way is obsolete: its trees were dropped, or range tombstones flushed meanwhile cover
/// all its inputs.
fn is_obsolete(store: &Scheduler, merging: &mut Merging) -> bool {
    let version = {
        let pin = store.epoch.pin();
        Arc::clone(&store.views.load(&pin).get().version)
    };
    let is_obsolete = |part: &mut Merged| {
        let Some(tree) = version.tree(part.tree) else { return true };
        let newest = newest(tree);
        if newest == part.newest {
            return false;
        }
        part.newest = newest;
        let names: BTreeSet<TableName> = fully_covered(tree).iter().copied().collect();
        part.inputs.iter().all(|placed| names.contains(&placed.name()))
    };
    merging.parts.iter_mut().all(is_obsolete)
}

/// Removes tables from a tree.
fn drop_tables(store: &Scheduler, tree: TreeId, names: &[TableName]) -> Result<()> {
    let mut catalog = store.catalog.take(&*store.env.threads);
    if catalog.has_tree(tree) {
        let mut edit = Edit::default();
        edit.remove(catalog.whole_tables(), names.iter().copied());
        store.edit_taken(&mut catalog, edit)?;
    }
    drop(catalog);
    store.work.set_error(WorkKind::Merge(tree), None);
    store.measure_pressure();
    store.pin_more();
    Ok(())
}

/// Moves tables of the trees that still exist.
fn move_tables(store: &Scheduler, moves: &[(Arc<Tree>, Task)]) -> Result<()> {
    let mut edit = Edit::default();
    let mut catalog = store.catalog.take(&*store.env.threads);
    for (tree, task) in moves.iter().filter(|(tree, _)| catalog.has_tree(tree.id)) {
        match task {
            Task::Pick(pick) => {
                let spot = output(tree, pick);
                let moved = inputs(tree, task).into_iter();
                moved.for_each(|placed| edit.relocate(placed.name(), spot));
            }
            Task::Push(push) => {
                for (run, moved) in push.inputs(trie(tree)).iter().rev().zip(0..) {
                    for placed in run.tables() {
                        let spot = push.output(trie(tree), placed.table.min(), moved);
                        edit.relocate(placed.name(), spot);
                    }
                }
            }
        }
    }
    if edit.changes().is_empty() { Ok(()) } else { store.edit_taken(&mut catalog, edit) }
}

fn publish(store: &Scheduler, merging: &Merging, output: &MergeOutput) -> Result<()> {
    let files = output.tables.iter().map(|built| built.summary.identity.file);
    if install(store, merging, output).inspect_err(|_| store.remove_unnamed(files))? {
        store.work.merges.fetch_add(1, Ordering::Relaxed);
        store.work.merge_read_bytes.fetch_add(output.counts.bytes_read, Ordering::Relaxed);
        store.work.merge_write_bytes.fetch_add(output.counts.bytes_written, Ordering::Relaxed);
    }
    Ok(())
}

/// Replaces the inputs with the new tables; `false` if all trees were dropped meanwhile.
fn install(store: &Scheduler, merging: &Merging, output: &MergeOutput) -> Result<bool> {
    if !output.tables.is_empty() {
        store.sync_directory()?;
    }
    let mut catalog = store.catalog.take(&*store.env.threads);
    let live: Vec<&Merged> = merging.parts.iter().filter(|part| catalog.has_tree(part.tree)).collect();
    if live.is_empty() {
        output.tables.iter().for_each(BuiltTable::mark_obsolete);
        return Ok(false);
    }
    let mut edit = Edit::default();
    edit.remove(catalog.whole_tables(), live.iter().flat_map(|part| part.inputs.iter().map(Placed::name)));
    let place_of = |table: &TableReader| {
        let index = live.binary_search_by_key(&table.tree(), |part| part.tree);
        let part = live[index.expect("it is in the catalog")];
        (part.target.spot(table.min(), 0), origin_of(&part.inputs))
    };
    for built in &output.tables {
        store.add_tables(&catalog, &mut edit, built, place_of);
    }
    store.edit_taken(&mut catalog, edit).map(|()| true)
}

/// The origin of a merge's output, from its inputs.
fn origin_of(inputs: &[Placed]) -> Origin {
    let first = inputs.iter().map(|placed| placed.first_sequence).min().unwrap_or(0);
    let last = inputs.iter().map(|placed| placed.last_sequence).max().unwrap_or(0);
    let oldest = inputs.iter().map(|placed| placed.oldest_tombstone_s).filter(|time_s| *time_s > 0).min();
    Origin { sequences: (first, last), oldest_tombstone_s: oldest.unwrap_or(0) }
}

impl Scheduler {
    /// Whether a merge waits to begin.
    pub(in crate::engine) fn is_merge_due(&self) -> bool {
        self.look_at_trees().is_any_due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;
    use crate::base::id::ItemKind;
    use crate::engine::tests::run;
    use crate::io::sim::SimDisk;
    use crate::write::batch::BatchItems;

    /// The first table of level 0, moved or merged into level 1.
    fn pick(work: MergeKind) -> Pick {
        Pick {
            work,
            inputs: vec![RunPart { level: 0, run: 0, tables: 0..1 }],
            output_level: 1,
            output_run: OutputRun::New,
            older: Vec::new(),
            cut_like: (2, 0),
            table_bytes: 1 << 20,
        }
    }

    /// A merge of several trees that cannot begin because a table is damaged fails for the tree of that
    /// table. It does not fail for an earlier tree that is only moved.
    #[test]
    fn a_merge_fails_for_the_tree_that_is_damaged() {
        let disk = SimDisk::new(1);
        let (store, _threads) = run::open(&disk, None, 1, 8 << 20).expect("no fault");
        let all = ["a", "b"].map(|name| store.open_keyspace(name, &[]).expect("no fault"));
        let mut items = BatchItems::default();
        for keyspace in &all {
            items.push(keyspace.tree, ItemKind::Put, b"key", b"value").expect("is short");
        }
        store.write(&items, None).expect("no fault");
        store.flush().expect("no fault");
        let trees = {
            let pin = store.epoch.pin();
            let version = &store.views.load(&pin).get().version;
            all.map(|keyspace| version.counted_tree(keyspace.tree).cloned().expect("it is there"))
        };
        let table = &trees[1].tables().next().expect("it was flushed").1.table;
        let mut bytes = disk.contents(table.file().name()).expect("it is there");
        bytes[table.slice_offset() as usize + 40] ^= 0xff;
        disk.set_contents(table.file().name(), Some(&bytes));
        let mut work = MergeWork::new(Arc::new(Files));
        let picked = [MergeKind::Move, MergeKind::Merge].map(pick);
        let picked = trees.iter().cloned().zip(picked.map(Task::Pick)).collect();
        assert!(trees.iter().all(|tree| store.work.begin_merge(tree.id)));
        assert!(matches!(work.start(&store, picked), Err(Error::Corrupt(_))));
        assert_eq!(work.tree, Some(trees[1].id));
        store.work.end_merges(trees.map(|tree| tree.id));
        store.close().expect("closes");
    }

    /// Gives out no names: no file is written.
    struct Files;

    impl NewFiles for Files {
        fn next(&self) -> Result<crate::table::TableIdentity> {
            Err(Error::Closed)
        }
    }
}
