//! The state of a manifest: the result of all its edits.
//!
//! Invariants, kept by [`ManifestState::apply`] for every change and by [`ManifestState::check`] for every
//! edit: 1. every object that a change refers to exists, and no object is added twice; 2. no id is at or
//! above the reserved ones; 3. names of keyspaces are unique, and so are names of partitions in a keyspace;
//! 4. every table has a slice; 5. in a partition, slices of level 0 have run 0 and disjoint ranges of
//! sequence numbers, and slices of one run of a deeper level have disjoint ranges of keys; 6. in a hashed
//! keyspace, a level is a height of the trie, and the keys of a slice belong to one node; 7. no rule by
//! ranges of keys divides a hashed keyspace.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::{FileKind, FileName, KEY_GREATEST, KeyspaceId, PartitionId, Sequence, TreeId};
use crate::base::place::{HEIGHT_MAX, NodeId};
use crate::base::rule::Rule;
use crate::format::frames::{FramePoint, RECORDS_FROM};

use super::{KeyspaceKind, LEVEL_MAX, ManifestChange, NAME_BYTES_MAX, Settings, Slice};

/// A keyspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ManifestKeyspace {
    pub(crate) kind: KeyspaceKind,
    pub(crate) name: String,
    pub(crate) settings: Settings,
    /// `None`: the keyspace has one partition, without a name.
    pub(crate) rule: Option<Rule>,
    /// Partitions whose names come before this one are to be dropped.
    pub(crate) retained_from: Box<[u8]>,
}

/// A partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Partition {
    pub(crate) keyspace: KeyspaceId,
    /// Empty for the only partition of an unpartitioned keyspace.
    pub(crate) name: Box<[u8]>,
}

/// A log file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Log {
    pub(crate) path: u16,
    pub(crate) uid: u64,
    pub(crate) bytes: u64,
    /// Recorded end of the records, once the log is sealed and durable.
    pub(crate) recorded_end: Option<FramePoint>,
}

impl Log {
    pub(crate) fn file(&self, number: u64) -> FileName {
        FileName { kind: FileKind::Log, number, path: self.path }
    }
}

/// A table file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    pub(crate) path: u16,
    pub(crate) uid: u64,
    pub(crate) bytes: u64,
    /// Checksum over the checksums of its blocks.
    pub(crate) checksum: u32,
    /// Slices by index in the table. Never empty between edits.
    pub(crate) slices: BTreeMap<u32, Slice>,
}

impl Table {
    pub(crate) fn file(&self, number: u64) -> FileName {
        FileName { kind: FileKind::Table, number, path: self.path }
    }
}

/// A change that contradicts the state: the rule that it breaks, and the number or id of the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inconsistent {
    pub(crate) what: &'static str,
    pub(crate) number: u64,
}

type Applied = Result<(), Inconsistent>;

/// Never assigned. The names of keyspaces are kept under this id.
const NO_KEYSPACE: KeyspaceId = KeyspaceId(0);

fn broken(what: &'static str, number: u64) -> Applied {
    Err(Inconsistent { what, number })
}

/// Keyspaces, partitions, logs and tables of a store.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct ManifestState {
    pub(crate) keyspaces: BTreeMap<KeyspaceId, ManifestKeyspace>,
    pub(crate) partitions: BTreeMap<PartitionId, Partition>,
    /// Logs by number, which is the order of replay.
    pub(crate) logs: BTreeMap<u64, Log>,
    pub(crate) tables: BTreeMap<u64, Table>,
    /// No id at or above these was ever assigned; ids are reserved many at a time.
    pub(crate) next_keyspace: u32,
    pub(crate) next_partition: u32,
    /// Every write up to this sequence number is in tables.
    pub(crate) flushed: Sequence,
    /// Names in use and the ids of their objects: keyspaces under keyspace 0, partitions under their
    /// keyspace.
    names: BTreeMap<(KeyspaceId, Box<[u8]>), u32>,
    /// The slices of each partition, as (table, index).
    slices_of: BTreeMap<PartitionId, BTreeSet<(u64, u32)>>,
    /// The slices of each node of a hashed keyspace, as (table, index).
    slices_in: BTreeMap<(PartitionId, NodeId), BTreeSet<(u64, u32)>>,
    /// Partitions, nodes of hashed keyspaces, and tables changed since the last check; empty between edits.
    unchecked_partitions: BTreeSet<PartitionId>,
    unchecked_nodes: BTreeSet<(PartitionId, NodeId)>,
    unchecked_tables: BTreeSet<u64>,
    /// Upper bound on the bytes of keyspaces, partitions and tables in a snapshot.
    contents_bytes: u64,
}

fn keyspace_bytes(keyspace: &ManifestKeyspace) -> u64 {
    let retain_bytes = if keyspace.retained_from.is_empty() { 0 } else { 6 + keyspace.retained_from.len() };
    (16 + keyspace.name.len() + 12 * keyspace.settings.len() + retain_bytes) as u64
}

fn rule_bytes(rule: &Rule) -> u64 {
    match rule {
        Rule::Explicit => 6,
        Rule::Prefix(_) => 7,
        Rule::Function(function) => 11 + function.name.len() as u64,
        Rule::Ranges(bounds) => bounds.iter().fold(8, |bytes, bound| bytes + 1 + bound.len() as u64),
    }
}

fn partition_bytes(partition: &Partition) -> u64 {
    (12 + partition.name.len()) as u64
}

/// Bytes of a table without its slices.
const TABLE_BYTES: u64 = 31;

fn slice_bytes(slice: &Slice) -> u64 {
    let max_bytes = slice.max_key.as_ref().map_or(0, |max_key| max_key.len());
    (104 + slice.min_key.len() + max_bytes) as u64
}

impl ManifestState {
    /// Applies one change. After an error the state is partly changed and must be discarded.
    pub(crate) fn apply(&mut self, change: &ManifestChange) -> Applied {
        match change {
            ManifestChange::Keyspace { id, kind, name, settings } => {
                let (name, settings) = (name.clone(), settings.clone());
                self.add_keyspace(
                    *id,
                    ManifestKeyspace {
                        kind: *kind,
                        name,
                        settings,
                        rule: None,
                        retained_from: Box::default(),
                    },
                )
            }
            ManifestChange::KeyspaceSettings { id, settings } => match self.keyspaces.get_mut(id) {
                Some(keyspace) => {
                    self.contents_bytes -= keyspace_bytes(keyspace);
                    keyspace.settings.clone_from(settings);
                    self.contents_bytes += keyspace_bytes(keyspace);
                    Ok(())
                }
                None => broken("settings of an unknown keyspace", id.0.into()),
            },
            ManifestChange::DropKeyspace { id } => self.drop_keyspace(*id),
            ManifestChange::Partition { id, keyspace, name } => {
                self.add_partition(*id, Partition { keyspace: *keyspace, name: name.clone() })
            }
            ManifestChange::DropPartition { id } => self.drop_partition(*id),
            ManifestChange::Log { number, path, uid, bytes } => {
                self.add_log(*number, Log { path: *path, uid: *uid, bytes: *bytes, recorded_end: None })
            }
            ManifestChange::LogPromised { number, end } => self.record_log_end(*number, *end),
            ManifestChange::LogRemoved { number } => match self.logs.remove(number) {
                Some(_) => Ok(()),
                None => broken("removal of an unknown log", *number),
            },
            ManifestChange::Table { number, path, uid, bytes, checksum } => {
                let slices = BTreeMap::new();
                let table = Table { path: *path, uid: *uid, bytes: *bytes, checksum: *checksum, slices };
                self.add_table(*number, table)
            }
            ManifestChange::Slice { table, index, slice } => self.add_slice(*table, *index, slice),
            ManifestChange::SliceMoved { table, index, level, run } => {
                self.move_slice(*table, *index, (*level, *run))
            }
            ManifestChange::SliceRemoved { table, index } => self.remove_slice(*table, *index),
            ManifestChange::TableRemoved { number } => self.remove_table(*number),
            ManifestChange::Ids { next_keyspace, next_partition } => {
                if *next_keyspace < self.next_keyspace || *next_partition < self.next_partition {
                    return broken("reserved ids that go back", (*next_partition).into());
                }
                (self.next_keyspace, self.next_partition) = (*next_keyspace, *next_partition);
                Ok(())
            }
            ManifestChange::Flushed { sequence } => {
                if *sequence < self.flushed {
                    return broken("a flushed sequence that goes back", *sequence);
                }
                self.flushed = *sequence;
                Ok(())
            }
            ManifestChange::PartitionRule { keyspace, rule } => self.set_rule(*keyspace, rule),
            ManifestChange::RetainFrom { keyspace, name } => self.retain_from(*keyspace, name),
        }
    }

    /// Checks the invariants that hold between edits; called after each edit. Cost: the slices of the
    /// partitions that the edit changed.
    pub(crate) fn check(&mut self) -> Applied {
        for number in std::mem::take(&mut self.unchecked_tables) {
            if self.tables.get(&number).is_some_and(|table| table.slices.is_empty()) {
                return broken("a table without slices", number);
            }
        }
        for partition in std::mem::take(&mut self.unchecked_partitions) {
            #[cfg(test)]
            crate::base::visits::count();
            check_runs(partition, self.slices(partition).map(|(_, _, slice)| slice))?;
        }
        for node in std::mem::take(&mut self.unchecked_nodes) {
            #[cfg(test)]
            crate::base::visits::count();
            let places = self.slices_in.get(&node).into_iter().flatten();
            check_runs(node.0, places.map(|place| self.slice_at(place)))?;
        }
        Ok(())
    }

    /// Applies one edit and checks the state. After an error the state must be discarded.
    pub(crate) fn apply_edit(&mut self, changes: &[ManifestChange]) -> Applied {
        changes.iter().try_for_each(|change| self.apply(change))?;
        self.check()
    }

    /// The partitions of a keyspace, in the order of their names.
    pub(crate) fn partitions_of(&self, keyspace: KeyspaceId) -> impl Iterator<Item = PartitionId> {
        let first = (keyspace, Box::default());
        let of_it = self.names.range(first..).take_while(move |((of, _), _)| *of == keyspace);
        of_it.map(|(_, id)| PartitionId(*id))
    }

    /// Whether a keyspace has a partition of that name.
    pub(crate) fn has_name(&self, keyspace: KeyspaceId, name: &[u8]) -> bool {
        self.names.contains_key(&(keyspace, name.into()))
    }

    /// Removes partitions without slices, from id `from` on. Their items are not in tables yet.
    pub(crate) fn forget_empty_partitions(&mut self, from: PartitionId) {
        let later = self.partitions.range(from..).map(|(id, _)| *id);
        let empty: Vec<PartitionId> = later.filter(|id| self.slices(*id).next().is_none()).collect();
        for id in empty {
            self.drop_partition(id).expect("it is there");
        }
    }

    /// Every tree, ordered by id.
    pub(crate) fn trees(&self) -> impl Iterator<Item = TreeId> {
        self.partitions.iter().map(|(id, one)| TreeId { keyspace: one.keyspace, partition: *id })
    }

    pub(crate) fn has_tree(&self, tree: TreeId) -> bool {
        self.partitions.get(&tree.partition).is_some_and(|one| one.keyspace == tree.keyspace)
    }

    /// The slices of one partition, as (table, index, slice).
    pub(crate) fn slices(&self, partition: PartitionId) -> impl Iterator<Item = (u64, u32, &Slice)> {
        let places = self.slices_of.get(&partition).into_iter().flatten();
        places.map(|place| (place.0, place.1, self.slice_at(place)))
    }

    fn slice_at(&self, (table, index): &(u64, u32)) -> &Slice {
        let slice = self.tables.get(table).and_then(|table| table.slices.get(index));
        slice.expect("places are those of slices that are there")
    }

    /// Changes that turn an empty state into this one. Equal states give equal changes.
    pub(crate) fn snapshot(&self) -> Vec<ManifestChange> {
        let mut changes = vec![
            ManifestChange::Ids { next_keyspace: self.next_keyspace, next_partition: self.next_partition },
            ManifestChange::Flushed { sequence: self.flushed },
        ];
        for (id, keyspace) in &self.keyspaces {
            let ManifestKeyspace { kind, name, settings, rule, retained_from } = keyspace.clone();
            changes.push(ManifestChange::Keyspace { id: *id, kind, name, settings });
            changes.extend(rule.map(|rule| ManifestChange::PartitionRule { keyspace: *id, rule }));
            if !retained_from.is_empty() {
                changes.push(ManifestChange::RetainFrom { keyspace: *id, name: retained_from });
            }
        }
        changes.extend(self.partitions.iter().map(|(id, partition)| ManifestChange::Partition {
            id: *id,
            keyspace: partition.keyspace,
            name: partition.name.clone(),
        }));
        for (number, log) in &self.logs {
            let number = *number;
            changes.push(ManifestChange::Log { number, path: log.path, uid: log.uid, bytes: log.bytes });
            changes.extend(log.recorded_end.map(|end| ManifestChange::LogPromised { number, end }));
        }
        for (number, table) in &self.tables {
            let Table { path, uid, bytes, checksum, slices } = table;
            let (path, uid, bytes, checksum) = (*path, *uid, *bytes, *checksum);
            changes.push(ManifestChange::Table { number: *number, path, uid, bytes, checksum });
            changes.extend(slices.iter().map(|(index, slice)| ManifestChange::Slice {
                table: *number,
                index: *index,
                slice: slice.clone(),
            }));
        }
        changes
    }

    /// Upper bound on the bytes of the snapshot's encoding, and at most about twice as many.
    pub(crate) fn snapshot_bytes_max(&self) -> u64 {
        32 + self.contents_bytes + 52 * self.logs.len() as u64
    }

    fn add_keyspace(&mut self, id: KeyspaceId, keyspace: ManifestKeyspace) -> Applied {
        if id.number() == 0 || id.number() >= self.next_keyspace {
            return broken("a keyspace whose id was not reserved", id.0.into());
        }
        if !(1..=NAME_BYTES_MAX).contains(&keyspace.name.len()) {
            return broken("the length of a keyspace's name", id.0.into());
        }
        if self.keyspaces.contains_key(&id) {
            return broken("a keyspace that is there already", id.0.into());
        }
        if self.names.insert((NO_KEYSPACE, keyspace.name.as_bytes().into()), id.0).is_some() {
            return broken("a keyspace with the name of another", id.0.into());
        }
        self.contents_bytes += keyspace_bytes(&keyspace);
        self.keyspaces.insert(id, keyspace);
        Ok(())
    }

    /// Whether the partition of a key follows from the key.
    pub(crate) fn is_divided_by_keys(&self, id: KeyspaceId) -> bool {
        self.keyspaces.get(&id).and_then(|one| one.rule.as_ref()).is_some_and(Rule::is_by_key)
    }

    fn set_rule(&mut self, id: KeyspaceId, rule: &Rule) -> Applied {
        let has_partition = self.partitions_of(id).next().is_some();
        let Some(keyspace) = self.keyspaces.get_mut(&id) else {
            return broken("a rule of an unknown keyspace", id.0.into());
        };
        if keyspace.rule.is_some() || has_partition {
            return broken("a rule of a keyspace that is divided already", id.0.into());
        }
        if keyspace.kind == KeyspaceKind::Hashed && rule.needs_order() {
            return broken("a rule by ranges of keys in a hashed keyspace", id.0.into());
        }
        self.contents_bytes += rule_bytes(rule);
        keyspace.rule = Some(rule.clone());
        Ok(())
    }

    fn retain_from(&mut self, id: KeyspaceId, name: &[u8]) -> Applied {
        let Some(keyspace) = self.keyspaces.get_mut(&id) else {
            return broken("a bound for partitions of an unknown keyspace", id.0.into());
        };
        if !keyspace.rule.as_ref().is_some_and(|rule| rule.has_name(name)) {
            return broken("a bound for partitions that its rule does not give", id.0.into());
        }
        self.contents_bytes -= keyspace_bytes(keyspace);
        keyspace.retained_from = name.into();
        self.contents_bytes += keyspace_bytes(keyspace);
        Ok(())
    }

    fn drop_keyspace(&mut self, id: KeyspaceId) -> Applied {
        let Some(keyspace) = self.keyspaces.remove(&id) else {
            return broken("a drop of an unknown keyspace", id.0.into());
        };
        self.contents_bytes -= keyspace_bytes(&keyspace) + keyspace.rule.as_ref().map_or(0, rule_bytes);
        self.names.remove(&(NO_KEYSPACE, keyspace.name.into_bytes().into()));
        let of_it: Vec<PartitionId> = self.partitions_of(id).collect();
        of_it.into_iter().try_for_each(|partition| self.drop_partition(partition))
    }

    fn add_partition(&mut self, id: PartitionId, partition: Partition) -> Applied {
        if id.0 == 0 || id.0 >= self.next_partition {
            return broken("a partition whose id was not reserved", id.0.into());
        }
        let Some(keyspace) = self.keyspaces.get(&partition.keyspace) else {
            return broken("a partition of an unknown keyspace", id.0.into());
        };
        if keyspace.rule.as_ref().is_some_and(|rule| !rule.has_name(&partition.name)) {
            // Reads would look for the keys of this partition in another one.
            return broken("a partition with a name that its rule does not give", id.0.into());
        }
        if self.partitions.contains_key(&id) {
            return broken("a partition that is there already", id.0.into());
        }
        if self.names.insert((partition.keyspace, partition.name.clone()), id.0).is_some() {
            return broken("a partition with the name of another", id.0.into());
        }
        self.contents_bytes += partition_bytes(&partition);
        self.partitions.insert(id, partition);
        Ok(())
    }

    fn drop_partition(&mut self, id: PartitionId) -> Applied {
        let Some(partition) = self.partitions.remove(&id) else {
            return broken("a drop of an unknown partition", id.0.into());
        };
        self.contents_bytes -= partition_bytes(&partition);
        self.names.remove(&(partition.keyspace, partition.name));
        self.unchecked_partitions.remove(&id);
        let of_it = (id, NodeId::ROOT)..=(id, NodeId::GREATEST);
        let nodes: Vec<_> = self.slices_in.range(of_it.clone()).map(|(node, _)| *node).collect();
        nodes.iter().for_each(|node| _ = self.slices_in.remove(node));
        self.unchecked_nodes.retain(|node| !of_it.contains(node));
        for (table, index) in self.slices_of.remove(&id).unwrap_or_default() {
            self.forget_slice(table, index);
        }
        Ok(())
    }

    fn add_log(&mut self, number: u64, log: Log) -> Applied {
        if number == 0 || self.logs.contains_key(&number) || self.tables.contains_key(&number) {
            return broken("a log whose number is taken", number);
        }
        self.logs.insert(number, log);
        Ok(())
    }

    fn record_log_end(&mut self, number: u64, end: FramePoint) -> Applied {
        let Some(log) = self.logs.get_mut(&number) else {
            return broken("a promise for an unknown log", number);
        };
        if end.bytes < RECORDS_FROM || end.bytes > log.bytes || !end.bytes.is_multiple_of(8) {
            return broken("a promise outside of the log", number);
        }
        if log.recorded_end.is_some_and(|recorded_end| recorded_end != end) {
            return broken("a second promise for a log", number);
        }
        log.recorded_end = Some(end);
        Ok(())
    }

    fn add_table(&mut self, number: u64, table: Table) -> Applied {
        if number == 0 || self.logs.contains_key(&number) || self.tables.contains_key(&number) {
            return broken("a table whose number is taken", number);
        }
        self.contents_bytes += TABLE_BYTES + table.slices.values().map(slice_bytes).sum::<u64>();
        self.tables.insert(number, table);
        self.unchecked_tables.insert(number);
        Ok(())
    }

    fn add_slice(&mut self, number: u64, index: u32, slice: &Slice) -> Applied {
        let partition = self.partitions.get(&slice.partition);
        if partition.is_none_or(|partition| partition.keyspace != slice.keyspace) {
            return broken("a slice of an unknown partition", slice.partition.0.into());
        }
        if slice.level > LEVEL_MAX {
            return broken("a slice on a level that no tree has, of table", number);
        }
        let Some(table) = self.tables.get_mut(&number) else {
            return broken("a slice of an unknown table", number);
        };
        if table.slices.contains_key(&index) {
            return broken("a slice that is there already in table", number);
        }
        self.contents_bytes += slice_bytes(slice);
        table.slices.insert(index, slice.clone());
        self.link(slice, (number, index))
    }

    /// Adds a slice to the indexes by partition and by node.
    fn link(&mut self, slice: &Slice, place: (u64, u32)) -> Applied {
        self.slices_of.entry(slice.partition).or_default().insert(place);
        let Some(node) = slice.node() else {
            self.unchecked_partitions.insert(slice.partition);
            return Ok(());
        };
        if node.height > HEIGHT_MAX || slice.max_node() != Some(node) {
            return broken("keys of more than one node in a slice of table", place.0);
        }
        self.slices_in.entry((slice.partition, node)).or_default().insert(place);
        self.unchecked_nodes.insert((slice.partition, node));
        Ok(())
    }

    fn unlink(&mut self, slice: &Slice, place: (u64, u32)) {
        if let Some(places) = self.slices_of.get_mut(&slice.partition) {
            places.remove(&place);
            if places.is_empty() {
                self.slices_of.remove(&slice.partition);
            }
        }
        let Some(node) = slice.node().map(|node| (slice.partition, node)) else { return };
        if let Some(places) = self.slices_in.get_mut(&node) {
            places.remove(&place);
            if places.is_empty() {
                self.slices_in.remove(&node);
            }
        }
    }

    fn move_slice(&mut self, number: u64, index: u32, (level, run): (u8, u64)) -> Applied {
        let Some(slice) = self.tables.get_mut(&number).and_then(|table| table.slices.get_mut(&index)) else {
            return broken("a move of an unknown slice of table", number);
        };
        if level > LEVEL_MAX {
            return broken("a move to a level that no tree has, of a slice of table", number);
        }
        let before = slice.clone();
        (slice.level, slice.run) = (level, run);
        let after = slice.clone();
        self.unlink(&before, (number, index));
        self.link(&after, (number, index))
    }

    fn remove_slice(&mut self, number: u64, index: u32) -> Applied {
        let Some(slice) = self.tables.get(&number).and_then(|table| table.slices.get(&index)) else {
            return broken("removal of an unknown slice of table", number);
        };
        let slice = slice.clone();
        self.unlink(&slice, (number, index));
        self.forget_slice(number, index);
        Ok(())
    }

    fn remove_table(&mut self, number: u64) -> Applied {
        let Some(table) = self.tables.remove(&number) else {
            return broken("removal of an unknown table", number);
        };
        self.contents_bytes -= TABLE_BYTES + table.slices.values().map(slice_bytes).sum::<u64>();
        for (index, slice) in table.slices {
            self.unlink(&slice, (number, index));
        }
        Ok(())
    }

    /// Removes a slice from its table, and the table with its last slice.
    fn forget_slice(&mut self, number: u64, index: u32) {
        if let Some(table) = self.tables.get_mut(&number) {
            self.contents_bytes -= table.slices.remove(&index).as_ref().map_or(0, slice_bytes);
            if table.slices.is_empty() && self.tables.remove(&number).is_some() {
                self.contents_bytes -= TABLE_BYTES;
            }
        }
    }
}

/// Checks the runs of a partition or of one of its nodes.
fn check_runs<'s>(partition: PartitionId, slices: impl Iterator<Item = &'s Slice>) -> Applied {
    let mut by_sequence: Vec<(Sequence, Sequence)> = Vec::new();
    let mut by_key = Vec::new();
    for slice in slices {
        if slice.level == 0 {
            if slice.run != 0 {
                return broken("a numbered run in level 0 of partition", partition.0.into());
            }
            by_sequence.push((slice.first_sequence, slice.last_sequence));
        } else {
            let max_key = slice.max_key.as_deref().unwrap_or(&KEY_GREATEST);
            by_key.push(((slice.level, slice.run), &*slice.min_key, max_key));
        }
    }
    by_sequence.sort_unstable();
    by_key.sort_unstable();
    if by_sequence.windows(2).any(|pair| pair[0].1 >= pair[1].0) {
        return broken("overlapping sequences in level 0 of partition", partition.0.into());
    }
    if by_key.windows(2).any(|pair| pair[0].0 == pair[1].0 && pair[0].2 >= pair[1].1) {
        return broken("overlapping keys in one run of partition", partition.0.into());
    }
    Ok(())
}
