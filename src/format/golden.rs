//! Captioned goldens: the bytes of a structure as text, one line a field, stored in `tests/golden/` and
//! compared by unit tests.
//!
//! ```text
//! # header page
//! 00000000  89 54 72 69 6e 65 0d 0a                          magic
//! ```
//! This module decodes nothing: the test gives the captions, in the order of the bytes, and [`Golden::check`]
//! refuses bytes without a caption. A field of zeros longer than a line is written `00 x count`.
//!
//! To change a format deliberately, run the tests with `TRINE_GOLDEN=write`. They then write the files
//! instead of comparing them, and the difference shows in review.

use std::fmt::Write;
use std::path::PathBuf;

/// Bytes in one line of a golden.
const LINE_BYTES: usize = 16;

/// One golden under construction.
pub(crate) struct Golden<'a> {
    name: &'static str,
    bytes: &'a [u8],
    at: usize,
    text: String,
}

impl<'a> Golden<'a> {
    /// A golden of `bytes`, kept in `tests/golden/{name}.txt`.
    pub(crate) fn new(name: &'static str, bytes: &'a [u8]) -> Golden<'a> {
        Golden { name, bytes, at: 0, text: String::new() }
    }

    /// Adds a heading line.
    pub(crate) fn heading(&mut self, words: &str) {
        writeln!(self.text, "# {words}").expect("a string takes all text");
    }

    /// Offset of the next byte without a caption.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Captions the next `count` bytes.
    pub(crate) fn field(&mut self, caption: &str, count: usize) {
        let field = &self.bytes[self.at..self.at + count];
        if field.len() > LINE_BYTES && field.iter().all(|byte| *byte == 0) {
            let run = format!("00 x {count}");
            self.line(self.at, &run, caption);
        } else {
            for (index, line) in field.chunks(LINE_BYTES).enumerate() {
                let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
                let caption = if index == 0 { caption } else { "" };
                self.line(self.at + index * LINE_BYTES, &hex.join(" "), caption);
            }
        }
        self.at += count;
    }

    /// Captions the bytes up to offset `end`, which must all be zero.
    pub(crate) fn zeros_to(&mut self, caption: &str, end: usize) {
        assert!(
            self.bytes[self.at..end].iter().all(|byte| *byte == 0),
            "{}: {caption} is not zero",
            self.name
        );
        self.field(caption, end - self.at);
    }

    /// Compares with the golden file, or writes the file when `TRINE_GOLDEN` is `write`.
    ///
    /// # Panics
    /// If a byte has no caption, or the file is missing or differs.
    #[expect(clippy::disallowed_methods, reason = "goldens lie in the source tree, not in a store")]
    pub(crate) fn check(self) {
        assert_eq!(self.at, self.bytes.len(), "{}: the bytes from {} have no caption", self.name, self.at);
        let path: PathBuf =
            [env!("CARGO_MANIFEST_DIR"), "tests", "golden", &format!("{}.txt", self.name)].iter().collect();
        if std::env::var_os("TRINE_GOLDEN").is_some_and(|value| value == "write") {
            std::fs::write(&path, &self.text).expect("the golden can be written");
            return;
        }
        let kept = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; run with TRINE_GOLDEN=write", path.display()));
        for (line, (kept, now)) in kept.lines().zip(self.text.lines()).enumerate() {
            assert_eq!(kept, now, "{} line {}: the format changed", path.display(), line + 1);
        }
        assert_eq!(kept, self.text, "{}: the format changed", path.display());
    }

    fn line(&mut self, offset: usize, hex: &str, caption: &str) {
        let line = format!("{offset:08x}  {hex:<47}  {caption}");
        writeln!(self.text, "{}", line.trim_end()).expect("a string takes all text");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A byte without a caption fails the golden.
    #[test]
    #[should_panic(expected = "have no caption")]
    fn uncaptioned_bytes_are_refused() {
        let mut golden = Golden::new("never written", &[1, 2, 3]);
        golden.field("one", 2);
        golden.check();
    }

    /// Long fields wrap, long zeros are counted, offsets are those of the bytes.
    #[test]
    fn fields_are_laid_out() {
        let mut bytes = vec![7; 18];
        bytes.resize(50, 0);
        let mut golden = Golden::new("never written", &bytes);
        golden.heading("two fields");
        golden.field("sevens", 18);
        golden.zeros_to("padding", 50);
        assert_eq!(golden.at(), 50);
        let lines: Vec<&str> = golden.text.lines().collect();
        assert_eq!(lines[0], "# two fields");
        assert_eq!(lines[1], format!("00000000  {}  sevens", ["07"; 16].join(" ")));
        assert_eq!(lines[2], "00000010  07 07");
        assert_eq!(lines[3], format!("00000012  {:<47}  padding", "00 x 32"));
    }
}
