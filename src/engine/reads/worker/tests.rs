//! The queue when its worker ends: queued blocks are read, and later ones are refused.

use std::ops::Bound;
use std::task::Waker;

use super::*;
use crate::base::error::Error;
use crate::base::id::{FileKind, ItemKind};
use crate::base::step::{BlockAddress, BlockKind, Direction};
use crate::base::sync::Event;
use crate::cache::{Claim, Waiter};
use crate::engine::Store;
use crate::engine::publish::snapshot::Point;
use crate::engine::tests::run;
use crate::io::sim::{Failure, FaultPlan, Operation, Repeat, Select, SimDisk};
use crate::read::scan::ScanMachine;
use crate::write::batch::BatchItems;

const ITEMS_COUNT: u32 = 4000;
const VALUE_BYTES: usize = 1000;

/// A store without cached blocks, and a scan that has just queued read-ahead for the worker.
struct World {
    disk: Arc<SimDisk>,
    store: Arc<Store>,
    point: Arc<Point>,
    scan: ScanMachine,
    /// Items that the scan has yielded.
    count: u32,
}

/// A store of `items_count` items without cached blocks.
fn cold(items_count: u32) -> (Arc<SimDisk>, Arc<Store>) {
    let disk = SimDisk::new(1);
    let open = || run::open(&disk, None, 1, 64 << 20).expect("opens").0;
    let store = open();
    let keyspace = store.open_keyspace("items", &[]).expect("no fault");
    for number in 0..items_count {
        let mut items = BatchItems::default();
        let value = [number as u8; VALUE_BYTES];
        items.push(keyspace.tree, ItemKind::Put, &number.to_be_bytes(), &value).expect("small");
        store.write(&items, None).expect("no fault");
    }
    store.compact().expect("no fault");
    store.close().expect("closes");
    let store = open();
    (disk, store)
}

fn scan_from(store: &Store, point: &Point, number: u32) -> ScanMachine {
    let keyspace = store.keyspace("items").expect("it is there");
    let range = (Bound::Included(number.to_be_bytes().to_vec()), Bound::Unbounded);
    ScanMachine::new(point.sight(keyspace.tree), range, Direction::Forward)
}

fn queued_count(store: &Store) -> usize {
    store.blocks.queue.queue.lock().ahead.len()
}

impl World {
    fn new() -> World {
        let (disk, store) = cold(ITEMS_COUNT);
        let point = store.point();
        let scan = scan_from(&store, &point, 0);
        let mut world = World { disk, store, point, scan, count: 0 };
        while queued_count(&world.store) == 0 {
            assert!(world.advance(), "so many items are read ahead apart");
        }
        world
    }

    fn advance(&mut self) -> bool {
        let has_moved = self.store.advance(&self.point, &mut self.scan).expect("no fault");
        if has_moved {
            assert_eq!(self.scan.key(), self.count.to_be_bytes());
            assert_eq!(self.scan.value(), [self.count as u8; VALUE_BYTES]);
            self.count += 1;
        }
        has_moved
    }

    /// The queued read-ahead, block by block.
    fn queued(&self) -> Vec<BlockAddress> {
        let mut blocks = Vec::new();
        for request in &mut self.store.blocks.queue.queue.lock().ahead {
            let mut offset = request.offset;
            for buffer in request.target.buffers() {
                let (file, bytes) = (request.file, buffer.len() as u32);
                blocks.push(BlockAddress { file, file_uid: 0, offset, bytes, kind: BlockKind::Data });
                offset += u64::from(bytes);
            }
        }
        blocks
    }

    fn wait_for(&self, block: &BlockAddress) -> Waiter {
        match self.store.cache.claim(block) {
            Claim::Wait(waiter) => waiter,
            Claim::Ready(_) | Claim::Read(_) => panic!("it was asked for, and is not here"),
        }
    }
}

/// Queued blocks are read when the worker ends, by itself or with the store: a waiter gets the block, or the
/// error of reading it.
#[test]
fn blocks_queued_at_the_end_are_read() {
    let ends: [fn(&Arc<Store>); 2] =
        [|store| ReadsWork::default().stop(&store.blocks), |store| store.close().expect("closes")];
    for (end, fails) in ends.into_iter().flat_map(|end| [(end, false), (end, true)]) {
        let world = World::new();
        let blocks = world.queued();
        assert!(blocks.len() >= 64, "{} blocks", blocks.len());
        let mut waiters: Vec<Waiter> = blocks.iter().map(|block| world.wait_for(block)).collect();
        assert!(
            waiters.iter_mut().all(|waiter| waiter.poll(Waker::noop()).is_none()),
            "nobody reads them yet"
        );
        if fails {
            let reads = Select { operation: Some(Operation::Read), kind: Some(FileKind::Table) };
            world.disk.plan(FaultPlan::fail(reads, 0, Failure::Io, Repeat::Always));
        }
        end(&world.store);
        let contents = world.disk.contents(blocks[0].file).expect("the table is there");
        for (block, mut waiter) in blocks.iter().zip(waiters) {
            match waiter.poll(Waker::noop()).expect("it is over") {
                Ok(bytes) => {
                    assert!(!fails && contents[block.offset as usize..].starts_with(&bytes));
                }
                Err(Error::Io { offset, source, .. }) => {
                    assert!(fails && source.to_string().contains("planned"), "{source}");
                    assert_eq!(offset, block.offset);
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(world.store.cache.stats().in_flight, 0);
        world.store.close().expect("closes");
    }
}

/// Once the worker has ended, a request is returned to its caller, and scans read for themselves.
#[test]
fn nothing_is_queued_after_the_end() {
    let mut world = World::new();
    let reads = &world.store.blocks.queue;
    let late = reads.queue.lock().ahead.pop_back().expect("there is one");
    let (file, offset) = (late.file, late.offset);
    ReadsWork::default().stop(&world.store.blocks);
    assert!(!reads.has_room_ahead());
    let refused = reads.push_ahead(late).expect("nobody would read it");
    assert_eq!((refused.file, refused.offset), (file, offset));
    world.store.blocks.read_unasked(refused);
    while world.advance() {}
    assert_eq!(world.count, ITEMS_COUNT);
    assert_eq!(format!("{:?}", world.store.blocks.queue), "Reads(0 blocks, 0 requests ahead)");
    world.store.close().expect("closes");
}

/// While the queue is full, a scan reads its read-ahead together with its missing blocks; it does not read
/// block by block.
#[test]
fn with_a_full_queue_scans_read_for_themselves() {
    let (_, store) = cold(17_000);
    let point = store.point();
    let starts = (0..).step_by(400).take_while(|_| store.blocks.queue.has_room_ahead());
    let last = starts.inspect(|start| {
        let (mut scan, before) = (scan_from(&store, &point, *start), queued_count(&store));
        while queued_count(&store) == before {
            assert!(store.advance(&point, &mut scan).expect("no fault"));
        }
    });
    let free = last.last().expect("there is room at first") + 400;
    assert!(free + ITEMS_COUNT <= 17_000);
    let (mut scan, before) = (scan_from(&store, &point, free), store.env.storage.counts().reads);
    while store.advance(&point, &mut scan).expect("no fault") {}
    let reads = store.env.storage.counts().reads - before;
    assert!(reads < 50, "{reads} reads of more than 1000 blocks");
    assert!(!store.blocks.queue.has_room_ahead(), "the worker had no turn");
    store.close().expect("closes");
}

/// A store with an empty queue, and blocks of it, no two of them adjacent.
fn apart() -> (World, Vec<BlockAddress>) {
    let world = World::new();
    let view = world.store.view_of(&world.point);
    let tables = view.version.trees().flat_map(|tree| tree.tables());
    let files: Vec<_> = tables.map(|(_, placed)| placed.table.file().identity()).collect();
    let uid = |file| files.iter().find(|identity| identity.file == file).expect("it is a table").uid;
    let whole = |block: BlockAddress| BlockAddress { file_uid: uid(block.file), ..block };
    let blocks: Vec<BlockAddress> = world.queued().into_iter().step_by(2).map(whole).collect();
    let dropped = std::mem::take(&mut world.store.blocks.queue.queue.lock().ahead);
    drop(dropped);
    assert!(blocks.len() >= 32, "{} blocks", blocks.len());
    (world, blocks)
}

impl World {
    fn claim(&self, blocks: &[BlockAddress]) -> Vec<Claimed> {
        let claim = |block: &BlockAddress| match self.store.cache.claim(block) {
            Claim::Read(slot) => Claimed::new(slot),
            Claim::Ready(_) | Claim::Wait(_) => panic!("nobody has it"),
        };
        blocks.iter().map(claim).collect()
    }

    fn push_ahead(&self, blocks: &[BlockAddress]) {
        requests(&mut self.claim(blocks), REQUEST_BYTES_MAX, &self.store.blocks.load, |request| {
            assert!(self.store.blocks.queue.push_ahead(request).is_none(), "there is a worker");
        });
    }

    fn push(&self, blocks: &[BlockAddress]) {
        assert!(self.store.blocks.queue.push(self.claim(blocks).into()).is_none(), "there is a worker");
    }
}

/// Blocks with waiters are sent before read-ahead, however long that has been queued. Read-ahead is sent only
/// while few reads are in flight.
#[test]
fn blocks_with_waiters_go_before_read_ahead() {
    let (world, blocks) = apart();
    let (ahead, asked) = blocks.split_at(12);
    world.push_ahead(ahead);
    let mut work = ReadsWork::default();
    world.push(&asked[..10]);
    assert!(work.send(&world.store.blocks));
    assert_eq!((work.in_flight, queued_count(&world.store)), (10, 12));
    let mut waiters: Vec<Waiter> = asked[..10].iter().map(|block| world.wait_for(block)).collect();
    while work.in_flight >= AHEAD_FLIGHTS_MAX {
        work.reap(&world.store.blocks);
    }
    assert!(waiters.iter_mut().any(|waiter| waiter.poll(Waker::noop()).is_some()));
    let (in_flight, begun) = (work.in_flight, AHEAD_FLIGHTS_MAX - work.in_flight);
    world.push(&asked[10..11]);
    assert!(work.send(&world.store.blocks));
    assert_eq!((work.in_flight, queued_count(&world.store)), (in_flight + begun, 12 - (begun - 1)));
    while work.send(&world.store.blocks) {
        work.reap(&world.store.blocks);
    }
    assert_eq!((queued_count(&world.store), work.in_flight), (0, 0));
    assert!(work.reader.is_none(), "it goes back when nothing is in flight");
    assert_eq!(world.store.cache.stats().in_flight, 0);
    world.store.close().expect("closes");
}

/// Under reads that never end, read-ahead has a turn too, because a scan may wait for it by now.
#[test]
fn read_ahead_has_its_turn() {
    let (world, blocks) = apart();
    let (ahead, asked) = blocks.split_at(12);
    world.push_ahead(ahead);
    let mut work = ReadsWork { asked_count: ASKED_AT_ONCE - 5, ..ReadsWork::default() };
    world.push(&asked[..10]);
    assert!(work.send(&world.store.blocks));
    assert_eq!((work.in_flight, queued_count(&world.store)), (11, 11));
    while work.send(&world.store.blocks) {
        work.reap(&world.store.blocks);
    }
    world.store.close().expect("closes");
}

/// At the end every block is read, whether it was queued, waited for room, was in flight or was read-ahead.
/// Each waiter is woken once, and so is each timer. Later requests are returned.
#[test]
fn at_the_end_everybody_is_woken() {
    let (world, blocks) = apart();
    let mut work = ReadsWork::default();
    world.push(&blocks[..6]);
    assert!(work.send(&world.store.blocks));
    assert_eq!(work.in_flight, 6);
    let load = &world.store.blocks.load;
    requests(&mut world.claim(&blocks[6..12]), REQUEST_BYTES_MAX, load, |request| {
        work.backlog.push_back(request)
    });
    world.push_ahead(&blocks[12..18]);
    world.push(&blocks[18..24]);
    let woken: Vec<Arc<Event>> = blocks[..24].iter().map(|_| Arc::default()).collect();
    let mut waiters: Vec<Waiter> = blocks[..24].iter().map(|block| world.wait_for(block)).collect();
    for (waiter, woken) in waiters.iter_mut().zip(&woken) {
        assert!(waiter.poll(&woken.waker()).is_none());
    }
    let timed: Arc<Event> = Arc::default();
    let _timer = world.store.blocks.queue.wake_at(u64::MAX, &timed.waker());
    work.stop(&world.store.blocks);
    for (waiter, woken) in waiters.iter_mut().zip(&woken) {
        assert_eq!(woken.seen(), 1);
        assert!(waiter.poll(Waker::noop()).is_some_and(|read| read.is_ok()));
    }
    assert_eq!(timed.seen(), 1);
    assert_eq!((work.in_flight, world.store.cache.stats().in_flight), (0, 0));
    let late =
        world.store.blocks.queue.push(world.claim(&blocks[24..26]).into()).expect("nobody would read it");
    assert_eq!(late.len(), 2);
    drop(late);
    world.store.close().expect("closes");
}

/// The worker's bell is rung once, by a push or by a timer earlier than its wait. It is not registered if a
/// push came before.
#[test]
fn the_bell_is_rung_once() {
    let (world, blocks) = apart();
    let reads = &world.store.blocks.queue;
    let bell: Arc<Event> = Arc::default();
    let _later = reads.wake_at(70, Waker::noop());
    assert_eq!(reads.listen(bell.waker(), 10), Some(60));
    let _latest = reads.wake_at(80, Waker::noop());
    assert_eq!(bell.seen(), 0, "the worker looks at the clock before");
    let _earlier = reads.wake_at(50, Waker::noop());
    let _first = reads.wake_at(40, Waker::noop());
    assert_eq!(bell.seen(), 1);
    assert_eq!(reads.listen(bell.waker(), 10), Some(30));
    world.push(&blocks[..1]);
    let seen = reads.pushed.seen();
    world.push(&blocks[1..2]);
    assert_eq!((bell.seen(), reads.pushed.seen()), (2, seen + 1));
    assert_eq!(reads.listen(bell.waker(), 10), Some(0));
    assert!(reads.queue.lock().bell.is_none());
    world.store.close().expect("closes");
}
