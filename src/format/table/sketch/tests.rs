//! Sketches against their pages, over ten families of keys.

use super::*;
use crate::format::table::fence_build::FenceBuilder;
use crate::lab::KeyFamily;

/// Items in each block.
const BLOCK_ITEMS: usize = 35;

/// The results of one family.
#[derive(Default)]
struct Fared {
    pages: usize,
    without: usize,
    asked: usize,
    unsure: usize,
}

/// Calls `take` for each page of a slice of these keys, with the page's first separator and its keys.
fn each_page(
    keys: &[Vec<u8>],
    block_bytes: impl Fn(usize) -> usize,
    mut take: impl FnMut(&[u8], &[u8], &[Vec<u8>]),
) {
    let blocks: Vec<&[Vec<u8>]> = keys.chunks(BLOCK_ITEMS).collect();
    let mut builder = FenceBuilder::new(8192);
    let mut before = None;
    for (index, block) in blocks.iter().enumerate() {
        builder.add(before, &block[0], block_bytes(index));
        before = block.last().map(Vec::as_slice);
    }
    let built = builder.build_pages();
    let ends = built.first_blocks.iter().skip(1).copied().chain([blocks.len()]);
    let pages = built.bytes.chunks(built.page_bytes);
    for ((page, start), end) in pages.zip(&built.first_blocks).zip(ends) {
        let own = &keys[start * BLOCK_ITEMS..keys.len().min(end * BLOCK_ITEMS)];
        take(page, builder.page_separator(*start), own);
    }
}

/// Keys near a key: with other lengths, with another last byte, and with bytes that no key has.
fn near(key: &[u8]) -> Vec<Vec<u8>> {
    let mut changed = key.to_vec();
    let at = key.len() * 3 / 4;
    changed[at] = changed[at].wrapping_add(1);
    let (mut low, mut high) = (key.to_vec(), key.to_vec());
    low[at] = 0;
    high[at] = 0xff;
    let short = key[..key.len() - 1].to_vec();
    vec![changed, low, high, short, [key, &[0]].concat(), [key, &[0xff; 9]].concat(), key[..at].to_vec()]
}

/// The sketch of one page in one size; `false` if it has none.
fn made(page: &IndexPage<'_>, first: &[u8], size: usize) -> (bool, Vec<u8>) {
    let mut sketcher = Sketcher::new(Box::new([first.into()]));
    sketcher.add(0, page);
    let bytes = sketcher.bytes[size].clone();
    (sketcher.unsure_permille[size] < 1000, bytes)
}

fn fare(family: KeyFamily, (count, size): (usize, usize), block_bytes: impl Fn(usize) -> usize) -> Fared {
    let mut fared = Fared::default();
    each_page(&family.keys(count, 3), block_bytes, |page, first, keys| {
        let page = IndexPage::of(page);
        let (is_made, bytes) = made(&page, first, size);
        let sketch = Sketch::of(&bytes);
        fared.pages += 1;
        fared.without += usize::from(!is_made);
        for key in keys {
            let found = sketch.find(key, first);
            assert!(is_made || found.is_none());
            fared.asked += 1;
            fared.unsure += usize::from(found.is_none());
            let probes = near(key).into_iter().filter(|probe| first <= &probe[..]).chain([key.clone()]);
            for probe in probes {
                let expected = page.extent(page.find(&probe, first));
                let found = sketch.find(&probe, first);
                assert!(found.is_none_or(|found| found == expected), "{family:?}: {probe:?}");
            }
        }
    });
    fared
}

/// A sketch agrees with its page for every key, and few keys of most families need the page.
#[test]
fn sketches_are_never_wrong() {
    let count = if cfg!(miri) { 2000 } else { 30_000 };
    let mut good = [0; 2];
    for (size, family) in (0..2).flat_map(|size| KeyFamily::ALL.map(|family| (size, family))) {
        let uniform = fare(family, (count, size), |_| 4096);
        let mixed = fare(family, (count, size), |index| 512 * (1 + index % 8));
        let permille = |fared: &Fared| fared.unsure * 1000 / fared.asked;
        println!(
            "{size} {}: of {} pages {} without, {} permille unsure; of mixed lengths {} of {}, {}",
            family.name(),
            uniform.pages,
            uniform.without,
            permille(&uniform),
            mixed.without,
            mixed.pages,
            permille(&mixed)
        );
        good[size] += usize::from(permille(&uniform) <= 40 && permille(&mixed) <= 40);
    }
    assert!(cfg!(miri) || (good[0] >= 5 && good[1] >= 6), "{good:?} of ten families");
}

/// Small pages, empty prefixes and keys, one length and many: every sketch is right.
#[test]
fn small_pages_have_sketches_too() {
    for blocks in 1..40usize {
        for long in [0, 3, 20] {
            let key = |number: usize| {
                [&vec![b'x'; long][..], &[(number / 3) as u8, (number % 3 * 90) as u8]].concat()
            };
            let keys: Vec<Vec<u8>> = (0..blocks * BLOCK_ITEMS)
                .map(|number| {
                    [key(number / BLOCK_ITEMS), vec![(number % BLOCK_ITEMS) as u8; number % 4]].concat()
                })
                .collect();
            let mut keys = keys;
            keys.sort_unstable();
            keys.dedup();
            each_page(
                &keys,
                |index| 512 * (1 + index % 3),
                |page, first, own| {
                    let page = IndexPage::of(page);
                    let (_, bytes) = made(&page, first, blocks % 2);
                    let sketch = Sketch::of(&bytes);
                    for probe in own.iter().chain([&vec![0xff; 9]]) {
                        let expected = page.extent(page.find(probe, first));
                        assert!(sketch.find(probe, first).is_none_or(|found| found == expected), "{probe:?}");
                    }
                },
            );
        }
    }
}

/// Positions behind zeros, and bits, agree with a slow count.
#[test]
fn bits_are_where_they_were_put() {
    let mut bytes = [0u8; 40];
    let values: Vec<(usize, u64)> =
        (0..13).map(|index| (index * 23, (index as u64 * 0x9e37) & 0x7f_ffff)).collect();
    values.iter().for_each(|(at, value)| set_bits(&mut bytes, *at, *value));
    assert!(values.iter().all(|(at, value)| bits(&bytes, *at, 23) == *value));
    assert_eq!(bits(&bytes, 400, 20), 0, "behind the end");
    for zeros in 0..330u64 {
        let mut left = zeros;
        let slow = (0..320).find(|at| {
            left -= u64::from(*at > 0 && bits(&bytes, at - 1, 1) == 0 && left > 0);
            left == 0
        });
        let slow = slow.or_else(|| (left == 1 && bits(&bytes, 319, 1) == 0).then_some(320));
        assert_eq!(after_zeros(&bytes, zeros), slow, "{zeros}");
    }
}
