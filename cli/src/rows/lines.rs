//! Lines of a file or of standard input, with the offset and number of each, none longer than asked for.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Stdin};
use std::path::Path;

use super::Position;
use crate::failure::Failure;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

enum Input {
    File(BufReader<File>),
    Standard(BufReader<Stdin>),
}

/// What [`Lines::append_line`] found.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Line {
    Read,
    /// The line was passed over.
    TooLong,
    End,
}

pub(crate) struct Lines {
    input: Input,
    position: Position,
}

impl Lines {
    pub(crate) fn open(path: &Path) -> Result<Lines, Failure> {
        let file = File::open(path).map_err(|source| Failure::file("open", path, source))?;
        if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(Failure::Other(format!("{} is a directory, not a file of rows", path.display())));
        }
        Ok(Lines::new(Input::File(BufReader::with_capacity(1 << 18, file))))
    }

    pub(crate) fn standard_input() -> Lines {
        Lines::new(Input::Standard(BufReader::with_capacity(1 << 18, io::stdin())))
    }

    fn new(input: Input) -> Lines {
        Lines { input, position: Position::default() }
    }

    pub(crate) fn position(&self) -> Position {
        self.position
    }

    pub(crate) fn can_seek(&self) -> bool {
        matches!(self.input, Input::File(_))
    }

    pub(crate) fn seek(&mut self, position: Position) -> io::Result<()> {
        match &mut self.input {
            Input::File(file) => file.seek(SeekFrom::Start(position.offset))?,
            Input::Standard(_) => return Err(io::ErrorKind::NotSeekable.into()),
        };
        self.position = position;
        Ok(())
    }

    /// Appends the next line, its line break included, unless it is longer than `room_bytes`.
    pub(crate) fn append_line(&mut self, into: &mut Vec<u8>, room_bytes: usize) -> io::Result<Line> {
        let start = into.len();
        let mut passed_over = false;
        loop {
            let buffered = match &mut self.input {
                Input::File(file) => fill(file)?,
                Input::Standard(standard) => fill(standard)?,
            };
            let (taken, is_end) = match buffered.iter().position(|byte| *byte == b'\n') {
                Some(index) => (&buffered[..=index], true),
                None => (buffered, buffered.is_empty()),
            };
            let is_end_of_input = taken.is_empty();
            let taken_bytes = taken.len();
            if passed_over || into.len() - start + taken_bytes > room_bytes {
                passed_over = true;
                into.truncate(start);
            } else {
                into.extend_from_slice(taken);
            }
            match &mut self.input {
                Input::File(file) => file.consume(taken_bytes),
                Input::Standard(standard) => standard.consume(taken_bytes),
            }
            let at_start_of_file = self.position.offset == 0;
            self.position.offset += taken_bytes as u64;
            if at_start_of_file && into.get(start..).is_some_and(|line| line.starts_with(BYTE_ORDER_MARK)) {
                into.drain(start..start + BYTE_ORDER_MARK.len());
            }
            if is_end {
                if is_end_of_input && into.len() == start && !passed_over {
                    return Ok(Line::End);
                }
                self.position.lines += 1;
                return Ok(if passed_over { Line::TooLong } else { Line::Read });
            }
        }
    }
}

/// What is buffered, reading on if that is nothing; a signal is no end.
fn fill<R: io::Read>(input: &mut BufReader<R>) -> io::Result<&[u8]> {
    loop {
        match input.fill_buf() {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(input.buffer())
}
