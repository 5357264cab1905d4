//! Pieces of files that the streams of neighbouring slices share.
//!
//! Slices of many trees lie one behind the other in a file, most of them shorter than a request. Who reads
//! them in that order through a window makes one request for many of them. One window a file; one thread.

use std::collections::BTreeMap;

use crate::base::error::Result;
use crate::base::id::FileName;
use crate::base::load::DeviceLoad;
use crate::base::sync::{Arc, Mutex};
use crate::io::storage::Storage;

use super::memory::AlignedBytes;
use super::open::{TableFile, fill_exact};

/// Windows begin at multiples of it.
const ALIGNMENT: u64 = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Windows {
    /// Length of each.
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
    /// Windows of so many bytes each, of which there will be one a file.
    pub(crate) fn new(bytes: usize) -> Windows {
        Windows { bytes: bytes / ALIGNMENT as usize * ALIGNMENT as usize, windows: Mutex::default() }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.windows.lock().len() * self.bytes
    }

    /// Fills the buffer from the file.
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
            // Nothing is there until all of it is read.
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
