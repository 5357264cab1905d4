//! TridentKV's partition scheduler (section 3.3), rebuilt for a comparison with the store's partitions.
//!
//! Many partitions share one memtable and one log. Each has a sub-tree of its own: level 0 of data blocks
//! with an index of all its keys, and levels of sorted arrays below. The store divides a flush in another
//! way, into slices of one table; this engine shows the cost of the paper's way.
//!
//! Taken from the paper: write buffers and flush buffers, flushes of whole blocks, datatables that consist of
//! blocks and recorded offsets only, the index of level 0 in memory or persistent, table compaction. Changed:
//! keys and values have fixed lengths; the blocks of all partitions go to one file, so that a schedule syncs
//! one file; the persistent index is a second file with the keys of the blocks, not a B+-tree in place.
//! Added, since the paper leaves them open: durability of flush buffers, and a bound on the log.
//!
//! - `options`: sizes and limits. `buffer`: flush buffers. `index`: the index of level 0.
//! - `journal`: files of frames, for log and manifest. `edit`, `catalog`: the contents of the manifest.
//! - `datatable`: files of level 0. `store`: the public interface. `flush`: from memtable to sub-tree.
//!   `open`: recovery.
//!
//! One thread at a time may use a [`PartitionScheduler`].
//!
//! Invariants: 1. after a crash the state is that of a moment at or after the last sync; 2. a log is kept
//! until every item in it is in a block; 3. flush buffers stay within their limit.

mod buffer;
mod catalog;
#[cfg(test)]
mod crash_tests;
mod datatable;
mod edit;
mod flush;
mod index;
mod journal;
mod open;
mod options;
mod store;
#[cfg(test)]
mod tests;

pub use options::{L0IndexKind, PartitionSchedulerOptions};
pub use store::{PartitionScheduler, PartitionSchedulerStats};
