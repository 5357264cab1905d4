//! One thread of a row.

use std::sync::atomic::Ordering;
use std::time::Instant;

use trine_workload::dice::Dice;
use trine_workload::keys::Permutation;
use trine_workload::{mixgraph, ycsb};

use super::drive::{Job, LOAD_CHUNK, Script, Shared, share};
use super::engines::{Asked, Asker, Changes, Found, Reader, Values};
use super::plan::SHAPE;
use super::record::{Expected, InOrder, Record, hex};
use crate::engines::Answer;

/// Operations between two updates of the count that the threads share.
const TELL_EVERY: u64 = 64;

pub(super) struct Worker<'a> {
    job: &'a Job<'a>,
    shared: &'a Shared,
    reader: Box<dyn Reader + 'a>,
    dice: Dice,
    quota: u64,
    deadline: Option<Instant>,
    now: Instant,
    key: Vec<u8>,
    value: Vec<u8>,
    /// In scans, the key before; in gets, a buffer for a value that is not used.
    spare: Vec<u8>,
    keys: Vec<Vec<u8>>,
    values: Values,
    changes: Changes,
    record: Record,
    told: u64,
}

impl<'a> Worker<'a> {
    pub(super) fn new(job: &'a Job<'a>, shared: &'a Shared, thread: u64) -> Answer<Worker<'a>> {
        let is_beside = thread >= job.threads;
        Ok(Worker {
            job,
            shared,
            reader: job.engine.reader(job.sees)?,
            dice: Dice::new(Dice::new(job.seed ^ thread << 40).next()),
            quota: if is_beside { u64::MAX } else { share(job.limit.operations, thread, job.threads) },
            deadline: job.limit.time.map(|time| shared.started + time),
            now: shared.started,
            key: Vec::new(),
            value: Vec::new(),
            spare: Vec::new(),
            keys: Vec::new(),
            values: Values::default(),
            changes: Changes::default(),
            record: Record::new()?,
            told: 0,
        })
    }

    pub(super) fn into_record(self) -> Record {
        self.record
    }

    pub(super) fn operations(&self) -> u64 {
        self.record.operations
    }

    pub(super) fn run(&mut self) -> Answer<()> {
        match self.job.script {
            Script::Load { end } => self.in_order(end, |order| order)?,
            Script::Rewrite { to, .. } => {
                let order = Permutation::new(self.job.data.count, self.job.seed);
                self.in_order(to, |place| order.of(place))?;
            }
            Script::GetEach => self.get_each()?,
            Script::All => self.all()?,
            Script::InFlight { executor, depth } => {
                // The worker's own reader is not used: the worker is asked for keys meanwhile.
                self.job.engine.reader(self.job.sees)?.in_flight(executor, depth, self)?;
            }
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

    fn goes_on(&mut self) -> bool {
        let done = self.record.operations;
        if done >= self.told + TELL_EVERY {
            self.tell();
        }
        done + self.changes.len() < self.quota
            && !self.shared.over.load(Ordering::Relaxed)
            && self.deadline.is_none_or(|deadline| done == 0 || self.now < deadline)
    }

    fn tell(&mut self) {
        self.shared.done.fetch_add(self.record.operations - self.told, Ordering::Relaxed);
        self.told = self.record.operations;
    }

    fn choose(&mut self) -> u64 {
        let chooser = self.job.chooser.as_ref().expect("every script that chooses is given a chooser");
        chooser.choose(self.shared.count(), &mut self.dice)
    }

    fn choose_number(&mut self) -> u64 {
        let item = self.choose();
        self.job.data.numbering.number(item)
    }

    fn step(&mut self) -> Answer<()> {
        match &self.job.script {
            Script::Overwrite => self.overwrite(),
            Script::Get => {
                let number = self.choose_number();
                self.get(number)
            }
            Script::GetAbsent => {
                let number = self.choose_number();
                SHAPE.missing_key(number, &mut self.key);
                self.get_key(Expected::Nothing)
            }
            Script::MultiGet { keys } => self.multi_get(*keys),
            Script::Scan { items } | Script::ScanOwned { items } => {
                let number = self.choose_number();
                self.scan(number, *items)
            }
            Script::Ycsb(core) => self.ycsb(*core),
            Script::Mixgraph(mix) => self.mixgraph(mix),
            Script::Load { .. }
            | Script::Rewrite { .. }
            | Script::GetEach
            | Script::All
            | Script::InFlight { .. } => {
                unreachable!("they have loops of their own")
            }
        }
    }

    /// The expected outcome of a get of a key that is in the store.
    fn present(&self) -> Expected {
        Expected::Value { made_bytes: self.job.data.value_bytes }
    }

    fn ycsb(&mut self, core: ycsb::Core) -> Answer<()> {
        let request = core.request(&mut self.dice);
        if request == ycsb::Request::Insert {
            let item = self.shared.next.fetch_add(1, Ordering::Relaxed);
            self.put(self.job.data.numbering.number(item), self.job.data.value_bytes)?;
            self.shared.land(item);
            return Ok(());
        }
        let number = self.choose_number();
        match request {
            ycsb::Request::Read => self.get(number),
            ycsb::Request::Update => self.put(number, self.job.data.value_bytes),
            ycsb::Request::Scan { items } => self.scan(number, items),
            ycsb::Request::ReadModifyWrite => self.read_modify_write(number),
            ycsb::Request::Insert => unreachable!("it was taken above"),
        }
    }

    fn mixgraph(&mut self, mix: &mixgraph::Mixgraph) -> Answer<()> {
        let number = mix.key(&mut self.dice);
        match mix.request(&mut self.dice) {
            mixgraph::Request::Get => self.get(number),
            mixgraph::Request::Put { value_bytes } => {
                self.put(number, usize::try_from(value_bytes).unwrap_or(self.job.data.value_bytes))
            }
            mixgraph::Request::Scan { items } => self.scan(number, items),
        }
    }

    /// Puts items up to `end`, chunk by chunk; a chunk that was begun is finished.
    fn in_order(&mut self, end: u64, item: impl Fn(u64) -> u64) -> Answer<()> {
        let chunk = LOAD_CHUNK.max(self.job.batch);
        while self.goes_on() {
            let from = self.shared.next.fetch_add(chunk, Ordering::Relaxed);
            if from >= end {
                break;
            }
            for place in from..end.min(from + chunk) {
                let item = item(place);
                self.put(self.job.data.numbering.number(item), self.job.data.value_bytes)?;
            }
            self.commit()?;
            if matches!(self.job.script, Script::Load { .. }) {
                (from..end.min(from + chunk)).for_each(|item| self.shared.land(item));
            }
        }
        Ok(())
    }

    fn get_each(&mut self) -> Answer<()> {
        let order = Permutation::new(self.job.data.count, self.job.seed);
        while self.goes_on() {
            let from = self.shared.next.fetch_add(LOAD_CHUNK, Ordering::Relaxed);
            if from >= self.job.data.count {
                break;
            }
            for place in from..self.job.data.count.min(from + LOAD_CHUNK) {
                self.get(self.job.data.numbering.number(order.of(place)))?;
            }
        }
        Ok(())
    }

    pub(super) fn overwrite(&mut self) -> Answer<()> {
        let number = self.choose_number();
        self.put(number, self.job.data.value_bytes)
    }

    fn put(&mut self, number: u64, value_bytes: usize) -> Answer<()> {
        SHAPE.key(number, &mut self.key);
        SHAPE.value(&self.key, value_bytes, &mut self.value);
        self.record.puts(&self.key, &self.value);
        if self.job.batch > 1 {
            self.changes.put(&self.key, &self.value);
            return if self.changes.len() >= self.job.batch { self.commit() } else { Ok(()) };
        }
        let started = Instant::now();
        self.job.engine.put(&self.key, &self.value)?;
        self.ended(1, started);
        Ok(())
    }

    fn commit(&mut self) -> Answer<()> {
        let count = self.changes.len();
        if count > 0 {
            let started = Instant::now();
            self.job.engine.write(&self.changes)?;
            self.ended(count, started);
            self.changes.clear();
        }
        Ok(())
    }

    fn get(&mut self, number: u64) -> Answer<()> {
        SHAPE.key(number, &mut self.key);
        self.get_key(self.present())
    }

    fn get_key(&mut self, expected: Expected) -> Answer<()> {
        let started = Instant::now();
        let found = self.reader.get(&self.key, &mut self.value)?;
        self.ended(1, started);
        self.record.check(SHAPE, &self.key, (found, &self.value), expected, &mut self.spare);
        Ok(())
    }

    fn read_modify_write(&mut self, number: u64) -> Answer<()> {
        SHAPE.key(number, &mut self.key);
        let started = Instant::now();
        let found = self.reader.get(&self.key, &mut self.value)?;
        let (read, expected) = (started.elapsed(), self.present());
        self.record.check(SHAPE, &self.key, (found, &self.value), expected, &mut self.spare);
        SHAPE.value(&self.key, self.job.data.value_bytes, &mut self.value);
        self.record.puts(&self.key, &self.value);
        let started = Instant::now();
        self.job.engine.put(&self.key, &self.value)?;
        self.ended(1, started.checked_sub(read).unwrap_or(started));
        Ok(())
    }

    fn multi_get(&mut self, count: u64) -> Answer<()> {
        self.keys.resize_with(usize::try_from(count).unwrap_or(1), Vec::new);
        for index in 0..self.keys.len() {
            let number = self.choose_number();
            SHAPE.key(number, &mut self.keys[index]);
        }
        self.values.clear();
        let started = Instant::now();
        self.reader.multi_get(&self.keys, &mut self.values)?;
        self.ended(count, started);
        if self.values.len() != self.keys.len() {
            let given = self.values.len();
            self.record.is_wrong(|| format!("{count} keys together gave {given} answers"));
        }
        let expected = self.present();
        for (key, answer) in self.keys.iter().zip(self.values.iter()) {
            self.record.check(SHAPE, key, answer, expected, &mut self.spare);
        }
        Ok(())
    }

    fn scan(&mut self, number: u64, items_max: u64) -> Answer<()> {
        SHAPE.key(number, &mut self.key);
        self.spare.clear();
        let is_owned = matches!(self.job.script, Script::ScanOwned { .. });
        let mut order = InOrder { shape: SHAPE, previous: &mut self.spare, record: &mut self.record };
        let mut look = |key: &[u8], value: &[u8]| order.look(key, value);
        let started = Instant::now();
        let count = if is_owned {
            self.reader.scan_owned(&self.key, items_max, &mut look)?
        } else {
            self.reader.scan(&self.key, items_max, &mut look)?
        };
        self.ended(1, started);
        let data = &self.job.data;
        let expected = items_max.min(data.count.saturating_sub(number));
        if let Some(count) = count
            && data.is_dense
            && count != expected
        {
            let key = hex(&self.key);
            self.record.is_wrong(|| format!("a scan from {key} gave {count} items, not {expected}"));
        }
        Ok(())
    }

    /// Does the work of checking a scan, where no store was asked.
    fn unasked(&mut self, items: u64) {
        let expected = self.present();
        for number in 0..items {
            SHAPE.key(number, &mut self.key);
            self.record.check(SHAPE, &self.key, (Found::Unasked, &[]), expected, &mut self.spare);
        }
    }

    /// Reads everything in order, in one call; the operations are the items.
    fn all(&mut self) -> Answer<()> {
        let mut order = InOrder { shape: SHAPE, previous: &mut self.spare, record: &mut self.record };
        let started = Instant::now();
        let count = self.reader.all(&mut |key, value| order.look(key, value))?;
        let expected = self.job.data.count;
        self.ended(expected, started);
        match count {
            None => self.unasked(expected),
            Some(count) if count != expected => {
                self.record.is_wrong(|| format!("there are {count} items in order, not {expected}"));
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn ended(&mut self, operations: u64, started: Instant) {
        self.now = Instant::now();
        let ns = self.now.duration_since(started).as_nanos();
        self.record.take(operations, u64::try_from(ns).unwrap_or(u64::MAX));
    }
}

impl Asker for Worker<'_> {
    fn next(&mut self, key: &mut Vec<u8>) -> Option<Asked> {
        let number = self.goes_on().then(|| self.choose_number())?;
        SHAPE.key(number, key);
        Some(Asked { number, started: Instant::now() })
    }

    fn answer(&mut self, asked: Asked, found: Found, value: &[u8]) {
        self.ended(1, asked.started);
        let expected = self.present();
        SHAPE.key(asked.number, &mut self.key);
        self.record.check(SHAPE, &self.key, (found, value), expected, &mut self.spare);
    }
}
