//! Columns of a fence page of a hashed keyspace: where blocks begin, in quanta of the place. About a byte a
//! block, where separators take ten. `fence` has the page around them, `fence_build` writes them.
//!
//! ```text
//! offset size          type name: meaning
//! 24     4                  zero
//! 28     4             u32  base gap
//! 32     8             u64  quanta: equal parts of the space of places, by the eight first bytes of a place
//! 40     8             u64  start: quantum of the first block's first key
//! 48     16                 zero
//! 64     (n-1) × 1|2   u8|u16  gaps: of blocks 1 to n-1, u16 with flag 8; the quanta from where the block
//!                           before begins to where it begins are gap and base gap, at least 1
//!        n × 1|2       u8|u16  units: without flag 1, of each block; u16 with flag 16
//!        g × 4         u32  quanta from the start to block 64, 128, ..; g = (n-1) / 64
//!        g × 4         u32  units: without flag 1, before block 64, 128, ..
//!                           zero to the end of the page
//! ```
//! All keys of a block are of quanta before that at which the next block begins, and none before its own; so
//! a key's quantum says its block. The quanta of 64 blocks are in one cache line, as a search looks at them.

use std::ops::RangeInclusive;

use crate::base::codec::Malformed;

use super::fence::{bad, u32_at, u64_at};
use super::quanta::Quanta;
use super::{DATA_BLOCK_BYTES_MAX, UNIT_BYTES};

/// Flags of the page.
pub(super) const PLACED: u8 = 4;
pub(super) const WIDE_GAPS: u8 = 8;
pub(super) const WIDE_UNITS: u8 = 16;
/// Where the gaps begin.
pub(super) const GAPS_AT: usize = 64;
/// Blocks from one sum to the next.
pub(super) const GROUP: usize = 64;
/// Numbers of a column that are summed at once.
const LANES: usize = 8;
/// Blocks on both sides of where a key most likely is.
const NEAR: usize = 6;

/// Where the columns are, and what they count in.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuantaColumns {
    quanta: Quanta,
    start: u64,
    base_gap: u32,
    units_at: u16,
    gap_sums_at: u16,
    unit_sums_at: u16,
    used: u16,
    wide_gaps: bool,
    wide_units: bool,
}

impl QuantaColumns {
    /// The columns, if they fit the page. What they hold is `check`'s.
    pub(super) fn parse(page: &[u8], (blocks, uniform): (usize, bool)) -> Result<QuantaColumns, Malformed> {
        let flags = page[5];
        let (wide_gaps, wide_units) = (flags & WIDE_GAPS != 0, flags & WIDE_UNITS != 0);
        let [gaps, units, sums, unit_sums] = column_bytes(blocks, uniform, (wide_gaps, wide_units));
        let units_at = GAPS_AT + gaps;
        let gap_sums_at = units_at + units;
        let unit_sums_at = gap_sums_at + sums;
        let used = unit_sums_at + unit_sums;
        if used > page.len() {
            return Err(bad(6, "columns of a fence page", page.len() as u64, used as u64));
        }
        let narrow = |at: usize| u16::try_from(at).expect("a page is not longer");
        Ok(QuantaColumns {
            quanta: Quanta::new(u64_at(page, 32)),
            start: u64_at(page, 40),
            base_gap: u32_at(page, 28),
            units_at: narrow(units_at),
            gap_sums_at: narrow(gap_sums_at),
            unit_sums_at: narrow(unit_sums_at),
            used: narrow(used),
            wide_gaps,
            wide_units,
        })
    }

    pub(super) fn used(&self) -> usize {
        usize::from(self.used)
    }

    /// The quantum of a stored key with this head.
    #[inline]
    pub(super) fn quantum(&self, head: u64) -> u64 {
        self.quanta.of(head)
    }

    /// Quanta at which the groups but the first begin.
    pub(super) fn samples<'a>(&self, page: &'a [u8]) -> impl Iterator<Item = u64> + use<'a> {
        let start = self.start;
        self.gap_sums(page).iter().map(move |sum| start + u64::from(u32::from_le_bytes(*sum)))
    }

    /// The group in which a quantum lies, by the sums in the page.
    pub(super) fn group(&self, page: &[u8], quantum: u64) -> usize {
        let distance = quantum.saturating_sub(self.start);
        self.gap_sums(page).partition_point(|sum| u64::from(u32::from_le_bytes(*sum)) <= distance)
    }

    /// Where in the page the gaps of a group are.
    #[inline]
    pub(super) fn group_at(&self, group: usize) -> usize {
        GAPS_AT + group * GROUP * self.gap_bytes()
    }

    /// Blocks of a group near which a quantum lies, if quanta are spread evenly. `samples`: of the page.
    pub(super) fn near(&self, samples: &[u64], quantum: u64, group: usize) -> RangeInclusive<usize> {
        let from = group.checked_sub(1).map_or(self.start, |before| samples[before]);
        let first = group * GROUP;
        let Some(behind) = samples.get(group) else { return first..=first + GROUP - 1 };
        let near = quantum.saturating_sub(from) as usize * GROUP / (behind - from).max(1) as usize;
        first + near.saturating_sub(NEAR)..=first + (near + NEAR).min(GROUP - 1)
    }

    /// The block in which a quantum lies, which is in this group.
    #[inline]
    pub(super) fn find(&self, page: &[u8], blocks: usize, quantum: u64, group: usize) -> usize {
        let Some(distance) = quantum.checked_sub(self.start) else { return 0 };
        let (mut at, mut index) = (self.sum_before(self.gap_sums(page), group), group * GROUP);
        // Of the blocks behind the group's first.
        let count = (index + GROUP).min(blocks) - 1 - index;
        let gaps = self.column(page, self.group_at(group), count * self.gap_bytes());
        let (words, rest) = gaps.as_chunks::<LANES>();
        let mut rest = rest;
        let (word_gaps, base) = (LANES / self.gap_bytes(), u64::from(self.base_gap));
        for word in words {
            let beyond = at + sum(word, self.wide_gaps) + base * word_gaps as u64;
            if beyond > distance {
                rest = word;
                break;
            }
            (at, index) = (beyond, index + word_gaps);
        }
        for gap in rest.chunks_exact(self.gap_bytes()) {
            at += base + number(gap);
            if at > distance {
                break;
            }
            index += 1;
        }
        index
    }

    /// Units before a block of the page, and units of it, where blocks are not of one length.
    #[inline]
    pub(super) fn units(&self, page: &[u8], block: usize) -> (u64, u64) {
        let (group, width) = (block / GROUP, if self.wide_units { 2 } else { 1 });
        let from = usize::from(self.units_at) + group * GROUP * width;
        let before = self.column(page, from, block % GROUP * width);
        let (words, rest) = before.as_chunks::<LANES>();
        let of_words: u64 = words.iter().map(|word| sum(word, self.wide_units)).sum();
        let of_rest: u64 = rest.chunks_exact(width).map(number).sum();
        let own = number(self.column(page, from + before.len(), width));
        (self.sum_before(self.unit_sums(page), group) + of_words + of_rest, own)
    }

    /// Whether gaps and units are such as blocks have, and the sums theirs.
    pub(super) fn check(&self, page: &[u8], blocks: usize, uniform: bool) -> Result<(), Malformed> {
        for (at, bytes) in [(24, 4), (48, 16)] {
            if page[at..at + bytes].iter().any(|byte| *byte != 0) {
                return Err(bad(at, "padding of a fence page", 0, 1));
            }
        }
        let mut at = 0u64;
        for block in 1..blocks {
            let place = GAPS_AT + (block - 1) * self.gap_bytes();
            let gap = u64::from(self.base_gap) + number(self.column(page, place, self.gap_bytes()));
            at += gap;
            if gap == 0 || u32::try_from(at).is_err() || self.start.checked_add(at).is_none() {
                return Err(bad(place, "gap of a fence page", at, gap));
            }
            self.check_sum(self.gap_sums(page), self.gap_sums_at, (block, at))?;
        }
        if uniform {
            return if self.wide_units { Err(bad(5, "flags of a fence page", 0, 16)) } else { Ok(()) };
        }
        let mut before = 0;
        for block in 0..blocks {
            self.check_sum(self.unit_sums(page), self.unit_sums_at, (block, before))?;
            let width = if self.wide_units { 2 } else { 1 };
            let units = number(self.column(page, usize::from(self.units_at) + block * width, width));
            if units == 0 || units * UNIT_BYTES as u64 > DATA_BLOCK_BYTES_MAX as u64 {
                return Err(bad(6, "units of a fence page", block as u64, units));
            }
            before += units;
        }
        Ok(())
    }

    /// Whether the sum up to a block is right, if there is one.
    fn check_sum(
        &self,
        sums: &[[u8; 4]],
        sums_at: u16,
        (block, expected): (usize, u64),
    ) -> Result<(), Malformed> {
        if block == 0 || !block.is_multiple_of(GROUP) {
            return Ok(());
        }
        let index = block / GROUP - 1;
        let found = u64::from(u32::from_le_bytes(sums[index]));
        let at = usize::from(sums_at) + index * 4;
        if found == expected { Ok(()) } else { Err(bad(at, "sum in a fence page", expected, found)) }
    }

    #[inline]
    fn gap_bytes(&self) -> usize {
        if self.wide_gaps { 2 } else { 1 }
    }

    #[inline]
    fn sum_before(&self, sums: &[[u8; 4]], group: usize) -> u64 {
        group.checked_sub(1).map_or(0, |before| u64::from(u32::from_le_bytes(sums[before])))
    }

    #[inline]
    fn gap_sums<'a>(&self, page: &'a [u8]) -> &'a [[u8; 4]] {
        page[usize::from(self.gap_sums_at)..usize::from(self.unit_sums_at)].as_chunks().0
    }

    #[inline]
    fn unit_sums<'a>(&self, page: &'a [u8]) -> &'a [[u8; 4]] {
        page[usize::from(self.unit_sums_at)..usize::from(self.used)].as_chunks().0
    }

    #[inline]
    fn column<'a>(&self, page: &'a [u8], at: usize, bytes: usize) -> &'a [u8] {
        &page[at..at + bytes]
    }
}

/// Bytes of gaps, units, and the sums of both.
pub(super) fn column_bytes(
    blocks: usize,
    uniform: bool,
    (wide_gaps, wide_units): (bool, bool),
) -> [usize; 4] {
    let width = |wide: bool| if wide { 2 } else { 1 };
    let sums = (blocks - 1) / GROUP * 4;
    let (units, unit_sums) = if uniform { (0, 0) } else { (blocks * width(wide_units), sums) };
    [(blocks - 1) * width(wide_gaps), units, sums, unit_sums]
}

/// A byte, or two little-endian ones.
#[inline]
fn number(bytes: &[u8]) -> u64 {
    match bytes {
        [low, high] => u64::from(u16::from_le_bytes([*low, *high])),
        [byte] => u64::from(*byte),
        _ => unreachable!("numbers have one byte or two"),
    }
}

/// The sum of eight bytes, or of four times two.
#[inline]
fn sum(word: &[u8; LANES], wide: bool) -> u64 {
    let word = u64::from_le_bytes(*word);
    if wide {
        const LOW: u64 = 0x0000_ffff_0000_ffff;
        let pairs = (word & LOW) + (word >> 16 & LOW);
        (pairs & 0xffff_ffff) + (pairs >> 32)
    } else {
        const LOW: u64 = 0x00ff_00ff_00ff_00ff;
        let pairs = (word & LOW) + (word >> 8 & LOW);
        pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48
    }
}

#[cfg(test)]
mod tests;
