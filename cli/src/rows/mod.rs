//! Rows of a file as items: CSV, tab-separated values and JSON lines, read in bounded memory with exact
//! positions.
//!
//! What it is not: a table reader; a row's only use here is a key and a value. Used by the import; the export
//! writes the same formats through [`write`].
//!
//! 1. [`Rows::position`] after a row is where the next one begins; reading from there gives the same rows.
//! 2. A bad row is an answer, not a failure, and the row after it is read as if the bad one were not there.
//! 3. No row takes more than [`ROW_BYTES_MAX`] of memory, whatever the file holds.

mod csv;
mod json;
mod lines;
mod tsv;
pub(crate) mod write;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::arguments::Format;
use crate::failure::Failure;
use crate::text::parse_hex;
pub(crate) use csv::write_field as write_csv_field;
use lines::{Line, Lines};

/// The longest row, in bytes, line breaks in quotes included.
pub(crate) const ROW_BYTES_MAX: usize = 64 << 20;

/// A place between two rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Bytes before it.
    pub(crate) offset: u64,
    /// Line breaks before it.
    pub(crate) lines: u64,
}

/// How a file's rows become items: what must be the same again for a position to mean the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) format: Format,
    /// The column of the key, where it was named.
    pub(crate) key: Option<String>,
    /// The column of the value, where it was named.
    pub(crate) value: Option<String>,
    pub(crate) header: bool,
}

/// An item and where its row began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    pub(crate) at: Position,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// What a row turned out to be.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Row {
    Item(Item),
    /// Not an item: the line it began on, counted from 1, and what is wrong.
    Bad {
        line: u64,
        reason: String,
    },
}

/// A file's rows, one after the other.
pub(crate) struct Rows {
    lines: Lines,
    shape: Shape,
    name: String,
    columns: Option<Columns>,
    machine: csv::Machine,
    line: Vec<u8>,
}

/// Which fields of a row of csv or tsv make the item; decided once, by the first row.
struct Columns {
    names: Vec<String>,
    key: usize,
    value: Source,
}

/// A row of csv or tsv, or why it is bad.
type Fields = Result<Vec<Vec<u8>>, String>;

enum Source {
    Column(usize),
    /// As `Column`, and this one says what is in hexadecimal digits.
    Flagged(usize, usize),
    WholeRow,
}

impl Rows {
    /// Opens `path`, or standard input for `-`, and reads the header if there is one.
    pub(crate) fn open(path: &Path, shape: Shape) -> Result<Rows, Failure> {
        let (lines, name) = if path == Path::new("-") {
            (Lines::standard_input(), "standard input".to_string())
        } else {
            (Lines::open(path)?, path.display().to_string())
        };
        let machine = csv::Machine::default();
        let mut rows = Rows { lines, shape, name, columns: None, machine, line: Vec::new() };
        rows.read_header()?;
        Ok(rows)
    }

    /// The file, as messages call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where the next row begins.
    pub(crate) fn position(&self) -> Position {
        self.lines.position()
    }

    /// Goes on from a position this file gave before.
    pub(crate) fn seek(&mut self, position: Position) -> Result<(), Failure> {
        self.lines.seek(position).map_err(|source| Failure::file("read", &PathBuf::from(&self.name), source))
    }

    /// The next row, or `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<Row>, Failure> {
        loop {
            let at = self.position();
            let item = match self.shape.format {
                Format::Jsonl => match self.next_line()? {
                    None => return Ok(None),
                    Some(Err(reason)) => Err(reason),
                    Some(Ok(())) if self.line.trim_ascii().is_empty() => continue,
                    Some(Ok(())) => json::item(&self.line, &self.shape),
                },
                Format::Csv | Format::Tsv => match self.next_fields()? {
                    None => return Ok(None),
                    Some(Err(reason)) => Err(reason),
                    Some(Ok(fields)) if fields.is_empty() => continue,
                    Some(Ok(fields)) => self.item_of(fields),
                },
            };
            return Ok(Some(match item {
                Ok((key, value)) => Row::Item(Item { at, key, value }),
                Err(reason) => Row::Bad { line: at.lines + 1, reason },
            }));
        }
    }

    fn read_header(&mut self) -> Result<(), Failure> {
        if self.shape.format == Format::Jsonl || !self.shape.header {
            return Ok(());
        }
        let bad = |name: &str, reason: String| Failure::Other(format!("{name}, the header: {reason}"));
        let fields = loop {
            match self.next_fields()? {
                None => return Ok(()),
                Some(Ok(fields)) if fields.is_empty() => {}
                Some(Ok(fields)) => break fields,
                Some(Err(reason)) => return Err(bad(&self.name, reason)),
            }
        };
        let names: Result<Vec<String>, _> = fields.into_iter().map(String::from_utf8).collect();
        let names = names.map_err(|_| bad(&self.name, "a column's name is not UTF-8".to_string()))?;
        self.columns = Some(columns_of(names, &self.shape).map_err(|reason| bad(&self.name, reason))?);
        Ok(())
    }

    /// Reads one line into `self.line`, without its line break.
    fn next_line(&mut self) -> Result<Option<Result<(), String>>, Failure> {
        self.line.clear();
        let line = self.lines.append_line(&mut self.line, ROW_BYTES_MAX);
        let line = line.map_err(|source| Failure::file("read", &PathBuf::from(&self.name), source))?;
        Ok(match line {
            Line::End => None,
            Line::TooLong => Some(Err(format!("the row is longer than {ROW_BYTES_MAX} bytes"))),
            Line::Read => {
                for line_break in [b'\n', b'\r'] {
                    if self.line.last() == Some(&line_break) {
                        self.line.pop();
                    }
                }
                Some(Ok(()))
            }
        })
    }

    /// The next row's fields; none for a blank line.
    fn next_fields(&mut self) -> Result<Option<Fields>, Failure> {
        match self.shape.format {
            Format::Csv => self.next_csv_fields(),
            Format::Tsv | Format::Jsonl => {
                Ok(self.next_line()?.map(|line| line.map(|()| tsv::fields(&self.line))))
            }
        }
    }

    fn next_csv_fields(&mut self) -> Result<Option<Fields>, Failure> {
        self.machine.clear();
        let mut second_line = None;
        let mut row_bytes = 0;
        loop {
            self.line.clear();
            let line = self.lines.append_line(&mut self.line, ROW_BYTES_MAX - row_bytes);
            let line = line.map_err(|source| Failure::file("read", &PathBuf::from(&self.name), source))?;
            row_bytes += self.line.len();
            let unclosed = match line {
                Line::End if second_line.is_none() => return Ok(None),
                Line::End => "a quote that is opened here is never closed".to_string(),
                Line::TooLong if second_line.is_none() => {
                    return Ok(Some(Err(format!("the row is longer than {ROW_BYTES_MAX} bytes"))));
                }
                Line::TooLong => {
                    format!("a quote that is opened here is not closed within {ROW_BYTES_MAX} bytes")
                }
                Line::Read => match self.machine.feed(&self.line) {
                    csv::Fed::Row => return Ok(Some(Ok(self.machine.fields()))),
                    csv::Fed::Bad(reason) => return Ok(Some(Err(reason))),
                    csv::Fed::Open => {
                        second_line.get_or_insert(self.lines.position());
                        continue;
                    }
                },
            };
            if let Some(position) = second_line.filter(|_| self.lines.can_seek()) {
                self.seek(position)?;
            }
            return Ok(Some(Err(unclosed)));
        }
    }

    /// The item that a row of csv or tsv makes.
    fn item_of(&mut self, mut fields: Vec<Vec<u8>>) -> Result<(Vec<u8>, Vec<u8>), String> {
        let columns = match &mut self.columns {
            Some(columns) => columns,
            unset => {
                let names = (1..=fields.len()).map(|number| number.to_string()).collect();
                unset.insert(columns_of(names, &self.shape)?)
            }
        };
        if fields.len() != columns.names.len() {
            return Err(format!("{} fields, where {} are expected", fields.len(), columns.names.len()));
        }
        let value = match columns.value {
            Source::WholeRow => whole_row(&columns.names, &fields)?,
            Source::Column(index) | Source::Flagged(index, _) => fields[index].clone(),
        };
        let flags = match columns.value {
            Source::Flagged(_, index) => std::mem::take(&mut fields[index]),
            Source::Column(_) | Source::WholeRow => Vec::new(),
        };
        let key = std::mem::take(&mut fields[columns.key]);
        match flags.as_slice() {
            b"" => Ok((key, value)),
            b"k" => Ok((from_hex("key", &key)?, value)),
            b"v" => Ok((key, from_hex("value", &value)?)),
            b"kv" => Ok((from_hex("key", &key)?, from_hex("value", &value)?)),
            _ => {
                Err("the column hex must be empty, k, v or kv; name --key and --value if it is data"
                    .to_string())
            }
        }
    }
}

fn from_hex(what: &str, digits: &[u8]) -> Result<Vec<u8>, String> {
    parse_hex(digits).map_err(|reason| format!("the {what} should be hexadecimal: {reason}"))
}

fn columns_of(names: Vec<String>, shape: &Shape) -> Result<Columns, String> {
    let find = |wanted: &str| names.iter().position(|name| name == wanted);
    let named = |wanted: &str| {
        find(wanted).ok_or_else(|| format!("there is no column {wanted:?}; there are {}", names.join(", ")))
    };
    let key = match &shape.key {
        Some(wanted) => named(wanted)?,
        None => find("key").unwrap_or(0),
    };
    let plain = shape.key.is_none() && shape.value.is_none();
    let value = match (&shape.value, find("value"), find("hex")) {
        (Some(wanted), _, _) => Source::Column(named(wanted)?),
        (None, Some(value), Some(hex)) if plain && names.len() == 3 => Source::Flagged(value, hex),
        (None, Some(value), _) if plain => Source::Column(value),
        _ if plain && !shape.header && names.len() == 2 => Source::Column(1),
        _ => Source::WholeRow,
    };
    Ok(Columns { key, value, names })
}

fn whole_row(names: &[String], fields: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    let mut object = Map::new();
    for (name, field) in names.iter().zip(fields) {
        let text = std::str::from_utf8(field).map_err(|_| {
            format!("the column {name:?} is not UTF-8, and cannot be JSON; take one column with --value")
        })?;
        object.insert(name.clone(), Value::from(text));
    }
    Ok(Value::Object(object).to_string().into_bytes())
}

#[cfg(test)]
mod tests;
