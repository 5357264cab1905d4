//! TridentKV's experiments with reads: threads, value sizes, devices, the steps of a get.
//!
//! Random gets of present keys of 16 bytes, with a cache of a tenth of the data: by threads with blocking
//! gets, and by futures, many in flight for each thread. The paper's rival is RocksDB 5.4, whose gets block;
//! here the store is its own rival, so only the way of reading is compared.

use std::time::Instant;

use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::plot::{Axis, Chart, Series};
use trine_workload::text::nanoseconds;

use super::throttle::{Limit, Throttle};
use super::trident_store::{DEPTH, Held, Rate, Way, key, measured, rate};
use super::{Claim, Figure, Job, Picture, Verdict};

pub(super) const SCALE: f64 = 0.02;

/// The way to read with this many threads.
type WayOf = fn(usize) -> Way;

/// Figure 18: threads with blocking gets, threads with many gets in flight, and a fixed total of gets in
/// flight.
pub(super) fn threads(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
    const ALL: usize = 128;
    job.steps(3 * THREADS.len() + 1);
    job.step("loading".to_string());
    let held = Held::load(job, 1000)?;
    let ways: [(&'static str, WayOf); 3] = [
        ("waiting", |_| Way::Waiting),
        ("32 in flight each", |_| Way::InFlight(DEPTH)),
        ("128 in flight in all", |threads| Way::InFlight(ALL / threads)),
    ];
    let mut lines: Vec<(&'static str, Vec<Rate>)> = Vec::new();
    for (name, way) in ways {
        let mut rates = Vec::new();
        for threads in THREADS {
            job.step(format!("{name}, {threads} threads"));
            rates.push(rate(job, &held, threads, way(threads))?);
        }
        lines.push((name, rates));
    }
    let claims = thread_claims(&held, &lines);
    held.remove(job)?;
    let mut header = vec!["threads".to_string()];
    header.extend(lines.iter().map(|(name, _)| format!("{name}: gets/s (CPU each)")));
    let row = |(index, threads): (usize, &usize)| {
        let mut row = vec![threads.to_string()];
        row.extend(lines.iter().map(|(_, rates)| rates[index].cell()));
        row
    };
    let rows = THREADS.iter().enumerate().map(row).collect();
    let series = |(name, rates): &(&'static str, Vec<Rate>)| Series {
        name: (*name).to_string(),
        points: THREADS.iter().zip(rates).map(|(threads, rate)| (*threads as f64, rate.operations)).collect(),
    };
    let title = "Random gets of 1,000 bytes by threads".to_string();
    let chart = Chart {
        title: title.clone(),
        x: Axis::logarithmic("threads"),
        y: Axis::linear("gets a second"),
        series: lines.iter().map(series).collect(),
    };
    let picture = Picture::Lines(chart);
    Ok(vec![Figure { name: "trident-fig18", title, header, rows, picture, claims }])
}

fn verdict(held: &Held, agrees: bool) -> Verdict {
    if held.is_cached { Verdict::Untestable } else { Verdict::of(agrees) }
}

fn thread_claims(held: &Held, lines: &[(&'static str, Vec<Rate>)]) -> Vec<Claim> {
    let [(_, waiting), (_, each), (_, all)] = lines else { return Vec::new() };
    let best = |rates: &[Rate]| rates.iter().map(|rate| rate.operations).fold(0.0, f64::max);
    let (peak, few) = (best(each).max(best(all)), best(&each[..2]).max(best(&all[..2])));
    let small = "the data fits the smallest memory at this scale";
    let reason = |words: &str| if held.is_cached { small.to_string() } else { words.to_string() };
    let gain = |index: usize| each[index].operations / waiting[index].operations;
    vec![
        Claim {
            paper: "with asynchronous reads few threads reach the peak".to_string(),
            ours: format!("two threads at most: {:.0} % of the best of 16", few / peak * 100.0),
            verdict: verdict(held, few >= 0.9 * peak),
            reason: reason(
                "what is in flight counts, and not who waits for it; the rest is what threads share",
            ),
        },
        Claim {
            paper: "synchronous reads grow with the threads".to_string(),
            ours: format!("16 threads over one: {:.1} times", waiting[4].operations / waiting[0].operations),
            verdict: verdict(held, waiting[4].operations > 2.0 * waiting[0].operations),
            reason: reason("each thread is one read in flight"),
        },
        Claim {
            paper: "what asynchronous reads gain falls with the threads".to_string(),
            ours: format!("{:.1} times with one thread, {:.1} times with 16", gain(0), gain(4)),
            verdict: verdict(held, gain(0) > 2.0 * gain(4)),
            reason: reason("the device has no more to give"),
        },
    ]
}

/// Figures 2, 10, 11 and 13.
pub(super) fn read(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    const SIZES: [usize; 6] = [16, 64, 256, 1024, 4096, 16_384];
    job.steps(SIZES.len() + 2 + DEVICES.len());
    let mut points = Vec::new();
    for size in SIZES {
        job.step(format!("values of {size} bytes"));
        let held = Held::load(job, size)?;
        let waiting = rate(job, &held, 1, Way::Waiting)?;
        let flying = rate(job, &held, 1, Way::InFlight(4 * DEPTH))?;
        let scanned = scanned(job, &held)?;
        points.push(SizePoint { size, waiting, flying, scanned, is_cached: held.is_cached });
        held.remove(job)?;
    }
    let mut figures = vec![gets_by_size(&points), scans_by_size(&points)];
    job.step("the steps of a get".to_string());
    let held = Held::load(job, 1000)?;
    figures.push(steps(job, &held)?);
    figures.push(devices(job, &held)?);
    held.remove(job)?;
    Ok(figures)
}

struct SizePoint {
    size: usize,
    waiting: Rate,
    flying: Rate,
    /// Bytes of keys and values a second in a scan.
    scanned: f64,
    is_cached: bool,
}

fn scanned(job: &Job, held: &Held) -> Result<f64, Failure> {
    let (started, mut bytes) = (Instant::now(), 0);
    let mut cursor = held.items.cursor(..);
    while let Some((key, value)) = cursor.next()? {
        bytes += key.len() + value.len();
        if started.elapsed() > measured(job) {
            break;
        }
    }
    Ok(bytes as f64 / started.elapsed().as_secs_f64())
}

/// A line of a picture by value size.
type SizeLine = (&'static str, fn(&SizePoint) -> f64);

/// A figure of value sizes, with its lines and its claim.
fn by_size(
    (name, title): (&'static str, &str),
    (header, row): (&[&str], impl Fn(&SizePoint) -> Vec<String>),
    (y, lines): (Axis, &[SizeLine]),
    points: &[SizePoint],
    claim: Claim,
) -> Figure {
    let row = |point: &SizePoint| [vec![trine_workload::text::count(point.size as u64)], row(point)].concat();
    let series = |(name, of): &SizeLine| Series {
        name: (*name).to_string(),
        points: points.iter().map(|point| (point.size as f64, of(point))).collect(),
    };
    let x = Axis::logarithmic("bytes of a value");
    let chart = Chart { title: title.to_string(), x, y, series: lines.iter().map(series).collect() };
    Figure {
        name,
        title: title.to_string(),
        header: std::iter::once(&"value").chain(header).map(ToString::to_string).collect(),
        rows: points.iter().map(row).collect(),
        picture: Picture::Lines(chart),
        claims: vec![claim],
    }
}

fn sizes_verdict(points: &[SizePoint], agrees: bool) -> Verdict {
    if points.iter().any(|point| point.is_cached) { Verdict::Untestable } else { Verdict::of(agrees) }
}

/// Figure 10: random gets by value size.
fn gets_by_size(points: &[SizePoint]) -> Figure {
    let gains: Vec<f64> =
        points.iter().map(|point| point.flying.operations / point.waiting.operations).collect();
    let (least, most) =
        (gains.iter().copied().fold(f64::MAX, f64::min), gains.iter().copied().fold(0.0, f64::max));
    let row = |point: &SizePoint| {
        let times = format!("{:.1}", point.flying.operations / point.waiting.operations);
        vec![point.waiting.cell(), point.flying.cell(), times]
    };
    let claim = Claim {
        paper: "random reads 7 to 12 times RocksDB's with few threads, whatever the value's size".to_string(),
        ours: format!("one thread: {least:.1} to {most:.1} times one that waits"),
        verdict: sizes_verdict(points, least >= 3.0),
        reason: "the gain is bounded by what the device does at once over what it does one by one"
            .to_string(),
    };
    by_size(
        ("trident-fig10", "Random gets by value size"),
        (&["one that waits", "128 in flight", "times"], row),
        (
            Axis::logarithmic("gets a second"),
            &[
                ("one that waits", |point| point.waiting.operations),
                ("128 in flight", |point| point.flying.operations),
            ],
        ),
        points,
        claim,
    )
}

/// Figure 11: reading in order by value size.
fn scans_by_size(points: &[SizePoint]) -> Figure {
    let scans: Vec<f64> = points.iter().map(|point| point.scanned / 1e6).collect();
    let (smallest, largest) = (scans[0], scans[scans.len() - 1]);
    let claim = Claim {
        paper: "sequential reads gain more with larger values".to_string(),
        ours: format!("{smallest:.0} MB/s at the smallest, {largest:.0} at the largest"),
        verdict: sizes_verdict(points, largest > smallest),
        reason: "an item costs processor time, its bytes the device's".to_string(),
    };
    by_size(
        ("trident-fig11", "Reading in order by value size"),
        (&["MB/s of keys and values"], |point| vec![format!("{:.0}", point.scanned / 1e6)]),
        (Axis::linear("MB/s"), &[("one scan", |point| point.scanned / 1e6)]),
        points,
        claim,
    )
}

/// Figure 2: the time of each step of a blocking get, cold and from memory.
fn steps(job: &Job, held: &Held) -> Result<Figure, Failure> {
    const GETS: u64 = 2000;
    let mut dice = Dice::new(job.seed);
    let numbers: Vec<u64> = (0..GETS).map(|_| dice.below(held.count)).collect();
    let mut names: Vec<&'static str> = Vec::new();
    let mut means: [Vec<f64>; 2] = Default::default();
    for means in &mut means {
        for number in &numbers {
            let (_, trace) = held.items.trace(key(*number))?;
            means.resize(trace.steps.len(), 0.0);
            names = trace.steps.iter().map(|step| step.name).collect();
            trace
                .steps
                .iter()
                .zip(&mut *means)
                .for_each(|(step, mean)| *mean += step.ns as f64 / GETS as f64);
        }
    }
    let [cold, warm] = &means;
    let share = |means: &[f64], name: &str| {
        let at = names.iter().position(|one| *one == name);
        at.map_or(0.0, |at| means[at]) / means.iter().sum::<f64>().max(1.0)
    };
    let load = share(cold, "DBLoad");
    let seeks = share(warm, "IBSeek") + share(warm, "DBSeek");
    let row = |(index, name): (usize, &&'static str)| {
        vec![(*name).to_string(), nanoseconds(cold[index] as u64), nanoseconds(warm[index] as u64)]
    };
    let title = "Steps of a get, means, the clock read between them".to_string();
    let points = |means: &[f64]| means.iter().enumerate().map(|(at, ns)| ((at + 1) as f64, *ns)).collect();
    let chart = Chart {
        title: title.clone(),
        x: Axis::linear("step"),
        y: Axis::linear("ns"),
        series: vec![
            Series { name: "first time".to_string(), points: points(cold) },
            Series { name: "again".to_string(), points: points(warm) },
        ],
    };
    let claims = vec![
        Claim {
            paper: "with blocks on the device, loading them is most of a get".to_string(),
            ours: format!("DBLoad is {:.0} % of a get the first time", load * 100.0),
            verdict: verdict(held, load > 0.5),
            reason: "filters and fences are in memory".to_string(),
        },
        Claim {
            paper: "of indexing, IBSeek and DBSeek are more than 60 %".to_string(),
            ours: format!("{:.0} % of a get from memory", seeks * 100.0),
            verdict: Verdict::of(seeks > 0.6),
            reason: "the clock is part of each step here, and as much as the short ones".to_string(),
        },
    ];
    let rows = names.iter().enumerate().map(row).collect();
    let header = ["step", "first time", "again"].map(str::to_string).to_vec();
    Ok(Figure { name: "trident-fig2", title, header, rows, picture: Picture::Lines(chart), claims })
}

/// Reads a second that a device is limited to; `None`: this machine's device.
const DEVICES: [(&str, Option<u64>); 3] =
    [("hard disk, 200 reads/s", Some(200)), ("SATA SSD, 25,000 reads/s", Some(25_000)), ("this one", None)];

/// Figure 13: slower devices.
fn devices(job: &mut Job, held: &Held) -> Result<Figure, Failure> {
    let mut rows = Vec::new();
    let mut gains = Vec::new();
    let mut refusal = None;
    for (name, reads) in DEVICES {
        job.step(name.to_string());
        let throttle =
            match reads.map(|reads| Throttle::of(&held.place, Limit::ReadsASecond(reads))).transpose() {
                Ok(throttle) => throttle,
                Err(why) => {
                    rows.push(vec![name.to_string(), "-".to_string(), "-".to_string(), why.clone()]);
                    refusal = Some(why);
                    continue;
                }
            };
        let (waiting, flying) =
            (rate(job, held, 1, Way::Waiting)?, rate(job, held, 1, Way::InFlight(4 * DEPTH))?);
        drop(throttle);
        let gain = flying.operations / waiting.operations;
        gains.push(gain);
        rows.push(vec![name.to_string(), waiting.cell(), flying.cell(), format!("{gain:.1}")]);
    }
    let (least, most) =
        (gains.iter().copied().fold(f64::MAX, f64::min), gains.iter().copied().fold(0.0, f64::max));
    let is_testable = refusal.is_none() && !held.is_cached;
    let claims = vec![Claim {
        paper: "random reads gain 3 to 6 times on a hard disk, a SATA SSD and an NVMe SSD".to_string(),
        ours: format!("{least:.1} to {most:.1} times one that waits"),
        verdict: if is_testable { Verdict::of(least >= 3.0) } else { Verdict::Untestable },
        reason: refusal.unwrap_or_else(|| {
            "a limit has no seeks that a queue would shorten, which is a disk's gain".to_string()
        }),
    }];
    let title = "Devices, emulated by a limit on reads a second".to_string();
    let points = gains.iter().enumerate().map(|(at, gain)| ((at + 1) as f64, *gain)).collect();
    let chart = Chart {
        title: title.clone(),
        x: Axis::linear("device"),
        y: Axis::linear("times one that waits"),
        series: vec![Series { name: "128 in flight".to_string(), points }],
    };
    let header = ["device", "one that waits", "128 in flight", "times"].map(str::to_string).to_vec();
    Ok(Figure { name: "trident-fig13", title, header, rows, picture: Picture::Lines(chart), claims })
}
