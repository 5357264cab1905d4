//! The scan of a whole log or manifest: it finds the good records and their end, and decides whether that end
//! is damage.
//!
//! A recorded end is a position up to which the file is known durable. Recorded ends come from good slots,
//! the witness, the `synced to` of any good record (also of one behind a damaged record), and the end that
//! the manifest records for a sealed log. The rule (design, "Bytes"): every record below a recorded end must
//! be readable. Above the recorded ends, the system's boot decides. If only the process died since the file
//! was written, a damaged record before a good one is damage too: the kernel keeps all bytes written to it.
//! Otherwise the end is a torn tail, and the scan uses no byte behind it.

use crate::base::checksum::Context;
use crate::base::codec::ByteReader;
use crate::base::error::{Error, Result};
use crate::base::id::{FileName, Sequence};

use super::evidence::{RangeSums, zeros_at_end};
use super::{FRAMED_BYTES_MAX, FramePoint, RECORD_HEAD_BYTES, RECORDS_FROM, RecordKind, Slot};
use crate::format::header::FileHeader;
use crate::format::witness::Witness;

/// Facts known about a file before it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) file: FileName,
    pub(crate) header: FileHeader,
    /// Length of the file, from the record that names it.
    pub(crate) bytes: u64,
    /// The recorded end of a sealed log.
    pub(crate) recorded_end: Option<FramePoint>,
    /// The last-synced log position from STORE. It may be about another log.
    pub(crate) witness: Option<Witness>,
    /// Boot id of the running system; 0 if unknown.
    pub(crate) boot_id: u128,
}

impl Expected {
    /// Bytes that suffice to read a file with a recorded end: up to that end, and room for the head of one
    /// record behind it.
    pub(crate) fn recorded_bytes(&self) -> Option<u64> {
        self.recorded_end
            .map(|recorded_end| recorded_end.bytes.saturating_add(RECORD_HEAD_BYTES as u64).min(self.bytes))
    }

    /// Checks that a framed file can have this length. Call it before allocating memory for the file.
    pub(crate) fn check_length(&self) -> Result<()> {
        let possible = RECORDS_FROM..=FRAMED_BYTES_MAX;
        if possible.contains(&self.bytes) {
            return Ok(());
        }
        let expected = format_args!("{} to {}", possible.start(), possible.end()).to_string();
        Err(Error::corrupt(self.file, 0, "the recorded length", expected, self.bytes))
    }
}

/// The bytes behind the last good record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tail {
    /// Only zeros, or the records end at their recorded end.
    Clean,
    /// Bytes that the scan ignores: a torn write, or remains of a recycled log's earlier life.
    Torn {
        /// Distance from the tail to the last byte that is not zero.
        ignored_bytes: u64,
        /// Distance from the tail to the end of the last good record behind it; 0 if there is none. Remains
        /// of a torn record are not counted, as they look like remains of an earlier life.
        discarded_bytes: u64,
    },
}

/// A file that was read and is sound.
#[derive(Clone, Debug)]
pub(crate) struct Scan<'a> {
    bytes: &'a [u8],
    pub(crate) end: FramePoint,
    /// The records are known to be durable up to this offset, which is at most `end.bytes`.
    pub(crate) durable_to: u64,
    pub(crate) tail: Tail,
    /// Turn of the next slot.
    pub(crate) next_turn: u64,
    /// Whether the file was last written under the running system, so that only processes have died since.
    pub(crate) same_boot: bool,
}

/// One good record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record<'a> {
    /// Offset of the record in its file.
    pub(crate) offset: u64,
    pub(crate) sequence: Sequence,
    pub(crate) payload: &'a [u8],
}

impl<'a> Scan<'a> {
    /// The good records, in order. Computes no checksum again.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let bytes = self.bytes.get(..self.end.bytes as usize).expect("the scan ends in the file");
        let mut at = RECORDS_FROM as usize;
        std::iter::from_fn(move || {
            let shape = Shape::read(bytes, at)?;
            let offset = at as u64;
            at = shape.end;
            Some(Record { offset, sequence: shape.sequence, payload: shape.payload })
        })
    }
}

/// A record's head and extent, with its checksum unchecked.
struct Shape<'a> {
    checksum: u32,
    kind: u8,
    sequence: Sequence,
    synced_to: u64,
    payload: &'a [u8],
    /// Offset of the next record.
    end: usize,
}

impl<'a> Shape<'a> {
    /// The record at `at`, if the head and the length are possible ones. Cheap.
    fn read(bytes: &'a [u8], at: usize) -> Option<Shape<'a>> {
        let mut reader = ByteReader::new(bytes.get(at..)?);
        let checksum = reader.u32("a record").ok()?;
        let length = reader.u32("a record").ok()? as usize;
        let sequence_and_kind = reader.u64("a record").ok()?;
        let synced_to = reader.u64("a record").ok()?;
        let plausible = length > 0
            && synced_to.is_multiple_of(8)
            && (RECORDS_FROM..=at as u64).contains(&synced_to)
            && length <= reader.remaining();
        if !plausible {
            return None;
        }
        let payload = reader.bytes(length, "a record").ok()?;
        reader.zeros(length.next_multiple_of(8) - length, "a record").ok()?;
        let end = at + reader.at();
        let (sequence, kind) = (sequence_and_kind >> 8, sequence_and_kind as u8);
        Some(Shape { checksum, kind, sequence, synced_to, payload, end })
    }
}

/// A point that the records must reach, and the name of its source.
struct RecordedEnd {
    point: FramePoint,
    what: &'static str,
    met: bool,
}

struct Scanner<'a> {
    expected: &'a Expected,
    bytes: &'a [u8],
    kind: RecordKind,
    recorded_ends: Vec<RecordedEnd>,
}

/// Scans a whole file.
///
/// # Errors
/// `Corrupt` by the rule in the module's head, for a file with another identity, and for another length than
/// expected; `Unsupported` as in [`FileHeader::decode`].
///
/// Cost: linear in the file's length. Allocates at most 1/256 of it.
pub(crate) fn scan<'a>(expected: &Expected, bytes: &'a [u8]) -> Result<Scan<'a>> {
    let file = expected.file;
    expected.check_length()?;
    let is_recorded_part = expected.recorded_bytes() == Some(bytes.len() as u64);
    if bytes.len() as u64 != expected.bytes && !is_recorded_part {
        return Err(Error::corrupt(
            file,
            bytes.len() as u64,
            "the file's length",
            expected.bytes,
            bytes.len(),
        ));
    }
    FileHeader::decode(file, bytes, expected.header.kind)?.check(file, &expected.header)?;
    let slots: Vec<Slot> = Slot::both(bytes, expected.header.uid).into_iter().flatten().collect();
    let witness = expected.witness.filter(|witness| witness.uid == expected.header.uid);
    let newest_slot = slots.iter().max_by_key(|slot| (slot.durable.bytes, slot.turn));
    let said_by_slot = newest_slot.map(|slot| (slot.durable.bytes, slot.boot_id));
    let said_by_witness = witness.map(|witness| (witness.durable.bytes, witness.boot_id));
    // On a tie the slot wins, because its boot id may say that remains follow.
    let newest = said_by_witness.into_iter().chain(said_by_slot).max_by_key(|(bytes, _)| *bytes);
    let same_boot = newest.is_some_and(|(_, boot_id)| boot_id == expected.boot_id && boot_id != 0);
    let next_turn = slots.iter().map(|slot| slot.turn.wrapping_add(1)).max().unwrap_or(0);

    let recorded_end = |point, what| RecordedEnd { point, what, met: false };
    let by_slots = slots.iter().map(|slot| recorded_end(slot.durable, "the records that a slot vouches for"));
    let by_witness =
        witness.map(|witness| recorded_end(witness.durable, "the records that the witness vouches for"));
    let by_manifest =
        expected.recorded_end.map(|point| recorded_end(point, "the records that the manifest vouches for"));
    let recorded_ends = by_slots.chain(by_witness).chain(by_manifest).collect();
    let kind = RecordKind::in_file(expected.header.kind);
    let mut scanner = Scanner { expected, bytes, kind, recorded_ends };

    let (end, synced_to) = scanner.walk()?;
    if let Some(unmet) = scanner.recorded_ends.iter().find(|recorded_end| !recorded_end.met) {
        return Err(scanner.short(end, unmet.what, unmet.point.bytes));
    }
    if expected.recorded_end.is_some() {
        // A slot without a boot id says that records follow which a full disk refused.
        let may_be_refused = newest.is_some_and(|(_, boot_id)| boot_id == 0);
        if !may_be_refused && let Some(record) = scanner.good_record(end) {
            // The log continues behind its recorded end, so the manifest is stale.
            return Err(scanner.short(end, "the end that the manifest vouches for", record.end as u64));
        }
        let durable_to = end.bytes;
        return Ok(Scan { bytes, end, durable_to, tail: Tail::Clean, next_turn, same_boot });
    }
    let tail = scanner.judge_rest(end, same_boot)?;
    let durable_to = newest.map_or(RECORDS_FROM, |(bytes, _)| bytes).max(synced_to);
    Ok(Scan { bytes, end, durable_to, tail, next_turn, same_boot })
}

/// Every record that is good by itself, also behind damage. For inspection of a file only; recovery uses
/// [`scan`].
///
/// Cost: linear in the file's length. Allocates at most 1/256 of it, and the list.
pub(crate) fn every_record<'a>(header: &FileHeader, bytes: &'a [u8]) -> Vec<Record<'a>> {
    let from = RECORDS_FROM as usize;
    let kind = RecordKind::in_file(header.kind);
    let rest = bytes.get(from..).unwrap_or_default();
    let used_bytes = rest.len() - zeros_at_end(rest);
    let sums = RangeSums::new(rest);
    let mut records = Vec::new();
    let mut at = from;
    while at < from + used_bytes {
        let context = Context { file_uid: header.uid, offset: at as u64, tag: kind as u8 };
        let good = Shape::read(bytes, at).filter(|record| {
            record.kind == kind as u8
                && sums.checksum(context, at + 4 - from, record.end - from) == record.checksum
        });
        let Some(Shape { sequence, payload, end, .. }) = good else {
            at += 8;
            continue;
        };
        records.push(Record { offset: at as u64, sequence, payload });
        at = end;
    }
    records
}

impl<'a> Scanner<'a> {
    /// Visits records while they are good, up to the recorded end if there is one. Returns the end and the
    /// largest `synced to` of these records.
    fn walk(&mut self) -> Result<(FramePoint, u64)> {
        let mut point = FramePoint::start(self.expected.header.uid);
        let mut synced_to = RECORDS_FROM;
        loop {
            for recorded_end in
                self.recorded_ends.iter_mut().filter(|recorded_end| recorded_end.point.bytes == point.bytes)
            {
                if recorded_end.point.chain != point.chain {
                    let (expected, found) = (recorded_end.point.chain, point.chain);
                    return Err(Error::corrupt(
                        self.expected.file,
                        point.bytes,
                        "the chain of records",
                        format_args!("{expected:016x}"),
                        format_args!("{found:016x}"),
                    ));
                }
                recorded_end.met = true;
            }
            if self.expected.recorded_end.is_some_and(|recorded_end| recorded_end.bytes <= point.bytes) {
                return Ok((point, synced_to));
            }
            let Some(record) = self.good_record(point) else {
                return Ok((point, synced_to));
            };
            synced_to = synced_to.max(record.synced_to);
            point = point.after(record.end as u64 - point.bytes, record.checksum);
        }
    }

    fn context(&self, at: usize) -> Context {
        Context { file_uid: self.expected.header.uid, offset: at as u64, tag: self.kind as u8 }
    }

    fn good_record(&self, point: FramePoint) -> Option<Shape<'a>> {
        let at = point.bytes as usize;
        let record = Shape::read(self.bytes, at).filter(|record| record.kind == self.kind as u8)?;
        let checked = self.bytes.get(at + 4..record.end)?;
        let is_next = match self.kind {
            RecordKind::Batch => true,
            RecordKind::Edit => ByteReader::new(record.payload).u64("the chain") == Ok(point.chain),
        };
        (is_next && self.context(at).checksum(&[checked]) == record.checksum).then_some(record)
    }

    /// Classifies the bytes behind the last good record.
    fn judge_rest(&self, end: FramePoint, same_boot: bool) -> Result<Tail> {
        let from = end.bytes as usize;
        let rest = self.bytes.get(from..).unwrap_or_default();
        let rest_bytes = rest.len() - zeros_at_end(rest);
        let mut discarded = 0;
        if rest_bytes == 0 {
            return Ok(Tail::Clean);
        }
        let sums = RangeSums::new(rest);
        let mut at = from + 8;
        while at < from + rest_bytes {
            let good = Shape::read(self.bytes, at).filter(|record| {
                record.kind == self.kind as u8
                    && sums.checksum(self.context(at), at + 4 - from, record.end - from) == record.checksum
            });
            let Some(record) = good else {
                at += 8;
                continue;
            };
            if record.synced_to > end.bytes {
                return Err(self.short(end, "the records that a later record vouches for", record.synced_to));
            }
            if same_boot {
                return Err(self.short(end, "the records before a good one", at as u64));
            }
            at = record.end;
            discarded = at - from;
        }
        Ok(Tail::Torn { ignored_bytes: rest_bytes as u64, discarded_bytes: discarded as u64 })
    }

    fn short(&self, end: FramePoint, what: &'static str, expected_to: u64) -> Error {
        let expected = format_args!("good up to offset {expected_to}").to_string();
        Error::corrupt(
            self.expected.file,
            end.bytes,
            what,
            expected,
            format_args!("good up to {}", end.bytes),
        )
    }
}
