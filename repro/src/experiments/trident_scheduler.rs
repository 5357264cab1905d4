//! TridentKV's partition scheduler (section 3.3) beside the store's slices, under one load.
//!
//! The scheduler is the lab's, with a write buffer and a flush buffer for each partition, block flushing and
//! an index of level 0. The store writes one table for each flush, with a slice for each partition. Figures:
//! the cost of a flush, memory besides the memtable, logs pinned by leftovers, and the index of level 0. The
//! scheduler works on the writing thread and the store on background threads, so rates show only a direction.

use std::time::Instant;

use trine::lab::{L0IndexKind, PartitionScheduler, PartitionSchedulerOptions};
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::plot::{Axis, Bars, Chart, Series};
use trine_workload::text::{bytes, count, nanoseconds, ratio};

use super::scheduler_load::{Counted, Engine, Held, ITEM_BYTES, Load, only_l0, options};
use super::{Claim, Figure, Job, Picture, Verdict, a_second, percent, signed};

/// The paper's data, in bytes.
const DATA_BYTES: u64 = 40_000_000_000;
pub(super) const SCALE: f64 = 0.005;
const PARTITIONS: [u32; 5] = [1, 10, 100, 1000, 10_000];
/// The fewest items of each partition; numbers of partitions with fewer are skipped.
const ITEMS_MIN: u64 = 170;
/// Memtables of a load, and the most bytes of one.
const MEMTABLES: u64 = 12;
const MEMTABLE_BYTES_MAX: u64 = 32 << 20;
/// The default size of level 0 in RocksDB, on which the paper's store is built.
const L0_BYTES: u64 = 256 << 20;
const GETS: u64 = 5000;
/// Cold partitions of the load that pins logs; one more is hot.
const COLD_PARTITIONS: u32 = 999;
/// The limit on the logs pinned by leftovers, if there is one, in memtables.
const LOG_MEMTABLES: u64 = 3;
/// A rate counts as kept if at least this part of that with few partitions is left.
const KEPT: f64 = 0.8;

/// An engine after a load.
struct Measured {
    engine: Engine,
    partitions: u32,
    items: u64,
    load_seconds: f64,
    /// The peak of memory besides memtables and cache.
    memory_bytes: u64,
    after: Counted,
    /// One flush after the load: bytes written, and files made.
    flush: Counted,
    flush_items: u64,
    files: u64,
}

impl Measured {
    fn rate(&self) -> f64 {
        self.items as f64 / self.load_seconds.max(1e-9)
    }

    /// Bytes written by the one flush for each flushed byte.
    fn amplification(&self) -> f64 {
        ratio(self.flush.flush_bytes, self.flush_items * ITEM_BYTES)
    }

    fn name(&self) -> String {
        format!("{} {}", self.engine.name(), count(self.partitions.into()))
    }
}

pub(super) fn run(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    let data_bytes = job.scaled(DATA_BYTES, 4_000_000);
    let memtable_bytes = (data_bytes / MEMTABLES).min(MEMTABLE_BYTES_MAX);
    let is_large = |partitions: &u32| data_bytes / ITEM_BYTES / u64::from(*partitions) >= ITEMS_MIN;
    let partitions: Vec<u32> = PARTITIONS.into_iter().filter(is_large).collect();
    job.steps(2 * partitions.len() + 5);
    let mut all = Vec::new();
    for engine in Engine::ALL {
        for partitions in &partitions {
            job.step(format!("{}: {} partitions", engine.name(), count(u64::from(*partitions))));
            let load = Load::of_bytes(data_bytes, *partitions);
            all.push(measure(job, engine, load, memtable_bytes)?);
        }
    }
    let pinned = pinned_logs(job, data_bytes / 2, memtable_bytes / 4)?;
    let l0 = index_of_l0(job, (data_bytes * 4 / 3).min(L0_BYTES), memtable_bytes)?;
    Ok(vec![flushes(&all), memory(&all, memtable_bytes), logs(&pinned, memtable_bytes / 4), index(&l0)])
}

fn files_in(place: &std::path::Path) -> Result<u64, Failure> {
    let entries = std::fs::read_dir(place).map_err(|source| Failure::file("list", place, source))?;
    Ok(entries.count() as u64)
}

fn measure(job: &mut Job, engine: Engine, load: Load, memtable_bytes: u64) -> Result<Measured, Failure> {
    let place = job.workshop.place();
    let mut held = Held::make(&place, engine, load.partitions, &options(memtable_bytes))?;
    let (load_seconds, memory_bytes) = load.put_all(job, &mut held)?;
    held.flush()?;
    held.settle()?;
    let after = held.counted()?;
    // Three quarters of a memtable, so that no flush begins by itself; each key at most once.
    let flush_items = (memtable_bytes * 3 / 4 / (ITEM_BYTES + 64)).min(load.items());
    let order = trine_workload::keys::Permutation::new(load.items(), job.seed + 1);
    for position in 0..flush_items {
        let number = order.of(position);
        held.put((number / load.each) as u32, number % load.each, number)?;
    }
    let (before, files_before) = (held.counted()?, files_in(&place)?);
    let started = Instant::now();
    held.flush()?;
    let elapsed_ns = started.elapsed().as_nanos() as u64;
    let (now, files_now) = (held.counted()?, files_in(&place)?);
    held.reads_a_get(load, GETS, job.seed)?;
    held.close()?;
    job.workshop.clear(&place)?;
    let flush = Counted {
        flushes: now.flushes - before.flushes,
        flush_bytes: now.flush_bytes - before.flush_bytes,
        syncs: match engine {
            Engine::Scheduler => now.flush_syncs - before.flush_syncs,
            Engine::Slices => now.syncs - before.syncs,
        },
        flush_ns: match engine {
            Engine::Scheduler => now.flush_ns - before.flush_ns,
            Engine::Slices => elapsed_ns,
        },
        short_blocks: now.short_blocks - before.short_blocks,
        blocks: now.blocks - before.blocks,
        ..Counted::default()
    };
    let files = match engine {
        Engine::Scheduler => now.flush_files - before.flush_files,
        Engine::Slices => files_now.saturating_sub(files_before),
    };
    let (partitions, items) = (load.partitions, load.items());
    let memory_bytes = memory_bytes.max(after.memory_bytes).max(after.buffer_bytes_max);
    Ok(Measured { engine, partitions, items, load_seconds, memory_bytes, after, flush, flush_items, files })
}

/// Lines over the number of partitions, one for each engine.
fn by_partitions(title: &str, y: Axis, all: &[Measured], value: impl Fn(&Measured) -> f64) -> Picture {
    let line = |engine: Engine| Series {
        name: engine.name().to_string(),
        points: all
            .iter()
            .filter(|one| one.engine == engine)
            .map(|one| (f64::from(one.partitions), value(one)))
            .collect(),
    };
    let series = Engine::ALL.into_iter().map(line).collect();
    Picture::Lines(Chart { title: title.to_string(), x: Axis::logarithmic("partitions"), y, series })
}

fn of(all: &[Measured], engine: Engine) -> impl Iterator<Item = &Measured> {
    all.iter().filter(move |one| one.engine == engine)
}

fn words(all: &[Measured], one: impl Fn(&Measured) -> String) -> String {
    all.iter().map(|each| format!("{} {}", each.name(), one(each))).collect::<Vec<_>>().join(", ")
}

fn claims_on_flushes(all: &[Measured]) -> Vec<Claim> {
    let kept = |engine: Engine| {
        let first = of(all, engine).next().map_or(0.0, Measured::rate);
        of(all, engine).map(|one| one.rate() / first.max(1e-9)).fold(f64::MAX, f64::min)
    };
    let most_files = all.iter().map(|one| one.files).max().unwrap_or(0);
    let most_syncs = |engine: Engine| of(all, engine).map(|one| one.flush.syncs).max().unwrap_or(0);
    let is_less = of(all, Engine::Scheduler)
        .zip(of(all, Engine::Slices))
        .all(|(scheduler, slices)| scheduler.amplification() <= slices.amplification());
    vec![
        Claim {
            paper: "partitioning in the flush does not reduce the performance of writes".to_string(),
            ours: format!(
                "at least {:.0} % of the rate with one partition is left in the scheduler, {:.0} % in the \
                 store",
                100.0 * kept(Engine::Scheduler),
                100.0 * kept(Engine::Slices)
            ),
            verdict: Verdict::of(kept(Engine::Scheduler) >= KEPT),
            reason:
                "the verdict is about the scheduler: 80 % of the rate with one partition; it merges on the \
                     thread that writes"
                    .to_string(),
        },
        Claim {
            paper: "a flush writes data blocks only, without metadata blocks".to_string(),
            ours: format!(
                "bytes of a flush a byte flushed: {}",
                words(all, |one| format!("{:.3}", one.amplification()))
            ),
            verdict: Verdict::of(is_less),
            reason:
                "agrees if the scheduler writes no more than slices, whose fences and filters are counted, \
                     and whose keys share prefixes; a short block takes 4 KiB, and edits are counted"
                    .to_string(),
        },
        Claim {
            paper: "partitions share the flush: no file and no sync a partition".to_string(),
            ours: format!(
                "a flush makes at most {most_files} files; syncs at most {} in the scheduler, {} with slices",
                most_syncs(Engine::Scheduler),
                most_syncs(Engine::Slices)
            ),
            verdict: Verdict::of(most_files < 10 && most_syncs(Engine::Scheduler) < 10),
            reason: "merges of the scheduler have files and syncs of their own, see the last column; with \
                     slices files are counted in the directory before and after"
                .to_string(),
        },
    ]
}

fn flushes(all: &[Measured]) -> Figure {
    let row = |one: &Measured| {
        let blocks = match one.engine {
            Engine::Scheduler => format!("{} of {}", count(one.flush.short_blocks), count(one.flush.blocks)),
            Engine::Slices => "-".to_string(),
        };
        vec![
            count(one.partitions.into()),
            one.engine.name().to_string(),
            bytes(one.flush.flush_bytes),
            format!("{:.3}", one.amplification()),
            blocks,
            count(one.flush.syncs),
            count(one.files),
            nanoseconds(one.flush.flush_ns),
            a_second(one.rate()),
            format!("{:.2}", ratio(one.after.flush_bytes + one.after.merge_bytes, one.items * ITEM_BYTES)),
            count(one.after.syncs),
        ]
    };
    let title = "One flush after the load, and the load";
    let header = [
        "partitions",
        "engine",
        "bytes of a flush",
        "a byte flushed",
        "short blocks",
        "syncs",
        "files made",
        "time",
        "puts/s",
        "write amplification",
        "syncs of the load",
    ];
    Figure {
        name: "trident-scheduler-flush",
        title: title.to_string(),
        header: header.map(str::to_string).to_vec(),
        rows: all.iter().map(row).collect(),
        picture: by_partitions(title, Axis::linear("bytes a byte flushed"), all, Measured::amplification),
        claims: claims_on_flushes(all),
    }
}

fn memory(all: &[Measured], memtable_bytes: u64) -> Figure {
    let part = |bytes: u64| 100.0 * bytes as f64 / memtable_bytes as f64;
    let row = |one: &Measured| {
        vec![
            count(one.partitions.into()),
            one.engine.name().to_string(),
            bytes(one.after.buffer_bytes_max),
            format!("{:.1} %", part(one.after.buffer_bytes_max)),
            bytes(one.memory_bytes),
            format!("{:.1} %", part(one.memory_bytes)),
        ]
    };
    let buffers = of(all, Engine::Scheduler).map(|one| part(one.after.buffer_bytes_max)).fold(0.0, f64::max);
    let first = |engine: Engine| of(all, engine).next().map_or(0, |one| one.memory_bytes);
    let more = |one: &Measured| {
        signed(percent(
            (memtable_bytes + one.memory_bytes) as f64,
            (memtable_bytes + first(one.engine)) as f64,
        ))
    };
    let growth = all
        .iter()
        .filter(|one| one.engine == Engine::Scheduler)
        .map(|one| part(one.memory_bytes) - part(first(Engine::Scheduler)))
        .fold(0.0, f64::max);
    let claims = vec![
        Claim {
            paper: "memory grows by 6 % with the number of partitions and then no more: buffers are limited"
                .to_string(),
            ours: format!("write buffers and flush buffers have at most {buffers:.1} % of the memtable"),
            // A write buffer of a few items is still allocated while it is merged.
            verdict: Verdict::of(buffers <= 6.5),
            reason:
                "the limit of 6 % is kept by part-filled blocks; half a percent is left for write buffers"
                    .to_string(),
        },
        Claim {
            paper: "the index of level 0 is light-weight, since level 0 is of a fixed size".to_string(),
            ours: format!("memtable, buffers and index against one partition: {}", words(all, more)),
            verdict: Verdict::of(growth <= 6.0),
            reason:
                "the index has every key of level 0, and level 0 is of a fixed size a partition: with small \
                     values it is larger than the buffers; slices have filters, fences and structures instead"
                    .to_string(),
        },
    ];
    let title = "Memory beside the memtable, at most; cache left out";
    let header = ["partitions", "engine", "buffers", "of the memtable", "in all", "of the memtable"];
    Figure {
        name: "trident-scheduler-memory",
        title: title.to_string(),
        header: header.map(str::to_string).to_vec(),
        rows: all.iter().map(row).collect(),
        picture: by_partitions(title, Axis::linear("bytes"), all, |one| one.memory_bytes as f64),
        claims,
    }
}

/// The logs kept after each memtable.
struct Pinned {
    name: &'static str,
    /// Bytes after each memtable of the hot partition.
    bytes: Vec<u64>,
    short_blocks: u64,
}

/// Loads a hot partition and many with one item each.
fn pinned_logs(job: &mut Job, data_bytes: u64, memtable_bytes: u64) -> Result<Vec<Pinned>, Failure> {
    let limited = LOG_MEMTABLES * memtable_bytes;
    let mut all = Vec::new();
    for (name, engine, log_bytes_max) in [
        ("scheduler", Engine::Scheduler, 0),
        ("scheduler with a limit", Engine::Scheduler, limited),
        ("slices", Engine::Slices, 0),
    ] {
        job.step(format!("{name}: one hot partition"));
        let mut options: PartitionSchedulerOptions = options(memtable_bytes);
        options.log_bytes_max = log_bytes_max;
        let place = job.workshop.place();
        let mut held = Held::make(&place, engine, 1 + COLD_PARTITIONS, &options)?;
        for partition in 1..=COLD_PARTITIONS {
            held.put(partition, 0, u64::from(partition))?;
        }
        let (mut dice, mut pinned) = (Dice::new(job.seed), Vec::new());
        let items = memtable_bytes * 3 / 4 / ITEM_BYTES;
        for _ in 0..data_bytes / memtable_bytes {
            for _ in 0..items {
                let number = dice.below(1 << 20);
                held.put(0, number, number)?;
            }
            held.flush()?;
            pinned.push(held.counted()?.pinned_log_bytes);
        }
        let short_blocks = held.counted()?.short_blocks;
        held.close()?;
        job.workshop.clear(&place)?;
        all.push(Pinned { name, bytes: pinned, short_blocks });
    }
    Ok(all)
}

fn logs(all: &[Pinned], memtable_bytes: u64) -> Figure {
    let last = |one: &Pinned| one.bytes.last().copied().unwrap_or(0);
    let most = |one: &Pinned| one.bytes.iter().copied().max().unwrap_or(0);
    let row = |one: &Pinned| {
        let memtables = format!("{:.1}", ratio(most(one), memtable_bytes));
        vec![one.name.to_string(), bytes(last(one)), bytes(most(one)), memtables, count(one.short_blocks)]
    };
    let [unlimited, limited, slices] = all else { unreachable!("three loads") };
    let claims = vec![Claim {
        paper: "nothing is said of the log of items that wait in flush buffers".to_string(),
        ours: format!(
            "pinned at most: {} without a limit and growing, {} with one, {} with slices",
            bytes(most(unlimited)),
            bytes(most(limited)),
            bytes(most(slices))
        ),
        verdict: Verdict::Untestable,
        reason:
            "an item in a flush buffer is only in its log; a limit costs short blocks, slices need neither"
                .to_string(),
    }];
    let series = |one: &Pinned| Series {
        name: one.name.to_string(),
        points: (1..).zip(&one.bytes).map(|(memtable, bytes)| (f64::from(memtable), *bytes as f64)).collect(),
    };
    let title =
        format!("Logs pinned by leftovers: one hot partition and {COLD_PARTITIONS} with an item each");
    let header = ["engine", "at the end", "at most", "memtables", "short blocks"];
    Figure {
        name: "trident-scheduler-log",
        title: title.clone(),
        header: header.map(str::to_string).to_vec(),
        rows: all.iter().map(row).collect(),
        picture: Picture::Lines(Chart {
            title,
            x: Axis::linear("memtables of the hot partition"),
            y: Axis::linear("bytes"),
            series: all.iter().map(series).collect(),
        }),
        claims,
    }
}

/// A full level 0 after a reopen.
struct OpenedL0 {
    name: &'static str,
    l0_bytes: u64,
    keys: u64,
    /// The time to load or rebuild the index, and the pages read for it.
    index_ns: u64,
    index_pages: u64,
    index_bytes: u64,
    reads_a_get: f64,
}

fn index_of_l0(job: &mut Job, l0_bytes: u64, memtable_bytes: u64) -> Result<Vec<OpenedL0>, Failure> {
    let load = Load::of_bytes(l0_bytes, 100);
    let mut all = Vec::new();
    for (name, kind) in
        [("by a scan of level 0", L0IndexKind::Memory), ("from the keys beside", L0IndexKind::Persistent)]
    {
        job.step(format!("index of level 0 {name}"));
        let place = job.workshop.place();
        let options = only_l0(memtable_bytes, kind);
        let mut held = Held::make(&place, Engine::Scheduler, load.partitions, &options)?;
        load.put_all(job, &mut held)?;
        held.flush()?;
        // Nothing was merged, so all written blocks are there. An opening writes more: the replayed items.
        let l0_bytes = held.counted()?.blocks * 4096;
        held.close()?;
        let store = Box::new(PartitionScheduler::open(&place, &options)?);
        let first = store.partitions().first().copied().unwrap_or(0);
        let stats = store.stats()?;
        let held = Held::Scheduler { store, first };
        let reads_a_get = held.reads_a_get(load, GETS, job.seed)?;
        held.close()?;
        job.workshop.clear(&place)?;
        all.push(OpenedL0 {
            name,
            l0_bytes,
            keys: stats.index_keys,
            index_ns: stats.index_ns,
            index_pages: stats.index_page_reads,
            index_bytes: stats.index_bytes,
            reads_a_get,
        });
    }
    Ok(all)
}

fn index(all: &[OpenedL0]) -> Figure {
    let row = |one: &OpenedL0| {
        vec![
            one.name.to_string(),
            bytes(one.l0_bytes),
            count(one.keys),
            bytes(one.index_bytes),
            count(one.index_pages),
            nanoseconds(one.index_ns),
            format!("{:.3}", one.reads_a_get),
        ]
    };
    let time = |one: &OpenedL0| format!("{} {}", nanoseconds(one.index_ns), one.name);
    let times = all.iter().map(time).collect::<Vec<_>>().join(", ");
    let scanned = all.first().map_or(0, |one| one.index_ns);
    let most_reads = all.iter().map(|one| one.reads_a_get).fold(0.0, f64::max);
    let claims = vec![
        Claim {
            paper: "an index in memory is back within tens of seconds to minutes, by a scan of level 0"
                .to_string(),
            ours: times,
            verdict: Verdict::of(scanned <= 60_000_000_000),
            reason: format!(
                "our aim of less than a second is {}; the index has every key of level 0",
                if scanned < 1_000_000_000 { "met" } else { "not met" }
            ),
        },
        Claim {
            paper: "with the index a get reads level 0 once".to_string(),
            ours: format!("{most_reads:.3} reads a get; an item in a flush buffer takes none"),
            verdict: Verdict::of(most_reads <= 1.0),
            reason: "all items that are asked for are in level 0 or in memory; there is no cache".to_string(),
        },
    ];
    let bars = Bars {
        title: "Time to have the index of level 0".to_string(),
        y: Axis::linear("ms"),
        groups: all.iter().map(|one| one.name.to_string()).collect(),
        series: vec![("ms".to_string(), all.iter().map(|one| Some(one.index_ns as f64 / 1e6)).collect())],
    };
    let header = ["index", "level 0", "keys", "its memory", "pages read", "time", "reads a get"];
    Figure {
        name: "trident-scheduler-index",
        title: "A full level 0 of 100 partitions, opened again".to_string(),
        header: header.map(str::to_string).to_vec(),
        rows: all.iter().map(row).collect(),
        picture: Picture::Bars(bars),
        claims,
    }
}
