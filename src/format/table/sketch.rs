//! Sketches of fence pages: they give the block of most keys, in an eighth or a quarter of a page's memory.
//!
//! If the fence pages do not fit in memory, a get reads a fence page before its block. A sketch keeps one or
//! two bytes of each separator instead of ten. It either gives the block of a key or answers that the page
//! must be read. Only a few keys in a hundred, or in a thousand, need the page. A sketch is never wrong.
//!
//! A key becomes a number by the alphabets of the page's separators and one more position with all bytes
//! (`learn::code`). Low bits are dropped until the numbers fit. A greater key never has a lesser number. So
//! if a key's number equals no separator's, the key lies behind exactly the separators with lesser numbers.
//! Numbers are in Elias-Fano coding: low bits in a row, and for each number a bit at the sum of its high part
//! and its index.
//!
//! A sketch exists in memory only, and is made from a checked page. Pure; any thread.

use crate::learn::alphabet::{Alphabets, Symbols, TrainedAlphabets};
use crate::learn::code::{CodeDigits, KeyCode};

use super::UNIT_BYTES;
use super::fence::{Extent, FencePage};
use super::index::IndexPage;

/// Bytes of the sketch of a whole page. The first size is used if it gives the block of enough keys.
pub(crate) const SKETCH_BYTES: [usize; 2] = [512, 1024];
/// The first size is good enough if at most this many keys in a thousand need their page.
const GOOD_PERMILLE: u64 = 40;
/// Limit for all sketches of a slice, and for the sketch of one page, in keys of a thousand that need their
/// page.
const UNSURE_PERMILLE_MAX: u64 = 250;

const HEADER_BYTES: usize = 40;
/// Maximum bytes of a separator behind the prefix that its number is made of: the bytes of its head.
const POSITIONS_MAX: usize = 8;
const LOW_BITS_MAX: u32 = 48;

/// A sketch, of these bytes:
///
/// ```text
/// offset size  name: meaning
/// 0      2     blocks: n; 0 if the page has no sketch
/// 2      1     low bits of each number
/// 3      1     width of a length, in bits; 0 if all blocks but the last have one length
/// 4      1     shift: low bits left out
/// 5      1     positions: p, of the alphabets
/// 6      2     prefix bytes
/// 8      8     offset of the first block
/// 16     8     least: the number of the first separator
/// 24     4     bytes of each block, or units of the shortest
/// 28     4     bytes of the last block, if one length serves the others
/// 32     2     position from which keys may have ended
/// 34     2     runs of the alphabets
/// 36     2     where high parts begin
/// 38     2     where low bits begin
/// 40     p     runs of each position, then two bytes a run
///              high parts; low bits; lengths; each from a byte on
/// ```
#[derive(Clone, Copy)]
pub(crate) struct Sketch<'a>(&'a [u8]);

/// The contents of a sketch of one page.
struct Plan {
    alphabets: TrainedAlphabets,
    /// Number of the first separator.
    least: u64,
    /// Numbers of the other separators, less `least`.
    numbers: Vec<u64>,
    lengths: Lengths,
}

/// Makes the sketches of a slice's pages, in each size.
pub(crate) struct Sketcher {
    /// For each page, its separator in the top block.
    firsts: Box<[Box<[u8]>]>,
    bytes: [Vec<u8>; 2],
    /// For each size, the sum over all pages.
    unsure_permille: [u64; 2],
}

enum Lengths {
    Uniform {
        each: u32,
        last: u32,
    },
    /// Lengths in units, less `least`.
    Each {
        least: u32,
        width: u32,
        beyond: Vec<u32>,
    },
}

impl Plan {
    /// `None` for a page that has no sketch: a learned page, a page of quanta, a page with a block that is
    /// alone, or a page with a single block.
    fn of(page: &IndexPage<'_>, first: &[u8]) -> Option<Plan> {
        let IndexPage::Fences(page) = page else { return None };
        let heads = page.separator_heads()?;
        if page.blocks() < 2 || (0..page.blocks()).any(|index| page.is_alone(index)) {
            return None;
        }
        let prefix = first.get(..page.prefix_bytes())?;
        let rests: Vec<([u8; 8], usize)> =
            heads.map(|(head, length)| (head.to_be_bytes(), length.min(POSITIONS_MAX))).collect();
        let own = &first[prefix.len()..];
        let all = rests.iter().map(|(head, length)| &head[..*length]).chain([own]);
        let mut alphabets = TrainedAlphabets::train(all, Symbols::Seen, POSITIONS_MAX);
        // The alphabets must not use bytes behind the head.
        if alphabets.positions() < POSITIONS_MAX {
            alphabets.extend();
        }
        let digits = alphabets.view();
        let least = digits.code(own);
        let number = |(head, length): &([u8; 8], usize)| digits.code(&head[..*length]).saturating_sub(least);
        let numbers = rests.iter().map(number).collect();
        Some(Plan { least, numbers, lengths: Lengths::of(page), alphabets })
    }

    /// Bytes of the parts behind the header: alphabets, high parts, low bits and lengths.
    fn part_bytes(&self, (shift, low_bits): (u32, u32)) -> [usize; 4] {
        let view = self.alphabets.view();
        let greatest = self.numbers.last().map_or(0, |number| number >> shift);
        let high_bits = self.numbers.len() + (greatest >> low_bits) as usize + 1;
        let lengths_bits = match &self.lengths {
            Lengths::Uniform { .. } => 0,
            Lengths::Each { width, beyond, .. } => *width as usize * beyond.len(),
        };
        let low_bits = low_bits as usize * self.numbers.len();
        [
            view.counts.len() + 2 * view.runs.len(),
            high_bits.div_ceil(8),
            low_bits.div_ceil(8),
            lengths_bits.div_ceil(8),
        ]
    }

    /// The least shift with which the sketch fits, and the number of low bits that then takes the fewest
    /// bytes.
    fn fit(&self, bytes: usize) -> Option<(u32, u32)> {
        let count = self.numbers.len() as u64;
        (0..64).find_map(|shift| {
            let greatest = self.numbers.last().map_or(0, |number| number >> shift);
            let low_bits = (greatest / count).checked_ilog2().unwrap_or(0).min(LOW_BITS_MAX);
            let needed = HEADER_BYTES + self.part_bytes((shift, low_bits)).iter().sum::<usize>();
            (needed <= bytes).then_some((shift, low_bits))
        })
    }

    /// Keys in a thousand that have the number of a separator, if keys between two separators are evenly
    /// distributed over the numbers there.
    fn unsure_permille(&self, shift: u32) -> u64 {
        let before = std::iter::once(&0).chain(&self.numbers);
        let unsure = |(own, before): (&u64, &u64)| 1000 / ((own >> shift) - (before >> shift)).max(1);
        self.numbers.iter().zip(before).map(unsure).sum::<u64>() / self.numbers.len() as u64
    }
}

impl Lengths {
    fn of(page: &FencePage<'_>) -> Lengths {
        let units: Vec<u32> =
            (0..page.blocks()).map(|index| page.extent(index).bytes / UNIT_BYTES as u32).collect();
        let (last, others) = units.split_last().expect("a page has blocks");
        let least = *units.iter().min().expect("a page has blocks");
        if others.iter().all(|own| *own == others[0]) {
            let bytes = |units: u32| units * UNIT_BYTES as u32;
            return Lengths::Uniform { each: bytes(others[0]), last: bytes(*last) };
        }
        let beyond: Vec<u32> = units.iter().map(|own| own - least).collect();
        let most = *beyond.iter().max().expect("a page has blocks");
        Lengths::Each { least, width: u32::BITS - most.leading_zeros(), beyond }
    }
}

impl Sketcher {
    /// A sketcher for pages with these separators in the top block.
    pub(crate) fn new(firsts: Box<[Box<[u8]>]>) -> Sketcher {
        Sketcher { firsts, bytes: [vec![], vec![]], unsure_permille: [0; 2] }
    }

    /// Makes the sketches of a checked page.
    pub(crate) fn add(&mut self, number: usize, page: &IndexPage<'_>) {
        let plan = Plan::of(page, &self.firsts[number]);
        if self.bytes[0].is_empty() {
            self.bytes = SKETCH_BYTES.map(|bytes| vec![0; bytes * self.firsts.len()]);
        }
        for (size, unsure_permille) in self.unsure_permille.iter_mut().enumerate() {
            let own = &mut self.bytes[size][number * SKETCH_BYTES[size]..][..SKETCH_BYTES[size]];
            let fitting = plan.as_ref().and_then(|plan| {
                let fit = plan.fit(own.len())?;
                Some((plan, fit, plan.unsure_permille(fit.0)))
            });
            match (fitting, page) {
                (Some((plan, fit, unsure)), IndexPage::Fences(page)) if unsure <= UNSURE_PERMILLE_MAX => {
                    plan.write(fit, page, own);
                    *unsure_permille += unsure;
                }
                _ => *unsure_permille += 1000,
            }
        }
    }

    /// The smaller size if its sketches are good enough. Else the larger size, if at most half as many of its
    /// keys need their page and there is room. Else the smaller size, if it is within the limit.
    pub(crate) fn best_size(&self, has_room: impl FnOnce() -> bool) -> Option<usize> {
        let permille = self.unsure_permille.map(|sum| sum / self.firsts.len() as u64);
        if permille[0] <= GOOD_PERMILLE {
            return Some(0);
        }
        let is_larger_better = permille[1] <= UNSURE_PERMILLE_MAX && permille[1] * 2 <= permille[0];
        if is_larger_better && has_room() {
            return Some(1);
        }
        (permille[0] <= UNSURE_PERMILLE_MAX).then_some(0)
    }

    /// The sketches of all pages in one size, one after another.
    pub(crate) fn sketches(&self, size: usize) -> &[u8] {
        &self.bytes[size]
    }
}

impl<'a> Sketch<'a> {
    pub(crate) fn of(sketch: &'a [u8]) -> Sketch<'a> {
        Sketch(sketch)
    }

    /// The only block that can hold `key`; `None` if the page must be read. `first`: the page's separator in
    /// the top block.
    pub(crate) fn find(&self, key: &[u8], first: &[u8]) -> Option<Extent> {
        let blocks = usize::from(self.u16_at(0));
        let prefix = first.get(..usize::from(self.u16_at(6))).filter(|_| blocks > 0)?;
        let digits = CodeDigits::Alphabets(self.alphabets());
        let shift = u32::from(self.0[4]);
        let number = KeyCode { prefix, digits, least: self.u64_at(16), shift }.of(key);
        Some(self.extent(self.rank(number, blocks - 1)?, blocks))
    }

    fn alphabets(&self) -> Alphabets<'a> {
        let (counts, rest) = self.0[HEADER_BYTES..].split_at(usize::from(self.0[5]));
        let runs = &rest[..2 * usize::from(self.u16_at(34))];
        Alphabets {
            counts,
            runs: runs.as_chunks().0,
            absent_from: usize::from(self.u16_at(32)),
            tables: None,
        }
    }

    /// The number of separators with lesser numbers; `None` if one has the same number.
    fn rank(&self, number: u64, count: usize) -> Option<usize> {
        let low_bits = u32::from(self.0[2]);
        let (high, low) = (number >> low_bits, number & ((1 << low_bits) - 1));
        let (high_at, low_at) = (usize::from(self.u16_at(36)), usize::from(self.u16_at(38)));
        let Some(mut at) = after_zeros(&self.0[high_at..low_at], high) else { return Some(count) };
        // The bits before `at` are `high` zeros and one bit for each separator.
        let mut index = at - high as usize;
        while index < count && bits(self.0, high_at * 8 + at, 1) == 1 {
            match bits(self.0, low_at * 8 + index * low_bits as usize, low_bits).cmp(&low) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return None,
                std::cmp::Ordering::Greater => break,
            }
            (at, index) = (at + 1, index + 1);
        }
        Some(index)
    }

    fn extent(&self, index: usize, blocks: usize) -> Extent {
        let (offset, each, last) = (self.u64_at(8), self.u32_at(24), self.u32_at(28));
        let width = u32::from(self.0[3]);
        if width == 0 {
            let bytes = if index + 1 == blocks { last } else { each };
            return Extent { offset: offset + index as u64 * u64::from(each), bytes };
        }
        let low_bytes = (usize::from(self.0[2]) * (blocks - 1)).div_ceil(8);
        let lengths_at = (usize::from(self.u16_at(38)) + low_bytes) * 8;
        let units = |index: usize| u64::from(each) + bits(self.0, lengths_at + index * width as usize, width);
        let before: u64 = (0..index).map(units).sum();
        let unit_bytes = UNIT_BYTES as u64;
        Extent { offset: offset + before * unit_bytes, bytes: (units(index) * unit_bytes) as u32 }
    }

    fn u16_at(&self, at: usize) -> u16 {
        bits(self.0, at * 8, 16) as u16
    }

    fn u32_at(&self, at: usize) -> u32 {
        bits(self.0, at * 8, 32) as u32
    }

    fn u64_at(&self, at: usize) -> u64 {
        bits(self.0, at * 8, 32) | bits(self.0, at * 8 + 32, 32) << 32
    }
}

impl Plan {
    fn write(&self, (shift, low_bits): (u32, u32), page: &FencePage<'_>, sketch: &mut [u8]) {
        let view = self.alphabets.view();
        let [alphabet_bytes, high_bytes, low_bytes, _] = self.part_bytes((shift, low_bits));
        let high_at = HEADER_BYTES + alphabet_bytes;
        let low_at = high_at + high_bytes;
        let (width, each, last) = match &self.lengths {
            Lengths::Uniform { each, last } => (0, *each, *last),
            Lengths::Each { least, width, .. } => (*width, *least, 0),
        };
        let fields: [(usize, u64, usize); 14] = [
            (0, page.blocks() as u64, 2),
            (2, u64::from(low_bits), 1),
            (3, u64::from(width), 1),
            (4, u64::from(shift), 1),
            (5, view.counts.len() as u64, 1),
            (6, page.prefix_bytes() as u64, 2),
            (8, page.extent(0).offset, 8),
            (16, self.least, 8),
            (24, u64::from(each), 4),
            (28, u64::from(last), 4),
            (32, view.absent_from as u64, 2),
            (34, view.runs.len() as u64, 2),
            (36, high_at as u64, 2),
            (38, low_at as u64, 2),
        ];
        for (at, value, bytes) in fields {
            sketch[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
        let runs_at = HEADER_BYTES + view.counts.len();
        sketch[HEADER_BYTES..runs_at].copy_from_slice(view.counts);
        sketch[runs_at..high_at].copy_from_slice(view.runs.as_flattened());
        for (index, number) in self.numbers.iter().map(|number| number >> shift).enumerate() {
            set_bits(sketch, high_at * 8 + (number >> low_bits) as usize + index, 1);
            let low = number & ((1 << low_bits) - 1);
            set_bits(sketch, low_at * 8 + index * low_bits as usize, low);
        }
        if let Lengths::Each { width, beyond, .. } = &self.lengths {
            for (index, units) in beyond.iter().enumerate() {
                set_bits(sketch, (low_at + low_bytes) * 8 + index * *width as usize, u64::from(*units));
            }
        }
    }
}

/// The bit position behind this many zeros; `None` if there are fewer.
fn after_zeros(bytes: &[u8], zeros: u64) -> Option<usize> {
    let mut left = usize::try_from(zeros).ok().filter(|zeros| *zeros <= bytes.len() * 8)?;
    if left == 0 {
        return Some(0);
    }
    for (number, word) in bytes.chunks(8).enumerate() {
        let mut zeros = !word.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        if word.len() < 8 {
            zeros &= (1 << (8 * word.len())) - 1;
        }
        let count = zeros.count_ones() as usize;
        if left <= count {
            (1..left).for_each(|_| zeros &= zeros - 1);
            return Some(number * 64 + zeros.trailing_zeros() as usize + 1);
        }
        left -= count;
    }
    None
}

/// `count` bits, at most 56, from bit `at` on.
#[inline]
fn bits(bytes: &[u8], at: usize, count: u32) -> u64 {
    let from = at / 8;
    let word = match bytes.get(from..from + 8) {
        Some(whole) => u64::from_le_bytes(whole.try_into().expect("eight bytes")),
        None => {
            bytes[from.min(bytes.len())..].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
        }
    };
    (word >> (at % 8)) & ((1 << count) - 1)
}

/// Sets the bits of a value of at most 56 bits, where all bits are zero.
fn set_bits(bytes: &mut [u8], at: usize, value: u64) {
    let shifted = value << (at % 8);
    for (byte, own) in bytes[at / 8..].iter_mut().zip(shifted.to_le_bytes()) {
        *byte |= own;
    }
}

#[cfg(test)]
mod tests;
