//! A load over partitions, into the lab's partition scheduler and into the store.
//!
//! It is not a figure: it fills, flushes and counts, and `trident_scheduler` compares. Keys have 16 bytes,
//! the first four of them the partition; values have 100. Both engines have memtables of the same size. One
//! thread writes item by item, and the log is not synced for each item.

use std::path::PathBuf;
use std::time::Instant;

use trine::lab::{L0IndexKind, PartitionScheduler, PartitionSchedulerOptions};
use trine::{Db, Keyspace, Ordered, Partitioning};
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::keys::Permutation;

use super::Job;
use super::deletion::{KEY_BYTES, PREFIX_BYTES, key};
use super::trident_store::{is_right, value};
use crate::lab::stop_if_asked;

pub(super) const VALUE_BYTES: usize = 100;
/// Bytes of an item's key and value.
pub(super) const ITEM_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;
/// Memory of the store: its write buffers, and a cache that is not counted.
const STORE_BYTES: u64 = 256 << 20;
/// Roles of memory that are not counted: the cache grows to its limit, and both engines have write buffers.
const LEFT_OUT: [&str; 2] = ["cache", "write buffers"];
/// Items between two looks at memory and interruptions.
const LOOK_ITEMS: u64 = 1 << 15;

/// The way that partitions share a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Engine {
    /// The lab's scheduler, as in the paper.
    Scheduler,
    /// The store: each partition is a slice of one table.
    Slices,
}

impl Engine {
    pub(super) const ALL: [Engine; 2] = [Engine::Scheduler, Engine::Slices];

    pub(super) fn name(self) -> &'static str {
        match self {
            Engine::Scheduler => "scheduler",
            Engine::Slices => "slices",
        }
    }
}

/// Counters of both engines, since they were opened.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counted {
    pub(super) flushes: u64,
    /// Bytes written by flushes; the scheduler's edits are included.
    pub(super) flush_bytes: u64,
    pub(super) merge_bytes: u64,
    pub(super) syncs: u64,
    /// Counts of the scheduler's flushes, and their nanoseconds, without merges; 0 with slices, which do not
    /// count them separately.
    pub(super) flush_syncs: u64,
    pub(super) flush_files: u64,
    pub(super) flush_ns: u64,
    pub(super) short_blocks: u64,
    pub(super) blocks: u64,
    /// Memory besides memtables and cache.
    pub(super) memory_bytes: u64,
    /// The peak of the scheduler's write buffers and flush buffers of partitions.
    pub(super) buffer_bytes_max: u64,
    pub(super) reads: u64,
    /// Bytes of logs that are kept though their memtable was flushed; with slices, of all logs.
    pub(super) pinned_log_bytes: u64,
}

/// An open engine with partitions.
pub(super) enum Held {
    Scheduler { store: Box<PartitionScheduler>, first: u32 },
    Slices { db: Db, items: Keyspace<Ordered> },
}

/// Options of the scheduler for a write buffer of `memtable_bytes` bytes.
pub(super) fn options(memtable_bytes: u64) -> PartitionSchedulerOptions {
    let mut options = PartitionSchedulerOptions::default();
    (options.key_bytes, options.value_bytes) = (KEY_BYTES, VALUE_BYTES);
    options.memtable_bytes = memtable_bytes;
    options
}

/// The same without merges of level 0.
pub(super) fn only_l0(memtable_bytes: u64, l0_index: L0IndexKind) -> PartitionSchedulerOptions {
    let mut options = options(memtable_bytes);
    (options.l0_datatables, options.l0_index) = (1 << 10, l0_index);
    options
}

impl Held {
    pub(super) fn make(
        place: &PathBuf,
        engine: Engine,
        partitions: u32,
        options: &PartitionSchedulerOptions,
    ) -> Result<Held, Failure> {
        match engine {
            Engine::Scheduler => {
                let mut store = Box::new(PartitionScheduler::open(place, options)?);
                let first = store.create_partitions(partitions)?;
                Ok(Held::Scheduler { store, first })
            }
            Engine::Slices => {
                let held = Held::open_store(place, options.memtable_bytes)?;
                if let Held::Slices { items, .. } = &held {
                    for partition in 0..partitions {
                        items.create_partition(partition.to_be_bytes())?;
                    }
                }
                Ok(held)
            }
        }
    }

    pub(super) fn open_store(place: &PathBuf, memtable_bytes: u64) -> Result<Held, Failure> {
        let db = Db::builder(place).memory_bytes(STORE_BYTES).write_buffer_bytes(memtable_bytes).open()?;
        let items = db.ordered("items").partition_by(Partitioning::prefix(PREFIX_BYTES)).open()?;
        Ok(Held::Slices { db, items })
    }

    pub(super) fn put(&mut self, partition: u32, item: u64, number: u64) -> Result<(), Failure> {
        let (key, value) = (key(partition, item), value(number, VALUE_BYTES));
        match self {
            Held::Scheduler { store, first } => store.put(*first + partition, &key, &value)?,
            Held::Slices { items, .. } => items.put(key, value)?,
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        match self {
            Held::Scheduler { store, .. } => store.schedule()?,
            Held::Slices { db, .. } => db.flush()?,
        }
        Ok(())
    }

    /// Waits for merges; the scheduler has no pending ones.
    pub(super) fn settle(&self) -> Result<(), Failure> {
        if let Held::Slices { db, .. } = self {
            db.settle()?;
        }
        Ok(())
    }

    fn get(&self, partition: u32, item: u64) -> Result<Option<Vec<u8>>, Failure> {
        let key = key(partition, item);
        Ok(match self {
            Held::Scheduler { store, first } => store.get(*first + partition, &key)?,
            Held::Slices { items, .. } => items.get(key)?.map(|value| value.to_vec()),
        })
    }

    /// Gets random items of a [`Load`] and checks every answer; returns the reads for each get.
    pub(super) fn reads_a_get(&self, load: Load, gets: u64, seed: u64) -> Result<f64, Failure> {
        let mut dice = Dice::new(seed);
        let before = self.counted()?.reads;
        for _ in 0..gets {
            let number = dice.below(load.items());
            let (partition, item) = ((number / load.each) as u32, number % load.each);
            if !is_right(self.get(partition, item)?.as_deref(), number, VALUE_BYTES) {
                return Err(Failure::Other(format!(
                    "item {item} of partition {partition} is not as it was put"
                )));
            }
        }
        Ok((self.counted()?.reads - before) as f64 / gets as f64)
    }

    pub(super) fn counted(&self) -> Result<Counted, Failure> {
        match self {
            Held::Scheduler { store, .. } => {
                let stats = store.stats()?;
                Ok(Counted {
                    flushes: stats.schedules,
                    flush_bytes: stats.block_bytes + stats.manifest_bytes,
                    merge_bytes: stats.compaction_bytes,
                    syncs: stats.syncs,
                    flush_syncs: stats.schedule_syncs,
                    flush_files: stats.schedule_files,
                    flush_ns: stats.schedule_ns,
                    short_blocks: stats.short_blocks,
                    blocks: stats.blocks,
                    memory_bytes: stats.leftover_bytes + stats.index_bytes,
                    buffer_bytes_max: stats.buffer_bytes_max,
                    reads: stats.page_reads,
                    pinned_log_bytes: stats.pinned_log_bytes,
                })
            }
            Held::Slices { db, .. } => {
                let stats = db.stats();
                let roles = stats.memory.roles.iter().filter(|role| !LEFT_OUT.contains(&role.name));
                Ok(Counted {
                    flushes: stats.background.flushes,
                    flush_bytes: stats.write.flush_bytes,
                    merge_bytes: stats.write.merge_write_bytes,
                    syncs: stats.io.syncs,
                    memory_bytes: roles.map(|role| role.bytes).sum(),
                    reads: stats.io.device_reads,
                    pinned_log_bytes: stats.space.log_bytes,
                    ..Counted::default()
                })
            }
        }
    }

    pub(super) fn close(self) -> Result<(), Failure> {
        match self {
            Held::Scheduler { store, .. } => store.close()?,
            Held::Slices { db, items } => {
                drop(items);
                db.close()?;
            }
        }
        Ok(())
    }
}

/// `each` items in each of `partitions` partitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) partitions: u32,
    pub(super) each: u64,
}

impl Load {
    /// As many items as fill `bytes`.
    pub(super) fn of_bytes(bytes: u64, partitions: u32) -> Load {
        Load { partitions, each: (bytes / ITEM_BYTES / u64::from(partitions)).max(4) }
    }

    pub(super) fn items(self) -> u64 {
        self.each * u64::from(self.partitions)
    }

    /// Puts the items in a random order of all keys. Returns the seconds, without the flush, and the peak of
    /// memory.
    pub(super) fn put_all(self, job: &Job, held: &mut Held) -> Result<(f64, u64), Failure> {
        let order = Permutation::new(self.items(), job.seed);
        let started = Instant::now();
        let mut memory_bytes = 0;
        for position in 0..self.items() {
            let number = order.of(position);
            held.put((number / self.each) as u32, number % self.each, number)?;
            if position.is_multiple_of(LOOK_ITEMS) {
                stop_if_asked()?;
                memory_bytes = held.counted()?.memory_bytes.max(memory_bytes);
            }
        }
        Ok((started.elapsed().as_secs_f64(), memory_bytes))
    }
}
