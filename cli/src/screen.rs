//! Standard output: buffered, told apart from other files when it fails, never a panic.

use std::fmt::Display;
use std::io::{BufWriter, StdoutLock, Write};

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use serde_json::Value;

use crate::failure::Failure;

/// The program's standard output. Call [`Screen::finish`] at the end: dropping it loses errors.
pub(crate) struct Screen {
    out: BufWriter<StdoutLock<'static>>,
}

impl Screen {
    pub(crate) fn new() -> Screen {
        Screen { out: BufWriter::with_capacity(1 << 16, std::io::stdout().lock()) }
    }

    pub(crate) fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        writeln!(self.out, "{line}").map_err(Failure::output)
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(Failure::output)
    }

    /// One JSON document, for machines but with line breaks so that people can look at it too.
    pub(crate) fn json(&mut self, value: &Value) -> Result<(), Failure> {
        self.line(format_args!("{value:#}"))
    }

    /// Makes what was written visible now.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::output)
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()
    }
}

/// A table of the program's one look: the first column to the left, numbers to the right.
pub(crate) fn table<H: Into<String>>(header: impl IntoIterator<Item = H>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(header.into_iter().map(Into::into).collect::<Vec<String>>());
    for (index, column) in table.column_iter_mut().enumerate() {
        let side = if index == 0 { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(side);
    }
    table
}
