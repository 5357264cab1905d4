//! Lines of an input, with offset and number, and with a limit on their length.

use std::io::{self, Seek, SeekFrom};
use std::ops::Range;

use super::Position;
use super::input::Input;
use super::layout::{Layout, LineBreak};

/// The next line of [`Lines`].
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// A line, available from [`Lines::text`].
    Read,
    /// A line over the limit, skipped.
    TooLong,
    End,
}

pub(crate) struct Lines {
    input: Input,
    line_break: LineBreak,
    position: Position,
    text: Range<u64>,
}

impl Lines {
    pub(crate) fn new(input: Input, layout: &Layout) -> io::Result<Lines> {
        let (line_break, position) = (layout.line_break, layout.data_at);
        let mut lines = Lines { input, line_break, position, text: 0..0 };
        lines.seek(position)?;
        Ok(lines)
    }

    pub(crate) fn position(&self) -> Position {
        self.position
    }

    pub(crate) fn can_seek(&self) -> bool {
        self.input.can_seek()
    }

    pub(crate) fn line_break(&self) -> LineBreak {
        self.line_break
    }

    pub(crate) fn seek(&mut self, position: Position) -> io::Result<()> {
        self.input.seek(SeekFrom::Start(position.offset))?;
        self.position = position;
        Ok(())
    }

    /// The last line, without its line break.
    pub(crate) fn text(&self) -> &[u8] {
        self.line_break.trim(self.input.kept(self.text.clone()))
    }

    /// Reads the next line.
    pub(crate) fn next(&mut self) -> io::Result<Line> {
        let start = self.position.offset;
        self.input.keep_from(start);
        let mut searched = start;
        let (end, line) = loop {
            let rest = self.input.kept(searched..self.input.kept_to());
            if let Some(index) = rest.iter().position(|byte| *byte == self.line_break.byte()) {
                break (searched + index as u64 + 1, Line::Read);
            }
            searched = self.input.kept_to();
            self.input.seek(SeekFrom::Start(searched))?;
            if !self.input.has_room() {
                break (self.input.pass_line(self.line_break.byte())?, Line::TooLong);
            }
            if !self.input.keep_more()? {
                break (searched, Line::Read);
            }
        };
        if end == start {
            return Ok(Line::End);
        }
        self.input.seek(SeekFrom::Start(end))?;
        self.text = start..end;
        self.position = Position { offset: end, lines: self.position.lines + 1 };
        Ok(line)
    }
}
