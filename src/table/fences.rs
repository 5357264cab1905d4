//! Fence pages that stay in memory, with what spares a search most of their cache lines.
//!
//! The pages are as in the file, in the cache's memory. Beside them lie the heads that begin their lines, one
//! in eight: few enough to be near for every lookup, so that a search looks at these, at the page's header
//! and at one line of it. And where the cache has each block, four bytes a block, so that the cache's index
//! is not searched. Immutable but for the places, for any thread.

use crate::base::prefetch::prefetch;
use crate::cache::{Cache, Loan, PinnedPages, Place};
use crate::format::table::fence::FencePage;

/// Where what lies beside a page begins.
#[derive(Clone, Copy, Default)]
struct Start {
    sample: u32,
    block: u32,
}

/// All fence pages of a slice.
pub(super) struct ResidentFences {
    pages: PinnedPages,
    /// Bytes of each page.
    page_bytes: usize,
    /// Of all pages, one after the other.
    samples: Box<[u64]>,
    /// Of all blocks of all pages.
    places: Box<[Place]>,
    /// Where those of each page begin.
    starts: Box<[Start]>,
    /// For the boxes, on the cache's account.
    _loan: Loan,
}

impl ResidentFences {
    /// Over `count` checked pages.
    pub(super) fn new(pages: PinnedPages, count: usize, page_bytes: usize, cache: &Cache) -> ResidentFences {
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
        let places: Box<[Place]> = (0..blocks).map(|_| Place::default()).collect();
        let loan = cache.lend(size_of_val(&*samples) + size_of_val(&*places) + size_of_val(&*starts));
        ResidentFences { pages, page_bytes, samples, places, starts, _loan: loan }
    }

    #[inline]
    pub(super) fn page(&self, number: usize) -> FencePage<'_> {
        let samples = self.starts[number].sample as usize..self.starts[number + 1].sample as usize;
        FencePage::of(self.bytes(number)).with_samples(&self.samples[samples])
    }

    /// Counts the blocks of all pages.
    #[inline]
    pub(super) fn block_number(&self, page: usize, index: usize) -> u32 {
        self.starts[page].block + index as u32
    }

    #[inline]
    pub(super) fn place(&self, block_number: u32) -> &Place {
        &self.places[block_number as usize]
    }

    #[inline]
    pub(super) fn prefetch_place(&self, page: usize, index: usize) {
        prefetch(&self.places, self.block_number(page, index) as usize * size_of::<Place>());
    }

    #[inline]
    pub(super) fn bytes(&self, number: usize) -> &[u8] {
        self.pages.page(number, self.page_bytes)
    }
}
