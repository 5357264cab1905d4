//! The fuzz target for imported rows: each row is an item or is reported as bad, and reading from a row's
//! position gives the same row again.

use std::path::PathBuf;
use std::sync::OnceLock;

use trine_workload::rows::{Format, ROW_BYTES_MAX, Row, Rows, Shape};

/// A file in memory, one for each process.
fn path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| PathBuf::from(format!("/dev/shm/trine-fuzz-{}", std::process::id())))
}

/// The first byte selects the format and the columns; the others are the file.
pub(crate) fn run(bytes: &[u8]) {
    let Some((shape, text)) = bytes.split_first() else { return };
    let format = [Format::Csv, Format::Tsv, Format::Jsonl][usize::from(*shape) % 3];
    let named = |bit: u8, name: &str| (shape & bit != 0).then(|| name.to_owned());
    let header = shape & 16 == 0;
    let shape = Shape { format, key: named(32, "a"), value: named(64, "b"), header, separator: None };
    std::fs::write(path(), text).expect("memory takes a file");
    let Ok(mut rows) = Rows::open(path(), shape) else { return };
    let mut seen: Vec<(_, Row)> = Vec::new();
    loop {
        let at = rows.position();
        match rows.next() {
            Ok(Some(row)) => seen.push((at, row)),
            Ok(None) => break,
            Err(error) => panic!("a file in memory is read: {error}"),
        }
        assert!(rows.position().offset > at.offset && text.len() < ROW_BYTES_MAX, "a row takes bytes");
    }
    assert_eq!(rows.position().offset, text.len() as u64, "everything was read");
    for (at, row) in seen.iter().step_by(1 + seen.len() / 4).filter(|(_, row)| matches!(row, Row::Item(_))) {
        let Row::Item(item) = row else { continue };
        rows.seek(item.at).expect("a position it gave");
        assert_eq!(rows.next().ok().flatten().as_ref(), Some(row), "the same row from {at:?}");
    }
}
