//! Scenarios stopped before, amid and after every call that changes the disk, by the end of the process and
//! by power cuts, and again during the recovery.
//!
//! A state is one such end. Some disks are byte for byte equal to others and are opened once. Each test
//! states the least number of states it checks and of disks it opens: together 450,700 and 181,500.

use crate::io::sim::{Crash, PowerCut, SimRng, Stop};

use super::case::{Case, What};
use super::crash::{Again, Ends, Examiner, seeds};
use super::play::{Recorded, Script, record};
use super::recorder::Moment;
use super::replay::{caught, fail};
use super::scenario::{SCENARIOS, Scenario, named};

/// Seeds of every scenario in a test run.
const SEEDS: std::ops::Range<u64> = 0..10;

/// The number of states, and of those whose disk was opened.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub(super) states: u64,
    pub(super) opened: u64,
    pub(super) moments: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: Counts) {
        self.states += other.states;
        self.opened += other.opened;
        self.moments += other.moments;
    }
}

/// A state that fails a check, and the failure's message.
pub(super) struct Wrong {
    pub(super) case: Case,
    pub(super) told: String,
}

/// The factor by which repeatable checks are repeated.
pub(super) fn scale() -> u64 {
    std::env::var("TRINE_SCALE").map_or(1, |text| text.parse().expect("TRINE_SCALE is a number"))
}

/// The ends of the process to check at one moment.
fn ends_of(rng: &mut SimRng, open_calls: u64) -> Vec<Ends> {
    let mut all = vec![Ends::once(Crash::Process, rng.u64())];
    for _ in 0..scale() {
        let cut = [PowerCut::Torn, PowerCut::Pages, PowerCut::Stale, PowerCut::Names][rng.index(4)];
        all.push(Ends { cut, ..Ends::once(Crash::Power, rng.u64()) });
        all.extend((0..3).map(|_| Ends::once(Crash::Power, rng.u64())));
        if rng.one_in(3) {
            let crash = if rng.one_in(2) { Crash::Power } else { Crash::Process };
            let again = (0..1 + rng.below(3)).map(|_| Again::random(rng, open_calls)).collect();
            all.push(Ends { again, ..Ends::once(crash, rng.u64()) });
        }
    }
    all
}

/// Stops a script at every call, in the ways that `ends` returns. Returns the first state that fails a check.
pub(super) fn stop_script(
    script: &Script,
    mut ends: impl FnMut(&mut Examiner<'_>, &Moment) -> Vec<Ends>,
) -> Result<Counts, Box<Wrong>> {
    let Recorded { model, moments, memory_bytes } = record(script);
    let mut examiner = Examiner::new(&model, memory_bytes, script.seed);
    for moment in &moments {
        for ends in ends(&mut examiner, moment) {
            if let Err(told) = caught(|| examiner.examine(moment, &ends)) {
                let what = What::Stop { call: moment.call, stop: moment.stop, ends };
                return Err(Box::new(Wrong { case: Case { script: script.clone(), what }, told }));
            }
        }
    }
    let Examiner { states_count: states, opened_count: opened, .. } = examiner;
    Ok(Counts { states, opened, moments: moments.len() as u64 })
}

/// Stops a scenario at every call.
///
/// # Panics
/// With the shortest line that replays a failing state.
pub(super) fn stop_everywhere(scenario: &'static Scenario, seed: u64) -> Counts {
    let mut rng = SimRng::new(!seed);
    let script = Script::new(scenario, seed);
    let stopped = stop_script(&script, |examiner, _| ends_of(&mut rng, examiner.open_calls));
    stopped.unwrap_or_else(|wrong| fail(wrong.case, &wrong.told))
}

/// Stops the named scenario, and checks that at least so many states and disks were covered.
fn stops(name: &str, states_min: u64, opened_min: u64) {
    let (mut counts, seeds) = (Counts::default(), seeds(SEEDS));
    for seed in seeds.clone() {
        counts.add(stop_everywhere(named(name).expect("it is one"), seed));
    }
    println!("{name}: {counts:?}");
    let is_enough = counts.states >= states_min && counts.opened >= opened_min;
    assert!(is_enough || seeds != SEEDS, "{counts:?}");
}

/// Stops some scenarios at every call by power cuts of one kind.
fn cuts(cut: PowerCut, names: &[&str], states_min: u64) {
    let mut counts = Counts::default();
    for (name, seed) in names.iter().flat_map(|name| seeds(20..22).map(move |seed| (name, seed))) {
        let mut rng = SimRng::new(seed);
        let script = Script::new(named(name).expect("it is one"), seed);
        let ends = |rng: &mut SimRng| {
            (0..4 * scale()).map(|_| Ends { cut, ..Ends::once(Crash::Power, rng.u64()) }).collect()
        };
        match stop_script(&script, |_, _| ends(&mut rng)) {
            Ok(some) => counts.add(some),
            Err(wrong) => fail(wrong.case, &wrong.told),
        }
    }
    println!("{cut:?}: {counts:?}");
    assert!(counts.states >= states_min || seeds(20..22) != (20..22), "{counts:?}");
}

/// Write buffers fill, and logs take turns.
#[test]
fn f01_rotate() {
    stops("rotate", 10_400, 4500);
}

/// Batches of three writers share writes and syncs.
#[test]
fn f01_group_commits() {
    stops("group_commits", 11_300, 4400);
}

/// Write buffers become tables.
#[test]
fn f01_flush() {
    stops("flush", 13_500, 5600);
}

/// A trie's pushes and folds, under a snapshot, and a clear.
#[test]
fn f01_tries() {
    stops("tries", 25_000, 12_000);
}

/// A trie beside keyspaces that are made and dropped; the trie itself is dropped too.
#[test]
fn f01_tries_and_names() {
    stops("tries_and_names", 25_000, 12_000);
}

/// Leveled merges.
#[test]
fn f01_leveled() {
    stops("leveled", 14_500, 6700);
}

/// Tiered merges.
#[test]
fn f01_tiered() {
    stops("tiered", 11_700, 5200);
}

/// Lazy-leveled merges, of two keyspaces.
#[test]
fn f01_lazy_leveled() {
    stops("lazy_leveled", 14_000, 6200);
}

/// Deletes of ranges, and their merges.
#[test]
fn f01_ranges() {
    stops("ranges", 19_300, 8600);
}

/// Keyspaces are cleared and filled again.
#[test]
fn f01_clear() {
    stops("clear", 18_400, 7700);
}

/// Keyspaces are dropped, and made again under the same name.
#[test]
fn f01_drop() {
    stops("drop", 13_000, 5700);
}

/// Keyspaces are made and dropped between writes.
#[test]
fn f01_keyspaces() {
    stops("keyspaces", 15_000, 6900);
}

/// Batches over several keyspaces, beside every kind of catalog change and checkpoints: a crash leaves a
/// prefix of their joint order.
#[test]
fn f01_order() {
    stops("order", 15_000, 6900);
}

/// Settings are changed between writes.
#[test]
fn f01_settings() {
    stops("settings", 18_500, 8400);
}

/// The manifest is rewritten, and STORE names the new one.
#[test]
fn f01_manifest() {
    stops("manifest", 16_400, 7500);
}

/// Snapshots keep their contents, in history tables too.
#[test]
fn f01_snapshot() {
    stops("snapshot", 17_200, 7500);
}

/// Ingests alone.
#[test]
fn f01_ingest() {
    stops("ingest", 14_800, 6100);
}

/// Ingests beside writers.
#[test]
fn f01_ingest_beside() {
    stops("ingest_beside", 17_000, 7400);
}

/// Checkpoints: each is whole or no store, and whole once its call has returned.
#[test]
fn f01_checkpoint() {
    stops("checkpoint", 19_100, 7200);
}

/// A store opened three times.
#[test]
fn f01_reopen() {
    stops("reopen", 17_700, 8000);
}

/// A killed process leaves several logs.
#[test]
fn f01_logs() {
    stops("logs", 22_600, 11_100);
}

/// A full disk on which ranges are deleted.
#[test]
fn f01_full_cleared() {
    stops("full_cleared", 10_500, 4600);
}

/// Generations that several logs hold.
#[test]
fn f01_log_switches() {
    stops("log_switches", 16_000, 7500);
}

/// A store opened with a quarter of its memory.
#[test]
fn f01_smaller() {
    stops("smaller", 17_200, 8000);
}

/// A disk is full, and later has space again.
#[test]
fn f01_full() {
    stops("full", 13_500, 6200);
}

/// Values of more than two blocks.
#[test]
fn f01_large() {
    stops("large", 13_200, 6200);
}

/// Compressed blocks.
#[test]
fn f01_packed() {
    stops("packed", 9600, 4100);
}

/// Background work under a cap.
#[test]
fn f01_capped() {
    stops("capped", 11_500, 5100);
}

/// Every way of reading, with tables and logs, and after a reopen.
#[test]
fn f01_reads() {
    stops("reads", 9900, 4000);
}

/// All operations, in processes that are killed.
#[test]
fn f01_kills() {
    stops("kills", 30_100, 13_400);
}

/// All operations.
#[test]
fn f01_everything() {
    stops("everything", 21_300, 9800);
}

/// Writes torn at any byte or sector; each page of a file may be from a different write.
#[test]
fn f02_torn_writes() {
    cuts(PowerCut::Torn, &["group_commits", "manifest", "flush", "everything", "reopen"], 11_000);
}

/// Each page is kept or lost independently.
#[test]
fn f03_pages_apart() {
    cuts(PowerCut::Pages, &["group_commits", "rotate", "leveled", "everything"], 8000);
}

/// Lengths are kept and bytes lost: zeros, noise, or another file's old bytes.
#[test]
fn f03_stale_pages() {
    cuts(PowerCut::Stale, &["group_commits", "manifest", "ingest_beside", "everything"], 9000);
}

/// Created, changed and removed names are kept or lost independently.
#[test]
fn f04_names_apart() {
    cuts(PowerCut::Names, &["manifest", "leveled", "ingest_beside", "checkpoint", "everything"], 12_000);
}

/// A recovering process is stopped before, amid and after each of its calls. So is the process that recovers
/// from that, and the one after it.
#[test]
fn f05_every_call_of_an_opening() {
    let mut counts = Counts::default();
    for (name, seed) in ["logs", "smaller", "everything", "log_switches"].into_iter().zip(seeds(40..44)) {
        let mut rng = SimRng::new(seed);
        let (script, mut index) = (Script::new(named(name).expect("it is one"), seed), 0);
        let stopped = stop_script(&script, |examiner, moment| {
            index += 1;
            // Only some moments are checked, because each has hundreds of ends.
            if !(index + seed).is_multiple_of(32 / scale().min(32)) {
                return Vec::new();
            }
            let crash = if rng.one_in(2) { Crash::Power } else { Crash::Process };
            let first = Ends::once(crash, rng.u64());
            let calls = examiner.calls_of_opening(moment, &first);
            let stops = [Stop::Before, Stop::Amid, Stop::After].into_iter();
            let all = stops.flat_map(|stop| (0..calls).map(move |call| (stop, call)));
            let mut ends = Vec::new();
            for (stop, call) in all {
                let again = Again { call, stop, ..Again::random(&mut rng, 1) };
                let more = (0..rng.below(3)).map(|_| Again::random(&mut rng, calls));
                let again = std::iter::once(again).chain(more.collect::<Vec<_>>()).collect();
                ends.push(Ends { again, ..first.clone() });
            }
            ends
        });
        match stopped {
            Ok(some) => counts.add(some),
            Err(wrong) => fail(wrong.case, &wrong.told),
        }
    }
    println!("recoveries: {counts:?}");
    assert!(counts.states >= 4000 || seeds(40..44) != (40..44), "{counts:?}");
}

/// Half of all scenarios, at every requested seed.
fn torture(half: usize) {
    let mut counts = Counts::default();
    for seed in seeds(0..1) {
        for scenario in SCENARIOS.iter().skip(half).step_by(2) {
            counts.add(stop_everywhere(scenario, seed));
        }
    }
    println!("torture: {} states, {} disks opened", counts.states, counts.opened);
}

/// One half of all scenarios: `cargo xtask torture sim`.
#[test]
#[ignore = "on request: as long as one likes"]
fn torture_stops_even() {
    torture(0);
}

/// The other half.
#[test]
#[ignore = "on request: as long as one likes"]
fn torture_stops_odd() {
    torture(1);
}
