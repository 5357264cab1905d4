//! A file mapped into memory, for the lab: how the papers' engines read.
//!
//! The store itself reads by calls: a mapping turns a device's error into a signal, evicts as the kernel
//! likes and stalls whoever touches it. Any thread may copy out of one.
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

// SAFETY: the mapping is read-only and lives until the drop; only copies are made of it.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps the first `bytes` bytes, without read-ahead: pages are touched here and there.
    pub(super) fn new(file: &OwnedFd, bytes: u64) -> rustix::io::Result<MappedFile> {
        let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        // SAFETY: no address is asked for, so no mapping of anybody is replaced.
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
        // SAFETY: source and target are `count` bytes long, by the line above, and the target is nobody
        // else's. Bytes that another process changes meanwhile come out old or new; every page is checked
        // after the copy.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset), buffer.as_mut_ptr(), count) };
        count
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, whole, and nothing of it is used again. A failure would leave
        // address space mapped and nothing else.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
