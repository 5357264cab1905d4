//! Parallel search by two threads for each get, as in its paper, beside a serial one.
//!
//! Two hashed keyspaces represent the two parts of a trie: "upper" has the newest items, as the levels above
//! the last, and "last" has the rest. A get searches upper, then last. In a pair of threads one searches
//! upper and the other last. A delete in upper is an item without a value, because a get does not distinguish
//! a tombstone from an absent key. A move is one batch that puts an item into last and deletes it from upper,
//! as a compaction publishes both at once.
//!
//! Ways: `Serial`; `Joined` by the paper's three rules; `Printed`, the paper's algorithms 2 and 3, in which
//! the first thread counts a search without its partner's result. As printed, the partner waits while a
//! search has begun, instead of while none has. `Printed` has that corrected, and `Literal` keeps it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use trine::{Db, Hashed, Keyspace};
use trine_workload::dice::Dice;
use trine_workload::distribution::{Chooser, Distribution};
use trine_workload::failure::Failure;
use trine_workload::keys::Shape;

use super::Job;
use super::lsmtrie_cold::{FILTERS_MEMORY, ITEM_BYTES, Keys, PAPERS_MEMORY, permille_of};
use super::lsmtrie_load::{KEY_BYTES, TABLE_BYTES, VALUE_BYTES};
use super::parallel_figures;
use crate::lab::stop_if_asked;

pub(super) const STEPS: usize = 3;
/// The percentage of the items that are in upper, the same as the paper's 146.5 GB of 1.2 TB.
const UPPER_PERCENT: u64 = 12;
/// Every third item of upper overwrites an item of last, and every twelfth deletes one.
const OVERWRITE_EACH: u64 = 3;
const DELETE_EACH: u64 = 12;
/// The percentage of gets of absent keys.
const ABSENT_PERCENT: u64 = 10;
/// Pairs that saturate the machine.
pub(super) const PAIRS: usize = 8;
const MEASURED: Duration = Duration::from_millis(250);
const SHAPE: Shape = Shape { key_bytes: KEY_BYTES, compressible_percent: 0 };
/// Moves of the race, and the gets around the next key to be moved.
const MOVES: u64 = 200_000;
const MOVES_NEAR: u64 = 4;

/// The way that a get searches both parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Serial,
    Joined,
    Printed,
    Literal,
    /// The partner answers at once, which measures the cost of a hand-off.
    Handoff,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Serial => "serial",
            Way::Joined => "two threads, joined",
            Way::Printed => "two threads, as printed, wait mended",
            Way::Literal => "two threads, as printed",
            Way::Handoff => "a hand-off alone",
        }
    }
}

/// The end of a pair's run.
#[derive(Clone, Copy)]
enum Until {
    Time(Instant),
    #[cfg(test)]
    Gets(u64),
}

impl Until {
    fn is_over(self, gets: u64) -> bool {
        match self {
            Until::Time(end) => gets > 0 && Instant::now() >= end,
            #[cfg(test)]
            Until::Gets(most) => gets >= most,
        }
    }
}

/// The state of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    /// A value of the upper part.
    New,
    Deleted,
    /// A value of the last part.
    Old,
    Absent,
}

/// Both parts, in one store.
pub(super) struct Halves {
    db: Db,
    upper: Keyspace<Hashed>,
    last: Keyspace<Hashed>,
    place: std::path::PathBuf,
    count: u64,
    upper_count: u64,
}

/// By number: last has all items below `count - new`, upper has overwrites, deletes and new ones.
impl Halves {
    fn open(place: std::path::PathBuf, count: u64, part: f64) -> Result<Halves, Failure> {
        let cache_bytes = ((count * ITEM_BYTES) as f64 * part) as u64;
        let memory_bytes = (2 * cache_bytes).max(32 << 20);
        let builder = Db::builder(&place).memory_bytes(memory_bytes).cache_bytes(cache_bytes);
        let db = builder.write_buffer_bytes(TABLE_BYTES).set("search", "serial").open()?;
        let part = |name| {
            let builder = db.hashed(name).set("table_bytes", TABLE_BYTES).set("runs_in_last_level", 63);
            builder.set("filter_bits_per_key", 16).open()
        };
        let (upper, last) = (part("upper")?, part("last")?);
        Ok(Halves { upper, last, place, count, upper_count: count * UPPER_PERCENT / 100, db })
    }

    /// Numbers from here on are in upper only.
    fn first_new(&self) -> u64 {
        self.count - self.upper_count
    }

    fn expected(&self, number: u64) -> Expected {
        if number >= self.count {
            Expected::Absent
        } else if number >= self.first_new() {
            Expected::New
        } else if number < self.upper_count {
            match number {
                _ if number.is_multiple_of(DELETE_EACH) => Expected::Deleted,
                _ if number.is_multiple_of(OVERWRITE_EACH) => Expected::New,
                _ => Expected::Old,
            }
        } else {
            Expected::Old
        }
    }

    pub(super) fn load(job: &mut Job, count: u64, part: f64) -> Result<Halves, Failure> {
        let halves = Halves::open(job.workshop.place(), count, part)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let order = trine_workload::keys::Permutation::new(count, job.seed);
        for at in 0..count {
            if at.is_multiple_of(10_000) {
                stop_if_asked()?;
            }
            let number = order.of(at);
            SHAPE.key(number, &mut key);
            SHAPE.value(&key, VALUE_BYTES, &mut value);
            if number < halves.first_new() {
                halves.last.put(&key, &value)?;
            }
            match halves.expected(number) {
                Expected::New => {
                    value[0] ^= 1;
                    halves.upper.put(&key, &value)?;
                }
                Expected::Deleted => halves.upper.put(&key, b"")?,
                Expected::Old | Expected::Absent => {}
            }
        }
        halves.db.flush()?;
        halves.db.settle()?;
        let Halves { db, upper, last, place, .. } = halves;
        drop((upper, last));
        db.close()?;
        Halves::open(place, count, part)
    }

    pub(super) fn remove(self, job: &Job) -> Result<(), Failure> {
        let Halves { db, upper, last, place, .. } = self;
        drop((upper, last));
        db.close()?;
        job.workshop.clear(&place)
    }

    /// Whether an answer, `None` for a key without a value, is right.
    fn is_right(&self, number: u64, key: &[u8], answer: Option<&[u8]>) -> bool {
        let is_value = |flip: u8| {
            answer.is_some_and(|found| {
                let mut value = found.to_vec();
                if let Some(first) = value.first_mut() {
                    *first ^= flip;
                }
                value.len() == VALUE_BYTES && SHAPE.is_value(key, &value)
            })
        };
        match self.expected(number) {
            Expected::New => is_value(1),
            Expected::Old => is_value(0),
            Expected::Deleted | Expected::Absent => answer.is_none(),
        }
    }
}

/// The search that a pair shares.
#[derive(Default)]
struct Shared {
    key: Vec<u8>,
    /// The number of searches begun; the last one taken by the partner; and the last one it ended, with its
    /// result.
    begun: u64,
    taken: u64,
    ended: u64,
    result: Option<Vec<u8>>,
    /// The flag of the printed algorithm.
    is_started: bool,
    is_over: bool,
    /// The number of searches made by the partner.
    made: u64,
    failure: Option<Failure>,
}

/// Two threads that search for one key.
#[derive(Default)]
struct Pair {
    shared: Mutex<Shared>,
    changed: Condvar,
}

impl Pair {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("a thread of a pair does not panic")
    }

    fn wait<'l>(&self, shared: MutexGuard<'l, Shared>) -> MutexGuard<'l, Shared> {
        self.changed.wait(shared).expect("a thread of a pair does not panic")
    }

    /// The loop of the thread that searches last.
    fn serve(&self, halves: &Halves, way: Way) {
        loop {
            let mut shared = self.lock();
            // The paper's loop waits while a search is started, and no thread clears the flag.
            let waits = |shared: &Shared| match way {
                Way::Literal => shared.is_started,
                _ => !shared.is_started,
            };
            while waits(&shared) && !shared.is_over {
                shared = self.wait(shared);
            }
            if shared.is_over {
                return;
            }
            if way != Way::Literal {
                shared.is_started = false;
            }
            let (key, number) = (shared.key.clone(), shared.begun);
            shared.taken = number;
            drop(shared);
            let found = match way {
                Way::Handoff => Ok(None),
                _ => halves.last.get(&key).map(|found| found.map(|value| value.to_vec())),
            };
            let mut shared = self.lock();
            match found {
                Ok(found) => shared.result = found,
                Err(error) => shared.failure = Some(error.into()),
            }
            (shared.ended, shared.made) = (number, shared.made + 1);
            drop(shared);
            self.changed.notify_all();
        }
    }

    /// Gives the key to the partner; returns the number of the search.
    fn begin(&self, key: &[u8]) -> u64 {
        let mut shared = self.lock();
        shared.key.clear();
        shared.key.extend_from_slice(key);
        shared.begun += 1;
        shared.is_started = true;
        let number = shared.begun;
        drop(shared);
        self.changed.notify_all();
        number
    }

    /// Waits until the partner has ended the search of this number.
    fn join(&self, number: u64) -> Result<Option<Vec<u8>>, Failure> {
        let mut shared = self.lock();
        while shared.ended < number && shared.failure.is_none() {
            shared = self.wait(shared);
        }
        shared.failure.take().map_or_else(|| Ok(shared.result.take()), Err)
    }

    /// Waits until the partner is idle: an answer from upper leaves it searching.
    fn await_free(&self) {
        let mut shared = self.lock();
        while shared.is_started || shared.ended < shared.taken {
            shared = self.wait(shared);
        }
    }
}

/// The results of the gets of one way.
#[derive(Default)]
pub(super) struct Outcome {
    /// Gets that were counted.
    pub(super) gets: u64,
    pub(super) seconds: f64,
    /// Gets that had no answer when they were counted.
    pub(super) unfinished: u64,
    /// Gets whose search of last was never made.
    pub(super) never_made: u64,
    /// Wrong answers.
    pub(super) wrong: u64,
    pub(super) device_reads: u64,
    /// Ascending.
    pub(super) latencies_ns: Vec<u64>,
}

impl Outcome {
    pub(super) fn rate(&self) -> f64 {
        self.gets as f64 / self.seconds.max(1e-9)
    }

    pub(super) fn permille_ns(&self, permille: usize) -> u64 {
        permille_of(&self.latencies_ns, permille)
    }

    fn add(&mut self, other: Outcome) {
        self.gets += other.gets;
        self.unfinished += other.unfinished;
        self.never_made += other.never_made;
        self.wrong += other.wrong;
        self.latencies_ns.extend(other.latencies_ns);
    }
}

/// One run of a way: with this many pairs, or as many single threads.
pub(super) fn run_way(
    job: &Job,
    halves: &Halves,
    way: Way,
    (pairs, keys): (usize, Keys),
    seed: u64,
) -> Result<Outcome, Failure> {
    stop_if_asked()?;
    let (before, started) = (halves.db.stats().io.device_reads, Instant::now());
    let until = Until::Time(started + MEASURED.mul_f64((job.scale * 100.0).clamp(0.2, 6.0)));
    let run = |pair: usize| run_pair(halves, way, keys, (seed + pair as u64, until));
    let outcomes: Vec<Result<Outcome, Failure>> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..pairs).map(|pair| scope.spawn(move || run(pair))).collect();
        threads.into_iter().map(|one| one.join().expect("a thread that reads does not panic")).collect()
    });
    let mut all = Outcome { seconds: started.elapsed().as_secs_f64(), ..Outcome::default() };
    for outcome in outcomes {
        all.add(outcome?);
    }
    all.latencies_ns.sort_unstable();
    all.device_reads = halves.db.stats().io.device_reads - before;
    Ok(all)
}

fn run_pair(halves: &Halves, way: Way, keys: Keys, (seed, until): (u64, Until)) -> Result<Outcome, Failure> {
    let pair = Pair::default();
    std::thread::scope(|scope| {
        if way != Way::Serial {
            scope.spawn(|| pair.serve(halves, way));
        }
        let outcome = ask_pair(halves, &pair, way, (keys, seed), until);
        pair.lock().is_over = true;
        pair.changed.notify_all();
        outcome
    })
}

/// The loop of the thread that searches upper.
fn ask_pair(
    halves: &Halves,
    pair: &Pair,
    way: Way,
    (keys, seed): (Keys, u64),
    until: Until,
) -> Result<Outcome, Failure> {
    let distribution = if keys == Keys::Zipf { Distribution::Zipf } else { Distribution::Uniform };
    let chooser = Chooser::new(distribution, halves.count, 7);
    let (mut dice, mut key, mut outcome) = (Dice::new(seed), Vec::new(), Outcome::default());
    while !until.is_over(outcome.gets) {
        let mut number = chooser.choose(halves.count, &mut dice);
        if dice.below(100) < ABSENT_PERCENT {
            number += halves.count;
        }
        SHAPE.key(number, &mut key);
        let started = Instant::now();
        let answer = match way {
            Way::Serial => Some(serial(halves, &key)?),
            Way::Joined => Some(joined(halves, pair, &key)?),
            Way::Printed | Way::Literal => as_printed(halves, pair, &key, &mut outcome)?,
            Way::Handoff => {
                let number = pair.begin(&key);
                pair.join(number)?;
                None
            }
        };
        outcome.latencies_ns.push(started.elapsed().as_nanos() as u64);
        outcome.gets += 1;
        if let Some(answer) = answer {
            outcome.wrong += u64::from(!halves.is_right(number, &key, answer.as_deref()));
        }
    }
    let made = pair.lock().made;
    if matches!(way, Way::Printed | Way::Literal) {
        outcome.never_made = outcome.gets.saturating_sub(made);
    }
    Ok(outcome)
}

type Answer = Option<Vec<u8>>;

/// An item without a value is a delete.
fn answer_of(found: Vec<u8>) -> Answer {
    (!found.is_empty()).then_some(found)
}

fn serial(halves: &Halves, key: &[u8]) -> Result<Answer, Failure> {
    match halves.upper.get(key)? {
        Some(found) => Ok(answer_of(found.to_vec())),
        None => Ok(halves.last.get(key)?.map(|found| found.to_vec())),
    }
}

/// Upper's answer is final if it has an item; otherwise waits for the partner's result.
fn joined(halves: &Halves, pair: &Pair, key: &[u8]) -> Result<Answer, Failure> {
    pair.await_free();
    let number = pair.begin(key);
    match halves.upper.get(key)? {
        Some(found) => Ok(answer_of(found.to_vec())),
        None => pair.join(number),
    }
}

/// The search is counted once upper has been searched; `None` if there is no answer by then.
fn as_printed(
    halves: &Halves,
    pair: &Pair,
    key: &[u8],
    outcome: &mut Outcome,
) -> Result<Option<Answer>, Failure> {
    let number = pair.begin(key);
    if let Some(found) = halves.upper.get(key)? {
        return Ok(Some(answer_of(found.to_vec())));
    }
    let mut shared = pair.lock();
    if shared.ended >= number {
        return Ok(Some(shared.result.take()));
    }
    outcome.unfinished += 1;
    Ok(None)
}

/// Gets of keys that are concurrently moved from upper to last.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Race {
    pub(super) gets: u64,
    pub(super) lost: u64,
    pub(super) moves: u64,
    pub(super) seconds: f64,
}

/// The views of both searches of a get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Views {
    /// Each search has its own view.
    Two,
    /// Both share one view.
    One,
}

/// Runs two searches for each get at once while another thread moves the items. Each is present all the time.
pub(super) fn race(job: &mut Job, views: Views) -> Result<Race, Failure> {
    let moves = job.scaled(100 * MOVES, 2000).min(MOVES);
    let db = Db::builder(job.workshop.place()).memory_bytes(256 << 20).open()?;
    let (upper, last) = (db.hashed("upper").open()?, db.hashed("last").open()?);
    let key = |number: u64| number.to_be_bytes();
    for number in 0..moves + 2 * MOVES_NEAR {
        upper.put(key(number), b"value")?;
    }
    let (moved, is_over, started) = (AtomicU64::new(0), AtomicBool::new(false), Instant::now());
    let mover = || -> Result<(), Failure> {
        for number in 0..moves {
            let mut batch = db.batch();
            batch.put(&last, key(number), b"value")?;
            batch.delete(&upper, key(number))?;
            batch.commit()?;
            moved.store(number + 1, Ordering::Release);
        }
        is_over.store(true, Ordering::Release);
        Ok(())
    };
    let reader = || -> Result<Race, Failure> {
        let (mut race, mut dice) = (Race::default(), Dice::new(job.seed));
        while !is_over.load(Ordering::Acquire) {
            let key = key(moved.load(Ordering::Acquire) + dice.below(MOVES_NEAR));
            let snapshot = (views == Views::One).then(|| db.snapshot());
            // The partner may run first; a separate thread would only make that rarer.
            let in_last = match &snapshot {
                Some(snapshot) => last.at(snapshot).get(key)?.is_some(),
                None => last.get(key)?.is_some(),
            };
            let in_upper = match &snapshot {
                Some(snapshot) => upper.at(snapshot).get(key)?.is_some(),
                None => upper.get(key)?.is_some(),
            };
            race.gets += 1;
            race.lost += u64::from(!in_last && !in_upper);
        }
        Ok(race)
    };
    let (moved_all, race) = std::thread::scope(|scope| {
        let mover = scope.spawn(mover);
        let race = reader();
        (mover.join().expect("a thread that moves items does not panic"), race)
    });
    moved_all?;
    Ok(Race { moves, seconds: started.elapsed().as_secs_f64(), ..race? })
}

/// The result of one way with one memory.
pub(super) struct Tried {
    pub(super) is_paged: bool,
    pub(super) keys: Keys,
    pub(super) way: Way,
    pub(super) pairs: usize,
    pub(super) outcome: Outcome,
}

/// The mean time of a search of one part alone.
pub(super) struct Times {
    pub(super) is_paged: bool,
    pub(super) keys: Keys,
    pub(super) upper_ns: f64,
    pub(super) last_ns: f64,
}

impl Times {
    fn measure(job: &Job, halves: &Halves, is_paged: bool, keys: Keys) -> Result<Times, Failure> {
        let distribution = if keys == Keys::Zipf { Distribution::Zipf } else { Distribution::Uniform };
        let chooser = Chooser::new(distribution, halves.count, 7);
        let (mut dice, mut key) = (Dice::new(job.seed ^ 99), Vec::new());
        let gets = (halves.count / 500).clamp(300, 4000);
        let mut spent = [Duration::ZERO; 2];
        for _ in 0..gets {
            SHAPE.key(chooser.choose(halves.count, &mut dice), &mut key);
            for (spent, part) in spent.iter_mut().zip([&halves.upper, &halves.last]) {
                let started = Instant::now();
                part.get(&key)?;
                *spent += started.elapsed();
            }
        }
        let [upper_ns, last_ns] = spent.map(|spent| spent.as_nanos() as f64 / gets as f64);
        Ok(Times { is_paged, keys, upper_ns, last_ns })
    }
}

/// Runs all measurements.
pub(super) fn run(job: &mut Job, count: u64) -> Result<Vec<super::Figure>, Failure> {
    let (mut tried, mut times) = (Vec::new(), Vec::new());
    for (is_paged, part) in [(true, PAPERS_MEMORY), (false, FILTERS_MEMORY)] {
        job.step(format!("two threads, {}", if is_paged { "paged" } else { "in memory" }));
        let halves = Halves::load(job, count, part)?;
        for keys in [Keys::Uniform, Keys::Zipf] {
            times.push(Times::measure(job, &halves, is_paged, keys)?);
            for way in [Way::Serial, Way::Joined, Way::Printed, Way::Literal, Way::Handoff] {
                for pairs in [1, PAIRS] {
                    if way == Way::Handoff && (pairs > 1 || !is_paged || keys == Keys::Zipf) {
                        continue;
                    }
                    let seed = job.seed.wrapping_add(1000 * tried.len() as u64);
                    let outcome = run_way(job, &halves, way, (pairs, keys), seed)?;
                    tried.push(Tried { is_paged, keys, way, pairs, outcome });
                }
            }
        }
        halves.remove(job)?;
    }
    job.step("moves while gets search".to_string());
    let races = [(Views::Two, race(job, Views::Two)?), (Views::One, race(job, Views::One)?)];
    Ok(parallel_figures::all(&times, &tried, &races))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joined gets have the right answer for every kind of key; the printed way leaves some gets unanswered.
    #[test]
    fn joined_gets_are_right_and_printed_ones_are_not_all_done() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let halves = Halves::open(place.path().join("store"), 1200, 0.5).expect("it is made");
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for number in 0..1200 {
            SHAPE.key(number, &mut key);
            SHAPE.value(&key, VALUE_BYTES, &mut value);
            if number < halves.first_new() {
                halves.last.put(&key, &value).expect("a put");
            }
            match halves.expected(number) {
                Expected::New => {
                    value[0] ^= 1;
                    halves.upper.put(&key, &value).expect("a put");
                }
                Expected::Deleted => halves.upper.put(&key, b"").expect("a put"),
                Expected::Old | Expected::Absent => {}
            }
        }
        let kinds: std::collections::BTreeSet<_> =
            (0..1300).map(|number| format!("{:?}", halves.expected(number))).collect();
        assert_eq!(kinds.len(), 4);
        let until = Until::Gets(2000);
        for way in [Way::Serial, Way::Joined] {
            let outcome = run_pair(&halves, way, Keys::Uniform, (1, until)).expect("gets");
            assert_eq!((outcome.wrong, outcome.unfinished), (0, 0), "{way:?}");
            assert_eq!(outcome.gets, 2000);
        }
        let outcome = run_pair(&halves, Way::Literal, Keys::Uniform, (1, until)).expect("gets");
        assert!(outcome.gets == 2000 && outcome.unfinished > 0 && outcome.never_made > 0);
    }
}
