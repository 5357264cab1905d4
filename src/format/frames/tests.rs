//! Frames: their bytes, and the verdict of a scan on every kind of damage.

mod witness;

use super::scan::Record;
use super::*;
use crate::base::error::{Error, Result};
use crate::base::id::FileName;
use crate::format::golden::Golden;

const UID: u64 = 0x3837_3635_3433_3231;
const FILE_BYTES: usize = RECORDS_FROM as usize + 512;
const BOOT: u128 = 7;
const OTHER_BOOT: u128 = 8;

fn header(kind: FileKind) -> FileHeader {
    FileHeader { kind, store_id: 99, uid: UID, features: 0 }
}

fn expected(boot_id: u128, recorded_end: Option<FramePoint>) -> Expected {
    let file = FileName::new(FileKind::Log, 3);
    let header = header(FileKind::Log);
    Expected { file, header, bytes: FILE_BYTES as u64, recorded_end, witness: None, boot_id }
}

/// A file in memory with its writer.
struct Written {
    framer: Framer,
    bytes: Vec<u8>,
    /// The boundary before each record, and the last.
    points: Vec<FramePoint>,
}

impl Written {
    fn new() -> Written {
        Written::over(vec![0; FILE_BYTES])
    }

    /// A new life of the file on top of old bytes.
    fn over(mut bytes: Vec<u8>) -> Written {
        let mut framer = Framer::new(header(FileKind::Log), FILE_BYTES as u64, BOOT);
        bytes[..RECORDS_FROM as usize].copy_from_slice(&framer.first_pages());
        let points = vec![framer.tail()];
        Written { framer, bytes, points }
    }

    fn record(&mut self, payload: &[u8]) -> &mut Written {
        let (at, mut out) = (self.framer.tail().bytes as usize, Vec::new());
        self.framer.frame(self.points.len() as u64, payload, &mut out);
        self.bytes[at..at + out.len()].copy_from_slice(&out);
        self.points.push(self.framer.tail());
        self
    }

    fn synced(&mut self) -> &mut Written {
        let (offset, page) = self.framer.synced(self.framer.tail());
        self.bytes[offset as usize..][..PAGE_BYTES].copy_from_slice(&page);
        self
    }

    fn scan(&self, boot_id: u128) -> Result<Scan<'_>> {
        scan(&expected(boot_id, None), &self.bytes)
    }

    /// Offset of the record with `index`.
    fn at(&self, index: usize) -> usize {
        self.points[index].bytes as usize
    }
}

fn corrupt_part<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
    match result {
        Err(Error::Corrupt(at)) => at.what,
        other => panic!("not corrupt: {other:?}"),
    }
}

fn payloads(scan: &Scan<'_>) -> Vec<Vec<u8>> {
    scan.records().map(|record| record.payload.to_vec()).collect()
}

const BY_SLOT: &str = "the records that a slot vouches for";
const BY_WITNESS: &str = "the records that the witness vouches for";
const BEHIND_PROMISE: &str = "the end that the manifest vouches for";
const BY_MANIFEST: &str = "the records that the manifest vouches for";
const BY_LATER: &str = "the records that a later record vouches for";
const BEFORE_GOOD: &str = "the records before a good one";

/// The bytes of a framed file: header, slots, records.
#[test]
fn golden() {
    let mut file = Written::new();
    file.record(b"first").synced().record(b"second, longer");
    let mut golden = Golden::new("frames", &file.bytes);
    golden.heading("header page: see header.txt");
    golden.field("header", 52);
    golden.zeros_to("reserved", PAGE_BYTES);
    for index in 0..2 {
        golden.heading(["slot 0, written after a sync", "slot 1, as created"][index]);
        for (caption, count) in
            [("durable to", 8), ("chain", 8), ("boot id", 16), ("turn", 8), ("checksum", 4)]
        {
            golden.field(caption, count);
        }
        golden.zeros_to("reserved", (index + 2) * PAGE_BYTES);
    }
    for (length, padding) in [(5, 3), (14, 2)] {
        golden.heading("record");
        for (caption, count) in
            [("checksum", 4), ("length", 4), ("kind", 1), ("sequence", 7), ("synced to", 8)]
        {
            golden.field(caption, count);
        }
        golden.field("payload", length);
        golden.field("padding", padding);
    }
    golden.heading("room");
    golden.zeros_to("zeros", FILE_BYTES);
    golden.check();
}

/// Framed records are read again with their offsets, sequences and the end, also from a file that is full to
/// its last byte.
#[test]
fn round_trip() {
    let mut file = Written::new();
    assert_eq!(file.scan(BOOT).map(|scan| scan.end).expect("sound"), FramePoint::start(UID));
    file.record(b"a").record(&[0; 8]).synced().record(b"123456789");
    assert_eq!(file.framer.unsynced_bytes(), 40);
    let found = file.scan(BOOT).expect("sound");
    assert_eq!((found.end, found.tail, found.same_boot), (file.framer.tail(), Tail::Clean, true));
    assert_eq!(found.durable_to, file.points[2].bytes);
    let records: Vec<Record<'_>> = found.records().collect();
    assert_eq!(records[1], Record { offset: RECORDS_FROM + 32, sequence: 2, payload: &[0; 8] });
    assert_eq!(records.len(), 3);
    let room = file.framer.room_bytes();
    file.record(&vec![9; room]);
    assert_eq!((file.framer.room_bytes(), file.framer.tail().bytes), (0, FILE_BYTES as u64));
    assert_eq!(
        file.scan(BOOT).map(|scan| (scan.end, scan.tail)).expect("sound"),
        (file.points[4], Tail::Clean)
    );
}

/// A file of another length, kind, store or uid is refused before any record of it is read.
#[test]
fn another_file_is_refused() {
    let file = Written::new();
    let right = expected(BOOT, None);
    for bytes in [&file.bytes[..FILE_BYTES - 8], &[&file.bytes[..], &[0; 8]].concat()] {
        assert_eq!(corrupt_part(scan(&right, bytes)), "the file's length");
    }
    let short = Expected { bytes: 100, ..right };
    assert_eq!(corrupt_part(scan(&short, &file.bytes[..100])), "the recorded length");
    let long = Expected { bytes: FRAMED_BYTES_MAX + 1, ..right };
    assert_eq!(corrupt_part(scan(&long, &file.bytes)), "the recorded length");
    let other_uid = Expected { header: FileHeader { uid: 1, ..right.header }, ..right };
    assert_eq!(corrupt_part(scan(&other_uid, &file.bytes)), "the file uid");
    let other_store = Expected { header: FileHeader { store_id: 1, ..right.header }, ..right };
    assert_eq!(corrupt_part(scan(&other_store, &file.bytes)), "the store id");
    let other_kind = Expected { header: header(FileKind::Manifest), ..right };
    assert_eq!(corrupt_part(scan(&other_kind, &file.bytes)), "the file kind");
}

/// Damage below a slot is corruption under any boot; damage above it is a torn tail.
#[test]
fn below_a_slot_is_corruption() {
    for (damaged, verdict) in [(0, Err(BY_SLOT)), (1, Err(BY_SLOT)), (2, Ok(2))] {
        for boot in [BOOT, OTHER_BOOT, 0] {
            let mut file = Written::new();
            file.record(b"one").record(b"two").synced().record(b"three");
            let at = file.at(damaged);
            file.bytes[at + 24] ^= 1;
            match verdict {
                Err(what) => assert_eq!(corrupt_part(file.scan(boot)), what),
                Ok(records) => {
                    let found = file.scan(boot).expect("a torn tail");
                    assert_eq!(payloads(&found).len(), records);
                    assert_eq!(found.tail, Tail::Torn { ignored_bytes: 29, discarded_bytes: 0 });
                    assert_eq!(found.durable_to, found.end.bytes);
                }
            }
        }
    }
}

/// The larger of two slots counts. If it is damaged the other one counts; if both are, a scan sees only a
/// torn tail.
#[test]
fn both_slots_are_looked_at() {
    let mut file = Written::new();
    file.record(b"one").synced().record(b"two").synced();
    let (older, newer) = (PAGE_BYTES, 2 * PAGE_BYTES);
    let second = file.at(1);
    file.bytes[second] ^= 1;
    assert_eq!(corrupt_part(file.scan(OTHER_BOOT)), BY_SLOT);
    let mut without = file.bytes.clone();
    without[newer] ^= 1;
    let found = scan(&expected(BOOT, None), &without).expect("above the older slot");
    assert_eq!((payloads(&found), found.next_turn), (vec![b"one".to_vec()], 3));
    file.bytes[older] ^= 1;
    assert_eq!(corrupt_part(file.scan(OTHER_BOOT)), BY_SLOT);
    without[older] ^= 1;
    let found = scan(&expected(BOOT, None), &without).expect("no evidence is left");
    assert_eq!((payloads(&found), found.next_turn, found.same_boot), (vec![b"one".to_vec()], 0, false));
    assert_eq!(found.durable_to, RECORDS_FROM);
}

/// A slot with an impossible chain, boundary or turn is corruption, or no slot.
#[test]
fn a_slot_must_fit_the_records() {
    let mut file = Written::new();
    file.record(b"one").record(b"two");
    let with = |slot: Slot| {
        let mut bytes = file.bytes.clone();
        bytes[slot.offset() as usize..][..PAGE_BYTES].copy_from_slice(&slot.encode(UID));
        scan(&expected(BOOT, None), &bytes).map(|scan| scan.next_turn)
    };
    let right = Slot { durable: file.points[1], boot_id: BOOT, turn: 2 };
    assert_eq!(with(right).expect("sound"), 3);
    let durable = FramePoint { chain: 5, ..right.durable };
    assert_eq!(corrupt_part(with(Slot { durable, ..right })), "the chain of records");
    for bytes in [0, RECORDS_FROM + 8, FILE_BYTES as u64 + 8, u64::MAX] {
        let durable = FramePoint { bytes, ..right.durable };
        assert_eq!(corrupt_part(with(Slot { durable, ..right })), BY_SLOT, "{bytes}");
    }
    let page = right.encode(UID);
    assert!(Slot::decode(&page, UID, 0).is_ok());
    assert!(Slot::decode(&page, UID, 1).is_err());
    let mut dirty = page.clone();
    dirty[PAGE_BYTES - 1] = 1;
    assert_eq!(Slot::decode(&dirty, UID, 0).map_err(|bad| bad.what), Err("the rest of the slot"));
    assert_eq!(Slot::decode(&page[..44], UID, 0).map(|slot| slot.turn), Ok(2));
    assert_eq!(Slot::decode(&page[..39], UID, 0).map_err(|bad| bad.what), Err("the slot"));
    let checked = [&page[..32], &3u64.to_le_bytes()].concat();
    let context = Context { file_uid: UID, offset: PAGE_BYTES as u64, tag: SLOT_TAG };
    let wrong_place = [&checked[..], &context.checksum(&[&checked]).to_le_bytes()].concat();
    assert_eq!(Slot::decode(&wrong_place, UID, 0).map_err(|bad| bad.what), Err("the slot's turn"));
}

/// A good record behind the damage that was written after a sync proves the damage, under any boot and with
/// any slots.
#[test]
fn a_later_record_vouches_for_earlier_ones() {
    let mut file = Written::new();
    file.record(b"one").record(b"two").synced().record(b"three").record(b"four");
    for slot in [PAGE_BYTES, 2 * PAGE_BYTES] {
        file.bytes[slot..slot + PAGE_BYTES].fill(0);
    }
    let second = file.at(1);
    file.bytes[second + 30] ^= 1;
    assert_eq!(corrupt_part(file.scan(OTHER_BOOT)), BY_LATER);
    let third = file.at(2);
    file.bytes[third + 4] ^= 1;
    assert_eq!(corrupt_part(file.scan(OTHER_BOOT)), BY_LATER, "the fourth says so too");
    let fourth = file.at(3);
    file.bytes[fourth] ^= 1;
    let found = file.scan(OTHER_BOOT).expect("nobody says so");
    assert_eq!(payloads(&found), vec![b"one".to_vec()]);
}

/// A damaged record before a good one is a torn tail after a restart of the system, and corruption if only
/// the process died. A boot id of 0 never equals another.
#[test]
fn the_boot_decides_above_the_promises() {
    let mut file = Written::new();
    file.record(b"one").synced().record(b"two").record(b"three");
    let second = file.at(1);
    file.bytes[second + 24] ^= 1;
    assert_eq!(corrupt_part(file.scan(BOOT)), BEFORE_GOOD);
    for boot in [OTHER_BOOT, 0] {
        let found = file.scan(boot).expect("a torn tail");
        assert_eq!(payloads(&found), vec![b"one".to_vec()]);
        assert_eq!(found.tail, Tail::Torn { ignored_bytes: 61, discarded_bytes: 64 });
    }
    let (offset, page) = file.framer.clone().synced_before_failed_tail(file.points[1]);
    file.bytes[offset as usize..][..PAGE_BYTES].copy_from_slice(&page);
    for boot in [BOOT, 0] {
        assert_eq!(payloads(&file.scan(boot).expect("a torn tail")), vec![b"one".to_vec()], "boot {boot}");
    }
}

/// A sealed log ends exactly at the end that the manifest records: not earlier, and not with other records.
/// Damage behind that end does not matter.
#[test]
fn the_manifest_decides_where_a_sealed_log_ends() {
    let mut file = Written::new();
    file.record(b"one").record(b"two").record(b"three");
    let upto = |recorded_end, bytes: &[u8]| {
        scan(&expected(OTHER_BOOT, Some(recorded_end)), bytes).map(|scan| payloads(&scan).len())
    };
    assert_eq!(upto(file.points[3], &file.bytes).expect("sound"), 3);
    // A good record behind the recorded end: the log continues, so the manifest is stale.
    for end in [0, 2] {
        assert_eq!(corrupt_part(upto(file.points[end], &file.bytes)), BEHIND_PROMISE);
        let start = &file.bytes[..file.points[end].bytes as usize + RECORD_HEAD_BYTES];
        assert_eq!(upto(file.points[end], start).expect("zeros were behind it"), end);
    }
    let chain = FramePoint { chain: 1, ..file.points[2] };
    assert_eq!(corrupt_part(upto(chain, &file.bytes)), "the chain of records");
    for bytes in [RECORDS_FROM + 8, FILE_BYTES as u64, 0] {
        let recorded_end = FramePoint { bytes, ..file.points[3] };
        assert_eq!(corrupt_part(upto(recorded_end, &file.bytes)), BY_MANIFEST, "{bytes}");
    }
    let mut damaged = file.bytes.clone();
    damaged[file.at(2)] ^= 1;
    assert_eq!(corrupt_part(upto(file.points[3], &damaged)), BY_MANIFEST);
    assert_eq!(upto(file.points[2], &damaged).expect("what follows is not read"), 2);
    file.synced();
    assert_eq!(corrupt_part(upto(file.points[2], &file.bytes)), BY_SLOT);
}

/// The records of an earlier life of a recycled file are never good again.
#[test]
fn another_life_is_never_read() {
    let mut old = Written::new();
    old.record(b"old one").record(b"old two").record(b"old three");
    // The same bytes under another uid, as recycling leaves them.
    for at in [RECORDS_FROM as usize, old.at(1)] {
        let mut bytes = old.bytes.clone();
        let mut framer = Framer::new(FileHeader { uid: 5, ..header(FileKind::Log) }, FILE_BYTES as u64, BOOT);
        bytes[..RECORDS_FROM as usize].copy_from_slice(&framer.first_pages());
        if at > RECORDS_FROM as usize {
            let mut out = Vec::new();
            framer.frame(1, b"new one", &mut out);
            bytes[RECORDS_FROM as usize..at].copy_from_slice(&out);
        }
        let expected = Expected { header: *framer.header(), ..expected(BOOT, None) };
        let found = scan(&expected, &bytes).expect("stale bytes are legal");
        assert_eq!(found.end, framer.tail());
        assert!(matches!(found.tail, Tail::Torn { .. }));
    }
}

/// Records out of place, of another kind, without a payload, or with a `synced to` beyond their own offset
/// are not good.
#[test]
fn a_good_record_is_good_in_every_field() {
    let good = RecordHead { kind: RecordKind::Batch, sequence: 1, synced_to: RECORDS_FROM };
    let records = |edit: &dyn Fn(&mut Vec<u8>), head: RecordHead, at: u64| {
        let (mut file, mut out) = (Written::new(), Vec::new());
        encode_record(UID, at, head, b"payload..", &mut out);
        edit(&mut out);
        file.bytes[RECORDS_FROM as usize..][..out.len()].copy_from_slice(&out);
        file.scan(BOOT).map(|scan| payloads(&scan).len()).expect("a torn tail")
    };
    let resum = |out: &mut Vec<u8>| {
        let context = Context { file_uid: UID, offset: RECORDS_FROM, tag: 1 };
        let checksum = context.checksum(&[&out[4..]]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
    };
    assert_eq!(records(&|_| {}, good, RECORDS_FROM), 1);
    assert_eq!(records(&|_| {}, good, RECORDS_FROM + 8), 0);
    assert_eq!(records(&|_| {}, RecordHead { kind: RecordKind::Edit, ..good }, RECORDS_FROM), 0);
    for synced_to in [0, RECORDS_FROM - 8, RECORDS_FROM + 8, u64::MAX] {
        assert_eq!(records(&|_| {}, RecordHead { synced_to, ..good }, RECORDS_FROM), 0, "{synced_to}");
    }
    let padded = |out: &mut Vec<u8>| {
        out[24 + 9] = 1;
        resum(out);
    };
    assert_eq!(records(&padded, good, RECORDS_FROM), 0);
    let empty = |out: &mut Vec<u8>| {
        out[4..8].fill(0);
        out.truncate(24);
        resum(out);
    };
    assert_eq!(records(&empty, good, RECORDS_FROM), 0);
    let long = |out: &mut Vec<u8>| {
        out[4..8].fill(0xff);
        resum(out);
    };
    assert_eq!(records(&long, good, RECORDS_FROM), 0);
}

/// Every flipped bit of a small log gives an error, the same records, or the loss of only the last, unsynced
/// one.
#[test]
fn every_flip_is_detected_or_harmless() {
    let mut file = Written::new();
    file.record(b"one").synced().record(b"two").synced().record(b"three").record(b"four");
    let all = payloads(&file.scan(BOOT).expect("sound"));
    let (last, end) = (file.at(3), file.framer.tail().bytes as usize);
    let mut bytes = file.bytes.clone();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(found) = scan(&expected(BOOT, None), &bytes) {
            let in_last = (last..end).contains(&(bit / 8));
            let kept = if in_last { &all[..3] } else { &all[..] };
            assert_eq!(payloads(&found), kept, "bit {bit}");
            let harmless = bit / 8 >= last || (PAGE_BYTES..RECORDS_FROM as usize).contains(&(bit / 8));
            assert!(harmless, "bit {bit}");
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// A file is cut at any byte and filled with zeros, as after a power cut. Either the records that the slots
/// vouch for are there, or the cut is reported. A scan never returns a record that was not written.
#[test]
fn every_cut_is_detected_or_a_prefix() {
    let mut file = Written::new();
    file.record(b"one").synced().record(b"two").record(b"three");
    let all = payloads(&file.scan(OTHER_BOOT).expect("sound"));
    for cut in 0..FILE_BYTES {
        let mut bytes = file.bytes.clone();
        assert!(scan(&expected(OTHER_BOOT, None), &bytes[..cut]).is_err());
        bytes[cut..].fill(0);
        match scan(&expected(OTHER_BOOT, None), &bytes) {
            Ok(found) => {
                let kept = payloads(&found);
                assert!(all.starts_with(&kept), "cut {cut}");
                assert!(cut < RECORDS_FROM as usize || !kept.is_empty(), "cut {cut}");
                assert!(kept.is_empty() || cut + 8 > found.end.bytes as usize, "cut {cut}");
            }
            Err(_) => assert!(cut < file.at(1), "cut {cut}"),
        }
    }
}

/// Crafted bytes that look at every step like a record up to the end of the file do not take quadratic time.
/// A quadratic scan of this file of a few hundred kilobytes would sum tens of gigabytes.
#[test]
fn crafted_remains_cost_linear_time() {
    let length = RECORDS_FROM as usize + (512 << 10);
    let mut framer = Framer::new(header(FileKind::Log), length as u64, BOOT);
    let mut bytes = framer.first_pages();
    bytes.resize(length, 0);
    let mut at = RECORDS_FROM as usize;
    while at + 24 <= length {
        bytes[at + 4..at + 8].copy_from_slice(&((length - at - 24) as u32).to_le_bytes());
        bytes[at + 8] = 1;
        bytes[at + 16..at + 24].copy_from_slice(&RECORDS_FROM.to_le_bytes());
        at += 24;
    }
    let expected = Expected { bytes: length as u64, ..expected(BOOT, None) };
    let found = scan(&expected, &bytes).expect("a torn tail");
    assert_eq!(found.records().count(), 0);
}

/// In a manifest, a record that does not continue the chain is not the next edit, even if its checksum is
/// right.
#[test]
fn an_edit_continues_the_chain() {
    let mut framer = Framer::new(header(FileKind::Manifest), FILE_BYTES as u64, BOOT);
    let mut bytes = framer.first_pages();
    let first = framer.tail();
    framer.frame(1, &[&first.chain.to_le_bytes()[..], b"edit"].concat(), &mut bytes);
    let second = framer.tail();
    framer.frame(2, &[&first.chain.to_le_bytes()[..], b"edit"].concat(), &mut bytes);
    bytes.resize(FILE_BYTES, 0);
    for boot in [BOOT, OTHER_BOOT] {
        let expected = Expected { header: *framer.header(), ..expected(boot, None) };
        assert_eq!(scan(&expected, &bytes).map(|scan| scan.end).expect("one edit"), second);
    }
}

/// A framer refuses an empty payload, a payload without room, and a sync of bytes that were not framed.
#[test]
fn invalid_payloads_and_positions_panic() {
    let refused = |work: &mut dyn FnMut(&mut Framer)| {
        let mut framer = Framer::new(header(FileKind::Log), FILE_BYTES as u64, BOOT);
        let tried = std::panic::AssertUnwindSafe(|| work(&mut framer));
        std::panic::catch_unwind(tried).is_err()
    };
    assert!(!refused(&mut |framer| framer.frame(SEQUENCE_MAX, &[1; 488], &mut Vec::new())));
    assert!(refused(&mut |framer| framer.frame(SEQUENCE_MAX + 1, &[1; 488], &mut Vec::new())));
    assert!(refused(&mut |framer| framer.frame(1, &[1; 489], &mut Vec::new())));
    assert!(refused(&mut |framer| framer.frame(1, &[], &mut Vec::new())));
    let beyond = |framer: &Framer| FramePoint { bytes: framer.tail().bytes + 8, ..framer.tail() };
    assert!(refused(&mut |framer| _ = framer.synced(beyond(framer))));
    assert!(refused(&mut |framer| {
        framer.frame(1, b"one", &mut Vec::new());
        framer.synced(framer.tail());
        framer.witnessed(beyond(framer));
    }));
    for (bytes, is_refused) in [
        (RECORDS_FROM - 8, true),
        (RECORDS_FROM, false),
        (FRAMED_BYTES_MAX, false),
        (FRAMED_BYTES_MAX + 8, true),
    ] {
        assert_eq!(
            refused(&mut |_| _ = Framer::new(header(FileKind::Log), bytes, BOOT)),
            is_refused,
            "{bytes}"
        );
    }
}

/// The writer counts the bytes not yet durable and the room left, to the last byte.
#[test]
fn bytes_are_counted() {
    let mut file = Written::new();
    assert_eq!((file.framer.unsynced_bytes(), file.framer.room_bytes()), (0, 488));
    file.record(b"one");
    assert_eq!((file.framer.unsynced_bytes(), file.framer.room_bytes()), (32, 456));
    file.record(b"nine.....");
    assert_eq!((file.framer.unsynced_bytes(), file.framer.room_bytes()), (72, 416));
    file.synced();
    assert_eq!(file.framer.unsynced_bytes(), 0);
    assert_eq!((file.framer.bytes(), file.framer.header()), (FILE_BYTES as u64, &header(FileKind::Log)));
    file.record(&[1; 400]);
    assert_eq!((file.framer.tail().bytes, file.framer.room_bytes()), (FILE_BYTES as u64 - 16, 0));
}

/// `every_record` finds every record that is good by itself, also behind damage, between remains and at the
/// file's end, and no other.
#[test]
fn every_good_record_is_found() {
    let mut file = Written::new();
    file.record(b"one").record(b"two").record(b"three").record(&[7; 200]).record(&[8; 136]);
    assert_eq!(file.framer.tail().bytes as usize, FILE_BYTES - 32);
    let found = |bytes: &[u8]| -> Vec<(u64, Sequence)> {
        every_record(&header(FileKind::Log), bytes).iter().map(|one| (one.offset, one.sequence)).collect()
    };
    let all: Vec<(u64, Sequence)> =
        (0..5).map(|index| (file.points[index].bytes, index as u64 + 1)).collect();
    assert_eq!(found(&file.bytes), all);
    for damaged in 0..5 {
        let mut bytes = file.bytes.clone();
        bytes[file.at(damaged) + 24] ^= 1;
        let left: Vec<(u64, Sequence)> =
            all.iter().filter(|(_, sequence)| *sequence != damaged as u64 + 1).copied().collect();
        assert_eq!(found(&bytes), left);
        // Now damage its head too, with the record's length.
        bytes[file.at(damaged) + 4] = 0xff;
        assert_eq!(found(&bytes), left);
    }
    file.record(b"the end.");
    assert_eq!(file.framer.tail().bytes as usize, FILE_BYTES);
    assert_eq!(found(&file.bytes).len(), 6);
    assert_eq!(found(&file.bytes[..FILE_BYTES - 8]), all, "cut short");
    assert_eq!(found(&file.bytes[..100]), []);
    assert_eq!(found(&[]), []);
    assert!(every_record(&header(FileKind::Manifest), &file.bytes).is_empty(), "batches are no edits");
    assert!(every_record(&FileHeader { uid: 1, ..header(FileKind::Log) }, &file.bytes).is_empty());
}

/// An error of a scan names its position: the end of the good records, or the point of the wrong chain.
#[test]
fn refusals_name_their_place() {
    let mut file = Written::new();
    file.record(b"one").record(b"two").synced().record(b"three");
    let (second, third) = (file.at(1), file.at(2));
    let at = |bytes: &[u8], boot| match scan(&expected(boot, None), bytes) {
        Err(Error::Corrupt(at)) => (at.offset, at.expected, at.found),
        other => panic!("not corrupt: {other:?}"),
    };
    let mut bytes = file.bytes.clone();
    bytes[second + 24] ^= 1;
    let told = (second as u64, format!("good up to offset {third}"), format!("good up to {second}"));
    assert_eq!(at(&bytes, OTHER_BOOT), told);
    file.record(b"four");
    let mut bytes = file.bytes.clone();
    bytes[third + 24] ^= 1;
    let fourth = file.at(3);
    let told = (third as u64, format!("good up to offset {fourth}"), format!("good up to {third}"));
    assert_eq!(at(&bytes, BOOT), told);
    assert_eq!(
        at(&file.bytes[..FILE_BYTES - 8], BOOT),
        (FILE_BYTES as u64 - 8, FILE_BYTES.to_string(), (FILE_BYTES - 8).to_string())
    );
}
