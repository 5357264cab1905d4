//! A batch too large for any write buffer: it gets a generation of its own, and is inserted in key order,
//! which needs the least memory.
//!
//! The committing thread makes the generation before it queues up (`engine::large`), so that neither the
//! leader nor the flush worker waits for its memory. The leader writes the batch to a log of its own, then
//! seals the present generation and continues with the new one. So a refused batch leaves no trace of its
//! generation. As soon as the batch is visible, its generation is sealed and flushed like any other. Replay
//! inserts such a batch into memory by the same rule ([`insert`]).
//!
//! Invariants:
//! 1. A generation made for a large batch has room for it: `memtable::region_bytes_for` its size.
//! 2. A batch is inserted in key order into an empty generation only. Versions of one key, and range
//!    tombstones, are inserted in sequence order.

use crate::base::error::Result;
use crate::base::hash::HashSecret;
use crate::base::id::{ItemKind, Sequence, TreeId};
use crate::base::key::{common_prefix, head_after};
use crate::base::sync::{Arc, Mutex, Weak};
use crate::format::log::{Item, Items};
use crate::memtable::{BatchSize, Generation, Inserter};

use super::standby::StandbyMemtable;

/// A generation made for one batch, until a leader takes it.
pub(crate) struct LargeRoom {
    pub(super) size: BatchSize,
    /// The generation, also after it was taken.
    pub(crate) generation: Weak<Generation>,
    memtable: Mutex<Option<StandbyMemtable>>,
}

impl std::fmt::Debug for LargeRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LargeRoom").field("size", &self.size).finish_non_exhaustive()
    }
}

impl LargeRoom {
    pub(crate) fn new(size: BatchSize, memtable: StandbyMemtable) -> LargeRoom {
        let generation = Arc::downgrade(&memtable.generation);
        LargeRoom { size, generation, memtable: Mutex::new(Some(memtable)) }
    }

    /// Takes the generation; may be called once.
    pub(super) fn take(&self) -> StandbyMemtable {
        self.memtable.lock().take().expect("a leader goes on with it, and it has room for the batch")
    }
}

/// A put or delete, with its position and the start of its key for comparisons.
struct Keyed {
    /// First bytes of the key, behind the prefix that all keys share.
    head: u64,
    /// Offset of the item in the payload.
    offset: u32,
    /// Index of the item in the batch.
    position: u32,
}

/// Size of a batch.
pub(crate) fn batch_size(items: &Items<'_>) -> BatchSize {
    let (mut size, mut trees) = (BatchSize::default(), Vec::new());
    for item in items.clone() {
        size.items += 1;
        size.ranges += usize::from(item.kind == ItemKind::DeleteRange);
        size.key_value_bytes += item.key.len() + item.value.len();
        note_tree(&mut trees, item.tree);
    }
    BatchSize { trees: trees.len(), ..size }
}

/// Adds a tree to the sorted trees of a batch. Usually it is the tree of the previous item.
pub(super) fn note_tree(trees: &mut Vec<TreeId>, tree: TreeId) {
    if trees.last() != Some(&tree)
        && let Err(at) = trees.binary_search(&tree)
    {
        trees.insert(at, tree);
    }
}

/// Memory that [`insert`] needs to sort `items` items, in bytes.
pub(crate) fn order_bytes(items: usize) -> usize {
    items * size_of::<Keyed>()
}

/// Inserts the items of a batch for which `keeps` returns `true`: in batch order if there is room for that,
/// otherwise in key order. Their sequences begin with `first`.
///
/// # Errors
/// Errors of `keeps`. The generation then holds a part of the batch.
pub(crate) fn insert(
    inserter: &mut Inserter,
    secret: &HashSecret,
    items: Items<'_>,
    first: Sequence,
    mut keeps: impl FnMut(&Item<'_>, Sequence) -> Result<bool>,
) -> Result<()> {
    let size = batch_size(&items);
    if !inserter.room(size.items, size.key_value_bytes) {
        return insert_sorted(inserter, secret, items, first, keeps);
    }
    for (item, sequence) in items.zip(first..) {
        if keeps(&item, sequence)? {
            put(inserter, secret, &item, sequence);
        }
    }
    Ok(())
}

/// As [`insert`], always in key order.
pub(super) fn insert_sorted(
    inserter: &mut Inserter,
    secret: &HashSecret,
    items: Items<'_>,
    first: Sequence,
    mut keeps: impl FnMut(&Item<'_>, Sequence) -> Result<bool>,
) -> Result<()> {
    let whole = items.clone();
    let shared_bytes = shared_prefix_bytes(items.clone());
    let mut keyed = Vec::with_capacity(items.count_left() as usize);
    let mut items = items;
    for position in 0.. {
        let offset = items.offset();
        let Some(item) = items.next() else { break };
        let sequence = first + u64::from(position);
        if !keeps(&item, sequence)? {
            continue;
        }
        if item.kind == ItemKind::DeleteRange {
            put(inserter, secret, &item, sequence);
        } else {
            let head = head_after(item.key, shared_bytes);
            keyed.push(Keyed { head, offset: u32::try_from(offset).expect("logs are shorter"), position });
        }
    }
    keyed.sort_unstable_by(|one, other| {
        one.head.cmp(&other.head).then_with(|| {
            let (a, b) = (whole.at(one.offset as usize), whole.at(other.offset as usize));
            (a.tree, a.key, one.position).cmp(&(b.tree, b.key, other.position))
        })
    });
    for one in keyed {
        put(inserter, secret, &whole.at(one.offset as usize), first + u64::from(one.position));
    }
    Ok(())
}

fn put(inserter: &mut Inserter, secret: &HashSecret, item: &Item<'_>, sequence: Sequence) {
    let hash = secret.hash_in(item.tree.keyspace, item.key);
    inserter.insert(item.tree, item.key, hash, sequence, item.kind, item.value);
}

/// Length of the prefix that all keys share.
fn shared_prefix_bytes(items: Items<'_>) -> usize {
    let mut keys = items.filter(|item| item.kind != ItemKind::DeleteRange).map(|item| item.key);
    let Some(first) = keys.next() else { return 0 };
    keys.fold(first.len(), |bytes, key| common_prefix(&first[..bytes], key))
}

#[cfg(all(test, not(loom)))]
mod tests;
