//! The targets of the fuzzer: decoders, each with a limit on memory for its input.
//!
//! The fuzzer itself is the package above, with libfuzzer. Both that package and the tests that replay the
//! corpus use these targets. A program that runs them must have [`allocations::Counting`] as its allocator.

pub mod allocations;
mod directory;

use trine::fuzz::{self, Mode};

/// A fuzz target.
pub struct Target {
    /// The name of its corpus folder.
    pub name: &'static str,
    /// Decodes an input; a panic is a finding.
    pub run: fn(&[u8], Mode),
    /// Limit on memory in bytes: the first number for each byte of input, plus the second.
    pub memory: (usize, usize),
}

const KIB: usize = 1 << 10;

/// All targets except `import`, which is in the package above.
pub const TARGETS: &[Target] = &[
    Target { name: "log", run: fuzz::log, memory: (8, 64 * KIB) },
    // A few bytes of edits become nodes of ordered maps, twice.
    Target { name: "manifest", run: fuzz::manifest, memory: (200, 256 * KIB) },
    Target { name: "store", run: fuzz::store, memory: (8, 64 * KIB) },
    Target { name: "footer", run: fuzz::footer, memory: (24, 64 * KIB) },
    Target { name: "top", run: fuzz::top, memory: (32, 64 * KIB) },
    Target { name: "fence", run: fuzz::fence, memory: (8, 64 * KIB) },
    Target { name: "filters", run: fuzz::filters, memory: (8, 64 * KIB) },
    // A decompressed block has at most 255 times its bytes, and is built again.
    Target { name: "data", run: fuzz::data, memory: (4000, 8 << 20) },
    Target { name: "ranges", run: fuzz::ranges, memory: (24, 64 * KIB) },
    Target { name: "names", run: fuzz::names, memory: (4, 4 * KIB) },
    Target { name: "directory", run: directory::run, memory: (64, 8 << 20) },
];

/// Runs a target and checks its memory.
///
/// # Panics
/// If the input is a finding.
pub fn measured(target: &Target, bytes: &[u8], mode: Mode) {
    let taken = allocations::peak_bytes(|| (target.run)(bytes, mode));
    let (each, beside) = target.memory;
    let limit = each * bytes.len() + beside;
    assert!(taken <= limit, "{}: {taken} bytes of memory for {} of input", target.name, bytes.len());
}
