//! Points in the order of writes, each with the view that holds its items, and the list of those alive.
//! Snapshots and iterators read from points.
//!
//! A point's bound never changes; its view may be replaced by another that holds the same items (`history`).
//! Any thread.

use crate::base::epoch::{Loaded, Pin, Published};
use crate::base::id::{Sequence, TreeId};
use crate::base::sync::{Arc, Mutex, Ordering, ProcessUsize, Weak};
use crate::levels::gaps::Sight;
use crate::levels::view::View;
use crate::write::awaited::AwaitedMemory;

/// The point that a snapshot or an iterator reads from.
pub(crate) struct Point {
    pub(super) view: Published<View>,
    pub(crate) bound: Sequence,
    /// The era of the gaps, from before the view.
    pub(super) era: u64,
    pub(super) kind: PointKind,
    /// Dropped after the view. Iterators have none: they keep memory for a short time only.
    pub(super) _release: Option<Release>,
}

/// Tells the flush worker, if it waits for memory, that a snapshot no longer keeps any.
pub(super) struct Release(pub(super) Arc<AwaitedMemory>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.give();
    }
}

/// The owner of a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PointKind {
    Iterator,
    /// Taken at this time of the store's clock.
    Snapshot {
        taken_ns: u64,
    },
    /// A checkpoint that copies tables.
    Checkpoint,
    /// A check of every byte of the open store.
    Verify,
}

/// Number of lists of points: threads that begin iterators seldom use the same list.
const SHARDS_COUNT: usize = 16;
/// Points in a list before dead ones are removed.
const POINTS_COUNT_MIN: usize = 32;

static NEXT_SHARD: ProcessUsize = ProcessUsize::new(0);

thread_local! {
    static SHARD: usize = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS_COUNT;
}

/// Every point that may be alive.
#[derive(Default)]
pub(crate) struct Points {
    shards: [Mutex<Shard>; SHARDS_COUNT],
}

#[derive(Default)]
struct Shard {
    points: Vec<Weak<Point>>,
    /// Length at which dead points are removed.
    clean_at: usize,
}

impl Points {
    pub(super) fn add(&self, point: &Arc<Point>) {
        let shard = SHARD.try_with(|shard| *shard).unwrap_or(0);
        let mut shard = self.shards[shard].lock();
        if shard.points.len() >= shard.clean_at {
            shard.points.retain(|one| one.strong_count() > 0);
            shard.clean_at = (2 * shard.points.len()).max(POINTS_COUNT_MIN);
        }
        shard.points.push(Arc::downgrade(point));
    }

    /// The points alive now.
    pub(crate) fn alive(&self) -> Vec<Arc<Point>> {
        let mut alive = Vec::new();
        for shard in &self.shards {
            alive.extend(shard.lock().points.iter().filter_map(Weak::upgrade));
        }
        alive
    }
}

impl std::fmt::Debug for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Point").field("bound", &self.bound).finish_non_exhaustive()
    }
}

impl Point {
    /// The view that it reads from now.
    pub(crate) fn load<'p>(&self, pin: &'p Pin) -> Loaded<'p, View> {
        self.view.load(pin)
    }

    /// The era of the gaps from before its view.
    pub(in crate::engine) fn era(&self) -> u64 {
        self.era
    }

    /// The tree, with the point's bound and era of the gaps.
    pub(crate) fn sight(&self, tree: TreeId) -> Sight {
        Sight { tree, bound: self.bound, era: self.era }
    }

    /// Makes it read from another view, which holds the same items up to the bound.
    pub(in crate::engine) fn replace(&self, view: Arc<View>) {
        self.view.store(view);
    }

    pub(in crate::engine) fn kind(&self) -> PointKind {
        self.kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::run;
    use crate::io::sim::SimDisk;

    /// Points are listed while they live; lists of dead ones do not grow.
    #[test]
    fn points_are_listed_while_they_live() {
        let (store, _threads) = run::open(&SimDisk::new(1), None, 1, 1 << 20).expect("opens");
        let kept: Vec<Arc<Point>> = (0..10).map(|_| store.snapshot_point()).collect();
        (0..10_000).for_each(|_| drop(store.point()));
        assert_eq!(store.points.alive().len(), 10);
        let listed: usize = store.points.shards.iter().map(|shard| shard.lock().points.len()).sum();
        assert!(listed <= POINTS_COUNT_MIN + 2 * kept.len(), "{listed}");
        drop(kept);
        assert!(store.points.alive().is_empty());
        store.close().expect("closes");
    }
}
