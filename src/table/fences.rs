//! Fence pages that stay in memory, with what spares a search most of their cache lines.
//!
//! The pages are as in the file, in the cache's memory. Beside them lie what their headers say and the heads
//! that begin their lines, one in eight: few enough to be near for every lookup, so that a search looks at
//! these and at one line of the page. And where the cache last had each block, if there is memory for that,
//! so that its index is not searched. Immutable but for the places, for any thread.

use std::ops::RangeInclusive;

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
pub(super) struct ResidentFences {
    pages: PinnedPages,
    /// Bytes of each page.
    page_bytes: usize,
    /// Of all pages, one after the other.
    samples: Box<[u64]>,
    /// Of all blocks of all pages.
    places: Option<Places>,
    /// Of each page.
    beside: Box<[Beside]>,
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
        let (mut samples, mut beside) = (Vec::new(), Vec::with_capacity(count));
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
        let (samples, beside) = (samples.into_boxed_slice(), beside.into_boxed_slice());
        let places = budget.places(blocks);
        let places_bytes = places.as_deref().map_or(0, size_of_val);
        let tables_bytes: usize = tables.iter().map(ModelTables::memory_bytes).sum();
        let bytes = size_of_val(&*samples) + size_of_val(&*beside) + places_bytes + tables_bytes;
        let grant = budget.cache().reserve().grant(Role::Tables, bytes as u64);
        let tables = tables.into_boxed_slice();
        ResidentFences { pages, page_bytes, samples, places, beside, tables, _grant: grant }
    }

    #[inline]
    pub(super) fn page(&self, number: usize) -> IndexPage<'_> {
        let Beside { shape, samples_start, samples_end, tables, .. } = &self.beside[number];
        let samples = &self.samples[*samples_start as usize..*samples_end as usize];
        IndexPage::shaped(self.bytes(number), *shape, samples, tables.map(|one| &self.tables[one as usize]))
    }

    /// Where the cache last had a block of a page.
    #[inline]
    pub(super) fn place(&self, at: PlaceNumber) -> Option<&Place> {
        self.places.as_ref()?.get(at.0 as usize)
    }

    #[inline]
    pub(super) fn place_number(&self, page: usize, index: usize) -> PlaceNumber {
        PlaceNumber(self.beside[page].first_block + index as u32)
    }

    /// Hints that places of these blocks, which are neighbours, are wanted soon.
    #[inline]
    pub(super) fn prefetch_places(&self, page: usize, blocks: RangeInclusive<usize>) {
        if let Some(places) = &self.places {
            for block in [*blocks.start(), *blocks.end()] {
                prefetch(places, self.place_number(page, block).0 as usize * size_of::<Place>());
            }
        }
    }

    #[inline]
    pub(super) fn bytes(&self, number: usize) -> &[u8] {
        self.pages.page(number, self.page_bytes)
    }
}
