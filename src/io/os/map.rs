//! A file mapped into memory, for the lab: the way in which engines of research papers read.
//!
//! The store itself reads with calls. A mapping turns a device error into a signal, is evicted at the
//! kernel's choice, and stalls the thread that touches a page. Any thread may copy out of a mapping.
//!
//! Invariant: no reference to mapped bytes is ever made, as another process may change them at any time.

#![expect(unsafe_code, reason = "maps a file, and copies out of the mapping")]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::super::storage::Mapped;

/// See the module.
#[derive(Debug)]
pub(super) struct MappedFile {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is read-only and lives until the drop; bytes are only copied out of it.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps the first `bytes` bytes, without read-ahead, because pages are touched at random.
    pub(super) fn new(file: &OwnedFd, bytes: u64) -> rustix::io::Result<MappedFile> {
        let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        // SAFETY: no address is requested, so no other mapping is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let mapped = MappedFile { start, bytes };
        // SAFETY: the range is the mapping just made, and this advice changes no content.
        unsafe { madvise(mapped.start.as_ptr().cast(), bytes, Advice::Random)? };
        Ok(mapped)
    }
}

impl Mapped for MappedFile {
    fn copy(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes);
        let count = (self.bytes - offset).min(buffer.len());
        // SAFETY: source and target are `count` bytes long, by the line above, and the target is borrowed
        // exclusively. A byte that another process changes meanwhile is copied old or new; every page is
        // checked after the copy.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset), buffer.as_mut_ptr(), count) };
        count
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the whole mapping made in `new`, no part of which is used again. A failure leaves address
        // space mapped and has no other effect.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
