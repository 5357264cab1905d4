//! What the program can be told: commands, their arguments and their help, in one place.
//!
//! The help is the manual: every command says what it does, what it answers and shows an example.

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

/// Imports, exports, looks into and tries Trine stores.
///
/// Trine is an embedded key-value store for very many small items, read far more often than written.
/// This program works on a store (a directory) and its keyspaces (named maps inside it, ordered or hashed).
#[derive(Parser)]
#[command(name = "trine", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options every command takes, before or after its name.
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
/// Text is printed as it is. A value that is not text is printed escaped (\xff); --raw gives its exact bytes,
/// --hex hexadecimal digits. With --json: {"key":..,"value":..}, with "value_hex" where the value is not
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

/// Stores a value under a key, replacing what was there.
///
/// The store and the keyspace are created if they do not exist. Without --sync the value survives the end of
/// every process; with it also the loss of power.
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
    /// Return only when the value would survive the loss of power.
    #[arg(long)]
    pub(crate) sync: bool,
}

/// Deletes a key. A key that is not there is no error.
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
    /// Return only when the deletion would survive the loss of power.
    #[arg(long)]
    pub(crate) sync: bool,
}

/// Deletes everything in a keyspace, at once whatever it holds, and gives its space back.
///
/// The keyspace and its settings stay. Nothing is asked: what is gone is gone.
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
/// Tabs, newlines, backslashes and bytes that are not text are escaped (\t, \n, \\, \xff), so that a line is
/// always one item. With --json one JSON object a line, as `trine export --format jsonl` writes them.
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
/// Each row becomes one item. The key is the column named by --key (a number where there is no header), else
/// the column `key`, else the first. The value is the column named by --value, or the whole row as JSON;
/// without --key and --value a column `value` is taken, so that what `trine export` wrote comes back as it
/// was. No column is lost unasked: others beside `value`, and two of one name, are refused.
///
/// csv: RFC 4180, quotes and newlines in fields. tsv: fields as they are, with \t \n \r \\ for those bytes,
/// no quotes. jsonl: one JSON object a line; a string gives its text, anything else its JSON. Lines end in
/// LF, CRLF or CR, in one way in a file. Text is UTF-8; UTF-16 is refused. A first line `sep=;` names the
/// separator; a first row that has another separator than the format is refused without --separator.
///
/// The position in the file is committed with the rows (keyspace `.import`). An import that was killed goes
/// on where it was when the same command is given again; a file that has changed since is refused. Standard
/// input (FILE -) and pipes have no position and start anew. A bad row stops the import, after the rows
/// before it are in.
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
    /// The file, or - for standard input.
    pub(crate) file: PathBuf,
    /// The file's format; guessed from its extension (.csv, .tsv, .jsonl, .ndjson).
    #[arg(long)]
    pub(crate) format: Option<Format>,
    /// The column that holds the key.
    #[arg(long, value_name = "COLUMN")]
    pub(crate) key: Option<String>,
    /// The column that holds the value; without it the whole row as JSON.
    #[arg(long, value_name = "COLUMN")]
    pub(crate) value: Option<String>,
    /// The first row holds the columns' names (csv and tsv; the default).
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
    /// Forget where an earlier import of this file was and begin again.
    #[arg(long)]
    pub(crate) restart: bool,
    /// Leave bad rows out and count them, instead of stopping at the first.
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Rows committed together.
    #[arg(long, value_name = "ROWS", default_value_t = 1000)]
    #[arg(value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: u32,
    /// Print a line after each commit: the rows now in.
    #[arg(long, hide = true)]
    pub(crate) acknowledge: bool,
}

/// Writes a keyspace's items, in key order, to a file or to standard output; those of a hashed keyspace in no
/// order.
///
/// What it writes, `trine import` reads back byte for byte. csv and tsv have the columns key, value and hex;
/// hex says which of them (k, v or kv) are in hexadecimal because they are not UTF-8. jsonl has "key" and
/// "value", or "key_hex" and "value_hex". On a terminal csv and tsv also have fields with control and format
/// characters in hexadecimal; so they have with --safe, and fields that a spreadsheet would take for a
/// formula have an apostrophe before them, which hex tells by a capital (K, V). A FILE appears complete or
/// not at all; one that exists is left alone without --force.
///
/// A keyspace with explicit partitions is written out one KEYSPACE/PARTITION at a time. `trine import
/// --partition-by` makes a keyspace that is divided again, `trine import --hashed` one that is hashed.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine export data users users.jsonl\n  \
                        trine export data users --format csv | gzip > users.csv.gz\n  \
                        trine export data users users.csv --safe")]
pub(crate) struct Export {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The keyspace to write out.
    pub(crate) keyspace: String,
    /// The file; without it, standard output.
    pub(crate) file: Option<PathBuf>,
    /// Replace FILE if it exists; of a symbolic link, the file that it names.
    #[arg(long)]
    pub(crate) force: bool,
    /// The format; guessed from the file's extension, jsonl on standard output.
    #[arg(long)]
    pub(crate) format: Option<Format>,
    /// For a spreadsheet: no field is a formula or has control characters (csv and tsv).
    #[arg(long)]
    pub(crate) safe: bool,
}

/// Shows what a store holds and costs: keyspaces, levels, memory, device traffic, space.
///
/// Of a hashed keyspace the shape of its trie is shown, by height: nodes, tables, and the longest pile, the
/// most runs of one node.
///
/// Items are counted as they are kept: versions and deletions that are not merged away yet count. --exact
/// counts keys. Of a keyspace that is divided, the largest partitions are shown. Reads are counted since this
/// command opened the store. The program's own keyspaces, whose names begin with a dot, are left out without
/// --all.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine stats data\n  trine stats data --json | jq .space\n  \
                        trine stats data --exact")]
pub(crate) struct Stats {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// Also count the keys of each keyspace: reads all items.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Every partition, not the largest alone; with --json the statistics of each.
    #[arg(long)]
    pub(crate) partitions: bool,
    /// Also the program's own keyspaces.
    #[arg(long)]
    pub(crate) all: bool,
}

/// Reads every file of a store and says what is damaged, and which keys that concerns; exit code 1 if
/// anything is.
///
/// Every block, every checksum, the order of keys, every filter and fence, and every record of the logs are
/// checked; nothing is changed. A store that is open for writing elsewhere is refused. A finding names the
/// file, the offset in it, what was expected there and what was found, and what is at risk: a range of keys,
/// a part of the keys of a hashed keyspace, the writes after some number, everything, or nothing.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine verify data\n  trine verify data --json | jq '.findings[].file'")]
pub(crate) struct Verify {
    /// The store's directory.
    pub(crate) store: PathBuf,
}

/// Gets a key and says where the store looked for it, what each place said and what that cost.
///
/// Places are the write buffers (here: what the log held), then the tables from the newest run on: bounds,
/// filter, fences, block. The store is opened for this one get, so that every block is read from the device.
/// That the key is not there is an answer like any other: the exit code is 0. In a hashed keyspace the get
/// passes one node of each height.
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

/// Shows what one file of a store is made of: its parts, in order, with what each says.
///
/// STORE, manifests, logs and tables; damaged or not, and also while the store is open. Of a log, records
/// behind damage are shown too, which no store would use. What each byte of a part means is in
/// docs/FORMAT.md. A key of a hashed keyspace stands behind its place, 22 digits and a slash. With --json one
/// JSON object a line.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  trine dump data/STORE\n  trine dump data/log-0000000000000004 | grep ' item '"
)]
pub(crate) struct Dump {
    /// The file, by the name that it has in the store.
    pub(crate) file: PathBuf,
}

/// Makes a new store of everything in a damaged one that can still be read.
///
/// The damaged store is not changed and must not be open for writing. Between the keys that are told to be at
/// risk, items may be missing, and older versions of items, deleted ones included, may have come back. What
/// may be older than it was, or another keyspace's, is put apart, into keyspaces whose names begin with
/// `salvaged-`; each is told, with the reason. Exit code 0 if the new store was made, whatever was lost.
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
/// where there are none they are generated, and the report says so. The demo loads them in a process that it
/// kills in the middle, reopens the store, checks that nothing acknowledged is missing, finishes the load,
/// reopens with little memory, reads (present keys, absent keys, ranges, a snapshot) and prints what each
/// cost. Exit code 1 if any answer was wrong.
#[derive(Args)]
#[command(after_help = "Examples:\n  trine demo\n  trine demo --records 50000 --seconds 5 --json\n  \
                        trine demo --dir /mnt/ssd/try && trine stats /mnt/ssd/try/store")]
pub(crate) struct Demo {
    /// Work here and keep the store; the directory must be empty or new. Otherwise a temporary one is
    /// removed.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Keep the temporary directory and say where it is.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Time for the reads, in all.
    #[arg(long, value_name = "N", default_value_t = 60)]
    #[arg(value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// Records to make; fewer if the sources hold fewer.
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    #[arg(value_parser = value_parser!(u64).range(1000..=100_000_000))]
    pub(crate) records: u64,
    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Use generated records even where sources are found.
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

/// Moves the value of `--store` to where STORE stands, so that both spellings are one to the parser.
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

    /// Every command a user sees has an example in its help, with the command's name in it.
    #[test]
    fn every_command_shows_an_example() {
        for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                help.contains(&format!("trine {} ", command.get_name())) || help.contains("trine demo\n")
            );
        }
    }

    /// Every command has a store as its first argument, but for those that are known not to.
    #[test]
    fn commands_without_a_store_are_known() {
        for command in Arguments::command().get_subcommands() {
            let first = command.get_positionals().next().map(|argument| argument.get_id().as_str());
            let is_without = COMMANDS_WITHOUT_A_STORE.contains(&command.get_name());
            // The hidden command of the demo is only ever given by the program.
            let has_store = first == Some("store") && command.get_name() != "demo-load";
            assert_eq!(has_store, !is_without, "{}", command.get_name());
        }
    }

    /// `--store` may stand anywhere before `--`, in both spellings, and lands where STORE stands.
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
