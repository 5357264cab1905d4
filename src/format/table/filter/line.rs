//! Cache-line Bloom pages: all bits of a key are in one line, so a query reads one line.
//!
//! ```text
//! line = (m × lines) >> 64
//! for each probe: m := m × 0x9e3779b97f4a7c15, bit = m >> 55
//! ```
//! Bit b of a line is bit b % 64 of its little-endian word b / 64. Filters of one cache line for each key are
//! those of Putze, Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters", 2007.

use super::places::{GOLDEN, LINE_BYTES, MILLI, below, mix};

/// Number of probes for each whole number of bits a key: the fewest within 1 % of the best rate that 512-bit
/// lines allow, Σ_i Poisson(512 / bits; i) × (1 - (1 - 1/512)^(probes × i))^probes.
const PROBES: [u8; 25] = [1, 1, 1, 2, 3, 3, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 11, 11, 11, 11, 12, 12, 12];

/// The best number of probes for the bits.
pub(super) fn probes(millibits_per_key: u32) -> u8 {
    let bits = (millibits_per_key + MILLI / 2) / MILLI;
    PROBES[(bits as usize).min(PROBES.len() - 1)]
}

pub(super) fn add(page: &mut [u8], hash: u64, probes: u8) {
    let (line_at, mut mixed) = place(hash, page.len());
    let line = &mut page[line_at..line_at + LINE_BYTES];
    for _ in 0..probes {
        mixed = mixed.wrapping_mul(GOLDEN);
        let bit = (mixed >> 55) as usize;
        line[bit / 8] |= 1 << (bit % 8);
    }
}

#[inline]
pub(super) fn may_contain(page: &[u8], hash: u64, probes: u8) -> bool {
    let (line_at, mut mixed) = place(hash, page.len());
    let line = page.get(line_at..line_at + LINE_BYTES).unwrap_or_default();
    let Some(words) = line.as_chunks::<8>().0.first_chunk::<8>() else {
        return true;
    };
    let mut set = 1;
    for _ in 0..probes {
        mixed = mixed.wrapping_mul(GOLDEN);
        let word = u64::from_le_bytes(words[(mixed >> 61) as usize]);
        set &= word >> ((mixed >> 55) & 63);
    }
    set & 1 == 1
}

/// Offset of a key's line in its page.
#[inline]
pub(super) fn line_at(hash: u64, page_bytes: usize) -> usize {
    place(hash, page_bytes).0
}

/// Offset of a key's line in its page, and the mixed hash from which its probes continue.
#[inline]
fn place(hash: u64, page_bytes: usize) -> (usize, u64) {
    let mixed = mix(hash);
    let lines = (page_bytes / LINE_BYTES).saturating_sub(1) as u64;
    ((below(mixed, lines) as usize + 1) * LINE_BYTES, mixed)
}
