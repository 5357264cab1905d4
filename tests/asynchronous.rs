//! Asynchronous reads: their results and cost, and the handling of reads that fail, are dropped or have no
//! room.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use trine::sim::{Failure, Fault, Operation, Repeat, World};
use trine::{Completions, Db, Error, GetAsync, Keyspace, Ordered, RangeAsync, Value, block_on};

use super::rng::Rng;
use super::support::{Scratch, small};

pub(super) const ITEMS_COUNT: u64 = 20_000;

pub(super) fn key(number: u64) -> [u8; 8] {
    (number * 2).to_be_bytes()
}

pub(super) fn value(number: u64) -> [u8; 100] {
    [number as u8; 100]
}

fn fill(items: &Keyspace<Ordered>) {
    for number in 0..ITEMS_COUNT {
        items.put(key(number), value(number)).unwrap();
    }
}

/// A store of some hundred blocks on the simulated machine, with an empty cache.
pub(super) fn cold(world: &World, settings: &[(&str, u64)]) -> (Db, Keyspace<Ordered>) {
    filled(|| {
        let builder = world.builder().memory_bytes(4 << 20);
        settings.iter().fold(builder, |builder, (name, value)| builder.set(name, *value)).open().unwrap()
    })
}

/// As `cold`, on files, with `io` as the read method.
pub(super) fn cold_on_files(
    scratch: &Scratch,
    io: &str,
    settings: &[(&str, u64)],
) -> (Db, Keyspace<Ordered>) {
    filled(|| {
        let builder = small(&scratch.data()).set("io", io);
        settings.iter().fold(builder, |builder, (name, value)| builder.set(name, *value)).open().unwrap()
    })
}

/// Fills a store, closes it and opens it again.
pub(super) fn filled(open: impl Fn() -> Db) -> (Db, Keyspace<Ordered>) {
    let db = open();
    fill(&db.ordered("items").open().unwrap());
    db.compact().unwrap();
    db.close().unwrap();
    let db = open();
    let items = db.ordered("items").open().unwrap();
    (db, items)
}

/// Counts wake-ups.
#[derive(Default)]
pub(super) struct Wakes(pub(super) AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Wakes>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wakes {
    pub(super) fn new() -> (Arc<Wakes>, Waker) {
        let wakes: Arc<Wakes> = Arc::default();
        (Arc::clone(&wakes), Waker::from(wakes))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(super) fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Ways to wait for a future.
pub(super) const EXECUTORS: [&str; 4] = ["block_on", "tokio", "smol", "threads"];

/// Waits for a future in one of the executors; `threads` polls on another thread each time.
pub(super) fn wait_in<F>(executor: &str, future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match executor {
        "block_on" => block_on(future),
        "tokio" => {
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap().block_on(future)
        }
        "smol" => smol::block_on(future),
        "threads" => {
            let (send, woken) = mpsc::channel();
            struct Sends(mpsc::Sender<()>);
            impl Wake for Sends {
                fn wake(self: Arc<Sends>) {
                    // The receiver of a late wake-up may be gone.
                    let _ = self.0.send(());
                }
            }
            let waker = Waker::from(Arc::new(Sends(send)));
            let mut future = Box::pin(future);
            loop {
                let waker = waker.clone();
                let polled = std::thread::spawn(move || {
                    let polled = poll(&mut future, &waker);
                    (future, polled)
                });
                let (back, polled) = polled.join().unwrap();
                if let Poll::Ready(output) = polled {
                    return output;
                }
                future = back;
                woken.recv().unwrap();
            }
        }
        other => panic!("{other}"),
    }
}

/// Collects a range. `sides` says from which end: 0 the front, 1 the back, more for a random mix.
async fn collect(mut range: RangeAsync, sides: u64) -> trine::Result<Vec<(Value, Value)>> {
    let (mut front, mut back, mut dice) = (Vec::new(), Vec::new(), Rng::new(sides));
    loop {
        let is_back = sides > 1 && dice.below(2) == 0;
        let item = if is_back || sides == 1 { range.next_back().await } else { range.next().await };
        match item {
            Some(item) if is_back || sides == 1 => back.push(item?),
            Some(item) => front.push(item?),
            None => break,
        }
    }
    assert!(range.next().await.is_none() && range.next_back().await.is_none(), "an end stays one");
    front.extend(back.into_iter().rev());
    Ok(front)
}

/// Compares the results of all asynchronous reads with those of the blocking calls.
pub(super) async fn agrees(items: Keyspace<Ordered>, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut below = |bound: u64| rng.below(bound as usize) as u64;
    let mut gets = FuturesUnordered::new();
    for _ in 0..200 {
        let number = below(2 * ITEMS_COUNT);
        let get = items.get_async(number.to_be_bytes());
        gets.push(async move { (number, get.await) });
    }
    while let Some((number, found)) = gets.next().await {
        let expected = number.is_multiple_of(2).then(|| value(number / 2));
        assert_eq!(found.unwrap().as_deref(), expected.as_ref().map(|value| &value[..]), "{number}");
    }
    let keys: Vec<[u8; 8]> = (0..150).map(|_| below(2 * ITEMS_COUNT).to_be_bytes()).collect();
    assert_eq!(items.multi_get_async(&keys).await.unwrap(), items.multi_get(&keys).unwrap());
    for sides in 0..3 {
        let start = below(2 * ITEMS_COUNT);
        let range = start.to_be_bytes()..(start + 1 + below(6000)).to_be_bytes();
        let found = collect(items.range_async(range.clone()), sides + seed * 2 * (sides / 2)).await.unwrap();
        assert!(found.iter().cloned().eq(items.range(range).map(|item| item.unwrap())), "sides {sides}");
    }
}

/// Futures find the same as blocking calls, in every executor and with every read method.
#[test]
fn futures_find_the_values_of_calls() {
    for (seed, io) in ["ring", "pool", "pread", "ring_poll"].into_iter().enumerate() {
        let scratch = Scratch::new();
        let (db, items) = cold_on_files(&scratch, io, &[]);
        for executor in EXECUTORS {
            wait_in(executor, agrees(items.clone(), seed as u64));
        }
        let before = items.at(&db.snapshot());
        items.clear().unwrap();
        let found = block_on(before.get_async(key(3))).unwrap();
        assert_eq!(found.as_deref(), Some(&value(3)[..]));
        assert_eq!(block_on(before.multi_get_async(&[key(3), key(4)])).unwrap().len(), 2);
        assert_eq!(block_on(collect(before.range_async(key(0)..key(9)), 0)).unwrap().len(), 9);
        assert_eq!(block_on(items.get_async(key(3))).unwrap(), None);
    }
}

/// The same holds in the simulator, where reads end in any order, at any time and in any reader.
#[test]
fn futures_find_the_values_of_calls_in_a_world() {
    for seed in 0..12 {
        let world = World::new(seed);
        let (_db, items) = cold(&world, &[("reads_in_flight", 1 + seed % 3 * 20)]);
        block_on(agrees(items, seed));
    }
}

/// Polls futures by hand, each with its own waker, while the simulated threads take turns.
pub(super) fn run_by_hand<F: Future + Unpin>(world: &World, futures: Vec<F>) -> Vec<F::Output> {
    let mut waiting: BTreeMap<usize, (F, Arc<Wakes>, Waker)> = BTreeMap::new();
    for (number, future) in futures.into_iter().enumerate() {
        let (wakes, waker) = Wakes::new();
        waker.wake_by_ref();
        waiting.insert(number, (future, wakes, waker));
    }
    let mut outputs = BTreeMap::new();
    while !waiting.is_empty() {
        let mut is_still = true;
        for number in waiting.keys().copied().collect::<Vec<_>>() {
            let (future, wakes, waker) = waiting.get_mut(&number).unwrap();
            if wakes.0.swap(0, Ordering::SeqCst) > 0 {
                is_still = false;
                if let Poll::Ready(output) = poll(future, waker) {
                    outputs.insert(number, output);
                    waiting.remove(&number);
                }
            }
        }
        assert!(world.run_one() || !is_still, "nobody is woken, and nobody reads");
    }
    outputs.into_values().collect()
}

/// Reads of adjacent blocks that are asked for together become one request.
#[test]
fn neighbours_are_one_request() {
    let world = World::new(1);
    let (db, items) = cold(&world, &[("reads_in_flight", 1000)]);
    let before = db.stats().io;
    let gets = (9000..9300).map(|number| items.get_async(key(number))).collect();
    assert!(run_by_hand(&world, gets).into_iter().all(|found| found.unwrap().is_some()));
    let after = db.stats().io;
    let (blocks, requests) = (after.device_reads - before.device_reads, after.reads - before.reads);
    assert!(blocks >= 8 && requests <= 2, "{blocks} blocks in {requests} requests");
    assert_eq!((after.reads_in_flight, after.reads_waiting), (0, 0));
}

/// The same holds within one `block_on`, which does its reads itself.
#[test]
fn one_read_for_all_under_one_wait() {
    let world = World::new(8);
    let (db, items) = cold(&world, &[]);
    let before = db.stats().io.device_reads;
    let keys: Vec<_> = (7000..7064).map(key).collect();
    assert!(block_on(items.multi_get_async(&keys)).unwrap().iter().all(Option::is_some));
    let blocks = db.stats().io.device_reads - before;
    assert!((2..=4).contains(&blocks), "{blocks} blocks");
    let gets: FuturesUnordered<GetAsync> = (0..100).map(|_| items.get_async(key(15_000))).collect();
    let before = db.stats().io.device_reads;
    assert!(block_on(gets.collect::<Vec<_>>()).into_iter().all(|found| found.unwrap().is_some()));
    assert_eq!(db.stats().io.device_reads - before, 1);
}

/// A callback that gets a value may itself read, also a block that its own get was reading.
#[test]
fn callbacks_that_get_a_value_may_read() {
    let world = World::new(9);
    let (_db, items) = cold(&world, &[("search", 3)]);
    let keys: Vec<_> = (0..64).map(|number| key(number * 300)).collect();
    let mut count = 0;
    items
        .multi_get_with(&keys, |index, value| {
            assert_eq!(value, Some(&super::asynchronous::value(index as u64 * 300)[..]));
            count += usize::from(items.get(keys[63 - index]).unwrap().is_some());
        })
        .unwrap();
    assert_eq!(count, 64);
}

/// A failed read fails all gets that wait for it and no others. The next get reads again.
#[test]
fn a_failed_read_is_its_waiters() {
    let world = World::new(2);
    let (db, items) = cold(&world, &[]);
    world.fail(&[Fault::of(Operation::Read, Failure::Io).in_files("table").repeat(Repeat::Once)]);
    let numbers = [100, 100, 100, 9000, 19_000];
    let found = run_by_hand(&world, numbers.iter().map(|number| items.get_async(key(*number))).collect());
    let failed: Vec<u64> = (found.iter().zip(numbers))
        .filter(|(found, _)| match found {
            Ok(found) => {
                assert!(found.is_some());
                false
            }
            Err(error) => {
                assert!(matches!(error, Error::Io { operation: "read", .. }), "{error}");
                true
            }
        })
        .map(|(_, number)| number)
        .collect();
    assert!(failed == [100; 3] || failed.len() == 1 && failed[0] != 100, "{failed:?}");
    assert!(run_by_hand(&world, vec![items.get_async(key(failed[0]))])[0].is_ok());
    world.fail(&[Fault::of(Operation::Read, Failure::Io).in_files("table").repeat(Repeat::Always)]);
    assert!(matches!(block_on(items.get_async(key(12_000))), Err(Error::Io { .. })));
    assert!(matches!(block_on(items.multi_get_async(&[key(13_000), key(14_000)])), Err(Error::Io { .. })));
    let mut range = items.range_async(key(15_000)..);
    assert!(matches!(block_on(range.next()), Some(Err(Error::Io { .. }))));
    assert!(block_on(range.next()).is_none(), "it ends with its error");
    world.fail(&[]);
    assert!(block_on(items.get_async(key(12_000))).unwrap().is_some());
    assert_eq!((db.stats().io.reads_in_flight, db.stats().io.reads_waiting), (0, 0));
}

/// A future that is dropped or forgotten at any poll leaves nothing behind and disturbs no other. Its block
/// gets into the cache.
#[test]
fn dropped_futures_leave_nothing() {
    for polls in 0..4 {
        let world = World::new(3);
        let (db, items) = cold(&world, &[("reads_in_flight", 8)]);
        let (_, waker) = Wakes::new();
        let mut gets: Vec<GetAsync> = (0..100).map(|number| items.get_async(key(number * 190))).collect();
        let mut many = items.multi_get_async(&(0..100).map(|number| key(number * 180)).collect::<Vec<_>>());
        let mut range = items.range_async(..);
        for _ in 0..polls {
            let is_ready = |future: &mut GetAsync| poll(future, &waker).is_ready();
            gets.retain_mut(|get| !is_ready(get));
            drop((poll(&mut many, &waker), poll(&mut range.next(), &waker)));
            world.run_one();
        }
        drop((many, range));
        let kept = gets.split_off(gets.len() / 2);
        drop(gets);
        assert!(run_by_hand(&world, kept).into_iter().all(|found| found.unwrap().is_some()));
        world.run_until_idle();
        let io = db.stats().io;
        assert_eq!((io.reads_in_flight, io.reads_waiting), (0, 0), "{polls} polls");
        assert_eq!(items.iter().count() as u64, ITEMS_COUNT);
        drop(items);
        db.close().unwrap();
    }
    // A forgotten future keeps its turn, and nothing else.
    let world = World::new(4);
    let (_db, items) = cold(&world, &[]);
    let mut forgotten = items.get_async(key(5000));
    assert!(poll(&mut forgotten, Waker::noop()).is_pending());
    std::mem::forget(forgotten);
    assert!(run_by_hand(&world, vec![items.get_async(key(5000))])[0].as_ref().unwrap().is_some());
}

/// A deadline ends the wait for a turn and for the device. A read in flight still completes.
#[test]
fn deadlines_end_waits() {
    let world = World::new(6);
    let (db, items) = cold(&world, &[("reads_in_flight", 1)]);
    let (_, waker) = Wakes::new();
    let within = Duration::from_millis(50);
    let mut reads = items.get_async(key(1)).within(within);
    let mut waits = items.get_async(key(10_000)).within(within);
    let mut many = items.multi_get_async(&[key(15_000)]).within(within);
    assert!(poll(&mut reads, &waker).is_pending() && poll(&mut waits, &waker).is_pending());
    assert!(poll(&mut many, &waker).is_pending());
    world.advance_ns(within.as_nanos() as u64);
    assert!(matches!(poll(&mut waits, &waker), Poll::Ready(Err(Error::TimedOut))));
    assert!(matches!(poll(&mut many, &waker), Poll::Ready(Err(Error::TimedOut))));
    assert!(matches!(poll(&mut reads, &waker), Poll::Ready(Err(Error::TimedOut))));
    drop((reads, waits, many));
    world.run_until_idle();
    let before = db.stats().io;
    assert_eq!((before.reads_in_flight, before.reads_waiting), (0, 0));
    assert!(block_on(items.get_async(key(1)).within(within)).unwrap().is_some());
    assert_eq!(db.stats().io.device_reads, before.device_reads, "it is in the cache");
    // All futures in the queue are woken at the deadline, though their reads are done one by one.
    let line: Vec<(GetAsync, Arc<Wakes>)> = (0..50)
        .map(|number| {
            let (wakes, waker) = Wakes::new();
            let mut get = items.get_async(key(number * 350 + 600)).within(within);
            assert!(poll(&mut get, &waker).is_pending());
            (get, wakes)
        })
        .collect();
    world.advance_ns(within.as_nanos() as u64);
    assert!(world.run_one() && world.run_one());
    assert!(line.iter().all(|(_, wakes)| wakes.count() > 0));
    // The first few may have been read.
    let late = |(mut get, _)| matches!(poll(&mut get, &waker), Poll::Ready(Err(Error::TimedOut)));
    assert!(line.into_iter().rev().take(45).all(late));
    // On a real clock a get within its deadline is answered, and one past it times out.
    let scratch = Scratch::new();
    let (_db, items) = cold_on_files(&scratch, "auto", &[]);
    let late = items.get_async(key(19_000)).within(Duration::from_nanos(1));
    assert!(matches!(smol::block_on(late), Err(Error::TimedOut) | Ok(Some(_))));
    assert!(smol::block_on(items.get_async(key(100)).within(Duration::MAX)).unwrap().is_some());
}

/// A callback may begin the next get, any number of times.
#[test]
fn callbacks_begin_gets() {
    let scratch = Scratch::new();
    let (_db, items) = cold_on_files(&scratch, "auto", &[]);
    fn chain(items: Keyspace<Ordered>, left: u64, done: mpsc::Sender<()>) {
        let own = items.clone();
        own.get_callback(key(left % ITEMS_COUNT), move |found| {
            assert!(found.unwrap().is_some());
            match left {
                0 => done.send(()).unwrap(),
                left => chain(items, left - 1, done),
            }
        });
    }
    let (send, done) = mpsc::channel();
    chain(items, 100_000, send);
    done.recv().unwrap();
}

/// A queue returns each answer once, with its number, to any waiting thread.
#[test]
fn queues_hand_out_each_answer() {
    for io in ["ring", "pool"] {
        let scratch = Scratch::new();
        let (_db, items) = cold_on_files(&scratch, io, &[]);
        let queue = Completions::default();
        for number in 0..5000 {
            items.get_queued(key(number), number, &queue);
        }
        let counted: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let take = || {
                let (mut answers, mut numbers) = (Vec::new(), Vec::new());
                while queue.wait(&mut answers) {
                    for answer in answers.drain(..) {
                        assert_eq!(answer.result.unwrap().as_deref(), Some(&value(answer.number)[..]));
                        numbers.push(answer.number);
                    }
                }
                numbers
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut numbers: Vec<u64> = counted.concat();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..5000));
    }
}

/// A multi-get that failed is not answered later as if it had succeeded.
#[test]
#[should_panic(expected = "it was polled after it was ready")]
fn many_are_answered_once() {
    let world = World::new(10);
    let (_db, items) = cold(&world, &[]);
    world.fail(&[Fault::of(Operation::Read, Failure::Io).in_files("table").repeat(Repeat::Always)]);
    let mut many = items.multi_get_async(&[key(13_000)]);
    assert!(matches!(block_on(&mut many), Err(Error::Io { .. })));
    world.fail(&[]);
    drop(block_on(&mut many));
}

/// A future that is never polled reads nothing. A future sees all writes before its first poll.
#[test]
fn futures_begin_when_they_are_polled() {
    let world = World::new(7);
    let (db, items) = cold(&world, &[]);
    let before = db.stats().io.device_reads;
    let (get, many) = (items.get_async(key(1)), items.multi_get_async(&[key(2)]));
    world.run_until_idle();
    assert_eq!(db.stats().io.device_reads, before);
    items.put(key(1), b"newer").unwrap();
    items.put(key(2), b"newer").unwrap();
    assert_eq!(block_on(get).unwrap().as_deref(), Some(&b"newer"[..]));
    assert_eq!(block_on(many).unwrap()[0].as_deref(), Some(&b"newer"[..]));
    fn is_free<T: Send + 'static>(_: &T) {}
    is_free(&items.get_async(key(1)));
    is_free(&items.multi_get_async(&[key(1)]));
    is_free(&items.range_async(..));
}

/// Traits of other crates: a range is a stream, statistics serialize to JSON, a value becomes shared bytes.
#[test]
fn types_of_other_crates() {
    let world = World::new(3);
    let db = world.builder().open().unwrap();
    let items = db.ordered("items").open().unwrap();
    for name in ["a/1", "a/2", "b/1"] {
        items.put(name, name).unwrap();
    }
    let keys = block_on(items.prefix_async("a/").map(|item| item.unwrap().0).collect::<Vec<Value>>());
    assert_eq!(keys, ["a/1", "a/2"]);
    let stats = serde_json::to_value(db.stats()).unwrap();
    assert_eq!(stats["keyspaces"][0]["name"], "items");
    assert_eq!(stats["keyspaces"][0]["items"], 3);
    let shared: bytes::Bytes = items.get("b/1").unwrap().unwrap().into();
    assert_eq!(shared, "b/1");
}
