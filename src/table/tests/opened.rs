//! Tables opened by their builder, and many files opened at once.

use std::collections::BTreeSet;

use super::*;
use crate::base::id::FileName;
use crate::format::table::footer::Span;
use crate::format::table::{PAGE_BYTES, UNIT_BYTES};
use crate::io::sim::{DiskCall, Operation};

/// A builder that opens its tables reads none of its output back. The pages that opening would have loaded
/// stay in memory as far as there is room, and the tables give the same answers.
#[test]
fn built_tables_are_open() {
    let mut dice = Dice(9);
    let large: TableModel = (0..9000).map(|_| (dice.bytes(16), Some(vec![7; 100]))).collect();
    let small: TableModel = [(b"one".to_vec(), Some(vec![1])), (b"two".to_vec(), None)].into_iter().collect();
    let other = TreeId { partition: PartitionId(2), ..TREE };
    for limit_bytes in [1 << 20, 24 << 10, 0] {
        let bench = Bench::new();
        let budgets = [limit_bytes, limit_bytes].map(PageBudget::alone);
        bench.disk.start_log();
        let mut builder = TableBuilder::new(Arc::clone(&bench.storage), IDENTITY).expect("created");
        builder.open_with(OpenWith {
            fences: PageRank::Fences,
            pages: Arc::clone(&budgets[0]),
            filters: PageRank::LastFilters,
            otherwise: Otherwise::Leave,
            owner: bench.owner.clone(),
        });
        for (tree, model, ranges) in [(TREE, &large, true), (other, &small, false)] {
            builder.begin(tree, SHAPE).expect("begun");
            for (key, value) in model {
                let (kind, value) = expected(value);
                builder.add(key, bench.secret.hash(key), kind, &value).expect("added");
            }
            if ranges {
                builder.add_range(b"", b"\0");
            }
            builder.end().expect("ended");
        }
        let built = builder.finish().expect("finished");
        let is_read = |call: &DiskCall| call.operation == Operation::Read;
        assert!(bench.disk.log().len() > 2 && !bench.disk.log().iter().any(is_read));
        let opened = bench.open(&built.summary).expect("opens");
        for table in &opened {
            table.load_all_pages(bench.storage.as_ref(), &budgets[1]).expect("loads");
        }
        assert_eq!(budgets[0].pinned_bytes(), budgets[1].pinned_bytes());
        assert_eq!(budgets[0].pinned_bytes() > 0, limit_bytes > 0);
        // A table that lacks pages is noted when it is published: no version has it before.
        assert!(budgets[0].take_short().is_empty());
        assert_eq!(built.tables.iter().any(|table| table.lacks_pages()), limit_bytes < 1 << 20);
        assert_eq!(built.tables.len(), opened.len());
        for ((table, opened), model) in built.tables.iter().zip(&opened).zip([&large, &small]) {
            assert_eq!(table.entry(), opened.entry());
            assert!(table.ranges().iter().eq(opened.ranges().iter()));
            assert_eq!((table.min(), table.bounded_max()), (opened.min(), opened.bounded_max()));
            assert_eq!(table.memory_bytes(), opened.memory_bytes());
            assert_eq!(table.filter_bytes(), opened.filter_bytes());
            assert_eq!(table.fence_bytes(), opened.fence_bytes());
            stream_agrees_but_for_tree(&bench, table, model);
            for key in model.keys().step_by(7).cloned().chain((0..200).map(|_| dice.bytes(16))) {
                let hash = bench.secret.hash(&key);
                assert_eq!(table.filter(&key, hash, None), opened.filter(&key, hash, None));
                assert_eq!(table.fence(&key, None), opened.fence(&key, None));
            }
        }
    }
}

/// Files opened together have the same tables as when opened alone, and pages loaded together are those
/// loaded alone: as many as fit, in the order given. A damaged page affects only its slice.
#[test]
fn many_files_open_at_once() {
    let bench = Bench::new();
    let mut files = many_files(&bench);
    let mut opened: Vec<Vec<Arc<TableReader>>> = vec![Vec::new(); files.len()];
    open_files(&bench.storage, &files, &|_, _| true, &bench.owner, |index, tables| {
        opened[index] = tables;
        Ok(())
    })
    .expect("all are whole");
    let alone = |(identity, bytes, checksum): &(TableIdentity, u64, u32)| {
        TableFile::open(&bench.storage, *identity, *bytes, *checksum, &bench.owner).expect("opens")
    };
    let tables = || opened.iter().flatten();
    for limit_bytes in [4 << 20, 100 << 10] {
        let budgets = [limit_bytes, limit_bytes].map(PageBudget::alone);
        let others: Vec<Arc<TableReader>> = files.iter().flat_map(alone).collect();
        let again: Vec<Arc<TableReader>> = files.iter().flat_map(alone).collect();
        assert!(tables().map(|one| one.entry()).eq(others.iter().map(|one| one.entry())));
        let wanted = || [PageRank::Fences, PageRank::LastFilters].into_iter();
        let all = |tables: &[Arc<TableReader>]| -> Vec<(PageRank, Arc<TableReader>)> {
            wanted().flat_map(|rank| tables.iter().map(move |one| (rank, Arc::clone(one)))).collect()
        };
        load_pages(&bench.storage, &budgets[0], u64::MAX, all(&others).into_iter(), Err)
            .expect("all are whole");
        for (rank, table) in all(&again) {
            if let Some(mut load) = table.begin_load(&budgets[1], (rank, true)) {
                load.read(&*bench.storage).expect("it is whole");
                table.end_load(load, &budgets[1]);
            }
        }
        assert_eq!(budgets[0].pinned_bytes(), budgets[1].pinned_bytes());
        for (one, other) in others.iter().zip(&again) {
            assert_eq!((one.filter_bytes(), one.fence_bytes()), (other.filter_bytes(), other.fence_bytes()));
            let hash = bench.secret.hash(one.min());
            assert_eq!(one.filter(one.min(), hash, None), other.filter(one.min(), hash, None));
            assert_eq!(one.fence(one.min(), None), other.fence(one.min(), None));
        }
        let is_short = others.iter().any(|one| one.filter_bytes().1 == 0);
        assert_eq!(is_short, limit_bytes < 1 << 20);
    }
    damage_is_told(&bench, &mut files, &opened);
}

/// Pages of which only a part is kept leave room for others, which were refused while these were whole.
#[test]
fn parts_of_pages_leave_room() {
    const SLICES: u32 = 400;
    let bench = Bench::new();
    let mut builder = TableBuilder::new(Arc::clone(&bench.storage), IDENTITY).expect("created");
    for partition in 1..=SLICES {
        builder.begin(TreeId { partition: PartitionId(partition), ..TREE }, SHAPE).expect("begun");
        for number in 0..450u32 {
            let key = number.to_be_bytes();
            builder.add(&key, bench.secret.hash(&key), ItemKind::Put, &[7; 100]).expect("added");
        }
        builder.end().expect("ended");
    }
    let tables = bench.open(&builder.finish().expect("finished").summary).expect("opens");
    let whole_bytes: u64 = tables.iter().map(|table| table.fence_bytes().0).sum();
    let own_bytes: usize = tables.iter().map(|table| table.memory_bytes()).sum();
    assert_eq!(whole_bytes, u64::from(SLICES) * UNIT_BYTES as u64);
    let budget = PageBudget::alone(own_bytes as u64 + whole_bytes * 4 / 5);
    // The state of a store whose data is many times the cache.
    let taken: Vec<_> = std::iter::from_fn(|| budget.frame_hints(10)).collect();
    let wanted = tables.iter().map(|table| (PageRank::Fences, Arc::clone(table)));
    load_pages(&bench.storage, &budget, u64::MAX, wanted, Err).expect("all are whole");
    assert!(taken.len() > 10);
    let lacking = tables.iter().filter(|table| table.fence_bytes().1 == 0).count();
    assert_eq!(lacking, 0, "{} bytes pinned", budget.pinned_bytes());
    assert!(budget.pinned_bytes() < whole_bytes * 3 / 4, "{} bytes pinned", budget.pinned_bytes());
    drop(tables);
    assert_eq!(budget.pinned_bytes(), 0);
}

/// A file as the manifest names it.
type Named = (TableIdentity, u64, u32);

/// Files of one to seven slices, most of them small.
fn many_files(bench: &Bench) -> Vec<Named> {
    let mut dice = Dice(11);
    let mut files = Vec::new();
    for number in 1..=50u64 {
        let file = FileName { number, ..FILE };
        let identity = TableIdentity { file, uid: number * 31, ..IDENTITY };
        let mut builder = TableBuilder::new(Arc::clone(&bench.storage), identity).expect("created");
        for partition in 1..=1 + number as u32 % 7 {
            builder.begin(TreeId { partition: PartitionId(partition), ..TREE }, SHAPE).expect("begun");
            let count = if (number + u64::from(partition)).is_multiple_of(9) { 3000 } else { 3 };
            let model: TableModel = (0..count).map(|_| (dice.bytes(16), Some(vec![7; 100]))).collect();
            for (key, value) in &model {
                let (kind, value) = expected(value);
                builder.add(key, bench.secret.hash(key), kind, &value).expect("added");
            }
            builder.end().expect("ended");
        }
        let summary = builder.finish().expect("finished").summary;
        files.push((identity, summary.bytes, summary.checksum));
    }
    files
}

/// Damages a page of the filter of one slice, and replaces a file by another.
fn damage_is_told(bench: &Bench, files: &mut [Named], opened: &[Vec<Arc<TableReader>>]) {
    let damaged = opened[5][1].entry().filter_span();
    let mut bytes = bench.disk.contents(files[5].0.file).expect("it is there");
    bytes[damaged.offset as usize + 100] ^= 1;
    bench.disk.set_contents(files[5].0.file, Some(&bytes));
    let (budget, mut told) = (PageBudget::alone(4 << 20), Vec::new());
    let tables = || opened.iter().flatten();
    let wanted = tables().map(|one| (PageRank::LastFilters, Arc::clone(one)));
    let failed = |error: Error| {
        told.push(error.to_string());
        Ok(())
    };
    load_pages(&bench.storage, &budget, u64::MAX, wanted, failed).expect("it is only told");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&files[5].0.file.to_string()), "{told:?}");
    assert_eq!(tables().filter(|one| one.filter_bytes().1 == 0).count(), 1);
    files[30].0.uid += 1;
    let other = open_files(&bench.storage, files, &|_, _| true, &bench.owner, |_, _| Ok(()));
    assert!(matches!(other, Err(Error::Corrupt(at)) if at.what == "the file uid"));
}

/// Slices of any length end in any order: each page is freed once, with the last slice that lies in it.
#[test]
fn each_page_is_given_back_once() {
    let (unit, page) = (UNIT_BYTES as u64, PAGE_BYTES as u64);
    for seed in 1..=200 {
        let mut dice = Dice(seed);
        let mut at = page;
        let mut alive: Vec<Span> = Vec::new();
        for _ in 0..1 + dice.roll(30) {
            let units_max = [3, 20, 100][dice.roll(3) as usize];
            let bytes = unit * (1 + dice.roll(units_max));
            alive.push(Span { offset: at, bytes });
            at += bytes;
        }
        let end = at;
        let (mut free, mut given) = (Vec::new(), BTreeSet::new());
        while !alive.is_empty() {
            let index = dice.roll(alive.len() as u64) as usize;
            let dead = alive.swap_remove(index);
            if let Some(hole) = super::super::open::free_pages(&mut free, dead) {
                assert!(
                    hole.offset.is_multiple_of(page) && hole.bytes.is_multiple_of(page) && hole.bytes > 0
                );
                (hole.offset..hole.end()).step_by(PAGE_BYTES).for_each(|page| assert!(given.insert(page)));
            }
            let is_alive = |from: u64| alive.iter().any(|one| one.offset < from + page && from < one.end());
            let pages = (page..end / page * page).step_by(PAGE_BYTES);
            assert!(pages.filter(|from| !is_alive(*from)).eq(given.iter().copied()));
        }
        assert_eq!(free, [Span { offset: page, bytes: end - page }]);
    }
}

/// Holes are taken a few at a time, neighbours as one span, and none of an obsolete file; while holes are
/// being punched the work is not done.
#[test]
fn holes_are_taken_in_pieces() {
    let event = Arc::new(crate::base::sync::Event::new());
    let discarded = super::super::open::Discarded::new(Arc::clone(&event));
    let file = |number| FileName::new(crate::base::id::FileKind::Table, number);
    let page = |number: u64| Span { offset: number * 4096, bytes: 4096 };
    for (number, at) in [(7, 3), (8, 1), (7, 9), (7, 2), (7, 1), (8, 2), (9, 5)] {
        discarded.note_dying_slice();
        discarded.end_slice(file(number), Some(page(at)));
    }
    discarded.note_dying_slice();
    discarded.end_slice(file(7), None);
    discarded.note_obsolete(file(9));
    discarded.note_dying_slice();
    discarded.end_slice(file(9), Some(page(6)));
    let mut taken = Vec::new();
    loop {
        let some = discarded.take_holes(2);
        assert!(some.len() <= 2 && !discarded.is_empty());
        taken.extend(some);
        let seen = event.seen();
        let are_left = discarded.end_holes();
        assert_eq!(event.seen() > seen, are_left, "the next look comes at once");
        if !are_left {
            break;
        }
    }
    let joined = |from: u64, pages: u64| Span { offset: from * 4096, bytes: pages * 4096 };
    assert_eq!(taken, [(file(8), joined(1, 2)), (file(7), joined(1, 3)), (file(7), joined(9, 1))]);
    discarded.forget(file(9));
    assert!(discarded.is_empty() && discarded.take_holes(2).is_empty());
}

/// For any number of node fences of a trie, memory is left for the filters of its root.
#[test]
fn fences_of_nodes_leave_room() {
    let limit_bytes = 1 << 20;
    let budget = PageBudget::alone(limit_bytes);
    let take = |rank| budget.take(1, 4096, (rank, false));
    let fences: Vec<_> = std::iter::from_fn(|| take(PageRank::NodeFences)).collect();
    assert!(fences.len() as u64 * 4096 <= limit_bytes / 16 * 14 && fences.len() > 200, "{}", fences.len());
    let filters: Vec<_> = std::iter::from_fn(|| take(PageRank::UpperFilters)).collect();
    assert!(filters.len() >= 15, "{} pages of filters", filters.len());
    assert!(take(PageRank::Fences).is_some());
}
