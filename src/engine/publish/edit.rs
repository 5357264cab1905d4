//! Edits: changes of keyspaces, logs and tables, each described once. The manifest stores the changes; the
//! version that readers see follows from them ([`Edit::version_changes`]).
//!
//! The author of a change makes the edit; `edits` makes it durable and visible. Plain values.

use std::collections::BTreeMap;

use crate::base::id::{KeyspaceId, PartitionId, Sequence, TreeId};
use crate::base::place::NodeId;
use crate::base::sync::Arc;
use crate::format::manifest::state::Partition;
use crate::format::manifest::{ManifestChange, ManifestState, Slice};
use crate::levels::names::NameChange;
use crate::levels::version::{Placed, Spot, VersionChange};
use crate::memtable::Generation;
use crate::table::{TableReader, TableSummary};

/// File number and slice.
pub(crate) type TableName = (u64, u32);

/// See the module.
#[derive(Default)]
pub(crate) struct Edit<'e> {
    changes: Vec<ManifestChange>,
    /// The slices that the changes add, opened.
    opened: Vec<Arc<TableReader>>,
    /// Slices of the same files that the changes do not add.
    left_out: Vec<Arc<TableReader>>,
    /// Generations whose items the new version holds.
    flushed: &'e [Arc<Generation>],
}

/// The origin of the items in new tables.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Origin {
    /// First and last sequence number that the items may have.
    pub(in crate::engine) sequences: (Sequence, Sequence),
    /// Time from which the age of the oldest tombstone counts, in seconds since 1970: about the beginning of
    /// its write buffer.
    pub(in crate::engine) oldest_tombstone_s: u64,
}

impl<'e> Edit<'e> {
    /// Changes that add no slice.
    pub(in crate::engine) fn of(changes: Vec<ManifestChange>) -> Edit<'e> {
        let adds = |change: &ManifestChange| matches!(change, ManifestChange::Slice { .. });
        assert!(!changes.iter().any(adds), "slices are added with their tables");
        Edit { changes, ..Edit::default() }
    }

    /// All items up to `sequence` are in tables now, those of the flushed generations among them; the logs of
    /// these numbers are no longer needed.
    pub(in crate::engine) fn flush(
        flushed: &'e [Arc<Generation>],
        sequence: Sequence,
        logs: impl IntoIterator<Item = u64>,
    ) -> Edit<'e> {
        let mut changes = vec![ManifestChange::Flushed { sequence }];
        changes.extend(logs.into_iter().map(|number| ManifestChange::LogRemoved { number }));
        Edit { changes, flushed, ..Edit::default() }
    }

    /// Adds slices of a new table, each to a run of its tree.
    pub(in crate::engine) fn add(
        &mut self,
        summary: &TableSummary,
        slices: Vec<(Arc<TableReader>, Spot, Origin)>,
    ) {
        let file = summary.identity.file;
        self.changes.push(ManifestChange::Table {
            number: file.number,
            path: file.path,
            uid: summary.identity.uid,
            bytes: summary.bytes,
            checksum: summary.checksum,
        });
        for (table, spot, origin) in slices {
            let has_tombstones = table.tombstones() > 0 || !table.ranges().is_empty();
            let tombstones_dense =
                summary.slices.get(table.index()).map_or(0, |slice| slice.tombstones_dense);
            let placed = Placed {
                table,
                first_sequence: origin.sequences.0,
                last_sequence: origin.sequences.1,
                oldest_tombstone_s: if has_tombstones { origin.oldest_tombstone_s } else { 0 },
                tombstones_dense,
            };
            let (table, index) = placed.name();
            self.changes.push(ManifestChange::Slice { table, index, slice: placed.slice(spot) });
            self.opened.push(placed.table);
        }
    }

    /// Leaves out a slice of an added table.
    pub(in crate::engine) fn leave_out(&mut self, table: &Arc<TableReader>) {
        self.left_out.push(Arc::clone(table));
    }

    /// Slices of added tables that the edit leaves out.
    pub(in crate::engine) fn left_out(&self) -> &[Arc<TableReader>] {
        &self.left_out
    }

    /// Removes slices from their trees. A file is removed with its last slice, once no reader holds it.
    /// `whole`: the state before the edit, so that one change removes slices that are all that is left of a
    /// table.
    pub(in crate::engine) fn remove(
        &mut self,
        whole: Option<&ManifestState>,
        names: impl IntoIterator<Item = TableName>,
    ) {
        let mut by_table: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (table, index) in names {
            by_table.entry(table).or_default().push(index);
        }
        for (table, indexes) in by_table {
            let left = whole.and_then(|state| state.tables.get(&table)).map_or(0, |table| table.slices.len());
            if indexes.len() > 1 && indexes.len() == left {
                self.changes.push(ManifestChange::TableRemoved { number: table });
            } else {
                let removed = indexes.into_iter().map(|index| ManifestChange::SliceRemoved { table, index });
                self.changes.extend(removed);
            }
        }
    }

    /// Moves a slice to another run of its tree.
    pub(in crate::engine) fn relocate(&mut self, (table, index): TableName, spot: Spot) {
        let level = u8::try_from(spot.level).expect("a level fits a byte");
        self.changes.push(ManifestChange::SliceMoved { table, index, level, run: spot.run });
    }

    /// The changes for the manifest.
    pub(in crate::engine) fn changes(&self) -> &[ManifestChange] {
        &self.changes
    }

    /// Tables that the edit adds.
    pub(in crate::engine) fn opened(&self) -> &[Arc<TableReader>] {
        &self.opened
    }

    pub(in crate::engine) fn flushed(&self) -> &'e [Arc<Generation>] {
        self.flushed
    }

    /// The changes of the version, from the state before the edit.
    pub(in crate::engine) fn version_changes(&self, before: &ManifestState) -> Vec<VersionChange> {
        let tree =
            |partition: PartitionId| TreeId { keyspace: before.partitions[&partition].keyspace, partition };
        let found = |slice: &Slice| {
            let tree = tree(slice.partition);
            (tree, slice.node().unwrap_or(NodeId::ROOT))
        };
        let find = |table: u64, index: u32| found(&before.tables[&table].slices[&index]);
        let has_names = |keyspace: KeyspaceId| before.is_divided_by_keys(keyspace);
        let named = VersionChange::Name;
        let (mut changes, mut opened) = (Vec::new(), self.opened.iter());
        for change in &self.changes {
            match change {
                ManifestChange::PartitionRule { keyspace, rule } if rule.is_by_key() => {
                    changes.push(named(NameChange::Divide(*keyspace)));
                }
                ManifestChange::Partition { id, keyspace, name } => {
                    changes.push(VersionChange::AddTree(TreeId { keyspace: *keyspace, partition: *id }));
                    if has_names(*keyspace) {
                        changes.push(named(NameChange::Add(*keyspace, name.clone(), *id)));
                    }
                }
                ManifestChange::DropKeyspace { id } => {
                    let dropped = before.partitions_of(*id);
                    changes.extend(dropped.map(|partition| VersionChange::DropTree(tree(partition))));
                    if has_names(*id) {
                        changes.push(named(NameChange::Forget(*id)));
                    }
                }
                ManifestChange::DropPartition { id } => {
                    changes.push(VersionChange::DropTree(tree(*id)));
                    let Partition { keyspace, name } = &before.partitions[id];
                    if has_names(*keyspace) {
                        changes.push(named(NameChange::Remove(*keyspace, name.clone())));
                    }
                }
                ManifestChange::Slice { table, index, slice } => {
                    let (spot, placed) = Placed::of(slice, opened.next().expect("one a slice"));
                    assert_eq!(placed.name(), (*table, *index), "they are in the order of the changes");
                    changes.push(VersionChange::Add { spot, placed });
                }
                ManifestChange::SliceMoved { table, index, level, run } => {
                    let spot = Spot { level: usize::from(*level), run: *run };
                    let ((tree, node), name) = (find(*table, *index), (*table, *index));
                    changes.push(VersionChange::Move { tree, name, node, spot });
                }
                ManifestChange::TableRemoved { number } => {
                    for (index, slice) in &before.tables[number].slices {
                        let ((tree, node), name) = (found(slice), (*number, *index));
                        changes.push(VersionChange::Remove { tree, name, node });
                    }
                }
                ManifestChange::SliceRemoved { table, index } => {
                    let ((tree, node), name) = (find(*table, *index), (*table, *index));
                    changes.push(VersionChange::Remove { tree, name, node });
                }
                // The version holds neither settings nor logs, and only the slices of a table.
                ManifestChange::Keyspace { .. }
                | ManifestChange::KeyspaceSettings { .. }
                | ManifestChange::PartitionRule { .. }
                | ManifestChange::RetainFrom { .. }
                | ManifestChange::Log { .. }
                | ManifestChange::LogPromised { .. }
                | ManifestChange::LogRemoved { .. }
                | ManifestChange::Table { .. }
                | ManifestChange::Ids { .. }
                | ManifestChange::Flushed { .. } => {}
            }
        }
        changes
    }
}
