//! The shared parts of the programs around Trine: keys and values made from numbers, distributions, requests
//! of known workloads, a probe of the device, charts, rows of files, and the command-line frame of a program.
//!
//! This package is not a part of the store and has no stable interface. Its users are the program `trine`,
//! the experiments of `trine-repro`, the comparison with other stores (`peers`) and the fuzz targets.
//!
//! 1. The same seed gives the same keys, values and requests on every machine, so that results are
//!    comparable.
//! 2. Without features this package does not depend on the store, so that the same code measures other
//!    stores.

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
