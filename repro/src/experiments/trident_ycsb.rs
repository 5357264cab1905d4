//! TridentKV's YCSB (figure 14): the load and the workloads A to F, with and without its techniques.
//!
//! Two stores hold the same items, one with fences and one with learned index pages. One thread drives each:
//! it blocks on each read, or has many reads in flight. The data is 160 times the cache, as the paper's 40 GB
//! are of 256 MB; here the cache includes filters and index pages. Writes are blocking calls. The four
//! techniques are measured in turn, so that other work on the machine disturbs all alike.
//!
//! It is not a comparison with other stores; the package `peers` has that.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Instant;

use futures_util::stream::{FuturesUnordered, StreamExt};
use trine::{Db, Keyspace, Ordered};
use trine_workload::dice::Dice;
use trine_workload::distribution::Chooser;
use trine_workload::failure::Failure;
use trine_workload::keys::Shape;
use trine_workload::plot::{Axis, Bars};
use trine_workload::text::{bytes, count};
use trine_workload::ycsb::{Core, Request, key_number};

use super::trident_store::{
    BUILD_MEMORY_BYTES, DATA_BYTES, DEPTH, IndexPages, KEY_BYTES, MEMORY_BYTES_MIN, Rate, Way,
};
use super::trident_store::{dice, measured};
use super::{Claim, Figure, Job, Picture, Verdict};
use crate::lab::stop_if_asked;

pub(super) const SCALE: f64 = 0.02;
const VALUE_BYTES: usize = 1000;
const ITEM_BYTES: u64 = KEY_BYTES + VALUE_BYTES as u64;
const SHAPE: Shape = Shape { key_bytes: KEY_BYTES as usize, compressible_percent: 0 };
/// The ratio of the paper's data to its cache.
const OF_CACHE: u64 = 160;
const CACHE_BYTES_MIN: u64 = 64 << 10;
const WRITE_BUFFER_BYTES: u64 = 8 << 20;
const WORKLOADS: [Core; 6] = [Core::A, Core::B, Core::C, Core::D, Core::E, Core::F];
const ROUNDS: usize = 3;
const INDEX_KINDS: [&str; 2] = ["fences", "learned"];

/// The store and driver of each row: the index of its kind of pages, and its way of reading.
const TECHNIQUES: [(&str, usize, Way); 4] = [
    ("none", 0, Way::Waiting),
    ("asynchronous reads", 0, Way::InFlight(4 * DEPTH)),
    ("learned index", 1, Way::Waiting),
    ("both", 1, Way::InFlight(4 * DEPTH)),
];
/// Indices of techniques.
const ASYNCHRONOUS: usize = 1;
const LEARNED: usize = 2;
const BOTH: usize = 3;

/// A loaded store.
struct Loaded {
    db: Db,
    items: Keyspace<Ordered>,
    place: PathBuf,
    /// Items that the load put.
    count: u64,
    /// The present number of items.
    now: Cell<u64>,
    load: Rate,
    pages: IndexPages,
}

/// The key of an item; consecutive items have scattered keys.
fn key(item: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(SHAPE.key_bytes);
    SHAPE.key(key_number(item), &mut key);
    key
}

fn check(key: &[u8], found: Option<&[u8]>) -> Result<(), Failure> {
    if found.is_some_and(|value| value.len() == VALUE_BYTES && SHAPE.is_value(key, value)) {
        return Ok(());
    }
    Err(Failure::Other(format!("key {} has another value than was put", key.escape_ascii())))
}

impl Loaded {
    fn load(job: &mut Job, index_kind: &str) -> Result<Loaded, Failure> {
        let count = (job.scaled(DATA_BYTES, 1) / ITEM_BYTES).max(1000);
        let cache_bytes = (count * ITEM_BYTES / OF_CACHE).max(CACHE_BYTES_MIN);
        let place = job.workshop.place();
        let builder = Db::builder(&place).memory_bytes(BUILD_MEMORY_BYTES).cache_bytes(cache_bytes);
        let db = builder.write_buffer_bytes(WRITE_BUFFER_BYTES).open()?;
        let items = db.ordered("items").set("index_kind", index_kind).open()?;
        let (mut value, nothing) = (Vec::new(), IndexPages::default());
        let load = Rate::of(|| {
            for item in 0..count {
                if item.is_multiple_of(10_000) {
                    stop_if_asked()?;
                }
                let key = key(item);
                SHAPE.value(&key, VALUE_BYTES, &mut value);
                items.put(&key, &value)?;
            }
            Ok(count)
        })?;
        db.flush()?;
        db.settle()?;
        Ok(Loaded { db, items, place, count, now: Cell::new(count), load, pages: nothing })
    }

    /// An overwrite puts the same value again, so that every read can be checked.
    fn put(&self, item: u64) -> Result<(), Failure> {
        let (key, mut value) = (key(item), Vec::new());
        SHAPE.value(&key, VALUE_BYTES, &mut value);
        Ok(self.items.put(&key, &value)?)
    }

    fn insert(&self) -> Result<(), Failure> {
        let item = self.now.get();
        self.put(item)?;
        self.now.set(item + 1);
        Ok(())
    }

    /// Executes a request with blocking calls.
    fn serve(&self, request: Request, item: u64) -> Result<(), Failure> {
        match request {
            Request::Update => return self.put(item),
            Request::Insert => return self.insert(),
            Request::Scan { items } => {
                let mut cursor = self.items.cursor(&key(item)[..]..);
                for _ in 0..items {
                    let Some((key, value)) = cursor.next()? else { break };
                    check(key, Some(value))?;
                }
                return Ok(());
            }
            Request::Read | Request::ReadModifyWrite => {}
        }
        let key = key(item);
        check(&key, self.items.get(&key)?.as_deref())?;
        if request == Request::ReadModifyWrite { self.put(item) } else { Ok(()) }
    }

    /// Executes the reads of a request asynchronously.
    async fn serve_later(&self, request: Request, item: u64) -> Result<(), Failure> {
        let key = key(item);
        if let Request::Scan { items } = request {
            let mut range = self.items.range_async(&key[..]..);
            for _ in 0..items {
                let Some(found) = range.next().await else { break };
                let (key, value) = found?;
                check(&key, Some(&value))?;
            }
            return Ok(());
        }
        check(&key, self.items.get_async(&key).await?.as_deref())?;
        if request == Request::ReadModifyWrite { self.put(item) } else { Ok(()) }
    }

    fn remove(self, job: &Job) -> Result<(), Failure> {
        let Loaded { db, items, place, .. } = self;
        drop(items);
        db.close()?;
        job.workshop.clear(&place)
    }
}

/// The requests of a workload, in order.
struct Requests<'l> {
    store: &'l Loaded,
    core: Core,
    chooser: &'l Chooser,
    dice: Dice,
    until: Instant,
}

impl Requests<'_> {
    /// The next request; `None` when the time is over.
    fn next(&mut self) -> Option<(Request, u64)> {
        if Instant::now() >= self.until {
            return None;
        }
        let request = self.core.request(&mut self.dice);
        Some((request, self.chooser.choose(self.store.now.get(), &mut self.dice)))
    }

    fn wait_for_each(mut self) -> Result<u64, Failure> {
        let mut done = 0;
        while let Some((request, item)) = self.next() {
            self.store.serve(request, item)?;
            done += 1;
        }
        Ok(done)
    }

    /// Keeps `depth` reads in flight; writes are executed at once.
    async fn keep_in_flight(mut self, depth: usize) -> Result<u64, Failure> {
        let store = self.store;
        let (mut reads, mut done) = (FuturesUnordered::new(), 0);
        loop {
            while reads.len() < depth {
                let Some((request, item)) = self.next() else { break };
                if matches!(request, Request::Update | Request::Insert) {
                    store.serve(request, item)?;
                    done += 1;
                } else {
                    reads.push(store.serve_later(request, item));
                }
            }
            let Some(read) = reads.next().await else { return Ok(done) };
            read?;
            done += 1;
        }
    }
}

/// Rates of a workload, by technique.
struct Ran {
    core: Core,
    rates: Vec<Rate>,
}

impl Ran {
    fn times(&self, technique: usize) -> f64 {
        self.rates[technique].operations / self.rates[0].operations
    }

    fn name(&self) -> String {
        format!("{:?}", self.core)
    }
}

pub(super) fn run(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    job.steps(INDEX_KINDS.len() + WORKLOADS.len());
    let mut stores = Vec::new();
    for index_kind in INDEX_KINDS {
        job.step(format!("loading, {index_kind}"));
        let mut store = Loaded::load(job, index_kind)?;
        store.pages = IndexPages::of(&store.place, &store.items)?;
        stores.push(store);
    }
    let mut all = Vec::new();
    for (number, core) in (0..).zip(WORKLOADS) {
        job.step(format!("workload {core:?}"));
        all.push(workload(job, &stores, (number, core))?);
    }
    let figures = vec![load(&stores), workloads(&all, &stores)?];
    for store in stores {
        store.remove(job)?;
    }
    Ok(figures)
}

fn workload(job: &Job, stores: &[Loaded], (number, core): (u64, Core)) -> Result<Ran, Failure> {
    let chooser = Chooser::new(core.distribution(), stores[0].count, job.seed);
    let mut rounds = TECHNIQUES.map(|_| Vec::new());
    for round in 0..ROUNDS {
        for (thread, ((_, index_kind, way), rates)) in TECHNIQUES.iter().zip(&mut rounds).enumerate() {
            stop_if_asked()?;
            let dice = dice(job.seed, number * ROUNDS as u64 + round as u64, thread);
            let until = Instant::now() + measured(job) / 2;
            let requests = Requests { store: &stores[*index_kind], core, chooser: &chooser, dice, until };
            rates.push(Rate::of(|| match way {
                Way::Waiting => requests.wait_for_each(),
                Way::InFlight(depth) => trine::block_on(requests.keep_in_flight(*depth)),
            })?);
        }
    }
    Ok(Ran { core, rates: rounds.iter().map(|rates| Rate::median(rates)).collect() })
}

fn load(stores: &[Loaded]) -> Figure {
    let row = |(name, store): (&&str, &Loaded)| {
        vec![(*name).to_string(), store.load.cell(), store.pages.models(), count(store.pages.bytes)]
    };
    let title = format!("YCSB load of {} items of 1,000 bytes by one thread", count(stores[0].count));
    let times = stores[1].load.operations / stores[0].load.operations;
    let rates = stores.iter().map(|store| Some(store.load.operations)).collect();
    Figure {
        name: "trident-fig14-load",
        title: title.clone(),
        header: ["index_kind", "puts/s (CPU each)", "pages that are models", "bytes of index pages"]
            .map(str::to_string)
            .to_vec(),
        rows: INDEX_KINDS.iter().zip(stores).map(row).collect(),
        picture: Picture::Bars(Bars {
            title,
            y: Axis::linear("puts a second"),
            groups: INDEX_KINDS.map(str::to_string).to_vec(),
            series: vec![("one thread".to_string(), rates)],
        }),
        claims: vec![Claim {
            paper: "TridentKV loads 2.6 to 5 times as fast as RocksDB".to_string(),
            ours: format!("learned pages: {times:.2} times the rate with fences"),
            verdict: Verdict::Untestable,
            reason: "no technique here makes a load faster; RocksDB's row stands in docs/results/latest.md"
                .to_string(),
        }],
    }
}

fn workloads(all: &[Ran], stores: &[Loaded]) -> Result<Figure, Failure> {
    let mut header = vec!["workload".to_string()];
    header.extend(TECHNIQUES.map(|(name, ..)| format!("{name}: operations/s (CPU each)")));
    header.extend(TECHNIQUES[1..].iter().map(|(name, ..)| format!("times, {name}")));
    let row = |ran: &Ran| {
        let times = (1..TECHNIQUES.len()).map(|technique| format!("{:.2}", ran.times(technique)));
        std::iter::once(ran.name()).chain(ran.rates.iter().map(Rate::cell)).chain(times).collect()
    };
    let series = |(index, (name, ..)): (usize, &(&str, usize, Way))| {
        ((*name).to_string(), all.iter().map(|ran| Some(ran.rates[index].operations)).collect())
    };
    let data_bytes = stores[0].count * ITEM_BYTES;
    let cache = (data_bytes / OF_CACHE).max(CACHE_BYTES_MIN);
    let title =
        format!("YCSB A to F by one thread, {} of data, cache of {}", bytes(data_bytes), bytes(cache));
    let learned = IndexPages::of(&stores[1].place, &stores[1].items)?;
    Ok(Figure {
        name: "trident-fig14",
        title: title.clone(),
        header,
        rows: all.iter().map(row).collect(),
        picture: Picture::Bars(Bars {
            title,
            y: Axis::linear("operations a second"),
            groups: all.iter().map(Ran::name).collect(),
            series: TECHNIQUES.iter().enumerate().map(series).collect(),
        }),
        claims: claims(all, data_bytes < 2 * MEMORY_BYTES_MIN, &learned.models()),
    })
}

/// The minimum and the maximum of a technique's gain over some workloads.
fn range(all: &[Ran], cores: &[Core], technique: usize) -> (f64, f64) {
    let some = all.iter().filter(|ran| cores.contains(&ran.core)).map(|ran| ran.times(technique));
    some.fold((f64::INFINITY, 0.0), |(least, most), times| (least.min(times), most.max(times)))
}

fn claims(all: &[Ran], is_small: bool, models_at_the_end: &str) -> Vec<Claim> {
    let verdict = |agrees: bool| if is_small { Verdict::Untestable } else { Verdict::of(agrees) };
    let (least, most) = range(all, &[Core::A, Core::B, Core::C, Core::D, Core::F], BOTH);
    let (reads_least, reads_most) = range(all, &[Core::B, Core::C, Core::D], BOTH);
    let (scans, _) = range(all, &[Core::E], BOTH);
    let (learned_least, learned_most) = range(all, &WORKLOADS, LEARNED);
    let (flying_least, flying_most) = range(all, &WORKLOADS, ASYNCHRONOUS);
    let own = "the rival here is the own store whose reads wait; the rows of other stores stand in \
               docs/results/latest.md, by the package peers";
    vec![
        Claim {
            paper: "2.6 to 5 times RocksDB on all workloads but E".to_string(),
            ours: format!("A to D and F, both techniques over none: {least:.1} to {most:.1} times"),
            verdict: verdict(least >= 2.6),
            reason: own.to_string(),
        },
        Claim {
            paper: "4 times on workloads of mostly reads (B, C, D)".to_string(),
            ours: format!("both techniques over none: {reads_least:.1} to {reads_most:.1} times"),
            verdict: verdict(reads_least >= 3.5),
            reason: "one thread has many reads in flight; popular and latest items are in memory either way"
                .to_string(),
        },
        Claim {
            paper: "no gain on scans (E), as they are not asynchronous and a model does not help them"
                .to_string(),
            ours: format!("both techniques over none: {scans:.1} times"),
            verdict: verdict(scans < 1.1),
            reason:
                "ranges are futures here too, but a scan reads ahead by itself, so more of them at a time \
                     gain little"
                    .to_string(),
        },
        Claim {
            paper: "learned index, asynchronous reads and SPDK gain together".to_string(),
            ours: format!(
                "A to F: asynchronous reads alone {flying_least:.2} to {flying_most:.2} times, learned index \
                 alone {learned_least:.2} to {learned_most:.2} times; pages that are models at the end: \
                 {models_at_the_end}"
            ),
            verdict: verdict(flying_least > 1.0 && learned_least > 1.0),
            reason: "smaller index pages leave more of the cache to data; a read from the device costs far \
                     more than a search of either kind of page"
                .to_string(),
        },
        Claim {
            paper: "KVell is faster on A and F; Titan has 2 to 3 times RocksDB, KVell and WiredTiger 1 to 2"
                .to_string(),
            ours: "not part of this program".to_string(),
            verdict: Verdict::Untestable,
            reason: "other stores are measured by the package peers".to_string(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(core: Core, times: [f64; 4]) -> Ran {
        let rate = |times: f64| Rate { operations: 100.0 * times, cpu_ns: 1.0 };
        Ran { core, rates: times.map(rate).to_vec() }
    }

    /// The first verdict excludes E, the third is of E alone, and a small store decides nothing.
    #[test]
    fn verdicts_are_of_their_workloads() {
        let verdicts = |others: f64, scans: f64, is_small: bool| {
            let of = |core| if core == Core::E { scans } else { others };
            let all = WORKLOADS.map(|core| ran(core, [1.0, of(core), 1.05, of(core)]));
            claims(&all, is_small, "1 of 2").iter().map(|claim| claim.verdict).collect::<Vec<Verdict>>()
        };
        let [agrees, differs, open] = [Verdict::Agrees, Verdict::Differs, Verdict::Untestable];
        assert_eq!(verdicts(4.0, 1.05, false), [agrees, agrees, agrees, agrees, open]);
        assert_eq!(verdicts(3.0, 2.0, false), [agrees, differs, differs, agrees, open]);
        assert_eq!(verdicts(0.9, 1.05, false), [differs, differs, agrees, differs, open]);
        assert_eq!(verdicts(4.0, 2.0, true), [open; 5]);
    }
}
