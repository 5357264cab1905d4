//! The check that every block read from a device passes once. Pure; drivers and the loading of pages call it.

use crate::base::checksum::Context;
use crate::base::codec::Malformed;
use crate::base::error::{Error, Result};
use crate::base::step::{BlockAddress, BlockKind};
use crate::format::table::fence::FencePage;
use crate::format::table::{check_seal, data, filter};

/// Checks length, checksum and structure of a block read from `address`.
///
/// # Errors
/// `Corrupt`, with file and offset.
pub(crate) fn verify_block(address: &BlockAddress, bytes: &[u8]) -> Result<()> {
    verify_sealed(address, bytes).map(|_| ())
}

/// As [`verify_block`]; returns the block's checksum.
pub(super) fn verify_sealed(address: &BlockAddress, bytes: &[u8]) -> Result<u32> {
    check_block(address, bytes).map_err(|bad| Error::malformed(address.file, address.offset, bad))
}

fn check_block(address: &BlockAddress, bytes: &[u8]) -> std::result::Result<u32, Malformed> {
    let (expected, found) = (u64::from(address.bytes), bytes.len() as u64);
    if expected != found {
        return Err(Malformed { at: 0, what: "length of a block", expected, found });
    }
    let context = Context { file_uid: address.file_uid, offset: address.offset, tag: address.kind as u8 };
    let checksum = check_seal(bytes, context)?;
    match address.kind {
        BlockKind::Data => data::check(bytes).map(|_| ()),
        BlockKind::Filter => filter::check(bytes),
        BlockKind::Fence => FencePage::check(bytes).map(|_| ()),
    }?;
    Ok(checksum)
}
