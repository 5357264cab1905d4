//! `cargo xtask quickstart`: follows the README's quickstart like a new user. Builds and runs a new package
//! that has only the dependencies and the program of the page.
//!
//! The package is in a temporary directory. It takes versions from the project's Cargo.lock and builds into
//! the project's target directory, so that nothing is downloaded and little is built.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::scratch::Scratch;

const README: &str = "README.md";
/// The path of the repository in the page's dependencies.
const PATH_OF_COPY: &str = "path = \"trine\"";

/// Follows the page.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let page = read(&root.join(README))?;
    let dependencies = block(&page, "toml")?.replace(PATH_OF_COPY, &format!("path = {root:?}"));
    if !dependencies.contains(&format!("{root:?}")) {
        return Err(format!("{README}: the dependencies do not have `{PATH_OF_COPY}`"));
    }
    let scratch = Scratch::new("quickstart")?;
    let package = scratch.path().join("quickstart");
    cargo(scratch.path(), &["new", "--quiet", "--vcs", "none", "quickstart"], &[])?;
    let manifest = read(&package.join("Cargo.toml"))?.replace("[dependencies]\n", &dependencies);
    if !manifest.contains(&dependencies) {
        return Err(format!("`cargo new` has made a manifest without dependencies:\n{manifest}"));
    }
    write(&package.join("Cargo.toml"), &manifest)?;
    write(&package.join("src/main.rs"), block(&page, "rust")?)?;
    write(&package.join("Cargo.lock"), &read(&root.join("Cargo.lock"))?)?;
    let target =
        std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), |path| root.join(path));
    let target = target.display().to_string();
    // The project's own profile, so that existing builds are reused.
    let variables = [("CARGO_TARGET_DIR", target.as_str()), ("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")];
    cargo(&package, &["run", "--quiet", "--offline"], &variables)
}

/// The first code block in that language on the page.
fn block<'a>(page: &'a str, language: &str) -> Result<&'a str, String> {
    let opening = format!("```{language}\n");
    let inside = page.split_once(&opening).and_then(|(_, rest)| rest.split_once("```"));
    inside.map(|(block, _)| block).ok_or_else(|| format!("{README} has no block of {language}"))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn cargo(directory: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.iter().copied()).current_dir(directory).stdin(Stdio::null());
    let status = command.status().map_err(|error| format!("could not run cargo: {error}"))?;
    let shown = arguments.join(" ");
    if status.success() {
        Ok(())
    } else {
        Err(format!("the quickstart: `cargo {shown}` ended with {status}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first block of a language is the text between its fences; a page without one is an error.
    #[test]
    fn blocks_are_found() {
        let page = "# A\n\n```toml\n[dependencies]\n```\n```rust\nfn main() {}\n```\n```rust\n```\n";
        assert_eq!(block(page, "toml"), Ok("[dependencies]\n"));
        assert_eq!(block(page, "rust"), Ok("fn main() {}\n"));
        assert!(block(page, "sh").is_err());
        assert!(block("```toml\nunclosed", "toml").is_err());
    }
}
