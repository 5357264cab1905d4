//! Fence pages, writing side: gathers separators and extents of a slice's blocks, packs them into pages when
//! it ends.
//!
//! `table::build` feeds it one block after another. One thread. Holds a head, an end and the separator's
//! bytes a block.

use crate::base::key::{common_prefix, head};
use crate::base::step::BlockKind;

use super::fence::{ALONE, HEAD_BYTES, HEADER_BYTES, TAILS, UNIFORM};
use super::{PAGE_BYTES, UNIT_BYTES, extent_bytes};

/// The blocks of a slice so far.
#[derive(Debug, Default)]
pub(crate) struct FenceBuilder {
    first_offset: u64,
    separators: Vec<u8>,
    separator_ends: Vec<usize>,
    /// In bytes, from the first block's offset.
    block_ends: Vec<u64>,
    /// Blocks of one item whose key is the separator, ascending.
    alone: Vec<usize>,
}

/// Pages, and for each its first separator.
#[derive(Debug, Default)]
pub(crate) struct FencePages {
    /// 4096 bytes each, or fewer when there is one; not sealed.
    pub(crate) bytes: Vec<u8>,
    pub(crate) page_bytes: usize,
    /// For each page, the index of its first block.
    pub(crate) first_blocks: Vec<usize>,
}

impl FenceBuilder {
    /// For a slice whose first block is at `first_offset`.
    pub(crate) fn new(first_offset: u64) -> FenceBuilder {
        FenceBuilder { first_offset, ..FenceBuilder::default() }
    }

    /// Takes the next block: the last key before it, its first key, the length of its extent. The separator
    /// of the slice's first block is its first key.
    pub(crate) fn add(&mut self, last_before: Option<&[u8]>, first: &[u8], bytes: usize) {
        let length = last_before.map_or(first.len(), |last| common_prefix(last, first) + 1);
        self.push(&first[..length], bytes);
    }

    /// Takes the next block, which holds nothing but a put of `key`.
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

    /// Bytes of all blocks.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.block_ends.last().copied().unwrap_or(0)
    }

    pub(crate) fn separator(&self, block: usize) -> &[u8] {
        let start = if block == 0 { 0 } else { self.separator_ends[block - 1] };
        &self.separators[start..self.separator_ends[block]]
    }

    /// Memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let numbers = self.separator_ends.capacity() + self.block_ends.capacity() + self.alone.capacity();
        self.separators.capacity() + numbers * size_of::<u64>()
    }

    /// About how many bytes the pages will have.
    pub(crate) fn estimated_bytes(&self) -> u64 {
        self.blocks() as u64 * 12 + self.alone.len() as u64 * 16
    }

    /// The pages of all blocks; none for a single block.
    pub(crate) fn build(&self) -> FencePages {
        let mut pages = FencePages { page_bytes: PAGE_BYTES, ..FencePages::default() };
        if self.blocks() < 2 {
            return pages;
        }
        let mut start = 0;
        while start < self.blocks() {
            let page = self.fill(start);
            pages.first_blocks.push(start);
            let at = pages.bytes.len();
            self.write(&page, &mut pages.bytes);
            if page.blocks == self.blocks() {
                pages.page_bytes = extent_bytes(pages.bytes.len());
            }
            pages.bytes.resize(at + pages.page_bytes, 0);
            start += page.blocks;
        }
        pages
    }

    fn block_bytes(&self, block: usize) -> u64 {
        self.block_ends[block] - if block == 0 { 0 } else { self.block_ends[block - 1] }
    }

    fn is_alone(&self, block: usize) -> bool {
        self.alone.binary_search(&block).is_ok()
    }

    /// As many blocks from `start` as fit a page.
    fn fill(&self, start: usize) -> Page {
        let first = self.separator(start);
        let (prefix_bytes, uniform) = (first.len(), !self.is_alone(start));
        let mut page = Page { start, blocks: 1, prefix_bytes, tail_bytes: 0, tails: false, uniform };
        for block in start + 1..self.blocks() {
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
        let narrow = |value: usize| u16::try_from(value).expect("a page is too small for more").to_le_bytes();
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
