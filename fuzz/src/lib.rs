//! Fuzz targets of every decoder: of the store's files, of a whole directory of them, and of the files that
//! the program imports.
//!
//! ```text
//! cargo xtask fuzz 60                           all of them, both ways, so many seconds each
//! TRINE_FUZZ=sealed cargo +nightly fuzz run --sanitizer none log
//! ```
//! Bytes are decoded as they come, or with `TRINE_FUZZ=sealed` with their checksums made right. It is a
//! finding if a target panics, never ends, takes more memory than its input allows ([`targets`]), or if what
//! was decoded does not come back the same. The corpus is replayed by `cargo test` (tests/corpus.rs, and the
//! program's tests of rows).

mod allocations;
mod directory;
#[path = "../../cli/src/failure.rs"]
#[expect(dead_code, reason = "the program's own; the rows need some of it")]
mod failure;
mod import;
#[path = "../../cli/src/rows/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the program's own; what writes rows is not fuzzed")]
mod rows;
mod targets;
#[path = "../../cli/src/text.rs"]
#[expect(dead_code, reason = "the program's own; the rows need some of it")]
mod text;

use std::sync::OnceLock;

use trine::fuzz::Mode;

mod arguments {
    //! What the program's rows need of its arguments.

    /// A format of rows.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
    pub(crate) enum Format {
        Csv,
        Tsv,
        Jsonl,
    }
}

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
    let target = targets::TARGETS.iter().find(|target| target.name == name);
    targets::measured(target.expect("a target of that name"), bytes, mode());
}
