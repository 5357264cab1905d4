//! Filter pages: they answer for most absent keys that a slice does not have them.
//!
//! A filter is built from key hashes alone when a slice ends. Every page is a complete filter for the keys
//! whose hash selects it, so pages enter and leave the cache one by one. The kind of a filter defines how its
//! lines are filled: `line`, `bloom`, `fuse`. The footer stores the kind, so a query reads no page header.
//! Queries take checked pages only.
//!
//! ```text
//! offset size type name: meaning
//! 0      4    u32  checksum
//! 4      1    u8   tag: 2
//! 5      1    u8   probes: bits that a key sets, 1 to 16; 3 for a fuse
//! 6      1    u8   kind: 1 cache-line Bloom, 2 Bloom, 3 binary fuse, 4 column (`column`: another layout
//!                  from byte 16 on)
//! 7      1    u8   seed of a fuse, else zero
//! 8      4    u32  page: number of this page in its slice
//! 12     4    u32  pages: of the slice
//! 16     48        zero
//! 64     64 a line lines, by kind
//! ```
//! A page has 4096 bytes: 63 lines behind the header line. The only page of a slice has as few units as it
//! needs.
//!
//! The page of a key, from the 44 bits of the hash's filter field, left-aligned in h:
//! ```text
//! page = (h × pages) >> 64;  m = mix(h)
//! ```
//! mix is xor-shift right by 33, multiplication by 0xff51afd7ed558ccd, xor-shift right by 33. Each kind
//! continues from m by multiplication with the golden ratio, 0x9e3779b97f4a7c15, and maps m to a position
//! below a limit as (m × limit) >> 64. This remix replaces double hashing, which repeats pairs of positions
//! in small filters (Kirsch and Mitzenmacher, "Less hashing, same performance", 2006, is asymptotic).

mod bloom;
pub(crate) mod column;
mod fuse;
mod line;
mod places;

use crate::base::codec::{ByteReader, Malformed};
use crate::base::hash::KeyHash;
use crate::base::step::BlockKind;

use super::{PAGE_BYTES, UNIT_BYTES};
use column::{ColumnPage, ColumnShape};
use places::below;
pub(crate) use places::{LINE_BYTES, MILLI, PROBES_MAX};

const LINE_BITS: u64 = LINE_BYTES as u64 * 8;
const LINES_PER_PAGE: usize = PAGE_BYTES / LINE_BYTES - 1;
const SEED_AT: usize = 7;

/// Thousandths of a bit that a binary fuse with many pages takes for each key, approximately.
pub(crate) const FUSE_MILLIBITS: u32 = (PAGE_BYTES * 8) as u32 * MILLI / fuse::KEYS_PER_PAGE as u32;

/// How pages are filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum FilterKind {
    None = 0,
    /// All bits of a key in one cache line.
    Line = 1,
    /// Bits of a key anywhere in a page.
    Bloom = 2,
    /// A fingerprint of 8 bits, spread over three lines.
    Fuse = 3,
    /// Bloom filters of small ranges of places, for several runs of a node of a trie.
    Column = 4,
}

impl FilterKind {
    pub(crate) fn from_byte(byte: u8) -> Option<FilterKind> {
        use FilterKind::{Bloom, Column, Fuse, Line, None};
        [None, Line, Bloom, Fuse, Column].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The wanted filter of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FilterPlan {
    pub(crate) kind: FilterKind,
    /// Thousandths of a bit for each key. A fuse only needs it not to be 0, and takes its own size.
    pub(crate) millibits_per_key: u32,
    /// 0: the best number for the bits. Without effect in a fuse.
    pub(crate) probes: u8,
}

impl FilterPlan {
    pub(crate) const NONE: FilterPlan =
        FilterPlan { kind: FilterKind::None, millibits_per_key: 0, probes: 0 };

    /// A cache-line Bloom filter with `bits_per_key` bits for each key.
    #[cfg(test)]
    pub(crate) const fn of_bits(bits_per_key: u32) -> FilterPlan {
        FilterPlan { kind: FilterKind::Line, millibits_per_key: bits_per_key * MILLI, probes: 0 }
    }

    /// Whether there is a filter.
    pub(crate) fn is_some(&self) -> bool {
        self.kind != FilterKind::None && self.millibits_per_key > 0
    }
}

/// Layout of a slice's filter, stored in the footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FilterShape {
    pub(crate) kind: FilterKind,
    /// 0: no filter.
    pub(crate) pages: u32,
    /// 4096, or fewer whole units if there is one page.
    pub(crate) page_bytes: u32,
    pub(crate) probes: u8,
    /// Shape of column pages; [`ColumnShape::NONE`] for other kinds.
    pub(crate) columns: ColumnShape,
}

impl FilterShape {
    pub(crate) const NONE: FilterShape = FilterShape {
        kind: FilterKind::None,
        pages: 0,
        page_bytes: 0,
        probes: 0,
        columns: ColumnShape::NONE,
    };

    /// The shape for this number of items. For column pages only the size is right, approximately; their
    /// shape follows from the places.
    pub(crate) fn new(items: u64, plan: FilterPlan) -> FilterShape {
        let lines = match plan.kind {
            _ if items == 0 || !plan.is_some() => 0,
            FilterKind::None => 0,
            FilterKind::Fuse => fuse::lines(items),
            FilterKind::Line | FilterKind::Bloom | FilterKind::Column => {
                (items * u64::from(plan.millibits_per_key)).div_ceil(LINE_BITS * u64::from(MILLI))
            }
        };
        FilterShape::of_lines(lines, plan)
    }

    fn of_lines(lines: u64, plan: FilterPlan) -> FilterShape {
        let pages = lines.div_ceil(LINES_PER_PAGE as u64);
        let page_bytes = match pages {
            0 => return FilterShape::NONE,
            1 => ((lines as usize + 1) * LINE_BYTES).next_multiple_of(UNIT_BYTES),
            _ => PAGE_BYTES,
        };
        let given = (plan.probes > 0).then_some(plan.probes.min(PROBES_MAX));
        let probes = match plan.kind {
            FilterKind::None => 0,
            FilterKind::Line => given.unwrap_or_else(|| line::probes(plan.millibits_per_key)),
            FilterKind::Bloom | FilterKind::Column => {
                given.unwrap_or_else(|| bloom::probes(plan.millibits_per_key))
            }
            FilterKind::Fuse => fuse::PROBES,
        };
        let pages = u32::try_from(pages).expect("a slice has far fewer items");
        let columns = ColumnShape::NONE;
        FilterShape { kind: plan.kind, pages, page_bytes: page_bytes as u32, probes, columns }
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.pages) * u64::from(self.page_bytes)
    }

    /// The page that has the bits of a key, counted from 0. For column pages, use [`ColumnShape::place`]
    /// instead.
    #[inline]
    pub(crate) fn page(&self, hash: u64) -> u32 {
        below(hash, u64::from(self.pages)) as u32
    }

    /// Whether `new` can return this shape.
    pub(crate) fn is_valid(&self) -> bool {
        let page_bytes = self.page_bytes as usize;
        let pages_fit = match self.pages {
            0 => return *self == FilterShape::NONE,
            1 => is_page(page_bytes),
            _ => page_bytes == PAGE_BYTES,
        };
        let columns_fit = match self.kind {
            FilterKind::Column => self.columns.is_valid(),
            _ => self.columns == ColumnShape::NONE,
        };
        pages_fit && columns_fit && are_probes(self.kind, self.probes)
    }

    /// Whether the key with this filter field may be in the slice, by its page. `false` is certain. Kinds
    /// that this query does not cover return `true`.
    #[inline]
    pub(crate) fn may_contain(&self, page: &[u8], hash: u64) -> bool {
        match self.kind {
            FilterKind::None | FilterKind::Column => true,
            FilterKind::Line => line::may_contain(page, hash, self.probes),
            FilterKind::Bloom => bloom::may_contain(page, hash, self.probes),
            FilterKind::Fuse => fuse::may_contain(page, hash),
        }
    }

    /// Offset in the key's page of the line that [`FilterShape::may_contain`] reads first.
    #[inline]
    pub(crate) fn first_line_at(&self, hash: u64) -> usize {
        let lines = (self.page_bytes as usize / LINE_BYTES).saturating_sub(1);
        match self.kind {
            FilterKind::None | FilterKind::Column => 0,
            FilterKind::Line => line::line_at(hash, self.page_bytes as usize),
            FilterKind::Bloom => bloom::first_line_at(hash, lines),
            FilterKind::Fuse => fuse::first_line_at(hash, lines),
        }
    }

    /// Appends pages with header lines and zeros behind them.
    fn empty_pages(&self, out: &mut Vec<u8>) {
        for page in 0..self.pages {
            let at = out.len();
            self.begin_page(page, out);
            out.resize(at + self.page_bytes as usize, 0);
        }
    }

    /// Appends the part of a page's header that all kinds share.
    fn begin_page(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0, 0, 0, 0, BlockKind::Filter as u8, self.probes, self.kind as u8, 0]);
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&self.pages.to_le_bytes());
    }
}

fn is_page(bytes: usize) -> bool {
    bytes > 0 && bytes <= PAGE_BYTES && bytes.is_multiple_of(UNIT_BYTES)
}

fn are_probes(kind: FilterKind, probes: u8) -> bool {
    match kind {
        FilterKind::None => false,
        FilterKind::Line | FilterKind::Bloom | FilterKind::Column => (1..=PROBES_MAX).contains(&probes),
        FilterKind::Fuse => probes == fuse::PROBES,
    }
}

/// Appends the pages of a filter over `hashes` (filter fields), not sealed, to `out`, and returns their
/// shape. If a fuse cannot be built, builds a cache-line Bloom filter of about its size. May sort the hashes
/// and remove duplicates.
pub(crate) fn build(plan: FilterPlan, hashes: &mut Vec<u64>, out: &mut Vec<u8>) -> FilterShape {
    let shape = FilterShape::new(hashes.len() as u64, plan);
    if shape.kind == FilterKind::Fuse {
        if let Some(shape) = fuse::build(plan, hashes, out) {
            return shape;
        }
        let instead = FilterPlan { kind: FilterKind::Line, millibits_per_key: FUSE_MILLIBITS, probes: 0 };
        return build(instead, hashes, out);
    }
    let start = out.len();
    shape.empty_pages(out);
    let pages = &mut out[start..];
    let page_bytes = shape.page_bytes as usize;
    for hash in hashes.iter().filter(|_| shape.pages > 0) {
        let at = shape.page(*hash) as usize * page_bytes;
        let page = &mut pages[at..at + page_bytes];
        match shape.kind {
            FilterKind::Bloom => bloom::add(page, *hash, shape.probes),
            FilterKind::Line => line::add(page, *hash, shape.probes),
            FilterKind::None | FilterKind::Fuse | FilterKind::Column => {
                unreachable!("one has no pages, one was built above, one is built of columns")
            }
        }
    }
    shape
}

/// The filter field of a hash, which all functions here take.
pub(crate) fn field(hash: KeyHash) -> u64 {
    hash.filter()
}

/// Checks a page's header line, its length, and the conditions of its kind on the lines. The caller checks
/// the checksum.
pub(crate) fn check(page: &[u8]) -> Result<(), Malformed> {
    let mut reader = ByteReader::new(page);
    if !is_page(page.len()) {
        return Err(reader.malformed("length of a filter page", PAGE_BYTES as u64, page.len() as u64));
    }
    reader.bytes(5, "filter page")?;
    let probes = reader.u8("probes of a filter")?;
    let kind_byte = reader.u8("kind of a filter")?;
    let kind = FilterKind::from_byte(kind_byte).filter(|kind| *kind != FilterKind::None);
    let Some(kind) = kind else {
        return Err(reader.malformed("kind of a filter", FilterKind::Column as u64, u64::from(kind_byte)));
    };
    if !are_probes(kind, probes) {
        return Err(reader.malformed("probes of a filter", u64::from(PROBES_MAX), u64::from(probes)));
    }
    let seed = reader.u8("seed of a filter")?;
    if kind != FilterKind::Fuse && seed != 0 {
        return Err(reader.malformed("seed of a filter", 0, u64::from(seed)));
    }
    let number = reader.u32("number of a filter page")?;
    let pages = reader.u32("pages of a filter")?;
    if number >= pages {
        return Err(reader.malformed("number of a filter page", u64::from(pages), u64::from(number)));
    }
    if kind == FilterKind::Column {
        return ColumnPage::check(&mut reader, page);
    }
    reader.zeros(48, "padding of a filter page")?;
    match kind {
        FilterKind::Fuse => fuse::check(&mut reader, seed),
        FilterKind::Column => unreachable!("it was checked above"),
        FilterKind::None | FilterKind::Line | FilterKind::Bloom => Ok(()),
    }
}

#[cfg(test)]
mod tests;
