//! Short ranges. The first items of a range that memory has are read under one pin, before any reference
//! count, listing or allocation. A range that goes on gets a point of the same view and bound, made under the
//! same pin.

use crate::base::error::Result;
use crate::base::reserve::{Grant, Role};
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::levels::gaps::Sight;
use crate::read::scan::{BatchExtent, BatchRequest, ItemBatch, Pinned, ScanRange, fill, start_of};

use super::ReadDriver;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::snapshot::Point;

/// When a range needs a point after its first items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NeedsPoint {
    /// If there may be more items.
    ForMore,
    /// If there may be an item and none was read.
    ForOne,
}

impl ReadDriver {
    /// Reads the first items of a range in `direction` into `batch`, at the given point or at the present.
    /// Returns the point for reading the rest, if one is needed. `None`: nothing was read, because the range
    /// lies in several partitions; it must be read from the point from its first item on.
    pub(crate) fn begin_range(
        &self,
        keyspace: &KeyspaceState,
        (at, needs): (Option<&Arc<Point>>, NeedsPoint),
        (range, direction, items_max): (&ScanRange, Direction, usize),
        batch: &mut ItemBatch,
    ) -> (Option<BatchExtent>, Option<Arc<Point>>) {
        // The first step reports the error.
        if self.is_closed() || self.is_forked() {
            return (Some(BatchExtent::Left), Some(at.map_or_else(|| self.point(), Arc::clone)));
        }
        let gaps = self.views.gaps();
        let era = gaps.era();
        let pin = self.epoch.pin();
        let (loaded, bound, era) = match at {
            Some(point) => (point.load(&pin), point.bound, point.era()),
            None => {
                let (loaded, bound) = self.views.now(&pin, || self.writer.visible());
                (loaded, bound, era)
            }
        };
        let version = &loaded.get().version;
        let is_live = keyspace.check_live_at(|| keyspace.is_in(version)).is_ok();
        let tree = keyspace.tree_of_range(range, version);
        let extent = match tree {
            Some(tree) if is_live => {
                let (sight, from) = (Sight { tree, bound, era }, start_of(range, direction));
                let request = BatchRequest { sight, range, direction, from, items_max };
                Some(fill(&request, Pinned { view: loaded, pin: &pin, cache: &self.cache, gaps }, batch))
            }
            Some(_) => Some(BatchExtent::Left),
            None => None,
        };
        let is_enough = match needs {
            NeedsPoint::ForMore => extent == Some(BatchExtent::ToEnd),
            NeedsPoint::ForOne => extent == Some(BatchExtent::ToEnd) || batch.count() > 0,
        };
        if is_enough {
            return (extent, None);
        }
        let point = match at {
            Some(point) => Arc::clone(point),
            None => self.point_behind(loaded.counted(), bound, era),
        };
        (extent, Some(point))
    }

    /// Memory for the items that an iterator or cursor reads at once.
    pub(crate) fn grant_batch(&self) -> Option<Grant> {
        // In a forked process nothing is read, and a lock of the reserve may be held forever.
        if self.is_forked() {
            return None;
        }
        self.cache.reserve().try_grant(Role::ReadAhead, ItemBatch::BYTES_MAX as u64)
    }

    /// Memory for the scans of a range over many partitions.
    ///
    /// # Errors
    /// `Memory`.
    pub(crate) fn grant_scans(&self, bytes: u64) -> Result<Grant> {
        let (role, reserve) = (Role::ReadAhead, self.cache.reserve());
        // Otherwise a request alone in its role could exceed the limit.
        let fits = bytes <= reserve.limit_bytes(role);
        let granted = if fits { reserve.grant_or_wait(role, bytes).ok() } else { None };
        granted.ok_or_else(|| reserve.refusal(role, bytes))
    }

    /// Reads the first items of a range at the point, which sees the keyspace.
    pub(crate) fn fill(
        &self,
        point: &Point,
        request: &BatchRequest<'_>,
        batch: &mut ItemBatch,
    ) -> BatchExtent {
        let pin = self.epoch.pin();
        fill(request, self.pinned(point, &pin), batch)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::id::ItemKind;
    use crate::engine::tests::run;
    use crate::io::sim::SimDisk;
    use crate::write::batch::BatchItems;

    fn numbers(batch: &ItemBatch) -> Vec<u8> {
        (0..batch.count()).map(|number| batch.item(number).0[0]).collect()
    }

    /// A range that is fully read at once makes no list entry and no reference count, neither of the view nor
    /// of a block. A range that goes on gets a point of the moment at which it began.
    #[test]
    fn short_ranges_count_nothing() {
        let (store, _threads) = run::open(&SimDisk::new(1), None, 1, 1 << 20).expect("opens");
        let keyspace = store.open_keyspace("a", &[]).expect("no fault");
        let write = |keys: std::ops::Range<u8>| {
            let mut items = BatchItems::default();
            keys.for_each(|key| items.push(keyspace.tree, ItemKind::Put, &[key], b"value").expect("small"));
            store.write(&items, None).expect("no fault");
        };
        write(0..40);
        store.compact().expect("no fault");
        write(20..60);
        // This brings blocks into the cache.
        store
            .get(&keyspace, (&[5], crate::engine::GetMode::Value), None, &mut crate::engine::NoTrace, |_| ())
            .expect("no fault");
        let view_counts = || Arc::strong_count(&store.now().0);
        let counts = || (view_counts(), store.points.alive().len(), store.cache.stats().counted_frames);
        let before = counts();
        let range: ScanRange = (std::ops::Bound::Included(vec![15]), std::ops::Bound::Excluded(vec![25]));
        let mut batch = ItemBatch::default();
        for direction in [Direction::Forward, Direction::Backward] {
            batch.clear();
            let request = (&range, direction, 10);
            let (extent, point) =
                store.begin_range(&keyspace, (None, NeedsPoint::ForMore), request, &mut batch);
            assert!(extent == Some(BatchExtent::ToEnd) && point.is_none());
            let mut found = numbers(&batch);
            found.sort_unstable();
            assert_eq!((found, counts()), ((15..25).collect(), before));
        }
        batch.clear();
        let request = (&range, Direction::Forward, 4);
        let (extent, point) = store.begin_range(&keyspace, (None, NeedsPoint::ForMore), request, &mut batch);
        assert_eq!((extent, numbers(&batch)), (Some(BatchExtent::Full), (15..19).collect()));
        let point = point.expect("it goes on");
        assert_eq!(store.points.alive().len(), before.1 + 1);
        let mut later = BatchItems::default();
        later.push(keyspace.tree, ItemKind::Delete, &[19], &[]).expect("small");
        store.write(&later, None).expect("no fault");
        let sight = point.sight(keyspace.tree);
        let (from, direction, items_max) = (std::ops::Bound::Excluded(&[18][..]), Direction::Forward, 100);
        batch.clear();
        let request = BatchRequest { sight, range: &range, direction, from, items_max };
        assert_eq!(store.fill(&point, &request, &mut batch), BatchExtent::ToEnd);
        assert_eq!(numbers(&batch), (19..25).collect::<Vec<u8>>(), "later deletes are invisible");
        drop(point);
        store.close().expect("closes");
    }

    /// A range within one partition, or within none, is also read at once; a range over several partitions is
    /// left to its point.
    #[test]
    fn ranges_in_one_partition_are_read_at_once() {
        let (store, _threads) = run::open(&SimDisk::new(1), None, 1, 1 << 20).expect("opens");
        let divided = store.open_divided("d", &[], &crate::base::rule::Rule::Prefix(1)).expect("made");
        let names: [&[u8]; 2] = [b"a", b"c"];
        let mut items = BatchItems::default();
        for partition in store.create_partitions(&divided, &names).expect("made") {
            let key = partition.partition_name().expect("it is one");
            items.push(partition.tree, ItemKind::Put, key, b"value").expect("small");
        }
        store.write(&items, None).expect("no fault");
        let mut batch = ItemBatch::default();
        for (start, end, keys) in
            [("a", "b", Some("a")), ("b", "d", Some("c")), ("b", "c", Some("")), ("a", "d", None)]
        {
            let range = (
                std::ops::Bound::Included(start.as_bytes().to_vec()),
                std::ops::Bound::Excluded(end.as_bytes().to_vec()),
            );
            for direction in [Direction::Forward, Direction::Backward] {
                batch.clear();
                let request = (&range, direction, 10);
                let (extent, point) =
                    store.begin_range(&divided, (None, NeedsPoint::ForMore), request, &mut batch);
                assert_eq!((extent, point.is_none()), (keys.map(|_| BatchExtent::ToEnd), keys.is_some()));
                assert_eq!(numbers(&batch), keys.unwrap_or_default().as_bytes());
            }
        }
        store.close().expect("closes");
    }
}
