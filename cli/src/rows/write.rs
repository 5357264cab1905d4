//! Items as rows that [`super::Rows`] reads back to the same bytes, whatever they are.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::{csv, tsv};
use crate::arguments::Format;
use crate::text::{Spelling, add_field, hex, is_unsafe, json_escaped};

/// The reader of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    Program,
    /// Fields with control or format characters are in hexadecimal, too.
    Terminal,
}

/// Writes the header that the format begins with.
pub(crate) fn write_header(format: Format, out: &mut impl Write) -> io::Result<()> {
    match format {
        Format::Csv => out.write_all(b"key,value,hex\n"),
        Format::Tsv => out.write_all(b"key\tvalue\thex\n"),
        Format::Jsonl => Ok(()),
    }
}

/// Writes one item; `row` is scratch space.
pub(crate) fn write_item(
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
        let is_refused = |text: &str| reader == Reader::Terminal && text.chars().any(is_unsafe);
        if std::str::from_utf8(field).is_ok_and(|text| !is_refused(text)) {
            write_field(field, row);
        } else {
            write_field(hex(field).as_bytes(), row);
            flags.push(flag);
        }
        row.push(separator);
    }
    row.extend_from_slice(&flags);
}
