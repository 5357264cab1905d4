//! LSM-trie's metadata: bytes of filters, fences and structures of tables for each item, in memory and on
//! disk, and the time from the start of a store to its full rate.
//!
//! Each store is loaded with memory for all its metadata, and the same items with the paper's 0.4 % of the
//! data. Bytes are the store's own statistics. For the warm-up the files are copied without closing the
//! store, as a killed process leaves them, and opened; gets are counted in short windows.

use std::path::Path;
use std::time::{Duration, Instant};

use trine::{KeyspaceStats, LevelStats};
use trine_workload::failure::Failure;
use trine_workload::keys::Permutation;
use trine_workload::plot::{Axis, Bars, Chart, Series};
use trine_workload::text::{bytes, count, nanoseconds, ratio};

use super::lsmtrie_cold::{
    Ask, FILTERS_MEMORY, ITEM_BYTES, ITEMS, ITEMS_MIN, Keys, Kind, Opening, PAPERS_MEMORY, Way,
};
use super::lsmtrie_keys::copy_store;
use super::lsmtrie_load::TABLE_BYTES;
use super::{Claim, Figure, Job, Picture, Verdict};

pub(super) const SCALE: f64 = 0.01;
/// The paper's store of 10 TB of items of 100 bytes.
const PAPERS_ITEMS: f64 = 1e11;
/// LevelDB's index and filters for that store, in bytes an item.
const LEVELDB_INDEX: f64 = 30e9 / PAPERS_ITEMS;
const LEVELDB_FILTERS: f64 = 125e9 / PAPERS_ITEMS;
/// The paper's first four levels, in bytes of data and of filters.
const UPPER_DATA_BYTES: f64 = 146.5e9;
const UPPER_FILTER_BYTES: f64 = 1.9e9;
/// The most memory an item that the store may keep.
const KEPT_MAX: f64 = 0.2;
/// The length of a window of the warm-up, and the number of windows.
const WINDOW: Duration = Duration::from_millis(25);
const WINDOWS: usize = 60;
/// The part of the steady rate that counts as full, and the time allowed to reach it.
const FULL: f64 = 0.9;
const FULL_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of larger tables: a quarter of the store's default size.
const LARGE_TABLE_BYTES: u64 = 16 << 20;

/// A store's metadata.
struct Metadata {
    name: String,
    stats: KeyspaceStats,
    /// In memory, in addition to the statistics of pages.
    structures_bytes: u64,
    pages_bytes: u64,
    cache_bytes: u64,
}

impl Metadata {
    fn sum(&self, of: impl Fn(&LevelStats) -> u64) -> u64 {
        self.stats.levels.iter().map(of).sum()
    }

    fn an_item(&self, bytes: u64) -> f64 {
        ratio(bytes, self.stats.items)
    }

    fn filters_on_disk(&self) -> f64 {
        self.an_item(self.sum(|level| level.filters.bytes))
    }

    fn fences_on_disk(&self) -> f64 {
        self.an_item(self.sum(|level| level.fences.bytes))
    }

    /// Structures, filters and fences in memory, for each item.
    fn kept(&self) -> f64 {
        self.an_item(self.structures_bytes + self.pages_bytes)
    }

    /// Bytes of filters above the last level for each byte of data there.
    fn upper_filters(&self) -> f64 {
        let upper = &self.stats.levels[..self.stats.levels.len().saturating_sub(1)];
        let of = |value: fn(&LevelStats) -> u64| upper.iter().map(value).sum::<u64>();
        let data = of(|level| level.items) * ITEM_BYTES;
        ratio(of(|level| level.filters.bytes), data)
    }
}

/// The memory of the compared stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Memory {
    /// Memory for all metadata.
    All,
    /// The paper's part of the data.
    Papers,
}

fn part_of(items: u64, part: f64) -> u64 {
    ((items * ITEM_BYTES) as f64 * part) as u64
}

pub(super) fn run(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    let items = job.scaled(ITEMS, ITEMS_MIN);
    job.steps(6);
    let (mut all, mut warm) = (Vec::new(), Vec::new());
    for kind in [Kind::Trie, Kind::Tree] {
        for memory in [Memory::All, Memory::Papers] {
            job.step(format!("{}, {memory:?}", kind.name()));
            let part = if memory == Memory::All { FILTERS_MEMORY } else { PAPERS_MEMORY };
            let opening = Opening::new(kind, part_of(items, part));
            let name = match memory {
                Memory::All => format!("{}, memory for all", kind.name()),
                Memory::Papers => format!("{}, memory of 0.4 %", kind.name()),
            };
            let (stores, times) = of_store(job, &opening, &name, items, memory == Memory::Papers)?;
            all.extend(stores);
            warm.extend(times);
        }
    }
    for kind in [Kind::Trie, Kind::Tree] {
        job.step(format!("{}, large tables", kind.name()));
        let large = Opening::new(kind, part_of(items, 2.0 * FILTERS_MEMORY).max(16 << 20));
        let large = Opening { table_bytes: LARGE_TABLE_BYTES, ..large };
        let name = format!("{}, large tables, memory for all", kind.name());
        all.extend(of_store(job, &large, &name, items, false)?.0);
    }
    Ok(vec![an_item(&all), by_height(&all), warm_up(&warm)])
}

/// Loads a store; returns its metadata then and at rest, and its warm-up if requested.
fn of_store(
    job: &mut Job,
    opening: &Opening,
    name: &str,
    items: u64,
    is_warmed: bool,
) -> Result<(Vec<Metadata>, Option<WarmUp>), Failure> {
    let order = Permutation::new(items, job.seed);
    let cold = opening.open(job.workshop.place(), order)?;
    cold.load(0..items)?;
    let metadata = |cold: &super::lsmtrie_cold::Cold, state: &str| {
        let kept = cold.kept_bytes();
        Metadata {
            name: format!("{name}, {state}"),
            stats: kept.stats.keyspaces[0].clone(),
            structures_bytes: kept.structures,
            pages_bytes: kept.pages,
            cache_bytes: opening.cache_bytes,
        }
    };
    let mut all = vec![metadata(&cold, "growing")];
    let warm = if is_warmed {
        Some(WarmUp::measure(job, opening, &cold.place, order, (name, items))?)
    } else {
        None
    };
    cold.rest()?;
    let cold = cold.reopen(opening)?;
    all.push(metadata(&cold, "at rest"));
    let place = cold.close()?;
    job.workshop.clear(&place)?;
    Ok((all, warm))
}

/// The warm-up of a store.
struct WarmUp {
    name: String,
    opened: Duration,
    /// From the call that opens the store to the answer of the first get.
    first_answer: Duration,
    /// From that call to the end of the first window with nine tenths of the steady rate.
    full: Option<Duration>,
    /// Gets a second, by the end of each window.
    rates: Vec<(Duration, f64)>,
    steady: f64,
}

impl WarmUp {
    fn measure(
        job: &mut Job,
        opening: &Opening,
        place: &Path,
        order: Permutation,
        (name, items): (&str, u64),
    ) -> Result<WarmUp, Failure> {
        let image = job.workshop.place();
        copy_store(place, &image)?;
        let ask = Ask { keys: Keys::Uniform, present: items, gets: 1, way: Way::Threads(1), seed: job.seed };
        let started = Instant::now();
        let cold = opening.open(image, order)?;
        let opened = started.elapsed();
        cold.ask(ask)?;
        let first_answer = started.elapsed();
        let mut rates = Vec::new();
        for _ in 0..WINDOWS {
            let (window, mut gets) = (Instant::now(), 0);
            while window.elapsed() < WINDOW {
                gets += cold.ask(Ask { gets: 20, ..ask })?.gets;
            }
            rates.push((started.elapsed(), gets as f64 / window.elapsed().as_secs_f64()));
        }
        let steady = steady_rate(&rates);
        let full = rates.iter().find(|(_, rate)| *rate >= FULL * steady).map(|(time, _)| *time);
        let image = cold.close()?;
        job.workshop.clear(&image)?;
        Ok(WarmUp { name: name.to_string(), opened, first_answer, full, rates, steady })
    }
}

/// The median of the rates of the second half.
fn steady_rate(rates: &[(Duration, f64)]) -> f64 {
    let mut late: Vec<f64> = rates[rates.len() / 2..].iter().map(|(_, rate)| *rate).collect();
    late.sort_by(f64::total_cmp);
    late.get(late.len() / 2).copied().unwrap_or(0.0)
}

/// Metadata an item, beside the paper's arithmetic.
fn an_item(all: &[Metadata]) -> Figure {
    let header = [
        "store",
        "items",
        "tables",
        "filters on disk",
        "fences on disk",
        "filters in memory",
        "fences in memory",
        "structures",
        "kept, B an item",
        "10 TB of items, filters",
        "fences",
    ];
    let row = |one: &Metadata| {
        let gb = |bytes_an_item: f64| format!("{:.0} GB", bytes_an_item * PAPERS_ITEMS / 1e9);
        vec![
            one.name.clone(),
            count(one.stats.items),
            count(one.stats.tables),
            format!("{:.3}", one.filters_on_disk()),
            format!("{:.3}", one.fences_on_disk()),
            format!("{:.3}", one.an_item(one.sum(|level| level.filters.pinned_bytes))),
            format!("{:.3}", one.an_item(one.sum(|level| level.fences.pinned_bytes))),
            format!("{:.3}", one.an_item(one.structures_bytes)),
            format!("{:.3}", one.kept()),
            gb(one.filters_on_disk()),
            gb(one.fences_on_disk()),
        ]
    };
    let mut rows = vec![vec![String::new(); header.len()]];
    rows[0][0] = "LevelDB, by the paper".to_string();
    rows[0][3..5].clone_from_slice(&[format!("{LEVELDB_FILTERS:.3}"), format!("{LEVELDB_INDEX:.3}")]);
    rows[0][8..].clone_from_slice(&["1.550".to_string(), "125 GB".to_string(), "30 GB".to_string()]);
    rows.extend(all.iter().map(row));
    let bars = |value: fn(&Metadata) -> f64| all.iter().map(|one| Some(value(one))).collect();
    Figure {
        name: "lsmtrie-metadata",
        title: format!("Bytes of metadata an item, tables of {}", bytes(TABLE_BYTES)),
        header: header.map(str::to_string).to_vec(),
        rows,
        picture: Picture::Bars(Bars {
            title: "Metadata".to_string(),
            y: Axis::linear("bytes an item"),
            groups: all.iter().map(|one| one.name.clone()).collect(),
            series: vec![
                ("filters on disk".to_string(), bars(Metadata::filters_on_disk)),
                ("fences on disk".to_string(), bars(Metadata::fences_on_disk)),
                ("kept in memory".to_string(), bars(Metadata::kept)),
            ],
        }),
        claims: claims_of_items(all),
    }
}

fn claims_of_items(all: &[Metadata]) -> Vec<Claim> {
    let named = |name: &str| all.iter().find(|one| one.name == name);
    let mut claims = Vec::new();
    if let Some(rest) = named("trie, large tables, memory for all, at rest") {
        let fences = rest.fences_on_disk();
        claims.push(Claim {
            paper: "10 TB of items of 100 bytes: 30 GB of LevelDB's index, 12 bytes a block".to_string(),
            ours: format!(
                "{:.0} GB of fences at rest with large tables; {} with tables of {}",
                fences * PAPERS_ITEMS / 1e9,
                named("trie, memory for all, at rest").map_or("none".to_string(), |one| format!(
                    "{:.0} GB",
                    one.fences_on_disk() * PAPERS_ITEMS / 1e9
                )),
                bytes(TABLE_BYTES)
            ),
            verdict: Verdict::of(fences <= LEVELDB_INDEX),
            reason:
                "agrees if a trie's fences need no more; fences are whole pages, so small tables pay most"
                    .to_string(),
        });
    }
    if let (Some(growing), Some(rest)) =
        (named("trie, memory of 0.4 %, growing"), named("trie, memory of 0.4 %, at rest"))
    {
        claims.push(Claim {
            paper: "155 GB in all, 1.55 bytes an item, of which memory of 0.4 % holds a quarter".to_string(),
            ours: format!(
                "{:.3} bytes an item in memory growing, {:.3} at rest; the cache is {} ({:.2} an item)",
                growing.kept(),
                rest.kept(),
                bytes(growing.cache_bytes),
                growing.an_item(growing.cache_bytes)
            ),
            verdict: Verdict::of(growing.kept() <= KEPT_MAX),
            reason: format!("the bound is {KEPT_MAX} bytes an item while growing, structures counted"),
        });
    }
    claims
}

/// Filters by height of the trie.
fn by_height(all: &[Metadata]) -> Figure {
    let tries: Vec<&Metadata> = all.iter().filter(|one| one.name.ends_with("growing")).collect();
    let header =
        ["store", "level", "nodes", "runs", "items", "filters", "in memory", "fences", "in memory", "why"];
    let rows = tries.iter().flat_map(|one| {
        one.stats.levels.iter().map(|level| {
            vec![
                one.name.clone(),
                level.level.to_string(),
                count(level.nodes),
                count(level.runs),
                count(level.items),
                bytes(level.filters.bytes),
                bytes(level.filters.pinned_bytes),
                bytes(level.fences.bytes),
                bytes(level.fences.pinned_bytes),
                level.filters.reason.to_string(),
            ]
        })
    });
    let depth = tries.iter().map(|one| one.stats.levels.len()).max().unwrap_or(0);
    let of = |one: &Metadata| {
        let levels = &one.stats.levels;
        (0..depth).map(|level| levels.get(level).map(|level| level.filters.bytes as f64)).collect()
    };
    let scaled = |one: &Metadata| one.upper_filters() * UPPER_DATA_BYTES;
    let claims = tries.iter().find(|one| one.name == "trie, memory for all, growing").map(|trie| Claim {
        paper: "the first four levels, 146.5 GB, have 1.9 GB of filters, which stay in memory".to_string(),
        ours: format!(
            "{:.1} GB at our bytes of filters a byte of data above the last height, with {:.0} % of the \
             items",
            scaled(trie) / 1e9,
            100.0 * upper_part(trie)
        ),
        verdict: Verdict::of((0.75..1.5).contains(&(scaled(trie) / UPPER_FILTER_BYTES))),
        reason: "16 bits an item of 116 bytes make 2.5 GB of 146.5; agrees within half as much again"
            .to_string(),
    });
    Figure {
        name: "lsmtrie-filters",
        title: "Filters and fences by level, after the load".to_string(),
        header: header.map(str::to_string).to_vec(),
        rows: rows.collect(),
        picture: Picture::Bars(Bars {
            title: "Bytes of filters by level".to_string(),
            y: Axis::logarithmic("bytes"),
            groups: (0..depth).map(|level| format!("level {level}")).collect(),
            series: tries.iter().map(|one| (one.name.clone(), of(one))).collect(),
        }),
        claims: claims.into_iter().collect(),
    }
}

/// The part of the items above the last level.
fn upper_part(one: &Metadata) -> f64 {
    let last = one.stats.levels.last().map_or(0, |level| level.items);
    1.0 - ratio(last, one.sum(|level| level.items))
}

fn milliseconds(time: Duration) -> String {
    nanoseconds(time.as_nanos() as u64)
}

/// From the start of a store to its full rate.
fn warm_up(warm: &[WarmUp]) -> Figure {
    let row = |one: &WarmUp| {
        vec![
            one.name.clone(),
            milliseconds(one.opened),
            milliseconds(one.first_answer),
            one.full.map_or("never".to_string(), milliseconds),
            count(one.steady as u64),
        ]
    };
    let header = ["store", "open", "first answer", "90 % of the steady rate", "steady gets a second"];
    let told: Vec<String> = warm
        .iter()
        .map(|one| format!("{} {}", one.name, one.full.map_or("never".to_string(), milliseconds)))
        .collect();
    let is_soon = |one: &WarmUp| one.full.is_some_and(|time| time <= FULL_WITHIN);
    let series = |one: &WarmUp| Series {
        name: one.name.clone(),
        points: one.rates.iter().map(|(time, rate)| (time.as_secs_f64() * 1e3, *rate)).collect(),
    };
    Figure {
        name: "lsmtrie-warm-up",
        title: "From the call that opens a killed store to its full rate".to_string(),
        header: header.map(str::to_string).to_vec(),
        rows: warm.iter().map(row).collect(),
        picture: Picture::Lines(Chart {
            title: "Gets a second after the call that opens the store".to_string(),
            x: Axis::linear("milliseconds"),
            y: Axis::linear("gets a second"),
            series: warm.iter().map(series).collect(),
        }),
        claims: vec![Claim {
            paper: "tens of minutes until all metadata is in memory".to_string(),
            ours: format!("nine tenths of the steady cold rate after: {}", told.join(", ")),
            verdict: Verdict::of(!warm.is_empty() && warm.iter().all(is_soon)),
            reason:
                "the bound is 2 s; tables are read past the kernel's cache, and the log and the manifest \
                     are in it"
                    .to_string(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steady rate comes from the second half, and one slow window does not change it.
    #[test]
    fn steady_rates_are_of_the_later_half() {
        let rate = |index: u32, rate: f64| (Duration::from_millis(u64::from(index)), rate);
        let rates =
            [rate(1, 5.0), rate(2, 50.0), rate(3, 100.0), rate(4, 1.0), rate(5, 110.0), rate(6, 90.0)];
        assert!((steady_rate(&rates) - 90.0).abs() < 1e-9 || (steady_rate(&rates) - 110.0).abs() < 1e-9);
        assert!(steady_rate(&[]) == 0.0);
    }
}
