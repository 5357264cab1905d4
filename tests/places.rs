//! The guarantees of futures under every read method: in a simulated world, by rings, by a thread pool, and
//! by one read after another.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use trine::sim::{Failure, Fault, Operation, Repeat, World};
use trine::{Completions, Db, Error, GetAsync, Keyspace, Ordered, block_on};

use super::asynchronous::{
    ITEMS_COUNT, Wakes, agrees, cold, cold_on_files, filled, key, poll, run_by_hand, value,
};
use super::rng::Rng;
use super::support::{Scratch, files};

/// A store with an empty cache, and its environment.
struct Place {
    name: &'static str,
    /// `None`: the store is on files.
    world: Option<World>,
    scratch: Scratch,
    db: Db,
    items: Keyspace<Ordered>,
}

/// The read methods on files; the world has its own.
const READERS: [&str; 3] = ["ring", "pool", "pread"];

fn places() -> impl Iterator<Item = Place> {
    places_with(&[])
}

fn places_with(settings: &'static [(&str, u64)]) -> impl Iterator<Item = Place> {
    ["world"].into_iter().chain(READERS).map(|name| {
        let (scratch, world) = (Scratch::new(), (name == "world").then(|| World::new(11)));
        let (db, items) = match &world {
            Some(world) => cold(world, settings),
            None => cold_on_files(&scratch, name, settings),
        };
        let io = db.stats().io;
        let is_as_asked = io.reads_with == name || name == "world" && io.reads_with == "simulated";
        assert!(is_as_asked || !io.reads_with_why.is_empty(), "{name} is {} and says not why", io.reads_with);
        Place { name, world, scratch, db, items }
    })
}

impl Place {
    /// Waits for all futures, none of them through a ring of this thread.
    fn all<F: Future + Unpin>(&self, futures: Vec<F>) -> Vec<F::Output> {
        match &self.world {
            Some(world) => run_by_hand(world, futures),
            None => smol::block_on(join_all(futures)),
        }
    }

    /// Its tables and their bytes.
    fn tables(&self) -> Vec<(String, Vec<u8>)> {
        let files = match &self.world {
            Some(world) => {
                let with_contents = |file: String| {
                    let bytes = world.contents(&file).unwrap();
                    (file, bytes)
                };
                world.files().unwrap().into_iter().map(with_contents).collect()
            }
            None => files(&self.scratch.data()),
        };
        files.into_iter().filter(|(file, _)| file.starts_with("table")).collect()
    }

    fn set_file(&self, file: &str, bytes: &[u8]) {
        match &self.world {
            Some(world) => world.set_contents(file, Some(bytes)),
            None => std::fs::write(self.scratch.data().join(file), bytes).unwrap(),
        }
    }

    /// Waits until no read of a future is in flight or waiting.
    fn rest(&self) {
        loop {
            self.world.iter().for_each(World::run_until_idle);
            let io = self.db.stats().io;
            if (io.reads_in_flight, io.reads_waiting) == (0, 0) {
                return;
            }
            assert!(self.world.is_none(), "somebody is at rest, and reads");
            std::thread::yield_now();
        }
    }
}

/// Any number of gets of one uncached block cause one device read.
#[test]
fn a_block_is_read_once_for_all() {
    for place in places() {
        let before = place.db.stats().io.device_reads;
        let gets = (0..500).map(|_| place.items.get_async(key(7000))).collect();
        for found in place.all(gets) {
            assert_eq!(found.unwrap().as_deref(), Some(&value(7000)[..]), "{}", place.name);
        }
        assert_eq!(place.db.stats().io.device_reads - before, 1, "{}", place.name);
    }
}

type Abandoned = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls all futures for `turns` turns of their executor, then drops those that are not ready.
async fn abandon(mut futures: Vec<Abandoned>, turns: u32) {
    let mut turn = 0;
    std::future::poll_fn(move |context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        turn += 1;
        if turn > turns || futures.is_empty() {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Gets, a multi-get and a scan of a region of items of its own.
fn region(items: &Keyspace<Ordered>, number: u64) -> Vec<Abandoned> {
    let first = number * 700;
    let mut futures: Vec<Abandoned> = Vec::new();
    for index in 0..20 {
        let get = items.get_async(key(first + 20 * index));
        futures.push(Box::pin(async move { assert!(get.await.unwrap().is_some()) }));
    }
    let many = items.multi_get_async(&(400..500).map(|index| key(first + index)).collect::<Vec<_>>());
    futures.push(Box::pin(async move { assert!(many.await.unwrap().iter().all(Option::is_some)) }));
    let mut range = items.range_async(key(first + 500)..key(first + 700));
    futures.push(Box::pin(async move {
        while let Some(item) = range.next().await {
            assert_eq!(item.unwrap().1.len(), value(0).len());
        }
    }));
    futures
}

/// Futures dropped after any number of turns leave nothing in flight, whether their reads are in a ring of
/// their thread or of the store. Other futures find their items.
#[test]
fn futures_are_given_up_anywhere() {
    for place in places() {
        for round in 0..14 {
            let turns = [0, 1, 2, 3, 5, 8, 40][round as usize % 7];
            let futures = abandon(region(&place.items, 2 * round), turns);
            if round < 7 {
                block_on(futures)
            } else {
                smol::block_on(futures)
            }
            // Runs beside a future of the same blocks that is not dropped.
            let both = region(&place.items, 2 * round + 1);
            let kept = place.items.multi_get_async(&[key((2 * round + 1) * 700)]);
            let both = join(abandon(both, turns), kept);
            assert!(block_on(both).1.unwrap()[0].is_some());
        }
        place.rest();
        assert_eq!(place.items.iter().count() as u64, ITEMS_COUNT, "{}", place.name);
        block_on(agrees(place.items.clone(), 5));
        let Place { db, items, .. } = place;
        drop(items);
        db.close().unwrap();
    }
}

/// A damaged block fails the gets of its keys and no others.
#[test]
fn damage_is_its_waiters() {
    for place in places() {
        let (table, bytes) = place.tables().into_iter().max_by_key(|(_, bytes)| bytes.len()).unwrap();
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        place.set_file(&table, &damaged);
        let gets = || (0..ITEMS_COUNT).step_by(8).map(|number| place.items.get_async(key(number))).collect();
        let lost = place.all(gets()).iter().filter(|found| is_lost(found, place.name)).count();
        assert!((1..8).contains(&lost), "{}: {lost} are lost", place.name);
        place.set_file(&table, &bytes);
        assert!(place.all(gets()).iter().all(|found| !is_lost(found, place.name)), "it stays in no cache");
    }
}

/// Whether the get failed for damage; asserts that it found a value otherwise.
fn is_lost(found: &trine::Result<Option<trine::Value>>, place: &str) -> bool {
    match found {
        Ok(found) => {
            assert!(found.is_some(), "{place}");
            false
        }
        Err(error) => {
            assert!(matches!(error, Error::Corrupt(_)), "{place}: {error}");
            true
        }
    }
}

/// Short reads, from truncated files, fail all operations that wait for them, of every kind. Cached items are
/// still found, and all items once the files are whole.
#[test]
fn failed_reads_are_their_waiters() {
    for place in places() {
        let (name, items) = (place.name, &place.items);
        let cached = || place.all(vec![items.get_async(key(ITEMS_COUNT - 1))]).remove(0);
        assert!(!is_lost(&cached(), name));
        let tables = place.tables();
        for (table, bytes) in &tables {
            place.set_file(table, &bytes[..4096]);
        }
        assert!(!is_lost(&cached(), name), "{name}: it is cached");
        let numbers = [7000, 7000, 7000, 9000, ITEMS_COUNT - 2000];
        let gets = || numbers.iter().map(|number| items.get_async(key(*number))).collect::<Vec<_>>();
        assert!(place.all(gets()).iter().all(|found| is_lost(found, name)), "{name}");
        assert!(block_on(join_all(gets())).iter().all(|found| is_lost(found, name)), "{name}");
        let many = items.multi_get_async(&numbers.map(key));
        assert!(matches!(place.all(vec![many])[0], Err(Error::Corrupt(_))), "{name}");
        let mut range = items.range_async(key(12_000)..);
        let ends = Box::pin(async move {
            assert!(matches!(range.next().await, Some(Err(Error::Corrupt(_)))));
            assert!(range.next().await.is_none(), "it ends with its error");
        });
        place.all(vec![ends]);
        let ((send, told), queue) = (mpsc::channel(), Completions::default());
        items.get_callback(key(13_000), move |found| send.send(found).unwrap());
        items.get_queued(key(14_000), 5, &queue);
        place.rest();
        assert!(is_lost(&told.recv().unwrap(), name));
        let mut answers = Vec::new();
        while queue.take(&mut answers) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(
            answers.iter().map(|answer| (answer.number, is_lost(&answer.result, name))).collect::<Vec<_>>(),
            [(5, true)]
        );
        for (table, bytes) in &tables {
            place.set_file(table, bytes);
        }
        assert!(place.all(gets()).iter().all(|found| !is_lost(found, name)), "{name}");
        place.all(vec![Box::pin(agrees(items.clone(), 7))]);
    }
}

/// One read in flight at a time, and a long queue of gets. Gets with a deadline return their value or time
/// out, gets without one return their value, and `try_get_async` answers `WouldBlock`.
#[test]
fn deadlines_end_waits_anywhere() {
    /// Shorter than a read, shorter than all queued reads, and unlimited.
    const DEADLINES: [Duration; 3] = [Duration::from_nanos(1), Duration::from_millis(2), Duration::MAX];
    for place in places_with(&[("reads_in_flight", 1)]) {
        let number = |index: usize| index as u64 * 97 % 15_000;
        let mut late = 0;
        let mut is_answered = |index: usize, found: &trine::Result<Option<trine::Value>>| match found {
            Err(Error::TimedOut) if DEADLINES[index % 3] < Duration::MAX => late += 1,
            Ok(found) => assert_eq!(found.as_deref(), Some(&value(number(index))[..]), "{}", place.name),
            Err(error) => panic!("{}: {error}", place.name),
        };
        let (mut is_refused, mut line) = (false, Vec::new());
        for index in 0..600 {
            let mut get = place.items.get_async(key(number(index))).within(DEADLINES[index % 3]);
            match poll(&mut get, Waker::noop()) {
                Poll::Ready(found) => is_answered(index, &found),
                Poll::Pending => line.push((index, get)),
            }
            let mut impatient = place.items.try_get_async(key(15_000 + index as u64 * 8));
            is_refused |= matches!(poll(&mut impatient, Waker::noop()), Poll::Ready(Err(Error::WouldBlock)));
        }
        assert!(is_refused, "{}: nobody was told that there is no room", place.name);
        assert!(line.len() > 200, "{}: {} are in line", place.name, line.len());
        let (indices, gets): (Vec<usize>, Vec<GetAsync>) = line.into_iter().unzip();
        place.all(gets).iter().zip(indices).for_each(|(found, index)| is_answered(index, found));
        assert!(late > 0, "{}: nobody was late", place.name);
        place.rest();
        let patient = place.all(vec![place.items.try_get_async(key(ITEMS_COUNT - 1))]).remove(0);
        assert_eq!(patient.unwrap().as_deref(), Some(&value(ITEMS_COUNT - 1)[..]), "{}", place.name);
    }
}

/// A store closed with reads in flight closes: each future returns its value or the error that the store is
/// closed, and none waits forever.
#[test]
fn closing_ends_reads_in_flight() {
    for Place { name, world, db, items, .. } in places() {
        let mut gets: Vec<GetAsync> = (0..200).map(|number| items.get_async(key(number * 99))).collect();
        let (wakes, waker) = Wakes::new();
        let mut range = items.range_async(..);
        let pending = gets.iter_mut().filter_map(|get| poll(get, &waker).is_pending().then_some(())).count();
        assert!(pending > 50, "{name}: {pending}");
        drop(poll(&mut range.next(), &waker));
        db.close().unwrap();
        world.iter().for_each(World::run_until_idle);
        assert!(wakes.count() > 50, "{name}: who waits hears of it");
        for get in gets {
            let found = smol::block_on(get);
            assert!(matches!(found, Err(Error::Closed)), "{name}: {found:?}");
        }
        assert!(matches!(block_on(items.get_async(key(1))), Err(Error::Closed)));
        assert!(!matches!(smol::block_on(range.next()), Some(Ok(_)) | None), "{name}");
    }
}

/// Each callback is called once, and each answer of a queue is returned once.
#[test]
fn answers_come_once() {
    for place in places() {
        let (send, answers) = mpsc::channel();
        let queue = Completions::default();
        for number in 0..1000 {
            let send = send.clone();
            let told = move |found| send.send((number, found)).unwrap();
            place.items.get_callback((number * 39u64).to_be_bytes(), told);
            place.items.get_queued((number * 39u64).to_be_bytes(), number, &queue);
        }
        drop(send);
        place.rest();
        let mut queued = Vec::new();
        while queue.take(&mut queued) > 0 {
            place.world.iter().for_each(World::run_until_idle);
            std::thread::yield_now();
        }
        let queued = queued.into_iter().map(|answer| (answer.number, answer.result));
        let mut numbers = [BTreeSet::new(), BTreeSet::new()];
        for (which, (number, found)) in
            answers.into_iter().map(|told| (0, told)).chain(queued.map(|told| (1, told)))
        {
            let expected = (number * 39).is_multiple_of(2).then(|| value(number * 39 / 2));
            assert_eq!(found.unwrap().as_deref(), expected.as_ref().map(|value| &value[..]));
            assert!(numbers[which].insert(number), "{}: {number} was told", place.name);
        }
        assert_eq!(numbers.map(|told| told.len()), [1000; 2], "{}", place.name);
    }
}

/// Under any read failures a future returns the value or the failure. Afterwards all items are found.
#[test]
fn futures_find_or_fail() {
    let mut failed = 0;
    for seed in 0..12 {
        let world = World::new(seed);
        let (db, items) = cold(&world, &[("reads_in_flight", 1 + seed % 3 * 20), ("search", seed % 4)]);
        let mut rng = Rng::new(seed);
        let read = || Fault::of(Operation::Read, Failure::Io).in_files("table");
        let mut faults: Vec<Fault> = (0..6).map(|_| read().after(rng.below(60) as u64)).collect();
        if seed % 4 == 3 {
            faults.push(read().after(40).repeat(Repeat::Always));
        }
        world.fail(&faults);
        let is_told = |error: Error| assert!(matches!(error, Error::Io { operation: "read", .. }), "{error}");
        let numbers: Vec<u64> = (0..150).map(|_| rng.below(ITEMS_COUNT as usize) as u64).collect();
        let gets: Vec<_> = numbers.iter().map(|number| items.get_async(key(*number))).collect();
        let (here, there) = gets.into_iter().partition::<Vec<_>, _>(|_| rng.below(2) == 0);
        let mut check = |found: trine::Result<Option<trine::Value>>| match found {
            Ok(found) => assert_eq!(found.map(|found| found.len()), Some(value(0).len())),
            Err(error) => {
                failed += 1;
                is_told(error);
            }
        };
        block_on(here.into_iter().collect::<FuturesUnordered<_>>().collect::<Vec<_>>())
            .into_iter()
            .for_each(&mut check);
        run_by_hand(&world, there).into_iter().for_each(&mut check);
        let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
        match block_on(items.multi_get_async(&keys)) {
            Ok(found) => assert!(
                found
                    .iter()
                    .zip(&numbers)
                    .all(|(found, number)| { found.as_deref() == Some(&value(*number)[..]) })
            ),
            Err(error) => check(Err(error)),
        }
        let mut range = items.range_async(key(numbers[0])..);
        let mut number = numbers[0];
        while let Some(item) = block_on(range.next()) {
            match item {
                Ok((found, _)) => assert_eq!(found, key(number)[..]),
                Err(error) => check(Err(error)),
            }
            number += 1;
        }
        world.fail(&[]);
        world.run_until_idle();
        let io = db.stats().io;
        assert_eq!((io.reads_in_flight, io.reads_waiting), (0, 0), "seed {seed}");
        block_on(agrees(items, seed));
    }
    assert!(failed > 50, "{failed} reads failed");
}

/// An asynchronous scan of few items reads few blocks; one of many items reads its blocks in far fewer
/// requests.
#[test]
fn long_scans_by_futures_read_ahead() {
    for is_by_hand in [false, true] {
        let world = World::new(1);
        let (db, items) = filled(|| world.builder().memory_bytes(32 << 20).open().unwrap());
        let run = |count: u64| {
            let mut range = items.range_async(key(1000)..);
            let scan = async move {
                for number in 1000..1000 + count {
                    assert_eq!(range.next().await.unwrap().unwrap().0, key(number)[..]);
                }
            };
            match is_by_hand {
                false => block_on(scan),
                true => drop(run_by_hand(&world, vec![Box::pin(scan)])),
            }
        };
        let before = db.stats().io;
        run(20);
        let short = db.stats().io.device_read_bytes - before.device_read_bytes;
        assert!(short <= 32 << 10, "{short} bytes for 20 items");
        let before = db.stats().io;
        run(ITEMS_COUNT - 1000);
        let after = db.stats().io;
        let blocks = after.device_reads - before.device_reads;
        let requests = after.reads - before.reads;
        assert!(blocks > 400 && requests * 10 < blocks, "{blocks} blocks in {requests} requests");
    }
}
