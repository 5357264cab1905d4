//! The whole store on the simulated machine, its commits driven step by step so that the turns of writers,
//! flushes and merges come in every order; and what it is after a crash at any call of the disk.
//!
//! - `model`: what the store must hold after each write, in commit order.
//! - `recorder`: the disk before and amid every call that changes it.
//! - `run`: a random workload over several writers.
//! - `crash`: crashes at every call, and what must be found then. `faults`: calls that fail.
//! - `clear`: keyspaces cleared, with crashes and merges at that moment. `memory`: the budget. `pace`: who
//!   waits for merges, and for what merges wait. `panics`: background threads that panic.

mod case;
mod clear;
pub(super) mod crash;
mod fails;
mod faults;
mod memory;
pub(super) mod model;
mod outside;
mod pace;
mod panics;
mod play;
mod pops;
mod queue;
pub(super) mod recorder;
mod replay;
pub(super) mod run;
mod runs;
mod salvaged;
mod scenario;
mod stops;
mod trees;
mod tries;
