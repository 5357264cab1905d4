//! Comparison of three indexes of data blocks: fence pages, learned pages, and a string index block like
//! RocksDB's.
//!
//! Each index is built over the same items in memory, and returns the block that must hold a key. Data blocks
//! are encoded to learn their lengths, and then dropped. Callers are experiments and tests.
//!
//! - `families`: the keys for the comparison. `layout`: blocks and pages, cut by size or by models.
//! - `string_block`: the baseline. `side_by_side`: the public interface.

mod families;
mod layout;
mod side_by_side;
mod string_block;

pub use families::KeyFamily;
pub use side_by_side::{
    BlockIndexKind, BlockIndexOptions, BlockIndexStats, BlockIndexes, IndexedBlock, TwoLayerStats,
    two_layer_stats,
};
