//! Tab-separated values: fields as they are, with \t, \n, \r and \\ for the bytes that would end one.
//!
//! As databases write them (PostgreSQL's COPY, MySQL's OUTFILE). There are no quotes, and a backslash before
//! anything else stands for itself.

/// The fields of a line; none for a blank one.
pub(crate) fn fields(line: &[u8]) -> Vec<Vec<u8>> {
    if line.is_empty() { Vec::new() } else { line.split(|byte| *byte == b'\t').map(unescape).collect() }
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some(index) = rest.iter().position(|byte| *byte == b'\\') {
        let (before, from) = rest.split_at(index);
        text.extend_from_slice(before);
        let meant = match from.get(1) {
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'\\') => b'\\',
            _ => {
                text.push(b'\\');
                rest = &from[1..];
                continue;
            }
        };
        text.push(meant);
        rest = &from[2..];
    }
    text.extend_from_slice(rest);
    text
}

/// Appends a field, escaped where it must be.
pub(crate) fn write_field(field: &[u8], row: &mut Vec<u8>) {
    for &byte in field {
        match byte {
            b'\t' => row.extend_from_slice(b"\\t"),
            b'\n' => row.extend_from_slice(b"\\n"),
            b'\r' => row.extend_from_slice(b"\\r"),
            b'\\' => row.extend_from_slice(b"\\\\"),
            _ => row.push(byte),
        }
    }
}
