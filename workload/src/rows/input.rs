//! The bytes of a file or of a stream, with the last ones kept for a second read.
//!
//! A reader of rows calls [`Input::keep_from`] with the offset that it may return to. Bytes from there on
//! stay in memory until the next read. So a bad row can be read again from its second line, even in a stream
//! without seeks.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use crate::failure::Failure;
use crate::text;

const CHUNK_BYTES: usize = 1 << 18;

enum Source {
    File(File),
    /// Standard input, a pipe or a device: each byte comes only once.
    Stream(Box<dyn Read>),
}

pub(crate) struct Input {
    source: Source,
    kept: Vec<u8>,
    /// The offset of the first kept byte.
    kept_at: u64,
    /// Number of kept bytes already read.
    next: usize,
    keep_from: u64,
    row_bytes_max: usize,
    is_full: bool,
}

impl Input {
    /// Opens a file. A row longer than `row_bytes_max` is not kept in memory.
    pub(crate) fn open(path: &Path, row_bytes_max: usize) -> Result<Input, Failure> {
        let file = File::open(path).map_err(|source| Failure::file("open", path, source))?;
        let metadata = file.metadata().map_err(|source| Failure::file("read", path, source))?;
        if metadata.is_dir() {
            return Err(Failure::Other(format!("{} is a directory, not a file of rows", text::path(path))));
        }
        let source = if metadata.is_file() { Source::File(file) } else { Source::Stream(Box::new(file)) };
        Ok(Input::new(source, row_bytes_max))
    }

    pub(crate) fn stream(stream: impl Read + 'static, row_bytes_max: usize) -> Input {
        Input::new(Source::Stream(Box::new(stream)), row_bytes_max)
    }

    fn new(source: Source, row_bytes_max: usize) -> Input {
        Input { source, kept: Vec::new(), kept_at: 0, next: 0, keep_from: 0, row_bytes_max, is_full: false }
    }

    pub(crate) fn row_bytes_max(&self) -> usize {
        self.row_bytes_max
    }

    pub(crate) fn can_seek(&self) -> bool {
        matches!(self.source, Source::File(_))
    }

    /// Keeps the bytes from this offset on; the offset must not be behind the next byte to read.
    pub(crate) fn keep_from(&mut self, offset: u64) {
        self.keep_from = offset;
        self.is_full = false;
    }

    /// Whether the last read failed because too many bytes are kept.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The offset behind the last kept byte.
    pub(crate) fn kept_to(&self) -> u64 {
        self.kept_at + self.kept.len() as u64
    }

    /// The kept bytes in a range of offsets; fewer if some are not kept.
    pub(crate) fn kept(&self, offsets: Range<u64>) -> &[u8] {
        let index = |offset: u64| (offset.saturating_sub(self.kept_at) as usize).min(self.kept.len());
        self.kept.get(index(offsets.start)..index(offsets.end)).unwrap_or_default()
    }

    /// Reads more bytes behind the kept ones; false at the end of the input.
    pub(crate) fn keep_more(&mut self) -> io::Result<bool> {
        let start = self.kept.len();
        self.kept.resize(start + CHUNK_BYTES, 0);
        let read = loop {
            let into = &mut self.kept[start..];
            let read = match &mut self.source {
                Source::File(file) => file.read(into),
                Source::Stream(stream) => stream.read(into),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.kept.truncate(start + read.as_ref().copied().unwrap_or(0));
        read.map(|bytes| bytes > 0)
    }

    /// Drops bytes before `keep_from`. Returns whether there is room for more.
    pub(crate) fn has_room(&mut self) -> bool {
        let unneeded = (self.keep_from.saturating_sub(self.kept_at) as usize).min(self.next);
        self.kept.drain(..unneeded);
        self.kept_at += unneeded as u64;
        self.next -= unneeded;
        self.is_full = self.kept.len() > self.row_bytes_max;
        !self.is_full
    }

    /// Skips the rest of a line of any length and its line break; returns the offset behind it.
    pub(crate) fn pass_line(&mut self, line_break: u8) -> io::Result<u64> {
        loop {
            let rest = &self.kept[self.next..];
            if let Some(index) = rest.iter().position(|byte| *byte == line_break) {
                self.next += index + 1;
                return Ok(self.kept_at + self.next as u64);
            }
            self.next = self.kept.len();
            self.keep_from = self.kept_to();
            self.has_room();
            if !self.keep_more()? {
                return Ok(self.kept_to());
            }
        }
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.next == self.kept.len() {
            if !self.has_room() {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.keep_more()?;
        }
        let rest = &self.kept[self.next..];
        let bytes = rest.len().min(into.len());
        into[..bytes].copy_from_slice(&rest[..bytes]);
        self.next += bytes;
        Ok(bytes)
    }
}

impl Seek for Input {
    /// Seeks to an offset from the start: to a kept byte, or anywhere in a file.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let SeekFrom::Start(offset) = to else { return Err(io::ErrorKind::Unsupported.into()) };
        if (self.kept_at..=self.kept_to()).contains(&offset) {
            self.next = (offset - self.kept_at) as usize;
            return Ok(offset);
        }
        match &mut self.source {
            Source::File(file) => file.seek(to)?,
            Source::Stream(_) => return Err(io::ErrorKind::NotSeekable.into()),
        };
        self.kept.clear();
        (self.kept_at, self.next, self.keep_from) = (offset, 0, offset);
        Ok(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream gives kept bytes again, but no others; too many kept bytes are an error.
    #[test]
    fn kept_bytes_are_read_again() {
        let text: Vec<u8> = (0..(3 * CHUNK_BYTES)).map(|number| number as u8).collect();
        let mut input = Input::stream(io::Cursor::new(text.clone()), 2 * CHUNK_BYTES);
        let mut read = vec![0; CHUNK_BYTES + 1];
        input.read_exact(&mut read).expect("there is room");
        input.seek(SeekFrom::Start(7)).expect("it is kept");
        input.read_exact(&mut read).expect("there is room");
        assert_eq!(read, text[7..CHUNK_BYTES + 8]);
        assert_eq!(input.kept(8..10), [8, 9]);
        input.keep_from(100);
        let error = input.read_to_end(&mut Vec::new()).expect_err("too much to keep");
        assert!(error.kind() == io::ErrorKind::FileTooLarge && input.is_full());
        assert!(input.seek(SeekFrom::Start(99)).is_err());
        input.seek(SeekFrom::Start(100)).expect("it is kept");
        assert_eq!(input.pass_line(b'\n').expect("it reads"), 256 + 11);
    }

    /// A line of any length is skipped without being kept.
    #[test]
    fn long_lines_are_passed() {
        let mut text = vec![b'x'; 4 * CHUNK_BYTES];
        text.extend_from_slice(b"\nlast");
        let mut input = Input::stream(io::Cursor::new(text), CHUNK_BYTES);
        assert_eq!(input.pass_line(b'\n').expect("it reads"), 4 * CHUNK_BYTES as u64 + 1);
        assert!(input.kept.len() <= 2 * CHUNK_BYTES);
        let mut rest = String::new();
        input.read_to_string(&mut rest).expect("it reads");
        assert_eq!(rest, "last");
        assert_eq!(input.pass_line(b'\n').expect("it reads"), 4 * CHUNK_BYTES as u64 + 5);
    }
}
