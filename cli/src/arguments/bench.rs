//! The arguments of `trine bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, value_parser};
use trine_workload::distribution::Distribution;
use trine_workload::text::parse_bytes;
use trine_workload::ycsb::Core;

const EXAMPLES: &str = "\
Examples:
  trine bench fillrandom,settle,readrandom --items 1000000
  trine bench device,fillrandom,settle,reopen,readrandom,readmissing,device --memory 64M --threads 4
  trine bench ycsb-load,ycsb-a,ycsb-e --value-bytes 1000 --seconds 30 --series ycsb.csv
  trine bench readrandom --dir /mnt/ssd/try --distribution zipf --json
  trine bench fillrandom,readrandom,seekrandom --items 8000000 --stage-every 1000000 --plot charts
  trine bench partitions --partitions 100000 --live 5000
  trine bench fillrandom,settle,readrandom,multireadrandom --hashed=beside
  trine bench fillrandom,readrandom --engine null    what the driver itself costs

Every figure comes with its denominator and with what could not be measured. Hold a store's rows
against those of --engine null and against device, measured in the same run.";

/// Measures the store: loads, reads and mixes under their names in db_bench and YCSB.
///
/// With --hashed the items are in a hashed keyspace, in a store of its own; --hashed=beside first runs
/// everything on an ordered one, so that one report has the rows of both.
///
/// Workloads run in the order given, on one store. Every value that is read is checked against its key; exit
/// code 1 if any was wrong. fillseq, fillrandom and ycsb-load begin anew; the others work on the existing
/// items, also of an earlier run with the same --dir. A store not made by the bench is refused.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Bench {
    /// The workloads, in order, separated by commas.
    #[arg(required = true, value_delimiter = ',', value_name = "WORKLOADS")]
    pub(crate) workloads: Vec<Workload>,
    /// Work in this directory and keep it (the store is DIR/store); without it, a temporary one is used and
    /// removed.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Use a store in DIR even if the bench did not make it; its keyspaces are not changed.
    #[arg(long, requires = "dir")]
    pub(crate) any_store: bool,
    /// Items of a load.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = value_parser!(u64).range(1..=1_u64 << 40))]
    pub(crate) items: u64,
    /// Length of every key; 16 for a new load.
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(8..=1024))]
    pub(crate) key_bytes: Option<u16>,
    /// Length of every value that is put (mixgraph has its own).
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = value_parser!(u32).range(0..=1 << 20))]
    pub(crate) value_bytes: u32,
    /// The part of each value, in percent, that repeats the rest of it; 0 for a new load.
    #[arg(long, value_name = "PERCENT", value_parser = value_parser!(u8).range(0..=90))]
    pub(crate) compressible: Option<u8>,
    /// Threads that run concurrently.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// Items put in one batch by the loads, overwrite and deleterandom.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) batch: u32,
    /// Seconds for each workload.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,
    /// Operations in each workload but the loads; without --seconds, as many as there are items.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) operations: Option<u64>,
    /// The distribution of the chosen items; by default uniform, and for YCSB the workload's own.
    #[arg(long)]
    pub(crate) distribution: Option<Distribution>,
    /// Items read by one operation of seekrandom.
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = value_parser!(u64).range(1..=1 << 30))]
    pub(crate) scan_items: u64,
    /// Keys of one multi-get of multireadrandom; each counts as an operation.
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) multi_keys: u32,
    /// Puts a second of the writer in readwhilewriting; without it, as many as possible.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) writes_a_second: Option<u64>,
    /// Load in steps of N items, and after each run the reads that follow the load (a staged load).
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) stage_every: Option<u64>,
    /// Any setting of the store or of its keyspace, by its name in docs/SETTINGS.md; may be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = name_and_value)]
    pub(crate) settings: Vec<(String, String)>,
    /// Commit with sync: every write survives a power cut.
    #[arg(long)]
    pub(crate) sync: bool,
    /// The seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The engine: the store, or none.
    #[arg(long, default_value = "trine")]
    pub(crate) engine: EngineName,
    /// Length of the file of the workload device.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_bytes)]
    pub(crate) device_bytes: u64,
    /// Partitions made by the workload partitions, one after another.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = value_parser!(u64).range(1..=1_u64 << 40))]
    pub(crate) partitions: u64,
    /// Partitions that exist at a time; older ones are dropped.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = value_parser!(u64).range(1..=1_u64 << 32))]
    pub(crate) live: u64,
    /// Partitions made by one batch, and dropped by one drop.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) group: u32,
    /// Items put into each partition.
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) partition_items: u32,
    /// Use a hashed keyspace (the store is DIR/hashed-store); `beside`: after the same workloads on an
    /// ordered one. Workloads that need ordered keys are refused: readseq, seekrandom, mixgraph, ycsb-e,
    /// partitions.
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "alone")]
    pub(crate) hashed: Option<HashedRun>,
    /// Write a line a second to this CSV file: operations, p99, device reads, pressure.
    #[arg(long, value_name = "FILE")]
    pub(crate) series: Option<PathBuf>,
    /// Also draw the results in this directory: charts as SVG, their numbers as CSV.
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
}

fn name_and_value(word: &str) -> Result<(String, String), String> {
    let (name, value) = word.split_once('=').ok_or("give NAME=VALUE")?;
    Ok((name.to_string(), value.to_string()))
}

/// The engine that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum EngineName {
    /// The store.
    Trine,
    /// No store: the cost of clock, keys, values and histograms alone.
    Null,
}

/// Whether a run over a hashed keyspace is compared with one over an ordered keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum HashedRun {
    /// No comparison.
    Alone,
    /// The same workloads run on an ordered keyspace first.
    Beside,
}

/// A workload that is measured, or work between two measurements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Workload {
    Fillseq,
    Fillrandom,
    Overwrite,
    Deleterandom,
    Readseq,
    Readrandom,
    Readmissing,
    Multireadrandom,
    Seekrandom,
    Readwhilewriting,
    Mixgraph,
    YcsbLoad,
    Ycsb(Core),
    Settle,
    Flush,
    Compact,
    Reopen,
    Device,
    Partitions,
}

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        self.spelled().0
    }

    /// Whether the workload only reads, and so runs after each step of a staged load.
    pub(crate) fn is_read(self) -> bool {
        use Workload::{Multireadrandom, Readmissing, Readrandom, Readseq, Seekrandom};
        matches!(self, Readseq | Readrandom | Readmissing | Multireadrandom | Seekrandom)
    }

    /// Whether the workload reads keys in order, or partitions them.
    pub(crate) fn needs_order(self) -> bool {
        use Workload::{Mixgraph, Partitions, Readseq, Seekrandom, Ycsb};
        matches!(self, Readseq | Seekrandom | Mixgraph | Partitions | Ycsb(Core::E))
    }

    /// Name and help.
    fn spelled(self) -> (&'static str, &'static str) {
        match self {
            Workload::Fillseq => ("fillseq", "put every item, in the order of keys"),
            Workload::Fillrandom => ("fillrandom", "put every item once, in random order"),
            Workload::Overwrite => ("overwrite", "put items that are there"),
            Workload::Deleterandom => ("deleterandom", "delete items"),
            Workload::Readseq => ("readseq", "read items in the order of keys"),
            Workload::Readrandom => ("readrandom", "get items"),
            Workload::Readmissing => ("readmissing", "get keys that are not there, between those that are"),
            Workload::Multireadrandom => {
                ("multireadrandom", "get --multi-keys items together, again and again")
            }
            Workload::Seekrandom => ("seekrandom", "scan --scan-items items from a random one on"),
            Workload::Readwhilewriting => {
                ("readwhilewriting", "readrandom, beside one more thread that puts")
            }
            Workload::Mixgraph => ("mixgraph", "Facebook's social graph: 83 % gets, 14 % puts, 3 % scans"),
            Workload::YcsbLoad => ("ycsb-load", "put every item of YCSB's, in random order"),
            Workload::Ycsb(Core::A) => ("ycsb-a", "50 % reads, 50 % updates"),
            Workload::Ycsb(Core::B) => ("ycsb-b", "95 % reads, 5 % updates"),
            Workload::Ycsb(Core::C) => ("ycsb-c", "reads"),
            Workload::Ycsb(Core::D) => ("ycsb-d", "95 % reads of the latest items, 5 % inserts"),
            Workload::Ycsb(Core::E) => ("ycsb-e", "95 % scans of 1 to 100 items, 5 % inserts"),
            Workload::Ycsb(Core::F) => ("ycsb-f", "50 % reads, 50 % read-modify-writes"),
            Workload::Settle => ("settle", "wait until flushes and merges have nothing to do"),
            Workload::Flush => ("flush", "write memory to tables"),
            Workload::Compact => ("compact", "merge everything"),
            Workload::Reopen => ("reopen", "close and open the store: its caches are empty then"),
            Workload::Partitions => (
                "partitions",
                "make and drop --partitions partitions, with the size of the store at ten points",
            ),
            Workload::Device => ("device", "the device alone: the yardstick of all other rows"),
        }
    }
}

impl ValueEnum for Workload {
    fn value_variants<'a>() -> &'a [Workload] {
        use Workload::*;
        &[
            Fillseq,
            Fillrandom,
            Overwrite,
            Deleterandom,
            Readseq,
            Readrandom,
            Readmissing,
            Multireadrandom,
            Seekrandom,
            Readwhilewriting,
            Mixgraph,
            YcsbLoad,
            Ycsb(Core::A),
            Ycsb(Core::B),
            Ycsb(Core::C),
            Ycsb(Core::D),
            Ycsb(Core::E),
            Ycsb(Core::F),
            Settle,
            Flush,
            Compact,
            Reopen,
            Device,
            Partitions,
        ]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        let (name, help) = self.spelled();
        Some(clap::builder::PossibleValue::new(name).help(help))
    }
}
