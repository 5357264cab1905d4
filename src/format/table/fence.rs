//! Fence pages, reading side: they give the data block that must hold a key. Writing is in `fence_build`.
//!
//! A fence page lists a few hundred adjacent data blocks of a slice by their separators. separator(b) is the
//! shortest string with last key of block b-1 < separator(b) ≤ first key of block b. The page's first
//! separator is stored only in the top block, and the page's prefix is the start of that separator. Search is
//! a binary search on eight bytes of each separator as a number; further bytes are compared only if these
//! tie. The result is always exact.
//!
//! ```text
//! offset size          type name: meaning
//! 0      4             u32  checksum
//! 4      1             u8   tag: 3
//! 5      1             u8   flags: 1 all blocks of the page but the last have one length, 2 some separator
//!                           has more than eight bytes behind the prefix, 4 the page has quanta of places
//!                           instead of separators: from offset 24 on it is as `fence_quanta` says
//! 6      2             u16  blocks: n, at least 1
//! 8      8             u64  offset: of the page's first block
//! 16     4             u32  block bytes: with flag 1, of every block but the last; else zero
//! 20     4             u32  last bytes: with flag 1, of the last block; else zero
//! 24     2             u16  prefix length: bytes of the first separator that all separators begin with
//! 26     2             u16  tail bytes: of the tails at the end
//! 28     4                  zero
//! 32     (n-1) × 8     u64  heads: of separators 1 to n-1, the eight bytes behind the prefix as a big-endian
//!                           number (kept little-endian), zeros behind shorter ones
//!        (n-1) × 2     u16  lengths: of separators 1 to n-1 behind the prefix
//!        (n-1) × 2     u16  tail ends: with flag 2
//!        n × 4         u32  block ends: without flag 1, in units from the first block's offset; bit 31: the
//!                           block holds one item, a put, whose key is the separator
//!        tail bytes         tails: bytes of separators 1 to n-1 behind prefix and head
//!                           zero to the end of the page
//! ```
//! A large value has a block of its own, with its whole key as the separator. So a lookup knows without the
//! block whether the key exists.
//!
//! A page has 4096 bytes; the only page of a slice has as few units as it needs.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use crate::base::codec::Malformed;
use crate::base::key::head;

use super::fence_quanta::{self, PLACED, QuantaColumns, WIDE_GAPS, WIDE_UNITS};
use super::{DATA_BLOCK_BYTES_MAX, PAGE_BYTES, UNIT_BYTES};

pub(super) const HEADER_BYTES: usize = 32;
pub(super) const UNIFORM: u8 = 1;
pub(super) const TAILS: u8 = 2;
/// Flag in a block's end: the separator is the only key of the block.
pub(super) const ALONE: u32 = 1 << 31;
/// Bytes of a separator in its head.
pub(super) const HEAD_BYTES: usize = 8;
pub(crate) const LINE_BYTES: usize = 64;
/// Heads in the cache line of the header, and in every other cache line.
const HEADS_FIRST: usize = (LINE_BYTES - HEADER_BYTES) / HEAD_BYTES;
const HEADS_A_LINE: usize = LINE_BYTES / HEAD_BYTES;

/// Offset and length of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

/// A checked fence page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FencePage<'a> {
    bytes: &'a [u8],
    shape: FenceShape,
    /// Result of [`FencePage::samples`]; empty if the samples are not in memory.
    samples: &'a [u64],
}

/// The header's fields of a fence page, for readers that keep them beside the page. Headers in the pages lie
/// one page apart, so they all compete for the same few sets of a processor cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FenceShape {
    /// Offset of the first block.
    offset: u64,
    each: u32,
    last: u32,
    blocks: u16,
    columns: SeparatorColumns,
    flags: u8,
}

/// Offsets of the columns behind the heads, and the end of the used bytes.
#[derive(Clone, Copy, Debug)]
struct SeparatorColumns {
    prefix_bytes: u16,
    lengths_at: u16,
    tail_ends_at: u16,
    block_ends_at: u16,
    tails_at: u16,
    used: u16,
}

/// The columns of a page of quanta, which has no separators.
const NO_SEPARATORS: SeparatorColumns = SeparatorColumns {
    prefix_bytes: 0,
    lengths_at: HEADER_BYTES as u16,
    tail_ends_at: HEADER_BYTES as u16,
    block_ends_at: HEADER_BYTES as u16,
    tails_at: HEADER_BYTES as u16,
    used: HEADER_BYTES as u16,
};

impl FenceShape {
    #[inline]
    fn uniform(&self) -> bool {
        self.flags & UNIFORM != 0
    }
}

impl<'a> FencePage<'a> {
    /// Parses a page that was checked before.
    pub(crate) fn of(page: &'a [u8]) -> FencePage<'a> {
        FencePage::parse(page).expect("the page was checked when it was read")
    }

    /// Parses the used bytes of a page that was checked before.
    #[inline]
    pub(crate) fn of_used(bytes: &'a [u8]) -> FencePage<'a> {
        FencePage::parse_used(bytes).expect("the page was checked when it was read")
    }

    /// The page with this shape and its own samples. Does not read the header.
    #[inline]
    pub(crate) fn shaped(bytes: &'a [u8], shape: FenceShape, samples: &'a [u64]) -> FencePage<'a> {
        let page = FencePage { bytes, shape, samples };
        debug_assert!(samples.iter().copied().eq(page.samples()));
        page
    }

    pub(crate) fn shape(&self) -> FenceShape {
        self.shape
    }

    /// Bytes of the page up to the last used one.
    pub(crate) fn used_bytes(&self) -> usize {
        usize::from(self.shape.columns.used)
    }

    /// Checks all properties that the accessors rely on, but not the checksum, which the caller checks.
    pub(crate) fn check(page: &'a [u8]) -> Result<FencePage<'a>, Malformed> {
        let fences = FencePage::parse(page)?;
        match fences.quanta() {
            Some(quanta) => quanta.check()?,
            None => fences.check_separators()?,
        }
        fences.check_extents()?;
        match page[usize::from(fences.shape.columns.used)..].iter().position(|byte| *byte != 0) {
            None => Ok(fences),
            Some(index) => {
                let at = usize::from(fences.shape.columns.used) + index;
                Err(bad(at, "padding of a fence page", 0, u64::from(page[at])))
            }
        }
    }

    /// The first heads of all cache lines but the first, or the first quanta of all groups but the first.
    /// With these in memory, a search reads one line of the page beside its header.
    pub(crate) fn samples(&self) -> impl Iterator<Item = u64> + 'a {
        let heads = self.heads().iter().skip(HEADS_FIRST).step_by(HEADS_A_LINE);
        let quanta = self.quanta().map(QuantaColumns::samples);
        heads.map(|head| u64::from_le_bytes(*head)).chain(quanta.into_iter().flatten())
    }

    /// The line of heads or gaps that [`FencePage::find`] reads for the key. Reads only the shape and the
    /// samples.
    #[inline]
    pub(crate) fn line_of(&self, key: &[u8], first: &[u8]) -> usize {
        if let Some(quanta) = self.quanta() {
            return quanta.group(quanta.quantum(head(key)));
        }
        let rest = key.get(self.prefix_bytes().min(first.len())..).unwrap_or_default();
        self.sampled_line(head(rest))
    }

    /// Offset of a line of heads or gaps in the page.
    #[inline]
    pub(crate) fn line_at(&self, line: usize) -> usize {
        self.quanta().map_or(line * LINE_BYTES, |quanta| quanta.group_at(line))
    }

    /// The blocks that a search for the key in this line may return, unless heads tie. In a page of quanta,
    /// the most likely ones.
    #[inline]
    pub(crate) fn blocks_of(&self, key: &[u8], line: usize) -> RangeInclusive<usize> {
        if let Some(quanta) = self.quanta() {
            return quanta.near(quanta.quantum(head(key)), line);
        }
        FencePage::heads_before(line)..=HEADS_FIRST + line * HEADS_A_LINE
    }

    fn heads_before(line: usize) -> usize {
        line.checked_sub(1).map_or(0, |before| HEADS_FIRST + before * HEADS_A_LINE)
    }

    /// The columns, if this is a page of quanta.
    #[inline]
    fn quanta(&self) -> Option<QuantaColumns<'a>> {
        let flags = self.shape.flags;
        (flags & PLACED != 0).then(|| QuantaColumns::of(self.bytes, (self.blocks(), flags), self.samples))
    }

    pub(crate) fn blocks(&self) -> usize {
        usize::from(self.shape.blocks)
    }

    /// The head of each separator from the second on, in order, and its length behind the prefix; `None` for
    /// a page of quanta.
    pub(crate) fn separator_heads(&self) -> Option<impl Iterator<Item = (u64, usize)> + 'a> {
        let heads = self.heads().iter().map(|head| u64::from_le_bytes(*head));
        let lengths = self.lengths().iter().map(|length| usize::from(u16::from_le_bytes(*length)));
        (self.shape.flags & PLACED == 0).then(|| heads.zip(lengths))
    }

    /// Bytes of the common prefix of all separators of the page, the first one included.
    pub(crate) fn prefix_bytes(&self) -> usize {
        usize::from(self.shape.columns.prefix_bytes)
    }

    /// The block of this page that must hold `key` if the slice does. `first`: the page's separator in the
    /// top block.
    #[cfg(any(test, feature = "fuzz", feature = "lab"))]
    pub(crate) fn find(&self, key: &[u8], first: &[u8]) -> usize {
        self.find_in(key, first, self.line_of(key, first))
    }

    /// Like [`FencePage::find`], with the result of [`FencePage::line_of`] for the key.
    #[inline]
    pub(crate) fn find_in(&self, key: &[u8], first: &[u8], line: usize) -> usize {
        if let Some(quanta) = self.quanta() {
            return quanta.find(quanta.quantum(head(key)), line);
        }
        let prefix = &first[..self.prefix_bytes().min(first.len())];
        let shared = key.len().min(prefix.len());
        let rest = &key[shared..];
        match key[..shared].cmp(&prefix[..shared]) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.blocks() - 1,
            Ordering::Equal if shared < prefix.len() => return 0,
            Ordering::Equal => {}
        }
        let target = head(rest);
        let not_after = self.not_after(target, line);
        if not_after == 0 || u64::from_le_bytes(self.heads()[not_after - 1]) < target {
            return not_after;
        }
        self.find_tied(rest, target, not_after)
    }

    /// The number of heads at or before `target`. `line`: the line of `target`.
    #[inline]
    fn not_after(&self, target: u64, line: usize) -> usize {
        let is_at_most = |head: &[u8; 8]| u64::from_le_bytes(*head) <= target;
        if self.samples.is_empty() {
            return self.heads().partition_point(is_at_most);
        }
        // All heads in earlier lines are at most the target, because the first head of this line is. Later
        // lines begin with a greater head.
        let start = FencePage::heads_before(line);
        let end = (HEADS_FIRST + line * HEADS_A_LINE).min(self.heads().len());
        start + self.heads()[start..end].iter().filter(|head| is_at_most(head)).count()
    }

    /// The last line whose first head is at most `target`, or else the first line.
    #[inline]
    fn sampled_line(&self, target: u64) -> usize {
        self.samples.partition_point(|sample| *sample <= target)
    }

    /// Search among separators whose heads tie with the key's, by length and tail. `rest`: the key behind the
    /// prefix.
    fn find_tied(&self, rest: &[u8], target: u64, not_after: usize) -> usize {
        let (mut low, mut high) =
            (self.heads().partition_point(|head| u64::from_le_bytes(*head) < target), not_after);
        let key = (rest.len().min(HEAD_BYTES), rest.get(HEAD_BYTES..).unwrap_or_default());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.beyond_head(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Offset and length of block `index` of the page.
    #[inline]
    pub(crate) fn extent(&self, index: usize) -> Extent {
        let FenceShape { offset: base, each, last, .. } = self.shape;
        if self.shape.uniform() {
            let bytes = if index + 1 == self.blocks() { last } else { each };
            return Extent { offset: base + index as u64 * u64::from(each), bytes };
        }
        if let Some(quanta) = self.quanta() {
            let (before, own) = quanta.units(index);
            return Extent {
                offset: base + before * UNIT_BYTES as u64,
                bytes: own as u32 * UNIT_BYTES as u32,
            };
        }
        let end = |index: usize| u64::from(self.block_end(index)) * UNIT_BYTES as u64;
        let start = if index == 0 { 0 } else { end(index - 1) };
        Extent { offset: base + start, bytes: (end(index) - start) as u32 }
    }

    /// Whether block `index` holds one item, a put, whose key is its separator.
    #[inline]
    pub(crate) fn is_alone(&self, index: usize) -> bool {
        self.block_ends().get(index).is_some_and(|end| u32::from_le_bytes(*end) & ALONE != 0)
    }

    /// Whether `key` is the separator of block `index`. `first`: as in `find`.
    pub(crate) fn is_separator(&self, index: usize, key: &[u8], first: &[u8]) -> bool {
        let Some(other) = index.checked_sub(1) else { return key == first };
        let prefix = &first[..self.prefix_bytes().min(first.len())];
        key.strip_prefix(prefix).is_some_and(|rest| {
            rest.len() == usize::from(u16::from_le_bytes(self.lengths()[other]))
                && head(rest) == u64::from_le_bytes(self.heads()[other])
                && rest.get(HEAD_BYTES..).unwrap_or_default() == self.tail(other)
        })
    }

    /// End of a block in units, without the flag.
    fn block_end(&self, index: usize) -> u32 {
        u32::from_le_bytes(self.block_ends()[index]) & !ALONE
    }

    /// The order of separators with equal heads: bytes in the head, then the tail.
    fn beyond_head(&self, index: usize) -> (usize, &'a [u8]) {
        let length = usize::from(u16::from_le_bytes(self.lengths()[index]));
        (length.min(HEAD_BYTES), self.tail(index))
    }

    fn tail(&self, index: usize) -> &'a [u8] {
        if self.tail_ends().is_empty() {
            return &[];
        }
        let end = |index: usize| usize::from(u16::from_le_bytes(self.tail_ends()[index]));
        let start = if index == 0 { 0 } else { end(index - 1) };
        &self.tails()[start..end(index)]
    }

    /// The page's columns, if they fit it. `check` covers their contents.
    #[inline]
    fn parse(page: &'a [u8]) -> Result<FencePage<'a>, Malformed> {
        let length = page.len();
        if length == 0 || length > PAGE_BYTES || !length.is_multiple_of(UNIT_BYTES) {
            return Err(bad(0, "length of a fence page", PAGE_BYTES as u64, length as u64));
        }
        FencePage::parse_used(page)
    }

    /// Like `parse`, also for the used bytes of a page.
    #[inline]
    fn parse_used(page: &'a [u8]) -> Result<FencePage<'a>, Malformed> {
        let flags = page[5];
        let is_placed = flags & PLACED != 0;
        let known = UNIFORM | if is_placed { PLACED | WIDE_GAPS | WIDE_UNITS } else { TAILS };
        if flags & !known != 0 {
            return Err(bad(5, "flags of a fence page", 0, u64::from(flags)));
        }
        let blocks = usize::from(u16_at(page, 6));
        if blocks == 0 {
            return Err(bad(6, "blocks of a fence page", 1, 0));
        }
        let columns = match is_placed {
            true => SeparatorColumns { used: fence_quanta::used(page, blocks)? as u16, ..NO_SEPARATORS },
            false => SeparatorColumns::parse(page, blocks)?,
        };
        let (offset, each, last) = (u64_at(page, 8), u32_at(page, 16), u32_at(page, 20));
        let blocks = u16::try_from(blocks).expect("it was read from so many bits");
        let shape = FenceShape { offset, each, last, blocks, columns, flags };
        Ok(FencePage { bytes: page, shape, samples: &[] })
    }

    #[inline]
    fn heads(&self) -> &'a [[u8; 8]] {
        self.column(HEADER_BYTES as u16, self.shape.columns.lengths_at).as_chunks().0
    }

    fn lengths(&self) -> &'a [[u8; 2]] {
        self.column(self.shape.columns.lengths_at, self.shape.columns.tail_ends_at).as_chunks().0
    }

    fn tail_ends(&self) -> &'a [[u8; 2]] {
        self.column(self.shape.columns.tail_ends_at, self.shape.columns.block_ends_at).as_chunks().0
    }

    #[inline]
    fn block_ends(&self) -> &'a [[u8; 4]] {
        self.column(self.shape.columns.block_ends_at, self.shape.columns.tails_at).as_chunks().0
    }

    fn tails(&self) -> &'a [u8] {
        self.column(self.shape.columns.tails_at, self.shape.columns.used)
    }

    #[inline]
    fn column(&self, from: u16, to: u16) -> &'a [u8] {
        &self.bytes[usize::from(from)..usize::from(to)]
    }

    fn check_separators(&self) -> Result<(), Malformed> {
        let mut tails_end = 0;
        for (index, (head, length)) in self.heads().iter().zip(self.lengths()).enumerate() {
            let length = usize::from(u16::from_le_bytes(*length));
            let tail_end = self.tail_ends().get(index).map_or(0, |end| usize::from(u16::from_le_bytes(*end)));
            if tail_end != tails_end + length.saturating_sub(HEAD_BYTES) || tail_end > self.tails().len() {
                let expected = tails_end + length.saturating_sub(HEAD_BYTES);
                return Err(bad(26, "tail ends of a fence page", expected as u64, tail_end as u64));
            }
            tails_end = tail_end;
            let unused = u64::from_le_bytes(*head).checked_shl(8 * length as u32).unwrap_or(0);
            if unused != 0 {
                return Err(bad(HEADER_BYTES + index * 8, "head of a separator", 0, unused));
            }
            let (one, other) = (index.wrapping_sub(1), index);
            if index > 0 && self.order(one) >= self.order(other) {
                let at = HEADER_BYTES + index * 8;
                return Err(bad(at, "order of separators", other as u64, one as u64));
            }
        }
        if tails_end != self.tails().len() {
            return Err(bad(26, "tails of a fence page", tails_end as u64, self.tails().len() as u64));
        }
        Ok(())
    }

    fn order(&self, index: usize) -> (u64, usize, &'a [u8]) {
        let (length, tail) = self.beyond_head(index);
        (u64::from_le_bytes(self.heads()[index]), length, tail)
    }

    fn check_extents(&self) -> Result<(), Malformed> {
        let FenceShape { offset: base, each, last, .. } = self.shape;
        if !base.is_multiple_of(UNIT_BYTES as u64) || base > 1 << 62 {
            return Err(bad(8, "offset in a fence page", 0, base));
        }
        if self.quanta().is_none() && u32_at(self.bytes, 28) != 0 {
            return Err(bad(28, "padding of a fence page", 0, u64::from(u32_at(self.bytes, 28))));
        }
        if !self.shape.uniform() {
            if each != 0 || last != 0 {
                return Err(bad(16, "unused block length", 0, u64::from(each.max(last))));
            }
            let mut before = 0;
            for index in 0..self.block_ends().len() {
                let end = self.block_end(index);
                let units = u64::from(end).saturating_sub(before);
                if units == 0 || units * UNIT_BYTES as u64 > DATA_BLOCK_BYTES_MAX as u64 {
                    return Err(bad(6, "block ends of a fence page", index as u64, u64::from(end)));
                }
                before = u64::from(end);
            }
            return Ok(());
        }
        for (at, bytes) in [(16, each), (20, last)] {
            let whole = bytes > 0 && bytes.is_multiple_of(UNIT_BYTES as u32);
            if !whole || bytes as usize > DATA_BLOCK_BYTES_MAX {
                return Err(bad(at, "block length", UNIT_BYTES as u64, u64::from(bytes)));
            }
        }
        Ok(())
    }
}

impl SeparatorColumns {
    /// The columns, if they fit the page.
    fn parse(page: &[u8], blocks: usize) -> Result<SeparatorColumns, Malformed> {
        let (length, flags) = (page.len(), page[5]);
        let (uniform, with_tails) = (flags & UNIFORM != 0, flags & TAILS != 0);
        let lengths_at = HEADER_BYTES + (blocks - 1) * HEAD_BYTES;
        let tail_ends_at = lengths_at + (blocks - 1) * 2;
        let block_ends_at = tail_ends_at + if with_tails { (blocks - 1) * 2 } else { 0 };
        let tails_at = block_ends_at + if uniform { 0 } else { blocks * 4 };
        let tail_bytes = usize::from(u16_at(page, 26));
        let used = tails_at + tail_bytes;
        if tails_at > length {
            return Err(bad(6, "columns of a fence page", length as u64, tails_at as u64));
        }
        if used > length {
            return Err(bad(26, "tails of a fence page", (length - tails_at) as u64, tail_bytes as u64));
        }
        let narrow = |at: usize| u16::try_from(at).expect("a page is not longer");
        Ok(SeparatorColumns {
            prefix_bytes: u16_at(page, 24),
            lengths_at: narrow(lengths_at),
            tail_ends_at: narrow(tail_ends_at),
            block_ends_at: narrow(block_ends_at),
            tails_at: narrow(tails_at),
            used: narrow(used),
        })
    }
}

pub(super) fn bad(at: usize, what: &'static str, expected: u64, found: u64) -> Malformed {
    Malformed { at, what, expected, found }
}

fn u16_at(page: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*page[at..].first_chunk().expect("a page is longer than its header"))
}

pub(super) fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*page[at..].first_chunk().expect("a page is longer than its header"))
}

pub(super) fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*page[at..].first_chunk().expect("a page is longer than its header"))
}

#[cfg(test)]
#[path = "fence/tests.rs"]
mod tests;
