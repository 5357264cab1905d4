//! The program `trine-repro`: repeats experiments of the papers whose ideas the store is built on.
//!
//! It runs the lab's presets (Drizard and Lemur rebuilt from their parts) and the store itself under the
//! papers' loads. It is not shipped; `trine` has no lab in it. The engines are `trine::lab`, behind the
//! library's feature `lab`, and their files are outside the format promise.
//!
//! Exit codes: 0 done, 1 `verify-random` found a wrong answer, 2 wrong usage, 3 a store or a file failed, 130
//! interrupted.

#![expect(clippy::disallowed_methods, reason = "a program, not the library")]

mod arguments;
mod experiments;
mod lab;

use std::process::ExitCode;

use trine_workload::failure::Failure;
use trine_workload::program;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    program::main("trine-repro", std::env::args_os().collect(), run)
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    let global = arguments.global;
    match arguments.command {
        Command::Run(run) => experiments::run(&global, run),
        Command::Time(time) => lab::time(&global, time),
        Command::VerifyRandom(verify) => lab::verify_random(&global, verify),
    }
}
