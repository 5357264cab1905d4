//! A load into a store with index pages of one kind: its rate, the remaining background work, and its index
//! pages.
//!
//! It is not a figure: `trident_write` chooses the cases and compares. Threads take items in chunks, so a
//! sequential load stays nearly in key order with many threads.

use std::sync::atomic::{AtomicU64, Ordering};

use trine::lab::KeyFamily;
use trine::{Db, Keyspace, Ordered};
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::keys::Permutation;
use trine_workload::numbering::Numbering;

use super::Job;
use super::trident_store::{BUILD_MEMORY_BYTES, IndexPages, Rate, by_threads, value};
use crate::lab::stop_if_asked;

/// Too small for fences and filters, so that `auto` is free to train.
const CACHE_BYTES: u64 = 64 << 10;
/// Small enough for some ten flushes in a load, and merges of them.
const WRITE_BUFFER_BYTES: u64 = 1 << 20;
/// Items that a thread takes at a time.
const CHUNK: u64 = 64;
/// Values are pieces of one string, from this many start positions.
const VALUE_STARTS: u64 = 4096;
/// Gets after a load, whose answers are checked.
const GETS: u64 = 200;

/// Keys of a data set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DataSet {
    Family(KeyFamily),
    /// 16 digits, normally distributed.
    Normal,
}

impl DataSet {
    /// The paper's linear, Seg-1 %, AR and OSM, and strings; all are synthetic.
    pub(super) const ALL: [DataSet; 5] = [
        DataSet::Family(KeyFamily::Decimal),
        DataSet::Family(KeyFamily::Segmented),
        DataSet::Normal,
        DataSet::Family(KeyFamily::Geographic),
        DataSet::Family(KeyFamily::Url),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            DataSet::Family(KeyFamily::Decimal) => "linear",
            DataSet::Family(KeyFamily::Segmented) => "segmented, 1 %",
            DataSet::Family(KeyFamily::Geographic) => "OSM-like",
            DataSet::Family(KeyFamily::Url) => "strings",
            DataSet::Family(family) => family.name(),
            DataSet::Normal => "normal",
        }
    }

    /// `count` different keys, ascending.
    pub(super) fn keys(self, count: usize, seed: u64) -> Vec<Vec<u8>> {
        match self {
            DataSet::Family(family) => family.keys(count, seed),
            DataSet::Normal => normal_keys(count, seed),
        }
    }
}

/// Sums of twelve uniform numbers, which are normally distributed except at the ends.
fn normal_keys(count: usize, seed: u64) -> Vec<Vec<u8>> {
    const ADDENDS: u64 = 12;
    const SUM_MAX: u64 = 10_u64.pow(16);
    let mut dice = Dice::new(seed);
    let mut key = || {
        let sum: u64 = (0..ADDENDS).map(|_| dice.below(SUM_MAX / ADDENDS)).sum();
        format!("{sum:016}").into_bytes()
    };
    let mut keys: Vec<Vec<u8>> = Vec::with_capacity(count);
    while keys.len() < count {
        keys.extend((keys.len()..count).map(|_| key()));
        keys.sort_unstable();
        keys.dedup();
    }
    keys
}

/// The order in which keys are put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyOrder {
    Random,
    Sequential,
}

impl KeyOrder {
    pub(super) fn name(self) -> &'static str {
        match self {
            KeyOrder::Random => "random",
            KeyOrder::Sequential => "sequential",
        }
    }
}

/// Keys to put, with values of one length.
pub(super) struct Items {
    keys: Vec<Vec<u8>>,
    values: Vec<u8>,
    value_bytes: usize,
    seed: u64,
}

impl Items {
    pub(super) fn new(set: DataSet, count: u64, value_bytes: usize, seed: u64) -> Items {
        let values = value(seed, value_bytes + VALUE_STARTS as usize);
        Items { keys: set.keys(count as usize, seed), values, value_bytes, seed }
    }

    fn count(&self) -> u64 {
        self.keys.len() as u64
    }

    fn item(&self, number: u64) -> (&[u8], &[u8]) {
        let start = (number % VALUE_STARTS) as usize;
        (&self.keys[number as usize], &self.values[start..start + self.value_bytes])
    }

    fn numbering(&self, order: KeyOrder) -> Numbering {
        match order {
            KeyOrder::Random => Numbering::Random(Permutation::new(self.count(), self.seed)),
            KeyOrder::Sequential => Numbering::Sequential,
        }
    }
}

/// The results of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    /// Puts a second.
    pub(super) puts: f64,
    /// The same, including the time of the remaining flushes and merges.
    pub(super) settled: f64,
    pub(super) cpu_ns: f64,
    /// Only if requested.
    pub(super) pages: IndexPages,
}

/// A load into a new store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) order: KeyOrder,
    pub(super) writers: usize,
    pub(super) index_kind: &'static str,
    /// Whether index pages are counted by kind, which takes longer than the load.
    pub(super) tells_pages: bool,
}

/// Loads the items into a new store, checks some, and removes it.
pub(super) fn load(
    job: &mut Job,
    items: &Items,
    Load { order, writers, index_kind, tells_pages }: Load,
) -> Result<Loaded, Failure> {
    let place = job.workshop.place();
    let builder = Db::builder(&place).memory_bytes(BUILD_MEMORY_BYTES).cache_bytes(CACHE_BYTES);
    let db = builder.write_buffer_bytes(WRITE_BUFFER_BYTES).open()?;
    let keyspace = db.ordered("items").set("index_kind", index_kind).open()?;
    let (numbering, next) = (items.numbering(order), AtomicU64::new(0));
    let mut puts = 0.0;
    let settled = Rate::of(|| {
        let put = || by_threads(writers, |_| put(items, &keyspace, numbering, &next));
        puts = Rate::of(put)?.operations;
        db.flush()?;
        db.settle()?;
        Ok(items.count())
    })?;
    check(items, &keyspace)?;
    let pages = if tells_pages { IndexPages::of(&place, &keyspace)? } else { IndexPages::default() };
    drop(keyspace);
    db.close()?;
    job.workshop.clear(&place)?;
    Ok(Loaded { puts, settled: settled.operations, cpu_ns: settled.cpu_ns, pages })
}

/// The loop of one thread.
fn put(
    items: &Items,
    keyspace: &Keyspace<Ordered>,
    numbering: Numbering,
    next: &AtomicU64,
) -> Result<u64, Failure> {
    let mut done = 0;
    loop {
        stop_if_asked()?;
        let from = next.fetch_add(CHUNK, Ordering::Relaxed);
        let chunk = from..items.count().min(from + CHUNK);
        if chunk.is_empty() {
            return Ok(done);
        }
        for position in chunk {
            let (key, value) = items.item(numbering.number(position));
            keyspace.put(key, value)?;
            done += 1;
        }
    }
}

fn check(items: &Items, keyspace: &Keyspace<Ordered>) -> Result<(), Failure> {
    let mut dice = Dice::new(items.seed);
    for _ in 0..GETS {
        let number = dice.below(items.count());
        let (key, value) = items.item(number);
        if keyspace.get(key)?.as_deref() != Some(value) {
            return Err(Failure::Other(format!("item {number} is not what was put")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Normal keys are different and ascend; two thirds of them are within a deviation of the mean.
    #[test]
    fn normal_keys_are_normal() {
        let keys = DataSet::Normal.keys(10_000, 3);
        assert!(keys.len() == 10_000 && keys.is_sorted_by(|one, other| one < other));
        let numbers = keys.iter().map(|key| String::from_utf8_lossy(key).parse::<f64>().expect("digits"));
        // The standard deviation of the sum is a twelfth of the range.
        let near = numbers.filter(|number| (number / 1e16 - 0.5).abs() < 1.0 / 12.0).count();
        assert!((6600..7050).contains(&near), "{near}");
    }
}
