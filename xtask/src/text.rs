//! Generated pages: a command makes each page from the tree, then writes it or compares it with the file.

use std::path::Path;

use crate::tree::Tree;
use crate::{api, docs, format, settings};

/// A page that is generated, in whole or in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Document {
    Format,
    Settings,
    Layers,
    Api,
}

/// The action on a generated page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Write,
    /// Writes nothing, and fails if the file differs.
    Check,
}

impl Document {
    fn path(self) -> &'static str {
        match self {
            Document::Format => "docs/FORMAT.md",
            Document::Settings => "docs/SETTINGS.md",
            Document::Layers => docs::ARCHITECTURE,
            Document::Api => api::PATH,
        }
    }

    fn command(self) -> &'static str {
        match self {
            Document::Format => "cargo xtask format",
            Document::Settings => "cargo xtask settings",
            Document::Layers => "cargo xtask layers",
            Document::Api => "cargo xtask api",
        }
    }

    fn make(self, tree: &Tree) -> Result<String, String> {
        match self {
            Document::Format => format::page(tree),
            Document::Settings => settings::page(tree),
            Document::Api => api::page(tree),
            Document::Layers => {
                let page = tree.text(docs::ARCHITECTURE).ok_or("there is no docs/ARCHITECTURE.md")?;
                docs::with_layers(page).ok_or("docs/ARCHITECTURE.md has lost its layers markers".to_string())
            }
        }
    }
}

/// Generates the page and writes it, or fails if the file is stale.
pub(crate) fn settle(root: &Path, document: Document, mode: Mode) -> Result<(), String> {
    let tree = Tree::load(root)?;
    let text = document.make(&tree)?;
    let path = root.join(document.path());
    match mode {
        Mode::Write => std::fs::write(&path, text)
            .map_err(|error| format!("could not write {}: {error}", path.display())),
        Mode::Check => is_current(tree.text(document.path()), &text)
            .map_err(|line| format!("{}:{line} is stale. Run {}", document.path(), document.command())),
    }
}

/// Returns the first differing line as the error.
fn is_current(kept: Option<&str>, made: &str) -> Result<(), usize> {
    let kept = kept.unwrap_or_default();
    if kept == made {
        return Ok(());
    }
    let same = kept.lines().zip(made.lines()).take_while(|(one, other)| one == other).count();
    Err(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stale page is reported with its first differing line; a missing one is stale from line 1.
    #[test]
    fn stale_pages_are_refused() {
        assert_eq!(is_current(Some("a\nb\n"), "a\nb\n"), Ok(()));
        assert_eq!(is_current(Some("a\nb\n"), "a\nc\n"), Err(2));
        assert_eq!(is_current(Some("a\n"), "a\nc\n"), Err(2));
        assert_eq!(is_current(None, "a\n"), Err(1));
    }
}
