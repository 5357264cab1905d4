//! A model of the turn that is handed over. Wakers and counts of pointers are those of the standard library.

use super::*;
use crate::base::sync::{Event, explore_deep};

/// Waits for its turn, as a task would.
fn wait(admission: &Arc<Admission>, place: &mut Option<Place>) -> Permit {
    let woken = Arc::new(Event::new());
    loop {
        let seen = woken.seen();
        match admission.poll(place, (1, false), &woken.waker()) {
            Poll::Ready(permit) => return permit,
            Poll::Pending => woken.block(seen, None),
        }
    }
}

/// The first in line gives its place up while it is admitted: the next has its turn, whichever comes first.
#[test]
fn loom_a_dropped_place_holds_up_nobody() {
    explore_deep(|| {
        let admission = Arc::new(Admission::default());
        admission.set_limits(Limits { reads: 1, bytes: 100 });
        let permit = admission.poll(&mut None, (1, false), Waker::noop());
        let mut first = None;
        assert!(admission.poll(&mut first, (1, false), Waker::noop()).is_pending());
        let reads = loom::thread::spawn(move || drop(permit));
        let gives_up = loom::thread::spawn(move || drop(first));
        drop(wait(&admission, &mut None));
        reads.join().expect("it ends");
        gives_up.join().expect("it ends");
        assert_eq!(admission.counts(), (Limits::default(), 0));
    });
}
