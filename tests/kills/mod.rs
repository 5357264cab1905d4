//! Real kills: a process that works on a store with several threads is killed (SIGKILL) at any moment, while
//! it opens, writes, flushes, merges or closes, and what it leaves is compared with what it was told.
//!
//! The store lives on over many kills. Each life of the child has a plan that a seed decides ([`plan`]); a
//! mapped file outlives the child and says how far each thread was ([`witness`]). The parent opens what is
//! left, half of the times for reading only, so that the next child has the recovery to do, and is killed
//! amid it too.
//!
//! When a kill comes is the only thing that no seed decides. `TRINE_SCALE=n` makes n times as many cycles.

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

/// Kills of one test.
const CYCLES: u64 = 18;
/// How long a phase may take to begin before the child is taken for hung, in waits of [`LOOK`].
const LOOKS_MAX: u32 = 600_000;
const LOOK: Duration = Duration::from_micros(100);

/// When the kill comes.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after a phase began.
    After(Phase, Duration),
    /// Once the threads together have made so many operations.
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

    /// Operations of a thread after which the child closes the store.
    fn closes_after(self, rng: &mut Rng) -> usize {
        match self {
            Moment::After(Phase::Closing, _) => 1 + rng.below(1000),
            _ => OPS_MAX,
        }
    }

    /// Waits until it has come.
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

/// A store that is killed again and again.
struct Victim {
    /// Where witness and checkpoints are.
    beside: PathBuf,
    data: PathBuf,
    io: &'static str,
    seed: u64,
    cycle: u64,
    rng: Rng,
    /// What it held when it was last looked at.
    before: Found,
    owns: [Own; THREADS],
    tally: Tally,
}

/// What was done, to be told.
#[derive(Default, Debug)]
struct Tally {
    kills: u64,
    /// By the phase that the child was in.
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

    /// One life of the child, to its end by `end`, which is told the directory of the store.
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

    /// Opens what is left and compares it.
    fn look(&mut self, witness: &Witness, crash: Crash) {
        let is_read_only = self.rng.one_in(2);
        let access = if is_read_only { Access::ReadOnly } else { Access::ReadWrite };
        let db = match builder(&self.data, self.io).access(access).open() {
            Ok(db) => db,
            // The first child may not have come so far that there is a store.
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

    /// A checkpoint is whole or no store, and whole once it was acknowledged.
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

/// How many times as much the environment asks for.
fn scale() -> u64 {
    std::env::var("TRINE_SCALE").map_or(1, |text| text.parse().unwrap())
}

/// Stores of several seeds, each killed as often as the small number says.
fn kill(io: &'static str, first_seed: u64) {
    for round in 0..scale() {
        kill_one(io, first_seed + round);
    }
}

/// One store; how often it was killed.
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

/// Tells the seed of a test that panics.
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

/// Nothing acknowledged is lost, nothing else is there, however often the process is killed, where reads go
/// out through io_uring.
#[test]
fn kills_lose_nothing_with_a_ring() {
    kill("ring", 1000);
}

/// The same where they go out through threads.
#[test]
fn kills_lose_nothing_with_a_pool() {
    kill("pool", 2_000_000);
}

/// The same where they go one after another.
#[test]
fn kills_lose_nothing_with_pread() {
    kill("pread", 4_000_000);
}

/// Stores of any seeds, by every way to read.
#[test]
#[ignore = "on request: as long as one likes"]
fn torture_kills() {
    with_seeds("torture_kills", 1, |seed| {
        let kills: u64 = ["ring", "pool", "pread"].into_iter().map(|io| kill_one(io, 8_000_000 + seed)).sum();
        println!("torture: {kills} kills");
    });
}
