//! Whole files through [`Storage`]: reading one of known length, and filling one with zeros.

use std::io::ErrorKind;

use super::storage::Storage;
use crate::base::error::{Error, Result};
use crate::base::id::FileName;

/// Zeros are written in pieces of this size.
const ZEROS_BYTES: usize = 1 << 20;

/// Reads all of `file`, which is `bytes` long where it is named.
///
/// # Errors
/// `Corrupt` if it is missing or has another length; `Io` if it cannot be read or there is no memory for it.
/// Allocates no more than the file is long: callers bound `bytes`.
pub(crate) fn read_whole(storage: &dyn Storage, file: FileName, bytes: u64) -> Result<Vec<u8>> {
    match storage.length(file)? {
        None => return Err(Error::corrupt(file, 0, "the file", format_args!("{bytes} bytes"), "missing")),
        Some(length) if length != bytes => {
            return Err(Error::corrupt(file, length.min(bytes), "the file's length", bytes, length));
        }
        Some(_) => {}
    }
    let no_memory = || Error::Io {
        operation: "read",
        file: file.to_string(),
        offset: 0,
        source: std::sync::Arc::new(ErrorKind::OutOfMemory.into()),
    };
    let length = usize::try_from(bytes).map_err(|_| no_memory())?;
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(length).map_err(|_| no_memory())?;
    buffer.resize(length, 0);
    let read = storage.read(file, 0, &mut buffer)?;
    if read != length {
        return Err(Error::corrupt(file, read as u64, "the file's length", bytes, read));
    }
    Ok(buffer)
}

/// Writes zeros to `from..to`.
pub(crate) fn write_zeros(storage: &dyn Storage, file: FileName, from: u64, to: u64) -> Result<()> {
    let zeros = vec![0; ZEROS_BYTES.min(to.saturating_sub(from) as usize)];
    let mut at = from;
    while at < to {
        let piece =
            zeros.get(..(to - at).min(ZEROS_BYTES as u64) as usize).expect("a piece is at most all zeros");
        storage.write(file, at, piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}
