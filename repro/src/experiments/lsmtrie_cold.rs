//! Cold gets of a store whose memory is a small part of its data: the store, its load in stages, and the cost
//! of gets.
//!
//! Tables and write buffers have 256 KiB, so that a load of 50 M items has as many levels as the paper's. The
//! cache holds filters, fences, structures of tables and blocks; memory of idle writers is not lent to it.
//! Device reads are the store's own count, one for each request of a page or block. Callers are the
//! experiments on LSM-trie's reads, on its metadata, and on parallel search.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use trine::{Db, KeyspaceBuilder, Stats};
use trine_workload::dice::Dice;
use trine_workload::distribution::{Chooser, Distribution};
use trine_workload::failure::Failure;
use trine_workload::keys::{Permutation, Shape};
use trine_workload::probe::{self, Probe};
use trine_workload::system;

use super::lsmtrie_load::{Items, KEY_BYTES, TABLE_BYTES, VALUE_BYTES};
use crate::lab::stop_if_asked;

/// The number of items at scale 1.
pub(super) const ITEMS: u64 = 50_000_000;
/// Enough for three heights.
pub(super) const ITEMS_MIN: u64 = 60_000;
/// Bytes of an item.
pub(super) const ITEM_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;
/// The paper's memory for 1 TB of data, as a part of it: 4 GB.
pub(super) const PAPERS_MEMORY: f64 = 0.004;
/// A cache large enough for all filters, as a part of the data. Two bytes an item are 1/58 of it; filters of
/// small tables are rounded up to pages, and blocks have a part of any cache.
pub(super) const FILTERS_MEMORY: f64 = 0.09;
/// Memory of a store besides its cache: the minimum of a store.
const MEMORY_BYTES: u64 = 32 << 20;
const FILTER_BITS_PER_KEY: u64 = 16;
/// The shortest measurement of the device.
const PROBED: Duration = Duration::from_millis(120);

/// The structure of the items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A hashed keyspace whose leaves are not merged, as the paper's last level.
    Trie,
    /// An ordered keyspace with the store's own policy.
    Tree,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Trie => "trie",
            Kind::Tree => "ordered tree",
        }
    }
}

/// The parameters of an opening.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    pub(super) kind: Kind,
    pub(super) cache_bytes: u64,
    pub(super) search: &'static str,
    /// The bytes of a table, and of a write buffer.
    pub(super) table_bytes: u64,
}

impl Opening {
    pub(super) fn new(kind: Kind, cache_bytes: u64) -> Opening {
        Opening { kind, cache_bytes, search: "adaptive", table_bytes: TABLE_BYTES }
    }

    pub(super) fn with_search(&self, search: &'static str) -> Opening {
        Opening { search, ..self.clone() }
    }

    pub(super) fn with_cache(&self, cache_bytes: u64) -> Opening {
        Opening { cache_bytes, ..self.clone() }
    }

    fn memory_bytes(&self) -> u64 {
        let memory_bytes = MEMORY_BYTES.max(2 * self.cache_bytes).max(16 * self.table_bytes);
        memory_bytes.next_power_of_two()
    }

    /// Opens the store, or makes it.
    pub(super) fn open(&self, place: PathBuf, order: Permutation) -> Result<Cold, Failure> {
        let builder = Db::builder(&place).memory_bytes(self.memory_bytes()).set("search", self.search);
        let builder = builder.write_buffer_bytes(self.table_bytes).cache_bytes(self.cache_bytes);
        let db = builder.open()?;
        fn alike<K>(builder: KeyspaceBuilder<K>, table_bytes: u64) -> KeyspaceBuilder<K> {
            builder.set("table_bytes", table_bytes).set("filter_bits_per_key", FILTER_BITS_PER_KEY)
        }
        let items = match self.kind {
            Kind::Trie => {
                let hashed = alike(db.hashed("items"), self.table_bytes).set("runs_in_last_level", 63);
                Items::Hashed(hashed.open()?)
            }
            Kind::Tree => Items::Ordered(alike(db.ordered("items"), self.table_bytes).open()?),
        };
        Ok(Cold { db, items, place, order, asked: AtomicU64::new(0) })
    }
}

/// An open store, whose items are the first ones of an order.
pub(super) struct Cold {
    pub(super) db: Db,
    pub(super) items: Items,
    pub(super) place: PathBuf,
    order: Permutation,
    /// The number of measurements so far; each uses other keys.
    asked: AtomicU64,
}

const SHAPE: Shape = Shape { key_bytes: KEY_BYTES, compressible_percent: 0 };

impl Cold {
    /// Puts the items of a stage, and waits for flushes and merges.
    pub(super) fn load(&self, stage: std::ops::Range<u64>) -> Result<(), Failure> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for number in stage {
            if number.is_multiple_of(10_000) {
                stop_if_asked()?;
            }
            SHAPE.key(self.order.of(number), &mut key);
            SHAPE.value(&key, VALUE_BYTES, &mut value);
            self.items.put(&key, &value)?;
        }
        self.db.flush()?;
        Ok(self.db.settle()?)
    }

    /// Merges each leaf into one run, or the tree into one level.
    pub(super) fn rest(&self) -> Result<(), Failure> {
        self.db.compact()?;
        Ok(self.db.settle()?)
    }

    pub(super) fn close(self) -> Result<PathBuf, Failure> {
        let Cold { db, items, place, .. } = self;
        drop(items);
        db.close()?;
        Ok(place)
    }

    /// Closes the store and opens it with other parameters and an empty cache.
    pub(super) fn reopen(self, opening: &Opening) -> Result<Cold, Failure> {
        let order = self.order;
        opening.open(self.close()?, order)
    }

    /// Memory kept for tables: their structures, and filters and fences.
    pub(super) fn kept_bytes(&self) -> Kept {
        let stats = self.db.stats();
        let role = |name: &str| stats.memory.roles.iter().find(|role| role.name == name);
        let bytes = |name: &str| role(name).map_or(0, |role| role.bytes);
        Kept { pages: bytes("filters and fences"), structures: bytes("table bounds"), stats }
    }
}

/// Pages that a get loads from the device, by their contents.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Loads {
    pub(super) filters: f64,
    pub(super) fences: f64,
    pub(super) data: f64,
}

/// The memory kept for tables, with the statistics it comes from.
pub(super) struct Kept {
    pub(super) pages: u64,
    pub(super) structures: u64,
    pub(super) stats: Stats,
}

/// The distribution of the keys of gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keys {
    /// Present keys, uniformly.
    Uniform,
    /// Present keys, by Zipf with exponent 0.99.
    Zipf,
    /// Keys that were never put.
    Absent,
}

impl Keys {
    pub(super) fn name(self) -> &'static str {
        match self {
            Keys::Uniform => "uniform",
            Keys::Zipf => "zipf",
            Keys::Absent => "absent",
        }
    }
}

/// The way that gets are issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// By this many threads, each with blocking gets.
    Threads(usize),
    /// By one thread with this many gets in flight.
    InFlight(usize),
}

/// The gets of one measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) keys: Keys,
    /// The number of items in the store.
    pub(super) present: u64,
    pub(super) gets: u64,
    pub(super) way: Way,
    pub(super) seed: u64,
}

/// The cost of gets.
pub(super) struct Cost {
    pub(super) gets: u64,
    pub(super) device_reads: u64,
    pub(super) seconds: f64,
    pub(super) cpu_ns: u64,
    /// The latency of each get, ascending; empty for gets in flight.
    latencies_ns: Vec<u64>,
}

impl Cost {
    pub(super) fn reads(&self) -> f64 {
        self.device_reads as f64 / self.gets.max(1) as f64
    }

    pub(super) fn rate(&self) -> f64 {
        self.gets as f64 / self.seconds.max(1e-9)
    }

    /// The latency that `permille` thousandths of the gets do not exceed.
    pub(super) fn permille_ns(&self, permille: usize) -> u64 {
        permille_of(&self.latencies_ns, permille)
    }

    pub(super) fn cpu_ns_a_get(&self) -> u64 {
        self.cpu_ns / self.gets.max(1)
    }

    /// Adds the gets of another round.
    pub(super) fn add(&mut self, other: Cost) {
        self.gets += other.gets;
        self.device_reads += other.device_reads;
        self.seconds += other.seconds;
        self.cpu_ns += other.cpu_ns;
        self.latencies_ns.extend(other.latencies_ns);
        self.latencies_ns.sort_unstable();
    }
}

/// The least of the ascending numbers that `permille` thousandths of them do not exceed; 0 if there are none.
pub(super) fn permille_of(ascending: &[u64], permille: usize) -> u64 {
    let index = (ascending.len() * permille).div_ceil(1000).saturating_sub(1);
    ascending.get(index).copied().unwrap_or(0)
}

/// Makes the keys of one thread, and checks answers.
struct Asker {
    keys: Keys,
    present: u64,
    order: Permutation,
    chooser: Chooser,
    dice: Dice,
}

impl Asker {
    fn new(cold: &Cold, ask: &Ask, thread: u64) -> Asker {
        let number = cold.asked.load(Ordering::Relaxed);
        let distribution = if ask.keys == Keys::Zipf { Distribution::Zipf } else { Distribution::Uniform };
        Asker {
            keys: ask.keys,
            present: ask.present,
            order: cold.order,
            chooser: Chooser::new(distribution, ask.present, ask.seed),
            dice: Dice::new(ask.seed ^ (number + 1) << 32 ^ (thread + 1) << 20),
        }
    }

    fn next(&mut self, key: &mut Vec<u8>) {
        let number = self.order.of(self.chooser.choose(self.present, &mut self.dice));
        match self.keys {
            Keys::Absent => SHAPE.missing_key(number, key),
            Keys::Uniform | Keys::Zipf => SHAPE.key(number, key),
        }
    }

    fn check(&self, key: &[u8], found: Option<&[u8]>) -> Result<(), Failure> {
        let is_right = match found {
            Some(value) => self.keys != Keys::Absent && SHAPE.is_value(key, value),
            None => self.keys == Keys::Absent,
        };
        if is_right { Ok(()) } else { Err(Failure::Other(format!("a get of {key:02x?} has a wrong answer"))) }
    }
}

impl Cold {
    /// Measures gets, after a third as many unmeasured ones that warm the cache.
    pub(super) fn ask_warm(&self, ask: Ask) -> Result<Cost, Failure> {
        self.ask(Ask { gets: ask.gets / 3, way: Way::InFlight(32), ..ask })?;
        self.ask(ask)
    }

    /// Pages that a get of a present key loads, one after another.
    pub(super) fn loads(&self, ask: Ask) -> Result<Loads, Failure> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (mut asker, mut key, mut loads) = (Asker::new(self, &ask, 0), Vec::new(), Loads::default());
        for _ in 0..ask.gets {
            asker.next(&mut key);
            for step in self.items.trace(&key)?.steps {
                let count = step.count as f64 / ask.gets as f64;
                match step.name {
                    "FBLoad" => loads.filters += count,
                    "IBLoad" => loads.fences += count,
                    "DBLoad" => loads.data += count,
                    _ => {}
                }
            }
        }
        Ok(loads)
    }

    /// The part of present keys whose item is in the last level, by the store's `explain`.
    pub(super) fn last_level_part(&self, ask: Ask) -> Result<f64, Failure> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (mut asker, mut key, mut in_last) = (Asker::new(self, &ask, 0), Vec::new(), 0);
        let last = self.items.stats()?.levels.last().map_or(0, |level| level.level);
        for _ in 0..ask.gets {
            asker.next(&mut key);
            let explained = self.items.explain(&key)?;
            // The last step of a get has its answer.
            let level = explained.steps.last().and_then(|step| step.level);
            in_last += u64::from(level.map(u64::from) == Some(last));
        }
        Ok(in_last as f64 / ask.gets.max(1) as f64)
    }

    /// Measures gets; every answer is checked.
    pub(super) fn ask(&self, ask: Ask) -> Result<Cost, Failure> {
        stop_if_asked()?;
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (before, cpu_before, started) =
            (self.db.stats().io.device_reads, system::cpu_ns(), Instant::now());
        let mut latencies_ns = match ask.way {
            Way::Threads(threads) => self.by_threads(&ask, threads)?,
            Way::InFlight(depth) => trine::block_on(self.in_flight(&ask, depth))?,
        };
        let (seconds, cpu_ns) = (started.elapsed().as_secs_f64(), system::cpu_ns() - cpu_before);
        latencies_ns.sort_unstable();
        let device_reads = self.db.stats().io.device_reads - before;
        Ok(Cost { gets: ask.gets, device_reads, seconds, cpu_ns, latencies_ns })
    }

    fn by_threads(&self, ask: &Ask, threads: usize) -> Result<Vec<u64>, Failure> {
        let run = |thread: usize| -> Result<Vec<u64>, Failure> {
            let (mut asker, mut key) = (Asker::new(self, ask, thread as u64), Vec::new());
            // If the gets do not divide evenly, the first threads have one more.
            let gets = (ask.gets as usize + threads - 1 - thread) / threads;
            let mut latencies_ns = Vec::with_capacity(gets);
            for _ in 0..gets {
                asker.next(&mut key);
                let started = Instant::now();
                let found = self.items.get(&key)?;
                latencies_ns.push(started.elapsed().as_nanos() as u64);
                asker.check(&key, found.as_deref())?;
            }
            Ok(latencies_ns)
        };
        let parts: Vec<Result<Vec<u64>, Failure>> = std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            threads.into_iter().map(|one| one.join().expect("a thread that reads does not panic")).collect()
        });
        Ok(parts.into_iter().collect::<Result<Vec<Vec<u64>>, Failure>>()?.concat())
    }

    async fn in_flight(&self, ask: &Ask, depth: usize) -> Result<Vec<u64>, Failure> {
        let (mut asker, mut begun) = (Asker::new(self, ask, 0), 0);
        let mut gets = FuturesUnordered::new();
        loop {
            while begun < ask.gets && gets.len() < depth {
                let mut key = Vec::new();
                asker.next(&mut key);
                let get = self.items.get_async(&key);
                gets.push(async move { (key, get.await) });
                begun += 1;
            }
            let Some((key, found)) = gets.next().await else { return Ok(Vec::new()) };
            asker.check(&key, found?.as_deref())?;
        }
    }
}

/// The device's random reads of 4 KiB a second, by reads in flight.
pub(super) struct DeviceRates {
    depths: Vec<(usize, f64)>,
}

impl DeviceRates {
    /// The rate with at most `depth` in flight.
    pub(super) fn at(&self, depth: usize) -> f64 {
        let deepest = self.depths.iter().rev().find(|(one, _)| *one <= depth);
        deepest.map_or(0.0, |(_, rate)| *rate)
    }
}

/// Measures the device of a store.
pub(super) fn device(
    directory: &std::path::Path,
    seed: u64,
    file_bytes: u64,
) -> Result<DeviceRates, Failure> {
    std::fs::create_dir_all(directory).map_err(|source| Failure::file("create", directory, source))?;
    let probe =
        Probe { bytes: file_bytes.clamp(16 << 20, 2 << 30), time: PROBED, operations_max: u64::MAX, seed };
    let measured = probe::measure::<Failure>(&probe, directory, |_| stop_if_asked())?;
    Ok(DeviceRates { depths: measured.random.iter().map(|one| (one.depth, one.a_second())).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Percentiles of a hundred, of one and of no numbers.
    #[test]
    fn permilles_are_of_the_ascending() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([500, 990, 999, 1000].map(|part| permille_of(&hundred, part)), [50, 99, 100, 100]);
        assert_eq!((permille_of(&[7], 500), permille_of(&[], 500)), (7, 0));
    }

    /// A store is loaded in stages, measured in both ways, and reopened; a wrong answer is an error.
    #[test]
    fn stores_are_asked() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let order = Permutation::new(6000, 3);
        let opening = Opening::new(Kind::Trie, 1 << 20);
        let cold = opening.open(place.path().join("store"), order).expect("it is made");
        cold.load(0..4000).expect("a stage");
        let ask = Ask { keys: Keys::Uniform, present: 4000, gets: 500, way: Way::Threads(3), seed: 1 };
        let cost = cold.ask(ask).expect("answers are right");
        assert_eq!((cost.gets, cost.latencies_ns.len()), (500, 500));
        let cold = cold.reopen(&opening.with_search("serial")).expect("it opens");
        for keys in [Keys::Uniform, Keys::Zipf, Keys::Absent] {
            let cost = cold.ask(Ask { keys, way: Way::InFlight(8), ..ask }).expect("answers are right");
            assert!(cost.rate() > 0.0 && (keys != Keys::Uniform || cost.device_reads > 0), "{keys:?}");
        }
        let all = Ask { present: 6000, ..ask };
        assert!(cold.ask(all).is_err(), "the second stage is not there");
        cold.load(4000..6000).expect("another");
        assert!(cold.ask(all).is_ok());
    }
}
