//! The same faults in every store: damage to closed stores, and kills of busy ones.
//!
//! 1. Each fault is made in a fresh copy of one closed store. A child process, which may crash or hang, opens
//!    the copy and reports the outcome.
//! 2. A store is judged by its answers, never by its own statements about itself.
//! 3. The seed determines the faults. It does not determine the bytes of a store that writes random numbers.

mod census;
mod check;
mod damage;
mod image;
mod items;
mod kills;
mod load;
mod outcome;
mod page;
mod random;
mod results;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};

use crate::engines::{self, Answer, Peer, Until, told};
use results::{Results, Row};

pub(crate) use check::check;
pub(crate) use load::{LoadOptions, load};
pub(crate) use page::page;

/// Options of `faults`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Only these rows, by name; by default all rows of this build.
    #[arg(long)]
    store: Vec<String>,
    /// Only one kind of fault.
    #[arg(long)]
    only: Option<Only>,
    /// Flipped bits in each class of a store's files; a fifth as many cuts, a tenth as many zeroed pages.
    #[arg(long, default_value_t = 500)]
    flips: usize,
    /// Kills of each row with synced writes, and as many with buffered ones.
    #[arg(long, default_value_t = 100)]
    cycles: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Damaged copies that are checked in parallel.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Prints the counts as JSON, for `page`.
    #[arg(long)]
    json: bool,
    /// Directory for copies of the stores; by default the system's temporary directory.
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Directory that keeps damaged stores with an outcome worse than an error.
    #[arg(long)]
    keep: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Only {
    Damage,
    Kills,
}

/// The command `faults`.
pub(crate) fn run(options: &Options) -> Answer<()> {
    let names = if options.store.is_empty() {
        engines::names()
    } else {
        options.store.iter().map(String::as_str).collect()
    };
    let peers = names.into_iter().map(engines::peer).collect::<Answer<Vec<Peer>>>()?;
    let mut rows = Vec::new();
    for peer in &peers {
        let row = row(peer, options)?;
        eprintln!("{}: {} s", peer.name, row.seconds);
        rows.push(row);
    }
    let results = Results { run: results::run(options.seed), rows };
    let text = if options.json {
        serde_json::to_string_pretty(&results).map_err(told)?
    } else {
        page::tables(&[results])
    };
    println!("{text}");
    Ok(())
}

fn row(peer: &Peer, options: &Options) -> Answer<Row> {
    let begun = Instant::now();
    let scratch = match &options.scratch {
        Some(directory) => tempfile::tempdir_in(directory),
        None => tempfile::tempdir(),
    }
    .map_err(told)?;
    let mut row = Row {
        name: peer.name.to_owned(),
        label: peer.label.to_owned(),
        versions: engines::versions(peer),
        settings: peer.settings.to_owned(),
        promise_of_damage: peer.promises.damage.to_owned(),
        promise_synced: peer.promises.synced.to_owned(),
        promise_buffered: peer.promises.buffered.to_owned(),
        ..Row::default()
    };
    if options.only != Some(Only::Kills) {
        row.damage = census::run(peer, options, scratch.path())?;
    }
    if options.only != Some(Only::Damage) && peer.is_killed {
        for until in Until::BOTH {
            row.kills.push(kills::run(peer, until, options, scratch.path())?);
        }
    }
    row.seconds = begun.elapsed().as_secs();
    Ok(row)
}

/// The text of a file.
fn read(path: &Path) -> Answer<String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
