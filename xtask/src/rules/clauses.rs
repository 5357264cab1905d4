//! Plain English in comments and Markdown: no clause opens with a word that stands for a missing noun.
//!
//! A line is checked by itself, so such a word may not begin a line either. Code in Markdown is exempt.

use crate::finding::Finding;
use crate::tree::Tree;

/// Words that open such a clause, in lower case.
const WORDS: [&str; 5] = ["what", "who", "whoever", "nobody", "whatever"];

pub(crate) fn check(tree: &Tree, out: &mut Vec<Finding>) {
    for source in &tree.sources {
        let lines = source.comments.lines().map(|line| line.trim_start_matches([' ', '/', '!', '*']));
        findings(&source.path, lines, out);
    }
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        let mut is_code = false;
        let prose = text.lines().map(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            if is_code || is_fence { "" } else { line }
        });
        findings(path, prose, out);
    }
}

fn findings<'a>(path: &str, lines: impl Iterator<Item = &'a str>, out: &mut Vec<Finding>) {
    for (index, line) in lines.enumerate() {
        if let Some(word) = opening(line) {
            out.push(Finding::new(
                path,
                index + 1,
                format!("a clause that opens with `{word}`"),
                "Begin with the noun: the bytes, the reader, the caller",
            ));
        }
    }
}

/// The first such word at the start of the line, or behind punctuation and a space.
fn opening(line: &str) -> Option<&str> {
    let starts = line.match_indices([',', '.', ';', ':']).map(|(at, _)| at + 1);
    let behind = starts.filter_map(|at| line[at..].strip_prefix(' '));
    std::iter::once(line).chain(behind).find_map(|clause| {
        let end = clause.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(clause.len());
        let word = &clause[..end];
        // Only the first letter may be a capital: names of the code are no English.
        let lower = word.get(..1)?.to_ascii_lowercase() + &word[1..];
        WORDS.contains(&lower.as_str()).then_some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        let mut out = Vec::new();
        check(&Tree::of(&[(path, text)]), &mut out);
        out.len()
    }

    /// Such a clause is refused at the start of a comment, behind punctuation, and in pages.
    #[test]
    fn clauses_without_a_noun_trip() {
        for bad in
            ["What was read", "a block; who has it", "done: nobody waits.", "it is, whatever comes", "who"]
        {
            assert_eq!(count("src/a.rs", &format!("//! A.\n\n/// {bad}\nfn a() {{}}\n")), 1, "{bad}");
            assert_eq!(count("docs/A.md", &format!("# A\n\n{bad}\n")), 1, "{bad}");
        }
    }

    /// The words pass inside a clause, in other words, in code and in strings.
    #[test]
    fn other_places_pass() {
        for good in ["it tells what was read", "a whole, whose end", "v1.what", "(who)", "WHO"] {
            assert_eq!(count("src/a.rs", &format!("//! A.\n\n/// {good}\nfn a() {{}}\n")), 0, "{good}");
        }
        assert_eq!(count("src/a.rs", "//! A.\n\nfn a() { what(\"; who\") }\n"), 0);
        assert_eq!(count("docs/A.md", "# A\n\n```text\nwhat it is\n```\n"), 0);
    }
}
