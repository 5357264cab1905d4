//! Lays items out in data blocks, cut by size or by models, and builds the index pages of the blocks.
//!
//! A layout may have pages of both kinds: a stretch of keys without a fitting model gets fences. One thread.

use std::ops::Range;

use crate::base::checksum::Context;
use crate::base::id::ItemKind;
use crate::base::key::common_prefix;
use crate::base::step::BlockKind;
use crate::format::table::compressed::Compression;
use crate::format::table::data_build::DataBuilder;
use crate::format::table::fence::Extent;
use crate::format::table::fence_build::FenceBuilder;
use crate::format::table::learned_build::{LearnedItems, LearnedOptions, LearnedPlan, Refusal, plan};
use crate::format::table::{PAGE_BYTES, UNIT_BYTES};

/// Blocks of items from which a page is planned: the first value at the start, the second at most.
const BATCH_BLOCKS: usize = 640;
const BATCH_BLOCKS_MAX: usize = 2048;
/// A page with fewer free bytes is full.
const ROOM_BYTES: usize = 64;
/// Fence pages to fill before the next attempt at a model: one at first, doubled after each failure, up to
/// this number.
const FENCE_PAGES_MAX: usize = 8;

/// Items: keys, all with values of one length.
#[derive(Clone, Copy)]
pub(super) struct LayoutItems<'k> {
    pub(super) keys: &'k [Vec<u8>],
    pub(super) value_bytes: usize,
}

impl LayoutItems<'_> {
    fn bytes(&self) -> usize {
        self.keys.iter().map(|key| key.len() + self.value_bytes).sum()
    }
}

/// A data block: its end among the items, and its extent.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaidBlock {
    pub(super) end: usize,
    pub(super) extent: Extent,
}

/// Counts of refused pages by reason.
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
            // The last items of a layout, or more items than one plan takes.
            Refusal::Few | Refusal::Short => {}
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
pub(super) struct IndexLayout {
    /// Blocks that are not empty.
    pub(super) blocks: Vec<LaidBlock>,
    pub(super) pages: Vec<LaidPage>,
    pub(super) empty_blocks: u64,
    pub(super) refusals: Refusals,
}

/// A layout in construction.
struct Layer<'k> {
    items: LayoutItems<'k>,
    block_bytes: usize,
    data: DataBuilder,
    value: Vec<u8>,
    buffer: Vec<u8>,
    /// Items in blocks.
    next: usize,
    /// Items in blocks, and pending items.
    added: usize,
    at: u64,
    layout: IndexLayout,
}

/// A stretch of blocks with fences.
struct Stretch {
    fences: FenceBuilder,
    /// First block of the current page.
    page_start: usize,
}

/// Lays out blocks cut by size, with fence pages.
pub(super) fn fenced(items: LayoutItems<'_>, block_bytes: usize) -> IndexLayout {
    let mut layer = Layer::new(items, block_bytes);
    let mut fences = FenceBuilder::new(0);
    while layer.cut_by_size(&mut fences) {}
    layer.push_fences(&fences);
    layer.layout
}

/// Lays out blocks by models, with learned pages, and with fence pages where the models are refused.
pub(super) fn learned(
    items: LayoutItems<'_>,
    block_bytes: usize,
    options: &LearnedOptions<'_>,
) -> IndexLayout {
    let mut layer = Layer::new(items, block_bytes);
    let mut stretch: Option<Stretch> = None;
    let (mut batch, mut fence_pages) = (layer.items_of(BATCH_BLOCKS), 1);
    while layer.next < items.keys.len() {
        match layer.plan(&mut batch, options) {
            Ok(plan) => {
                if let Some(stretch) = stretch.take() {
                    layer.push_fences(&stretch.fences);
                }
                layer.write_plan(&plan);
                fence_pages = 1;
            }
            Err(refusal) => {
                layer.layout.refusals.count(refusal);
                let new = || Stretch { fences: FenceBuilder::new(layer.at), page_start: 0 };
                layer.fill_fence_pages(stretch.get_or_insert_with(new), fence_pages);
                fence_pages = (fence_pages * 2).min(FENCE_PAGES_MAX);
                batch = layer.items_of(BATCH_BLOCKS);
            }
        }
    }
    if let Some(stretch) = stretch {
        layer.push_fences(&stretch.fences);
    }
    layer.layout
}

impl<'k> Layer<'k> {
    fn new(items: LayoutItems<'k>, block_bytes: usize) -> Layer<'k> {
        let layout = IndexLayout {
            blocks: Vec::new(),
            pages: Vec::new(),
            empty_blocks: 0,
            refusals: Refusals::default(),
        };
        Layer {
            items,
            block_bytes,
            data: DataBuilder::new(block_bytes, Compression::None),
            value: vec![0; items.value_bytes],
            buffer: Vec::new(),
            next: 0,
            added: 0,
            at: 0,
            layout,
        }
    }

    /// The approximate number of items in `blocks` blocks.
    fn items_of(&self, blocks: usize) -> usize {
        let item_bytes = self.items.bytes() / self.items.keys.len().max(1);
        (blocks * self.block_bytes / item_bytes.max(1)).max(2)
    }

    /// Plans the next page; takes more items if those of the batch do not fill it.
    fn plan(&self, batch: &mut usize, options: &LearnedOptions<'_>) -> Result<LearnedPlan, Refusal> {
        let count = self.items.keys.len();
        let [batch_min, near, batch_max] = [BATCH_BLOCKS, 1, BATCH_BLOCKS_MAX].map(|n| self.items_of(n));
        loop {
            let end = (self.next + *batch).min(count);
            let items = PlannedItems::of(self.items, self.next..end, near);
            let planned = plan(&items, self.last_key(), options);
            let is_short = match &planned {
                Ok(plan) => self.next + plan.items() == end && plan.room_bytes() >= ROOM_BYTES,
                Err(refusal) => *refusal == Refusal::Short,
            };
            if !is_short || end == count || *batch >= batch_max {
                if let Ok(plan) = &planned {
                    *batch = (plan.items() * 5 / 4).clamp(batch_min, batch_max);
                }
                return planned;
            }
            *batch = (*batch * 2).min(batch_max);
        }
    }

    /// Writes the blocks of a plan, and its page.
    fn write_plan(&mut self, plan: &LearnedPlan) {
        // The plan starts with the items that are pending.
        self.data = DataBuilder::new(self.block_bytes, Compression::None);
        self.added = self.next;
        let (start, offset) = (self.next, self.at);
        let mut units = Vec::with_capacity(plan.blocks());
        for block in 0..plan.blocks() {
            let items = plan.block(block);
            units.push(self.write_exactly(start + items.end));
        }
        let separator = self.items.keys[start][..plan.separator_bytes()].to_vec();
        self.layout.pages.push(LaidPage { bytes: plan.encode(offset, &units), separator });
    }

    /// Cuts blocks by size until `pages` more fence pages are full, or all items are in blocks.
    fn fill_fence_pages(&mut self, stretch: &mut Stretch, pages: usize) {
        let mut filled = 0;
        while filled < pages && self.cut_by_size(&mut stretch.fences) {
            let (blocks, room) = stretch.fences.page_from(stretch.page_start);
            if stretch.page_start + blocks < stretch.fences.blocks() || room < ROOM_BYTES {
                stretch.page_start += blocks;
                filled += 1;
            }
        }
    }

    fn last_key(&self) -> Option<&'k [u8]> {
        self.next.checked_sub(1).map(|last| self.items.keys[last].as_slice())
    }

    /// Makes the next item pending.
    fn add(&mut self) {
        self.data.add(&self.items.keys[self.added], 0, ItemKind::Put, &self.value);
        self.added += 1;
    }

    /// Writes the next `count` items as one block. Returns its length in bytes.
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

    /// Writes a block of the items up to `end`. Returns its length in units.
    fn write_exactly(&mut self, end: usize) -> usize {
        if self.next == end {
            self.layout.empty_blocks += 1;
            return 0;
        }
        (self.added..end).for_each(|_| self.add());
        self.write(end - self.next) / UNIT_BYTES
    }

    /// Writes the next block, cut by size. Returns false if all items are in blocks.
    fn cut_by_size(&mut self, fences: &mut FenceBuilder) -> bool {
        let count = loop {
            if let Some(count) = self.data.cut() {
                break count;
            }
            if self.added == self.items.keys.len() {
                break self.data.items();
            }
            self.add();
        };
        if count == 0 {
            return false;
        }
        let (last, first) = (self.last_key(), self.items.keys[self.next].as_slice());
        let bytes = self.write(count);
        fences.add(last, first, bytes);
        true
    }

    /// Adds the fence pages of a stretch of blocks.
    fn push_fences(&mut self, fences: &FenceBuilder) {
        let pages = fences.build_pages();
        for (block, bytes) in pages.first_blocks.iter().zip(pages.bytes.chunks(pages.page_bytes)) {
            let separator = fences.separator(*block).to_vec();
            self.layout.pages.push(LaidPage { bytes: bytes.to_vec(), separator });
        }
    }
}

/// The input items of a page's plan.
struct PlannedItems<'k> {
    keys: &'k [Vec<u8>],
    bytes: Vec<usize>,
    are_last: bool,
}

impl<'k> PlannedItems<'k> {
    /// `near` is the approximate number of items in a block. A block stores the shared prefix of its keys
    /// once.
    fn of(items: LayoutItems<'k>, range: Range<usize>, near: usize) -> PlannedItems<'k> {
        let are_last = range.end == items.keys.len();
        let keys = &items.keys[range];
        let has_ends = keys.iter().any(|key| key.len() != keys[0].len());
        let bytes = |index: usize| {
            let (from, to) = (index.saturating_sub(near / 2), (index + near / 2).min(keys.len() - 1));
            let shared = common_prefix(&keys[from], &keys[to]);
            1 + keys[index].len() - shared + items.value_bytes + if has_ends { 2 } else { 0 }
        };
        PlannedItems { keys, bytes: (0..keys.len()).map(bytes).collect(), are_last }
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

    fn are_last(&self) -> bool {
        self.are_last
    }
}

impl IndexLayout {
    /// Bytes of all data blocks.
    pub(super) fn data_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.extent.bytes)).sum()
    }

    /// Bytes of the index pages in a file. Several pages take whole pages each; a single page takes whole
    /// units.
    pub(super) fn page_bytes(&self) -> usize {
        match &self.pages[..] {
            [page] => page.bytes.len().next_multiple_of(UNIT_BYTES),
            pages => pages.len() * PAGE_BYTES,
        }
    }
}
