//! Lemur's figures: the memory level's size, the ratio, and the filters.
//!
//! Keys 0, 2, .. are inserted in random order and random keys searched, half of them missing: 10^6 and 10^3
//! when leveling, 10^5 and 10^2 when appending, which the paper calls tiering. Each point is the mean of
//! several runs. Also measured: sorted arrays side by side, which other papers call tiering, and the store
//! itself.

use trine::lab::Preset;
use trine_workload::failure::Failure;
use trine_workload::plot::{Axis, Chart, Series};

use super::{Claim, Figure, Job, Picture, Verdict, a_second, percent, signed};
use crate::lab::{Target, lemur_run, mean_and_interval, stop_if_asked};

const VALUE_BYTES: usize = 20;
/// Runs for a point; the paper has 20.
const RUNS: u64 = 3;
/// Searches when leveling and when appending. The paper's 10^3 and 10^2 take no measurable time, so ours are
/// more.
const SEARCHES: (u64, u64) = (100_000, 1500);

/// Items of the paper's appending runs.
const APPENDED: u64 = 100_000;
/// With fewer items, a memory level of 8,192 holds most of them.
const LEAST: u64 = 4 * 8192;

/// The verdict on a claim; `Untestable` if there are too few items.
fn verdict(job: &Job, agrees: bool) -> Verdict {
    let items = Way::ALL.map(|way| way.counts(job).0);
    if items.iter().any(|items| *items < LEAST) { Verdict::Untestable } else { Verdict::of(agrees) }
}

/// One line of a figure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Leveling,
    Appending,
    /// As many sorted arrays as the ratio, merged at once.
    Tiering,
}

impl Way {
    const ALL: [Way; 3] = [Way::Leveling, Way::Appending, Way::Tiering];

    fn name(self) -> &'static str {
        match self {
            Way::Leveling => "leveling",
            Way::Appending => "appending (its tiering)",
            Way::Tiering => "sorted arrays (tiering)",
        }
    }

    fn target(self, memory_items: u64, ratio: u64) -> Result<Target, Failure> {
        let target = match self {
            Way::Leveling => Target::of(Preset::LemurLeveling),
            Way::Appending => Target::of(Preset::LemurTiering),
            Way::Tiering => Target::of(Preset::LemurLeveling).with("arrays", ratio)?,
        };
        target.with("sync", "off")?.with("memory_items", memory_items)?.with("ratio", ratio)
    }

    fn counts(self, job: &Job) -> (u64, u64) {
        match self {
            Way::Leveling | Way::Tiering => (job.scaled(1_000_000, 1000), job.scaled(SEARCHES.0, 100)),
            // The paper's size from scale 0.2 on: fewer items would all stay in memory.
            Way::Appending => {
                (job.scaled(5 * APPENDED, 1000).min(APPENDED), job.scaled(SEARCHES.1, 50).min(SEARCHES.1))
            }
        }
    }
}

/// Means of inserts and searches a second.
#[derive(Clone, Copy)]
struct Point {
    inserts: f64,
    searches: f64,
}

fn point(job: &mut Job, target: &Target, counts: (u64, u64)) -> Result<Point, Failure> {
    let (mut inserts, mut searches) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        stop_if_asked()?;
        let seed = job.seed + run;
        let rates = lemur_run(target, &mut job.workshop, counts, seed)?;
        inserts.push(rates.inserts_a_second);
        searches.push(rates.searches_a_second);
    }
    Ok(Point { inserts: mean_and_interval(&inserts).0, searches: mean_and_interval(&searches).0 })
}

/// The points of a way, by the varied parameter.
type Line = (&'static str, Vec<(u64, Point)>);

fn sweep(
    job: &mut Job,
    ways: &[Way],
    values: &[u64],
    target: impl Fn(Way, u64) -> Result<Target, Failure>,
) -> Result<Vec<Line>, Failure> {
    let mut lines = Vec::new();
    for way in ways {
        let mut points = Vec::new();
        for value in values {
            job.step(format!("{}, {value}", way.name()));
            let counts = way.counts(job);
            points.push((*value, point(job, &target(*way, *value)?, counts)?));
        }
        lines.push((way.name(), points));
    }
    Ok(lines)
}

fn figure(
    name: &'static str,
    title: &str,
    varied: &str,
    lines: &[Line],
    rate: impl Fn(&Point) -> f64,
    claims: Vec<Claim>,
) -> Figure {
    let mut header = vec![varied.to_string()];
    header.extend(lines.iter().map(|(name, _)| (*name).to_string()));
    let values: Vec<u64> =
        lines.first().map_or(Vec::new(), |(_, points)| points.iter().map(|one| one.0).collect());
    let row = |(index, value): (usize, &u64)| {
        let mut row = vec![trine_workload::text::count(*value)];
        let cell = |points: &Vec<(u64, Point)>| points.get(index).map(|one| a_second(rate(&one.1)));
        row.extend(lines.iter().map(|(_, points)| cell(points).unwrap_or_default()));
        row
    };
    let series = |(name, points): &Line| Series {
        name: (*name).to_string(),
        points: points.iter().map(|(value, point)| (*value as f64, rate(point))).collect(),
    };
    let chart = Chart {
        title: title.to_string(),
        x: Axis::logarithmic(varied),
        y: Axis::logarithmic("a second"),
        series: lines.iter().map(series).collect(),
    };
    let rows = values.iter().enumerate().map(row).collect();
    Figure { name, title: title.to_string(), header, rows, picture: Picture::Lines(chart), claims }
}

/// The store itself, the same at every value.
fn store_line(job: &mut Job, values: &[u64]) -> Result<Line, Failure> {
    job.step("default".to_string());
    let counts = Way::Leveling.counts(job);
    let point = point(job, &Target::store(VALUE_BYTES), counts)?;
    Ok(("default", values.iter().map(|value| (*value, point)).collect()))
}

/// Figures 1 and 2.
pub(super) fn levels(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    const SIZES: [u64; 7] = [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];
    const RATIOS: [u64; 6] = [2, 4, 8, 12, 16, 24];
    job.steps(3 * (SIZES.len() + RATIOS.len()) + 1);
    let mut by_size = sweep(job, &Way::ALL, &SIZES, |way, size| way.target(size, 4))?;
    let mut by_ratio = sweep(job, &Way::ALL, &RATIOS, |way, ratio| way.target(8192, ratio))?;
    let store = store_line(job, &SIZES)?;
    by_ratio.push(("default", RATIOS.iter().map(|ratio| (*ratio, store.1[0].1)).collect()));
    by_size.push(store);
    let inserts = |point: &Point| point.inserts;
    let searches = |point: &Point| point.searches;
    let (title, ratio_title) = ("by items in the memory level", "by ratio");
    Ok(vec![
        figure(
            "lemur-fig1-inserts",
            &format!("Inserts a second {title}"),
            "items in memory",
            &by_size,
            inserts,
            insert_claims(job, &by_size),
        ),
        figure(
            "lemur-fig2-searches",
            &format!("Searches a second {title}"),
            "items in memory",
            &by_size,
            searches,
            search_claims(job, &by_size),
        ),
        figure(
            "lemur-fig1-inserts-ratio",
            &format!("Inserts a second {ratio_title}"),
            "ratio",
            &by_ratio,
            inserts,
            Vec::new(),
        ),
        figure(
            "lemur-fig2-searches-ratio",
            &format!("Searches a second {ratio_title}"),
            "ratio",
            &by_ratio,
            searches,
            ratio_claims(&by_ratio),
        ),
    ])
}

/// The point at 8,192 items, the default.
fn at(line: &Line, value: u64) -> Point {
    let found = line.1.iter().find(|one| one.0 == value).or(line.1.first());
    found.map_or(Point { inserts: f64::NAN, searches: f64::NAN }, |one| one.1)
}

fn insert_claims(job: &Job, lines: &[Line]) -> Vec<Claim> {
    let [leveling, appending, ..] = lines else { return Vec::new() };
    let factor = at(appending, 8192).inserts / at(leveling, 8192).inserts;
    let fall = percent(at(leveling, 65_536).inserts, at(leveling, 8192).inserts);
    vec![
        Claim {
            paper: "inserts are 10 times faster when tiering (which appends)".to_string(),
            ours: format!("{factor:.1} times at 8,192 items"),
            verdict: verdict(job, (3.0..=30.0).contains(&factor)),
            reason:
                "within a factor of three; each at its own number of items, as the paper; an appended item \
                     here is a copy into memory and a page of many"
                    .to_string(),
        },
        Claim {
            paper: "inserts when leveling fall as the memory level grows from 8,192 items: the sorted \
                    array moves"
                .to_string(),
            ours: format!("{} from 8,192 to 65,536", signed(fall)),
            verdict: verdict(job, fall < -10.0),
            reason: "only the direction is known; the store's own index has no such array".to_string(),
        },
    ]
}

fn search_claims(job: &Job, lines: &[Line]) -> Vec<Claim> {
    let [leveling, appending, tiering, .., store] = lines else { return Vec::new() };
    let factor = at(leveling, 8192).searches / at(appending, 8192).searches;
    let all: Vec<f64> = leveling.1.iter().map(|one| one.1.searches).collect();
    let most = all.iter().copied().fold(0.0, f64::max);
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let real = at(tiering, 8192).searches / at(leveling, 8192).searches;
    vec![
        Claim {
            paper: "searches are 10,000 times slower when tiering: they are linear".to_string(),
            ours: format!(
                "{factor:.0} times at 8,192 items; sorted arrays instead have {real:.2} of leveling's \
                 searches, the store {:.1} times",
                at(store, 8192).searches / at(leveling, 8192).searches
            ),
            verdict: verdict(job, factor > 10.0),
            reason:
                "the direction; the factor grows with the items, and keys in columns are compared faster \
                     than whole items of a stream are read"
                    .to_string(),
        },
        Claim {
            paper: "searches are not affected by the memory level's size".to_string(),
            ours: format!("the best size has {:.1} times the searches of the worst", most / least),
            verdict: verdict(job, most / least < 3.0),
            reason: "less than a factor of three over a factor of 64 in size counts as not affected"
                .to_string(),
        },
    ]
}

fn ratio_claims(lines: &[Line]) -> Vec<Claim> {
    let [leveling, ..] = lines else { return Vec::new() };
    let change = percent(at(leveling, 24).searches, at(leveling, 2).searches);
    vec![Claim {
        paper: "searches may correlate with the ratio".to_string(),
        ours: format!("{} from ratio 2 to 24, leveling", signed(change)),
        verdict: if change.abs() > 10.0 { Verdict::Agrees } else { Verdict::Differs },
        reason: "a larger ratio makes fewer levels; the paper left the question open".to_string(),
    }]
}

/// Figures 3 and 4.
pub(super) fn bloom(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    const BITS: [u64; 6] = [1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 25];
    const HASHES: [u64; 4] = [1, 2, 4, 8];
    job.steps(BITS.len() * HASHES.len() + 1);
    let names = ["1 hash", "2 hashes", "4 hashes", "8 hashes"];
    let mut lines: Vec<Line> = Vec::new();
    for (name, hashes) in names.into_iter().zip(HASHES) {
        let target = |way: Way, bits: u64| {
            way.target(8192, 4)?.with("filter_bits", bits)?.with("filter_hashes", hashes)
        };
        let line = sweep(job, &[Way::Leveling], &BITS, target)?;
        lines.extend(line.into_iter().map(|(_, points)| (name, points)));
    }
    let searches = |line: &Line, bits: u64| at(line, bits).searches;
    let gain = percent(searches(&lines[2], 1 << 25), searches(&lines[2], 1 << 10));
    let mean = |line: &Line| line.1.iter().map(|one| one.1.inserts).sum::<f64>() / line.1.len() as f64;
    let fall = percent(mean(&lines[3]), mean(&lines[0]));
    lines.push(store_line(job, &BITS)?);
    let search_claim = Claim {
        paper: "searches a second rise with the filter's size".to_string(),
        ours: format!("{} from 2^10 to 2^25 bits, 4 hashes", signed(gain)),
        verdict: verdict(job, gain > 5.0),
        reason: "only the direction is known".to_string(),
    };
    let insert_claim = Claim {
        paper: "inserts a second fall with the number of hashes".to_string(),
        ours: format!("{} from 1 to 8 hashes, mean over sizes", signed(fall)),
        verdict: verdict(job, fall < 0.0),
        reason: "only the direction is known".to_string(),
    };
    Ok(vec![
        figure(
            "lemur-fig3-searches",
            "Searches a second by bits of each filter",
            "bits",
            &lines,
            |point| point.searches,
            vec![search_claim],
        ),
        figure(
            "lemur-fig4-inserts",
            "Inserts a second by bits of each filter",
            "bits",
            &lines,
            |point| point.inserts,
            vec![insert_claim],
        ),
    ])
}
