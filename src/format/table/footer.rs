//! Footer and tail page: the slices of a table file, and the offsets of their parts.
//!
//! `table::build` encodes both, `table::open` decodes them. Plain values.
//!
//! Footer:
//! ```text
//! offset size type name: meaning
//! 0      4    u32  checksum
//! 4      1    u8   tag: 5
//! 5      3         zero
//! 8      4    u32  used: bytes to the end of the last slice
//! 12     4    u32  slices: at least 1
//! 16     4    u32  blocks checksum: CRC32C over the checksums of all blocks and pages before the footer
//! 20     4         zero
//! 24               slices, ascending by keyspace and partition:
//!   0    4    u32    keyspace
//!   4    4    u32    partition
//!   8    8    u64    items: at least 1, below 2^32
//!   16   8    u64    tombstones: of them
//!   24   8    u64    key and value bytes
//!   32   8    u64    data offset
//!   40   8    u64    data bytes
//!   48   4    u32    data blocks: at least 1
//!   52   4    u32    filter pages
//!   56   8    u64    filter offset: zero without filter pages
//!   64   4    u32    filter page bytes
//!   68   1    u8     filter probes
//!   69   1    u8     filter kind: zero without filter pages
//!   70   1    u8     bits of a column's name \ of column pages alone (`filter::column`),
//!   71   1    u8     columns a page        / zero without
//!   72   8    u64    fence offset: zero without fence pages
//!   80   4    u32    fence pages: zero exactly if there is one data block
//!   84   4    u32    fence page bytes
//!   88   8    u64    top offset: zero without fence pages
//!   96   4    u32    top bytes
//!   100  4    u32    ranges: range tombstones
//!   104  8    u64    ranges offset: zero without ranges
//!   112  4    u32    ranges bytes
//!   116  2    u16    length of the first key
//!   118  2    u16    length of the last key
//!   120              first key, last key: of the items; ranges may reach beyond
//!                  zero to the end of the extent, < 512
//! ```
//! Tail, the last 4096 bytes of the file:
//! ```text
//! offset size type name: meaning
//! 0      4    u32  checksum
//! 4      1    u8   tag: 6
//! 5      3         zero
//! 8      8    u64  footer offset
//! 16     4    u32  footer bytes: from the footer's offset to the tail
//! 20     4076      zero
//! ```

use crate::base::codec::{ByteReader, Malformed};
use crate::base::id::{KeyspaceId, PartitionId, TreeId};

use super::filter::column::ColumnShape;
use super::filter::{FilterKind, FilterShape};
use super::{DATA_BLOCK_BYTES_MAX, FOOTER_TAG, PAGE_BYTES, TAIL_TAG, UNIT_BYTES, extent_bytes};

/// Maximum items of a slice, and maximum bytes of a file up to its footer: readers count items and units in
/// 32 bits.
const ITEMS_MAX: u64 = u32::MAX as u64;
const FILE_BYTES_MAX: u64 = u32::MAX as u64 * UNIT_BYTES as u64;

/// A range of bytes of the file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Span {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Span {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// The footer's entry for one slice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SliceEntry {
    pub(crate) tree: TreeId,
    pub(crate) items: u64,
    pub(crate) tombstones: u64,
    pub(crate) key_value_bytes: u64,
    pub(crate) data: Span,
    pub(crate) data_blocks: u32,
    pub(crate) filter_offset: u64,
    pub(crate) filter: FilterShape,
    pub(crate) fence_offset: u64,
    pub(crate) fence_pages: u32,
    pub(crate) fence_page_bytes: u32,
    pub(crate) top: Span,
    pub(crate) ranges_count: u32,
    pub(crate) ranges: Span,
    /// First and last key of the items.
    pub(crate) min: Box<[u8]>,
    pub(crate) max: Box<[u8]>,
}

impl SliceEntry {
    pub(crate) fn filter_span(&self) -> Span {
        Span { offset: self.filter_offset, bytes: self.filter.bytes() }
    }

    pub(crate) fn fence_span(&self) -> Span {
        let bytes = u64::from(self.fence_pages) * u64::from(self.fence_page_bytes);
        Span { offset: self.fence_offset, bytes }
    }

    /// The bytes from the first data block to the end of the slice's last part.
    pub(crate) fn span(&self) -> Span {
        let end = self.data.end().max(self.filter_span().end()).max(self.fence_span().end());
        let end = end.max(self.top.end()).max(self.ranges.end());
        Span { offset: self.data.offset, bytes: end - self.data.offset }
    }
}

/// The contents of a footer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Footer {
    pub(crate) blocks_checksum: u32,
    pub(crate) slices: Vec<SliceEntry>,
}

impl Footer {
    /// The footer, not sealed.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn encode(&self) -> Vec<u8> {
        Footer::encode_of(self.blocks_checksum, self.slices.iter().cloned())
    }

    /// The footer of these slices, not sealed.
    pub(crate) fn encode_of(
        blocks_checksum: u32,
        slices: impl ExactSizeIterator<Item = SliceEntry>,
    ) -> Vec<u8> {
        let narrow = |value: usize| u32::try_from(value).expect("a footer is below 4 GiB").to_le_bytes();
        let mut out = vec![0, 0, 0, 0, FOOTER_TAG, 0, 0, 0, 0, 0, 0, 0];
        out.extend_from_slice(&narrow(slices.len()));
        out.extend_from_slice(&blocks_checksum.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        slices.for_each(|slice| slice.encode(&mut out));
        let used = narrow(out.len());
        out[8..12].copy_from_slice(&used);
        out.resize(extent_bytes(out.len()), 0);
        out
    }

    /// Decodes the footer at `offset` of its file, and checks that every span lies in the file. The caller
    /// checks the checksum.
    pub(crate) fn decode(block: &[u8], offset: u64) -> Result<Footer, Malformed> {
        let mut reader = ByteReader::new(block);
        reader.bytes(5, "footer")?;
        reader.zeros(3, "padding of a footer")?;
        let used = reader.u32("used bytes of a footer")?;
        let count = reader.u32("slices of a footer")?;
        let blocks_checksum = reader.u32("blocks checksum")?;
        reader.zeros(4, "padding of a footer")?;
        if count == 0 {
            return Err(reader.malformed("slices of a footer", 1, 0));
        }
        let mut slices: Vec<SliceEntry> = Vec::new();
        let mut end = PAGE_BYTES as u64;
        for _ in 0..count {
            let slice = SliceEntry::decode(&mut reader, end, offset)?;
            if slices.last().is_some_and(|before| !before.is_before(&slice)) {
                let partition = u64::from(slice.tree.partition.0);
                return Err(reader.malformed("order of slices", 1 + partition, partition));
            }
            end = slice.span().end();
            slices.push(slice);
        }
        if reader.at() != used as usize || block.len() != extent_bytes(used as usize) {
            return Err(reader.malformed("used bytes of a footer", reader.at() as u64, u64::from(used)));
        }
        reader.zeros(reader.remaining(), "padding of a footer")?;
        Ok(Footer { blocks_checksum, slices })
    }
}

impl SliceEntry {
    /// Whether `next` may follow this slice: it belongs to a later tree, or to later keys of the same trie,
    /// in which each node has its own slice.
    fn is_before(&self, next: &SliceEntry) -> bool {
        self.tree < next.tree
            || self.tree == next.tree && next.tree.keyspace.is_hashed() && self.max < next.min
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let length = |key: &[u8]| u16::try_from(key.len()).expect("keys are below 64 KiB").to_le_bytes();
        out.extend_from_slice(&self.tree.keyspace.0.to_le_bytes());
        out.extend_from_slice(&self.tree.partition.0.to_le_bytes());
        for value in [self.items, self.tombstones, self.key_value_bytes, self.data.offset, self.data.bytes] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.data_blocks.to_le_bytes());
        out.extend_from_slice(&self.filter.pages.to_le_bytes());
        out.extend_from_slice(&self.filter_offset.to_le_bytes());
        out.extend_from_slice(&self.filter.page_bytes.to_le_bytes());
        out.extend_from_slice(&[self.filter.probes, self.filter.kind as u8]);
        out.extend_from_slice(&[self.filter.columns.bits, self.filter.columns.a_page]);
        out.extend_from_slice(&self.fence_offset.to_le_bytes());
        out.extend_from_slice(&self.fence_pages.to_le_bytes());
        out.extend_from_slice(&self.fence_page_bytes.to_le_bytes());
        out.extend_from_slice(&self.top.offset.to_le_bytes());
        let top_bytes = u32::try_from(self.top.bytes).expect("a top block is below 4 GiB");
        out.extend_from_slice(&top_bytes.to_le_bytes());
        out.extend_from_slice(&self.ranges_count.to_le_bytes());
        out.extend_from_slice(&self.ranges.offset.to_le_bytes());
        let ranges_bytes = u32::try_from(self.ranges.bytes).expect("range blocks are below 4 GiB");
        out.extend_from_slice(&ranges_bytes.to_le_bytes());
        out.extend_from_slice(&length(&self.min));
        out.extend_from_slice(&length(&self.max));
        out.extend_from_slice(&self.min);
        out.extend_from_slice(&self.max);
    }

    /// Decodes a slice. Its parts must lie, in order, from `start` to `end` of the file.
    fn decode(reader: &mut ByteReader<'_>, start: u64, end: u64) -> Result<SliceEntry, Malformed> {
        let keyspace = KeyspaceId(reader.u32("keyspace of a slice")?);
        let partition = PartitionId(reader.u32("partition of a slice")?);
        let items = reader.u64("items of a slice")?;
        let tombstones = reader.u64("tombstones of a slice")?;
        let key_value_bytes = reader.u64("key and value bytes of a slice")?;
        let data = Span { offset: reader.u64("data offset")?, bytes: reader.u64("data bytes")? };
        let data_blocks = reader.u32("data blocks of a slice")?;
        let filter_pages = reader.u32("filter pages of a slice")?;
        let filter_offset = reader.u64("filter offset")?;
        let page_bytes = reader.u32("filter page bytes")?;
        let (probes, kind) = (reader.u8("filter probes")?, reader.u8("filter kind")?);
        let Some(kind) = FilterKind::from_byte(kind) else {
            return Err(reader.malformed("filter kind", FilterKind::Column as u64, u64::from(kind)));
        };
        let (bits, a_page) = (reader.u8("bits of a column")?, reader.u8("columns a page")?);
        let columns = ColumnShape { bits, a_page };
        let filter = FilterShape { kind, pages: filter_pages, page_bytes, probes, columns };
        let fence_offset = reader.u64("fence offset")?;
        let fence_pages = reader.u32("fence pages of a slice")?;
        let fence_page_bytes = reader.u32("fence page bytes")?;
        let top = Span { offset: reader.u64("top offset")?, bytes: u64::from(reader.u32("top bytes")?) };
        let ranges_count = reader.u32("ranges of a slice")?;
        let ranges =
            Span { offset: reader.u64("ranges offset")?, bytes: u64::from(reader.u32("ranges bytes")?) };
        let min_bytes = reader.u16("length of the first key")?;
        let max_bytes = reader.u16("length of the last key")?;
        let min = reader.bytes(usize::from(min_bytes), "first key of a slice")?.into();
        let max = reader.bytes(usize::from(max_bytes), "last key of a slice")?.into();
        let slice = SliceEntry {
            tree: TreeId { keyspace, partition },
            items,
            tombstones,
            key_value_bytes,
            data,
            data_blocks,
            filter_offset,
            filter,
            fence_offset,
            fence_pages,
            fence_page_bytes,
            top,
            ranges_count,
            ranges,
            min,
            max,
        };
        slice.check_counts(reader)?;
        slice.check_spans(reader, start, end)?;
        Ok(slice)
    }

    fn check_counts(&self, reader: &ByteReader<'_>) -> Result<(), Malformed> {
        let fail = |what, expected, found| Err(reader.malformed(what, expected, found));
        if self.tree.keyspace.0 == 0 || self.tree.partition.0 == 0 {
            return fail("ids of a slice", 1, 0);
        }
        if self.items == 0 || self.items > ITEMS_MAX || self.tombstones > self.items {
            return fail("items of a slice", self.tombstones.max(1), self.items);
        }
        if self.data_blocks == 0 || u64::from(self.data_blocks) > self.items {
            return fail("data blocks of a slice", self.items, u64::from(self.data_blocks));
        }
        if self.min > self.max || (self.min == self.max) != (self.items == 1) {
            return fail("order of the first and last key", 1, self.items);
        }
        let are_columns = self.filter.kind == FilterKind::Column;
        if !self.filter.is_valid() || are_columns && !self.tree.keyspace.is_hashed() {
            return fail("filter of a slice", PAGE_BYTES as u64, u64::from(self.filter.page_bytes));
        }
        if (self.fence_pages == 0) != (self.data_blocks == 1) || self.fence_pages > self.data_blocks {
            return fail("fence pages of a slice", u64::from(self.data_blocks), u64::from(self.fence_pages));
        }
        let page_bytes = self.fence_page_bytes as usize;
        let page_bytes_valid = match self.fence_pages {
            0 => page_bytes == 0,
            1 => page_bytes > 0 && page_bytes <= PAGE_BYTES && page_bytes.is_multiple_of(UNIT_BYTES),
            _ => page_bytes == PAGE_BYTES,
        };
        if !page_bytes_valid {
            return fail("fence page bytes", PAGE_BYTES as u64, page_bytes as u64);
        }
        if self.data_blocks == 1 && self.data.bytes > DATA_BLOCK_BYTES_MAX as u64 {
            return fail("data bytes of one block", DATA_BLOCK_BYTES_MAX as u64, self.data.bytes);
        }
        Ok(())
    }

    fn check_spans(&self, reader: &ByteReader<'_>, start: u64, end: u64) -> Result<(), Malformed> {
        let fail = |what, expected, found| Err(reader.malformed(what, expected, found));
        if end > FILE_BYTES_MAX {
            return fail("offset of a footer", FILE_BYTES_MAX, end);
        }
        let (has_fences, has_ranges) = (self.fence_pages > 0, self.ranges_count > 0);
        let present = [true, self.filter.pages > 0, has_fences, has_fences, has_ranges];
        let spans = [self.data, self.filter_span(), self.fence_span(), self.top, self.ranges];
        let mut at = start;
        for (span, present) in spans.into_iter().zip(present) {
            if !present {
                if span != Span::default() {
                    return fail("offset of an absent part", 0, span.offset.max(span.bytes));
                }
                continue;
            }
            let whole = [span.offset, span.bytes].iter().all(|value| value.is_multiple_of(UNIT_BYTES as u64));
            if !whole || span.bytes == 0 || span.offset < at || span.offset - at >= PAGE_BYTES as u64 {
                return fail("place of a part of a slice", at, span.offset);
            }
            at = match span.offset.checked_add(span.bytes) {
                Some(part_end) if part_end <= end => part_end,
                _ => return fail("end of a part of a slice", end, span.bytes),
            };
        }
        Ok(())
    }
}

/// The tail page with the footer's span, not sealed.
pub(crate) fn encode_tail(footer: Span) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 0, TAIL_TAG, 0, 0, 0];
    out.extend_from_slice(&footer.offset.to_le_bytes());
    let bytes = u32::try_from(footer.bytes).expect("a footer is below 4 GiB");
    out.extend_from_slice(&bytes.to_le_bytes());
    out.resize(PAGE_BYTES, 0);
    out
}

/// The footer's span, from the tail page at `offset`. The caller checks the checksum.
pub(crate) fn decode_tail(page: &[u8], offset: u64) -> Result<Span, Malformed> {
    let mut reader = ByteReader::new(page);
    reader.bytes(5, "tail page")?;
    reader.zeros(3, "padding of a tail page")?;
    let footer = Span { offset: reader.u64("footer offset")?, bytes: u64::from(reader.u32("footer bytes")?) };
    let whole = footer.offset.is_multiple_of(UNIT_BYTES as u64) && footer.bytes > 0;
    if !whole || footer.offset < PAGE_BYTES as u64 || footer.offset.checked_add(footer.bytes) != Some(offset)
    {
        return Err(reader.malformed("footer offset", offset.saturating_sub(footer.bytes), footer.offset));
    }
    reader.zeros(reader.remaining(), "padding of a tail page")?;
    if page.len() == PAGE_BYTES {
        Ok(footer)
    } else {
        Err(reader.malformed("length of a tail page", PAGE_BYTES as u64, page.len() as u64))
    }
}

#[cfg(test)]
#[path = "footer/tests.rs"]
mod tests;
