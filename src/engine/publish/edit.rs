//! Edits: changes of keyspaces, logs and tables, each described once. The manifest stores the changes; the
//! version that readers see follows from them ([`Edit::version_changes`]).
//!
//! The author of a change makes the edit; `edits` makes it durable and visible. Plain values.

use std::collections::BTreeMap;

use crate::base::id::{KeyspaceId, PartitionId, Sequence, TreeId};
use crate::base::place::NodeId;
use crate::base::sync::Arc;
use crate::format::manifest::state::Partition;
use crate::format::manifest::{Change, Slice, State};
use crate::levels::names;
use crate::levels::version::{self, Placed, Spot};
use crate::memtable::Generation;
use crate::table::{Table, TableSummary};

/// File number and slice.
pub(crate) type TableName = (u64, u32);

/// See the module.
#[derive(Default)]
pub(crate) struct Edit<'e> {
    changes: Vec<Change>,
    /// The slices that the changes add, opened.
    opened: Vec<Arc<Table>>,
    /// Slices of the same files that the changes do not add.
    left_out: Vec<Arc<Table>>,
    /// Generations whose items the new version holds.
    flushed: &'e [Arc<Generation>],
}

/// The origin of the items in new tables.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Origin {
    /// First and last sequence number that the items may have.
    pub(in crate::engine) sequences: (Sequence, Sequence),
    /// Latest time at which the oldest tombstone among them was written, in seconds since 1970.
    pub(in crate::engine) oldest_tombstone_s: u64,
}

impl<'e> Edit<'e> {
    /// Changes that add no slice.
    pub(in crate::engine) fn of(changes: Vec<Change>) -> Edit<'e> {
        let adds = |change: &Change| matches!(change, Change::Slice { .. });
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
        let mut changes = vec![Change::Flushed { sequence }];
        changes.extend(logs.into_iter().map(|number| Change::LogRemoved { number }));
        Edit { changes, flushed, ..Edit::default() }
    }

    /// Adds slices of a new table, each to a run of its tree.
    pub(in crate::engine) fn add(&mut self, summary: &TableSummary, slices: Vec<(Arc<Table>, Spot, Origin)>) {
        let file = summary.identity.file;
        self.changes.push(Change::Table {
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
            self.changes.push(Change::Slice { table, index, slice: placed.slice(spot) });
            self.opened.push(placed.table);
        }
    }

    /// Leaves out a slice of an added table.
    pub(in crate::engine) fn leave_out(&mut self, table: &Arc<Table>) {
        self.left_out.push(Arc::clone(table));
    }

    /// Slices of added tables that the edit leaves out.
    pub(in crate::engine) fn left_out(&self) -> &[Arc<Table>] {
        &self.left_out
    }

    /// Removes slices from their trees. A file is removed with its last slice, once no reader holds it.
    /// `whole`: the state before the edit, so that one change removes slices that are all that is left of a
    /// table.
    pub(in crate::engine) fn remove(
        &mut self,
        whole: Option<&State>,
        names: impl IntoIterator<Item = TableName>,
    ) {
        let mut by_table: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (table, index) in names {
            by_table.entry(table).or_default().push(index);
        }
        for (table, indexes) in by_table {
            let left = whole.and_then(|state| state.tables.get(&table)).map_or(0, |table| table.slices.len());
            if indexes.len() > 1 && indexes.len() == left {
                self.changes.push(Change::TableRemoved { number: table });
            } else {
                let removed = indexes.into_iter().map(|index| Change::SliceRemoved { table, index });
                self.changes.extend(removed);
            }
        }
    }

    /// Moves a slice to another run of its tree.
    pub(in crate::engine) fn relocate(&mut self, (table, index): TableName, spot: Spot) {
        let level = u8::try_from(spot.level).expect("a level fits a byte");
        self.changes.push(Change::SliceMoved { table, index, level, run: spot.run });
    }

    /// The changes for the manifest.
    pub(in crate::engine) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Tables that the edit adds.
    pub(in crate::engine) fn opened(&self) -> &[Arc<Table>] {
        &self.opened
    }

    pub(in crate::engine) fn flushed(&self) -> &'e [Arc<Generation>] {
        self.flushed
    }

    /// The changes of the version, from the state before the edit.
    pub(in crate::engine) fn version_changes(&self, before: &State) -> Vec<version::Change> {
        let tree =
            |partition: PartitionId| TreeId { keyspace: before.partitions[&partition].keyspace, partition };
        let found = |slice: &Slice| {
            let tree = tree(slice.partition);
            (tree, slice.node().unwrap_or(NodeId::ROOT))
        };
        let find = |table: u64, index: u32| found(&before.tables[&table].slices[&index]);
        let has_names = |keyspace: KeyspaceId| before.is_divided_by_keys(keyspace);
        let named = version::Change::Name;
        let (mut changes, mut opened) = (Vec::new(), self.opened.iter());
        for change in &self.changes {
            match change {
                Change::PartitionRule { keyspace, rule } if rule.is_by_key() => {
                    changes.push(named(names::Change::Divide(*keyspace)));
                }
                Change::Partition { id, keyspace, name } => {
                    changes.push(version::Change::AddTree(TreeId { keyspace: *keyspace, partition: *id }));
                    if has_names(*keyspace) {
                        changes.push(named(names::Change::Add(*keyspace, name.clone(), *id)));
                    }
                }
                Change::DropKeyspace { id } => {
                    let dropped = before.partitions_of(*id);
                    changes.extend(dropped.map(|partition| version::Change::DropTree(tree(partition))));
                    if has_names(*id) {
                        changes.push(named(names::Change::Forget(*id)));
                    }
                }
                Change::DropPartition { id } => {
                    changes.push(version::Change::DropTree(tree(*id)));
                    let Partition { keyspace, name } = &before.partitions[id];
                    if has_names(*keyspace) {
                        changes.push(named(names::Change::Remove(*keyspace, name.clone())));
                    }
                }
                Change::Slice { table, index, slice } => {
                    let (spot, placed) = Placed::of(slice, opened.next().expect("one a slice"));
                    assert_eq!(placed.name(), (*table, *index), "they are in the order of the changes");
                    changes.push(version::Change::Add { spot, placed });
                }
                Change::SliceMoved { table, index, level, run } => {
                    let spot = Spot { level: usize::from(*level), run: *run };
                    let ((tree, node), name) = (find(*table, *index), (*table, *index));
                    changes.push(version::Change::Move { tree, name, node, spot });
                }
                Change::TableRemoved { number } => {
                    for (index, slice) in &before.tables[number].slices {
                        let ((tree, node), name) = (found(slice), (*number, *index));
                        changes.push(version::Change::Remove { tree, name, node });
                    }
                }
                Change::SliceRemoved { table, index } => {
                    let ((tree, node), name) = (find(*table, *index), (*table, *index));
                    changes.push(version::Change::Remove { tree, name, node });
                }
                // The version holds neither settings nor logs, and only the slices of a table.
                Change::Keyspace { .. }
                | Change::KeyspaceSettings { .. }
                | Change::PartitionRule { .. }
                | Change::RetainFrom { .. }
                | Change::Log { .. }
                | Change::LogPromised { .. }
                | Change::LogRemoved { .. }
                | Change::Table { .. }
                | Change::Ids { .. }
                | Change::Flushed { .. } => {}
            }
        }
        changes
    }
}
