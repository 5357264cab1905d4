//! The calibration of the device, before and after a run.

use std::path::Path;
use std::time::Duration;

use trine_workload::direct::Mode;
use trine_workload::probe::{self, Probe, Trouble};

use super::results::Calibration;
use crate::engines::Answer;

/// Size of the file that is read and written, at full scale.
const BYTES: u64 = 2 << 30;
const BYTES_MIN: u64 = 128 << 20;

/// The longest time of each measurement.
const TIME: Duration = Duration::from_secs(2);

/// A change of the device's speed by more than this fraction marks the run.
pub(super) const MOVED: f64 = 0.1;

/// Size of a file for reads and writes of the device.
pub(super) fn file_bytes(scale: f64) -> u64 {
    ((BYTES as f64 * scale) as u64).max(BYTES_MIN)
}

pub(super) fn calibrate(
    directory: &Path,
    scale: f64,
    seed: u64,
    run: u64,
    is_after: bool,
) -> Answer<Calibration> {
    let time = TIME.mul_f64(scale.clamp(0.1, 1.0));
    let probe = Probe { bytes: file_bytes(scale), time, operations_max: u64::MAX, seed };
    let device = probe::measure(&probe, directory, |_| Ok::<(), Trouble>(())).map_err(told)?;
    Ok(Calibration {
        run,
        is_after,
        direct_io: device.mode == Mode::Direct,
        random_reads: device.random.iter().map(|one| (one.depth as u64, one.a_second())).collect(),
        sequential_read_bytes: device.read_bytes_a_second,
        sequential_write_bytes: device.write_bytes_a_second,
        syncs: device.syncs_a_second,
    })
}

fn told(trouble: Trouble) -> String {
    format!("could not {} {}: {}", trouble.operation, trouble.path.display(), trouble.source)
}

/// The figures that changed too much between two calibrations, and by how much.
pub(super) fn moved(before: &Calibration, after: &Calibration) -> Vec<String> {
    let figures = |one: &Calibration| {
        let mut figures = vec![
            ("sequential reads".to_owned(), one.sequential_read_bytes),
            ("synced writes".to_owned(), one.syncs),
        ];
        let random = one.random_reads.iter();
        figures.extend(random.map(|(depth, reads)| (format!("random reads, {depth} in flight"), *reads)));
        figures
    };
    let pairs = figures(before).into_iter().zip(figures(after));
    let told = pairs.filter_map(|((name, before), (_, after))| {
        let part = after / before.max(1e-9) - 1.0;
        (part.abs() > MOVED).then(|| format!("{name} {:+.0} %", part * 100.0))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A calibration leaves its directory as it was, and changes of more than a tenth are named.
    #[test]
    fn devices_are_measured_and_compared() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let before = calibrate(directory.path(), 0.001, 1, 1, false).expect("it is measured");
        assert!(before.syncs > 0.0 && before.random_reads[&16] > 0.0, "{before:?}");
        assert_eq!(std::fs::read_dir(directory.path()).expect("it is read").count(), 0);
        assert!(moved(&before, &before).is_empty());
        let after = Calibration { syncs: before.syncs * 1.2, ..before.clone() };
        assert_eq!(moved(&before, &after), ["synced writes +20 %"]);
    }
}
