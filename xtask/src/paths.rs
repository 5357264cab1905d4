//! Paths in a file: every path of a `use` tree, and every path in code.

use crate::source::{Source, Token, closing};

/// The kind of place where a path occurs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Naming {
    Use,
    PublicUse,
    Inline,
}

/// One path in source form: `super`, `io`, `env`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named<'a> {
    pub(crate) segments: Vec<&'a str>,
    /// Offset in the file.
    pub(crate) at: usize,
    pub(crate) naming: Naming,
    /// Inline modules around the path, outermost first.
    pub(crate) inside: Vec<&'a str>,
}

/// All paths of two segments or more, and all `use`s.
pub(crate) fn named(source: &Source) -> Vec<Named<'_>> {
    let tokens = source.tokens();
    let mut out = Vec::new();
    let mut open: Vec<(&str, usize)> = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        open.retain(|(_, end)| *end > index);
        let inside: Vec<&str> = open.iter().map(|(name, _)| *name).collect();
        let text = tokens[index].text;
        let follows = |offset: usize| tokens.get(index + offset).map_or("", |token| token.text);
        if text == "mod" && follows(2) == "{" {
            open.push((follows(1), closing(&tokens, index + 2)));
            index += 2;
        } else if text == "use" && begins_statement(&tokens, index) {
            let public = index > 0 && tokens[index - 1].text == "pub";
            let naming = if public { Naming::PublicUse } else { Naming::Use };
            let mut found = Vec::new();
            index = use_tree(&tokens, index + 1, &[], &mut found);
            out.extend(found.into_iter().map(|(segments, at)| Named {
                segments,
                at,
                naming,
                inside: inside.clone(),
            }));
        } else if text == "pub" && follows(1) == "(" && follows(2) == "in" {
            // The path of `pub(in ..)` limits visibility, and is not an import.
            index = closing(&tokens, index + 1) + 1;
        } else if tokens[index].is_word() && follows(1) == "::" {
            let at = tokens[index].at;
            let mut segments = vec![text];
            while tokens.get(index + 1).is_some_and(|token| token.text == "::")
                && tokens.get(index + 2).is_some_and(Token::is_word)
            {
                segments.push(tokens[index + 2].text);
                index += 2;
            }
            if segments.len() > 1 {
                out.push(Named { segments, at, naming: Naming::Inline, inside });
            }
            index += 1;
        } else {
            index += 1;
        }
    }
    out
}

/// A `use` declaration, not the `use<..>` of a captured lifetime.
fn begins_statement(tokens: &[Token<'_>], index: usize) -> bool {
    tokens.get(index + 1).is_some_and(|next| next.text != "<")
}

/// Splits one `use` tree into paths; returns the index after it.
fn use_tree<'a>(
    tokens: &[Token<'a>],
    mut index: usize,
    prefix: &[&'a str],
    out: &mut Vec<(Vec<&'a str>, usize)>,
) -> usize {
    let mut path = prefix.to_vec();
    let start = tokens.get(index).map_or(0, |token| token.at);
    while let Some(token) = tokens.get(index) {
        match token.text {
            "::" => index += 1,
            "{" => {
                index += 1;
                while tokens.get(index).is_some_and(|token| token.text != "}") {
                    index = use_tree(tokens, index, &path, out);
                    if tokens.get(index).is_some_and(|token| token.text == ",") {
                        index += 1;
                    }
                }
                return index + 1;
            }
            "as" => index += 2,
            "self" if !path.is_empty() => index += 1,
            "," | "}" | ";" => break,
            text => {
                path.push(text);
                index += 1;
            }
        }
    }
    if !path.is_empty() {
        out.push((path, start));
    }
    index
}

/// The path from the crate's root, if the path begins with `crate`, `self` or `super`.
pub(crate) fn absolute(named: &Named<'_>, module: &[String]) -> Option<Vec<String>> {
    let mut here: Vec<String> = module.to_vec();
    here.extend(named.inside.iter().map(|name| name.to_string()));
    let mut segments = named.segments.iter().copied().peekable();
    match segments.next()? {
        "crate" => here.clear(),
        "self" => {}
        "super" => {
            here.pop();
            while segments.peek() == Some(&"super") {
                here.pop();
                segments.next();
            }
        }
        _ => return None,
    }
    here.extend(segments.map(str::to_string));
    Some(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absolutes(path: &str, text: &str) -> Vec<String> {
        let source = Source::new(path, text);
        let module = source.module();
        named(&source).iter().filter_map(|one| absolute(one, &module)).map(|path| path.join("::")).collect()
    }

    /// Nested groups, renames, globs and `self` in a group are expanded.
    #[test]
    fn use_trees_are_expanded() {
        let source = Source::new("src/a.rs", "pub use b::{self, c::{d as e, f}, g::*};\nuse h;");
        let all = named(&source);
        let paths: Vec<String> = all.iter().map(|one| one.segments.join("::")).collect();
        assert_eq!(paths, ["b", "b::c::d", "b::c::f", "b::g::*", "h"]);
        assert_eq!(all[0].naming, Naming::PublicUse);
        assert_eq!(all[4].naming, Naming::Use);
    }

    /// `crate`, `super`, `super::super` and `self` resolve to the same names, in `use` and in code, also in
    /// inline modules.
    #[test]
    fn paths_are_resolved() {
        let text = "use crate::base::id;\nuse super::super::super::wal::Log;\nuse self::x::Y;\n\
                    fn f() -> super::Z { crate::read::get() }\nmod inner { use super::super::W; }";
        assert_eq!(
            absolutes("src/io/os/ring.rs", text),
            ["base::id", "wal::Log", "io::os::ring::x::Y", "io::os::Z", "read::get", "io::os::W"]
        );
    }

    /// Paths in comments and strings do not count, nor does the tail of a path or the path of `pub(in ..)`.
    #[test]
    fn only_code_names_paths() {
        let seen = "pub(in crate::io) struct A; pub(in crate::io) fn f(b: crate::base::B) {}";
        assert_eq!(absolutes("src/io/os/ring.rs", seen), ["base::B"]);
        assert!(
            absolutes("src/a.rs", "// crate::read\nlet a = \"crate::read\"; std::crate_like::x();")
                .is_empty()
        );
    }
}
