//! The search for good records behind a damaged one.
//!
//! A record may begin at every multiple of 8 bytes, and crafted bytes may look at each like a record up to
//! the end of the file. So the checksum of a long range is computed from checksums of prefixes instead of its
//! bytes: CRCs are linear, and `crc(a ‖ b) = crc(a) * x^(8 len b) + crc(b)` over GF(2). Cost: linear in the
//! file for all inputs.

use crate::base::checksum::{self, Context};
use crate::base::codec::ByteReader;

/// The polynomial of CRC32C, with the lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Distance between prefixes with a stored checksum.
const STEP_BYTES: usize = 1024;
/// Ranges up to this long are summed directly.
const DIRECT_BYTES: usize = 4096;

/// Checksums of any range of a byte string, each in bounded time.
pub(super) struct RangeSums<'a> {
    bytes: &'a [u8],
    /// Checksum of the first `i * STEP_BYTES` bytes.
    prefixes: Vec<u32>,
    /// x^(8 * 2^i).
    powers: [u32; 32],
}

impl<'a> RangeSums<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> RangeSums<'a> {
        let mut prefixes = Vec::with_capacity(bytes.len() / STEP_BYTES + 1);
        let mut sum = 0;
        prefixes.push(sum);
        for step in bytes.chunks_exact(STEP_BYTES) {
            sum = checksum::append(sum, step);
            prefixes.push(sum);
        }
        let mut powers = [1 << 23; 32];
        for index in 1..powers.len() {
            powers[index] = times(powers[index - 1], powers[index - 1]);
        }
        RangeSums { bytes, prefixes, powers }
    }

    /// The checksum of the bytes `from..to` under `context`. The range must lie in the bytes.
    pub(super) fn checksum(&self, context: Context, from: usize, to: usize) -> u32 {
        if to - from <= DIRECT_BYTES {
            return context.checksum(&[&self.bytes[from..to]]);
        }
        let before = context.checksum(&[]) ^ self.prefix(from);
        self.shifted(before, to - from) ^ self.prefix(to)
    }

    fn prefix(&self, to: usize) -> u32 {
        let step = to / STEP_BYTES;
        checksum::append(self.prefixes[step], &self.bytes[step * STEP_BYTES..to])
    }

    /// `sum * x^(8 * bytes)`.
    fn shifted(&self, sum: u32, bytes: usize) -> u32 {
        let set = |(index, _): &(usize, &u32)| bytes >> index & 1 == 1;
        self.powers.iter().enumerate().filter(set).fold(sum, |sum, (_, power)| times(*power, sum))
    }
}

/// Product of two polynomials modulo [`POLYNOMIAL`].
fn times(mut one: u32, mut other: u32) -> u32 {
    let mut product = 0;
    while one != 0 {
        if one >> 31 == 1 {
            product ^= other;
        }
        one <<= 1;
        other = (other >> 1) ^ (POLYNOMIAL & (other & 1).wrapping_neg());
    }
    product
}

/// The number of zeros at the end of `bytes`, counted in words for speed.
pub(super) fn zeros_at_end(bytes: &[u8]) -> usize {
    let words = bytes.rchunks_exact(8);
    let zero_words = words.take_while(|word| ByteReader::new(word).u64("a word") == Ok(0)).count();
    let rest = bytes.len() - 8 * zero_words;
    8 * zero_words + bytes[..rest].iter().rev().take_while(|byte| **byte == 0).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of ranges equal those computed from their bytes, for short and long ranges and every kind of
    /// border.
    #[test]
    fn range_sums_are_checksums() {
        let bytes: Vec<u8> =
            (0..20_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let sums = RangeSums::new(&bytes);
        let context = Context { file_uid: 5, offset: 88, tag: 1 };
        for from in [0, 1, 8, 1023, 1024, 5000] {
            for to in [from, from + 1, from + 4096, from + 4097, from + 9999, 15_360, 20_000] {
                let expected = context.checksum(&[&bytes[from..to]]);
                assert_eq!(sums.checksum(context, from, to), expected, "{from}..{to}");
            }
        }
    }

    /// Zeros at the end are counted to the byte.
    #[test]
    fn zeros_are_counted() {
        for length in 0..40 {
            for zeros in 0..=length {
                let mut bytes = vec![0; length];
                bytes[..length - zeros].fill(1);
                assert_eq!(zeros_at_end(&bytes), zeros);
            }
        }
    }
}
