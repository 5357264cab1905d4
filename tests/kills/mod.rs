//! Real kills: a process that works on a store with several threads is killed (SIGKILL) at a random time,
//! while it opens, writes, flushes, merges or closes. The remaining store is compared with the acknowledged
//! operations.
//!
//! The store survives many kills. A seed decides the plan of each life of the child ([`plan`]). A mapped file
//! outlives the child and records the progress of each thread ([`witness`]). The parent opens the store, half
//! of the times for reading only, so that the next child does the recovery and may be killed during it.
//!
//! Only the times of the kills are not decided by a seed. `TRINE_SCALE=n` makes n times as many cycles.

pub(crate) mod check;
pub(crate) mod load;
pub(crate) mod plan;
pub(crate) mod power;
pub(crate) mod witness;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trine::{Access, Create, Error};

use crate::child::{Running, command};
use crate::rng::{Rng, with_seeds};
use crate::support::Scratch;

use check::{Allowed, Crash, Found, allowed, check, check_names, promises_nothing, read_all};
use load::{COPIES, IO, WITNESS, builder};
use witness::{COPIES_MAX, OPS_MAX, Orders, Own, Phase, THREADS, Witness};

/// The kills of one test.
const CYCLES: u64 = 18;
/// The most waits of [`LOOK`] for a phase to begin before the child is taken for hung.
const LOOKS_MAX: u32 = 600_000;
const LOOK: Duration = Duration::from_micros(100);

/// The time of the kill.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// This long after a phase began.
    After(Phase, Duration),
    /// Once all threads together have made this many operations.
    Operations(usize),
}

impl Moment {
    fn choose(rng: &mut Rng) -> Moment {
        let micros = |rng: &mut Rng, most: usize| Duration::from_micros(rng.below(most) as u64);
        match rng.below(16) {
            0 => Moment::After(Phase::Started, micros(rng, 20_000) + Duration::from_millis(1)),
            1..5 => Moment::After(Phase::Opening, micros(rng, 8_000)),
            5..7 => Moment::After(Phase::Closing, micros(rng, 10_000)),
            7..11 => Moment::Operations(1 << rng.below(13)),
            11..15 => Moment::After(Phase::Loading, micros(rng, 400_000)),
            _ => Moment::After(Phase::Loading, micros(rng, 1_500_000)),
        }
    }

    /// The operations of a thread before the child closes the store.
    fn closes_after(self, rng: &mut Rng) -> usize {
        match self {
            Moment::After(Phase::Closing, _) => 1 + rng.below(1000),
            _ => OPS_MAX,
        }
    }

    /// Waits for the time.
    fn wait(self, child: &Running, witness: &Witness) {
        let go_on = |time| {
            if let Some(complaints) = child.let_go_on(time) {
                panic!("the child ended before it was killed: {complaints}");
            }
        };
        let has_come = || match self {
            Moment::After(phase, _) => witness.phase() >= phase,
            Moment::Operations(count) => {
                witness.acknowledged().iter().sum::<usize>() >= count || witness.phase() == Phase::Closed
            }
        };
        let looks = (0..LOOKS_MAX).find(|_| {
            let is_now = has_come();
            if !is_now {
                go_on(LOOK);
            }
            is_now
        });
        assert!(looks.is_some(), "the child hangs in {:?}", witness.phase());
        if let Moment::After(_, time) = self {
            go_on(time);
        }
    }
}

/// A store that is killed repeatedly.
struct Victim {
    /// The directory of witness and checkpoints.
    beside: PathBuf,
    data: PathBuf,
    io: &'static str,
    seed: u64,
    cycle: u64,
    rng: Rng,
    /// The contents when it was last checked.
    before: Found,
    owns: [Own; THREADS],
    tally: Tally,
}

/// Counts for the report.
#[derive(Default, Debug)]
struct Tally {
    kills: u64,
    /// Kills by the child's phase.
    phases: [u64; 5],
    operations: usize,
    in_doubt_done: usize,
    in_doubt_lost: usize,
    copies: usize,
}

impl Victim {
    fn new(beside: &Path, data: &Path, io: &'static str, seed: u64) -> Victim {
        Victim {
            beside: beside.to_owned(),
            data: data.to_owned(),
            io,
            seed,
            cycle: 0,
            rng: Rng::new(seed),
            before: Found::default(),
            owns: Default::default(),
            tally: Tally::default(),
        }
    }

    /// Runs one life of the child, until `end` ends it.
    fn live(&mut self, with_copies: bool, end: impl FnOnce(Running)) -> Witness {
        self.cycle += 1;
        let moment = Moment::choose(&mut self.rng);
        let closes_after = moment.closes_after(&mut self.rng);
        let orders = Orders { seed: self.seed, cycle: self.cycle, closes_after, owns: self.owns };
        let path = self.beside.join("witness");
        let witness = Witness::new(&path, &orders);
        let mut child = command(&[], "load until killed", &self.data);
        child.env(WITNESS, &path).env(IO, self.io).env(COPIES, if with_copies { "yes" } else { "no" });
        let child = Running::start(child);
        moment.wait(&child, &witness);
        end(child);
        self.tally.kills += 1;
        self.tally.phases[witness.phase() as usize] += 1;
        self.tally.operations += witness.acknowledged().iter().sum::<usize>();
        witness
    }

    /// Opens the store and compares it.
    fn look(&mut self, witness: &Witness, crash: Crash) {
        let is_read_only = self.rng.one_in(2);
        let access = if is_read_only { Access::ReadOnly } else { Access::ReadWrite };
        let db = match builder(&self.data, self.io).access(access).open() {
            Ok(db) => db,
            // The first child may have been killed before it made a store.
            Err(Error::Missing { .. }) if is_read_only && promises_nothing(witness, &self.before) => return,
            Err(error) => panic!("it does not open: {error}"),
        };
        let found = read_all(&db, &mut self.rng);
        let allowed = allowed(witness, crash);
        let places = check(witness, &self.before, &found, &allowed).unwrap_or_else(|wrong| panic!("{wrong}"));
        self.owns = check_names(witness, &found);
        for (allowed, place) in allowed.iter().zip(&places) {
            self.tally.in_doubt_done += place.start() - allowed.start();
            self.tally.in_doubt_lost += allowed.end() - place.end();
        }
        if !is_read_only && self.rng.one_in(2) {
            db.settle().unwrap();
            assert!(db.verify(|_| {}).unwrap().findings.is_empty());
            assert!(read_all(&db, &mut self.rng) == found, "flushes and merges change nothing");
        }
        db.close().unwrap();
        for copy in 0..COPIES_MAX {
            self.look_at_copy(witness, copy);
        }
        self.before = found;
    }

    /// Checks a checkpoint: it is whole or absent, and whole if it was acknowledged.
    fn look_at_copy(&mut self, witness: &Witness, copy: usize) {
        let path = self.beside.join(format!("copy {copy}"));
        if let Some(made) = witness.copy(copy) {
            match builder(&path, self.io).create(Create::Never).open() {
                Ok(db) => {
                    let found = read_all(&db, &mut self.rng);
                    let allowed: Allowed = std::array::from_fn(|thread| made.from[thread]..=made.to[thread]);
                    check(witness, &self.before, &found, &allowed).unwrap_or_else(|wrong| panic!("{wrong}"));
                    db.close().unwrap();
                    self.tally.copies += 1;
                }
                Err(Error::Missing { .. }) if !made.is_done => {}
                Err(Error::Corrupt(at)) if !made.is_done && at.file == "STORE" => {}
                Err(error) => panic!("checkpoint {made:?} does not open: {error}"),
            }
        }
        if path.exists() {
            fs::remove_dir_all(&path).unwrap();
        }
    }
}

/// The factor set in the environment.
fn scale() -> u64 {
    std::env::var("TRINE_SCALE").map_or(1, |text| text.parse().unwrap())
}

/// Kills the stores of several seeds, [`CYCLES`] times each.
fn kill(io: &'static str, first_seed: u64) {
    for round in 0..scale() {
        kill_one(io, first_seed + round);
    }
}

/// Kills the store of one seed repeatedly; returns the number of kills.
fn kill_one(io: &'static str, seed: u64) -> u64 {
    let scratch = Scratch::new();
    let mut victim = Victim::new(scratch.root(), &scratch.data(), io, seed);
    let told = Told { io, seed };
    for _ in 0..CYCLES {
        let witness = victim.live(true, Running::kill);
        victim.look(&witness, Crash::Process);
    }
    drop(told);
    println!("{io}, seed {seed}: {:?}", victim.tally);
    victim.tally.kills
}

/// Reports the seed of a test that panics.
struct Told {
    io: &'static str,
    seed: u64,
}

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "it failed with io {} and seed {}; when kills come is left to chance",
                self.io, self.seed
            );
        }
    }
}

/// Under any number of kills, no acknowledged operation is lost and nothing else is there, with reads through
/// io_uring.
#[test]
fn kills_lose_nothing_with_a_ring() {
    kill("ring", 1000);
}

/// The same with reads by a thread pool.
#[test]
fn kills_lose_nothing_with_a_pool() {
    kill("pool", 2_000_000);
}

/// The same with one read after another.
#[test]
fn kills_lose_nothing_with_pread() {
    kill("pread", 4_000_000);
}

/// Stores of any seeds, with every read method.
#[test]
#[ignore = "on request: as long as one likes"]
fn torture_kills() {
    with_seeds("torture_kills", 1, |seed| {
        let kills: u64 = ["ring", "pool", "pread"].into_iter().map(|io| kill_one(io, 8_000_000 + seed)).sum();
        println!("torture: {kills} kills");
    });
}
