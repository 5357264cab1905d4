//! An embedded key-value store for very many small items, read far more often than written.

#![cfg_attr(not(test), expect(dead_code, reason = "the layers come before the engine that uses them"))]

mod base;
mod cache;
mod compact;
mod format;
mod io;
mod levels;
mod memtable;
mod merge;
mod read;
mod table;
mod wal;
mod write;

pub use base::error::{Corrupt, Error, Result};
