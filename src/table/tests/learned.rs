//! Tables with learned pages: models find every key, in slices of several pages, with models and with fences.

use super::*;
use crate::format::table::index::IndexPage;
use crate::format::table::learned::LearnedPage;

/// Blocks of the smallest size, so that a page fills quickly.
const LEARNED: SliceShape = SliceShape { index: IndexPlan::Learned, block_bytes: 512, ..SHAPE };
/// Enough items for a page.
const GATHER_BYTES: usize = 900 << 10;

/// Builds a file of one slice with a small gather buffer.
fn build(bench: &Bench, model: &TableModel) -> TableSummary {
    let mut builder = TableBuilder::new(Arc::clone(&bench.storage), IDENTITY).expect("created");
    builder.set_memory_bytes(4 * GATHER_BYTES);
    builder.begin(TREE, LEARNED).expect("begun");
    for (key, value) in model {
        let (kind, value) = expected(value);
        builder.add(key, bench.secret.hash_in(TREE.keyspace, key), kind, &value).expect("added");
    }
    builder.end().expect("ended");
    builder.finish().expect("finished").summary
}

/// For each page of the slice: whether it is learned, and its number of blocks.
fn pages(bench: &Bench, table: &TableReader) -> Vec<(bool, usize)> {
    let (contents, span) = (bench.contents(), table.entry().fence_span());
    let pages =
        contents[span.offset as usize..span.end() as usize].chunks(table.entry().fence_page_bytes() as usize);
    pages.map(|page| (LearnedPage::is_learned(page), IndexPage::of(page).blocks().count())).collect()
}

/// Linear keys, random keys, keys with equal model inputs, then linear keys again: all are found, with any
/// kind of page, and absent keys are not.
#[test]
fn keys_are_where_models_say() {
    let mut dice = Dice(7);
    let even = |from: u64| {
        (0..16_000).map(move |n| ((from + n * 3).to_be_bytes().to_vec(), Some(vec![n as u8; 40])))
    };
    let random = (0..16_000).map(|_| ([&[9u8][..], &dice.bytes(11)].concat(), Some(vec![3; 40])));
    let tied = (0..16_000u32).map(|n| {
        let key = [&[b'~'; 30][..], &[b'a' + (n / 8000) as u8; 40], format!("{n:09}").as_bytes()].concat();
        (key, if n % 7 == 0 { None } else { Some(vec![5; 10]) })
    });
    let model: TableModel = even(0).chain(random).chain(tied).chain(even(0xffff_ffff_0000_0000)).collect();
    let bench = Bench::new();
    let summary = build(&bench, &model);
    assert_eq!(bench.contents()[16..24], 8u64.to_le_bytes(), "the header says that there are learned pages");
    let table = bench.open(&summary).expect("opens").remove(0);
    let pages = pages(&bench, &table);
    let learned = pages.iter().filter(|(is_learned, _)| *is_learned).count();
    assert!(learned >= 4 && learned < pages.len(), "{pages:?}");
    assert_eq!(
        pages.iter().map(|(_, blocks)| *blocks as u64).sum::<u64>(),
        u64::from(table.entry().data_blocks)
    );
    bench.verify(&summary).expect("a sound file verifies");
    for budget_bytes in [0, 4 << 20] {
        let table = bench.open(&summary).expect("opens").remove(0);
        table.load_all_pages(bench.storage.as_ref(), &PageBudget::alone(budget_bytes)).expect("loads");
        for key in probes(&model).iter().chain(model.keys().step_by(11)) {
            assert_eq!(bench.get(&table, key).expect("reads"), model.get(key).map(expected), "{key:?}");
        }
        walks_of(&bench, &summary, budget_bytes, ("learned", &model));
    }
}

/// A cursor skips empty blocks, in both directions and from any key.
#[test]
fn cursors_pass_over_empty_blocks() {
    // A large value covers the positions of several blocks, of which only one has items.
    let value_bytes = |n: u64| if n % 1000 == 500 { 2000 } else { 40 };
    let model: TableModel = (0..12_000u64)
        .map(|n| ((n * 16).to_be_bytes().to_vec(), Some(vec![n as u8; value_bytes(n)])))
        .collect();
    let bench = Bench::new();
    let summary = build(&bench, &model);
    let table = bench.open(&summary).expect("opens").remove(0);
    let contents = bench.contents();
    let span = table.entry().fence_span();
    let chunks =
        contents[span.offset as usize..span.end() as usize].chunks(table.entry().fence_page_bytes() as usize);
    let has_empty = |page: &[u8]| {
        LearnedPage::is_learned(page) && IndexPage::of(page).ends() > IndexPage::of(page).blocks().count()
    };
    assert!(chunks.into_iter().any(has_empty), "the keys need a page with empty blocks");
    for budget_bytes in [0, 4 << 20] {
        walks_of(&bench, &summary, budget_bytes, ("with empty blocks", &model));
    }
    bench.verify(&summary).expect("a sound file verifies");
}
