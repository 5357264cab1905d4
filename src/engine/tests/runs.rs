//! Long random runs of all operations, crashed at every call or at a share of them.

use crate::base::sync::{Arc, Mutex, Ordering};
use crate::io::sim::{Crash, SimDisk};
use crate::io::storage::Storage;

use super::crash::{Examiner, Told, seeds};
use super::model::Known;
use super::play::Recorded;
use super::recorder::Recorder;
use super::run::{Run, open};

/// Calls of an opening that flushes logs.
const FLUSHING_OPEN_CALLS: u64 = 300;

/// Records a workload of this seed, with the disk at every call.
fn record(seed: u64, steps: usize) -> Recorded {
    record_with(seed, steps, if seed.is_multiple_of(3) { 256 << 10 } else { 128 << 10 })
}

/// As [`record`], under a given budget.
fn record_with(seed: u64, steps: usize, memory_bytes: u64) -> Recorded {
    let disk = SimDisk::new(seed);
    let known = Arc::<Mutex<Known>>::default();
    let recorder = Recorder::new(&disk, &known);
    let over: Arc<dyn Storage> = recorder.clone();
    let (store, threads) = open(&disk, Some(Arc::clone(&over)), seed, memory_bytes).expect("nothing fails");
    let mut run = Run::new(&store, &threads, over, known, seed);
    if memory_bytes >= 1 << 20 {
        run.past.mix.value_bytes = 4000;
    }
    run.make_name("a");
    run.make_name("b");
    if seed % 2 == 1 {
        run.fill_manifest();
        // The moments so far are tested elsewhere.
        recorder.take();
    }
    run.go(steps);
    let past = run.end();
    assert!(past.errors.is_empty(), "{:?}", past.errors);
    let work = &store.work;
    let (flushes, merges) = (work.flushes.load(Ordering::Relaxed), work.merges.load(Ordering::Relaxed));
    let manifest = store.catalog.take(&*store.env.threads).manifest.file().number;
    let (writes, ingests) = (past.model.writes_count(), past.ingests_count);
    println!(
        "seed {seed}: {writes} writes, {flushes} flushes, {merges} merges, {ingests} ingests, manifest {manifest}"
    );
    store.close().expect("nothing fails");
    Recorded { model: past.model, moments: recorder.take(), memory_bytes }
}

/// Runs of several seeds, each crashed at every call in several ways.
fn crash_everywhere(seeds: std::ops::Range<u64>, steps: usize, share: u64) {
    let mut states_count = 0;
    let mut moments_count = 0;
    for seed in super::crash::seeds(seeds) {
        let told = Told { what: format!("run of seed {seed}") };
        let recorded = record(seed, steps);
        let mut examiner = Examiner::new(&recorded.model, recorded.memory_bytes, seed);
        moments_count += examiner.crash_some(&recorded.moments, share);
        states_count += examiner.states_count;
        drop(told);
    }
    println!("{states_count} states after crashes at {moments_count} moments");
}

/// Wherever a run stops, the store holds one prefix of its writes, with all acknowledged ones.
#[test]
fn a_crash_leaves_a_prefix() {
    crash_everywhere(0..3, 5000, 1);
}

/// The same for other seeds: a separate test, so that two run in parallel.
#[test]
fn a_crash_leaves_a_prefix_too() {
    crash_everywhere(3..6, 5000, 1);
}

/// Long runs and many seeds, crashed at a share of the calls.
#[test]
fn a_crash_leaves_a_prefix_of_long_runs() {
    crash_everywhere(100..110, 12_000, 50);
}

/// A store is opened under an eighth of the budget that it was written with. Its logs are flushed during the
/// opening within that budget. A crash meanwhile keeps the state it found.
#[test]
fn a_crash_leaves_a_prefix_for_a_smaller_budget() {
    let mut states_count = 0;
    for seed in self::seeds(200..203) {
        let told = Told { what: format!("run of seed {seed}") };
        let recorded = record_with(seed, 5000, 1 << 20);
        let mut examiner = Examiner::new(&recorded.model, recorded.memory_bytes, seed);
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

/// The same seed produces the same disk calls, byte by byte, in any order of commits, flushes and merges.
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
