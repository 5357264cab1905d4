//! A log written and read back through a storage: crashes of the process and of the system, recycling, gaps,
//! damage.

use super::log::{LogFramer, LogIdentity};
use super::memory::MemoryStorage;
use super::replay::{After, Chain, LogEntry, Replayed, make_durable, read_witness, replay};
use crate::base::error::{Error, Result};
use crate::base::id::{
    FileKind, FileName, ItemKind, KeyspaceId, PartitionId, SEQUENCE_MAX, Sequence, TreeId,
};
use crate::format::frames::{FramePoint, RECORD_HEAD_BYTES, RECORDS_FROM, record_bytes};
use crate::format::log::put_item;
use crate::format::manifest;
use crate::format::store::STORE_BYTES;
use crate::io::storage::Storage;

const BYTES: u64 = RECORDS_FROM + 4096;

fn identity(number: u64) -> LogIdentity {
    LogIdentity { number, path: 0, uid: 1000 + number, store_id: 77, bytes: BYTES }
}

fn entry(number: u64, recorded_end: Option<FramePoint>, after: Option<Sequence>) -> LogEntry {
    let log = manifest::Log { path: 0, uid: 1000 + number, bytes: BYTES, recorded_end };
    let after = after.map_or(After::AtLeast(1000), After::Exactly);
    LogEntry { number, log, store_id: 77, witness: None, after, before: None }
}

fn batch(keys: &[&str]) -> Vec<u8> {
    let tree = TreeId { keyspace: KeyspaceId(1), partition: PartitionId(1) };
    let mut out = Vec::new();
    for key in keys {
        put_item(&mut out, tree, ItemKind::Put, key.as_bytes(), b"value");
    }
    out
}

/// A log with the sequence number of its next item.
struct Writer<'a> {
    storage: &'a MemoryStorage,
    log: LogFramer,
    next: Sequence,
}

impl<'a> Writer<'a> {
    fn new(storage: &'a MemoryStorage, number: u64, next: Sequence) -> Writer<'a> {
        let log = LogFramer::create(storage, &identity(number)).expect("room");
        if !storage.names().contains(&FileName::STORE) {
            storage.put(FileName::STORE, &[0; STORE_BYTES]);
        }
        Writer { storage, log, next }
    }

    fn write(&mut self, keys: &[&str]) -> &mut Self {
        let (at, mut out) = (self.log.tail().bytes, Vec::new());
        self.log.frame(self.next, &batch(keys), &mut out);
        self.next += keys.len() as u64;
        self.storage.write(self.log.file(), at, &out).expect("no fault");
        self
    }

    fn sync(&mut self) -> &mut Self {
        let up_to = self.log.tail();
        self.storage.sync(self.log.file()).expect("no fault");
        let (file, offset, page) = self.log.synced(up_to);
        self.storage.write(file, offset, &page).expect("no fault");
        self
    }
}

fn read(storage: &dyn Storage, entry: &LogEntry) -> Result<(Vec<(Sequence, String)>, Replayed)> {
    let mut found = Vec::new();
    let entry = &LogEntry { witness: read_witness(storage), ..*entry };
    let replayed = replay(storage, entry, &mut |first, items| {
        let keys = items.map(|item| String::from_utf8_lossy(item.key).into_owned());
        found.extend((first..).zip(keys));
        Ok(())
    })?;
    Ok((found, replayed))
}

fn keys(storage: &dyn Storage, entry: &LogEntry) -> String {
    let (found, replayed) = read(storage, entry).expect("sound");
    assert_eq!(replayed.items, found.len() as u64);
    assert_eq!(replayed.last_sequence, found.last().map_or(entry.after.last(), |(last, _)| *last));
    found.into_iter().map(|(_, key)| key).collect()
}

fn corrupt_part<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
    match result {
        Err(Error::Corrupt(at)) => at.what,
        other => panic!("not corrupt: {other:?}"),
    }
}

/// File and offset that the error names.
fn corrupt_at<T: std::fmt::Debug>(result: Result<T>) -> (String, u64) {
    match result {
        Err(Error::Corrupt(at)) => (at.file, at.offset),
        other => panic!("not corrupt: {other:?}"),
    }
}

/// Written items are replayed with their sequence numbers, synced or not, as long as the system runs.
#[test]
fn a_process_crash_loses_nothing() {
    let storage = MemoryStorage::new(5);
    let mut writer = Writer::new(&storage, 1, 10);
    assert_eq!(storage.length(writer.log.file()).expect("no fault"), Some(BYTES));
    writer.write(&["a", "b"]).sync();
    assert_eq!(writer.log.unsynced_bytes(), 0);
    writer.write(&["c"]);
    assert_eq!(writer.log.unsynced_bytes(), record_bytes(batch(&["c"]).len()) as u64);
    let (found, replayed) = read(&storage, &entry(1, None, None)).expect("sound");
    let expected = [(10, "a".to_owned()), (11, "b".to_owned()), (12, "c".to_owned())];
    assert_eq!(found, expected);
    assert_eq!((replayed.end, replayed.torn, replayed.gap), (writer.log.tail(), false, false));
    assert!(replayed.durable_to < replayed.end.bytes);
}

/// Several batches are framed for one write, and more while the sync runs. The slot covers only the batches
/// written before the sync.
#[test]
fn framing_goes_on_during_a_sync() {
    let storage = MemoryStorage::new(5);
    let mut writer = Writer::new(&storage, 1, 1);
    let (at, mut out) = (writer.log.tail().bytes, Vec::new());
    writer.log.frame(1, &batch(&["a"]), &mut out);
    writer.log.frame(2, &batch(&["b"]), &mut out);
    assert_eq!(
        out.len(),
        LogFramer::record_bytes(batch(&["a"]).len()) + LogFramer::record_bytes(batch(&["b"]).len())
    );
    storage.write(writer.log.file(), at, &out).expect("no fault");
    let up_to = writer.log.tail();
    storage.sync(writer.log.file()).expect("no fault");
    writer.next = 3;
    writer.write(&["c"]);
    let (file, offset, page) = writer.log.synced(up_to);
    storage.write(file, offset, &page).expect("no fault");
    let (found, replayed) = read(&storage, &entry(1, None, None)).expect("sound");
    assert_eq!((found.len(), replayed.durable_to), (3, up_to.bytes));
    storage.power_cut();
    assert_eq!(keys(&storage, &entry(1, None, None)), "ab");
}

/// A power cut loses exactly the unsynced records.
#[test]
fn a_power_cut_loses_the_unsynced_tail() {
    let storage = MemoryStorage::new(5);
    Writer::new(&storage, 1, 1).write(&["a"]).sync().write(&["b"]).sync().write(&["c"]);
    storage.power_cut();
    assert_eq!(keys(&storage, &entry(1, None, None)), "ab");
}

/// Once made durable, replayed records survive a power cut, also in front of a torn write, and when this is
/// done twice.
#[test]
fn replayed_records_are_made_durable() {
    let storage = MemoryStorage::new(5);
    let mut writer = Writer::new(&storage, 1, 1);
    writer.write(&["a"]).sync().write(&["b"]);
    let torn_at = writer.log.tail().bytes;
    writer.write(&["c"]).write(&["d"]);
    let mut bytes = storage.bytes(writer.log.file());
    bytes[torn_at as usize + 30] ^= 1;
    storage.write(writer.log.file(), 0, &bytes).expect("no fault");
    storage.reboot();
    for _ in 0..2 {
        let (found, mut replayed) = read(&storage, &entry(1, None, None)).expect("a torn tail");
        assert_eq!((found.len(), replayed.torn), (2, true));
        assert!(replayed.discarded_bytes > 0);
        make_durable(&storage, &mut replayed).expect("no fault");
        assert_eq!(replayed.durable_to, torn_at);
        // The slot that records the end must not make the torn records look like damage of this boot.
        assert_eq!(keys(&storage, &entry(1, None, None)), "ab");
    }
    let changes = storage.changes();
    let (_, mut replayed) = read(&storage, &entry(1, None, None)).expect("a torn tail");
    make_durable(&storage, &mut replayed).expect("nothing to do");
    assert_eq!(storage.changes(), changes);
    storage.power_cut();
    assert_eq!(keys(&storage, &entry(1, None, None)), "ab");
}

/// Replay never writes, also if the log has unsynced records.
#[test]
fn replay_writes_nothing() {
    let storage = MemoryStorage::new(5);
    Writer::new(&storage, 1, 1).write(&["a"]).sync().write(&["b"]);
    let changes = storage.changes();
    storage.fail_after(Some(1));
    assert_eq!(keys(&storage, &entry(1, None, None)), "ab");
    assert_eq!(storage.changes(), changes);
}

/// A recycled log begins empty under its new name. Its old records are not read, whether the new use is short
/// or empty.
#[test]
fn recycling_forgets() {
    let storage = MemoryStorage::new(5);
    let mut old = Writer::new(&storage, 1, 1);
    old.write(&["old one"]).write(&["old two"]).write(&["old three"]).sync();
    let log = LogFramer::recycle(&storage, old.log.file(), &identity(2)).expect("the same length");
    assert_eq!(storage.names(), [FileName::STORE, FileName::new(FileKind::Log, 2)]);
    storage.power_cut();
    let (found, replayed) = read(&storage, &entry(2, None, None)).expect("sound");
    assert_eq!((found.len(), replayed.end), (0, log.tail()));
    let mut writer = Writer { storage: &storage, log, next: 4 };
    writer.write(&["new one"]);
    assert_eq!(keys(&storage, &entry(2, None, None)), "new one");
    let longer = LogIdentity { bytes: BYTES + 8, ..identity(3) };
    assert_eq!(
        corrupt_part(LogFramer::recycle(&storage, writer.log.file(), &longer)),
        "the length of a log to recycle"
    );
    let elsewhere = LogIdentity { path: 1, ..identity(3) };
    assert_eq!(
        corrupt_part(LogFramer::recycle(&storage, writer.log.file(), &elsewhere)),
        "the length of a log to recycle"
    );
}

/// A log must continue where the previous one ended. A log that does not is left out after a power cut, and
/// is corruption after a process crash.
#[test]
fn logs_go_on_from_each_other() {
    let storage = MemoryStorage::new(5);
    Writer::new(&storage, 1, 11).write(&["a"]).write(&["b"]);
    assert_eq!(keys(&storage, &entry(1, None, Some(10))), "ab");
    assert_eq!(corrupt_part(read(&storage, &entry(1, None, Some(9)))), "the first sequence of a batch");
    storage.reboot();
    let (found, replayed) = read(&storage, &entry(1, None, Some(9))).expect("a gap");
    assert_eq!((found.len(), replayed.items, replayed.last_sequence, replayed.gap), (0, 0, 9, true));
    assert_eq!(replayed.discarded_bytes, replayed.end.bytes - RECORDS_FROM);
    let (changes, mut replayed) = (storage.changes(), replayed);
    make_durable(&storage, &mut replayed).expect("nothing to do");
    assert_eq!(storage.changes(), changes, "what is not used is left as it is");
    assert_eq!(corrupt_part(read(&storage, &entry(1, None, Some(11)))), "the first sequence of a batch");
    let oldest = |last| LogEntry { after: After::AtLeast(last), ..entry(1, None, None) };
    assert_eq!(keys(&storage, &oldest(10)), "ab");
    assert_eq!(keys(&storage, &oldest(12)), "ab", "what is in tables already may stand in the log too");
    assert!(read(&storage, &oldest(9)).expect("a gap").1.gap, "what came before it was lost");
}

/// A recycled log ends in records of its earlier use. It looks torn, but the next log continues from it, so
/// there is no gap.
#[test]
fn remains_of_an_earlier_life_are_no_gap() {
    let storage = MemoryStorage::new(5);
    let mut old = Writer::new(&storage, 1, 1);
    old.write(&["old one", "old two"]).sync();
    let log = LogFramer::recycle(&storage, old.log.file(), &identity(2)).expect("the same length");
    Writer { storage: &storage, log, next: 3 }.write(&["a"]);
    Writer::new(&storage, 3, 4).write(&["b"]);
    let (_, first) = read(&storage, &entry(2, None, None)).expect("sound");
    assert!(first.torn);
    let next = entry(3, None, Some(first.last_sequence));
    let (found, second) = read(&storage, &next).expect("sound");
    assert_eq!((found, second.gap), (vec![(4, "b".to_owned())], false));
}

/// A sync of a log covers the earlier logs. So records missing before a synced record are damage, also after
/// a restart of the system: they had been acknowledged as durable.
#[test]
fn a_gap_before_synced_records_is_corruption() {
    let storage = MemoryStorage::new(5);
    Writer::new(&storage, 1, 10).write(&["a"]).sync().write(&["b"]);
    Writer::new(&storage, 2, 10).write(&["a"]);
    storage.reboot();
    let synced = read(&storage, &entry(1, None, Some(8)));
    assert_eq!(corrupt_part(synced), "the first sequence of a batch");
    assert!(read(&storage, &entry(2, None, Some(8))).expect("a gap").1.gap);
}

/// Sequence numbers end before their 56 bits do: larger ones, which only crafted files have, are refused.
#[test]
fn sequences_have_an_end() {
    let storage = MemoryStorage::new(5);
    Writer::new(&storage, 1, SEQUENCE_MAX).write(&["a", "b"]);
    match read(&storage, &entry(1, None, Some(SEQUENCE_MAX - 1))) {
        Err(Error::Corrupt(at)) => {
            assert_eq!((at.what, at.offset), ("the last sequence of a batch", RECORDS_FROM + 8));
            assert_eq!(at.found, (SEQUENCE_MAX + 1).to_string());
        }
        other => panic!("not corrupt: {other:?}"),
    }
    Writer::new(&storage, 2, SEQUENCE_MAX - 1).write(&["a", "b"]);
    assert_eq!(keys(&storage, &entry(2, None, Some(SEQUENCE_MAX - 2))), "ab");
}

/// The error for damage has an offset in the file: that of the invalid sequence number, or of the byte of a
/// batch that does not decode.
#[test]
fn damage_has_an_offset() {
    let storage = MemoryStorage::new(5);
    let mut writer = Writer::new(&storage, 1, 1);
    writer.write(&["a"]);
    let second = writer.log.tail().bytes;
    writer.next = 3;
    writer.write(&["b"]);
    let file = writer.log.file().to_string();
    assert_eq!(corrupt_at(read(&storage, &entry(1, None, None))), (file, second + 8));
    let mut writer = Writer::new(&storage, 2, 1);
    writer.write(&["a"]);
    let (at, mut out) = (writer.log.tail().bytes, Vec::new());
    writer.log.frame(2, b"not a batch", &mut out);
    storage.write(writer.log.file(), at, &out).expect("no fault");
    let kind_at = at + RECORD_HEAD_BYTES as u64 + 8;
    assert_eq!(corrupt_at(read(&storage, &entry(2, None, None))), (writer.log.file().to_string(), kind_at));
}

/// Bytes that were shed are not written: the log must be replayed again before it is made durable.
#[test]
fn shed_log_bytes_are_not_written() {
    let storage = MemoryStorage::new(5);
    Writer::new(&storage, 1, 1).write(&["a"]);
    let (_, mut replayed) = read(&storage, &entry(1, None, None)).expect("sound");
    replayed.shed();
    let changes = storage.changes();
    make_durable(&storage, &mut replayed).expect("nothing to do");
    assert_eq!(storage.changes(), changes);
}

/// Replays the logs with these numbers as a chain. Returns for each the applied keys and the writes before
/// it.
fn follow(
    storage: &MemoryStorage,
    flushed: Sequence,
    numbers: &[u64],
) -> Result<Vec<(String, Option<After>)>> {
    let mut chain = Chain::begin(storage, 77, flushed);
    let mut followed = Vec::new();
    for number in numbers {
        let log = entry(*number, None, None).log;
        let mut applied = String::new();
        let (_, after) = chain.next(storage, (*number, log), &mut |_, items| {
            items.for_each(|item| applied.push_str(&String::from_utf8_lossy(item.key)));
            Ok(())
        })?;
        followed.push((applied, after));
    }
    Ok(followed)
}

/// Logs are applied in order. The first log with items may repeat items that are in tables; each later one
/// continues exactly where the previous one ended.
#[test]
fn a_chain_goes_from_log_to_log() {
    let storage = MemoryStorage::new(5);
    Writer::new(&storage, 1, 1);
    Writer::new(&storage, 2, 3).write(&["a", "b"]).write(&["c"]);
    Writer::new(&storage, 3, 6);
    Writer::new(&storage, 4, 6).write(&["d"]);
    let told = |keys: &str, after| (keys.to_owned(), Some(after));
    assert_eq!(
        follow(&storage, 4, &[1, 2, 3, 4]).expect("sound"),
        [
            told("", After::AtLeast(4)),
            told("abc", After::AtLeast(4)),
            told("", After::Exactly(5)),
            told("d", After::Exactly(5)),
        ]
    );
}

/// Behind records that a power cut lost, no log is applied. A log behind them that would fit the sequence is
/// damage.
#[test]
fn a_chain_ends_at_a_gap() {
    let storage = MemoryStorage::new(5);
    Writer::new(&storage, 1, 1).write(&["a"]);
    Writer::new(&storage, 2, 3).write(&["c"]);
    Writer::new(&storage, 3, 4).write(&["d"]);
    Writer::new(&storage, 4, 5);
    Writer::new(&storage, 5, 2).write(&["b"]);
    storage.reboot();
    let cut = (String::new(), None);
    let first = ("a".to_owned(), Some(After::AtLeast(0)));
    let expected = [first, cut.clone(), cut.clone(), cut];
    assert_eq!(follow(&storage, 0, &[1, 2, 3, 4]).expect("gaps"), expected);
    let behind = follow(&storage, 0, &[1, 2, 3, 5]);
    assert_eq!(corrupt_part(behind), "the first sequence behind records that are missing");
    let behind = follow(&storage, 0, &[1, 2, 5]);
    assert_eq!(corrupt_part(behind), "the first sequence behind records that are missing");
}

/// Sequence numbers that jump within a log, and batches that do not decode, are corruption, because the
/// records' checksums are valid.
#[test]
fn good_records_must_make_sense() {
    let storage = MemoryStorage::new(5);
    let mut writer = Writer::new(&storage, 1, 1);
    writer.write(&["a"]);
    writer.next = 3;
    writer.write(&["b"]);
    storage.reboot();
    assert_eq!(corrupt_part(read(&storage, &entry(1, None, None))), "the first sequence of a batch");
    let mut writer = Writer::new(&storage, 2, 0);
    writer.write(&["a"]);
    assert_eq!(corrupt_part(read(&storage, &entry(2, None, None))), "the first sequence of a batch");
    let mut writer = Writer::new(&storage, 3, 1);
    let (at, mut out) = (writer.log.tail().bytes, Vec::new());
    writer.log.frame(1, b"not a batch", &mut out);
    storage.write(writer.log.file(), at, &out).expect("no fault");
    assert_eq!(corrupt_part(read(&storage, &entry(3, None, None))), "the kind of item");
}

/// A sealed log ends at the end in the manifest. A missing, shorter or longer file is an error that names it.
#[test]
fn promises_and_lengths() {
    let storage = MemoryStorage::new(5);
    let mut writer = Writer::new(&storage, 1, 1);
    writer.write(&["a"]).write(&["b"]).sync();
    let end = writer.log.tail();
    let (_, replayed) = read(&storage, &entry(1, Some(end), None)).expect("sound");
    assert_eq!((replayed.end, replayed.durable_to), (end, end.bytes));
    let beyond = FramePoint { bytes: end.bytes + 8, ..end };
    assert!(read(&storage, &entry(1, Some(beyond), None)).is_err());
    let bytes = storage.bytes(writer.log.file());
    for bytes in [&bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat()] {
        storage.put(writer.log.file(), bytes);
        assert_eq!(corrupt_part(read(&storage, &entry(1, None, None))), "the file's length");
    }
    assert_eq!(corrupt_part(read(&storage, &entry(9, None, None))), "the file");
    let mut endless = entry(1, None, None);
    endless.log.bytes = u64::MAX;
    assert_eq!(corrupt_part(read(&storage, &endless)), "the recorded length");
}

/// Creating a log fails if any of its steps fails.
#[test]
fn creation_can_fail_at_every_step() {
    let storage = MemoryStorage::new(5);
    let mut step = 1;
    loop {
        storage.fail_after(Some(step));
        let made = LogFramer::create(&storage, &identity(1));
        storage.fail_after(None);
        if made.is_ok() {
            break;
        }
        // In this storage the removal fails too, as every later change does.
        storage.remove(identity(1).file()).expect("healed");
        step += 1;
    }
    assert_eq!(step, 5);
}

/// Every flipped bit of a small log, whose records are all covered by a slot or the witness, gives an error
/// or the same items.
#[test]
fn every_flip_is_detected_or_harmless() {
    let storage = MemoryStorage::new(5);
    let mut writer = Writer::new(&storage, 1, 1);
    writer.write(&["a"]).sync().write(&["b"]).sync();
    let file = writer.log.file();
    let mut bytes = storage.bytes(file);
    let all = read(&storage, &entry(1, None, None)).expect("sound").0;
    // The zeros behind the records are all alike: testing a part of them is enough.
    for bit in (0..RECORDS_FROM as usize * 8 + 2048).filter(|bit| bit % 3 == 0 || *bit > 12_288 * 8) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        storage.put(file, &bytes);
        if let Ok((found, _)) = read(&storage, &entry(1, None, None)) {
            assert_eq!(found, all, "bit {bit}");
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}
