//! A table of keyspaces or partitions with their sizes, for people or as JSON.

use comfy_table::Table;
use serde_json::{Map, Value};
use trine::{KeyspaceStats, PartitioningInfo};
use trine_workload::failure::Failure;
use trine_workload::screen::{Screen, table};
use trine_workload::text::{self, Spelling, bytes, count};

use crate::arguments::Global;
use crate::rule;

/// Headings of the sizes.
const SIZES: [&str; 4] = ["keys, about", "keys and values", "tables", "on disk"];

/// The collected rows.
pub(crate) struct Listing {
    /// The line above the rows.
    head: Option<String>,
    rows: Table,
    objects: Vec<Value>,
}

impl Listing {
    pub(crate) fn of_keyspaces() -> Listing {
        let [keys, key_values, tables, on_disk] = SIZES;
        let rows = table(["keyspace", "kind", keys, key_values, tables, on_disk, "partitions"]);
        Listing { head: None, rows, objects: Vec::new() }
    }

    /// A listing of partitions, with a line above them.
    pub(crate) fn of_partitions(head: String) -> Listing {
        let [keys, key_values, tables, on_disk] = SIZES;
        let rows = table(["partition", keys, key_values, tables, on_disk]);
        Listing { head: Some(head), rows, objects: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, (name, spelling): (&[u8], Spelling), keys: u64, stats: &KeyspaceStats) {
        let object = object((name, spelling), keys, stats);
        self.objects.push(Value::Object(object));
        self.rows.add_row(cells(&partition_cell(name, spelling), keys, stats));
    }

    /// Adds a keyspace; if it is partitioned, with its rule and the number of partitions.
    pub(crate) fn add_keyspace(
        &mut self,
        keys: u64,
        stats: &KeyspaceStats,
        divided: Option<(&PartitioningInfo, u64)>,
    ) {
        let name = stats.name.as_bytes();
        let mut object = object((name, Spelling::Text), keys, stats);
        object.insert("kind".to_owned(), kind(stats).into());
        if let Some((rule, partitions)) = divided {
            object.insert("partitions".to_owned(), partitions.into());
            object.insert("partition_by".to_owned(), rule::text(rule).into());
        }
        self.objects.push(Value::Object(object));
        let mut cells = cells(&text::escaped(name), keys, stats).to_vec();
        cells.insert(1, kind(stats).to_owned());
        cells.push(partitions_cell(divided));
        self.rows.add_row(cells);
    }

    /// Shows all rows.
    pub(crate) fn show(self, global: &Global) -> Result<(), Failure> {
        let mut screen = Screen::new();
        if global.json {
            screen.json(&Value::Array(self.objects))?;
            return screen.finish();
        }
        match self.head {
            Some(head) => screen.line(head)?,
            None if self.objects.is_empty() => screen.line("no keyspaces")?,
            None => {}
        }
        if !self.objects.is_empty() {
            screen.line(self.rows)?;
        }
        screen.finish()
    }
}

/// The name of a keyspace's kind.
pub(crate) fn kind(stats: &KeyspaceStats) -> &'static str {
    if stats.is_hashed { "hashed" } else { "ordered" }
}

/// A partition's name in a table.
pub(crate) fn partition_cell(name: &[u8], spelling: Spelling) -> String {
    if name.is_empty() { "\"\"".to_owned() } else { spelling.line(name) }
}

/// The number of partitions and their rule in a table.
pub(crate) fn partitions_cell(divided: Option<(&PartitioningInfo, u64)>) -> String {
    divided.map_or_else(String::new, |(rule, number)| format!("{}, {}", count(number), rule::short(rule)))
}

fn object((name, spelling): (&[u8], Spelling), keys: u64, stats: &KeyspaceStats) -> Map<String, Value> {
    let mut object = Map::new();
    text::add_field(&mut object, "name", name, spelling);
    let sizes = [
        ("approximate_keys", keys),
        ("key_value_bytes", stats.key_value_bytes),
        ("tables", stats.tables),
        ("table_bytes", stats.table_bytes),
    ];
    for (field, value) in sizes {
        object.insert(field.to_owned(), value.into());
    }
    object
}

fn cells(name: &str, keys: u64, stats: &KeyspaceStats) -> [String; 5] {
    let [tables, on_disk] = [count(stats.tables), bytes(stats.table_bytes)];
    [name.to_owned(), count(keys), bytes(stats.key_value_bytes), tables, on_disk]
}
