//! What `trine repro`, `trine time` and `trine verify-random` can be told.

use std::path::PathBuf;

use clap::{Args, value_parser};

/// Runs a paper's experiment again and prints the paper's number beside ours.
///
/// Drizard and Lemur are rebuilt from their parts (the presets drizard, lemur-leveling, lemur-tiering), and
/// each figure of their papers is measured on them and on the store itself (default). TridentKV's reads are
/// measured on the store, by gets that wait and by futures. A verdict follows each claim: agrees, differs, or
/// cannot be tested here, with the reason. The papers' curves are known by the numbers and directions in
/// their text only: where that is a direction, the verdict is about the direction.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine repro --list\n  trine repro drizard-bloom\n  \
                        trine repro lemur-levels --scale 1 --out figures --json")]
pub(crate) struct Repro {
    /// The experiment; `trine repro --list` names them.
    #[arg(required_unless_present = "list", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// List the experiments and what each shows.
    #[arg(long, conflicts_with = "name")]
    pub(crate) list: bool,
    /// Size, where 1 is the paper's: its items, its reads. Each experiment has a default that takes less than
    /// ten minutes.
    #[arg(long, value_name = "S", value_parser = scale)]
    pub(crate) scale: Option<f64>,
    /// Write each figure as SVG and CSV into this directory; it is made if need be.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Work in this directory instead of a temporary one; it is made if need be.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Times inserts and searches on any preset, with any knob.
///
/// The protocol is Lemur's: the even keys 0, 2, .. in random order are inserted, then random keys are
/// searched of which half are missing; the whole several times, each on a new store. Rates are means with the
/// 95 % confidence interval of the mean.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine time lemur-leveling\n  \
                        trine time drizard --set ratio=7 --inserts 200000 --searches 50000\n  \
                        trine time default --value-bytes 100 --json")]
pub(crate) struct Time {
    /// drizard, lemur-leveling, lemur-tiering, or default: the store itself.
    #[arg(value_name = "PRESET")]
    pub(crate) preset: String,
    /// Another value of a knob; with default of a keyspace's setting, or with `store.` before it of the
    /// store's. May be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Keys to insert.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) inserts: u64,
    /// Keys to search, half of them missing.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) searches: u64,
    /// Times that all of it is done.
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = value_parser!(u64).range(1..=1000))]
    pub(crate) runs: u64,
    /// Length of values, in bytes; without it the preset's, and 20 with default.
    #[arg(long, value_name = "BYTES", value_parser = value_parser!(u64).range(0..=2048))]
    pub(crate) value_bytes: Option<u64>,
    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Work in this directory instead of a temporary one; it is made if need be.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Checks a preset against a map: random inserts, deletions, searches and reopens, every answer compared.
///
/// Exit code 1 if any answer was wrong.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine verify-random default\n  \
                        trine verify-random lemur-tiering --operations 50000 --set ratio=2")]
pub(crate) struct VerifyRandom {
    /// drizard, lemur-leveling, lemur-tiering, or default: the store itself.
    #[arg(value_name = "PRESET")]
    pub(crate) preset: String,
    /// Another value of a knob; with default of a keyspace's setting, or with `store.` before it of the
    /// store's. May be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Operations to do.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    #[arg(value_parser = value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) operations: u64,
    /// Different keys.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    #[arg(value_parser = value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) keys: u64,
    /// Times that the store is closed and opened again.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) reopens: u64,
    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Work in this directory instead of a temporary one; it is made if need be.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

fn scale(word: &str) -> Result<f64, String> {
    let number: f64 = word.parse().map_err(|_| "it is not a number".to_string())?;
    if (0.000_1..=100.0).contains(&number) {
        Ok(number)
    } else {
        Err("it must be from 0.0001 to 100".to_string())
    }
}
