//! `cargo xtask torture [PART] [--minutes N] [--seed N]`: long tests on request, for any duration.
//!
//! A part is a set of ignored tests, run repeatedly over new seeds. TRINE_SEEDS=a..b passes the seeds to a
//! test, and TRINE_SCALE the amount of work for each. A test prints its counts in lines like `torture: 12
//! states, 3 others`, and the command adds them up. The first failure ends the run and prints the test's
//! output.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A named part of the torture tests.
struct Part {
    name: &'static str,
    about: &'static str,
    runs: Runs,
    /// Seeds of one run.
    seeds: u64,
    variables: &'static [(&'static str, &'static str)],
}

/// The work of one run of a part.
enum Runs {
    /// The ignored tests with this name, among the tests selected by these arguments of cargo.
    Tests(&'static [&'static str], &'static str),
    /// Every target of fuzz/, each for this number of seconds.
    Fuzz(&'static str),
}

impl Runs {
    /// Arguments of cargo to build the part.
    fn build(&self) -> Vec<&'static str> {
        match self {
            Runs::Tests(of, _) => [&["test", "--package", "trine", "--no-run"], *of].concat(),
            Runs::Fuzz(_) => vec!["build", "--package", "xtask"],
        }
    }

    /// Arguments of cargo to run the part.
    fn run(&self) -> Vec<&'static str> {
        match self {
            Runs::Tests(of, named) => {
                [&["test", "--package", "trine"], *of, &["--", "--ignored", "--nocapture", named]].concat()
            }
            Runs::Fuzz(seconds) => vec!["run", "--quiet", "--package", "xtask", "--", "fuzz", seconds],
        }
    }
}

const LIBRARY: &[&str] = &["--lib"];

const MAIN: &[&str] = &["--test", "main"];

const PARTS: &[Part] = &[
    Part {
        name: "sim",
        about: "every scenario of the simulator, stopped at every call by processes that end and power cuts",
        runs: Runs::Tests(LIBRARY, "torture_stops"),
        seeds: 5,
        variables: &[("TRINE_SCALE", "2")],
    },
    Part {
        name: "fails",
        about: "every scenario of the simulator, with each call and with any two calls failing",
        runs: Runs::Tests(LIBRARY, "torture_fails"),
        seeds: 1,
        variables: &[("TRINE_SCALE", "2")],
    },
    Part {
        name: "damage",
        about: "random flipped bits of stores of some 400 KiB",
        runs: Runs::Tests(MAIN, "f12_random"),
        seeds: 1,
        variables: &[("TRINE_SCALE", "4")],
    },
    Part {
        name: "kills",
        about: "processes killed under load, 18 times a store, with reads by ring, threads and pread",
        runs: Runs::Tests(MAIN, "torture_kills"),
        seeds: 4,
        variables: &[],
    },
    Part {
        name: "fuzz",
        about: "every target of fuzz/, ten seconds each, with bytes as they come and with right checksums",
        runs: Runs::Fuzz("10"),
        seeds: 1,
        variables: &[],
    },
];

/// Default minimum duration of a part, in minutes.
const MINUTES: u64 = 1;

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    parts: Vec<&'static str>,
    minutes: u64,
    seed: u64,
}

/// Runs the given parts, or all, each for the given minutes.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let asked = parse(arguments)?;
    for part in PARTS.iter().filter(|part| asked.parts.contains(&part.name)) {
        println!("torture {}: {}", part.name, part.about);
        part.run(root, &asked)?;
    }
    Ok(())
}

/// Names of the parts, for the usage text.
pub(crate) fn names() -> String {
    PARTS.iter().map(|part| part.name).collect::<Vec<_>>().join("|")
}

fn parse(arguments: &[&str]) -> Result<Asked, String> {
    let mut asked = Asked { parts: Vec::new(), minutes: MINUTES, seed: 0 };
    let mut left = arguments.iter();
    while let Some(argument) = left.next() {
        let number = |given: Option<&&str>| {
            let given = given.and_then(|text| text.parse::<u64>().ok());
            given.ok_or_else(|| format!("{argument} needs a number"))
        };
        match *argument {
            "--minutes" => asked.minutes = number(left.next())?,
            "--seed" => asked.seed = number(left.next())?,
            name => match PARTS.iter().find(|part| part.name == name) {
                Some(part) => asked.parts.push(part.name),
                None => return Err(format!("torture has no part {name:?}; it has {}", names())),
            },
        }
    }
    if asked.parts.is_empty() {
        asked.parts = PARTS.iter().map(|part| part.name).collect();
    }
    Ok(asked)
}

impl Part {
    fn run(&self, root: &Path, asked: &Asked) -> Result<(), String> {
        let status =
            command(root, &self.runs.build()).status().map_err(|error| format!("no cargo: {error}"))?;
        if !status.success() {
            return Err(format!("torture {}: the tests do not build", self.name));
        }
        let (began, mut seed, mut sums) = (Instant::now(), asked.seed, BTreeMap::new());
        while seed == asked.seed || began.elapsed() < Duration::from_secs(60 * asked.minutes) {
            let end = seed + self.seeds;
            let mut command = command(root, &self.runs.run());
            command.env("TRINE_SEEDS", format!("{seed}..{end}")).envs(self.variables.iter().copied());
            let output = command.stderr(Stdio::piped()).output().map_err(|error| error.to_string())?;
            let text = String::from_utf8_lossy(&output.stdout);
            if !output.status.success() {
                let told = String::from_utf8_lossy(&output.stderr);
                return Err(format!("torture {}, seeds {seed}..{end}: VIOLATION\n{text}{told}", self.name));
            }
            add(&mut sums, &text);
            seed = end;
        }
        let minutes = began.elapsed().as_secs_f64() / 60.0;
        let told: Vec<String> = sums.iter().map(|(what, count)| format!("{count} {what}")).collect();
        println!(
            "torture {}: seeds {}..{seed}, {minutes:.1} minutes, {}, 0 violations",
            self.name,
            asked.seed,
            told.join(", ")
        );
        if sums.is_empty() { Err(format!("torture {}: no test ran", self.name)) } else { Ok(()) }
    }
}

fn command(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    command
}

/// Adds up the counts in a test's output.
fn add(sums: &mut BTreeMap<String, u64>, output: &str) {
    // The counts may follow the name of the test on its line.
    for line in output.lines().filter_map(|line| line.split_once("torture: ").map(|(_, counts)| counts)) {
        for count in line.split(", ") {
            if let Some((number, what)) = count.split_once(' ')
                && let Ok(number) = number.parse::<u64>()
            {
                *sums.entry(what.to_owned()).or_default() += number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts, minutes and a seed come in any order; unknown parts are errors.
    #[test]
    fn parts_are_asked_for() {
        let all: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        assert_eq!(parse(&[]), Ok(Asked { parts: all, minutes: MINUTES, seed: 0 }));
        let asked = Asked { parts: vec!["sim"], minutes: 3, seed: 9 };
        assert_eq!(parse(&["--seed", "9", "sim", "--minutes", "3"]), Ok(asked));
        for wrong in [&["simm"][..], &["--minutes"], &["--seed", "x"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    /// Counts in the output of tests are added up; other output is ignored.
    #[test]
    fn counts_are_added_up() {
        let mut sums = BTreeMap::new();
        let output = "running 2 tests\ntorture: 12 states, 3 disks opened\ntest a ... torture: 4 states\nok";
        add(&mut sums, output);
        let expected = [("disks opened".to_owned(), 3), ("states".to_owned(), 16)];
        assert_eq!(sums, BTreeMap::from(expected));
    }

    /// The names of parts are unique.
    #[test]
    fn parts_have_names() {
        let names: std::collections::BTreeSet<&str> = PARTS.iter().map(|part| part.name).collect();
        assert_eq!(names.len(), PARTS.len());
    }
}
