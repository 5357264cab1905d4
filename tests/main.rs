//! The store from outside: everything here uses only what a program that embeds it could.
//!
//! - `twin`: a model beside the store, over random operations and settings.
//! - `world`: what the simulated machine promises, and that a seed decides everything.
//! - `limits`: few open files, many tables.
//! - `threads`: real threads at once.
//!
//! `TRINE_SEED=n` replays one seed of the tests that have seeds; `TRINE_SEEDS=n` has them try so many.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod rng;
mod twin;
