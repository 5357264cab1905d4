//! Scenarios with failing calls: each call fails once, and also together with all later ones of its kind.
//!
//! Reported errors name the failed call, and reads go on. Once calls succeed again, a store that was not
//! latched goes on. The next process finds the acknowledged writes.

use crate::base::error::Error;
use crate::base::id::FileKind;
use crate::base::sync::Arc;
use crate::io::sim::{
    Crash, DiskCall, FailedSync, Failure, FaultPlan, Operation, Repeat, Select, SimDisk, SimRng, SimThreads,
};

use super::super::Store;
use super::case::{Case, Fails, Times, What};
use super::crash::{Bounds, Care, Examiner, place_of, seeds, try_found};
use super::play::{Played, Script, Stage};
use super::replay::{caught, fail};
use super::run::{Past, Run, place_of as place_in};
use super::scenario::{ALWAYS_COUNT, SCENARIOS, Scenario};
use super::stops::scale;

/// Steps that a store takes once calls succeed again.
const STEPS_AFTER: usize = 12;

fn plan_of(fails: &[Fails]) -> FaultPlan {
    fails.iter().fold(FaultPlan::default(), |plan, one| {
        let plan = match one.times {
            Times::Once => plan.and_fail(Select::ANY, one.call, one.failure, Repeat::Once),
            Times::Always => plan.and_fail(Select::ANY, one.call, one.failure, Repeat::Always),
            Times::Alike => plan.and_fail_alike(one.call, one.failure),
        };
        plan.with_failed_sync(one.failed_sync)
    })
}

/// Plays a script in which those calls fail, and checks the results. Returns the number of failed calls.
///
/// # Panics
/// If any check fails.
pub(super) fn play(script: &Script, fails: &[Fails]) -> usize {
    let disk = SimDisk::new(script.seed);
    disk.plan(plan_of(fails));
    disk.start_log();
    let mut stage = Stage::new(&disk, &|_| {});
    stage.ends_when_latched = true;
    let Played { mut past, process, refused, is_unread } = stage.play(script);
    let log = disk.log();
    let failed: Vec<&DiskCall> = log.iter().filter(|call| call.outcome == "failed").collect();
    past.errors.extend(refused);
    check_errors(script, &past.errors, &failed);
    if let Some((store, threads)) = process {
        let may_fail = failed.iter().any(|call| call.operation == Operation::Read)
            || fails.iter().any(|one| one.times == Times::Always)
            // The second failure may still be pending and then hits these reads.
            || fails.len() > 1;
        if !is_unread {
            check_reads(&past, &store, may_fail);
        }
        disk.plan(FaultPlan::default());
        if is_unread {
            stage.resume(&mut past, &store).expect("what failed for once succeeds");
        }
        past = go_on(&stage, (&store, &threads), past, script);
        end(&disk, (store, threads), script, fails, &past, &failed);
    } else {
        disk.plan(FaultPlan::default());
        let crash = [Crash::Process, Crash::Power][script.seed as usize % 2];
        look_after(&disk, script, fails, &past, crash_of(fails, crash));
    }
    failed.len()
}

/// While the system is up, pages lost from its memory count as damage, not as a torn end.
fn crash_of(fails: &[Fails], crash: Crash) -> Crash {
    let is_reverted = fails.iter().any(|one| one.failed_sync == FailedSync::Reverted);
    if is_reverted { Crash::Power } else { crash }
}

/// Every error is of an allowed kind, and names a call that failed.
fn check_errors(script: &Script, errors: &[Error], failed: &[&DiskCall]) {
    for error in errors {
        let Some((file, offset)) = place_in(error) else {
            assert!(matches!(error, Error::Dropped { .. }), "nobody should be told: {error}");
            continue;
        };
        let is_it = |call: &&&DiskCall| {
            let is_file = call.file.map_or(file == "simulated", |one| one.to_string() == file);
            let has_offset = matches!(call.operation, Operation::Read | Operation::Write);
            // Read-ahead is read again, block by block.
            let is_place = !has_offset
                || offset
                    .is_none_or(|offset| (call.offset..call.offset + call.bytes.max(1)).contains(&offset));
            is_file && is_place
        };
        let is_full = script.scenario.may_be_full && matches!(error, Error::Full { .. });
        assert!(is_full || failed.iter().any(|call| is_it(&call)), "{error} names none of {failed:?}");
    }
}

/// Reads return exactly the acknowledged writes, even while calls fail; a read may report a failure.
fn check_reads(past: &Past, store: &Store, may_fail: bool) {
    match try_found(store, Care::All) {
        Ok(found) => {
            // Every write in a latched store's memtable was acknowledged.
            place_of(&past.model, &found, Bounds::now(&past.model.known));
        }
        Err(error) => assert!(may_fail && matches!(error, Error::Io { .. }), "reads do not go on: {error}"),
    }
}

/// A store that was not latched goes on; a latched one says so.
fn go_on(
    stage: &Stage<'_>,
    (store, threads): (&Arc<Store>, &Arc<SimThreads>),
    past: Past,
    script: &Script,
) -> Past {
    let mut run = Run::after(store, threads, Arc::clone(&stage.storage), Arc::clone(&stage.known), past);
    stage.disk.set_capacity_bytes(None);
    run.past.errors.clear();
    run.past.rng = SimRng::new(script.seed);
    (0..3).for_each(|_| run.leap());
    run.go(STEPS_AFTER);
    let is_latched = store.writer.latched().is_some();
    let may_be_told = |error: &Error| is_latched && matches!(error, Error::Latched { .. });
    assert!(run.past.errors.iter().all(may_be_told), "it does not go on: {:?}", run.past.errors);
    if !is_latched {
        store.settle().expect("it goes on");
    }
    let past = run.end();
    check_reads(&past, store, false);
    past
}

/// Ends the process in one of several ways; the next one must find the expected state.
fn end(
    disk: &Arc<SimDisk>,
    (store, threads): (Arc<Store>, Arc<SimThreads>),
    script: &Script,
    fails: &[Fails],
    past: &Past,
    failed: &[&DiskCall],
) {
    if let (Some(latched), Some(call)) = (store.writer.latched(), failed.first()) {
        let kind = call.file.map(|file| file.kind);
        let is_record = matches!(kind, Some(FileKind::Log | FileKind::Manifest | FileKind::Store));
        let is_any = failed.len() > 1 || is_record || call.operation == Operation::SyncDirectory;
        assert!(is_any, "{call} latched the store: {latched}");
    }
    let turn = fails.first().map_or(0, |one| one.call) + script.seed;
    let crash = crash_of(fails, [Crash::Process, Crash::Process, Crash::Power][turn as usize % 3]);
    if turn.is_multiple_of(3) {
        // The failure was reported before.
        let _ = store.close();
    }
    disk.kill(|| drop((store, threads)));
    look_after(disk, script, fails, past, crash);
}

/// Checks the state that a process finds after a crash.
fn look_after(disk: &Arc<SimDisk>, script: &Script, fails: &[Fails], past: &Past, crash: Crash) {
    let seed = script.seed ^ fails.first().map_or(0, |one| one.call);
    let after = disk.fork();
    after.crash(crash, seed);
    after.set_capacity_bytes(None);
    let mut examiner = Examiner::new(&past.model, script.scenario.memory_after, seed);
    examiner.check_copies(&after, &past.model.known);
    examiner.check(&after, Bounds::of(&past.model.known, crash), crash);
}

/// The calls of a script that is played as with failures, but without any.
fn calls_of(script: &Script) -> Vec<Operation> {
    let disk = SimDisk::new(script.seed);
    disk.start_log();
    let mut stage = Stage::new(&disk, &|_| {});
    stage.ends_when_latched = true;
    // The last process stays until the log is read, so the log has no calls of its drop.
    let _played = stage.play(script);
    disk.log().iter().map(|call| call.operation).collect()
}

/// The first call of a script whose failure in the way of `like` breaks a check.
pub(super) fn first_failure(script: &Script, like: &[Fails]) -> Option<Case> {
    let first = like.first()?;
    let calls = caught(|| calls_of(script)).ok()?.len() as u64;
    (0..calls).find_map(|call| {
        let moved = |one: &Fails| Fails { call: call + one.call.saturating_sub(first.call), ..*one };
        let fails: Vec<Fails> = like.iter().map(moved).collect();
        let case = Case { script: script.clone(), what: What::Fail(fails.clone()) };
        caught(|| play(script, &fails)).is_err().then_some(case)
    })
}

/// Fails every call of `takes`, or every call if it is empty, of the scenarios in each of the ways, one at a
/// time. Returns the number of runs.
fn fail_each(scenarios: &'static [Scenario], takes: &[Operation], ways: &[Way]) -> u64 {
    let mut runs = 0;
    for (scenario, seed) in scenarios.iter().flat_map(|one| seeds(0..1).map(move |seed| (one, seed))) {
        let script = Script::new(scenario, seed);
        let calls = calls_of(&script);
        let is_taken = |operation: &Operation| takes.is_empty() || takes.contains(operation);
        for (call, _) in (0..).zip(&calls).filter(|(_, operation)| is_taken(operation)) {
            for &(failure, times, failed_sync) in ways {
                run_one(&script, vec![Fails { call, failure, times, failed_sync }]);
                runs += 1;
            }
        }
    }
    println!("{takes:?}, {ways:?}: {runs} runs");
    runs
}

fn run_one(script: &Script, fails: Vec<Fails>) {
    match caught(|| play(script, &fails)) {
        Ok(failed_count) => assert!(failed_count > 0, "{fails:?} of {} did not come", script.scenario.name),
        Err(told) => fail(Case { script: script.clone(), what: What::Fail(fails) }, &told),
    }
}

/// The failure, how often it happens, and the effect of a failed sync.
type Way = (Failure, Times, FailedSync);

const KEPT: FailedSync = FailedSync::Readable;
const ONCE: Way = (Failure::Io, Times::Once, KEPT);
const ALIKE: Way = (Failure::Io, Times::Alike, KEPT);
const ALWAYS: Way = (Failure::Io, Times::Always, KEPT);
const REVERTED: Way = (Failure::Io, Times::Once, FailedSync::Reverted);
const FULL: [Way; 2] = [(Failure::Full, Times::Once, KEPT), (Failure::Full, Times::Alike, KEPT)];
const NO_DESCRIPTOR: Way = (Failure::NoDescriptor, Times::Once, KEPT);

const CHANGES: [Operation; 5] =
    [Operation::Write, Operation::Create, Operation::Rename, Operation::Link, Operation::Remove];
const LOOKS: [Operation; 5] =
    [Operation::CreateDirectory, Operation::Exists, Operation::Lock, Operation::List, Operation::Length];

/// The scenarios of every test run.
fn always() -> &'static [Scenario] {
    &SCENARIOS[..ALWAYS_COUNT]
}

/// Every read of every scenario fails: once, with all later reads, and with all later calls.
#[test]
fn f06_every_read_fails() {
    let runs = fail_each(always(), &[Operation::Read], &[ONCE, ALIKE, ALWAYS]);
    assert!(runs > 1000, "{runs}");
}

/// Every write, creation, rename and directory listing fails: once, with all later calls of the same kind,
/// and with all later calls.
#[test]
fn f07_every_write_fails() {
    let changes = fail_each(always(), &CHANGES, &[ONCE, ALIKE]);
    let looks = fail_each(always(), &LOOKS, &[ONCE, ALIKE, ALWAYS]);
    assert!(changes > 4000 && looks > 300, "{changes}, {looks}");
}

/// Every sync fails and the next of the same file succeeds; the lost pages read as written, or as before.
/// Also, every sync fails with all later syncs.
#[test]
fn f08_every_sync_fails() {
    let files = fail_each(always(), &[Operation::Sync], &[ONCE, REVERTED, ALIKE]);
    let names = fail_each(always(), &[Operation::SyncDirectory], &[ONCE, ALIKE]);
    assert!(files > 2000 && names > 300, "{files}, {names}");
}

/// Every write and creation finds the disk full: once, and with all later ones until there is space again.
#[test]
fn f09_every_write_finds_the_disk_full() {
    let runs = fail_each(always(), &[Operation::Write, Operation::Create], &FULL);
    assert!(runs > 3000, "{runs}");
}

/// Every call finds no free descriptor, once.
#[test]
fn f10_every_call_finds_no_descriptor() {
    let runs = fail_each(always(), &[], &[NO_DESCRIPTOR]);
    assert!(runs > 4000, "{runs}");
}

/// Every call of every scenario fails, in every way.
#[test]
#[ignore = "on request: as long as one likes"]
fn torture_fails_one_by_one() {
    let any = fail_each(SCENARIOS, &[], &[ONCE, ALIKE, ALWAYS, NO_DESCRIPTOR]);
    let full = fail_each(SCENARIOS, &[Operation::Write, Operation::Create], &FULL);
    let runs = any + full + fail_each(SCENARIOS, &[Operation::Sync], &[REVERTED]);
    println!("torture: {runs} runs with a failure");
}

/// Two calls of every scenario fail, in any two ways.
#[test]
#[ignore = "on request: as long as one likes"]
fn torture_fails_in_pairs() {
    let mut runs = 0u64;
    for (scenario, seed) in SCENARIOS.iter().flat_map(|one| seeds(0..1).map(move |seed| (one, seed))) {
        let script = Script::new(scenario, seed);
        let (calls, mut rng) = (calls_of(&script).len() as u64, SimRng::new(seed));
        for _ in 0..50 * scale() {
            let mut one = || Fails {
                call: rng.below(calls),
                failure: [Failure::Io, Failure::NoDescriptor][rng.index(2)],
                times: [Times::Once, Times::Once, Times::Alike, Times::Always][rng.index(4)],
                failed_sync: KEPT,
            };
            let fails = vec![one(), one()];
            match caught(|| play(&script, &fails)) {
                Ok(_) => runs += 1,
                Err(told) => fail(Case { script, what: What::Fail(fails) }, &told),
            }
        }
    }
    println!("torture: {runs} runs with two failures");
}
