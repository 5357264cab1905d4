//! Items that were read at once: keys in one buffer and values in another, in the order in which they were
//! read.
//!
//! It knows no source. Iterators and cursors take items from it, from either end. Its memory is used again by
//! the thread's next one. One thread at a time.

use std::cell::Cell;
use std::ops::Range;

/// Batches whose memory a thread keeps for the next ones.
const SPARES_COUNT: usize = 2;

/// Where key and value of an item end; they begin where those of the one before end.
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
pub(crate) struct Batch {
    memory: Memory,
    /// Those that were not taken yet.
    left: Range<usize>,
}

impl Batch {
    /// Most memory that one takes: with the growth of vectors, twice what `short` puts into it.
    pub(crate) const BYTES_MAX: usize = 13 << 10;

    /// Empties it, and has memory that this thread has left over if it has none.
    pub(crate) fn begin(&mut self) {
        if self.memory.ends.capacity() == 0 {
            // A destructor of another thread-local may find these destroyed.
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

    /// Adds the values of items that come next, one after the other; each is then pushed by itself.
    #[inline]
    pub(super) fn add_values(&mut self, values: &[u8]) -> usize {
        let start = self.memory.values.len();
        self.memory.values.extend_from_slice(values);
        start
    }

    /// Adds an item whose value was added, up to there.
    #[inline]
    pub(super) fn push_key(&mut self, (prefix, suffix): (&[u8], &[u8]), value_end: usize) {
        let Memory { keys, ends, .. } = &mut self.memory;
        keys.reserve(prefix.len() + suffix.len());
        keys.extend_from_slice(prefix);
        keys.extend_from_slice(suffix);
        ends.push(Ends { key: keys.len() as u32, value: value_end as u32 });
        self.left.end += 1;
    }

    /// How many were added.
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

    /// Takes the first of those that are left: its number.
    #[inline]
    pub(crate) fn take_first(&mut self) -> Option<usize> {
        self.left.next()
    }

    /// Takes the last of those that are left.
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

    /// Empties it, but for its memory.
    pub(crate) fn clear(&mut self) {
        self.memory.keys.clear();
        self.memory.values.clear();
        self.memory.ends.clear();
        self.left = 0..0;
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let memory_bytes = self.memory_bytes();
        if memory_bytes == 0 || memory_bytes > Batch::BYTES_MAX {
            return;
        }
        self.clear();
        let memory = std::mem::take(&mut self.memory);
        // Without the thread's own, it is freed here.
        let _ = SPARES.try_with(|spares| {
            let mut memory = Some(memory);
            for spare in spares {
                let kept = spare.take();
                spare.set(kept.or_else(|| memory.take()));
            }
        });
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} of {} items left)", self.left.len(), self.count())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Items come out as they went in, from either end, each once; the memory is used again.
    #[test]
    fn items_are_taken_from_both_ends() {
        let mut batch = Batch::default();
        batch.begin();
        for number in 0..5u8 {
            batch.push((b"ab", &[number]), &vec![number; number.into()]);
        }
        let item = |batch: &Batch, number: u8| {
            assert_eq!(batch.item(number.into()), (&[b'a', b'b', number][..], &*vec![number; number.into()]));
        };
        (0..5).for_each(|number| item(&batch, number));
        assert_eq!((batch.take_first(), batch.take_last(), batch.take_last()), (Some(0), Some(4), Some(3)));
        assert_eq!((batch.take_first(), batch.take_first()), (Some(1), Some(2)));
        assert_eq!((batch.take_first(), batch.take_last(), batch.count()), (None, None, 5));
        assert_eq!(batch.last_key(), Some(&b"ab\x04"[..]));
        let memory_bytes = batch.memory_bytes();
        drop(batch);
        let mut again = Batch::default();
        again.begin();
        assert_eq!((again.count(), again.last_key(), again.memory_bytes()), (0, None, memory_bytes));
    }
}
