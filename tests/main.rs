//! The store from outside: everything here uses only what a program that embeds it could.
//!
//! One binary, a module a subject. Tests of one module of the library stand beside their code. Every test has
//! a directory or a simulated world of its own and may run beside any other; bounded by counts, never by
//! time.
//!
//! - `twin`: a model beside the store, over random operations and settings.
//! - `freed`: a full disk is emptied.
//! - `bad_input`, `full_disk`, `damage`, `limits`: what is refused, found and promised, on real files.
//! - `holes`: pages of shared files that nothing needs any more.
//! - `hostile`: keys and workloads chosen by an enemy.
//! - `corpus`: what fuzzing starts from and found, replayed.
//! - `ranges`: what deleted ranges cost, and that nothing of them comes back.
//! - `descriptors`: hundreds of tables under a low limit of the system's. `threads`: real threads at once.
//! - `apart`: what a worker reads ahead of scans.
//! - `asynchronous`: futures, callbacks and queues. `places`: what holds of them wherever they read.
//! - `reads`: what reads of several blocks cost, and what a read that fails does to them.
//! - `space`: what a store takes on disk.
//! - `snapshots`: what long ones keep, and where.
//! - `world`: the simulated machine, and that a seed decides everything.
//! - `partitions`: keyspaces that are divided. `by_key`: those whose keys say where; `by_key_crashes`: these
//!   on a machine that stops.
//! - `policies`: merge policies, the age of deletes, queues.
//! - `checkpoint`: a second store made of the first, also on a machine that stops or fails.
//! - `openers`: locks of the dead and of the forked, copies of stores in use, read-only file systems.
//! - `forks`: handles in forked processes, and in threads that end.
//! - `columns`: filters of hashed keyspaces under little memory.
//! - `hashed`: keyspaces without an order, beside a map; `hashed_by_key`: divided by their keys;
//!   `hashed_crashes`: on a machine that stops.
//! - `kills`: a process killed at random under load, and a file system ended under it.
//! - `linear`: one order that explains what several threads were answered, over a crash.
//! - `semantics`: where the store is not as a `BTreeMap` is.
//! - `fixture`: a store written by an earlier build still opens.
//!
//! `TRINE_SEED=n` replays one seed of the tests that have seeds; `TRINE_SEEDS=n` has them try so many,
//! `TRINE_SEEDS=a..b` these.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "tests damage files, and run outside the simulator")]

mod apart;
mod async_writes;
mod asynchronous;
mod bad_input;
mod by_key;
mod by_key_crashes;
mod by_key_many;
mod checkpoint;
mod child;
mod columns;
mod corpus;
mod damage;
mod descriptors;
mod explain;
mod extremes;
mod fixture;
mod forks;
mod freed;
mod full_disk;
mod hashed;
mod hashed_by_key;
mod hashed_crashes;
mod hashed_partitions;
mod holes;
mod hostile;
mod kills;
mod large_batches;
mod lengths;
mod limits;
mod linear;
mod memory;
mod older;
mod openers;
mod partitions;
mod places;
mod policies;
mod ranges;
mod ratio;
mod raw;
mod reads;
mod rng;
mod salvage;
mod semantics;
mod snapshots;
mod space;
mod support;
mod threads;
mod turns;
mod twin;
mod world;
