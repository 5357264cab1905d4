//! Measures one workload: starts its threads, samples them once a second, and adds them up.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use trine::Db;
use trine_workload::distribution::{Chooser, Distribution};
use trine_workload::failure::Failure;
use trine_workload::mixgraph::Mixgraph;
use trine_workload::progress;

use super::cost::{Cost, Moment};
use super::items::{Family, Items, Order};
use super::record::{Kind, Record, Second};
use super::store::{Engine, Target};
use super::work::{self, Job, Role, Script, Shared};
use crate::arguments::{Bench, Workload};

/// The interval between two looks at the threads.
const LOOK: Duration = Duration::from_millis(50);

/// A second of a workload, with the store's counters at its end.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) second: Second,
    pub(super) device_reads: Option<u64>,
    pub(super) pressure: Option<u64>,
}

/// The result of a measurement.
pub(super) struct Outcome {
    pub(super) workload: Workload,
    pub(super) kind: trine::Kind,
    /// Items in the store at the end.
    pub(super) loaded: u64,
    pub(super) key_bytes: usize,
    /// Of all items of the bench in the store.
    pub(super) live_bytes: Option<u64>,
    pub(super) distribution: Option<Distribution>,
    pub(super) threads: u64,
    /// Operations measured by one latency.
    pub(super) batch: u64,
    pub(super) record: Record,
    pub(super) latency: Histogram<u64>,
    /// The record of the additional writer thread, if there is one.
    pub(super) writer: Option<Record>,
    pub(super) cost: Cost,
    pub(super) rows: Vec<Row>,
    /// Whether no flush or merge was due.
    pub(super) is_settled: bool,
}

impl Outcome {
    /// The workload's name, with a suffix for a hashed keyspace.
    pub(super) fn name(&self) -> String {
        let hashed = if self.kind == trine::Kind::Hashed { ", hashed" } else { "" };
        format!("{}{hashed}", self.workload.name())
    }

    pub(super) fn a_second(&self) -> f64 {
        self.record.operations as f64 / self.cost.seconds.max(1e-9)
    }
}

/// A step of the run: a workload, and for a staged load its stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) workload: Workload,
    pub(super) stage: Option<Stage>,
}

/// A part of a staged load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stage {
    pub(super) is_first: bool,
    pub(super) end: u64,
}

/// The steps of all workloads. Each stage of a staged load is followed by the reads that follow the load.
pub(super) fn steps(arguments: &Bench) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = arguments.workloads.as_slice();
    while let Some((&workload, after)) = rest.split_first() {
        rest = after;
        let is_load = matches!(workload, Workload::Fillseq | Workload::Fillrandom);
        let Some(every) = arguments.stage_every.filter(|_| is_load) else {
            steps.push(Step { workload, stage: None });
            continue;
        };
        let follows = |workload: &Workload| workload.is_read() || *workload == Workload::Settle;
        let (reads, after) = rest.split_at(rest.iter().take_while(|one| follows(one)).count());
        rest = after;
        let mut start = 0;
        while start < arguments.items {
            let end = start.saturating_add(every).min(arguments.items);
            steps.push(Step { workload, stage: Some(Stage { is_first: start == 0, end }) });
            steps.extend(reads.iter().map(|&workload| Step { workload, stage: None }));
            start = end;
        }
    }
    steps
}

/// Runs a workload; `index` is its number in the run, so that no two draw the same items.
pub(super) fn measure(
    engine: &mut Engine<'_>,
    arguments: &Bench,
    step: Step,
    index: u64,
) -> Result<Outcome, Failure> {
    let workload = step.workload;
    let family = family_of(workload);
    let items = begun(engine, step, family)?;
    let script = script_of(workload, arguments, &items)?;
    let distribution = distribution_of(&script, arguments);
    foresee(engine, arguments, &script, family)?;
    let target = engine.target(family)?;
    let job = job_of(arguments, step, index, Prepared { script, target, items });
    let before = Moment::now(engine.db());
    let ran = run(&job, engine.db(), workload.name())?;
    let cost = Cost { seconds: ran.seconds, ..Cost::since(&before, engine) };
    let is_settled = engine.db().is_none_or(|db| {
        let stats = db.stats();
        stats.write.pressure == 0 && stats.background.sealed == 0
    });
    remember(engine, &ran, family)?;
    let after = engine.state.of(family).expect("it is still there");
    Ok(Outcome {
        workload,
        kind: engine.kind,
        loaded: after.count,
        key_bytes: after.key_bytes,
        live_bytes: engine.state.live_bytes(),
        distribution,
        threads: job.threads,
        batch: latency_batch(&job),
        latency: ran.record.latency()?,
        record: ran.record,
        writer: ran.writer,
        cost,
        rows: ran.rows,
        is_settled,
    })
}

/// The items of the workload; a load that begins has none yet.
fn begun(engine: &mut Engine<'_>, step: Step, family: Family) -> Result<Items, Failure> {
    let Some(order) = load_order(step.workload) else {
        return engine.items(family, step.workload.name()).cloned();
    };
    if step.stage.is_none_or(|stage| stage.is_first) {
        engine.begin(family, order)?;
    }
    Ok(engine.state.of(family).expect("the load began it").clone())
}

struct Prepared {
    script: Script,
    target: Target,
    items: Items,
}

fn job_of(arguments: &Bench, step: Step, index: u64, prepared: Prepared) -> Job {
    let Prepared { script, target, items } = prepared;
    let is_load = matches!(script, Script::Load);
    let load_end = step.stage.map_or(items.bound, |stage| stage.end);
    let operations = match (arguments.operations, arguments.seconds) {
        _ if is_load => load_end - items.count,
        (Some(operations), _) => operations,
        (None, Some(_)) => u64::MAX,
        (None, None) => items.count,
    };
    let distribution = distribution_of(&script, arguments).unwrap_or(Distribution::Uniform);
    let writer = arguments.writes_a_second.unwrap_or(0);
    Job {
        chooser: (!is_load).then(|| Chooser::new(distribution, items.count, items.seed ^ 0x5eed)),
        script,
        target,
        shape: items.shape(),
        numbering: items.numbering(),
        count: items.count,
        whole: items.is_whole().then_some(items.count),
        has_gaps: items.has_gaps,
        load_end,
        value_bytes: arguments.value_bytes as usize,
        batch: arguments.batch,
        threads: u64::from(arguments.threads),
        operations,
        time: arguments.seconds.map(Duration::from_secs),
        seed: arguments.seed ^ index << 20,
        writer: (step.workload == Workload::Readwhilewriting).then_some(writer),
        wants_seconds: arguments.series.is_some() || arguments.plot.is_some(),
    }
}

fn family_of(workload: Workload) -> Family {
    match workload {
        Workload::YcsbLoad | Workload::Ycsb(_) => Family::Ycsb,
        _ => Family::Main,
    }
}

fn load_order(workload: Workload) -> Option<Order> {
    match workload {
        Workload::Fillseq => Some(Order::Sequential),
        Workload::Fillrandom => Some(Order::Random),
        Workload::YcsbLoad => Some(Order::Scattered),
        _ => None,
    }
}

fn script_of(workload: Workload, arguments: &Bench, items: &Items) -> Result<Script, Failure> {
    Ok(match workload {
        Workload::Fillseq | Workload::Fillrandom | Workload::YcsbLoad => Script::Load,
        Workload::Overwrite => Script::Overwrite,
        Workload::Deleterandom => Script::Delete,
        Workload::Readseq => Script::ReadAll,
        Workload::Readrandom | Workload::Readwhilewriting => Script::Get,
        Workload::Readmissing => Script::GetMissing,
        Workload::Multireadrandom => Script::MultiGet { keys: u64::from(arguments.multi_keys) },
        Workload::Seekrandom => Script::Scan { items: arguments.scan_items },
        Workload::Mixgraph if items.order == Order::Random && items.count < items.bound => {
            let (count, bound) = (items.count, items.bound);
            let message = format!("mixgraph needs a whole load, and {count} of {bound} items are in");
            return Err(Failure::Usage(message));
        }
        Workload::Mixgraph => Script::Mixgraph(Mixgraph::new(items.count, items.seed)),
        Workload::Ycsb(core) => Script::Ycsb(core),
        Workload::Settle
        | Workload::Flush
        | Workload::Compact
        | Workload::Reopen
        | Workload::Device
        | Workload::Partitions => {
            unreachable!("these have no threads of their own")
        }
    })
}

/// The distribution of chosen items; `None` if the workload decides it.
fn distribution_of(script: &Script, arguments: &Bench) -> Option<Distribution> {
    match script {
        Script::Load | Script::ReadAll | Script::Mixgraph(_) => None,
        Script::Ycsb(core) => Some(arguments.distribution.unwrap_or_else(|| core.distribution())),
        _ => Some(arguments.distribution.unwrap_or(Distribution::Uniform)),
    }
}

/// Updates the recorded state before a workload begins, so that it is not wrong if the workload ends early.
fn foresee(
    engine: &mut Engine<'_>,
    arguments: &Bench,
    script: &Script,
    family: Family,
) -> Result<(), Failure> {
    let Some(items) = engine.state.of_mut(family).as_mut() else { return Ok(()) };
    match script {
        Script::Delete => {
            items.has_gaps = true;
            items.live_bytes = None;
        }
        Script::Mixgraph(_) => items.live_bytes = None,
        // Overwritten values may have another length.
        _ if arguments.value_bytes != items.value_bytes => items.live_bytes = None,
        _ => return Ok(()),
    }
    engine.save()
}

/// Records the items that are in the store now.
fn remember(engine: &mut Engine<'_>, ran: &Ran, family: Family) -> Result<(), Failure> {
    let items = engine.state.of_mut(family).as_mut().expect("it is there");
    if ran.count == items.count {
        return Ok(());
    }
    items.count = ran.count;
    items.live_bytes = items.live_bytes.map(|bytes| bytes + ran.record.new_bytes);
    items.bound = items.bound.max(ran.count);
    engine.save()
}

fn latency_batch(job: &Job) -> u64 {
    match job.script {
        Script::Load | Script::Overwrite | Script::Delete => u64::from(job.batch),
        Script::ReadAll => work::READ_CHUNK,
        Script::MultiGet { keys } => keys,
        _ => 1,
    }
}

/// The results of the threads.
struct Ran {
    record: Record,
    writer: Option<Record>,
    seconds: f64,
    /// Items in the store.
    count: u64,
    rows: Vec<Row>,
}

fn run(job: &Job, db: Option<&Db>, name: &'static str) -> Result<Ran, Failure> {
    let bar = match (job.operations, job.time) {
        (u64::MAX, Some(time)) => progress::over_seconds(time.as_secs(), name),
        _ => progress::over_items(job.operations, name),
    };
    let shared = Shared::new(job);
    let sample = || db.map(Db::stats).map(|stats| (stats.io.device_reads, stats.write.pressure));
    let mut samples = vec![sample()];
    let (record, writer, seconds) = std::thread::scope(|scope| {
        let shared = &shared;
        let beside =
            job.writer.is_some().then(|| scope.spawn(|| work::run(job, shared, job.threads, Role::Beside)));
        let threads: Vec<_> = (0..job.threads)
            .map(|thread| scope.spawn(move || work::run(job, shared, thread, Role::Measured)))
            .collect();
        let mut next = Instant::now() + Duration::from_secs(1);
        while shared.running.load(Ordering::Acquire) > 0 && !threads.iter().all(|thread| thread.is_finished())
        {
            std::thread::park_timeout(LOOK);
            match job.operations {
                u64::MAX => bar.set_position(shared.started.elapsed().as_secs()),
                _ => bar.set_position(shared.done.load(Ordering::Relaxed)),
            }
            if Instant::now() >= next && job.wants_seconds {
                samples.push(sample());
                next += Duration::from_secs(1);
            }
        }
        let seconds = shared.started.elapsed().as_secs_f64();
        let mut all = Record::new();
        for thread in threads {
            all.add(thread.join().expect("its own failures are errors")?)?;
        }
        let writer = beside.map(|thread| thread.join().expect("its own failures are errors")).transpose()?;
        Ok::<_, Failure>((all, writer, seconds))
    })?;
    bar.finish_and_clear();
    let rows = shared.seconds.as_ref().map_or(Vec::new(), |seconds| rows(seconds.all(), &samples));
    Ok(Ran { record, writer, seconds, count: shared.count(), rows })
}

/// Joins the threads' results of each second with the store's counters before and after it.
fn rows(seconds: Vec<Second>, samples: &[Option<(u64, u64)>]) -> Vec<Row> {
    let at = |second: u64| samples.get(usize::try_from(second).ok()?).copied().flatten();
    let row = |second: Second| {
        let both = at(second.second).zip(at(second.second + 1));
        Row {
            device_reads: both.map(|((before, _), (after, _))| after.saturating_sub(before)),
            pressure: both.map(|(_, (_, pressure))| pressure),
            second,
        }
    };
    seconds.into_iter().map(row).collect()
}

/// Work between two workloads, timed as one operation.
pub(super) fn maintain(engine: &mut Engine<'_>, workload: Workload) -> Result<Outcome, Failure> {
    let before = Moment::now(engine.db());
    let bar = progress::endless();
    bar.set_message(workload.name());
    bar.tick();
    match (workload, engine.db()) {
        (Workload::Settle, Some(db)) => db.settle()?,
        (Workload::Flush, Some(db)) => db.flush()?,
        (Workload::Compact, Some(db)) => db.compact()?,
        (Workload::Reopen, Some(_)) => engine.reopen()?,
        _ => {}
    }
    bar.finish_and_clear();
    let cost = Cost::since(&before, engine);
    let items = engine.state.of(Family::Main).or(engine.state.of(Family::Ycsb));
    let mut record = Record::new();
    record.take(Kind::Maintenance, 1, (cost.seconds * 1e9) as u64)?;
    Ok(Outcome {
        workload,
        kind: engine.kind,
        loaded: items.map_or(0, |items| items.count),
        key_bytes: items.map_or(0, |items| items.key_bytes),
        live_bytes: engine.state.live_bytes(),
        distribution: None,
        threads: 1,
        batch: 1,
        latency: record.latency()?,
        record,
        writer: None,
        cost,
        rows: Vec::new(),
        is_settled: true,
    })
}
