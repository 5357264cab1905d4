//! Rules about Rust files: each about a single file, but `names` about the whole library and `clauses` about
//! pages too. The tests of each
//! rule have an input that fails and one that passes.

mod bans;
mod clauses;
mod names;
mod sizes;
mod spoken;
mod unsafety;

use crate::finding::Finding;
use crate::source::Token;
use crate::tree::Tree;

/// Runs every rule over every Rust file.
pub(crate) fn check(tree: &Tree, out: &mut Vec<Finding>) {
    for source in &tree.sources {
        sizes::check(source, out);
        bans::check(source, out);
        spoken::check(source, out);
        unsafety::check(source, out);
    }
    names::check(tree, out);
    clauses::check(tree, out);
}

#[cfg(test)]
pub(crate) use bans::MARKS;
pub(crate) use bans::marks_in;
pub(crate) use sizes::LINE_CHARACTERS_MAX;

/// Indexes in `tokens` at which `wanted` begins.
fn places<'a>(tokens: &'a [Token<'a>], wanted: &'a [&'a str]) -> impl Iterator<Item = usize> + 'a {
    let same = move |window: &[Token<'_>]| window.iter().zip(wanted).all(|(token, word)| token.text == *word);
    tokens.windows(wanted.len()).enumerate().filter(move |(_, window)| same(window)).map(|(index, _)| index)
}

/// The findings of `rule` for a file with this path and text.
#[cfg(test)]
fn findings(rule: fn(&crate::source::Source, &mut Vec<Finding>), path: &str, text: &str) -> Vec<Finding> {
    let tree = Tree::of(&[(path, text)]);
    let mut out = Vec::new();
    for source in &tree.sources {
        rule(source, &mut out);
    }
    out
}
