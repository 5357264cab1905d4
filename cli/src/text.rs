//! Bytes, counts and times as people and JSON see them, and back.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// How keys and values are spelled on the command line and in answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    Text,
    Hex,
}

impl Spelling {
    pub(crate) fn of_flag(hex: bool) -> Spelling {
        if hex { Spelling::Hex } else { Spelling::Text }
    }

    /// The bytes that `word` (an argument called `what`) stands for.
    pub(crate) fn parse(self, what: &str, word: &str) -> Result<Vec<u8>, Failure> {
        match self {
            Spelling::Text => Ok(word.as_bytes().to_vec()),
            Spelling::Hex => parse_hex(word.as_bytes()).map_err(|reason| {
                Failure::Usage(format!("the {what} {word:?} is not hexadecimal: {reason}"))
            }),
        }
    }

    /// One line for `bytes`: digits, or text in which everything unprintable is escaped.
    pub(crate) fn line(self, bytes: &[u8]) -> String {
        match self {
            Spelling::Text => escaped(bytes),
            Spelling::Hex => hex(bytes),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a nibble is below 16");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of an even number of hexadecimal digits; the error says what is wrong.
pub(crate) fn parse_hex(digits: &[u8]) -> Result<Vec<u8>, String> {
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

/// Text on one line from which the bytes can be told again: \t, \n, \r, \\ and \xNN for what is not
/// printable.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut line = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\t' => line.push_str("\\t"),
                '\n' => line.push_str("\\n"),
                '\r' => line.push_str("\\r"),
                '\\' => line.push_str("\\\\"),
                control if control.is_control() => {
                    let mut utf8 = [0; 4];
                    for byte in control.encode_utf8(&mut utf8).bytes() {
                        write!(line, "\\x{byte:02x}").expect("a String takes every write");
                    }
                }
                other => line.push(other),
            }
        }
        for byte in chunk.invalid() {
            write!(line, "\\x{byte:02x}").expect("a String takes every write");
        }
    }
    line
}

/// A value for a person: text as it is, line breaks and all; anything else escaped.
pub(crate) fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') => text.to_string(),
        _ => escaped(bytes),
    }
}

/// Adds `name` with the text, or `name`_hex with digits where the bytes are not UTF-8 or digits are asked
/// for.
pub(crate) fn add_field(object: &mut Map<String, Value>, name: &str, bytes: &[u8], spelling: Spelling) {
    match (spelling, std::str::from_utf8(bytes)) {
        (Spelling::Text, Ok(text)) => object.insert(name.to_string(), json!(text)),
        _ => object.insert(format!("{name}_hex"), json!(hex(bytes))),
    };
}

/// A number with its digits in groups.
pub(crate) fn count(number: u64) -> String {
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

/// A size in the largest unit that leaves a digit before the point.
pub(crate) fn bytes(size: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut shown = size as f64;
    let mut unit = 0;
    while shown >= 1024.0 && unit + 1 < units.len() {
        shown /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{size} B") } else { format!("{shown:.1} {}", units[unit]) }
}

/// A time in the unit it reads best in.
pub(crate) fn nanoseconds(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// `part` over `whole`, or 0 where there is no whole.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A size as a person types it: 67108864, 64M, 64MiB, 0.5G. Units are powers of 1024.
pub(crate) fn parse_bytes(word: &str) -> Result<u64, String> {
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

    /// Sizes with every kind of suffix, and what is refused.
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

    /// Escaped text is one line and two different byte strings never look the same.
    #[test]
    fn escapes_are_one_line_and_unambiguous() {
        assert_eq!(escaped(b"a\tb\nc\\\xff\x1f"), "a\\tb\\nc\\\\\\xff\\x1f");
        assert_eq!(escaped("grün \u{85}".as_bytes()), "grün \\xc2\\x85");
        assert_ne!(escaped(b"\\xff"), escaped(b"\xff"));
        assert_eq!(readable(b"two\nlines"), "two\nlines");
        assert_eq!(readable(b"bell\x07\n"), "bell\\x07\\n");
    }

    /// Hexadecimal digits go both ways; odd counts and other characters are refused.
    #[test]
    fn hex_goes_both_ways() {
        assert_eq!(hex(&[0, 255, 0x1f]), "00ff1f");
        assert_eq!(parse_hex(b"00fF1f"), Ok(vec![0, 255, 0x1f]));
        assert!(parse_hex(b"0").is_err() && parse_hex(b"0g").is_err() && parse_hex("é".as_bytes()).is_err());
    }

    /// Counts, sizes and times read as people write them.
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
