//! docs/FORMAT.md: the module docs of `src/format` in reading order, each with links to the goldens of its
//! tests.
//!
//! The page has the modules in [`ORDER`]. A module with a drawing of bytes that is not in the list is an
//! error, so no shape can be left out.

use std::collections::BTreeSet;

use crate::docs::{golden_files, names_golden};
use crate::source::Source;
use crate::tree::Tree;

/// Modules in reading order; the empty name is `src/format` itself.
const ORDER: &[&str] = &[
    "",
    "header",
    "store",
    "witness",
    "frames",
    "log",
    "manifest",
    "table",
    "table/data",
    "table/compressed",
    "table/filter",
    "table/filter/line",
    "table/filter/bloom",
    "table/filter/fuse",
    "table/filter/column",
    "table/fence",
    "table/fence_quanta",
    "table/learned",
    "table/top",
    "table/ranges",
    "table/footer",
];

const HEAD: &str = "\
# The bytes on disk

Written by `cargo xtask format` from the module docs of `src/format`. An example is a file of `tests/golden`;
tests compare it with the bytes that the code writes. Change those, not this page.
";

/// The whole page.
pub(crate) fn page(tree: &Tree) -> Result<String, String> {
    let modules: Vec<(String, &Source)> = tree
        .sources
        .iter()
        .filter(|source| !source.is_test_file())
        .filter_map(|source| Some((name_of(&source.path)?, source)))
        .collect();
    for (name, source) in &modules {
        let draws = doc(source).iter().any(|line| line.trim_start().starts_with("```"));
        if draws && !ORDER.contains(&name.as_str()) {
            let wrong =
                "draws bytes and is not in the order of the page. Add it to ORDER in xtask/src/format.rs";
            return Err(format!("{}:1 {wrong}", source.path));
        }
    }
    let mut out = HEAD.to_string();
    let mut shown = BTreeSet::new();
    for name in ORDER {
        if let Some((_, source)) = modules.iter().find(|(have, _)| have == name) {
            out += &section(name, source, tree, &mut shown);
        }
    }
    Ok(out)
}

/// The module's name below `src/format`, or `None` for a file elsewhere.
fn name_of(path: &str) -> Option<String> {
    let inner = path.strip_prefix("src/format/")?.strip_suffix(".rs")?;
    Some(inner.strip_suffix("mod").map_or(inner, |folder| folder.trim_end_matches('/')).to_string())
}

/// Lines of the module doc, without their marks.
fn doc(source: &Source) -> Vec<&str> {
    let lines = source.raw.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect()
}

/// The module's text and links to its goldens; a golden of several modules is linked at the first.
fn section<'a>(name: &str, source: &Source, tree: &'a Tree, shown: &mut BTreeSet<&'a str>) -> String {
    let title = if name.is_empty() { "All files".to_string() } else { name.replace('/', ": ") };
    let mut out = format!("\n## {title}\n\n");
    let mut inside = false;
    for line in doc(source) {
        inside ^= line.trim_start().starts_with("```");
        // Headings in a module's text are one level below the heading of its section.
        let heading = if !inside && line.starts_with('#') { "##" } else { "" };
        let text = if inside { line.to_string() } else { without_rust_links(line) };
        out += &format!("{heading}{text}\n");
    }
    let base = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
    let tests = format!("{base}/tests.rs");
    let in_module = |stem: &str| {
        names_golden(&source.raw, stem) || tree.text(&tests).is_some_and(|text| names_golden(text, stem))
    };
    for (path, stem) in golden_files(tree).filter(|(_, stem)| in_module(stem) && shown.insert(stem)) {
        out += &format!("\nExample, byte by byte: [{stem}](../{path})\n");
    }
    out
}

/// The line with rustdoc's links to items replaced by the items' names.
fn without_rust_links(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(start) = rest.find("[`") {
        out += &rest[..start];
        rest = &rest[start + 1..];
        let Some(end) = rest.find("`]") else {
            out.push('[');
            break;
        };
        out += &rest[..end + 1];
        rest = &rest[end + 2..];
        if let Some(target) = rest.strip_prefix('(')
            && let Some((_, after)) = target.split_once(')')
        {
            rest = after;
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "//! The header, see [`Header::check`] and [`X`](crate::y::X).\n//!\n//! ```text\n//! # [`0`]\n//! ```\n\
                          //! # More\n\nfn f() { Golden::new(\"header\", b) }\n//! not this\n";

    /// Docs come in order with their goldens after them; links to items become names; drawings stay
    /// unchanged.
    #[test]
    fn the_page_is_built() {
        let tree = Tree::of(&[
            ("src/format/table/mod.rs", "//! Tables.\n\nfn f() { golden.field(\"header\", 9) }"),
            ("src/format/table/data_build.rs", "//! No drawing."),
            ("src/format/header.rs", HEADER),
            ("src/format/mod.rs", "//! All."),
            ("tests/golden/header.txt", "00 magic\n"),
            ("tests/golden/store.txt", "01 slot\n"),
        ]);
        let page = page(&tree).expect("every module with a drawing is in the order");
        let expected = "\n## All files\n\nAll.\n\n## header\n\nThe header, see `Header::check` and `X`.\n\n```text\n# [`0`]\n```\n\
                        ### More\n\nExample, byte by byte: [header](../tests/golden/header.txt)\n\n## table\n\nTables.\n";
        assert_eq!(page, format!("{HEAD}{expected}"));
    }

    /// A drawing that is missing from the page is an error.
    #[test]
    fn no_drawing_is_left_out() {
        let tree = Tree::of(&[("src/format/extra.rs", "//! Extra.\n//! ```text\n//! 0\n//! ```\n")]);
        assert!(page(&tree).is_err_and(|message| message.starts_with("src/format/extra.rs:1")));
    }
}
