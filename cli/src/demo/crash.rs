//! The demo's load: a child process that is killed, a check of the reopened store, and a second child that
//! continues.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use indicatif::ProgressBar;
use serde_json::Value;
use trine::Db;
use trine_workload::failure::Failure;
use trine_workload::system;
use trine_workload::{interrupt, progress, text};

use super::Run;
use super::check::Check;
use super::load::{self, Done, Written};
use crate::stats;

/// The number of records checked to be absent after the last one found.
const ABSENT_AFTER: u64 = 1000;

/// The cost of loading and the state after the kill.
pub(crate) struct Load {
    pub(crate) seconds: f64,
    pub(crate) acknowledged_at_kill: u64,
    pub(crate) found: u64,
    pub(crate) was_killed: Killed,
    pub(crate) recovery: Value,
    pub(crate) reopen_ns: u64,
    pub(crate) replayed_items: u64,
    pub(crate) replayed_bytes: u64,
    pub(crate) discarded_bytes: u64,
    pub(crate) done: Done,
    /// The bytes written by all loading processes.
    pub(crate) written: Written,
    pub(crate) disk_bytes: u64,
}

/// Whether the killed process was still loading.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Killed {
    InTheMiddle,
    AtTheEnd,
}

pub(crate) fn load_with_a_kill(run: &Run<'_>, checks: &mut Vec<Check>) -> Result<Load, Failure> {
    let records = run.expectation.records();
    let bar = progress::over_items(records, "loading");
    let started = Instant::now();
    let first = Told::of_child(run, &bar, records / 2)?;
    let mut seconds = started.elapsed().as_secs_f64();
    bar.set_message("killed; reopening");
    let started = Instant::now();
    let db = Db::builder(run.store()).memory_bytes(run.load_memory_bytes).open()?;
    let reopen_ns = started.elapsed().as_nanos() as u64;
    let recovery = db.stats().recovery;
    let found = load::position(&db)?;
    check_prefix(run, &db, first.acknowledged, found, checks)?;
    let mut written = first.written();
    written.add(Written::of(&db.stats().write));
    db.close()?;
    bar.set_message("loading the rest");
    let started = Instant::now();
    let second = Told::of_child(run, &bar, u64::MAX)?;
    seconds += started.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let Some(done) = second.done else {
        return Err(interrupted_or("the loading process ended before its work did".to_string()));
    };
    written.add(done.written);
    Ok(Load {
        seconds,
        acknowledged_at_kill: first.acknowledged,
        found,
        was_killed: if first.done.is_some() { Killed::AtTheEnd } else { Killed::InTheMiddle },
        recovery: stats::recovery_to_json(&recovery),
        reopen_ns,
        replayed_items: recovery.replayed_items,
        replayed_bytes: recovery.replayed_bytes,
        discarded_bytes: recovery.discarded_bytes,
        done,
        written,
        disk_bytes: system::disk_bytes(&run.store()),
    })
}

fn interrupted_or(message: String) -> Failure {
    if interrupt::asked() { Failure::Interrupted("stopped".to_string()) } else { Failure::Other(message) }
}

/// Checks that the store holds a prefix of the records: all acknowledged ones, whole batches, and none after
/// them.
fn check_prefix(
    run: &Run<'_>,
    db: &Db,
    acknowledged: u64,
    found: u64,
    checks: &mut Vec<Check>,
) -> Result<(), Failure> {
    let mut kept = Check::new("acknowledged before the kill, there after it");
    let mut unacknowledged = Check::new("part of a batch without the rest, after the kill");
    let keyspaces = load::keyspaces(db)?;
    let bar = progress::over_items(found, "checking every record");
    kept.verify(found >= acknowledged, || format!("{acknowledged} acknowledged, {found} found"));
    let records = run.sources.records(run.arguments.seed, (found + ABSENT_AFTER).min(run.arguments.records));
    for (index, record) in records.enumerate() {
        let index = index as u64;
        let is_right = keyspaces[record.keyspace].get_with(&record.key, |value| value == record.value)?;
        let name = || text::escaped(&record.key);
        if index < found {
            kept.verify(is_right == Some(true), || format!("record {index}: {}", name()));
        } else {
            unacknowledged.verify(is_right.is_none(), || format!("record {index}: {}", name()));
        }
        if index.is_multiple_of(4096) {
            bar.set_position(index);
            run.stop_if_asked()?;
        }
    }
    bar.finish_and_clear();
    checks.extend([kept, unacknowledged]);
    Ok(())
}

/// The reports of a loading process before it ended.
#[derive(Default)]
struct Told {
    acknowledged: u64,
    last_written: Option<Written>,
    done: Option<Done>,
}

impl Told {
    fn written(&self) -> Written {
        self.done.map(|done| done.written).or(self.last_written).unwrap_or_default()
    }

    /// Runs a loading process and kills it once `kill_at` records are acknowledged.
    fn of_child(run: &Run<'_>, bar: &ProgressBar, kill_at: u64) -> Result<Told, Failure> {
        let mut child = spawn(run)?;
        let told = Told::listen(&mut child, bar, kill_at);
        if told.is_err() {
            // It may have ended by itself; in both cases it has ended after `wait`.
            let _ = child.kill();
        }
        let status =
            child.wait().map_err(|error| Failure::Other(format!("the loading process was lost: {error}")))?;
        let told = told?;
        if kill_at == u64::MAX && !status.success() {
            return Err(interrupted_or(format!("the loading process failed: {status}")));
        }
        Ok(told)
    }

    fn listen(child: &mut Child, bar: &ProgressBar, kill_at: u64) -> Result<Told, Failure> {
        let lost =
            |error: &dyn std::fmt::Display| Failure::Other(format!("the loading process was lost: {error}"));
        let output = child.stdout.take().expect("it was spawned with a pipe");
        let mut told = Told::default();
        let mut is_killed = false;
        for line in BufReader::new(output).lines() {
            let line = line.map_err(|error| lost(&error))?;
            let Some((word, object)) = line.split_once(' ') else { continue };
            // A killed process may leave its last line torn; a record is acknowledged only by a whole line.
            match word {
                "acknowledged" => {
                    told.acknowledged =
                        object.parse().map_or(told.acknowledged, |n: u64| n.max(told.acknowledged))
                }
                "written" => told.last_written = serde_json::from_str(object).ok().or(told.last_written),
                "done" => told.done = serde_json::from_str(object).ok(),
                _ => {}
            }
            bar.set_position(told.acknowledged);
            if interrupt::asked() {
                return Err(Failure::Interrupted("stopped".to_string()));
            }
            if !is_killed && told.acknowledged >= kill_at {
                child.kill().map_err(|error| lost(&error))?;
                is_killed = true;
            }
        }
        Ok(told)
    }
}

fn spawn(run: &Run<'_>) -> Result<Child, Failure> {
    let failed = |error| Failure::Other(format!("could not start the loading process: {error}"));
    let program: PathBuf = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("demo-load").arg(run.store());
    command.arg("--records").arg(run.arguments.records.to_string());
    command.arg("--seed").arg(run.arguments.seed.to_string());
    command.arg("--memory-bytes").arg(run.load_memory_bytes.to_string());
    for root in &run.roots {
        command.arg("--root").arg(root);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command.spawn().map_err(failed)
}
