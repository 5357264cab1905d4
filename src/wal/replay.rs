//! Reads a log back after the process that wrote it has ended.
//!
//! [`replay`] only reads: open decides everything before its first write. [`make_durable`] runs after that
//! decision.
//!
//! The end of a log cannot show that its last records are missing: a page that never reached the device reads
//! as zeros, like unused space. So each replay gets the last sequence number of the previous log. A log that
//! does not continue from that number is not replayed, and neither is any later one.

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName, SEQUENCE_MAX, Sequence};
use crate::format::frames::{Expected, FramePoint, Framer, RECORD_HEAD_BYTES, RECORDS_FROM, Tail, scan};
use crate::format::header::{FileHeader, PAGE_BYTES};
use crate::format::log::Items;
use crate::format::manifest;
use crate::format::witness::{WITNESS_OFFSET, Witness};
use crate::io::storage::{Storage, read_start, read_whole, write_zeros};

use super::log::LogFramer;

/// Zeros are written over leftover records in pieces of this size.
const ZEROS_BYTES_MAX: u64 = 1 << 20;

/// The log to replay, with the facts known about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEntry {
    pub(crate) number: u64,
    pub(crate) log: manifest::Log,
    pub(crate) store_id: u128,
    pub(crate) witness: Option<Witness>,
    /// The writes before this log: its first batch must continue from there.
    pub(crate) after: After,
    /// The previous log and its end, if missing records can only be missing there.
    pub(crate) before: Option<(FileName, u64)>,
}

/// Knowledge about the writes before a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// The writes end with this sequence.
    Exactly(Sequence),
    /// The writes reach this sequence at least, and the log may repeat some of them.
    AtLeast(Sequence),
}

impl After {
    pub(crate) fn last(self) -> Sequence {
        match self {
            After::Exactly(last) | After::AtLeast(last) => last,
        }
    }

    fn admits(self, first: Sequence) -> bool {
        match self {
            After::Exactly(last) => first == last + 1,
            After::AtLeast(last) => (1..=last + 1).contains(&first),
        }
    }
}

/// Result of a replay.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) end: FramePoint,
    pub(crate) items: u64,
    /// Sequence of the last item; without items, that of the previous log, or 0.
    pub(crate) last_sequence: Sequence,
    /// Bytes that are not zero follow the end and were not used: a torn write, or in a recycled log the
    /// records of its earlier use. So this flag does not show that a record is missing; `gap` of the next log
    /// does.
    pub(crate) torn: bool,
    pub(crate) discarded_bytes: u64,
    /// Bytes from the end to the end of the last valid record behind it.
    good_behind_bytes: u64,
    /// Valid records were not applied, because they do not continue from the previous log. No later log may
    /// be applied either.
    pub(crate) gap: bool,
    /// Records up to this offset were known to be durable.
    pub(crate) durable_to: u64,
    file: FileName,
    framer: Framer,
    /// The file up to the end, if some records were not known to be durable.
    unsynced: Vec<u8>,
}

impl Replayed {
    /// Frees the bytes that [`make_durable`] would write. The log must be replayed again before that call.
    pub(crate) fn shed(&mut self) {
        self.unsynced = Vec::new();
    }
}

/// The logs of a store, replayed one after the other.
#[derive(Debug)]
pub(crate) struct Chain {
    store_id: u128,
    witness: Option<Witness>,
    after: After,
    before: Option<(FileName, u64)>,
    is_cut: bool,
}

impl Chain {
    /// `flushed`: every write up to this sequence is in tables.
    pub(crate) fn begin(storage: &dyn Storage, store_id: u128, flushed: Sequence) -> Chain {
        // Read before the logs: if a log is being written meanwhile, the witness still holds for the bytes
        // read later.
        let witness = read_witness(storage);
        Chain { store_id, witness, after: After::AtLeast(flushed), before: None, is_cut: false }
    }

    /// Replays the next log. Behind missing records no item is given to `apply`. Returns the writes before
    /// the log, or `None` if the log is behind missing records.
    ///
    /// # Errors
    /// As [`replay`], and `Corrupt` if synced records follow the missing ones.
    pub(crate) fn next(
        &mut self,
        storage: &dyn Storage,
        (number, log): (u64, manifest::Log),
        apply: &mut dyn FnMut(Sequence, Items<'_>) -> Result<()>,
    ) -> Result<(Replayed, Option<After>)> {
        // Also behind a gap: the later logs show whether the missing records were synced.
        let (store_id, witness, after) = (self.store_id, self.witness, self.after);
        let entry = LogEntry { number, log, store_id, witness, after, before: self.before };
        let file = log.file(number);
        let replayed = replay(storage, &entry, &mut |first, items| {
            if self.is_cut {
                let what = "the first sequence behind records that are missing";
                return Err(Error::corrupt(file, 0, what, "a later one", first));
            }
            apply(first, items)
        })?;
        // A torn end alone proves no loss: a recycled log ends in records of its earlier use. Missing records
        // show in the next log, which does not continue from here.
        self.is_cut |= replayed.gap;
        if replayed.items > 0 && !self.is_cut {
            self.after = After::Exactly(replayed.last_sequence);
        }
        self.before = Some((file, replayed.end.bytes));
        Ok((replayed, (!self.is_cut).then_some(entry.after)))
    }
}

/// The witness in STORE: the position of the last-synced log. `None` if there is none or it cannot be read;
/// logs are as complete without it.
pub(crate) fn read_witness(storage: &dyn Storage) -> Option<Witness> {
    let mut page = vec![0; PAGE_BYTES];
    let read = storage.read(FileName::STORE, WITNESS_OFFSET, &mut page).ok()?;
    page.truncate(read);
    Witness::decode(&page).ok()
}

/// Passes the batches of one log to `apply`, each with the sequence number of its first item. Only reads.
///
/// # Errors
/// `Corrupt` if bytes before a recorded log end do not read back, or if a valid record is not a batch; `Io`
/// of the storage; errors of `apply`.
///
/// Cost: one read of the whole file into memory, two passes over it.
pub(crate) fn replay(
    storage: &dyn Storage,
    entry: &LogEntry,
    apply: &mut dyn FnMut(Sequence, Items<'_>) -> Result<()>,
) -> Result<Replayed> {
    let file = entry.log.file(entry.number);
    let header =
        FileHeader { kind: FileKind::Log, store_id: entry.store_id, uid: entry.log.uid, features: 0 };
    let boot_id = storage.boot_id();
    let (bytes, recorded_end, witness) = (entry.log.bytes, entry.log.recorded_end, entry.witness);
    let expected = Expected { file, header, bytes, recorded_end, witness, boot_id };
    expected.check_length()?;
    let mut bytes = read_log(storage, &expected)?;
    let found = scan(&expected, &bytes)?;
    let framer = Framer::resume(header, entry.log.bytes, boot_id, &found);
    let (discarded_bytes, torn) = match found.tail {
        Tail::Clean => (0, false),
        Tail::Torn { discarded_bytes, .. } => (discarded_bytes, true),
    };
    let mut replayed = Replayed {
        end: found.end,
        items: 0,
        last_sequence: entry.after.last(),
        torn,
        discarded_bytes,
        good_behind_bytes: discarded_bytes,
        gap: false,
        durable_to: found.durable_to,
        file,
        framer,
        unsynced: Vec::new(),
    };
    let mut after = entry.after;
    for record in found.records() {
        let first = record.sequence;
        let base = record.offset + RECORD_HEAD_BYTES as u64;
        let items = Items::new(record.payload).map_err(|bad| Error::malformed(file, base, bad))?;
        if !after.admits(first) {
            let expected = after.last() + 1;
            // A sync of this log covered the earlier logs, so their missing records were lost after that
            // sync.
            let was_synced = found.durable_to > RECORDS_FROM;
            if replayed.items > 0 || first < expected || found.same_boot || was_synced {
                let before = entry.before.filter(|_| replayed.items == 0 && first > expected);
                return Err(missing(before, (file, record.offset), expected, first));
            }
            replayed.gap = true;
            replayed.discarded_bytes += found.end.bytes - record.offset;
            break;
        }
        let count = items.count_left();
        if first + (count - 1) > SEQUENCE_MAX {
            let what = "the last sequence of a batch";
            return Err(Error::corrupt(file, record.offset + 8, what, SEQUENCE_MAX, first + (count - 1)));
        }
        apply(first, items)?;
        replayed.items += count;
        replayed.last_sequence = first + (count - 1);
        after = After::Exactly(replayed.last_sequence);
    }
    if !replayed.gap && replayed.durable_to < replayed.end.bytes {
        bytes.truncate(replayed.end.bytes as usize);
        replayed.unsynced = bytes;
    }
    Ok(replayed)
}

/// The error for a batch that does not continue from the previous one. It names the end of the previous log
/// if the missing records were there.
fn missing(
    before: Option<(FileName, u64)>,
    (file, offset): (FileName, u64),
    expected: Sequence,
    first: Sequence,
) -> Error {
    match before {
        Some((log, end)) => Error::corrupt(log, end, "the sequence after its last record", first, expected),
        None => Error::corrupt(file, offset + 8, "the first sequence of a batch", expected, first),
    }
}

/// Reads a log whole. If the manifest records its end, reads only up to there, unless bytes that are not zero
/// follow the end.
fn read_log(storage: &dyn Storage, expected: &Expected) -> Result<Vec<u8>> {
    let Some(needed) = expected.recorded_bytes() else {
        return read_whole(storage, expected.file, expected.bytes);
    };
    let bytes = read_start(storage, expected.file, expected.bytes, needed)?;
    let behind = expected.recorded_end.map_or(0, |recorded_end| recorded_end.bytes as usize);
    match bytes.get(behind..).is_some_and(|rest| rest.iter().all(|byte| *byte == 0)) {
        true => Ok(bytes),
        false => read_whole(storage, expected.file, expected.bytes),
    }
}

/// Makes a replayed log durable and continues it. No valid record is left behind the log's end, because a
/// later replay would take it for the next record. A slot with the running system's boot id then records the
/// end.
///
/// # Errors
/// As [`make_durable`].
pub(crate) fn resume(storage: &dyn Storage, mut replayed: Replayed) -> Result<LogFramer> {
    let (file, end) = (replayed.file, replayed.end);
    let mut to = end.bytes + replayed.good_behind_bytes;
    let has_written = to > end.bytes || !replayed.unsynced.is_empty();
    // From the back on: an interrupted erasure leaves no valid record behind an erased one.
    while to > end.bytes {
        let from = end.bytes.max(to.saturating_sub(ZEROS_BYTES_MAX));
        write_zeros(storage, file, from, to)?;
        to = from;
    }
    if !replayed.unsynced.is_empty() {
        let from = replayed.durable_to;
        storage.write(file, from, &replayed.unsynced[from as usize..])?;
    }
    if has_written {
        storage.sync(file)?;
    }
    let (offset, page) = replayed.framer.synced(end);
    match storage.write(file, offset, &page) {
        // The log is as durable without the slot.
        Ok(()) | Err(Error::Full { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(LogFramer::resume(file, replayed.framer))
}

/// Makes all replayed records durable: rewrites in place those not known to be durable, syncs, and records
/// this in a slot. A sync alone is not enough: after a failed sync the kernel may hold clean pages that never
/// reached the device.
///
/// # Errors
/// Errors of the storage. No data is lost, but the store must not acknowledge any write.
pub(crate) fn make_durable(storage: &dyn Storage, replayed: &mut Replayed) -> Result<()> {
    if replayed.unsynced.is_empty() {
        return Ok(());
    }
    let unsynced = &replayed.unsynced[replayed.durable_to as usize..];
    storage.write(replayed.file, replayed.durable_to, unsynced)?;
    storage.sync(replayed.file)?;
    replayed.unsynced = Vec::new();
    replayed.durable_to = replayed.end.bytes;
    let (offset, page) = if replayed.torn {
        replayed.framer.synced_before_failed_tail(replayed.end)
    } else {
        replayed.framer.synced(replayed.end)
    };
    storage.write(replayed.file, offset, &page)
}
