//! Keys as bytes: the common prefix of two keys, and their first eight bytes as a number that compares in one
//! instruction.
//!
//! This module knows no format: the code that lays keys out decides where prefixes are left out, and their
//! length.

/// Length of the longest common prefix.
pub(crate) fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let (ones, others) = (one.as_chunks::<8>().0, other.as_chunks::<8>().0);
    let words = ones.iter().zip(others).take_while(|(a, b)| a == b).count();
    let rest = one[words * 8..].iter().zip(&other[words * 8..]);
    words * 8 + rest.take_while(|(a, b)| a == b).count()
}

/// The first eight bytes as a big-endian number, which compares as the bytes do. Shorter keys are padded with
/// zeros.
///
/// A smaller head means a smaller key; equal heads decide nothing.
#[inline]
pub(crate) fn head(bytes: &[u8]) -> u64 {
    if let Some(chunk) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*chunk);
    }
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(padded)
}

/// The head of the bytes after the first `skip`, of which there may be none.
#[inline]
pub(crate) fn head_after(key: &[u8], skip: usize) -> u64 {
    head(key.get(skip..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heads never contradict key order, and common prefixes end at the first difference at every length.
    #[test]
    fn heads_and_prefixes() {
        let keys: [&[u8]; 9] =
            [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0\0\0\0\0\0\0", b"a\0\0\0\0\0\0\0\0", b"a\0\x01", b"b"];
        for pair in keys.windows(2) {
            assert!(pair[0] < pair[1] && head(pair[0]) <= head(pair[1]), "{pair:?}");
        }
        let long = [7u8; 40];
        for length in 0..=long.len() {
            let mut other = long;
            if length < long.len() {
                other[length] = 8;
            }
            assert_eq!(common_prefix(&long, &other), length);
            assert_eq!(common_prefix(&long[..length], &long), length);
        }
    }

    /// The head behind a prefix is the head of the remaining bytes, also where none remain.
    #[test]
    fn heads_behind_a_prefix() {
        assert_eq!(head_after(b"abcdefghi", 8), u64::from(b'i') << 56);
        assert_eq!([head_after(b"ab", 2), head_after(b"ab", 5)], [0, 0]);
        assert_eq!(head_after(b"abcdefghij", 1), u64::from_be_bytes(*b"bcdefghi"));
    }
}
