//! Bytes, counts and times in the form for people and JSON, and back.
//!
//! Keys, values, names and paths can have characters that no terminal shows as they are: control characters,
//! which move the cursor or change colors, and format characters, which hide text or change its direction.
//! Every line for people goes through [`shown`] or [`one_line`], every JSON document through
//! [`json_escaped`].

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// The notation of keys and values on the command line and in answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// As text.
    Text,
    /// As hexadecimal digits.
    Hex,
}

impl Spelling {
    /// The notation for the option --hex.
    pub fn of_flag(hex: bool) -> Spelling {
        if hex { Spelling::Hex } else { Spelling::Text }
    }

    /// The bytes of `word`, an argument named `what`.
    pub fn parse(self, what: &str, word: &str) -> Result<Vec<u8>, Failure> {
        match self {
            Spelling::Text => Ok(word.as_bytes().to_vec()),
            Spelling::Hex => parse_hex(word.as_bytes()).map_err(|reason| {
                Failure::Usage(format!("the {what} {word:?} is not hexadecimal: {reason}"))
            }),
        }
    }

    /// One line for `bytes`: digits, or text with escapes for unprintable bytes.
    pub fn line(self, bytes: &[u8]) -> String {
        match self {
            Spelling::Text => escaped(bytes),
            Spelling::Hex => hex(bytes),
        }
    }
}

/// Hexadecimal digits, two for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a nibble is below 16");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of an even number of hexadecimal digits; the error names the fault.
pub fn parse_hex(digits: &[u8]) -> Result<Vec<u8>, String> {
    if !digits.len().is_multiple_of(2) {
        return Err("it has an odd number of digits".to_string());
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some((nibble(*high)? << 4 | nibble(*low)?) as u8),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes.ok_or_else(|| "it has other characters than 0-9 and a-f".to_string())
}

/// Whether a character has no glyph of its own: control characters (Unicode's category Cc), line and
/// paragraph separators (Zl, Zp), and the format and filler characters that Unicode 16 lists as
/// Default_Ignorable_Code_Point, with interlinear annotations.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || is_joiner(character)
        || matches!(
            character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Whether a hidden character belongs to ordinary text: emoji and several scripts need joiners and variation
/// selectors.
fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
}

/// Appends \xNN for each byte.
fn push_bytes(line: &mut String, bytes: &[u8]) {
    for byte in bytes {
        write!(line, "\\x{byte:02x}").expect("a String takes every write");
    }
}

/// Appends \t, \n, \r or the escaped bytes of a hidden character.
fn push_hidden(line: &mut String, character: char) {
    match character {
        '\t' => line.push_str("\\t"),
        '\n' => line.push_str("\\n"),
        '\r' => line.push_str("\\r"),
        other => push_bytes(line, other.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Text on one line from which the bytes can be recovered: \t, \n, \r, \\ and \xNN for unprintable bytes.
pub fn escaped(bytes: &[u8]) -> String {
    let mut line = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => line.push_str("\\\\"),
                hidden if is_hidden(hidden) => push_hidden(&mut line, hidden),
                other => line.push(other),
            }
        }
        push_bytes(&mut line, chunk.invalid());
    }
    line
}

/// A value for a person: text unchanged, with its line breaks; any other bytes escaped.
pub fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(is_unsafe) => text.to_string(),
        _ => escaped(bytes),
    }
}

/// Whether a character is unsafe for a terminal within text of several lines.
pub fn is_unsafe(character: char) -> bool {
    is_hidden(character) && !is_joiner(character) && !matches!(character, '\n' | '\t')
}

/// The text with `push` in place of each character for which `is_escaped` holds.
fn with_escapes(text: &str, is_escaped: fn(char) -> bool, push: fn(&mut String, char)) -> Cow<'_, str> {
    // Fast path: no hidden character consists of these bytes alone, and most lines do.
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte);
    if text.bytes().all(is_plain) || !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            push(&mut line, character);
        } else {
            line.push(character);
        }
    }
    Cow::Owned(line)
}

/// Text of one or several lines, safe for a terminal. Backslashes stay, since messages often have them.
pub fn shown(text: &str) -> Cow<'_, str> {
    with_escapes(text, is_unsafe, push_hidden)
}

/// As [`shown`], on one line.
pub fn one_line(text: &str) -> Cow<'_, str> {
    with_escapes(text, is_hidden, push_hidden)
}

/// A path for a message, with \xNN for bytes that are not text. The message escapes the rest.
pub fn path(path: &Path) -> String {
    let mut name = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        name.push_str(chunk.valid());
        push_bytes(&mut name, chunk.invalid());
    }
    name
}

/// A JSON document with \uXXXX for every hidden character. Such characters occur only in strings of JSON, so
/// the meaning stays.
pub fn json_escaped(document: &str) -> Cow<'_, str> {
    let is_escaped = |character| is_hidden(character) && !matches!(character, '\n' | '\t');
    with_escapes(document, is_escaped, |line, character| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(line, "\\u{unit:04x}").expect("a String takes every write");
        }
    })
}

/// Adds `name` with the text, or `name`_hex with digits if the bytes are not UTF-8 or `spelling` asks for
/// digits.
pub fn add_field(object: &mut Map<String, Value>, name: &str, bytes: &[u8], spelling: Spelling) {
    match (spelling, std::str::from_utf8(bytes)) {
        (Spelling::Text, Ok(text)) => object.insert(name.to_string(), json!(text)),
        _ => object.insert(format!("{name}_hex"), json!(hex(bytes))),
    };
}

/// A number with commas between groups of three digits.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A size in the largest unit with a nonzero digit before the point.
pub fn bytes(size: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut shown = size as f64;
    let mut unit = 0;
    while shown >= 1024.0 && unit + 1 < units.len() {
        shown /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{size} B") } else { format!("{shown:.1} {}", units[unit]) }
}

/// A time in a suitable unit.
pub fn nanoseconds(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// `part` over `whole`, or 0 if `whole` is 0.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Parses a size like 67108864, 64M, 64MiB or 0.5G. Units are powers of 1024.
pub fn parse_bytes(word: &str) -> Result<u64, String> {
    let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
    let (number, unit) = word.split_at(end);
    let power = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err("the unit must be K, M, G or T".to_string()),
    };
    let unit_bytes = 1_u64 << power;
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(unit_bytes).ok_or_else(|| "that is more than 2^64 bytes".to_string()),
        Err(_) => match number.parse::<f64>() {
            Ok(part) if part * (unit_bytes as f64) < u64::MAX as f64 => Ok((part * unit_bytes as f64) as u64),
            _ => Err("give a size such as 67108864, 64M or 1.5G".to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes with every kind of suffix parse; malformed ones are refused.
    #[test]
    fn sizes_are_parsed() {
        for (word, size) in
            [("0", 0), ("512", 512), ("64M", 64 << 20), ("64MiB", 64 << 20), ("1.5G", 3 << 29)]
        {
            assert_eq!(parse_bytes(word), Ok(size), "{word}");
        }
        for word in ["", "M", "64 X", "-1", "1..5K", "99999999999G"] {
            assert!(parse_bytes(word).is_err(), "{word}");
        }
    }

    /// Escaped text is one line, and different byte strings have different texts.
    #[test]
    fn escapes_are_one_line_and_unambiguous() {
        assert_eq!(escaped(b"a\tb\nc\\\xff\x1f"), "a\\tb\\nc\\\\\\xff\\x1f");
        assert_eq!(escaped("grün \u{85}".as_bytes()), "grün \\xc2\\x85");
        assert_ne!(escaped(b"\\xff"), escaped(b"\xff"));
        assert_eq!(readable(b"two\nlines"), "two\nlines");
        assert_eq!(readable(b"bell\x07\n"), "bell\\x07\\n");
    }

    /// Control characters, bidirectional overrides, zero-width and tag characters are hidden; letters, marks,
    /// spaces and emoji are not.
    #[test]
    fn hidden_characters_are_known() {
        let hidden = "\0\u{1b}\u{7f}\u{85}\u{9b}\u{ad}\u{61c}\u{200b}\u{200d}\u{200e}\u{2028}\u{2029}\u{202e}\
                      \u{2066}\u{2069}\u{3164}\u{fe0f}\u{feff}\u{e0041}";
        assert_eq!(hidden.chars().find(|character| !is_hidden(*character)), None);
        let seen = "a \u{301}\u{a0}\u{e9}\u{5d0}\u{643}\u{3000}\u{4e2d}\u{fffd}\u{1f980}";
        assert_eq!(seen.chars().find(|character| is_hidden(*character)), None);
        assert_eq!(escaped("a\u{202e}b".as_bytes()), "a\\xe2\\x80\\xaeb");
        assert_eq!(readable("\u{2764}\u{fe0f} \u{1f468}\u{200d}\u{1f469}".as_bytes()).len(), 18);
        assert_eq!(readable("\u{202e}gnp.exe\n".as_bytes()), "\\xe2\\x80\\xaegnp.exe\\n");
    }

    /// Lines for a terminal have no control characters except line breaks and tabs; one line has none at all.
    #[test]
    fn lines_are_safe_to_show() {
        assert_eq!(shown("red \u{1b}[31m\n\tand \u{9b}31m"), "red \\x1b[31m\n\tand \\xc2\\x9b31m");
        assert_eq!(one_line("a\nb\tc\rd\u{200d}"), "a\\nb\\tc\\rd\\xe2\\x80\\x8d");
        assert!(matches!(shown("plain \\ text"), Cow::Borrowed(_)));
        assert!(matches!(one_line("gr\u{fc}n"), Cow::Borrowed(_)));
    }

    /// Escaped JSON has the same meaning; characters beyond 16 bits become pairs.
    #[test]
    fn escaped_json_is_the_same_json() {
        let value = json!({"k\u{85}": "\u{202e}\u{1b}\u{7f}\\\u{e0041}\u{1f980}\n", "z": ["\u{feff}"]});
        for document in [value.to_string(), format!("{value:#}")] {
            let escaped = json_escaped(&document);
            assert!(escaped.contains("\\u0085") && escaped.contains("\\u202e\\u001b\\u007f"), "{escaped}");
            assert!(escaped.contains("\\udb40\\udc41\u{1f980}\\n"), "{escaped}");
            assert_eq!(escaped.chars().find(|one| is_hidden(*one) && *one != '\n'), None);
            assert_eq!(serde_json::from_str::<Value>(&escaped).ok().as_ref(), Some(&value));
        }
    }

    /// Paths keep their text; other bytes become digits.
    #[cfg(unix)]
    #[test]
    fn paths_keep_their_bytes() {
        use std::os::unix::ffi::OsStrExt;
        let bytes = std::ffi::OsStr::from_bytes(b"a\xff\xfe/\xc3\xbc\\");
        assert_eq!(path(Path::new(bytes)), "a\\xff\\xfe/\u{fc}\\");
    }

    /// Hexadecimal digits convert both ways; odd counts and other characters are refused.
    #[test]
    fn hex_goes_both_ways() {
        assert_eq!(hex(&[0, 255, 0x1f]), "00ff1f");
        assert_eq!(parse_hex(b"00fF1f"), Ok(vec![0, 255, 0x1f]));
        assert!(parse_hex(b"0").is_err() && parse_hex(b"0g").is_err() && parse_hex("é".as_bytes()).is_err());
    }

    /// Counts, sizes and times have a readable form.
    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [count(0), count(999), count(1_000), count(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!([bytes(0), bytes(1023), bytes(1536)], ["0 B", "1023 B", "1.5 KiB"]);
        assert_eq!(
            [nanoseconds(999), nanoseconds(1_500), nanoseconds(2_000_000_000)],
            ["999 ns", "1.5 µs", "2.00 s"]
        );
        assert_eq!(ratio(1, 0), 0.0);
    }
}
