//! A view is the state that a reader pins: memtable generations, newest first, and a version. A reader reads
//! its bound, the last visible sequence number, after the view.
//!
//! Readers load the view under a pin and write nothing shared. Changes are made one at a time under a lock
//! without I/O.
//!
//! Invariants:
//! 1. All items of a newer generation are newer than all items of an older one, and items of generations are
//!    newer than all tables.
//! 2. A batch lies wholly in one generation, so a view and a bound at or after it show all of the batch or
//!    none.
//! 3. An ingest has no sequence number: it is in a version or not. If a view's version was still current
//!    after the bound was read, the view has every ingest that is older than a write within the bound. A
//!    lookup of one key needs only a bound read after the view: only writes of that key matter, and such a
//!    write hides the older ingest.
//! 4. A view that was still current after the bound was read has every write within the bound: a generation
//!    is in a view before any of its items is visible. Gaps are learned and used only with such a view.

use crate::base::epoch::{Epoch, Loaded, Pin, Published};
use crate::base::id::Sequence;
use crate::base::sync::{Arc, Mutex};
use crate::memtable::Generation;

use super::gaps::Gaps;
use super::version::Version;

/// Generations and version at one moment.
#[derive(Clone)]
pub(crate) struct View {
    /// The active generation first, then sealed ones, newest first.
    pub(crate) generations: Vec<Arc<Generation>>,
    pub(crate) version: Arc<Version>,
}

/// The current view and its changes.
pub(crate) struct Views {
    current: Published<View>,
    changing: Mutex<Arc<View>>,
    gaps: Gaps,
}

impl Views {
    pub(crate) fn new(epoch: &Epoch, view: View) -> Views {
        let view = Arc::new(view);
        let current = Published::new(epoch, Arc::clone(&view));
        Views { current, changing: Mutex::new(view), gaps: Gaps::new() }
    }

    /// The current view, valid while the pin is held.
    pub(crate) fn load<'p>(&self, pin: &'p Pin) -> Loaded<'p, View> {
        self.current.load(pin)
    }

    /// The current view and its bound; `visible` returns the last visible sequence number.
    #[inline]
    pub(crate) fn now<'p>(
        &self,
        pin: &'p Pin,
        visible: impl Fn() -> Sequence,
    ) -> (Loaded<'p, View>, Sequence) {
        loop {
            let view = self.load(pin);
            let bound = visible();
            // Invariants 3 and 4.
            if std::ptr::eq(view.get(), self.load(pin).get()) {
                return (view, bound);
            }
        }
    }

    /// Key ranges known to be empty.
    pub(crate) fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// Puts a new generation in front for writes; the one before it is sealed.
    pub(crate) fn begin_generation(&self, generation: Arc<Generation>) {
        self.gaps.age();
        self.change(|view| view.generations.insert(0, generation));
    }

    /// Publishes a version and removes the generations whose items it now holds.
    pub(crate) fn publish(&self, version: Arc<Version>, flushed: &[Arc<Generation>]) {
        self.change(|view| {
            view.generations.retain(|one| !flushed.iter().any(|gone| Arc::ptr_eq(one, gone)));
            view.version = version;
        });
    }

    fn change(&self, edit: impl FnOnce(&mut View)) {
        let mut changing = self.changing.lock();
        let mut next = View::clone(&changing);
        edit(&mut next);
        let next = Arc::new(next);
        self.current.store(Arc::clone(&next));
        *changing = next;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::base::region::Region;
    use crate::memtable;

    fn generation() -> Arc<Generation> {
        memtable::generation(Region::heap(64 << 10).expect("small")).0
    }

    /// The returned view has a generation or version that is published between the reads of view and bound,
    /// since it may hold items within the bound.
    #[test]
    fn a_view_has_the_items_within_its_bound() {
        type Comes = fn(&Views, &Arc<Generation>);
        let comes: [Comes; 2] = [
            |views, generation| views.begin_generation(Arc::clone(generation)),
            |views, _| views.publish(Arc::new(Version::default()), &[]),
        ];
        for comes in comes {
            let epoch = Epoch::new();
            let view = View { generations: vec![generation()], version: Arc::new(Version::default()) };
            let views = Views::new(&epoch, view);
            let (newer, calls) = (generation(), Cell::new(0));
            let pin = epoch.pin();
            let (view, bound) = views.now(&pin, || {
                calls.set(calls.get() + 1);
                if calls.get() == 1 {
                    comes(&views, &newer);
                }
                10 + calls.get()
            });
            assert_eq!((calls.get(), bound), (2, 12), "both are of the second look");
            assert!(std::ptr::eq(view.get(), views.load(&pin).get()));
        }
    }
}
