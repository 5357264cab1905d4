//! The layout of a file, from its first line: encoding, line breaks and separator. A file that would be
//! misread is refused here, before any item is stored.
//!
//! | beginning | verdict |
//! |---|---|
//! | UTF-8 with a byte order mark | the mark is skipped |
//! | UTF-16 or UTF-32, with a mark or with NUL bytes in every other place | refused |
//! | the first line ends in LF or CRLF | lines end in LF; a CR before it is part of the line break |
//! | the first line ends in CR | lines end in CR |
//! | `sep=;`, as Excel writes it | csv: the separator; tsv: refused unless it is the tab |
//! | a first row with another separator than the format's | refused; `--separator` decides |
//!
//! Only the first line is read, so that rows from a pipe are stored as they arrive.

use std::io;

use super::input::Input;
use super::{Format, Position, Shape};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Separators in common use, beside the comma.
const SEPARATORS: [u8; 3] = [b';', b'\t', b'|'];

/// The bytes between two lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LineBreak {
    /// LF, or CR and LF.
    Lf,
    /// CR alone.
    Cr,
}

impl LineBreak {
    /// The last byte of a line.
    pub(crate) fn byte(self) -> u8 {
        match self {
            LineBreak::Lf => b'\n',
            LineBreak::Cr => b'\r',
        }
    }

    /// The byte that a line must not contain outside quotes.
    pub(crate) fn other(self) -> u8 {
        match self {
            LineBreak::Lf => b'\r',
            LineBreak::Cr => b'\n',
        }
    }

    /// The line without its line break; the last line of a file may have none.
    pub(crate) fn trim(self, line: &[u8]) -> &[u8] {
        let text = line.strip_suffix(&[self.byte()]).unwrap_or(line);
        match self {
            LineBreak::Lf => text.strip_suffix(b"\r").unwrap_or(text),
            LineBreak::Cr => text,
        }
    }

    pub(crate) fn count(self, text: &[u8]) -> u64 {
        text.iter().filter(|byte| **byte == self.byte()).count() as u64
    }
}

/// The layout of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) line_break: LineBreak,
    pub(crate) separator: u8,
    /// Start of the first row, header included.
    pub(crate) data_at: Position,
}

impl Layout {
    /// Reads the first line of the input and returns to its start. The inner error is the reason to refuse
    /// the file.
    pub(crate) fn of(input: &mut Input, shape: &Shape) -> io::Result<Result<Layout, String>> {
        let first = loop {
            match FirstLine::of(input.kept(0..input.kept_to()), shape) {
                Some(first) => break first,
                None if !input.has_room() || !input.keep_more()? => {
                    break FirstLine::of_all(input.kept(0..input.kept_to()));
                }
                None => {}
            }
        };
        Ok(layout_of(input.kept(0..input.kept_to()), first, shape))
    }
}

/// The first line that is not blank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FirstLine {
    start: usize,
    /// The offset behind its line break.
    end: usize,
    line_break: LineBreak,
}

impl FirstLine {
    /// The first line, or `None` if more bytes are needed to find its end.
    fn of(head: &[u8], shape: &Shape) -> Option<FirstLine> {
        let is_separator =
            |byte: u8| byte == b',' || SEPARATORS.contains(&byte) || shape.separator == Some(byte);
        let start = blank_bytes(head);
        // Blank lines at the start determine the kind of line break; else the first line does.
        let known =
            if start > mark_bytes(head) { Some(line_break_at(head, mark_bytes(head))?) } else { None };
        let (mut is_quoted, mut may_open) = (false, true);
        for (index, &byte) in head.iter().enumerate().skip(start) {
            match byte {
                b'"' if shape.format == Format::Csv => {
                    // A quote right behind a closing quote makes a doubled quote, and reopens the field.
                    (is_quoted, may_open) = (!is_quoted && may_open, is_quoted);
                    continue;
                }
                b'\n' | b'\r' if !is_quoted => {
                    let line_break = line_break_at(head, index)?;
                    let is_pair = byte == b'\r' && line_break == LineBreak::Lf;
                    let end = index + 1 + usize::from(is_pair);
                    return Some(FirstLine { start, end, line_break: known.unwrap_or(line_break) });
                }
                _ => may_open = is_separator(byte),
            }
        }
        None
    }

    /// The first line of a file that has only one.
    fn of_all(head: &[u8]) -> FirstLine {
        let line_break = if head.ends_with(b"\r") { LineBreak::Cr } else { LineBreak::Lf };
        FirstLine { start: blank_bytes(head), end: head.len(), line_break }
    }
}

/// The kind of the line break at `index`; `None` if the byte behind a CR is missing.
fn line_break_at(head: &[u8], index: usize) -> Option<LineBreak> {
    match (head.get(index)?, head.get(index + 1)) {
        (b'\r', Some(b'\n')) => Some(LineBreak::Lf),
        (b'\r', Some(_)) => Some(LineBreak::Cr),
        (b'\r', None) => None,
        _ => Some(LineBreak::Lf),
    }
}

fn mark_bytes(head: &[u8]) -> usize {
    if head.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 }
}

/// Bytes of the mark and of the blank lines behind it.
fn blank_bytes(head: &[u8]) -> usize {
    let rest = head.iter().skip(mark_bytes(head));
    mark_bytes(head) + rest.take_while(|byte| matches!(byte, b'\n' | b'\r')).count()
}

fn layout_of(head: &[u8], first: FirstLine, shape: &Shape) -> Result<Layout, String> {
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") || head.starts_with(b"\0\0\xfe\xff") {
        return Err(not_utf8("it begins with the mark of UTF-16 or UTF-32"));
    }
    let FirstLine { start, end, line_break } = first;
    let line = line_break.trim(head.get(start..end).unwrap_or_default());
    if is_utf16(line, shape) {
        return Err(not_utf8("every other byte is zero, as in UTF-16"));
    }
    let separator = shape.separator.unwrap_or(if shape.format == Format::Tsv { b'\t' } else { b',' });
    let data_at = Position { offset: mark_bytes(head) as u64, lines: 0 };
    let layout = Layout { line_break, separator, data_at };
    if shape.format == Format::Jsonl {
        return Ok(layout);
    }
    if let Some(said) = said_separator(line) {
        if said != separator && (shape.separator.is_some() || shape.format == Format::Tsv) {
            return Err(format!(
                "its first line says that the separator is {}, and not {}; \
                 give --separator '{}' to read it so",
                spelled(said),
                spelled(separator),
                option(said),
            ));
        }
        let lines = line_break.count(head.get(..end).unwrap_or_default());
        return Ok(Layout { separator: said, data_at: Position { offset: end as u64, lines }, ..layout });
    }
    match other_separator(line, separator, shape) {
        Some(other) if shape.separator.is_none() => Err(format!(
            "the first row looks as if {} were the separator, and not {}; \
             give --separator '{}' or --separator '{}'",
            spelled(other),
            spelled(separator),
            option(other),
            option(separator),
        )),
        _ => Ok(layout),
    }
}

fn not_utf8(reason: &str) -> String {
    format!("the file is not UTF-8 ({reason}); convert it, as with `iconv -f UTF-16 -t UTF-8`")
}

/// Whether the first line looks like UTF-16 without a mark: ASCII characters with a zero byte beside each.
fn is_utf16(line: &[u8], shape: &Shape) -> bool {
    if shape.format == Format::Jsonl {
        // JSON has no zero bytes, and begins with an ASCII character.
        return matches!(line, [first, second, ..] if (*first == 0) != (*second == 0));
    }
    let of_text = |index: usize| line.get(index).is_some_and(|byte| *byte != 0);
    let zeros = |parity: usize| {
        line.iter().enumerate().filter(|(index, byte)| index % 2 == parity && **byte == 0).count()
    };
    let (even, odd) = (zeros(0), zeros(1));
    let is_latin = (even == 0) != (odd == 0) && 5 * (even + odd) >= 2 * line.len() && line.len() > 1;
    let separators: Vec<usize> =
        (0..line.len()).filter(|index| matches!(line[*index], b',' | b';' | b'\t' | b'|')).collect();
    let little = |index: &usize| index.is_multiple_of(2) && line.get(index + 1) == Some(&0);
    let big = |index: &usize| !index.is_multiple_of(2) && !of_text(index - 1);
    is_latin || !separators.is_empty() && (separators.iter().all(little) || separators.iter().all(big))
}

/// The separator named by a line `sep=;`, quoted or not.
fn said_separator(line: &[u8]) -> Option<u8> {
    let line = line.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(line);
    match line {
        [name @ .., separator] if name.eq_ignore_ascii_case(b"sep=") && is_usable(*separator) => {
            Some(*separator)
        }
        _ => None,
    }
}

/// A wrong separator that the first row uses instead of the right one.
fn other_separator(line: &[u8], separator: u8, shape: &Shape) -> Option<u8> {
    let bare = outside_quotes(line, shape.format);
    let count = |wanted: u8| bare.iter().filter(|byte| **byte == wanted).count();
    let between_digits = |index: usize| {
        let is_digit =
            |index: Option<usize>| index.and_then(|at| bare.get(at)).is_some_and(u8::is_ascii_digit);
        is_digit(index.checked_sub(1)) && is_digit(Some(index + 1))
    };
    let right = count(separator);
    // Text in data may contain other separators, names do not. A comma between digits is a decimal comma.
    let are_decimals =
        || bare.iter().enumerate().all(|(index, byte)| *byte != separator || between_digits(index));
    let is_wrong = |other: u8| match (shape.format, shape.header) {
        (Format::Csv, true) => count(other) >= right,
        (Format::Csv, false) => are_decimals(),
        _ => right == 0,
    };
    let others = SEPARATORS.into_iter().chain([b',']).filter(|other| *other != separator);
    others.filter(|other| count(*other) > 0 && is_wrong(*other)).max_by_key(|other| count(*other))
}

fn outside_quotes(line: &[u8], format: Format) -> Vec<u8> {
    let mut is_quoted = false;
    let mut bare = Vec::new();
    for &byte in line {
        is_quoted ^= byte == b'"' && format == Format::Csv;
        if !is_quoted {
            bare.push(byte);
        }
    }
    bare
}

/// Whether a byte may separate fields.
pub(crate) fn is_usable(byte: u8) -> bool {
    !matches!(byte, b'"' | b'\\') && (byte.is_ascii_punctuation() || byte == b'\t' || byte == b' ')
}

fn spelled(separator: u8) -> String {
    if separator == b'\t' { "a tab".to_string() } else { format!("{:?}", char::from(separator)) }
}

/// The argument of --separator for a separator.
pub fn option(separator: u8) -> String {
    if separator == b'\t' { "tab".to_string() } else { char::from(separator).to_string() }
}

/// Parses an argument of --separator: one character, or `tab`.
pub fn parse_separator(word: &str) -> Result<u8, String> {
    match word.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if is_usable(*byte) => Ok(*byte),
        _ => Err("give one punctuation character, or tab".to_string()),
    }
}
