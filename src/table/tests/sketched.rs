//! Tables whose fences find no room in memory.

use super::*;
use crate::lab::KeyFamily;

/// A table of these keys, opened.
fn opened(bench: &Bench, keys: &[Vec<u8>], shape: SliceShape) -> (TableSummary, Arc<TableReader>) {
    let model: TableModel = keys.iter().map(|key| (key.clone(), Some(vec![7; 100]))).collect();
    let summary = bench.build(&[(TREE, shape, &model)]);
    let table = bench.open(&summary).expect("opens").remove(0);
    (summary, table)
}

/// If the fences exceed a budget that sketches fit, nearly all keys find their block by sketch, the same as
/// by the fences. Keys whose sketches are not worth it keep as many fences as fit.
#[test]
fn sketches_stand_for_fences() {
    for family in KeyFamily::ALL {
        let bench = Bench::new();
        let keys = family.keys(60_000, 5);
        let compression = if family == KeyFamily::Hex { Compression::Lz4 } else { Compression::None };
        let (summary, table) = opened(&bench, &keys, SliceShape { compression, ..SHAPE });
        let whole = bench.open(&summary).expect("opens").remove(0);
        whole.load_all_pages(bench.storage.as_ref(), &PageBudget::alone(1 << 22)).expect("loads");
        let (fence_bytes, _) = table.fence_bytes();
        assert!(fence_bytes >= 16 << 10, "{family:?}: {fence_bytes} bytes of fences");
        let budget = PageBudget::alone(table.memory_bytes() as u64 + fence_bytes * 3 / 4);
        let wanted = [(PageRank::Fences, Arc::clone(&table))];
        load_pages(&bench.storage, &budget, u64::MAX, wanted.into_iter(), Err).expect("all is whole");
        let sketches_bytes = table.sketches_bytes();
        assert!(sketches_bytes <= fence_bytes / 4 && table.fence_bytes().1 == 0);
        assert!(table.lacks_pages(), "fences are tried again");
        let mut asked = 0;
        for key in &keys {
            for probe in [key.clone(), [&key[..], b"\0"].concat(), key[..key.len() - 1].to_vec()] {
                if !table.admits(&probe) {
                    continue;
                }
                match (table.fence(&probe, None), whole.fence(&probe, None)) {
                    (Fenced::Need(_), _) => asked += usize::from(probe == *key),
                    (Fenced::Block(own), Fenced::Block(others)) => assert_eq!(own.extent, others.extent),
                    others => panic!("{family:?}: {others:?} of {probe:?}"),
                }
            }
        }
        println!("{}: {sketches_bytes} of {fence_bytes}, {asked} asked", family.name());
        assert!(if sketches_bytes > 0 { asked * 2 < keys.len() } else { asked == keys.len() });
        let is_number = ["decimal", "hex", "YCSB user", "random binary", "words", "long equal prefix"];
        let is_good = sketches_bytes > 0 && asked * 20 < keys.len();
        assert!(is_good || !is_number.contains(&family.name()), "{family:?}: {asked} asked");
        drop((table, budget));
    }
}

/// If not all fence pages fit, whole pages leave room to sketches; they have all of it again when tables are
/// dropped.
#[test]
fn fences_leave_room_for_sketches() {
    let bench = Bench::new();
    let keys = KeyFamily::Hex.keys(40_000, 5);
    let model: TableModel = keys.iter().map(|key| (key.clone(), Some(vec![7; 100]))).collect();
    let tree = |number| TreeId { partition: PartitionId(number), ..TREE };
    let slices: Vec<_> = (1..=6).map(|number| (tree(number), SHAPE, &model)).collect();
    let mut tables = bench.open(&bench.build(&slices)).expect("opens");
    let fence_bytes = tables[0].fence_bytes().0;
    let own_bytes: usize = tables.iter().map(|table| table.memory_bytes()).sum();
    let budget = PageBudget::alone(own_bytes as u64 + 3 * fence_bytes);
    let wanted = || tables.iter().map(|table| (PageRank::Fences, Arc::clone(table)));
    tables.iter().for_each(|table| table.account(&budget));
    // None at first; then one table's at a time.
    load_pages(&bench.storage, &budget, 0, wanted(), Err).expect("all is whole");
    assert!(tables.iter().all(|table| table.sketches_bytes() == 0));
    let mut turns = 0;
    while !budget.take_put_off().is_empty() {
        load_pages(&bench.storage, &budget, 1, wanted(), Err).expect("all is whole");
        turns += 1;
    }
    assert!(turns >= 4, "{turns} turns");
    let kept: Vec<bool> = tables.iter().map(|table| table.fence_bytes().1 > 0).collect();
    let sketched: Vec<bool> = tables.iter().map(|table| table.sketches_bytes() > 0).collect();
    let whole = kept.iter().filter(|is_whole| **is_whole).count();
    assert!((1..3).contains(&whole), "{kept:?}");
    assert!(kept.iter().zip(&sketched).all(|(kept, sketched)| kept != sketched), "{kept:?} {sketched:?}");
    tables.truncate(2);
    let wanted = tables.iter().map(|table| (PageRank::Fences, Arc::clone(table)));
    load_pages(&bench.storage, &budget, u64::MAX, wanted, Err).expect("all is whole");
    assert!(tables.iter().all(|table| table.fence_bytes().1 > 0), "all fit now");
    drop(tables);
    assert_eq!(budget.pinned_bytes(), 0);
}
