//! The first crash oracle: whatever call the process stops at, and whatever a power cut leaves of what was
//! not synced, the store opens, and is in the state after one prefix of the commit order.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::base::error::Result;
use crate::base::id::{FileKind, FileName, ItemKind};
use crate::base::step::Direction;
use crate::base::sync::{Arc, Mutex, Ordering};
use crate::io::sim::{Crash, Plan, SimDisk, SimRng, SimThreads, Stop};
use crate::io::storage::{Entry, Storage};
use crate::read::get::Wants;
use crate::read::scan::Scan;
use crate::read::trace::NoTrace;
use crate::write::batch::Items;
use crate::write::writer::Until;

use super::super::Store;
use super::model::{Known, Model, Names, fingerprint};
use super::recorder::{Moment, Recorder};
use super::run::{Run, open};

/// Calls of an opening, roughly: where in it a crash comes.
pub(super) const OPEN_CALLS: u64 = 60;
/// The same where logs are flushed on the way.
const FLUSHING_OPEN_CALLS: u64 = 300;

/// Tells where a state came from if looking at it panics.
pub(super) struct Told {
    pub(super) what: String,
}

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it failed at: {}; TRINE_SEED=.. runs one seed alone", self.what);
        }
    }
}

/// Everything a run did, and the disk at every call of it.
pub(super) struct Recorded {
    pub(super) model: Model,
    pub(super) moments: Vec<Moment>,
    pub(super) memory_bytes: u64,
}

/// A workload of that seed, with the disk at every call.
pub(super) fn record(seed: u64, steps: usize) -> Recorded {
    record_with(seed, steps, if seed.is_multiple_of(3) { 256 << 10 } else { 128 << 10 })
}

/// The same under a given budget.
fn record_with(seed: u64, steps: usize, memory_bytes: u64) -> Recorded {
    let disk = SimDisk::new(seed);
    let known = Arc::new(Mutex::new(Known { names: vec![Names::new()], ..Known::default() }));
    let recorder = Recorder::new(&disk, &known);
    let over: Arc<dyn Storage> = recorder.clone();
    let (store, threads) = open(&disk, Some(Arc::clone(&over)), seed, memory_bytes).expect("nothing fails");
    let mut run = Run::new(&store, &threads, over, known, seed);
    if memory_bytes >= 1 << 20 {
        run.value_bytes = 4000;
    }
    run.make_name("a");
    run.make_name("b");
    if seed % 2 == 1 {
        run.fill_manifest();
        // What came so far is nothing new.
        recorder.take();
    }
    run.go(steps);
    assert!(run.errors.is_empty(), "{:?}", run.errors);
    let (model, ingests) = (std::mem::take(&mut run.model), run.ingests_count);
    drop(run);
    let work = &store.work;
    let (flushes, merges) = (work.flushes.load(Ordering::Relaxed), work.merges.load(Ordering::Relaxed));
    let manifest = store.catalog.take(&*store.env.threads).manifest.file().number;
    let writes = model.writes_count();
    println!(
        "seed {seed}: {writes} writes, {flushes} flushes, {merges} merges, {ingests} ingests, manifest {manifest}"
    );
    store.close().expect("nothing fails");
    Recorded { model, moments: recorder.take(), memory_bytes }
}

/// What crashes may leave of one moment.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'k> {
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) names: &'k [Names],
}

/// Counts and looks at states.
pub(super) struct Examiner<'r> {
    pub(super) model: &'r Model,
    pub(super) memory_bytes: u64,
    pub(super) open_calls: u64,
    pub(super) rng: SimRng,
    pub(super) states_count: u64,
}

impl<'r> Examiner<'r> {
    pub(super) fn of(recorded: &'r Recorded, seed: u64) -> Examiner<'r> {
        Examiner {
            model: &recorded.model,
            memory_bytes: recorded.memory_bytes,
            open_calls: OPEN_CALLS,
            rng: SimRng::new(seed),
            states_count: 0,
        }
    }

    /// Crashes at a share of the moments; how many that were.
    pub(super) fn crash_some(&mut self, moments: &[Moment], share: u64) -> u64 {
        let mut moments_count = 0;
        for moment in moments {
            if !self.rng.one_in(share) {
                continue;
            }
            moments_count += 1;
            self.crash(moment, Crash::Process, 0, 1);
            for _ in 0..3 {
                let seed = self.rng.u64();
                self.crash(moment, Crash::Power, seed, 1);
            }
            let seed = self.rng.u64();
            let crash = if self.rng.one_in(2) { Crash::Power } else { Crash::Process };
            let depth = 2 + self.rng.below(2);
            self.crash(moment, crash, seed, depth);
        }
        moments_count
    }

    /// One crash of a moment, and perhaps more while it is recovered from.
    fn crash(&mut self, moment: &Moment, crash: Crash, seed: u64, depth: u64) {
        let told = Told { what: format!("{}; {crash:?}, seed {seed}, depth {depth}", moment.what) };
        let disk = moment.disk.fork();
        disk.crash(crash, seed);
        self.recover(&disk, &moment.known, crash, depth);
        drop(told);
    }

    fn recover(&mut self, disk: &Arc<SimDisk>, known: &Known, worst: Crash, depth: u64) {
        self.states_count += 1;
        if depth <= 1 {
            let least = if worst == Crash::Power { known.synced } else { known.acked };
            self.check(disk, Bounds { least, most: known.submitted, names: &known.names });
            return;
        }
        let stop = [Stop::Before, Stop::Amid, Stop::After][self.rng.index(3)];
        disk.plan(Plan::stop(stop, self.rng.below(self.open_calls)));
        if let Ok((store, threads)) = open(disk, None, self.rng.u64(), self.memory_bytes) {
            for _ in 0..self.rng.below(40) {
                threads.run_one();
            }
            // It may or may not have stopped meanwhile.
            let _ = store.close();
        }
        let crash = if self.rng.one_in(2) { Crash::Power } else { Crash::Process };
        disk.crash(crash, self.rng.u64());
        let worst = if crash == Crash::Power { crash } else { worst };
        self.recover(disk, known, worst, depth - 1);
    }

    /// Opens the store and looks at all of it.
    pub(super) fn check(&mut self, disk: &Arc<SimDisk>, bounds: Bounds<'_>) {
        let seed = self.rng.u64();
        let (store, threads) = match open(disk, None, seed, self.memory_bytes) {
            Ok(opened) => opened,
            Err(error) => panic!("it does not open: {error}"),
        };
        let (names, place) = self.find(&store, bounds);
        match self.rng.below(8) {
            0 => {
                // What was seen once is there to stay: recovery made it durable.
                let after = disk.fork();
                after.crash(Crash::Power, seed);
                let (again, _) = open(&after, None, seed, self.memory_bytes).expect("it opens again");
                self.find(&again, Bounds { least: place, most: place, names: std::slice::from_ref(&names) });
                again.close().expect("nothing fails");
                self.states_count += 1;
            }
            1 | 2 => self.live_on(disk, &store, &threads, place, &names),
            _ => {}
        }
        store.close().expect("nothing fails");
    }

    /// Settles, has no file too many, takes writes, and opens again with them.
    fn live_on(
        &mut self,
        disk: &Arc<SimDisk>,
        store: &Arc<Store>,
        threads: &SimThreads,
        place: usize,
        names: &Names,
    ) {
        store.settle().expect("nothing fails");
        threads.run_until_idle();
        assert_no_orphans(disk, store);
        let keyspace = store.open_keyspace("after", &[]).expect("nothing fails");
        let mut items = Items::default();
        items.push(keyspace.tree, ItemKind::Put, b"key", b"value").expect("within limits");
        store.write(&items, Some(Until::Written)).expect("it takes writes");
        if self.rng.one_in(2) {
            store.compact().expect("nothing fails");
        }
        store.close().expect("nothing fails");
        let (store, threads) = open(disk, None, 1, self.memory_bytes).expect("it opens again");
        let mut now = names.clone();
        now.insert("after".to_owned(), usize::MAX);
        self.find(&store, Bounds { least: place, most: place, names: &[now] });
        store.settle().expect("nothing fails");
        threads.run_until_idle();
        assert_no_orphans(disk, &store);
        store.close().expect("nothing fails");
    }

    /// The keyspaces there are, and the prefix of writes that they hold.
    fn find(&self, store: &Store, bounds: Bounds<'_>) -> (Names, usize) {
        let found = store.keyspace_names();
        let names = bounds.names.iter().find(|names| names.keys().eq(found.iter()));
        let names = names.unwrap_or_else(|| panic!("keyspaces {found:?} instead of {:?}", bounds.names));
        let mut fingerprints = BTreeMap::new();
        for (name, space) in names {
            let fingerprint = contents(store, name).expect("everything can be read");
            if *space != usize::MAX {
                fingerprints.insert(*space, fingerprint);
            }
        }
        match self.model.prefix_of(&fingerprints, bounds.least, bounds.most) {
            Some(place) => (names.clone(), place),
            None => {
                let all = self.model.prefix_of(&fingerprints, 0, self.model.writes_count());
                panic!("the state is that of {all:?}, not of {} to {}", bounds.least, bounds.most);
            }
        }
    }
}

/// The fingerprint of a keyspace, read forward, backward and key by key.
pub(super) fn contents(store: &Store, name: &str) -> Result<u64> {
    let keyspace = store.keyspace(name)?;
    let point = store.point();
    let mut sums = [0; 2];
    let mut counts = [0; 2];
    for (index, direction) in [Direction::Forward, Direction::Backward].into_iter().enumerate() {
        let range = (Bound::Unbounded, Bound::Unbounded);
        let mut scan = Scan::new(store.view_of(&point), keyspace.tree, point.bound, range, direction);
        let mut last: Option<Vec<u8>> = None;
        while store.advance(&point, &mut scan)? {
            let (key, value) = (scan.key(), scan.value());
            let is_in_order = last.as_deref().is_none_or(|last| match direction {
                Direction::Forward => last < key,
                Direction::Backward => last > key,
            });
            assert!(is_in_order, "keys come in order");
            last = Some(key.to_vec());
            sums[index] ^= fingerprint(key, value);
            counts[index] += 1;
            if direction == Direction::Forward {
                let got = store
                    .get(&keyspace, (key, Wants::Value), None, &mut NoTrace, |got| got.map(<[u8]>::to_vec))?;
                assert_eq!(got.as_deref(), Some(value), "a get is what the scan has");
            }
        }
    }
    assert_eq!((sums[0], counts[0]), (sums[1], counts[1]), "forward is backward");
    for number in 0..80 {
        let key = format!("{number:03}").into_bytes();
        let found = store.get(&keyspace, (&key, Wants::Presence), None, &mut NoTrace, |got| got.is_some())?;
        counts[1] -= u64::from(found);
    }
    assert!(counts[1] == 0 || name.len() > 1, "gets find what the scan has, and no more");
    Ok(sums[0])
}

/// Every file is one that manifest or STORE names.
pub(in crate::engine) fn assert_no_orphans(disk: &SimDisk, store: &Store) {
    let catalog = store.catalog.take(&*store.env.threads);
    for entry in disk.fork().list().expect("nothing fails") {
        let Entry::Ours(file) = entry else { continue };
        let is_named = match file.kind {
            FileKind::Manifest => file == catalog.manifest.file(),
            FileKind::Log => catalog.state.logs.contains_key(&file.number),
            FileKind::Table => catalog.state.tables.contains_key(&file.number),
            _ => file == FileName::LOCK || file == FileName::STORE,
        };
        assert!(is_named, "{file} is an orphan");
    }
}

/// The seeds of a test, or the one that the environment asks for.
pub(super) fn seeds(all: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    match (number("TRINE_SEED"), number("TRINE_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(count)) => all.start..all.start + count,
        (None, None) => all,
    }
}

/// Runs of some seeds, each crashed at every call in several ways.
fn crash_everywhere(seeds: std::ops::Range<u64>, steps: usize, share: u64) {
    let mut states_count = 0;
    let mut moments_count = 0;
    for seed in self::seeds(seeds) {
        let told = Told { what: format!("run of seed {seed}") };
        let recorded = record(seed, steps);
        let mut examiner = Examiner::of(&recorded, seed);
        moments_count += examiner.crash_some(&recorded.moments, share);
        states_count += examiner.states_count;
        drop(told);
    }
    println!("{states_count} states after crashes at {moments_count} moments");
}

/// Whatever call a run stops at, what is found is one prefix of its writes, with all that was acknowledged.
#[test]
fn a_crash_leaves_a_prefix() {
    crash_everywhere(0..3, 5000, 1);
}

/// The same of other runs: a test of its own, so that two go at once.
#[test]
fn a_crash_leaves_a_prefix_too() {
    crash_everywhere(3..6, 5000, 1);
}

/// Long runs and many seeds, looked at here and there.
#[test]
fn a_crash_leaves_a_prefix_of_long_runs() {
    crash_everywhere(100..110, 12_000, 50);
}

/// Under an eighth of the budget that a store was written with, what its logs hold is flushed while it is
/// opened, in so little memory; a crash amid that leaves what it found.
#[test]
fn a_crash_leaves_a_prefix_for_a_smaller_budget() {
    let mut states_count = 0;
    for seed in self::seeds(200..203) {
        let told = Told { what: format!("run of seed {seed}") };
        let recorded = record_with(seed, 5000, 1 << 20);
        let mut examiner = Examiner::of(&recorded, seed);
        (examiner.memory_bytes, examiner.open_calls) = (128 << 10, FLUSHING_OPEN_CALLS);
        examiner.crash_some(&recorded.moments, 40);
        states_count += examiner.states_count;
        let mut flushes_max = 0;
        for moment in recorded.moments.iter().step_by(recorded.moments.len() / 20) {
            let disk = moment.disk.fork();
            disk.crash(Crash::Process, seed);
            let (store, _) = open(&disk, None, seed, 128 << 10).expect("it opens");
            let memory = store.stats().memory;
            assert!(memory.used_bytes <= memory.budget_bytes, "{memory:?}");
            flushes_max = flushes_max.max(store.work.flushes.load(Ordering::Relaxed));
            store.close().expect("nothing fails");
        }
        assert!(flushes_max > 2, "at most {flushes_max} flushes in an opening");
        drop(told);
    }
    println!("{states_count} states");
}

/// The same seed does the same to the disk, byte by byte, however commits, flushes and merges meet.
#[test]
fn a_seed_decides_every_call() {
    let calls = |seed| {
        let disk = SimDisk::new(seed);
        disk.start_log();
        let (store, threads) = open(&disk, None, seed, 128 << 10).expect("nothing fails");
        let storage: Arc<dyn Storage> = disk.clone();
        let mut run = Run::new(&store, &threads, storage, Arc::default(), seed);
        run.make_name("a");
        run.go(4000);
        drop(run);
        store.close().expect("nothing fails");
        (disk.log(), threads.turns())
    };
    for seed in 0..5 {
        let (first, second) = (calls(seed), calls(seed));
        let differs = first.0.iter().zip(&second.0).find(|(one, other)| one != other);
        assert!(differs.is_none() && first == second, "{differs:?}");
        assert_ne!(first, calls(seed + 1000));
    }
}
