//! The framing that logs and manifests share: a file of fixed length with two slots and a chain of records.
//!
//! This module does not interpret payloads (`log` and `manifest` do), and it reads and writes no file. `wal`
//! and `levels::manifest` write through a [`Framer`] and pass whole files to [`scan`] to read them. Pure.
//!
//! ```text
//! offset size  name: meaning (little-endian)
//! 0      4096  header page (kind LOG or MANIFEST)
//! 4096   4096  slot 0
//! 8192   4096  slot 1
//! 12288  ..    records, back to back, to the file's length
//!
//! slot: offset size type  name: meaning
//! 0      8    u64   durable to: offset up to which the file is known durable
//! 8      8    u64   chain: of the records up to there
//! 16     16   u128  boot id: of the system that wrote the slot; 0 if unknown, or if refused records
//!                     follow
//! 32     8    u64   turn: its lowest bit is the slot's index
//! 40     4    u32   checksum: of bytes 0..40 under (uid, offset of the slot, SLOT_TAG)
//! 44     4052       reserved, zero
//!
//! record, 8-byte aligned: offset size type name: meaning
//! 0      4    u32   checksum: of all that follows, padding too, under (uid, offset of the record, kind)
//! 4      4    u32   length: of the payload; not 0
//! 8      8    u64   sequence << 8 | kind: kind 1 a batch (in a log), 2 an edit (in a manifest)
//! 16     8    u64   synced to: offset up to which the file was known durable when the record was written
//! 24     ..   bytes payload, then zeros to a multiple of 8
//! ```
//! Chain: chain_0 = uid; chain_n = XXH3-64 of (chain_{n-1}, checksum of record n).
//!
//! Invariants: 1. a slot is written only after the sync that makes its content true; in a log, only one slot
//! is written for the records that end in one page, and later syncs of that page go to the witness in STORE;
//! slots are written in turn, so at most one is torn; 2. `synced to` is at most the record's own offset; 3.
//! the bytes behind the last record are zeros, remains of a torn write, or, in a recycled log, records of an
//! earlier life under another uid.

mod evidence;
mod scan;
#[cfg(test)]
mod tests;

use crate::base::checksum::Context;
use crate::base::codec::{ByteReader, Malformed};
use crate::base::id::{FileKind, SEQUENCE_MAX, Sequence};

use super::header::{FileHeader, PAGE_BYTES};
use super::witness::Witness;

pub(crate) use scan::{Expected, Record, Scan, Tail, every_record, scan};

/// Offset of the first record.
pub(crate) const RECORDS_FROM: u64 = 3 * PAGE_BYTES as u64;
/// Bytes of a record before its payload.
pub(crate) const RECORD_HEAD_BYTES: usize = 24;
/// Longest log or manifest, in bytes. It bounds the allocation for reading one.
pub(crate) const FRAMED_BYTES_MAX: u64 = 1 << 30;

pub(crate) const SLOT_OFFSETS: [u64; 2] = [PAGE_BYTES as u64, 2 * PAGE_BYTES as u64];
pub(crate) const SLOT_TAG: u8 = 0xf1;
/// Bytes of a slot that its checksum covers. The checksum follows them.
pub(crate) const SLOT_CHECKED_BYTES: usize = 40;

/// The kind of a record, which is the tag of its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum RecordKind {
    Batch = 1,
    Edit = 2,
}

impl RecordKind {
    /// The one kind of record that a file of `kind` holds.
    fn in_file(kind: FileKind) -> RecordKind {
        if kind == FileKind::Manifest { RecordKind::Edit } else { RecordKind::Batch }
    }
}

/// A boundary between records: its offset in the file, and the chain of all records before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FramePoint {
    pub(crate) bytes: u64,
    pub(crate) chain: u64,
}

impl FramePoint {
    /// The point before the first record.
    pub(crate) fn start(uid: u64) -> FramePoint {
        FramePoint { bytes: RECORDS_FROM, chain: uid }
    }

    pub(crate) fn after(self, record_bytes: u64, checksum: u32) -> FramePoint {
        let mut link = [0; 12];
        link[..8].copy_from_slice(&self.chain.to_le_bytes());
        link[8..].copy_from_slice(&checksum.to_le_bytes());
        FramePoint { bytes: self.bytes + record_bytes, chain: xxhash_rust::xxh3::xxh3_64(&link) }
    }
}

/// Bytes that a record with a payload of `payload_bytes` takes.
pub(crate) fn record_bytes(payload_bytes: usize) -> usize {
    RECORD_HEAD_BYTES + payload_bytes.next_multiple_of(8)
}

/// The fields of a record beside its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHead {
    pub(crate) kind: RecordKind,
    /// The first sequence number of a batch, or the number of an edit.
    pub(crate) sequence: Sequence,
    pub(crate) synced_to: u64,
}

/// Appends the record for offset `at` of the file with `uid`, and returns its checksum.
pub(crate) fn encode_record(uid: u64, at: u64, head: RecordHead, payload: &[u8], out: &mut Vec<u8>) -> u32 {
    assert!(!payload.is_empty() && head.sequence <= SEQUENCE_MAX, "a record says something, in 56 bits");
    let length = u32::try_from(payload.len()).expect("a payload is shorter than its file");
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(head.sequence << 8 | head.kind as u64).to_le_bytes());
    out.extend_from_slice(&head.synced_to.to_le_bytes());
    out.extend_from_slice(payload);
    out.resize(start + record_bytes(payload.len()), 0);
    let context = Context { file_uid: uid, offset: at, tag: head.kind as u8 };
    let checksum = context.checksum(&[&out[start + 4..]]);
    out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// A slot: the position up to which the file is known durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) durable: FramePoint,
    pub(crate) boot_id: u128,
    pub(crate) turn: u64,
}

impl Slot {
    fn index_of(turn: u64) -> usize {
        (turn & 1) as usize
    }

    /// Offset of the page of this slot.
    pub(crate) fn offset(&self) -> u64 {
        SLOT_OFFSETS[Slot::index_of(self.turn)]
    }

    /// Decodes both slots of a file.
    pub(crate) fn both(bytes: &[u8], uid: u64) -> [Result<Slot, Malformed>; 2] {
        [0, 1].map(|index| {
            let page = bytes.chunks_exact(PAGE_BYTES).nth(index + 1).unwrap_or_default();
            Slot::decode(page, uid, index)
        })
    }

    /// The slot's page.
    pub(crate) fn encode(&self, uid: u64) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE_BYTES);
        page.extend_from_slice(&self.durable.bytes.to_le_bytes());
        page.extend_from_slice(&self.durable.chain.to_le_bytes());
        page.extend_from_slice(&self.boot_id.to_le_bytes());
        page.extend_from_slice(&self.turn.to_le_bytes());
        let context = Context { file_uid: uid, offset: self.offset(), tag: SLOT_TAG };
        let checksum = context.checksum(&[&page]);
        page.extend_from_slice(&checksum.to_le_bytes());
        page.resize(PAGE_BYTES, 0);
        page
    }

    fn decode(page: &[u8], uid: u64, index: usize) -> Result<Slot, Malformed> {
        let checked = ByteReader::new(page).bytes(SLOT_CHECKED_BYTES, "the slot")?;
        let mut reader = ByteReader::new(page);
        let bytes = reader.u64("the slot's durable length")?;
        let chain = reader.u64("the slot's chain")?;
        let boot_id = reader.u128("the slot's boot id")?;
        let turn = reader.u64("the slot's turn")?;
        let context = Context { file_uid: uid, offset: SLOT_OFFSETS[index], tag: SLOT_TAG };
        let expected = context.checksum(&[checked]);
        let before = reader.clone();
        let found = reader.u32("the slot's checksum")?;
        if expected != found {
            return Err(before.malformed("the slot's checksum", expected.into(), found.into()));
        }
        reader.zeros(reader.remaining(), "the rest of the slot")?;
        if Slot::index_of(turn) != index {
            return Err(Malformed { at: 32, what: "the slot's turn", expected: index as u64, found: turn });
        }
        Ok(Slot { durable: FramePoint { bytes, chain }, boot_id, turn })
    }
}

/// The write side of one file: the offset of the next record, and its fields. Does no I/O.
#[derive(Clone, Debug)]
pub(crate) struct Framer {
    header: FileHeader,
    bytes: u64,
    boot_id: u128,
    tail: FramePoint,
    synced_to: u64,
    next_turn: u64,
    /// Durable offset in the newest slot that this writer has returned.
    slot_to: u64,
}

impl Framer {
    /// A framer for a new file of `bytes` bytes.
    pub(crate) fn new(header: FileHeader, bytes: u64, boot_id: u128) -> Framer {
        assert!(
            (RECORDS_FROM..=FRAMED_BYTES_MAX).contains(&bytes),
            "a framed file holds its slots and is bounded"
        );
        let start = FramePoint::start(header.uid);
        let (synced_to, slot_to) = (start.bytes, start.bytes);
        Framer { header, bytes, boot_id, tail: start, synced_to, next_turn: 0, slot_to }
    }

    /// A framer that continues behind the last record of a scan.
    pub(crate) fn resume(header: FileHeader, bytes: u64, boot_id: u128, scan: &Scan<'_>) -> Framer {
        let (synced_to, next_turn) = (scan.durable_to, scan.next_turn);
        Framer { header, bytes, boot_id, tail: scan.end, synced_to, next_turn, slot_to: RECORDS_FROM }
    }

    /// The first pages of a new file: the header and both slots, which say that the file is durable up to the
    /// tail. The caller syncs these pages, and all records before the tail, before another file names this
    /// one.
    pub(crate) fn first_pages(&mut self) -> Vec<u8> {
        let mut pages = self.header.encode();
        for _ in 0..2 {
            pages.extend(self.synced(self.tail).1);
        }
        pages
    }

    /// Length of the file, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn header(&self) -> &FileHeader {
        &self.header
    }

    /// The position of the next record.
    pub(crate) fn tail(&self) -> FramePoint {
        self.tail
    }

    /// Bytes framed but not yet known durable.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.tail.bytes - self.synced_to
    }

    /// The longest payload that still fits.
    pub(crate) fn room_bytes(&self) -> usize {
        let rest = (self.bytes - self.tail.bytes) as usize;
        rest.saturating_sub(RECORD_HEAD_BYTES) & !7
    }

    /// Appends one record to `out` and advances the tail. The caller writes the record at the tail from
    /// before the call.
    ///
    /// # Panics
    /// If the payload is empty or there is no room.
    pub(crate) fn frame(&mut self, sequence: Sequence, payload: &[u8], out: &mut Vec<u8>) {
        assert!(payload.len() <= self.room_bytes(), "the owner asked for room first");
        let kind = RecordKind::in_file(self.header.kind);
        let head = RecordHead { kind, sequence, synced_to: self.synced_to };
        let checksum = encode_record(self.header.uid, self.tail.bytes, head, payload, out);
        self.tail = self.tail.after(record_bytes(payload.len()) as u64, checksum);
    }

    /// Notes that a sync has made everything up to `up_to` durable. Returns the offset and the bytes of the
    /// slot page for this position; the caller does not wait for its write. Later records carry the position
    /// too.
    pub(crate) fn synced(&mut self, up_to: FramePoint) -> (u64, Vec<u8>) {
        self.synced_under(up_to, self.boot_id)
    }

    /// Like [`Framer::synced`], for a file with remains of a torn write behind its tail. The slot names no
    /// boot, so that a scan never takes those remains for later damage.
    pub(crate) fn synced_before_failed_tail(&mut self, up_to: FramePoint) -> (u64, Vec<u8>) {
        self.synced_under(up_to, 0)
    }

    /// Like [`Framer::synced`], for a log, with the witness in STORE instead of a slot. Returns `None`, and
    /// notes nothing, if the newest slot is for a record that ends in another page: the caller then writes a
    /// slot. So every synced page has a slot, durable with the next sync, unless a full disk refused the
    /// write.
    pub(crate) fn witnessed(&mut self, up_to: FramePoint) -> Option<Vec<u8>> {
        let page_of = |end: u64| (end - 1) / PAGE_BYTES as u64;
        if page_of(up_to.bytes) != page_of(self.slot_to) {
            return None;
        }
        self.note(up_to);
        Some(Witness { uid: self.header.uid, durable: up_to, boot_id: self.boot_id }.encode())
    }

    fn note(&mut self, up_to: FramePoint) {
        let possible = self.synced_to..=self.tail.bytes;
        assert!(possible.contains(&up_to.bytes), "only framed bytes are synced, and syncs end in order");
        self.synced_to = up_to.bytes;
    }

    fn synced_under(&mut self, up_to: FramePoint, boot_id: u128) -> (u64, Vec<u8>) {
        self.note(up_to);
        self.slot_to = up_to.bytes;
        let slot = Slot { durable: up_to, boot_id, turn: self.next_turn };
        self.next_turn = self.next_turn.wrapping_add(1);
        (slot.offset(), slot.encode(self.header.uid))
    }
}
