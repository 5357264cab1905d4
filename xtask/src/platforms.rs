//! `cargo xtask macos`: compiles the library and the program for macOS, without running them.
//!
//! It needs the standard library for that target and fetches it with rustup. Without it the check is skipped
//! with a message.

use std::path::Path;
use std::process::{Command, Stdio};

const MACOS: &str = "aarch64-apple-darwin";

/// Compiles for macOS; a warning is an error.
pub(crate) fn macos(root: &Path) -> Result<(), String> {
    let is_there = has_std(MACOS)? || (fetch(MACOS) && has_std(MACOS)?);
    if !is_there {
        println!(
            "macos: SKIPPED: rustc has no standard library of {MACOS}, and rustup could not add it. \
             With a network: rustup target add {MACOS}"
        );
        return Ok(());
    }
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(["check", "--workspace", "--exclude", "xtask", "--all-features", "--target", MACOS]);
    command.env("RUSTFLAGS", "-D warnings").current_dir(root);
    let status = command.stdin(Stdio::null()).status();
    let status = status.map_err(|error| format!("could not run cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo check for {MACOS} ended with {status}")) }
}

/// Whether rustc can compile for `target`, that is, whether the target's folder of libraries has std.
fn has_std(target: &str) -> Result<bool, String> {
    let mut command = Command::new("rustc");
    let output = command.args(["--print", "target-libdir", "--target", target]).output();
    let output = output.map_err(|error| format!("could not run rustc: {error}"))?;
    let folder = String::from_utf8_lossy(&output.stdout);
    let entries = std::fs::read_dir(folder.trim());
    let mut names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    Ok(output.status.success() && names.any(|name| name.to_string_lossy().starts_with("libstd-")))
}

/// Adds the standard library with rustup; `false` without rustup or network.
fn fetch(target: &str) -> bool {
    let mut command = Command::new("rustup");
    command.args(["target", "add", target]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The host's standard library is found, and that of an unknown target is not.
    #[test]
    fn standard_libraries_are_found() {
        let output = Command::new("rustc").arg("-vV").output().expect("rustc runs");
        let told = String::from_utf8(output.stdout).expect("text");
        let host = told.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
        assert_eq!((has_std(host), has_std("no-such-target")), (Ok(true), Ok(false)));
    }
}
