//! Lays items out in data blocks, cut by size or by models, and gathers the pages that index them.
//!
//! Pages of one layout may be of both kinds: a stretch of keys that no model suits gets fences. One thread.

use std::ops::Range;

use crate::base::checksum::Context;
use crate::base::id::ItemKind;
use crate::base::key::common_prefix;
use crate::base::step::BlockKind;
use crate::format::table::compressed::Compression;
use crate::format::table::data_build::DataBuilder;
use crate::format::table::fence::Extent;
use crate::format::table::fence_build::FenceBuilder;
use crate::format::table::learned_build::{LearnedItems, LearnedOptions, Refusal, plan};
use crate::format::table::{PAGE_BYTES, UNIT_BYTES};

/// Bytes of items from which a page is planned: more than fill one.
const BATCH_BYTES: usize = 8 << 20;
/// Blocks that get fences before a model is tried again.
const FENCED_BLOCKS: usize = 128;

/// Items: keys, each with a value of the same length.
#[derive(Clone, Copy)]
pub(super) struct Items<'k> {
    pub(super) keys: &'k [Vec<u8>],
    pub(super) value_bytes: usize,
}

impl Items<'_> {
    fn bytes(&self) -> usize {
        self.keys.iter().map(|key| key.len() + self.value_bytes).sum()
    }
}

/// A data block: the items up to its end, and where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaidBlock {
    pub(super) end: usize,
    pub(super) extent: Extent,
}

/// Why pages were refused, in numbers.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Refusals {
    pub(super) ties: u64,
    pub(super) long_blocks: u64,
    pub(super) empty_blocks: u64,
    pub(super) no_gain: u64,
}

impl Refusals {
    fn count(&mut self, refusal: Refusal) {
        match refusal {
            // The last items of a layout.
            Refusal::Few => {}
            Refusal::Ties { .. } => self.ties += 1,
            Refusal::LongBlock { .. } => self.long_blocks += 1,
            Refusal::EmptyBlocks { .. } => self.empty_blocks += 1,
            Refusal::NoGain { .. } => self.no_gain += 1,
        }
    }
}

/// An index page of a layout.
#[derive(Debug)]
pub(super) struct LaidPage {
    pub(super) bytes: Vec<u8>,
    pub(super) separator: Vec<u8>,
}

/// Blocks and index pages of a list of items.
#[derive(Debug)]
pub(super) struct Layout {
    /// Those that are not empty.
    pub(super) blocks: Vec<LaidBlock>,
    pub(super) pages: Vec<LaidPage>,
    pub(super) empty_blocks: u64,
    pub(super) refusals: Refusals,
}

/// A layout in the making.
struct Layer<'k> {
    items: Items<'k>,
    data: DataBuilder,
    value: Vec<u8>,
    buffer: Vec<u8>,
    /// Items in blocks.
    next: usize,
    at: u64,
    layout: Layout,
}

/// Blocks cut by size, with fence pages.
pub(super) fn fenced(items: Items<'_>, block_bytes: usize) -> Layout {
    let mut layer = Layer::new(items, block_bytes);
    let mut fences = FenceBuilder::new(0);
    layer.cut_by_size(items.keys.len(), &mut fences);
    layer.push_fences(&fences, 0);
    layer.layout
}

/// Blocks laid out by models, with learned pages and, where pages are refused, fence pages.
pub(super) fn learned(items: Items<'_>, block_bytes: usize, options: &LearnedOptions<'_>) -> Layout {
    let mut layer = Layer::new(items, block_bytes);
    let count = items.keys.len();
    let item_bytes = items.bytes().div_ceil(count.max(1)).max(1);
    let (batch, fenced) = (BATCH_BYTES / item_bytes, FENCED_BLOCKS * block_bytes / item_bytes);
    let mut stretch: Option<(FenceBuilder, usize)> = None;
    while layer.next < count {
        let start = layer.next;
        let batch = PlannedItems::of(items, start..(start + batch).min(count), block_bytes / item_bytes);
        match plan(&batch, layer.last_key(), options) {
            Ok(plan) => {
                if let Some((fences, first)) = stretch.take() {
                    layer.push_fences(&fences, first);
                }
                let offset = layer.at;
                let mut units = Vec::with_capacity(plan.blocks());
                for block in 0..plan.blocks() {
                    let items = plan.block(block);
                    units.push(layer.write_exactly(start + items.start..start + items.end));
                }
                debug_assert_eq!(layer.next, start + plan.items());
                let separator = items.keys[start][..plan.separator_bytes()].to_vec();
                layer.layout.pages.push(LaidPage { bytes: plan.encode(offset, &units), separator });
            }
            Err(refusal) => {
                layer.layout.refusals.count(refusal);
                let (fences, _) = stretch.get_or_insert_with(|| (FenceBuilder::new(layer.at), start));
                layer.cut_by_size((start + fenced.max(1)).min(count), fences);
            }
        }
    }
    if let Some((fences, first)) = stretch {
        layer.push_fences(&fences, first);
    }
    layer.layout
}

impl<'k> Layer<'k> {
    fn new(items: Items<'k>, block_bytes: usize) -> Layer<'k> {
        let layout =
            Layout { blocks: Vec::new(), pages: Vec::new(), empty_blocks: 0, refusals: Refusals::default() };
        Layer {
            items,
            data: DataBuilder::new(block_bytes, Compression::None),
            value: vec![0; items.value_bytes],
            buffer: Vec::new(),
            next: 0,
            at: 0,
            layout,
        }
    }

    fn last_key(&self) -> Option<&'k [u8]> {
        self.next.checked_sub(1).map(|last| self.items.keys[last].as_slice())
    }

    fn add(&mut self, item: usize) {
        self.data.add(&self.items.keys[item], 0, ItemKind::Put, &self.value);
    }

    /// Writes the next `count` items as one block. Returns its bytes.
    fn write(&mut self, count: usize) -> usize {
        self.buffer.clear();
        let context = Context { file_uid: 1, offset: self.at, tag: BlockKind::Data as u8 };
        self.data.encode(count, context, &mut self.buffer);
        let bytes = self.buffer.len();
        self.next += count;
        let extent = Extent { offset: self.at, bytes: bytes as u32 };
        self.layout.blocks.push(LaidBlock { end: self.next, extent });
        self.at += bytes as u64;
        bytes
    }

    /// Writes a block of exactly these items, the next ones. Returns its units.
    fn write_exactly(&mut self, items: Range<usize>) -> usize {
        if items.is_empty() {
            self.layout.empty_blocks += 1;
            return 0;
        }
        items.clone().for_each(|item| self.add(item));
        self.write(items.len()) / UNIT_BYTES
    }

    /// Cuts the items up to `end` by size.
    fn cut_by_size(&mut self, end: usize, fences: &mut FenceBuilder) {
        let mut write = |layer: &mut Layer<'k>, count: usize| {
            let (last, first) = (layer.last_key(), layer.items.keys[layer.next].as_slice());
            let bytes = layer.write(count);
            fences.add(last, first, bytes);
        };
        for item in self.next..end {
            self.add(item);
            while let Some(count) = self.data.cut() {
                write(self, count);
            }
        }
        match self.data.items() {
            0 => {}
            rest => write(self, rest),
        }
    }

    /// Adds the fence pages of blocks whose first item is `first`.
    fn push_fences(&mut self, fences: &FenceBuilder, first: usize) {
        debug_assert!(first <= self.next);
        let pages = fences.build_pages();
        for (block, bytes) in pages.first_blocks.iter().zip(pages.bytes.chunks(pages.page_bytes.max(1))) {
            let separator = fences.separator(*block).to_vec();
            self.layout.pages.push(LaidPage { bytes: bytes.to_vec(), separator });
        }
    }
}

/// The items that a page is planned from.
struct PlannedItems<'k> {
    keys: &'k [Vec<u8>],
    bytes: Vec<usize>,
}

impl<'k> PlannedItems<'k> {
    /// `near`: how many items a block has, about. A block stores once how its keys begin.
    fn of(items: Items<'k>, range: Range<usize>, near: usize) -> PlannedItems<'k> {
        let keys = &items.keys[range];
        let has_ends = keys.iter().any(|key| key.len() != keys[0].len());
        let bytes = |index: usize| {
            let (from, to) = (index.saturating_sub(near / 2), (index + near / 2).min(keys.len() - 1));
            let shared = common_prefix(&keys[from], &keys[to]);
            1 + keys[index].len() - shared + items.value_bytes + if has_ends { 2 } else { 0 }
        };
        PlannedItems { keys, bytes: (0..keys.len()).map(bytes).collect() }
    }
}

impl LearnedItems for PlannedItems<'_> {
    fn count(&self) -> usize {
        self.keys.len()
    }

    fn key(&self, index: usize) -> &[u8] {
        &self.keys[index]
    }

    fn bytes(&self, index: usize) -> usize {
        self.bytes[index]
    }
}

impl Layout {
    /// Bytes of data blocks.
    pub(super) fn data_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.extent.bytes)).sum()
    }

    /// Bytes of index pages in a file: whole pages, and of a single page whole units.
    pub(super) fn page_bytes(&self) -> usize {
        match &self.pages[..] {
            [page] => page.bytes.len().next_multiple_of(UNIT_BYTES),
            pages => pages.len() * PAGE_BYTES,
        }
    }
}
