//! The built program, run as by its users: arguments in; standard output, standard error and exit code out.

#![expect(clippy::disallowed_methods, reason = "tests of the program, not of the library")]

mod bench;
mod demo;
mod hashed;
mod items;
mod output;
mod partitions;
mod resume;
mod rows;
mod upkeep;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A directory for each test, with a store in it.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file and returns its path.
    fn with_file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.file(name), content).expect("it takes the file");
        self.file(name)
    }

    /// `trine COMMAND STORE ARGUMENTS..`
    fn command<A: AsRef<OsStr>>(&self, name: &str, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = trine();
        command.arg(name).arg(self.store()).args(arguments);
        command
    }

    fn run<A: AsRef<OsStr>>(&self, name: &str, arguments: impl IntoIterator<Item = A>) -> Ran {
        ran(&mut self.command(name, arguments))
    }

    /// All items of a keyspace, as the program lists them in JSON.
    fn all(&self, keyspace: &str) -> Vec<Value> {
        let scan = self.run("scan", [keyspace, "--json"]).ok();
        scan.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
    }
}

fn trine() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trine"));
    command.stdin(Stdio::null());
    command
}

/// The result of a run of the program.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    error: String,
}

fn ran(command: &mut Command) -> Ran {
    of_output(command.output().expect("the program starts"))
}

fn of_output(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).expect("the program writes text");
    Ran { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

impl Ran {
    /// Its standard output, if it succeeded.
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Its one line of error, if it ended with `code`.
    #[track_caller]
    fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        let line = self.error.strip_suffix('\n').expect("a line");
        let line = line.strip_prefix("trine: ").unwrap_or_else(|| panic!("{:?}", self.error));
        assert!(!line.contains('\n'), "one line: {line}");
        line.to_string()
    }

    /// The kind of its error in JSON, if it ended with `code`.
    #[track_caller]
    fn failed_json(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        let error: Value = serde_json::from_str(&self.error).expect("the error is JSON");
        assert!(error["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
        error["error"]["kind"].as_str().expect("a kind").to_string()
    }
}

fn words(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}
