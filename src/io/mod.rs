//! The crate's only access to the operating system: storage, clock, randomness, threads, memory.
//!
//! All other modules take an [`Env`] and call nothing else. So a whole store can run on a simulated disk,
//! under a single-threaded scheduler and a seed. The traits are in `storage`, `reader` and `env`. `os`
//! implements them for Linux (and any unix), `sim` for the simulator. `fork` detects that the calling process
//! was forked from the one that opened a store. `ledger` tracks the length of each of the store's files.

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
