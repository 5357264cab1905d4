//! One log file being written: where the next record goes.
//!
//! It does no I/O after creation: commit is a state machine whose driver writes what [`Log::frame`] appends,
//! syncs, and writes the page that [`Log::synced`] hands out, a slot or the witness. Owned by the one who
//! commits; `Send`, not shared.
//!
//! One round: `let at = log.tail()`; frame any number of batches; write them at `at.bytes`; let `up_to =
//! log.tail()`; sync the file; `log.synced(up_to)`; write that page and do not wait for it. More may be
//! framed while the sync runs.
//!
//! Invariants: 1. the file has its full length, durably, before it is named in the manifest; 2. syncs of one
//! log end in the order of their `up_to`.

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName, Sequence};
use crate::format::frames::{FramePoint, Framer, RECORDS_FROM, record_bytes};
use crate::format::header::FileHeader;
use crate::format::witness::WITNESS_OFFSET;
use crate::io::storage::{Storage, write_zeros};

/// What a new log is, as the manifest will name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogIdentity {
    pub(crate) number: u64,
    pub(crate) path: u16,
    pub(crate) uid: u64,
    pub(crate) store_id: u128,
    /// Length of the file; a multiple of 8.
    pub(crate) bytes: u64,
}

impl LogIdentity {
    pub(crate) fn file(&self) -> FileName {
        FileName { kind: FileKind::Log, number: self.number, path: self.path }
    }

    fn header(&self) -> FileHeader {
        FileHeader { kind: FileKind::Log, store_id: self.store_id, uid: self.uid, features: 0 }
    }
}

/// A state of a log to come back to.
#[derive(Debug)]
pub(crate) struct Mark(Framer);

/// The write side of a log.
#[derive(Debug)]
pub(crate) struct Log {
    file: FileName,
    framer: Framer,
}

impl Log {
    /// Makes the file, full of zeros, and syncs it; the caller syncs the directory.
    ///
    /// # Errors
    /// `Full` or `Io` of the storage; what was made of the file is removed again.
    pub(crate) fn create(storage: &dyn Storage, identity: &LogIdentity) -> Result<Log> {
        let mut log = Log::begin(storage, identity);
        let file = log.file;
        storage.create(file)?;
        let written = storage
            .write(file, 0, &log.framer.first_pages())
            .and_then(|()| write_zeros(storage, file, RECORDS_FROM, identity.bytes))
            .and_then(|()| storage.sync(file));
        if let Err(error) = written {
            // The first failure is the one to report; a file left behind is an orphan that the next open
            // removes.
            let _ = storage.remove(file);
            return Err(error);
        }
        Ok(log)
    }

    /// Makes the file from `old`, a log of the same length and path that the manifest no longer names; syncs
    /// it; the caller syncs the directory. Its old records stay and are never good again, as the uid is new.
    pub(crate) fn recycle(storage: &dyn Storage, old: FileName, identity: &LogIdentity) -> Result<Log> {
        let mut log = Log::begin(storage, identity);
        let length = storage.length(old)?.unwrap_or(0);
        if length != identity.bytes || old.path != identity.path {
            return Err(Error::corrupt(
                old,
                length,
                "the length of a log to recycle",
                identity.bytes,
                length,
            ));
        }
        storage.rename(old, log.file)?;
        storage.write(log.file, 0, &log.framer.first_pages())?;
        storage.sync(log.file)?;
        Ok(log)
    }

    fn begin(storage: &dyn Storage, identity: &LogIdentity) -> Log {
        let framer = Framer::new(identity.header(), identity.bytes, storage.boot_id());
        Log { file: identity.file(), framer }
    }

    pub(crate) fn file(&self) -> FileName {
        self.file
    }

    /// Goes on with a log that was replayed and made durable; see [`replay`](super::replay).
    pub(super) fn resume(file: FileName, framer: Framer) -> Log {
        Log { file, framer }
    }

    /// Length of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.framer.bytes()
    }

    /// The longest payload that still fits.
    pub(crate) fn room_bytes(&self) -> usize {
        self.framer.room_bytes()
    }

    /// Where the next record goes.
    pub(crate) fn tail(&self) -> FramePoint {
        self.framer.tail()
    }

    /// Whether no record is in it, as far as any was not taken back.
    pub(crate) fn is_empty(&self) -> bool {
        self.tail().bytes == RECORDS_FROM
    }

    /// Bytes framed and not yet known durable.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.framer.unsynced_bytes()
    }

    /// Appends one framed batch to `out` and advances the tail.
    ///
    /// # Panics
    /// If the payload is empty or longer than [`Log::room_bytes`].
    pub(crate) fn frame(&mut self, first_sequence: Sequence, payload: &[u8], out: &mut Vec<u8>) {
        self.framer.frame(first_sequence, payload, out);
    }

    /// Bytes of the file that one payload takes.
    pub(crate) fn record_bytes(payload_bytes: usize) -> usize {
        record_bytes(payload_bytes)
    }

    /// Where the log is now, to come back to if what is framed next does not reach the file.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.framer.clone())
    }

    /// Forgets what was framed since the mark. What of it reached the file must be overwritten, or the log's
    /// end promised by the manifest, before anything later is acknowledged: a replay would take it for
    /// committed.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.framer = mark.0;
    }

    /// A sync that began after everything up to `up_to` was written has succeeded. Returns file, offset and
    /// bytes of the page that says so, to write without waiting: a slot, or the witness where a slot would
    /// only be one page more for the next sync to write.
    pub(crate) fn synced(&mut self, up_to: FramePoint) -> (FileName, u64, Vec<u8>) {
        match self.framer.witnessed(up_to) {
            Some(page) => (FileName::STORE, WITNESS_OFFSET, page),
            None => self.ended(up_to, false),
        }
    }

    /// As [`Log::synced`], of the last sync: always a slot. `has_remains`: records that a full disk refused
    /// stand behind that end.
    pub(crate) fn ended(&mut self, up_to: FramePoint, has_remains: bool) -> (FileName, u64, Vec<u8>) {
        let (offset, page) = match has_remains {
            true => self.framer.synced_before_remains(up_to),
            false => self.framer.synced(up_to),
        };
        (self.file, offset, page)
    }
}
