//! Space that comes back without a flush: tables that range tombstones of write buffers cover whole leave the
//! store by an edit of the manifest.
//!
//! So a `clear` or `delete_range` gives the space of what it covers back within a moment, on a full disk too,
//! where no flush could write its tombstones. The flush worker calls, after commits with range tombstones and
//! when a disk is full.
//!
//! Invariants:
//! 1. Write buffers are newer than every table (`levels::view`): nobody would find what their tombstones
//!    cover.
//! 2. The tombstones are durable before the edit. Else a power cut might keep the edit and lose them: no
//!    prefix of the writes.
//! 3. No table goes while a checkpoint waits for its flush: its state must not be without what later writes
//!    deleted.
//! 4. Readers of older views keep the files.

use std::collections::BTreeSet;

use crate::base::error::{Error, Result};
use crate::base::id::{Sequence, TreeId};
use crate::base::sync::{Arc, Ordering};
use crate::compact::unseen::covered;
use crate::format::table::ranges::farther;
use crate::levels::version::Placed;
use crate::levels::view::View;
use crate::memtable::Generation;

use super::Scheduler;
use super::work::Kind;
use crate::engine::publish::catalog::Catalog;
use crate::engine::publish::edit::Edit;

/// Between two looks passes at least this long,
const PAUSE_NS_MIN: u64 = 50_000_000;
/// and so many times what the look took.
const PAUSE_PER_LOOK: u64 = 20;

/// When range tombstones were last looked at.
#[derive(Default, Debug)]
pub(in crate::engine) struct Freeing {
    next_ns: u64,
}

impl Freeing {
    /// Frees what newer range tombstones cover, if it is time; how long it is until they are looked at again,
    /// if they are to be.
    pub(in crate::engine) fn turn(&mut self, store: &Scheduler) -> Option<u64> {
        let now_ns = store.env.clock.now_ns();
        if store.writer.has_new_ranges() && now_ns >= self.next_ns {
            store.writer.look_at_ranges();
            if let Err(error) = store.free_covered() {
                log::warn!("what was deleted keeps its space for now: {error}");
                store.writer.want_look_at_ranges();
            }
            let took_ns = store.env.clock.now_ns().saturating_sub(now_ns);
            self.next_ns = now_ns + PAUSE_NS_MIN.max(PAUSE_PER_LOOK * took_ns);
        }
        store.writer.has_new_ranges().then(|| self.next_ns.saturating_sub(now_ns).max(1))
    }
}

/// Write buffers that have range tombstones with sequences up to a bound.
struct RangesInMemory {
    generations: Vec<Arc<Generation>>,
    bound: Sequence,
}

impl RangesInMemory {
    fn trees(&self) -> BTreeSet<TreeId> {
        self.generations.iter().flat_map(|generation| generation.range_trees()).collect()
    }

    /// How far one of them goes on over a key, if any covers it.
    fn end_over(&self, tree: TreeId, key: &[u8]) -> Option<&[u8]> {
        let ends = self.generations.iter().map(|generation| generation.range_end_over(tree, key, self.bound));
        ends.fold(None, farther)
    }
}

impl Scheduler {
    /// Takes tables out of the store that range tombstones in write buffers cover; whether there were any.
    ///
    /// # Errors
    /// `Full` if the manifest has no room for the edit; what latched the store.
    pub(in crate::engine) fn free_covered(&self) -> Result<bool> {
        let newer = self.ranges_in_memory();
        let mut has_freed = false;
        for tree in newer.trees() {
            // Taken before the tables are chosen: a merge would replace them.
            if !self.work.begin_merge(tree) {
                self.writer.want_look_at_ranges();
                continue;
            }
            let freed = self.free_of(tree, &newer);
            self.work.end_merges([tree]);
            has_freed |= freed?;
        }
        Ok(has_freed)
    }

    fn ranges_in_memory(&self) -> RangesInMemory {
        // Before the view: what is visible by now is in it, or in its tables.
        let bound = self.writer.visible();
        let pin = self.epoch.pin();
        let mut generations = self.views.load(&pin).get().generations.clone();
        generations.retain(|generation| generation.has_ranges(bound));
        RangesInMemory { generations, bound }
    }

    fn free_of(&self, tree: TreeId, newer: &RangesInMemory) -> Result<bool> {
        let mut catalog = self.catalog.take(&*self.env.threads);
        let names = {
            let pin = self.epoch.pin();
            covered_names(&self.views.load(&pin).counted(), tree, newer)
        };
        if names.is_empty() || !catalog.has_tree(tree) {
            return Ok(false);
        }
        if self.catalog.checkpoints.load(Ordering::Acquire) > 0 {
            self.writer.want_look_at_ranges();
            return Ok(false);
        }
        self.sync_named_logs(&catalog)?;
        let mut edit = Edit::default();
        edit.remove(catalog.whole_tables(), names);
        self.edit_taken(&mut catalog, edit)?;
        drop(catalog);
        self.work.set_error(Kind::Merge(tree), None);
        self.retry_when_freed();
        self.measure_pressure();
        self.pin_more();
        Ok(true)
    }

    /// Makes what is in the logs durable, beside whoever leads commits. A log is there as long as the catalog
    /// that names it is held.
    fn sync_named_logs(&self, catalog: &Catalog) -> Result<()> {
        for (number, log) in &catalog.state.logs {
            let synced = self.env.storage.sync(log.file(*number));
            synced.inspect_err(|error| self.writer.latch(error))?;
        }
        Ok(())
    }

    /// After an edit that lets files go: what a full disk stopped is tried again at once, and nobody is told
    /// of the old attempt.
    pub(in crate::engine) fn retry_when_freed(&self) {
        if matches!(self.work.error_of(Kind::Flush), Some(Error::Full { .. })) {
            self.work.set_error(Kind::Flush, None);
        }
        self.writer.set_stuck(None);
        self.writer.changed.notify();
        self.work.moved.notify();
    }
}

/// The tables of a tree that range tombstones in memory, or those of the tree's own, cover.
fn covered_names(view: &Arc<View>, tree: TreeId, newer: &RangesInMemory) -> Vec<(u64, u32)> {
    let Some(tables) = view.version.tree(tree) else { return Vec::new() };
    covered(tables, |key| newer.end_over(tree, key)).map(Placed::name).collect()
}
