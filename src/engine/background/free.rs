//! Space that comes back without a flush: tables fully covered by range tombstones in write buffers leave the
//! store by an edit of the manifest.
//!
//! So `clear` and `delete_range` free the space of covered tables within a moment. This works on a full disk
//! too, where no flush could write the tombstones. The flush worker calls it after commits with range
//! tombstones, and when a disk is full.
//!
//! Invariants:
//! 1. Write buffers are newer than every table (`levels::view`): no read finds an item that their tombstones
//!    cover.
//! 2. The tombstones are durable before the edit. Otherwise a power cut could keep the edit and lose the
//!    tombstones: the state would be no prefix of the writes.
//! 3. No table leaves while a checkpoint waits for its flush: later deletes must not remove items from the
//!    checkpoint's state.
//! 4. Readers of older views keep the files.

use std::collections::BTreeSet;

use crate::base::error::{Error, Result};
use crate::base::id::{Sequence, TreeId};
use crate::base::sync::{Arc, Ordering};
use crate::compact::fully_covered::covered;
use crate::format::table::ranges::farther;
use crate::levels::version::Placed;
use crate::levels::view::View;
use crate::memtable::Generation;

use super::Scheduler;
use super::work::WorkKind;
use crate::engine::publish::catalog::Catalog;
use crate::engine::publish::edit::Edit;

/// Minimum pause between two looks at range tombstones.
const PAUSE_NS_MIN: u64 = 50_000_000;
/// Minimum pause as a multiple of the time that the last look took.
const PAUSE_PER_LOOK: u64 = 20;

/// When range tombstones are looked at next.
#[derive(Default, Debug)]
pub(in crate::engine) struct Freeing {
    next_ns: u64,
}

impl Freeing {
    /// Drops tables covered by newer range tombstones, if a look is due. Returns the time until the next
    /// look; `None` if no look is pending.
    pub(in crate::engine) fn turn(&mut self, store: &Scheduler) -> Option<u64> {
        let now_ns = store.env.clock.now_ns();
        if store.writer.has_new_ranges() && now_ns >= self.next_ns {
            store.writer.look_at_ranges();
            if let Err(error) = store.free_covered() {
                log::warn!("deleted data keeps its space for now: {error}");
                store.writer.want_look_at_ranges();
            }
            let took_ns = store.env.clock.now_ns().saturating_sub(now_ns);
            self.next_ns = now_ns + PAUSE_NS_MIN.max(PAUSE_PER_LOOK * took_ns);
        }
        store.writer.has_new_ranges().then(|| self.next_ns.saturating_sub(now_ns).max(1))
    }
}

/// Write buffers that have range tombstones with sequence numbers up to a bound.
struct RangesInMemory {
    generations: Vec<Arc<Generation>>,
    bound: Sequence,
}

impl RangesInMemory {
    fn trees(&self) -> BTreeSet<TreeId> {
        self.generations.iter().flat_map(|generation| generation.range_trees()).collect()
    }

    /// The farthest end of the range tombstones that cover a key, if any covers it.
    fn end_over(&self, tree: TreeId, key: &[u8]) -> Option<&[u8]> {
        let ends = self.generations.iter().map(|generation| generation.range_end_over(tree, key, self.bound));
        ends.fold(None, farther)
    }
}

impl Scheduler {
    /// Removes tables from the store that range tombstones in write buffers cover. Returns whether there were
    /// any.
    ///
    /// # Errors
    /// `Full` if the manifest has no room for the edit; the error that latched the store.
    pub(in crate::engine) fn free_covered(&self) -> Result<bool> {
        let newer = self.ranges_in_memory();
        let mut has_freed = false;
        for tree in newer.trees() {
            // Claim the tree before the tables are chosen: a merge would replace them.
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
        // Before the view: every tombstone visible by now is in the view, or in its tables.
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
        self.work.set_error(WorkKind::Merge(tree), None);
        self.retry_when_freed();
        self.measure_pressure();
        self.pin_more();
        Ok(true)
    }

    /// Syncs the logs, beside the thread that leads commits. A log exists as long as the catalog that names
    /// it is held.
    fn sync_named_logs(&self, catalog: &Catalog) -> Result<()> {
        for (number, log) in &catalog.state.logs {
            let synced = self.env.storage.sync(log.file(*number));
            synced.inspect_err(|error| self.writer.latch(error))?;
        }
        Ok(())
    }

    /// After an edit that releases files: retries at once the work that a full disk stopped, and clears the
    /// error of the old attempt.
    pub(in crate::engine) fn retry_when_freed(&self) {
        if matches!(self.work.error_of(WorkKind::Flush), Some(Error::Full { .. })) {
            self.work.set_error(WorkKind::Flush, None);
        }
        self.writer.set_stuck(None);
        self.writer.changed.notify();
        self.work.moved.notify();
    }
}

/// The tables of a tree that range tombstones cover, either those in memory or the tree's own.
fn covered_names(view: &Arc<View>, tree: TreeId, newer: &RangesInMemory) -> Vec<(u64, u32)> {
    let Some(tables) = view.version.tree(tree) else { return Vec::new() };
    covered(tables, |key| newer.end_over(tree, key)).map(Placed::name).collect()
}
