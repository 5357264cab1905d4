//! What `trine bench` can be told.

use std::path::PathBuf;

use clap::{Args, ValueEnum, value_parser};

use crate::text::parse_bytes;

/// Measures the device under a directory.
///
/// The workload device makes a file and reads and writes it past the page cache where the file system
/// allows: sequentially, 4 KiB at random places with 1, 16, 64 and 128 reads in flight, and synced writes.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine bench device\n  trine bench device --dir /mnt/ssd/try --json")]
pub(crate) struct Bench {
    /// The workloads, in this order, with commas between them.
    #[arg(required = true, value_delimiter = ',', value_name = "WORKLOADS")]
    pub(crate) workloads: Vec<Workload>,
    /// Work in this directory instead of a temporary one; it is made if need be.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Seconds for each workload or measurement.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,
    /// At most this many operations in each workload or measurement.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) operations: Option<u64>,
    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Length of the file that device works on.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_bytes)]
    pub(crate) device_bytes: u64,
    /// Also draw the results: charts as SVG, their numbers as CSV, in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Workload {
    /// The device alone: what the rest is to be held against.
    Device,
}
