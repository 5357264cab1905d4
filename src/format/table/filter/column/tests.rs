//! Column pages: added items are found, pages fit, hostile bytes do no harm.

use super::*;
use crate::base::checksum::Context;
use crate::base::step::BlockKind;
use crate::format::golden::Golden;
use crate::format::table::filter::check;
use crate::format::table::seal;
use proptest::prelude::*;

const OWN: ColumnRun = ColumnRun { name: (0, 0), millibits: 16_000, probes: 11 };
const OLDER: ColumnRun = ColumnRun { name: (7, 3), millibits: 10_000, probes: 7 };

/// Distinct hashes.
fn hashes(column: u64, run: u64, count: u64) -> Vec<u64> {
    (0..count).map(|item| (item + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ column << 32 ^ run << 50).collect()
}

/// Pages with these numbers of items for each of two runs in each column.
fn pages(counts: &[[u64; 2]]) -> (FilterShape, Vec<u8>) {
    let mut single = Columns::new(vec![ColumnRun { name: (0, 0), ..OLDER }]);
    (0..counts.len()).for_each(|column| single.add_own(&hashes(column as u64, 1, counts[column][1])));
    let mut of_older = Vec::new();
    let older = single.build(20, &mut of_older);
    let mut columns = Columns::new(vec![OWN, OLDER]);
    for (column, [own, _]) in counts.iter().enumerate() {
        columns.add_own(&hashes(column as u64, 0, *own));
        let (page, index) = (column / older.columns.a_page as usize, column % older.columns.a_page as usize);
        let page = &of_older[page * older.page_bytes as usize..][..older.page_bytes as usize];
        columns.add(ColumnPage::of(page).filters(index).next().expect("it has a run"));
    }
    let mut out = Vec::new();
    let shape = columns.build(20, &mut out);
    assert!(shape.is_valid() && out.len() as u64 == shape.bytes());
    (shape, out)
}

/// The page of a column, and the column's index in the page.
fn page_of<'p>(shape: &FilterShape, pages: &'p [u8], column: usize) -> (ColumnPage<'p>, usize) {
    let a_page = shape.columns.a_page as usize;
    let bytes = shape.page_bytes as usize;
    (ColumnPage::of(&pages[column / a_page * bytes..][..bytes]), column % a_page)
}

proptest! {
    /// Every item passes in every column, and a copied filter gives the same answers; all pages pass the
    /// check.
    #[test]
    fn items_are_told_of(counts in proptest::collection::vec((0u64..80, 0u64..80), 1..300)) {
        let counts: Vec<[u64; 2]> = counts.into_iter().map(|(own, older)| [own, older]).collect();
        let (shape, pages) = pages(&counts);
        for page in pages.chunks(shape.page_bytes as usize) {
            prop_assert!(check(page).is_ok());
        }
        for (column, counts) in counts.iter().enumerate() {
            let (page, index) = page_of(&shape, &pages, column);
            prop_assert_eq!((page.runs(), page.run(1)), (2, OLDER));
            for (run, count) in counts.iter().enumerate() {
                for hash in hashes(column as u64, run as u64, *count) {
                    prop_assert_eq!(page.tell(index, hash).nth(run), Some(Some(true)));
                }
            }
        }
    }

    /// Changed bytes do no harm: the page is refused, or every query gets some answer.
    #[test]
    fn hostile_pages_are_harmless(at in 5usize..600, value in any::<u16>(), hash in any::<u64>()) {
        let (shape, mut pages) = pages(&[[30, 40]; 20]);
        let page = &mut pages[..shape.page_bytes as usize];
        page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        let is_good = check(page).is_ok();
        let page = ColumnPage::of(page);
        for column in 0..page.columns().min(300) {
            let told = page.tell(column, hash).count();
            prop_assert!(!is_good || told == page.runs());
        }
    }
}

/// Few absent keys pass: at 16 bits about 0.05 %, in a column of 35 items.
#[test]
fn few_absent_keys_pass() {
    let (shape, pages) = pages(&[[35, 35]; 400]);
    let (mut passed, mut asked) = ([0u32; 2], 0u32);
    for column in 0..400 {
        let (page, index) = page_of(&shape, &pages, column);
        for absent in hashes(column as u64, 5, 500) {
            asked += 1;
            for (run, may_have) in page.tell(index, absent).enumerate() {
                passed[run] += u32::from(may_have.expect("it is told"));
            }
        }
    }
    let permille = passed.map(|passed| f64::from(passed) * 1000.0 / f64::from(asked));
    assert!(permille[0] < 0.7 && permille[1] < 10.0, "{permille:?} of 1,000");
}

/// Filters that do not fit a page are left out, the longest first, and get no answer.
#[test]
fn long_filters_are_left_out() {
    let mut counts = [[20, 30]; 30];
    (counts[7][0], counts[9][1]) = (600, 900);
    let (shape, pages) = pages(&counts);
    for (column, [run, _]) in [(7, [0, 1]), (9, [1, 0])] {
        let (page, index) = page_of(&shape, &pages, column);
        let told: Vec<_> = page.tell(index, 5).collect();
        assert!(told[run].is_none() && told[1 - run].is_some(), "{told:?}");
    }
    let mut columns = Columns::new((0..64).map(|run| ColumnRun { name: (run, 0), ..OWN }).collect());
    columns.add_own(&hashes(0, 0, 60));
    let filter = [0xff; 120];
    (1..64).for_each(|_| columns.add(Some(ColumnFilter { items: 60, bytes: &filter })));
    let mut out = Vec::new();
    let shape = columns.build(3, &mut out);
    assert_eq!((shape.pages, check(&out)), (1, Ok(())));
    let told = ColumnPage::of(&out).tell(0, 1).flatten().count();
    assert!((15..40).contains(&told), "{told} filters of 122 bytes fit");
}

/// A key's page and column follow from its first bits and the slice's first key.
#[test]
fn places_of_keys() {
    let shape = ColumnShape { bits: 12, a_page: 10 };
    let min = [0x10, 0x00, 9, 9, 9, 9, 9, 9, 9, 9, 9];
    for (key, place) in [([0x10, 0x0f], (0, 0)), ([0x10, 0x90], (0, 9)), ([0x10, 0xa0], (1, 0))] {
        assert_eq!(shape.place(&min, &key), place);
    }
    assert!(shape.place(&min, &[0x0f, 0xff]).0 > u64::from(u32::MAX));
}

/// Every check of a page has an input that trips it.
#[test]
fn malformed_pages_are_refused() {
    let (shape, page) = pages(&[[1, 2], [0, 1]]);
    assert_eq!(shape.pages, 1);
    let (columns_at, first_run, second_run, ends_at) = (16, 24, 40, 56);
    for (at, byte, what) in [
        (columns_at, 0, "columns of a page"),
        (columns_at + 1, 1, "columns of a page"),
        (columns_at + 2, 0, "columns of a page"),
        (columns_at + 2, 65, "columns of a page"),
        (columns_at + 4, 1, "padding of a column page"),
        (first_run, 1, "run of a column page"),
        (second_run + 14, 0, "run of a column page"),
        (second_run + 14, 17, "run of a column page"),
        (second_run + 15, 1, "padding of a run"),
        (ends_at, 0, "end of a column"),
        (ends_at + 1, 255, "end of a column"),
        // More items than the page has bits for.
        (ends_at + 5, 1, "end of a column"),
        (511, 1, "rest of a column page"),
    ] {
        let mut bad = page.clone();
        bad[at] = byte;
        assert_eq!(check(&bad).map_err(|malformed| malformed.what), Err(what), "byte {at} = {byte}");
    }
    let mut unnamed = page;
    unnamed[second_run..second_run + 12].fill(0);
    assert_eq!(check(&unnamed).map_err(|malformed| malformed.what), Err("run of a column page"));
}

/// A page of two columns and two runs.
#[test]
fn golden() {
    let (shape, mut page) = pages(&[[1, 2], [0, 1]]);
    assert_eq!((shape.pages, shape.page_bytes, shape.columns.a_page), (1, 512, 2));
    seal(&mut page, Context { file_uid: 7, offset: 12_288, tag: BlockKind::Filter as u8 });
    let mut golden = Golden::new("table_filter_column", &page);
    golden.heading("filter page 0 at offset 12288 of file uid 7; columns of 1 and 2, and of 0 and 1 items");
    for (caption, count) in
        [("checksum", 4), ("tag", 1), ("probes", 1), ("kind", 1), ("seed", 1), ("page", 4)]
    {
        golden.field(caption, count);
    }
    for (caption, count) in [("pages", 4), ("columns", 2), ("runs", 2), ("zero", 4)] {
        golden.field(caption, count);
    }
    for run in 0..2 {
        for (caption, count) in
            [("uid", 8), ("table", 4), ("thousandths of a bit", 2), ("probes", 1), ("zero", 1)]
        {
            golden.field(&format!("run {run}, {caption}"), count);
        }
    }
    (0..2).for_each(|column| golden.field(&format!("end of column {column}"), 2));
    for (column, bits) in [(0, [2, 3]), (1, [0, 2])] {
        golden.field(&format!("column {column}, items of run 0"), 2);
        golden.field(&format!("column {column}, items of run 1"), 2);
        for (run, bytes) in bits.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
            golden.field(&format!("column {column}, bits of run {run}"), bytes);
        }
    }
    golden.zeros_to("zero", 512);
    golden.check();
}
