//! Binary fuse pages: a key's 8-bit fingerprint is the xor of three bytes, in three lines. The false positive
//! rate is 1/256.
//!
//! ```text
//! offset size what
//! 0      63   slots of a line: bytes
//! 63     1    the page's seed, the same in every line
//! ```
//! Slot s of a page is byte s % 63 of line s / 63. With third = 21 × lines:
//! ```text
//! slot 0 = (m × third) >> 64;  f = mix(m + (seed + 1) × 0x9e3779b97f4a7c15), seed from the line of slot 0
//! slot 1 = third + (f × third) >> 64;  slot 2 = 2 × third + (f × 0x9e3779b97f4a7c15 × third) >> 64
//! fingerprint = f & 255
//! ```
//! Source: Graf and Lemire, "Binary fuse filters: fast and smaller than xor filters", 2022: three hashes,
//! peeling, and a new seed if peeling fails. For a filter of a page's size, segments of a third are best, as
//! in their "Xor filters" of 2020; overlapping segments pay off from 100,000 keys on. The seed in each line
//! is our change: a query finds the seed in a line that it reads anyway. So each page has its own seed, and a
//! query reads three lines.

use crate::base::codec::{ByteReader, Malformed};

use super::places::{GOLDEN, LINE_BYTES, below, mix};
use super::{FilterPlan, FilterShape, LINES_PER_PAGE, SEED_AT};

/// Slots of a key.
pub(super) const PROBES: u8 = 3;
const SLOTS_PER_LINE: usize = LINE_BYTES - 1;
const THIRD_PER_LINE: usize = SLOTS_PER_LINE / 3;
const SLOTS_PER_PAGE: usize = SLOTS_PER_LINE * LINES_PER_PAGE;
/// Mean keys of a page in a filter of many pages. A page with four standard deviations more still peels.
pub(super) const KEYS_PER_PAGE: u64 = SLOTS_PER_PAGE as u64 * 76 / 100;
/// Maximum number of rebuilds with more pages, if a page is too full.
const GROWTHS_MAX: u32 = 3;

/// Working memory for building one page.
#[derive(Default)]
struct Peeling {
    /// Number of keys left in each slot, and the xor of their indexes.
    counts: Vec<u16>,
    keys: Vec<u16>,
    /// Slots and fingerprint of each key.
    places: Vec<([u16; 3], u8)>,
    /// Slots with one key left.
    single: Vec<u16>,
    /// Keys in the order of peeling, each with a slot that only this key was left in.
    order: Vec<(u16, u16)>,
}

/// Lines for this number of keys.
pub(super) fn lines(keys: u64) -> u64 {
    // A single page: with four fifths of its slots used, at least one seed of two peels.
    let lines = (keys * 5).div_ceil(4 * SLOTS_PER_LINE as u64);
    if lines <= LINES_PER_PAGE as u64 {
        return lines;
    }
    keys.div_ceil(KEYS_PER_PAGE).max(2) * LINES_PER_PAGE as u64
}

/// Appends the pages. Returns `None`, and appends nothing, if no seed works for one of them. Sorts the hashes
/// and removes duplicates.
pub(super) fn build(plan: FilterPlan, hashes: &mut Vec<u64>, out: &mut Vec<u8>) -> Option<FilterShape> {
    hashes.sort_unstable();
    hashes.dedup();
    let start = out.len();
    let mut peeling = Peeling::default();
    let mut shape = FilterShape::new(hashes.len() as u64, plan);
    for _ in 0..=GROWTHS_MAX {
        out.truncate(start);
        shape.empty_pages(out);
        if fill(shape, hashes, &mut out[start..], &mut peeling) {
            return Some(shape);
        }
        // A single page may have had only a few units; two pages are a fresh start.
        let lines = u64::from(shape.pages + shape.pages.div_ceil(16)) * LINES_PER_PAGE as u64;
        shape = FilterShape::of_lines(lines, plan);
    }
    out.truncate(start);
    None
}

/// Fills all pages. Returns `false` if one of them cannot be filled.
fn fill(shape: FilterShape, hashes: &[u64], pages: &mut [u8], peeling: &mut Peeling) -> bool {
    let mut rest = hashes;
    for (number, page) in (0..).zip(pages.chunks_mut(shape.page_bytes as usize)) {
        // Sorted hashes are sorted by page too.
        let (keys, others) = rest.split_at(rest.partition_point(|hash| shape.page(*hash) <= number));
        rest = others;
        let lines = page.len() / LINE_BYTES - 1;
        // A fuller page does not peel with any seed.
        let is_too_full = keys.len() * 100 > lines * SLOTS_PER_LINE * 88;
        if is_too_full || !(0..=u8::MAX).any(|seed| peeling.peel(keys, lines, seed, page)) {
            return false;
        }
    }
    true
}

impl Peeling {
    /// Fills a page if its keys peel with this seed.
    fn peel(&mut self, keys: &[u64], lines: usize, seed: u8, page: &mut [u8]) -> bool {
        self.place(keys, lines, seed);
        while let Some(slot) = self.single.pop() {
            if self.counts[usize::from(slot)] != 1 {
                continue;
            }
            let key = self.keys[usize::from(slot)];
            self.order.push((key, slot));
            for other in self.places[usize::from(key)].0 {
                let at = usize::from(other);
                self.counts[at] -= 1;
                self.keys[at] ^= key;
                if self.counts[at] == 1 {
                    self.single.push(other);
                }
            }
        }
        if self.order.len() < keys.len() {
            return false;
        }
        page[SEED_AT] = seed;
        page[LINE_BYTES..].chunks_mut(LINE_BYTES).for_each(|line| line[SLOTS_PER_LINE] = seed);
        for (key, slot) in self.order.iter().rev() {
            let (slots, fingerprint) = self.places[usize::from(*key)];
            let [one, two, three] = slots.map(|slot| page[byte_of(usize::from(slot))]);
            // The key's own slot is still zero: slots of keys peeled later were filled earlier.
            page[byte_of(usize::from(*slot))] = fingerprint ^ one ^ two ^ three;
        }
        true
    }

    /// Counts the keys of each slot.
    fn place(&mut self, keys: &[u64], lines: usize, seed: u8) {
        let slots = lines * SLOTS_PER_LINE;
        self.counts.clear();
        self.counts.resize(slots, 0);
        self.keys.clear();
        self.keys.resize(slots, 0);
        self.places.clear();
        self.order.clear();
        for (number, hash) in (0..).zip(keys) {
            let (first, mixed) = first_slot(*hash, lines);
            let ([second, third], fingerprint) = other_slots(mixed, lines, seed);
            let places = [first, second, third].map(|slot| slot as u16);
            for slot in places.map(usize::from) {
                self.counts[slot] += 1;
                self.keys[slot] ^= number;
            }
            self.places.push((places, fingerprint));
        }
        self.single.clear();
        self.single.extend((0..).zip(&self.counts).filter(|(_, count)| **count == 1).map(|(slot, _)| slot));
    }
}

#[inline]
pub(super) fn may_contain(page: &[u8], hash: u64) -> bool {
    let lines = (page.len() / LINE_BYTES).saturating_sub(1);
    let (first, mixed) = first_slot(hash, lines);
    let Some(seed) = page.get(line_of(first) + SLOTS_PER_LINE) else { return true };
    let ([second, third], fingerprint) = other_slots(mixed, lines, *seed);
    let slots = [first, second, third].map(|slot| page.get(byte_of(slot)).copied());
    let [Some(one), Some(two), Some(three)] = slots else { return true };
    one ^ two ^ three == fingerprint
}

/// Offset in the page of the line with a key's slot 0.
pub(super) fn first_line_at(hash: u64, lines: usize) -> usize {
    line_of(first_slot(hash, lines).0)
}

/// Slot 0 of a key, and the mixed hash from which the other slots continue.
#[inline]
fn first_slot(hash: u64, lines: usize) -> (usize, u64) {
    let mixed = mix(hash);
    (below(mixed, (lines * THIRD_PER_LINE) as u64) as usize, mixed)
}

/// Slots 1 and 2, and the fingerprint.
#[inline]
fn other_slots(mixed: u64, lines: usize, seed: u8) -> ([usize; 2], u8) {
    let third = lines * THIRD_PER_LINE;
    let again = mix(mixed.wrapping_add((u64::from(seed) + 1).wrapping_mul(GOLDEN)));
    let second = below(again, third as u64) as usize;
    let last = below(again.wrapping_mul(GOLDEN), third as u64) as usize;
    ([third + second, 2 * third + last], again as u8)
}

/// Offset in the page of a slot's line.
#[inline]
fn line_of(slot: usize) -> usize {
    (slot / SLOTS_PER_LINE + 1) * LINE_BYTES
}

/// Offset in the page of a slot.
#[inline]
fn byte_of(slot: usize) -> usize {
    line_of(slot) + slot % SLOTS_PER_LINE
}

/// Checks that each line after the header line has the page's seed.
pub(super) fn check(reader: &mut ByteReader<'_>, seed: u8) -> Result<(), Malformed> {
    while reader.remaining() > 0 {
        reader.bytes(SLOTS_PER_LINE, "line of a filter page")?;
        let found = reader.u8("seed of a line")?;
        if found != seed {
            return Err(reader.malformed("seed of a line", u64::from(seed), u64::from(found)));
        }
    }
    Ok(())
}
