//! Tables against maps: every shape of keys and values, resident and paged, one slice and many; space;
//! damage.

mod learned;
mod opened;
mod placed;
mod sketched;

use std::ops::Bound;

use super::harness::*;
use super::*;
use crate::Error;
use crate::base::id::{ItemKind, KeyspaceId, PartitionId, TreeId};
use crate::base::load::DeviceLoad;
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::format::table::compressed::Compression;
use crate::format::table::filter::FilterPlan;

/// Models of every shape that blocks, fences and separators treat differently.
fn shapes() -> Vec<(&'static str, TableModel)> {
    let mut dice = Dice(1);
    let put = |value: Vec<u8>| Some(value);
    let mut shapes: Vec<(&'static str, TableModel)> = vec![
        ("empty key alone", [(vec![], put(vec![]))].into()),
        ("one tombstone", [(b"k".to_vec(), None)].into()),
        ("two keys", [(vec![], put(b"v".to_vec())), (b"\0".to_vec(), None)].into()),
    ];
    let fixed = (0..3000u64).map(|n| ((n * 7).to_be_bytes().repeat(2), put(vec![n as u8; 100])));
    shapes.push(("16-byte keys, 100-byte values", fixed.collect()));
    let random = (0..3000).map(|_| (dice.bytes(16), put(vec![1; 100])));
    shapes.push(("random keys", random.collect()));
    let mut dice = Dice(2);
    let mixed = (0..4000).map(|n| {
        let key_bytes = dice.roll(30) as usize;
        let value_bytes = if n % 50 == 0 { 3000 } else { dice.roll(200) as usize };
        let value = (dice.roll(5) != 0).then(|| dice.bytes(value_bytes));
        (dice.bytes(key_bytes), value)
    });
    shapes.push(("mixed sizes and tombstones", mixed.collect()));
    let one_byte = (0..=255u8).map(|byte| (vec![byte], put(vec![byte; byte as usize * 20])));
    shapes.push(("1-byte keys", one_byte.collect()));
    let shared =
        (0..500u32).map(|n| ([vec![b'p'; 3000], n.to_be_bytes().to_vec()].concat(), put(vec![3; 40])));
    shapes.push(("long shared prefixes", shared.collect()));
    let large = (0..40u8).map(|n| {
        let mut key = vec![n / 2; 65_535];
        key[60_000] = n;
        (key, put(vec![n; 10]))
    });
    shapes.push(("64 KiB keys", large.collect()));
    let mut dice = Dice(3);
    let values = [0, 1, 511, 512, 4095, 4096, 8100, 8192, 70_000, 1 << 20, 5, 1 << 20, 3];
    let sizes = values.iter().enumerate().map(|(n, bytes)| (vec![n as u8; 9], put(dice.bytes(*bytes))));
    shapes.push(("values up to 1 MiB", sizes.collect()));
    let zeros = (0..2000usize).map(|n| ([&b"k"[..], &vec![0; n]].concat(), put(vec![9; 50])));
    shapes.push(("prefixes of others with zero bytes", zeros.collect()));
    let tied =
        (0..2000u32).map(|n| ([&b"12345678"[..], &n.to_be_bytes(), b"tail"].concat(), put(vec![9; 300])));
    shapes.push(("tails behind a tenant", tied.collect()));
    let ties = (0..2000u32).flat_map(|n| {
        let head = if n < 1000 { b"aaaaaaaaaa" } else { b"baaaaaaaaa" };
        [([&head[..], &n.to_be_bytes()].concat(), Some(vec![8; 300]))]
    });
    shapes.push(("separators whose eight bytes tie", ties.collect()));
    let tombstones = (0..3000u32).map(|n| (n.to_be_bytes().to_vec(), None));
    shapes.push(("only tombstones", tombstones.collect()));
    shapes
}

/// Keys equal to, between, before and after those of a model.
fn probes(model: &TableModel) -> Vec<Vec<u8>> {
    let step = model.len().div_ceil(300);
    let mut probes: Vec<Vec<u8>> = vec![vec![], vec![0], vec![255; 20]];
    for key in model.keys().step_by(step).chain(model.keys().next_back()) {
        probes.push(key.clone());
        probes.push([key, &b"\0"[..]].concat());
        if let Some((last, rest)) = key.split_last() {
            probes.push(rest.to_vec());
            probes.push([rest, &[last.wrapping_sub(1)]].concat());
            probes.push([rest, &[last.wrapping_add(1)]].concat());
        }
    }
    probes
}

/// Every shape is found in full and by get, resident and paged, and absent keys are not found.
#[test]
fn tables_agree_with_maps() {
    for (name, model) in shapes() {
        agrees(name, TREE, &model, &probes(&model));
    }
}

/// Checks that tables of a tree agree with the model, for all ways of storing and caching them.
fn agrees(name: &str, tree: TreeId, model: &TableModel, probes: &[Vec<u8>]) {
    use Compression::{Lz4, None};
    use IndexPlan::{Fences, Learned};
    for (budget_bytes, block_bytes, compression, index) in [
        (0, 4096, None, Fences),
        (1 << 22, 4096, Lz4, Fences),
        (1 << 22, 20_000, None, Fences),
        (0, 65_536, Lz4, Fences),
        (0, 512, None, Learned),
        (1 << 22, 512, Lz4, Learned),
        (1 << 22, 4096, None, Learned),
    ] {
        let bench = Bench::new();
        let shape = SliceShape { block_bytes, compression, index, ..SHAPE };
        let summary = bench.build(&[(tree, shape, model)]);
        let table = bench.open(&summary).expect("opens").remove(0);
        let budget = PageBudget::alone(budget_bytes);
        table.load_all_pages(bench.storage.as_ref(), &budget).expect("loads");
        assert_eq!(table.items(), model.len() as u64, "{name}");
        let tombstones = model.values().filter(|value| value.is_none()).count();
        assert_eq!(table.tombstones(), tombstones as u64, "{name}");
        assert_eq!(Some(table.min()), model.keys().next().map(Vec::as_slice), "{name}");
        assert_eq!(Some(table.max()), model.keys().next_back().map(Vec::as_slice), "{name}");
        for key in probes {
            let found = bench.get(&table, key).expect("reads");
            let length = key.len();
            assert_eq!(found, model.get(key).map(expected), "{name}, a key of {length} bytes");
        }
        stream_agrees(&bench, &table, model, name);
        bench.verify(&summary).expect("a sound file verifies");
        let pages_bytes = budget.pinned_bytes();
        assert!((pages_bytes > 0) == (budget_bytes > 0), "{name}: the filter at least is resident if it may");
        drop(table);
        assert_eq!(budget.pinned_bytes(), 0, "{name}: pages are given back");
    }
}

/// Each block of resident fences, on any page, has a hint of its own; blocks of paged fences have none.
#[test]
fn each_block_has_its_place() {
    let model: TableModel = (0..60_000u32).map(|n| (n.to_be_bytes().to_vec(), Some(vec![7; 100]))).collect();
    let bench = Bench::new();
    let summary = bench.build(&[(TREE, SHAPE, &model)]);
    let paged = bench.open(&summary).expect("opens").remove(0);
    let table = bench.open(&summary).expect("opens").remove(0);
    let budget = PageBudget::alone(1 << 22);
    table.load_all_pages(bench.storage.as_ref(), &budget).expect("loads");
    assert!(table.fence_pages() > 3);
    let mut hints = std::collections::BTreeMap::new();
    for key in model.keys() {
        let Fenced::Block(block) = table.fence(key, None) else { panic!("pages are resident") };
        let hint = std::ptr::from_ref(table.frame_hint(&block).expect("there is room for hints")).addr();
        let offset = table.address_of(&block).offset;
        assert_eq!(*hints.entry(hint).or_insert(offset), offset);
        assert!(paged.frame_hint(&block).is_none());
    }
    let mut offsets: Vec<u64> = hints.into_values().collect();
    let count = offsets.len();
    offsets.sort_unstable();
    offsets.dedup();
    assert!(offsets.len() == count && count > 1000, "{count} hints, {} blocks", offsets.len());
    // All hints are counted, and lent from the cache.
    assert_eq!(budget.hints_bytes(), (count * size_of::<crate::cache::FrameHint>()) as u64);
    assert!(budget.cache().stats().lent_bytes > budget.hints_bytes());
    drop(table);
    assert_eq!((budget.hints_bytes(), budget.cache().stats().lent_bytes), (0, 0));
}

fn stream_agrees(bench: &Bench, table: &Arc<TableReader>, model: &TableModel, name: &str) {
    for chunk_bytes in [0, 1 << 20] {
        let (storage, load) = (Arc::clone(&bench.storage), Arc::<DeviceLoad>::default());
        let mut stream =
            TableStream::new(storage, Arc::clone(&load), Arc::clone(table), chunk_bytes).expect("starts");
        // The next piece is being read, and counted.
        let has_more = chunk_bytes == 0 && table.entry().data_blocks > 64;
        assert!(load.awaited() == 0 && (u64::from(has_more)..=1).contains(&load.merges()), "{name}");
        for (key, value) in model {
            let (kind, bytes) = expected(value);
            assert_eq!(stream.item(), Some((key.as_slice(), kind, bytes.as_slice())), "{name}");
            stream.advance().expect("goes on");
        }
        assert_eq!(stream.item(), None, "{name}");
        stream.advance().expect("stays at the end");
        assert_eq!((stream.table().tree(), load.merges()), (table.tree(), 0));
        // A dropped stream cancels its read-ahead.
        let storage = Arc::clone(&bench.storage);
        drop(TableStream::new(storage, Arc::clone(&load), Arc::clone(table), chunk_bytes).expect("starts"));
        assert_eq!(load.merges(), 0);
    }
}

/// A cursor agrees with a map's range from every kind of bound, in both directions, paged and resident.
#[test]
fn cursors_agree_with_maps() {
    for (name, model) in shapes() {
        walks_agree(name, TREE, &model);
    }
}

fn walks_agree(name: &str, tree: TreeId, model: &TableModel) {
    for (budget_bytes, compression, index) in [
        (0, Compression::None, IndexPlan::Fences),
        (1 << 22, Compression::Lz4, IndexPlan::Fences),
        (0, Compression::None, IndexPlan::Learned),
    ] {
        let bench = Bench::new();
        let block_bytes = if index == IndexPlan::Learned { 512 } else { SHAPE.block_bytes };
        let shape = SliceShape { compression, index, block_bytes, ..SHAPE };
        walks_of(&bench, &bench.build(&[(tree, shape, model)]), budget_bytes, (name, model));
    }
}

/// The same for a file of one slice.
fn walks_of(bench: &Bench, summary: &TableSummary, budget_bytes: u64, (name, model): (&str, &TableModel)) {
    let table = bench.open(summary).expect("opens").remove(0);
    table.load_all_pages(bench.storage.as_ref(), &PageBudget::alone(budget_bytes)).expect("loads");
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = TableCursor::new(Arc::clone(&table), direction);
        assert_eq!(cursor.poll(None).ok(), Some(Moved::End), "nowhere before a seek");
        let steps = model.len() + 1;
        scan_agrees(bench, &mut cursor, model, (direction, Bound::Unbounded, steps), name);
        for key in probes(model).iter().step_by(7) {
            for bound in [Bound::Included(key.as_slice()), Bound::Excluded(key.as_slice())] {
                scan_agrees(bench, &mut cursor, model, (direction, bound, 40), name);
            }
        }
    }
}

fn scan_agrees(
    bench: &Bench,
    cursor: &mut TableCursor,
    model: &TableModel,
    (direction, bound, steps): (Direction, Bound<&[u8]>, usize),
    name: &str,
) {
    let mut range: Box<dyn Iterator<Item = _>> = match direction {
        Direction::Forward => Box::new(model.range::<[u8], _>((bound, Bound::Unbounded))),
        Direction::Backward => Box::new(model.range::<[u8], _>((Bound::Unbounded, bound)).rev()),
    };
    cursor.seek(bound);
    for _ in 0..steps {
        let ready = bench.settle(cursor).expect("reads");
        let Some((key, value)) = range.next() else {
            assert!(!ready, "{name}: the end");
            cursor.advance();
            assert_eq!(cursor.poll(None).ok(), Some(Moved::End), "{name}: stays at the end");
            return;
        };
        assert!(ready, "{name}: an item");
        let (kind, bytes) = expected(value);
        assert_eq!(
            (cursor.key(), cursor.kind(), cursor.value()),
            (key.as_slice(), kind, bytes.as_slice()),
            "{name}"
        );
        cursor.advance();
    }
}

/// The blocks that a cursor announces are those that it then needs, in order, in both directions.
#[test]
fn upcoming_blocks_are_the_blocks_needed_next() {
    let model: TableModel = (0..40_000u32).map(|n| (n.to_be_bytes().to_vec(), Some(vec![5; 100]))).collect();
    for budget_bytes in [0, 1 << 22] {
        let bench = Bench::new();
        let table = bench.table(&model, SHAPE);
        table.load_all_pages(bench.storage.as_ref(), &PageBudget::alone(budget_bytes)).expect("loads");
        assert!(table.fence_pages() > 2, "the test needs several fence pages");
        for direction in [Direction::Forward, Direction::Backward] {
            let mut cursor = TableCursor::new(Arc::clone(&table), direction);
            assert!(cursor.upcoming(4).is_empty(), "nothing before a seek");
            cursor.seek(Bound::Unbounded);
            let (mut needed, mut told) = (Vec::new(), Vec::new());
            let mut block = None;
            loop {
                match cursor.poll(block.take()).expect("in order") {
                    Moved::End => break,
                    Moved::Ready => {
                        if told.len() == needed.len() {
                            told.extend(cursor.upcoming(5));
                        }
                        cursor.advance();
                    }
                    Moved::Need(address) => {
                        if address.kind == crate::base::step::BlockKind::Data {
                            if told.len() == needed.len() {
                                told.push(address);
                            }
                            needed.push(address);
                        }
                        block = Some(bench.block(&address).expect("reads"));
                    }
                }
            }
            assert_eq!(needed, told, "{direction:?}");
            assert!(needed.len() > 1000);
        }
        let mut cursor = TableCursor::new(Arc::clone(&table), Direction::Forward);
        cursor.seek(Bound::Included(&20_000u32.to_be_bytes()));
        assert!(bench.settle(&mut cursor).expect("reads"));
        cursor.set_direction(Direction::Backward);
        cursor.seek(Bound::Excluded(&20_000u32.to_be_bytes()));
        assert!(bench.settle(&mut cursor).expect("reads"));
        assert_eq!(cursor.key(), 19_999u32.to_be_bytes());
    }
}

/// Several slices share a file, each with its own settings; empty ones are left out; the file is discarded
/// with its last table.
#[test]
fn slices_share_a_file() {
    let bench = Bench::new();
    let tree =
        |keyspace, partition| TreeId { keyspace: KeyspaceId(keyspace), partition: PartitionId(partition) };
    let small: TableModel = [(b"a".to_vec(), Some(b"1".to_vec()))].into();
    let large: TableModel = (0..9000u32).map(|n| (n.to_be_bytes().to_vec(), Some(vec![1; 50]))).collect();
    let none = SliceShape {
        index: IndexPlan::Fences,
        filter: FilterPlan::NONE,
        block_bytes: 4096,
        compression: Compression::None,
    };
    let summary = bench.build(&[
        (tree(1, 1), SHAPE, &small),
        (tree(1, 2), none, &large),
        (tree(1, 3), SHAPE, &TableModel::new()),
        (tree(2, 4), SHAPE, &large),
        (tree(2, 5), none, &small),
    ]);
    assert_eq!(bench.storage.counts().syncs, 1);
    let tables = bench.open(&summary).expect("opens");
    let trees: Vec<TreeId> = tables.iter().map(|table| table.tree()).collect();
    assert_eq!(trees, [tree(1, 1), tree(1, 2), tree(2, 4), tree(2, 5)]);
    assert_eq!(summary.slices.len(), 4);
    for (index, (table, slice)) in tables.iter().zip(&summary.slices).enumerate() {
        assert_eq!((table.index(), table.items(), table.min()), (index, slice.items, slice.min.as_slice()));
        assert_eq!(table.key_value_bytes(), slice.key_value_bytes);
        let model = if slice.items == 1 { &small } else { &large };
        stream_agrees_but_for_tree(&bench, table, model);
        for key in probes(model) {
            assert_eq!(bench.get(table, &key).expect("reads"), model.get(&key).map(expected));
        }
    }
    assert!(tables[0].slice_bytes() == 1024, "a block and a filter of one unit each");
    assert!(tables[0].memory_bytes() < 620, "{}", tables[0].memory_bytes());
    bench.verify(&summary).expect("sound");
    tables[0].file().mark_obsolete();
    let (mut tables, last) = (tables, 3);
    let kept = tables.remove(last);
    drop(tables);
    assert!(bench.owner.discarded.take().is_empty(), "one table is left");
    drop(kept);
    assert_eq!(bench.owner.discarded.take(), [FILE]);
}

fn stream_agrees_but_for_tree(bench: &Bench, table: &Arc<TableReader>, model: &TableModel) {
    let storage = Arc::clone(&bench.storage);
    let mut stream = TableStream::new(storage, Arc::default(), Arc::clone(table), 8192).expect("starts");
    let mut items = 0;
    while stream.item().is_some() {
        items += 1;
        stream.advance().expect("goes on");
    }
    assert_eq!(items, model.len());
}

/// 16-byte keys with 100-byte values take at most 1.06 times their bytes with a 10-bit filter, and 1 KiB
/// items little more.
#[test]
fn space_is_bounded() {
    let mut dice = Dice(4);
    let model: TableModel = (0..30_000).map(|_| (dice.bytes(16), Some(vec![7; 100]))).collect();
    let bench = Bench::new();
    let summary = bench.build(&[(TREE, SHAPE, &model)]);
    let ratio = summary.bytes as f64 / summary.slices[0].key_value_bytes as f64;
    assert!(ratio <= 1.06, "{ratio}");
    let bench = Bench::new();
    let model: TableModel = (0..5000).map(|_| (dice.bytes(16), Some(vec![7; 1008]))).collect();
    let summary = bench.build(&[(TREE, SHAPE, &model)]);
    let ratio = summary.bytes as f64 / summary.slices[0].key_value_bytes as f64;
    assert!(ratio <= 1.08, "seven items in 7.5 KiB, and index: {ratio}");
}

/// Text shrinks in the file and has its plain length in memory; noise takes no more than uncompressed.
#[test]
fn compressed_tables_are_smaller() {
    let mut dice = Dice(5);
    let word = |n: u64| [&b"alpha beta"[..], b"gamma delt", b"epsilon ze"][n as usize % 3].to_vec();
    let text: TableModel = (0..5000u32)
        .map(|n| (n.to_be_bytes().to_vec(), Some((0..20).flat_map(|_| word(dice.roll(3))).collect())))
        .collect();
    let noise: TableModel = (0..5000u32).map(|n| (n.to_be_bytes().to_vec(), Some(dice.bytes(200)))).collect();
    let bytes = |model: &TableModel, block_bytes, compression| {
        Bench::new().build(&[(TREE, SliceShape { block_bytes, compression, ..SHAPE }, model)]).bytes
    };
    let plain = bytes(&text, 4096, Compression::None);
    assert!(bytes(&text, 4096, Compression::Lz4) * 2 < plain, "half of {plain}");
    assert!(bytes(&text, 32_768, Compression::Lz4) * 3 < plain, "more in larger blocks");
    assert!(bytes(&noise, 4096, Compression::Lz4) <= bytes(&noise, 4096, Compression::None));
}

/// The builder's running size is close to the finished file's, and grows.
#[test]
fn file_bytes_foretells() {
    let bench = Bench::new();
    let mut builder = TableBuilder::new(Arc::clone(&bench.storage), IDENTITY).expect("created");
    builder.begin(TREE, SHAPE).expect("begun");
    let mut before = 0;
    for n in 0..50_000u32 {
        let key = n.to_be_bytes();
        builder.add(&key, bench.secret.hash(&key), ItemKind::Put, &[7; 60]).expect("added");
        assert!(builder.file_bytes() + 600 > before, "hardly ever shrinks");
        before = builder.file_bytes();
    }
    builder.end().expect("ended");
    let summary = builder.finish().expect("finished").summary;
    assert!(summary.bytes.abs_diff(before) < 32 << 10, "{} against {before}", summary.bytes);
}

/// A builder dropped before its end, or that finds the disk full, leaves no file.
#[test]
fn unfinished_files_are_removed() {
    let bench = Bench::new();
    let mut builder = TableBuilder::new(Arc::clone(&bench.storage), IDENTITY).expect("created");
    builder.begin(TREE, SHAPE).expect("begun");
    assert_eq!(bench.storage.length(FILE).ok(), Some(Some(0)));
    drop(builder);
    assert_eq!(bench.storage.length(FILE).ok(), Some(None));
    bench.disk.set_capacity_bytes(Some(1 << 20));
    let mut builder = TableBuilder::new(Arc::clone(&bench.storage), IDENTITY).expect("created");
    builder.begin(TREE, SHAPE).expect("begun");
    let full = (0..100_000u32).try_for_each(|n| {
        let key = n.to_be_bytes();
        builder.add(&key, bench.secret.hash(&key), ItemKind::Put, &[7; 60])
    });
    assert!(matches!(full, Err(Error::Full { .. })));
    drop(builder);
    assert_eq!(bench.storage.length(FILE).ok(), Some(None));
}

/// Keys out of order are a bug of the caller, so they panic.
#[test]
#[should_panic(expected = "strictly ascending")]
fn keys_out_of_order_panic() {
    let bench = Bench::new();
    let mut builder = TableBuilder::new(Arc::clone(&bench.storage), IDENTITY).expect("created");
    builder.begin(TREE, SHAPE).expect("begun");
    for key in [b"b", b"a"] {
        builder.add(key, bench.secret.hash(key), ItemKind::Put, b"").expect("added");
    }
}

/// Range tombstones survive, widen the bounds but not the span of items, and are covered by the file's check,
/// also in several extents.
#[test]
fn ranges_are_kept_beside_items() {
    let model: TableModel = [(b"k".to_vec(), Some(vec![1; 10])), (b"m".to_vec(), None)].into_iter().collect();
    let many: Vec<[Vec<u8>; 2]> = (0..9000u32)
        .map(|number| {
            [
                [&b"l"[..], &(2 * number).to_be_bytes()].concat(),
                [&b"l"[..], &(2 * number + 1).to_be_bytes()].concat(),
            ]
        })
        .collect();
    let many: Vec<(&[u8], &[u8])> = many.iter().map(|[start, end]| (&**start, &**end)).collect();
    /// Ranges, and the bounds of a slice with them.
    type Set<'a> = (&'a [(&'a [u8], &'a [u8])], &'a [u8], Option<&'a [u8]>);
    let sets: [Set<'_>; 5] = [
        (&[(b"a", b"b")], b"a", Some(b"m")),
        (&[(b"k\0", b"l")], b"k", Some(b"m")),
        (&[(b"a", b"n"), (b"o", b"p\0")], b"a", Some(b"p")),
        (&[(b"x", b"")], b"k", None),
        (&many, b"k", Some(b"m")),
    ];
    for (ranges, min, max) in sets {
        let bench = Bench::new();
        let summary = bench.build_with(&model, ranges);
        let table = bench.open(&summary).expect("opens").remove(0);
        assert_eq!((table.min(), table.bounded_max()), (min, max));
        assert_eq!(table.ranges().count(), ranges.len());
        assert!(table.ranges().iter().eq(ranges.iter().copied()));
        assert_eq!(summary.slices[0].ranges as usize, ranges.len());
        assert!(table.spans(b"k") && table.spans(b"m") && !table.spans(b"j") && !table.spans(b"m\0"));
        assert!(table.admits(min) && table.admits(table.max()) && !table.admits(b""));
        bench.verify(&summary).expect("sound");
        stream_agrees(&bench, &table, &model, "with ranges");
        assert!(table.memory_bytes() > table.ranges().memory_bytes());
    }
}
