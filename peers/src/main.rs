//! Trine beside other stores, under one harness: the outcome of the same faults in each, and the speed of
//! each under the same requests.
//!
//! This program is no part of the store or of its tests. It is a workspace of its own, which neither `cargo
//! build` nor `cargo test` of the project reaches. The README beside it has the commands. `faults` and
//! `bench` run this program again as a child process: for all work that may crash, hang or be killed, and for
//! all measurements.

mod bench;
mod engines;
mod faults;
mod machine;
mod markdown;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use faults::Options;

/// Trine beside other stores.
#[derive(Parser, Debug)]
#[command(name = "peers", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Damages closed stores, kills busy ones, and counts the outcomes.
    Faults(Options),
    /// Writes the tables of results of `faults --json` into a page, between its markers.
    Page {
        /// The page, such as docs/RELIABILITY.md.
        page: PathBuf,
        /// Output files of `faults --json`; if a store is in several of them, the last one counts.
        results: Vec<PathBuf>,
    },
    /// Measures the stores side by side.
    Bench(bench::Options),
    /// Prints the tables of results of `bench`, also of a run that did not finish.
    Show {
        /// Output files of `bench --json`.
        results: Vec<PathBuf>,
    },
    /// Writes the tables of results of `bench` into docs/RESULTS.md and README.md, between their markers and
    /// with losses first, and into docs/results/latest.md.
    Results {
        /// The folder of the project.
        root: PathBuf,
        /// Output files of `bench --json`.
        results: Vec<PathBuf>,
    },
    /// Measures some rows of one store, as a child of `bench`.
    #[command(hide = true)]
    BenchChild(bench::ChildOptions),
    /// Opens a damaged store, reads everything and prints the findings, as a child of `faults`.
    #[command(hide = true)]
    Check {
        /// The name of a row of the tables.
        store: String,
        /// The store's directory.
        directory: PathBuf,
    },
    /// Checks the remains of earlier writes and writes on until it is killed, as a child of `faults`.
    #[command(hide = true)]
    Load(faults::LoadOptions),
}

fn main() -> ExitCode {
    let verdict = match Arguments::parse().command {
        Command::Faults(options) => faults::run(&options),
        Command::Page { page, results } => faults::page(&page, &results),
        Command::Bench(options) => bench::run(&options),
        Command::Show { results } => bench::show(&results),
        Command::Results { root, results } => bench::pages(&root, &results),
        Command::BenchChild(options) => bench::child(&options),
        Command::Check { store, directory } => faults::check(&store, &directory),
        Command::Load(options) => faults::load(&options),
    };
    match verdict {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}
