//! The public API: handles over the engine. It has no logic of the store.

mod asynchronous;
mod batch;
mod builder;
mod by_key;
mod completions;
mod database;
mod durability;
mod handle;
mod hashed;
mod ingest;
mod key_range;
mod keyspace;
mod merging;
mod partitioned;
mod partitioning_info;
mod range;
mod side;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod snapshot;
mod stats;
mod value;
mod walk;
mod write_async;

pub use asynchronous::{GetAsync, MultiGetAsync, NextAsync, RangeAsync, block_on};
pub use batch::Batch;
pub use builder::{Access, Builder, Create};
pub use by_key::ByKey;
pub use completions::{Completion, Completions};
pub use database::Db;
pub use durability::Durability;
pub use hashed::{Hashed, Unordered};
pub use ingest::Ingest;
pub use key_range::{KeyRange, Prefix};
pub use keyspace::{Any, Keyspace, KeyspaceBuilder, KeyspaceInfo, Kind, Ordered, Trace, TraceStep};
pub use partitioned::{Explicit, Partitioned, Partitioning};
pub use partitioning_info::PartitioningInfo;
pub use range::{Cursor, Range};
pub use snapshot::{KeyspaceAt, Snapshot};
pub use stats::SettingValue;
pub use value::Value;
pub use write_async::WriteAsync;

pub use crate::base::settings::SettingInput;
pub use crate::engine::space::{FileReader, FileReaderKind, ObsoleteFile, SpaceStats};
pub use crate::engine::stats::{
    BackgroundStats, IoStats, KeyspaceStats, LevelStats, MemoryRole, MemoryStats, PageStats, RecoveryStats,
    SnapshotStats, Stats, WriteStats,
};
