//! Learned pages, reading side: a model gives the data block that must hold a key. Writing is in
//! `learned_build`.
//!
//! A learned page takes the place of a fence page (`fence`) and lists adjacent data blocks of a slice. It has
//! no keys. The writer divided its items into blocks by the model: a block holds exactly the keys whose
//! predicted positions are in it. So the block of a key is certain, for absent keys too. A block may be
//! empty. The page's first separator is stored only in the top block (`top`), which finds the page.
//!
//! ```text
//! offset size          type name: meaning
//! 0      4             u32  checksum
//! 4      1             u8   tag: 3
//! 5      1             u8   flags: 32 the page is learned, 64 codes of knots have eight bytes
//! 6      2             u16  blocks: n, at least 1
//! 8      8             u64  offset: of the page's first block
//! 16     8             u64  least: number of the page's first key
//! 24     2             u16  prefix length: bytes of the first separator that all keys begin with
//! 26     2             u16  knots: k, at least 1
//! 28     1             u8   code: of the bytes behind the prefix: 0 the first eight, 1 SNBC, 2 SNBC by ranks
//! 29     1             u8   positions: p, of bytes that the code takes; zero with code 0
//! 30     1             u8   absent from: the first position at which a key may have ended; at most p
//! 31     1             u8   shift: low bits of numbers that codes leave out, below 64
//! 32     4             u32  target: bytes of items that the model gives a block
//! 36     2             u16  runs: r, of bytes that are symbols
//! 38     2             u16  error: of the model, in 32nds of a block
//! 40     p             u8   counts: of runs, of each position, 1 to 8; 1 with code 1
//!        r × 2         u8   runs: first byte and last, ascending within a position
//!        k × 4|8       u32|u64  codes: of knots, ascending from 0; u64 with flag 64
//!        k × 2         u16  positions: of knots, in 32nds of a block, not descending, from 0; the last
//!                           one is in block n-1
//!        n             u8   units: of each block; zero for an empty one, which is neither first nor last
//!        (n-1) / 64 × 4  u32  units before block 64, 128, ..
//!                           zero to the end of the page
//! ```
//! A key's number is computed from its bytes by `code` (`learn::alphabet`). The number is 0 or the greatest
//! u64 if the key does not begin with the prefix. Its code is the number less `least`, or 0, without the low
//! bits of the shift. Its position is on the line between the knots around its code (`learn::spline`). Its
//! block is the position divided by 32.
//!
//! A page has 4096 bytes; the only page of a slice has as few units as it needs.

use crate::base::codec::Malformed;
use crate::learn::alphabet::{Alphabets, DigitTables, POSITIONS_MAX};
use crate::learn::code::{CodeDigits, KeyCode};
use crate::learn::spline::{Knot, Knots, predict};

use super::fence::{Extent, bad, u32_at, u64_at};
use super::{PAGE_BYTES, UNIT_BYTES};

/// Flags of the page.
pub(super) const LEARNED: u8 = 32;
pub(super) const WIDE_CODES: u8 = 64;
pub(super) const HEADER_BYTES: usize = 40;
/// Positions in each block.
pub(super) const PARTS: u32 = 32;
/// Number of knots between two samples.
const SAMPLED: usize = 16;
/// Number of blocks between two sums.
pub(super) const GROUP: usize = 64;

/// How bytes behind the prefix become a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageCode {
    /// The first eight bytes, big-endian.
    Head = 0,
    /// SNBC as in the paper: symbols are all bytes from the least to the greatest one.
    Span = 1,
    /// SNBC with ranks among the bytes seen.
    Seen = 2,
}

/// A checked learned page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LearnedPage<'a> {
    bytes: &'a [u8],
    shape: LearnedShape,
    beside: LearnedBeside<'a>,
}

/// Data that readers may keep beside a page, to read less of it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LearnedBeside<'a> {
    /// Result of [`LearnedPage::samples`]; empty if the samples are not in memory.
    pub(crate) samples: &'a [u64],
    /// Tables of the page's alphabets. Pages with equal alphabets share them.
    pub(crate) tables: Option<&'a DigitTables>,
}

/// The header's fields of a learned page, for readers that keep them beside the page. Headers themselves are
/// one page apart, so they all compete for the same few sets of a processor cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LearnedShape {
    /// Offset of the first block.
    offset: u64,
    least: u64,
    blocks: u16,
    prefix_bytes: u16,
    code: PageCode,
    is_wide: bool,
    absent_from: u8,
    shift: u8,
    /// Offsets of the columns.
    runs_at: u16,
    codes_at: u16,
    positions_at: u16,
    units_at: u16,
    sums_at: u16,
    used: u16,
}

/// Bytes of the columns: counts, runs, codes, positions, units, sums.
pub(super) fn column_bytes(
    (positions, runs): (usize, usize),
    (knots, is_wide): (usize, bool),
    blocks: usize,
) -> [usize; 6] {
    let code_bytes = if is_wide { 8 } else { 4 };
    [positions, runs * 2, knots * code_bytes, knots * 2, blocks, blocks.saturating_sub(1) / GROUP * 4]
}

impl<'a> LearnedPage<'a> {
    /// Whether a page with the tag of fence pages is a learned page.
    pub(crate) fn is_learned(page: &[u8]) -> bool {
        page.get(5).is_some_and(|flags| flags & LEARNED != 0)
    }

    /// Parses a page that was checked before.
    pub(crate) fn of(page: &'a [u8]) -> LearnedPage<'a> {
        LearnedPage::parse(page).expect("the page was checked when it was read")
    }

    /// Checks all properties that the accessors rely on, but not the checksum, which the caller checks.
    pub(crate) fn check(page: &'a [u8]) -> Result<LearnedPage<'a>, Malformed> {
        let learned = LearnedPage::parse(page)?;
        learned.check_code()?;
        learned.check_knots()?;
        learned.check_extents()?;
        let used = usize::from(learned.shape.used);
        match page[used..].iter().position(|byte| *byte != 0) {
            None => Ok(learned),
            Some(index) => {
                Err(bad(used + index, "padding of a learned page", 0, u64::from(page[used + index])))
            }
        }
    }

    /// The page with this shape and this data beside it. Does not read the header.
    #[inline]
    pub(crate) fn shaped(bytes: &'a [u8], shape: LearnedShape, beside: LearnedBeside<'a>) -> LearnedPage<'a> {
        let page = LearnedPage { bytes, shape, beside };
        debug_assert!(beside.samples.iter().copied().eq(page.samples()));
        page
    }

    /// The last block up to `index` that is not empty. The first block never is.
    #[inline]
    pub(crate) fn at_or_before(&self, index: usize) -> usize {
        let units = self.units();
        units[..=index.min(units.len() - 1)].iter().rposition(|units| *units > 0).unwrap_or(0)
    }

    /// The first block from `index` on that is not empty.
    #[inline]
    pub(crate) fn from(&self, index: usize) -> Option<usize> {
        let rest = self.units().get(index..)?;
        rest.iter().position(|units| *units > 0).map(|behind| index + behind)
    }

    /// Offset in the page of a block's length.
    #[inline]
    pub(crate) fn extent_at(&self, index: usize) -> usize {
        usize::from(self.shape.units_at) + index
    }

    /// The codes of every 16th knot but the first. With these in memory, a search reads 16 codes of the page.
    pub(crate) fn samples(&self) -> impl Iterator<Item = u64> + 'a {
        self.model().skip(SAMPLED).step_by(SAMPLED).map(|knot| knot.code)
    }

    pub(crate) fn shape(&self) -> LearnedShape {
        self.shape
    }

    pub(crate) fn blocks(&self) -> usize {
        usize::from(self.shape.blocks)
    }

    /// Bytes up to the padding.
    #[cfg(any(test, feature = "lab"))]
    pub(crate) fn used_bytes(&self) -> usize {
        usize::from(self.shape.used)
    }

    pub(crate) fn code(&self) -> PageCode {
        self.shape.code
    }

    /// Number of bytes behind the prefix that the code uses.
    #[cfg(any(test, feature = "lab"))]
    pub(crate) fn positions(&self) -> usize {
        usize::from(self.bytes[29])
    }

    /// The block of this page that must hold `key` if the slice does. `first`: the page's separator in the
    /// top block.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], first: &[u8]) -> usize {
        let LearnedShape { least, prefix_bytes, code, shift, .. } = self.shape;
        let prefix = &first[..usize::from(prefix_bytes).min(first.len())];
        let digits = match code {
            PageCode::Head => CodeDigits::Head,
            PageCode::Span | PageCode::Seen => CodeDigits::Alphabets(self.alphabets()),
        };
        let code = KeyCode { prefix, digits, least, shift: shift.into() }.of(key);
        let position = match self.knots() {
            PageKnots::Narrow(knots) => predict(&knots, code),
            PageKnots::Wide(knots) => predict(&knots, code),
        };
        block_of(position).min(self.blocks() - 1)
    }

    /// Offset and length of block `index` of the page. An empty block has length 0, and the slice has no key
    /// of it.
    #[inline]
    pub(crate) fn extent(&self, index: usize) -> Extent {
        let group = index / GROUP;
        let of_groups = group.checked_sub(1).map_or(0, |group| u32::from_le_bytes(self.sums()[group]));
        let units = self.units();
        let in_group = match units[group * GROUP..].first_chunk::<GROUP>() {
            Some(units) => sum(units, index % GROUP),
            None => units[group * GROUP..index].iter().map(|units| u64::from(*units)).sum(),
        };
        let before = u64::from(of_groups) + in_group;
        let bytes = u32::from(units[index]) * UNIT_BYTES as u32;
        Extent { offset: self.shape.offset + before * UNIT_BYTES as u64, bytes }
    }

    /// The knots of the model; positions are in 32nds of a block.
    pub(crate) fn model(&self) -> impl Iterator<Item = Knot> + 'a {
        let knots = self.knots();
        let count = match knots {
            PageKnots::Narrow(knots) => knots.count(),
            PageKnots::Wide(knots) => knots.count(),
        };
        (0..count).map(move |index| match &knots {
            PageKnots::Narrow(knots) => knots.knot(index),
            PageKnots::Wide(knots) => knots.knot(index),
        })
    }

    /// The symbols of each position; none if the code is the first eight bytes.
    #[inline]
    pub(crate) fn alphabets(&self) -> Alphabets<'a> {
        let LearnedShape { runs_at, codes_at, absent_from, .. } = self.shape;
        Alphabets {
            counts: self.column(HEADER_BYTES as u16, runs_at),
            runs: self.column(runs_at, codes_at).as_chunks().0,
            absent_from: absent_from.into(),
            tables: self.beside.tables,
        }
    }

    #[inline]
    fn knots(&self) -> PageKnots<'a> {
        let LearnedShape { codes_at, positions_at, units_at, .. } = self.shape;
        let codes = self.column(codes_at, positions_at);
        let positions = self.column(positions_at, units_at).as_chunks().0;
        let samples = self.beside.samples;
        if self.shape.is_wide {
            PageKnots::Wide(KnotColumns { codes: codes.as_chunks().0, positions, samples })
        } else {
            PageKnots::Narrow(KnotColumns { codes: codes.as_chunks().0, positions, samples })
        }
    }

    #[inline]
    fn units(&self) -> &'a [u8] {
        self.column(self.shape.units_at, self.shape.sums_at)
    }

    #[inline]
    fn sums(&self) -> &'a [[u8; 4]] {
        self.column(self.shape.sums_at, self.shape.used).as_chunks().0
    }

    #[inline]
    fn column(&self, from: u16, to: u16) -> &'a [u8] {
        &self.bytes[usize::from(from)..usize::from(to)]
    }

    /// The page's columns, if they fit it.
    fn parse(page: &'a [u8]) -> Result<LearnedPage<'a>, Malformed> {
        let length = page.len();
        if length == 0 || length > PAGE_BYTES || !length.is_multiple_of(UNIT_BYTES) {
            return Err(bad(0, "length of a learned page", PAGE_BYTES as u64, length as u64));
        }
        let flags = page[5];
        if flags & !WIDE_CODES != LEARNED {
            return Err(bad(5, "flags of a learned page", u64::from(LEARNED), u64::from(flags)));
        }
        let (blocks, knots) = (usize::from(half_at(page, 6)), usize::from(half_at(page, 26)));
        for (at, what, count) in [(6, "blocks of a learned page", blocks), (26, "knots", knots)] {
            if count == 0 {
                return Err(bad(at, what, 1, 0));
            }
        }
        let code = match page[28] {
            0 => PageCode::Head,
            1 => PageCode::Span,
            2 => PageCode::Seen,
            other => return Err(bad(28, "code of a learned page", 2, u64::from(other))),
        };
        let (is_wide, runs) = (flags & WIDE_CODES != 0, usize::from(half_at(page, 36)));
        let ends = ends(column_bytes((usize::from(page[29]), runs), (knots, is_wide), blocks));
        if ends[5] > length {
            return Err(bad(6, "columns of a learned page", length as u64, ends[5] as u64));
        }
        let [runs_at, codes_at, positions_at, units_at, sums_at, used] = ends.map(|end| end as u16);
        let shape = LearnedShape {
            offset: u64_at(page, 8),
            least: u64_at(page, 16),
            blocks: half_at(page, 6),
            prefix_bytes: half_at(page, 24),
            code,
            is_wide,
            absent_from: page[30],
            shift: page[31],
            runs_at,
            codes_at,
            positions_at,
            units_at,
            sums_at,
            used,
        };
        Ok(LearnedPage { bytes: page, shape, beside: LearnedBeside::default() })
    }

    fn check_code(&self) -> Result<(), Malformed> {
        let [positions, absent_from, shift] = [29, 30, 31].map(|at| self.bytes[at]);
        let positions_max = if self.code() == PageCode::Head { 0 } else { POSITIONS_MAX as u64 };
        for (at, what, most, found) in [
            (29, "positions of a learned page", positions_max, positions),
            (30, "absent positions of a learned page", u64::from(positions), absent_from),
            (31, "shift of a learned page", 63, shift),
        ] {
            if u64::from(found) > most {
                return Err(bad(at, what, most, u64::from(found)));
            }
        }
        let alphabets = self.alphabets();
        let span = alphabets.counts.iter().position(|count| self.code() == PageCode::Span && *count != 1);
        match alphabets.check().err().map(|bad| bad.position).or(span) {
            None => Ok(()),
            Some(position) => Err(bad(HEADER_BYTES + position, "alphabet of a position", 0, position as u64)),
        }
    }

    fn check_knots(&self) -> Result<(), Malformed> {
        let mut before: Option<Knot> = None;
        for (index, knot) in self.model().enumerate() {
            let is_behind = match before {
                None => knot == Knot { code: 0, position: 0 },
                Some(before) => before.code < knot.code && before.position <= knot.position,
            };
            if !is_behind {
                let at = usize::from(self.shape.positions_at) + index * 2;
                return Err(bad(at, "order of knots", index as u64, u64::from(knot.position)));
            }
            before = Some(knot);
        }
        let blocks = before.map_or(0, |last| block_of(last.position) + 1);
        if blocks != self.blocks() {
            return Err(bad(6, "blocks of a model", blocks as u64, self.blocks() as u64));
        }
        Ok(())
    }

    fn check_extents(&self) -> Result<(), Malformed> {
        let offset = self.shape.offset;
        if !offset.is_multiple_of(UNIT_BYTES as u64) || offset > 1 << 62 {
            return Err(bad(8, "offset in a learned page", 0, offset));
        }
        if u32_at(self.bytes, 32) == 0 {
            return Err(bad(32, "target of a learned page", 1, 0));
        }
        let LearnedShape { units_at, sums_at, .. } = self.shape;
        for index in [0, self.blocks() - 1] {
            if self.units()[index] == 0 {
                return Err(bad(usize::from(units_at) + index, "units of a block at an end", 1, 0));
            }
        }
        let mut before = 0;
        for (index, (units, sum)) in self.units().chunks(GROUP).zip(self.sums()).enumerate() {
            before += units.iter().map(|units| u32::from(*units)).sum::<u32>();
            let found = u32::from_le_bytes(*sum);
            if found != before {
                let at = usize::from(sums_at) + index * 4;
                return Err(bad(at, "sum in a learned page", u64::from(before), u64::from(found)));
            }
        }
        Ok(())
    }
}

/// The sum of the first `count` bytes of a group, without branches that depend on the count.
#[inline]
fn sum(group: &[u8; GROUP], count: usize) -> u64 {
    const LOW: u64 = 0x00ff_00ff_00ff_00ff;
    let mut pairs = 0;
    for (index, word) in group.as_chunks::<8>().0.iter().enumerate() {
        let bytes = count.saturating_sub(8 * index).min(8);
        // Two shifts, because no shift is by all 64 bits.
        let word = u64::from_le_bytes(*word) & !(u64::MAX << (4 * bytes) << (4 * bytes));
        pairs += (word & LOW) + (word >> 8 & LOW);
    }
    // Four sums of two bytes each, each over at most 16 bytes.
    pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48
}

/// The block of a position.
#[inline]
pub(super) fn block_of(position: u32) -> usize {
    (position / PARTS) as usize
}

/// Ends of columns with these lengths.
fn ends(bytes: [usize; 6]) -> [usize; 6] {
    let mut at = HEADER_BYTES;
    bytes.map(|bytes| {
        at += bytes;
        at
    })
}

fn half_at(page: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*page[at..].first_chunk().expect("a page is longer than its header"))
}

/// The knots of a page.
#[derive(Clone, Copy, Debug)]
enum PageKnots<'a> {
    Narrow(KnotColumns<'a, [u8; 4]>),
    Wide(KnotColumns<'a, [u8; 8]>),
}

/// Knots whose codes are stored as `C`.
#[derive(Clone, Copy, Debug)]
struct KnotColumns<'a, C> {
    codes: &'a [C],
    positions: &'a [[u8; 2]],
    samples: &'a [u64],
}

/// A code in the form that a page stores.
trait StoredCode {
    fn number(&self) -> u64;
}

impl StoredCode for [u8; 4] {
    #[inline]
    fn number(&self) -> u64 {
        u32::from_le_bytes(*self).into()
    }
}

impl StoredCode for [u8; 8] {
    #[inline]
    fn number(&self) -> u64 {
        u64::from_le_bytes(*self)
    }
}

impl<C: StoredCode> Knots for KnotColumns<'_, C> {
    #[inline]
    fn count(&self) -> usize {
        self.codes.len()
    }

    #[inline]
    fn knot(&self, index: usize) -> Knot {
        let position = u16::from_le_bytes(self.positions[index]);
        Knot { code: self.codes[index].number(), position: u32::from(position) }
    }

    #[inline]
    fn not_after(&self, code: u64) -> usize {
        if self.samples.is_empty() {
            return self.codes.partition_point(|knot| knot.number() <= code);
        }
        let start = SAMPLED * self.samples.partition_point(|sample| *sample <= code);
        let count = |codes: &[C]| codes.iter().map(|knot| usize::from(knot.number() <= code)).sum::<usize>();
        start
            + match self.codes[start..].first_chunk::<SAMPLED>() {
                Some(codes) => count(codes),
                None => count(&self.codes[start..]),
            }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "learned/tests.rs"]
mod tests;
