//! The only door to the operating system: storage, clock, randomness, threads, memory.
//!
//! Everything above takes an [`Env`] and reaches nothing else, so a whole store runs on a simulated disk
//! under a single-threaded scheduler and a seed. Traits live in `storage`, `reader` and `env`; `os` is Linux
//! (and any unix), `sim` the simulator. `fork` tells a forked process from the one that opened a store.
//! `ledger` knows how long each of the store's files is.

pub(crate) mod env;
pub(crate) mod fork;
pub(crate) mod ledger;
pub(crate) mod os;
pub(crate) mod pace;
pub(crate) mod reader;
#[cfg(any(test, feature = "sim"))]
pub(crate) mod sim;
pub(crate) mod storage;

#[cfg(test)]
mod tests;
