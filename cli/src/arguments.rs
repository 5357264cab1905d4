//! The commands of the program, their arguments and their help, in one place.
//!
//! The help is the manual: every command says its purpose and its answers, and shows an example.

mod bench;
mod upkeep;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, value_parser};
use trine_workload::rows::{Format, parse_separator};
use trine_workload::text::parse_bytes;

pub(crate) use bench::{Bench, EngineName, HashedRun, Workload};
pub(crate) use upkeep::{
    Checkpoint, Compact, Completions, Count, DeleteRange, Drop, Keyspaces, MadeAs, Man, Partitions, Settings,
    Within,
};

const EXAMPLES: &str = "\
Examples:
  trine demo                                  try the store on this machine, about a minute
  trine import data users users.csv --key id  load a CSV file, rows as JSON, keyed by the column id
  trine get data users 42                     read one value
  trine scan data users --prefix 4 --limit 10 list items in key order
  trine keyspaces data                        what maps the store has, and how large
  trine stats data                            what the store holds and what it costs
  trine verify data                           whether every byte is as it was written
  trine bench fillrandom,settle,readrandom    measure the store on this machine

Exit codes: 0 done, 1 key not found or a check failed, 2 wrong usage,
3 the store or a file failed, 130 interrupted.
An error is one line `trine: ...` on standard error, and with --json
{\"error\":{\"kind\":..,\"message\":..}}.
A store is a directory; one process writes it at a time. Commands that only
read never change or create it.";

/// The heading of the options that every command takes.
const EVERYWHERE: &str = "For every command";

/// Imports, exports, inspects and tries Trine stores.
///
/// Trine is an embedded key-value store for very many small items, read far more often than written. This
/// program works on a store (a directory) and its keyspaces (named maps inside it, ordered or hashed).
#[derive(Parser)]
#[command(name = "trine", version, after_help = EXAMPLES)]
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
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) json: bool,
    /// The store's directory, instead of the first argument STORE.
    #[arg(id = "store_option", long = "store", global = true, help_heading = EVERYWHERE, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// Memory for the whole store: buffers, cache, filters. K, M, G are powers of 1024 (`--memory 512M`).
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Open for reading only. get, scan, export and stats always do.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) read_only: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Get(Get),
    Put(Put),
    Delete(Delete),
    DeleteRange(DeleteRange),
    Clear(Clear),
    Scan(Scan),
    Count(Count),
    Import(Import),
    Export(Export),
    Keyspaces(Keyspaces),
    Partitions(Partitions),
    Drop(Drop),
    Settings(Settings),
    Stats(Stats),
    Compact(Compact),
    Checkpoint(Checkpoint),
    Verify(Verify),
    Explain(Explain),
    Dump(Dump),
    Salvage(Salvage),
    Bench(Bench),
    Demo(Demo),
    Completions(Completions),
    Man(Man),
    #[command(hide = true)]
    DemoLoad(DemoLoad),
}

/// Prints the value of a key; exit code 1 if there is none.
///
/// Text is printed as it is. A value that is not text is printed escaped (\xff); --raw prints its exact
/// bytes, --hex hexadecimal digits. With --json: {"key":..,"value":..}, with "value_hex" if the value is not
/// UTF-8.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  trine get data users 42\n  trine get data images logo --raw > logo.png\n  \
                        trine get data index 00ff17 --hex"
)]
pub(crate) struct Get {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name.
    pub(crate) keyspace: String,
    /// The key.
    pub(crate) key: String,
    /// The key is given, and the value printed, in hexadecimal digits.
    #[arg(long)]
    pub(crate) hex: bool,
    /// Print the value's exact bytes and nothing else.
    #[arg(long, conflicts_with_all = ["hex", "json"])]
    pub(crate) raw: bool,
}

/// Stores a value under a key, replacing an earlier one.
///
/// The store and the keyspace are created if they do not exist. Without --sync the value survives the end of
/// every process; with it also a power cut.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine put data users 42 '{\"name\":\"Ann\"}'\n  \
                        trine put data images logo - < logo.png\n  \
                        trine put data index 00ff17 cafe --hex --sync\n  \
                        trine put data sessions b7f1 ann --hashed")]
pub(crate) struct Put {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name.
    pub(crate) keyspace: String,
    /// The key.
    pub(crate) key: String,
    /// The value; - reads it from standard input.
    #[arg(allow_hyphen_values = true)]
    pub(crate) value: String,
    #[command(flatten)]
    pub(crate) by: MadeAs,
    /// Key and value are given in hexadecimal digits.
    #[arg(long)]
    pub(crate) hex: bool,
    /// Return only when the value would survive a power cut.
    #[arg(long)]
    pub(crate) sync: bool,
}

/// Deletes a key. An absent key is not an error.
#[derive(Args)]
#[command(after_help = "Example:\n  trine delete data users 42")]
pub(crate) struct Delete {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name.
    pub(crate) keyspace: String,
    /// The key.
    pub(crate) key: String,
    /// The key is given in hexadecimal digits.
    #[arg(long)]
    pub(crate) hex: bool,
    /// Return only when the deletion would survive a power cut.
    #[arg(long)]
    pub(crate) sync: bool,
}

/// Deletes all items of a keyspace of any size at once, and frees their space.
///
/// The keyspace and its settings stay. There is no confirmation and no undo.
#[derive(Args)]
#[command(after_help = "Example:\n  trine clear data sessions")]
pub(crate) struct Clear {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name.
    pub(crate) keyspace: String,
}

/// Lists items in key order, one a line: key, tab, value.
///
/// Tabs, newlines, backslashes and bytes that are not text are escaped (\t, \n, \\, \xff), so that each line
/// is one item. With --json each line is one JSON object, as written by `trine export --format jsonl`.
///
/// The items of a hashed keyspace come in no order, and a note on standard error says so; --prefix, --from,
/// --to and --reverse are refused.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine scan data users --limit 10\n  \
                        trine scan data users --prefix ann --keys-only\n  \
                        trine scan data events --from 2024-05-01 --to 2024-06-01 --reverse")]
pub(crate) struct Scan {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name.
    pub(crate) keyspace: String,
    #[command(flatten)]
    pub(crate) within: Within,
    /// At most this many items.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// From the last key to the first.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Print keys without values.
    #[arg(long)]
    pub(crate) keys_only: bool,
    /// Bounds are given, and items printed, in hexadecimal digits.
    #[arg(long)]
    pub(crate) hex: bool,
    /// Print the exact bytes: key, tab, value, newline.
    #[arg(long, conflicts_with_all = ["hex", "json"])]
    pub(crate) raw: bool,
}

/// Loads rows of a file into a keyspace, creating store and keyspace if need be.
///
/// Each row becomes one item. The key is the column named by --key (a number if there is no header), else the
/// column `key`, else the first. The value is the column named by --value, or the whole row as JSON; without
/// --key and --value a column `value` is taken, so that files written by `trine export` are read back
/// exactly. No column is dropped silently: others beside `value`, and two of one name, are refused.
///
/// csv: RFC 4180, quotes and newlines in fields. tsv: fields as they are, with \t \n \r \\ for those bytes,
/// no quotes. jsonl: one JSON object a line; a string gives its text, other values their JSON. Lines end in
/// LF, CRLF or CR, the same throughout a file. Text is UTF-8; UTF-16 is refused. A first line `sep=;` names
/// the separator; a first row with another separator than the format's is refused without --separator.
///
/// The position in the file is committed with the rows (keyspace `.import`). A killed import resumes at its
/// position when the same command is given again; a file that has changed since is refused. Standard input
/// (FILE -) and pipes have no position and start over. A bad row stops the import after the rows before it
/// are committed.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine import data users users.csv --key id\n  \
                  trine import data names people.jsonl --key email --value name --skip-bad\n  \
                  trine import data pairs pairs.tsv --no-header --key 1 --value 2\n  \
                  trine import data events events.tsv --partition-by prefix:7\n  \
                  trine import data sessions sessions.csv --hashed\n  \
                  zcat big.csv.gz | trine import data users - --format csv --key id")]
pub(crate) struct Import {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace to load into.
    pub(crate) keyspace: String,
    /// The file; - for standard input.
    pub(crate) file: PathBuf,
    /// The file's format; guessed from its extension (.csv, .tsv, .jsonl, .ndjson).
    #[arg(long)]
    pub(crate) format: Option<Format>,
    /// The column with the key.
    #[arg(long, value_name = "COLUMN")]
    pub(crate) key: Option<String>,
    /// The column with the value; without it the whole row as JSON.
    #[arg(long, value_name = "COLUMN")]
    pub(crate) value: Option<String>,
    /// The first row has the columns' names (csv and tsv; the default).
    #[arg(long, conflicts_with = "no_header")]
    pub(crate) header: bool,
    /// The first row is data; columns are called 1, 2, ...
    #[arg(long)]
    pub(crate) no_header: bool,
    /// The character between two fields of csv or tsv: a punctuation character, or `tab`.
    #[arg(long, value_name = "CHARACTER", value_parser = parse_separator)]
    pub(crate) separator: Option<u8>,
    #[command(flatten)]
    pub(crate) by: MadeAs,
    /// Discard the position of an earlier import of this file and begin again.
    #[arg(long)]
    pub(crate) restart: bool,
    /// Leave bad rows out and count them, instead of stopping at the first.
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Rows committed together.
    #[arg(long, value_name = "ROWS", default_value_t = 1000)]
    #[arg(value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: u32,
    /// Print the number of committed rows after each commit.
    #[arg(long, hide = true)]
    pub(crate) acknowledge: bool,
}

/// Writes a keyspace's items, in key order, to a file or to standard output; those of a hashed keyspace in no
/// order.
///
/// `trine import` reads the output back byte for byte. csv and tsv have the columns key, value and hex; hex
/// says which of them (k, v or kv) are in hexadecimal because they are not UTF-8. jsonl has "key" and
/// "value", or "key_hex" and "value_hex". On a terminal csv and tsv also write fields with control and format
/// characters in hexadecimal. --safe does so too, and puts an apostrophe before fields that a spreadsheet
/// would take for a formula; hex marks these by a capital (K, V). A FILE appears complete or not at all; an
/// existing one is not replaced without --force.
///
/// A keyspace with explicit partitions is exported one KEYSPACE/PARTITION at a time. `trine import
/// --partition-by` makes a partitioned keyspace again, `trine import --hashed` a hashed one.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine export data users users.jsonl\n  \
                        trine export data users --format csv | gzip > users.csv.gz\n  \
                        trine export data users users.csv --safe")]
pub(crate) struct Export {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace to export.
    pub(crate) keyspace: String,
    /// The file; without it, standard output.
    pub(crate) file: Option<PathBuf>,
    /// Replace FILE if it exists; for a symbolic link, the file that it names.
    #[arg(long)]
    pub(crate) force: bool,
    /// The format; guessed from the file's extension, jsonl on standard output.
    #[arg(long)]
    pub(crate) format: Option<Format>,
    /// For spreadsheets: no field is a formula or has control characters (csv and tsv).
    #[arg(long)]
    pub(crate) safe: bool,
}

/// Shows the contents and costs of a store: keyspaces, levels, memory, device traffic, space.
///
/// For a hashed keyspace the shape of its trie is shown, by height: nodes, tables, and the longest pile, the
/// most runs of one node.
///
/// Items are counted as stored: versions and deletions that are not yet merged away count. --exact counts
/// keys. For a partitioned keyspace, the largest partitions are shown. Reads are counted since this command
/// opened the store. The program's own keyspaces, whose names begin with a dot, are left out without --all.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine stats data\n  trine stats data --json | jq .space\n  \
                        trine stats data --exact")]
pub(crate) struct Stats {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// Also count the keys of each keyspace: reads all items.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Show every partition, not only the largest; with --json the statistics of each.
    #[arg(long)]
    pub(crate) partitions: bool,
    /// Also the program's own keyspaces.
    #[arg(long)]
    pub(crate) all: bool,
}

/// Reads every file of a store and reports damage, and the keys at risk; exit code 1 if there is any.
///
/// It checks every block, every checksum, the order of keys, every filter and fence, and every record of the
/// logs; nothing is changed. A store that is open for writing elsewhere is refused. A finding names the file,
/// the offset in it, the expected and the found state, and the items at risk: a range of keys, a part of the
/// keys of a hashed keyspace, the writes after some number, everything, or nothing.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine verify data\n  trine verify data --json | jq '.findings[].file'")]
pub(crate) struct Verify {
    /// The store's directory.
    pub(crate) store: PathBuf,
}

/// Gets a key and shows each place that the store searched for it, with result and cost.
///
/// Places are the write buffers (here: the items of the log), then the tables from the newest run on: bounds,
/// filter, fences, block. The store is opened for this one get, so that every block is read from the device.
/// An absent key is an answer like any other: the exit code is 0. In a hashed keyspace the get passes one
/// node of each height.
#[derive(Args)]
#[command(after_help = "Example:\n  trine explain data users 42")]
pub(crate) struct Explain {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace's name.
    pub(crate) keyspace: String,
    /// The key.
    pub(crate) key: String,
    /// The key is given in hexadecimal digits.
    #[arg(long)]
    pub(crate) hex: bool,
}

/// Shows the parts of one file of a store, in order, each with its contents.
///
/// The file is STORE, a manifest, a log or a table, damaged or not, also while the store is open. Records of
/// a log after damage are shown too, though no store would use them. docs/FORMAT.md has the meaning of each
/// byte. Before a key of a hashed keyspace is its place, 22 digits, and a slash. With --json each line is one
/// JSON object.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  trine dump data/STORE\n  trine dump data/log-0000000000000004 | grep ' item '"
)]
pub(crate) struct Dump {
    /// The file, under its name in the store.
    pub(crate) file: PathBuf,
}

/// Makes a new store from all readable items of a damaged one.
///
/// The damaged store is not changed and must not be open for writing. Among the keys reported at risk, items
/// may be missing, and older versions of items, deleted ones included, may have come back. Items that may be
/// outdated, or of another keyspace, are put into separate keyspaces, whose names begin with `salvaged-`;
/// each is reported, with the reason. Exit code 0 if the new store was made, even if items were lost.
#[derive(Args)]
#[command(after_help = "Example:\n  trine salvage data data-salvaged")]
pub(crate) struct Salvage {
    /// The damaged store's directory.
    pub(crate) store: PathBuf,
    /// The directory of the new store; it must be missing or empty.
    pub(crate) target: PathBuf,
}

/// Tries the store on this machine, about a minute, with real records, a kill and a check of every answer.
///
/// Records are made from the sources of Rust packages found here (cargo's registry, or the toolchain's own);
/// if there are none they are generated, and the report says so. The demo loads them in a process that it
/// kills in the middle. It reopens the store, checks that no acknowledged record is missing, and finishes the
/// load. It then reopens with little memory, reads (present keys, absent keys, ranges, a snapshot) and prints
/// the cost of each. Exit code 1 if any answer was wrong.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine demo\n  trine demo --records 50000 --seconds 5 --json\n  \
                        trine demo --dir /mnt/ssd/try && trine stats /mnt/ssd/try/store")]
pub(crate) struct Demo {
    /// Work in this directory, which must be empty or new, and keep the store; without it, a temporary one is
    /// used and removed.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Keep the temporary directory and print its path.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Time for all reads.
    #[arg(long, value_name = "N", default_value_t = 60)]
    #[arg(value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// Records to make; fewer if the sources hold fewer.
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    #[arg(value_parser = value_parser!(u64).range(1000..=100_000_000))]
    pub(crate) records: u64,
    /// The seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Use generated records even if sources are found.
    #[arg(long)]
    pub(crate) generate: bool,
}

/// The process that `demo` kills: loads records and reports each commit on standard output.
#[derive(Args)]
pub(crate) struct DemoLoad {
    pub(crate) store: PathBuf,
    #[arg(long)]
    pub(crate) records: u64,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) root: Vec<PathBuf>,
    #[arg(long)]
    pub(crate) memory_bytes: u64,
}

/// Commands that do not take a store first.
const COMMANDS_WITHOUT_A_STORE: [&str; 6] = ["dump", "bench", "demo", "demo-load", "completions", "man"];

/// Moves the value of `--store` to the position of STORE, so that the parser sees one form.
pub(crate) fn with_store_first(words: Vec<OsString>) -> Vec<OsString> {
    let mut rest = Vec::with_capacity(words.len());
    let mut store = None;
    let mut command_at = None;
    let mut words = words.into_iter();
    let mut options_over = false;
    while let Some(word) = words.next() {
        options_over |= word == "--";
        if !options_over && word == "--store" {
            match words.next() {
                Some(value) => store = Some(value),
                None => rest.push(word),
            }
        } else if let (false, Some(value)) =
            (options_over, word.to_str().and_then(|w| w.strip_prefix("--store=")))
        {
            store = Some(value.into());
        } else if !options_over && word == "--memory" {
            rest.push(word);
            rest.extend(words.next());
        } else {
            if command_at.is_none() && !rest.is_empty() && !word.to_string_lossy().starts_with('-') {
                command_at = Some(rest.len());
            }
            rest.push(word);
        }
    }
    if let Some(store) = store {
        match command_at.filter(|at| COMMANDS_WITHOUT_A_STORE.iter().all(|name| rest[*at] != *name)) {
            Some(at) => rest.insert(at + 1, store),
            None => rest.extend(["--store".into(), store]),
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn moved(words: &[&str]) -> Vec<String> {
        let words = with_store_first(words.iter().map(OsString::from).collect());
        words.into_iter().map(|word| word.into_string().expect("text in, text out")).collect()
    }

    /// The parser's own check of the table of commands.
    #[test]
    fn the_table_of_commands_is_sound() {
        Arguments::command().debug_assert();
    }

    /// Every visible command has an example in its help, with the command's name in it.
    #[test]
    fn every_command_shows_an_example() {
        for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                help.contains(&format!("trine {} ", command.get_name())) || help.contains("trine demo\n")
            );
        }
    }

    /// Every command has a store as its first argument, except the known ones.
    #[test]
    fn commands_without_a_store_are_known() {
        for command in Arguments::command().get_subcommands() {
            let first = command.get_positionals().next().map(|argument| argument.get_id().as_str());
            let is_without = COMMANDS_WITHOUT_A_STORE.contains(&command.get_name());
            // Only the program itself gives the demo's hidden command.
            let has_store = first == Some("store") && command.get_name() != "demo-load";
            assert_eq!(has_store, !is_without, "{}", command.get_name());
        }
    }

    /// `--store` may be anywhere before `--`, in both spellings, and is moved to the position of STORE.
    #[test]
    fn store_may_be_an_option() {
        let expected = ["trine", "--memory", "64M", "get", "data", "users", "42"];
        assert_eq!(moved(&["trine", "--store", "data", "--memory", "64M", "get", "users", "42"]), expected);
        assert_eq!(moved(&["trine", "--memory", "64M", "get", "users", "42", "--store=data"]), expected);
        assert_eq!(moved(&expected), expected);
        let key = ["trine", "get", "data", "users", "--", "--store"];
        assert_eq!(moved(&key), key);
        assert_eq!(moved(&["trine", "demo", "--store", "x"]), ["trine", "demo", "--store", "x"]);
    }
}
