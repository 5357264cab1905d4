//! CRC32C started from where the bytes belong, so that a stale, swapped or foreign block fails.
//!
//! A checksum is not a signature: who can write the files can write the checksums.

/// Where bytes belong: which file, at which offset, as what kind of thing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// 64 random bits of the file, from its header.
    pub(crate) file_uid: u64,
    pub(crate) offset: u64,
    /// The tag of the thing checksummed; 0 is never valid.
    pub(crate) tag: u8,
}

impl Context {
    /// Checksum of `parts` in order, as if they were one run of bytes.
    pub(crate) fn checksum(self, parts: &[&[u8]]) -> u32 {
        let mut place = [0u8; 17];
        place[..8].copy_from_slice(&self.file_uid.to_le_bytes());
        place[8..16].copy_from_slice(&self.offset.to_le_bytes());
        place[16] = self.tag;
        parts.iter().fold(crc32c::crc32c(&place), |crc, part| crc32c::crc32c_append(crc, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
