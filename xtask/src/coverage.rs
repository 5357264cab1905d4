//! `cargo xtask coverage`: the lines of log, manifest and recovery that no test runs.
//!
//! Tests of the library run in an instrumented build, and the component llvm-tools adds up the counts. Lines
//! of tests do not count. The command fails if the coverage of a group is too low, and always lists the lines
//! that did not run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Least coverage of each group, in percent.
const COVERED_MIN: f64 = 95.0;

/// The measured groups: a name stands for the file and the folder of that name.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    ("log", &["src/wal", "src/format/frames", "src/format/log"]),
    ("manifest", &["src/format/manifest", "src/format/store", "src/levels/manifest", "src/levels/store"]),
    (
        "recovery",
        &[
            "src/engine/open/recover",
            "src/engine/open/refill",
            "src/engine/open/reflush",
            "src/engine/open/unnamed",
            "src/engine/publish/catalog",
            "src/engine/publish/edits",
            "src/engine/publish/files",
        ],
    ),
];

/// Files of the library that only tests use.
const OF_TESTS: &[&str] = &["src/wal/memory.rs"];

/// Tests of the library that reach these files, beside the files' own tests. The simulator's other tests take
/// too long in an instrumented build.
const FILTERS: &[&str] = &[
    "format::",
    "levels::",
    "engine::ingest",
    "f01_logs",
    "f01_manifest",
    "f01_reopen",
    "f01_smaller",
    "f01_drop",
    "f05_",
    "f08_",
    "f09_",
    "f10_",
    "inspect::",
    "db::",
    "write::",
];

/// Run counts of the executable lines of a file.
type Lines = BTreeMap<usize, u64>;

/// Runs the tests and reports the coverage.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let Some(tools) = tools() else {
        println!("coverage: skipped: llvm-cov is not installed: rustup component add llvm-tools");
        return Ok(());
    };
    let target = root.join("target/coverage");
    let profiles = target.join("profiles");
    // In the first run there is no such directory.
    drop(fs::remove_dir_all(&profiles));
    fs::create_dir_all(&profiles).map_err(|error| format!("{}: {error}", profiles.display()))?;
    let cargo = || {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["test", "--package", "trine"]).current_dir(root).stdin(Stdio::null());
        command.env("CARGO_TARGET_DIR", &target).env("RUSTFLAGS", "-C instrument-coverage");
        command.env("CARGO_PROFILE_TEST_OPT_LEVEL", "1");
        command.env("LLVM_PROFILE_FILE", profiles.join("%p-%m.profraw"));
        command
    };
    let built = output(cargo().args(["--lib", "--no-run", "--message-format=json"]))?;
    let program = built.lines().find_map(executable).ok_or("cargo named no program")?;
    status(cargo().args(["--lib", "--"]).args(own_tests()).args(FILTERS))?;

    let (list, sum) = (target.join("profiles.txt"), target.join("sum.profdata"));
    fs::write(&list, names(&profiles)?).map_err(|error| format!("{}: {error}", list.display()))?;
    let mut merge = Command::new(tools.join("llvm-profdata"));
    merge.args(["merge", "--sparse", "--failure-mode=all", "--output"]).arg(&sum);
    status(merge.arg("--input-files").arg(&list))?;
    let mut export = Command::new(tools.join("llvm-cov"));
    // The first name is the program's; the others are names of sources.
    export.args(["export", "--format=lcov", "--instr-profile"]).arg(&sum).arg(program);
    let told = output(export.args(GROUPS.iter().flat_map(|(_, names)| *names).flat_map(|name| {
        [root.join(name), root.join(format!("{name}.rs"))].into_iter().filter(|path| path.exists())
    })))?;
    judge(&report(&told, |file| first_test_line(root, file)))
}

/// Prefixes of the names of tests in the measured files.
pub(crate) fn own_tests() -> impl Iterator<Item = String> {
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    names.map(|name| format!("{}::", name.trim_start_matches("src/").replace('/', "::")))
}

/// The directory of LLVM's tools in the installed compiler.
fn tools() -> Option<PathBuf> {
    let printed = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let root = PathBuf::from(String::from_utf8_lossy(&printed.stdout).trim()).join("lib/rustlib");
    let targets = fs::read_dir(root).ok()?.flatten();
    targets.map(|target| target.path().join("bin")).find(|bin| bin.join("llvm-cov").exists())
}

/// The program's path in a message of cargo.
fn executable(message: &str) -> Option<&str> {
    message.split_once("\"executable\":\"")?.1.split('"').next()
}

/// The files in a directory, one on each line.
fn names(directory: &Path) -> Result<String, String> {
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut names = String::new();
    for entry in entries.flatten() {
        _ = writeln!(names, "{}", entry.path().display());
    }
    Ok(names)
}

/// Run counts of each file without lines of tests; files are named as in [`GROUPS`].
fn report(lcov: &str, first_test_line: impl Fn(&str) -> usize) -> BTreeMap<String, Lines> {
    let mut files: BTreeMap<String, Lines> = BTreeMap::new();
    let mut now = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            now = path.rfind("/src/").map(|at| &path[at + 1..]).filter(|file| group_of(file).is_some());
        } else if let (Some(file), Some((line, count))) =
            (now, line.strip_prefix("DA:").and_then(|data| data.split_once(',')))
            && let (Ok(line), Ok(count)) = (line.parse(), count.parse::<u64>())
            && line < first_test_line(file)
        {
            *files.entry(file.to_owned()).or_default().entry(line).or_default() += count;
        }
    }
    files
}

/// The group of a file; files of tests have none.
pub(crate) fn group_of(file: &str) -> Option<&'static str> {
    let is_in =
        |name: &&str| file.strip_prefix(*name).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'));
    let is_of_tests = file.ends_with("/tests.rs") || file.contains("/tests/") || OF_TESTS.contains(&file);
    let group = GROUPS.iter().find(|(_, names)| names.iter().any(is_in));
    group.filter(|_| !is_of_tests).map(|(group, _)| *group)
}

/// The first line of the tests in a file.
fn first_test_line(root: &Path, file: &str) -> usize {
    let text = fs::read_to_string(root.join(file)).unwrap_or_default();
    // The exact match excludes a line that names a file of tests.
    text.lines().position(|line| line == "mod tests {").map_or(usize::MAX, |index| index + 1)
}

fn judge(files: &BTreeMap<String, Lines>) -> Result<(), String> {
    let mut short = Vec::new();
    for (group, _) in GROUPS {
        let (mut lines, mut run) = (0, 0);
        for (file, counts) in files.iter().filter(|(file, _)| group_of(file) == Some(*group)) {
            let missed: Vec<usize> =
                counts.iter().filter(|(_, count)| **count == 0).map(|(line, _)| *line).collect();
            (lines, run) = (lines + counts.len(), run + counts.len() - missed.len());
            println!("{file}: {} of {} lines", counts.len() - missed.len(), counts.len());
            if !missed.is_empty() {
                println!("  not run: {}", spans(&missed));
            }
        }
        let percent = 100.0 * run as f64 / (lines as f64).max(1.0);
        println!("{group}: {run} of {lines} lines, {percent:.1} %");
        if percent < COVERED_MIN {
            short.push(*group);
        }
    }
    if short.is_empty() {
        return Ok(());
    }
    Err(format!("less than {COVERED_MIN} % of {}", short.join(", ")))
}

/// Ascending numbers, with runs of consecutive ones as `first-last`.
fn spans(numbers: &[usize]) -> String {
    let spans = numbers.chunk_by(|one, next| one + 1 == *next).map(|span| match span {
        [first, .., last] => format!("{first}-{last}"),
        _ => span[0].to_string(),
    });
    spans.collect::<Vec<_>>().join(", ")
}

fn output(command: &mut Command) -> Result<String, String> {
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?} ended with {}", output.status))
}

fn status(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file belongs to a group by its name or folder, unless it is a file of tests.
    #[test]
    fn files_have_groups() {
        for (file, group) in [
            ("src/wal/log.rs", Some("log")),
            ("src/wal/memory.rs", None),
            ("src/wal/tests.rs", None),
            ("src/format/log.rs", Some("log")),
            ("src/format/frames/scan.rs", Some("log")),
            ("src/format/manifest/state.rs", Some("manifest")),
            ("src/engine/open/recover.rs", Some("recovery")),
            ("src/engine/open/recover/tests.rs", None),
            ("src/format/header.rs", None),
            ("src/levels/stored.rs", None),
        ] {
            assert_eq!(group_of(file), group, "{file}");
        }
    }

    /// The test prefix of a file or folder is its module path.
    #[test]
    fn tests_have_the_names_of_their_files() {
        let names: Vec<String> = own_tests().collect();
        assert_eq!(names[..2], ["wal::", "format::frames::"]);
    }

    /// Counts of one line are added up; lines of tests and of other files are left out.
    #[test]
    fn counts_are_read() {
        let lcov = "SF:/a/src/wal/log.rs\nDA:1,0\nDA:2,3\nDA:9,1\nend_of_record\n\
                    SF:/a/src/db/mod.rs\nDA:1,1\nend_of_record\nSF:/a/src/wal/log.rs\nDA:1,2\nBRDA:3,0,0,1\n";
        let files = report(lcov, |_| 9);
        let lines = Lines::from([(1, 2), (2, 3)]);
        assert_eq!(files, BTreeMap::from([("src/wal/log.rs".to_owned(), lines)]));
    }

    /// Coverage below the minimum in any group is an error.
    #[test]
    fn shares_are_judged() {
        let of = |missed: usize| {
            let files = ["src/wal/log.rs", "src/format/store.rs", "src/engine/open/recover.rs"];
            let lines = |file: &str| -> Lines {
                (1..=100).map(|line| (line, u64::from(line > missed || file == files[0]))).collect()
            };
            judge(&files.into_iter().map(|file| (file.to_owned(), lines(file))).collect())
        };
        assert_eq!(of(5), Ok(()));
        assert_eq!(of(6), Err("less than 95 % of manifest, recovery".to_owned()));
        assert_eq!(judge(&BTreeMap::new()), Err("less than 95 % of log, manifest, recovery".to_owned()));
    }

    /// Consecutive lines are shown by the first and the last.
    #[test]
    fn neighbours_are_told_together() {
        assert_eq!(spans(&[1, 3, 4, 5, 9, 10]), "1, 3-5, 9-10");
    }

    /// Programs are found among cargo's messages.
    #[test]
    fn programs_are_found() {
        assert_eq!(executable(r#"{"fresh":true,"executable":"/t/main-1"}"#), Some("/t/main-1"));
        assert_eq!(executable(r#"{"executable":null}"#), None);
    }
}
