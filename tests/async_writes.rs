//! Asynchronous writes: same results as blocking writes, cancelled as a whole, and never blocking the thread
//! that polls.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use trine::sim::{Crash, Failure, Fault, Operation, Repeat, Stop, World};
use trine::{Access, Db, Durability, Error, WriteAsync, block_on};

/// Counts wake-ups.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Wakes>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(write: &mut WriteAsync) -> Poll<trine::Result<()>> {
    Pin::new(write).poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls all writes until each is done.
async fn all(mut writes: Vec<WriteAsync>) -> trine::Result<()> {
    std::future::poll_fn(|context| {
        let mut index = 0;
        while index < writes.len() {
            match Pin::new(&mut writes[index]).poll(context) {
                Poll::Ready(Ok(())) => drop(writes.swap_remove(index)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => index += 1,
            }
        }
        if writes.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// A write that has nothing to wait for completes at its first poll, on the polling thread.
#[test]
fn a_write_without_a_wait_is_done_at_once() {
    let world = World::new(1);
    let db = world.builder().open().unwrap();
    let items = db.ordered("a").open().unwrap();
    for number in 0..1000u32 {
        let mut write = items.put_async(number.to_be_bytes(), b"value");
        assert!(matches!(poll(&mut write), Poll::Ready(Ok(()))), "{number}");
    }
    assert!(matches!(poll(&mut items.delete_async(7u32.to_be_bytes())), Poll::Ready(Ok(()))));
    let mut batch = db.batch();
    batch.put(&items, b"x", b"1").unwrap();
    batch.delete(&items, 8u32.to_be_bytes()).unwrap();
    assert!(matches!(poll(&mut batch.commit_async()), Poll::Ready(Ok(()))));
    assert_eq!(items.iter().count(), 999);
    assert_eq!(db.stats().write.commits, 1002);
    assert!(matches!(poll(&mut db.batch().commit_async()), Poll::Ready(Ok(()))), "an empty batch");
}

/// One thread polls ten thousand writes with `Durability::Sync`. It never blocks, and the writes share their
/// syncs.
#[test]
fn one_thread_has_many_writes() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path().join("store")).unwrap();
    let items = db.ordered("a").open().unwrap();
    let before = db.stats().io.syncs;
    let put = |number: u32| items.put_async(number.to_be_bytes(), [7; 50]).durability(Durability::Sync);
    block_on(all((0..10_000).map(put).collect())).unwrap();
    let syncs = db.stats().io.syncs - before;
    assert!(syncs < 2000, "{syncs} syncs");
    assert_eq!(items.iter().count(), 10_000);
    block_on(db.sync_async()).unwrap();
    drop(items);
    db.close().unwrap();
    let db = Db::open(directory.path().join("store")).unwrap();
    assert_eq!(db.ordered("a").open().unwrap().iter().count(), 10_000);
}

/// While threads write and sync, every future completes and every item is there.
#[test]
fn futures_and_threads_write_together() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path().join("store")).unwrap();
    let items = db.ordered("a").open().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (db, items) = (&db, &items);
            scope.spawn(move || {
                for round in 0..200u32 {
                    let key = |number: u32| [thread, round, number].map(u32::to_be_bytes).concat();
                    if thread % 2 == 0 {
                        items.put(key(0), b"1").unwrap();
                        if round % 10 == 0 {
                            db.sync().unwrap();
                        }
                    } else {
                        let durability = if round % 3 == 0 { Durability::Sync } else { Durability::Buffered };
                        let put = |number| items.put_async(key(number), b"1").durability(durability);
                        block_on(all((0..5).map(put).collect())).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(items.iter().count(), 2 * 200 + 2 * 200 * 5);
}

/// A batch whose future is dropped at any moment is there whole or not at all, and nothing waits for it. A
/// batch dropped before the store ran is not there.
#[test]
fn dropped_writes_are_whole_or_not_there() {
    let mut seen = [false; 2];
    for turns in 0..12 {
        let world = World::new(turns);
        let db = world.builder().open().unwrap();
        let items = db.ordered("a").open().unwrap();
        let mut batch = db.batch();
        (0..3u32).for_each(|number| batch.put(&items, number.to_be_bytes(), b"1").unwrap());
        let mut write = batch.commit_async().durability(Durability::Sync);
        assert!(poll(&mut write).is_pending());
        let mut done = false;
        for _ in 0..turns {
            world.run_one();
            done |= poll(&mut write).is_ready();
            if done {
                break;
            }
        }
        drop(write);
        // Other writes go on.
        items.put(b"other", b"2").unwrap();
        block_on(items.put_async(b"another", b"3").durability(Durability::Sync)).unwrap();
        let count = items.range(..3u32.to_be_bytes()).count();
        assert!(count == 0 || count == 3, "{count} of 3 items");
        assert!(count == 3 || !done);
        if turns == 0 {
            assert_eq!(count, 0, "the store never had a turn");
        }
        seen[usize::from(count == 3)] = true;
        world.run_until_idle();
        assert_eq!(items.iter().count(), count + 2);
    }
    assert_eq!(seen, [true; 2], "both were seen");
}

/// A write acknowledged as durable survives a power cut at any disk call. Any other write is whole or absent.
#[test]
fn acknowledged_writes_survive_power_loss() {
    let run = |stop: Option<u64>| {
        let world = World::new(3);
        let db = world.builder().open().unwrap();
        let items = db.ordered("a").open().unwrap();
        db.sync().unwrap();
        if let Some(index) = stop {
            world.stop(Stop::Before, index);
        }
        let calls_before = world.calls();
        let mut answered = 0u32;
        for number in 0..20u32 {
            let mut batch = db.batch();
            (0..2u32).for_each(|part| {
                batch.put(&items, [number, part].map(u32::to_be_bytes).concat(), b"1").unwrap()
            });
            match block_on(batch.commit_async().durability(Durability::Sync)) {
                Ok(()) => answered += 1,
                Err(_) => break,
            }
        }
        let calls = world.calls() - calls_before;
        (world, answered, calls)
    };
    let (_, all, calls) = run(None);
    assert_eq!(all, 20);
    for index in (0..calls).step_by(3) {
        let (world, answered, _) = run(Some(index));
        let world = world.crash(Crash::Power, index);
        let db = world.builder().open().unwrap();
        let items = db.ordered("a").open().unwrap();
        let found = items.iter().count();
        assert!(found % 2 == 0 && found as u32 / 2 >= answered, "{found} items, {answered} batches answered");
    }
}

/// A write without room in the write buffer waits. Dropping its future leaves no trace. Other writes complete
/// once there is room.
#[test]
fn writes_wait_for_room() {
    let world = World::new(5);
    let db = world.builder().memory_bytes(1 << 20).open().unwrap();
    let items = db.ordered("a").open().unwrap();
    let write = |number: u32| items.put_async(number.to_be_bytes(), vec![7; 1000]);
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&waker);
    let mut waiting = Vec::new();
    let mut done = 0u32;
    // No worker runs, so the room runs out.
    for number in 0..3000u32 {
        let mut write = write(number);
        match Pin::new(&mut write).poll(&mut context) {
            Poll::Ready(result) => {
                result.unwrap();
                done += 1;
            }
            Poll::Pending => waiting.push((number, write)),
        }
        if waiting.len() == 10 {
            break;
        }
    }
    assert_eq!(waiting.len(), 10, "{done} found room");
    let given_up: Vec<u32> = waiting.drain(5..).map(|(number, _)| number).collect();
    let mut waiting: Vec<WriteAsync> = waiting.into_iter().map(|(_, write)| write).collect();
    world.run_until_idle();
    world.advance_ns(1_000_000_000);
    world.run_until_idle();
    assert!(wakes.0.load(Ordering::SeqCst) >= 5);
    for write in &mut waiting {
        assert!(matches!(Pin::new(write).poll(&mut context), Poll::Ready(Ok(()))));
    }
    assert_eq!(items.iter().count(), done as usize + 5);
    assert!(given_up.iter().all(|number| !items.contains(number.to_be_bytes()).unwrap()));
}

/// Invalid writes fail with the right error, also if the store was closed in the meantime.
#[test]
fn refusals() {
    let world = World::new(6);
    let db = world.builder().open().unwrap();
    let items = db.ordered("a").open().unwrap();
    let refused = block_on(items.put_async([0; 70_000], b"1")).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { what: "key", .. }), "{refused}");
    let dropped = db.ordered("b").open().unwrap();
    let write = dropped.put_async(b"k", b"1");
    db.drop_keyspace("b").unwrap();
    assert!(matches!(block_on(write).unwrap_err(), Error::Dropped { .. }));
    let mut pending = items.put_async(b"k", b"1").durability(Durability::Sync);
    assert!(poll(&mut pending).is_pending());
    let late = items.put_async(b"l", b"1");
    let other = db.clone();
    db.close().unwrap();
    let ended = block_on(pin!(pending)).unwrap_err();
    assert!(matches!(ended, Error::Closed), "{ended}");
    assert!(matches!(block_on(late).unwrap_err(), Error::Closed));
    assert!(matches!(block_on(other.sync_async()).unwrap_err(), Error::Closed));
    drop((items, other, dropped));
    let db = world.builder().access(Access::ReadOnly).open().unwrap();
    let items = db.keyspace("a").unwrap();
    assert!(matches!(block_on(items.put_async(b"k", b"1")).unwrap_err(), Error::ReadOnly));
}

/// A full disk fails the write that meets it. Later writes succeed once there is room.
#[test]
fn a_full_disk_is_told() {
    let world = World::new(8);
    let db = world.builder().open().unwrap();
    let items = db.ordered("a").open().unwrap();
    items.put(b"before", b"1").unwrap();
    let full = Fault::of(Operation::Write, Failure::Full).in_files("log");
    world.fail(&[full.repeat(Repeat::Always)]);
    for durability in [Durability::Buffered, Durability::Sync] {
        let refused = block_on(items.put_async(b"k", b"1").durability(durability)).unwrap_err();
        assert!(matches!(refused, Error::Full { .. }), "{refused}");
    }
    world.fail(&[]);
    block_on(items.put_async(b"after", b"1").durability(Durability::Sync)).unwrap();
    assert_eq!(items.iter().count(), 2);
}
