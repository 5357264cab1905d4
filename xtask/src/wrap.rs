//! `cargo xtask wrap`: breaks comment lines that are too long, and lets the remaining words flow into the
//! next line.
//!
//! It is not a formatter: lines within the limit stay unchanged, as do drawings, tables, headings and code.
//! rustfmt formats code.

use std::collections::VecDeque;
use std::path::Path;

use crate::rules::LINE_CHARACTERS_MAX;
use crate::source::Source;
use crate::tree::Tree;

/// Wraps the comments of every Rust file with a comment line that is too long.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    for source in &Tree::load(root)?.sources {
        let text = wrapped(source);
        if text != source.raw {
            std::fs::write(root.join(&source.path), text)
                .map_err(|error| format!("could not write {}: {error}", source.path))?;
            println!("{}", source.path);
        }
    }
    Ok(())
}

/// A comment on a line of its own: `indent`, then `mark`, then words.
#[derive(PartialEq, Eq, Debug)]
struct Comment<'a> {
    indent: &'a str,
    mark: &'a str,
    /// White space between the mark and the words.
    hang: &'a str,
    words: &'a str,
}

impl<'a> Comment<'a> {
    fn of(line: &'a str) -> Option<Comment<'a>> {
        let rest = line.trim_start();
        let mark = ["///", "//!", "//"].into_iter().find(|mark| rest.starts_with(mark))?;
        let after = &rest[mark.len()..];
        let words = after.trim_start();
        Some(Comment {
            indent: &line[..line.len() - rest.len()],
            mark,
            hang: &after[..after.len() - words.len()],
            words,
        })
    }

    /// Characters by which an item's text is indented after its mark: 3 for `1. `.
    fn item_characters(&self) -> usize {
        let digits = self.words.chars().take_while(char::is_ascii_digit).count();
        if digits > 0 && self.words[digits..].starts_with(". ") {
            digits + 2
        } else if self.words.starts_with("- ") || self.words.starts_with("* ") {
            2
        } else {
            0
        }
    }

    /// Whether words may flow into this line from the one above.
    fn continues(&self, above: &Comment<'_>) -> bool {
        let begins_anew = self.words.is_empty()
            || self.item_characters() > 0
            || ["#", "|", "```", "SAFETY:"].iter().any(|start| self.words.starts_with(start));
        self.mark == above.mark && self.indent == above.indent && !begins_anew
    }
}

/// The text of the file with its long comment lines wrapped.
fn wrapped(source: &Source) -> String {
    // Text inside a string is not a comment, even if it looks like one.
    let is_comment = |line| !source.comment_line(line).is_empty() && source.code_line(line).trim().is_empty();
    let mut rest: VecDeque<(String, bool)> =
        (1..).zip(source.raw.split('\n')).map(|(line, text)| (text.to_string(), is_comment(line))).collect();
    let mut lines = Vec::new();
    let mut is_drawing = false;
    while let Some((line, is_comment)) = rest.pop_front() {
        let Some(comment) = Comment::of(&line).filter(|_| is_comment) else {
            is_drawing = false;
            lines.push(line);
            continue;
        };
        is_drawing ^= comment.words.starts_with("```");
        let stays = is_drawing || comment.words.starts_with(['|', '#']);
        let Some((kept, hang, left)) = cut(&comment).filter(|_| !stays) else {
            lines.push(line);
            continue;
        };
        let start = format!("{}{}", comment.indent, comment.mark);
        let next = rest.front().filter(|(_, is_comment)| *is_comment).and_then(|(next, _)| Comment::of(next));
        match next.filter(|next| next.continues(&comment)) {
            Some(next) => {
                let joined = format!("{start}{}{left} {}", next.hang, next.words);
                rest[0] = (joined, true);
            }
            None => rest.push_front((format!("{start}{hang}{left}"), true)),
        }
        lines.push(kept);
    }
    lines.join("\n")
}

/// Cuts a line at the last space within the limit: the first part, the indent of the rest, and the rest.
fn cut(comment: &Comment<'_>) -> Option<(String, String, String)> {
    let line = format!("{}{}{}{}", comment.indent, comment.mark, comment.hang, comment.words);
    if line.chars().count() <= LINE_CHARACTERS_MAX {
        return None;
    }
    let start = line.len() - comment.words.len() + comment.item_characters();
    let limit = line.char_indices().nth(LINE_CHARACTERS_MAX).map_or(line.len(), |(at, _)| at);
    // A number stays on the line of its item.
    let is_number = |word: &str| word.strip_suffix('.').is_some_and(|n| n.parse::<u8>().is_ok());
    let breaks = |at: usize| {
        line.as_bytes().get(at) == Some(&b' ') && !line[..at].split(' ').next_back().is_some_and(is_number)
    };
    let space = (start..=limit.max(start)).rev().find(|at| breaks(*at))?;
    let hang = format!("{}{}", comment.hang, " ".repeat(comment.item_characters()));
    Some((line[..space].trim_end().to_string(), hang, line[space..].trim().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrap(text: &str) -> String {
        wrapped(&Source::new("src/a.rs", text))
    }

    /// The rest of a line flows on through its paragraph, and lines that fit stay unchanged.
    #[test]
    fn words_flow_on() {
        let long = "abcd ".repeat(23);
        let out = wrap(&format!("//! {long}\n//! next line\n//!\n//! other\nfn f() {{}}\n"));
        let first = format!("//! {}", "abcd ".repeat(21));
        assert_eq!(
            out,
            format!("{}\n//! abcd abcd next line\n//!\n//! other\nfn f() {{}}\n", first.trim_end())
        );
        let fits = "// a\n// b\nlet c = \"// d\";\n";
        assert_eq!(wrap(fits), fits);
    }

    /// The rest of an item is indented under its text, and the next item is not joined to it.
    #[test]
    fn items_hang() {
        let out = wrap(&format!("/// 1. {}\n/// 2. b\nfn f() {{}}\n", "abcd ".repeat(22).trim_end()));
        assert_eq!(
            out,
            format!("/// 1. {}\n///    abcd abcd\n/// 2. b\nfn f() {{}}\n", "abcd ".repeat(20).trim_end())
        );
    }

    /// A number within a line stays with the words that it numbers.
    #[test]
    fn numbers_stay_with_their_items() {
        let words = "abcd ".repeat(20);
        let out = wrap(&format!("//! {words}a 2. efgh\n"));
        assert_eq!(out, format!("//! {words}a\n//! 2. efgh\n"));
    }

    /// Drawings, tables, code and single long words stay unchanged.
    #[test]
    fn other_lines_stay() {
        let long = "abcd ".repeat(30);
        for text in [
            format!("//! ```text\n//! {long}\n//! ```\n"),
            format!("//! | {long}\n"),
            format!("let a = b; // {long}\n"),
            format!("let a = \"\n// {long}\";\n"),
            format!("// {}\n", "a".repeat(150)),
        ] {
            assert_eq!(wrap(&text), text);
        }
    }
}
