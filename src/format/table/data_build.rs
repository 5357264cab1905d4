//! Data block, writing side: collects items, decides the ends of blocks, and writes blocks in columns.
//!
//! `table::build` adds items in key order and asks after each item whether a block can be cut. One thread.
//!
//! The rule for cuts: a block has the target size (4096 bytes by default) if items fill it to 95 %. Otherwise
//! it has the best filled extent of whole units from the target to twice the target. An item that fits no
//! such extent has a block of its own.
//!
//! The ratio of block bytes to key and value bytes, for items of one size and a target of 4096:
//! | item bytes | mean | at most | |
//! |---|---|---|---|
//! | 16 to 100 | 1.01 | 1.02 | |
//! | 100 to 1024 | 1.02 | 1.08 | seven items of 1 KiB in 7.5 KiB |
//! | 1024 to 4096 | 1.04 | 1.09 | |
//! | 4096 to 8192 | 1.05 | 1.13 | a value of 4 KiB in 4.5 KiB |
//! | 8192 to 65,536 | 1.01 | 1.07 | |
//!
//! A smaller loss needs blocks of more than twice the target, or items that span two blocks.
//!
//! Blocks of a hashed keyspace leave the places out, and begin at quanta of the place (`quanta`): the space
//! of places is divided into so many equal parts that one byte can count the parts of a block
//! (`fence_build`). A cut moves back to the nearest bound of a quantum; a block of 35 items loses a sixth of
//! an item to this.
//!
//! Invariants:
//! 1. The bytes of a block grow with every item, so the number of items that fit is well-defined.
//! 2. An extent is the smallest number of whole units that holds the stored bytes, so the used bytes in a
//!    block's header give its extent.
//! 3. The builder holds less than twice the target, and one item more.

use crate::base::checksum::Context;
use crate::base::id::ItemKind;
use crate::base::key::{common_prefix, head};
use crate::base::place::PLACE_BYTES;

use super::compressed::{self, Compression};
use super::data::{FIXED_KEYS, FIXED_VALUES, HEADER_BYTES, KINDS, PLACES_LEFT_OUT, WIDE};
use super::quanta::Quanta;
use super::{extent_bytes, seal};

/// A block of the target size is cut at once if items fill it to this share, in percent.
const FILL_PERCENT: usize = 95;
/// A value from this length on, in a block of its own, has its whole key in the fences, unless the key is
/// long.
pub(crate) const ALONE_VALUE_BYTES_MIN: usize = 16 << 10;
const ALONE_KEY_BYTES_MAX: usize = 128;
/// Largest end that a `u16` holds.
const NARROW_MAX: usize = u16::MAX as usize;

#[derive(Debug)]
struct Pending {
    tag: u8,
    kind: ItemKind,
    key_at: usize,
    key_bytes: usize,
    value_bytes: usize,
    /// Bytes of a block of all pending items up to and including this one.
    block_bytes: usize,
}

/// The inputs of a block's size.
#[derive(Clone, Copy, Debug)]
struct Sums {
    items: usize,
    prefix_bytes: usize,
    key_bytes: usize,
    value_bytes: usize,
    fixed_key: Option<usize>,
    fixed_value: Option<usize>,
    kinds: bool,
    /// Bytes of each key that the block leaves out (its place).
    left_out: usize,
}

impl Sums {
    fn start(item: &Pending, left_out: usize) -> Sums {
        Sums {
            items: 1,
            prefix_bytes: item.key_bytes - left_out,
            key_bytes: item.key_bytes - left_out,
            value_bytes: item.value_bytes,
            fixed_key: Some(item.key_bytes),
            fixed_value: Some(item.value_bytes),
            kinds: item.kind != ItemKind::Put,
            left_out,
        }
    }

    /// `shared_bytes`: the common prefix of the item's key and the first key, behind the bytes that are left
    /// out.
    fn add(&mut self, item: &Pending, shared_bytes: usize) {
        self.items += 1;
        self.prefix_bytes = self.prefix_bytes.min(shared_bytes);
        self.key_bytes += item.key_bytes - self.left_out;
        self.value_bytes += item.value_bytes;
        self.fixed_key = self.fixed_key.filter(|bytes| *bytes == item.key_bytes);
        self.fixed_value = self.fixed_value.filter(|bytes| *bytes == item.value_bytes);
        self.kinds |= item.kind != ItemKind::Put;
    }

    fn suffixes_bytes(&self) -> usize {
        self.key_bytes - self.items * self.prefix_bytes
    }

    fn flags(&self) -> u8 {
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        let wide_keys = self.fixed_key.is_none() && self.suffixes_bytes() > NARROW_MAX;
        let wide_values = self.fixed_value.is_none() && self.value_bytes > NARROW_MAX;
        flag(self.fixed_key.is_some(), FIXED_KEYS)
            | flag(self.fixed_value.is_some(), FIXED_VALUES)
            | flag(self.kinds, KINDS)
            | flag(wide_keys || wide_values, WIDE)
            | flag(self.left_out > 0, PLACES_LEFT_OUT)
    }

    fn block_bytes(&self) -> usize {
        let flags = self.flags();
        let end_bytes = if flags & WIDE != 0 { 4 } else { 2 };
        let ends = usize::from(flags & FIXED_KEYS == 0) + usize::from(flags & FIXED_VALUES == 0);
        let per_item = 1 + usize::from(self.kinds) + ends * end_bytes;
        HEADER_BYTES + self.items * per_item + self.prefix_bytes + self.suffixes_bytes() + self.value_bytes
    }
}

/// Items of blocks that are not cut yet.
#[derive(Debug)]
pub(crate) struct DataBuilder {
    target_bytes: usize,
    compression: Compression,
    /// Buffer for compression. The compressed block is used only if it is small enough.
    compressed: Vec<u8>,
    /// Key and value of every pending item.
    bytes: Vec<u8>,
    items: Vec<Pending>,
    sums: Option<Sums>,
    /// Whether stored keys begin with their place.
    placed: bool,
    /// Bytes of each pending key that its block leaves out.
    left_out: usize,
    /// The quanta, chosen by the first block; none for keys without places.
    quanta: Option<Quanta>,
}

impl DataBuilder {
    /// `target_bytes`: a multiple of 512, and the size that a block aims at before compression.
    pub(crate) fn new(target_bytes: usize, compression: Compression) -> DataBuilder {
        assert!(target_bytes > 0 && target_bytes == extent_bytes(target_bytes), "a target is whole units");
        DataBuilder {
            target_bytes,
            compression,
            compressed: Vec::new(),
            bytes: Vec::new(),
            items: Vec::new(),
            sums: None,
            placed: false,
            left_out: 0,
            quanta: None,
        }
    }

    /// Like `new`, for stored keys of a hashed keyspace: blocks leave their places out.
    pub(crate) fn without_places(target_bytes: usize, compression: Compression) -> DataBuilder {
        DataBuilder { placed: true, left_out: PLACE_BYTES, ..DataBuilder::new(target_bytes, compression) }
    }

    /// Adds an item. Its key must be greater than all earlier ones; a delete has an empty value.
    pub(crate) fn add(&mut self, key: &[u8], tag: u8, kind: ItemKind, value: &[u8]) {
        debug_assert!(kind == ItemKind::Put || value.is_empty(), "a delete has no value");
        let key_at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let (key_bytes, value_bytes) = (key.len(), value.len());
        self.items.push(Pending { tag, kind, key_at, key_bytes, value_bytes, block_bytes: 0 });
        if key_bytes < self.left_out {
            // This key is the bound of a range and has no place.
            self.left_out = 0;
            self.size_all();
        } else {
            self.size(self.items.len() - 1);
        }
    }

    /// The quanta at whose bounds blocks begin.
    pub(crate) fn quanta(&self) -> Option<Quanta> {
        self.quanta
    }

    /// Items that are not cut yet.
    pub(crate) fn items(&self) -> usize {
        self.items.len()
    }

    /// Bytes of a block of all pending items, without padding.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.items.last().map_or(0, |item| item.block_bytes)
    }

    /// Memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.compressed.capacity() + self.items.capacity() * size_of::<Pending>()
    }

    /// The key of pending item `index`.
    pub(crate) fn key(&self, index: usize) -> &[u8] {
        let item = &self.items[index];
        &self.bytes[item.key_at..item.key_at + item.key_bytes]
    }

    /// Whether the first pending item alone forms a block of a large value. Its fence then holds its whole
    /// key.
    pub(crate) fn is_alone(&self, count: usize) -> bool {
        let item = &self.items[0];
        count == 1
            && item.kind == ItemKind::Put
            && item.key_bytes <= ALONE_KEY_BYTES_MAX
            && item.value_bytes >= ALONE_VALUE_BYTES_MIN
    }

    /// Bytes of a block of the first `count` pending items, without padding.
    pub(crate) fn block_bytes(&self, count: usize) -> usize {
        self.items[count - 1].block_bytes
    }

    /// The number of items of the next block, once that is decided.
    pub(crate) fn cut(&mut self) -> Option<usize> {
        let count = self.full_cut()?;
        if !self.placed || count == self.items.len() {
            return Some(count);
        }
        let ends = [0, count].map(|index| head(self.key(index)));
        let quanta = *self.quanta.get_or_insert_with(|| Quanta::of_block(count, ends));
        Some(self.cut_between(quanta, count))
    }

    /// The largest number of items, up to `count`, behind which another quantum begins; `count` if there is
    /// none.
    fn cut_between(&self, quanta: Quanta, count: usize) -> usize {
        let quantum = |index: usize| quanta.of(head(self.key(index)));
        let fewer = (1..=count).rev().find(|fewer| quantum(*fewer - 1) < quantum(*fewer));
        fewer.unwrap_or(count)
    }

    fn full_cut(&self) -> Option<usize> {
        let fit = |limit: usize| self.items.partition_point(|item| item.block_bytes <= limit);
        if self.pending_bytes() <= self.target_bytes {
            return None;
        }
        let in_target = fit(self.target_bytes);
        if in_target > 0 && self.items[in_target - 1].block_bytes * 100 >= self.target_bytes * FILL_PERCENT {
            return Some(in_target);
        }
        if self.pending_bytes() <= 2 * self.target_bytes {
            return None;
        }
        Some(self.best_cut(in_target, fit(2 * self.target_bytes)))
    }

    /// The count from `fewest` to `most` that fills its extent best; at least one item.
    fn best_cut(&self, fewest: usize, most: usize) -> usize {
        let mut best = (most.max(1), 0, 1);
        for count in fewest.max(1)..=most {
            let bytes = self.items[count - 1].block_bytes;
            let extent = extent_bytes(bytes).max(self.target_bytes);
            if bytes * best.2 > best.1 * extent {
                best = (count, bytes, extent);
            }
        }
        best.0
    }

    /// Removes the first `count` pending items and appends their block to `out`, sealed, and compressed if
    /// that saves enough. Returns the checksum.
    pub(crate) fn encode(&mut self, count: usize, context: Context, out: &mut Vec<u8>) -> u32 {
        let start = out.len();
        let (items, left_out) = (&self.items[..count], self.left_out);
        let mut sums = Sums::start(&items[0], left_out);
        // Keys ascend, so the common prefix of all is that of the first and the last.
        let of_last = self.shared_bytes(count - 1);
        let shared = |index| if left_out == 0 { of_last } else { self.shared_bytes(index) };
        (1..count).for_each(|index| sums.add(&items[index], shared(index)));
        let prefix_bytes = sums.prefix_bytes;
        let flags = sums.flags();
        let used = sums.block_bytes();
        write_header(out, flags, &sums, used);
        out.extend(items.iter().map(|item| item.tag));
        if sums.kinds {
            out.extend(items.iter().map(|item| item.kind as u8));
        }
        if sums.fixed_key.is_none() {
            put_ends(out, flags, items.iter().map(|item| item.key_bytes - left_out - prefix_bytes));
        }
        if sums.fixed_value.is_none() {
            put_ends(out, flags, items.iter().map(|item| item.value_bytes));
        }
        out.extend_from_slice(&self.key(0)[left_out..][..prefix_bytes]);
        for index in 0..count {
            out.extend_from_slice(&self.key(index)[left_out + prefix_bytes..]);
        }
        for item in items {
            let value_at = item.key_at + item.key_bytes;
            out.extend_from_slice(&self.bytes[value_at..value_at + item.value_bytes]);
        }
        assert_eq!(out.len() - start, used, "the block is as long as its sums say");
        if self.compression == Compression::Lz4 {
            compressed::compress(out, start, used, &mut self.compressed);
        }
        out.resize(extent_bytes(out.len() - start) + start, 0);
        self.forget(count);
        seal(&mut out[start..], context)
    }

    fn forget(&mut self, count: usize) {
        let bytes = self.items.get(count).map_or(self.bytes.len(), |item| item.key_at);
        self.bytes.drain(..bytes);
        self.items.drain(..count);
        self.items.iter_mut().for_each(|item| item.key_at -= bytes);
        let are_placed = self.placed && self.items.iter().all(|item| item.key_bytes >= PLACE_BYTES);
        self.left_out = if are_placed { PLACE_BYTES } else { 0 };
        self.size_all();
    }

    fn size_all(&mut self) {
        self.sums = None;
        (0..self.items.len()).for_each(|index| self.size(index));
    }

    /// Bytes of the common prefix of the key and the first key, behind the bytes that are left out.
    fn shared_bytes(&self, index: usize) -> usize {
        common_prefix(&self.key(0)[self.left_out..], &self.key(index)[self.left_out..])
    }

    /// Updates the sums up to item `index`, and stores the size of a block that ends with this item.
    fn size(&mut self, index: usize) {
        let (shared_bytes, left_out) = (self.shared_bytes(index), self.left_out);
        let item = &mut self.items[index];
        let sums = match self.sums {
            None => Sums::start(item, left_out),
            Some(mut sums) => {
                sums.add(item, shared_bytes);
                sums
            }
        };
        item.block_bytes = sums.block_bytes();
        self.sums = Some(sums);
    }
}

fn write_header(out: &mut Vec<u8>, flags: u8, sums: &Sums, used: usize) {
    let narrow = |value: usize| u16::try_from(value).expect("blocks are too small for more");
    let suffix_bytes = sums.fixed_key.map_or(0, |bytes| bytes - sums.left_out - sums.prefix_bytes);
    let value_bytes = sums.fixed_value.unwrap_or(0);
    let wide = |value: usize| u32::try_from(value).expect("blocks are too small for more");
    out.extend_from_slice(&[0; 5]);
    out.push(flags);
    out.extend_from_slice(&narrow(sums.items).to_le_bytes());
    out.extend_from_slice(&wide(used).to_le_bytes());
    out.extend_from_slice(&narrow(sums.prefix_bytes).to_le_bytes());
    out.extend_from_slice(&narrow(suffix_bytes).to_le_bytes());
    out.extend_from_slice(&wide(value_bytes).to_le_bytes());
}

fn put_ends(out: &mut Vec<u8>, flags: u8, lengths: impl Iterator<Item = usize>) {
    let mut end = 0;
    for length in lengths {
        end += length;
        if flags & WIDE != 0 {
            out.extend_from_slice(&u32::try_from(end).expect("a block is below 4 GiB").to_le_bytes());
        } else {
            out.extend_from_slice(&u16::try_from(end).expect("narrow blocks end below 64 KiB").to_le_bytes());
        }
    }
}
