//! Tables of hashed keyspaces: keys without places in blocks, quanta instead of separators in fences.

use super::*;
use crate::base::hash::HashSecret;
use crate::base::place::{PLACED_KEY_BYTES_MAX, stored_key};
use crate::format::table::fence::FencePage;

const HASHED: TreeId = TreeId { keyspace: KeyspaceId(KeyspaceId::HASHED | 1), partition: PartitionId(1) };

fn stored(secret: &HashSecret, key: &[u8]) -> Vec<u8> {
    stored_key(secret, HASHED.keyspace, key).to_vec()
}

fn placed(secret: &HashSecret, model: &TableModel) -> TableModel {
    let fits = |key: &&Vec<u8>| key.len() <= PLACED_KEY_BYTES_MAX;
    model.keys().filter(fits).map(|key| (stored(secret, key), model[key].clone())).collect()
}

/// Every shape is found again in the order of places, by get, stream and cursor.
#[test]
fn hashed_tables_agree_with_maps() {
    let secret = Bench::new().secret;
    for (name, model) in shapes() {
        let placed = placed(&secret, &model);
        if !placed.is_empty() {
            let probes: Vec<_> = probes(&model).iter().map(|key| stored(&secret, key)).collect();
            agrees(name, HASHED, &placed, &probes);
            walks_agree(name, HASHED, &placed);
        }
    }
}

/// A key without a place, which bounds a range, lies among others in a table.
#[test]
fn bounds_lie_among_items() {
    let bench = Bench::new();
    for items in [0, 1, 20, 2000u32] {
        let put = |n: u32| (stored(&bench.secret, &n.to_be_bytes()), Some(vec![7; 50]));
        let model: TableModel = (0..items).map(put).chain([(vec![], None)]).collect();
        let probes: Vec<_> = model.keys().cloned().collect();
        agrees("a bound", HASHED, &model, &probes);
    }
}

/// A run of items with equal places up to the last bits, as keys ground for it would have; and tables with
/// more of them than fit one block.
#[test]
fn items_of_one_quantum_are_found() {
    let mut dice = Dice(9);
    let secret = Bench::new().secret;
    let all: Vec<Vec<u8>> = (0..60_000u32).map(|n| stored(&secret, &n.to_be_bytes())).collect();
    let head = |key: &Vec<u8>| key[..2].to_vec();
    let narrow = all.iter().filter(|key| head(key) == head(&all[0]));
    let ground: TableModel = narrow.map(|key| (key.clone(), Some(dice.bytes(3000)))).collect();
    let mut mixed: TableModel =
        all.iter().take(3000).map(|key| (key.clone(), Some(dice.bytes(100)))).collect();
    mixed.extend(ground.clone());
    for (name, model) in [("ground", ground), ("ground among others", mixed)] {
        let probes: Vec<_> = all.iter().take(3500).cloned().collect();
        agrees(name, HASHED, &model, &probes);
    }
}

/// With another store's secret the keys are out of order; streams, cursors and checks report it.
#[test]
fn the_order_of_another_secret_is_damage() {
    let bench = Bench::new();
    let put = |n: u32| (stored(&bench.secret, &n.to_be_bytes()), Some(vec![7; 50]));
    let model: TableModel = (0..2000).map(put).collect();
    let summary = bench.build(&[(HASHED, SHAPE, &model)]);
    let other = Bench {
        secret: HashSecret::expand([6; 16]),
        owner: TableOwner::alone(HashSecret::expand([6; 16])),
        ..bench
    };
    let table = other.open(&summary).expect("opens").remove(0);
    let load = Arc::new(DeviceLoad::default());
    let stream = TableStream::new(Arc::clone(&other.storage), load, Arc::clone(&table), 4096);
    assert!(stream.is_err_and(|error| error.to_string().contains("first key of a slice")));
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = TableCursor::new(Arc::clone(&table), direction);
        cursor.seek(Bound::Unbounded);
        let error = loop {
            match other.settle(&mut cursor) {
                Ok(ready) => assert!(ready, "an end without an error"),
                Err(error) => break error,
            }
            cursor.advance();
        };
        assert!(error.to_string().contains("order of keys"), "{error}");
        assert_eq!(cursor.poll(None).ok(), Some(Moved::End), "and ends there");
    }
    assert!(other.verify(&summary).is_err());
}

/// Slices that begin with a large value, or that have only values of one block each, have quanta too.
#[test]
fn fences_of_large_items_are_small() {
    for (items, first_bytes, value_bytes) in
        [(100_000, 9 << 10, 100), (100_000, 40 << 10, 100), (8000, 5 << 10, 5 << 10)]
    {
        let (bench, mut dice) = (Bench::new(), Dice(5));
        let keys: Vec<Vec<u8>> = (0..items).map(|_| stored(&bench.secret, &dice.bytes(16))).collect();
        let first = keys.iter().min().expect("there are some");
        let bytes = |key: &Vec<u8>| if key == first { first_bytes } else { value_bytes };
        let model: TableModel = keys.iter().map(|key| (key.clone(), Some(vec![7; bytes(key)]))).collect();
        let table = bench.open(&bench.build(&[(HASHED, SHAPE, &model)])).expect("opens").remove(0);
        let (entry, name) = (table.entry(), format!("first {first_bytes}, others {value_bytes}"));
        let fence_bytes = entry.fence_span().bytes / u64::from(entry.data_blocks);
        assert!(fence_bytes < 4, "{name}: {fence_bytes} bytes a block");
    }
}

/// Size of blocks and fences for items of 16 and 100 bytes: the bounds, at this size.
#[test]
fn hashed_tables_are_small() {
    let bench = Bench::new();
    let mut dice = Dice(4);
    let model: TableModel =
        (0..100_000).map(|_| (stored(&bench.secret, &dice.bytes(16)), Some(dice.bytes(100)))).collect();
    let summary = bench.build(&[(HASHED, SHAPE, &model)]);
    let table = bench.open(&summary).expect("opens").remove(0);
    let entry = table.entry();
    let (data, blocks) = (entry.data().bytes as f64, f64::from(entry.data_blocks));
    let payload = (model.len() * 116) as f64 / data;
    let fences = entry.fence_span();
    let pages = bench.contents()[fences.offset as usize..fences.end() as usize].to_vec();
    let pages: Vec<_> = pages.chunks(entry.fence_page_bytes() as usize).collect();
    assert!(pages.iter().all(|page| page[5] & 4 != 0), "all are of quanta");
    assert!(pages.iter().all(|page| FencePage::of(page).blocks() > 0));
    let fence_bytes = fences.bytes as f64 / blocks;
    assert!(payload >= 0.955, "payload {payload}");
    assert!(fence_bytes <= 1.4, "fences {fence_bytes} bytes a block");
}
