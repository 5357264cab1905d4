//! Failures of the environment: memory, threads, clocks.

use std::collections::BTreeMap;

use crate::base::error::{Error, Result};
use crate::base::region::Region;
use crate::base::settings::StoreSettings;
use crate::base::sync::{Arc, AtomicU64, Event, Ordering};
use crate::io::env::{Clock, Env, Memory, Threads, Worker};
use crate::io::os::ReadWith;
use crate::io::sim::{Crash, SimDisk};

use super::crash::{Bounds, Care, Examiner, place_of, seeds, try_found};
use super::play::{Played, Script, Stage};
use super::run::{Run, open_in};
use super::scenario::{ALWAYS_COUNT, SCENARIOS, Scenario, named};

/// Memory that refuses the regions of a range of numbers.
struct Scarce {
    inner: Arc<dyn Memory>,
    asked: Arc<AtomicU64>,
    refused: std::ops::Range<u64>,
}

impl Memory for Scarce {
    fn region(&self, bytes: usize) -> Option<Region> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        if self.refused.contains(&number) { None } else { self.inner.region(bytes) }
    }
}

/// Plays a script with such memory; returns the number of regions it asked for.
fn play_scarce(script: &Script, refused: std::ops::Range<u64>) -> u64 {
    let (disk, asked) = (SimDisk::new(script.seed), Arc::new(AtomicU64::new(0)));
    let change = |env: &mut Env| {
        let (inner, asked) = (Arc::clone(&env.memory), Arc::clone(&asked));
        env.memory = Arc::new(Scarce { inner, asked, refused: refused.clone() });
    };
    let stage = Stage::new(&disk, &change);
    let Played { mut past, process, refused: closed, .. } = stage.play(script);
    let count = asked.load(Ordering::Relaxed);
    for error in past.errors.iter().chain(&closed) {
        let Error::Io { operation, file, .. } = error else { panic!("nobody should be told: {error}") };
        assert!(*operation == "get memory for" && file.contains("generation"), "{error}");
    }
    past.errors.clear();
    if let Some((store, threads)) = process {
        let read = try_found(&store, Care::All).expect("reads go on");
        place_of(&past.model, &read, Bounds::now(&past.model.known));
        assert!(store.writer.latched().is_none(), "memory latches nothing");
        // From here on there is memory again.
        asked.store(u64::MAX / 2, Ordering::Relaxed);
        let storage = Arc::clone(&stage.storage);
        let mut run = Run::after(&store, &threads, storage, Arc::clone(&stage.known), past);
        (0..3).for_each(|_| run.leap());
        run.go(20);
        past = run.end();
        assert!(past.errors.is_empty(), "it does not go on: {:?}", past.errors);
        store.settle().expect("it goes on");
        disk.kill(|| drop((store, threads)));
    }
    disk.crash(Crash::Process, 1);
    let mut examiner = Examiner::new(&past.model, script.scenario.memory_after, script.seed);
    examiner.check(&disk, Bounds::of(&past.model.known, Crash::Process), Crash::Process);
    count
}

fn always() -> impl Iterator<Item = &'static Scenario> {
    SCENARIOS.iter().take(ALWAYS_COUNT).filter(|one| !one.may_be_full)
}

/// Every region of memory that a scenario asks for is refused, alone and with all later ones. The result is
/// an error that names its purpose, or a smaller cache. Reads go on, and writes do once there is memory.
#[test]
fn f10_every_region_of_memory_is_refused() {
    let mut runs = 0;
    for (scenario, seed) in always().flat_map(|one| seeds(0..1).map(move |seed| (one, seed))) {
        let script = Script::new(scenario, seed);
        let count = play_scarce(&script, 0..0);
        for number in 0..count {
            play_scarce(&script, number..number + 1);
            play_scarce(&script, number..u64::MAX / 4);
            runs += 2;
        }
    }
    println!("{runs} runs");
    assert!(runs > 200, "{runs}");
}

/// A refusal of memory is an error of its own and damages nothing: by name, F20's part of memory.
#[test]
fn f20_memory_for_a_store_is_refused() {
    let script = Script::new(named("leveled").expect("it is one"), 1);
    let disk = SimDisk::new(1);
    let change = |env: &mut Env| {
        let (inner, asked) = (Arc::clone(&env.memory), Arc::default());
        env.memory = Arc::new(Scarce { inner, asked, refused: 0..u64::MAX });
    };
    let refused = open_in(&disk, 1, (script.scenario.memory_bytes, 0), change).map(drop);
    assert!(matches!(refused, Err(Error::Io { operation: "get memory for", .. })), "{refused:?}");
    let (store, _threads) = open_in(&disk, 1, (script.scenario.memory_bytes, 0), |_| {}).expect("it opens");
    store.close().expect("nothing fails");
}

/// Threads that refuse to start the one of a given number.
struct Few {
    inner: Arc<dyn Threads>,
    left: AtomicU64,
}

impl Threads for Few {
    fn spawn(&self, name: &'static str, worker: Box<dyn Worker>) -> Result<()> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            let source = Arc::new(std::io::Error::from(std::io::ErrorKind::WouldBlock));
            return Err(Error::Io { operation: "start", file: name.to_owned(), offset: 0, source });
        }
        self.inner.spawn(name, worker)
    }

    fn wait(&self, event: &Event, seen: u64, timeout_ns: Option<u64>) {
        self.inner.wait(event, seen, timeout_ns);
    }

    fn is_worker(&self) -> bool {
        self.inner.is_worker()
    }

    fn join(&self) {
        self.inner.join();
    }
}

/// A thread that cannot start keeps the store from opening, and leaves it unchanged for the next opening.
#[test]
fn f10_every_thread_is_refused() {
    for number in 0..2 {
        let disk = SimDisk::new(number);
        for _ in 0..3 {
            let refused = open_in(&disk, 1, (128 << 10, 0), |env| {
                env.threads = Arc::new(Few { inner: Arc::clone(&env.threads), left: AtomicU64::new(number) });
            });
            assert!(matches!(refused, Err(Error::Io { operation: "start", .. })));
        }
        let (store, _threads) = open_in(&disk, 1, (128 << 10, 0), |_| {}).expect("it opens");
        store.close().expect("nothing fails");
    }
}

/// The fault of a wall clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Wall {
    /// The clock stands still.
    Still,
    /// Each look finds the clock a day earlier.
    Backward,
    /// Each look finds the clock years later.
    Forward,
    /// The clock leaps back and forth over decades.
    Leaps,
    /// The clock says 1970.
    Zero,
}

struct Wrong {
    inner: Arc<dyn Clock>,
    wall: Wall,
    looks: AtomicU64,
}

impl Clock for Wrong {
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn unix_s(&self) -> u64 {
        const DAY_S: u64 = 86_400;
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        match self.wall {
            Wall::Still => 1_000_000_000,
            Wall::Backward => 2_000_000_000_u64.saturating_sub(look * DAY_S),
            Wall::Forward => 1_000_000_000 + look * 365 * DAY_S,
            Wall::Leaps => look.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30,
            Wall::Zero => 0,
        }
    }
}

/// Wall clocks go back, forward by years, stand or leap. Merges come early or late. No write is lost, no
/// deleted key returns, and no call waits forever.
#[test]
fn f17_clocks_on_the_wall_go_wrong() {
    let mut states = BTreeMap::new();
    let scenarios = ["deletes_age", "leveled", "ranges", "everything", "kills", "snapshot", "capped"];
    for wall in [Wall::Still, Wall::Backward, Wall::Forward, Wall::Leaps, Wall::Zero] {
        for (name, seed) in scenarios.iter().flat_map(|name| seeds(0..3).map(move |seed| (name, seed))) {
            let change = |env: &mut Env| {
                let inner = Arc::clone(&env.clock);
                env.clock = Arc::new(Wrong { inner, wall, looks: AtomicU64::new(0) });
            };
            let (script, disk) = (Script::new(named(name).expect("it is one"), seed), SimDisk::new(seed));
            let Played { past, process, refused, .. } = Stage::new(&disk, &change).play(&script);
            assert!(refused.is_none() && past.errors.is_empty(), "{wall:?}: {:?}", past.errors);
            let (store, threads) = process.expect("it was opened");
            store.settle().expect("it comes to rest");
            let found = try_found(&store, Care::All).expect("nothing fails");
            let known = &past.model.known;
            place_of(&past.model, &found, Bounds::now(known));
            store.close().expect("nothing fails");
            disk.kill(|| drop((store, threads)));
            let mut examiner = Examiner::new(&past.model, script.scenario.memory_after, seed);
            examiner.check(&disk, Bounds::of(known, Crash::Process), Crash::Process);
            *states.entry(wall).or_insert(0) += examiner.states_count;
        }
    }
    assert!(states.len() == 5 && states.values().all(|count| *count >= 7), "{states:?}");
}

/// An experimental value is refused by name without the feature that it needs.
#[test]
fn values_of_the_lab_are_refused_without_it() {
    let asked = StoreSettings { io: 4, ..StoreSettings::default() };
    assert!(matches!(asked.read_with(true), Ok(ReadWith::RingPoll)));
    let Err(Error::Invalid { faults }) = asked.read_with(false) else { panic!("it is one") };
    assert!(faults[0].contains("ring_poll") && faults[0].contains("lab"), "{faults:?}");
    for io in 0..4 {
        assert!(StoreSettings { io, ..StoreSettings::default() }.read_with(false).is_ok());
    }
}
