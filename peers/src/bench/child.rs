//! The child process of `bench`: runs one stage of one store, and prints each row once it is measured.
//!
//! A stage has a process of its own, so that resident memory and processor time are that store's alone.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use trine_workload::keys::Permutation;
use trine_workload::numbering::Numbering;
use xxhash_rust::xxh3::xxh3_64;

use super::drive::{Data, Job, Limit, Ran, Script};
use super::engines::{Contender, Engine, Regime, Sees, Settings, contender};
use super::measure::{self, Moment};
use super::plan::{Group, Plan, Stage};
use super::results::{Failed, Line, Measured};
use super::{
    bounded, cached, cold, flight, keyspaces, limits, loads, mixes, partitions, process, queue, rows, space,
};
use crate::engines::{Answer, Until, told};

/// The folder of all stores, in the given directory; nothing beside the folder is ever removed.
pub(super) const STORES: &str = "peers-bench";

/// Arguments of a child process.
#[derive(Args, Clone, Debug)]
pub(crate) struct ChildOptions {
    pub(super) store: String,
    pub(super) group: Group,
    pub(super) stage: Stage,
    /// The directory of all stores.
    pub(super) directory: PathBuf,
    #[arg(long)]
    pub(super) run: u64,
    #[arg(long)]
    pub(super) scale: f64,
    #[arg(long)]
    pub(super) seconds: f64,
    #[arg(long)]
    pub(super) seed: u64,
    #[arg(long)]
    pub(super) value_bytes: usize,
    /// Keeps a store that no other group reads.
    #[arg(long)]
    pub(super) keep: bool,
    /// A control group that limits memory, page cache included.
    #[arg(long)]
    pub(super) limited: Option<PathBuf>,
}

/// The command `bench-child`.
pub(crate) fn child(options: &ChildOptions) -> Answer<()> {
    if let Some(group) = &options.limited {
        limits::enter(group)?;
    }
    let out = |line| {
        println!("{}", serde_json::to_string(&line).map_err(told)?);
        Ok(())
    };
    stage(options, &out).or_else(|why: String| {
        let (group, store) = (options.group.name(), options.store.clone());
        out(Line::Failed(Failed { run: options.run, group, store, why: why.clone() }))?;
        Err(why)
    })
}

/// Runs a stage, and gives each row to `out`.
pub(super) fn stage(options: &ChildOptions, out: &dyn Fn(Line) -> Answer<()>) -> Answer<()> {
    let child = Child {
        options,
        out,
        contender: contender(&options.store)?,
        plan: Plan { scale: options.scale, value_bytes: options.value_bytes },
        time: Duration::from_secs_f64(options.seconds),
    };
    match options.stage {
        Stage::Load => loads::load(&child),
        Stage::EnsureBig => loads::ensure(&child, loads::BIG, child.plan.big_items()),
        Stage::Cold => cold::cold(&child),
        Stage::ReopenWrite => cold::reopen_write(&child),
        Stage::Reopen => cold::reopen(&child),
        Stage::Fill => loads::fill(&child),
        Stage::MakeSmall => loads::make(&child, loads::SMALL, child.plan.small_items()),
        Stage::EnsureSmall => loads::ensure(&child, loads::SMALL, child.plan.small_items()),
        Stage::Cached => cached::cached(&child),
        Stage::Beside => cached::beside(&child),
        Stage::Mixgraph => mixes::mixgraph(&child),
        Stage::Queue => queue::queue(&child),
        Stage::Synced => mixes::synced(&child),
        Stage::YcsbLoad => mixes::ycsb_load(&child),
        Stage::Ycsb => mixes::ycsb(&child),
        Stage::Space => space::space(&child),
        Stage::Flight | Stage::FlightHalf => flight::flight(&child),
        Stage::EnsureSizes => loads::ensure(&child, &flight::sized(&child), child.plan.sizes_items()),
        Stage::Sizes | Stage::SizesHalf => flight::sizes(&child),
        Stage::KeyspacesOne
        | Stage::KeyspacesSome
        | Stage::KeyspacesMany
        | Stage::KeyspacesReopen
        | Stage::KeyspacesReopenLarger
        | Stage::KeyspacesReopenLarge => keyspaces::keyspaces(&child),
        Stage::PartitionsOne
        | Stage::PartitionsSome
        | Stage::PartitionsMany
        | Stage::PartitionsMemory
        | Stage::PartitionsDrop
        | Stage::PartitionsDropMany
        | Stage::PartitionsBusy
        | Stage::PartitionsNine => partitions::partitions(&child),
    }
}

/// One stage of one store.
pub(super) struct Child<'a> {
    pub(super) options: &'a ChildOptions,
    out: &'a dyn Fn(Line) -> Answer<()>,
    pub(super) contender: Contender,
    pub(super) plan: Plan,
    /// The duration of a row that ends by the clock.
    pub(super) time: Duration,
}

impl Child<'_> {
    /// The path of the store with this name.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.options.directory.join(STORES).join(self.contender.name).join(name)
    }

    /// Removes a store and its `made` file.
    pub(super) fn remove(&self, name: &str) -> Answer<()> {
        let remove = |path: PathBuf| match std::fs::symlink_metadata(&path) {
            Ok(about) if about.is_dir() => std::fs::remove_dir_all(path),
            Ok(_) => std::fs::remove_file(path),
            Err(_) => Ok(()),
        };
        remove(self.made(name)).map_err(told)?;
        remove(self.path(name)).map_err(told)
    }

    /// The path of the file that records the parameters of a store's making.
    pub(super) fn made(&self, name: &str) -> PathBuf {
        self.path(name).with_extension("made")
    }

    pub(super) fn settings(&self, regime: Regime, until: Until) -> Settings {
        let memory_bytes = self.options.stage.memory_bytes(self.plan);
        Settings { memory_bytes, until, regime, value_bytes: self.plan.value_bytes }
    }

    pub(super) fn open(&self, name: &str, regime: Regime) -> Answer<Box<dyn Engine>> {
        self.open_until(name, regime, Until::Buffered)
    }

    pub(super) fn open_until(&self, name: &str, regime: Regime, until: Until) -> Answer<Box<dyn Engine>> {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(told)?;
        (self.contender.open)(&path, &self.settings(regime, until))
    }

    /// Items in random order, the first `count` of which are in the store.
    pub(super) fn data(&self, count: u64, bound: u64) -> Data {
        let order = Permutation::new(bound, self.options.seed);
        Data { count, is_dense: count == bound, ..self.empty(Numbering::Random(order)) }
    }

    /// Data without items yet, in an unbounded numbering.
    pub(super) fn empty(&self, numbering: Numbering) -> Data {
        Data { numbering, count: 0, is_dense: false, value_bytes: self.plan.value_bytes }
    }

    /// The seed of a row: different for each row and run, the same for every store.
    pub(super) fn seed(&self, row: &str) -> u64 {
        xxh3_64(row.as_bytes()) ^ self.options.seed ^ self.options.run << 48
    }

    /// A row of one thread, which ends by the clock, without writers.
    pub(super) fn job<'e>(&self, engine: &'e dyn Engine, row: &str, script: Script, data: &Data) -> Job<'e> {
        Job {
            name: format!("{} {row}", self.contender.name),
            engine,
            batch: if script.is_batched() { self.contender.batch } else { 1 },
            script,
            data: data.clone(),
            chooser: None,
            sees: Sees::Still,
            threads: 1,
            limit: Limit::time(self.time),
            seed: self.seed(row),
            beside: None,
        }
    }

    /// Runs a row, without reporting it.
    pub(super) fn run(&self, job: &Job<'_>) -> Answer<(Measured, Ran)> {
        let (mut measured, ran) = measure::run(job)?;
        measured.operations_a_latency = match job.script {
            Script::MultiGet { keys } => keys,
            _ => job.batch,
        };
        let is_together = matches!(job.script, Script::MultiGet { .. });
        let has_read = measured.kernel_reads.is_some_and(|reads| reads > 0.1);
        measured.remarks.extend(job.engine.lacks(is_together && has_read));
        Ok((measured, ran))
    }

    /// Runs a job that no row reports, to prepare a store. A wrong answer ends the stage.
    pub(super) fn prepare(&self, job: &Job<'_>) -> Answer<()> {
        let (measured, _) = self.run(job)?;
        match measured.first_wrong {
            Some(first) => Err(format!("{}: {} wrong answers: {first}", job.name, measured.wrong)),
            None => Ok(()),
        }
    }

    /// Waits until background work is finished; returns the seconds that it took.
    pub(super) fn settle(&self, engine: &dyn Engine) -> Answer<f64> {
        let started = Instant::now();
        engine.settle()?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Runs a row, without reporting it, and settles if the row wrote.
    pub(super) fn run_settled(&self, job: &Job<'_>) -> Answer<(Measured, Ran)> {
        let before = Moment::now(job.engine.counts());
        let (mut measured, ran) = self.run(job)?;
        if ran.put_bytes > 0 {
            self.settle_puts(job.engine, &mut measured, &before, ran.put_bytes)?;
        }
        Ok((measured, ran))
    }

    /// Settles after puts of `bytes` of keys and values, and records the cost of both.
    pub(super) fn settle_puts(
        &self,
        engine: &dyn Engine,
        measured: &mut Measured,
        before: &Moment,
        bytes: u64,
    ) -> Answer<()> {
        measured.more.insert(rows::SETTLE_S.to_owned(), self.settle(engine)?);
        measure::amplified(measured, before, &Moment::now(engine.counts()), bytes);
        Ok(())
    }

    /// Bytes on disk of a store: of its tables, and of all its files.
    pub(super) fn disk_bytes(&self, path: &Path) -> Answer<Option<(u64, u64)>> {
        let Some(peer) = self.contender.peer() else { return Ok(None) };
        let bytes = process::disk_bytes(path, peer.class)?;
        Ok(Some((bytes.get(self.contender.tables).copied().unwrap_or(0), bytes.values().sum())))
    }

    /// Reports the current step, for the case that the process is killed.
    pub(super) fn doing(&self, what: String) -> Answer<()> {
        (self.out)(Line::Doing(what))
    }

    /// Reports a row of the store with this name.
    pub(super) fn tell(&self, row: &str, name: &str, mut measured: Measured) -> Answer<()> {
        measured.run = self.options.run;
        measured.group = self.options.group.name();
        measured.row = row.to_owned();
        measured.store = self.contender.name.to_owned();
        measured.item_bytes = self.plan.bytes(1);
        measured.memory_bytes = self.options.stage.memory_bytes(self.plan);
        measured.disk_bytes = self.disk_bytes(&self.path(name))?.map(|(_, all)| all);
        // For thousands of files and folders, the kernel is not asked about each one's page cache.
        let has_few_files = bounded::rows_of(self.options.stage).is_empty();
        let page_cache = has_few_files.then(|| process::page_cache_bytes(&self.path(name))).flatten();
        if let Some(bytes) = page_cache {
            measured.more.insert(rows::PAGE_CACHE_MIB.to_owned(), bytes as f64 / f64::from(1 << 20));
        }
        let is_held = !self.contender.uses_page_cache || self.options.limited.is_some();
        if self.options.stage.is_cold() && !is_held {
            measured.remarks.push(rows::NOT_HELD.to_owned());
        }
        (self.out)(Line::Measured(Box::new(measured)))
    }
}
