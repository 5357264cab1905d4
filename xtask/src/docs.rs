//! Rules about the pages, the goldens and every other text file.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::layers;
use crate::rules::marks_in;
use crate::tree::Tree;

/// The page of limits: the last column of its table names a test for each limit.
pub(crate) const LIMITS: &str = "docs/LIMITS.md";
/// The page with a copy of the import table.
pub(crate) const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";
const GOLDENS: &str = "tests/golden/";
/// The last cell of a limit without a test.
const NONE_YET: &str = "none yet";

pub(crate) fn check(tree: &Tree, out: &mut Vec<Finding>) {
    links(tree, out);
    limits(tree, out);
    layers_copy(tree, out);
    goldens(tree, out);
    machine_paths(tree, out);
    marks(tree, out);
}

/// Links between files of the project lead to a file, and to a heading of it if they name one.
fn links(tree: &Tree, out: &mut Vec<Finding>) {
    let names: BTreeSet<&str> = tree.files().map(|(path, _)| path).collect();
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in link_targets(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let full = if file.is_empty() { path.clone() } else { join(path, file) };
            let is_folder = names.iter().any(|name| name.starts_with(&format!("{full}/")));
            if !names.contains(full.as_str()) && !is_folder {
                let wrong = format!("a link to `{target}`, and there is no {full}");
                out.push(Finding::new(
                    path,
                    line,
                    wrong,
                    "Link to a file that is in the tree, or take the link out",
                ));
            } else if !anchor.is_empty() && !tree.text(&full).is_none_or(|text| has_heading(text, anchor)) {
                let wrong = format!("a link to `{target}`, and {full} has no such heading");
                out.push(Finding::new(
                    path,
                    line,
                    wrong,
                    "Name a heading of that page, in lower case with hyphens",
                ));
            }
        }
    }
}

/// Line and target of every link outside code.
fn link_targets(text: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    for (index, line) in outside_fences(text) {
        let mut is_code = false;
        for piece in line.split('`') {
            if !is_code {
                let targets = piece.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
                out.extend(targets.map(|target| (index, target)));
            }
            is_code = !is_code;
        }
        // The text of a link that is code has backquotes, which split the link.
        for (at, _) in line.match_indices("`](") {
            out.extend(line[at + 3..].split([')', ' ']).next().map(|target| (index, target)));
        }
    }
    out.sort();
    out.dedup();
    out
}

/// Lines outside code blocks, numbered from 1.
fn outside_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        !inside && !is_fence
    })
}

/// Resolves `file` relative to the folder of `page`.
pub(crate) fn join(page: &str, file: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in file.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn has_heading(text: &str, anchor: &str) -> bool {
    let slug = |heading: &str| -> String {
        let kept = heading.trim().to_lowercase();
        kept.chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    outside_fences(text)
        .filter(|(_, line)| line.starts_with('#'))
        .any(|(_, line)| slug(line.trim_start_matches('#')) == anchor)
}

/// Rows of the table of limits: line, limit, last cell.
fn limit_rows(text: &str) -> Vec<(usize, &str, &str)> {
    let rows = (1..).zip(text.lines()).filter(|(_, line)| line.starts_with('|'));
    rows.filter_map(|(line, row)| {
        let cells: Vec<&str> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
        let is_head =
            cells.iter().all(|cell| cell.chars().all(|c| "-: ".contains(c))) || cells.last() == Some(&"test");
        (!is_head).then(|| (line, cells[0], cells[cells.len() - 1]))
    })
    .collect()
}

/// Each limit names a test that exists, or states that it has none yet.
fn limits(tree: &Tree, out: &mut Vec<Finding>) {
    let Some(text) = tree.text(LIMITS) else { return };
    let tests = test_names(tree);
    for (line, limit, cell) in limit_rows(text) {
        let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if named.is_empty() && cell != NONE_YET {
            out.push(Finding::new(
                LIMITS,
                line,
                format!("the limit \"{limit}\" names no test"),
                format!("Name one in backquotes in the last column, or say \"{NONE_YET}\""),
            ));
        }
        for name in named.iter().filter(|name| !tests.contains(name.rsplit("::").next().unwrap_or(name))) {
            let wrong = format!("the limit \"{limit}\" names the test `{name}`, which does not exist");
            out.push(Finding::new(
                LIMITS,
                line,
                wrong,
                "Write the test, or name the one that shows the limit",
            ));
        }
    }
}

/// Limits that state they have no test yet.
pub(crate) fn limits_without_test(tree: &Tree) -> Vec<&str> {
    let rows = tree.text(LIMITS).map(limit_rows).unwrap_or_default();
    rows.into_iter().filter(|(_, _, cell)| *cell == NONE_YET).map(|(_, limit, _)| limit).collect()
}

/// Names of all functions under `#[test]`.
fn test_names(tree: &Tree) -> BTreeSet<&str> {
    let mut out = BTreeSet::new();
    for source in &tree.sources {
        let tokens = source.tokens();
        for (index, window) in tokens.windows(4).enumerate() {
            if window.iter().map(|token| token.text).eq(["#", "[", "test", "]"])
                && let Some(keyword) = tokens[index..].iter().position(|token| token.text == "fn")
                && let Some(name) = tokens.get(index + keyword + 1)
            {
                out.insert(name.text);
            }
        }
    }
    out
}

/// The import table on the page is the enforced one.
fn layers_copy(tree: &Tree, out: &mut Vec<Finding>) {
    let Some(text) = tree.text(ARCHITECTURE) else { return };
    if with_layers(text).as_deref() != Some(text) {
        let line = text.lines().position(|line| line == layers::BEGIN).map_or(1, |index| index + 1);
        out.push(Finding::new(
            ARCHITECTURE,
            line,
            "the import table is not the one in xtask/src/layers.rs",
            "Run cargo xtask layers, and keep both marker lines",
        ));
    }
}

/// The page with the import table rewritten between its markers; `None` without markers.
pub(crate) fn with_layers(page: &str) -> Option<String> {
    let (before, rest) = page.split_once(layers::BEGIN)?;
    let (_, after) = rest.split_once(layers::END)?;
    Some(format!("{before}{}\n{}{}{after}", layers::BEGIN, layers::markdown(), layers::END))
}

/// Every golden is read by some test.
fn goldens(tree: &Tree, out: &mut Vec<Finding>) {
    for (path, stem) in golden_files(tree) {
        if !tree.sources.iter().any(|source| names_golden(&source.raw, stem)) {
            out.push(Finding::new(
                path,
                1,
                "a golden that no test reads",
                "Delete it, or write the test that compares with it",
            ));
        }
    }
}

/// Path and name of every golden.
pub(crate) fn golden_files(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.texts.iter().filter_map(|(path, _)| {
        let stem = path.strip_prefix(GOLDENS)?.strip_suffix(".txt")?;
        Some((path.as_str(), stem))
    })
}

/// Whether a string of the Rust text names the golden.
pub(crate) fn names_golden(rust: &str, stem: &str) -> bool {
    [format!("\"{stem}\""), format!("\"{stem}.txt\""), format!("/{stem}.txt\"")]
        .iter()
        .any(|name| rust.contains(name))
}

/// Folders of developers' machines, with the letters apart so that this file does not name them.
const MACHINE_FOLDERS: &[&str] = &[concat!("/", "work"), concat!("/", "root"), concat!("/", "home")];

/// No file names a folder of the machine it was written on.
fn machine_paths(tree: &Tree, out: &mut Vec<Finding>) {
    let goes_on = |c: char| c.is_alphanumeric() || "_-./*{}<>:$~)]".contains(c);
    for (path, text) in tree.files() {
        for (line, content) in (1..).zip(text.lines()) {
            for folder in MACHINE_FOLDERS {
                let named = content.match_indices(folder).any(|(at, _)| {
                    let before = content[..at].chars().next_back();
                    let after = content[at + folder.len()..].chars().next();
                    !before.is_some_and(goes_on)
                        && !after.is_some_and(|c| c.is_alphanumeric() || "_-".contains(c))
                });
                if named {
                    out.push(Finding::new(
                        path,
                        line,
                        format!("`{folder}` is a folder of one machine"),
                        "Say the path relative to the project, or make a temporary directory",
                    ));
                }
            }
        }
    }
}

/// Pages, manifests and scripts have no marks of unfinished work; comments of Rust files have a rule of their
/// own.
fn marks(tree: &Tree, out: &mut Vec<Finding>) {
    let is_ours = |path: &str| {
        [".md", ".toml", ".sh", ".yml"].iter().any(|end| path.ends_with(end)) || path.starts_with(".ci/")
    };
    for (path, text) in tree.texts.iter().filter(|(path, _)| is_ours(path)) {
        for (line, content) in (1..).zip(text.lines()) {
            for mark in marks_in(content) {
                out.push(Finding::new(path, line, format!("`{mark}`"), "Finish it, or say so in an issue"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(rule: fn(&Tree, &mut Vec<Finding>), files: &[(&str, &str)]) -> usize {
        let mut out = Vec::new();
        rule(&Tree::of(files), &mut out);
        out.len()
    }

    /// Links lead to files and headings; code, addresses and folders are not checked.
    #[test]
    fn links_resolve() {
        let other = ("docs/B.md", "# One two: `three`\n");
        for (text, expected) in [
            (
                "[a](B.md) [a](./B.md#one-two-three) [a](../README.md) [a](#here) [a](decisions/)\n## Here\n",
                0,
            ),
            ("[a](https://example.org) `[a](C.md)`\n```\n[a](C.md)\n```\n", 0),
            ("[a](C.md)\n", 1),
            ("[`a`](C.md)\n", 1),
            ("[a](B.md#four)\n", 1),
        ] {
            let files = [("docs/A.md", text), other, ("README.md", ""), ("docs/decisions/0000.md", "")];
            assert_eq!(count(links, &files), expected, "{text}");
        }
    }

    /// A limit's test exists; a row without a test must state that.
    #[test]
    fn limits_have_tests() {
        let page = |cell: &str| {
            format!("# Limits\n\n| limit | value | test |\n|---|---|---|\n| key | 9 | {cell} |\n")
        };
        let test = ("tests/a.rs", "#[test]\n#[cfg(unix)]\nfn longest_key() {}\nfn no_test() {}\n");
        for (cell, expected) in
            [("`longest_key`", 0), ("none yet", 0), ("`no_test`", 1), ("`gone`", 1), ("", 1), ("soon", 1)]
        {
            assert_eq!(count(limits, &[(LIMITS, &page(cell)), test]), expected, "{cell}");
        }
        let tree = Tree::of(&[(LIMITS, &page("none yet"))]);
        assert_eq!(limits_without_test(&tree), ["key"]);
    }

    /// The copied table is the enforced one, and its markers are present.
    #[test]
    fn the_copy_is_current() {
        let good = format!("# A\n{}\n{}{}\n", layers::BEGIN, layers::markdown(), layers::END);
        assert_eq!(count(layers_copy, &[(ARCHITECTURE, &good)]), 0);
        assert_eq!(count(layers_copy, &[(ARCHITECTURE, &good.replace("| base |", "| bass |"))]), 1);
        assert_eq!(count(layers_copy, &[(ARCHITECTURE, "# A\n")]), 1);
    }

    /// A golden that no test reads is found.
    #[test]
    fn goldens_are_used() {
        let golden = ("tests/golden/header.txt", "00");
        assert_eq!(count(goldens, &[golden, ("src/a.rs", "Golden::new(\"header\", b)")]), 0);
        assert_eq!(count(goldens, &[golden, ("src/a.rs", "Golden::new(\"headers\", b)")]), 1);
        assert_eq!(count(goldens, &[("tests/golden/README.md", "a")]), 0);
    }

    /// A developer's folder is found in any file; longer names and parts of other paths do not count.
    #[test]
    fn machine_paths_are_found() {
        for folder in MACHINE_FOLDERS {
            assert_eq!(count(machine_paths, &[("docs/A.md", &format!("see {folder}/x"))]), 1);
            assert_eq!(count(machine_paths, &[("src/a.rs", &format!("let a = \"{folder}\";"))]), 1);
            assert_eq!(
                count(machine_paths, &[("docs/A.md", &format!("a{folder} {folder}s /b{folder}/c"))]),
                0
            );
        }
    }

    /// Marks of unfinished work are found in pages and scripts.
    #[test]
    fn pages_have_no_marks() {
        let mark = crate::rules::MARKS[0];
        assert_eq!(count(marks, &[("docs/A.md", mark), (".ci/run", mark), ("tests/golden/a.txt", mark)]), 2);
        assert_eq!(count(marks, &[("docs/A.md", "nothing to do")]), 0);
    }
}
