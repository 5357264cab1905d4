//! TridentKV's three techniques one by one (figure 15): random gets with a small and with a large cache.
//!
//! Asynchronous reads, a learned index and partitions are each used alone, then together. One thread gets
//! random present keys. The cache, which includes filters and fences, takes 5 % and 50 % of the data. Stores
//! of all layouts are open at once, and techniques are measured in turn, so that other work on the machine
//! disturbs all of them alike. The paper's writes are measured in `trident_write`.

use trine::Db;
use trine_workload::failure::Failure;
use trine_workload::plot::{Axis, Bars};
use trine_workload::text::{bytes, count};

use super::trident_store::{DEPTH, Held, IndexPages, Layout, MEMORY_BYTES_MIN, Rate, Way, rate};
use super::{Claim, Figure, Job, Picture, Verdict, percent, signed};

/// The paper's values.
const VALUE_BYTES: usize = 1000;
pub(super) const SCALE: f64 = 0.01;
const PARTITIONS: u64 = 10;
/// The cache, in percent of the data.
const CACHES: [u64; 2] = [5, 50];
const ROUNDS: usize = 3;
/// The cache is warmed by gets for this many times the length of a measurement.
const WARM_RATES: usize = 4;
/// A smaller change counts as none: rates of one store differ by as much.
const NOISE_PERCENT: f64 = 10.0;
const IN_FLIGHT: Way = Way::InFlight(4 * DEPTH);

/// A technique: a layout and a way to read it.
struct Technique {
    name: &'static str,
    index_kind: &'static str,
    partitions: u64,
    way: Way,
}

const NONE: Technique = Technique { name: "none", index_kind: "fences", partitions: 1, way: Way::Waiting };
const TECHNIQUES: [Technique; 5] = [
    NONE,
    Technique { name: "asynchronous reads", way: IN_FLIGHT, ..NONE },
    Technique { name: "learned index", index_kind: "learned", ..NONE },
    Technique { name: "partitions", partitions: PARTITIONS, ..NONE },
    Technique { name: "all", index_kind: "learned", partitions: PARTITIONS, way: IN_FLIGHT },
];
/// Indices of techniques.
const ASYNCHRONOUS: usize = 1;
const LEARNED: usize = 2;
const DIVIDED: usize = 3;
const ALL: usize = 4;

impl Technique {
    fn layout(&self) -> Layout {
        Layout { value_bytes: VALUE_BYTES, index_kind: self.index_kind, partitions: self.partitions }
    }

    /// The index of its layout among those of all techniques.
    fn store(&self) -> usize {
        layouts().iter().position(|layout| *layout == self.layout()).expect("layouts are of the techniques")
    }
}

fn layouts() -> Vec<Layout> {
    let mut layouts: Vec<Layout> = Vec::new();
    for technique in &TECHNIQUES {
        if !layouts.contains(&technique.layout()) {
            layouts.push(technique.layout());
        }
    }
    layouts
}

/// All techniques with one cache size.
struct Cached {
    share: u64,
    cache_bytes: u64,
    /// By technique.
    rates: Vec<Rate>,
}

impl Cached {
    /// The ratio of a technique's rate to the rate of none.
    fn times(&self, technique: usize) -> f64 {
        self.rates[technique].operations / self.rates[0].operations
    }

    fn gain(&self, technique: usize) -> f64 {
        percent(self.rates[technique].operations, self.rates[0].operations)
    }

    /// The change of processor time of a get against that of none, in percent.
    fn cpu(&self, technique: usize) -> f64 {
        percent(self.rates[technique].cpu_ns, self.rates[0].cpu_ns)
    }
}

pub(super) fn run(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    let layouts = layouts();
    job.steps(layouts.len() + CACHES.len() * (1 + ROUNDS));
    let (mut stores, mut pages) = (Vec::new(), Vec::new());
    for layout in &layouts {
        job.step(format!("loading, {}, {} partitions", layout.index_kind, layout.partitions));
        let held = Held::build(job, *layout)?;
        pages.push(IndexPages::of(&held.place, &held.items)?);
        stores.push(held);
    }
    let is_small = stores[0].data_bytes() < 2 * MEMORY_BYTES_MIN;
    let mut all = Vec::new();
    for share in CACHES {
        let cached;
        (cached, stores) = measure(job, stores, share)?;
        all.push(cached);
    }
    for held in stores {
        held.remove(job)?;
    }
    Ok(vec![figure(&all, &pages, is_small)])
}

fn measure(job: &mut Job, stores: Vec<Held>, share: u64) -> Result<(Cached, Vec<Held>), Failure> {
    let cache_bytes = stores[0].data_bytes() * share / 100;
    // A store needs memory besides the cache, for write buffers and merges.
    let memory_bytes = 2 * cache_bytes + 2 * MEMORY_BYTES_MIN;
    let reopened = |held: Held| {
        held.reopen(|place| Db::builder(place).memory_bytes(memory_bytes).cache_bytes(cache_bytes))
    };
    let stores = stores.into_iter().map(reopened).collect::<Result<Vec<Held>, Failure>>()?;
    job.step(format!("cache of {share} %: filling it"));
    for held in &stores {
        for _ in 0..WARM_RATES {
            rate(job, held, 1, IN_FLIGHT)?;
        }
    }
    let mut rounds = TECHNIQUES.map(|_| Vec::new());
    for round in 0..ROUNDS {
        job.step(format!("cache of {share} %: round {} of {ROUNDS}", round + 1));
        for (technique, rates) in TECHNIQUES.iter().zip(&mut rounds) {
            rates.push(rate(job, &stores[technique.store()], 1, technique.way)?);
        }
    }
    let rates = rounds.iter().map(|rates| Rate::median(rates)).collect();
    Ok((Cached { share, cache_bytes, rates }, stores))
}

fn figure(all: &[Cached], pages: &[IndexPages], is_small: bool) -> Figure {
    let mut header =
        ["technique", "pages that are models", "bytes of index pages"].map(str::to_string).to_vec();
    for cached in all {
        let cache = bytes(cached.cache_bytes);
        header.push(format!("cache of {} % ({cache}): gets/s (CPU each)", cached.share));
        header.push("gain".to_string());
    }
    let row = |(index, technique): (usize, &Technique)| {
        let pages = &pages[technique.store()];
        let mut row = vec![technique.name.to_string(), pages.models(), count(pages.bytes)];
        for cached in all {
            row.extend([cached.rates[index].cell(), signed(cached.gain(index))]);
        }
        row
    };
    let series = |(index, technique): (usize, &Technique)| {
        (technique.name.to_string(), all.iter().map(|cached| Some(cached.times(index))).collect())
    };
    let title = "Random gets of 1,000 bytes by one thread, technique by technique".to_string();
    let picture = Picture::Bars(Bars {
        title: title.clone(),
        y: Axis::logarithmic("times the rate of none"),
        groups: all.iter().map(|cached| format!("cache of {} %", cached.share)).collect(),
        series: TECHNIQUES.iter().enumerate().map(series).collect(),
    });
    let rows = TECHNIQUES.iter().enumerate().map(row).collect();
    Figure { name: "trident-fig15", title, header, rows, picture, claims: claims(all, is_small) }
}

fn claims(all: &[Cached], is_small: bool) -> Vec<Claim> {
    let [small, large] = all else { return Vec::new() };
    let verdict = |agrees: bool| if is_small { Verdict::Untestable } else { Verdict::of(agrees) };
    let each = |cached: &Cached| {
        let words = |index: usize| format!("{} {}", TECHNIQUES[index].name, signed(cached.gain(index)));
        [ASYNCHRONOUS, LEARNED, DIVIDED, ALL].map(words).join(", ")
    };
    let is_most = |cached: &Cached, one: usize| (1..ALL).all(|other| cached.gain(other) <= cached.gain(one));
    let divided = all.iter().map(|cached| cached.gain(DIVIDED));
    vec![
        Claim {
            paper: "with a small cache asynchronous reads gain the most".to_string(),
            ours: format!("cache of {} %: {}", small.share, each(small)),
            verdict: verdict(is_most(small, ASYNCHRONOUS)),
            reason: "most gets read a block from the device, and one that waits has one read in flight"
                .to_string(),
        },
        Claim {
            paper: "with a large cache the learned index gains the most".to_string(),
            ours: format!(
                "cache of {} %: {}; processor time of a get {} with the learned index",
                large.share,
                each(large),
                signed(large.cpu(LEARNED))
            ),
            verdict: verdict(is_most(large, LEARNED)),
            reason: "half of the gets read from the device still, and pages of either kind are in memory"
                .to_string(),
        },
        Claim {
            paper: "partitions do not affect reads".to_string(),
            ours: format!(
                "{} % and {} % of cache: {}",
                small.share,
                large.share,
                divided.clone().map(signed).collect::<Vec<_>>().join(", ")
            ),
            verdict: verdict(divided.clone().all(|gain| gain.abs() < NOISE_PERCENT)),
            reason: "a get finds its partition by a search among ten bounds, and searches one tree"
                .to_string(),
        },
        Claim {
            paper: "no technique gains in writing".to_string(),
            ours: "not part of this experiment".to_string(),
            verdict: Verdict::Untestable,
            reason: "trident-write has index kinds, and trident-delete has partitions".to_string(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(share: u64, rates: [f64; 5]) -> Cached {
        let rate = |operations| Rate { operations, cpu_ns: 1000.0 };
        Cached { share, cache_bytes: 1, rates: rates.map(rate).to_vec() }
    }

    /// A technique gains the most if no other single one gains more; partitions may gain or lose a little.
    #[test]
    fn verdicts_are_of_single_techniques() {
        let verdicts = |small, large| {
            let claims = claims(&[cached(5, small), cached(50, large)], false);
            claims.iter().map(|claim| claim.verdict).collect::<Vec<Verdict>>()
        };
        let (papers, other) = ([10.0, 60.0, 11.0, 10.0, 70.0], [10.0, 11.0, 20.0, 10.0, 30.0]);
        let [agrees, differs, open] = [Verdict::Agrees, Verdict::Differs, Verdict::Untestable];
        assert_eq!(verdicts(papers, other), [agrees, agrees, agrees, open]);
        assert_eq!(verdicts(other, papers), [differs, differs, agrees, open]);
        assert_eq!(verdicts(papers, [10.0, 9.0, 9.0, 8.0, 9.0])[2], differs);
        assert_eq!(claims(&[cached(5, papers), cached(50, other)], true)[0].verdict, open);
    }

    /// Techniques with the same layout share a store.
    #[test]
    fn techniques_share_stores() {
        assert_eq!(TECHNIQUES.map(|technique| technique.store()), [0, 0, 1, 2, 3]);
        assert_eq!(layouts().len(), 4);
    }
}
