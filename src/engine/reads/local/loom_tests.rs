//! A model of a wake beside a thread that is about to wait in its ring. The ring's bell is an event here.

use super::*;
use crate::base::sync::explore_deep;

/// A reader whose read never ends: only the bell ends its wait.
struct Deaf(Arc<Event>);

impl Reader for Deaf {
    fn room(&self) -> usize {
        0
    }

    fn push(&mut self, _request: Request) {
        unreachable!("nobody asks");
    }

    fn reap(&mut self, _completed: &mut Vec<Completed>) {}

    fn reap_or_bell(&mut self, _completed: &mut Vec<Completed>, timeout_ns: Option<u64>) {
        // A bell that was rung before also ends the wait.
        if timeout_ns.is_none() {
            self.0.block(0, None);
        }
    }

    fn bell(&mut self) -> Waker {
        self.0.waker()
    }
}

/// A wake of the future, at any moment, ends the wait for the ring.
#[test]
fn loom_a_wake_ends_the_wait_for_the_ring() {
    explore_deep(|| {
        let mut driver = Driver::enter();
        driver.reader = Some(Box::new(Deaf(Arc::default())));
        let waker = Waker::from(Arc::clone(&driver.bell));
        let seen = driver.bell.woken.seen();
        let wakes = loom::thread::spawn(move || waker.wake());
        driver.reap(seen);
        wakes.join().expect("it ends");
        assert_eq!(driver.bell.woken.seen(), seen + 1);
    });
}
