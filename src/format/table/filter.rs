//! Filter pages: a Bloom filter in which a key's bits share one cache line of one page.
//!
//! Built from key hashes alone when a slice ends. A query touches one cache line. Checked pages only, as
//! everywhere.
//!
//! ```text
//! offset size type name: meaning
//! 0      4    u32  checksum
//! 4      1    u8   tag: 2
//! 5      1    u8   probes: bits a key sets, 1 to 12
//! 6      2         zero
//! 8      4    u32  page: number of this page in its slice
//! 12     4    u32  pages: of the slice
//! 16     48        zero
//! 64     64 a line lines: 512 bits each; bit b is bit b % 64 of little-endian word b / 64
//! ```
//! A page is 4096 bytes: 63 lines. The only page of a slice is as many units as it needs.
//!
//! Where a key's bits are, from the 44 bits of the hash's filter field, left-aligned in h:
//! ```text
//! page = (h × pages) >> 64;  m = mix(h);  line = (m × lines) >> 64;
//! for each probe: m := m × 0x9e3779b97f4a7c15, bit = m >> 55
//! ```
//! mix is xor-shift right by 33, multiplication by 0xff51afd7ed558ccd, xor-shift right by 33. The remix by
//! the golden ratio in place of double hashing: with few bits double hashing repeats pairs (Kirsch and
//! Mitzenmacher, "Less hashing, same performance", 2006, is asymptotic). Lines of one cache line: Putze,
//! Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters", 2007.

use crate::base::codec::{Malformed, Reader};
use crate::base::hash::KeyHash;
use crate::base::step::BlockKind;

use super::{PAGE_BYTES, UNIT_BYTES};

pub(crate) const LINE_BYTES: usize = 64;
const LINE_BITS: usize = LINE_BYTES * 8;
const LINES_PER_PAGE: usize = PAGE_BYTES / LINE_BYTES - 1;
pub(crate) const PROBES_MAX: u8 = 12;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Probes for each whole number of bits a key: the fewest within 1 % of the best rate that 512-bit lines
/// allow, Σ_i Poisson(512 / bits; i) × (1 - (1 - 1/512)^(probes × i))^probes.
const PROBES: [u8; 25] = [0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 11, 11, 11, 11, 12, 12, 12];

/// How the filter of a slice is laid out; in the footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FilterShape {
    /// 0: no filter.
    pub(crate) pages: u32,
    /// 4096, or fewer whole units when there is one page.
    pub(crate) page_bytes: u32,
    pub(crate) probes: u8,
}

impl FilterShape {
    pub(crate) const NONE: FilterShape = FilterShape { pages: 0, page_bytes: 0, probes: 0 };

    /// The shape for so many items; bits beyond what the table of probes knows are cut to it.
    pub(crate) fn new(items: u64, bits_per_key: u32) -> FilterShape {
        let bits_per_key = (bits_per_key as usize).min(PROBES.len() - 1);
        if items == 0 || bits_per_key == 0 {
            return FilterShape::NONE;
        }
        let lines = (items * bits_per_key as u64).div_ceil(LINE_BITS as u64);
        let pages = lines.div_ceil(LINES_PER_PAGE as u64);
        let page_bytes = match pages {
            1 => ((lines as usize + 1) * LINE_BYTES).next_multiple_of(UNIT_BYTES),
            _ => PAGE_BYTES,
        };
        let pages = u32::try_from(pages).expect("a slice has far fewer items");
        FilterShape { pages, page_bytes: page_bytes as u32, probes: PROBES[bits_per_key] }
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.pages) * u64::from(self.page_bytes)
    }

    /// The page that has the bits of a key, counted from 0.
    pub(crate) fn page(&self, hash: u64) -> u32 {
        high_product(hash, u64::from(self.pages)) as u32
    }

    /// Whether the shape is one that `new` can give.
    pub(crate) fn is_valid(&self) -> bool {
        let (page_bytes, probes) = (self.page_bytes as usize, self.probes);
        match self.pages {
            0 => *self == FilterShape::NONE,
            1 => is_page(page_bytes) && (1..=PROBES_MAX).contains(&probes),
            _ => page_bytes == PAGE_BYTES && (1..=PROBES_MAX).contains(&probes),
        }
    }
}

fn is_page(bytes: usize) -> bool {
    bytes > 0 && bytes <= PAGE_BYTES && bytes.is_multiple_of(UNIT_BYTES)
}

/// Appends the pages of a filter over `hashes` (filter fields), not sealed, to `out`.
pub(crate) fn build(shape: FilterShape, hashes: &[u64], out: &mut Vec<u8>) {
    let start = out.len();
    for page in 0..shape.pages {
        let at = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, BlockKind::Filter as u8, shape.probes, 0, 0]);
        out.extend_from_slice(&page.to_le_bytes());
        out.extend_from_slice(&shape.pages.to_le_bytes());
        out.resize(at + shape.page_bytes as usize, 0);
    }
    let pages = &mut out[start..];
    for hash in hashes {
        let page_at = shape.page(*hash) as usize * shape.page_bytes as usize;
        let page = &mut pages[page_at..page_at + shape.page_bytes as usize];
        let (line_at, mut mixed) = place(*hash, page.len());
        let line = &mut page[line_at..line_at + LINE_BYTES];
        for _ in 0..shape.probes {
            mixed = mixed.wrapping_mul(GOLDEN);
            let bit = (mixed >> 55) as usize;
            line[bit / 8] |= 1 << (bit % 8);
        }
    }
}

/// Whether a key with this filter field may be in the slice: false is certain.
pub(crate) fn may_contain(page: &[u8], hash: u64, probes: u8) -> bool {
    let (line_at, mut mixed) = place(hash, page.len());
    let line = page.get(line_at..line_at + LINE_BYTES).unwrap_or_default();
    let Some(words) = line.as_chunks::<8>().0.first_chunk::<8>() else {
        return true;
    };
    let mut set = 1;
    for _ in 0..probes {
        mixed = mixed.wrapping_mul(GOLDEN);
        let word = u64::from_le_bytes(words[(mixed >> 61) as usize]);
        set &= word >> ((mixed >> 55) & 63);
    }
    set & 1 == 1
}

/// The filter field of a hash, as everything here takes it.
pub(crate) fn field(hash: KeyHash) -> u64 {
    hash.filter()
}

/// Where the line of a key begins in its page.
pub(crate) fn line_at(hash: u64, page_bytes: usize) -> usize {
    place(hash, page_bytes).0
}

/// Where the line of a key begins in its page, and what its probes continue from.
fn place(hash: u64, page_bytes: usize) -> (usize, u64) {
    let mut mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^= mixed >> 33;
    let lines = (page_bytes / LINE_BYTES).saturating_sub(1) as u64;
    ((high_product(mixed, lines) as usize + 1) * LINE_BYTES, mixed)
}

fn high_product(one: u64, other: u64) -> u64 {
    ((u128::from(one) * u128::from(other)) >> 64) as u64
}

/// Checks a page's header line and length. The checksum is the caller's.
pub(crate) fn check(page: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(page);
    if !is_page(page.len()) {
        return Err(reader.malformed("length of a filter page", PAGE_BYTES as u64, page.len() as u64));
    }
    reader.bytes(5, "filter page")?;
    let probes = reader.u8("probes of a filter")?;
    if !(1..=PROBES_MAX).contains(&probes) {
        return Err(reader.malformed("probes of a filter", u64::from(PROBES_MAX), u64::from(probes)));
    }
    reader.zeros(2, "padding of a filter page")?;
    let number = reader.u32("number of a filter page")?;
    let pages = reader.u32("pages of a filter")?;
    if number >= pages {
        return Err(reader.malformed("number of a filter page", u64::from(pages), u64::from(number)));
    }
    reader.zeros(48, "padding of a filter page")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::checksum::Context;
    use crate::base::hash::HashSecret;
    use crate::format::golden::Golden;
    use crate::format::table::seal;

    fn hashes(range: std::ops::Range<u64>) -> Vec<u64> {
        let secret = HashSecret::expand([3; 16]);
        range.map(|number| field(secret.hash(&number.to_le_bytes()))).collect()
    }

    fn query(shape: FilterShape, pages: &[u8], hash: u64) -> bool {
        let at = shape.page(hash) as usize * shape.page_bytes as usize;
        may_contain(&pages[at..at + shape.page_bytes as usize], hash, shape.probes)
    }

    /// The false positive rate that 512-bit lines with so many items a line allow, by the formula at
    /// `PROBES`.
    fn allowed(items_per_line: f64, probes: u8) -> f64 {
        let mut weight = (-items_per_line).exp();
        let mut rate = 0.0;
        for items in 0..(items_per_line * 4.0 + 60.0) as i32 {
            let clear = (1.0 - 1.0 / 512.0f64).powi(i32::from(probes) * items);
            rate += weight * (1.0 - clear).powi(i32::from(probes));
            weight *= items_per_line / f64::from(items + 1);
        }
        rate
    }

    /// No false negative, and at 5, 8, 10 and 16 bits a key at most 1.15 times the false positives that
    /// 512-bit lines allow: 9.29 %, 2.31 %, 0.958 % and 0.0826 %.
    #[test]
    fn false_positives_are_what_lines_allow() {
        let inside = hashes(0..200_000);
        let outside = hashes(1 << 40..(1 << 40) + 1_000_000);
        for (bits_per_key, stated) in [(5, 0.0929), (8, 0.0231), (10, 0.00958), (16, 0.000826)] {
            let shape = FilterShape::new(inside.len() as u64, bits_per_key);
            assert!(shape.is_valid());
            let mut pages = Vec::new();
            build(shape, &inside, &mut pages);
            assert_eq!(pages.len() as u64, shape.bytes());
            assert!(pages.chunks(PAGE_BYTES).all(|page| check(page).is_ok()));
            assert!(inside.iter().all(|hash| query(shape, &pages, *hash)), "no false negative");
            let positives = outside.iter().filter(|hash| query(shape, &pages, **hash)).count();
            let rate = positives as f64 / outside.len() as f64;
            let ideal = allowed(512.0 / f64::from(bits_per_key), shape.probes);
            assert!((ideal / stated - 1.0).abs() < 0.01, "{bits_per_key} bits: {ideal} is what is stated");
            assert!(rate < ideal * 1.15, "{bits_per_key} bits: {rate} against {ideal}");
        }
    }

    /// A few keys have a page of a few lines, and no key is missed at any number of keys.
    #[test]
    fn small_filters_are_small() {
        for items in [1u64, 2, 40, 45, 46, 300, 3000, 3225, 3226] {
            let inside = hashes(0..items);
            let shape = FilterShape::new(items, 10);
            assert!(shape.is_valid(), "{shape:?}");
            assert!(shape.bytes() <= (items * 10 / 8 + 64) * 64 / 63 + 1024 || shape.pages > 1);
            let mut pages = Vec::new();
            build(shape, &inside, &mut pages);
            assert!(inside.iter().all(|hash| query(shape, &pages, *hash)));
        }
        assert_eq!(FilterShape::new(10, 0), FilterShape::NONE);
        assert_eq!(FilterShape::new(3, 10).page_bytes, 512);
    }

    /// A small filter of one page, and one of two whole pages.
    #[test]
    fn golden() {
        let fields = [0x0123_4567_89a0_0000, 0x7fff_ffff_fff0_0000, 0xfedc_ba98_7650_0000];
        let two = FilterShape { pages: 2, page_bytes: PAGE_BYTES as u32, probes: 6 };
        for (name, shape) in [("table_filter_small", FilterShape::new(3, 10)), ("table_filter_pages", two)] {
            assert!(shape.is_valid());
            let page_bytes = shape.page_bytes as usize;
            let mut pages = Vec::new();
            build(shape, &fields, &mut pages);
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

    /// Captions one page, lines without a bit together.
    fn caption_page(golden: &mut Golden<'_>, page: &[u8]) {
        for (caption, count) in
            [("checksum", 4), ("tag", 1), ("probes", 1), ("zero", 2), ("page", 4), ("pages", 4), ("zero", 48)]
        {
            golden.field(caption, count);
        }
        let lines: Vec<&[u8]> = page[LINE_BYTES..].chunks(LINE_BYTES).collect();
        let mut first = 0;
        for group in lines.chunk_by(|one, next| [one, next].iter().all(|line| **line == &[0; LINE_BYTES][..]))
        {
            let caption = match group.len() {
                1 => format!("line {first}"),
                count => format!("lines {first} to {}", first + count - 1),
            };
            golden.field(&caption, group.len() * LINE_BYTES);
            first += group.len();
        }
    }

    /// Every check of a page has an input that trips it.
    #[test]
    fn malformed_pages_are_refused() {
        let mut page = Vec::new();
        build(FilterShape::new(3, 10), &hashes(0..3), &mut page);
        assert_eq!(check(&page), Ok(()));
        for (at, byte, what) in [
            (5, 0, "probes of a filter"),
            (5, 13, "probes of a filter"),
            (6, 1, "padding of a filter page"),
            (7, 1, "padding of a filter page"),
            (8, 1, "number of a filter page"),
            (12, 0, "number of a filter page"),
            (16, 1, "padding of a filter page"),
            (63, 1, "padding of a filter page"),
        ] {
            let mut bad = page.clone();
            bad[at] = byte;
            assert_eq!(check(&bad).map_err(|malformed| malformed.what), Err(what), "byte {at}");
        }
        for bytes in [0, 511, PAGE_BYTES + UNIT_BYTES] {
            let mut bad = page.clone();
            bad.resize(bytes, 0);
            let found = check(&bad).map_err(|malformed| malformed.what);
            assert_eq!(found, Err("length of a filter page"), "{bytes} bytes");
        }
        assert!(may_contain(&[], 1, 6), "what cannot be asked may be there");
    }

    /// Shapes that `new` cannot give are known.
    #[test]
    fn malformed_shapes_are_refused() {
        let whole = FilterShape { pages: 2, page_bytes: 4096, probes: 6 };
        let small = FilterShape { pages: 1, page_bytes: 512, probes: 6 };
        for valid in [FilterShape::NONE, whole, small] {
            assert!(valid.is_valid(), "{valid:?}");
        }
        for bad in [
            FilterShape { page_bytes: 512, ..FilterShape::NONE },
            FilterShape { probes: 6, ..FilterShape::NONE },
            FilterShape { page_bytes: 512, ..whole },
            FilterShape { page_bytes: 8192, ..whole },
            FilterShape { probes: 0, ..whole },
            FilterShape { probes: 13, ..whole },
            FilterShape { page_bytes: 0, ..small },
            FilterShape { page_bytes: 500, ..small },
            FilterShape { page_bytes: 4608, ..small },
            FilterShape { probes: 0, ..small },
            FilterShape { probes: 13, ..small },
        ] {
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }
}
