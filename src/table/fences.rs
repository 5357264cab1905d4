//! Fence pages that stay in memory, with what spares a search most of their cache lines.
//!
//! The pages are as in the file, in the cache's memory. Beside them lie the heads that begin their lines, one
//! in eight: few enough to be near for every lookup, so that a search looks at these, at the page's header
//! and at one line of it. And where the cache last had each block, if there is memory for that, so that its
//! index is not searched. Immutable but for the places, for any thread.

use std::ops::RangeInclusive;

use crate::base::prefetch::prefetch;
use crate::base::sync::Arc;
use crate::cache::{Loan, PinnedPages, Place};
use crate::format::table::fence::FencePage;

use super::memory::{PageBudget, Places};

/// Where what lies beside a page begins.
#[derive(Clone, Copy, Default)]
struct Start {
    sample: u32,
    block: u32,
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
    /// Where those of each page begin.
    starts: Box<[Start]>,
    /// For all that lies beside the pages, on the cache's account.
    _loan: Loan,
}

impl ResidentFences {
    /// Over `count` checked pages.
    pub(super) fn new(
        pages: PinnedPages,
        count: usize,
        page_bytes: usize,
        budget: &Arc<PageBudget>,
    ) -> ResidentFences {
        let (mut samples, mut starts) = (Vec::new(), vec![Start::default()]);
        let mut blocks = 0;
        for number in 0..count {
            let page = FencePage::of(pages.page(number, page_bytes));
            samples.extend(page.samples());
            blocks += page.blocks();
            let few = |count| u32::try_from(count).expect("a slice has fewer blocks");
            starts.push(Start { sample: few(samples.len()), block: few(blocks) });
        }
        let (samples, starts) = (samples.into_boxed_slice(), starts.into_boxed_slice());
        let places = budget.places(blocks);
        let places_bytes = places.as_deref().map_or(0, size_of_val);
        let loan = budget.cache().lend(size_of_val(&*samples) + size_of_val(&*starts) + places_bytes);
        ResidentFences { pages, page_bytes, samples, places, starts, _loan: loan }
    }

    #[inline]
    pub(super) fn page(&self, number: usize) -> FencePage<'_> {
        let samples = self.starts[number].sample as usize..self.starts[number + 1].sample as usize;
        FencePage::of(self.bytes(number)).with_samples(&self.samples[samples])
    }

    /// Where the cache last had a block of a page.
    #[inline]
    pub(super) fn place(&self, at: PlaceNumber) -> Option<&Place> {
        self.places.as_ref()?.get(at.0 as usize)
    }

    #[inline]
    pub(super) fn place_number(&self, page: usize, index: usize) -> PlaceNumber {
        PlaceNumber(self.starts[page].block + index as u32)
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
