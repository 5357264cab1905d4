//! Limits on the size of a file, a function, a test module beside the code, and a line.

use crate::finding::Finding;
use crate::source::{Part, Source, closing};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const TEST_MODULE_LINES_MAX: usize = 200;
pub(crate) const LINE_CHARACTERS_MAX: usize = 110;

pub(crate) fn check(source: &Source, out: &mut Vec<Finding>) {
    file(source, out);
    functions(source, out);
    lines(source, out);
}

fn file(source: &Source, out: &mut Vec<Finding>) {
    let count = |part: Part| {
        let counts = |line: &usize| source.part_of_line(*line) == part && source.is_code_line(*line);
        (1..=source.line_count()).filter(counts).count()
    };
    let (library, test) = (count(Part::Library), count(Part::Test));
    let whole = if source.is_test_file() { test } else { library };
    if whole > FILE_LINES_MAX {
        out.push(Finding::new(
            &source.path,
            1,
            format!("{whole} lines of code in one file; the limit is {FILE_LINES_MAX}"),
            "Split it by idea: one type with its contract and tests a file",
        ));
    }
    if !source.is_test_file() && test > TEST_MODULE_LINES_MAX {
        out.push(Finding::new(
            &source.path,
            1,
            format!("{test} lines of tests beside the code; the limit is {TEST_MODULE_LINES_MAX}"),
            "Move them to tests.rs in a folder named after the module",
        ));
    }
}

fn functions(source: &Source, out: &mut Vec<Finding>) {
    let tokens = source.tokens();
    for (index, token) in tokens.iter().enumerate() {
        let Some(name) = tokens.get(index + 1).filter(|next| token.text == "fn" && next.is_word()) else {
            continue;
        };
        let mut open = index + 2;
        while tokens.get(open).is_some_and(|token| !matches!(token.text, "{" | ";")) {
            open = if matches!(tokens[open].text, "(" | "[") { closing(&tokens, open) + 1 } else { open + 1 };
        }
        if tokens.get(open).is_none_or(|token| token.text == ";") {
            continue;
        }
        let first = source.line_of(token.at);
        let last = source.line_of(tokens[closing(&tokens, open)].at);
        let count = source.code_lines(first..=last);
        if count > FUNCTION_LINES_MAX {
            out.push(Finding::new(
                &source.path,
                first,
                format!("`{}` has {count} lines; the limit is {FUNCTION_LINES_MAX}", name.text),
                "Give its steps names: one function each",
            ));
        }
    }
}

fn lines(source: &Source, out: &mut Vec<Finding>) {
    for line in 1..=source.line_count() {
        let count = source.raw_line(line).chars().count();
        if count <= LINE_CHARACTERS_MAX || is_exempt(source, line) {
            continue;
        }
        let instead = if !source.is_code_line(line) {
            "Wrap the comment"
        } else if source.code_line(line).trim().is_empty() || source.code_line(line).contains('"') {
            "Break the string with \\ at the end of the line, or the code around it"
        } else {
            "Break it, or name a part of it"
        };
        out.push(Finding::new(
            &source.path,
            line,
            format!("{count} characters in a line; the limit is {LINE_CHARACTERS_MAX}"),
            instead,
        ));
    }
}

/// Expected text in a test may exceed the limit, and so may an address.
fn is_exempt(source: &Source, line: usize) -> bool {
    let (raw, code) = (source.raw_line(line), source.code_line(line));
    let without_literals = code.split_whitespace().map(|word| word.chars().count() + 1).sum::<usize>();
    let is_test_text = source.part_of_line(line) == Part::Test
        && source.comment_line(line).trim().is_empty()
        && without_literals <= LINE_CHARACTERS_MAX / 2;
    let is_address = source.comment_line(line).contains("://") && raw.split_whitespace().count() <= 3;
    is_test_text || is_address
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::findings;

    fn lines_of(count: usize, line: &str) -> String {
        std::iter::repeat_n(line, count).collect()
    }

    /// 501 lines of code are too many; 500 are not, with any number of comments, blank lines and tests.
    #[test]
    fn file_size() {
        let code = "const A: u8 = 0;\n";
        assert_eq!(findings(file, "src/a.rs", &lines_of(501, code)).len(), 1);
        let most = lines_of(500, code) + &lines_of(99, "// b\n\n");
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines_of(197, code));
        assert!(findings(file, "src/a.rs", &(most + &tests)).is_empty());
        assert_eq!(findings(file, "src/a/tests.rs", &lines_of(501, code)).len(), 1);
    }

    /// A test module beside the code of more than 200 lines must move to a file of its own.
    #[test]
    fn test_module_size() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines_of(198, "const A: u8 = 0;\n"));
        assert_eq!(findings(file, "src/a.rs", &format!("fn a() {{}}\n{tests}")).len(), 1);
    }

    /// A function of 71 lines is reported with its line; one of 70, and a declaration without a body, pass.
    #[test]
    fn function_size() {
        let function = |count| format!("//! a\nfn long() {{\n{}}}\n", lines_of(count, "    a();\n"));
        let found = findings(functions, "src/a.rs", &function(69));
        assert_eq!((found.len(), found[0].line), (1, 2));
        assert!(findings(functions, "src/a.rs", &function(68)).is_empty());
        let declared =
            format!("trait T {{ fn f(a: [u8; 4]) -> X; }}\n{}", lines_of(90, "const A: u8 = 0;\n"));
        assert!(findings(functions, "src/a.rs", &declared).is_empty());
    }

    /// A line of 111 characters is too long, one of 110 is not; expected text in a test and addresses are
    /// exempt.
    #[test]
    fn line_size() {
        let comment = |count: usize| format!("// {}", "é".repeat(count - 3));
        assert_eq!(findings(lines, "src/a.rs", &comment(111)).len(), 1);
        assert!(findings(lines, "src/a.rs", &comment(110)).is_empty());
        let string = format!("    a(\"{}\");", "b".repeat(120));
        assert_eq!(findings(lines, "src/a.rs", &string).len(), 1);
        assert!(findings(lines, "tests/a.rs", &string).is_empty());
        assert!(findings(lines, "src/a.rs", &format!("// https://{}", "b".repeat(120))).is_empty());
    }
}
