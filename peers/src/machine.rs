//! The machine and the command of a run, for the results.

use std::process::Command;

/// Date, machine and command.
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) machine: String,
    pub(crate) command: String,
}

pub(crate) fn about() -> Machine {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let date = said_by("date", &["-u", "+%F"]);
    let kernel = said_by("uname", &["-sr"]);
    let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = model.map_or("unknown processor", |(_, model)| model);
    let machine = format!("{cores} cores of {model}, {kernel}");
    Machine { date, machine, command: format!("peers {}", arguments.join(" ")) }
}

/// The trimmed output of a system program; empty if the program does not run.
fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
