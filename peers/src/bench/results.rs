//! Measurements as they are kept: one JSON object a line, each written as soon as it is known.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::plan::{VALUE_BYTES, item_bytes};
use super::record::Latency;
use crate::engines::{Answer, told};

/// One line of a file of results.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Begun(Begun),
    Device(Calibration),
    Measured(Box<Measured>),
    Failed(Failed),
    /// The current step of a process; not kept.
    Doing(String),
}

/// Date, machine, command and parameters.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, Debug)]
pub(super) struct Begun {
    pub(super) date: String,
    pub(super) machine: String,
    pub(super) command: String,
    pub(super) seed: u64,
    pub(super) scale: f64,
    pub(super) stores: Vec<Store>,
    /// Conditions of a full measurement that this session does not meet.
    pub(super) remarks: Vec<String>,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct Store {
    pub(super) name: String,
    pub(super) label: String,
    pub(super) versions: String,
    pub(super) settings: String,
}

/// The speed of the device, before or after a run.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, Debug)]
pub(super) struct Calibration {
    pub(super) run: u64,
    pub(super) is_after: bool,
    pub(super) direct_io: bool,
    /// Random reads of 4 KiB a second, by the number in flight.
    pub(super) random_reads: BTreeMap<u64, f64>,
    pub(super) sequential_read_bytes: f64,
    pub(super) sequential_write_bytes: f64,
    /// Overwrites of 4 KiB with fdatasync a second.
    pub(super) syncs: f64,
}

/// One row of one store in one run.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, Debug)]
pub(super) struct Measured {
    pub(super) run: u64,
    pub(super) group: String,
    pub(super) row: String,
    pub(super) store: String,
    pub(super) operations: u64,
    pub(super) seconds: f64,
    /// Operations of one recorded latency.
    pub(super) operations_a_latency: u64,
    pub(super) latency_ns: Option<Latency>,
    /// Device reads per operation by the kernel's count, in 4 KiB.
    pub(super) kernel_reads: Option<f64>,
    /// Blocks read from devices per operation by the store's own count, and their bytes.
    pub(super) device_reads: Option<f64>,
    pub(super) device_read_bytes: Option<f64>,
    /// Bytes written per byte of keys and values: by the store's count, and all of them by the kernel's.
    pub(super) amplification_with_log: Option<f64>,
    pub(super) amplification_without_log: Option<f64>,
    pub(super) amplification_by_kernel: Option<f64>,
    pub(super) cpu_seconds_a_million: f64,
    /// The greatest resident memory during the row; `peak_bytes` is since the process began.
    pub(super) anonymous_bytes: u64,
    pub(super) file_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) disk_bytes: Option<u64>,
    pub(super) live_bytes: Option<u64>,
    /// Bytes of an item's key and value; absent in files from before there were other sizes.
    #[serde(default = "standard_item_bytes")]
    pub(super) item_bytes: u64,
    pub(super) wrong: u64,
    pub(super) first_wrong: Option<String>,
    /// Figures of some rows only, by name.
    pub(super) more: BTreeMap<String, f64>,
    pub(super) remarks: Vec<String>,
}

fn standard_item_bytes() -> u64 {
    item_bytes(VALUE_BYTES)
}

impl Measured {
    /// A row that a store did not do, and the reason.
    pub(super) fn not_done(row: &str, failed: &Failed) -> Measured {
        Measured {
            run: failed.run,
            group: failed.group.clone(),
            row: row.to_owned(),
            store: failed.store.clone(),
            item_bytes: standard_item_bytes(),
            remarks: vec![format!("**not done**: {}", failed.why)],
            ..Measured::default()
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.operations > 0
    }

    pub(super) fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }

    /// Bytes on disk per byte of live keys and values.
    pub(super) fn space(&self) -> Option<f64> {
        Some(self.disk_bytes? as f64 / self.live_bytes.filter(|bytes| *bytes > 0)? as f64)
    }
}

/// A process of a store that did not finish.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct Failed {
    pub(super) run: u64,
    pub(super) group: String,
    pub(super) store: String,
    pub(super) why: String,
}

/// A file of results that grows line by line.
pub(super) struct Sink {
    file: Option<std::fs::File>,
    pub(super) lines: Vec<Line>,
}

impl Sink {
    /// Appends to the file at `path`, if there is one.
    pub(super) fn new(path: Option<&Path>) -> Answer<Sink> {
        let open = |path: &Path| {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            file.map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(Sink { file: path.map(open).transpose()?, lines: Vec::new() })
    }

    pub(super) fn push(&mut self, line: Line) -> Answer<()> {
        if let Some(file) = &mut self.file {
            let mut text = serde_json::to_string(&line).map_err(told)?;
            text.push('\n');
            file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).map_err(told)?;
        }
        self.lines.push(line);
        Ok(())
    }
}

/// The lines of a file; an unfinished last line, from a session that died, is left out.
pub(super) fn read(path: &Path) -> Answer<Vec<Line>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let line = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| format!("{}, line {}: {error}", path.display(), index + 1))
    };
    whole.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of a file from before there were other value sizes has items of the standard size.
    #[test]
    fn old_rows_are_read() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("old.json");
        let measured = Measured { item_bytes: 32, ..Measured::default() };
        let line = Line::Measured(Box::new(measured));
        let text = serde_json::to_string(&line).expect("it is text").replace(",\"item_bytes\":32", "");
        assert!(!text.contains("item_bytes"));
        std::fs::write(&path, text + "\n").expect("it is written");
        let lines = read(&path).expect("it reads");
        assert!(matches!(&lines[..], [Line::Measured(one)] if one.item_bytes == 116), "{lines:?}");
    }

    /// A pushed line is in the file at once and comes back unchanged; half a line at the end is left out, and
    /// damage elsewhere is an error.
    #[test]
    fn lines_come_back() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a.json");
        let mut measured = Measured { row: "get".into(), seconds: 0.1, ..Measured::default() };
        measured.latency_ns = Some(Latency { p50: 1, p99: 2, p999: 3, p9999: 4, max: 5 });
        measured.more.insert("settled_s".into(), 1.5);
        let lines = [
            Line::Begun(Begun { scale: 0.5, ..Begun::default() }),
            Line::Device(Calibration { random_reads: [(16, 2.5)].into(), ..Calibration::default() }),
            Line::Measured(Box::new(measured)),
            Line::Failed(Failed { why: "it died".into(), ..Failed::default() }),
        ];
        for half in lines.chunks(2) {
            let mut sink = Sink::new(Some(&path)).expect("it opens");
            half.iter().for_each(|line| sink.push(line.clone()).expect("it is written"));
        }
        assert_eq!(read(&path).expect("it reads"), lines);
        let text = std::fs::read_to_string(&path).expect("it reads");
        std::fs::write(&path, &text[..text.len() - 9]).expect("it writes");
        assert_eq!(read(&path).expect("it reads").len(), 3);
        std::fs::write(&path, text.replace("begun", "ended")).expect("it writes");
        assert!(read(&path).expect_err("it is damaged").contains("line 1"));
    }
}
