//! New tables brought into the store: opened, their filters and fences pinned, named in an edit.
//!
//! Pinned pages stay until their table goes. Pages that found no room are read on demand like data. Room for
//! them is looked for again whenever tables have changed or left memory: for fences first, then for filters
//! from the upper levels down.

use crate::base::error::{Error, Result};
use crate::base::id::TreeId;
use crate::base::sync::Arc;
use crate::io::storage::Storage;
use crate::levels::version::{Spot, Tree};
use crate::table::{BuiltTable, OpenWith, Otherwise, PageBudget, PageRank, TableReader, load_pages};

use super::Publisher;
use crate::engine::publish::catalog::Catalog;
use crate::engine::publish::edit::{Edit, Origin};

/// Most bytes of fence pages that are made into sketches in one turn, some 60 ms long.
const SKETCHED_BYTES_MAX: u64 = 4 << 20;

/// Pins those pages of some trees that are not pinned yet and find room, in the order of use. Errors go to
/// `failed`, which decides whether pinning stops.
pub(in crate::engine) fn pin_pages<'t>(
    storage: &Arc<dyn Storage>,
    (pages, sketched_bytes_max): (&Arc<PageBudget>, u64),
    trees: impl Iterator<Item = &'t Tree>,
    failed: impl FnMut(Error) -> Result<()>,
) -> Result<()> {
    let mut tables: Vec<(usize, [PageRank; 2], &Arc<TableReader>)> = Vec::new();
    for tree in trees {
        tables.extend(tree.tables().map(|(level, placed)| {
            let is_last = level + 1 == tree.level_count() && level > 0;
            let filters = if is_last { PageRank::LastFilters } else { PageRank::UpperFilters };
            (level, [fences_of(tree, level), filters], &placed.table)
        }));
    }
    tables.iter().for_each(|(_, _, table)| table.account(pages));
    tables.sort_by_key(|(level, ..)| *level);
    let fences = tables.iter().map(|(_, [fences, _], table)| (*fences, Arc::clone(table)));
    let filters = |wanted| {
        let ranked = tables.iter().filter(move |(_, [_, filters], _)| *filters == wanted);
        ranked.map(move |(_, _, table)| (wanted, Arc::clone(table)))
    };
    let filters = filters(PageRank::UpperFilters).chain(filters(PageRank::LastFilters));
    load_pages(storage, pages, sketched_bytes_max, fences.chain(filters), failed)
}

/// The rank of the fences of a level, or of nodes of a height.
pub(in crate::engine) fn fences_of(tree: &Tree, level: usize) -> PageRank {
    if tree.trie().is_some() && level > 0 { PageRank::NodeFences } else { PageRank::Fences }
}

impl Publisher {
    /// How built tables are opened: with as much of filters and fences in memory as the budget allows.
    pub(in crate::engine) fn opening(&self, filters: PageRank, otherwise: Otherwise) -> OpenWith {
        let (pages, owner) = (Arc::clone(&self.pages), self.owner.clone());
        OpenWith { pages, fences: PageRank::Fences, filters, otherwise, owner }
    }

    /// Pins pages that found no room before, where removed tables have left some. A call covers a few trees;
    /// other trees have their turn at the next call.
    pub(in crate::engine) fn pin_more(&self) {
        self.pin_of(&self.pages.take_short());
    }

    /// Makes postponed sketches, of a few trees; `false` if there were none.
    pub(in crate::engine) fn sketch_more(&self) -> bool {
        let trees = self.pages.take_put_off();
        self.pin_of(&trees);
        !trees.is_empty()
    }

    fn pin_of(&self, short: &[TreeId]) {
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
        pin_pages(&self.env.storage, (&self.pages, SKETCHED_BYTES_MAX), trees, failed)
            .expect("no failure ends it");
        if has_failed {
            // Retried with the next change of tables.
            short.iter().for_each(|tree| self.pages.note_short(*tree));
            self.pages.forget_put_off(short);
        }
    }

    /// Adds to `edit` the changes that put a new table's slices into runs, for the catalog as it is now.
    /// `place_of` returns the run and the origin of each slice. Slices of trees dropped meanwhile are left
    /// out.
    pub(in crate::engine) fn add_tables(
        &self,
        catalog: &Catalog,
        edit: &mut Edit<'_>,
        built: &BuiltTable,
        place_of: impl Fn(&TableReader) -> (Spot, Origin),
    ) {
        let (live, dropped): (Vec<_>, Vec<_>) =
            built.tables.iter().partition(|table| catalog.has_tree(table.tree()));
        let placed = |table: &Arc<TableReader>| {
            let (spot, origin) = place_of(table);
            (Arc::clone(table), spot, origin)
        };
        if live.is_empty() {
            built.mark_obsolete();
        } else {
            edit.add(&built.summary, live.into_iter().map(placed).collect());
            dropped.into_iter().for_each(|table| edit.leave_out(table));
        }
    }
}
