//! The command demo: tries the store on real records, with a kill and a check of every answer.
//!
//! The sequence: make the expectation; load in a child that is killed, reopen and check, load the rest;
//! reopen with little memory; scan, get, miss, range, prefix, snapshot, trace; reopen with much memory, get;
//! report. Exit code 1 if any check failed.

mod check;
mod crash;
mod expectation;
pub(crate) mod load;
mod meter;
mod reads;
mod records;
mod report;

use std::path::PathBuf;
use std::time::Instant;

use tempfile::TempDir;
use trine::Db;
use trine_workload::failure::Failure;
use trine_workload::{interrupt, progress, system};

use crate::arguments::{self, Global};
use check::Check;
use expectation::Expectation;
use meter::Cost;
use reads::{Reads, Scan};
use records::Sources;
use report::Report;

/// Memory of the loading processes: little enough that they flush and merge.
const LOAD_MEMORY_BYTES: u64 = 64 << 20;

/// Memory of the reading process: the least of a store.
const READ_MEMORY_BYTES: u64 = 32 << 20;

/// Memory for the last reads: more than the records need.
const WARM_MEMORY_BYTES: u64 = 256 << 20;

/// The context of every part of the demo.
pub(crate) struct Run<'a> {
    arguments: &'a arguments::Demo,
    directory: PathBuf,
    roots: Vec<PathBuf>,
    sources: Sources,
    expectation: Expectation,
    load_memory_bytes: u64,
    read_memory_bytes: u64,
}

impl Run<'_> {
    /// The store's directory.
    fn store(&self) -> PathBuf {
        self.directory.join("store")
    }

    fn stop_if_asked(&self) -> Result<(), Failure> {
        if interrupt::asked() { Err(Failure::Interrupted("stopped".to_string())) } else { Ok(()) }
    }
}

/// The demo's directory; a temporary directory is removed when this is dropped.
enum Place {
    Given(PathBuf),
    Temporary(TempDir),
}

impl Place {
    fn make(arguments: &arguments::Demo) -> Result<Place, Failure> {
        let Some(directory) = &arguments.dir else {
            let mut builder = tempfile::Builder::new();
            builder.prefix("trine-demo-").disable_cleanup(arguments.keep);
            let directory = builder.tempdir();
            return Ok(Place::Temporary(
                directory.map_err(|source| {
                    Failure::file("create a directory in", &std::env::temp_dir(), source)
                })?,
            ));
        };
        std::fs::create_dir_all(directory).map_err(|source| Failure::file("create", directory, source))?;
        let mut entries =
            std::fs::read_dir(directory).map_err(|source| Failure::file("read", directory, source))?;
        match entries.next() {
            Some(_) => Err(Failure::Usage(format!(
                "{} is not empty; give --dir a new directory",
                trine_workload::text::path(directory)
            ))),
            None => Ok(Place::Given(directory.clone())),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Place::Given(directory) => directory.clone(),
            Place::Temporary(directory) => directory.path().to_path_buf(),
        }
    }
}

pub(crate) fn run(global: &Global, arguments: arguments::Demo) -> Result<(), Failure> {
    let started = Instant::now();
    interrupt::watch()?;
    let place = Place::make(&arguments)?;
    let roots = if arguments.generate { Vec::new() } else { records::find_roots() };
    let sources = Sources::find(&roots, arguments.seed);
    let bar = progress::endless();
    bar.set_message("making the records");
    bar.tick();
    let expectation = Expectation::new(&sources, arguments.seed, arguments.records)?;
    bar.finish_and_clear();
    let run = Run {
        directory: place.path(),
        roots,
        sources,
        expectation,
        load_memory_bytes: LOAD_MEMORY_BYTES,
        read_memory_bytes: global.memory.unwrap_or(READ_MEMORY_BYTES),
        arguments: &arguments,
    };
    let mut checks = Vec::new();
    let load = crash::load_with_a_kill(&run, &mut checks)?;
    let reads = read(&run, &mut checks)?;
    let report = Report { run: &run, load, reads, checks, seconds: started.elapsed().as_secs_f64() };
    if global.json {
        report.print_json()?
    } else {
        report.print()?
    }
    match report.failed_count() {
        0 => Ok(()),
        failed => Err(Failure::Check(failed)),
    }
}

/// The cost of reading.
pub(crate) struct ReadReport {
    costs: Vec<Cost>,
    scans: Vec<Scan>,
    trace: trine::Trace,
    stats: trine::Stats,
    resident_before_bytes: Option<u64>,
    resident_bytes: Option<u64>,
}

fn read(run: &Run<'_>, checks: &mut Vec<Check>) -> Result<ReadReport, Failure> {
    let resident_before_bytes = system::resident_bytes();
    let db = Db::builder(run.store()).memory_bytes(run.read_memory_bytes).open()?;
    let mut reads = Reads::new(run, &db)?;
    reads.scan_all()?;
    // Before any write, so that the traced item is in a table.
    let trace = reads.trace()?;
    let bar = progress::endless();
    for (what, phase) in phases() {
        bar.set_message(what);
        bar.tick();
        phase(&mut reads)?;
    }
    let Reads { checks: read_checks, mut costs, scans, .. } = reads;
    checks.extend(read_checks);
    let (stats, resident_bytes) = (db.stats(), system::resident_bytes());
    db.close()?;
    let db = Db::builder(run.store()).memory_bytes(WARM_MEMORY_BYTES).open()?;
    let mut reads = Reads::new(run, &db)?;
    bar.set_message("getting present keys with much memory");
    reads.warm_gets()?;
    bar.finish_and_clear();
    costs.extend(reads.costs);
    checks.extend(reads.checks);
    db.close()?;
    Ok(ReadReport { costs, scans, trace, stats, resident_before_bytes, resident_bytes })
}

type Phase<'a> = fn(&mut Reads<'a>) -> Result<(), Failure>;

/// In this order, because the phases that change the store come last.
fn phases<'a>() -> [(&'static str, Phase<'a>); 5] {
    [
        ("getting present keys", Reads::gets),
        ("getting absent keys", Reads::misses),
        ("reading short ranges", Reads::ranges),
        ("counting words", Reads::prefixes),
        ("overwriting under a snapshot", Reads::snapshot),
    ]
}
