//! Failing calls. A write that was not made is not acknowledged, and an acknowledged one is found after
//! reopening. A device failure of the log, manifest or STORE latches the store. A full disk clears by itself.
//! A failed read fails only the operation that needed it.

use crate::base::error::Error;
use crate::base::id::{FileKind, ItemKind};
use crate::base::sync::{Arc, Mutex, Ordering};
use crate::io::sim::{
    Crash, FailedSync, Failure, FaultPlan, Operation, Repeat, Select, SimDisk, SimRng, SimThreads,
};
use crate::io::storage::Storage;
use crate::read::get::GetMode;
use crate::read::trace::NoTrace;
use crate::write::batch::BatchItems;

use super::super::Store;
use super::crash::{Bounds, Examiner, OUTSIDE, Told, contents, seeds};
use super::model::Known;
use super::run::{Run, open};

const MEMORY_BYTES: u64 = 128 << 10;

/// A store with some writes in tables and some in the log, and the disk it is on.
struct Setting {
    disk: Arc<SimDisk>,
    known: Arc<Mutex<Known>>,
    store: Arc<Store>,
    threads: Arc<SimThreads>,
}

impl Setting {
    fn new(seed: u64) -> Setting {
        let disk = SimDisk::new(seed);
        let known = Arc::<Mutex<Known>>::default();
        let (store, threads) = open(&disk, None, seed, MEMORY_BYTES).expect("nothing fails yet");
        Setting { disk, known, store, threads }
    }

    fn run(&self, seed: u64) -> Run<'_> {
        let storage: Arc<dyn Storage> = self.disk.clone();
        let mut run = Run::new(&self.store, &self.threads, storage, Arc::clone(&self.known), seed);
        run.make_name("a");
        run.make_name("b");
        run.go(800);
        run
    }
}

fn put(store: &Store) -> Result<(), Error> {
    let keyspace = store.open_keyspace(OUTSIDE, &[])?;
    let mut items = BatchItems::default();
    items.push(keyspace.tree, ItemKind::Put, b"key", b"value").expect("within limits");
    store.write(&items, None)
}

/// Ends a run in which a call failed, by `crash` or by closing. Then checks that the store opens and holds
/// the expected writes.
fn examine(setting: &Setting, run: Run<'_>, crash: Option<Crash>, seed: u64) {
    let mut run = run;
    let model = std::mem::take(&mut run.past.model);
    drop(run);
    let disk = setting.disk.fork();
    disk.plan(FaultPlan::default());
    let mut examiner = Examiner::new(&model, MEMORY_BYTES, seed);
    let known = &model.known;
    let least = match crash {
        Some(crash) => {
            disk.crash(crash, 5);
            if crash == Crash::Power { known.synced } else { known.acked }
        }
        None => {
            // The writers saw the failure that this reports.
            let _ = setting.store.close();
            setting.disk.plan(FaultPlan::default());
            let closed = setting.disk.fork();
            closed.crash(Crash::Process, 0);
            examiner.check(&closed, Bounds { least: known.acked, most: known.submitted }, Crash::Process);
            return;
        }
    };
    examiner.check(&disk, Bounds { least, most: known.submitted }, crash.unwrap_or(Crash::Process));
    // The process that saw the failure may end in any way.
    setting.disk.plan(FaultPlan::default());
    // The writers saw the failure that this reports.
    let _ = setting.store.close();
}

/// A workload in which the disk call number `index` fails. Returns whether any call failed.
fn fail_somewhere(seed: u64, select: Select, failure: Failure, failed_sync: FailedSync, index: u64) -> bool {
    let _told = Told { what: format!("seed {seed}, {select:?}, {failure:?}, {failed_sync:?}, call {index}") };
    let setting = Setting::new(seed);
    let mut run = setting.run(seed);
    assert!(run.past.errors.is_empty(), "{:?}", run.past.errors);
    let plan = FaultPlan::fail(select, index, failure, Repeat::Once).with_failed_sync(failed_sync);
    setting.disk.plan(plan);
    setting.disk.start_log();
    run.go(1500);
    let failed = setting.disk.log().into_iter().find(|call| call.outcome == "failed");
    setting.disk.plan(FaultPlan::default());
    let mut rng = SimRng::new(seed ^ index);
    let is_latched = setting.store.writer.latched().is_some();
    if let Some(call) = &failed {
        let kind = call.file.map(|file| file.kind);
        let is_record = matches!(kind, Some(FileKind::Log | FileKind::Manifest | FileKind::Store));
        if is_latched {
            assert!(is_record || call.operation == Operation::SyncDirectory, "{call} latched the store");
            let may_be_full = failure == Failure::Full && kind != Some(FileKind::Store);
            assert!(!may_be_full, "{call} latched the store");
            assert!(!run.past.errors.is_empty() || setting.store.work.error(0, |_| true).is_some());
            assert!(matches!(put(&setting.store), Err(Error::Latched { .. })), "after {call}");
        } else {
            // The failure went to a commit or to background work, which by now has finished or is retried.
            (0..5).for_each(|_| run.leap());
            assert!(put(&setting.store).is_ok(), "after {call}");
            setting.store.settle().expect("it goes on");
        }
        run.check_now();
    } else {
        assert!(run.past.errors.is_empty(), "{:?}", run.past.errors);
    }
    let crash = match failed_sync {
        FailedSync::Readable => [None, Some(Crash::Process), Some(Crash::Power)][rng.index(3)],
        // While the system is up, pages lost from its memory count as damage, not as a torn end.
        FailedSync::Reverted => Some(Crash::Power),
    };
    examine(&setting, run, crash, rng.u64());
    failed.is_some()
}

/// Runs `fail_somewhere` at every `step`-th call, until there are no more calls to fail.
fn fail_everywhere(select: Select, failure: Failure, failed_sync: FailedSync, step: u64) {
    let mut count = 0;
    for seed in seeds(0..6) {
        let mut index = seed % step;
        while fail_somewhere(seed, select, failure, failed_sync, index) {
            index += step;
            count += 1;
        }
    }
    println!("{count} runs with {select:?}, {failure:?}");
    assert!(count > 0, "nothing failed");
}

fn of(operation: Operation, kind: Option<FileKind>) -> Select {
    Select { operation: Some(operation), kind }
}

/// A device failure at any one call.
#[test]
fn f07_any_call_may_fail() {
    fail_everywhere(Select::ANY, Failure::Io, FailedSync::Readable, 5);
}

/// A full disk at any one write or creation.
#[test]
fn f09_any_write_may_find_the_disk_full() {
    fail_everywhere(of(Operation::Write, None), Failure::Full, FailedSync::Readable, 4);
    fail_everywhere(of(Operation::Create, None), Failure::Full, FailedSync::Readable, 1);
}

/// A sync fails, while the next one of the same file would succeed: the store must not trust its pages.
#[test]
fn f08_any_sync_may_fail() {
    for failed_sync in [FailedSync::Readable, FailedSync::Reverted] {
        fail_everywhere(of(Operation::Sync, None), Failure::Io, failed_sync, 2);
    }
    fail_everywhere(of(Operation::SyncDirectory, None), Failure::Io, FailedSync::Readable, 1);
}

/// Reads of readers and merges fail once.
#[test]
fn f06_any_read_may_fail() {
    fail_everywhere(of(Operation::Read, Some(FileKind::Table)), Failure::Io, FailedSync::Readable, 2);
}

/// While the disk is full, writes are refused with `Full` and reads go on. Once there is space, writes
/// succeed again.
#[test]
fn f09_a_full_disk_clears() {
    let mut refused_count = 0;
    for seed in seeds(0..20) {
        let _told = Told { what: format!("seed {seed}") };
        let setting = Setting::new(seed);
        let mut run = setting.run(seed);
        let room_bytes = SimRng::new(seed).below(60_000);
        setting.disk.set_capacity_bytes(Some(setting.disk.used_bytes() + room_bytes));
        run.go(6000);
        let is_full = |error: &Error| matches!(error, Error::Full { .. });
        assert!(run.past.errors.iter().all(is_full), "{:?}", run.past.errors);
        refused_count += u64::from(!run.past.errors.is_empty());
        run.check_now();
        setting.disk.set_capacity_bytes(None);
        run.leap();
        run.past.errors.clear();
        run.go(2000);
        assert!(run.past.errors.is_empty(), "{:?}", run.past.errors);
        setting.store.settle().expect("it goes on");
        run.check_now();
        let crash = [None, Some(Crash::Process), Some(Crash::Power)][seed as usize % 3];
        examine(&setting, run, crash, seed);
    }
    assert!(refused_count > 0, "the disk was never full");
}

/// A failed read is reported to its reader, which may retry; no other operation notices.
#[test]
fn f06_a_failed_read_is_its_readers() {
    let setting = Setting::new(1);
    let run = setting.run(1);
    setting.store.flush().expect("nothing fails");
    let reads = of(Operation::Read, Some(FileKind::Table));
    setting.disk.plan(FaultPlan::fail(reads, 0, Failure::Io, Repeat::Always));
    let name = &setting.store.keyspaces()[0].name;
    assert!(matches!(contents(&setting.store, name), Err(Error::Io { .. })));
    put(&setting.store).expect("writes go on");
    setting.disk.plan(FaultPlan::default());
    run.check_now();
}

/// A get waits for two runs at once and fails because the newer run's block could not be read. It still
/// completes the other read, because another caller may wait for that.
#[test]
fn f06_a_failed_get_leaves_no_read_undone() {
    let mut failed_count = 0;
    // With these seeds, gets read two runs in parallel.
    for seed in (2..100).step_by(5) {
        let disk = SimDisk::new(seed);
        let opened = || open(&disk, None, seed, 64 << 20).expect("opens").0;
        let (store, settings) = (opened(), [("filter_kind".to_owned(), 1)]);
        let keyspace = store.open_keyspace("items", &settings).expect("no fault");
        for round in 0..2 {
            for number in 0..300_u32 {
                let mut items = BatchItems::default();
                items
                    .push(keyspace.tree, ItemKind::Put, &number.to_be_bytes(), &[round; 100])
                    .expect("small");
                store.write(&items, None).expect("no fault");
            }
            store.flush().expect("no fault");
        }
        store.close().expect("no fault");
        let store = opened();
        let keyspace = store.keyspace("items").expect("it is there");
        let reads = || store.blocks.counts.block_reads.load(Ordering::Relaxed);
        let before = reads();
        disk.plan(FaultPlan::fail(of(Operation::Read, Some(FileKind::Table)), 0, Failure::Io, Repeat::Once));
        let key = 100_u32.to_be_bytes();
        let got = store.get(&keyspace, (&key, GetMode::Value), None, &mut NoTrace, |value| value.is_some());
        assert_eq!(reads() - before, 2, "both are read to their end");
        assert_eq!(store.cache.stats().in_flight, 0);
        match got {
            Ok(is_there) => assert!(is_there),
            Err(error) => {
                assert!(matches!(error, Error::Io { .. }), "{error}");
                failed_count += 1;
            }
        }
        store.close().expect("no fault");
    }
    assert!(failed_count > 0, "the newer one is sometimes read first");
}
