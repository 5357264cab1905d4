//! Pages of quanta against a linear search, to the byte, and with every check tripped.

use crate::base::checksum::Context;
use crate::base::key::head;
use crate::format::golden::Golden;
use crate::format::table::fence::{Extent, FencePage};
use crate::format::table::fence_build::{FenceBuilder, FencePages};
use crate::format::table::quanta::Quanta;
use crate::format::table::{UNIT_BYTES, seal};

/// Heads of the first and the last key, and the length.
type Block = (u64, u64, usize);

/// The number of quanta in the space of places: 2^16 heads in each.
const QUANTA: u64 = 1 << 48;
const SHIFT: u32 = 16;

fn pages(blocks: &[Block]) -> FencePages {
    let mut builder = FenceBuilder::new(8192);
    builder.set_quanta(Some(Quanta::new(QUANTA)));
    let mut before: Option<[u8; 8]> = None;
    for (first, last, bytes) in blocks {
        builder.add(before.as_ref().map(|last| &last[..]), &first.to_be_bytes(), *bytes);
        before = Some(last.to_be_bytes());
    }
    builder.build()
}

/// Blocks that begin at these quanta and extend to the next start, with the lengths in turn.
fn blocks(starts: impl Iterator<Item = u64>, lengths: &[usize]) -> Vec<Block> {
    let starts: Vec<u64> = starts.map(|start| start << SHIFT).collect();
    let lasts = starts.iter().skip(1).map(|next| next - 1).chain([u64::MAX]);
    let all = starts.iter().zip(lasts).enumerate();
    all.map(|(number, (first, last))| (*first, last, lengths[number % lengths.len()])).collect()
}

fn sets() -> Vec<(&'static str, Vec<Block>, u8)> {
    let far = 1 << 47;
    vec![
        ("uniform", blocks((0..9000).map(|n| 7 + n * 120 + n % 9), &[4096]), 4 | 1),
        ("of many lengths", blocks((0..5000).map(|n| 100 * n), &[4096, 512, 120 << 10]), 4),
        ("long blocks", blocks((0..300).map(|n| 3 * n), &[512, 300 << 10]), 4 | 16),
        ("far gaps", blocks((0..3000).map(|n| far + 40 * n + 60_000 * (n / 2)), &[4096]), 4 | 1 | 8),
        ("two", blocks([5, 9].into_iter(), &[4096, 512]), 4 | 1),
        ("at a group's bound", blocks(0..65, &[1024]), 4 | 1),
    ]
}

/// For keys at and around every bound, search finds the same block as a linear search, with samples and
/// without. Blocks have their extents.
#[test]
fn search_is_exact() {
    for (name, blocks, flags) in sets() {
        let built = pages(&blocks);
        let mut ends = built.first_blocks.iter().skip(1).copied().chain([blocks.len()]);
        let mut offset = 8192;
        for (page, start) in built.bytes.chunks(built.page_bytes).zip(&built.first_blocks) {
            let end = ends.next().expect("one a page");
            let fences = FencePage::check(page).expect("built pages are sound");
            assert_eq!(page[5], flags, "{name}");
            assert_eq!(fences.blocks(), end - start, "{name}");
            let samples: Vec<u64> = fences.samples().collect();
            let sampled = FencePage::shaped(page, fences.shape(), &samples);
            for (index, (first, last, bytes)) in blocks[*start..end].iter().enumerate() {
                assert_eq!(fences.extent(index), Extent { offset, bytes: *bytes as u32 }, "{name}");
                assert!(!fences.is_alone(index));
                offset += *bytes as u64;
                for (key, expected) in [(*first, index), (*last, index), (first + 1, index)] {
                    let key = key.to_be_bytes();
                    assert_eq!(fences.find(&key, &[]), expected, "{name}, block {index}");
                    let line = sampled.line_of(&key, &[]);
                    assert_eq!(sampled.find_in(&key, &[], line), expected, "{name}, block {index}");
                    assert!(sampled.line_at(line) < page.len());
                    assert!(sampled.blocks_of(&key, line).all(|block| block / 64 == line));
                }
            }
            assert_eq!(fences.find(&[], &[]), 0, "what is before the page");
            assert_eq!(fences.find(&[255; 30], &[]), end - start - 1, "what is behind it");
        }
    }
}

/// A block takes one byte, unless another block begins in the same quantum; then the page has separators.
#[test]
fn pages_are_small() {
    let each = |blocks: &[Block]| pages(blocks).bytes.len() as f64 / blocks.len() as f64;
    let evenly = blocks((0..30_000).map(|n| 120 * n), &[4096]);
    assert!(each(&evenly) < 1.15, "{}", each(&evenly));
    let of_lengths = blocks((0..30_000).map(|n| 120 * n), &[4096, 8192]);
    assert!(each(&of_lengths) < 2.3, "{}", each(&of_lengths));
    let tied: Vec<Block> = (0..30_000u64).map(|n| (n << 10, (n << 10) + 9, 4096)).collect();
    let built = pages(&tied);
    assert!(built.bytes.chunks(built.page_bytes).all(|page| page[5] & 4 == 0), "of separators");
}

/// A page of a few blocks, byte for byte.
#[test]
fn golden() {
    let mut built = pages(&blocks([0x10, 0x52, 0x90, 0xff].into_iter(), &[4096, 512]));
    seal(&mut built.bytes, Context { file_uid: 7, offset: 16_384, tag: 3 });
    let mut golden = Golden::new("table_fence_quanta", &built.bytes);
    golden.heading("fence page at offset 16384 of file uid 7");
    for (caption, count) in [
        ("checksum", 4),
        ("tag", 1),
        ("flags", 1),
        ("blocks", 2),
        ("offset", 8),
        ("block bytes", 4),
        ("last bytes", 4),
        ("zero", 4),
        ("base gap", 4),
        ("quanta", 8),
        ("start", 8),
    ] {
        golden.field(caption, count);
    }
    golden.zeros_to("zero", 64);
    golden.field("gaps", 3);
    golden.field("units", 4);
    golden.zeros_to("padding", 512);
    golden.check();
}

/// Every check has bytes that trip it, even under a right checksum.
#[test]
fn malformed_pages_are_refused() {
    let few = pages(&blocks([0x10, 0x52, 0x90, 0xff].into_iter(), &[4096, 512])).bytes;
    let many = pages(&blocks((0..65).map(|n| 9 * n), &[4096, 512])).bytes;
    // Few: 64 gaps, 67 units, 71 end. Many: 64 gaps, 128 units, 193 sum of gaps, 197 sum of units, 201 end.
    for (page, at, byte, what) in [
        (&few, 5, 4 | 2, "flags of a fence page"),
        (&few, 5, 4 | 32, "flags of a fence page"),
        (&few, 5, 4 | 1 | 16, "flags of a fence page"),
        (&few, 6, 0, "blocks of a fence page"),
        (&few, 7, 8, "columns of a fence page"),
        (&few, 16, 1, "unused block length"),
        (&few, 24, 1, "padding of a fence page"),
        (&few, 28, 0, "gap of a fence page"),
        (&few, 31, 255, "gap of a fence page"),
        (&few, 50, 1, "padding of a fence page"),
        (&few, 67, 0, "units of a fence page"),
        (&few, 71, 1, "padding of a fence page"),
        (&few, 511, 1, "padding of a fence page"),
        (&many, 64, 1, "sum in a fence page"),
        (&many, 128, 1, "sum in a fence page"),
        (&many, 193, 1, "sum in a fence page"),
        (&many, 197, 1, "sum in a fence page"),
        (&many, 201, 1, "padding of a fence page"),
    ] {
        let mut bad = page.clone();
        bad[at] = byte;
        let found = FencePage::check(&bad).map(|_| ()).map_err(|bad| bad.what);
        assert_eq!(found, Err(what), "byte {at} = {byte}");
    }
    let mut last = few.clone();
    last[40..48].fill(255);
    assert!(FencePage::check(&last).is_err(), "quanta beyond all numbers");
    assert_eq!(many.len(), UNIT_BYTES);
}

/// No damaged page makes a search or an extent leave its bytes.
#[test]
fn damaged_pages_never_panic() {
    for (_, blocks, _) in sets() {
        let built = pages(&blocks);
        let page = &built.bytes[..built.page_bytes];
        for at in (4..page.len()).step_by(7) {
            let mut bad = page.to_vec();
            bad[at] ^= 0x81;
            let Ok(fences) = FencePage::check(&bad) else { continue };
            let samples: Vec<u64> = fences.samples().collect();
            let sampled = FencePage::shaped(&bad, fences.shape(), &samples);
            for key in [&[][..], &blocks[0].1.to_be_bytes(), &blocks[1].0.to_be_bytes(), &[255; 30]] {
                assert!(fences.find(key, &[]) < fences.blocks());
                assert!(sampled.find(key, &[]) < fences.blocks());
                sampled.blocks_of(key, sampled.line_of(key, &[]));
            }
            (0..fences.blocks()).for_each(|index| assert!(fences.extent(index).bytes > 0));
        }
    }
}

/// A greater key is never in an earlier quantum, and the number of quanta saturates.
#[test]
fn quanta_ascend() {
    let quanta = Quanta::of_block(35, [0, 1 << 50]);
    let all: Vec<u64> = (0..2000u64).map(|n| quanta.of(n << 42)).collect();
    assert!(all.is_sorted() && all[1999] > all[0]);
    assert!((100..140).contains(&(quanta.of(1 << 50) - quanta.of(0))), "20 times the root of 35");
    assert_eq!(Quanta::of_block(1, [0, 0]).of(head(&[255; 8])) >> 60, 15, "as many as there can be");
}

/// Changed pages that pass the check give the same answers with samples and without, within their blocks.
#[test]
fn crafted_pages_are_harmless() {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut roll = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut passed = 0;
    for (_, blocks, _) in sets() {
        let built = pages(&blocks[..blocks.len().min(300)]);
        for _ in 0..1500 {
            let mut page = built.bytes.clone();
            match roll(4) {
                0 => page[28 + roll(20) as usize] = roll(256) as u8,
                1 => {
                    let values = [0, 1, u64::MAX, 1 << 63, u64::MAX - 5];
                    let (at, value) = (32 + 8 * roll(2) as usize, values[roll(5) as usize]);
                    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
                }
                2 => page[5] = 4 | roll(256) as u8 & 25,
                _ => page[roll(built.bytes.len() as u64) as usize] = roll(256) as u8,
            }
            let Ok(fences) = FencePage::check(&page) else { continue };
            passed += 1;
            let samples: Vec<u64> = fences.samples().collect();
            let shaped = FencePage::shaped(&page, fences.shape(), &samples);
            for key in [0, u64::MAX, roll(1 << 31), roll(1 << 31) << 31, 1 << 63, (1 << 63) - 1] {
                let key = u64::to_be_bytes(key);
                let (found, line) = (fences.find(&key, &[]), shaped.line_of(&key, &[]));
                assert!(found < fences.blocks());
                assert_eq!(shaped.find_in(&key, &[], line), found);
                shaped.blocks_of(&key, line);
            }
            (0..fences.blocks()).for_each(|index| assert!(fences.extent(index).bytes > 0));
        }
    }
    assert!(passed > 1000, "{passed}");
}
