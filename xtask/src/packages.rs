//! Rules about packages: no package includes a file of another, and shipped packages do not enable the lab.

use crate::docs::join;
use crate::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

const MANIFEST: &str = "Cargo.toml";
/// Packages of the shipped program, beside the library.
const SHIPPED: &[&str] = &["cli", "workload"];

pub(crate) fn check(tree: &Tree, out: &mut Vec<Finding>) {
    foreign_files(tree, out);
    shipped_features(tree, out);
}

/// A module with `#[path]` is a file of its own package.
fn foreign_files(tree: &Tree, out: &mut Vec<Finding>) {
    for source in &tree.sources {
        for (line, target) in module_paths(source) {
            let full = join(&source.path, target);
            if package_of(tree, &full) != package_of(tree, &source.path) {
                out.push(Finding::new(
                    &source.path,
                    line,
                    format!("`#[path]` to {full}, a file of another package"),
                    "Depend on that package, or move what both need into one that both depend on",
                ));
            }
        }
    }
}

/// Line and target of every `#[path = ".."]`.
fn module_paths(source: &Source) -> Vec<(usize, &str)> {
    let tokens = source.tokens();
    let mut out = Vec::new();
    for window in tokens.windows(6) {
        let texts: Vec<&str> = window.iter().map(|token| token.text).collect();
        if texts == ["#", "[", "path", "=", "\"", "\""] {
            out.push((source.line_of(window[0].at), &source.raw[window[4].at + 1..window[5].at]));
        }
    }
    out
}

/// The folder of a file's package; empty for the root package.
fn package_of<'a>(tree: &Tree, path: &'a str) -> &'a str {
    let mut folder = path;
    while let Some((above, _)) = folder.rsplit_once('/') {
        if tree.text(&format!("{above}/{MANIFEST}")).is_some() {
            return above;
        }
        folder = above;
    }
    ""
}

/// Dependencies of shipped packages do not enable the feature `lab`; dev-dependencies may.
fn shipped_features(tree: &Tree, out: &mut Vec<Finding>) {
    for package in SHIPPED {
        let path = format!("{package}/{MANIFEST}");
        let mut is_of_tests = false;
        for (line, text) in (1..).zip(tree.text(&path).unwrap_or_default().lines()) {
            if text.starts_with('[') {
                is_of_tests = text.contains("dev-dependencies");
            }
            if !is_of_tests && !text.starts_with('#') && text.contains("\"lab\"") {
                out.push(Finding::new(
                    &path,
                    line,
                    "the feature `lab` in what is shipped",
                    "Put what needs it into repro/, a package of its own",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let mut out = Vec::new();
        check(&Tree::of(files), &mut out);
        out.into_iter().map(|one| (one.path, one.line)).collect()
    }

    /// A path to a file of another package is an error, also if one package is within the folder of another.
    /// A path within the package passes, and so does one in a comment or a string.
    #[test]
    fn modules_by_path_stay_in_their_package() {
        let manifests = ["Cargo.toml", "cli/Cargo.toml", "fuzz/Cargo.toml", "fuzz/targets/Cargo.toml"];
        let by_path = |path: &str, target: &str| {
            let text = format!("//! A.\n#[path = \"{target}\"]\nmod a;\n");
            let mut files: Vec<(&str, &str)> = manifests.iter().map(|path| (*path, "")).collect();
            files.push((path, &text));
            found(&files)
        };
        for (path, target) in [
            ("tests/a.rs", "../fuzz/src/a.rs"),
            ("fuzz/src/lib.rs", "../targets/src/lib.rs"),
            ("fuzz/src/lib.rs", "../../cli/src/text.rs"),
            ("cli/src/a/b.rs", "../../../src/a.rs"),
        ] {
            assert_eq!(by_path(path, target), [(path.to_owned(), 2)]);
        }
        for (path, target) in [("src/a/b.rs", "b/tests.rs"), ("fuzz/src/lib.rs", "../a.rs")] {
            assert_eq!(by_path(path, target), []);
        }
        let said = "// #[path = \"../cli/a.rs\"]\nconst A: &str = \"#[path = '../cli/a.rs']\";";
        assert_eq!(found(&[("cli/Cargo.toml", ""), ("src/a.rs", said)]), []);
    }

    /// The program and its shared package do not enable the lab; their tests and other packages may.
    #[test]
    fn no_lab_is_shipped() {
        let with = "[dependencies]\ntrine = { path = \"..\", features = [\"lab\"] }\n";
        for package in SHIPPED {
            let path = format!("{package}/Cargo.toml");
            assert_eq!(found(&[(&path, with)]), [(path.clone(), 2)]);
            assert_eq!(found(&[(&path, &with.replace("[dep", "[dev-dep"))]), []);
        }
        assert_eq!(found(&[("repro/Cargo.toml", with)]), []);
    }
}
