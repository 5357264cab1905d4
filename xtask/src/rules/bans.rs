//! Banned code, each ban with its replacement.

use super::places;
use crate::finding::Finding;
use crate::paths::named;
use crate::source::{Part, Source, Token};

/// The files in which a ban holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    Everywhere,
    /// The library without its tests.
    Library,
    /// The library without `io` and without its tests.
    LibraryButIo,
    Tests,
}

/// A banned sequence of tokens.
struct Ban {
    words: &'static [&'static str],
    reach: Reach,
    instead: &'static str,
}

const WRITE_IT: &str = "Write it, or leave it out and say so in an issue";
const EXPECT: &str = "Mend the cause, or say #[expect(.., reason = \"..\")]";
const LOG: &str = "Return it, or use the log crate: a library has no terminal";
const CLOCK: &str = "Take the time as an argument, from io::env::Clock";
const COUNT: &str = "Bound it by a count, or wait for an Event: a test's verdict has no clock";
const SEEDED: &str = "Use BTreeMap, or name a hasher: the standard one is slow and no seed can replay it";

const BANS: &[Ban] = &[
    Ban { words: &["todo", "!"], reach: Reach::Everywhere, instead: WRITE_IT },
    Ban { words: &["unimplemented", "!"], reach: Reach::Everywhere, instead: WRITE_IT },
    Ban { words: &["dbg", "!"], reach: Reach::Everywhere, instead: "Take it out" },
    Ban { words: &["#", "[", "allow"], reach: Reach::Everywhere, instead: EXPECT },
    Ban { words: &["#", "!", "[", "allow"], reach: Reach::Everywhere, instead: EXPECT },
    Ban {
        words: &[".", "unwrap", "("],
        reach: Reach::Library,
        instead: "Say why it holds with expect, or return an error if bytes from disk decide",
    },
    Ban { words: &["println", "!"], reach: Reach::Library, instead: LOG },
    Ban { words: &["eprintln", "!"], reach: Reach::Library, instead: LOG },
    Ban { words: &["print", "!"], reach: Reach::Library, instead: LOG },
    Ban { words: &["eprint", "!"], reach: Reach::Library, instead: LOG },
    Ban { words: &["Instant"], reach: Reach::LibraryButIo, instead: CLOCK },
    Ban { words: &["SystemTime"], reach: Reach::LibraryButIo, instead: CLOCK },
    Ban { words: &["Instant"], reach: Reach::Tests, instead: COUNT },
    Ban { words: &["SystemTime"], reach: Reach::Tests, instead: COUNT },
    Ban { words: &["sleep", "("], reach: Reach::Tests, instead: COUNT },
    Ban { words: &["RandomState"], reach: Reach::Library, instead: SEEDED },
    Ban { words: &["DefaultHasher"], reach: Reach::Library, instead: SEEDED },
];

/// A path that only `io` may use.
struct PathBan {
    path: &'static [&'static str],
    instead: &'static str,
}

const STORAGE: &str = "Take an io::storage::Storage";
const SYNC: &str = "Take it from crate::base::sync, where a model checker can take its place";
const THREADS: &str = "Make it a Worker and give it to io::env::Threads";
const RANDOM: &str = "Take an io::env::Random";
const DOOR: &str = "Only src/io talks to the operating system: add it to a trait there";

const PATH_BANS: &[PathBan] = &[
    PathBan { path: &["std", "fs"], instead: STORAGE },
    PathBan { path: &["std", "sync"], instead: SYNC },
    PathBan { path: &["core", "sync"], instead: SYNC },
    PathBan { path: &["alloc", "sync"], instead: SYNC },
    PathBan { path: &["std", "thread"], instead: THREADS },
    PathBan { path: &["std", "env"], instead: DOOR },
    PathBan { path: &["std", "net"], instead: DOOR },
    PathBan { path: &["std", "os"], instead: DOOR },
    PathBan { path: &["std", "process"], instead: DOOR },
    PathBan { path: &["rustix"], instead: DOOR },
    PathBan { path: &["libc"], instead: DOOR },
    PathBan { path: &["rand"], instead: RANDOM },
    PathBan { path: &["getrandom"], instead: RANDOM },
];

/// The file that may name std's atomics and locks.
const SYNC_DOOR: &str = "src/base/sync.rs";

pub(crate) fn check(source: &Source, out: &mut Vec<Finding>) {
    let tokens = source.tokens();
    for ban in BANS {
        for index in places(&tokens, ban.words) {
            if reaches(source, tokens[index].at, ban.reach) {
                found(source, tokens[index].at, format!("`{}`", ban.words.concat()), ban.instead, out);
            }
        }
    }
    paths(source, out);
    conditional_allow(source, &tokens, out);
    default_hashers(source, &tokens, out);
    ignored_results(source, &tokens, out);
    marks(source, out);
}

fn reaches(source: &Source, at: usize, reach: Reach) -> bool {
    let part = source.part_at(at);
    match reach {
        Reach::Everywhere => true,
        Reach::Library => source.in_library() && part == Part::Library,
        Reach::LibraryButIo => {
            source.in_library() && part == Part::Library && !source.path.starts_with("src/io/")
        }
        Reach::Tests => part == Part::Test,
    }
}

fn found(source: &Source, at: usize, wrong: String, instead: &str, out: &mut Vec<Finding>) {
    out.push(Finding::new(&source.path, source.line_of(at), wrong, instead));
}

fn paths(source: &Source, out: &mut Vec<Finding>) {
    for one in named(source) {
        if !reaches(source, one.at, Reach::LibraryButIo) {
            continue;
        }
        let banned = |ban: &&PathBan| {
            one.segments.len() >= ban.path.len() && ban.path.iter().zip(&one.segments).all(|(a, b)| a == b)
        };
        let Some(ban) = PATH_BANS.iter().find(banned) else { continue };
        if ban.instead != SYNC || source.path != SYNC_DOOR {
            found(source, one.at, format!("`{}` outside src/io", one.segments.join("::")), ban.instead, out);
        }
    }
}

/// `cfg_attr(.., allow(..))` counts as an allow.
fn conditional_allow(source: &Source, tokens: &[Token<'_>], out: &mut Vec<Finding>) {
    for index in places(tokens, &["cfg_attr", "("]) {
        let close = crate::source::closing(tokens, index + 1);
        if places(&tokens[index..close], &["allow", "("]).next().is_some() {
            found(source, tokens[index].at, "`allow` in a cfg_attr".to_string(), EXPECT, out);
        }
    }
}

/// Finds maps and sets that use the standard library's default hasher, by type or constructor.
fn default_hashers(source: &Source, tokens: &[Token<'_>], out: &mut Vec<Finding>) {
    for (index, token) in tokens.iter().enumerate() {
        let arguments_least = match token.text {
            "HashMap" => 3,
            "HashSet" => 2,
            _ => continue,
        };
        let follows = |offset: usize| tokens.get(index + offset).map_or("", |token| token.text);
        let is_default = match (follows(1), follows(2)) {
            ("::", "new" | "with_capacity" | "from") => true,
            ("<", _) => generic_arguments(tokens, index + 1) < arguments_least,
            ("::", "<") => generic_arguments(tokens, index + 2) < arguments_least,
            _ => false,
        };
        if is_default && reaches(source, token.at, Reach::Library) {
            found(source, token.at, format!("`{}` with the standard hasher", token.text), SEEDED, out);
        }
    }
}

/// Number of arguments of the `<..>` that opens at `open`.
fn generic_arguments(tokens: &[Token<'_>], open: usize) -> usize {
    let (mut depth, mut count, mut before) = (0i32, 1, "");
    let mut fresh = true;
    for token in &tokens[open..] {
        match token.text {
            "<" | "(" | "[" => depth += 1,
            ">" if before == "-" => {}
            ">" | ")" | "]" => depth -= 1,
            "," if depth == 1 => {
                count += 1;
                fresh = true;
            }
            _ => fresh = false,
        }
        if depth == 0 {
            break;
        }
        before = token.text;
    }
    // A trailing comma does not start another argument.
    if fresh { count - 1 } else { count }
}

/// `let _ =` needs its reason in a comment, on its line or the one above.
fn ignored_results(source: &Source, tokens: &[Token<'_>], out: &mut Vec<Finding>) {
    for index in places(tokens, &["let", "_", "="]) {
        let line = source.line_of(tokens[index].at);
        let has_comment = |line: usize| line > 0 && !source.comment_line(line).trim().is_empty();
        if !has_comment(line) && !has_comment(line - 1) {
            let instead = "Say why on the line above, or handle the result";
            found(source, tokens[index].at, "`let _ =` without its reason".to_string(), instead, out);
        }
    }
}

/// Words that mark unfinished work.
pub(crate) const MARKS: &[&str] = &["TODO", "FIXME", "XXX"];

fn marks(source: &Source, out: &mut Vec<Finding>) {
    for line in 1..=source.line_count() {
        for mark in marks_in(source.comment_line(line)) {
            out.push(Finding::new(&source.path, line, format!("`{mark}` in a comment"), WRITE_IT));
        }
    }
}

/// The marks in `text` that are whole words.
pub(crate) fn marks_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| MARKS.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::findings;

    fn count(path: &str, text: &str) -> usize {
        findings(check, path, text).len()
    }

    /// Every ban finds its own words, in library code and, if it covers them, in tests.
    #[test]
    fn every_ban_trips() {
        for ban in BANS {
            let text = format!("fn f() {{ {} }}", ban.words.join(" "));
            let path = if ban.reach == Reach::Tests { "src/a/tests.rs" } else { "src/a.rs" };
            assert!(count(path, &text) > 0, "{text}");
            assert_eq!(
                count("src/a.rs", &format!("// {text}\nconst A: &str = \"{}\";", ban.words.concat())),
                0
            );
        }
        for ban in PATH_BANS {
            let path = ban.path.join("::");
            assert_eq!(count("src/a.rs", &format!("use {path}::x;")), 1, "{path}");
            assert_eq!(count("src/a.rs", &format!("fn f() {{ {path}::x(); }}")), 1, "{path}");
            assert_eq!(count("src/io/os/a.rs", &format!("use {path}::x;")), 0, "{path}");
            assert_eq!(count("src/a/tests.rs", &format!("use {path}::x;")), 0, "{path}");
        }
        assert_eq!(count("src/a.rs", "use std::{fmt, sync::Arc, time::Duration};"), 1);
    }

    /// Code that resembles a ban passes.
    #[test]
    fn neighbours_pass() {
        for (path, text) in [
            ("src/base/sync.rs", "use std::sync::Arc;"),
            (
                "src/a.rs",
                "#[expect(dead_code, reason = \"b\")] fn f() { x.unwrap_or(1); x.unwrap_or_default(); }",
            ),
            ("src/a.rs", "use std::time::Duration; struct Allow; thread_local! {}"),
            ("src/a.rs", "fn f() {}\n#[cfg(test)]\nmod tests { fn g() { x.unwrap(); println!(); } }"),
            ("cli/src/main.rs", "fn main() { println!(); std::fs::read(x).unwrap(); }"),
            ("src/a.rs", "#[cfg_attr(test, derive(Debug))] struct A;"),
        ] {
            assert_eq!(findings(check, path, text), [], "{text}");
        }
    }

    /// An allow behind a condition is still an allow.
    #[test]
    fn conditional_allows_trip() {
        assert_eq!(count("src/a.rs", "#![cfg_attr(not(test), allow(dead_code))]"), 1);
    }

    /// Types and constructors with the standard hasher are found; explicit hashers and imports pass.
    #[test]
    fn standard_hashers() {
        for bad in [
            "HashMap<u8, Vec<(u8, u8)>>",
            "HashSet<(u8, u8)>",
            "HashMap::<u8, fn() -> u8>::default()",
            "HashSet::new()",
            "HashMap<u8, u8,>",
        ] {
            assert_eq!(count("src/a.rs", &format!("type A = {bad};")), 1, "{bad}");
        }
        for good in [
            "HashMap<u8, u8, Mixed>",
            "HashSet<u8, Mixed>",
            "HashMap::with_hasher(Mixed)",
            "BTreeMap<u8, u8>",
        ] {
            let text = format!("use std::collections::{{HashMap, HashSet}};\ntype A = {good};");
            assert_eq!(count("src/a.rs", &text), 0, "{good}");
        }
    }

    /// A dropped result needs its reason on its line or the one above.
    #[test]
    fn dropped_results() {
        assert_eq!(count("src/a.rs", "fn f() {\n    let _ = g();\n}"), 1);
        assert_eq!(count("src/a.rs", "fn f() {\n    // The file may be gone.\n    let _ = g();\n}"), 0);
        assert_eq!(count("src/a.rs", "fn f() {\n    let _ = g(); // The file may be gone.\n}"), 0);
        assert_eq!(count("src/a.rs", "fn f() { let _guard = g(); }"), 0);
    }

    /// Marks are found only as whole words of a comment.
    #[test]
    fn unfinished_marks() {
        for mark in MARKS {
            assert_eq!(count("src/a.rs", &format!("// {mark}: b")), 1);
            assert_eq!(count("src/a.rs", &format!("const A: &str = \"{mark}\"; // {mark}S")), 0);
        }
    }
}
