//! The commands time and verify-random, and their common parts with run: any preset behind one interface.
//!
//! It does not contain the experiments. A [`Subject`] is a store of the lab or the product's own; keys are
//! 32-bit numbers, whose bytes are in the order of the numbers.

mod subject;
mod time;
mod verify;

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use trine_workload::failure::Failure;
use trine_workload::interrupt;

pub(crate) use subject::{Subject, Target};
pub(crate) use time::run as time;
pub(crate) use time::{insert, lemur_run, search, shuffled};
pub(crate) use verify::run as verify_random;

/// The working directory of a command: new stores, each in a directory of its own, removed when it is
/// dropped.
pub(crate) struct Workshop {
    directory: TempDir,
    made: u64,
}

impl Workshop {
    pub(crate) fn make(given: Option<&Path>) -> Result<Workshop, Failure> {
        interrupt::watch()?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Failure::file("create a directory in", &path, source)
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix("trine-lab-");
        let directory = match given {
            Some(parent) => {
                std::fs::create_dir_all(parent).map_err(failed(parent))?;
                builder.tempdir_in(parent).map_err(failed(parent))?
            }
            None => builder.tempdir().map_err(failed(&std::env::temp_dir()))?,
        };
        Ok(Workshop { directory, made: 0 })
    }

    /// The path of a new store.
    pub(crate) fn place(&mut self) -> PathBuf {
        self.made += 1;
        self.directory.path().join(format!("store-{}", self.made))
    }

    /// Removes a store's directory.
    pub(crate) fn clear(&self, place: &Path) -> Result<(), Failure> {
        std::fs::remove_dir_all(place).map_err(|source| Failure::file("remove", place, source))
    }
}

pub(crate) fn stop_if_asked() -> Result<(), Failure> {
    if interrupt::asked() { Err(Failure::Interrupted("stopped".to_string())) } else { Ok(()) }
}

/// The mean, and half the width of its 95 % confidence interval; `None` for one value.
pub(crate) fn mean_and_interval(values: &[f64]) -> (f64, Option<f64>) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    if values.len() < 2 {
        return (mean, None);
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, Some(student(values.len() - 1) * (variance / count).sqrt()))
}

/// The two-sided 95 % quantile of Student's distribution.
fn student(degrees: usize) -> f64 {
    const TABLE: [f64; 20] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    ];
    TABLE.get(degrees.saturating_sub(1)).copied().unwrap_or(1.96)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The interval agrees with the textbook's: mean 3, deviation 1.58, five values.
    #[test]
    fn intervals_are_the_textbooks() {
        let (mean, interval) = mean_and_interval(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((mean - 3.0).abs() < 1e-12);
        assert!((interval.expect("five values") - 1.963).abs() < 1e-3);
        assert_eq!(mean_and_interval(&[7.0]), (7.0, None));
    }
}
