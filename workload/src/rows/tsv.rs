//! Tab-separated values: plain fields, with the escapes \t, \n, \r and \\ for tabs, line breaks and
//! backslashes.
//!
//! The format is that of databases (PostgreSQL's COPY, MySQL's OUTFILE). There are no quotes, and a backslash
//! before any other character stands for itself.

use super::layout::LineBreak;

/// The fields of a line, or the reason why it is bad.
pub(crate) fn fields(line: &[u8], separator: u8, line_break: LineBreak) -> Result<Vec<Vec<u8>>, String> {
    if let Some(index) = line.iter().position(|byte| *byte == line_break.other()) {
        let (name, escape) = match line_break {
            LineBreak::Lf => ("carriage return", "\\r"),
            LineBreak::Cr => ("line feed", "\\n"),
        };
        let column = column_of(line, index);
        return Err(format!("a {name} stands within the line, at column {column}; it is written {escape}"));
    }
    Ok(line.split(|byte| *byte == separator).map(unescape).collect())
}

/// The start of a field, or the end of the line if it has fewer fields.
pub(crate) fn column_of_field(line: &[u8], separator: u8, index: usize) -> String {
    let before: usize = line.split(|byte| *byte == separator).take(index).map(|field| field.len() + 1).sum();
    format!("column {}", column_of(line, before))
}

fn column_of(line: &[u8], index: usize) -> usize {
    String::from_utf8_lossy(line.get(..index).unwrap_or(line)).chars().count() + 1
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some(index) = rest.iter().position(|byte| *byte == b'\\') {
        let (before, from) = rest.split_at(index);
        text.extend_from_slice(before);
        let meant = match from.get(1) {
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'\\') => b'\\',
            _ => {
                text.push(b'\\');
                rest = &from[1..];
                continue;
            }
        };
        text.push(meant);
        rest = &from[2..];
    }
    text.extend_from_slice(rest);
    text
}

/// Appends a field, escaped if it must be.
pub(crate) fn write_field(field: &[u8], row: &mut Vec<u8>) {
    for &byte in field {
        match byte {
            b'\t' => row.extend_from_slice(b"\\t"),
            b'\n' => row.extend_from_slice(b"\\n"),
            b'\r' => row.extend_from_slice(b"\\r"),
            b'\\' => row.extend_from_slice(b"\\\\"),
            _ => row.push(byte),
        }
    }
}
