//! The load of the device: counts of the block reads in flight, for gets, scans and futures, and for merges.
//!
//! A request counts from when it is made until its result is taken. Readers count their requests; the code
//! that chooses how to read looks at the counts. Any thread may call; no call waits. Writes are not counted.
//! Neither are reads outside gets, scans and merges: those of an opening, of a table's index when it is
//! published, and of `verify`.

use super::sync::{Arc, AtomicU64, Ordering};

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct DeviceLoad {
    awaited: AtomicU64,
    merges: AtomicU64,
}

/// A request, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct CountedRead {
    load: Arc<DeviceLoad>,
    of: Of,
}

#[derive(Clone, Copy, Debug)]
enum Of {
    Awaited,
    Merge,
}

impl DeviceLoad {
    /// Counts a request of a get, a scan or a future, read-ahead included, until the returned value is
    /// dropped.
    pub(crate) fn reading(self: &Arc<DeviceLoad>) -> CountedRead {
        self.count(Of::Awaited)
    }

    /// The same for a request of a merge.
    pub(crate) fn merging(self: &Arc<DeviceLoad>) -> CountedRead {
        self.count(Of::Merge)
    }

    fn count(self: &Arc<DeviceLoad>, of: Of) -> CountedRead {
        // Relaxed: the count orders nothing, and a slightly old number is as good.
        self.counter(of).fetch_add(1, Ordering::Relaxed);
        CountedRead { load: Arc::clone(self), of }
    }

    fn counter(&self, of: Of) -> &AtomicU64 {
        match of {
            Of::Awaited => &self.awaited,
            Of::Merge => &self.merges,
        }
    }

    /// Requests of gets, scans and futures.
    pub(crate) fn awaited(&self) -> u64 {
        self.awaited.load(Ordering::Relaxed)
    }

    /// Requests of merges.
    pub(crate) fn merges(&self) -> u64 {
        self.merges.load(Ordering::Relaxed)
    }
}

impl Drop for CountedRead {
    fn drop(&mut self) {
        self.load.counter(self.of).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request is counted in its class, and no longer than it lasts.
    #[test]
    fn requests_are_counted_while_they_last() {
        let load = Arc::<DeviceLoad>::default();
        let (get, merge) = (load.reading(), load.merging());
        let other = load.merging();
        assert_eq!((load.awaited(), load.merges()), (1, 2));
        drop((get, other));
        assert_eq!((load.awaited(), load.merges()), (0, 1));
        drop(merge);
        assert_eq!((load.awaited(), load.merges()), (0, 0));
    }
}
