//! The storage trait: files addressed by name.
//!
//! Callers name files and never hold handles. An implementation keeps as many files open as it may. All calls
//! block; the simulator answers them from memory. Implementations are `Send + Sync` and hold no lock across a
//! system call.
//!
//! Promises every implementation keeps:
//! 1. `read` after `write` returns the written bytes. `sync` returning `Ok` makes all earlier writes to that
//!    file durable.
//! 2. The creation, rename or removal of a name is durable only after `sync_directory`.
//! 3. An interrupted or short system call is continued; only real failures are errors. An interrupted sync
//!    has failed.
//! 4. After `sync` of a file has failed once, every later `sync` of that file fails too.

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::id::FileName;
use crate::base::sync::Arc;

use super::reader::{Reader, ReaderKind};

/// Other openers that may have the store open at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockMode {
    /// One writer, no other opener.
    Exclusive,
    /// Any number of readers, no writer.
    Shared,
}

/// One entry of a store's directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DirectoryEntry {
    Ours(FileName),
    /// A name that is not of a store's file; left alone.
    Foreign(String),
}

/// Counters of operations that reached the operating system since the store was opened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct StorageCounts {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) syncs: u64,
    pub(crate) open_files: u64,
}

/// A file that is mapped into memory, for the lab.
#[cfg(feature = "lab")]
pub(crate) trait Mapped: Send + Sync {
    /// Copies the bytes from `offset` on into `buffer`; fewer only at the end of the file. The copy makes no
    /// reference to the mapping, because another process may change the file.
    fn copy(&self, offset: u64, buffer: &mut [u8]) -> usize;
}

/// A store's files.
pub(crate) trait Storage: Send + Sync {
    /// Makes the directory if it is missing (mode 0700). `Ok(true)` if it was made.
    fn create_directory(&self) -> Result<bool>;

    /// Whether the directory exists.
    fn exists(&self) -> Result<bool>;

    /// Takes the lock on LOCK, creating that file if it is missing. `unlock` or the end of the process
    /// releases it. A reader creates LOCK only in a directory of its own user, so that no writer meets a LOCK
    /// that it may not open. Fails with `Locked` if another opener, also in this process, holds a conflicting
    /// lock. Fails with `LockMissing` if a reader may not or cannot create LOCK.
    fn lock(&self, mode: LockMode) -> Result<()>;

    /// Releases the lock and closes every file. Does nothing in a forked process.
    fn unlock(&self);

    /// Whether the calling process was forked from the one that made this storage. Files, lock and readers
    /// then belong to that process: calls that read or change them fail with `Forked`.
    fn is_forked(&self) -> bool {
        false
    }

    /// All entries of the directory, in no order.
    fn list(&self) -> Result<Vec<DirectoryEntry>>;

    /// Makes an empty file (mode 0600). It must not exist.
    fn create(&self, file: FileName) -> Result<()>;

    /// Fills `buffer` from `offset`. Returns fewer bytes only at the end of the file. Reads of tables bypass
    /// the page cache where the file system allows and `buffer`, its length and `offset` are aligned to 512
    /// bytes.
    fn read(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// As `read`, into one buffer after another.
    fn read_vectored(&self, file: FileName, offset: u64, buffers: &mut [&mut [u8]]) -> Result<usize> {
        let mut filled = 0;
        for buffer in buffers {
            let bytes = self.read(file, offset + filled as u64, buffer)?;
            filled += bytes;
            if bytes < buffer.len() {
                break;
            }
        }
        Ok(filled)
    }

    /// A reader, which can have several reads in flight. Costs a lock, and sometimes a system call.
    fn reader(self: Arc<Self>) -> Box<dyn Reader>;

    /// The kind of reader that `reader` returns, and the reason if it is not the best kind.
    fn reader_kind(&self) -> (ReaderKind, String) {
        (ReaderKind::Plain, String::new())
    }

    /// Writes all of `bytes` at `offset`, extending the file as needed.
    fn write(&self, file: FileName, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Starts writing `bytes` bytes from `offset` to the device, without waiting. A hint: never fails.
    fn start_writeback(&self, file: FileName, offset: u64, bytes: u64);

    /// Returns whole pages that nothing refers to any more to the file system; the file itself may stay in
    /// use. They read as zeros from then on; after a crash, as zeros or as before. They read as zeros from
    /// then on; after a crash, as zeros or as before. `Ok(false)` where the file has a second name, whose
    /// reader may need the pages, and where the file system cannot punch holes.
    fn punch_hole(&self, _file: FileName, _offset: u64, _bytes: u64) -> Result<bool> {
        Ok(false)
    }

    /// Waits until data and length of the file are durable.
    fn sync(&self, file: FileName) -> Result<()>;

    /// Length in bytes; `None` if there is no such file.
    fn length(&self, file: FileName) -> Result<Option<u64>>;

    /// Renames within the directory; `to` must not exist.
    fn rename(&self, from: FileName, to: FileName) -> Result<()>;

    /// Removes the file. A missing file is not an error.
    fn remove(&self, file: FileName) -> Result<()>;

    /// Makes creations, renames, links and removals durable.
    fn sync_directory(&self) -> Result<()>;

    /// A storage for another directory of the same machine, of the same implementation.
    fn beside(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        Err(Error::Unsupported { file: path.display().to_string(), what: "a second directory".to_owned() })
    }

    /// Links a synced file, which is never written again, under the same name into the directory `path`. That
    /// directory must not have the name. The link is durable after a `sync_directory` there. `Ok(false)`
    /// where the file systems do not support it.
    fn link(&self, _file: FileName, _path: &Path) -> Result<bool> {
        Ok(false)
    }

    /// 128 bits that are new at each start of the operating system; 0 where the system has no such id.
    fn boot_id(&self) -> u128;

    /// The directory's name, for messages.
    fn path(&self) -> String;

    /// Whether reads of tables bypass the page cache. Turns false where direct I/O was asked for and the file
    /// system refuses.
    fn direct_io(&self) -> bool {
        false
    }

    fn counts(&self) -> StorageCounts;

    /// The file mapped into memory, its pages read one by one as they are touched; `None` where mapping is
    /// impossible. If the file is truncated, touching a missing page ends the process.
    #[cfg(feature = "lab")]
    fn map(&self, _file: FileName) -> Result<Option<Arc<dyn Mapped>>> {
        Ok(None)
    }
}

/// Size of one write of zeros.
const ZEROS_BYTES: usize = 1 << 20;
/// Size of one read and write when a file is copied.
const COPY_BYTES: usize = 1 << 20;
/// Size of one read when a file is read whole.
const READ_BYTES: usize = 2 << 20;

/// Reads all of `file`, whose length the caller expects to be `bytes`.
///
/// # Errors
/// `Corrupt` if the file is missing or has another length; `Io` if it cannot be read or there is no memory.
/// Allocates at most the file's length plus one piece: callers bound `bytes`.
pub(crate) fn read_whole(storage: &dyn Storage, file: FileName, bytes: u64) -> Result<Vec<u8>> {
    read_start(storage, file, bytes, bytes)
}

/// As [`read_whole`], but reads only the first `wanted` bytes.
pub(crate) fn read_start(storage: &dyn Storage, file: FileName, bytes: u64, wanted: u64) -> Result<Vec<u8>> {
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
        source: Arc::new(std::io::ErrorKind::OutOfMemory.into()),
    };
    let length = usize::try_from(wanted).map_err(|_| no_memory())?;
    // Checks that there is enough memory, because `vec!` aborts where there is not. `vec!` then gives zeros
    // that take no memory until they are touched.
    Vec::<u8>::new().try_reserve_exact(length).map_err(|_| no_memory())?;
    let mut buffer = vec![0; length];
    let mut piece = vec![0; READ_BYTES.min(length)];
    for (part, offset) in buffer.chunks_mut(READ_BYTES).zip((0..).step_by(READ_BYTES)) {
        let piece = &mut piece[..part.len()];
        let read = storage.read(file, offset, piece)?;
        if read != part.len() {
            let read = offset + read as u64;
            return Err(Error::corrupt(file, read, "the file's length", bytes, read));
        }
        // Most of a log is zeros.
        if piece.iter().fold(0, |all, byte| all | byte) != 0 {
            part.copy_from_slice(piece);
        }
    }
    Ok(buffer)
}

/// Copies a file of `bytes` bytes to another directory, and syncs it there.
///
/// # Errors
/// `Corrupt` if the file is shorter; `Full` or `Io` of either directory. An incomplete copy is left in place.
pub(crate) fn copy(from: &dyn Storage, file: FileName, bytes: u64, to: &dyn Storage) -> Result<()> {
    to.create(file)?;
    let mut buffer = vec![0; COPY_BYTES.min(bytes as usize)];
    let mut at = 0;
    while at < bytes {
        let piece = (bytes - at).min(COPY_BYTES as u64) as usize;
        let piece = buffer.get_mut(..piece).expect("a piece is at most the buffer");
        let read = from.read(file, at, piece)?;
        if read != piece.len() {
            return Err(Error::corrupt(file, at + read as u64, "the file's length", bytes, at + read as u64));
        }
        to.write(file, at, piece)?;
        at += piece.len() as u64;
    }
    to.sync(file)
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
