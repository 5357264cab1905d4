//! `cargo xtask mutants [SHARD]`: whether a test fails when log, manifest or recovery is changed.
//!
//! cargo-mutants changes one expression or one function at a time in a copy of the tree, builds the library's
//! tests and runs them. The first stage runs the quick tests, of the files themselves and of recovery. The
//! second stage runs the simulator's tests too, for the changes that the first missed. A shard `k/n` is every
//! nth change, beginning with the kth. The command needs cargo-mutants, and is skipped with a message without
//! it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::coverage::{GROUPS, own_tests};

/// Least percentage of compiling changes that a test must catch. Some changes have no effect.
const CAUGHT_MIN: f64 = 90.0;

/// The default shard: some 170 changes.
const SHARD: &str = "0/5";

/// A selection of the library's tests.
struct Stage {
    name: &'static str,
    /// Filters for the names of these tests.
    filters: Vec<String>,
    /// Limit on their time; a change that exceeds the limit counts as caught.
    seconds_max: u32,
}

/// Files and folders that the library's tests need, and the packages of the workspace.
const COPIED: &[&str] =
    &["src", "tests", "cli", "workload", "repro", "xtask", "examples", "docs", "fuzz", "README.md", "Cargo."];

/// Lines of the manifest that make the library a dependency of its own tests, directly or by another package.
/// The copy lacks them, because each change would rebuild that dependency too; `FEATURES` has its features.
const LEFT_OUT: &[&str] = &["trine = { path = \".\"", "trine-fuzz-targets = "];
const FEATURES: &str = "--features=fuzz,lab,sim";

/// Memory limit of one process, in KiB: a change may cause unbounded allocations.
const MEMORY_KIB: &str = "12582912";

/// The result of a stage for each change.
#[derive(Default, Debug)]
struct Outcome {
    caught: BTreeSet<String>,
    missed: BTreeSet<String>,
    unviable: BTreeSet<String>,
}

/// Tests the changes of a shard.
pub(crate) fn run(root: &Path, asked: &[&str]) -> Result<(), String> {
    let shard = match asked {
        [] => SHARD,
        [shard] if is_shard(shard) => shard,
        _ => return Err("mutants takes a shard as k/n, k below n".to_owned()),
    };
    let mut has_tool = Command::new("cargo");
    has_tool.args(["mutants", "--version"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if !has_tool.status().is_ok_and(|status| status.success()) {
        println!("mutants: skipped: cargo-mutants is not installed: cargo install cargo-mutants --locked");
        return Ok(());
    }
    copy(root)?;
    let [quick, thorough] = stages();
    let chosen = ["--sharding=round-robin".to_owned(), format!("--shard={shard}")];
    let first = quick.run(root, &chosen)?;
    let mut last = Outcome::default();
    if !first.missed.is_empty() {
        let chosen: Vec<String> =
            first.missed.iter().map(|name| format!("--re=^{}$", escaped(name))).collect();
        last = thorough.run(root, &chosen)?;
    }
    judge(shard, &first, &last)
}

fn stages() -> [Stage; 2] {
    let wide = ["engine::", "write::", "inspect::", "db::"].map(str::to_owned);
    [
        Stage { name: "quick", filters: own_tests().collect(), seconds_max: 90 },
        Stage { name: "thorough", filters: wide.to_vec(), seconds_max: 900 },
    ]
}

/// Copies the tree to target/mutants/tree. Unchanged files keep their time, so that cargo does not rebuild
/// them.
fn copy(root: &Path) -> Result<(), String> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let listed = list.output().map_err(|error| format!("could not run git: {error}"))?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in names.lines().filter(|name| COPIED.iter().any(|start| name.starts_with(start))) {
        let (from, to) = (root.join(name), root.join("target/mutants/tree").join(name));
        let told = |error: std::io::Error| format!("{name}: {error}");
        let mut bytes = fs::read(&from).map_err(told)?;
        if name == "Cargo.toml" {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let lines = text.lines().filter(|line| !LEFT_OUT.iter().any(|start| line.starts_with(start)));
            bytes = lines.flat_map(|line| [line, "\n"]).collect::<String>().into_bytes();
        }
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        to.parent().map_or(Ok(()), fs::create_dir_all).map_err(told)?;
        fs::write(&to, bytes).map_err(told)?;
    }
    Ok(())
}

fn is_shard(text: &str) -> bool {
    let numbers = text.split_once('/').map(|(k, n)| (k.parse::<u32>(), n.parse::<u32>()));
    matches!(numbers, Some((Ok(k), Ok(n))) if k < n)
}

/// A pattern that matches only this text.
fn escaped(text: &str) -> String {
    let mut pattern = String::new();
    for symbol in text.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(symbol) {
            pattern.push('\\');
        }
        pattern.push(symbol);
    }
    pattern
}

impl Stage {
    fn run(&self, root: &Path, chosen: &[String]) -> Result<Outcome, String> {
        let into = root.join("target/mutants").join(self.name);
        fs::create_dir_all(&into).map_err(|error| format!("{}: {error}", into.display()))?;
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v \"$0\"; exec cargo mutants \"$@\"", MEMORY_KIB]);
        command.args(["--in-place", "--package", "trine", "--colors=never", "--cap-lints=true", FEATURES]);
        command.arg("--output").arg(&into).arg(format!("--timeout={}", self.seconds_max));
        for name in GROUPS.iter().flat_map(|(_, names)| *names) {
            command.args([format!("--file={name}.rs"), format!("--file={name}/**")]);
        }
        command.args(chosen).args(["--cargo-arg=--lib", "--", "--"]).args(&self.filters);
        command.current_dir(root.join("target/mutants/tree")).stdin(Stdio::null());
        command.env_remove("CARGO_TARGET_DIR");
        command.env("CARGO_PROFILE_TEST_OPT_LEVEL", "1").env("CARGO_PROFILE_TEST_DEBUG", "0");
        let status = command.status().map_err(|error| format!("could not run cargo mutants: {error}"))?;
        // Exit code 2: some changes were missed. Exit code 3: some took too long.
        if !matches!(status.code(), Some(0 | 2 | 3)) {
            return Err(format!("cargo mutants ended with {status}"));
        }
        let list = |name: &str| -> Result<BTreeSet<String>, String> {
            let path = into.join("mutants.out").join(name);
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        let mut caught = list("caught.txt")?;
        caught.extend(list("timeout.txt")?);
        Ok(Outcome { caught, missed: list("missed.txt")?, unviable: list("unviable.txt")? })
    }
}

fn judge(shard: &str, first: &Outcome, last: &Outcome) -> Result<(), String> {
    for name in &last.missed {
        println!("missed: {name}");
    }
    let (caught, missed) = (first.caught.len() + last.caught.len(), last.missed.len());
    let percent = 100.0 * caught as f64 / ((caught + missed) as f64).max(1.0);
    println!(
        "mutants {shard}: {caught} caught, {} of them by the thorough tests, {missed} missed, \
         {percent:.1} %; {} cannot be built",
        last.caught.len(),
        first.unviable.len() + last.unviable.len()
    );
    if percent < CAUGHT_MIN { Err(format!("less than {CAUGHT_MIN} % are caught")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shard is k/n with k below n.
    #[test]
    fn shards_are_read() {
        for (text, verdict) in [("0/7", true), ("6/7", true), ("7/7", false), ("7", false), ("a/b", false)] {
            assert_eq!(is_shard(text), verdict, "{text}");
        }
    }

    /// The copy has every package of the workspace, which cargo needs to read it. Each line to leave out of
    /// the manifest occurs in it once.
    #[test]
    fn copies_are_whole() {
        let manifest = include_str!("../../Cargo.toml");
        let members = manifest.lines().find_map(|line| line.strip_prefix("members = ["));
        for member in members.expect("a workspace").split('"').skip(1).step_by(2).filter(|name| *name != ".")
        {
            assert!(COPIED.iter().any(|start| member.starts_with(start)), "{member}");
        }
        for start in LEFT_OUT {
            assert_eq!(manifest.lines().filter(|line| line.starts_with(start)).count(), 1, "{start}");
        }
    }

    /// Special characters in the name of a change have no meaning in its pattern.
    #[test]
    fn names_are_patterns_of_themselves() {
        assert_eq!(escaped("a.rs:1:2: replace + with *"), r"a\.rs:1:2: replace \+ with \*");
    }

    /// Changes caught by either stage count, and too few are an error.
    #[test]
    fn shares_are_judged() {
        let names = |from: usize, to: usize| (from..to).map(|index| index.to_string()).collect();
        let first = |caught| Outcome { caught: names(0, caught), ..Outcome::default() };
        let last = Outcome { caught: names(10, 11), missed: names(11, 12), ..Outcome::default() };
        assert_eq!(judge("0/1", &first(8), &last), Ok(()));
        assert!(judge("0/1", &first(7), &last).is_err());
        assert!(judge("0/1", &first(0), &Outcome::default()).is_err());
    }
}
