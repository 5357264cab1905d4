//! An ordered key-value store in a directory. [`Db`] opens it; a [`Keyspace`] reads and writes it. The README
//! follows, then every setting with its default and its range.
//!
#![doc = include_str!("../README.md")]
#![doc = ""]
#![doc = include_str!("../docs/SETTINGS.md")]

#[cfg(windows)]
compile_error!(
    "trine does not run on Windows: files, locks and memory are reached through POSIX calls (src/io/os), and \
     nothing stands in for them there. Build and run it in WSL 2, with the store on the Linux file system."
);

mod base;
mod cache;
mod compact;
mod db;
mod engine;
mod format;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
pub mod inspect;
mod io;
#[cfg(feature = "lab")]
pub mod lab;
mod learn;
mod levels;
mod memtable;
mod merge;
mod read;
mod table;
mod wal;
mod write;

pub use base::error::{Corrupt, Error, Result};
#[cfg(any(test, feature = "sim"))]
pub use db::sim;
pub use db::{
    Access, Any, BackgroundStats, Batch, Builder, ByKey, Completion, Completions, Create, Cursor, Db,
    Durability, Explicit, FileReader, FileReaderKind, GetAsync, Hashed, Ingest, IoStats, KeyRange, Keyspace,
    KeyspaceAt, KeyspaceBuilder, KeyspaceInfo, KeyspaceStats, Kind, LevelStats, MemoryRole, MemoryStats,
    MultiGetAsync, NextAsync, ObsoleteFile, Ordered, PageStats, Partitioned, Partitioning, PartitioningInfo,
    Prefix, Range, RangeAsync, RecoveryStats, SettingInput, SettingValue, Snapshot, SnapshotStats,
    SpaceStats, Stats, Trace, TraceStep, Unordered, Value, WriteAsync, WriteStats, block_on,
};
