//! Rows of a file as items: CSV, tab-separated values and JSON lines, read in bounded memory with exact
//! positions.
//!
//! What it is not: a table reader; a row's only use here is a key and a value. Used by the import; the export
//! writes the same formats through [`mod@write`].
//!
//! 1. [`Rows::position`] after a row is where the next one begins; reading from there gives the same rows.
//! 2. A bad row is an answer, not a failure, and the row after it is read as if the bad one were not there.
//! 3. A row longer than [`ROW_BYTES_MAX`] is bad, and its bytes are not kept in memory.
//! 4. What a file holds is an item, is told as bad, or was left out by the user's options. A file whose
//!    layout means something else than it seems is refused when it is opened.

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

/// The longest row, in bytes, line breaks in quotes included.
pub const ROW_BYTES_MAX: usize = 64 << 20;

/// A place between two rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Position {
    /// Bytes before it.
    pub offset: u64,
    /// Line breaks before it.
    pub lines: u64,
}

/// How a file's rows become items: what must be the same again for a position to mean the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// Of the file.
    pub format: Format,
    /// The column of the key, where it was named.
    pub key: Option<String>,
    /// The column of the value, where it was named.
    pub value: Option<String>,
    /// Whether the first row holds names.
    pub header: bool,
    /// The byte between two fields of csv or tsv, where it was named.
    #[serde(default)]
    pub separator: Option<u8>,
}

/// An item and where its row began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Where its row began.
    pub at: Position,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// What a row turned out to be.
#[derive(PartialEq, Eq, Debug)]
pub enum Row {
    /// One item.
    Item(Item),
    /// Not an item.
    Bad {
        /// The line it began on, counted from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
}

/// A file's rows, one after the other.
pub struct Rows {
    reader: Reader,
    shape: Shape,
    name: String,
    columns: Option<Columns>,
}

enum Reader {
    Csv(Box<Records>),
    /// With the separator.
    Tsv(Lines, u8),
    Json(Lines),
}

/// A row of csv or tsv, or why it is bad.
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

    /// The file, as messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the file keeps its bytes, so that a position in it can be gone on from later.
    pub fn can_seek(&self) -> bool {
        match &self.reader {
            Reader::Csv(records) => records.can_seek(),
            Reader::Tsv(lines, _) | Reader::Json(lines) => lines.can_seek(),
        }
    }

    /// Whether the first row was taken as names.
    pub fn has_header(&self) -> bool {
        self.shape.header && self.columns.is_some()
    }

    /// Where the next row begins.
    pub fn position(&self) -> Position {
        match &self.reader {
            Reader::Csv(records) => records.position(),
            Reader::Tsv(lines, _) | Reader::Json(lines) => lines.position(),
        }
    }

    /// Goes on from a position this file gave before.
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

    /// Learns the columns from the first row: from the names that it holds, or from the number of its fields.
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

    /// The next row's fields; blank lines are passed over.
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

    /// The item that a row of csv or tsv makes.
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
