//! Bounds-checked reading of little-endian bytes, and the matching writes.
//!
//! A reader never panics, never allocates and never trusts a length beyond the bytes it has. Callers in
//! `format` turn [`Malformed`] into `Error::Corrupt` with file and offset.

/// Bytes that do not decode: their offset in the slice, the name of the field, expected and found values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed {
    /// Offset in the slice given to the decoder.
    pub(crate) at: usize,
    pub(crate) what: &'static str,
    pub(crate) expected: u64,
    pub(crate) found: u64,
}

/// A cursor over bytes from disk.
#[derive(Clone, Debug)]
pub(crate) struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader { bytes, at: 0 }
    }

    /// Offset of the next unread byte.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The byte `ahead` bytes after the next unread one.
    #[inline]
    pub(crate) fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at.checked_add(ahead)?).copied()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The error of a failed check at the current offset, with its `expected` and `found`.
    pub(crate) fn malformed(&self, what: &'static str, expected: u64, found: u64) -> Malformed {
        Malformed { at: self.at, what, expected, found }
    }

    pub(crate) fn bytes(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..count) else {
            return Err(self.malformed(what, count as u64, rest.len() as u64));
        };
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let taken = self.bytes(N, what)?;
        Ok(<[u8; N]>::try_from(taken).expect("bytes(N) returns N bytes"))
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u128(&mut self, what: &'static str) -> Result<u128, Malformed> {
        Ok(u128::from_le_bytes(self.array(what)?))
    }

    /// LEB128 of at most 10 bytes, in its shortest form only.
    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let start = self.at;
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(what)?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    break;
                }
                return Ok(value);
            }
        }
        Err(Malformed { at: start, what, expected: 0, found: value })
    }

    /// A varint that must not exceed `max`.
    pub(crate) fn varint_up_to(&mut self, max: u64, what: &'static str) -> Result<u64, Malformed> {
        let value = self.varint(what)?;
        if value > max {
            return Err(self.malformed(what, max, value));
        }
        Ok(value)
    }

    /// Reserved bytes and padding: zero, and checked.
    pub(crate) fn zeros(&mut self, count: usize, what: &'static str) -> Result<(), Malformed> {
        let start = self.at;
        let taken = self.bytes(count, what)?;
        // One pass without an early exit first: compilers vectorize it.
        if taken.iter().fold(0, |all, byte| all | byte) == 0 {
            return Ok(());
        }
        match taken.iter().position(|byte| *byte != 0) {
            None => Ok(()),
            Some(index) => {
                Err(Malformed { at: start + index, what, expected: 0, found: u64::from(taken[index]) })
            }
        }
    }

    /// Checks that all bytes have been read.
    #[cfg(test)]
    pub(crate) fn finish(&self, what: &'static str) -> Result<(), Malformed> {
        if self.remaining() == 0 { Ok(()) } else { Err(self.malformed(what, 0, self.remaining() as u64)) }
    }
}

/// Appends the LEB128 of `value`.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that `put_varint` appends.
#[cfg(any(test, feature = "lab"))]
pub(crate) fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values at every length boundary are decoded again, from the announced number of bytes.
    #[test]
    fn varints_round_trip() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_bytes(value));
                let mut reader = ByteReader::new(&out);
                assert_eq!(reader.varint("v"), Ok(value));
                assert_eq!(reader.finish("v"), Ok(()));
            }
        }
    }

    /// Cut, overlong and overflowing varints, short slices, nonzero padding and left-over bytes are all
    /// refused.
    #[test]
    fn malformed_bytes_are_refused() {
        for bad in [
            &[][..],
            &[0x80],
            &[0x80, 0],
            &[0xff; 10],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert!(ByteReader::new(bad).varint("v").is_err(), "{bad:?}");
        }
        assert!(ByteReader::new(&[1, 2, 3]).u32("v").is_err());
        assert!(ByteReader::new(&[200, 1]).varint_up_to(199, "v").is_err());
        assert_eq!(ByteReader::new(&[0, 9]).zeros(2, "v").map_err(|m| m.at), Err(1));
        assert!(ByteReader::new(&[0]).finish("v").is_err());
        assert!(ByteReader::new(&[0; 4]).bytes(usize::MAX, "v").is_err());
    }
}
