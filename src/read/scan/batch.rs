//! A batch of items read at once: keys in one buffer, values in another, in the order of reading.
//!
//! It knows no source. Iterators and cursors take items from either end. The thread's next batch reuses its
//! memory. One thread at a time.

use std::cell::Cell;
use std::ops::Range;

/// Number of batches whose memory a thread keeps for reuse.
const SPARES_COUNT: usize = 2;

/// Ends of an item's key and value; they begin at the ends of the item before.
#[derive(Clone, Copy, Default, Debug)]
struct Ends {
    key: u32,
    value: u32,
}

#[derive(Default)]
struct Memory {
    keys: Vec<u8>,
    values: Vec<u8>,
    ends: Vec<Ends>,
}

thread_local! {
    static SPARES: [Cell<Option<Memory>>; SPARES_COUNT] = const { [const { Cell::new(None) }; SPARES_COUNT] };
}

/// See the module.
#[derive(Default)]
pub(crate) struct ItemBatch {
    memory: Memory,
    /// Items not taken yet.
    left: Range<usize>,
}

impl ItemBatch {
    /// Most memory of a batch: with the growth of vectors, twice the bytes that `short` adds.
    pub(crate) const BYTES_MAX: usize = 13 << 10;

    /// Empties the batch. If it has no memory, reuses memory kept by the thread.
    pub(crate) fn begin(&mut self) {
        if self.memory.ends.capacity() == 0 {
            // A destructor of another thread-local may run after these are destroyed.
            let spare = SPARES.try_with(|spares| spares.iter().find_map(Cell::take)).ok().flatten();
            self.memory = spare.unwrap_or_default();
        }
        self.clear();
    }

    /// Adds an item behind the others.
    #[inline]
    pub(crate) fn push(&mut self, key: (&[u8], &[u8]), value: &[u8]) {
        self.memory.values.extend_from_slice(value);
        self.push_key(key, self.memory.values.len());
    }

    /// Adds the values of the next items, one behind the other; `push_key` then adds each item.
    #[inline]
    pub(super) fn add_values(&mut self, values: &[u8]) -> usize {
        let start = self.memory.values.len();
        self.memory.values.extend_from_slice(values);
        start
    }

    /// Adds an item whose value was added before and ends at `value_end`.
    #[inline]
    pub(super) fn push_key(&mut self, (prefix, suffix): (&[u8], &[u8]), value_end: usize) {
        let Memory { keys, ends, .. } = &mut self.memory;
        keys.reserve(prefix.len() + suffix.len());
        keys.extend_from_slice(prefix);
        keys.extend_from_slice(suffix);
        ends.push(Ends { key: keys.len() as u32, value: value_end as u32 });
        self.left.end += 1;
    }

    /// Number of items added.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.memory.ends.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory.keys.len() + self.memory.values.len()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let Memory { keys, values, ends } = &self.memory;
        keys.capacity() + values.capacity() + ends.capacity() * size_of::<Ends>()
    }

    /// Takes the first of the remaining items; returns its number.
    #[inline]
    pub(crate) fn take_first(&mut self) -> Option<usize> {
        self.left.next()
    }

    /// Takes the last of the remaining items.
    #[inline]
    pub(crate) fn take_last(&mut self) -> Option<usize> {
        self.left.next_back()
    }

    /// Key and value of an item.
    #[inline]
    pub(crate) fn item(&self, number: usize) -> (&[u8], &[u8]) {
        let Memory { keys, values, ends } = &self.memory;
        let start = number.checked_sub(1).map_or(Ends::default(), |before| ends[before]);
        let end = ends[number];
        (&keys[start.key as usize..end.key as usize], &values[start.value as usize..end.value as usize])
    }

    /// The key that was read last.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.count().checked_sub(1).map(|last| self.item(last).0)
    }

    /// Removes all items, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.memory.keys.clear();
        self.memory.values.clear();
        self.memory.ends.clear();
        self.left = 0..0;
    }
}

impl Drop for ItemBatch {
    fn drop(&mut self) {
        let memory_bytes = self.memory_bytes();
        if memory_bytes == 0 || memory_bytes > ItemBatch::BYTES_MAX {
            return;
        }
        self.clear();
        let memory = std::mem::take(&mut self.memory);
        // Without the thread-locals, the memory is freed here.
        let _ = SPARES.try_with(|spares| {
            let mut memory = Some(memory);
            for spare in spares {
                let kept = spare.take();
                spare.set(kept.or_else(|| memory.take()));
            }
        });
    }
}

impl std::fmt::Debug for ItemBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} of {} items left)", self.left.len(), self.count())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Items come out as they were added, from either end, each once; the memory is reused.
    #[test]
    fn items_are_taken_from_both_ends() {
        let mut batch = ItemBatch::default();
        batch.begin();
        for number in 0..5u8 {
            batch.push((b"ab", &[number]), &vec![number; number.into()]);
        }
        let item = |batch: &ItemBatch, number: u8| {
            assert_eq!(batch.item(number.into()), (&[b'a', b'b', number][..], &*vec![number; number.into()]));
        };
        (0..5).for_each(|number| item(&batch, number));
        assert_eq!((batch.take_first(), batch.take_last(), batch.take_last()), (Some(0), Some(4), Some(3)));
        assert_eq!((batch.take_first(), batch.take_first()), (Some(1), Some(2)));
        assert_eq!((batch.take_first(), batch.take_last(), batch.count()), (None, None, 5));
        assert_eq!(batch.last_key(), Some(&b"ab\x04"[..]));
        let memory_bytes = batch.memory_bytes();
        drop(batch);
        let mut again = ItemBatch::default();
        again.begin();
        assert_eq!((again.count(), again.last_key(), again.memory_bytes()), (0, None, memory_bytes));
    }
}
