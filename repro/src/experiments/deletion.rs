//! A store of many partitions that are deleted in one of three ways.
//!
//! Keys have 16 bytes: the number of the partition (4), zeros (4), the number of the item (8). This module
//! has the data, the deletions and the reads; the experiments that call it choose sizes and print figures.
//! Every answer is checked.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use trine::{Db, Durability, Keyspace, Ordered, Partitioning};
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::keys::Permutation;
use trine_workload::system;

use super::Job;
use super::trident_store::{is_right, value};
use super::windows::Window;
use crate::lab::stop_if_asked;

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 16;
/// Bytes of the partition's number, the first of a key.
pub(super) const PREFIX_BYTES: usize = 4;
/// Items of a scan.
pub(super) const SCAN_ITEMS: u64 = 100;
/// Items of one batch.
const BATCH_ITEMS: u64 = 256;

/// Items of a load between two looks at memory.
const SAMPLE_ITEMS: u64 = 4096;
/// The role of memory that is left out: the cache grows to its limit in every store.
const CACHE: &str = "cache";

/// Bytes of memory that the store accounts for, without the block cache.
pub(super) fn memory_outside_cache(db: &Db) -> u64 {
    let stats = db.stats();
    stats.memory.roles.iter().filter(|role| role.name != CACHE).map(|role| role.bytes).sum()
}

/// The way that a partition is deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// The keyspace is partitioned by prefix; the partition is dropped.
    DropPartition,
    /// One tree; a range tombstone covers the prefix.
    DeleteRange,
    /// One tree; each key is deleted by a tombstone of its own.
    PointDeletes,
}

impl Way {
    pub(super) const ALL: [Way; 3] = [Way::DropPartition, Way::DeleteRange, Way::PointDeletes];

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::DropPartition => "drop_partition",
            Way::DeleteRange => "delete_range",
            Way::PointDeletes => "point deletes",
        }
    }

    fn is_divided(self) -> bool {
        self == Way::DropPartition
    }
}

/// The sizes of a filled store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) partitions: u32,
    /// Items of each partition.
    pub(super) items: u64,
    pub(super) value_bytes: usize,
    pub(super) memory_bytes: u64,
    /// Times that each item is put.
    pub(super) rounds: u64,
}

/// Levels with tables, and sorted runs in all of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Depth {
    pub(super) levels: u64,
    pub(super) runs: u64,
}

impl Depth {
    fn of(stats: &trine::KeyspaceStats) -> Depth {
        let used = || stats.levels.iter().filter(|level| level.tables > 0);
        Depth { levels: used().count() as u64, runs: used().map(|level| level.runs).sum() }
    }
}

/// A filled store, whose first `deleted` partitions are deleted.
pub(super) struct Divided {
    pub(super) db: Db,
    pub(super) items: Keyspace<Ordered>,
    pub(super) sizes: Sizes,
    pub(super) fill_seconds: f64,
    /// The peak of memory outside the block cache while it was filled.
    pub(super) peak_bytes: u64,
    way: Way,
    deleted: u32,
    place: PathBuf,
}

pub(super) fn key(partition: u32, item: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..PREFIX_BYTES].copy_from_slice(&partition.to_be_bytes());
    key[8..].copy_from_slice(&item.to_be_bytes());
    key
}

impl Divided {
    /// Fills a store in a random order of all keys and lets it settle.
    pub(super) fn fill(job: &mut Job, way: Way, sizes: Sizes) -> Result<Divided, Failure> {
        let place = job.workshop.place();
        let db = Db::builder(&place).memory_bytes(sizes.memory_bytes).open()?;
        let items = if way.is_divided() {
            db.ordered("items").partition_by(Partitioning::prefix(PREFIX_BYTES)).open()?
        } else {
            db.ordered("items").open()?
        };
        let started = Instant::now();
        let total = sizes.items * u64::from(sizes.partitions);
        let mut peak_bytes = 0;
        let mut batch = db.batch();
        for position in 0..total * sizes.rounds {
            let order = Permutation::new(total, job.seed + position / total);
            let number = order.of(position % total);
            let partition = (number / sizes.items) as u32;
            let key = key(partition, number % sizes.items);
            batch.put(&items, key, value(number, sizes.value_bytes))?;
            if batch.len() as u64 == BATCH_ITEMS {
                batch.commit()?;
                stop_if_asked()?;
            }
            if position.is_multiple_of(SAMPLE_ITEMS) {
                peak_bytes = memory_outside_cache(&db).max(peak_bytes);
            }
        }
        batch.commit()?;
        db.flush()?;
        db.settle()?;
        let fill_seconds = started.elapsed().as_secs_f64();
        Ok(Divided { db, items, sizes, fill_seconds, peak_bytes, way, deleted: 0, place })
    }

    /// Deletes the next partition, durably.
    pub(super) fn delete_next(&mut self) -> Result<Duration, Failure> {
        let partition = self.deleted;
        assert!(partition < self.sizes.partitions, "a partition is left to delete");
        self.deleted += 1;
        let name = partition.to_be_bytes();
        let started = Instant::now();
        match self.way {
            Way::DropPartition => {
                if !self.items.drop_partition(name)? {
                    return Err(Failure::Other(format!("partition {partition} was not there")));
                }
            }
            Way::DeleteRange => {
                let mut batch = self.db.batch();
                batch.delete_range(&self.items, trine::Prefix::new(name))?;
                batch.commit_with(Durability::Sync)?;
            }
            Way::PointDeletes => self.delete_each(partition)?,
        }
        Ok(started.elapsed())
    }

    fn delete_each(&self, partition: u32) -> Result<(), Failure> {
        let mut batch = self.db.batch();
        for item in 0..self.sizes.items {
            batch.delete(&self.items, key(partition, item))?;
            if batch.len() as u64 == BATCH_ITEMS {
                batch.commit()?;
            }
        }
        batch.commit()?;
        self.db.sync()?;
        Ok(())
    }

    /// A random remaining partition and one of its items up to `last`.
    fn draw(&self, dice: &mut Dice, last: u64) -> (u32, u64) {
        let left = u64::from(self.sizes.partitions - self.deleted);
        (self.deleted + dice.below(left) as u32, dice.below(last + 1))
    }

    fn check(&self, found: Option<&[u8]>, partition: u32, item: u64) -> Result<(), Failure> {
        let number = u64::from(partition) * self.sizes.items + item;
        if is_right(found, number, self.sizes.value_bytes) {
            return Ok(());
        }
        Err(Failure::Other(format!("item {item} of partition {partition} has another value than was put")))
    }

    /// Random gets in the remaining partitions.
    pub(super) fn gets(&self, length: Duration, dice: &mut Dice) -> Result<Window, Failure> {
        Window::measure(length, || {
            let (partition, item) = self.draw(dice, self.sizes.items - 1);
            self.check(self.items.get(key(partition, item))?.as_deref(), partition, item)
        })
    }

    /// Scans of 100 items, each within a remaining partition.
    pub(super) fn scans(&self, length: Duration, dice: &mut Dice) -> Result<Window, Failure> {
        let count = SCAN_ITEMS.min(self.sizes.items);
        Window::measure(length, || {
            let (partition, first) = self.draw(dice, self.sizes.items - count);
            self.scan(&key(partition, first), (partition, first), count)
        })
    }

    /// The time of one scan from the least key; the deleted partitions came after that key.
    pub(super) fn scan_over_deleted(&self) -> Result<Duration, Failure> {
        let started = Instant::now();
        self.scan(&key(0, 0), (self.deleted, 0), SCAN_ITEMS.min(self.sizes.items))?;
        Ok(started.elapsed())
    }

    /// Reads `count` items from `start` on; `expected` is the first of them.
    fn scan(&self, start: &[u8], expected: (u32, u64), count: u64) -> Result<(), Failure> {
        let mut cursor = self.items.cursor(start..);
        let (partition, first) = expected;
        for item in first..first + count {
            let Some((found, value)) = cursor.next()? else {
                return Err(Failure::Other(format!("a scan ends before item {item} of {partition}")));
            };
            if found != key(partition, item) {
                return Err(Failure::Other(format!(
                    "a scan has another key than item {item} of {partition}"
                )));
            }
            self.check(Some(value), partition, item)?;
        }
        Ok(())
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        system::disk_bytes(&self.place)
    }

    /// Bytes of the remaining keys and values.
    pub(super) fn live_bytes(&self) -> u64 {
        let left = u64::from(self.sizes.partitions - self.deleted);
        left * self.sizes.items * (KEY_BYTES + self.sizes.value_bytes) as u64
    }

    /// The depth of the deepest partition, or of the one tree if the keyspace is not partitioned.
    pub(super) fn depth(&self) -> Result<Depth, Failure> {
        if !self.way.is_divided() {
            return Ok(Depth::of(&self.items.stats()?));
        }
        let mut deepest = Depth::default();
        for partition in self.deleted..self.sizes.partitions {
            if let Some(stats) = self.items.partition_stats(partition.to_be_bytes())? {
                deepest = deepest.max(Depth::of(&stats));
            }
        }
        Ok(deepest)
    }

    pub(super) fn remove(self, job: &Job) -> Result<(), Failure> {
        let Divided { db, items, place, .. } = self;
        drop(items);
        db.close()?;
        job.workshop.clear(&place)
    }
}
