//! One Rust file, split into code, comments and strings, with its test lines marked.
//!
//! This is a lexer, not a parser. All rules work on tokens and braces, so they also work on code that does
//! not compile.
//!
//! Invariants: 1. `code` and `comments` have the length and the line breaks of `raw`, so an offset means the
//! same position in all three; 2. a string or character literal is blank in both, except for a `"` in `code`
//! at either end.

/// A word, a number, `::`, or one character.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    /// Offset in the file, in bytes.
    pub(crate) at: usize,
}

impl Token<'_> {
    pub(crate) fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
    }
}

/// The kind of a line: library or test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Library,
    Test,
}

/// A Rust file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the root, with `/` as separator.
    pub(crate) path: String,
    pub(crate) raw: String,
    /// `raw` with comments and the contents of literals blanked.
    pub(crate) code: String,
    /// `raw` with all but comments blanked.
    pub(crate) comments: String,
    /// Offset at which each line begins.
    line_starts: Vec<usize>,
    test_lines: Vec<bool>,
    /// Modules declared under `#[cfg(test)]` that have files of their own.
    pub(crate) test_modules: Vec<String>,
}

impl Source {
    pub(crate) fn new(path: &str, raw: &str) -> Source {
        let (code, comments) = separate(raw);
        let line_starts: Vec<usize> =
            std::iter::once(0).chain(raw.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let in_test_place = path.starts_with("tests/")
            || path.contains("/tests/")
            || path.contains("benches/")
            || path.ends_with("/tests.rs");
        let mut source = Source {
            path: path.to_string(),
            raw: raw.to_string(),
            code,
            comments,
            test_lines: vec![in_test_place; line_starts.len()],
            line_starts,
            test_modules: Vec::new(),
        };
        let (regions, modules) = test_regions(&source.tokens());
        for (start, end) in regions {
            let lines = source.line_of(start) - 1..source.line_of(end);
            source.test_lines[lines].fill(true);
        }
        source.test_modules = modules;
        source
    }

    pub(crate) fn mark_all_test(&mut self) {
        self.test_lines.fill(true);
    }

    /// Whether the whole file is test code.
    pub(crate) fn is_test_file(&self) -> bool {
        self.test_lines.iter().all(|test| *test)
    }

    /// The line of an offset, counted from 1.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at)
    }

    pub(crate) fn part_at(&self, at: usize) -> Part {
        self.part_of_line(self.line_of(at))
    }

    pub(crate) fn part_of_line(&self, line: usize) -> Part {
        if self.test_lines.get(line - 1).copied().unwrap_or(false) { Part::Test } else { Part::Library }
    }

    pub(crate) fn line_count(&self) -> usize {
        self.line_starts.len()
    }

    fn line_in<'a>(&self, text: &'a str, line: usize) -> &'a str {
        let start = self.line_starts[line - 1];
        let end = self.line_starts.get(line).copied().unwrap_or(text.len());
        text[start..end].trim_end_matches(['\n', '\r'])
    }

    /// A line of `raw`, by its number from 1.
    pub(crate) fn raw_line(&self, line: usize) -> &str {
        self.line_in(&self.raw, line)
    }

    pub(crate) fn code_line(&self, line: usize) -> &str {
        self.line_in(&self.code, line)
    }

    pub(crate) fn comment_line(&self, line: usize) -> &str {
        self.line_in(&self.comments, line)
    }

    /// Whether the line is code or the inside of a multi-line string, rather than blank or a comment.
    pub(crate) fn is_code_line(&self, line: usize) -> bool {
        let blank = |text: &str| text.trim().is_empty();
        !blank(self.raw_line(line)) && (!blank(self.code_line(line)) || blank(self.comment_line(line)))
    }

    /// Number of code lines in a range.
    pub(crate) fn code_lines(&self, lines: std::ops::RangeInclusive<usize>) -> usize {
        lines.filter(|line| self.is_code_line(*line)).count()
    }

    pub(crate) fn tokens(&self) -> Vec<Token<'_>> {
        tokens(&self.code)
    }

    /// Whether the file belongs to the library.
    pub(crate) fn in_library(&self) -> bool {
        self.path.starts_with("src/")
    }

    /// The module path of the file: `src/io/env.rs` is `io`, `env`; the root is empty.
    pub(crate) fn module(&self) -> Vec<String> {
        let inner = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let mut module: Vec<String> = inner.trim_end_matches(".rs").split('/').map(str::to_string).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        module
    }
}

/// Words, numbers, `::` and single characters of `code`.
pub(crate) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let mut rest = code.char_indices().peekable();
    while let Some((at, first)) = rest.next() {
        if first.is_whitespace() {
            continue;
        }
        let mut end = at + first.len_utf8();
        if first.is_alphanumeric() || first == '_' {
            while let Some((next, c)) = rest.peek().copied() {
                if !(c.is_alphanumeric() || c == '_') {
                    break;
                }
                end = next + c.len_utf8();
                rest.next();
            }
        } else if first == ':' && matches!(rest.peek(), Some((_, ':'))) {
            rest.next();
            end += 1;
        }
        out.push(Token { text: &code[at..end], at });
    }
    out
}

/// Index of the token that closes the bracket at `open`, or of the last token.
pub(crate) fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index;
                }
            }
            _ => {}
        }
    }
    tokens.len().saturating_sub(1)
}

/// Index of the last token of the item that begins at `start`.
fn item_end(tokens: &[Token<'_>], start: usize) -> usize {
    let head = &tokens[start..tokens.len().min(start + 6)];
    let to_semicolon = head.iter().any(|token| matches!(token.text, "use" | "let" | "type"));
    let mut index = start;
    while index < tokens.len() {
        match tokens[index].text {
            ";" => return index,
            "(" | "[" => index = closing(tokens, index),
            "{" => {
                index = closing(tokens, index);
                if !to_semicolon {
                    return index;
                }
            }
            "}" => return index.saturating_sub(1),
            _ => {}
        }
        index += 1;
    }
    tokens.len().saturating_sub(1)
}

/// First and last offset of every item under `#[cfg(test)]`, and the modules among them with files of their
/// own.
fn test_regions(tokens: &[Token<'_>]) -> (Vec<(usize, usize)>, Vec<String>) {
    let (mut regions, mut modules) = (Vec::new(), Vec::new());
    let mut index = 0;
    while index + 3 < tokens.len() {
        let is_attribute = tokens[index].text == "#" && tokens[index + 1].text == "[";
        let close = if is_attribute { closing(tokens, index + 1) } else { index };
        if !is_attribute || !is_test_cfg(&tokens[index + 2..close]) {
            index += 1;
            continue;
        }
        let mut item = close + 1;
        while item + 1 < tokens.len() && tokens[item].text == "#" {
            item = closing(tokens, item + 1) + 1;
        }
        if item >= tokens.len() {
            break;
        }
        let end = item_end(tokens, item);
        regions.push((tokens[index].at, tokens[end].at));
        if tokens[end].text == ";"
            && let Some(keyword) = (item..end).find(|at| tokens[*at].text == "mod")
        {
            modules.push(tokens[keyword + 1].text.to_string());
        }
        index = end + 1;
    }
    (regions, modules)
}

/// `cfg(test)`, or `cfg(all(.., test, ..))`.
fn is_test_cfg(attribute: &[Token<'_>]) -> bool {
    let words: Vec<&str> = attribute.iter().map(|token| token.text).collect();
    match words.as_slice() {
        ["cfg", "(", "test", ")"] => true,
        ["cfg", "(", "all", "(", rest @ ..] => {
            let mut depth = 0usize;
            for word in rest {
                match *word {
                    "test" if depth == 0 => return true,
                    "(" => depth += 1,
                    ")" if depth == 0 => return false,
                    ")" => depth -= 1,
                    _ => {}
                }
            }
            false
        }
        _ => false,
    }
}

/// Splits `raw` into code and comments, each with the rest blanked.
fn separate(raw: &str) -> (String, String) {
    let bytes = raw.as_bytes();
    let blank = || -> Vec<u8> { bytes.iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }).collect() };
    let (mut code, mut comments) = (blank(), blank());
    let mut at = 0;
    while at < bytes.len() {
        let (end, kind) = piece(bytes, at);
        match kind {
            Piece::Code => code[at..end].copy_from_slice(&bytes[at..end]),
            Piece::Comment => comments[at..end].copy_from_slice(&bytes[at..end]),
            Piece::Literal => {
                code[at] = b'"';
                code[end - 1] = b'"';
            }
        }
        at = end;
    }
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("pieces end at character boundaries");
    (text(code), text(comments))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Piece {
    Code,
    Comment,
    Literal,
}

/// End and kind of the text starting at `at`.
fn piece(bytes: &[u8], at: usize) -> (usize, Piece) {
    let rest = &bytes[at..];
    let after_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        return (at + length, Piece::Comment);
    }
    if rest.starts_with(b"/*") {
        return (at + block_comment_bytes(rest), Piece::Comment);
    }
    if !after_word || rest[0] == b'"' {
        let prefix = rest.iter().take_while(|b| matches!(b, b'b' | b'c' | b'r')).count();
        let hashes = rest[prefix..].iter().take_while(|b| **b == b'#').count();
        let is_raw = prefix > 0 && rest[prefix - 1] == b'r';
        let quoted = rest.get(prefix + hashes) == Some(&b'"') && prefix <= 2;
        if quoted && is_raw {
            return (at + raw_string_bytes(rest, prefix + hashes + 1, hashes), Piece::Literal);
        }
        if quoted && hashes == 0 {
            return (at + string_bytes(rest, prefix + 1), Piece::Literal);
        }
    }
    if rest[0] == b'\'' {
        if rest.get(1) == Some(&b'\\') {
            let close = rest.iter().skip(3).position(|b| *b == b'\'').map_or(rest.len(), |i| i + 4);
            return (at + close, Piece::Literal);
        }
        let character_bytes = std::str::from_utf8(&rest[1..rest.len().min(5)])
            .map_err(|bad| bad.valid_up_to())
            .map_or_else(|valid| valid, |text| text.chars().next().map_or(0, char::len_utf8));
        let width = utf8_bytes(rest.get(1).copied().unwrap_or(0)).min(character_bytes.max(1));
        if rest.get(1 + width) == Some(&b'\'') {
            return (at + width + 2, Piece::Literal);
        }
    }
    (at + utf8_bytes(rest[0]), Piece::Code)
}

fn utf8_bytes(first: u8) -> usize {
    match first {
        0..=0xbf => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0.. => 4,
    }
}

fn block_comment_bytes(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string_bytes(rest: &[u8], mut at: usize) -> usize {
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string_bytes(rest: &[u8], mut at: usize, hashes: usize) -> usize {
    while at < rest.len() {
        let closes =
            rest[at] == b'"' && rest[at + 1..].iter().take(hashes).filter(|b| **b == b'#').count() == hashes;
        at += 1;
        if closes {
            return at + hashes;
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Comments, strings of every kind, characters and lifetimes are distinguished.
    #[test]
    fn pieces_are_told_apart() {
        let raw = "let a = \"x // y\"; // c \"q\"\nlet b = 'z'; let c: &'a str = r#\"un\"safe\"#; /* d /* e */ f */ g\n\
                   let d = b\"q\\\"q\"; let e = '\\''; let f = 'é'; let g = b'\"';";
        let source = Source::new("src/a.rs", raw);
        assert_eq!(source.code.len(), raw.len());
        let words: Vec<&str> = source.tokens().iter().filter(|t| t.is_word()).map(|t| t.text).collect();
        let expected = "let a let b let c a str g let d let e let f let g b";
        assert_eq!(words.join(" "), expected);
        assert_eq!(
            source.comments.split_whitespace().collect::<Vec<_>>().join(" "),
            "// c \"q\" /* d /* e */ f */"
        );
    }

    /// Only items under a test cfg are test lines; a module in another file is listed.
    #[test]
    fn test_lines_are_marked() {
        let raw = "use a;\n#[cfg(test)]\nuse b::{c, d};\nfn e() {}\n#[cfg(test)]\n#[path = \"x\"]\nmod tests {\n fn f() {}\n}\n\
                   fn g() {}\n#[cfg(test)]\npub(crate) mod golden;\n#[cfg(any(test, feature = \"sim\"))]\nfn h() {}";
        let source = Source::new("src/a.rs", raw);
        let test: Vec<usize> =
            (1..=source.line_count()).filter(|line| source.part_of_line(*line) == Part::Test).collect();
        assert_eq!(test, [2, 3, 5, 6, 7, 8, 9, 11, 12]);
        assert_eq!(source.test_modules, ["golden"]);
        assert!(Source::new("src/a/tests.rs", "fn a() {}").is_test_file());
        let is_test = |attribute: &str| {
            let raw = format!("fn a() {{}}\n#[cfg({attribute})]\nfn b() {{}}");
            Source::new("src/a.rs", &raw).part_of_line(3) == Part::Test
        };
        assert!(is_test("all(test, not(loom))") && is_test("all(loom, test)"));
        assert!(!is_test("all(loom, not(test))") && !is_test("all(any(test, loom), unix)"));
    }

    /// Blank lines and comments are not code; the inside of a multi-line string is.
    #[test]
    fn code_lines_are_counted() {
        let source = Source::new("src/a.rs", "//! a\n\nlet a = \"b\n  c\n\"; // d\n/* e\n f */\n}");
        assert_eq!(source.code_lines(1..=source.line_count()), 4);
    }

    /// A file's path determines its module.
    #[test]
    fn modules_of_files() {
        assert_eq!(Source::new("src/io/env.rs", "").module(), ["io", "env"]);
        assert_eq!(Source::new("src/io/mod.rs", "").module(), ["io"]);
        assert!(Source::new("src/lib.rs", "").module().is_empty());
    }
}
