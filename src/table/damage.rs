//! Tests of damage: bit flips, truncation, swapped blocks, foreign and stale parts, and crafted counts with
//! right checksums.

use super::harness::*;
use super::open::read_exact;
use super::verify::{decompress, verify_block};
use super::*;
use crate::Error;
use crate::base::checksum::{self, Context};
use crate::base::error::Result;
use crate::base::id::{KeyspaceId, PartitionId, TreeId};
use crate::base::place::stored_key;
use crate::base::step::{BlockAddress, Direction};
use crate::base::sync::Arc;
use crate::format::table::compressed::{self, Compression};
use crate::format::table::data;
use crate::format::table::footer::Span;
use crate::format::table::footer::{Footer, decode_tail, encode_tail};
use crate::format::table::{FOOTER_TAG, PAGE_BYTES, TAIL_TAG, seal};

/// A file with every part: two slices, one of several blocks.
fn small_file(bench: &Bench, items: u32) -> (TableSummary, Vec<TableModel>) {
    small_file_of(bench, items, SHAPE)
}

fn small_file_of(bench: &Bench, items: u32, shape: SliceShape) -> (TableSummary, Vec<TableModel>) {
    let many: TableModel =
        (0..items).map(|n| (n.to_be_bytes().to_vec(), (n % 7 != 0).then(|| vec![n as u8; 100]))).collect();
    let one: TableModel = [(b"k".to_vec(), Some(b"v".to_vec()))].into();
    let other = TreeId { keyspace: KeyspaceId(1), partition: PartitionId(2) };
    let models = vec![many, one];
    (bench.build(&[(TREE, shape, &models[0]), (other, shape, &models[1])]), models)
}

/// Opens the file and reads everything; all answers must be right.
fn read_all(bench: &Bench, summary: &TableSummary, models: &[TableModel]) -> Result<()> {
    let tables = bench.open(summary)?;
    let budget = PageBudget::alone(1 << 20);
    for (table, model) in tables.iter().zip(models) {
        table.load_all_pages(bench.storage.as_ref(), &budget)?;
        let mut stream =
            TableStream::new(Arc::clone(&bench.storage), Arc::default(), Arc::clone(table), 8192)?;
        let mut items = model.iter();
        while let Some((key, kind, value)) = stream.item() {
            let (model_key, model_value) = items.next().expect("no more items than were written");
            assert_eq!((key, (kind, value.to_vec())), (model_key.as_slice(), expected(model_value)));
            stream.advance()?;
        }
        assert_eq!(items.next(), None, "no fewer items than were written");
        for (key, value) in model.iter().step_by(5) {
            let hash = bench.secret.hash(key);
            assert!(table.admits(key) && table.filter(key, hash, None) == Filtered::Maybe);
            let Fenced::Block(block) = table.fence(key, None) else { panic!("pages are resident") };
            let address = table.address_of(&block);
            let span = Span { offset: address.offset, bytes: u64::from(address.bytes) };
            let block = read_exact(bench.storage.as_ref(), FILE, span)?;
            let mut block = block.to_vec();
            if let Some(bytes) = verify_block(&address, &block)?.plain_bytes {
                let mut plain = vec![0; bytes];
                decompress(&address, &block, &mut plain)?;
                block = plain;
            }
            let found = data::find(&block, key, hash.block_tag(), None).expect("the item is there");
            assert_eq!((found.kind, block[found.value].to_vec()), expected(value));
        }
    }
    Ok(())
}

/// Every single-bit flip is an error or changes no answer, and `verify` finds every flip.
#[test]
fn every_flip_is_detected_or_harmless() {
    every_flip(SHAPE, 1500);
}

/// The same holds for compressed blocks.
#[test]
fn every_flip_of_compressed_blocks_is_detected() {
    every_flip(SliceShape { compression: Compression::Lz4, ..SHAPE }, 800);
}

fn every_flip(shape: SliceShape, verified_min: usize) {
    let bench = Bench::new();
    let (summary, models) = small_file_of(&bench, 60, shape);
    read_all(&bench, &summary, &models).expect("sound");
    let good = bench.contents();
    let (mut harmless, mut verified) = (0, 0);
    for at in 0..good.len() {
        // Every bit of bytes with a meaning; in runs of zeros one bit a byte in turn.
        let zeros = good[at.saturating_sub(4)..(at + 4).min(good.len())].iter().all(|byte| *byte == 0);
        let bits = if zeros { at % 8..at % 8 + 1 } else { 0..8 };
        if zeros && at % 5 != 0 {
            continue;
        }
        let write = |byte| bench.storage.write(FILE, at as u64, &[byte]).expect("no fault");
        for bit in bits {
            write(good[at] ^ 1 << bit);
            match read_all(&bench, &summary, &models) {
                Ok(()) => harmless += 1,
                Err(Error::Corrupt(at)) => assert!(at.file.starts_with("table-")),
                // The version and feature fields of the header, with a right checksum, cannot come from a
                // flip.
                Err(other) => panic!("byte {at}: {other}"),
            }
            if bit == at % 8 && at % 2 == 0 {
                verified += 1;
                bench.verify(&summary).expect_err("verify finds every flip");
            }
            write(good[at]);
        }
    }
    bench.verify(&summary).expect("sound again");
    assert!(verified > verified_min, "{verified}");
    let gaps = good.len() as u64 - summary_parts(&bench, &summary);
    assert!(harmless <= gaps, "{harmless} harmless flips, {gaps} bytes of gaps");
}

/// Every flipped bit of a block of range tombstones makes the opening fail: no range is lost, added or
/// extended. So does every other length of the list in the footer.
#[test]
fn every_flip_of_ranges_is_refused() {
    let bench = Bench::new();
    let ranges = [(&b"b"[..], &b"c"[..]), (b"d", b"d\0"), (b"tenant/17/", b"tenant/170"), (b"x", b"")];
    let summary = bench.build_with(&[(b"a".to_vec(), Some(b"1".to_vec()))].into(), &ranges);
    let tables = bench.open(&summary).expect("sound");
    assert!(tables[0].ranges().iter().eq(ranges));
    let span = tables[0].entry().ranges();
    assert!(span.bytes > 0);
    let good = bench.contents();
    for at in span.offset..span.end() {
        let write = |byte| bench.storage.write(FILE, at, &[byte]).expect("no fault");
        for bit in 0..8 {
            write(good[at as usize] ^ 1 << bit);
            match bench.open(&summary) {
                Err(Error::Corrupt(found)) => assert_eq!(found.file, FILE.to_string()),
                other => panic!("byte {at}, bit {bit}: {other:?}"),
            }
            bench.verify(&summary).expect_err("verify finds it");
        }
        write(good[at as usize]);
    }
    bench.open(&summary).expect("sound again");
    for count in [0, 1, 3, 5, u32::MAX] {
        bench.set_contents(&good);
        let crafted = craft(&bench, &summary, |footer| footer.slices[0].ranges_count = count);
        assert!(matches!(bench.open(&crafted), Err(Error::Corrupt(_))), "{count} ranges");
    }
}

/// Bytes of the file that belong to a part.
fn summary_parts(bench: &Bench, summary: &TableSummary) -> u64 {
    let tables = bench.open(summary).expect("opens");
    let slices: u64 = tables
        .iter()
        .map(|table| {
            let entry = table.entry();
            entry.data().bytes + entry.filter_span().bytes + entry.fence_span().bytes + entry.top().bytes
        })
        .sum();
    slices + 2 * PAGE_BYTES as u64 + 512
}

/// A truncated, grown or missing file is refused at open; a file that shrinks later fails the reads beyond
/// its end.
#[test]
fn cut_files_are_refused() {
    let bench = Bench::new();
    let (summary, models) = small_file(&bench, 120);
    let tables = bench.open(&summary).expect("opens");
    let good = bench.contents();
    for length in (0..good.len()).step_by(509) {
        bench.set_contents(&good[..length]);
        assert!(matches!(bench.open(&summary), Err(Error::Corrupt(_))), "{length}");
        let claimed = TableSummary { bytes: length as u64, ..summary.clone() };
        assert!(matches!(bench.open(&claimed), Err(Error::Corrupt(_))), "{length}, and the manifest agrees");
    }
    bench.set_contents(&good[..5000]);
    let stream = TableStream::new(Arc::clone(&bench.storage), Arc::default(), Arc::clone(&tables[0]), 8192);
    assert!(matches!(stream.map(|_| ()), Err(Error::Corrupt(_))));
    assert!(matches!(
        tables[0].load_all_pages(bench.storage.as_ref(), &PageBudget::alone(1 << 20)),
        Err(Error::Corrupt(_))
    ));
    bench.set_contents(&[&good[..], &[0; 512]].concat());
    assert!(matches!(bench.open(&summary), Err(Error::Corrupt(_))));
    bench.disk.set_contents(FILE, None);
    assert!(matches!(bench.open(&summary), Err(Error::Corrupt(_))));
    bench.set_contents(&good);
    read_all(&bench, &summary, &models).expect("whole again");
}

/// Two blocks swapped, a block moved, and parts of another file with another uid are all refused.
#[test]
fn misplaced_blocks_are_refused() {
    let bench = Bench::new();
    let (summary, models) = small_file(&bench, 120);
    let good = bench.contents();
    let page = |number: usize| number * PAGE_BYTES..(number + 1) * PAGE_BYTES;
    let mut swapped = good.clone();
    swapped[page(1)].copy_from_slice(&good[page(2)]);
    swapped[page(2)].copy_from_slice(&good[page(1)]);
    let mut doubled = good.clone();
    doubled[page(2)].copy_from_slice(&good[page(1)]);
    for bytes in [swapped, doubled] {
        bench.set_contents(&bytes);
        assert!(matches!(read_all(&bench, &summary, &models), Err(Error::Corrupt(_))));
    }
    // A whole file with the right name, length and table checksum, but of another uid or store.
    bench.set_contents(&good);
    let identity = TableIdentity { uid: 1, ..IDENTITY };
    assert!(matches!(bench.open(&TableSummary { identity, ..summary.clone() }), Err(Error::Corrupt(_))));
    let identity = TableIdentity { store_id: 1, ..IDENTITY };
    assert!(matches!(bench.open(&TableSummary { identity, ..summary.clone() }), Err(Error::Corrupt(_))));
    let checksum = summary.checksum ^ 1;
    assert!(matches!(bench.open(&TableSummary { checksum, ..summary }), Err(Error::Corrupt(_))));
}

/// Rewrites the footer of the file with right checksums; returns the summary that the manifest would then
/// have.
fn craft(bench: &Bench, summary: &TableSummary, change: impl FnOnce(&mut Footer)) -> TableSummary {
    let mut bytes = bench.contents();
    let tail_at = bytes.len() - PAGE_BYTES;
    let span = decode_tail(&bytes[tail_at..], tail_at as u64).expect("sound");
    let place = span.offset as usize..tail_at;
    let mut footer = Footer::decode(&bytes[place.clone()], span.offset).expect("sound");
    change(&mut footer);
    let mut block = footer.encode();
    let checksum = seal(&mut block, Context { file_uid: IDENTITY.uid, offset: span.offset, tag: FOOTER_TAG });
    assert_eq!(block.len(), place.len());
    bytes[place].copy_from_slice(&block);
    let mut tail = encode_tail(span);
    seal(&mut tail, Context { file_uid: IDENTITY.uid, offset: tail_at as u64, tag: TAIL_TAG });
    bytes[tail_at..].copy_from_slice(&tail);
    bench.set_contents(&bytes);
    let checksum = checksum::append(footer.blocks_checksum, &checksum.to_le_bytes());
    TableSummary { checksum, ..summary.clone() }
}

/// Counts and keys that do not fit the blocks are found by a full read, though all checksums hold.
#[test]
fn crafted_footers_are_found_by_reading() {
    type Change = fn(&mut Footer);
    let changes: [(&str, Change); 7] = [
        ("data blocks of a slice", |footer| footer.slices[0].data_blocks += 1),
        ("items of a slice", |footer| footer.slices[0].items += 1),
        ("tombstones of a slice", |footer| footer.slices[0].tombstones += 1),
        ("key and value bytes of a slice", |footer| footer.slices[0].key_value_bytes += 1),
        ("first key of a slice", |footer| footer.slices[0].min = [0, 0, 0, 1].into()),
        ("last key of a slice", |footer| footer.slices[0].max = [1, 0, 0, 1].into()),
        ("blocks checksum", |footer| footer.blocks_checksum ^= 1),
    ];
    for (what, change) in changes {
        let bench = Bench::new();
        let (summary, _) = small_file(&bench, 120);
        let crafted = craft(&bench, &summary, change);
        bench.open(&crafted).expect("opens: nothing is wrong by itself");
        match bench.verify(&crafted) {
            Err(Error::Corrupt(found)) => assert_eq!(found.what, what),
            other => panic!("{what}: {other:?}"),
        }
    }
}

/// In a slice of an ordered keyspace, a block without places is damage for full reads, streams and cursors.
#[test]
fn blocks_without_places_are_of_hashed_keyspaces() {
    let bench = Bench::new();
    let hashed = TreeId { keyspace: KeyspaceId(KeyspaceId::HASHED | 1), ..TREE };
    let put = |number: u32| {
        (stored_key(&bench.secret, hashed.keyspace, &number.to_be_bytes()).to_vec(), Some(vec![7; 50]))
    };
    let model: TableModel = (0..500).map(put).collect();
    let summary = bench.build(&[(hashed, SHAPE, &model)]);
    let crafted = craft(&bench, &summary, |footer| footer.slices[0].tree = TREE);
    let table = bench.open(&crafted).expect("opens: nothing is wrong by itself").remove(0);
    let without = |result: Result<()>| {
        let error = result.expect_err("it is told").to_string();
        assert!(error.contains("without places"), "{error}");
    };
    without(bench.verify(&crafted));
    let stream = TableStream::new(Arc::clone(&bench.storage), Arc::default(), Arc::clone(&table), 1 << 20);
    without(stream.map(|_| ()));
    let mut cursor = TableCursor::new(table, Direction::Forward);
    cursor.seek(std::ops::Bound::Unbounded);
    without(bench.settle(&mut cursor).map(|_| ()));
}

/// Blocks that are sound by themselves, but not in order, end a scan and a stream with an error, never with a
/// wrong order.
#[test]
fn blocks_out_of_order_are_found() {
    let bench = Bench::new();
    let (summary, _) = small_file(&bench, 120);
    let mut bytes = bench.contents();
    bytes.copy_within(PAGE_BYTES..2 * PAGE_BYTES, 2 * PAGE_BYTES);
    let context = Context { file_uid: IDENTITY.uid, offset: 2 * PAGE_BYTES as u64, tag: 1 };
    seal(&mut bytes[2 * PAGE_BYTES..3 * PAGE_BYTES], context);
    bench.set_contents(&bytes);
    let tables = bench.open(&summary).expect("opens");
    let mut stream =
        TableStream::new(Arc::clone(&bench.storage), Arc::default(), Arc::clone(&tables[0]), 1 << 20)
            .expect("starts");
    let error = loop {
        if let Err(error) = stream.advance() {
            break error;
        }
    };
    assert!(error.to_string().contains("order of keys between blocks"), "{error}");
    let mut cursor = TableCursor::new(Arc::clone(&tables[0]), Direction::Forward);
    cursor.seek(std::ops::Bound::Unbounded);
    let error = loop {
        match bench.settle(&mut cursor) {
            Ok(true) => cursor.advance(),
            Ok(false) => panic!("the disorder was passed over"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("order of keys between blocks"), "{error}");
    assert_eq!(cursor.poll(None).ok(), Some(Moved::End), "a cursor that failed is at its end");
}

/// A compressed block with right checksums and no sound contents is an error for a get, a scan and a stream.
/// Its header's check bounds the memory allocated for it.
#[test]
fn crafted_compressed_blocks_are_refused() {
    for (at, byte) in [(12, 255), (15, 1), (16, 255), (30, 0)] {
        let bench = Bench::new();
        let (summary, _) = small_file_of(&bench, 120, SliceShape { compression: Compression::Lz4, ..SHAPE });
        let tables = bench.open(&summary).expect("opens");
        tables[0].load_all_pages(bench.storage.as_ref(), &PageBudget::alone(1 << 20)).expect("loads");
        let Fenced::Block(block) = tables[0].fence(&0u32.to_be_bytes(), None) else { panic!("resident") };
        let address = tables[0].address_of(&block);
        let mut bytes = bench.contents();
        let block = &mut bytes[address.offset as usize..][..address.bytes as usize];
        assert!(compressed::plain_bytes(block).expect("sound").is_some());
        assert_ne!(block[at], byte);
        block[at] = byte;
        seal(block, Context { file_uid: IDENTITY.uid, offset: address.offset, tag: 1 });
        bench.set_contents(&bytes);
        assert!(matches!(bench.block(&address), Err(Error::Corrupt(_))), "byte {at}");
        let stream =
            TableStream::new(Arc::clone(&bench.storage), Arc::default(), Arc::clone(&tables[0]), 8192);
        assert!(matches!(stream.map(|_| ()), Err(Error::Corrupt(_))), "byte {at}");
        let mut cursor = TableCursor::new(Arc::clone(&tables[0]), Direction::Forward);
        cursor.seek(std::ops::Bound::Unbounded);
        assert!(matches!(bench.settle(&mut cursor), Err(Error::Corrupt(_))), "byte {at}");
    }
}

/// The one check of a block read covers length, checksum in its place and structure; the error names file and
/// offset.
#[test]
fn verify_block_checks_length_place_and_structure() {
    let bench = Bench::new();
    let (summary, _) = small_file(&bench, 120);
    let tables = bench.open(&summary).expect("opens");
    let Fenced::Need(page) = tables[0].fence(b"", None) else { panic!("paged") };
    let bytes = bench.block(&page).expect("reads").to_vec();
    verify_block(&page, &bytes).expect("sound");
    let Fenced::Block(data) = tables[0].fence(b"", Some(&bytes)) else { panic!("a page was given") };
    let data = tables[0].address_of(&data);
    let bytes = bench.block(&data).expect("reads").to_vec();
    verify_block(&data, &bytes).expect("sound");
    assert!(verify_block(&data, &bytes[..512]).is_err());
    assert!(verify_block(&BlockAddress { offset: data.offset + 512, ..data }, &bytes).is_err());
    let mut crafted = bytes.clone();
    crafted[6] = 0;
    crafted[7] = 0;
    seal(&mut crafted, Context { file_uid: data.file_uid, offset: data.offset, tag: 1 });
    let Err(Error::Corrupt(found)) = verify_block(&data, &crafted) else { panic!("no items") };
    assert_eq!((found.file.as_str(), found.offset), (FILE.to_string().as_str(), data.offset + 6));
}
