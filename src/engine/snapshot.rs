//! A point in the order of writes, with the view that holds its items.

use crate::base::id::{ItemKind, Sequence, TreeId};
use crate::base::step::Direction;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::levels::view::View;

use super::Store;

use std::ops::Bound;

/// What a snapshot or an iterator reads from.
pub(crate) struct Point {
    pub(crate) view: Arc<View>,
    pub(crate) bound: Sequence,
    counted: Option<Arc<SnapshotCounts>>,
}

/// Snapshots alive.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCounts {
    pub(crate) alive: AtomicU64,
}

impl std::fmt::Debug for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Point").field("bound", &self.bound).finish_non_exhaustive()
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        if let Some(counts) = &self.counted {
            counts.alive.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Point {
    /// About how many keys the tree has: puts less deletes, of write buffers and tables, as if none hid
    /// another twice. Looks at each item in the write buffers, and at what is in memory of each table.
    pub(crate) fn approximate_len(&self, tree: TreeId) -> u64 {
        let (mut puts, mut deletes) = (0u64, 0u64);
        for generation in &self.view.generations {
            let mut position = generation.seek(tree, Bound::Unbounded, Direction::Forward, self.bound);
            while let Some(at) = position {
                match generation.item(at).kind {
                    ItemKind::Put => puts += 1,
                    _ => deletes += 1,
                }
                position = generation.step(tree, at, Direction::Forward, self.bound);
            }
        }
        for (_, placed) in self.view.version.tree(tree).into_iter().flat_map(|tree| tree.tables()) {
            deletes += placed.table.tombstones();
            puts += placed.table.items() - placed.table.tombstones();
        }
        puts.saturating_sub(deletes)
    }
}

impl Store {
    /// Now, for an iterator.
    pub(crate) fn point(&self) -> Point {
        let pin = self.epoch.pin();
        let view = self.views.load(&pin);
        // The bound after the view: see `levels::view`.
        let bound = self.writer.visible();
        Point { view: view.counted(), bound, counted: None }
    }

    /// Now, for a snapshot: it is counted in `stats`.
    pub(crate) fn snapshot_point(&self) -> Point {
        self.snapshots.alive.fetch_add(1, Ordering::Relaxed);
        let mut point = self.point();
        point.counted = Some(Arc::clone(&self.snapshots));
        point
    }
}
