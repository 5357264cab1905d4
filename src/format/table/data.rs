//! Data block, reading side: the items of one key range, stored in columns.
//!
//! A point lookup reads the header and the tags, one key and one value: with 16-byte keys and 100-byte values
//! in a 4096-byte block, 2.2 cache lines of 64 bytes before the value (docs/results/alone.md). Writing is in
//! `data_build`. `table` checks a block once, when it comes from the device; all other functions here take
//! checked blocks only.
//!
//! ```text
//! offset size         type name: meaning
//! 0      4            u32  checksum
//! 4      1            u8   tag: 1
//! 5      1            u8   flags: 1 every suffix has one length, 2 every value has one length, 4 kinds are
//!                          present, 8 ends are u32, 32 places are left out; others zero (16: not this but a
//!                          `compressed` block)
//! 6      2            u16  items: at least 1
//! 8      4            u32  used: bytes to the end of the values; then zeros to the end of the extent, < 512
//! 12     2            u16  prefix length: bytes that all keys begin with
//! 14     2            u16  suffix length: of every key, with flag 1; else zero
//! 16     4            u32  value length: of every value, with flag 2; else zero
//! 20     items        u8   tags: the low byte of the order field of each key's hash
//!        items        u8   kinds: with flag 4, when any is not a put (1 put, 2 delete)
//!        items × 2|4  u16|u32 suffix ends: without flag 1; from the start of the suffixes
//!        items × 2|4  u16|u32 value ends: without flag 2; from the start of the values
//!        prefix length     prefix
//!                          suffixes: of the keys, strictly ascending without flag 32
//!                          values: of a delete, empty
//! ```
//! With flag 32, for hashed keyspaces, prefix and suffix are the user's key without its place
//! (`base::place`). A stored key is the place, which follows from the key's hash, and then the key. The items
//! are in the order of the stored keys. Checking this order needs the secret of the store's hash.
//!
//! Invariants of a checked block:
//! 1. Every range that an accessor computes lies in the block.
//! 2. Without flag 32 suffixes are strictly ascending, so binary search and scans are right. With flag 32,
//!    cursors check the order as they advance.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

use crate::base::codec::Malformed;
use crate::base::hash::HashSecret;
use crate::base::id::{ItemKind, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::key::head;
use crate::base::place::{PLACE_BYTES, PLACED_KEY_BYTES_MAX, put_placed};
use crate::base::prefetch::prefetch;

use super::{UNIT_BYTES, extent_bytes};

/// Bytes before the tags.
pub(crate) const HEADER_BYTES: usize = 20;
const LINE_BYTES: usize = 64;
/// Cache lines of a value that are prefetched before the value is read.
const LINES_AHEAD_MAX: usize = 4;
pub(super) const FIXED_KEYS: u8 = 1;
pub(super) const FIXED_VALUES: u8 = 2;
pub(super) const KINDS: u8 = 4;
pub(super) const WIDE: u8 = 8;
pub(super) const PLACES_LEFT_OUT: u8 = 32;

/// Offsets and lengths of one block: plain numbers, valid for the bytes they were computed from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    flags: u8,
    items: usize,
    used: usize,
    prefix_bytes: usize,
    suffix_bytes: usize,
    value_bytes: usize,
    suffix_ends_at: usize,
    value_ends_at: usize,
    prefix_at: usize,
    suffixes_at: usize,
    /// `None`: the values begin where the last suffix ends.
    values_at: Option<usize>,
}

/// An item found by key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FoundItem {
    pub(crate) kind: ItemKind,
    /// Range of the value in the block.
    pub(crate) value: Range<usize>,
}

/// Bytes of the block that begins at `bytes`, compressed or not, by its own header. The header is to be
/// trusted only after the checksum is checked.
pub(crate) fn extent_claimed(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let used = u32_at(header, 8) as usize;
    (super::compressed::HEADER_BYTES + 1..=super::DATA_BLOCK_BYTES_MAX)
        .contains(&used)
        .then(|| extent_bytes(used))
}

/// The value and kind of `key`, whose hash has this `tag`, in a checked block. `asked`: the index of the
/// first item with the tag, if [`prefetch_item`] returned it for this block.
///
/// The search reads tags up to the item, or, if keys ascend, up to an item with this tag and a greater key.
/// It reads keys only of items with this tag. With `asked` it reads that item first, and no tag if that item
/// has the key.
#[inline]
pub(crate) fn find(block: &[u8], key: &[u8], tag: u8, asked: Option<usize>) -> Option<FoundItem> {
    let layout = Layout::of(block);
    let key = if layout.leaves_places_out() { key.get(PLACE_BYTES..)? } else { key };
    let suffix = key.get(layout.prefix_bytes..)?;
    let from = match asked {
        None => 0,
        Some(index) => match layout.look_at(block, (key, suffix), index) {
            ControlFlow::Break(found) => return found,
            ControlFlow::Continue(()) => index + 1,
        },
    };
    layout
        .tagged(block, tag, from, |first, hits| layout.find_among(block, (key, suffix), first, hits))
        .break_value()
        .flatten()
}

/// The index of the first item with this tag, whose key and value are prefetched. The header and the tags
/// should be in the cache by now.
#[inline]
pub(crate) fn prefetch_item(block: &[u8], tag: u8) -> Option<usize> {
    let layout = Layout::of(block);
    let hit = |first: usize, hits: u64| ControlFlow::Break(first + hits.trailing_zeros() as usize / 8);
    let index = layout.tagged(block, tag, 0, hit).break_value()?;
    prefetch_lines(block, layout.suffix_range(block, index));
    prefetch_lines(block, layout.value_range(block, index));
    Some(index)
}

/// Prefetches the first cache lines of a range, which may begin anywhere in a line.
#[inline]
fn prefetch_lines(block: &[u8], range: Range<usize>) {
    let before = (block.as_ptr() as usize + range.start) % LINE_BYTES;
    let lines = (before + range.len()).div_ceil(LINE_BYTES).min(LINES_AHEAD_MAX);
    (0..lines).for_each(|line| prefetch(block, range.start + line * LINE_BYTES));
}

/// The high bit of every zero byte of `word`, and no other bit.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    !(((word & LOW) + LOW) | word | LOW)
}

impl Layout {
    /// The layout of a checked block.
    #[inline]
    pub(crate) fn of(block: &[u8]) -> Layout {
        Layout::parse(block).expect("the block was checked when it was read")
    }

    #[inline]
    pub(crate) fn items(&self) -> usize {
        self.items
    }

    /// Whether prefix and suffix are a key without its place.
    #[inline]
    pub(crate) fn leaves_places_out(&self) -> bool {
        self.flags & PLACES_LEFT_OUT != 0
    }

    /// Index of the first item whose key is not less than `key`; `items()` if there is none. Only for blocks
    /// with places.
    pub(crate) fn lower_bound(&self, block: &[u8], key: &[u8]) -> usize {
        self.partition(block, key, Ordering::Less)
    }

    /// Index of the first item whose key is greater than `key`; `items()` if there is none. Only for blocks
    /// with places.
    pub(crate) fn upper_bound(&self, block: &[u8], key: &[u8]) -> usize {
        self.partition(block, key, Ordering::Equal)
    }

    /// Like `lower_bound`, also for a block without places, in the store with this secret.
    pub(crate) fn lower_bound_by(&self, block: &[u8], key: &[u8], secret: &HashSecret) -> usize {
        self.partition_by(block, key, Ordering::Less, secret)
    }

    /// Like `upper_bound`, also for a block without places, in the store with this secret.
    pub(crate) fn upper_bound_by(&self, block: &[u8], key: &[u8], secret: &HashSecret) -> usize {
        self.partition_by(block, key, Ordering::Equal, secret)
    }

    /// Appends the stored key of item `index`.
    #[inline]
    pub(crate) fn put_key(&self, block: &[u8], index: usize, secret: &HashSecret, key: &mut Vec<u8>) {
        let parts = (self.prefix(block), self.suffix(block, index));
        if self.leaves_places_out() {
            return put_placed(secret, parts, key);
        }
        key.extend_from_slice(parts.0);
        key.extend_from_slice(parts.1);
    }

    /// The stored key of item `index`.
    pub(crate) fn key(&self, block: &[u8], index: usize, secret: &HashSecret) -> Vec<u8> {
        let mut key = Vec::new();
        self.put_key(block, index, secret, &mut key);
        key
    }

    /// The number of items whose comparison with `key` gives at most `most`.
    fn partition_by(&self, block: &[u8], key: &[u8], most: Ordering, secret: &HashSecret) -> usize {
        if !self.leaves_places_out() {
            return self.partition(block, key, most);
        }
        let mut stored = Vec::new();
        first_beyond(self.items, |index| {
            stored.clear();
            self.put_key(block, index, secret, &mut stored);
            stored.as_slice().cmp(key) <= most
        })
    }

    /// Like `partition_by`, for a block with places.
    fn partition(&self, block: &[u8], key: &[u8], most: Ordering) -> usize {
        let prefix = self.prefix(block);
        let shared = key.len().min(prefix.len());
        match prefix[..shared].cmp(&key[..shared]) {
            Ordering::Less => return self.items,
            Ordering::Greater => return 0,
            Ordering::Equal if shared < prefix.len() => return 0,
            Ordering::Equal => {}
        }
        let rest = &key[shared..];
        first_beyond(self.items, |index| self.suffix(block, index).cmp(rest) <= most)
    }

    /// Bytes of the common prefix of the block's keys.
    pub(crate) fn prefix_bytes(&self) -> usize {
        self.prefix_bytes
    }

    /// The common prefix of the block's keys, without their places if the block leaves these out.
    #[inline]
    pub(crate) fn prefix<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        look(block, self.prefix_at..self.suffixes_at)
    }

    /// The key of item `index` behind the common prefix.
    #[inline]
    pub(crate) fn suffix<'a>(&self, block: &'a [u8], index: usize) -> &'a [u8] {
        look(block, self.suffix_range(block, index))
    }

    /// Whether the header says that no item is a delete.
    #[inline]
    pub(crate) fn is_all_puts(&self) -> bool {
        self.flags & KINDS == 0
    }

    #[inline]
    pub(crate) fn kind(&self, block: &[u8], index: usize) -> ItemKind {
        if self.is_all_puts() {
            return ItemKind::Put;
        }
        let at = HEADER_BYTES + self.items + index;
        ItemKind::from_u8(look(block, at..at + 1)[0]).expect("kinds were checked")
    }

    /// Range of the value of item `index` in the block.
    #[inline]
    pub(crate) fn value_range(&self, block: &[u8], index: usize) -> Range<usize> {
        let inside = if self.flags & FIXED_VALUES != 0 {
            index * self.value_bytes..(index + 1) * self.value_bytes
        } else {
            self.end_before(block, self.value_ends_at, index)..self.end(block, self.value_ends_at, index)
        };
        let values_at = self.values_at(block);
        values_at + inside.start..values_at + inside.end
    }

    #[inline]
    fn values_at(&self, block: &[u8]) -> usize {
        let behind_suffixes = || self.suffixes_at + self.end(block, self.suffix_ends_at, self.items - 1);
        self.values_at.unwrap_or_else(behind_suffixes)
    }

    #[inline]
    pub(crate) fn suffix_range(&self, block: &[u8], index: usize) -> Range<usize> {
        let inside = if self.flags & FIXED_KEYS != 0 {
            index * self.suffix_bytes..(index + 1) * self.suffix_bytes
        } else {
            self.end_before(block, self.suffix_ends_at, index)..self.end(block, self.suffix_ends_at, index)
        };
        self.suffixes_at + inside.start..self.suffixes_at + inside.end
    }

    #[inline]
    fn end_before(&self, block: &[u8], ends_at: usize, index: usize) -> usize {
        if index == 0 { 0 } else { self.end(block, ends_at, index - 1) }
    }

    #[inline]
    fn end(&self, block: &[u8], ends_at: usize, index: usize) -> usize {
        if self.flags & WIDE != 0 {
            let at = ends_at + index * 4;
            u32_at(look(block, at..at + 4), 0) as usize
        } else {
            let at = ends_at + index * 2;
            usize::from(u16_at(look(block, at..at + 2), 0))
        }
    }

    /// Searches the tags, eight items at a time, from the group of item `from` on. Calls `hit` for each group
    /// with a match, with the index of the group's first item and a mask: the high bit of byte i is set if
    /// item first + i has the tag.
    #[inline]
    fn tagged<R>(
        &self,
        block: &[u8],
        tag: u8,
        from: usize,
        mut hit: impl FnMut(usize, u64) -> ControlFlow<R>,
    ) -> ControlFlow<R> {
        let tags = &block[HEADER_BYTES..HEADER_BYTES + self.items];
        let pattern = u64::from_le_bytes([tag; 8]);
        let (words, rest) = tags.as_chunks::<8>();
        let skipped = (from / 8).min(words.len());
        let mut first = skipped * 8;
        for word in &words[skipped..] {
            note(&(HEADER_BYTES + first..HEADER_BYTES + first + 8));
            let hits = zero_bytes(u64::from_le_bytes(*word) ^ pattern);
            if hits != 0 {
                hit(first, hits)?;
            }
            first += 8;
        }
        note(&(HEADER_BYTES + first..HEADER_BYTES + self.items));
        let mut last = [!tag; 8];
        last[..rest.len()].copy_from_slice(rest);
        let hits = zero_bytes(u64::from_le_bytes(last) ^ pattern);
        if hits == 0 { ControlFlow::Continue(()) } else { hit(first, hits) }
    }

    /// Compares the key of each candidate, until the item is found or is known to be absent. The high bit of
    /// byte i in `hits` is set if item `first` + i is a candidate. `suffix`: the key behind as many bytes as
    /// the prefix has.
    #[inline]
    fn find_among(
        &self,
        block: &[u8],
        (key, suffix): (&[u8], &[u8]),
        first: usize,
        mut hits: u64,
    ) -> ControlFlow<Option<FoundItem>> {
        while hits != 0 {
            let index = first + hits.trailing_zeros() as usize / 8;
            if self.flags & FIXED_VALUES != 0 {
                // The value is needed next if this is the key, so it is prefetched together with the key.
                prefetch_lines(block, self.value_range(block, index));
            }
            self.look_at(block, (key, suffix), index)?;
            hits &= hits - 1;
        }
        ControlFlow::Continue(())
    }

    /// Breaks with the item if it has this key. Breaks with `None` if no later item can have it: where keys
    /// ascend, that is so once an item has a greater key.
    #[inline(always)]
    fn look_at(
        &self,
        block: &[u8],
        (key, suffix): (&[u8], &[u8]),
        index: usize,
    ) -> ControlFlow<Option<FoundItem>> {
        match suffix.cmp(self.suffix(block, index)) {
            Ordering::Equal if key.starts_with(self.prefix(block)) => {
                let (kind, value) = (self.kind(block, index), self.value_range(block, index));
                ControlFlow::Break(Some(FoundItem { kind, value }))
            }
            Ordering::Less if self.leaves_places_out() => ControlFlow::Continue(()),
            // The prefix differs, so no item has the key; or every later key is greater.
            Ordering::Equal | Ordering::Less => ControlFlow::Break(None),
            Ordering::Greater => ControlFlow::Continue(()),
        }
    }

    /// The layout, if header and columns fit the block. `check` covers the bytes behind the header.
    #[inline]
    fn parse(block: &[u8]) -> Result<Layout, Malformed> {
        note(&(0..HEADER_BYTES));
        let Some(header) = block.first_chunk::<HEADER_BYTES>() else {
            return Err(bad(0, "data block", HEADER_BYTES, block.len()));
        };
        let flags = header[5];
        let items = usize::from(u16_at(header, 6));
        let used = u32_at(header, 8) as usize;
        let prefix_bytes = usize::from(u16_at(header, 12));
        let suffix_bytes = usize::from(u16_at(header, 14));
        let value_bytes = u32_at(header, 16) as usize;
        if items == 0 {
            return Err(bad(6, "item count of a data block", 1, 0));
        }
        let end_bytes = if flags & WIDE != 0 { 4 } else { 2 };
        let column = |absent: u8| if flags & absent != 0 { 0 } else { items * end_bytes };
        let kinds_bytes = if flags & KINDS != 0 { items } else { 0 };
        let suffix_ends_at = HEADER_BYTES + items + kinds_bytes;
        let value_ends_at = suffix_ends_at + column(FIXED_KEYS);
        let prefix_at = value_ends_at + column(FIXED_VALUES);
        let suffixes_at = prefix_at + prefix_bytes;
        if used > block.len() || suffixes_at > used {
            return Err(bad(8, "used bytes of a data block", suffixes_at, used));
        }
        let fixed = |flag: u8, length: usize| (flags & flag != 0).then(|| length.saturating_mul(items));
        let values_at = match (fixed(FIXED_KEYS, suffix_bytes), fixed(FIXED_VALUES, value_bytes)) {
            (Some(bytes), _) => Some(suffixes_at.saturating_add(bytes)),
            (None, Some(bytes)) => Some(
                used.checked_sub(bytes).ok_or_else(|| bad(8, "used bytes of a data block", bytes, used))?,
            ),
            (None, None) => None,
        };
        Ok(Layout {
            flags,
            items,
            used,
            prefix_bytes,
            suffix_bytes,
            value_bytes,
            suffix_ends_at,
            value_ends_at,
            prefix_at,
            suffixes_at,
            values_at,
        })
    }

    /// Checks that keys and values take exactly the used bytes.
    fn check_used(&self, block: &[u8]) -> Result<(), Malformed> {
        let total = |fixed: u8, length: usize, ends_at: usize| {
            if self.flags & fixed != 0 {
                length as u64 * self.items as u64
            } else {
                self.end(block, ends_at, self.items - 1) as u64
            }
        };
        let suffixes = total(FIXED_KEYS, self.suffix_bytes, self.suffix_ends_at);
        let values = total(FIXED_VALUES, self.value_bytes, self.value_ends_at);
        let expected = self.suffixes_at as u64 + suffixes + values;
        if expected == self.used as u64 {
            Ok(())
        } else {
            Err(bad(8, "used bytes of a data block", expected as usize, self.used))
        }
    }

    fn check_header(&self, block: &[u8]) -> Result<(), Malformed> {
        if self.flags & !(FIXED_KEYS | FIXED_VALUES | KINDS | WIDE | PLACES_LEFT_OUT) != 0 {
            return Err(bad(5, "flags of a data block", 0, usize::from(self.flags)));
        }
        if self.flags & FIXED_KEYS == 0 && self.suffix_bytes != 0 {
            return Err(bad(14, "unused suffix length", 0, self.suffix_bytes));
        }
        if self.flags & FIXED_VALUES == 0 && self.value_bytes != 0 {
            return Err(bad(16, "unused value length", 0, self.value_bytes));
        }
        if block.len() != extent_bytes(self.used) {
            return Err(bad(8, "extent of a data block", extent_bytes(self.used), block.len()));
        }
        debug_assert!(block.len() - self.used < UNIT_BYTES);
        match block[self.used..].iter().position(|byte| *byte != 0) {
            None => Ok(()),
            Some(index) => {
                let at = self.used + index;
                Err(bad(at, "padding of a data block", 0, usize::from(block[at])))
            }
        }
    }

    fn check_ends(&self, block: &[u8], fixed: u8, ends_at: usize) -> Result<(), Malformed> {
        if self.flags & fixed != 0 {
            return Ok(());
        }
        let mut before = 0;
        for index in 0..self.items {
            let end = self.end(block, ends_at, index);
            if end < before {
                return Err(bad(ends_at, "ends in a data block", before, end));
            }
            before = end;
        }
        Ok(())
    }

    /// Checks that no key is too long and that keys ascend. For a block without places, checks only the
    /// lengths.
    fn check_keys(&self, block: &[u8]) -> Result<(), Malformed> {
        if self.leaves_places_out() {
            let lengths = (0..self.items).map(|index| self.prefix_bytes + self.suffix(block, index).len());
            return match lengths.max() {
                Some(longest) if longest > PLACED_KEY_BYTES_MAX => {
                    Err(bad(self.suffixes_at, "key length", PLACED_KEY_BYTES_MAX, longest))
                }
                _ => Ok(()),
            };
        }
        if self.flags & FIXED_KEYS != 0 && self.suffix_bytes > 0 {
            let suffixes = &block[self.suffixes_at..][..self.items * self.suffix_bytes];
            self.check_suffixes(block, suffixes.chunks_exact(self.suffix_bytes))
        } else {
            self.check_suffixes(block, (0..self.items).map(|index| self.suffix(block, index)))
        }
    }

    /// The order and lengths for `check_keys`. Every block that is read passes this check, so it compares
    /// heads first: most keys differ within eight bytes.
    #[inline]
    fn check_suffixes<'a>(
        &self,
        block: &[u8],
        suffixes: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), Malformed> {
        let mut before: Option<(u64, &[u8])> = None;
        for (index, suffix) in suffixes.enumerate() {
            let key_bytes = self.prefix_bytes + suffix.len();
            if key_bytes > KEY_BYTES_MAX {
                return Err(bad(self.suffixes_at, "key length", KEY_BYTES_MAX, key_bytes));
            }
            let present = (head(suffix), suffix);
            if before.is_some_and(|before| before >= present) {
                let at = self.suffix_range(block, index).start;
                return Err(bad(at, "order of keys in a data block", index + 1, index));
            }
            before = Some(present);
        }
        Ok(())
    }

    fn check_values(&self, block: &[u8]) -> Result<(), Malformed> {
        let lengths = if self.flags & FIXED_VALUES != 0 { 1 } else { self.items };
        for index in 0..lengths {
            let value = self.value_range(block, index);
            if value.len() > VALUE_BYTES_MAX {
                return Err(bad(value.start, "value length", VALUE_BYTES_MAX, value.len()));
            }
        }
        Ok(())
    }

    fn check_kinds(&self, block: &[u8]) -> Result<(), Malformed> {
        if self.is_all_puts() {
            return Ok(());
        }
        for index in 0..self.items {
            let (at, value) = (HEADER_BYTES + self.items + index, self.value_range(block, index));
            match ItemKind::from_u8(block[at]) {
                None | Some(ItemKind::DeleteRange) => {
                    return Err(bad(at, "item kind", 1, usize::from(block[at])));
                }
                Some(ItemKind::Delete) if !value.is_empty() => {
                    return Err(bad(value.start, "value length of a delete", 0, value.len()));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Checks all properties that the accessors rely on, but not the checksum, which the caller checks.
pub(crate) fn check(block: &[u8]) -> Result<Layout, Malformed> {
    let layout = Layout::parse(block)?;
    layout.check_used(block)?;
    layout.check_header(block)?;
    layout.check_ends(block, FIXED_KEYS, layout.suffix_ends_at)?;
    layout.check_ends(block, FIXED_VALUES, layout.value_ends_at)?;
    layout.check_keys(block)?;
    layout.check_values(block)?;
    layout.check_kinds(block)?;
    Ok(layout)
}

/// The number of items before the first for which `is_before` is false, by binary search.
#[inline]
fn first_beyond(items: usize, mut is_before: impl FnMut(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, items);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Bytes of a block, noted as read for the tests.
#[inline]
fn look(block: &[u8], range: Range<usize>) -> &[u8] {
    note(&range);
    &block[range]
}

/// Tests count the bytes read.
#[cfg(not(test))]
#[inline(always)]
fn note(_range: &Range<usize>) {}

#[cfg(test)]
use tests::lines::note;

fn bad(at: usize, what: &'static str, expected: usize, found: usize) -> Malformed {
    Malformed { at, what, expected: expected as u64, found: found as u64 }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().expect("callers stay inside the bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("callers stay inside the bytes"))
}

#[cfg(test)]
#[path = "data/tests.rs"]
mod tests;
