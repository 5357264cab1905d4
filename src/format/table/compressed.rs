//! Compressed data block: a data block as LZ4 (block format), if that makes its extent at least an eighth
//! shorter. Other blocks are stored as they are, so a slice may have both kinds.
//!
//! Compressed blocks are never searched. `table` checks the stored block, decompresses it once, and checks
//! the result like any data block (`data`); all layers above see only the result. Pure functions.
//!
//! ```text
//! offset size type name: meaning
//! 0      4    u32  checksum: over what is stored, so damage is found before anything is decompressed
//! 4      1    u8   tag: 1
//! 5      1    u8   flags: 16; no other
//! 6      2         zero
//! 8      4    u32  used: bytes to the end of the compressed ones; then zeros to the end of the extent, < 512
//! 12     4    u32  plain: bytes of the data block, to the end of its values
//! 16     ..        compressed: the data block from offset 5 to the end of its values
//! ```
//! The first five bytes of the data block are not stored: a decompressed block has a zero checksum and tag 1,
//! and zeros fill it to whole units.
//!
//! Invariants:
//! 1. The length to allocate is known before decompression. It is longer than the stored block, at most that
//!    of the largest data block, at most [`RATIO_MAX`] times the stored bytes, and exactly the length of the
//!    result.

use crate::base::codec::Malformed;
use crate::base::step::BlockKind;

use super::data::HEADER_BYTES as PLAIN_HEADER_BYTES;
use super::{DATA_BLOCK_BYTES_MAX, UNIT_BYTES, extent_bytes};

/// Bytes before the compressed data.
pub(crate) const HEADER_BYTES: usize = 16;
pub(super) const COMPRESSED: u8 = 16;
/// Maximum ratio of decompressed to compressed bytes of an LZ4 block.
const RATIO_MAX: usize = 255;
/// Bytes of the data block before the compressed part: checksum and tag.
const SKIPPED_BYTES: usize = 5;
const FLAGS_AT: usize = 5;

/// How data blocks are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compression {
    /// Uncompressed.
    None,
    /// As LZ4 if that makes the extent at least an eighth shorter.
    Lz4,
}

/// Replaces the data block of `used` bytes from `start` to the end of `out` by its compressed form, if that
/// is at least an eighth shorter. Neither form is sealed. `memory` is a reusable buffer.
pub(super) fn compress(out: &mut Vec<u8>, start: usize, used: usize, memory: &mut Vec<u8>) {
    let plain = &out[start + SKIPPED_BYTES..start + used];
    let limit = stored_bytes_max(used);
    if limit == 0 {
        return;
    }
    memory.clear();
    memory.resize(lz4_flex::block::get_maximum_output_size(plain.len()), 0);
    let compressed = lz4_flex::block::compress_into(plain, memory).expect("as much room as can be needed");
    let stored = HEADER_BYTES + compressed;
    if stored > limit {
        return;
    }
    let number = |value: usize| u32::try_from(value).expect("a block is far smaller").to_le_bytes();
    out.truncate(start);
    out.extend_from_slice(&[0, 0, 0, 0, BlockKind::Data as u8, COMPRESSED, 0, 0]);
    out.extend_from_slice(&number(stored));
    out.extend_from_slice(&number(used));
    out.extend_from_slice(&memory[..compressed]);
}

/// The longest extent that is at least an eighth shorter than that of a data block of `used` bytes; zero for
/// one unit, which cannot shrink.
fn stored_bytes_max(used: usize) -> usize {
    (extent_bytes(used) * 7 / 8) / UNIT_BYTES * UNIT_BYTES
}

/// The length, in whole units, of the data block in a compressed block; `None` for an uncompressed block. The
/// caller has checked the checksum.
pub(crate) fn plain_bytes(stored: &[u8]) -> Result<Option<usize>, Malformed> {
    match stored.get(FLAGS_AT) {
        Some(flags) if flags & COMPRESSED != 0 => parse(stored).map(|(_, used)| Some(extent_bytes(used))),
        _ => Ok(None),
    }
}

/// Decompresses a stored block into `plain`, whose length must be the one from [`plain_bytes`]. The caller
/// must check the result like any data block.
pub(crate) fn decompress(stored: &[u8], plain: &mut [u8]) -> Result<(), Malformed> {
    let (compressed, used) = parse(stored)?;
    assert_eq!(plain.len(), extent_bytes(used), "the length was asked for");
    let (head, rest) = plain.split_at_mut(SKIPPED_BYTES);
    head.copy_from_slice(&[0, 0, 0, 0, BlockKind::Data as u8]);
    let expected = used - SKIPPED_BYTES;
    let (body, padding) = rest.split_at_mut(expected);
    padding.fill(0);
    match lz4_flex::block::decompress_into(compressed, body) {
        Ok(found) if found == expected => Ok(()),
        Ok(found) => Err(bad(12, "length of a decompressed block", expected, found)),
        Err(_) => Err(bad(HEADER_BYTES, "compressed bytes of a data block", expected, 0)),
    }
}

/// The compressed bytes, and the used bytes of the data block in them.
fn parse(stored: &[u8]) -> Result<(&[u8], usize), Malformed> {
    let Some(header) = stored.first_chunk::<HEADER_BYTES>() else {
        return Err(bad(0, "length of a compressed block", HEADER_BYTES, stored.len()));
    };
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (used, plain) = (number(8) as usize, number(12) as usize);
    if header[FLAGS_AT] != COMPRESSED {
        let found = usize::from(header[FLAGS_AT]);
        return Err(bad(FLAGS_AT, "flags of a compressed block", usize::from(COMPRESSED), found));
    }
    if header[6] != 0 || header[7] != 0 {
        return Err(bad(6, "unused bytes of a compressed block", 0, usize::from(header[6] | header[7])));
    }
    if used <= HEADER_BYTES || stored.len() != extent_bytes(used) {
        return Err(bad(8, "extent of a compressed block", stored.len(), used));
    }
    if let Some(index) = stored[used..].iter().position(|byte| *byte != 0) {
        return Err(bad(used + index, "padding of a compressed block", 0, usize::from(stored[used + index])));
    }
    let limit = DATA_BLOCK_BYTES_MAX.min(SKIPPED_BYTES + (used - HEADER_BYTES) * RATIO_MAX);
    if plain <= PLAIN_HEADER_BYTES || plain > limit || stored.len() > stored_bytes_max(plain) {
        return Err(bad(12, "plain length of a compressed block", limit, plain));
    }
    Ok((&stored[HEADER_BYTES..used], plain))
}

fn bad(at: usize, what: &'static str, expected: usize, found: usize) -> Malformed {
    Malformed { at, what, expected: expected as u64, found: found as u64 }
}

#[cfg(test)]
#[path = "compressed/tests.rs"]
mod tests;
