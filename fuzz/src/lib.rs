//! Fuzz targets for every decoder: of the store's files, of a whole directory of them, and of the files that
//! the program imports.
//!
//! ```text
//! cargo xtask fuzz 60                           all targets, both modes, so many seconds each
//! TRINE_FUZZ=sealed cargo +nightly fuzz run --sanitizer none log
//! ```
//! A target decodes the bytes unchanged, or with corrected checksums if `TRINE_FUZZ=sealed`. A finding is a
//! panic, an endless run, more memory than the input allows ([`trine_fuzz_targets`]), or decoded data that
//! does not survive a round trip. `cargo test` replays the corpus (tests/corpus.rs, and the tests of rows in
//! workload/).

mod import;

use std::sync::OnceLock;

use trine::fuzz::Mode;
use trine_fuzz_targets::{TARGETS, allocations, measured};

#[global_allocator]
static COUNTING: allocations::Counting = allocations::Counting;

fn mode() -> Mode {
    static MODE: OnceLock<Mode> = OnceLock::new();
    *MODE.get_or_init(|| match std::env::var("TRINE_FUZZ").as_deref() {
        Ok("sealed") => Mode::Sealed,
        _ => Mode::Raw,
    })
}

/// Runs the named target on one input.
///
/// # Panics
/// If the input is a finding, or there is no such target.
pub fn run(name: &str, bytes: &[u8]) {
    if name == "import" {
        return import::run(bytes);
    }
    let target = TARGETS.iter().find(|target| target.name == name);
    measured(target.expect("a target of that name"), bytes, mode());
}
