//! Linearizability: several threads call a real store, and the begin and end of every call is recorded. The
//! process is killed during this, and the store is reopened and read. One order of the calls must then
//! explain their results ([`check`]).
//!
//! The record is in memory that outlives the child. A round has four keys of its own and is a separate
//! history, which ends with a read of its keys after the crash. In some cycles one of the keys is in a
//! keyspace that is dropped and made again beside checkpoints. In others the keyspace is partitioned by key,
//! a round has two partitions, and these are dropped. `TRINE_SCALE=n` makes n times as many.

mod check;

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use trine::{Create, Db, Error, Keyspace, Ordered, Partitioning, block_on};

use crate::child::{Running, command};
use crate::raw::{SharedWords, die_with_parent};
use crate::rng::Rng;
use crate::support::{Scratch, small};

use check::{Call, Event, History, KEYS, SIDE, State, find_order, is_stale};

const RECORDING: &str = "TRINE_TEST_RECORDING";
const SEED: &str = "TRINE_TEST_SEED";
const LAYOUT: &str = "TRINE_TEST_LAYOUT";

const THREADS: usize = 3;
/// The calls of a thread in a round.
const CALLS: usize = 24;
const ROUNDS: usize = 60;
/// The kills of a test.
const CYCLES: u64 = 6;

const CLOCK_AT: usize = 0;
const CALLS_AT: usize = 8;
const CALL_WORDS: usize = 10;
const WORDS: usize = CALLS_AT + ROUNDS * THREADS * CALLS * CALL_WORDS;

/// The keyspaces of a round's keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    /// [`SIDE`] in a keyspace of its own, which is dropped; the others in one shared by all rounds.
    Side,
    /// Two keys in each partition of a keyspace partitioned by key, shared by all rounds.
    Partitions,
}

/// The keys of a partition.
const PARTITION_KEYS: usize = 2;
/// The length of a partition's name.
const PREFIX_BYTES: usize = 5;

/// The most waits, of a tenth of a millisecond each, for the child's progress.
const LOOKS_MAX: u32 = 600_000;

struct Recording {
    shared: SharedWords,
}

impl Recording {
    fn open(path: &Path) -> Recording {
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).read(true).write(true).open(path).unwrap();
        file.set_len(WORDS as u64 * 8).unwrap();
        Recording { shared: SharedWords::map(&file, WORDS) }
    }

    fn tick(&self) -> u64 {
        self.shared.words()[CLOCK_AT].fetch_add(1, Ordering::SeqCst) + 1
    }

    fn calls(&self) -> u64 {
        self.shared.words()[CLOCK_AT].load(Ordering::SeqCst) / 2
    }

    fn words(&self, round: usize, thread: usize, call: usize) -> &[AtomicU64] {
        let at = CALLS_AT + ((round * THREADS + thread) * CALLS + call) * CALL_WORDS;
        &self.shared.words()[at..at + CALL_WORDS]
    }

    /// The begin is written after all other words of the call, and the end after all words of the result.
    fn begin(&self, words: &[AtomicU64], call: Call) {
        let parts = match call {
            Call::Get(key) => [1, key as u64, 0, 0],
            Call::Put(key, value) => [2, key as u64, 0, value],
            Call::Delete(key) => [3, key as u64, 0, 0],
            Call::PutBoth(one, other, value) => [4, one as u64, other as u64, value],
            Call::GetBoth(one, other) => [5, one as u64, other as u64, 0],
            Call::DeleteRange(from, to) => [6, from as u64, to as u64, 0],
            Call::DropSide => [7, 0, 0, 0],
            Call::Checkpoint => [8, 0, 0, 0],
            Call::DropPartitions(from, to) => [9, from as u64, to as u64, 0],
        };
        parts.iter().zip(&words[1..]).for_each(|(part, word)| word.store(*part, Ordering::SeqCst));
        words[0].store(self.tick(), Ordering::SeqCst);
    }

    fn end(&self, words: &[AtomicU64], end: u64, result: State) {
        result.iter().zip(&words[5..]).for_each(|(value, word)| word.store(*value, Ordering::SeqCst));
        words[5 + KEYS].store(end, Ordering::SeqCst);
    }

    fn event(&self, round: usize, thread: usize, call: usize) -> Option<Event> {
        let words = self.words(round, thread, call);
        let get = |at: usize| words[at].load(Ordering::SeqCst);
        let (one, other, value) = (get(2) as usize, get(3) as usize, get(4));
        let call = match get(1) {
            1 => Call::Get(one),
            2 => Call::Put(one, value),
            3 => Call::Delete(one),
            4 => Call::PutBoth(one, other, value),
            5 => Call::GetBoth(one, other),
            6 => Call::DeleteRange(one, other),
            7 => Call::DropSide,
            9 => Call::DropPartitions(one, other),
            _ => Call::Checkpoint,
        };
        let end = if get(5 + KEYS) == 0 { u64::MAX } else { get(5 + KEYS) };
        let result = std::array::from_fn(|at| get(5 + at));
        (get(0) != 0).then(|| Event { call, begin: get(0), end, result })
    }
}

fn key(round: usize, key: usize) -> String {
    format!("{round:04}{}/{key}", key / PARTITION_KEYS)
}

impl Layout {
    fn of_child() -> Layout {
        if std::env::var_os(LAYOUT).is_some() { Layout::Partitions } else { Layout::Side }
    }

    fn open(self, db: &Db) -> Keyspace<Ordered> {
        let builder = db.ordered("space").set("level0_runs", 2).set("table_bytes", 64 << 10);
        match self {
            Layout::Side => builder.open().unwrap(),
            Layout::Partitions => builder.partition_by(Partitioning::prefix(PREFIX_BYTES)).open().unwrap(),
        }
    }

    /// Opens the keyspace that holds [`SIDE`], or makes it.
    fn open_side(self, db: &Db, space: &Keyspace<Ordered>, round: usize) -> Keyspace<Ordered> {
        match self {
            Layout::Side => db.ordered(&side(round)).open().unwrap(),
            Layout::Partitions => space.clone(),
        }
    }
}

/// The name of the keyspace that is dropped and made again.
fn side(round: usize) -> String {
    format!("side-{round:04}")
}

fn number(value: Option<trine::Value>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(*value.first_chunk().expect("values have eight bytes")))
}

/// The entry point of the child.
pub(crate) fn child(data: &Path) {
    die_with_parent();
    let recording = Recording::open(Path::new(&std::env::var_os(RECORDING).unwrap()));
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let db = small(data).open().unwrap();
    let layout = Layout::of_child();
    let space = layout.open(&db);
    let (barrier, is_over) = (Barrier::new(THREADS), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, space, recording, barrier) = (&db, &space, &recording, &barrier);
                let mut rng = Rng::new(seed << 8 | thread as u64);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        barrier.wait();
                        for index in 0..CALLS {
                            let value = ((round * THREADS + thread) * CALLS + index + 1) as u64;
                            let call = choose(&mut rng, layout, value);
                            let words = recording.words(round, thread, index);
                            recording.begin(words, call);
                            // The checkpoint is read after its call has ended.
                            let mut end = 0;
                            let made = || end = recording.tick();
                            let result = make(db, (space, layout, data), (round, value), call, made);
                            recording.end(words, end, result);
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                db.flush().unwrap();
                db.compact().unwrap();
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
    });
    loop {
        std::thread::park();
    }
}

fn choose(rng: &mut Rng, layout: Layout, value: u64) -> Call {
    let one = rng.below(KEYS);
    let other = (one + 1 + rng.below(KEYS - 1)) % KEYS;
    if rng.below(150) == 0 {
        return Call::Checkpoint;
    }
    match rng.below(21) {
        0..6 => Call::Get(one),
        6..10 => Call::Put(one, value),
        10 => Call::Delete(one),
        11..14 => Call::PutBoth(one, other, value),
        14..19 => Call::GetBoth(one, other),
        19 if layout == Layout::Partitions => {
            let first = one / PARTITION_KEYS * PARTITION_KEYS;
            let to = if rng.one_in(2) { first + PARTITION_KEYS } else { KEYS };
            Call::DropPartitions(first, to)
        }
        20 if layout == Layout::Partitions => Call::DeleteRange(one, one + 1 + rng.below(KEYS - one)),
        19 => Call::DropSide,
        _ => Call::DeleteRange(one.min(SIDE - 1), (one + 1 + rng.below(KEYS - one)).min(SIDE)),
    }
}

/// Makes a call; calls `made` when it has ended.
fn make(
    db: &Db,
    (space, layout, data): (&Keyspace<Ordered>, Layout, &Path),
    (round, number_of_call): (usize, u64),
    call: Call,
    made: impl FnOnce(),
) -> State {
    if call == Call::Checkpoint {
        let path = data.with_file_name(format!("copy-{number_of_call}"));
        db.checkpoint(&path).unwrap();
        made();
        let copy = small(&path).create(Create::Never).open().unwrap();
        let space = copy.keyspace("space").unwrap().ordered().unwrap();
        let state = read_all(&copy, (&space, layout), round);
        copy.close().unwrap();
        std::fs::remove_dir_all(&path).unwrap();
        return state;
    }
    // A call that meets a drop has had no effect; it is repeated with an existing keyspace.
    let result = loop {
        let side = layout.open_side(db, space, round);
        match make_with(db, space, &side, round, call) {
            Ok(result) => break result,
            Err(Error::Dropped { .. }) if layout == Layout::Side => {}
            Err(error) => panic!("{call:?}: {error}"),
        }
    };
    made();
    [result[0], result[1], 0, 0]
}

fn make_with(
    db: &Db,
    space: &Keyspace<Ordered>,
    side: &Keyspace<Ordered>,
    round: usize,
    call: Call,
) -> trine::Result<[u64; 2]> {
    let key = |number: usize| key(round, number);
    let of = |number: usize| if number == SIDE { side } else { space };
    match call {
        Call::Get(one) => return Ok([number(of(one).get(key(one))?), 0]),
        // Some calls are asynchronous.
        Call::Put(one, value) if value % 3 == 0 => {
            block_on(of(one).put_async(key(one), value.to_le_bytes()))?;
        }
        Call::Put(one, value) => of(one).put(key(one), value.to_le_bytes())?,
        Call::Delete(one) => of(one).delete(key(one))?,
        Call::PutBoth(one, other, value) => {
            let mut batch = db.batch();
            batch.put(of(one), key(one), value.to_le_bytes())?;
            batch.put(of(other), key(other), value.to_le_bytes())?;
            if value % 3 == 0 {
                block_on(batch.commit_async())?;
            } else {
                batch.commit()?;
            }
        }
        Call::GetBoth(one, other) => {
            let at = db.snapshot();
            // The keyspace existed when the snapshot was taken.
            side.get("")?;
            return Ok([number(of(one).at(&at).get(key(one))?), number(of(other).at(&at).get(key(other))?)]);
        }
        Call::DeleteRange(from, to) => space.delete_range(key(from)..key(to))?,
        Call::DropSide => match db.drop_keyspace(side.name()) {
            Ok(()) | Err(Error::NoKeyspace { .. }) => {}
            Err(error) => return Err(error),
        },
        Call::DropPartitions(from, to) => {
            let keys: Vec<String> = (from..to).step_by(PARTITION_KEYS).map(key).collect();
            space.drop_partitions(keys.iter().map(|key| &key[..PREFIX_BYTES]))?;
        }
        Call::Checkpoint => unreachable!("it needs no keyspace"),
    }
    Ok([0; 2])
}

/// Reads every key of a round, without concurrent writers.
fn read_all(db: &Db, (space, layout): (&Keyspace<Ordered>, Layout), round: usize) -> State {
    std::array::from_fn(|one| match one {
        SIDE if layout == Layout::Side => {
            db.keyspace(&side(round)).map_or(0, |side| number(side.get(key(round, one)).unwrap()))
        }
        _ => number(space.get(key(round, one)).unwrap()),
    })
}

/// The history of a round: its threads' calls, and the read after the crash.
fn history(recording: &Recording, round: usize, db: &Db, space: (&Keyspace<Ordered>, Layout)) -> History {
    let of_thread = |thread| (0..CALLS).map_while(|call| recording.event(round, thread, call)).collect();
    let mut history: History = (0..THREADS).map(of_thread).collect();
    let begin = recording.tick();
    let result = read_all(db, space, round);
    history.push(vec![Event { call: Call::Checkpoint, begin, end: recording.tick(), result }]);
    history
}

/// Runs one cycle; returns the number of histories, and of calls without an end.
fn cycle(seed: u64, layout: Layout) -> (usize, usize) {
    let scratch = Scratch::new();
    let (data, path) = (scratch.data(), scratch.root().join("recording"));
    let recording = Recording::open(&path);
    let mut child = command(&[], "calls until killed", &data);
    child.env(RECORDING, &path).env(SEED, seed.to_string());
    if layout == Layout::Partitions {
        child.env(LAYOUT, "partitions");
    }
    let child = Running::start(child);
    let kill_at = Rng::new(seed).below(ROUNDS * THREADS * CALLS) as u64;
    let looks = (0..LOOKS_MAX).find(|_| {
        let has_come = recording.calls() > kill_at;
        if let Some(complaints) = child.let_go_on(Duration::from_micros(if has_come { 0 } else { 100 })) {
            panic!("the child ended before it was killed: {complaints}");
        }
        has_come
    });
    assert!(looks.is_some(), "the child hangs");
    child.kill();
    let db = small(&data).open().unwrap();
    let space = db.ordered("space").open().unwrap();
    let (mut histories, mut unended) = (0, 0);
    for round in 0..ROUNDS {
        let history = history(&recording, round, &db, (&space, layout));
        if history[..THREADS].iter().all(Vec::is_empty) {
            break;
        }
        unended += history.iter().flatten().filter(|event| event.end == u64::MAX).count();
        for one in 0..KEYS {
            assert!(!is_stale(&history, one), "seed {seed}, round {round}, key {one}: {history:#?}");
        }
        assert!(find_order(&history), "seed {seed}, round {round}: no order explains {history:#?}");
        histories += 1;
    }
    db.close().unwrap();
    (histories, unended)
}

/// Runs the cycles of a layout; prints the histories and unended calls, and asserts that there are enough.
fn run_cycles(layout: Layout) {
    let scale: u64 = std::env::var("TRINE_SCALE").map_or(1, |text| text.parse().unwrap());
    let (mut histories, mut unended) = (0, 0);
    for seed in 0..CYCLES * scale {
        let (more, cut) = cycle(seed, layout);
        (histories, unended) = (histories + more, unended + cut);
    }
    println!("{histories} histories of {} kills, {unended} calls cut short", CYCLES * scale);
    assert!(histories > CYCLES as usize, "{histories}");
}

/// Any concurrent calls of several threads, with a process kill at any time, have a valid order.
#[test]
fn calls_and_crashes_have_one_order() {
    run_cycles(Layout::Side);
}

/// The same in a keyspace partitioned by key whose partitions are dropped. The drop of several partitions is
/// one call.
#[test]
fn drops_of_partitions_are_in_the_order() {
    run_cycles(Layout::Partitions);
}
