//! Writes items with any bytes as rows that [`super::Rows`] decodes to the same bytes.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::{Format, csv, tsv};
use crate::text::{Spelling, add_field, hex, is_unsafe, json_escaped};

/// The reader of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// A program: UTF-8 fields are written unchanged, others in hexadecimal.
    Program,
    /// A terminal: fields with control or format characters are written in hexadecimal too.
    Terminal,
    /// A spreadsheet: as for a terminal, with an apostrophe before fields that look like formulas.
    Spreadsheet,
}

/// Characters that a spreadsheet takes for the start of a formula, or skips before one.
const FORMULA_STARTS: [char; 10] =
    ['=', '+', '-', '@', '\t', '\r', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// The guard in front of a field that begins like a formula.
pub(super) const GUARD: u8 = b'\'';

/// Writes the header of the format, if it has one.
pub fn write_header(format: Format, out: &mut impl Write) -> io::Result<()> {
    match format {
        Format::Csv => out.write_all(b"key,value,hex\n"),
        Format::Tsv => out.write_all(b"key\tvalue\thex\n"),
        Format::Jsonl => Ok(()),
    }
}

/// Writes one item; `row` is scratch space.
pub fn write_item(
    (format, reader): (Format, Reader),
    (key, value): (&[u8], &[u8]),
    row: &mut Vec<u8>,
    out: &mut impl Write,
) -> io::Result<()> {
    row.clear();
    match format {
        Format::Csv => write_fields([key, value], b',', csv::write_field, reader, row),
        Format::Tsv => write_fields([key, value], b'\t', tsv::write_field, reader, row),
        Format::Jsonl => {
            let mut object = Map::new();
            add_field(&mut object, "key", key, Spelling::Text);
            add_field(&mut object, "value", value, Spelling::Text);
            row.extend_from_slice(json_escaped(&Value::Object(object).to_string()).as_bytes());
        }
    }
    row.push(b'\n');
    out.write_all(row)
}

fn write_fields(
    [key, value]: [&[u8]; 2],
    separator: u8,
    write_field: fn(&[u8], &mut Vec<u8>),
    reader: Reader,
    row: &mut Vec<u8>,
) {
    let mut flags = Vec::new();
    for (field, flag) in [(key, b'k'), (value, b'v')] {
        let is_refused = |text: &str| reader != Reader::Program && text.chars().any(is_unsafe);
        match std::str::from_utf8(field) {
            Ok(text) if is_refused(text) => write_hex(field, flag, write_field, row, &mut flags),
            Ok(text) if reader == Reader::Spreadsheet && text.starts_with(FORMULA_STARTS) => {
                write_field(&[&[GUARD], field].concat(), row);
                flags.push(flag.to_ascii_uppercase());
            }
            Ok(_) => write_field(field, row),
            Err(_) => write_hex(field, flag, write_field, row, &mut flags),
        }
        row.push(separator);
    }
    row.extend_from_slice(&flags);
}

fn write_hex(
    field: &[u8],
    flag: u8,
    write_field: fn(&[u8], &mut Vec<u8>),
    row: &mut Vec<u8>,
    flags: &mut Vec<u8>,
) {
    write_field(hex(field).as_bytes(), row);
    flags.push(flag);
}
