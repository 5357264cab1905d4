//! TridentKV's setting of figure 24 as a trace: an object store's metadata before, during and after a
//! migration of placement groups.
//!
//! It is not Ceph. The trace has the keys of a metadata store and no cluster, so the paper's gain in Ceph's
//! reads cannot be tested. Three stores hold the same keys and delete their groups in three ways.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::plot::{Axis, Chart, Series};
use trine_workload::text::{bytes, nanoseconds};

use super::deletion::Way;
use super::objects::{KEY_BYTES, ObjectStore, Reads, VALUE_BYTES};
use super::trident_store::{MEMORY_BYTES_MIN, measured};
use super::windows::STEADY_PERCENT;
use super::{Claim, Figure, Job, Picture, Verdict, percent, signed};

/// Bytes of keys and values at scale 1, as in the paper's experiments with one store.
const DATA_BYTES: u64 = 40_000_000_000;
/// Placement groups by default.
const GROUPS: u32 = 50;
const PHASES: [&str; 3] = ["before", "during", "after"];

/// The results of one store over the whole trace.
struct Trace {
    way: Way,
    phases: Vec<(Reads, u64)>,
    /// The deletion time of each migrated group.
    deletions: Vec<Duration>,
    /// The time of filling the new groups and deleting the old ones.
    migration: Duration,
    index_deletion: Duration,
}

pub(super) fn run(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    let groups = job.partitions.unwrap_or(GROUPS);
    job.steps(Way::ALL.len() * (PHASES.len() + 1));
    let data_bytes = job.scaled(DATA_BYTES, 1);
    let item_bytes = (KEY_BYTES + VALUE_BYTES) as u64;
    let per_group = (data_bytes / item_bytes / u64::from(groups)).clamp(200, 1 << 30) as u32;
    let live_bytes = u64::from(per_group) * u64::from(groups) * item_bytes;
    let mut traces = Vec::new();
    for way in Way::ALL {
        traces.push(trace(job, way, (groups, per_group), live_bytes)?);
    }
    Ok(vec![reads(&traces, live_bytes), costs(&traces, groups)])
}

/// The number of groups that migrate: a third.
fn migrating(groups: u32) -> u32 {
    groups.div_ceil(3)
}

fn trace(job: &mut Job, way: Way, shape: (u32, u32), live_bytes: u64) -> Result<Trace, Failure> {
    job.step(format!("{}: filling", way.name()));
    let store = ObjectStore::fill(job, way, shape, (live_bytes / 10).max(MEMORY_BYTES_MIN))?;
    let mut dice = Dice::new(job.seed);
    let length = 2 * measured(job);
    let window = |dice: &mut Dice| {
        let started = Instant::now();
        store.read(dice, || started.elapsed() >= length)
    };
    // Fills the cache before the first window.
    window(&mut dice)?;
    job.step(format!("{}: before", way.name()));
    let mut phases = vec![(window(&mut dice)?, store.disk_bytes())];
    job.step(format!("{}: during", way.name()));
    let (during, deletions, migration) = migrate(&store, migrating(shape.0), &mut dice)?;
    phases.push((during, store.disk_bytes()));
    job.step(format!("{}: after", way.name()));
    let index_deletion = store.delete_index(0)?;
    phases.push((window(&mut dice)?, store.disk_bytes()));
    store.check()?;
    store.remove(job)?;
    Ok(Trace { way, phases, deletions, migration, index_deletion })
}

/// Reads while another thread migrates `count` groups; the last round of reads ends after the migration.
fn migrate(
    store: &ObjectStore,
    count: u32,
    dice: &mut Dice,
) -> Result<(Reads, Vec<Duration>, Duration), Failure> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let migration = scope.spawn(|| {
            let started = Instant::now();
            let deletions: Result<Vec<Duration>, Failure> = (0..count).map(|_| store.migrate()).collect();
            is_over.store(true, Ordering::Release);
            deletions.map(|deletions| (deletions, started.elapsed()))
        });
        let reads = store.read(dice, || is_over.load(Ordering::Acquire));
        let (deletions, taken) = migration.join().expect("a thread that migrates does not panic")?;
        Ok((reads?, deletions, taken))
    })
}

/// The change of the rate of gets from the phase before to this one, in percent.
fn change(trace: &Trace, phase: usize) -> f64 {
    percent(trace.phases[phase].0.gets.rate, trace.phases[0].0.gets.rate)
}

fn reads(traces: &[Trace], live_bytes: u64) -> Figure {
    let mut rows = Vec::new();
    for trace in traces {
        for (name, (reads, disk_bytes)) in PHASES.iter().zip(&trace.phases) {
            rows.push(vec![
                format!("{}, {name}", trace.way.name()),
                reads.gets.cell(),
                reads.in_group.cell(),
                reads.over_pool.cell(),
                format!("{} ({:.2})", bytes(*disk_bytes), *disk_bytes as f64 / live_bytes as f64 - 1.0),
            ]);
        }
    }
    let series = |trace: &Trace| Series {
        name: trace.way.name().to_string(),
        points: (1..).zip(&trace.phases).map(|(at, (reads, _))| (f64::from(at), reads.gets.rate)).collect(),
    };
    let picture = Picture::Lines(Chart {
        title: "Gets before (1), during (2) and after (3) a migration".to_string(),
        x: Axis::linear("phase"),
        y: Axis::linear("gets a second"),
        series: traces.iter().map(series).collect(),
    });
    let header = ["phase", "gets", "listings in a group", "listings over the pool", "on disk"];
    Figure {
        name: "trident-fig24",
        title: "A trace of an object store's metadata: a second (p50, p99), and space (amplification)"
            .to_string(),
        header: header.map(str::to_string).to_vec(),
        rows,
        picture,
        claims: read_claims(traces),
    }
}

fn read_claims(traces: &[Trace]) -> Vec<Claim> {
    let [dropped, _, marked] = traces else { return Vec::new() };
    let words = |trace: &Trace| {
        let [during, after] = [1, 2].map(|phase| signed(change(trace, phase)));
        format!("{} {during} and {after}", trace.way.name())
    };
    let listing = |trace: &Trace| trace.phases.iter().map(|(reads, _)| reads.over_pool.p99_ns).max();
    let slowest =
        |trace: &Trace| format!("{} {}", trace.way.name(), nanoseconds(listing(trace).unwrap_or(0)));
    let joined = |words: &dyn Fn(&Trace) -> String| traces.iter().map(words).collect::<Vec<_>>().join(", ");
    vec![
        Claim {
            paper: "random reads of Ceph gain 30 to 60 % and are steady".to_string(),
            ours: "not a cluster: a trace of its metadata's keys".to_string(),
            verdict: Verdict::Untestable,
            reason: "one store against itself shows steadiness and not a gain over RocksDB in Ceph"
                .to_string(),
        },
        Claim {
            paper: "with partitions gets are steady after a migration; without, they fall".to_string(),
            ours: format!("gets during and after: {}", joined(&words)),
            verdict: Verdict::of(change(dropped, 2) > STEADY_PERCENT && change(marked, 2) < STEADY_PERCENT),
            reason: "in all three, new groups are filled by another thread during the migration".to_string(),
        },
        Claim {
            paper: "without partitions scans fall until they time out".to_string(),
            ours: format!("highest p99 of listings over the pool: {}", joined(&slowest)),
            verdict: Verdict::of(listing(marked) > listing(dropped).map(|ns| 10 * ns)),
            reason: "a listing that begins in a deleted group passes its tombstones one by one".to_string(),
        },
    ]
}

fn costs(traces: &[Trace], groups: u32) -> Figure {
    let longest = |trace: &Trace| trace.deletions.iter().max().copied().unwrap_or_default().as_nanos() as u64;
    let mean = |trace: &Trace| {
        let total: Duration = trace.deletions.iter().sum();
        total.as_nanos() as u64 / trace.deletions.len().max(1) as u64
    };
    let row = |trace: &Trace| {
        vec![
            trace.way.name().to_string(),
            trace.deletions.len().to_string(),
            format!("{:.1} s", trace.migration.as_secs_f64()),
            nanoseconds(mean(trace)),
            nanoseconds(longest(trace)),
            nanoseconds(trace.index_deletion.as_nanos() as u64),
        ]
    };
    let words = |trace: &Trace| format!("{} {}", trace.way.name(), nanoseconds(mean(trace)));
    let claims = vec![Claim {
        paper: "the deletion of a partition is immediate".to_string(),
        ours: traces.iter().map(words).collect::<Vec<_>>().join(", "),
        verdict: Verdict::of(
            traces.first().zip(traces.last()).is_some_and(|(first, last)| 5 * mean(first) < mean(last)),
        ),
        reason: "a drop is an edit and two syncs, and waits for no table; other threads write meanwhile"
            .to_string(),
    }];
    let points = |trace: &Trace| {
        (1..).zip(&trace.deletions).map(|(at, taken)| (f64::from(at), taken.as_nanos() as f64)).collect()
    };
    let series = |trace: &Trace| Series { name: trace.way.name().to_string(), points: points(trace) };
    let title = format!("Deletion of a third of {groups} groups, and of the index of one");
    Figure {
        name: "trident-fig24-deletions",
        title: title.clone(),
        header: ["way", "groups", "migration", "deletion, mean", "deletion, longest", "index deletion"]
            .map(str::to_string)
            .to_vec(),
        rows: traces.iter().map(row).collect(),
        picture: Picture::Lines(Chart {
            title,
            x: Axis::linear("group"),
            y: Axis::logarithmic("ns of its deletion"),
            series: traces.iter().map(series).collect(),
        }),
        claims,
    }
}
