//! `cargo xtask torture [PART] [--minutes N] [--seed N]`: what is tried on request, for as long as one likes.
//!
//! A part is tests that are ignored otherwise, run again and again over seeds that nobody has had yet. A test
//! is told its seeds by TRINE_SEEDS=a..b and how much to do of each by TRINE_SCALE, and says what it did in
//! lines `torture: 12 states, 3 others`, which are added up. The first that fails ends the run with what it
//! printed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What runs on request under one name.
struct Part {
    name: &'static str,
    about: &'static str,
    runs: Runs,
    /// Seeds of one run of them.
    seeds: u64,
    variables: &'static [(&'static str, &'static str)],
}

/// What one run of a part is.
enum Runs {
    /// The ignored tests of this name, in the tests that these arguments of cargo's choose.
    Tests(&'static [&'static str], &'static str),
    /// Every target of fuzz/, so many seconds each.
    Fuzz(&'static str),
}

impl Runs {
    /// cargo's arguments that build it.
    fn build(&self) -> Vec<&'static str> {
        match self {
            Runs::Tests(of, _) => [&["test", "--package", "trine", "--no-run"], *of].concat(),
            Runs::Fuzz(_) => vec!["build", "--package", "xtask"],
        }
    }

    /// And that run it.
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

/// Before a run counts as long enough.
const MINUTES: u64 = 1;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    parts: Vec<&'static str>,
    minutes: u64,
    seed: u64,
}

/// Runs the parts that are asked for, or all, each for so many minutes.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let asked = parse(arguments)?;
    for part in PARTS.iter().filter(|part| asked.parts.contains(&part.name)) {
        println!("torture {}: {}", part.name, part.about);
        part.run(root, &asked)?;
    }
    Ok(())
}

/// The names of the parts, for the usage.
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

/// Adds up what tests said they did.
fn add(sums: &mut BTreeMap<String, u64>, output: &str) {
    // A line may stand behind the name of its test.
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

    /// Parts, minutes and a seed are asked for in any order; what there is not is told.
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

    /// What tests say they did is added up, whatever else they print.
    #[test]
    fn counts_are_added_up() {
        let mut sums = BTreeMap::new();
        let output = "running 2 tests\ntorture: 12 states, 3 disks opened\ntest a ... torture: 4 states\nok";
        add(&mut sums, output);
        let expected = [("disks opened".to_owned(), 3), ("states".to_owned(), 16)];
        assert_eq!(sums, BTreeMap::from(expected));
    }

    /// A part is named once.
    #[test]
    fn parts_have_names() {
        let names: std::collections::BTreeSet<&str> = PARTS.iter().map(|part| part.name).collect();
        assert_eq!(names.len(), PARTS.len());
    }
}
