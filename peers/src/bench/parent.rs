//! The command `bench`: starts a child for each stage of the groups, store by store in turns, and keeps the
//! rows that they report.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use super::child::STORES;
use super::device::{self, calibrate};
use super::engines::{Contender, contender, contenders};
use super::limits::Limited;
use super::plan::{Group, Plan, Stage};
use super::results::{Begun, Failed, Line, Measured, Sink, Store};
use super::{bounded, page, table};
use crate::engines::{Answer, told};
use crate::machine;

/// The pause, at full scale, between large writes and rows that read the device: the device is slow for some
/// seconds after them.
const REST: Duration = Duration::from_secs(10);

/// Options of `bench`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Only these stores; by default all stores of this build, and `null`.
    #[arg(long)]
    store: Vec<String>,
    /// Only these groups of rows.
    #[arg(long)]
    only: Vec<Group>,
    #[arg(long, default_value_t = 3)]
    runs: u64,
    /// Scale of items and memory together, and of the ten seconds that the device rests after its calibration
    /// and before rows that read it.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Seconds of a row that ends by the clock; rows of mixed requests take twice as long.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Directory of the stores, 30 GB of them at full scale; by default a temporary directory.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// File to which each row is appended once it is measured, for `results`.
    #[arg(long)]
    json: Option<PathBuf>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keeps the stores, for groups that read the stores of other groups.
    #[arg(long)]
    keep: bool,
}

impl Options {
    /// The command line, without paths of this machine.
    fn told(&self) -> String {
        let mut words = vec!["peers bench".to_owned()];
        words.extend(self.store.iter().map(|store| format!("--store {store}")));
        words.extend(self.only.iter().map(|group| format!("--only {}", group.name())));
        words.push(format!("--runs {} --seconds {}", self.runs, self.seconds));
        words.join(" ")
    }
}

/// The command `bench`.
pub(crate) fn run(options: &Options) -> Answer<()> {
    let stores = if options.store.is_empty() {
        contenders()
    } else {
        options.store.iter().map(|name| contender(name)).collect::<Answer<Vec<Contender>>>()?
    };
    let groups = if options.only.is_empty() { Group::all().to_vec() } else { options.only.clone() };
    let temporary;
    let directory = match &options.dir {
        Some(directory) => {
            std::fs::create_dir_all(directory).map_err(told)?;
            directory.as_path()
        }
        None => {
            temporary = tempfile::Builder::new().prefix("peers-bench-").tempdir().map_err(told)?;
            temporary.path()
        }
    };
    let mut bench = Bench { options, directory, sink: Sink::new(options.json.as_deref())? };
    bench.begin(&stores)?;
    for run in 1..=options.runs {
        bench.calibrate(run, false)?;
        for group in &groups {
            for value_bytes in group.value_sizes() {
                let plan = Plan { value_bytes, ..Plan::new(options.scale) };
                for store in turn(&stores, run) {
                    bench.group(run, *group, plan, store)?;
                }
            }
        }
        bench.calibrate(run, true)?;
        if !options.keep {
            bench.remove_stores()?;
        }
    }
    println!("{}", table::tables(&bench.sink.lines));
    Ok(())
}

/// The command `show`: prints the tables of measurements, also of a run that did not finish.
pub(crate) fn show(results: &[PathBuf]) -> Answer<()> {
    println!("{}", table::tables(&page::read(results)?));
    Ok(())
}

/// The stores in the order of a run: each run begins with another store.
fn turn(stores: &[Contender], run: u64) -> impl Iterator<Item = &Contender> {
    let first = usize::try_from(run - 1).unwrap_or(0) % stores.len().max(1);
    stores[first..].iter().chain(&stores[..first])
}

struct Bench<'a> {
    options: &'a Options,
    directory: &'a Path,
    sink: Sink,
}

impl Bench<'_> {
    fn begin(&mut self, stores: &[Contender]) -> Answer<()> {
        let mut remarks = Vec::new();
        let plan = Plan::new(self.options.scale);
        if !plan.keeps_ratios() {
            remarks
                .push("at this scale some rows have more memory for their data than they should".to_owned());
        }
        if let Err(why) = Limited::new(1 << 30) {
            remarks.push(format!("the page cache of cold rows is not held to their memory: {why}"));
        }
        if let Err(why) = super::process::drop_page_cache() {
            remarks.push(why);
        }
        let machine = machine::about();
        let store = |one: &Contender| Store {
            name: one.name.to_owned(),
            label: one.label.to_owned(),
            versions: one.versions(),
            settings: one.settings.to_owned(),
        };
        remarks.iter().for_each(|remark| eprintln!("{remark}"));
        self.sink.push(Line::Begun(Begun {
            date: machine.date,
            machine: machine.machine,
            command: self.options.told(),
            seed: self.options.seed,
            scale: self.options.scale,
            stores: stores.iter().map(store).collect(),
            remarks,
        }))
    }

    fn calibrate(&mut self, run: u64, is_after: bool) -> Answer<()> {
        let (scale, seed) = (self.options.scale, self.options.seed);
        eprintln!("run {run} of {}: the device", self.options.runs);
        let after = calibrate(self.directory, scale, seed, run, is_after)?;
        let is_before = |line: &&Line| matches!(line, Line::Device(one) if one.run == run && !one.is_after);
        if let Some(Line::Device(before)) = self.sink.lines.iter().rev().find(is_before) {
            let moved = device::moved(before, &after);
            if is_after && !moved.is_empty() {
                eprintln!("run {run}: the device MOVED: {}", moved.join(", "));
            }
        }
        if !is_after {
            self.rest();
        }
        self.sink.push(Line::Device(after))
    }

    fn rest(&self) {
        std::thread::sleep(REST.mul_f64(self.options.scale.clamp(0.0, 1.0)));
    }

    /// Runs the stages of a group for one size of values; a failed stage ends the group for its store.
    fn group(&mut self, run: u64, group: Group, plan: Plan, store: &Contender) -> Answer<()> {
        if group.needs_order() && !store.has_order {
            return Ok(());
        }
        for stage in group.stages() {
            if !bounded::rows_of(*stage).is_empty() {
                if bounded::has(store, group) {
                    self.bounded(run, group, *stage, plan, store)?;
                }
                continue;
            }
            if stage.is_rested() {
                self.rest();
            }
            let what = format!("{}, values of {} B", stage.name(), plan.value_bytes);
            eprintln!("run {run} of {}: {what}, {}", self.options.runs, store.name);
            if let Err(why) = self.stage(run, group, *stage, plan, store) {
                let why = format!("{what}: {why}");
                eprintln!("    FAILED: {why}");
                let failed = Failed { run, group: group.name(), store: store.name.to_owned(), why };
                return self.sink.push(Line::Failed(failed));
            }
        }
        Ok(())
    }

    /// Runs a stage whose rows say why they were not done; later stages run all the same.
    fn bounded(&mut self, run: u64, group: Group, stage: Stage, plan: Plan, store: &Contender) -> Answer<()> {
        eprintln!("run {run} of {}: {}, {}", self.options.runs, stage.name(), store.name);
        let first = self.sink.lines.len();
        let Err(why) = self.stage(run, group, stage, plan, store) else { return Ok(()) };
        let failed = Failed { run, group: group.name(), store: store.name.to_owned(), why };
        let is_told = |line: &Line, row: &str| matches!(line, Line::Measured(one) if one.row == row);
        for row in bounded::rows_of(stage) {
            if !self.sink.lines[first..].iter().any(|line| is_told(line, row)) {
                let line = Line::Measured(Box::new(Measured::not_done(row, &failed)));
                eprintln!("    {}", table::brief(&line));
                self.sink.push(line)?;
            }
        }
        Ok(())
    }

    fn stage(&mut self, run: u64, group: Group, stage: Stage, plan: Plan, store: &Contender) -> Answer<()> {
        let limited = (stage.is_held() && store.uses_page_cache)
            .then(|| Limited::new(stage.memory_bytes(plan) + store.beside_bytes));
        // If there is no limit, a remark at the beginning says why.
        let limited = limited.and_then(Result::ok);
        let mut command = Command::new(std::env::current_exe().map_err(told)?);
        command.args(["bench-child", store.name, &group.name(), &stage.name()]);
        command.arg(self.directory);
        let Options { seconds, seed, keep, .. } = self.options;
        let Plan { scale, value_bytes } = plan;
        command.args([format!("--run={run}"), format!("--seed={seed}")]);
        command.args([format!("--scale={scale}"), format!("--seconds={seconds}")]);
        command.arg(format!("--value-bytes={value_bytes}"));
        command.args(keep.then_some("--keep"));
        if let Some(limited) = &limited {
            command.arg("--limited").arg(limited.path());
        }
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(told)?;
        let output = child.stdout.take().ok_or("the child has no output")?;
        let timer = bounded::time_max(stage).map(|limit| Timer::start(&child, limit));
        let (mut kept, mut doing, mut why) = (Ok(()), String::new(), None);
        for line in BufReader::new(output).lines() {
            let line = serde_json::from_str(&line.map_err(told)?).map_err(told)?;
            eprintln!("    {}", table::brief(&line));
            match line {
                Line::Doing(what) => doing = what,
                Line::Failed(failed) => why = Some(failed.why),
                line => kept = kept.and(self.sink.push(line)),
            }
        }
        let killed = timer.and_then(Timer::stop);
        let status = child.wait().map_err(told)?;
        kept?;
        match (killed, why) {
            (Some(limit), _) => Err(format!("ended after {} s, {doing}", limit.as_secs())),
            (None, Some(why)) => Err(why),
            (None, None) => judge(stage, status),
        }
    }

    /// Removes the folder of the stores, and nothing else in the directory.
    fn remove_stores(&self) -> Answer<()> {
        match std::fs::remove_dir_all(self.directory.join(STORES)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(told(error)),
            _ => Ok(()),
        }
    }
}

/// Kills a child that exceeds its time.
struct Timer {
    stop: Sender<()>,
    thread: JoinHandle<Option<Duration>>,
}

impl Timer {
    fn start(child: &Child, limit: Duration) -> Timer {
        let pid = Pid::from_child(child);
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let is_late = stopped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            // The child is not waited for until the timer is stopped, so no other process can have its
            // number.
            (is_late && kill_process(pid, Signal::KILL).is_ok()).then_some(limit)
        });
        Timer { stop, thread }
    }

    /// The limit, if the child was killed.
    fn stop(self) -> Option<Duration> {
        // A timer that is over has no receiver.
        let _ = self.stop.send(());
        self.thread.join().ok().flatten()
    }
}

fn judge(stage: Stage, status: ExitStatus) -> Answer<()> {
    let was_killed = status.code().is_none();
    if status.success() != stage.ends_killed() && was_killed == stage.ends_killed() {
        return Ok(());
    }
    Err(format!("its process ended with {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    /// A child that is late is killed, and one that ends in time is not.
    #[test]
    fn late_children_are_killed() {
        let spawn = |seconds: &str| Command::new("sleep").arg(seconds).spawn().expect("there is sleep");
        let mut late = spawn("600");
        let timer = Timer::start(&late, Duration::from_millis(1));
        let status = late.wait().expect("it ends");
        assert!(status.code().is_none() && timer.stop().is_some());
        let mut early = spawn("0");
        let timer = Timer::start(&early, Duration::from_secs(600));
        assert_eq!(timer.stop(), None);
        assert!(early.wait().expect("it ends").success());
    }

    /// Only a stage that kills itself may end by a signal, and it must.
    #[test]
    fn ends_are_judged() {
        let (done, failed, killed) =
            (ExitStatus::from_raw(0), ExitStatus::from_raw(1 << 8), ExitStatus::from_raw(6));
        assert!(judge(Stage::Cold, done).is_ok() && judge(Stage::ReopenWrite, killed).is_ok());
        for (stage, status) in [
            (Stage::Cold, failed),
            (Stage::Cold, killed),
            (Stage::ReopenWrite, done),
            (Stage::ReopenWrite, failed),
        ] {
            assert!(judge(stage, status).is_err(), "{stage:?} {status}");
        }
    }

    /// Each run begins with another store, and has all stores.
    #[test]
    fn stores_take_turns() {
        let stores = contenders();
        let names = |run| turn(&stores, run).map(|one| one.name).collect::<Vec<&str>>();
        assert_eq!((names(1)[0], names(2)[0]), (stores[0].name, stores[1].name));
        let (mut first, mut second) = (names(1), names(2));
        first.sort_unstable();
        second.sort_unstable();
        assert_eq!(first, second);
    }
}
