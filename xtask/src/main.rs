//! Development commands of the project, `cargo xtask`, with std as the only dependency.
//!
//! This package is not a part of the library or of the program `trine`, and is never published. `.ci/run` and
//! developers call it. It has one thread, and starts child processes one after another.

mod api;
mod checkers;
mod ci;
mod coverage;
mod cycles;
mod docs;
mod finding;
mod format;
mod fuzzing;
mod hello;
mod items;
mod layers;
mod mutants;
mod packages;
mod paths;
mod platforms;
mod quickstart;
mod rules;
mod scratch;
mod settings;
mod source;
mod text;
mod tidy;
mod torture;
mod tree;
mod wrap;

use std::path::PathBuf;
use std::process::ExitCode;

use text::{Document, Mode};

const USAGE: &str = "\
usage: cargo xtask COMMAND [--root DIRECTORY]

  ci                  everything a change must pass, in order; stops at the first failure
  tidy                the house rules, with file:line and what to do instead
  format [--check]    writes docs/FORMAT.md from the module docs of src/format and the goldens
  settings [--check]  writes docs/SETTINGS.md from the table in src/base/settings.rs
  api [--check]       writes docs/api.txt, the public items of the library, from src
  layers [--check]    writes the import table in docs/ARCHITECTURE.md
  cycles              prints which files of the library name each other, by module
  hello               builds the smallest program with Trine, redb and fjall, and prints what each cost
  macos               compiles for macOS, without running; skipped where its std cannot be had
  quickstart          builds and runs the README's quickstart in a new package
  wrap                breaks comment lines that are too long
  loom                models of what threads share, in every order of threads
  asan, tsan, miri    tests of the library under a sanitizer or Miri; skipped where nightly lacks them
  coverage            lines of log, manifest and recovery that no test runs; needs llvm-tools
  mutants [SHARD]     changes one thing at a time there and runs the tests; needs cargo-mutants
  golden              writes tests/golden anew, by running the tests with TRINE_GOLDEN=write
  torture [PART] [--minutes N] [--seed N]
                      tries for so many minutes what is too long for the tests: all parts, or one
  fuzz [SECONDS]      runs every target of fuzz/ for so long, both ways; needs nightly and cargo-fuzz

--check writes nothing and fails if the file is stale.
--root runs tidy, cycles, format, settings, api or layers over another tree.";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: Vec<String>) -> Result<(), String> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut root = here.parent().ok_or("xtask has no parent directory")?.to_path_buf();
    let mut mode = Mode::Write;
    if let Some(index) = arguments.iter().position(|argument| argument == "--root") {
        root = PathBuf::from(arguments.get(index + 1).ok_or("--root needs a directory")?);
        arguments.drain(index..index + 2);
    }
    if let Some(index) = arguments.iter().position(|argument| argument == "--check") {
        mode = Mode::Check;
        arguments.remove(index);
    }
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["ci"] => ci::run(&root),
        ["tidy"] => tidy::run(&root),
        ["format"] => text::settle(&root, Document::Format, mode),
        ["settings"] => text::settle(&root, Document::Settings, mode),
        ["api"] => text::settle(&root, Document::Api, mode),
        ["layers"] => text::settle(&root, Document::Layers, mode),
        ["cycles"] => tidy::print_cycles(&root),
        ["hello"] => hello::run(&root),
        ["macos"] => platforms::macos(&root),
        ["quickstart"] => quickstart::run(&root),
        ["wrap"] => wrap::run(&root),
        ["loom"] => checkers::loom(&root),
        ["asan"] => checkers::asan(&root),
        ["tsan"] => checkers::tsan(&root),
        ["miri"] => checkers::miri(&root),
        ["coverage"] => coverage::run(&root),
        ["mutants", asked @ ..] => mutants::run(&root, asked),
        ["golden"] => ci::golden(&root),
        ["fuzz", asked @ ..] => fuzzing::run(&root, asked),
        ["torture", asked @ ..] => torture::run(&root, asked),
        _ => Err(format!("{USAGE}\n\nparts of torture: {}", torture::names())),
    }
}
