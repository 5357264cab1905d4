//! New tables brought into the store: opened, their filters and fences loaded, named in an edit.

use crate::base::error::Result;
use crate::base::id::{FileName, Sequence};
use crate::base::sync::Arc;
use crate::format::manifest::{Change, Slice};
use crate::levels::version::{self, Placed};
use crate::table::{Table, TableFile, TableSummary};

use super::Store;
use super::catalog::{Catalog, Edit};

impl Store {
    /// Opens finished tables, with as much of filters and fences in memory as the budget allows.
    pub(super) fn open_tables(&self, summary: &TableSummary) -> Result<Vec<Arc<Table>>> {
        let storage = &self.env.storage;
        let tables =
            TableFile::open(storage, summary.identity, summary.bytes, summary.checksum, &self.discarded)?;
        for table in &tables {
            table.load_pages(&**storage, &self.pages)?;
        }
        Ok(tables)
    }

    /// Adds to `edit`, of the catalog as it is now, what puts a new table's slices on `level`. Slices of
    /// trees dropped meanwhile are left out.
    pub(super) fn add_tables(
        &self,
        catalog: &Catalog,
        edit: &mut Edit<'_>,
        summary: &TableSummary,
        tables: &[Arc<Table>],
        level: usize,
        (first_sequence, last_sequence): (Sequence, Sequence),
    ) {
        let FileName { number, path, .. } = summary.identity.file;
        let live: Vec<&Arc<Table>> = tables.iter().filter(|table| catalog.has_tree(table.tree())).collect();
        if live.is_empty() {
            tables.iter().for_each(|table| table.file().mark_obsolete());
            return;
        }
        edit.changes.push(Change::Table {
            number,
            path,
            uid: summary.identity.uid,
            bytes: summary.bytes,
            checksum: summary.checksum,
        });
        for table in live {
            let slice = Slice {
                keyspace: table.tree().keyspace,
                partition: table.tree().partition,
                level: u8::try_from(level).expect("a level fits a byte"),
                items: table.items(),
                tombstones: table.tombstones(),
                key_value_bytes: table.key_value_bytes(),
                first_sequence,
                last_sequence,
                min_key: table.min().into(),
                max_key: table.max().into(),
            };
            edit.changes.push(Change::Slice { table: number, index: table.index() as u32, slice });
            let placed = Placed { table: Arc::clone(table), first_sequence, last_sequence };
            edit.version.push(version::Change::Add { level, placed });
        }
    }
}
