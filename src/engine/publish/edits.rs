//! Edits: made durable in the manifest, then visible in a version.
//!
//! Invariants:
//! 1. An edit is durable in the manifest before its version is published. The exception is a partition that
//!    log records make (`make_unwritten`): the next edit writes it.
//! 2. A file is removed only after the edit that removes its name is durable and no reader holds the file.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName, TreeId};
use crate::base::place::NodeId;
use crate::base::sync::{Arc, Ordering};
use crate::format::frames::{FramePoint, RECORDS_FROM};
use crate::format::manifest::{ManifestChange, ManifestState, edit_bytes};
use crate::levels::manifest::{ManifestFile, ManifestIdentity};
use crate::levels::version::{Placed, Spot, Tree, Version, VersionChange};
use crate::table::TableReader;
use crate::wal::made::changes_of_made;
use crate::write::writer::Ends;

use super::Publisher;
use super::catalog::Catalog;
use super::edit::{Edit, TableName};
use super::keyspace::KeyspaceState;

impl Publisher {
    /// Makes an edit durable, then visible.
    pub(in crate::engine) fn edit(&self, edit: Edit<'_>) -> Result<()> {
        let mut catalog = self.catalog.take(&*self.env.threads);
        self.edit_taken(&mut catalog, edit)
    }

    pub(in crate::engine) fn edit_taken(&self, catalog: &mut Catalog, edit: Edit<'_>) -> Result<()> {
        if let Some(error) = self.writer.latched() {
            return Err(error.clone());
        }
        self.make_manifest_room(catalog, edit.changes())?;
        let changes = catalog.with_unwritten(edit.changes());
        if changes.is_empty() {
            return Ok(());
        }
        let version_changes = edit.version_changes(&catalog.state);
        // Before the manifest: an edit that does not fit the state must never reach the disk.
        catalog.state.apply_edit(edit.changes()).expect("edits are made from the state they change");
        self.append(catalog, &changes)?;
        catalog.note_written();
        catalog.count_memory();
        edit.left_out().iter().for_each(|table| table.mark_dying());
        self.publish(catalog, &edit, version_changes);
        Ok(())
    }

    /// Makes partitions that the next edit adds to the manifest. Until then the records with their items make
    /// them.
    pub(in crate::engine) fn make_unwritten(&self, catalog: &mut Catalog, made: &[Arc<KeyspaceState>]) {
        let named = made.iter().filter_map(|one| Some((one.tree, one.partition_name()?)));
        let changes = changes_of_made(catalog.state.next_keyspace, named);
        let edit = Edit::of(changes);
        let version_changes = edit.version_changes(&catalog.state);
        catalog.state.apply_edit(edit.changes()).expect("edits are made from the state they change");
        made.iter().for_each(|partition| partition.set_unwritten(true));
        catalog.unwritten.extend(made.iter().map(Arc::clone));
        catalog.count_memory();
        self.publish(catalog, &edit, version_changes);
    }

    /// Makes an edit visible that the state has already.
    fn publish(&self, catalog: &Catalog, edit: &Edit<'_>, version_changes: Vec<VersionChange>) {
        if version_changes.is_empty() && edit.flushed().is_empty() {
            return;
        }
        let before = {
            let pin = self.epoch.pin();
            Arc::clone(&self.views.load(&pin).get().version)
        };
        let touched: BTreeSet<TreeId> = version_changes.iter().filter_map(VersionChange::tree).collect();
        let lost = lost_tables(&before, &version_changes);
        let after = Arc::new(before.after(version_changes));
        debug_assert!(touched.iter().all(|tree| agrees(&catalog.state, &after, *tree)), "edits tell all");
        for table in lost {
            match catalog.state.tables.get(&table.file().name().number) {
                None => table.file().mark_obsolete(),
                Some(file) if file.slices.contains_key(&(table.index() as u32)) => {}
                Some(_) => table.mark_dying(),
            }
        }
        self.views.publish(after, edit.flushed());
        // Noted only now: a look at trees that lack pages must read the published version.
        let short = edit.opened().iter().filter(|table| table.lacks_pages());
        short.for_each(|table| self.pages.note_short(table.tree()));
        drop(before);
        self.changed_trees.note_all(touched);
        self.epoch.collect();
        if !self.owner.discarded.is_empty() {
            // Readers that are pinned now may keep files, and their end sends no notification.
            self.owner.discarded.notify();
        }
    }

    /// Rewrites the manifest if it has no room or is mostly history. Where the disk has no room for a new
    /// manifest, an edit that may free space goes into the room that the old one reserves for such edits.
    fn make_manifest_room(&self, catalog: &mut Catalog, changes: &[ManifestChange]) -> Result<()> {
        let whole = catalog.with_unwritten(changes);
        if catalog.manifest.must_rewrite(&catalog.state) || !catalog.manifest.has_room(&whole) {
            let rewritten = self.rewrite_manifest(catalog, changes);
            match rewritten {
                Err(Error::Full { .. })
                    if !changes.is_empty() && changes.iter().all(ManifestChange::frees) =>
                {
                    return match catalog.manifest.has_reserved_room(&whole) {
                        true => Ok(()),
                        false => rewritten,
                    };
                }
                _ => rewritten?,
            }
        }
        if !catalog.manifest.has_room(changes) {
            let limit = catalog.manifest.place().bytes;
            return Err(Error::TooLarge { what: "manifest", limit, given: edit_bytes(changes) });
        }
        Ok(())
    }

    /// Records once more where the files end, when a store is closed. The manifest records the ends of the
    /// logs, if it has room, and drops a log that was not used. This rules out a log that is an older copy of
    /// itself, and a misplaced block that replaces the last record together with the data that confirms it. A
    /// slot of the log and the manifest's other slot record the ends too.
    pub(in crate::engine) fn record_log_ends(&self, catalog: &mut Catalog, ends: &Ends) -> Result<()> {
        let storage = &*self.env.storage;
        if let Some((file, offset, page)) = &ends.slot {
            storage.write(*file, *offset, page)?;
        }
        let is_news = |(file, end): &&(FileName, FramePoint)| {
            let log = catalog.state.logs.get(&file.number);
            end.bytes > RECORDS_FROM && log.is_some_and(|log| log.recorded_end.is_none())
        };
        let recorded = |(file, end): &(FileName, FramePoint)| ManifestChange::LogPromised {
            number: file.number,
            end: *end,
        };
        let mut changes: Vec<ManifestChange> = ends.logs.iter().filter(is_news).map(recorded).collect();
        changes.extend(ends.standby.map(|log| ManifestChange::LogRemoved { number: log.number }));
        if !changes.is_empty() && catalog.manifest.has_room(&changes) {
            catalog.state.apply_edit(&changes).expect("edits are made from the state they change");
            self.append(catalog, &changes)?;
            ends.standby.into_iter().for_each(|log| self.remove_quietly(log));
        }
        catalog.manifest.record_end_again(storage)
    }

    fn append(&self, catalog: &mut Catalog, changes: &[ManifestChange]) -> Result<()> {
        let appended = catalog.manifest.append(&*self.env.storage, changes);
        match &appended {
            Ok(()) => self.note_appended(catalog, changes),
            Err(Error::Full { .. }) if self.take_back(catalog) => {}
            // It is not known how much of the edit reached the disk.
            Err(error) => self.writer.latch(error),
        }
        appended
    }

    fn note_appended(&self, catalog: &mut Catalog, changes: &[ManifestChange]) {
        if let Some(since_copy) = &mut catalog.since_copy {
            since_copy.extend_from_slice(changes);
        } else if catalog.manifest.wants_rewrite(&catalog.state) {
            self.catalog.wants_manifest.store(true, Ordering::Release);
            // Wakes the flush worker.
            self.owner.discarded.notify();
        }
    }

    /// Restores the state to the manifest's after a full disk refused an edit; `false` if it cannot.
    fn take_back(&self, catalog: &mut Catalog) -> bool {
        if self.reload(catalog) {
            return true;
        }
        // The written part of the edit may read back as a whole edit, if its rest is zeros. So it is wiped
        // before any step relies on its absence.
        catalog.manifest.make_durable(&*self.env.storage).is_ok() && self.reload(catalog)
    }

    /// Takes state and manifest as they are on disk, if the disk has no unexpected edit.
    fn reload(&self, catalog: &mut Catalog) -> bool {
        match ManifestFile::load(&*self.env.storage, catalog.store_file.live()) {
            Ok((state, manifest)) if manifest.edit_count() == catalog.manifest.edit_count() => {
                (catalog.state, catalog.manifest) = (state, manifest);
                let unwritten = catalog.unwritten_changes();
                catalog.state.apply_edit(&unwritten).expect("nothing else was changed since they were made");
                true
            }
            _ => false,
        }
    }

    pub(in crate::engine) fn rewrite_manifest(
        &self,
        catalog: &mut Catalog,
        changes: &[ManifestChange],
    ) -> Result<()> {
        let bytes_min = self.settings.manifest_bytes.max(4 * edit_bytes(changes));
        let mut identity = self.next_manifest(catalog, bytes_min)?;
        identity.features |= changes.iter().fold(0, |bits, change| bits | change.features());
        let manifest = ManifestFile::create(&*self.env.storage, &identity, &catalog.state)?;
        self.sync_directory()?;
        self.switch_manifest(catalog, manifest)?;
        // The new manifest has them, since the state has.
        catalog.note_written();
        Ok(())
    }

    fn next_manifest(&self, catalog: &mut Catalog, bytes_min: u64) -> Result<ManifestIdentity> {
        let (number, uid) = (self.next_file_in(catalog)?, self.env.random.u64());
        let features = catalog.manifest.kept_features();
        Ok(ManifestIdentity { number, uid, store_id: self.store_id, bytes_min, features })
    }

    /// Makes a manifest the live one; it holds the present state, and its name is durable.
    fn switch_manifest(&self, catalog: &mut Catalog, manifest: ManifestFile) -> Result<()> {
        let storage = &*self.env.storage;
        let old = catalog.manifest.file();
        // A manifest that is being written beside edits is obsolete now.
        catalog.since_copy = None;
        let switched = catalog.store_file.switch_manifest(storage, manifest.place());
        if let Err(error) = &switched {
            self.writer.latch(error);
        }
        switched?;
        catalog.manifest = manifest;
        self.remove_quietly(old);
        Ok(())
    }

    /// Writes a new manifest from a copy of the state, if one will be needed soon, while edits go on. Returns
    /// `None` after a failure: the next edit that finds no room reports it.
    pub(in crate::engine) fn begin_manifest(&self) -> Option<ManifestFile> {
        if !self.catalog.wants_manifest.swap(false, Ordering::Acquire) || self.writer.latched().is_some() {
            return None;
        }
        let (identity, state) = {
            let mut catalog = self.catalog.take(&*self.env.threads);
            // Unwritten partitions go to the old manifest first: the copy has them, and a later edit would
            // add them to the new one again.
            self.edit_taken(&mut catalog, Edit::default()).ok()?;
            if catalog.since_copy.is_some() || !catalog.manifest.wants_rewrite(&catalog.state) {
                return None;
            }
            let identity = self.next_manifest(&mut catalog, self.settings.manifest_bytes).ok()?;
            catalog.since_copy = Some(Vec::new());
            (identity, catalog.state.clone())
        };
        let made = ManifestFile::create(&*self.env.storage, &identity, &state);
        let named = made.and_then(|manifest| self.sync_directory().map(|()| manifest));
        if let Err(error) = &named {
            log::warn!("a new manifest could not be written: {error}");
            self.remove_unnamed([FileName::new(FileKind::Manifest, identity.number)]);
            self.catalog.take(&*self.env.threads).since_copy = None;
        }
        named.ok()
    }

    /// Appends the changes that were made while a manifest was written, and makes it the live one. If the
    /// live one was rewritten meanwhile, or the append fails, the new manifest is removed.
    ///
    /// # Errors
    /// The error that latched the store.
    pub(in crate::engine) fn end_manifest(&self, mut manifest: ManifestFile) -> Result<()> {
        let mut catalog = self.catalog.take(&*self.env.threads);
        if let Some(error) = self.writer.latched() {
            return Err(error.clone());
        }
        let since_copy = catalog.since_copy.take();
        let is_current = since_copy.is_some_and(|changes| {
            let has_room = manifest.has_room(&changes);
            changes.is_empty() || has_room && manifest.append(&*self.env.storage, &changes).is_ok()
        });
        if !is_current {
            self.remove_quietly(manifest.file());
            return Ok(());
        }
        self.switch_manifest(&mut catalog, manifest)
    }
}

/// Whether the version agrees with the manifest about a tree.
fn agrees(state: &ManifestState, version: &Version, tree: TreeId) -> bool {
    let has_partition = state.partitions.contains_key(&tree.partition);
    let named: BTreeSet<(u64, u32, u64, u64)> = state
        .slices(tree.partition)
        .map(|(table, index, slice)| (table, index, u64::from(slice.level), slice.run))
        .collect();
    let Some(tree) = version.tree(tree) else { return !has_partition && named.is_empty() };
    let there = || {
        let name = |(spot, placed): (Spot, &Placed)| {
            let (table, index) = placed.name();
            (table, index, spot.level as u64, spot.run)
        };
        tree.spots().map(name).collect::<BTreeSet<_>>()
    };
    #[cfg(test)]
    let there = || crate::base::visits::uncounted(there);
    has_partition && there() == named
}

/// The tables that leave their trees.
fn lost_tables(before: &Version, changes: &[VersionChange]) -> Vec<Arc<TableReader>> {
    let mut names: BTreeMap<TreeId, BTreeMap<TableName, NodeId>> = BTreeMap::new();
    let mut lost: Vec<&Placed> = Vec::new();
    for change in changes {
        match change {
            VersionChange::Remove { tree, name, node } => {
                names.entry(*tree).or_default().insert(*name, *node);
            }
            VersionChange::DropTree(tree) => {
                lost.extend(before.tree(*tree).into_iter().flat_map(Tree::tables).map(|(_, placed)| placed));
            }
            _ => {}
        }
    }
    lost.extend(names.iter().filter_map(|(id, names)| Some(before.tree(*id)?.named(names))).flatten());
    lost.into_iter().map(|placed| Arc::clone(&placed.table)).collect()
}

#[cfg(test)]
mod tests;
