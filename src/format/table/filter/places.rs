//! Computation of positions in a filter, shared by all kinds of filters.

pub(crate) const LINE_BYTES: usize = 64;
pub(crate) const PROBES_MAX: u8 = 16;
pub(super) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Thousandths of a bit in a bit.
pub(crate) const MILLI: u32 = 1000;

#[inline]
pub(super) fn mix(hash: u64) -> u64 {
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

/// A position below `limit`, from the high bits of `value`.
#[inline]
pub(super) fn below(value: u64, limit: u64) -> u64 {
    ((u128::from(value) * u128::from(limit)) >> 64) as u64
}
