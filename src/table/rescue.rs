//! The good extents of a table file, however damaged the rest is: blocks of items and range tombstones, found
//! by their own checksums at every unit of the file. Header, footer and fences are not needed.
//!
//! Cost: one read of the file; each unit that looks like the beginning of a block and is none costs a
//! checksum of up to 1.1 MiB.

use crate::base::checksum::Context;
use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileName, ItemKind};
use crate::base::place::PLACE_BYTES;
use crate::base::step::{BlockAddress, BlockKind};
use crate::format::table::data::{self, Layout};
use crate::format::table::footer::{Footer, SliceEntry, Span};
use crate::format::table::ranges::{Ranges, claimed_bytes};
use crate::format::table::{
    DATA_BLOCK_BYTES_MAX, FOOTER_TAG, PAGE_BYTES, RANGES_TAG, UNIT_BYTES, check_seal, claimed_tag,
    extent_bytes,
};
use crate::io::storage::Storage;

use super::identity::TableIdentity;
use super::memory::AlignedBytes;
use super::open::Contents;
use super::verify::{decompress, verify_block};

/// Bytes read at once; any block fits.
const WINDOW_BYTES: usize = 4 << 20;

/// A good extent.
pub(crate) enum Good<'g> {
    Items(GoodItems<'g>),
    Ranges(Ranges),
    /// A part that follows the items of a slice.
    Other,
}

/// The items of a block, in order.
pub(crate) struct GoodItems<'g> {
    block: &'g [u8],
    layout: Layout,
    secret: Option<&'g HashSecret>,
}

impl GoodItems<'_> {
    pub(crate) fn count(&self) -> usize {
        self.layout.items()
    }

    /// Whether the items are of a hashed keyspace; their block shows it.
    pub(crate) fn leaves_places_out(&self) -> bool {
        self.layout.leaves_places_out()
    }

    /// Whether the order of the keys is unknown: they have no places, and the secret is lost.
    pub(crate) fn is_unordered(&self) -> bool {
        self.secret.is_none() && self.layout.leaves_places_out()
    }

    /// Stored key, kind and value. If the order is unknown, the key's place is zeros.
    pub(crate) fn item(&self, index: usize) -> (Vec<u8>, ItemKind, &[u8]) {
        let key = match self.secret {
            Some(secret) => self.layout.key(self.block, index, secret),
            None => {
                let place = if self.layout.leaves_places_out() { PLACE_BYTES } else { 0 };
                let (prefix, suffix) =
                    (self.layout.prefix(self.block), self.layout.suffix(self.block, index));
                [&[0; PLACE_BYTES][..place], prefix, suffix].concat()
            }
        };
        let value = &self.block[self.layout.value_range(self.block, index)];
        (key, self.layout.kind(self.block, index), value)
    }
}

/// Passes every good extent of the file's `span` that is sealed with this uid to `take`, with its span, in
/// the order of the file. `secret`: the hash secret of the file's store, if it is known.
///
/// # Errors
/// The errors of `take`; `Io` if no part can be read.
pub(crate) fn good_extents(
    storage: &dyn Storage,
    (file, uid, span): (FileName, u64, Span),
    secret: Option<&HashSecret>,
    take: &mut dyn FnMut(Span, Good<'_>) -> Result<()>,
) -> Result<()> {
    const { assert!(WINDOW_BYTES > 2 * DATA_BLOCK_BYTES_MAX, "a block fits the window") };
    let mut window = AlignedBytes::new(WINDOW_BYTES);
    let (mut start, mut filled) = (0u64, 0usize);
    let (mut at, bytes) = (span.offset, span.end() / UNIT_BYTES as u64 * UNIT_BYTES as u64);
    while at + UNIT_BYTES as u64 <= bytes {
        let held = (start + filled as u64).saturating_sub(at);
        if held < 2 * DATA_BLOCK_BYTES_MAX as u64 && start + (filled as u64) < bytes || filled == 0 {
            let wanted = (bytes - at).min(WINDOW_BYTES as u64) as usize / UNIT_BYTES * UNIT_BYTES;
            (start, filled) = (at, read_past_faults(storage, file, at, &mut window[..wanted])?);
            if filled < UNIT_BYTES {
                return Ok(());
            }
        }
        let here = &window[(at - start) as usize..filled];
        let place = |length: usize| Span { offset: at, bytes: length as u64 };
        at += match good_at(
            &BlockAddress { file, file_uid: uid, offset: at, bytes: 0, kind: BlockKind::Data },
            here,
        ) {
            None => UNIT_BYTES as u64,
            Some((length, Extent::Other)) => {
                take(place(length), Good::Other)?;
                length as u64
            }
            Some((length, Extent::Ranges(ranges))) => {
                take(place(length), Good::Ranges(ranges))?;
                length as u64
            }
            Some((length, Extent::Block(plain))) => {
                let block = plain.as_deref().unwrap_or(&here[..length]);
                take(place(length), Good::Items(GoodItems { block, layout: Layout::of(block), secret }))?;
                length as u64
            }
        };
    }
    Ok(())
}

enum Extent {
    /// The decompressed block, if it was compressed.
    Block(Option<Vec<u8>>),
    Ranges(Ranges),
    /// A page of a filter or of fences.
    Other,
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
    let is_page = |kind: &BlockKind| claimed_tag(bytes) == Some(*kind as u8);
    if let Some(kind) = [BlockKind::Filter, BlockKind::Fence].into_iter().find(is_page) {
        let context = Context { file_uid: at.file_uid, offset: at.offset, tag: kind as u8 };
        let mut lengths = (UNIT_BYTES..=PAGE_BYTES).step_by(UNIT_BYTES);
        let is_good =
            |length: &usize| bytes.get(..*length).is_some_and(|page| check_seal(page, context).is_ok());
        return lengths.find(is_good).map(|length| (length, Extent::Other));
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

/// The slices of a file by its footer, under any file name.
///
/// # Errors
/// `Corrupt` if the footer cannot be read, `Io`.
pub(crate) fn slice_entries(
    storage: &dyn Storage,
    identity: TableIdentity,
    bytes: u64,
) -> Result<Vec<SliceEntry>> {
    // Only the footer entries are needed, and any slice may be a hole.
    match Contents::read(storage, identity, bytes, None, &|_, _| Ok(false)) {
        Ok(contents) => Ok(contents.slices.into_iter().map(|slice| slice.entry.unpack()).collect()),
        Err(error) => match footer(storage, identity, bytes)? {
            Some(footer) => Ok(footer.slices),
            None => Err(error),
        },
    }
}

/// The good footer nearest to the end of the file; the bytes around it may be damaged.
fn footer(storage: &dyn Storage, identity: TableIdentity, bytes: u64) -> Result<Option<Footer>> {
    let unit = UNIT_BYTES as u64;
    let end = bytes / unit * unit;
    let start = end.saturating_sub(WINDOW_BYTES as u64);
    let mut window = AlignedBytes::new((end - start) as usize);
    let filled = read_past_faults(storage, identity.file, start, &mut window)?;
    let window = &window[..filled];
    for at in (0..window.len() / UNIT_BYTES).rev().map(|index| index * UNIT_BYTES) {
        let here = &window[at..];
        if claimed_tag(here) != Some(FOOTER_TAG) {
            continue;
        }
        let Some(used) = here.get(8..12).and_then(|used| used.first_chunk::<4>()) else { continue };
        let offset = start + at as u64;
        let context = Context { file_uid: identity.uid, offset, tag: FOOTER_TAG };
        let extent = here.get(..extent_bytes(u32::from_le_bytes(*used) as usize));
        let good = extent.filter(|extent| check_seal(extent, context).is_ok());
        if let Some(Ok(footer)) = good.map(|extent| Footer::decode(extent, offset)) {
            return Ok(Some(footer));
        }
    }
    Ok(None)
}

/// As `read`, but pages that the device cannot read are zeros.
///
/// # Errors
/// Any but `Io`.
pub(crate) fn read_past_faults(
    storage: &dyn Storage,
    file: FileName,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize> {
    match storage.read(file, offset, buffer) {
        Err(Error::Io { .. }) => {}
        read => return read,
    }
    let mut done = 0;
    for page in buffer.chunks_mut(PAGE_BYTES) {
        match storage.read(file, offset + done as u64, page) {
            Ok(read) if read < page.len() => return Ok(done + read),
            Ok(_) => {}
            Err(Error::Io { .. }) => page.fill(0),
            Err(error) => return Err(error),
        }
        done += page.len();
    }
    Ok(done)
}
