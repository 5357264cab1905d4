//! Data much larger than the memory for reads: the cost of gets and scans at data : memory of 10, 100 and
//! 1,000. The memory is the total of cache, filters and fences.
//!
//! One store of 64 MiB of keys and values is written with 64 KiB of such memory and then opened with more.
//! Its contents follow from the numbers of the items, so the model needs one byte for each.

use trine::sim::{Crash, World};
use trine::{Db, Keyspace, Ordered};

use super::rng::Rng;

/// Bytes of keys and values, once merged.
const DATA_BYTES: u64 = 64 << 20;
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
/// More than fit in `DATA_BYTES`, because some are deleted.
const ITEMS: usize = (DATA_BYTES as usize + (1 << 20)) / (KEY_BYTES + VALUE_BYTES);
/// The steps of a get that read: a filter page, a fence page, a data block.
const LOADS: [&str; 3] = ["FBLoad", "IBLoad", "DBLoad"];
/// Items of a short scan; they are in four blocks of a run.
const SCANNED: usize = 100;
/// The most blocks of one run that a short scan reads: one, one more and four ahead; or two fence pages and
/// four. Where the scan goes on to another table: one more and sixteen ahead.
const SCAN_READS_A_RUN: u64 = 6;
const SCAN_READS_A_RUN_MAX: u64 = SCAN_READS_A_RUN + 17;

/// The memory for reads, and the [`LOADS`] that may need a device read in a get, because they do not fit in
/// it.
struct Ratio {
    memory_bytes: u64,
    loads: [bool; 3],
}

const RATIOS: [Ratio; 3] = [
    Ratio { memory_bytes: DATA_BYTES / 10, loads: [false, false, true] },
    Ratio { memory_bytes: DATA_BYTES / 100, loads: [true, false, true] },
    Ratio { memory_bytes: MEMORY_BYTES_LEAST, loads: [true, true, true] },
];
const MEMORY_BYTES_LEAST: u64 = 64 << 10;

fn open(world: &World, cache_bytes: u64) -> (Db, Keyspace<Ordered>) {
    let db = world.builder().memory_bytes(32 << 20).cache_bytes(cache_bytes).open().unwrap();
    // Several runs, so that reads search more than one.
    let items = db.ordered("items").set("runs_per_level", 4).set("runs_in_last_level", 1).open().unwrap();
    (db, items)
}

/// In the order of the numbers, with room between for absent keys.
fn key(number: usize) -> [u8; KEY_BYTES] {
    let mut key = *b"item/0000000000/";
    let mut rest = number;
    for digit in key[5..15].iter_mut().rev() {
        (*digit, rest) = (b'0' + (rest % 10) as u8, rest / 10);
    }
    key
}

fn absent(number: usize) -> [u8; KEY_BYTES] {
    let mut key = key(number);
    key[KEY_BYTES - 1] = b'?';
    key
}

fn value(number: usize, version: i8) -> [u8; VALUE_BYTES] {
    let seed = Rng::new((number as u64) << 8 | version as u64).u64().to_le_bytes();
    std::array::from_fn(|index| seed[index % 8])
}

/// How often each item was written; negative if its last write was a delete.
struct Model(Vec<i8>);

impl Model {
    fn value(&self, number: usize) -> Option<[u8; VALUE_BYTES]> {
        let version = self.0[number];
        (version > 0).then(|| value(number, version))
    }

    fn present(&self, rng: &mut Rng) -> usize {
        loop {
            let number = rng.below(ITEMS);
            if self.0[number] > 0 {
                return number;
            }
        }
    }

    /// Writes all items in random order, overwrites some, and deletes some.
    fn fill(db: &Db, items: &Keyspace<Ordered>, rng: &mut Rng) -> Model {
        let mut model = Model(vec![0; ITEMS]);
        // A step without a common factor with the count visits every number once.
        const STEP: usize = 7919 * 31;
        for first in (0..ITEMS).step_by(200) {
            let mut batch = db.batch();
            let again = [rng.below(ITEMS), rng.below(ITEMS), rng.below(ITEMS)];
            let all = (first..ITEMS.min(first + 200)).map(|index| index * STEP % ITEMS).chain(again);
            for number in all {
                let version = &mut model.0[number];
                *version = version.abs() + 1;
                batch.put(items, key(number), value(number, *version)).unwrap();
            }
            let number = rng.below(ITEMS);
            model.0[number] = -model.0[number].abs();
            batch.delete(items, key(number)).unwrap();
            batch.commit().unwrap();
        }
        model
    }
}

/// A store with its model, at one ratio.
struct Bench<'m> {
    db: Db,
    items: Keyspace<Ordered>,
    model: &'m Model,
    ratio: &'m Ratio,
}

impl Bench<'_> {
    fn device_reads(&self) -> u64 {
        self.db.stats().io.device_reads
    }

    fn runs(&self) -> u64 {
        self.db.stats().keyspaces[0].levels.iter().map(|level| level.runs).sum()
    }

    /// The average blocks read by a get; asserts that each get's count is within its bound for the runs.
    fn reads_a_get(&self, numbers: impl Iterator<Item = (usize, bool)>) -> f64 {
        let (runs, before) = (self.runs(), self.device_reads());
        let (mut gets, mut reads) = (0, 0);
        for (number, is_present) in numbers {
            let expected = if is_present { self.model.value(number) } else { None };
            let asked = if is_present { key(number) } else { absent(number) };
            let (found, trace) = self.items.trace(asked).unwrap();
            assert_eq!(found.as_deref(), expected.as_ref().map(|value| &value[..]), "{number}");
            for (name, load) in LOADS.iter().zip(self.ratio.loads) {
                let count = trace.steps.iter().find(|step| step.name == *name).unwrap().count;
                assert!(count <= if load { runs } else { 0 }, "{count} times {name} in {runs} runs");
                reads += count;
            }
            gets += 1;
        }
        assert_eq!(self.device_reads() - before, reads, "each read is one of the three");
        reads as f64 / f64::from(gets)
    }

    /// Checks the reads of gets: for a present key one block and the filter and fence pages, for an absent
    /// key only the pages.
    fn check_gets(&self, rng: &mut Rng) {
        let runs = self.runs() as f64;
        let [filter, fence, _] = self.ratio.loads.map(|load| f64::from(u8::from(load)));
        // At most one key in fifty is a false positive, over all runs.
        let wrong = 0.02 * (fence + 1.0);
        let mut some = |count| (0..count).map(|_| self.model.present(rng)).collect::<Vec<_>>();
        let (warming, present, others) = (some(1000), some(2000), some(2000));
        self.reads_a_get(warming.into_iter().map(|number| (number, true)));
        let reads = self.reads_a_get(present.iter().map(|number| (*number, true)));
        // In the last run the block is read instead of the filter.
        let most = filter * (runs - 1.0) + fence + 1.0;
        assert!(reads <= most + if runs > 1.0 { wrong } else { 0.0 }, "{reads} of {most}, {runs} runs");
        let missed = self.reads_a_get(others.into_iter().map(|number| (number, false)));
        // In the last run absent keys cost a fence page too, until the store sees that they are frequent.
        assert!(missed <= filter * runs + 0.2 * fence + wrong, "{missed}, {runs} runs");
        println!("{runs} runs: {reads} reads a get, {missed} of what is not there");
        let before = self.device_reads();
        for some in present.chunks(100) {
            let keys: Vec<_> = some.iter().map(|number| key(*number)).collect();
            for (number, found) in some.iter().zip(self.items.multi_get(&keys).unwrap()) {
                assert_eq!(found.as_deref(), self.model.value(*number).as_ref().map(|value| &value[..]));
            }
        }
        let together = (self.device_reads() - before) as f64 / present.len() as f64;
        // The gets of absent keys had made the last run's filters worth a read.
        assert!(together <= most + wrong + 0.05, "{together} of {most}, {runs} runs");
    }

    /// Checks scans: short ones cost a few blocks for each run; full ones, in both directions, read no block
    /// twice.
    fn check_scans(&self, rng: &mut Rng) {
        let runs = self.runs();
        let item = |number| Some((key(number), self.model.value(number)?));
        let (scans, start) = (100, self.device_reads());
        for _ in 0..scans {
            let (first, before) = (rng.below(ITEMS), self.device_reads());
            let mut found = self.items.range(key(first)..);
            for (key, value) in (first..ITEMS).filter_map(item).take(SCANNED) {
                assert!(
                    found.next().is_some_and(|one| one.is_ok_and(|one| *one.0 == key && *one.1 == value))
                );
            }
            let reads = self.device_reads() - before;
            assert!(reads <= SCAN_READS_A_RUN_MAX * runs, "{reads} reads, {runs} runs");
        }
        let reads = self.device_reads() - start;
        assert!(reads <= SCAN_READS_A_RUN * runs * scans, "{reads} reads of {scans} scans, {runs} runs");
        let pages = self.db.stats().space.table_bytes / 4096;
        let before = self.device_reads();
        let mut found = self.items.iter();
        for (key, value) in (0..ITEMS).filter_map(item) {
            assert!(found.next().is_some_and(|one| one.is_ok_and(|one| *one.0 == key && *one.1 == value)));
        }
        assert!(found.next().is_none());
        let forward = self.device_reads() - before;
        assert!(forward <= pages, "{forward} reads of {pages} pages");
        let mut found = self.items.iter().rev();
        for (key, value) in (0..ITEMS).rev().filter_map(item) {
            assert!(found.next().is_some_and(|one| one.is_ok_and(|one| *one.0 == key && *one.1 == value)));
        }
        assert!(found.next().is_none());
        let backward = self.device_reads() - before - forward;
        assert!(backward <= pages, "{backward} reads of {pages} pages");
    }

    /// The memory for reads stays within its limits.
    fn check_memory(&self) {
        let memory = self.db.stats().memory;
        let role = |name| memory.roles.iter().find(|role| role.name == name).unwrap();
        let parts = ["cache", "filters and fences"].map(role);
        assert!(parts.iter().all(|role| role.bytes <= role.limit_bytes), "{memory:?}");
        let around_bytes: u64 = ["table bounds", "blocks without a frame", "manifest", "kept write buffers"]
            .map(|name| role(name).bytes)
            .iter()
            .sum();
        let given_bytes = parts.iter().map(|role| role.limit_bytes).sum::<u64>() + around_bytes;
        // The cache gives up memory to other roles in steps.
        let steps = self.ratio.memory_bytes / 8 * 7..=self.ratio.memory_bytes;
        assert!(steps.contains(&given_bytes), "{memory:?}");
    }
}

/// Writes, reads and merges 64 MiB with read memory of a thousandth, a hundredth and a tenth of that. A get
/// reads at most one block, and for each run a page of filters and of fences if they do not fit in memory.
/// With all of them in memory it reads at most one block, and none for an absent key. Scans read each block
/// once.
#[test]
fn reads_are_bounded_at_every_ratio() {
    let (world, mut rng) = (World::new(1), Rng::new(1));
    let (db, items) = open(&world, MEMORY_BYTES_LEAST);
    let model = Model::fill(&db, &items, &mut rng);
    db.settle().unwrap();
    drop(items);
    db.close().unwrap();
    for ratio in &RATIOS {
        let (db, items) = open(&world.crash(Crash::Process, 1), ratio.memory_bytes);
        let bench = Bench { db, items, model: &model, ratio };
        assert!(bench.runs() > 3, "{} runs", bench.runs());
        for _ in 0..2 {
            bench.check_gets(&mut rng);
            bench.check_scans(&mut rng);
            bench.check_memory();
            bench.db.compact().unwrap();
        }
        assert_eq!(bench.runs(), 1);
        assert!(bench.db.stats().keyspaces[0].key_value_bytes >= DATA_BYTES);
        bench.db.close().unwrap();
    }
}

/// With data 400 times the memory for reads, the fences of the one run do not fit in it. Sketches replace
/// them, so a get reads hardly more than its block, also after a reopen.
#[test]
fn sketches_spare_fence_pages() {
    let ratio = Ratio { memory_bytes: DATA_BYTES / 400, loads: [true, true, true] };
    let (world, mut rng) = (World::new(2), Rng::new(2));
    let (db, items) = open(&world, ratio.memory_bytes);
    let model = Model::fill(&db, &items, &mut rng);
    db.compact().unwrap();
    let mut bench = Bench { db, items, model: &model, ratio: &ratio };
    for is_opened_again in [false, true] {
        world.run_until_idle();
        assert_eq!(bench.runs(), 1);
        let levels = bench.items.stats().unwrap().levels;
        let (fences, sketches_bytes) = (levels[0].fences, levels[0].sketches_bytes);
        assert!(fences.pinned_bytes < fences.bytes && sketches_bytes > 0, "{levels:?}");
        let present: Vec<usize> = (0..3000).map(|_| model.present(&mut rng)).collect();
        let reads = bench.reads_a_get(present.into_iter().map(|number| (number, true)));
        assert!(reads <= 1.1, "{reads} reads a get, opened again: {is_opened_again}");
        bench.check_scans(&mut rng);
        bench.check_memory();
        if !is_opened_again {
            bench.db.close().unwrap();
            let (db, items) = open(&world, ratio.memory_bytes);
            (bench.db, bench.items) = (db, items);
        }
    }
}
