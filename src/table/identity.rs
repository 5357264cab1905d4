//! The file that holds a table, and the facts about it that the manifest keeps. Plain values.

use crate::base::id::{FileName, TreeId};

/// A table file, and the store that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableIdentity {
    pub(crate) file: FileName,
    /// 64 random bits: the context of all its checksums.
    pub(crate) uid: u64,
    pub(crate) store_id: u128,
}

/// A finished file, as the manifest keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TableSummary {
    pub(crate) identity: TableIdentity,
    pub(crate) bytes: u64,
    /// The checksum over the checksums of all its blocks.
    pub(crate) checksum: u32,
    pub(crate) slices: Vec<SliceSummary>,
}

/// A finished slice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SliceSummary {
    pub(crate) tree: TreeId,
    pub(crate) items: u64,
    pub(crate) tombstones: u64,
    /// The largest number of tombstones among 128 consecutive items.
    pub(crate) tombstones_dense: u64,
    pub(crate) key_value_bytes: u64,
    pub(crate) ranges: u32,
    /// First and last key of the items; range tombstones may reach beyond them.
    pub(crate) min: Vec<u8>,
    pub(crate) max: Vec<u8>,
}
