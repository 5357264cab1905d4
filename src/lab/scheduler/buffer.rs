//! The flush buffer of a partition: sorted items of several immutables that do not fill a block yet.
//!
//! It does not know files. A write buffer, the items of one immutable, is merged into it. Full blocks are cut
//! from its front. Each item records its log, since that log is kept until the item is on disk. Plain values
//! of one thread.
//!
//! Invariants: 1. items are in order and hold a key once; 2. items of a later merge are newer.

use std::cmp::Ordering;

use crate::lab::memory::{ItemList, Lengths};
use crate::merge::MergeItem;

/// Bytes of an item beside its key and value: its kind and its log.
const ITEM_OVERHEAD_BYTES: usize = 9;

/// A flush buffer; see the module.
#[derive(Debug)]
pub(super) struct FlushBuffer {
    items: ItemList,
    logs: Vec<u64>,
}

impl FlushBuffer {
    pub(super) fn new(lengths: Lengths) -> FlushBuffer {
        FlushBuffer { items: ItemList::new(lengths), logs: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn items(&self) -> &ItemList {
        &self.items
    }

    pub(super) fn bytes(&self) -> u64 {
        items_bytes(self.items.lengths, self.len())
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<MergeItem<'_>> {
        self.items.search(key).ok().map(|index| self.items.item(index))
    }

    /// The oldest log with an item of the buffer.
    pub(super) fn oldest_log(&self) -> Option<u64> {
        self.logs.iter().min().copied()
    }

    /// Merges a write buffer: sorted items of an immutable whose log is `log`.
    pub(super) fn merge(&mut self, newer: &ItemList, log: u64) {
        let all = self.len() + newer.len();
        let mut items = ItemList::with_capacity(self.items.lengths, all);
        let mut logs = Vec::with_capacity(all);
        let (mut old, mut new) = (0, 0);
        while old < self.len() || new < newer.len() {
            let order = match (old < self.len(), new < newer.len()) {
                (true, true) => self.items.key(old).cmp(newer.key(new)),
                (true, false) => Ordering::Less,
                (false, _) => Ordering::Greater,
            };
            if order == Ordering::Less {
                items.push(self.items.item(old));
                logs.push(self.logs[old]);
                old += 1;
                continue;
            }
            items.push(newer.item(new));
            logs.push(log);
            new += 1;
            if order == Ordering::Equal {
                old += 1;
            }
        }
        *self = FlushBuffer { items, logs };
    }

    /// Removes and returns the first `count` items.
    pub(super) fn cut(&mut self, count: usize) -> ItemList {
        let copy = |from: usize, to: usize| {
            let mut out = ItemList::with_capacity(self.items.lengths, to - from);
            (from..to).for_each(|index| out.push(self.items.item(index)));
            out
        };
        let (front, rest) = (copy(0, count), copy(count, self.len()));
        let logs = self.logs.get(count..).unwrap_or_default().to_vec();
        *self = FlushBuffer { items: rest, logs };
        front
    }
}

/// Memory of `count` items in a write buffer or a flush buffer, in bytes.
pub(super) fn items_bytes(lengths: Lengths, count: usize) -> u64 {
    (count * (lengths.key_bytes + lengths.value_bytes + ITEM_OVERHEAD_BYTES)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::ItemKind;

    const LENGTHS: Lengths = Lengths { key_bytes: 1, value_bytes: 1 };

    fn items(list: &[(&[u8], Option<&[u8]>)]) -> ItemList {
        let mut items = ItemList::new(LENGTHS);
        for (key, value) in list {
            let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
            items.push(MergeItem { key, kind, value: value.unwrap_or_default() });
        }
        items
    }

    /// A later write buffer is newer, its log replaces the log of overwritten items, and a cut removes the
    /// front.
    #[test]
    fn later_write_buffers_are_newer() {
        let mut buffer = FlushBuffer::new(LENGTHS);
        buffer.merge(&items(&[(b"b", Some(b"1")), (b"d", Some(b"1"))]), 3);
        buffer.merge(&items(&[(b"a", Some(b"2")), (b"b", Some(b"2")), (b"d", None)]), 7);
        assert_eq!(buffer.items(), &items(&[(b"a", Some(b"2")), (b"b", Some(b"2")), (b"d", None)]));
        assert_eq!(buffer.oldest_log(), Some(7), "nothing of log 3 is left");
        buffer.merge(&items(&[(b"c", Some(b"3"))]), 9);
        assert_eq!(buffer.cut(2), items(&[(b"a", Some(b"2")), (b"b", Some(b"2"))]));
        assert_eq!((buffer.len(), buffer.oldest_log()), (2, Some(7)));
        assert_eq!(buffer.get(b"c").map(|item| item.value), Some(&b"3"[..]));
        assert!(buffer.get(b"a").is_none());
        assert_eq!(buffer.cut(2).len(), 2);
        assert_eq!((buffer.bytes(), buffer.oldest_log()), (0, None));
    }
}
