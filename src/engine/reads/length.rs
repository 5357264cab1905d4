//! Estimates the number of keys of a tree and the bytes of a range, without reading the device.
//!
//! Write buffers are counted key by key: the newest version of each key counts once, and filters tell whether
//! a table has the key too. Of tables only totals are known. Their puts minus their deletes count, as if no
//! two tables shared a key and each delete hid one existing key. Any thread.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::base::epoch::Pin;
use crate::base::hash::KeyHash;
use crate::base::id::{ItemKind, Sequence, TreeId};
use crate::base::key::common_prefix;
use crate::base::step::{BlockAddress, Direction};
use crate::base::sync::Arc;
use crate::compact::fully_covered::covered;
use crate::format::table::ranges::farther;
use crate::levels::version::{Placed, Tree};
use crate::levels::view::View;
use crate::memtable::Generation;
use crate::merge::Merge;
use crate::table::{Filtered, TableReader};
use crate::write::flush::GenerationSource;

use super::ReadDriver;
use crate::engine::publish::edit::TableName;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::snapshot::Point;

/// The tables of a tree that a point sees, except tables that range tombstones fully cover.
struct CountedTables<'v> {
    tree: &'v Tree,
    covered: BTreeSet<TableName>,
}

/// Whether the tables contain a key, as far as memory tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InTables {
    Counted,
    NotCounted,
    Unknown,
}

impl<'v> CountedTables<'v> {
    fn of(view: &'v View, tree: &'v Tree, bound: Sequence) -> CountedTables<'v> {
        let end_over = |key: &[u8]| end_over(&view.generations, (tree.id, bound), key);
        CountedTables { tree, covered: covered(tree, end_over).map(Placed::name).collect() }
    }

    /// Puts minus deletes.
    fn len(&self) -> i64 {
        let tables = self.tree.tables().map(|(_, placed)| placed);
        let len = |placed: &Placed| {
            let table = &placed.table;
            table.items() as i64 - table.tombstones() as i64 - table.key_tombstones() as i64
        };
        tables.filter(|placed| !self.covered.contains(&placed.name())).map(len).sum()
    }

    /// Whether the tables count the key. The newest table that may have it decides: the key counts if most of
    /// its items are puts.
    fn have(&self, key: &[u8], hash: KeyHash) -> InTables {
        for run in self.tree.runs() {
            let Some(placed) = run.find(key).map(|index| &run.tables()[index]) else { continue };
            if self.covered.contains(&placed.name()) || !placed.table.spans(key) {
                continue;
            }
            match placed.table.filter(key, hash, None) {
                Filtered::No => {}
                Filtered::Maybe if is_mostly_puts(&placed.table) => return InTables::Counted,
                Filtered::Maybe => return InTables::NotCounted,
                Filtered::Need(_) => return InTables::Unknown,
            }
        }
        InTables::NotCounted
    }
}

fn is_mostly_puts(table: &TableReader) -> bool {
    table.tombstones() * 2 <= table.items()
}

impl ReadDriver {
    /// Estimates the number of keys of the keyspace that the point sees. Visits each item in the write
    /// buffers, and the in-memory parts of each table.
    pub(crate) fn approximate_len(&self, point: &Point, keyspace: &KeyspaceState) -> u64 {
        let view = self.view_of(point);
        let trees = keyspace.trees_in(&view.version, (&[], &[]));
        trees.into_iter().map(|tree| self.approximate_tree_len((&view, point), tree)).sum()
    }

    fn approximate_tree_len(&self, (view, point): (&View, &Point), tree: TreeId) -> u64 {
        let tables = view.version.tree(tree).map(|tree| CountedTables::of(view, tree, point.bound));
        let mut len = tables.as_ref().map_or(0, CountedTables::len);
        let source = |generation| GenerationSource::new(generation, tree, point.bound);
        let sources: Vec<GenerationSource> = view.generations.iter().map(source).collect();
        let mut merge = Merge::with_prefix(sources, shared_prefix(view, tree, point.bound));
        while let Some(item) = merge.item() {
            if !merge.is_hidden() {
                let hash = self.owner.secret.hash_in(tree.keyspace, item.key);
                let known =
                    tables.as_ref().map_or(InTables::NotCounted, |tables| tables.have(item.key, hash));
                // In doubt, a put counts as a new key and a delete as one of an existing key.
                len += match (item.kind, known) {
                    (ItemKind::Put, InTables::Counted) => 0,
                    (ItemKind::Put, InTables::NotCounted | InTables::Unknown) => 1,
                    (_, InTables::Counted | InTables::Unknown) => -1,
                    (_, InTables::NotCounted) => 0,
                };
            }
            merge.advance().expect("memory does not fail");
        }
        u64::try_from(len).unwrap_or(0)
    }
}

impl ReadDriver {
    /// Estimates the bytes of tables that hold keys from the first key up to and excluding the second; an
    /// empty second key means no upper bound. Counts all versions and deletes, with their filters and fences.
    /// Visits only the in-memory parts of each table.
    pub(crate) fn approximate_bytes(&self, keyspace: &KeyspaceState, range: (&[u8], &[u8])) -> u64 {
        let pin = self.epoch.pin();
        let version = &self.views.load(&pin).get().version;
        let trees = keyspace.trees_in(version, range).into_iter();
        trees
            .filter_map(|tree| version.tree(tree))
            .map(|tree| self.approximate_tree_bytes(tree, range, &pin))
            .sum()
    }

    fn approximate_tree_bytes(&self, tree: &Tree, (start, end): (&[u8], &[u8]), pin: &Pin) -> u64 {
        let pages = |address: &BlockAddress| self.cache.lookup(address, pin);
        let is_before_end = |key: &[u8]| end.is_empty() || key < end;
        let mut bytes = 0.0;
        for run in tree.runs() {
            let tables = run.tables()[run.position(start)..].iter().map(|placed| &*placed.table);
            for table in tables.take_while(|table| is_before_end(table.min())) {
                let from = if table.min() < start { table.share_up_to(start, pages).0 } else { 0.0 };
                let to = if is_before_end(table.max()) { 1.0 } else { table.share_up_to(end, pages).1 };
                bytes += table.slice_bytes() as f64 * (to - from).clamp(0.0, 1.0);
            }
        }
        bytes as u64
    }
}

/// The total keys of all write buffers, deleted ones included, and the bytes of these keys and their values.
/// In each buffer, only the newest version of a key counts.
pub(in crate::engine) fn in_memory(view: &View, tree: TreeId) -> (u64, u64) {
    let tallies = view.generations.iter().map(|generation| generation.tally_of(tree));
    tallies.fold((0, 0), |(keys, bytes), (more_keys, more_bytes)| (keys + more_keys, bytes + more_bytes))
}

/// The common prefix of all keys of a tree in write buffers.
fn shared_prefix(view: &View, tree: TreeId, bound: Sequence) -> &[u8] {
    let ends = |direction| {
        view.generations.iter().filter_map(move |one| {
            let at = one.seek(tree, Bound::Unbounded, direction, bound)?;
            Some(one.item(at).key)
        })
    };
    match (ends(Direction::Forward).min(), ends(Direction::Backward).max()) {
        (Some(first), Some(last)) => &first[..common_prefix(first, last)],
        _ => &[],
    }
}

/// The farthest end of the write buffers' range tombstones that cover a key, if any does; an empty end means
/// no end.
fn end_over<'g>(
    generations: &'g [Arc<Generation>],
    (tree, bound): (TreeId, Sequence),
    key: &[u8],
) -> Option<&'g [u8]> {
    generations.iter().map(|one| one.range_end_over(tree, key, bound)).fold(None, farther)
}
