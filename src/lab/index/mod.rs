//! Indexes of data blocks side by side: fence pages, learned pages, and a string index block as RocksDB's.
//!
//! - `families`: the keys they are compared over.

mod families;

pub use families::KeyFamily;
