//! LSM-trie's HTable: an immutable hash table whose buckets are pages of 4 KiB.
//!
//! The source is "LSM-trie: an LSM-tree-based ultra-large key-value store for small data" (USENIX ATC 2015)
//! and the code that its authors released. A hash loads buckets unevenly, so overloaded buckets give items to
//! underloaded ones before the table is written (overflow migration). A HashMark records the items that left
//! a bucket. A get reads one page if the marks that it needs are in memory, and a second page for a mark that
//! is only in the bucket's page.
//!
//! The store's own tables do not use HTable: they sort items by hash and cut blocks when they are full. This
//! table exists to measure the paper's figures. Callers are experiments and tests.
//!
//! Differences from the released code. A bucket is the top bits of the order field instead of a residue of
//! 8191. The migrated orders are the greatest, as in the paper's figures; the code takes the least. Items of
//! equal order stay together, so a mark has no ties. A page has a checksum. The file keeps every mark with
//! its count, so that one table can be opened under any rule.
//!
//! - `item`: an item and its home. `balance`: overflow migration, without I/O. `marks`: HashMarks and the
//!   choice of marks in memory. `bucket`: the bytes of a page. `file`: the bytes of a file. `table`: the
//!   public interface.
//!
//! Any number of threads may read a table.
//!
//! Invariants: 1. a get of an item reads at most one page more than the item's hops, and one page if all
//! marks are in memory; 2. no bucket exceeds its capacity, and every item in a bucket has an order below the
//! bucket's mark; 3. a bucket that gave items away receives none afterwards, so chains of marks end.

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
