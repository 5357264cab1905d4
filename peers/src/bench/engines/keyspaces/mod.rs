//! Stores of many keyspaces: keyspaces of Trine and fjall, column families of RocksDB.
//!
//! 1. Keyspaces are numbered from 0 and named by their number; an opening makes the missing ones.
//! 2. Total memory and settings are those of a store with one keyspace, except where the results say
//!    otherwise.
//! 3. A write or get has the handle of its keyspace, and looks up no name.

pub(super) mod fjall;
#[cfg(feature = "rocksdb")]
pub(super) mod rocksdb;
pub(super) mod trine;

use std::path::Path;
use std::time::Duration;

use super::{Counts, Found, Settings};
use crate::engines::Answer;

/// Opens a store and so many keyspaces in it.
pub(in super::super) type OpenKeyspaces = fn(&Path, &Settings, u64) -> Answer<Box<dyn Keyspaces>>;

/// An open store with all of its keyspaces.
pub(in super::super) trait Keyspaces {
    /// Makes one more keyspace.
    fn create(&mut self) -> Answer<()>;

    /// Drops the last keyspace, with its items.
    fn drop_last(&mut self) -> Answer<()>;

    fn handles(&self) -> Answer<Box<dyn Handles + '_>>;

    /// Flushes every write buffer and waits until background work is finished. Returns the part of the time
    /// in which the store was only watched, after the end of its work.
    fn settle(&self) -> Answer<Duration>;

    fn counts(&self) -> Counts;

    fn close(self: Box<Self>) -> Answer<()>;
}

/// The handles of all keyspaces.
pub(in super::super) trait Handles: Sync {
    fn put(&self, keyspace: usize, key: &[u8], value: &[u8]) -> Answer<()>;

    /// Copies the value into `value`.
    fn get(&self, keyspace: usize, key: &[u8], value: &mut Vec<u8>) -> Answer<Found>;
}

fn name(number: usize) -> String {
    format!("k{number:06}")
}

fn count(keyspaces: u64) -> usize {
    usize::try_from(keyspaces).unwrap_or(usize::MAX)
}
