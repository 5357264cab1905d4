//! Bloom pages: a key's bits are anywhere in its page. This has the fewest false positives for the bits, and
//! reads one line for each probe.
//!
//! ```text
//! for each probe: m := m × 0x9e3779b97f4a7c15, bit = (m × bits) >> 64
//! ```
//! bits is 512 times the lines; bit b is bit b % 8 of byte b / 8 after the header line. Bloom, "Space/time
//! trade-offs in hash coding with allowable errors", 1970.

use super::places::{GOLDEN, LINE_BYTES, PROBES_MAX, below, mix};

/// ln 2 × 1000: probes for each bit at the optimum.
const PROBES_PER_MILLION: u64 = 693;

/// The best number of probes for the bits: bits × ln 2, rounded.
pub(super) fn probes(millibits_per_key: u32) -> u8 {
    let probes = (u64::from(millibits_per_key) * PROBES_PER_MILLION + 500_000) / 1_000_000;
    probes.clamp(1, u64::from(PROBES_MAX)) as u8
}

pub(super) fn add(page: &mut [u8], hash: u64, probes: u8) {
    let bytes = &mut page[LINE_BYTES..];
    set(bytes, bytes.len() as u64 * 8, hash, probes);
}

#[inline]
pub(super) fn may_contain(page: &[u8], hash: u64, probes: u8) -> bool {
    match page.get(LINE_BYTES..) {
        Some(bytes) if !bytes.is_empty() => are_set(bytes, bytes.len() as u64 * 8, hash, probes),
        _ => true,
    }
}

/// Offset in the page of the line with a key's first bit.
pub(super) fn first_line_at(hash: u64, lines: usize) -> usize {
    (below(mix(hash).wrapping_mul(GOLDEN), lines as u64) as usize + 1) * LINE_BYTES
}

/// Sets a key's bits among the first `bits` bits of `bytes`, which must have that many.
pub(super) fn set(bytes: &mut [u8], bits: u64, hash: u64, probes: u8) {
    let mut mixed = mix(hash);
    for _ in 0..probes {
        mixed = mixed.wrapping_mul(GOLDEN);
        let bit = below(mixed, bits) as usize;
        bytes[bit / 8] |= 1 << (bit % 8);
    }
}

/// Whether a key's bits are set among the first `bits` bits of `bytes`, which must have that many.
#[inline]
pub(super) fn are_set(bytes: &[u8], bits: u64, hash: u64, probes: u8) -> bool {
    let mut mixed = mix(hash);
    (0..probes).all(|_| {
        mixed = mixed.wrapping_mul(GOLDEN);
        let bit = below(mixed, bits) as usize;
        bytes.get(bit / 8).is_none_or(|byte| byte >> (bit % 8) & 1 == 1)
    })
}
