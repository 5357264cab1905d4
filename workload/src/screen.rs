//! Standard output: buffered, with errors of its own, and without panics.
//!
//! Lines are safe for a terminal, even if keys, names and paths have control characters. JSON escapes hidden
//! characters in ASCII. Only [`Screen::bytes`] writes raw bytes.

use std::fmt::{Display, Write as _};
use std::io::{BufWriter, StdoutLock, Write};

use anstream::{AutoStream, ColorChoice};
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use serde_json::Value;

use crate::failure::Failure;
use crate::text::{json_escaped, shown};

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const PLAIN: &str = "\x1b[0m";

/// `NAME:`, the prefix of errors, in colour unless `NO_COLOR` or the terminal forbids it.
pub fn error_prefix(name: &str) -> String {
    match AutoStream::choice(&std::io::stderr()) {
        ColorChoice::Never => format!("{name}:"),
        _ => format!("{RED}{name}:{PLAIN}"),
    }
}

/// The program's standard output. Call [`Screen::finish`] at the end: dropping it loses errors.
pub struct Screen {
    out: BufWriter<StdoutLock<'static>>,
    text: String,
    has_colour: bool,
}

impl Default for Screen {
    fn default() -> Screen {
        Screen::new()
    }
}

impl Screen {
    /// Locks standard output until [`Screen::finish`].
    pub fn new() -> Screen {
        let out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
        let has_colour = AutoStream::choice(&std::io::stdout()) != ColorChoice::Never;
        Screen { out, text: String::new(), has_colour }
    }

    /// Prints text of one line or several.
    pub fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        self.print(line, shown)
    }

    /// Prints a heading, bold on a terminal.
    pub fn heading(&mut self, heading: impl Display) -> Result<(), Failure> {
        if !self.has_colour {
            return self.line(heading);
        }
        self.bytes(BOLD.as_bytes())?;
        self.print(heading, shown)?;
        self.bytes(PLAIN.as_bytes())
    }

    /// Prints one JSON document on one line.
    pub fn object(&mut self, value: &Value) -> Result<(), Failure> {
        self.print(value, json_escaped)
    }

    /// Prints one JSON document with line breaks, for people and machines.
    pub fn json(&mut self, value: &Value) -> Result<(), Failure> {
        self.print(format_args!("{value:#}"), json_escaped)
    }

    fn print(
        &mut self,
        text: impl Display,
        escape: impl Fn(&str) -> std::borrow::Cow<'_, str>,
    ) -> Result<(), Failure> {
        self.text.clear();
        writeln!(self.text, "{text}").expect("a String takes every write");
        self.out.write_all(escape(&self.text).as_bytes()).map_err(Failure::output)
    }

    /// Prints exactly these bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(Failure::output)
    }

    /// Writes buffered output now.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::output)
    }

    /// Writes the remaining output.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush()
    }
}

/// An empty table in the program's style: the first column is aligned left, the others right.
pub fn table<H: Into<String>>(header: impl IntoIterator<Item = H>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(header.into_iter().map(Into::into).collect::<Vec<String>>());
    for (index, column) in table.column_iter_mut().enumerate() {
        let side = if index == 0 { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(side);
    }
    table
}
