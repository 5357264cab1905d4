//! Tests of the store from outside: they use only the interface that an embedding program has.
//!
//! One binary, one module for each subject. Tests of a single module of the library are beside its code.
//! Every test has its own directory or simulated world and may run beside any other. Tests are bounded by
//! counts, never by time.
//!
//! - `twin`: a model beside the store, over random operations and settings.
//! - `freed`: freeing space on a full disk.
//! - `bad_input`, `full_disk`, `damage`, `limits`: refused input, detected damage and documented limits, on
//!   real files.
//! - `holes`: freed pages of shared files.
//! - `hostile`: adversarial keys and workloads.
//! - `corpus`: the fuzzing corpus, replayed.
//! - `ranges`: the cost of range tombstones; deleted items do not come back.
//! - `descriptors`: hundreds of tables under a low limit of the system's. `threads`: real threads at once.
//! - `apart`: background readahead of scans.
//! - `asynchronous`: futures, callbacks and queues. `places`: the same guarantees for every read method.
//! - `reads`: the cost of reads of several blocks, and the effects of failed reads.
//! - `space`: the disk space of a store.
//! - `snapshots`: the memory and files of long-lived snapshots.
//! - `world`: the simulated machine, decided by its seed alone.
//! - `partitions`: explicitly partitioned keyspaces. `by_key`: keyspaces partitioned by key;
//!   `by_key_crashes`: these on a machine that stops.
//! - `policies`: merge policies, the age of deletes, queues.
//! - `checkpoint`: copies of a store, also on a machine that stops or fails.
//! - `openers`: locks of killed and forked processes, copies of stores in use, read-only file systems.
//! - `forks`: handles in forked processes, and in threads that end.
//! - `columns`: filters of hashed keyspaces under little memory.
//! - `hashed`: unordered keyspaces compared with a map; `hashed_by_key`: partitioned by key;
//!   `hashed_crashes`: on a machine that stops.
//! - `kills`: a process killed at random under load, and a file system shut down under it.
//! - `linear`: linearizability of several threads' operations, also over a crash.
//! - `semantics`: differences between the store and a `BTreeMap`.
//! - `fixture`: stores written by earlier builds still open.
//!
//! `TRINE_SEED=n` replays one seed of a test with seeds; `TRINE_SEEDS=n` runs that many seeds,
//! `TRINE_SEEDS=a..b` those of the range.

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
