//! The shape of a new table, its filter above all. It follows from the keyspace's settings, the table's
//! level, and the tree as it will be.
//!
//! Computed when a flush or a merge begins; existing tables keep their shape. Pure functions.

use crate::base::settings::KeyspaceSettings;
use crate::base::sync::Arc;
use crate::format::table::compressed::Compression;
use crate::format::table::filter::{FilterKind, FilterShape};
use crate::levels::filter_bits;
use crate::levels::version::{Placed, Run, Tree, Trie};
use crate::table::{IndexPlan, PageBudget, SliceShape};

/// Values of `index_kind`.
const LEARNED: u64 = 1;
const ADAPTIVE: u64 = 2;

/// For a flush that brings roughly so many items to a tree.
pub(super) fn of_flush(settings: &KeyspaceSettings, tree: Option<&Tree>, items: u64) -> SliceShape {
    if tree.is_some_and(|tree| tree.trie().is_some()) {
        return of_node(settings);
    }
    let mut by_level = tree.map(items_by_level).unwrap_or_default();
    by_level.resize(by_level.len().max(1), 0);
    by_level[0] += items.max(1);
    slice_shape(settings, &by_level, 0)
}

/// For a merge of tables, each in its level, into one.
pub(super) fn of_merge<'t>(
    settings: &KeyspaceSettings,
    tree: &Tree,
    inputs: impl Iterator<Item = (usize, &'t Placed)>,
    output_level: usize,
) -> SliceShape {
    let mut by_level = items_by_level(tree);
    by_level.resize(by_level.len().max(output_level + 1), 0);
    for (level, placed) in inputs {
        by_level[level] -= placed.table.items();
        by_level[output_level] += placed.table.items();
    }
    slice_shape(settings, &by_level, output_level)
}

/// For a node of that height of a trie. Below the root, filters are by column where memory has no room for
/// all filters of the tree: a get then reads one filter page a node.
pub(super) fn of_push(
    settings: &KeyspaceSettings,
    (tree, height): (&Tree, usize),
    pages: &PageBudget,
) -> SliceShape {
    let mut shape = of_node(settings);
    let items: u64 = tree.trie().into_iter().flat_map(Trie::heights).map(|height| height.items).sum();
    let bytes = FilterShape::new(items, shape.filter).bytes();
    let is_by_column = || filter_bits::is_by_column(settings) || !pages.has_room(tree.id, bytes);
    if height > 0 && shape.filter.is_some() && is_by_column() {
        shape.filter.kind = FilterKind::Column;
    }
    shape
}

/// For any node of a trie: every get that reaches a node asks its filters, in the last height too.
fn of_node(settings: &KeyspaceSettings) -> SliceShape {
    slice_shape(&KeyspaceSettings { filter_allocation: 0, ..settings.clone() }, &[1, 1], 0)
}

/// Whether `index_kind` leaves the kind of index to the store.
pub(super) fn is_index_adaptive(settings: &KeyspaceSettings) -> bool {
    settings.index_kind == ADAPTIVE
}

/// For the last level of a tree to which an ingest brings roughly so many items.
pub(super) fn of_ingest(settings: &KeyspaceSettings, tree: Option<&Tree>, items: u64) -> SliceShape {
    let mut by_level = tree.map(items_by_level).unwrap_or_default();
    by_level.resize(by_level.len().max(2), 0);
    let last_level = by_level.len() - 1;
    by_level[last_level] += items.max(1);
    slice_shape(settings, &by_level, last_level)
}

fn slice_shape(settings: &KeyspaceSettings, by_level: &[u64], level: usize) -> SliceShape {
    SliceShape {
        index: if settings.index_kind == LEARNED { IndexPlan::Learned } else { IndexPlan::Fences },
        filter: filter_bits::plan(settings, by_level, level),
        block_bytes: settings.block_bytes as u32,
        compression: if settings.compression == 1 { Compression::Lz4 } else { Compression::None },
    }
}

fn items_by_level(tree: &Tree) -> Vec<u64> {
    let of_level = |runs: &Arc<[Run]>| runs.iter().flat_map(Run::tables).map(|one| one.table.items()).sum();
    tree.levels().iter().map(of_level).collect()
}
