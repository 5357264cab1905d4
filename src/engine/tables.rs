//! New tables brought into the store: opened, their filters and fences pinned, named in an edit.
//!
//! What is pinned stays until its table goes; what found no room is asked for like data, and looked after
//! again whenever tables have changed: fences first, then filters from the upper levels down.

use crate::base::error::{Error, Result};
use crate::base::id::{FileName, Sequence};
use crate::base::sync::Arc;
use crate::format::manifest::{Change, Slice};
use crate::io::storage::Storage;
use crate::levels::version::{self, Placed, Spot, Tree};
use crate::table::{Otherwise, PageBudget, PageRank, Table, TableFile, TableSummary};

use super::Store;
use super::catalog::{Catalog, Edit};

/// Pins what is not pinned yet of some trees and finds room, in the order of use. What failed is told to
/// `failed`, which decides whether that ends it.
pub(super) fn pin_pages<'t>(
    storage: &dyn Storage,
    pages: &Arc<PageBudget>,
    trees: impl Iterator<Item = &'t Tree>,
    mut failed: impl FnMut(Error) -> Result<()>,
) -> Result<()> {
    let mut tables: Vec<(usize, PageRank, &Table)> = Vec::new();
    for tree in trees {
        tables.extend(tree.tables().map(|(level, placed)| {
            let is_last = level + 1 == tree.levels().len() && level > 0;
            let rank = if is_last { PageRank::LastFilters } else { PageRank::UpperFilters };
            (level, rank, &*placed.table)
        }));
    }
    tables.iter().for_each(|(_, _, table)| table.account(pages));
    tables.sort_by_key(|(level, ..)| *level);
    let fences = tables.iter().map(|(_, _, table)| (PageRank::Fences, *table));
    let filters = |wanted| {
        let ranked = tables.iter().filter(move |(_, rank, _)| *rank == wanted);
        ranked.map(|(_, rank, table)| (*rank, *table))
    };
    let filters = filters(PageRank::UpperFilters).chain(filters(PageRank::LastFilters));
    for (rank, table) in fences.chain(filters) {
        table.load_pages(storage, pages, rank, Otherwise::Leave).or_else(&mut failed)?;
    }
    Ok(())
}

/// Where new tables' items come from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// First and last sequence number that they may have.
    pub(super) sequences: (Sequence, Sequence),
    /// When the oldest tombstone among them was written at the latest, in seconds since 1970.
    pub(super) oldest_tombstone_s: u64,
}

impl Store {
    /// Opens finished tables, with as much of filters and fences in memory as the budget allows.
    pub(super) fn open_tables(
        &self,
        summary: &TableSummary,
        filters: PageRank,
        otherwise: Otherwise,
    ) -> Result<Vec<Arc<Table>>> {
        let storage = &self.env.storage;
        let tables =
            TableFile::open(storage, summary.identity, summary.bytes, summary.checksum, &self.discarded)?;
        tables.iter().for_each(|table| table.account(&self.pages));
        for table in &tables {
            table.load_pages(&**storage, &self.pages, PageRank::Fences, otherwise)?;
            table.load_pages(&**storage, &self.pages, filters, otherwise)?;
        }
        Ok(tables)
    }

    /// Pins what found no room before, where tables that went have left some: of a few trees, others have
    /// their turn at the next call.
    pub(super) fn pin_more(&self) {
        let short = self.pages.take_short();
        if short.is_empty() {
            return;
        }
        let version = {
            let pin = self.epoch.pin();
            Arc::clone(&self.views.load(&pin).get().version)
        };
        let mut has_failed = false;
        let failed = |error| {
            log::debug!("left to be asked for: {error}");
            has_failed = true;
            Ok(())
        };
        let trees = short.iter().filter_map(|tree| version.tree(*tree));
        pin_pages(&*self.env.storage, &self.pages, trees, failed).expect("no failure ends it");
        if has_failed {
            short.iter().for_each(|tree| self.pages.note_short(*tree));
        }
    }

    /// Adds to `edit`, of the catalog as it is now, what puts a new table's slices into a run. Slices of
    /// trees dropped meanwhile are left out.
    pub(super) fn add_tables(
        &self,
        catalog: &Catalog,
        edit: &mut Edit<'_>,
        summary: &TableSummary,
        tables: &[Arc<Table>],
        spot: Spot,
        origin: Origin,
    ) {
        let Origin { sequences: (first_sequence, last_sequence), oldest_tombstone_s } = origin;
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
            let tombstones_dense =
                summary.slices.get(table.index()).map_or(0, |slice| slice.tombstones_dense);
            let has_tombstones = table.tombstones() > 0 || !table.ranges().is_empty();
            let oldest_tombstone_s = if has_tombstones { oldest_tombstone_s } else { 0 };
            let slice = Slice {
                keyspace: table.tree().keyspace,
                partition: table.tree().partition,
                level: u8::try_from(spot.level).expect("a level fits a byte"),
                run: spot.run,
                items: table.items(),
                tombstones: table.tombstones(),
                oldest_tombstone_s,
                tombstones_dense,
                key_value_bytes: table.key_value_bytes(),
                first_sequence,
                last_sequence,
                min_key: table.min().into(),
                max_key: table.bounded_max().map(Box::from),
            };
            edit.changes.push(Change::Slice { table: number, index: table.index() as u32, slice });
            let placed = Placed {
                table: Arc::clone(table),
                first_sequence,
                last_sequence,
                oldest_tombstone_s,
                tombstones_dense,
            };
            edit.version.push(version::Change::Add { spot, placed });
        }
    }
}
