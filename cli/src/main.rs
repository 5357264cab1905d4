//! The program `trine`: imports, exports, inspects and tries a Trine store.
//!
//! It is a thin layer over the library's public API for shells and scripts. It is not a part of the store: it
//! knows no bytes on disk, and uses nothing that an embedding program could not use.
//!
//! Exit codes: 0 done, 1 key not found or a check of `demo`, `bench` or `verify` failed, 2 wrong usage, 3 the
//! store or a file failed, 130 interrupted. An error is one line `trine: ...` on standard error, or one JSON
//! object with `--json`. If its reader closes the pipe (`| head`), the program ends without an error.

#![expect(clippy::disallowed_methods, reason = "the program, not the library")]

mod any_keyspace;
mod arguments;
mod bench;
mod demo;
mod divided;
mod dump;
mod explain;
mod export;
mod import;
mod items;
mod listing;
mod named;
mod partitions;
mod rule;
mod stats;
mod upkeep;
mod verify;

use std::process::ExitCode;

use trine_workload::failure::Failure;
use trine_workload::program;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    program::main("trine", arguments::with_store_first(std::env::args_os().collect()), run)
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    let global = arguments.global;
    if global.store.is_some() {
        return Err(Failure::Usage("this command takes no --store".to_string()));
    }
    match arguments.command {
        Command::Get(get) => items::get(&global, get),
        Command::Put(put) => items::put(&global, put),
        Command::Delete(delete) => items::delete(&global, delete),
        Command::Clear(clear) => items::clear(&global, clear),
        Command::Scan(scan) => items::scan(&global, scan),
        Command::Import(import) => import::run(&global, import),
        Command::Export(export) => export::run(&global, export),
        Command::DeleteRange(range) => upkeep::delete_range(&global, &range),
        Command::Count(count) => upkeep::count_keys(&global, &count),
        Command::Keyspaces(keyspaces) => upkeep::keyspaces(&global, &keyspaces),
        Command::Partitions(partitions) => partitions::run(&global, &partitions),
        Command::Drop(drop) => upkeep::drop_keyspace(&global, &drop),
        Command::Settings(settings) => upkeep::settings(&global, &settings),
        Command::Compact(compact) => upkeep::compact(&global, &compact),
        Command::Checkpoint(checkpoint) => upkeep::checkpoint(&global, &checkpoint),
        Command::Completions(completions) => upkeep::completions(&completions),
        Command::Man(man) => upkeep::man(&man),
        Command::Stats(stats) => stats::run(&global, stats),
        Command::Verify(verify) => verify::run(&global, verify),
        Command::Explain(explain) => explain::run(&global, explain),
        Command::Dump(dump) => dump::run(&global, dump),
        Command::Salvage(salvage) => verify::salvage(&global, salvage),
        Command::Bench(bench) => bench::run(&global, bench),
        Command::Demo(demo) => demo::run(&global, demo),
        Command::DemoLoad(load) => demo::load::run(load),
    }
}
