//! The order of asynchronous reads: queued gets, gets that do not wait for a turn, and gets of very many
//! keys.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};

use futures_util::stream::StreamExt;
use trine::sim::World;
use trine::{Error, GetAsync, block_on};

use super::asynchronous::{EXECUTORS, ITEMS_COUNT, Wakes, cold, cold_on_files, key, poll, value, wait_in};
use super::rng::Rng;
use super::support::Scratch;

/// Records its number when it is woken.
struct Noting(usize, Arc<Mutex<VecDeque<usize>>>);

impl Wake for Noting {
    fn wake(self: Arc<Noting>) {
        self.1.lock().unwrap().push_back(self.0);
    }
}

/// With one read in flight at a time, 100,000 gets are all answered, in order of arrival. `try_get_async`,
/// which does not wait for its turn, answers `WouldBlock`.
#[test]
fn everybody_has_a_turn() {
    let world = World::new(5);
    let (db, items) = cold(&world, &[("reads_in_flight", 1)]);
    let (_, waker) = Wakes::new();
    // No other get needs this block: joining a read in flight needs no turn.
    let mut first = items.get_async(key(ITEMS_COUNT - 1));
    assert!(poll(&mut first, &waker).is_pending());
    let mut refused = items.try_get_async(key(10_000));
    assert!(matches!(poll(&mut refused, &waker), Poll::Ready(Err(Error::WouldBlock))));
    let woken: Arc<Mutex<VecDeque<usize>>> = Arc::default();
    let mut gets: Vec<(GetAsync, Waker)> = (0..100_000)
        .map(|number| {
            let waker = Waker::from(Arc::new(Noting(number, Arc::clone(&woken))));
            (items.get_async(key(number as u64 * 7919 % (ITEMS_COUNT - 100))), waker)
        })
        .collect();
    for (get, waker) in &mut gets {
        assert!(poll(get, waker).is_pending(), "of one in flight the others wait");
    }
    assert_eq!((db.stats().io.reads_in_flight, db.stats().io.reads_waiting), (1, 100_000));
    while poll(&mut first, &waker).is_pending() {
        assert!(world.run_one());
    }
    let (mut turns, mut answered) = (0, 0);
    while answered < gets.len() {
        let Some(number) = woken.lock().unwrap().pop_front() else {
            assert!(world.run_one(), "{answered} are answered, and nobody is woken");
            assert!(db.stats().io.reads_in_flight <= 1);
            continue;
        };
        assert!(number <= turns, "{number} is woken before {turns}");
        turns = turns.max(number + 1);
        let (get, waker) = &mut gets[number];
        if let Poll::Ready(found) = poll(get, waker) {
            assert!(found.unwrap().is_some());
            answered += 1;
        }
    }
    let io = db.stats().io;
    assert_eq!((io.reads_in_flight, io.reads_waiting), (0, 0));
    assert!(block_on(items.try_get_async(key(10_000))).unwrap().is_some());
}

/// Futures that have a turn and are not polled do not delay others: forgotten ones, or those of a stream
/// whose consumer waits for another.
#[test]
fn unpolled_futures_delay_no_others() {
    let mut all_waiting = 0;
    for io in ["ring", "pool", "pread"] {
        for executor in EXECUTORS {
            let scratch = Scratch::new();
            let (db, items) = cold_on_files(&scratch, io, &[("reads_in_flight", 1)]);
            all_waiting += wait_in(executor, async move {
                let mut forgotten: Vec<GetAsync> =
                    (0..4).map(|number| items.get_async(key(4000 * number + 2000))).collect();
                // The block is not cached, but a thread may read it before the poll ends.
                forgotten.retain_mut(|get| poll(get, Waker::noop()).is_pending());
                let waiting = forgotten.len();
                forgotten.into_iter().for_each(std::mem::forget);
                let gets = |numbers: Vec<u64>| {
                    let items = items.clone();
                    futures_util::stream::iter(numbers).map(move |number| items.get_async(key(number)))
                };
                let mut stream = gets((0..10).map(|number| number * 500).collect()).buffer_unordered(4);
                let mut number = 10_000;
                while let Some(found) = stream.next().await {
                    assert!(found.unwrap().is_some());
                    assert!(items.get_async(key(number)).await.unwrap().is_some());
                    number += 500;
                }
                waiting
            });
            db.close().unwrap();
        }
    }
    assert!(all_waiting > 24, "{all_waiting} of 48 wait");
}

/// Blocks read for futures that are not polled are kept only as far as their role has room. All these futures
/// still find their items, in any order.
#[test]
fn blocks_of_unpolled_futures_are_bounded() {
    const BLOCKS: u64 = 3000;
    let world = World::new(6);
    let open = || world.builder().memory_bytes(4 << 20).open().unwrap();
    let db = open();
    let items = db.ordered("items").open().unwrap();
    (0..BLOCKS).for_each(|number| items.put(key(number), [number as u8; 4000]).unwrap());
    db.close().unwrap();
    let db = open();
    let items = db.ordered("items").open().unwrap();
    let (_, waker) = Wakes::new();
    let mut gets: Vec<GetAsync> = (0..BLOCKS).map(|number| items.get_async(key(number))).collect();
    let waiting: u64 = gets.iter_mut().map(|get| u64::from(poll(get, &waker).is_pending())).sum();
    assert!(waiting > BLOCKS / 10 * 9, "{waiting} wait");
    while db.stats().io.reads_in_flight + db.stats().io.reads_waiting > 0 {
        assert!(world.run_one());
    }
    let memory = db.stats().memory;
    assert!(memory.used_bytes <= memory.budget_bytes, "{memory:?}");
    let held = memory.roles.iter().find(|role| role.name == "blocks for futures").unwrap();
    assert!(held.bytes > held.limit_bytes / 2 && held.bytes <= held.limit_bytes, "{held:?}");
    let mut numbers: Vec<u64> = (0..BLOCKS).collect();
    let mut rng = Rng::new(11);
    while !gets.is_empty() {
        let index = rng.below(gets.len());
        let (number, get) = (numbers.swap_remove(index), gets.swap_remove(index));
        assert_eq!(block_on(get).unwrap().as_deref(), Some(&[number as u8; 4000][..]));
    }
    let memory = db.stats().memory;
    let held = memory.roles.iter().find(|role| role.name == "blocks for futures").unwrap();
    assert_eq!(held.bytes, 0);
    assert!(memory.used_bytes <= memory.budget_bytes, "{memory:?}");
}

/// Multi-gets of more keys than one poll begins return the right answers. Other tasks of the executor run in
/// between.
#[test]
fn many_keys_are_begun_in_parts() {
    let scratch = Scratch::new();
    let (_db, items) = cold_on_files(&scratch, "auto", &[]);
    let numbers: Vec<u64> = (0..5000).map(|number| number * 7919 % (ITEMS_COUNT + 1000)).collect();
    let keys: Vec<[u8; 8]> = numbers.iter().map(|number| key(*number)).collect();
    for is_cached in [false, true] {
        let (wakes, waker) = Wakes::new();
        let mut gets = items.multi_get_async(&keys);
        if is_cached {
            assert!(poll(&mut gets, &waker).is_pending());
            assert_eq!(wakes.count(), 1, "it goes on by itself");
        }
        let found = block_on(gets).unwrap();
        for (number, found) in numbers.iter().zip(found) {
            let expected = (*number < ITEMS_COUNT).then(|| value(*number));
            assert_eq!(found.as_deref(), expected.as_ref().map(|value| &value[..]), "{number}");
        }
    }
}

/// Waiting threads and idle futures share reads of one small cache. All find their items, whichever blocks
/// are evicted.
#[test]
fn threads_and_idle_futures_share_reads() {
    let scratch = Scratch::new();
    let (db, items) = cold_on_files(&scratch, "auto", &[]);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let items = items.clone();
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..150 {
                    let numbers: Vec<u64> = (0..6).map(|_| rng.below(ITEMS_COUNT as usize) as u64).collect();
                    let keys: Vec<[u8; 8]> = numbers.iter().map(|number| key(*number)).collect();
                    if seed == 0 {
                        let mut gets: Vec<GetAsync> = keys.iter().map(|key| items.get_async(key)).collect();
                        gets.retain_mut(|get| poll(get, Waker::noop()).is_pending());
                        gets.truncate(3);
                        assert!(gets.into_iter().all(|get| block_on(get).unwrap().is_some()));
                        continue;
                    }
                    for (number, found) in numbers.iter().zip(items.multi_get(&keys).unwrap()) {
                        assert_eq!(found.as_deref(), Some(&value(*number)[..]));
                    }
                }
            });
        }
    });
    db.close().unwrap();
}
