//! The targets of the fuzzer: a decoder each, with the memory that it may take for its input.
//!
//! What it is not: the fuzzer, which is the package above with libfuzzer in it. That package and the tests,
//! which replay the corpus, have the targets from here. A program that runs them has
//! [`allocations::Counting`] as its allocator.

pub mod allocations;
mod directory;

use trine::fuzz::{self, Mode};

/// What is fuzzed.
pub struct Target {
    /// As its folder of the corpus is called.
    pub name: &'static str,
    /// Decodes an input; a panic is a finding.
    pub run: fn(&[u8], Mode),
    /// Bytes of memory it may have at once: so many a byte of input, and so many beside.
    pub memory: (usize, usize),
}

const KIB: usize = 1 << 10;

/// Those of the library.
pub const TARGETS: &[Target] = &[
    Target { name: "log", run: fuzz::log, memory: (8, 64 * KIB) },
    // Changes of a few bytes become nodes of ordered maps, twice.
    Target { name: "manifest", run: fuzz::manifest, memory: (200, 256 * KIB) },
    Target { name: "store", run: fuzz::store, memory: (8, 64 * KIB) },
    Target { name: "footer", run: fuzz::footer, memory: (24, 64 * KIB) },
    Target { name: "top", run: fuzz::top, memory: (32, 64 * KIB) },
    Target { name: "fence", run: fuzz::fence, memory: (8, 64 * KIB) },
    Target { name: "filters", run: fuzz::filters, memory: (8, 64 * KIB) },
    // A decompressed block has 255 times its bytes at most, and is built again.
    Target { name: "data", run: fuzz::data, memory: (4000, 8 << 20) },
    Target { name: "ranges", run: fuzz::ranges, memory: (24, 64 * KIB) },
    Target { name: "names", run: fuzz::names, memory: (4, 4 * KIB) },
    Target { name: "directory", run: directory::run, memory: (64, 8 << 20) },
];

/// Runs a target and checks what it takes.
///
/// # Panics
/// If it is a finding.
pub fn measured(target: &Target, bytes: &[u8], mode: Mode) {
    let taken = allocations::peak_bytes(|| (target.run)(bytes, mode));
    let (each, beside) = target.memory;
    let limit = each * bytes.len() + beside;
    assert!(taken <= limit, "{}: {taken} bytes of memory for {} of input", target.name, bytes.len());
}
