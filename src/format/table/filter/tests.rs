//! Filters of every kind: no key is missed, false positive rates follow the formulas, every check is tripped.

use super::places::mix;
use super::*;
use crate::base::checksum::Context;
use crate::base::hash::HashSecret;
use crate::format::golden::Golden;
use crate::format::table::seal;
use proptest::prelude::*;

const KINDS: [FilterKind; 3] = [FilterKind::Line, FilterKind::Bloom, FilterKind::Fuse];

fn hashes(range: std::ops::Range<u64>) -> Vec<u64> {
    let secret = HashSecret::expand([3; 16]);
    range.map(|number| field(secret.hash(&number.to_le_bytes()))).collect()
}

fn plan(kind: FilterKind, bits_per_key: u32) -> FilterPlan {
    FilterPlan { kind, ..FilterPlan::of_bits(bits_per_key) }
}

/// The filter over `inside`, with its shape; all pages pass the check.
fn built(plan: FilterPlan, inside: &[u64]) -> (FilterShape, Vec<u8>) {
    let mut pages = vec![1, 2, 3];
    let shape = build(plan, &mut inside.to_vec(), &mut pages);
    let pages = pages.split_off(3);
    assert!(shape.is_valid(), "{shape:?}");
    assert_eq!(pages.len() as u64, shape.bytes());
    let page_bytes = (shape.page_bytes as usize).max(1);
    pages.chunks(page_bytes).for_each(|page| assert_eq!(check(page), Ok(())));
    (shape, pages)
}

fn query(shape: FilterShape, pages: &[u8], hash: u64) -> bool {
    let at = shape.page(hash) as usize * shape.page_bytes as usize;
    shape.may_contain(&pages[at..at + shape.page_bytes as usize], hash)
}

/// The share of `outside` that passes a filter of this plan over `inside`.
fn measured(plan: FilterPlan, inside: &[u64], outside: &[u64]) -> f64 {
    let (shape, pages) = built(plan, inside);
    assert_eq!(shape.kind, plan.kind);
    assert!(inside.iter().all(|hash| query(shape, &pages, *hash)), "no false negative");
    let positives = outside.iter().filter(|hash| query(shape, &pages, **hash)).count();
    positives as f64 / outside.len() as f64
}

/// The false positive rate that 512-bit lines with this number of items a line allow, by the formula at
/// `line::PROBES`.
fn allowed_by_lines(items_per_line: f64, probes: u8) -> f64 {
    let mut weight = (-items_per_line).exp();
    let mut rate = 0.0;
    for items in 0..(items_per_line * 4.0 + 60.0) as i32 {
        let clear = (1.0 - 1.0 / 512.0f64).powi(i32::from(probes) * items);
        rate += weight * (1.0 - clear).powi(i32::from(probes));
        weight *= items_per_line / f64::from(items + 1);
    }
    rate
}

/// The rate of an ideal Bloom filter.
fn formula(bits_per_key: f64, probes: u8) -> f64 {
    (1.0 - (-f64::from(probes) / bits_per_key).exp()).powi(i32::from(probes))
}

/// At 5, 8, 10 and 16 bits a key a cache-line Bloom filter has at most 1.15 times the false positives that
/// 512-bit lines allow: 9.29 %, 2.31 %, 0.958 % and 0.0826 %.
#[test]
fn lines_err_as_lines_must() {
    let (inside, outside) = (hashes(0..100_000), hashes(1 << 40..(1 << 40) + 500_000));
    for (bits_per_key, stated) in [(5, 0.0929), (8, 0.0231), (10, 0.00958), (16, 0.000826)] {
        let rate = measured(FilterPlan::of_bits(bits_per_key), &inside, &outside);
        let probes = line::probes(bits_per_key * MILLI);
        let ideal = allowed_by_lines(512.0 / f64::from(bits_per_key), probes);
        assert!((ideal / stated - 1.0).abs() < 0.01, "{bits_per_key} bits: {ideal} is what is stated");
        assert!(rate < ideal * 1.15, "{bits_per_key} bits: {rate} against {ideal}");
    }
}

/// At 5, 8, 10 and 16 bits a key a Bloom filter of many pages has at most 1.15 times the false positives of
/// the formula; with other probes too. A binary fuse has 0.45 % at most.
#[test]
fn bloom_and_fuse_err_by_their_formulas() {
    let (inside, outside) = (hashes(0..100_000), hashes(1 << 40..(1 << 40) + 500_000));
    for (bits_per_key, probes) in [(5, 0), (8, 0), (10, 0), (16, 0), (10, 3), (10, 12)] {
        let plan = FilterPlan { probes, ..plan(FilterKind::Bloom, bits_per_key) };
        let rate = measured(plan, &inside, &outside);
        let ideal = formula(f64::from(bits_per_key), FilterShape::new(9, plan).probes);
        assert!(rate < ideal * 1.15, "{bits_per_key} bits, {probes} probes: {rate} against {ideal}");
    }
    let rate = measured(plan(FilterKind::Fuse, 1), &inside, &outside);
    assert!(rate < 0.0045, "{rate}");
}

/// Bits in an array of any size, with two ways to choose them: that of a Bloom page, and double hashing.
struct Small {
    probes: u8,
    bits: u64,
    bytes: Vec<u8>,
}

/// False positive rate of many filters of `keys` keys each, with `set` and `are_set` as given.
fn small_rate(
    (keys, bits_per_key): (u64, u32),
    set: fn(&mut Small, u64),
    are_set: fn(&Small, u64) -> bool,
) -> f64 {
    let (filters, queries) = (60_000 / keys, 1000 * u64::from(bits_per_key));
    let outside = hashes(1 << 50..(1 << 50) + queries);
    let mut positives = 0;
    for number in 0..filters {
        let bits = keys * u64::from(bits_per_key);
        let bytes = vec![0; bits.div_ceil(8) as usize];
        let mut small = Small { probes: bloom::probes(bits_per_key * MILLI), bits, bytes };
        let inside = hashes(number << 20..(number << 20) + keys);
        inside.iter().for_each(|hash| set(&mut small, *hash));
        assert!(inside.iter().all(|hash| are_set(&small, *hash)), "no false negative");
        positives += outside.iter().filter(|hash| are_set(&small, **hash)).count();
    }
    positives as f64 / (filters * queries) as f64
}

/// Double hashing: two halves of a hash by rotation, and their sums modulo the bits (Kirsch and
/// Mitzenmacher). Small filters must not use it.
fn doubled(small: &Small, hash: u64) -> impl Iterator<Item = usize> + use<> {
    let (start, step) = (mix(hash), mix(hash).rotate_left(31));
    let (bits, probes) = (small.bits, u64::from(small.probes));
    (0..probes).map(move |probe| (start.wrapping_add(probe.wrapping_mul(step)) % bits) as usize)
}

/// Small filters follow the formula too: at most 1.15 times at 256 keys, 1.4 times at 35. Double hashing,
/// which the remix replaces, would not.
#[test]
fn small_bloom_filters_err_by_the_formula() {
    for bits_per_key in [5, 8, 10, 16] {
        for (keys, limit) in [(256, 1.15), (35, 1.4)] {
            let ideal = formula(f64::from(bits_per_key), bloom::probes(bits_per_key * MILLI));
            let rate = small_rate(
                (keys, bits_per_key),
                |small, hash| bloom::set(&mut small.bytes, small.bits, hash, small.probes),
                |small, hash| bloom::are_set(&small.bytes, small.bits, hash, small.probes),
            );
            assert!(rate < ideal * limit, "{keys} keys, {bits_per_key} bits: {rate} against {ideal}");
        }
    }
    let doubling = small_rate(
        (35, 16),
        |small, hash| doubled(small, hash).for_each(|bit| small.bytes[bit / 8] |= 1 << (bit % 8)),
        |small, hash| doubled(small, hash).all(|bit| small.bytes[bit / 8] >> (bit % 8) & 1 == 1),
    );
    assert!(doubling > formula(16.0, 11) * 1.4, "double hashing: {doubling}");
}

/// A few keys have a page of a few lines, and no key is missed at any number of keys, for every kind.
#[test]
fn small_filters_are_small() {
    for items in [1u64, 2, 40, 45, 46, 300, 3000, 3175, 3176, 3225, 3226, 6100] {
        let inside = hashes(0..items);
        for kind in KINDS {
            let (shape, pages) = built(plan(kind, 10), &inside);
            assert_eq!(shape.kind, kind);
            assert!(shape.bytes() <= (items * 10 / 8 + 64) * 64 / 63 + 1024 || shape.pages > 1);
            assert!(inside.iter().all(|hash| query(shape, &pages, *hash)));
            assert!(inside.iter().all(|hash| {
                let at = shape.first_line_at(*hash);
                at >= LINE_BYTES && at + LINE_BYTES <= shape.page_bytes as usize
            }));
        }
    }
    for none in [plan(FilterKind::Line, 0), plan(FilterKind::Fuse, 0), plan(FilterKind::None, 10)] {
        assert_eq!(built(none, &hashes(0..9)), (FilterShape::NONE, Vec::new()));
    }
    assert_eq!(FilterShape::new(0, FilterPlan::of_bits(10)), FilterShape::NONE);
    assert_eq!(FilterShape::new(3, FilterPlan::of_bits(10)).page_bytes, 512);
}

/// Keys that all select one page, too many for a fuse, get a Bloom filter. Keys with equal hashes get a fuse,
/// and so do many pages of keys.
#[test]
fn keys_too_many_for_a_fuse_get_a_bloom_filter() {
    let plan = plan(FilterKind::Fuse, 10);
    let ground: Vec<u64> = (0..9000).map(|number| number << 20).collect();
    let (shape, pages) = built(plan, &ground);
    assert_eq!(shape.kind, FilterKind::Line);
    assert!(ground.iter().all(|hash| query(shape, &pages, *hash)));
    let (shape, pages) = built(plan, &[7 << 20; 5000]);
    assert_eq!((shape.kind, shape.bytes()), (FilterKind::Fuse, 512));
    assert!(query(shape, &pages, 7 << 20));
    let (shape, _) = built(plan, &hashes(0..200_000));
    assert_eq!(shape.kind, FilterKind::Fuse);
    let millibits = shape.bytes() * 8 * 1000 / 200_000;
    assert!(millibits.abs_diff(u64::from(FUSE_MILLIBITS)) < 200, "{millibits}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// No key is missed: with any number of keys, some of them duplicates, spread or close together, for
    /// every kind, and with any bits and probes.
    #[test]
    fn no_key_is_missed(
        sizes in prop::collection::vec(0u64..3000, 0..4),
        shift in 20u32..50,
        millibits_per_key in 0u32..24_000,
        probes in 0u8..20,
        is_large in prop::bool::weighted(0.1),
    ) {
        let mut inside: Vec<u64> = Vec::new();
        for (number, size) in (0..).zip(&sizes) {
            inside.extend((0..*size).map(|key| (key * 3 + number) << shift));
        }
        inside.extend(hashes(0..if is_large { 100_000 } else { 100 }));
        inside.extend_from_within(..inside.len() / 3);
        for kind in KINDS {
            let (shape, pages) = built(FilterPlan { kind, millibits_per_key, probes }, &inside);
            if shape.pages > 0 {
                prop_assert!(inside.iter().all(|hash| query(shape, &pages, *hash)));
            }
        }
    }

    /// A check and a query of a page of any bytes end without a panic.
    #[test]
    fn crafted_pages_are_harmless(
        mut page in prop::collection::vec(any::<u8>(), 0..5000),
        units in 0usize..9,
        hash in any::<u64>(),
        probes in any::<u8>(),
    ) {
        if units > 0 {
            page.resize(units * UNIT_BYTES, 0xff);
        }
        prop_assert!(check(&page).is_err() || is_page(page.len()));
        for kind in KINDS {
            let page_bytes = page.len() as u32;
            let shape = FilterShape { kind, pages: 1, page_bytes, probes, ..FilterShape::NONE };
            shape.may_contain(&page, hash);
        }
    }
}

/// A small filter of each kind, and one of two whole pages.
#[test]
fn golden() {
    let fields = [0x0123_4567_89a0_0000, 0x7fff_ffff_fff0_0000, 0xfedc_ba98_7650_0000];
    for (name, plan) in [
        ("table_filter_small", plan(FilterKind::Line, 10)),
        ("table_filter_bloom", plan(FilterKind::Bloom, 10)),
        ("table_filter_fuse", plan(FilterKind::Fuse, 10)),
        // Enough bits a key that three keys need two pages.
        ("table_filter_pages", FilterPlan { probes: 6, ..plan(FilterKind::Line, 11_000) }),
    ] {
        let (shape, mut pages) = built(plan, &fields);
        let page_bytes = shape.page_bytes as usize;
        for (number, page) in pages.chunks_mut(page_bytes).enumerate() {
            let offset = 12_288 + (number * page_bytes) as u64;
            seal(page, Context { file_uid: 7, offset, tag: BlockKind::Filter as u8 });
        }
        let mut golden = Golden::new(name, &pages);
        golden.heading("filter fields of the keys, h:");
        fields.iter().for_each(|field| golden.heading(&format!("  {field:#018x}")));
        for (number, page) in pages.chunks(page_bytes).enumerate() {
            let offset = 12_288 + number * page_bytes;
            golden.heading(&format!("filter page {number} at offset {offset} of file uid 7"));
            caption_page(&mut golden, page);
        }
        golden.check();
    }
}

/// Captions one page, with one line for adjacent lines without a bit.
fn caption_page(golden: &mut Golden<'_>, page: &[u8]) {
    for (caption, count) in [
        ("checksum", 4),
        ("tag", 1),
        ("probes", 1),
        ("kind", 1),
        ("seed", 1),
        ("page", 4),
        ("pages", 4),
        ("zero", 48),
    ] {
        golden.field(caption, count);
    }
    let lines: Vec<&[u8]> = page[LINE_BYTES..].chunks(LINE_BYTES).collect();
    let mut first = 0;
    for group in lines.chunk_by(|one, next| [one, next].iter().all(|line| **line == &[0; LINE_BYTES][..])) {
        let caption = match group.len() {
            1 => format!("line {first}"),
            count => format!("lines {first} to {}", first + count - 1),
        };
        golden.field(&caption, group.len() * LINE_BYTES);
        first += group.len();
    }
}

/// Every check of a page, of any kind, has an input that trips it.
#[test]
fn malformed_pages_are_refused() {
    let [line, bloom, fuse] = KINDS.map(|kind| built(plan(kind, 10), &hashes(0..3)).1);
    for (page, at, byte, what) in [
        (&line, 5, 0, "probes of a filter"),
        (&line, 5, 17, "probes of a filter"),
        (&bloom, 5, 17, "probes of a filter"),
        (&fuse, 5, 4, "probes of a filter"),
        (&line, 6, 0, "kind of a filter"),
        (&line, 6, 5, "kind of a filter"),
        (&line, 6, 4, "columns of a page"),
        (&line, 7, 1, "seed of a filter"),
        (&bloom, 7, 1, "seed of a filter"),
        (&fuse, 7, 255, "seed of a line"),
        (&fuse, 127, 255, "seed of a line"),
        (&fuse, 511, 255, "seed of a line"),
        (&line, 8, 1, "number of a filter page"),
        (&line, 12, 0, "number of a filter page"),
        (&line, 16, 1, "padding of a filter page"),
        (&line, 63, 1, "padding of a filter page"),
    ] {
        let mut bad = page.clone();
        bad[at] = byte;
        assert_eq!(check(&bad).map_err(|malformed| malformed.what), Err(what), "byte {at}");
    }
    for bytes in [0, 511, PAGE_BYTES + UNIT_BYTES] {
        let mut bad = line.clone();
        bad.resize(bytes, 0);
        let found = check(&bad).map_err(|malformed| malformed.what);
        assert_eq!(found, Err("length of a filter page"), "{bytes} bytes");
    }
}

/// Shapes that `new` cannot return are recognized.
#[test]
fn malformed_shapes_are_refused() {
    let whole =
        FilterShape { kind: FilterKind::Line, pages: 2, page_bytes: 4096, probes: 6, ..FilterShape::NONE };
    let small = FilterShape { pages: 1, page_bytes: 512, ..whole };
    let fuse = FilterShape { kind: FilterKind::Fuse, probes: 3, ..whole };
    for valid in [FilterShape::NONE, whole, small, fuse, FilterShape { kind: FilterKind::Bloom, ..small }] {
        assert!(valid.is_valid(), "{valid:?}");
    }
    for bad in [
        FilterShape { page_bytes: 512, ..FilterShape::NONE },
        FilterShape { probes: 6, ..FilterShape::NONE },
        FilterShape { kind: FilterKind::Line, ..FilterShape::NONE },
        FilterShape { kind: FilterKind::None, ..whole },
        FilterShape { page_bytes: 512, ..whole },
        FilterShape { page_bytes: 8192, ..whole },
        FilterShape { probes: 0, ..whole },
        FilterShape { probes: 17, ..whole },
        FilterShape { probes: 6, ..fuse },
        FilterShape { page_bytes: 0, ..small },
        FilterShape { page_bytes: 500, ..small },
        FilterShape { page_bytes: 4608, ..small },
        FilterShape { probes: 0, ..small },
        FilterShape { probes: 17, ..small },
    ] {
        assert!(!bad.is_valid(), "{bad:?}");
    }
}
