//! Rows of a file as items: CSV, tab-separated values and JSON lines, read in bounded memory with exact
//! positions.
//!
//! This is not a table reader: a row here is only a key and a value. The import uses it; the export writes
//! the same formats through [`mod@write`].
//!
//! 1. [`Rows::position`] after a row is the start of the next one; reading from there gives the same rows.
//! 2. A bad row is a result, not an error, and does not change the rows after it.
//! 3. A row longer than [`ROW_BYTES_MAX`] is bad, and its bytes are not kept in memory.
//! 4. The contents of a file are items, reported as bad, or left out by the user's options. A file with a
//!    misleading layout is refused at the opening.

mod columns;
mod csv;
mod format;
mod input;
mod json;
mod layout;
mod lines;
mod tsv;
pub mod write;

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::text::{parse_hex, path};
use columns::Columns;
use csv::Records;
pub(crate) use csv::write_field as write_csv_field;
pub use format::Format;
use input::Input;
use layout::Layout;
pub use layout::{option as separator_option, parse_separator};
use lines::{Line, Lines};

/// The longest row in bytes, including line breaks in quotes.
pub const ROW_BYTES_MAX: usize = 64 << 20;

/// A position between two rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Position {
    /// Bytes before it.
    pub offset: u64,
    /// Line breaks before it.
    pub lines: u64,
}

/// The rules that make items of rows. A position stays valid only with the same rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// The format of the file.
    pub format: Format,
    /// The column of the key, if an option names it.
    pub key: Option<String>,
    /// The column of the value, if an option names it.
    pub value: Option<String>,
    /// Whether the first row has names.
    pub header: bool,
    /// The byte between two fields of csv or tsv, if an option names it.
    #[serde(default)]
    pub separator: Option<u8>,
}

/// An item and the position of its row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Start of its row.
    pub at: Position,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// The result of reading a row.
#[derive(PartialEq, Eq, Debug)]
pub enum Row {
    /// An item.
    Item(Item),
    /// A bad row.
    Bad {
        /// Its first line, counted from 1.
        line: u64,
        /// The reason why it is bad.
        reason: String,
    },
}

/// The rows of a file, in order.
pub struct Rows {
    reader: Reader,
    shape: Shape,
    name: String,
    columns: Option<Columns>,
}

enum Reader {
    Csv(Box<Records>),
    /// The lines, and the separator of their fields.
    Tsv(Lines, u8),
    Json(Lines),
}

/// The fields of a csv or tsv row, or the reason why it is bad.
type Fields = Result<Vec<Vec<u8>>, String>;

impl Rows {
    /// Opens a file, or standard input for `-`, and reads the header if there is one.
    pub fn open(file: &Path, shape: Shape) -> Result<Rows, Failure> {
        if file == Path::new("-") {
            let input = Input::stream(io::stdin(), ROW_BYTES_MAX);
            return Rows::of(input, "standard input".to_string(), shape);
        }
        Rows::of(Input::open(file, ROW_BYTES_MAX)?, path(file), shape)
    }

    fn of(mut input: Input, name: String, shape: Shape) -> Result<Rows, Failure> {
        let failed = |source| Failure::File { operation: "read", name: name.clone(), source };
        let layout = Layout::of(&mut input, &shape).map_err(failed)?;
        let layout = layout.map_err(|reason| Failure::Other(format!("{name}: {reason}")))?;
        let reader = match shape.format {
            Format::Csv => Reader::Csv(Box::new(Records::new(input, &layout).map_err(failed)?)),
            Format::Tsv => Reader::Tsv(Lines::new(input, &layout).map_err(failed)?, layout.separator),
            Format::Jsonl => Reader::Json(Lines::new(input, &layout).map_err(failed)?),
        };
        let mut rows = Rows { reader, shape, name, columns: None };
        rows.read_first_row(layout.data_at)?;
        Ok(rows)
    }

    /// The file's name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the input is a file, so that reading can continue later from a position.
    pub fn can_seek(&self) -> bool {
        match &self.reader {
            Reader::Csv(records) => records.can_seek(),
            Reader::Tsv(lines, _) | Reader::Json(lines) => lines.can_seek(),
        }
    }

    /// Whether the first row was read as names.
    pub fn has_header(&self) -> bool {
        self.shape.header && self.columns.is_some()
    }

    /// Start of the next row.
    pub fn position(&self) -> Position {
        match &self.reader {
            Reader::Csv(records) => records.position(),
            Reader::Tsv(lines, _) | Reader::Json(lines) => lines.position(),
        }
    }

    /// Continues from an earlier position of this file.
    pub fn seek(&mut self, position: Position) -> Result<(), Failure> {
        let sought = match &mut self.reader {
            Reader::Csv(records) => records.seek(position),
            Reader::Tsv(lines, _) | Reader::Json(lines) => lines.seek(position),
        };
        sought.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> Failure {
        Failure::File { operation: "read", name: self.name.clone(), source }
    }

    /// The next row, or `None` at the end of the file.
    #[expect(clippy::should_implement_trait, reason = "a read that fails is an error, not an item")]
    pub fn next(&mut self) -> Result<Option<Row>, Failure> {
        let next = match self.shape.format {
            Format::Jsonl => self.next_object(),
            Format::Csv | Format::Tsv => self
                .next_fields()
                .map(|next| next.map(|(at, fields)| (at, fields.and_then(|fields| self.item_of(fields))))),
        };
        let next = next.map_err(|source| self.failed(source))?;
        Ok(next.map(|(at, item)| match item {
            Ok((key, value)) => Row::Item(Item { at, key, value }),
            Err(reason) => Row::Bad { line: at.lines + 1, reason },
        }))
    }

    /// Determines the columns from the first row: from its names, or from the number of its fields.
    fn read_first_row(&mut self, data_at: Position) -> Result<(), Failure> {
        if self.shape.format == Format::Jsonl {
            return Ok(());
        }
        let first = self.next_fields().map_err(|source| self.failed(source))?;
        let Some((at, fields)) = first else { return self.seek(data_at) };
        let bad = |reason: String| {
            let row = if self.shape.header { "the header" } else { "the first row" };
            Failure::Other(format!("{}, line {}, {row}: {reason}", self.name, at.lines + 1))
        };
        let fields = fields.map_err(bad)?;
        let names = if self.shape.header {
            names_of(fields).map_err(bad)?
        } else {
            (1..=fields.len()).map(|number| number.to_string()).collect()
        };
        self.columns = Some(Columns::of(names, &self.shape).map_err(bad)?);
        if self.shape.header { Ok(()) } else { self.seek(data_at) }
    }

    fn next_object(&mut self) -> io::Result<Option<(Position, Result<KeyValue, String>)>> {
        let Reader::Json(lines) = &mut self.reader else { return Ok(None) };
        loop {
            let at = lines.position();
            let item = match lines.next()? {
                Line::End => return Ok(None),
                Line::Read if lines.text().trim_ascii().is_empty() => continue,
                Line::Read => json::item(lines.text(), &self.shape),
                Line::TooLong => Err(too_long()),
            };
            return Ok(Some((at, item)));
        }
    }

    /// The fields of the next row; blank lines are skipped.
    fn next_fields(&mut self) -> io::Result<Option<(Position, Fields)>> {
        match &mut self.reader {
            Reader::Csv(records) => Ok(records.next()?.map(|record| (record.at, record.fields))),
            Reader::Tsv(lines, separator) => loop {
                let at = lines.position();
                let fields = match lines.next()? {
                    Line::End => return Ok(None),
                    Line::Read if lines.text().is_empty() => continue,
                    Line::Read => tsv::fields(lines.text(), *separator, lines.line_break()),
                    Line::TooLong => Err(too_long()),
                };
                return Ok(Some((at, fields)));
            },
            Reader::Json(_) => Ok(None),
        }
    }

    /// The item of a csv or tsv row.
    fn item_of(&self, fields: Vec<Vec<u8>>) -> Result<KeyValue, String> {
        let Some(columns) = &self.columns else { return Err("the file had no first row".to_string()) };
        let (given, expected) = (fields.len(), columns.count());
        if given == expected {
            return columns.item(fields);
        }
        let column = match &self.reader {
            Reader::Csv(records) => records.column_of_field(expected),
            Reader::Tsv(lines, separator) => tsv::column_of_field(lines.text(), *separator, expected),
            Reader::Json(_) => String::new(),
        };
        let place = if given > expected { "the first too many begins at" } else { "the row ends at" };
        Err(format!("{given} fields, where {expected} are expected; {place} {column}"))
    }
}

type KeyValue = (Vec<u8>, Vec<u8>);

fn too_long() -> String {
    format!("the row is longer than {ROW_BYTES_MAX} bytes")
}

fn names_of(fields: Vec<Vec<u8>>) -> Result<Vec<String>, String> {
    let names = fields.into_iter().enumerate().map(|(index, field)| match String::from_utf8(field) {
        Err(_) => Err(format!("the name of column {} is not UTF-8", index + 1)),
        Ok(name) if name.contains('\0') => Err(format!("the name of column {} holds a NUL byte", index + 1)),
        Ok(name) => Ok(name),
    });
    names.collect()
}

fn from_hex(what: &str, digits: &[u8]) -> Result<Vec<u8>, String> {
    parse_hex(digits).map_err(|reason| format!("the {what} should be hexadecimal: {reason}"))
}

#[cfg(test)]
mod tests;
