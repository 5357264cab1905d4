//! Reading a log back after the process that wrote it ended.
//!
//! [`replay`] reads only: open decides everything before it writes anything. [`make_durable`] comes after
//! that decision.
//!
//! Across logs, the end of one does not show whether a record is missing there: a page that never reached the
//! device reads as zeros. So each log is told which sequence number the one before it ended with, and one
//! that does not go on from there is not replayed; nor may any later one be.

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName, SEQUENCE_MAX, Sequence};
use crate::format::frames::{Expected, FramePoint, Framer, RECORD_HEAD_BYTES, RECORDS_FROM, Tail, scan};
use crate::format::header::{FileHeader, PAGE_BYTES};
use crate::format::log::Items;
use crate::format::manifest;
use crate::format::witness::{WITNESS_OFFSET, Witness};
use crate::io::storage::{Storage, read_start, read_whole, write_zeros};

use super::log::Log;

/// Zeros are written over remains in pieces of this size.
const ZEROS_BYTES_MAX: u64 = 1 << 20;

/// Which log to replay, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEntry {
    pub(crate) number: u64,
    pub(crate) log: manifest::Log,
    pub(crate) store_id: u128,
    pub(crate) witness: Option<Witness>,
    /// What was written before it: its first batch must go on from there.
    pub(crate) after: After,
    /// The log before it and where that ends, if records that are missing can only be missing there.
    pub(crate) before: Option<(FileName, u64)>,
}

/// What is known of the writes before a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// They end with this one.
    Exactly(Sequence),
    /// They go up to this one at least, and the log may hold some of them again.
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

/// What was replayed.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) end: FramePoint,
    pub(crate) items: u64,
    /// Of the last item; that of the log before, or 0, if there was none.
    pub(crate) last_sequence: Sequence,
    /// Bytes that are not zero follow the end, which were not used: what a torn write left, or in a recycled
    /// log its earlier life. So it does not show that a record is missing; `gap` of the next log does.
    pub(crate) torn: bool,
    pub(crate) discarded_bytes: u64,
    /// From the end to the end of the last good record behind it.
    good_behind_bytes: u64,
    /// Good records were not applied, as they do not go on from the log before. No later log may be applied
    /// either.
    pub(crate) gap: bool,
    /// Up to here the records were known to be durable.
    pub(crate) durable_to: u64,
    file: FileName,
    framer: Framer,
    /// The file up to the end, if some records were not.
    unsynced: Vec<u8>,
}

impl Replayed {
    /// Lets go of the bytes that [`make_durable`] would write: the log is replayed again before that.
    pub(crate) fn shed(&mut self) {
        self.unsynced = Vec::new();
    }
}

/// The logs of a store, one after the other.
#[derive(Debug)]
pub(crate) struct Chain {
    store_id: u128,
    witness: Option<Witness>,
    after: After,
    before: Option<(FileName, u64)>,
    is_cut: bool,
}

impl Chain {
    /// `flushed`: every write up to it is in tables.
    pub(crate) fn begin(storage: &dyn Storage, store_id: u128, flushed: Sequence) -> Chain {
        // Before the logs: what it says of one that is written meanwhile is true of what is read then.
        let witness = read_witness(storage);
        Chain { store_id, witness, after: After::AtLeast(flushed), before: None, is_cut: false }
    }

    /// Replays the next log; nothing of it is given to `apply` if it is behind records that are missing.
    /// Returns what the log was read after, `None` if it is behind them.
    ///
    /// # Errors
    /// As [`replay`], and `Corrupt` if records were synced behind those that are missing.
    pub(crate) fn next(
        &mut self,
        storage: &dyn Storage,
        (number, log): (u64, manifest::Log),
        apply: &mut dyn FnMut(Sequence, Items<'_>) -> Result<()>,
    ) -> Result<(Replayed, Option<After>)> {
        // Also behind a gap: whether what is missing was synced shows in the later logs.
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
        // A torn end alone says nothing: a recycled log ends in remains of its earlier life. What is missing
        // of it shows in the next one, which does not go on from here.
        self.is_cut |= replayed.gap;
        if replayed.items > 0 && !self.is_cut {
            self.after = After::Exactly(replayed.last_sequence);
        }
        self.before = Some((file, replayed.end.bytes));
        Ok((replayed, (!self.is_cut).then_some(entry.after)))
    }
}

/// What STORE says of the log that was synced last; `None` if it says nothing, or cannot be read: the log is
/// as whole without.
pub(crate) fn read_witness(storage: &dyn Storage) -> Option<Witness> {
    let mut page = vec![0; PAGE_BYTES];
    let read = storage.read(FileName::STORE, WITNESS_OFFSET, &mut page).ok()?;
    page.truncate(read);
    Witness::decode(&page).ok()
}

/// Gives the batches of one log to `apply`, each with the sequence number of its first item. Reads only.
///
/// # Errors
/// `Corrupt` if anything below a promise does not read back, or a record that does is not a batch; `Io` of
/// the storage; what `apply` answers.
///
/// Cost: one read of the whole file into memory, two walks over it.
pub(crate) fn replay(
    storage: &dyn Storage,
    entry: &LogEntry,
    apply: &mut dyn FnMut(Sequence, Items<'_>) -> Result<()>,
) -> Result<Replayed> {
    let file = entry.log.file(entry.number);
    let header =
        FileHeader { kind: FileKind::Log, store_id: entry.store_id, uid: entry.log.uid, features: 0 };
    let boot_id = storage.boot_id();
    let (bytes, promise, witness) = (entry.log.bytes, entry.log.promise, entry.witness);
    let expected = Expected { file, header, bytes, promise, witness, boot_id };
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
            // A sync of this log covered the ones before it: what is missing there was lost since.
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

/// A batch does not go on from the one before it, which is missing from the end of the log before if that is
/// known.
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

/// Reads a log: whole, or, if the manifest says where its records end, up to there, unless something stands
/// behind that end.
fn read_log(storage: &dyn Storage, expected: &Expected) -> Result<Vec<u8>> {
    let Some(needed) = expected.promised_bytes() else {
        return read_whole(storage, expected.file, expected.bytes);
    };
    let bytes = read_start(storage, expected.file, expected.bytes, needed)?;
    let behind = expected.promise.map_or(0, |promise| promise.bytes as usize);
    match bytes.get(behind..).is_some_and(|rest| rest.iter().all(|byte| *byte == 0)) {
        true => Ok(bytes),
        false => read_whole(storage, expected.file, expected.bytes),
    }
}

/// Makes a log that was replayed durable and goes on with it: behind its end no good record is left, which a
/// later replay would take for the next, and a slot of the running system vouches for the end.
///
/// # Errors
/// As [`make_durable`].
pub(crate) fn resume(storage: &dyn Storage, mut replayed: Replayed) -> Result<Log> {
    let (file, end) = (replayed.file, replayed.end);
    let mut to = end.bytes + replayed.good_behind_bytes;
    let has_written = to > end.bytes || !replayed.unsynced.is_empty();
    // From the back on: cut short, it leaves no good record behind one that is gone.
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
        // The log is as durable without.
        Ok(()) | Err(Error::Full { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(Log::resume(file, replayed.framer))
}

/// Makes everything that was replayed durable: rewrites in place what was not known to be, syncs, and says so
/// in a slot. A sync alone would not do: after one that failed, the kernel may hold clean pages that never
/// reached the device.
///
/// # Errors
/// Of the storage; nothing is lost, and the store must not acknowledge anything.
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
        replayed.framer.synced_before_remains(replayed.end)
    } else {
        replayed.framer.synced(replayed.end)
    };
    storage.write(replayed.file, offset, &page)
}
