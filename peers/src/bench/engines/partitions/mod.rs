//! Stores whose items are in groups that are dropped as a whole, in each way that the store has.
//!
//! 1. Partitions are numbered. In a store with one order of keys, an item's key begins with the number of its
//!    partition, 8 bytes big-endian.
//! 2. A drop returns once it survives a power cut; other writes are not synced.
//! 3. Puts, gets and drops may come from several threads.

pub(super) mod fjall;
#[cfg(feature = "rocksdb")]
pub(super) mod rocksdb;
pub(super) mod trine;

use std::path::Path;
use std::time::Duration;

use super::keyspaces::{Handles, Keyspaces};
use super::{Counts, Found, Look, Settings};
use crate::engines::Answer;

/// How a partition is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum DropBy {
    /// By the store's own notion of a group: a partition, a column family, a keyspace.
    Whole,
    /// By one range deletion in a keyspace of all items.
    Range,
    /// Key by key.
    Keys,
}

/// Opens a store with partitions 0 to `count` - 1; `None` if the store cannot drop them in this way.
pub(in super::super) type OpenPartitions =
    fn(&Path, &Settings, DropBy, count: u64) -> Answer<Option<Box<dyn Partitions>>>;

/// An open store and its partitions.
pub(in super::super) trait Partitions: Sync {
    /// Makes a partition that the opening did not make; does nothing if a put makes it.
    fn make(&self, partition: u64) -> Answer<()>;

    fn put(&self, partition: u64, key: &[u8], value: &[u8]) -> Answer<()>;

    /// Copies the value into `value`.
    fn get(&self, partition: u64, key: &[u8], value: &mut Vec<u8>) -> Answer<Found>;

    /// Scans up to `items_max` items of a partition, from a key on.
    fn scan(&self, partition: u64, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<u64>;

    fn drop_partition(&self, partition: u64) -> Answer<()>;

    /// Flushes every write buffer and waits until background work is finished.
    fn settle(&self) -> Answer<()>;

    fn counts(&self) -> Counts;

    /// Memory of everything but the cache, if the store reports it.
    fn memory_bytes(&self) -> Option<u64>;

    fn close(self: Box<Self>) -> Answer<()>;
}

/// Bytes before the key, in a store with one order of keys.
const PREFIX_BYTES: usize = size_of::<u64>();

/// Deletions of one batch, where a partition is deleted key by key.
const BATCH_KEYS: usize = 1000;

fn prefix(partition: u64) -> [u8; PREFIX_BYTES] {
    partition.to_be_bytes()
}

fn prefixed(partition: u64, key: &[u8]) -> Vec<u8> {
    [&prefix(partition), key].concat()
}

/// The partitions of a store in the role of keyspaces, for the rows that both have.
pub(in super::super) struct AsKeyspaces {
    store: Box<dyn Partitions>,
    count: u64,
}

impl AsKeyspaces {
    pub(in super::super) fn open(
        open: OpenPartitions,
        directory: &Path,
        settings: &Settings,
        count: u64,
    ) -> Answer<Box<dyn Keyspaces>> {
        let store = open(directory, settings, DropBy::Whole, count)?.ok_or("the store has no partitions")?;
        Ok(Box::new(AsKeyspaces { store, count }))
    }
}

impl Keyspaces for AsKeyspaces {
    fn create(&mut self) -> Answer<()> {
        self.store.make(self.count)?;
        self.count += 1;
        Ok(())
    }

    fn drop_last(&mut self) -> Answer<()> {
        self.count -= 1;
        self.store.drop_partition(self.count)
    }

    fn handles(&self) -> Answer<Box<dyn Handles + '_>> {
        Ok(Box::new(&*self.store))
    }

    fn settle(&self) -> Answer<Duration> {
        self.store.settle()?;
        Ok(Duration::ZERO)
    }

    fn counts(&self) -> Counts {
        self.store.counts()
    }

    fn close(self: Box<Self>) -> Answer<()> {
        self.store.close()
    }
}

impl Handles for &dyn Partitions {
    fn put(&self, keyspace: usize, key: &[u8], value: &[u8]) -> Answer<()> {
        Partitions::put(*self, keyspace as u64, key, value)
    }

    fn get(&self, keyspace: usize, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        Partitions::get(*self, keyspace as u64, key, value)
    }
}
