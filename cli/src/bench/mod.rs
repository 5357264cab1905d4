//! The command bench: workloads by their names in db_bench, in the order given.

mod check;
mod cost;
mod device;
mod items;
mod measure;
mod partitions;
mod record;
mod report;
mod store;
mod work;

use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use trine::Kind;
use trine_workload::failure::Failure;
use trine_workload::interrupt;
use trine_workload::probe::Device;
use trine_workload::screen::Screen;

use crate::arguments::{self, EngineName, Global, HashedRun, Workload};
use measure::Outcome;
use partitions::PartitionsReport;
use store::Engine;

/// The bench's directory; a temporary directory is removed when this is dropped.
enum Place {
    Given(PathBuf),
    Temporary(TempDir),
}

impl Place {
    fn make(arguments: &arguments::Bench) -> Result<Place, Failure> {
        match &arguments.dir {
            Some(directory) => {
                make_directory(directory)?;
                Ok(Place::Given(directory.clone()))
            }
            None => {
                let directory = tempfile::Builder::new().prefix("trine-bench-").tempdir();
                Ok(Place::Temporary(directory.map_err(|source| {
                    Failure::file("create a directory in", &std::env::temp_dir(), source)
                })?))
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Place::Given(directory) => directory,
            Place::Temporary(directory) => directory.path(),
        }
    }
}

fn make_directory(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|source| Failure::file("create", directory, source))
}

fn stop_if_asked() -> Result<(), Failure> {
    if interrupt::asked() { Err(Failure::Interrupted("stopped".to_string())) } else { Ok(()) }
}

pub(crate) fn run(global: &Global, arguments: arguments::Bench) -> Result<(), Failure> {
    if global.read_only {
        return Err(Failure::Usage("the bench writes; it cannot be --read-only".to_string()));
    }
    let has_partitions = arguments.workloads.contains(&Workload::Partitions);
    if has_partitions && arguments.engine == EngineName::Null {
        return Err(partitions::needs_store());
    }
    if let (Some(_), Some(ordered)) =
        (arguments.hashed, arguments.workloads.iter().find(|one| one.needs_order()))
    {
        let name = ordered.name();
        return Err(Failure::Usage(format!("{name} needs the order of keys, and --hashed has none")));
    }
    interrupt::watch()?;
    let place = Place::make(&arguments)?;
    if let Some(directory) = &arguments.plot {
        make_directory(directory)?;
    }
    let mut results = Results::default();
    let kinds: &[Kind] = match arguments.hashed {
        None => &[Kind::Ordered],
        Some(HashedRun::Alone) => &[Kind::Hashed],
        Some(HashedRun::Beside) => &[Kind::Ordered, Kind::Hashed],
    };
    let mut runs = kinds.iter();
    let ended = runs.try_for_each(|kind| run_steps(global, &arguments, (place.path(), *kind), &mut results));
    // Results from before a failure or Ctrl-C are reported too.
    results.tell(global, &arguments)?;
    ended?;
    let wrong = results.outcomes.iter().filter(|outcome| outcome.record.answers.wrong > 0).count();
    match wrong + results.partitions.iter().filter(|report| report.wrong > 0).count() {
        0 => Ok(()),
        wrong => Err(Failure::Check(wrong)),
    }
}

fn run_steps(
    global: &Global,
    arguments: &arguments::Bench,
    (directory, kind): (&Path, Kind),
    results: &mut Results,
) -> Result<(), Failure> {
    let needs_store = arguments.workloads.iter().any(|workload| *workload != Workload::Device);
    let mut engine = None;
    if needs_store {
        engine = Some(Engine::open(global, arguments, (directory, kind))?);
    }
    for (index, step) in (0..).zip(measure::steps(arguments)) {
        match (step.workload, &mut engine) {
            (Workload::Device, _) => {
                results.order.push(Measured::Device(results.devices.len()));
                results.devices.push(device::measure(arguments, directory)?);
            }
            (Workload::Settle | Workload::Flush | Workload::Compact | Workload::Reopen, Some(engine)) => {
                results.push(measure::maintain(engine, step.workload)?);
            }
            (Workload::Partitions, Some(engine)) => {
                results.order.push(Measured::Partitions(results.partitions.len()));
                results.partitions.push(partitions::measure(engine, arguments)?);
            }
            (_, Some(engine)) => results.push(measure::measure(engine, arguments, step, index)?),
            (_, None) => unreachable!("only device needs no store"),
        }
        stop_if_asked()?;
    }
    match &mut engine {
        Some(engine) => engine.close(),
        None => Ok(()),
    }
}

/// The kind and index of the next result.
enum Measured {
    Device(usize),
    Partitions(usize),
    Outcome(usize),
}

#[derive(Default)]
struct Results {
    order: Vec<Measured>,
    devices: Vec<Device>,
    partitions: Vec<PartitionsReport>,
    outcomes: Vec<Outcome>,
}

impl Results {
    fn push(&mut self, outcome: Outcome) {
        self.order.push(Measured::Outcome(self.outcomes.len()));
        self.outcomes.push(outcome);
    }

    fn tell(&self, global: &Global, arguments: &arguments::Bench) -> Result<(), Failure> {
        if let Some(directory) = &arguments.plot {
            device::plot(&self.devices, directory)?;
            report::plot(&self.outcomes, directory)?;
        }
        if let Some(path) = &arguments.series {
            report::write_series(&self.outcomes, path)?;
        }
        let mut screen = Screen::new();
        if global.json {
            let workload = |measured: &Measured| match measured {
                Measured::Device(index) => self.devices.get(*index).map(device::to_json),
                Measured::Partitions(index) => self.partitions.get(*index).map(partitions::to_json),
                Measured::Outcome(index) => {
                    self.outcomes.get(*index).map(|outcome| report::to_json(outcome, arguments))
                }
            };
            let workloads: Vec<_> = self.order.iter().filter_map(workload).collect();
            let configuration = report::configuration(global, arguments);
            screen.json(&json!({"configuration": configuration, "workloads": workloads}))?;
        } else {
            for device in &self.devices {
                device::print(device, &mut screen)?;
            }
            for report in &self.partitions {
                partitions::print(report, &mut screen)?;
            }
            report::print(&self.outcomes, arguments, &mut screen)?;
        }
        screen.finish()
    }
}
