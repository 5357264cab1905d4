//! The threads of a row: they choose requests, send and time them, and check the answers.
//!
//! 1. The same seed gives the same requests for every store.
//! 2. A latency covers the store's call only. Making keys and values and checking answers counts in the rate,
//!    as in the row of `null`.
//! 3. An impossible answer is counted as wrong, never ignored.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use trine_workload::distribution::Chooser;
use trine_workload::mixgraph::Mixgraph;
use trine_workload::numbering::Numbering;
use trine_workload::ycsb::Core;

use super::engines::{Engine, Executor, Sees};
use super::process::Memory;
use super::record::Record;
use super::worker::Worker;
use crate::engines::Answer;

/// Items that a loading thread takes at a time, unless a batch has more.
pub(super) const LOAD_CHUNK: u64 = 64;

/// The longest time between two looks at the threads, for their memory and for a report of progress.
const LOOK: Duration = Duration::from_millis(50);

/// The time between two reports of progress.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// The requests of the threads.
#[derive(Clone, Debug)]
pub(super) enum Script {
    /// Puts the items that are not in the store yet, up to `end`.
    Load {
        end: u64,
    },
    /// Puts again the items at positions `from` to `to` of another random order.
    Rewrite {
        from: u64,
        to: u64,
    },
    Overwrite,
    Get,
    /// Gets every item, in another random order.
    GetEach,
    GetAbsent,
    MultiGet {
        keys: u64,
    },
    /// Gets of a thread that keeps `depth` of them in flight and waits for no single one.
    InFlight {
        executor: Executor,
        depth: u64,
    },
    Scan {
        items: u64,
    },
    ScanOwned {
        items: u64,
    },
    All,
    Ycsb(Core),
    Mixgraph(Mixgraph),
}

impl Script {
    /// Whether its puts may be committed in batches.
    pub(super) fn is_batched(&self) -> bool {
        matches!(self, Script::Load { .. } | Script::Rewrite { .. } | Script::Overwrite)
    }
}

/// The items of a store, numbered in the order of their puts; the first `count` are in the store.
#[derive(Clone, Debug)]
pub(super) struct Data {
    pub(super) numbering: Numbering,
    pub(super) count: u64,
    /// Whether the numbers of all keys are those below `count`, so that the items of a scan can be counted.
    pub(super) is_dense: bool,
    /// The length of each value that is put.
    pub(super) value_bytes: usize,
}

/// When a row ends: at the first limit that it reaches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// Operations of all threads together.
    pub(super) operations: u64,
    pub(super) time: Option<Duration>,
}

impl Limit {
    pub(super) fn operations(operations: u64) -> Limit {
        Limit { operations, time: None }
    }

    pub(super) fn time(time: Duration) -> Limit {
        Limit { operations: u64::MAX, time: Some(time) }
    }
}

/// A row, ready to run; its threads share it.
pub(super) struct Job<'a> {
    /// The name in reports of progress.
    pub(super) name: String,
    pub(super) engine: &'a dyn Engine,
    pub(super) script: Script,
    pub(super) data: Data,
    /// `None` where the script needs none.
    pub(super) chooser: Option<Chooser>,
    pub(super) sees: Sees,
    pub(super) threads: u64,
    pub(super) limit: Limit,
    /// Puts that are committed together, where the script allows batches.
    pub(super) batch: u64,
    pub(super) seed: u64,
    /// Puts a second of an additional thread.
    pub(super) beside: Option<u64>,
}

/// State that the threads share while they run.
pub(super) struct Shared {
    pub(super) started: Instant,
    pub(super) done: AtomicU64,
    pub(super) over: AtomicBool,
    running: AtomicUsize,
    /// The next item to load or insert, or the next position of an order.
    pub(super) next: AtomicU64,
    /// Items below this are in the store.
    visible: AtomicU64,
    /// Later items that are in the store too.
    landed: Mutex<BTreeSet<u64>>,
}

impl Shared {
    fn new(job: &Job<'_>) -> Shared {
        let next = match job.script {
            Script::Rewrite { from, .. } => from,
            Script::GetEach => 0,
            _ => job.data.count,
        };
        Shared {
            started: Instant::now(),
            done: AtomicU64::new(0),
            over: AtomicBool::new(false),
            running: AtomicUsize::new(usize::try_from(job.threads).unwrap_or(1)),
            next: AtomicU64::new(next),
            visible: AtomicU64::new(job.data.count),
            landed: Mutex::new(BTreeSet::new()),
        }
    }

    /// The number of items that every reader may expect.
    pub(super) fn count(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Records that an item is in the store; it counts once all items before it are.
    pub(super) fn land(&self, item: u64) {
        let mut landed = self.landed.lock().expect("nobody panics with it");
        landed.insert(item);
        let mut visible = self.count();
        while landed.remove(&visible) {
            visible += 1;
        }
        self.visible.store(visible, Ordering::Release);
    }
}

/// The results of the threads.
pub(super) struct Ran {
    pub(super) record: Record,
    /// Puts of the additional thread.
    pub(super) beside: u64,
    /// Bytes of keys and values, written by all threads.
    pub(super) put_bytes: u64,
    pub(super) seconds: f64,
    /// Items that are in the store now.
    pub(super) count: u64,
    /// The greatest memory at any look.
    pub(super) memory: Memory,
}

pub(super) fn run(job: &Job<'_>) -> Answer<Ran> {
    let shared = Shared::new(job);
    let (mut memory, mut said) = (Memory::now(), Instant::now());
    let (record, beside, seconds) = std::thread::scope(|scope| {
        let shared = &shared;
        let beside = job.beside.map(|rate| scope.spawn(move || beside(job, shared, rate)));
        let threads: Vec<_> =
            (0..job.threads).map(|thread| scope.spawn(move || measured(job, shared, thread))).collect();
        while shared.running.load(Ordering::Acquire) > 0 {
            std::thread::park_timeout(LOOK.min(Duration::from_millis(5) + shared.started.elapsed() / 16));
            memory = memory.or_more(Memory::now());
            if said.elapsed() > SAY_EVERY {
                eprintln!("    {}: {} so far", job.name, shared.done.load(Ordering::Relaxed));
                said = Instant::now();
            }
        }
        let mut record = Record::new()?;
        let mut seconds: f64 = 0.0;
        for thread in threads {
            let (one, ended) = thread.join().map_err(|_| "a thread panicked")??;
            record.add(one)?;
            seconds = seconds.max(ended.duration_since(shared.started).as_secs_f64());
        }
        let beside = beside.map(|thread| thread.join().map_err(|_| "the thread beside panicked")?);
        Ok::<_, String>((record, beside.transpose()?, seconds))
    })?;
    let (beside, beside_bytes) = beside.map_or((0, 0), |beside| (beside.operations, beside.put_bytes));
    let put_bytes = record.put_bytes + beside_bytes;
    Ok(Ran { record, beside, put_bytes, seconds, count: shared.count(), memory })
}

/// Runs one thread's part; returns its record and the time of its end.
fn measured(job: &Job<'_>, shared: &Shared, thread: u64) -> Answer<(Record, Instant)> {
    let outcome = Worker::new(job, shared, thread).and_then(|mut worker| {
        worker.run()?;
        Ok((worker.into_record(), Instant::now()))
    });
    if shared.running.fetch_sub(1, Ordering::AcqRel) == 1 || outcome.is_err() {
        shared.over.store(true, Ordering::Relaxed);
    }
    outcome
}

/// Puts at a fixed rate until the other threads are done.
fn beside(job: &Job<'_>, shared: &Shared, a_second: u64) -> Answer<Record> {
    let mut worker = Worker::new(job, shared, job.threads)?;
    while !shared.over.load(Ordering::Relaxed) {
        let due = worker.operations() as f64 / a_second as f64;
        let ahead = due - shared.started.elapsed().as_secs_f64();
        if ahead > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(ahead.min(0.01)));
        } else {
            worker.overwrite()?;
        }
    }
    Ok(worker.into_record())
}

/// One thread's share of a whole.
pub(super) fn share(whole: u64, thread: u64, threads: u64) -> u64 {
    whole / threads + u64::from(thread < whole % threads)
}
