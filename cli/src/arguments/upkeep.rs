//! The arguments of the commands that look after a store: its keyspaces, their settings and their space.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use clap_complete::Shell;
use trine::PartitioningInfo;

use crate::named::Make;
use crate::rule;

/// The keys that a command is about.
#[derive(Args)]
pub(crate) struct Within {
    /// Only keys that begin with this.
    #[arg(long, value_name = "P", conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<String>,
    /// Only keys from this one on.
    #[arg(long, value_name = "A")]
    pub(crate) from: Option<String>,
    /// Only keys before this one (it is not included).
    #[arg(long, value_name = "B")]
    pub(crate) to: Option<String>,
}

impl Within {
    /// Whether no bound is given.
    pub(crate) fn is_all(&self) -> bool {
        self.prefix.is_none() && self.from.is_none() && self.to.is_none()
    }
}

/// The kind of a keyspace that the command makes.
#[derive(Args)]
pub(crate) struct MadeAs {
    #[command(flatten)]
    rule: PartitionBy,
    /// Make the keyspace hashed: for keys that are only looked up. They have no order; a large keyspace
    /// takes writes at less cost. --partition-by prefix:N or explicit divides it.
    #[arg(long)]
    hashed: bool,
}

impl MadeAs {
    pub(crate) fn make(&self) -> Make<'_> {
        Make { hashed: self.hashed, rule: self.rule.partition_by.as_ref() }
    }
}

/// The rule of a keyspace that the command makes.
#[derive(Args)]
pub(crate) struct PartitionBy {
    /// Divide the keyspace into partitions when it is made: by the first N bytes of keys (prefix:N), at keys
    /// (ranges:KEY,KEY,.., or ranges-hex:DIGITS,DIGITS,..), or as KEYSPACE/PARTITION names them (explicit).
    #[arg(long, value_name = "RULE", value_parser = rule::parse)]
    pub(crate) partition_by: Option<PartitioningInfo>,
}

/// Lists the keyspaces of a store, with about how many keys each has and what they take.
///
/// Keys are estimated from what is in memory, without reading; `trine count` counts them. Of a keyspace that
/// is divided, the number of its partitions and its rule are shown. The program's own keyspaces, whose names
/// begin with a dot, are left out without --all.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine keyspaces data\n  trine keyspaces data --json | jq -r '.[].name'")]
pub(crate) struct Keyspaces {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// Also the program's own.
    #[arg(long)]
    pub(crate) all: bool,
}

/// Lists the partitions of a keyspace that is divided, or makes or drops some.
///
/// To drop one costs the same whatever its size, and gives its space back at once. --partition-by makes the
/// keyspace, with a rule that it keeps; so does --make, and its rule is explicit.
///
/// By the rule prefix:N, or ranges:KEY,KEY,.., the keys of a keyspace name its partitions: it is read and
/// written as any other, and a partition is made by the first write to it. By the rule explicit each
/// partition is a map of its own, and commands that want a KEYSPACE take KEYSPACE/PARTITION for it.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine partitions data events --partition-by prefix:7\n  \
                        trine put data events 2026-11/login ann\n  trine partitions data events\n  \
                        trine partitions data events --drop 2026-11\n  \
                        trine partitions data events --retain 2026-12\n  \
                        trine partitions data tenants --make t042 t043\n  \
                        trine put data tenants/t042 login ann")]
pub(crate) struct Partitions {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name.
    pub(crate) keyspace: String,
    /// Make these, unless they are there.
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with = "drop")]
    pub(crate) make: Vec<String>,
    /// Drop these with everything in them. Nothing is asked.
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with = "partition_by")]
    pub(crate) drop: Vec<String>,
    /// Drop the partitions before the one that has this key, or of this name if the rule is explicit. The
    /// bound is kept: a late write may make a partition before it again, and the next partition that is made
    /// drops that one. An empty bound ends this.
    #[arg(long, value_name = "BOUND", conflicts_with_all = ["drop", "make", "partition_by"])]
    pub(crate) retain: Option<String>,
    #[command(flatten)]
    pub(crate) by: PartitionBy,
    /// Make the keyspace hashed: its partitions are for keys that are only looked up.
    #[arg(long, conflicts_with_all = ["drop", "retain"])]
    pub(crate) hashed: bool,
    /// Names are hexadecimal digits.
    #[arg(long)]
    pub(crate) hex: bool,
}

/// Deletes a keyspace with everything in it, and its settings, and gives its space back.
///
/// Nothing is asked: what is gone is gone. `trine clear` keeps the keyspace and its settings.
#[derive(Args)]
#[command(after_help = "Example:\n  trine drop data sessions")]
pub(crate) struct Drop {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name.
    pub(crate) keyspace: String,
}

/// Deletes all keys of a range, in one write whatever it holds.
///
/// The range is given by --prefix, or by --from and --to, one of them at least. Nothing is asked. The space
/// comes back when tables are merged: `trine compact` does that now.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine delete-range data events --to 2024-05-01\n  \
                        trine delete-range data users --prefix test-")]
pub(crate) struct DeleteRange {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name.
    pub(crate) keyspace: String,
    #[command(flatten)]
    pub(crate) within: Within,
    /// The bounds are given in hexadecimal digits.
    #[arg(long)]
    pub(crate) hex: bool,
    /// Return only when the deletion would survive the loss of power.
    #[arg(long)]
    pub(crate) sync: bool,
}

/// Counts the keys of a keyspace, or of a range of it.
///
/// It reads every key. --approximate answers at once, from what is in memory: exact if no key was
/// overwritten or deleted since the last merge.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine count data users\n  trine count data users --prefix ann\n  \
                        trine count data users --approximate")]
pub(crate) struct Count {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name.
    pub(crate) keyspace: String,
    #[command(flatten)]
    pub(crate) within: Within,
    /// The bounds are given in hexadecimal digits.
    #[arg(long)]
    pub(crate) hex: bool,
    /// An estimate, without reading.
    #[arg(long, conflicts_with_all = ["prefix", "from", "to", "hex"])]
    pub(crate) approximate: bool,
}

/// Shows the settings of a store, or of one keyspace; changes those of a keyspace.
///
/// A keyspace keeps its settings; changes apply to what is written from then on, and to everything after
/// `trine compact`. The settings of a store are those of one opening: this shows what the program opens it
/// with.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine settings data\n  trine settings data users\n  \
                        trine settings data users filter_bits_per_key=16 block_bytes=16K")]
pub(crate) struct Settings {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name.
    pub(crate) keyspace: Option<String>,
    /// Settings to change; K, M, G are powers of 1024.
    #[arg(value_name = "NAME=VALUE", value_parser = parse_change)]
    pub(crate) changes: Vec<(String, String)>,
}

fn parse_change(word: &str) -> Result<(String, String), String> {
    match word.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.into(), value.into())),
        _ => Err("a change is NAME=VALUE".to_owned()),
    }
}

/// Merges a store, or one keyspace, into its smallest form: one sorted run each, without overwritten and
/// deleted items.
///
/// It reads and writes everything once, and needs room for the largest of the new files until the old ones
/// are gone. Reads are fastest after it.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine compact data\n  trine compact data users")]
pub(crate) struct Compact {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name; without it, all.
    pub(crate) keyspace: Option<String>,
}

/// Makes a second store with what a store holds now, at once if both are on one file system.
///
/// Tables are linked, not copied, where the file system can; else they are copied. The new store is whole or
/// not there.
#[derive(Args)]
#[command(after_help = "Example:\n  trine checkpoint data backup/2024-05-01")]
pub(crate) struct Checkpoint {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The directory of the second store; it must be missing or empty.
    pub(crate) target: PathBuf,
}

/// Prints what makes a shell complete the commands and options of this program.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  trine completions bash > ~/.local/share/bash-completion/completions/trine\n  \
                        trine completions fish > ~/.config/fish/completions/trine.fish\n  \
                        trine completions zsh > ~/.zfunc/_trine"
)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: Shell,
}

/// Prints the manual page of this program; with --dir, writes that of each command too.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine man | man -l -\n  trine man --dir ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Write trine.1, trine-get.1, .. into this directory.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}
