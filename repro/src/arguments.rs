//! The commands of the program, their arguments and their help, in one place.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, value_parser};

const EXAMPLES: &str = "\
Examples:
  trine-repro run --list                 name the experiments
  trine-repro run lemur-levels           run one again
  trine-repro time default               time the store itself, by Lemur's protocol
  trine-repro verify-random drizard      compare a preset with a map

Exit codes: 0 done, 1 an answer was wrong, 2 wrong usage, 3 a store or a file
failed, 130 interrupted.
An error is one line `trine-repro: ...` on standard error, and with --json
{\"error\":{\"kind\":..,\"message\":..}}.";

/// Repeats experiments of the papers whose ideas Trine is built on.
///
/// Presets are drizard, lemur-leveling and lemur-tiering, rebuilt from their papers' parts, and default: the
/// store itself.
#[derive(Parser)]
#[command(name = "trine-repro", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options of every command, before or after its name.
#[derive(Args)]
pub(crate) struct Global {
    /// Answer in JSON, for machines; errors too.
    #[arg(long, global = true, help_heading = "For every command")]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Time(Time),
    VerifyRandom(VerifyRandom),
}

/// Repeats a paper's experiment and prints the paper's number beside ours.
///
/// Drizard and Lemur are rebuilt from their parts (the presets drizard, lemur-leveling, lemur-tiering), and
/// each figure of their papers is measured on them and on the store itself (default). TridentKV's reads are
/// measured on the store, by blocking gets and by futures; LSM-trie's puts on a hashed keyspace and on trees,
/// where scale 1 has as many tables as the paper. A verdict follows each claim: agrees, differs, or cannot be
/// tested here, with the reason. The papers' curves are known only from the numbers and directions in their
/// text: if the text gives a direction, the verdict is about the direction.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine-repro run --list\n  trine-repro run drizard-bloom\n  \
                        trine-repro run lemur-levels --scale 1 --out figures --json")]
pub(crate) struct Run {
    /// The experiment; `trine-repro run --list` names them.
    #[arg(required_unless_present = "list", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// List the experiments and the purpose of each.
    #[arg(long, conflicts_with = "name")]
    pub(crate) list: bool,
    /// Size relative to the paper's, which is 1: its items, its reads. Each experiment has a default that
    /// takes less than ten minutes.
    #[arg(long, value_name = "S", value_parser = scale)]
    pub(crate) scale: Option<f64>,
    /// Partitions of trident-delete, instead of the paper's 10; groups of trident-objectstore, instead of 50.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(2..=1000))]
    pub(crate) partitions: Option<u32>,
    /// Write each figure as SVG and CSV into this directory; it is made if need be.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Work in this directory instead of a temporary one; it is made if need be.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Times inserts and searches on any preset, with any knob.
///
/// The protocol is Lemur's: the even keys 0, 2, .. are inserted in random order, then random keys are
/// searched, half of them missing. The whole is repeated, each time on a new store. Rates are means with the
/// 95 % confidence interval of the mean.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine-repro time lemur-leveling\n  \
                        trine-repro time drizard --set ratio=7 --inserts 200000 --searches 50000\n  \
                        trine-repro time default --value-bytes 100 --json")]
pub(crate) struct Time {
    /// drizard, lemur-leveling, lemur-tiering, or default: the store itself.
    #[arg(value_name = "PRESET")]
    pub(crate) preset: String,
    /// Another value of a knob; with default, of a keyspace's setting, or with the prefix `store.` of the
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
    /// Repetitions of the whole.
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = value_parser!(u64).range(1..=1000))]
    pub(crate) runs: u64,
    /// Length of values, in bytes; without it the preset's, and 20 with default.
    #[arg(long, value_name = "BYTES", value_parser = value_parser!(u64).range(0..=2048))]
    pub(crate) value_bytes: Option<u64>,
    /// The seed of all random choices.
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
#[command(after_help = "Examples:\n  trine-repro verify-random default\n  \
                        trine-repro verify-random lemur-tiering --operations 50000 --set ratio=2")]
pub(crate) struct VerifyRandom {
    /// drizard, lemur-leveling, lemur-tiering, or default: the store itself.
    #[arg(value_name = "PRESET")]
    pub(crate) preset: String,
    /// Another value of a knob; with default, of a keyspace's setting, or with the prefix `store.` of the
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
    /// Times that the store is closed and reopened.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) reopens: u64,
    /// The seed of all random choices.
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// The parser's own check of the table of commands.
    #[test]
    fn the_table_of_commands_is_sound() {
        Arguments::command().debug_assert();
    }

    /// Every command has an example in its help, with the command's name in it.
    #[test]
    fn every_command_shows_an_example() {
        for command in Arguments::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("trine-repro {} ", command.get_name())), "{}", command.get_name());
        }
    }
}
