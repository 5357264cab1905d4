//! A point in the order of writes, with the view that holds its items.

use crate::base::id::Sequence;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::levels::view::View;

use super::Store;

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
