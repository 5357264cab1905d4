//! Statistics of partitions: the largest of each keyspace, or all.

use comfy_table::Table;
use serde_json::{Map, Value};
use trine::{Db, KeyspaceStats, PartitioningInfo};
use trine_workload::failure::Failure;
use trine_workload::screen::table;
use trine_workload::text::{self, Spelling, bytes, count};

use crate::divided::{Divided, PartitionSize};
use crate::listing::{partition_cell, partitions_cell};
use crate::rule;

use super::keyspace_to_json;

/// The partitions of a keyspace that are shown by default.
const LARGEST: usize = 5;

/// The partitions of one keyspace.
pub(super) struct KeyspacePartitions {
    rule: PartitioningInfo,
    number: u64,
    /// In the order of their names, or by size, largest first.
    shown: Vec<PartitionSize>,
}

/// The extent of the listing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Largest,
    All,
}

impl KeyspacePartitions {
    /// The partitions of each of these keyspaces; `None` for one that is not partitioned.
    pub(super) fn of_all(
        db: &Db,
        keyspaces: &[KeyspaceStats],
        extent: Extent,
    ) -> Result<Vec<Option<KeyspacePartitions>>, Failure> {
        let infos = db.keyspaces();
        let is_divided = |name: &str| infos.iter().any(|one| one.name == name && one.partitioning.is_some());
        let of = |one: &KeyspaceStats| match is_divided(&one.name) {
            true => KeyspacePartitions::of(db, &one.name, extent).map(Some),
            false => Ok(None),
        };
        keyspaces.iter().map(of).collect()
    }

    fn of(db: &Db, name: &str, extent: Extent) -> Result<KeyspacePartitions, Failure> {
        let (divided, rule) = Divided::find(db, name)?;
        let mut shown = divided.sizes()?;
        let number = shown.len() as u64;
        if extent == Extent::Largest {
            // By table bytes first; the stable sort keeps the order of names.
            shown.sort_by_key(|one| std::cmp::Reverse((one.stats.table_bytes, one.stats.key_value_bytes)));
            shown.truncate(LARGEST);
        }
        Ok(KeyspacePartitions { rule, number, shown })
    }

    /// The number and the rule, for the table of keyspaces.
    pub(super) fn cell(&self) -> String {
        partitions_cell(Some((&self.rule, self.number)))
    }

    /// Adds the number and the rule to the JSON of the keyspace, and all partitions if requested.
    pub(super) fn add_to(&self, keyspace: &mut Value, extent: Extent) {
        keyspace["partitions"] = self.number.into();
        keyspace["partition_by"] = rule::text(&self.rule).into();
        if extent == Extent::All {
            keyspace["partition_stats"] = self.shown.iter().map(partition_to_json).collect();
        }
    }
}

/// As for a keyspace, but with the partition's name only.
fn partition_to_json(one: &PartitionSize) -> Value {
    let mut object = Map::new();
    text::add_field(&mut object, "name", &one.name, Spelling::Text);
    object.insert("approximate_keys".to_owned(), one.approximate_keys.into());
    if let Value::Object(rest) = keyspace_to_json(&one.stats) {
        object.extend(rest.into_iter().filter(|(field, _)| field != "name"));
    }
    Value::Object(object)
}

/// Title and table; `None` if no keyspace has a partition.
pub(super) fn partitions(
    keyspaces: &[KeyspaceStats],
    partitions: &[Option<KeyspacePartitions>],
    extent: Extent,
) -> Option<(&'static str, Table)> {
    let title = if extent == Extent::All { "Partitions" } else { "Largest partitions" };
    let mut table = table(["keyspace", "partition", "items", "keys and values", "in tables", "tables"]);
    let of_all = keyspaces.iter().zip(partitions);
    for (keyspace, one) in
        of_all.flat_map(|(keyspace, of)| of.iter().flat_map(|of| &of.shown).map(move |one| (keyspace, one)))
    {
        table.add_row([
            text::escaped(keyspace.name.as_bytes()),
            partition_cell(&one.name, Spelling::Text),
            count(one.stats.items),
            bytes(one.stats.key_value_bytes),
            bytes(one.stats.table_bytes),
            count(one.stats.tables),
        ]);
    }
    partitions.iter().flatten().any(|of| !of.shown.is_empty()).then_some((title, table))
}
