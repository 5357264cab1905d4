//! A window of a file mapped into memory, so that short consecutive writes do not need a system call each.
//!
//! Bytes copied into the window are in the page cache at once, as after a write call, and so survive the end
//! of the process. `storage` uses windows for logs, and is the only user.
//!
//! 1. A copy interrupted by the end of the process leaves a prefix of the bytes, as a call does.
//! 2. A store into the mapping must not fail, because a failure is a signal that ends the process. A call
//!    makes the pages writable first, and fails where a write would. The pages are locked in memory, so that
//!    none is read from the device again. After a page's write-back, the next store into it notifies the file
//!    system. So windows are used only where the file system then has the blocks allocated and changes
//!    nothing else: on ext4 without data journaling.
//! 3. Pages are made writable, and so written by the next sync, only where many writes are expected before
//!    that sync.
//!
//! Where mapping is refused, writes are calls, which report their own errors. If another process truncates
//! the file or makes it immutable while it is mapped, a store still raises a signal.

#![expect(unsafe_code, reason = "maps a file, and copies into the mapping")]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags, madvise, mlock_with, mmap, munmap};

/// Size of a window in bytes: mapping costs four calls and a page fault per page.
const WINDOW_BYTES: u64 = 256 << 10;
/// Consecutive bytes without a sync after which a window is mapped: as many as a window has, or this fraction
/// of a short file. Below `ROW_BYTES_LEAST` no system call is made.
const ROW_PART: u64 = 4;
const ROW_BYTES_LEAST: u64 = 4 << 10;
/// Longer writes use a call.
const WRITE_BYTES_MAX: u64 = 16 << 10;
/// File system type that `statfs` gives for ext4 and its predecessors.
const EXT4_MAGIC: u16 = 0xef53;

/// State of the appends to the end of a file.
#[derive(Default, Debug)]
pub(super) struct Appends {
    /// End of the last write.
    next: u64,
    /// Total bytes of the last consecutive writes.
    row_bytes: u64,
    window: Option<Window>,
    /// The file's length, if known; 0 if the file cannot be mapped, or mapping was refused.
    length: Option<u64>,
}

impl Appends {
    /// Writes through the window, mapping a new one where many writes follow; `false`: no byte was written.
    #[inline]
    pub(super) fn write(&mut self, file: &OwnedFd, offset: u64, bytes: &[u8]) -> bool {
        let length = bytes.len() as u64;
        self.row_bytes = if offset == self.next { self.row_bytes.saturating_add(length) } else { length };
        self.next = offset.saturating_add(length);
        if self.window.as_mut().is_some_and(|window| window.write(offset, bytes)) {
            return true;
        }
        if self.row_bytes < ROW_BYTES_LEAST || length > WRITE_BYTES_MAX {
            return false;
        }
        let file_bytes = *self.length.get_or_insert_with(|| mappable_bytes(file).unwrap_or(0));
        if self.row_bytes < row_bytes_min(file_bytes) || offset >= file_bytes {
            return false;
        }
        self.window = None;
        let Ok(window) = Window::new(file, offset, file_bytes) else {
            self.length = Some(0);
            return false;
        };
        self.window.insert(window).write(offset, bytes)
    }

    /// Unmaps the window and restarts the count of consecutive bytes: before a sync. After a refusal, mapping
    /// may be tried again. A known length is kept, because asking for it would cost two calls per commit.
    pub(super) fn reset(&mut self) {
        let length = self.length.filter(|bytes| *bytes > 0);
        *self = Appends { next: self.next, length, ..Appends::default() };
    }
}

#[derive(Debug)]
struct Window {
    start: NonNull<u8>,
    /// Offset of the window in the file.
    offset: u64,
    bytes: u64,
}

// SAFETY: the mapping belongs to this value alone and lives until the drop.
unsafe impl Send for Window {}

impl Window {
    /// Maps the bytes from the page of `offset` on; `offset` lies within the file.
    fn new(file: &OwnedFd, offset: u64, file_bytes: u64) -> rustix::io::Result<Window> {
        let offset = offset - offset % rustix::param::page_size() as u64;
        let bytes = WINDOW_BYTES.min(file_bytes - offset);
        let Ok(size) = usize::try_from(bytes) else { return Err(Errno::NOMEM) };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is requested, so no other mapping is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), size, access, MapFlags::SHARED, file, offset)? };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let window = Window { start, offset, bytes };
        // Locked before the pages are populated, so that no page is evicted in between.
        // SAFETY: the range is the mapping just made, and this changes no content.
        unsafe { mlock_with(start.as_ptr().cast(), size, MlockFlags::ONFAULT)? };
        // SAFETY: as above.
        unsafe { madvise(start.as_ptr().cast(), size, Advice::LinuxPopulateWrite)? };
        Ok(window)
    }

    /// Writes `bytes` if all of them lie in the window; `false`: no byte was written.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Some(at) = offset.checked_sub(self.offset).filter(|at| *at <= self.bytes) else { return false };
        if bytes.len() as u64 > self.bytes - at {
            return false;
        }
        // SAFETY: the bytes from `at` for the length of `bytes` lie in the mapping, by the lines above. No
        // reference to mapped bytes is ever made, so `bytes` does not overlap them.
        unsafe { copy_in_order(self.start.as_ptr().add(at as usize), bytes) };
        true
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the whole mapping made in `new`, no part of which is used again. A failure leaves address
        // space mapped and has no other effect.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes as usize) };
    }
}

/// Copies from the first byte to the last, by stores that the compiler does not reorder. `memcpy` may store
/// the first bytes last, and bytes behind a gap would look like damage.
///
/// # Safety
/// The memory from `to` for the length of `bytes` can be written, and `bytes` does not overlap it.
unsafe fn copy_in_order(to: *mut u8, bytes: &[u8]) {
    let (first, rest) = bytes.split_at(to.align_offset(size_of::<u64>()).min(bytes.len()));
    let (words, last) = rest.as_chunks::<{ size_of::<u64>() }>();
    for (index, byte) in first.iter().enumerate() {
        // SAFETY: within the memory that the caller guarantees.
        unsafe { to.add(index).write_volatile(*byte) };
    }
    for (index, word) in words.iter().enumerate() {
        // SAFETY: as above, and aligned, because `first` ends at an alignment boundary.
        unsafe {
            to.add(first.len() + index * size_of::<u64>())
                .cast::<u64>()
                .write_volatile(u64::from_ne_bytes(*word));
        }
    }
    for (index, byte) in last.iter().enumerate() {
        // SAFETY: as above.
        unsafe { to.add(bytes.len() - last.len() + index).write_volatile(*byte) };
    }
}

fn row_bytes_min(file_bytes: u64) -> u64 {
    WINDOW_BYTES.min(file_bytes / ROW_PART)
}

/// The file's length, if its pages stay writable once they were made writable.
fn mappable_bytes(file: &OwnedFd) -> rustix::io::Result<u64> {
    let is_ext4 = rustix::fs::fstatfs(file)?.f_type == EXT4_MAGIC.into();
    let asked = StatxFlags::SIZE | StatxFlags::DIOALIGN;
    let status = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, asked)?;
    // Where direct reads are impossible, data is kept in the journal or in the inode.
    let is_told = status.stx_mask & asked.bits() == asked.bits();
    let is_direct = is_told && status.stx_dio_offset_align > 0;
    let others = StatxAttributes::DAX | StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    if is_ext4 && is_direct && !status.stx_attributes.intersects(others) {
        return Ok(status.stx_size);
    }
    Err(Errno::OPNOTSUPP)
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

    /// Whether the test's file system and its limit of locked memory allow a window.
    fn is_mapped(file: &OwnedFd) -> bool {
        mappable_bytes(file).is_ok_and(|bytes| Window::new(file, 0, bytes).is_ok())
    }

    fn content(file: &OwnedFd) -> Vec<u8> {
        let mut bytes = vec![0; FILE_BYTES as usize];
        assert_eq!(rustix::io::pread(file, &mut bytes, 0), Ok(bytes.len()));
        bytes
    }

    /// Writes as `storage` does. Returns whether it needed no call.
    fn write(appends: &mut Appends, file: &OwnedFd, offset: u64, bytes: &[u8]) -> bool {
        let is_done = appends.write(file, offset, bytes);
        if !is_done {
            assert_eq!(rustix::io::pwrite(file, bytes, offset), Ok(bytes.len()));
        }
        is_done
    }

    /// After consecutive writes of all lengths, up to the end of the file, the file has all written bytes at
    /// any time. Only a few of the writes were calls.
    #[test]
    fn appended_writes_are_in_the_file() {
        let file = file();
        let mut appends = Appends::default();
        let mut expected = vec![0; FILE_BYTES as usize];
        let (mut offset, mut number, mut called_bytes) = (4096, 0u64, 0);
        while offset < FILE_BYTES {
            number += 1;
            let bytes = (number * 7919 % 300 + 1).min(FILE_BYTES - offset);
            let record = vec![number as u8 | 1; bytes as usize];
            called_bytes += if write(&mut appends, &file, offset, &record) { 0 } else { bytes };
            expected[offset as usize..(offset + bytes) as usize].copy_from_slice(&record);
            if number % 501 == 0 {
                assert!(content(&file) == expected, "after {number} writes");
            }
            offset += bytes;
        }
        assert!(content(&file) == expected);
        let bytes_of_calls = if is_mapped(&file) { row_bytes_min(FILE_BYTES) } else { FILE_BYTES };
        assert!(called_bytes <= bytes_of_calls, "{called_bytes}");
    }

    /// Scattered writes, long writes and the first writes after a sync are calls. Writes into a mapped window
    /// are not, wherever they begin.
    #[test]
    fn other_writes_are_calls() {
        let file = file();
        let is_mapped = is_mapped(&file);
        let mut appends = Appends::default();
        let mut expected = vec![0; FILE_BYTES as usize];
        let mut put = |appends: &mut Appends, offset: u64, bytes: usize, mark: u8| {
            expected[offset as usize..offset as usize + bytes].fill(mark);
            let is_done = write(appends, &file, offset, &vec![mark; bytes]);
            assert!(content(&file) == expected, "{bytes} bytes at {offset}");
            is_done
        };
        let row =
            |put: &mut dyn FnMut(&mut Appends, u64, usize, u8) -> bool, appends: &mut Appends, at: u64| {
                (0..=row_bytes_min(FILE_BYTES) / 10_000)
                    .map(|index| put(appends, at + index * 10_000, 10_000, 1))
                    .last()
            };
        for index in 0..100 {
            assert!(!put(&mut appends, index * 100, 10, 2), "they do not follow each other");
        }
        assert_eq!(row(&mut put, &mut appends, 8192), Some(is_mapped));
        let mapped = 8192 + row_bytes_min(FILE_BYTES) / 10_000 * 10_000;
        assert_eq!(put(&mut appends, mapped + 3, 3, 3), is_mapped, "amid it");
        assert!(!put(&mut appends, FILE_BYTES - 10, 10, 4) || FILE_BYTES - mapped < WINDOW_BYTES);
        assert!(!put(&mut appends, 10, 10, 5), "before it");
        assert!(!put(&mut appends, mapped - 20_000, 30_000, 6), "its beginning lies in it");
        assert_eq!(put(&mut appends, mapped, 10, 6), is_mapped);
        appends.reset();
        assert!(!put(&mut appends, mapped + 10, 10, 7), "nothing is mapped after a sync");
        assert_eq!(appends.length, is_mapped.then_some(FILE_BYTES), "the mappable length is known");
        assert_eq!(row(&mut put, &mut appends, 0), Some(is_mapped));
        appends.reset();
        let long = WRITE_BYTES_MAX as usize + 1;
        for index in 0..20 {
            assert!(!put(&mut appends, (index * long) as u64, long, 8), "long ones");
        }
    }

    /// A file that cannot be mapped for writing is not asked again, and no byte is written.
    #[test]
    fn files_that_cannot_be_mapped_are_left_to_calls() {
        let named = tempfile::NamedTempFile::new().expect("a file");
        named.as_file().set_len(FILE_BYTES).expect("a length");
        let flags = rustix::fs::OFlags::RDONLY;
        let read_only = rustix::fs::open(named.path(), flags, rustix::fs::Mode::empty()).expect("a file");
        let mut appends = Appends::default();
        for index in 0..FILE_BYTES / 1000 {
            assert!(!appends.write(&read_only, index * 1000, &[1; 1000]));
        }
        assert!(appends.length == Some(0) && appends.window.is_none());
        assert!(content(&read_only).iter().all(|byte| *byte == 0));
    }

    const ROLE: &str = "TRINE_WINDOW_COPIES_TO";

    /// A process that ends during a copy leaves a prefix of it, as one that ends during a call. Records of
    /// one group are adjacent, and an intact record behind a broken one would look like damage. The child's
    /// copy ends at a page that was truncated.
    #[test]
    fn a_copy_cut_short_is_a_first_part() {
        use std::os::unix::process::ExitStatusExt;
        const NAME: &str = "io::os::window::tests::a_copy_cut_short_is_a_first_part";
        const PAGE: u64 = 64 << 10;
        let open = |path: &std::path::Path| {
            rustix::fs::open(path, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).expect("a file")
        };
        if let Ok(role) = std::env::var(ROLE) {
            let (bytes, path) = role.split_once(' ').expect("two words");
            let (file, bytes) = (open(path.as_ref()), bytes.parse().expect("a number"));
            let mut window = Window::new(&file, 0, 2 * PAGE).expect("the parent could");
            rustix::fs::ftruncate(&file, PAGE).expect("a length");
            window.write(PAGE - bytes as u64 + 8, &vec![1; bytes]);
            unreachable!("the last eight bytes have no page");
        }
        for bytes in [16, 64, 200, 264, 520, 1000, 3000, 8008, 16_384usize] {
            let named = tempfile::NamedTempFile::new().expect("a file");
            named.as_file().set_len(2 * PAGE).expect("a length");
            if !is_mapped(&open(named.path())) {
                return;
            }
            let mut child = std::process::Command::new(std::env::current_exe().expect("a test has a binary"));
            child.args(["--exact", NAME]).env(ROLE, format!("{bytes} {}", named.path().display()));
            let status = child.output().expect("the test binary runs").status;
            assert_eq!(status.signal(), Some(7), "SIGBUS, {status}");
            let mut content = vec![0; PAGE as usize];
            assert_eq!(rustix::io::pread(open(named.path()), &mut content, 0), Ok(content.len()));
            let copied = &content[PAGE as usize + 8 - bytes..];
            assert!(copied.iter().all(|byte| *byte == 1), "{bytes} bytes: not all before the end is there");
        }
    }
}
