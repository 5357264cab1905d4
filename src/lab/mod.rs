//! The lab: Drizard and Lemur, two early designs of an LSM tree, rebuilt from parts to test their papers
//! anew; and LSM-trie's hash table ([`HTable`]) and TridentKV's partition scheduler.
//!
//! It is an engine of its own, small and of one writer, beside the store and not a part of it: what it writes
//! is outside the format promise, and nothing of the store calls it. Its parts are an array in memory
//! (unsorted and changed in place, sorted, or appended to), a sorted buffer behind it, and components on
//! disk, each `ratio` times larger than the one before: one sorted array that everything is merged into,
//! several sorted arrays merged at once, or unsorted arrays that are only appended to. [`Knobs`] choose
//! them, and a [`Preset`] is a named choice. Callers are the program's experiments and tests; the feature
//! `lab` brings it.
//!
//! What was taken from the papers, and what was changed: keys and values have fixed lengths and lie in two
//! files an array, or in one; deletions are items with a mark in front of their value instead of a value that
//! nobody else may use; every page has a checksum; an array is written beside the old one and renamed, and a
//! metadata record names what is live, so that a crash never loses what was saved before.
//!
//! - `knobs`: the table of knobs, presets. `memory`: items in memory. `filter`: the Bloom filter.
//! - `pages`: files of checksummed pages and their reader. `array`: one array on disk. `metadata`: what is
//!   live, and what was in memory when it was saved.
//! - `cascade`: from memory into components and from each into the next. `parallel`: several components at
//!   once. `store`: the face.
//! - `columns`: false positives of a column of the store's filters, as LSM-trie clusters them.
//! - `htable`: LSM-trie's immutable hash table, a structure of its own that no [`Lab`] has.
//! - `scheduler`: TridentKV's partition scheduler, an engine of its own beside the one above. It shares
//!   pages, arrays and the cascade.
//! - `index`: indexes of data blocks side by side, over families of keys.
//!
//! A [`Lab`] is used by one thread at a time for writes, by any number for reads meanwhile not writing: the
//! borrow checker sees to it.
//!
//! Invariants: 1. what a newer component, or a newer array of one, says of a key is newer; 2. a sorted array
//! holds a key once; 3. after a crash the state is that of the last save or of one that was begun after it,
//! and each merge that reaches the disk ends in a save.

mod array;
mod cascade;
mod columns;
mod filter;
mod htable;
mod index;
mod knobs;
mod memory;
mod metadata;
mod pages;
mod parallel;
mod scheduler;
mod store;
#[cfg(test)]
mod tests;

pub use columns::{ColumnAnswers, ColumnOfFilters};
pub use htable::{CachedMarks, HTable, HTableGet, HTableItem, HTableStats, order_of};
pub use index::{
    BlockIndexKind, BlockIndexOptions, BlockIndexStats, BlockIndexes, IndexedBlock, KeyFamily, TwoLayerStats,
    two_layer_stats,
};
pub use knobs::{KnobValue, Knobs, Preset};
pub use scheduler::{L0IndexKind, PartitionScheduler, PartitionSchedulerOptions, PartitionSchedulerStats};
pub use store::{ComponentStats, FilterStats, Lab, LabStats};
