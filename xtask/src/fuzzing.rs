//! `cargo xtask fuzz SECONDS`: every target of `fuzz/`, with raw bytes and with corrected checksums.
//!
//! It needs a nightly compiler and cargo-fuzz, and is skipped with a message without them. A finding ends the
//! run; its input is in fuzz/artifacts and belongs, minimized, into fuzz/corpus.

use std::path::Path;
use std::process::{Command, Stdio};

/// The targets, with the longest input of each in bytes: longer inputs are slower and find no more.
const TARGETS: &[(&str, u32)] = &[
    ("log", 4096),
    ("manifest", 4096),
    ("store", 256),
    ("footer", 4096),
    ("top", 4096),
    ("fence", 4096),
    ("filters", 4096),
    ("data", 4096),
    ("ranges", 4096),
    ("names", 40),
    ("import", 1024),
    ("directory", 256),
];
const MODES: [&str; 2] = ["raw", "sealed"];

/// Runs all targets in both modes, each for the given seconds.
pub(crate) fn run(root: &Path, asked: &[&str]) -> Result<(), String> {
    let number =
        |text: &&str| text.parse::<u64>().map_err(|_| "fuzz takes seconds for each target".to_owned());
    let seconds = asked.first().map_or(Ok(10), number)?;
    // Torture gives each round seeds of its own, as START..END.
    let seeds = std::env::var("TRINE_SEEDS").unwrap_or_default();
    let seed = seeds.split("..").next().and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(0);
    let mut has_fuzz = Command::new("cargo");
    has_fuzz.args(["+nightly", "fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !has_fuzz.status().is_ok_and(|status| status.success()) {
        println!("torture: 0 executions, 1 rounds skipped for want of a nightly compiler and cargo-fuzz");
        return Ok(());
    }
    let mut executions = 0;
    for (target, bytes_max) in TARGETS {
        for mode in MODES {
            // libfuzzer takes 0 for a random seed.
            let done = fuzz(root, (target, mode), (seconds, *bytes_max, seed + 1))?;
            println!("{target}, {mode}: {done} executions in {seconds} s, no finding");
            executions += done;
        }
    }
    println!("torture: {executions} executions");
    Ok(())
}

fn fuzz(
    root: &Path,
    (target, mode): (&str, &str),
    (seconds, bytes_max, seed): (u64, u32, u64),
) -> Result<u64, String> {
    // New inputs are written outside the tree; the corpus in the tree is only read.
    let found = root.join("fuzz/target/corpus").join(format!("{target}-{mode}"));
    std::fs::create_dir_all(&found).map_err(|error| format!("{}: {error}", found.display()))?;
    let seeds = root.join("fuzz/corpus").join(target);
    let output = Command::new("cargo")
        .args(["+nightly", "fuzz", "run", "--sanitizer", "none", target])
        .args([&found, &seeds])
        .args(["--", "-print_final_stats=1", "-timeout=20"])
        .args([
            format!("-max_total_time={seconds}"),
            format!("-max_len={bytes_max}"),
            format!("-seed={seed}"),
        ])
        .env("TRINE_FUZZ", mode)
        .current_dir(root)
        .output()
        .map_err(|error| format!("could not run cargo: {error}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let last: Vec<&str> = told.lines().rev().take(60).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        return Err(format!("torture fuzz: {target}, {mode}: VIOLATION\n{}", last.join("\n")));
    }
    let count = told.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    Ok(count.and_then(|count| count.trim().parse().ok()).unwrap_or(0))
}
