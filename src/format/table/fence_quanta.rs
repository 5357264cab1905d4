//! Columns of a fence page of a hashed keyspace: the starts of blocks, in quanta of the place (`quanta`).
//! They take about one byte a block, where separators take ten. `fence` has the page around them,
//! `fence_build` writes them.
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
//! A block's keys are in quanta from the block's own start up to, exclusively, the start of the next block.
//! So a key's quantum determines its block. A search reads the gaps of 64 blocks: one cache line, or two with
//! flag 8.

use std::ops::RangeInclusive;

use crate::base::codec::Malformed;

use super::fence::{UNIFORM, bad, u32_at, u64_at};
use super::quanta::Quanta;
use super::{DATA_BLOCK_BYTES_MAX, UNIT_BYTES};

/// Flags of the page.
pub(super) const PLACED: u8 = 4;
pub(super) const WIDE_GAPS: u8 = 8;
pub(super) const WIDE_UNITS: u8 = 16;
/// Offset of the gaps.
pub(super) const GAPS_AT: usize = 64;
/// Number of blocks between two sums.
pub(super) const GROUP: usize = 64;
/// Bytes of a column that are summed at once.
const LANES: usize = 8;
/// Number of blocks on each side of the most likely block of a key.
const NEAR: usize = 6;

/// The columns of a page, and the units in which they count.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuantaColumns<'a> {
    page: &'a [u8],
    blocks: usize,
    flags: u8,
    quanta: Quanta,
    start: u64,
    base_gap: u64,
    /// Quanta at which the groups but the first begin, if the page's samples are in memory.
    starts: Option<&'a [u64]>,
}

/// The end of the last column of a page with this number of blocks, if the columns fit the page.
pub(super) fn used(page: &[u8], blocks: usize) -> Result<usize, Malformed> {
    let used = GAPS_AT + column_bytes(blocks, page[5]).iter().sum::<usize>();
    if used > page.len() {
        return Err(bad(6, "columns of a fence page", page.len() as u64, used as u64));
    }
    Ok(used)
}

impl<'a> QuantaColumns<'a> {
    /// The columns of a page that has room for them. `samples`: the result of [`QuantaColumns::samples`], or
    /// none.
    #[inline]
    pub(super) fn of(page: &'a [u8], (blocks, flags): (usize, u8), samples: &'a [u64]) -> QuantaColumns<'a> {
        let (count, start, base_gap, starts) = match samples {
            [count, start, base_gap, starts @ ..] => (*count, *start, *base_gap, Some(starts)),
            _ => (u64_at(page, 32), u64_at(page, 40), u64::from(u32_at(page, 28)), None),
        };
        QuantaColumns { page, blocks, flags, quanta: Quanta::new(count), start, base_gap, starts }
    }

    /// The quantum of a stored key with this head.
    #[inline]
    pub(super) fn quantum(&self, head: u64) -> u64 {
        self.quanta.of(head)
    }

    /// The numbers of the header, and the quanta at which the groups but the first begin.
    pub(super) fn samples(self) -> impl Iterator<Item = u64> + use<'a> {
        let start = self.start;
        let starts = self.gap_sums().iter().map(move |sum| start + u64::from(u32::from_le_bytes(*sum)));
        [self.quanta.count(), start, self.base_gap].into_iter().chain(starts)
    }

    /// The group that contains a quantum.
    #[inline]
    pub(super) fn group(&self, quantum: u64) -> usize {
        if let Some(starts) = self.starts {
            return starts.partition_point(|start| *start <= quantum);
        }
        let distance = quantum.saturating_sub(self.start);
        self.gap_sums().partition_point(|sum| u64::from(u32::from_le_bytes(*sum)) <= distance)
    }

    /// Offset in the page of a group's gaps.
    #[inline]
    pub(super) fn group_at(&self, group: usize) -> usize {
        GAPS_AT + group * GROUP * self.gap_bytes()
    }

    /// Blocks of a group near a quantum, if quanta are evenly distributed. Reads only the samples.
    #[inline]
    pub(super) fn near(&self, quantum: u64, group: usize) -> RangeInclusive<usize> {
        let starts = self.starts.unwrap_or_default();
        let start =
            |group: usize| group.checked_sub(1).map_or(Some(self.start), |at| starts.get(at).copied());
        let first = group * GROUP;
        let (Some(from), Some(behind)) = (start(group), start(group + 1)) else {
            return first..=first + GROUP - 1;
        };
        let near =
            (quantum.saturating_sub(from) as usize).saturating_mul(GROUP) / (behind - from).max(1) as usize;
        let near = near.min(GROUP);
        first + near.saturating_sub(NEAR)..=first + (near + NEAR).min(GROUP - 1)
    }

    /// The block that contains a quantum, which must be in this group.
    #[inline]
    pub(super) fn find(&self, quantum: u64, group: usize) -> usize {
        let Some(distance) = quantum.checked_sub(self.start) else { return 0 };
        let (mut at, mut index) = (self.distance_to(group), group * GROUP);
        // Number of blocks behind the group's first.
        let count = (index + GROUP).min(self.blocks) - 1 - index;
        let gaps = self.column(self.group_at(group), count * self.gap_bytes());
        let (words, mut rest) = gaps.as_chunks::<LANES>();
        let word_gaps = LANES / self.gap_bytes();
        for word in words {
            let beyond = at + sum(word, self.flags & WIDE_GAPS != 0) + self.base_gap * word_gaps as u64;
            if beyond > distance {
                rest = word;
                break;
            }
            (at, index) = (beyond, index + word_gaps);
        }
        for gap in rest.chunks_exact(self.gap_bytes()) {
            at += self.base_gap + number(gap);
            if at > distance {
                break;
            }
            index += 1;
        }
        index
    }

    /// Number of quanta from the page's start to the start of a group.
    #[inline]
    fn distance_to(&self, group: usize) -> u64 {
        match (group.checked_sub(1), self.starts) {
            (None, _) => 0,
            (Some(before), Some(starts)) => starts[before] - self.start,
            (Some(before), None) => u64::from(u32::from_le_bytes(self.gap_sums()[before])),
        }
    }

    /// Units before a block of the page, and units of the block. Only for pages without one common length.
    #[inline]
    pub(super) fn units(&self, block: usize) -> (u64, u64) {
        let (group, width) = (block / GROUP, self.unit_bytes());
        let from = self.ends()[0] + group * GROUP * width;
        let before = self.column(from, block % GROUP * width);
        let (words, rest) = before.as_chunks::<LANES>();
        let of_words: u64 = words.iter().map(|word| sum(word, self.flags & WIDE_UNITS != 0)).sum();
        let of_rest: u64 = rest.chunks_exact(width).map(number).sum();
        let own = number(self.column(from + before.len(), width));
        let of_groups =
            group.checked_sub(1).map_or(0, |group| u64::from(u32::from_le_bytes(self.unit_sums()[group])));
        (of_groups + of_words + of_rest, own)
    }

    /// Checks the gaps and units, and their sums.
    pub(super) fn check(&self) -> Result<(), Malformed> {
        for (at, bytes) in [(24, 4), (48, 16)] {
            if self.page[at..at + bytes].iter().any(|byte| *byte != 0) {
                return Err(bad(at, "padding of a fence page", 0, 1));
            }
        }
        let [units_at, gap_sums_at, unit_sums_at] = self.ends();
        let mut at = 0u64;
        for block in 1..self.blocks {
            let place = GAPS_AT + (block - 1) * self.gap_bytes();
            let gap = self.base_gap + number(self.column(place, self.gap_bytes()));
            at += gap;
            if gap == 0 || u32::try_from(at).is_err() || self.start.checked_add(at).is_none() {
                return Err(bad(place, "gap of a fence page", at, gap));
            }
            check_sum(self.gap_sums(), gap_sums_at, (block, at))?;
        }
        if self.flags & UNIFORM != 0 {
            let is_wide = self.flags & WIDE_UNITS != 0;
            return if is_wide { Err(bad(5, "flags of a fence page", 0, 16)) } else { Ok(()) };
        }
        let mut before = 0;
        for block in 0..self.blocks {
            check_sum(self.unit_sums(), unit_sums_at, (block, before))?;
            let width = self.unit_bytes();
            let units = number(self.column(units_at + block * width, width));
            if units == 0 || units * UNIT_BYTES as u64 > DATA_BLOCK_BYTES_MAX as u64 {
                return Err(bad(6, "units of a fence page", block as u64, units));
            }
            before += units;
        }
        Ok(())
    }

    #[inline]
    fn gap_bytes(&self) -> usize {
        if self.flags & WIDE_GAPS != 0 { 2 } else { 1 }
    }

    #[inline]
    fn unit_bytes(&self) -> usize {
        if self.flags & WIDE_UNITS != 0 { 2 } else { 1 }
    }

    /// Ends of the gaps, of the units, and of the sums of gaps.
    #[inline]
    fn ends(&self) -> [usize; 3] {
        let [gaps, units, sums, _] = column_bytes(self.blocks, self.flags);
        [GAPS_AT + gaps, GAPS_AT + gaps + units, GAPS_AT + gaps + units + sums]
    }

    #[inline]
    fn gap_sums(&self) -> &'a [[u8; 4]] {
        let [_, from, to] = self.ends();
        self.page[from..to].as_chunks().0
    }

    #[inline]
    fn unit_sums(&self) -> &'a [[u8; 4]] {
        let ([_, _, from], bytes) = (self.ends(), column_bytes(self.blocks, self.flags)[3]);
        self.page[from..from + bytes].as_chunks().0
    }

    #[inline]
    fn column(&self, at: usize, bytes: usize) -> &'a [u8] {
        &self.page[at..at + bytes]
    }
}

/// Checks the sum before a block, if the page has one there.
fn check_sum(sums: &[[u8; 4]], sums_at: usize, (block, expected): (usize, u64)) -> Result<(), Malformed> {
    if block == 0 || !block.is_multiple_of(GROUP) {
        return Ok(());
    }
    let index = block / GROUP - 1;
    let found = u64::from(u32::from_le_bytes(sums[index]));
    if found == expected {
        Ok(())
    } else {
        Err(bad(sums_at + index * 4, "sum in a fence page", expected, found))
    }
}

/// Bytes of the gaps, the units, and the sums of both.
#[inline]
pub(super) fn column_bytes(blocks: usize, flags: u8) -> [usize; 4] {
    let width = |wide: u8| if flags & wide != 0 { 2 } else { 1 };
    let sums = (blocks - 1) / GROUP * 4;
    let (units, unit_sums) = if flags & UNIFORM != 0 { (0, 0) } else { (blocks * width(WIDE_UNITS), sums) };
    [(blocks - 1) * width(WIDE_GAPS), units, sums, unit_sums]
}

/// A number of one byte, or of two little-endian bytes.
#[inline]
fn number(bytes: &[u8]) -> u64 {
    match bytes {
        [low, high] => u64::from(u16::from_le_bytes([*low, *high])),
        [byte] => u64::from(*byte),
        _ => unreachable!("numbers have one byte or two"),
    }
}

/// The sum of eight one-byte numbers, or of four two-byte ones.
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
