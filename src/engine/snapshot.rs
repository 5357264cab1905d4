//! Points in the order of writes, each with the view that holds its items: what snapshots and iterators read
//! from, and the list of those alive.
//!
//! A point's bound never changes; its view may be replaced by another that holds the same items (`history`).
//! Any thread.

use crate::base::epoch::{Loaded, Pin, Published};
use crate::base::id::{Sequence, TreeId};
use crate::base::sync::{Arc, Mutex, Ordering, ProcessUsize, Weak};
use crate::levels::gaps::Sight;
use crate::levels::view::View;
use crate::read::scan::Pinned;
use crate::write::awaited::AwaitedMemory;

use super::Store;

/// What a snapshot or an iterator reads from.
pub(crate) struct Point {
    view: Published<View>,
    pub(crate) bound: Sequence,
    /// That of the gaps, from before the view.
    era: u64,
    kind: PointKind,
    /// Dropped after the view. Iterators have none: they keep memory for a short time only.
    _release: Option<Release>,
}

/// Tells the flush worker, if it waits for memory, that a snapshot keeps none any more.
struct Release(Arc<AwaitedMemory>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.give();
    }
}

/// Whose point it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PointKind {
    Iterator,
    /// Taken at that time of the store's clock.
    Snapshot {
        taken_ns: u64,
    },
    /// A checkpoint that copies tables.
    Checkpoint,
    /// A check of every byte of the open store.
    Verify,
}

/// Lists of points, so that threads that begin iterators seldom meet.
const SHARDS_COUNT: usize = 16;
/// Points in a list before the dead are looked for.
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
    /// Length at which the dead are taken out.
    clean_at: usize,
}

impl Points {
    fn add(&self, point: &Arc<Point>) {
        let shard = SHARD.try_with(|shard| *shard).unwrap_or(0);
        let mut shard = self.shards[shard].lock();
        if shard.points.len() >= shard.clean_at {
            shard.points.retain(|one| one.strong_count() > 0);
            shard.clean_at = (2 * shard.points.len()).max(POINTS_COUNT_MIN);
        }
        shard.points.push(Arc::downgrade(point));
    }

    /// Those alive now.
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
    /// What it reads from now.
    pub(crate) fn load<'p>(&self, pin: &'p Pin) -> Loaded<'p, View> {
        self.view.load(pin)
    }

    /// What it sees of a tree.
    pub(crate) fn sight(&self, tree: TreeId) -> Sight {
        Sight { tree, bound: self.bound, era: self.era }
    }

    /// Has it read from another view from now on, which holds the same up to the bound.
    pub(super) fn replace(&self, view: Arc<View>) {
        self.view.store(view);
    }

    pub(super) fn kind(&self) -> PointKind {
        self.kind
    }
}

impl Store {
    /// Now, for an iterator.
    pub(crate) fn point(&self) -> Arc<Point> {
        self.point_of(PointKind::Iterator)
    }

    /// Now, for a snapshot: it is counted in `stats`.
    pub(crate) fn snapshot_point(&self) -> Arc<Point> {
        self.point_of(PointKind::Snapshot { taken_ns: self.env.clock.now_ns() })
    }

    /// As of a view alone, in no list: whoever holds it keeps what it needs.
    pub(super) fn point_in(&self, view: Arc<View>, bound: Sequence) -> Point {
        let era = self.views.gaps().era();
        let (view, kind) = (Published::new(&self.epoch, view), PointKind::Iterator);
        Point { view, bound, era, kind, _release: None }
    }

    pub(super) fn point_of(&self, kind: PointKind) -> Arc<Point> {
        let era = self.views.gaps().era();
        let (view, bound) = self.now();
        self.listed_point(view, bound, era, kind)
    }

    /// For an iterator that has read from that view under a pin; `era`: of the gaps, from before it.
    pub(super) fn point_behind(&self, view: Arc<View>, bound: Sequence, era: u64) -> Arc<Point> {
        self.listed_point(view, bound, era, PointKind::Iterator)
    }

    fn listed_point(&self, view: Arc<View>, bound: Sequence, era: u64, kind: PointKind) -> Arc<Point> {
        let view = Published::new(&self.epoch, view);
        let is_brief = kind == PointKind::Iterator;
        let release = (!is_brief).then(|| Release(Arc::clone(&self.writer.awaited)));
        let point = Arc::new(Point { view, bound, era, kind, _release: release });
        // In a forked process nothing is read from it, and the lock of its list may be held for ever.
        if !self.is_forked() {
            self.points.add(&point);
        }
        point
    }

    /// The present view, counted, and the bound that goes with it.
    pub(super) fn now(&self) -> (Arc<View>, Sequence) {
        let pin = self.epoch.pin();
        let (view, bound) = self.views.now(&pin, || self.writer.visible());
        (view.counted(), bound)
    }

    /// The view of a point, for what outlives a pin.
    pub(crate) fn view_of(&self, point: &Point) -> Arc<View> {
        point.load(&self.epoch.pin()).counted()
    }

    /// What a scan of the point looks at.
    pub(super) fn pinned<'p>(&'p self, point: &Point, pin: &'p Pin) -> Pinned<'p> {
        Pinned { view: point.load(pin), pin, cache: &self.cache, gaps: self.views.gaps() }
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
