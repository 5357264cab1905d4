//! The reasons that can end a command early, with exit code, machine-readable kind and message.

use std::fmt;
use std::io;
use std::path::Path;

use serde_json::json;

use crate::probe::Trouble;
use crate::text::{self, json_escaped, one_line};

/// The reason for which a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The key does not exist.
    NotFound(String),
    /// The number of failed checks of the demo, or failed workloads of the bench; the report named them.
    Check(usize),
    /// The command line asks for an impossible action.
    Usage(String),
    /// An error of the store.
    Store(trine::Error),
    /// An error of a file outside the store.
    File {
        /// The failed operation, as a verb.
        operation: &'static str,
        /// The file's name in messages.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// A row that cannot be an item.
    BadRow {
        /// The file's name in messages.
        file: String,
        /// The first line of the row, from 1.
        line: u64,
        /// The fault of the row.
        reason: String,
    },
    /// An unfinished import does not match the current request.
    Changed(String),
    /// Another resource of the program, such as a child process, failed.
    Other(String),
    /// A signal stopped the command at the point that the message names.
    Interrupted(String),
    /// The reader of standard output closed it.
    BrokenPipe,
}

impl Failure {
    /// A failed operation on the file at `path`.
    pub fn file(operation: &'static str, path: &Path, source: io::Error) -> Failure {
        Failure::File { operation, name: text::path(path), source }
    }

    /// A failed write to standard output.
    pub fn output(source: io::Error) -> Failure {
        match source.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::File { operation: "write", name: "standard output".to_string(), source },
        }
    }

    /// The program's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::BrokenPipe => 0,
            Failure::NotFound(_) | Failure::Check(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Store(_)
            | Failure::File { .. }
            | Failure::BadRow { .. }
            | Failure::Changed(_)
            | Failure::Other(_) => 3,
            Failure::Interrupted(_) => 130,
        }
    }

    /// The error's kind, for scripts.
    pub fn kind(&self) -> &'static str {
        match self {
            Failure::BrokenPipe => "broken_pipe",
            Failure::NotFound(_) => "not_found",
            Failure::Check(_) => "check_failed",
            Failure::Usage(_) => "usage",
            Failure::Store(error) => error.kind(),
            Failure::File { .. } => "file",
            Failure::BadRow { .. } => "bad_row",
            Failure::Changed(_) => "changed_import",
            Failure::Other(_) => "other",
            Failure::Interrupted(_) => "interrupted",
        }
    }

    /// Prints one line after `prefix`, or one JSON object, on standard error, with unprintable characters
    /// escaped. Prints nothing if the reader of standard output closed it.
    pub fn tell(&self, json: bool, prefix: &str) {
        match self {
            Failure::BrokenPipe => {}
            _ if json => {
                let error = json!({"error": {"kind": self.kind(), "message": self.to_string()}});
                eprintln!("{}", json_escaped(&error.to_string()));
            }
            _ => eprintln!("{prefix} {}", one_line(&self.to_string())),
        }
    }
}

/// The store's error in terms of this program's commands, with a remedy; the library's own text names its
/// calls.
fn in_words_of_the_program(error: &trine::Error) -> String {
    use trine::Error;
    match error {
        Error::Missing { path } => {
            format!("there is no store at {path}. Check the path; trine put and trine import make one")
        }
        Error::NoKeyspace { name } => format!(
            "there is no keyspace named {name:?}. trine keyspaces lists those there are; trine put and trine \
             import make one"
        ),
        Error::Mismatch { name: "--partition-by", stored, given } => format!(
            "a keyspace keeps the --partition-by that it was made with: this one has {stored}, not {given}. \
             Leave the option out, or take another keyspace"
        ),
        Error::Mismatch { name: "kind", stored, given } => format!(
            "a keyspace keeps the kind that it was made with: this one is {stored}, not {given}. Leave \
             --hashed out, or take another keyspace"
        ),
        Error::Unordered { name } => format!(
            "the keyspace {name:?} is hashed, and its keys have no order: --prefix, --from, --to, --reverse \
             and delete-range are for ordered keyspaces"
        ),
        Error::ReadOnly => "this command writes, and the store was opened with --read-only".to_owned(),
        other => {
            let text = other.to_string();
            let text = text.replace("trine salvage, inspect::salvage", "trine salvage");
            text.replace("memory_bytes", "--memory")
        }
    }
}

impl From<trine::Error> for Failure {
    fn from(error: trine::Error) -> Failure {
        Failure::Store(error)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Failure {
        Failure::file(trouble.operation, &trouble.path, trouble.source)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotFound(what) => write!(f, "{what}"),
            Failure::Check(1) => write!(f, "one check failed; the report says which"),
            Failure::Check(count) => write!(f, "{count} checks failed; the report says which"),
            Failure::Usage(message) => {
                write!(f, "{}", message.trim_end().trim_start_matches("error: "))
            }
            Failure::Store(error) => f.write_str(&in_words_of_the_program(error)),
            Failure::File { operation, name, source } => write!(f, "could not {operation} {name}: {source}"),
            Failure::BadRow { file, line, reason } => write!(
                f,
                "{file}, line {line}: {reason}. The rows before it are in. Mend it and give the command \
                 again with --restart, or with --skip-bad to leave such rows out"
            ),
            Failure::Changed(message) | Failure::Other(message) | Failure::Interrupted(message) => {
                write!(f, "{message}")
            }
            Failure::BrokenPipe => write!(f, "the reader of the output went away"),
        }
    }
}
