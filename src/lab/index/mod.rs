//! Indexes of data blocks side by side: fence pages, learned pages, and a string index block as RocksDB's.
//!
//! Each is built over the same items in memory, and answers which block must hold a key. The data blocks are
//! encoded for their lengths and not kept. Callers are experiments and tests.
//!
//! - `families`: the keys they are compared over. `layout`: blocks and pages, cut by size or by models.
//! - `string_block`: the yardstick. `side_by_side`: the public face.

mod families;
mod layout;
mod side_by_side;
mod string_block;

pub use families::KeyFamily;
pub use side_by_side::{
    BlockIndexKind, BlockIndexOptions, BlockIndexStats, BlockIndexes, IndexedBlock, TwoLayerStats,
    two_layer_stats,
};
