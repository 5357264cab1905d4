//! Lookups and scans as state machines: they return the blocks that they need, and are resumed with them.
//!
//! Nothing here reads a file, takes a lock, asks the clock or waits. Drivers in `engine` do.

pub(crate) mod breadth;
pub(crate) mod get;
pub(crate) mod scan;
pub(crate) mod trace;

#[cfg(test)]
mod tests;
