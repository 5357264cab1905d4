//! A view: what a reader pins. Memtable generations, newest first, and a version; the sequence bound is read
//! after it.
//!
//! Readers load the view under a pin and write nothing shared. Changes are made one at a time under a lock
//! without I/O.
//!
//! Invariants:
//! 1. Everything in a newer generation is newer than everything in an older one, and that newer than all
//!    tables.
//! 2. A batch lies wholly in one generation, so a view and a bound at or after it see all of it or none.
//! 3. An ingest has no sequence number: it is in a version or not. A view whose version was still the present
//!    one after the bound was read has every ingest that is older than a write within the bound. Who looks
//!    for one key needs no more than a bound after the view: the newer write hides the ingest.
//! 4. A view that was still the present one after the bound was read has every write within the bound: a
//!    generation is in a view before anything in it is visible. Gaps are learned and used with no other.

use crate::base::epoch::{Epoch, Loaded, Pin, Published};
use crate::base::id::Sequence;
use crate::base::sync::{Arc, Mutex};
use crate::memtable::Generation;

use super::gaps::Gaps;
use super::version::Version;

/// Generations and version at one moment.
#[derive(Clone)]
pub(crate) struct View {
    /// The one written now first, then sealed ones, newest first.
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

    /// The view, while the pin is held.
    pub(crate) fn load<'p>(&self, pin: &'p Pin) -> Loaded<'p, View> {
        self.current.load(pin)
    }

    /// The present view and the bound that goes with it: `visible` says what is visible now.
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

    /// Where nothing lives, as far as readers have found out.
    pub(crate) fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// A new generation takes the writes; the one before it is sealed.
    pub(crate) fn begin_generation(&self, generation: Arc<Generation>) {
        self.gaps.age();
        self.change(|view| view.generations.insert(0, generation));
    }

    /// A new version, and the generations whose items it now holds leave.
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

    /// A generation, or a version, that comes between the view and the bound is in the view that goes with
    /// it: what is within the bound may be in it.
    #[test]
    fn a_view_has_what_its_bound_has() {
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
