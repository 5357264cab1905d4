//! The demo's reads: every answer is timed, and checked against the records, which are made anew.

use std::time::{Duration, Instant};

use serde::Serialize;
use trine::{Db, Keyspace, Ordered, Value};
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::{progress, text};
use xxhash_rust::xxh3::xxh3_64;

use super::Run;
use super::check::Check;
use super::expectation::{Expectation, Order, Sample};
use super::load;
use super::meter::{Cost, Meter};
use super::records::{KEYSPACES, WORDS, key_hash};

/// The items of a short range.
const RANGE_ITEMS: usize = 20;

/// The keys of the snapshot test.
const OVERWRITTEN: usize = 2000;

/// Shares of the time of all reads, in percent.
const GETS_PERCENT: u64 = 40;
const MISSES_PERCENT: u64 = 20;
const RANGES_PERCENT: u64 = 25;
const WARM_GETS_PERCENT: u64 = 15;

/// A full scan.
#[derive(Serialize)]
pub(crate) struct Scan {
    pub(crate) name: &'static str,
    pub(crate) items: u64,
    pub(crate) seconds: f64,
}

pub(crate) struct Reads<'a> {
    run: &'a Run<'a>,
    db: &'a Db,
    words: Keyspace<Ordered>,
    dice: Dice,
    expectation: &'a Expectation,
    order: Order,
    pub(crate) checks: Vec<Check>,
    pub(crate) costs: Vec<Cost>,
    pub(crate) scans: Vec<Scan>,
}

impl<'a> Reads<'a> {
    pub(crate) fn new(run: &'a Run<'a>, db: &'a Db) -> Result<Reads<'a>, Failure> {
        let words = db.keyspace(KEYSPACES[WORDS])?.ordered()?;
        let dice = Dice::new(run.arguments.seed);
        let (expectation, order) = (&run.expectation, Order::default());
        let (checks, costs, scans) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Reads { run, db, words, dice, expectation, order, checks, costs, scans })
    }

    fn meter(&self, percent: u64) -> Result<Meter<'a>, Failure> {
        let time = Duration::from_millis(self.run.arguments.seconds * 10 * percent);
        Meter::new(self.db, time, self.run.arguments.records * 2)
    }

    /// A random key of the sample and its index.
    fn any_sample(&mut self) -> (&'a Sample, usize) {
        let samples = &self.expectation.sample;
        let index = self.dice.below(samples.len() as u64) as usize;
        (&samples[index], index)
    }

    /// Reads all keyspaces forward, and `words` backward; records the order of its keys.
    pub(crate) fn scan_all(&mut self) -> Result<(), Failure> {
        let mut content = Check::new("scan forward: every record, in order, nothing else");
        let bar = progress::over_items(self.expectation.records(), "scanning forward");
        let started = Instant::now();
        let mut all = 0_u64;
        for (index, keyspace) in load::keyspaces(self.db)?.iter().enumerate() {
            let mut last: Option<Value> = None;
            let mut order = Vec::new();
            for item in keyspace.iter() {
                let (key, value) = item?;
                let is_right = self.expectation.value_hash(index, &key) == Some(xxh3_64(&value));
                let is_ascending = last.as_ref().is_none_or(|last| *last < key);
                content.verify(is_right && is_ascending, || text::escaped(&key));
                order.push(key_hash(index, &key));
                last = Some(key);
                all += 1;
                if all.is_multiple_of(4096) {
                    bar.set_position(all);
                    self.run.stop_if_asked()?;
                }
            }
            let (found, expected) = (order.len() as u64, self.expectation.counts[index]);
            content.verify(found == expected, || {
                format!("{found} items in {}, not {expected}", KEYSPACES[index])
            });
            if index == WORDS {
                self.order = self.expectation.order(order);
            }
        }
        self.scans.push(Scan { name: "forward", items: all, seconds: started.elapsed().as_secs_f64() });
        bar.finish_and_clear();
        self.checks.push(content);
        self.scan_backward()
    }

    fn scan_backward(&mut self) -> Result<(), Failure> {
        let mut check = Check::new("scan backward: the same items the other way round");
        let bar = progress::over_items(self.order.hashes.len() as u64, "scanning backward");
        let started = Instant::now();
        let mut left = self.order.hashes.len();
        for item in self.words.iter().rev() {
            let (key, value) = item?;
            check.verify(left > 0 && self.expectation.is_at(&self.order, left - 1, &key, &value), || {
                text::escaped(&key)
            });
            left = left.saturating_sub(1);
            if left.is_multiple_of(4096) {
                bar.set_position((self.order.hashes.len() - left) as u64);
                self.run.stop_if_asked()?;
            }
        }
        check.verify(left == 0, || format!("{left} items missing at the front"));
        let items = (self.order.hashes.len() - left) as u64;
        self.scans.push(Scan { name: "backward", items, seconds: started.elapsed().as_secs_f64() });
        bar.finish_and_clear();
        self.checks.push(check);
        Ok(())
    }

    pub(crate) fn gets(&mut self) -> Result<(), Failure> {
        let check = Check::new("get of a present key: its value");
        self.timed_gets("get, present", check, GETS_PERCENT)
    }

    /// Gets of keys that have all been read before, so that memory holds as much of them as it can.
    pub(crate) fn warm_gets(&mut self) -> Result<(), Failure> {
        let mut check = Check::new("get with much memory: its value");
        for sample in &self.expectation.sample {
            let hash = self.words.get_with(&sample.key, xxh3_64)?;
            check.verify(hash == Some(sample.value_hash), || text::escaped(&sample.key));
        }
        self.timed_gets("get, much memory", check, WARM_GETS_PERCENT)
    }

    fn timed_gets(&mut self, name: &'static str, mut check: Check, percent: u64) -> Result<(), Failure> {
        let mut meter = self.meter(percent)?;
        while meter.goes_on() {
            let (sample, _) = self.any_sample();
            let value = meter.time(|| self.words.get(&sample.key), |value| u64::from(value.is_some()))?;
            let is_right = value.is_some_and(|value| xxh3_64(&value) == sample.value_hash);
            check.verify(is_right, || text::escaped(&sample.key));
            self.run.stop_if_asked()?;
        }
        self.costs.push(meter.finish(name));
        self.checks.push(check);
        Ok(())
    }

    /// Absent keys directly after present ones, so that only a filter or a block can exclude them.
    pub(crate) fn misses(&mut self) -> Result<(), Failure> {
        let mut check = Check::new("get of an absent key: nothing");
        let mut meter = self.meter(MISSES_PERCENT)?;
        while meter.goes_on() {
            let mut key = self.any_sample().0.key.clone();
            key.extend_from_slice(b"!");
            key.extend_from_slice(self.dice.below(1 << 20).to_string().as_bytes());
            let value = meter.time(|| self.words.get(&key), |value| u64::from(value.is_some()))?;
            check.verify(value.is_none(), || text::escaped(&key));
            self.run.stop_if_asked()?;
        }
        self.costs.push(meter.finish("get, absent"));
        self.checks.push(check);
        Ok(())
    }

    pub(crate) fn ranges(&mut self) -> Result<(), Failure> {
        let mut check = Check::new("short ranges, both ways: the items of the checked order");
        let mut meter = self.meter(RANGES_PERCENT)?;
        while meter.goes_on() {
            let (sample, index) = self.any_sample();
            let rank = self.order.ranks[index];
            let forward = self.dice.below(2) == 0;
            let items: Vec<(Value, Value)> = meter.time(
                || match forward {
                    true => self.words.range(sample.key.as_slice()..).take(RANGE_ITEMS).collect(),
                    false => self.words.range(..sample.key.as_slice()).rev().take(RANGE_ITEMS).collect(),
                },
                |items: &Vec<(Value, Value)>| items.len() as u64,
            )?;
            let all = self.order.hashes.len();
            let expected = if forward { all - rank } else { rank }.min(RANGE_ITEMS);
            let rank_of = |index: usize| if forward { rank + index } else { rank.wrapping_sub(1 + index) };
            let is_right = items.len() == expected
                && items.iter().enumerate().all(|(index, (key, value))| {
                    self.expectation.is_at(&self.order, rank_of(index), key, value)
                });
            check.verify(is_right, || text::escaped(&sample.key));
            self.run.stop_if_asked()?;
        }
        self.costs.push(meter.finish("range of 20"));
        self.checks.push(check);
        Ok(())
    }

    /// Prefix scans of every occurrence of some words.
    pub(crate) fn prefixes(&mut self) -> Result<(), Failure> {
        let mut check = Check::new("prefix: every occurrence of a word, counted");
        let mut meter = Meter::new(self.db, Duration::ZERO, u64::MAX)?;
        for (prefix, expected) in &self.expectation.prefixes {
            let found = meter.time(
                || self.words.prefix(prefix).try_fold(0_u64, |count, item| item.map(|_| count + 1)),
                |count| *count,
            )?;
            check
                .verify(found == *expected, || format!("{}: {found}, not {expected}", text::escaped(prefix)));
            self.run.stop_if_asked()?;
        }
        self.costs.push(meter.finish("prefix, counted"));
        self.checks.push(check);
        Ok(())
    }

    /// Overwrites and deletes under a snapshot, then restores all items.
    pub(crate) fn snapshot(&mut self) -> Result<(), Failure> {
        let mut old = Check::new("snapshot: the values before the overwrite");
        let mut new = Check::new("after the overwrite: new values, deleted keys absent");
        let mut back = Check::new("after putting back: the first values again");
        let snapshot = self.db.snapshot();
        let at = self.words.at(&snapshot);
        let stride = (self.expectation.sample.len() / OVERWRITTEN).max(1);
        let chosen: Vec<&Sample> = self.expectation.sample.iter().step_by(stride).collect();
        let mut batch = self.db.batch();
        for (index, sample) in chosen.iter().enumerate() {
            match index % 4 {
                0 => batch.delete(&self.words, &sample.key),
                _ => batch.put(&self.words, &sample.key, format!("overwritten {index}")),
            }?;
        }
        batch.commit()?;
        let mut batch = self.db.batch();
        for (index, sample) in chosen.iter().enumerate() {
            let before = at.get(&sample.key)?;
            let now = self.words.get(&sample.key)?;
            let expected = (index % 4 != 0).then(|| format!("overwritten {index}"));
            let name = || text::escaped(&sample.key);
            new.verify(now.as_deref() == expected.as_deref().map(str::as_bytes), name);
            old.verify(before.as_ref().is_some_and(|value| xxh3_64(value) == sample.value_hash), name);
            if let Some(value) = before {
                batch.put(&self.words, &sample.key, value)?;
            }
        }
        batch.commit()?;
        for sample in &chosen {
            let value = self.words.get_with(&sample.key, xxh3_64)?;
            back.verify(value == Some(sample.value_hash), || text::escaped(&sample.key));
        }
        self.checks.extend([old, new, back]);
        Ok(())
    }

    /// One get with its steps and the time of each.
    pub(crate) fn trace(&mut self) -> Result<trine::Trace, Failure> {
        let (sample, _) = self.any_sample();
        let (value, trace) = self.words.trace(&sample.key)?;
        let mut check = Check::new("traced get: the same value");
        let is_right = value.is_some_and(|value| xxh3_64(&value) == sample.value_hash);
        check.verify(is_right, || text::escaped(&sample.key));
        self.checks.push(check);
        Ok(trace)
    }
}
