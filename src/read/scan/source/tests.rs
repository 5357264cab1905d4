//! A whole scan of one run of several tables asks for each block once, and in time.

use super::super::{Pinned, ScanMachine};
use super::*;
use crate::base::epoch::{Epoch, Published};
use crate::base::hash::HashSecret;
use crate::base::id::{FileKind, FileName, KeyspaceId, PartitionId};
use crate::base::region::Region;
use crate::base::step::{Answer, MachineStep};
use crate::cache::{BlockRef, Claim, ReadSlot};
use crate::format::table::compressed::Compression;
use crate::format::table::filter::FilterPlan;
use crate::io::sim::SimDisk;
use crate::io::storage::Storage;
use crate::levels::gaps::{Gaps, Sight};
use crate::levels::version::{Placed, Spot, Version, VersionChange};
use crate::table::{
    IndexPlan, PageBudget, SliceShape, TableBuilder, TableFile, TableIdentity, TableOwner, complete_read,
};

const TREE: TreeId = TreeId { keyspace: KeyspaceId(1), partition: PartitionId(1) };
const TABLES: usize = 3;
/// Two items fill a block.
const VALUE_BYTES: usize = 1970;
const BLOCK_ITEMS: usize = 2;
const BLOCK_BYTES: usize = 4096;
const TABLE_BLOCKS: usize = 700;

/// The time at which windows read apart are cached.
#[derive(Clone, Copy, PartialEq)]
enum Arrival {
    /// Before the scan goes on.
    AtOnce,
    /// In flight until the scan waits for it.
    WhenAsked,
}

/// A run alone in its view, before an empty cache.
struct World {
    storage: Arc<dyn Storage>,
    epoch: Epoch,
    cache: Cache,
    view: Arc<View>,
}

impl World {
    fn new(cache_bytes: usize) -> World {
        let disk = SimDisk::new(1);
        disk.create_directory().expect("no fault");
        let storage: Arc<dyn Storage> = disk;
        let mut changes = vec![VersionChange::AddTree(TREE)];
        changes.extend((0..TABLES as u64).map(|table| add(&storage, table)));
        let version = Arc::new(Version::default().after(changes));
        let epoch = Epoch::new();
        let cache = Cache::new(cache_bytes, epoch.clone(), Region::heap);
        World { storage, epoch, cache, view: Arc::new(View { generations: Vec::new(), version }) }
    }

    /// Every block of the run, in the order of a scan.
    fn blocks(&self, direction: Direction) -> Vec<BlockAddress> {
        let run = self.view.version.tree(TREE).and_then(|tree| tree.run(1, 0, &[])).expect("it was added");
        let of_table = |placed: &Placed| {
            let mut cursor = TableCursor::new(Arc::clone(&placed.table), direction);
            cursor.seek(Bound::Unbounded);
            let first = cursor.target().expect("tables have items");
            std::iter::once(first).chain(cursor.upcoming(usize::MAX)).collect::<Vec<_>>()
        };
        let mut tables: Vec<_> = run.tables().iter().map(of_table).collect();
        if direction == Direction::Backward {
            tables.reverse();
        }
        tables.concat()
    }

    fn fetch(&self, address: &BlockAddress) -> BlockRef {
        match self.cache.claim(address) {
            Claim::Ready(block) => block,
            Claim::Wait(_) => unreachable!("one thread"),
            Claim::Read(slot) => self.read(slot),
        }
    }

    fn read(&self, mut slot: ReadSlot) -> BlockRef {
        let BlockAddress { file, offset, .. } = *slot.address();
        let read = self.storage.read(file, offset, slot.buffer());
        complete_read(slot, read.expect("no fault")).expect("as it was written")
    }

    /// A step under a pin of its own.
    fn step<R>(&self, (view, gaps): (&Published<View>, &Gaps), step: impl FnOnce(Pinned<'_>) -> R) -> R {
        let pin = self.epoch.pin();
        step(Pinned { view: view.load(&pin), pin: &pin, cache: &self.cache, gaps })
    }

    /// Scans all of the run.
    fn scan(&self, direction: Direction, arrival: Arrival) -> Asked {
        let blocks = self.blocks(direction);
        let place = |block: &BlockAddress| {
            let same = |one: &BlockAddress| (one.file, one.offset) == (block.file, block.offset);
            blocks.iter().position(same).expect("a block of the run")
        };
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let gaps = Gaps::new();
        let sight = Sight { tree: TREE, bound: 1, era: gaps.era() };
        let mut scan = ScanMachine::new(sight, everything, direction);
        let published = Published::new(&self.epoch, Arc::clone(&self.view));
        let (mut asked, mut on_their_way) = (Asked::default(), Vec::new());
        for item in 0.. {
            let at = item / BLOCK_ITEMS;
            let mut step = self.step((&published, &gaps), |pinned| scan.advance(pinned));
            let is_over = loop {
                let apart = scan.take_apart();
                for block in &apart {
                    match self.cache.claim(block) {
                        Claim::Read(slot) if arrival == Arrival::WhenAsked => on_their_way.push(slot),
                        Claim::Read(slot) => drop(self.read(slot)),
                        Claim::Ready(_) | Claim::Wait(_) => panic!("it is asked for once"),
                    }
                }
                if !apart.is_empty() {
                    asked.windows.push((at, apart.iter().map(place).collect()));
                }
                let reads = match step {
                    MachineStep::Done(moved) => break !moved.expect("no fault"),
                    MachineStep::Ask(reads) => reads,
                    MachineStep::Touch | MachineStep::Wait => {
                        unreachable!("it has one run, and was answered")
                    }
                };
                let (ahead, missing): (Vec<_>, Vec<_>) =
                    reads.into_iter().partition(|read| read.ask == AHEAD);
                ahead.iter().for_each(|read| drop(self.fetch(&read.block)));
                asked.beside.extend(ahead.iter().map(|read| place(&read.block)));
                let [Read { ask, block }] = missing[..] else { panic!("one run misses one block") };
                let result = match on_their_way.iter().position(|slot| *slot.address() == block) {
                    Some(index) => self.read(on_their_way.swap_remove(index)),
                    None => {
                        asked.missed.push(place(&block));
                        self.fetch(&block)
                    }
                };
                let answer = Answer { ask, result: Ok(result) };
                step = self.step((&published, &gaps), |pinned| scan.resume(pinned, answer));
            };
            if is_over {
                assert_eq!((item, blocks.len()), (blocks.len() * BLOCK_ITEMS, TABLES * TABLE_BLOCKS));
                return asked;
            }
        }
        unreachable!("a scan ends")
    }
}

/// The asks of a scan, as indexes of blocks in scan order.
#[derive(Default)]
struct Asked {
    missed: Vec<usize>,
    /// Together with a missing block.
    beside: Vec<usize>,
    /// Read apart, with the scan's position.
    windows: Vec<(usize, Vec<usize>)>,
}

fn add(storage: &Arc<dyn Storage>, table: u64) -> VersionChange {
    let file = FileName::new(FileKind::Table, 1 + table);
    let identity = TableIdentity { file, uid: 1 + table, store_id: 7 };
    let mut builder = TableBuilder::new(Arc::clone(storage), identity).expect("no fault");
    let shape = SliceShape {
        index: IndexPlan::Fences,
        filter: FilterPlan::of_bits(10),
        block_bytes: BLOCK_BYTES as u32,
        compression: Compression::None,
    };
    builder.begin(TREE, shape).expect("no fault");
    let count = (TABLE_BLOCKS * BLOCK_ITEMS) as u64;
    for number in table * count..(table + 1) * count {
        let key = number.to_be_bytes();
        let hash = HashSecret::expand([5; 16]).hash(&key);
        builder.add(&key, hash, ItemKind::Put, &[7; VALUE_BYTES]).expect("no fault");
    }
    builder.end().expect("no fault");
    let made = builder.finish().expect("no fault").summary;
    let owner = TableOwner::alone(HashSecret::expand([5; 16]));
    let opened = TableFile::open(storage, made.identity, made.bytes, made.checksum, &owner);
    let table = opened.expect("opens").remove(0);
    table.load_all_pages(&**storage, &PageBudget::alone(1 << 20)).expect("no fault");
    let placed =
        Placed { table, first_sequence: 1, last_sequence: 1, oldest_tombstone_s: 0, tombstones_dense: 0 };
    VersionChange::Add { spot: Spot { level: 1, run: 0 }, placed }
}

/// Scans of uncached runs, both ways: with a cache for all blocks, and with one so small that windows are cut
/// to their share and blocks are evicted.
fn scans() -> impl Iterator<Item = (usize, Asked)> {
    let ways = [Direction::Forward, Direction::Backward];
    let ways = ways.into_iter().flat_map(|way| [(way, Arrival::AtOnce), (way, Arrival::WhenAsked)]);
    ways.flat_map(|way| [(32 << 20, way), (5 << 20, way)]).map(|(cache_bytes, (direction, arrival))| {
        let world = World::new(cache_bytes);
        (world.cache.capacity_bytes() / 16, world.scan(direction, arrival))
    })
}

/// Every block is asked for once: as a missing block, together with one, or read apart, as nearly all are. A
/// block that the scan has reached is never asked for.
#[test]
fn each_block_is_asked_for_once() {
    for (_, Asked { missed, beside, windows }) in scans() {
        for (at, window) in &windows {
            assert!(window.iter().all(|block| block > at), "{window:?} at {at}");
        }
        let apart: Vec<usize> = windows.into_iter().flat_map(|(_, window)| window).collect();
        assert!(apart.len() * 10 > 9 * TABLES * TABLE_BLOCKS, "{} blocks", apart.len());
        let mut all = [missed, beside, apart].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..TABLES * TABLE_BLOCKS), "not each, or one twice");
    }
}

/// Once it reads apart, a scan asks for the next window in the middle of the last one, and misses only the
/// first block of each table. Windows are as large as the cache's share allows.
#[test]
fn windows_are_asked_for_in_time() {
    for (share_bytes, Asked { missed, windows, .. }) in scans() {
        let (growing, later): (Vec<usize>, Vec<usize>) =
            missed.into_iter().partition(|block| *block < TABLE_BLOCKS);
        assert!(growing.len() <= 3, "{growing:?}");
        assert_eq!(later, [TABLE_BLOCKS, 2 * TABLE_BLOCKS]);
        for pair in windows.windows(2) {
            let [(_, before), (at, window)] = pair else { unreachable!("two at a time") };
            if later.contains(at) {
                assert_eq!(window[0], at + 1);
                continue;
            }
            assert_eq!((*at, window[0]), (before[before.len() / 2], before[before.len() - 1] + 1));
        }
        let largest = windows.iter().map(|(_, window)| window.len()).max();
        assert_eq!(largest, Some(share_bytes.min(AHEAD_BYTES_MAX) / BLOCK_BYTES));
    }
}

/// The read-ahead of a scan is divided among its runs: half by their bytes, half by their number.
#[test]
fn windows_are_divided_among_runs() {
    const ALL: usize = 1 << 20;
    let world = World::new(1 << 20);
    let run = world.view.version.tree(TREE).and_then(|tree| tree.run(1, 0, &[])).expect("it was added");
    let windows = |sizes: &[u64]| -> Vec<usize> {
        let all = (sizes.iter().sum(), sizes.len() as u64);
        let window = |bytes: &u64| {
            let mut source = RunSource::seek(run, (1, 0), Bound::Unbounded, Direction::Forward);
            source.expect(*bytes, all);
            source.ahead.bytes = AHEAD_BYTES_MAX;
            source.window_bytes(ALL)
        };
        sizes.iter().map(window).collect()
    };
    assert_eq!(windows(&[7]), [ALL]);
    assert_eq!(windows(&[5, 5]), [ALL / 2; 2]);
    assert_eq!(windows(&[300, 100]), [ALL / 8 * 5, ALL / 8 * 3]);
    assert_eq!(windows(&[1_000_000, 0, 0, 0]), [ALL / 8 * 5, ALL / 8, ALL / 8, ALL / 8]);
}
