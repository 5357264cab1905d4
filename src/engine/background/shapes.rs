//! The shapes of trees, as input for picking merges. Pure functions.

use crate::compact::shape::{TableShape, TreeShape};
use crate::levels::version::{Placed, Run, Tree};

/// The shape of a tree.
pub(in crate::engine) fn shape(tree: &Tree) -> TreeShape<'_> {
    let run = |run| Run::tables(run).iter().map(table_shape).collect();
    TreeShape { levels: tree.levels().iter().map(|runs| runs.iter().map(run).collect()).collect() }
}

fn table_shape(placed: &Placed) -> TableShape<'_> {
    let table = &placed.table;
    TableShape {
        min: table.min(),
        max: table.max(),
        bytes: table.slice_bytes(),
        // A range tombstone counts as an item that hides others.
        items: table.items() + table.ranges().count() as u64,
        tombstones: table.tombstones() + table.ranges().count() as u64,
        tombstones_dense: placed.tombstones_dense,
        oldest_tombstone_s: placed.oldest_tombstone_s,
        first_sequence: placed.first_sequence,
    }
}
