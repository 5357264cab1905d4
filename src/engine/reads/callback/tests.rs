//! Hand-made futures, woken from expected and from unexpected places.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::base::sync::{AtomicU64, Ordering};

/// Becomes ready after `left` polls, and counts them; `at_poll` runs in each poll but the last.
struct Countdown<A> {
    left: u64,
    polls: Arc<AtomicU64>,
    at_poll: A,
}

impl<A: FnMut(&Waker) + Unpin> Future for Countdown<A> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Countdown { left, polls, at_poll } = self.get_mut();
        polls.fetch_add(1, Ordering::Relaxed);
        if *left == 0 {
            return Poll::Ready(());
        }
        *left -= 1;
        at_poll(context.waker());
        Poll::Pending
    }
}

type Kept = Arc<Mutex<Vec<Waker>>>;

/// A future that leaves its waker at each poll.
fn keeping(left: u64, polls: &Arc<AtomicU64>) -> (Kept, impl Future<Output = ()> + Send + use<>) {
    let kept = Kept::default();
    let at_poll = {
        let kept = Arc::clone(&kept);
        move |waker: &Waker| kept.lock().push(waker.clone())
    };
    (kept, Countdown { left, polls: Arc::clone(polls), at_poll })
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A callback that counts its calls.
fn counting(counter: &Arc<AtomicU64>) -> impl FnOnce(()) + Send + use<> {
    let counter = Arc::clone(counter);
    move |()| {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task that is woken during a poll, by itself or by another thread, once or often, is polled once more for
/// that. Its callback runs once.
#[test]
fn woken_while_polled_is_polled_again() {
    let by_itself: fn(&Waker) = |waker| waker.wake_by_ref();
    let often: fn(&Waker) = |waker| (0..3).for_each(|_| waker.wake_by_ref());
    let by_another: fn(&Waker) = |waker| {
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake_by_ref());
        });
    };
    for at_poll in [by_itself, often, by_another] {
        let [polls, calls]: [Arc<AtomicU64>; 2] = Default::default();
        run(Countdown { left: 10, polls: Arc::clone(&polls), at_poll }, counting(&calls));
        assert_eq!((count(&polls), count(&calls)), (11, 1));
    }
}

/// A task rests until it is woken; the waking thread polls it.
#[test]
fn a_task_rests_until_it_is_woken() {
    let [polls, calls]: [Arc<AtomicU64>; 2] = Default::default();
    let (kept, future) = keeping(2, &polls);
    run(future, counting(&calls));
    for round in 1..=2 {
        assert_eq!((count(&polls), count(&calls)), (round, 0));
        let waker = kept.lock().pop().expect("it waits");
        std::thread::scope(|scope| scope.spawn(|| waker.wake()).join().expect("no panic"));
    }
    assert_eq!((count(&polls), count(&calls)), (3, 1));
}

/// A waker that is called after the end, or after a panic, does nothing and holds no future.
#[test]
fn late_wakers_do_nothing() {
    for panics in [false, true] {
        let [polls, calls]: [Arc<AtomicU64>; 2] = Default::default();
        let (kept, future) = keeping(1, &polls);
        let callback = counting(&calls);
        run(future, move |()| {
            callback(());
            assert!(!panics, "planned");
        });
        let waker = kept.lock().pop().expect("it waits");
        let woken = catch_unwind(AssertUnwindSafe(|| waker.wake_by_ref()));
        assert!(woken.is_ok(), "who wakes it hears nothing of it");
        assert_eq!((count(&polls), count(&calls)), (2, 1));
        assert_eq!(Arc::strong_count(&polls), 1, "the future is gone");
        waker.wake_by_ref();
        waker.wake();
        assert_eq!((count(&polls), count(&calls)), (2, 1));
    }
}

/// Begins the next task when this one has ended, and so on.
fn chain(left: u64, ended: Arc<AtomicU64>) {
    run(std::future::ready(()), move |()| {
        ended.fetch_add(1, Ordering::Relaxed);
        if left > 1 {
            chain(left - 1, ended);
        }
    });
}

/// Callbacks that begin others, 100,000 in a chain, need no more stack than one.
#[test]
fn callbacks_do_not_nest() {
    const COUNT: u64 = if cfg!(miri) { 1000 } else { 100_000 };
    let ended: Arc<AtomicU64> = Arc::default();
    let stack = std::thread::Builder::new().stack_size(64 << 10);
    std::thread::scope(|scope| {
        let run = || chain(COUNT, Arc::clone(&ended));
        let thread = stack.spawn_scoped(scope, run).expect("a thread");
        thread.join().expect("no panic");
    });
    assert_eq!(count(&ended), COUNT);
}

/// Callbacks that wake other tasks do not nest either: woken tasks run after the callback has returned, in
/// order.
#[test]
fn tasks_woken_by_a_callback_run_after_it() {
    let (polls, order) = (Arc::default(), Arc::<Mutex<Vec<u32>>>::default());
    let note = |number| {
        let order = Arc::clone(&order);
        move |()| order.lock().push(number)
    };
    let (kept, future) = keeping(1, &polls);
    run(future, note(3));
    let first = note(1);
    let begun = note(2);
    let last = note(4);
    run(std::future::ready(()), move |()| {
        run(std::future::ready(()), begun);
        let waker = kept.lock().pop().expect("it waits");
        waker.wake();
        run(std::future::ready(()), last);
        first(());
    });
    assert_eq!(*order.lock(), [1, 2, 3, 4]);
}

/// A panic in a callback, or in a poll, reaches its caller and leaves the thread usable: the next task is
/// polled at once. Tasks that the panicking one began go on.
#[test]
fn a_panic_leaves_the_thread_usable() {
    let calls: Arc<AtomicU64> = Arc::default();
    for in_callback in [true, false] {
        let begun = counting(&calls);
        let panicking = async move {
            assert!(in_callback, "planned");
            begun
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            run(panicking, |begun| {
                run(std::future::ready(()), begun);
                panic!("planned");
            });
        }));
        assert!(panicked.is_err());
        assert_eq!((count(&calls), Arc::strong_count(&calls)), (1, 1));
    }
    run(std::future::ready(()), counting(&calls));
    assert_eq!(count(&calls), 2);
}

/// A callback that would wait for a future panics instead.
#[test]
fn callbacks_do_not_wait() {
    let waits = || run(std::future::ready(()), |()| local::block_on(std::future::ready(())));
    let panic = catch_unwind(AssertUnwindSafe(waits)).expect_err("it may not");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"a callback of a get must not wait"));
    local::block_on(std::future::ready(()));
}

/// Threads that wake one task at once never poll it concurrently, and lose no wake: it is polled after the
/// last.
#[test]
fn threads_wake_one_task() {
    const WAKES: u64 = if cfg!(miri) { 10 } else { 2000 };
    let [wakes, seen, polling]: [Arc<AtomicU64>; 3] = Default::default();
    let kept = Kept::default();
    let future = {
        let (wakes, seen, kept) = (Arc::clone(&wakes), Arc::clone(&seen), Arc::clone(&kept));
        std::future::poll_fn(move |context| {
            assert_eq!(polling.fetch_add(1, Ordering::SeqCst), 0, "one thread at a time");
            kept.lock().push(context.waker().clone());
            seen.store(wakes.load(Ordering::SeqCst), Ordering::SeqCst);
            polling.fetch_sub(1, Ordering::SeqCst);
            if count(&seen) == 3 * WAKES { Poll::Ready(()) } else { Poll::Pending }
        })
    };
    let calls: Arc<AtomicU64> = Arc::default();
    run(future, counting(&calls));
    let waker = kept.lock()[0].clone();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..WAKES {
                    wakes.fetch_add(1, Ordering::SeqCst);
                    waker.wake_by_ref();
                }
            });
        }
    });
    assert_eq!((count(&seen), count(&calls)), (3 * WAKES, 1));
}
