//! Learned pages: every key is in the block that its page gives; refusals; hostile bytes.

use proptest::prelude::*;

use super::*;
use crate::base::checksum::Context;
use crate::base::step::BlockKind;
use crate::format::golden::Golden;
use crate::format::table::learned_build::{LearnedItems, LearnedOptions, LearnedPlan, Refusal, plan};
use crate::format::table::{extent_bytes, seal};
use crate::lab::KeyFamily;

const ALL_CODES: [PageCode; 3] = [PageCode::Head, PageCode::Span, PageCode::Seen];
const OPTIONS: LearnedOptions<'_> = LearnedOptions { target_bytes: 4096, error: 8, codes: &ALL_CODES };

/// Keys, each with the same number of value bytes.
struct Items {
    keys: Vec<Vec<u8>>,
    value_bytes: usize,
}

impl LearnedItems for Items {
    fn count(&self) -> usize {
        self.keys.len()
    }

    fn key(&self, index: usize) -> &[u8] {
        &self.keys[index]
    }

    fn bytes(&self, index: usize) -> usize {
        self.keys[index].len() + self.value_bytes
    }

    fn are_last(&self) -> bool {
        true
    }
}

fn items(family: KeyFamily, count: usize, seed: u64) -> Items {
    Items { keys: family.keys(count, seed), value_bytes: 100 }
}

fn units(items: &Items, plan: &LearnedPlan) -> Vec<usize> {
    let bytes = |block| plan.block(block).map(|index| items.bytes(index)).sum::<usize>();
    (0..plan.blocks()).map(|block| bytes(block).div_ceil(UNIT_BYTES)).collect()
}

fn padded(mut page: Vec<u8>) -> Vec<u8> {
    page.resize(extent_bytes(page.len()), 0);
    page
}

/// The page of a plan, checked.
fn page(items: &Items, plan: &LearnedPlan) -> Vec<u8> {
    let page = padded(plan.encode(8192, &units(items, plan)));
    assert!(page.len() <= PAGE_BYTES);
    let learned = LearnedPage::check(&page).expect("it was encoded");
    assert_eq!(learned.blocks(), plan.blocks());
    assert!(LearnedPage::is_learned(&page));
    page
}

/// Keys near this one that hardly any page has.
fn strangers(key: &[u8]) -> Vec<Vec<u8>> {
    let mut changed = key.to_vec();
    if let Some(byte) = changed.get_mut(key.len() * 2 / 3) {
        *byte = byte.wrapping_add(3);
    }
    let longer = [key, &b"\0"[..]].concat();
    vec![changed, longer, key[..key.len() / 2].to_vec(), [key, &b"~~"[..]].concat()]
}

/// Every item is in the block that the page gives. For any other key the page gives a block such that all
/// lesser items are in it or before it, and all greater ones in it or behind it.
fn check_finds(items: &Items, plan: &LearnedPlan) {
    let bytes = page(items, plan);
    let learned = LearnedPage::of(&bytes);
    let first = &items.keys[0][..plan.separator_bytes()];
    let keys = &items.keys[..plan.items()];
    let blocks: Vec<usize> = keys.iter().map(|key| learned.find(key, first)).collect();
    assert!(blocks.is_sorted());
    for block in 0..plan.blocks() {
        assert!(plan.block(block).all(|index| blocks[index] == block), "block {block}");
        let is_empty = plan.block(block).is_empty();
        assert_eq!(learned.extent(block).bytes == 0, is_empty);
    }
    for index in (0..plan.items()).step_by(3) {
        for stranger in strangers(&items.keys[index]) {
            let at = items.keys[..plan.items()].partition_point(|key| *key < stranger);
            let block = learned.find(&stranger, first);
            let before = at.checked_sub(1).map_or(0, |before| blocks[before]);
            let behind = blocks.get(at).copied().unwrap_or(plan.blocks() - 1);
            assert!(before <= block && block <= behind, "{stranger:?}: {before} {block} {behind}");
        }
    }
}

/// Page after page of ten families, with each code alone and with the best one.
#[test]
fn keys_are_in_their_blocks() {
    for family in KeyFamily::ALL {
        let choices: [&[PageCode]; 4] = [&[PageCode::Head], &[PageCode::Span], &[PageCode::Seen], &ALL_CODES];
        let mut bytes_of = Vec::new();
        for codes in choices {
            let mut rest = items(family, 6000, 21);
            let mut last: Option<Vec<u8>> = None;
            let mut used = 0;
            while let Ok(plan) = plan(&rest, last.as_deref(), &LearnedOptions { codes, ..OPTIONS }) {
                check_finds(&rest, &plan);
                used += LearnedPage::of(&page(&rest, &plan)).used_bytes();
                last = rest.keys.drain(..plan.items()).next_back();
            }
            bytes_of.push((rest.keys.len(), used));
        }
        let [alone @ .., best] = &bytes_of[..] else { unreachable!("there are four choices") };
        assert!(alone.iter().all(|alone| best <= alone), "{} {bytes_of:?}", family.name());
    }
}

/// A page is full before it ends: random keys have about 1,000 blocks a page, with sizes that vary little.
#[test]
fn pages_are_full() {
    let items = items(KeyFamily::Binary, 60_000, 3);
    let plan = plan(&items, None, &OPTIONS).expect("random keys have a model");
    let bytes = page(&items, &plan);
    assert_eq!(bytes.len(), PAGE_BYTES);
    assert!(LearnedPage::of(&bytes).used_bytes() > PAGE_BYTES - 16);
    assert!(plan.blocks() > 700, "{}", plan.blocks());
    let sizes = units(&items, &plan);
    assert!(sizes.iter().all(|units| *units <= 12), "{sizes:?}");
}

/// Extents are adjacent, over groups of blocks too, and end where the units do.
#[test]
fn extents_follow_each_other() {
    let items = items(KeyFamily::Decimal, 30_000, 3);
    let plan = plan(&items, None, &OPTIONS).expect("decimal keys have a model");
    assert!(plan.blocks() > 3 * GROUP);
    let bytes = page(&items, &plan);
    let mut at = 8192;
    for (block, units) in units(&items, &plan).into_iter().enumerate() {
        let extent = LearnedPage::of(&bytes).extent(block);
        assert_eq!((extent.offset, extent.bytes as usize), (at, units * UNIT_BYTES));
        at += u64::from(extent.bytes);
    }
}

/// Keys that no model suits are refused with a reason.
#[test]
fn pages_are_refused() {
    let refusal = |keys: Vec<Vec<u8>>, value_bytes| {
        plan(&Items { keys, value_bytes }, None, &OPTIONS).map(|plan| plan.items()).expect_err("no model")
    };
    let numbered = |count: u32| (0..count).map(|n| format!("{n:06}").into_bytes()).collect::<Vec<_>>();
    assert_eq!(refusal(vec![], 1), Refusal::Few);
    assert_eq!(refusal(numbered(1), 1), Refusal::Few);
    // All in one block.
    assert_eq!(refusal(numbered(20), 100), Refusal::Few);
    let options = LearnedOptions { target_bytes: 1 << 20, ..OPTIONS };
    let large = Items { keys: numbered(1000), value_bytes: 5000 };
    assert_eq!(plan(&large, None, &options).map(|_| ()), Err(Refusal::Few));
    // Keys that first differ behind all positions.
    let deep = |n: u32| [&[b'x', (n % 2) as u8], &[(n / 600) as u8; 90][..], &n.to_be_bytes()].concat();
    let mut keys: Vec<Vec<u8>> = (0..1200).map(deep).collect();
    keys.sort();
    assert!(matches!(refusal(keys, 100), Refusal::Ties { bytes } if bytes > 4096 / 2));
    // One item a block, and every fifth block empty.
    assert!(matches!(refusal(numbered(2000), 5000), Refusal::EmptyBlocks { .. }));
    assert!(matches!(refusal(numbered(500), 200_000), Refusal::LongBlock { bytes: 200_006 }));
    // An error of six blocks.
    let far = LearnedOptions { error: 200, ..OPTIONS };
    let refused = plan(&items(KeyFamily::Segmented, 9000, 1), None, &far).map(|plan| plan.items());
    assert!(matches!(refused, Err(Refusal::LongBlock { bytes }) if bytes > 2 * 4096));
    // So few blocks that the header's bytes count.
    assert!(matches!(refusal(numbered(80), 100), Refusal::NoGain { .. }));
}

/// Values that span several blocks leave empty blocks: a page accepts a few and refuses many.
#[test]
fn empty_blocks() {
    struct Jumps(Items, usize);
    impl LearnedItems for Jumps {
        fn count(&self) -> usize {
            self.0.count()
        }
        fn key(&self, index: usize) -> &[u8] {
            self.0.key(index)
        }
        fn bytes(&self, index: usize) -> usize {
            if index % self.1 == self.1 - 1 { 8000 } else { 110 }
        }
        fn are_last(&self) -> bool {
            true
        }
    }
    let few = Jumps(items(KeyFamily::Decimal, 20_000, 1), 4000);
    let planned = plan(&few, None, &OPTIONS).expect("a few empty blocks are no harm");
    assert!((0..planned.blocks()).any(|block| planned.block(block).is_empty()));
    let many = Jumps(items(KeyFamily::Decimal, 20_000, 1), 60);
    let refused = plan(&many, None, &OPTIONS).map(|plan| plan.blocks());
    assert!(matches!(refused, Err(Refusal::EmptyBlocks { .. })), "{refused:?}");
}

/// A page ends before keys with equal codes, if it has enough blocks.
#[test]
fn pages_end_before_ties() {
    let mut items = items(KeyFamily::Hex, 30_000, 1);
    let alike: Vec<Vec<u8>> = (0..1000u32).map(|n| [&[b'g'; 80][..], &n.to_be_bytes()].concat()).collect();
    let ties_from = items.keys.len();
    items.keys.extend(alike);
    let plan = plan(&items, None, &OPTIONS).expect("the first keys have a model");
    assert_eq!(plan.items(), ties_from);
    check_finds(&items, &plan);
}

fn small_page() -> (Items, Vec<u8>) {
    let items = items(KeyFamily::Hex, 1200, 2);
    let plan = plan(&items, None, &LearnedOptions { codes: &[PageCode::Seen], ..OPTIONS });
    let bytes = page(&items, &plan.expect("random keys have a model"));
    (items, bytes)
}

proptest! {
    /// Changed bytes cause no panic and no endless loop: a page is refused, or gives one of its blocks for
    /// every key.
    #[test]
    fn hostile_bytes(changes in proptest::collection::vec((0usize..4096, any::<u8>()), 1..6), header: bool) {
        let (items, mut bytes) = small_page();
        for (at, byte) in changes {
            let length = if header { 60 } else { bytes.len() };
            bytes[at % length] = byte;
        }
        if let Ok(learned) = LearnedPage::check(&bytes) {
            let mut before = 0;
            for key in items.keys.iter().chain([&vec![0xff; 40]]) {
                let block = learned.find(key, &items.keys[0]);
                prop_assert!(before <= block && block < learned.blocks());
                before = block;
                learned.extent(block);
            }
            prop_assert!(learned.find(b"", b"") < learned.blocks());
        }
    }

    /// Random pages of any length are refused, or give answers.
    #[test]
    fn random_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..2048), blocks in 1..40u8) {
        bytes.resize(bytes.len() / UNIT_BYTES * UNIT_BYTES, 0);
        if let Some(header) = bytes.get_mut(..HEADER_BYTES) {
            header[5] = LEARNED;
            header[6..8].copy_from_slice(&[blocks, 0]);
            header[26..32].copy_from_slice(&[2, 0, 0, 0, 0, 0]);
        }
        if let Ok(learned) = LearnedPage::check(&bytes) {
            prop_assert!(learned.find(b"key", b"k") < learned.blocks());
        }
    }
}

/// Every check has an input that trips it.
#[test]
fn malformed_pages_are_refused() {
    let (_, good) = small_page();
    let shape = LearnedPage::of(&good).shape;
    let refused = |bytes: &[u8], what| {
        assert_eq!(LearnedPage::check(bytes).map(|_| ()).map_err(|bad| bad.what), Err(what));
    };
    refused(&[], "length of a learned page");
    refused(&good[..100], "length of a learned page");
    refused(&[good.as_slice(), &[0; PAGE_BYTES]].concat(), "length of a learned page");
    let last = good.len() - 1;
    for (at, byte, what) in [
        (5, 0, "flags of a learned page"),
        (5, LEARNED | 1, "flags of a learned page"),
        (6, 0, "blocks of a learned page"),
        (6, 33, "blocks of a model"),
        (7, 0xff, "columns of a learned page"),
        (8, 1, "offset in a learned page"),
        (15, 0xff, "offset in a learned page"),
        (26, 0, "knots"),
        (28, 3, "code of a learned page"),
        (28, 0, "positions of a learned page"),
        (28, 1, "alphabet of a position"),
        (30, 9, "absent positions of a learned page"),
        (31, 64, "shift of a learned page"),
        (HEADER_BYTES, 0, "alphabet of a position"),
        (shape.runs_at.into(), 0xff, "alphabet of a position"),
        (shape.codes_at.into(), 1, "order of knots"),
        (shape.positions_at.into(), 1, "order of knots"),
        (shape.units_at.into(), 0, "units of a block at an end"),
        (usize::from(shape.sums_at) - 1, 0, "units of a block at an end"),
        (last, 1, "padding of a learned page"),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        refused(&bad, what);
    }
    let mut no_target = good.clone();
    no_target[32..36].fill(0);
    refused(&no_target, "target of a learned page");
    let items = items(KeyFamily::Hex, 6000, 2);
    let plan = plan(&items, None, &OPTIONS).expect("random keys have a model");
    let mut sums = page(&items, &plan);
    let sums_at = usize::from(LearnedPage::of(&sums).shape.sums_at);
    sums[sums_at] ^= 1;
    refused(&sums, "sum in a learned page");
}

/// A page of ten blocks of about ten items.
#[test]
fn golden() {
    let keys = (0..100u32).map(|n| format!("key-{:03}", n * n / 12).into_bytes()).collect();
    let mut items = Items { keys, value_bytes: 193 };
    items.keys.dedup();
    let codes = &[PageCode::Seen];
    let plan = plan(&items, None, &LearnedOptions { target_bytes: 2048, codes, ..OPTIONS });
    let mut page = page(&items, &plan.expect("the keys have a model"));
    seal(&mut page, Context { file_uid: 7, offset: 40_960, tag: BlockKind::Fence as u8 });
    let learned = LearnedPage::of(&page);
    assert_eq!((learned.code(), learned.positions()), (PageCode::Seen, 3));
    let (runs, knots) = (usize::from(page[36]), usize::from(page[26]));
    let blocks = usize::from(page[6]);
    let mut golden = Golden::new("table_learned", &page);
    golden.heading("learned page at offset 40960 of file uid 7");
    for (caption, count) in [
        ("checksum", 4),
        ("tag", 1),
        ("flags: learned", 1),
        ("blocks", 2),
        ("offset of the first block", 8),
        ("least number", 8),
        ("prefix length", 2),
        ("knots", 2),
        ("code: ranks", 1),
        ("positions", 1),
        ("absent from", 1),
        ("shift", 1),
        ("target", 4),
        ("runs", 2),
        ("error", 2),
        ("counts of runs", usize::from(page[29])),
        ("runs", runs * 2),
        ("codes of knots", knots * 4),
        ("positions of knots", knots * 2),
        ("units", blocks),
    ] {
        golden.field(caption, count);
    }
    golden.zeros_to("padding", UNIT_BYTES);
    golden.check();
}
