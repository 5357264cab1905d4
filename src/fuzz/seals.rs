//! Recomputes the checksums of changed files, so that decoders read the bytes behind the checksums.

use std::collections::BTreeMap;

use crate::base::checksum::{self, Context};
use crate::base::id::{FileKind, FileName};
use crate::base::step::BlockKind;
use crate::format::frames::{self, FramePoint, RECORD_HEAD_BYTES, RECORDS_FROM, RecordKind};
use crate::format::header::{self, PAGE_BYTES};
use crate::format::manifest::{Changes, ManifestChange, encode_edit};
use crate::format::store;
use crate::format::table::footer::{Footer, Span, decode_tail};
use crate::format::table::ranges::claimed_bytes;
use crate::format::table::{
    CHECKSUM_BYTES, FOOTER_TAG, RANGES_TAG, TAIL_TAG, TOP_TAG, UNIT_BYTES, data, seal as seal_extent,
};
use crate::format::witness::{WITNESS_CHECKED_BYTES, WITNESS_OFFSET, WITNESS_TAG};

/// Recomputes the checksums in all files of a store, and the checksums of tables in the manifest.
pub(super) fn seal(files: &mut BTreeMap<String, Vec<u8>>) {
    let mut checksums = BTreeMap::new();
    for (name, bytes) in files.iter_mut().filter(|(name, _)| name.starts_with("table")) {
        let checksum = seal_file(bytes, &BTreeMap::new());
        let number = FileName::parse(name, 0).map(|name| name.number);
        checksums.extend(number.zip(checksum));
    }
    for (_, bytes) in files.iter_mut().filter(|(name, _)| !name.starts_with("table")) {
        seal_file(bytes, &checksums);
    }
}

/// Seals one file by the kind in its header. Returns the checksum of a table.
pub(super) fn seal_file(bytes: &mut [u8], tables: &BTreeMap<u64, u32>) -> Option<u32> {
    let page = bytes.get_mut(..PAGE_BYTES)?;
    page[..8].copy_from_slice(&header::MAGIC);
    let (kind, uid) = (page[8], u64::from_le_bytes(*page[40..].first_chunk()?));
    let checksum =
        Context { file_uid: uid, offset: 0, tag: kind }.checksum(&[&page[..header::CHECKED_BYTES]]);
    page[header::CHECKED_BYTES..][..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
    if kind == FileKind::Store as u8 {
        for offset in store::SLOT_OFFSETS {
            seal_slot(bytes, uid, (offset, store::SLOT_CHECKED_BYTES, store::SLOT_TAG));
        }
        let log = bytes.get(WITNESS_OFFSET as usize..).and_then(<[u8]>::first_chunk);
        let log = log.map(|log| u64::from_le_bytes(*log)).filter(|log| *log != 0);
        if let Some(log) = log {
            seal_slot(bytes, log, (WITNESS_OFFSET, WITNESS_CHECKED_BYTES, WITNESS_TAG));
        }
    } else if kind == FileKind::Log as u8 {
        seal_records(bytes, uid, RecordKind::Batch, tables);
    } else if kind == FileKind::Manifest as u8 {
        seal_records(bytes, uid, RecordKind::Edit, tables);
    } else if kind == FileKind::Table as u8 {
        return seal_table(bytes, uid);
    }
    None
}

fn seal_slot(bytes: &mut [u8], uid: u64, (offset, checked, tag): (u64, usize, u8)) {
    let Some(slot) =
        bytes.get_mut(offset as usize..).and_then(|slot| slot.get_mut(..checked + CHECKSUM_BYTES))
    else {
        return;
    };
    let checksum = Context { file_uid: uid, offset, tag }.checksum(&[&slot[..checked]]);
    slot[checked..].copy_from_slice(&checksum.to_le_bytes());
}

/// Visits the records by their lengths. A slot for the end of a record gets the chain at that end.
fn seal_records(bytes: &mut [u8], uid: u64, kind: RecordKind, tables: &BTreeMap<u64, u32>) {
    let mut point = FramePoint::start(uid);
    let mut points = vec![point];
    loop {
        let at = point.bytes as usize;
        let Some(length) = bytes.get(at + 4..).and_then(<[u8]>::first_chunk) else { break };
        let length = u32::from_le_bytes(*length) as usize;
        let end = at.saturating_add(RECORD_HEAD_BYTES).saturating_add(length.next_multiple_of(8));
        let Some(record) = bytes.get_mut(at..end).filter(|_| length > 0) else { break };
        let payload = &mut record[RECORD_HEAD_BYTES..RECORD_HEAD_BYTES + length];
        if kind == RecordKind::Edit && length >= 8 {
            payload[..8].copy_from_slice(&point.chain.to_le_bytes());
            name_tables(payload, tables);
        }
        let context = Context { file_uid: uid, offset: point.bytes, tag: kind as u8 };
        let checksum = context.checksum(&[&record[4..]]);
        record[..4].copy_from_slice(&checksum.to_le_bytes());
        point = point.after((end - at) as u64, checksum);
        points.push(point);
    }
    for offset in frames::SLOT_OFFSETS {
        let slot = bytes.get_mut(offset as usize..).and_then(<[u8]>::first_chunk_mut::<16>);
        let Some((durable, chain)) = slot.and_then(|slot| slot.split_first_chunk_mut::<8>()) else {
            continue;
        };
        let known = points.iter().find(|point| point.bytes == u64::from_le_bytes(*durable));
        if let Some(known) = known.filter(|known| known.bytes > RECORDS_FROM) {
            chain.copy_from_slice(&known.chain.to_le_bytes());
        }
        seal_slot(bytes, uid, (offset, frames::SLOT_CHECKED_BYTES, frames::SLOT_TAG));
    }
}

/// Puts the new checksums of tables into an edit, if its length stays the same.
fn name_tables(payload: &mut [u8], tables: &BTreeMap<u64, u32>) {
    let file = FileName::new(FileKind::Manifest, 1);
    let Ok(changes) = Changes::new(file, 0, payload) else { return };
    let Ok(mut changes) = changes.collect::<Result<Vec<_>, _>>() else { return };
    for change in &mut changes {
        if let ManifestChange::Table { number, checksum, .. } = change {
            *checksum = tables.get(number).copied().unwrap_or(*checksum);
        }
    }
    let (chain, _) = payload.split_first_chunk().expect("an edit has a chain");
    let again = encode_edit(u64::from_le_bytes(*chain), &changes);
    if again.len() == payload.len() {
        payload.copy_from_slice(&again);
    }
}

fn seal_table(bytes: &mut [u8], uid: u64) -> Option<u32> {
    let tail_at = bytes.len().checked_sub(PAGE_BYTES)?;
    let seal_span = |bytes: &mut [u8], span: Span, tag: u8| {
        let start = usize::try_from(span.offset).ok()?;
        let extent = bytes.get_mut(start..)?.get_mut(..usize::try_from(span.bytes).ok()?)?;
        let is_whole = extent.len() > CHECKSUM_BYTES;
        is_whole.then(|| seal_extent(extent, Context { file_uid: uid, offset: span.offset, tag }))
    };
    seal_span(bytes, Span { offset: tail_at as u64, bytes: PAGE_BYTES as u64 }, TAIL_TAG)?;
    let span = decode_tail(&bytes[tail_at..], tail_at as u64).ok()?;
    let block = bytes.get(span.offset as usize..tail_at)?;
    let mut sums = 0;
    if let Ok(footer) = Footer::decode(block, span.offset) {
        for part in footer.slices.iter().flat_map(parts) {
            let (mut at, tag) = (part.0.offset, part.2);
            while at < part.0.end() {
                let rest = bytes.get(at as usize..part.0.end() as usize)?;
                let length = part.1.map_or_else(|| claimed(rest, tag), |length| length as usize);
                let length = length.clamp(UNIT_BYTES, rest.len().max(UNIT_BYTES)) as u64;
                let checksum = seal_span(bytes, Span { offset: at, bytes: length }, tag)?;
                sums = checksum::append(sums, &checksum.to_le_bytes());
                at += length;
            }
        }
    }
    bytes.get_mut(span.offset as usize..)?.get_mut(16..20)?.copy_from_slice(&sums.to_le_bytes());
    let checksum = seal_span(bytes, span, FOOTER_TAG)?;
    Some(checksum::append(sums, &checksum.to_le_bytes()))
}

/// Parts of a slice: the span, the length of its blocks if the footer gives one, and the tag.
fn parts(slice: &crate::format::table::footer::SliceEntry) -> [(Span, Option<u64>, u8); 5] {
    [
        (slice.data, None, BlockKind::Data as u8),
        (slice.filter_span(), Some(u64::from(slice.filter.page_bytes)), BlockKind::Filter as u8),
        (slice.fence_span(), Some(u64::from(slice.fence_page_bytes)), BlockKind::Fence as u8),
        (slice.top, Some(slice.top.bytes), TOP_TAG),
        (slice.ranges, None, RANGES_TAG),
    ]
}

/// The length of the first block by its own header; a unit if that length is impossible.
fn claimed(rest: &[u8], tag: u8) -> usize {
    let claimed = if tag == RANGES_TAG { claimed_bytes(rest).ok() } else { data::extent_claimed(rest) };
    claimed.filter(|length| *length <= rest.len()).unwrap_or(UNIT_BYTES)
}
