//! Items in memory: keys, kinds and values in three arrays, and the memory component made of them.
//!
//! The memory component is not the store's write buffer. A search of the unsorted kind compares every key,
//! and an insert into the sorted kind moves all items behind it, as in the papers. Plain values of one
//! thread.
//!
//! Invariants: 1. key and value number `i` are at `i` times their length; 2. the unsorted and the sorted kind
//! hold a key once; 3. of equal keys in the appended kind the later is the newer.

use std::cmp::Ordering;

use crate::base::error::Result;
use crate::base::id::ItemKind;
use crate::merge::{MergeItem, MergeSource};

use super::knobs::MemoryKind;

/// Lengths of the keys and of the values of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lengths {
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
}

/// A list of items; see the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ItemList {
    pub(super) lengths: Lengths,
    keys: Vec<u8>,
    kinds: Vec<ItemKind>,
    values: Vec<u8>,
}

impl ItemList {
    pub(super) fn new(lengths: Lengths) -> ItemList {
        ItemList { lengths, keys: Vec::new(), kinds: Vec::new(), values: Vec::new() }
    }

    /// An empty list with room for `count` items.
    pub(super) fn with_capacity(lengths: Lengths, count: usize) -> ItemList {
        ItemList {
            lengths,
            keys: Vec::with_capacity(count * lengths.key_bytes),
            kinds: Vec::with_capacity(count),
            values: Vec::with_capacity(count * lengths.value_bytes),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(super) fn key(&self, index: usize) -> &[u8] {
        &self.keys[index * self.lengths.key_bytes..][..self.lengths.key_bytes]
    }

    /// The item; a deletion has no value.
    pub(super) fn item(&self, index: usize) -> MergeItem<'_> {
        let kind = self.kinds[index];
        let value = match kind {
            ItemKind::Put => &self.values[index * self.lengths.value_bytes..][..self.lengths.value_bytes],
            _ => &[],
        };
        MergeItem { key: self.key(index), kind, value }
    }

    /// Appends an item. A deletion has an empty value, kept as zeros.
    pub(super) fn push(&mut self, item: MergeItem<'_>) {
        self.insert(self.len(), item);
    }

    fn insert(&mut self, index: usize, item: MergeItem<'_>) {
        let (key_at, value_at) = (index * self.lengths.key_bytes, index * self.lengths.value_bytes);
        self.keys.splice(key_at..key_at, item.key.iter().copied());
        self.kinds.insert(index, item.kind);
        let padding = std::iter::repeat_n(0, self.lengths.value_bytes - item.value.len());
        self.values.splice(value_at..value_at, item.value.iter().copied().chain(padding));
    }

    /// Overwrites the item at `index`.
    fn set(&mut self, index: usize, item: MergeItem<'_>) {
        self.kinds[index] = item.kind;
        let value = &mut self.values[index * self.lengths.value_bytes..][..self.lengths.value_bytes];
        value.fill(0);
        value[..item.value.len()].copy_from_slice(item.value);
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.kinds.clear();
        self.values.clear();
    }

    /// The key's index, by a linear search from the first key.
    fn find_from_start(&self, key: &[u8]) -> Option<usize> {
        // Keys of 4 and 8 bytes compare as numbers: the compiler vectorizes the loop.
        if let Ok(key) = <[u8; 4]>::try_from(key) {
            let (keys, _) = self.keys.as_chunks::<4>();
            return keys.iter().position(|one| u32::from_ne_bytes(*one) == u32::from_ne_bytes(key));
        }
        if let Ok(key) = <[u8; 8]>::try_from(key) {
            let (keys, _) = self.keys.as_chunks::<8>();
            return keys.iter().position(|one| u64::from_ne_bytes(*one) == u64::from_ne_bytes(key));
        }
        self.keys.chunks_exact(self.lengths.key_bytes).position(|one| one == key)
    }

    fn find_from_end(&self, key: &[u8]) -> Option<usize> {
        if let Ok(key) = <[u8; 4]>::try_from(key) {
            let (keys, _) = self.keys.as_chunks::<4>();
            return keys.iter().rposition(|one| u32::from_ne_bytes(*one) == u32::from_ne_bytes(key));
        }
        self.keys.chunks_exact(self.lengths.key_bytes).rposition(|one| one == key)
    }

    /// The key's index among sorted items, or the index for its insertion.
    pub(super) fn search(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.key(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The newest item of each key, in order; a later item is newer.
    pub(super) fn sorted(&self) -> ItemList {
        let mut order: Vec<usize> = (0..self.len()).collect();
        // The sort is stable, so of equal keys the newest stays last.
        order.sort_by(|one, two| self.key(*one).cmp(self.key(*two)));
        let mut sorted = ItemList::new(self.lengths);
        for (at, index) in order.iter().enumerate() {
            let next = order.get(at + 1);
            if next.is_none_or(|next| self.key(*next) != self.key(*index)) {
                sorted.push(self.item(*index));
            }
        }
        sorted
    }
}

/// Sorted items as a source of a merge.
#[derive(Debug)]
pub(super) struct ItemsSource<'a> {
    items: &'a ItemList,
    at: usize,
}

impl<'a> ItemsSource<'a> {
    pub(super) fn new(items: &'a ItemList) -> ItemsSource<'a> {
        ItemsSource { items, at: 0 }
    }
}

impl MergeSource for ItemsSource<'_> {
    fn item(&self) -> Option<MergeItem<'_>> {
        if self.at < self.items.len() { Some(self.items.item(self.at)) } else { None }
    }

    fn advance(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }
}

/// The memory component: the last written items.
#[derive(Debug)]
pub(super) struct MemoryComponent {
    kind: MemoryKind,
    items: ItemList,
}

impl MemoryComponent {
    pub(super) fn new(kind: MemoryKind, lengths: Lengths) -> MemoryComponent {
        MemoryComponent { kind, items: ItemList::new(lengths) }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The items in array order, which is the order that a save keeps.
    pub(super) fn items(&self) -> &ItemList {
        &self.items
    }

    /// The newest item of the key, if there is one.
    pub(super) fn get(&self, key: &[u8]) -> Option<MergeItem<'_>> {
        self.find(key).map(|index| self.items.item(index))
    }

    fn find(&self, key: &[u8]) -> Option<usize> {
        match self.kind {
            MemoryKind::Unsorted => self.items.find_from_start(key),
            MemoryKind::Sorted => self.items.search(key).ok(),
            MemoryKind::Append => self.items.find_from_end(key),
        }
    }

    /// Writes an item; the sorted and unsorted kinds overwrite an item of the same key in place.
    pub(super) fn write(&mut self, item: MergeItem<'_>) {
        match self.kind {
            MemoryKind::Append => self.items.push(item),
            MemoryKind::Unsorted => match self.items.find_from_start(item.key) {
                Some(index) => self.items.set(index, item),
                None => self.items.push(item),
            },
            MemoryKind::Sorted => match self.items.search(item.key) {
                Ok(index) => self.items.set(index, item),
                Err(index) => self.items.insert(index, item),
            },
        }
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: Lengths = Lengths { key_bytes: 3, value_bytes: 2 };

    fn item<'a>(key: &'a [u8], value: &'a [u8]) -> MergeItem<'a> {
        let kind = if value.is_empty() { ItemKind::Delete } else { ItemKind::Put };
        MergeItem { key, kind, value }
    }

    /// Each kind returns the newest item, also a deletion, and sorts into the newest item of each key.
    #[test]
    fn kinds_agree() {
        for kind in [MemoryKind::Unsorted, MemoryKind::Sorted, MemoryKind::Append] {
            for width in [3, 4, 8] {
                let pad = |key: &str| {
                    let mut key = key.as_bytes().to_vec();
                    key.resize(width, 0);
                    key
                };
                let mut memory = MemoryComponent::new(kind, Lengths { key_bytes: width, ..LENGTHS });
                for (key, value) in [("bbb", "1b"), ("aaa", "1a"), ("bbb", ""), ("ccc", "1c"), ("aaa", "2a")]
                {
                    memory.write(item(&pad(key), value.as_bytes()));
                }
                assert_eq!(memory.len(), if kind == MemoryKind::Append { 5 } else { 3 });
                assert_eq!(memory.get(&pad("aaa")).map(|one| one.value.to_vec()), Some(b"2a".to_vec()));
                assert_eq!(memory.get(&pad("bbb")).map(|one| one.kind), Some(ItemKind::Delete));
                assert!(memory.get(&pad("abc")).is_none());
                let sorted = memory.items().sorted();
                let keys: Vec<&[u8]> = (0..sorted.len()).map(|index| sorted.key(index)).collect();
                assert_eq!(keys, [pad("aaa"), pad("bbb"), pad("ccc")]);
                assert_eq!(sorted.item(0).value, b"2a");
                memory.clear();
                assert!(memory.get(&pad("aaa")).is_none());
            }
        }
    }
}
