//! A table of keyspaces or partitions with their sizes, for people or as JSON.

use comfy_table::Table;
use serde_json::{Map, Value};
use trine::KeyspaceStats;
use trine_workload::failure::Failure;
use trine_workload::screen::{Screen, table};
use trine_workload::text::{self, Spelling, bytes, count};

use crate::arguments::Global;

/// Rows on their way to the screen.
pub(crate) struct Listing {
    rows: Table,
    objects: Vec<Value>,
}

impl Listing {
    /// `what` is listed: the heading of the first column.
    pub(crate) fn of(what: &str) -> Listing {
        let rows = table([what, "keys, about", "keys and values", "tables", "on disk"]);
        Listing { rows, objects: Vec::new() }
    }

    /// Adds a row; its JSON object also has the fields in `more`.
    pub(crate) fn add(
        &mut self,
        (name, spelling): (&[u8], Spelling),
        keys: u64,
        stats: &KeyspaceStats,
        more: &[(&str, u64)],
    ) {
        let mut object = Map::new();
        text::add_field(&mut object, "name", name, spelling);
        let sizes = [
            ("approximate_keys", keys),
            ("key_value_bytes", stats.key_value_bytes),
            ("tables", stats.tables),
            ("table_bytes", stats.table_bytes),
        ];
        for (field, value) in sizes.iter().chain(more) {
            object.insert((*field).to_owned(), (*value).into());
        }
        self.objects.push(Value::Object(object));
        let name = match spelling {
            Spelling::Text => text::escaped(name),
            Spelling::Hex => spelling.line(name).to_string(),
        };
        let [tables, on_disk] = [count(stats.tables), bytes(stats.table_bytes)];
        self.rows.add_row([name, count(keys), bytes(stats.key_value_bytes), tables, on_disk]);
    }

    /// Shows all rows; `none` if there are none.
    pub(crate) fn show(self, global: &Global, none: &str) -> Result<(), Failure> {
        let mut screen = Screen::new();
        if global.json {
            screen.json(&Value::Array(self.objects))?;
        } else if self.objects.is_empty() {
            screen.line(none)?;
        } else {
            screen.line(self.rows)?;
        }
        screen.finish()
    }
}
