//! What the programs around Trine share: keys and values made from numbers, distributions, the requests of
//! known workloads, a probe of the device, charts, rows of files, and the face of a program.
//!
//! What it is not: a part of the store, or a face of it for other programs; it promises no stable names. The
//! program `trine`, the experiments of `trine-repro`, the comparison with other stores (`peers`) and the fuzz
//! targets use it.
//!
//! 1. The same seed draws the same keys, values and requests on every machine: results can be compared.
//! 2. Without features nothing here needs the store, so that other stores are measured by the same code.

#![expect(clippy::disallowed_methods, reason = "for programs, not for the library")]

pub mod dice;
pub mod direct;
pub mod distribution;
pub mod keys;
pub mod mixgraph;
pub mod numbering;
pub mod plot;
pub mod probe;
pub mod ycsb;

#[cfg(feature = "rows")]
pub mod failure;
#[cfg(feature = "rows")]
pub mod rows;
#[cfg(feature = "rows")]
pub mod text;

#[cfg(feature = "program")]
pub mod interrupt;
#[cfg(feature = "program")]
pub mod program;
#[cfg(feature = "program")]
pub mod progress;
#[cfg(feature = "program")]
pub mod screen;
#[cfg(feature = "program")]
pub mod system;
