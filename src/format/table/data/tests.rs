//! Data blocks against maps, to the byte, and with every check tripped.

mod places;

use std::collections::BTreeMap;

use super::*;
use crate::base::checksum::Context;
use crate::format::golden::Golden;
use crate::format::table::compressed::Compression;
use crate::format::table::data_build::DataBuilder;
use crate::format::table::{DATA_BLOCK_BYTES_MAX, UNIT_BYTES, check_seal};

const CONTEXT: Context = Context { file_uid: 7, offset: 4096, tag: 1 };

type Model = BTreeMap<Vec<u8>, (ItemKind, Vec<u8>)>;

fn tag(key: &[u8]) -> u8 {
    key.iter().fold(0, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(*byte)) % 16
}

/// One block of all items of the model.
fn block(model: &Model) -> Vec<u8> {
    let mut builder = DataBuilder::new(4096, Compression::None);
    model.iter().for_each(|(key, (kind, value))| builder.add(key, tag(key), *kind, value));
    let mut out = Vec::new();
    let used = builder.pending_bytes();
    let checksum = builder.encode(model.len(), CONTEXT, &mut out);
    assert_eq!(check_seal(&out, CONTEXT), Ok(checksum));
    assert_eq!(out.len(), extent_bytes(used));
    assert_eq!(extent_claimed(&out), Some(out.len()));
    assert_eq!(builder.items(), 0);
    out
}

fn put(value: &[u8]) -> (ItemKind, Vec<u8>) {
    (ItemKind::Put, value.to_vec())
}

fn models() -> Vec<Model> {
    let fixed = (0..30u32).map(|n| (n.to_be_bytes().repeat(4), put(&[n as u8; 100]))).collect();
    let mixed = (0..200u32)
        .map(|n| {
            let key = [&b"common"[..], &n.to_be_bytes()[..2 + n as usize % 2], &[n as u8]].concat();
            let item = if n % 3 == 0 { (ItemKind::Delete, vec![]) } else { put(&vec![1; n as usize % 9]) };
            (key, item)
        })
        .collect();
    let zeros = (0..40usize).map(|n| (vec![0; n], put(&[n as u8]))).collect();
    let wide = (0..20u8).map(|n| (vec![n; 4000 + n as usize], put(&vec![n; 5000]))).collect();
    let tags = (0..=255u8).map(|n| (vec![n], put(b""))).collect();
    let empty: Model = [(vec![], (ItemKind::Delete, vec![]))].into();
    let giant: Model = [(vec![7; KEY_BYTES_MAX], put(&vec![8; VALUE_BYTES_MAX]))].into();
    vec![fixed, mixed, zeros, wide, tags, empty, giant]
}

/// Every item is found by key, by index and by both bounds; absent keys are not found.
#[test]
fn blocks_agree_with_maps() {
    for model in models() {
        let block = block(&model);
        assert!(block.len() <= DATA_BLOCK_BYTES_MAX);
        let layout = check(&block).expect("built blocks are sound");
        assert_eq!(layout.items(), model.len());
        for (index, (key, (kind, value))) in model.iter().enumerate() {
            assert_eq!([layout.prefix(&block), layout.suffix(&block, index)].concat(), *key);
            assert_eq!(layout.kind(&block, index), *kind);
            assert_eq!(&block[layout.value_range(&block, index)], value);
        }
        for key in model.keys() {
            let shorter = key[..key.len().saturating_sub(1)].to_vec();
            let before = [&shorter[..], b"\0"].concat();
            let after = [&key[..], b"\0"].concat();
            for probe in [key.clone(), shorter, before, after, vec![], vec![255; 9]] {
                let found = find(&block, &probe, tag(&probe), None);
                let first = prefetch_item(&block, tag(&probe));
                assert_eq!(first.and_then(|first| find(&block, &probe, tag(&probe), Some(first))), found);
                let found = found.map(|found| (found.kind, block[found.value].to_vec()));
                assert_eq!(found.as_ref(), model.get(&probe));
                let lower = model.keys().take_while(|key| **key < probe).count();
                assert_eq!(layout.lower_bound(&block, &probe), lower);
                assert_eq!(
                    layout.upper_bound(&block, &probe),
                    lower + usize::from(model.contains_key(&probe))
                );
            }
        }
    }
}

/// A lookup reads only keys of items with the given tag.
#[test]
fn another_tag_finds_nothing() {
    let model: Model = (0..50u8).map(|n| (vec![n, n], put(b"v"))).collect();
    let block = block(&model);
    for key in model.keys() {
        assert!(find(&block, key, tag(key), None).is_some());
        assert!(find(&block, key, tag(key) ^ 128, None).is_none());
    }
}

/// The word arithmetic finds exactly the zero bytes.
#[test]
fn zero_bytes_are_exact() {
    for word in
        [0u64, 1, 0x0100, 0x8000_0000_0000_0001, u64::MAX, 0x0080_0001_00ff_7f00, 0x0101_0101_0101_0100]
    {
        let slow = (0..8).filter(|byte| (word >> (8 * byte)) as u8 == 0);
        assert_eq!(zero_bytes(word), slow.map(|byte| 0x80 << (8 * byte)).sum::<u64>(), "{word:x}");
    }
}

/// With fixed lengths a block takes one byte an item and the header, beside keys and values.
#[test]
fn fixed_lengths_cost_a_byte_an_item() {
    let mut builder = DataBuilder::new(4096, Compression::None);
    for n in 0..35u64 {
        builder.add(&[n.to_be_bytes().as_slice(), &[0; 8]].concat(), 0, ItemKind::Put, &[1; 100]);
    }
    // 7 bytes of prefix are stored once instead of 35 times.
    assert_eq!(builder.pending_bytes(), 35 * (16 + 100 + 1) + HEADER_BYTES - 34 * 7);
}

/// The rule for cuts: target-size blocks where they fill to 95 %, else the best filled extent up to twice the
/// target.
#[test]
fn cuts_follow_the_rule() {
    let cuts = |value_bytes: &[usize], target_bytes: usize| {
        let (mut builder, mut cuts) = (DataBuilder::new(target_bytes, Compression::None), Vec::new());
        let mut out = Vec::new();
        for (n, bytes) in value_bytes.iter().enumerate() {
            builder.add(
                &[&((n as u64) << 56).to_be_bytes()[..], &[0; 8]].concat(),
                0,
                ItemKind::Put,
                &vec![1; *bytes],
            );
            while let Some(count) = builder.cut() {
                out.clear();
                builder.encode(count, CONTEXT, &mut out);
                assert!(check(&out).is_ok());
                cuts.push((count, out.len()));
            }
        }
        (cuts, builder.items())
    };
    let (small, _) = cuts(&[100; 200], 4096);
    assert!(small.iter().all(|(items, bytes)| (34..=36).contains(items) && *bytes == 4096), "{small:?}");
    let (kilobyte, _) = cuts(&[1008; 29], 4096);
    assert_eq!(kilobyte, [(7, 7680); 4], "seven in 7.5 KiB");
    let (scaled, _) = cuts(&[1008; 200], 16_384);
    assert!(scaled.iter().all(|(items, bytes)| *items >= 15 && *bytes >= 15_872), "{scaled:?}");
    let (alone, left) = cuts(&[10, 20_000, 10, 10, 9000, 5000, 10], 4096);
    assert_eq!(alone, [(1, 512), (1, 20_480), (2, 512), (1, 9216)]);
    assert_eq!(left, 2);
}

/// Two blocks byte for byte: fixed lengths, and mixed ones with kinds.
#[test]
fn golden() {
    let fixed: Model = [(b"key-1".to_vec(), put(b"one")), (b"key-2".to_vec(), put(b"two"))].into();
    let mixed: Model = [
        (b"k".to_vec(), put(b"value")),
        (b"key".to_vec(), (ItemKind::Delete, vec![])),
        (b"kez".to_vec(), put(b"w")),
    ]
    .into();
    for (name, model) in [("table_data_fixed", fixed), ("table_data_mixed", mixed)] {
        let block = block(&model);
        let mut golden = Golden::new(name, &block);
        golden.heading("data block at offset 4096 of file uid 7");
        for (caption, count) in [
            ("checksum", 4),
            ("tag", 1),
            ("flags", 1),
            ("items", 2),
            ("used", 4),
            ("prefix length", 2),
            ("suffix length", 2),
            ("value length", 4),
            ("tags", model.len()),
        ] {
            golden.field(caption, count);
        }
        if name == "table_data_fixed" {
            golden.field("prefix", 4);
            golden.field("suffixes", 2);
            golden.field("values", 6);
        } else {
            golden.field("kinds", 3);
            golden.field("suffix ends", 6);
            golden.field("value ends", 6);
            golden.field("prefix", 1);
            golden.field("suffixes", 4);
            golden.field("values", 6);
        }
        golden.zeros_to("padding", UNIT_BYTES);
        golden.check();
    }
}

/// Every check has bytes that trip it, even under a right checksum.
#[test]
fn malformed_blocks_are_refused() {
    let model: Model = [
        (b"pa".to_vec(), put(b"x")),
        (b"pbb".to_vec(), (ItemKind::Delete, vec![])),
        (b"pc".to_vec(), put(b"yz")),
    ]
    .into();
    let good = block(&model);
    assert!(check(&good).is_ok());
    // 20 tags, 23 kinds, 26 suffix ends, 32 value ends, 38 prefix, 39 suffixes, 43 values, 46 used.
    assert_eq!(good[8], 46);
    for (at, byte, what) in [
        (5, KINDS | 16, "flags of a data block"),
        (6, 0, "item count of a data block"),
        (6, 255, "used bytes of a data block"),
        (8, 45, "used bytes of a data block"),
        (9, 255, "used bytes of a data block"),
        (12, 2, "used bytes of a data block"),
        (14, 1, "unused suffix length"),
        (16, 1, "unused value length"),
        (23, 0, "item kind"),
        (23, 3, "item kind"),
        (23, 2, "value length of a delete"),
        (26, 4, "ends in a data block"),
        (30, 5, "used bytes of a data block"),
        (32, 9, "ends in a data block"),
        (39, b'd', "order of keys in a data block"),
        (46, 1, "padding of a data block"),
        (511, 1, "padding of a data block"),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(check(&bad).map(|_| ()).map_err(|bad| bad.what), Err(what), "byte {at} = {byte}");
    }
    assert!(check(&good[..19]).is_err(), "short");
    assert!(check(&[&good[..], &[0; 512]].concat()).is_err(), "a unit too long");
    let equal = {
        let mut bad = good.clone();
        bad[42] = b'a';
        bad[39] = b'a';
        bad[40..42].copy_from_slice(b"aa");
        bad
    };
    assert!(check(&equal).is_err());
}

/// Keys with the same first eight bytes are ordered by the rest, with one length or with many.
#[test]
fn keys_that_begin_alike_are_in_order() {
    let keys = |second: &[u8]| [[&[1; 8][..], &[1]].concat(), [&[1; 8][..], second].concat(), vec![2; 9]];
    for second in [&[2][..], &[2, 0]] {
        let good = block(&keys(second).into_iter().map(|key| (key, put(b"x"))).collect());
        let layout = check(&good).expect("it is in order");
        assert_eq!(layout.flags & FIXED_KEYS != 0, second.len() == 1);
        let first_ends = layout.suffix_range(&good, 0).end;
        let mut bad = good.clone();
        bad[first_ends - 1] = 3;
        assert_eq!(check(&bad).map(|_| ()).map_err(|bad| bad.what), Err("order of keys in a data block"));
        bad[first_ends - 1] = 2;
        assert_eq!(check(&bad).is_err(), second.len() == 1, "only equal keys are no order");
    }
}

/// The limits of keys and values hold for crafted blocks too.
#[test]
fn oversized_items_are_refused() {
    let mut header = vec![0u8; 20];
    header[5] = FIXED_KEYS | FIXED_VALUES;
    header[6] = 1;
    let with = |prefix: u16, suffix: u16, value: u32| {
        let mut bytes = header.clone();
        let used = 21 + u32::from(prefix) + u32::from(suffix) + value;
        bytes[8..12].copy_from_slice(&used.to_le_bytes());
        bytes[12..14].copy_from_slice(&prefix.to_le_bytes());
        bytes[14..16].copy_from_slice(&suffix.to_le_bytes());
        bytes[16..20].copy_from_slice(&value.to_le_bytes());
        bytes.resize(extent_bytes(used as usize), 0);
        check(&bytes).map(|_| ()).map_err(|bad| bad.what)
    };
    assert_eq!(with(65_535, 0, 1 << 20), Ok(()));
    assert_eq!(with(65_535, 1, 0), Err("key length"));
    assert_eq!(with(0, 0, (1 << 20) + 1), Err("value length"));
    assert_eq!(extent_claimed(&[0; 20]), None);
    assert_eq!(extent_claimed(&[255; 512]), None);
}

/// No damaged block makes an accessor leave its bytes: a block that passes the check is walked completely.
#[test]
fn damaged_blocks_never_panic() {
    for model in models().into_iter().take(3) {
        let good = block(&model);
        for at in 4..good.len().min(700) {
            for flip in [1u8, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                let Ok(layout) = check(&bad) else { continue };
                for index in 0..layout.items() {
                    let key = [layout.prefix(&bad), layout.suffix(&bad, index)].concat();
                    assert_eq!(layout.lower_bound(&bad, &key), index);
                    assert!(bad.get(layout.value_range(&bad, index)).is_some());
                    find(&bad, &key, tag(&key), None);
                }
            }
        }
    }
}

/// A changed value under a recomputed checksum is accepted: checksums are not signatures.
#[test]
fn checksums_are_not_signatures() {
    let model: Model = [(b"key".to_vec(), put(b"value"))].into();
    let mut bytes = block(&model);
    let at = bytes.windows(5).position(|window| window == b"value").expect("stored as it is");
    bytes[at] = b'V';
    assert!(check_seal(&bytes, CONTEXT).is_err());
    crate::format::table::seal(&mut bytes, CONTEXT);
    assert!(check_seal(&bytes, CONTEXT).is_ok() && check(&bytes).is_ok());
    let found = find(&bytes, b"key", tag(b"key"), None).expect("the key is there");
    assert_eq!(&bytes[found.value], b"Value");
}

/// Bytes of all blocks divided by the bytes of keys and values, for items of one size.
fn space(item_bytes: usize) -> f64 {
    let mut builder = DataBuilder::new(4096, Compression::None);
    let (mut out, mut items, mut data_bytes, mut extents_bytes) = (Vec::new(), 0u64, 0, 0);
    while (items as usize * item_bytes) < 300_000.max(item_bytes * 10) {
        items += 1;
        builder.add(&(items << 40).to_be_bytes(), 0, ItemKind::Put, &vec![1; item_bytes - 8]);
        while let Some(count) = builder.cut() {
            out.clear();
            builder.encode(count, CONTEXT, &mut out);
            data_bytes += count * item_bytes;
            extents_bytes += out.len();
        }
    }
    extents_bytes as f64 / data_bytes as f64
}

/// The overhead of blocks by item size is the one in the table in `data_build`.
#[test]
fn space_by_size_of_item() {
    for (from, to, step, mean_max, worst_max) in [
        (16, 100, 6, 1.01, 1.02),
        (100, 1024, 11, 1.02, 1.08),
        (1024, 4096, 80, 1.04, 1.09),
        (4096, 8192, 160, 1.05, 1.13),
        (8192, 65_536, 1000, 1.01, 1.07),
    ] {
        let ratios: Vec<f64> = (from..=to).step_by(step).map(space).collect();
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let worst = ratios.iter().fold(0.0, |worst: f64, ratio| worst.max(*ratio));
        assert!(mean <= mean_max && worst <= worst_max, "{from} to {to}: mean {mean:.4}, worst {worst:.4}");
    }
}

/// Cache lines of a block that are read: accessors of this thread note the bytes they read.
pub(super) mod lines {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::ops::Range;

    pub(super) const LINE_BYTES: usize = super::super::LINE_BYTES;

    pub(super) type Lines = BTreeSet<usize>;

    thread_local! {
        static SEEN: RefCell<Option<Lines>> = const { RefCell::new(None) };
    }

    pub(crate) fn note(bytes: &Range<usize>) {
        SEEN.with_borrow_mut(|seen| {
            if let Some(seen) = seen {
                seen.extend(of(bytes));
            }
        });
    }

    pub(super) fn of(bytes: &Range<usize>) -> Range<usize> {
        if bytes.is_empty() { 0..0 } else { bytes.start / LINE_BYTES..bytes.end.div_ceil(LINE_BYTES) }
    }

    /// The result of a call, and the cache lines that it read.
    pub(super) fn seen_by<R>(what: impl FnOnce() -> R) -> (R, Lines) {
        SEEN.set(Some(Lines::new()));
        let answer = what();
        (answer, SEEN.take().expect("set above"))
    }
}

/// Items of one kind of block, and limits on the mean number of lines that a lookup reads.
struct Lookups {
    name: &'static str,
    key_bytes: usize,
    /// Minimum length of the values, and maximum excess over it.
    value_bytes: (usize, usize),
    hit_max: f64,
    miss_max: f64,
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state ^ (*state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 8
}

/// Sums of lines over many lookups: of `find`, of a binary search in the same columns, and of two searches in
/// rows of the same items behind an array of offsets, one binary and one linear.
#[derive(Default)]
struct Sums {
    lookups: usize,
    find: usize,
    find_most: usize,
    columns: usize,
    rows: usize,
    linear: usize,
}

impl Sums {
    /// Looks `key` up in all ways, and checks that the result of `find` depends only on the noted lines.
    fn add(&mut self, block: &[u8], keys: &[Vec<u8>], ends: &[usize], key: &[u8], tag: u8) {
        let (found, seen) = lines::seen_by(|| find(block, key, tag, None));
        let at = keys.partition_point(|one| one.as_slice() < key);
        let is_there = keys.get(at).is_some_and(|one| one == key);
        assert_eq!(found.is_some(), is_there);
        for noise in [tag, !tag] {
            let mut garbled = block.to_vec();
            let garbled_lines = garbled.chunks_mut(lines::LINE_BYTES).enumerate();
            garbled_lines.filter(|(line, _)| !seen.contains(line)).for_each(|(_, bytes)| bytes.fill(noise));
            assert_eq!(find(&garbled, key, tag, None), found);
        }
        let (_, columns) = lines::seen_by(|| Layout::of(block).lower_bound(block, key));
        let offset = |index: usize| HEADER_BYTES + 2 * index..HEADER_BYTES + 2 * index + 2;
        let row = |index: usize| {
            let start = if index == 0 { 0 } else { ends[index - 1] };
            let start = offset(keys.len()).start + start;
            start..start + keys[index].len()
        };
        let mut rows: lines::Lines = lines::of(&(0..HEADER_BYTES)).collect();
        let mut linear = rows.clone();
        let (mut low, mut high) = (0, keys.len());
        while low < high {
            let middle = low + (high - low) / 2;
            rows.extend(lines::of(&offset(middle)));
            rows.extend(lines::of(&row(middle)));
            (low, high) = if keys[middle].as_slice() < key { (middle + 1, high) } else { (low, middle) };
        }
        (0..=at.min(keys.len() - 1)).for_each(|index| linear.extend(lines::of(&row(index))));
        self.lookups += 1;
        self.find += seen.len();
        self.find_most = self.find_most.max(seen.len());
        self.columns += columns.len();
        self.rows += rows.len();
        self.linear += linear.len();
    }

    fn means(&self) -> [f64; 4] {
        [self.find, self.columns, self.rows, self.linear].map(|sum| sum as f64 / self.lookups as f64)
    }
}

/// A lookup in a 4 KiB block reads few 64-byte lines to find the value or to know that the key is absent:
/// fewer than a search that compares keys, in any layout.
#[test]
fn lookups_touch_few_lines() {
    for Lookups { name, key_bytes, value_bytes: (least, more), hit_max, miss_max } in [
        Lookups { name: "16 + 100", key_bytes: 16, value_bytes: (100, 0), hit_max: 2.3, miss_max: 1.2 },
        Lookups { name: "8 + 16", key_bytes: 8, value_bytes: (16, 0), hit_max: 4.7, miss_max: 4.5 },
        Lookups {
            name: "16 + 50 to 150",
            key_bytes: 16,
            value_bytes: (50, 100),
            hit_max: 3.9,
            miss_max: 1.2,
        },
    ] {
        let mut state = 7;
        let (mut hits, mut misses) = (Sums::default(), Sums::default());
        for _ in 0..40 {
            let mut random = || random(&mut state);
            let mut builder = DataBuilder::new(4096, Compression::None);
            let base = random() << 20;
            let mut keys: Vec<Vec<u8>> = (0..400)
                .map(|_| [(base + random() % (1 << 20)).to_be_bytes(), random().to_be_bytes()].concat())
                .map(|key| key[..key_bytes].to_vec())
                .collect();
            keys.sort();
            keys.dedup();
            let tags: Vec<u8> = keys.iter().map(|_| random() as u8).collect();
            let mut ends = Vec::new();
            let mut count = None;
            for (key, tag) in keys.iter().zip(&tags) {
                let bytes = least + random() as usize % (more + 1);
                builder.add(key, *tag, ItemKind::Put, &vec![1; bytes]);
                ends.push(ends.last().unwrap_or(&0) + key_bytes + bytes);
                count = count.or(builder.cut());
            }
            let mut block = Vec::new();
            builder.encode(count.expect("more than a block"), CONTEXT, &mut block);
            assert!(check(&block).is_ok() && block.len() <= 4608, "{}", block.len());
            keys.truncate(count.expect("cut"));
            for (key, tag) in keys.iter().zip(&tags) {
                hits.add(&block, &keys, &ends, key, *tag);
                let mut absent = key.clone();
                absent[key_bytes - 1] ^= 1;
                if keys.binary_search(&absent).is_err() {
                    misses.add(&block, &keys, &ends, &absent, random() as u8);
                }
            }
        }
        for (what, sums, most) in [("hit", hits, hit_max), ("miss", misses, miss_max)] {
            let means = sums.means();
            println!(
                "{name} {what}: {means:.2?} lines, at most {}, {} lookups",
                sums.find_most, sums.lookups
            );
            assert!(means[0] <= most, "{name} {what}: {} lines", means[0]);
            assert!(means[1..].iter().all(|other| *other > means[0] * 1.1), "{name} {what}: {means:?}");
        }
    }
}
