//! Opens and closes a store: reads and decides about its files, changes them, and starts and stops workers.
//! Also makes checkpoints, which are stores of their own.

pub(crate) mod checkpoint;
mod close;
mod parts;
pub(crate) mod recover;
mod refill;
mod reflush;
mod settle;
mod start;
pub(crate) mod unnamed;
