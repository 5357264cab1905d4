//! TridentKV's experiments on deletion (figures 4, 21 and 22): partitions that are deleted one after another.
//!
//! Three stores hold the same items: one is partitioned by prefix and drops partitions, one covers each
//! prefix by a range tombstone, one deletes key by key. Reads of the remaining partitions follow each
//! deletion at once, so background work caused by the deletion disturbs them, as in the paper. The paper uses
//! a Ceph cluster; here the store is read directly.

use std::time::Duration;

use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::plot::{Axis, Chart, Series};
use trine_workload::text::{bytes, nanoseconds};

use super::deletion::{Divided, Sizes, Way};
use super::trident_divided;
use super::trident_store::{MEMORY_BYTES_MIN, measured};
use super::windows::{STEADY_PERCENT, Window};
use super::{Claim, Figure, Job, Picture, Verdict, median, percent, signed};

/// The paper's data, in bytes.
const DATA_BYTES: u64 = 40_000_000_000;
/// Partitions in the paper, and here by default.
const PARTITIONS: u32 = 10;
const VALUE_BYTES: usize = 1000;
/// Bytes of an item.
const ITEM_BYTES: u64 = 16 + VALUE_BYTES as u64;
/// The scale at which a window is as long as those of the experiments on reads.
pub(super) const SCALE: f64 = 0.01;

/// A store after some deletions.
struct Point {
    deleted: u32,
    /// The time of the last deletion; zero before the first.
    deletion: Duration,
    gets: Window,
    scans: Window,
    /// One scan from the store's first key, immediately after the deletion.
    over_deleted: Duration,
    live_bytes: u64,
    /// Bytes on disk when the deletion returned, and after the windows.
    disk_bytes: u64,
    later_bytes: u64,
}

/// One way to delete, and its points in the order of their deletions.
struct Deletions {
    way: Way,
    points: Vec<Point>,
}

pub(super) fn run(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    let partitions = job.partitions.unwrap_or(PARTITIONS);
    job.steps(Way::ALL.len() * partitions as usize + trident_divided::STEPS);
    let items = (job.scaled(DATA_BYTES, 1) / ITEM_BYTES / u64::from(partitions)).max(200);
    let data_bytes = items * u64::from(partitions) * ITEM_BYTES;
    let memory_bytes = (data_bytes / 10).max(MEMORY_BYTES_MIN);
    let sizes = Sizes { partitions, items, value_bytes: VALUE_BYTES, memory_bytes, rounds: 1 };
    let mut all = Vec::new();
    for way in Way::ALL {
        all.push(Deletions { way, points: delete_all(job, way, sizes)? });
    }
    let mut figures = vec![gets(&all, data_bytes), scans(&all), deletions(&all), space(&all)];
    figures.extend(trident_divided::run(job, data_bytes / 2)?);
    Ok(figures)
}

fn delete_all(job: &mut Job, way: Way, sizes: Sizes) -> Result<Vec<Point>, Failure> {
    job.step(format!("{}: filling", way.name()));
    let mut store = Divided::fill(job, way, sizes)?;
    let mut dice = Dice::new(job.seed);
    // Fills the cache before the first window.
    store.gets(measured(job), &mut dice)?;
    let mut points = Vec::new();
    for deleted in 0..sizes.partitions {
        let deletion = if deleted == 0 { Duration::ZERO } else { store.delete_next()? };
        let disk_bytes = store.disk_bytes();
        let over_deleted = store.scan_over_deleted()?;
        let gets = store.gets(measured(job), &mut dice)?;
        let scans = store.scans(measured(job), &mut dice)?;
        let live_bytes = store.live_bytes();
        let later_bytes = store.disk_bytes();
        points.push(Point {
            deleted,
            deletion,
            gets,
            scans,
            over_deleted,
            live_bytes,
            disk_bytes,
            later_bytes,
        });
        if deleted + 1 < sizes.partitions {
            job.step(format!("{}: {} deleted", way.name(), deleted + 1));
        }
    }
    store.remove(job)?;
    Ok(points)
}

/// A figure with a row for each number of deleted partitions and a column for each way.
fn by_deleted(
    (name, title): (&'static str, &str),
    (all, cell): (&[Deletions], impl Fn(&Point) -> String),
    (y, height): (Axis, impl Fn(&Point) -> f64),
    claims: Vec<Claim>,
) -> Figure {
    let mut header = vec!["deleted".to_string()];
    header.extend(all.iter().map(|one| one.way.name().to_string()));
    let count = all.first().map_or(0, |one| one.points.len());
    let row = |index: usize| {
        let mut row = vec![index.to_string()];
        row.extend(all.iter().map(|one| cell(&one.points[index])));
        row
    };
    let series = |one: &Deletions| Series {
        name: one.way.name().to_string(),
        points: one.points.iter().map(|point| (f64::from(point.deleted), height(point))).collect(),
    };
    let series = all.iter().map(series).collect();
    let chart = Chart { title: title.to_string(), x: Axis::linear("deleted partitions"), y, series };
    let rows = (0..count).map(row).collect();
    Figure { name, title: title.to_string(), header, rows, picture: Picture::Lines(chart), claims }
}

/// The change from the rate before the first deletion to the median rate of all windows after one, in
/// percent.
fn change(one: &Deletions, rate: impl Fn(&Point) -> f64) -> f64 {
    let Some((first, rest)) = one.points.split_first() else { return 0.0 };
    if rest.is_empty() {
        return 0.0;
    }
    percent(median(rest.iter().map(&rate)), rate(first))
}

/// The greatest value over all deletions.
fn highest(one: &Deletions, value: impl Fn(&Point) -> f64) -> f64 {
    one.points.iter().map(value).fold(0.0, f64::max)
}

/// Changes of all ways, in words.
fn changes(all: &[Deletions], rate: impl Fn(&Point) -> f64 + Copy) -> String {
    let one = |one: &Deletions| format!("{} {}", one.way.name(), signed(change(one, rate)));
    format!(
        "median rate after deletions against that before: {}",
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    )
}

fn gets(all: &[Deletions], data_bytes: u64) -> Figure {
    let rate = |point: &Point| point.gets.rate;
    let is_small = data_bytes < 2 * MEMORY_BYTES_MIN;
    let claims = vec![
        Claim {
            paper: "gets in partitions stay as fast after a deletion, or gain from the smaller data"
                .to_string(),
            ours: changes(all, rate),
            verdict: if is_small {
                Verdict::Untestable
            } else {
                Verdict::of(change(&all[0], rate) > STEADY_PERCENT)
            },
            reason: "a dropped partition leaves no tombstone and no merge that reads it".to_string(),
        },
        Claim {
            paper: "without partitions reads fall clearly after a deletion, since it only marks".to_string(),
            ours: changes(&all[2..], rate),
            verdict: if is_small {
                Verdict::Untestable
            } else {
                Verdict::of(change(&all[2], rate) < STEADY_PERCENT)
            },
            reason: "the tombstones of another prefix lie in other blocks than the keys that are read"
                .to_string(),
        },
        Claim {
            paper: "column families are as steady as partitions".to_string(),
            ours: "not part of this program".to_string(),
            verdict: Verdict::Untestable,
            reason: "RocksDB's column families and DeleteRange are measured by the package peers".to_string(),
        },
    ];
    by_deleted(
        ("trident-fig21-gets", "Random gets in remaining partitions: gets/s (p50, p99)"),
        (all, |point| point.gets.cell()),
        (Axis::linear("gets a second"), rate),
        claims,
    )
}

fn scans(all: &[Deletions]) -> Figure {
    let rate = |point: &Point| point.scans.rate;
    let claims = vec![Claim {
        paper: "scans in partitions stay as fast; without partitions they fall".to_string(),
        ours: changes(all, rate),
        verdict: Verdict::of(
            change(&all[0], rate) > STEADY_PERCENT && change(&all[2], rate) < STEADY_PERCENT,
        ),
        reason: "a scan within a remaining prefix meets no tombstone of another one".to_string(),
    }];
    by_deleted(
        ("trident-fig21-scans", "Scans of 100 items in remaining partitions: scans/s (p50, p99)"),
        (all, |point| point.scans.cell()),
        (Axis::linear("scans a second"), rate),
        claims,
    )
}

fn deletions(all: &[Deletions]) -> Figure {
    let over = |point: &Point| point.over_deleted.as_nanos() as f64;
    let longest = |one: &Deletions| format!("{} {}", one.way.name(), nanoseconds(highest(one, over) as u64));
    let claims = vec![Claim {
        paper: "scans without partitions time out after half of the partitions are deleted (figure 4)"
            .to_string(),
        ours: format!(
            "longest scan over deleted partitions: {}",
            all.iter().map(longest).collect::<Vec<_>>().join(", ")
        ),
        // Ceph's operations time out after seconds; a factor of 100 shows the direction.
        verdict: Verdict::of(highest(&all[2], over) > 100.0 * highest(&all[0], over)),
        reason: "point tombstones are passed one by one, a range tombstone and a drop at once".to_string(),
    }];
    let cell = |point: &Point| {
        let time = |duration: Duration| nanoseconds(duration.as_nanos() as u64);
        format!("{}, then {}", time(point.deletion), time(point.over_deleted))
    };
    by_deleted(
        ("trident-drop", "Time of the deletion, then of one scan of 100 items over all that is deleted"),
        (all, cell),
        (Axis::logarithmic("ns of a scan over deleted partitions"), over),
        claims,
    )
}

/// Lethe's measure: bytes on disk beyond the live ones, for each live byte.
fn amplification(disk_bytes: u64, live_bytes: u64) -> f64 {
    disk_bytes as f64 / live_bytes.max(1) as f64 - 1.0
}

fn space(all: &[Deletions]) -> Figure {
    let later = |point: &Point| amplification(point.later_bytes, point.live_bytes);
    let last = |one: &Deletions| {
        let found = one.points.last().map_or(0.0, later);
        format!("{} {found:.2}", one.way.name())
    };
    let surplus = |one: &Deletions| {
        let of = |point: &Point| point.later_bytes.saturating_sub(point.live_bytes) as f64;
        one.points.last().map_or(0.0, of) / one.points.first().map_or(1.0, |point| point.live_bytes as f64)
    };
    let claims = vec![Claim {
        paper: "no space amplification with partitions; without, it grows with the deleted part".to_string(),
        ours: format!("at the last deletion: {}", all.iter().map(last).collect::<Vec<_>>().join(", ")),
        verdict: Verdict::of(surplus(&all[0]) < 0.1 && surplus(&all[2]) > 0.1),
        reason: "the log and a last table are counted too, and weigh more the less is left".to_string(),
    }];
    let cell = |point: &Point| {
        let (now, later) = (bytes(point.disk_bytes), bytes(point.later_bytes));
        format!("{now}, then {later} ({:.2})", amplification(point.later_bytes, point.live_bytes))
    };
    by_deleted(
        ("trident-fig22", "On disk when the deletion returns, then after the reads (space amplification)"),
        (all, cell),
        (Axis::linear("space amplification"), later),
        claims,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(rate: f64) -> Window {
        Window { rate, p50_ns: 1, p99_ns: 2 }
    }

    fn point(deleted: u32, rate: f64, live_bytes: u64, later_bytes: u64) -> Point {
        Point {
            deleted,
            deletion: Duration::ZERO,
            gets: window(rate),
            scans: window(rate),
            over_deleted: Duration::from_micros(10),
            live_bytes,
            disk_bytes: later_bytes,
            later_bytes,
        }
    }

    /// The verdict on space needs both halves of the claim: no excess with partitions, much without.
    #[test]
    fn the_verdict_on_space_has_two_sides() {
        let ended = |later_bytes| vec![point(0, 1.0, 1000, 1050), point(9, 1.0, 100, later_bytes)];
        let verdict = |dropped, marked| {
            let bytes = [dropped, dropped, marked];
            let of = |(way, bytes): (Way, u64)| Deletions { way, points: ended(bytes) };
            let all: Vec<Deletions> = Way::ALL.into_iter().zip(bytes).map(of).collect();
            space(&all).claims[0].verdict
        };
        assert_eq!(verdict(120, 1050), Verdict::Agrees);
        assert_eq!(verdict(1050, 1050), Verdict::Differs);
        assert_eq!(verdict(120, 120), Verdict::Differs);
    }

    /// The change is that of the median window, and amplification excludes the live bytes.
    #[test]
    fn changes_are_of_the_median_window() {
        let rates = [100.0, 10.0, 50.0, 200.0];
        let points = (0..).zip(rates).map(|(deleted, rate)| point(deleted, rate, 1, 1)).collect();
        let one = Deletions { way: Way::DeleteRange, points };
        assert!((change(&one, |point| point.gets.rate) + 50.0).abs() < 1e-9);
        assert!((amplification(300, 100) - 2.0).abs() < 1e-9);
    }
}
