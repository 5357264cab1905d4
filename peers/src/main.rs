//! Trine beside other stores, under one harness: what becomes of each when the same faults are made, and what
//! each does when it is asked the same.
//!
//! It is no part of the store or of its tests: a workspace of its own, which neither `cargo build` nor `cargo
//! test` of the project reaches. The README beside it has the commands. `faults` and `bench` run this program
//! again as a child: for everything that may crash, hang or be killed, and for all that is measured.

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
    /// Damages closed stores and kills busy ones, and counts what became of each.
    Faults(Options),
    /// Writes the tables of results that `faults --json` printed into a page, between its markers.
    Page {
        /// The page, such as docs/RELIABILITY.md.
        page: PathBuf,
        /// What `faults --json` printed; of a store in several of them, the last is taken.
        results: Vec<PathBuf>,
    },
    /// Measures the stores side by side.
    Bench(bench::Options),
    /// The tables of what `bench` measured, also if it did not come to its end.
    Show {
        /// What `bench --json` wrote.
        results: Vec<PathBuf>,
    },
    /// Writes the tables of what `bench` measured into docs/RESULTS.md and README.md, between their markers
    /// and with losses first, and into docs/results/latest.md.
    Results {
        /// The folder of the project.
        root: PathBuf,
        /// What `bench --json` wrote.
        results: Vec<PathBuf>,
    },
    /// What a child of `bench` does: some rows of one store.
    #[command(hide = true)]
    BenchChild(bench::ChildOptions),
    /// What a child does: opens a store that was damaged, reads everything, and prints what it found.
    #[command(hide = true)]
    Check {
        /// Which row of the tables.
        store: String,
        /// The store's directory.
        directory: PathBuf,
    },
    /// What a child does until it is killed: checks what is left of earlier writes, and writes on.
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
