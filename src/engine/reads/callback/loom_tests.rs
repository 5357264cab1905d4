//! A model of a task that one thread polls and another wakes. Wakers and reference counts are those of the
//! standard library. The queue of waiting tasks is per thread and in no model: the model's threads share one
//! system thread, so the second one polls without it.

use super::*;
use crate::base::sync::{AtomicBool, AtomicU32, Ordering, explore_deep};

/// The event that makes the future ready comes with a wake, during a poll or at rest. The task is polled
/// after it, to its end, by one of the two threads, never by both at once.
#[test]
fn loom_no_wake_is_lost() {
    explore_deep(|| {
        let is_ready = Arc::new(AtomicBool::new(false));
        let [polling, ended]: [Arc<AtomicU32>; 2] = Default::default();
        let future = {
            let (is_ready, ended) = (Arc::clone(&is_ready), Arc::clone(&ended));
            std::future::poll_fn(move |_| {
                assert_eq!(polling.swap(1, Ordering::Relaxed), 0, "one thread at a time");
                let seen = is_ready.load(Ordering::Acquire);
                polling.store(0, Ordering::Relaxed);
                if !seen {
                    return Poll::Pending;
                }
                ended.fetch_add(1, Ordering::Relaxed);
                Poll::Ready(())
            })
        };
        let task = Arc::new(Task { state: Mutex::new(CallbackState::Taken { woken: false }) });
        let waker = Waker::from(Arc::clone(&task));
        let wakes = loom::thread::spawn(move || {
            is_ready.store(true, Ordering::Release);
            waker.wake_by_ref();
            waker.wake();
        });
        task.poll(Box::pin(future));
        wakes.join().expect("it ends");
        assert_eq!(ended.load(Ordering::Relaxed), 1);
    });
}
