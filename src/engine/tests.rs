//! Tests of the whole store on the simulated machine. Commits are driven step by step, so that the turns of
//! writers, flushes and merges come in every order. Crashes come at any disk call.
//!
//! - `model`: the expected contents of the store after each write, in commit order.
//! - `recorder`: the disk before and during every call that changes it.
//! - `run`: a random workload over several writers.
//! - `crash`: crashes at every call, and the contents that the store must have afterwards. `faults`: calls
//!   that fail.
//! - `clear`: keyspaces cleared, with crashes and merges at that moment. `memory`: the budget. `pace`:
//!   writers that wait for merges, and merges that wait. `panics`: background threads that panic.

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
