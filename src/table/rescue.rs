//! The good extents of a table file, whatever the rest of it is like: blocks of items and range tombstones,
//! found by their own checksums at every unit of the file. Neither header nor footer nor fences are needed.
//!
//! Cost: a read of the file; where units look like the beginning of a block and are none, a checksum of up to
//! 1.1 MiB each.

use crate::base::checksum::Context;
use crate::base::error::Result;
use crate::base::id::{FileName, ItemKind, TreeId};
use crate::base::step::{BlockAddress, BlockKind};
use crate::format::table::data::{self, Layout};
use crate::format::table::footer::Span;
use crate::format::table::ranges::{Ranges, claimed_bytes};
use crate::format::table::{DATA_BLOCK_BYTES_MAX, RANGES_TAG, UNIT_BYTES, check_seal, claimed_tag};
use crate::io::storage::Storage;

use super::build::TableIdentity;
use super::memory::AlignedBytes;
use super::open::Contents;
use super::verify::{decompress, verify_block};

/// Bytes read at once: a block always fits.
const WINDOW_BYTES: usize = 4 << 20;

/// A good extent.
pub(crate) enum Good<'g> {
    Items(GoodItems<'g>),
    Ranges(Ranges),
}

/// The items of a block, in order.
pub(crate) struct GoodItems<'g> {
    block: &'g [u8],
    layout: Layout,
}

impl GoodItems<'_> {
    pub(crate) fn count(&self) -> usize {
        self.layout.items()
    }

    pub(crate) fn item(&self, index: usize) -> (Vec<u8>, ItemKind, &[u8]) {
        let key = [self.layout.prefix(self.block), self.layout.suffix(self.block, index)].concat();
        let value = &self.block[self.layout.value_range(self.block, index)];
        (key, self.layout.kind(self.block, index), value)
    }
}

/// Gives every good extent that lies in a part of the file with this uid to `take`, with its offset, in the
/// order of the file.
///
/// # Errors
/// What `take` answers; `Io` where nothing can be read.
pub(crate) fn good_extents(
    storage: &dyn Storage,
    (file, uid, span): (FileName, u64, Span),
    take: &mut dyn FnMut(u64, Good<'_>) -> Result<()>,
) -> Result<()> {
    const { assert!(WINDOW_BYTES > 2 * DATA_BLOCK_BYTES_MAX, "a block fits the window") };
    let mut window = AlignedBytes::new(WINDOW_BYTES);
    let (mut start, mut filled) = (0u64, 0usize);
    let (mut at, bytes) = (span.offset, span.end());
    while at + UNIT_BYTES as u64 <= bytes {
        let held = (start + filled as u64).saturating_sub(at);
        if held < 2 * DATA_BLOCK_BYTES_MAX as u64 && start + (filled as u64) < bytes || filled == 0 {
            let wanted = (bytes - at).min(WINDOW_BYTES as u64) as usize / UNIT_BYTES * UNIT_BYTES;
            (start, filled) = (at, storage.read(file, at, &mut window[..wanted])?);
            if filled < UNIT_BYTES {
                return Ok(());
            }
        }
        let here = &window[(at - start) as usize..filled];
        at += match good_at(
            &BlockAddress { file, file_uid: uid, offset: at, bytes: 0, kind: BlockKind::Data },
            here,
        ) {
            None => UNIT_BYTES as u64,
            Some((length, Extent::Ranges(ranges))) => {
                take(at, Good::Ranges(ranges))?;
                length as u64
            }
            Some((length, Extent::Block(plain))) => {
                let block = plain.as_deref().unwrap_or(&here[..length]);
                take(at, Good::Items(GoodItems { block, layout: Layout::of(block) }))?;
                length as u64
            }
        };
    }
    Ok(())
}

enum Extent {
    /// Decompressed, if it was compressed.
    Block(Option<Vec<u8>>),
    Ranges(Ranges),
}

/// The good extent at the beginning of `bytes`, with its length.
fn good_at(at: &BlockAddress, bytes: &[u8]) -> Option<(usize, Extent)> {
    if claimed_tag(bytes) == Some(RANGES_TAG) {
        let length = claimed_bytes(bytes).ok()?;
        let extent = bytes.get(..length)?;
        check_seal(extent, Context { file_uid: at.file_uid, offset: at.offset, tag: RANGES_TAG }).ok()?;
        let mut ranges = Ranges::default();
        ranges.decode_extent(extent).ok()?;
        return Some((length, Extent::Ranges(ranges)));
    }
    if claimed_tag(bytes) != Some(BlockKind::Data as u8) {
        return None;
    }
    let length = data::extent_claimed(bytes)?;
    let block = bytes.get(..length)?;
    let address = BlockAddress { bytes: length as u32, ..*at };
    let Some(plain_bytes) = verify_block(&address, block).ok()?.plain_bytes else {
        return Some((length, Extent::Block(None)));
    };
    let mut plain = vec![0; plain_bytes];
    decompress(&address, block, &mut plain).ok()?;
    Some((length, Extent::Block(Some(plain))))
}

/// Where the slices of a file are, by its footer.
///
/// # Errors
/// `Corrupt` if the footer cannot be read, `Io`.
pub(crate) fn slice_spans(
    storage: &dyn Storage,
    identity: TableIdentity,
    bytes: u64,
) -> Result<Vec<(TreeId, Span)>> {
    let contents = Contents::read(storage, identity, bytes, None)?;
    Ok(contents.slices.iter().map(|slice| (slice.entry.tree, slice.entry.span())).collect())
}
