//! Entry points to the decoders, for fuzzers and the replay of their corpus: one function for each decoder,
//! which takes bytes and returns nothing. Hidden, with the feature `fuzz` only, and not part of the public
//! API.
//!
//! This module decodes nothing itself; of the format it knows only the offsets of checksums ([`seal`]). A
//! function here panics if the decoder panics, if decoded values change by encoding and decoding, or if a
//! lookup contradicts a linear walk. Pure.
//!
//! Logs, manifests and STORE are passed whole or in a short form: only the bytes of their slots and records.
//! A short form gets a valid header.

mod seals;

use crate::base::checksum::Context;
use crate::base::hash::HashSecret;
use crate::base::id::{FileKind, FileName, ItemKind};
use crate::base::step::BlockKind;
use crate::format::frames::{Expected, RECORDS_FROM, SLOT_CHECKED_BYTES, every_record, scan};
use crate::format::header::{FileHeader, PAGE_BYTES};
use crate::format::log::{Items, put_item, put_partition};
use crate::format::manifest::{Changes, ManifestState, encode_edit};
use crate::format::table::data_build::DataBuilder;
use crate::format::table::filter::column::{COLUMN_RUNS_MAX, ColumnPage, ColumnShape};
use crate::format::table::filter::{FilterKind, FilterShape};
use crate::format::table::footer::{Footer, decode_tail, encode_tail};
use crate::format::table::index::IndexPage;
use crate::format::table::ranges::{Ranges, claimed_bytes};
use crate::format::table::sketch::{Sketch, Sketcher};
use crate::format::table::top::Top;
use crate::format::table::{
    CHECKSUM_BYTES, DATA_BLOCK_BYTES_MAX, UNIT_BYTES, compressed, data, extent_bytes, filter,
};
use crate::format::witness::{WITNESS_OFFSET, Witness};
use crate::format::{header, store};

/// The files of a store by name.
pub type Files = std::collections::BTreeMap<String, Vec<u8>>;

/// Recomputes the checksums in all files of a store, and the checksums of tables in the manifest.
pub fn seal(files: &mut Files) {
    seals::seal(files);
}

/// The preparation of the bytes before decoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// None.
    Raw,
    /// Recomputes checksums, and lengths that only repeat others.
    Sealed,
}

const UID: u64 = 0x7472_696e_6520_6675;
const BOOT_ID: u128 = 7;
/// Bytes of a slot before its padding.
const SLOT_BYTES: usize = SLOT_CHECKED_BYTES + CHECKSUM_BYTES;
const STORE_SLOT_BYTES: usize = store::SLOT_CHECKED_BYTES + CHECKSUM_BYTES;

/// The whole file from its short form. A whole file stays as it is, except for checksums if `mode` says so.
fn whole(bytes: &[u8], kind: FileKind, slot_bytes: usize, mode: Mode) -> Vec<u8> {
    let is_whole = bytes.starts_with(&header::MAGIC);
    let mut file = match is_whole {
        true => bytes.to_vec(),
        false => {
            let mut file = FileHeader { kind, store_id: 1, uid: UID, features: 0 }.encode();
            let mut rest = bytes;
            for slot in 1..=2 {
                let (taken, left) = rest.split_at(slot_bytes.min(rest.len()));
                file.extend_from_slice(taken);
                file.resize((slot + 1) * PAGE_BYTES, 0);
                rest = left;
            }
            file.extend_from_slice(rest);
            if kind == FileKind::Store {
                file.resize(store::STORE_BYTES, 0);
            }
            file
        }
    };
    if mode == Mode::Sealed {
        seals::seal_file(&mut file, &Default::default());
    }
    file
}

/// The short form of a whole log, manifest or STORE, with the checksums that are right for it; `None` for
/// another file.
pub fn short(file: &[u8]) -> Option<Vec<u8>> {
    let kind = [FileKind::Log, FileKind::Manifest, FileKind::Store];
    let kind = kind.into_iter().find(|kind| file.get(8) == Some(&(*kind as u8)))?;
    let slot_bytes = if kind == FileKind::Store { STORE_SLOT_BYTES } else { SLOT_BYTES };
    let take = |file: &[u8]| {
        let slots = [1, 2].map(|slot| file.get(slot * PAGE_BYTES..)?.get(..slot_bytes));
        let used = file.iter().rposition(|byte| *byte != 0)? + 1;
        let records = file.get(RECORDS_FROM as usize..used.next_multiple_of(8)).unwrap_or_default();
        Some([slots[0]?, slots[1]?, records].concat())
    };
    let sealed = whole(&take(file)?, kind, slot_bytes, Mode::Sealed);
    take(&sealed)
}

/// A log: its slots, the chain of records, and batches.
pub fn log(bytes: &[u8], mode: Mode) {
    let file = whole(bytes, FileKind::Log, SLOT_BYTES, mode);
    framed(&file, FileKind::Log, |payload, _| {
        let Ok(items) = Items::new(payload) else { return };
        let mut again = Vec::with_capacity(payload.len());
        items.partitions().for_each(|made| put_partition(&mut again, made));
        items.for_each(|item| put_item(&mut again, item.tree, item.kind, item.key, item.value));
        assert_eq!(again, payload, "a batch comes back the same");
    });
}

/// A manifest: its slots, the chain of edits, and the state after them.
pub fn manifest(bytes: &[u8], mode: Mode) {
    let file = whole(bytes, FileKind::Manifest, SLOT_BYTES, mode);
    let name = FileName::new(FileKind::Manifest, 1);
    let mut state = Some(ManifestState::default());
    framed(&file, FileKind::Manifest, |payload, is_in_order| {
        let Ok(changes) = Changes::new(name, RECORDS_FROM, payload) else { return };
        let Ok(changes) = changes.collect::<Result<Vec<_>, _>>() else { return };
        let (chain, _) = payload.split_first_chunk().expect("an edit has a chain");
        let again = encode_edit(u64::from_le_bytes(*chain), &changes);
        assert_eq!(again, payload, "an edit comes back the same");
        if is_in_order {
            state = state.take().and_then(|mut state| {
                let is_sound = state.apply_edit(&changes).is_ok();
                is_sound.then_some(state)
            });
        }
    });
    let Some(state) = state else { return };
    let mut again = ManifestState::default();
    again.apply_edit(&state.snapshot()).expect("a snapshot of a sound state is sound");
    assert!(again == state, "a state comes back the same from its snapshot");
}

/// Calls `record` for the records of a valid chain, and then for every good record of the file.
fn framed(bytes: &[u8], kind: FileKind, mut record: impl FnMut(&[u8], bool)) {
    let file = FileName::new(kind, 1);
    let Ok(header) = FileHeader::decode(file, bytes, kind) else { return };
    let length = bytes.len() as u64;
    let expected =
        Expected { file, header, bytes: length, recorded_end: None, witness: None, boot_id: BOOT_ID };
    if let Ok(found) = scan(&expected, bytes) {
        found.records().for_each(|one| record(one.payload, true));
        let recorded = Expected { recorded_end: Some(found.end), ..expected };
        assert!(scan(&recorded, bytes).is_ok(), "where it ends it may be promised to end");
        let witness = Some(Witness { uid: header.uid, durable: found.end, boot_id: 0 });
        let witnessed = scan(&Expected { witness, ..expected }, bytes).expect("so far it may be durable");
        assert_eq!(witnessed.durable_to, found.end.bytes, "the witness is believed");
    }
    every_record(&header, bytes).iter().for_each(|one| record(one.payload, false));
}

/// STORE, with its witness.
pub fn store(bytes: &[u8], mode: Mode) {
    let file = whole(bytes, FileKind::Store, STORE_SLOT_BYTES, mode);
    if let Ok(found) = store::decode(&file) {
        let again = store::decode(&store::encode(found.uid, &found.live)).expect("it was decoded before");
        assert_eq!(again.live, found.live, "live state survives encoding");
        let page = &file[WITNESS_OFFSET as usize..];
        if let Ok(witness) = Witness::decode(page) {
            assert_eq!(witness.encode(), page, "a witness comes back the same");
        }
    }
}

/// Footer and tail page of a table.
pub fn footer(bytes: &[u8], mode: Mode) {
    const OFFSET: u64 = 1 << 40;
    let block = fitted(bytes, 8, mode);
    if let Ok(footer) = Footer::decode(&block, OFFSET) {
        let again = footer.encode();
        assert_eq!(again[5..], block[5..], "a footer comes back the same");
        assert_eq!(Footer::decode(&again, OFFSET), Ok(footer));
    }
    let mut page = bytes.to_vec();
    page.resize(PAGE_BYTES, 0);
    for offset in [OFFSET, 2 * PAGE_BYTES as u64] {
        if let Ok(span) = decode_tail(&page, offset) {
            assert_eq!(encode_tail(span)[5..], page[5..], "a tail comes back the same");
        }
    }
}

/// Top block of a slice, and lookups in it.
pub fn top(bytes: &[u8], mode: Mode) {
    let block = fitted(bytes, 12, mode);
    let Some(pages) = block.get(8..).and_then(<[u8]>::first_chunk) else { return };
    let Ok(top) = Top::decode(&block, u32::from_le_bytes(*pages)) else { return };
    let separators: Vec<&[u8]> = (0..top.pages()).map(|page| top.separator(page)).collect();
    for key in probes(bytes).chain(separators.iter().copied()).take(200) {
        let expected = separators.partition_point(|separator| *separator <= key).saturating_sub(1);
        assert_eq!(top.find(key), expected, "the page of a key");
    }
    let again = crate::format::table::top::encode(separators.into_iter());
    assert_eq!(again[5..], block[5..], "a top block comes back the same");
}

/// Fence page, and lookups in it and its sketches.
pub fn fence(bytes: &[u8], mode: Mode) {
    let page = match mode {
        Mode::Raw => bytes.to_vec(),
        Mode::Sealed => padded(bytes, PAGE_BYTES),
    };
    let Ok(fences) = IndexPage::check(&page) else { return };
    for first in [&[][..], &page[..32], &page[page.len() - 8..]] {
        let mut sketcher = Sketcher::new(Box::new([first.into()]));
        sketcher.add(0, &fences);
        let sketches = [sketcher.sketches(0), sketcher.sketches(1)];
        for key in probes(bytes).take(60) {
            let block = fences.find(key, first);
            assert!(block < fences.ends() && fences.extent(block).bytes > 0, "a block of the page");
            for sketch in sketches.iter().map(|sketch| Sketch::of(sketch)) {
                let found = sketch.find(key, first);
                assert!(found.is_none_or(|found| found == fences.extent(block)), "as the page says");
            }
            assert_eq!(
                fences.after(block).and_then(|after| fences.before(after)),
                fences.after(block).map(|_| block)
            );
            if fences.is_alone(block) {
                fences.is_separator(block, key, first);
            }
        }
    }
    let mut end = fences.extent(0).offset;
    for block in fences.blocks() {
        let extent = fences.extent(block);
        assert!(extent.offset == end && extent.bytes > 0, "blocks follow each other");
        assert!(extent.bytes as usize <= DATA_BLOCK_BYTES_MAX, "blocks are bounded");
        end += u64::from(extent.bytes);
        fences.is_alone(block);
    }
}

/// Filter page of any kind, and lookups in it.
pub fn filters(bytes: &[u8], mode: Mode) {
    let page = match mode {
        Mode::Raw => bytes.to_vec(),
        Mode::Sealed => padded(bytes, PAGE_BYTES),
    };
    if filter::check(&page).is_err() {
        return;
    }
    let pages = page.get(12..).and_then(<[u8]>::first_chunk).map_or(0, |pages| u32::from_le_bytes(*pages));
    let kind = FilterKind::from_byte(page[6]).expect("it was checked");
    let hashes = probes(bytes).take(100).map(|key| {
        let mut hash = [0; 8];
        hash[..key.len().min(8)].copy_from_slice(&key[..key.len().min(8)]);
        u64::from_le_bytes(hash)
    });
    if kind == FilterKind::Column {
        return hashes.for_each(|hash| columns(&page, hash));
    }
    let columns = ColumnShape::NONE;
    let shape = FilterShape { kind, pages, page_bytes: page.len() as u32, probes: page[5], columns };
    if !shape.is_valid() {
        return;
    }
    for hash in hashes {
        assert!(shape.page(hash) < pages && shape.first_line_at(hash) < page.len(), "in the filter");
        shape.may_contain(&page, hash);
    }
}

fn columns(page: &[u8], hash: u64) {
    let page = ColumnPage::of(page);
    assert!(page.columns() > 0 && (1..=COLUMN_RUNS_MAX).contains(&page.runs()), "a page that was checked");
    for column in 0..page.columns() + 2 {
        let runs = if column < page.columns() { page.runs() } else { 0 };
        assert_eq!(page.tell(column, hash).count(), runs, "it tells of all runs in its columns");
    }
}

/// Data block, plain or compressed, with lookups in it and walks over it.
pub fn data(bytes: &[u8], mode: Mode) {
    let block = fitted(bytes, 8, mode);
    match compressed::plain_bytes(&block) {
        Ok(None) => plain(&block),
        Ok(Some(length)) => {
            assert!(length <= DATA_BLOCK_BYTES_MAX && length > block.len(), "a bounded length");
            let mut out = vec![0xee; length];
            if compressed::decompress(&block, &mut out).is_ok() {
                plain(&out);
            }
        }
        Err(_) => {}
    }
}

fn plain(block: &[u8]) {
    let Ok(layout) = data::check(block) else { return };
    if layout.leaves_places_out() {
        return placeless(block, &layout);
    }
    let prefix = layout.prefix(block);
    let mut again = DataBuilder::new(extent_bytes(block.len()), compressed::Compression::None);
    for index in 0..layout.items() {
        let key = [prefix, layout.suffix(block, index)].concat();
        let (kind, value) = (layout.kind(block, index), layout.value_range(block, index));
        let tag = block[data::HEADER_BYTES + index];
        // Only some items, because each one costs a search.
        if index % 16 == layout.items() % 16 {
            let found = data::find(block, &key, tag, None).expect("an item is found by its key and tag");
            assert_eq!((found.kind, &found.value), (kind, &value), "the item itself");
            assert_eq!(layout.lower_bound(block, &key), index, "its place");
            assert_eq!(layout.upper_bound(block, &key), index + 1, "the place behind it");
        }
        let value = if kind == ItemKind::Put { &block[value] } else { &[] };
        again.add(&key, tag, kind, value);
    }
    let mut out = Vec::new();
    let context = Context { file_uid: UID, offset: 0, tag: BlockKind::Data as u8 };
    again.encode(layout.items(), context, &mut out);
    let encoded = data::check(&out).expect("built blocks are sound");
    assert_eq!(encoded.items(), layout.items(), "as many items");
    for index in 0..layout.items() {
        let same = [prefix, layout.suffix(block, index)].concat()
            == [encoded.prefix(&out), encoded.suffix(&out, index)].concat()
            && block[layout.value_range(block, index)] == out[encoded.value_range(&out, index)];
        assert!(same, "an item comes back the same");
    }
}

/// A data block without places. The order of its keys is unknown here.
fn placeless(block: &[u8], layout: &data::Layout) {
    let secret = HashSecret::expand([0; 16]);
    for index in (0..layout.items()).step_by(1 + layout.items() / 16) {
        let key = layout.key(block, index, &secret);
        let tag = block[data::HEADER_BYTES + index];
        let found = data::find(block, &key, tag, None).expect("an item is found by its key and tag");
        assert!(found.value.end <= block.len(), "in the block");
        assert!(layout.lower_bound_by(block, &key, &secret) <= layout.items(), "in the block");
        assert!(layout.upper_bound_by(block, &key, &secret) <= layout.items(), "in the block");
    }
}

/// Range tombstones of a slice, and lookups in them.
pub fn ranges(bytes: &[u8], mode: Mode) {
    let block = fitted(bytes, 12, mode);
    let mut rest = &block[..];
    let mut ranges = Ranges::default();
    while !rest.is_empty() {
        let Ok(length) = claimed_bytes(rest) else { return };
        let (extent, more) = rest.split_at(length);
        if ranges.decode_extent(extent).is_err() {
            return;
        }
        rest = more;
    }
    for key in probes(bytes).take(60) {
        let covers = |(start, end): (&[u8], &[u8])| start <= key && (end.is_empty() || key < end);
        assert_eq!(ranges.covers(key), ranges.iter().any(covers), "the keys of a range");
        ranges.around(key);
    }
    let mut again = Ranges::default();
    for extent in ranges.encode() {
        again.decode_extent(&extent).expect("encoded extents decode");
    }
    assert!(again == ranges, "ranges come back the same");
}

/// File names: a parsed name is printed as it was read.
pub fn names(bytes: &[u8], _mode: Mode) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(name) = FileName::parse(text, 0) {
        assert_eq!(name.to_string(), text, "a name comes back the same");
    }
}

/// Slices of the bytes, as keys.
fn probes(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lengths = [0, 1, 2, 8, 9, 17].into_iter();
    lengths
        .flat_map(move |length| bytes.windows(length.max(1)).step_by(37).map(move |piece| &piece[..length]))
}

/// The bytes as a block. When sealing, the used length at `at` is made to fit if it does not.
fn fitted(bytes: &[u8], at: usize, mode: Mode) -> Vec<u8> {
    if mode == Mode::Raw || bytes.len() < at + 4 || bytes.len() > DATA_BLOCK_BYTES_MAX {
        return bytes.to_vec();
    }
    let used = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
    let mut block = bytes.to_vec();
    if used > bytes.len() || extent_bytes(used) != bytes.len() {
        block[at..at + 4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        block.resize(extent_bytes(bytes.len()), 0);
    }
    block
}

fn padded(bytes: &[u8], bytes_max: usize) -> Vec<u8> {
    let mut page = bytes.to_vec();
    page.resize(page.len().next_multiple_of(UNIT_BYTES).clamp(UNIT_BYTES, bytes_max), 0);
    page
}
