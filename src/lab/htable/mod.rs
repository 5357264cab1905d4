//! LSM-trie's HTable: an immutable hash table whose buckets are pages of 4 KiB.
//!
//! The source is "LSM-trie: an LSM-tree-based ultra-large key-value store for small data" (USENIX ATC 2015)
//! and the code that its authors released. A hash loads buckets unevenly, so overloaded buckets give items to
//! underloaded ones before the table is written (overflow migration). A HashMark says which items left a
//! bucket. A get whose mark is in memory reads the right page at once; a get whose mark is only in the
//! bucket's page reads a second page.
//!
//! The store's own tables do not use it: they sort items by hash and cut blocks where they are full. This
//! table exists so that the paper's figures can be measured. Callers are experiments and tests.
//!
//! Differences to the released code: a bucket is the top bits of the order field instead of a residue of
//! 8191; the migrated orders are the greatest, as in the paper's figures, where the code takes the least;
//! items of equal order never part, so a mark has no ties; a page has a checksum; the file keeps every mark
//! with its count, so that one table can be opened under any rule.
//!
//! - `item`: an item and its home. `balance`: overflow migration, without input or output. `marks`: HashMarks
//!   and the choice of those in memory. `bucket`: the bytes of a page. `file`: the bytes of a file. `table`:
//!   the public face.
//!
//! A table is read by any number of threads.
//!
//! Invariants: 1. a get of an item reads at most one page more than the item's hops, and one page if all
//! marks are in memory; 2. no bucket is over its capacity, and every item in a bucket has an order below the
//! bucket's mark; 3. a bucket that gave items away receives none after, so chains of marks end.

mod balance;
mod bucket;
mod file;
mod item;
mod marks;
mod table;
#[cfg(test)]
mod tests;

pub use item::{HTableItem, order_of};
pub use marks::CachedMarks;
pub use table::{HTable, HTableGet, HTableStats};
