//! The lab: Drizard and Lemur, two early designs of an LSM tree, rebuilt from parts to test their papers
//! anew; and LSM-trie's hash table ([`HTable`]) and TridentKV's partition scheduler.
//!
//! The lab is a small engine with one writer, separate from the store. Its files are outside the format
//! promise, and the store does not call it. Its parts are an array in memory (unsorted and changed in place,
//! sorted, or appended to), a sorted buffer behind it, and components on disk. Each component is `ratio`
//! times larger than the one before. A component is one sorted array that takes all merges, several sorted
//! arrays merged at once, or unsorted arrays that are only appended to. [`Knobs`] choose the parts, and a
//! [`Preset`] is a named choice. Callers are the program's experiments and tests; the feature `lab` enables
//! it.
//!
//! Taken from the papers: the structures. Changed: keys and values have fixed lengths, in two files an array,
//! or in one; a deletion is an item with a mark in front of its value instead of a reserved value; every page
//! has a checksum; an array is written beside the old one and renamed, and a metadata record names the live
//! files, so that a crash never loses saved items.
//!
//! - `knobs`: the table of knobs, presets. `memory`: items in memory. `filter`: the Bloom filter.
//! - `pages`: files of checksummed pages and their reader. `array`: one array on disk. `metadata`: the live
//!   files, and the items in memory at the time of the save.
//! - `cascade`: merges from memory into components and from each into the next. `parallel`: searches of
//!   several arrays at once. `store`: the public interface.
//! - `columns`: false positives of a column of the store's filters, clustered as in LSM-trie.
//! - `htable`: LSM-trie's immutable hash table, a separate structure that no [`Lab`] uses.
//! - `scheduler`: TridentKV's partition scheduler, a separate engine. It shares pages, arrays and the
//!   cascade.
//! - `index`: a comparison of indexes of data blocks, over families of keys.
//!
//! One thread at a time may write to a [`Lab`]; any number may read while no thread writes. The borrow
//! checker enforces this.
//!
//! Invariants: 1. an item in a newer component, or in a newer array of one, is newer than older ones of its
//! key; 2. a sorted array holds a key once; 3. after a crash the state is that of the last save or of one
//! begun after it, and each merge that reaches the disk ends in a save.

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
