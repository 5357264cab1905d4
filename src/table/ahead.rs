//! Read-ahead: the next piece of a file is read while the stream works on the piece before it.
//!
//! At most one read is in flight. It goes through a reader of its own, so no other caller waits for it. Only
//! streams of tables use it; one thread.

use crate::base::error::{Error, Result};
use crate::base::few::Few;
use crate::base::id::FileName;
use crate::base::load::{CountedRead, DeviceLoad};
use crate::base::sync::Arc;
use crate::io::reader::{Reader, Request, Target};
use crate::io::storage::Storage;

use super::memory::AlignedBytes;

/// See the module.
pub(super) struct FileReadahead {
    reader: Box<dyn Reader>,
    load: Arc<DeviceLoad>,
    file: FileName,
    /// The most bytes of a piece.
    bytes_max: usize,
    /// The buffer of the last piece, while no read is in flight.
    spare: Option<AlignedBytes>,
    reading: Option<PieceSpan>,
}

/// The piece that is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PieceSpan {
    offset: u64,
    bytes: usize,
}

/// The buffer of a piece, the number of bytes requested, and the guard that counts the request.
struct Piece(AlignedBytes, usize, CountedRead);

impl Target for Piece {
    fn buffers(&mut self) -> Few<&mut [u8]> {
        Few::from_buf([&mut self.0[..self.1]])
    }
}

impl FileReadahead {
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        load: &Arc<DeviceLoad>,
        file: FileName,
        bytes_max: usize,
    ) -> FileReadahead {
        let (reader, load) = (Arc::clone(storage).reader(), Arc::clone(load));
        FileReadahead {
            reader,
            load,
            file,
            bytes_max,
            spare: Some(AlignedBytes::new(bytes_max)),
            reading: None,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes_max
    }

    /// Starts a read of at most `left` bytes from `offset`, and does not wait.
    pub(super) fn begin(&mut self, offset: u64, left: usize) {
        let bytes = left.min(self.bytes_max);
        let Some(spare) = self.spare.take_if(|_| bytes > 0) else { return };
        self.reading = Some(PieceSpan { offset, bytes });
        let piece = Piece(spare, bytes, self.load.merging());
        self.reader.push(Request { file: self.file, offset, target: Box::new(piece) });
        self.reader.submit();
    }

    /// The length of the piece from `offset` that is read or in flight.
    pub(super) fn bytes_from(&self, offset: u64) -> Option<usize> {
        self.reading.filter(|place| place.offset == offset).map(|place| place.bytes)
    }

    /// Waits for the piece and copies it to the start of `buffer`.
    ///
    /// # Errors
    /// As a read at the time of the call.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> Result<()> {
        let Some(PieceSpan { offset, bytes }) = self.reading.take() else { return Ok(()) };
        let mut completed = Vec::new();
        self.reader.reap(&mut completed);
        let done = completed.pop().expect("one read was in flight");
        let target: Box<dyn std::any::Any> = done.target;
        let Piece(spare, _, _reading) = *target.downcast().expect("the ring returns the pushed target");
        let read = done.result.and_then(|read| {
            if read != bytes {
                let at = offset + read as u64;
                return Err(Error::corrupt(self.file, at, "bytes of the table", bytes, read));
            }
            buffer[..bytes].copy_from_slice(&spare[..bytes]);
            Ok(())
        });
        self.spare = Some(spare);
        read
    }
}
