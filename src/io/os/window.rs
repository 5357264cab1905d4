//! Some pages of a file mapped into memory, so that short writes one behind the other cost no call each.
//!
//! What is copied into them is in the page cache at once, like what a call writes, and so outlives the
//! process. `storage` uses it for logs, and is its only user.
//!
//! A mapping can turn a failure into a signal that ends the process. This one does not:
//! 1. Its pages were made writable by a call, which fails where a write would, and are locked in memory: no
//!    store into them reads from the device.
//! 2. After pages were written back, the next store into one asks the file system again. So it is done on
//!    ext4 alone, which then allocates nothing and has nothing that may fail: the blocks are there.
//!
//! What is refused is left to calls, which say why if they fail too. A file that another process cuts short
//! would be a signal all the same; nobody but the store changes its files.

#![expect(unsafe_code, reason = "maps a file, and copies into the mapping")]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, munmap};

/// Mapped at once, in bytes: each page is made writable once, each window has four calls.
pub(super) const WINDOW_BYTES: u64 = 256 << 10;
/// A multiple of every page size in use.
const PAGE_BYTES_MAX: u64 = 64 << 10;
/// Writes behind each other after which more are expected.
pub(super) const IN_A_ROW_MIN: u32 = 8;
/// Longer writes are worth a call.
const WRITE_BYTES_MAX: u64 = 16 << 10;
/// What `statfs` says of ext4, and of its predecessors.
const EXT4_MAGIC: u16 = 0xef53;

/// The end of a file that is being appended to.
#[derive(Default, Debug)]
pub(super) struct Appends {
    /// Where the last write ended.
    next: u64,
    in_a_row: u32,
    window: Option<Window>,
    is_refused: bool,
}

impl Appends {
    /// Writes, if that needs no call, or one for many writes; `false`: nothing was written.
    pub(super) fn write(&mut self, file: &OwnedFd, offset: u64, bytes: &[u8]) -> bool {
        let is_next = offset == self.next;
        self.next = offset.saturating_add(bytes.len() as u64);
        if self.window.as_mut().is_some_and(|window| window.write(offset, bytes)) {
            return true;
        }
        self.in_a_row = if is_next { self.in_a_row.saturating_add(1) } else { 0 };
        if self.in_a_row < IN_A_ROW_MIN || self.is_refused || bytes.len() as u64 > WRITE_BYTES_MAX {
            return false;
        }
        self.window = None;
        let window = Window::new(file, offset);
        self.is_refused = window.is_err();
        self.window = window.unwrap_or(None);
        self.window.as_mut().is_some_and(|window| window.write(offset, bytes))
    }

    /// Forgets what it has seen: before a sync, after which every page would have to be made writable anew.
    pub(super) fn reset(&mut self) {
        self.in_a_row = 0;
        self.window = None;
    }
}

#[derive(Debug)]
struct Window {
    start: NonNull<u8>,
    /// Where in the file it begins.
    offset: u64,
    bytes: u64,
}

// SAFETY: the mapping is nobody else's and lives until the drop.
unsafe impl Send for Window {}

impl Window {
    /// Maps what follows `offset`; `None` at the end of the file.
    fn new(file: &OwnedFd, offset: u64) -> rustix::io::Result<Option<Window>> {
        if !allocates_once(file)? {
            return Err(Errno::OPNOTSUPP);
        }
        let length = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        let offset = offset - offset % PAGE_BYTES_MAX;
        let bytes = WINDOW_BYTES.min(length.saturating_sub(offset));
        let Ok(size) = usize::try_from(bytes) else { return Err(Errno::NOMEM) };
        if size == 0 {
            return Ok(None);
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so no mapping of anybody is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), size, access, MapFlags::SHARED, file, offset)? };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let window = Window { start, offset, bytes };
        // SAFETY: the range is the mapping just made, and this changes no content.
        unsafe { madvise(start.as_ptr().cast(), size, Advice::LinuxPopulateWrite)? };
        // SAFETY: as above.
        unsafe { mlock(start.as_ptr().cast(), size)? };
        Ok(Some(window))
    }

    /// Whether all of it lies in the window, and was written.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Some(at) = offset.checked_sub(self.offset).filter(|at| *at <= self.bytes) else { return false };
        if bytes.len() as u64 > self.bytes - at {
            return false;
        }
        // SAFETY: `at` and what follows for the length of `bytes` lie in the mapping, by the lines above. No
        // reference is ever made to what is mapped, so `bytes` is elsewhere.
        unsafe {
            let to = self.start.as_ptr().add(at as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        true
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, whole, and nothing of it is used again. A failure would leave
        // address space mapped and nothing else.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes as usize) };
    }
}

/// Whether a page of a file that was made writable once can be written ever after without asking for space.
fn allocates_once(file: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(rustix::fs::fstatfs(file)?.f_type == EXT4_MAGIC.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_BYTES: u64 = 3 * WINDOW_BYTES / 2 + 1000;

    fn file() -> OwnedFd {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(FILE_BYTES).expect("a length");
        file.into()
    }

    fn content(file: &OwnedFd) -> Vec<u8> {
        let mut bytes = vec![0; FILE_BYTES as usize];
        assert_eq!(rustix::io::pread(file, &mut bytes, 0), Ok(bytes.len()));
        bytes
    }

    /// Writes as `storage` does; whether it needed no call.
    fn write(appends: &mut Appends, file: &OwnedFd, offset: u64, bytes: &[u8]) -> bool {
        let is_done = appends.write(file, offset, bytes);
        if !is_done {
            assert_eq!(rustix::io::pwrite(file, bytes, offset), Ok(bytes.len()));
        }
        is_done
    }

    /// Writes one behind the other, of all lengths, up to the end of the file: the file has what was written,
    /// at any time, and no more than a few were calls.
    #[test]
    fn appended_writes_are_in_the_file() {
        let file = file();
        let mut appends = Appends::default();
        let mut expected = vec![0; FILE_BYTES as usize];
        let (mut offset, mut number, mut calls) = (4096, 0u64, 0);
        while offset < FILE_BYTES {
            number += 1;
            let bytes = (number * 7919 % 300 + 1).min(FILE_BYTES - offset);
            let record = vec![number as u8 | 1; bytes as usize];
            calls += u32::from(!write(&mut appends, &file, offset, &record));
            expected[offset as usize..(offset + bytes) as usize].copy_from_slice(&record);
            if number % 501 == 0 {
                assert!(content(&file) == expected, "after {number} writes");
            }
            offset += bytes;
        }
        assert!(content(&file) == expected);
        let is_mapped = allocates_once(&file).expect("any file system says what it is");
        assert_eq!(calls, if is_mapped { IN_A_ROW_MIN } else { number as u32 });
    }

    /// Writes here and there, long ones, and what comes after a sync are calls; writes into what is mapped
    /// are not, wherever they begin.
    #[test]
    fn other_writes_are_calls() {
        let file = file();
        let is_mapped = allocates_once(&file).expect("any file system says what it is");
        let mut appends = Appends::default();
        let mut expected = vec![0; FILE_BYTES as usize];
        let mut put = |appends: &mut Appends, offset: u64, bytes: usize, mark: u8| {
            expected[offset as usize..offset as usize + bytes].fill(mark);
            let is_done = write(appends, &file, offset, &vec![mark; bytes]);
            assert!(content(&file) == expected, "{bytes} bytes at {offset}");
            is_done
        };
        let in_a_row = |put: &mut dyn FnMut(&mut Appends, u64, usize, u8) -> bool, appends: &mut Appends| {
            (0..=u64::from(IN_A_ROW_MIN)).map(|index| put(appends, 8192 + index * 10, 10, 1)).last()
        };
        for index in 0..20 {
            assert!(!put(&mut appends, index * 100, 10, 2), "they do not follow each other");
        }
        assert_eq!(in_a_row(&mut put, &mut appends), Some(is_mapped));
        assert_eq!(put(&mut appends, 8195, 3, 3), is_mapped, "before it, and mapped");
        assert!(!put(&mut appends, WINDOW_BYTES - 5, 10, 4), "the window's end lies in it");
        assert!(!put(&mut appends, 10, 8192 + WINDOW_BYTES as usize, 5), "its beginning does");
        assert_eq!(put(&mut appends, 8192, 10, 6), is_mapped);
        appends.reset();
        assert!(!put(&mut appends, 8202, 10, 7), "nothing is mapped after a sync");
        assert_eq!(in_a_row(&mut put, &mut appends), Some(is_mapped));
        appends.reset();
        let long = WRITE_BYTES_MAX as usize + 1;
        for index in 0..12 {
            assert!(!put(&mut appends, (index * long) as u64, long, 8), "long ones");
        }
    }

    /// What cannot be mapped for writing is not asked for again, and nothing is written.
    #[test]
    fn what_is_refused_is_a_call() {
        let named = tempfile::NamedTempFile::new().expect("a file");
        named.as_file().set_len(FILE_BYTES).expect("a length");
        let flags = rustix::fs::OFlags::RDONLY;
        let read_only = rustix::fs::open(named.path(), flags, rustix::fs::Mode::empty()).expect("a file");
        let mut appends = Appends::default();
        for index in 0..100 {
            assert!(!appends.write(&read_only, index * 10, &[1; 10]));
        }
        assert!(appends.is_refused && appends.window.is_none());
        assert!(content(&read_only).iter().all(|byte| *byte == 0));
    }
}
