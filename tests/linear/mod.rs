//! Linearizability: several threads call a real store, every call with its begin and end is recorded, the
//! process is killed amid it, the store opened again and read; then one order of the calls must explain what
//! each of them returned ([`check`]).
//!
//! The recording is in memory that outlives the child. A round has four keys of its own and is a history of
//! its own; what is read after the crash ends each of them. `TRINE_SCALE=n` makes n times as many.

mod check;

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use trine::{Db, Keyspace, Ordered};

use crate::child::{Running, command};
use crate::raw::{SharedWords, die_with_parent};
use crate::rng::Rng;
use crate::support::{Scratch, small};

use check::{Call, Event, History, KEYS, find_order, is_stale};

const RECORDING: &str = "TRINE_TEST_RECORDING";
const SEED: &str = "TRINE_TEST_SEED";

const THREADS: usize = 3;
/// Calls of a thread in a round.
const CALLS: usize = 24;
const ROUNDS: usize = 60;
/// Kills.
const CYCLES: u64 = 6;

const CLOCK_AT: usize = 0;
const CALLS_AT: usize = 8;
const CALL_WORDS: usize = 8;
const WORDS: usize = CALLS_AT + ROUNDS * THREADS * CALLS * CALL_WORDS;

/// Looks of a tenth of a millisecond until the child has to have come so far.
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

    /// The begin is written last of what comes before the call, the end last of what comes after it.
    fn begin(&self, words: &[AtomicU64], call: Call) {
        let parts = match call {
            Call::Get(key) => [1, key as u64, 0, 0],
            Call::Put(key, value) => [2, key as u64, 0, value],
            Call::Delete(key) => [3, key as u64, 0, 0],
            Call::PutBoth(one, other, value) => [4, one as u64, other as u64, value],
            Call::GetBoth(one, other) => [5, one as u64, other as u64, 0],
            Call::DeleteRange(from, to) => [6, from as u64, to as u64, 0],
        };
        parts.iter().zip(&words[1..]).for_each(|(part, word)| word.store(*part, Ordering::SeqCst));
        words[0].store(self.tick(), Ordering::SeqCst);
    }

    fn end(&self, words: &[AtomicU64], result: [u64; 2]) {
        words[5].store(result[0], Ordering::SeqCst);
        words[6].store(result[1], Ordering::SeqCst);
        words[7].store(self.tick(), Ordering::SeqCst);
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
            _ => Call::DeleteRange(one, other),
        };
        let end = if get(7) == 0 { u64::MAX } else { get(7) };
        (get(0) != 0).then(|| Event { call, begin: get(0), end, result: [get(5), get(6)] })
    }
}

fn key(round: usize, key: usize) -> String {
    format!("{round:04}/{key}")
}

fn number(value: Option<trine::Value>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(*value.first_chunk().expect("values have eight bytes")))
}

/// The child's way in.
pub(crate) fn child(data: &Path) {
    die_with_parent();
    let recording = Recording::open(Path::new(&std::env::var_os(RECORDING).unwrap()));
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let db = small(data).open().unwrap();
    let space = db.ordered("space").set("level0_runs", 2).set("table_bytes", 64 << 10).open().unwrap();
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
                            let call = choose(&mut rng, value);
                            let words = recording.words(round, thread, index);
                            recording.begin(words, call);
                            let result = make(db, space, round, call);
                            recording.end(words, result);
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

fn choose(rng: &mut Rng, value: u64) -> Call {
    let one = rng.below(KEYS);
    let other = (one + 1 + rng.below(KEYS - 1)) % KEYS;
    match rng.below(20) {
        0..6 => Call::Get(one),
        6..10 => Call::Put(one, value),
        10 => Call::Delete(one),
        11..14 => Call::PutBoth(one, other, value),
        14..19 => Call::GetBoth(one, other),
        _ => Call::DeleteRange(one, one + 1 + rng.below(KEYS - one)),
    }
}

fn make(db: &Db, space: &Keyspace<Ordered>, round: usize, call: Call) -> [u64; 2] {
    let key = |number: usize| key(round, number);
    match call {
        Call::Get(one) => return [number(space.get(key(one)).unwrap()), 0],
        Call::Put(one, value) => space.put(key(one), value.to_le_bytes()).unwrap(),
        Call::Delete(one) => space.delete(key(one)).unwrap(),
        Call::PutBoth(one, other, value) => {
            let mut batch = db.batch();
            batch.put(space, key(one), value.to_le_bytes()).unwrap();
            batch.put(space, key(other), value.to_le_bytes()).unwrap();
            batch.commit().unwrap();
        }
        Call::GetBoth(one, other) => {
            let at = space.at(&db.snapshot());
            return [one, other].map(|one| number(at.get(key(one)).unwrap()));
        }
        Call::DeleteRange(from, to) => space.delete_range(key(from)..key(to)).unwrap(),
    }
    [0; 2]
}

/// The history of a round: its threads, and what was read after the crash.
fn history(recording: &Recording, round: usize, space: &Keyspace<Ordered>) -> History {
    let of_thread = |thread| (0..CALLS).map_while(|call| recording.event(round, thread, call)).collect();
    let mut history: History = (0..THREADS).map(of_thread).collect();
    let after = (0..KEYS).map(|one| {
        let begin = recording.tick();
        let result = [number(space.get(key(round, one)).unwrap()), 0];
        Event { call: Call::Get(one), begin, end: recording.tick(), result }
    });
    history.push(after.collect());
    history
}

/// Some cycles; how many histories, and how many calls without an end, there were.
fn cycle(seed: u64) -> (usize, usize) {
    let scratch = Scratch::new();
    let (data, path) = (scratch.data(), scratch.root().join("recording"));
    let recording = Recording::open(&path);
    let mut child = command(&[], "calls until killed", &data);
    child.env(RECORDING, &path).env(SEED, seed.to_string());
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
        let history = history(&recording, round, &space);
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

/// Whatever several threads call at once, and wherever the process is killed amid it, one order explains it.
#[test]
fn calls_and_crashes_have_one_order() {
    let scale: u64 = std::env::var("TRINE_SCALE").map_or(1, |text| text.parse().unwrap());
    let (mut histories, mut unended) = (0, 0);
    for seed in 0..CYCLES * scale {
        let (more, cut) = cycle(seed);
        (histories, unended) = (histories + more, unended + cut);
    }
    println!("{histories} histories of {} kills, {unended} calls cut short", CYCLES * scale);
    assert!(histories > CYCLES as usize, "{histories}");
}
