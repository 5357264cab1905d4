//! The checks that every block read from a device passes once, and the decompression of compressed blocks.
//! Pure. Drivers, streams and the loader of pages call it.

use crate::base::checksum::Context;
use crate::base::codec::Malformed;
use crate::base::error::{Error, Result};
use crate::base::step::{BlockAddress, BlockKind};
use crate::cache::{BlockRef, ReadSlot};
use crate::format::table::index::IndexPage;
use crate::format::table::{check_seal, compressed, data, filter};

/// The result of a block's checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Verified {
    pub(super) checksum: u32,
    /// The plain length of a compressed block, for [`decompress`].
    pub(super) plain_bytes: Option<usize>,
}

/// Ends the read of a block. The `bytes` bytes in the slot are checked, decompressed if they are compressed,
/// and given to the cache and to all waiters; if a check fails, all of them get the error.
///
/// # Errors
/// `Corrupt`, with file and offset.
pub(crate) fn complete_read(mut slot: ReadSlot, bytes: usize) -> Result<BlockRef> {
    match check_read(&mut slot, bytes) {
        Ok(()) => Ok(slot.complete()),
        Err(error) => {
            slot.fail(error.clone());
            Err(error)
        }
    }
}

fn check_read(slot: &mut ReadSlot, bytes: usize) -> Result<()> {
    let address = *slot.address();
    if bytes != address.bytes as usize {
        return Err(Error::corrupt(address.file, address.offset, "bytes of a block", address.bytes, bytes));
    }
    match verify_block(&address, slot.buffer())?.plain_bytes {
        Some(bytes) => slot.refill(bytes, |stored, plain| decompress(&address, stored, plain)),
        None => Ok(()),
    }
}

/// Checks length, checksum and structure of a block read from `address`; a compressed block is checked in its
/// stored form.
///
/// # Errors
/// `Corrupt`, with file and offset.
pub(super) fn verify_block(address: &BlockAddress, bytes: &[u8]) -> Result<Verified> {
    check_block(address, bytes).map_err(|bad| Error::malformed(address.file, address.offset, bad))
}

/// Decompresses a verified block into `plain`, which has the stated plain length, and checks the result.
///
/// # Errors
/// `Corrupt`, with file and offset.
pub(super) fn decompress(address: &BlockAddress, stored: &[u8], plain: &mut [u8]) -> Result<()> {
    compressed::decompress(stored, plain)
        .and_then(|()| data::check(plain))
        .map(|_| ())
        .map_err(|bad| Error::malformed(address.file, address.offset, bad))
}

fn check_block(address: &BlockAddress, bytes: &[u8]) -> std::result::Result<Verified, Malformed> {
    let (expected, found) = (u64::from(address.bytes), bytes.len() as u64);
    if expected != found {
        return Err(Malformed { at: 0, what: "length of a block", expected, found });
    }
    let context = Context { file_uid: address.file_uid, offset: address.offset, tag: address.kind as u8 };
    let checksum = check_seal(bytes, context)?;
    let mut plain_bytes = None;
    match address.kind {
        BlockKind::Data => {
            plain_bytes = compressed::plain_bytes(bytes)?;
            if plain_bytes.is_none() {
                data::check(bytes)?;
            }
        }
        BlockKind::Filter => filter::check(bytes)?,
        BlockKind::Fence => {
            IndexPage::check(bytes)?;
        }
    }
    Ok(Verified { checksum, plain_bytes })
}
