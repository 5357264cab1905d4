//! A file that is read and written past the page cache if the file system allows it.
//!
//! This is not the store's own I/O: the bench measures the device without the store.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Alignment of direct requests in bytes, in memory and in the file.
pub const ALIGNMENT: usize = 4096;

/// A buffer whose bytes begin at a multiple of [`ALIGNMENT`].
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// A buffer of `length` zeros.
    pub fn new(length: usize) -> Aligned {
        let bytes = vec![0_u8; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        assert!(start < ALIGNMENT, "a byte can always be aligned within that many");
        Aligned { bytes, start, length }
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// Whether requests bypass the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Requests bypass the page cache.
    Direct,
    /// Requests use the page cache, since the file system refuses direct ones.
    Buffered,
}

/// Creates a file; direct if the file system supports it.
pub fn create(path: &Path) -> io::Result<(File, Mode)> {
    let buffered = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).expect("a flag of open fits");
        match OpenOptions::new().read(true).write(true).custom_flags(direct).open(path) {
            Ok(file) => return Ok((file, Mode::Direct)),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(error),
        }
    }
    Ok((buffered, Mode::Buffered))
}

/// Fills the buffer from the bytes at `offset`.
pub fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buffer, offset)
}

/// Writes all of the buffer at `offset`.
pub fn write_at(file: &File, buffer: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(buffer, offset)
}
