//! Rules about one Rust file at a time. Each has an input that trips it and one that passes, in its tests.

mod bans;
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
}

#[cfg(test)]
pub(crate) use bans::MARKS;
/// Indexes at which `wanted` stands in `tokens`.
pub(crate) use bans::marks_in;
pub(crate) use sizes::LINE_CHARACTERS_MAX;

fn places<'a>(tokens: &'a [Token<'a>], wanted: &'a [&'a str]) -> impl Iterator<Item = usize> + 'a {
    let same = move |window: &[Token<'_>]| window.iter().zip(wanted).all(|(token, word)| token.text == *word);
    tokens.windows(wanted.len()).enumerate().filter(move |(_, window)| same(window)).map(|(index, _)| index)
}

/// What `rule` says about a file of this path and text.
#[cfg(test)]
fn findings(rule: fn(&crate::source::Source, &mut Vec<Finding>), path: &str, text: &str) -> Vec<Finding> {
    let tree = Tree::of(&[(path, text)]);
    let mut out = Vec::new();
    for source in &tree.sources {
        rule(source, &mut out);
    }
    out
}
