//! Fence pages against a linear search, to the byte, and with every check tripped.

use super::*;
use crate::format::golden::Golden;
use crate::format::table::fence_build::{FenceBuilder, FencePages};
use crate::format::table::index::IndexPage;
use crate::format::table::sketch::{Sketch, Sketcher};
use crate::format::table::{extent_bytes, seal};

/// First key, last key, length.
type Block = (Vec<u8>, Vec<u8>, usize);
/// A block of this length with one key holds a large value.
const ALONE_BYTES: usize = 40 << 10;

/// The pages of blocks with these first and last keys and lengths.
fn pages(blocks: &[Block]) -> (FenceBuilder, FencePages) {
    let mut builder = FenceBuilder::new(8192);
    let mut before: Option<&[u8]> = None;
    for (first, last, bytes) in blocks {
        match *bytes >= ALONE_BYTES && first == last {
            true => builder.add_alone(first, *bytes),
            false => builder.add(before, first, *bytes),
        }
        before = Some(last);
    }
    let built = builder.build();
    (builder, built)
}

fn block_sets() -> Vec<Vec<Block>> {
    let pair = |key: Vec<u8>, bytes| (key.clone(), [&key[..], b"\0"].concat(), bytes);
    let uniform = (0..2000u32).map(|n| pair(n.to_be_bytes().to_vec(), 4096)).collect();
    let mixed = (0..1000u32).map(|n| pair(n.to_be_bytes().to_vec(), 512 * (1 + n as usize % 9))).collect();
    let tails = (0..900u32)
        .map(|n| pair([&b"tenant-twelve-"[..], &[(n / 9) as u8; 9], &n.to_be_bytes()].concat(), 4096));
    let zeros = (0..300usize).map(|n| pair([&b"k"[..], &vec![0; 2 * n]].concat(), 7680)).collect();
    let long = (0..20u8).map(|n| pair(vec![n; 5000], 512)).collect();
    let deep = (0..60u8).map(|n| {
        let mut key = vec![n / 20; 30_000];
        key[20_000] = n;
        pair(key, 1024)
    });
    let alone = (0..600u32).map(|n| {
        let key = [&b"large-"[..], &n.to_be_bytes(), &vec![7; n as usize % 20]].concat();
        let bytes = if n % 3 == 0 { 4096 } else { ALONE_BYTES + 512 * (n as usize % 2) };
        (key.clone(), if n % 3 == 0 { [&key[..], &[1]].concat() } else { key }, bytes)
    });
    let two = vec![pair(b"".to_vec(), 512), pair(b"a".to_vec(), 1024)];
    vec![uniform, mixed, tails.collect(), zeros, long, deep.collect(), alone.collect(), two]
}

/// For keys at, before and after every separator, search finds the page and the block that a linear search
/// finds.
#[test]
fn search_is_exact() {
    for blocks in block_sets() {
        let (builder, built) = pages(&blocks);
        let mut offset = 8192;
        let starts: Vec<u64> = blocks
            .iter()
            .map(|(_, _, bytes)| {
                offset += *bytes as u64;
                offset - *bytes as u64
            })
            .collect();
        let mut end = blocks.len();
        for (index, page) in built.bytes.chunks(built.page_bytes).enumerate().rev() {
            let start = built.first_blocks[index];
            let fences = FencePage::check(page).expect("built pages are sound");
            assert_eq!(fences.blocks(), end - start);
            let samples: Vec<u64> = fences.samples().collect();
            let sampled = FencePage::shaped(page, fences.shape(), &samples);
            let separators: Vec<&[u8]> = (start..end).map(|block| builder.separator(block)).collect();
            for block in (start..end).step_by(1 + (end - start) / 60) {
                let separator = builder.separator(block);
                let (first, last, bytes) = &blocks[block];
                let is_alone = *bytes >= ALONE_BYTES;
                assert_eq!(fences.is_alone(block - start), is_alone);
                assert!(!is_alone || separator == first.as_slice());
                assert!(separator <= first.as_slice());
                assert_eq!(
                    fences.extent(block - start),
                    Extent { offset: starts[block], bytes: *bytes as u32 }
                );
                let longer = [separator, &b"\0"[..]].concat();
                let shorter = &separator[..separator.len().saturating_sub(1)];
                let above = [shorter, &[255u8; 12]].concat();
                for key in [first, last, separator, &longer, shorter, &above, &[][..], &[255; 70]] {
                    let expected = separators.partition_point(|one| *one <= key).saturating_sub(1);
                    assert_eq!(fences.find(key, separators[0]), expected);
                    assert_eq!(sampled.find(key, separators[0]), expected);
                    assert!(sampled.line_of(key, separators[0]) < page.len());
                    let is_separator = fences.is_separator(expected, key, separators[0]);
                    assert_eq!(is_separator, key == separators[expected]);
                }
                assert_eq!(fences.find(first, separators[0]), block - start);
                assert_eq!(fences.find(last, separators[0]), block - start);
            }
            end = start;
        }
        assert_eq!(end, 0);
    }
}

/// 4096-byte blocks take ten bytes each in a page, and a slice of one block has no page.
#[test]
fn pages_are_small() {
    let (builder, built) = pages(&block_sets()[0]);
    assert!(built.first_blocks.len() == 5, "407 blocks a page");
    assert!(builder.estimated_bytes().abs_diff(built.bytes.len() as u64) < 8192);
    let (_, none) = pages(&[(b"a".to_vec(), b"b".to_vec(), 512)]);
    assert!(none.bytes.is_empty() && none.first_blocks.is_empty());
}

/// A uniform page and one with tails and block ends, byte for byte.
#[test]
fn golden() {
    let uniform = [("aa", "ab", 4096), ("ac", "b", 4096), ("ca", "d", 1024)];
    let tails = [
        ("tenant-1/0123456789a", "tenant-1/0123456789b", 512),
        ("tenant-1/0123456789ca", "x", 1024),
        ("y", "z", 512),
    ];
    for (name, blocks) in [("table_fence_uniform", uniform), ("table_fence_tails", tails)] {
        let blocks =
            blocks.map(|(first, last, bytes)| (first.as_bytes().to_vec(), last.as_bytes().to_vec(), bytes));
        let (_, mut built) = pages(&blocks);
        let context = crate::base::checksum::Context { file_uid: 7, offset: 16_384, tag: 3 };
        seal(&mut built.bytes, context);
        let mut golden = Golden::new(name, &built.bytes);
        golden.heading("fence page at offset 16384 of file uid 7");
        let is_uniform = name == "table_fence_uniform";
        let fields: &[(&str, usize)] = &[
            ("checksum", 4),
            ("tag", 1),
            ("flags", 1),
            ("blocks", 2),
            ("offset", 8),
            ("block bytes", 4),
            ("last bytes", 4),
            ("prefix length", 2),
            ("tail bytes", 2),
            ("zero", 4),
            ("heads", 16),
            ("lengths", 4),
            ("tail ends", if is_uniform { 0 } else { 4 }),
            ("block ends", if is_uniform { 0 } else { 12 }),
            ("tails", if is_uniform { 0 } else { 12 }),
        ];
        fields
            .iter()
            .filter(|(_, count)| *count > 0)
            .for_each(|(caption, count)| golden.field(caption, *count));
        golden.zeros_to("padding", extent_bytes(golden.at()));
        golden.check();
    }
}

/// A page of two large values and a block of small ones, byte for byte.
#[test]
fn golden_of_large_values() {
    let key = |name: &str| name.as_bytes().to_vec();
    let (_, mut built) = pages(&[
        (key("a-large"), key("a-large"), ALONE_BYTES),
        (key("a-small"), key("b-small"), 4096),
        (key("b-the-large"), key("b-the-large"), ALONE_BYTES),
    ]);
    let context = crate::base::checksum::Context { file_uid: 7, offset: 16_384, tag: 3 };
    seal(&mut built.bytes, context);
    let mut golden = Golden::new("table_fence_alone", &built.bytes);
    golden.heading("fence page at offset 16384 of file uid 7");
    for (caption, count) in [("checksum", 4), ("tag", 1), ("flags", 1), ("blocks", 2), ("offset", 8)] {
        golden.field(caption, count);
    }
    for (caption, count) in [("unused lengths", 8), ("prefix length", 2), ("tail bytes", 2), ("zero", 4)] {
        golden.field(caption, count);
    }
    for (caption, count) in
        [("heads", 16), ("lengths", 4), ("tail ends", 4), ("block ends", 12), ("tails", 3)]
    {
        golden.field(caption, count);
    }
    golden.zeros_to("padding", extent_bytes(golden.at()));
    golden.check();
}

/// Every check has bytes that trip it, even under a right checksum.
#[test]
fn malformed_pages_are_refused() {
    let pair = |key: &[u8], bytes| (key.to_vec(), key.to_vec(), bytes);
    let (_, uniform) = pages(&[pair(b"a", 512), pair(b"b", 512), pair(b"c", 512)]);
    let long = [(vec![], b"01234567w".to_vec(), 512), pair(b"01234567x", 1024), pair(b"01234567y", 512)];
    let (_, tails) = pages(&long);
    // Uniform: 32 heads, 48 lengths, 52 end. Tails: 32 heads, 48 lengths, 52 tail ends, 56 block ends, 68
    // tails.
    for (page, at, byte, what) in [
        (&uniform, 5, 7, "flags of a fence page"),
        (&uniform, 6, 0, "blocks of a fence page"),
        (&uniform, 6, 200, "columns of a fence page"),
        (&uniform, 8, 1, "offset in a fence page"),
        (&uniform, 15, 255, "offset in a fence page"),
        (&uniform, 16, 1, "block length"),
        (&uniform, 17, 0, "block length"),
        (&uniform, 19, 2, "block length"),
        (&uniform, 21, 0, "block length"),
        (&uniform, 26, 1, "tails of a fence page"),
        (&uniform, 27, 255, "tails of a fence page"),
        (&uniform, 28, 1, "padding of a fence page"),
        (&uniform, 32, 1, "head of a separator"),
        (&uniform, 39, b'c', "order of separators"),
        (&uniform, 48, 9, "tail ends of a fence page"),
        (&uniform, 48, 0, "head of a separator"),
        (&uniform, 52, 1, "padding of a fence page"),
        (&uniform, 511, 1, "padding of a fence page"),
        (&tails, 16, 1, "unused block length"),
        (&tails, 20, 1, "unused block length"),
        (&tails, 26, 1, "tail ends of a fence page"),
        (&tails, 26, 3, "tails of a fence page"),
        (&tails, 48, 10, "tail ends of a fence page"),
        (&tails, 52, 2, "tail ends of a fence page"),
        (&tails, 56, 0, "block ends of a fence page"),
        (&tails, 60, 1, "block ends of a fence page"),
        (&tails, 62, 1, "block ends of a fence page"),
        (&tails, 68, b'y', "order of separators"),
        (&tails, 70, 1, "padding of a fence page"),
    ] {
        let mut bad = page.bytes.clone();
        bad[at] = byte;
        assert_eq!(
            FencePage::check(&bad).map(|_| ()).map_err(|bad| bad.what),
            Err(what),
            "byte {at} = {byte}"
        );
    }
    for length in [0, 511, 8192] {
        assert!(FencePage::check(&vec![0; length]).is_err(), "{length} bytes");
    }
}

/// No damaged page makes a search or an extent leave its bytes.
#[test]
fn damaged_pages_never_panic() {
    for blocks in block_sets().into_iter().take(4) {
        let (builder, built) = pages(&blocks);
        let page = &built.bytes[..built.page_bytes];
        for at in (4..page.len()).step_by(3) {
            let mut bad = page.to_vec();
            bad[at] ^= 0x81;
            let Ok(fences) = FencePage::check(&bad) else { continue };
            for key in [&[][..], builder.separator(0), builder.separator(1), &[255; 30]] {
                for first in [&[][..], builder.separator(0)] {
                    assert!(fences.find(key, first) < fences.blocks());
                }
            }
            (0..fences.blocks()).for_each(|index| assert!(fences.extent(index).bytes > 0));
        }
    }
}

/// The used part of a page gives the same answers as the page, also after damage that passes the check.
/// Sketches of the page agree if they give an answer.
#[test]
fn used_parts_answer_as_pages() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut tried, mut sketched) = (0, 0);
    for round in 0..1500u32 {
        let is_placed = round % 2 == 1;
        let (first, mut page) = small_page(&mut numbers, is_placed);
        for _ in 0..round % 3 {
            let at = numbers.below(page.len().min(300));
            page[at] = numbers.below(256) as u8;
        }
        let Ok(whole) = FencePage::check(&page) else { continue };
        let part = FencePage::of_used(&page[..whole.used_bytes()]);
        tried += 1;
        let mut sketcher = Sketcher::new(Box::new([first.as_slice().into()]));
        sketcher.add(0, &IndexPage::of(&page));
        for _ in 0..20 {
            let some = numbers.next().to_be_bytes();
            let bytes = numbers.below(9);
            let key = if is_placed { some.to_vec() } else { [&b"k"[..], &some[..bytes]].concat() };
            let index = whole.find(&key, &first);
            assert_eq!((index, whole.extent(index)), (part.find(&key, &first), part.extent(index)));
            for size in 0..2 {
                let found = Sketch::of(sketcher.sketches(size)).find(&key, &first);
                sketched += usize::from(found.is_some());
                assert!(found.is_none_or(|found| found == whole.extent(index)), "{key:?}");
            }
            assert_eq!(whole.is_alone(index), part.is_alone(index));
            if whole.is_alone(index) {
                assert_eq!(whole.is_separator(index, &key, &first), part.is_separator(index, &key, &first));
            }
        }
        assert!((0..whole.blocks()).all(|index| whole.extent(index) == part.extent(index)));
        assert!(whole.samples().eq(part.samples()));
    }
    assert!(tried > 550 && sketched > 3000, "{tried}, {sketched}");
}

/// Pseudorandom numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A page over a few blocks, and its first separator.
fn small_page(numbers: &mut Numbers, is_placed: bool) -> (Vec<u8>, Vec<u8>) {
    use crate::format::table::quanta::Quanta;
    let count = 2 + numbers.below(if is_placed { 180 } else { 24 });
    let mut heads: Vec<u64> = (0..count).map(|_| numbers.next()).collect();
    heads.sort_unstable();
    let mut builder = FenceBuilder::new(8192);
    if is_placed {
        builder.set_quanta(Some(Quanta::of_block(37, [0, u64::MAX / count as u64])));
    }
    let mut before: Option<Vec<u8>> = None;
    for head in heads {
        let key = match is_placed {
            true => [&head.to_be_bytes()[..], &[1, 2]].concat(),
            false => [&b"k"[..], &head.to_be_bytes()[..1 + (head % 8) as usize]].concat(),
        };
        if before.as_ref().is_some_and(|before| *before >= key) {
            continue;
        }
        match !is_placed && head % 5 == 0 {
            true => builder.add_alone(&key, ALONE_BYTES + 512),
            false => builder.add(before.as_deref(), &key, 512 * (1 + numbers.below(9))),
        }
        before = Some([&key[..], &[0]].concat());
    }
    let page = builder.build().bytes[..].to_vec();
    (builder.page_separator(0).to_vec(), page)
}
