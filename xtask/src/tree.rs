//! The files that tidy checks: those tracked by git, and those that git would track if added.

use std::path::Path;
use std::process::Command;

use crate::source::Source;

/// All text files of a tree.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Rust files.
    pub(crate) sources: Vec<Source>,
    /// Path and content of every other text file.
    pub(crate) texts: Vec<(String, String)>,
}

impl Tree {
    /// Reads the work tree at `root`.
    pub(crate) fn load(root: &Path) -> Result<Tree, String> {
        let listing = Command::new("git")
            .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|error| {
                format!("could not run git, which tells tidy the files of the project: {error}")
            })?;
        if !listing.status.success() {
            return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&listing.stderr).trim()));
        }
        let names = String::from_utf8(listing.stdout).map_err(|_| "a file name is not UTF-8")?;
        let mut files = Vec::new();
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            // Removed files that are still in the index, and files that are not text, are skipped.
            if let Ok(bytes) = std::fs::read(root.join(name))
                && let Ok(text) = String::from_utf8(bytes)
            {
                files.push((name.to_string(), text));
            }
        }
        files.sort();
        files.dedup();
        Ok(Tree::new(files))
    }

    fn new(files: Vec<(String, String)>) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            if path.ends_with(".rs") {
                tree.sources.push(Source::new(&path, &text));
            } else {
                tree.texts.push((path, text));
            }
        }
        tree.mark_test_modules();
        tree
    }

    /// Marks modules declared under `#[cfg(test)]` as test code, under any file name.
    fn mark_test_modules(&mut self) {
        let mut places = Vec::new();
        for source in &self.sources {
            let stem = source.path.trim_end_matches(".rs");
            let folder =
                ["/mod", "/lib", "/main"].iter().find_map(|end| stem.strip_suffix(end)).unwrap_or(stem);
            for module in &source.test_modules {
                places.push((format!("{folder}/{module}.rs"), format!("{folder}/{module}/")));
            }
        }
        for source in &mut self.sources {
            if places.iter().any(|(file, below)| source.path == *file || source.path.starts_with(below)) {
                source.mark_all_test();
            }
        }
    }

    /// A tree of the given files, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        Tree::new(files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect())
    }

    /// Path and content of every file, Rust or not.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let sources = self.sources.iter().map(|source| (source.path.as_str(), source.raw.as_str()));
        sources.chain(self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str())))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files().find(|(name, _)| *name == path).map(|(_, text)| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module declared for tests is test code in its own file and below; its sibling modules are not.
    #[test]
    fn test_modules_in_other_files() {
        let tree = Tree::of(&[
            ("src/format/mod.rs", "#[cfg(test)]\nmod golden;\nmod header;"),
            ("src/format/golden.rs", "fn a() {}"),
            ("src/format/golden/inner.rs", "fn a() {}"),
            ("src/format/header.rs", "fn a() {}"),
        ]);
        let test: Vec<&str> = tree
            .sources
            .iter()
            .filter(|source| source.is_test_file())
            .map(|source| source.path.as_str())
            .collect();
        assert_eq!(test, ["src/format/golden.rs", "src/format/golden/inner.rs"]);
    }
}
