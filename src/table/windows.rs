//! Read buffers, one a file, that the streams of neighbouring slices share.
//!
//! The slices of many trees lie one behind the other in a file, and most are shorter than a read request. A
//! reader that takes them in that order through a window makes one request for many slices. One thread.

use std::collections::BTreeMap;

use crate::base::error::Result;
use crate::base::id::FileName;
use crate::base::load::DeviceLoad;
use crate::base::sync::{Arc, Mutex};
use crate::io::storage::Storage;

use super::memory::AlignedBytes;
use super::open::{TableFile, fill_exact};

/// Windows begin at multiples of this.
const ALIGNMENT: u64 = 4096;

/// The windows of all files.
#[derive(Debug)]
pub(crate) struct Windows {
    /// Length of each window.
    bytes: usize,
    windows: Mutex<BTreeMap<FileName, Window>>,
}

#[derive(Debug)]
struct Window {
    offset: u64,
    filled: usize,
    bytes: AlignedBytes,
}

impl Windows {
    /// Windows of `bytes` bytes each, one a file.
    pub(crate) fn new(bytes: usize) -> Windows {
        Windows { bytes: bytes / ALIGNMENT as usize * ALIGNMENT as usize, windows: Mutex::default() }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.windows.lock().len() * self.bytes
    }

    /// Fills the buffer from the file, through a window if the range fits one.
    pub(super) fn fill(
        &self,
        (storage, load): (&dyn Storage, &Arc<DeviceLoad>),
        file: &TableFile,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let from = offset / ALIGNMENT * ALIGNMENT;
        let until = offset + buffer.len() as u64;
        if until > from + self.bytes as u64 {
            let _reading = load.merging();
            return fill_exact(storage, file.name(), offset, buffer);
        }
        let mut windows = self.windows.lock();
        let empty = || Window { offset: 0, filled: 0, bytes: AlignedBytes::new(self.bytes) };
        let window = windows.entry(file.name()).or_insert_with(empty);
        if offset < window.offset || until > window.offset + window.filled as u64 {
            let bytes = (self.bytes as u64).min(file.bytes().saturating_sub(from)) as usize;
            // The window counts as empty until the whole read succeeds.
            (window.offset, window.filled) = (from, 0);
            let _reading = load.merging();
            fill_exact(storage, file.name(), from, &mut window.bytes[..bytes.max((until - from) as usize)])?;
            window.filled = bytes;
        }
        let start = (offset - window.offset) as usize;
        buffer.copy_from_slice(&window.bytes[start..start + buffer.len()]);
        Ok(())
    }
}
