//! The index of level 0 of one partition: the position of the newest item of each key.
//!
//! Blocks of level 0 overlap, so their bounds exclude little; the index has every key, like the paper's
//! B+-tree. It does not know files. Plain values of one thread.
//!
//! Invariant: an insert is newer than earlier ones of its key, and overwrites them.

use std::collections::BTreeMap;

/// Bytes of the memory allocator's overhead for each key.
const ALLOCATION_BYTES: u64 = 16;
/// Bytes of a key's reference and its slot in a node, with nodes filled to 70 %.
const NODE_SLOT_BYTES: u64 = (16 + 8) * 10 / 7;

/// Position of an item: the block's index among those of the partition, and the record in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct L0Slot {
    pub(super) block: u32,
    pub(super) record: u16,
}

/// A key and the position of its item.
pub(super) type L0Entry = (Box<[u8]>, L0Slot);

/// The index; see the module.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct L0Index {
    slots: BTreeMap<Box<[u8]>, L0Slot>,
}

impl L0Index {
    /// Builds an index from slots, oldest first: the last of a key counts. Blocks are sorted, so the sort
    /// merges runs.
    pub(super) fn of(slots: Vec<L0Entry>) -> L0Index {
        // The collection sorts stably, and keeps the last of equal keys.
        L0Index { slots: slots.into_iter().collect() }
    }

    pub(super) fn insert(&mut self, key: &[u8], slot: L0Slot) {
        match self.slots.get_mut(key) {
            Some(old) => *old = slot,
            None => {
                self.slots.insert(key.into(), slot);
            }
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<L0Slot> {
        self.slots.get(key).copied()
    }

    pub(super) fn len(&self) -> u64 {
        self.slots.len() as u64
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    /// Memory of the index for keys of `key_bytes` bytes, estimated without asking the allocator.
    pub(super) fn bytes(&self, key_bytes: usize) -> u64 {
        self.len() * (key_bytes as u64 + ALLOCATION_BYTES + NODE_SLOT_BYTES)
    }
}
