//! The storage trait: files by name, nothing else.
//!
//! Callers name files and never hold handles; an implementation keeps as many open as it may. All calls
//! block; a simulator answers them from memory. Implementations are `Send + Sync` and take no lock across a
//! system call.
//!
//! Promises every implementation keeps:
//! 1. `write` then `read` of the same bytes sees them; `sync` returning `Ok` makes everything written to that
//!    file before durable.
//! 2. A name created, renamed or removed is durable only after `sync_directory`.
//! 3. An interrupted or short system call is continued; only real failures are errors. A sync that is
//!    interrupted has failed.
//! 4. After `sync` of a file has failed once, every later `sync` of it fails too.

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::id::FileName;
use crate::base::sync::Arc;

use super::reader::{Reader, ReaderKind};

/// Who else may open the store meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockMode {
    /// One writer, nobody else.
    Exclusive,
    /// Any number of readers, no writer.
    Shared,
}

/// One entry of a store's directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    Ours(FileName),
    /// A name that no file of a store has; left alone.
    Foreign(String),
}

/// Counters of what reached the operating system since the store was opened.
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
    /// Copies the bytes from `offset` on into `buffer`; fewer only at the end of the file. No reference to
    /// the mapping is made: another process may change the file.
    fn copy(&self, offset: u64, buffer: &mut [u8]) -> usize;
}

/// A store's files.
pub(crate) trait Storage: Send + Sync {
    /// Makes the directory if it is missing (mode 0700). `Ok(true)` if it was made.
    fn create_directory(&self) -> Result<bool>;

    /// Whether the directory exists.
    fn exists(&self) -> Result<bool>;

    /// Takes the lock on LOCK, creating that file if it is missing; released by `unlock` or the end of the
    /// process. A reader creates it only in a directory of its own user, so that no writer meets a LOCK it
    /// may not open. Errors with `Locked` if another opener, also in this process, stands in the way, and
    /// with `LockMissing` if a reader may not or cannot create LOCK.
    fn lock(&self, mode: LockMode) -> Result<()>;

    /// Gives the lock up and closes every file. Nothing in a forked process.
    fn unlock(&self);

    /// Whether the calling process was forked off the one that made this storage. Files, lock and readers are
    /// the other process's then: calls that read or change them fail with `Forked`.
    fn is_forked(&self) -> bool {
        false
    }

    /// All entries of the directory, in no order.
    fn list(&self) -> Result<Vec<Entry>>;

    /// Makes an empty file (mode 0600). It must not exist.
    fn create(&self, file: FileName) -> Result<()>;

    /// Fills `buffer` from `offset`. Returns fewer bytes only at the end of the file. Tables bypass the page
    /// cache where the file system allows and `buffer`, its length and `offset` are aligned to 512 bytes.
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

    /// A way to have several reads in flight. It costs a lock, and sometimes a system call.
    fn reader(self: Arc<Self>) -> Box<dyn Reader>;

    /// What `reader` gives, and why if it is not the best there is.
    fn reader_kind(&self) -> (ReaderKind, String) {
        (ReaderKind::Plain, String::new())
    }

    /// Writes all of `bytes` at `offset`, extending the file as needed.
    fn write(&self, file: FileName, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Starts writing `bytes` bytes from `offset` to the device, and does not wait. A hint: never fails.
    fn start_writeback(&self, file: FileName, offset: u64, bytes: u64);

    /// Gives whole pages of a file that nothing names any more back to the file system: they read as zeros
    /// from then on, and after a crash as zeros or as before. `Ok(false)` where the file has a second name,
    /// whose reader may want them, and where the file system cannot.
    fn punch_hole(&self, _file: FileName, _offset: u64, _bytes: u64) -> Result<bool> {
        Ok(false)
    }

    /// Waits until data and length of the file are durable.
    fn sync(&self, file: FileName) -> Result<()>;

    /// Length in bytes; `None` if there is no such file.
    fn length(&self, file: FileName) -> Result<Option<u64>>;

    /// Renames within the directory; `to` must not exist.
    fn rename(&self, from: FileName, to: FileName) -> Result<()>;

    /// Removes the file. Missing is not an error.
    fn remove(&self, file: FileName) -> Result<()>;

    /// Makes creations, renames, links and removals durable.
    fn sync_directory(&self) -> Result<()>;

    /// Another directory of the same machine, reached in the same way.
    fn beside(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        Err(Error::Unsupported { file: path.display().to_string(), what: "a second directory".to_owned() })
    }

    /// Gives a file that is synced and never written again the same name in the directory `path` too, which
    /// must not have it; durable after a `sync_directory` there. `Ok(false)` where the file systems do not
    /// let it.
    fn link(&self, _file: FileName, _path: &Path) -> Result<bool> {
        Ok(false)
    }

    /// 128 bits that are new at each start of the operating system; 0 where it has none.
    fn boot_id(&self) -> u128;

    /// What the directory is called, for messages.
    fn path(&self) -> String;

    /// Whether tables are read past the page cache; turns false where that was asked for and the file system
    /// refuses.
    fn direct_io(&self) -> bool {
        false
    }

    fn counts(&self) -> StorageCounts;

    /// The file mapped into memory, its pages read one by one as they are touched; `None` where that cannot
    /// be. A file that is cut short meanwhile ends the process when what is gone is touched.
    #[cfg(feature = "lab")]
    fn map(&self, _file: FileName) -> Result<Option<Arc<dyn Mapped>>> {
        Ok(None)
    }
}

/// Zeros are written in pieces of this size.
const ZEROS_BYTES: usize = 1 << 20;
/// And files copied.
const COPY_BYTES: usize = 1 << 20;
/// And read whole.
const READ_BYTES: usize = 2 << 20;

/// Reads all of `file`, which is `bytes` long where it is named.
///
/// # Errors
/// `Corrupt` if it is missing or has another length; `Io` if it cannot be read or there is no memory for it.
/// Allocates no more than the file is long, and a piece: callers bound `bytes`.
pub(crate) fn read_whole(storage: &dyn Storage, file: FileName, bytes: u64) -> Result<Vec<u8>> {
    read_start(storage, file, bytes, bytes)
}

/// The same of the file's first `wanted` bytes.
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
    // Whether there is that much, which can be answered; what `vec!` gives is zeros that cost nothing until
    // they are touched.
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
        // Of a log, most is zeros.
        if piece.iter().fold(0, |all, byte| all | byte) != 0 {
            part.copy_from_slice(piece);
        }
    }
    Ok(buffer)
}

/// Copies a file of `bytes` bytes to another directory, and syncs it there.
///
/// # Errors
/// `Corrupt` if the file is shorter; `Full` or `Io` of either directory. What was made is left.
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
