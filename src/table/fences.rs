//! Resident fence pages, with side tables that spare a search most of its cache misses.
//!
//! The pages are as in the file, in the cache's memory. Beside them lie their decoded headers and the first
//! key head of each line, one head in eight. These are few enough to stay in the CPU's caches, so a search
//! reads them and one line of the page. If memory allows, each block also has a hint at its last known
//! frame in the cache, which spares the search of the cache's index. Immutable but for the hints; any thread.

use std::ops::RangeInclusive;

use crate::base::few::{Few, heap_bytes};
use crate::base::prefetch::prefetch;
use crate::base::reserve::{Grant, Role};
use crate::base::sync::Arc;
use crate::cache::{FrameHint, PinnedPages};
use crate::format::table::index::{IndexPage, IndexShape, ModelTables};

use super::memory::{FrameHints, PageBudget};

/// The side data of a page: its shape, and its ranges in the side tables.
struct Beside {
    shape: IndexShape,
    samples_start: u32,
    samples_end: u32,
    first_block: u32,
    /// For a learned page with alphabets, the number of its tables.
    tables: Option<u32>,
}

/// A block's number among the blocks of all pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HintNumber(u32);

/// All fence pages of a slice.
pub(super) enum ResidentFences {
    One(Box<ShortPage>),
    All(Box<AllPages>),
}

/// The only page of a slice, so short that a search needs no side data. A trie has as many slices as nodes,
/// each with one page that is used to a quarter; only the used part is kept.
pub(super) struct ShortPage {
    page: PinnedPages,
    bytes: u32,
}

/// The longest part of a page that is kept alone.
const SHORT_BYTES_MAX: usize = 256;

/// Pages and their side data.
pub(super) struct AllPages {
    pages: PinnedPages,
    /// Bytes of each page.
    page_bytes: usize,
    /// Samples of all pages, one page after the other.
    samples: Few<u64>,
    /// Hints of all blocks of all pages.
    hints: Option<FrameHints>,
    /// Side data of each page.
    beside: Few<Beside>,
    /// Tables of learned pages; neighbours with equal alphabets share them.
    tables: Box<[ModelTables]>,
    /// The grant for all side data, from the cache's reserve.
    _grant: Grant,
}

impl ResidentFences {
    /// Takes `count` checked pages.
    pub(super) fn new(
        pages: PinnedPages,
        count: usize,
        page_bytes: usize,
        budget: &Arc<PageBudget>,
    ) -> ResidentFences {
        let all = AllPages::new(pages, count, page_bytes, budget);
        // If blocks have hints, the data is not much larger than the cache, and fast lookups are worth the
        // memory.
        match ShortPage::bytes_of(&all).filter(|_| count == 1 && all.hints.is_none()) {
            Some(bytes) => {
                let mut page = all.pages;
                budget.shorten(&mut page, bytes);
                ResidentFences::One(Box::new(ShortPage { page, bytes: bytes as u32 }))
            }
            None => ResidentFences::All(Box::new(all)),
        }
    }

    #[inline]
    pub(super) fn page(&self, number: usize) -> IndexPage<'_> {
        match self {
            ResidentFences::One(short) => IndexPage::of_used(short.bytes()),
            ResidentFences::All(all) => all.page(number),
        }
    }

    /// The hint at the frame of a block.
    #[inline]
    pub(super) fn frame_hint(&self, at: HintNumber) -> Option<&FrameHint> {
        match self {
            ResidentFences::One(_) => None,
            ResidentFences::All(all) => all.frame_hint(at),
        }
    }

    #[inline]
    pub(super) fn hint_number(&self, page: usize, index: usize) -> HintNumber {
        match self {
            ResidentFences::One(_) => HintNumber(index as u32),
            ResidentFences::All(all) => all.hint_number(page, index),
        }
    }

    /// Prefetches the hints of these blocks, which are neighbours.
    #[inline]
    pub(super) fn prefetch_hints(&self, page: usize, blocks: RangeInclusive<usize>) {
        if let ResidentFences::All(all) = self {
            all.prefetch_hints(page, blocks);
        }
    }

    /// Bytes of the learned pages.
    pub(super) fn models_bytes(&self) -> u64 {
        match self {
            ResidentFences::One(_) => 0,
            ResidentFences::All(all) => {
                let is_model = |beside: &&Beside| matches!(beside.shape, IndexShape::Learned(_));
                (all.beside.iter().filter(is_model).count() * all.page_bytes) as u64
            }
        }
    }

    #[inline]
    pub(super) fn bytes(&self, number: usize) -> &[u8] {
        match self {
            ResidentFences::One(short) => short.bytes(),
            ResidentFences::All(all) => all.bytes(number),
        }
    }
}

impl ShortPage {
    /// Bytes used of the first page, if it is short enough.
    fn bytes_of(all: &AllPages) -> Option<usize> {
        match all.page(0) {
            IndexPage::Fences(fences) => Some(fences.used_bytes()).filter(|used| *used <= SHORT_BYTES_MAX),
            IndexPage::Learned(_) => None,
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.page.page(0, self.bytes as usize)
    }
}

impl AllPages {
    /// Takes `count` checked pages.
    fn new(pages: PinnedPages, count: usize, page_bytes: usize, budget: &Arc<PageBudget>) -> AllPages {
        let (mut samples, mut beside) = (Few::new(), Few::with_capacity(count));
        let (mut tables, mut last): (Vec<ModelTables>, Option<IndexPage<'_>>) = (Vec::new(), None);
        let mut blocks = 0;
        for number in 0..count {
            let page = IndexPage::of(pages.page(number, page_bytes));
            let few = |count| u32::try_from(count).expect("a slice has fewer blocks");
            let (samples_start, first_block) = (few(samples.len()), few(blocks));
            samples.extend(page.samples());
            blocks += page.ends();
            let samples_end = few(samples.len());
            let tables = page.has_alphabets().then(|| {
                if !last.is_some_and(|last| page.has_alphabets_of(&last)) {
                    tables.extend(ModelTables::of(&page));
                }
                last = Some(page);
                few(tables.len() - 1)
            });
            beside.push(Beside { shape: page.shape(), samples_start, samples_end, first_block, tables });
        }
        samples.shrink_to_fit();
        let hints = budget.frame_hints(blocks);
        let hints_bytes = hints.as_deref().map_or(0, size_of_val);
        let tables_bytes: usize = tables.iter().map(ModelTables::memory_bytes).sum();
        let lists_bytes = heap_bytes(&samples) + heap_bytes(&beside);
        let bytes = lists_bytes + hints_bytes + tables_bytes;
        let bytes = size_of::<AllPages>() + bytes;
        let grant = budget.cache().reserve().grant(Role::Tables, bytes as u64);
        let tables = tables.into_boxed_slice();
        AllPages { pages, page_bytes, samples, hints, beside, tables, _grant: grant }
    }

    #[inline]
    fn page(&self, number: usize) -> IndexPage<'_> {
        let Beside { shape, samples_start, samples_end, tables, .. } = &self.beside[number];
        let samples = &self.samples[*samples_start as usize..*samples_end as usize];
        IndexPage::shaped(self.bytes(number), *shape, samples, tables.map(|one| &self.tables[one as usize]))
    }

    /// The hint at the frame of a block.
    #[inline]
    fn frame_hint(&self, at: HintNumber) -> Option<&FrameHint> {
        self.hints.as_ref()?.get(at.0 as usize)
    }

    #[inline]
    fn hint_number(&self, page: usize, index: usize) -> HintNumber {
        HintNumber(self.beside[page].first_block + index as u32)
    }

    /// Prefetches the hints of these blocks, which are neighbours.
    #[inline]
    fn prefetch_hints(&self, page: usize, blocks: RangeInclusive<usize>) {
        if let Some(hints) = &self.hints {
            for block in [*blocks.start(), *blocks.end()] {
                prefetch(hints, self.hint_number(page, block).0 as usize * size_of::<FrameHint>());
            }
        }
    }

    #[inline]
    fn bytes(&self, number: usize) -> &[u8] {
        self.pages.page(number, self.page_bytes)
    }
}
