//! The items of one Rust file: attributes, visibility, head and body, and whether they are in a build.
//!
//! Like [`Source`], this module uses tokens and braces only. Callers interpret the heads.

use crate::source::{Source, Token, closing};

/// Features of the examined build, beside the default ones.
const FEATURES: [&str; 3] = ["bytes", "stream", "serde"];

/// Keywords for kinds of items.
const KINDS: [&str; 11] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "use", "impl", "macro_rules"];

/// An item, or a field, variant or parameter of one.
#[derive(Clone, Debug)]
pub(crate) struct Item<'a> {
    /// The text inside `#[..]`, without comments.
    pub(crate) attributes: Vec<&'a str>,
    /// `pub`, without a restriction.
    pub(crate) is_public: bool,
    /// Its keyword; empty for a field, a variant or a macro call.
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    /// Tokens between the visibility and the body.
    pub(crate) head: &'a [Token<'a>],
    /// Tokens between the braces.
    pub(crate) body: &'a [Token<'a>],
}

impl Item<'_> {
    /// Whether the item is in the build and in its docs.
    pub(crate) fn is_shown(&self) -> bool {
        let is_off = |attribute: &&str| match attribute.strip_prefix("cfg(") {
            Some(rest) => !is_on(rest.strip_suffix(')').unwrap_or(rest)),
            None => *attribute == "doc(hidden)",
        };
        !self.attributes.iter().any(is_off)
    }

    /// Traits that the item derives.
    pub(crate) fn derives(&self) -> impl Iterator<Item = String> {
        let named = |list: &str| list.split(',').map(|name| name.trim().to_owned()).collect::<Vec<String>>();
        self.attributes.iter().flat_map(move |attribute| {
            let whole = match attribute.strip_prefix("cfg_attr(").and_then(|rest| rest.strip_suffix(')')) {
                Some(rest) => match split(rest).as_slice() {
                    [condition, whole] if is_on(condition) => whole,
                    _ => "",
                },
                None => *attribute,
            };
            let list = whole.strip_prefix("derive(").and_then(|rest| rest.strip_suffix(')'));
            list.map(named).unwrap_or_default()
        })
    }
}

/// The items of a list of tokens, in order.
pub(crate) fn items<'a>(source: &'a Source, tokens: &'a [Token<'a>]) -> Vec<Item<'a>> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let (attributes, is_public, start) = front(source, tokens, at);
        let (kind, name) = kind(&tokens[start.min(tokens.len())..]);
        let is_value = matches!(kind, "use" | "const" | "static" | "type");
        let mut end = start;
        while end < tokens.len() && tokens[end].text != ";" && (is_value || tokens[end].text != "{") {
            let is_open = matches!(tokens[end].text, "(" | "[" | "{");
            end = if is_open { closing(tokens, end) + 1 } else { end + 1 };
        }
        let end = end.min(tokens.len());
        let has_body = tokens.get(end).is_some_and(|token| token.text == "{");
        let close = if has_body { closing(tokens, end) } else { end };
        let body = if has_body { &tokens[end + 1..close] } else { &tokens[..0] };
        if start < end {
            out.push(Item { attributes, is_public, kind, name, head: &tokens[start..end], body });
        }
        at = close + 1;
    }
    out
}

/// The parts of a comma-separated list between brackets: fields, variants, parameters.
pub(crate) fn parts<'a>(source: &'a Source, tokens: &'a [Token<'a>]) -> Vec<Item<'a>> {
    let mut out = Vec::new();
    let (mut begun, mut depth) = (0, 0_usize);
    for index in 0..=tokens.len() {
        let before = index.checked_sub(1).map_or("", |before| tokens[before].text);
        match tokens.get(index).map(|token| token.text) {
            Some("(" | "[" | "{" | "<") => depth += 1,
            Some(")" | "]" | "}") => depth = depth.saturating_sub(1),
            Some(">") if before != "-" && before != "=" => depth = depth.saturating_sub(1),
            Some(",") | None if depth == 0 || index == tokens.len() => {
                let piece = &tokens[begun..index];
                let (attributes, is_public, start) = front(source, piece, 0);
                if let Some(head) = piece.get(start..).filter(|head| !head.is_empty()) {
                    let name = head[0].text;
                    out.push(Item { attributes, is_public, kind: "", name, head, body: &piece[..0] });
                }
                begun = index + 1;
            }
            _ => {}
        }
    }
    out
}

/// Attributes and visibility at `at`, and the index after them.
fn front<'a>(source: &'a Source, tokens: &[Token<'a>], mut at: usize) -> (Vec<&'a str>, bool, usize) {
    let mut attributes = Vec::new();
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    while text(at) == "#" {
        // `#![..]` belongs to the file and not to the next item.
        let is_inner = text(at + 1) == "!";
        let open = at + 1 + usize::from(is_inner);
        let close = closing(tokens, open);
        if open < close && !is_inner {
            attributes.push(&source.raw[tokens[open].at + 1..tokens[close].at]);
        }
        at = close + 1;
    }
    let is_restricted = text(at + 1) == "(";
    match text(at) {
        "pub" if is_restricted => (attributes, false, closing(tokens, at + 1) + 1),
        "pub" => (attributes, true, at + 1),
        _ => (attributes, false, at),
    }
}

/// Keyword and name of an item.
fn kind<'a>(head: &[Token<'a>]) -> (&'a str, &'a str) {
    let next = |index: usize| head.get(index + 1).map_or("", |token| token.text);
    for (index, token) in head.iter().enumerate() {
        match token.text {
            "unsafe" | "async" | "extern" | "\"" => {}
            "const" if matches!(next(index), "fn" | "unsafe" | "async" | "extern") => {}
            text if KINDS.contains(&text) => return (text, next(index)),
            _ => break,
        }
    }
    ("", "")
}

/// The code of some tokens on one line.
pub(crate) fn told(source: &Source, tokens: &[Token<'_>]) -> String {
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return String::new() };
    let code = &source.code[first.at..last.at + last.text.len()];
    let mut line = code.split_whitespace().collect::<Vec<&str>>().join(" ");
    for (broken, whole) in [("( ", "("), (", )", ")"), (" )", ")"), (", }", " }"), ("< ", "<"), (", >", ">")]
    {
        line = line.replace(broken, whole);
    }
    // A `mut` before a parameter does not concern callers.
    line.replace("(mut ", "(").replace(", mut ", ", ")
}

/// Whether a `cfg` condition holds in the examined build: Linux, without tests.
fn is_on(condition: &str) -> bool {
    let condition = condition.trim();
    let inside = |name: &str| condition.strip_prefix(name)?.trim().strip_prefix('(')?.strip_suffix(')');
    if let Some(list) = inside("all") {
        split(list).into_iter().all(is_on)
    } else if let Some(list) = inside("any") {
        split(list).into_iter().any(is_on)
    } else if let Some(one) = inside("not") {
        !is_on(one)
    } else if let Some((key, value)) = condition.split_once('=') {
        let value = value.trim().trim_matches('"');
        match key.trim() {
            "feature" => FEATURES.contains(&value),
            "target_os" => value == "linux",
            "target_pointer_width" => value == "64",
            _ => false,
        }
    } else {
        condition == "unix"
    }
}

/// Splits a list at the commas outside brackets.
fn split(list: &str) -> Vec<&str> {
    let (mut out, mut begun, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, letter) in list.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                out.push(list[begun..at].trim());
                begun = at + 1;
            }
            _ => {}
        }
    }
    out.push(list[begun..].trim());
    out.retain(|one| !one.is_empty());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Items are separated with any kind of ending, with their attributes and visibility.
    #[test]
    fn items_are_told_apart() {
        let text = "#![deny(x)]\nuse a::{b, c};\n#[derive(Clone, Debug)]\npub struct A { b: [u8; 2] }\n\
                    pub(crate) struct B(u8);\npub const fn c() -> [u8; 2] { [1, 2] }\n\
                    pub const D: u8 = { 1 };\nmacro_rules! m { () => { pub fn no() {} } }\nm! { x; y }\n\
                    impl A {}\npub type E = (u8, u8);";
        let source = Source::new("src/a.rs", text);
        let tokens = source.tokens();
        let all = items(&source, &tokens);
        let told: Vec<(&str, &str, bool)> =
            all.iter().map(|item| (item.kind, item.name, item.is_public)).collect();
        let expected = [
            ("use", "a", false),
            ("struct", "A", true),
            ("struct", "B", false),
            ("fn", "c", true),
            ("const", "D", true),
            ("macro_rules", "!", false),
            ("", "", false),
            ("impl", "A", false),
            ("type", "E", true),
        ];
        assert_eq!(told, expected);
        assert_eq!(all[1].derives().collect::<Vec<String>>(), ["Clone", "Debug"]);
        assert_eq!(super::told(&source, all[3].head), "const fn c() -> [u8; 2]");
    }

    /// Fields and variants are split at their own commas, not at those inside types.
    #[test]
    fn parts_are_told_apart() {
        let text = "pub a: Vec<(u8, u8)>, b: fn(u8) -> u8, C { d: u8, e: u8, }, #[x(y, z)] F(u8),";
        let source = Source::new("src/a.rs", text);
        let tokens = source.tokens();
        let all = parts(&source, &tokens);
        let told: Vec<String> = all.iter().map(|part| super::told(&source, part.head)).collect();
        assert_eq!(told, ["a: Vec<(u8, u8)>", "b: fn(u8) -> u8", "C { d: u8, e: u8 }", "F(u8)"]);
        assert_eq!(all.iter().filter(|part| part.is_public).count(), 1);
    }

    /// Conditions are evaluated for a Linux build with the features that users have.
    #[test]
    fn conditions_are_read() {
        for (condition, expected) in [
            ("feature = \"bytes\"", true),
            ("feature = \"sim\"", false),
            ("any(test, feature = \"sim\")", false),
            ("any(test, feature = \"serde\")", true),
            ("all(unix, not(any(loom, feature = \"lab\")))", true),
            ("target_os = \"macos\"", false),
        ] {
            assert_eq!(is_on(condition), expected, "{condition}");
        }
    }
}
