//! CRC32C that starts with the location of the bytes, so that a stale, swapped or foreign block fails.
//!
//! A checksum is not a signature: a writer of the files can write matching checksums.

use crc_fast::{CrcAlgorithm, Digest};

/// Extends the CRC32C `sum` by `bytes`; 0 is the sum of no bytes.
#[inline]
pub(crate) fn append(sum: u32, bytes: &[u8]) -> u32 {
    // A digest holds the state before the last inversion.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!sum));
    digest.update(bytes);
    digest.finalize() as u32
}

/// The location of bytes: their file, their offset, and the kind of thing they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// 64 random bits of the file, from its header.
    pub(crate) file_uid: u64,
    pub(crate) offset: u64,
    /// The tag of the checksummed thing; 0 is never valid.
    pub(crate) tag: u8,
}

impl Context {
    /// Checksum of `parts` in order, as if they were one run of bytes.
    pub(crate) fn checksum(self, parts: &[&[u8]]) -> u32 {
        let mut place = [0u8; 17];
        place[..8].copy_from_slice(&self.file_uid.to_le_bytes());
        place[8..16].copy_from_slice(&self.offset.to_le_bytes());
        place[16] = self.tag;
        parts.iter().fold(append(0, &place), |sum, part| append(sum, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checksums equal those of another implementation, for any length, in one piece and in two.
    #[test]
    fn checksums_are_crc32c() {
        assert_eq!(append(0, b"123456789"), 0xe306_9283);
        let bytes: Vec<u8> = (0..20_000u32).map(|index| ((index * index) >> 5) as u8).collect();
        for length in (0..2_100).chain([4_096, 4_608, 16_384, 20_000]) {
            let bytes = &bytes[length % 7..length.max(length % 7)];
            let right = crc32c::crc32c(bytes);
            assert_eq!(append(0, bytes), right, "{length}");
            let (before, after) = bytes.split_at(bytes.len() * 2 / 5);
            assert_eq!(append(append(0, before), after), right, "{length}");
        }
    }

    /// The same bytes in another file, at another offset or under another tag have another checksum.
    #[test]
    fn place_changes_the_checksum() {
        let here = Context { file_uid: 7, offset: 4096, tag: 1 };
        let sum = here.checksum(&[b"ab", b"c"]);
        assert_eq!(sum, here.checksum(&[b"abc"]));
        assert_ne!(sum, Context { file_uid: 8, ..here }.checksum(&[b"abc"]));
        assert_ne!(sum, Context { offset: 8192, ..here }.checksum(&[b"abc"]));
        assert_ne!(sum, Context { tag: 2, ..here }.checksum(&[b"abc"]));
    }
}
