//! `cargo xtask tidy`: checks every file by every rule, with no exemption by name.

use std::path::Path;

use crate::finding::Finding;
use crate::tree::Tree;
use crate::{cycles, docs, layers, packages, rules};

/// Prints all findings; fails if there are any.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::load(root)?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    let untested = docs::limits_without_test(&tree);
    if !untested.is_empty() {
        println!("note: {}: {} limits have no test yet", docs::LIMITS, untested.len());
    }
    if findings.is_empty() { Ok(()) } else { Err(format!("tidy: {} to mend", findings.len())) }
}

/// Prints the files that name each other.
pub(crate) fn print_cycles(root: &Path) -> Result<(), String> {
    print!("{}", cycles::report(&Tree::load(root)?));
    Ok(())
}

/// All findings, sorted by place.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    layers::check(tree, &mut out);
    layers::check_public_uses(tree, &mut out);
    cycles::check(tree, &mut out);
    packages::check(tree, &mut out);
    rules::check(tree, &mut out);
    docs::check(tree, &mut out);
    out.sort();
    out.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Findings of all rules are sorted by place, each with its remedy.
    #[test]
    fn findings_are_sorted_and_complete() {
        let tree = Tree::of(&[
            ("src/base/id.rs", "use crate::wal::Log;\nfn f() { x.unwrap(); }\n"),
            ("docs/A.md", "[b](C.md)\n"),
        ]);
        let lines: Vec<String> = check(&tree).iter().map(Finding::to_string).collect();
        let places: Vec<&str> = lines.iter().filter_map(|line| line.split(": ").next()).collect();
        assert_eq!(places, ["docs/A.md:1", "src/base/id.rs:1", "src/base/id.rs:1", "src/base/id.rs:2"]);
        assert!(lines.iter().all(|line| line.matches(". ").count() >= 1), "{lines:?}");
    }

    /// A tree that follows every rule has no findings.
    #[test]
    fn a_clean_tree_passes() {
        let tree = Tree::of(&[
            ("src/base/id.rs", "//! Ids.\n\nuse std::fmt;\n"),
            ("src/io/os/files.rs", "//! Files.\n\nuse std::fs::File;\nuse crate::base::id;\n"),
            ("docs/A.md", "[b](A.md)\n"),
        ]);
        assert_eq!(check(&tree), []);
    }
}
