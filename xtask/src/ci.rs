//! `cargo xtask ci`: all checks of a change in order, the cheapest first and the tests last.
//!
//! Each step prints its name before it runs and its time afterwards. The first failure ends the run. The
//! output of the tests passes through unchanged and is the last output, so that a run ends with the test
//! runner's own summary.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::text::{Document, Mode, settle};
use crate::{platforms, quickstart, tidy};

/// The work of a step.
enum Work {
    /// cargo with these arguments.
    Cargo(&'static [&'static str]),
    /// cargo with this subcommand and these arguments for the example service, which is a package of its own.
    Service(&'static str, &'static [&'static str]),
    /// cargo with these arguments and rustdoc's warnings as errors.
    Docs(&'static [&'static str]),
    /// The house rules.
    Tidy,
    /// Generated pages match the sources.
    Pages,
    /// The README's quickstart in a new package.
    Quickstart,
    /// A compilation for macOS.
    Macos,
}

struct Step {
    name: &'static str,
    work: Work,
}

const STEPS: &[Step] = &[
    Step { name: "build", work: Work::Cargo(&["build", "--all-targets"]) },
    Step { name: "tidy", work: Work::Tidy },
    Step { name: "generated pages", work: Work::Pages },
    Step { name: "fmt", work: Work::Cargo(&["fmt", "--all", "--check"]) },
    Step {
        name: "clippy",
        work: Work::Cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
            "-D",
            "warnings",
        ]),
    },
    Step { name: "docs", work: Work::Docs(&["doc", "--no-deps", "--all-features"]) },
    Step { name: "macOS, compiled", work: Work::Macos },
    Step { name: "the quickstart", work: Work::Quickstart },
    Step { name: "tests of xtask", work: Work::Cargo(&["test", "--quiet", "--package", "xtask"]) },
    Step {
        name: "tests of workload and repro",
        work: Work::Cargo(&["test", "--quiet", "--package", "trine-workload", "--package", "trine-repro"]),
    },
    Step {
        name: "the library without features",
        work: Work::Cargo(&[
            "rustc",
            "--package",
            "trine",
            "--lib",
            "--no-default-features",
            "--",
            "-D",
            "warnings",
        ]),
    },
    Step {
        name: "the workload without features, as peers has it",
        work: Work::Cargo(&[
            "clippy",
            "--package",
            "trine-workload",
            "--lib",
            "--no-default-features",
            "--",
            "-D",
            "warnings",
        ]),
    },
    Step { name: "fmt of the service", work: Work::Service("fmt", &["--check"]) },
    Step {
        name: "clippy of the service",
        work: Work::Service("clippy", &["--all-targets", "--", "-D", "warnings"]),
    },
    Step { name: "tests of the service", work: Work::Service("test", &["--quiet"]) },
];

/// The example service: a program that embeds the library as users do.
const SERVICE: &str = "examples/service/Cargo.toml";

/// The last step, as in the README.
const TESTS: &[&str] = &["test"];

/// Runs every step, then the tests.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let begun = Instant::now();
    for (index, step) in STEPS.iter().enumerate() {
        println!("ci {}/{}: {}", index + 1, STEPS.len() + 1, step.name);
        let started = Instant::now();
        let verdict = work(root, &step.work);
        let seconds = started.elapsed().as_secs_f64();
        verdict.map_err(|error| format!("ci failed at {} after {seconds:.1} s: {error}", step.name))?;
        println!("ci {}/{}: {} passed in {seconds:.1} s", index + 1, STEPS.len() + 1, step.name);
    }
    println!(
        "ci {0}/{0}: cargo test, {1:.1} s from the start",
        STEPS.len() + 1,
        begun.elapsed().as_secs_f64()
    );
    cargo(root, TESTS, &[]).map_err(|error| format!("ci failed at cargo test: {error}"))
}

/// Rewrites the goldens: tests that compare with a golden write it instead. Then rewrites the page with the
/// goldens.
pub(crate) fn golden(root: &Path) -> Result<(), String> {
    cargo(root, &["test", "--package", "trine", "--lib", "--tests"], &[("TRINE_GOLDEN", "write")])?;
    settle(root, Document::Format, Mode::Write)
}

fn work(root: &Path, work: &Work) -> Result<(), String> {
    match work {
        Work::Cargo(arguments) => cargo(root, arguments, &[]),
        Work::Service(subcommand, arguments) => service(root, subcommand, arguments),
        Work::Docs(arguments) => cargo(root, arguments, &[("RUSTDOCFLAGS", "-D warnings")]),
        Work::Tidy => tidy::run(root),
        Work::Pages => {
            settle(root, Document::Format, Mode::Check)?;
            settle(root, Document::Settings, Mode::Check)?;
            settle(root, Document::Api, Mode::Check)
        }
        Work::Macos => platforms::macos(root),
        Work::Quickstart => quickstart::run(root),
    }
}

/// Runs cargo for the service. Builds go to the project's own target directory, which already has some of the
/// dependencies.
fn service(root: &Path, subcommand: &str, arguments: &[&str]) -> Result<(), String> {
    let arguments = [&[subcommand, "--manifest-path", SERVICE], arguments].concat();
    let target = root.join("target").display().to_string();
    let is_chosen = std::env::var_os("CARGO_TARGET_DIR").is_some();
    let variables = [("CARGO_TARGET_DIR", target.as_str())];
    cargo(root, &arguments, if is_chosen { &[] } else { &variables })
}

fn cargo(root: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(program)
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(root)
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("could not run cargo: {error}"))?;
    let shown = arguments.join(" ");
    if status.success() { Ok(()) } else { Err(format!("`cargo {shown}` ended with {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests are the last step, and every rule that needs no tests is an earlier step.
    #[test]
    fn steps_are_in_order() {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names[..2], ["build", "tidy"]);
        assert_eq!(TESTS, ["test"]);
    }

    /// Tests of every package run; those outside the last step have steps of their own.
    #[test]
    fn every_package_is_tested() {
        let of_xtask = ["test", "--quiet", "--package", "xtask"];
        let of_others = ["test", "--quiet", "--package", "trine-workload", "--package", "trine-repro"];
        for words in [&of_xtask[..], &of_others] {
            assert!(STEPS.iter().any(|step| matches!(step.work, Work::Cargo(own) if own == words)));
        }
    }

    /// The example service is formatted, linted and tested before the project's own tests.
    #[test]
    fn the_service_is_tried() {
        let tried: Vec<&str> = STEPS
            .iter()
            .filter_map(|step| match step.work {
                Work::Service(subcommand, _) => Some(subcommand),
                _ => None,
            })
            .collect();
        assert_eq!(tried, ["fmt", "clippy", "test"]);
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(SERVICE);
        assert!(manifest.is_file());
    }
}
