//! Gets of a store on the real file system, without cached blocks, by every way of having reads in flight.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::ready;

use super::*;
use crate::base::error::Result;
use crate::base::id::ItemKind;
use crate::base::settings::StoreSettings;
use crate::engine::reads::admission::ReadLimits;
use crate::engine::reads::callback;
use crate::engine::reads::later::{LaterKey, Patience};
use crate::engine::{GetMode, OpenMode, OpenOptions, Store};
use crate::io::env::Env;
use crate::io::os::{DirectIo, FileUse, ReadWith};
use crate::write::batch::BatchItems;

const ITEMS_COUNT: u32 = 400;
const VALUE_BYTES: usize = 3000;

/// A store, closed at the end.
struct World {
    store: Arc<Store>,
    _parent: tempfile::TempDir,
}

impl World {
    /// Opens a store without cached blocks; one or two items fill a block.
    fn cold(read_with: ReadWith) -> World {
        let parent = tempfile::tempdir().expect("makes");
        let path = parent.path().join("store");
        let open = || {
            let env = Env::os(&path, FileUse::new(DirectIo::Off, 16, read_with)).expect("randomness");
            let settings = StoreSettings { memory_bytes: 64 << 20, ..StoreSettings::default() };
            Store::open(env, OpenOptions::new(settings, OpenMode::CreateIfMissing)).expect("opens")
        };
        let store = open();
        let keyspace = store.open_keyspace("items", &[]).expect("no fault");
        for number in 0..ITEMS_COUNT {
            let mut items = BatchItems::default();
            let value = [number as u8; VALUE_BYTES];
            items.push(keyspace.tree, ItemKind::Put, &number.to_be_bytes(), &value).expect("small");
            store.write(&items, None).expect("no fault");
        }
        store.compact().expect("no fault");
        store.close().expect("closes");
        World { store: open(), _parent: parent }
    }

    fn all() -> impl Iterator<Item = World> {
        [ReadWith::Auto, ReadWith::Pool, ReadWith::Plain].into_iter().map(World::cold)
    }

    fn get(&self, number: u32) -> Getting {
        get(&self.store, number)
    }

    fn block_reads(&self) -> u64 {
        self.store.blocks.counts.block_reads.load(Ordering::Relaxed)
    }

    fn assert_nothing_in_flight(&self) {
        assert_eq!(self.store.blocks.queue.admission.counts(), (ReadLimits::default(), 0));
        assert_eq!(self.store.cache.stats().in_flight, 0);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.store.close().expect("closes");
            // A driver thread releases a block after it has woken the waiter.
            assert_eq!(self.store.cache.stats().counted_frames, 0);
        }
    }
}

type Getting = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>>> + Send>>;

fn get(store: &Arc<Store>, number: u32) -> Getting {
    let (store, mut later) = (Arc::clone(store), None);
    let keyspace = store.keyspace("items").expect("it is there");
    Box::pin(std::future::poll_fn(move |context| {
        let key = number.to_be_bytes();
        let of = LaterKey { keyspace: &keyspace, key: &key, mode: GetMode::Value };
        let polled = store.poll_get(&mut later, of, (None, Patience::default()), context, |value| {
            value.map(<[u8]>::to_vec)
        });
        let result = ready!(polled);
        later = None;
        Poll::Ready(result)
    }))
}

fn assert_right(number: u32, result: Result<Option<Vec<u8>>>) {
    assert_eq!(result.expect("no fault"), Some(vec![number as u8; VALUE_BYTES]));
}

/// Begins the get: polls it once.
async fn begin(getting: &mut Getting) {
    std::future::poll_fn(|context| {
        assert!(getting.as_mut().poll(context).is_pending(), "it is cold");
        Poll::Ready(())
    })
    .await;
}

/// A number that another thread, or a callback, gives to a future.
#[derive(Clone, Default)]
struct Given(Arc<Mutex<(Option<u32>, Option<Waker>)>>);

impl Given {
    fn give(&self, number: u32) {
        let mut given = self.0.lock();
        given.0 = Some(number);
        let waker = given.1.take();
        drop(given);
        waker.into_iter().for_each(Waker::wake);
    }

    async fn take(&self) -> u32 {
        std::future::poll_fn(|context| {
            let mut given = self.0.lock();
            given.1 = Some(context.waker().clone());
            given.0.take().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Single gets and many gets together are answered, and no read is left in flight.
#[test]
fn gets_are_answered() {
    for world in World::all() {
        assert_eq!(session(&world.store.blocks), 0);
        assert_right(7, block_on(world.get(7)));
        world.assert_nothing_in_flight();
        let numbers = || (0..ITEMS_COUNT).step_by(3);
        let all = block_on(futures_util::future::join_all(numbers().map(|number| world.get(number))));
        numbers().zip(all).for_each(|(number, result)| assert_right(number, result));
        world.assert_nothing_in_flight();
        assert_eq!(session(&world.store.blocks), 0);
    }
}

/// Another thread wakes a thread that waits without a ring, with or without a store, at any moment.
#[test]
fn another_thread_wakes_it_without_a_ring() {
    for world in World::all() {
        for number in 0..100 {
            let given = Given::default();
            std::thread::scope(|scope| {
                scope.spawn(|| given.give(number));
                let wait = async {
                    if number % 2 == 0 {
                        assert_right(number, world.get(number).await);
                    }
                    given.take().await
                };
                assert_eq!(block_on(wait), number);
            });
        }
    }
}

/// A reader whose wait ends only by its bell.
struct Held {
    bell: Arc<Event>,
    waits: Arc<Event>,
}

impl Reader for Held {
    fn room(&self) -> usize {
        0
    }

    fn push(&mut self, _request: Request) {
        unreachable!("there is no room");
    }

    fn reap(&mut self, _completed: &mut Vec<Completed>) {
        unreachable!("only the bell ends it");
    }

    fn reap_or_bell(&mut self, _completed: &mut Vec<Completed>, timeout_ns: Option<u64>) {
        assert_eq!(timeout_ns, None, "nobody has woken it yet");
        let seen = self.bell.seen();
        self.waits.notify();
        self.bell.block(seen, None);
    }

    fn bell(&mut self) -> Waker {
        self.bell.waker()
    }
}

/// Another thread wakes one that waits in its ring for a read that does not end.
#[test]
fn another_thread_wakes_it_in_its_ring() {
    let mut driver = Driver::enter();
    let waits: Arc<Event> = Arc::default();
    driver.reader = Some(Box::new(Held { bell: Arc::default(), waits: Arc::clone(&waits) }));
    for round in 0..100 {
        let waker = Waker::from(Arc::clone(&driver.bell));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                waits.block(round, None);
                waker.wake();
            });
            driver.reap(driver.bell.woken.seen());
        });
        assert_eq!(driver.bell.woken.seen(), round + 1);
    }
}

/// Another thread wakes one whose reads end meanwhile, again and again.
#[test]
fn another_thread_wakes_it_while_it_reads() {
    for world in World::all() {
        for number in 0..ITEMS_COUNT {
            let given = Given::default();
            std::thread::scope(|scope| {
                scope.spawn(|| given.give(number));
                let (result, taken) = block_on(futures_util::future::join(world.get(number), given.take()));
                assert_right(number, result);
                assert_eq!(taken, number);
            });
        }
    }
}

/// A panic in the future reaches its caller. The future's reads are completed, none is in flight, and the
/// session is the earlier one.
#[test]
fn a_panic_leaves_nothing_in_flight() {
    for world in World::all() {
        let outer = async {
            begin(&mut world.get(0)).await;
            let before = (session(&world.store.blocks), world.block_reads());
            let mut panicking = world.get(ITEMS_COUNT / 2);
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                block_on(async {
                    assert_ne!(session(&world.store.blocks), before.0);
                    begin(&mut panicking).await;
                    panic!("planned");
                })
            }));
            assert!(panicked.is_err());
            assert_eq!((session(&world.store.blocks), world.block_reads()), (before.0, before.1 + 1));
            assert_right(ITEMS_COUNT / 2, panicking.await);
            assert_eq!(world.block_reads(), before.1 + 1, "it was not read again");
        };
        block_on(outer);
        assert_eq!(session(&world.store.blocks), 0);
        world.assert_nothing_in_flight();
    }
}

/// A `block_on` in a poll of another has a session of its own. It answers gets that the outer one began, and
/// the outer one goes on.
#[test]
fn one_within_another() {
    for world in World::all() {
        let (first, last) = (1, ITEMS_COUNT - 1);
        block_on(async {
            let mut begun = world.get(first);
            begin(&mut begun).await;
            let own = session(&world.store.blocks);
            assert_right(last, block_on(world.get(last)));
            assert_right(first, block_on(begun));
            assert_eq!(session(&world.store.blocks), own);
            assert_right(ITEMS_COUNT / 2, world.get(ITEMS_COUNT / 2).await);
        });
        world.assert_nothing_in_flight();
    }
}

/// A sleeping driver thread, on a real clock, wakes due timers, also one that is earlier than its sleep.
#[test]
fn a_driver_thread_wakes_due_timers() {
    for world in World::all() {
        let (reads, [late, early]): (_, [Arc<Event>; 2]) = (&world.store.blocks.queue, Default::default());
        let last = reads.wake_at(u64::MAX, &late.waker());
        let soon = world.store.env.clock.now_ns() + 1_000_000;
        let first = reads.wake_at(soon, &early.waker());
        early.block(0, None);
        assert_eq!(late.seen(), 0);
        drop((first, last));
    }
}

/// Reads that one `block_on` began do not use up the limits of others: neither of a nested `block_on` nor of
/// a thread that its polls wait for.
#[test]
fn each_has_limits_of_its_own() {
    for world in World::all() {
        let limits = ReadLimits { reads: 1, bytes: 1 << 20 };
        world.store.blocks.queue.admission.set_limits(limits);
        block_on(async {
            let (mut begun, mut waits) = (world.get(1), world.get(50));
            begin(&mut begun).await;
            begin(&mut waits).await;
            assert_right(100, block_on(world.get(100)));
            let other = world.get(200);
            let result =
                std::thread::scope(|scope| scope.spawn(|| finish_plainly(other)).join().expect("no panic"));
            assert_right(200, result);
            assert_right(50, block_on(waits));
            assert_right(1, begun.await);
        });
        world.assert_nothing_in_flight();
    }
}

/// A get queued in the admission of one `block_on` is finished elsewhere once that has returned.
#[test]
fn a_line_ends_with_its_wait() {
    for world in World::all() {
        world.store.blocks.queue.admission.set_limits(ReadLimits { reads: 1, bytes: 1 << 20 });
        for (number, is_block_on) in [(3, true), (ITEMS_COUNT - 3, false)] {
            let next = number / 2 + 50;
            let (mut begun, mut waits) = (world.get(number), world.get(next));
            block_on(async {
                begin(&mut begun).await;
                begin(&mut waits).await;
            });
            let finish = |getting| if is_block_on { block_on(getting) } else { finish_plainly(getting) };
            assert_right(next, finish(waits));
            assert_right(number, finish(begun));
        }
        world.assert_nothing_in_flight();
    }
}

/// One thread's `block_on` begins a read and cannot continue it, because it is in a poll. Another thread
/// finishes the get, in an executor or in a `block_on` there: it reads the block itself.
#[test]
fn a_strayed_get_is_finished_elsewhere() {
    for world in World::all() {
        for (number, is_block_on) in [(3, true), (ITEMS_COUNT - 3, false)] {
            let mut strayed = world.get(number);
            block_on(async {
                begin(&mut strayed).await;
                let finish = || if is_block_on { block_on(strayed) } else { finish_plainly(strayed) };
                let result = std::thread::scope(|scope| scope.spawn(finish).join().expect("no panic"));
                assert_right(number, result);
            });
            world.assert_nothing_in_flight();
        }
    }
}

/// Polls as an executor does that knows nothing of the store.
fn finish_plainly(mut getting: Getting) -> Result<Option<Vec<u8>>> {
    let woken: Arc<Event> = Arc::default();
    let waker = woken.waker();
    loop {
        let seen = woken.seen();
        match getting.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => woken.block(seen, None),
        }
    }
}

/// A get that one `block_on` began and left is finished by the next one, or by an executor. Its block was
/// read when the first returned.
#[test]
fn gets_left_by_a_block_on_are_finished() {
    for world in World::all() {
        for (number, is_block_on) in [(3, true), (ITEMS_COUNT - 3, false)] {
            let mut left = world.get(number);
            let before = world.block_reads();
            block_on(begin(&mut left));
            assert_eq!(world.block_reads(), before + 1);
            assert_right(number, if is_block_on { block_on(left) } else { finish_plainly(left) });
            assert_eq!(world.block_reads(), before + 1);
        }
        world.assert_nothing_in_flight();
    }
}

/// A callback runs on the thread of a `block_on`, which has read its block, and begins another get. That get
/// is answered, both while the future waits for it alone and after `block_on` has returned.
#[test]
fn callbacks_begin_others_under_it() {
    for world in World::all() {
        let begin_two = |first: u32, second: u32, given: &Given| {
            let (given, store) = (given.clone(), Arc::clone(&world.store));
            callback::run(world.get(first), move |result| {
                assert_right(first, result);
                callback::run(get(&store, second), move |result| {
                    assert_right(second, result);
                    given.give(second);
                });
            });
        };
        let given = Given::default();
        assert_eq!(
            block_on(async {
                begin_two(10, 100, &given);
                given.take().await
            }),
            100
        );
        block_on(async { begin_two(200, 300, &given) });
        assert_eq!(block_on(given.take()), 300);
    }
}

/// A `block_on` of many gets forgets its ended reads.
#[test]
fn ended_reads_are_forgotten() {
    for world in World::all() {
        let kept = || SESSION.with_borrow(|session| session.as_ref().expect("in block_on").flights.len());
        block_on(async {
            for number in 0..ITEMS_COUNT {
                assert_right(number, world.get(number).await);
                assert!(kept() <= FLIGHTS_KEPT_MIN + 1, "{} are kept", kept());
            }
        });
        assert!(world.block_reads() > 4 * FLIGHTS_KEPT_MIN as u64);
    }
}
