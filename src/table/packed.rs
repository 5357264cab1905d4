//! A slice's footer entry in memory: a third of the bytes, since there are many slices.
//!
//! Offsets and lengths are in units of the file, and both keys lie in one allocation. `SliceEntry` documents
//! the values; its decoder checks that they fit. Immutable, for any thread.

use crate::base::id::TreeId;
use crate::format::table::UNIT_BYTES;
use crate::format::table::filter::FilterShape;
use crate::format::table::footer::{SliceEntry, Span};

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PackedEntry {
    pub(super) tree: TreeId,
    pub(super) key_value_bytes: u64,
    /// The first key, then the last.
    keys: Box<[u8]>,
    items: u32,
    tombstones: u32,
    pub(super) data_blocks: u32,
    pub(super) filter: FilterShape,
    pub(super) fence_pages: u32,
    pub(super) ranges_count: u32,
    data: Units,
    top: Units,
    ranges: Units,
    filter_at: u32,
    fence_at: u32,
    fence_page_units: u16,
    min_bytes: u16,
}

/// A span, in units of 512 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Units {
    at: u32,
    count: u32,
}

impl Units {
    fn of(span: Span) -> Units {
        Units { at: units(span.offset), count: units(span.bytes) }
    }

    fn span(self) -> Span {
        Span { offset: bytes(self.at), bytes: bytes(self.count) }
    }
}

fn units(bytes: u64) -> u32 {
    debug_assert!(bytes.is_multiple_of(UNIT_BYTES as u64));
    u32::try_from(bytes / UNIT_BYTES as u64).expect("the footer's check bounds places")
}

#[inline]
fn bytes(units: u32) -> u64 {
    u64::from(units) * UNIT_BYTES as u64
}

impl PackedEntry {
    /// Packs an entry that was decoded or that a builder made.
    pub(super) fn of(entry: &SliceEntry) -> PackedEntry {
        let count = |count| u32::try_from(count).expect("the footer's check bounds items");
        let page_units = units(u64::from(entry.fence_page_bytes));
        PackedEntry {
            tree: entry.tree,
            key_value_bytes: entry.key_value_bytes,
            keys: [&*entry.min, &*entry.max].concat().into(),
            items: count(entry.items),
            tombstones: count(entry.tombstones),
            data_blocks: entry.data_blocks,
            filter: entry.filter,
            fence_pages: entry.fence_pages,
            ranges_count: entry.ranges_count,
            data: Units::of(entry.data),
            top: Units::of(entry.top),
            ranges: Units::of(entry.ranges),
            filter_at: units(entry.filter_offset),
            fence_at: units(entry.fence_offset),
            fence_page_units: u16::try_from(page_units).expect("a fence page is no longer than a page"),
            min_bytes: u16::try_from(entry.min.len()).expect("keys are below 64 KiB"),
        }
    }

    pub(super) fn unpack(&self) -> SliceEntry {
        SliceEntry {
            tree: self.tree,
            items: self.items(),
            tombstones: self.tombstones(),
            key_value_bytes: self.key_value_bytes,
            data: self.data(),
            data_blocks: self.data_blocks,
            filter_offset: self.filter_offset(),
            filter: self.filter,
            fence_offset: self.fence_offset(),
            fence_pages: self.fence_pages,
            fence_page_bytes: self.fence_page_bytes(),
            top: self.top(),
            ranges_count: self.ranges_count,
            ranges: self.ranges(),
            min: self.min().into(),
            max: self.max().into(),
        }
    }

    pub(super) fn items(&self) -> u64 {
        u64::from(self.items)
    }

    pub(super) fn tombstones(&self) -> u64 {
        u64::from(self.tombstones)
    }

    #[inline]
    pub(super) fn min(&self) -> &[u8] {
        &self.keys[..usize::from(self.min_bytes)]
    }

    #[inline]
    pub(super) fn max(&self) -> &[u8] {
        &self.keys[usize::from(self.min_bytes)..]
    }

    pub(super) fn data(&self) -> Span {
        self.data.span()
    }

    pub(super) fn filter_offset(&self) -> u64 {
        bytes(self.filter_at)
    }

    pub(super) fn filter_span(&self) -> Span {
        Span { offset: self.filter_offset(), bytes: self.filter.bytes() }
    }

    pub(super) fn fence_offset(&self) -> u64 {
        bytes(self.fence_at)
    }

    pub(super) fn fence_page_bytes(&self) -> u32 {
        u32::from(self.fence_page_units) * UNIT_BYTES as u32
    }

    pub(super) fn fence_span(&self) -> Span {
        let bytes = u64::from(self.fence_pages) * u64::from(self.fence_page_bytes());
        Span { offset: self.fence_offset(), bytes }
    }

    pub(super) fn top(&self) -> Span {
        self.top.span()
    }

    pub(super) fn ranges(&self) -> Span {
        self.ranges.span()
    }

    /// From the first data block to the end of the slice's last part.
    pub(super) fn span(&self) -> Span {
        let data = self.data();
        let parts = [data, self.filter_span(), self.fence_span(), self.top(), self.ranges()];
        let end = parts.iter().map(Span::end).max().unwrap_or(0);
        Span { offset: data.offset, bytes: end - data.offset }
    }

    /// Memory beside the struct itself.
    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{KeyspaceId, PartitionId};
    use crate::format::table::filter::FilterKind;
    use crate::format::table::footer::Footer;

    fn entry(end: u64, key_bytes: usize) -> SliceEntry {
        let part = |units_before_end: u64| end - units_before_end * UNIT_BYTES as u64;
        let unit = |units_before_end| Span { offset: part(units_before_end), bytes: UNIT_BYTES as u64 };
        SliceEntry {
            tree: TreeId { keyspace: KeyspaceId(3), partition: PartitionId(5) },
            items: u64::from(u32::MAX),
            tombstones: u64::from(u32::MAX),
            key_value_bytes: u64::MAX,
            data: Span { offset: 4096, bytes: part(4) - 4096 },
            data_blocks: u32::MAX,
            filter_offset: part(4),
            filter: FilterShape {
                kind: FilterKind::Line,
                pages: 1,
                page_bytes: UNIT_BYTES as u32,
                probes: 6,
                ..FilterShape::NONE
            },
            fence_offset: part(3),
            fence_pages: 1,
            fence_page_bytes: UNIT_BYTES as u32,
            top: unit(2),
            ranges_count: u32::MAX,
            ranges: unit(1),
            min: vec![0; key_bytes].into(),
            max: vec![1; key_bytes].into(),
        }
    }

    fn check(slice: &SliceEntry) {
        let packed = PackedEntry::of(slice);
        assert_eq!((packed.unpack(), packed.span()), (slice.clone(), slice.span()));
    }

    /// Every entry that decodes unpacks to itself, up to the largest values, for damaged footers too.
    #[test]
    fn decodable_entries_unpack_to_themselves() {
        let end_max = bytes(u32::MAX);
        for end in [end_max, 1 << 20] {
            let footer = Footer { blocks_checksum: 1, slices: vec![entry(end, 65_535)] };
            assert_eq!(Footer::decode(&footer.encode(), end).as_ref(), Ok(&footer));
            check(&footer.slices[0]);
        }
        let over = Footer { blocks_checksum: 1, slices: vec![entry(end_max + UNIT_BYTES as u64, 1)] };
        assert!(Footer::decode(&over.encode(), end_max + UNIT_BYTES as u64).is_err());
        let good = Footer { blocks_checksum: 1, slices: vec![entry(1 << 20, 1)] }.encode();
        let (mut state, mut decoded) = (88_172_645_463_325_252u64, 0);
        for _ in 0..100_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let (mut bad, at) = (good.clone(), 24 + (state >> 8) as usize % 122);
            bad[at] = if state.is_multiple_of(2) { (state >> 32) as u8 } else { 0 };
            let offset = [1 << 20, end_max, u64::MAX / 512 * 512, 1 << 21][(state >> 40) as usize % 4];
            if let Ok(footer) = Footer::decode(&bad, offset) {
                footer.slices.iter().for_each(check);
                decoded += 1;
            }
        }
        assert!(decoded > 1000, "{decoded}");
    }
}
