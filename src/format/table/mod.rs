//! The bytes of a table file, which a flush or a merge writes once. A table file never changes afterwards.
//!
//! This module reads no files: it converts between bytes and values. `crate::table` builds, opens and
//! searches tables. Pure functions and plain values; no sharing.
//!
//! ```text
//! offset size     what
//! 0      4096     header page (`format::header`)
//!                 slices, one after another, each a tree of the store (of a file of history, which no other
//!                 process reads, numbered: keyspace 1, partitions from 1 on):
//!                   data blocks   (`data`, `compressed`) whole units, one after another without gaps
//!                   filter pages  (`filter`) none when the slice has no filter
//!                   fence pages   (`fence`)  none when the slice has one data block
//!                   top block     (`top`)    none when the slice has one data block
//!                   range blocks  (`ranges`) none when the slice has no range tombstones
//!                 footer (`footer`): whole units
//! -4096  4096     tail page (`footer`): where the footer is
//! ```
//! Every extent starts at a multiple of 512 bytes (a unit). A part of a slice that consists of 4096-byte
//! pages is aligned to 4096, with zeros before it. Integers are little-endian. A slice that the manifest no
//! longer names may be a hole: zeros in the 4096-byte pages that belong to it alone.
//!
//! Every block, page, footer and tail starts with the same five bytes:
//! ```text
//! offset size type name: meaning
//! 0      4    u32  checksum: of the rest of the extent, started from (file uid, offset, tag)
//! 4      1    u8   tag: 1 data, 2 filter, 3 fence, 4 top, 5 footer, 6 tail,
//!                  7 range tombstones
//! ```
//! The table checksum, which is kept in the manifest, is CRC32C over the checksums (4 bytes each) of all data
//! blocks, filter pages, fence pages, top blocks and range blocks in file order, then of the footer.

use crate::base::checksum::Context;
use crate::base::codec::Malformed;
use crate::base::id::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

pub(crate) mod compressed;
pub(crate) mod data;
pub(crate) mod data_build;
pub(crate) mod fence;
pub(crate) mod fence_build;
mod fence_quanta;
pub(crate) mod filter;
pub(crate) mod footer;
pub(crate) mod index;
pub(crate) mod learned;
pub(crate) mod learned_build;
pub(crate) mod quanta;
pub(crate) mod ranges;
pub(crate) mod sketch;
pub(crate) mod top;

/// Unit of extents: every extent of a table file is a multiple of it.
pub(crate) const UNIT_BYTES: usize = 512;
/// Bytes of filter and fence pages, and of data blocks that items fill.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Largest extent of a data block: one item with the longest key and the longest value.
pub(crate) const DATA_BLOCK_BYTES_MAX: usize =
    (data::HEADER_BYTES + 2 + KEY_BYTES_MAX + VALUE_BYTES_MAX).next_multiple_of(UNIT_BYTES);

pub(crate) const TOP_TAG: u8 = 4;
pub(crate) const FOOTER_TAG: u8 = 5;
pub(crate) const TAIL_TAG: u8 = 6;
pub(crate) const RANGES_TAG: u8 = 7;

/// Bytes of a checksum, which stands at the start of the extent.
pub(crate) const CHECKSUM_BYTES: usize = 4;
const TAG_AT: usize = 4;

/// Writes the tag and the checksum of a finished extent; returns the checksum.
pub(crate) fn seal(extent: &mut [u8], context: Context) -> u32 {
    extent[TAG_AT] = context.tag;
    let checksum = context.checksum(&[&extent[CHECKSUM_BYTES..]]);
    extent[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// The tag of an extent whose checksum may be unchecked.
pub(crate) fn claimed_tag(extent: &[u8]) -> Option<u8> {
    extent.get(TAG_AT).copied()
}

/// Checks the checksum of an extent, and then its tag, which the checksum covers; returns the checksum.
pub(crate) fn check_seal(extent: &[u8], context: Context) -> Result<u32, Malformed> {
    let Some((stored, covered)) = extent.split_first_chunk::<CHECKSUM_BYTES>() else {
        return Err(Malformed { at: 0, what: "checksum", expected: 4, found: extent.len() as u64 });
    };
    let (found, expected) = (u32::from_le_bytes(*stored), context.checksum(&[covered]));
    if found != expected {
        let (expected, found) = (u64::from(expected), u64::from(found));
        return Err(Malformed { at: 0, what: "checksum", expected, found });
    }
    match covered.first() {
        Some(tag) if *tag == context.tag => Ok(found),
        tag => {
            let found = tag.map_or(0, |tag| u64::from(*tag));
            Err(Malformed { at: TAG_AT, what: "block tag", expected: u64::from(context.tag), found })
        }
    }
}

/// Bytes of the fewest whole units that hold `bytes`.
pub(crate) fn extent_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(UNIT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seal is valid in its place only; a flipped byte, another tag and a short extent are refused.
    #[test]
    fn seals_hold_in_their_place_only() {
        let here = Context { file_uid: 1, offset: 4096, tag: TOP_TAG };
        let mut extent = vec![9u8; UNIT_BYTES];
        let checksum = seal(&mut extent, here);
        assert_eq!(check_seal(&extent, here), Ok(checksum));
        for elsewhere in [
            Context { file_uid: 2, ..here },
            Context { offset: 8192, ..here },
            Context { tag: FOOTER_TAG, ..here },
        ] {
            assert!(check_seal(&extent, elsewhere).is_err());
        }
        for index in [0, 4, 5, UNIT_BYTES - 1] {
            let mut flipped = extent.clone();
            flipped[index] ^= 1;
            assert!(check_seal(&flipped, here).is_err());
        }
        assert!(check_seal(&[1, 2, 3], here).is_err());
        // A right checksum over a wrong tag, as only crafted bytes have.
        let mut crafted = extent.clone();
        crafted[4] = FOOTER_TAG;
        let sum = here.checksum(&[&crafted[4..]]);
        crafted[..4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(check_seal(&crafted, here).map_err(|bad| bad.what), Err("block tag"));
    }
}
