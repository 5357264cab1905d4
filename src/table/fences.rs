//! Fence pages that stay in memory, with what spares a search most of their cache lines.
//!
//! The pages are as in the file, in the cache's memory. Beside them lie what their headers say and the heads
//! that begin their lines, one in eight: few enough to be near for every lookup, so that a search looks at
//! these and at one line of the page. And where the cache last had each block, if there is memory for that,
//! so that its index is not searched. Immutable but for the places, for any thread.

use std::ops::RangeInclusive;

use crate::base::few::{Few, heap_bytes};
use crate::base::prefetch::prefetch;
use crate::base::reserve::{Grant, Role};
use crate::base::sync::Arc;
use crate::cache::{PinnedPages, Place};
use crate::format::table::index::{IndexPage, IndexShape, ModelTables};

use super::memory::{PageBudget, Places};

/// A page, and where what lies beside it is.
struct Beside {
    shape: IndexShape,
    samples_start: u32,
    samples_end: u32,
    first_block: u32,
    /// Of a model with alphabets, the number of their tables.
    tables: Option<u32>,
}

/// Counts the blocks of all pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlaceNumber(u32);

/// All fence pages of a slice.
pub(super) enum ResidentFences {
    One(Box<ShortPage>),
    All(Box<AllPages>),
}

/// The only page of a slice, so short that a search needs nothing beside it. A trie has as many slices as it
/// has nodes, each with one page of which a quarter is used: that part is kept.
pub(super) struct ShortPage {
    page: PinnedPages,
    bytes: u32,
}

/// Longest part of a page that is kept alone.
const SHORT_BYTES_MAX: usize = 256;

/// Pages, and what lies beside them.
pub(super) struct AllPages {
    pages: PinnedPages,
    /// Bytes of each page.
    page_bytes: usize,
    /// Of all pages, one after the other.
    samples: Few<u64>,
    /// Of all blocks of all pages.
    places: Option<Places>,
    /// Of each page.
    beside: Few<Beside>,
    /// Of models; neighbours with equal alphabets share them.
    tables: Box<[ModelTables]>,
    /// For all that lies beside the pages, on the cache's account.
    _grant: Grant,
}

impl ResidentFences {
    /// Over `count` checked pages.
    pub(super) fn new(
        pages: PinnedPages,
        count: usize,
        page_bytes: usize,
        budget: &Arc<PageBudget>,
    ) -> ResidentFences {
        let all = AllPages::new(pages, count, page_bytes, budget);
        // Where blocks have places the data is not much more than the cache: lookups are worth the memory.
        match ShortPage::bytes_of(&all).filter(|_| count == 1 && all.places.is_none()) {
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

    /// Where the cache last had a block of a page.
    #[inline]
    pub(super) fn place(&self, at: PlaceNumber) -> Option<&Place> {
        match self {
            ResidentFences::One(_) => None,
            ResidentFences::All(all) => all.place(at),
        }
    }

    #[inline]
    pub(super) fn place_number(&self, page: usize, index: usize) -> PlaceNumber {
        match self {
            ResidentFences::One(_) => PlaceNumber(index as u32),
            ResidentFences::All(all) => all.place_number(page, index),
        }
    }

    /// Hints that places of these blocks, which are neighbours, are wanted soon.
    #[inline]
    pub(super) fn prefetch_places(&self, page: usize, blocks: RangeInclusive<usize>) {
        if let ResidentFences::All(all) = self {
            all.prefetch_places(page, blocks);
        }
    }

    /// Bytes of the pages that are models.
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
    /// Used bytes of the first page, if they are so few.
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
    /// Over `count` checked pages.
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
        let places = budget.places(blocks);
        let places_bytes = places.as_deref().map_or(0, size_of_val);
        let tables_bytes: usize = tables.iter().map(ModelTables::memory_bytes).sum();
        let lists_bytes = heap_bytes(&samples) + heap_bytes(&beside);
        let bytes = lists_bytes + places_bytes + tables_bytes;
        let bytes = size_of::<AllPages>() + bytes;
        let grant = budget.cache().reserve().grant(Role::Tables, bytes as u64);
        let tables = tables.into_boxed_slice();
        AllPages { pages, page_bytes, samples, places, beside, tables, _grant: grant }
    }

    #[inline]
    fn page(&self, number: usize) -> IndexPage<'_> {
        let Beside { shape, samples_start, samples_end, tables, .. } = &self.beside[number];
        let samples = &self.samples[*samples_start as usize..*samples_end as usize];
        IndexPage::shaped(self.bytes(number), *shape, samples, tables.map(|one| &self.tables[one as usize]))
    }

    /// Where the cache last had a block of a page.
    #[inline]
    fn place(&self, at: PlaceNumber) -> Option<&Place> {
        self.places.as_ref()?.get(at.0 as usize)
    }

    #[inline]
    fn place_number(&self, page: usize, index: usize) -> PlaceNumber {
        PlaceNumber(self.beside[page].first_block + index as u32)
    }

    /// Hints that places of these blocks, which are neighbours, are wanted soon.
    #[inline]
    fn prefetch_places(&self, page: usize, blocks: RangeInclusive<usize>) {
        if let Some(places) = &self.places {
            for block in [*blocks.start(), *blocks.end()] {
                prefetch(places, self.place_number(page, block).0 as usize * size_of::<Place>());
            }
        }
    }

    #[inline]
    fn bytes(&self, number: usize) -> &[u8] {
        self.pages.page(number, self.page_bytes)
    }
}
