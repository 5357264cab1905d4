//! What is asked of the device: one account of the requests that read blocks, of gets, scans and futures and
//! of merges.
//!
//! A request counts from when it is made until what it brought is taken. Who reads counts itself; who chooses
//! how to read looks. Any thread; nothing here waits. Writes are not in it, nor are reads that no get and no
//! merge asks for: of an opening, of a table's index when it is published, and of `verify`.

use super::sync::{Arc, AtomicU64, Ordering};

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct DeviceLoad {
    awaited: AtomicU64,
    merges: AtomicU64,
}

/// A request, until this is dropped.
#[derive(Debug)]
pub(crate) struct Reading {
    load: Arc<DeviceLoad>,
    of: Of,
}

#[derive(Clone, Copy, Debug)]
enum Of {
    Awaited,
    Merge,
}

impl DeviceLoad {
    /// Counts a request of a get, a scan or a future, what is read ahead for them among it, from now until
    /// what it returns is dropped.
    pub(crate) fn reading(self: &Arc<DeviceLoad>) -> Reading {
        self.count(Of::Awaited)
    }

    /// The same of a request of a merge.
    pub(crate) fn merging(self: &Arc<DeviceLoad>) -> Reading {
        self.count(Of::Merge)
    }

    fn count(self: &Arc<DeviceLoad>, of: Of) -> Reading {
        // Relaxed: it orders nothing, and who sees an old number is as right.
        self.counter(of).fetch_add(1, Ordering::Relaxed);
        Reading { load: Arc::clone(self), of }
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

impl Drop for Reading {
    fn drop(&mut self) {
        self.load.counter(self.of).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each is counted where it belongs, and no longer than it lasts.
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
