//! Points of the present view (`snapshot`).

use crate::base::epoch::{Pin, Published};
use crate::base::id::Sequence;
use crate::base::sync::Arc;
use crate::levels::view::View;
use crate::read::scan::Pinned;

use super::Publisher;
use super::snapshot::{Point, PointKind, Release};

impl Publisher {
    /// A point of the present, for an iterator.
    pub(crate) fn point(&self) -> Arc<Point> {
        self.point_of(PointKind::Iterator)
    }

    /// A point of the present, for a snapshot: `stats` counts it.
    pub(crate) fn snapshot_point(&self) -> Arc<Point> {
        self.point_of(PointKind::Snapshot { taken_ns: self.env.clock.now_ns() })
    }

    /// A point of a view alone, in no list: the holder keeps the memory and files that the point needs.
    pub(in crate::engine) fn point_in(&self, view: Arc<View>, bound: Sequence) -> Point {
        let era = self.views.gaps().era();
        let (view, kind) = (Published::new(&self.epoch, view), PointKind::Iterator);
        Point { view, bound, era, kind, _release: None }
    }

    pub(in crate::engine) fn point_of(&self, kind: PointKind) -> Arc<Point> {
        let era = self.views.gaps().era();
        let (view, bound) = self.now();
        self.listed_point(view, bound, era, kind)
    }

    /// A point for an iterator that has read from that view under a pin; `era`: of the gaps, from before the
    /// view.
    pub(in crate::engine) fn point_behind(&self, view: Arc<View>, bound: Sequence, era: u64) -> Arc<Point> {
        self.listed_point(view, bound, era, PointKind::Iterator)
    }

    fn listed_point(&self, view: Arc<View>, bound: Sequence, era: u64, kind: PointKind) -> Arc<Point> {
        let view = Published::new(&self.epoch, view);
        let is_brief = kind == PointKind::Iterator;
        let release = (!is_brief).then(|| Release(Arc::clone(&self.writer.awaited)));
        let point = Arc::new(Point { view, bound, era, kind, _release: release });
        // A forked process reads nothing from the point, and the lock of its list may be held for ever.
        if !self.is_forked() {
            self.points.add(&point);
        }
        point
    }

    /// The present view, counted, and its bound.
    pub(in crate::engine) fn now(&self) -> (Arc<View>, Sequence) {
        let pin = self.epoch.pin();
        let (view, bound) = self.views.now(&pin, || self.writer.visible());
        (view.counted(), bound)
    }

    /// The view of a point, for use beyond a pin.
    pub(crate) fn view_of(&self, point: &Point) -> Arc<View> {
        point.load(&self.epoch.pin()).counted()
    }

    /// The view, pin, cache and gaps for a scan of the point.
    pub(in crate::engine) fn pinned<'p>(&'p self, point: &Point, pin: &'p Pin) -> Pinned<'p> {
        Pinned { view: point.load(pin), pin, cache: &self.cache, gaps: self.views.gaps() }
    }
}
