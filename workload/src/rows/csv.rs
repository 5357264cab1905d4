//! Comma-separated values (RFC 4180), read by the crate `csv`.
//!
//! A field may be quoted; in quotes a separator, a line break and a doubled quote stand for themselves. A
//! quote inside an unquoted field is text, as in every spreadsheet.
//!
//! The crate accepts any bytes as some record. So this module compares each record with its bytes, and
//! reports a record in an impossible spelling as bad: text behind a closing quote, a quote without an end,
//! or, outside quotes, a line break of another kind than the file's. After a bad record, reading continues at
//! its second line.

use std::io::{self, Read, SeekFrom};
use std::ops::Range;

use ::csv::{ByteRecord, Reader, ReaderBuilder, Terminator};

use super::Position;
use super::input::Input;
use super::layout::{Layout, LineBreak};

const BUFFER_BYTES: usize = 1 << 18;

/// A record: its start, and its fields or the reason why it is bad.
pub(crate) struct Record {
    pub(crate) at: Position,
    pub(crate) fields: Result<Vec<Vec<u8>>, String>,
}

/// The records of an input.
pub(crate) struct Records {
    reader: Reader<Input>,
    record: ByteRecord,
    position: Position,
    line_break: LineBreak,
    separator: u8,
    /// The last record: its start, and its bytes without the line break.
    last: (Position, Range<u64>),
}

impl Records {
    pub(crate) fn new(input: Input, layout: &Layout) -> io::Result<Records> {
        let mut reader = ReaderBuilder::new()
            .delimiter(layout.separator)
            .terminator(Terminator::Any(layout.line_break.byte()))
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(BUFFER_BYTES)
            .from_reader(input);
        // Without headers, a seek of the crate reads the first record as headers.
        reader.set_byte_headers(ByteRecord::new());
        let (line_break, separator) = (layout.line_break, layout.separator);
        let (record, position, last) = (ByteRecord::new(), layout.data_at, (layout.data_at, 0..0));
        let mut records = Records { reader, record, position, line_break, separator, last };
        records.seek(layout.data_at)?;
        Ok(records)
    }

    pub(crate) fn position(&self) -> Position {
        self.position
    }

    pub(crate) fn can_seek(&self) -> bool {
        self.reader.get_ref().can_seek()
    }

    /// Continues at a position between two records.
    ///
    /// The crate drops a byte order mark wherever it starts to read. So it starts at the line break before
    /// the position, if there is one, and a mark at the start of a row stays.
    pub(crate) fn seek(&mut self, position: Position) -> io::Result<()> {
        let mut from = position.offset;
        if let Some(before) = from.checked_sub(1) {
            let mut byte = [0];
            let input = self.reader.get_mut();
            if io::Seek::seek(input, SeekFrom::Start(before)).is_ok()
                && input.read(&mut byte)? == 1
                && byte == [self.line_break.byte()]
            {
                from = before;
            }
        }
        let mut at = ::csv::Position::new();
        at.set_byte(from);
        self.reader.seek_raw(SeekFrom::Start(from), at).map_err(io_error)?;
        self.position = position;
        Ok(())
    }

    /// Reads the next record; blank lines are skipped.
    pub(crate) fn next(&mut self) -> io::Result<Option<Record>> {
        loop {
            let start = self.position;
            self.reader.get_mut().keep_from(start.offset.saturating_sub(1));
            let is_record = match self.reader.read_byte_record(&mut self.record) {
                Ok(is_record) => is_record,
                Err(_) if self.reader.get_ref().is_full() => return self.pass_too_long(start).map(Some),
                Err(error) => return Err(io_error(error)),
            };
            let end = self.reader.position().byte().max(start.offset);
            let bytes = self.reader.get_ref().kept(start.offset..end);
            let at = self.after_blank_lines(start, bytes);
            let text = self.line_break.trim(&bytes[(at.offset - start.offset) as usize..]);
            self.last = (at, at.offset..at.offset + text.len() as u64);
            if !is_record || text.is_empty() {
                let lines = start.lines + self.line_break.count(bytes);
                self.position = Position { offset: end, lines };
                if is_record {
                    continue;
                }
                return Ok(None);
            }
            let mut fields: Vec<Vec<u8>> = self.record.iter().map(<[u8]>::to_vec).collect();
            // The crate takes a CR before the line break for the last byte of the last field.
            let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
            if let Some(last) = fields.last_mut().filter(|_| self.line_break == LineBreak::Lf) {
                last.truncate(last.len() - usize::from(line.ends_with(b"\r")));
            }
            let lines = start.lines + self.line_break.count(bytes);
            let fields = self.check(text, &fields).map(|()| fields);
            match self.second_line(at, text).filter(|_| fields.is_err()) {
                Some(second) => self.seek(second)?,
                None => self.position = Position { offset: end, lines },
            }
            return Ok(Some(Record { at, fields }));
        }
    }

    fn after_blank_lines(&self, start: Position, bytes: &[u8]) -> Position {
        let blank = bytes.iter().take_while(|byte| **byte == self.line_break.byte()).count() as u64;
        Position { offset: start.offset + blank, lines: start.lines + blank }
    }

    /// The position of the second line of a record with several lines.
    fn second_line(&self, at: Position, text: &[u8]) -> Option<Position> {
        let index = text.iter().position(|byte| *byte == self.line_break.byte())?;
        Some(Position { offset: at.offset + index as u64 + 1, lines: at.lines + 1 })
    }

    /// Skips a record that is too long to keep: its first line only, if the record has several.
    fn pass_too_long(&mut self, start: Position) -> io::Result<Record> {
        let bytes = self.reader.get_ref().kept(start.offset..u64::MAX);
        let at = self.after_blank_lines(start, bytes);
        let text = &bytes[(at.offset - start.offset) as usize..];
        let limit = self.reader.get_ref().row_bytes_max();
        if let Some(second) = self.second_line(at, text) {
            self.last = (at, at.offset..second.offset);
            self.seek(second)?;
            let reason = format!("a quote that is opened here is not closed within {limit} bytes");
            return Ok(Record { at, fields: Err(reason) });
        }
        let line_break = self.line_break.byte();
        let end = self.reader.get_mut().pass_line(line_break)?;
        self.reader.get_mut().keep_from(end - 1);
        self.seek(Position { offset: end, lines: at.lines + 1 })?;
        Ok(Record { at, fields: Err(format!("the row is longer than {limit} bytes")) })
    }

    /// Checks that the fields, encoded again, give the bytes of the row; else returns the fault.
    fn check(&self, text: &[u8], fields: &[Vec<u8>]) -> Result<(), String> {
        if !text.iter().any(|byte| *byte == b'"' || *byte == self.line_break.other()) {
            return Ok(());
        }
        let mut rest = text;
        for (index, field) in fields.iter().enumerate() {
            let field_at = text.len() - rest.len();
            let bad = |fault: &str| {
                Err(format!("field {} ({}) {fault}", index + 1, self.column_of(text, field_at)))
            };
            if let Some(quoted) = rest.strip_prefix(b"\"") {
                rest = match after_quoted(quoted, field) {
                    Ok(rest) => rest,
                    Err(BadQuote::Unclosed) => return bad("opens a quote that is never closed"),
                    Err(BadQuote::TextBehind) => return bad("has text after its closing quote"),
                };
            } else {
                if field.contains(&self.line_break.other()) {
                    return bad(match self.line_break {
                        LineBreak::Lf => "has a carriage return outside quotes",
                        LineBreak::Cr => {
                            "has a line feed outside quotes, where lines end in a carriage return"
                        }
                    });
                }
                rest = rest.get(field.len()..).unwrap_or_default();
            }
            rest = match rest.split_first() {
                Some((byte, rest)) if *byte == self.separator => rest,
                None => rest,
                Some(_) => return bad("has text after its closing quote"),
            };
        }
        Ok(())
    }

    /// The position of a byte of the last row: its column, counted in characters, and its line unless that is
    /// the first line of the row.
    fn column_of(&self, text: &[u8], index: usize) -> String {
        let before = text.get(..index).unwrap_or(text);
        let lines = self.line_break.count(before);
        let line_start =
            before.iter().rposition(|byte| *byte == self.line_break.byte()).map_or(0, |at| at + 1);
        let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
        match lines {
            0 => format!("column {column}"),
            lines => format!("line {}, column {column}", self.last.0.lines + 1 + lines),
        }
    }

    /// The start of a field of the last row, which is good, or the end of the row if it has fewer fields.
    pub(crate) fn column_of_field(&self, index: usize) -> String {
        let text = self.reader.get_ref().kept(self.last.1.clone());
        let mut field_at = 0;
        for field in self.record.iter().take(index) {
            let rest = text.get(field_at..).unwrap_or_default();
            let doubled = field.iter().filter(|byte| **byte == b'"').count();
            let quotes = if rest.first() == Some(&b'"') { 2 + doubled } else { 0 };
            field_at += field.len() + quotes + 1;
        }
        self.column_of(text, field_at)
    }
}

fn io_error(error: ::csv::Error) -> io::Error {
    match error.into_kind() {
        ::csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// A fault in the quotes of a field.
enum BadQuote {
    Unclosed,
    TextBehind,
}

/// The bytes behind a field's closing quote, if `quoted`, the bytes behind its opening quote, spell the
/// field.
fn after_quoted<'a>(quoted: &'a [u8], field: &[u8]) -> Result<&'a [u8], BadQuote> {
    let mut rest = quoted;
    for byte in field {
        rest = match (byte, rest) {
            (_, []) => return Err(BadQuote::Unclosed),
            (b'"', [b'"', b'"', rest @ ..]) => rest,
            (_, [first, rest @ ..]) if *byte != b'"' && first == byte => rest,
            _ => return Err(BadQuote::TextBehind),
        };
    }
    match rest {
        [b'"', rest @ ..] => Ok(rest),
        [] => Err(BadQuote::Unclosed),
        _ => Err(BadQuote::TextBehind),
    }
}

/// Appends a field, quoted if it must be.
pub(crate) fn write_field(field: &[u8], row: &mut Vec<u8>) {
    if !field.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        row.extend_from_slice(field);
        return;
    }
    row.push(b'"');
    for &byte in field {
        if byte == b'"' {
            row.push(b'"');
        }
        row.push(byte);
    }
    row.push(b'"');
}
