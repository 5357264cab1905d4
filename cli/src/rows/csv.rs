//! Comma-separated values (RFC 4180), fed line by line.
//!
//! A field may be quoted; in quotes a comma, a line break and a doubled quote stand for themselves. A quote
//! inside a field that does not begin with one is text, as every spreadsheet reads it. Text after a closing
//! quote is refused: it means that the file was not written as CSV.

/// What a line did to the row.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Fed {
    /// The row is complete.
    Row,
    /// A quote is open: the row goes on in the next line.
    Open,
    Bad(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    FieldStart,
    Bare,
    Quoted,
    /// After a quote in a quoted field: its end, or the first of a doubled one.
    Closing,
}

/// The row being read.
#[derive(Default)]
pub(crate) struct Machine {
    state: State,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Machine {
    pub(crate) fn clear(&mut self) {
        self.state = State::FieldStart;
        self.bytes.clear();
        self.ends.clear();
    }

    /// Takes one line with its line break; the last line of a file may have none.
    pub(crate) fn feed(&mut self, line: &[u8]) -> Fed {
        let text = match line {
            [text @ .., b'\r', b'\n'] | [text @ .., b'\n'] => text,
            text => text,
        };
        for &byte in text {
            match (self.state, byte) {
                (State::FieldStart, b'"') => self.state = State::Quoted,
                (State::FieldStart | State::Bare | State::Closing, b',') => self.end_field(),
                (State::FieldStart | State::Bare, _) => {
                    self.state = State::Bare;
                    self.bytes.push(byte);
                }
                (State::Quoted, b'"') => self.state = State::Closing,
                (State::Quoted, _) => self.bytes.push(byte),
                (State::Closing, b'"') => {
                    self.state = State::Quoted;
                    self.bytes.push(byte);
                }
                (State::Closing, _) => {
                    let column = self.ends.len() + 1;
                    return Fed::Bad(format!("field {column} has text after its closing quote"));
                }
            }
        }
        if self.state == State::Quoted {
            self.bytes.extend_from_slice(&line[text.len()..]);
            return Fed::Open;
        }
        if self.state != State::FieldStart || !self.ends.is_empty() {
            self.end_field();
        }
        Fed::Row
    }

    fn end_field(&mut self) {
        self.ends.push(self.bytes.len());
        self.state = State::FieldStart;
    }

    /// The complete row's fields; none for a blank line.
    pub(crate) fn fields(&self) -> Vec<Vec<u8>> {
        let mut start = 0;
        let field = |end: &usize| {
            let field = self.bytes[start..*end].to_vec();
            start = *end;
            field
        };
        self.ends.iter().map(field).collect()
    }
}

/// Appends a field, quoted if it must be.
pub(crate) fn write_field(field: &[u8], row: &mut Vec<u8>) {
    if !field.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        row.extend_from_slice(field);
        return;
    }
    row.push(b'"');
    for &byte in field {
        if byte == b'"' {
            row.push(b'"');
        }
        row.push(byte);
    }
    row.push(b'"');
}
