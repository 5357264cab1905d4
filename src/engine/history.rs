//! History tables: what snapshots and iterators still need of generations that are flushed, written to tables
//! of their own so that the memory can be given back.
//!
//! Past a sixteenth of the budget, the flush worker takes a point that keeps generations alive, writes what
//! the point sees of them to a private table (one version a key, no tombstone dropped), and has the point
//! read from its old version with that table on top. Points that see the same share the table. No manifest
//! names it: it goes with its last reader, or when the store is opened next. Iterators hold no view between
//! their steps, so the memory is free at once.
//!
//! Invariants:
//! 1. The generations replaced are the oldest of the point's view, so that what is left in memory is newer
//!    than every table.
//! 2. Each table made frees at least one point of what it kept, so the work ends.

use crate::base::error::Result;
use crate::base::id::{FileKind, FileName, Sequence};
use crate::base::sync::{Arc, Ordering};
use crate::levels::version::{Change, Placed, Spot};
use crate::levels::view::View;
use crate::memtable::Generation;
use crate::merge::Progress;
use crate::table::{TableFile, TableIdentity};
use crate::write::flush::{Flush, FlushOutput, Tombstones, TreePlan};

use super::Store;
use super::slices;
use super::snapshot::Point;

/// Part of the budget that flushed generations may keep.
const KEPT_SHARE: u64 = 16;

/// A table being written for one point and those that see the same.
pub(super) struct History {
    need: Need,
    flush: Flush,
}

/// What a point needs that is only in memory.
#[derive(Clone)]
struct Need {
    /// Newest first.
    generations: Vec<Arc<Generation>>,
    bound: Sequence,
}

impl Need {
    /// Of these generations, by a point with that bound.
    fn of(generations: Vec<Arc<Generation>>, bound: Sequence) -> Need {
        // Beyond the last write of them, every bound sees the same.
        let last = generations.iter().filter_map(|one| one.sequences()).map(|(_, last)| last).max();
        Need { bound: last.map_or(bound, |last| last.min(bound)), generations }
    }
}

impl PartialEq for Need {
    fn eq(&self, other: &Need) -> bool {
        let pairs = self.generations.iter().zip(&other.generations);
        self.bound == other.bound
            && self.generations.len() == other.generations.len()
            && pairs.into_iter().all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

impl History {
    /// Work that is due; `None` if little is kept, or nothing that a table could replace.
    pub(super) fn begin(store: &Arc<Store>) -> Result<Option<History>> {
        if store.kept_bytes() * KEPT_SHARE <= store.budget.memory_bytes {
            return Ok(None);
        }
        let points = store.points.alive();
        // The oldest first: it keeps most.
        let needs = points.iter().filter_map(|point| Some((point.bound, store.need(point)?)));
        let Some((_, need)) = needs.min_by_key(|(bound, _)| *bound) else {
            return Ok(None);
        };
        let file = FileName::new(FileKind::History, store.next_file()?);
        let identity = TableIdentity { file, uid: store.env.random.u64(), store_id: store.store_id };
        let items = need.generations.iter().map(|one| one.items()).sum();
        let shape = |tree| {
            // The point may see a keyspace that was dropped since.
            let settings = store.keyspace_of(tree).map(|one| one.settings()).unwrap_or_default();
            Some(TreePlan { slice: slices::of_flush(&settings, None, items), tombstones: Tombstones::Keep })
        };
        let (storage, secret) = (Arc::clone(&store.env.storage), store.secret.clone());
        let generations = need.generations.clone();
        let mut flush = Flush::new(storage, identity, secret, generations, need.bound, shape);
        flush.set_write_bytes(store.budget.write_bytes());
        Ok(Some(History { need, flush }))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.flush.memory_bytes()
    }

    /// Does the next piece.
    pub(super) fn turn(&mut self, store: &Store) -> Result<Progress<()>> {
        let Progress::Done(output) = self.flush.turn()? else { return Ok(Progress::More) };
        self.install(store, &output)?;
        store.work.histories.fetch_add(1, Ordering::Relaxed);
        Ok(Progress::Done(()))
    }

    fn install(&self, store: &Store, output: &FlushOutput) -> Result<()> {
        let mut placed = Vec::new();
        if let (Some(summary), Some((first_sequence, last_sequence))) = (&output.table, output.sequences) {
            let (storage, bytes) = (&store.env.storage, summary.bytes);
            let opened =
                TableFile::open(storage, summary.identity, bytes, summary.checksum, &store.discarded)?;
            opened.iter().for_each(|table| table.file().mark_obsolete());
            // Nothing is ever picked of a snapshot's version.
            let (oldest_tombstone_s, tombstones_dense) = (0, 0);
            let place =
                |table| Placed { table, first_sequence, last_sequence, oldest_tombstone_s, tombstones_dense };
            placed.extend(opened.into_iter().map(place));
        }
        for point in store.points.alive() {
            if store.need(&point).is_some_and(|need| self.serves(&need)) {
                point.replace(Arc::new(self.replaced(store, &store.view_of(&point), &placed)));
            }
        }
        // What the points kept is deferred to the epoch.
        store.epoch.collect();
        Ok(())
    }

    /// Whether the table holds the oldest of what is needed. More may have been flushed while it was written.
    fn serves(&self, need: &Need) -> bool {
        let newer = need.generations.len().checked_sub(self.need.generations.len());
        newer.is_some_and(|newer| Need::of(need.generations[newer..].to_vec(), need.bound) == self.need)
    }

    /// A view with the new tables in the place of the generations.
    fn replaced(&self, store: &Store, view: &View, placed: &[Placed]) -> View {
        let is_left =
            |one: &&Arc<Generation>| !self.need.generations.iter().any(|gone| Arc::ptr_eq(one, gone));
        let mut changes = Vec::new();
        for one in placed {
            if view.version.tree(one.table.tree()).is_none() {
                if store.keyspace_of(one.table.tree()).is_none() {
                    // Dropped before the view was pinned, with items in memory: it stays dropped.
                    continue;
                }
                // Made after the version, with items in its newest generation.
                changes.push(Change::AddTree(one.table.tree()));
            }
            changes.push(Change::Add { spot: Spot::LEVEL_0, placed: one.clone() });
        }
        View {
            generations: view.generations.iter().filter(is_left).cloned().collect(),
            version: Arc::new(view.version.after(changes)),
        }
    }
}

impl Store {
    /// What the point needs of generations that are flushed.
    fn need(&self, point: &Point) -> Option<Need> {
        let pin = self.epoch.pin();
        let current = self.views.load(&pin).get();
        let is_flushed =
            |one: &&Arc<Generation>| !current.generations.iter().any(|live| Arc::ptr_eq(one, live));
        let generations: Vec<Arc<Generation>> =
            point.load(&pin).get().generations.iter().filter(is_flushed).cloned().collect();
        (!generations.is_empty()).then(|| Need::of(generations, point.bound))
    }

    /// Memory of generations that only snapshots, iterators and reads under way keep, in bytes.
    pub(super) fn kept_bytes(&self) -> u64 {
        let alive = self.generations.lock().iter().filter(|one| one.strong_count() > 0).count();
        let in_view = {
            let pin = self.epoch.pin();
            self.views.load(&pin).get().generations.len()
        };
        alive.saturating_sub(in_view + usize::from(self.writer.standby().1)) as u64
            * self.budget.generation_bytes
    }

    /// Has the cache leave as much memory as flushed generations keep.
    pub(super) fn lend_to_kept(&self) {
        let bytes = self.kept_bytes();
        self.kept.lock().set(bytes);
    }
}
