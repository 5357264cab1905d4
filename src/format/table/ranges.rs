//! Range tombstones of a slice: the ranges of keys that are deleted in older runs.
//!
//! They do not apply to the items of their own slice, because deleted items were dropped when the slice was
//! written. `table::build` encodes them, `table::open` decodes them into [`Ranges`], which stay in memory and
//! are searched. Merges and flushes join several of them. Immutable and shared freely.
//!
//! Extents, one after another. An extent has at most 64 KiB, unless it has one range:
//! ```text
//! offset size      type name: meaning
//! 0      4         u32  checksum
//! 4      1         u8   tag: 7
//! 5      3              zero
//! 8      4         u32  ranges: n, at least 1
//! 12     4         u32  used: bytes to the end of the keys
//! 16     n × 4     u16  length of the first key that is deleted
//!                  u16  length of what comes after the last one; 0: everything is deleted to the end, only
//!                       in the last range of all
//!                       keys: of each range the two, in this order; strictly ascending through all extents
//!                       zero to the end of the extent, < 512
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Bound;

use crate::base::codec::{ByteReader, Malformed};
use crate::base::id::KEY_BYTES_MAX;
use crate::base::key::{common_prefix, head_after};

use super::{RANGES_TAG, extent_bytes};

const HEADER_BYTES: usize = 16;
const LENGTHS_BYTES: usize = 4;
/// Maximum bytes of an extent with several ranges.
const EXTENT_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of any extent: one range of the longest keys.
const EXTENT_BYTES_LIMIT: usize = HEADER_BYTES + LENGTHS_BYTES + 2 * KEY_BYTES_MAX;

/// Whether some ranges cover a key, and the largest range of keys around it with the same answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Around<'a> {
    pub(crate) is_covered: bool,
    /// The first of these keys.
    pub(crate) from: &'a [u8],
    /// The exclusive end of these keys; empty: no end.
    pub(crate) to: &'a [u8],
}

/// Disjoint ranges of keys, ascending, with keys between any two. Each has an inclusive start and an
/// exclusive end; the last may have no end.
#[derive(Clone, Default, Debug)]
pub(crate) struct Ranges {
    /// All starts and ends, in order.
    keys: Vec<u8>,
    /// End offset of each start and end in `keys`.
    ends: Vec<u32>,
    /// `None` before `index` is called. Most slices have no ranges, so the index costs them only a pointer.
    index: Option<Box<RangeIndex>>,
}

/// The index of a search, so that a search reads few keys.
#[derive(Clone, Debug)]
struct RangeIndex {
    /// For each start and end, except a missing end: the four bytes behind the prefix that all share.
    heads: Box<[u32]>,
    /// Bytes of that prefix.
    skip: usize,
}

impl PartialEq for Ranges {
    /// Compares the ranges and ignores the index.
    fn eq(&self, other: &Ranges) -> bool {
        (&self.keys, &self.ends) == (&other.keys, &other.ends)
    }
}

impl Eq for Ranges {}

#[cfg(test)]
thread_local! {
    /// Number of starts and ends that searches have read.
    static KEY_LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl Ranges {
    pub(crate) const NONE: Ranges = Ranges { keys: Vec::new(), ends: Vec::new(), index: None };

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn count(&self) -> usize {
        self.ends.len() / 2
    }

    /// All keys that any of the lists covers. Cost: log2 of the number of lists for each range.
    pub(crate) fn union<'r>(lists: impl IntoIterator<Item = &'r Ranges>) -> Ranges {
        let lists: Vec<&Ranges> = lists.into_iter().filter(|one| !one.is_empty()).collect();
        let mut joined = Ranges::with_room_for(lists.iter().copied());
        // The next range of each list, by its start.
        let head = |list: usize, index: usize| Some(Reverse((lists.get(list)?.start(index)?, list, index)));
        let mut heads: BinaryHeap<_> = (0..lists.len()).filter_map(|list| head(list, 0)).collect();
        while let Some(mut first) = heads.peek_mut() {
            let Reverse((_, list, index)) = *first;
            let (start, end) = lists[list].get(index);
            joined.push(start, end);
            match head(list, index + 1) {
                Some(next) => *first = next,
                None => drop(PeekMut::pop(first)),
            }
        }
        joined
    }

    /// The concatenation of lists, each of which begins behind the end of the list before.
    pub(crate) fn concatenated<'r>(lists: impl Iterator<Item = &'r Ranges> + Clone) -> Ranges {
        let mut all = Ranges::with_room_for(lists.clone());
        lists.flat_map(Ranges::iter).for_each(|(start, end)| all.push(start, end));
        all
    }

    fn with_room_for<'r>(lists: impl Iterator<Item = &'r Ranges> + Clone) -> Ranges {
        let keys = lists.clone().map(|one| one.keys.len()).sum();
        let ends = lists.map(|one| one.ends.len()).sum();
        Ranges { keys: Vec::with_capacity(keys), ends: Vec::with_capacity(ends), ..Ranges::default() }
    }

    /// Adds a range that does not begin before the start of the last one. Joins both if no key lies between.
    /// An empty end means no end.
    pub(crate) fn push(&mut self, start: &[u8], end: &[u8]) {
        assert!(end.is_empty() || start < end, "a range is not empty");
        if let Some(last) = self.count().checked_sub(1) {
            let (last_start, last_end) = self.get(last);
            assert!(last_start <= start, "ranges come in order");
            if last_end.is_empty() || (!end.is_empty() && end <= last_end) {
                return;
            }
            if start <= last_end {
                let kept = self.keys.len() - last_end.len();
                self.keys.truncate(kept);
                self.ends.pop();
                self.add(end);
                return;
            }
        }
        self.add(start);
        self.add(end);
    }

    /// Builds the index, with which a search reads four adjacent bytes a range, and few keys. Call it after
    /// adding all ranges.
    pub(crate) fn index(&mut self) {
        let count = self.keys_count();
        let Some(last) = count.checked_sub(1) else { return };
        let skip = common_prefix(self.boundary(0), self.boundary(last));
        let heads = (0..count).map(|index| head_behind(self.boundary(index), skip)).collect();
        self.index = Some(Box::new(RangeIndex { heads, skip }));
    }

    /// Number of starts and ends, without a missing end.
    fn keys_count(&self) -> usize {
        let count = self.ends.len();
        let is_endless = count > 0 && self.boundary(count - 1).is_empty();
        count - usize::from(is_endless)
    }

    fn add(&mut self, key: &[u8]) {
        self.index = None;
        self.keys.extend_from_slice(key);
        self.ends.push(u32::try_from(self.keys.len()).expect("a slice is below 4 GiB"));
    }

    fn boundary(&self, index: usize) -> &[u8] {
        #[cfg(test)]
        KEY_LOOKS.set(KEY_LOOKS.get() + 1);
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.keys[start..self.ends[index] as usize]
    }

    /// Start and end of a range; an empty end means no end.
    pub(crate) fn get(&self, index: usize) -> (&[u8], &[u8]) {
        (self.boundary(2 * index), self.boundary(2 * index + 1))
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        (0..self.count()).map(|index| self.get(index))
    }

    fn start(&self, index: usize) -> Option<&[u8]> {
        (index < self.count()).then(|| self.boundary(2 * index))
    }

    /// The first deleted key.
    pub(crate) fn first(&self) -> Option<&[u8]> {
        (!self.is_empty()).then(|| self.boundary(0))
    }

    /// The last range.
    pub(crate) fn last(&self) -> Option<(&[u8], &[u8])> {
        Some(self.get(self.count().checked_sub(1)?))
    }

    /// Whether one of the ranges covers the key.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        !self.is_empty() && self.not_after(key) % 2 == 1
    }

    /// End of the range that covers the key, if one does; an empty end means no end.
    pub(crate) fn end_over(&self, key: &[u8]) -> Option<&[u8]> {
        let around = self.around(key);
        around.is_covered.then_some(around.to)
    }

    /// Whether a range covers `key`, and the largest range of keys around it with the same answer.
    pub(crate) fn around(&self, key: &[u8]) -> Around<'_> {
        let not_after = self.not_after(key);
        Around {
            is_covered: not_after % 2 == 1,
            from: not_after.checked_sub(1).map_or(&[], |index| self.boundary(index)),
            to: if not_after < self.ends.len() { self.boundary(not_after) } else { &[] },
        }
    }

    /// Number of starts and ends at or before `key`. Cost: a binary search.
    fn not_after(&self, key: &[u8]) -> usize {
        // A missing end is behind all keys; an empty start is before them.
        let (mut low, mut high) = (0, self.keys_count());
        if let Some(index) = &self.index {
            let (RangeIndex { heads, skip }, first) = (&**index, self.boundary(0));
            if !key.starts_with(&first[..*skip]) {
                // The key is before or behind all starts and ends.
                return if key < first { 0 } else { high };
            }
            let head = head_behind(key, *skip);
            low = heads.partition_point(|one| *one < head);
            if heads.get(low) != Some(&head) {
                return low;
            }
            high = low + heads[low..].partition_point(|one| *one == head);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.boundary(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let index = self.index.as_ref().map_or(0, |index| size_of::<RangeIndex>() + index.heads.len() * 4);
        self.keys.capacity() + self.ends.capacity() * 4 + index
    }

    /// Upper bound on the bytes of the extents, approximately.
    pub(crate) fn encoded_bytes(&self) -> u64 {
        let bytes = self.keys.len() + self.count() * LENGTHS_BYTES;
        let extents = bytes.div_ceil(EXTENT_BYTES_MAX / 2);
        extent_bytes(bytes + extents * HEADER_BYTES) as u64
    }

    /// The extents, not sealed.
    pub(crate) fn encode(&self) -> Vec<Vec<u8>> {
        let mut extents = Vec::new();
        let mut first = 0;
        while first < self.count() {
            let mut used = HEADER_BYTES;
            let mut end = first;
            while end < self.count() {
                let (start, stop) = self.get(end);
                let bytes = LENGTHS_BYTES + start.len() + stop.len();
                if end > first && used + bytes > EXTENT_BYTES_MAX {
                    break;
                }
                used += bytes;
                end += 1;
            }
            extents.push(self.encode_extent(first..end, used));
            first = end;
        }
        extents
    }

    fn encode_extent(&self, ranges: std::ops::Range<usize>, used: usize) -> Vec<u8> {
        let narrow = |value: usize| u32::try_from(value).expect("an extent is bounded").to_le_bytes();
        let length = |key: &[u8]| u16::try_from(key.len()).expect("keys are below 64 KiB").to_le_bytes();
        let mut out = Vec::with_capacity(extent_bytes(used));
        out.extend_from_slice(&[0, 0, 0, 0, RANGES_TAG, 0, 0, 0]);
        out.extend_from_slice(&narrow(ranges.len()));
        out.extend_from_slice(&narrow(used));
        for index in 2 * ranges.start..2 * ranges.end {
            out.extend_from_slice(&length(self.boundary(index)));
        }
        for index in 2 * ranges.start..2 * ranges.end {
            out.extend_from_slice(self.boundary(index));
        }
        out.resize(extent_bytes(used), 0);
        out
    }

    /// Adds the ranges of the next extent. The caller has found its end with [`claimed_bytes`] and checked
    /// its checksum.
    pub(crate) fn decode_extent(&mut self, extent: &[u8]) -> Result<(), Malformed> {
        let mut reader = ByteReader::new(extent);
        reader.bytes(5, "range block")?;
        reader.zeros(3, "padding of a range block")?;
        let count = reader.u32("ranges of a range block")?;
        let used = reader.u32("used bytes of a range block")?;
        if count == 0 {
            return Err(reader.malformed("ranges of a range block", 1, 0));
        }
        let lengths = (count as usize).saturating_mul(LENGTHS_BYTES);
        let lengths = reader.bytes(lengths, "lengths in a range block")?;
        for lengths in lengths.as_chunks::<LENGTHS_BYTES>().0 {
            let [start_low, start_high, end_low, end_high] = *lengths;
            let start_bytes = u16::from_le_bytes([start_low, start_high]);
            let end_bytes = u16::from_le_bytes([end_low, end_high]);
            let before = reader.clone();
            let start = reader.bytes(start_bytes.into(), "start of a range")?;
            let end = reader.bytes(end_bytes.into(), "end of a range")?;
            let is_behind = self.last().is_none_or(|(_, last)| !last.is_empty() && last < start);
            if !is_behind || (!end.is_empty() && end <= start) {
                let index = self.count() as u64;
                return Err(before.malformed("order of ranges", index + 1, index));
            }
            self.add(start);
            self.add(end);
        }
        if reader.at() != used as usize || extent.len() != extent_bytes(used as usize) {
            return Err(reader.malformed("used bytes of a range block", reader.at() as u64, u64::from(used)));
        }
        reader.zeros(reader.remaining(), "padding of a range block")
    }
}

/// The four bytes of a key behind the first `skip` bytes, which it must have.
fn head_behind(key: &[u8], skip: usize) -> u32 {
    (head_after(key, skip) >> 32) as u32
}

/// The greater of two optional ends; an empty end means no end and is the greatest.
pub(crate) fn farther<'r>(one: Option<&'r [u8]>, other: Option<&'r [u8]>) -> Option<&'r [u8]> {
    match (one, other) {
        (Some(one), Some(other)) => {
            Some(if !other.is_empty() && (one.is_empty() || one > other) { one } else { other })
        }
        (one, other) => one.or(other),
    }
}

/// Whether ranges together cover all keys from `first` to `last`. `end_over` returns the end of a range over
/// a key, if one covers it. Cost: one call for each range that is needed, and no memory.
pub(crate) fn are_covered<'r>(
    first: &[u8],
    last: Bound<&[u8]>,
    end_over: impl Fn(&[u8]) -> Option<&'r [u8]>,
) -> bool {
    let is_past = |end: &[u8]| {
        end.is_empty()
            || match last {
                Bound::Included(last) => last < end,
                Bound::Excluded(last) => last <= end,
                Bound::Unbounded => false,
            }
    };
    let mut end = end_over(first);
    while let Some(reached) = end {
        if is_past(reached) {
            return true;
        }
        end = end_over(reached);
    }
    false
}

/// The length of the extent at the start of `bytes`, by its own header, if the extent lies in them.
pub(crate) fn claimed_bytes(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut reader = ByteReader::new(bytes);
    reader.bytes(12, "range block")?;
    let used = reader.u32("used bytes of a range block")? as usize;
    let limit = bytes.len().min(extent_bytes(EXTENT_BYTES_LIMIT));
    if used < HEADER_BYTES || used > limit || extent_bytes(used) > limit {
        return Err(reader.malformed("used bytes of a range block", limit as u64, used as u64));
    }
    Ok(extent_bytes(used))
}

/// The greatest key of a range with this exclusive end; `None` without an end. If that key is very long,
/// returns the end itself, which is greater but not longer.
pub(crate) fn last_key(end: &[u8]) -> Option<&[u8]> {
    match end {
        [] => None,
        // No key lies between a key and the same key with a zero byte appended.
        [key @ .., 0] => Some(key),
        key => Some(key),
    }
}

#[cfg(test)]
mod tests;
