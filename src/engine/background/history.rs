//! History: items of flushed write buffers that snapshots and iterators still see, written to private files
//! so that the memory of the write buffers can be freed.
//!
//! The flush worker writes history once kept generations exceed a sixteenth of the budget, after a flush and
//! before the next one. It takes the oldest generation that points keep, and writes the layers that they read
//! of it (`write::layers`) to one private file. Each point then reads from its own version with its layers on
//! top, as runs of level 0. No manifest names the file: it is removed with its last reader, or when the store
//! is opened next. Iterators hold no view between their steps, so the memory is free at once.
//!
//! No further write buffer is made while kept generations exceed their part of the budget. Writers that need
//! one wait for history, and for pinned readers. They are refused where history cannot be written, or where
//! no known reader keeps the generations.
//!
//! Invariants:
//! 1. The replaced generation is the oldest of the point's view, so the generations left in memory are newer
//!    than every table.
//! 2. Each file frees a generation for all points that were alive when the file was begun, so the work ends.
//! 3. Bounds are final: no new point sees only a part of a generation that takes no more writes.

use std::collections::BTreeMap;

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName, Sequence, TreeId};
use crate::base::reserve::Role;
use crate::base::sync::{Arc, Ordering};
use crate::levels::version::{Placed, Spot, VersionChange};
use crate::levels::view::View;
use crate::memtable::Generation;
use crate::merge::TurnProgress;
use crate::table::{TableFile, TableIdentity};
use crate::write::layers::{Layer, Layers, LayersFlush, LayersOutput};

use super::Scheduler;
use crate::engine::publish::snapshot::Point;
use crate::engine::slices;

/// History is due once flushed generations keep more than one such part of the budget.
const KEPT_SHARE: u64 = 16;

/// A file being written for the points that keep a generation.
pub(in crate::engine) struct History {
    generation: Arc<Generation>,
    layers: Arc<Layers>,
    /// `None` if no point sees any item of the generation.
    flush: Option<LayersFlush>,
}

/// The part of a generation that a point sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Nothing,
    UpTo(Sequence),
}

/// The tables of each layer of a file.
type Placing = BTreeMap<Layer, Vec<Placed>>;

impl History {
    /// Begins work that is due; `None` if little memory is kept, or no file could replace a kept generation.
    pub(in crate::engine) fn begin(store: &Scheduler) -> Result<Option<History>> {
        if store.kept_bytes() * KEPT_SHARE <= store.budget.memory_bytes {
            return Ok(None);
        }
        let Some((generation, points)) = store.oldest_kept() else { return Ok(None) };
        let seen = points.iter().filter_map(|point| match seen(&generation, point.bound) {
            Seen::Nothing => None,
            Seen::UpTo(bound) => Some(bound),
        });
        let layers = Arc::new(Layers::new(seen.collect()));
        let mut flush = None;
        if !layers.is_empty() {
            let file = FileName::new(FileKind::History, store.next_file()?);
            let identity = TableIdentity { file, uid: store.env.random.u64(), store_id: store.store_id };
            let items = generation.items();
            let shape_of = |tree: TreeId| {
                let settings = store.keyspace_of(tree).map(|one| one.settings());
                // A point may see a keyspace that has been dropped since.
                let is_seen = settings.is_some() || points.iter().any(|point| store.has_tree(point, tree));
                is_seen.then(|| slices::of_flush(&settings.unwrap_or_default(), None, items))
            };
            let (storage, secret) = (Arc::clone(&store.env.storage), store.owner.hash_secret());
            let source = (Arc::clone(&generation), Arc::clone(&layers));
            let mut begun = LayersFlush::new(storage, identity, secret, source, shape_of);
            begun.set_memory_bytes(store.budget.flush_bytes());
            flush = Some(begun);
        }
        Ok(Some(History { generation, layers, flush }))
    }

    pub(in crate::engine) fn memory_bytes(&self) -> usize {
        self.flush.as_ref().map_or(0, LayersFlush::memory_bytes)
    }

    /// Does the next piece of work.
    pub(in crate::engine) fn turn(&mut self, store: &Scheduler) -> Result<TurnProgress<()>> {
        let mut placing = Placing::new();
        if let Some(flush) = &mut self.flush {
            let TurnProgress::Done(output) = flush.turn()? else { return Ok(TurnProgress::More) };
            placing = self.open(store, &output).inspect_err(|_| {
                let file = output.table.as_ref().map(|summary| summary.identity.file);
                file.into_iter().for_each(|file| store.remove_quietly(file));
            })?;
            store.work.histories.fetch_add(u64::from(output.table.is_some()), Ordering::Relaxed);
        }
        self.replace(store, &placing);
        Ok(TurnProgress::Done(()))
    }

    fn open(&self, store: &Scheduler, output: &LayersOutput) -> Result<Placing> {
        let Some(summary) = &output.table else { return Ok(Placing::new()) };
        let trees = output.slices.iter().map(|(tree, _)| *tree);
        let opened = TableFile::open_numbered(&store.env.storage, summary, trees, &store.owner)?;
        let first = self.generation.sequences().map_or(0, |(first, _)| first);
        let mut placing = Placing::new();
        for ((_, layer), table) in output.slices.iter().zip(opened) {
            table.file().mark_obsolete();
            table.account(&store.pages);
            let (after, last_sequence) = self.layers.sequences(*layer);
            let first_sequence = first.max(after + 1);
            // No merge is ever picked from a snapshot's version.
            let (oldest_tombstone_s, tombstones_dense) = (0, 0);
            let placed =
                Placed { table, first_sequence, last_sequence, oldest_tombstone_s, tombstones_dense };
            placing.entry(*layer).or_default().push(placed);
        }
        Ok(placing)
    }

    /// Makes the points that keep the generation read from the layers.
    fn replace(&self, store: &Scheduler, placing: &Placing) {
        // Points that share a view and see the same items go on sharing a view. The old view is held, so that
        // no new view gets its address meanwhile.
        let mut made: BTreeMap<_, (Arc<View>, Arc<View>)> = BTreeMap::new();
        for point in store.points.alive() {
            let view = store.view_of(&point);
            if !view.generations.last().is_some_and(|last| Arc::ptr_eq(last, &self.generation)) {
                continue;
            }
            let layers = match seen(&self.generation, point.bound) {
                Seen::Nothing => Vec::new(),
                Seen::UpTo(bound) => match self.layers.seen_at(bound) {
                    Some(layers) => layers,
                    // The point was not listed yet when the file was begun.
                    None => continue,
                },
            };
            let newest = layers.first().copied();
            let (_, next) = made.entry((Arc::as_ptr(&view), newest)).or_insert_with(|| {
                let next = Arc::new(replaced(store, &view, placing, &layers));
                (view, next)
            });
            point.replace(Arc::clone(next));
        }
        // The epoch frees the views that the points held.
        store.epoch.collect();
    }
}

/// The part of a generation that a point with that bound sees.
fn seen(generation: &Generation, bound: Sequence) -> Seen {
    match generation.sequences() {
        Some((first, last)) if first <= bound => Seen::UpTo(last.min(bound)),
        _ => Seen::Nothing,
    }
}

/// A copy of a view with layers in the place of its oldest generation.
fn replaced(store: &Scheduler, view: &View, placing: &Placing, layers: &[Layer]) -> View {
    let mut changes = Vec::new();
    let mut added: Vec<TreeId> = Vec::new();
    for placed in layers.iter().filter_map(|layer| placing.get(layer)).flatten() {
        let tree = placed.table.tree();
        if view.version.tree(tree).is_none() && !added.contains(&tree) {
            if store.keyspace_of(tree).is_none() {
                // The keyspace was dropped before the view was pinned, with items in memory: it stays
                // dropped.
                continue;
            }
            // The tree was made after the version; its items are in the view's newest generation.
            changes.push(VersionChange::AddTree(tree));
            added.push(tree);
        }
        changes.push(VersionChange::Add { spot: Spot::LEVEL_0, placed: placed.clone() });
    }
    let generations = &view.generations[..view.generations.len() - 1];
    let version = match changes.is_empty() {
        true => Arc::clone(&view.version),
        false => Arc::new(view.version.after(changes)),
    };
    View { generations: generations.to_vec(), version }
}

impl Scheduler {
    /// The oldest flushed generation that points keep, and these points.
    fn oldest_kept(&self) -> Option<(Arc<Generation>, Vec<Arc<Point>>)> {
        let pin = self.epoch.pin();
        let current = self.views.load(&pin).get();
        let (mut oldest, mut points): (Option<Arc<Generation>>, Vec<Arc<Point>>) = (None, Vec::new());
        let first = |one: &Generation| one.sequences().map_or(0, |(first, _)| first);
        for point in self.points.alive() {
            let Some(last) = point.load(&pin).get().generations.last() else { continue };
            if current.generations.iter().any(|live| Arc::ptr_eq(live, last)) {
                continue;
            }
            match &oldest {
                Some(one) if Arc::ptr_eq(one, last) => {}
                Some(one) if first(one) <= first(last) => continue,
                _ => {
                    oldest = Some(Arc::clone(last));
                    points.clear();
                }
            }
            points.push(point);
        }
        Some((oldest?, points))
    }

    fn has_tree(&self, point: &Point, tree: TreeId) -> bool {
        point.load(&self.epoch.pin()).get().version.tree(tree).is_some()
    }

    /// Memory of generations that only snapshots, iterators and reads under way keep, in bytes.
    pub(in crate::engine) fn kept_bytes(&self) -> u64 {
        let outside: u64 = {
            let alive = self.generations.lock();
            let pin = self.epoch.pin();
            let in_view = &self.views.load(&pin).get().generations;
            let is_outside = |one: &Arc<Generation>| !in_view.iter().any(|live| Arc::ptr_eq(live, one));
            let outside = alive.iter().filter_map(|one| one.upgrade()).filter(is_outside);
            outside.map(|one| one.capacity_bytes() as u64).sum()
        };
        let standby = u64::from(self.writer.standby().1) * self.budget.generation_bytes;
        outside.saturating_sub(standby)
    }

    /// Whether flushed generations keep so much memory that no further write buffer may be made.
    pub(in crate::engine) fn is_kept_full(&self) -> bool {
        self.kept_bytes() > self.cache.reserve().limit_bytes(Role::Kept)
    }

    /// The error for writers if no work under way frees kept memory.
    pub(in crate::engine) fn kept_error(&self) -> Error {
        let wanted = self.kept_bytes() + self.budget.generation_bytes;
        self.cache.reserve().refusal(Role::Kept, wanted)
    }

    /// Makes the cache leave as much memory as flushed generations keep.
    pub(in crate::engine) fn lend_to_kept(&self) {
        let bytes = self.kept_bytes();
        self.kept.lock().set(bytes);
    }
}

#[cfg(test)]
mod tests;
