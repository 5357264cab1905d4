//! Fuzz targets of every decoder: of the store's files, of a whole directory of them, and of the files that
//! the program imports.
//!
//! ```text
//! cargo xtask fuzz 60                           all of them, both ways, so many seconds each
//! TRINE_FUZZ=sealed cargo +nightly fuzz run --sanitizer none log
//! ```
//! Bytes are decoded as they come, or with `TRINE_FUZZ=sealed` with their checksums made right. It is a
//! finding if a target panics, never ends, takes more memory than its input allows ([`trine_fuzz_targets`]),
//! or if what was decoded does not come back the same. The corpus is replayed by `cargo test`
//! (tests/corpus.rs, and the tests of rows in workload/).

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

/// One execution of the target of that name.
///
/// # Panics
/// If it is a finding, or there is no such target.
pub fn run(name: &str, bytes: &[u8]) {
    if name == "import" {
        return import::run(bytes);
    }
    let target = TARGETS.iter().find(|target| target.name == name);
    measured(target.expect("a target of that name"), bytes, mode());
}
