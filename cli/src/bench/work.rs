//! The threads of a workload: they choose each operation, run it, time it and check the answer.
//!
//! 1. Only the store's call is timed. Making and checking keys and values is not, but counts in the rate, as
//!    it does in the row of `null`.
//! 2. Loads put a prefix of the items' order, also if they end early.
//! 3. An impossible answer is counted as wrong, never ignored.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use trine_workload::dice::Dice;
use trine_workload::distribution::Chooser;
use trine_workload::failure::Failure;
use trine_workload::keys::Shape;
use trine_workload::mixgraph::{self, Mixgraph};
use trine_workload::numbering::Numbering;
use trine_workload::ycsb::{self, Core};
use trine_workload::{interrupt, text};

use super::check::InOrder;
use super::record::{Kind, Record, Seconds, Window, nanoseconds};
use super::store::{Found, Pending, Target};

/// Items a loading thread takes at a time, unless a batch has more.
const LOAD_CHUNK: u64 = 64;

/// Items of readseq that are timed together.
pub(super) const READ_CHUNK: u64 = 100;

/// Operations between two updates of the shared state: progress, Ctrl-C.
const TELL_EVERY: u64 = 64;

/// The operations of the threads.
#[derive(Clone, Debug)]
pub(super) enum Script {
    Load,
    Overwrite,
    Delete,
    ReadAll,
    Get,
    GetMissing,
    MultiGet { keys: u64 },
    Scan { items: u64 },
    Mixgraph(Mixgraph),
    Ycsb(Core),
}

/// A workload, ready to run; shared by its threads.
pub(super) struct Job {
    pub(super) script: Script,
    pub(super) target: Target,
    pub(super) shape: Shape,
    pub(super) numbering: Numbering,
    /// `None` while loading.
    pub(super) chooser: Option<Chooser>,
    /// Items in the store at the start.
    pub(super) count: u64,
    /// Keys up to this number are all in the store, if none was deleted.
    pub(super) whole: Option<u64>,
    pub(super) has_gaps: bool,
    /// A load ends before this item.
    pub(super) load_end: u64,
    pub(super) value_bytes: usize,
    pub(super) batch: u32,
    pub(super) threads: u64,
    /// The total over all threads.
    pub(super) operations: u64,
    pub(super) time: Option<Duration>,
    pub(super) seed: u64,
    /// Puts a second of the additional writer thread; 0 is no limit.
    pub(super) writer: Option<u64>,
    pub(super) wants_seconds: bool,
}

/// State that the threads share while they run.
pub(super) struct Shared {
    pub(super) started: Instant,
    pub(super) done: AtomicU64,
    pub(super) running: AtomicUsize,
    pub(super) seconds: Option<Seconds>,
    /// The watcher, woken by the last thread that ends.
    watcher: std::thread::Thread,
    over: AtomicBool,
    /// A thread ended with an error; the chunk it had begun will not be completed.
    failed: AtomicBool,
    /// The next item to load or insert.
    next: AtomicU64,
    /// Items below this are in the store.
    visible: AtomicU64,
}

impl Shared {
    pub(super) fn new(job: &Job) -> Shared {
        let started = Instant::now();
        Shared {
            started,
            done: AtomicU64::new(0),
            running: AtomicUsize::new(job.threads as usize),
            seconds: job.wants_seconds.then(Seconds::default),
            watcher: std::thread::current(),
            over: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            next: AtomicU64::new(job.count),
            visible: AtomicU64::new(job.count),
        }
    }

    /// Items in the store now.
    pub(super) fn count(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Whether a thread is measured, or runs beside the measured ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Measured,
    Beside,
}

/// Runs one thread's part.
pub(super) fn run(job: &Job, shared: &Shared, thread: u64, role: Role) -> Result<Record, Failure> {
    let mut worker = Worker::new(job, shared, thread, role)?;
    let outcome = match role {
        Role::Measured => worker.measured(thread),
        Role::Beside => worker.beside(),
    };
    if outcome.is_err() {
        shared.failed.store(true, Ordering::Relaxed);
    }
    let was_last = role == Role::Measured && shared.running.fetch_sub(1, Ordering::AcqRel) == 1;
    if outcome.is_err() || was_last {
        shared.over.store(true, Ordering::Relaxed);
        shared.watcher.unpark();
    }
    outcome?;
    if let Some(window) = &mut worker.window {
        window.hand_over()?;
    }
    Ok(worker.record)
}

struct Worker<'a> {
    job: &'a Job,
    shared: &'a Shared,
    dice: Dice,
    quota: u64,
    deadline: Option<Instant>,
    now: Instant,
    key: Vec<u8>,
    value: Vec<u8>,
    keys: Vec<Vec<u8>>,
    pending: Pending,
    record: Record,
    window: Option<Window<'a>>,
    told: u64,
}

impl<'a> Worker<'a> {
    fn new(job: &'a Job, shared: &'a Shared, thread: u64, role: Role) -> Result<Worker<'a>, Failure> {
        let seconds = shared.seconds.as_ref().filter(|_| role == Role::Measured);
        Ok(Worker {
            job,
            shared,
            dice: Dice::new(Dice::new(job.seed ^ thread << 40).next()),
            quota: share(job.operations, thread, job.threads),
            deadline: job.time.map(|time| shared.started + time),
            now: shared.started,
            key: Vec::new(),
            value: Vec::new(),
            keys: Vec::new(),
            pending: job.target.pending(),
            record: Record::new(),
            window: seconds.map(Window::new).transpose()?,
            told: 0,
        })
    }

    fn measured(&mut self, thread: u64) -> Result<(), Failure> {
        match &self.job.script {
            Script::Load => self.load()?,
            Script::ReadAll => self.read_all(thread)?,
            _ => {
                while self.goes_on() {
                    self.step()?;
                }
                self.commit()?;
            }
        }
        self.tell();
        Ok(())
    }

    /// The writer of readwhilewriting: it puts until the readers are done, at least once.
    fn beside(&mut self) -> Result<(), Failure> {
        let a_second = self.job.writer.filter(|rate| *rate > 0);
        self.quota = u64::MAX;
        while self.record.operations == 0 || !self.shared.is_over() {
            if let Some(rate) = a_second {
                let due = self.record.operations as f64 / rate as f64;
                let ahead = due - self.shared.started.elapsed().as_secs_f64();
                if ahead > 0.0 {
                    std::thread::sleep(Duration::from_secs_f64(ahead.min(0.01)));
                    continue;
                }
            }
            let item = self.choose();
            self.put(item, self.job.value_bytes)?;
        }
        Ok(())
    }

    fn goes_on(&mut self) -> bool {
        let done = self.record.operations;
        if done >= self.told + TELL_EVERY {
            self.tell();
            if interrupt::asked() {
                self.shared.over.store(true, Ordering::Relaxed);
            }
        }
        done + u64::from(self.pending.count) < self.quota
            && !self.shared.is_over()
            && self.deadline.is_none_or(|deadline| done == 0 || self.now < deadline)
    }

    fn tell(&mut self) {
        self.shared.done.fetch_add(self.record.operations - self.told, Ordering::Relaxed);
        self.told = self.record.operations;
    }

    fn choose(&mut self) -> u64 {
        let chooser = self.job.chooser.as_ref().expect("every script but a load chooses");
        chooser.choose(self.shared.count(), &mut self.dice)
    }

    fn step(&mut self) -> Result<(), Failure> {
        match &self.job.script {
            Script::Load | Script::ReadAll => unreachable!("they have loops of their own"),
            Script::Overwrite => {
                let item = self.choose();
                self.put(item, self.job.value_bytes)
            }
            Script::Delete => {
                let item = self.choose();
                self.delete(item)
            }
            Script::Get => {
                let item = self.choose();
                self.get(self.job.numbering.number(item), Expected::of(self.job))
            }
            Script::GetMissing => {
                let item = self.choose();
                let number = self.job.numbering.number(item);
                self.job.shape.missing_key(number, &mut self.key);
                self.get_key(Expected::Nothing)
            }
            Script::MultiGet { keys } => self.multi_get(*keys),
            Script::Scan { items } => {
                let item = self.choose();
                self.scan(self.job.numbering.number(item), *items)
            }
            Script::Mixgraph(mix) => self.mixgraph(mix),
            Script::Ycsb(core) => self.ycsb(*core),
        }
    }

    fn mixgraph(&mut self, mix: &Mixgraph) -> Result<(), Failure> {
        let number = mix.key(&mut self.dice);
        match mix.request(&mut self.dice) {
            mixgraph::Request::Get => self.get(number, Expected::of(self.job)),
            mixgraph::Request::Put { value_bytes } => self.put_number(number, value_bytes as usize),
            mixgraph::Request::Scan { items } => self.scan(number, items),
        }
    }

    fn ycsb(&mut self, core: Core) -> Result<(), Failure> {
        let request = core.request(&mut self.dice);
        if request == ycsb::Request::Insert {
            return self.insert();
        }
        let item = self.choose();
        let number = self.job.numbering.number(item);
        match request {
            ycsb::Request::Read => self.get(number, Expected::of(self.job)),
            ycsb::Request::Update => self.put(item, self.job.value_bytes),
            ycsb::Request::Scan { items } => self.scan(number, items),
            ycsb::Request::ReadModifyWrite => self.read_modify_write(number),
            ycsb::Request::Insert => unreachable!("it was taken above"),
        }
    }

    /// Puts chunks of the items' order until none are left. A begun chunk is finished.
    fn load(&mut self) -> Result<(), Failure> {
        let chunk = LOAD_CHUNK.max(u64::from(self.job.batch));
        self.quota = u64::MAX;
        while self.goes_on() {
            let from = self.shared.next.fetch_add(chunk, Ordering::Relaxed);
            let end = (from + chunk).min(self.job.load_end);
            if from >= end {
                break;
            }
            for item in from..end {
                self.put(item, self.job.value_bytes)?;
                self.record.new_bytes += (self.key.len() + self.value.len()) as u64;
            }
            self.commit()?;
            // Threads with earlier chunks finish them, unless they fail.
            self.make_visible(from, end);
        }
        Ok(())
    }

    /// Waits until all items before `from` are in the store, then adds those up to `end` to the count.
    fn make_visible(&self, from: u64, end: u64) {
        let visible = &self.shared.visible;
        while visible.compare_exchange(from, end, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            if self.shared.failed.load(Ordering::Relaxed) {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn insert(&mut self) -> Result<(), Failure> {
        let item = self.shared.next.fetch_add(1, Ordering::Relaxed);
        self.put(item, self.job.value_bytes)?;
        self.commit()?;
        self.record.new_bytes += (self.key.len() + self.value.len()) as u64;
        self.make_visible(item, item + 1);
        Ok(())
    }

    fn put(&mut self, item: u64, value_bytes: usize) -> Result<(), Failure> {
        self.put_number(self.job.numbering.number(item), value_bytes)
    }

    fn put_number(&mut self, number: u64, value_bytes: usize) -> Result<(), Failure> {
        let job = self.job;
        job.shape.key(number, &mut self.key);
        job.shape.value(&self.key, value_bytes, &mut self.value);
        if self.is_batched() {
            job.target.add(&mut self.pending, &self.key, Some(&self.value))?;
            return if self.pending.count >= job.batch { self.commit() } else { Ok(()) };
        }
        let started = Instant::now();
        job.target.put(&self.key, &self.value)?;
        self.ended(Kind::Put, 1, started)
    }

    fn delete(&mut self, item: u64) -> Result<(), Failure> {
        let job = self.job;
        job.shape.key(job.numbering.number(item), &mut self.key);
        if self.is_batched() {
            job.target.add(&mut self.pending, &self.key, None)?;
            return if self.pending.count >= job.batch { self.commit() } else { Ok(()) };
        }
        let started = Instant::now();
        job.target.delete(&self.key)?;
        self.ended(Kind::Delete, 1, started)
    }

    fn is_batched(&self) -> bool {
        self.job.batch > 1 && matches!(self.job.script, Script::Load | Script::Overwrite | Script::Delete)
    }

    fn commit(&mut self) -> Result<(), Failure> {
        let count = u64::from(self.pending.count);
        if count == 0 {
            return Ok(());
        }
        let kind = if matches!(self.job.script, Script::Delete) { Kind::Delete } else { Kind::Put };
        let started = Instant::now();
        self.job.target.commit(&mut self.pending)?;
        self.ended(kind, count, started)
    }

    fn get(&mut self, number: u64, expected: Expected) -> Result<(), Failure> {
        self.job.shape.key(number, &mut self.key);
        self.get_key(expected)
    }

    fn get_key(&mut self, expected: Expected) -> Result<(), Failure> {
        let started = Instant::now();
        let found = self.job.target.get(&self.key, &mut self.value)?;
        self.ended(Kind::Get, 1, started)?;
        self.check(found, expected);
        Ok(())
    }

    /// A multi-get of `keys_max` keys, or fewer if the quota ends.
    fn multi_get(&mut self, keys_max: u64) -> Result<(), Failure> {
        let job = self.job;
        let count = keys_max.min(self.quota - self.record.operations);
        self.keys.resize_with(usize::try_from(count).unwrap_or(usize::MAX), Vec::new);
        for index in 0..self.keys.len() {
            let number = job.numbering.number(self.choose());
            job.shape.key(number, &mut self.keys[index]);
        }
        let started = Instant::now();
        let values = job.target.multi_get(&self.keys)?;
        self.ended(Kind::Get, count, started)?;
        if let Some(values) = &values
            && values.len() != self.keys.len()
        {
            let given = values.len();
            self.record.answers.wrong(|| format!("{count} keys together gave {given} answers"));
        }
        for index in 0..self.keys.len() {
            std::mem::swap(&mut self.key, &mut self.keys[index]);
            let found = match values.as_ref().map(|values| values.get(index).and_then(Option::as_ref)) {
                None => Found::Unasked,
                Some(None) => Found::Nothing,
                Some(Some(value)) => {
                    self.value.clear();
                    self.value.extend_from_slice(value);
                    Found::Value
                }
            };
            self.check(found, Expected::of(job));
        }
        Ok(())
    }

    fn read_modify_write(&mut self, number: u64) -> Result<(), Failure> {
        let job = self.job;
        job.shape.key(number, &mut self.key);
        let started = Instant::now();
        let found = job.target.get(&self.key, &mut self.value)?;
        let read = started.elapsed();
        self.check(found, Expected::of(job));
        job.shape.value(&self.key, job.value_bytes, &mut self.value);
        let started = Instant::now();
        job.target.put(&self.key, &self.value)?;
        self.ended(Kind::ReadModifyWrite, 1, started.checked_sub(read).unwrap_or(started))
    }

    fn check(&mut self, found: Found, expected: Expected) {
        let (job, answers) = (self.job, &mut self.record.answers);
        let name = |key: &[u8]| text::hex(key);
        match found {
            Found::Value => {
                answers.found += 1;
                if expected == Expected::Nothing {
                    answers.wrong(|| format!("key {} was never put, and has a value", name(&self.key)));
                } else if !job.shape.is_value(&self.key, &self.value) {
                    answers.wrong(|| format!("key {} has a value that is not its own", name(&self.key)));
                }
            }
            Found::Nothing => {
                answers.absent += 1;
                if expected == Expected::Value {
                    answers.wrong(|| format!("key {} is missing", name(&self.key)));
                }
            }
            Found::Unasked if expected == Expected::Nothing => answers.absent += 1,
            Found::Unasked => {
                // Makes the value and discards it, so that the cost of a check is included.
                job.shape.value(&self.key, job.value_bytes, &mut self.value);
                std::hint::black_box(&self.value);
                answers.found += 1;
            }
        }
    }

    fn scan(&mut self, number: u64, items_max: u64) -> Result<(), Failure> {
        let job = self.job;
        job.shape.key(number, &mut self.key);
        self.value.clear();
        let mut order =
            InOrder { shape: job.shape, previous: &mut self.value, answers: &mut self.record.answers };
        let started = Instant::now();
        let count = job.target.scan(&self.key, items_max, |key, value| order.look(key, value))?;
        let expected = job.whole.map(|whole| items_max.min(whole.saturating_sub(number)));
        self.ended(Kind::Scan, 1, started)?;
        let answers = &mut self.record.answers;
        answers.scanned += count.unwrap_or(expected.unwrap_or(items_max));
        if let (Some(count), Some(expected)) = (count, expected)
            && count != expected
        {
            let key = text::hex(&self.key);
            answers.wrong(|| format!("a scan from {key} gave {count} items, not {expected}"));
        }
        Ok(())
    }

    /// Reads this thread's share of the keys in order.
    fn read_all(&mut self, thread: u64) -> Result<(), Failure> {
        let job = self.job;
        let first = match job.whole {
            Some(whole) => thread * (whole / job.threads) + thread.min(whole % job.threads),
            None => thread * (u64::MAX / 2 / job.threads),
        };
        let limit = match job.whole {
            Some(whole) => self.quota.min(share(whole, thread, job.threads)),
            None => self.quota,
        };
        job.shape.key(first, &mut self.key);
        let mut end = Vec::new();
        if job.whole.is_none() && thread + 1 < job.threads {
            job.shape.key((thread + 1) * (u64::MAX / 2 / job.threads), &mut end);
        }
        let Some(mut cursor) = job.target.cursor(&self.key) else {
            let count = limit.min(share(job.count, thread, job.threads));
            self.record.answers.scanned += count;
            return self.ended(Kind::Scan, count, Instant::now());
        };
        let mut previous = Vec::new();
        let mut is_at_end = false;
        while !is_at_end && self.record.operations < limit && self.goes_on() {
            let wanted = READ_CHUNK.min(limit - self.record.operations);
            let mut order =
                InOrder { shape: job.shape, previous: &mut previous, answers: &mut self.record.answers };
            let started = Instant::now();
            let mut count = 0;
            while count < wanted {
                match cursor.next()? {
                    Some((key, value)) if end.is_empty() || key < end.as_slice() => order.look(key, value),
                    _ => {
                        is_at_end = true;
                        break;
                    }
                }
                count += 1;
            }
            self.record.answers.scanned += count;
            if count > 0 {
                self.ended(Kind::Scan, count, started)?;
            }
        }
        if is_at_end && job.whole.is_some() && self.record.operations < limit {
            let count = self.record.operations;
            self.record.answers.wrong(|| format!("a scan ended after {count} items, not {limit}"));
        }
        Ok(())
    }

    fn ended(&mut self, kind: Kind, operations: u64, started: Instant) -> Result<(), Failure> {
        self.now = Instant::now();
        let ns = nanoseconds(self.now.duration_since(started));
        if let Some(window) = &mut self.window {
            window.take(self.now.duration_since(self.shared.started), operations, ns)?;
        }
        self.record.take(kind, operations, ns)
    }
}

/// The expected result of a get.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    Nothing,
    /// The item may have been deleted.
    Either,
}

impl Expected {
    fn of(job: &Job) -> Expected {
        if job.has_gaps { Expected::Either } else { Expected::Value }
    }
}

/// One thread's share of a whole.
fn share(whole: u64, thread: u64, threads: u64) -> u64 {
    whole / threads + u64::from(thread < whole % threads)
}
