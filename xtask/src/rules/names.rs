//! Names of types: in the library a name that files share stands for one type.
//!
//! A type private to its file may have any name. So may test code: `tests.rs`, `tests/`, and items and
//! modules under `#[cfg(test)]`. A model of loom is such a module: its `cfg` has `test` beside `loom`.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::source::{Part, Source, Token, closing};
use crate::tree::Tree;

/// Keywords that declare a type.
const KEYWORDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

/// Reports each declaration whose name an earlier one has, by path and line.
pub(crate) fn check(tree: &Tree, out: &mut Vec<Finding>) {
    let mut sources: Vec<&Source> = tree.sources.iter().filter(|source| source.in_library()).collect();
    sources.sort_by_key(|source| &source.path);
    let mut firsts: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for source in sources {
        for (name, at) in shared_types(source, &source.tokens()) {
            let line = source.line_of(at);
            let Some((path, first)) = firsts.get(name) else {
                firsts.insert(name, (&source.path, line));
                continue;
            };
            out.push(Finding::new(
                &source.path,
                line,
                format!("a second type named `{name}`; the other is at {path}:{first}"),
                "Rename one with a noun that says what it is: the one in memory rather than the one on disk, \
                 and never a public one",
            ));
        }
    }
}

/// Name and offset of each type that other files can name.
fn shared_types<'a>(source: &'a Source, tokens: &[Token<'a>]) -> Vec<(&'a str, usize)> {
    let mut out = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        if token.text != "pub" || source.part_at(token.at) != Part::Library {
            continue;
        }
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
        let mut next = index + 1;
        if text(next) == "(" {
            if text(next + 1) == "self" {
                continue;
            }
            next = closing(tokens, next) + 1;
        }
        next += ["unsafe", "auto"].iter().filter(|word| **word == text(next)).count();
        if !KEYWORDS.contains(&text(next)) {
            continue;
        }
        // In a macro the name may be a variable.
        if let Some(name) = tokens.get(next + 1).filter(|token| token.is_word()) {
            out.push((&source.code[name.at..name.at + name.text.len()], name.at));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Finding> {
        let mut out = Vec::new();
        check(&Tree::of(files), &mut out);
        out
    }

    /// Two types of one name that other files can name are refused, of every kind and visibility; the message
    /// names the other.
    #[test]
    fn doubles_trip() {
        for second in [
            "pub struct Place;",
            "pub(crate) enum Place {}",
            "pub(super) unsafe trait Place {}",
            "pub(in crate::io) type Place = u8;",
            "#[cfg(unix)]\npub(crate) union Place { a: u8 }",
            "pub(super)\nstruct Place<'a>(&'a u8);",
        ] {
            let found = found(&[("src/b.rs", second), ("src/a.rs", "\npub(crate) struct Place;")]);
            let [one] = &*found else { panic!("{second}: {found:?}") };
            assert_eq!(one.path, "src/b.rs", "{second}");
            assert!(one.wrong.ends_with("`Place`; the other is at src/a.rs:2"), "{one}");
        }
        let three = ["src/a.rs", "src/b.rs", "src/c.rs"].map(|path| (path, "pub struct Place;"));
        assert_eq!(found(&three).len(), 2);
        assert_eq!(found(&[("src/a.rs", "pub struct A;\nmod b { pub(crate) struct A; }")]).len(), 1);
    }

    /// Private types, tests, models, other packages, macros' variables and associated types are free.
    #[test]
    fn others_pass() {
        let first = ("src/a.rs", "pub(crate) struct Place;");
        for (path, text) in [
            ("src/b.rs", "struct Place; enum Other {} pub fn place() -> Place {}"),
            ("src/b.rs", "pub(self) struct Place;"),
            ("src/b.rs", "pub(crate) struct QueuedRead;"),
            ("src/b.rs", "impl Iterator for B { type Place = u8; }"),
            ("src/b.rs", "// pub struct Place;\nconst A: &str = \"pub struct Place;\";"),
            ("src/b.rs", "macro_rules! place { ($Place:ident) => { pub(crate) struct $Place; }; }"),
            ("src/b.rs", "#[cfg(test)]\nmod tests { pub(super) struct Place; }"),
            ("src/b.rs", "#[cfg(test)]\npub(crate) struct Place;"),
            ("src/b/tests.rs", "pub(super) struct Place;"),
            ("src/b/tests/run.rs", "pub(super) struct Place;"),
            ("cli/src/b.rs", "pub(crate) struct Place;"),
        ] {
            assert_eq!(found(&[first, (path, text)]), [], "{text}");
        }
        let model = ("src/b/model.rs", "pub(crate) struct Place;");
        let under = |cfg: &str| found(&[first, ("src/b.rs", &format!("{cfg}\nmod model;")), model]).len();
        assert_eq!((under("#[cfg(all(loom, test))]"), under("#[cfg(loom)]")), (0, 1));
    }
}
