//! The stores of TridentKV's experiments: loads, gets by threads that block or have many in flight, index
//! pages.
//!
//! Random gets of present keys of 16 bytes, whose answers are checked. The figures choose sizes, ways and
//! memory. Callers are the experiments on reads and on the three techniques.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use trine::{Builder, Db, Keyspace, Ordered, Partitioning};
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::system;
use trine_workload::text::nanoseconds;

use super::trident::SCALE;
use super::{Job, a_second, median};
use crate::lab::stop_if_asked;

/// The paper's data, in bytes.
pub(super) const DATA_BYTES: u64 = 40_000_000_000;
/// Smallest memory of a store.
pub(super) const MEMORY_BYTES_MIN: u64 = 32 << 20;
/// Memory of a store while it is built: with less, too few items accumulate for a learned page.
pub(super) const BUILD_MEMORY_BYTES: u64 = 1 << 30;
/// The most items of small values: with less data they are just as cold.
const ITEMS_MAX: u64 = 8_000_000;
/// The length of a measurement at the listed scale.
const MEASURED: Duration = Duration::from_secs(2);
/// Gets in flight of an asynchronous thread.
pub(super) const DEPTH: usize = 32;

/// The bytes of a key.
pub(super) const KEY_BYTES: u64 = 16;

/// The layout of a store's items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) value_bytes: usize,
    /// The value of the setting `index_kind`.
    pub(super) index_kind: &'static str,
    /// Equal ranges of keys, each a tree; 1 is not partitioned.
    pub(super) partitions: u64,
}

impl Layout {
    pub(super) fn plain(value_bytes: usize) -> Layout {
        Layout { value_bytes, index_kind: "fences", partitions: 1 }
    }

    pub(super) fn item_bytes(&self) -> u64 {
        KEY_BYTES + self.value_bytes as u64
    }

    fn keyspace(&self, db: &Db, count: u64) -> trine::Result<Keyspace<Ordered>> {
        let builder = db.ordered("items").set("index_kind", self.index_kind);
        if self.partitions == 1 {
            return builder.open();
        }
        let bounds = (1..self.partitions).map(|one| key(count * one / self.partitions));
        builder.partition_by(Partitioning::ranges(bounds)).open()
    }
}

/// A store of `count` items.
pub(super) struct Held {
    pub(super) db: Db,
    pub(super) items: Keyspace<Ordered>,
    pub(super) count: u64,
    layout: Layout,
    /// Whether all data is in memory, because the smallest memory is more than a tenth of it.
    pub(super) is_cached: bool,
    pub(super) place: PathBuf,
    /// The number of measurements so far. Each gets other keys, because those of the one before are cached.
    rates: AtomicU64,
}

pub(super) fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

pub(super) fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut dice = Dice::new(number);
    let mut value: Vec<u8> = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        value.extend_from_slice(&dice.next().to_le_bytes());
    }
    value.truncate(bytes);
    value
}

/// Whether a value is right; its first bytes identify it.
pub(super) fn is_right(found: Option<&[u8]>, number: u64, bytes: usize) -> bool {
    let first = value(number, bytes.min(16));
    found.is_some_and(|found| found.len() == bytes && found.starts_with(&first))
}

impl Held {
    /// Ingests the items in key order; the memory is a tenth of them.
    pub(super) fn load(job: &mut Job, value_bytes: usize) -> Result<Held, Failure> {
        let held = Held::empty(job, Layout::plain(value_bytes))?;
        let mut ingest = held.items.ingest()?;
        held.for_each(|key, value| ingest.put(key, value))?;
        ingest.finish()?;
        held.db.settle()?;
        let memory_bytes = (held.data_bytes() / 10).max(MEMORY_BYTES_MIN);
        held.reopen(|place| Db::builder(place).memory_bytes(memory_bytes))
    }

    /// Puts and merges the items: an ingest has no memory for a learned page of many blocks.
    pub(super) fn build(job: &mut Job, layout: Layout) -> Result<Held, Failure> {
        let held = Held::empty(job, layout)?;
        held.for_each(|key, value| held.items.put(key, value))?;
        held.db.compact()?;
        held.db.settle()?;
        Ok(held)
    }

    fn empty(job: &mut Job, layout: Layout) -> Result<Held, Failure> {
        let count = (job.scaled(DATA_BYTES, 1) / layout.item_bytes()).clamp(1000, ITEMS_MAX);
        let place = job.workshop.place();
        Held::open(place, count, layout, |place| Db::builder(place).memory_bytes(BUILD_MEMORY_BYTES))
    }

    fn for_each(&self, mut put: impl FnMut([u8; 16], Vec<u8>) -> trine::Result<()>) -> Result<(), Failure> {
        for number in 0..self.count {
            if number.is_multiple_of(10_000) {
                stop_if_asked()?;
            }
            put(key(number), value(number, self.layout.value_bytes))?;
        }
        Ok(())
    }

    fn open(
        place: PathBuf,
        count: u64,
        layout: Layout,
        builder: impl FnOnce(&Path) -> Builder,
    ) -> Result<Held, Failure> {
        let db = builder(&place).open()?;
        let items = layout.keyspace(&db, count)?;
        let is_cached = count * layout.item_bytes() < 2 * MEMORY_BYTES_MIN;
        Ok(Held { db, items, count, layout, is_cached, place, rates: AtomicU64::new(0) })
    }

    /// Reopens the store with an empty cache and other memory.
    pub(super) fn reopen(self, builder: impl FnOnce(&Path) -> Builder) -> Result<Held, Failure> {
        let Held { db, items, count, layout, place, .. } = self;
        drop(items);
        db.close()?;
        Held::open(place, count, layout, builder)
    }

    pub(super) fn data_bytes(&self) -> u64 {
        self.count * self.layout.item_bytes()
    }

    pub(super) fn remove(self, job: &Job) -> Result<(), Failure> {
        let Held { db, items, place, .. } = self;
        drop(items);
        db.close()?;
        job.workshop.clear(&place)
    }
}

/// Index pages are counted by kind in tables of about this many bytes in total, or in one larger table,
/// because counting reads each block.
const COUNTED_BYTES: u64 = 32 << 20;

/// Pages of tables that index data blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct IndexPages {
    /// Learned pages and fence pages, in the counted tables.
    learned: u64,
    fences: u64,
    /// Bytes in all tables.
    pub(super) bytes: u64,
}

impl IndexPages {
    /// Counts the pages of a store at rest.
    pub(super) fn of(place: &Path, items: &Keyspace<Ordered>) -> Result<IndexPages, Failure> {
        let bytes = items.stats()?.levels.iter().map(|level| level.fences.bytes).sum();
        let mut pages = IndexPages { bytes, ..IndexPages::default() };
        let failed = |source| Failure::file("list", place, source);
        let mut looked_at = 0;
        for entry in std::fs::read_dir(place).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if looked_at < COUNTED_BYTES && entry.file_name().to_string_lossy().starts_with("table") {
                looked_at += entry.metadata().map_err(failed)?.len();
                trine::inspect::dump(entry.path(), |part| pages.count(part.name))?;
            }
        }
        Ok(pages)
    }

    fn count(&mut self, name: &str) {
        match name {
            "learned page, blocks" => self.learned += 1,
            "fence page, blocks" => self.fences += 1,
            _ => {}
        }
    }

    pub(super) fn has_models(&self) -> bool {
        self.learned > 0
    }

    /// The learned pages among the counted ones, in words.
    pub(super) fn models(&self) -> String {
        format!("{} of {}", self.learned, self.learned + self.fences)
    }
}

/// The way that gets are issued.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Each thread has one blocking get.
    Waiting,
    /// Each thread has this many gets in flight.
    InFlight(usize),
}

/// Operations a second, and the processor time of each.
#[derive(Clone, Copy)]
pub(super) struct Rate {
    pub(super) operations: f64,
    pub(super) cpu_ns: f64,
}

impl Rate {
    /// Measures `run`, which returns its number of operations.
    pub(super) fn of(run: impl FnOnce() -> Result<u64, Failure>) -> Result<Rate, Failure> {
        let (started, cpu_before) = (Instant::now(), system::cpu_ns());
        let count = run()?;
        let (seconds, cpu_ns) = (started.elapsed().as_secs_f64(), system::cpu_ns() - cpu_before);
        Ok(Rate { operations: count as f64 / seconds, cpu_ns: cpu_ns as f64 / count.max(1) as f64 })
    }

    /// The median of several rates, separately for both values.
    pub(super) fn median(rates: &[Rate]) -> Rate {
        Rate {
            operations: median(rates.iter().map(|rate| rate.operations)),
            cpu_ns: median(rates.iter().map(|rate| rate.cpu_ns)),
        }
    }

    /// Both values, for a table.
    pub(super) fn cell(&self) -> String {
        format!("{} ({})", a_second(self.operations), nanoseconds(self.cpu_ns as u64))
    }
}

pub(super) fn measured(job: &Job) -> Duration {
    MEASURED.mul_f64((job.scale / SCALE).clamp(0.02, 2.0))
}

/// The random numbers by which a thread chooses keys: different for each rate and thread.
pub(super) fn dice(seed: u64, rate: u64, thread: usize) -> Dice {
    // 0 is used by reads before any rate.
    Dice::new(seed.wrapping_add((rate + 1) << 32).wrapping_add(thread as u64))
}

/// Gets by `threads` threads until the time is over.
pub(super) fn rate(job: &Job, held: &Held, threads: usize, way: Way) -> Result<Rate, Failure> {
    stop_if_asked()?;
    let until = Instant::now() + measured(job);
    let number = held.rates.fetch_add(1, Ordering::Relaxed);
    let run = |thread: usize| {
        let dice = dice(job.seed, number, thread);
        match way {
            Way::Waiting => waiting(held, dice, until),
            Way::InFlight(depth) => trine::block_on(in_flight(held, dice, until, depth)),
        }
    };
    Rate::of(|| by_threads(threads, run))
}

/// Runs each thread's part; returns the sum of their results.
pub(super) fn by_threads(
    threads: usize,
    run: impl Fn(usize) -> Result<u64, Failure> + Sync,
) -> Result<u64, Failure> {
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread of a rate does not panic")).sum()
    })
}

fn check(held: &Held, found: Option<&[u8]>, number: u64) -> Result<(), Failure> {
    if is_right(found, number, held.layout.value_bytes) {
        return Ok(());
    }
    Err(Failure::Other(format!("item {number} is not what was put")))
}

fn waiting(held: &Held, mut dice: Dice, until: Instant) -> Result<u64, Failure> {
    let mut count = 0;
    while Instant::now() < until {
        let number = dice.below(held.count);
        check(held, held.items.get(key(number))?.as_deref(), number)?;
        count += 1;
    }
    Ok(count)
}

async fn in_flight(held: &Held, mut dice: Dice, until: Instant, depth: usize) -> Result<u64, Failure> {
    let mut next = || {
        let number = dice.below(held.count);
        let get = held.items.get_async(key(number));
        async move { (number, get.await) }
    };
    let mut gets: FuturesUnordered<_> = (0..depth).map(|_| next()).collect();
    let mut count = 0;
    while let Some((number, found)) = gets.next().await {
        check(held, found?.as_deref(), number)?;
        count += 1;
        if Instant::now() < until {
            gets.push(next());
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No two rates use the same keys, nor do reads before any rate, nor do two threads.
    #[test]
    fn rates_ask_for_keys_of_their_own() {
        let of = |mut dice: Dice| (0..4).map(|_| dice.below(1 << 40)).collect::<Vec<u64>>();
        let mut all = vec![of(Dice::new(u64::MAX))];
        all.extend((0..40).map(|one| of(dice(u64::MAX, one / 8, one as usize % 8))));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
