//! Required comments: a description of each module, and a sentence for each test.

use super::places;
use crate::finding::Finding;
use crate::source::Source;

pub(crate) fn check(source: &Source, out: &mut Vec<Finding>) {
    module_doc(source, out);
    test_docs(source, out);
}

fn module_doc(source: &Source, out: &mut Vec<Finding>) {
    if !source.raw.starts_with("//!") {
        out.push(Finding::new(
            &source.path,
            1,
            "no module doc",
            "Begin the file with `//!`: what it is, what it is not, who calls it, thread safety, \
             numbered invariants",
        ));
    }
}

fn test_docs(source: &Source, out: &mut Vec<Finding>) {
    let tokens = source.tokens();
    for index in places(&tokens, &["#", "[", "test", "]"]) {
        let line = source.line_of(tokens[index].at);
        let belongs = |line: &usize| {
            let text = source.raw_line(*line).trim_start();
            text.starts_with("#[") || text.starts_with("//")
        };
        let above = (1..line).rev().take_while(belongs);
        let below = (line..=source.line_count()).take_while(belongs);
        if !above.chain(below).any(|line| source.raw_line(line).trim_start().starts_with("///")) {
            out.push(Finding::new(
                &source.path,
                line,
                "a test that does not say what it shows",
                "Put a `///` sentence above it; for a regression, tell the failure",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::findings;

    /// A file begins with its module doc.
    #[test]
    fn files_begin_with_a_doc() {
        assert_eq!(findings(module_doc, "src/a.rs", "use b;\n//! c").len(), 1);
        assert!(findings(module_doc, "src/a.rs", "//! A.\n").is_empty());
    }

    /// A test has a doc comment on either side of its attributes; an ordinary comment does not count.
    #[test]
    fn tests_have_docs() {
        let bare = "/// Of b.\nfn b() {}\n\n// c\n#[test]\nfn a() {}";
        assert_eq!(findings(test_docs, "src/a.rs", bare).first().map(|one| one.line), Some(5));
        for good in ["/// A.\n#[test]\nfn a() {}", "#[test]\n/// A.\n#[should_panic]\nfn a() {}"] {
            assert!(findings(test_docs, "src/a.rs", good).is_empty(), "{good}");
        }
    }
}
