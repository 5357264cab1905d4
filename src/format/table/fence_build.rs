//! Fence pages, writing side: collects the separators and extents of a slice's blocks, and packs them into
//! pages at the slice's end.
//!
//! `table::build` adds one block after another. One thread. The builder holds an end, a quantum and the
//! separator's bytes for each block.

use std::ops::Range;

use crate::base::key::{common_prefix, head};
use crate::base::step::BlockKind;

use super::fence::{ALONE, HEAD_BYTES, HEADER_BYTES, TAILS, UNIFORM};
use super::fence_quanta::{GAPS_AT, GROUP, PLACED, WIDE_GAPS, WIDE_UNITS, column_bytes};
use super::quanta::Quanta;
use super::{PAGE_BYTES, UNIT_BYTES, extent_bytes};

/// The blocks of a slice so far.
#[derive(Debug, Default)]
pub(crate) struct FenceBuilder {
    first_offset: u64,
    separators: Vec<u8>,
    separator_ends: Vec<usize>,
    /// Ends in bytes from the first block's offset.
    block_ends: Vec<u64>,
    /// Blocks with one item whose key is the separator, ascending.
    alone: Vec<usize>,
    /// The quanta at whose bounds blocks begin, in a hashed keyspace.
    quanta: Option<Quanta>,
    /// The quantum at which each block begins; `None` if the previous block has keys of the same quantum.
    starts: Vec<Option<u64>>,
    /// Learned pages, in the order of their blocks.
    learned: Vec<Learned>,
}

/// A page that lists its blocks by a model.
#[derive(Debug)]
struct Learned {
    blocks: Range<usize>,
    /// Not sealed and not padded.
    page: Vec<u8>,
    separator: Vec<u8>,
}

/// The pages of a slice, and the first block of each.
#[derive(Debug, Default)]
pub(crate) struct FencePages {
    /// 4096 bytes each, or fewer if there is one page; not sealed.
    pub(crate) bytes: Vec<u8>,
    pub(crate) page_bytes: usize,
    /// For each page, the index of its first block.
    pub(crate) first_blocks: Vec<usize>,
}

impl FenceBuilder {
    /// A builder for a slice whose first block is at `first_offset`.
    pub(crate) fn new(first_offset: u64) -> FenceBuilder {
        FenceBuilder { first_offset, ..FenceBuilder::default() }
    }

    /// Sets the quanta at whose bounds blocks begin from the next block on, if possible.
    pub(crate) fn set_quanta(&mut self, quanta: Option<Quanta>) {
        self.quanta = quanta;
    }

    /// Adds the next block: the last key before it, its first key, and the length of its extent. The
    /// separator of the slice's first block is that block's first key.
    pub(crate) fn add(&mut self, last_before: Option<&[u8]>, first: &[u8], bytes: usize) {
        let length = last_before.map_or(first.len(), |last| common_prefix(last, first) + 1);
        if let Some(quanta) = self.quanta {
            let quantum = quanta.of(head(first));
            let is_clean = last_before.is_none_or(|last| quanta.of(head(last)) < quantum);
            self.starts.resize(self.blocks(), None);
            self.starts.push(is_clean.then_some(quantum));
        }
        self.push(&first[..length], bytes);
    }

    /// Adds the next block, which holds one item, a put of `key`.
    pub(crate) fn add_alone(&mut self, key: &[u8], bytes: usize) {
        self.alone.push(self.blocks());
        self.push(key, bytes);
    }

    fn push(&mut self, separator: &[u8], bytes: usize) {
        self.separators.extend_from_slice(separator);
        self.separator_ends.push(self.separators.len());
        let end = self.block_ends.last().copied().unwrap_or(0) + bytes as u64;
        self.block_ends.push(end);
    }

    pub(crate) fn blocks(&self) -> usize {
        self.block_ends.len()
    }

    /// Bytes of all blocks together.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.block_ends.last().copied().unwrap_or(0)
    }

    /// Lists the blocks from `first` on in this page instead of fences. `separator`: a prefix of their first
    /// key that is greater than the key before it.
    pub(crate) fn learn(&mut self, first: usize, page: Vec<u8>, separator: &[u8]) {
        self.learned.push(Learned { blocks: first..self.blocks(), page, separator: separator.to_vec() });
    }

    /// Whether any block is listed by a model.
    pub(crate) fn has_learned(&self) -> bool {
        !self.learned.is_empty()
    }

    /// Offset in the file of a block, or of the next block to add.
    pub(crate) fn offset(&self, block: usize) -> u64 {
        self.first_offset + block.checked_sub(1).map_or(0, |before| self.block_ends[before])
    }

    /// The first separator of the page that begins with this block.
    pub(crate) fn page_separator(&self, block: usize) -> &[u8] {
        match self.learned.binary_search_by_key(&block, |learned| learned.blocks.start) {
            Ok(index) => &self.learned[index].separator,
            Err(_) => self.separator(block),
        }
    }

    pub(crate) fn separator(&self, block: usize) -> &[u8] {
        let start = if block == 0 { 0 } else { self.separator_ends[block - 1] };
        &self.separators[start..self.separator_ends[block]]
    }

    /// Memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let numbers = self.separator_ends.capacity() + self.block_ends.capacity() + self.alone.capacity();
        let starts = self.starts.capacity() * size_of::<Option<u64>>();
        let learned: usize = self.learned.iter().map(|one| one.page.capacity() + one.separator.len()).sum();
        self.separators.capacity() + numbers * size_of::<u64>() + starts + learned
    }

    /// Approximate bytes of the pages.
    pub(crate) fn estimated_bytes(&self) -> u64 {
        self.blocks() as u64 * 12 + self.alone.len() as u64 * 16
    }

    /// The pages of all blocks; none for a single block.
    pub(crate) fn build(&self) -> FencePages {
        match self.blocks() {
            0 | 1 => FencePages { page_bytes: PAGE_BYTES, ..FencePages::default() },
            _ => self.build_pages(),
        }
    }

    /// The pages of all blocks, also for a single block.
    pub(crate) fn build_pages(&self) -> FencePages {
        let mut pages = FencePages { page_bytes: PAGE_BYTES, ..FencePages::default() };
        let mut start = 0;
        while start < self.blocks() {
            pages.first_blocks.push(start);
            let at = pages.bytes.len();
            let blocks = self.write_page(start, &mut pages.bytes);
            if blocks == self.blocks() {
                pages.page_bytes = extent_bytes(pages.bytes.len());
            }
            pages.bytes.resize(at + pages.page_bytes, 0);
            start += blocks;
        }
        pages
    }

    /// Writes the page that begins with a block; returns the number of its blocks.
    fn write_page(&self, start: usize, out: &mut Vec<u8>) -> usize {
        let next = self.learned.partition_point(|learned| learned.blocks.start < start);
        let end = match self.learned.get(next) {
            Some(learned) if learned.blocks.start == start => {
                out.extend_from_slice(&learned.page);
                return learned.blocks.len();
            }
            Some(learned) => learned.blocks.start,
            None => self.blocks(),
        };
        let page = self.fill(start..end);
        match self.fill_with_quanta(start..end) {
            Some(quanta) if quanta.blocks >= page.blocks => {
                self.write_quanta(&quanta, out);
                quanta.blocks
            }
            _ => {
                self.write(&page, out);
                page.blocks
            }
        }
    }

    /// The number of blocks in the page from block `start` on, and the page's unused bytes.
    #[cfg(feature = "lab")]
    pub(crate) fn page_from(&self, start: usize) -> (usize, usize) {
        let page = self.fill(start..self.blocks());
        (page.blocks, PAGE_BYTES - page.bytes())
    }

    /// The longest run of these blocks that fits a page of quanta and in which each block begins at a quantum
    /// of its own.
    fn fill_with_quanta(&self, Range { start, end }: Range<usize>) -> Option<QuantaPage> {
        let quantum = |block: usize| self.starts.get(block).copied().flatten();
        self.quanta?;
        let first = quantum(start)?;
        let mut page = QuantaPage::of(start, first, self.units(start));
        for block in start + 1..end {
            let Some(quantum) = quantum(block) else { break };
            let next = page.with(quantum, (self.units(block - 1), self.units(block)));
            if next.bytes() > PAGE_BYTES || quantum - first > u64::from(u32::MAX) || !next.is_narrow() {
                break;
            }
            page = next;
        }
        Some(page)
    }

    fn units(&self, block: usize) -> u64 {
        self.block_bytes(block) / UNIT_BYTES as u64
    }

    fn write_quanta(&self, page: &QuantaPage, out: &mut Vec<u8>) {
        let start = out.len();
        let blocks = page.start..page.start + page.blocks;
        let quantum = |block: usize| self.starts[block].expect("the page ends before those without");
        let flags = page.flags();
        let base = if page.start == 0 { 0 } else { self.block_ends[page.start - 1] };
        out.extend_from_slice(&[0, 0, 0, 0, BlockKind::Fence as u8, flags]);
        out.extend_from_slice(&narrow(page.blocks));
        out.extend_from_slice(&(self.first_offset + base).to_le_bytes());
        let (each, last) = match page.uniform {
            true => (self.block_bytes(page.start), self.block_bytes(blocks.end - 1)),
            false => (0, 0),
        };
        out.extend_from_slice(&(each as u32).to_le_bytes());
        out.extend_from_slice(&(last as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&page.gap_least.to_le_bytes());
        out.extend_from_slice(&self.quanta.map_or(0, Quanta::count).to_le_bytes());
        out.extend_from_slice(&page.first.to_le_bytes());
        out.resize(start + GAPS_AT, 0);
        for block in blocks.start + 1..blocks.end {
            let gap = quantum(block) - quantum(block - 1) - u64::from(page.gap_least);
            put(out, gap, page.gaps_are_wide());
        }
        if !page.uniform {
            blocks.clone().for_each(|block| put(out, self.units(block), page.units_are_wide()));
        }
        let groups = || blocks.clone().skip(GROUP).step_by(GROUP);
        groups().for_each(|block| out.extend_from_slice(&few(quantum(block) - page.first)));
        if !page.uniform {
            let before = |block: usize| (self.block_ends[block - 1] - base) / UNIT_BYTES as u64;
            groups().for_each(|block| out.extend_from_slice(&few(before(block))));
        }
    }

    fn block_bytes(&self, block: usize) -> u64 {
        self.block_ends[block] - if block == 0 { 0 } else { self.block_ends[block - 1] }
    }

    fn is_alone(&self, block: usize) -> bool {
        self.alone.binary_search(&block).is_ok()
    }

    /// The longest run of these blocks that fits a page.
    fn fill(&self, Range { start, end }: Range<usize>) -> Page {
        let first = self.separator(start);
        let (prefix_bytes, uniform) = (first.len(), !self.is_alone(start));
        let mut page = Page { start, blocks: 1, prefix_bytes, tail_bytes: 0, tails: false, uniform };
        for block in start + 1..end {
            let mut next = page;
            next.blocks += 1;
            next.uniform &= self.block_bytes(block - 1) == self.block_bytes(start) && !self.is_alone(block);
            let prefix_bytes = common_prefix(first, self.separator(block)).min(page.prefix_bytes);
            let from = if prefix_bytes < page.prefix_bytes { start + 1 } else { block };
            if from == start + 1 {
                next.tail_bytes = 0;
            }
            next.prefix_bytes = prefix_bytes;
            next.tail_bytes +=
                (from..=block).map(|block| self.tail(block, prefix_bytes).len()).sum::<usize>();
            next.tails = next.tail_bytes > 0;
            if next.bytes() > PAGE_BYTES {
                break;
            }
            page = next;
        }
        page
    }

    /// The separator behind the prefix.
    fn rest(&self, block: usize, prefix_bytes: usize) -> &[u8] {
        &self.separator(block)[prefix_bytes..]
    }

    /// The separator behind prefix and head.
    fn tail(&self, block: usize, prefix_bytes: usize) -> &[u8] {
        self.rest(block, prefix_bytes).get(HEAD_BYTES..).unwrap_or_default()
    }

    fn write(&self, page: &Page, out: &mut Vec<u8>) {
        let others = page.start + 1..page.start + page.blocks;
        let flags = if page.uniform { UNIFORM } else { 0 } | if page.tails { TAILS } else { 0 };
        let base = if page.start == 0 { 0 } else { self.block_ends[page.start - 1] };
        out.extend_from_slice(&[0, 0, 0, 0, BlockKind::Fence as u8, flags]);
        out.extend_from_slice(&narrow(page.blocks));
        out.extend_from_slice(&(self.first_offset + base).to_le_bytes());
        let (each, last) = match page.uniform {
            true => (self.block_bytes(page.start), self.block_bytes(page.start + page.blocks - 1)),
            false => (0, 0),
        };
        out.extend_from_slice(&(each as u32).to_le_bytes());
        out.extend_from_slice(&(last as u32).to_le_bytes());
        out.extend_from_slice(&narrow(page.prefix_bytes));
        out.extend_from_slice(&narrow(page.tail_bytes));
        out.extend_from_slice(&[0; 4]);
        for block in others.clone() {
            out.extend_from_slice(&head(self.rest(block, page.prefix_bytes)).to_le_bytes());
        }
        for block in others.clone() {
            out.extend_from_slice(&narrow(self.rest(block, page.prefix_bytes).len()));
        }
        if page.tails {
            let mut end = 0;
            for block in others.clone() {
                end += self.tail(block, page.prefix_bytes).len();
                out.extend_from_slice(&narrow(end));
            }
        }
        if !page.uniform {
            for block in page.start..page.start + page.blocks {
                let units = (self.block_ends[block] - base) / UNIT_BYTES as u64;
                let mark = if self.is_alone(block) { ALONE } else { 0 };
                out.extend_from_slice(&(units as u32 | mark).to_le_bytes());
            }
        }
        for block in others {
            out.extend_from_slice(self.tail(block, page.prefix_bytes));
        }
    }
}

/// The blocks of one page.
#[derive(Clone, Copy, Debug)]
struct Page {
    start: usize,
    blocks: usize,
    prefix_bytes: usize,
    tail_bytes: usize,
    tails: bool,
    uniform: bool,
}

impl Page {
    fn bytes(&self) -> usize {
        let others = self.blocks - 1;
        let per_other = HEAD_BYTES + 2 + if self.tails { 2 } else { 0 };
        let ends = if self.uniform { 0 } else { self.blocks * 4 };
        HEADER_BYTES + others * per_other + ends + self.tail_bytes
    }
}

/// The blocks of one page of quanta.
#[derive(Clone, Copy, Debug)]
struct QuantaPage {
    start: usize,
    blocks: usize,
    /// Quanta at which the first and the last block begin.
    first: u64,
    last: u64,
    gap_least: u32,
    gap_most: u32,
    units_first: u64,
    units_most: u64,
    uniform: bool,
}

impl QuantaPage {
    fn of(start: usize, first: u64, units: u64) -> QuantaPage {
        QuantaPage {
            start,
            blocks: 1,
            first,
            last: first,
            gap_least: 0,
            gap_most: 0,
            units_first: units,
            units_most: units,
            uniform: true,
        }
    }

    /// Adds the next block, which begins at this quantum. The pair is the units of the previous block and of
    /// this one.
    fn with(self, quantum: u64, (units_before, units): (u64, u64)) -> QuantaPage {
        // A greater gap is refused later, by the sum of gaps.
        let gap = u32::try_from(quantum - self.last).unwrap_or(u32::MAX);
        let (least, most) = match self.blocks {
            1 => (gap, gap),
            _ => (self.gap_least.min(gap), self.gap_most.max(gap)),
        };
        QuantaPage {
            blocks: self.blocks + 1,
            last: quantum,
            gap_least: least,
            gap_most: most,
            units_most: self.units_most.max(units),
            // The previous block is no longer the last one.
            uniform: self.uniform && units_before == self.units_first,
            ..self
        }
    }

    fn gaps_are_wide(&self) -> bool {
        self.gap_most - self.gap_least > u32::from(u8::MAX)
    }

    fn units_are_wide(&self) -> bool {
        !self.uniform && self.units_most > u64::from(u8::MAX)
    }

    fn flags(&self) -> u8 {
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        PLACED
            | flag(self.uniform, UNIFORM)
            | flag(self.gaps_are_wide(), WIDE_GAPS)
            | flag(self.units_are_wide(), WIDE_UNITS)
    }

    /// Whether each number fits two bytes.
    fn is_narrow(&self) -> bool {
        self.gap_most - self.gap_least <= u32::from(u16::MAX) && self.units_most <= u64::from(u16::MAX)
    }

    fn bytes(&self) -> usize {
        GAPS_AT + column_bytes(self.blocks, self.flags()).iter().sum::<usize>()
    }
}

fn narrow(value: usize) -> [u8; 2] {
    u16::try_from(value).expect("a page is too small for more").to_le_bytes()
}

fn few(value: u64) -> [u8; 4] {
    u32::try_from(value).expect("pages end before there are more").to_le_bytes()
}

/// Appends a number of one byte or of two.
fn put(out: &mut Vec<u8>, number: u64, is_wide: bool) {
    let bytes = narrow(number as usize);
    out.extend_from_slice(if is_wide { &bytes } else { &bytes[..1] });
}
