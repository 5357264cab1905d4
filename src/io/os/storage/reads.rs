//! Reads of a storage: direct where that works, into one or several buffers, up to the end of the file.
//!
//! Part of `storage`, with its invariants. `storage` remembers a refusal of direct reads by the file system.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::base::error::Result;
use crate::base::id::FileName;
use crate::base::sync::{Arc, Ordering};

use super::super::super::reader::rests;
use super::super::files::{DescriptorPurpose, OpenFile};
use super::{DIRECT_ALIGNMENTS, OsStorage, check_range};

/// Limit of buffers in one system call.
const PARTS_COUNT_MAX: usize = 1024;

impl OsStorage {
    /// As `Storage::read`.
    pub(super) fn read_all(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        check_range("read", file, offset, buffer.len())?;
        let mut filled_bytes = 0;
        while filled_bytes < buffer.len() {
            let rest = &mut buffer[filled_bytes..];
            let bytes = self.read_some(file, offset + filled_bytes as u64, &mut [rest])?;
            if bytes == 0 {
                break;
            }
            filled_bytes += bytes;
        }
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(filled_bytes as u64, Ordering::Relaxed);
        Ok(filled_bytes)
    }

    /// As `Storage::read_vectored`.
    pub(super) fn read_all_vectored(
        &self,
        file: FileName,
        offset: u64,
        buffers: &mut [&mut [u8]],
    ) -> Result<usize> {
        let bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut filled = self.read_some(file, offset, buffers)?;
        let mut last = filled;
        while filled < bytes && last > 0 {
            last = self.read_some(file, offset + filled as u64, &mut rests(buffers, filled))?;
            filled += last;
        }
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(filled as u64, Ordering::Relaxed);
        Ok(filled)
    }

    /// Whether the read can bypass the page cache.
    pub(in crate::io::os) fn is_direct(&self, file: FileName, offset: u64, buffers: &[&mut [u8]]) -> bool {
        let alignment = u64::from(self.direct_alignment.load(Ordering::Relaxed));
        let place =
            buffers.iter().fold(offset, |place, buffer| place | buffer.len() as u64 | buffer.as_ptr() as u64);
        file.kind.traits().is_paged && alignment > 0 && place.is_multiple_of(alignment)
    }

    /// The file's descriptor for a read of these bytes.
    pub(in crate::io::os) fn open_to_read(
        &self,
        file: FileName,
        offset: u64,
        bytes: usize,
        is_direct: bool,
    ) -> Result<Arc<OpenFile>> {
        check_range("read", file, offset, bytes)?;
        self.open(file, if is_direct { DescriptorPurpose::Direct } else { DescriptorPurpose::Buffered })
    }

    /// One read: returns some of the bytes, or none at the end of the file.
    fn read_some(&self, file: FileName, offset: u64, buffers: &mut [&mut [u8]]) -> Result<usize> {
        let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
        let is_direct = self.is_direct(file, offset, buffers);
        let open = self.open_to_read(file, offset, bytes, is_direct)?;
        match self.retry(|| read_parts(open.descriptor(), buffers, offset)) {
            Ok(bytes) => Ok(bytes),
            Err(Errno::INVAL) if is_direct => {
                // The device may need a larger alignment. If the cause is another one, the buffered read
                // reports it.
                let open = self.open(file, DescriptorPurpose::Buffered)?;
                let read = self.retry(|| read_parts(open.descriptor(), buffers, offset));
                let bytes = read.map_err(|errno| self.fault("read", file, offset, errno))?;
                self.raise_direct_alignment();
                Ok(bytes)
            }
            Err(errno) => Err(self.fault("read", file, offset, errno)),
        }
    }

    pub(super) fn raise_direct_alignment(&self) {
        let tried = self.direct_alignment.load(Ordering::Relaxed);
        let next = DIRECT_ALIGNMENTS.into_iter().skip_while(|one| *one != tried).nth(1).unwrap_or(0);
        if next == 0 {
            self.give_up_direct_reads();
        } else {
            self.direct_alignment.store(next, Ordering::Relaxed);
        }
    }

    pub(super) fn give_up_direct_reads(&self) {
        if self.direct_alignment.swap(0, Ordering::Relaxed) != 0 {
            log::warn!("{}: no direct reads on this file system, reads are buffered", self.path.display());
        }
    }
}

/// One system call for all buffers.
fn read_parts(file: &OwnedFd, buffers: &mut [&mut [u8]], offset: u64) -> rustix::io::Result<usize> {
    if let [buffer] = buffers {
        return rustix::io::pread(file, &mut **buffer, offset);
    }
    let mut parts: Vec<_> =
        buffers.iter_mut().take(PARTS_COUNT_MAX).map(|buffer| io::IoSliceMut::new(buffer)).collect();
    rustix::io::preadv(file, &mut parts, offset)
}
