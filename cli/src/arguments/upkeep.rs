//! The arguments of the maintenance commands: keyspaces, their settings and their space.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use clap_complete::Shell;
use trine::PartitioningInfo;

use crate::named::Make;
use crate::rule;

/// The range of keys that a command works on.
#[derive(Args)]
pub(crate) struct Within {
    /// Only keys with this prefix.
    #[arg(long, value_name = "P", conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<String>,
    /// Only keys from this one on (inclusive).
    #[arg(long, value_name = "A")]
    pub(crate) from: Option<String>,
    /// Only keys before this one (exclusive).
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
    /// Make the keyspace hashed: for keys that are only looked up. They have no order; a large keyspace takes
    /// writes at less cost. --partition-by prefix:N or explicit partitions it.
    #[arg(long)]
    hashed: bool,
}

impl MadeAs {
    pub(crate) fn make(&self) -> Make<'_> {
        Make { hashed: self.hashed, rule: self.rule.partition_by.as_ref() }
    }
}

/// The partitioning rule of a keyspace that the command makes.
#[derive(Args)]
pub(crate) struct PartitionBy {
    /// Partition the keyspace when it is made: by the first N bytes of keys (prefix:N), at keys
    /// (ranges:KEY,KEY,.., or ranges-hex:DIGITS,DIGITS,..), or by names in KEYSPACE/PARTITION (explicit).
    #[arg(long, value_name = "RULE", value_parser = rule::parse)]
    pub(crate) partition_by: Option<PartitioningInfo>,
}

/// Lists the keyspaces of a store, with the approximate number of keys and the size of each.
///
/// Keys are estimated from memory, without reading; `trine count` counts them. For a partitioned keyspace,
/// its rule and the number of its partitions are shown. The program's own keyspaces, whose names begin with a
/// dot, are left out without --all.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine keyspaces data\n  trine keyspaces data --json | jq -r '.[].name'")]
pub(crate) struct Keyspaces {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// Also the program's own keyspaces.
    #[arg(long)]
    pub(crate) all: bool,
}

/// Lists the partitions of a partitioned keyspace, or makes or drops some.
///
/// Dropping a partition costs the same for any size, and frees its space at once. --partition-by makes the
/// keyspace, with a rule that it keeps; so does --make, with the rule explicit.
///
/// With the rule prefix:N, or ranges:KEY,KEY,.., the keys of a keyspace name its partitions: it is read and
/// written as any other, and the first write to a partition makes it. With the rule explicit each partition
/// is a map of its own, and commands that take a KEYSPACE accept KEYSPACE/PARTITION.
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
    /// Make these partitions, unless they exist.
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with = "drop")]
    pub(crate) make: Vec<String>,
    /// Drop these partitions with all their items, without confirmation.
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with = "partition_by")]
    pub(crate) drop: Vec<String>,
    /// Drop the partitions before the one of this key, or of this name if the rule is explicit. The bound is
    /// kept: a late write may make a partition before it again, and the next partition that is made drops
    /// that one. An empty bound removes the bound.
    #[arg(long, value_name = "BOUND", conflicts_with_all = ["drop", "make", "partition_by"])]
    pub(crate) retain: Option<String>,
    #[command(flatten)]
    pub(crate) by: PartitionBy,
    /// Make the keyspace hashed: its partitions are for keys that are only looked up.
    #[arg(long, conflicts_with_all = ["drop", "retain"])]
    pub(crate) hashed: bool,
    /// Names are given in hexadecimal digits.
    #[arg(long)]
    pub(crate) hex: bool,
}

/// Deletes a keyspace with all its items and its settings, and frees its space.
///
/// There is no confirmation and no undo. `trine clear` keeps the keyspace and its settings.
#[derive(Args)]
#[command(after_help = "Example:\n  trine drop data sessions")]
pub(crate) struct Drop {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name.
    pub(crate) keyspace: String,
}

/// Deletes all keys of a range, in one write of any size of range.
///
/// The range is given by --prefix, or by --from or --to or both. There is no confirmation. The space is freed
/// when tables are merged: `trine compact` does that now.
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
    /// Return only when the deletion would survive a power cut.
    #[arg(long)]
    pub(crate) sync: bool,
}

/// Counts the keys of a keyspace, or of a range of it.
///
/// It reads every key. --approximate answers at once, from memory: exact if no key was overwritten or deleted
/// since the last merge.
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
    /// Estimate the number, without reading.
    #[arg(long, conflicts_with_all = ["prefix", "from", "to", "hex"])]
    pub(crate) approximate: bool,
}

/// Shows the settings of a store or of one keyspace; changes those of a keyspace.
///
/// A keyspace keeps its settings. Changes apply to later writes, and to all items after `trine compact`. The
/// settings of a store are those of one opening: this shows the ones that the program uses.
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
/// It reads and writes everything once, and needs space for the largest of the new files until the old ones
/// are removed. Reads are fastest afterwards.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine compact data\n  trine compact data users")]
pub(crate) struct Compact {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name; without it, all keyspaces.
    pub(crate) keyspace: Option<String>,
}

/// Makes a second store with the present items of a store, at once if both are on one file system.
///
/// Tables are hard-linked if the file system can, and copied otherwise. The new store is whole or absent.
#[derive(Args)]
#[command(after_help = "Example:\n  trine checkpoint data backup/2024-05-01")]
pub(crate) struct Checkpoint {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The directory of the second store; it must be missing or empty.
    pub(crate) target: PathBuf,
}

/// Prints a script that makes a shell complete the commands and options of this program.
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

/// Prints the manual page of this program; with --dir, writes the page of each command too.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine man | man -l -\n  trine man --dir ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Write trine.1, trine-get.1, .. into this directory.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}
