//! The options of a partition scheduler.
//!
//! Plain values. Lengths are fixed when the scheduler's directory is created; the other options may change at
//! each opening.

use crate::base::error::{Error, Result};
use crate::lab::memory::Lengths;
use crate::lab::pages::CONTENT_BYTES;

/// How the index of level 0 survives a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum L0IndexKind {
    /// In memory only: an opening reads every block of level 0 and rebuilds the index.
    Memory,
    /// The keys of each block are also written to a file of keys, and an opening reads that file.
    Persistent,
}

/// Sizes and limits of a [`PartitionScheduler`](super::PartitionScheduler).
///
/// ```
/// let mut options = trine::lab::PartitionSchedulerOptions::default();
/// options.value_bytes = 8;
/// assert_eq!(options.leftover_percent, 6);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionSchedulerOptions {
    /// Length of every key, in bytes, 1 to 256.
    pub key_bytes: usize,
    /// Length of every value, in bytes, 0 to 2048.
    pub value_bytes: usize,
    /// Bytes of keys and values in the memtable before it becomes an immutable and is scheduled.
    pub memtable_bytes: u64,
    /// Blocks of a datatable.
    pub datatable_blocks: u64,
    /// Datatables in a partition's level 0 that trigger a merge into its sub-tree.
    pub l0_datatables: u64,
    /// Limit on all flush buffers, in percent of `memtable_bytes`. Above it the scheduler writes part-filled
    /// blocks.
    pub leftover_percent: u64,
    /// Limit on the bytes of logs that flush buffers pin; 0: none, as in the paper. Above it the partition
    /// with the oldest leftovers writes a part-filled block.
    pub log_bytes_max: u64,
    /// Length of a file of level 0, in bytes, after which a new file begins.
    pub file_bytes: u64,
    /// How the index of level 0 survives a restart.
    pub l0_index: L0IndexKind,
}

impl Default for PartitionSchedulerOptions {
    fn default() -> PartitionSchedulerOptions {
        PartitionSchedulerOptions {
            key_bytes: 16,
            value_bytes: 100,
            memtable_bytes: 32 << 20,
            datatable_blocks: 64,
            l0_datatables: 4,
            leftover_percent: 6,
            log_bytes_max: 0,
            file_bytes: 64 << 20,
            l0_index: L0IndexKind::Memory,
        }
    }
}

impl PartitionSchedulerOptions {
    pub(super) fn lengths(&self) -> Lengths {
        Lengths { key_bytes: self.key_bytes, value_bytes: self.value_bytes }
    }

    /// Items of a full block.
    pub(super) fn block_items(&self) -> usize {
        CONTENT_BYTES / self.item_bytes()
    }

    /// Bytes of an item in a block.
    pub(super) fn item_bytes(&self) -> usize {
        self.key_bytes + 1 + self.value_bytes
    }

    pub(super) fn leftover_bytes_max(&self) -> u64 {
        self.memtable_bytes.saturating_mul(self.leftover_percent) / 100
    }

    /// Blocks in a partition's level 0 that trigger a merge into its sub-tree.
    pub(super) fn l0_blocks(&self) -> u64 {
        self.datatable_blocks.saturating_mul(self.l0_datatables)
    }

    pub(super) fn validate(&self) -> Result<()> {
        let mut faults = Vec::new();
        let mut check = |name: &str, value: u64, least: u64, most: u64| {
            if !(least..=most).contains(&value) {
                faults.push(format!("{name} must be from {least} to {most}, not {value}"));
            }
        };
        check("key_bytes", self.key_bytes as u64, 1, 256);
        check("value_bytes", self.value_bytes as u64, 0, 2048);
        check("memtable_bytes", self.memtable_bytes, 1, 1 << 32);
        check("datatable_blocks", self.datatable_blocks, 1, 1 << 20);
        check("l0_datatables", self.l0_datatables, 1, 1 << 10);
        check("leftover_percent", self.leftover_percent, 0, 1000);
        check("file_bytes", self.file_bytes, 1, 1 << 32);
        if faults.is_empty() { Ok(()) } else { Err(Error::Invalid { faults }) }
    }
}
