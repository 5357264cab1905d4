//! Commands that need more than stable Rust, or more time than the checks of a change: models, sanitizers,
//! Miri. Each prints a line if it is skipped because the toolchain lacks a component.

use std::path::Path;
use std::process::{Command, Stdio};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Modules of the library whose tests run under a sanitizer: those with unsafe code, and their callers.
const SANITIZED: &[&str] = &[
    "base::",
    "memtable::",
    "cache::",
    "read::",
    "write::",
    "table::",
    "io::fork::",
    "io::os::",
    "engine::reads::",
];

/// Modules of the integration tests that drop buffers during kernel writes into them.
const ABANDONING: &[&str] = &["asynchronous::", "places::", "turns::"];

/// Modules whose tests run under Miri: they open no file and start no program.
const MIRI: &[&str] = &["base::", "format::", "memtable::", "cache::", "merge::"];

/// Runs the loom models of shared state.
pub(crate) fn loom(root: &Path) -> Result<(), String> {
    let mut command = cargo(root, None, "loom");
    command.args(["test", "--package", "trine", "--lib", "--", "loom_tests::"]);
    command.env("RUSTFLAGS", "--cfg loom");
    run(command)
}

/// Runs tests under AddressSanitizer.
pub(crate) fn asan(root: &Path) -> Result<(), String> {
    if !has_nightly() {
        return skip("asan", "there is no nightly toolchain: rustup toolchain install nightly");
    }
    let mut command = cargo(root, Some("+nightly"), "asan");
    command.args(["test", "--package", "trine", "--lib", "--test", "main", "--target", TARGET, "--"]);
    command.args(SANITIZED).args(ABANDONING);
    // One test expects its child to die from SIGBUS.
    command.env("RUSTFLAGS", "-Zsanitizer=address").env("ASAN_OPTIONS", "detect_leaks=0:handle_sigbus=0");
    run(command)
}

/// Runs tests under ThreadSanitizer, with std instrumented too: locks of an uninstrumented std look like
/// races.
pub(crate) fn tsan(root: &Path) -> Result<(), String> {
    if !has_nightly() {
        return skip("tsan", "there is no nightly toolchain: rustup toolchain install nightly");
    }
    if !has_source() {
        return skip("tsan", "std cannot be compiled for it: rustup +nightly component add rust-src");
    }
    let mut command = cargo(root, Some("+nightly"), "tsan");
    command.args(["test", "--package", "trine", "--lib", "--target", TARGET, "-Zbuild-std", "--"]);
    command.args(SANITIZED).env("RUSTFLAGS", "-Zsanitizer=thread").env("TSAN_OPTIONS", "halt_on_error=1");
    run(command)
}

/// Runs tests under Miri.
pub(crate) fn miri(root: &Path) -> Result<(), String> {
    if !succeeds(&["+nightly", "miri", "--version"]) {
        return skip("miri", "it is not installed: rustup +nightly component add miri");
    }
    let mut command = cargo(root, Some("+nightly"), "miri");
    command.args(["miri", "test", "--package", "trine", "--lib", "--"]).args(MIRI);
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    run(command)
}

fn skip(what: &str, why: &str) -> Result<(), String> {
    println!("{what}: skipped: {why}");
    Ok(())
}

fn has_nightly() -> bool {
    succeeds(&["+nightly", "--version"])
}

/// Whether the source of std is installed.
fn has_source() -> bool {
    let output = Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output();
    let root = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    root.is_ok_and(|root| Path::new(&root).join("lib/rustlib/src/rust/library/std/Cargo.toml").exists())
}

fn succeeds(arguments: &[&str]) -> bool {
    let mut command = Command::new("cargo");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A cargo command with a target directory of its own, since other flags recompile all crates.
fn cargo(root: &Path, toolchain: Option<&str>, directory: &str) -> Command {
    let mut command = Command::new("cargo");
    // rustup must choose cargo, not the environment of the cargo that runs this.
    command.args(toolchain).env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN").current_dir(root);
    command.env("CARGO_TARGET_DIR", root.join("target").join(directory)).stdin(Stdio::null());
    // This level halves compile time, and is fast enough for these tests.
    command.env("CARGO_PROFILE_TEST_OPT_LEVEL", "1");
    command
}

fn run(mut command: Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("could not run cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}")) }
}
