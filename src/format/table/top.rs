//! Top block: the complete first separator of every fence page of a slice. Read at open, always in memory.
//!
//! `table::build` encodes it, `table::open` decodes it into [`Top`], which searches. Immutable and shared
//! freely.
//!
//! ```text
//! offset size      type name: meaning
//! 0      4         u32  checksum
//! 4      1         u8   tag: 4
//! 5      3              zero
//! 8      4         u32  pages: n, fence pages of the slice, at least 1
//! 12     4         u32  used: bytes to the end of the separators
//! 16     n × 2     u16  lengths: of the separators
//!                       separators: strictly ascending; the first is the slice's first key
//!                       zero to the end of the extent, < 512
//! ```

use crate::base::codec::{ByteReader, Malformed};
use crate::base::key::{common_prefix, head};

use super::{TOP_TAG, extent_bytes};

const HEADER_BYTES: usize = 16;

/// The first level of a slice's index, in memory.
#[derive(Default, Debug)]
pub(crate) struct Top {
    /// All columns in one allocation, because there are many slices: the head of each separator behind the
    /// prefix, then the end of each separator, then the separators.
    columns: Box<[u8]>,
    pages: u32,
    /// Bytes of the common prefix of all separators.
    prefix_bytes: u32,
}

const HEAD_BYTES: usize = 8;
const END_BYTES: usize = 4;

/// The top block with these separators, not sealed.
pub(crate) fn encode<'a>(separators: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> Vec<u8> {
    let bytes: usize = separators.clone().map(|separator| 2 + separator.len()).sum();
    let used = HEADER_BYTES + bytes;
    let narrow = |value: usize| u32::try_from(value).expect("a slice is below 4 GiB").to_le_bytes();
    let mut out = Vec::with_capacity(extent_bytes(used));
    out.extend_from_slice(&[0, 0, 0, 0, TOP_TAG, 0, 0, 0]);
    out.extend_from_slice(&narrow(separators.len()));
    out.extend_from_slice(&narrow(used));
    for separator in separators.clone() {
        let length = u16::try_from(separator.len()).expect("separators are not longer than keys");
        out.extend_from_slice(&length.to_le_bytes());
    }
    separators.for_each(|separator| out.extend_from_slice(separator));
    out.resize(extent_bytes(used), 0);
    out
}

impl Top {
    /// Decodes the top block of a slice with `pages` fence pages. The caller checks the checksum.
    pub(crate) fn decode(block: &[u8], pages: u32) -> Result<Top, Malformed> {
        let mut reader = ByteReader::new(block);
        reader.bytes(5, "top block")?;
        reader.zeros(3, "padding of a top block")?;
        let found = reader.u32("pages in a top block")?;
        if found != pages || pages == 0 {
            return Err(reader.malformed("pages in a top block", u64::from(pages), u64::from(found)));
        }
        let used = reader.u32("used bytes of a top block")?;
        let lengths = reader.bytes((pages as usize).saturating_mul(2), "lengths in a top block")?;
        let lengths = lengths.as_chunks::<2>().0.iter().map(|length| u32::from(u16::from_le_bytes(*length)));
        let ends = lengths.scan(0u32, |end, length| {
            *end = end.saturating_add(length);
            Some(*end)
        });
        let all_bytes = ends.clone().last().unwrap_or(0);
        let separators = reader.bytes(all_bytes as usize, "separators of a top block")?;
        if reader.at() != used as usize || block.len() != extent_bytes(used as usize) {
            return Err(reader.malformed("used bytes of a top block", reader.at() as u64, u64::from(used)));
        }
        reader.zeros(reader.remaining(), "padding of a top block")?;
        let heads_bytes = pages as usize * HEAD_BYTES;
        let mut columns = vec![0; heads_bytes];
        columns.reserve_exact(pages as usize * END_BYTES + separators.len());
        ends.for_each(|end| columns.extend_from_slice(&end.to_le_bytes()));
        columns.extend_from_slice(separators);
        let mut top = Top { columns: columns.into(), pages, prefix_bytes: 0 };
        for index in 1..top.pages() {
            if top.separator(index - 1) >= top.separator(index) {
                return Err(Malformed {
                    at: HEADER_BYTES + index * 2,
                    what: "order of separators in a top block",
                    expected: index as u64,
                    found: index as u64 - 1,
                });
            }
        }
        let prefix_bytes = common_prefix(top.separator(0), top.separator(top.pages() - 1));
        for index in 0..top.pages() {
            let head = head(&top.separator(index)[prefix_bytes..]).to_le_bytes();
            top.columns[index * HEAD_BYTES..][..HEAD_BYTES].copy_from_slice(&head);
        }
        top.prefix_bytes = prefix_bytes as u32;
        Ok(top)
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages as usize
    }

    #[inline]
    fn heads(&self) -> &[[u8; HEAD_BYTES]] {
        self.columns[..self.pages() * HEAD_BYTES].as_chunks().0
    }

    #[inline]
    fn end(&self, page: usize) -> usize {
        let ends = self.columns[self.pages() * HEAD_BYTES..].as_chunks::<END_BYTES>().0;
        u32::from_le_bytes(ends[page]) as usize
    }

    /// The first separator of a fence page.
    #[inline]
    pub(crate) fn separator(&self, page: usize) -> &[u8] {
        let start = if page == 0 { 0 } else { self.end(page - 1) };
        let separators = &self.columns[self.pages() * (HEAD_BYTES + END_BYTES)..];
        &separators[start..self.end(page)]
    }

    /// The fence page that must list the block of `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> usize {
        if self.pages <= 1 {
            return 0;
        }
        let prefix = &self.separator(0)[..self.prefix_bytes as usize];
        let Some(rest) = key.strip_prefix(prefix) else {
            return if key < prefix { 0 } else { self.pages() - 1 };
        };
        let target = head(rest);
        let heads = self.heads();
        let mut not_after = heads.partition_point(|head| u64::from_le_bytes(*head) <= target);
        if not_after > 0 && u64::from_le_bytes(heads[not_after - 1]) == target {
            not_after = self.tied(key, target, not_after);
        }
        not_after.saturating_sub(1)
    }

    /// The number of separators at or before `key`, if the heads of all separators before `end` are at most
    /// `target`.
    fn tied(&self, key: &[u8], target: u64, end: usize) -> usize {
        let (mut low, mut high) =
            (self.heads().partition_point(|head| u64::from_le_bytes(*head) < target), end);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.separator(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.columns.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::checksum::Context;
    use crate::format::golden::Golden;
    use crate::format::table::{UNIT_BYTES, seal};

    fn block(separators: &[&[u8]]) -> Vec<u8> {
        let mut block = encode(separators.iter().copied());
        seal(&mut block, Context { file_uid: 1, offset: 0, tag: TOP_TAG });
        block
    }

    /// Search agrees with a linear one, for shared prefixes, equal heads and zero bytes.
    #[test]
    fn search_is_exact() {
        let long = [b'x'; 300];
        let sets: [&[&[u8]]; 4] = [
            &[b""],
            &[b"", b"\0", b"\0\0", b"a", b"a\0"],
            &[b"tenant-00000001", b"tenant-000000010", b"tenant-00000002", b"tenant-1"],
            &[b"12345678", b"12345678\0", b"12345678a", b"12345678b", b"123456789", &long],
        ];
        for separators in sets {
            let mut sorted = separators.to_vec();
            sorted.sort_unstable();
            let top = Top::decode(&block(&sorted), sorted.len() as u32).expect("encoded");
            let mut keys: Vec<Vec<u8>> = vec![vec![], b"zzz".to_vec(), b"t".to_vec(), b"tenant-0".to_vec()];
            for separator in &sorted {
                keys.push(separator.to_vec());
                keys.push([separator, &b"\0"[..]].concat());
                keys.push([separator, &b"zz"[..]].concat());
                keys.push(separator[..separator.len().saturating_sub(1)].to_vec());
            }
            for key in keys {
                let expected = sorted.partition_point(|one| *one <= key.as_slice()).saturating_sub(1);
                assert_eq!(top.find(&key), expected, "{key:?} in {sorted:?}");
            }
        }
    }

    /// A block of three separators.
    #[test]
    fn golden() {
        let mut block = encode([&b"aa"[..], b"mm-2", b"y"].into_iter());
        seal(&mut block, Context { file_uid: 7, offset: 20_480, tag: TOP_TAG });
        let mut golden = Golden::new("table_top", &block);
        golden.heading("top block at offset 20480 of file uid 7");
        for (caption, count) in [
            ("checksum", 4),
            ("tag", 1),
            ("zero", 3),
            ("pages", 4),
            ("used", 4),
            ("lengths", 6),
            ("separator", 2),
            ("separator", 4),
            ("separator", 1),
        ] {
            golden.field(caption, count);
        }
        golden.zeros_to("padding", UNIT_BYTES);
        golden.check();
    }

    /// Every check of the decoder has an input that trips it.
    #[test]
    fn malformed_blocks_are_refused() {
        let good = block(&[b"a", b"bc"]);
        let refused = |block: &[u8], pages, what| {
            let found = Top::decode(block, pages).map(|_| ()).map_err(|malformed| malformed.what);
            assert_eq!(found, Err(what));
        };
        assert!(Top::decode(&good, 2).is_ok());
        for (bytes, what) in [
            (4, "top block"),
            (7, "padding of a top block"),
            (11, "pages in a top block"),
            (15, "used bytes of a top block"),
            (19, "lengths in a top block"),
            (22, "separators of a top block"),
            (511, "used bytes of a top block"),
        ] {
            refused(&good[..bytes], 2, what);
        }
        for (at, byte, what) in [
            (5, 1, "padding of a top block"),
            (7, 1, "padding of a top block"),
            (8, 3, "pages in a top block"),
            (12, 24, "used bytes of a top block"),
            (13, 2, "used bytes of a top block"),
            (16, 200, "used bytes of a top block"),
            (17, 255, "separators of a top block"),
            (18, 3, "used bytes of a top block"),
            (20, b'c', "order of separators in a top block"),
            (23, 1, "padding of a top block"),
            (511, 1, "padding of a top block"),
        ] {
            let mut bad = good.clone();
            bad[at] = byte;
            refused(&bad, 2, what);
        }
        refused(&block(&[b"a", b"a"]), 2, "order of separators in a top block");
        refused(&good, 1, "pages in a top block");
        let mut none = good.clone();
        none[8] = 0;
        refused(&none, 0, "pages in a top block");
        let mut long = good.clone();
        long.resize(2 * UNIT_BYTES, 0);
        refused(&long, 2, "used bytes of a top block");
        let mut huge = good;
        huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        refused(&huge, u32::MAX, "lengths in a top block");
    }
}
