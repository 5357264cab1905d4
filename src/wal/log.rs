//! One log file being written: the position of the next record.
//!
//! A log does no I/O after its creation. Commit is a state machine whose driver writes the bytes that
//! [`LogFramer::frame`] appends, syncs the file, and writes the page that [`LogFramer::synced`] returns: a
//! slot of the log, or the witness (the last-synced log position, kept in STORE). The commit leader owns the
//! log; `Send`, not shared.
//!
//! One round: `let at = log.tail()`; frame any number of batches; write them at `at.bytes`; let `up_to =
//! log.tail()`; sync the file; `log.synced(up_to)`; write that page and do not wait for it. More batches may
//! be framed while the sync runs.
//!
//! Invariants:
//! 1. The file has its full length, durably, before the manifest names it.
//! 2. Syncs of one log end in the order of their `up_to`.

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName, Sequence};
use crate::format::frames::{FramePoint, Framer, RECORDS_FROM, record_bytes};
use crate::format::header::FileHeader;
use crate::format::witness::WITNESS_OFFSET;
use crate::io::storage::{Storage, write_zeros};

/// Identity of a new log, as the manifest will record it.
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

/// A saved state of a log, to return to.
#[derive(Debug)]
pub(crate) struct LogMark(Framer);

/// The write side of a log.
#[derive(Debug)]
pub(crate) struct LogFramer {
    file: FileName,
    framer: Framer,
}

impl LogFramer {
    /// Creates the file, full of zeros, and syncs it. The caller syncs the directory.
    ///
    /// # Errors
    /// `Full` or `Io` of the storage; the incomplete file is removed.
    pub(crate) fn create(storage: &dyn Storage, identity: &LogIdentity) -> Result<LogFramer> {
        let mut log = LogFramer::begin(storage, identity);
        let file = log.file;
        storage.create(file)?;
        let written = storage
            .write(file, 0, &log.framer.first_pages())
            .and_then(|()| write_zeros(storage, file, RECORDS_FROM, identity.bytes))
            .and_then(|()| storage.sync(file));
        if let Err(error) = written {
            // The first failure is reported. If the removal fails too, the file is an orphan that the next
            // open removes.
            let _ = storage.remove(file);
            return Err(error);
        }
        Ok(log)
    }

    /// Makes the file from `old`, a log of the same length and path that the manifest no longer names, and
    /// syncs it. The caller syncs the directory. The old records stay in the file but are invalid, because
    /// the uid is new.
    pub(crate) fn recycle(storage: &dyn Storage, old: FileName, identity: &LogIdentity) -> Result<LogFramer> {
        let mut log = LogFramer::begin(storage, identity);
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

    fn begin(storage: &dyn Storage, identity: &LogIdentity) -> LogFramer {
        let framer = Framer::new(identity.header(), identity.bytes, storage.boot_id());
        LogFramer { file: identity.file(), framer }
    }

    pub(crate) fn file(&self) -> FileName {
        self.file
    }

    /// Continues a log that was replayed and made durable; see [`replay`](super::replay).
    pub(super) fn resume(file: FileName, framer: Framer) -> LogFramer {
        LogFramer { file, framer }
    }

    /// Length of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.framer.bytes()
    }

    /// The longest payload that still fits.
    pub(crate) fn room_bytes(&self) -> usize {
        self.framer.room_bytes()
    }

    /// Position of the next record.
    pub(crate) fn tail(&self) -> FramePoint {
        self.framer.tail()
    }

    /// Whether the log has no records, except rewound ones.
    pub(crate) fn is_empty(&self) -> bool {
        self.tail().bytes == RECORDS_FROM
    }

    /// Bytes framed and not known to be durable.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.framer.unsynced_bytes()
    }

    /// Appends one framed batch to `out` and advances the tail.
    ///
    /// # Panics
    /// If the payload is empty or longer than [`LogFramer::room_bytes`].
    pub(crate) fn frame(&mut self, first_sequence: Sequence, payload: &[u8], out: &mut Vec<u8>) {
        self.framer.frame(first_sequence, payload, out);
    }

    /// Length of a record with this payload, in bytes.
    pub(crate) fn record_bytes(payload_bytes: usize) -> usize {
        record_bytes(payload_bytes)
    }

    /// Saves the state, to return to if the next framed records do not reach the file.
    pub(crate) fn mark(&self) -> LogMark {
        LogMark(self.framer.clone())
    }

    /// Drops the records framed since the mark. Some of their bytes may have reached the file. Before a later
    /// write is acknowledged, either those bytes must be overwritten or the manifest must record the log's
    /// end. Otherwise a replay would take the records for committed.
    pub(crate) fn rewind(&mut self, mark: LogMark) {
        self.framer = mark.0;
    }

    /// Called after the success of a sync that began when all bytes up to `up_to` were written. Returns file,
    /// offset and bytes of the page that records this, to be written without waiting. The page is a slot, or
    /// the witness if a slot would be one more page for the next sync to write.
    pub(crate) fn synced(&mut self, up_to: FramePoint) -> (FileName, u64, Vec<u8>) {
        match self.framer.witnessed(up_to) {
            Some(page) => (FileName::STORE, WITNESS_OFFSET, page),
            None => self.ended(up_to, false),
        }
    }

    /// As [`LogFramer::synced`], for the last sync: the page is always a slot. `has_failed_tail`: behind that
    /// end lies a failed tail, records that a full disk refused.
    pub(crate) fn ended(&mut self, up_to: FramePoint, has_failed_tail: bool) -> (FileName, u64, Vec<u8>) {
        let (offset, page) = match has_failed_tail {
            true => self.framer.synced_before_failed_tail(up_to),
            false => self.framer.synced(up_to),
        };
        (self.file, offset, page)
    }
}
